/* SPDX-License-Identifier: Apache-2.0 */
/* Control's stream; see control_stream.h. Parts are copied out of the ring into a few buffers, so
 * that a request that waits holds no ring; what is sent is copied into the ring at once, or, when
 * the ring has no room, waits as references with their loans.
 *
 *   control --stream_in--> [buffer x8] --> stream->rx --> core
 *   control <--stream_out-- [reference x16] <-- send_ref, send_bytes
 */
#include "dataplane/core/control_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFERS = 8,
    REFS_MAX = 16,
    PARTS_PER_STEP = 16,
    RETRY_NS = 1000000,
};

struct part_buffer {
    struct mill_buf buf;
    struct part_buffer *next_free;
    struct mill_control_stream *maker;
    uint8_t bytes[MILL_STREAM_PART_BYTES];
};

struct mill_control_stream {
    struct mill_stream_maker base; /* first */
    struct mill_stream stream;
    struct mill_ring in;
    struct mill_ring out;
    struct mill_bell *bell; /* control's */
    uint64_t incarnation;
    uint64_t stream_id; /* of the open stream, or of the last; 0 none yet */
    uint64_t rx_pos_bytes;
    uint64_t tx_pos_bytes;
    uint64_t acked_untold_bytes;
    uint64_t now_ns;
    bool open;
    bool closing;
    bool aborted;
    bool paused;
    bool want_room;
    bool end_untold; /* an END message found no room */
    bool unpublished;
    uint32_t refs_count;
    uint32_t ref_done_bytes; /* of refs[0] */
    struct mill_ref refs[REFS_MAX];
    struct part_buffer *free;
    struct part_buffer buffers[BUFFERS];
};

static struct mill_control_stream *maker_of(const struct mill_stream *stream)
{
    return (struct mill_control_stream *)(void *)stream->maker;
}

static void buffer_free(struct mill_buf *buf)
{
    struct part_buffer *buffer = buf->owner;
    buffer->next_free = buffer->maker->free;
    buffer->maker->free = buffer;
}

/* --- sending --------------------------------------------------------------------------------- */

/* Room for one part, at most wanted_bytes of payload. ret: 0 when the ring has none worth it. */
static uint32_t part_room(struct mill_control_stream *maker, uint32_t wanted_bytes)
{
    uint32_t size = MILL_MIN(wanted_bytes, (uint32_t)MILL_STREAM_PART_BYTES);
    return mill_ring_fits(&maker->out, (uint32_t)sizeof(struct mill_stream_part) + size) ? size : 0;
}

static void part_put(struct mill_control_stream *maker, const uint8_t *bytes, uint32_t size_bytes)
{
    struct mill_stream_part head = {
        .core_incarnation = maker->incarnation,
        .stream_id = maker->stream_id,
        .pos_bytes = maker->tx_pos_bytes,
        .size_bytes = size_bytes,
    };
    uint8_t *message =
        mill_ring_claim(&maker->out, MILL_STREAM_PART, (uint32_t)sizeof(head) + size_bytes);
    MILL_ASSERT(message != NULL); /* part_room said so */
    memcpy(message, &head, sizeof(head));
    memcpy(message + sizeof(head), bytes, size_bytes);
    maker->tx_pos_bytes += size_bytes;
    maker->acked_untold_bytes += size_bytes;
    maker->unpublished = true;
}

/* Moves queued references into the ring as far as it has room. */
static uint32_t refs_run(struct mill_control_stream *maker)
{
    uint32_t work = 0;
    while (maker->refs_count > 0) {
        struct mill_ref *ref = &maker->refs[0];
        uint32_t size = part_room(maker, ref->size_bytes - maker->ref_done_bytes);
        if (size == 0) {
            break;
        }
        part_put(maker, mill_ref_data(maker->base.arena_base, ref) + maker->ref_done_bytes, size);
        maker->ref_done_bytes += size;
        work++;
        if (maker->ref_done_bytes == ref->size_bytes) {
            mill_loan_give(maker->base.loans, ref);
            maker->ref_done_bytes = 0;
            maker->refs_count--;
            memmove(&maker->refs[0], &maker->refs[1], maker->refs_count * sizeof(*ref));
        }
    }
    return work;
}

static void refs_drop(struct mill_control_stream *maker)
{
    for (uint32_t i = 0; i < maker->refs_count; i++) {
        mill_loan_give(maker->base.loans, &maker->refs[i]);
    }
    maker->refs_count = 0;
    maker->ref_done_bytes = 0;
}

static int send_ref(struct mill_stream *stream, const struct mill_ref *ref)
{
    struct mill_control_stream *maker = maker_of(stream);
    if (maker->aborted || maker->closing) {
        return -EPIPE;
    }
    if (maker->refs_count == REFS_MAX) {
        maker->want_room = true;
        return -EAGAIN;
    }
    mill_loan_take(maker->base.loans, ref);
    maker->refs[maker->refs_count++] = *ref;
    maker->base.stats.bytes_sent_refs += ref->size_bytes;
    refs_run(maker);
    return 0;
}

static int send_bytes(struct mill_stream *stream, const void *bytes, uint32_t size_bytes)
{
    struct mill_control_stream *maker = maker_of(stream);
    if (maker->aborted || maker->closing) {
        return -EPIPE;
    }
    if (maker->refs_count > 0 || part_room(maker, size_bytes) < size_bytes) {
        maker->want_room = true;
        return -EAGAIN;
    }
    part_put(maker, bytes, size_bytes);
    maker->base.stats.bytes_sent_small += size_bytes;
    return 0;
}

static void room(const struct mill_stream *stream, uint32_t *ret_refs, uint32_t *ret_bytes)
{
    struct mill_control_stream *maker = maker_of(stream);
    *ret_refs = REFS_MAX - maker->refs_count;
    *ret_bytes = maker->refs_count > 0 ? 0 : part_room(maker, MILL_STREAM_BYTES_MAX);
}

static void push(struct mill_stream *stream)
{
    MILL_UNUSED(stream); /* the step publishes and rings once */
}

static void consume(struct mill_stream *stream, uint32_t size_bytes)
{
    mill_chain_consume(&stream->rx, size_bytes);
}

static void pause_reading(struct mill_stream *stream, bool paused)
{
    maker_of(stream)->paused = paused;
}

static void close_stream(struct mill_stream *stream)
{
    maker_of(stream)->closing = true;
}

static void abort_stream(struct mill_stream *stream)
{
    maker_of(stream)->aborted = true;
}

/* What the ring holds counts as taken, as the kernel's socket buffer does. */
static uint64_t unacked_bytes(const struct mill_stream *stream)
{
    const struct mill_control_stream *maker = maker_of(stream);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < maker->refs_count; i++) {
        sum += maker->refs[i].size_bytes;
    }
    return sum - maker->ref_done_bytes;
}

static const struct mill_stream_ops stream_ops = {
    .send_ref = send_ref,
    .send_bytes = send_bytes,
    .room = room,
    .push = push,
    .consume = consume,
    .pause = pause_reading,
    .close = close_stream,
    .abort = abort_stream,
    .unacked_bytes = unacked_bytes,
};

/* --- the life of a stream ------------------------------------------------------------------- */

static void end_tell(struct mill_control_stream *maker)
{
    struct mill_stream_part end = {.core_incarnation = maker->incarnation,
                                   .stream_id = maker->stream_id};
    maker->end_untold = !mill_ring_fits(&maker->out, sizeof(end));
    if (!maker->end_untold) {
        memcpy(mill_ring_claim(&maker->out, MILL_STREAM_END, sizeof(end)), &end, sizeof(end));
        maker->unpublished = true;
    }
}

static void stream_end(struct mill_control_stream *maker, enum mill_stream_end why)
{
    maker->open = false;
    refs_drop(maker);
    maker->base.stats.connections--;
    maker->base.events->closed(maker->base.context, &maker->stream, why);
    mill_chain_clear(&maker->stream.rx); /* unless a request kept it: then it is empty */
}

static void stream_begin(struct mill_control_stream *maker, uint64_t stream_id)
{
    if (maker->open) {
        stream_end(maker, MILL_END_RESET); /* another control, or one that gave up waiting */
    }
    maker->stream_id = stream_id;
    maker->rx_pos_bytes = 0;
    maker->tx_pos_bytes = 0;
    maker->acked_untold_bytes = 0;
    maker->closing = false;
    maker->aborted = false;
    maker->paused = false;
    maker->want_room = false;
    maker->end_untold = false;
    maker->stream = (struct mill_stream){
        .ops = &stream_ops,
        .maker = &maker->base,
        .listener = MILL_LISTENER_CONTROL,
        .rx_bytes_max = BUFFERS * MILL_STREAM_PART_BYTES,
    };
    if (maker->base.events->accepted(maker->base.context, &maker->stream) < 0) {
        maker->base.stats.refused++;
        end_tell(maker);
        return;
    }
    maker->base.stats.accepted++;
    maker->base.stats.connections++;
    maker->open = true;
}

/* Takes one part off the ring; the caller releases. */
static void part_take(struct mill_control_stream *maker, const uint8_t *message,
                      uint32_t message_bytes)
{
    struct mill_stream_part head;
    if (message_bytes < sizeof(head)) {
        return;
    }
    memcpy(&head, message, sizeof(head));
#ifndef MILL_MUTANT_CORE_STREAM_STALE
    if (head.core_incarnation != maker->incarnation) {
        return; /* meant for the process before this one */
    }
#endif
    if (head.size_bytes == 0 || head.size_bytes > MILL_STREAM_PART_BYTES ||
        head.size_bytes > message_bytes - sizeof(head) || head.stream_id == 0) {
        return;
    }
    if (head.stream_id != maker->stream_id) {
        if (head.pos_bytes != 0) {
            return; /* the middle of something whose beginning is gone */
        }
        stream_begin(maker, head.stream_id);
    }
    if (!maker->open || maker->closing || maker->aborted) {
        return;
    }
    if (head.pos_bytes != maker->rx_pos_bytes) {
        maker->aborted = true;
        return;
    }
    struct part_buffer *buffer = maker->free;
    maker->free = buffer->next_free;
    memcpy(buffer->bytes, message + sizeof(head), head.size_bytes);
    buffer->buf = (struct mill_buf){
        .data = buffer->bytes,
        .size_bytes = head.size_bytes,
        .charge_bytes = MILL_STREAM_PART_BYTES,
        .free = buffer_free,
        .owner = buffer,
    };
    mill_chain_append(&maker->stream.rx, &buffer->buf);
    maker->rx_pos_bytes += head.size_bytes;
    maker->base.stats.bytes_received += head.size_bytes;
    maker->base.events->received(maker->base.context, &maker->stream);
}

static uint32_t parts_run(struct mill_control_stream *maker)
{
    uint32_t work = 0;
    /* Without a free buffer the parts stay in the ring, and control waits. */
    while (work < PARTS_PER_STEP && maker->free && !(maker->open && maker->paused)) {
        uint32_t kind = 0;
        uint32_t size = 0;
        const void *message = mill_ring_next(&maker->in, &kind, &size);
        if (!message) {
            break;
        }
        if (kind == MILL_STREAM_PART) {
            part_take(maker, message, size);
        }
        mill_ring_release(&maker->in);
        work++;
    }
    return work;
}

static uint32_t stream_run(struct mill_control_stream *maker)
{
    const struct mill_stream_events *events = maker->base.events;
    uint32_t work = 0;
    if (maker->aborted || (maker->closing && maker->refs_count == 0)) {
        enum mill_stream_end why = maker->aborted ? MILL_END_ABORTED : MILL_END_CLOSED;
        stream_end(maker, why);
        end_tell(maker);
        return 1;
    }
    if (maker->acked_untold_bytes > 0) {
        uint64_t acked = maker->acked_untold_bytes;
        maker->acked_untold_bytes = 0;
        events->acked(maker->base.context, &maker->stream, acked);
        work++;
    }
    if (maker->want_room && maker->refs_count < REFS_MAX / 2 &&
        (maker->refs_count > 0 || part_room(maker, MILL_STREAM_BYTES_MAX) > 0)) {
        maker->want_room = false;
        events->room(maker->base.context, &maker->stream);
        work++;
    }
    return work;
}

static uint32_t step(struct mill_stream_maker *base, uint64_t now_ns)
{
    struct mill_control_stream *maker = (struct mill_control_stream *)(void *)base;
    maker->now_ns = now_ns;
    uint32_t work = 0;
    if (maker->end_untold) {
        end_tell(maker);
    }
    work += parts_run(maker);
    if (maker->open) {
        work += refs_run(maker);
        work += stream_run(maker);
    }
    if (maker->unpublished) {
        maker->unpublished = false;
        mill_ring_publish(&maker->out);
        mill_bell_ring(maker->bell);
        work++;
    }
    return work;
}

/* Control rings no bell when it has read: a full ring is looked at again by time. */
static uint64_t deadline(const struct mill_stream_maker *base)
{
    const struct mill_control_stream *maker =
        (const struct mill_control_stream *)(const void *)base;
    bool pending =
        maker->unpublished || (maker->open && (maker->acked_untold_bytes > 0 || maker->aborted ||
                                               (maker->closing && maker->refs_count == 0)));
    bool waiting = maker->refs_count > 0 || maker->want_room || maker->end_untold;
    return pending ? maker->now_ns : waiting ? maker->now_ns + RETRY_NS : MILL_NEVER;
}

static void destroy(struct mill_stream_maker *base)
{
    struct mill_control_stream *maker = (struct mill_control_stream *)(void *)base;
    refs_drop(maker);
    mill_chain_clear(&maker->stream.rx);
    free(maker);
}

static const struct mill_stream_maker_ops maker_ops = {
    .step = step,
    .deadline = deadline,
    .destroy = destroy,
};

/* --- making ---------------------------------------------------------------------------------- */

int mill_control_stream_create(struct mill_ipc_segment *ipc, struct mill_ipc_core *core,
                               uint64_t incarnation, struct mill_bell *bell,
                               struct mill_loans *loans, uint8_t *arena_base,
                               const struct mill_stream_events *events, void *context,
                               struct mill_control_stream **ret_maker)
{
    struct mill_control_stream *maker = calloc(1, sizeof(*maker));
    if (!maker) {
        return -ENOMEM;
    }
    int rc =
        mill_ring_attach_consumer(&maker->in, mill_ipc_at(ipc, core->stream_in), ipc->size_bytes);
    if (rc == 0) {
        rc = mill_ring_attach_producer(&maker->out, mill_ipc_at(ipc, core->stream_out),
                                       ipc->size_bytes);
    }
    if (rc < 0) {
        free(maker);
        return rc;
    }
    maker->base = (struct mill_stream_maker){.ops = &maker_ops,
                                             .events = events,
                                             .context = context,
                                             .loans = loans,
                                             .arena_base = arena_base};
    maker->incarnation = incarnation;
    maker->bell = bell;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        maker->buffers[i].maker = maker;
        maker->buffers[i].next_free = maker->free;
        maker->free = &maker->buffers[i];
    }
    *ret_maker = maker;
    return 0;
}

struct mill_stream_maker *mill_control_stream_maker(struct mill_control_stream *maker)
{
    return &maker->base;
}

uint64_t mill_control_stream_bytes(void)
{
    return sizeof(struct mill_control_stream);
}
