# SPDX-License-Identifier: Apache-2.0
"""A broker of its own for one test: folders under /tmp, a laboratory network when NIC is asked for (lib/lab.py
has the kinds), a socket for a client of our own stack when MEMIF is, started as a user starts it, and gone without
a trace at the end."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from lib import lab

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEMIF_HOST = "198.18.1.1"  # of the listener on a memif; its peer takes another one of this /24
BUILD = os.path.join(TOP, os.environ.get("MILLRACE_BUILD", "build"))
FULL = os.environ.get("MILLRACE_FULL") == "1"
PREFIX = "millrace-test-"


def pick(full, reduced):
    """A size or number of rounds: says when it is the reduced one."""
    if not FULL:
        print(f"reduced: {reduced} in place of {full}")
    return full if FULL else reduced


def skip(reason):
    print(f"skipped: {reason}")
    raise SystemExit(77)


def run(*command, check=True, timeout=300, **kwargs):
    """Runs a command and returns its standard output as text; shows everything when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, check=False, **kwargs)
    if check and done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n")
        raise AssertionError(f"{' '.join(command)} exited with {done.returncode}")
    return done.stdout


def free_port(count=1):
    """The first of count ports in a row that nobody listens on."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        try:
            for number in range(port, port + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            return port
        except (OSError, OverflowError):
            continue


def wait(what, condition, timeout=15):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def vm_rss(status):
    """Resident bytes in the text of a /proc/PID/status."""
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024


class Broker:
    """One instance. Use it in a with statement; settings are keys with dots as keyword dict."""

    admin = "LOCAL"  # the listener for topics and for reading back
    slowness = 1     # what bounds for a broker on this machine are stretched by

    def __init__(self, nic=True, settings=None, build=BUILD, namespace=lab.NETNS, kind=None,
                 memif=False, ports=1):
        self.nic = nic
        self.lab = lab.make(namespace, kind)
        self.build = os.path.join(TOP, build)
        self.home = tempfile.mkdtemp(prefix=PREFIX)
        self.run_dir = os.path.join(self.home, "run")
        self.log_dir = os.path.join(self.home, "data")
        self.memif_socket = os.path.join(self.home, "memif.sock")
        self.port = free_port(ports)
        self.process = None
        self.start_words = ()  # more of millrace start
        self.ready = ""
        self.arenas = set()
        listeners = f"LOCAL://127.0.0.1:{self.port}"
        values = {
            "node.id": "1",
            "log.dirs": self.log_dir,
            "run.dir": self.run_dir,
            "hugepages.size.mb": "256",
            "http.listener": "",
            "log.message.timestamp.after.max.ms": "9223372036854775807",
        }
        if nic:
            if os.geteuid() != 0:
                skip("the NIC listener needs root: namespaces and TAP devices")
            self.lab.up()
            listeners += f",NIC://{lab.HOST}:9092"
            values.update({
                "listener.NIC.transport": "dpdk",
                "listener.NIC.device": "nic0",
                "dpdk.ports": "nic0",
            })
            values.update(self.lab.settings())
        if memif:
            listeners += f",MEMIF://{MEMIF_HOST}:9092"
            values.update({
                "listener.MEMIF.transport": "dpdk",
                "listener.MEMIF.device": "mem0",
                "dpdk.ports": "nic0,mem0" if nic else "mem0",
                "dpdk.port.mem0.device": f"net_memif0,role=server,socket={self.memif_socket}",
                "dpdk.port.mem0.address": f"{MEMIF_HOST}/24",
            })
        values["listeners"] = listeners
        values.update(settings or {})
        self.config = os.path.join(self.home, "server.properties")
        with open(self.config, "w", encoding="utf-8") as out:
            for key, value in values.items():
                out.write(f"{key}={value}\n")

    # --- life -----------------------------------------------------------------------------------
    def start(self, timeout=60):
        self.launch()
        return self.await_ready(timeout)

    def launch(self):
        with open(os.path.join(self.home, "broker.log"), "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(self.build, "millrace"), "start", "-c", self.config, *self.start_words],
                stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)

    def await_ready(self, timeout):
        deadline = time.monotonic() + timeout
        os.set_blocking(self.process.stdout.fileno(), False)
        self.ready = ""
        while not self.ready.endswith("\n"):
            try:
                self.ready += os.read(self.process.stdout.fileno(), 4096).decode()
            except BlockingIOError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.show_log()
                raise AssertionError(f"no ready line; exit {self.process.poll()}")
            time.sleep(0.01)
        self.ready = self.ready.strip()
        self.note_arena()
        return self

    def stop(self, timeout=15):
        """Clean stop. Returns exit code and seconds."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=timeout)
        return code, time.monotonic() - begun

    def show_log(self, lines=60):
        with open(os.path.join(self.home, "broker.log"), encoding="utf-8", errors="replace") as log:
            print("".join(log.readlines()[-lines:]))

    def log_text(self):
        with open(os.path.join(self.home, "broker.log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def pid(self, name):
        """Of supervisor, control or millraced; None when it is not there."""
        try:
            with open(os.path.join(self.run_dir, name + ".pid"), encoding="ascii") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return None

    def resident_bytes(self, name):
        with open(f"/proc/{self.pid(name)}/status", encoding="ascii") as status:
            return vm_rss(status.read())

    def kill(self, name, number=signal.SIGKILL):
        """Sends a signal; for SIGKILL of a child waits until the supervisor has a new one."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def wait_restart(self, name, old_pid, timeout=30):
        deadline = time.monotonic() + timeout * self.slowness
        key = "dataplane" if name == "millraced" else name
        while time.monotonic() < deadline:
            status = self.status(check=False)
            if status and status[key]["pid"] not in (0, old_pid) and \
                    status[key]["state"] == "serving":
                return
            time.sleep(0.02)
        self.show_log()
        raise AssertionError(f"{name} was not restarted")

    def kill_all(self):
        """No process is left; the arena stays."""
        # The supervisor first: then nobody begins a process. Control may have ended by itself, its files failing, and
        # its number be nobody's until there is a new one.
        os.kill(self.process.pid, signal.SIGSTOP)
        pids = [self.process.pid]
        for pid in filter(None, (self.pid(name) for name in ("millraced", "control"))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)  # together: none may act on another's end
                pids.append(pid)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        while any(alive(pid) for pid in pids):
            time.sleep(0.01)

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.end_children()
        if self.nic:
            self.lab.down()
        self.forget_arena()
        shutil.rmtree(self.home, ignore_errors=True)

    def end_children(self):
        """Those that outlive their supervisor, as only a broken broker's do."""
        for pid in (self.pid("millraced"), self.pid("control")):
            if pid and alive(pid) and "/millrace" in os.readlink(f"/proc/{pid}/exe"):
                os.kill(pid, signal.SIGKILL)

    def arena_dirs(self):
        """Folders of this instance's arena, as millraced had them mapped after the last start."""
        return [path for path in self.arenas if os.path.isdir(path)]

    def note_arena(self):
        with open(f"/proc/{self.pid('millraced')}/maps", encoding="ascii") as maps:
            paths = {line.split()[-1] for line in maps if "/millrace-" in line and "arena" in line}
        self.arenas |= {os.path.dirname(path) for path in paths}

    def forget_arena(self):
        for path in self.arena_dirs():
            shutil.rmtree(path, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and kind is not SystemExit:
            try:
                self.show_log()
            except OSError:
                pass
        self.close()

    # --- looking --------------------------------------------------------------------------------
    def status(self, check=True):
        text = run(os.path.join(self.build, "millrace"), "status", "-o", "json", "--dir",
                   self.run_dir, check=check)
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            if check:
                raise
            return None

    def listener(self, name):
        return next(one for one in self.status()["listeners"] if one["name"] == name)

    def wait_no_loans(self, timeout=15):
        """Every loan is back: what a peer's TCP has not acknowledged, or a card holds until its next burst, may
        take a moment after the client has gone."""
        wait("loans are out", lambda: self.status()["memory"]["loaned_bytes"] == 0,
             timeout * self.slowness)

    def wait_written(self, timeout=30):
        """Every batch is in its files, as far as the kernel's page cache."""
        wait("batches are not written", lambda: self.status()["log"]["dirty_bytes"] == 0,
             timeout * self.slowness)

    def counts(self, name):
        """A counter of each core; published every 10 ms of a busy core."""
        return [core[name] for core in self.status()["cores"]]

    def reach_cores(self, listener, topic, name="requests", rounds=16):
        """Opens connections, 16 at a time, that produce to two partitions of the topic each, until the counter
        has grown on every core: a hash that may put a few flows on one core puts 256 on one only when it is no
        hash. Nobody else talks to the broker meanwhile."""
        script = os.path.join(TOP, "tests/clients/direct_check.py")
        time.sleep(0.5)  # what earlier clients did is counted
        before = self.counts(name)
        for _ in range(rounds):
            self.python(listener, script, "reach", "16", topic)
            limit = time.monotonic() + 2
            while time.monotonic() < limit:
                if all(now > old for now, old in zip(self.counts(name), before)):
                    return
                time.sleep(0.1)
        raise AssertionError(f"{16 * rounds} connections through {listener}, and a core's {name} did not grow: "
                             f"{before} to {self.counts(name)}")

    # --- clients --------------------------------------------------------------------------------
    def address(self, listener):
        return f"127.0.0.1:{self.port}" if listener == "LOCAL" else f"{lab.HOST}:9092"

    def inside(self, listener):
        """Command prefix that reaches the listener."""
        return [] if listener == "LOCAL" else self.lab.inside()

    def listeners(self):
        return ("LOCAL", "NIC") if self.nic else ("LOCAL",)

    def millrace(self, *words, check=True, listener=None, **kwargs):
        listener = listener or self.admin
        return run(*self.inside(listener), os.path.join(self.build, "millrace"), *words,
                   "-b", self.address(listener), check=check, **kwargs)

    def kcat(self, listener, *words, check=True, **kwargs):
        return run(*self.inside(listener), "kcat", "-b", self.address(listener), "-q", *words,
                   check=check, **kwargs)

    def python(self, listener, script, *words, timeout=600):
        """Runs a script of this tree with the distribution's Python where the listener is reachable."""
        return run(*self.inside(listener), "/usr/bin/python3", "-B", script, self.address(listener),
                   *words, timeout=timeout)
