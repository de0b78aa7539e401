# SPDX-License-Identifier: Apache-2.0
"""The kernel's side of an interface that the AF_XDP driver shares, while Kafka traffic runs on it: no ping is
lost, and a service of the kernel on the same address moves its bytes."""
import re
import subprocess
import threading

from lib import lab, oracle
from lib.broker import wait

PINGS = 100
SERVICE_BYTES = 64 << 20
SERVICE_PORT = 9191

SERVER = """
import hashlib, socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("listening", flush=True)
    peer = server.accept()[0]
    digest, count = hashlib.sha256(), 0
    while data := peer.recv(1 << 16):
        digest.update(data)
        count += len(data)
    print(count, digest.hexdigest(), flush=True)
"""

CLIENT = """
import hashlib, os, socket, sys
digest, left, piece = hashlib.sha256(), int(sys.argv[3]), os.urandom(1 << 16)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    while left > 0:
        digest.update(piece)
        peer.sendall(piece)
        left -= len(piece)
print(digest.hexdigest())
"""


def ping(broker, listener, count=PINGS):
    """ret: how many were answered."""
    done = subprocess.run(broker.inside(listener) + ["ping", "-c", str(count), "-i", "0.05", "-W", "2", lab.HOST],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    return int(re.search(r"(\d+) received", done.stdout).group(1))


def move(broker, listener):
    """A client's bytes through a service of the kernel. ret: how many, and whether they arrived unchanged."""
    python = ["/usr/bin/python3", "-B", "-c"]
    with subprocess.Popen(["ip", "netns", "exec", broker.lab.nic_netns] + python + [SERVER, lab.HOST,
                          str(SERVICE_PORT)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline().strip() == "listening"
            sent = subprocess.run(broker.inside(listener) + python + [CLIENT, lab.HOST, str(SERVICE_PORT),
                                  str(SERVICE_BYTES)], stdout=subprocess.PIPE, text=True, timeout=120,
                                  check=True).stdout.strip()
            count, digest = server.stdout.readline().split()
        finally:
            server.kill()
    return int(count), digest == sent


def taken_in(broker):
    port = broker.status()["ports"][0]
    return port["rx_packets"] == port["steer_redirected"]


def check(broker, listener):
    broker.millrace("topic", "create", "coexist", "-p", "2")
    load = oracle.Load(broker, "coexist", [listener, listener])
    answered = []
    try:
        load.wait_running()
        before = broker.status()["ports"][0]
        pings = threading.Thread(target=lambda: answered.append(ping(broker, listener)))
        pings.start()
        count, equal = move(broker, listener)
        pings.join()
        after = broker.status()["ports"][0]
        reports = load.stop()
    finally:
        load.end()
    total = oracle.check(broker, "coexist", reports)
    assert answered == [PINGS], answered
    assert count == SERVICE_BYTES and equal, (count, equal)
    # Kafka went on meanwhile, by our own TCP, and the kernel's packets were not ours.
    assert after["rx_packets"] > before["rx_packets"] + 100, (before, after)
    assert after["steer_passed"] > before["steer_passed"] + PINGS, (before, after)
    # What was redirected arrived, all of it; under load some is on its way.
    wait("redirected frames are missing", lambda: taken_in(broker), 10)
    print(f"{listener}: {PINGS} pings without loss, {count >> 20} MiB by a service of the kernel, {total} records "
          f"meanwhile")
