// SPDX-License-Identifier: Apache-2.0

// A member of a consumer group: reads until nothing came for a while, commits, leaves, and prints
// the values it read, one a line. tests/clients/groups.py runs several and compares. With
// GROUP_PROTOCOL=consumer in the new protocol.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const limit = 90 * time.Second

func read(address, topic, group string, idle time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(address), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	}
	if instance := os.Getenv("GROUP_INSTANCE"); instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	if os.Getenv("GROUP_PROTOCOL") == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for last := time.Now(); time.Since(last) < idle; {
		poll, done := context.WithTimeout(ctx, time.Second)
		fetches := client.PollFetches(poll)
		done()
		if err := fetches.Err0(); err != nil && poll.Err() == nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Fprintln(out, string(record.Value))
			last = time.Now()
		})
		if fetches.NumRecords() > 0 {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: group ADDRESS TOPIC GROUP IDLE_S")
		os.Exit(2)
	}
	idle, err := strconv.ParseFloat(os.Args[4], 64)
	if err == nil {
		err = read(os.Args[1], os.Args[2], os.Args[3], time.Duration(idle*float64(time.Second)))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "group: %v\n", err)
		os.Exit(1)
	}
}
