#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stop under load exits 0 within 2 s with all processes gone; everything acknowledged is readable after
the next start, when the arena's files were deleted, and when they were replaced by another instance's
(refused, loudly)."""
import os
import shutil
import time

from lib import oracle
from lib.broker import Broker, alive

STOP_S = 2.0
TRIES = 3  # a busy machine may be slow once


def stop_under_load(broker, topic):
    broker.millrace("topic", "create", topic, "-p", "2")
    load = oracle.Load(broker, topic, ["LOCAL", "NIC"])
    try:
        load.wait_running()
        time.sleep(0.5)
        pids = [broker.pid(name) for name in ("supervisor", "millraced", "control")]
        code, took = broker.stop()
        assert code == 0, f"exit {code}"
        assert not any(alive(pid) for pid in pids), "a process is left"
        left = broker.arena_dirs()
        assert not any(os.listdir(path) for path in left), f"arena files are left: {left}"
        broker.start()
        reports = load.stop()
    finally:
        load.end()
    oracle.check(broker, topic, reports)
    return took, reports


def main():
    with Broker() as broker, Broker(nic=False) as other:
        broker.start()
        best = STOP_S + 1
        reports = {}
        for number in range(TRIES):
            took, reports[number] = stop_under_load(broker, f"stop{number}")
            best = min(best, took)
        assert best <= STOP_S, f"the fastest of {TRIES} stops took {best:.2f} s"

        # Killed, and the arena gone: what was written to the files is served.
        broker.wait_written()
        broker.process.kill()
        broker.process.wait()
        wait_gone(broker)
        broker.forget_arena()
        broker.start()
        for number, old in reports.items():
            oracle.check(broker, f"stop{number}", old)

        # Killed, and another instance's arena in its place: refused, loudly.
        other.start()
        other.millrace("topic", "create", "foreign")
        other.kcat("LOCAL", "-P", "-t", "foreign", input="x\n")
        kill_hard(other)
        kill_hard(broker)
        swap(other, broker)
        broker.start()
        for number, old in reports.items():
            oracle.check(broker, f"stop{number}", old)
        assert "discard" in broker.log_text(), "the foreign arena was not told"
    print(f"best stop {best:.2f} s; acknowledged records survive a lost and a foreign arena")


def wait_gone(broker, limit=5):
    deadline = time.monotonic() + limit
    while any(alive(pid) for pid in (broker.pid("millraced"), broker.pid("control")) if pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill_hard(broker):
    """Supervisor first, then at once millraced: nobody writes the arena out or removes it."""
    broker.wait_written()
    pids = [broker.pid(name) for name in ("millraced", "control")]
    os.kill(broker.process.pid, 19)
    for pid in pids:
        os.kill(pid, 9)
    broker.process.kill()
    broker.process.wait()
    wait_gone(broker)


def swap(source, target):
    from_dir = source.arena_dirs()[0]
    to_dir = target.arena_dirs()[0]
    shutil.rmtree(to_dir)
    os.rename(from_dir, to_dir)


if __name__ == "__main__":
    main()
