#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: kafkajs produces, and its admin client reads offsets and creates and deletes topics, through both
listeners.

Method: tests/clients/node/check.js does that and prints a checksum for each partition; kcat reads the
partitions, since kafkajs can read only in groups, and the sums must agree."""
import hashlib
import os
import subprocess

from lib.broker import TOP, Broker, pick, run, skip

MODULES = os.path.join(TOP, "build/clients/node/node_modules")
SCRIPT = os.path.join(TOP, "tests/clients/node/check.js")
PARTITIONS = 2
LIMIT_S = 900


def read_sum(broker, listener, topic, partition, count):
    """SHA-256 over the values, as kcat prints them without anything between."""
    command = broker.inside(listener) + ["kcat", "-b", broker.address(listener), "-q", "-C", "-t", topic,
                                         "-p", str(partition), "-o", "beginning", "-c", str(count),
                                         "-f", "%s"]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    return hashlib.sha256(done.stdout).hexdigest()


def check(broker, listener, count):
    topic = f"node-{listener.lower()}"
    environment = dict(os.environ, NODE_PATH=MODULES, KAFKAJS_NO_PARTITIONER_WARNING="1")
    printed = run(*broker.inside(listener), "node", SCRIPT, broker.address(listener), topic, str(count),
                  timeout=LIMIT_S, env=environment)
    want = printed.strip().splitlines()[-1].split()
    got = [read_sum(broker, listener, topic, partition, count // PARTITIONS)
           for partition in range(PARTITIONS)]
    assert got == want, f"{listener}: {got} is not {want}"


def main():
    if not os.path.isdir(MODULES):
        skip("kafkajs is not in build/clients: tests/clients/setup")
    count = pick(600000, 30000)
    with Broker() as broker:
        broker.start()
        for listener in broker.listeners():
            check(broker, listener, count)
        broker.wait_no_loans()
    print(f"kafkajs: {count} records per listener equal, topics and offsets right")


if __name__ == "__main__":
    main()
