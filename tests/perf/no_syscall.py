#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A running core makes no system call and allocates nothing: strace on the thread of a `busy` core under
load over net_ring counts 0, and a build whose allocator aborts on that thread carries the same load.
Builds with one system call, or one allocation, in a thousand turns show that both checks can fail."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lib.broker import TOP, pick, skip

PROGRAMS = os.path.join(TOP, "build/tests/perf")
SHORT_S = 1    # where the same load was already watched at length
MARGIN_S = 3   # load behind the watched time, so that its end is never watched
START_S = 60
END_S = 120


class Load:
    """One run of the load program; its folders are gone at the end, also after an abort."""

    def __init__(self, program, seconds, *options):
        self.name = program
        self.seconds = seconds
        self.folder = tempfile.mkdtemp(prefix="millrace-test-", dir="/var/tmp")
        self.output_path = os.path.join(self.folder, "output")
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(
                [os.path.join(PROGRAMS, program), "--seconds", str(seconds), *options],
                stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ, TMPDIR=self.folder))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        pid = self.process.pid
        for path in [self.folder, f"/var/run/dpdk/mill-ring-load-{pid}",
                     *glob.glob(f"/dev/shm/millrace-ring-{pid}-*")]:
            shutil.rmtree(path, ignore_errors=True)

    def output(self):
        with open(self.output_path, encoding="utf-8", errors="replace") as output:
            return output.read()

    def wait_begin(self):
        """ret: thread id of the core, once the load has begun."""
        limit = time.monotonic() + START_S
        while "load begins" not in self.output():
            assert self.process.poll() is None, f"{self.name} ended early:\n{self.output()}"
            assert time.monotonic() < limit, f"{self.name} never began:\n{self.output()}"
            time.sleep(0.05)
        return int(re.search(r"^core tid=(\d+)", self.output(), re.M).group(1))

    def wait_end(self):
        return self.process.wait(timeout=self.seconds + END_S)


def trace(tid, seconds, folder):
    """System calls of one thread while it is watched, as strace writes them."""
    path = os.path.join(folder, "strace")
    tracer = subprocess.Popen(["strace", "-p", str(tid), "-o", path], stderr=subprocess.PIPE, text=True)
    first = tracer.stderr.readline()
    if "attached" not in first:
        tracer.wait()
        skip(f"strace cannot watch a thread here: {first.strip()}")
    time.sleep(seconds)
    tracer.send_signal(signal.SIGINT)
    rest = tracer.communicate(timeout=30)[1]
    assert "detached" in rest, f"the watched thread ended: {rest}"
    with open(path, encoding="utf-8") as lines:
        return [line.strip() for line in lines if not line.startswith(("---", "+++"))]


def watched(program, seconds, *options):
    """Runs the load and watches the core in its midst. ret: its system calls, the program's output."""
    with Load(program, seconds + MARGIN_S, *options) as load:
        tid = load.wait_begin()
        calls = trace(tid, seconds, load.folder)
        assert "load ends" not in load.output(), "the load ended while it was watched"
        assert load.wait_end() == 0, load.output()
        return calls, load.output()


def figure(output, name):
    return float(re.search(rf"^{name} +([0-9.]+)", output, re.M).group(1))


def main():
    if not shutil.which("strace"):
        skip("strace is not installed")
    seconds = pick(10, 3)
    calls, output = watched("perf_ring_load", seconds)
    print(output)
    assert not calls, f"{len(calls)} system calls on the core: {calls[:10]}"
    rate = figure(output, "requests/s")
    assert rate > 0 and figure(output, "fetched bytes/s") > 0, output

    calls, _ = watched("perf_ring_load", SHORT_S, "--epoll")
    assert not calls, f"{len(calls)} system calls on the core with epoll: {calls[:10]}"

    with Load("perf_ring_load_guarded", seconds) as load:
        assert load.wait_end() == 0, load.output()

    calls, _ = watched("perf_ring_load_syscall", SHORT_S)
    assert calls, "a core that calls the kernel was not noticed"
    with Load("perf_ring_load_allocates", SHORT_S) as load:
        assert load.wait_end() == -signal.SIGABRT, "a core that allocates was not noticed"
        assert "malloc: called on a poll core" in load.output(), load.output()
    print(f"0 system calls in {seconds} s, no allocation; {rate:.0f} requests/s, "
          f"{figure(output, 'cycles per request'):.0f} cycles per request")


if __name__ == "__main__":
    sys.exit(main())
