#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of millrace-control and of millraced, in turn, while a group of real clients reads and commits: no
acknowledged commit is lost or goes back, every record is read, and at the end the group has committed all
(lib/group_oracle.py). After each kill the committed offsets are asked for."""
import time

from lib.broker import Broker, pick
from lib.group_oracle import GroupLoad

RATE = 400  # records a second


def main():
    rounds = pick(40, 4)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        with GroupLoad(broker, "killed-group", RATE) as load:
            load.wait_running()
            for number in range(rounds):
                name = "control" if number % 2 == 0 else "millraced"
                pid = broker.kill(name)
                broker.wait_restart(name, pid)
                print(f"{name} killed: {load.check()} committed")
                time.sleep(1)
            count = load.finish()
        print(f"{rounds} kills, {count} records read and committed: nothing went back")


if __name__ == "__main__":
    main()
