# SPDX-License-Identifier: Apache-2.0
"""Goal: confluent-kafka (librdkafka) creates a topic, produces with idempotence and one codec, finds offsets
by time, assigns all partitions and reads everything back.

Method: runs where the broker is reachable, with the records of lib.records. ADDRESS TOPIC CODEC BYTES"""
import sys

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lib.records import PARTITIONS, Contents, Records

END = -1  # librdkafka's offset for a time after the last record
BATCH = 10000  # consume() waits for as many as it is asked for


def produce(address, topic, codec, records):
    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5,
                         "enable.idempotence": True, "queue.buffering.max.messages": 200000})
    failed = []

    def delivered(error, _):
        if error:
            failed.append(error)

    for partition, key, value, timestamp_ms in records:
        while True:
            try:
                producer.produce(topic, value=value, key=key, partition=partition,
                                 timestamp=timestamp_ms, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0 and not failed, failed[:3]


def check_offsets(consumer, topic, records):
    count = records.contents.counts[0]
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    assert (low, high) == (0, count), (low, high, count)
    for timestamp_ms, want in records.times():
        got = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=60)[0]
        assert not got.error, got.error
        assert got.offset == (END if want is None else want), \
            f"offset at {timestamp_ms - records.start_ms} ms is {got.offset}, not {want}"


def read(consumer, topic, records):
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    got = Contents()
    while sum(got.counts) < records.count:
        messages = consumer.consume(min(BATCH, records.count - sum(got.counts)), 60)
        assert messages, f"nothing more came: {got.counts} of {records.contents.counts}"
        for message in messages:
            assert not message.error(), message.error()
            got.take(message.partition(), message.offset(), message.key(), message.value(),
                     message.timestamp()[1])
    return got


def main():
    address, topic, codec, total = sys.argv[1:4] + [int(sys.argv[4])]
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    records = Records(total)
    produce(address, topic, codec, records)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused",
                         "enable.auto.commit": False, "auto.offset.reset": "error",
                         "check.crcs": True})
    check_offsets(consumer, topic, records)
    read(consumer, topic, records).assert_equal(records.contents)
    consumer.close()
    print(f"librdkafka {confluent_kafka.libversion()[0]} {codec}: {records.count} records in "
          f"{PARTITIONS} partitions equal")


if __name__ == "__main__":
    main()
