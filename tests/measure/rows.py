# SPDX-License-Identifier: Apache-2.0
"""The benchmarks by name: which loads, against which subjects, and what is told of each. Subjects of one load
take turns within a round, so that what else the machine does meets all of them."""
import collections
import json
import os
import statistics
import subprocess
import tempfile
import time

from lib.broker import PREFIX, TOP
from measure import floor
from measure.subjects import MILLRACE, WITH_US, hugepages, memif

Row = collections.namedtuple("Row", "name subject metric unit runs")
Load = collections.namedtuple("Load", "name kind words metrics")

GB = 1e9
RUN_S = 2
LOG_BYTES_MAX = 1 << 30        # produced in one run
CONSUME_BYTES = 384 << 20      # a log that stays in memory
COMPARED = ("kafka", "millrace", "millrace-tap", "null")
IDLE_S = 5


def rate(result, _):
    return result["records_per_s"]


def requests(result, _):
    return result["requests_per_s"]


def byte_rate(result, _):
    return result["bytes_per_s"]


def cpu(result, seconds):
    return seconds / (result["bytes"] / GB)


def p50(result, _):
    return result["latency_us"]["p50"]


def p99(result, _):
    return result["latency_us"]["p99"]


def client(result, _):
    return result["cpu_share"]


RECORDS = (("rate", "records/s", rate), ("bytes", "bytes/s", byte_rate), ("cpu", "CPU s/GB", cpu),
           ("p50", "us", p50), ("p99", "us", p99), ("load", "CPUs", client))
REQUESTS = (("rate", "requests/s", requests), *RECORDS[1:])
TRIPS = (("p50", "us", p50), ("p99", "us", p99), ("rate", "requests/s", requests))


def produce(name, record_bytes, words, metrics, batch_bytes=16384):
    """Ends by time, or when as much was written as one run may."""
    count = LOG_BYTES_MAX // batch_bytes
    return Load(name, "produce", ("--record-bytes", record_bytes, "--seconds", RUN_S, "--count", count,
                                  "--warmup", 0, "--create", *words), metrics)


LOADS = {
    "produce": (produce("produce-200", 200, ("-p", 1), RECORDS),
                produce("produce-1000", 1000, ("-p", 1), RECORDS)),
    "consume": (Load("consume-200", "fetch", ("--seconds", RUN_S), RECORDS),
                Load("consume-1000", "fetch", ("--seconds", RUN_S), RECORDS)),
    "single": (produce("single", 200, ("-p", 1, "--records", 1, "--in-flight", 64), REQUESTS, 270),),
    "sync": (produce("sync", 200, ("-p", 1, "--records", 1, "--in-flight", 1), TRIPS, 270),),
    "spread": (produce("spread", 1024, ("-p", 12, "--records", 1, "--connections", 50), REQUESTS, 1100),),
    "end-to-end": (Load("end-to-end", "end-to-end", ("--rate", 1000, "--seconds", RUN_S, "--create"), TRIPS),),
}
SUBJECTS = {"end-to-end": ("kafka", "millrace", "millrace-tap")}

# Over memif, beside testpmd and the bare echo on the same kind of memif.
MEMIF_LOADS = (
    produce("memif-produce", 200, ("-p", 1), RECORDS),
    Load("memif-fetch", "fetch", ("-t", "memif-log", "--seconds", RUN_S, "--connections", 8), RECORDS),
    produce("memif-single", 200, ("-p", 1, "--records", 1, "--in-flight", 64), REQUESTS, 270),
    produce("memif-trip", 200, ("-p", 1, "--records", 1, "--in-flight", 1), TRIPS, 270),
)


class Collected:
    """Figures of a run in the order they came."""

    def __init__(self, say):
        self.runs = {}
        self.say = say

    def add(self, load, subject, result, seconds):
        for metric, unit, figure in load.metrics:
            self.add_one(load.name, subject, metric, unit, figure(result, seconds))
        metric, unit, figure = load.metrics[0]
        self.say(f"{load.name:14} {subject:15} {metric} {figure(result, seconds):.5g} {unit}")

    def add_one(self, name, subject, metric, unit, value):
        self.runs.setdefault((name, subject, metric, unit), []).append(value)

    def rows(self):
        return [Row(*key, runs) for key, runs in self.runs.items()]


def topic_of(load, number):
    return f"{load.name}-{number}-{os.getpid()}"


def fill(subject, load):
    """The log that a load of fetches reads over and over. ret: its topic."""
    record_bytes = load.name.rsplit("-", 1)[1]
    topic = topic_of(load, 0)
    if subject.name != "null":
        subject.load("produce", "-t", topic, "-p", 1, "--create", "--record-bytes", record_bytes, "--count",
                     CONSUME_BYTES // 16384)
    return topic


def run_loads(name, subjects, rounds, collected):
    """One benchmark: rounds of its loads, the subjects in turn. A first round is not counted."""
    names = SUBJECTS.get(name, COMPARED)
    for load in LOADS[name]:
        opened = [subjects.get(one) for one in names]
        logs = {one.name: fill(one, load) for one in opened} if load.kind == "fetch" else {}
        for number in range(rounds + 1):
            for subject in opened:
                topic = logs.get(subject.name, topic_of(load, number))
                result, seconds = subject.load(load.kind, "-t", topic, *load.words)
                if number > 0:
                    collected.add(load, subject.name, result, seconds)
                if not logs and subject.name != "null":
                    subject.delete(topic)
        for subject in opened:
            if subject.name in logs and subject.name != "null":
                subject.delete(logs[subject.name])


def idle(subjects, rounds, collected):
    """CPU without a client, and resident memory."""
    for _ in range(rounds):
        for name in ("kafka", "millrace", "millrace-tap"):
            subject = subjects.get(name)
            before = subject.cpu_seconds()
            time.sleep(IDLE_S)
            share = (subject.cpu_seconds() - before) / IDLE_S
            collected.add_one("idle", name, "cpu", "CPUs", share)
            collected.add_one("idle", name, "memory", "bytes", subject.memory_bytes())
            collected.say(f"idle           {name:15} cpu {share:.4f} CPUs")


# --- memif -------------------------------------------------------------------------------------------------

def echo(frame_bytes):
    """p50 and p99 of bare frames in microseconds, one CPU each."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder, hugepages(256):
        device = f"net_memif0,socket={folder}/socket,role="
        server = subprocess.Popen([*WITH_US, "taskset", "-c", "1", MILLRACE, "bench", "echo", "--server", "--device",
                                   device + "server"], stdout=subprocess.PIPE, text=True)
        try:
            assert "ready" in server.stdout.readline(), "the echo does not start"
            done = subprocess.run(["taskset", "-c", "0", MILLRACE, "bench", "echo", "--device",
                                   device + "client", "--frame-bytes", str(frame_bytes), "--seconds", "1",
                                   "-o", "json"], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        finally:
            server.terminate()
            server.wait(timeout=30)
    return json.loads(done.stdout)["latency_us"]


def memif_round(number, collected):
    """A broker of its own for each round, because its log lies on tmpfs and cannot be deleted from here."""
    with memif() as subject:
        for load in MEMIF_LOADS:
            words = load.words if load.kind == "fetch" else ("-t", topic_of(load, number), *load.words)
            if load.kind == "fetch":
                subject.load("produce", "-t", "memif-log", "-p", 1, "--create", "--count",
                             CONSUME_BYTES // 16384)
            result, seconds = subject.load(load.kind, *words)
            collected.add(load, subject.name, result, seconds)
    packets = floor.memif_rate(1500, 2)
    collected.add_one("memif-fetch", "testpmd", "bytes", "bytes/s", packets * 1500)
    collected.say(f"memif-fetch    testpmd         bytes {packets * 1500:.5g} bytes/s")
    latency = echo(64)
    collected.add_one("memif-trip", "echo", "p50", "us", latency["p50"])
    collected.add_one("memif-trip", "echo", "p99", "us", latency["p99"])
    collected.say(f"memif-trip     echo            p50 {latency['p50']:.5g} us")


def run_memif(_, rounds, collected):
    for number in range(rounds):
        memif_round(number, collected)


def run_wake(_, rounds, collected):
    """How long sleeping cores take to look, over each transport: tests/clients/idle_ports.py has them all."""
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
            path = os.path.join(folder, "rows")
            subprocess.run(["/usr/bin/python3", "-B", os.path.join(TOP, "tests/clients/idle_ports.py")], check=True,
                           stdout=subprocess.DEVNULL, env=dict(os.environ, MILLRACE_IDLE_JSON=path,
                                                               PYTHONPATH=os.path.join(TOP, "tests")))
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        for row in rows:
            for metric, unit, name in (("p50", "us", "p50_us"), ("p99", "us", "p99_us"), ("max", "us", "max_us"),
                                       ("idle", "CPUs", "idle_share"), ("turns", "turns/s", "turns_per_s")):
                collected.add_one("wake", row["transport"], metric, unit, row[name])
            collected.say(f"wake           {row['transport']:15} p50 {row['p50_us']:.5g} us")


def keep(loads):
    """Leaves out all loads but these: for tests that need few of them."""
    for name, all_of_it in LOADS.items():
        LOADS[name] = tuple(load for load in all_of_it if load.name in loads)


def names():
    return ["floor", *LOADS, "idle", "memif", "wake"]


def run(name, subjects, rounds, collected):
    if name == "idle":
        idle(subjects, rounds, collected)
    elif name == "memif":
        run_memif(subjects, rounds, collected)
    elif name == "wake":
        run_wake(subjects, rounds, collected)
    else:
        run_loads(name, subjects, rounds, collected)


def median(rows, name, subject, metric):
    """ret: None when that was not measured."""
    for row in rows:
        if (row.name, row.subject, row.metric) == (name, subject, metric):
            return statistics.median(row.runs)
    return None


def runs_of(rows, name, subject, metric):
    for row in rows:
        if (row.name, row.subject, row.metric) == (name, subject, metric):
            return row.runs
    return []
