#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: transactions of real clients are whole or nothing, whoever is killed when.

Method: librdkafka commits and aborts, is fenced by another producer of its id, and loses a transaction to its
time-out; a reader of committed records gets exactly what was committed. Offsets committed in a transaction count
when it is. Clients of version 2 (KIP-890) in plain requests: a Produce adds its partition and an EndTxn gives out the
next epoch; what comes after the end with the last epoch is refused; an id goes from one version to the other and back.
Then copies from a topic to another (lib/txn_oracle.py: records and offsets in one transaction) run while
millrace-control and millraced are killed in turn: each record is in the target once. Java's producer and franz-go
do the same without kills, with version 2, and Kafka's dump tool decodes every record of the coordinator and says which
version wrote it."""
import glob
import os
import re
import time

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

import txn_two
from lib.broker import TOP, Broker, pick, run, skip, wait
from lib.txn_oracle import LIMIT_S, PARTITIONS, Copies, read

JARS = os.path.join(TOP, "build/clients/java/lib")
GO = os.path.join(TOP, "build/clients/go/txn")
COUNT = 100
TIMEOUT_MS = 1500


def producer(address, name, **more):
    made = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 1,
                                     **{key.replace("_", "."): value for key, value in more.items()}})
    made.init_transactions(LIMIT_S)
    return made


def write(made, topic, first, count=COUNT):
    made.begin_transaction()
    for number in range(first, first + count):
        made.produce(topic, str(number), partition=number % PARTITIONS)
    assert made.flush(LIMIT_S) == 0


def check_ends(broker, address):
    topic = "ends"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    made = producer(address, "ends")
    write(made, topic, 0)
    assert read(address, topic) == [], "an open transaction is told"
    made.commit_transaction(LIMIT_S)
    assert sorted(read(address, topic)) == list(range(COUNT))
    write(made, topic, COUNT)
    made.abort_transaction(LIMIT_S)
    write(made, topic, 2 * COUNT)
    made.commit_transaction(LIMIT_S)
    want = [*range(COUNT), *range(2 * COUNT, 3 * COUNT)]
    assert sorted(read(address, topic)) == want
    assert sorted(read(address, topic, "read_uncommitted")) == list(range(3 * COUNT))


def fails(what, action, *codes):
    try:
        action()
    except KafkaException as fault:
        assert fault.args[0].code() in codes or fault.args[0].fatal(), (what, fault)
        return
    raise AssertionError(f"{what} went well")


def check_fencing(broker, address):
    """The second producer of an id ends the first one's transaction, which is not taken up again."""
    topic = "fencing"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    old = producer(address, "fencing")
    write(old, topic, 0)
    new = producer(address, "fencing")
    assert read(address, topic) == []
    fails("the old one's commit", lambda: old.commit_transaction(LIMIT_S), confluent_kafka.KafkaError._FENCED)
    write(new, topic, COUNT)
    new.commit_transaction(LIMIT_S)
    assert sorted(read(address, topic)) == list(range(COUNT, 2 * COUNT))


def check_timeout(broker, address):
    """Who waits for a transaction that nobody ends waits no longer than its time-out."""
    topic = "timeout"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    lost = producer(address, "timeout", transaction_timeout_ms=TIMEOUT_MS)
    other = producer(address, "in time")
    write(lost, topic, 0)
    write(other, topic, COUNT)
    other.commit_transaction(LIMIT_S)
    wait("the transaction is not ended", lambda: broker.status()["control"]["txn_timed_out"] == 1, LIMIT_S)
    wait("its records stop the reader",
         lambda: sorted(read(address, topic)) == list(range(COUNT, 2 * COUNT)), LIMIT_S)
    fails("a commit after the time-out", lambda: lost.commit_transaction(LIMIT_S),
          confluent_kafka.KafkaError._FENCED)


def committed(address, group, topic):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        return consumer.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset
    finally:
        consumer.close()


def is_told(address, group, topic):
    """Whether someone who asks for stable offsets is answered while a transaction holds one."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group,
                                         "isolation.level": "read_committed"})
    try:
        consumer.committed([TopicPartition(topic, 0)], 1)
        return True
    except KafkaException:
        return False
    finally:
        consumer.close()


def check_offsets(broker, address):
    """Offsets of a transaction are the group's when it is committed, and before only to who waits for them."""
    topic = "offsets"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    made = producer(address, "offsets")
    group = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "in-transactions"})
    for offset, commit in ((7, True), (9, False), (11, True)):
        before = committed(address, "in-transactions", topic)
        made.begin_transaction()
        made.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], group.consumer_group_metadata(),
                                         LIMIT_S)
        assert not is_told(address, "in-transactions", topic)
        if commit:
            made.commit_transaction(LIMIT_S)
        else:
            made.abort_transaction(LIMIT_S)
        after = committed(address, "in-transactions", topic)
        assert after == (offset if commit else before), (before, offset, commit, after)
        wait("a stable offset is not told", lambda: is_told(address, "in-transactions", topic))
    group.close()


def check_late(broker, address):
    """What was on its way when its transaction ended is in no other one, and opens none that nobody ends."""
    topic = "late"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    with txn_two.Producer(address, "late") as made:
        made.init()
        old = made.epoch
        assert made.produce(topic, 0, "1") == txn_two.NONE
        assert made.produce(topic, 0, "2", version=11) == txn_two.NONE, "it is part of the transaction"
        assert made.produce(topic, 1, "9", version=11) == txn_two.TRANSACTION_ABORTABLE
        assert made.produce(topic, 1, "9", version=9) == txn_two.INVALID_TXN_STATE
        assert made.commit_offset("two", topic, 5) == txn_two.NONE
        assert read(address, topic) == []
        assert made.end(True) == txn_two.NONE
        assert made.epoch == old + 1, (old, made.epoch)
        assert made.end(True, epoch=old) == txn_two.NONE, "an EndTxn that is repeated tells the same"
        wait("the records are not there", lambda: sorted(read(address, topic)) == [1, 2], LIMIT_S)
        assert committed(address, "two", topic) == 5
        # The last one again; one that never arrived; one to a partition that was not part of it.
        for partition, sequence in ((0, 1), (0, 2), (1, 0), (2, 0)):
            for version in (12, 11, 9):
                error = made.produce(topic, partition, "66", epoch=old, sequence=sequence, version=version)
                known = txn_two.INVALID_PRODUCER_EPOCH
                unknown = {12: known, 11: txn_two.TRANSACTION_ABORTABLE, 9: txn_two.INVALID_TXN_STATE}[version]
                assert error == (known if partition == 0 else unknown), (partition, sequence, version, error)
        assert made.produce(topic, 0, "3", sequence=7) == 45, "a transaction begins with sequence 0"
        assert made.produce(topic, 0, "3") == txn_two.NONE
        assert made.end(False, epoch=old) == txn_two.PRODUCER_FENCED, "the one before is over for good"
        assert made.end(False) == txn_two.NONE
        assert made.end(False) == txn_two.NONE, "nothing was written, but a client need not know that"
        assert made.epoch == old + 3, (old, made.epoch)
        assert made.produce(topic, 2, "4") == txn_two.NONE
        assert made.end(True) == txn_two.NONE
    wait("the records are not there", lambda: sorted(read(address, topic)) == [1, 2, 4], LIMIT_S)
    assert sorted(read(address, topic, "read_uncommitted")) == [1, 2, 3, 4]


def check_versions(broker, address):
    """An id whose clients are of either version."""
    topic = "versions"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    first = producer(address, "versions")
    write(first, topic, 0, 10)
    with txn_two.Producer(address, "versions") as two:
        two.init()
        fails("the old one's commit", lambda: first.commit_transaction(LIMIT_S),
              confluent_kafka.KafkaError._FENCED)
        assert two.produce(topic, 0, "10") == txn_two.NONE
        assert two.end(True) == txn_two.NONE
        # The same client by the old requests: added by name, ended without another epoch.
        epoch = two.epoch
        assert two.produce(topic, 0, "11") == txn_two.NONE
        assert two.end(True, version=4) == txn_two.NONE
        assert two.epoch == epoch
        assert two.produce(topic, 0, "12") == txn_two.NONE
        third = producer(address, "versions")
        assert two.produce(topic, 0, "77") == txn_two.INVALID_PRODUCER_EPOCH
        assert two.end(True) == txn_two.PRODUCER_FENCED
        write(third, topic, 13, 10)
        third.commit_transaction(LIMIT_S)
    wait("what was committed is not there, or more",
         lambda: sorted(read(address, topic)) == [10, 11, *range(13, 23)], LIMIT_S)


def check_features(address):
    said = java("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", address, "describe")
    row = next(line for line in said.splitlines() if "transaction.version" in line)
    assert "SupportedMaxVersion: 2" in row and "FinalizedVersionLevel: 2" in row, said


def check_copies(broker, kills, count):
    """Each record once, though everything is killed."""
    with Copies(broker, count) as copies:
        copies.wait_running()
        for number in range(kills):
            time.sleep(1)
            name = "control" if number % 2 == 0 else "millraced"
            broker.wait_restart(name, broker.kill(name))
            print(f"{name} killed: {copies.check_once()} of {count} are copied")
        copies.finish()


def java(*words, **kwargs):
    return run("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*", *words, timeout=180, **kwargs)


def check_java(broker, address, count):
    topic = "java"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    java("org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", address, "--topic", topic,
         "--num-records", str(count), "--record-size", "100", "--throughput", "-1", "--transactional-id", "java",
         "--transaction-duration-ms", "100")
    got = java("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", address, "--topic", topic,
               "--from-beginning", "--isolation-level", "read_committed", "--max-messages", str(count),
               "--timeout-ms", "30000")
    assert len(got.splitlines()) == count, f"{len(got.splitlines())} of {count}"


def check_tool(broker, address):
    """TransactionsCommand lists and describes."""
    topic = "tool"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    tool = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", address)
    made = producer(address, "tool")
    write(made, topic, 0)
    rows = {row.split()[0]: row.split() for row in java(*tool, "list").splitlines()[1:]}
    assert rows["tool"][3] == "Ongoing" and rows["ends"][3] == "CompleteCommit", rows
    assert not java(*tool, "list", "--duration-filter", "600000").splitlines()[1:], "none is that old"
    said = java(*tool, "describe", "--transactional-id", "tool")
    assert "Ongoing" in said.split(), said
    assert set(said.split()[-1].split(",")) == {f"{topic}-{number}" for number in range(PARTITIONS)}, said
    made.commit_transaction(LIMIT_S)
    wait("the transaction is not complete",
         lambda: "CompleteCommit" in java(*tool, "describe", "--transactional-id", "tool"), LIMIT_S)


def check_dump(broker):
    """Kafka's dump tool decodes every record of __transaction_state."""
    broker.wait_written()
    files = [name for name in glob.glob(os.path.join(broker.log_dir, "__transaction_state-*", "*.log"))
             if os.path.getsize(name) > 0]
    assert files
    got = java("org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--deep-iteration", "--files",
               ",".join(files))
    records = [line for line in got.splitlines() if " key: " in line]
    states = set(re.findall(r'"transactionStatus":"(\w+)"', got))
    odd = [line for line in records if '"transactionalId":' not in line]
    odd += [line for line in got.splitlines() if "isvalid: false" in line or "xception" in line]
    assert not odd, odd[:5]
    versions = {name: set(re.findall(rf'"transactionalId":"{name}".*"clientTransactionVersion":(\d)', got))
                for name in ("java", "franz", "ends")}
    assert versions == {"java": {"2"}, "franz": {"2"}, "ends": set()}, f"{versions}: version 0 is not told"
    assert states == {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}, states
    print(f"DumpLogSegments decoded {len(records)} records of __transaction_state")


def main():
    missing = [path for path in (JARS, GO) if not os.path.exists(path)]
    if missing:
        skip(f"{' '.join(missing)} is not there: tests/clients/setup")
    kills = pick(20, 4)
    count = pick(40000, 4000)
    settings = {"group.initial.rebalance.delay.ms": "0", "control.request.timeout.ms": "5000",
                "offsets.topic.num.partitions": "8", "transaction.state.log.num.partitions": "8",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        address = broker.address("LOCAL")
        check_ends(broker, address)
        check_fencing(broker, address)
        check_timeout(broker, address)
        check_offsets(broker, address)
        check_late(broker, address)
        check_versions(broker, address)
        check_features(address)
        check_java(broker, address, count)
        print(run(GO, address).strip())
        check_tool(broker, address)
        check_copies(broker, kills, count)
        check_dump(broker)
        control = broker.status()["control"]
        assert control["txn_records_bad"] == 0 and control["group_records_bad"] == 0, control
    print("transactions of librdkafka, Java and franz-go are whole or nothing")


if __name__ == "__main__":
    main()
