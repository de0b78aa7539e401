/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: settings of the broker are altered while it runs, for it alone and for all brokers, topics
 * and cores follow at once and after a restart, DescribeConfigs tells where each comes from, and
 * what Kafka reads at its start only is refused. Method: requests against a fake core on virtual
 * time. */
#include "tests/unit/control/alter_requests.h"

#include <errno.h>
#include <sqlite3.h>

enum {
    BROKER = 4,
};

static int16_t alter_broker(struct fake *f, const char *broker, const char *name, int8_t operation,
                            const char *value)
{
    const struct alteration config = {name, value, operation};
    const struct altered resource = {broker, &config, 1, BROKER};
    return alter_many(f, &resource, 1, 1, false);
}

static const struct mill_broker_settings *broker_of(const struct fake *f)
{
    return &mill_map_cluster_read(f->map)->settings;
}

/* This broker's own before that of all, before the file; a topic's own before all of them. */
static void test_alter_broker_levels_and_restart(void **state)
{
    (void)state;
    struct fake f;
    const char *const sets[] = {"log.retention.hours=1"};
    fake_open(&f, sets, 1);
    assert_int_equal(create_one(&f, "here"), 0);
    assert_int_equal(create_one(&f, "own"), 0);
    assert_int_equal(alter_one(&f, "own", "retention.ms", 0, "9"), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 3600000);
    assert_int_equal(alter_broker(&f, "1", "log.retention.ms", 0, "5000"), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 5000);
    assert_int_equal(alter_broker(&f, "", "log.retention.ms", 0, "7000"), 0);
    assert_int_equal(alter_broker(&f, "", "message.max.bytes", 0, "2000"), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 5000);
    assert_int_equal(settings_of(&f, "here")->max_message_bytes, 2000);
    restart(&f, 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 5000);
    assert_int_equal(alter_broker(&f, "1", "log.retention.ms", 1, NULL), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 7000);
    assert_int_equal(settings_of(&f, "own")->retention_ms, 9);
    restart(&f, 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 7000);
    assert_int_equal(settings_of(&f, "own")->retention_ms, 9);
    assert_int_equal(create_one(&f, "new"), 0);
    assert_int_equal(settings_of(&f, "new")->max_message_bytes, 2000);
    const struct altered nothing = {"", NULL, 0, BROKER};
    assert_int_equal(alter_whole(&f, &nothing, 2), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 3600000);
    assert_int_equal(settings_of(&f, "new")->max_message_bytes, 1048588);
    fake_close(&f);
}

/* What no topic has, in the record that cores follow. */
static void test_alter_broker_reaches_cores(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    fake_turns(&f, 3);
    assert_int_equal(broker_of(&f)->connections_max, INT32_MAX);
    assert_true(broker_of(&f)->clean_bytes_per_second == INT64_MAX);
    const struct alteration configs[] = {
        {"max.connections", "3", 0},
        {"log.cleaner.io.max.bytes.per.second", "1e6", 0},
        {"log.cleaner.backoff.ms", "7", 0},
        {"log.cleaner.dedupe.buffer.size", "4096", 0},
        {"producer.id.expiration.ms", "1234", 0},
        {"max.connections.per.ip", "0", 0},
        {"max.connection.creation.rate", "6", 0},
        {"max.connections.per.ip.overrides", "10.1.2.3:7,::1:8", 0}};
    const struct altered resource = {"1", configs, 8, BROKER};
    assert_int_equal(alter_whole(&f, &resource, 2), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(broker_of(&f)->connections_max, 3);
        assert_int_equal(broker_of(&f)->clean_bytes_per_second, 1000000);
        assert_int_equal(broker_of(&f)->clean_backoff_ms, 7);
        assert_int_equal(broker_of(&f)->clean_map_bytes, 4096);
        assert_int_equal(broker_of(&f)->producer_expiration_ms, 1234);
        assert_int_equal(broker_of(&f)->address_connections_max, 0);
        assert_int_equal(broker_of(&f)->connections_per_second, 6);
        assert_int_equal(broker_of(&f)->connections_burst_ns, 10 * MILL_NS_PER_S);
        assert_int_equal(broker_of(&f)->overrides_count, 2);
        static const uint8_t first[16] = {[10] = 0xff, 0xff, 10, 1, 2, 3};
        static const uint8_t second[16] = {[15] = 1};
        assert_memory_equal(broker_of(&f)->overrides[0].address, first, 16);
        assert_memory_equal(broker_of(&f)->overrides[1].address, second, 16);
        assert_int_equal(broker_of(&f)->overrides[0].connections_max, 7);
        assert_int_equal(broker_of(&f)->overrides[1].connections_max, 8);
        restart(&f, 0);
    }
    /* Nobody would be let in. */
    assert_int_equal(alter_broker(&f, "1", "max.connections.per.ip.overrides", 1, NULL),
                     MILL_KERR_INVALID_REQUEST);
    assert_int_equal(alter_broker(&f, "1", "max.connections.per.ip.overrides", 0, ","),
                     MILL_KERR_INVALID_REQUEST);
    assert_int_equal(alter_broker(&f, "1", "max.connections.per.ip.overrides", 0, "10.1.2.3:0"),
                     MILL_KERR_INVALID_REQUEST);
    /* One of them: the others stay. */
    assert_int_equal(alter_broker(&f, "1", "log.cleaner.backoff.ms", 1, NULL), 0);
    assert_int_equal(alter_broker(&f, "1", "log.retention.ms", 0, "5"), 0);
    assert_int_equal(broker_of(&f)->clean_backoff_ms, 15000);
    assert_int_equal(broker_of(&f)->connections_max, 3);
    assert_int_equal(broker_of(&f)->producer_expiration_ms, 1234);
    fake_close(&f);
}

static void test_alter_broker_faults_refused(void **state)
{
    (void)state;
    static const struct {
        const char *broker;
        struct alteration config;
    } faults[] = {
        {"1", {"num.partitions", "1", 0}}, /* read at the start */
        {"1", {"log.retention.hours", "1", 0}},
        {"", {"log.dirs", "/tmp", 0}},
        {"1", {"no.such.key", "1", 0}},
        {"1", {"retention.ms", "1", 0}}, /* a topic's */
        {"1", {"log.retention.ms", "soon", 0}},
        {"1", {"log.retention.ms", "-2", 0}},
        {"1", {"log.retention.ms", NULL, 0}},
        {"1", {"log.retention.ms", "1", 4}},
        {"1",
         {"log.cleaner.min.compaction.lag.ms", "9223372036854775807", 0}}, /* above: see below */
        {"1", {"max.connections.per.ip", "0", 0}}, /* nobody would be let in */
        {"1", {"max.connections.per.ip.overrides", "host.example:1", 0}},
        {"2", {"log.retention.ms", "1", 0}},
        {"one", {"log.retention.ms", "1", 0}},
    };
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    assert_int_equal(alter_broker(&f, "", "log.cleaner.max.compaction.lag.ms", 0, "99"), 0);
    const struct mill_topic_settings before = *settings_of(&f, "here");
    for (size_t i = 0; i < MILL_COUNT_OF(faults); i++) {
        assert_int_equal(alter_broker(&f, faults[i].broker, faults[i].config.name,
                                      faults[i].config.operation, faults[i].config.value),
                         MILL_KERR_INVALID_REQUEST);
        assert_memory_equal(settings_of(&f, "here"), &before, sizeof(before));
    }
    assert_int_equal(alter_broker(&f, "1", "log.retention.ms", 2, "1"), MILL_KERR_INVALID_CONFIG);
    /* Only looked at; twice in one request; of which one is good. */
    const struct alteration good = {"log.retention.ms", "77", 0};
    const struct altered both[] = {{"1", &good, 1, BROKER}, {"1", &good, 1, BROKER}};
    assert_int_equal(alter_many(&f, both, 1, 1, true), 0);
    assert_int_equal(alter_many(&f, both, 2, 1, false), MILL_KERR_INVALID_REQUEST);
    assert_memory_equal(settings_of(&f, "here"), &before, sizeof(before));
    const struct altered mixed[] = {{"2", &good, 1, BROKER}, {"", &good, 1, BROKER}};
    assert_int_equal(alter_many(&f, mixed, 2, 1, false), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 77);
    fake_close(&f);
}

static void test_alter_broker_lists(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    assert_int_equal(alter_broker(&f, "1", "log.cleanup.policy", 2, "compact"), 0);
    assert_true(settings_of(&f, "here")->compact && settings_of(&f, "here")->delete_old);
    assert_int_equal(alter_broker(&f, "1", "log.cleanup.policy", 3, "delete"), 0);
    assert_true(settings_of(&f, "here")->compact && !settings_of(&f, "here")->delete_old);
    fake_close(&f);
}

static void test_describe_tells_sources(void **state)
{
    (void)state;
    struct fake f;
    struct told told;
    const char *const sets[] = {"message.max.bytes=5000"};
    fake_open(&f, sets, 1);
    assert_int_equal(create_one(&f, "here"), 0);
    assert_int_equal(describe_config(&f, BROKER, "", "message.max.bytes", &told), 0);
    assert_int_equal(alter_broker(&f, "", "message.max.bytes", 0, "6000"), 0);
    describe_config(&f, BROKER, "1", "message.max.bytes", &told);
    assert_string_equal(told.value, "6000");
    assert_int_equal(told.source, 3);
    assert_false(told.read_only);
    assert_int_equal(alter_broker(&f, "1", "message.max.bytes", 0, "7000"), 0);
    describe_config(&f, BROKER, "1", "message.max.bytes", &told);
    assert_string_equal(told.value, "7000");
    assert_int_equal(told.source, 2);
    assert_int_equal(told.sources_count, 4);
    assert_memory_equal(told.sources, ((int8_t[]){2, 3, 4, 5}), 4);
    describe_config(&f, 2, "here", "max.message.bytes", &told);
    assert_string_equal(told.value, "7000");
    assert_int_equal(told.source, 2);
    assert_memory_equal(told.sources, ((int8_t[]){2, 3, 4, 5}), 4);
    assert_int_equal(alter_one(&f, "here", "max.message.bytes", 0, "8000"), 0);
    describe_config(&f, 2, "here", "max.message.bytes", &told);
    assert_int_equal(told.source, 1);
    assert_memory_equal(told.sources, ((int8_t[]){1, 2, 3, 4, 5}), 5);
    assert_int_equal(describe_config(&f, BROKER, "", "message.max.bytes", &told), 1);
    assert_string_equal(told.value, "6000");
    assert_int_equal(told.source, 3);
    assert_false(told.read_only);
    describe_config(&f, BROKER, "1", "log.dirs", &told);
    assert_true(told.there && told.read_only);
    fake_close(&f);
}

/* A store that is full: nothing is changed. */
static void test_alter_broker_store_full_changes_nothing(void **state)
{
    (void)state;
    static char value[16000];
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    for (size_t i = 0; i + 8 < sizeof(value); i += 8) {
        memcpy(value + i, "compact,", 8);
    }
    value[sizeof(value) - 9] = '\0';
    restart(&f, 8); /* pages: the schema and a little */
    assert_int_equal(alter_broker(&f, "1", "log.cleanup.policy", 0, value),
                     MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_false(settings_of(&f, "here")->compact);
    restart(&f, 0);
    assert_false(settings_of(&f, "here")->compact);
    fake_close(&f);
}

/* A store of the version before has no such table: it gets one and keeps what it has. */
static void test_older_store_is_taken_up(void **state)
{
    (void)state;
    struct fake f;
    sqlite3 *db = NULL;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    mill_control_close(f.control);
    assert_int_equal(sqlite3_open(f.file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "DROP TABLE settings; DELETE FROM meta WHERE key = 'sum';"
                                  "UPDATE meta SET value = 1 WHERE key = 'schema_version';",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    for (int i = 0; i < 2; i++) { /* the second start finds the new version, and its sum right */
        assert_int_equal(fake_start_control(&f, 0), 0);
        fake_turns(&f, 3);
        assert_int_equal(alter_broker(&f, "1", "log.retention.ms", 0, "5000"), 0);
        assert_int_equal(settings_of(&f, "here")->retention_ms, 5000);
        mill_control_close(f.control);
    }
    assert_int_equal(fake_start_control(&f, 0), 0);
    fake_turns(&f, 3);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 5000);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alter_broker_levels_and_restart),
        cmocka_unit_test(test_alter_broker_reaches_cores),
        cmocka_unit_test(test_alter_broker_faults_refused),
        cmocka_unit_test(test_alter_broker_lists),
        cmocka_unit_test(test_describe_tells_sources),
        cmocka_unit_test(test_alter_broker_store_full_changes_nothing),
        cmocka_unit_test(test_older_store_is_taken_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
