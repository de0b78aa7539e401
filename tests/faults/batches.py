#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each wrong value of each field of a record batch: the answer given, the log end unchanged after an error;
after a correction the stored batch and its CRC are right. What is inside of compressed batches, where a topic's
policy or codec makes the broker look: refused, or stored in the topic's codec, as other libraries and a stock
client read it from the file and from the broker."""
import struct

import confluent_kafka

from lib.broker import Broker
from lib.codecs import GZIP, LZ4, NAMES, NONE as PLAIN, PACKERS, SNAPPY, ZSTD, stored_batches
from lib.wire import Client, batch, crc32c, record, varint

NONE, CORRUPT, TOO_LARGE, INVALID_TIMESTAMP = 0, 2, 10, 32
TIMESTAMP = 1_700_000_000_000  # of lib.wire's batches
OUT_OF_ORDER, BAD_EPOCH, TXN_ID, TXN_STATE, BAD_CODEC, INVALID_RECORD = 45, 47, 53, 48, 76, 87


def stored(client, topic, offset):
    error, _, _, records = client.fetch(topic, 0, offset)
    assert error == 0, error
    return records


def summed_right(records):
    size = 12 + struct.unpack_from(">i", records, 8)[0]
    return struct.unpack_from(">I", records, 17)[0] == crc32c(records[21:size])


def refused(client, topic):
    """(what, record bytes, expected error or errors)"""
    good = batch(values=[b"a", b"b"])
    cases = [
        ("wrong crc", batch(crc=1), CORRUPT),
        ("one bit flipped", good[:-1] + bytes([good[-1] ^ 1]), CORRUPT),
        ("magic 0", batch(magic=0), INVALID_RECORD),
        ("magic 1", batch(magic=1), INVALID_RECORD),
        ("magic 3", batch(magic=3), CORRUPT),
        ("empty record set", b"", INVALID_RECORD),
        ("null record set", None, INVALID_RECORD),
        # Bytes that hold no complete batch are an empty record set.
        ("shorter than a header", good[:60], INVALID_RECORD),
        ("length too small", batch(batch_length=10), CORRUPT),
        ("length negative", batch(batch_length=-1), CORRUPT),
        ("length beyond the bytes", batch(batch_length=100000), INVALID_RECORD),
        ("length of 2^31-1", batch(batch_length=2**31 - 1), INVALID_RECORD),
        ("two batches", good + good, INVALID_RECORD),
        ("base offset not 0", batch(base_offset=5), INVALID_RECORD),
        ("no records", batch(values=[], last_offset_delta=-1), INVALID_RECORD),
        ("count 0", batch(records_count=0), INVALID_RECORD),
        ("count negative", batch(records_count=-1), INVALID_RECORD),
        ("count of 2^31-1", batch(records_count=2**31 - 1), INVALID_RECORD),
        ("count above the delta", batch(records_count=2), INVALID_RECORD),
        ("delta above the count", batch(last_offset_delta=7), INVALID_RECORD),
        ("control batch", batch(attributes=0x20), INVALID_RECORD),
        ("transactional without id", batch(attributes=0x10, producer_id=9, producer_epoch=0,
                                           base_sequence=0), TXN_ID),
        ("sequence -1 with a producer", batch(producer_id=9, producer_epoch=0), INVALID_RECORD),
        ("unknown codec 5", batch(attributes=5), (BAD_CODEC, INVALID_RECORD, CORRUPT)),
        ("timestamp far ahead", batch(timestamp=4_102_444_800_000), INVALID_TIMESTAMP),
        ("record length beyond", batch(records=varint(100) + b"\0\0\0"), INVALID_RECORD),
        ("record length negative", batch(records=varint(-5) + b"\0" * 8), INVALID_RECORD),
        ("key length beyond", batch(records=varint(7) + b"\0\0\0" + varint(90) + b"xx"),
         INVALID_RECORD),
        ("deltas 0, 2", batch(values=[b"a", b"b"], records=record(0, b"a") + record(2, b"b")),
         INVALID_RECORD),
        ("bytes behind the records", batch(records=record(0, b"a") + b"\0\0"), INVALID_RECORD),
        ("larger than max.message.bytes", batch(values=[b"v" * 1_100_000]), TOO_LARGE),
    ]
    for what, data, want in cases:
        end = client.end_offset(topic, 0)[2]
        error, base, _, start = client.produce(topic, 0, data)
        wanted = want if isinstance(want, tuple) else (want,)
        assert error in wanted, f"{what}: error {error}, expected {want}"
        assert (base, start) == (-1, -1), f"{what}: offsets {base} {start} with an error"
        assert client.end_offset(topic, 0)[2] == end, f"{what}: the log end moved"
        print(f"{what}: {error}")
    return len(cases)


def corrected(client, topic):
    # The broker's own stamps.
    error, base, _, _ = client.produce(topic, 0, batch(leader_epoch=-1))
    assert error == 0
    records = stored(client, topic, base)
    assert struct.unpack_from(">q", records)[0] == base and summed_right(records)
    assert struct.unpack_from(">i", records, 12)[0] >= 0, "no leader epoch"
    # A wrong greatest timestamp is set right.
    error, base, _, _ = client.produce(topic, 0, batch(max_timestamp=5))
    assert error == 0
    records = stored(client, topic, base)
    assert struct.unpack_from(">q", records, 35)[0] == 1_700_000_000_000 and summed_right(records)
    # An append-time bit on a create-time topic is cleared.
    error, base, _, _ = client.produce(topic, 0, batch(attributes=8))
    assert error == 0
    records = stored(client, topic, base)
    assert struct.unpack_from(">h", records, 21)[0] == 0 and summed_right(records)


def append_time(client, topic):
    error, base, stamp, _ = client.produce(topic, 0, batch())
    assert error == 0 and stamp > 1_700_000_000_000, (error, stamp)
    records = stored(client, topic, base)
    attributes = struct.unpack_from(">h", records, 21)[0]
    assert attributes == 8 and struct.unpack_from(">q", records, 35)[0] == stamp
    assert summed_right(records)


def sequences(client, topic):
    def send(sequence, epoch=0, values=(b"x",), producer=77):
        return client.produce(topic, 0, batch(values=list(values), producer_id=producer,
                                              producer_epoch=epoch, base_sequence=sequence))
    base = [send(sequence)[1] for sequence in range(7)]
    assert send(6)[:2] == (0, base[6]) and send(2)[:2] == (0, base[2]), "a duplicate's own offset"
    end = client.end_offset(topic, 0)[2]
    assert send(1)[0] == OUT_OF_ORDER, "older than the five kept"
    assert send(9)[0] == OUT_OF_ORDER and send(7, values=[b"a", b"b"])[0] == 0
    assert send(0, epoch=1)[0] == 0, "a new epoch begins at 0"
    assert send(9, epoch=0)[0] == BAD_EPOCH
    assert send(5, epoch=2)[0] == OUT_OF_ORDER
    assert send(2**31 - 1, producer=78)[0] == 0 and send(0, producer=78)[0] == 0, "wrap"
    assert send(2**31 - 2, producer=79, values=[b"a", b"b", b"c"])[0] == 0
    assert send(1, producer=79)[0] == 0, "a batch over the wrap"
    assert client.end_offset(topic, 0)[2] == end + 2 + 1 + 2 + 3 + 1


def packed(codec, pack, values, keys=True, records=None, **fields):
    """A compressed batch of these values; record i is i milliseconds after the first."""
    plain = records if records is not None else b"".join(
        record(i, value, b"k%d" % i if keys else None, timestamp_delta=i)
        for i, value in enumerate(values))
    return plain, batch(values=values, records=pack(plain), attributes=codec,
                        max_timestamp=TIMESTAMP + len(values) - 1, **fields)


def read_back(address, topic, count):
    """Values of the partition as librdkafka reads them."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "unused",
                                         "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), 20)
        assert messages, f"{topic}: {len(values)} of {count} values came"
        for message in messages:
            assert not message.error(), message.error()
            assert message.offset() == len(values), (topic, message.offset(), len(values))
            values.append(message.value())
    consumer.close()
    return values


def topic_codecs(broker, client):
    """Each topic codec with each codec of a client: what the file holds, what a stock client reads, and
    where a time inside of the batch leads."""
    for target, name in enumerate(NAMES):
        topic = f"codec-{name}"
        broker.millrace("topic", "create", topic, "--config", f"compression.type={name}")
        sent, values = [], []
        for number, (_, codec, pack) in enumerate(PACKERS):
            mine = [b"%d-%d-" % (number, i) + b"v" * 500 for i in range(20)]
            sent.append(packed(codec, pack, mine, producer_id=5, producer_epoch=1,
                               base_sequence=20 * number))
            error, base, _, _ = client.produce(topic, 0, sent[-1][1])
            assert (error, base) == (0, len(values)), (topic, number, error, base)
            values += mine
        again = client.produce(topic, 0, sent[-1][1])
        assert again[:2] == (0, len(values) - 20), f"{topic}: a duplicate's own offset, not {again}"
        got = stored_batches(broker.log_dir, topic, len(values))
        assert len(got) == len(PACKERS)
        for number, (one, (plain, _)) in enumerate(zip(got, sent)):
            what = f"{topic}, batch {number}"
            assert one.attributes == target and one.crc_right, f"{what}: {one.attributes}"
            assert one.records == plain, f"{what}: other records"
            assert (one.base_offset, one.last_delta, one.count) == (20 * number, 19, 20), what
            assert (one.base_timestamp, one.max_timestamp) == (TIMESTAMP, TIMESTAMP + 19), what
            assert (one.producer_id, one.producer_epoch, one.base_sequence) == (5, 1, 20 * number), what
        assert read_back(broker.address("LOCAL"), topic, len(values)) == values
        assert client.end_offset(topic, 0, TIMESTAMP + 7) == (0, TIMESTAMP + 7, 7)
        error = client.fetch(topic, 0, 0)[0]
        assert error == (BAD_CODEC if target == ZSTD else 0), f"{topic}: {error} for an old reader"
        print(f"{topic}: {len(got)} batches stored as {name}")


def stock_producers(broker):
    """librdkafka's own batches, in each of its codecs, into each topic codec and a compacted topic."""
    kinds = [(f"stock-{name}", f"compression.type={name}", codec) for codec, name in enumerate(NAMES)]
    kinds.append(("stock-compacted", "cleanup.policy=compact", None))
    for topic, config, target in kinds:
        broker.millrace("topic", "create", topic, "--config", config)
        values = []
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = confluent_kafka.Producer({
                "bootstrap.servers": broker.address("LOCAL"), "compression.type": codec,
                "enable.idempotence": True, "linger.ms": 5})
            for i in range(300):
                values.append(b"%s %d " % (codec.encode(), i) + b"x" * (i * 37 % 900))
                producer.produce(topic, value=values[-1], key=b"%d" % i, partition=0)
            assert producer.flush(30) == 0
        got = stored_batches(broker.log_dir, topic, len(values))
        assert all(one.crc_right for one in got)
        assert target is None or {one.codec for one in got} == {target}, topic
        assert target is not None or {one.codec for one in got} == {PLAIN, GZIP, SNAPPY, LZ4, ZSTD}
        assert read_back(broker.address("LOCAL"), topic, len(values)) == values
        print(f"{topic}: {len(values)} records of a stock client, {len(got)} batches")


def insides(broker, client):
    """What is refused for what is inside, where the broker has to look."""
    broker.millrace("topic", "create", "compacted", "--config", "cleanup.policy=compact",
                    "--config", "max.message.bytes=100000")
    broker.millrace("topic", "create", "unlooked")
    mine = [b"a", b"b"]
    for name, codec, pack in PACKERS:
        end = client.end_offset("compacted", 0)[2]
        _, keyless = packed(codec, pack, mine, keys=False)
        _, deltas = packed(codec, pack, mine, records=record(0, b"a", b"k") + record(2, b"b", b"k"))
        _, fewer = packed(codec, pack, mine, records=record(0, b"a", b"k"))
        cases = [("keyless", keyless), ("deltas 0, 2", deltas), ("one record of two", fewer)]
        if codec != PLAIN:
            cases.append(("broken stream", packed(codec, lambda data, pack=pack: pack(data)[:-3],
                                                  mine)[1]))
        for what, data in cases:
            answer = client.produce("compacted", 0, data)
            assert answer[:2] == (INVALID_RECORD, -1), f"{name}, {what}: {answer}"
        if codec in (GZIP, LZ4, ZSTD):  # the others shrink too little
            bomb = packed(codec, pack, [b"\0" * 7_000_000])[1]
            assert len(bomb) < 100_000
            answer = client.produce("compacted", 0, bomb)
            assert answer[:2] == (TOO_LARGE, -1), f"{name}, bomb: {answer}"
        assert client.end_offset("compacted", 0)[2] == end, f"{name}: the log end moved"
        assert client.produce("compacted", 0, packed(codec, pack, mine)[1])[:2] == (0, end), name
        if codec != PLAIN:
            # Taken on its header where nothing needs the look: docs/differences.md.
            assert client.produce("unlooked", 0, deltas)[0] == 0, name
    # Stored plain, it would be larger than the topic allows.
    broker.millrace("topic", "create", "small", "--config", "compression.type=uncompressed",
                    "--config", "max.message.bytes=100000")
    answer = client.produce("small", 0, packed(ZSTD, PACKERS[-1][2], [b"\0" * 200_000])[1])
    assert answer[0] == TOO_LARGE, answer
    # The broker's time goes into what it recompresses.
    broker.millrace("topic", "create", "stamped-zstd", "--config", "compression.type=zstd",
                    "--config", "message.timestamp.type=LogAppendTime")
    error, base, stamp, _ = client.produce("stamped-zstd", 0, packed(GZIP, PACKERS[1][2], mine)[1])
    assert (error, base) == (0, 0) and stamp > TIMESTAMP
    one = stored_batches(broker.log_dir, "stamped-zstd", 2)[0]
    assert one.crc_right and (one.attributes, one.max_timestamp) == (ZSTD | 8, stamp)
    assert client.end_offset("stamped-zstd", 0, stamp) == (0, stamp, 0)
    print("inside of compressed batches: keys, deltas, counts, streams and bombs judged")


def wide_window(size):
    """A zstd frame (RFC 8878) of one raw block whose header asks for a window of 2 GiB."""
    block = b"\0" * size
    return bytes.fromhex("28b52ffd00a8") + struct.pack("<I", size << 3 | 1)[:3] + block


def borders(broker, client):
    """At a limit and one beyond it, and shapes that real clients seldom make."""
    size = 50_000
    broker.millrace("topic", "create", "limited", "--config", f"max.message.bytes={size}")
    room = size - len(batch([b""])) - 4  # a value's length and its record's take two bytes more each
    fits = batch([b"v" * room])
    assert len(fits) == size, len(fits)
    assert client.produce("limited", 0, fits)[:2] == (NONE, 0)
    assert client.produce("limited", 0, batch([b"v" * (room + 1)]))[0] == TOO_LARGE
    assert client.end_offset("limited", 0)[2] == 1
    broker.millrace("topic", "create", "shapes")
    headers = b"".join(varint(4) + b"h%03d" % number + varint(-1) for number in range(1000))
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(0) + varint(1000) + headers
    shapes = [("100,000 records of a byte", batch([b"x"] * 100_000), 100_000),
              ("a record of 1,000 headers without values", batch([b""], records=varint(len(body)) + body), 1),
              ("neither key nor value", batch([None]), 1),
              ("an empty value", batch([b""]), 1),
              ("a time before the epoch", batch([b"x"], timestamp=-5), 1)]
    at = 0
    for what, data, count in shapes:
        answer = client.produce("shapes", 0, data)
        assert answer[:2] == (NONE, at), f"{what}: {answer}"
        at += count
    values = read_back(broker.address("LOCAL"), "shapes", at)
    assert values == [b"x"] * 100_000 + [b"", None, b"", b"x"]
    end = client.end_offset("compacted", 0)[2]
    window = batch(records=wide_window(1000), attributes=ZSTD)
    assert client.produce("compacted", 0, window)[:2] == (INVALID_RECORD, -1)
    assert client.end_offset("compacted", 0)[2] == end
    print(f"{len(shapes)} shapes and both sides of max.message.bytes")


def main():
    settings = {"log.message.timestamp.after.max.ms": "3600000"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        broker.millrace("topic", "create", "batches")
        broker.millrace("topic", "create", "stamped", "--config",
                        "message.timestamp.type=LogAppendTime")
        broker.millrace("topic", "create", "sequences")
        with Client(broker.address("LOCAL")) as client:
            count = refused(client, "batches")
            corrected(client, "batches")
            append_time(client, "stamped")
            sequences(client, "sequences")
            insides(broker, client)
            borders(broker, client)
            topic_codecs(broker, client)
            zstd = client.produce("batches", 0, batch(attributes=4), version=3)
            assert zstd[0] == BAD_CODEC, zstd
        stock_producers(broker)
    print(f"{count} wrong batches refused as told, the log end unchanged; corrections sum right")


if __name__ == "__main__":
    main()
