#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: Kafka serves a copy of our log directory, and Millrace a copy of Kafka's, with the same records.

Method: records of all codecs (and, written by Kafka, committed and aborted transactions) are read with both
isolation levels before and after; each partition must have the same count and digest. Kafka 3.9 runs on a copy
of a directory that Millrace wrote, in ZooKeeper mode, with znodes of our topic and cluster ids that this test
writes. Millrace takes over copies of what Kafka 3.9 and Kafka 4.4 (KRaft) wrote with --adopt, one stopped
cleanly and one killed; then it is refused a second time, and goes on without it."""
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from lib.broker import BUILD, TOP, Broker, free_port, pick, run, wait

KAFKA39 = os.path.join(BUILD, "clients/kafka39/lib")
KAFKA44 = os.path.join(BUILD, "clients/java/lib")
CLIENT = os.path.join(TOP, "tests/clients/exchange_client.py")
START_S = 120
CODECS = 5  # a topic each
CLUSTER = "bWlsbHJhY2UtZXhjaGFuZw"


def client(*words):
    return run("/usr/bin/python3", "-B", CLIENT, *words, timeout=900,
               env={**os.environ, "PYTHONPATH": os.path.join(TOP, "tests")})


def read(address, topics):
    return json.loads(client("read", address, str(topics)))


def same(before, after, what):
    assert before and before.keys() == after.keys(), (what, before.keys(), after.keys())
    for name, partitions in before.items():
        assert after[name] == partitions, f"{what}: {name}: {after[name]} in place of {partitions}"


class Java:
    """A server on the JVM with a port of its own."""

    def __init__(self, home, jars, main, port, *words):
        self.log = os.path.join(home, main + ".log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", jars + "/*", main, *words],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=home)
        self.address = f"127.0.0.1:{port}"
        wait(f"{main} does not listen: {self.log}", lambda: self.answers(port), START_S)

    def answers(self, port):
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise AssertionError("".join(log.readlines()[-40:]))
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(timeout=60)


def write_properties(path, **values):
    with open(path, "w", encoding="utf-8") as out:
        for key, value in values.items():
            out.write(f"{key.replace('_', '.')}={value}\n")
    return path


COMMON = {"offsets_topic_replication_factor": 1, "transaction_state_log_replication_factor": 1,
          "transaction_state_log_min_isr": 1, "offsets_topic_num_partitions": 3,
          "transaction_state_log_num_partitions": 3, "log_index_interval_bytes": 4096,
          "log_retention_ms": -1}  # the records' times are of 2023


class ZooKeeperKafka:
    """ZooKeeper and Kafka 3.9 on it."""

    def __init__(self, home, data):
        self.home, self.data = home, data
        self.zookeeper_port = free_port()
        os.makedirs(os.path.join(home, "zookeeper"))
        config = write_properties(os.path.join(home, "zoo.cfg"), dataDir=os.path.join(home, "zookeeper"),
                                  clientPort=self.zookeeper_port, admin_enableServer="false")
        self.zookeeper = Java(home, KAFKA39, "org.apache.zookeeper.server.ZooKeeperServerMain",
                              self.zookeeper_port, config)
        self.kafka = None

    def create(self, nodes):
        """Znodes with their texts, which hold no space and no quote but \"."""
        lines = "".join(f"create {path} '{text}'\n" for path, text in nodes) + "quit\n"
        done = subprocess.run(
            ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", KAFKA39 + "/*",
             "org.apache.zookeeper.ZooKeeperMain", "-server", self.zookeeper.address],
            input=lines, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=START_S,
            check=False)
        assert done.stdout.count("Created ") == len(nodes), done.stdout[-2000:]

    def start(self):
        port = free_port()
        config = write_properties(
            os.path.join(self.home, "kafka39.properties"), broker_id=1, log_dirs=self.data,
            zookeeper_connect=self.zookeeper.address, listeners=f"PLAINTEXT://127.0.0.1:{port}", **COMMON)
        self.kafka = Java(self.home, KAFKA39, "kafka.Kafka", port, config)
        return self.kafka.address

    def stop(self, number=signal.SIGTERM):
        if self.kafka and self.kafka.process.poll() is None:
            self.kafka.stop(number)

    def close(self):
        self.stop(signal.SIGKILL)
        self.zookeeper.stop(signal.SIGKILL)


class RaftKafka:
    """Kafka 4.4, its own controller."""

    def __init__(self, home, data):
        self.home = home
        port, controller = free_port(), free_port()
        self.config = write_properties(
            os.path.join(home, "kafka44.properties"), process_roles="broker,controller", node_id=1,
            log_dirs=data, controller_quorum_voters=f"1@127.0.0.1:{controller}",
            listeners=f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            controller_listener_names="CONTROLLER",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", **COMMON)
        self.port = port
        run("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", KAFKA44 + "/*", "kafka.tools.StorageTool",
            "format", "-t", CLUSTER, "-c", self.config)
        self.kafka = None

    def start(self):
        self.kafka = Java(self.home, KAFKA44, "kafka.Kafka", self.port, self.config)
        return self.kafka.address

    def stop(self, number=signal.SIGTERM):
        if self.kafka and self.kafka.process.poll() is None:
            self.kafka.stop(number)

    def close(self):
        self.stop(signal.SIGKILL)


# --- ours, read by Kafka ---------------------------------------------------------------------------------------

def znodes(data):
    """What a controller would have written for the topics of a directory of ours."""
    with open(os.path.join(data, "meta.properties"), encoding="ascii") as file:
        cluster = next(line.split("=", 1)[1].strip() for line in file if line.startswith("cluster.id"))
    nodes = [("/cluster", ""), ("/cluster/id", f'{{"version":"1","id":"{cluster}"}}'), ("/brokers", ""),
             ("/brokers/topics", "")]
    topics = {}
    for path in sorted(glob.glob(os.path.join(data, "*", "partition.metadata"))):
        topic, partition = os.path.basename(os.path.dirname(path)).rsplit("-", 1)
        with open(path, encoding="ascii") as file:
            topics.setdefault(topic, [file.read().split("topic_id:")[1].strip(), []])[1].append(int(partition))
    for topic, (topic_id, partitions) in topics.items():
        replicas = ",".join(f'"{partition}":[1]' for partition in sorted(partitions))
        nodes.append((f"/brokers/topics/{topic}",
                      f'{{"version":3,"partitions":{{{replicas}}},"adding_replicas":{{}},'
                      f'"removing_replicas":{{}},"topic_id":"{topic_id}"}}'))
    return cluster, nodes


def kafka_reads_ours(home, total):
    data = os.path.join(home, "data")
    with Broker(nic=False, settings={"log.segment.bytes": str(1 << 20),
                                    "log.retention.ms": "-1"}) as broker:
        broker.start()
        client("produce", broker.address("LOCAL"), str(total))
        before = read(broker.address("LOCAL"), CODECS)
        code, _ = broker.stop()
        assert code == 0, code
        shutil.copytree(broker.log_dir, data, ignore=shutil.ignore_patterns("millrace.db*", ".lock"))
    assert sum(partition[0] for partition in before["exchange-zstd read_committed"]) == total // 700
    cluster, nodes = znodes(data)
    # A broker of ZooKeeper's time takes version 0 only; ours is that of KRaft.
    write_properties(os.path.join(data, "meta.properties"), version=0, broker_id=1, cluster_id=cluster)
    kafka = ZooKeeperKafka(home, data)
    try:
        kafka.create(nodes)
        address = kafka.start()
        same(before, read(address, CODECS), "Kafka 3.9 on ours")
    finally:
        kafka.close()
    return len(nodes) - 4


# --- Kafka's, read by us ---------------------------------------------------------------------------------------

def we_read_kafkas(home, make, total, number):
    data = os.path.join(home, "data")
    kafka = make(home, data)
    try:
        address = kafka.start()
        client("produce", address, str(total), "txn")
        before = read(address, CODECS + 1)
        kafka.stop(number)
    finally:
        kafka.close()
    committed, every = (sum(partition[0] for partition in before["exchange-txn " + isolation])
                        for isolation in ("read_committed", "read_uncommitted"))
    assert committed == 100 and every == 150, (committed, every)
    with Broker(nic=False) as broker:
        shutil.copytree(data, broker.log_dir)
        broker.start_words = ("--adopt",)
        broker.start(timeout=120)
        address = broker.address("LOCAL")
        same(before, read(address, CODECS + 1), f"Millrace on {make.__name__}")
        code, _ = broker.stop(timeout=60)
        assert code == 0, code
        refused = subprocess.run([os.path.join(broker.build, "millrace"), "start", "-c", broker.config, "--adopt"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert refused.returncode == 1 and "start without --adopt" in refused.stderr, refused
        broker.start_words = ()
        broker.start(timeout=120)
        same(before, read(broker.address("LOCAL"), CODECS + 1), "a second start")
    return every


def main():
    total = pick(64 << 20, 3 << 20)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-exchange-") as home:
        topics = kafka_reads_ours(home, total)
    print(f"Kafka 3.9 serves {topics} topics of ours")
    for make, number in ((ZooKeeperKafka, signal.SIGTERM), (RaftKafka, signal.SIGKILL)):
        with tempfile.TemporaryDirectory(prefix="millrace-exchange-") as home:
            we_read_kafkas(home, make, total, number)
        print(f"Millrace serves those of {make.__name__}, ended by {number.name}")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
