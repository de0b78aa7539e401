#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the integration tests that kafka-python has for itself pass against Millrace, those of 2.0.2 and those of
3.x, and so do scripts of our own for confluent-kafka, the distribution's version and the newest.

Method: kafka-python's source packages hold its tests; tests/clients/setup unpacks them, and a plugin makes what they
leave out. pytest runs each of their files, several at once; what is not run has its reason in EXCLUDED or says it
itself. confluent_suite.py is a script of checks, run with both versions of that client. The table goes to
docs/compatibility.md.

python_suites.py [WORD...]: only files and clients that have such a word in their names."""
import concurrent.futures
import fnmatch
import os
import sys
import time

import confluent_suite
from lib import compat
from lib.broker import FULL, TOP, Broker, run, skip

SUITES = os.path.join(TOP, "build/clients/kafka-python")
PLUGIN = os.path.join(TOP, "tests/clients/kafka_python")
PYTEST = os.path.join(SUITES, "venv/bin/python3")
OURS = os.path.join(TOP, "tests/clients/confluent_suite.py")
NEWEST = os.path.join(TOP, "build/clients/venv/bin/python3")
AT_ONCE = 6  # they wait most of their time
LIMIT_S = 900

# Version, the version of Kafka that its tests take the broker for (the last that they know and that it looks like),
# and the files of its tests that need a broker.
PYTHON = (
    ("2.0.2", "2.5.0", ("test/test_consumer_integration.py", "test/test_admin_integration.py",
                        "test/test_consumer_group.py", "test/test_producer.py", "test/test_sasl_integration.py")),
    ("3.0.12", "4.3", ("test/integration/test_admin_integration.py", "test/integration/test_consumer_integration.py",
                       "test/integration/test_producer_integration.py", "test/integration/test_sasl_integration.py",
                       "test/integration/test_ssl_integration.py")),
)
CONFLUENT = {"confluent-kafka of the distribution": "/usr/bin/python3", "confluent-kafka, newest": NEWEST}

# What cannot be, by version and by the tests' names.
EXCLUDED = {
    "2.0.2": {
        "test_admin_integration.py::test_create_describe_delete_acls": "there is no authorizer yet",
        "test_admin_integration.py::test_describe_consumer_group_does_not_exist":
            "it expects the error of a broker that has no __consumer_offsets: Millrace makes it and answers",
        "test_sasl_integration.py::*": "there is no SASL yet",
    },
    "3.0.12": {
        "test_admin_integration.py::test_create_describe_delete_acls": "there is no authorizer yet",
        "test_admin_integration.py::test_describe_metadata_quorum": "there is no KRaft quorum",
        "test_admin_integration.py::test_alter_replica_log_dirs": "replicas are not moved between directories",
        "test_sasl_integration.py::*": "there is no SASL yet",
        "test_ssl_integration.py::*": "there is no TLS yet",
    },
}
NOTES = {
    "2.0.2": "",
    "3.0.12": "; each consumer waits for its first metadata: this version loses a subscription made meanwhile",
}
# Not in the default run: they wait for seconds by themselves.
SLOW = {
    "2.0.2": ("test_consumer_integration.py::test_kafka_consumer_max_bytes_simple",),
    "3.0.12": (),
}


# --- kafka-python ---------------------------------------------------------------------------------

def pytest(broker, version, kafka, *words, check=True):
    """Runs pytest in the source package; what the plugin wrote of each test."""
    home = os.path.join(SUITES, version)
    results = os.path.join(broker.home, f"{version}-{time.monotonic_ns()}")
    environment = dict(os.environ, PYTHONPATH=f"{home}:{PLUGIN}", PYTHONDONTWRITEBYTECODE="1", KAFKA_VERSION=kafka,
                       KAFKA_ROOT=home, KAFKA_URI="kafka://" + broker.address("LOCAL"), MILLRACE_RESULTS=results)
    said = run(PYTEST, "-B", "-m", "pytest", "-p", "millrace_plugin", "-p", "no:cacheprovider", "-q", "--tb=short",
               "--show-capture=no", *words, cwd=home, env=environment, timeout=LIMIT_S, check=check)
    if not os.path.exists(results):
        return said, []
    with open(results, encoding="utf-8") as lines:
        return said, [line.rstrip("\n").split("\t") for line in lines]


def collect(broker, version, kafka, path):
    said, _ = pytest(broker, version, kafka, "--collect-only", path)
    return [line for line in said.splitlines() if line.startswith(path + "::")]


def matches(test, pattern):
    return fnmatch.fnmatchcase(test.rsplit("/", 1)[1].replace("[", "("), pattern.replace("[", "("))


def names(tests):
    """Of tests as a table shows them: each once, without its parameters."""
    return ", ".join(dict.fromkeys(test.split("::")[-1].split("[")[0] for test in tests))


def count(tests):
    return f"{tests} tests" if tests > 1 else "1 test"


class File:
    """One file of tests of one version, and its rows."""

    def __init__(self, version, kafka, path):
        self.version = version
        self.kafka = kafka
        self.path = path
        self.name = f"kafka-python {version}, {os.path.basename(path)}"
        self.left_out = {}  # reason -> tests
        self.works = 0

    def run(self, broker):
        tests = collect(broker, self.version, self.kafka, self.path)
        assert tests, f"{self.name}: no tests"
        for pattern, reason in EXCLUDED[self.version].items():
            self.left_out.setdefault(reason, []).extend(test for test in tests if matches(test, pattern))
        out = {test for some in self.left_out.values() for test in some}
        wanted = [test for test in tests if test not in out]
        slow = [test for test in wanted if any(matches(test, pattern) for pattern in SLOW[self.version])]
        chosen = wanted if FULL else [test for test in wanted if test not in slow]
        if chosen != wanted:
            print(f"reduced: {len(chosen)} of the {len(wanted)} tests of {self.name}")
        said, results = pytest(broker, self.version, self.kafka, *chosen, check=False) if chosen else ("", [])
        broken = [test for test, result, _ in results if result == "failed"]
        assert not broken, f"{self.name}: {names(broken)}\n{said}"
        told = {test for test, _, _ in results}
        assert told == set(chosen), f"{self.name}: nothing is known of {set(chosen) ^ told}\n{said}"
        for test, result, why in results:
            if result == "skipped":
                self.left_out.setdefault(why, []).append(test)
        self.works = len(wanted) - sum(result == "skipped" for _, result, _ in results)

    def rows(self, table):
        if self.works:
            table.row(self.name, f"{count(self.works)}{NOTES[self.version]}")
            table.result(self.name, "works")
        for reason, tests in self.left_out.items():
            if tests:
                table.leave_out(f"{self.name}: {names(tests)}", count(len(tests)), reason)


# --- confluent-kafka ------------------------------------------------------------------------------

class Ours:
    """Our checks with one version of confluent-kafka."""

    def __init__(self, name, interpreter):
        self.name = name
        self.prefix = name.rsplit(" ", 1)[1] + "-"
        self.interpreter = interpreter
        self.said = {}

    def run(self, broker):
        said = run(self.interpreter, "-B", OURS, broker.address("LOCAL"), self.prefix, timeout=LIMIT_S, check=False)
        results = [line.split("\t", 1) for line in said.splitlines() if "\t" in line]
        self.said = dict(results)
        broken = [name for name, result in results if result.startswith("failed")]
        assert not broken, f"{self.name}: {broken}\n{said}"
        assert set(self.said) == set(confluent_suite.CHECKS), f"{self.name} ended early:\n{said}"

    def rows(self, table):
        for check, (what, _) in confluent_suite.CHECKS.items():
            if self.said[check] == "works":
                table.row(f"{self.name}, {check}", what)
                table.result(f"{self.name}, {check}", "works")
        absent = {}
        for check, said in self.said.items():
            if said != "works":
                absent.setdefault(said.removeprefix("absent: "), []).append(check)
        for reason in sorted(absent):
            table.leave_out(f"{self.name}, {', '.join(sorted(absent[reason]))}", "", reason)


# --- all ------------------------------------------------------------------------------------------

def main():
    missing = [path for path in (PYTEST, NEWEST) if not os.path.exists(path)]
    if missing:
        skip(f"{' '.join(missing)} is not there: tests/clients/setup")
    only = sys.argv[1:]
    parts = [Ours(name, interpreter) for name, interpreter in CONFLUENT.items()]
    parts += [File(version, kafka, path) for version, kafka, paths in PYTHON for path in paths]
    parts = [part for part in parts if not only or any(word in part.name for word in only)]
    settings = {"node.id": "0", "num.partitions": "4", "group.initial.rebalance.delay.ms": "0",
                "group.min.session.timeout.ms": "1000", "control.request.timeout.ms": "10000",
                "offsets.topic.num.partitions": "8", "transaction.state.log.num.partitions": "8"}
    failed = []
    with Broker(nic=False, settings=settings) as broker:
        with open(broker.config, "a", encoding="utf-8") as out:  # a test looks at where this setting is from
            out.write(f"advertised.listeners=LOCAL://{broker.address('LOCAL')}\n")
        broker.start()

        def one(part):
            begun = time.monotonic()
            try:
                part.run(broker)
            except Exception as error:  # one part's fault must not hide another's
                failed.append(part.name)
                print(f"FAILED {part.name}: {error}", flush=True)
                return
            print(f"{part.name}: {time.monotonic() - begun:.1f} s", flush=True)

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, parts))
        assert not failed, failed
        broker.wait_no_loans()
    if not only:
        table = compat.Table("python-suites", "kafka-python's own tests, and scripts for confluent-kafka")
        for part in parts:
            part.rows(table)
        table.finish()
    print(f"{len(parts)} suites of Python clients pass")


if __name__ == "__main__":
    main()
