#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client on our own stack over memif: what it produced is what it fetches, and what the kernel listener
fetches. Then the client is killed and comes back, and the data plane is killed and comes back, each several
times under load: the link goes down and up with one log line each, counters of the port rise, no batch that
was acknowledged is missing or changed, and the other listener answers all the while."""
import glob
import os
import shutil
import signal
import subprocess
import threading
import time

from lib import wire
from lib.broker import MEMIF_HOST, TOP, Broker, pick

TOPIC = "memif"
STALL_S = 1.0   # of the other listener, when a peer goes: a shared machine has longer gaps than ours
LIMIT_S = 60


class Client:
    """One run of the client program; produces count batches behind what the topic has, or fewer until SIGTERM."""

    def __init__(self, broker, count):
        self.path = os.path.join(broker.home, "client.log")
        with open(self.path, "wb") as output:
            self.process = subprocess.Popen(
                [os.path.join(TOP, "build/tests/clients/memif_client"),
                 f"net_memif0,role=client,socket={broker.memif_socket}", MEMIF_HOST, TOPIC, str(count)],
                stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def output(self):
        with open(self.path, encoding="utf-8", errors="replace") as output:
            return output.read()

    def acked(self):
        numbers = [int(line.split()[1]) for line in self.output().splitlines()
                   if line.startswith("acked ")]
        return numbers[-1] if numbers else -1

    def wait_more(self, more):
        """Waits for some more acknowledged batches than now."""
        self.wait_acked(0)
        self.wait_acked(self.acked() + more)

    def wait_acked(self, number):
        limit = time.monotonic() + LIMIT_S
        while self.acked() < number:
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < limit, f"only {self.acked()} of {number}:\n{self.output()}"
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()
        pid = self.process.pid
        for path in (f"/var/run/dpdk/mill-own-client-{pid}", *glob.glob(f"/dev/shm/millrace-ring-{pid}-*")):
            shutil.rmtree(path, ignore_errors=True)

    def end(self):
        assert self.process.wait(timeout=4 * LIMIT_S) == 0, self.output()
        return self.output().splitlines()[-1]


class Watch(threading.Thread):
    """Asks the kernel listener for its versions without pause; notes the longest wait."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.broker = broker
        self.longest = 0.0
        self.ended = False

    def run(self):
        with wire.Client(self.broker.address("LOCAL")) as connection:
            while not self.ended:
                begun = time.monotonic()
                connection.ask(wire.API_VERSIONS, 0, b"")
                self.longest = max(self.longest, time.monotonic() - begun)
                time.sleep(0.002)

    def end(self):
        self.ended = True
        self.join()
        return self.longest


def port(broker):
    return next(one for one in broker.status()["ports"] if one["name"] == "mem0")


def wait_link(broker, state):
    limit = time.monotonic() + LIMIT_S
    while port(broker)["link"] != state:
        assert time.monotonic() < limit, f"link is not {state}"
        time.sleep(0.05)


def lines(broker, event):
    return sum(f"{event} name=mem0" in line for line in broker.log_text().splitlines())


def wait_lines(broker, event, number):
    """As many lines in the log, and no more a moment later."""
    limit = time.monotonic() + LIMIT_S
    while lines(broker, event) < number:
        assert time.monotonic() < limit, f"{lines(broker, event)} of {number} lines {event}"
        time.sleep(0.05)
    time.sleep(0.5)
    assert lines(broker, event) == number, f"{lines(broker, event)} lines {event} for {number}"


def kill_clients(broker, rounds, step):
    before = port(broker)
    wait_lines(broker, "port.link-down", before["link_downs"])
    ups = lines(broker, "port.link-up")
    waits = []
    for count in range(1, rounds + 1):
        with Client(broker, 1 << 40) as client:
            client.wait_more(step)
            wait_lines(broker, "port.link-up", ups + count)
            watch = Watch(broker)
            watch.start()
            client.kill()
            wait_link(broker, "down")
            waits.append(watch.end())
        after = port(broker)
        assert after["link_downs"] == before["link_downs"] + count, after
        wait_lines(broker, "port.link-down", after["link_downs"])
        for counter in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes"):
            assert after[counter] > before[counter], counter
    assert min(waits) < STALL_S, f"the kernel listener waited {min(waits):.3f} s"
    return min(waits)


def kill_brokers(broker, rounds, step):
    with Client(broker, 1 << 40) as client:
        for _ in range(rounds):
            client.wait_more(step)
            broker.wait_restart("millraced", broker.kill("millraced"))
        client.wait_more(step)
        client.process.send_signal(signal.SIGTERM)  # enough: it reads all and ends
        return client.end()


def check_equal(broker, said):
    """What the client found is what the kernel listener gives: four records a batch."""
    words = said.split()
    assert words[0] == "equal", said
    batches, again = int(words[1]), int(words[3])
    got = broker.kcat("LOCAL", "-C", "-t", TOPIC, "-e", "-f", "%S\\n").split()
    assert len(got) == 4 * (batches + again), f"{len(got)} records for {said}"
    assert set(got) == {"1000"}
    return batches, again


def main():
    rounds = pick(20, 3)
    step = pick(2000, 300)
    with Broker(nic=False, memif=True) as broker:
        broker.start()
        broker.millrace("topic", "create", TOPIC)
        with Client(broker, step) as client:
            check_equal(broker, client.end())
        wait = kill_clients(broker, rounds, step)
        batches, again = check_equal(broker, kill_brokers(broker, rounds, step))
        code, _ = broker.stop()
        assert code == 0
        assert not os.path.exists(broker.memif_socket), "the socket was left behind"
    print(f"{batches} batches equal, {again} sent again; {rounds} clients and {rounds} data planes killed; "
          f"the kernel listener's longest wait in a kill at best {wait * 1000:.0f} ms")


if __name__ == "__main__":
    main()
