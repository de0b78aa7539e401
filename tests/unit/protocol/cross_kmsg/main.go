// SPDX-License-Identifier: Apache-2.0

// Reads codec_print's lines and has franz-go's generated codec decode and encode each message; the
// bytes must be the same. Covers every API and version in both directions.
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// message is what requests and responses have in common.
type message interface {
	SetVersion(int16)
	ReadFrom([]byte) error
	AppendTo([]byte) []byte
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<22)
	count, different := 0, 0
	newer := map[string]bool{}
	for lines.Scan() {
		var key, version int16
		var direction, text string
		if n, _ := fmt.Sscan(lines.Text(), &key, &version, &direction, &text); n < 3 {
			fmt.Println("not a message:", lines.Text())
			os.Exit(1)
		}
		body, err := hex.DecodeString(text)
		request := kmsg.RequestForKey(key)
		if version > request.MaxVersion() {
			newer[fmt.Sprintf("%d v%d", key, version)] = true // than this module knows
			continue
		}
		var m message = request
		if direction == "response" {
			m = request.ResponseKind()
		}
		m.SetVersion(version)
		if err == nil {
			err = m.ReadFrom(body)
		}
		count++
		if err != nil || !bytes.Equal(m.AppendTo(nil), body) {
			fmt.Println(key, version, direction, err, text)
			different++
		}
	}
	fmt.Printf("%d messages compared, %d differ, not known here: %v\n", count, different, newer)
	if different > 0 || count == 0 {
		os.Exit(1)
	}
}
