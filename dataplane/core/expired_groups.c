/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of a group is told when control did not answer in time: that its coordinator is not
 * available, in the form of its API. The client looks for the coordinator again and repeats. On the
 * core; bounded by the request, which was decoded before any field is used. */
#include "dataplane/core/core_types.h"

#include "protocol/errors.h"

enum {
    GONE = MILL_KERR_COORDINATOR_NOT_AVAILABLE,
};

/* The request is walked once more while the answer is written: one array inside another. */
struct group_fill {
    int16_t version;
    bool flexible;
    struct mill_warray outer;
    struct mill_warray inner;
    union {
        struct mill_offset_commit_request commit;
        struct mill_offset_fetch_request fetch;
        struct mill_describe_groups_request describe;
        struct mill_delete_groups_request delete;
        struct mill_offset_delete_request offsets;
        struct mill_consumer_group_describe_request consumers;
    };
};

static struct group_fill *fill_of(const void *context)
{
    return (void *)(uintptr_t)context;
}

static struct mill_warray answer_array(const struct mill_warray *asked, mill_warray_get get,
                                       const struct group_fill *fill)
{
    return (struct mill_warray){.count = MILL_MAX(asked->count, 0), .get = get, .context = fill};
}

/* --- members --------------------------------------------------------------------------------- */

static int join_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_join_group_response answer;
    struct mill_join_group_request asked;
    struct mill_cursor at = request->body;
    MILL_UNUSED(context);
    int r = mill_join_group_request_decode(&at, request->header.api_version, &asked);
    if (r < 0) {
        return r;
    }
    mill_join_group_response_defaults(&answer);
    answer.error_code = GONE;
    answer.protocol_name = mill_wstr_of("");
    answer.leader = mill_wstr_of("");
    answer.member_id = asked.member_id;
    return mill_join_group_response_encode(to, request->header.api_version, &answer);
}

static int sync_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_sync_group_response answer;
    MILL_UNUSED(context);
    mill_sync_group_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_sync_group_response_encode(to, request->header.api_version, &answer);
}

static int heartbeat_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_heartbeat_response answer;
    MILL_UNUSED(context);
    mill_heartbeat_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_heartbeat_response_encode(to, request->header.api_version, &answer);
}

static int leave_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_leave_group_response answer;
    MILL_UNUSED(context);
    mill_leave_group_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_leave_group_response_encode(to, request->header.api_version, &answer);
}

static int consumer_heartbeat_fill(struct mill_writer *to, const struct mill_request *request,
                                   void *context)
{
    struct mill_consumer_group_heartbeat_response answer;
    MILL_UNUSED(context);
    mill_consumer_group_heartbeat_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_consumer_group_heartbeat_response_encode(to, request->header.api_version, &answer);
}

/* --- groups ---------------------------------------------------------------------------------- */

static int list_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_list_groups_response answer;
    MILL_UNUSED(context);
    mill_list_groups_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_list_groups_response_encode(to, request->header.api_version, &answer);
}

static void get_described(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_describe_groups_response_groups *element = ret_element;
    MILL_UNUSED(index);
    bool more = mill_warray_next_str(&fill->outer, fill->flexible, &element->group_id);
    MILL_ASSERT(more);
    element->error_code = GONE;
}

static int describe_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct group_fill *fill = context;
    struct mill_describe_groups_response answer;
    struct mill_cursor at = request->body;
    int r = mill_describe_groups_request_decode(&at, fill->version, &fill->describe);
    if (r < 0) {
        return r;
    }
    mill_describe_groups_response_defaults(&answer);
    fill->outer = fill->describe.groups;
    answer.groups = answer_array(&fill->outer, get_described, fill);
    return mill_describe_groups_response_encode(to, fill->version, &answer);
}

static void get_described_consumers(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_consumer_group_describe_response_groups *element = ret_element;
    MILL_UNUSED(index);
    bool more = mill_warray_next_str(&fill->outer, fill->flexible, &element->group_id);
    MILL_ASSERT(more);
    element->error_code = GONE;
}

static int consumer_describe_fill(struct mill_writer *to, const struct mill_request *request,
                                  void *context)
{
    struct group_fill *fill = context;
    struct mill_consumer_group_describe_response answer;
    struct mill_cursor at = request->body;
    int r = mill_consumer_group_describe_request_decode(&at, fill->version, &fill->consumers);
    if (r < 0) {
        return r;
    }
    mill_consumer_group_describe_response_defaults(&answer);
    fill->outer = fill->consumers.group_ids;
    answer.groups = answer_array(&fill->outer, get_described_consumers, fill);
    return mill_consumer_group_describe_response_encode(to, fill->version, &answer);
}

static void get_deleted(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_delete_groups_response_results *element = ret_element;
    MILL_UNUSED(index);
    bool more = mill_warray_next_str(&fill->outer, fill->flexible, &element->group_id);
    MILL_ASSERT(more);
    element->error_code = GONE;
}

static int delete_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct group_fill *fill = context;
    struct mill_delete_groups_response answer;
    struct mill_cursor at = request->body;
    int r = mill_delete_groups_request_decode(&at, fill->version, &fill->delete);
    if (r < 0) {
        return r;
    }
    mill_delete_groups_response_defaults(&answer);
    fill->outer = fill->delete.groups_names;
    answer.results = answer_array(&fill->outer, get_deleted, fill);
    return mill_delete_groups_response_encode(to, fill->version, &answer);
}

/* --- offsets --------------------------------------------------------------------------------- */

static void get_commit_partition(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_offset_commit_response_topics_partitions *element = ret_element;
    struct mill_offset_commit_request_topics_partitions asked;
    MILL_UNUSED(index);
    bool more =
        mill_offset_commit_request_topics_partitions_next(&fill->inner, fill->version, &asked);
    MILL_ASSERT(more);
    element->partition_index = asked.partition_index;
    element->error_code = GONE;
}

static void get_commit_topic(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_offset_commit_response_topics *element = ret_element;
    struct mill_offset_commit_request_topics asked;
    MILL_UNUSED(index);
    bool more = mill_offset_commit_request_topics_next(&fill->outer, fill->version, &asked);
    MILL_ASSERT(more);
    element->name = asked.name;
    element->topic_id = asked.topic_id;
    fill->inner = asked.partitions;
    element->partitions = answer_array(&fill->inner, get_commit_partition, fill);
}

static int commit_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct group_fill *fill = context;
    struct mill_offset_commit_response answer;
    struct mill_cursor at = request->body;
    int r = mill_offset_commit_request_decode(&at, fill->version, &fill->commit);
    if (r < 0) {
        return r;
    }
    mill_offset_commit_response_defaults(&answer);
    fill->outer = fill->commit.topics;
    answer.topics = answer_array(&fill->outer, get_commit_topic, fill);
    return mill_offset_commit_response_encode(to, fill->version, &answer);
}

static void get_fetch_partition(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_offset_fetch_response_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    bool more = mill_warray_next_i32(&fill->inner, &element->partition_index);
    MILL_ASSERT(more);
    element->committed_offset = -1;
    element->metadata = mill_wstr_of("");
    element->error_code = GONE;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_offset_fetch_response_topics *element = ret_element;
    struct mill_offset_fetch_request_topics asked;
    MILL_UNUSED(index);
    bool more = mill_offset_fetch_request_topics_next(&fill->outer, fill->version, &asked);
    MILL_ASSERT(more);
    element->name = asked.name;
    fill->inner = asked.partition_indexes;
    element->partitions = answer_array(&fill->inner, get_fetch_partition, fill);
}

static void get_fetch_group(const void *context, int32_t index, void *ret_element)
{
    struct group_fill *fill = fill_of(context);
    struct mill_offset_fetch_response_groups *element = ret_element;
    struct mill_offset_fetch_request_groups asked;
    MILL_UNUSED(index);
    bool more = mill_offset_fetch_request_groups_next(&fill->outer, fill->version, &asked);
    MILL_ASSERT(more);
    element->group_id = asked.group_id;
    element->error_code = GONE;
}

/* Version 1 has no error of its own: it stands at each partition. */
static int fetch_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct group_fill *fill = context;
    struct mill_offset_fetch_response answer;
    struct mill_cursor at = request->body;
    int r = mill_offset_fetch_request_decode(&at, fill->version, &fill->fetch);
    if (r < 0) {
        return r;
    }
    mill_offset_fetch_response_defaults(&answer);
    answer.error_code = GONE;
    if (fill->version >= 8) {
        fill->outer = fill->fetch.groups;
        answer.groups = answer_array(&fill->outer, get_fetch_group, fill);
    } else if (fill->version == 1) {
        fill->outer = fill->fetch.topics;
        answer.topics = answer_array(&fill->outer, get_fetch_topic, fill);
    }
    return mill_offset_fetch_response_encode(to, fill->version, &answer);
}

static int offset_delete_fill(struct mill_writer *to, const struct mill_request *request,
                              void *context)
{
    struct mill_offset_delete_response answer;
    MILL_UNUSED(context);
    mill_offset_delete_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_offset_delete_response_encode(to, request->header.api_version, &answer);
}

/* --------------------------------------------------------------------------------------------- */

void mill_forward_expired_group(struct mill_core *core, struct mill_request *request)
{
    static const struct {
        int16_t key;
        mill_answer_fill fill;
    } fills[] = {
        {MILL_API_KEY_JOIN_GROUP, join_fill},
        {MILL_API_KEY_SYNC_GROUP, sync_fill},
        {MILL_API_KEY_HEARTBEAT, heartbeat_fill},
        {MILL_API_KEY_LEAVE_GROUP, leave_fill},
        {MILL_API_KEY_LIST_GROUPS, list_fill},
        {MILL_API_KEY_DESCRIBE_GROUPS, describe_fill},
        {MILL_API_KEY_DELETE_GROUPS, delete_fill},
        {MILL_API_KEY_OFFSET_COMMIT, commit_fill},
        {MILL_API_KEY_OFFSET_FETCH, fetch_fill},
        {MILL_API_KEY_OFFSET_DELETE, offset_delete_fill},
        {MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, consumer_heartbeat_fill},
        {MILL_API_KEY_CONSUMER_GROUP_DESCRIBE, consumer_describe_fill},
    };
    struct group_fill fill = {.version = request->header.api_version,
                              .flexible = request->header.flexible};
    for (size_t i = 0; i < MILL_COUNT_OF(fills); i++) {
        if (fills[i].key == request->header.api_key) {
            mill_answer_send(core, request, fills[i].fill, &fill);
            return;
        }
    }
    mill_conn_abort(core, request->conn); /* the table of APIs has one that is not here */
}
