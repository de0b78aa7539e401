# SPDX-License-Identifier: Apache-2.0
"""The check of tests that kill coordinators: a group of real clients reads and commits, no acknowledged commit is
lost or goes back, every record is read, and at the end the group has committed all.

Members are processes (group_oracle_member.py) that log each acknowledged commit before they go on; the committed
offsets are asked for and compared with what was logged before the question."""
import os
import subprocess
import threading
import time

import confluent_kafka
from confluent_kafka import TopicPartition

from lib.broker import TOP, wait

MEMBER = os.path.join(TOP, "tests/lib/group_oracle_member.py")
NEWEST = os.path.join(TOP, "build/clients/venv/bin/python3")  # its librdkafka knows KIP-848
PARTITIONS = 6
MEMBERS = 3
LIMIT_S = 90  # for the broker, or the group, to come back


class Producer(threading.Thread):
    """Numbers, one after the other, with idempotence."""

    def __init__(self, address, topic, rate):
        super().__init__()
        self.producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True,
                                                  "linger.ms": 5, "message.timeout.ms": LIMIT_S * 1000})
        self.topic = topic
        self.rate = rate
        self.stopping = False
        self.count = 0
        self.failed = []

    def run(self):
        while not self.stopping:
            self.producer.produce(self.topic, str(self.count), partition=self.count % PARTITIONS,
                                  on_delivery=lambda error, _: self.failed.append(error) if error else None)
            self.count += 1
            self.producer.poll(1 / self.rate)
        assert self.producer.flush(LIMIT_S) == 0
        assert not self.failed, self.failed[:3]


def ask_committed(address, group, places):
    """What a client that knows nothing is told, partition to offset; asks again while the broker comes back."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        asker = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
        try:
            got = asker.committed(places, timeout=10)
            if not any(one.error for one in got):
                return {one.partition: max(one.offset, 0) for one in got}
        except confluent_kafka.KafkaException:
            pass
        finally:
            asker.close()
        assert time.monotonic() < deadline, f"nobody tells the committed offsets of {group}"


class GroupLoad:
    """One group with its topic, members and producer; records a second by rate. Use it in a with statement."""

    def __init__(self, broker, group, rate, protocol="classic"):
        self.address = broker.address("LOCAL")
        self.group = self.topic = group
        broker.millrace("topic", "create", self.topic, "-p", str(PARTITIONS))
        self.logs = [os.path.join(broker.home, f"{group}-{number}.log") for number in range(MEMBERS)]
        for path in self.logs:
            open(path, "w", encoding="ascii").close()
        python = NEWEST if protocol == "consumer" else "/usr/bin/python3"
        self.members = [subprocess.Popen([python, "-B", MEMBER, self.address, self.topic, group, path, protocol])
                        for path in self.logs]
        self.producer = Producer(self.address, self.topic, rate)
        self.producer.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()

    def acked(self):
        """Greatest acknowledged offset of each partition, and what was read."""
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        values = set()
        for path in self.logs:
            with open(path, encoding="ascii") as lines:
                for line in lines:
                    if not line.endswith("\n"):
                        break
                    first, second = line.split()
                    if first == "read":
                        values.add(int(second))
                    else:
                        offsets[int(first)] = max(offsets[int(first)], int(second))
        return offsets, values

    def wait_running(self):
        wait(f"{self.group} commits nothing", lambda: sum(self.acked()[0].values()) > 0, LIMIT_S)

    def committed(self):
        return ask_committed(self.address, self.group, [TopicPartition(self.topic, p) for p in range(PARTITIONS)])

    def check(self):
        """Returns how much is committed."""
        before, _ = self.acked()
        now = self.committed()
        wrong = {p: (before[p], now[p]) for p in before if now[p] < before[p]}
        assert not wrong, f"{self.group}: acknowledged and committed: {wrong}"
        return sum(now.values())

    def ends(self):
        asker = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": "ends"})
        try:
            return {p: asker.get_watermark_offsets(TopicPartition(self.topic, p), timeout=30)[1]
                    for p in range(PARTITIONS)}
        finally:
            asker.close()

    def finish(self):
        """The group reads and commits all. Returns the number of records."""
        self.producer.stopping = True
        self.producer.join(LIMIT_S)
        assert not self.producer.is_alive()
        ends = self.ends()
        wait(f"{self.group} does not commit all: {ends}", lambda: self.committed() == ends, LIMIT_S)
        self.end()
        self.check()
        _, values = self.acked()
        missing = self.producer.count - len(values)
        assert values == set(range(self.producer.count)), f"{self.group}: {missing} records were not read"
        return self.producer.count

    def end(self):
        self.producer.stopping = True
        for member in self.members:
            member.terminate()
        for member in self.members:
            try:
                member.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()
        self.producer.join(LIMIT_S)
