#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the core of the suites works through the listener on a DPDK port as through the kernel's sockets: kcat,
franz-go in groups and with transactions, Kafka's command line tools, confluent-kafka.

Method: the clients run in the namespace behind a TAP port and know no other address. Their checks are those of
kcat.py, groups.py, java_tools.py and confluent_suite.py; what they did is looked at through the kernel's sockets. The
table goes to docs/compatibility.md.

suites_nic.py [WORD...]: only rows that have such a word in their names."""
import concurrent.futures
import os
import sys
import time

import confluent_suite
import franz_suite
import groups
import java_tools
import kcat
from lib import compat
from lib.broker import FULL, TOP, Broker, pick, run, skip
from transactions import GO as TRANSACTIONS

CODECS = os.path.join(TOP, "build/clients/go/franz")
OURS = os.path.join(TOP, "tests/clients/confluent_suite.py")
ETL = ("TestGroupETL", "TestTxnEtl")  # of franz-go's own tests
NIC = "NIC"
AT_ONCE = 3  # clients that wait most of their time
ALONE = ("kcat, records", *java_tools.ALONE)  # counts loans; leave classes, change settings, kill processes
IDLE_S = 6   # a member's partitions may come late beside the others
LIMIT_S = 900
# By default: what is quick to tell whether bytes, groups and administration pass the port.
TOOLS = ("TopicCommand", "ConsoleProducer, ConsoleConsumer", "GetOffsetShell", "ConsumerGroupCommand",
         "ProducerPerformance, ConsumerPerformance")
MORE_TOOLS = ("BrokerApiVersionsCommand", "VerifiableProducer, VerifiableConsumer",
              "ConsumerGroupCommand --reset-offsets",
              "ConfigCommand, topics", "ConfigCommand, brokers", "DeleteRecordsCommand", "LogDirsCommand",
              "EndToEndLatency", "TransactionsCommand", "GroupsCommand", "ClusterTool", "ReplicaVerificationTool")


def check_kcat(broker):
    kcat.check(broker, pick(64 << 20, 8 << 20), [NIC])


def check_codecs(broker):
    size = pick(64 << 20, 8 << 20)
    for codec in kcat.CODECS:
        run(*broker.inside(NIC), CODECS, broker.address(NIC), f"franz-{codec}", codec, str(size), timeout=LIMIT_S)


def check_group(broker, client, protocol=None):
    """Two members share, a later one goes on where they were."""
    topic = f"{client}-{protocol or 'classic'}"
    count = pick(20000, 400)
    broker.millrace("topic", "create", topic, "-p", str(groups.PARTITIONS))
    first = groups.produce(broker, topic, 0, count)
    members = [groups.start(broker, NIC, client, topic, topic, protocol=protocol) for _ in range(2)]
    got = [groups.finish(member, client) for member in members]
    assert set(got[0]) | set(got[1]) == set(first), f"{client}: {len(set(got[0]) | set(got[1]))} of {count}"
    second = groups.produce(broker, topic, count, count)
    again = groups.finish(groups.start(broker, NIC, client, topic, topic, protocol=protocol), client)
    assert sorted(again) == sorted(second), f"{client}: {len(again)} values after the first {count}"


def check_transactions(broker):
    run(*broker.inside(NIC), TRANSACTIONS, broker.address(NIC), timeout=LIMIT_S)


def check_etl(broker):
    """Its own tests: chains of groups, with transactions and without, that pass on what another wrote."""
    said = franz_suite.run_tests(broker.address(NIC), pick(100000, 2000), "-test.run", f"^({'|'.join(ETL)})$",
                                 inside=broker.inside(NIC))
    got = franz_suite.results(said)
    assert got == dict.fromkeys(ETL, "PASS"), f"{got}\n{said[-4000:]}"


def check_confluent(broker):
    said = run(*broker.inside(NIC), groups.NEWEST, "-B", OURS, broker.address(NIC), "nic-", timeout=LIMIT_S,
               check=False)
    results = dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
    broken = [name for name, result in results.items() if result != "works"]
    assert set(results) == set(confluent_suite.CHECKS) and not broken, f"{broken}\n{said}"


# Name, what the table says of it, and the check.
CHECKS = {
    "kcat, records": ("every codec: what was read is what was sent, by checksum", check_kcat),
    "kcat, group": ("two members share, the next one goes on", lambda broker: check_group(broker, "kcat")),
    "franz-go, records": ("every codec, offsets and times, with its own settings", check_codecs),
    "franz-go, group": ("two members share, the next one goes on", lambda broker: check_group(broker, "franz-go")),
    "franz-go, group of the new protocol": ("the same", lambda broker: check_group(broker, "franz-go", "consumer")),
    "franz-go, transactions": ("copies with the group's offsets, some aborted", check_transactions),
    "franz-go's own tests": (", ".join(ETL), check_etl),
    "confluent-kafka, newest": ("all checks of `python-suites`", check_confluent),
}
BY_DEFAULT = {*CHECKS, *TOOLS} - {"franz-go's own tests"}


def main():
    needed = (groups.JARS, groups.NEWEST, groups.GO, CODECS, TRANSACTIONS, franz_suite.PROGRAM)
    missing = [path for path in needed if not os.path.exists(path)]
    if missing:
        skip(f"{' '.join(missing)} is not there: tests/clients/setup")
    only = sys.argv[1:]
    failed = []
    groups.IDLE_S = IDLE_S
    settings = {"group.initial.rebalance.delay.ms": "500", "control.request.timeout.ms": "10000",
                "group.consumer.heartbeat.interval.ms": "300"}
    with Broker(settings=settings) as broker:
        broker.start()
        tools = java_tools.Tools(broker, NIC)
        tried = java_tools.checks_of(java_tools.fill_times(broker))
        java = {name: check for name, check in tried.items() if name in TOOLS + MORE_TOOLS}
        table = compat.Table("suites-nic", "The suites' core through a DPDK port")
        rows = {name: (what, lambda check=check: check(broker)) for name, (what, check) in CHECKS.items()}
        rows.update({name: (what, lambda check=check: check(tools)) for name, (what, check) in java.items()})
        for name, (what, _) in rows.items():
            table.row(name, what)
            table.result(name, "works")
        chosen = [name for name in rows if FULL or name in BY_DEFAULT]
        if not FULL:
            print(f"reduced: {len(chosen)} in place of {len(rows)} rows")
        chosen = [name for name in chosen if not only or any(word in name for word in only)]

        def one(name):
            begun = time.monotonic()
            try:
                rows[name][1]()
            except Exception as error:  # one client's fault must not hide another's
                failed.append(name)
                print(f"FAILED {name}: {error}", flush=True)
                return
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)

        alone = [name for name in ALONE if name in chosen]
        for name in alone:
            one(name)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, [name for name in chosen if name not in alone]))
        assert not failed, failed
        broker.wait_no_loans()
        through = broker.listener(NIC)
        assert through["bytes_in"] > through["bytes_rejected"], through
    if not only:
        table.finish()
    print(f"{len(chosen)} rows of the suites work through a DPDK port, {through['bytes_in'] >> 20} MiB came in there")


if __name__ == "__main__":
    main()
