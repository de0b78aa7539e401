#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Goal: millrace topic, group, config, produce and consume do the same to an Apache Kafka 4.4 broker as to Millrace,
and tell bad input. Method: one list of calls, made at both; Kafka is the one that tests/measure starts."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from lib.broker import Broker, free_port, wait
from measure.kafka import Kafka

FINE, FAILED, USAGE = 0, 1, 2
TIME_MS = 1500000000000


class Command:
    """The program at one broker."""

    def __init__(self, program, address):
        self.program = program
        self.address = address

    def words(self, *words):
        return [self.program, *words, "-b", self.address]

    def call(self, *words, code=FINE, say="", **kwargs):
        """Standard output; `say` must stand in standard error."""
        done = subprocess.run(self.words(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False, **kwargs)
        assert done.returncode == code and say in done.stderr, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def rows(self, *words, code=FINE, say=""):
        return json.loads(self.call(*words, "-o", "json", code=code, say=say))


def check_topics(command):
    rows = command.rows("topic", "create", "one", "two", "-p", "2", "--config", "retention.ms=100000")
    assert rows == [{"name": name, "done": True, "error": None, "message": None} for name in ("one", "two")], rows
    rows = command.rows("topic", "create", "one", code=FAILED, say="(TOPIC_ALREADY_EXISTS)")
    assert [(row["done"], row["error"]) for row in rows] == [(False, "TOPIC_ALREADY_EXISTS")], rows
    assert command.rows("topic", "create", "one", "--if-not-exists")[0]["done"] is False
    assert command.call("topic", "create", "three").strip() == "created three"
    for words, code, say in ((("dup", "dup"), FAILED, "(INVALID_REQUEST)"), (("bad", "-r", "3"), FAILED, "REPLICATION"),
                             (("bad", "--config", "nope=1"), FAILED, "(INVALID_CONFIG)"),
                             (("bad", "--config", "nope"), USAGE, "KEY=VALUE"), (("bad", "-p", "0"), USAGE, "-p"),
                             (("a b",), FAILED, "(TOPIC_EXCEPTION)")):
        command.call("topic", "create", *words, code=code, say=say)
    rows = command.rows("topic", "add-partitions", "one", "nothere", "-p", "3", code=FAILED, say="nothere: ")
    assert {row["name"]: row["done"] for row in rows} == {"one": True, "nothere": False}, rows
    command.call("topic", "add-partitions", "one", "-p", "2", code=FAILED, say="(INVALID_PARTITIONS)")
    command.call("topic", "add-partitions", "one", code=USAGE, say="-p is missing")
    wait("the topics have other partitions", lambda: {
        row["name"]: row["partitions"] for row in command.rows("topic", "list") if not row["name"].startswith("__")
    } == {"one": 3, "two": 2, "three": 1})
    described = command.rows("topic", "describe", "one", "nothere", code=FAILED, say="nothere: ")[0]
    assert [(row["partition"], row["replicas"], row["isr"], row["state"]) for row in described["partitions"]] == \
        [(number, [1], [1], "ok") for number in range(3)], described["partitions"]
    lines = [line.split() for line in command.call("topic", "describe", "one").splitlines()]
    assert lines[1:3] == [["partition", "leader", "replicas", "isr", "start", "end", "state"],
                          ["0", "1", "1", "1", "0", "0", "ok"]], lines[:4]
    rows = command.rows("topic", "delete", "two", "nothere", code=FAILED, say="(UNKNOWN_TOPIC_OR_PART)")
    assert {row["name"]: row["done"] for row in rows} == {"two": True, "nothere": False}, rows
    command.call("topic", "delete", "nothere", "--if-exists")
    command.call("topic", "list", "-o", "xml", code=USAGE, say="table or json")
    command.call("topic", "list", "-X", "nope=1", code=USAGE, say="nope")


def check_records(command):
    """Into a topic and out of it, from everywhere; nothing but a producer creates a topic."""
    command.call("produce", "-t", "one", "-p", "0", input="".join(f"{number}\n" for number in range(10)))
    command.call("produce", "-t", "one", "-p", "1", "-f", "%T %k %s\\n", "-H", "a=b",
                 input=f"{TIME_MS} k0 v0\n{TIME_MS + 10} k1 v1\n")
    for words, code, say in ((("-p", "99"), FAILED, "Unknown partition"), (("-z", "lz5"), USAGE, "lz5"),
                             (("-H", "name"), USAGE, "NAME=VALUE"), (("-f", "%q"), USAGE, "unknown field"),
                             (("-f", "%s", "-K", ":"), USAGE, "not both"), (("--acks", "2"), USAGE, "--acks")):
        command.call("produce", "-t", "one", *words, input="x\n", code=code, say=say)
    assert command.call("consume", "-t", "one", "-e", "-p", "1", "-f", "%t %p %o %T %k %s %h|") == \
        f"one 1 0 {TIME_MS} k0 v0 a=b|one 1 1 {TIME_MS + 10} k1 v1 a=b|"
    assert command.call("consume", "-t", "one", "-e", "-p", "1", "-o", f"@{TIME_MS + 1}") == "v1\n"
    assert json.loads(command.call("consume", "-t", "one", "-p", "1", "-c", "1", "-J")) == {
        "topic": "one", "partition": 1, "offset": 0, "timestamp": TIME_MS, "key": "k0", "value": "v0",
        "value_size": 2, "headers": [{"name": "a", "value": "b"}]}
    assert command.rows("topic", "trim", "one", "-p", "0", "--before", "6") == [
        {"topic": "one", "partition": 0, "start": 6}]
    command.call("topic", "trim", "one", "-p", "0", "--before", "100", code=FAILED, say="(OFFSET_OUT_OF_RANGE)")
    command.call("topic", "trim", "one", code=USAGE, say="--before")
    # What is gone is not a reason to skip what is there.
    for offset, say in (("0", "from 6"), ("-100", ""), ("6", "")):
        assert command.call("consume", "-t", "one", "-e", "-p", "0", "-o", offset, say=say) == "6\n7\n8\n9\n", offset
    assert command.call("consume", "-t", "one", "-e", "-p", "0", "-o", "-1") == "9\n"
    assert command.call("consume", "-t", "one", "-e", "-p", "0", "-o", "11", say="from 10") == ""
    for words, code, say in ((("-o", "@-1"), USAGE, "-o needs"), (("-o", "x"), USAGE, "-o needs"),
                             (("-p", "9"), FAILED, "partitions 0 to 2"), (("-J", "-f", "%s"), USAGE, "not both"),
                             (("--group", "g", "-o", "@1"), USAGE, "group reset"),
                             (("--group", "g", "-p", "1"), USAGE, "group gives")):
        command.call("consume", "-t", "one", "-e", *words, code=code, say=say)
    for words in (("topic", "trim", "nothere", "--before", "end"), ("topic", "describe", "nothere"),
                  ("consume", "-t", "nothere", "-e"), ("consume", "-t", "nothere", "-e", "--group", "g"),
                  ("group", "reset", "g", "-t", "nothere", "--to", "end"), ("config", "describe", "-t", "nothere"),
                  ("topic", "alter", "nothere", "--config", "retention.ms=1")):
        command.call(*words, code=FAILED, say="nothere")
    time.sleep(0.2)
    assert "nothere" not in [row["name"] for row in command.rows("topic", "list")]


def check_groups(command):
    def committed(group="g1"):
        return {row["partition"]: (row["committed"], row["lag"])
                for row in command.rows("group", "describe", group)[0]["offsets"]}

    got = command.call("consume", "-t", "one", "--group", "g1", "-e", "-f", "%p:%s ").split()
    assert sorted(got) == ["0:6", "0:7", "0:8", "0:9", "1:v0", "1:v1"], got
    assert {"name": "g1", "state": "Empty", "type": "Classic"}.items() <= {
        key: value.capitalize() if key == "type" else value
        for key, value in next(row for row in command.rows("group", "list") if row["name"] == "g1").items()}.items()
    assert committed() == {0: (10, 0), 1: (2, 0)}, committed()
    rows = command.rows("group", "reset", "g1", "--to", "beginning", "--dry-run")
    assert [(row["partition"], row["from"], row["to"]) for row in rows] == [(0, 10, 6), (1, 2, 0)], rows
    assert committed() == {0: (10, 0), 1: (2, 0)}, committed()
    for to, want in (("beginning", (6, 0)), ("+9223372036854775807", (10, 2)), ("-3", (7, 0)), ("8", (8, 2)),
                     (f"@{TIME_MS + 5}", (6, 1)), ("end", (10, 2)), ("-9223372036854775808", (6, 0))):
        rows = command.rows("group", "reset", "g1", "--to", to)
        assert tuple(row["to"] for row in rows) == want, (to, rows)
        assert committed() == {0: (want[0], 10 - want[0]), 1: (want[1], 2 - want[1])}, (to, committed())
    command.call("group", "reset", "new", "--to", "end", "-t", "one", "-p", "1")
    assert committed("new") == {1: (2, 0)}
    for words, code, say in ((("g1",), USAGE, "--to is missing"), (("g1", "--to", "soon"), USAGE, "soon"),
                             (("g1", "--to", "@-1"), USAGE, "@-1"), (("g1", "new", "--to", "1"), USAGE, "one group"),
                             (("g1", "--to", "99999999999999999999"), USAGE, "9999"),
                             (("g1", "--to", "1", "-p", "x"), USAGE, "-p"), (("none", "--to", "1"), FAILED, "-t")):
        before = committed()
        command.call("group", "reset", *words, code=code, say=say)
        assert committed() == before, words
    command.call("group", "describe", "none", code=FAILED, say="no such group")
    rows = command.rows("group", "delete", "new", "none", code=FAILED, say="(GROUP_ID_NOT_FOUND)")
    assert {row["name"]: row["done"] for row in rows} == {"new": True, "none": False}, rows
    assert command.call("group", "delete", "g1").strip() == "deleted g1"


def check_members(command):
    """A group with a member: its offsets are its own."""
    member = subprocess.Popen(command.words("consume", "-t", "one", "--group", "held"), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        wait("the member has nothing", lambda: any(
            row["name"] == "held" and row["state"] == "Stable" for row in command.rows("group", "list")), 60)
        wait("nothing is committed", lambda: all(row["lag"] == 0 for row in
             command.rows("group", "describe", "held")[0]["offsets"] if row["partition"] == 0), 30)
        described = command.rows("group", "describe", "held")[0]
        assert len(described["members"]) == 1 and len(described["members"][0]["partitions"]) == 3, described
        command.call("group", "reset", "held", "--to", "beginning", code=FAILED, say="has members")
        command.call("group", "delete", "held", code=FAILED, say="NON_EMPTY_GROUP")
    finally:
        member.terminate()
        _, said = member.communicate(timeout=30)
    assert member.returncode == 0 and "consumed and committed 6 records" in said, said


def check_settings(command):
    def told(*words):
        return {row["name"]: (row["value"], row["source"]) for row in command.rows("config", *words)}

    topic = ("-t", "three")
    assert told("alter", *topic, "--config", "retention.ms=5", "--config", "segment.ms=60000") == {
        "retention.ms": ("5", "topic"), "segment.ms": ("60000", "topic")}
    assert told("alter", *topic, "--default", "retention.ms")["retention.ms"][1] == "default"
    assert told("describe", *topic, "segment.ms") == {"segment.ms": ("60000", "topic")}
    assert "segment.ms" in told("describe", *topic) and "retention.ms" not in told("describe", *topic)
    assert "retention.ms" in told("describe", *topic, "--all")
    for words, code, say in ((("--default", "retention.m"), FAILED, "no setting retention.m"),
                             (("--config", "nope=1"), FAILED, "(INVALID_CONFIG)"),
                             (("--config", "retention.ms=-7"), FAILED, "(INVALID_CONFIG)"),
                             (("--config", "retention.ms"), USAGE, "KEY=VALUE"), ((), USAGE, "give --config"),
                             (("--config", "a=1", "--broker", "1"), USAGE, "whose settings")):
        command.call("config", "alter", *topic, *words, code=code, say=say)
    command.call("config", "describe", *topic, "nope", code=FAILED, say="no setting nope")
    # Many at once: each changes its own setting and no other.
    names = ("retention.bytes", "retention.ms", "segment.bytes", "max.message.bytes", "delete.retention.ms", "flush.ms",
             "index.interval.bytes", "file.delete.delay.ms")
    several = [subprocess.Popen(command.words("topic", "alter", "three", "--config", f"{name}=2097152"),
                                stdout=subprocess.DEVNULL) for name in names]
    assert [one.wait(60) for one in several] == [FINE] * len(names)
    wait("all are altered", lambda: {**dict.fromkeys(names, ("2097152", "topic")),
                                     "segment.ms": ("60000", "topic")}.items() <= told("describe", *topic).items())
    # The answer is what holds, also where the broker takes over later what it acknowledged.
    for one, source in ((("--broker", "1"), "broker"), (("--broker", "default"), "cluster")):
        name = "log.cleaner.backoff.ms"
        assert told("alter", *one, "--config", f"{name}=500") == {name: ("500", source)}
        assert told("describe", *one)[name] == ("500", source)
        assert told("alter", *one, "--default", name).get(name, ("", ""))[1] != source
        command.call("config", "alter", *one, "--config", "log.dirs=/tmp", code=FAILED, say="log.dirs")
    for words, code, say in ((("--broker", "9"), FAILED, "no broker 9"), (("--broker", "x"), USAGE, "--broker"),
                             ((), USAGE, "whose settings")):
        begun = time.monotonic()
        command.call("config", "describe", *words, code=code, say=say)
        assert time.monotonic() - begun < 10, words
    group = ("--group", "configured")
    assert told("alter", *group, "--config", "consumer.session.timeout.ms=50000") == {
        "consumer.session.timeout.ms": ("50000", "group")}
    assert told("alter", *group, "--default", "consumer.session.timeout.ms")[
        "consumer.session.timeout.ms"][1] != "group"
    command.call("config", "alter", *group, "--config", "nope=1", code=FAILED, say="(INVALID_CONFIG)")


class Silence:
    """Nobody there: each command says whom it asks, and ends, while the others are tried. Use it in a with statement."""

    def __init__(self, program):
        self.address = f"127.0.0.1:{free_port()}"
        command = Command(program, self.address)
        self.several = [subprocess.Popen(command.words(*words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, text=True)
                        for words in (("topic", "list"), ("topic", "create", "x"), ("group", "list"),
                                      ("group", "delete", "x"), ("config", "describe", "-t", "x"),
                                      ("consume", "-t", "x"), ("consume", "-t", "x", "--group", "g"),
                                      ("produce", "-t", "x", "--timeout", "3"))]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.several:
            if one.poll() is None:
                one.kill()
                one.wait()

    def check(self):
        for one in self.several:
            _, said = one.communicate(timeout=60)
            assert one.returncode == FAILED and f"no answer from {self.address} within" in said, (one.args, said)


def check(name, program, address):
    begun = time.monotonic()
    command = Command(program, address)
    for part in (check_topics, check_records, check_groups, check_members, check_settings):
        part(command)
    print(f"{name}: topics, records, groups, a member and settings in {time.monotonic() - begun:.1f} s")


def main():
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "true"}
    with Broker(nic=False, settings=settings) as broker:
        program = os.path.join(broker.build, "millrace")
        with Silence(program) as silence:
            broker.start()
            check("Millrace", program, broker.address("LOCAL"))
            with Kafka("/tmp", settings) as kafka:
                check("Kafka", program, kafka.start().address())
            silence.check()


if __name__ == "__main__":
    main()
