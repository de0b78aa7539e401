#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Goal: the tests of the whole broker fail when what they guard is broken.

Method: each row of TABLE names a mutant (tests/mutants says what it breaks) and a test of tests/suite; the
four programs are built with it into a folder of their own and the test runs on them and must fail. A name of
meson's is a unit test that starts one of the programs.

    tests/mutants_system            all rows
    tests/mutants_system NAME...    rows of these mutants
"""
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DIR = os.path.join(TOP, "build-mutant-system")
PROGRAMS = ("millrace", "millraced", "millrace-control", "millrace-supervisor",
            "tests/unit/control/test_control_main")
LIMIT_S = 600

TABLE = (
    ("net-copy-byte", "tests/clients/zero_copy.py"),
    ("log-copy-twice", "tests/clients/zero_copy.py"),
    ("net-leak-loan", "tests/faults/slow_readers.py"),
    ("store-lose-takeup", "tests/faults/kill_data.py"),
    ("log-skip-crc", "tests/faults/batches.py"),
    ("log-keys-unseen", "tests/faults/batches.py"),
    ("store-repack-unsummed", "tests/faults/batches.py"),
    ("store-unpack-unbounded", "tests/faults/batches.py"),
    ("control-busy-bell", "unit/control/main"),
    ("core-stall-uncounted", "tests/faults/starved.py"),
    ("core-rows-stale", "tests/clients/top.py"),
    ("jitter-unwatched", "tests/faults/starved.py"),
    ("bench-coordinated", "tests/perf/bench.py"),
)


def quiet(*command):
    done = subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}")


def build(mutant):
    if not os.path.exists(os.path.join(DIR, "build.ninja")):
        quiet("meson", "setup", DIR, TOP, "--buildtype=debugoptimized")
    quiet("meson", "configure", DIR, f"-Dmutant={mutant}")
    quiet("ninja", "-C", DIR, *PROGRAMS)


def fails(test):
    environment = dict(os.environ, MILLRACE_BUILD=DIR, MILLRACE_FULL="0",
                       PYTHONPATH=os.path.join(TOP, "tests"))
    command = ["/usr/bin/python3", "-B", test]
    if not test.endswith(".py"):
        command = ["meson", "test", "-C", DIR, "--no-rebuild", test]
    try:
        done = subprocess.run(command, cwd=TOP, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return True, "it hangs"
    words = done.stdout.strip().splitlines()
    return done.returncode not in (0, 77), words[-1] if words else ""


def main():
    chosen = sys.argv[1:]
    survivors = []
    for mutant, test in TABLE:
        if chosen and mutant not in chosen:
            continue
        build(mutant)
        failed, last = fails(test)
        print(f"{mutant:20} {test:32} {'fails' if failed else 'PASSES'}: {last[:120]}", flush=True)
        if not failed:
            survivors.append(mutant)
    if survivors:
        sys.exit("not noticed: " + " ".join(survivors))
    print("every broken broker was noticed")


if __name__ == "__main__":
    main()
