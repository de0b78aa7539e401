/* SPDX-License-Identifier: Apache-2.0 */
/* Fetch: reads of all partitions at once; when there is too little, watches until there is more or
 * the wait is over, then reads again. Record bytes go out by reference.
 *
 *   begin -> reads -> enough? --yes--> answer
 *              ^        | no
 *              +-- watches (data, change or max_wait) --+
 *
 * A request that goes on with a session (fetch_session.c) names changes only: its ops are the
 * session's partitions, and the answer has those that changed.
 */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

enum {
    FETCH_IDS_VERSION = 13, /* topics are named by their ids from here on (KIP-516) */
    ISOLATION_READ_COMMITTED = 1,
    FETCH_ZSTD_VERSION = 10, /* a reader of a zstd topic knows the codec from here on (KIP-110) */
};

static uint32_t partitions_count(const struct mill_fetch_request *message, int16_t version)
{
    uint32_t count = 0;
    struct mill_warray topics = message->topics;
    struct mill_fetch_request_topics topic;
    while (mill_fetch_request_topics_next(&topics, version, &topic)) {
        count += (uint32_t)MILL_MAX(topic.partitions.count, 0);
    }
    return count;
}

/* Whether a request names more than one turn may look at, asked for or forgotten. */
static bool is_too_much(const struct mill_fetch_request *message, int16_t version)
{
#ifdef MILL_MUTANT_CORE_FORGETS_ALL
    return false;
#endif
    uint64_t count = partitions_count(message, version);
    struct mill_warray topics = message->forgotten_topics_data;
    struct mill_fetch_request_forgotten_topics_data topic;
    uint64_t forgotten = 0;
    while (mill_fetch_request_forgotten_topics_data_next(&topics, version, &topic)) {
        forgotten += (uint64_t)MILL_MAX(topic.partitions.count, 0);
    }
    count = MILL_MAX(count, (uint64_t)MILL_MAX(message->topics.count, 0));
    forgotten = MILL_MAX(forgotten, (uint64_t)MILL_MAX(message->forgotten_topics_data.count, 0));
    return count > MILL_REQUEST_OPS_MAX || forgotten > MILL_REQUEST_OPS_MAX;
}

/* Share of the request's references for each of its partitions. */
static uint8_t refs_share(const struct mill_request *request)
{
    return (uint8_t)MILL_MAX(MILL_LOG_REFS_MAX / MILL_MAX(request->ops_count, 1u), 1u);
}

static void op_prepare(struct mill_core *core, struct mill_request *request, struct mill_op *op,
                       const struct mill_fetch_request_topics *named,
                       const struct mill_fetch_request_topics_partitions *part)
{
    const struct mill_map_topic *topic = NULL;
    op->kind = MILL_OP_READ;
    op->partition = part->partition;
    op->offset = part->fetch_offset;
    op->limit_bytes = (uint32_t)MILL_MAX(part->partition_max_bytes, 0);
    op->current_epoch = part->current_leader_epoch;
    op->last_epoch = part->last_fetched_epoch;
    op->refs_max = refs_share(request);
    op->error = (int16_t)(request->header.api_version >= FETCH_IDS_VERSION
                              ? mill_locate_id(core, &named->topic_id, part->partition, op, &topic)
                              : mill_locate(core, &named->topic, part->partition, op, &topic));
    op->committed = request->read_committed;
    if (op->error == MILL_KERR_NONE && topic->settings.compression == MILL_CODEC_ZSTD &&
        request->header.api_version < FETCH_ZSTD_VERSION) {
        op->error = MILL_KERR_UNSUPPORTED_COMPRESSION_TYPE;
    }
}

/* Loans of an earlier round of reads end. */
static void refs_forget(struct mill_core *core, struct mill_request *request)
{
    for (uint32_t i = 0; i < request->refs_count; i++) {
        mill_loan_give(core->loans, &request->refs[i]);
    }
    request->refs_count = 0;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        request->ops[i].refs_count = 0;
        request->ops[i].bytes = 0;
        mill_op_list_drop(core, &request->ops[i]);
    }
}

static uint32_t bytes_sum(const struct mill_request *request)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        sum += request->ops[i].bytes;
    }
    return sum;
}

/* One round over all partitions without an error. Own partitions see how much is left of max_bytes;
 * the others answer for themselves and the sum is cut in the answer. */
static void reads_begin(struct mill_core *core, struct mill_request *request)
{
    refs_forget(core, request);
    request->phase = MILL_PHASE_OPS;
    request->ops_pending = 1;
    bool first = true;
    uint32_t found = 0;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        if (op->error != MILL_KERR_NONE) {
            continue;
        }
        op->kind = MILL_OP_READ;
        op->first_whole = first && found == 0;
        op->alone = false;
        op->size_bytes = op->limit_bytes;
        if (op->owner == core->index) {
            uint32_t left = request->bytes_max - MILL_MIN(found, request->bytes_max);
            op->size_bytes = MILL_MIN(op->limit_bytes, left);
        }
        mill_request_op_start(core, request, i);
        found += op->bytes;
        first = first && op->owner == core->index && op->bytes == 0;
    }
    mill_request_ops_begun(core, request);
}

static void ops_of_message(struct mill_core *core, struct mill_request *request,
                           const struct mill_fetch_request *message)
{
    int16_t version = request->header.api_version;
    struct mill_warray topics = message->topics;
    struct mill_fetch_request_topics topic;
    uint32_t index = 0;
    while (mill_fetch_request_topics_next(&topics, version, &topic)) {
        struct mill_fetch_request_topics_partitions part;
        struct mill_warray parts = topic.partitions;
        while (mill_fetch_request_topics_partitions_next(&parts, version, &part)) {
            op_prepare(core, request, &request->ops[index++], &topic, &part);
        }
    }
}

static void ops_of_session(struct mill_core *core, struct mill_request *request,
                           const struct mill_fetch_session *session)
{
    uint32_t index = 0;
    uint32_t at = session->first;
    while (at != (uint32_t)MILL_FETCH_SESSION_NONE) {
        const struct mill_fetch_fetch_session_part *part =
            mill_fetch_session_part_at(core->fetch_sessions, at);
        const struct mill_fetch_session_topic *topic =
            mill_fetch_session_topic_at(core->fetch_sessions, part->topic);
        const struct mill_fetch_request_topics named = {
            .topic = mill_wstr_of_bytes(topic->name, topic->name_length),
            .topic_id = topic->id,
        };
        const struct mill_fetch_request_topics_partitions asked = {
            .partition = part->partition,
            .current_leader_epoch = part->leader_epoch,
            .fetch_offset = part->offset,
            .last_fetched_epoch = part->last_epoch,
            .partition_max_bytes = part->bytes_max,
        };
        struct mill_op *op = &request->ops[index++];
        op_prepare(core, request, op, &named, &asked);
        op->fetch_session_part = at;
        at = part->next;
    }
    MILL_ASSERT_EQ(index, request->ops_count);
}

void mill_fetch_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_fetch_request message;
    struct mill_cursor at = request->body;
    if (mill_fetch_request_decode(&at, version, &message) < 0) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    if (is_too_much(&message, version)) {
        core->words.requests_full++;
        mill_conn_abort(core, request->conn);
        return;
    }
    mill_api_fetch_session_begin(core, request, &message);
    request->min_bytes = message.min_bytes;
    request->bytes_max =
        MILL_MIN((uint32_t)MILL_MAX(message.max_bytes, 0), core->limits.fetch_bytes_max);
    if (MILL_UNLIKELY(core->quotas_on) && request->top_error == MILL_KERR_NONE) {
        request->throttled = !mill_quota_fetch(core, request);
    }
    const struct mill_fetch_session *session = NULL;
    uint32_t count = 0;
    if (request->throttled) {
        count = 0; /* an answer without partitions, whatever was asked for (KIP-219) */
    } else if (request->session == MILL_FETCH_SESSION_GOES_ON) {
        session = mill_api_fetch_session(core, request);
        count = session ? session->count : 0;
    } else if (request->session != MILL_FETCH_SESSION_ENDED &&
               request->top_error == MILL_KERR_NONE) {
        count = partitions_count(&message, version);
    }
    int r = mill_request_ops(core, request, count);
    if (r == -ENOSPC) {
        mill_request_hold(core, request);
        return;
    }
    if (r < 0) {
        core->words.requests_full++;
        mill_conn_abort(core, request->conn);
        return;
    }
    request->read_committed = message.isolation_level == ISOLATION_READ_COMMITTED;
    uint64_t wait_ms = (uint64_t)MILL_MAX(message.max_wait_ms, 0);
    mill_request_deadline(core, request, core->now.mono_ns + wait_ms * MILL_NS_PER_MS);
    request->expired = wait_ms == 0;
    if (request->top_error != MILL_KERR_NONE) {
        mill_fetch_done(core, request);
        return;
    }
    if (session) {
        ops_of_session(core, request, session);
    } else if (count > 0) {
        ops_of_message(core, request, &message);
    }
    reads_begin(core, request);
}

/* --- waiting --------------------------------------------------------------------------------- */

static bool must_answer(const struct mill_core *core, const struct mill_request *request)
{
    if (request->expired || core->stopping || request->conn->stream->rx_ended) {
        return true;
    }
    if (request->ops_extent && core->ops_bytes > core->limits.ops_bytes_max / 2) {
        return true; /* waiting fetches may hold half of this memory, the rest is for work */
    }
    bool any = false;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        const struct mill_op *op = &request->ops[i];
        if (op->error != MILL_KERR_NONE || op->diverging_epoch >= 0) {
            return true;
        }
        any = true;
    }
    uint32_t found = bytes_sum(request);
    /* Watches fired and the reads found no more than before them: the limits of the request keep it
     * from ever having min_bytes. */
    bool limited = request->watched && found <= request->found_bytes;
    return !any || limited || found >= (uint32_t)MILL_MAX(request->min_bytes, 0);
}

static void watches_end(struct mill_core *core, struct mill_request *request)
{
    for (uint32_t i = 0; i < request->ops_count; i++) {
        mill_op_cancel(core, &request->ops[i]);
        request->ops[i].error = MILL_KERR_NONE; /* the read tells what became of the partition */
    }
    reads_begin(core, request);
}

static void watches_begin(struct mill_core *core, struct mill_request *request)
{
    request->found_bytes = bytes_sum(request);
    request->watched = true;
    uint32_t missing = (uint32_t)request->min_bytes - request->found_bytes;
    uint32_t share = MILL_MAX(missing / request->ops_count, 1u);
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        op->kind = MILL_OP_WATCH;
        op->size_bytes = op->bytes + share;
    }
    refs_forget(core, request);
    mill_request_settle(core, request);
    /* An op that ends while the others are still being begun is seen after the loop. */
    request->ops_pending = 1;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        mill_request_op_start(core, request, i);
    }
    request->ops_pending--;
    if (request->ops_pending < request->ops_count) {
        watches_end(core, request);
        return;
    }
    request->phase = MILL_PHASE_WATCHES;
    core->words.waiting_fetches++;
}

/* --- answer ---------------------------------------------------------------------------------- */

/* Puts the references into the order of the answer and drops what exceeds max_bytes: the first
 * partition with data stays whole. */
static void refs_order(struct mill_core *core, struct mill_request *request)
{
    struct mill_ref ordered[MILL_LOG_REFS_MAX];
    uint32_t count = 0;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        bool keep = sum == 0 || sum + op->bytes <= request->bytes_max;
        for (uint32_t k = 0; k < op->refs_count; k++) {
            struct mill_ref *ref = &request->refs[op->refs_first + k];
            if (keep) {
                ordered[count++] = *ref;
            } else {
                mill_loan_give(core->loans, ref);
            }
        }
        if (!keep) {
            op->bytes = 0;
            op->refs_count = 0;
            mill_op_list_drop(core, op);
        }
        sum += op->bytes;
    }
    memcpy(request->refs, ordered, count * sizeof(ordered[0]));
    request->refs_count = (uint16_t)count;
}

struct fetch_fill {
    struct mill_core *core;
    struct mill_request *request;
    struct mill_warray topics;
    uint32_t topics_count;        /* of a session that goes on */
    struct mill_broker_view view; /* of the nodes that hints name */
    const struct mill_op *op;     /* of the element given last */
    uint32_t op_index;
};

/* The next op that is told in the answer. */
static const struct mill_op *op_next(struct fetch_fill *fill)
{
    const struct mill_request *request = fill->request;
    if (request->session == MILL_FETCH_SESSION_GOES_ON) {
        while (!request->ops[fill->op_index].told) {
            fill->op_index++;
        }
    }
    MILL_ASSERT_LT(fill->op_index, request->ops_count);
    return &request->ops[fill->op_index++];
}

static void get_aborted(const void *context, int32_t index, void *ret_element)
{
    const struct fetch_fill *fill = context;
    struct mill_fetch_response_responses_partitions_aborted_transactions *element = ret_element;
    const uint8_t *at = mill_ref_data(fill->core->arena_base, &fill->op->list) +
                        (size_t)index * MILL_LOG_ABORTED_BYTES;
    element->producer_id = (int64_t)mill_load_be64(at);
    element->first_offset = (int64_t)mill_load_be64(at + 8);
}

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fetch_fill *fill = (void *)(uintptr_t)context;
    struct mill_fetch_response_responses_partitions *element = ret_element;
    const struct mill_op *op = op_next(fill);
    bool failed = op->error != MILL_KERR_NONE;
    fill->op = op;
    element->partition_index = op->partition;
    element->error_code = op->error;
    if (op->error == MILL_KERR_KAFKA_STORAGE_ERROR && fill->request->header.api_version <= 5) {
        element->error_code = MILL_KERR_NOT_LEADER_OR_FOLLOWER; /* older clients do not know 56 */
    }
    element->high_watermark = failed ? -1 : op->high_watermark;
    element->last_stable_offset = failed ? -1 : op->stable_offset;
    element->log_start_offset = failed ? -1 : op->start_offset;
    /* As Kafka: null for who reads uncommitted records and for what is not read, empty for what is
     * not there. */
    bool absent = op->error == MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION ||
                  op->error == MILL_KERR_UNKNOWN_TOPIC_ID;
    bool listed = fill->request->read_committed && !failed && op->diverging_epoch < 0;
    element->aborted_transactions = (struct mill_warray){
        .count = listed   ? (int32_t)(op->list.size_bytes / MILL_LOG_ABORTED_BYTES)
                 : absent ? 0
                          : -1,
        .get = get_aborted,
        .context = fill,
    };
#ifdef MILL_MUTANT_CORE_ABORTED_UNTOLD
    element->aborted_transactions.count = MILL_MIN(element->aborted_transactions.count, 0);
#endif
    element->preferred_read_replica = -1;
    element->records = (struct mill_wrecords){.length = (int32_t)op->bytes};
    if (op->diverging_epoch >= 0) {
        element->has_diverging_epoch = true;
        element->diverging_epoch.epoch = op->diverging_epoch;
        element->diverging_epoch.end_offset = op->diverging_end;
    }
    element->has_current_leader =
        mill_leader_of(fill->core, fill->request, op, &element->current_leader.leader_id,
                       &element->current_leader.leader_epoch);
}

static void get_node(const void *context, int32_t index, void *ret_element)
{
    const struct fetch_fill *fill = context;
    struct mill_fetch_response_node_endpoints *element = ret_element;
    struct mill_node_view node = mill_node_at(&fill->view, index);
    element->node_id = node.id;
    element->host = mill_wstr_of(node.host);
    element->port = node.port;
    element->rack = mill_wstr_of(NULL);
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fetch_fill *fill = (void *)(uintptr_t)context;
    struct mill_fetch_response_responses *element = ret_element;
    struct mill_fetch_request_topics topic;
    bool more =
        mill_fetch_request_topics_next(&fill->topics, fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    element->topic = topic.topic;
    element->topic_id = topic.topic_id;
    element->partitions = (struct mill_warray){
        .count = MILL_MAX(topic.partitions.count, 0), .get = get_partition, .context = fill};
}

/* Of a session: partitions of one topic that follow each other. */
static void get_session_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fetch_fill *fill = (void *)(uintptr_t)context;
    struct mill_fetch_response_responses *element = ret_element;
    const struct mill_request *request = fill->request;
    struct mill_fetch_sessions *sessions = fill->core->fetch_sessions;
    uint32_t of = MILL_FETCH_SESSION_NONE;
    int32_t count = 0;
    for (uint32_t i = fill->op_index; i < request->ops_count; i++) {
        const struct mill_op *op = &request->ops[i];
        if (!op->told) {
            continue;
        }
        uint32_t topic = mill_fetch_session_part_at(sessions, op->fetch_session_part)->topic;
        if (count > 0 && topic != of) {
            break;
        }
        of = topic;
        count++;
    }
    const struct mill_fetch_session_topic *topic = mill_fetch_session_topic_at(sessions, of);
    element->topic = mill_wstr_of_bytes(topic->name, topic->name_length);
    element->topic_id = topic->id;
    element->partitions =
        (struct mill_warray){.count = count, .get = get_partition, .context = fill};
}

static int fetch_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct fetch_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_fetch_request message;
    struct mill_cursor at = request->body;
    int r = mill_fetch_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    fill->topics = message.topics;
    fill->op_index = 0;
    struct mill_fetch_response answer;
    mill_fetch_response_defaults(&answer);
    answer.error_code = request->top_error;
    answer.session_id = request->session_id;
    answer.responses = (struct mill_warray){
        .count = MILL_MAX(message.topics.count, 0), .get = get_topic, .context = fill};
    if (request->session == MILL_FETCH_SESSION_GOES_ON) {
        answer.responses.count = (int32_t)fill->topics_count;
        answer.responses.get = get_session_topic;
    }
    if (request->top_error || request->throttled || request->session == MILL_FETCH_SESSION_ENDED) {
        answer.responses.count = 0;
    }
    answer.node_endpoints =
        (struct mill_warray){.count = (int32_t)mill_hinted_nodes(fill->core, request, &fill->view),
                             .get = get_node,
                             .context = fill};
    return mill_fetch_response_encode(to, version, &answer);
}

/* A partition whose first batch alone exceeds the limits, or for which there was no memory beside
 * the others, must still make progress when nothing else has data. ret: true when a read was begun
 * for it. */
static bool read_whole(struct mill_core *core, struct mill_request *request)
{
    if (bytes_sum(request) > 0) {
        return false;
    }
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        if (op->error == MILL_KERR_NONE && !op->alone && op->diverging_epoch < 0 &&
            (op->committed ? op->stable_offset : op->high_watermark) > op->offset) {
            op->first_whole = true;
            op->alone = true;
            op->size_bytes = op->limit_bytes;
            request->ops_pending = 1;
            mill_request_op_start(core, request, i);
            mill_request_ops_begun(core, request);
            return true;
        }
    }
    return false;
}

void mill_fetch_done(struct mill_core *core, struct mill_request *request)
{
    if (request->phase == MILL_PHASE_WATCHES) {
        core->words.waiting_fetches--;
        watches_end(core, request);
        return;
    }
    if (request->top_error == 0) {
        if (read_whole(core, request)) {
            return;
        }
        if (!must_answer(core, request)) {
            watches_begin(core, request);
            return;
        }
        refs_order(core, request);
    }
    mill_heap_remove(&core->heap, &request->deadline);
    struct fetch_fill fill = {.core = core, .request = request};
    if (MILL_UNLIKELY(request->session != MILL_FETCH_SESSION_UNUSED && request->top_error == 0 &&
                      !request->throttled)) {
        fill.topics_count = mill_api_fetch_session_answer(core, request);
    }
    mill_answer_send(core, request, fetch_fill, &fill);
}
