# SPDX-License-Identifier: Apache-2.0
"""What clients of the data path see while something is done to the rest: the longest time between acknowledgements
and between records read, and how long the slowest new client took from its first packet to the record that it read
back. No request may fail, and what was acknowledged must be there (oracle.py)."""
import collections
import os
import subprocess

from lib import oracle
from lib.broker import TOP

RATIO = 3.0
FLOOR_S = 0.05  # below this a gap is the scheduler's, not the broker's
# Of a new client, which starts threads and connections. Three of these are less than one wait for control.
NEW_FLOOR_S = 0.3
RATE = 500  # records a second
TAIL = os.path.join(TOP, "tests/lib/data_path_tail.py")
NEWCOMER = os.path.join(TOP, "tests/lib/data_path_newcomer.py")

Seen = collections.namedtuple("Seen", "produce fetch new")


def client(broker, listener, script, *words):
    command = broker.inside(listener) + ["/usr/bin/python3", "-B", script, broker.address(listener), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def longest_of(clients, timeout):
    longest = 0.0
    for one in clients:
        out, _ = one.communicate(timeout=timeout)
        assert one.returncode == 0, out
        longest = max(longest, float(out))
    return longest


def first_client(broker, listener, topic):
    """One new client before any is measured: the first one with a group has its internal topic made."""
    longest_of([client(broker, listener, NEWCOMER, topic, "0.01")], 60)


def measure(broker, topic, calm_topic, listeners, seconds, disturb):
    """Makes the topic, a partition for each listener, and loads it for as long as disturb(seconds) takes; new
    clients use calm_topic. Returns what was seen, in seconds."""
    broker.millrace("topic", "create", topic, "-p", str(len(listeners)))
    load = oracle.Load(broker, topic, listeners, rate=RATE)
    clients = []
    try:
        load.wait_running()
        tails = [client(broker, name, TAIL, topic, str(number)) for number, name in enumerate(listeners)]
        fresh = [client(broker, name, NEWCOMER, calm_topic, str(seconds)) for name in listeners]
        clients = tails + fresh
        disturb(seconds)
        new = longest_of(fresh, seconds + 60)
        for one in tails:
            one.terminate()
        fetch = longest_of(tails, 60)
        reports = load.stop()
    finally:
        load.end()
        for one in clients:
            one.kill()
            one.wait()
    oracle.check(broker, topic, reports)
    return Seen(max(report["gap_max_s"] for report in reports), fetch, new)


def ratios(disturbed, calm):
    """How many times as long each took as in calm; what no clock of a busy machine tells apart is one."""
    floors = Seen(FLOOR_S, FLOOR_S, NEW_FLOOR_S)
    return Seen(*(one / max(other, floor) for one, other, floor in zip(disturbed, calm, floors)))


def told(seen):
    return f"gap of produce {seen.produce * 1e3:.0f} ms, of fetch {seen.fetch * 1e3:.0f} ms, " \
           f"slowest new client {seen.new * 1e3:.0f} ms"
