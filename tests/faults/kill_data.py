#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of millraced at random moments while four idempotent producers with acks=all run through every
listener: after each restart every acknowledged record is there, once, in order."""
import random
import sys
import time

from lib import oracle
from lib.broker import Broker, pick


def kill_rounds(broker, topic, rounds, seed, listeners, names=("millraced",)):
    """Kills the named processes rounds times under load, then checks everything."""
    moments = random.Random(seed)
    print(f"seed {seed}")
    broker.millrace("topic", "create", topic, "-p", str(len(listeners)))
    load = oracle.Load(broker, topic, listeners)
    try:
        load.wait_running()
        for _ in range(rounds):
            time.sleep(moments.uniform(0.05, broker.slowness))
            killed = {name: broker.kill(name) for name in names}
            for name, pid in killed.items():
                broker.wait_restart(name, pid)
        time.sleep(1.0)
        reports = load.stop()
    finally:
        load.end()
    return oracle.check(broker, topic, reports)


def main():
    rounds = pick(50, 10)
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(1 << 32)
    with Broker() as broker:
        broker.start()
        listeners = ["LOCAL", "NIC", "LOCAL", "NIC"] if broker.nic else ["LOCAL"] * 4
        total = kill_rounds(broker, "kills", rounds, seed, listeners)
        broker.wait_no_loans()
    print(f"{rounds} kills, {total} records, every acknowledged one there once and in order")


if __name__ == "__main__":
    main()
