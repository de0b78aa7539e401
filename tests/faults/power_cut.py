#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The power is cut while idempotent producers write to a topic with flush.messages=1: all memory is gone (every
process is killed, the arena's files are removed), and the disk loses, tears and reorders what was not synced.
What was acknowledged is there after the next start, once and in order. Many cuts in the simulation
(tests/sim/test_power.c), the rest on a real broker over a file system that does it (tests/faults/fault_disk.c)."""
import os
import random
import sys
import time

from lib import oracle
from lib.broker import BUILD, TOP, Broker, pick, run
from lib.fault_disk import FaultDisk

TOPIC = "power"
PARTITIONS = 4
CALLS_MAX = 1500  # file calls until the power goes
START_CALLS_MAX = 120  # the same, when it is to go during the next start


def power_off(broker):
    """No process is left, and no memory."""
    broker.kill_all()
    broker.forget_arena()


def await_cut(disk, timeout):
    deadline = time.monotonic() + timeout
    while not disk.counters()["cut"]:
        assert time.monotonic() < deadline, disk.counters()
        time.sleep(0.01)


def cut_during_start(disk, broker, calls):
    """Starts, and loses the power before it is ready. ret: False: it was ready sooner."""
    disk.order(f"cut-after {calls}")
    broker.launch()
    deadline = time.monotonic() + 30
    while not disk.counters()["cut"] and broker.process.poll() is None:
        if broker.pid("millraced") and broker.status(check=False):
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    during = disk.counters()["cut"]
    power_off(broker)
    return during


def real_cuts(cuts, seed):
    chance = random.Random(seed)
    during = 0
    with FaultDisk(seed) as disk, Broker(nic=False, settings={
            "log.dirs": f"{disk.dir('a')},{disk.dir('b')}", "log.segment.bytes": "300000",
            "log.flush.offset.checkpoint.interval.ms": "500"}) as broker:
        broker.start()
        broker.millrace("topic", "create", TOPIC, "-p", str(PARTITIONS), "--config", "flush.messages=1")
        load = oracle.Load(broker, TOPIC, ["LOCAL"] * PARTITIONS)
        try:
            load.wait_running()
            done = 0
            while done < cuts:
                time.sleep(chance.uniform(0.05, 0.5))
                disk.order(f"cut-after {chance.randrange(CALLS_MAX)}")
                await_cut(disk, 60)
                time.sleep(chance.uniform(0.0, 0.3))  # acknowledged now would be acknowledged wrongly
                power_off(broker)
                disk.order(f"cut {chance.randrange(1 << 32)}")
                done += 1
                if chance.random() < 0.3 and done < cuts:
                    during += cut_during_start(disk, broker, chance.randrange(START_CALLS_MAX))
                    disk.order(f"cut {chance.randrange(1 << 32)}")
                    done += 1
                broker.start()
                time.sleep(0.3)
            reports = load.stop()
        finally:
            load.end()
        total = oracle.check(broker, TOPIC, reports)
        for report in reports:
            assert report["acked_next"] > 0, report
        lost = disk.counters()
        assert lost["lost_bytes"] > 0, lost
        print(f"{done} cuts, {during} of them during a start, {total} records, every acknowledged one there; "
              f"{lost['lost_bytes']} bytes and {lost['lost_names']} names were lost")


def simulated_cuts():
    seeds = pick(100, 10)
    program = os.path.join(TOP, BUILD, "tests/sim/test_sim_power")
    if not os.path.exists(program):
        program = os.path.join(TOP, "build/tests/sim/test_sim_power")
    text = run(program, "1", str(seeds), timeout=1200)
    lines = [line for line in text.splitlines() if line.startswith("seed")]
    assert len(lines) == seeds, text
    print(f"{seeds * 10} simulated cuts; the last seed: {lines[-1]}")


def main():
    if sys.argv[1:2] != ["real"]:
        simulated_cuts()
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    real_cuts(pick(20, 5), seed)


if __name__ == "__main__":
    main()
