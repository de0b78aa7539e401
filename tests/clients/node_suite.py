#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: kafkajs in groups, with transactions, as an administrator and with times does what it does with Kafka.

Method: its package holds none of its tests, so tests/clients/node/suite.js has checks of our own; each says what it
tries and what came of it, and the table goes to docs/compatibility.md.

node_suite.py [CHECK...]: only these."""
import json
import os
import sys

from lib import compat
from lib.broker import TOP, Broker, run, skip

HOME = os.path.join(TOP, "build/clients/node")
SCRIPT = os.path.join(TOP, "tests/clients/node/suite.js")
LIMIT_S = 300


def version():
    with open(os.path.join(HOME, "node_modules/kafkajs/package.json"), encoding="utf-8") as source:
        return json.load(source)["version"]


def main():
    if not os.path.isdir(os.path.join(HOME, "node_modules")):
        skip("kafkajs is not in build/clients: tests/clients/setup")
    only = sys.argv[1:]
    environment = dict(os.environ, NODE_PATH=os.path.join(HOME, "node_modules"), KAFKAJS_NO_PARTITIONER_WARNING="1")
    settings = {"group.initial.rebalance.delay.ms": "0", "control.request.timeout.ms": "10000",
                "offsets.topic.num.partitions": "8", "transaction.state.log.num.partitions": "8"}
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        said = run("node", SCRIPT, broker.address("LOCAL"), *only, check=False, timeout=LIMIT_S, env=environment)
        results = [line.split("\t") for line in said.splitlines() if line.count("\t") == 2]
        broken = [name for name, _, result in results if result != "works"]
        assert results and not broken, f"{broken}\n{said}"
        broker.wait_no_loans()
    if not only:
        table = compat.Table("node-suite", f"kafkajs {version()}, by scripts")
        for name, what, _ in sorted(results):
            table.row(name, what)
            table.result(name, "works")
        table.leave_out("kafkajs' own tests", "", "its package holds none")
        table.leave_out("static members, other assignors", "", "kafkajs has neither")
        table.leave_out("snappy, lz4, zstd", "", "kafkajs has no such codecs of its own")
        table.finish()
    print(f"kafkajs: {len(results)} checks of groups, transactions, administration and times")


if __name__ == "__main__":
    main()
