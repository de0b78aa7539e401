# SPDX-License-Identifier: Apache-2.0
"""The part of dump-log for transactions: build/tests/clients/txn_log appends transactional batches and
markers to a log directly, and Kafka's tool reads what came of it."""
import glob
import os
import re
import subprocess
import tempfile

from lib.broker import BUILD


def lines_with(lines, word):
    return [line for line in lines if word in line]


def number(line, name):
    return int(re.search(rf"{name}: (-?[0-9]+)", line).group(1))


def check_markers(dump, logs, told):
    """The batches' own words: as many markers of each kind as were written."""
    markers = lines_with(dump(logs, "--deep-iteration"), "endTxnMarker:")
    kinds = {kind: len(lines_with(markers, f"endTxnMarker: {kind} coordinatorEpoch: 11"))
             for kind in ("COMMIT", "ABORT")}
    assert kinds == {"COMMIT": told["committed"], "ABORT": told["aborted"]}, (kinds, told)


def check_txnindexes(dump, paths, told):
    """Every abort has its entry, in the order of the markers, with a stable offset that fits."""
    entries = []
    for path in paths:
        entries += lines_with(dump([path]), "producerId:")
    assert len(entries) == told["aborted"], (len(entries), told)
    last = -1
    for line in entries:
        assert number(line, "version") == 0 and 7000 <= number(line, "producerId") < 7005, line
        first, end = number(line, "firstOffset"), number(line, "lastOffset")
        assert last < end and first < end and 0 <= number(line, "lastStableOffset") <= end + 1, line
        last = end


def check_snapshot(dump, path, opened):
    """The newest one names the open transactions, and the coordinator of ended ones."""
    producers = lines_with(dump([path]), "producerId:")
    got = {number(line, "producerId"): int(open_at.group(1)) for line in producers
           if (open_at := re.search(r"currentTxnFirstOffset: \D*([0-9]+)", line.split(" lastTimestamp")[0]))}
    assert got == opened, (got, opened)
    assert all(number(line, "coordinatorEpoch") == 11 for line in producers), producers


def check(dump, faults):
    """Returns the number of segments and of aborted transactions."""
    with tempfile.TemporaryDirectory(prefix="millrace-dump-txn-") as folder:
        program = os.path.join(BUILD, "tests/clients/txn_log")
        words = subprocess.run([program, folder], stdout=subprocess.PIPE, text=True, timeout=120,
                               check=True).stdout.split()
        told = {words[i]: int(words[i + 1]) for i in (0, 2, 4)}
        opened = {int(words[i + 1]): int(words[i + 2]) for i in range(6, len(words), 3)}
        assert told["committed"] > 50 and told["aborted"] > 50 and told["open"] == len(opened) > 0, told

        def paths(kind):
            return sorted(glob.glob(os.path.join(folder, "topic-a-0", "*." + kind)))
        logs = paths("log")
        assert len(logs) > 3, logs
        wrong = faults(logs, "--deep-iteration") + faults(paths("txnindex")) + faults(paths("snapshot"))
        for kind in ("index", "timeindex"):
            full = [path for path in paths(kind) if os.path.getsize(path) > 0]
            wrong += faults(full, "--verify-index-only") + faults(full, "--index-sanity-check")
        assert not wrong, "\n".join(wrong[:20])
        check_markers(dump, logs, told)
        check_txnindexes(dump, paths("txnindex"), told)
        check_snapshot(dump, paths("snapshot")[-1], opened)
        return len(logs), told["aborted"]
