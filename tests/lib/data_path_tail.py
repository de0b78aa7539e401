# SPDX-License-Identifier: Apache-2.0
"""ADDRESS TOPIC PARTITION: reads a partition from its start until SIGTERM, then prints the longest time in seconds
between two records. The reader is kcat, which asks no coordinator."""
import signal
import subprocess
import sys
import time


def main():
    address, topic, partition = sys.argv[1:4]
    reader = subprocess.Popen(["kcat", "-C", "-b", address, "-q", "-u", "-t", topic, "-p", partition, "-o", "beginning",
                               "-f", "%o\\n"], stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: reader.terminate())
    longest = 0.0
    last = None
    for _ in reader.stdout:
        now = time.monotonic()
        longest = max(longest, now - last) if last else 0.0
        last = now
    reader.wait()
    assert last, "nothing was read"
    print(longest)


if __name__ == "__main__":
    main()
