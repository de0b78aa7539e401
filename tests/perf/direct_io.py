#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a store could write its segments, measured side by side: through the page cache as the kernel likes,
through it with ranges written back and dropped some way behind (the store's way), and past it (O_DIRECT, one
write at a time). Appends of two sizes, the ways in turn in each round; prints medians. Figures for
docs/decisions/0022; no test.

    tests/perf/direct_io.py [MB [ROUNDS]]      1024, 5"""
import ctypes
import mmap
import os
import statistics
import sys
import tempfile
import time

SIZES = (16 << 10, 64 << 10, 1 << 20)
BEHIND = 16 << 20
WAIT_BEFORE, WRITE, WAIT_AFTER = 1, 2, 4
libc = ctypes.CDLL(None, use_errno=True)


def sync_range(file, pos, size, how):
    if libc.sync_file_range(file, ctypes.c_int64(pos), ctypes.c_int64(size), how) != 0:
        raise OSError(ctypes.get_errno(), "sync_file_range")


def kernel(file, buffer, total):
    for pos in range(0, total, len(buffer)):
        os.pwrite(file, buffer, pos)


def dropped(file, buffer, total):
    begun = done = 0
    for pos in range(0, total, len(buffer)):
        os.pwrite(file, buffer, pos)
        end = pos + len(buffer)
        if end - begun >= BEHIND:
            sync_range(file, begun, end - begun, WRITE)
            sync_range(file, done, begun - done, WAIT_BEFORE | WRITE | WAIT_AFTER)
            os.posix_fadvise(file, done, begun - done, os.POSIX_FADV_DONTNEED)
            done, begun = begun, end


def run(way, direct, size, total, folder):
    """ret: MB/s up to the last byte on the disk, CPU seconds per GB."""
    path = os.path.join(folder, "log")
    buffer = mmap.mmap(-1, size)
    buffer.write(os.urandom(4096) * (size // 4096))
    file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR | (os.O_DIRECT if direct else 0), 0o600)
    try:
        os.sync()
        cpu, begun = sum(os.times()[:2]), time.monotonic()
        way(file, buffer, total)
        os.fdatasync(file)
        return total / 1e6 / (time.monotonic() - begun), (sum(os.times()[:2]) - cpu) / (total / 1e9)
    finally:
        os.close(file)
        os.unlink(path)


def main():
    total = int(sys.argv[1] if len(sys.argv) > 1 else 1024) << 20
    rounds = int(sys.argv[2] if len(sys.argv) > 2 else 5)
    ways = {"kernel": (kernel, False), "dropped": (dropped, False), "direct": (kernel, True)}
    got = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for _ in range(rounds):
            for size in SIZES:
                for name, (way, direct) in ways.items():
                    got.setdefault((size, name), []).append(run(way, direct, size, total, folder))
    for (size, name), runs in got.items():
        rate, cpu = (statistics.median(column) for column in zip(*runs))
        print(f"{size >> 10:5} KiB {name:8} {rate:7.0f} MB/s {cpu:6.2f} CPU s/GB  "
              f"({min(one for one, _ in runs):.0f} to {max(one for one, _ in runs):.0f})")


if __name__ == "__main__":
    main()
