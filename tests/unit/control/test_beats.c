/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: while a change of a group of the consumer protocol is on its way to the log, nobody is told
 * what will not be true behind it, and what waits for it is bounded. Method: requests as frames to
 * the groups, with a log that the test ends when it likes (mill_shards_append is replaced). */
#include "control/group/groups.h"
#include "tests/unit/control/fake_core.h"

#include <stdlib.h>

enum {
    FRAME_BYTES = 64 << 10,
    HELD_MAX = 16,
    BEAT_VERSION = 1,
    JOIN_VERSION = 3, /* joins without an id at once */
    LONG_BYTES = 20000,
};

/* Appends on their way, the oldest first. */
static struct {
    mill_journal_done done[HELD_MAX];
    void *context[HELD_MAX];
    uint32_t begun;
    uint32_t ended;
    uint32_t records_max; /* of one batch */
} held;

static struct fake f;
static struct mill_groups groups;
static char long_text[LONG_BYTES + 1];
static uint64_t pool_bytes; /* of each request */

int16_t __wrap_mill_shards_append(struct mill_shards *shards, int32_t shard,
                                  const struct mill_journal_record *records, uint32_t records_count,
                                  int64_t now_ms, mill_journal_done done, void *context);

int16_t __wrap_mill_shards_append(struct mill_shards *shards, int32_t shard,
                                  const struct mill_journal_record *records, uint32_t records_count,
                                  int64_t now_ms, mill_journal_done done, void *context)
{
    MILL_UNUSED(shards);
    MILL_UNUSED(shard);
    MILL_UNUSED(records);
    MILL_UNUSED(now_ms);
    if (records_count > held.records_max) {
        return MILL_KERR_MESSAGE_TOO_LARGE;
    }
    assert_true(held.begun < HELD_MAX);
    held.done[held.begun] = done;
    held.context[held.begun++] = context;
    return MILL_KERR_NONE;
}

/* The log has everything, or nothing of it. */
static void let_end(enum mill_journal_outcome outcome)
{
    const struct mill_journal_result result = {.outcome = outcome};
    while (held.ended < held.begun) {
        uint32_t next = held.ended++;
        held.done[next](held.context[next], &result);
    }
    held.begun = 0;
    held.ended = 0;
}

static void setup(void)
{
    memset(&held, 0, sizeof(held));
    held.records_max = UINT32_MAX;
    pool_bytes = FRAME_BYTES;
    memset(long_text, 'l', LONG_BYTES);
    fake_open(&f, NULL, 0);
    assert_int_equal(mill_groups_open(&groups, mill_control_controller(f.control), NULL), 0);
    groups.shards.count = 1;
    groups.shards.items = calloc(1, sizeof(*groups.shards.items));
    assert_non_null(groups.shards.items);
    groups.shards.items[0].state = MILL_SHARD_READY;
    groups.env.now_ns = MILL_NS_PER_S;
}

static void teardown(void)
{
    mill_groups_close(&groups);
    assert_int_equal(groups.env.bytes, 0);
    fake_close(&f);
}

/* Sends a frame; the groups may take the request over. */
static struct mill_admin_request *send(int16_t key, int16_t version, mill_admin_encode encode,
                                       const void *message)
{
    const struct mill_request_header header = {
        .api_key = key, .api_version = version, .client_id = mill_wstr_of("client")};
    struct mill_admin_request *request = calloc(1, sizeof(*request));
    uint8_t *frame = malloc(FRAME_BYTES);
    struct mill_writer to;
    assert_non_null(request);
    assert_non_null(frame);
    mill_writer_init(&to, frame, FRAME_BYTES, NULL, 0);
    mill_wire_request_begin(&to, &header);
    (void)encode(&to, version, message);
    int64_t bytes = mill_wire_request_finish(&to);
    assert_true(bytes > MILL_FRAME_SIZE_BYTES);
    memmove(frame, frame + MILL_FRAME_SIZE_BYTES, (size_t)bytes - MILL_FRAME_SIZE_BYTES);
    request->frame = frame;
    request->head.size_bytes = (uint32_t)bytes - MILL_FRAME_SIZE_BYTES;
    request->pool.limit_bytes = pool_bytes;
    request->answer_bytes_max = FRAME_BYTES;
    request->groups = &groups;
    struct mill_cursor at =
        mill_cursor_over(&request->frame_buf, request->frame, request->head.size_bytes);
    assert_int_equal(mill_request_header_decode(&at, &request->header), 0);
    mill_groups_request(&groups, request, &at);
    return request;
}

static int encode_beat(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_consumer_group_heartbeat_request_encode(to, version, message);
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of("logs");
}

static struct mill_admin_request *beat_in(const char *member_id, int32_t epoch, const char *rack_id)
{
    struct mill_consumer_group_heartbeat_request message;
    mill_consumer_group_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.member_id = mill_wstr_of(member_id);
    message.member_epoch = epoch;
    message.rack_id = mill_wstr_of(rack_id);
    if (epoch == MILL_CONSUMER_JOINS) {
        message.rebalance_timeout_ms = 1000;
        message.subscribed_topic_names = (struct mill_warray){.count = 1, .get = get_topic};
        message.topic_partitions = (struct mill_warray){.count = 0};
    }
    return send(MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, BEAT_VERSION, encode_beat, &message);
}

/* What it was answered; frees it. */
static int16_t answer_of(struct mill_admin_request *request)
{
    struct mill_consumer_group_heartbeat_response beat = {0};
    struct mill_join_group_response join = {0};
    struct mill_buf buf;
    int32_t id = 0;
    int16_t key = request->header.api_key;
    int16_t version = request->header.api_version;
    assert_true(request->ready);
    assert_int_equal(request->outcome, MILL_OUTCOME_BYTES);
    struct mill_cursor at = mill_cursor_over(&buf, request->answer + MILL_FRAME_SIZE_BYTES,
                                             request->answer_bytes - MILL_FRAME_SIZE_BYTES);
    assert_int_equal(mill_response_header_decode(&at, key, version, &id), 0);
    int r = key == MILL_API_KEY_JOIN_GROUP
                ? mill_join_group_response_decode(&at, version, &join)
                : mill_consumer_group_heartbeat_response_decode(&at, version, &beat);
    assert_int_equal(r, 0);
    if (request->taken) {
        assert_ptr_equal(mill_groups_answered(&groups), request);
    }
    mill_admin_free(request);
    return key == MILL_API_KEY_JOIN_GROUP ? join.error_code : beat.error_code;
}

static void join(const char *member_id)
{
    struct mill_admin_request *request = beat_in(member_id, MILL_CONSUMER_JOINS, NULL);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(request), 0);
}

static const struct mill_group *group_now(void)
{
    const struct mill_group *group = mill_groups_find(&groups, "group");
    assert_non_null(group);
    return group;
}

static void get_protocol(const void *context, int32_t index, void *ret_element)
{
    struct mill_join_group_request_protocols *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->name = mill_wstr_of("range");
}

static int encode_join(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_join_group_request_encode(to, version, message);
}

/* A classic member comes while the group is about to become one of the other protocol. */
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
    message.protocol_type = mill_wstr_of("consumer");
    message.protocols = (struct mill_warray){.count = 1, .get = get_protocol};
    struct mill_admin_request *classic =
        send(MILL_API_KEY_JOIN_GROUP, JOIN_VERSION, encode_join, &message);
    assert_int_equal(answer_of(classic), MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(first), 0);
    assert_int_equal(group_now()->members_count, 0);
    assert_int_equal(group_now()->consumers->count, 1);
    classic = send(MILL_API_KEY_JOIN_GROUP, JOIN_VERSION, encode_join, &message);
    assert_int_equal(answer_of(classic), MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
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
