#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kcat through both listeners: list, produce, consume; random records for each codec come back equal, in
order, by checksum."""
import base64
import hashlib
import os
import subprocess

from lib.broker import Broker, pick

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINE_BYTES = 1000


def make_records(path, total):
    """Random lines: base64 keeps them text for kcat's line mode and half compressible."""
    digest = hashlib.sha256()
    with open(path, "wb") as out:
        for _ in range(total // LINE_BYTES // 100):
            block = bytearray()
            for _ in range(100):
                block += base64.b64encode(os.urandom(749))[:LINE_BYTES - 1] + b"\n"
            digest.update(block)
            out.write(block)
    return digest.hexdigest(), total // LINE_BYTES // 100 * 100


def consume_digest(broker, listener, topic, count):
    command = broker.inside(listener) + ["kcat", "-b", broker.address(listener), "-q", "-C", "-t",
                                         topic, "-p", "0", "-o", "beginning", "-c", str(count)]
    digest = hashlib.sha256()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        while True:
            piece = reader.stdout.read(1 << 20)
            if not piece:
                break
            digest.update(piece)
        assert reader.wait(timeout=60 * broker.slowness) == 0
    return digest.hexdigest()


def check(broker, total, listeners, codecs=CODECS):
    records = os.path.join(broker.home, "records")
    want, count = make_records(records, total)
    for listener in listeners:
        for codec in codecs:
            topic = f"{listener.lower()}-{codec}"
            broker.kcat(listener, "-P", "-t", topic, "-p", "0", "-z", codec, "-l", records,
                        "-X", "linger.ms=5", "-X", "enable.idempotence=true", timeout=900)
            listing = broker.kcat(listener, "-L", "-t", topic)
            assert topic in listing and "1 partitions" in listing, listing
            got = consume_digest(broker, listener, topic, count)
            assert got == want, f"{listener} {codec}: {got} is not {want}"
            print(f"{listener} {codec}: {count} records equal")
    broker.wait_no_loans()


def main():
    total = pick(1 << 30, 64 << 20)
    with Broker() as broker:
        broker.start()
        check(broker, total, broker.listeners())
    print(f"{total >> 20} MiB per codec and listener came back equal")


if __name__ == "__main__":
    main()
