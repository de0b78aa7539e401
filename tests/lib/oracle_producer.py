# SPDX-License-Identifier: Apache-2.0
"""ADDRESS TOPIC PARTITION LOG RATE: produces numbered values with idempotence and acks=all until SIGTERM;
writes the number of each acknowledged value to LOG and a summary to LOG.report. RATE 0: as fast as it
goes."""
import hashlib
import json
import signal
import sys
import time

from confluent_kafka import KafkaException, Producer

PADDING = 180


def value_of(number, partition):
    head = f"{partition}:{number}:".encode()
    return head + hashlib.md5(head).hexdigest().encode() + b"." * PADDING


def main():
    address, topic, partition, path, rate = sys.argv[1:6]
    partition, rate = int(partition), float(rate)
    stopping = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(1))
    state = {"acked_next": 0, "fatal": "", "errors": 0, "gap_max_s": 0.0, "last": None}
    producer = Producer({
        "bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "linger.ms": 2,
        "message.timeout.ms": 300000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20, "socket.timeout.ms": 10000, "batch.num.messages": 100,
        "queue.buffering.max.messages": 2000, "log_level": 0,
    })
    log = open(path, "w", encoding="ascii", buffering=1)

    def delivered(error, message):
        if error:
            state["errors"] += 1
            state["fatal"] = state["fatal"] or str(error)
            return
        now = time.monotonic()
        if state["last"] is not None:
            state["gap_max_s"] = max(state["gap_max_s"], now - state["last"])
        state["last"] = now
        number = int(message.value().split(b":", 2)[1])
        if number != state["acked_next"]:
            state["fatal"] = state["fatal"] or f"acknowledged {number} after {state['acked_next']}"
        state["acked_next"] = number + 1
        log.write(f"{number} {message.offset()}\n")

    number = 0
    while not stopping:
        try:
            producer.produce(topic, value=value_of(number, partition), partition=partition,
                             on_delivery=delivered)
            number += 1
            producer.poll(0)
            if rate:
                time.sleep(1 / rate)
        except BufferError:
            producer.poll(0.05)
        except KafkaException as error:
            state["fatal"] = str(error)
            break
    left = producer.flush(310)
    if left and not state["fatal"]:
        state["fatal"] = f"{left} values were never acknowledged"
    del state["last"]
    state["sent"] = number
    with open(path + ".report", "w", encoding="utf-8") as out:
        json.dump(state, out)


if __name__ == "__main__":
    main()
