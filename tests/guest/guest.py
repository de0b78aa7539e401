#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the broker owns PCI cards (e1000e and vmxnet3 behind an IOMMU) and stock clients use them.

Method: one guest (lib.guest) for all lines; its CPU is emulated, so sizes are small. Clients run here, in the
namespace at the other end of the cards' wires. guest.py [LINE...]"""
import glob
import itertools
import json
import os
import random
import re
import socket
import sys
import time

from lib import oracle
from lib.broker import TOP, pick, wait
from lib.guest_broker import NAMES, GuestBroker, boot, end

sys.path.insert(0, os.path.join(TOP, "tests/clients"))
sys.path.insert(0, os.path.join(TOP, "tests/faults"))
import direct_cores
import kcat
import librdkafka
import slow_readers
import zero_copy
from kill_data import kill_rounds

BUILD = os.path.join(TOP, os.environ.get("MILLRACE_BUILD", "build"))
PAGES = os.path.join(BUILD, "tests/guest/guest_pages")
WITHHELD = os.path.join(BUILD, "tests/unit/port/libwithheld_map.so")
RELEASE_S = 3
ROUND_TRIPS = os.path.join(TOP, "tests/guest/round_trips.py")
IDLE_SHARE = 0.10  # of an emulated CPU, several times what a real one needs
IDLE_TURNS = 300   # a second
IDLE_GAP_MS = 20


def check_commands(guest):
    """The lab itself: a command runs once and is answered, while orphans die by the dozen, when its first
    answer was lost, and when it takes too long."""
    guest.check("(for i in $(seq 2000); do (sleep 0.02 &); done) & echo $! >/tmp/orphans")
    for number in range(100):  # each a long line, in pieces
        assert guest.check(f"echo {number} # {'x' * 4000}") == f"{number}\n"
    guest.check("kill $(cat /tmp/orphans)")
    text = "echo once >>/tmp/once; cat /tmp/once"
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(guest.commands)
        link.sendall(f"\nlost 0 60 {text.encode().hex()}\n".encode())
        time.sleep(1)
    assert guest.insist("lost", 1, 60, text) == (0, "once\n")
    code, said = guest.run("echo begun; sleep 7777 & sleep 7777", timeout=2)
    assert (code, said) == (137, "begun\n"), (code, said)
    assert guest.run("pidof sleep")[1] == "", guest.check("ps")
    assert len(guest.check("head -c 3000000 /dev/zero | base64 -w 0")) == 4000000
    print("a hundred commands beside orphans; one asked for twice ran once; one over its limit was killed")


def check_clients(guest):
    """zero-copy, kcat, librdkafka, slow-readers, kill-data on both cards."""
    with GuestBroker(guest) as broker:
        broker.start()
        for number, listener in enumerate(broker.listeners()):
            zero_copy.check(broker, pick(256 << 20, 16 << 20), listener, number)
            slow_readers.check(broker, listener, pick(1000, 100), pick(5, 2))
        kcat.check(broker, pick(64 << 20, 16 << 20), broker.listeners())
        librdkafka.check(broker, pick(64 << 20, 16 << 20), broker.listeners())
        for port in broker.status()["ports"]:
            assert port["zero_copy"] and port["bytes_linearised"] == 0, port


def check_kills(guest):
    with GuestBroker(guest) as broker:
        broker.start()
        rounds = pick(20, 3)
        total = kill_rounds(broker, "kills", rounds, random.SystemRandom().randrange(1 << 32),
                            list(broker.listeners()) * 2)
        broker.wait_no_loans()
        print(f"{rounds} kills, {total} records, every acknowledged one there once and in order")


def check_pins(guest):
    """pin_released_after_idle: what an idle card was sent is given back."""
    with GuestBroker(guest) as broker:
        broker.start()
        for listener in broker.listeners():
            topic = f"pins-{listener.lower()}"
            broker.kcat(listener, "-P", "-t", topic, "-p", "0", input="x" * 900 + "\n")
            for _ in range(20):
                broker.kcat(listener, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "1")
        begun = time.monotonic()
        broker.wait_no_loans(RELEASE_S)
        took = time.monotonic() - begun
        fillers = broker.port("E1000E")["tx_fillers"]
        print(f"no loan is held {took:.1f} s after the last answer; e1000e got {fillers} fillers")


def check_withheld(guest):
    """The driver says that the arena is mapped and it is not: zero copy is refused, loudly, and the port
    works by copying."""
    with GuestBroker(guest) as broker:
        broker.start(environment=f"LD_PRELOAD=/extra/{os.path.basename(WITHHELD)}")
        said = broker.log_text()
        for listener in broker.listeners():
            port = broker.port(listener)
            assert not port["zero_copy"] and "does not send what lies in the arena" in port["remark"], port
            assert f"name={port['name']} text=" in said, said
        kcat.check(broker, 1 << 20, broker.listeners(), codecs=("none",))
        for listener in broker.listeners():
            port = broker.port(listener)
            assert port["bytes_linearised"] > 900_000, port
        print("without a map both cards copy, and say so")


def check_cores(guest):
    """Four cores on both cards: everybody works, nothing is held after."""
    settings = {"dataplane.cores": "0,1,2,3", "num.partitions": "12"}
    with GuestBroker(guest, settings=settings) as broker:
        broker.start()
        librdkafka.check(broker, pick(64 << 20, 4 << 20), broker.listeners())
        total = kill_rounds(broker, "kills", pick(10, 1), random.SystemRandom().randrange(1 << 32),
                            list(broker.listeners()) * 4)
        broker.wait_no_loans(RELEASE_S)
        status = broker.status()
        assert all(core["partitions"] > 0 for core in status["cores"]), status["cores"]
        # Eight connections fall on four cores as their hashes do.
        assert sum(core["requests"] > 0 for core in status["cores"]) > 1, status["cores"]
        assert sum(core["handed_over"] for core in status["cores"]) > 0, status["cores"]
        print(f"four cores: {total} records through a kill, loans back")


def check_direct(guest):
    """Four direct cores on both cards: what a client reads is what one core wrote, and the other way; nothing
    is handed over."""
    one = {"dataplane.cores": "0", "dataplane.core.endpoints": "off"}
    four = {"dataplane.cores": "0,1,2,3", "dataplane.core.endpoints": "on"}
    count = pick(200000, 3000)
    with GuestBroker(guest, settings=one) as broker:
        want = {}
        broker.start()
        for listener in broker.listeners():
            direct_cores.write(broker, listener, f"one-{listener.lower()}", count)
            want[listener] = direct_cores.digests(broker, listener, f"one-{listener.lower()}")
        broker.stop()
        broker.configure(four)
        broker.start()
        queues = re.findall("port.queues port=nic1 cores=4 receive=([0-9]+)", broker.log_text())
        assert queues and int(queues[-1]) > 1, queues  # vmxnet3 has several; e1000e's driver one
        for listener in broker.listeners():
            direct_cores.write(broker, listener, f"four-{listener.lower()}", count)
            for topic in ("one", "four"):
                got = direct_cores.digests(broker, listener, f"{topic}-{listener.lower()}")
                assert got == want[listener], (topic, listener)
        direct_cores.check(broker, broker.listeners(), 4, pick(64 << 20, 2 << 20))
        moved = broker.counts("misdirected")
        status = broker.status()
        assert status["tcp"]["handover_dropped"] == 0 and status["tcp"]["flows_unshared"] == 0, status["tcp"]
        assert sum(moved) > 0, moved  # all frames of e1000e come to one core
        broker.stop()
        broker.configure(one)
        broker.start()
        for listener in broker.listeners():
            assert direct_cores.digests(broker, listener, f"four-{listener.lower()}") == want[listener]
        print(f"four direct cores: {count} records equal on one core and four, nothing handed over, frames "
              f"given to their core {moved}, receive queues of vmxnet3: {queues[-1]}")


def check_link(guest):
    """A link goes down and comes back under load: status tells, the other card serves, nothing
    acknowledged is lost."""
    with GuestBroker(guest) as broker:
        broker.start()
        broker.millrace("topic", "create", "flap", "-p", "2")
        for name in broker.listeners():
            load = oracle.Load(broker, "flap", broker.listeners())
            try:
                load.wait_running()
                downs = broker.port(name)["link_downs"]
                guest.monitor(f"set_link nic{NAMES[name].number} off")
                wait_port(broker, name, lambda port: port["link"] == "down")
                other = next(one for one in broker.listeners() if one != name)
                broker.kcat(other, "-L")
                guest.monitor(f"set_link nic{NAMES[name].number} on")
                wait_port(broker, name, lambda port: port["link"] == "up")
                assert broker.port(name)["link_downs"] == downs + 1, broker.port(name)
                broker.kcat(name, "-L")
                reports = load.stop()
            finally:
                load.end()
            total = oracle.check(broker, "flap", reports)
            print(f"{name}: link down and up, {total} records there")
            assert f"port.link-down name=nic{NAMES[name].number}" in broker.log_text()
            for path in glob.glob(os.path.join(broker.home, "flap-*")):
                os.unlink(path)
            broker.millrace("topic", "delete", "flap")
            broker.millrace("topic", "create", "flap", "-p", "2")


def wait_port(broker, name, becomes, timeout=120):
    deadline = time.monotonic() + timeout
    while not becomes(broker.port(name)):
        assert time.monotonic() < deadline, broker.port(name)
        time.sleep(0.1)


def check_numa(guest):
    """Each arena file lies on its node and a core's extents on that core's node (move_pages)."""
    cores = (0, 2)  # CPU 0 and 1 are of node 0, 2 and 3 of node 1
    settings = {"dataplane.cores": ",".join(map(str, cores))}
    with GuestBroker(guest, settings=settings) as broker:
        broker.start()
        broker.millrace("topic", "create", "near", "-p", "8")
        # Each record to a partition by chance: by default a client stays with one for a while.
        broker.kcat(broker.admin, "-P", "-t", "near", "-X", "sticky.partitioning.linger.ms=0",
                    input="".join(f"{i}\n" for i in range(4000)))
        text = guest.check(f"/extra/{os.path.basename(PAGES)} {broker.pid('millraced')}")
    files = [line.split() for line in text.splitlines() if line.startswith("file")]
    assert sorted(line[3] for line in files) == ["0", "1"], text
    assert all(line[5] != "0" and line[7] == "0" for line in files), text
    extents = [line.split() for line in text.splitlines() if line.startswith("extent")]
    owners = set()
    for _, topic, partition, _, node in extents:
        owner = (int.from_bytes(bytes.fromhex(topic)[:8], "little") + int(partition)) % len(cores)
        assert int(node) == cores[owner] // 2, (topic, partition, node, text)
        owners.add(owner)
    assert len(owners) == len(cores), text
    print(f"{len(files)} arena files on their nodes, {len(extents)} extents on their core's")


def refused(guest, settings, *words):
    """A start that must fail with one line that has the words."""
    with GuestBroker(guest, cards=("E1000E",), settings=settings) as broker:
        code, said = broker.try_start()
        lines = {line for line in said.splitlines() if all(word in line for word in words)}
        assert code != 0 and len(lines) == 1, (code, said)
        line = lines.pop()
        print(line[max(line.find("listener"), 0):])


def check_refusals(guest):
    """Cards that cannot be had: one line with the command that mends it; the next start is clean."""
    refused(guest, {"dpdk.port.nic0.device": "0000:00:1d.7"}, "no PCI device 0000:00:1d.7", "lspci -D")
    card = NAMES["E1000E"].pci
    guest.check(f"echo {card} >/sys/bus/pci/drivers/vfio-pci/unbind")
    refused(guest, {}, "bound to no driver", f"dpdk-devbind.py -b vfio-pci {card}")
    guest.check(f"echo {card} >/sys/bus/pci/drivers/vfio-pci/bind")
    with GuestBroker(guest, cards=("E1000E",)) as broker:
        broker.start()
        pids = [broker.pid(name) for name in ("supervisor", "millraced", "control")]
        guest.check("kill -9 " + " ".join(map(str, pids)))
        left = guest.check("ls -A /var/run/dpdk 2>/dev/null || true; ls /dev/hugepages | grep rtemap || true")
        assert left == "", left
        broker.start()
        broker.kcat("E1000E", "-L")
    print("after kill -9 of all nothing of DPDK's is left, and the next start serves")


def idle_sample(guest, broker):
    """ret: CPU seconds of all processes so far, turns of the core, and the guest's clock."""
    pids = " ".join(f"/proc/{broker.pid(name)}/stat" for name in ("supervisor", "millraced", "control"))
    text = guest.check(f"cat {pids} /proc/uptime").splitlines()
    ticks = sum(sum(map(int, line.rsplit(")", 1)[1].split()[11:13])) for line in text[:-1])
    return ticks / 100, broker.status()["cores"][0]["turns"], float(text[-1].split()[0])


def check_idle(guest):
    """A broker with nothing to do on one card sleeps: few turns and little CPU, best of several tries, because
    looking at it is work. Then requests come one by one, after a pause and without: what falling asleep costs
    is the difference. MILLRACE_IDLE_JSON names a file for the figures."""
    seconds, samples = pick(30, 10), pick(1000, 100)
    table = []
    for listener in NAMES:
        with GuestBroker(guest, cards=(listener,)) as broker:
            broker.start()
            broker.millrace("topic", "create", *(f"idle-{number}" for number in range(pick(100, 20))))
            tries = []
            for _ in range(3):
                time.sleep(3)
                before = idle_sample(guest, broker)
                time.sleep(seconds)
                after = idle_sample(guest, broker)
                passed = after[2] - before[2]
                tries.append([(after[i] - before[i]) / passed for i in range(2)])
                if tries[-1][0] < IDLE_SHARE and tries[-1][1] < IDLE_TURNS:
                    break
            share, turns = (min(one[i] for one in tries) for i in range(2))
            row = {"transport": listener.lower(), "idle_share": share, "turns_per_s": turns}
            for name, gap_ms in (("asleep", IDLE_GAP_MS), ("awake", 0)):
                row[name] = json.loads(broker.python(listener, ROUND_TRIPS, str(samples), str(gap_ms)))
            table.append(row)
            print(f"{listener}: idle {share:.2%} of an emulated CPU, {turns:.0f} turns a second; answers p50/p99 "
                  + ", ".join(f"{name} {row[name]['p50_us']:.0f}/{row[name]['p99_us']:.0f} us"
                              for name in ("asleep", "awake")))
    if os.environ.get("MILLRACE_IDLE_JSON"):
        with open(os.environ["MILLRACE_IDLE_JSON"], "w", encoding="utf-8") as out:
            json.dump({"seconds": seconds, "rows": table}, out)
    for row in table:
        assert row["turns_per_s"] < IDLE_TURNS and row["idle_share"] < IDLE_SHARE, row


def check_unplug(guest):
    """The guest gives up the CPU under a core under load: the core goes on on another one, nothing that was
    acknowledged is lost, and a start that names the CPU says that there is none. (QEMU 7.2 can take such a CPU
    away, but crashes some time after.)"""
    with GuestBroker(guest, settings={"dataplane.cores": "2,3", "num.partitions": "4"}) as broker:
        broker.start()
        broker.millrace("topic", "create", "unplug", "-p", "4")
        load = oracle.Load(broker, "unplug", list(broker.listeners()) * 2)
        try:
            load.wait_running()
            guest.check("echo 0 >/sys/devices/system/cpu/cpu3/online")
            assert online(guest) == "0-2"
            sizes = [os.path.getsize(log) for _, _, _, log in load.workers]
            wait("a partition is not served", lambda: all(
                os.path.getsize(worker[3]) > size for worker, size in zip(load.workers, sizes)), 120)
            reports = load.stop()
        finally:
            load.end()
        total = oracle.check(broker, "unplug", reports)
        assert [core["cpu"] for core in broker.status()["cores"]] == [2, 3]
        broker.wait_no_loans()
    refused(guest, {"dataplane.cores": "2,3"}, "dataplane.cores", "CPU 3 does not exist")
    guest.check("echo 1 >/sys/devices/system/cpu/cpu3/online")
    print(f"CPU 3 taken from under a core: {total} records there, served on by the others")


def online(guest):
    return guest.check("cat /sys/devices/system/cpu/online").strip()


def check_no_iommu(guest):
    """Without an IOMMU vfio-pci takes no card: the start is refused with the reason and what mends it."""
    assert guest.run("ls /sys/kernel/iommu_groups/*")[0] != 0
    refused(guest, {}, f"PCI device {NAMES['E1000E'].pci} is in no IOMMU group", "intel_iommu=on")


def check_one_node(guest):
    """Hugepages on one of two nodes only: the broker warns, with the command that mends it, and is right."""
    with GuestBroker(guest, settings={"dataplane.cores": "0,2"}) as broker:
        broker.start()
        said = [line for line in broker.log_text().splitlines() if "arena.wrong-node" in line]
        assert len(said) == 1 and "nr_hugepages" in said[0], said
        assert int(re.search("bytes=([0-9]+)", said[0])[1]) >= 100 << 20, said
        kcat.check(broker, 1 << 20, broker.listeners(), codecs=("none", "zstd"))
        text = guest.check(f"/extra/{os.path.basename(PAGES)} {broker.pid('millraced')}")
        files = [line.split() for line in text.splitlines() if line.startswith("file")]
        assert any(line[7] != "0" for line in files), text
    print("node 1 has no pages: warned, and every record is right")


LINES = {
    "commands": check_commands,
    "clients": check_clients,
    "kills": check_kills,
    "pins": check_pins,
    "withheld": check_withheld,
    "link": check_link,
    "numa": check_numa,
    "refusals": check_refusals,
    "cores": check_cores,
    "direct": check_direct,
    "idle": check_idle,
    "unplug": check_unplug,
    "no-iommu": check_no_iommu,
    "one-node": check_one_node,
}
# Lines that need a guest of another kind.
GUESTS = {
    "no-iommu": {"iommu": False},
    "one-node": {"pages": (800, 0), "memory_mb": 2048},
}


def check_lines(names, options):
    """In one guest, one after the other."""
    start = time.monotonic()
    guest = boot(extra=[WITHHELD, PAGES], **options)
    print(f"the guest answers after {time.monotonic() - start:.1f} s")
    try:
        for name in names:
            start = time.monotonic()
            LINES[name](guest)
            print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    except BaseException:
        print(guest.last_words())
        raise
    finally:
        end(guest)


def main():
    wanted = sys.argv[1:] or list(LINES)
    begun = time.monotonic()
    for options, names in itertools.groupby(wanted, lambda name: GUESTS.get(name, {})):
        check_lines(names, options)
    print(f"{' '.join(NAMES)}: {', '.join(wanted)} in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
