#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The data plane hangs (SIGSTOP) under idempotent producers: nothing is acknowledged meanwhile, and when it goes on
every acknowledged record is there, once and in order."""
import os
import signal
import time

from lib import oracle
from lib.broker import Broker, pick

TOPIC = "frozen"


def acked_bytes(load):
    return [os.path.getsize(log) for _, _, _, log in load.workers]


def standing_still(load):
    """What was in the sockets has arrived: nothing more was acknowledged for a second. ret: acked_bytes then."""
    deadline = time.monotonic() + 60
    last, since = acked_bytes(load), time.monotonic()
    while time.monotonic() - since < 1:
        assert time.monotonic() < deadline, "acknowledged by a stopped process, on and on"
        time.sleep(0.05)
        now = acked_bytes(load)
        if now != last:
            last, since = now, time.monotonic()
    return last


def main():
    pauses = pick((1, 5, 10, 30), (1, 12))  # beyond socket.timeout.ms: clients try again
    with Broker() as broker:
        broker.start()
        listeners = list(broker.listeners())
        broker.millrace("topic", "create", TOPIC, "-p", str(len(listeners)))
        load = oracle.Load(broker, TOPIC, listeners)
        try:
            load.wait_running()
            pid = broker.pid("millraced")
            for pause in pauses:
                time.sleep(0.5)
                os.kill(pid, signal.SIGSTOP)
                before = standing_still(load)
                time.sleep(pause)
                assert acked_bytes(load) == before, "acknowledged by a stopped process"
                os.kill(pid, signal.SIGCONT)
                deadline = time.monotonic() + 30
                while any(now == then for now, then in zip(acked_bytes(load), before)):
                    assert time.monotonic() < deadline, "it does not go on"
                    time.sleep(0.05)
            reports = load.stop()
        finally:
            load.end()
        assert broker.pid("millraced") == pid, "millraced was restarted"
        total = oracle.check(broker, TOPIC, reports)
    print(f"stopped for {pauses} s; {total} records, every acknowledged one there once and in order")


if __name__ == "__main__":
    main()
