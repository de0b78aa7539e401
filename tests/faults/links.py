#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What happens to the interface of a port while the broker runs, on TAP and AF_XDP: link down and up, another MTU,
deletion; and for AF_XDP a peer that leaves checksums blank, and interfaces that do not fit at start. One line each
with a remedy, counters and status follow, LOCAL goes on, nothing is busy, and what was acknowledged is there."""
import os
import subprocess
import time

from lib import lab, oracle
from lib.broker import Broker, pick, run, wait

LINES_MAX = 12  # of "port." in the log, whatever happened
IDLE_SHARE_MAX = 0.25
KINDS = ("tap", "xdp")


def lines(broker, event):
    return sum(f" {event} " in line for line in broker.log_text().splitlines())


def ip(broker, *words):
    run("ip", "-n", broker.lab.nic_netns, *words)


def acknowledged(load):
    """Bytes of each producer's log."""
    return [os.path.getsize(log) for _, _, _, log in load.workers]


def wait_progress(load, number, since, timeout=60):
    wait(f"producer {number} stands still", lambda: acknowledged(load)[number] > since[number], timeout)


def port(broker):
    return broker.status()["ports"][0]


def check_down(broker, load, seconds):
    iface = broker.lab.iface
    ip(broker, "link", "set", iface, "down")
    wait("the port's link is not down", lambda: port(broker)["link"] == "down")
    wait("no line of it", lambda: lines(broker, "port.link-down") == 1)
    before = acknowledged(load)
    time.sleep(seconds)
    wait_progress(load, 0, before)  # the link is still down
    assert port(broker)["link"] == "down"
    ip(broker, "link", "set", iface, "up")
    wait("the port's link is not up", lambda: port(broker)["link"] == "up")
    wait_progress(load, 1, acknowledged(load))
    assert lines(broker, "port.link-down") == 1, broker.log_text()


def check_mtu(broker, load):
    ip(broker, "link", "set", broker.lab.iface, "mtu", "1280")
    wait("no line about the MTU", lambda: lines(broker, "port.mtu") == 1)
    ip(broker, "link", "set", broker.lab.iface, "mtu", "1500")
    wait("no line that it fits again", lambda: lines(broker, "port.mtu") == 2)
    wait_progress(load, 1, acknowledged(load))


def cpu_share(pid, seconds=2):
    """Of one CPU, by all threads of a process."""
    def ticks():
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


def check_deleted(broker):
    load = oracle.Load(broker, "after", ["LOCAL"])
    try:
        load.wait_running()
        ip(broker, "link", "del", broker.lab.iface)
        wait("no line about the deletion", lambda: lines(broker, "port.gone") == 1)
        assert port(broker)["link"] == "down", port(broker)
        assert broker.listener("NIC")["state"] == "the interface is gone", broker.listener("NIC")
        before = acknowledged(load)
        wait_progress(load, 0, before)
        reports = load.stop()
    finally:
        load.end()
    oracle.check(broker, "after", reports)
    share = min(cpu_share(broker.pid("millraced")) for _ in range(3))
    assert share < IDLE_SHARE_MAX, f"{share:.0%} of a CPU with a dead interface"
    assert lines(broker, "port.gone") == 1
    told = sum(" port." in line for line in broker.log_text().splitlines())
    assert told <= LINES_MAX, broker.log_text()
    code, _ = broker.stop()
    assert code == 0, code
    return share


def check_running(kind):
    with Broker(kind=kind) as broker:
        broker.start()
        broker.millrace("topic", "create", "during", "-p", "2")
        broker.millrace("topic", "create", "after")
        load = oracle.Load(broker, "during", ["LOCAL", "NIC"])
        try:
            load.wait_running()
            check_down(broker, load, pick(60, 1))
            check_mtu(broker, load)
            reports = load.stop()
        finally:
            load.end()
        total = oracle.check(broker, "during", reports)
        share = check_deleted(broker)
    print(f"{kind}: link, MTU and deletion told once each, {total} records there, {share:.1%} of a CPU afterwards")


def check_checksums():
    with Broker(kind="xdp") as broker:
        broker.start()
        broker.lab.peer_sums(False)
        command = broker.inside("NIC") + ["kcat", "-b", broker.address("NIC"), "-L", "-m", "30"]
        clients = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(10)]
        try:
            wait("blank checksums are not told", lambda: lines(broker, "port.checksums") == 1)
        finally:
            for client in clients:
                client.kill()
                client.wait()
        line = next(line for line in broker.log_text().splitlines() if " port.checksums " in line)
        assert "ethtool -K IFACE tx off" in line, line
        assert broker.status()["tcp"]["checksum_errors"] > 0
        broker.lab.peer_sums(True)
        assert "1 brokers" in broker.kcat("NIC", "-L")
    print("xdp: blank checksums told with the command that mends them")


def check_start(settings, parts, prepare=None):
    """A start that must fail: exit 1, and one line of millraced with these parts."""
    with Broker(kind="xdp", settings=settings) as broker:
        if prepare:
            ip(broker, *prepare)
        done = subprocess.run([os.path.join(broker.build, "millrace"), "start", "-c", broker.config], timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if " error " in line and "plane.not-started" in line]
        assert done.returncode == 1 and len(said) == 1, (done.returncode, done.stderr)
        for part in parts:
            assert part in said[0], (part, said[0])


def check_starts():
    device = f"net_af_xdp0,iface={lab.Xdp.iface}"
    check_start({"dpdk.port.nic0.device": "net_af_xdp0,iface=mill9"}, ("no interface mill9", "ip link show"))
    check_start({"dpdk.port.nic0.mtu": "9000"}, ("AF_XDP carries at most", "dpdk.port.nic0.mtu"))
    check_start({}, ("mtu 1500 is more than mill0 has (1400)", "ip link set dev mill0 mtu 1500"),
                ("link", "set", lab.Xdp.iface, "mtu", "1400"))
    check_start({"dpdk.port.nic0.device": device + ",queue_count=2"}, ("mill0 has 1 queues", "ethtool -L mill0"))
    check_start({}, (f"{lab.HOST} is not an address of mill0", "ip addr add"),
                ("addr", "flush", "dev", lab.Xdp.iface))
    print("xdp: five interfaces that do not fit refused, one line with a remedy each")


def main():
    for kind in KINDS:
        check_running(kind)
    check_checksums()
    check_starts()
    print("links: each change told once, other listeners went on")


if __name__ == "__main__":
    main()
