/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: topics get other settings as clients are told, in the map at once and for good; what is
 * wrong changes nothing. Method: requests of all versions against a fake core on virtual time. */
#include "tests/unit/control/alter_requests.h"

#include <errno.h>

/* Every operation, seen in the map at once, and after a restart. */
static void test_alter_incremental_operations(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    const struct mill_uuid id = find(&f, "here")->id;
    assert_false(settings_of(&f, "here")->compact);
    assert_int_equal(alter_one(&f, "here", "retention.ms", 0, "1234"), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 1234);
    assert_int_equal(alter_one(&f, "here", "cleanup.policy", 2, "compact"), 0);
    assert_string_equal(config_of(&f, "here", "cleanup.policy"), "delete,compact");
    assert_true(settings_of(&f, "here")->compact && settings_of(&f, "here")->delete_old);
    assert_int_equal(alter_one(&f, "here", "cleanup.policy", 2, "compact , delete"), 0);
    assert_string_equal(config_of(&f, "here", "cleanup.policy"), "delete,compact");
    assert_int_equal(alter_one(&f, "here", "cleanup.policy", 3, "delete"), 0);
    assert_string_equal(config_of(&f, "here", "cleanup.policy"), "compact");
    assert_false(settings_of(&f, "here")->delete_old);
    assert_int_equal(alter_one(&f, "here", "retention.ms", 1, NULL), 0);
    assert_null(config_of(&f, "here", "retention.ms"));
    assert_int_equal(settings_of(&f, "here")->retention_ms, 604800000);
    assert_int_equal(alter_one(&f, "here", "min.cleanable.dirty.ratio", 0, "0.25"), 0);
    assert_int_equal(settings_of(&f, "here")->min_cleanable_ppm, 250000);
    assert_int_equal(alter_one(&f, "here", "delete.retention.ms", 0, "9"), 0);
    assert_int_equal(settings_of(&f, "here")->delete_retention_ms, 9);
    assert_memory_equal(&find(&f, "here")->id, &id, sizeof(id));
    restart(&f, 0);
    assert_string_equal(config_of(&f, "here", "cleanup.policy"), "compact");
    assert_null(config_of(&f, "here", "retention.ms"));
    assert_int_equal(settings_of(&f, "here")->delete_retention_ms, 9);
    assert_int_equal(mill_control_controller(f.control)->topics.count, 1);
    fake_close(&f);
}

static void test_alter_faults_refused(void **state)
{
    (void)state;
    static const struct {
        const char *topic;
        struct alteration config;
        int8_t type;
        int16_t error;
    } faults[] = {
        {"here", {"retention.ms", "soon", 0}, 0, 40},
        {"here", {"retention.ms", "-2", 0}, 0, 40},
        {"here", {"retention.ms", NULL, 0}, 0, 42},
        {"here", {"retention.ms", "1", 2}, 0, 40},
        {"here", {"retention.ms", "1", 3}, 0, 40},
        {"here", {"retention.ms", "1", 4}, 0, 42},
        {"here", {"retention.ms", "1", -1}, 0, 42},
        {"here", {"retention.mss", "1", 0}, 0, 40},
        {"here", {"cleanup.policy", "shrink", 2}, 0, 40},
        {"here", {"max.compaction.lag.ms", "99", 0}, 0, 40}, /* below the least lag */
        {"absent", {"retention.ms", "1", 0}, 0, 3},
        {"bad/name", {"retention.ms", "1", 0}, 0, 17},
        {"1", {"any", "1", 0}, 8, 42},
        {"here", {"no.such.key", NULL, 1}, 0, 0}, /* what is not there need not go */
    };
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    assert_int_equal(alter_one(&f, "here", "min.compaction.lag.ms", 0, "100"), 0);
    const struct mill_topic_settings before = *settings_of(&f, "here");
    for (size_t i = 0; i < MILL_COUNT_OF(faults); i++) {
        const struct altered resource = {faults[i].topic, &faults[i].config, 1, faults[i].type};
        for (int16_t version = 0; version <= 1; version++) {
            assert_int_equal(alter_many(&f, &resource, 1, version, false), faults[i].error);
        }
        assert_memory_equal(settings_of(&f, "here"), &before, sizeof(before));
    }
    /* A good one beside a bad one is done; a name or a key twice is not. */
    const struct alteration good = {"retention.ms", "77", 0};
    const struct alteration bad = {"retention.ms", "soon", 0};
    const struct altered both[] = {{"here", &good, 1, 0}, {"absent", &bad, 1, 0}};
    assert_int_equal(alter_many(&f, both, 2, 1, true), 40);
    assert_int_equal(settings_of(&f, "here")->retention_ms, before.retention_ms);
    assert_int_equal(alter_many(&f, both, 2, 1, false), 40);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 77);
    const struct altered twice[] = {{"here", &good, 1, 0}, {"here", &bad, 1, 0}};
    assert_int_equal(alter_many(&f, twice, 2, 1, false), 42);
    const struct alteration keys[] = {{"retention.ms", "5", 0}, {"retention.ms", "6", 0}};
    const struct altered key_twice = {"here", keys, 2, 0};
    assert_int_equal(alter_many(&f, &key_twice, 1, 1, false), 42);
    const struct alteration appends[] = {{"retention.ms", "5", 2}, {"retention.ms", "6", 2}};
    const struct altered append_twice = {"here", appends, 2, 0}; /* 40 for one of them alone */
    assert_int_equal(alter_many(&f, &append_twice, 1, 1, false), 42);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 77);
    fake_close(&f);
}

/* AlterConfigs gives the whole set: what is not named is the broker's again; null is refused. */
static void test_alter_whole_set(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    for (int16_t version = 0; version <= 2; version++) {
        assert_int_equal(alter_one(&f, "here", "retention.ms", 0, "1234"), 0);
        const struct alteration configs[] = {{"segment.bytes", "4096", 0}, {"flush.ms", NULL, 0}};
        const struct altered null_too = {"here", configs, 2, 0};
        assert_int_equal(alter_whole(&f, &null_too, version), 42);
        const struct altered resource = {"here", configs, 1, 0};
        assert_int_equal(alter_whole(&f, &resource, version), 0);
        assert_int_equal(settings_of(&f, "here")->segment_bytes, 4096);
        assert_int_equal(settings_of(&f, "here")->retention_ms, 604800000);
        const struct altered nothing = {"here", NULL, 0, 0};
        assert_int_equal(alter_whole(&f, &nothing, version), 0);
        assert_int_equal(settings_of(&f, "here")->segment_bytes, 1073741824);
    }
    fake_close(&f);
}

/* What control writes into its own topics it reads again: nobody may have it stored otherwise. */
static void test_alter_internal_topic_keeps_the_codec(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    static const char *const names[] = {"__consumer_offsets", "__transaction_state"};
    for (size_t i = 0; i < MILL_COUNT_OF(names); i++) {
        assert_int_equal(create_one(&f, names[i]), 0);
        assert_int_equal(alter_one(&f, names[i], "compression.type", 0, "zstd"), 0);
        assert_int_equal(settings_of(&f, names[i])->compression, 255);
    }
    assert_int_equal(create_one(&f, "here"), 0);
    assert_int_equal(alter_one(&f, "here", "compression.type", 0, "zstd"), 0);
    assert_int_equal(settings_of(&f, "here")->compression, 4);
    restart(&f, 0);
    assert_int_equal(settings_of(&f, names[0])->compression, 255);
    fake_close(&f);
}

/* A store that is full: refused, and nothing is changed, not even in the map. */
static void test_alter_store_full_changes_nothing(void **state)
{
    (void)state;
    static char long_value[12000];
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    memset(long_value, '1', sizeof(long_value) - 1);
    for (size_t i = 1; i + 3 < sizeof(long_value); i += 4) {
        long_value[i] = ':';
        long_value[i + 2] = ',';
    }
    restart(&f, 8); /* pages: the schema and a little */
    assert_int_equal(alter_one(&f, "here", "leader.replication.throttled.replicas", 0, long_value),
                     56);
    assert_null(config_of(&f, "here", "leader.replication.throttled.replicas"));
    restart(&f, 0);
    assert_null(config_of(&f, "here", "leader.replication.throttled.replicas"));
    assert_int_equal(alter_one(&f, "here", "retention.ms", 0, "5"), 0);
    assert_int_equal(settings_of(&f, "here")->retention_ms, 5);
    fake_close(&f);
}

/* The store knows no such topic: refused whole. */
static void test_set_configs_unknown_topic_refused(void **state)
{
    (void)state;
    struct fake f;
    struct mill_meta meta = {0};
    struct mill_report report = {0};
    const struct mill_map_topic other = {.id = {{7}}};
    const struct mill_meta_config config = {"retention.ms", "9"};
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
    mill_control_close(f.control);
    assert_int_equal(mill_meta_sqlite_open(f.file, 0, &meta, &report), 0);
    const struct mill_meta_topic both[] = {
        {.record = find(&f, "here"), .configs = &config, .configs_count = 1},
        {.record = &other, .configs = &config, .configs_count = 1}};
    assert_int_equal(meta.calls->set_configs(meta.store, both, 2, &report), -ENOENT);
    mill_meta_close(&meta);
    assert_int_equal(fake_start_control(&f, 0), 0);
    fake_turns(&f, 3);
    assert_null(config_of(&f, "here", "retention.ms"));
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alter_incremental_operations),
        cmocka_unit_test(test_alter_faults_refused),
        cmocka_unit_test(test_alter_whole_set),
        cmocka_unit_test(test_alter_internal_topic_keeps_the_codec),
        cmocka_unit_test(test_alter_store_full_changes_nothing),
        cmocka_unit_test(test_set_configs_unknown_topic_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
