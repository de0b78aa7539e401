#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the command line tools of Kafka 4.4 work against the broker as against Kafka.

Method: through each listener, TopicCommand creates, lists, describes and deletes a topic and is refused
what does not go; ProducerPerformance sends numbers with its default settings (the log must then hold
batches of an idempotent producer) and larger random records; GetOffsetShell finds both ends;
ConsoleConsumer reads a partition from the earliest offset, every record once and in order;
DeleteRecordsCommand takes away the first ones, then all; ConfigCommand alters and describes settings of a
topic, and millrace topic alter and trim do the same to what the tools see. Partitions are added, log
directories told; elections and reassignments find nothing to do, and ACLs no authorizer. A topic is described in
several answers where one may not have all its partitions."""
import json
import os
import struct
import subprocess
import time

from lib.broker import TOP, Broker, free_port, pick, skip
from lib.proxy import Counting
from lib.wire import Client, text

JARS = os.path.join(TOP, "build/clients/java/lib")
PARTITIONS = 3
RECORD_BYTES = 1000
DESCRIBE_TOPIC_PARTITIONS = 75
PRODUCER_ID_AT = 43  # in a record batch
LIMIT_S = 900


class Tools:
    """Kafka's tools by the names of their classes, run where one listener is reachable."""

    def __init__(self, broker, listener):
        self.inside = broker.inside(listener)
        self.address = broker.address(listener)

    def run(self, name, *words, fails=False):
        """Standard output; what went wrong too when the tool is to fail."""
        command = self.inside + ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*",
                                 "org.apache.kafka.tools." + name,
                                 "--bootstrap-server", self.address, *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT_S, check=False)
        text = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{name} {words}: exit {done.returncode}\n{text[-4000:]}"
        return text if fails else done.stdout

    def topic(self, *words, fails=False):
        return self.run("TopicCommand", *words, fails=fails)


def check_topics(tools, topic):
    create = ("--create", "--topic", topic, "--partitions", str(PARTITIONS),
              "--replication-factor", "1", "--config", "max.message.bytes=500000")
    got = tools.topic(*create)
    assert f"Created topic {topic}." in got, got
    got = tools.topic(*create, fails=True)
    assert "already exists" in got, got
    assert topic in tools.topic("--list").split()
    lines = tools.topic("--describe", "--topic", topic).strip().splitlines()
    assert f"Topic: {topic}\t" in lines[0] and f"PartitionCount: {PARTITIONS}" in lines[0], lines
    assert "ReplicationFactor: 1" in lines[0] and "max.message.bytes=500000" in lines[0], lines
    for index, line in enumerate(lines[1:]):
        assert f"Partition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1" in line, line
    assert len(lines) == 1 + PARTITIONS, lines
    tools.topic("--delete", "--topic", topic)
    assert topic not in tools.topic("--list").split()
    got = tools.topic("--describe", "--topic", topic, fails=True)
    assert "does not exist" in got, got


def produce(tools, topic, count, *payload):
    got = tools.run("ProducerPerformance", "--topic", topic, "--num-records", str(count),
                    "--throughput", "-1", *payload)
    summary = got.strip().splitlines()[-1]
    assert summary.startswith(f"{count} records sent, "), got[-2000:]
    return summary


def offset(tools, topic, which):
    got = tools.run("GetOffsetShell", "--topic", topic, "--time", which).split()
    assert len(got) == 1 and got[0].startswith(f"{topic}:0:"), got
    return int(got[0].rsplit(":", 1)[1])


def consume(tools, topic, count):
    """Values of the records from the earliest offset on; their offsets are checked here."""
    got = tools.run("consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset",
                    "earliest", "--max-messages", str(count), "--timeout-ms", "60000",
                    "--formatter-property", "print.offset=true")
    lines = got.splitlines()
    assert len(lines) == count, f"{len(lines)} of {count} records"
    values = []
    for index, line in enumerate(lines):
        place, value = line.split("\t", 1)
        assert place == f"Offset:{index}", f"{place} at {index}"
        values.append(value)
    return values


def check_data(broker, tools, listener, numbers_count, records_count):
    numbers = f"java-numbers-{listener.lower()}"
    records = f"java-records-{listener.lower()}"
    for topic in (numbers, records):
        tools.topic("--create", "--topic", topic, "--partitions", "1")
    produce(tools, numbers, numbers_count, "--payload-monotonic")
    print(listener, produce(tools, records, records_count, "--record-size", str(RECORD_BYTES)))
    for topic, count in ((numbers, numbers_count), (records, records_count)):
        assert (offset(tools, topic, "earliest"), offset(tools, topic, "latest")) == (0, count)
        # The last of those with the greatest time: with several in one millisecond not the last of all.
        assert 0 <= offset(tools, topic, "max-timestamp") < count
    assert consume(tools, numbers, numbers_count) == [str(i) for i in range(numbers_count)]
    assert {len(value) for value in consume(tools, records, records_count)} == {RECORD_BYTES}
    with Client(broker.address("LOCAL")) as client:
        error, high, _, data = client.fetch(numbers, 0, 0)
    assert error == 0 and high == numbers_count, (error, high)
    producer_id, epoch, sequence = struct.unpack_from(">qhi", data, PRODUCER_ID_AT)
    assert producer_id >= 0 and epoch >= 0 and sequence == 0, "the producer was not idempotent"


def check_delete_records(broker, tools, topic, count):
    """DeleteRecordsCommand moves the start, to an offset and to the end; what lies beyond is refused."""
    def delete(to, fails=False):
        path = os.path.join(broker.home, "delete.json")
        with open(path, "w", encoding="ascii") as out:
            json.dump({"partitions": [{"topic": topic, "partition": 0, "offset": to}], "version": 1}, out)
        got = tools.run("DeleteRecordsCommand", "--offset-json-file", path)
        assert ("error" in got) == fails, got
        return got

    assert "low_watermark: 1234" in delete(1234)
    assert offset(tools, topic, "earliest") == 1234
    delete(count + 1, fails=True)
    assert f"low_watermark: {count}" in delete(-1)
    assert (offset(tools, topic, "earliest"), offset(tools, topic, "latest")) == (count, count)


def check_configs(broker, tools, topic):
    """ConfigCommand and our command change settings of a topic, and each sees what the other did."""
    entity = ("--entity-type", "topics", "--entity-name", topic)

    def alter(*words, fails=False):
        return tools.run("ConfigCommand", "--alter", *entity, *words, fails=fails)

    def own():
        got = broker.millrace("topic", "describe", topic, "-o", "json")
        settings = json.loads(got)[0]["settings"]
        return {row["name"]: row["value"] for row in settings if row["source"] == "topic"}

    alter("--add-config", "cleanup.policy=[compact,delete],retention.ms=86400000,min.compaction.lag.ms=5")
    assert own() == {"cleanup.policy": "compact,delete", "retention.ms": "86400000",
                     "min.compaction.lag.ms": "5"}, own()
    got = tools.run("ConfigCommand", "--describe", *entity)
    assert "retention.ms=86400000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=86400000" in got, got
    alter("--delete-config", "min.compaction.lag.ms")
    assert "INVALID_CONFIG" in alter("--add-config", "retention.ms=-2", fails=True).upper().replace(
        "INVALIDCONFIG", "INVALID_CONFIG")
    got = json.loads(broker.millrace("topic", "alter", topic, "-o", "json",
                                     "--config", "segment.bytes=1048576", "--default", "retention.ms"))
    assert [(row["name"], row["value"], row["source"]) for row in got] == [
        ("retention.ms", "604800000", "default"), ("segment.bytes", "1048576", "topic")], got
    assert own() == {"cleanup.policy": "compact,delete", "segment.bytes": "1048576"}, own()
    got = tools.run("ConfigCommand", "--describe", *entity)
    assert "segment.bytes=1048576" in got and "retention.ms" not in got, got


def check_trim(broker, tools, topic, count):
    got = json.loads(broker.millrace("topic", "trim", topic, "-o", "json",
                                     "--before", "77"))
    assert got == [{"topic": topic, "partition": 0, "start": 77}], got
    assert offset(tools, topic, "earliest") == 77
    got = broker.millrace("topic", "trim", topic, "--before", "end")
    assert got.split() == ["topic", "partition", "start", topic, "0", str(count)], got


def check_admin(broker, tools):
    """More partitions, log directories, elections, reassignments and ACLs of a cluster of one broker."""
    topic = "java-admin"
    tools.topic("--create", "--topic", topic, "--partitions", "2")
    tools.topic("--alter", "--topic", topic, "--partitions", "3")
    assert broker.millrace("topic", "add-partitions", topic, "-p", "5").strip() == f"added partitions to {topic}"
    assert "PartitionCount: 5" in tools.topic("--describe", "--topic", topic)
    broker.kcat("LOCAL", "-P", "-t", topic, "-p", "4", input="x" * 1000 + "\n")
    deadline = time.monotonic() + 30  # written to the file within a second, on a quiet machine
    time.sleep(1.5)
    while not (sizes := log_sizes(tools))[f"{topic}-4"]:
        assert time.monotonic() < deadline, "the files stay empty"
    assert 1000 < sizes[f"{topic}-4"] < 1200, sizes
    assert set(sizes) >= {f"{topic}-{index}" for index in range(5)}, sizes
    election = ("--election-type", "preferred")
    got = tools.run("LeaderElectionCommand", *election, "--topic", topic, "--partition", "1")
    assert f"Valid replica already elected for partitions {topic}-1" in got, got
    tools.run("LeaderElectionCommand", *election, "--all-topic-partitions")
    got = tools.run("LeaderElectionCommand", *election, "--topic", topic, "--partition", "9", fails=True)
    assert f"{topic}-9" in got, got
    plan = os.path.join(broker.home, "plan.json")
    with open(plan, "w", encoding="ascii") as out:
        json.dump({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}, out)
    reassign = "reassign.ReassignPartitionsCommand"
    got = tools.run(reassign, "--execute", "--reassignment-json-file", plan)
    assert f"Successfully started partition reassignment for {topic}-0" in got, got
    assert "No partition reassignments found" in tools.run(reassign, "--list")
    assert "No Authorizer is configured" in tools.run("AclCommand", "--list", fails=True)
    with Client(broker.address("LOCAL")) as client:  # what the tool would not send
        answer = client.ask(43, 0, struct.pack(">i", 1) + text(topic) + struct.pack(">iiii", 2, 0, 77, 1000))
        errors = [struct.unpack_from(">ih", answer, 4 + 4 + 2 + len(topic) + 4 + skip_to)
                  for skip_to in (0, 4 + 2 + 2 + struct.unpack_from(">h", answer, 14 + len(topic) + 6)[0])]
        assert errors == [(0, 84), (77, 3)], errors


def check_cursor():
    """A topic of more partitions than one DescribeTopicPartitions answer may have: the tool goes on where it ended."""
    topic, partitions, most = "java-cursor", 7, 3
    port = free_port()
    with Counting("127.0.0.1", port) as proxy:
        settings = {"listeners": f"LOCAL://127.0.0.1:{port}", "max.request.partition.size.limit": str(most),
                    "advertised.listeners": f"LOCAL://127.0.0.1:{proxy.port}"}
        with Broker(nic=False, settings=settings) as broker:
            broker.port = port
            broker.start()
            tools = Tools(broker, "LOCAL")
            tools.topic("--create", "--topic", topic, "--partitions", str(partitions))
            lines = tools.topic("--describe", "--topic", topic).strip().splitlines()
            assert f"PartitionCount: {partitions}" in lines[0] and len(lines) == 1 + partitions, lines
            for index, line in enumerate(lines[1:]):
                assert f"Partition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1" in line, line
            assert proxy.requests[DESCRIBE_TOPIC_PARTITIONS][0] == -(-partitions // most), dict(proxy.requests)


def log_sizes(tools):
    """Bytes by directory, as LogDirsCommand shows them."""
    shown = json.loads(tools.run("LogDirsCommand", "--describe").splitlines()[-1])
    (broker,) = shown["brokers"]
    return {one["partition"]: one["size"] for log_dir in broker["logDirs"] for one in log_dir["partitions"]}


def main():
    if not os.path.isdir(JARS):
        skip("Kafka's tools are not in build/clients: tests/clients/setup")
    numbers_count = pick(1000000, 50000)
    records_count = pick(300000, 50000)
    with Broker() as broker:
        broker.start()
        for listener in broker.listeners():
            tools = Tools(broker, listener)
            check_topics(tools, f"java-topic-{listener.lower()}")
            check_data(broker, tools, listener, numbers_count, records_count)
            check_delete_records(broker, tools, f"java-numbers-{listener.lower()}", numbers_count)
            check_configs(broker, tools, f"java-records-{listener.lower()}")
            if listener == "LOCAL":
                check_admin(broker, tools)
            check_trim(broker, tools, f"java-records-{listener.lower()}", records_count)
        broker.wait_no_loans()
    check_cursor()
    print(f"Kafka's tools: {numbers_count} numbers and {records_count} records per listener equal")


if __name__ == "__main__":
    main()
