# SPDX-License-Identifier: Apache-2.0
"""A broker inside a guest: the same calls as lib.broker, clients stay on this machine."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from lib.broker import PREFIX, TOP, Broker, skip, vm_rss
from lib.lab import NETNS
from lib.guest import CARDS, Guest, Missing

RUN_DIR = "/run/millrace"
CONFIG = "/tmp/server.properties"
START_LOG = "/tmp/start.log"
STALL_S = 120
NAMES = {card.model.upper(): card for card in CARDS}


def boot(extra=(), **options):
    """A guest of its own for one test, in a folder that tests/clean knows. ret: the guest."""
    home = tempfile.mkdtemp(prefix=PREFIX)
    guest = Guest(home, NETNS, **options)
    try:
        guest.up(os.path.join(TOP, os.environ.get("MILLRACE_BUILD", "build")), extra)
    except Missing as missing:
        end(guest)
        skip(str(missing))
    except BaseException:
        end(guest)
        raise
    return guest


def end(guest):
    guest.down()
    shutil.rmtree(guest.home, ignore_errors=True)


class GuestBroker(Broker):
    """One instance in a guest that runs; cards: names of NAMES that it serves. Closing it stops the
    broker and empties its folders, not the guest."""

    slowness = 6  # the CPU is emulated, by CPUs that have other work

    def __init__(self, guest, cards=tuple(NAMES), settings=None):
        self.guest = guest
        self.cards = cards
        self.admin = cards[0]
        self.build = os.path.join(TOP, os.environ.get("MILLRACE_BUILD", "build"))
        self.home = tempfile.mkdtemp(dir=guest.home)
        self.namespace = guest.namespace
        self.run_dir = RUN_DIR
        self.ready = ""
        self.marks = 0
        listeners = "LOCAL://127.0.0.1:9092"
        values = {
            "node.id": "1",
            "log.dirs": "/data/log",
            "run.dir": RUN_DIR,
            "hugepages.size.mb": "256",
            "http.listener": "",
            "dpdk.ports": ",".join(f"nic{NAMES[name].number}" for name in cards),
            "log.message.timestamp.after.max.ms": "9223372036854775807",
            # Readers that a test holds are not dropped while a slow machine gets round to letting them go.
            "connection.stall.timeout.ms": str(STALL_S * 1000),
            "control.request.timeout.ms": "6000",
            # Attaching its program to the scheduler's trace points makes the kernel patch its own code; a CPU
            # that QEMU 7.2 emulates may keep what it translated before, a trap, and run into it for ever. (Without
            # any broker, switching the events sched_switch and sched_waking on and off hangs a guest so.)
            "dataplane.jitter": "off",
        }
        for name in cards:
            card = NAMES[name]
            port = f"nic{card.number}"
            listeners += f",{name}://{card.guest}:9092"
            values.update({
                f"listener.{name}.transport": "dpdk",
                f"listener.{name}.device": port,
                f"dpdk.port.{port}.device": card.pci,
                f"dpdk.port.{port}.address": f"{card.guest}/24",
                f"dpdk.port.{port}.dma.peer": card.host,
            })
        values["listeners"] = listeners
        self.values = values
        guest.check("rm -rf /data/log")
        self.configure(settings or {})

    def configure(self, settings):
        """Writes the configuration again with other values; for the next start."""
        self.values.update(settings)
        self.guest.write(CONFIG, "".join(f"{key}={value}\n" for key, value in self.values.items()))

    # --- life -----------------------------------------------------------------------------------
    def start(self, timeout=300, environment=""):
        self.ready = self.try_start(timeout, environment)[1].strip().splitlines()[-1]
        assert self.ready.startswith("millrace: ready"), self.ready
        return self

    def try_start(self, timeout=300, environment=""):
        """ret: exit code, and what was said."""
        code, text = self.guest.run(f"{environment} /mill/millrace start -c {CONFIG} --detach 2>{START_LOG}",
                                    timeout)
        if code != 0:
            return code, self.log_text()
        return code, text

    def stop(self, timeout=120):
        begun = time.monotonic()
        code, _ = self.guest.run(f"/mill/millrace stop --dir {RUN_DIR}", timeout)
        return code, time.monotonic() - begun

    def close(self):
        try:
            self.stop()
            self.guest.run("for p in supervisor millraced control; do kill -9 $(cat /run/millrace/$p.pid); done; "
                           "rm -rf /run/millrace /data/log /dev/hugepages/millrace*")
        except (OSError, EOFError):
            pass  # the guest is gone, and all with it

    def log_text(self):
        return self.guest.run(f"cat {START_LOG} {RUN_DIR}/log")[1]

    def show_log(self, lines=60):
        print("\n".join(self.log_text().splitlines()[-lines:]))

    def pid(self, name):
        code, text = self.guest.run(f"cat {RUN_DIR}/{name}.pid")
        return int(text) if code == 0 and text.strip() else None

    def resident_bytes(self, name):
        return vm_rss(self.guest.check(f"cat /proc/$(cat {RUN_DIR}/{name}.pid)/status"))

    def kill(self, name, number=signal.SIGKILL):
        pid = self.pid(name)
        self.guest.check(f"kill -{int(number)} {pid}")
        return pid

    def note_arena(self):
        pass

    def forget_arena(self):
        pass

    # --- looking --------------------------------------------------------------------------------
    def status(self, check=True):
        code, text = self.guest.run(f"/mill/millrace status -o json --dir {RUN_DIR}")
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            assert not check, f"status: exit {code}: {text}"
            return None

    def port(self, name):
        """Status of the port behind a card."""
        wanted = f"nic{NAMES[name].number}"
        return next(one for one in self.status()["ports"] if one["name"] == wanted)

    # --- clients --------------------------------------------------------------------------------
    def address(self, listener):
        return f"{NAMES[listener].guest}:9092"

    def inside(self, listener):
        return ["ip", "netns", "exec", self.namespace]

    def listeners(self):
        return self.cards

    def ping(self, name, count=1):
        """ret: whether the card's stack answers."""
        return subprocess.run(self.inside(name) + ["ping", "-c", str(count), "-W", "1", NAMES[name].guest],
                              stdout=subprocess.DEVNULL, check=False).returncode == 0
