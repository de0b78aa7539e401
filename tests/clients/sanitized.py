#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a broker built with a sanitizer serves clients through both listeners, is killed, takes up its log
and stops cleanly, without a report.

Method: tests/sanitize calls this with the build folder (a sanitizer's memory and huge pages do not go
together, so the arena is on tmpfs) and looks for reports itself; here only what clients see is checked."""
import os
import sys

from lib.broker import Broker
from lib.records import Records
from lib.wire import Client, batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOTAL_BYTES = 2 << 20


def lines_of(total):
    return "".join(f"{partition} {value.hex()}\n" for partition, _, value, _ in Records(total))


def check_codecs(broker, listener, text):
    for codec in CODECS:
        topic = f"{listener.lower()}-{codec}"
        broker.millrace("topic", "create", topic, "-p", "1", listener=listener)
        broker.kcat(listener, "-P", "-t", topic, "-p", "0", "-z", codec, "-X", "enable.idempotence=true",
                    input=text)
        read_back(broker, listener, codec, text)


def read_back(broker, listener, codec, text):
    got = broker.kcat(listener, "-C", "-t", f"{listener.lower()}-{codec}", "-p", "0", "-o", "beginning",
                      "-e")
    assert got == text, f"{listener} {codec}: {len(got)} bytes are not the {len(text)} sent"


def check_refusals(broker):
    """The paths of what is wrong: a bad sum, an unknown topic, a request that is none, a cut connection."""
    address = broker.address("LOCAL")
    with Client(address) as client:
        error, *_ = client.produce("local-none", 0, batch(crc=1))
        assert error == 2, error
        error, *_ = client.produce("absent", 0, batch())
        assert error == 3, error
    with Client(address) as client:
        client.send(b"\0\0\1\0" + b"\0\0\0\7" + b"x" * 100)
    with Client(address) as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")


def main():
    with Broker(build=sys.argv[1], nic=os.geteuid() == 0,
                settings={"hugepages": "off", "hugepages.size.mb": "128"}) as broker:
        broker.start(timeout=120)
        text = lines_of(TOTAL_BYTES)
        for listener in broker.listeners():
            check_codecs(broker, listener, text)
        check_refusals(broker)
        pid = broker.kill("millraced")
        broker.wait_restart("millraced", pid, timeout=120)
        for listener in broker.listeners():
            read_back(broker, listener, "zstd", text)
        broker.millrace("topic", "delete", "local-none")
        broker.wait_no_loans()
        code, seconds = broker.stop(timeout=60)
        assert code == 0, f"stop: exit {code}"
        print(f"{' and '.join(broker.listeners())}: all codecs equal, a kill survived, "
              f"stopped in {seconds:.1f} s")


if __name__ == "__main__":
    main()
