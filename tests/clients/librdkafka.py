#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""librdkafka (through confluent-kafka of the distribution) over both listeners and all codecs: creates a
topic, produces with idempotence, reads with assigned partitions, everything equal and in order.

librdkafka.py [LISTENER...]: only through these."""
import os
import sys

from lib.broker import TOP, Broker, pick

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def check(broker, total, listeners):
    script = os.path.join(TOP, "tests/clients/rdkafka_check.py")
    for listener in listeners:
        for codec in CODECS:
            print(listener, broker.python(listener, script, f"rd-{listener.lower()}-{codec}", codec,
                                          str(total), timeout=1800).strip())


def main():
    total = pick(1 << 30, 64 << 20)
    with Broker() as broker:
        broker.start()
        check(broker, total, sys.argv[1:] or broker.listeners())
        broker.wait_no_loans()
    print(f"{total >> 20} MiB per codec and listener came back equal")


if __name__ == "__main__":
    main()
