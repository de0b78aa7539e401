#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""millrace top shows what a load does, per core, listener, port, partition and stage: as JSON, as plain lines,
and on a terminal, where it draws in place, sorts and quits by keys. It ends when the instance stops."""
import json
import os
import pty
import select
import subprocess
import time

from lib.broker import TOP, Broker

TRIES = 4
RATE = 400  # records a second offered
RECORD = "x" * 200 + "\n"


def command(broker, *more):
    return [os.path.join(broker.build, "millrace"), "top", "--dir", broker.run_dir, *more]


class Load:
    """Offers records at a steady rate until it is left."""

    def __init__(self, broker, topic, listener):
        self.process = subprocess.Popen(
            [*broker.inside(listener), "kcat", "-b", broker.address(listener), "-P", "-t", topic, "-X",
             "linger.ms=5"], stdin=subprocess.PIPE, text=True)

    def feed(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.process.stdin.write(RECORD * (RATE // 20))
            self.process.stdin.flush()
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def as_json(broker, load):
    """Rates of a load that a busy machine may not offer evenly: one of several intervals must fit."""
    for left in reversed(range(TRIES)):
        try:
            return one_interval(broker, load)
        except AssertionError:
            if left == 0:
                raise


def one_interval(broker, load):
    top = subprocess.Popen(command(broker, "--once", "-o", "json", "-i", "2000"), stdout=subprocess.PIPE, text=True)
    load.feed(2.5)
    shown = json.loads(top.communicate(timeout=10)[0])
    assert top.returncode == 0 and 1.9 < shown["interval_s"] < 4, shown["interval_s"]
    core, = shown["cores"]
    busy = {(row["topic"], row["partition"]): row for row in shown["partitions"]}
    row = busy[("live", 0)]
    offered = RATE * len(RECORD)
    assert 0.5 * RATE < row["records_s"] < 1.5 * RATE, row
    assert 0.5 * offered < row["bytes_in_s"] < 2 * offered, row
    assert 0 < core["busy_ratio"] < 1 and core["requests_s"] > 1, core
    assert abs(core["bytes_in_s"] - row["bytes_in_s"]) < 0.2 * row["bytes_in_s"], (core, row)
    nic = next(one for one in shown["listeners"] if one["name"] == "NIC")
    assert abs(nic["bytes_in_s"] - core["bytes_in_s"]) < 0.2 * core["bytes_in_s"], nic
    port, = shown["ports"]
    assert port["rx_bytes_s"] > nic["bytes_in_s"] and port["link"] == "up", port
    stages = {(one["api"], one["stage"]): one for one in shown["stages"]}
    for stage in ("complete", "appended", "answered", "acked"):
        one = stages[("produce", stage)]
        assert one["count"] > 5 and one["p50_us"] <= one["p99_us"] <= one["max_us"], one
    assert stages[("produce", "appended")]["count"] < 3 * core["requests_s"] * shown["interval_s"], "not of the interval"
    status = broker.status()
    total = {(one["api"], one["stage"]): one["count"] for one in status["stages"]}
    assert total[("produce", "appended")] >= stages[("produce", "appended")]["count"]
    assert status["control"]["topics_created"] == 1 and status["control"]["requests"] > 0, status["control"]


def in_terminal(broker):
    """What a person sees: cleared and drawn again, sorted by the next key, gone with q."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(command(broker)[0], command(broker, "-i", "200"))
    text = ""

    def until(word):
        nonlocal text
        end = time.monotonic() + 10
        while word not in text:
            assert time.monotonic() < end, f"no {word!r} in {text!r}"
            if select.select([terminal], [], [], 0.2)[0]:
                text += os.read(terminal, 65536).decode()

    until("by bytes_in_s")
    assert "\033[H" in text and "live" in text and "busy_ratio" in text, text
    os.write(terminal, b"s")
    until("by bytes_out_s")
    os.write(terminal, b"q")
    until("\033[?25h")
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)


def until_stopped(broker):
    plain = subprocess.Popen(command(broker, "-i", "300"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = ""
    while out.count("busy_ratio") < 2:
        line = plain.stdout.readline()
        assert line, f"it ended: {plain.communicate()[1]}"
        out += line
    broker.stop()
    rest, err = plain.communicate(timeout=30)
    assert plain.returncode == 1 and "has stopped" in err, (plain.returncode, err)
    assert "\033" not in out + rest, out + rest


def main():
    with Broker() as broker:
        broker.start()
        broker.millrace("topic", "create", "live")
        with Load(broker, "live", "NIC") as load:
            load.feed(0.5)
            as_json(broker, load)
        in_terminal(broker)
        until_stopped(broker)
        absent = subprocess.run(command(broker, "--once"), capture_output=True, text=True, check=False)
        assert absent.returncode == 1 and "no instance" in absent.stderr, absent
    print("rates, stages and partitions as offered; keys and the end of the instance are obeyed")


if __name__ == "__main__":
    main()
