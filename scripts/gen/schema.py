# SPDX-License-Identifier: Apache-2.0
"""Reads the files of protocol/schema (notation: protocol/schema/README.md) into plain objects.
Every fault stops with file, line and reason; nothing is guessed."""

import os
import re
from dataclasses import dataclass, field

# name -> (C type, least bytes on the wire or None when it depends on the flexible form)
PLAIN = {
    'bool': ('bool', 1), 'i8': ('int8_t', 1), 'i16': ('int16_t', 2), 'i32': ('int32_t', 4),
    'i64': ('int64_t', 8), 'f64': ('double', 8), 'uuid': ('struct mill_uuid', 16),
    'str': ('struct mill_wstr', None), 'records': ('struct mill_wrecords', None),
    'blob': ('struct mill_wstr', None),
}
ELEMENTS = ('i8', 'i32', 'i64', 'str')  # plain types that may stand in an array
LIMITS = {'i8': 7, 'i16': 15, 'i32': 31, 'i64': 63}  # bits beside the sign


class SchemaError(Exception):
    """A fault in a schema file."""


@dataclass
class Versions:
    """A closed range of versions."""
    low: int
    high: int

    def holds(self, version):
        return self.low <= version <= self.high

    def __iter__(self):
        return iter(range(self.low, self.high + 1))


@dataclass
class Field:
    name: str
    kind: str              # 'plain', 'array' (of plain), 'structs' (array of struct), 'struct'
    type: str              # plain type, '' for structs
    versions: Versions     # where it exists
    null_from: int | None  # first version in which null is allowed
    tag: int | None
    default: str | None
    struct: 'Struct | None' = None

    @property
    def c_type(self):
        if self.kind in ('array', 'structs'):
            return 'struct mill_warray'
        return f'struct {self.struct.name}' if self.struct else PLAIN[self.type][0]

    @property
    def has_presence(self):
        """A struct that may be absent: of the tagged section, or null."""
        return self.kind == 'struct' and (self.tag is not None or self.null_from is not None)

    def least_bytes(self, version, flexible_from):
        """Fewest bytes of the field in line, where it exists."""
        flexible = version >= flexible_from
        if self.kind == 'struct':
            return 1 if self.has_presence else self.struct.least_bytes(version, flexible_from)
        if self.kind in ('array', 'structs'):
            return 1 if flexible else 4
        size = PLAIN[self.type][1]
        if size is None:
            size = 1 if flexible else (2 if self.type == 'str' else 4)
        return size


@dataclass
class Struct:
    name: str          # C name with prefix
    role: str          # 'message', 'element', 'member'
    versions: Versions
    fields: list = field(default_factory=list)

    @property
    def inline(self):
        return [f for f in self.fields if f.tag is None]

    @property
    def tagged(self):
        return [f for f in self.fields if f.tag is not None]

    def least_bytes(self, version, flexible_from):
        """Fewest bytes of one such struct in this version."""
        total = sum(f.least_bytes(version, flexible_from)
                    for f in self.inline if f.versions.holds(version))
        return total + (1 if version >= flexible_from else 0)

    def walk(self):
        """Inner structs first, then this one: the order in which C wants them."""
        for f in self.fields:
            if f.struct:
                yield from f.struct.walk()
        yield self


@dataclass
class Api:
    key: int
    name: str
    snake: str
    versions: Versions
    advertised_min: int
    flexible_from: int
    place: str
    request: Struct
    response: Struct


class Reader:
    """Line by line; indentation of four spaces nests."""

    def __init__(self, path):
        self.path = path
        self.lines = []
        with open(path, encoding='utf-8') as file:
            for number, line in enumerate(file, 1):
                text = line.split('#')[0].rstrip()
                if text:
                    self.lines.append((number, text))
        self.at = 0

    def fail(self, number, reason):
        raise SchemaError(f'{os.path.basename(self.path)}:{number}: {reason}')

    def head(self):
        """The words before `request`."""
        words = {}
        while self.at < len(self.lines) and self.lines[self.at][1] != 'request':
            number, text = self.lines[self.at]
            key, _, value = text.partition(' ')
            if key not in ('api', 'versions', 'advertised', 'flexible', 'place') or key in words:
                self.fail(number, f'unknown or repeated word {key}')
            words[key] = value.strip()
            self.at += 1
        for key in ('api', 'versions', 'flexible', 'place'):
            if key not in words:
                self.fail(1, f'{key} is missing')
        return words

    def section(self, word, name, versions):
        if self.at >= len(self.lines) or self.lines[self.at][1] != word:
            self.fail(self.lines[min(self.at, len(self.lines) - 1)][0], f'{word} expected here')
        self.at += 1
        struct = Struct(name, 'message', versions)
        self.fields(struct, 4)
        return struct

    def fields(self, struct, indent):
        while self.at < len(self.lines):
            number, text = self.lines[self.at]
            depth = len(text) - len(text.lstrip())
            if depth < indent:
                return
            if depth > indent:
                self.fail(number, 'indented without a struct above')
            self.at += 1
            made = self.field(number, text.strip(), struct)
            if any(f.name == made.name for f in struct.fields):
                self.fail(number, f'{made.name} stands twice')
            if made.tag is None and struct.tagged:
                self.fail(number, 'tagged fields come last')
            if made.tag is not None and made.tag != len(struct.tagged):
                self.fail(number, 'tags count up from 0')
            struct.fields.append(made)
            if made.struct:
                self.fields(made.struct, indent + 4)
                if not made.struct.fields:
                    self.fail(number, 'a struct without fields')

    def field(self, number, text, parent):
        match = re.fullmatch(
            r'(?P<name>[a-z0-9_]+)\s+(?P<form>\[\]|\{\})?(?P<type>[a-z0-9]*)'
            r'(?P<null>\?(?:(?P<from>\d+)\+)?)?'
            r'(?:\s+v(?P<low>\d+)(?:(?P<open>\+)|-(?P<high>\d+)))?'
            r'(?:\s+tag (?P<tag>\d+))?(?:\s+= (?P<default>\S+))?', text)
        if not match:
            self.fail(number, f'not a field: {text}')
        versions = Versions(parent.versions.low, parent.versions.high)
        if match['low']:
            versions.low = int(match['low'])
            if match['high']:
                versions.high = int(match['high'])
        if not parent.versions.low <= versions.low <= versions.high <= parent.versions.high:
            self.fail(number, 'versions outside those of the struct around it')
        null_from = None
        if match['null']:
            null_from = int(match['from']) if match['from'] else versions.low
        made = Field(match['name'], self.kind(number, match), match['type'], versions, null_from,
                     int(match['tag']) if match['tag'] else None, match['default'])
        self.check(number, made)
        if made.kind in ('structs', 'struct'):
            role = 'element' if made.kind == 'structs' else 'member'
            made.struct = Struct(f'{parent.name}_{made.name}', role, versions)
        return made

    def kind(self, number, match):
        if match['type'] and match['type'] not in PLAIN:
            self.fail(number, f'unknown type {match["type"]}')
        if match['form'] == '[]':
            if match['type'] and match['type'] not in ELEMENTS:
                self.fail(number, f'no arrays of {match["type"]}')
            return 'array' if match['type'] else 'structs'
        if match['form'] == '{}':
            if match['type']:
                self.fail(number, 'a struct has no type')
            return 'struct'
        if not match['type']:
            self.fail(number, 'type missing')
        return 'plain'

    def check(self, number, made):
        nullable = (made.kind in ('array', 'structs') or made.type in ('str', 'records', 'blob')
                    or (made.kind == 'struct' and made.tag is None))
        if made.null_from is not None and not nullable:
            self.fail(number, f'{made.name} cannot be null')
        if made.kind == 'struct' and made.null_from not in (None, made.versions.low):
            self.fail(number, 'a struct may be null in all its versions or in none')
        if made.tag is not None and made.type == 'f64':
            self.fail(number, 'f64 cannot stand in the tagged section')
        if made.tag is not None and made.type in ('records', 'blob'):
            self.fail(number, f'{made.type} cannot stand in the tagged section')
        if made.default is None:
            return
        if made.kind != 'plain' or made.type not in (*LIMITS, 'bool'):
            self.fail(number, 'only numbers and bool have a default')
        if made.type == 'bool':
            if made.default != 'true':
                self.fail(number, 'false is the default anyhow')
        else:
            bits = LIMITS[made.type]
            if not -(1 << bits) <= int(made.default, 0) < (1 << bits):
                self.fail(number, f'{made.default} does not fit {made.type}')


def snake_case(name):
    return re.sub(r'(?<!^)(?=[A-Z])', '_', name).lower()


def read_api(path):
    """One schema file."""
    reader = Reader(path)
    words = reader.head()
    key, name = words['api'].split()
    low, high = (int(v) for v in words['versions'].split('-'))
    flexible = 32767 if words['flexible'] == 'never' else int(words['flexible'])
    if words['place'] not in ('core', 'control'):
        reader.fail(1, f'unknown place {words["place"]}')
    snake = snake_case(name)
    versions = Versions(low, high)
    request = reader.section('request', f'mill_{snake}_request', versions)
    response = reader.section('response', f'mill_{snake}_response', versions)
    if reader.at != len(reader.lines):
        reader.fail(reader.lines[reader.at][0], 'nothing may follow the response')
    api = Api(int(key), name, snake, versions, int(words.get('advertised', low)), flexible,
              words['place'], request, response)
    for message in (request, response):
        for struct in message.walk():
            for made in struct.tagged:
                if made.versions.low < flexible:
                    reader.fail(1, f'{made.name} is tagged below the first flexible version')
            if struct.role == 'element':
                for version in struct.versions:
                    if struct.least_bytes(version, flexible) < 1:
                        reader.fail(1, f'{struct.name} has no bytes in version {version}')
    return api


@dataclass
class ErrorCode:
    code: int
    name: str
    retry: bool


def read_errors(path):
    """The list of error codes."""
    reader = Reader(path)
    errors = []
    for number, text in reader.lines:
        match = re.fullmatch(r'(-?\d+)\s+([A-Z_]+)(\s+retry)?', text)
        if not match:
            reader.fail(number, f'not an error code: {text}')
        if errors and errors[-1].code >= int(match[1]):
            reader.fail(number, 'codes must ascend')
        errors.append(ErrorCode(int(match[1]), match[2], bool(match[3])))
    return errors
