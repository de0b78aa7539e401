# SPDX-License-Identifier: Apache-2.0
"""The check used by all fault tests: what was acknowledged is there, once, in order, unchanged.

Producers run as processes of their own where their listener is reachable (oracle_producer.py): each writes
numbered values to one partition with idempotence and acks=all and logs what was acknowledged. The reader
takes the whole partition and compares."""
import json
import os
import signal
import subprocess
import time

from lib.broker import TOP

PRODUCER = os.path.join(TOP, "tests/lib/oracle_producer.py")
READER = os.path.join(TOP, "tests/lib/oracle_reader.py")


class Load:
    """Idempotent producers, one per (listener, partition)."""

    def __init__(self, broker, topic, listeners, partitions=None, rate=0):
        self.broker = broker
        self.topic = topic
        self.workers = []
        count = len(listeners)
        for number, listener in enumerate(listeners):
            partition = number if partitions is None else partitions[number]
            log = os.path.join(broker.home, f"{topic}-{partition}.acked")
            command = broker.inside(listener) + ["/usr/bin/python3", "-B", PRODUCER,
                                                 broker.address(listener), topic, str(partition),
                                                 log, str(rate)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            self.workers.append((process, listener, partition, log))
        assert count == len(self.workers)

    def wait_running(self, timeout=60):
        """Until every producer has something acknowledged."""
        deadline = time.monotonic() + timeout * self.broker.slowness
        for process, listener, partition, log in self.workers:
            while not (os.path.exists(log) and os.path.getsize(log)):
                assert process.poll() is None, f"producer {partition} through {listener} ended"
                assert time.monotonic() < deadline, f"nothing acknowledged through {listener}"
                time.sleep(0.05)

    def stop(self, timeout=330):
        """Lets the producers finish what they have in flight. Returns their reports."""
        reports = []
        for process, _, _, _ in self.workers:
            process.send_signal(signal.SIGTERM)
        for process, listener, partition, log in self.workers:
            code = process.wait(timeout=timeout)
            assert os.path.exists(log + ".report"), f"producer {partition} through {listener} ended with {code}, no report"
            with open(log + ".report", encoding="utf-8") as file:
                report = json.load(file)
            report.update(listener=listener, partition=partition, code=code)
            reports.append(report)
        return reports

    def end(self):
        for process, _, _, _ in self.workers:
            if process.poll() is None:
                process.kill()
                process.wait()


def check(broker, topic, reports, listener=None):
    """Reads every partition back and holds it against what was acknowledged."""
    total = 0
    for report in reports:
        assert report["code"] == 0, report
        assert not report["fatal"], report
        text = broker.python(listener or broker.admin, READER, topic, str(report["partition"]))
        got = json.loads(text.splitlines()[-1])
        assert got["gaps"] == 0 and got["repeated"] == 0 and got["wrong"] == 0, (report, got)
        # Every acknowledged number is there; a few more may be that were never acknowledged.
        assert got["next"] >= report["acked_next"], (report, got)
        total += got["next"]
    return total
