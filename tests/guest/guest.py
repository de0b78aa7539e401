#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the broker owns PCI cards (e1000e and vmxnet3 behind an IOMMU) and stock clients use them.

Method: one guest (lib.guest) for all lines; its CPU is emulated, so sizes are small. Clients run here, in the
namespace at the other end of the cards' wires. guest.py [LINE...]"""
import glob
import os
import random
import socket
import sys
import time

from lib import oracle
from lib.broker import TOP, pick
from lib.guest_broker import NAMES, GuestBroker, boot, end

sys.path.insert(0, os.path.join(TOP, "tests/clients"))
sys.path.insert(0, os.path.join(TOP, "tests/faults"))
import kcat
import librdkafka
import slow_readers
import zero_copy
from kill_data import kill_rounds

BUILD = os.path.join(TOP, os.environ.get("MILLRACE_BUILD", "build"))
PAGES = os.path.join(BUILD, "tests/guest/guest_pages")
WITHHELD = os.path.join(BUILD, "tests/unit/port/libwithheld_map.so")
RELEASE_S = 3


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
        print(line[line.index("listener"):])


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
}


def main():
    wanted = sys.argv[1:] or list(LINES)
    begun = time.monotonic()
    guest = boot(extra=[WITHHELD, PAGES])
    print(f"the guest answers after {time.monotonic() - begun:.1f} s")
    try:
        for name in wanted:
            start = time.monotonic()
            LINES[name](guest)
            print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    except BaseException:
        print(guest.console_text()[-2000:])
        raise
    finally:
        end(guest)
    print(f"{' '.join(NAMES)}: {', '.join(wanted)} in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
