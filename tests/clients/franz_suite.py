#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: franz-go's own tests of its client, pkg/kgo, pass against Millrace: groups and transactions that read what
another wrote, classic and KIP-848, and what the client does when topics come, go and grow.

Method: the module has its tests with it; tests/clients/setup makes a program of them, which runs with one replica and
fewer records by default. The program says of each test what came of it; a test that leaves itself out needs a row
here that says why. The table goes to docs/compatibility.md.

franz_suite.py [PATTERN]: only tests that go's -test.run PATTERN picks"""
import os
import re
import subprocess
import sys

from lib import compat
from lib.broker import FULL, TOP, Broker, pick, skip

DIR = os.path.join(TOP, "build/clients/go-suites")
PROGRAM = os.path.join(DIR, "kgo.test")
LIMIT_S = 3000
PATIENT = {"control.request.timeout.ms": "30000"}  # some make a topic in one try, while all CPUs are busy

# What needs a broker; the others of the package are one row.
AREAS = {
    "groups, classic and KIP-848": "TestGroupETL TestGroupSimple TestIssue523 TestUnknownGroupOffsetFetchPinned "
                                   "Test848RegexBrokerResolves",
    "transactions over groups, classic and KIP-848": "TestTxnEtl",
    "producing": "TestClient_Produce TestClient_ProduceLargeMessages TestIssue769 TestIssue831 TestIssue1034 "
                 "TestIssueProduceSyncManualPartitionNegativeDoesNotPanic TestRackAwarePartitioning TestPooling",
    "consuming": "TestAddRemovePartitions TestConsumeMaxDecompressBatchBytes TestConsumeRegex "
                 "TestConsumeTopicRetrieval TestConsumeTopicRetrieval_Many TestDirectPartitionPurge TestHookPollStart "
                 "TestIssue325 TestIssue337 TestIssue434 TestIssue648 TestIssue810 TestIssue865 "
                 "TestIssueFetchLargerThanBrokerMaxReadBytes TestLookbackMilli TestPauseIssue489 "
                 "TestPauseIssueOct2023",
    "the client": "TestPing TestProcessHooks TestMaxVersions",
}
LEFT_OUT = (
    ("TestShareGroup TestShareGroupETL TestShareGroupAckOnClose TestShareGroupOffsetsAdmin "
     "TestConsumeRegexShareSkipsInternal", "share groups", "they are not served yet"),
    ("TestSCRAMAuth TestSCRAMAuthBadCredentials TestOAuthAuth", "SASL", "there is no SASL yet"),
    ("TestIssueProduceBrokerTooOldFailsRecords", "a client of Kafka 0.10",
     "the test itself stops where a broker names Produce 0, as Kafka 4.4 and Millrace do"),
)
# The default run: the two tests of chains of groups with few records, and what is quick.
SLOW = ("TestIssue337", "TestIssue434", "TestIssue523")


def results(said):
    """The outermost tests by name, each with PASS, FAIL or SKIP."""
    return {name: result for result, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\w+) ", said, re.MULTILINE)}


def run_tests(address, records, *words, inside=()):
    """What the program says of the tests that words pick; it fails when one of them does."""
    environment = dict(os.environ, KGO_SEEDS=address, KGO_TEST_RF="1", KGO_TEST_RECORDS=str(records),
                       KGO_LOG_LEVEL="none")
    # In the folder of its source, where one of the tests reads it.
    with open(os.path.join(DIR, "kgo.source"), encoding="utf-8") as source:
        home = source.read().strip()
    done = subprocess.run([*inside, PROGRAM, "-test.v", f"-test.timeout={LIMIT_S}s", *words], env=environment, cwd=home,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=LIMIT_S + 60, check=False)
    got = results(done.stdout)
    failed = [name for name, result in got.items() if result == "FAIL"]
    assert done.returncode == 0 and not failed and got, f"exit {done.returncode}, {failed} of {len(got)}\n{done.stdout[-20000:]}"
    return done.stdout


def main():
    if not os.path.exists(PROGRAM):
        skip("franz-go's tests are not in build/clients: tests/clients/setup")
    records = pick(500000, 5000)
    table = compat.Table("franz-suite", "franz-go 1.22.3's own tests of pkg/kgo")
    for area, names in AREAS.items():
        table.row(area, ", ".join(names.split()))
    table.row("the other tests of the package", "what needs no broker")
    for names, what, reason in LEFT_OUT:
        table.leave_out(", ".join(names.split()), what, reason)
    left_out = {name for names, _, _ in LEFT_OUT for name in names.split()}
    named = {name for names in AREAS.values() for name in names.split()}
    pattern = sys.argv[1:2] or ["."]
    words = ["-test.run", *pattern]
    if not FULL:
        words += ["-test.skip", f"^({'|'.join(SLOW)})$"]
        print(f"reduced: without {', '.join(SLOW)}")
    with Broker(nic=False, settings=PATIENT) as broker:
        broker.start()
        got = results(run_tests(broker.address("LOCAL"), records, *words))
        broker.wait_no_loans()
    skipped = {name for name, result in got.items() if result == "SKIP"}
    assert skipped <= left_out, f"left themselves out: {sorted(skipped - left_out)}"
    if len(sys.argv) == 1:
        missing = (named | left_out) - set(got) - (set() if FULL else set(SLOW))
        assert not missing, f"did not run: {sorted(missing)}"
        assert not left_out - skipped, f"no longer leave themselves out: {sorted(left_out - skipped)}"
        for area in [*AREAS, "the other tests of the package"]:
            table.result(area, "works")
        table.finish()
    print(f"{len(got) - len(skipped)} of franz-go's tests pass with {records} records, {len(skipped)} are left out")


if __name__ == "__main__":
    main()
