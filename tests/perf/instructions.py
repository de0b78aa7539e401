#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions per request through TCP, protocol and log (tests/perf/instructions.c, under callgrind) are at
most 5 % above tests/perf/instructions.txt; a build with one pass over the bytes too many is seen above it.

The same figure on every x86-64: callgrind counts instructions, not time; the routine of ISA-L is fixed when the
program is linked; libc's choice by CPU is fixed by GLIBC_TUNABLES, and whether that worked is looked up in
the names of what ran. `tests/perf/instructions.py --update` writes the file anew: commit it with the
change that explains it."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # also run by hand
from lib.broker import TOP, skip  # noqa: E402

PROGRAM = os.path.join(TOP, "build/tests/perf/perf_instructions")
BROKEN = PROGRAM + "_pass"
FIGURES = os.path.join(TOP, "tests/perf/instructions.txt")
REQUESTS = 256  # of each kind: REQUESTS in instructions.c
ABOVE = 0.05
BELOW = 0.02    # worth an update
PLAIN_LIBC = "glibc.cpu.hwcaps=" + ",".join(
    "-" + feature for feature in ("AVX512F", "AVX512VL", "AVX2", "AVX", "AVX_Fast_Unaligned_Load", "BMI2", "ERMS",
                                  "FSRM", "SSSE3", "SSE4_1", "SSE4_2", "RTM", "MOVBE"))
CHOSEN = re.compile(r"\) (__\w+_(?:avx\w*|evex\w*|ssse3\w*|sse4\w*|sse2_unaligned_erms))$", re.M)


def measure(program):
    """Instructions per request, by kind."""
    figures = {}
    with tempfile.TemporaryDirectory(prefix="millrace-test-") as folder:
        done = subprocess.run(
            ["setarch", "-R", "valgrind", "--tool=callgrind", "--collect-atstart=no",
             f"--callgrind-out-file={folder}/out", program],
            env={"GLIBC_TUNABLES": PLAIN_LIBC, "PATH": os.environ["PATH"]}, text=True,
            capture_output=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{REQUESTS} requests of each kind" in done.stdout, done.stdout
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as dump:
                text = dump.read()
            part = re.search(r"^desc: Trigger: Client Request: (\S+)$", text, re.M)
            other = CHOSEN.search(text)
            assert not other, f"libc ran {other.group(1)}: its choice by CPU is not fixed any more"
            if part:
                figures[part.group(1)] = int(re.search(r"^summary: (\d+)", text, re.M).group(1)) / REQUESTS
    return figures


def committed():
    with open(FIGURES, encoding="ascii") as lines:
        return {line.split()[0]: int(line.split()[1]) for line in lines if line.strip() and line[0] != "#"}


def update(figures):
    with open(FIGURES, "w", encoding="ascii") as out:
        out.write("# Instructions per request: a batch of 16 KiB (74 records), a fetch of 64 KiB, one record\n"
                  "# of 200 B. Written by tests/perf/instructions.py --update.\n")
        for name, figure in figures.items():
            out.write(f"{name:12} {figure:.0f}\n")
    print(f"{FIGURES} is written; commit it with the change that explains it")


def compare(figures, wanted):
    """Lines about each kind; those above the bound."""
    above = []
    for name, limit in wanted.items():
        change = figures[name] / limit - 1
        print(f"{name:12} {figures[name]:9.0f} a request, committed {limit:9} ({change:+.1%})")
        if change > ABOVE:
            above.append(name)
        elif change < -BELOW:
            print(f"{name} became cheaper: tests/perf/instructions.py --update, and commit it")
    return above


def main():
    if not os.path.exists(PROGRAM):
        skip("valgrind was not there when the tree was configured: scripts/setup test, scripts/build")
    figures = measure(PROGRAM)
    if sys.argv[1:] == ["--update"]:
        update(figures)
        return
    wanted = committed()
    assert set(figures) == set(wanted), f"kinds are {sorted(figures)}, committed {sorted(wanted)}"
    above = compare(figures, wanted)
    assert not above, (f"more than {ABOVE:.0%} above tests/perf/instructions.txt: {' '.join(above)}; "
                       "mend it, or say why in the commit that updates the file")
    broken = measure(BROKEN)
    assert "produce-16k" in compare(broken, wanted), "a pass over the bytes too many was not noticed"
    print(" ".join(f"{name}={figure:.0f}" for name, figure in figures.items())
          + "; one more pass over the bytes is noticed")


if __name__ == "__main__":
    main()
