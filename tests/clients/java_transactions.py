# SPDX-License-Identifier: Apache-2.0
"""The part of java-tools for TransactionsCommand. A transaction hangs when a partition has it open and no coordinator
knows of it: here the record of its id is deleted in __transaction_state, as only Kafka's own admin client may write
there, and control reads the log anew. Its records carry times of an hour ago, so that the tool takes it for one."""
import struct
import time

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from lib.broker import FULL

STATE = "__transaction_state"
COUNT = 3  # records of a transaction
OLD_S = 3600
LIMIT_S = 60
TOOL = "TransactionsCommand"


def begin(tools, name, topic, age_s=0):
    """A producer with an open transaction of COUNT records."""
    made = confluent_kafka.Producer({"bootstrap.servers": tools.broker.address("LOCAL"), "transactional.id": name,
                                     "transaction.timeout.ms": 600000})
    made.init_transactions(LIMIT_S)
    made.begin_transaction()
    for number in range(COUNT):
        made.produce(topic, str(number), partition=0, timestamp=int((time.time() - age_s) * 1000))
    assert made.flush(LIMIT_S) == 0
    return made


def rows(tools, *words):
    """What the tool prints as a table, a row each by the names of its columns."""
    head, *lines = [line.split("\t") for line in tools.run(TOOL, *words).splitlines()]
    names = [name.strip() for name in head]
    return [dict(zip(names, (cell.strip() for cell in line))) for line in lines]


def java_hash(text):
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def forget(tools, name):
    """Deletes the id's record and lets a new control read what is left."""
    admin = confluent_kafka.Producer({"bootstrap.servers": tools.broker.address("LOCAL"),
                                      "client.id": "__admin_client"})
    partitions = len(admin.list_topics(STATE, timeout=LIMIT_S).topics[STATE].partitions)
    key = struct.pack(">hh", 0, len(name)) + name.encode()
    admin.produce(STATE, key=key, value=None, partition=(java_hash(name) & 0x7FFFFFFF) % partitions)
    assert admin.flush(LIMIT_S) == 0
    tools.broker.wait_restart("control", tools.broker.kill("control"))


def write_after(tools, topic):
    """A record of no transaction, which nobody is told while one before it is open."""
    after = confluent_kafka.Producer({"bootstrap.servers": tools.broker.address("LOCAL")})
    after.produce(topic, "after", partition=0)
    assert after.flush(LIMIT_S) == 0


def committed(tools, topic):
    """How many records a reader of committed ones finds before the end that it is told."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": tools.broker.address("LOCAL"),
                                       "group.id": "tools-transactions", "isolation.level": "read_committed",
                                       "enable.partition.eof": True, "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    count = 0
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        record = reader.poll(1)
        if record is None:
            continue
        if record.error():
            assert record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, record.error()
            reader.close()
            return count
        count += 1
    raise AssertionError(f"{topic}: the end does not come")


def wait_committed(tools, topic, count):
    """A marker counts when it is synced, which may be a moment after the tool's answer."""
    deadline = time.monotonic() + LIMIT_S
    while (seen := committed(tools, topic)) != count:
        assert time.monotonic() < deadline, f"{topic}: {seen} committed records, not {count}"
        time.sleep(0.2)


def check_lists(tools, topic):
    """list with its filters, describe, describe-producers."""
    name = "tools-transaction-1"
    made = begin(tools, name, topic)
    found = rows(tools, "list", "--transactional-id-pattern", "tools-transaction-[0-9]")
    assert [row["TransactionalId"] for row in found] == [name], found
    assert found[0]["TransactionState"] == "Ongoing" and found[0]["Coordinator"] == "1", found
    (producer,) = rows(tools, "describe-producers", "--topic", topic, "--partition", "0")
    assert producer["ProducerId"] == found[0]["ProducerId"], (producer, found)
    assert (producer["ProducerEpoch"], producer["LastSequence"], producer["CurrentTransactionStartOffset"],
            producer["LatestCoordinatorEpoch"]) == ("0", str(COUNT - 1), "0", "-1"), producer
    assert abs(int(producer["LastTimestamp"]) / 1000 - time.time()) < LIMIT_S, producer
    if FULL:
        assert not rows(tools, "list", "--transactional-id-pattern", "tools"), "a part of an id is not the id"
        got = tools.run(TOOL, "list", "--transactional-id-pattern", "tools-[", fails=True)
        assert "Failed to list transactions" in got, got
        assert not rows(tools, "list", "--duration-filter", "600000"), "none is that old"
        (row,) = rows(tools, "describe", "--transactional-id", name)
        assert row["TransactionState"] == "Ongoing" and row["TopicPartitions"] == f"{topic}-0", row
        got = tools.run(TOOL, "describe-producers", "--topic", topic, "--partition", "7", fails=True)
        assert "Failed to describe producers" in got, got
    return made, name


def check_force(tools, topic, made, name):
    """forceTerminateTransaction aborts it and fences who began it."""
    tools.run(TOOL, "forceTerminateTransaction", "--transactionalId", name)
    if FULL:
        (row,) = rows(tools, "describe", "--transactional-id", name)
        assert row["TransactionState"] == "Empty", row
        (producer,) = rows(tools, "describe-producers", "--topic", topic, "--partition", "0")
        assert producer["CurrentTransactionStartOffset"] == "None", producer
    write_after(tools, topic)
    wait_committed(tools, topic, 1)
    try:
        made.commit_transaction(LIMIT_S)
        raise AssertionError("what was terminated is committed")
    except KafkaException as fault:
        assert fault.args[0].fatal(), fault


def check_hanging(tools, topic):
    """find-hanging tells the transaction that no coordinator knows, and no other; abort ends it."""
    known = begin(tools, "tools-known", "tools-known", OLD_S)
    hanging = begin(tools, "tools-hanging", topic, OLD_S)
    if FULL:
        assert not rows(tools, "find-hanging", "--broker-id", "1"), "both are known"
    forget(tools, "tools-hanging")
    write_after(tools, topic)
    assert committed(tools, topic) == 0, "a record behind an open transaction was told"
    found = rows(tools, "find-hanging", "--broker-id", "1")
    assert [(row["Topic"], row["Partition"], row["StartOffset"]) for row in found] == [(topic, "0", "0")], found
    assert 50 < int(found[0]["Duration(min)"]) < 90, found
    tools.run(TOOL, "abort", "--topic", topic, "--partition", "0", "--start-offset", found[0]["StartOffset"])
    wait_committed(tools, topic, 1)
    if FULL:
        (producer,) = rows(tools, "describe-producers", "--topic", topic, "--partition", "0")
        assert producer["CurrentTransactionStartOffset"] == "None", producer
        assert producer["LatestCoordinatorEpoch"] == "0", producer
        assert not rows(tools, "find-hanging", "--broker-id", "1")
        got = tools.run(TOOL, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0", fails=True)
        assert "Could not find any open transactions" in got, got
    known.commit_transaction(LIMIT_S)
    wait_committed(tools, "tools-known", COUNT)
    del hanging


def check(tools):
    for topic in ("tools-transactions", "tools-hanging", "tools-known"):
        tools.broker.millrace("topic", "create", topic, "-p", "1")
    made, name = check_lists(tools, "tools-transactions")
    check_force(tools, "tools-transactions", made, name)
    check_hanging(tools, "tools-hanging")
