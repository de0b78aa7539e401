# SPDX-License-Identifier: Apache-2.0
"""A control group of one test, version 2 or 1, below the one that the test itself is in."""
import errno
import os
import time

from lib.broker import skip

BUSY_S = 20


def own_path(controller):
    """Folder of the group that this process is in for the controller, and the version; skips without one."""
    with open("/proc/self/cgroup", encoding="ascii") as lines:
        for line in lines:
            _, names, path = line.rstrip("\n").split(":", 2)
            if controller in names.split(","):
                return existing(f"/sys/fs/cgroup/{controller}", path), 1
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        try:
            with open(os.path.join(root, "cgroup.subtree_control"), encoding="ascii") as file:
                if controller in file.read().split():
                    return root, 2
        except FileNotFoundError:
            continue
    skip(f"no control group of this machine gives out {controller}")


def existing(root, path):
    """In a container the path may be that of the machine outside."""
    inside = os.path.join(root, path.lstrip("/"))
    return inside if os.path.isdir(inside) else root


class Group:
    """settings: file -> value of version 2, of version 1."""

    def __init__(self, controller, settings_v2, settings_v1):
        parent, self.version = own_path(controller)
        self.path = os.path.join(parent, f"millrace-test-{os.getpid()}")
        try:
            os.mkdir(self.path)
            for file, value in (settings_v2 if self.version == 2 else settings_v1).items():
                self.write(file, value)
        except OSError as wrong:
            if os.path.isdir(self.path):
                os.rmdir(self.path)
            skip(f"no group of {controller} can be made: {wrong}")

    def write(self, file, value):
        with open(os.path.join(self.path, file), "w", encoding="ascii") as out:
            out.write(str(value))

    def read(self, file):
        with open(os.path.join(self.path, file), encoding="ascii") as text:
            return text.read()

    def add(self, pid):
        self.write("cgroup.procs", pid)

    def remove(self):
        deadline = time.monotonic() + 5
        while True:
            try:
                os.rmdir(self.path)
                return
            except OSError:
                assert time.monotonic() < deadline, f"{self.path} is still in use"
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.remove()


class MemoryGroup(Group):
    """What its members take from now on is at most limit bytes; what they had stays with their old group."""

    def __init__(self, limit):
        super().__init__("memory", {"memory.max": limit, "memory.swap.max": 0}, {"memory.limit_in_bytes": limit})

    def event(self, name):
        lines = self.read("memory.events" if self.version == 2 else "memory.oom_control").splitlines()
        return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)

    def limit(self, limit):
        """Of version 1 it is refused as busy while pages that are being written cannot be taken back yet."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self.write("memory.max" if self.version == 2 else "memory.limit_in_bytes", limit)
                return
            except OSError as wrong:
                if wrong.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def allocated(self):
        """Bytes that are no file's pages."""
        name = "anon" if self.version == 2 else "rss"
        return next(int(line.split()[1]) for line in self.read("memory.stat").splitlines() if line.split()[0] == name)

    def kills(self):
        return self.event("oom_kill")

    def pressed(self):
        """How often the limit was met."""
        return self.event("max") if self.version == 2 else int(self.read("memory.failcnt"))
