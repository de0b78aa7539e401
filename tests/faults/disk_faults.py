#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A disk that fails: a failed write or sync fences its log directory (nothing of it is acknowledged after, nothing is
tried again in silence, the other directory goes on); a full one refuses and goes on when there is space; short reads
and writes are continued; a read that fails, or gives wrong bytes, is an error and never data. The disk is
tests/faults/fault_disk.c."""
import os
import sys
import time

from lib.broker import Broker
from lib.fault_disk import FaultDisk
from lib.wire import Client, batch, crc32c

STORAGE_ERROR = 56
PARTITIONS = 6
TOPIC = "faulty"
WAIT_S = 20


class Case:
    """A broker with two log directories on a disk of its own, and a topic over both."""

    def __init__(self, flush=True, meta_on_disk=False):
        self.disk = FaultDisk()
        self.broker = Broker(nic=False, settings={
            "log.dirs": f"{self.disk.dir('a')},{self.disk.dir('b')}"})
        meta = self.disk.dir("meta") if meta_on_disk else os.path.join(self.broker.home, "meta")
        with open(self.broker.config, "a", encoding="utf-8") as out:
            out.write(f"metadata.dir={meta}\n")
        self.acked = [0] * PARTITIONS
        self.flush = flush

    def __enter__(self):
        self.disk.__enter__()
        self.broker.__enter__()
        self.broker.start()
        words = ["--config", "flush.messages=1"] if self.flush else []
        self.broker.millrace("topic", "create", TOPIC, "-p", str(PARTITIONS), *words)
        self.in_a = self.partitions_in("a")
        self.in_b = self.partitions_in("b")
        assert self.in_a and self.in_b, "one of the directories got nothing"
        return self

    def __exit__(self, *error):
        self.broker.__exit__(*error)
        self.disk.__exit__(*error)

    def partitions_in(self, name):
        return sorted(int(entry.rsplit("-", 1)[1]) for entry in os.listdir(self.disk.dir(name))
                      if entry.startswith(TOPIC + "-"))

    def client(self):
        return Client(self.broker.address("LOCAL"), timeout=WAIT_S)

    def value(self, partition, number):
        return b"%d:%06d:" % (partition, number) + b"v" * 500

    def produce(self, client, partition):
        """One record. ret: the error; an acknowledged one is counted, and has the next offset."""
        number = self.acked[partition]
        error, base, _, _ = client.produce(TOPIC, partition, batch([self.value(partition, number)]))
        if error == 0:
            assert base == number, (partition, base, number)
            self.acked[partition] += 1
        return error

    def read_all(self, client, partition):
        """Everything acknowledged is there, as it was."""
        for number in range(self.acked[partition]):
            error, _, _, records = client.fetch(TOPIC, partition, number, max_bytes=4096)
            assert error == 0, (partition, number, error)
            assert self.value(partition, number) in records, (partition, number)

    def restart(self):
        # The supervisor kills, and says so, what does not end in its own time.
        code, seconds = self.broker.stop(timeout=60)
        assert code == 0 and "supervisor.stop-killed" not in self.broker.log_text(), (code, seconds)
        self.disk.order("clear")
        self.broker.start()
        with self.client() as client:
            for partition in range(PARTITIONS):
                self.read_all(client, partition)


def fenced(call):
    """The third write (or sync) of a directory fails once; the disk is well again at once, and still nothing of that
    directory is acknowledged, and nothing more is written there, until the next start."""
    with Case() as case, case.client() as client:
        for _ in range(3):
            for partition in range(PARTITIONS):
                assert case.produce(client, partition) == 0
        case.disk.order(f"fail {call} /a/{TOPIC}-*.log EIO 2 1")
        errors = [case.produce(client, partition) for partition in case.in_a * 3]
        assert STORAGE_ERROR in errors, errors
        first = errors.index(STORAGE_ERROR)
        assert errors[:first] == [0] * first and set(errors[first:]) == {STORAGE_ERROR}, errors
        assert case.disk.counters()["hits"] == 1
        writes = sizes(case.disk.dir("a"))
        for _ in range(5):
            for partition in case.in_a:
                assert case.produce(client, partition) == STORAGE_ERROR, "acknowledged after the fence"
            for partition in case.in_b:
                assert case.produce(client, partition) == 0, "the other directory stopped"
            time.sleep(0.3)
        assert sizes(case.disk.dir("a")) == writes, "written after the fence"
        text = case.broker.log_text()
        assert text.count("store.fenced") == 1 and case.disk.dir("a") in text
        case.restart()
        with case.client() as again:
            for partition in range(PARTITIONS):
                # What was refused may be there: it was never denied to be written.
                end = again.end_offset(TOPIC, partition)[2]
                assert case.acked[partition] <= end <= case.acked[partition] + 20, (partition, end)


def sizes(folder):
    found = {}
    for path, _, names in os.walk(folder):
        found.update({os.path.join(path, name): os.path.getsize(os.path.join(path, name))
                      for name in names if name.endswith(".log")})
    return found


def full():
    """No space: refused, read on, the same bytes are written when there is space; nothing is fenced."""
    with Case() as case, case.client() as client:
        for partition in range(PARTITIONS):
            assert case.produce(client, partition) == 0
        case.disk.order("space 1000")
        deadline = time.monotonic() + WAIT_S
        while case.produce(client, case.in_a[0]) == 0:
            assert time.monotonic() < deadline
        case.read_all(client, case.in_a[0])
        case.disk.order("space all")
        deadline = time.monotonic() + WAIT_S
        number = case.in_a[0]
        while True:
            error, base, _, _ = client.produce(TOPIC, number, batch([b"later"]))
            if error == 0:
                break
            assert error == STORAGE_ERROR and time.monotonic() < deadline, error
            time.sleep(0.1)
        assert base >= case.acked[number]
        assert "store.fenced" not in case.broker.log_text()
        case.restart()


def short():
    """Every write and every read takes half."""
    with Case() as case, case.client() as client:
        case.disk.order("short write *", "short read *")
        for _ in range(20):
            for partition in range(PARTITIONS):
                assert case.produce(client, partition) == 0
        assert case.disk.counters()["hits"] > 100, case.disk.counters()
        case.restart()


def interrupted():
    """Calls that end with EINTR are made again."""
    with Case() as case, case.client() as client:
        case.disk.order("fail write * EINTR 0 50", "fail read * EINTR 0 50", "fail open * EINTR 0 20")
        for _ in range(20):
            for partition in range(PARTITIONS):
                assert case.produce(client, partition) == 0
        assert case.disk.counters()["hits"] >= 50, case.disk.counters()
        case.restart()


def metadata():
    """No space for the metadata: a topic is not made, cleanly; the data path runs; there is space again, and the
    same request is met."""
    with Case(meta_on_disk=True) as case, case.client() as client:
        case.disk.order("fail write */meta/* ENOSPC", "fail write */meta/* EIO")
        text = case.broker.millrace("topic", "create", "another", check=False)
        assert "another" not in case.broker.millrace("topic", "list"), text
        for partition in range(PARTITIONS):
            assert case.produce(client, partition) == 0
        assert case.disk.counters()["hits"] > 0
        case.disk.order("clear")
        case.broker.millrace("topic", "create", "another")
        assert "another" in case.broker.millrace("topic", "list")
        case.restart()


def bad_reads(effect):
    """A cold read that fails, or gives a flipped bit: KAFKA_STORAGE_ERROR for it, never wrong bytes; other
    partitions are read, and the same one when the disk is well again."""
    with Case() as case:
        with case.client() as client:
            for _ in range(20):
                for partition in range(PARTITIONS):
                    assert case.produce(client, partition) == 0
        assert case.broker.stop(timeout=30)[0] == 0
        case.broker.start()  # now everything is cold
        bad, well = case.in_a[0], case.in_b[0]
        case.disk.order(f"{effect} read /a/{TOPIC}-{bad}/*.log" + (" EIO" if effect == "fail" else ""))
        with case.client() as client:
            seen = set()
            for number in range(20):
                error, _, _, records = client.fetch(TOPIC, bad, number, max_bytes=4096)
                seen.add(error)
                assert error != 0 or sound(records), f"wrong bytes at {number}"
            # A flipped bit spoils one batch; whole ones before it are served.
            allowed = {STORAGE_ERROR} if effect == "fail" else {STORAGE_ERROR, 0}
            assert STORAGE_ERROR in seen and seen <= allowed, seen
            assert case.disk.counters()["hits"] > 0
            case.read_all(client, well)
            case.disk.order("clear")
            case.read_all(client, bad)


def sound(records):
    """Whole batches, each with its sum."""
    at = 0
    while len(records) - at >= 61:
        size = 12 + int.from_bytes(records[at + 8:at + 12], "big")
        if size > len(records) - at:
            break
        if crc32c(records[at + 21:at + size]) != int.from_bytes(records[at + 17:at + 21], "big"):
            return False
        at += size
    return at > 0


CASES = {
    "write": lambda: fenced("write"),
    "sync": lambda: fenced("sync"),
    "full": full,
    "short": short,
    "interrupted": interrupted,
    "metadata": metadata,
    "read": lambda: bad_reads("fail"),
    "flip": lambda: bad_reads("flip"),
}


def main():
    for name in sys.argv[1:] or CASES:
        begun = time.monotonic()
        CASES[name]()
        print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
