#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""txn_copy.py ADDRESS FROM TO GROUP ID COUNT: reads COUNT records of FROM and writes each to TO, exactly once:
records and offsets of a batch are one transaction, as an application of Kafka's does it. What fails is begun
again, by an abort or, when the producer is told to give up, by another producer of the same transactional id.
Some transactions are aborted on purpose. Ends when the group has committed the end of each partition, or at SIGTERM;
nothing of it is open then."""
import signal
import sys
import time

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

BATCH = 50
LIMIT_S = 90
ABORT_EVERY = 7


def make_producer(address, name):
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": name,
                                         "transaction.timeout.ms": 20000, "linger.ms": 1})
    producer.init_transactions(LIMIT_S)
    return producer


def make_consumer(address, topic, group):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group,
                                         "enable.auto.commit": False, "auto.offset.reset": "earliest",
                                         "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    return consumer


def ask_committed(consumer, places):
    """What the group has; a coordinator that is about to come back is asked again."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return consumer.committed(places, LIMIT_S)
        except KafkaException as fault:
            assert time.monotonic() < deadline, fault
            time.sleep(0.1)


def rewind(consumer):
    """Back to what is committed: what was read since is read again."""
    for place in ask_committed(consumer, consumer.assignment()):
        consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


def committed(consumer, topic, count):
    partitions = consumer.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions
    places = ask_committed(consumer, [TopicPartition(topic, number) for number in partitions])
    return sum(max(place.offset, 0) for place in places) >= count


def copy(producer, consumer, target, number):
    """One transaction. ret: records that are committed."""
    records = [record for record in consumer.consume(BATCH, 0.5) if not record.error()]
    if not records:
        return 0
    producer.begin_transaction()
    for record in records:
        producer.produce(target, record.value(), partition=record.partition())
    places = {record.partition(): record.offset() + 1 for record in records}
    producer.send_offsets_to_transaction(
        [TopicPartition(records[0].topic(), partition, offset) for partition, offset in places.items()],
        consumer.consumer_group_metadata(), LIMIT_S)
    if number % ABORT_EVERY == ABORT_EVERY - 1:
        producer.flush(LIMIT_S)
        producer.abort_transaction(LIMIT_S)
        rewind(consumer)
        return 0
    producer.commit_transaction(LIMIT_S)
    return len(records)


def main():
    address, source, target, group, name, count = sys.argv[1:]
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    producer = make_producer(address, name)
    consumer = make_consumer(address, source, group)
    deadline = time.monotonic() + 2 * LIMIT_S
    number = 0
    again = 0
    while not stopping and not (number % 5 == 0 and committed(consumer, source, int(count))):
        assert time.monotonic() < deadline, "the copy does not come to its end"
        try:
            if copy(producer, consumer, target, number) > 0:
                deadline = time.monotonic() + 2 * LIMIT_S
        except KafkaException as fault:
            error = fault.args[0]
            again += 1
            if error.txn_requires_abort():
                producer.abort_transaction(LIMIT_S)
                rewind(consumer)
            elif not error.retriable():
                print(f"another producer: {error}")
                producer = make_producer(address, name)
                rewind(consumer)
        number += 1
    consumer.close()
    if stopping:
        make_producer(address, name)  # ends what the last one may have left
    print(f"transactions={number} again={again}")


if __name__ == "__main__":
    main()
