#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: Kafka's own DumpLogSegments finds nothing wrong in our files.

Method: idempotent producers of librdkafka write all codecs into segments that roll often; a topic is deleted
meanwhile; millraced is killed once in between, and the broker stops cleanly in the end. Then Kafka 4.4's tool
reads every segment deeply, checks every index in both of its ways, and every producer snapshot. Two files are
damaged at last, and the tool must see it. Transactions: dump_txn.py."""
import glob
import os
import re
import subprocess

import dump_txn
from lib.broker import TOP, Broker, pick

JARS = os.path.join(TOP, "build/clients/java/lib")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1 << 20
FILES_PER_RUN = 60
# What the tool says of a file that is not as it should be. It takes -1 for the offset before each file, so
# that any file but a log's first "has a gap" at its first record.
WRONG = re.compile(r"mismatch|not valid|invalid|trailing|corrupt|exception|out of order|isvalid: false|"
                   r"^ *[0-9]+ is followed by|Found .*(timestamp|offset)|Index offset", re.I)


def dump(files, *options):
    """The tool's lines over some files."""
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*",
               "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=600, check=False)
    return done.stdout.splitlines() + [f"Exception: exit {done.returncode}"] * (done.returncode != 0)


def faults(files, *options):
    """Lines of the tool that tell a fault, over any number of files."""
    found = []
    for at in range(0, len(files), FILES_PER_RUN):
        found += [line for line in dump(files[at:at + FILES_PER_RUN], *options) if WRONG.search(line)]
    return found


def produce(broker, topic, codec, total):
    script = os.path.join(TOP, "tests/clients/rdkafka_check.py")
    broker.python("LOCAL", script, topic, codec, str(total), timeout=1800)


def make_log(total):
    """Runs the broker. Returns it, stopped; its files are there until it is closed."""
    broker = Broker(nic=False, settings={"log.segment.bytes": str(SEGMENT_BYTES)})
    broker.start()
    for codec in CODECS[:3]:
        produce(broker, f"dump-{codec}", codec, total)
    produce(broker, "dump-deleted", "lz4", total // 4)
    broker.wait_restart("millraced", broker.kill("millraced"))
    broker.millrace("topic", "delete", "dump-deleted", "-b", broker.address("LOCAL"))
    for codec in CODECS[3:]:
        produce(broker, f"dump-{codec}", codec, total)
    code, _ = broker.stop()
    assert code == 0, code
    return broker


def files_of(broker, kind):
    return sorted(glob.glob(os.path.join(broker.log_dir, "dump-*", "*." + kind)))


def check(broker):
    """Nothing is wrong in any file. Returns how many there are of each kind."""
    logs = files_of(broker, "log")
    assert len(logs) > 20, logs
    assert not glob.glob(os.path.join(broker.log_dir, "dump-deleted*"))
    assert os.path.exists(os.path.join(broker.log_dir, ".kafka_cleanshutdown"))
    wrong = faults(logs, "--deep-iteration")
    indexes = [path for kind in ("index", "timeindex") for path in files_of(broker, kind)
               if os.path.getsize(path) > 0]
    wrong += faults(indexes, "--verify-index-only") + faults(indexes, "--index-sanity-check")
    snapshots = files_of(broker, "snapshot")
    wrong += faults(snapshots)
    assert not wrong, "\n".join(wrong[:20])
    lines = [line for line in dump(snapshots[-1:]) if "producerId" in line]
    assert len(lines) >= 1, "no producer in the newest snapshot"
    return len(logs), len(indexes), len(snapshots)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes((byte[0] ^ 1,)))


def check_tool_sees(broker):
    log = files_of(broker, "log")[0]
    index = next(path for path in files_of(broker, "index") if os.path.getsize(path) > 0)
    flip(log, os.path.getsize(log) // 2)
    assert faults([log], "--deep-iteration"), "a flipped bit in a log was not seen"
    flip(index, 3)
    assert faults([index], "--verify-index-only"), "a flipped bit in an index was not seen"
    snapshot = files_of(broker, "snapshot")[0]
    flip(snapshot, os.path.getsize(snapshot) - 1)
    assert faults([snapshot]), "a flipped bit in a snapshot was not seen"


def main():
    total = pick(256 << 20, 8 << 20)
    broker = make_log(total)
    with broker:
        logs, indexes, snapshots = check(broker)
        check_tool_sees(broker)
    print(f"{logs} segments, {indexes} indexes and {snapshots} snapshots: nothing wrong")
    logs, aborted = dump_txn.check(dump, faults)
    print(f"{logs} segments with {aborted} aborted transactions: nothing wrong")


if __name__ == "__main__":
    main()
