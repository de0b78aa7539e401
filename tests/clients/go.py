#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: franz-go, with the settings it has by itself, works through both listeners.

Method: the program of tests/clients/go, built by tests/clients/setup, runs for each listener and codec: it
creates a topic, produces with idempotence, asks for offsets, reads with assigned partitions, compares by
checksum and deletes the topic."""
import os

from lib.broker import TOP, Broker, pick, run, skip

PROGRAM = os.path.join(TOP, "build/clients/go/franz")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LIMIT_S = 1800


def main():
    if not os.path.exists(PROGRAM):
        skip("the franz-go program is not in build/clients: tests/clients/setup")
    total = pick(1 << 30, 32 << 20)
    with Broker() as broker:
        broker.start()
        for listener in broker.listeners():
            for codec in CODECS:
                topic = f"go-{listener.lower()}-{codec}"
                print(listener, run(*broker.inside(listener), PROGRAM, broker.address(listener), topic,
                                    codec, str(total), timeout=LIMIT_S).strip())
        broker.wait_no_loans()
    print(f"franz-go: {total >> 20} MiB per codec and listener came back equal")


if __name__ == "__main__":
    main()
