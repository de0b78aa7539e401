#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: no bytes of a client, of a network, of a configuration, of a log's files, of a coordinator's topic or of the
other process crash us, read outside of what is there, or leave a bound.

Method: libFuzzer's targets of this folder under ASan and UBSan (`scripts/build fuzz`), each for some seconds from
seeds made here: frames of real clients (tests/data/frames), batches and records in Kafka's formats, our own
configuration. A finding is kept in build-fuzz/findings and named with the command that repeats it; with
MILLRACE_FUZZ_TELL set, fuzz_files tells what it does to which file. Whether a target finds anything is shown by
builds that break one thing: `mutants` makes those of MUTANTS and fails where nothing is found.

    tests/fuzz/fuzz.py [TARGET...]
    tests/fuzz/fuzz.py mutants [NAME...]"""
import glob
import gzip
import os
import re
import shutil
import struct
import subprocess
import sys

import lz4.frame
import zstandard

from lib.broker import FULL, TOP, pick, skip
from lib.codecs import snappy_blocks
from lib.wire import batch, record, text, uvarint

SECONDS = pick(600, 6)
MEMORY_MB = 3000
INPUT_S = 60  # one input's time: a hang
MUTANT_S = 120
# The first finding of UBSan ends a run, too; without this it is a line among many.
SANITIZERS = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
CODECS = {1: gzip.compress, 2: snappy_blocks, 3: lz4.frame.compress, 4: zstandard.compress}


def run_of(data):
    return struct.pack(">H", len(data)) + data


def frames():
    """One frame each, and two behind each other: its size is put before it by the target."""
    whole = []
    for path in sorted(glob.glob(os.path.join(TOP, "tests/data/frames/*.bin"))):
        with open(path, "rb") as file:
            whole.append(b"\1" + run_of(file.read()))
    return whole + [a + b for a, b in zip(whole, whole[1:])] + [b"\0" + run_of(b"\0\0\0\x0a" + bytes(10))]


def batches():
    rows = b"".join(record(i, b"v" * i, b"key" if i % 2 else None) for i in range(4))
    made = [batch([b"v"] * 4, records=rows), batch(producer_id=7, producer_epoch=0, base_sequence=0)]
    made += [batch([b"v"] * 4, records=pack(rows), attributes=codec) for codec, pack in CODECS.items()]
    return [bytes([choice]) + b"".join(map(run_of, made)) for choice in (0, 1, 2, 0x41, 0x42)]


def config():
    with open(os.path.join(TOP, "scripts/up.properties"), "rb") as file:
        lines = [line for line in file.read().splitlines() if line and not line.startswith(b"#")]
    return [run_of(line) + b"\n".join(lines) for line in lines]


OVERWRITE, CUT, APPEND, REMOVE, COPY, FIELD, SUMS = 0, 1, 2, 3, 4, 5, 0x80  # damages, as tests/fuzz/damage.h


def damage(file, kind, pos=0, length=0, value=0):
    return struct.pack(">BBIHQ", file, kind, pos, length, value & 2**64 - 1)


def files():
    """Each kind of damage to a few files of each image; fields with numbers that are apt to be wrong."""
    numbers = (2**63 - 1, -1, 2**63 - 2, 2**40, 0)
    made = [bytes([choices]) for choices in range(4)]
    made += [bytes([1]) + damage(file, OVERWRITE, 70, 1, 0xee << 56) for file in range(0, 64, 8)]
    for choices, step in ((0, 6), (1, 5), (3, 7)):
        for number, file in enumerate(range(0, 64, step)):
            kinds = ((FIELD | SUMS, 0, 0), (CUT, 97 * number, 0), (FIELD | SUMS, 16 * number + number % 9, 0),
                     (REMOVE, 0, 0), (APPEND, 0, 50))
            kind, pos, length = kinds[number % len(kinds)]
            made.append(bytes([choices]) + damage(file, kind, pos, length, numbers[number % len(numbers)]))
    # Found: an entry of a .txnindex that ends with the last number there is.
    return made + [bytes.fromhex("20520500000008") + bytes.fromhex("00007fffffffffffffff0e0e0000") + b"p" * 16 +
                   bytes.fromhex("00000000400000007a000000")]


def compact(value):
    return b"\0" if value is None else uvarint(len(value) + 1) + value


def tagged(*fields):
    return uvarint(len(fields)) + b"".join(uvarint(tag) + uvarint(len(body)) + body for tag, body in fields)


def several(*items):
    return uvarint(len(items) + 1) + b"".join(items)


def consumer_records():
    """Groups of the consumer protocol: (key, value), all flexible values."""
    def key(kind, *about):
        return struct.pack(">h", kind) + text("group") + b"".join(map(text, about))

    def parts(*tags):
        return several(bytes(range(16)) + several(struct.pack(">i", 0), struct.pack(">i", 5)) + tagged(*tags))

    epochs = (0, several(struct.pack(">i", 3), struct.pack(">i", 4)))
    protocol = compact(b"range") + compact(b"\0\3abc") + tagged()
    classic = b"\1" + struct.pack(">i", 30000) + several(protocol) + tagged()
    member = b"\0\0" + compact(b"static") + compact(None) + compact(b"client") + compact(b"/127.0.0.1")
    member += several(compact(b"topic"), compact(b"other")) + compact(b"t.*") + struct.pack(">i", 1000)
    member += compact(b"uniform")
    return [(key(3), struct.pack(">hi", 0, 7) + tagged((0, struct.pack(">q", 99)))),
            (key(5, "member"), member + tagged((0, classic))), (key(5, "member"), member + tagged()),
            (key(6), struct.pack(">hi", 0, 7) + tagged((0, struct.pack(">q", 1_700_000_000_000)))),
            (key(7, "member"), b"\0\0" + parts() + tagged()),
            (key(8, "member"), struct.pack(">hiib", 0, 7, 6, 1) + parts(epochs) + parts() + tagged()),
            (key(7, "member"), b"\0\0" + several(bytes(16) + several() + tagged()) + tagged()),
            (key(16, "t.*"), b"\0\0" + several(compact(b"topic")) + struct.pack(">qq", 1, 2) + tagged()),
            (key(4), None), (key(8, "member"), None)]


def transaction_records():
    """Of __transaction_state: values of version 1 (flexible, transactions version 2) and 0."""
    key = struct.pack(">h", 0) + text("id")
    topic = compact(b"topic") + several(struct.pack(">i", 0), struct.pack(">i", 2)) + tagged()
    tags = tagged((0, struct.pack(">q", 8)), (1, struct.pack(">q", 9)), (2, struct.pack(">h", 2)))
    head = struct.pack(">qhib", 7, 1, 60000, 1)
    plain = struct.pack(">i", 1) + text("topic") + struct.pack(">iii", 2, 0, 2)
    return [(key, struct.pack(">h", 1) + head + several(topic) + struct.pack(">qq", 1, 2) + tags),
            (key, struct.pack(">h", 1) + head + b"\0" + struct.pack(">qq", 1, 2) + tagged()),
            (key, struct.pack(">h", 0) + head + plain + struct.pack(">qq", 1, 2)), (key, None)]


def coordinator_records():
    """Offsets, groups of either protocol and transactions as Kafka's schemas lay them out, and tombstones."""
    offset_key = struct.pack(">h", 1) + text("group") + text("topic") + struct.pack(">i", 3)
    offsets = [struct.pack(">hq", 0, 5) + text("note") + struct.pack(">q", 1),
               struct.pack(">hq", 1, 5) + text("note") + struct.pack(">qq", 1, 2),
               struct.pack(">hqi", 3, 5, 0) + text("note") + struct.pack(">q", 1)]
    member = text("member") + text(None) + text("client") + text("/127.0.0.1") + struct.pack(">ii", 1000, 2000)
    member += struct.pack(">i", 3) + b"abc" + struct.pack(">i", 2) + b"de"
    group = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 7) + text("range") + text("member")
    group += struct.pack(">qi", 9, 1) + member
    pairs = [(offset_key, value) for value in [*offsets, None]]
    pairs += [(struct.pack(">h", 2) + text("group"), value) for value in (group, None)]
    pairs += consumer_records() + transaction_records()
    rows = [record(0, value, key) for key, value in pairs]
    return rows + [b"".join(rows)]


def rings():
    def message(kind, body):
        return struct.pack("<II", len(body), kind) + body + bytes(-len(body) % 8)

    data = message(1, b"x" * 20) + message(2, bytes(160)) + message(5, b"")
    return [struct.pack(">Q", size) + b"\0" + data for size in (len(data), 8, 1024)]


def segments():
    """Steps of fuzz_segments.c: data in order and not, acknowledgements, SACK blocks, an end, time that passes."""
    def segment(flags, seq, ack, size, *blocks):
        near = b"".join(struct.pack(">HH", 0x4000 + start, 0x4000 + length) for start, length in blocks)
        return struct.pack(">BBHHH", 0, flags | len(blocks) << 6, 0x4000 + seq, 0x4000 + ack, size) + near

    ack, fin, rst, syn = 16, 1, 4, 2
    send, second = struct.pack(">BH", 3, 9000), struct.pack(">BH", 4, 1000)
    rows = [segment(ack, 0, 0, 100) + segment(ack, 0, 0, 200), segment(ack, 500, 0, 100) + segment(ack, 0, 0, 500),
            send + segment(ack, 0, 1460, 0, (2920, 1460)) + second + segment(ack, 0, 9000, 0),
            send + segment(ack, 0, 0, 0, (1460, 1460), (4380, 1460)) * 3 + second * 3,
            segment(ack | fin, 0, 0, 10) + second + b"\7\0" + second, segment(rst, 0, 0, 0), segment(syn, 0, 0, 0),
            b"\5\0\0" + send + second * 8 + segment(ack, 0, 0, 0), b"\6\1" + send + b"\6\2" + second,
            b"\2\x10\x20\2\x2e\x50\x2f\x18\0", b"\x08\5\xb4\7\1\x40\0" + segment(ack, 0, 0, 50),
            b"\1\0" + run_of(b"\2\0\0\0\0\1" + b"\2\0\0\0\0\2\x08\x06" + bytes(28))]
    return [bytes([kind]) + row for kind in range(4) for row in rows] + [b"\3" + b"".join(rows[:4])]


# Seeds, the longest input, and options: an input of `files` takes as long as two starts, and the default schedule
# looks through all that was found after each.
TARGETS = {"frames": (frames, 4096), "batches": (batches, 8192), "config": (config, 2048),
           "files": (files, 1 + 4 * 16, "-entropic=0"), "records": (coordinator_records, 2048), "rings": (rings, 1100),
           "segments": (segments, 1024)}
# What is broken in the target that must find it.
MUTANTS = {"store-read-unsummed": "files", "store-clean-offsets": "files", "protocol-length": "frames",
           "memory-ring-trust-size": "rings", "net-leak-loan": "segments"}


# Targets with findings that are not mended.
OPEN = {"files": "after several damages at once a second start can give other records than the first one"}


def seeds_write(build, target):
    """ret: the folder of the corpus."""
    folder = os.path.join(build, "corpus", target)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for number, seed in enumerate(TARGETS[target][0]()):
        with open(os.path.join(folder, f"seed-{number:03}"), "wb") as file:
            file.write(seed)
    return folder


def made(mutant=None):
    """Builds the targets. ret: the build's folder and that of findings."""
    build = os.path.join(TOP, "build-fuzz" + (f"-{mutant}" if mutant else ""))
    findings = os.path.join(build, "findings")
    subprocess.run([os.path.join(TOP, "scripts/build"), "fuzz", *([mutant] if mutant else [])], check=True,
                   stdout=subprocess.DEVNULL)
    os.makedirs(findings, exist_ok=True)
    return build, findings


def run(build, findings, target, seconds):
    """A network of its own: a name in a configuration must ask nobody. ret: whether nothing was found, output."""
    folder = seeds_write(build, target)
    program = os.path.join(build, "tests/fuzz", f"fuzz_{target}")
    done = subprocess.run(["unshare", "--net", program, f"-max_total_time={seconds}", f"-max_len={TARGETS[target][1]}",
                           f"-timeout={INPUT_S}", f"-rss_limit_mb={MEMORY_MB}", "-use_value_profile=1",
                           f"-artifact_prefix={findings}/{target}-", "-print_final_stats=1", *TARGETS[target][2:],
                           folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10 * seconds + 600,
                          env={**os.environ, **SANITIZERS}, check=False)
    return done.returncode == 0, done.stdout.decode(errors="replace")


def fuzz(build, findings, target):
    """ret: inputs that were tried."""
    fine, output = run(build, findings, target, SECONDS)
    if not fine:
        print(output[-6000:])
        sys.exit(f"{target}: a finding, kept in {findings}: repeat it with {build}/tests/fuzz/fuzz_{target} FILE")
    tried = int(re.search(r"stat::number_of_executed_units:\s+(\d+)", output).group(1))
    print(f"{target}: {tried} inputs, {re.findall(r'cov: ([0-9]+)', output)[-1]} edges", flush=True)
    return tried


def mutants(names):
    for name in names or MUTANTS:
        build, findings = made(name)
        fine, output = run(build, findings, MUTANTS[name], MUTANT_S)
        if fine:
            sys.exit(f"{name}: {MUTANTS[name]} found nothing in {MUTANT_S} s")
        print(f"{name}: found by {MUTANTS[name]}: " + re.search(r"(SUMMARY: .*)", output).group(1), flush=True)


def main(words):
    if os.geteuid() != 0:
        skip("a network of its own needs root")
    if words[:1] == ["mutants"]:
        mutants(words[1:])
        return
    build, findings = made()
    if not words and not FULL:
        for target, why in OPEN.items():
            print(f"{target}: by name and in full only: {why}")
    chosen = words or [target for target in TARGETS if FULL or target not in OPEN]
    tried = {target: fuzz(build, findings, target) for target in chosen}
    print(", ".join(f"{target} {count}" for target, count in tried.items()) +
          f" inputs in {SECONDS} s each: no finding")


if __name__ == "__main__":
    main(sys.argv[1:])
