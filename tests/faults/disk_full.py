#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The log directory's file system fills up: produce answers KAFKA_STORAGE_ERROR and nothing else, fetch goes
on, and when there is space again the same bytes are written and producing goes on, in the same process. Then
it fills up again, through kills and a clean stop of the data plane, and goes on once more. All that was
acknowledged is read back, before and after a restart."""
import os
import time

from lib.broker import Broker, pick, run, skip
from lib.wire import Client, batch

STORAGE_ERROR = 56
VALUE_BYTES = 100_000
FULL_S = 60
BACK_S = 30


def value(number):
    return (b"%08d" % number) * (VALUE_BYTES // 8)


def produce_until_full(client, limit, acked):
    """Appends each acknowledged value with its offset; returns at the first refusal."""
    deadline = time.monotonic() + FULL_S
    number = len(acked)
    while time.monotonic() < deadline and number < limit:
        error, base, _, _ = client.produce("full", 0, batch([value(number)]))
        if error == STORAGE_ERROR:
            assert base == -1
            return
        assert error == 0, error
        acked.append(base)
        number += 1
    raise AssertionError(f"no refusal after {number} batches of {VALUE_BYTES} bytes")


def read_back(client, acked):
    for number, offset in enumerate(acked):
        error, high, _, records = client.fetch("full", 0, offset, max_bytes=VALUE_BYTES * 2)
        assert error == 0 and high >= len(acked), (error, high, number)
        assert value(number) in records, f"record {number} at {offset}"


def go_on(broker, acked):
    """There is space again: refusals end, without a restart, and nothing is lost or given twice."""
    pid = broker.pid("millraced")
    with Client(broker.address("LOCAL"), timeout=FULL_S) as client:
        read_back(client, acked)
        deadline = time.monotonic() + BACK_S
        more = len(acked) + 20
        while len(acked) < more:
            error, base, _, _ = client.produce("full", 0, batch([value(len(acked))]))
            if error == 0:
                acked.append(base)
                continue
            assert error == STORAGE_ERROR and time.monotonic() < deadline, error
            assert len(acked) == more - 20, "refused again after it had gone on"
            time.sleep(0.1)
        assert acked == list(range(len(acked))), "an offset was lost or given twice"
        read_back(client, acked)
    assert broker.pid("millraced") == pid, "millraced was restarted"


def still_full(broker, acked):
    with Client(broker.address("LOCAL"), timeout=FULL_S) as client:
        assert client.end_offset("full", 0)[2] == len(acked)
        read_back(client, acked)
        assert client.produce("full", 0, batch([b"x"]))[0] == STORAGE_ERROR


def main():
    if os.geteuid() != 0:
        skip("a small file system needs root")
    size_mb = pick(256, 48)
    with Broker(nic=False) as broker:
        with open(broker.config, "a", encoding="utf-8") as out:
            out.write(f"metadata.dir={broker.home}/meta\nlog.dirty.max.mb=8\n")
        os.makedirs(broker.log_dir)
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "mill-full", broker.log_dir)
        try:
            ballast = [os.path.join(broker.log_dir, f"ballast-{number}") for number in range(2)]
            for path in ballast:
                run("fallocate", "-l", f"{size_mb // 4}m", path)
            broker.start()
            broker.millrace("topic", "create", "full")
            acked = []
            with Client(broker.address("LOCAL"), timeout=FULL_S) as client:
                produce_until_full(client, size_mb * 20, acked)
                print(f"refused after {len(acked)} batches")
                for _ in range(5):
                    assert client.produce("full", 0, batch([b"x"]))[0] == STORAGE_ERROR
                read_back(client, acked)
            os.unlink(ballast[0])
            go_on(broker, acked)
            with Client(broker.address("LOCAL"), timeout=FULL_S) as client:
                produce_until_full(client, size_mb * 20, acked)
            # The data plane dies while it is full: its extents hold what the files could not take, and
            # it serves from them.
            for _ in range(pick(10, 2)):
                pid = broker.kill("millraced")
                broker.wait_restart("millraced", pid)
                still_full(broker, acked)
            assert broker.stop(timeout=30)[0] == 0
            broker.start()
            still_full(broker, acked)
            assert "store.take-up.full" in broker.log_text(), "the files took everything"
            os.unlink(ballast[1])
            go_on(broker, acked)
            assert broker.stop(timeout=30)[0] == 0
            broker.start()
            with Client(broker.address("LOCAL")) as client:
                read_back(client, acked)
                assert client.end_offset("full", 0)[2] == len(acked)
        finally:
            if broker.process and broker.process.poll() is None:
                broker.stop(timeout=30)
            run("umount", broker.log_dir, check=False)
    print(f"{len(acked)} batches kept over a full file system and a restart")


if __name__ == "__main__":
    main()
