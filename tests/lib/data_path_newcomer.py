# SPDX-License-Identifier: Apache-2.0
"""ADDRESS TOPIC SECONDS: new clients one after the other; each looks the topic up, produces one record and
reads it back. Prints the seconds that the slowest took. Any failure ends with exit 1. The reader has a group, as any
consumer of librdkafka's Python binding: it asks for the group's coordinator before it reads."""
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def one_client(address, topic, number):
    acked = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 8000, "retries": 0,
                         "acks": "all", "log_level": 0})
    value = f"newcomer {number}".encode()

    def delivered(error, message):
        acked.append((error, message.partition(), message.offset()))

    # Asked for first: a topic that is not known when its first record comes is looked up by a timer of a second.
    producer.list_topics(topic, timeout=10)
    producer.produce(topic, value=value, on_delivery=delivered)
    assert producer.flush(10) == 0, "not acknowledged"
    error, partition, offset = acked[0]
    assert not error, error
    consumer = Consumer({"bootstrap.servers": address, "group.id": "newcomers", "enable.auto.commit": False,
                         "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(10)
        assert message is not None, "nothing was read"
        assert not message.error(), message.error()
        assert (message.offset(), message.value()) == (offset, value), message.value()
    finally:
        consumer.close()


def main():
    address, topic, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    end = time.monotonic() + seconds
    count = 0
    longest = 0.0
    while time.monotonic() < end:
        begun = time.monotonic()
        one_client(address, topic, count)
        longest = max(longest, time.monotonic() - begun)
        count += 1
        time.sleep(0.05)
    print(longest)


if __name__ == "__main__":
    main()
