/* SPDX-License-Identifier: Apache-2.0 */
/* ListOffsets and OffsetForLeaderEpoch: look-ups on partitions, one op each. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

enum {
    ISOLATION_READ_COMMITTED = 1,
    TIME_LATEST = -1,
    TIME_EARLIEST = -2,
    TIME_GREATEST = -3,         /* record with the greatest timestamp, v7 (KIP-734) */
    TIME_EARLIEST_LOCAL = -4,   /* v8 (KIP-405): all of the log is local */
    TIME_LATEST_TIERED = -5,    /* v9 (KIP-1005): nothing is tiered */
    TIME_EARLIEST_PENDING = -6, /* v11 (KIP-1023): nothing waits to be */
    /* Partitions compared pair by pair for doubles; in a larger request they are not looked for, so
     * that the work of a turn stays bounded. */
    PAIRWISE_MAX = 512,
};

/* --- ListOffsets ----------------------------------------------------------------------------- */

static uint32_t list_count(const struct mill_list_offsets_request *message, int16_t version)
{
    uint32_t count = 0;
    struct mill_warray topics = message->topics;
    struct mill_list_offsets_request_topics topic;
    while (mill_list_offsets_request_topics_next(&topics, version, &topic)) {
        count += (uint32_t)MILL_MAX(topic.partitions.count, 0);
    }
    return count;
}

/* A partition named twice in one request is an error wherever it is named. */
static void doubles_mark(struct mill_request *request)
{
    uint32_t count = request->ops_count <= PAIRWISE_MAX ? request->ops_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        struct mill_op *op = &request->ops[i];
        for (uint32_t k = 0; k < i && !mill_uuid_is_zero(&op->topic_id); k++) {
            struct mill_op *other = &request->ops[k];
            if (other->partition == op->partition &&
                mill_uuid_equal(&other->topic_id, &op->topic_id)) {
                other->error = MILL_KERR_INVALID_REQUEST;
                op->error = MILL_KERR_INVALID_REQUEST;
            }
        }
    }
}

static void list_op_prepare(struct mill_core *core, struct mill_request *request, uint32_t index,
                            const struct mill_wstr *topic_name,
                            const struct mill_list_offsets_request_topics_partitions *part)
{
    const struct mill_map_topic *topic = NULL;
    struct mill_op *op = &request->ops[index];
    int16_t version = request->header.api_version;
    op->partition = part->partition_index;
    op->current_epoch = part->current_leader_epoch;
    op->offset = part->timestamp;
    op->committed = request->read_committed;
    enum mill_kerr error = mill_locate(core, topic_name, part->partition_index, op, &topic);
    bool known = part->timestamp >= TIME_EARLIEST ||
                 (part->timestamp == TIME_GREATEST && version >= 7) ||
                 (part->timestamp == TIME_EARLIEST_LOCAL && version >= 8) ||
                 (part->timestamp == TIME_LATEST_TIERED && version >= 9) ||
                 (part->timestamp == TIME_EARLIEST_PENDING && version >= 11);
    if (!known) { /* before anything else, as in Kafka */
        error = MILL_KERR_UNSUPPORTED_VERSION;
    }
    op->error = (int16_t)error;
    op->kind = MILL_OP_OFFSETS;
    if (part->timestamp >= 0 || part->timestamp == TIME_GREATEST) {
        op->kind = MILL_OP_TIME;
        op->offset = part->timestamp == TIME_GREATEST ? MILL_TIME_MAX : part->timestamp;
    }
}

void mill_list_offsets_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_list_offsets_request message;
    struct mill_cursor at = request->body;
    if (mill_list_offsets_request_decode(&at, version, &message) < 0) {
        mill_request_malformed(core, request);
        return;
    }
    request->read_committed = message.isolation_level == ISOLATION_READ_COMMITTED;
    if (!mill_request_ops_take(core, request, list_count(&message, version))) {
        return;
    }
    struct mill_warray topics = message.topics;
    struct mill_list_offsets_request_topics topic;
    uint32_t index = 0;
    while (mill_list_offsets_request_topics_next(&topics, version, &topic)) {
        struct mill_list_offsets_request_topics_partitions part;
        struct mill_warray parts = topic.partitions;
        while (mill_list_offsets_request_topics_partitions_next(&parts, version, &part)) {
            list_op_prepare(core, request, index++, &topic.name, &part);
        }
    }
    doubles_mark(request);
    for (uint32_t i = 0; i < request->ops_count; i++) {
        if (request->ops[i].error == MILL_KERR_NONE) {
            mill_request_op_start(core, request, i);
        }
    }
    mill_request_ops_begun(core, request);
}

struct offsets_fill {
    struct mill_request *request;
    struct mill_warray topics;
    struct mill_warray parts;
    uint32_t op_index;
};

static void get_list_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct offsets_fill *fill = (void *)(uintptr_t)context;
    struct mill_list_offsets_response_topics_partitions *element = ret_element;
    const struct mill_op *op = &fill->request->ops[fill->op_index++];
    struct mill_list_offsets_request_topics_partitions part;
    bool more = mill_list_offsets_request_topics_partitions_next(
        &fill->parts, fill->request->header.api_version, &part);
    MILL_ASSERT(more);
    element->partition_index = part.partition_index;
    element->error_code = op->error;
    element->timestamp = -1;
    element->offset = -1;
    element->leader_epoch = -1;
    bool is_tiered =
        part.timestamp == TIME_LATEST_TIERED || part.timestamp == TIME_EARLIEST_PENDING;
    if (op->error != MILL_KERR_NONE || is_tiered) {
        return; /* no such offset, which is no error */
    }
    if (op->kind == MILL_OP_TIME) {
        element->timestamp = op->timestamp;
        element->offset = op->base_offset;
        element->leader_epoch = op->epoch;
    } else {
        int64_t latest = op->committed ? op->stable_offset : op->high_watermark;
        element->offset = part.timestamp == TIME_LATEST ? latest : op->start_offset;
#ifdef MILL_MUTANT_CORE_OLD_OFFSETS
        element->offset += fill->request->header.api_version == 1 ? 1 : 0;
#endif
        element->leader_epoch = op->epoch;
    }
}

static void get_list_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct offsets_fill *fill = (void *)(uintptr_t)context;
    struct mill_list_offsets_response_topics *element = ret_element;
    struct mill_list_offsets_request_topics topic;
    bool more = mill_list_offsets_request_topics_next(&fill->topics,
                                                      fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    fill->parts = topic.partitions;
    element->name = topic.name;
    element->partitions = (struct mill_warray){
        .count = MILL_MAX(topic.partitions.count, 0), .get = get_list_partition, .context = fill};
}

static int list_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct offsets_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_list_offsets_request message;
    struct mill_cursor at = request->body;
    int r = mill_list_offsets_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0);
    fill->topics = message.topics;
    fill->op_index = 0;
    struct mill_list_offsets_response answer;
    mill_list_offsets_response_defaults(&answer);
    answer.topics = (struct mill_warray){
        .count = MILL_MAX(message.topics.count, 0), .get = get_list_topic, .context = fill};
    return mill_list_offsets_response_encode(to, version, &answer);
}

void mill_list_offsets_done(struct mill_core *core, struct mill_request *request)
{
    struct offsets_fill fill = {.request = request};
    mill_answer_send(core, request, list_fill, &fill);
}

/* --- OffsetForLeaderEpoch -------------------------------------------------------------------- */

static uint32_t epochs_count(const struct mill_offset_for_leader_epoch_request *message,
                             int16_t version)
{
    uint32_t count = 0;
    struct mill_warray topics = message->topics;
    struct mill_offset_for_leader_epoch_request_topics topic;
    while (mill_offset_for_leader_epoch_request_topics_next(&topics, version, &topic)) {
        count += (uint32_t)MILL_MAX(topic.partitions.count, 0);
    }
    return count;
}

static void
epoch_op_begin(struct mill_core *core, struct mill_request *request, uint32_t index,
               const struct mill_wstr *topic_name,
               const struct mill_offset_for_leader_epoch_request_topics_partitions *part)
{
    const struct mill_map_topic *topic = NULL;
    struct mill_op *op = &request->ops[index];
    op->kind = MILL_OP_EPOCH_END;
    op->partition = part->partition;
    op->current_epoch = part->current_leader_epoch;
    op->offset = part->leader_epoch;
    enum mill_kerr error = mill_locate(core, topic_name, part->partition, op, &topic);
    if (error != MILL_KERR_NONE) {
        op->error = (int16_t)error;
        return;
    }
    mill_request_op_start(core, request, index);
}

void mill_epochs_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_offset_for_leader_epoch_request message;
    struct mill_cursor at = request->body;
    if (mill_offset_for_leader_epoch_request_decode(&at, version, &message) < 0) {
        mill_request_malformed(core, request);
        return;
    }
    if (!mill_request_ops_take(core, request, epochs_count(&message, version))) {
        return;
    }
    struct mill_warray topics = message.topics;
    struct mill_offset_for_leader_epoch_request_topics topic;
    uint32_t index = 0;
    while (mill_offset_for_leader_epoch_request_topics_next(&topics, version, &topic)) {
        struct mill_offset_for_leader_epoch_request_topics_partitions part;
        struct mill_warray parts = topic.partitions;
        while (
            mill_offset_for_leader_epoch_request_topics_partitions_next(&parts, version, &part)) {
            epoch_op_begin(core, request, index++, &topic.topic, &part);
        }
    }
    mill_request_ops_begun(core, request);
}

static void get_epoch_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct offsets_fill *fill = (void *)(uintptr_t)context;
    struct mill_offset_for_leader_epoch_response_topics_partitions *element = ret_element;
    const struct mill_op *op = &fill->request->ops[fill->op_index++];
    bool good = op->error == MILL_KERR_NONE;
    element->partition = op->partition;
    element->error_code = op->error;
    element->leader_epoch = good ? op->epoch : -1;
    element->end_offset = good ? op->base_offset : -1;
}

static void get_epoch_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct offsets_fill *fill = (void *)(uintptr_t)context;
    struct mill_offset_for_leader_epoch_response_topics *element = ret_element;
    struct mill_offset_for_leader_epoch_request_topics topic;
    bool more = mill_offset_for_leader_epoch_request_topics_next(
        &fill->topics, fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    element->topic = topic.topic;
    element->partitions = (struct mill_warray){
        .count = MILL_MAX(topic.partitions.count, 0), .get = get_epoch_partition, .context = fill};
}

static int epochs_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct offsets_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_offset_for_leader_epoch_request message;
    struct mill_cursor at = request->body;
    int r = mill_offset_for_leader_epoch_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0);
    fill->topics = message.topics;
    fill->op_index = 0;
    struct mill_offset_for_leader_epoch_response answer;
    mill_offset_for_leader_epoch_response_defaults(&answer);
    answer.topics = (struct mill_warray){
        .count = MILL_MAX(message.topics.count, 0), .get = get_epoch_topic, .context = fill};
    return mill_offset_for_leader_epoch_response_encode(to, version, &answer);
}

void mill_epochs_done(struct mill_core *core, struct mill_request *request)
{
    struct offsets_fill fill = {.request = request};
    mill_answer_send(core, request, epochs_fill, &fill);
}
