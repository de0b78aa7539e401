#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a fault in a schema stops the build with its line and reason, and never generates code.
Method: one right schema; each case changes one line of it."""

import os
import sys
import tempfile

sys.path.insert(0, sys.argv[1])
import schema  # noqa: E402  (its folder is the argument)

RIGHT = '''api 99 Sample
versions 1-4
flexible 3
place core
request
    name    str?2+
    items   []
        id  i32  v2-3  = -1
        on  bool  = true
    extra   i64  v3+  tag 0
response
    error_code  i16
'''
CASES = [
    ('versions 1-4', '', 'versions is missing'),
    ('place core', 'place moon', 'unknown place moon'),
    ('flexible 3', 'flexible 3\nflexible 4', 'repeated word flexible'),
    ('name    str?2+', 'name    text', 'unknown type text'),
    ('name    str?2+', 'name    i32?', 'name cannot be null'),
    ('name    str?2+', 'name    str  = 3', 'only numbers and bool have a default'),
    ('id  i32  v2-3  = -1', 'id  i8  = 128', '128 does not fit i8'),
    ('id  i32  v2-3  = -1', 'id  i32  v0-3', 'versions outside'),
    ('id  i32  v2-3  = -1', 'on  i32', 'on stands twice'),
    ('        id  i32  v2-3  = -1\n        on  bool  = true\n', '', 'without fields'),
    ('on  bool  = true', 'on  bool  = false', 'false is the default'),
    ('on  bool  = true', 'on  bool  v3+', 'has no bytes in version 1'),
    ('extra   i64  v3+  tag 0', 'extra   i64  v2+  tag 0', 'below the first flexible version'),
    ('extra   i64  v3+  tag 0', 'extra   i64  v3+  tag 1', 'tags count up from 0'),
    ('extra   i64  v3+  tag 0', 'extra   records  v3+  tag 0', 'cannot stand in the tagged'),
    ('extra   i64  v3+  tag 0', 'extra   []uuid', 'no arrays of uuid'),
    ('extra   i64  v3+  tag 0', 'extra   {}?4+\n        x  i8', 'null in all its versions or in none'),
    ('extra   i64  v3+  tag 0', 'extra   {}?  v3+  tag 0\n        x  i8', 'extra cannot be null'),
    ('extra   i64  v3+  tag 0', 'extra   f64  v3+  tag 0', 'f64 cannot stand in the tagged'),
    ('response', 'answer', 'response expected here'),
]


def read(text):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'sample.schema')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return schema.read_api(path)


def main():
    api = read(RIGHT)
    items = api.request.fields[1].struct
    assert [items.least_bytes(v, api.flexible_from) for v in (1, 2, 3, 4)] == [1, 5, 6, 2]
    inline = read(RIGHT.replace('id  i32  v2-3  = -1', 'in  {}\n            x  i32').replace(
        'on  bool  = true', 'may  {}?\n            y  i64')).request.fields[1].struct
    assert [inline.least_bytes(v, 3) for v in (2, 3)] == [5, 7]
    assert [f.has_presence for f in inline.fields] == [False, True]
    assert api.request.tagged[0].name == 'extra' and api.request.fields[0].null_from == 2
    failed = 0
    for old, new, reason in CASES:
        if old not in RIGHT:
            sys.exit(f'the case does not apply: {old}')
        try:
            read(RIGHT.replace(old, new))
            said = 'nothing'
        except schema.SchemaError as fault:
            said = str(fault)
        if reason not in said:
            print(f'{new!r}: said "{said}" instead of "{reason}"')
            failed += 1
    print(f'{len(CASES)} cases, {failed} failed')
    sys.exit(1 if failed else 0)


main()
