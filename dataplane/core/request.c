/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a core: from a complete frame to the moment the answer is on the stream. What each
 * API does is in api_*.c; this file owns life, deadlines and the counting of ops. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

static struct mill_request *request_new(struct mill_core *core)
{
    if (core->requests_free_count == 0) {
        core->words.requests_full++;
        return NULL;
    }
    uint32_t index = core->requests_free[--core->requests_free_count];
    struct mill_request *request = &core->requests[index];
    MILL_DASSERT(!request->in_use);
    uint32_t generation = request->generation + 1;
    /* The references and inline ops at the end are written before they are read. */
    memset(request, 0, offsetof(struct mill_request, body_inline));
    request->index = index;
    request->generation = generation;
    request->in_use = true;
    request->phase = MILL_PHASE_OPS;
    request->forwarded_once = false;
    request->answered = false;
    request->ops_count = 0;
    request->ops_pending = 0;
    request->ops = request->ops_inline;
    request->ops_extent = 0;
    request->refs_count = 0;
    request->refs_sent = 0;
    request->top_error = 0;
    request->expired = false;
    request->done_ns = 0;
    request->watched = false;
    request->silent = false;
    request->deadline_ns = MILL_NEVER;
    request->forward_until_ns = 0;
    request->answer = (struct mill_answer){0};
    request->kept = (struct mill_chain){0};
    return request;
}

static void refs_drop(struct mill_core *core, struct mill_request *request)
{
    for (uint32_t i = request->refs_sent; i < request->refs_count; i++) {
        mill_loan_give(core->loans, &request->refs[i]);
    }
    request->refs_count = 0;
    request->refs_sent = 0;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        mill_op_list_drop(core, &request->ops[i]);
    }
}

/* Ends what its ops still wait for. ret: appends of other cores, which still read this request's
 * bytes and will end by themselves. */
static uint32_t ops_cancel(struct mill_core *core, struct mill_request *request)
{
    uint32_t remote_reads = 0;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        if (op->state == MILL_OP_REMOTE && op->kind == MILL_OP_APPEND) {
            remote_reads++;
        } else {
            mill_op_cancel(core, op);
        }
    }
    return remote_reads;
}

void mill_request_free(struct mill_core *core, struct mill_request *request)
{
    MILL_ASSERT(request->in_use);
    core->words.waiting_fetches -= request->phase == MILL_PHASE_WATCHES;
    mill_heap_remove(&core->heap, &request->deadline);
    mill_list_remove(&request->node);
    ops_cancel(core, request);
    refs_drop(core, request);
    mill_chain_clear(&request->kept);
    if (request->ops_extent) {
        core->ops_bytes -= mill_extent_size_bytes(core->extents, request->ops_extent);
        mill_extent_free(core->extents, request->ops_extent);
    }
    if (request->body_extent) {
        mill_extent_free(core->extents, request->body_extent);
    }
    if (request->answer.linear.size_bytes > 0) {
        mill_scratch_retire(core, request->answer.linear.extent);
    }
    request->in_use = false;
    request->conn = NULL;
    core->requests_free[core->requests_free_count++] = request->index;
}

struct mill_request *mill_request_named(struct mill_core *core, uint32_t index, uint32_t generation)
{
    if (index >= core->requests_count) {
        return NULL;
    }
    struct mill_request *request = &core->requests[index];
    return request->in_use && request->generation == generation ? request : NULL;
}

void mill_request_orphan(struct mill_core *core, struct mill_request *request)
{
    struct mill_conn *conn = request->conn;
    request->conn = NULL;
    request->ops_pending = ops_cancel(core, request);
    if (request->ops_pending == 0) {
        mill_request_free(core, request);
        return;
    }
    core->requests_orphaned++;
    /* Another core still copies record bytes out of this connection's buffers: keep them until its
     * answer comes. */
    if (conn->stage_reserved > 0) {
        request->kept = conn->stage;
        conn->stage = (struct mill_chain){0};
    } else {
        request->kept = conn->stream->rx;
        conn->stream->rx = (struct mill_chain){0};
    }
    mill_heap_remove(&core->heap, &request->deadline);
}

void mill_request_deadline(struct mill_core *core, struct mill_request *request, uint64_t at_ns)
{
    request->deadline_ns = at_ns;
    mill_heap_set(&core->heap, &request->deadline, at_ns);
}

void mill_request_hold(struct mill_core *core, struct mill_request *request)
{
    request->phase = MILL_PHASE_HELD;
    if (!mill_node_linked(&request->node)) {
        mill_list_add(&core->held, &request->node);
    }
}

uint32_t mill_request_run_held(struct mill_core *core)
{
    uint32_t work = 0;
    const struct mill_node *last = core->held.prev;
    for (uint32_t i = 0; i < MILL_RETRIES_PER_TURN && !mill_list_empty(&core->held); i++) {
        struct mill_node *node = core->held.next;
        mill_list_remove(node);
        mill_api_begin(core, MILL_CONTAINER_OF(node, struct mill_request, node));
        /* One that could not begin stands at the end again: no work was done. */
        work += core->held.prev != node;
        if (node == last) {
            break;
        }
    }
    return work;
}

void mill_request_settle(struct mill_core *core, struct mill_request *request)
{
    struct mill_conn *conn = request->conn;
    if (request->settled || !conn || request->header.api_key == MILL_API_KEY_PRODUCE) {
        return;
    }
    uint32_t size = request->frame_bytes - MILL_FRAME_SIZE_BYTES;
    uint8_t *to = request->body_inline;
    if (size > sizeof(request->body_inline)) {
        uint32_t extent;
        if (mill_log_scratch(core->log, size, &extent) < 0) {
            return;
        }
        request->body_extent = extent;
        to = mill_extent_data(core->extents, extent);
    }
    struct mill_cursor from = request->frame;
    int r = mill_cursor_read(&from, to, size);
    MILL_ASSERT_EQ(r, 0);
    request->frame = mill_cursor_over(&request->body_buf, to, size);
    request->body = request->frame;
    r = mill_cursor_skip(&request->body, request->header_bytes);
    MILL_ASSERT_EQ(r, 0);
    from = request->frame;
    r = mill_request_header_decode(&from, &request->header);
    MILL_ASSERT_EQ(r, 0);
    request->settled = true;
    /* The connection keeps its request; only the bytes go. */
    uint32_t frame_bytes = request->frame_bytes;
    mill_conn_finish(core, conn, frame_bytes);
    conn->request = request;
}

bool mill_frame_too_large(const struct mill_core *core, int16_t api_key, uint32_t frame_bytes)
{
#ifdef MILL_MUTANT_CORE_FRAMES_ANY_SIZE
    return false;
#endif
    return api_key != MILL_API_KEY_PRODUCE && api_key != MILL_API_KEY_FETCH &&
           frame_bytes > core->limits.control_frame_bytes_max;
}

int mill_request_begin(struct mill_core *core, struct mill_conn *conn, struct mill_cursor frame,
                       uint32_t frame_bytes)
{
    struct mill_request *request = request_new(core);
    if (!request) {
        return -EAGAIN;
    }
    request->conn = conn;
    request->frame = frame;
    request->frame_bytes = frame_bytes;
    request->begun_ns = conn->frame_begun_ns;
    request->complete_ns = core->now.mono_ns;
    request->body = frame;
    int r = mill_request_header_decode(&request->body, &request->header);
    if (r == -EOPNOTSUPP && request->header.api_key != MILL_API_KEY_API_VERSIONS) {
        core->words.unknown_apis++;
    }
    if (r < 0 && !(r == -EOPNOTSUPP && request->header.api_key == MILL_API_KEY_API_VERSIONS)) {
        request->conn = NULL;
        mill_request_free(core, request);
        return r;
    }
    if (mill_frame_too_large(core, request->header.api_key, frame_bytes)) {
        request->conn = NULL;
        mill_request_free(core, request);
        return -EBADMSG;
    }
    request->header_bytes = frame.left_bytes - request->body.left_bytes;
    conn->request = request;
    mill_api_begin(core, request);
    return 0;
}

int mill_request_ops(struct mill_core *core, struct mill_request *request, uint32_t count)
{
    if (count > MILL_REQUEST_OPS_MAX) {
        return -E2BIG;
    }
    if (count > MILL_REQUEST_OPS_INLINE) {
        uint32_t extent;
        uint32_t bytes = count * (uint32_t)sizeof(struct mill_op);
        if (core->ops_bytes + bytes > core->limits.ops_bytes_max) {
            return -ENOSPC;
        }
        int r = mill_log_scratch(core->log, bytes, &extent);
        if (r < 0) {
            return r == -EFBIG ? -E2BIG : -ENOSPC; /* waiting would not make it fit */
        }
        core->ops_bytes += mill_extent_size_bytes(core->extents, extent);
        request->ops_extent = extent;
        request->ops = (void *)mill_extent_data(core->extents, extent);
    }
    request->ops_count = count;
    memset(request->ops, 0, count * sizeof(struct mill_op));
    for (uint32_t i = 0; i < count; i++) {
        struct mill_op *op = &request->ops[i];
        op->request = request;
        op->op_index = i;
        op->origin = (uint8_t)core->index;
        op->base_offset = -1;
        op->timestamp = -1;
        op->start_offset = -1;
        op->high_watermark = -1;
        op->stable_offset = -1;
        op->epoch = -1;
        op->diverging_epoch = -1;
        op->current_epoch = -1;
        op->last_epoch = -1;
        op->bad_record = -1;
    }
    /* One guard keeps a request from ending while its ops are still being begun. */
    request->ops_pending = 1;
    return 0;
}

bool mill_request_ops_take(struct mill_core *core, struct mill_request *request, uint32_t count)
{
    int r = mill_request_ops(core, request, count);
    if (r == -ENOSPC) {
        mill_request_hold(core, request);
        return false;
    }
    if (r < 0) {
        core->words.requests_full++;
        mill_conn_abort(core, request->conn);
        return false;
    }
    request->phase = MILL_PHASE_OPS;
    return true;
}

void mill_request_malformed(struct mill_core *core, struct mill_request *request)
{
    core->words.bad_frames++;
    mill_conn_abort(core, request->conn);
}

void mill_request_op_start(struct mill_core *core, struct mill_request *request, uint32_t op_index)
{
    struct mill_op *op = &request->ops[op_index];
    op->request_index = request->index;
    op->request_generation = request->generation;
    op->round++;
    request->ops_pending++;
    if (op->owner == core->index) {
        mill_op_run(core, op);
    } else {
#ifndef MILL_MUTANT_CORE_HANDED_UNCOUNTED
        core->words.handed_over++;
#endif
        mill_peer_ask(core, op);
    }
}

static void ops_done(struct mill_core *core, struct mill_request *request)
{
    if (!request->conn) {
        core->requests_orphaned--;
        mill_request_free(core, request);
        return;
    }
    mill_api_ops_done(core, request);
}

void mill_request_ops_begun(struct mill_core *core, struct mill_request *request)
{
    MILL_ASSERT(request->ops_pending > 0);
    if (--request->ops_pending == 0) {
        ops_done(core, request);
    } else {
        mill_request_settle(core, request);
    }
}

void mill_request_op_done(struct mill_core *core, struct mill_request *request, struct mill_op *op)
{
    MILL_UNUSED(op);
    MILL_ASSERT(request->ops_pending > 0);
    request->ops_pending--;
    if (request->phase == MILL_PHASE_WATCHES) {
        /* One partition has something: look at all of them again. */
        if (request->conn) {
            mill_api_ops_done(core, request);
        }
        return;
    }
    if (request->ops_pending == 0) {
        ops_done(core, request);
    }
}

void mill_request_expired(struct mill_core *core, struct mill_request *request)
{
    mill_heap_remove(&core->heap, &request->deadline);
    request->expired = true;
    if (!request->conn) {
        return;
    }
    switch ((enum mill_request_phase)request->phase) {
    case MILL_PHASE_CONTROL:
        if (mill_forward_extend(core, request)) {
            request->expired = false;
            break;
        }
        core->words.frames_expired++;
        mill_list_remove(&request->node);
        mill_forward_expired(core, request);
        break;
    case MILL_PHASE_WATCHES:
        mill_api_ops_done(core, request);
        break;
    case MILL_PHASE_HELD:
        mill_list_remove(&request->node);
        mill_api_begin(core, request);
        break;
    case MILL_PHASE_OPS:
        if (request->header.api_key == MILL_API_KEY_PRODUCE) {
            mill_produce_late(core, request);
        }
        break; /* else ends by itself */
    case MILL_PHASE_ANSWER:
        break;
    }
}
