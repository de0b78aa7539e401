# SPDX-License-Identifier: Apache-2.0
"""What the machine gives in this run: memory, files, CPU (tests/perf/floor.c), the packet rates of the virtual
devices by testpmd, and one TCP stream over loopback by iperf3."""
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from lib import lab
from lib.broker import PREFIX, TOP
from measure.subjects import WITH_US, hugepages

TESTPMD = "dpdk-testpmd"
MEASURE_S = 2
START_S = 30
PAGES = 128
NICE = -15


def machine():
    with open("/proc/cpuinfo", encoding="ascii") as info:
        model = re.search(r"model name\s*: (.*)", info.read()).group(1)
    with open("/proc/meminfo", encoding="ascii") as info:
        memory = int(info.readline().split()[1]) * 1024
    return {"cpu": model, "cpus": os.cpu_count(), "memory_bytes": memory, "kernel": os.uname().release,
            "load_average": os.getloadavg()[0], "steal_ticks": steal()}


def steal():
    """Of all CPUs since boot: the difference over a run tells what other machines took."""
    with open("/proc/stat", encoding="ascii") as stat:
        return int(stat.readline().split()[8])


@contextlib.contextmanager
def ahead():
    """What is started meanwhile runs before other work of the machine, which would be measured too. Nice
    values count within a group of processes only, where the kernel groups them by login."""
    group = "/proc/self/autogroup"
    before = os.nice(0)
    os.nice(NICE - before)
    grouped = os.path.exists(group)
    if grouped:
        write(group, str(NICE))
    try:
        yield
    finally:
        if grouped:
            write(group, "0")
        os.nice(before - NICE)


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def programs(folder):
    text = subprocess.run([os.path.join(TOP, "build/tests/perf/perf_floor"), folder], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=120).stdout
    return json.loads(text)


def iperf():
    """One stream over loopback, bytes a second."""
    server = subprocess.Popen([*WITH_US, "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", "15201", "-J"],
                              stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        done = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", "15201", "-t", str(MEASURE_S), "-J"],
                              stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        server.wait(timeout=10)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8


class Testpmd:
    """One testpmd on one CPU; its second lcore, which only prints, is on the same."""

    def __init__(self, device, mode, cpu, frame_bytes=64, inside=()):
        self.output = tempfile.TemporaryFile()
        prefix = f"{PREFIX}testpmd-{os.getpid()}-{mode}"
        self.process = subprocess.Popen(
            [*WITH_US, *inside, TESTPMD, "--lcores", f"0@{cpu},1@{cpu}", "--in-memory", "--single-file-segments",
             "--no-pci", "--iova-mode=va", "-m", "128", "--file-prefix", prefix, "--vdev", device, "--",
             "--forward-mode", mode, "--txpkts", str(frame_bytes), "--total-num-mbufs=16384",
             "--stats-period=1", "--auto-start", "--no-mlockall"],
            stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def text(self):
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), size, 0).decode("utf-8", "replace")

    def wait(self, happened):
        limit = time.monotonic() + START_S
        while not happened():
            assert self.process.poll() is None and time.monotonic() < limit, self.text()[-3000:]
            time.sleep(0.1)

    def best(self, name, seconds):
        """Packets a second, the best of so many seconds after the first packets."""
        self.wait(lambda: any(self.rates(name)))
        seen = len(self.rates(name))
        time.sleep(seconds + 1)
        return max(self.rates(name)[seen:])

    def rates(self, name):
        """As printed each second."""
        return [int(rate) for rate in re.findall(name + r"-pps:\s+(\d+)", self.text())]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()


def memif_rate(frame_bytes, seconds=MEASURE_S):
    """Frames a second that one process sends and another receives, one CPU each."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder, hugepages(2 * PAGES):
        device = f"net_memif0,socket={folder}/socket,socket-abstract=no,rsize=11,zero-copy=no,role="
        with Testpmd(device + "server", "rxonly", 1) as receiver:
            receiver.wait(lambda: os.path.exists(f"{folder}/socket"))  # its peer tries once
            with Testpmd(device + "client", "txonly", 0, frame_bytes):
                return receiver.best("Rx", seconds)


@contextlib.contextmanager
def network(kind):
    """A namespace of its own with what a broker's NIC listener would open."""
    made = lab.make(f"mill-test-floor-{os.getpid()}", kind)
    made.up()
    try:
        yield made
    finally:
        made.down()


def send_rate(kind, frame_bytes):
    """Frames a second that the kernel takes from one process."""
    with network(kind) as net, hugepages(PAGES):
        inside = ("ip", "netns", "exec", net.nic_netns)
        with Testpmd(net.device(), "txonly", 1, frame_bytes, inside) as sender:
            return sender.best("Tx", MEASURE_S)


def floor(folder, say):
    """All of it, as one flat object."""
    result = programs(folder)
    say("floor: memory, files, spinning core measured")
    result["iperf3_bytes_per_s"] = iperf()
    say("floor: iperf3 measured")
    for name in ("memif", "tap", "xdp"):
        for frame_bytes in (64, 1500):
            rate = memif_rate(frame_bytes) if name == "memif" else send_rate(name, frame_bytes)
            result[f"testpmd_{name}_{frame_bytes}_packets_per_s"] = rate
        say(f"floor: testpmd over {name} measured")
    return result
