#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes one CPU: hog.py CPU SECONDS [fifo]. Named mill-hog; prints its own CPU time in ns at the end."""
import os
import sys
import time

CPU, SECONDS = int(sys.argv[1]), float(sys.argv[2])
with open("/proc/self/comm", "w", encoding="ascii") as name:
    name.write("mill-hog")
os.sched_setaffinity(0, {CPU})
if "fifo" in sys.argv[3:]:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
END = time.monotonic() + SECONDS
BEGIN_NS = time.process_time_ns()
while time.monotonic() < END:
    pass
print(time.process_time_ns() - BEGIN_NS)
