# SPDX-License-Identifier: Apache-2.0
"""ADDRESS hold TOPIC COUNT: that many connections ask for 1 MiB and never read, until standard input ends.
ADDRESS rate TOPIC SECONDS: fetches 1 MiB at a time and prints bytes per second."""
import resource
import sys
import time

from lib.wire import FETCH, Client


def hold(address, topic, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 100)), hard))
    clients = []
    for _ in range(count):
        client = Client(address, timeout=60)
        client.send(client.frame(FETCH, 7, Client.fetch_body(topic, 0, 0)))
        clients.append(client)
    time.sleep(1)
    print("holding", flush=True)
    sys.stdin.read()
    for client in clients:
        client.close()


def rate(address, topic, seconds):
    seen = 0
    with Client(address, timeout=60) as client:
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            error, _, _, records = client.fetch(topic, 0, 0)
            assert error == 0 and records
            seen += len(records)
        print(seen / (time.monotonic() - begun))


def main():
    address, what, topic, number = sys.argv[1:5]
    if what == "hold":
        hold(address, topic, int(number))
    else:
        rate(address, topic, float(number))


if __name__ == "__main__":
    main()
