# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every script needs: where the tree is, how to say and how to fail. Sourced, never run.

# shellcheck disable=SC2034 # used by who sources this
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The distribution's own Python and tools, whatever else is installed.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

fail() {
    say "$*"
    exit 1
}

need_root() {
    [ "$(id -u)" = 0 ] || fail "needs root: $1"
}
