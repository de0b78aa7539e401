#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: every command line tool of Kafka 4.4 that has a meaning for one broker does against Millrace what it does
against Kafka.

Method: each tool is a process as its script starts it, and what it did is looked at by another client: offsets by
the group's own client, records by kcat, settings by the other tool. Records have known times, so that the resets by
time have one right answer. VerifiableProducer and VerifiableConsumer run while millrace-control and millraced are
killed: what the producer was told is at the offset it was told, and the consumer saw it. Two tools at a time; their
classes come from an archive that the first one leaves. The table goes to docs/compatibility.md."""
import concurrent.futures
import glob
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time

import confluent_kafka
import java_transactions
from confluent_kafka import TopicPartition

from lib import compat
from lib.broker import FULL, TOP, Broker, pick, skip
from lib.wire import API_VERSIONS, Client

JARS = sorted(glob.glob(os.path.join(TOP, "build/clients/java/lib/*.jar")))
AT_ONCE = 2
ALONE = ("BrokerApiVersionsCommand", "VerifiableProducer, VerifiableConsumer", "ConfigCommand, brokers",
         "TransactionsCommand")
LIMIT_S = 300
GROUPS = "consumer.group.ConsumerGroupCommand"
PARTITIONS = 2
MINUTES = 120  # a record each, the last one just now
# APIs of a broker of Kafka 4.4 in a cluster without what the table names as left out.
SERVED = {"Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 9, "OffsetFetch": 9,
          "FindCoordinator": 6, "JoinGroup": 9, "Heartbeat": 4, "LeaveGroup": 5, "SyncGroup": 5, "DescribeGroups": 6,
          "ListGroups": 5, "ApiVersions": 4, "CreateTopics": 7, "DeleteTopics": 6, "DeleteRecords": 2,
          "InitProducerId": 4, "OffsetForLeaderEpoch": 4, "DescribeConfigs": 4, "AlterConfigs": 2,
          "DescribeLogDirs": 4, "CreatePartitions": 3, "DeleteGroups": 2, "ElectLeaders": 2,
          "IncrementalAlterConfigs": 1, "OffsetDelete": 0, "DescribeCluster": 2}


class Tools:
    """Kafka's tools by the names of their classes, where the listener is reachable."""

    def __init__(self, broker, listener="LOCAL"):
        self.broker = broker
        self.address = broker.address(listener)
        self.inside = broker.inside(listener)
        self.archive = os.path.join(broker.home, "classes.jsa")

    def command(self, name, *words, flags=()):
        if os.path.exists(self.archive):
            flags = (*flags, f"-XX:SharedArchiveFile={self.archive}")
        return [*self.inside, "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
                *flags, "-cp", ":".join(JARS), "org.apache.kafka.tools." + name,
                *(words if name == "ClusterTool" else ()),
                "--broker-list" if name == "ReplicaVerificationTool" else "--bootstrap-server", self.address,
                *(() if name == "ClusterTool" else words)]

    def run(self, name, *words, fails=False, flags=(), text=None):
        """Standard output; what went wrong too when the tool is to fail."""
        done = subprocess.run(self.command(name, *words, flags=flags), input=text, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{name} {words}: exit {done.returncode}\n{said[-4000:]}"
        return said if fails else done.stdout

    def start(self, name, *words):
        return subprocess.Popen(self.command(name, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, encoding="utf-8")

    def write(self, name, text):
        path = os.path.join(self.broker.home, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path


def create(broker, topic, partitions=1):
    broker.millrace("topic", "create", topic, "-p", str(partitions))


# --- what the broker is ---------------------------------------------------------------------------

def check_api_versions(tools):
    """Also leaves the archive of classes for those behind it."""
    shown = tools.run("BrokerApiVersionsCommand", flags=(f"-XX:ArchiveClassesAtExit={tools.archive}",))
    assert f"{tools.address} (id: 1 rack: null" in shown, shown[:200]
    usable = {name: int(version) for name, version in re.findall(r"(\w+)\(\d+\): [^\n]*usable: (\d+)\]", shown)}
    short = {name: usable.get(name) for name, version in SERVED.items() if usable.get(name, -1) < version}
    assert not short, f"shown less than is served: {short}\n{shown}"
    with Client(tools.broker.address("LOCAL")) as client:
        answer = client.ask(API_VERSIONS, 0, b"")
    error, count = struct.unpack_from(">hi", answer)
    keys = {struct.unpack_from(">h", answer, 6 + 6 * index)[0] for index in range(count)}
    named = {int(key) for key in re.findall(r"\w+\((\d+)\): \d", shown)}
    assert error == 0 and keys == named, keys ^ named


def check_topics(tools):
    topic = "tools-topic"
    got = tools.run("TopicCommand", "--create", "--topic", topic, "--replica-assignment", "1,1,1", "--config",
                    "cleanup.policy=compact")
    assert f"Created topic {topic}." in got, got
    lines = tools.run("TopicCommand", "--describe", "--topic", topic).strip().splitlines()
    assert "PartitionCount: 3" in lines[0] and "cleanup.policy=compact" in lines[0], lines
    assert len(lines) == 4 and all("Leader: 1\tReplicas: 1\tIsr: 1" in line for line in lines[1:]), lines
    if FULL:
        tools.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
        assert topic in tools.run("TopicCommand", "--list", "--exclude-internal").split()
        for kind in ("--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions",
                     "--at-min-isr-partitions"):
            got = tools.run("TopicCommand", "--describe", kind, "--topic", topic)
            assert len(got.strip().splitlines()) == (5 if kind.startswith("--at") else 0), (kind, got)
        got = tools.run("TopicCommand", "--create", "--topic", "bad name", fails=True)
        assert "Error while executing topic command : a topic name has only letters" in got, got
        tools.run("TopicCommand", "--create", "--topic", topic, "--if-not-exists")
        tools.run("TopicCommand", "--delete", "--topic", "tools-top.*")
        assert topic not in tools.run("TopicCommand", "--list").split()


# --- settings -------------------------------------------------------------------------------------

def check_topic_configs(tools):
    topic = "tools-configs"
    entity = ("--entity-type", "topics", "--entity-name", topic)
    create(tools.broker, topic)
    tools.run("ConfigCommand", "--alter", *entity, "--add-config",
              "retention.ms=3600000,cleanup.policy=[compact,delete]")
    shown = tools.run("ConfigCommand", "--describe", "--all", *entity)
    assert f"All configs for topic {topic} are:" in shown, shown[:300]
    lines = {line.split("=")[0].strip(): line for line in shown.splitlines() if "sensitive=" in line}
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=3600000" in lines["retention.ms"], lines["retention.ms"]
    assert "cleanup.policy=compact,delete" in lines["cleanup.policy"], lines["cleanup.policy"]
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in lines["segment.bytes"], lines["segment.bytes"]
    assert len(lines) >= 25, sorted(lines)
    if FULL:
        tools.run("ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
        got = tools.run("ConfigCommand", "--describe", *entity)
        assert "retention.ms" not in got and "cleanup.policy=compact,delete" in got, got
        got = tools.run("ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=soon", fails=True)
        assert "InvalidConfigurationException" in got, got
        settings = tools.write("topic.properties", "segment.bytes=1048576\nflush.ms=1000\n")
        tools.run("ConfigCommand", "--alter", *entity, "--add-config-file", settings)
        got = tools.run("ConfigCommand", "--describe", *entity)
        assert "segment.bytes=1048576" in got and "flush.ms=1000" in got, got


def check_broker_configs(tools):
    """Settings of the broker while it runs, by ConfigCommand and by millrace config, as topics then have them."""
    broker = tools.broker
    topic = "tools-broker-configs"
    create(broker, topic)
    brokers = ("--entity-type", "brokers")

    def own(*words):
        return {row["name"]: row for row in json.loads(broker.millrace(*words, "-o", "json"))}

    tools.run("ConfigCommand", "--alter", *brokers, "--entity-default", "--add-config",
              "log.retention.ms=172800000,log.cleaner.backoff.ms=500")
    row = own("config", "describe", "-t", topic, "retention.ms")["retention.ms"]
    assert (row["value"], row["source"]) == ("172800000", "cluster"), row
    got = own("config", "alter", "--broker", "1", "--config", "log.retention.ms=86400000", "--config",
              "max.connections=500")
    assert {name: row["source"] for name, row in got.items()} == {
        "log.retention.ms": "broker", "max.connections": "broker"}, got
    shown = tools.run("ConfigCommand", "--describe", "--all", *brokers, "--entity-name", "1")
    lines = {line.split("=")[0].strip(): line for line in shown.splitlines() if "sensitive=" in line}
    assert ("log.retention.ms=86400000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=86400000, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=172800000, ") in lines["log.retention.ms"], \
        lines["log.retention.ms"]
    assert "max.connections=500" in lines["max.connections"] and len(lines) > 100, lines["max.connections"]
    row = own("config", "describe", "-t", topic, "retention.ms")["retention.ms"]
    assert [one["source"] for one in row["synonyms"]] == ["broker", "cluster", "default"], row
    broker.wait_restart("control", broker.kill("control"))
    row = own("config", "describe", "--broker", "1", "log.retention.ms")["log.retention.ms"]
    assert (row["value"], row["source"]) == ("86400000", "broker"), row
    tools.run("ConfigCommand", "--alter", *brokers, "--entity-name", "1", "--delete-config", "log.retention.ms")
    row = own("config", "describe", "-t", topic, "retention.ms")["retention.ms"]
    assert (row["value"], row["source"]) == ("172800000", "cluster"), row
    assert broker.millrace("config", "alter", "--broker", "1", "--config", "log.dirs=/tmp", check=False) == ""
    if FULL:
        got = tools.run("ConfigCommand", "--alter", *brokers, "--entity-name", "1", "--add-config",
                        "log.dirs=/tmp", fails=True)
        assert "InvalidRequestException" in got, got
        got = tools.run("ConfigCommand", "--describe", *brokers, "--entity-default")
        assert "log.retention.ms=172800000" in got and "log.cleaner.backoff.ms=500" in got, got


def check_group_configs(tools):
    """Settings of a group, which need not exist, over a restart of control."""
    entity = ("--entity-type", "groups", "--entity-name", "tools-group-configs")
    tools.run("ConfigCommand", "--alter", *entity, "--add-config",
              "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=7000")
    tools.broker.wait_restart("control", tools.broker.kill("control"))
    shown = tools.run("ConfigCommand", "--describe", *entity)
    assert "consumer.session.timeout.ms=50000" in shown and "consumer.heartbeat.interval.ms=7000" in shown, shown
    shown = tools.run("ConfigCommand", "--describe", "--all", *entity)
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in shown, shown
    assert "DEFAULT_CONFIG:group.consumer.assignment.interval.ms=1000" in shown, shown
    shown = tools.run("ConfigCommand", "--describe", "--entity-type", "groups")
    told = shown[shown.index("group tools-group-configs are:"):]
    assert "consumer.session.timeout.ms=50000" in told, f"not by name: {shown}"
    if FULL:
        tools.run("ConfigCommand", "--alter", *entity, "--delete-config", "consumer.session.timeout.ms")
        assert "consumer.session.timeout.ms" not in tools.run("ConfigCommand", "--describe", *entity)
        got = tools.run("ConfigCommand", "--alter", *entity, "--add-config", "consumer.session.timeout.ms=1",
                        fails=True)
        assert "InvalidConfigurationException" in got, got


# --- records --------------------------------------------------------------------------------------

def check_console(tools):
    """ConsoleProducer's keys, headers and codec, as kcat and ConsoleConsumer see them."""
    topic = "tools-console"
    create(tools.broker, topic)
    lines = "".join(f"a:{i},b:x\tkey{i}\tvalue {i}\n" for i in range(100))
    tools.run("ConsoleProducer", "--topic", topic, "--compression-codec", "zstd", "--reader-property",
              "parse.key=true", "--reader-property", "parse.headers=true", text=lines)
    got = tools.broker.kcat("LOCAL", "-C", "-t", topic, "-e", "-f", "%h\t%k\t%s\n")
    assert got == lines.replace("a:", "a=").replace(",b:", ",b="), got[:200]
    got = tools.run("consumer.ConsoleConsumer", "--topic", topic, "--group", "tools-console", "--from-beginning",
                    "--max-messages", "100", *[word for name in ("key", "headers", "offset", "partition")
                                               for word in ("--formatter-property", f"print.{name}=true")])
    want = [f"Partition:0\tOffset:{i}\ta:{i},b:x\tkey{i}\tvalue {i}" for i in range(100)]
    assert got.splitlines() == want, got[:300]
    committed = offsets_of(tools.broker, "tools-console", topic, 1)
    assert committed == [100], committed


def check_offsets(tools, topic, times):
    got = tools.run("GetOffsetShell", "--topic-partitions", f"{topic}:0-{PARTITIONS}", "--time", str(times[30]))
    assert got.split() == [f"{topic}:{i}:30" for i in range(PARTITIONS)], got
    got = tools.run("GetOffsetShell", "--topic", topic, "--time", "latest")
    assert got.split() == [f"{topic}:{i}:{MINUTES}" for i in range(PARTITIONS)], got
    if FULL:
        for which, offset in (("earliest", 0), ("max-timestamp", MINUTES - 1), ("-1", MINUTES), ("-2", 0)):
            got = tools.run("GetOffsetShell", "--topic", topic, "--partitions", "1", "--time", which)
            assert got.split() == [f"{topic}:1:{offset}"], (which, got)
        for which in ("earliest-local", "latest-tiered"):
            tools.run("GetOffsetShell", "--topic", topic, "--partitions", "1", "--time", which)


def check_delete_records(tools):
    topic = "tools-delete"
    create(tools.broker, topic)
    tools.broker.kcat("LOCAL", "-P", "-t", topic, input="x\n" * 50)
    path = tools.write("delete.json", json.dumps(
        {"partitions": [{"topic": topic, "partition": 0, "offset": 20}], "version": 1}))
    got = tools.run("DeleteRecordsCommand", "--offset-json-file", path)
    assert "low_watermark: 20" in got, got
    assert tools.broker.kcat("LOCAL", "-C", "-t", topic, "-e", "-o", "beginning", "-f", "%o\n").split()[0] == "20"


def check_log_dirs(tools, topic):
    tools.broker.wait_written()
    shown = json.loads(tools.run("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    (directory,) = shown["brokers"][0]["logDirs"]
    assert directory["logDir"] == tools.broker.log_dir and directory["error"] is None, directory
    sizes = {one["partition"]: one["size"] for one in directory["partitions"]}
    files = {f"{topic}-{i}": os.path.getsize(os.path.join(tools.broker.log_dir, f"{topic}-{i}", "0" * 20 + ".log"))
             for i in range(PARTITIONS)}
    assert sizes == files, (sizes, files)


# --- groups ---------------------------------------------------------------------------------------

def offsets_of(broker, group, topic, partitions=PARTITIONS):
    """Committed offsets as another client sees them."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address("LOCAL"), "group.id": group})
    got = consumer.committed([TopicPartition(topic, i) for i in range(partitions)], timeout=30)
    consumer.close()
    return [one.offset for one in got]


def commit(broker, group, topic, offset):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address("LOCAL"), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, i, offset) for i in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def check_reset(tools, group, topic, words, low, high=None):
    """Where the reset leads (low to high, when that depends on the clock); a dry run before it changes nothing."""
    reset = ("--reset-offsets", "--group", group, "--topic", topic, *words)
    before = offsets_of(tools.broker, group, topic)
    if FULL:
        check_rows(tools.run(GROUPS, *reset, "--dry-run"), group, topic, low, high)
        assert offsets_of(tools.broker, group, topic) == before, f"a dry run of {words} changed {before}"
    check_rows(tools.run(GROUPS, *reset, "--execute"), group, topic, low, high)
    after = offsets_of(tools.broker, group, topic)
    assert all(low <= offset <= (high or low) for offset in after), (words, after, low, high)


def check_rows(shown, group, topic, low, high):
    rows = [line.split() for line in shown.splitlines() if line.startswith(group + " ")]
    assert sorted(row[1:3] for row in rows) == [[topic, str(i)] for i in range(PARTITIONS)], shown
    assert all(low <= int(row[3]) <= (high or low) for row in rows), shown


def check_resets(tools, topic, times):
    group = "tools-resets"
    commit(tools.broker, group, topic, 50)
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    check_rows(tools.run(GROUPS, *reset, "--to-earliest", "--dry-run"), group, topic, 0, 0)
    assert offsets_of(tools.broker, group, topic) == [50] * PARTITIONS, "a dry run changed offsets"
    check_reset(tools, group, topic, ("--to-earliest",), 0)
    check_reset(tools, group, topic, ("--to-latest",), MINUTES)
    check_reset(tools, group, topic, ("--to-offset", "40"), 40)
    check_reset(tools, group, topic, ("--shift-by", "-15"), 25)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(times[70] // 1000)) + f".{times[70] % 1000:03}Z"
    check_reset(tools, group, topic, ("--to-datetime", moment), 70)
    earliest = next(i for i, when in enumerate(times) if when >= (time.time() - 3600) * 1000)
    # The tool looks at its own clock, which may be a minute and more ahead of ours on a busy machine.
    check_reset(tools, group, topic, ("--by-duration", "PT1H"), earliest, earliest + LIMIT_S // 60)
    tools.broker.millrace("group", "reset", group, "--to", "33")
    check_reset(tools, group, topic, ("--to-current",), 33)
    plan = tools.run(GROUPS, *reset, "--shift-by", "10", "--dry-run", "--export")
    rows = sorted(line for line in plan.splitlines() if line.count(",") >= 2)
    assert [row.replace('"', "") for row in rows] == [f"{topic},{i},43" for i in range(PARTITIONS)], plan
    path = tools.write("plan.csv", "\n".join(rows) + "\n")
    check_reset(tools, group, topic, ("--from-file", path), 43)


def check_groups(tools, topic):
    group = "tools-groups"
    commit(tools.broker, group, topic, 20)
    shown = tools.run(GROUPS, "--describe", "--group", group)
    rows = [line.split()[:6] for line in shown.splitlines() if line.startswith(group)]
    assert sorted(rows) == [[group, topic, str(i), "20", str(MINUTES), str(MINUTES - 20)]
                            for i in range(PARTITIONS)], shown
    if FULL:
        assert group in tools.run(GROUPS, "--list").split()
        states = tools.run(GROUPS, "--list", "--state")
        assert re.search(rf"{group}\s+Empty", states), states
        assert "Empty" in tools.run(GROUPS, "--describe", "--group", group, "--state")
        tools.run(GROUPS, "--describe", "--group", group, "--members", "--verbose")
        got = tools.run(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
        assert "Successful" in got, got
        got = tools.run(GROUPS, "--delete", "--group", group)
        assert "was successful" in got, got
        assert group not in tools.run(GROUPS, "--list").split()


def check_list_groups(tools, topic):
    group = "tools-listed"
    commit(tools.broker, group, topic, 1)
    shown = tools.run("GroupsCommand", "--list")
    assert re.search(rf"^{group} +Classic", shown, re.MULTILINE), shown


def check_features(tools):
    said = tools.run("FeatureCommand", "describe")
    levels = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\d+)", said))
    assert levels == {"group.version": "1", "transaction.version": "2"}, said
    for dry in ((), ("--dry-run",)):
        said = tools.run("FeatureCommand", "upgrade", "--feature", "transaction.version=2", *dry)
        assert "transaction.version" in said and "upgraded to 2" in said, said
    for words in (("upgrade", "--feature", "transaction.version=3"), ("upgrade", "--feature", "metadata.version=30"),
                  ("downgrade", "--feature", "transaction.version=1"), ("disable", "--feature", "group.version"),
                  ("downgrade", "--unsafe", "--feature", "group.version=0")):
        said = tools.run("FeatureCommand", *words, fails=True)
        assert "Could not" in said, said
    assert tools.run("FeatureCommand", "describe") == tools.run("FeatureCommand", "describe")


def check_cluster(tools):
    shown = tools.run("ClusterTool", "cluster-id")
    assert re.search(r"Cluster ID: [A-Za-z0-9_-]{22}$", shown.strip()), shown


# --- measuring ------------------------------------------------------------------------------------

def check_performance(tools, count):
    topic = "tools-performance"
    create(tools.broker, topic)
    got = tools.run("ProducerPerformance", "--topic", topic, "--num-records", str(count), "--throughput", "-1",
                    "--record-size", "200")
    assert got.strip().splitlines()[-1].startswith(f"{count} records sent, "), got[-1000:]
    got = tools.run("ConsumerPerformance", "--topic", topic, "--num-records", str(count), "--hide-header",
                    "--timeout", "60000")
    fields = [field.strip() for field in got.strip().splitlines()[-1].split(",")]
    assert int(fields[4]) == count, got


def check_latency(tools, count):
    topic = "tools-latency"
    create(tools.broker, topic)
    got = tools.run("EndToEndLatency", "--topic", topic, "--num-records", str(count), "--producer-acks", "all",
                    "--record-size", "100")
    assert re.search(r"Avg latency: +[0-9.]+ ms", got) and "Percentiles: 50th" in got, got[-1000:]


# --- under kills ----------------------------------------------------------------------------------

class Lines(threading.Thread):
    """What a verifiable client says, a JSON object per line."""

    def __init__(self, process):
        super().__init__()
        self.process = process
        self.said = []
        self.other = []
        self.start()

    def run(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.said.append(json.loads(line))
            else:
                self.other.append(line)

    def named(self, name):
        return [one for one in list(self.said) if one["name"] == name]

    def wait(self, name, count, what):
        deadline = time.monotonic() + LIMIT_S
        while len(self.named(name)) < count:
            assert self.process.poll() is None and time.monotonic() < deadline, \
                f"{what}: {len(self.named(name))} of {count}\n{''.join(self.other[-20:])}"
            time.sleep(0.05)


def check_verifiable(tools, count):
    topic, group = "tools-verifiable", "tools-verifiable"
    broker = tools.broker
    create(broker, topic, PARTITIONS)
    # By itself it sends once only, without idempotence: then a kill may refuse records.
    settings = tools.write("producer.properties", "retries=2147483647\nenable.idempotence=true\n")
    # Whoever waits in JoinGroup when the data plane is killed hears nothing through a port, where no kernel closes
    # the connection, until this time and five seconds are over.
    patience = tools.write("consumer.properties", "max.poll.interval.ms=20000\n")
    consumer = tools.start("VerifiableConsumer", "--topic", topic, "--group-id", group, "--max-messages", str(count),
                           "--reset-policy", "earliest", "--verbose", "--command-config", patience)
    producer = tools.start("VerifiableProducer", "--topic", topic, "--max-messages", str(count), "--throughput",
                           str(count // 6), "--acks", "-1", "--command-config", settings)
    try:
        reads, writes = Lines(consumer), Lines(producer)
        for step, name in enumerate(("control", "millraced"), 1):
            writes.wait("producer_send_success", step * count // 3, "the producer before a kill")
            broker.wait_restart(name, broker.kill(name))
        writes.wait("producer_send_success", count, "the producer")
        assert producer.wait(LIMIT_S) == 0, "".join(writes.other[-20:])
        # The consumer ends when it has count records. A record that it had read but not committed when the group
        # was lost with its member comes again, and is one of them: then not all were read.
        try:
            assert consumer.wait(LIMIT_S) == 0, "".join(reads.other[-20:])
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"the consumer: {len(reads.named('record_data'))} of {count}\n"
                                 + "".join(reads.other[-20:])) from late
        reads.join()
        writes.join()
    finally:
        for process in (producer, consumer):
            if process.poll() is None:
                process.kill()
                process.wait()
    assert not writes.named("producer_send_error"), writes.named("producer_send_error")[:3]
    told = {(one["partition"], one["offset"]): one["value"] for one in writes.named("producer_send_success")}
    assert len(told) == count, f"{len(told)} offsets of {count} acknowledged records"
    got = broker.kcat("LOCAL", "-C", "-t", topic, "-e", "-f", "%p %o %s\n").splitlines()
    kept = {(int(partition), int(offset)): value for partition, offset, value in (line.split() for line in got)}
    lost = [place for place, value in told.items() if kept.get(place) != value]
    assert not lost, f"acknowledged and not there: {lost[:5]}"
    seen = {}
    for one in reads.named("record_data"):
        seen[(one["partition"], one["offset"])] = one["value"]
    assert all(kept[place] == value for place, value in seen.items())
    again = len(reads.named("record_data")) - len(seen)
    assert len(seen) + again >= count and len(kept) >= count, (len(seen), again, len(kept))
    for partition in range(PARTITIONS):  # nothing was passed over up to the last one that was read
        mine = sorted(offset for where, offset in seen if where == partition)
        assert mine == list(range(len(mine))), f"partition {partition}: a gap in what was read"
    print(f"verifiable: {count} acknowledged, {len(seen)} read, {again} of them twice, over two kills")


def check_replicas(tools, topic):
    """The tool compares replicas; of one it finds that nothing lags. It runs until it is ended."""
    process = tools.start("ReplicaVerificationTool", "--topics-include", topic, "--time", "-2",
                          "--report-interval-ms", "1000")
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.start()
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if "max lag is" in line:
                break
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    assert said and "max lag is 0 for partition" in said[-1], "".join(said[-20:])
    assert f"among {PARTITIONS} partitions" in said[-1], said[-1]


# --- all ------------------------------------------------------------------------------------------

TOPIC = "tools-times"


def fill_times(broker):
    """The topic whose records' times are known; the times, the same ones in each partition."""
    base = int(time.time() * 1000) - (MINUTES - 1) * 60000
    times = [base + i * 60000 for i in range(MINUTES)]
    create(broker, TOPIC, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address("LOCAL"), "linger.ms": 5})
    for when in times:
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, str(when), partition=partition, timestamp=when)
    assert producer.flush(60) == 0
    return times


def checks_of(times):
    """Of each tool what the table says of it, and its check."""
    topic = TOPIC
    records = pick(100000, 5000)
    latencies = pick(5000, 200)
    verified = pick(60000, 3000)
    pick("dry run and execution of each reset, and every option of TopicCommand, ConfigCommand and GetOffsetShell",
         "one dry run, each reset executed, the main options")
    return {
        "BrokerApiVersionsCommand": ("every API that is served, by name and version", check_api_versions),
        "VerifiableProducer, VerifiableConsumer":
            ("while millrace-control and millraced are killed: each acknowledged record is where the producer was "
             "told, and the group misses none", lambda tools: check_verifiable(tools, verified)),
        "ConsumerGroupCommand --reset-offsets":
            ("to-earliest, to-latest, to-offset, shift-by, to-datetime, by-duration, to-current, from-file, export; "
             "dry run and execute", lambda tools: check_resets(tools, topic, times)),
        "ConsumerGroupCommand": ("list and states, describe with lag, members, delete-offsets, delete",
                                 lambda tools: check_groups(tools, topic)),
        "TopicCommand": ("create with an assignment, describe with its filters, list, alter, delete by pattern",
                         check_topics),
        "ConfigCommand, topics": ("alter, add from a file, delete, describe, describe --all with synonyms",
                                  check_topic_configs),
        "ConfigCommand, brokers": ("alter for one and as default of all, delete, describe --all with synonyms; what is "
                                   "read at the start only is refused", check_broker_configs),
        "ConfigCommand, groups": ("alter, delete, describe by name and without, describe --all with synonyms, over a "
                                  "restart; values out of the broker's bounds are refused", check_group_configs),
        "ConsoleProducer, ConsoleConsumer": ("keys, headers, codec, offsets, a group", check_console),
        "GetOffsetShell": ("earliest, latest, max-timestamp, a time; ranges of partitions",
                           lambda tools: check_offsets(tools, topic, times)),
        "DeleteRecordsCommand": ("up to an offset", check_delete_records),
        "LogDirsCommand": ("sizes equal those of the files", lambda tools: check_log_dirs(tools, topic)),
        "ProducerPerformance, ConsumerPerformance": ("every record sent is read",
                                                     lambda tools: check_performance(tools, records)),
        "EndToEndLatency": ("acks=all", lambda tools: check_latency(tools, latencies)),
        "TransactionsCommand": ("list with its filters, describe, describe-producers, forceTerminateTransaction; a hanging "
                                "one is found by find-hanging, and ended by abort", java_transactions.check),
        "GroupsCommand": ("list with the kind of each group", lambda tools: check_list_groups(tools, topic)),
        "ClusterTool": ("cluster-id", check_cluster),
        "FeatureCommand": ("describe, upgrade to the level that holds, with and without a dry run; other levels are "
                           "refused", check_features),
        "ReplicaVerificationTool": ("of one replica: nothing lags", lambda tools: check_replicas(tools, topic)),
    }


def leave_out(table):
    table.leave_out("ShareGroupCommand, StreamsGroupCommand and the share clients", "",
                    "share and streams groups are not served yet")
    table.leave_out("DelegationTokenCommand, AclCommand", "", "there is no security yet")
    table.leave_out("MetadataQuorumCommand", "",
                    "there is no KRaft quorum whose state they could show")
    table.leave_out("ClientMetricsCommand, JmxTool, OAuthCompatibilityTool", "",
                    "telemetry of clients, JMX and OAuth are not offered")


def main():
    if not JARS:
        skip("Kafka's tools are not in build/clients: tests/clients/setup")
    only = sys.argv[1:]
    failed = []
    with Broker(nic=False, settings={"control.request.timeout.ms": "10000",
                                     "group.initial.rebalance.delay.ms": "500"}) as broker:
        broker.start()
        tools = Tools(broker)
        checks = checks_of(fill_times(broker))
        table = compat.Table("java-tools", "Command line tools of Kafka 4.4")
        for subject, (what, _) in checks.items():
            table.row(subject, what)
        leave_out(table)

        def one(subject):
            begun = time.monotonic()
            try:
                checks[subject][1](tools)
            except Exception as error:  # one tool's fault must not hide another's
                failed.append(f"{subject}: {error!r}")
                print(f"FAILED {subject}: {error}", flush=True)
                return
            table.result(subject, "works")
            print(f"{subject}: {time.monotonic() - begun:.1f} s", flush=True)

        # The first leaves the classes; others kill processes of the broker.
        wanted = [subject for subject in checks if not only or any(word in subject for word in only)]
        alone = [subject for subject in ALONE if subject in wanted]
        for subject in alone:
            one(subject)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, [subject for subject in wanted if subject not in alone]))
        assert not failed, failed
        broker.wait_no_loans()
    if not only:
        table.finish()
    print(f"{len(wanted)} rows of Kafka's tools work")


if __name__ == "__main__":
    main()
