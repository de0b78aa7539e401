# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the tracked files, C text without its comments, and how a breach is told."""

import os
import re
import subprocess
import sys


def tracked(*patterns):
    """Tracked files that exist, as paths from the root; the working folder becomes the root."""
    root = subprocess.run(['git', 'rev-parse', '--show-toplevel'], check=True,
                          capture_output=True, text=True).stdout.strip()
    os.chdir(root)
    names = subprocess.run(['git', 'ls-files', '-z', '--', *patterns], check=True,
                           capture_output=True, text=True).stdout
    return [name for name in names.split('\0') if name and os.path.isfile(name)]


def text_of(path):
    """The file's text, or None when it is not text."""
    with open(path, 'rb') as file:
        data = file.read()
    if b'\0' in data:
        return None
    return data.decode('utf-8', 'replace')


def interpreter(path):
    """First line of a script ('#!...'), or ''."""
    with open(path, 'rb') as file:
        first = file.readline(200)
    return first.decode('utf-8', 'replace').strip() if first.startswith(b'#!') else ''


COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                               re.S)


def without_comments(text, strings=True):
    """C text with comments (and, if wanted, the insides of strings) blanked; lines stay in place."""
    def blank(match):
        found = match.group(0)
        if found[0] == '/' or strings:
            return re.sub(r'[^\n]', ' ', found)
        return found
    return COMMENT_OR_STRING.sub(blank, text)


def finish(name, breaches):
    """Prints (path, line, message) breaches and ends with 1 when there are any."""
    for path, line, message in breaches:
        print(f'{path}:{line}: {message}')
    if breaches:
        print(f'{name}: {len(breaches)} breaches', file=sys.stderr)
    sys.exit(1 if breaches else 0)
