#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: another implementation reads our messages as we wrote them.
Method: codec_print's messages are decoded by kafka-python's own schemas, must be used up to the last
byte, and must encode to the same bytes again. kafka-python 2.0.2 knows no flexible version; those
are covered by cross_kmsg. Exit 77 (skipped) without kafka-python."""

import io
import subprocess
import sys

try:
    from kafka.protocol import admin, api, commit, fetch, group, metadata, offset, produce
except ImportError as error:
    print(f'skipped: {error}; apt install python3-kafka')
    sys.exit(77)

LEAST = 400  # messages that must have been compared

# Where kafka-python 2.0.2 itself is wrong about the protocol; cross_kmsg covers these.
WRONG_THERE = {
    (0, 8, 'response'): 'record_errors stand outside the partition',
    (1, 7, 'request'): 'forgotten topics cannot be decoded', (1, 8, 'request'): 'the same',
    (1, 9, 'request'): 'the same', (1, 10, 'request'): 'the same', (1, 11, 'request'): 'the same',
    (2, 4, 'request'): 'current_leader_epoch is eight bytes', (2, 5, 'request'): 'the same',
    (10, 1, 'response'): 'throttle_time_ms is missing',
    (15, 3, 'response'): 'authorized_operations stand outside the group',
    (29, 2, 'request'): 'flexible in Kafka', (29, 2, 'response'): 'the same',
    (32, 1, 'response'): 'config_source is read as a bool',
}


def tables():
    """(key, version, direction) -> class"""
    found = {}
    for module in (admin, commit, fetch, group, metadata, offset, produce):
        for thing in vars(module).values():
            if not isinstance(thing, type) or not hasattr(thing, 'API_KEY'):
                continue
            if thing.API_KEY is None or not isinstance(thing.API_VERSION, int):
                continue
            direction = 'request' if issubclass(thing, api.Request) else 'response'
            found[(thing.API_KEY, thing.API_VERSION, direction)] = thing
    return found


def main(program):
    known = tables()
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    compared = set()
    count = 0
    for line in lines.splitlines():
        key, version, direction, text = line.split(' ')
        which = (int(key), int(version), direction)
        if which not in known or which in WRONG_THERE:
            continue
        body = bytes.fromhex(text)
        reader = io.BytesIO(body)
        try:
            message = known[which].decode(reader)
        except ValueError as error:
            sys.exit(f'{which}: {body.hex()}: {error}')
        if reader.tell() != len(body):
            sys.exit(f'{which}: {len(body) - reader.tell()} bytes not read by kafka-python')
        again = message.encode()
        if again != body:
            sys.exit(f'{which}: {body.hex()} became {again.hex()}')
        compared.add(which)
        count += 1
    print(f'{count} messages of {len(compared)} kinds and versions compared')
    if count < LEAST:
        sys.exit(f'fewer than {LEAST}: the tables do not meet')


if __name__ == '__main__':
    main(sys.argv[1])
