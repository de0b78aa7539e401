#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of millrace-control and of millraced, in turn, while a group of real clients reads and commits: no
acknowledged commit is lost or goes back, every record is read, and at the end the group has committed all.

Members are processes (kill_groups_member.py) that log each acknowledged commit before they go on. After each
kill the committed offsets are asked for and compared with what was logged before the question."""
import os
import subprocess
import threading
import time

import confluent_kafka
from confluent_kafka import TopicPartition

from lib.broker import TOP, Broker, pick

MEMBER = os.path.join(TOP, "tests/faults/kill_groups_member.py")
TOPIC = "killed"
GROUP = "killed-group"
PARTITIONS = 6
MEMBERS = 3
RATE = 400  # records a second
LIMIT_S = 90  # for the broker, or the group, to come back


class Producer(threading.Thread):
    """Numbers, one after the other, with idempotence."""

    def __init__(self, address):
        super().__init__()
        self.producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True,
                                                  "linger.ms": 5, "message.timeout.ms": LIMIT_S * 1000})
        self.stopping = False
        self.count = 0
        self.failed = []

    def run(self):
        while not self.stopping:
            self.producer.produce(TOPIC, str(self.count), partition=self.count % PARTITIONS,
                                  on_delivery=lambda error, _: self.failed.append(error) if error else None)
            self.count += 1
            self.producer.poll(1 / RATE)
        assert self.producer.flush(LIMIT_S) == 0
        assert not self.failed, self.failed[:3]


def acked(logs):
    """Greatest acknowledged offset of each partition, and what was read."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    values = set()
    for path in logs:
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


def committed(address):
    """What a client that knows nothing is told; asks again while the broker comes back."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        asker = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": GROUP})
        try:
            got = asker.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=10)
            if not any(one.error for one in got):
                return {one.partition: max(one.offset, 0) for one in got}
        except confluent_kafka.KafkaException:
            pass
        finally:
            asker.close()
        assert time.monotonic() < deadline, "nobody tells the committed offsets"


def check(address, logs):
    before, _ = acked(logs)
    now = committed(address)
    wrong = {p: (before[p], now[p]) for p in before if now[p] < before[p]}
    assert not wrong, f"acknowledged and committed: {wrong}"
    return sum(now.values())


def ends(address):
    asker = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "ends"})
    try:
        return {p: asker.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in range(PARTITIONS)}
    finally:
        asker.close()


def main():
    rounds = pick(40, 4)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        address = broker.address("LOCAL")
        broker.millrace("topic", "create", TOPIC, "-p", str(PARTITIONS))
        logs = [os.path.join(broker.home, f"member-{number}.log") for number in range(MEMBERS)]
        for path in logs:
            open(path, "w", encoding="ascii").close()
        members = [subprocess.Popen(["/usr/bin/python3", "-B", MEMBER, address, TOPIC, GROUP, path])
                   for path in logs]
        producer = Producer(address)
        producer.start()
        try:
            deadline = time.monotonic() + LIMIT_S
            while sum(acked(logs)[0].values()) == 0:
                assert time.monotonic() < deadline, "the group commits nothing"
                time.sleep(0.2)
            for number in range(rounds):
                name = "control" if number % 2 == 0 else "millraced"
                pid = broker.kill(name)
                broker.wait_restart(name, pid)
                print(f"{name} killed: {check(address, logs)} committed")
                time.sleep(1)
            producer.stopping = True
            producer.join(LIMIT_S)
            assert not producer.is_alive()
            deadline = time.monotonic() + LIMIT_S
            while committed(address) != ends(address):
                assert time.monotonic() < deadline, (committed(address), ends(address))
                time.sleep(0.5)
        finally:
            producer.stopping = True
            for member in members:
                member.terminate()
            for member in members:
                member.wait(LIMIT_S)
            producer.join(LIMIT_S)
        check(address, logs)
        _, values = acked(logs)
        assert values == set(range(producer.count)), f"{producer.count - len(values)} records were not read"
        print(f"{rounds} kills, {producer.count} records read and committed: nothing went back")


if __name__ == "__main__":
    main()
