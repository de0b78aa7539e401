/* SPDX-License-Identifier: Apache-2.0 */
/* WriteTxnMarkers: a coordinator ends a transaction in the partitions that it leads here, one op
 * per marker and partition; answered when the markers are as durable as the topic asks. ref: KIP-98
 */
#include "dataplane/core/core_types.h"

enum {
    BUMPED_VERSION = 2, /* of transactions: each end has a new epoch (KIP-1228) */
};

static uint32_t partitions_count(const struct mill_write_txn_markers_request *message,
                                 int16_t version)
{
    uint32_t count = 0;
    struct mill_warray markers = message->markers;
    struct mill_write_txn_markers_request_markers marker;
    while (mill_write_txn_markers_request_markers_next(&markers, version, &marker)) {
        struct mill_write_txn_markers_request_markers_topics topic;
        struct mill_warray topics = marker.topics;
        while (mill_write_txn_markers_request_markers_topics_next(&topics, version, &topic)) {
            count += (uint32_t)MILL_MAX(topic.partition_indexes.count, 0);
        }
    }
    return count;
}

static void op_begin(struct mill_core *core, struct mill_request *request, uint32_t index,
                     const struct mill_write_txn_markers_request_markers *marker,
                     const struct mill_wstr *name, int32_t partition)
{
    const struct mill_map_topic *topic = NULL;
    struct mill_op *op = &request->ops[index];
    op->kind = MILL_OP_MARKER;
    op->acks = -1;
    op->current_epoch = -1;
    op->partition = partition;
    op->marker = (struct mill_marker_append){
        .marker = {.type = marker->transaction_result ? MILL_MARKER_COMMIT : MILL_MARKER_ABORT,
                   .coordinator_epoch = marker->coordinator_epoch},
        .producer_id = marker->producer_id,
        .producer_epoch = marker->producer_epoch,
        .bumped = marker->transaction_version >= BUMPED_VERSION,
    };
    op->error = (int16_t)mill_locate(core, name, partition, op, &topic);
    if (op->error == MILL_KERR_NONE && (marker->producer_id < 0 || marker->producer_epoch < 0)) {
        op->error = MILL_KERR_INVALID_REQUEST;
    }
    if (op->error == MILL_KERR_NONE) {
        mill_request_op_start(core, request, index);
    }
}

void mill_markers_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_write_txn_markers_request message;
    struct mill_cursor at = request->body;
    if (mill_write_txn_markers_request_decode(&at, version, &message) < 0) {
        mill_request_malformed(core, request);
        return;
    }
    if (!mill_request_ops_take(core, request, partitions_count(&message, version))) {
        return;
    }
    struct mill_warray markers = message.markers;
    struct mill_write_txn_markers_request_markers marker;
    uint32_t index = 0;
    while (mill_write_txn_markers_request_markers_next(&markers, version, &marker)) {
        struct mill_write_txn_markers_request_markers_topics topic;
        struct mill_warray topics = marker.topics;
        while (mill_write_txn_markers_request_markers_topics_next(&topics, version, &topic)) {
            struct mill_warray partitions = topic.partition_indexes;
            int32_t partition;
            while (mill_warray_next_i32(&partitions, &partition)) {
                op_begin(core, request, index++, &marker, &topic.name, partition);
            }
        }
    }
    mill_request_ops_begun(core, request);
}

/* --- answer ---------------------------------------------------------------------------------- */

struct fill {
    const struct mill_request *request;
    struct mill_warray markers;
    struct mill_warray topics;
    uint32_t op_index;
};

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_write_txn_markers_response_markers_topics_partitions *element = ret_element;
    const struct mill_op *op = &fill->request->ops[fill->op_index++];
    element->partition_index = op->partition;
    element->error_code = op->error;
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_write_txn_markers_response_markers_topics *element = ret_element;
    struct mill_write_txn_markers_request_markers_topics topic;
    bool more = mill_write_txn_markers_request_markers_topics_next(
        &fill->topics, fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    element->name = topic.name;
    element->partitions = (struct mill_warray){
        .count = MILL_MAX(topic.partition_indexes.count, 0), .get = get_partition, .context = fill};
}

static void get_marker(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_write_txn_markers_response_markers *element = ret_element;
    struct mill_write_txn_markers_request_markers marker;
    bool more = mill_write_txn_markers_request_markers_next(
        &fill->markers, fill->request->header.api_version, &marker);
    MILL_ASSERT(more);
    fill->topics = marker.topics;
    element->producer_id = marker.producer_id;
    element->topics = (struct mill_warray){
        .count = MILL_MAX(marker.topics.count, 0), .get = get_topic, .context = fill};
}

static int answer_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_write_txn_markers_request message;
    struct mill_cursor at = request->body;
    int r = mill_write_txn_markers_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    fill->markers = message.markers;
    fill->op_index = 0;
    struct mill_write_txn_markers_response answer;
    mill_write_txn_markers_response_defaults(&answer);
    answer.markers = (struct mill_warray){
        .count = MILL_MAX(message.markers.count, 0), .get = get_marker, .context = fill};
    return mill_write_txn_markers_response_encode(to, version, &answer);
}

void mill_markers_done(struct mill_core *core, struct mill_request *request)
{
    struct fill fill = {.request = request};
    mill_answer_send(core, request, answer_fill, &fill);
}
