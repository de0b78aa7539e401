#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of millraced and millrace-control at once under the load of kill-data: the same check, and topics
and configuration agree with the log."""
import random
import sys

from kill_data import kill_rounds
from lib.broker import Broker, pick


def main():
    rounds = pick(20, 5)
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(1 << 32)
    with Broker() as broker:
        broker.start()
        listeners = ["LOCAL", "NIC", "LOCAL", "NIC"]
        broker.millrace("topic", "create", "other", "-p", "3", "--config", "max.message.bytes=4321")
        before = broker.millrace("topic", "describe", "other", "-o", "json")
        assert "4321" in before, before
        total = kill_rounds(broker, "both", rounds, seed, listeners, ("millraced", "control"))
        assert broker.millrace("topic", "describe", "other", "-o", "json") == before
        listing = broker.millrace("topic", "list", "-o", "json")
        assert '"both"' in listing and '"other"' in listing, listing
    print(f"{rounds} double kills, {total} records, every acknowledged one there once and in order")


if __name__ == "__main__":
    main()
