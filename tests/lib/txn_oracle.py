# SPDX-License-Identifier: Apache-2.0
"""The check of tests that kill coordinators of transactions: copies from a topic to another (clients/txn_copy.py:
records and offsets of a batch are one transaction over all partitions) while whoever is killed. A transaction that
is half visible, lost or committed twice shows: a record is missing or twice in the target, or the group's committed
offsets are not the target's end."""
import os
import subprocess
import time

import confluent_kafka
from confluent_kafka import TopicPartition

from lib.broker import TOP, wait
from lib.group_oracle import ask_committed

COPY = os.path.join(TOP, "tests/clients/txn_copy.py")
PARTITIONS = 3
LIMIT_S = 60
COPIES = 2
GROUP = "copies"


def read(address, topic, level="read_committed"):
    """All values below what is stable, or all there are."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "readers",
                                         "isolation.level": level, "enable.partition.eof": True,
                                         "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values = []
    ended = set()
    deadline = time.monotonic() + LIMIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic}: the end does not come, {len(values)} values"
        for record in consumer.consume(1000, 0.2):
            if record.error():
                assert record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, record.error()
                ended.add(record.partition())
            else:
                values.append(int(record.value()))
    consumer.close()
    return values


def fill(address, topic, count):
    made = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True,
                                     "queue.buffering.max.messages": count + 1})
    for number in range(count):
        made.produce(topic, str(number), partition=number % PARTITIONS)
    assert made.flush(LIMIT_S) == 0


class Copies:
    """Two copies, of one group, of count records. Use it in a with statement."""

    def __init__(self, broker, count):
        self.address = broker.address("LOCAL")
        self.count = count
        for topic in ("source", "target"):
            broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
        fill(self.address, "source", count)
        self.processes = [subprocess.Popen(["/usr/bin/python3", "-B", COPY, self.address, "source", "target", GROUP,
                                            f"copy-{number}", str(count)], stdout=subprocess.PIPE,
                                           stderr=subprocess.STDOUT, text=True) for number in range(COPIES)]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for one in self.processes:
            one.kill()
            one.communicate()

    def wait_running(self):
        wait("nothing is copied", lambda: read(self.address, "target"), LIMIT_S)

    def check_once(self):
        """No record is in the target twice. Returns how many there are."""
        values = read(self.address, "target")
        assert len(values) == len(set(values)), f"{len(values) - len(set(values))} records came twice"
        return len(values)

    def finish(self, early=False):
        """The copies end, or are ended. What is in the target is what the group has committed, each record once.
        Returns how many."""
        for one in self.processes:
            if early:
                one.terminate()
        for one in self.processes:
            said, _ = one.communicate(timeout=3 * LIMIT_S)
            assert one.returncode == 0, said[-3000:]
            print(said.strip().splitlines()[-1])
        ends = ask_committed(self.address, GROUP, [TopicPartition("source", p) for p in range(PARTITIONS)])
        want = [number for number in range(self.count) if number // PARTITIONS < ends[number % PARTITIONS]]
        values = read(self.address, "target")
        assert early or len(want) == self.count, f"{len(want)} of {self.count} are committed"
        assert sorted(values) == want, \
            f"{len(values)} records, {len(set(values))} different, of {len(want)} that are committed"
        everything = len(read(self.address, "target", "read_uncommitted"))
        assert everything > len(want), "no copy was aborted: nothing was tried"
        print(f"{len(want)} records copied once, {everything - len(want)} more in transactions that were aborted")
        return len(want)
