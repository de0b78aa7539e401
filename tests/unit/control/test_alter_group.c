/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: settings of single groups (resource type GROUP) are taken within the broker's bounds, told
 * with where they come from, kept over restarts, and taken away again; what is no such setting is
 * refused. Method: requests against a fake core on virtual time. */
#include "tests/unit/control/alter_requests.h"

enum {
    GROUP = 32,
    SOURCE_GROUP = 8,
    SOURCE_FILE = 4,
    SOURCE_DEFAULT = 5,
};

static int16_t alter_group(struct fake *f, const char *group, const char *name, int8_t operation,
                           const char *value)
{
    const struct alteration config = {name, value, operation};
    const struct altered resource = {group, &config, 1, GROUP};
    return alter_many(f, &resource, 1, 1, false);
}

static int64_t now_of(const struct fake *f, const char *group, enum mill_group_key key)
{
    return mill_group_setting(mill_control_controller(f->control), group, key);
}

static void test_group_settings_are_kept(void **state)
{
    (void)state;
    struct fake f;
    struct told told;
    const char *const sets[] = {"group.consumer.heartbeat.interval.ms=6000"};
    fake_open(&f, sets, 1);
    assert_int_equal(describe_config(&f, GROUP, "one", "consumer.session.timeout.ms", &told), 3);
    assert_string_equal(told.value, "45000");
    assert_int_equal(told.source, SOURCE_DEFAULT);
    assert_false(told.read_only);
    describe_config(&f, GROUP, "one", "consumer.heartbeat.interval.ms", &told);
    assert_string_equal(told.value, "6000");
    assert_int_equal(told.source, SOURCE_FILE);
    assert_int_equal(alter_group(&f, "one", "consumer.session.timeout.ms", 0, "50000"), 0);
    assert_int_equal(alter_group(&f, "one", "consumer.heartbeat.interval.ms", 0, "7000"), 0);
    assert_int_equal(alter_group(&f, "two words", "consumer.assignment.interval.ms", 0, "0"), 0);
    for (int i = 0; i < 2; i++) { /* now, and after a restart */
        describe_config(&f, GROUP, "one", "consumer.session.timeout.ms", &told);
        assert_string_equal(told.value, "50000");
        assert_int_equal(told.source, SOURCE_GROUP);
        assert_int_equal(told.sources_count, 2);
        assert_int_equal(told.sources[0], SOURCE_GROUP);
        assert_int_equal(told.sources[1], SOURCE_DEFAULT);
        assert_int_equal(now_of(&f, "one", MILL_GROUP_KEY_SESSION_TIMEOUT), 50000);
        assert_int_equal(now_of(&f, "one", MILL_GROUP_KEY_HEARTBEAT_INTERVAL), 7000);
        assert_int_equal(now_of(&f, "one", MILL_GROUP_KEY_ASSIGNMENT_INTERVAL), 1000);
        assert_int_equal(now_of(&f, "two words", MILL_GROUP_KEY_ASSIGNMENT_INTERVAL), 0);
        assert_int_equal(now_of(&f, "two", MILL_GROUP_KEY_HEARTBEAT_INTERVAL), 6000);
        restart(&f, 0);
    }
    assert_int_equal(alter_group(&f, "one", "consumer.session.timeout.ms", 1, NULL), 0);
    assert_int_equal(now_of(&f, "one", MILL_GROUP_KEY_SESSION_TIMEOUT), 45000);
    assert_int_equal(now_of(&f, "one", MILL_GROUP_KEY_HEARTBEAT_INTERVAL), 7000);
    assert_int_equal(alter_group(&f, "one", "consumer.heartbeat.interval.ms", 1, NULL), 0);
    assert_int_equal(mill_control_controller(f.control)->group_settings.count, 1);
    restart(&f, 0);
    assert_int_equal(mill_control_controller(f.control)->group_settings.count, 1);
    fake_close(&f);
}

static void test_wrong_group_settings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *value;
        int8_t operation;
        int16_t error;
    } rows[] = {
        {"consumer.session.timeout.ms", "44999", 0, MILL_KERR_INVALID_CONFIG},
        {"consumer.session.timeout.ms", "60001", 0, MILL_KERR_INVALID_CONFIG},
        {"consumer.session.timeout.ms", "soon", 0, MILL_KERR_INVALID_CONFIG},
        {"consumer.session.timeout.ms", "", 0, MILL_KERR_INVALID_CONFIG},
        {"consumer.session.timeout.ms", "50000x", 0, MILL_KERR_INVALID_CONFIG},
        {"consumer.session.timeout.ms", "99999999999999999999", 0, MILL_KERR_INVALID_CONFIG},
        {"consumer.session.timeout.ms", NULL, 0, MILL_KERR_INVALID_REQUEST},
        {"consumer.session.timeout.ms", "50000", 2, MILL_KERR_INVALID_CONFIG},
        {"consumer.session.timeout.ms", "50000", 9, MILL_KERR_INVALID_REQUEST},
        {"consumer.heartbeat.interval.ms", "4999", 0, MILL_KERR_INVALID_CONFIG},
        {"consumer.assignment.interval.ms", "15001", 0, MILL_KERR_INVALID_CONFIG},
        {"share.session.timeout.ms", "50000", 0, MILL_KERR_INVALID_CONFIG},
        {"streams.num.standby.replicas", "1", 0, MILL_KERR_INVALID_CONFIG},
        {"retention.ms", "50000", 0, MILL_KERR_INVALID_CONFIG},
    };
    struct fake f;
    fake_open(&f, NULL, 0);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        assert_int_equal(alter_group(&f, "one", rows[i].name, rows[i].operation, rows[i].value),
                         rows[i].error);
    }
    assert_int_equal(alter_group(&f, "", "consumer.session.timeout.ms", 0, "50000"),
                     MILL_KERR_INVALID_REQUEST);
    const struct alteration good = {"consumer.session.timeout.ms", "50000", 0};
    const struct altered twice[] = {{"one", &good, 1, GROUP}, {"one", &good, 1, GROUP}};
    assert_int_equal(alter_many(&f, twice, 2, 1, false), MILL_KERR_INVALID_REQUEST);
    assert_int_equal(alter_many(&f, twice, 1, 1, true), 0); /* only looked at */
    assert_int_equal(mill_control_controller(f.control)->group_settings.count, 0);
    const struct altered whole = {"one", &good, 1, GROUP};
    assert_int_equal(alter_whole(&f, &whole, 2), 0);
    assert_int_equal(now_of(&f, "one", MILL_GROUP_KEY_SESSION_TIMEOUT), 50000);
    fake_close(&f);
}

static void test_group_settings_are_bounded(void **state)
{
    (void)state;
    enum {
        MOST = 64, /* of one request */
    };
    static char names[MOST + 1][16];
    static struct altered many[MOST + 1];
    struct fake f;
    const struct alteration good = {"consumer.session.timeout.ms", "50000", 0};
    fake_open(&f, NULL, 0);
    uint32_t made = 0;
    while (made < MILL_GROUP_SETTINGS_MAX) {
        int32_t count = 0;
        for (; count < MOST && made < MILL_GROUP_SETTINGS_MAX; count++, made++) {
            snprintf(names[count], sizeof(names[count]), "g%u", made);
            many[count] = (struct altered){names[count], &good, 1, GROUP};
        }
        assert_int_equal(alter_many(&f, many, count, 1, false), 0);
    }
    assert_int_equal(alter_group(&f, "more", "consumer.session.timeout.ms", 0, "50000"),
                     MILL_KERR_INVALID_CONFIG);
    assert_int_equal(alter_group(&f, "g7", "consumer.session.timeout.ms", 0, "51000"), 0);
    assert_int_equal(alter_group(&f, "g7", "consumer.session.timeout.ms", 1, NULL), 0);
    assert_int_equal(alter_group(&f, "more", "consumer.session.timeout.ms", 0, "50000"), 0);
    for (int32_t i = 0; i <= MOST; i++) {
        snprintf(names[i], sizeof(names[i]), "g%d", i + 100);
        many[i] = (struct altered){names[i], &good, 1, GROUP};
    }
    assert_int_equal(alter_many(&f, many, MOST + 1, 1, false), MILL_KERR_INVALID_REQUEST);
    fake_close(&f);
}

/* Bounds that were made narrower since hold for what was set before. */
static void test_bounds_hold_for_old_settings(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(alter_group(&f, "one", "consumer.session.timeout.ms", 0, "60000"), 0);
    const char *const sets[] = {"group.consumer.max.session.timeout.ms=55000"};
    mill_control_close(f.control);
    mill_config_free(f.config);
    assert_int_equal(mill_config_load(NULL, sets, 1, true, &f.config), 0);
    assert_int_equal(fake_start_control(&f, 0), 0);
    fake_turns(&f, 3);
    assert_int_equal(now_of(&f, "one", MILL_GROUP_KEY_SESSION_TIMEOUT), 55000);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_settings_are_kept),
        cmocka_unit_test(test_wrong_group_settings_are_refused),
        cmocka_unit_test(test_group_settings_are_bounded),
        cmocka_unit_test(test_bounds_hold_for_old_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
