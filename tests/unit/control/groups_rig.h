/* SPDX-License-Identifier: Apache-2.0 */
/* All groups with requests as frames, beside a controller that has real topics, and with a log that
 * the test ends when it likes (mill_shards_append is replaced) and that can be loaded. Test code.
 */
#ifndef MILL_TESTS_UNIT_CONTROL_GROUPS_RIG_H
#define MILL_TESTS_UNIT_CONTROL_GROUPS_RIG_H

#include "control/group/groups.h"
#include "tests/unit/control/fake_core.h"

#include <stdlib.h>

enum {
    FRAME_BYTES = 64 << 10,
    HELD_MAX = 16,
    LOG_MAX = 1000,
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

/* What the log has, in order. */
static struct {
    struct mill_journal_record records[LOG_MAX];
    bool whole[LOG_MAX]; /* the log took it */
    uint32_t count;
    uint32_t ended; /* these are decided */
} logged;

static struct fake f;
static struct mill_groups groups;
static char long_text[LONG_BYTES + 1];
static uint64_t pool_bytes; /* of each request */

int16_t __wrap_mill_shards_append(struct mill_shards *shards, int32_t shard,
                                  const struct mill_journal_record *records, uint32_t records_count,
                                  int64_t now_ms, mill_journal_done done, void *context);

static inline uint8_t *bytes_copy(const uint8_t *bytes, uint32_t size_bytes)
{
    uint8_t *copy = malloc(size_bytes + 1);
    assert_non_null(copy);
    if (size_bytes > 0) {
        memcpy(copy, bytes, size_bytes);
    }
    return copy;
}

int16_t __wrap_mill_shards_append(struct mill_shards *shards, int32_t shard,
                                  const struct mill_journal_record *records, uint32_t records_count,
                                  int64_t now_ms, mill_journal_done done, void *context)
{
    MILL_UNUSED(shards);
    MILL_UNUSED(shard);
    MILL_UNUSED(now_ms);
    if (records_count > held.records_max) {
        return MILL_KERR_MESSAGE_TOO_LARGE;
    }
    assert_true(held.begun < HELD_MAX);
    for (uint32_t i = 0; i < records_count; i++) {
        assert_true(logged.count < LOG_MAX);
        struct mill_journal_record *to = &logged.records[logged.count++];
        *to = records[i];
        to->key = bytes_copy(records[i].key, records[i].key_bytes);
        to->value = bytes_copy(records[i].value, (uint32_t)MILL_MAX(records[i].value_bytes, 0));
    }
    held.done[held.begun] = done;
    held.context[held.begun++] = context;
    return MILL_KERR_NONE;
}

/* The log has everything, or nothing of it. */
static inline void let_end(enum mill_journal_outcome outcome)
{
    const struct mill_journal_result result = {.outcome = outcome};
    for (; logged.ended < logged.count; logged.ended++) {
        logged.whole[logged.ended] = outcome == MILL_JOURNAL_DONE;
    }
    while (held.ended < held.begun) {
        uint32_t next = held.ended++;
        held.done[next](held.context[next], &result);
    }
    held.begun = 0;
    held.ended = 0;
}

static inline void groups_make(struct mill_groups *to)
{
    assert_int_equal(mill_groups_open(to, mill_control_controller(f.control), NULL), 0);
    to->shards.count = 1;
    to->shards.items = calloc(1, sizeof(*to->shards.items));
    assert_non_null(to->shards.items);
    to->shards.items[0].state = MILL_SHARD_READY;
    to->env.now_ns = MILL_NS_PER_S;
}

/* sets: of the configuration, MILL_COUNT_OF them. */
static inline void setup_with(const char *const *sets, uint32_t sets_count)
{
    memset(&held, 0, sizeof(held));
    held.records_max = UINT32_MAX;
    pool_bytes = FRAME_BYTES;
    memset(long_text, 'l', LONG_BYTES);
    memset(&logged, 0, sizeof(logged));
    fake_open(&f, sets, sets_count);
    groups_make(&groups);
}

static inline void setup(void)
{
    setup_with(NULL, 0);
}

static inline void topic_make(const char *name, int32_t partitions)
{
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    struct mill_create item = {.name = name,
                               .name_length = (uint32_t)strlen(name),
                               .partitions = partitions,
                               .replication_factor = 1};
    mill_controller_create(mill_control_controller(f.control), &item, 1, false, &pool);
    assert_true(item.created);
    mill_pool_clear(&pool);
}

/* Another coordinator that reads all that the log has. */
static inline void load(struct mill_groups *to)
{
    groups_make(to);
    for (uint32_t i = 0; i < logged.count; i++) {
        struct mill_pool pool = {.limit_bytes = 1 << 20};
        struct mill_buf key;
        struct mill_buf value;
        const struct mill_journal_record *from = &logged.records[i];
        const struct mill_journal_at at = {.offset = i, .producer_id = -1};
        struct mill_record record = {
            .key_length = (int32_t)from->key_bytes,
            .value_length = from->value_bytes,
            .key = mill_cursor_over(&key, (void *)(uintptr_t)from->key, from->key_bytes),
            .value = mill_cursor_over(&value, (void *)(uintptr_t)from->value,
                                      (uint32_t)MILL_MAX(from->value_bytes, 0)),
        };
        if (logged.whole[i]) {
            assert_true(mill_groups_load_calls.record(to, 0, false, &at, &record, &pool));
        }
        mill_pool_clear(&pool);
    }
    mill_groups_load_calls.ready(to, 0, false);
}

static inline void teardown(void)
{
    mill_groups_close(&groups);
    assert_int_equal(groups.env.bytes, 0);
    fake_close(&f);
    for (uint32_t i = 0; i < logged.count; i++) {
        free((void *)(uintptr_t)logged.records[i].key);
        free((void *)(uintptr_t)logged.records[i].value);
    }
}

/* Sends a frame; the groups may take the request over. */
static inline struct mill_admin_request *send(int16_t key, int16_t version,
                                              mill_admin_encode encode, const void *message)
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

static inline int encode_beat(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_consumer_group_heartbeat_request_encode(to, version, message);
}

static inline void get_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of("logs");
}

static inline struct mill_admin_request *beat_in(const char *member_id, int32_t epoch,
                                                 const char *rack_id)
{
    struct mill_consumer_group_heartbeat_request message;
    mill_consumer_group_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.member_id = mill_wstr_of(member_id);
    message.member_epoch = epoch;
    message.rack_id = mill_wstr_of(rack_id);
    if (epoch == MILL_CONSUMER_JOINS) {
        message.rebalance_timeout_ms = 10000;
        message.subscribed_topic_names = (struct mill_warray){.count = 1, .get = get_topic};
        message.topic_partitions = (struct mill_warray){.count = 0};
    }
    return send(MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, BEAT_VERSION, encode_beat, &message);
}

/* What it was answered; frees it. */
static inline int16_t answer_of(struct mill_admin_request *request)
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

static inline void join(const char *member_id)
{
    struct mill_admin_request *request = beat_in(member_id, MILL_CONSUMER_JOINS, NULL);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(request), 0);
}

static inline const struct mill_group *group_now(void)
{
    const struct mill_group *group = mill_groups_find(&groups, "group");
    assert_non_null(group);
    return group;
}

static inline void get_protocol(const void *context, int32_t index, void *ret_element)
{
    struct mill_join_group_request_protocols *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->name = mill_wstr_of("range");
}

static inline int encode_join(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_join_group_request_encode(to, version, message);
}

/* The answer's body. */
static inline struct mill_cursor body_of(struct mill_admin_request *request, struct mill_buf *buf)
{
    int32_t id = 0;
    assert_true(request->ready);
    assert_int_equal(request->outcome, MILL_OUTCOME_BYTES);
    struct mill_cursor at = mill_cursor_over(buf, request->answer + MILL_FRAME_SIZE_BYTES,
                                             request->answer_bytes - MILL_FRAME_SIZE_BYTES);
    assert_int_equal(
        mill_response_header_decode(&at, request->header.api_key, request->header.api_version, &id),
        0);
    return at;
}

#endif
