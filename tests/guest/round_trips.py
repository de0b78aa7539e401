# SPDX-License-Identifier: Apache-2.0
"""ADDRESS SAMPLES GAP_MS: asks for versions so many times, each after a pause, and prints as JSON how long the
answers took. Runs where the broker is reachable."""
import json
import random
import sys
import time

from lib.wire import API_VERSIONS, Client


def main():
    address, samples, gap_ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    took = []
    with Client(address, timeout=60) as client:
        client.ask(API_VERSIONS, 0, b"")
        for _ in range(samples):
            time.sleep(gap_ms * random.uniform(1, 1.5) / 1000)
            begun = time.monotonic()
            client.ask(API_VERSIONS, 0, b"")
            took.append((time.monotonic() - begun) * 1e6)
    took.sort()
    print(json.dumps({"samples": samples, "p50_us": took[samples // 2], "p99_us": took[samples * 99 // 100],
                      "max_us": took[-1]}))


if __name__ == "__main__":
    main()
