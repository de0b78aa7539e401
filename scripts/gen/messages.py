#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the Kafka codec from protocol/schema; run by meson into the build folder.

    messages.py api    SCHEMA OUT.h OUT.c      one API: structs, decode, encode
    messages.py table  OUT.h OUT.c SCHEMA...   messages.h, and the table of APIs
    messages.py errors ERRORS OUT.h OUT.c      enum mill_kerr, names
    messages.py test   OUT.c SCHEMA...         the table of the codec's tests
"""

import os
import re
import sys

import jinja2

import schema


def condition(made, around):
    """C text that is true where the field exists inside a struct of these versions; '' always."""
    parts = []
    if made.versions.low > around.low:
        parts.append(f'version >= {made.versions.low}')
    if made.versions.high < around.high:
        parts.append(f'version <= {made.versions.high}')
    return ' && '.join(parts)


def nullable(made):
    """C text: may it be null?"""
    if made.null_from is None:
        return 'false'
    return 'true' if made.null_from <= made.versions.low else f'version >= {made.null_from}'


def default(made):
    """C text of the default of a plain field of a number type."""
    if made.type == 'bool':
        return 'true' if made.default else 'false'
    if made.type == 'f64':
        return '0'
    value = int(made.default or '0', 0)
    bits = schema.LIMITS[made.type]
    if value == -(1 << bits):
        return f'INT{bits + 1}_MIN'
    if value == (1 << bits) - 1:
        return f'INT{bits + 1}_MAX'
    return str(value)


def null_by_default(made):
    return made.null_from is not None and made.null_from <= made.versions.low


def least(struct, api):
    """C text: fewest bytes of an element, by version."""
    steps = []
    for version in struct.versions:
        size = struct.least_bytes(version, api.flexible_from)
        if not steps or steps[-1][1] != size:
            steps.append((version, size))
    text = ''
    for version, size in reversed(steps[1:]):
        text += f'version >= {version} ? {size} : '
    return text + str(steps[0][1])


def is_set(made):
    """C text: must a tagged field of message x be written?"""
    name = f'x->{made.name}'
    if made.kind == 'struct':
        return f'x->has_{made.name}'
    if made.kind in ('array', 'structs'):
        return f'{name}.count {">= 0" if null_by_default(made) else "!= 0"}'
    if made.type == 'str':
        return f'{name}.length {">= 0" if null_by_default(made) else "!= 0"}'
    if made.type == 'uuid':
        return f'!mill_uuid_is_zero(&{name})'
    return name if made.type == 'bool' and not made.default else f'{name} != {default(made)}'


def throttle_from(api):
    """C text: first version whose answer begins with throttle_time_ms."""
    first = api.response.fields[0]
    return first.versions.low if first.name == 'throttle_time_ms' else 'INT16_MAX'


def short(struct):
    """Name of a struct inside its own file, for static functions."""
    return re.search(r'(request|response).*', struct.name)[0]


def render(template, out, **values):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'templates')
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.globals.update(condition=condition, nullable=nullable, default=default,
                               null_by_default=null_by_default, least=least, is_set=is_set,
                               short=short, throttle_from=throttle_from)
    with open(out, 'w', encoding='utf-8') as file:
        file.write(environment.get_template(template).render(**values))


def read_all(paths):
    apis = sorted((schema.read_api(path) for path in paths), key=lambda api: api.key)
    for a, b in zip(apis, apis[1:]):
        if a.key == b.key:
            raise schema.SchemaError(f'{a.name} and {b.name} have the same key')
    return apis


def main(arguments):
    match arguments:
        case ['api', source, header, code]:
            values = {'api': schema.read_api(source), 'source': os.path.basename(source)}
            render('api.h.j2', header, **values)
            render('api.c.j2', code, **values)
        case ['table', header, code, *sources]:
            apis = read_all(sources)
            render('messages.h.j2', header, apis=apis)
            render('apis.c.j2', code, apis=apis)
        case ['errors', source, header, code]:
            errors = schema.read_errors(source)
            render('errors.h.j2', header, errors=errors)
            render('errors.c.j2', code, errors=errors)
        case ['test', code, *sources]:
            render('codec_table.c.j2', code, apis=read_all(sources))
        case _:
            sys.exit(__doc__)


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except schema.SchemaError as fault:
        sys.exit(f'messages.py: {fault}')
