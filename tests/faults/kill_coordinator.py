#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: whoever kills control loses nothing that it had acknowledged, and the data path does not notice.

Method: kill -9 of millrace-control every two seconds under the load of a classic group, a group of the new protocol
(KIP-848), copies in transactions with offsets in them, and administration. After each kill one of the loads is
asked: no acknowledged committed offset went back (lib/group_oracle.py), no record of the copies came twice
(lib/txn_oracle.py), acknowledged topics, partitions and settings are there and deleted topics are not. At the end
the groups have read and committed all, and the copies' target is exactly what their group has committed. Meanwhile
the longest gap of produce and fetch and the slowest new client are compared with the same loads without kills
(lib/data_path.py), in turns: the median of five in full, the best of two to four otherwise."""
import itertools
import os
import statistics
import threading
import time

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from lib import data_path
from lib.broker import FULL, Broker, pick, skip, wait
from lib.group_oracle import LIMIT_S, NEWEST, GroupLoad
from lib.txn_oracle import Copies

EVERY_S = 2
CALM_S = 3
TURNS_LEAST = 2
ADMIN_S = 0.05  # between two rounds of administration
RATE = 100  # records a second of each group
SETTINGS_TOPIC = "settings"
GROW_EVERY = 16
RETENTION_FIRST_MS = 1_000_000_000  # above the default: one that is lost goes back
KEEP_EVERY = 10  # so many topics are made for one that is altered once and stays


class Admin(threading.Thread):
    """Topics made, altered and deleted, one request at a time, each until it is known what became of it."""

    def __init__(self, address):
        super().__init__()
        self.client = AdminClient({"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 500})
        self.stopping = False
        self.failed = None
        self.made = set()
        self.gone = set()
        self.kept = {}  # topic to its retention.ms
        self.retention_ms = 0
        self.partitions = 0
        self.count = 0

    def until_known(self, ask, done=None):
        """Asks until it is acknowledged, or answered by the error that says that it was done before."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                for future in ask().values():
                    future.result(10)
                break
            except KafkaException as fault:
                if fault.args[0].code() == done:
                    break
                assert time.monotonic() < deadline, fault
                time.sleep(0.05)
        self.count += 1

    def alter(self, topic, retention_ms):
        self.until_known(lambda: self.client.alter_configs([ConfigResource(
            ConfigResource.Type.TOPIC, topic, {"retention.ms": str(retention_ms)})], request_timeout=5))

    def round(self, number):
        name = f"admin-{number}"
        self.until_known(lambda: self.client.create_topics([NewTopic(name, 2, 1)], request_timeout=5),
                         KafkaError.TOPIC_ALREADY_EXISTS)
        self.made.add(name)
        wanted = RETENTION_FIRST_MS + number
        self.alter(SETTINGS_TOPIC, wanted)
        self.retention_ms = wanted
        if number % KEEP_EVERY == 0:
            self.alter(name, wanted)
            self.kept[name] = wanted
        if number % GROW_EVERY == 0:
            grown = 2 + number // GROW_EVERY
            self.until_known(lambda: self.client.create_partitions([NewPartitions(SETTINGS_TOPIC, grown)],
                                                                   request_timeout=5),
                             KafkaError.INVALID_PARTITIONS)
            self.partitions = grown
        old = f"admin-{number - 3}"
        if old in self.made and old not in self.kept:
            self.made.discard(old)
            self.until_known(lambda: self.client.delete_topics([old], request_timeout=5),
                             KafkaError.UNKNOWN_TOPIC_OR_PART)
            self.gone.add(old)

    def run(self):
        try:
            for number in itertools.count():
                if self.stopping:
                    return
                self.round(number)
                time.sleep(ADMIN_S)
        except Exception as fault:  # told by the next check
            self.failed = fault

    def retentions(self, topics):
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                return {resource.name: int(future.result(10)["retention.ms"].value) for resource, future in
                        self.client.describe_configs(resources, request_timeout=5).items()}
            except KafkaException as fault:
                assert time.monotonic() < deadline, fault

    def check(self):
        """What was acknowledged before the question is in the answer. Returns requests so far."""
        assert self.failed is None, self.failed
        made, gone, kept = set(self.made), set(self.gone), dict(self.kept)
        retention_ms, partitions = self.retention_ms, self.partitions
        now_ms = self.retentions([*kept, SETTINGS_TOPIC])
        wrong = {topic: (wanted, now_ms[topic]) for topic, wanted in kept.items() if now_ms[topic] != wanted}
        assert not wrong, f"retention.ms acknowledged and as it is: {wrong}"
        assert now_ms[SETTINGS_TOPIC] >= retention_ms, \
            f"retention.ms={retention_ms} was acknowledged, it is {now_ms[SETTINGS_TOPIC]}"
        topics = self.client.list_topics(timeout=LIMIT_S).topics
        lost = [name for name in made if name not in topics and name in self.made]
        back = [name for name in gone if name in topics]
        assert not lost and not back, f"acknowledged and not there: {lost}; deleted and there: {back}"
        grown = len(topics[SETTINGS_TOPIC].partitions)
        assert grown >= partitions, f"{partitions} partitions were acknowledged, {grown} are there"
        return self.count


def judge(seen):
    """seen: (calm, killed) of each turn. Returns how many times the calm one each kind of gap is."""
    choose = statistics.median if FULL else min
    return data_path.Seen(*map(choose, zip(*(data_path.ratios(killed, calm) for calm, killed in seen))))


def main():
    if not os.path.exists(NEWEST):
        skip(f"{NEWEST} is not there: tests/clients/setup")
    turns = pick(5, 4)
    killing_s = pick(60, 8)
    copied = pick(600000, 60000)
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "8",
                "transaction.state.log.num.partitions": "8"}
    kills = 0
    seen = []
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        address = broker.address("LOCAL")
        for topic in ("calm", SETTINGS_TOPIC):
            broker.millrace("topic", "create", topic, "-p", "2")
        admin = Admin(address)
        with Copies(broker, copied) as copies, GroupLoad(broker, "classic", RATE) as classic, \
                GroupLoad(broker, "modern", RATE, "consumer") as modern:
            checks = itertools.cycle((classic.check, copies.check_once, modern.check, admin.check))

            def kill(seconds):
                nonlocal kills
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    next_s = time.monotonic() + EVERY_S
                    broker.wait_restart("control", broker.kill("control"))
                    kills += 1
                    next(checks)()
                    time.sleep(max(0.0, next_s - time.monotonic()))

            admin.start()
            try:
                for load in (classic, modern, copies):
                    load.wait_running()
                while len(seen) < turns and (FULL or len(seen) < TURNS_LEAST or max(judge(seen)) > data_path.RATIO):
                    seen.append(tuple(
                        data_path.measure(broker, f"{kind}-{len(seen)}", "calm", ("LOCAL",), seconds, what)
                        for kind, seconds, what in (("calm", CALM_S, time.sleep), ("killed", killing_s, kill))))
                    calm, killed = seen[-1]
                    print(f"killed: {data_path.told(killed)}; without: {data_path.told(calm)}", flush=True)
            finally:
                admin.stopping = True
                admin.join(LIMIT_S)
            requests = admin.check()
            wait("deleted topics are still there", lambda: not {name for name in admin.client.list_topics(
                timeout=LIMIT_S).topics if name in admin.gone})
            transacted = copies.finish(early=True)
            read = classic.finish() + modern.finish()
            control = broker.status()["control"]
            assert control["group_records_bad"] == 0 and control["txn_records_bad"] == 0, control
    ratio = judge(seen)
    print("times the calm one: " + ", ".join(f"{name} {value:.2f}" for name, value in ratio._asdict().items()))
    assert max(ratio) <= data_path.RATIO, "the data path sees the kills"
    assert kills >= len(seen) * killing_s // (2 * EVERY_S), f"only {kills} kills"
    assert requests > kills, f"{requests} requests of administration in {kills} kills"
    print(f"{kills} kills: {read} records of groups, {transacted} in transactions, {requests} requests of "
          "administration: nothing acknowledged was lost")


if __name__ == "__main__":
    main()
