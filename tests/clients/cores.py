#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two cores over kernel sockets, 12 partitions: clients and kills as on one core; both cores own partitions
and connections, requests are handed over on both, and every loan comes back."""
import json
import os
import random
import sys
import time

from lib.broker import TOP, Broker, pick

sys.path.insert(0, os.path.join(TOP, "tests/faults"))
sys.path.insert(0, os.path.join(TOP, "tests/clients"))
from kill_data import kill_rounds
import librdkafka

LOANS_BACK_S = 5
SETTINGS = {"dataplane.cores": "0,1", "num.partitions": "12"}


def main():
    total = pick(1 << 30, 32 << 20)
    rounds = pick(50, 5)
    with Broker(nic=False, settings=SETTINGS) as broker:
        broker.start()
        librdkafka.check(broker, total, broker.listeners())
        broker.millrace("topic", "create", "spread", "-p", "12")
        broker.kcat("LOCAL", "-P", "-t", "spread", input="".join(f"{i}\n" for i in range(20000)))
        got = broker.kcat("LOCAL", "-C", "-t", "spread", "-o", "beginning", "-e")
        assert sorted(got.split(), key=int) == [str(i) for i in range(20000)]
        kill_rounds(broker, "kills", rounds, random.SystemRandom().randrange(1 << 32),
                    ["LOCAL"] * 12)
        assert all(broker.counts("partitions")), broker.status()["cores"]
        broker.reach_cores("LOCAL", "spread", "handed_over")
        broker.wait_no_loans()
        # A loan that did not come back to the extent's owner would keep it.
        topics = json.loads(broker.millrace("topic", "list", "-o", "json"))
        names = [topic["name"] for topic in topics if topic["name"] != "__consumer_offsets"]
        broker.millrace("topic", "delete", *names)
        deadline = time.monotonic() + LOANS_BACK_S
        while broker.status()["memory"]["arena_used_bytes"] != 0:
            assert time.monotonic() < deadline, broker.status()["memory"]
            time.sleep(0.1)
    print(f"two cores: {total >> 20} MiB per codec equal, {rounds} kills survived, loans back")


if __name__ == "__main__":
    main()
