// SPDX-License-Identifier: Apache-2.0

// txn ADDRESS
//
// Goal: franz-go's transactions work: a group reads a topic and writes each record to another one,
// offsets and records in one transaction; some are aborted. Method: after the copy a reader of
// committed records must get each value once, and a reader of everything more than that.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	partitions = 2
	count      = 1000
	batch      = 100
	limit      = 60 * time.Second
	source     = "franz-source"
	target     = "franz-target"
)

func create(ctx context.Context, client *kgo.Client) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range []string{source, target} {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic = name
		topic.NumPartitions = partitions
		topic.ReplicationFactor = 1
		request.Topics = append(request.Topics, topic)
	}
	_, err := request.RequestWith(ctx, client)
	return err
}

func fill(ctx context.Context, client *kgo.Client) error {
	for number := range count {
		record := &kgo.Record{Topic: source, Value: []byte(strconv.Itoa(number))}
		client.Produce(ctx, record, nil)
	}
	return client.Flush(ctx)
}

// transfer copies until the group has nothing left. Every third transaction is aborted.
func transfer(ctx context.Context, address string) error {
	copier, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address), kgo.TransactionalID("franz"), kgo.ConsumerGroup("franz-copies"),
		kgo.ConsumeTopics(source), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer copier.Close()
	for copied, number := 0, 0; copied < count; number++ {
		fetches := copier.PollRecords(ctx, batch)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := copier.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			copier.Produce(ctx, &kgo.Record{Topic: target, Value: record.Value}, nil)
		})
		wanted := kgo.TryCommit
		if number%3 == 2 {
			// What is not sent yet an abort would just forget.
			if err := copier.Client().Flush(ctx); err != nil {
				return err
			}
			wanted = kgo.TryAbort
		}
		done, err := copier.End(ctx, wanted)
		if err != nil {
			return err
		}
		if done {
			copied += fetches.NumRecords()
		}
	}
	return nil
}

// values reads the target up to the moment when nothing more comes.
func values(ctx context.Context, address string, level kgo.IsolationLevel) (map[string]int, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(target),
		kgo.FetchIsolationLevel(level), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := map[string]int{}
	for last := time.Now(); time.Since(last) < time.Second; {
		poll, done := context.WithTimeout(ctx, 500*time.Millisecond)
		client.PollFetches(poll).EachRecord(func(record *kgo.Record) {
			found[string(record.Value)]++
			last = time.Now()
		})
		done()
	}
	return found, ctx.Err()
}

func check(ctx context.Context, address string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := create(ctx, client); err != nil {
		return err
	}
	if err := fill(ctx, client); err != nil {
		return err
	}
	if err := transfer(ctx, address); err != nil {
		return err
	}
	committed, err := values(ctx, address, kgo.ReadCommitted())
	if err != nil {
		return err
	}
	for value, times := range committed {
		if times != 1 {
			return fmt.Errorf("%s was read %d times", value, times)
		}
	}
	if len(committed) != count {
		return fmt.Errorf("%d of %d values are there", len(committed), count)
	}
	all, err := values(ctx, address, kgo.ReadUncommitted())
	if err != nil {
		return err
	}
	sum := 0
	for _, times := range all {
		sum += times
	}
	if sum <= count {
		return fmt.Errorf("no transaction was aborted: %d records", sum)
	}
	fmt.Printf("franz-go: %d records copied once, %d more in transactions that were aborted\n", count, sum-count)
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: txn ADDRESS")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := check(ctx, os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "txn: %v\n", err)
		os.Exit(1)
	}
}
