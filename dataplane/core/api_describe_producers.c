/* SPDX-License-Identifier: Apache-2.0 */
/* DescribeProducers: the producers that have something in a partition, for who looks for hanging
 * transactions. One op per partition. It gathers their states in a scratch extent, a few per turn,
 * from the list of retries, which bounds what all such ops do in a turn. ref: KIP-664 */
#include "dataplane/core/core_types.h"

#include <errno.h>

enum {
#ifdef MILL_MUTANT_CORE_PRODUCERS_AT_ONCE
    STATES_PER_TURN = 65536,
#else
    STATES_PER_TURN = 64,
#endif
};

/* --- the op, on the partition's core --------------------------------------------------------- */

void mill_op_producers_drop(struct mill_core *core, struct mill_op *op)
{
#ifdef MILL_MUTANT_CORE_PRODUCERS_LEFT
    return;
#endif
    if (op->producers.extent) {
        core->producers_bytes -= mill_extent_size_bytes(core->extents, op->producers.extent);
        mill_extent_free(core->extents, op->producers.extent);
        op->producers.extent = 0;
    }
}

/* Whether the lists of this core, with one of so many bytes, stay within their bound: requests may
 * name many partitions, and one partition often, as in Kafka. */
static bool has_room(struct mill_core *core, uint64_t size_bytes)
{
    bool has = core->producers_bytes == 0 ||
               core->producers_bytes + size_bytes <= core->limits.producers_bytes_max;
    core->words.producers_full += !has;
#ifdef MILL_MUTANT_CORE_PRODUCERS_UNBOUNDED
    has = true;
#endif
    return has;
}

/* ret: false when there is no memory; error says it. */
static bool walk_begin(struct mill_core *core, struct mill_op *op,
                       const struct mill_partition *partition)
{
    struct mill_producers_walk *walk = &op->producers;
    /* Some may come meanwhile; who began anew for them has twice the room. */
    uint32_t room = MILL_MAX(mill_log_producers_count(partition) + STATES_PER_TURN, 2 * walk->room);
    walk->count = 0;
    walk->room = room;
    uint32_t size_bytes = room * (uint32_t)sizeof(struct mill_log_producer_state);
    int r = -EAGAIN;
    if (has_room(core, size_bytes)) {
        r = mill_log_scratch(core->log, size_bytes, &walk->extent);
    }
    if (r < 0) {
        walk->extent = 0;
        /* Clients ask again for the one; the other would never fit. */
        op->error = r == -EAGAIN ? MILL_KERR_NOT_LEADER_OR_FOLLOWER : MILL_KERR_KAFKA_STORAGE_ERROR;
        return false;
    }
    core->producers_bytes += mill_extent_size_bytes(core->extents, walk->extent);
    return true;
}

/* What was gathered becomes the op's list: of this core's request with a loan, as a read's. */
static void walk_end(struct mill_core *core, struct mill_op *op)
{
    struct mill_producers_walk *walk = &op->producers;
    if (walk->count == 0) {
        mill_op_producers_drop(core, op);
        return;
    }
    op->list = (struct mill_ref){.extent = walk->extent,
                                 .size_bytes = walk->count *
                                               (uint32_t)sizeof(struct mill_log_producer_state)};
    walk->extent = 0;
    if (op->origin == core->index) {
        mill_loan_take(core->loans, &op->list);
        mill_scratch_retire_producers(core, op->list.extent); /* it goes with this loan */
    }
}

/* ret: true when it is over. */
static bool walk_step(struct mill_core *core, struct mill_op *op,
                      const struct mill_partition *partition)
{
    struct mill_producers_walk *walk = &op->producers;
    if (!walk->extent && !walk_begin(core, op, partition)) {
        return true;
    }
    if (walk->room - walk->count < STATES_PER_TURN) {
        /* More came than were expected: anew, with more room. */
        mill_op_producers_drop(core, op);
        walk->at = (struct mill_log_producers_at){.scan = walk->at.scan};
        return false;
    }
    struct mill_log_producer_state *states = (void *)mill_extent_data(core->extents, walk->extent);
    int r = mill_log_producers_list(partition, &walk->at, states + walk->count, STATES_PER_TURN);
    walk->count = r < 0 ? 0 : walk->count + (uint32_t)r;
    if (walk->at.ended) {
        walk_end(core, op);
    }
    return walk->at.ended;
}

void mill_op_producers(struct mill_core *core, struct mill_op *op,
                       const struct mill_partition *partition)
{
    struct mill_producers_walk *walk = &op->producers;
    bool first = !walk->queued;
    walk->queued = true;
    /* The turn of the request only puts it in line. */
    if (first ? mill_log_producers_count(partition) == 0 : walk_step(core, op, partition)) {
        mill_op_done(core, op);
        return;
    }
    op->state = MILL_OP_RETRY;
    mill_list_add(&core->retry, &op->node);
}

/* --- the request ----------------------------------------------------------------------------- */

static uint32_t partitions_count(const struct mill_describe_producers_request *message,
                                 int16_t version)
{
    uint32_t count = 0;
    struct mill_warray topics = message->topics;
    struct mill_describe_producers_request_topics topic;
    while (mill_describe_producers_request_topics_next(&topics, version, &topic)) {
        count += (uint32_t)MILL_MAX(topic.partition_indexes.count, 0);
    }
    return count;
}

static void op_begin(struct mill_core *core, struct mill_request *request, uint32_t index,
                     const struct mill_wstr *name, int32_t partition)
{
    const struct mill_map_topic *topic = NULL;
    char text[MILL_TOPIC_NAME_MAX + 1];
    struct mill_op *op = &request->ops[index];
    op->kind = MILL_OP_PRODUCERS;
    op->partition = partition;
    if (!mill_topic_name_good(text, mill_wstr_copy(name, text, sizeof(text)))) {
        op->error = MILL_KERR_INVALID_TOPIC_EXCEPTION;
        return;
    }
    op->error = (int16_t)mill_locate(core, name, partition, op, &topic);
    if (op->error == MILL_KERR_NONE) {
        mill_request_op_start(core, request, index);
    }
}

void mill_producers_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_describe_producers_request message;
    struct mill_cursor at = request->body;
    if (mill_describe_producers_request_decode(&at, version, &message) < 0) {
        mill_request_malformed(core, request);
        return;
    }
    if (!mill_request_ops_take(core, request, partitions_count(&message, version))) {
        return;
    }
    struct mill_warray topics = message.topics;
    struct mill_describe_producers_request_topics topic;
    uint32_t index = 0;
    while (mill_describe_producers_request_topics_next(&topics, version, &topic)) {
        struct mill_warray partitions = topic.partition_indexes;
        int32_t partition;
        while (mill_warray_next_i32(&partitions, &partition)) {
            op_begin(core, request, index++, &topic.name, partition);
        }
    }
    mill_request_ops_begun(core, request);
}

/* --- answer ---------------------------------------------------------------------------------- */

struct fill {
    const struct mill_core *core;
    const struct mill_request *request;
    struct mill_warray topics;
    uint32_t op_index;
    const struct mill_log_producer_state *states; /* of the partition being written */
};

static void get_producer(const void *context, int32_t index, void *ret_element)
{
    const struct fill *fill = context;
    const struct mill_log_producer_state *state = &fill->states[index];
    struct mill_describe_producers_response_topics_partitions_active_producers *element =
        ret_element;
    element->producer_id = state->producer_id;
    element->producer_epoch = state->epoch;
    element->last_sequence = state->last_sequence;
    element->last_timestamp = state->last_timestamp;
    element->coordinator_epoch = state->coordinator_epoch;
    element->current_txn_start_offset = state->txn_first_offset;
}

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_describe_producers_response_topics_partitions *element = ret_element;
    const struct mill_op *op = &fill->request->ops[fill->op_index++];
    element->partition_index = op->partition;
    element->error_code = op->error;
    if (op->list.size_bytes > 0) {
        fill->states = (const void *)mill_ref_data(fill->core->arena_base, &op->list);
        element->active_producers = (struct mill_warray){
            .count = (int32_t)(op->list.size_bytes / sizeof(struct mill_log_producer_state)),
            .get = get_producer,
            .context = fill};
    }
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_describe_producers_response_topics *element = ret_element;
    struct mill_describe_producers_request_topics topic;
    bool more = mill_describe_producers_request_topics_next(
        &fill->topics, fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    element->name = topic.name;
    element->partitions = (struct mill_warray){
        .count = MILL_MAX(topic.partition_indexes.count, 0), .get = get_partition, .context = fill};
}

static int answer_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_describe_producers_request message;
    struct mill_cursor at = request->body;
    int r = mill_describe_producers_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    fill->topics = message.topics;
    fill->op_index = 0;
    struct mill_describe_producers_response answer;
    mill_describe_producers_response_defaults(&answer);
    answer.topics = (struct mill_warray){
        .count = MILL_MAX(message.topics.count, 0), .get = get_topic, .context = fill};
    return mill_describe_producers_response_encode(to, version, &answer);
}

void mill_producers_done(struct mill_core *core, struct mill_request *request)
{
    struct fill fill = {.core = core, .request = request};
    mill_answer_send(core, request, answer_fill, &fill);
}
