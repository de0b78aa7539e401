#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: after groups, commits, deletions and transactions of every kind, and compaction of the internal topics under
them, Kafka's own DumpLogSegments finds nothing wrong in __consumer_offsets, __transaction_state and the aborted
transactions' indexes, and decodes every record.

Method: the internal topics have small segments and are compacted all the time. Members of classic groups and of
groups of the new protocol join, commit and leave; others commit for many partitions at once; groups and a topic are
deleted; transactions with and without offsets commit, abort and are left to their time-out; control and millraced are
killed in between. After a clean stop the tool reads each segment with the decoder of its topic, each index and each
snapshot; every key and value must have been decoded, every kind of record and state must be there, and the
.txnindex files of the data must name exactly the transactions that the markers in the segments say were aborted.
In the end the kind of a record and an index are changed, and that must be seen."""
import collections
import glob
import json
import os
import random
import re
import subprocess
import threading
import time

import confluent_kafka
import dump_log
from confluent_kafka import KafkaException, TopicPartition
from groups import NEWEST

from lib.broker import TOP, Broker, pick, skip, wait
from lib.wire import crc32c

MEMBER = os.path.join(TOP, "tests/clients/group_member.py")
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
DECODERS = {OFFSETS: "--offsets-decoder", STATE: "--transaction-log-decoder"}
SEGMENT_BYTES = 65536
PARTITIONS = 4
WIDE = 60  # partitions of the topic whose offsets are committed at once
LIMIT_S = 60
TXNINDEX_ENTRY_BYTES = 34
BATCH_HEADER_BYTES, CRC_AT, KEY_HEAD_BYTES = 61, 17, 4  # a key begins with its kind and the text's length
TIMEOUT_MS = 1500
STATES = {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}
# Records of __consumer_offsets by the type in their keys: offsets (both versions' one), classic groups, and those of
# the new protocol.
KINDS = {"1", "2", "3", "5", "6", "7", "8"}


class Loads:
    """Threads that work until they are stopped. What one of them finds wrong is told at the end."""

    def __init__(self, broker, seed):
        self.broker = broker
        self.address = broker.address("LOCAL")
        self.seed = seed
        self.stopped = threading.Event()
        self.failed = []
        self.done = collections.Counter()
        self.threads = []

    def start(self, work, number):
        def run():
            chance = random.Random(f"{self.seed} {work.__name__} {number}")
            while not self.stopped.is_set():
                try:
                    work(number, chance)
                    self.done[work.__name__] += 1
                except KafkaException:  # of a broker that was just killed
                    self.done[work.__name__ + ", again"] += 1
                    time.sleep(0.1)
                except Exception as fault:  # one load's fault must not hide another's
                    self.failed.append(f"{work.__name__}: {fault!r}")
                    return

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(3 * LIMIT_S)
            assert not thread.is_alive(), "a load does not end"
        assert not self.failed, self.failed
        print("done: " + ", ".join(f"{count} {name}" for name, count in sorted(self.done.items())))

    # --- loads -----------------------------------------------------------------------------------

    def commits(self, number, chance):
        """Offsets of many partitions of a group without members, again and again; sometimes the group is deleted."""
        group = f"wide-{number}-{chance.randrange(3)}"
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": group})
        for _ in range(10):
            consumer.commit(offsets=[TopicPartition("wide", i, chance.randrange(1 << 40)) for i in range(WIDE)],
                            asynchronous=False)
        consumer.close()
        if chance.random() < 0.3:
            self.broker.millrace("group", "delete", group, check=False)

    def classic(self, number, chance):
        """A member that joins, reads, commits and leaves."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": f"classic-{number % 2}",
                                             "auto.offset.reset": "earliest", "enable.auto.commit": False,
                                             "session.timeout.ms": 6000})
        consumer.subscribe(["data"])
        for _ in range(chance.randrange(2, 10)):
            if [record for record in consumer.consume(100, 0.3) if not record.error()]:
                consumer.commit(asynchronous=False)
        consumer.close()

    def consumer_protocol(self, number, _):
        """The same in the new protocol, by a client that has it."""
        done = subprocess.run([NEWEST, "-B", MEMBER, "confluent", self.address, "data", f"new-{number % 2}", "1"],
                              env=dict(os.environ, GROUP_PROTOCOL="consumer"), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=2 * LIMIT_S, check=False)
        if done.returncode != 0:
            raise KafkaException(done.stderr[-500:])

    def transactions(self, number, chance):
        """Some transactions of one id: committed, aborted, or left to their time-out; with offsets and without."""
        made = confluent_kafka.Producer({"bootstrap.servers": self.address,
                                         "transactional.id": f"dump-{number}-{chance.randrange(4)}",
                                         "transaction.timeout.ms": TIMEOUT_MS, "linger.ms": 0})
        group = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": f"within-{number}"})
        try:
            made.init_transactions(LIMIT_S)
            for _ in range(20):
                made.begin_transaction()
                for _ in range(chance.randrange(1, 6)):
                    made.produce("data", str(chance.random()), partition=chance.randrange(PARTITIONS))
                if chance.random() < 0.5:
                    places = [TopicPartition("data", i, chance.randrange(1 << 30)) for i in range(PARTITIONS)]
                    made.send_offsets_to_transaction(places, group.consumer_group_metadata(), LIMIT_S)
                made.flush(LIMIT_S)
                fate = chance.random()
                if fate < 0.5:
                    made.commit_transaction(LIMIT_S)
                elif fate < 0.95:
                    made.abort_transaction(LIMIT_S)
                else:
                    return
        finally:
            group.close()


def is_compacted(broker, topic):
    return f"/{topic}-0 up to offset" in broker.log_text()


def is_deleted(broker, group):
    """Deletes it, once no member is in it any more."""
    broker.millrace("group", "delete", group, check=False)
    return group not in [row["name"] for row in json.loads(broker.millrace("group", "list", "-o", "json"))]


def make_log(broker, seed, rounds):
    """Runs all loads; kills between; stops the broker."""
    broker.start()
    for topic, partitions in (("data", PARTITIONS), ("wide", WIDE), ("gone", 1)):
        broker.millrace("topic", "create", topic, "-p", str(partitions))
    loads = Loads(broker, seed)
    for work, count in ((loads.commits, 2), (loads.classic, 3), (loads.consumer_protocol, 2), (loads.transactions, 3)):
        for number in range(count):
            loads.start(work, number)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": loads.address, "group.id": "of-a-topic-that-goes"})
    consumer.commit(offsets=[TopicPartition("gone", 0, 1)], asynchronous=False)
    consumer.close()
    for number in range(rounds):
        time.sleep(3)
        victim = "control" if number % 2 == 0 else "millraced"
        broker.wait_restart(victim, broker.kill(victim))
    broker.millrace("topic", "delete", "gone")
    for topic in DECODERS:
        wait(f"{topic} is not compacted", lambda name=topic: is_compacted(broker, name), LIMIT_S)
    time.sleep(3)  # of load after the last kill
    loads.stop()
    status = broker.status()
    assert status["control"]["txn_timed_out"] > 0 and status["control"]["txn_records_bad"] == 0, status["control"]
    assert status["control"]["group_records_bad"] == 0, status["control"]
    for group in ("classic-0", "new-0"):
        wait(f"{group} is not deleted", lambda name=group: is_deleted(broker, name), LIMIT_S)
    code, _ = broker.stop()
    assert code == 0, code
    print(f"{status['log']['compactions']} compactions, {status['control']['txn_timed_out']} time-outs")


# --- what the tool says --------------------------------------------------------------------------

def paths(broker, topic, *kinds):
    return sorted(path for kind in kinds for path in glob.glob(os.path.join(broker.log_dir, f"{topic}-*", f"*.{kind}"))
                  if os.path.getsize(path) > 0)


def dump(files, *options):
    """Lines of the tool by file. Fails for what tells a fault; compaction leaves gaps."""
    said, lines = {}, []
    for line in dump_log.dump(files, *options):
        if line.startswith("Dumping "):
            lines = said.setdefault(line[len("Dumping "):], [])
        lines.append(line)
        assert not dump_log.WRONG.search(line) or "is followed by" in line, line
    assert sorted(said) == sorted(files), (said.keys() ^ set(files), lines[-3:])
    return said


def undecoded(line):
    """What of a record the tool could not read; None: nothing."""
    record = re.search(r' key: (\{"type":"\d+","data":\{.*?\}\}) payload: (.*)$', line)
    if not record:
        return "key"
    value = record.group(2)
    if value in ("<DELETE>", "null", "<null>") or re.match(r'\{"version":"\d+","data":\{.*\}\}$', value):
        return None
    return "value"


def decoded(broker, topic):
    """Lines of all records of an internal topic; control records of transactions are not among them."""
    said = dump(paths(broker, topic, "log"), "--deep-iteration", DECODERS[topic])
    records = [line for lines in said.values() for line in lines
               if line.startswith("| offset:") and "endTxnMarker" not in line]
    odd = [(what, line) for line in records if (what := undecoded(line))]
    assert records and not odd, (topic, len(records), odd[:3])
    return records


def check_offsets(broker):
    records = decoded(broker, OFFSETS)
    kinds = {re.search(r'"type":"(\d+)"', line).group(1) for line in records}
    assert kinds >= KINDS, kinds
    return len(records)


def check_state(broker):
    records = decoded(broker, STATE)
    states = set(re.findall(r'"transactionStatus":"(\w+)"', "\n".join(records)))
    assert states == STATES, states
    return len(records)


def number(line, name):
    return int(re.search(rf"{name}: (-?\d+)", line).group(1))


def aborted_by_markers(lines):
    """(producer, first offset, marker's offset) of each transaction that an abort ended, from batches in order."""
    opened, found, producer = {}, [], None
    for line in lines:
        if line.startswith("baseOffset:"):
            producer = number(line, "producerId")
            if "isTransactional: true" in line and "isControl: false" in line:
                opened.setdefault(producer, number(line, "baseOffset"))
        elif "endTxnMarker:" in line:
            first = opened.pop(producer, None)
            if first is not None and "endTxnMarker: ABORT" in line:
                found.append((producer, first, number(line, "offset")))
    return found


def check_data(broker):
    """Each index of aborted transactions has exactly what the markers say, in their order."""
    said = dump(paths(broker, "data", "log", "txnindex") + paths(broker, "*", "snapshot"), "--deep-iteration")
    total = 0
    for partition in range(PARTITIONS):
        mine = {kind: [line for path in sorted(said) if f"/data-{partition}/" in path and path.endswith(kind)
                       for line in said[path]] for kind in (".log", ".txnindex")}
        want = aborted_by_markers(mine[".log"])
        got = [(number(line, "producerId"), number(line, "firstOffset"), number(line, "lastOffset"))
               for line in mine[".txnindex"] if "producerId:" in line]
        assert got == want, (partition, len(got), len(want), sorted(set(got) ^ set(want))[:5])
        total += len(want)
    assert total > 10, total
    return total, len(said)


def check_indexes(broker):
    """Of offsets and times, and of the aborted transactions in the internal topics, which compaction makes anew."""
    indexes = [path for topic in (*DECODERS, "data") for path in paths(broker, topic, "index", "timeindex")]
    dump(indexes, "--index-sanity-check")
    dump(indexes, "--verify-index-only")
    internal = paths(broker, OFFSETS, "txnindex")
    return len(indexes) + (len(dump(internal)) if internal else 0)


# --- what it must see ----------------------------------------------------------------------------

def must_fail(what, action):
    try:
        action()
    except AssertionError:
        return
    raise RuntimeError(f"{what} was not seen")


def check_seen(broker):
    path = paths(broker, "data", "txnindex")[0]
    os.truncate(path, os.path.getsize(path) - TXNINDEX_ENTRY_BYTES)
    must_fail("a transaction that is missing in an index", lambda: check_data(broker))
    path = paths(broker, STATE, "log")[-1]
    with open(path, "r+b") as file:  # the value's version, under a sum that is right again
        first = file.read(12)
        size = 12 + int.from_bytes(first[8:12], "big")
        data = bytearray(first + file.read(size - 12))
        at = data.index(b"dump-", BATCH_HEADER_BYTES) - KEY_HEAD_BYTES
        data[at + 1] ^= 0x7F
        data[CRC_AT:CRC_AT + 4] = crc32c(bytes(data[CRC_AT + 4:])).to_bytes(4, "big")
        file.seek(0)
        file.write(data)
    must_fail("a record of a kind that is not known", lambda: check_state(broker))


def main():
    missing = [path for path in (dump_log.JARS, NEWEST) if not os.path.exists(path)]
    if missing:
        skip(f"{' '.join(missing)} is not there: tests/clients/setup")
    seed = int(os.environ.get("MILLRACE_SEED", "0")) or random.randrange(1 << 32)
    print(f"seed {seed}")
    settings = {"group.initial.rebalance.delay.ms": "0", "control.request.timeout.ms": "5000",
                "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
                "offsets.topic.segment.bytes": str(SEGMENT_BYTES), "log.segment.bytes": str(1 << 20),
                "transaction.state.log.segment.bytes": str(SEGMENT_BYTES), "log.cleaner.backoff.ms": "300",
                "group.consumer.heartbeat.interval.ms": "300",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
    with Broker(nic=False, settings=settings) as broker:
        make_log(broker, seed, pick(20, 2))
        offsets, states = check_offsets(broker), check_state(broker)
        aborted, files = check_data(broker)
        files += check_indexes(broker)
        check_seen(broker)
    print(f"nothing wrong in {files} files; {offsets} records of groups and {states} of transactions are decoded, "
          f"{aborted} aborted transactions are in their indexes")


if __name__ == "__main__":
    main()
