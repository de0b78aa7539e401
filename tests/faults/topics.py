#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Topics come and go under load and under kills: a name deleted and made again while clients produce to it
and fetch from it, and control killed in the middle of creations. What is told as made is there."""
import os
import subprocess
import threading
import time

from lib.broker import Broker, pick, wait
from lib.wire import Client, batch

NONE, OUT_OF_RANGE, UNKNOWN, TIMED_OUT, EXISTS, NOT_LEADER = 0, 1, 3, 7, 36, 6
UNKNOWN_ID = 100
GOING = {NONE, UNKNOWN, NOT_LEADER, OUT_OF_RANGE, UNKNOWN_ID}


def load(broker, stop, faults, counts):
    """Produces and fetches until stopped; any error but those of a topic on its way is a fault."""
    try:
        with Client(broker.address("LOCAL"), timeout=30) as client:
            while not stop.is_set():
                error = client.produce("comes", 0, batch())[0]
                assert error in GOING, f"produce: {error}"
                counts[error] = counts.get(error, 0) + 1
                error = client.fetch("comes", 0, 0, wait_ms=20, min_bytes=1 << 20)[0]
                assert error in GOING, f"fetch: {error}"
    except Exception as fault:  # shown by the main thread
        faults.append(fault)


def come_and_go(broker, rounds):
    stop, faults, counts = threading.Event(), [], {}
    threads = [threading.Thread(target=load, args=(broker, stop, faults, counts)) for _ in range(4)]
    broker.millrace("topic", "create", "comes", "-p", "2")
    for thread in threads:
        thread.start()
    for _ in range(rounds):
        before = counts.get(NONE, 0)
        wait("nothing is produced to the new topic", lambda: counts.get(NONE, 0) > before or faults, 60)
        broker.millrace("topic", "delete", "comes")
        broker.millrace("topic", "create", "comes", "-p", "2")
    stop.set()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a client got no answer"
    assert not faults, faults
    # The new topic is empty but for what was produced since.
    broker.millrace("topic", "delete", "comes")
    broker.millrace("topic", "create", "comes", "-p", "2")
    with Client(broker.address("LOCAL")) as client:
        assert client.end_offset("comes", 0)[2] == 0
        error, base, _, _ = client.produce("comes", 0, batch())
        assert (error, base) == (NONE, 0)


def folders(broker, name):
    return [entry for entry in os.listdir(broker.log_dir) if entry.startswith(name + "-")]


def killed_in_creation(broker, kills):
    """Control dies at different moments of a creation of 40 topics."""
    made = []
    for round_ in range(kills):
        names = [f"k{round_}-{number}" for number in range(40)]
        command = [os.path.join(broker.build, "millrace"), "topic", "create", *names, "-b",
                   broker.address("LOCAL")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as creating:
            time.sleep(0.02 + 0.03 * round_)
            old = broker.kill("control")
            output, _ = creating.communicate(timeout=120)
        broker.wait_restart("control", old)
        told = {line.split()[1] for line in output.splitlines() if line.startswith("created ")}
        lost = told - set(broker.millrace("topic", "list").split())
        assert not lost, f"told as created and not there: {sorted(lost)}"
        # Again: each is there or is made now.
        again = broker.millrace("topic", "create", f"again-{round_}", check=True)
        assert "created" in again
        for name in names:
            broker.millrace("topic", "create", name, check=False)
        made += names
    deadline = time.monotonic() + 30
    with Client(broker.address("LOCAL")) as client:
        for name in made:
            while True:
                error = client.produce(name, 0, batch())[0]
                if error == NONE:
                    break
                assert time.monotonic() < deadline, f"{name}: {error}"
                time.sleep(0.1)
    return len(set(made))


def main():
    with Broker(nic=False) as broker:
        broker.start()
        pid = broker.pid("millraced")
        come_and_go(broker, pick(100, 10))
        count = killed_in_creation(broker, pick(20, 3))
        assert broker.pid("millraced") == pid, "millraced was restarted"
        deadline = time.monotonic() + 15
        while broker.status()["memory"]["loaned_bytes"] or len(folders(broker, "comes")) > 2:
            assert time.monotonic() < deadline, (broker.status()["memory"], folders(broker, "comes"))
            time.sleep(0.1)
    print(f"a name came and went under load; {count} topics are there after control was killed")


if __name__ == "__main__":
    main()
