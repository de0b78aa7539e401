# SPDX-License-Identifier: Apache-2.0
"""A plugin for pytest that lets kafka-python's own integration tests run against a broker that is there already.

What their source packages leave out is made here: the fixtures of 2.0.2, which begin a broker of Kafka's, and the
module test.service of 3.x, of which an external broker needs one class. KAFKA_URI says where the broker is. Its
topics have four partitions, as the tests' own brokers have. What came of each test is a line in the file that
MILLRACE_RESULTS names: its id, what came of it, and why it was passed over."""
import os
import sys
import time
import types
import uuid
from urllib.parse import urlparse

import kafka
import pytest

BROKER = urlparse(os.environ["KAFKA_URI"])
PARTITIONS = 4
LIMIT_S = 30


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def close(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    def __init__(self, *_words):
        raise AssertionError("these tests begin no broker")


service = types.ModuleType("test.service")
service.ExternalService = ExternalService
service.SpawnedService = SpawnedService
sys.modules["test.service"] = service


def settle_first():
    """A consumer of 3.x loses a subscription that is made while its first metadata is on the way: cluster.py takes the
    answer for the new topics' and asks for no other, as its set_topics says itself. With any broker a few of the tests
    then wait in vain; here each consumer has its metadata, and asks once more, before a test goes on."""
    make = kafka.KafkaConsumer.__init__

    def wrapped(self, *topics, **settings):
        make(self, *topics, **settings)
        self.bootstrap(LIMIT_S * 1000)
        asked = self._cluster.request_update()
        deadline = time.monotonic() + LIMIT_S
        while not asked.is_done and time.monotonic() < deadline:
            time.sleep(0.01)

    kafka.KafkaConsumer.__init__ = wrapped


if kafka.__version__.startswith("3."):
    settle_first()


# --- what came of it ------------------------------------------------------------------------------

def pytest_runtest_logreport(report):
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        result, why = ("passed", "") if report.passed else ("skipped", "the suite expects it to fail: " + expected)
    elif report.skipped:
        result, why = "skipped", report.longrepr[2].removeprefix("Skipped: ")
    else:
        result, why = report.outcome, ""
    if report.when == "call" or result != "passed":
        with open(os.environ["MILLRACE_RESULTS"], "a", encoding="utf-8") as out:
            out.write(f"{report.nodeid}\t{result}\t{why}\n")


# --- fixtures of 2.0.2; 3.x has its own nearer to its tests ----------------------------------------

def new_name(request):
    """Of what belongs to one test: parametrized tests have brackets in their names."""
    return "".join(one if one.isalnum() else "_" for one in request.node.name) + "_" + uuid.uuid4().hex[:8]


def settings(request, more):
    return {"bootstrap_servers": f"{BROKER.hostname}:{BROKER.port}", "client_id": new_name(request), **more}


@pytest.fixture(scope="module")
def kafka_broker():
    return types.SimpleNamespace(host=BROKER.hostname, port=BROKER.port)


@pytest.fixture
def kafka_admin_client(request):
    made = kafka.KafkaAdminClient(**settings(request, {}))
    yield made
    made.close()


@pytest.fixture
def topic(request, kafka_admin_client):
    name = new_name(request)
    kafka_admin_client.create_topics([kafka.admin.NewTopic(name, PARTITIONS, 1)])
    return name


@pytest.fixture
def kafka_consumer_factory(request, topic):
    made = []

    def factory(**more):
        one = kafka.KafkaConsumer(topic, **settings(request, {
            "heartbeat_interval_ms": 500, "auto_offset_reset": "earliest", **more}))
        made.append(one)
        return one

    yield factory
    for one in made:
        one.close()


@pytest.fixture
def kafka_consumer(kafka_consumer_factory):
    return kafka_consumer_factory()


@pytest.fixture
def kafka_producer_factory(request):
    made = []

    def factory(**more):
        one = kafka.KafkaProducer(**settings(request, more))
        made.append(one)
        return one

    yield factory
    for one in made:
        one.close(LIMIT_S)


@pytest.fixture
def kafka_producer(kafka_producer_factory):
    return kafka_producer_factory()


@pytest.fixture
def send_messages(topic, kafka_producer, request):
    """Sends a value of its own for each number, and says what they were."""
    def send(numbers, partition=0, topic=topic, producer=kafka_producer):
        values = [f"{number}-{request.node.name}-{uuid.uuid4()}".encode() for number in numbers]
        sent = [producer.send(topic, value=value, partition=partition) for value in values]
        producer.flush(LIMIT_S)
        assert all(one.succeeded() for one in sent)
        return values

    return send
