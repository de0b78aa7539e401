# SPDX-License-Identifier: Apache-2.0
"""The guest lab: a virtual machine in which the broker owns PCI cards, and a namespace on this machine
from which clients reach it.

    namespace:  TAP guest0  198.18.1.2 ---- e1000e  0000:00:03.0  198.18.1.1 :guest
                TAP guest1  198.18.2.2 ---- vmxnet3 0000:00:04.0  198.18.2.1

QEMU emulates the CPU (no KVM needed), four CPUs on two NUMA nodes and an Intel IOMMU of 39 bits. The guest is
Debian's cloud kernel and a file system in memory made here: our programs, the libraries they need, DPDK's
drivers and busybox. The cards are bound to vfio-pci. Commands go over a virtio-serial port (tests/guest/agent.c).

    scripts/lab guest up | down | run COMMAND...
"""
import ctypes
import fcntl
import glob
import itertools
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KERNEL_DIR = os.path.join(TOP, "build-guest", "kernel")
PROGRAMS = ("millrace", "millraced", "millrace-control", "millrace-supervisor")
AGENT = "tests/guest/guest_agent"
DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "net_e1000", "net_vmxnet3")
MODULES = ("virtio_pci", "virtio_console", "vfio-pci", "vfio_iommu_type1")
BOOT_LIMIT_S = 180
ASK_AGAIN_S = 5    # of silence: the port may have lost the command or its answer
GRACE_S = 120      # for the answer to a command whose time is over: the guest's CPUs may get none here
AUTOPSY_BYTES = 20000


class Card:
    """One emulated card and both ends of its wire."""

    def __init__(self, number, model):
        self.number = number
        self.model = model
        self.pci = f"0000:00:{3 + number:02x}.0"
        self.tap = f"guest{number}"
        self.host = f"198.18.{1 + number}.2"
        self.guest = f"198.18.{1 + number}.1"


CARDS = (Card(0, "e1000e"), Card(1, "vmxnet3"))


class Missing(Exception):
    """What this machine lacks for a guest, and the command that mends it."""


# --- the file system -------------------------------------------------------------------------------


def kernel():
    """The kernel that scripts/setup unpacked: its image and its folder of modules."""
    images = sorted(glob.glob(os.path.join(KERNEL_DIR, "boot", "vmlinuz-*")))
    if not images:
        raise Missing("no guest kernel is unpacked: scripts/setup test")
    version = os.path.basename(images[-1]).removeprefix("vmlinuz-")
    return images[-1], os.path.join(KERNEL_DIR, "lib", "modules", version)


def module_files(folder):
    """Files of MODULES and of what they need, in the order of loading."""
    needs = {}
    with open(os.path.join(folder, "modules.dep"), encoding="ascii") as lines:
        for line in lines:
            path, _, rest = line.partition(":")
            needs[path] = rest.split()
    names = {os.path.basename(path).split(".ko")[0].replace("-", "_"): path for path in needs}
    order = []

    def add(path):
        for needed in needs[path]:
            add(needed)
        if path not in order:
            order.append(path)

    for module in MODULES:
        if module.replace("-", "_") in names:  # else it is part of the kernel
            add(names[module.replace("-", "_")])
    return order


def libraries(files):
    """Shared libraries that the files need, as the loader finds them here."""
    found = set()
    for path in files:
        listing = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 check=False).stdout
        for line in listing.splitlines():
            words = line.replace("=>", " ").split()
            if "not found" in line:
                raise Missing(f"{path} needs {words[0]}, which is not here: scripts/setup test")
            found |= {word for word in words if word.startswith("/")}
    return found


def drivers():
    folders = glob.glob("/usr/lib/*/dpdk/pmds-*")
    paths = [os.path.join(folder, f"librte_{name}.so") for folder in folders[:1] for name in DRIVERS]
    if not paths or not all(map(os.path.exists, paths)):
        raise Missing("DPDK's drivers are not installed: scripts/setup test")
    return paths


class Archive:
    """A cpio archive of the kernel's kind ("newc"), for an initramfs."""

    def __init__(self, path):
        self.out = open(path, "wb")
        self.names = set()
        self.number = 0

    def _entry(self, name, mode, content=b""):
        self.number += 1
        fields = (self.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self.out.write(head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4))

    def folder(self, name):
        if name and name not in self.names:
            self.folder(os.path.dirname(name))
            self.names.add(name)
            self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, content, mode=0o755):
        name = name.lstrip("/")
        if name not in self.names:
            self.folder(os.path.dirname(name))
            self.names.add(name)
            self._entry(name, stat.S_IFREG | mode, content)

    def link(self, name, target):
        name = name.lstrip("/")
        if name not in self.names:
            self.folder(os.path.dirname(name))
            self.names.add(name)
            self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def copy(self, path, name=None):
        with open(path, "rb") as source:
            self.file(name or path, source.read())

    def library(self, path):
        """Once, under its real name: a driver that is linked and loaded as a plugin must be one file."""
        real = os.path.realpath(path)
        self.copy(real)
        self.link(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)), real)

    def close(self):
        self._entry("TRAILER!!!", 0)
        self.out.close()


def make_initramfs(path, build, extra=()):
    """extra: more programs, put into /extra."""
    _, modules = kernel()
    programs = [os.path.join(build, name) for name in PROGRAMS]
    agent = os.path.join(build, AGENT)
    for program in programs + [agent] + list(extra):
        if not os.path.exists(program):
            raise Missing(f"{program} is not built: scripts/build")
    archive = Archive(path)
    archive.copy(os.path.join(TOP, "tests/guest/init"), "init")
    archive.copy(agent, "agent")
    archive.copy("/bin/busybox", "bin/busybox")
    for program in programs:
        archive.copy(program, "mill/" + os.path.basename(program))
    for program in extra:
        archive.copy(program, "extra/" + os.path.basename(program))
    archive.link("lib", "usr/lib")
    archive.link("lib64", "usr/lib64")
    for library in drivers() + sorted(libraries(programs + [agent] + list(extra) + drivers())):
        archive.library(library)
    files = module_files(modules)
    for name in files:
        archive.copy(os.path.join(modules, name), "modules/" + os.path.basename(name))
    archive.file("etc/modules", "".join(f"/modules/{os.path.basename(name)}\n" for name in files).encode())
    archive.file("etc/passwd", b"root:x:0:0:root:/tmp:/bin/sh\n")
    archive.close()


# --- the machine -----------------------------------------------------------------------------------


def die_with_parent():
    """In a child before exec: it ends with the test, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Guest:
    """One virtual machine. home: a folder for its sockets, logs and file system."""

    def __init__(self, home, namespace, pages=(400, 400), memory_mb=1792, iommu=True):
        self.home = home
        self.namespace = namespace
        self.pages = pages
        self.memory_mb = memory_mb  # of each node
        self.iommu = iommu
        self.commands = os.path.join(home, "commands")
        self.monitor_path = os.path.join(home, "monitor")
        self.console = os.path.join(home, "console.log")
        self.pid_path = os.path.join(home, "qemu.pid")
        self.serial = 0

    def pid(self):
        """Of QEMU, None when it does not run."""
        try:
            with open(self.pid_path, encoding="ascii") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as line:
                return pid if self.pid_path in line.read() else None
        except (OSError, ValueError):
            return None

    def wires_up(self):
        inside = ["ip", "netns", "exec", self.namespace]
        subprocess.run(["ip", "netns", "add", self.namespace], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(inside + ["ip", "link", "set", "lo", "up"], check=True)
        for card in CARDS:
            if os.path.exists(f"/sys/class/net/{card.tap}"):
                raise Missing(f"an interface {card.tap} exists here: ip link del {card.tap}")
            subprocess.run(inside + ["ip", "tuntap", "add", "dev", card.tap, "mode", "tap"],
                           stderr=subprocess.DEVNULL, check=False)
            subprocess.run(inside + ["sysctl", "-qw", f"net.ipv6.conf.{card.tap}.disable_ipv6=1"], check=False)
            subprocess.run(inside + ["ip", "addr", "replace", card.host + "/24", "dev", card.tap], check=True)
            subprocess.run(inside + ["ip", "link", "set", card.tap, "up"], check=True)

    def qemu(self, image, initramfs):
        words = ["qemu-system-x86_64", "-name", "millrace-guest", "-M", "q35,kernel-irqchip=split",
                 "-accel", "tcg,thread=multi", "-cpu", "max",
                 "-smp", "4,sockets=2,cores=2,threads=1", "-m", f"{2 * self.memory_mb}M"]
        for node in range(2):
            words += ["-object", f"memory-backend-ram,id=memory{node},size={self.memory_mb}M",
                      "-numa", f"node,nodeid={node},memdev=memory{node},cpus={2 * node}-{2 * node + 1}"]
        if self.iommu:
            words += ["-device", "intel-iommu,intremap=on"]
        for card in CARDS:
            # Without the kernel's checksum shortcuts: what the guest sees is what a wire carries.
            words += ["-netdev", f"tap,id=net{card.number},ifname={card.tap},script=no,downscript=no,"
                                 "vnet_hdr=off",
                      "-device", f"{card.model},id=nic{card.number},netdev=net{card.number},bus=pcie.0,"
                                 f"addr={card.pci[8:10]},mac=52:54:00:00:00:{1 + card.number:02x}"]
        cards = ",".join(card.pci for card in CARDS)
        return words + [
            "-device", "virtio-serial-pci", "-chardev",
            f"socket,id=commands,path={self.commands},server=on,wait=off",
            "-device", "virtserialport,chardev=commands,name=commands",
            "-display", "none", "-nodefaults", "-no-reboot", "-serial", f"file:{self.console}",
            "-monitor", f"unix:{self.monitor_path},server=on,wait=off", "-pidfile", self.pid_path,
            "-kernel", image, "-initrd", initramfs, "-append",
            "console=ttyS0 quiet panic=-1 sysrq_always_enabled intel_iommu=on mitigations=off "
            # On a busy machine the kernel takes a late tick for a broken timer. (It also measures the TSC wrong, up
            # to forty times, so the clock stays the HPET, which it takes by itself.)
            "no_timer_check "
            f"mill.cards={cards} mill.pages0={self.pages[0]} mill.pages1={self.pages[1]}"]

    def up(self, build, extra=(), keep=False):
        """Starts it and waits until it takes commands. keep: it outlives this process."""
        if os.geteuid() != 0:
            raise Missing("a guest lab needs root: namespaces and TAP devices")
        image, _ = kernel()
        self.wires_up()
        initramfs = os.path.join(self.home, "initramfs")
        make_initramfs(initramfs, build, extra)
        log = os.path.join(self.home, "qemu.log")
        with open(log, "wb") as out:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace] + self.qemu(image, initramfs), stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=keep, preexec_fn=None if keep else die_with_parent)
        while True:
            try:
                self.run("true", timeout=BOOT_LIMIT_S)
                break
            except (OSError, EOFError) as error:
                if process.poll() is not None or isinstance(error, TimeoutError):
                    print(self.last_words())
                    self.down()
                    raise AssertionError("the guest does not start") from None
                time.sleep(0.1)
        os.unlink(initramfs)

    def down(self):
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            while self.pid() is not None:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
                time.sleep(0.02)
        subprocess.run(["ip", "netns", "delete", self.namespace], stderr=subprocess.DEVNULL, check=False)

    def console_text(self):
        try:
            with open(self.console, encoding="utf-8", errors="replace") as text:
                return text.read()
        except FileNotFoundError:
            return ""

    def last_words(self):
        """Of the guest's console and of QEMU."""
        try:
            with open(os.path.join(self.home, "qemu.log"), encoding="utf-8", errors="replace") as log:
                said = log.read()
        except FileNotFoundError:
            said = ""
        return f"{said[-2000:]}\n{self.console_text()[-3000:]}"

    # --- talking -----------------------------------------------------------------------------------
    def run(self, command, timeout=60):
        """Runs a shell command inside, once. ret: its exit code and its output; code 137 when it took
        longer than timeout. OSError or EOFError when the guest does not answer."""
        self.serial += 1
        return self.insist(f"{os.getpid()}.{self.serial}", 0, timeout, command)

    def insist(self, name, first, timeout, command):
        """Asks until there is an answer; first: number of the first question."""
        deadline = time.monotonic() + timeout + GRACE_S
        with open(self.commands + ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the port serves one at a time
            for number in itertools.count(first):
                try:
                    return self.ask(name, number, timeout, command)
                except TimeoutError:
                    if time.monotonic() > deadline:
                        print(f"the guest does not answer: {command}\n{self.autopsy()}", flush=True)
                        raise

    def ask(self, name, number, timeout, command):
        """One try over a connection of its own. TimeoutError after ASK_AGAIN_S of silence: then ask again
        with the next number; a command runs once, however often it is asked for."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(ASK_AGAIN_S)
            link.connect(self.commands)
            link.sendall(f"\n{name} {number} {timeout} {command.encode().hex()}\n".encode())
            with link.makefile("rb") as answer:
                while line := answer.readline():
                    words = line.split()
                    # Anything else is what is left of the answer to an earlier question.
                    if len(words) == 5 and words[:3] == [b"=", name.encode(), str(number).encode()]:
                        size = int(words[4])
                        output = answer.read(size)
                        if len(output) == size:
                            return int(words[3]), output.decode(errors="replace")
            raise EOFError("the guest closed its command port")

    def autopsy(self):
        """What a guest that does not answer is doing: its CPUs, its tasks, its console."""
        before = len(self.console_text())
        try:
            said = [self.monitor("info status"), self.monitor("info registers -a")]
            for key in "7lwt":  # say all; what each CPU does; who is blocked; every task
                self.monitor(f"sendkey alt-sysrq-{key}")
                time.sleep(3)
        except (OSError, TimeoutError) as error:
            said = [f"QEMU's monitor does not answer: {error}"]
        text = self.console_text()
        wanted = [line for line in "".join(said).splitlines() if line.startswith(("CPU#", "RIP", "VM"))]
        return "\n".join(wanted + [text[:before][-3000:], text[before:][:AUTOPSY_BYTES]])

    def check(self, command, timeout=60):
        """As run, but a command that fails is an error. ret: its output."""
        code, output = self.run(command, timeout)
        assert code == 0, f"in the guest: {command}: exit {code}\n{output[-3000:]}"
        return output

    def write(self, path, text):
        self.check(f"mkdir -p {shlex.quote(os.path.dirname(path))} && cat >{shlex.quote(path)} <<'END'\n{text}\nEND")

    def monitor(self, command):
        """A command to QEMU's own monitor, e.g. set_link nic0 off."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(10)
            link.connect(self.monitor_path)
            link.sendall(command.encode() + b"\n")
            text = b""
            while text.count(b"(qemu)") < 2:
                piece = link.recv(4096)
                if not piece:
                    break
                text += piece
            return text.decode(errors="replace")


# --- scripts/lab guest -----------------------------------------------------------------------------


def main(words):
    home = os.path.join(TOP, "build", "guest")
    os.makedirs(home, exist_ok=True)
    guest = Guest(home, "mill-guest")
    if words == ["up"]:
        if guest.pid() is None:
            begun = time.monotonic()
            guest.up(os.path.join(TOP, "build"), keep=True)
            print(f"the guest answers after {time.monotonic() - begun:.1f} s")
        for card in CARDS:
            print(f"{card.model} {card.pci} on vfio-pci, for {card.guest}; from here: "
                  f"ip netns exec {guest.namespace} kcat -b {card.guest}:9092 -L")
        print("our programs are in /mill; scripts/lab guest run COMMAND")
    elif words == ["down"]:
        guest.down()
    elif len(words) > 1 and words[0] == "run":
        if guest.pid() is None:
            sys.exit("lab: no guest runs: scripts/lab guest up")
        code, output = guest.run(" ".join(words[1:]), timeout=600)
        sys.stdout.write(output)
        return code
    else:
        sys.exit("usage: scripts/lab guest up|down|run COMMAND...")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Missing as missing:
        sys.exit(f"lab: {missing}")
