// SPDX-License-Identifier: Apache-2.0

// What sarama does with groups, transactions, administration and times of records.
//
//	sarama ADDRESS CHECK
//
// Exits 0 when everything that CHECK names is as Kafka has it; says what is not, else.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 4
	perPart    = 100
	limit      = 90 * time.Second
)

var addresses []string

func check(good bool, format string, words ...any) {
	if !good {
		fmt.Fprintf(os.Stderr, format+"\n", words...)
		os.Exit(1)
	}
}

func must(err error, what string) {
	check(err == nil, "%s: %v", what, err)
}

// settings of a client that speaks to the broker as it would to Kafka 4.
func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 20 * time.Second
	config.Metadata.Retry.Max = 20
	return config
}

func admin() sarama.ClusterAdmin {
	made, err := sarama.NewClusterAdmin(addresses, settings())
	must(err, "admin client")
	return made
}

func create(topic string, count int32, configs map[string]string) {
	entries := map[string]*string{}
	for name, value := range configs {
		entries[name] = &value
	}
	made := admin()
	defer made.Close()
	must(made.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: 1,
		ConfigEntries: entries}, false), "create "+topic)
}

func producer(change func(*sarama.Config)) sarama.SyncProducer {
	config := settings()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	if change != nil {
		change(config)
	}
	made, err := sarama.NewSyncProducer(addresses, config)
	must(err, "producer")
	return made
}

func send(to sarama.SyncProducer, topic string, partition int32, value string, when time.Time) int64 {
	_, offset, err := to.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: partition,
		Value: sarama.StringEncoder(value), Timestamp: when})
	must(err, "send "+value)
	return offset
}

func fill(topic string) {
	to := producer(nil)
	defer to.Close()
	var all []*sarama.ProducerMessage
	for i := range partitions * perPart {
		all = append(all, &sarama.ProducerMessage{Topic: topic, Partition: int32(i % partitions),
			Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	must(to.SendMessages(all), "send all")
}

// values of one partition up to its end, as a reader of that isolation gets them.
func values(topic string, partition int32, level sarama.IsolationLevel, count int) []*sarama.ConsumerMessage {
	config := settings()
	config.Consumer.IsolationLevel = level
	from, err := sarama.NewConsumer(addresses, config)
	must(err, "consumer")
	defer from.Close()
	one, err := from.ConsumePartition(topic, partition, sarama.OffsetOldest)
	must(err, "consume "+topic)
	defer one.Close()
	var got []*sarama.ConsumerMessage
	for {
		wait := limit
		if len(got) == count {
			wait = time.Second // there is nothing more
		}
		select {
		case message := <-one.Messages():
			got = append(got, message)
			check(len(got) <= count, "more than %d records of %s", count, topic)
		case <-time.After(wait):
			check(len(got) == count, "%d in place of %d records of %s", len(got), count, topic)
			return got
		}
	}
}

// --- groups ---------------------------------------------------------------------------------------

// member is one of a group: it notes what it was given and what it read.
type member struct {
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	ended  chan struct{}

	mutex sync.Mutex
	owned int
	seen  map[string]int
}

func (m *member) Setup(given sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.owned = 0
	for _, some := range given.Claims() {
		m.owned += len(some)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(given sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.mutex.Lock()
			m.seen[string(message.Value)]++
			m.mutex.Unlock()
			given.MarkMessage(message, "seen")
		case <-given.Context().Done():
			return nil
		}
	}
}

func (m *member) owns() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.owned
}

func (m *member) saw() map[string]int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	all := map[string]int{}
	for value, times := range m.seen {
		all[value] = times
	}
	return all
}

func join(group, topic, instance string, strategy sarama.BalanceStrategy) *member {
	config := settings()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	config.Consumer.Group.InstanceId = instance
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	made, err := sarama.NewConsumerGroup(addresses, group, config)
	must(err, "group client")
	context, cancel := context.WithCancel(context.Background())
	one := &member{group: made, cancel: cancel, ended: make(chan struct{}), seen: map[string]int{}}
	go func() {
		defer close(one.ended)
		for context.Err() == nil {
			err := made.Consume(context, []string{topic}, one)
			check(err == nil || errors.Is(err, sarama.ErrClosedConsumerGroup), "consume: %v", err)
		}
	}()
	return one
}

func (m *member) leave() {
	m.cancel()
	<-m.ended
	must(m.group.Close(), "leave")
}

func until(what string, condition func() bool) {
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(50 * time.Millisecond) {
		check(time.Now().Before(deadline), "%s: not within %v", what, limit)
	}
}

func groups() {
	for name, strategy := range map[string]sarama.BalanceStrategy{
		"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky": sarama.NewBalanceStrategySticky()} {
		topic := "sarama-groups-" + name
		create(topic, partitions, nil)
		one := join(topic, topic, "", strategy)
		two := join(topic, topic, "", strategy)
		until("two members share", func() bool { return one.owns() == partitions/2 && two.owns() == partitions/2 })
		fill(topic)
		until("everything is read", func() bool { return len(one.saw())+len(two.saw()) == partitions*perPart })
		look := admin()
		described, err := look.DescribeConsumerGroups([]string{topic})
		must(err, "describe group")
		check(described[0].State == "Stable" && described[0].Protocol == strategy.Name() &&
			len(described[0].Members) == 2, "group: %+v", described[0])
		listed, err := look.ListConsumerGroups()
		must(err, "list groups")
		check(listed[topic] == "consumer", "listed: %v", listed)
		two.leave()
		until("one has all", func() bool { return one.owns() == partitions })
		one.leave()
		for value, times := range one.saw() {
			check(times == 1 && two.saw()[value] == 0, "%s: %s was read again", name, value)
		}
		committed(look, topic, topic)
		removals(look, topic, topic)
		must(look.Close(), "close")
	}
	static()
}

// committed: each partition's offset is its end, with its metadata.
func committed(look sarama.ClusterAdmin, group, topic string) {
	offsets, err := look.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3}})
	must(err, "offsets")
	for i := range int32(partitions) {
		block := offsets.GetBlock(topic, i)
		check(block.Err == sarama.ErrNoError && block.Offset == perPart && block.Metadata == "seen",
			"partition %d: %+v", i, block)
	}
}

func removals(look sarama.ClusterAdmin, group, topic string) {
	must(look.DeleteConsumerGroupOffset(group, topic, 1), "delete an offset")
	offsets, err := look.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	must(err, "offsets")
	check(offsets.GetBlock(topic, 1).Offset == -1 && offsets.GetBlock(topic, 0).Offset == perPart, "kept offsets")
	must(look.DeleteConsumerGroup(group), "delete group")
	listed, err := look.ListConsumerGroups()
	must(err, "list groups")
	_, there := listed[group]
	check(!there, "the group is still listed")
	check(errors.Is(look.DeleteConsumerGroup(group), sarama.ErrGroupIDNotFound), "deleted twice")
}

// static members come back without a rebalance of the other one.
func static() {
	topic := "sarama-static"
	create(topic, partitions, nil)
	strategy := sarama.NewBalanceStrategySticky()
	one := join(topic, topic, "first", strategy)
	two := join(topic, topic, "second", strategy)
	until("two members share", func() bool { return one.owns() == partitions/2 && two.owns() == partitions/2 })
	look := admin()
	defer look.Close()
	before, err := look.DescribeConsumerGroups([]string{topic})
	must(err, "describe group")
	names := map[string]bool{}
	for _, some := range before[0].Members {
		names[*some.GroupInstanceId] = true
	}
	check(names["first"] && names["second"], "instances: %v", names)
	two.leave()
	two = join(topic, topic, "second", strategy)
	until("it is back", func() bool { return two.owns() == partitions/2 })
	check(one.owns() == partitions/2, "the other one has %d", one.owns())
	one.leave()
	two.leave()
	_, err = look.RemoveMemberFromConsumerGroup(topic, []string{"first", "second"})
	must(err, "remove members")
	after, err := look.DescribeConsumerGroups([]string{topic})
	must(err, "describe group")
	check(after[0].State == "Empty" && len(after[0].Members) == 0, "group: %+v", after[0])
}

// --- transactions ---------------------------------------------------------------------------------

func transactional(id string) sarama.SyncProducer {
	return producer(func(config *sarama.Config) {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Transaction.ID = id
		config.Net.MaxOpenRequests = 1
		config.Producer.Retry.Max = 50
		config.Producer.Transaction.Retry.Max = 100
	})
}

func transactions() {
	topic, group := "sarama-txn", "sarama-txn-group"
	create(topic, 2, nil)
	to := transactional("sarama-txn")
	look := admin()
	defer look.Close()
	offset := func() int64 {
		got, err := look.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
		must(err, "offsets")
		return got.GetBlock(topic, 0).Offset
	}
	want := 0
	for round := range 6 {
		must(to.BeginTxn(), "begin")
		for i := range 50 {
			send(to, topic, int32(i%2), fmt.Sprintf("%d-%d", round, i), time.Now())
		}
		must(to.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{
			topic: {{Partition: 0, Offset: int64(100 + round)}}}, group), "offsets of the transaction")
		if round%2 == 0 {
			must(to.CommitTxn(), "commit")
			want++
		} else {
			must(to.AbortTxn(), "abort")
		}
		last := int64(100 + round/2*2) // this client does not wait for markers
		until("offsets of the transaction", func() bool { return offset() == last })
	}
	for i, message := range values(topic, 1, sarama.ReadCommitted, want*25) {
		expected := fmt.Sprintf("%d-%d", i/25*2, i%25*2+1)
		check(string(message.Value) == expected, "record %d is %s, not %s", i, message.Value, expected)
	}
	values(topic, 1, sarama.ReadUncommitted, 6*25)

	must(to.BeginTxn(), "begin")
	send(to, topic, 0, "of the old one", time.Now())
	next := transactional("sarama-txn") // fences the first
	check(to.CommitTxn() != nil, "a fenced producer committed")
	must(next.BeginTxn(), "begin after")
	send(next, topic, 0, "of the new one", time.Now())
	must(next.CommitTxn(), "commit after")
	must(next.Close(), "close")
	_ = to.Close()
	got := values(topic, 0, sarama.ReadCommitted, want*25+1)
	check(string(got[want*25].Value) == "of the new one", "last is %s", got[want*25].Value)
}

// --- administration -------------------------------------------------------------------------------

func value(look sarama.ClusterAdmin, topic, name string) sarama.ConfigEntry {
	entries, err := look.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
		ConfigNames: []string{name}})
	must(err, "describe "+name)
	check(len(entries) == 1 && entries[0].Name == name, "described %v", entries)
	return entries[0]
}

func administration() {
	topic := "sarama-admin"
	create(topic, 1, map[string]string{"retention.ms": "3600000"})
	look := admin()
	defer look.Close()
	err := look.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	check(errors.Is(err, sarama.ErrTopicAlreadyExists), "made twice: %v", err)
	err = look.CreateTopic("sarama-bad", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}, true)
	check(errors.Is(err, sarama.ErrInvalidReplicationFactor), "three replicas: %v", err)
	check(value(look, topic, "retention.ms").Value == "3600000", "retention.ms")

	seven := "7000000"
	must(look.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &seven}}, false), "alter")
	check(value(look, topic, "retention.ms").Value == seven, "altered retention.ms")
	must(look.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationDelete}}, false), "reset")
	check(value(look, topic, "retention.ms").Default, "reset retention.ms")
	compact := "compact"
	must(look.AlterConfig(sarama.TopicResource, topic, map[string]*string{"cleanup.policy": &compact}, false), "set")
	check(value(look, topic, "cleanup.policy").Value == compact, "cleanup.policy")

	must(look.CreatePartitions(topic, partitions, nil, false), "more partitions")
	described, err := look.DescribeTopics([]string{topic})
	must(err, "describe topic")
	check(described[0].Err == sarama.ErrNoError && len(described[0].Partitions) == partitions,
		"topic: %+v", described[0])
	check(look.CreatePartitions(topic, 2, nil, false) != nil, "fewer partitions")

	must(look.AlterConfig(sarama.TopicResource, topic, map[string]*string{}, false), "all to their defaults")
	check(value(look, topic, "cleanup.policy").Value == "delete", "cleanup.policy is not the default")
	fill(topic)
	must(look.DeleteRecords(topic, map[int32]int64{0: 30}), "delete records")
	client, err := sarama.NewClient(addresses, settings())
	must(err, "client")
	defer client.Close()
	first, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	must(err, "first offset")
	check(first == 30, "first offset %d", first)

	brokers, controller, err := look.DescribeCluster()
	must(err, "cluster")
	check(len(brokers) == 1 && controller == brokers[0].ID(), "%d brokers, controller %d", len(brokers), controller)
	dirs, err := look.DescribeLogDirs([]int32{controller})
	must(err, "log dirs")
	check(len(dirs[controller]) == 1, "log dirs: %v", dirs)
	listed, err := look.ListTopics()
	must(err, "list")
	check(listed[topic].NumPartitions == partitions && listed[topic].ReplicationFactor == 1, "listed %v", listed[topic])
	must(look.DeleteTopic(topic), "delete")
	check(errors.Is(look.DeleteTopic(topic), sarama.ErrUnknownTopicOrPartition), "deleted twice")
}

// --- times ----------------------------------------------------------------------------------------

func times() {
	topic, stamped := "sarama-times", "sarama-times-log"
	create(topic, 1, nil)
	create(stamped, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	to := producer(nil)
	for i := range perPart {
		offset := send(to, topic, 0, fmt.Sprint(i), begin.Add(time.Duration(i)*time.Second))
		check(offset == int64(i), "offset %d of record %d", offset, i)
	}
	before := time.Now().Truncate(time.Millisecond)
	send(to, stamped, 0, "now", begin)
	must(to.Close(), "close")
	for i, message := range values(topic, 0, sarama.ReadUncommitted, perPart) {
		check(message.Timestamp.Equal(begin.Add(time.Duration(i)*time.Second)), "record %d has %v", i, message.Timestamp)
	}
	got := values(stamped, 0, sarama.ReadUncommitted, 1)
	check(!got[0].Timestamp.Before(before) && time.Since(got[0].Timestamp) < time.Hour/2, "appended at %v, sent at %v",
		got[0].Timestamp, before)
	client, err := sarama.NewClient(addresses, settings())
	must(err, "client")
	defer client.Close()
	for _, at := range []struct {
		time   int64
		offset int64
	}{{begin.UnixMilli(), 0}, {begin.UnixMilli() + 30000, 30}, {begin.UnixMilli() + 29001, 30},
		{begin.UnixMilli() + 1000*perPart, -1}, {sarama.OffsetOldest, 0}, {sarama.OffsetNewest, perPart}} {
		offset, err := client.GetOffset(topic, 0, at.time)
		must(err, "offset of a time")
		check(offset == at.offset, "time %d is at %d, not %d", at.time, offset, at.offset)
	}
}

func main() {
	checks := map[string]func(){"groups": groups, "transactions": transactions, "administration": administration,
		"times": times}
	if len(os.Args) != 3 || checks[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: sarama ADDRESS groups|transactions|administration|times")
		os.Exit(2)
	}
	addresses = []string{os.Args[1]}
	checks[os.Args[2]]()
}
