#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Goal: the tests of the whole broker fail when what they guard is broken.

Method: each row of TABLE names a mutant (MILL_MUTANT_NAME in the sources breaks one thing) and a test of
tests/suite, with its arguments; tests/lib/mutant_build.py makes the programs, and the test runs on them and must
fail. A name of meson's is a unit test that starts one of the programs.

    tests/mutants_system.py            all rows
    tests/mutants_system.py NAME...    rows of these mutants
"""
import itertools
import os
import subprocess
import sys
import time

from lib.mutant_build import DIR, TOP, Build, macro, sources

PROGRAMS = ("millrace", "millraced", "millrace-control", "millrace-supervisor",
            "tests/unit/control/test_control_main", "tests/guest/guest_agent", "tests/guest/guest_pages",
            "tests/unit/port/libwithheld_map.so", "tests/faults/libno_memory.so")
LIMIT_S = 600

TABLE = (
    ("net-copy-byte", "tests/clients/zero_copy.py"),
    ("log-copy-twice", "tests/clients/zero_copy.py"),
    ("net-old-peers-unasked", "tests/faults/silent_peers.py"),
    ("net-leak-loan", "tests/faults/slow_readers.py"),
    ("port-loan-leak", "tests/clients/suites_nic.py"),
    ("store-lose-takeup", "tests/faults/kill_data.py"),
    ("control-name-any-length", "tests/faults/frames.py"),
    ("core-forgets-all", "tests/faults/frames.py"),
    ("core-bad-frames-loud", "tests/faults/frames.py"),
    ("core-frames-any-size", "tests/faults/frames.py"),
    ("log-skip-crc", "tests/faults/batches.py"),
    ("log-keys-unseen", "tests/faults/batches.py"),
    ("store-repack-unsummed", "tests/faults/batches.py"),
    ("store-unpack-unbounded", "tests/faults/batches.py"),
    ("control-busy-bell", "unit/control/main"),
    ("supervisor-share-dirs", "tests/faults/dpdk_start.py"),
    ("distribute-wrong-core", "tests/clients/direct_cores.py"),
    ("distribute-wrong-core", "tests/clients/direct_cores.py memif"),
    ("distribute-wrong-core", "tests/clients/ports.py direct-cores"),
    ("distribute-first-core", "tests/clients/ports.py cores"),
    ("nodes-replica-real", "tests/clients/direct_cores.py"),
    ("core-stall-uncounted", "tests/faults/starved.py"),
    ("core-rows-stale", "tests/clients/top.py"),
    ("core-quota-unmuted", "tests/clients/quotas.py"),
    ("core-addresses-alone", "tests/clients/connection_limits.py"),
    ("core-refusals-untold", "tests/clients/connection_limits.py"),
    ("core-errors-uncounted", "tests/clients/metrics.py"),
    ("http-slow-forever", "tests/clients/metrics.py"),
    ("http-always-ready", "tests/clients/metrics.py"),
    ("jitter-unwatched", "tests/faults/starved.py"),
    ("port-own-ports-unsteered", "tests/perf/bench.py xdp"),
    ("bench-coordinated", "tests/perf/bench.py"),
    ("log-codec-byte", "tests/clients/kcat.py"),
    ("store-time-off", "tests/clients/librdkafka.py"),
    ("store-time-off", "tests/clients/go.py"),
    ("store-time-off", "tests/clients/node.py"),
    ("store-time-off", "tests/clients/librdkafka_suite.py 0054"),
    ("store-time-off", "tests/clients/python_suites.py"),
    ("store-time-off", "tests/clients/node_suite.py"),
    ("core-old-offsets", "tests/clients/python.py"),
    ("control-delete-by-id", "tests/clients/go.py"),
    ("core-aborted-untold", "tests/clients/go_suites.py transactions"),
    ("core-aborted-untold", "tests/clients/franz_suite.py TestTxnEtl"),
    ("control-config-unset", "tests/clients/java.py"),
    ("control-config-unset", "tests/clients/command_line.py"),
    ("control-config-unset", "tests/clients/java_tools.py ConfigCommand"),
    ("migration-no-rebalance", "tests/clients/group_migration.py"),
    ("group-nameless-unknown", "tests/clients/difference.py"),
    ("store-tombstone-at-once", "tests/clients/compact.py"),
    ("core-no-controller", "tests/clients/node.py"),
    ("supervisor-ready-first", "tests/clients/fresh"),
    ("core-ask-control", "tests/faults/kill_control.py"),
    ("core-coordinator-asked", "tests/faults/kill_control.py"),
    ("control-lose-config", "tests/faults/kill_both.py"),
    ("group-unstable-told", "tests/clients/transactions.py"),
    ("log-stable-is-watermark", "tests/clients/streams.py"),
    ("store-txn-run", "tests/clients/dump_internal.py"),
    ("txn-no-fence", "tests/clients/transactions.py"),
    ("supervisor-leave-children", "tests/faults/kill_supervisor.py"),
    ("core-stop-unwritten", "tests/faults/stop.py"),
    ("store-any-cluster", "tests/faults/restore.py"),
    ("store-trust-takeup", "tests/faults/restore.py"),
    ("core-handed-uncounted", "tests/clients/cores.py"),
    ("core-peer-loans-lost", "tests/clients/cores.py"),
    ("core-tick", "tests/clients/idle.py"),
    ("core-nap-short", "tests/clients/idle_ports.py"),
    ("core-staged-stays", "tests/faults/pressure.py produce-large"),
    ("core-drip-kept", "tests/faults/pressure.py stagers"),
    ("control-uncommitted", "tests/faults/topics.py"),
    ("store-delete-kept", "tests/faults/topics.py"),
    ("store-read-unsummed", "tests/faults/disk_faults.py flip"),
    ("store-load-in-turn", "tests/faults/recovery.py"),
    ("log-waits-for-fenced", "tests/faults/disk_faults.py write"),
    ("store-fence-forgotten", "tests/faults/disk_faults.py write sync"),
    ("store-ack-unsynced", "tests/faults/power_cut.py real"),
    ("control-begins-anew", "tests/faults/restore.py"),
    ("store-full-dropped", "tests/faults/disk_full.py"),
    ("store-full-fences", "tests/faults/disk_full.py"),
    ("store-kept-lost", "tests/faults/disk_full.py"),
    ("store-cache-kept", "tests/perf/bigger_than_memory.py"),
    ("group-commit-dropped", "tests/clients/groups.py"),
    ("group-unloaded", "tests/faults/kill_groups.py"),
    ("group-unloaded", "tests/faults/kill_coordinator.py"),
    ("group-txn-marker-unread", "tests/faults/kill_coordinator.py"),
    ("control-lose-config", "tests/faults/kill_coordinator.py"),
    ("core-waits-control", "tests/perf/group_storm.py"),
    ("core-waits-control", "tests/faults/kill_coordinator.py"),
    ("log-duplicates-kept", "tests/faults/freeze_data.py"),
    ("control-uncommitted", "tests/faults/memory.py oom"),
    ("base-no-memory-asserted", "tests/faults/memory.py start"),
    ("store-written-kept", "tests/faults/memory.py pressure"),
    ("log-loaned-evicted", "tests/faults/lagging.py"),
    ("core-bad-frame-kept", "tests/faults/frames.py"),
    ("core-frame-memory", "tests/faults/frames.py"),
    ("config-range", "tests/faults/config.py"),
    ("supervisor-pool-unlocked", "tests/faults/starts.py"),
    ("supervisor-device-shared", "tests/faults/starts.py"),
    ("guest-agent-twice", "tests/guest/guest.py commands"),
    ("port-proof-blind", "tests/guest/guest.py withheld"),
    ("port-no-fillers", "tests/guest/guest.py pins"),
    ("memory-any-node", "tests/guest/guest.py numa"),
    ("distribute-wrong-core", "tests/guest/guest.py direct"),
    ("core-lost-cpu", "tests/guest/guest.py unplug"),
    ("port-group-unasked", "tests/guest/guest.py no-iommu"),
    ("arena-node-untold", "tests/guest/guest.py one-node"),
    ("core-tick", "tests/guest/guest.py idle"),
)


def fails(mutant, test):
    environment = dict(os.environ, MILLRACE_BUILD=DIR, MILLRACE_FULL="0", MILLRACE_MUTANT=mutant,
                       PYTHONPATH=os.path.join(TOP, "tests"))
    command = test.split()
    if command[0].endswith(".py"):
        command[:0] = ["/usr/bin/python3", "-B"]
    elif not os.path.exists(os.path.join(TOP, command[0])):
        command = ["meson", "test", "-C", DIR, "--no-rebuild", test]
    try:
        done = subprocess.run(command, cwd=TOP, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return True, "it hangs"
    words = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode not in (0, 77), words[-1] if words else ""


def main():
    chosen = sys.argv[1:]
    unknown = set(chosen) - {mutant for mutant, _ in TABLE}
    if unknown:
        sys.exit(f"unknown mutants: {' '.join(sorted(unknown))}")
    build = Build(*PROGRAMS)
    found = sources()
    programs = [os.path.join(DIR, program) for program in PROGRAMS]
    rows = [row for row in TABLE if not chosen or row[0] in chosen]
    survivors = []
    for mutant, tests in itertools.groupby(rows, lambda row: row[0]):
        build.link(mutant, sorted(found[macro(mutant)]), programs)
        for _, test in tests:
            begun = time.monotonic()
            failed, last = fails(mutant, test)
            print(f"{mutant:26} {test:32} {time.monotonic() - begun:4.0f} s "
                  f"{'fails' if failed else 'PASSES'}: {last[:120]}", flush=True)
            if not failed:
                survivors.append(f"{mutant} by {test}")
    build.forget_links(programs)
    build.ninja(*PROGRAMS)
    if survivors:
        sys.exit("not noticed: " + ", ".join(survivors))
    print("every broken broker was noticed")


if __name__ == "__main__":
    main()
