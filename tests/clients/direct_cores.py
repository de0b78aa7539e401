#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: with direct cores a client that follows Metadata never makes a request cross cores, over kernel sockets
and over the NIC listener; what it reads is what it would read of one core; and nothing else changes for it.

Method: the same records into 12 partitions of one core and of two, read back by both and by one again on the
same files; kcat, librdkafka and franz-go with two cores; then clients that do not follow: connections to the
wrong core, and ones that are silent until the TAP has forgotten them. After that the NIC listener on two cores
without ports of their own, with a queue each and with one for both: clients and kills; and a memif with one queue
and two, whose other end is our own stack. check() runs on any broker that has the calls of lib.broker, a guest's
too; `ports` runs it on AF_XDP.

    direct_cores.py [memif]     only the memif"""
import collections
import hashlib
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../faults"))
from kill_data import kill_rounds
from lib.broker import MEMIF_HOST, TOP, Broker, pick, run, wait

PARTITIONS = 12
MEMIF_TRIES = 4  # of 24 flows, whose queues a hash chooses
MEMIF_CLIENT = "198.18.1.2/24"
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


def own_load(broker, kind, *words, queues=1):
    """A load over our own stack at the other end of the memif, which has as many queues. ret: its result."""
    done = run(os.path.join(broker.build, "millrace"), "bench", kind, "-b", f"{MEMIF_HOST}:9092", "-o", "json",
               "--device", f"net_memif0,role=client,socket={broker.memif_socket}", "--address", MEMIF_CLIENT,
               "--queues", str(queues), *map(str, words))
    return json.loads(done)


def check_memif(queues, endpoints, count):
    """Two cores behind a memif with so many queues, one node or two: what our stack wrote to 12 partitions is
    what the kernel's listener gives, and what our stack reads is not less."""
    settings = {"dataplane.cores": "0,1", "dataplane.core.endpoints": endpoints, "num.partitions": str(PARTITIONS),
                "dpdk.port.mem0.queues": str(queues)}
    with Broker(nic=False, memif=True, settings=settings, ports=2) as broker:
        broker.start()
        broker.millrace("topic", "create", "own", "-p", str(PARTITIONS))
        time.sleep(0.5)
        before = broker.counts("requests")
        got = own_load(broker, "produce", "-t", "own", "-p", PARTITIONS, "--count", count, "--connections", 24,
                       "--records", 4, "--record-bytes", 500, queues=queues)
        assert got["requests"] == count and got["errors"] == 0 and got["connections_lost"] == 0, got
        wait("requests of one core did not grow",
             lambda: all(now > old for now, old in zip(broker.counts("requests"), before)))
        crossed = sum(broker.counts("handed_over"))
        assert (crossed == 0) == (endpoints == "on"), f"{crossed} requests crossed, endpoints {endpoints}"
        sizes = broker.kcat("LOCAL", "-C", "-t", "own", "-e", "-o", "beginning", "-f", "%p %S\n").splitlines()
        assert len(sizes) == got["records"] == 4 * count, (len(sizes), got)
        assert len(set(sizes)) == PARTITIONS and all(line.endswith(" 500") for line in sizes), set(sizes)
        read = own_load(broker, "fetch", "-t", "own", "-p", PARTITIONS, "--count", count, "--connections", 4,
                        queues=queues)
        assert read["requests"] == count and read["errors"] == 0 and read["records"] > 0, read
        # Behind one queue core 0 deals out; with one each a frame is misplaced when its port is another core's.
        want = (True, False) if queues == 1 else (endpoints == "on",) * 2
        for _ in range(MEMIF_TRIES):
            moved = broker.counts("misdirected")
            if tuple(count > 0 for count in moved) == want:
                break
            own_load(broker, "produce", "-t", "own", "-p", PARTITIONS, "--count", 100, "--connections", 24, queues=queues)
        assert tuple(count > 0 for count in moved) == want, f"frames given away on {queues} queues: {moved}"
        tcp = broker.status()["tcp"]
        assert tcp["handover_dropped"] == 0 and tcp["flows_unshared"] == 0, tcp
        broker.wait_no_loans()
        assert broker.stop()[0] == 0
    print(f"memif, {queues} queues, endpoints {endpoints}: {count} batches and fetches, {crossed} requests crossed, "
          f"frames given away {moved}")


def check_memifs():
    if os.geteuid() != 0:
        print("without root: no memif")
        return
    count = pick(50000, 600)
    for queues in (1, 2):
        for endpoints in ("off", "on"):
            check_memif(queues, endpoints, count)


def main():
    if sys.argv[1:] == ["memif"]:
        check_memifs()
        return
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
    check_memifs()
    print(f"direct cores: {count} records in {PARTITIONS} partitions equal on one core and two, "
          f"{total >> 20} MiB per client and codec, nothing handed over")


if __name__ == "__main__":
    main()
