#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The log directory is replaced by an older copy, or by another's: extents are discarded loudly or the start
is refused, and nothing wrong is served."""
import os
import shutil
import time

from lib import oracle
from lib.broker import Broker
from stop import kill_hard


def produce(broker, topic, seconds):
    load = oracle.Load(broker, topic, ["LOCAL"])
    try:
        load.wait_running()
        time.sleep(seconds)
        return load.stop()
    finally:
        load.end()


def older_copy():
    with Broker(nic=False) as broker:
        broker.start()
        broker.millrace("topic", "create", "old")
        early = produce(broker, "old", 0.5)
        code, _ = broker.stop()
        assert code == 0
        copy = broker.log_dir + ".copy"
        shutil.copytree(broker.log_dir, copy)
        broker.start()
        broker.kcat("LOCAL", "-P", "-t", "old", "-p", "0", input="later\n" * 1000)
        kill_hard(broker)
        shutil.rmtree(broker.log_dir)
        os.rename(copy, broker.log_dir)
        broker.start()
        assert "discard" in broker.log_text(), "an older copy was not told"
        # What the copy holds is served, as it was, and nothing of later.
        oracle.check(broker, "old", early)
        assert "later" not in broker.kcat("LOCAL", "-C", "-t", "old", "-p", "0", "-o", "beginning",
                                          "-e")


def another_one():
    with Broker(nic=False) as broker, Broker(nic=False) as other:
        for one in (broker, other):
            one.start()
            one.millrace("topic", "create", "mine")
            one.kcat("LOCAL", "-P", "-t", "mine", "-p", "0", input=f"{one.home}\n")
        kill_hard(broker)
        code, _ = other.stop()
        assert code == 0
        kept = os.path.join(broker.home, "kept")
        metadata = [name for name in os.listdir(broker.log_dir) if name.startswith("millrace.db")]
        os.rename(broker.log_dir, kept)
        shutil.copytree(other.log_dir, broker.log_dir)
        for name in os.listdir(broker.log_dir):
            if name.startswith("millrace.db"):
                os.unlink(os.path.join(broker.log_dir, name))
        for name in metadata:
            shutil.copy(os.path.join(kept, name), broker.log_dir)
        try:
            broker.start(timeout=20)
        except AssertionError:
            text = broker.log_text()
            assert "cluster" in text, text[-2000:]
        else:
            raise AssertionError("another cluster's directory was accepted")
        # With its own directory back, everything is there.
        shutil.rmtree(broker.log_dir)
        os.rename(kept, broker.log_dir)
        broker.start()
        assert broker.home in broker.kcat("LOCAL", "-C", "-t", "mine", "-p", "0", "-o", "beginning",
                                          "-e")


def main():
    older_copy()
    another_one()
    print("an older copy discards extents loudly, another cluster's directory is refused")


if __name__ == "__main__":
    main()
