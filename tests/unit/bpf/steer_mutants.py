#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""TEST_PROGRAM MUTANT=OBJECT...: the packet tests fail on each broken steering program, in the function that
guards what it breaks."""
import re
import subprocess
import sys

GUARDS = {
    "any-port": "test_ports_of_listeners_are_ours_others_not",
    "any-address": "test_other_address_is_the_kernels",
    "protocol": "test_feed_group_is_ours_by_udp_only",
    "truncated": "test_malformed_is_the_kernels",
    "options": "test_options_are_skipped",
    "fragments": "test_fragments_are_the_kernels",
    "no-socket": "test_queue_without_socket_is_the_kernels",
    "syn-free": "test_syn_limit_is_per_source_and_refills",
    "syn-shared": "test_syn_limit_is_per_source_and_refills",
    "syn-answers": "test_syn_limit_is_per_source_and_refills",
    "syn-dry": "test_syn_limit_is_per_source_and_refills",
}


def main():
    program = sys.argv[1]
    objects = dict(word.split("=", 1) for word in sys.argv[2:])
    assert set(objects) == set(GUARDS), set(objects) ^ set(GUARDS)
    for name, path in objects.items():
        done = subprocess.run([program, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, check=False)
        failed = set(re.findall(r"\[  FAILED  \] (\w+)", done.stdout))
        assert done.returncode != 0 and GUARDS[name] in failed, f"{name} was not noticed:\n{done.stdout}"
        print(f"{name}: {' '.join(sorted(failed - {'tests'}))}")


if __name__ == "__main__":
    main()
