#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a consumer of many partitions sends and gets a small part of the bytes that it does without fetch sessions
(KIP-227), and every record all the same; a client that knows no sessions is served as before.

Method: Kafka's console consumer reads a topic of many partitions through a proxy that counts the bytes of its
Fetch requests and answers, while records go to a few of the partitions; once with the sessions of the default
settings, once with max.incremental.fetch.session.cache.slots=0. Then kcat reads the same records, with another
consumer beside it that comes when the only slot is taken."""
import os
import subprocess
import threading
import time
import urllib.request

from lib.broker import Broker, free_port, pick, run, skip, wait
from lib.proxy import Counting
from lib.wire import FETCH, Client, batch

JARS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                    "build/clients/java/lib")
TOPIC = "sessions"
LIMIT_S = 120
HELD_BACK = 30  # lines


class Consumer:
    """The console consumer; values are what it printed. It holds the last lines back until it ends, which it does by
    itself after so many records as are asked for."""

    def __init__(self, address, group, records):
        self.values = []
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", JARS + "/*",
                   "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", address, "--topic", TOPIC,
                   "--group", group, "--from-beginning", "--max-messages", str(records),
                   "--command-property", "fetch.max.wait.ms=100"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.values.append(line.rstrip("\n"))

    def wait_begun(self, records):
        wait("the first records", lambda: len(self.values) > records - HELD_BACK, LIMIT_S)

    def all(self):
        """Every value, once it has ended."""
        assert self.process.wait(LIMIT_S) == 0
        self.reader.join(LIMIT_S)
        return sorted(self.values)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)


def produce(client, partition, value):
    error, *_ = client.produce(TOPIC, partition, batch((value.encode(),)))
    assert error == 0, error


def fetched(partitions, records, slots):
    """Bytes of a Fetch request and of its answer, on average, of a consumer that keeps up."""
    port = free_port()
    with Counting("127.0.0.1", port) as proxy:
        settings = {"listeners": f"LOCAL://127.0.0.1:{port}",
                    "advertised.listeners": f"LOCAL://127.0.0.1:{proxy.port}",
                    "max.incremental.fetch.session.cache.slots": str(slots)}
        with Broker(nic=False, settings=settings) as broker:
            broker.port = port
            broker.start()
            broker.millrace("topic", "create", TOPIC, "-p", str(partitions))
            with Client(f"127.0.0.1:{port}") as client, \
                    Consumer(f"127.0.0.1:{proxy.port}", f"with-{slots}", partitions + records) as consumer:
                for partition in range(partitions):
                    produce(client, partition, f"first-{partition}")
                consumer.wait_begun(partitions)
                time.sleep(1)
                proxy.reset()
                for number in range(records - 1):
                    produce(client, number % 3, f"value-{number}")
                    time.sleep(0.02)
                time.sleep(1)
                asked, answered = proxy.requests[FETCH], proxy.answers[FETCH]
                sessions = sum(broker.counts("fetch_sessions")), sum(broker.counts("fetch_session_partitions"))
                produce(client, 0, f"value-{records - 1}")
                wanted = [f"first-{i}" for i in range(partitions)] + [f"value-{i}" for i in range(records)]
                assert consumer.all() == sorted(wanted), "other records than were sent"
            assert answered[0] > records / 10, answered
            assert sessions == ((1, partitions) if slots else (0, 0)), sessions
            return asked[1] / asked[0], answered[1] / answered[0]


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def bounded(records):
    """One slot: whoever comes second is served without a session, and kcat never asks for one."""
    with Broker(nic=False, settings={"max.incremental.fetch.session.cache.slots": "1",
                                     "http.listener": f"127.0.0.1:{(http := free_port())}"}) as broker:
        broker.start()
        broker.millrace("topic", "create", TOPIC, "-p", "3")
        address = broker.address("LOCAL")
        with Client(address) as client, Consumer(address, "first", 2 * records) as first:
            for number in range(records):
                produce(client, number % 3, f"value-{number}")
            first.wait_begun(records)
            assert broker.counts("fetch_sessions") == [1]
            with Consumer(address, "second", records) as second:
                wanted = sorted(f"value-{i}" for i in range(records))
                assert second.all() == wanted, "other records than were sent"
            assert broker.counts("fetch_sessions_refused")[0] >= 1
            got = run("kcat", "-b", address, "-C", "-t", TOPIC, "-e", "-q", "-o", "beginning").split()
            assert sorted(got) == wanted, "other records than were sent"
            shown = metrics(http)
            assert "\nkafka_server_fetch_session_cache_num_incremental_fetch_sessions 1\n" in shown
            assert "\nkafka_server_fetch_session_cache_incremental_fetch_session_evictions_total 0\n" in shown


def main():
    if not os.path.isdir(JARS):
        skip("Kafka's tools are not in build/clients: tests/clients/setup")
    partitions, records = pick((1000, 1000), (200, 150))
    asked, answered = fetched(partitions, records, 1000)
    asked_full, answered_full = fetched(partitions, records, 0)
    print(f"{partitions} partitions, bytes of a Fetch request: {asked:.0f} with a session, {asked_full:.0f} without; "
          f"of its answer: {answered:.0f} and {answered_full:.0f}")
    assert asked * 4 < asked_full, "requests are not a quarter of those without a session"
    assert answered * 4 < answered_full, "answers are not a quarter of those without a session"
    bounded(records)


if __name__ == "__main__":
    main()
