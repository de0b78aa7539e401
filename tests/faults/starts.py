#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instances beside each other on one machine: six that start at once each get the hugepages they need and give
them back when they stop at once; a second one on the same TAP is refused with the holder's name and does no
harm; a start that cannot have its pages says how many are missing, and ends."""
import os
import signal
import subprocess
import tempfile
import time

from lib.broker import PREFIX, Broker, alive, pick, skip

TOGETHER = 6
LIMIT_S = 150  # six starts one after the other, on a busy machine
SAY_S = 5      # what is missing, at the best of several tries
TRIES = 3
PAGE_MB = 2
MORE_PAGES = 32
FREE_PAGES_MAX = 512  # of others; six arenas of that and more must fit into memory
POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/"


def arena_mb():
    """More than is free now: the second of two starts that count the same pages must then go short."""
    with open(POOL + "free_hugepages", encoding="ascii") as file:
        free = int(file.read())
    if free > FREE_PAGES_MAX:
        print(f"{free} hugepages are free already: two starts may share them without harm")
    return (min(free, FREE_PAGES_MAX) + MORE_PAGES) * PAGE_MB


def remembered(broker):
    """Pages that the instance has added to the pool and not given back."""
    try:
        with open(os.path.join(broker.run_dir, "hugepages"), encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def at_once(rounds):
    for _ in range(rounds):
        settings = {"hugepages.size.mb": str(arena_mb())}
        brokers = [Broker(nic=False, settings=settings) for _ in range(TOGETHER)]
        try:
            for broker in brokers:
                broker.launch()
            for broker in brokers:
                broker.await_ready(LIMIT_S)
            for broker in brokers:
                broker.process.send_signal(signal.SIGTERM)
            for broker in brokers:
                code = broker.process.wait(timeout=LIMIT_S)
                assert code == 0, f"exit {code}\n{broker.log_text()}"
                assert remembered(broker) == 0, f"{remembered(broker)} pages were not given back"
        finally:
            for broker in brokers:
                broker.close()


def same_tap():
    with Broker() as first, Broker() as second:
        first.start()
        first.millrace("topic", "create", "kept", listener="NIC")
        done = subprocess.run([os.path.join(second.build, "millrace"), "start", "-c", second.config],
                              text=True, capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 1 and not done.stdout, done
        holder = f"interface {second.lab.iface} is in use by process {first.pid('supervisor')}"
        assert holder in done.stderr, done.stderr
        assert not os.path.exists(os.path.join(second.run_dir, "lock")), "its lock was left behind"
        assert "kept" in first.millrace("topic", "list", listener="NIC")
        # Free again as soon as the holder's last process has ended, however that ended.
        children = [first.pid("millraced"), first.pid("control")]
        os.kill(first.pid("supervisor"), signal.SIGKILL)
        first.process.wait()
        second.start()
        assert not any(alive(pid) for pid in children), "two use one TAP"
        assert "kept" not in second.millrace("topic", "list", listener="NIC")


def no_pages():
    """In a mount namespace where the pool cannot be raised."""
    pool = POOL + "nr_hugepages"
    half_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21
    with Broker(nic=False, settings={"hugepages.size.mb": str(half_mb)}) as broker, \
            tempfile.NamedTemporaryFile(prefix=PREFIX) as fake:
        fake.write(b"0\n")
        fake.flush()
        script = f"mount --bind {fake.name} {pool} && mount -o remount,bind,ro {pool} && exec " \
                 f"{os.path.join(broker.build, 'millrace')} start -c {broker.config}"
        took = SAY_S + 1
        for _ in range(TRIES):
            begun = time.monotonic()
            done = subprocess.run(["unshare", "-m", "sh", "-c", script], text=True, capture_output=True,
                                  timeout=LIMIT_S, check=False)
            assert done.returncode == 1 and not done.stdout, done
            assert "hugepages of 2048 KiB are missing; try: sysctl vm.nr_hugepages=" in done.stderr, \
                done.stderr
            took = min(took, time.monotonic() - begun)
            if took <= SAY_S:
                break
        assert took <= SAY_S, f"it took {took:.1f} s to say so"


def main():
    if os.geteuid() != 0:
        skip("hugepages, TAP devices and namespaces need root")
    no_pages()
    same_tap()
    at_once(pick(10, 2))
    print(f"{TOGETHER} instances start and stop at once; a TAP and missing pages are refused by name")


if __name__ == "__main__":
    main()
