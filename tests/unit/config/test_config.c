/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is given, defaulted and derived comes out right, and a written file loads to the same.
 * Method: small files in Java's syntax and the getters. */
#include "tests/unit/test.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "config/config.h"

static struct mill_config *load(const char *text)
{
    char path[64] = "/tmp/millrace-test-config-XXXXXX";
    struct mill_config *config = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(mill_config_load(path, NULL, 0, false, &config), 0);
    unlink(path);
    return config;
}

static void test_load_syntax_follows_java(void **state)
{
    (void)state;
    struct mill_config *config = load("! comment\n  # comment = 1\n\n"
                                      "node.id : 7\r\n"
                                      "broker.rack rack\\ one  \n"
                                      "dpdk.netns=a\\\n   b\\\\\n"
                                      "super.users=User\\:x\\u00e9\\t.\n"
                                      "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\n"
                                      "zookeeper.connect=last\\");
    assert_int_equal(mill_config_int(config, MILL_KEY_NODE_ID), 7);
    assert_string_equal(mill_config_text(config, MILL_KEY_BROKER_RACK), "rack one");
    assert_string_equal(mill_config_text(config, MILL_KEY_DPDK_NETNS), "ab\\");
    assert_string_equal(mill_config_text(config, MILL_KEY_SUPER_USERS), "User:x\xc3\xa9\t.");
    assert_string_equal(mill_config_text(config, MILL_KEY_LISTENER_SECURITY_PROTOCOL_MAP),
                        "A:PLAINTEXT,B:PLAINTEXT");
    assert_string_equal(mill_config_text(config, MILL_KEY_ZOOKEEPER_CONNECT), "last");
    mill_config_free(config);
}

static void test_units_finer_key_wins(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t retention_ms;
    } rows[] = {
        {"", 604800000},
        {"log.retention.hours=2", 7200000},
        {"log.retention.hours=2\nlog.retention.minutes=3", 180000},
        {"log.retention.ms=5\nlog.retention.minutes=3\nlog.retention.hours=2", 5},
        {"log.retention.hours=-1", -1},
        {"log.retention.ms=-1\nlog.retention.hours=1", -1},
    };
    for (uint32_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        struct mill_config *config = load(rows[i].text);
        assert_int_equal(mill_config_int(config, MILL_KEY_LOG_RETENTION_MS), rows[i].retention_ms);
        assert_int_equal(mill_config_int(config, MILL_TOPIC_KEY_RETENTION_MS),
                         rows[i].retention_ms);
        mill_config_free(config);
    }
    struct mill_config *config =
        load("log.roll.hours=2147483647\nlog.flush.scheduler.interval.ms=9");
    assert_int_equal(mill_config_int(config, MILL_TOPIC_KEY_SEGMENT_MS), 2147483647ll * 3600000);
    assert_int_equal(mill_config_int(config, MILL_TOPIC_KEY_FLUSH_MS), 9);
    assert_false(mill_config_is_set(config, MILL_KEY_LOG_ROLL_MS));
    assert_true(mill_config_is_set(config, MILL_KEY_LOG_ROLL_HOURS));
    mill_config_free(config);
}

static void test_synonyms_name_units_in_order(void **state)
{
    (void)state;
    struct mill_key_synonym list[MILL_CONFIG_SYNONYMS_MAX];
    assert_int_equal(mill_key_synonyms(MILL_KEY_LOG_RETENTION_MS, list), 2);
    assert_int_equal(list[0].key, MILL_KEY_LOG_RETENTION_MINUTES);
    assert_int_equal(list[0].factor, 60000);
    assert_int_equal(list[1].factor, 3600000);
    assert_int_equal(mill_key_synonyms(MILL_KEY_NODE_ID, list), 0);
}

static void test_addresses_with_counts(void **state)
{
    (void)state;
    struct mill_config_address list[MILL_CONFIG_ADDRESSES_MAX];
    struct mill_report report = {0};
    uint32_t count = 99;
    static const uint8_t ipv4[16] = {[10] = 0xff, 0xff, 10, 0, 0, 7};
    static const uint8_t ipv6[16] = {0xfe, 0x80, [15] = 1};
    assert_int_equal(mill_config_addresses("", list, &count, &report), 0);
    assert_int_equal(count, 0);
    assert_int_equal(
        mill_config_addresses(" 10.0.0.7 : 0, fe80::1:2147483647,[::1]:5,", list, &count, &report),
        0);
    assert_int_equal(count, 3);
    assert_memory_equal(list[0].address, ipv4, sizeof(ipv4));
    assert_memory_equal(list[1].address, ipv6, sizeof(ipv6));
    assert_int_equal(list[0].number, 0);
    assert_int_equal(list[1].number, INT32_MAX);
    assert_int_equal(list[2].address[15], 1);
    assert_int_equal(list[2].number, 5);
    /* As many as there may be, and one more. */
    char text[(MILL_CONFIG_ADDRESSES_MAX + 1) * 16] = "";
    for (uint32_t i = 0; i <= MILL_CONFIG_ADDRESSES_MAX; i++) {
        size_t used = strlen(text);
        int r = mill_config_addresses(text, list, &count, &report);
        assert_int_equal(r, 0);
        assert_int_equal(count, i);
        snprintf(text + used, sizeof(text) - used, "10.0.1.%u:1,", i);
    }
    assert_int_equal(mill_config_addresses(text, list, &count, &report), -EINVAL);
    assert_non_null(strstr(report.text, "more than 64"));
}

static void test_defaults_are_the_contract(void **state)
{
    (void)state;
    struct mill_config *config = load("");
    const struct mill_config_listener *listeners;
    const uint32_t *cpus;
    const char *const *dirs;
    assert_int_equal(mill_config_int(config, MILL_KEY_NODE_ID), 1);
    assert_int_equal(mill_config_listeners(config, &listeners), 1);
    assert_string_equal(listeners[0].name, "LOCAL");
    assert_int_equal(listeners[0].port, 9092);
    assert_string_equal(listeners[0].advertised_host, "127.0.0.1");
    assert_true(listeners[0].required);
    assert_int_equal(mill_config_log_dirs(config, &dirs), 1);
    assert_string_equal(dirs[0], "/var/lib/millrace");
    assert_string_equal(mill_config_metadata_dir(config), "/var/lib/millrace");
    assert_true(mill_config_bool(config, MILL_KEY_HUGEPAGES));
    assert_true(mill_config_int(config, MILL_KEY_HUGEPAGES_SIZE_MB) >= 16);
    assert_int_equal(mill_config_cores(config, &cpus), 1);
    assert_int_equal(mill_config_int(config, MILL_TOPIC_KEY_MAX_MESSAGE_BYTES), 1048588);
    mill_config_free(config);
}

static void test_listener_names_capitals_and_addresses(void **state)
{
    (void)state;
    struct mill_config *config = load("listeners=in://0.0.0.0:1, out://[::1]:2\n"
                                      "advertised.listeners=OUT://broker.example:77\n"
                                      "listener.Out.required=false\n");
    const struct mill_config_listener *listeners;
    assert_int_equal(mill_config_listeners(config, &listeners), 2);
    assert_string_equal(listeners[0].name, "IN");
    assert_true(listeners[0].advertised_host[0] != '\0');
    assert_string_not_equal(listeners[0].advertised_host, "0.0.0.0");
    assert_int_equal(listeners[0].address[10], 0xff);
    assert_int_equal(listeners[1].address[15], 1);
    assert_int_equal(listeners[1].address[10], 0);
    assert_string_equal(listeners[1].advertised_host, "broker.example");
    assert_int_equal(listeners[1].advertised_port, 77);
    assert_false(listeners[1].required);
    mill_config_free(config);
}

static void test_dpdk_listener_without_host_takes_the_ports(void **state)
{
    (void)state;
    struct mill_config *config = load("listeners=NIC://:9092\nlistener.NIC.transport=dpdk\n"
                                      "listener.NIC.device=nic0\ndpdk.ports=nic0\n"
                                      "dpdk.port.nic0.device=net_tap0,iface=mill0\n"
                                      "dpdk.port.nic0.address=198.18.0.1/24\n"
                                      "dpdk.port.nic0.gateway=198.18.0.254\n"
                                      "dpdk.port.nic0.mac=02:00:00:00:00:0A\n");
    const struct mill_config_listener *listeners;
    const struct mill_config_port *ports;
    assert_int_equal(mill_config_listeners(config, &listeners), 1);
    assert_string_equal(listeners[0].advertised_host, "198.18.0.1");
    assert_int_equal(mill_config_ports(config, &ports), 1);
    assert_int_equal(ports[0].address, 0xc6120001);
    assert_int_equal(ports[0].prefix_bits, 24);
    assert_int_equal(ports[0].gateway, 0xc61200fe);
    assert_int_equal(ports[0].dma_peer, 0xc61200fe);
    assert_int_equal(ports[0].mtu, 1500);
    assert_int_equal(ports[0].mac[5], 10);
    assert_true(ports[0].has_mac);
    mill_config_free(config);
}

static void test_write_loads_to_the_same(void **state)
{
    (void)state;
    char path[] = "/tmp/millrace-test-config-written-XXXXXX";
    int made = mkstemp(path); /* its own: two trees may be tested at the same time */
    assert_true(made >= 0);
    close(made);
    assert_int_equal(unlink(path), 0);
    struct mill_config *first = load("node.id=3\nlog.dirs=rel/a, /tmp/b\ndataplane.cores=auto\n"
                                     "dpdk.netns=\\ x\\\\y \nlistener.LOCAL.required=false\n"
                                     "run.dir=./here\n");
    struct mill_config *second = NULL;
    const char *const *dirs;
    const char *const *again;
    struct stat info;
    assert_int_equal(mill_config_write(first, path), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(mill_config_load(path, NULL, 0, true, &second), 0);
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        const char *a = mill_config_text(first, (enum mill_key)i);
        const char *b = mill_config_text(second, (enum mill_key)i);
        assert_int_equal(a == NULL, b == NULL);
        if (a) {
            assert_string_equal(a, b);
        }
        assert_int_equal(mill_config_is_set(first, (enum mill_key)i),
                         mill_config_is_set(second, (enum mill_key)i));
    }
    assert_int_equal(mill_config_log_dirs(first, &dirs), 2);
    assert_int_equal(mill_config_log_dirs(second, &again), 2);
    assert_true(dirs[0][0] == '/');
    assert_string_equal(dirs[0], again[0]);
    assert_string_equal(mill_config_instance(first), mill_config_instance(second));
    mill_config_free(first);
    mill_config_free(second);
    unlink(path);
}

static void test_instance_same_before_and_after_the_directory(void **state)
{
    (void)state;
    char dir[] = "/tmp/millrace-test-instance-XXXXXX";
    char text[128];
    assert_non_null(mkdtemp(dir));
    snprintf(text, sizeof(text), "run.dir=%s/new/run\nnode.id=5\n", dir);
    struct mill_config *before = load(text);
    snprintf(text, sizeof(text), "mkdir -p %s/new/run", dir);
    assert_int_equal(system(text), 0);
    snprintf(text, sizeof(text), "run.dir=%s/new/run\nnode.id=5\n", dir);
    struct mill_config *after = load(text);
    assert_string_equal(mill_config_instance(before), mill_config_instance(after));
    assert_int_equal(strncmp(mill_config_instance(before), "millrace-5-", 11), 0);
    assert_int_equal(strlen(mill_config_instance(before)), 19);
    mill_config_free(before);
    mill_config_free(after);
    snprintf(text, sizeof(text), "rm -r %s", dir);
    assert_int_equal(system(text), 0);
}

/* Each id is the name in capitals, each default passes its own check, each word of help ends. */
static void test_table_rows_are_sound(void **state)
{
    (void)state;
    static const char *const ids[] = {
#define MILL_CONFIG_KEY(id, ...)       #id,
#define MILL_CONFIG_TOPIC_KEY(id, ...) #id,
#include "config/keys.def"
#undef MILL_CONFIG_KEY
#undef MILL_CONFIG_TOPIC_KEY
    };
    struct mill_report report;
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        const struct mill_key_info *info = mill_key_info((enum mill_key)i);
        size_t length = strlen(info->name);
        assert_int_equal(strlen(ids[i]), length);
        for (size_t c = 0; c < length; c++) {
            int wanted = info->name[c] == '.' ? '_' : toupper((unsigned char)info->name[c]);
            assert_int_equal(ids[i][c], wanted);
        }
        if (info->default_text) {
            assert_int_equal(mill_key_check((enum mill_key)i, info->default_text, &report), 0);
        }
        assert_int_equal(info->help[strlen(info->help) - 1], '.');
        assert_int_equal(mill_key_find(info->scope, info->name), i);
    }
}

static void test_nearest_finds_slips_not_other_words(void **state)
{
    (void)state;
    assert_string_equal(mill_key_nearest(MILL_SCOPE_BROKER, "lisetners"), "listeners");
    assert_string_equal(mill_key_nearest(MILL_SCOPE_BROKER, "brokr.id"), "broker.id");
    assert_string_equal(mill_key_nearest(MILL_SCOPE_TOPIC, "retention.mss"), "retention.ms");
    assert_null(mill_key_nearest(MILL_SCOPE_BROKER, "completely.different.thing"));
    assert_null(mill_key_nearest(MILL_SCOPE_BROKER, ""));
}

static void test_kafka_kraft_file_is_usable(void **state)
{
    (void)state;
    struct mill_config *config =
        load("process.roles=broker,controller\nnode.id=1\n"
             "controller.quorum.bootstrap.servers=localhost:9093\n"
             "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
             "inter.broker.listener.name=PLAINTEXT\n"
             "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
             "controller.listener.names=CONTROLLER\n"
             "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
             "log.dirs=/tmp/kraft-combined-logs\nnum.recovery.threads.per.data.dir=1\n");
    const struct mill_config_listener *listeners;
    assert_int_equal(mill_config_listeners(config, &listeners), 1);
    assert_string_equal(listeners[0].advertised_host, "localhost");
    mill_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_syntax_follows_java),
        cmocka_unit_test(test_units_finer_key_wins),
        cmocka_unit_test(test_synonyms_name_units_in_order),
        cmocka_unit_test(test_addresses_with_counts),
        cmocka_unit_test(test_defaults_are_the_contract),
        cmocka_unit_test(test_listener_names_capitals_and_addresses),
        cmocka_unit_test(test_dpdk_listener_without_host_takes_the_ports),
        cmocka_unit_test(test_write_loads_to_the_same),
        cmocka_unit_test(test_instance_same_before_and_after_the_directory),
        cmocka_unit_test(test_table_rows_are_sound),
        cmocka_unit_test(test_nearest_finds_slips_not_other_words),
        cmocka_unit_test(test_kafka_kraft_file_is_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
