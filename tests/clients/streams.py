#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: Kafka Streams 4.4 counts words exactly once (exactly_once_v2), whatever is killed in the middle.

Method: streams/WordCount.java caches nothing, so for a word that stands n times in the input its output has 1 to n.
While lines are still being written the application is killed and started again on its folder, and so are
millrace-control and millraced. A reader of committed records that is there from the start must get the counts of each
word in that order, each once, and the last offset of each input partition must be committed in the end.

    streams.py [GUARANTEE]      with at_least_once it must fail
"""
import collections
import os
import random
import subprocess
import sys
import threading
import time

import confluent_kafka
from confluent_kafka import TopicPartition

from lib import compat
from lib.broker import TOP, Broker, pick, skip, wait

HOME = os.path.join(TOP, "build/clients/streams")
PARTITIONS = 2
WORDS = [f"word{number}" for number in range(40)]
WORDS_PER_LINE = 5
RATE = 200  # lines per second
LIMIT_S = 120
# What is killed, in turn.
VICTIMS = ("application", "control", "application", "millraced")


class Lines(threading.Thread):
    """Writes lines at an even rate until it is stopped; how often each word was written."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True,
                                                  "linger.ms": 5})
        self.stopped = threading.Event()
        self.words = collections.Counter()
        self.partitions = collections.Counter()
        self.failed = []

    def run(self):
        choose = random.Random(1)
        begun = time.monotonic()
        number = 0
        while not self.stopped.is_set():
            line = [choose.choice(WORDS) for _ in range(WORDS_PER_LINE)]
            self.words.update(line)
            self.partitions[number % PARTITIONS] += 1
            self.producer.produce("lines", " ".join(line), partition=number % PARTITIONS, on_delivery=self.told)
            number += 1
            self.producer.poll(max(0, begun + number / RATE - time.monotonic()))
        if self.producer.flush(LIMIT_S) > 0:
            self.failed.append("lines are not delivered")

    def told(self, error, _):
        if error:
            self.failed.append(str(error))


class Counts:
    """Reads what is committed of the counts: of each word 1, 2, 3, ..."""

    def __init__(self, address):
        self.reader = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "counts",
                                                "isolation.level": "read_committed", "enable.auto.commit": False,
                                                "auto.offset.reset": "earliest"})
        self.reader.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])
        self.last = collections.Counter()
        self.total = 0

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for record in self.reader.consume(1000, min(left, 0.2)):
                assert not record.error() or record.error().retriable(), record.error()
                if not record.error():
                    word, count = record.key().decode(), int(record.value())
                    assert count == self.last[word] + 1, \
                        f"{word}: {count} came after {self.last[word]}, at {record.partition()}:{record.offset()}"
                    self.last[word] = count
                    self.total += 1

    def read_until(self, what, total):
        deadline = time.monotonic() + LIMIT_S
        while self.total < total:
            assert time.monotonic() < deadline, f"{what}: {self.total} of {total} counts are read"
            self.read(0.2)


class Application:
    """One run of the word count after another, on one folder."""

    def __init__(self, broker, guarantee):
        self.folder = os.path.join(broker.home, "streams")
        self.words = [broker.address("LOCAL"), "lines", "counts", self.folder, guarantee]
        self.said = open(os.path.join(broker.home, "streams.log"), "w+", encoding="utf-8")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
             f"{HOME}/classes:{HOME}/lib/*", "WordCount", *self.words], stdout=self.said, stderr=subprocess.STDOUT)

    def kill(self):
        assert self.process.poll() is None, "it ended by itself"
        self.process.kill()
        self.process.wait()

    def close(self, show):
        if self.process and self.process.poll() is None:
            self.kill()
        if show:
            self.said.seek(0)
            print(self.said.read()[-6000:])
        self.said.close()


def disturb(broker, application, victim):
    if victim == "application":
        application.kill()
        application.start()
    else:
        broker.wait_restart(victim, broker.kill(victim))


def committed_lines(address):
    """What the application's group has committed of the input."""
    asker = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "word-count"})
    got = asker.committed([TopicPartition("lines", number) for number in range(PARTITIONS)], LIMIT_S)
    asker.close()
    return {place.partition: place.offset for place in got}


def check(broker, application, kills):
    address = broker.address("LOCAL")
    lines = Lines(address)
    counts = Counts(address)
    application.start()
    lines.start()
    counts.read_until("nothing is counted", 1)
    for number in range(kills):
        # Something new is committed before each, so that each is in the middle.
        before = counts.total
        counts.read_until(f"before kill {number}", before + WORDS_PER_LINE * RATE // 2)
        victim = VICTIMS[number % len(VICTIMS)]
        disturb(broker, application, victim)
        print(f"{victim} killed: {counts.total} words are counted", flush=True)
    lines.stopped.set()
    lines.join()
    assert not lines.failed, lines.failed[:3]
    counts.read_until("the end", lines.words.total())
    counts.read(2)  # nothing comes behind it
    assert counts.last == lines.words, (counts.last, lines.words)
    wait("the end of the input is not committed", lambda: committed_lines(address) == dict(lines.partitions), LIMIT_S)
    counts.reader.close()
    print(f"{counts.total} words of {lines.partitions.total()} lines are counted exactly once, {kills} kills between")


def write_table():
    table = compat.Table("streams", "Kafka Streams 4.4")
    table.row("exactly_once_v2", "word count with a repartition topic, a changelog and two threads, while the application, "
              "millrace-control and millraced are killed: each count of each word once, in order")
    table.result("exactly_once_v2", "works")
    table.leave_out("group.protocol=streams", "", "streams groups (KIP-1071) are not served yet")
    table.finish()


def main():
    guarantee = sys.argv[1] if len(sys.argv) > 1 else "exactly_once_v2"
    if not os.path.exists(HOME):
        skip(f"{HOME} is not there: tests/clients/setup")
    kills = pick(20, 2)
    settings = {"group.initial.rebalance.delay.ms": "0", "control.request.timeout.ms": "5000",
                "offsets.topic.num.partitions": "8", "transaction.state.log.num.partitions": "8"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        for topic in ("lines", "counts"):
            broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
        application = Application(broker, guarantee)
        done = False
        try:
            check(broker, application, kills)
            done = True
        finally:
            application.close(not done)
        control = broker.status()["control"]
        assert control["txn_records_bad"] == 0 and control["group_records_bad"] == 0, control
        broker.wait_no_loans()
    if guarantee == "exactly_once_v2":
        write_table()


if __name__ == "__main__":
    main()
