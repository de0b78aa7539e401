#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: connections above the bounds of the broker and of an address are closed at once, counted by their reason and
told in the log at a bounded rate, while those that are there notice nothing; bounds follow while the broker runs.

Method: connections of plain sockets from several addresses of the loopback network, spread over two cores by the
kernel. Each sends ApiVersions: who is let in gets an answer, who is not gets the connection's end. Bounds come from
the file, then from Kafka's ConfigCommand. Many threads open at once: never more are let in than the bound."""
import concurrent.futures
import contextlib
import glob
import os
import re
import socket
import struct
import time

from lib.broker import TOP, Broker, pick, run, skip, wait

JARS = sorted(glob.glob(os.path.join(TOP, "build/clients/java/lib/*.jar")))
CORES = "0,1" if os.cpu_count() > 1 else "0"
PER_IP = 20
NAMED = "127.0.0.9"  # has a bound of its own
NAMED_MAX = 3
RATE = 20            # new connections in a second
BURST_S = 1          # quota.window.num - 1 samples of a second
RATE_S = 3
STORM = 32           # threads that open at once
API_VERSIONS = struct.pack(">ihhihB", 11, 18, 0, 7, 1, 97)


def config_command(address, *words):
    return run("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", ":".join(JARS),
               "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", address, *words)


def alter(address, *settings, what="--add-config"):
    got = config_command(address, "--alter", "--entity-type", "brokers", "--entity-default", what, ",".join(settings))
    assert "Completed updating default config" in got, got


def opened(port, source):
    """ret: a connection that answers, or None: it was refused."""
    sock = socket.socket()
    sock.settimeout(30)
    try:
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", port))
        if asked(sock):
            return sock
    except ConnectionError:
        pass
    sock.close()
    return None


def asked(sock):
    try:
        sock.sendall(API_VERSIONS)
        return len(sock.recv(1 << 16)) > 0
    except ConnectionError:
        return False


def fill(port, source, tries):
    """ret: the connections that are let in out of so many."""
    return [sock for sock in (opened(port, source) for _ in range(tries)) if sock]


def refused(broker):
    listener = broker.listener("LOCAL")
    reasons = listener["refused_connections"] + listener["refused_address"] + listener["refused_rate"]
    assert listener["refused"] == reasons, listener
    return listener["refused_connections"], listener["refused_address"]


def connections(broker):
    return broker.listener("LOCAL")["connections"]


def end(broker, socks):
    for sock in socks:
        sock.close()
    wait("connections do not end", lambda: connections(broker) == 0)


def per_address(broker, port):
    """The file's bounds: of every address, and of one that is named."""
    more = 5
    first = fill(port, "127.0.0.2", PER_IP + more)
    named = fill(port, NAMED, NAMED_MAX + more)
    other = fill(port, "127.0.0.3", PER_IP)
    assert [len(first), len(named), len(other)] == [PER_IP, NAMED_MAX, PER_IP], (len(first), len(named), len(other))
    assert all(asked(sock) for sock in first + named + other), "one that was let in is gone"
    wait("refusals are not counted", lambda: refused(broker) == (0, 2 * more))
    first.pop().close()
    wait("no room for one", lambda: connections(broker) == len(first) + len(named) + len(other))
    first += fill(port, "127.0.0.2", 2)
    assert len(first) == PER_IP, len(first)
    end(broker, first + named + other)


def storm(broker, port, rounds):
    """All at once, over and over."""
    for _ in range(rounds):
        with concurrent.futures.ThreadPoolExecutor(STORM) as pool:
            socks = [sock for sock in pool.map(lambda _: opened(port, "127.0.0.4"), range(3 * STORM)) if sock]
        # Those that are closed are counted as open until the broker has seen it: never too many.
        assert 0 < len(socks) <= PER_IP, len(socks)
        assert connections(broker) <= PER_IP
        end(broker, socks)
    again = fill(port, "127.0.0.4", PER_IP + 1)
    assert len(again) == PER_IP, f"{len(again)} let in after the storms"
    end(broker, again)


def altered(broker, port, address):
    """By Kafka's tool, while connections are there."""
    first = fill(port, "127.0.0.2", 10)
    alter(address, "max.connections.per.ip=6", f"max.connections.per.ip.overrides=[{NAMED}:8,127.0.0.1:1000]")
    got = config_command(address, "--describe", "--entity-type", "brokers", "--entity-default")
    assert f"max.connections.per.ip.overrides={NAMED}:8,127.0.0.1:1000" in got, got
    assert all(asked(sock) for sock in first), "one that was there is gone"
    assert opened(port, "127.0.0.2") is None
    for sock in first[5:]:
        sock.close()
    wait("connections do not end", lambda: connections(broker) == 5)
    first = first[:5] + fill(port, "127.0.0.2", 2)
    named = fill(port, NAMED, 9)
    assert [len(first), len(named)] == [6, 8], (len(first), len(named))
    alter(address, "max.connections=20")
    before = refused(broker)
    rest = [sock for number in range(50, 60) if (sock := opened(port, f"127.0.0.{number}"))]
    assert len(rest) == 20 - 14, len(rest)
    wait("refusals are not counted", lambda: refused(broker)[0] - before[0] == 4)
    for _ in range(4):
        rest.pop().close()  # room for the tool
    wait("no room", lambda: connections(broker) == 16)
    with contextlib.suppress(AssertionError):
        got = config_command(address, "--alter", "--entity-type", "brokers", "--entity-default", "--add-config",
                             "max.connections.per.ip.overrides=[host.example:1]")
        raise RuntimeError(f"a name was taken: {got}")
    end(broker, first + named + rest)
    alter(address, "max.connections.per.ip", "max.connections.per.ip.overrides", "max.connections", what="--delete-config")
    back = fill(port, "127.0.0.2", PER_IP + 1)
    assert len(back) == PER_IP, f"{len(back)}: the file's bound is not back"
    end(broker, back)


def rated(broker, port, address):
    """A burst of all samples but one, then the rate; not above it however many try."""
    alter(address, f"max.connection.creation.rate={RATE}")
    begun = time.monotonic()
    count = 0
    while time.monotonic() - begun < RATE_S:
        socks = fill(port, "127.0.0.2", PER_IP // 2)
        count += len(socks)
        for sock in socks:
            sock.close()
    seconds = time.monotonic() - begun
    high = RATE * (BURST_S + seconds) + 2  # one above on each core
    print(f"{count} new connections in {seconds:.1f} s of {RATE} a second: at most {high:.0f}", flush=True)
    assert RATE * BURST_S / 2 < count <= high, (count, high)
    assert broker.listener("LOCAL")["refused_rate"] > 0
    time.sleep(1)  # for the tool's own
    alter(address, "max.connection.creation.rate", what="--delete-config")
    wait("connections do not end", lambda: connections(broker) == 0)
    back = fill(port, "127.0.0.2", PER_IP)
    assert len(back) == PER_IP, len(back)
    end(broker, back)


def told(broker, begun):
    """Every refusal is in the log's lines, but for those of the last pause; lines are few."""
    lines = re.findall(r"listener\.refused.* max\.connections=(\d+) max\.connections\.per\.ip=(\d+)", broker.log_text())
    counts = refused(broker)
    assert lines and int(lines[0][1]) > 0, "no line about refusals"
    assert len(lines) <= 2 + (time.monotonic() - begun) / 10, lines
    for kind in range(2):
        assert sum(int(line[kind]) for line in lines) <= counts[kind], (lines, counts)
    print(f"refused {counts}, told in {len(lines)} lines", flush=True)


def main():
    if not JARS:
        skip("Kafka's tools are not in build/clients: tests/clients/setup")
    settings = {"dataplane.cores": CORES, "quota.window.num": BURST_S + 1, "max.connections.per.ip": PER_IP,
                "max.connections.per.ip.overrides": f"{NAMED}:{NAMED_MAX}"}
    rounds = pick(20, 3)
    begun = time.monotonic()
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        address = broker.address("LOCAL")
        port = int(address.rsplit(":", 1)[1])
        per_address(broker, port)
        storm(broker, port, rounds)
        altered(broker, port, address)
        rated(broker, port, address)
        told(broker, begun)


if __name__ == "__main__":
    main()
