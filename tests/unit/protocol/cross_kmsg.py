#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds cross_kmsg and feeds it our messages. Exit 77 (skipped, with the reason) without Go or
without the module."""

import os
import shutil
import subprocess
import sys
import tempfile


def main(program):
    go = shutil.which('go', path=os.environ['PATH'] + ':/usr/local/go/bin')
    if not go:
        print('skipped: go is not installed')
        return 77
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'cross_kmsg')
    with tempfile.TemporaryDirectory() as folder:
        reader = os.path.join(folder, 'cross_kmsg')
        fetched = subprocess.run([go, 'mod', 'download'], cwd=source, check=False)
        if fetched.returncode:
            print('skipped: the module franz-go/pkg/kmsg cannot be had')
            return 77
        subprocess.run([go, 'build', '-o', reader, '.'], cwd=source, check=True)
        lines = subprocess.run([program], check=True, capture_output=True).stdout
        return subprocess.run([reader], input=lines, check=False).returncode


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
