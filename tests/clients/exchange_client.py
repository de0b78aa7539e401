# SPDX-License-Identifier: Apache-2.0
"""Goal: the same records, whoever serves them. exchange_client.py produce ADDRESS BYTES [txn] makes topics of
all codecs and, asked for it, one of committed and aborted transactions; exchange_client.py read ADDRESS COUNT prints
what a reader of each isolation level gets of COUNT topics, as JSON: per topic and partition a count and a digest."""
import hashlib
import json
import random
import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
TRANSACTIONS = 30
RECORD_BYTES = 700
SILENCE_S = 30


def create(address, topics):
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"segment.bytes": "1048576"})
                                for topic in topics])
    for future in made.values():
        future.result(30)


def send(producer, topic, source, count):
    for number in range(count):
        value = source.randbytes(RECORD_BYTES // 2) + b"a" * (RECORD_BYTES // 2)
        producer.produce(topic, value=value, key=f"key-{number}", partition=number % PARTITIONS,
                         timestamp=1700000000000 + number, headers={"header": str(number)})
        producer.poll(0)
    assert producer.flush(120) == 0


def transact(address, topic, source):
    producer = Producer({"bootstrap.servers": address, "transactional.id": "exchange"})
    producer.init_transactions(60)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        send(producer, topic, source, 5)
        if number % 3 == 1:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def produce(address, size_bytes, transactions):
    source = random.Random(size_bytes)
    topics = ["exchange-" + codec for codec in CODECS] + ["exchange-txn"] * transactions
    create(address, topics)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": address, "compression.type": codec,
                             "enable.idempotence": True, "linger.ms": 5})
        send(producer, "exchange-" + codec, source, size_bytes // RECORD_BYTES)
    if transactions:
        transact(address, "exchange-txn", source)


def read_partition(consumer, topic, partition):
    digest = hashlib.sha256()
    count = 0
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        message = consumer.poll(SILENCE_S)
        assert message is not None, f"{topic}-{partition}: nothing more, and no end"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            return [count, digest.hexdigest()]
        digest.update(repr((message.offset(), message.timestamp(), message.key(), message.value(),
                            message.headers())).encode())
        count += 1


def find_topics(consumer, count):
    """The topics, as soon as the broker leads that many; a Kafka listens before it does."""
    deadline = time.monotonic() + 60
    while True:
        topics = {name: topic for name, topic in consumer.list_topics(timeout=30).topics.items()
                  if name.startswith("exchange-")}
        led = [name for name, topic in topics.items() if len(topic.partitions) == PARTITIONS and
               all(partition.leader >= 0 for partition in topic.partitions.values())]
        if len(led) == count:
            return sorted(led)
        assert time.monotonic() < deadline, f"{led} of {list(topics)} after a minute"
        time.sleep(0.5)


def read(address, count):
    got = {}
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer({"bootstrap.servers": address, "group.id": "exchange",
                             "isolation.level": isolation, "enable.partition.eof": True,
                             "enable.auto.commit": False, "auto.offset.reset": "error"})
        for topic in find_topics(consumer, count):
            got[f"{topic} {isolation}"] = [read_partition(consumer, topic, partition)
                                           for partition in range(PARTITIONS)]
        consumer.close()
    print(json.dumps(got))


def main():
    if sys.argv[1] == "produce":
        produce(sys.argv[2], int(sys.argv[3]), "txn" in sys.argv[4:])
    else:
        read(sys.argv[2], int(sys.argv[3]))


if __name__ == "__main__":
    main()
