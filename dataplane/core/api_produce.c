/* SPDX-License-Identifier: Apache-2.0 */
/* Produce: one append per partition, on the partition's core; the answer in the request's order. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

#include "protocol/errors.h"

static enum mill_kerr locate_in(const struct mill_core *core, const struct mill_map_topic *found,
                                int32_t partition, struct mill_op *op,
                                const struct mill_map_topic **ret_topic)
{
    if (partition < 0 || (uint32_t)partition >= found->partitions_count) {
        return MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
    }
    *ret_topic = found;
    op->partition = partition;
    op->topic_id = found->id;
    op->owner = (uint8_t)mill_owner_of(&found->id, partition, core->count);
    return found->partitions[partition].leader == core->node_id ? MILL_KERR_NONE
                                                                : MILL_KERR_NOT_LEADER_OR_FOLLOWER;
}

enum mill_kerr mill_locate(struct mill_core *core, const struct mill_wstr *topic, int32_t partition,
                           struct mill_op *op, const struct mill_map_topic **ret_topic)
{
    char name[MILL_TOPIC_NAME_MAX + 1];
    int32_t length = mill_wstr_copy(topic, name, sizeof(name));
    if (length <= 0) {
        return MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
    }
    const struct mill_map_topic *found = mill_map_topic_by_name(core->map, name, (uint32_t)length);
    if (!found || (found->flags & MILL_TOPIC_DELETING)) {
        return MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
    }
    return locate_in(core, found, partition, op, ret_topic);
}

enum mill_kerr mill_locate_id(struct mill_core *core, const struct mill_uuid *topic_id,
                              int32_t partition, struct mill_op *op,
                              const struct mill_map_topic **ret_topic)
{
    const struct mill_map_topic *found = mill_map_topic_by_id(core->map, topic_id);
#ifdef MILL_MUTANT_CORE_ANY_TOPIC_ID
    found = found ? found : mill_map_topic_at(core->map, 0);
#endif
    if (!found || (found->flags & MILL_TOPIC_DELETING)) {
        return MILL_KERR_UNKNOWN_TOPIC_ID;
    }
    return locate_in(core, found, partition, op, ret_topic);
}

bool mill_leader_of(struct mill_core *core, const struct mill_request *request,
                    const struct mill_op *op, int32_t *ret_node, int32_t *ret_epoch)
{
    const struct mill_map_topic *topic = NULL;
#ifdef MILL_MUTANT_CORE_LEADER_UNTOLD
    return false;
#endif
    if (op->error == MILL_KERR_NOT_LEADER_OR_FOLLOWER) {
        topic = mill_map_topic_by_id(core->map, &op->topic_id);
    }
    if (!topic || (topic->flags & MILL_TOPIC_DELETING) || op->partition < 0 ||
        (uint32_t)op->partition >= topic->partitions_count ||
        topic->partitions[op->partition].leader < 0) {
        return false;
    }
    struct mill_broker_view view = mill_broker_view(core, request->conn->stream->listener);
    const struct mill_map_partition *partition = &topic->partitions[op->partition];
    *ret_node = mill_node_of(&view, partition->leader, &topic->id, op->partition);
    *ret_epoch = partition->leader_epoch;
    return true;
}

uint32_t mill_hinted_nodes(struct mill_core *core, const struct mill_request *request,
                           struct mill_broker_view *ret_view)
{
    for (uint32_t i = 0; i < request->ops_count; i++) {
        int32_t node;
        int32_t epoch;
        if (mill_leader_of(core, request, &request->ops[i], &node, &epoch)) {
            *ret_view = mill_broker_view(core, request->conn->stream->listener);
            return ret_view->count;
        }
    }
    return 0;
}

/* --- begin ----------------------------------------------------------------------------------- */

static uint32_t partitions_count(const struct mill_produce_request *message, int16_t version)
{
    uint32_t count = 0;
    struct mill_warray topics = message->topic_data;
    struct mill_produce_request_topic_data topic;
    while (mill_produce_request_topic_data_next(&topics, version, &topic)) {
        count += (uint32_t)MILL_MAX(topic.partition_data.count, 0);
    }
    return count;
}

enum {
    PRODUCE_IDS_VERSION = 13, /* topics are named by their ids from here on (KIP-516) */
};

/* Internal topics are control's, and of the one client that Kafka lets write to them. */
static bool may_write_internal(const struct mill_request *request)
{
    static const char admin[] = "__admin_client";
#ifdef MILL_MUTANT_CORE_INTERNAL_OPEN
    return true;
#endif
    return request->conn->stream->listener == MILL_LISTENER_CONTROL ||
           mill_wstr_equal(&request->header.client_id, admin, sizeof(admin) - 1);
}

static enum mill_kerr op_check(struct mill_core *core, const struct mill_request *request,
                               const struct mill_produce_request *message,
                               const struct mill_produce_request_topic_data *named,
                               struct mill_op *op,
                               const struct mill_produce_request_topic_data_partition_data *part)
{
    const struct mill_map_topic *topic = NULL;
    if (message->acks < -1 || message->acks > 1) {
        return MILL_KERR_INVALID_REQUIRED_ACKS;
    }
    enum mill_kerr error = op->api_version >= PRODUCE_IDS_VERSION
                               ? mill_locate_id(core, &named->topic_id, part->index, op, &topic)
                               : mill_locate(core, &named->name, part->index, op, &topic);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    if ((topic->flags & MILL_TOPIC_INTERNAL) && !may_write_internal(request)) {
        return MILL_KERR_INVALID_TOPIC_EXCEPTION;
    }
    const struct mill_map_partition *partition = &topic->partitions[part->index];
    if (message->acks == -1 &&
        (int32_t)partition->isr_count < topic->settings.min_insync_replicas) {
        return MILL_KERR_NOT_ENOUGH_REPLICAS;
    }
    if (part->records.length < 0) {
        /* Kafka never answers such a request; ours says what is wrong (docs/differences.md). */
        return MILL_KERR_INVALID_RECORD;
    }
    return MILL_KERR_NONE;
}

static void op_begin(struct mill_core *core, struct mill_request *request, uint32_t index,
                     const struct mill_produce_request *message,
                     const struct mill_produce_request_topic_data *topic,
                     const struct mill_produce_request_topic_data_partition_data *part)
{
    struct mill_op *op = &request->ops[index];
    uint32_t bytes = (uint32_t)MILL_MAX(part->records.length, 0);
    struct mill_listener_words *words = mill_conn_words(core, request->conn);
    words->bytes_in += bytes;
    core->words.log_bytes_in += bytes;
    op->kind = MILL_OP_APPEND;
    op->records = part->records.at;
    op->size_bytes = bytes;
    op->api_version = request->header.api_version;
    op->acks = message->acks;
    op->transactional = message->transactional_id.length >= 0;
    op->internal = request->conn->stream->listener == MILL_LISTENER_CONTROL;
    op->partition = part->index;
    enum mill_kerr error = op_check(core, request, message, topic, op, part);
    if (error != MILL_KERR_NONE) {
        op->error = (int16_t)error;
        return;
    }
    mill_request_op_start(core, request, index);
}

void mill_produce_ops_begun(struct mill_core *core, struct mill_request *request)
{
#ifndef MILL_MUTANT_CORE_FLUSH_FOREVER
    if (request->ops_pending > 1) { /* some wait, for what may take longer than the client does */
        struct mill_produce_request message;
        struct mill_cursor at = request->body;
        int r = mill_produce_request_decode(&at, request->header.api_version, &message);
        MILL_ASSERT_EQ(r, 0); /* it was decoded before */
        uint64_t wait_ms = (uint64_t)MILL_MAX(message.timeout_ms, 0);
        mill_request_deadline(core, request, core->now.mono_ns + wait_ms * MILL_NS_PER_MS);
    }
#endif
    mill_request_ops_begun(core, request);
}

void mill_produce_begin(struct mill_core *core, struct mill_request *request)
{
    if (request->ops_count > 0) { /* held while it asked for its transaction */
        (void)mill_produce_adds_begin(core, request);
        return;
    }
    int16_t version = request->header.api_version;
    struct mill_produce_request message;
    struct mill_cursor at = request->body;
    if (mill_produce_request_decode(&at, version, &message) < 0) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    int r = mill_request_ops(core, request, partitions_count(&message, version));
    if (r == -ENOSPC) {
        mill_request_hold(core, request);
        return;
    }
    if (r < 0) {
        core->words.requests_full++;
        mill_conn_abort(core, request->conn);
        return;
    }
    request->phase = MILL_PHASE_OPS;
    request->silent = message.acks == 0;
    struct mill_warray topics = message.topic_data;
    struct mill_produce_request_topic_data topic;
    uint32_t index = 0;
    while (mill_produce_request_topic_data_next(&topics, version, &topic)) {
        struct mill_produce_request_topic_data_partition_data part;
        struct mill_warray parts = topic.partition_data;
        while (mill_produce_request_topic_data_partition_data_next(&parts, version, &part)) {
            op_begin(core, request, index++, &message, &topic, &part);
        }
    }
    mill_produce_ops_begun(core, request);
}

void mill_produce_late(struct mill_core *core, struct mill_request *request)
{
    request->ops_pending++; /* the guard of ops_begun: the last op would end the request */
    for (uint32_t i = 0; i < request->ops_count; i++) {
        mill_op_late(core, &request->ops[i]);
    }
    mill_request_ops_begun(core, request);
}

/* --- answer ---------------------------------------------------------------------------------- */

struct produce_fill {
    struct mill_core *core;
    struct mill_request *request;
    struct mill_warray topics;
    struct mill_warray parts;
    struct mill_broker_view view; /* of the nodes that hints name */
    const struct mill_op *op;     /* of the element given last */
    uint32_t op_index;
};

static void get_record_error(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    const struct produce_fill *fill = context;
    struct mill_produce_response_responses_partition_responses_record_errors *element = ret_element;
    element->batch_index = fill->op->bad_record;
    element->batch_index_error_message = mill_wstr_of(fill->op->message);
}

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct produce_fill *fill = (void *)(uintptr_t)context;
    struct mill_produce_response_responses_partition_responses *element = ret_element;
    const struct mill_op *op = &fill->request->ops[fill->op_index++];
    fill->op = op;
    struct mill_produce_request_topic_data_partition_data part;
    bool more = mill_produce_request_topic_data_partition_data_next(
        &fill->parts, fill->request->header.api_version, &part);
    MILL_ASSERT(more);
    element->index = part.index;
    element->error_code = op->error;
    element->base_offset = op->error == MILL_KERR_NONE ? op->base_offset : -1;
    element->log_append_time_ms = op->error == MILL_KERR_NONE ? op->timestamp : -1;
    element->log_start_offset = op->error == MILL_KERR_NONE ? op->start_offset : -1;
    element->error_message = mill_wstr_of(op->message[0] != '\0' ? op->message : NULL);
    element->record_errors = (struct mill_warray){
        .count = op->bad_record >= 0 ? 1 : 0, .get = get_record_error, .context = fill};
    element->has_current_leader =
        mill_leader_of(fill->core, fill->request, op, &element->current_leader.leader_id,
                       &element->current_leader.leader_epoch);
}

static void get_node(const void *context, int32_t index, void *ret_element)
{
    const struct produce_fill *fill = context;
    struct mill_produce_response_node_endpoints *element = ret_element;
    struct mill_node_view node = mill_node_at(&fill->view, index);
    element->node_id = node.id;
    element->host = mill_wstr_of(node.host);
    element->port = node.port;
    element->rack = mill_wstr_of(NULL);
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct produce_fill *fill = (void *)(uintptr_t)context;
    struct mill_produce_response_responses *element = ret_element;
    struct mill_produce_request_topic_data topic;
    bool more = mill_produce_request_topic_data_next(&fill->topics,
                                                     fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    fill->parts = topic.partition_data;
    element->name = topic.name;
    element->topic_id = topic.topic_id;
    element->partition_responses = (struct mill_warray){
        .count = MILL_MAX(topic.partition_data.count, 0), .get = get_partition, .context = fill};
}

static int produce_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct produce_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_produce_request message;
    struct mill_cursor at = request->body;
    int r = mill_produce_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    fill->topics = message.topic_data;
    fill->op_index = 0;
    struct mill_produce_response answer;
    mill_produce_response_defaults(&answer);
    answer.throttle_time_ms = request->throttle_ms;
    answer.responses = (struct mill_warray){
        .count = MILL_MAX(message.topic_data.count, 0), .get = get_topic, .context = fill};
    answer.node_endpoints =
        (struct mill_warray){.count = (int32_t)mill_hinted_nodes(fill->core, request, &fill->view),
                             .get = get_node,
                             .context = fill};
    return mill_produce_response_encode(to, version, &answer);
}

void mill_produce_done(struct mill_core *core, struct mill_request *request)
{
    if (mill_produce_adds_begin(core, request)) {
        return;
    }
    struct mill_listener_words *words = mill_conn_words(core, request->conn);
    bool failed = false;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        const struct mill_op *op = &request->ops[i];
        words->bytes_copied_in += op->bytes;
        if (op->error != MILL_KERR_NONE) {
            words->bytes_rejected += op->size_bytes;
            failed = true;
        }
    }
    request->done_ns = core->now.mono_ns;
    if (!request->silent) {
        struct produce_fill fill = {.core = core, .request = request};
        mill_answer_send(core, request, produce_fill, &fill);
        return;
    }
    struct mill_conn *conn = request->conn;
    mill_answer_none(core, request);
    if (failed) {
        /* There is no answer to carry the error: closing makes the client look again. Answers to
         * earlier requests still go out. */
        conn->closing = true;
        conn->stream->ops->close(conn->stream);
    }
}
