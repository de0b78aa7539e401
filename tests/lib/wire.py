# SPDX-License-Identifier: Apache-2.0
"""A Kafka client of a few lines, independent of the broker's codec, for tests that must say exactly what
goes over the wire: frames, produce and fetch in the old (non-flexible) versions, record batches."""
import socket
import struct

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18


def crc32c_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def uvarint(value):
    out = bytearray()
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value):
    return uvarint((value << 1) ^ (value >> 63))


def record(offset_delta, value, key=None, timestamp_delta=0):
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(-1) if value is None else varint(len(value)) + value
    body += varint(0)
    return varint(len(body)) + body


def batch(values=(b"x",), timestamp=1_700_000_000_000, records=None, crc=None, **fields):
    """A record batch; any header field may be given a (wrong) value by name."""
    payload = records if records is not None else b"".join(
        record(i, value) for i, value in enumerate(values))
    f = {"base_offset": 0, "leader_epoch": -1, "magic": 2, "attributes": 0,
         "last_offset_delta": len(values) - 1, "base_timestamp": timestamp,
         "max_timestamp": timestamp, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
         "records_count": len(values)}
    length = fields.pop("batch_length", None)
    f.update(fields)
    summed = struct.pack(">hiqqqhii", f["attributes"], f["last_offset_delta"], f["base_timestamp"],
                         f["max_timestamp"], f["producer_id"], f["producer_epoch"],
                         f["base_sequence"], f["records_count"]) + payload
    crc = crc32c(summed) if crc is None else crc
    if length is None:
        length = 4 + 1 + 4 + len(summed)
    return struct.pack(">qiibI", f["base_offset"], length, f["leader_epoch"], f["magic"],
                       crc) + summed


def text(value):
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


class Client:
    """One connection. The namespace, when given, is entered by the whole process: run it where the
    listener is reachable."""

    def __init__(self, address, timeout=20):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation = 0

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def frame(self, key, version, body, client="wire"):
        self.correlation += 1
        head = struct.pack(">hhi", key, version, self.correlation) + text(client)
        return struct.pack(">i", len(head) + len(body)) + head + body

    def send(self, data):
        self.socket.sendall(data)

    def read(self, size):
        parts = []
        while size > 0:
            piece = self.socket.recv(min(size, 1 << 20))
            if not piece:
                raise ConnectionError("closed")
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)

    def answer(self):
        """The body of the next answer, behind the correlation id."""
        size = struct.unpack(">i", self.read(4))[0]
        data = self.read(size)
        correlation = struct.unpack(">i", data[:4])[0]
        return correlation, data[4:]

    def ask(self, key, version, body):
        self.send(self.frame(key, version, body))
        correlation, answer = self.answer()
        assert correlation == self.correlation, (correlation, self.correlation)
        return answer

    # --- requests --------------------------------------------------------------------------------
    def produce(self, topic, partition, records, version=7, acks=-1, transactional=None):
        """Returns (error, base offset, append time, log start)."""
        body = text(transactional) + struct.pack(">hii", acks, 10000, 1) + text(topic)
        body += struct.pack(">ii", 1, partition)
        body += struct.pack(">i", -1 if records is None else len(records)) + (records or b"")
        if acks == 0:
            self.send(self.frame(PRODUCE, version, body))
            return None
        answer = self.ask(PRODUCE, version, body)
        at = 4 + 2 + len(topic) + 4 + 4
        error, base, append = struct.unpack_from(">hqq", answer, at)
        start = struct.unpack_from(">q", answer, at + 18)[0] if version >= 5 else None
        return error, base, append, start

    def fetch(self, topic, partition, offset, max_bytes=1 << 20, wait_ms=0, min_bytes=1, version=7):
        """Returns (error, high watermark, log start, record bytes)."""
        answer = self.ask(FETCH, version, self.fetch_body(topic, partition, offset, max_bytes,
                                                          wait_ms, min_bytes))
        at = 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
        error, high, _, start, aborted = struct.unpack_from(">hqqqi", answer, at)
        at += struct.calcsize(">hqqqi") + 16 * max(aborted, 0)
        size = struct.unpack_from(">i", answer, at)[0]
        return error, high, start, answer[at + 4:at + 4 + size]

    @staticmethod
    def fetch_body(topic, partition, offset, max_bytes=1 << 20, wait_ms=0, min_bytes=1):
        body = struct.pack(">iiiibii", -1, wait_ms, min_bytes, max_bytes, 0, 0, -1)
        body += struct.pack(">i", 1) + text(topic)
        return body + struct.pack(">iiqqii", 1, partition, offset, -1, max_bytes, 0)

    def end_offset(self, topic, partition, timestamp=-1):
        """ListOffsets v1: (error, timestamp, offset)."""
        body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, timestamp)
        answer = self.ask(LIST_OFFSETS, 1, body)
        return struct.unpack_from(">hqq", answer, 4 + 2 + len(topic) + 4 + 4)
