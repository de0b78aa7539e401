#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: quotas of client ids are set, told and taken away by Kafka's own tool, and real clients get the bytes and
the time of their quota, no more and not much less, while others notice nothing.

Method: ConfigCommand of Kafka 4.4 alters, describes and deletes; two processes of kcat with one client id, on
connections of any of two cores, produce while another id does the same without a quota; a consumer of librdkafka
reads it back at its rate and is told of its waits; a closed loop of small requests uses the time of request_percentage.
Times are those of the broker's own counters. quota.window.num=2: a client that rests may use two seconds' worth."""
import glob
import os
import re
import struct
import subprocess
import threading
import time
import urllib.request

import confluent_kafka

from lib.broker import FULL, TOP, Broker, free_port, pick, run, skip
from lib.wire import METADATA, Client

JARS = sorted(glob.glob(os.path.join(TOP, "build/clients/java/lib/*.jar")))
ALTER_CLIENT_QUOTAS = 49
TOPIC = "quotas"
RATE = 2 << 20  # bytes per second
BURST_S = 1     # quota.window.num - 1 samples of a second
RECORD = 10000
PIPELINE = 440000  # of Produce requests that are answered before the first of them has waited
MARGIN = 0.1    # of a rate, as asked for
TRIES = 3       # of what another process on the machine can spoil
CORES = "0,1" if os.cpu_count() > 1 else "0"


def config_command(address, *words):
    return run("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", ":".join(JARS),
               "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", address, *words)


def set_quota(address, client, **values):
    """By AlterClientQuotas 0; None takes a value away."""
    def text(value):
        return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()
    body = struct.pack(">ii", 1, 1) + text("client-id") + text(client) + struct.pack(">i", len(values))
    for key, value in values.items():
        body += text(key) + struct.pack(">d?", value or 0, value is None)
    with Client(address) as admin:
        answer = admin.ask(ALTER_CLIENT_QUOTAS, 0, body + b"\0")
    assert struct.unpack_from(">iih", answer) == (0, 1, 0), answer


# --- Kafka's tool ---------------------------------------------------------------------------------

def by_kafkas_tool(address):
    """Leaves RATE as the limit of "loud" both ways."""
    loud = ("--entity-type", "clients", "--entity-name", "loud")
    got = config_command(address, "--alter", *loud, "--add-config",
                         f"producer_byte_rate={RATE},consumer_byte_rate={RATE},request_percentage=200.5")
    assert "Completed updating config for client loud." in got, got
    config_command(address, "--alter", *loud, "--delete-config", "request_percentage")
    got = config_command(address, "--describe", "--entity-type", "clients")
    said = re.search(r"Quota configs for client-id 'loud' are (.*)", got)
    assert said, got
    values = dict(one.split("=") for one in said[1].split(", "))
    assert {key: float(value) for key, value in values.items()} == {
        "producer_byte_rate": RATE, "consumer_byte_rate": RATE}, got
    if FULL:
        default = ("--entity-type", "clients", "--entity-default")
        config_command(address, "--alter", *default, "--add-config", "producer_byte_rate=1000")
        got = config_command(address, "--describe", *default)
        assert "Quota configs for the default client-id are producer_byte_rate=1000.0" in got, got
        config_command(address, "--alter", *default, "--delete-config", "producer_byte_rate")
        assert "Quota" not in config_command(address, "--describe", *default)
        user = ("--entity-type", "users", "--entity-name", "ANONYMOUS", "--entity-type", "clients", "--entity-default")
        config_command(address, "--alter", *user, "--add-config", "consumer_byte_rate=1e9")
        got = config_command(address, "--describe", "--entity-type", "users", "--entity-type", "clients")
        assert "consumer_byte_rate=1.0E9" in got, got
        config_command(address, "--alter", *user, "--delete-config", "consumer_byte_rate")


# --- bytes ----------------------------------------------------------------------------------------

def kcat(address, client, partition, records):
    """Starts one that sends so many records."""
    process = subprocess.Popen(["kcat", "-q", "-b", address, "-P", "-t", TOPIC, "-p", str(partition), "-X", f"client.id={client}",
                                "-X", "batch.size=100000", "-X", "linger.ms=50"], stdin=subprocess.PIPE)

    def feed():
        with process.stdin as to:
            for number in range(records):
                to.write(b"%0*d\n" % (RECORD, number))
    threading.Thread(target=feed, daemon=True).start()
    return process


def seconds_of(broker, processes):
    """Until all have ended."""
    begun = time.monotonic()
    for process in processes:
        assert process.wait(120) == 0
    return time.monotonic() - begun


def check_time(what, seconds, total, last):
    """Of total bytes under RATE: the burst is free, and nobody waits behind the last answers, of so many bytes."""
    high = total / RATE * (1 + MARGIN) + 0.5  # its start
    low = (total - BURST_S * RATE - last) / RATE * (1 - MARGIN)
    print(f"{what}: {total / seconds / RATE:.2f} of its rate, {seconds:.1f} s of {low:.1f} to {high:.1f}", flush=True)
    assert seconds > low, f"{what}: above its rate"
    return seconds < high


def produced(broker, records):
    """ret: whether in time: a busy machine may make it slow."""
    address = broker.address("LOCAL")
    throttled = sum(broker.counts("produce_throttled"))
    begun = time.monotonic()
    loud = [kcat(address, "loud", partition, records) for partition in range(2)]
    time.sleep(1.5)  # their burst is used
    quiet_s = seconds_of(broker, [kcat(address, "quiet", 2, records)])
    muted = sum(broker.counts("muted"))
    for process in loud:
        assert process.wait(120) == 0
    in_time = check_time("two producers of one id", time.monotonic() - begun, 2 * records * RECORD, PIPELINE)
    throttled = sum(broker.counts("produce_throttled")) - throttled
    assert throttled > 4, throttled
    assert muted > 0, "nobody is muted"
    print(f"another id beside them: {quiet_s:.2f} s, {throttled} requests throttled", flush=True)
    return in_time and quiet_s < records * RECORD / RATE / 2


def produced_by_java(broker, records):
    """By what the tool says of its rate: the machine's time to start it is not the quota's."""
    got = run("java", "-Xmx256m", "-cp", ":".join(JARS), "org.apache.kafka.tools.ProducerPerformance",
              "--bootstrap-server", broker.address("LOCAL"), "--topic", TOPIC, "--num-records", str(records), "--record-size",
              str(RECORD), "--throughput", "-1", "--command-property", "client.id=loud")
    said = re.search(rf"^{records} records sent, \S+ records/sec \((\S+) MB/sec\)", got, re.M)
    assert said, got
    total = records * RECORD
    return check_time("ProducerPerformance", total / (float(said[1]) * (1 << 20)), total, PIPELINE)


def consumed(broker, total):
    waits = []
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": broker.address("LOCAL"), "client.id": "loud", "group.id": "quotas", "check.crcs": True,
        "enable.auto.commit": False, "throttle_cb": lambda event: waits.append(event.throttle_time)})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0) for partition in range(2)])
    begun = time.monotonic()
    records = 0
    while records * RECORD < total:
        for message in consumer.consume(1000, 1):
            assert not message.error(), message.error()
            assert len(message.value()) == RECORD
            records += 1
        consumer.poll(0)
    seconds = time.monotonic() - begun
    consumer.close()
    assert any(wait > 0 for wait in waits), "the consumer was not told of a wait"
    return check_time("consumer", seconds, total, BURST_S * RATE)  # a Fetch brings a burst at most


# --- time -----------------------------------------------------------------------------------------

def timed(broker, percent, seconds):
    """A client that asks as fast as it may: what it used of a core, ret: whether it is the quota."""
    address = broker.address("LOCAL")
    set_quota(address, "busy", request_percentage=percent)
    time.sleep(0.2)
    before = sum(broker.counts("charged_ns"))
    answers = longest = 0
    with Client(address) as client:
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            client.send(client.frame(METADATA, 4, struct.pack(">i?", -1, False), client="busy"))
            _, answer = client.answer()
            longest = max(longest, struct.unpack_from(">i", answer)[0])
            answers += 1
        took = time.monotonic() - begun
    time.sleep(0.2)
    used_ms = (sum(broker.counts("charged_ns")) - before) / 1e6
    may_ms = percent / 100 * took * 1000
    burst_ms = percent / 100 * BURST_S * 1000
    print(f"{answers} requests used {used_ms:.2f} ms of a core in {took:.1f} s, {may_ms:.2f} and a burst of "
          f"{burst_ms:.2f} are its quota; the longest wait told was {longest} ms", flush=True)
    set_quota(address, "busy", request_percentage=None)
    assert 0 < longest <= 1000, longest
    return may_ms * (1 - 2 * MARGIN) < used_ms < (may_ms + burst_ms) * (1 + MARGIN)


def check_metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        shown = answer.read().decode()
    for name in ("produce_throttled_total", "fetch_throttled_total", "request_throttled_total",
                 "throttled_seconds_total", "charged_seconds_total"):
        values = [float(value) for value in re.findall(rf"^millrace_core_{name}\{{.*\}} (\S+)$", shown, re.M)]
        assert sum(values) > 0, (name, values)
    assert re.search(r"^millrace_core_muted\{", shown, re.M)


def main():
    if not JARS:
        skip("Kafka's tools are not in build/clients: tests/clients/setup")
    records, seconds = pick((3000, 20), (450, 3))
    http = free_port()
    settings = {"http.listener": f"127.0.0.1:{http}", "quota.window.num": "2", "dataplane.cores": CORES}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        broker.millrace("topic", "create", TOPIC, "-p", "3")
        address = broker.address("LOCAL")
        by_kafkas_tool(address)
        assert any(produced(broker, records) for _ in range(TRIES)), "slower than the quota"
        if FULL:
            assert any(produced_by_java(broker, records) for _ in range(TRIES)), "slower than the quota"
        assert any(consumed(broker, 2 * records * RECORD) for _ in range(TRIES)), "slower than the quota"
        assert any(timed(broker, 0.2, seconds) for _ in range(TRIES)), "not the time of the quota"
        check_metrics(http)
        old = broker.kill("millraced")
        broker.wait_restart("millraced", old)
        assert "consumer_byte_rate" in config_command(address, "--describe", "--entity-type", "clients",
                                                      "--entity-name", "loud")
        set_quota(address, "loud", producer_byte_rate=None, consumer_byte_rate=None)
        free_s = seconds_of(broker, [kcat(address, "loud", 0, records)])
        assert free_s < records * RECORD / RATE, f"still limited: {free_s:.1f} s"
        assert sum(broker.counts("quota_clients_full")) == 0


if __name__ == "__main__":
    main()
