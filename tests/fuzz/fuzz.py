#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: no bytes of a client, of a network, of a configuration, of a coordinator's topic or of the other process crash
us, read outside of what is there, or leave a bound.

Method: libFuzzer's targets of this folder under ASan and UBSan (`scripts/build fuzz`), each for some seconds from
seeds made here: frames of real clients (tests/data/frames), batches and records in Kafka's formats, our own
configuration. A finding is kept in build-fuzz/findings and named with the command that repeats it.

    tests/fuzz/fuzz.py [TARGET...]"""
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

from lib.broker import TOP, pick, skip
from lib.codecs import snappy_blocks
from lib.wire import batch, record, text

SECONDS = pick(600, 6)
BUILD = os.path.join(TOP, "build-fuzz")
FINDINGS = os.path.join(BUILD, "findings")
MEMORY_MB = 3000
INPUT_S = 60  # one input's time: a hang
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


def group_records():
    """Offsets and groups as Kafka's schemas lay them out, and tombstones."""
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


TARGETS = {"frames": (frames, 4096), "batches": (batches, 8192), "config": (config, 2048),
           "records": (group_records, 2048), "rings": (rings, 1100), "segments": (segments, 1024)}  # seeds, and the longest input


def seeds_write(target):
    """ret: the folder of the corpus."""
    folder = os.path.join(BUILD, "corpus", target)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for number, seed in enumerate(TARGETS[target][0]()):
        with open(os.path.join(folder, f"seed-{number:03}"), "wb") as file:
            file.write(seed)
    return folder


def fuzz(target):
    """ret: inputs that were tried. A network of its own: a name in a configuration must ask nobody."""
    folder = seeds_write(target)
    program = os.path.join(BUILD, "tests/fuzz", f"fuzz_{target}")
    done = subprocess.run(["unshare", "--net", program, f"-max_total_time={SECONDS}", f"-max_len={TARGETS[target][1]}",
                           f"-timeout={INPUT_S}", f"-rss_limit_mb={MEMORY_MB}", "-use_value_profile=1",
                           f"-artifact_prefix={FINDINGS}/{target}-", "-print_final_stats=1", folder],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10 * SECONDS + 600, check=False)
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        print(output[-6000:])
        sys.exit(f"{target}: a finding, kept in {FINDINGS}: repeat it with {program} FILE")
    tried = int(re.search(r"stat::number_of_executed_units:\s+(\d+)", output).group(1))
    print(f"{target}: {tried} inputs, {re.findall(r'cov: ([0-9]+)', output)[-1]} edges", flush=True)
    return tried


def main(words):
    if os.geteuid() != 0:
        skip("a network of its own needs root")
    subprocess.run([os.path.join(TOP, "scripts/build"), "fuzz"], check=True, stdout=subprocess.DEVNULL)
    os.makedirs(FINDINGS, exist_ok=True)
    tried = {target: fuzz(target) for target in words or TARGETS}
    print(", ".join(f"{target} {count}" for target, count in tried.items()) +
          f" inputs in {SECONDS} s each: no finding")


if __name__ == "__main__":
    main(sys.argv[1:])
