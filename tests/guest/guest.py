#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the broker owns PCI cards (e1000e and vmxnet3 behind an IOMMU) and stock clients use them.

Method: one guest (lib.guest) for all lines; its CPU is emulated, so sizes are small."""
import os
import sys

from lib.broker import TOP, pick
from lib.guest_broker import GuestBroker, boot, end

sys.path.insert(0, os.path.join(TOP, "tests/clients"))
import kcat


def check_kcat(guest):
    with GuestBroker(guest) as broker:
        broker.start()
        kcat.check(broker, pick(64 << 20, 1 << 20), broker.listeners())


LINES = (
    ("kcat", check_kcat),
)


def main():
    wanted = sys.argv[1:] or [name for name, _ in LINES]
    guest = boot()
    try:
        for name, line in LINES:
            if name in wanted:
                line(guest)
    finally:
        end(guest)


if __name__ == "__main__":
    main()
