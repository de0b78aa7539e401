#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: compaction leaves what Kafka's own cleaner leaves of the same records, whatever the codec, a kill in its
middle or a change of the topic's policy at run time; and Kafka's tools find nothing wrong in what it wrote.

Method: kcat writes the same keyed lines, tombstones among them, to our broker and to Kafka 4.4, a part in each
codec, and rolls segments with lines of other keys behind them. Our topic becomes a compacted one only then;
millraced is killed while it compacts. What both serve in the end is compared with each other and with a map.
A second topic is compacted and deleted from.
Then DumpLogSegments reads our files."""
import glob
import json
import os
import random
import subprocess
import time

import dump_log
from lib.broker import Broker, pick, run, skip, wait
from lib.wire import Client
from measure.kafka import JARS, Kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 300
TOPIC = "compacted"
BOTH = "compacted-and-deleted"
SETTINGS = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.001", "file.delete.delay.ms": "500"}
FILLER_BYTES = 900
FILLER_LINES = 3000  # more than two segments of them: what is before is in no active one
LIMIT_S = 90


class Lines:
    """What was written, in order; produces it to any number of brokers alike."""

    def __init__(self, addresses):
        self.addresses = addresses
        self.records = []  # (key, value), None a tombstone
        self.fillers = 0

    def write(self, records, codec):
        text = "".join(f"{key}\t{value or ''}\n" for key, value in records)
        for address in self.addresses:
            subprocess.run(["kcat", "-b", address, "-P", "-t", TOPIC, "-p", "0", "-K", "\t", "-Z", "-z", codec,
                            "-X", "batch.num.messages=700", "-X", "enable.idempotence=true"],
                           input=text, text=True, check=True, timeout=300)
        self.records += records

    def fill(self):
        begin = self.fillers
        self.fillers += FILLER_LINES
        self.write([(f"filler-{i}", f"{i}".ljust(FILLER_BYTES, ".")) for i in range(begin, self.fillers)], "none")

    def last(self, end):
        """Offsets below end of the last record of each key."""
        offsets = {}
        for offset, (key, _) in enumerate(self.records):
            offsets[key] = offset
        return sorted(offset for offset in offsets.values() if offset < end)


def read(address, end):
    """Records below end, by their offsets."""
    text = run("kcat", "-b", address, "-C", "-t", TOPIC, "-p", "0", "-o", "beginning", "-e", "-q", "-f",
               "%o\t%k\t%S\t%s\n", timeout=300)
    found = {}
    for line in text.splitlines():
        offset, key, size, value = line.split("\t", 3)
        if int(offset) < end:
            assert int(offset) not in found, f"offset {offset} twice"
            found[int(offset)] = (key, None if int(size) < 0 else value)
    return found


def await_offsets(address, wanted, end, what):
    """Waits until exactly these offsets are left below end."""
    limit = time.monotonic() + LIMIT_S
    while True:
        found = read(address, end)
        if sorted(found) == wanted:
            return found
        assert set(wanted) <= set(found), f"{what} lost {sorted(set(wanted) - set(found))[:5]}"
        assert time.monotonic() < limit, f"{what}: {len(found)} in place of {len(wanted)} records are left"
        time.sleep(0.5)


def compact_and_delete(broker):
    """A topic of both policies: its oldest segments go by size, what is left is compacted."""
    broker.millrace("topic", "create", BOTH, "--config", "cleanup.policy=compact,delete", "--config",
                    "segment.bytes=1048576", "--config", "min.cleanable.dirty.ratio=0.001", "--config",
                    "retention.bytes=2500000")
    text = "".join(f"key-{i % KEYS if i % 2 else i}\t{str(i).ljust(FILLER_BYTES, '.')}\n" for i in range(6000))
    subprocess.run(["kcat", "-b", broker.address("LOCAL"), "-P", "-t", BOTH, "-p", "0", "-K", "\t"], input=text,
                   text=True, check=True, timeout=300)

    def state():
        got = json.loads(broker.millrace("topic", "describe", BOTH, "-o", "json"))
        return got[0]["partitions"][0]["start"]

    wait("nothing is deleted by size", lambda: state() > 0, 60)
    wait("nothing is compacted", lambda: f"/{BOTH}-0 up to offset" in broker.log_text(), 60)
    with Client(broker.address("LOCAL")) as client:
        error, _, _, data = client.fetch(BOTH, 0, state())
    assert error == 0 and data


def check_files(broker, topic):
    """Kafka's tool reads all of it; only gaps are as they should be."""
    def wrong(paths, *options):
        return [line for line in dump_log.faults(paths, *options) if "is followed by" not in line]

    folder = os.path.join(broker.log_dir, topic + "-0")
    logs = sorted(glob.glob(folder + "/*.log"))
    indexes = [path for kind in ("index", "timeindex") for path in sorted(glob.glob(f"{folder}/*.{kind}"))
               if os.path.getsize(path) > 0]
    assert logs and indexes and not glob.glob(folder + "/*.cleaned") and not glob.glob(folder + "/*.swap")
    found = wrong(logs, "--deep-iteration") + wrong(indexes, "--verify-index-only")
    found += wrong(indexes, "--index-sanity-check") + wrong(sorted(glob.glob(folder + "/*.snapshot")))
    assert not found, "\n".join(found[:20])
    with open(os.path.join(broker.log_dir, "cleaner-offset-checkpoint"), encoding="ascii") as file:
        version, count, *entries = file.read().splitlines()
    assert (version, count) == ("0", str(len(entries))), entries
    offsets = {entry.split()[0]: int(entry.split()[2]) for entry in entries}
    assert offsets.get(topic, 0) > 0, offsets
    return len(logs)


def main():
    if not os.path.isdir(JARS):
        skip("Kafka is not in build/clients: tests/clients/setup")
    total = pick(300000, 40000)
    seed = int(os.environ.get("MILLRACE_SEED", "0")) or random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Broker(nic=False, settings={"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "500"}) as broker, Kafka("/tmp") as kafka:
        with open(kafka.config, "a", encoding="utf-8") as out:
            out.write("log.cleaner.backoff.ms=200\nlog.initial.task.delay.ms=500\n")
        broker.start()
        kafka.start()
        settings = [word for key, value in SETTINGS.items() for word in ("--config", f"{key}={value}")]
        broker.millrace("topic", "create", TOPIC, *settings)
        run(os.path.join(broker.build, "millrace"), "topic", "create", TOPIC, "-b", kafka.address(), *settings,
            "--config", "cleanup.policy=compact")
        lines = Lines([broker.address("LOCAL"), kafka.address()])
        for codec in CODECS:
            lines.write([(f"key-{chance.randrange(KEYS)}",
                          None if chance.random() < 0.2 else f"value-{chance.randrange(10 ** chance.randrange(40))}")
                         for _ in range(total // len(CODECS))], codec)
        end = len(lines.records)
        lines.fill()
        assert len(read(broker.address("LOCAL"), end)) == end, "nothing may go while the policy is delete"
        broker.millrace("topic", "alter", TOPIC, "--config", "cleanup.policy=compact")
        for _ in range(pick(10, 2)):
            time.sleep(chance.random())
            broker.wait_restart("millraced", broker.kill("millraced"))
        wanted = lines.last(end)
        ours = await_offsets(broker.address("LOCAL"), wanted, end, "Millrace")
        theirs = await_offsets(kafka.address(), wanted, end, "Kafka")
        assert ours == theirs == {offset: lines.records[offset] for offset in wanted}
        tombstones = sum(value is None for _, value in ours.values())
        assert 0 < tombstones < len(ours)
        lines.fill()
        ours = await_offsets(broker.address("LOCAL"), wanted, end, "Millrace")  # compacted again
        assert ours == theirs
        log = broker.status()["log"]
        assert log["compactions"] > 0, log
        compact_and_delete(broker)
        code, _ = broker.stop()
        assert code == 0, code
        logs = check_files(broker, TOPIC) + check_files(broker, BOTH)
    print(f"{end} records, {len(wanted)} left, {tombstones} tombstones of them, {logs} segments: as Kafka")


if __name__ == "__main__":
    main()
