#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a log much larger than the arena is written, read at its tail and read from its start at once, and
neither memory nor the tail's readers pay for it.

Method: one topic, an arena of 512 MiB. The log is filled; then a producer with a schedule and a reader of the
tail run, first alone, then beside a reader that takes the log from its first record to where it ended. Measured: resident memory
of millraced beside the arena against the time before the load, pages of the log's files in the page cache (fincore),
bytes that the tail's reader got a second. The cold reader checks that offsets follow each other without a gap.

The tail keeps 80 % of its rate alone: in the reduced run one of several tries has to show it."""
import json
import os
import struct
import subprocess
import threading
import time

from lib.broker import FULL, Broker, pick, run
from lib.wire import Client

ARENA_MB = 512
TOPIC = "large"
TAIL_MB_S = 40
BATCH_BYTES = 65536
RESIDENT_MAX = 64 << 20
CACHED_MAX = 256 << 20
TAIL_LEAST = 0.8
ALONE_S = 4
TRIES = 1 if FULL else 3


class Reader(threading.Thread):
    """Reads one partition from an offset on; until it is stopped, or has read up to `end`."""

    def __init__(self, address, offset, end=None):
        super().__init__(daemon=True)
        self.address, self.offset, self.end = address, offset, end
        self.bytes, self.stop, self.error = 0, False, None

    def run(self):
        try:
            with Client(self.address) as client:
                while not self.stop and (self.end is None or self.offset < self.end):
                    error, _, _, data = client.fetch(TOPIC, 0, self.offset, wait_ms=100)
                    assert error == 0, f"fetch at {self.offset}: error {error}"
                    self.take(data)
        except (AssertionError, OSError) as error:
            self.error = error

    def take(self, data):
        """A first answer may begin below what was asked, within its first batch; an end may be cut."""
        at = 0
        while len(data) - at >= 61:
            base, length = struct.unpack_from(">qi", data, at)
            last = base + struct.unpack_from(">i", data, at + 23)[0]
            if len(data) - at < 12 + length:
                break
            assert base <= self.offset <= last, f"a batch {base}..{last} where {self.offset} was due"
            self.offset = last + 1
            at += 12 + length
        self.bytes += at


def cached_bytes(broker):
    files = [os.path.join(folder, name) for folder, _, names in os.walk(broker.log_dir) for name in names
             if name.endswith((".log", ".index", ".timeindex"))]
    return sum(int(line) for line in
               run("fincore", "--bytes", "--noheadings", "--output", "RES", *files).split()) if files else 0


def resident_bytes(broker):
    """Of millraced, without the arena: hugepages are no part of VmRSS, other kinds would be told as shared."""
    return broker.resident_bytes("millraced")


class Watch(threading.Thread):
    """The most that was seen of memory and page cache."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.broker, self.stop = broker, False
        self.before = resident_bytes(broker)
        self.resident, self.cached, self.looks, self.error = 0, 0, 0, None

    def run(self):
        try:
            while not self.stop:
                self.resident = max(self.resident, resident_bytes(self.broker) - self.before)
                self.cached = max(self.cached, cached_bytes(self.broker))
                self.looks += 1
                time.sleep(0.2)
        except (AssertionError, OSError) as error:
            self.error = error


def bench(broker, *words):
    return subprocess.Popen([os.path.join(broker.build, "millrace"), "bench", "produce", "-b", broker.address("LOCAL"),
                             "-t", TOPIC, "-p", "1", "--record-bytes", "1000", "--batch-bytes", str(BATCH_BYTES),
                             "-o", "json", *map(str, words)], stdout=subprocess.PIPE, text=True)


def fill(broker, size):
    """ret: the offset behind it."""
    load = bench(broker, "--create", "--count", size // BATCH_BYTES, "--warmup", 0)
    got = json.loads(load.communicate(timeout=1200)[0])
    assert load.returncode == 0 and got["errors"] == 0, got
    print(f"filled: {got['bytes_per_s'] / 1e6:.0f} MB/s", flush=True)
    return got["records"]


def rate_over(reader, seconds, until=None):
    begun, before = time.monotonic(), reader.bytes
    while time.monotonic() - begun < seconds or (until and until.is_alive()):
        assert reader.error is None, reader.error
        time.sleep(0.05)
        if until and not until.is_alive():
            break
    return (reader.bytes - before) / (time.monotonic() - begun)


def tail_ratio(broker, end):
    """Tail alone, then beside a full cold read. ret: ratio of its rates."""
    load = bench(broker, "--rate", TAIL_MB_S * 1_000_000 // BATCH_BYTES, "--seconds", 600)
    try:
        time.sleep(1)
        with Client(broker.address("LOCAL")) as client:
            high = client.fetch(TOPIC, 0, end)[1]
        tail = Reader(broker.address("LOCAL"), high)
        tail.start()
        alone = rate_over(tail, ALONE_S)
        cold = Reader(broker.address("LOCAL"), 0, end)
        begun = time.monotonic()
        cold.start()
        beside = rate_over(tail, 0, until=cold)
        took = time.monotonic() - begun
        assert cold.error is None, cold.error
        assert cold.offset >= end, f"the cold reader ended at {cold.offset} of {end}"
        tail.stop = True
        tail.join(timeout=20)
    finally:
        load.kill()
        load.wait()
    print(f"tail {alone / 1e6:.1f} MB/s alone, {beside / 1e6:.1f} beside a cold read of {cold.bytes / 1e6 / took:.0f} MB/s",
          flush=True)
    return beside / alone


def main():
    size = pick(20, 3) * 10 ** 9
    settings = {"hugepages.size.mb": str(ARENA_MB)}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        watch = Watch(broker)
        watch.start()
        end = fill(broker, size)
        ratio = 0
        for _ in range(TRIES):
            ratio = max(ratio, tail_ratio(broker, end))
            if ratio >= TAIL_LEAST:
                break
        watch.stop = True
        watch.join(timeout=20)
        assert watch.error is None and watch.looks > 10 and watch.cached > 0, (watch.error, watch.looks)
        memory = broker.status()["memory"]
        print(f"resident +{watch.resident >> 20} MiB, cached {watch.cached >> 20} MiB, tail keeps {ratio:.2f}")
        assert memory["arena_bytes"] <= (ARENA_MB + 64) << 20, memory
        assert watch.resident <= RESIDENT_MAX, f"resident memory grew by {watch.resident >> 20} MiB"
        assert watch.cached <= CACHED_MAX, f"{watch.cached >> 20} MiB of log files lie in the page cache"
        assert ratio >= TAIL_LEAST, f"the tail's reader keeps {ratio:.2f} of its rate alone"
    print(f"{size // 10 ** 9} GB beside an arena of {ARENA_MB} MiB: resident +{watch.resident >> 20} MiB, page cache "
          f"{watch.cached >> 20} MiB, the tail keeps {ratio:.2f}")


if __name__ == "__main__":
    main()
