# SPDX-License-Identifier: Apache-2.0
"""The codecs of record batches by other people's libraries, and the batches of a partition's file: what is
stored is judged without the broker."""
import gzip
import os
import struct
import time

import lz4.frame
import snappy
import zstandard

from lib.wire import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
HEADER_BYTES = 61
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK = 32768


def snappy_blocks(data):
    """Snappy in Java's framing."""
    out = [XERIAL]
    for at in range(0, len(data), XERIAL_BLOCK):
        block = snappy.compress(data[at:at + XERIAL_BLOCK])
        out += [struct.pack(">i", len(block)), block]
    return b"".join(out)


def snappy_unblock(data):
    if not data.startswith(XERIAL[:8]):
        return snappy.decompress(data)
    out, at = [], len(XERIAL)
    while at < len(data):
        size = struct.unpack_from(">i", data, at)[0]
        out.append(snappy.decompress(data[at + 4:at + 4 + size]))
        at += 4 + size
    return b"".join(out)


# (name, codec, function): what clients send.
PACKERS = (
    ("none", NONE, bytes),
    ("gzip", GZIP, gzip.compress),
    ("snappy", SNAPPY, snappy.compress),
    ("snappy of Java", SNAPPY, snappy_blocks),
    ("lz4", LZ4, lz4.frame.compress),
    ("zstd", ZSTD, zstandard.ZstdCompressor().compress),
)


def unpack(codec, data):
    if codec == ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return (bytes, gzip.decompress, snappy_unblock, lz4.frame.decompress)[codec](data)


class Stored:
    """One batch as it lies in a file."""

    def __init__(self, data):
        self.base_offset = struct.unpack_from(">q", data)[0]
        self.crc = struct.unpack_from(">I", data, 17)[0]
        (self.attributes, self.last_delta, self.base_timestamp, self.max_timestamp, self.producer_id,
         self.producer_epoch, self.base_sequence, self.count) = struct.unpack_from(">hiqqqhii", data, 21)
        self.codec = self.attributes & 7
        self.crc_right = self.crc == crc32c(data[21:])
        self.records = unpack(self.codec, data[HEADER_BYTES:])


def stored_batches(log_dir, topic, end_offset, partition=0, timeout=10):
    """The batches of a partition's first segment, once they reach end_offset."""
    path = os.path.join(log_dir, f"{topic}-{partition}", "0" * 20 + ".log")
    deadline = time.monotonic() + timeout
    while True:
        with open(path, "rb") as file:
            data = file.read()
        batches, at = [], 0
        while at + HEADER_BYTES <= len(data):
            size = 12 + struct.unpack_from(">i", data, at + 8)[0]
            if size <= 12 or at + size > len(data):
                break
            batches.append(Stored(data[at:at + size]))
            at += size
        if batches and batches[-1].base_offset + batches[-1].last_delta + 1 >= end_offset:
            return batches
        assert time.monotonic() < deadline, f"{path} ends before offset {end_offset}"
        time.sleep(0.1)
