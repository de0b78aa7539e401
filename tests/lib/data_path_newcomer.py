# SPDX-License-Identifier: Apache-2.0
"""ADDRESS TOPIC SECONDS: new clients one after the other; each looks the topic up, produces one record and
reads it back. Prints the seconds that the slowest took. Any failure ends with exit 1."""
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

    producer.produce(topic, value=value, on_delivery=delivered)
    assert producer.flush(10) == 0, "not acknowledged"
    error, partition, offset = acked[0]
    assert not error, error
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "log_level": 0,
                         "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, offset)])
    messages = consumer.consume(1, 10)
    assert messages and not messages[0].error() and messages[0].value() == value, messages
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
