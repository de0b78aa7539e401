#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong sizes, each API and version cut at every byte and with bytes behind it, huge counts, unknown APIs and versions,
TLS hello, HTTP: the right answer or a close; memory and the lines in the log stay bounded; a bystander's requests go
on."""
import os
import socket
import struct
import time
import uuid

from lib import message
from lib.broker import TOP, Broker, run
from lib.wire import API_VERSIONS, FETCH, METADATA, PRODUCE, Client, batch, text

GROWTH_FACTOR = 4
NAMES = 50000
FORGOTTEN = 20000
ELEMENTS = 10 << 20  # more bytes than control.frame.max.bytes
LENGTHS = (0, 249, 250, 1000, 32767)
BEHIND = 100
LINE_S = 10   # MILL_REFUSALS_PAUSE_NS
SERVED_FROM = {PRODUCE: 3}  # lower ones are advertised for old clients only
SAMPLES = os.path.join(TOP, "build/tests/unit/protocol/sample_frames")


def outcome(address, data, shut=True, timeout=30):
    """Sends bytes on a new connection: what comes back until the close, None when nothing happens."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=timeout) as peer:
        got = b""
        try:
            peer.sendall(data)
            if shut:
                peer.shutdown(socket.SHUT_WR)  # ENOTCONN: the close was faster
            while True:
                piece = peer.recv(65536)
                if not piece:
                    return got
                got += piece
        except TimeoutError:
            return None
        except OSError:
            return got


def resident(broker):
    with open(f"/proc/{broker.pid('millraced')}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def bystander(client, topic):
    error, *_ = client.produce(topic, 0, batch())
    assert error == 0, error


def wrong_sizes(address):
    for size in (0, -1, 1, 7, -2**31, 2**31 - 1, 104857601):
        assert outcome(address, struct.pack(">i", size) + b"\0" * 64, shut=False) == b"", size
    for text_bytes in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                       b"SSH-2.0-OpenSSH_9.2\r\n", b"\xff" * 64):
        assert outcome(address, text_bytes, shut=False) == b"", text_bytes


def unknown_apis(address):
    def frame(key, version):
        body = struct.pack(">hhi", key, version, 7) + text("frames")
        return struct.pack(">i", len(body)) + body
    for key, version in ((-1, 0), (999, 0), (4, 0), (0, 2), (0, 12), (1, 3), (1, 13), (3, 13),
                         (8, 2), (0, -1), (2, 9)):
        assert outcome(address, frame(key, version), shut=False) == b"", (key, version)
    # An ApiVersions too new is answered in the oldest form with what is known (KIP-511).
    got = outcome(address, frame(API_VERSIONS, 9))
    assert got and struct.unpack_from(">ihi", got, 4)[:2] == (7, 35), got
    count, key, low, high = struct.unpack_from(">ihhh", got, 10)
    assert (count, key) == (1, API_VERSIONS) and low <= high, got


def too_many_names(address):
    """Millions of elements of a byte each, all there: refused by the frame's size, before they are walked or all came."""
    for key, version, head in ((10, 4, b"\0"), (57, 1, b"\0\0\0\0\0"), (METADATA, 9, b"")):
        body = struct.pack(">hhi", key, version, 7) + text("frames") + b"\0" + head
        body += b"\x81\x80\x80\x05" + b"\1" * ELEMENTS
        begun = time.monotonic()
        assert outcome(address, struct.pack(">i", len(body)) + body[:1000], shut=False) == b"", (key, version)
        assert time.monotonic() - begun < 5, f"api {key}: {len(body)} bytes were waited for"


def huge_counts(broker, address, topic):
    def produce_body(topics, partitions):
        return (text(None) + struct.pack(">hii", -1, 1000, topics) + text(topic)
                + struct.pack(">i", partitions))
    bodies = [(PRODUCE, 7, produce_body(2**31 - 1, 1)), (PRODUCE, 7, produce_body(1, 2**31 - 1)),
              (METADATA, 4, struct.pack(">i", 2**31 - 1)),
              (METADATA, 9, b"\0" + b"\xff\xff\xff\xff\x07"),
              (METADATA, 9, b"\xff\xff\xff\xff\xff\x01"),
              (FETCH, 4, struct.pack(">iiiibi", -1, 0, 1, 1 << 20, 0, 2**31 - 1)),
              # Whole, but more partitions than one turn may look at, to be forgotten.
              (FETCH, 7, struct.pack(">iiiibiiii", -1, 0, 1, 1 << 20, 0, 0, 0, 0, 1) + text(topic)
               + struct.pack(">i", FORGOTTEN) + bytes(4 * FORGOTTEN))]
    for key, version, body in bodies:
        body = struct.pack(">hhi", key, version, 7) + text("frames") + body
        assert outcome(address, struct.pack(">i", len(body)) + body, shut=False) == b"", (key, body)
    too_many_names(address)
    before = resident(broker)
    # A large legal frame: very many unknown topics.
    names = b"".join(text(f"absent-{number:08d}") for number in range(NAMES))
    body = struct.pack(">hhi", METADATA, 4, 7) + text("frames") + struct.pack(">i", NAMES) + names + b"\0"
    got = outcome(address, struct.pack(">i", len(body)) + body)
    assert got is not None and len(got) > len(names), f"no answer to {NAMES} names"
    grown = resident(broker) - before
    assert grown <= GROWTH_FACTOR * len(body) + (1 << 20), f"{grown} bytes for {len(body)}"


def advertised(client):
    """(key, lowest, highest version) of ApiVersions."""
    answer = client.ask(API_VERSIONS, 0, b"")
    error, count = struct.unpack_from(">hi", answer)
    assert error == 0 and count > 10, (error, count)
    return [struct.unpack_from(">hhh", answer, 6 + 6 * index) for index in range(count)]


def cut_everywhere(broker, address, client, topic):
    """Each API and version, from the codec's own samples, cut at every byte."""
    listing = run(SAMPLES).splitlines()
    seen = {}
    for line in listing:
        key, version, data = line.split()
        key, version, data = int(key), int(version), bytes.fromhex(data)
        seen.setdefault(key, set()).add(version)
        for cut in range(len(data)):
            # The size says what is sent: the frame is complete, its content is not.
            got = outcome(address, struct.pack(">i", cut) + data[:cut])
            assert got is not None, f"api {key} version {version} cut at {cut}: neither answer nor close"
        # The size promises more than comes: nothing is answered.
        for cut in range(0, len(data), 7):
            got = outcome(address, struct.pack(">i", len(data)) + data[:cut])
            assert got == b"", f"api {key} version {version}: an answer to half a frame"
        bystander(client, topic)
    for key, low, high in advertised(client):
        low = max(low, SERVED_FROM.get(key, 0))
        assert seen.get(key) == set(range(low, high + 1)), (key, seen.get(key))
    return sum(len(versions) for versions in seen.values())


def bytes_behind(address, client, topic):
    """The samples with bytes that nobody asked for: obeyed, as by Kafka (the topic they name is deleted), or closed."""
    for line in run(SAMPLES).splitlines():
        key, version, data = line.split()
        data = bytes.fromhex(data) + b"\xff" * BEHIND
        got = outcome(address, struct.pack(">i", len(data)) + data)
        assert got is not None, f"api {key} version {version} with bytes behind it: neither answer nor close"
    bystander(client, topic)


def tree(of, version, words):
    """One element in each array, each text of words, numbers small."""
    plain = {"str": words, "blob": words.encode(), "records": batch(), "uuid": uuid.UUID(int=7), "bool": False,
             "f64": 1.0}
    made = {}
    for field in of.inline:
        if not field.versions.holds(version):
            continue
        value = tree(field.struct, version, words) if field.struct else plain.get(field.type, 1)
        made[field.name] = [value] if field.kind in ("array", "structs") else value
    return made


def texts_of_all_lengths(address, client, topic):
    """Every text of every request as long as no name may be: in each API, in its oldest and newest version."""
    for api in message.apis().values():
        for version in {api.versions.low, api.versions.high}:
            for length in LENGTHS:
                frame = message.request(api, version, tree(api.request, version, "n" * length))
                got = outcome(address, struct.pack(">i", len(frame)) + frame)
                assert got is not None, f"{api.name} {version} with texts of {length} bytes: neither answer nor close"
        bystander(client, topic)


def told_now_and_then(broker, begun):
    """A first line at once, then one for all of a pause."""
    lines = broker.log_text().count(" plane.bad-frames ")
    most = 1 + (time.monotonic() - begun) / LINE_S
    assert 1 <= lines <= most, f"{lines} lines about bad frames, {most:.1f} at most"


def main():
    with Broker(nic=False) as broker:
        broker.start()
        address = broker.address("LOCAL")
        broker.millrace("topic", "create", "frames")
        with Client(address) as client:
            bystander(client, "frames")
            pids = [broker.pid(name) for name in ("millraced", "control")]
            begun = time.monotonic()
            wrong_sizes(address)
            bystander(client, "frames")
            unknown_apis(address)
            bystander(client, "frames")
            huge_counts(broker, address, "frames")
            bystander(client, "frames")
            messages = cut_everywhere(broker, address, client, "frames")
            texts_of_all_lengths(address, client, "frames")
            broker.millrace("topic", "create", "beside")
            bytes_behind(address, client, "beside")
            told_now_and_then(broker, begun)
            assert [broker.pid(name) for name in ("millraced", "control")] == pids, "a process was restarted"
    print(f"{messages} API versions cut at every byte, others unharmed")


if __name__ == "__main__":
    main()
