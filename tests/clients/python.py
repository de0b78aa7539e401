#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: Python's clients work through both listeners with every codec: the distribution's confluent-kafka and
kafka-python 2.0.2, and the newest confluent-kafka and aiokafka.

Method: each client's check script runs where the listener is reachable: it creates a topic, produces, finds
offsets by time, reads with assigned partitions and compares by checksum. The newest ones run in the
environment that tests/clients/setup makes."""
import os

from lib.broker import TOP, Broker, pick, run, skip

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DISTRIBUTION = "/usr/bin/python3"
NEWEST = os.path.join(TOP, "build/clients/venv/bin/python3")
# Interpreter, script, short name; the last two are far slower than librdkafka and get a share of the bytes.
CLIENTS = (
    (DISTRIBUTION, "rdkafka_check.py", "rdkafka", 1),
    (NEWEST, "rdkafka_check.py", "newest-rdkafka", 1),
    (DISTRIBUTION, "kafka_python_check.py", "kafka-python", 4),
    (NEWEST, "aiokafka_check.py", "aiokafka", 4),
)
LIMIT_S = 1800


def main():
    if not os.path.exists(NEWEST):
        skip("the newest Python clients are not in build/clients: tests/clients/setup")
    total = pick(256 << 20, 16 << 20)
    with Broker() as broker:
        broker.start()
        for listener in broker.listeners():
            for interpreter, script, name, share in CLIENTS:
                for codec in CODECS:
                    print(listener, run(*broker.inside(listener), interpreter, "-B",
                                        os.path.join(TOP, "tests/clients", script),
                                        broker.address(listener), f"{name}-{listener.lower()}-{codec}",
                                        codec, str(total // share), timeout=LIMIT_S).strip())
        broker.wait_no_loans()
    print(f"{len(CLIENTS)} Python clients: all codecs came back equal through every listener")


if __name__ == "__main__":
    main()
