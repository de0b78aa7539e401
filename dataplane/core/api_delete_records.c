/* SPDX-License-Identifier: Apache-2.0 */
/* DeleteRecords: moves log starts up, one op per partition, answered when no kill can bring the
 * records back. ref: KIP-107 */
#include "dataplane/core/core_types.h"

static uint32_t partitions_count(const struct mill_delete_records_request *message, int16_t version)
{
    uint32_t count = 0;
    struct mill_warray topics = message->topics;
    struct mill_delete_records_request_topics topic;
    while (mill_delete_records_request_topics_next(&topics, version, &topic)) {
        count += (uint32_t)MILL_MAX(topic.partitions.count, 0);
    }
    return count;
}

static void op_begin(struct mill_core *core, struct mill_request *request, uint32_t index,
                     const struct mill_wstr *name,
                     const struct mill_delete_records_request_topics_partitions *part)
{
    const struct mill_map_topic *topic = NULL;
    struct mill_op *op = &request->ops[index];
    op->kind = MILL_OP_TRIM;
    op->partition = part->partition_index;
    op->offset = part->offset;
    op->error = (int16_t)mill_locate(core, name, part->partition_index, op, &topic);
    if (op->error == MILL_KERR_NONE && (topic->settings.compact && !topic->settings.delete_old)) {
        op->error = MILL_KERR_POLICY_VIOLATION; /* as Kafka: what is only compacted is not cut */
    }
    if (op->error == MILL_KERR_NONE) {
        mill_request_op_start(core, request, index);
    }
}

void mill_delete_records_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_delete_records_request message;
    struct mill_cursor at = request->body;
    if (mill_delete_records_request_decode(&at, version, &message) < 0) {
        mill_request_malformed(core, request);
        return;
    }
    if (!mill_request_ops_take(core, request, partitions_count(&message, version))) {
        return;
    }
    struct mill_warray topics = message.topics;
    struct mill_delete_records_request_topics topic;
    uint32_t index = 0;
    while (mill_delete_records_request_topics_next(&topics, version, &topic)) {
        struct mill_delete_records_request_topics_partitions part;
        struct mill_warray parts = topic.partitions;
        while (mill_delete_records_request_topics_partitions_next(&parts, version, &part)) {
            op_begin(core, request, index++, &topic.name, &part);
        }
    }
    mill_request_ops_begun(core, request);
}

struct fill {
    const struct mill_request *request;
    struct mill_warray topics;
    uint32_t op_index;
};

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_delete_records_response_topics_partitions *element = ret_element;
    const struct mill_op *op = &fill->request->ops[fill->op_index++];
    element->partition_index = op->partition;
    element->error_code = op->error;
    element->low_watermark = op->error == MILL_KERR_NONE ? op->start_offset : -1;
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_delete_records_response_topics *element = ret_element;
    struct mill_delete_records_request_topics topic;
    bool more = mill_delete_records_request_topics_next(&fill->topics,
                                                        fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    element->name = topic.name;
    element->partitions = (struct mill_warray){
        .count = MILL_MAX(topic.partitions.count, 0), .get = get_partition, .context = fill};
}

static int answer_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_delete_records_request message;
    struct mill_cursor at = request->body;
    int r = mill_delete_records_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    fill->topics = message.topics;
    fill->op_index = 0;
    struct mill_delete_records_response answer;
    mill_delete_records_response_defaults(&answer);
    answer.topics = (struct mill_warray){
        .count = MILL_MAX(message.topics.count, 0), .get = get_topic, .context = fill};
    return mill_delete_records_response_encode(to, version, &answer);
}

void mill_delete_records_done(struct mill_core *core, struct mill_request *request)
{
    struct fill fill = {.request = request};
    mill_answer_send(core, request, answer_fill, &fill);
}
