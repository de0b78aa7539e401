// SPDX-License-Identifier: Apache-2.0

// Drives franz-go against the recorder at the address in the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ClientID("franz-go"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			"frames": {0: kgo.NewOffset().AtStart()},
		}),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "frames", Key: []byte("key"), Value: []byte("value")}
	fmt.Println(client.ProduceSync(ctx, record).FirstErr())
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, "frames")
	fmt.Println(err)
	_, err = admin.DescribeTopicConfigs(ctx, "frames")
	fmt.Println(err)
	_, err = admin.DeleteTopics(ctx, "frames")
	fmt.Println(err)
	_, err = admin.OffetForLeaderEpoch(ctx, kadm.OffsetForLeaderEpochRequest{"frames": {0: 0}})
	fmt.Println(err)
	_, err = admin.ListEndOffsets(ctx, "frames")
	fmt.Println(err)
	poll, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	client.PollFetches(poll)
}
