/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: while a change of a group of the consumer protocol is on its way to the log, nobody is told
 * what will not be true behind it, and what waits for it is bounded. Method: requests as frames to
 * the groups, with a log that the test ends when it likes (groups_rig.h). */
#include "tests/unit/control/groups_rig.h"

/* A classic member comes while the group is about to become one of the other protocol: it waits,
 * and is what such a group makes of it. */
static void test_first_plan_keeps_classic_joins_out(void **state)
{
    MILL_UNUSED(state);
    setup();
    struct mill_join_group_request message;
    struct mill_admin_request *first = beat_in("a", MILL_CONSUMER_JOINS, NULL);
    mill_join_group_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.session_timeout_ms = 10000;
    message.rebalance_timeout_ms = 10000;
    message.member_id = mill_wstr_of("");
    message.protocol_type = mill_wstr_of("other");
    message.protocols = (struct mill_warray){.count = 1, .get = get_protocol};
    struct mill_admin_request *classic =
        send(MILL_API_KEY_JOIN_GROUP, JOIN_VERSION, encode_join, &message);
    assert_false(classic->ready);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(first), 0);
    assert_int_equal(answer_of(classic), MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
    assert_int_equal(group_now()->members_count, 0);
    assert_int_equal(group_now()->consumers->count, 1);
    assert_int_equal(groups.parked_count, 0);
    teardown();
}

static void test_ids_are_bounded(void **state)
{
    MILL_UNUSED(state);
    setup();
    char id[MILL_CONSUMER_ID_BYTES_MAX + 2];
    memset(id, 'i', sizeof(id));
    id[MILL_CONSUMER_ID_BYTES_MAX + 1] = '\0';
    assert_int_equal(answer_of(beat_in(id, MILL_CONSUMER_JOINS, NULL)), MILL_KERR_INVALID_REQUEST);
    assert_int_equal(held.begun, 0);
    id[MILL_CONSUMER_ID_BYTES_MAX] = '\0';
    join(id);
    teardown();
}

/* Tombstones of all that are silent do not fit into one batch. */
static void test_removals_come_in_batches_that_fit(void **state)
{
    MILL_UNUSED(state);
    setup();
    uint32_t batches = 0;
    for (uint32_t i = 0; i < 8; i++) {
        char id[8];
        snprintf(id, sizeof(id), "m%u", i);
        join(id);
    }
    struct mill_group *group = mill_groups_find(&groups, "group");
    held.records_max = 8; /* three of each member, and the epoch */
    groups.env.now_ns += 3600 * MILL_NS_PER_S;
    for (uint32_t tries = 0; tries < 10 && group->consumers->count > 0; tries++) {
        mill_consumers_time(&groups, group);
        batches += held.begun;
        let_end(MILL_JOURNAL_DONE);
    }
    assert_int_equal(group->consumers->count, 0);
    assert_int_equal(batches, 4);
    teardown();
}

static void test_frames_that_wait_count_as_memory(void **state)
{
    MILL_UNUSED(state);
    setup();
    struct mill_admin_request *first = beat_in("a", MILL_CONSUMER_JOINS, NULL);
    uint64_t before = groups.env.bytes;
    struct mill_admin_request *waits = beat_in("b", MILL_CONSUMER_JOINS, long_text);
    assert_false(waits->ready);
    assert_true(groups.env.bytes >= before + LONG_BYTES);
    groups.env.bytes_max = groups.env.bytes + LONG_BYTES / 2;
    uint64_t full = groups.env.full;
    struct mill_admin_request *many = beat_in("c", MILL_CONSUMER_JOINS, long_text);
    assert_int_equal(answer_of(many), MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(groups.env.full, full + 1);
    groups.env.bytes_max = UINT64_MAX;
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(first), 0);
    assert_int_equal(answer_of(waits), 0);
    assert_int_equal(groups.parked_count, 0);
    teardown(); /* nothing of them is counted any more */
}

/* One that is being removed is not told that it is a member. */
static void test_heartbeats_wait_for_removals(void **state)
{
    MILL_UNUSED(state);
    setup();
    join("a");
    struct mill_admin_request *leaves = beat_in("a", MILL_CONSUMER_LEAVES, NULL);
    struct mill_admin_request *late = beat_in("a", 1, NULL);
    assert_false(late->ready);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(leaves), 0);
    assert_int_equal(answer_of(late), MILL_KERR_UNKNOWN_MEMBER_ID);
    join("b");
    int32_t epoch = group_now()->generation;
    groups.env.now_ns += 3600 * MILL_NS_PER_S;
    mill_consumers_time(&groups, mill_groups_find(&groups, "group"));
    assert_int_equal(held.begun, 1);
    late = beat_in("b", epoch, NULL);
    assert_false(late->ready);
    let_end(MILL_JOURNAL_REFUSED); /* it stays after all */
    assert_int_equal(answer_of(late), 0);
    mill_consumers_time(&groups, mill_groups_find(&groups, "group"));
    assert_int_equal(held.begun, 0); /* and was heard of */
    teardown();
}

/* A rack that there was no memory for is not none. */
static void test_short_memory_closes(void **state)
{
    MILL_UNUSED(state);
    setup();
    pool_bytes = LONG_BYTES - 1;
    struct mill_admin_request *request = beat_in("a", MILL_CONSUMER_JOINS, long_text);
    assert_true(request->ready);
    assert_int_equal(request->outcome, MILL_OUTCOME_CLOSE);
    assert_int_equal(held.begun, 0);
    mill_admin_free(request);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_plan_keeps_classic_joins_out),
        cmocka_unit_test(test_ids_are_bounded),
        cmocka_unit_test(test_removals_come_in_batches_that_fit),
        cmocka_unit_test(test_frames_that_wait_count_as_memory),
        cmocka_unit_test(test_heartbeats_wait_for_removals),
        cmocka_unit_test(test_short_memory_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
