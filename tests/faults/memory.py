#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a broker without memory says so or goes on, and loses nothing.

    start     an allocation of a start fails, in each of the three programs: the start serves what is in the log, or
              ends with 1 and its reason; no process ends by a signal
    oom       the kernel kills control for its memory: produce goes on, control comes back with every topic
    pressure  the data plane may keep little in memory beside its arena: it writes and reads on

Method: start by a library that is loaded before the others (no_memory.c) and a sample of all calls, seeded; the others
by a memory control group around one process. Which call of a store or of control does what is in unit/store/memory,
unit/control/memory and sim/groups."""
import mmap
import os
import random
import struct
import sys
import time

from lib import oracle
from lib.broker import BUILD, Broker, alive, pick, wait
from lib.cgroup import MemoryGroup

PROGRAMS = ("millrace-supervisor", "millraced", "millrace-control")
LIBRARY = os.path.join(BUILD, "tests/faults/libno_memory.so")
SIGNALS = ("signal 6", "signal 7", "signal 11")  # in the supervisor's words
RECORDS = 200
OOM_LIMIT = 1 << 20
TOPICS_MAX = 400
PRESSURE_FREE = 64 << 20  # at first
PRESSURE_ROOM = 10 << 20  # beside what it allocated by then, for the page cache: less than the store leaves in it
PRESSURE_MB = 160


class Order:
    """What no_memory.c reads: program, call, calls made, done."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.truncate(4096)
        with open(path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 4096)

    def give(self, program, call):
        self.shared[:56] = struct.pack("32sQQQ", program.encode(), call, 0, 0)

    def calls(self):
        return struct.unpack("Q", self.shared[40:48])[0]

    def reached(self):
        return struct.unpack("Q", self.shared[48:56])[0] != 0


def launch(broker, order):
    """Starts with the library. Returns whether it is ready; else it has ended."""
    os.environ.update(LD_PRELOAD=LIBRARY, MILL_NO_MEMORY=order.path)
    try:
        broker.launch()
    finally:
        del os.environ["LD_PRELOAD"], os.environ["MILL_NO_MEMORY"]
    try:
        broker.await_ready(60)
        return True
    except AssertionError:
        assert broker.process.poll() is not None, "neither ready nor ended"
        return False


def count(broker):
    return len(broker.kcat("LOCAL", "-C", "-t", "kept", "-p", "0", "-o", "beginning", "-e", timeout=60).split())


def start():
    samples = pick(200, 4)
    chance = random.Random(7)
    ended = served = 0
    with Broker(nic=False, settings={"hugepages.size.mb": "64"}) as broker:
        broker.start()
        broker.millrace("topic", "create", "kept")
        values = "\n".join(str(number) for number in range(RECORDS))
        broker.kcat("LOCAL", "-P", "-t", "kept", "-p", "0", input=values + "\n")
        broker.stop()
        order = Order(os.path.join(broker.home, "order"))
        for program in PROGRAMS:
            order.give(program, 0)
            assert launch(broker, order), "it does not start with the library"
            calls = order.calls()
            broker.stop()
            assert calls > 10, f"{program}: {calls} allocations"
            for call in sorted(chance.sample(range(1, calls + 1), min(samples, calls))):
                told = len(broker.log_text())
                order.give(program, call)
                if launch(broker, order):
                    served += 1
                    assert count(broker) == RECORDS, f"{program} {call}: {count(broker)} records"
                    code, _ = broker.stop()
                    assert code == 0, f"{program} {call}: a stop with {code}"
                else:
                    ended += 1
                    assert broker.process.returncode == 1, f"{program} {call}: {broker.process.returncode}"
                text = broker.log_text()[told:]
                assert text.strip(), f"{program} {call}: not a word"
                assert not any(word in text for word in SIGNALS), f"{program} {call}: ended by a signal"
                assert order.reached(), f"{program} {call} was not reached"
            print(f"{program}: {samples} of {calls} allocations failed")
        broker.start()
        assert count(broker) == RECORDS
    print(f"{served} starts served, {ended} ended with a reason")


def oom():
    with MemoryGroup(OOM_LIMIT) as group, Broker(nic=False) as broker:
        broker.start()
        broker.millrace("topic", "create", "load", "-p", "1")
        load = oracle.Load(broker, "load", ["LOCAL"], rate=500)
        made = []
        try:
            load.wait_running()
            pid = broker.pid("control")
            group.add(pid)
            while broker.pid("control") == pid and alive(pid):
                assert len(made) < TOPICS_MAX, "control was not killed"
                name = f"topic-{len(made)}"
                broker.millrace("topic", "create", name, "-p", "50", check=False)
                # What the last one answered is not known when control died: the list tells.
                made.append(name)
            assert group.kills() > 0, "control ended, and not for its memory"
            broker.wait_restart("control", pid)
            time.sleep(1)
            reports = load.stop()
        finally:
            load.end()
        oracle.check(broker, "load", reports)
        assert max(report["errors"] for report in reports) == 0
        there = broker.millrace("topic", "list").split()
        missing = [name for name in made[:-1] if name not in there]
        assert not missing, f"made and gone: {missing}"
    print(f"control was killed for its memory after {len(made)} topics; produce went on, every topic is there")


def pressure():
    size_mb = pick(2000, PRESSURE_MB)
    settings = {"hugepages.size.mb": "64", "log.segment.bytes": str(16 << 20)}
    with MemoryGroup(PRESSURE_FREE) as group, Broker(nic=False, settings=settings) as broker:
        broker.start()
        broker.millrace("topic", "create", "pressed", "-p", "1")
        pid = broker.pid("millraced")
        group.add(pid)
        load = oracle.Load(broker, "pressed", ["LOCAL"])
        try:
            load.wait_running()
            wait(f"{size_mb // 4} MB are not written", lambda: broker.status()["log"]["bytes_in"] > size_mb << 18, 600)
            group.limit(group.allocated() + PRESSURE_ROOM)
            wait(f"{size_mb} MB are not written", lambda: broker.status()["log"]["bytes_in"] > size_mb << 20, 600)
            reports = load.stop()
        finally:
            load.end()
        records = oracle.check(broker, "pressed", reports)
        assert group.pressed() > 0, "the limit was never met: the test shows nothing"
        assert broker.pid("millraced") == pid and group.kills() == 0
        code, _ = broker.stop(timeout=60)
        assert code == 0
    print(f"{size_mb} MB and {records} records with {PRESSURE_ROOM >> 20} MiB for the page cache: all there")


PARTS = {"start": start, "oom": oom, "pressure": pressure}


def main():
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
