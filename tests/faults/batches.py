#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each wrong value of each field of a record batch: the answer given, the log end unchanged after an error;
after a correction the stored batch and its CRC are right."""
import struct

from lib.broker import Broker
from lib.wire import Client, batch, crc32c, record, varint

NONE, CORRUPT, TOO_LARGE, INVALID_TIMESTAMP = 0, 2, 10, 32
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
            zstd = client.produce("batches", 0, batch(attributes=4), version=3)
            assert zstd[0] == BAD_CODEC, zstd
    print(f"{count} wrong batches refused as told, the log end unchanged; corrections sum right")


if __name__ == "__main__":
    main()
