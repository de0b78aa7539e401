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

static void get_group(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of("group");
}

static int encode_delete(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_delete_groups_request_encode(to, version, message);
}

/* Who was only given an id does not keep the group from being deleted. */
static void test_group_of_a_promised_id_is_deleted(void **state)
{
    MILL_UNUSED(state);
    setup();
    struct mill_join_group_request join_message;
    struct mill_delete_groups_request message;
    mill_join_group_request_defaults(&join_message);
    join_message.group_id = mill_wstr_of("group");
    join_message.session_timeout_ms = 10000;
    join_message.rebalance_timeout_ms = 10000;
    join_message.member_id = mill_wstr_of("");
    join_message.protocol_type = mill_wstr_of("consumer");
    join_message.protocols = (struct mill_warray){.count = 1, .get = get_protocol};
    struct mill_admin_request *request =
        send(MILL_API_KEY_JOIN_GROUP, JOIN_VERSION + 1, encode_join, &join_message);
    assert_int_equal(answer_of(request), MILL_KERR_MEMBER_ID_REQUIRED);
    assert_int_equal(group_now()->pending_count, 1);
    mill_delete_groups_request_defaults(&message);
    message.groups_names = (struct mill_warray){.count = 1, .get = get_group};
    request = send(MILL_API_KEY_DELETE_GROUPS, 1, encode_delete, &message);
    let_end(MILL_JOURNAL_DONE);
    assert_true(request->ready);
    assert_null(mill_groups_find(&groups, "group"));
    assert_ptr_equal(mill_groups_answered(&groups), request);
    mill_admin_free(request);
    teardown();
}

static void get_commit_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_commit_request_topics_partitions *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->committed_offset = 1;
}

static void get_commit_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_commit_request_topics *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->name = mill_wstr_of("absent");
    element->partitions = (struct mill_warray){.count = 1, .get = get_commit_partition};
}

static int encode_commit(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_offset_commit_request_encode(to, version, message);
}

/* Nobody asks for the group, or makes it, when nothing is about a partition that there is. */
static void test_commit_of_nothing_known_makes_no_group(void **state)
{
    MILL_UNUSED(state);
    setup();
    static const int32_t generations[] = {-1, 5};
    for (size_t i = 0; i < MILL_COUNT_OF(generations); i++) {
        struct mill_offset_commit_request in;
        struct mill_offset_commit_response out;
        struct mill_offset_commit_response_topics topic;
        struct mill_offset_commit_response_topics_partitions partition;
        struct mill_buf buf;
        mill_offset_commit_request_defaults(&in);
        in.group_id = mill_wstr_of("group");
        in.generation_id_or_member_epoch = generations[i];
        in.topics = (struct mill_warray){.count = 1, .get = get_commit_topic};
        struct mill_admin_request *request =
            send(MILL_API_KEY_OFFSET_COMMIT, 9, encode_commit, &in);
        struct mill_cursor at = body_of(request, &buf);
        assert_int_equal(mill_offset_commit_response_decode(&at, 9, &out), 0);
        assert_true(mill_offset_commit_response_topics_next(&out.topics, 9, &topic));
        assert_true(
            mill_offset_commit_response_topics_partitions_next(&topic.partitions, 9, &partition));
        assert_int_equal(partition.error_code, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
        assert_null(mill_groups_find(&groups, "group"));
        mill_admin_free(request);
    }
    teardown();
}

static int encode_describe(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_groups_request_encode(to, version, message);
}

/* Operations are not told with an error. */
static void test_describe_of_none_tells_no_operations(void **state)
{
    MILL_UNUSED(state);
    setup();
    for (int16_t version = 5; version <= 6; version++) {
        struct mill_describe_groups_request in;
        struct mill_describe_groups_response out;
        struct mill_describe_groups_response_groups described;
        struct mill_buf buf;
        mill_describe_groups_request_defaults(&in);
        in.groups = (struct mill_warray){.count = 1, .get = get_group};
        in.include_authorized_operations = true;
        struct mill_admin_request *request =
            send(MILL_API_KEY_DESCRIBE_GROUPS, version, encode_describe, &in);
        struct mill_cursor at = body_of(request, &buf);
        assert_int_equal(mill_describe_groups_response_decode(&at, version, &out), 0);
        assert_true(mill_describe_groups_response_groups_next(&out.groups, version, &described));
        assert_int_equal(described.error_code, version < 6 ? 0 : MILL_KERR_GROUP_ID_NOT_FOUND);
        assert_int_equal(described.authorized_operations == INT32_MIN, version >= 6);
        mill_admin_free(request);
    }
    teardown();
}

static int encode_offset_delete(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_offset_delete_request_encode(to, version, message);
}

static void get_delete_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_delete_request_topics_partitions *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->partition_index = 0;
}

static void get_delete_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_delete_request_topics *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->name = mill_wstr_of("absent");
    element->partitions = (struct mill_warray){.count = 1, .get = get_delete_partition};
}

/* Consumers whose subscriptions nobody can read may be subscribed to anything, which is told of
 * each partition; members of another type keep all offsets. */
static void test_offsets_of_unreadable_subscriptions(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        const char *type;
        int16_t error;
        bool partitions;
    } table[] = {{"consumer", 0, true}, {"connect", MILL_KERR_NON_EMPTY_GROUP, false}};
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_join_group_request join_message;
        struct mill_offset_delete_request in;
        struct mill_offset_delete_response out;
        struct mill_buf buf;
        setup();
        mill_join_group_request_defaults(&join_message);
        join_message.group_id = mill_wstr_of("group");
        join_message.session_timeout_ms = 10000;
        join_message.rebalance_timeout_ms = 10000;
        join_message.member_id = mill_wstr_of("");
        join_message.protocol_type = mill_wstr_of(table[i].type);
        join_message.protocols = (struct mill_warray){.count = 1, .get = get_protocol};
        struct mill_admin_request *joins =
            send(MILL_API_KEY_JOIN_GROUP, JOIN_VERSION, encode_join, &join_message);
        mill_offset_delete_request_defaults(&in);
        in.group_id = mill_wstr_of("group");
        in.topics = (struct mill_warray){.count = 1, .get = get_delete_topic};
        struct mill_admin_request *request =
            send(MILL_API_KEY_OFFSET_DELETE, 0, encode_offset_delete, &in);
        struct mill_cursor at = body_of(request, &buf);
        assert_int_equal(mill_offset_delete_response_decode(&at, 0, &out), 0);
        assert_int_equal(out.error_code, table[i].error);
        assert_int_equal(out.topics.count > 0, table[i].partitions);
        mill_admin_free(request);
        if (joins->ready) {
            (void)mill_groups_answered(&groups);
            mill_admin_free(joins);
        }
        teardown();
    }
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

static void make_topic(const char *name)
{
    struct mill_pool pool = {.limit_bytes = FRAME_BYTES};
    struct mill_create item = {.name = name,
                               .name_length = (uint32_t)strlen(name),
                               .partitions = 2,
                               .replication_factor = 1};
    mill_controller_create(groups.controller, &item, 1, false, &pool);
    assert_true(item.created);
    mill_pool_clear(&pool);
}

/* As in Kafka, whose clients leave out themselves what they do not want. */
static void test_regular_expression_means_internal_topics_too(void **state)
{
    struct mill_consumer_group_heartbeat_request message;
    MILL_UNUSED(state);
    setup();
    make_topic(MILL_OFFSETS_TOPIC);
    make_topic("orders");
    mill_consumer_group_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.member_id = mill_wstr_of("a");
    message.rebalance_timeout_ms = 1000;
    message.subscribed_topic_names = (struct mill_warray){.count = 0};
    message.subscribed_topic_regex = mill_wstr_of("(__consumer_|ord).*");
    message.topic_partitions = (struct mill_warray){.count = 0};
    struct mill_admin_request *request =
        send(MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, BEAT_VERSION, encode_beat, &message);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(request), 0);
    const struct mill_consumer_regex *regex = group_now()->consumers->regexes;
    assert_non_null(regex);
    assert_int_equal(regex->topics_count, 2);
    assert_string_equal(regex->topics[0], MILL_OFFSETS_TOPIC);
    assert_string_equal(regex->topics[1], "orders");
    assert_int_equal(group_now()->consumers->first->target.count, 4);
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
        cmocka_unit_test(test_group_of_a_promised_id_is_deleted),
        cmocka_unit_test(test_commit_of_nothing_known_makes_no_group),
        cmocka_unit_test(test_describe_of_none_tells_no_operations),
        cmocka_unit_test(test_offsets_of_unreadable_subscriptions),
        cmocka_unit_test(test_ids_are_bounded),
        cmocka_unit_test(test_removals_come_in_batches_that_fit),
        cmocka_unit_test(test_frames_that_wait_count_as_memory),
        cmocka_unit_test(test_heartbeats_wait_for_removals),
        cmocka_unit_test(test_regular_expression_means_internal_topics_too),
        cmocka_unit_test(test_short_memory_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
