#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: real clients work in groups of the new protocol (KIP-848) as with Kafka: the broker shares the partitions
out, a member that joins takes some from one that reads, what was committed is where the next one begins, and
Kafka's own tool shows, resets and deletes such a group.

Method: for each client (Java, librdkafka, franz-go) two members of one group read a topic together and leave; then
new records come, and one member of the same group must read exactly these. While a member reads, a second one joins
and must get records, too; control is killed then, and both read on in the group as it was. A static member leaves
and comes back without a rebalance. A regular expression finds a topic that is made later. DumpLogSegments decodes
every record."""
import concurrent.futures
import json
import os
import subprocess
import sys
import time

from groups import GO, JARS, LIMIT_S, NEWEST, Command, dump, finish, produce, rebalances, start
from lib.broker import Broker, pick, skip

PARTITIONS = 4
CLIENTS = ("java", "newest-confluent", "franz-go")
CONFLUENT = "newest-confluent"
# What Kafka's decoder calls the records of the protocol, by the type in their keys.
RECORDS = {"3": "epoch", "5": "clientId", "6": "assignmentEpoch", "7": "topicPartitions", "8": "memberEpoch",
           "16": "topics"}


def member(broker, client, topic, group, instance=None):
    return start(broker, "LOCAL", client, topic, group, instance, "consumer")


def make(broker, topic):
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))


def check_client(broker, client, count):
    topic = f"new-{client}"
    make(broker, topic)
    first = produce(broker, topic, 0, count)
    both = [member(broker, client, topic, topic) for _ in range(2)]
    got = [finish(one, client) for one in both]
    # A rebalance in the middle may give a record to both.
    assert set(got[0]) | set(got[1]) == set(first), f"{client}: {len(set(got[0]) | set(got[1]))} of {count}"
    second = produce(broker, topic, count, count)
    again = finish(member(broker, client, topic, topic), client)
    assert sorted(again) == sorted(second), f"{client}: {len(again)} values after the first {count}"
    print(f"{client}: {len(got[0])} and {len(got[1])} of {count}, then {len(again)}")


def check_moves(broker, rounds):
    """A second member joins one that reads; control dies; both read on to the end."""
    topic = "moves"
    make(broker, topic)
    members = [member(broker, CONFLUENT, topic, topic)]
    sent = []
    for number in range(rounds):
        sent += produce(broker, topic, len(sent), 20)
        if number == rounds // 4:
            members.append(member(broker, CONFLUENT, topic, topic))
        if number == rounds * 3 // 4:
            broker.kill("control")
        time.sleep(0.1)
    got = [finish(one, CONFLUENT) for one in members]
    assert set(got[0]) | set(got[1]) == set(sent), f"{len(set(got[0]) | set(got[1]))} of {len(sent)}"
    assert len(got[0]) > len(sent) / 10 and len(got[1]) > len(sent) / 10, [len(one) for one in got]
    print(f"moves: {len(got[0])} and {len(got[1])} of {len(sent)}, control killed between")


def check_static(broker, count):
    """The second time the member takes its old place: the group's epoch stays."""
    topic = "new-static"
    make(broker, topic)
    produce(broker, topic, 0, count)
    finish(member(broker, CONFLUENT, topic, topic, instance="one"), CONFLUENT)
    before = rebalances(broker)
    more = produce(broker, topic, count, count)
    got = finish(member(broker, CONFLUENT, topic, topic, instance="one"), CONFLUENT)
    assert sorted(got) == sorted(more), f"static: {len(got)} values"
    assert rebalances(broker) == before, f"static: {rebalances(broker) - before} rebalances"


def check_regex(broker, count):
    make(broker, "re-1")
    first = produce(broker, "re-1", 0, count)
    reader = member(broker, CONFLUENT, "^re-[0-9]+", "regex")
    time.sleep(2)
    make(broker, "re-2")
    second = produce(broker, "re-2", count, count)
    got = finish(reader, CONFLUENT)
    assert set(got) == set(first + second), f"regex: {len(set(got))} of {2 * count}"


def check_tool(broker, group, topic, count):
    """A group in use is shown and not deleted; an empty one is."""
    command = Command(broker)
    assert group in command.run("--list", "--type", "consumer").split()
    offsets = command.offsets(group)
    assert len(offsets) == PARTITIONS and all(lag == 0 for _, _, lag in offsets.values()), offsets
    assert sum(current for current, _, _ in offsets.values()) == count, offsets
    reader = subprocess.Popen(["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*",
                               "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server",
                               broker.address("LOCAL"), "--topic", topic, "--group", group, "--command-property",
                               "group.protocol=consumer"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        said = ""
        for _ in range(20):
            said = command.run("--describe", "--group", group, "--state")
            if "Stable" in said:
                break
        assert "Stable" in said and "uniform" in said, said
        refused = command.run("--delete", "--group", group)
        assert "not empty" in refused or "NonEmpty" in refused, refused
    finally:
        reader.terminate()  # it leaves the group before it ends
        reader.wait(LIMIT_S)
    assert "successful" in command.run("--delete", "--group", group)
    assert group not in [row["name"] for row in json.loads(broker.millrace("group", "list", "-o", "json"))]


def check_dump(broker):
    records = dump(broker)
    for number, word in RECORDS.items():
        mine = [line for line in records if f'key: {{"type":"{number}"' in line]
        assert any(f'"{word}":' in line for line in mine), f"type {number}: {mine[:2]}"
        assert any("payload: null" in line or "payload: <" in line for line in mine), f"type {number}: {mine[:2]}"
    print(f"DumpLogSegments decoded {len(records)} records")


def main():
    missing = [path for path in (JARS, NEWEST, GO) if not os.path.exists(path)]
    if missing:
        skip(f"{' '.join(missing)} is not there: tests/clients/setup")
    count = pick(20000, 400)
    only = sys.argv[1:]
    settings = {"group.consumer.heartbeat.interval.ms": "300", "control.request.timeout.ms": "10000"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            checks = [pool.submit(check_client, broker, client, count) for client in only or CLIENTS]
            if not only:
                checks.append(pool.submit(check_regex, broker, count))
            for check in checks:
                check.result()
        if not only:
            check_static(broker, count)
            check_tool(broker, "new-java", "new-java", 2 * count)
            check_moves(broker, pick(100, 40))
            check_dump(broker)
        status = broker.status()["control"]
        assert status["group_records_bad"] == 0, json.dumps(status)
    print(f"{len(only or CLIENTS)} clients: members share a topic in the new protocol")


if __name__ == "__main__":
    main()
