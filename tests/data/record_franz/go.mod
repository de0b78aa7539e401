module frames

go 1.21

require (
	github.com/twmb/franz-go v1.15.4
	github.com/twmb/franz-go/pkg/kadm v1.10.0
)

require (
	github.com/klauspost/compress v1.17.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.19 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.7.0 // indirect
	golang.org/x/crypto v0.17.0 // indirect
)
