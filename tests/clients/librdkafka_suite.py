#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: librdkafka's own tests, those of 2.0.2 that need a broker, pass against Millrace.

Method: tests/clients/setup builds them from the distribution's source package. Each test, or each part of those that
have some that cannot be, is a process of its own; several run at once, since most wait most of their time. Topics have
four partitions and make themselves, as the tests' default scenario has it; those of the scenario without have a
broker of their own. kafka-topics.sh, which some call, is Kafka 4.4's. The default run has those that take few seconds.
A full run also asks the program for the names of all its tests: each one is in AREAS or in LEFT_OUT, or needs no
broker. The table goes to docs/compatibility.md.

librdkafka_suite.py [WORD...]: only tests that have such a word in their names"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

from lib import compat
from lib.broker import FULL, TOP, Broker, skip

DIR = os.path.join(TOP, "build/clients/librdkafka")
JARS = os.path.join(TOP, "build/clients/java/lib/*")
AT_ONCE = 6
LIMIT_S = 900
SLOWNESS = 5  # the tests' own limits are for a machine that does nothing else
# Some make a topic in one try, while all CPUs are busy.
SETTINGS = {"num.partitions": "4", "control.request.timeout.ms": "30000"}
VERSION = "4.4.0.0"
OLD = {"0109_auto_create_topics": "2.0.0.0"}  # else it denies access to a topic
WITHOUT_AUTO_CREATE = ("0111_delay_create_topics",
                       "0045_subscribe_update_non_exist_and_partchange/do_test_non_exist")

# A name with a slash is a part of a test: a subtest, by words of its name.
AREAS = {
    "producing": "0001_multiobj 0002_unkpart 0003_msgmaxsize 0005_order 0007_autotopic 0008_reqacks "
                 "0011_produce_batch 0012_produce_consume 0013_null_msgs 0017_compression 0044_partition_cnt "
                 "0048_partitioner 0055_producer_latency 0065_yield 0070_null_empty 0073_headers 0085_headers "
                 "0086_purge_remote 0090_idempotence 0110_batch_size 0114_sticky_partitioning 0125_immediate_flush",
    "consuming": "0014_reconsume_191 0015_offsets_seek 0021_rkt_destroy 0022_consume_batch 0026_consume_pause "
                 "0029_assign_offset 0031_get_offsets 0034_offset_reset 0036_partial_fetch 0038_performance "
                 "0039_event_dr 0040_io_event 0041_fetch_max_bytes 0042_many_topics 0051_assign_adds 0054_offset_time "
                 "0057_invalid_topic 0059_bsearch 0060_op_prio 0061_consumer_lag 0064_interceptors 0067_empty_topic "
                 "0082_fetch_max_bytes 0083_cb_event 0084_destroy_flags 0093_holb_consumer 0109_auto_create_topics "
                 "0112_assign_unknown_part 0137_barrier_batch_consume",
    "groups": "0018_cgrp_term 0019_list_groups 0020_destroy_hang 0030_offset_commit 0033_regex_subscribe "
              "0045_subscribe_update 0045_subscribe_update_non_exist_and_partchange/do_test_non_exist "
              "0050_subscribe_adds 0056_balanced_group_mt 0069_consumer_add_parts 0089_max_poll_interval "
              "0091_max_poll_interval_timeout 0099_commit_metadata 0102_static_group_rebalance "
              "0113_cooperative_rebalance/a_assign 0113_cooperative_rebalance/b_subscribe_with_cb "
              "0113_cooperative_rebalance/c_subscribe_no_cb 0113_cooperative_rebalance/d_change_subscription "
              "0113_cooperative_rebalance/e_change_subscription 0113_cooperative_rebalance/f_assign_call "
              "0113_cooperative_rebalance/g_incremental_assign 0113_cooperative_rebalance/k_add_partition "
              "0113_cooperative_rebalance/l_unsubscribe 0113_cooperative_rebalance/m_unsubscribe "
              "0113_cooperative_rebalance/s_subscribe_when_rebalancing "
              "0113_cooperative_rebalance/t_max_poll_interval "
              "0113_cooperative_rebalance/u_multiple_subscription_changes "
              "0113_cooperative_rebalance/v_commit_during_rebalance "
              "0113_cooperative_rebalance/x_incremental_rebalances "
              "0118_commit_rebalance 0122_buffer_cleaning_after_rebalance 0130_store_offsets 0132_strategy_ordering",
    "transactions": "0103_transactions/basic_producer_txn 0103_transactions/consumer_producer_txn "
                    "0103_transactions/fenced_txn 0103_transactions/empty_txn "
                    "0103_transactions/wmark_isolation_level 0129_fetch_aborted_msgs",
    "administration": "0111_delay_create_topics 0081_admin/CreateTopics 0081_admin/DeleteTopics "
                      "0081_admin/CreatePartitions 0081_admin/DescribeConfigs 0081_admin/DeleteRecords "
                      "0081_admin/ListConsumerGroups 0081_admin/DescribeConsumerGroups 0081_admin/DeleteGroups "
                      "0081_admin/DeleteConsumerGroupOffsets 0081_admin/AlterConsumerGroupOffsets "
                      "0081_admin/ListConsumerGroupOffsets 0081_admin/unclean_destroy",
    "connections": "0016_client_swname 0035_api_version 0049_consume_conn_close 0053_stats 0063_clusterid "
                   "0068_produce_timeout 0075_retry 0076_produce_retry 0088_produce_metadata_timeout "
                   "0094_idempotence_msg_timeout 0123_connections_max_idle",
}
DELETED = "after a topic was deleted the client waits for ever, on Kafka 4.4 too"
LEFT_OUT = (
    ("0028_long_topicnames 0047_partial_buf_tmout", "long names, a full send buffer",
     "known not to work by the tests themselves"),
    ("0045_subscribe_update_topic_remove 0113_cooperative_rebalance/h_delete_topic "
     "0113_cooperative_rebalance/i_delete_topic_2 0113_cooperative_rebalance/j_delete_topic_no_rb_callback "
     "0113_cooperative_rebalance/n_wildcard 0107_topic_recreate", "subscriptions to topics that go", DELETED),
    ("0052_msg_timestamps", "timestamps, also those of old message formats",
     "it sends messages of format 0, which Kafka 4 does not take either"),
    ("0077_compaction", "a compacted topic of segments of 10,000 bytes", "Kafka 4 takes no less than 1 MiB"),
    ("0092_mixed_msgver", "formats altered while it produces", "message.format.version is no setting of Kafka 4"),
    ("0081_admin/AlterConfigs", "AlterConfigs of a topic and of the broker",
     "the setting of the broker is one of SASL, which is not offered"),
    ("0081_admin/CreateAcls 0081_admin/DescribeAcls 0081_admin/DeleteAcls 0115_producer_auth 0119_consumer_auth",
     "access control", "there is no authorizer yet"),
    ("0097_ssl_verify 0126_oauthbearer_oidc 0135_sasl_credentials", "TLS and SASL", "neither is offered yet"),
    ("0103_transactions/misuse_txn", "InitProducerId with 1 ms of time", "it fails where a broker answers that soon"),
    ("0103_transactions/fatal_idempo_error_without_kip360", "a fatal error of the idempotent producer",
     "the tests leave it out for brokers since 2.4"),
    ("0101_fetch_from_follower", "racks of three brokers", "needs several brokers"),
    ("0098_consumer_txn", "statistics of read_committed consumers",
     "it deletes the topics that it reads, and then the client waits for ever now and then"),
    ("0113_cooperative_rebalance/o_java_interop", "beside a Java client",
     "the tests' own program for it is built against Kafka's sources"),
    ("8000_idle", "a client that does nothing", "started by hand only: it never ends"),
)
# Left to a full run: what waits for time-outs, and what the tests leave out where they are to be quick.
SLOW = set("0015 0018 0019 0020 0026 0030 0033 0045 0049 0050 0051 0055 0056 0059 0061 0063 0068 0069 0075 0076 0082 "
           "0083 0084 0086 0088 0089 0091 0093 0094 0102 0103 0109 0111 0114 0118 0122 0123 0125 0129 0132 "
           "0137".split())
SLOW_PARTS = set("bcdesltuvx")  # of 0113
SLOW_ADMIN = "DescribeConsumerGroups ListConsumerGroups DeleteGroups ListConsumerGroupOffsets".split()
LOCAL = "Filtered due to negative test flags"


def is_slow(name):
    test, _, part = name.partition("/")
    return test[:4] in SLOW or part in SLOW_ADMIN or (test[:4] == "0113" and part[0] in SLOW_PARTS)


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


class Suite:
    def __init__(self, brokers):
        self.home = brokers[True].home
        self.brokers = brokers  # by whether topics make themselves
        self.kafka = os.path.join(self.home, "kafka")
        self.work = os.path.join(self.home, "tests")
        os.makedirs(os.path.join(self.kafka, "bin"))
        os.mkdir(self.work)
        os.symlink(DIR, os.path.join(self.home, "src"))  # where one looks for the scheme of statistics
        tool = os.path.join(self.kafka, "bin/kafka-topics.sh")
        with open(tool, "w", encoding="ascii") as out:
            out.write("#!/bin/sh\nexec java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
                      f"-cp '{JARS}' org.apache.kafka.tools.TopicCommand \"$@\"\n")
        os.chmod(tool, 0o755)

    def run(self, name):
        """One test or part of one. ret: what it said when it did not pass, else None."""
        test, _, part = name.partition("/")
        auto = name not in WITHOUT_AUTO_CREATE
        address = self.brokers[auto].address("LOCAL")
        stem = os.path.join(self.work, name.replace("/", "-"))
        with open(stem + ".conf", "w", encoding="ascii") as out:
            out.write(f"bootstrap.servers={address}\ntest.timeout.multiplier={SLOWNESS}\n")
        environment = dict(os.environ, TESTS=test[:4], RDKAFKA_TEST_CONF=stem + ".conf", TEST_REPORT=stem + ".json",
                           TEST_KAFKA_VERSION=OLD.get(name, VERSION), KAFKA_PATH=self.kafka, BROKERS=address,
                           **({"SUBTESTS": part} if part else {}))
        command = [os.path.join(DIR, "test-runner"), "-L", "-p1", "-s", "default" if auto else "noautocreate",
                   *(() if FULL or part else ("-Q",))]  # which leaves whole parts out
        with open(stem + ".log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, env=environment, cwd=self.work, stdout=log, stderr=log)
            try:
                process.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with open(stem + ".log", encoding="utf-8", errors="replace") as log:
            said = plain(log.read())
        if part and not re.search(rf"\[ \w*{part}[^\n]*: PASS", said):
            return f"no such part, or left out by itself\n{said[-2000:]}"
        state = self.states(stem).get(test)
        return None if state == "PASSED" and process.returncode == 0 else f"{state}\n{said[-6000:]}"

    @staticmethod
    def states(stem):
        try:
            with open(stem + ".json", encoding="utf-8") as report:
                return {name: row["state"] for name, row in json.load(report)["tests"].items()}
        except (OSError, ValueError, KeyError):
            return {}

    def unknown(self, known):
        """Names of the program's tests that want a broker and are not known: it runs each as one that must."""
        stem = os.path.join(self.work, "names")
        with open(stem + ".conf", "w", encoding="ascii") as out:
            out.write(f"bootstrap.servers={self.brokers[True].address('LOCAL')}\n")
        environment = dict(os.environ, TEST_REPORT=stem + ".json", RDKAFKA_TEST_CONF=stem + ".conf")
        found = set()

        def run(numbers):
            return plain(subprocess.run([os.path.join(DIR, "test-runner"), "-L", "-p1", "-Q"], cwd=self.work,
                                        env=dict(environment, TESTS=numbers), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False).stdout)

        run("none")
        others = set(self.states(stem)) - known - {"<MAIN>"}
        for number in sorted({name[:4] for name in others} - {name[:4] for name in known}):
            said = run(number)
            found |= {name for name in others if name[:4] == number and
                      not re.search(rf"\| *{name} +\| +SKIPPED .*{LOCAL}", said)}
        return found


def main():
    if not os.path.exists(os.path.join(DIR, "test-runner")):
        skip("librdkafka's tests are not in build/clients: tests/clients/setup")
    table = compat.Table("librdkafka-suite", "librdkafka 2.0.2's own tests")
    for area, names in AREAS.items():
        table.row(area, ", ".join(names.split()))
    for names, what, reason in LEFT_OUT:
        table.leave_out(", ".join(names.split()), what, reason)
    words = sys.argv[1:]
    every = [(area, name) for area, names in AREAS.items() for name in names.split()]
    chosen = [(area, name) for area, name in every
              if (any(word in name for word in words) if words else FULL or not is_slow(name))]
    if len(chosen) != len(every) and not words:
        print(f"reduced: {len(chosen)} in place of {len(every)} tests and parts, and as short as they can be")
    failed = []
    with Broker(nic=False, settings=SETTINGS) as broker, \
            Broker(nic=False, settings={**SETTINGS, "auto.create.topics.enable": "false"}) as strict:
        broker.start()
        strict.start()
        suite = Suite({True: broker, False: strict})
        if FULL:
            known = {name.partition("/")[0] for _, name in every}
            known |= {name.partition("/")[0] for names, _, _ in LEFT_OUT for name in names.split()}
            unknown = suite.unknown(known)
            assert not unknown, f"tests that no row has: {sorted(unknown)}"

        def one(area, name):
            begun = time.monotonic()
            wrong = suite.run(name)
            print(f"{name}: {time.monotonic() - begun:.1f} s{'' if wrong is None else ' FAILED: ' + wrong}", flush=True)
            if wrong is not None:
                failed.append(name)

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda pair: one(*pair), chosen))
        assert not failed, failed
        broker.wait_no_loans()
        strict.wait_no_loans()
    for area in AREAS:
        table.result(area, "works")
    if not words:
        table.finish()
    print(f"{len(chosen)} of librdkafka's own tests and parts of them pass")


if __name__ == "__main__":
    main()
