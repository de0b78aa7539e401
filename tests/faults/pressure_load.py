# SPDX-License-Identifier: Apache-2.0
"""ADDRESS NAME SIZE: one of the attacks of pressure.py, run where the listener is reachable. Each checks what
the attacker itself must see; the driver looks at what is left behind."""
import resource
import socket
import struct
import sys
import threading
import time

from lib.wire import API_VERSIONS, FETCH, METADATA, PRODUCE, Client, batch, text

NONE, UNKNOWN_TOPIC = 0, 3
RESET_NOW = struct.pack("ii", 1, 0)


def reset(client):
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_NOW)
    client.close()


def produce_body(parts, acks=-1):
    """parts: [(topic, [(partition, records)])]"""
    body = text(None) + struct.pack(">hii", acks, 30000, len(parts))
    pieces = [body]
    for topic, partitions in parts:
        pieces.append(text(topic) + struct.pack(">i", len(partitions)))
        for partition, records in partitions:
            pieces.append(struct.pack(">ii", partition, len(records)))
            pieces.append(records)
    return b"".join(pieces)


def produce_answer(answer):
    """[(topic, partition, error, base offset)] of version 7."""
    found = []
    topics, at = struct.unpack_from(">i", answer)[0], 4
    for _ in range(topics):
        size = struct.unpack_from(">h", answer, at)[0]
        name = answer[at + 2:at + 2 + size].decode()
        at += 2 + size
        count = struct.unpack_from(">i", answer, at)[0]
        at += 4
        for _ in range(count):
            partition, error, base, _, _ = struct.unpack_from(">ihqqq", answer, at)
            at += 30
            found.append((name, partition, error, base))
    return found


def fetch_body(parts, max_bytes=1 << 20, wait_ms=0, min_bytes=1, part_bytes=1 << 20):
    """parts: [(topic, [(partition, offset)])]; version 7."""
    pieces = [struct.pack(">iiiibii", -1, wait_ms, min_bytes, max_bytes, 0, 0, -1),
              struct.pack(">i", len(parts))]
    for topic, partitions in parts:
        pieces.append(text(topic) + struct.pack(">i", len(partitions)))
        for partition, offset in partitions:
            pieces.append(struct.pack(">iqqi", partition, offset, -1, part_bytes))
    pieces.append(struct.pack(">i", 0))
    return b"".join(pieces)


def fetch_answer(answer):
    """[(topic, partition, error, high watermark, records)] of version 7."""
    found = []
    topics, at = struct.unpack_from(">i", answer, 10)[0], 14
    for _ in range(topics):
        size = struct.unpack_from(">h", answer, at)[0]
        name = answer[at + 2:at + 2 + size].decode()
        at += 2 + size
        count = struct.unpack_from(">i", answer, at)[0]
        at += 4
        for _ in range(count):
            partition, error, high, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
            at += struct.calcsize(">ihqqqi") + 16 * max(aborted, 0)
            length = struct.unpack_from(">i", answer, at)[0]
            at += 4
            found.append((name, partition, error, high, answer[at:at + max(length, 0)]))
            at += max(length, 0)
    return found


def many_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 100)), hard))


def pipeline(address, count):
    """Requests without reading a single answer; then all answers, in order."""
    with Client(address, timeout=60) as client:
        frames = []
        for number in range(count):
            kind = number % 4
            if kind == 0:
                frames.append(client.frame(API_VERSIONS, 0, b""))
            elif kind == 1:
                frames.append(client.frame(PRODUCE, 7, produce_body([("pressed", [(0, batch())])])))
            elif kind == 2:
                frames.append(client.frame(FETCH, 7, fetch_body([("pressed", [(0, 0)])], 65536)))
            else:
                frames.append(client.frame(METADATA, 4, struct.pack(">i", 1) + text("pressed") + b"\0"))
        sender = threading.Thread(target=client.send, args=(b"".join(frames),))
        sender.start()
        time.sleep(1)
        for number in range(count):
            correlation, _ = client.answer()
            assert correlation == number + 1, (correlation, number)
        sender.join()


def slow_writers(address, count):
    """Whole requests, one byte at a time, on many connections: answered in the end."""
    clients = [Client(address) for _ in range(count)]
    frames = [client.frame(PRODUCE, 7, produce_body([("pressed", [(0, batch())])]))
              for client in clients]
    for at in range(len(frames[0])):
        for client, frame in zip(clients, frames):
            client.send(frame[at:at + 1])
        time.sleep(0.002)
    for client in clients:
        found = produce_answer(client.answer()[1])
        assert found[0][2] == NONE, found
        client.close()


def storm(address, count):
    """Connections that come and go: with nothing, half a frame, a request; closed or reset."""
    for number in range(count):
        client = Client(address)
        if number % 3 == 1:
            client.send(struct.pack(">i", 1000) + b"half")
        elif number % 3 == 2:
            client.send(client.frame(FETCH, 7, fetch_body([("pressed", [(0, 0)])], wait_ms=1000,
                                                          min_bytes=1 << 30)))
        if number % 2:
            reset(client)
        else:
            client.close()


def half_close(address, count):
    """The peer ends its side with answers outstanding: they all come, then the end."""
    for _ in range(count):
        with Client(address) as client:
            client.send(client.frame(FETCH, 7, fetch_body([("pressed", [(0, 0)])], wait_ms=300,
                                                          min_bytes=1 << 30))
                        + client.frame(PRODUCE, 7, produce_body([("pressed", [(0, batch())])]))
                        + client.frame(API_VERSIONS, 0, b""))
            client.socket.shutdown(socket.SHUT_WR)
            for expected in (1, 2, 3):
                assert client.answer()[0] == expected
            assert client.socket.recv(1) == b""


def reset_in_fetch(address, count):
    """A large answer is under way when the peer resets."""
    for number in range(count):
        client = Client(address)
        client.send(client.frame(FETCH, 7, fetch_body([("large", [(0, 0)])], 16 << 20,
                                                      part_bytes=16 << 20)) * 3)
        client.read(1000 + number * 5000)
        reset(client)


def fetch_wide(address, count):
    """One fetch of many partitions, known and unknown, some of them named many times."""
    with Client(address, timeout=60) as client:
        unknown = [("unknown", [(number, 0) for number in range(count)])]
        found = fetch_answer(client.ask(FETCH, 7, fetch_body(unknown)))
        assert len(found) == count and all(one[2] == UNKNOWN_TOPIC for one in found)
        known = [("wide", [(number % 50, 0) for number in range(count)])]
        begun = time.monotonic()
        found = fetch_answer(client.ask(FETCH, 7, fetch_body(known, wait_ms=200, min_bytes=1 << 30)))
        print(f"a fetch of {count} partitions took {time.monotonic() - begun:.3f} s")
        assert len(found) == count and all(one[2] == NONE for one in found), found[:3]


def fetch_waiters(address, count):
    """Fetches of very many partitions that would wait for an hour: others must have memory to work."""
    clients = []
    for _ in range(count):
        client = Client(address)
        client.send(client.frame(FETCH, 7, fetch_body(
            [("wide", [(number % 50, 0) for number in range(8000)])],
            wait_ms=3600_000, min_bytes=1 << 30)))
        clients.append(client)
    produce_wide(address, 1000)
    produce_large(address, 8)
    fetch_wide(address, 10000)
    for client in clients:
        client.close()


def fetch_storm(address, count):
    """Very many readers wait at the end of one partition: one record wakes each of them, once."""
    clients = [Client(address, timeout=60) for _ in range(count)]
    with Client(address) as writer:
        end = writer.end_offset("pressed", 0)[2]
        for client in clients:
            client.send(client.frame(FETCH, 7, fetch_body([("pressed", [(0, end)])], wait_ms=50_000)))
        assert writer.produce("pressed", 0, batch([b"wakes all"]))[:2] == (NONE, end)
    begun = time.monotonic()
    for client in clients:
        found = fetch_answer(client.answer()[1])
        assert found[0][2] == NONE and found[0][4].count(b"wakes all") == 1, found
    took = time.monotonic() - begun
    # Nobody is answered twice, and those who wait again go in the middle of it.
    for number, client in enumerate(clients):
        client.send(client.frame(API_VERSIONS, 0, b""))
        assert client.answer()[0] == 2
        client.send(client.frame(FETCH, 7, fetch_body([("pressed", [(0, end + 1)])], wait_ms=50_000)))
        if number % 2:
            reset(client)
        else:
            client.close()
    print(f"one record woke {count} readers in {took:.2f} s")


def many_idle(address, count):
    """Ten clients work beside very many that only hold a connection; those are served, too, when they speak."""
    busy = [Client(address, timeout=60) for _ in range(10)]

    def rate():
        begun = time.monotonic()
        for _ in range(50):
            for client in busy:
                assert client.produce("pressed", 0, batch())[0] == NONE
        return 500 / (time.monotonic() - begun)
    alone = max(rate() for _ in range(3))
    idle = [Client(address, timeout=60) for _ in range(count)]
    beside = max(rate() for _ in range(3))
    for client in idle[::max(1, count // 100)]:
        assert client.ask(API_VERSIONS, 0, b"")
    for client in idle + busy:
        client.close()
    print(f"{beside:.0f} requests a second beside {count} idle connections, {alone:.0f} without")


def metadata_wide(address, count):
    """Names that do not exist, and everything there is."""
    with Client(address, timeout=60) as client:
        names = b"".join(text(f"never-{number:06d}") for number in range(count))
        answer = client.ask(METADATA, 4, struct.pack(">i", count) + names + b"\0")
        assert answer.count(b"never-") == count
        answer = client.ask(METADATA, 4, struct.pack(">i", -1) + b"\0")
        assert answer.count(b"many-") == 300, answer.count(b"many-")


def produce_wide(address, count):
    """One produce to many partitions, among them unknown ones and one named twice."""
    with Client(address, timeout=60) as client:
        parts = [(number % 55, batch()) for number in range(count)]
        found = produce_answer(client.ask(PRODUCE, 7, produce_body([("wide", parts)])))
        assert len(found) == count
        for number, (_, partition, error, base) in enumerate(found):
            assert partition == number % 55
            assert error == (NONE if partition < 50 else UNKNOWN_TOPIC), (partition, error)
            assert (base >= 0) == (error == NONE)


def produce_large(address, count):
    """A request of that many MiB over the partitions: larger than any receive window."""
    value = bytes(range(256)) * 3900
    large = batch(values=[value])
    with Client(address, timeout=120) as client:
        for _ in range(2):
            parts = [(number % 50, large) for number in range(count)]
            found = produce_answer(client.ask(PRODUCE, 7, produce_body([("wide", parts)])))
            assert len(found) == count and all(one[2] == NONE for one in found), found[:3]
        _, partition, _, base = found[-1]
        records = client.fetch("wide", partition, base, max_bytes=2 << 20)[3]
        assert records[61:] == large[61:] and records[17:21] == large[17:21]


def fetch_limits(address, _):
    """Limits of zero, negative and beyond any memory."""
    with Client(address, timeout=90) as client:
        def ask(**words):
            found = fetch_answer(client.ask(FETCH, 7, fetch_body([("pressed", [(0, 0)])], **words)))
            assert found[0][2] == NONE, (words, found)
            return len(found[0][4])
        # The first batch always comes, so that a reader gets on (KIP-74).
        for limit in (0, 1, -1, -2**31):
            assert ask(max_bytes=limit) > 0, limit
            assert ask(part_bytes=limit) > 0, limit
        assert ask(max_bytes=2**31 - 1, part_bytes=2**31 - 1) > 0
        begun = time.monotonic()
        assert ask(min_bytes=2**31 - 1, wait_ms=0) > 0
        assert ask(min_bytes=2**31 - 1, wait_ms=-5) > 0
        assert ask(min_bytes=-1, wait_ms=60000) > 0
        assert time.monotonic() - begun < 30, "a fetch waited that had what it asked for"
        for offset, error in ((-1, 1), (2**62, 1), (-2**63, 1)):
            found = fetch_answer(client.ask(FETCH, 7, fetch_body([("pressed", [(0, offset)])])))
            assert found[0][2] == error, (offset, found)


def acks_none(address, _):
    """Without acknowledgement: no answer for what is right, the end of the connection for what is not."""
    with Client(address) as client:
        for _ in range(100):
            client.send(client.frame(PRODUCE, 7, produce_body([("pressed", [(0, batch())])], acks=0)))
        assert client.ask(API_VERSIONS, 0, b"")
        client.send(client.frame(PRODUCE, 7, produce_body([("pressed", [(0, batch(crc=1))])], acks=0)))
        try:
            client.send(client.frame(API_VERSIONS, 0, b""))
            assert client.socket.recv(1) == b""
        except ConnectionError:
            pass


def stagers(address, count):
    """Requests announced as 20 MiB of which nearly nothing comes: they must not keep others from
    theirs for longer than the stall time and what the size explains."""
    held = []
    for _ in range(count):
        client = Client(address)
        body = produce_body([("wide", [(0, b"")])])
        head = client.frame(PRODUCE, 7, body)
        client.send(struct.pack(">i", 20 << 20) + head[4:])
        held.append(client)
    stop = threading.Event()

    def drip():
        while not stop.wait(0.2):
            for client in held:
                try:
                    client.send(b"x")
                except OSError:
                    pass
    dripper = threading.Thread(target=drip)
    dripper.start()
    time.sleep(0.5)
    begun = time.monotonic()
    try:
        produce_large(address, 20)
    finally:
        stop.set()
        dripper.join()
    took = time.monotonic() - begun
    print(f"two requests of 20 MiB took {took:.1f} s beside {count} that drip")
    assert took < 30, took
    for client in held:
        client.close()


ATTACKS = {name.replace("_", "-"): globals()[name] for name in (
    "pipeline", "slow_writers", "storm", "half_close", "reset_in_fetch", "fetch_wide", "fetch_waiters",
    "fetch_storm", "many_idle", "metadata_wide", "produce_wide", "produce_large", "fetch_limits", "acks_none",
    "stagers")}

if __name__ == "__main__":
    many_files(4096 + int(sys.argv[3]))
    ATTACKS[sys.argv[2]](sys.argv[1], int(sys.argv[3]))
