#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts that cannot be, and starts that must. A second instance on the run directory or a log directory of
the first exits 1 naming the holder, and the first goes on. What DPDK cannot do - bad EAL arguments, a device that
is not there or in use - exits 1 with one line that says what and what to do, and
leaves nothing. Runtime files that a kill -9 left behind, or that are not ours, are no hindrance; there is no
telemetry socket."""
import glob
import os
import shutil
import subprocess
import time

from lib.broker import Broker, alive, skip

LIMIT_S = 40
PROBLEM_S = 20  # to say what is wrong

# (settings, words of the message)
IMPOSSIBLE = [
    ({"dpdk.eal.args": "--no-such-argument"}, ["DPDK did not start", "no-such-argument"]),
    ({"dpdk.eal.args": "--lcores 9999"}, ["DPDK did not start"]),
    ({"dpdk.port.nic0.device": "0000:7f:1f.7"}, ["nic0", "no PCI device 0000:7f:1f.7", "lspci"]),
    ({"dpdk.port.nic0.device": "net_tap0,iface=lo"}, ["lo", "no free multi-queue TAP", "ip tuntap add"]),
    ({"dpdk.port.nic0.device": "net_tap0,iface=" + "x" * 20}, ["interface name", "1 to 15"]),
    ({"dpdk.port.nic0.device": "net_af_xdp0,iface=nowhere0"}, ["nowhere0"]),
]


def try_start(broker):
    begun = time.monotonic()
    try:
        done = subprocess.run([os.path.join(broker.build, "millrace"), "start", "-c", broker.config], text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"it did not end: {late.stdout} {late.stderr}") from None
    return done, time.monotonic() - begun


def arenas_of(broker):
    """Arena folders with files in them that name this instance's run directory: none is left by a failed start."""
    return {path for path in glob.glob("/dev/hugepages/millrace-*") if os.listdir(path)}


def held_directories():
    with Broker(nic=False) as first:
        first.start()
        first.millrace("topic", "create", "kept")
        holder = first.pid("supervisor")
        for key, value in (("run.dir", first.run_dir), ("log.dirs", first.log_dir)):
            with Broker(nic=False, settings={key: value}) as second:
                done, took = try_start(second)
                assert done.returncode == 1 and not done.stdout, done
                assert f"is in use by process {holder}" in done.stderr, done.stderr
                assert took < PROBLEM_S, f"took {took:.1f} s"
        assert alive(holder) and "kept" in first.millrace("topic", "list")
    print("a second start on the same run or log directory names the holder and harms nothing")


def impossible():
    for settings, words in IMPOSSIBLE:
        with Broker(settings=settings) as broker:
            before = arenas_of(broker)
            print(f"trying {settings}", flush=True)
            done, took = try_start(broker)
            assert done.returncode == 1 and "ready" not in done.stdout, (settings, done)
            for word in words:
                assert word in done.stderr, f"{settings}: no {word!r} in\n{done.stderr}"
            assert took < PROBLEM_S, f"{settings}: took {took:.1f} s"
            assert arenas_of(broker) <= before, f"{settings}: left {arenas_of(broker) - before}"
            assert not os.path.exists(os.path.join(broker.run_dir, "lock")), f"{settings}: a lock is left"
    print(f"{len(IMPOSSIBLE)} starts that cannot be say why and leave nothing")


def stale_files():
    with Broker() as broker:
        broker.start()
        broker.millrace("topic", "create", "kept", listener="NIC")
        broker.kcat("NIC", "-P", "-t", "kept", input="".join(f"{number}\n" for number in range(100)))
        prefix = os.path.basename(next(iter(broker.arena_dirs())))
        runtime = f"/var/run/dpdk/{prefix}"
        assert not glob.glob(f"{runtime}/*telemetry*"), "there is a telemetry socket"
        for _ in range(2):
            broker.kill_all()
            os.makedirs(runtime, exist_ok=True)  # as another version, or other EAL arguments, would leave it
            for name in ("config", "fbarray_memzone", "mp_socket"):
                with open(os.path.join(runtime, name), "wb") as file:
                    file.write(b"\0" * 100)
            try:
                broker.start()
                got = broker.kcat("NIC", "-C", "-t", "kept", "-o", "beginning", "-e").split()
                assert got == [str(number) for number in range(100)], got
            finally:
                shutil.rmtree(runtime, ignore_errors=True)
    print("started over stale runtime files, nothing lost")


def main():
    if os.geteuid() != 0:
        skip("TAP devices, namespaces and hugepages need root")
    held_directories()
    impossible()
    stale_files()


if __name__ == "__main__":
    main()
