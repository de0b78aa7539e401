# SPDX-License-Identifier: Apache-2.0
"""Runs where the broker is reachable: confluent-kafka produces random records with one codec over several
partitions, assigns them and reads all back. ADDRESS TOPIC CODEC BYTES"""
import hashlib
import os
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4


def main():
    address, topic, codec, total = sys.argv[1:4] + [int(sys.argv[4])]
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5,
                         "enable.idempotence": True, "queue.buffering.max.messages": 200000})
    pool = os.urandom(1 << 20)
    want = [hashlib.sha256() for _ in range(PARTITIONS)]
    counts = [0] * PARTITIONS
    failed = []

    def delivered(error, message):
        if error:
            failed.append(error)

    sent = 0
    index = 0
    while sent < total:
        size = 1 + (index * 7919) % 2000
        at = (index * 104729) % (len(pool) - size)
        value = index.to_bytes(8, "big") + pool[at:at + size]
        partition = index % PARTITIONS
        while True:
            try:
                producer.produce(topic, value=value, key=str(index), partition=partition,
                                 on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        want[partition].update(value)
        counts[partition] += 1
        sent += len(value)
        index += 1
        producer.poll(0)
    assert producer.flush(120) == 0 and not failed, failed[:3]
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused",
                         "enable.auto.commit": False, "auto.offset.reset": "error",
                         "check.crcs": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    got = [hashlib.sha256() for _ in range(PARTITIONS)]
    next_offset = [0] * PARTITIONS
    while next_offset != counts:
        messages = consumer.consume(10000, 30)
        assert messages, f"nothing more came: {next_offset} of {counts}"
        for message in messages:
            assert not message.error(), message.error()
            partition = message.partition()
            assert message.offset() == next_offset[partition]
            next_offset[partition] += 1
            got[partition].update(message.value())
    assert [one.digest() for one in got] == [one.digest() for one in want]
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    assert (low, high) == (0, counts[0])
    consumer.close()
    print(f"{codec}: {index} records in {PARTITIONS} partitions equal")


if __name__ == "__main__":
    main()
