#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A member of a group under faults: group_oracle_member.py ADDRESS TOPIC GROUP LOG PROTOCOL

Reads and commits until SIGTERM; LOG gets a line "read VALUE" for each record, and "PARTITION OFFSET" for each
commit that was acknowledged, at once. PROTOCOL is classic or consumer (KIP-848)."""
import signal
import sys

import confluent_kafka

stopping = []


def main(address, topic, group, path, protocol):
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "reconnect.backoff.max.ms": 500, "log_level": 0}
    if protocol == "consumer":
        settings["group.protocol"] = protocol
    else:
        settings["session.timeout.ms"] = 10000
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    with open(path, "a", encoding="ascii") as log:
        while not stopping:
            messages = [one for one in consumer.consume(200, timeout=0.2) if not one.error()]
            log.write("".join(f"read {one.value().decode()}\n" for one in messages))
            if not messages:
                continue
            try:
                for done in consumer.commit(asynchronous=False):
                    if done.error is None:
                        log.write(f"{done.partition} {done.offset}\n")
            except confluent_kafka.KafkaException:
                pass  # not acknowledged: it may be committed or not
            log.flush()
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
