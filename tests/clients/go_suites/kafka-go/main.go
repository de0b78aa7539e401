// SPDX-License-Identifier: Apache-2.0

// What kafka-go does with groups, transactions, administration and times of records. It cannot produce in a
// transaction: offsets are what its transactions hold.
//
//	kafka-go ADDRESS CHECK
//
// Exits 0 when everything that CHECK names is as Kafka has it; says what is not, else.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	partitions = 4
	perPart    = 100
	limit      = 90 * time.Second
)

var (
	address string
	client  *kafka.Client
	ctx     context.Context
)

func check(good bool, format string, words ...any) {
	if !good {
		fmt.Fprintf(os.Stderr, format+"\n", words...)
		os.Exit(1)
	}
}

func must(err error, what string) {
	check(err == nil, "%s: %v", what, err)
}

func where() net.Addr {
	return kafka.TCP(address)
}

func create(topic string, count int, configs ...kafka.ConfigEntry) {
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Addr: where(), Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: count, ReplicationFactor: 1, ConfigEntries: configs}}})
	must(err, "create")
	must(answer.Errors[topic], "create "+topic)
}

// spread puts each record into the partition that its key names.
type spread struct{}

func (spread) Balance(message kafka.Message, all ...int) int {
	return all[int(message.Key[0]-'0')%len(all)]
}

func writer(topic string) *kafka.Writer {
	return &kafka.Writer{Addr: where(), Topic: topic, Balancer: spread{}, BatchTimeout: 5 * time.Millisecond,
		RequiredAcks: kafka.RequireAll}
}

func fill(topic string) {
	to := writer(topic)
	var all []kafka.Message
	for i := range partitions * perPart {
		all = append(all, kafka.Message{Key: []byte(fmt.Sprint(i % partitions)), Value: []byte(fmt.Sprint(i))})
	}
	must(to.WriteMessages(ctx, all...), "write")
	must(to.Close(), "close")
}

func until(what string, condition func() bool) {
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(50 * time.Millisecond) {
		check(time.Now().Before(deadline), "%s: not within %v", what, limit)
	}
}

func offsetOf(group, topic string, partition int) kafka.OffsetFetchPartition {
	answer, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{Addr: where(), GroupID: group,
		Topics: map[string][]int{topic: {partition}}})
	must(err, "offsets")
	must(answer.Error, "offsets of "+group)
	must(answer.Topics[topic][0].Error, "offset of "+topic)
	return answer.Topics[topic][0]
}

// loading: the topics of groups and transactions are made by those who ask first, as in Kafka.
func loading(err error) bool {
	return errors.Is(err, kafka.GroupCoordinatorNotAvailable) || errors.Is(err, kafka.NotCoordinatorForGroup) ||
		errors.Is(err, kafka.GroupLoadInProgress)
}

// --- groups ---------------------------------------------------------------------------------------

// member reads as one of a group, commits each record, and notes it.
type member struct {
	reader *kafka.Reader
	cancel context.CancelFunc
	ended  chan struct{}

	mutex sync.Mutex
	seen  map[string]int
}

func join(group, topic string, balancer kafka.GroupBalancer) *member {
	inside, cancel := context.WithCancel(ctx)
	one := &member{cancel: cancel, ended: make(chan struct{}), seen: map[string]int{},
		reader: kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, GroupID: group, Topic: topic,
			GroupBalancers: []kafka.GroupBalancer{balancer}, StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
			JoinGroupBackoff: 200 * time.Millisecond, SessionTimeout: 20 * time.Second})}
	go func() {
		defer close(one.ended)
		for {
			message, err := one.reader.FetchMessage(inside)
			if errors.Is(err, context.Canceled) {
				return
			}
			must(err, "fetch")
			one.mutex.Lock()
			one.seen[string(message.Value)]++
			one.mutex.Unlock()
			must(one.reader.CommitMessages(ctx, message), "commit")
		}
	}()
	return one
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

func (m *member) leave() {
	m.cancel()
	<-m.ended
	must(m.reader.Close(), "leave")
}

func described(group string) kafka.DescribeGroupsResponseGroup {
	var got kafka.DescribeGroupsResponseGroup
	until("a description of the group", func() bool {
		answer, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{Addr: where(), GroupIDs: []string{group}})
		must(err, "describe group")
		got = answer.Groups[0]
		check(got.Error == nil || loading(got.Error), "group: %v", got.Error)
		return got.Error == nil
	})
	return got
}

func shared(group string, members int) bool {
	got := described(group)
	owned := 0
	for _, some := range got.Members {
		for _, topic := range some.MemberAssignments.Topics {
			owned += len(topic.Partitions)
		}
	}
	return got.GroupState == "Stable" && len(got.Members) == members && owned == partitions
}

func groups() {
	for name, balancer := range map[string]kafka.GroupBalancer{"range": kafka.RangeGroupBalancer{},
		"roundrobin": kafka.RoundRobinGroupBalancer{}} {
		topic := "kafka-go-groups-" + name
		create(topic, partitions)
		one := join(topic, topic, balancer)
		two := join(topic, topic, balancer)
		until("two members share", func() bool { return shared(topic, 2) })
		fill(topic)
		until("everything is read", func() bool { return len(one.saw())+len(two.saw()) == partitions*perPart })
		check(len(one.saw()) == partitions*perPart/2, "one of them read %d", len(one.saw()))
		two.leave()
		until("one has all", func() bool { return shared(topic, 1) })
		fill(topic)
		until("it reads all", func() bool { return len(one.saw()) == partitions*perPart })
		for i := range partitions {
			until("commits", func() bool { return offsetOf(topic, topic, i).CommittedOffset == 2*perPart })
		}
		one.leave()
		listed, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{Addr: where()})
		must(err, "list groups")
		there := false
		for _, group := range listed.Groups {
			there = there || group.GroupID == topic
		}
		check(there, "the group is not listed: %v", listed.Groups)
		removals(topic)
	}
}

func removals(group string) {
	answer, err := client.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{Addr: where(), GroupID: group,
		Topics: map[string][]int{group: {1}}})
	must(err, "delete an offset")
	must(answer.Error, "delete an offset")
	check(offsetOf(group, group, 1).CommittedOffset == -1 && offsetOf(group, group, 0).CommittedOffset == 2*perPart,
		"kept offsets")
	_, err = client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{Addr: where(), GroupID: group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{group: {{Partition: 1, Offset: 7, Metadata: "by hand"}}}})
	must(err, "commit without a member")
	got := offsetOf(group, group, 1)
	check(got.CommittedOffset == 7 && got.Metadata == "by hand", "committed: %+v", got)
	removed, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{Addr: where(), GroupIDs: []string{group}})
	must(err, "delete group")
	must(removed.Errors[group], "delete group")
	check(offsetOf(group, group, 0).CommittedOffset == -1, "a deleted group has offsets")
}

// --- transactions ---------------------------------------------------------------------------------

// producer is what a transactional id was given.
type producer struct {
	id    int
	epoch int
}

func begin(id string) (given producer) {
	until("a producer id", func() bool {
		answer, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{Addr: where(), TransactionalID: id,
			TransactionTimeoutMs: 30000, ProducerID: -1, ProducerEpoch: -1}) // 0 would name a producer
		if err != nil || loading(answer.Error) {
			return false
		}
		must(answer.Error, "producer id")
		given = producer{answer.Producer.ProducerID, answer.Producer.ProducerEpoch}
		return true
	})
	return given
}

// offsets commits offsets in a transaction; what went wrong with it.
func offsets(id, group, topic string, given producer, offset int64) error {
	added, err := client.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{Addr: where(), TransactionalID: id,
		ProducerID: given.id, ProducerEpoch: given.epoch, GroupID: group})
	must(err, "add offsets")
	if added.Error != nil {
		return added.Error
	}
	done, err := client.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{Addr: where(), TransactionalID: id,
		GroupID: group, ProducerID: given.id, ProducerEpoch: given.epoch, GenerationID: -1,
		Topics: map[string][]kafka.TxnOffsetCommit{topic: {{Partition: 0, Offset: offset, Metadata: "in it"}}}})
	must(err, "commit in a transaction")
	return done.Topics[topic][0].Error
}

func end(id string, given producer, commit bool) error {
	answer, err := client.EndTxn(ctx, &kafka.EndTxnRequest{Addr: where(), TransactionalID: id,
		ProducerID: given.id, ProducerEpoch: given.epoch, Committed: commit})
	must(err, "end")
	return answer.Error
}

func transactions() {
	id, topic, group := "kafka-go-txn", "kafka-go-txn", "kafka-go-txn-group"
	create(topic, 1)
	fill := writer(topic)
	must(fill.WriteMessages(ctx, kafka.Message{Key: []byte("0"), Value: []byte("before")}), "write")
	given := begin(id)
	want := int64(-1)
	for round := range 6 {
		until("a partition in the transaction", func() bool { // the one before may not be over
			added, err := client.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{Addr: where(),
				TransactionalID: id, ProducerID: given.id, ProducerEpoch: given.epoch,
				Topics: map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}}})
			must(err, "add partitions")
			err = added.Topics[topic][0].Error
			check(err == nil || errors.Is(err, kafka.ConcurrentTransactions), "add a partition: %v", err)
			return err == nil
		})
		until("offsets in the transaction", func() bool {
			err := offsets(id, group, topic, given, int64(round))
			var code kafka.Error
			check(err == nil || errors.As(err, &code) && (code.Temporary() || code == kafka.ConcurrentTransactions),
				"offsets in the transaction: %v", err)
			return err == nil
		})
		commit := round%2 == 0
		must(end(id, given, commit), "end of the transaction")
		if commit {
			want = int64(round)
		}
		// A client that does not ask for stable offsets sees them when the markers are there.
		until("offsets of the transaction", func() bool { return offsetOf(group, topic, 0).CommittedOffset == want })
	}
	check(offsetOf(group, topic, 0).Metadata == "in it", "metadata")
	must(fill.WriteMessages(ctx, kafka.Message{Key: []byte("0"), Value: []byte("after")}), "write")
	must(fill.Close(), "close")
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, Topic: topic, MaxWait: 100 * time.Millisecond,
		IsolationLevel: kafka.ReadCommitted})
	for i := range 8 { // this client also hands out the markers of the six transactions
		message, err := reader.ReadMessage(ctx)
		must(err, "read")
		want := map[int]string{0: "before", 7: "after"}[i]
		check(message.Offset == int64(i) && (want == "" && len(message.Value) == 6 || string(message.Value) == want),
			"record %d is %q", i, message.Value)
	}
	must(reader.Close(), "close")

	next := begin(id)
	check(next.id == given.id && next.epoch > given.epoch,
		"the next one is %+v after %+v", next, given)
	err := offsets(id, group, topic, given, 99)
	check(err != nil, "a fenced producer committed offsets")
	check(offsetOf(group, topic, 0).CommittedOffset == want, "a fenced producer's offset")
}

// --- administration -------------------------------------------------------------------------------

func value(topic, name string) (string, bool) {
	answer, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Addr: where(),
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			ConfigNames: []string{name}}}})
	must(err, "describe")
	must(answer.Resources[0].Error, "describe "+topic)
	entries := answer.Resources[0].ConfigEntries
	check(len(entries) == 1 && entries[0].ConfigName == name, "described %v", entries)
	return entries[0].ConfigValue, entries[0].ConfigSource == 1 // of the topic itself
}

func alter(topic, name, to string, how kafka.ConfigOperation) error {
	answer, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Addr: where(),
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic,
			ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: name, Value: to, ConfigOperation: how}}}}})
	must(err, "alter")
	return answer.Resources[0].Error
}

func administration() {
	topic := "kafka-go-admin"
	create(topic, 1, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "3600000"})
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Addr: where(), Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: 1, ReplicationFactor: 1},
		{Topic: "kafka-go-wide", NumPartitions: 1, ReplicationFactor: 3}}})
	must(err, "create again")
	check(errors.Is(made.Errors[topic], kafka.TopicAlreadyExists), "made twice: %v", made.Errors[topic])
	check(errors.Is(made.Errors["kafka-go-wide"], kafka.InvalidReplicationFactor), "three replicas: %v", made.Errors)

	got, own := value(topic, "retention.ms")
	check(got == "3600000" && own, "retention.ms %s", got)
	must(alter(topic, "retention.ms", "7000000", kafka.ConfigOperationSet), "alter")
	must(alter(topic, "cleanup.policy", "compact", kafka.ConfigOperationAppend), "append")
	got, _ = value(topic, "retention.ms")
	check(got == "7000000", "retention.ms %s", got)
	got, _ = value(topic, "cleanup.policy")
	check(got == "delete,compact", "cleanup.policy %s", got)
	must(alter(topic, "retention.ms", "", kafka.ConfigOperationDelete), "reset")
	_, own = value(topic, "retention.ms")
	check(!own, "retention.ms is still the topic's own")
	check(errors.Is(alter(topic, "retention.ms", "soon", kafka.ConfigOperationSet), kafka.InvalidConfiguration), "soon")
	set, err := client.AlterConfigs(ctx, &kafka.AlterConfigsRequest{Addr: where(),
		Resources: []kafka.AlterConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.AlterConfigRequestConfig{{Name: "segment.bytes", Value: "2097152"}}}}})
	must(err, "set all")
	for _, err := range set.Errors {
		must(err, "set all")
	}
	_, own = value(topic, "cleanup.policy")
	got, _ = value(topic, "segment.bytes")
	check(!own && got == "2097152", "segment.bytes %s", got)

	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Addr: where(),
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: partitions}}})
	must(err, "more partitions")
	must(grown.Errors[topic], "more partitions")
	until("metadata, which the client keeps for a while", func() bool {
		got, err := client.Metadata(ctx, &kafka.MetadataRequest{Addr: where(), Topics: []string{topic}})
		must(err, "metadata")
		check(len(got.Brokers) == 1 && got.Controller.ID == got.Brokers[0].ID, "metadata: %+v", got)
		return len(got.Topics[0].Partitions) == partitions
	})
	fill(topic)
	elected, err := client.ElectLeaders(ctx, &kafka.ElectLeadersRequest{Addr: where(), Topic: topic, Partitions: []int{0},
		Timeout: limit})
	must(err, "elect")
	check(elected.Error == nil || errors.Is(elected.Error, kafka.ElectionNotNeeded), "elect: %v", elected.Error)
	versions, err := client.ApiVersions(ctx, &kafka.ApiVersionsRequest{Addr: where()})
	must(err, "versions")
	check(versions.Error == nil && len(versions.ApiKeys) > 30, "%d APIs", len(versions.ApiKeys))
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Addr: where(), Topics: []string{topic}})
	must(err, "delete")
	must(gone.Errors[topic], "delete")
	gone, err = client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Addr: where(), Topics: []string{topic}})
	must(err, "delete again")
	check(errors.Is(gone.Errors[topic], kafka.UnknownTopicOrPartition), "deleted twice: %v", gone.Errors)
}

// --- times ----------------------------------------------------------------------------------------

func times() {
	topic := "kafka-go-times"
	create(topic, 1)
	start := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	to := writer(topic)
	var all []kafka.Message
	for i := range perPart {
		all = append(all, kafka.Message{Key: []byte("0"), Value: []byte(fmt.Sprint(i)),
			Time: start.Add(time.Duration(i) * time.Second)})
	}
	must(to.WriteMessages(ctx, all...), "write")
	must(to.Close(), "close")
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, Topic: topic,
		MaxWait: 100 * time.Millisecond})
	must(reader.SetOffsetAt(ctx, start.Add(29001*time.Millisecond)), "seek to a time")
	for i := 30; i < perPart; i++ {
		message, err := reader.ReadMessage(ctx)
		must(err, "read")
		check(string(message.Value) == fmt.Sprint(i) && message.Time.Equal(start.Add(time.Duration(i)*time.Second)),
			"record %d: %s of %v", i, message.Value, message.Time)
	}
	must(reader.Close(), "close")
	asked, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Addr: where(), Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.TimeOffsetOf(0, start.Add(50*time.Second))}}})
	must(err, "offsets of times")
	got := asked.Topics[topic][0]
	must(got.Error, "offsets of times")
	check(got.FirstOffset == 0 && got.LastOffset == perPart, "first and last: %+v", got)
	when, there := got.Offsets[50]
	check(there && when.Equal(start.Add(50*time.Second)), "offsets of a time: %v", got.Offsets)
}

func main() {
	checks := map[string]func(){"groups": groups, "transactions": transactions, "administration": administration,
		"times": times}
	if len(os.Args) != 3 || checks[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kafka-go ADDRESS groups|transactions|administration|times")
		os.Exit(2)
	}
	var cancel context.CancelFunc
	ctx, cancel = context.WithTimeout(context.Background(), 4*limit)
	defer cancel()
	address = os.Args[1]
	client = &kafka.Client{Addr: where(), Timeout: limit}
	checks[os.Args[2]]()
}
