#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: man pages and completion are those of the program: every command and option that its help
# shows stands in millrace(1), and bash completes it. Method: the words of `millrace help` are looked
# up in what the generator writes, and the completion is loaded and asked. Arguments: millrace, docs.
set -u
millrace=$1 docs=$2
dir=$(mktemp -d /tmp/millrace-test-XXXXXX)
trap 'rm -r "$dir"' EXIT
failed=0
fail() {
    echo "FAILED: $*" >&2
    failed=1
}

for page in man1 man5 bash; do
    "$docs" $page >"$dir/$page" || fail "docs $page"
done
# As a reader sees it: without roff's escapes.
sed 's/\\f[A-Z]//g; s/\\-/-/g; s/\\(aq/'"'"'/g; s/\\&//g; s/\\e/\\/g' "$dir/man1" >"$dir/plain"
# shellcheck disable=SC1091 # made above
source "$dir/bash" || fail "the completion cannot be read"

# offered WORD...: what bash offers for the last one.
offered() {
    COMP_WORDS=(millrace "$@")
    COMP_CWORD=$#
    _millrace
    echo " ${COMPREPLY[*]} "
}

"$millrace" help | sed -n 's/^  \([a-z].*\)$/\1/p' | sed 's/   *.*//' >"$dir/commands"
[ "$(wc -l <"$dir/commands")" -ge 20 ] || fail "help shows $(wc -l <"$dir/commands") commands"
while read -r first second; do
    name="$first${second:+ $second}"
    grep -q "^\.SS $name\( \|$\)" "$dir/plain" || fail "millrace(1) has no $name"
    [[ $(offered "$first") == *" $first "* ]] || fail "bash does not offer $first"
    [ -z "$second" ] || [[ $(offered "$first" "$second") == *" $second "* ]] || fail "bash does not offer $name"
    # shellcheck disable=SC2086 # one or two words
    "$millrace" help $name | sed -n 's/^  \(--\?[A-Za-z][a-z-]*\).*/\1/p' >"$dir/options"
    section=$(sed -n "/^\.SS $name\( \|$\)/,/^\.S[SH] /p" "$dir/plain" | sed '$d')
    # shellcheck disable=SC2086
    words=$(offered $name -)
    while read -r option; do
        grep -q -- "^$option\( \|$\)" <<<"$section" || fail "millrace(1): $name has no $option"
        [[ $words == *" $option "* ]] || fail "bash does not offer $name $option"
    done <"$dir/options"
done <"$dir/commands"

[[ $(offered topic list -o '') == " table json " ]] || fail "-o: $(offered topic list -o '')"
[[ $(offered topic trim --before e) == " end " ]] || fail "--before: $(offered topic trim --before e)"
[[ $(offered help topic d) == " describe delete " ]] || fail "help topic: $(offered help topic d)"
[[ $(offered start -c "$dir/ma") == *" $dir/man5 "* ]] || fail "-c: $(offered start -c "$dir/ma")"
[ "$(offered produce -t '')" = "  " ] || fail "a topic's name is not known here: $(offered produce -t '')"
[ "$(offered frobnicate -)" = "  " ] || fail "an unknown command has options"
if command -v man >/dev/null; then
    for page in man1 man5; do
        said=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$dir/$page" 2>&1 >/dev/null)
        [ -z "$said" ] || fail "$page: $said"
    done
fi
[ $failed = 0 ] && echo "$(wc -l <"$dir/commands") commands in help, millrace(1) and bash"
exit $failed
