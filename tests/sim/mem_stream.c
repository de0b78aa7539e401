/* SPDX-License-Identifier: Apache-2.0 */
/* Streams in memory; see mem_stream.h. */
#include "tests/sim/mem_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    struct mill_ref ref; /* size 0: the small bytes below */
    uint32_t small_bytes;
    uint32_t done;
    uint8_t *small;
};

struct mem_peer {
    struct mill_stream stream; /* first: the core's end */
    struct mem_maker *maker;
    bool in_use;
    bool accepted;
    bool aborted;
    bool closing;
    bool reset;
    bool fin_sent;
    bool fin_told;
    bool forgotten;
    bool want_room;
    bool paused;
    bool closed_told;
    uint8_t *inbox; /* sent by the peer, not yet in rx */
    uint32_t inbox_bytes;
    struct piece pieces[MEM_PIECES_MAX];
    uint32_t pieces_count;
    uint32_t small_queued;
    uint64_t queued;
    uint64_t acked_untold;
};

struct mem_maker {
    struct mill_stream_maker base; /* first */
    struct mill_random random;
    uint8_t address_last; /* of the next peer */
    struct mem_peer peers[MEM_STREAMS_MAX];
};

static struct mem_peer *peer_of(struct mill_stream *stream)
{
    return (struct mem_peer *)(void *)stream;
}

static void buf_free(struct mill_buf *buf)
{
    free(buf->owner);
    free(buf);
}

static int send_ref(struct mill_stream *stream, const struct mill_ref *ref)
{
    struct mem_peer *peer = peer_of(stream);
    if (peer->aborted || peer->closing) {
        return -EPIPE;
    }
    if (peer->pieces_count == MEM_PIECES_MAX) {
        peer->want_room = true;
        return -EAGAIN;
    }
    mill_loan_take(peer->maker->base.loans, ref);
    peer->pieces[peer->pieces_count++] = (struct piece){.ref = *ref};
    peer->queued += ref->size_bytes;
    peer->maker->base.stats.bytes_sent_refs += ref->size_bytes;
    return 0;
}

static int send_bytes(struct mill_stream *stream, const void *bytes, uint32_t size_bytes)
{
    struct mem_peer *peer = peer_of(stream);
    if (peer->aborted || peer->closing) {
        return -EPIPE;
    }
    if (peer->pieces_count == MEM_PIECES_MAX ||
        peer->small_queued + size_bytes > MEM_SMALL_BYTES_MAX) {
        peer->want_room = true;
        return -EAGAIN;
    }
    struct piece *piece = &peer->pieces[peer->pieces_count++];
    *piece = (struct piece){.small_bytes = size_bytes, .small = malloc(size_bytes)};
    MILL_ASSERT(piece->small != NULL);
    memcpy(piece->small, bytes, size_bytes);
    peer->small_queued += size_bytes;
    peer->queued += size_bytes;
    peer->maker->base.stats.bytes_sent_small += size_bytes;
    return 0;
}

static void room(const struct mill_stream *stream, uint32_t *ret_refs, uint32_t *ret_bytes)
{
    const struct mem_peer *peer = (const struct mem_peer *)(const void *)stream;
    *ret_refs = MEM_PIECES_MAX - peer->pieces_count;
    *ret_bytes = MEM_SMALL_BYTES_MAX - peer->small_queued;
}

static void push(struct mill_stream *stream)
{
    MILL_UNUSED(stream);
}

static void consume(struct mill_stream *stream, uint32_t size_bytes)
{
    mill_chain_consume(&stream->rx, size_bytes);
}

static void pause_reading(struct mill_stream *stream, bool paused)
{
    peer_of(stream)->paused = paused;
}

static void close_stream(struct mill_stream *stream)
{
    peer_of(stream)->closing = true;
}

static void abort_stream(struct mill_stream *stream)
{
    peer_of(stream)->aborted = true;
}

static uint64_t unacked(const struct mill_stream *stream)
{
    return ((const struct mem_peer *)(const void *)stream)->queued;
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
    .unacked_bytes = unacked,
};

static void pieces_drop(struct mem_peer *peer)
{
    for (uint32_t i = 0; i < peer->pieces_count; i++) {
        if (peer->pieces[i].ref.size_bytes > 0) {
            mill_loan_give(peer->maker->base.loans, &peer->pieces[i].ref);
        }
        free(peer->pieces[i].small);
    }
    peer->pieces_count = 0;
    peer->queued = 0;
    peer->small_queued = 0;
}

/* Cuts what the peer sent into buffers of any size. */
static void deliver(struct mem_maker *maker, struct mem_peer *peer)
{
    uint32_t at = 0;
    while (at < peer->inbox_bytes) {
        uint32_t most = mill_random_below(&maker->random, 8) == 0 ? 7 : 4000;
        uint32_t part =
            MILL_MIN(1 + mill_random_below(&maker->random, most), peer->inbox_bytes - at);
        struct mill_buf *buf = calloc(1, sizeof(*buf));
        uint8_t *bytes = malloc(part);
        MILL_ASSERT(buf != NULL && bytes != NULL);
        memcpy(bytes, peer->inbox + at, part);
        *buf = (struct mill_buf){.data = bytes,
                                 .size_bytes = part,
                                 .charge_bytes = 4096,
                                 .free = buf_free,
                                 .owner = bytes};
        mill_chain_append(&peer->stream.rx, buf);
        at += part;
    }
    peer->inbox_bytes = 0;
}

static void end(struct mem_maker *maker, struct mem_peer *peer, enum mill_stream_end why)
{
    pieces_drop(peer);
    peer->closed_told = true;
    maker->base.events->closed(maker->base.context, &peer->stream, why);
    mill_chain_clear(&peer->stream.rx);
    if (peer->forgotten) {
        free(peer->inbox);
        *peer = (struct mem_peer){0};
    }
}

static uint32_t peer_step(struct mem_maker *maker, struct mem_peer *peer)
{
    const struct mill_stream_events *events = maker->base.events;
    uint32_t work = 0;
    if (peer->closed_told) {
        return 0;
    }
    if (peer->reset || peer->aborted) {
        end(maker, peer, peer->reset ? MILL_END_RESET : MILL_END_ABORTED);
        return 1;
    }
    if (peer->acked_untold > 0) {
        uint64_t acked = peer->acked_untold;
        peer->acked_untold = 0;
        events->acked(maker->base.context, &peer->stream, acked);
        work++;
    }
    if (peer->want_room && peer->pieces_count < MEM_PIECES_MAX) {
        peer->want_room = false;
        events->room(maker->base.context, &peer->stream);
        work++;
    }
    bool fin = peer->fin_sent && !peer->fin_told;
    if (!peer->paused && (peer->inbox_bytes > 0 || fin)) {
        deliver(maker, peer);
        peer->stream.rx_ended = peer->fin_sent;
        peer->fin_told = peer->fin_sent;
        events->received(maker->base.context, &peer->stream);
        work++;
    }
    if (peer->closing && peer->queued == 0) {
        end(maker, peer, MILL_END_CLOSED);
        work++;
    }
    return work;
}

static uint32_t step(struct mill_stream_maker *base, uint64_t now_ns)
{
    struct mem_maker *maker = (struct mem_maker *)(void *)base;
    MILL_UNUSED(now_ns);
    uint32_t work = 0;
    for (uint32_t i = 0; i < MEM_STREAMS_MAX; i++) {
        if (maker->peers[i].in_use) {
            work += peer_step(maker, &maker->peers[i]);
        }
    }
    return work;
}

static uint64_t deadline(const struct mill_stream_maker *base)
{
    MILL_UNUSED(base);
    return MILL_NEVER;
}

static void destroy(struct mill_stream_maker *base)
{
    struct mem_maker *maker = (struct mem_maker *)(void *)base;
    for (uint32_t i = 0; i < MEM_STREAMS_MAX; i++) {
        if (maker->peers[i].in_use) {
            pieces_drop(&maker->peers[i]);
            mill_chain_clear(&maker->peers[i].stream.rx);
            free(maker->peers[i].inbox);
        }
    }
    free(maker);
}

static const struct mill_stream_maker_ops maker_ops = {
    .step = step,
    .deadline = deadline,
    .destroy = destroy,
};

struct mem_maker *mem_maker_create(struct mill_loans *loans, uint8_t *arena_base,
                                   const struct mill_stream_events *events, void *context,
                                   uint64_t seed)
{
    struct mem_maker *maker = calloc(1, sizeof(*maker));
    MILL_ASSERT(maker != NULL);
    maker->base = (struct mill_stream_maker){
        .ops = &maker_ops,
        .events = events,
        .context = context,
        .loans = loans,
        .arena_base = arena_base,
    };
    maker->random.state = seed;
    return maker;
}

struct mill_stream_maker *mem_maker_base(struct mem_maker *maker)
{
    return &maker->base;
}

void mem_address(struct mem_maker *maker, uint8_t last)
{
    maker->address_last = last;
}

struct mem_peer *mem_connect(struct mem_maker *maker)
{
    for (uint32_t i = 0; i < MEM_STREAMS_MAX; i++) {
        struct mem_peer *peer = &maker->peers[i];
        if (peer->in_use) {
            continue;
        }
        *peer = (struct mem_peer){.in_use = true, .maker = maker};
        peer->stream.ops = &stream_ops;
        peer->stream.maker = &maker->base;
        peer->stream.rx_bytes_max = UINT32_MAX;
        const uint8_t address[16] = {[10] = 0xff, 0xff, 10, 0, 0, maker->address_last};
        memcpy(peer->stream.peer.address, address, sizeof(address));
        if (maker->base.events->accepted(maker->base.context, &peer->stream) < 0) {
            peer->in_use = false;
            return NULL;
        }
        return peer;
    }
    return NULL;
}

void mem_send(struct mem_peer *peer, const void *bytes, uint32_t size_bytes)
{
    peer->inbox = realloc(peer->inbox, peer->inbox_bytes + size_bytes);
    MILL_ASSERT(peer->inbox != NULL);
    memcpy(peer->inbox + peer->inbox_bytes, bytes, size_bytes);
    peer->inbox_bytes += size_bytes;
}

uint32_t mem_take(struct mem_peer *peer, void *ret_bytes, uint32_t capacity)
{
    uint8_t *out = ret_bytes;
    uint32_t taken = 0;
    while (peer->pieces_count > 0 && taken < capacity) {
        struct piece *piece = &peer->pieces[0];
        bool is_ref = piece->ref.size_bytes > 0;
        uint32_t size = is_ref ? piece->ref.size_bytes : piece->small_bytes;
        const uint8_t *from =
            is_ref ? mill_ref_data(peer->maker->base.arena_base, &piece->ref) : piece->small;
        uint32_t part = MILL_MIN(size - piece->done, capacity - taken);
        memcpy(out + taken, from + piece->done, part);
        piece->done += part;
        taken += part;
        if (piece->done < size) {
            break;
        }
        if (is_ref) {
            mill_loan_give(peer->maker->base.loans, &piece->ref);
        } else {
            peer->small_queued -= size;
            free(piece->small);
        }
        peer->pieces_count--;
        memmove(&peer->pieces[0], &peer->pieces[1], peer->pieces_count * sizeof(*piece));
    }
    peer->queued -= taken;
    peer->acked_untold += taken;
    return taken;
}

uint64_t mem_queued(const struct mem_peer *peer)
{
    return peer->queued;
}

void mem_finish(struct mem_peer *peer)
{
    peer->fin_sent = true;
}

void mem_reset(struct mem_peer *peer)
{
    peer->reset = true;
}

bool mem_ended(const struct mem_peer *peer)
{
    return peer->closed_told;
}

void mem_forget(struct mem_peer *peer)
{
    if (peer->closed_told) {
        free(peer->inbox);
        *peer = (struct mem_peer){0};
        return;
    }
    peer->forgotten = true;
    peer->reset = true;
}
