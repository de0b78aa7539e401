# SPDX-License-Identifier: Apache-2.0
"""What is measured: Kafka, Millrace over each transport, and a null server, each with an address, the way a
load reaches it, and the processes whose CPU and memory are its own."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

from lib.broker import MEMIF_HOST, PREFIX, TOP, Broker, free_port
from measure.kafka import WITH_US, Kafka

TICKS = os.sysconf("SC_CLK_TCK")
MILLRACE = os.path.join(TOP, "build/millrace")
ARENA_MB = 1024  # as much as Kafka's heap
LIMIT_S = 120
SHM = "/dev/shm"
MEMIF_CLIENT = "198.18.1.2/24"
MEMORY = {"dataplane.idle": "busy", "dpdk.port.mem0.rx.csum": "trust", "dpdk.port.mem0.tx.csum": "off"}
EAL_PAGES = 128  # of a load over memif


class Subject:
    """`load` runs millrace bench against it."""

    def __init__(self, name, address, pids, inside=(), device=()):
        self.name = name
        self.address = address
        self.pids = pids
        self.inside = list(inside)
        self.device = list(device)

    def load(self, kind, *words):
        """ret: what the load printed, and the CPU seconds the subject took meanwhile."""
        before = self.cpu_seconds()
        done = subprocess.run([*self.inside, MILLRACE, "bench", kind, "-b", self.address, "-o", "json",
                               *self.device, *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        took = self.cpu_seconds() - before
        assert done.returncode == 0, f"{self.name}: {kind} {words}: {done.stderr}{done.stdout}"
        return json.loads(done.stdout), took

    def delete(self, topic):
        """Only where a client without our stack gets to; elsewhere the log stays until the end."""
        if not self.device:
            subprocess.run([*self.inside, MILLRACE, "topic", "delete", topic, "-b", self.address],
                           stdout=subprocess.DEVNULL, check=True, timeout=LIMIT_S)

    def cpu_seconds(self):
        total = 0
        for pid in self.pids:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                words = stat.read().rsplit(")", 1)[1].split()
            total += int(words[11]) + int(words[12])
        return total / TICKS

    def memory_bytes(self):
        """Resident memory, hugepages included; what processes share is counted once."""
        total = 0
        for pid in self.pids:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
                for line in rollup:
                    if line.startswith(("Pss:", "Private_Hugetlb:", "Shared_Hugetlb:")):
                        total += int(line.split()[1]) * 1024
        return total


@contextlib.contextmanager
def hugepages(count):
    """So many more while it lasts."""
    path = "/proc/sys/vm/nr_hugepages"
    with open(path, encoding="ascii") as file:
        before = int(file.read())
    with open(path, "w", encoding="ascii") as file:
        file.write(str(before + count))
    try:
        yield
    finally:
        with open(path, encoding="ascii") as file:
            now = int(file.read())
        with open(path, "w", encoding="ascii") as file:
            file.write(str(max(now - count, 0)))


@contextlib.contextmanager
def millrace(name, **kwargs):
    """A broker whose log lies on tmpfs, as Kafka's."""
    data = tempfile.mkdtemp(prefix=PREFIX + "data-", dir=SHM)
    settings = {"log.dirs": os.path.join(data, "log"), "hugepages.size.mb": ARENA_MB,
                **kwargs.pop("settings", {})}
    try:
        with Broker(nic=name == "millrace-tap", kind="tap", settings=settings, **kwargs) as broker:
            broker.start()
            yield broker
    finally:
        shutil.rmtree(data, ignore_errors=True)


def pids(broker):
    return [broker.pid(name) for name in ("supervisor", "millraced", "control")]


@contextlib.contextmanager
def kernel():
    with millrace("millrace") as broker:
        yield Subject("millrace", broker.address("LOCAL"), pids(broker))


@contextlib.contextmanager
def tap():
    with millrace("millrace-tap") as broker:
        yield Subject("millrace-tap", broker.address("NIC"), pids(broker), inside=broker.inside("NIC"))


@contextlib.contextmanager
def memif():
    """Both ends trust their memory: no TCP sums; one CPU each."""
    with hugepages(EAL_PAGES), millrace("millrace-memif", memif=True,
                                        settings=MEMORY) as broker:
        device = f"net_memif0,role=client,socket={broker.memif_socket}"
        yield Subject("millrace-memif", f"{MEMIF_HOST}:9092", pids(broker), inside=("taskset", "-c", "0"),
                      device=("--device", device, "--address", MEMIF_CLIENT, "--rx-csum", "trust",
                              "--tx-csum", "off"))


@contextlib.contextmanager
def kafka():
    with Kafka(SHM) as broker:
        broker.start()
        subject = Subject("kafka", broker.address(), broker.pids())
        warm(subject)
        yield subject


def warm(subject):
    """Until the Java compiler has seen all that will be measured."""
    for number in range(2):
        for words in (("-p", 1), ("-p", 1, "--records", 1, "--in-flight", 64),
                      ("-p", 12, "--records", 1, "--record-bytes", 1024, "--connections", 50)):
            topic = f"warm-{number}"
            subject.load("produce", "-t", topic, "--create", "--seconds", 2, *words)
            subject.load("fetch", "-t", topic, "-p", 1, "--seconds", 1)
            subject.delete(topic)


@contextlib.contextmanager
def null():
    """Answers without a broker's work: the most that load, transport and machine give."""
    port = free_port()
    process = subprocess.Popen([*WITH_US, MILLRACE, "bench", "null-server", "-b", f"127.0.0.1:{port}", "-p", "12"],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert "ready" in process.stdout.readline(), "the null server does not start"
        yield Subject("null", f"127.0.0.1:{port}", [process.pid])
    finally:
        process.terminate()
        process.wait(timeout=30)


MAKERS = {"kafka": kafka, "millrace": kernel, "millrace-tap": tap, "null": null, "millrace-memif": memif}


class Subjects(contextlib.ExitStack):
    """Opens each subject when it is first asked for and keeps it."""

    def __init__(self):
        super().__init__()
        self.open = {}

    def get(self, name):
        if name not in self.open:
            self.open[name] = self.enter_context(MAKERS[name]())
        return self.open[name]
