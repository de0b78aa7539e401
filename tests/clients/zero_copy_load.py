# SPDX-License-Identifier: Apache-2.0
"""ADDRESS produce|fetch TOPIC BYTES: produces in batches of 16 KiB, four requests on the way; or fetches
1 MiB at a time until the bytes were seen."""
import sys

from lib.wire import PRODUCE, Client, batch, text
import struct

BATCH = 16 << 10


def produce(client, topic, total):
    records = batch(values=[b"v" * (BATCH - 61 - 10)])
    body = text(None) + struct.pack(">hii", -1, 10000, 1) + text(topic) + struct.pack(
        ">iii", 1, 0, len(records)) + records
    count = -(-total // len(records))
    sent = done = 0
    while done < count:
        while sent < count and sent - done < 4:
            client.send(client.frame(PRODUCE, 7, body))
            sent += 1
        _, answer = client.answer()
        error = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)[0]
        assert error == 0, error
        done += 1
    print(f"produced {count} batches")


def fetch(client, topic, total):
    seen = 0
    offset = 0
    while seen < total:
        error, high, _, records = client.fetch(topic, 0, offset, max_bytes=1 << 20)
        assert error == 0 and records, (error, high, offset)
        seen += len(records)
        at = 0
        while at + 61 <= len(records):
            length, delta = struct.unpack_from(">i", records, at + 8)[0], struct.unpack_from(
                ">i", records, at + 23)[0]
            base = struct.unpack_from(">q", records, at)[0]
            offset = base + delta + 1
            at += 12 + length
    print(f"fetched {seen} bytes")


def main():
    address, what, topic, total = sys.argv[1:4] + [int(sys.argv[4])]
    with Client(address, timeout=60) as client:
        (produce if what == "produce" else fetch)(client, topic, total)


if __name__ == "__main__":
    main()
