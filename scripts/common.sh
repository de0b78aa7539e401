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

# Those of the named Debian packages that are not installed.
missing_of() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            printf '%s\n' "$package"
    done
}

# Installs the named Debian packages that are missing; asks nobody when none is.
install_packages() {
    local missing
    mapfile -t missing < <(missing_of "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    need_root "packages are missing: ${missing[*]}"
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        >/dev/null
}
