# SPDX-License-Identifier: Apache-2.0
"""Goal: kafka-python 2.0.2, a client that shares no code with the others, creates a topic, produces with one
codec, finds offsets at both ends and by time, reads with assigned partitions and deletes the topic.

Method: runs where the broker is reachable, with the records of lib.records. ADDRESS TOPIC CODEC BYTES"""
import sys

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

from lib.records import PARTITIONS, Contents, Records

WAIT_MS = 30000


def create(admin, topic):
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    except TopicAlreadyExistsError:
        return
    raise AssertionError("created twice")


def produce(address, topic, codec, records):
    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5, batch_size=65536,
                             compression_type=None if codec == "none" else codec,
                             max_in_flight_requests_per_connection=1, retries=3)
    sent = [producer.send(topic, key=key, value=value, partition=partition, timestamp_ms=timestamp_ms)
            for partition, key, value, timestamp_ms in records]
    producer.flush(WAIT_MS / 1000)
    for one in sent:
        one.get(0)
    producer.close()


def check_offsets(consumer, topic, records):
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    assert consumer.beginning_offsets(places) == dict.fromkeys(places, 0)
    assert consumer.end_offsets(places) == dict(zip(places, records.contents.counts))
    for timestamp_ms, want in records.times():
        got = consumer.offsets_for_times({places[0]: timestamp_ms})[places[0]]
        assert (got.offset if got else None) == want, \
            f"offset at {timestamp_ms - records.start_ms} ms is {got}, not {want}"


def read(consumer, topic, records):
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    consumer.seek_to_beginning()
    got = Contents()
    while sum(got.counts) < records.count:
        answer = consumer.poll(timeout_ms=WAIT_MS, max_records=10000)
        assert answer, f"nothing more came: {got.counts} of {records.contents.counts}"
        for some in answer.values():
            for one in some:
                got.take(one.partition, one.offset, one.key, one.value, one.timestamp)
    return got


def main():
    address, topic, codec, total = sys.argv[1:4] + [int(sys.argv[4])]
    admin = KafkaAdminClient(bootstrap_servers=address)
    create(admin, topic)
    records = Records(total)
    produce(address, topic, codec, records)
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None, enable_auto_commit=False,
                             auto_offset_reset="none", check_crcs=True)
    check_offsets(consumer, topic, records)
    read(consumer, topic, records).assert_equal(records.contents)
    consumer.close()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
    print(f"kafka-python {kafka.__version__} {codec}: {records.count} records in {PARTITIONS} "
          "partitions equal")


if __name__ == "__main__":
    main()
