/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on partitions of this core, for its own requests and for those of other cores. An op
 * ends in mill_op_done, at once or after a watch, a retry or a sync. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

/* What waits for a sync is counted here, on the owner. */
static void flush_leave(struct mill_core *core, const struct mill_op *op)
{
#ifdef MILL_MUTANT_CORE_SYNC_WAITS_KEPT
    return;
#endif
    core->words.waiting_syncs -= op->state == MILL_OP_FLUSH;
}

void mill_op_cancel(struct mill_core *core, struct mill_op *op)
{
#ifndef MILL_MUTANT_CORE_PARKED_FORGOTTEN
    mill_log_abandon(core->log, &op->watch);
#endif
    flush_leave(core, op);
    switch ((enum mill_op_state)op->state) {
    case MILL_OP_WAITING:
    case MILL_OP_FLUSH:
        mill_log_unwatch(&op->watch);
        break;
    case MILL_OP_RETRY:
    case MILL_OP_FIRED:
    case MILL_OP_ASKED:
        mill_list_remove(&op->node);
        mill_op_producers_drop(core, op);
        break;
    case MILL_OP_REMOTE:
        mill_peer_cancel(core, op);
        break;
    case MILL_OP_IDLE:
        break;
    }
    op->state = MILL_OP_IDLE;
}

void mill_op_late(struct mill_core *core, struct mill_op *op)
{
    op->late = true;
    if (op->state == MILL_OP_FLUSH) {
        mill_log_unwatch(&op->watch);
        op->error = MILL_KERR_REQUEST_TIMED_OUT;
        mill_op_done(core, op);
    } else if (op->state == MILL_OP_REMOTE) {
        mill_peer_cancel(core, op); /* the owner knows how far it is */
    }
}

void mill_op_done(struct mill_core *core, struct mill_op *op)
{
    flush_leave(core, op);
    op->state = MILL_OP_IDLE;
    if (op->origin == core->index) {
        mill_request_op_done(core, op->request, op);
    } else {
        mill_peer_answer(core, op);
    }
}

static void fail(struct mill_core *core, struct mill_op *op, enum mill_kerr error)
{
    mill_log_abandon(core->log, &op->watch);
    mill_op_producers_drop(core, op);
    op->error = (int16_t)error;
    mill_op_done(core, op);
}

/* What a call of the log said: 0 result is there, else where the op waits. ret: true when done. */
static bool settled(struct mill_core *core, struct mill_op *op, int r)
{
    if (r == -EAGAIN) {
        op->state = MILL_OP_RETRY;
        mill_list_add(&core->retry, &op->node);
        return false;
    }
    if (r == -EINPROGRESS) {
        op->state = MILL_OP_WAITING;
        return false;
    }
    MILL_ASSERT_EQ(r, 0);
    return true;
}

/* What became of an append: the op is done, or waits for the sync. */
static void append_end(struct mill_core *core, struct mill_op *op, struct mill_partition *partition,
                       const struct mill_append_result *result)
{
    op->error = (int16_t)result->error;
    op->base_offset = result->base_offset;
    op->timestamp = result->append_time_ms;
    op->start_offset = result->start_offset;
    op->duplicate = result->duplicate;
    op->unvouched = result->unvouched;
    op->bad_record = result->bad_record;
    op->bytes = result->bytes_copied;
    op->message[0] = '\0';
    if (MILL_UNLIKELY(result->message[0] != '\0')) {
        static_assert((int)MILL_OP_MESSAGE_BYTES <= (int)MILL_LOG_MESSAGE_BYTES,
                      "a message is cut, not grown");
        memcpy(op->message, result->message, MILL_OP_MESSAGE_BYTES);
        op->message[MILL_OP_MESSAGE_BYTES - 1] = '\0';
    }
    bool flush = result->error == MILL_KERR_NONE && result->must_flush && op->acks != 0;
    if (flush && op->late) {
        op->error = MILL_KERR_REQUEST_TIMED_OUT; /* it stays in the log */
    } else if (flush) {
        op->state = MILL_OP_FLUSH;
        core->words.waiting_syncs++;
        op->end_offset = result->end_offset;
        mill_log_watch_flush(partition, &op->watch, result->end_offset);
        return;
    }
    mill_op_done(core, op);
}

static void op_append(struct mill_core *core, struct mill_op *op, struct mill_partition *partition)
{
    struct mill_append append = {
        .records = op->records,
        .size_bytes = op->size_bytes,
        .api_version = op->api_version,
        .acks = op->acks,
        .transactional_id = op->transactional,
        .internal_client = op->internal,
        .grants_late = !core->grants_told,
    };
    struct mill_append_result result;
    if (!settled(core, op, mill_log_append(partition, &append, core->now, &op->watch, &result))) {
        return;
    }
    append_end(core, op, partition, &result);
}

static void op_marker(struct mill_core *core, struct mill_op *op, struct mill_partition *partition)
{
    struct mill_append_result result;
    int r = mill_log_append_marker(partition, &op->marker, core->now, &result);
    if (settled(core, op, r)) {
        append_end(core, op, partition, &result);
    }
}

static void op_grant(struct mill_core *core, struct mill_op *op, struct mill_partition *partition)
{
    op->error =
        (int16_t)mill_log_grant(partition, op->marker.producer_id, op->marker.producer_epoch);
    mill_op_done(core, op);
}

void mill_op_list_drop(struct mill_core *core, struct mill_op *op)
{
    if (op->list.size_bytes > 0) {
        mill_loan_give(core->loans, &op->list);
        op->list.size_bytes = 0;
    }
}

/* References of a read end in the request; each holds a loan of this core from here on. */
static void refs_keep(struct mill_core *core, struct mill_op *op,
                      const struct mill_read_result *result)
{
    struct mill_request *request = op->request;
    op->refs_first = request->refs_count;
    op->refs_count = (uint16_t)result->refs_count;
    for (uint32_t i = 0; i < result->refs_count; i++) {
        request->refs[request->refs_count++] = result->refs[i];
        mill_loan_take(core->loans, &result->refs[i]);
    }
    if (result->aborted.size_bytes > 0) {
        op->list = result->aborted;
        mill_loan_take(core->loans, &op->list);
        mill_scratch_retire(core, op->list.extent); /* it goes with this loan */
    }
}

static void op_read(struct mill_core *core, struct mill_op *op, struct mill_partition *partition)
{
    bool own = op->origin == core->index;
    uint32_t room = own ? (uint32_t)(MILL_LOG_REFS_MAX - op->request->refs_count)
                        : (uint32_t)MILL_PEER_REFS_MAX;
    struct mill_read read = {
        .offset = op->offset,
        .bytes_max = op->size_bytes,
        .first_whole = op->first_whole,
        .current_epoch = op->current_epoch,
        .last_epoch = op->last_epoch,
        .refs_max = MILL_MIN(room, (uint32_t)op->refs_max),
        .committed = op->committed,
    };
    struct mill_read_result *result = core->read_result;
    int r = mill_log_read(partition, &read, &op->watch, result);
#ifndef MILL_MUTANT_CORE_READ_WAITS
    if (r == -EAGAIN && !op->alone) {
        /* What its request reads beside it may be what keeps the memory: it is answered with that,
         * and this partition has its turn in the next one. */
        result->bytes = 0;
        result->refs_count = 0;
        r = 0;
    }
#endif
    if (!settled(core, op, r)) {
        return;
    }
    op->error = (int16_t)result->error;
    op->high_watermark = result->high_watermark;
    op->stable_offset = result->stable_offset;
    op->start_offset = result->start_offset;
    op->diverging_epoch = result->diverging_epoch;
    op->diverging_end = result->diverging_end;
    op->bytes = result->bytes;
    op->refs_count = 0;
    if (own) {
        refs_keep(core, op, result);
    } else {
        op->refs_count = (uint16_t)result->refs_count; /* peer.c sends them from read_result */
        op->list = result->aborted;
    }
    mill_op_done(core, op);
}

static void op_time(struct mill_core *core, struct mill_op *op, struct mill_partition *partition)
{
    struct mill_time_result result;
    if (!settled(core, op,
                 mill_log_find_time(partition, op->offset, op->committed, &op->watch, &result))) {
        return;
    }
    op->error = (int16_t)result.error;
    op->base_offset = result.offset;
    op->timestamp = result.timestamp;
    op->epoch = result.leader_epoch;
    mill_op_done(core, op);
}

static void op_offsets(struct mill_core *core, struct mill_op *op, struct mill_partition *partition)
{
    op->start_offset = mill_partition_start(partition);
    op->high_watermark = mill_partition_high_watermark(partition);
    op->stable_offset = mill_partition_stable(partition);
    op->end_offset = mill_partition_end(partition);
    /* Of the batch that holds the offset asked for; none holds the end. */
    int64_t start = op->start_offset;
    op->epoch = op->offset == -1 || start == op->end_offset ? mill_partition_epoch(partition)
                                                            : mill_log_epoch_at(partition, start);
    mill_op_done(core, op);
}

static void op_trim(struct mill_core *core, struct mill_op *op, struct mill_partition *partition)
{
    int r = mill_log_trim(partition, op->offset, &op->watch);
    if (r == -ERANGE || r == -EIO) {
        fail(core, op, r == -EIO ? MILL_KERR_KAFKA_STORAGE_ERROR : MILL_KERR_OFFSET_OUT_OF_RANGE);
        return;
    }
    if (settled(core, op, r)) {
        op->start_offset = mill_partition_start(partition);
        mill_op_done(core, op);
    }
}

/* A client's view of our epoch, checked the same way for every API that carries one (KIP-320). */
static enum mill_kerr epoch_check(const struct mill_op *op, const struct mill_partition *partition)
{
    int32_t ours = mill_partition_epoch(partition);
    if (op->current_epoch < 0 || op->current_epoch == ours) {
        return MILL_KERR_NONE;
    }
    return op->current_epoch < ours ? MILL_KERR_FENCED_LEADER_EPOCH
                                    : MILL_KERR_UNKNOWN_LEADER_EPOCH;
}

void mill_op_run(struct mill_core *core, struct mill_op *op)
{
    struct mill_partition *partition = mill_log_find(core->log, &op->topic_id, op->partition);
    op->state = MILL_OP_IDLE;
    op->watch.user = op;
    op->error = MILL_KERR_NONE;
    op->bytes = 0;
    op->unvouched = false;
    op->refs_count = 0; /* of an earlier try whose result found no room */
    op->list.size_bytes = 0;
    if (!partition) {
        fail(core, op, MILL_KERR_NOT_LEADER_OR_FOLLOWER);
        return;
    }
    enum mill_log_state state = mill_partition_state_of(partition);
    if (state == MILL_LOG_OPENING || state == MILL_LOG_DELETING) {
        fail(core, op, MILL_KERR_NOT_LEADER_OR_FOLLOWER);
        return;
    }
    if (state == MILL_LOG_FAILED && !mill_partition_loaded(partition)) {
        /* Offsets that are not known are no reason for a client to reset its position. */
        fail(core, op, MILL_KERR_KAFKA_STORAGE_ERROR);
        return;
    }
    enum mill_kerr error = epoch_check(op, partition);
    if (error != MILL_KERR_NONE) {
        fail(core, op, error);
        return;
    }
    switch ((enum mill_op_kind)op->kind) {
    case MILL_OP_APPEND:
        op_append(core, op, partition);
        break;
    case MILL_OP_READ:
        op_read(core, op, partition);
        break;
    case MILL_OP_WATCH:
        op->state = MILL_OP_WAITING;
        op->watch.committed = op->committed;
#ifdef MILL_MUTANT_CORE_TXN_WATCH_ALL
        op->watch.committed = false;
#endif
        mill_log_watch_data(partition, &op->watch, op->offset, op->size_bytes);
        break;
    case MILL_OP_TIME:
        op_time(core, op, partition);
        break;
    case MILL_OP_OFFSETS:
        op_offsets(core, op, partition);
        break;
    case MILL_OP_EPOCH_END:
        mill_log_epoch_end(partition, (int32_t)op->offset, &op->epoch, &op->base_offset);
        mill_op_done(core, op);
        break;
    case MILL_OP_TRIM:
        op_trim(core, op, partition);
        break;
    case MILL_OP_MARKER:
        op_marker(core, op, partition);
        break;
    case MILL_OP_GRANT:
        op_grant(core, op, partition);
        break;
    case MILL_OP_PRODUCERS:
        mill_op_producers(core, op, partition);
        break;
    }
}

void mill_op_watch_fired(struct mill_core *core, struct mill_log_watch *watch)
{
    struct mill_op *op = watch->user;
    op->changed = watch->reason == MILL_WATCH_CHANGED;
    if (op->state == MILL_OP_FLUSH && op->changed) {
        /* Appended, and perhaps never synced: nothing may be acknowledged (design 6). */
        op->error = MILL_KERR_KAFKA_STORAGE_ERROR;
    }
    /* The log may be in the middle of an append: go on later in this turn. */
    if (op->state == MILL_OP_WAITING && op->kind != MILL_OP_WATCH) {
        op->state = MILL_OP_RETRY;
        mill_list_add(&core->retry, &op->node);
        return;
    }
    flush_leave(core, op);
    op->state = MILL_OP_FIRED;
    mill_list_add(&core->fired, &op->node);
}

uint32_t mill_op_run_retries(struct mill_core *core)
{
    uint32_t work = 0;
    for (; work < MILL_FIRED_PER_TURN && !mill_list_empty(&core->fired); work++) {
        struct mill_op *op = MILL_CONTAINER_OF(core->fired.next, struct mill_op, node);
        mill_list_remove(&op->node);
        mill_op_done(core, op);
    }
    const struct mill_node *last = core->retry.prev;
    for (uint32_t i = 0; i < MILL_RETRIES_PER_TURN && !mill_list_empty(&core->retry); i++) {
        struct mill_node *node = core->retry.next;
        mill_list_remove(node);
        mill_op_run(core, MILL_CONTAINER_OF(node, struct mill_op, node));
        /* The op may be gone. One that still has no memory stands at the end again. */
        bool going = core->retry.prev != node;
#ifndef MILL_MUTANT_CORE_PRODUCERS_SLEEP
        going = going || MILL_CONTAINER_OF(node, struct mill_op, node)->kind == MILL_OP_PRODUCERS;
#endif
        work += going;
        if (node == last) {
            break;
        }
    }
    return work;
}
