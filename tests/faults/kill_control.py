#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9, then SIGSTOP, of millrace-control during produce, fetch and new connections of new clients, which ask
for the coordinator of their group: no failed request; the longest time between acknowledgements and between records
read, and that of a new client from its first packet to the record that it reads back, is at most three times that
of a run without (lib/data_path.py)."""
import os
import signal
import time

from lib import data_path
from lib.broker import Broker, pick

TRIES = 3


def main():
    stop_s = pick(30, 6)
    with Broker() as broker:
        broker.start()
        broker.millrace("topic", "create", "calm", "-p", "2")
        data_path.first_client(broker, "LOCAL", "calm")

        def nothing(seconds):
            time.sleep(seconds)

        def kill(seconds):
            for _ in range(3):
                pid = broker.kill("control")
                broker.wait_restart("control", pid)
                time.sleep(seconds / 3)

        def freeze(seconds):
            pid = broker.kill("control", signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)

        for name, disturb in (("kill", kill), ("freeze", freeze)):
            for number in range(TRIES):
                calm, disturbed = (
                    data_path.measure(broker, f"{name}-{kind}-{number}", "calm", ("LOCAL", "NIC"), stop_s, what)
                    for kind, what in (("calm", nothing), ("disturbed", disturb)))
                print(f"{name}: {data_path.told(disturbed)}; without {data_path.told(calm)}")
                if max(data_path.ratios(disturbed, calm)) <= data_path.RATIO:
                    break
            else:
                raise AssertionError(f"{name}: a gap stayed above {data_path.RATIO} times the calm one")
    print(f"no request failed while control was killed and frozen for {stop_s} s")


if __name__ == "__main__":
    main()
