#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the consumer groups of real clients work as with Kafka: members share a topic, each record is read, and
what was committed is where the next member begins; Kafka's own tool lists, describes, resets and deletes them.

Method: for each client two members of one group read a topic together and leave; then new records come, and one
member of the same group must read exactly these. Members stop when nothing came for a while. The committed
offsets are read by a client of our own and by ConsumerGroupCommand. A static member (confluent, aiokafka,
franz-go) leaves and comes back without a rebalance."""
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys

from lib.broker import FULL, TOP, Broker, pick, run, skip

JARS = os.path.join(TOP, "build/clients/java/lib")
MEMBER = os.path.join(TOP, "tests/clients/group_member.py")
NEWEST = os.path.join(TOP, "build/clients/venv/bin/python3")
GO = os.path.join(TOP, "build/clients/go/group")
NODE = os.path.join(TOP, "tests/clients/node/group.js")
MODULES = os.path.join(TOP, "build/clients/node/node_modules")
PARTITIONS = 4
IDLE_S = 3
AT_ONCE = 4  # clients that wait most of their time
LIMIT_S = 120

# Name, and the command of a member: ADDRESS TOPIC GROUP IDLE_S follow.
PYTHON = ("/usr/bin/python3", "-B", MEMBER)
CLIENTS = {
    "confluent": (*PYTHON, "confluent"),
    "kafka-python": (*PYTHON, "kafka-python"),
    "newest-confluent": (NEWEST, "-B", MEMBER, "confluent"),
    "aiokafka": (NEWEST, "-B", MEMBER, "aiokafka"),
    "franz-go": (GO,),
    "kafkajs": ("node", NODE),
}
STATIC = ("newest-confluent", "aiokafka", "franz-go")


def start(broker, listener, client, topic, group, instance=None, protocol=None, idle_s=IDLE_S):
    if client == "kcat":
        command = ["kcat", "-b", broker.address(listener), "-q", "-G", group, "-X", "auto.offset.reset=earliest",
                   "-X", "session.timeout.ms=10000", "-e", topic]
    elif client == "java":
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*",
                   "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.address(listener),
                   "--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", str(idle_s * 2000)]
        command += ["--command-property", f"group.protocol={protocol}"] if protocol else []
    else:
        command = [*CLIENTS[client], broker.address(listener), topic, group, str(idle_s)]
    environment = dict(os.environ, NODE_PATH=MODULES, GROUP_INSTANCE=instance or "", GROUP_PROTOCOL=protocol or "")
    return subprocess.Popen([*broker.inside(listener), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=environment)


def finish(member, client):
    out, wrong = member.communicate(timeout=LIMIT_S)
    # The console consumer says by its exit code that it stopped because nothing came.
    assert member.returncode == 0 or client == "java", f"{client}: exit {member.returncode}\n{wrong[-3000:]}"
    return out.split()


def produce(broker, topic, first, count):
    values = [str(number) for number in range(first, first + count)]
    run("kcat", "-b", broker.address("LOCAL"), "-q", "-P", "-t", topic, input="\n".join(values) + "\n")
    return values


def check_client(broker, listener, client, count):
    topic = f"{client}-{listener.lower()}"
    group = f"group-of-{topic}"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    first = produce(broker, topic, 0, count)
    members = [start(broker, listener, client, topic, group) for _ in range(2)]
    got = [finish(member, client) for member in members]
    # A rebalance in the middle may give a record to both.
    assert set(got[0]) | set(got[1]) == set(first), f"{client}: {len(set(got[0]) | set(got[1]))} of {count}"
    second = produce(broker, topic, count, count)
    again = finish(start(broker, listener, client, topic, group), client)
    assert sorted(again) == sorted(second), f"{client}: {len(again)} values after the first {count}"
    print(f"{listener} {client}: {len(got[0])} and {len(got[1])} of {count}, then {len(again)}")


def rebalances(broker):
    return broker.status()["control"]["group_rebalances"]


def check_static(broker, client, count):
    """The second time the member takes its old place: the generation stays."""
    topic = f"static-{client}"
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    produce(broker, topic, 0, count)
    finish(start(broker, "LOCAL", client, topic, topic, instance="one"), client)
    before = rebalances(broker)
    more = produce(broker, topic, count, count)
    got = finish(start(broker, "LOCAL", client, topic, topic, instance="one"), client)
    assert sorted(got) == sorted(more), f"{client}: {len(got)} values"
    assert rebalances(broker) == before, f"{client}: {rebalances(broker) - before} rebalances"


# --- Kafka's tool --------------------------------------------------------------------------------

class Command:
    """ConsumerGroupCommand."""

    def __init__(self, broker):
        self.address = broker.address("LOCAL")

    def run(self, *words):
        done = subprocess.run(["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*",
                               "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
                               "--bootstrap-server", self.address, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
        return done.stdout

    def offsets(self, group):
        """partition -> (current, end, lag)"""
        lines = [line.split() for line in self.run("--describe", "--group", group).splitlines()]
        rows = [line for line in lines if line and line[0] == group]
        assert rows, lines
        return {int(row[2]): tuple(int(value) for value in row[3:6]) for row in rows}


def check_tool(broker, group, topic, count):
    command = Command(broker)
    assert group in command.run("--list").split()
    offsets = command.offsets(group)
    assert len(offsets) == PARTITIONS and all(lag == 0 for _, _, lag in offsets.values()), offsets
    assert sum(current for current, _, _ in offsets.values()) == count, offsets
    state = command.run("--describe", "--group", group, "--state")
    assert "Empty" in state, state
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "3")
    command.run(*reset, "--dry-run")
    assert command.offsets(group) == offsets
    command.run(*reset, "--execute")
    assert all(current == 3 for current, _, _ in command.offsets(group).values())
    deleted = command.run("--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "successful" in deleted.lower(), deleted
    assert 0 not in command.offsets(group)
    assert "successful" in command.run("--delete", "--group", group)
    assert group not in command.run("--list").split()


# --- ours ----------------------------------------------------------------------------------------

def check_command(broker, group, topic, count):
    """millrace group does the same."""
    def ask(*words):
        return json.loads(broker.millrace("group", *words, "-o", "json"))

    def committed():
        return [(row["partition"], row["committed"], row["lag"]) for row in ask("describe", group)[0]["offsets"]]

    assert group in [row["name"] for row in ask("list")]
    assert group in broker.millrace("group", "list")
    before = committed()
    assert len(before) == PARTITIONS and all(lag == 0 for _, _, lag in before), before
    assert sum(offset for _, offset, _ in before) == count, before
    ends = {partition: offset for partition, offset, _ in before}
    rows = ask("reset", group, "--to", "beginning", "--dry-run")
    assert [(row["from"], row["to"]) for row in rows] == [(offset, 0) for _, offset, _ in before], rows
    assert committed() == before
    for to, want in (("beginning", 0), ("+2", 2), ("1", 1), ("-5", 0)):
        rows = ask("reset", group, "--to", to, "-t", topic)
        assert [row["to"] for row in rows] == [want] * PARTITIONS, (to, rows)
        assert committed() == [(partition, want, end - want) for partition, end in sorted(ends.items())]
    ask("reset", group, "--to", "end", "-p", "1")
    assert committed()[1] == (1, ends[1], 0), committed()
    ask("reset", group, "--to", "@1", "-p", "1")
    assert committed()[1][1] == 0
    text = broker.millrace("group", "describe", group)
    assert group in text and topic in text, text
    assert "deleted" in broker.millrace("group", "delete", group)
    assert group not in [row["name"] for row in ask("list")]
    for words in (("describe", group), ("delete", group)):
        assert broker.millrace("group", *words, check=False) == "", words


def check_consume(broker, count):
    """millrace consume --group: members share the topic, and the next one goes on where they committed."""
    topic = group = "consume-in-group"
    command = [os.path.join(broker.build, "millrace"), "consume", "-b", broker.address("LOCAL"), "-t", topic,
               "--group", group]

    def lag():
        rows = json.loads(broker.millrace("group", "describe", group, "-o", "json"))[0]["offsets"]
        return sum(row["lag"] for row in rows)

    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS))
    first = produce(broker, topic, 0, count)
    assert sorted(run(*command, "-e", "--no-commit").split()) == sorted(first)
    members = [subprocess.Popen([*command, "-e"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for _ in range(2)]
    got = [finish(member, "millrace") for member in members]
    assert sorted(got[0] + got[1]) == sorted(first), f"{len(got[0])} and {len(got[1])} of {count}"
    assert lag() == 0
    second = produce(broker, topic, count, count)
    part = run(*command, "-c", "7").split()
    assert len(part) == 7 and set(part) <= set(second) and lag() == count - 7, (part, lag())
    rest = run(*command, "-e", "-f", "%s\\n").split()
    assert sorted(part + rest) == sorted(second), f"{len(rest)} after {len(part)}"
    print(f"millrace consume --group: {len(got[0])} and {len(got[1])} of {count}, then 7 and {len(rest)}")


def check_in_use(broker):
    """A group with members is not deleted."""
    topic = "in-use"
    broker.millrace("topic", "create", topic, "-p", "1")
    produce(broker, topic, 0, 10)
    member = start(broker, "LOCAL", "java", topic, topic)
    try:
        command = Command(broker)
        for _ in range(20):
            if "Stable" in command.run("--describe", "--group", topic, "--state"):
                break
        said = command.run("--delete", "--group", topic)
        assert "not empty" in said or "NonEmpty" in said, said
        described = json.loads(broker.millrace("group", "describe", topic, "-o", "json"))[0]
        assert described["state"] == "Stable" and len(described["members"]) == 1, described
        assert described["offsets"][0]["member"] == described["members"][0]["member"], described
        broker.millrace("group", "reset", topic, "--to", "beginning", check=False)
        assert json.loads(broker.millrace("group", "describe", topic, "-o", "json"))[0] == described
    finally:
        member.kill()
        member.communicate()


def dump(broker):
    """The records of the groups as Kafka's dump tool decodes them, all of them; lines."""
    broker.wait_written()
    files = [name for name in glob.glob(os.path.join(broker.log_dir, "__consumer_offsets-*", "*.log"))
             if os.path.getsize(name) > 0]
    assert files
    done = subprocess.run(["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*",
                           "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--deep-iteration",
                           "--files", ",".join(files)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S, check=False)
    records = [line for line in done.stdout.splitlines() if " key: " in line]
    assert done.returncode == 0 and records, done.stdout[-3000:]
    odd = [line for line in records if not re.search(r' key: \{"type":"\d+","data":\{"group(Id)?":', line)]
    odd += [line for line in done.stdout.splitlines() if "isvalid: false" in line or "xception" in line]
    assert not odd, odd[:5]
    return records


def check_dump(broker):
    """Kafka's dump tool decodes every record of the groups."""
    records = dump(broker)
    kinds = {re.search(r'"type":"?(\w+)', line)[1] for line in records}
    assert len(kinds) == 2, kinds
    assert any('payload: {"version":"3","data":{"offset":' in line for line in records), records[:5]
    assert any('payload: {"version":"3","data":{"protocolType":' in line for line in records), records[:5]
    print(f"DumpLogSegments decoded {len(records)} records of __consumer_offsets")


def main():
    missing = [path for path in (JARS, NEWEST, GO, MODULES) if not os.path.exists(path)]
    if missing:
        skip(f"{' '.join(missing)} is not there: tests/clients/setup")
    count = pick(20000, 400)
    clients = ["kcat", "java", *CLIENTS]
    static = pick(STATIC, STATIC[:1])
    only = sys.argv[1:]
    # A disk that others use may take long to make a topic's folders.
    settings = {"group.initial.rebalance.delay.ms": "500", "control.request.timeout.ms": "10000"}
    with Broker(settings=settings) as broker:
        broker.start()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            checks = [pool.submit(check_client, broker, listener, client, count) for client in only or clients
                      for listener in (broker.listeners() if FULL or client == "kcat" else ("LOCAL",))]
            for check in checks:
                check.result()
        for client in [] if only else static:
            check_static(broker, client, count)
        if not only:
            check_tool(broker, "group-of-kcat-local", "kcat-local", 2 * count)
            check_command(broker, "group-of-kcat-nic", "kcat-nic", 2 * count)
            check_consume(broker, count)
            check_in_use(broker)
            check_dump(broker)
        status = broker.status()["control"]
        assert status["group_records_bad"] == 0 and status["journal_unknown"] == 0, json.dumps(status)
        assert broker.status()["memory"]["loaned_bytes"] == 0
    print(f"{len(only or clients)} clients: members share a topic, and go on where the group was")


if __name__ == "__main__":
    main()
