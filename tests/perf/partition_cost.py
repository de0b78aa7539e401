#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: partitions are cheap. Ten thousand idle ones take less than 4 KiB each of arena and processes together,
and are made and served in a moment; ten thousand active ones take records nearly as fast as one.

Method: a topic of 10,000 partitions on an arena of 512 MiB; memory of all processes and of the arena before and
after, when nothing is written; then the same load, batches of 16 KiB, to one partition and to all of them in turn, on
a log on tmpfs. The rate's goal is asked for in full, of the medians of five alternating rounds; the reduced run shows
it, and asks that the many take at least a third of the one's rate in one of several tries."""
import json
import os
import shutil
import statistics
import tempfile
import time

from lib.broker import FULL, PREFIX, Broker, pick, run
from lib.wire import Client, batch

ARENA_MB = 512
COUNT = 10000
BYTES_MAX = 4096
MARK_BYTES = 64  # of the arena's tables
SERVED_S = 60
BATCH_BYTES = 16384
RATE_LEAST = 0.9 if FULL else 1 / 3
ROUNDS = 5 if FULL else 3
SETTLE_S = 5  # until extents of an idle partition are given back
PROCESSES = ("supervisor", "millraced", "control")


def memory(broker):
    return sum(broker.resident_bytes(name) for name in PROCESSES) + broker.status()["memory"]["arena_used_bytes"]


def await_served(broker, topic):
    """Every partition: a produce of one record to each of them would make them active, so their ends are asked for."""
    limit = time.monotonic() + SERVED_S
    with Client(broker.address("LOCAL"), timeout=30) as client:
        for partition in range(COUNT):
            while client.end_offset(topic, partition)[0] != 0:
                assert time.monotonic() < limit, f"partition {partition} is not served after {SERVED_S} s"
                time.sleep(0.05)


def idle(broker):
    before = memory(broker)
    begun = time.monotonic()
    broker.millrace("topic", "create", "many", "-p", str(COUNT))
    await_served(broker, "many")
    took = time.monotonic() - begun
    time.sleep(SETTLE_S)
    each = (memory(broker) - before) / COUNT + MARK_BYTES
    print(f"{COUNT} partitions served after {took:.1f} s, {each:.0f} bytes each", flush=True)
    assert each < BYTES_MAX, f"an idle partition takes {each:.0f} bytes"
    return each, took


def rate(broker, topic, partitions, batches):
    got = json.loads(run(os.path.join(broker.build, "millrace"), "bench", "produce", "-b", broker.address("LOCAL"),
                         "-t", topic, "-p", str(partitions), "--batch-bytes", str(BATCH_BYTES), "--count", str(batches),
                         "-o", "json"))
    assert got["errors"] == 0, got
    return got["bytes_per_s"]


def active(broker):
    batches, rounds = pick(50000, 20000), []
    room = shutil.disk_usage("/dev/shm").free
    assert room > 3 * ROUNDS * batches * BATCH_BYTES, f"/dev/shm has {room >> 20} MiB free"
    with Client(broker.address("LOCAL")) as client:
        for partition in (0, COUNT - 1):
            assert client.produce("many", partition, batch())[0] == 0
    for _ in range(ROUNDS):
        rounds.append((rate(broker, "one", 1, batches), rate(broker, "many", COUNT, batches)))
        print(f"one partition {rounds[-1][0] / 1e6:.0f} MB/s, {COUNT} of them {rounds[-1][1] / 1e6:.0f} MB/s", flush=True)
    if FULL:
        one, many = (statistics.median(rates) for rates in zip(*rounds))
        share = many / one
    else:
        share = max(many / one for one, many in rounds)
    assert share >= RATE_LEAST, f"{COUNT} partitions take {share:.2f} of one's rate"
    return share


def main():
    folder = tempfile.mkdtemp(prefix=PREFIX + "data-", dir="/dev/shm")
    try:
        settings = {"hugepages.size.mb": str(ARENA_MB), "log.dirs": os.path.join(folder, "log")}
        with Broker(nic=False, settings=settings) as broker:
            broker.start()
            broker.millrace("topic", "create", "one", "-p", "1")
            each, took = idle(broker)
            share = active(broker)
            broker.stop(timeout=120)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{COUNT} partitions: {each:.0f} bytes each, served after {took:.1f} s; active they take {share:.2f} of one's rate")


if __name__ == "__main__":
    main()
