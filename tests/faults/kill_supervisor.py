#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the supervisor under load: both children gone within 5 s; the next start needs no cleaning by
hand and nothing acknowledged is missing."""
import os
import time

from lib import oracle
from lib.broker import Broker, alive, pick

CHILDREN_GONE_S = 5


def main():
    rounds = pick(10, 3)
    with Broker() as broker:
        broker.start()
        broker.millrace("topic", "create", "sup", "-p", "2")
        load = oracle.Load(broker, "sup", ["LOCAL", "NIC"])
        try:
            load.wait_running()
            for _ in range(rounds):
                time.sleep(0.5)
                children = [broker.pid("millraced"), broker.pid("control")]
                supervisor = broker.pid("supervisor")
                os.kill(supervisor, 9)
                broker.process.wait()
                begun = time.monotonic()
                while any(alive(pid) for pid in children):
                    assert time.monotonic() - begun < CHILDREN_GONE_S, "children outlive supervisor"
                    time.sleep(0.02)
                broker.start()
            time.sleep(1)
            reports = load.stop()
        finally:
            load.end()
        total = oracle.check(broker, "sup", reports)
    print(f"{rounds} kills, {total} records, nothing acknowledged is missing")


if __name__ == "__main__":
    main()
