# SPDX-License-Identifier: Apache-2.0
"""A file system that fails as it is told (tests/faults/fault_disk.c): use it in a with statement, put log
directories below its path, give it orders."""
import json
import os
import subprocess
import tempfile
import time

from lib.broker import BUILD, PREFIX, TOP, run, skip

PROGRAM = os.path.join(TOP, "build/tests/faults/fault_disk")
if os.path.exists(os.path.join(TOP, BUILD, "tests/faults/fault_disk")):
    PROGRAM = os.path.join(TOP, BUILD, "tests/faults/fault_disk")


class FaultDisk:
    def __init__(self, seed=1):
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            skip("a FUSE file system needs root and /dev/fuse")
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        self.process = subprocess.Popen([PROGRAM, self.path, str(seed)], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not os.path.exists(os.path.join(self.path, ".control")):
            assert self.process.poll() is None, "fault_disk ended"
            assert time.monotonic() < deadline, "fault_disk did not mount"
            time.sleep(0.02)

    def order(self, *lines):
        with open(os.path.join(self.path, ".control"), "w", encoding="ascii") as control:
            control.write("\n".join(lines) + "\n")

    def counters(self):
        with open(os.path.join(self.path, ".control"), encoding="ascii") as control:
            return json.load(control)

    def dir(self, name):
        return os.path.join(self.path, name)

    def close(self):
        run("umount", self.path, check=False)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            run("umount", "-l", self.path, check=False)
            self.process.kill()
            self.process.wait()
        os.rmdir(self.path)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()
