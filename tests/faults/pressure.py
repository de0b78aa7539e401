#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that press on the limits, through both listeners: thousands of requests unread, requests of one
byte at a time, storms of connections, ends in the middle of answers, thousands of partitions, requests
larger than any window. Each gets what it must; after each a bystander is served, and loans, staging
and connections are back to nothing."""
import os
import threading
import time

from lib.broker import TOP, Broker, pick
from lib.wire import Client, batch

SCRIPT = os.path.join(TOP, "tests/faults/pressure_load.py")
BACK_S = 10
STALL_MS = pick(6000, 3000)  # slow-writers must be done within it
MANY = 300  # topics, as metadata-wide counts them
MANY_CLIENTS = 10000
CLIENT_BYTES = 4096  # resident, of a connection that says nothing: three times what one takes over a DPDK port


def settled(broker, connections):
    """Waits until nothing of the attack is left."""
    deadline = time.monotonic() + BACK_S
    while True:
        status = broker.status()
        now = (status["memory"]["loaned_bytes"], status["memory"]["bytes_staged"],
               sum(core["connections"] for core in status["cores"]))
        if now == (0, 0, connections):
            return
        assert time.monotonic() < deadline, f"left: loaned, staged, connections {now}"
        time.sleep(0.1)


class Resident:
    """The most resident memory of a process above what it had, while this is entered."""

    def __init__(self, pid):
        self.pid, self.most, self.ended = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def now(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    def watch(self):
        before = self.now()
        while not self.ended.wait(0.05):
            self.most = max(self.most, self.now() - before)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def attacks():
    return [("pipeline", pick(10000, 4000)), ("slow-writers", pick(100, 30)),
            ("storm", pick(2000, 400)), ("half-close", pick(100, 5)),
            ("reset-in-fetch", pick(100, 20)), ("fetch-wide", 10000), ("fetch-waiters", pick(300, 150)),
            ("fetch-storm", MANY_CLIENTS), ("many-idle", MANY_CLIENTS), ("metadata-wide", 5000),
            ("produce-wide", pick(5000, 2000)), ("produce-large", pick(90, 40)),
            ("fetch-limits", 0), ("acks-none", 0), ("stagers", 6)]


def attack(broker, bystander, listener, name, size):
    with Resident(broker.pid("millraced")) as resident:
        said = broker.python(listener, SCRIPT, name, str(size), timeout=200).strip()
    if name == "many-idle":
        assert resident.most <= size * CLIENT_BYTES, f"{resident.most} bytes for {size} connections"
    assert bystander.produce("pressed", 0, batch())[0] == 0
    settled(broker, 1)
    return f"{said}, {resident.most >> 10} KiB more resident"


def main(names=None):
    failed = []
    settings = {"hugepages.size.mb": "512", "connection.stall.timeout.ms": str(STALL_MS),
                "num.partitions": "1"}
    with Broker(settings=settings) as broker:
        broker.start()
        broker.millrace("topic", "create", "pressed")
        broker.millrace("topic", "create", "large")
        broker.millrace("topic", "create", "wide", "-p", "50")
        for first in range(0, MANY, 50):  # an answer may say that not all are served yet
            broker.millrace("topic", "create", *(f"many-{first + number}" for number in range(50)),
                            check=False)
        deadline = time.monotonic() + 60
        while broker.status()["log"]["partitions"] < MANY + 52:
            assert time.monotonic() < deadline, broker.status()["log"]
            time.sleep(0.2)
        with Client(broker.address("LOCAL")) as bystander:
            for _ in range(20):
                assert bystander.produce("large", 0, batch([b"v" * 900_000]))[0] == 0
            pid = broker.pid("millraced")
            for listener in broker.listeners():
                for name, size in attacks():
                    if names and name not in names:
                        continue
                    begun = time.monotonic()
                    try:
                        said = attack(broker, bystander, listener, name, size)
                    except AssertionError as fault:
                        said = f"FAILED: {fault}"
                        failed.append(f"{listener} {name}")
                    took = time.monotonic() - begun
                    print(f"{listener} {name} {size}: {took:.1f} s {said}", flush=True)
            assert broker.pid("millraced") == pid, "millraced was restarted"
    assert not failed, failed
    print("every attack got what it must, nothing was left behind")


if __name__ == "__main__":
    import sys
    main(sys.argv[1:])
