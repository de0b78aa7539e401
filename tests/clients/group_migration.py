#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a group goes from the classic protocol to the new one (KIP-848) and back member by member, while it reads:
no record is lost, few are read twice, and nobody is thrown out.

Method: three members of a group read a topic into which records go all the time. One after the other is stopped and
started again with the other protocol, over and back, by Java's console consumer, by librdkafka, and by a group that
has both. What all of them printed must be every record; records read twice are counted, since a member may read
again what was read, but not committed, when it was given a partition, and bounded. Control is killed while members
of both protocols are in the group. At each step `millrace group list` tells which protocol the group has, and `describe`
which one each member has. DumpLogSegments
decodes every record, classic members in groups of the new protocol included. By default the group of both clients
with two members; in full all three, with three members each."""
import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time

from groups import JARS, LIMIT_S, NEWEST, dump, start
from lib.broker import FULL, Broker, skip

PARTITIONS = 6
MEMBERS = 3 if FULL else 2
ROLLS = {"both": ("java", "newest-confluent", "java")[:MEMBERS], "java": ("java",) * MEMBERS,
         "librdkafka": ("newest-confluent",) * MEMBERS}
SETTLE_S = 60
DOUBLED_MAX = 0.2  # of all records


class Producer:
    """Numbers, a few at a time, until it is stopped."""

    def __init__(self, broker, topic):
        self.sent = 0
        self.stopped = threading.Event()
        self.process = subprocess.Popen(["kcat", "-b", broker.address("LOCAL"), "-q", "-P", "-t", topic, "-X",
                                         "linger.ms=5"], stdin=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopped.wait(0.05):
            for _ in range(10):
                self.process.stdin.write(f"{self.sent}\n")
                self.sent += 1
            self.process.stdin.flush()

    def stop(self):
        self.stopped.set()
        self.thread.join()
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0
        return self.sent


class Member:
    """One process; what it prints is gathered while it lives."""

    def __init__(self, broker, client, topic, protocol):
        self.client = client
        self.process = start(broker, "LOCAL", client, topic, topic, None, protocol, idle_s=LIMIT_S)
        self.values = []
        self.wrong = []
        self.threads = [threading.Thread(target=self.read, args=pipe, daemon=True) for pipe in
                        ((self.process.stdout, self.values), (self.process.stderr, self.wrong))]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def read(pipe, lines):
        for line in pipe:
            lines.append(line.strip())

    def end(self):
        """After a failure: nothing of it is left."""
        self.process.kill()
        self.process.wait(LIMIT_S)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LIMIT_S)
        for thread in self.threads:
            thread.join()
        assert code == 0 or self.client == "java", f"{self.client}: exit {code}\n" + "\n".join(self.wrong[-20:])
        return self.values


def listed(broker):
    """group -> (state, type); nothing while the coordinator loads them"""
    rows = json.loads(broker.millrace("group", "list", "-o", "json", check=False) or "[]")
    return {row["name"]: (row["state"], row["type"]) for row in rows}


def check_described(broker, group, kind, types):
    """millrace group describe: each member with its protocol, each partition with its member."""
    said = json.loads(broker.millrace("group", "describe", group, "-o", "json"))[0]
    assert (said["state"], said["type"]) == ("Stable", kind), said
    assert sorted(member.get("type") or "classic" for member in said["members"]) == sorted(types), said["members"]
    members = {member["member"] for member in said["members"]}
    owners = [row["member"] for row in said["offsets"] if row["topic"] == group]
    assert len(owners) == PARTITIONS and set(owners) == members, said["offsets"]


def until_settled(broker, what, group, kind):
    """All members are there, and have what they are to have."""
    end = time.monotonic() + SETTLE_S
    seen = None
    while True:
        # Counted first: a member that comes between the two looks leaves the group not stable.
        seen = broker.status()["control"]["group_members"], listed(broker).get(group)
        if seen == (MEMBERS, ("Stable", kind)):
            return
        assert time.monotonic() < end, f"{what}: {seen}"
        time.sleep(0.2)


def protocol_before(protocol):
    return "classic" if protocol == "consumer" else "consumer"


def roll(broker, name, clients, kill):
    """Over and back."""
    topic = f"roll-{name}"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    members = [Member(broker, client, topic, "classic") for client in clients]
    producer = Producer(broker, topic)
    try:
        values, sent = turn(broker, name, topic, clients, members, producer, kill)
    except BaseException:
        producer.process.kill()
        for member in members:
            member.end()
        raise
    counts = collections.Counter(int(value) for value in values if value.isdigit())
    lost = [number for number in range(sent) if number not in counts]
    doubled = sum(count - 1 for count in counts.values())
    print(f"{name}: {sent} records, {len(lost)} lost, {doubled} read twice, over and back")
    assert not lost, f"{name}: {len(lost)} of {sent} lost: {lost[:10]}"
    assert doubled <= sent * DOUBLED_MAX, f"{name}: {doubled} of {sent} read twice"


def turn(broker, name, topic, clients, members, producer, kill):
    """Replaces each member, twice. Returns what was read, and how many were sent."""
    values = []
    until_settled(broker, name, topic, "classic")
    for protocol in ("consumer", "classic"):
        for index, client in enumerate(clients):
            values += members[index].stop()
            members[index] = Member(broker, client, topic, protocol)
            if kill and index == 0:
                time.sleep(1)
                broker.kill("control")
            # With one member of the new protocol it is one of it.
            back = protocol == "classic" and index == MEMBERS - 1
            until_settled(broker, f"{name}: {protocol} member {index}", topic, "classic" if back else "consumer")
            if index == 0:
                check_described(broker, topic, "consumer", ["classic", "consumer", protocol_before(protocol)][:MEMBERS])
    sent = producer.stop()
    time.sleep(3)
    for member in members:
        values += member.stop()
    return values, sent


def main():
    missing = [path for path in (JARS, NEWEST) if not os.path.exists(path)]
    if missing:
        skip(f"{' '.join(missing)} is not there: tests/clients/setup")
    only = sys.argv[1:]
    print(f"{MEMBERS} members, " + ("all clients" if FULL else "one group of both clients: scripts/test full "
                                    "group-migration has three members, and a group of each"))
    settings = {"group.consumer.heartbeat.interval.ms": "300", "group.initial.rebalance.delay.ms": "300",
                "control.request.timeout.ms": "10000"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        for name, clients in ROLLS.items():
            if name in only or not only and (FULL or name == "both"):
                roll(broker, name, clients, kill=name == "both")
        records = dump(broker)
        classic = [line for line in records if '"type":"5"' in line and "classicMemberMetadata" in line]
        assert any('"sessionTimeoutMs"' in line and '"supportedProtocols"' in line for line in classic), classic[:2]
        status = broker.status()["control"]
        assert status["group_records_bad"] == 0, json.dumps(status)
    print(f"{len(records)} records decoded")


if __name__ == "__main__":
    main()
