#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: with direct cores a client that follows Metadata never makes a request cross cores, over kernel sockets
and over the NIC listener; what it reads is what it would read of one core; and nothing else changes for it.

Method: the same records into 12 partitions of one core and of two, read back by both and by one again on the
same files; kcat, librdkafka and franz-go with two cores; then clients that do not follow: connections to the
wrong core, and ones that are silent until the TAP has forgotten them. After that the NIC listener on two cores
without ports of their own, with a queue each and with one for both: clients and kills. check() runs on any
broker that has the calls of lib.broker, a guest's too."""
import collections
import hashlib
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../faults"))
from kill_data import kill_rounds
from lib.broker import TOP, Broker, pick, run, wait

PARTITIONS = 12
CODECS = ("none", "zstd")
IDLE_TRIES = 3  # of 16 flows, each of which the TAP may put on either queue
FRANZ = os.path.join(TOP, "build/clients/go/franz")
CHECK = os.path.join(TOP, "tests/clients/direct_check.py")


def lines(count):
    return "".join(f"key-{i % 997}:{i} {'x' * (i % 300)}\n" for i in range(count))


def write(broker, listener, topic, count):
    """Keys choose partitions alike on every broker."""
    broker.millrace("topic", "create", topic, "-p", str(PARTITIONS), listener=listener)
    broker.kcat(listener, "-P", "-t", topic, "-K", ":", "-X", "partitioner=murmur2", "-X",
                "enable.idempotence=true", input=lines(count))


def digests(broker, listener, topic):
    """Checksum of each partition's keys and values in order."""
    found = {}
    text = broker.kcat(listener, "-C", "-t", topic, "-o", "beginning", "-e", "-f", "%p %o %k:%s\n")
    parts = collections.defaultdict(list)
    for line in text.splitlines():
        partition, offset, rest = line.split(" ", 2)
        parts[int(partition)].append((int(offset), rest))
    for partition, records in parts.items():
        assert [offset for offset, _ in records] == list(range(len(records)))
        text = "\n".join(rest for _, rest in records)
        found[partition] = hashlib.sha256(text.encode()).hexdigest()
    return found


def check(broker, listeners, cores, total):
    """Clients that follow Metadata, with `cores` direct cores: nothing is handed over."""
    for listener in listeners:
        topic = f"shape-{listener.lower()}"
        write(broker, listener, topic, 2000)
        print(listener, "leaders", broker.python(listener, CHECK, "shape", str(cores), topic).strip())
        assert len(digests(broker, listener, topic)) == PARTITIONS
        for codec in CODECS:
            script = os.path.join(TOP, "tests/clients/rdkafka_check.py")
            print(listener, broker.python(listener, script, f"rd-{listener.lower()}-{codec}", codec,
                                          str(total), timeout=1800).strip())
            if os.path.exists(FRANZ):
                print(listener, run(*broker.inside(listener), FRANZ, broker.address(listener),
                                    f"go-{listener.lower()}-{codec}", codec, str(total),
                                    timeout=1800).strip())
    assert broker.counts("handed_over") == [0] * cores, broker.counts("handed_over")
    assert all(broker.counts("partitions")), broker.counts("partitions")
    broker.wait_no_loans()


def check_strays(broker, listeners, cores):
    """Clients at the wrong core are served by hand-over; flows that the port misplaces find their way."""
    for listener in listeners:
        before = sum(broker.counts("handed_over"))
        broker.python(listener, CHECK, "wrong", str(cores), f"shape-{listener.lower()}")
        wait("requests at the wrong core are not handed over",
             lambda: sum(broker.counts("handed_over")) >= before + 2 * cores)
    if "NIC" in listeners:
        before = sum(broker.counts("misdirected"))
        for _ in range(IDLE_TRIES):
            broker.python("NIC", CHECK, "idle", str(cores))
            moved = sum(broker.counts("misdirected")) - before
            if moved > 0 or broker.lab.iface != "mill0":
                break
        tcp = broker.status()["tcp"]
        assert tcp["handover_dropped"] == 0 and tcp["flows_unshared"] == 0, tcp
        if broker.lab.iface == "mill0":
            assert moved > 0, "no frame came in on another core's queue"
        print(f"idle connections: {moved} frames handed to their core before TCP")


def configure(broker, **settings):
    """Writes the configuration again with other values."""
    with open(broker.config, encoding="utf-8") as file:
        kept = [line for line in file if line.split("=", 1)[0] not in settings]
    with open(broker.config, "w", encoding="utf-8") as file:
        file.writelines(kept + [f"{key}={value}\n" for key, value in settings.items()])


ONE = {"dataplane.cores": "0", "dataplane.core.endpoints": "off"}
TWO = {"dataplane.cores": "0,1", "dataplane.core.endpoints": "on"}


def check_shared(queues, total, kills):
    """Two cores behind one address and port: a queue each, or fewer."""
    settings = {"dataplane.cores": "0,1", "num.partitions": str(PARTITIONS), **queues}
    with Broker(settings=settings) as broker:
        broker.start()
        write(broker, "NIC", "shared", 2000)
        assert len(digests(broker, "NIC", "shared")) == PARTITIONS
        script = os.path.join(TOP, "tests/clients/rdkafka_check.py")
        print("NIC", broker.python("NIC", script, "shared-rd", "none", str(total), timeout=1800).strip())
        if kills:
            kill_rounds(broker, "kills", kills, random.SystemRandom().randrange(1 << 32), ["NIC"] * 4)
        broker.reach_cores("NIC", "shared")
        broker.wait_no_loans()
        moved = broker.counts("misdirected")
        status = broker.status()
        assert status["tcp"]["handover_dropped"] == 0 and status["tcp"]["flows_unshared"] == 0
        if queues:
            assert moved[0] > 0 and moved[1] == 0, f"one queue, and core 0 gave nothing away: {moved}"
        print(f"two cores, {'one queue' if queues else 'a queue each'}: {kills} kills, frames given away {moved}")


def main():
    total = pick(256 << 20, 8 << 20)
    kills = pick(20, 3)
    count = pick(500000, 20000)
    if (os.cpu_count() or 1) < 2:
        print("skipped: two cores need two CPUs")
        sys.exit(77)
    with Broker(settings=ONE, ports=2) as broker:
        listeners = broker.listeners()
        want = {}
        broker.start()
        for listener in listeners:
            write(broker, listener, f"one-{listener.lower()}", count)
            want[listener] = digests(broker, listener, f"one-{listener.lower()}")
            assert len(want[listener]) == PARTITIONS
        assert broker.stop()[0] == 0
        configure(broker, **TWO)
        broker.start()
        for listener in listeners:
            write(broker, listener, f"two-{listener.lower()}", count)
            for topic in ("one", "two"):  # what one core wrote, and what two write
                assert digests(broker, listener, f"{topic}-{listener.lower()}") == want[listener]
        check(broker, listeners, 2, total)
        check_strays(broker, listeners, 2)
        assert broker.stop()[0] == 0
        configure(broker, **ONE)
        broker.start()
        for listener in listeners:
            assert digests(broker, listener, f"two-{listener.lower()}") == want[listener]
    if "NIC" in listeners:
        check_shared({}, total, kills)
        check_shared({"dpdk.port.nic0.queues": "1"}, total, 0)
    print(f"direct cores: {count} records in {PARTITIONS} partitions equal on one core and two, "
          f"{total >> 20} MiB per client and codec, nothing handed over")


if __name__ == "__main__":
    main()
