#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A core that gets little of its CPU is slow but right, and says who took it: a hog of the same rank, a
real-time hog, a CPU quota of a tenth. The stall is told with its length and culprit, in a few lines; status
counts it; a kill -9 leaves no BPF program behind."""
import datetime
import itertools
import os
import subprocess
import sys
import time

from lib.broker import TOP, Broker, alive, pick, run, skip, wait
from lib.cgroup import Group

HOG = os.path.join(TOP, "tests/lib/hog.py")
LINES_MAX = 4  # about stalls, in one episode
QUOTA = 0.1
PERIOD_US = 100000
LOOKED_S = 15
QUIET_S = 10  # stalls.c
IDLE_SEEN_S = 1
TRIES = 3
NUMBERS = itertools.count()


def records(broker, topic, count):
    """Writes and reads so many records, and checks them."""
    text = "".join(f"{number}\n" for number in range(count))
    broker.millrace("produce", "-t", topic, input=text)
    got = broker.millrace("consume", "-t", topic, "-o", "beginning", "-e")
    assert sorted(got.split(), key=int) == text.split(), f"{topic}: {len(got.split())} of {count} records"


def core_of(broker):
    return broker.status()["cores"][0]


def taken_ns(core, name):
    return sum(one["time_ns"] for one in core["stolen"]["by"] if one["name"] == name)


def stall_lines(broker):
    return [line for line in broker.log_text().splitlines()
            if " core.stalled " in line or " core.stands-still " in line]


def with_hog(broker, seconds, *how):
    """Records while a hog runs. Returns its own CPU time and how the core changed."""
    before = core_of(broker)
    hog = subprocess.Popen([sys.executable, HOG, str(before["cpu"]), str(seconds), *how],
                           stdout=subprocess.PIPE, text=True)
    records(broker, f"hog-{next(NUMBERS)}", 2000)
    own_ns = int(hog.communicate(timeout=60)[0])
    limit = time.monotonic() + LOOKED_S  # the main thread looks four times a second, when it gets a CPU
    seen = taken_ns(before, "mill-hog")
    while taken_ns(core_of(broker), "mill-hog") - seen < own_ns * 0.7 and time.monotonic() < limit:
        time.sleep(0.25)
    time.sleep(0.5)
    return own_ns, before, core_of(broker)


def equal_hog(broker, seconds):
    own_ns, before, after = with_hog(broker, seconds)
    named_ns = taken_ns(after, "mill-hog") - taken_ns(before, "mill-hog")
    # A busy core always wants its CPU, so all that the hog ran was taken from it.
    assert 0.7 * own_ns < named_ns < 1.1 * own_ns, f"hog ran {own_ns} ns, named {named_ns}: {after['stolen']}"
    print(f"a hog of {own_ns / 1e9:.2f} s was named with {named_ns / 1e9:.2f} s")


def wait_quiet(broker):
    """Two lines about ended stalls are ten seconds apart: until the next one is due to nobody before."""
    lines = stall_lines(broker)
    if lines:
        told = datetime.datetime.fromisoformat(lines[-1].split()[0].replace("Z", "+00:00"))
        age = (datetime.datetime.now(datetime.timezone.utc) - told).total_seconds()
        time.sleep(max(QUIET_S + 1 - age, 0))


def fifo_hog(broker, seconds):
    """Other work may take more of the CPU than the hog, and then it is named: one of several tries must fit."""
    for _ in range(TRIES):
        wait_quiet(broker)
        told = len(stall_lines(broker))
        own_ns, before, after = with_hog(broker, seconds, "fifo")
        stalled_ns = after["stalled_ns"] - before["stalled_ns"]
        assert after["stalls"] > before["stalls"] and stalled_ns > own_ns / 2, after
        wait("no line about the stall", lambda: len(stall_lines(broker)) > told, LOOKED_S)
        lines = stall_lines(broker)[told:]
        assert len(lines) <= LINES_MAX, lines
        if any("mill-hog" in line for line in lines):
            break
    else:
        raise AssertionError(f"no line names the hog: {lines}")
    print(f"a real-time hog of {own_ns / 1e9:.2f} s: {stalled_ns / 1e9:.2f} s of stalls, {len(lines)} lines")


def quota_group():
    """A tenth of one CPU."""
    quota_us = int(PERIOD_US * QUOTA)
    return Group("cpu", {"cpu.max": f"{quota_us} {PERIOD_US}"},
                 {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota_us})


def cpu_idle_s(cpu):
    with open("/proc/stat", encoding="ascii") as stat:
        words = next(line.split() for line in stat if line.startswith(f"cpu{cpu} "))
    return (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")


def quota(broker, seconds):
    group = quota_group()
    told = len(stall_lines(broker))
    before = core_of(broker)
    idle_s = cpu_idle_s(before["cpu"])
    try:
        group.add(broker.pid("millraced"))
        begun = time.monotonic()
        records(broker, "quota", 1000)
        time.sleep(max(seconds - (time.monotonic() - begun), 0))
        wait("no line about a stall", lambda: len(stall_lines(broker)) > told, LOOKED_S)
        after = core_of(broker)
        lines = stall_lines(broker)[told:]
        assert after["stalls"] > before["stalls"], after
        # While the group may not run the CPU is idle, or runs others, who are named.
        idle_s = cpu_idle_s(before["cpu"]) - idle_s
        assert after["stolen"]["stolen_ns"] > before["stolen"]["stolen_ns"], after["stolen"]
        if idle_s >= IDLE_SEEN_S:
            assert taken_ns(after, "(nobody)") > taken_ns(before, "(nobody)"), after["stolen"]
        assert 1 <= len(lines) <= LINES_MAX, lines
        code, took = broker.stop(timeout=60)
        assert code == 0, f"a stop under the quota ended with {code}"
    finally:
        broker.close()
        group.remove()
    stalls = after["stalls"] - before["stalls"]
    print(f"a tenth of a CPU: 1000 records right, {stalls} stalls in {len(lines)} lines, stopped in {took:.1f} s")


def programs_of(pid):
    """Ids of the BPF programs that a process holds."""
    ids = set()
    for number in os.listdir(f"/proc/{pid}/fdinfo"):
        with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as info:
            ids |= {line.split()[1] for line in info if line.startswith("prog_id:")}
    return ids


def killed(broker):
    pids = [broker.pid(name) for name in ("millraced", "control")]
    ids = programs_of(pids[0])
    assert ids, "no BPF program is held"
    os.kill(broker.process.pid, 19)
    for pid in pids:
        os.kill(pid, 9)
    broker.process.kill()
    broker.process.wait()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) or any(loaded(number) for number in ids):
        assert time.monotonic() < deadline, f"left after kill -9: {[one for one in ids if loaded(one)]}"
        time.sleep(0.1)
    print(f"{len(ids)} BPF programs are gone with their process")


def loaded(number):
    return "name" in run("bpftool", "prog", "show", "id", number, check=False)


def main():
    if os.geteuid() != 0:
        skip("real-time threads, quotas and BPF programs need root")
    seconds = pick(20, 3)
    with Broker(nic=False, settings={"dataplane.idle": "busy"}) as broker:
        broker.start()
        assert broker.status()["jitter"]["state"] == "watching", broker.status()["jitter"]
        equal_hog(broker, seconds)
        fifo_hog(broker, seconds)
        killed(broker)
    with Broker(nic=False, settings={"dataplane.idle": "busy"}) as broker:
        broker.start()
        quota(broker, seconds)
    with Broker(nic=False, settings={"dataplane.jitter": "off"}) as broker:
        broker.start()
        assert broker.status()["jitter"]["state"] == "dataplane.jitter=off", broker.status()["jitter"]
        assert not programs_of(broker.pid("millraced"))


if __name__ == "__main__":
    main()
