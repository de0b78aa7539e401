# SPDX-License-Identifier: Apache-2.0
"""Goal: aiokafka produces with idempotence and one codec, finds offsets by time and reads with assigned
partitions.

Method: runs where the broker is reachable, with the records of lib.records. ADDRESS TOPIC CODEC BYTES"""
import asyncio
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from lib.records import PARTITIONS, Contents, Records

WAIT_MS = 30000


async def produce(address, topic, codec, records):
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True, linger_ms=5,
                                max_batch_size=65536,
                                compression_type=None if codec == "none" else codec)
    await producer.start()
    try:
        sent = [await producer.send(topic, value, key=key, partition=partition,
                                    timestamp_ms=timestamp_ms)
                for partition, key, value, timestamp_ms in records]
        await asyncio.wait_for(asyncio.gather(*sent), WAIT_MS / 1000)
    finally:
        await producer.stop()


async def check(address, topic, records):
    consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=None, enable_auto_commit=False,
                                auto_offset_reset="none")
    await consumer.start()
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        assert await consumer.end_offsets(places) == dict(zip(places, records.contents.counts))
        for timestamp_ms, want in records.times():
            got = (await consumer.offsets_for_times({places[0]: timestamp_ms}))[places[0]]
            assert (got.offset if got else None) == want, \
                f"offset at {timestamp_ms - records.start_ms} ms is {got}, not {want}"
        consumer.assign(places)
        await consumer.seek_to_beginning()
        got = Contents()
        while sum(got.counts) < records.count:
            answer = await consumer.getmany(timeout_ms=WAIT_MS, max_records=10000)
            assert answer, f"nothing more came: {got.counts} of {records.contents.counts}"
            for some in answer.values():
                for one in some:
                    got.take(one.partition, one.offset, one.key, one.value, one.timestamp)
        got.assert_equal(records.contents)
    finally:
        await consumer.stop()


async def main():
    address, topic, codec, total = sys.argv[1:4] + [int(sys.argv[4])]
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await admin.close()
    records = Records(total)
    await produce(address, topic, codec, records)
    await check(address, topic, records)
    print(f"aiokafka {aiokafka.__version__} {codec}: {records.count} records in {PARTITIONS} "
          "partitions equal")


if __name__ == "__main__":
    asyncio.run(main())
