# SPDX-License-Identifier: Apache-2.0
"""What clients see of a broker with direct cores. Runs where the broker is reachable:

    ADDRESS shape CORES TOPIC   nodes, ports, leaders, replicas; each node's settings; prints who leads what
    ADDRESS wrong CORES TOPIC   produce and fetch at a core that does not own the partition
    ADDRESS idle CORES          connections to the last core are silent for 5 s and are answered after
    ADDRESS reach COUNT TOPIC   so many connections at once produce to partitions 0 and 1 each"""
import json
import struct
import sys
import time

from confluent_kafka.admin import AdminClient, ConfigResource

from lib.wire import API_VERSIONS, METADATA, Client, batch, text

STEP = 1000000
IDLE_S = 5
CONNECTIONS = 16


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values[0]

    def text(self):
        size = self.take(">h")
        self.at += max(size, 0)
        return self.data[self.at - size:self.at].decode() if size >= 0 else None

    def ints(self):
        return [self.take(">i") for _ in range(self.take(">i"))]


def metadata(client, topic):
    """Metadata v1: ({id: (host, port)}, controller, {partition: (leader, replicas, isr)})."""
    read = Reader(client.ask(METADATA, 1, struct.pack(">i", 1) + text(topic)))
    nodes = {}
    for _ in range(read.take(">i")):
        node = read.take(">i")
        nodes[node] = (read.text(), read.take(">i"))
        read.text()
    controller = read.take(">i")
    partitions = {}
    for _ in range(read.take(">i")):
        assert read.take(">h") == 0 and read.text() == topic
        read.take(">b")
        for _ in range(read.take(">i")):
            assert read.take(">h") == 0
            index = read.take(">i")
            partitions[index] = (read.take(">i"), read.ints(), read.ints())
    return nodes, controller, partitions


def shape(address, cores, topic):
    host, port = address.rsplit(":", 1)
    want = {1 + core * STEP: (host, int(port) + core) for core in range(cores)}
    seen = None
    for node in want.values():  # every core tells the same
        with Client(f"{node[0]}:{node[1]}") as client:
            nodes, controller, partitions = metadata(client, topic)
        assert nodes == want, nodes
        assert controller == 1, controller
        assert seen in (None, partitions), (seen, partitions)
        seen = partitions
    for leader, replicas, isr in seen.values():
        assert leader in want and replicas == [leader] and isr == [leader], seen
    leaders = {index: leader for index, (leader, _, _) in seen.items()}
    assert set(leaders.values()) == set(want), f"a core leads nothing: {leaders}"
    admin = AdminClient({"bootstrap.servers": address})
    for node in want:
        found = list(admin.describe_configs([ConfigResource("broker", str(node))]).values())[0].result(20)
        assert found["node.id"].value == "1", found["node.id"]
    print(json.dumps(leaders))


def wrong(address, cores, topic):
    host, port = address.rsplit(":", 1)
    with Client(address) as client:
        _, _, partitions = metadata(client, topic)
    for index in range(cores):
        leader = partitions[index][0]
        other = (leader // STEP + 1) % cores
        with Client(f"{host}:{int(port) + other}") as client:
            error, base, _, _ = client.produce(topic, index, batch([b"at the wrong core"]))
            assert error == 0, error
            error, high, _, records = client.fetch(topic, index, base)
            assert error == 0 and high == base + 1 and b"at the wrong core" in records


def idle(address, cores):
    host, port = address.rsplit(":", 1)
    clients = [Client(f"{host}:{int(port) + cores - 1}") for _ in range(CONNECTIONS)]
    for _ in range(2):
        for client in clients:
            client.ask(API_VERSIONS, 0, b"")
        time.sleep(IDLE_S)
    for client in clients:
        client.ask(API_VERSIONS, 0, b"")
        client.close()


def reach(address, count, topic):
    clients = [Client(address) for _ in range(count)]
    for client in clients:
        for partition in (0, 1):
            error = client.produce(topic, partition, batch([b"reached"]))[0]
            assert error == 0, error
    for client in clients:
        client.close()


def main():
    address, what, cores = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if what == "shape":
        shape(address, cores, sys.argv[4])
    elif what == "wrong":
        wrong(address, cores, sys.argv[4])
    elif what == "reach":
        reach(address, cores, sys.argv[4])
    else:
        idle(address, cores)


if __name__ == "__main__":
    main()
