#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: start, status, stop and their exit codes and words. Method: the real millrace and supervisor
# with fake children in a scratch folder; no root, no hugepages. Arguments: millrace,
# millrace-supervisor, fake_child.
# shellcheck disable=SC2086 # $settings is several words on purpose
set -u
dir=$(mktemp -d /tmp/millrace-test-XXXXXX)
mkdir "$dir/bin"
cp "$1" "$dir/bin/millrace"
cp "$2" "$dir/bin/millrace-supervisor"
cp "$3" "$dir/bin/millraced"
cp "$3" "$dir/bin/millrace-control"
cd "$dir" || exit 1
settings="--set run.dir=run --set log.dirs=data --set hugepages=off"
failed=0

# want CODE WORDS COMMAND...: the exit code, and words in what is said.
want() {
    code=$1 words=$2
    shift 2
    said=$("$@" 2>&1)
    got=$?
    if [ "$got" != "$code" ] || ! printf '%s' "$said" | grep -qF -- "$words"; then
        echo "FAILED: $* gave $got, wanted $code and \"$words\": $said" >&2
        failed=1
    fi
}

m=bin/millrace
want 2 "usage: millrace" $m
want 2 'unknown command "docter"' $m docter
want 0 "millrace " $m version
want 0 "--detach" $m start --help
want 0 "topic describe" $m help topic
want 0 "topic describe" $m topic --help
want 0 "--if-exists" $m topic delete --help
want 2 'unknown command "topic frob"' $m topic frob --help
want 2 "millrace: absent.properties: cannot be read: No such file" $m check -c absent.properties
want 2 "which file?" $m check
want 2 "needs 0, 1 or all, not" $m produce -t t --acks 7
want 2 "option -K needs a delimiter" $m produce -t t -K ""
printf 'node.id=2\nlisteners=SSL://127.0.0.1:1\n' >bad.properties
want 2 "bad.properties:2: listeners: SSL has protocol SSL" $m check -c bad.properties
want 2 "bad.properties:2: listeners: SSL has protocol SSL" $m start -c bad.properties
[ ! -e run ] || { echo "FAILED: a wrong start left something" >&2; failed=1; }
want 1 "no instance is running in" $m status $settings
want 0 "nothing runs in" $m stop $settings
want 0 "millrace: ready LOCAL=127.0.0.1:9092" $m start $settings --detach
want 0 '"state": "serving"' $m status --dir run -o json
want 0 "dataplane: pid=" $m status $settings
want 2 "needs table or json" $m status --dir run -o xml
want 2 "not both" $m status --dir run -c bad.properties
# Who may not look is not told that nothing runs.
chmod 755 "$dir"
chmod 700 run
other=
[ "$(id -u)" = 0 ] && other="setpriv --reuid 65534 --regid 65534 --clear-groups" || chmod 000 run
want 1 "Permission denied; ask as" $other $m status --dir run
want 1 "Permission denied; ask as" $other $m stop --dir run
chmod 755 run
want 1 "is in use by process $(cat run/supervisor.pid)" $m start $settings --detach
want 0 "stopped the instance in" $m stop --dir run
want 0 "nothing runs in" $m stop --dir run
echo permanent >run/millraced.act
want 1 "fake: device gone" $m start $settings --detach
want 0 "nothing runs in" $m stop --dir run
rm -r "$dir"
exit $failed
