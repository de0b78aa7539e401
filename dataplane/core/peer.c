/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-over between the cores of one process: operations travel to the partition's owner, results
 * and references come back, loans return in batches. Record bytes stay where they are: the owner
 * reads them in the asking core's receive buffers, the asker sends from the owner's extents.
 *
 *   asker:  op REMOTE --ASK--> owner: peer op --> log --> RESULT (references with loans) --> asker
 *   asker:  last use of a borrowed extent ended --LOANS--> owner
 */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

enum peer_kind {
    PEER_ASK = 1,
    PEER_CANCEL = 2,
    PEER_RESULT = 3,
    PEER_LOANS = 4,
};

enum {
    LOANS_PER_MESSAGE = 64,
};

/* Who asked. round tells a result of a cancelled op from that of the same op begun again. */
struct peer_name {
    uint32_t request_index;
    uint32_t request_generation;
    uint32_t op_index;
    uint32_t round;
};

struct peer_ask {
    struct peer_name name;
    uint8_t kind;
    bool transactional;
    bool internal;
    bool first_whole;
    bool alone;
    bool committed;
    bool late;
    uint8_t refs_max;
    int16_t api_version;
    int16_t acks;
    int32_t partition;
    struct mill_uuid topic_id;
    struct mill_cursor records;
    uint32_t size_bytes;
    int32_t current_epoch;
    int32_t last_epoch;
    int64_t offset;
    struct mill_marker_append marker;
};

struct peer_cancel {
    struct peer_name name;
};

struct peer_result {
    struct peer_name name;
    int16_t error;
    bool duplicate;
    bool unvouched;
    bool changed;
    int64_t base_offset;
    int64_t timestamp;
    int64_t start_offset;
    int64_t high_watermark;
    int64_t stable_offset;
    int64_t end_offset;
    struct mill_ref list;
    int64_t diverging_end;
    int32_t diverging_epoch;
    int32_t epoch;
    uint32_t bytes;
    int32_t bad_record;
    uint32_t refs_count;
    struct mill_ref refs[MILL_PEER_REFS_MAX];
    char message[MILL_OP_MESSAGE_BYTES];
};

struct peer_loans {
    uint32_t count;
    struct mill_loan_return returns[LOANS_PER_MESSAGE];
};

/* Asks that a core may have at one owner. */
static uint32_t asks_max(const struct mill_core *core)
{
    return core->limits.peer_ops_max / core->count;
}

static struct peer_name name_of(const struct mill_op *op)
{
    return (struct peer_name){
        .request_index = op->request_index,
        .request_generation = op->request_generation,
        .op_index = op->op_index,
        .round = op->round,
    };
}

/* Room for a message that must leave every ask out there a place for its cancel: one that found
 * none would leave a watch at the owner for as long as its partition is quiet. ret: NULL: full. */
static void *claim(struct mill_core *core, uint32_t to, uint32_t kind, uint32_t size_bytes)
{
    struct mill_ring *out = &core->peers[to].out;
    uint64_t cancels =
        (uint64_t)asks_max(core) * (sizeof(struct peer_cancel) + MILL_RING_HEADER_BYTES);
    if (mill_ring_room(out) < cancels + 2 * ((uint64_t)size_bytes + MILL_RING_HEADER_BYTES)) {
        return NULL;
    }
    return mill_ring_claim(out, kind, size_bytes);
}

/* --- the asking side ------------------------------------------------------------------------- */

/* Every ask gets exactly one result, so a core never has more asks at an owner than its share of
 * that owner's ops: the owner always has one free and never stops reading its rings. */
static bool ask_send(struct mill_core *core, struct mill_op *op)
{
    /* Watches stay there for as long as a fetch waits: they leave a quarter to what ends soon. */
    uint32_t most = asks_max(core);
    most -= op->kind == MILL_OP_WATCH ? most / 4 : 0;
    if (core->asks_out[op->owner] >= most) {
        return false;
    }
    struct peer_ask *ask = claim(core, op->owner, PEER_ASK, sizeof(*ask));
    if (!ask) {
        return false;
    }
    *ask = (struct peer_ask){
        .name = name_of(op),
        .kind = op->kind,
        .transactional = op->transactional,
        .internal = op->internal,
        .first_whole = op->first_whole,
        .alone = op->alone,
        .committed = op->committed,
        .late = op->late,
        .refs_max = op->refs_max,
        .api_version = op->api_version,
        .acks = op->acks,
        .partition = op->partition,
        .topic_id = op->topic_id,
        .records = op->records,
        .size_bytes = op->size_bytes,
        .current_epoch = op->current_epoch,
        .last_epoch = op->last_epoch,
        .offset = op->offset,
        .marker = op->marker,
    };
    op->state = MILL_OP_REMOTE;
    core->asks_out[op->owner]++;
    core->peer_touched[op->owner] = true;
    return true;
}

void mill_peer_ask(struct mill_core *core, struct mill_op *op)
{
    if (!ask_send(core, op)) {
        op->state = MILL_OP_ASKED;
        mill_list_add(&core->asked, &op->node);
    }
}

void mill_peer_cancel(struct mill_core *core, struct mill_op *op)
{
    struct mill_core_peer *peer = &core->peers[op->owner];
    struct peer_cancel *cancel = mill_ring_claim(&peer->out, PEER_CANCEL, sizeof(*cancel));
    if (!cancel) {
        return; /* the result will come and be dropped */
    }
    cancel->name = name_of(op);
    core->peer_touched[op->owner] = true;
}

static void result_take(struct mill_core *core, uint32_t owner, const struct peer_result *result)
{
    MILL_ASSERT(core->asks_out[owner] > 0);
    core->asks_out[owner]--;
    /* Loans first: they are ours whether or not the request is still there. */
    for (uint32_t i = 0; i < result->refs_count; i++) {
        mill_loan_borrow(core->loans, result->refs[i].extent);
        mill_loan_take(core->loans, &result->refs[i]);
    }
    if (result->list.size_bytes > 0) {
        mill_loan_borrow(core->loans, result->list.extent);
        mill_loan_take(core->loans, &result->list);
    }
    struct mill_request *request =
        mill_request_named(core, result->name.request_index, result->name.request_generation);
    struct mill_op *op = NULL;
    if (request && result->name.op_index < request->ops_count) {
        op = &request->ops[result->name.op_index];
    }
    uint32_t kept = 0;
    bool list_kept = result->list.size_bytes == 0;
    if (op && op->state == MILL_OP_REMOTE && op->round == result->name.round) {
        op->refs_first = request->refs_count;
        if (request->refs_count + result->refs_count <= MILL_LOG_REFS_MAX) {
            for (; kept < result->refs_count; kept++) {
                request->refs[request->refs_count++] = result->refs[kept];
            }
        }
        op->refs_count = (uint16_t)kept;
        if (kept == result->refs_count && result->list.size_bytes > 0) {
            op->list = result->list;
            list_kept = true;
        }
        op->bytes = kept == result->refs_count ? result->bytes : 0;
        op->error = result->error;
        op->duplicate = result->duplicate;
        op->unvouched = result->unvouched;
        op->changed = result->changed;
        op->base_offset = result->base_offset;
        op->timestamp = result->timestamp;
        op->start_offset = result->start_offset;
        op->high_watermark = result->high_watermark;
        op->stable_offset = result->stable_offset;
        op->end_offset = result->end_offset;
        op->diverging_end = result->diverging_end;
        op->diverging_epoch = result->diverging_epoch;
        op->epoch = result->epoch;
        op->bad_record = result->bad_record;
        memcpy(op->message, result->message, sizeof(op->message));
        mill_op_done(core, op);
    }
    for (uint32_t i = kept; i < result->refs_count; i++) {
        mill_loan_give(core->loans, &result->refs[i]);
    }
    if (!list_kept) {
        mill_loan_give(core->loans, &result->list);
    }
}

/* --- the owner's side ------------------------------------------------------------------------ */

static uint32_t bucket_of(const struct mill_core *core, uint32_t origin, uint32_t request_index,
                          uint32_t op_index)
{
    uint32_t hash = (request_index * 0x9e3779b1u) ^ (op_index * 0x85ebca6bu) ^ (origin << 27);
    return (hash ^ (hash >> 15)) & core->peer_ops_mask;
}

static void peer_op_link(struct mill_core *core, struct mill_op *op, uint32_t index)
{
    uint32_t *bucket =
        &core->peer_ops_buckets[bucket_of(core, op->origin, op->request_index, op->op_index)];
    op->hash_next = *bucket;
    *bucket = index + 1;
}

static void peer_op_free(struct mill_core *core, struct mill_op *op)
{
    uint32_t index = (uint32_t)(op - core->peer_ops);
    uint32_t *link =
        &core->peer_ops_buckets[bucket_of(core, op->origin, op->request_index, op->op_index)];
    while (*link != index + 1) {
        MILL_ASSERT(*link != 0);
        link = &core->peer_ops[*link - 1].hash_next;
    }
    *link = op->hash_next;
    core->peer_ops_free[core->peer_ops_free_count++] = index;
}

/* ret: false when the ring back is full. */
static bool result_send(struct mill_core *core, struct mill_op *op)
{
    struct peer_result *result = claim(core, op->origin, PEER_RESULT, sizeof(*result));
    if (!result) {
        return false;
    }
    *result = (struct peer_result){
        .name = name_of(op),
        .error = op->error,
        .duplicate = op->duplicate,
        .unvouched = op->unvouched,
        .changed = op->changed,
        .base_offset = op->base_offset,
        .timestamp = op->timestamp,
        .start_offset = op->start_offset,
        .high_watermark = op->high_watermark,
        .stable_offset = op->stable_offset,
        .list = op->list,
        .end_offset = op->end_offset,
        .diverging_end = op->diverging_end,
        .diverging_epoch = op->diverging_epoch,
        .epoch = op->epoch,
        .bytes = op->bytes,
        .bad_record = op->bad_record,
        .refs_count = op->kind == MILL_OP_READ ? op->refs_count : 0,
    };
    memcpy(result->message, op->message, sizeof(result->message));
    for (uint32_t i = 0; i < result->refs_count; i++) {
        result->refs[i] = core->read_result->refs[i];
        /* Counted before the reference leaves this core; its bytes are counted where they are used.
         */
        mill_loan_lend(core->loans, result->refs[i].extent);
    }
    if (result->list.size_bytes > 0) {
        mill_loan_lend(core->loans, result->list.extent);
        if (op->kind == MILL_OP_PRODUCERS) {
            mill_scratch_retire_producers(core, result->list.extent);
        } else {
            mill_scratch_retire(core, result->list.extent);
        }
    }
    core->peer_touched[op->origin] = true;
    return true;
}

void mill_peer_answer(struct mill_core *core, struct mill_op *op)
{
    if (result_send(core, op)) {
        peer_op_free(core, op);
        return;
    }
    if (op->kind == MILL_OP_READ || op->kind == MILL_OP_WATCH) {
        /* A read changes nothing: do it again when the ring has room. */
        if (op->list.size_bytes > 0) {
            mill_scratch_retire(core, op->list.extent);
            op->list.size_bytes = 0;
        }
        op->state = MILL_OP_RETRY;
        mill_list_add(&core->retry, &op->node);
        return;
    }
    op->state = MILL_OP_FIRED;
    mill_list_add(&core->fired, &op->node);
}

static void ask_take(struct mill_core *core, uint32_t origin, const struct peer_ask *ask)
{
    MILL_ASSERT(core->peer_ops_free_count > 0);
    uint32_t index = core->peer_ops_free[--core->peer_ops_free_count];
    struct mill_op *op = &core->peer_ops[index];
    *op = (struct mill_op){
        .kind = ask->kind,
        .owner = (uint8_t)core->index,
        .origin = (uint8_t)origin,
        .api_version = ask->api_version,
        .acks = ask->acks,
        .transactional = ask->transactional,
        .internal = ask->internal,
        .first_whole = ask->first_whole,
        .alone = ask->alone,
        .committed = ask->committed,
        .late = ask->late,
        .refs_max = ask->refs_max,
        .partition = ask->partition,
        .topic_id = ask->topic_id,
        .request_index = ask->name.request_index,
        .request_generation = ask->name.request_generation,
        .op_index = ask->name.op_index,
        .round = ask->name.round,
        .records = ask->records,
        .size_bytes = ask->size_bytes,
        .current_epoch = ask->current_epoch,
        .last_epoch = ask->last_epoch,
        .offset = ask->offset,
        .marker = ask->marker,
        .base_offset = -1,
        .timestamp = -1,
        .start_offset = -1,
        .high_watermark = -1,
        .stable_offset = -1,
        .epoch = -1,
        .diverging_epoch = -1,
        .bad_record = -1,
    };
    peer_op_link(core, op, index);
    mill_op_run(core, op);
}

static void cancel_take(struct mill_core *core, uint32_t origin, const struct peer_cancel *cancel)
{
    const struct peer_name *name = &cancel->name;
    uint32_t at =
        core->peer_ops_buckets[bucket_of(core, origin, name->request_index, name->op_index)];
    while (at != 0) {
        struct mill_op *op = &core->peer_ops[at - 1];
        at = op->hash_next;
        if (op->origin == origin && op->request_index == name->request_index &&
            op->request_generation == name->request_generation && op->round == name->round &&
            op->op_index == name->op_index) {
            if (op->kind == MILL_OP_APPEND || op->kind == MILL_OP_MARKER) {
                mill_op_late(core, op); /* its bytes are in use until it ends by itself */
                return;
            }
            mill_op_cancel(core, op);
            op->refs_count = 0;
            mill_op_done(core, op);
            return;
        }
    }
}

static void loans_take(struct mill_core *core, const struct peer_loans *loans)
{
#ifdef MILL_MUTANT_CORE_PEER_LOANS_LOST
    return;
#endif
    for (uint32_t i = 0; i < loans->count && i < LOANS_PER_MESSAGE; i++) {
        mill_loan_end(core->loans, &loans->returns[i]);
    }
}

/* --- both ------------------------------------------------------------------------------------ */

/* Sends back loans that ended; entries that find no room stay for the next turn. */
static uint32_t loans_send(struct mill_core *core)
{
    struct mill_loans *loans = core->loans;
    uint32_t sent = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < loans->returns_count; i++) {
        struct mill_loan_return back = loans->returns[i];
        uint32_t owner = mill_arena_owner(core->arena, back.extent);
        struct peer_loans *message = claim(core, owner, PEER_LOANS, sizeof(*message));
        if (!message) {
            loans->returns[kept++] = back;
            continue;
        }
        message->count = 0;
        message->returns[message->count++] = back;
        /* Neighbours in the list mostly go to the same owner. */
        while (i + 1 < loans->returns_count && message->count < LOANS_PER_MESSAGE &&
               mill_arena_owner(core->arena, loans->returns[i + 1].extent) == owner) {
            message->returns[message->count++] = loans->returns[++i];
        }
        sent += message->count;
        core->peer_touched[owner] = true;
    }
    loans->returns_count = kept;
    return sent;
}

static uint32_t asked_run(struct mill_core *core)
{
    uint32_t work = 0;
    const struct mill_node *last = core->asked.prev;
    for (uint32_t i = 0; i < MILL_RETRIES_PER_TURN && !mill_list_empty(&core->asked); i++) {
        struct mill_op *op = MILL_CONTAINER_OF(core->asked.next, struct mill_op, node);
        mill_list_remove(&op->node);
        if (ask_send(core, op)) {
            work++;
        } else {
            mill_list_add(&core->asked, &op->node); /* another owner's may go */
        }
        if (&op->node == last) {
            break;
        }
    }
    return work;
}

static uint32_t peer_serve(struct mill_core *core, uint32_t index)
{
    struct mill_core_peer *peer = &core->peers[index];
    uint32_t work = 0;
    while (work < MILL_PEER_MESSAGES_PER_TURN) {
        uint32_t kind;
        uint32_t size;
        const void *message = mill_ring_next(&peer->in, &kind, &size);
        if (!message) {
            break;
        }
        work++;
        switch ((enum peer_kind)kind) {
        case PEER_ASK:
            ask_take(core, index, message);
            break;
        case PEER_CANCEL:
            cancel_take(core, index, message);
            break;
        case PEER_RESULT:
            result_take(core, index, message);
            break;
        case PEER_LOANS:
            loans_take(core, message);
            break;
        }
    }
    if (work > 0) {
        mill_ring_release(&peer->in);
    }
    return work;
}

uint32_t mill_peer_run(struct mill_core *core)
{
    if (core->count <= 1) {
        return 0;
    }
    uint32_t work = 0;
    for (uint32_t i = 0; i < core->count; i++) {
        if (i != core->index) {
            work += peer_serve(core, i);
        }
    }
    work += asked_run(core);
    work += loans_send(core);
    for (uint32_t i = 0; i < core->count; i++) {
        if (core->peer_touched[i]) {
            core->peer_touched[i] = false;
            mill_ring_publish(&core->peers[i].out);
            mill_bell_ring(&core->peers[i].bell);
        }
    }
    return work;
}
