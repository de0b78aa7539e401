# SPDX-License-Identifier: Apache-2.0
"""scripts/bench [NAME...] [-o FILE]: runs benchmarks by name (all of them without one), prints a table and
writes JSON. --rounds N: rounds of each comparison (5). --document FILE...: writes the tables of earlier
results into docs/performance.md, where loads that they do not have stay as they are, and runs nothing."""
import os
import signal
import sys

from measure import floor, report, rows
from measure.subjects import Subjects

ROUNDS = 5
RESULT = os.path.join("build", "bench.json")


def wrong(text):
    print(f"bench: {text}", file=sys.stderr)
    sys.exit(2)


def parse(words):
    chosen, path, rounds = [], RESULT, ROUNDS
    words = list(words)
    while words:
        word = words.pop(0)
        if word in ("-o", "--rounds"):
            if not words:
                wrong(f"{word} needs a value")
            value = words.pop(0)
            if word == "-o":
                path = value
            elif value.isdigit() and int(value) > 0:
                rounds = int(value)
            else:
                wrong(f"--rounds needs a number, not \"{value}\"")
        elif word == "--document":
            return None, words, rounds
        elif word in rows.names():
            chosen.append(word)
        else:
            wrong(f"unknown benchmark \"{word}\"; there are: {' '.join(rows.names())}")
    return chosen or rows.names(), path, rounds


def say(text):
    print(text, file=sys.stderr, flush=True)


def measure(chosen, rounds):
    """ret: floor, and all that was collected."""
    measured = floor.floor("/var/tmp", say) if "floor" in chosen else {}
    collected = rows.Collected(say)
    with Subjects() as subjects:
        for name in chosen:
            if name not in ("floor", "memif", "wake"):
                rows.run(name, subjects, rounds, collected)
    # Over memif each end has a CPU of its own, and who measures idling starts brokers of its own: nobody else may
    # run beside them.
    for name in ("memif", "wake"):
        if name in chosen:
            rows.run(name, None, rounds, collected)
    return measured, collected


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that runs is ended
    chosen, path, rounds = parse(sys.argv[1:])
    if chosen is None:
        if not path:
            wrong("--document needs results")
        report.document(report.merge([report.read(one) for one in path]))
        return
    if os.geteuid() != 0:
        wrong("needs root: namespaces, hugepages, devices")
    stolen = floor.steal()
    with floor.ahead():
        measured, collected = measure(chosen, rounds)
    machine = floor.machine()
    machine["steal_ticks"] = floor.steal() - stolen
    result = report.as_json(machine, measured, collected.rows())
    report.write(result, path)
    print(report.tables(result))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
