/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: encoded into one run of memory with holes where record bytes belong, then queued on the
 * stream as small pieces and references. Record bytes are never touched. When the stream has no
 * room, the rest waits in a scratch extent and goes on with the stream's `room` event. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

enum {
    /* Longer runs of an answer's own bytes go by reference to their scratch extent. */
    LINEAR_COPY_MAX = 1024,
    LARGE_FIRST_BYTES = 256 << 10,
};

/* kind: MILL_RETIRED_PRODUCERS or 0. */
static void retire(struct mill_core *core, uint32_t extent, uint32_t kind)
{
    if (mill_loan_free(core->loans, extent)) {
#ifndef MILL_MUTANT_CORE_PRODUCERS_COUNTED_ON
        if (kind == MILL_RETIRED_PRODUCERS) {
            core->producers_bytes -= mill_extent_size_bytes(core->extents, extent);
        }
#endif
        mill_extent_free(core->extents, extent);
        return;
    }
    /* In a list by unit, so that readers who take nothing can fill the arena but not the list. */
    core->retired_next[extent] = MILL_RETIRED_END | kind;
    if (core->retired_count++ == 0) {
        core->retired_first = extent;
    } else {
        uint32_t *link = &core->retired_next[core->retired_last];
        *link = extent | (*link & MILL_RETIRED_PRODUCERS);
    }
    core->retired_last = extent;
}

void mill_scratch_retire(struct mill_core *core, uint32_t extent)
{
    retire(core, extent, 0);
}

void mill_scratch_retire_producers(struct mill_core *core, uint32_t extent)
{
    retire(core, extent, MILL_RETIRED_PRODUCERS);
}

uint32_t mill_scratch_sweep(struct mill_core *core)
{
    uint32_t freed = 0;
    uint32_t looks = MILL_MIN(core->retired_count, (uint32_t)MILL_RETIRED_PER_TURN);
    for (uint32_t i = 0; i < looks; i++) {
        uint32_t extent = core->retired_first;
        uint32_t link = core->retired_next[extent];
        core->retired_first = link & ~MILL_RETIRED_PRODUCERS;
        core->retired_count--;
        freed += mill_loan_free(core->loans, extent);
        retire(core, extent, link & MILL_RETIRED_PRODUCERS);
    }
    return freed;
}

static enum mill_stage_api stage_api(const struct mill_request *request)
{
    switch (request->header.api_key) {
    case MILL_API_KEY_PRODUCE:
        return MILL_STAGE_API_PRODUCE;
    case MILL_API_KEY_FETCH:
        return MILL_STAGE_API_FETCH;
    default:
        return MILL_STAGE_API_OTHER;
    }
}

static void stages_add(struct mill_core *core, struct mill_request *request)
{
    struct mill_hist *stages = core->shared->stages[stage_api(request)];
    uint64_t now = core->now.mono_ns;
    uint64_t done = request->done_ns > 0 ? request->done_ns : now;
    mill_hist_add(&stages[MILL_STAGE_COMPLETE], request->complete_ns - request->begun_ns);
    mill_hist_add(&stages[MILL_STAGE_APPENDED], done - request->complete_ns);
    /* One replica: replicated as soon as appended. */
    mill_hist_add(&stages[MILL_STAGE_REPLICATED], 0);
    mill_hist_add(&stages[MILL_STAGE_ANSWERED], now - done);
    mill_hist_add(&stages[MILL_STAGE_TOTAL], now - request->complete_ns);
}

/* Its version, and the errors that its partitions got. */
static void request_count(struct mill_core *core, const struct mill_request *request)
{
    uint16_t key = (uint16_t)request->header.api_key;
    uint16_t version = (uint16_t)request->header.api_version;
    bool failed = request->top_error != 0;
    core->words.requests++;
    if (key < MILL_COUNTERS_API_KEYS && version < MILL_COUNTERS_API_VERSIONS) {
        mill_counter_add(&core->shared->apis[key][version], 1);
    }
    if (key >= MILL_COUNTERS_ERROR_APIS) {
        return;
    }
    for (uint32_t i = 0; i < request->ops_count && !failed; i++) {
        failed = request->ops[i].error != 0;
    }
#ifndef MILL_MUTANT_CORE_ERRORS_UNCOUNTED
    for (uint32_t i = 0; i < request->ops_count && failed; i++) {
        uint16_t code = (uint16_t)(request->ops[i].error + 1);
        if (code < MILL_COUNTERS_ERRORS && code != 1) {
            mill_counter_add(&core->shared->errors[key][code], 1);
        }
    }
#endif
    if (request->top_error > 0 && request->top_error < MILL_COUNTERS_ERRORS - 1) {
        mill_counter_add(&core->shared->errors[key][request->top_error + 1], 1);
    }
    core->words.produce_failed += failed && key == MILL_API_KEY_PRODUCE ? 1 : 0;
    core->words.fetch_failed += failed && key == MILL_API_KEY_FETCH ? 1 : 0;
}

/* The whole answer is queued: the request is over. */
static void answer_end(struct mill_core *core, struct mill_request *request)
{
    struct mill_conn *conn = request->conn;
    uint32_t frame_bytes = request->settled ? 0 : request->frame_bytes;
    stages_add(core, request);
    if (conn->marks_count < MILL_ACK_MARKS) {
        conn->marks[conn->marks_count++] = (struct mill_ack_mark){
            .at_bytes = conn->queued_bytes,
            .queued_ns = core->now.mono_ns,
            .api = (uint8_t)stage_api(request),
        };
    }
    request_count(core, request);
    conn->stream->ops->push(conn->stream);
    if (MILL_UNLIKELY(request->throttle_ms > 0)) {
        mill_quota_mute(core, conn, request->throttle_ms);
    }
    mill_request_free(core, request);
    mill_conn_finish(core, conn, frame_bytes);
}

void mill_answer_none(struct mill_core *core, struct mill_request *request)
{
    struct mill_conn *conn = request->conn;
    uint32_t frame_bytes = request->settled ? 0 : request->frame_bytes;
    if (MILL_UNLIKELY(core->quotas_on)) {
        mill_quota_charge(core, request, 0);
        if (request->throttle_ms > 0) {
            mill_quota_mute(core, conn, request->throttle_ms);
        }
    }
    stages_add(core, request);
    request_count(core, request);
    mill_request_free(core, request);
    mill_conn_finish(core, conn, frame_bytes);
}

/* --- pieces ---------------------------------------------------------------------------------- */

struct piece_source {
    const uint8_t *bytes;
    uint32_t size_bytes;
    const struct mill_writer_hole *holes;
    uint32_t holes_count;
};

/* Queues the next run of the answer's own bytes, up to end. ret: 0 all, -EAGAIN, -EPIPE. */
static int linear_send(struct mill_core *core, struct mill_request *request,
                       const struct piece_source *from, uint32_t end)
{
    struct mill_stream *stream = request->conn->stream;
    struct mill_answer *answer = &request->answer;
    while (answer->linear_done < end) {
        uint32_t left = end - answer->linear_done;
        bool by_ref = answer->linear.size_bytes > 0 && left > LINEAR_COPY_MAX;
        uint32_t part = by_ref ? left : MILL_MIN(left, (uint32_t)MILL_STREAM_BYTES_MAX);
        int r;
        if (by_ref) {
            struct mill_ref ref = answer->linear;
            ref.pos_bytes += answer->linear_done;
            ref.size_bytes = part;
            r = stream->ops->send_ref(stream, &ref);
        } else {
            r = stream->ops->send_bytes(stream, from->bytes + answer->linear_done, part);
        }
        if (r < 0) {
            return r;
        }
        answer->linear_done += part;
        request->conn->queued_bytes += part;
    }
    MILL_UNUSED(core);
    return 0;
}

/* Queues the references of one hole. */
static int hole_send(struct mill_core *core, struct mill_request *request, uint32_t hole_bytes)
{
    struct mill_conn *conn = request->conn;
    struct mill_listener_words *words = mill_conn_words(core, conn);
    while (hole_bytes > 0) {
        MILL_ASSERT_LT(request->refs_sent, request->refs_count);
        struct mill_ref *ref = &request->refs[request->refs_sent];
        int r = conn->stream->ops->send_ref(conn->stream, ref);
        if (r < 0) {
            return r;
        }
        hole_bytes -= ref->size_bytes;
        conn->queued_bytes += ref->size_bytes;
        words->bytes_out += ref->size_bytes;
        core->words.log_bytes_out += ref->size_bytes;
        mill_loan_give(core->loans, ref); /* the stream holds its own */
        request->refs_sent++;
    }
    return 0;
}

/* Bytes of the current hole that are not queued yet: a hole is left only when its references are
 * out. */
static uint32_t hole_left(const struct mill_request *request, const struct piece_source *from)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i <= request->answer.holes_done; i++) {
        sum += from->holes[i].size_bytes;
    }
    for (uint32_t i = 0; i < request->refs_sent; i++) {
        sum -= request->refs[i].size_bytes;
    }
    return sum;
}

static int pieces_send(struct mill_core *core, struct mill_request *request,
                       const struct piece_source *from)
{
    struct mill_answer *answer = &request->answer;
    for (;;) {
        bool hole = answer->holes_done < from->holes_count;
        uint32_t end = hole ? from->holes[answer->holes_done].pos_bytes : from->size_bytes;
        int r = linear_send(core, request, from, end);
        if (r < 0) {
            return r;
        }
        if (!hole) {
            return 0;
        }
        r = hole_send(core, request, hole_left(request, from));
        if (r < 0) {
            return r;
        }
        answer->holes_done++;
    }
}

/* --- answers that wait ----------------------------------------------------------------------- */

/* Moves the answer's own bytes and holes into a scratch extent, so that the common buffer is free.
 * ret: 0, -ENOSPC. */
static int answer_keep(struct mill_core *core, struct mill_request *request,
                       const struct piece_source *from)
{
    uint32_t holes_at = (uint32_t)mill_round_up(from->size_bytes, 8);
    uint32_t bytes = holes_at + from->holes_count * (uint32_t)sizeof(from->holes[0]);
    uint32_t extent;
    if (mill_log_scratch(core->log, bytes, &extent) < 0) {
        return -ENOSPC;
    }
    uint8_t *to = mill_extent_data(core->extents, extent);
    memcpy(to, from->bytes, from->size_bytes);
    struct mill_answer *answer = &request->answer;
    answer->linear = (struct mill_ref){.extent = extent, .size_bytes = from->size_bytes};
    answer->holes = (void *)(to + holes_at);
    answer->holes_count = from->holes_count;
    if (from->holes_count > 0) {
        memcpy(answer->holes, from->holes, from->holes_count * sizeof(from->holes[0]));
    }
    return 0;
}

static void answer_run(struct mill_core *core, struct mill_request *request,
                       const struct piece_source *from)
{
    struct mill_conn *conn = request->conn;
    /* An answer longer than the stream's small-piece arena goes by reference from the start. */
    if (request->answer.linear.size_bytes == 0 && from->size_bytes > MILL_STREAM_BYTES_MAX &&
        answer_keep(core, request, from) < 0) {
        mill_conn_abort(core, conn);
        return;
    }
    int r = pieces_send(core, request, from);
    if (r == 0) {
        answer_end(core, request);
        return;
    }
    if (r == -EAGAIN && request->answer.linear.size_bytes == 0) {
        r = answer_keep(core, request, from) < 0 ? -EPIPE : -EAGAIN;
    }
    if (r != -EAGAIN) {
        mill_conn_abort(core, conn);
        return;
    }
    request->phase = MILL_PHASE_ANSWER;
    mill_heap_remove(&core->heap, &request->deadline);
    conn->stream->ops->push(conn->stream);
}

void mill_answer_continue(struct mill_core *core, struct mill_request *request)
{
    struct mill_answer *answer = &request->answer;
    struct piece_source from = {
        .bytes = mill_ref_data(core->arena_base, &answer->linear),
        .size_bytes = answer->linear.size_bytes,
        .holes = answer->holes,
        .holes_count = answer->holes_count,
    };
    answer_run(core, request, &from);
}

/* Writes the wait into an answer that begins with it; the others say it when they are encoded. */
MILL_COLD static void throttle_put(const struct mill_request *request, uint8_t *frame,
                                   uint32_t size_bytes)
{
    uint32_t at = mill_response_throttle_at(request->header.api_key, request->header.api_version);
#ifdef MILL_MUTANT_CORE_QUOTA_UNTOLD
    at = 0;
#endif
    if (at > 0 && at + sizeof(uint32_t) <= size_bytes) {
        mill_store_be32(frame + at, (uint32_t)request->throttle_ms);
    }
}

/* An answer of control's lies in memory that is only read: it is copied to say the wait. */
MILL_COLD static void answer_bytes_throttled(struct mill_core *core, struct mill_request *request,
                                             const struct piece_source *from)
{
    if (from->size_bytes <= MILL_ANSWER_BYTES) {
        memcpy(core->answer_bytes, from->bytes, from->size_bytes);
        throttle_put(request, core->answer_bytes, from->size_bytes);
        struct piece_source copy = {.bytes = core->answer_bytes, .size_bytes = from->size_bytes};
        answer_run(core, request, &copy);
        return;
    }
    if (answer_keep(core, request, from) < 0) {
        mill_conn_abort(core, request->conn);
        return;
    }
    throttle_put(request, mill_extent_data(core->extents, request->answer.linear.extent),
                 from->size_bytes);
    mill_answer_continue(core, request);
}

void mill_answer_bytes(struct mill_core *core, struct mill_request *request,
                       const struct mill_cursor *bytes)
{
    struct mill_cursor at = *bytes;
    const uint8_t *run = mill_cursor_contiguous(&at, at.left_bytes);
    MILL_ASSERT(run != NULL); /* control's answers lie in one run of ring or scratch */
    request->done_ns = core->now.mono_ns;
    struct piece_source from = {.bytes = run, .size_bytes = at.left_bytes};
    if (MILL_UNLIKELY(core->quotas_on)) {
        mill_quota_charge(core, request, 0);
        if (request->throttle_ms > 0) {
            answer_bytes_throttled(core, request, &from);
            return;
        }
    }
    answer_run(core, request, &from);
}

/* --- encoding -------------------------------------------------------------------------------- */

static int encode(struct mill_core *core, struct mill_request *request, mill_answer_fill fill,
                  void *context, void *bytes, uint32_t capacity, struct mill_writer *writer)
{
    mill_writer_init(writer, bytes, capacity, core->holes, MILL_WIRE_HOLES_MAX);
    mill_response_begin(writer, request->header.api_key, request->header.api_version,
                        request->header.correlation_id);
    int r = fill(writer, request, context);
    if (r < 0) {
        return r;
    }
    int64_t size = mill_response_finish(writer);
    return size < 0 ? (int)size : 0;
}

/* Encodes into scratch extents of rising size. ret: 0 with the extent, -ENOSPC. */
static int encode_large(struct mill_core *core, struct mill_request *request, mill_answer_fill fill,
                        void *context, struct mill_writer *writer, uint32_t *ret_extent)
{
    int r = -ENOSPC;
    for (uint32_t size = LARGE_FIRST_BYTES; r == -ENOSPC; size *= 4) {
        uint32_t extent;
        if (mill_log_scratch(core->log, size, &extent) < 0) {
            return -ENOSPC;
        }
        r = encode(core, request, fill, context, mill_extent_data(core->extents, extent), size,
                   writer);
        if (r == 0) {
            *ret_extent = extent;
            return 0;
        }
        mill_extent_free(core->extents, extent);
    }
    return r;
}

/* An answer with its wait at the front is charged when it is made, so that its bytes are known; one
 * that says it elsewhere before. */
static bool is_charged_after(const struct mill_request *request)
{
    return mill_response_throttle_at(request->header.api_key, request->header.api_version) > 0;
}

void mill_answer_send(struct mill_core *core, struct mill_request *request, mill_answer_fill fill,
                      void *context)
{
    struct mill_writer writer;
    uint32_t extent = 0;
    request->done_ns = request->done_ns > 0 ? request->done_ns : core->now.mono_ns;
    if (MILL_UNLIKELY(core->quotas_on) && !is_charged_after(request)) {
        mill_quota_charge(core, request, 0);
    }
    int r = encode(core, request, fill, context, core->answer_bytes, MILL_ANSWER_BYTES, &writer);
    if (r == -ENOSPC) {
        r = encode_large(core, request, fill, context, &writer, &extent);
    }
    if (r < 0) {
        mill_conn_abort(core, request->conn);
        return;
    }
    if (MILL_UNLIKELY(core->quotas_on) && is_charged_after(request)) {
        mill_quota_charge(core, request, (uint64_t)writer.size_bytes + writer.hole_bytes);
        throttle_put(request, writer.bytes, writer.size_bytes);
    }
    struct piece_source from = {
        .bytes = writer.bytes,
        .size_bytes = writer.size_bytes,
        .holes = core->holes,
        .holes_count = writer.holes_count,
    };
    if (extent && writer.holes_count == 0) {
        request->answer.linear =
            (struct mill_ref){.extent = extent, .size_bytes = writer.size_bytes};
    } else if (extent) {
        /* Holes have to be kept too, behind the bytes. */
        r = answer_keep(core, request, &from);
        mill_extent_free(core->extents, extent);
        if (r < 0) {
            mill_conn_abort(core, request->conn);
            return;
        }
        mill_answer_continue(core, request);
        return;
    }
    answer_run(core, request, &from);
}
