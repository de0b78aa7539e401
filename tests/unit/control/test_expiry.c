/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: when a topic goes, its offsets go at once, and nothing else: what is too old, and groups
 * that nothing is left of, wait for the next check. Method: turns of the groups on virtual time,
 * beside a controller that deletes a real topic (groups_rig.h). */
#include "tests/unit/control/groups_rig.h"

static struct mill_now now;

static const struct mill_topic *topic_of(const char *name)
{
    return mill_topics_by_name(&groups.controller->topics, name, (uint32_t)strlen(name));
}

/* A turn; then the log has what was written. */
static void step(void)
{
    (void)mill_groups_step(&groups, &now);
    let_end(MILL_JOURNAL_DONE);
}

static void check_comes(void)
{
    now.mono_ns = groups.check_due_ns;
    now.wall_ms += groups.check_interval_ms;
    step();
}

static void topics_setup(void)
{
    setup();
    topic_make(MILL_OFFSETS_TOPIC, 1);
    topic_make("goes", 1);
    topic_make("stays", 1);
    groups.shards.topic_id = topic_of(MILL_OFFSETS_TOPIC)->record->id;
    now = (struct mill_now){.mono_ns = 2 * MILL_NS_PER_S, .wall_ms = 1 + groups.retention_ms};
    step();
}

static void goes(void)
{
    struct mill_topic *topics[] = {(struct mill_topic *)(uintptr_t)topic_of("goes")};
    assert_int_equal(mill_controller_delete(groups.controller, topics, 1), MILL_KERR_NONE);
}

static void committed(const char *group_id, const char *topic, int64_t commit_ms)
{
    struct mill_group *group = mill_groups_find(&groups, group_id);
    const struct mill_offset_value value = {
        .offset = 1, .metadata = "", .commit_ms = commit_ms, .expire_ms = -1};
    group = group ? group : mill_groups_make(&groups, group_id);
    assert_non_null(group);
    assert_true(mill_groups_offset_set(&groups, group, topic, 0, &value));
}

/* ret: offsets of the group, -1 there is none. */
static int32_t offsets_of(const char *group_id)
{
    const struct mill_group *group = mill_groups_find(&groups, group_id);
    return group ? (int32_t)group->offsets_count : -1;
}

static void test_group_outlives_its_last_topic(void **state)
{
    MILL_UNUSED(state);
    topics_setup();
    committed("empty", "goes", now.wall_ms);
    committed("other", "goes", now.wall_ms);
    committed("other", "stays", now.wall_ms);
    goes();
    step();
    assert_int_equal(offsets_of("empty"), 0);
    assert_int_equal(offsets_of("other"), 1);
    assert_int_equal(logged.count, 2); /* a tombstone for each offset */
    assert_int_equal(groups.offsets_expired, 2);
    step();
    assert_int_equal(offsets_of("empty"), 0);
    check_comes();
    assert_int_equal(offsets_of("empty"), -1);
    assert_int_equal(offsets_of("other"), 1);
    teardown();
}

static void test_deletion_ages_nothing(void **state)
{
    MILL_UNUSED(state);
    topics_setup();
    uint64_t due_ns = groups.check_due_ns;
    committed("old", "goes", now.wall_ms);
    committed("old", "stays", 0);
    goes();
    step();
    assert_int_equal(offsets_of("old"), 1);
    assert_int_equal(groups.check_due_ns, due_ns); /* nor does the check come later */
    check_comes();
    assert_int_equal(offsets_of("old"), -1);
    teardown();
}

/* What is due while a look runs is looked for behind it. */
static void test_looks_follow_each_other(void **state)
{
    MILL_UNUSED(state);
    topics_setup();
    committed("old", "stays", 0);
    mill_groups_expiry_begin(&groups, MILL_LOOK_TOPICS);
    mill_groups_expiry_begin(&groups, MILL_LOOK_AGE);
    mill_groups_expiry_step(&groups);
    assert_int_equal(groups.expiry.looks, MILL_LOOK_AGE);
    mill_groups_expiry_step(&groups);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(groups.expiry.looks, 0);
    assert_int_equal(offsets_of("old"), -1);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_outlives_its_last_topic),
        cmocka_unit_test(test_deletion_ages_nothing),
        cmocka_unit_test(test_looks_follow_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
