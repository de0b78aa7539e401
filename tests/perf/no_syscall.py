#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A running core makes no system call and allocates nothing: strace on the thread of a `busy` core under
load counts 0, over net_ring and over memif with the client in a process of its own, and a build whose
allocator aborts on that thread carries the same load. Builds with one system call, or one allocation, in a
thousand turns show that both checks can fail, over both."""
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
# Load behind the watched time, so that its end is never watched; more when strace was late.
MARGINS_S = (2, 8, 30)
START_S = 60
END_S = 120


class Load:
    """One run of the load program; its folders are gone at the end, also after an abort."""

    def __init__(self, program, *options):
        self.name = program
        self.folder = tempfile.mkdtemp(prefix="millrace-test-", dir="/var/tmp")
        self.output_path = os.path.join(self.folder, "output")
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(
                [os.path.join(PROGRAMS, program), *options],
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

    def wait(self, text):
        limit = time.monotonic() + START_S
        while text not in self.output():
            assert self.process.poll() is None, f"{self.name} ended early:\n{self.output()}"
            assert time.monotonic() < limit, f"{self.name} never said {text}:\n{self.output()}"
            time.sleep(0.05)

    def core(self):
        """ret: thread id of the core."""
        self.wait("core tid=")
        return int(re.search(r"^core tid=(\d+)", self.output(), re.M).group(1))

    def end(self):
        """Waits for it. ret: exit code."""
        return self.process.wait(timeout=END_S)


class Alone:
    """Broker and client in one process, joined by net_ring."""

    def __init__(self, program, seconds, *options):
        self.client = self.broker = Load(program, "--seconds", str(seconds), *options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.broker.__exit__()

    def end(self):
        return self.broker.end()


class Joined:
    """A broker, and a client in a process of its own that is always a sound one, joined by memif."""

    def __init__(self, program, seconds, *options):
        self.folder = tempfile.mkdtemp(prefix="millrace-test-")
        device = f"net_memif0,socket={self.folder}/socket,role="
        self.broker = Load(program, "--broker", device + "server", *options)
        while self.broker.process.poll() is None and "core tid=" not in self.broker.output():
            time.sleep(0.05)  # until it serves; a broken one may end before
        self.client = Load("perf_ring_load", "--client", device + "client", "--seconds", str(seconds))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.__exit__()
        self.broker.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self):
        if self.broker.process.poll() is None:
            assert self.client.end() == 0, self.client.output()
            self.broker.process.terminate()
        return self.broker.end()


def trace(tid, seconds, folder):
    """System calls of one thread while it is watched, as strace writes them; None when it ended before."""
    path = os.path.join(folder, "strace")
    tracer = subprocess.Popen(["strace", "-p", str(tid), "-o", path], stderr=subprocess.PIPE, text=True)
    first = tracer.stderr.readline()
    if "attached" not in first:
        tracer.wait()
        skip(f"strace cannot watch a thread here: {first.strip()}")
    time.sleep(seconds)
    tracer.send_signal(signal.SIGINT)
    rest = tracer.communicate(timeout=30)[1]
    if "detached" not in rest:
        return None
    with open(path, encoding="utf-8") as lines:
        return [line.strip() for line in lines if not line.startswith(("---", "+++"))]


def watched(kind, program, seconds, *options):
    """Runs the load and watches the core in its midst. ret: its system calls, what both ends said."""
    for margin_s in MARGINS_S:
        with kind(program, seconds + margin_s, *options) as load:
            load.client.wait("load begins")
            calls = trace(load.broker.core(), seconds, load.broker.folder)
            inside = calls is not None and "load ends" not in load.client.output()
            assert load.end() == 0, load.broker.output()
            if inside:
                return calls, load.client.output()
    raise AssertionError("the load ended while it was watched")


def ended(kind, program, seconds):
    """Runs the load. ret: the broker's exit code and what it said."""
    with kind(program, seconds) as load:
        while load.broker.process.poll() is None and load.client.process.poll() is None:
            time.sleep(0.05)
        return load.end(), load.broker.output()


def figure(output, name):
    return float(re.search(rf"^{name} +([0-9.]+)", output, re.M).group(1))


def check(kind, seconds):
    """ret: what the sound one's client said."""
    calls, output = watched(kind, "perf_ring_load", seconds)
    print(output)
    assert not calls, f"{len(calls)} system calls on the core: {calls[:10]}"
    assert figure(output, "answers/s") > 0 and figure(output, "fetched bytes/s") > 0, output

    code, said = ended(kind, "perf_ring_load_guarded", seconds)
    assert code == 0, said

    calls, _ = watched(kind, "perf_ring_load_syscall", SHORT_S)
    assert calls, "a core that calls the kernel was not noticed"
    code, said = ended(kind, "perf_ring_load_allocates", SHORT_S)
    assert code == -signal.SIGABRT, "a core that allocates was not noticed"
    assert "malloc: called on a poll core" in said, said
    return output


def main():
    if not shutil.which("strace"):
        skip("strace is not installed")
    seconds = pick(10, 3)
    alone = check(Alone, seconds)
    joined = check(Joined, seconds)
    calls, _ = watched(Alone, "perf_ring_load", SHORT_S, "--epoll")
    assert not calls, f"{len(calls)} system calls on the core with epoll: {calls[:10]}"
    print(f"0 system calls in {seconds} s, no allocation; over net_ring "
          f"{figure(alone, 'requests/s'):.0f} requests/s, "
          f"{figure(alone, 'cycles per request'):.0f} cycles per request; over memif "
          f"{figure(joined, 'answers/s'):.0f} answers/s")


if __name__ == "__main__":
    sys.exit(main())
