#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The start after a kill with two log directories, one on a slow disk: the directories are loaded beside each other,
what is loaded is served while the rest answers a retriable error, the progress is told and counted, and in the end
everything is there. After a clean end the same start reads next to nothing."""
import contextlib
import os
import time

from lib.broker import Broker
from lib.fault_disk import FaultDisk
from lib.wire import Client, batch
from power_cut import power_off

TOPIC = "loaded"
PARTITIONS = 8
BATCHES = 12
VALUE = b"v" * 100_000
NOT_LEADER = 6
API_VERSIONS = 18
DELAY_MS = 400
WAIT_S = 30


def partitions_in(folder):
    return sorted(int(name.rsplit("-", 1)[1]) for name in os.listdir(folder) if name.startswith(TOPIC + "-"))


def fill(broker):
    with Client(broker.address("LOCAL")) as client:
        for partition in range(PARTITIONS):
            for number in range(BATCHES):
                error, base, _, _ = client.produce(TOPIC, partition, batch([VALUE]))
                assert (error, base) == (0, number)


def whole(broker):
    with Client(broker.address("LOCAL"), timeout=WAIT_S) as client:
        for partition in range(PARTITIONS):
            assert client.end_offset(TOPIC, partition)[2] >= BATCHES
            for number in range(BATCHES):
                error, _, _, records = client.fetch(TOPIC, partition, number, max_bytes=150_000)
                assert error == 0 and VALUE in records, (partition, number, error)


def connect(broker):
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            client = Client(broker.address("LOCAL"), timeout=WAIT_S)
            # The killed process's socket may take connections for a moment, until its ring is gone.
            client.ask(API_VERSIONS, 0, b"")
            return client
        except ConnectionError:
            assert time.monotonic() < deadline and broker.process.poll() is None
            time.sleep(0.05)


def while_loading(broker, fast, slow):
    """The fast directory's partitions take records before the slow one's do; those say that they are not ready."""
    with contextlib.closing(connect(broker)) as client:
        deadline = time.monotonic() + WAIT_S
        left = set(fast)
        while left:
            partition = min(left)
            error = client.produce(TOPIC, partition, batch([b"early"]))[0]
            assert error in (0, 3, NOT_LEADER), error
            left -= {partition} if error == 0 else set()
            assert time.monotonic() < deadline, f"not loaded: {left}"
        errors = [client.produce(TOPIC, partition, batch([b"early"]))[0] for partition in slow]
        assert NOT_LEADER in errors and set(errors) <= {0, NOT_LEADER}, errors
        loading = broker.status()["log"]["loading"]
        assert len(fast) <= loading["loaded"] < loading["partitions"] == PARTITIONS, loading


def bytes_read(disks):
    return [disk.counters()["bytes_read"] for disk in disks]


def main():
    with FaultDisk(1) as quick, FaultDisk(2) as slow, Broker(nic=False, settings={
            "log.dirs": f"{quick.dir('a')},{slow.dir('b')}"}) as broker:
        with open(broker.config, "a", encoding="utf-8") as out:
            out.write(f"metadata.dir={broker.home}/meta\n")
        broker.start()
        broker.millrace("topic", "create", TOPIC, "-p", str(PARTITIONS))
        on_quick = partitions_in(quick.dir("a"))
        on_slow = partitions_in(slow.dir("b"))
        assert len(on_quick) == len(on_slow) == PARTITIONS // 2
        fill(broker)
        broker.wait_written()
        power_off(broker)
        # Nothing was cut: the files are whole, and nobody says so.
        slow.order(f"delay read /b/{TOPIC}-*.log {DELAY_MS}")
        begun = time.monotonic()
        broker.launch()
        while_loading(broker, on_quick, on_slow)
        early_s = time.monotonic() - begun
        broker.await_ready(120)
        all_s = time.monotonic() - begun
        slow.order("clear")
        text = broker.log_text()
        assert "store.loading" in text or "store.loaded" in text or all_s < 5, "no progress was told"
        loading = broker.status()["log"]["loading"]
        assert loading["loaded"] == PARTITIONS and loading["bytes"] > PARTITIONS * BATCHES * len(VALUE), loading
        whole(broker)
        assert broker.stop(timeout=30)[0] == 0
        before = bytes_read((quick, slow))
        broker.start()
        read = [now - then for now, then in zip(bytes_read((quick, slow)), before)]
        assert max(read) < 200_000 * PARTITIONS, f"a clean start read {read} bytes"
        assert broker.status()["log"]["loading"]["bytes"] == 0
        whole(broker)
    print(f"half of the partitions served after {early_s:.1f} s, all after {all_s:.1f} s; clean start: {read} bytes read")


if __name__ == "__main__":
    main()
