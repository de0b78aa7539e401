#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: sarama and kafka-go find groups, transactions, administration and the times of records as Kafka has them.

Method: programs of tests/clients/go_suites over each client, which say what is not so. Their checks run beside each
other on one broker. The table goes to docs/compatibility.md.

go_suites.py [WORD...]: only checks that have such a word in their names"""
import concurrent.futures
import os
import sys
import time

from lib import compat
from lib.broker import TOP, Broker, run, skip

DIR = os.path.join(TOP, "build/clients/go-suites")
AT_ONCE = 4
LIMIT_S = 600

CHECKS = {
    ("sarama", "groups"): "two members by range, roundrobin and sticky; nothing is read twice when one leaves; static "
                          "members, their removal; committed offsets, their metadata and deletion",
    ("sarama", "transactions"): "records and offsets committed and aborted in turn, read_committed, fencing",
    ("sarama", "administration"): "topics, partitions, settings one by one and as a whole, DeleteRecords, log dirs",
    ("sarama", "times"): "CreateTime, LogAppendTime, offsets by time",
    ("kafka-go", "groups"): "two members by range and roundrobin, one leaves; commits with and without a member; "
                            "deletion of offsets and groups",
    ("kafka-go", "transactions"): "offsets committed and aborted in turn, markers, fencing",
    ("kafka-go", "administration"): "topics, partitions, settings one by one and as a whole, elections",
    ("kafka-go", "times"): "CreateTime, a reader set to a time, offsets by time",
}
VERSIONS = {"sarama": "sarama 1.61.1", "kafka-go": "kafka-go 0.4.51"}


def main():
    if not all(os.path.exists(os.path.join(DIR, client)) for client in VERSIONS):
        skip("the programs are not in build/clients: tests/clients/setup")
    table = compat.Table("go-suites", "sarama and kafka-go")
    for (client, check), what in CHECKS.items():
        table.row(f"{VERSIONS[client]}, {check}", what)
    table.leave_out("kafka-go 0.4.51, records in transactions", "", "the client cannot produce in a transaction")
    words = sys.argv[1:]
    chosen = [pair for pair in CHECKS if not words or any(word in name for word in words for name in pair)]
    with Broker(nic=False) as broker:
        broker.start()

        def one(pair):
            client, check = pair
            begun = time.monotonic()
            run(os.path.join(DIR, client), broker.address("LOCAL"), check, timeout=LIMIT_S)
            table.result(f"{VERSIONS[client]}, {check}", "works")
            print(f"{client} {check}: {time.monotonic() - begun:.1f} s", flush=True)

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, chosen))
        broker.wait_no_loans()
    if not words:
        table.finish()
    print(f"{len(chosen)} checks of sarama and kafka-go pass")


if __name__ == "__main__":
    main()
