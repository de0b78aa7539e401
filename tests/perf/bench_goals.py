#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: Millrace is as much faster than Apache Kafka 4.4, and as near to the wire, as was promised.

Method: the benchmarks of scripts/bench; each goal compares medians of runs that took turns in this very test.
What else the machine does meets all subjects, but not at the same moment: in the reduced run a goal may be
met by the best pair of runs that stood side by side, or in a second try; full asks it of the medians of five
rounds. The last line tells which goals were missed. One that docs/performance.md explains as missed on
some machines does not fail the reduced run; it fails full."""
import collections
import os
import shutil
import sys

from lib.broker import FULL, pick, skip
from measure import floor, rows
from measure.kafka import JARS
from measure.subjects import Subjects

Goal = collections.namedtuple("Goal", "text benchmark name metric ours theirs least most")

KERNEL = (
    Goal("produce in 16 KiB batches", "produce", "produce-200", "rate", "millrace", "kafka", 4, None),
    Goal("its CPU per GB", "produce", "produce-200", "cpu", "millrace", "kafka", None, 0.25),
    Goal("one record per request, 64 deep", "single", "single", "rate", "millrace", "kafka", 15, None),
    Goal("50 connections on 12 partitions", "spread", "spread", "rate", "millrace", "kafka", 4, None),
    Goal("consume", "consume", "consume-1000", "bytes", "millrace", "kafka", 1, None),
    Goal("its CPU per GB", "consume", "consume-1000", "cpu", "millrace", "kafka", None, 1),
    Goal("synchronous p50", "sync", "sync", "p50", "millrace", "kafka", None, 0.5),
)
MEMIF = (
    Goal("memif: fetch to testpmd", "memif", "memif-fetch", "bytes", "millrace-memif", "testpmd", 0.3, None),
    Goal("memif: small requests a second", "memif", "memif-single", "rate", "millrace-memif", None, 300000, None),
    Goal("memif: round trip p50 to a bare echo", "memif", "memif-trip", "p50", "millrace-memif", "echo", None, 5),
)
# Missed on some machines, with the profile that explains it in docs/performance.md, "Where the time goes".
EXPLAINED = (("produce-200", "cpu"), ("memif-fetch", "bytes"))
TRIES = 2


def values(goal, measured):
    """What is compared with the bound: of all rounds, and of each."""
    ours = rows.runs_of(measured, goal.name, goal.ours, goal.metric)
    if goal.theirs is None:
        return rows.median(measured, goal.name, goal.ours, goal.metric), ours
    theirs = rows.runs_of(measured, goal.name, goal.theirs, goal.metric)
    whole = (rows.median(measured, goal.name, goal.ours, goal.metric) /
             rows.median(measured, goal.name, goal.theirs, goal.metric))
    return whole, [mine / other for mine, other in zip(ours, theirs)]


def meets(goal, value):
    return value >= goal.least if goal.least is not None else value <= goal.most


def bound(goal):
    return f"at least {goal.least:g}" if goal.least is not None else f"at most {goal.most:g}"


def met(goal, measured):
    whole, each = values(goal, measured)
    good = meets(goal, whole) or (not FULL and any(meets(goal, one) for one in each))
    print(f"{'met' if good else 'MISSED':6} {goal.text}: {whole:.4g}, {bound(goal)}; rounds "
          + " ".join(f"{one:.3g}" for one in each), flush=True)
    return good


def say(text):
    print(text, flush=True)


def measure(goals, rounds, subjects):
    collected = rows.Collected(say)
    for name in dict.fromkeys(goal.benchmark for goal in goals):
        rows.run(name, subjects, rounds, collected)
    return collected.rows()


def missed_of(goals, rounds, subjects):
    """Goals that no try met."""
    for _ in range(1 if FULL else TRIES):
        measured = measure(goals, rounds, subjects)
        goals = [goal for goal in goals if not met(goal, measured)]
        if not goals:
            break
    return goals


def main():
    if os.geteuid() != 0:
        skip("hugepages and memif's peer need root")
    if not os.path.isdir(JARS) or not shutil.which(floor.TESTPMD):
        skip("Kafka's jars or testpmd are missing: scripts/setup test")
    rounds = pick(5, 2)
    # Only what is compared: neither TAP nor the null server.
    rows.SUBJECTS.update({name: ("kafka", "millrace") for name in rows.LOADS})
    rows.keep({goal.name for goal in KERNEL})
    with floor.ahead():
        with Subjects() as subjects:
            missed = missed_of(KERNEL, rounds, subjects)
        missed += missed_of(MEMIF, rounds if FULL else 1, None)
    failing = [goal for goal in missed if FULL or (goal.name, goal.metric) not in EXPLAINED]
    if missed:
        print(f"{len(missed)} goals missed" + (", explained in docs/performance.md: " if not failing else ": ")
              + "; ".join(f"{goal.text} ({goal.name})" for goal in missed))
        return 1 if failing else 0
    print(f"all {len(KERNEL) + len(MEMIF)} goals met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
