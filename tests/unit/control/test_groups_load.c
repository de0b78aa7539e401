/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a load of __consumer_offsets finds no memory for is not forgotten: the record, or the
 * marker of a transaction, is told as one to be read again, and then it is there; and a group is
 * what its own records say. Method: the groups without a log; each record is offered with each of
 * its allocations failing in turn. */
#include "control/group/consumer_records.h"
#include "control/group/groups.h"
#include "tests/unit/alloc_fail.h"
#include "tests/unit/control/fake_core.h"

static struct fake f;
static struct mill_groups groups;

static void setup(void)
{
    fake_open(&f, NULL, 0);
    assert_int_equal(mill_groups_open(&groups, mill_control_controller(f.control), NULL), 0);
    groups.shards.count = 1;
    groups.shards.items = calloc(1, sizeof(*groups.shards.items));
    assert_non_null(groups.shards.items);
}

static void teardown(void)
{
    mill_groups_close(&groups);
    assert_int_equal(groups.env.bytes, 0);
    fake_close(&f);
}

/* Where a record lies, and how it is read. */
struct place {
    int64_t offset;
    int64_t producer_id; /* of a transaction, else -1 */
    bool again;
};

/* Offers a record once. value NULL: a tombstone. ret: it was taken. */
static bool offer(struct place place, const uint8_t *key, uint32_t key_bytes, const uint8_t *value,
                  uint32_t value_bytes)
{
    const struct mill_journal_at at = {
        .offset = place.offset, .timestamp_ms = 1, .producer_id = place.producer_id};
    struct mill_pool pool = {.limit_bytes = MILL_SHARDS_POOL_BYTES};
    struct mill_buf key_buf;
    struct mill_buf value_buf;
    const struct mill_record record = {
        .key_length = (int32_t)key_bytes,
        .value_length = value ? (int32_t)value_bytes : -1,
        .key = mill_cursor_over(&key_buf, (void *)(uintptr_t)key, key_bytes),
        .value = mill_cursor_over(&value_buf, (void *)(uintptr_t)value, value_bytes)};
    assert_non_null(key);
    groups.shards.memory_short = false;
    bool taken = groups.shards.calls->record(&groups, 0, place.again, &at, &record, &pool);
    mill_pool_clear(&pool);
    return taken;
}

/* Offers a record until it is taken. ret: how often it was not. */
static uint32_t load(struct place place, const uint8_t *key, uint32_t key_bytes,
                     const uint8_t *value, uint32_t value_bytes)
{
    bool taken = false;
    uint32_t tries = 0;
    for (; !taken; tries++) {
        assert_true(tries < 1000);
        alloc_arm(tries + 1, false);
        taken = offer(place, key, key_bytes, value, value_bytes);
        alloc_disarm();
        assert_true(taken ? alloc_fail.failed == 0 : groups.shards.memory_short);
    }
    return tries - 1;
}

static void load_consumer(struct mill_pool *pool, enum mill_consumer_record_type type,
                          const char *about, const uint8_t *value, uint32_t value_bytes)
{
    uint32_t key_bytes = 0;
    const uint8_t *key = mill_consumer_key(pool, type, "group", about, &key_bytes);
    const struct place place = {.offset = 5, .producer_id = -1};
    assert_non_null(value);
    assert_true(load(place, key, key_bytes, value, value_bytes) > 0);
}

static void test_consumer_records_are_read_again(void **state)
{
    MILL_UNUSED(state);
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    struct mill_part parts[] = {{.topic = {{1}}, .partition = 0}};
    char *names[] = {(char *)(uintptr_t) "logs"};
    const struct mill_consumer member = {.instance_id = (char *)(uintptr_t) "instance",
                                         .client_id = (char *)(uintptr_t) "client",
                                         .client_host = (char *)(uintptr_t) "/::1",
                                         .regex = (char *)(uintptr_t) "lo.*",
                                         .names = names,
                                         .names_count = 1,
                                         .epoch = 2,
                                         .previous_epoch = 1,
                                         .assigned = {parts, 1}};
    const struct mill_consumer_regex regex = {.topics = names, .topics_count = 1};
    uint32_t bytes = 0;
    setup();
    uint8_t *value = mill_consumer_member_value(&pool, &member, &bytes);
    load_consumer(&pool, MILL_CONSUMER_RECORD_MEMBER, "a", value, bytes);
    value = mill_consumer_current_value(&pool, &member, &bytes);
    load_consumer(&pool, MILL_CONSUMER_RECORD_CURRENT, "a", value, bytes);
    value = mill_consumer_target_value(&pool, &member.assigned, &bytes);
    load_consumer(&pool, MILL_CONSUMER_RECORD_TARGET, "a", value, bytes);
    value = mill_consumer_regex_value(&pool, &regex, 1, 1, &bytes);
    load_consumer(&pool, MILL_CONSUMER_RECORD_REGEX, "lo.*", value, bytes);
    const struct mill_group *group = mill_groups_find(&groups, "group");
    assert_non_null(group);
    const struct mill_consumer *found = mill_consumer_find(group, "a");
    assert_non_null(found);
    assert_true(found->known);
    assert_string_equal(found->instance_id, "instance");
    assert_string_equal(found->names[0], "logs");
    assert_int_equal(found->assigned.count, 1);
    assert_int_equal(found->target.count, 1);
    assert_int_equal(group->consumers->count, 1);
    assert_string_equal(group->consumers->regexes->topics[0], "logs");
    assert_null(group->consumers->regexes->next);
    mill_pool_clear(&pool);
    teardown();
}

/* Writes the record of a classic group of two members, assigned a byte each. */
static uint8_t *classic_value(struct mill_pool *pool, uint32_t *ret_bytes)
{
    static uint8_t bytes[] = {1};
    static char texts[][8] = {"a", "b", "client", "/::1", "range", "type"};
    struct mill_group_protocol protocol = {.name = texts[4], .metadata = {bytes, 1}};
    struct mill_group_member members[2];
    for (uint32_t i = 0; i < MILL_COUNT_OF(members); i++) {
        members[i] = (struct mill_group_member){.next = i == 0 ? &members[1] : NULL,
                                                .id = texts[i],
                                                .client_id = texts[2],
                                                .client_host = texts[3],
                                                .session_timeout_ms = 10000,
                                                .rebalance_timeout_ms = 20000,
                                                .protocols = &protocol,
                                                .protocols_count = 1,
                                                .assignment = {bytes, 1}};
    }
    const struct mill_group group = {.generation = 3,
                                     .protocol_type = texts[5],
                                     .protocol = texts[4],
                                     .members = members,
                                     .members_count = 2,
                                     .leader = &members[1]};
    return mill_group_value_write(pool, &group, ret_bytes);
}

/* Two members with what they were assigned, and what became of it after a load. */
static void check_classic(enum mill_group_state state)
{
    const struct mill_group *group = mill_groups_find(&groups, "group");
    assert_non_null(group);
    assert_int_equal(group->members_count, 2);
    assert_int_equal(group->state, state);
    assert_string_equal(group->leader->id, "b");
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        assert_int_equal(member->assignment.size_bytes, 1);
        assert_true(member->expires_ns != MILL_NEVER);
    }
}

/* Members that there is no memory for are not left out; nor when the record turned its group back
 * and is read again, where members that are there would stand for a newer one. */
static void test_classic_records_are_read_again(void **state)
{
    MILL_UNUSED(state);
    for (int again = 0; again < 2; again++) {
        struct mill_pool pool = {.limit_bytes = 1 << 20};
        uint32_t key_bytes = 0;
        uint32_t bytes = 0;
        setup();
        const uint8_t *key =
            mill_consumer_key(&pool, MILL_CONSUMER_RECORD_EPOCH, "group", NULL, &key_bytes);
        if (again) {
            assert_true(offer((struct place){4, -1, true}, key, key_bytes, NULL, 0));
        }
        key = mill_group_key_write(&pool, "group", &key_bytes);
        const uint8_t *value = classic_value(&pool, &bytes);
        assert_non_null(value);
        assert_true(load((struct place){5, -1, again}, key, key_bytes, value, bytes) > 10);
        groups.shards.calls->ready(&groups, 0, again);
        check_classic(again ? MILL_GROUP_PREPARING : MILL_GROUP_STABLE);
        mill_pool_clear(&pool);
        teardown();
    }
}

/* The epoch of this group of the consumer protocol is buried at buried_offset, when there is one;
 * then comes the record of the classic group "group". */
static void load_classic(const char *buried, int64_t buried_offset, int64_t offset)
{
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    uint32_t key_bytes = 0;
    uint32_t bytes = 0;
    if (buried) {
        const uint8_t *key =
            mill_consumer_key(&pool, MILL_CONSUMER_RECORD_EPOCH, buried, NULL, &key_bytes);
        assert_true(offer((struct place){buried_offset, -1, false}, key, key_bytes, NULL, 0));
    }
    const uint8_t *key = mill_group_key_write(&pool, "group", &key_bytes);
    const uint8_t *value = classic_value(&pool, &bytes);
    assert_non_null(value);
    assert_true(offer((struct place){offset, -1, false}, key, key_bytes, value, bytes));
    mill_pool_clear(&pool);
}

/* A group was turned back by the record behind the tombstone of its own epoch, by no other one's,
 * and by none where no tombstone was read. */
static void test_its_own_tombstone_turns_a_group(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        const char *buried;
        int64_t buried_offset;
        int64_t offset;
        enum mill_group_state state;
    } rows[] = {
        {NULL, -1, 1, MILL_GROUP_STABLE},
        {"another", 8, 9, MILL_GROUP_STABLE},
        {"group", 8, 10, MILL_GROUP_STABLE},
        {"group", 8, 9, MILL_GROUP_PREPARING},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        setup();
        load_classic(rows[i].buried, rows[i].buried_offset, rows[i].offset);
        groups.shards.calls->ready(&groups, 0, false);
        assert_int_equal(mill_groups_find(&groups, "group")->state, rows[i].state);
        teardown();
    }
}

/* What the log has was let in by the bound at its time: it does not hold for it again. */
static void test_bound_is_not_for_what_the_log_has(void **state)
{
    MILL_UNUSED(state);
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    const struct mill_offset_value offset = {.offset = 40, .metadata = ""};
    uint32_t key_bytes = 0;
    uint32_t bytes = 0;
    setup();
    groups.env.bytes_max = 0;
    load_classic(NULL, -1, 20);
    assert_int_equal(mill_groups_find(&groups, "group")->members_count, 2);
    const uint8_t *key = mill_offset_key_write(&pool, "group", "topic", 3, &key_bytes);
    const uint8_t *value = mill_offset_value_write(&pool, &offset, &bytes);
    assert_non_null(value);
    assert_true(offer((struct place){21, 7, false}, key, key_bytes, value, bytes));
    assert_true(mill_txn_offsets_wait(&groups, "group", "topic", 3));
    assert_int_equal(groups.env.full, 0);
    mill_pool_clear(&pool);
    teardown();
}

static void commit_inside(int64_t producer_id, const char *group, int64_t log_offset)
{
    const struct mill_offset_value value = {
        .offset = 40, .metadata = "", .expire_ms = -1, .log_offset = log_offset};
    struct mill_txn_offset *made = mill_txn_offset_new(&groups, group, "topic", 3, &value, false);
    assert_non_null(made);
    mill_txn_offsets_add(&groups, 0, producer_id, made);
}

static bool has_offset(const char *group_id)
{
    const struct mill_group *group = mill_groups_find(&groups, group_id);
    return group && mill_groups_offset(&groups, group, "topic", 3);
}

static void test_markers_are_read_again(void **state)
{
    MILL_UNUSED(state);
    const struct mill_journal_at at = {.offset = 20, .producer_id = 7};
    uint32_t failed = 0;
    bool whole = false;
    setup();
    commit_inside(7, "one", 10);
    commit_inside(7, "two", 11);
    commit_inside(7, "three", 21); /* of the next transaction */
    for (; !whole; failed++) {
        alloc_arm(1, true);
        alloc_fail.at = failed < 4 ? 1 + failed % 2 : 0;
        whole = groups.shards.calls->marker(&groups, 0, &at, true);
        alloc_disarm();
        assert_true(whole == (failed == 4));
    }
    assert_true(has_offset("one") && has_offset("two") && !has_offset("three"));
    assert_int_equal(groups.txn_offsets.count, 1);
    teardown();
}

/* Where control itself learns of the end it goes back in the log to the first that is left. */
static void test_end_without_memory_is_read_again(void **state)
{
    MILL_UNUSED(state);
    setup();
    groups.shards.items[0].state = MILL_SHARD_READY;
    groups.shards.items[0].next_offset = 30;
    commit_inside(7, "one", 10);
    commit_inside(7, "two", 11);
    alloc_arm(1, true);
    mill_groups_txn_ended(&groups, MILL_OFFSETS_TOPIC, 0, 7, true);
    alloc_disarm();
    assert_int_equal(groups.shards.items[0].state, MILL_SHARD_LOADING);
    assert_int_equal(groups.shards.items[0].next_offset, 10);
    assert_true(groups.shards.items[0].again);
    assert_int_equal(mill_txn_offsets_first(&groups, 0, 8), INT64_MAX);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_consumer_records_are_read_again),
        cmocka_unit_test(test_classic_records_are_read_again),
        cmocka_unit_test(test_its_own_tombstone_turns_a_group),
        cmocka_unit_test(test_bound_is_not_for_what_the_log_has),
        cmocka_unit_test(test_markers_are_read_again),
        cmocka_unit_test(test_end_without_memory_is_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
