# SPDX-License-Identifier: Apache-2.0
"""ADDRESS TOPIC PARTITION: reads the partition from its start to its end and prints as JSON what does not
fit the numbered values of oracle_producer.py."""
import json
import sys

from confluent_kafka import Consumer, TopicPartition

from oracle_producer import value_of


def main():
    address, topic, partition = sys.argv[1], sys.argv[2], int(sys.argv[3])
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "check.crcs": True,
                         "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0})
    where = TopicPartition(topic, partition, 0)
    low, high = consumer.get_watermark_offsets(where, timeout=120)
    consumer.assign([TopicPartition(topic, partition, low)])
    seen = {"gaps": 0, "repeated": 0, "wrong": 0, "next": 0, "low": low, "high": high}
    offset = low
    quiet = 0
    while offset < high:
        messages = consumer.consume(500, 0.5)
        quiet = 0 if messages else quiet + 1
        if quiet == 240:
            seen["gaps"] += 1
            break
        for message in messages:
            if message.error():
                raise SystemExit(str(message.error()))
            seen["gaps"] += message.offset() > offset
            seen["repeated"] += message.offset() < offset
            offset = message.offset() + 1
            number = int(message.value().split(b":", 2)[1])
            if number < seen["next"]:
                seen["repeated"] += 1
            elif number > seen["next"]:
                seen["gaps"] += 1
            seen["wrong"] += message.value() != value_of(number, partition)
            seen["next"] = number + 1
    consumer.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
