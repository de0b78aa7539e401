#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A table of configuration faults: each with its message, line, key and exit code, through millrace check and
millrace start; nothing is half started."""
import glob
import os
import socket
import subprocess
import tempfile

from lib.broker import BUILD

MILLRACE = os.path.join(BUILD, "millrace")

# (file text, words that the message must contain)
ERRORS = [
    ("node.id=-1", ["node.id", ":1"]),
    ("node.id=1000000", ["node.id", "999999"]),
    ("node.id=abc", ["node.id", "abc"]),
    ("log.dirty.max.mb=0", ["log.dirty.max.mb"]),
    ("dataplane.idle=sometimes", ["dataplane.idle", "adaptive", "busy"]),
    ("dataplane.cores=0-", ["dataplane.cores"]),
    ("dataplane.cores=4096", ["dataplane.cores"]),
    ("hugepages=maybe", ["hugepages"]),
    ("listeners=LOCAL", ["listeners"]),
    ("listeners=LOCAL://127.0.0.1:0x", ["listeners"]),
    ("listeners=LOCAL://127.0.0.1:99999", ["listeners"]),
    ("listeners=A://127.0.0.1:9092,B://127.0.0.1:9092", ["listeners", "9092"]),
    ("listeners=A://127.0.0.1:9092,A://127.0.0.1:9093", ["listeners", "A"]),
    ("listeners=SSL://127.0.0.1:9092", ["SSL"]),
    ("listeners=X://127.0.0.1:9092\nlistener.security.protocol.map=X:SASL_PLAINTEXT", ["SASL"]),
    ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", ["authorizer.class.name"]),
    ("listeners=NIC://198.18.0.1:9092\nlistener.NIC.transport=dpdk", ["device"]),
    ("listeners=NIC://198.18.0.1:9092\nlistener.NIC.transport=dpdk\nlistener.NIC.device=nic0",
     ["nic0", "dpdk.ports"]),
    ("dpdk.ports=nic0", ["dpdk.port.nic0.device"]),
    ("dpdk.ports=nic0\ndpdk.port.nic0.device=net_tap0\ndpdk.port.nic0.address=198.18.0.300/24",
     ["dpdk.port.nic0.address"]),
    ("dpdk.ports=nic0\ndpdk.port.nic0.device=net_tap0\ndpdk.port.nic0.address=198.18.0.1/24\n"
     "dpdk.port.nic0.mac=zz:00:00:00:00:00", ["dpdk.port.nic0.mac"]),
    ("listener.LOCAL.transport=carrier-pigeon", ["transport", "kernel", "dpdk"]),
    ("metadata.store=zookeeper", ["metadata.store"]),
    ("dataplane.cores=0,1\ndataplane.core.endpoints=on\n"
     "listeners=A://127.0.0.1:9092,B://127.0.0.1:9093", ["listeners", "9092 to 9093"]),
    ("message.max.bytes=-5", ["message.max.bytes"]),
    ("log.message.timestamp.type=Now", ["log.message.timestamp.type", "CreateTime"]),
]
WARNINGS = [
    ("log.retension.ms=5", ["log.retension.ms", "log.retention.ms"]),
    ("nodeid=5", ["nodeid"]),
]


def check(text, *more):
    with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
        file.write(text + "\n")
    try:
        done = subprocess.run([MILLRACE, "check", "-c", file.name, *more], text=True,
                              capture_output=True, timeout=30, check=False)
        start = None
        if done.returncode == 2:
            start = subprocess.run([MILLRACE, "start", "-c", file.name, *more], text=True,
                                   capture_output=True, timeout=30, check=False)
        return done.returncode, done.stdout + done.stderr, start
    finally:
        os.unlink(file.name)


def taken_port():
    """A start that fails on an occupied port says which, and leaves no arena behind."""
    node = 900000 + os.getpid() % 100000  # the arena's folder has the number in its name
    with tempfile.TemporaryDirectory(prefix="millrace-test-") as home, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = subprocess.run([MILLRACE, "start", "--set", f"node.id={node}", "--set", "hugepages=off",
                               "--set", f"run.dir={home}/run", "--set", f"log.dirs={home}/data",
                               "--set", "http.listener=",
                               "--set", f"listeners=LOCAL://127.0.0.1:{port}"],
                              text=True, capture_output=True, timeout=60, check=False)
        assert done.returncode == 1 and "ready" not in done.stdout, done
        assert f"port {port}: Address already in use" in done.stderr, done.stderr
    left = glob.glob(f"/dev/shm/millrace-{node}-*")
    assert not left, left


def main():
    for text, words in ERRORS:
        code, output, start = check(text)
        assert code == 2, f"{text!r}: exit {code}\n{output}"
        for word in words:
            assert word in output, f"{text!r}: no {word!r} in\n{output}"
        assert start.returncode == 2 and "ready" not in start.stdout, text
    for text, words in WARNINGS:
        code, output, _ = check(text)
        assert code == 0, f"{text!r}: exit {code}\n{output}"
        for word in words:
            assert word in output, f"{text!r}: no {word!r} in\n{output}"
        code, output, _ = check(text, "--strict")
        assert code == 2, f"{text!r} --strict: exit {code}\n{output}"
    absent = subprocess.run([MILLRACE, "check", "-c", "/nonexistent/file"], capture_output=True,
                            text=True, check=False)
    assert absent.returncode == 2 and "/nonexistent/file" in absent.stderr + absent.stdout
    taken_port()
    unknown = subprocess.run([MILLRACE, "fly"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2 and "fly" in unknown.stderr
    print(f"{len(ERRORS)} errors and {len(WARNINGS)} warnings named as they should")


if __name__ == "__main__":
    main()
