#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9, then SIGSTOP, of millrace-control during produce, fetch and new connections of new clients: no
failed request; the longest time between acknowledgements, and that of a new client from its first packet to
the record that it reads back, is at most three times that of a run without."""
import os
import signal
import subprocess
import time

from lib import oracle
from lib.broker import TOP, Broker, pick

RATIO = 3.0
FLOOR_S = 0.05  # below this a gap is the scheduler's, not the broker's
# Of a new client, which starts threads and connections. Three of these are less than one wait for control.
NEW_FLOOR_S = 0.3
TRIES = 3
NEWCOMER = os.path.join(TOP, "tests/faults/newcomer.py")


def newcomers(broker, listener, seconds):
    """New clients, one after the other: each connects, produces and reads its record."""
    command = broker.inside(listener) + ["/usr/bin/python3", "-B", NEWCOMER,
                                         broker.address(listener), "calm", str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure(broker, topic, seconds, disturb):
    load = oracle.Load(broker, topic, ["LOCAL", "NIC"], rate=500)
    try:
        load.wait_running()
        clients = [newcomers(broker, name, seconds) for name in ("LOCAL", "NIC")]
        disturb(seconds)
        longest = 0.0
        for client in clients:
            out, _ = client.communicate(timeout=seconds + 60)
            assert client.returncode == 0, out
            longest = max(longest, float(out))
        reports = load.stop()
    finally:
        load.end()
    oracle.check(broker, topic, reports)
    return max(report["gap_max_s"] for report in reports), longest


def main():
    stop_s = pick(30, 6)
    with Broker() as broker:
        broker.start()
        broker.millrace("topic", "create", "calm", "-p", "2")

        def nothing(seconds):
            time.sleep(seconds)

        def kill(seconds):
            for _ in range(3):
                pid = broker.kill("control")
                broker.wait_restart("control", pid)
                time.sleep(seconds / 3)

        def freeze(seconds):
            pid = broker.kill("control", signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)

        for name, disturb in (("kill", kill), ("freeze", freeze)):
            for number in range(TRIES):
                topics = [f"{name}-{kind}-{number}" for kind in ("calm", "disturbed")]
                for topic in topics:
                    broker.millrace("topic", "create", topic, "-p", "2")
                calm, calm_new = measure(broker, topics[0], stop_s, nothing)
                gap, gap_new = measure(broker, topics[1], stop_s, disturb)
                print(f"{name}: longest gap {gap * 1e3:.0f} ms, without {calm * 1e3:.0f} ms; slowest new "
                      f"client {gap_new * 1e3:.0f} ms, without {calm_new * 1e3:.0f} ms")
                if gap <= RATIO * max(calm, FLOOR_S) and \
                        gap_new <= RATIO * max(calm_new, NEW_FLOOR_S):
                    break
            else:
                raise AssertionError(f"{name}: a gap stayed above {RATIO} times the calm one")
    print(f"no request failed while control was killed and frozen for {stop_s} s")


if __name__ == "__main__":
    main()
