/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what was committed inside a transaction is the group's with the commit marker, nobody's
 * with the abort marker, and never in place of what was committed later. Method: the groups without
 * a log; the test says where records and markers lie. */
#include "control/group/groups.h"
#include "tests/unit/control/fake_core.h"

#include <stdlib.h>

static struct fake f;
static struct mill_groups groups;

static void setup(void)
{
    fake_open(&f, NULL, 0);
    assert_int_equal(mill_groups_open(&groups, mill_control_controller(f.control), NULL), 0);
    groups.shards.count = 2;
    groups.shards.items = calloc(2, sizeof(*groups.shards.items));
    assert_non_null(groups.shards.items);
    groups.shards.items[0].state = MILL_SHARD_READY;
}

static void teardown(void)
{
    mill_groups_close(&groups);
    assert_int_equal(groups.env.bytes, 0);
    assert_int_equal(groups.txn_offsets.count, 0);
    fake_close(&f);
}

/* A record of partition 3 in a transaction of shard 0. */
static void commit_inside(int64_t producer_id, const char *group, int64_t offset,
                          int64_t log_offset)
{
    const struct mill_offset_value value = {
        .offset = offset, .metadata = "note", .expire_ms = -1, .log_offset = log_offset};
    struct mill_txn_offset *made = mill_txn_offset_new(&groups, group, "topic", 3, &value, false);
    assert_non_null(made);
    mill_txn_offsets_add(&groups, 0, producer_id, made);
}

static int64_t offset_of(const char *group_id)
{
    const struct mill_group *group = mill_groups_find(&groups, group_id);
    const struct mill_group_offset *found =
        group ? mill_groups_offset(&groups, group, "topic", 3) : NULL;
    return found ? found->value.offset : -1;
}

static bool waits(const char *group_id)
{
    return mill_txn_offsets_wait(&groups, group_id, "topic", 3);
}

static void test_marker_decides(void **state)
{
    MILL_UNUSED(state);
    setup();
    commit_inside(7, "one", 40, 10);
    commit_inside(8, "two", 50, 11);
    commit_inside(7, "three", 60, 12);
    assert_true(waits("one") && waits("two") && waits("three"));
    assert_false(mill_txn_offsets_wait(&groups, "one", "topic", 4));
    assert_int_equal(offset_of("one"), -1);
    mill_groups_txn_ended(&groups, "topic", 0, 7, true); /* another topic's marker */
    assert_true(waits("one"));
    mill_groups_txn_ended(&groups, MILL_OFFSETS_TOPIC, 0, 7, true);
    assert_int_equal(offset_of("one"), 40);
    assert_int_equal(offset_of("three"), 60);
    assert_int_equal(offset_of("two"), -1);
    assert_true(waits("two") && !waits("one"));
    mill_groups_txn_ended(&groups, MILL_OFFSETS_TOPIC, 0, 8, false);
    assert_int_equal(offset_of("two"), -1);
    assert_false(waits("two"));
    teardown();
}

/* A marker that is met in the log ends what lies before it, and no more. */
static void test_marker_ends_what_lies_before(void **state)
{
    MILL_UNUSED(state);
    setup();
    commit_inside(7, "before", 40, 10);
    commit_inside(7, "behind", 50, 12);
    mill_txn_offsets_end(&groups, 0, 7, true, 11);
    assert_int_equal(offset_of("before"), 40);
    assert_int_equal(offset_of("behind"), -1);
    mill_txn_offsets_end(&groups, 1, 7, true, INT64_MAX); /* another shard */
    assert_true(waits("behind"));
    /* A shard that is read on meets the marker there. */
    groups.shards.items[0].state = MILL_SHARD_LOADING;
    mill_groups_txn_ended(&groups, MILL_OFFSETS_TOPIC, 0, 7, true);
    assert_true(waits("behind"));
    mill_txn_offsets_drop(&groups, 0);
    assert_false(waits("behind"));
    teardown();
}

/* The later record wins, whatever is decided when. */
static void test_what_was_committed_later_stays(void **state)
{
    MILL_UNUSED(state);
    setup();
    const struct mill_offset_value later = {
        .offset = 90, .metadata = "", .expire_ms = -1, .log_offset = 20};
    commit_inside(7, "one", 40, 10);
    commit_inside(7, "one", 45, 12); /* in place of its own older one */
    assert_int_equal(groups.txn_offsets.count, 1);
    assert_true(
        mill_groups_offset_set(&groups, mill_groups_make(&groups, "one"), "topic", 3, &later));
    mill_txn_offsets_end(&groups, 0, 7, true, INT64_MAX);
    assert_int_equal(offset_of("one"), 90);
    commit_inside(7, "one", 95, 21);
    mill_txn_offsets_end(&groups, 0, 7, true, INT64_MAX);
    assert_int_equal(offset_of("one"), 95);
    teardown();
}

static void test_memory_is_bounded(void **state)
{
    MILL_UNUSED(state);
    setup();
    const struct mill_offset_value value = {.metadata = ""};
    uint64_t full = groups.env.full;
    groups.env.bytes_max = groups.env.bytes + 50;
    assert_null(mill_txn_offset_new(&groups, "one", "topic", 3, &value, false));
    assert_int_equal(groups.env.full, full + 1);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marker_decides),
        cmocka_unit_test(test_marker_ends_what_lies_before),
        cmocka_unit_test(test_what_was_committed_later_stays),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
