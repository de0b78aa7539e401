#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of millraced under clients that wait for an answer and send nothing, through the listener on a DPDK port:
the next millraced resets their connections, those in a Fetch of minutes, a JoinGroup, and many that never asked; who
connects after it is left alone."""
import socket
import struct
import subprocess
import sys
import time

from lib import wire
from lib.broker import Broker, pick

TOPIC = "silent"
GROUP = "silent"
TOP_WAIT_MS = 300_000
FIND_COORDINATOR, JOIN_GROUP = 10, 11
# From the restarted millraced's readiness on. Its rounds of questions begin at 0, 0.5, 1.5, 3.5 and 7.5 s.
RESET_S = 6


def fetch_frame():
    """Fetch 4 of the end of a partition, for minutes."""
    return struct.pack(">iiiibi", -1, TOP_WAIT_MS, 1, 1 << 20, 0, 1) + wire.text(TOPIC) + \
        struct.pack(">iiqi", 1, 0, 0, 1 << 20)


def join_frame(member=""):
    return wire.text(GROUP) + struct.pack(">ii", TOP_WAIT_MS, TOP_WAIT_MS) + wire.text(member) + \
        wire.text("consumer") + struct.pack(">i", 1) + wire.text("range") + struct.pack(">i", 0)


def ended(client, until):
    """ret: whether the connection was reset by then."""
    client.socket.settimeout(max(0.01, until - time.monotonic()))
    try:
        return client.socket.recv(1) == b""
    except ConnectionResetError:
        return True
    except socket.timeout:
        return False


def clients(address, idle_count):
    """Reads lines of the test: "killed", then "ready"."""
    with wire.Client(address) as client:
        while struct.unpack_from(">h", client.ask(FIND_COORDINATOR, 0, wire.text(GROUP)))[0] != 0:
            time.sleep(0.1)
    waiting = [wire.Client(address) for _ in range(3)]
    first, second, fetching = waiting
    assert struct.unpack_from(">ih", first.ask(JOIN_GROUP, 2, join_frame()))[1] == 0
    # The first member does not come back: this one waits for it.
    second.send(second.frame(JOIN_GROUP, 2, join_frame()))
    fetching.send(fetching.frame(wire.FETCH, 4, fetch_frame()))
    waiting += [wire.Client(address) for _ in range(int(idle_count))]
    time.sleep(1)
    print("waiting", flush=True)
    assert sys.stdin.readline() == "ready\n"
    until = time.monotonic() + RESET_S
    begun = time.monotonic()
    stand = sum(not ended(client, until) for client in waiting)
    assert stand == 0, f"{stand} of {len(waiting)} connections stand after {RESET_S} s"
    print(f"{time.monotonic() - begun:.2f}", flush=True)
    with wire.Client(address) as client:
        assert not ended(client, time.monotonic() + RESET_S), "a connection of the new millraced was ended"


def main():
    if len(sys.argv) > 1:
        clients(*sys.argv[1:])
        return
    idle_count = pick(2000, 200)
    with Broker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.start()
        broker.millrace("topic", "create", TOPIC, "-p", "1")
        command = broker.inside("NIC") + ["/usr/bin/python3", "-B", __file__, broker.address("NIC"), str(idle_count)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "waiting\n", "the clients failed"
            pid = broker.kill("millraced")
            broker.wait_restart("millraced", pid)
            out, _ = process.communicate("ready\n", timeout=60)
            assert process.returncode == 0, "the clients failed"
        print(f"{idle_count + 3} connections were reset within {out.strip()} s of the next millraced's readiness")


if __name__ == "__main__":
    main()
