#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1,000 connections through NIC ask for 1 MiB each and never read: memory of both processes and the arena do
not grow, another client keeps its rate, and every loan is back after they are gone."""
import os
import subprocess
import time

from lib.broker import TOP, Broker, pick

GROWTH_BYTES = 16 << 20
RATE_SHARE = 0.8
LOANS_BACK_S = 5
TRIES = 3
SCRIPT = os.path.join(TOP, "tests/faults/slow_readers_load.py")


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def rate(broker, seconds):
    return float(broker.python("NIC", SCRIPT, "rate", "slow", str(seconds)).split()[-1])


def main():
    readers = pick(1000, 1000)
    seconds = pick(10, 3)
    with Broker() as broker:
        broker.start()
        broker.millrace("topic", "create", "slow")
        zero = os.path.join(TOP, "tests/clients/zero_copy_load.py")
        broker.python("NIC", zero, "produce", "slow", str(32 << 20))
        rate(broker, 1)  # everything warm
        alone = rate(broker, seconds)
        pids = (broker.pid("millraced"), broker.pid("control"))
        before = [resident(pid) for pid in pids]
        arena = broker.status()["memory"]["arena_used_bytes"]
        command = broker.inside("NIC") + ["/usr/bin/python3", "-B", SCRIPT, broker.address("NIC"),
                                          "hold", "slow", str(readers)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as holder:
            assert holder.stdout.readline().strip() == "holding"
            best = 0.0
            for _ in range(TRIES):
                best = max(best, rate(broker, seconds) / alone)
                if best >= RATE_SHARE:
                    break
                alone = max(alone, 1)
            held = broker.status()["memory"]
            grown = sum(resident(pid) for pid in pids) - sum(before)
            holder.stdin.close()
            holder.wait(timeout=60)
        print(f"{readers} readers hold {held['loaned_bytes'] >> 20} MiB on loan, memory grew "
              f"{grown >> 10} KiB, another client keeps {best:.0%} of its rate")
        assert held["loaned_bytes"] > 0, held
        assert grown <= GROWTH_BYTES, grown
        assert held["arena_used_bytes"] <= arena + (1 << 20), (held, arena)
        assert best >= RATE_SHARE, best
        deadline = time.monotonic() + LOANS_BACK_S
        while broker.status()["memory"]["loaned_bytes"] != 0:
            assert time.monotonic() < deadline, broker.status()["memory"]
            time.sleep(0.1)


if __name__ == "__main__":
    main()
