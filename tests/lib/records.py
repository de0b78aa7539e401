# SPDX-License-Identifier: Apache-2.0
"""Random records that a client test produces, and what it checks of those that come back: every one, once,
in the order of its partition, equal by checksum."""
import hashlib
import os
import time

PARTITIONS = 4
POOL_BYTES = 1 << 20
VALUE_BYTES_MAX = 2000
INDEX_BYTES = 8


class Contents:
    """What the partitions hold: how many records each, and a sum over them in order."""

    def __init__(self):
        self.counts = [0] * PARTITIONS
        self.sums = [hashlib.sha256() for _ in range(PARTITIONS)]

    def add(self, partition, key, value, timestamp_ms):
        self.sums[partition].update(b"%d %d %d " % (len(key), len(value), timestamp_ms) + key + value)
        self.counts[partition] += 1

    def take(self, partition, offset, key, value, timestamp_ms):
        """Adds a record that was read; it must be the next one of its partition."""
        assert offset == self.counts[partition], \
            f"partition {partition}: offset {offset} after {self.counts[partition]} records"
        self.add(partition, key, value, timestamp_ms)

    def assert_equal(self, other):
        assert self.counts == other.counts, f"{self.counts} is not {other.counts}"
        for index, (mine, theirs) in enumerate(zip(self.sums, other.sums)):
            assert mine.digest() == theirs.digest(), f"partition {index} is not what was sent"


class Records:
    """Iterates over (partition, key, value, timestamp_ms) until the values sum up to total bytes. Record i
    goes to partition i modulo their number, i milliseconds after the first, which is an hour ago."""

    def __init__(self, total):
        self.total = total
        self.start_ms = int(time.time() * 1000) - 3600 * 1000
        self.pool = os.urandom(POOL_BYTES)
        self.contents = Contents()

    def __iter__(self):
        sent = 0
        index = 0
        while sent < self.total:
            size = 1 + index * 7919 % VALUE_BYTES_MAX
            at = index * 104729 % (POOL_BYTES - size)
            value = index.to_bytes(INDEX_BYTES, "big") + self.pool[at:at + size]
            record = index % PARTITIONS, str(index).encode(), value, self.start_ms + index
            self.contents.add(*record)
            yield record
            sent += len(value)
            index += 1

    @property
    def count(self):
        return sum(self.contents.counts)

    def times(self):
        """(timestamp_ms, offset in partition 0 of the first record not before it, None: there is none)."""
        middle = self.contents.counts[0] // 2
        return [(self.start_ms - 1, 0), (self.start_ms, 0),
                (self.start_ms + (middle - 1) * PARTITIONS + 1, middle),
                (self.start_ms + middle * PARTITIONS, middle),
                (self.start_ms + self.contents.counts[0] * PARTITIONS, None)]
