#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A reader that lags: it asked for records and does not read them while memory is used again several times over and the
log's beginning is deleted, files and all. What it was sent is what was written; what it asks for after that is
OFFSET_OUT_OF_RANGE, or read from disk, and never wrong bytes."""
import socket
import time

from confluent_kafka import Producer

from lib.broker import Broker, pick
from lib.wire import FETCH, Client

TOPIC = "lagging"
ARENA_MB = 64
VALUE_BYTES = 100_000
OFFSET_OUT_OF_RANGE = 1
READERS = 20
ASKED_BYTES = 16 << 20  # more than the kernel takes into the buffers of a socket


def value(number):
    return (b"%08d" % number) * (VALUE_BYTES // 8)


class Reader:
    """Asks for the first megabytes and takes nothing but what fits into small buffers."""

    def __init__(self, broker, offset):
        host, port = broker.address("LOCAL").rsplit(":", 1)
        self.client = Client.__new__(Client)
        self.client.correlation = 0
        self.client.socket = socket.socket()
        self.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        self.client.socket.settimeout(30)
        self.client.socket.connect((host, int(port)))
        self.offset = offset
        self.client.send(self.client.frame(FETCH, 7, Client.fetch_body(TOPIC, 0, offset, max_bytes=ASKED_BYTES)))

    def check(self):
        """Reads all of it: whole values, in order, from where it asked."""
        _, answer = self.client.answer()
        at = answer.index(b"%08d" % self.offset)
        number = self.offset
        while True:
            want = value(number)
            found = answer.find(want[:16], at)
            if found < 0 or len(answer) - found < VALUE_BYTES:
                break
            assert answer[found:found + VALUE_BYTES] == want, f"wrong bytes in {number}"
            at = found + VALUE_BYTES
            number += 1
        self.client.close()
        return number - self.offset


def produce(broker, count, first):
    """Values first to first + count - 1, at these offsets."""
    producer = Producer({"bootstrap.servers": broker.address("LOCAL"), "acks": "all", "enable.idempotence": True,
                         "linger.ms": 0, "message.timeout.ms": 60000})
    offsets = []

    def delivered(error, message):
        assert not error, error
        offsets.append(message.offset())

    for number in range(first, first + count):
        while True:
            try:
                producer.produce(TOPIC, value(number), partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert offsets == list(range(first, first + count))


def main():
    batches = pick(4000, 2000)  # of 100 kB: several times the arena
    with Broker(nic=False, settings={"hugepages.size.mb": str(ARENA_MB), "log.segment.bytes": str(8 << 20),
                                     "connection.stall.timeout.ms": "120000"}) as broker:
        broker.start()
        broker.millrace("topic", "create", TOPIC, "--config", "file.delete.delay.ms=100")
        with Client(broker.address("LOCAL"), timeout=60) as client:
            produce(broker, 200, 0)
            readers = [Reader(broker, offset) for offset in range(READERS)]
            time.sleep(0.5)
            lent = broker.status()["memory"]["loaned_bytes"]
            assert lent > 0, "the kernel has taken all: nobody lags"
            produce(broker, batches // 2, 200)
            broker.millrace("topic", "trim", TOPIC, "-p", "0", "--before", "150")
            time.sleep(1)
            assert client.fetch(TOPIC, 0, 10)[0] == OFFSET_OUT_OF_RANGE
            produce(broker, batches // 2, 200 + batches // 2)
            taken = [reader.check() for reader in readers]
            assert min(taken) >= 1, taken
            for number in range(150, 200 + batches, 37):
                error, _, _, records = client.fetch(TOPIC, 0, number, max_bytes=VALUE_BYTES * 2)
                assert error == 0 and value(number) in records, number
        broker.wait_no_loans()
    moved_mb = batches * VALUE_BYTES >> 20
    print(f"{READERS} readers lagged by {moved_mb} MiB over {ARENA_MB} MiB of memory and got {sum(taken)} records, all right")


if __name__ == "__main__":
    main()
