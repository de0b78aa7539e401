/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the classic group protocol as clients know it: who joins, waits, leads, is assigned, is
 * fenced, is thrown out, and when. Method: the state machine alone, with a log that the test
 * answers and time that the test moves (group_rig.h). */
#include "tests/unit/control/group_rig.h"

#include <time.h>

static void test_join_sync_leave_of_one(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter waiter;
    struct member a = {.protocols = {"range"}, .id_required = true};
    rig_open(&rig, 1);
    join(&rig, &a, &waiter);
    assert_int_equal(waiter.error, MILL_KERR_MEMBER_ID_REQUIRED);
    assert_memory_equal(waiter.member_id, "client-", 7);
    snprintf(a.id, sizeof(a.id), "%s", waiter.member_id);
    join(&rig, &a, &waiter);
    assert_int_equal(waiter.error, 0);
    assert_int_equal(waiter.generation, 1);
    assert_string_equal(waiter.leader, a.id);
    assert_int_equal(waiter.members_count, 1);
    assert_int_equal(beat(&rig, &a, 1), 0);
    assert_int_equal(beat(&rig, &a, 2), MILL_KERR_ILLEGAL_GENERATION);
    struct waiter lead = waiter;
    sync_as(&rig, &a, 1, &lead, (const char *[]){"all"}, &waiter);
    assert_false(waiter.answered); /* not before the log has it */
    store_end(&rig, 0);
    assert_string_equal(waiter.assignment, "all");
    assert_int_equal(mill_group_leave(&rig.env, rig.group, "nobody", NULL),
                     MILL_KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(mill_group_leave(&rig.env, rig.group, a.id, NULL), 0);
    assert_int_equal(rig.group->state, MILL_GROUP_EMPTY);
    assert_int_equal(rig.group->generation, 2);
    assert_int_equal(rig.stores[0].why, MILL_GROUP_STORE_EMPTY);
    assert_int_equal(beat(&rig, &a, 1), MILL_KERR_UNKNOWN_MEMBER_ID);
    rig_close(&rig);
}

static void test_join_bad_requests_are_refused(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter waiter;
    struct member quick = {.protocols = {"range"}, .session_timeout_ms = 99};
    struct member slow = {.protocols = {"range"}, .session_timeout_ms = 60001};
    struct member none = {.protocols = {NULL}};
    struct member stranger = {.protocols = {"range"}, .id = "stranger"};
    struct member other = {.protocols = {"sticky"}};
    struct member a = {.protocols = {"range"}};
    rig_open(&rig, 1);
    join(&rig, &quick, &waiter);
    assert_int_equal(waiter.error, MILL_KERR_INVALID_SESSION_TIMEOUT);
    join(&rig, &slow, &waiter);
    assert_int_equal(waiter.error, MILL_KERR_INVALID_SESSION_TIMEOUT);
    join(&rig, &none, &waiter);
    assert_int_equal(waiter.error, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
    join(&rig, &stranger, &waiter);
    assert_int_equal(waiter.error, MILL_KERR_UNKNOWN_MEMBER_ID);
    join(&rig, &a, &waiter);
    assert_int_equal(waiter.error, 0);
    join(&rig, &other, &waiter);
    assert_int_equal(waiter.error, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
    rig_close(&rig);
}

static void test_initial_delay_waits_for_more(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter wa;
    struct waiter wb;
    struct member a = {.protocols = {"range"}};
    struct member b = {.protocols = {"range"}};
    rig_open(&rig, 1);
    rig.env.initial_delay_ms = 3000;
    join(&rig, &a, &wa);
    pass(&rig, 2000);
    join(&rig, &b, &wb);
    pass(&rig, 2000);
    assert_false(wa.answered); /* one more came: as long again */
    pass(&rig, 2001);
    assert_true(wa.answered && wb.answered);
    assert_int_equal(wa.generation, 1);
    assert_int_equal(wb.generation, 1);
    rig_close(&rig);
}

static void test_protocol_is_elected_by_majority(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter w[3];
    struct member m[3] = {{.protocols = {"range", "sticky"}},
                          {.protocols = {"sticky", "range"}},
                          {.protocols = {"sticky", "range"}}};
    rig_open(&rig, 1);
    rig.env.initial_delay_ms = 100;
    for (int i = 0; i < 3; i++) {
        join(&rig, &m[i], &w[i]);
    }
    pass(&rig, 1000);
    assert_true(w[0].answered);
    assert_string_equal(rig.group->protocol, "sticky");
    rig_close(&rig);
}

static void test_silent_member_is_removed_parked_one_is_not(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter wa;
    struct waiter wb;
    struct member a = {.protocols = {"range"}};
    struct member b = {.protocols = {"range"}};
    rig_open(&rig, 1);
    two_stable(&rig, &a, &b, &wa, &wb);
    int32_t generation = rig.group->generation;
    for (int i = 0; i < 3; i++) {
        pass(&rig, TIMEOUT_MS / 2);
        assert_int_equal(beat(&rig, &a, generation), i < 1 ? 0 : MILL_KERR_REBALANCE_IN_PROGRESS);
    }
    assert_int_equal(rig.env.expired_members, 1);
    join(&rig, &a, &wa);
    assert_int_equal(wa.generation, generation + 1);
    assert_int_equal(wa.members_count, 1);
    /* b comes back and waits for a for longer than its own time-out: it stays. */
    struct member again = {.protocols = {"range"}};
    pass(&rig, TIMEOUT_MS / 2);
    assert_int_equal(beat(&rig, &a, generation + 1), 0);
    join(&rig, &again, &wb);
    for (int i = 0; i < 4; i++) {
        pass(&rig, TIMEOUT_MS / 2);
        beat(&rig, &a, generation + 1);
    }
    assert_false(wb.answered);
    assert_int_equal(rig.group->members_count, 2);
    for (int i = 0; i < 2; i++) { /* a lives, but does not join in time: it is left out */
        pass(&rig, TIMEOUT_MS / 2);
        beat(&rig, &a, generation + 1);
    }
    assert_true(wb.answered);
    assert_int_equal(wb.error, 0);
    assert_int_equal(rig.group->members_count, 1);
    rig_close(&rig);
}

static void test_leader_that_does_not_sync_is_removed(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter wa;
    struct waiter wb;
    struct member a = {.protocols = {"range"}, .session_timeout_ms = 60000};
    struct member b = {.protocols = {"range"}, .session_timeout_ms = 60000};
    rig_open(&rig, 1);
    two_stable(&rig, &a, &b, &wa, &wb);
    join(&rig, &b, &wb); /* unchanged, not the leader: answered at once */
    assert_true(wb.answered);
    join(&rig, &a, &wa); /* the leader: a new round */
    join(&rig, &b, &wb);
    assert_true(wa.answered && wb.answered);
    int32_t generation = wa.generation;
    sync_as(&rig, &b, generation, NULL, NULL, &wb);
    pass(&rig, REBALANCE_MS + 1);
    assert_int_equal(wb.error, MILL_KERR_REBALANCE_IN_PROGRESS);
    assert_int_equal(rig.group->members_count, 1);
    assert_ptr_equal(rig.group->leader, mill_group_find(rig.group, b.id));
    rig_close(&rig);
}

static void test_failed_store_begins_anew(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter wa;
    struct waiter wb;
    struct member a = {.protocols = {"range"}};
    struct member b = {.protocols = {"range"}};
    static const char *const assigned[] = {"one", "two"};
    rig_open(&rig, 1);
    two_stable(&rig, &a, &b, &wa, &wb);
    for (int round = 0; round < 2; round++) {
        join(&rig, &a, &wa);
        join(&rig, &b, &wb);
        struct waiter lead = wa;
        sync_as(&rig, &b, lead.generation, NULL, NULL, &wb);
        rig.refuse = round == 0 ? 0 : MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS;
        sync_as(&rig, &a, lead.generation, &lead, assigned, &wa);
        if (round == 0) {
            store_end(&rig, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        }
        assert_true(wa.error != 0 && wb.error != 0);
        assert_string_equal(wa.assignment, "");
        assert_int_equal(rig.group->state, MILL_GROUP_PREPARING);
    }
    rig_close(&rig);
}

/* A record that comes late, when another rebalance has begun, changes nothing. */
static void test_late_store_is_of_no_use(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter wa;
    struct waiter wb;
    struct waiter late;
    struct member a = {.protocols = {"range"}};
    struct member b = {.protocols = {"range"}};
    static const char *const assigned[] = {"one", "two"};
    rig_open(&rig, 1);
    two_stable(&rig, &a, &b, &wa, &wb);
    join(&rig, &a, &wa);
    join(&rig, &b, &wb);
    struct waiter lead = wa;
    sync_as(&rig, &a, lead.generation, &lead, assigned, &late);
    assert_int_equal(mill_group_leave(&rig.env, rig.group, b.id, NULL), 0);
    assert_int_equal(late.error, MILL_KERR_REBALANCE_IN_PROGRESS);
    store_end(&rig, 0);
    assert_int_equal(rig.group->state, MILL_GROUP_PREPARING);
    rig_close(&rig);
}

static void test_static_member_comes_back_without_a_rebalance(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter wa;
    struct waiter wb;
    struct waiter wc;
    struct member a = {.protocols = {"range"}, .instance_id = "first"};
    struct member b = {.protocols = {"range"}, .instance_id = "second"};
    rig_open(&rig, 1);
    two_stable(&rig, &a, &b, &wa, &wb);
    int32_t generation = rig.group->generation;
    struct member again = {.protocols = {"range"}, .instance_id = "second"};
    join(&rig, &again, &wc);
    assert_false(wc.answered); /* its new id is to be in the log first */
    store_end(&rig, 0);
    assert_int_equal(wc.error, 0);
    assert_int_equal(wc.generation, generation);
    assert_int_equal(wc.members_count, 0);
    assert_memory_equal(wc.member_id, "second-", 7);
    snprintf(again.id, sizeof(again.id), "%s", wc.member_id);
    assert_int_equal(rig.group->state, MILL_GROUP_STABLE);
    assert_int_equal(beat(&rig, &b, generation), MILL_KERR_FENCED_INSTANCE_ID);
    assert_int_equal(beat(&rig, &again, generation), 0);
    assert_int_equal(beat(&rig, &a, generation), 0);
    sync_as(&rig, &again, generation, NULL, NULL, &wc);
    assert_string_equal(wc.assignment, "two");
    /* The leader comes back: it is told that it leads only where it can skip the assignment. */
    struct member leader = {.protocols = {"range"}, .instance_id = "first", .skip = true};
    join(&rig, &leader, &wa);
    store_end(&rig, 0);
    assert_true(wa.skip);
    assert_string_equal(wa.leader, wa.member_id);
    assert_int_equal(wa.members_count, 2);
    leader.skip = false;
    leader.id[0] = '\0';
    join(&rig, &leader, &wa);
    store_end(&rig, 0);
    assert_false(wa.skip);
    assert_string_not_equal(wa.leader, wa.member_id);
    assert_int_equal(wa.members_count, 0);
    /* An administrator removes it by its name. */
    assert_int_equal(mill_group_leave(&rig.env, rig.group, b.id, "second"),
                     MILL_KERR_FENCED_INSTANCE_ID);
    assert_int_equal(mill_group_leave(&rig.env, rig.group, "", "second"), 0);
    assert_int_equal(rig.group->members_count, 1);
    rig_close(&rig);
}

static void test_size_and_memory_are_bounded(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter w[3];
    struct member m[3] = {
        {.protocols = {"range"}}, {.protocols = {"range"}}, {.protocols = {"range"}}};
    rig_open(&rig, 1);
    rig.env.size_max = 2;
    join(&rig, &m[0], &w[0]);
    join(&rig, &m[1], &w[1]);
    snprintf(m[0].id, sizeof(m[0].id), "%s", w[0].member_id);
    join(&rig, &m[0], &w[0]);
    join(&rig, &m[2], &w[2]);
    assert_int_equal(w[2].error, MILL_KERR_GROUP_MAX_SIZE_REACHED);
    assert_int_equal(rig.env.full, 1);
    rig.env.size_max = 1000;
    rig.env.bytes_max = rig.env.bytes + 16;
    join(&rig, &m[2], &w[2]);
    assert_int_equal(w[2].error, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(rig.env.full, 2);
    rig_close(&rig);
}

/* Seconds of this thread's processor that the end of a join of so many members takes, when all but
 * the last name as many protocols as they may, and it names only their last. */
static double election_s(uint32_t members)
{
    static struct rig rig;
    static struct waiter waiters[512];
    static char names[MILL_GROUP_PROTOCOLS_MAX][16];
    struct mill_group_protocol protocols[MILL_GROUP_PROTOCOLS_MAX];
    struct timespec begun;
    struct timespec ended;
    assert_true(members <= MILL_COUNT_OF(waiters));
    rig_open(&rig, 1);
    rig.env.bytes_max = 64 << 20;
    rig.env.initial_delay_ms = 3000;
    for (uint32_t i = 0; i < MILL_GROUP_PROTOCOLS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "protocol-%u", i);
        protocols[i] = (struct mill_group_protocol){.name = names[i]};
    }
    for (uint32_t i = 0; i < members; i++) {
        bool last = i == members - 1;
        struct mill_group_join message = {
            .member_id = "",
            .client_id = "client",
            .client_host = "/127.0.0.1",
            .rebalance_timeout_ms = REBALANCE_MS,
            .session_timeout_ms = TIMEOUT_MS,
            .protocol_type = "consumer",
            .protocols = last ? &protocols[MILL_GROUP_PROTOCOLS_MAX - 1] : protocols,
            .protocols_count = last ? 1 : MILL_GROUP_PROTOCOLS_MAX,
            .waiter = &waiters[i],
        };
        waiters[i] = (struct waiter){.members_untold = true};
        mill_group_join(&rig.env, rig.group, &message);
    }
    assert_int_equal(rig.group->state, MILL_GROUP_PREPARING);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    pass(&rig, REBALANCE_MS);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    assert_true(waiters[0].answered);
    assert_int_equal(waiters[0].error, 0);
    rig_close(&rig);
    return (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) * 1e-9;
}

/* Four times the members cost about four times as much, not sixteen: the best of several tries. */
static void test_election_grows_with_members_not_their_square(void **state)
{
    MILL_UNUSED(state);
    double few_s = 1e9;
    double many_s = 1e9;
    for (int i = 0; i < 8; i++) {
        few_s = MILL_MIN(few_s, election_s(100));
        many_s = MILL_MIN(many_s, election_s(400));
    }
    print_message("100 members %.0f us, 400 members %.0f us\n", few_s * 1e6, many_s * 1e6);
    assert_true(many_s < 9 * few_s);
}

static void test_too_many_protocols_are_refused(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter waiter = {0};
    struct mill_group_protocol protocols[MILL_GROUP_PROTOCOLS_MAX + 1];
    rig_open(&rig, 1);
    for (size_t i = 0; i < MILL_COUNT_OF(protocols); i++) {
        protocols[i] = (struct mill_group_protocol){.name = (char *)(uintptr_t) "range"};
    }
    const struct mill_group_join message = {.member_id = "",
                                            .client_id = "client",
                                            .client_host = "/",
                                            .rebalance_timeout_ms = REBALANCE_MS,
                                            .session_timeout_ms = TIMEOUT_MS,
                                            .protocol_type = "consumer",
                                            .protocols = protocols,
                                            .protocols_count = MILL_COUNT_OF(protocols),
                                            .waiter = &waiter};
    mill_group_join(&rig.env, rig.group, &message);
    assert_int_equal(waiter.error, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
    assert_int_equal(rig.group->members_count, 0);
    rig_close(&rig);
}

/* A batch queued behind one of unknown outcome is told as written: what is read on from stays the
 * first of the two, else the very record in doubt would be left out. */
static void test_unknown_outcome_is_read_from_its_own_offset(void **state)
{
    MILL_UNUSED(state);
    struct mill_shard shard = {.state = MILL_SHARD_READY, .next_offset = 100};
    struct mill_shards shards = {.items = &shard, .count = 1};
    const struct mill_journal_result unknown = {.outcome = MILL_JOURNAL_UNKNOWN};
    const struct mill_journal_result done = {.outcome = MILL_JOURNAL_DONE, .next_offset = 102};
    assert_int_equal(mill_shards_outcome(&shards, 0, &unknown),
                     MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(shard.state, MILL_SHARD_LOADING);
    assert_int_equal(mill_shards_outcome(&shards, 0, &done), MILL_KERR_NONE);
    assert_int_equal(shard.next_offset, 100);
    shard.state = MILL_SHARD_READY;
    assert_int_equal(mill_shards_outcome(&shards, 0, &done), MILL_KERR_NONE);
    assert_int_equal(shard.next_offset, 102);
}

/* Ids that were given and never used count as memory, until they are dropped. */
static void test_ids_given_count_as_memory(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter waiter;
    struct member member = {.protocols = {"range"}, .id_required = true};
    uint64_t before_bytes = 0;
    uint32_t given = 0;
    rig_open(&rig, 1);
    rig.env.bytes_max = 4096;
    for (;; given++) {
        before_bytes = rig.env.bytes;
        assert_true(given < 100);
        join(&rig, &member, &waiter);
        if (waiter.error != MILL_KERR_MEMBER_ID_REQUIRED) {
            break;
        }
        assert_true(rig.env.bytes >= before_bytes + strlen(waiter.member_id));
    }
    assert_int_equal(waiter.error, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(rig.group->pending_count, given);
    assert_int_equal(rig.env.full, 1);
    pass(&rig, TIMEOUT_MS);
    assert_int_equal(rig.env.bytes, 0);
    join(&rig, &member, &waiter);
    assert_int_equal(waiter.error, MILL_KERR_MEMBER_ID_REQUIRED);
    /* And not without end, however much memory there is. */
    rig.env.bytes_max = 64 << 20;
    rig.env.size_max = INT32_MAX;
    for (given = 1; given < 20000; given++) {
        join(&rig, &member, &waiter);
        if (waiter.error != MILL_KERR_MEMBER_ID_REQUIRED) {
            break;
        }
    }
    assert_int_equal(given, 10000);
    rig_close(&rig);
}

static void no_random(void *context, void *ret_bytes, size_t size_bytes)
{
    MILL_UNUSED(context);
    memset(ret_bytes, 7, size_bytes);
}

/* A look at all groups for what is expired takes many turns, and asks for each at once. */
static void test_expiry_is_shared_out_over_turns(void **state)
{
    MILL_UNUSED(state);
    enum { SHARDS = 3, GROUPS = 5000 };
    static struct mill_controller controller;
    static struct mill_groups groups;
    struct mill_config *config = NULL;
    struct mill_now now = {.mono_ns = MILL_NS_PER_S, .wall_ms = 1000};
    assert_int_equal(mill_config_load(NULL, NULL, 0, false, &config), 0);
    controller = (struct mill_controller){.config = config, .random = no_random};
    assert_int_equal(mill_topics_init(&controller.topics, 8), 0);
    struct mill_topic *topic =
        mill_topic_new(MILL_OFFSETS_TOPIC, sizeof(MILL_OFFSETS_TOPIC) - 1, SHARDS);
    assert_non_null(topic);
    topic->record->id = (struct mill_uuid){{1}};
    mill_topics_link(&controller.topics, topic);
    assert_int_equal(mill_groups_open(&groups, &controller, NULL), 0);
    mill_groups_step(&groups, &now);
    assert_int_equal(groups.shards.count, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++) {
        groups.shards.items[i].state = MILL_SHARD_READY;
    }
    groups.shards.loading_count = 0;
    for (uint32_t i = 0; i < GROUPS; i++) {
        char id[16];
        snprintf(id, sizeof(id), "group-%u", i);
        assert_non_null(mill_groups_make(&groups, id));
    }
    now.mono_ns += 3600 * MILL_NS_PER_S;
    uint32_t turns = 0;
    for (uint32_t before = GROUPS; groups.groups_count > 0; turns++) {
        uint64_t next_ns = mill_groups_step(&groups, &now);
        assert_true(before - groups.groups_count <= 64);
        assert_true(groups.groups_count == 0 || next_ns == now.mono_ns);
        assert_true(turns < 2 * GROUPS / 64);
        before = groups.groups_count;
    }
    mill_groups_close(&groups);
    mill_topics_clear(&controller.topics);
    mill_config_free(config);
}

/* Whoever waits in a group that becomes one of the other protocol is told. */
static void test_forgotten_group_answers_its_joins(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter waiter;
    struct member a = {.protocols = {"range"}};
    rig_open(&rig, 1);
    rig.env.initial_delay_ms = 1000;
    join(&rig, &a, &waiter);
    assert_false(waiter.answered);
    mill_group_forget_classic(&rig.env, rig.group);
    assert_true(waiter.answered);
    assert_int_equal(waiter.error, MILL_KERR_REBALANCE_IN_PROGRESS);
    assert_int_equal(rig.group->members_count, 0);
    rig_close(&rig);
}

static void test_commit_by_state(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct waiter wa;
    struct waiter wb;
    struct member a = {.protocols = {"range"}};
    struct member b = {.protocols = {"range"}};
    rig_open(&rig, 1);
    assert_int_equal(mill_group_may_commit(&rig.env, rig.group, "", NULL, -1), 0);
    assert_int_equal(mill_group_may_commit(&rig.env, rig.group, "x", NULL, 1),
                     MILL_KERR_UNKNOWN_MEMBER_ID);
    two_stable(&rig, &a, &b, &wa, &wb);
    int32_t generation = rig.group->generation;
    assert_int_equal(mill_group_may_commit(&rig.env, rig.group, "", NULL, -1),
                     MILL_KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(mill_group_may_commit(&rig.env, rig.group, a.id, NULL, generation), 0);
    assert_int_equal(mill_group_may_commit(&rig.env, rig.group, a.id, NULL, generation - 1),
                     MILL_KERR_ILLEGAL_GENERATION);
    join(&rig, &a, &wa);
    assert_int_equal(mill_group_may_commit(&rig.env, rig.group, b.id, NULL, generation), 0);
    join(&rig, &b, &wb);
    assert_int_equal(mill_group_may_commit(&rig.env, rig.group, b.id, NULL, generation + 1),
                     MILL_KERR_REBALANCE_IN_PROGRESS);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_sync_leave_of_one),
        cmocka_unit_test(test_join_bad_requests_are_refused),
        cmocka_unit_test(test_initial_delay_waits_for_more),
        cmocka_unit_test(test_protocol_is_elected_by_majority),
        cmocka_unit_test(test_silent_member_is_removed_parked_one_is_not),
        cmocka_unit_test(test_leader_that_does_not_sync_is_removed),
        cmocka_unit_test(test_failed_store_begins_anew),
        cmocka_unit_test(test_late_store_is_of_no_use),
        cmocka_unit_test(test_static_member_comes_back_without_a_rebalance),
        cmocka_unit_test(test_size_and_memory_are_bounded),
        cmocka_unit_test(test_election_grows_with_members_not_their_square),
        cmocka_unit_test(test_too_many_protocols_are_refused),
        cmocka_unit_test(test_unknown_outcome_is_read_from_its_own_offset),
        cmocka_unit_test(test_ids_given_count_as_memory),
        cmocka_unit_test(test_expiry_is_shared_out_over_turns),
        cmocka_unit_test(test_commit_by_state),
        cmocka_unit_test(test_forgotten_group_answers_its_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
