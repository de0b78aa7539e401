#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A member of a consumer group: group_member.py CLIENT ADDRESS TOPIC GROUP IDLE_S

CLIENT is confluent, kafka-python or aiokafka. Reads until nothing came for a while, commits, leaves, and prints
the values it read, one a line. tests/clients/groups.py runs several and compares. GROUP_INSTANCE names a static
member where the client knows such; GROUP_PROTOCOL=consumer asks for the new protocol, in which a TOPIC that begins
with ^ is a regular expression that the broker looks at. SIGTERM ends a member of confluent's as idleness does."""
import asyncio
import os
import signal
import sys
import time

INSTANCE = os.environ.get("GROUP_INSTANCE") or None
PROTOCOL = os.environ.get("GROUP_PROTOCOL") or None


def confluent(address, topic, group, idle):
    import confluent_kafka
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False}
    if PROTOCOL:
        settings["group.protocol"] = PROTOCOL
    if PROTOCOL != "consumer":
        settings["session.timeout.ms"] = 10000
    if INSTANCE:
        settings["group.instance.id"] = INSTANCE
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    values = []
    last = time.monotonic()
    stopped = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    while time.monotonic() - last < idle and not stopped:
        for message in consumer.consume(500, timeout=0.2):
            assert not message.error(), message.error()
            values.append(message.value().decode())
            last = time.monotonic()
        if values and last + 0.2 > time.monotonic():
            consumer.commit(asynchronous=False)
            last = time.monotonic()  # a coordinator that starts anew lets a commit wait
    consumer.close()
    return values


def kafka_python(address, topic, group, idle):
    import kafka
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest",
                                   enable_auto_commit=False, session_timeout_ms=10000)
    values = []
    last = time.monotonic()
    while time.monotonic() - last < idle:
        got = consumer.poll(timeout_ms=200)
        for records in got.values():
            values += [record.value.decode() for record in records]
        if got:
            consumer.commit()
            last = time.monotonic()
    consumer.close()
    return values


async def aiokafka_read(address, topic, group, idle):
    import aiokafka
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=group,
                                         auto_offset_reset="earliest", enable_auto_commit=False,
                                         session_timeout_ms=10000, group_instance_id=INSTANCE)
    await consumer.start()
    values = []
    last = time.monotonic()
    while time.monotonic() - last < idle:
        got = await consumer.getmany(timeout_ms=200)
        for records in got.values():
            values += [record.value.decode() for record in records]
        if got:
            await consumer.commit()
            last = time.monotonic()
    await consumer.stop()
    return values


def main(client, address, topic, group, idle):
    if client == "aiokafka":
        values = asyncio.run(aiokafka_read(address, topic, group, float(idle)))
    else:
        read = {"confluent": confluent, "kafka-python": kafka_python}[client]
        values = read(address, topic, group, float(idle))
    sys.stdout.write("".join(f"{value}\n" for value in values))


if __name__ == "__main__":
    main(*sys.argv[1:])
