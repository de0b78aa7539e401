# SPDX-License-Identifier: Apache-2.0
"""Requests and answers as trees of Python values, by the files of protocol/schema: structs are dicts, arrays are
lists, text is str, null is None. A codec beside the generated one, so that a test can say anything of any API in
any version."""
import glob
import os
import struct
import sys
import uuid

from lib.broker import TOP

sys.path.insert(0, os.path.join(TOP, "scripts/gen"))
import schema  # pylint: disable=wrong-import-position

NUMBERS = {"i8": ">b", "i16": ">h", "i32": ">i", "i64": ">q", "bool": ">?", "f64": ">d"}
API_VERSIONS = 18


def apis():
    """Every API of ours, by key."""
    files = glob.glob(os.path.join(TOP, "protocol/schema/*.schema"))
    return {api.key: api for api in map(schema.read_api, sorted(files))}


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        assert 0 <= count <= len(self.data) - self.at, f"{count} bytes at {self.at} of {len(self.data)}"
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


def uvarint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_out(count, flexible, form):
    """Of text, bytes or an array; None: null."""
    if flexible:
        return uvarint(0 if count is None else count + 1)
    return struct.pack(form, -1 if count is None else count)


def length_in(reader, flexible, form):
    count = reader.uvarint() - 1 if flexible else reader.number(form)
    return None if count < 0 else count


def plain_out(kind, value, flexible):
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    if kind == "uuid":
        return value.bytes
    data = value.encode() if isinstance(value, str) else value
    return length_out(None if data is None else len(data), flexible, ">h" if kind == "str" else ">i") + (data or b"")


def plain_in(reader, kind, flexible):
    if kind in NUMBERS:
        return reader.number(NUMBERS[kind])
    if kind == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    count = length_in(reader, flexible, ">h" if kind == "str" else ">i")
    data = None if count is None else reader.take(count)
    return data.decode() if kind == "str" and data is not None else data


def field_out(field, value, version, flexible):
    if field.kind == "plain":
        return plain_out(field.type, value, flexible)
    if field.kind == "struct":
        mark = b"" if field.null_from is None else struct.pack(">b", -1 if value is None else 1)
        return mark + (b"" if value is None else struct_out(field.struct, value, version, flexible))
    items = None if value is None else len(value)
    out = length_out(items, flexible, ">i")
    for item in value or ():
        out += struct_out(field.struct, item, version, flexible) if field.struct else \
            plain_out(field.type, item, flexible)
    return out


def field_in(reader, field, version, flexible):
    if field.kind == "plain":
        return plain_in(reader, field.type, flexible)
    if field.kind == "struct":
        if field.null_from is not None and reader.number(">b") < 0:
            return None
        return struct_in(reader, field.struct, version, flexible)
    count = length_in(reader, flexible, ">i")
    if count is None:
        return None
    return [struct_in(reader, field.struct, version, flexible) if field.struct else
            plain_in(reader, field.type, flexible) for _ in range(count)]


def struct_out(of, values, version, flexible):
    out = b"".join(field_out(field, values[field.name], version, flexible) for field in of.inline
                   if field.versions.holds(version))
    if flexible:
        tagged = [(field.tag, field_out(field, values[field.name], version, flexible)) for field in of.tagged
                  if field.versions.holds(version) and field.name in values]
        out += uvarint(len(tagged))
        for tag, data in tagged:
            out += uvarint(tag) + uvarint(len(data)) + data
    return out


def struct_in(reader, of, version, flexible):
    values = {field.name: field_in(reader, field, version, flexible) for field in of.inline
              if field.versions.holds(version)}
    if flexible:
        known = {field.tag: field for field in of.tagged if field.versions.holds(version)}
        for _ in range(reader.uvarint()):
            tag = reader.uvarint()
            body = Reader(reader.take(reader.uvarint()))
            if tag in known:
                values[known[tag].name] = field_in(body, known[tag], version, flexible)
    return values


def request(api, version, values, correlation=1, client="test"):
    """A whole frame, without its size."""
    flexible = version >= api.flexible_from
    head = struct.pack(">hhi", api.key, version, correlation) + plain_out("str", client, False)
    return head + (b"\0" if flexible else b"") + struct_out(api.request, values, version, flexible)


def answer(api, version, data):
    """ret: what an answer behind its correlation id says; every byte of it must be understood."""
    flexible = version >= api.flexible_from
    reader = Reader(data)
    if flexible and api.key != API_VERSIONS:
        for _ in range(reader.uvarint()):
            reader.uvarint()
            reader.take(reader.uvarint())
    values = struct_in(reader, api.response, version, flexible)
    assert reader.at == len(data), f"{api.name} {version}: {len(data) - reader.at} bytes are left"
    return values
