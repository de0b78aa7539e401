#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the broker owns PCI cards (e1000e and vmxnet3 behind an IOMMU) and stock clients use them.

Method: one guest (lib.guest) for all lines; its CPU is emulated, so sizes are small. Clients run here, in the
namespace at the other end of the cards' wires. guest.py [LINE...]"""
import os
import random
import sys
import time

from lib.broker import TOP, pick
from lib.guest_broker import NAMES, GuestBroker, boot, end

sys.path.insert(0, os.path.join(TOP, "tests/clients"))
sys.path.insert(0, os.path.join(TOP, "tests/faults"))
import kcat
import librdkafka
import slow_readers
import zero_copy
from kill_data import kill_rounds

BUILD = os.path.join(TOP, os.environ.get("MILLRACE_BUILD", "build"))
WITHHELD = os.path.join(BUILD, "tests/unit/port/libwithheld_map.so")
RELEASE_S = 3


def check_clients(guest):
    """zero-copy, kcat, librdkafka, slow-readers, kill-data on both cards."""
    with GuestBroker(guest) as broker:
        broker.start()
        for number, listener in enumerate(broker.listeners()):
            zero_copy.check(broker, pick(256 << 20, 16 << 20), listener, number)
            slow_readers.check(broker, listener, pick(1000, 100), pick(5, 2))
        kcat.check(broker, pick(64 << 20, 16 << 20), broker.listeners())
        librdkafka.check(broker, pick(64 << 20, 16 << 20), broker.listeners())
        for port in broker.status()["ports"]:
            assert port["zero_copy"] and port["bytes_linearised"] == 0, port


def check_kills(guest):
    with GuestBroker(guest) as broker:
        broker.start()
        rounds = pick(20, 3)
        total = kill_rounds(broker, "kills", rounds, random.SystemRandom().randrange(1 << 32),
                            list(broker.listeners()) * 2)
        broker.wait_no_loans()
        print(f"{rounds} kills, {total} records, every acknowledged one there once and in order")


def check_pins(guest):
    """pin_released_after_idle: what an idle card was sent is given back."""
    with GuestBroker(guest) as broker:
        broker.start()
        for listener in broker.listeners():
            topic = f"pins-{listener.lower()}"
            broker.kcat(listener, "-P", "-t", topic, "-p", "0", input="x" * 900 + "\n")
            for _ in range(20):
                broker.kcat(listener, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "1")
        broker.wait_no_loans(RELEASE_S)
        fillers = broker.port("E1000E")["tx_fillers"]
        print(f"no loan is held {RELEASE_S} s after the last answer; e1000e got {fillers} fillers")


def check_withheld(guest):
    """The driver says that the arena is mapped and it is not: zero copy is refused, loudly, and the port
    works by copying."""
    with GuestBroker(guest) as broker:
        broker.start(environment=f"LD_PRELOAD=/extra/{os.path.basename(WITHHELD)}")
        said = broker.log_text()
        for listener in broker.listeners():
            port = broker.port(listener)
            assert not port["zero_copy"] and "does not send what lies in the arena" in port["remark"], port
            assert f"name={port['name']} text=" in said, said
        kcat.check(broker, 1 << 20, broker.listeners(), codecs=("none",))
        for listener in broker.listeners():
            port = broker.port(listener)
            assert port["bytes_linearised"] > 900_000, port
        print("without a map both cards copy, and say so")


LINES = {
    "clients": check_clients,
    "kills": check_kills,
    "pins": check_pins,
    "withheld": check_withheld,
}


def main():
    wanted = sys.argv[1:] or list(LINES)
    begun = time.monotonic()
    guest = boot(extra=[WITHHELD])
    print(f"the guest answers after {time.monotonic() - begun:.1f} s")
    try:
        for name in wanted:
            start = time.monotonic()
            LINES[name](guest)
            print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    except BaseException:
        print(guest.console_text()[-2000:])
        raise
    finally:
        end(guest)
    print(f"{' '.join(NAMES)}: {', '.join(wanted)} in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
