#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what holds on TAP holds on every kind of port. Method: the same checks as the tests of one name each,
with small sizes, on each kind of KINDS: LINES is the table of both. Without words all of them run.

    ports.py [KIND...] [LINE...]"""
import os
import random
import sys
import time

from lib.broker import TOP, Broker, pick

sys.path.insert(0, os.path.join(TOP, "tests/faults"))
sys.path.insert(0, os.path.join(TOP, "tests/clients"))
import coexist
import direct_cores
import kcat
import librdkafka
import slow_readers
import zero_copy
from kill_data import kill_rounds

TWO_CORES = {"dataplane.cores": "0,1", "num.partitions": "12"}


class Xdp:
    """AF_XDP on a veth pair."""
    listener = "NIC"
    without = ()

    def broker(self, settings=None, ports=1):
        return Broker(kind="xdp", settings=settings, ports=ports)

    def end(self):
        pass


# --- lines: each takes the kind ------------------------------------------------------------------
def line_kcat(kind):
    with kind.broker() as broker:
        broker.start()
        kcat.check(broker, pick(1 << 30, 16 << 20), [kind.listener])


def line_librdkafka(kind):
    with kind.broker() as broker:
        broker.start()
        librdkafka.check(broker, pick(1 << 30, 16 << 20), [kind.listener])


def line_zero_copy(kind):
    with kind.broker() as broker:
        broker.start()
        zero_copy.check(broker, pick(1 << 30, 64 << 20), kind.listener, in_place=broker.lab.sends_in_place)


def line_slow_readers(kind):
    with kind.broker() as broker:
        broker.start()
        slow_readers.check(broker, kind.listener, pick(1000, 100), pick(10, 1))


def line_kill_data(kind):
    rounds = pick(50, 3)
    with kind.broker() as broker:
        broker.start()
        total = kill_rounds(broker, "kills", rounds, random.SystemRandom().randrange(1 << 32), [kind.listener] * 2)
        broker.wait_no_loans()
        print(f"{rounds} kills, {total} records, every acknowledged one there once and in order")


def line_cores(kind):
    """One queue, two cores: frames are dealt out behind the first one."""
    with kind.broker(TWO_CORES) as broker:
        broker.start()
        librdkafka.check(broker, pick(1 << 30, 16 << 20), [kind.listener])
        kill_rounds(broker, "kills", pick(50, 3), random.SystemRandom().randrange(1 << 32), [kind.listener] * 4)
        assert all(broker.counts("partitions")), broker.status()["cores"]
        broker.reach_cores(kind.listener, "kills")
        broker.wait_no_loans()


def line_direct_cores(kind):
    """The same with a node and a port for each core: no request crosses."""
    with kind.broker({**TWO_CORES, "dataplane.core.endpoints": "on"}, ports=2) as broker:
        broker.start()
        direct_cores.check(broker, [kind.listener], 2, pick(256 << 20, 4 << 20))
        direct_cores.check_strays(broker, [kind.listener], 2)


def line_coexist(kind):
    with kind.broker() as broker:
        broker.start()
        coexist.check(broker, kind.listener)


LINES = {"kcat": line_kcat, "librdkafka": line_librdkafka, "zero-copy": line_zero_copy,
         "slow-readers": line_slow_readers, "kill-data": line_kill_data, "cores": line_cores,
         "direct-cores": line_direct_cores, "coexist": line_coexist}
KINDS = {"af-xdp": Xdp}


def main():
    words = sys.argv[1:]
    unknown = set(words) - set(LINES) - set(KINDS)
    if unknown:
        sys.exit(f"neither kind nor line: {' '.join(sorted(unknown))}")
    count = 0
    for name in [word for word in words if word in KINDS] or KINDS:
        kind = KINDS[name]()
        try:
            for line in [word for word in words if word in LINES] or LINES:
                if line in kind.without:
                    continue
                begun = time.monotonic()
                LINES[line](kind)
                count += 1
                print(f"{name} {line}: {time.monotonic() - begun:.1f} s", flush=True)
        finally:
            kind.end()
    print(f"{count} lines on {' '.join(KINDS)} hold")


if __name__ == "__main__":
    main()
