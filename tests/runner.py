# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of tests/suite, one after the other, and counts them.

quick: only the level quick; no word: quick and default; full: all, with MILLRACE_FULL=1, which makes
long tests run all their rounds. Names choose single tests. A test's output is shown when it fails.
"""
import os
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEVELS = {"quick": ("quick",), "default": ("quick", "default"), "full": ("quick", "default", "full")}
SKIPPED = 77
LIMIT_S = 1800
LIMIT_FULL_S = 7200


def suite():
    tests = []
    with open(os.path.join(TOP, "tests/suite"), encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                name, level, command = line.split(None, 2)
                tests.append((name, level, command.strip()))
    return tests


def choose(words):
    level = "default"
    if words and words[0] in ("quick", "full"):
        level = words.pop(0)
    known = suite()
    unknown = set(words) - {name for name, _, _ in known}
    if unknown:
        sys.exit(f"unknown test: {' '.join(sorted(unknown))}; tests/suite has: "
                 + " ".join(name for name, _, _ in known))
    if words:
        return level, [test for test in known if test[0] in words]
    return level, [test for test in known if test[1] in LEVELS[level]]


def run_one(name, command, full):
    log_path = os.path.join(TOP, "build", "test-logs", name + ".log")
    os.makedirs(os.path.dirname(log_path), exist_ok=True)
    environment = dict(os.environ, MILLRACE_FULL="1" if full else "0", PYTHONDONTWRITEBYTECODE="1",
                       PYTHONPATH=os.path.join(TOP, "tests"))
    start = time.monotonic()
    limit_s = LIMIT_FULL_S if full else LIMIT_S
    with open(log_path, "wb") as log:
        try:
            code = subprocess.run(command, shell=True, cwd=TOP, env=environment, stdout=log,
                                  stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                  timeout=limit_s, check=False).returncode
        except subprocess.TimeoutExpired:
            log.write(b"the runner's limit of %d s passed\n" % limit_s)
            code = -1
    took = time.monotonic() - start
    with open(log_path, encoding="utf-8", errors="replace") as log:
        output = log.read().rstrip().splitlines()
    return code, took, output


def main():
    level, tests = choose(sys.argv[1:])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failed = []
    if level != "full":
        print("sizes and rounds are reduced; scripts/test full runs all of them", flush=True)
    for name, _, command in tests:
        code, took, output = run_one(name, command, level == "full")
        result = "passed" if code == 0 else "skipped" if code == SKIPPED else "failed"
        counts[result] += 1
        tail = output[-1] if output else ""
        print(f"{result:8} {name:16} {took:7.1f} s  {tail if result != 'failed' else ''}", flush=True)
        if result == "failed":
            failed.append(name)
            print("\n".join("    " + line for line in output[-60:]), flush=True)
    if failed:
        print("failed: " + " ".join(failed))
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
