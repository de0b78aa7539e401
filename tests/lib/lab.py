# SPDX-License-Identifier: Apache-2.0
"""The network behind a broker's NIC listener, by kind; MILLRACE_NIC names one, so that every test runs on each.

tap: a persistent TAP in the clients' namespace, which the broker opens there.
xdp: a veth pair between two namespaces; the kernel keeps the broker's end and the AF_XDP driver shares it."""
import os
import subprocess

HOST = "198.18.0.1"
CLIENT = "198.18.0.2"
PREFIX_BITS = 24
NETNS = f"mill-test-{os.getpid()}"  # its own: two trees may be tested at the same time


def run(*command, check=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited with {done.returncode}: {done.stdout}")
    return done.stdout


class Lab:
    """Commands reach the broker from `namespace`; the interface on the broker's side is `iface` in `nic_netns`."""

    def __init__(self, namespace=NETNS):
        self.namespace = namespace
        self.nic_netns = namespace

    def inside(self):
        return ["ip", "netns", "exec", self.namespace]

    def up(self):
        """Makes what is not there."""
        if subprocess.run(["ip", "netns", "add", self.namespace], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0:
            run("ip", "-n", self.namespace, "link", "set", "lo", "up")
            self.connect()

    def down(self):
        for namespace in {self.namespace, self.nic_netns}:
            subprocess.run(["ip", "netns", "delete", namespace], stderr=subprocess.DEVNULL, check=False)

    def connect(self):
        raise NotImplementedError

    def settings(self):
        return {"dpdk.port.nic0.device": self.device(), "dpdk.port.nic0.address": f"{HOST}/{PREFIX_BITS}",
                "dpdk.netns": self.nic_netns}

    def device(self):
        raise NotImplementedError


class Tap(Lab):
    iface = "mill0"
    sends_in_place = True

    def connect(self):
        inside = ("ip", "netns", "exec", self.namespace)
        run("ip", "-n", self.namespace, "tuntap", "add", "dev", self.iface, "mode", "tap", "multi_queue")
        run(*inside, "sysctl", "-qw", f"net.ipv6.conf.{self.iface}.disable_ipv6=1", check=False)
        run("ip", "-n", self.namespace, "addr", "add", f"{CLIENT}/{PREFIX_BITS}", "dev", self.iface)
        run("ip", "-n", self.namespace, "link", "set", self.iface, "up")

    def device(self):
        return f"net_tap0,iface={self.iface}"


class Xdp(Lab):
    iface = "mill0"
    peer = "mill1"
    sends_in_place = False

    def __init__(self, namespace=NETNS, queues=1):
        super().__init__(namespace)
        self.nic_netns = namespace + "-nic"
        self.queues = queues

    def connect(self):
        run("ip", "netns", "add", self.nic_netns)
        queues = ("numrxqueues", str(self.queues), "numtxqueues", str(self.queues))
        run("ip", "-n", self.nic_netns, "link", "add", self.iface, *queues, "type", "veth", "peer", "name",
            self.peer, *queues, "netns", self.namespace)
        for namespace, iface, address in ((self.nic_netns, self.iface, HOST),
                                          (self.namespace, self.peer, CLIENT)):
            inside = ("ip", "netns", "exec", namespace)
            run(*inside, "sysctl", "-qw", f"net.ipv6.conf.{iface}.disable_ipv6=1", check=False)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            run("ip", "-n", namespace, "addr", "add", f"{address}/{PREFIX_BITS}", "dev", iface)
            run("ip", "-n", namespace, "link", "set", iface, "up")
        self.peer_sums(True)

    def peer_sums(self, on):
        """A veth leaves checksums and segmentation to a card that is not there; our program sees them blank."""
        word = "off" if on else "on"
        run("ip", "netns", "exec", self.namespace, "ethtool", "-K", self.peer, "tx", word, "tso", word, "gso", word)

    def device(self):
        return f"net_af_xdp0,iface={self.iface}"


KINDS = {"tap": Tap, "xdp": Xdp}


def make(namespace=NETNS, kind=None):
    return KINDS[kind or os.environ.get("MILLRACE_NIC", "tap")](namespace)
