#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what confluent-kafka offers of groups, transactions, administration and times works as with Kafka.

Method: confluent_suite.py ADDRESS PREFIX [CHECK...]: each check has topics and groups of its own, whose names begin
with PREFIX, and runs beside others; what one client did another one looks at. A line for each: its name, and "works",
"absent" where this version's client cannot do it, or what went wrong. tests/clients/python_suites.py runs it with two
versions of the client."""
import concurrent.futures
import contextlib
import sys
import threading
import time
import traceback

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as administration
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

AT_ONCE = 6  # checks that wait most of their time
LIMIT_S = 60
PARTITIONS = 4
COUNT = 200


class Absent(Exception):
    """This version of the client does not offer it."""


# --- small things ---------------------------------------------------------------------------------

def need(what, name):
    if not hasattr(what, name):
        raise Absent(f"{what.__name__} has no {name}")


def wait(what, condition, limit_s=LIMIT_S):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def each(futures):
    """What an admin client's calls came to, in their order."""
    return [future.result(LIMIT_S) for future in futures.values()]


def fault(action):
    """The error that an action is refused with."""
    try:
        action()
    except KafkaException as error:
        return error.args[0]
    raise AssertionError("it was not refused")


class Client:
    """Makes clients of one broker, and topics."""

    def __init__(self, address, prefix):
        self.address = address
        self.prefix = prefix
        self.admin = AdminClient({"bootstrap.servers": address})

    def topic(self, name, partitions=PARTITIONS, **config):
        """Makes a topic and returns its whole name."""
        name = self.prefix + name
        settings = {key.replace("_", "."): value for key, value in config.items()}
        each(self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)], operation_timeout=LIMIT_S))
        wait(f"{name} has no leaders", lambda: self.partitions(name) == partitions)
        return name

    def partitions(self, topic):
        known = self.admin.list_topics(topic, LIMIT_S).topics[topic].partitions.values()
        return sum(one.leader >= 0 for one in known)

    def producer(self, **more):
        return Producer({"bootstrap.servers": self.address, "linger.ms": 2,
                         **{key.replace("_", "."): value for key, value in more.items()}})

    def consumer(self, group, **more):
        settings = {"bootstrap.servers": self.address, "group.id": group, "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    **{key.replace("_", "."): value for key, value in more.items()}}
        if settings.get("group.protocol") != "consumer":
            settings.update({"session.timeout.ms": 6000, "heartbeat.interval.ms": 300})
        return Consumer(settings)

    def fill(self, topic, first=0, count=COUNT, partitions=PARTITIONS, **more):
        """Values that are their own numbers, in turn to each partition; where each one went."""
        made = self.producer(**more)
        places = {}

        def told(error, message):
            assert not error, error
            places[int(message.value())] = (message.partition(), message.offset())

        for number in range(first, first + count):
            made.produce(topic, str(number), key=str(number % 7), partition=number % partitions, on_delivery=told)
        assert made.flush(LIMIT_S) == 0 and len(places) == count
        return places

    def read(self, topic, partitions=PARTITIONS, **more):
        """All numbers of a topic, without a group."""
        consumer = self.consumer("nobody", enable_partition_eof=True, **more)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        got = []
        ended = set()
        deadline = time.monotonic() + LIMIT_S
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic}: the end does not come, {len(got)} values"
            for message in consumer.consume(500, 0.2):
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
                else:
                    got.append(int(message.value()))
        consumer.close()
        return sorted(got)


def take(consumer, count):
    """The next messages, as many as that at least."""
    got = []
    deadline = time.monotonic() + LIMIT_S
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} came"
        for message in consumer.consume(count - len(got), 0.2):
            assert not message.error(), message.error()
            got.append(message)
    return got


def numbers(messages):
    return sorted(int(message.value()) for message in messages)


class Member(threading.Thread):
    """A consumer that polls in a thread of its own and keeps what it got."""

    def __init__(self, client, topic, group, **more):
        super().__init__(daemon=True)
        self.consumer = client.consumer(group, **more)
        self.incremental = "cooperative" in more.get("partition_assignment_strategy", "") or \
            more.get("group_protocol") == "consumer"
        self.mine = set()
        self.given = []  # how many partitions each assignment brought
        self.got = []
        self.done = threading.Event()
        self.fault = None
        self.consumer.subscribe([topic], on_assign=self.on_assign, on_revoke=self.on_revoke)
        self.start()

    def on_assign(self, consumer, partitions):
        self.given.append(len(partitions))
        self.mine |= {one.partition for one in partitions}
        (consumer.incremental_assign if self.incremental else consumer.assign)(partitions)

    def on_revoke(self, consumer, partitions):
        self.mine -= {one.partition for one in partitions}
        if self.incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def run(self):
        try:
            while not self.done.is_set():
                for message in self.consumer.consume(100, 0.1):
                    assert not message.error(), message.error()
                    self.got.append(message)
            with contextlib.suppress(KafkaException):  # of nothing new, when its partitions have just changed
                self.consumer.commit(asynchronous=False)
            self.consumer.close()
        except Exception as error:
            self.fault = error

    def leave(self):
        self.done.set()
        self.join(LIMIT_S)
        assert not self.is_alive() and not self.fault, self.fault


# --- groups ---------------------------------------------------------------------------------------

def share(client, topic, **more):
    """Two members share all partitions; the one that stays has all of them."""
    topic = client.topic(topic)
    client.fill(topic)
    members = [Member(client, topic, topic, **more) for _ in range(2)]
    wait("partitions are not shared",
         lambda: all(len(one.mine) == PARTITIONS // 2 for one in members) and not members[0].mine & members[1].mine)
    wait("records are missing", lambda: len({*numbers(members[0].got), *numbers(members[1].got)}) == COUNT)
    members[0].leave()
    wait("its partitions are nobody's", lambda: len(members[1].mine) == PARTITIONS)
    client.fill(topic, COUNT)
    wait("later records are missing", lambda: {*range(COUNT, 2 * COUNT)} <= {*numbers(members[1].got)})
    members[1].leave()
    return members


def groups_range(client):
    share(client, "groups-range", partition_assignment_strategy="range")


def groups_cooperative(client):
    """Partitions that stay are not taken away in between: the second assignment brings the other's only."""
    members = share(client, "groups-cooperative", partition_assignment_strategy="cooperative-sticky")
    assert members[1].given[-1] == PARTITIONS // 2, members[1].given


def groups_consumer(client):
    if confluent_kafka.libversion()[1] < 0x020C0000:
        raise Absent("librdkafka before 2.12 has no new protocol")
    share(client, "groups-consumer", group_protocol="consumer")


def groups_offsets(client):
    """Commits of one partition, of stored offsets and with metadata; what is committed is where the next begins."""
    topic = client.topic("groups-offsets", 1)
    client.fill(topic, partitions=1)
    first = client.consumer(topic, enable_auto_offset_store=False)
    first.subscribe([topic])
    got = take(first, 50)
    assert first.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset == confluent_kafka.OFFSET_INVALID
    first.store_offsets(got[19])
    assert first.commit(asynchronous=False)[0].offset == 20
    first.commit(got[29], asynchronous=False)
    assert first.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset == 30
    note = ("here it was",) if hasattr(TopicPartition, "metadata") else ()  # newer clients
    first.commit(offsets=[TopicPartition(topic, 0, 40, *note)], asynchronous=False)
    told = first.committed([TopicPartition(topic, 0)], LIMIT_S)[0]
    assert told.offset == 40 and (not note or told.metadata == note[0]), told
    assert first.position([TopicPartition(topic, 0)])[0].offset == 50
    first.close()
    second = client.consumer(topic)
    second.subscribe([topic])
    assert numbers(take(second, COUNT - 40)) == list(range(40, COUNT))
    second.seek(TopicPartition(topic, 0, 100))
    assert numbers(take(second, 10)) == list(range(100, 110))
    second.pause([TopicPartition(topic, 0)])
    assert second.consume(10, 1) == []
    second.resume([TopicPartition(topic, 0)])
    assert numbers(take(second, 1))[0] >= 100
    second.close()


def groups_auto_commit(client):
    topic = client.topic("groups-auto-commit", 1)
    client.fill(topic, partitions=1)
    first = client.consumer(topic, enable_auto_commit=True, auto_commit_interval_ms=100)
    first.subscribe([topic])
    take(first, 120)
    other = client.consumer(topic)
    wait("nothing is committed",
         lambda: first.poll(0.05) is not None or other.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset >= 120)
    first.close()
    kept = other.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset
    assert 120 <= kept <= COUNT, kept
    other.close()


def groups_static(client):
    """A member with an instance id that comes back has its partitions, without a rebalance of the other."""
    topic = client.topic("groups-static")
    stays = Member(client, topic, topic, group_instance_id="stays")
    goes = Member(client, topic, topic, group_instance_id="goes")
    wait("partitions are not shared", lambda: [len(stays.mine), len(goes.mine)] == [2, 2])
    had = set(goes.mine)
    given = list(stays.given)
    goes.leave()
    back = Member(client, topic, topic, group_instance_id="goes")
    wait("it has no partitions", lambda: back.mine == had)
    assert stays.given == given, (stays.given, given)
    stays.leave()
    back.leave()


def groups_session(client):
    """A member that says nothing more is put out of its group after a while."""
    topic = client.topic("groups-session")
    lost = client.consumer(topic)
    lost.subscribe([topic])
    wait("it has no partitions", lambda: lost.poll(0.1) or len(lost.assignment()) == PARTITIONS)
    # Not closed and not polled: librdkafka's own thread leaves the group at the bound of its application's silence.
    other = client.consumer(topic, max_poll_interval_ms=6000)
    other.subscribe([topic])
    wait("they do not share", lambda: (lost.poll(0.05), other.poll(0.05)) and len(other.assignment()) == 2)
    lost.close()
    wait("its partitions are nobody's", lambda: other.poll(0.1) or len(other.assignment()) == PARTITIONS)
    time.sleep(7)
    message = other.poll(5)
    assert message is not None and message.error().code() == KafkaError._MAX_POLL_EXCEEDED, message
    wait("it does not come back", lambda: other.poll(0.1) or len(other.assignment()) == PARTITIONS)
    other.close()


def groups_pattern(client):
    """A subscription by a regular expression takes topics that come later."""
    topic = client.topic("groups-pattern-1", 1)
    client.fill(topic, partitions=1)
    reader = client.consumer(topic, topic_metadata_refresh_interval_ms=500)
    reader.subscribe([f"^{client.prefix}groups-pattern-[0-9]+"])
    assert numbers(take(reader, COUNT)) == list(range(COUNT))
    reader.commit(asynchronous=False)  # the group begins anew when the second one is there
    later = client.topic("groups-pattern-2", 1)
    client.fill(later, COUNT, partitions=1)
    got = take(reader, COUNT)
    assert {one.topic() for one in got} == {later} and numbers(got) == list(range(COUNT, 2 * COUNT))
    reader.close()


# --- transactions ---------------------------------------------------------------------------------

def transactional(client, name, **more):
    made = client.producer(transactional_id=name, **more)
    made.init_transactions(LIMIT_S)
    return made


def write(made, topic, first, count=COUNT):
    made.begin_transaction()
    for number in range(first, first + count):
        made.produce(topic, str(number), partition=number % PARTITIONS)
    assert made.flush(LIMIT_S) == 0


def transactions_ends(client):
    topic = client.topic("transactions-ends")
    made = transactional(client, topic)
    write(made, topic, 0)
    assert client.read(topic, isolation_level="read_committed") == []
    made.commit_transaction(LIMIT_S)
    write(made, topic, COUNT)
    made.abort_transaction(LIMIT_S)
    write(made, topic, 2 * COUNT)
    made.commit_transaction(LIMIT_S)
    assert client.read(topic, isolation_level="read_committed") == [*range(COUNT), *range(2 * COUNT, 3 * COUNT)]
    assert client.read(topic, isolation_level="read_uncommitted") == [*range(3 * COUNT)]


def transactions_fenced(client):
    topic = client.topic("transactions-fenced")
    old = transactional(client, topic)
    write(old, topic, 0)
    new = transactional(client, topic)
    error = fault(lambda: old.commit_transaction(LIMIT_S))
    assert error.fatal() or error.code() == KafkaError._FENCED, error
    write(new, topic, COUNT)
    new.commit_transaction(LIMIT_S)
    assert client.read(topic, isolation_level="read_committed") == [*range(COUNT, 2 * COUNT)]


def transactions_copy(client):
    """Offsets of a group in the producer's transactions: an aborted round is read again, none is lost."""
    source, target = client.topic("transactions-source"), client.topic("transactions-target")
    client.fill(source)
    made = transactional(client, source)
    reader = client.consumer(source, isolation_level="read_committed")
    reader.subscribe([source])
    for abort in (True, False):
        got = take(reader, COUNT)
        made.begin_transaction()
        for message in got:
            made.produce(target, message.value(), partition=message.partition())
        assert made.flush(LIMIT_S) == 0  # an abort throws away what was not sent
        made.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(),
                                         LIMIT_S)
        if abort:
            made.abort_transaction(LIMIT_S)
            for one in reader.committed(reader.assignment(), LIMIT_S):
                assert one.offset < 0, one
                reader.seek(TopicPartition(source, one.partition, 0))
        else:
            made.commit_transaction(LIMIT_S)
    assert sum(one.offset for one in reader.committed(reader.assignment(), LIMIT_S)) == COUNT
    reader.close()
    assert client.read(target, isolation_level="read_committed") == [*range(COUNT)]
    assert len(client.read(target, isolation_level="read_uncommitted")) == 2 * COUNT


def transactions_idempotent(client):
    """Five requests on their way at once, in order and each record once."""
    topic = client.topic("transactions-idempotent", 1)
    places = client.fill(topic, partitions=1, count=10 * COUNT, enable_idempotence=True, batch_num_messages=20,
                         max_in_flight_requests_per_connection=5)
    assert places == {number: (0, number) for number in range(10 * COUNT)}


# --- administration -------------------------------------------------------------------------------

def admin_topics(client):
    topic = client.topic("admin-topics", 2, retention_ms="123456")
    error = fault(lambda: each(client.admin.create_topics([NewTopic(topic, 2, 1)])))
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS, error
    replicas, config, only = (client.prefix + name for name in ("admin-replicas", "admin-config", "admin-only-checked"))
    checked = {"bad/name": KafkaError.TOPIC_EXCEPTION, replicas: KafkaError.INVALID_REPLICATION_FACTOR,
               config: KafkaError.INVALID_CONFIG}
    wrong = [NewTopic("bad/name", 1, 1), NewTopic(replicas, 1, 9),
             NewTopic(config, 1, 1, config={"retention.ms": "long"})]
    for name, future in client.admin.create_topics(wrong).items():
        assert fault(lambda asked=future: asked.result(LIMIT_S)).code() == checked[name], name
    each(client.admin.create_topics([NewTopic(only, 1, 1)], validate_only=True))
    assert only not in client.admin.list_topics(timeout=LIMIT_S).topics
    each(client.admin.create_partitions([NewPartitions(topic, 5)]))
    wait("partitions do not come", lambda: client.partitions(topic) == 5)
    error = fault(lambda: each(client.admin.create_partitions([NewPartitions(topic, 3)])))
    assert error.code() == KafkaError.INVALID_PARTITIONS, error
    each(client.admin.delete_topics([topic], operation_timeout=LIMIT_S))
    wait("it is still there", lambda: topic not in client.admin.list_topics(timeout=LIMIT_S).topics)
    error = fault(lambda: each(client.admin.delete_topics([topic])))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error


def described(client, resource):
    return each(client.admin.describe_configs([resource]))[0]


def admin_configs(client):
    topic = client.topic("admin-configs", retention_ms="123456")
    resource = ConfigResource("topic", topic)
    entry = described(client, resource)["retention.ms"]
    assert entry.value == "123456" and not entry.is_default and not entry.is_read_only, entry
    assert described(client, resource)["segment.bytes"].is_default
    changed = ConfigResource("topic", topic)
    changed.set_config("segment.bytes", "2097152")
    each(client.admin.alter_configs([changed]))  # the whole set: what it does not name goes back
    now = described(client, resource)
    assert now["segment.bytes"].value == "2097152" and now["retention.ms"].value != "123456", now["retention.ms"].value
    wrong = ConfigResource("topic", topic)
    wrong.set_config("segment.bytes", "-3")
    assert fault(lambda: each(client.admin.alter_configs([wrong]))).code() == KafkaError.INVALID_CONFIG
    broker = described(client, ConfigResource("broker", str(next(iter(client.admin.list_topics(topic).brokers)))))
    assert broker["num.partitions"].value and "log.retention.ms" in broker, len(broker)


def admin_incremental(client):
    need(AdminClient, "incremental_alter_configs")
    topic = client.topic("admin-incremental", retention_ms="123456")
    kind = administration.AlterConfigOpType
    entry = administration.ConfigEntry

    def alter(*entries):
        each(client.admin.incremental_alter_configs(
            [ConfigResource("topic", topic, incremental_configs=list(entries))]))
        return described(client, ConfigResource("topic", topic))

    now = alter(entry("segment.bytes", "2097152", incremental_operation=kind.SET),
                entry("cleanup.policy", "compact", incremental_operation=kind.APPEND))
    assert now["segment.bytes"].value == "2097152" and now["retention.ms"].value == "123456"
    assert set(now["cleanup.policy"].value.split(",")) == {"delete", "compact"}, now["cleanup.policy"].value
    now = alter(entry("cleanup.policy", "delete", incremental_operation=kind.SUBTRACT),
                entry("segment.bytes", None, incremental_operation=kind.DELETE))
    assert now["cleanup.policy"].value == "compact" and now["segment.bytes"].is_default


def admin_cluster(client):
    need(AdminClient, "describe_cluster")
    told = client.admin.describe_cluster(include_authorized_operations=True).result(LIMIT_S)
    assert told.cluster_id and told.controller.id == told.nodes[0].id and told.authorized_operations, told
    topic = client.topic("admin-cluster")
    known = each(client.admin.describe_topics(confluent_kafka.TopicCollection([topic])))[0]
    assert known.name == topic and len(known.partitions) == PARTITIONS and not known.is_internal
    assert all(one.leader.id == told.controller.id and len(one.isr) == 1 for one in known.partitions)
    missing = client.admin.describe_topics(confluent_kafka.TopicCollection([client.prefix]))[client.prefix]
    assert fault(lambda: missing.result(LIMIT_S)).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def admin_elections(client):
    need(AdminClient, "elect_leaders")
    topic = client.topic("admin-elections")
    asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    told = client.admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, asked).result(LIMIT_S)
    codes = {error.code() for error in told.values()}
    assert len(told) == PARTITIONS and codes == {KafkaError.ELECTION_NOT_NEEDED}, told


def admin_records(client):
    need(AdminClient, "delete_records")
    topic = client.topic("admin-records", 1)
    client.fill(topic, partitions=1)
    low = each(client.admin.delete_records([TopicPartition(topic, 0, 150)]))[0].low_watermark
    assert low == 150 and client.read(topic, 1) == [*range(150, COUNT)]
    error = fault(lambda: each(client.admin.delete_records([TopicPartition(topic, 0, COUNT + 1)])))
    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE, error
    low = each(client.admin.delete_records([TopicPartition(topic, 0, confluent_kafka.OFFSET_END)]))[0].low_watermark
    assert low == COUNT and client.read(topic, 1) == []


def admin_groups_seen(client):
    """The calls of the old client."""
    topic = client.topic("admin-groups-seen")
    member = Member(client, topic, topic)
    wait("it has no partitions", lambda: len(member.mine) == PARTITIONS)
    told = client.admin.list_groups(topic, LIMIT_S)
    assert [(one.id, one.state, one.protocol_type) for one in told] == [(topic, "Stable", "consumer")], told
    assert len(told[0].members) == 1 and told[0].members[0].client_host, told[0].members
    assert topic in [one.id for one in client.admin.list_groups(timeout=LIMIT_S)]
    member.leave()


def admin_groups(client):
    need(AdminClient, "describe_consumer_groups")
    topic = client.topic("admin-groups", 1)
    client.fill(topic, partitions=1)
    member = Member(client, topic, topic)
    wait("it has no partitions", lambda: member.mine and member.got)
    stable = confluent_kafka.ConsumerGroupState.STABLE
    listed = client.admin.list_consumer_groups(states={stable}).result(LIMIT_S)
    assert not listed.errors and topic in [one.group_id for one in listed.valid]
    told = each(client.admin.describe_consumer_groups([topic], include_authorized_operations=True))[0]
    assert told.state == stable and len(told.members) == 1 and told.authorized_operations
    assert [(one.topic, one.partition) for one in told.members[0].assignment.topic_partitions] == [(topic, 0)]
    error = fault(lambda: each(client.admin.delete_consumer_groups([topic])))
    assert error.code() == KafkaError.NON_EMPTY_GROUP, error
    member.leave()
    places = confluent_kafka.ConsumerGroupTopicPartitions
    assert each(client.admin.list_consumer_group_offsets([places(topic)]))[0].topic_partitions[0].offset == COUNT
    each(client.admin.alter_consumer_group_offsets([places(topic, [TopicPartition(topic, 0, 70)])]))
    assert each(client.admin.list_consumer_group_offsets([places(topic)]))[0].topic_partitions[0].offset == 70
    reader = client.consumer(topic)
    reader.subscribe([topic])
    assert numbers(take(reader, COUNT - 70)) == [*range(70, COUNT)]
    reader.close()
    each(client.admin.delete_consumer_groups([topic]))
    assert topic not in [one.group_id for one in client.admin.list_consumer_groups().result(LIMIT_S).valid]
    error = fault(lambda: each(client.admin.delete_consumer_groups([topic])))
    assert error.code() == KafkaError.GROUP_ID_NOT_FOUND, error


def admin_security(client):
    """Asking for the list gives an empty one, whatever the broker says: librdkafka does not look."""
    need(AdminClient, "create_acls")
    wanted = administration.AclBinding(
        administration.ResourceType.TOPIC, "any", administration.ResourcePatternType.LITERAL, "User:someone", "*",
        administration.AclOperation.READ, administration.AclPermissionType.ALLOW)
    error = fault(lambda: each(client.admin.create_acls([wanted])))
    assert error.code() == KafkaError.SECURITY_DISABLED, error


# --- times ----------------------------------------------------------------------------------------

HOUR_MS = 3600 * 1000


def timed(client, topic, times):
    made = client.producer()
    for number, when in enumerate(times):
        made.produce(topic, str(number), partition=0, timestamp=when)
        assert made.flush(LIMIT_S) == 0  # a batch each
    return made


def offset_at(reader, topic, when):
    return reader.offsets_for_times([TopicPartition(topic, 0, when)], LIMIT_S)[0].offset


def times_create(client):
    """Times that clients give, out of order too, and the look-up by them."""
    topic = client.topic("times-create", 1)
    base = int(time.time() * 1000) - HOUR_MS
    times = [base, base + 5000, base + 2000, base + 9000, base + 7000]
    timed(client, topic, times)
    reader = client.consumer(topic)
    reader.assign([TopicPartition(topic, 0, 0)])
    got = take(reader, len(times))
    assert [one.timestamp() for one in got] == [(confluent_kafka.TIMESTAMP_CREATE_TIME, when) for when in times]
    for when, want in ((0, 0), (base, 0), (base + 1, 1), (base + 5000, 1), (base + 5001, 3), (base + 9000, 3)):
        assert offset_at(reader, topic, when) == want, (when - base, want)
    assert offset_at(reader, topic, base + 9001) == confluent_kafka.OFFSET_END
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), LIMIT_S) == (0, len(times))
    reader.close()


def times_append(client):
    """On a topic with the broker's times, these count, not the clients'."""
    topic = client.topic("times-append", 1, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    timed(client, topic, [before - HOUR_MS, before - 2 * HOUR_MS])
    after = int(time.time() * 1000)
    reader = client.consumer(topic)
    reader.assign([TopicPartition(topic, 0, 0)])
    for one in take(reader, 2):
        kind, when = one.timestamp()
        assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME, kind
        assert before <= when <= after, (before, when, after)
    assert offset_at(reader, topic, before) == 0
    reader.close()


def times_refused(client):
    """A time further away than the topic allows is refused, and the record is not there."""
    topic = client.topic("times-refused", 1, message_timestamp_before_max_ms=str(HOUR_MS),
                         message_timestamp_after_max_ms=str(HOUR_MS))
    now = int(time.time() * 1000)
    for when, fine in ((now, True), (now - 2 * HOUR_MS, False), (now + 2 * HOUR_MS, False)):
        told = []
        made = client.producer()
        made.produce(topic, "0", partition=0, timestamp=when,
                     on_delivery=lambda error, _, told=told: told.append(error))
        assert made.flush(LIMIT_S) == 0
        assert (told[0] is None) if fine else told[0].code() == KafkaError.INVALID_TIMESTAMP, (when - now, told)
    assert client.read(topic, 1) == [0]


def times_list_offsets(client):
    need(AdminClient, "list_offsets")
    topic = client.topic("times-list-offsets", 1)
    base = int(time.time() * 1000) - HOUR_MS
    timed(client, topic, [base, base + 5000, base + 2000])
    spec = administration.OffsetSpec

    def ask(which, **more):
        return each(client.admin.list_offsets({TopicPartition(topic, 0): which}, **more))[0]

    assert ask(spec.earliest()).offset == 0 and ask(spec.latest()).offset == 3
    told = ask(spec.max_timestamp())
    assert (told.offset, told.timestamp) == (1, base + 5000), (told.offset, told.timestamp - base)
    told = ask(spec.for_timestamp(base + 1))
    assert (told.offset, told.timestamp) == (1, base + 5000), (told.offset, told.timestamp - base)
    made = transactional(client, topic)
    made.begin_transaction()
    made.produce(topic, "3", partition=0)
    assert made.flush(LIMIT_S) == 0
    committed = confluent_kafka.IsolationLevel.READ_COMMITTED
    assert ask(spec.latest()).offset == 4 and ask(spec.latest(), isolation_level=committed).offset == 3
    made.commit_transaction(LIMIT_S)
    wait("the transaction's end is not seen", lambda: ask(spec.latest(), isolation_level=committed).offset == 5)


# --- all ------------------------------------------------------------------------------------------

# Name, what the table says of it, and the check.
CHECKS = {
    "groups: range": ("two members share, one goes, assignor range", groups_range),
    "groups: cooperative-sticky": ("the same with incremental rebalances: what stays is not taken away",
                                   groups_cooperative),
    "groups: consumer": ("the same in a group of the new protocol", groups_consumer),
    "groups: offsets": ("commits of a message, of stored offsets, of named ones; committed, position, seek, pause",
                        groups_offsets),
    "groups: auto commit": ("commits by the clock and at the close", groups_auto_commit),
    "groups: static": ("a member with an instance id comes back without a rebalance", groups_static),
    "groups: silence": ("a member that does not poll leaves and comes back", groups_session),
    "groups: pattern": ("a subscription by a regular expression takes later topics", groups_pattern),
    "transactions: ends": ("commit, abort, and what readers of both levels see", transactions_ends),
    "transactions: fenced": ("a second producer of the id ends the first one's", transactions_fenced),
    "transactions: offsets": ("a copy with the group's offsets in the transaction, aborted and repeated",
                              transactions_copy),
    "transactions: idempotent": ("five requests at once stay in order", transactions_idempotent),
    "admin: topics": ("create, check only, more partitions, delete, and each refusal", admin_topics),
    "admin: configs": ("describe and alter of topics, describe of the broker", admin_configs),
    "admin: incremental configs": ("set, delete, append, subtract", admin_incremental),
    "admin: cluster": ("describe_cluster, describe_topics with operations", admin_cluster),
    "admin: elections": ("elect_leaders where none is needed", admin_elections),
    "admin: records": ("delete_records up to an offset, to the end, beyond it", admin_records),
    "admin: list_groups": ("the old call, with members", admin_groups_seen),
    "admin: groups": ("list by state, describe, offsets listed and altered, delete, and each refusal", admin_groups),
    "admin: security": ("an ACL is refused, since security is disabled", admin_security),
    "times: create": ("times of clients, out of order, and the look-up by them", times_create),
    "times: append": ("times of the broker", times_append),
    "times: refused": ("times beyond the topic's range", times_refused),
    "times: list_offsets": ("earliest, latest, greatest time, a time, read_committed", times_list_offsets),
}


def main():
    client = Client(*sys.argv[1:3])
    wanted = sys.argv[3:] or list(CHECKS)

    def one(name):
        begun = time.monotonic()
        try:
            CHECKS[name][1](client)
            said = "works"
        except Absent as reason:
            said = f"absent: {reason}"
        except Exception:
            said = "failed: " + traceback.format_exc().replace("\n", "\n    ")
        print(f"{name}\t{said}", flush=True)
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
        return said

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(pool.map(one, wanted))
    return any(one.startswith("failed") for one in said)


if __name__ == "__main__":
    sys.exit(main())
