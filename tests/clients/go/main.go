// SPDX-License-Identifier: Apache-2.0

// franz ADDRESS TOPIC CODEC BYTES
//
// Goal: franz-go works against the broker without any setting that its users would not make.
// Method: creates the topic, produces random records over its partitions with the client's default
// (idempotent, acks=all) and one codec, asks for offsets at both ends and by time, reads all back
// with assigned partitions and compares order, keys, values and timestamps by checksum; deletes the
// topic. Exits 1 with a reason, else prints one line.
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	partitions   = 4
	poolBytes    = 1 << 20
	recordMax    = 2000
	limit        = 20 * time.Minute
	earliest     = -2
	latest       = -1
	requestLimit = 30 * 1000 // milliseconds
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// content is what one partition holds: how many records, and the sum over all of them in order.
type content struct {
	count int64
	sum   hash.Hash
}

func newContents() []content {
	made := make([]content, partitions)
	for i := range made {
		made[i].sum = sha256.New()
	}
	return made
}

func (c *content) add(record *kgo.Record) {
	var head [24]byte
	binary.BigEndian.PutUint64(head[:], uint64(len(record.Key)))
	binary.BigEndian.PutUint64(head[8:], uint64(len(record.Value)))
	binary.BigEndian.PutUint64(head[16:], uint64(record.Timestamp.UnixMilli()))
	c.sum.Write(head[:])
	c.sum.Write(record.Key)
	c.sum.Write(record.Value)
	c.count++
}

func create(ctx context.Context, client *kgo.Client, topic string) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = requestLimit
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic = topic
	wanted.NumPartitions = partitions
	wanted.ReplicationFactor = 1
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

func remove(ctx context.Context, client *kgo.Client, topic string) error {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = requestLimit
	request.TopicNames = []string{topic}
	named := kmsg.NewDeleteTopicsRequestTopic()
	named.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, named)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

// produce sends records until total bytes are reached. Record i goes to partition i modulo their
// number, at the time base plus i milliseconds.
func produce(ctx context.Context, client *kgo.Client, topic string, total int64,
	base time.Time) ([]content, error) {
	pool := make([]byte, poolBytes)
	if _, err := rand.Read(pool); err != nil {
		return nil, err
	}
	var mutex sync.Mutex
	var failed error
	want := newContents()
	sent := int64(0)
	for i := int64(0); sent < total; i++ {
		size := 1 + i*7919%recordMax
		at := i * 104729 % (poolBytes - size)
		record := &kgo.Record{
			Topic: topic, Partition: int32(i % partitions), Key: []byte(strconv.FormatInt(i, 10)),
			Value: pool[at : at+size], Timestamp: base.Add(time.Duration(i) * time.Millisecond),
		}
		want[record.Partition].add(record)
		sent += size
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			failed = errors.Join(failed, err)
		})
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	mutex.Lock()
	defer mutex.Unlock()
	return want, failed
}

// offsetAt asks for the offset of partition 0 at a time in milliseconds, or at an end.
func offsetAt(ctx context.Context, client *kgo.Client, topic string, at int64) (int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = topic
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Timestamp = at
	wanted.Partitions = append(wanted.Partitions, partition)
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	got := answer.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

func checkOffsets(ctx context.Context, client *kgo.Client, topic string, count int64,
	base time.Time) error {
	middle := count / 2
	// The records of partition 0 are partitions milliseconds apart: a time just above one record's is the next one's.
	just := base.UnixMilli() + (middle-1)*partitions + 1
	for _, one := range []struct{ at, want int64 }{
		{earliest, 0}, {latest, count}, {base.UnixMilli(), 0}, {just, middle},
		{base.UnixMilli() + count*partitions, -1},
	} {
		got, err := offsetAt(ctx, client, topic, one.at)
		if err != nil {
			return fmt.Errorf("offset at %d: %w", one.at, err)
		}
		if got != one.want {
			return fmt.Errorf("offset at %d is %d, not %d", one.at, got, one.want)
		}
	}
	return nil
}

func consume(ctx context.Context, address, topic string, want []content) ([]content, error) {
	start := map[int32]kgo.Offset{}
	left := int64(0)
	for i := range want {
		start[int32(i)] = kgo.NewOffset().AtStart()
		left += want[i].count
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(address),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	got := newContents()
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		var wrong error
		fetches.EachRecord(func(record *kgo.Record) {
			into := &got[record.Partition]
			if record.Offset != into.count && wrong == nil {
				wrong = fmt.Errorf("partition %d: offset %d after %d records", record.Partition,
					record.Offset, into.count)
			}
			into.add(record)
			left--
		})
		if wrong != nil {
			return nil, wrong
		}
	}
	return got, nil
}

func check(address, topic, codec string, total int64) error {
	compression, known := codecs[codec]
	if !known {
		return fmt.Errorf("unknown codec %q", codec)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ProducerBatchCompression(compression),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(20000))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := create(ctx, client, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := create(ctx, client, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", err)
	}
	base := time.UnixMilli(time.Now().Add(-time.Hour).UnixMilli())
	want, err := produce(ctx, client, topic, total, base)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := checkOffsets(ctx, client, topic, want[0].count, base); err != nil {
		return err
	}
	got, err := consume(ctx, address, topic, want)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	records := int64(0)
	for i := range want {
		if string(got[i].sum.Sum(nil)) != string(want[i].sum.Sum(nil)) {
			return fmt.Errorf("partition %d: what came back is not what was sent", i)
		}
		records += want[i].count
	}
	if err := remove(ctx, client, topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	fmt.Printf("franz-go %s: %d records in %d partitions equal\n", codec, records, partitions)
	return nil
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: franz ADDRESS TOPIC CODEC BYTES")
		os.Exit(2)
	}
	total, err := strconv.ParseInt(os.Args[4], 10, 64)
	if err == nil {
		err = check(os.Args[1], os.Args[2], os.Args[3], total)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "franz: %v\n", err)
		os.Exit(1)
	}
}
