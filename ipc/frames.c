/* SPDX-License-Identifier: Apache-2.0 */
/* The shared segment of rings, scratch slots and bells, and putting frames into it (frames.h).
 * Making it is the supervisor's; checking it is everybody's at attach; mill_frame_put belongs to
 * the one thread that produces into the ring. Never allocates, never waits. */
#include "ipc/frames.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

static_assert(sizeof(struct mill_frame_request) == 120, "crosses processes");
static_assert(sizeof(struct mill_frame_answer) == 32, "crosses processes");
static_assert(sizeof(struct mill_stream_part) == 32, "crosses processes");
static_assert(MILL_STREAM_PART_BYTES + sizeof(struct mill_stream_part) <=
                  MILL_STREAM_RING_BYTES / 4,
              "a part fits its ring");
static_assert(sizeof(struct mill_command_id_block) == 24, "crosses processes");
static_assert(sizeof(struct mill_event_partition) == 32, "crosses processes");
static_assert(sizeof(struct mill_event_ids_low) == 16, "crosses processes");
static_assert(sizeof(struct mill_ipc_side) == 128, "shared layout");
static_assert(sizeof(struct mill_ipc_scratch) == 128, "shared layout");
static_assert(offsetof(struct mill_ipc_segment, dataplane) == 128, "shared layout");
static_assert(sizeof(struct mill_ipc_core) % MILL_CACHE_SPACING_BYTES == 0, "shared layout");

enum {
    SCRATCH_BYTES_MAX = 1 << 30,
};

static uint64_t spaced(uint64_t bytes)
{
    return mill_round_up(bytes, MILL_CACHE_SPACING_BYTES);
}

static uint64_t head_bytes_of(uint32_t cores_count)
{
    return spaced(sizeof(struct mill_ipc_segment) + cores_count * sizeof(struct mill_ipc_core));
}

uint64_t mill_ipc_bytes(uint32_t cores_count, uint32_t scratch_bytes)
{
    uint64_t per_core = 2 * spaced(mill_ring_bytes(MILL_FRAME_RING_BYTES)) +
                        2 * spaced(mill_ring_bytes(MILL_COMMAND_RING_BYTES)) +
                        2 * spaced(mill_ring_bytes(MILL_STREAM_RING_BYTES)) +
                        2 * spaced(scratch_bytes);
    return head_bytes_of(cores_count) + cores_count * per_core;
}

/* Hands out the next size_bytes of the segment. */
static uint64_t take(uint64_t *at, uint64_t size_bytes)
{
    uint64_t offset = *at;
    *at += spaced(size_bytes);
    return offset;
}

static uint64_t take_ring(struct mill_ipc_segment *segment, uint64_t *at, uint64_t capacity_bytes)
{
    uint64_t offset = take(at, mill_ring_bytes(capacity_bytes));
    mill_ring_format(mill_ipc_at(segment, offset), capacity_bytes);
    return offset;
}

void mill_ipc_format(void *memory, uint32_t cores_count, uint32_t scratch_bytes)
{
    struct mill_ipc_segment *segment = memory;
    MILL_ASSERT(cores_count > 0 && cores_count <= MILL_MAP_CORES_MAX);
    MILL_ASSERT_LE(scratch_bytes, (uint32_t)SCRATCH_BYTES_MAX);
    uint64_t at = head_bytes_of(cores_count);
    for (uint32_t i = 0; i < cores_count; i++) {
        struct mill_ipc_core *core = &segment->cores[i];
        core->frames_out = take_ring(segment, &at, MILL_FRAME_RING_BYTES);
        core->frames_in = take_ring(segment, &at, MILL_FRAME_RING_BYTES);
        core->events = take_ring(segment, &at, MILL_COMMAND_RING_BYTES);
        core->commands = take_ring(segment, &at, MILL_COMMAND_RING_BYTES);
        core->stream_in = take_ring(segment, &at, MILL_STREAM_RING_BYTES);
        core->stream_out = take_ring(segment, &at, MILL_STREAM_RING_BYTES);
        core->scratch_out.offset = take(&at, scratch_bytes);
        core->scratch_in.offset = take(&at, scratch_bytes);
    }
    segment->version = MILL_IPC_VERSION;
    segment->size_bytes = at;
    segment->cores_count = cores_count;
    segment->scratch_bytes = scratch_bytes;
    MILL_ASSERT_EQ(at, mill_ipc_bytes(cores_count, scratch_bytes));
    segment->magic = MILL_IPC_MAGIC;
}

static bool lies_within(uint64_t offset, uint64_t size_bytes, uint64_t head_bytes,
                        uint64_t segment_bytes)
{
    return offset >= head_bytes && offset % MILL_CACHE_SPACING_BYTES == 0 &&
           offset <= segment_bytes && size_bytes <= segment_bytes - offset;
}

int mill_ipc_check(const void *memory, uint64_t size_bytes)
{
    const struct mill_ipc_segment *segment = memory;
    if (size_bytes < sizeof(*segment) || segment->magic != MILL_IPC_MAGIC ||
        segment->version != MILL_IPC_VERSION || segment->cores_count == 0 ||
        segment->cores_count > MILL_MAP_CORES_MAX || segment->scratch_bytes > SCRATCH_BYTES_MAX ||
        segment->size_bytes != mill_ipc_bytes(segment->cores_count, segment->scratch_bytes) ||
        segment->size_bytes > size_bytes) {
        return -EBADMSG;
    }
    uint64_t head = head_bytes_of(segment->cores_count);
    uint64_t frames = mill_ring_bytes(MILL_FRAME_RING_BYTES);
    uint64_t commands = mill_ring_bytes(MILL_COMMAND_RING_BYTES);
    uint64_t streams = mill_ring_bytes(MILL_STREAM_RING_BYTES);
    for (uint32_t i = 0; i < segment->cores_count; i++) {
        const struct mill_ipc_core *core = &segment->cores[i];
        if (!lies_within(core->frames_out, frames, head, size_bytes) ||
            !lies_within(core->frames_in, frames, head, size_bytes) ||
            !lies_within(core->events, commands, head, size_bytes) ||
            !lies_within(core->commands, commands, head, size_bytes) ||
            !lies_within(core->stream_in, streams, head, size_bytes) ||
            !lies_within(core->stream_out, streams, head, size_bytes) ||
            !lies_within(core->scratch_out.offset, segment->scratch_bytes, head, size_bytes) ||
            !lies_within(core->scratch_in.offset, segment->scratch_bytes, head, size_bytes)) {
            return -EBADMSG;
        }
    }
    return 0;
}

/* Both heads keep scratch and size at their own place; these fill them by kind. */
static void note_body(uint32_t kind, void *head, uint32_t scratch, uint32_t size_bytes)
{
    if (kind == MILL_FRAME_REQUEST) {
        struct mill_frame_request *request = head;
        request->scratch = scratch;
        request->size_bytes = size_bytes;
    } else {
        struct mill_frame_answer *answer = head;
        answer->scratch = scratch;
        answer->size_bytes = size_bytes;
    }
}

int mill_frame_put(struct mill_ring *ring, struct mill_ipc_segment *segment,
                   struct mill_ipc_scratch *scratch, uint32_t kind, void *head, uint32_t head_bytes,
                   const struct mill_cursor *body)
{
    struct mill_cursor at = *body;
    uint32_t body_bytes = body->left_bytes;
    MILL_ASSERT(kind == MILL_FRAME_REQUEST || kind == MILL_FRAME_ANSWER);
    MILL_ASSERT_EQ((size_t)head_bytes, kind == MILL_FRAME_REQUEST
                                           ? sizeof(struct mill_frame_request)
                                           : sizeof(struct mill_frame_answer));
    bool large = (uint64_t)head_bytes + body_bytes > (ring->mask + 1) / 4;
    if (!large) {
        uint8_t *message = mill_ring_claim(ring, kind, head_bytes + body_bytes);
        if (!message) {
            return -EAGAIN;
        }
        note_body(kind, head, 0, body_bytes);
        memcpy(message, head, head_bytes);
        return mill_cursor_read(&at, message + head_bytes, body_bytes);
    }
    if (body_bytes > segment->scratch_bytes) {
        return -EMSGSIZE;
    }
    /* Acquire pairs with the receiver's release of the slot: its reads are over. */
    if (atomic_load_explicit(&scratch->busy, memory_order_acquire) != 0) {
        return -EAGAIN;
    }
    uint8_t *message = mill_ring_claim(ring, kind, head_bytes);
    if (!message) {
        return -EAGAIN;
    }
    note_body(kind, head, 1, body_bytes);
    memcpy(message, head, head_bytes);
    int rc = mill_cursor_read(&at, mill_ipc_at(segment, scratch->offset), body_bytes);
    scratch->size_bytes = body_bytes;
    /* The bytes become visible to the receiver with the ring's publish; release keeps this word
     * after them for a successor of ours that looks only at it. */
    atomic_store_explicit(&scratch->busy, 1, memory_order_release);
    return rc;
}

const uint8_t *mill_frame_body(struct mill_ipc_segment *segment, uint64_t segment_bytes,
                               struct mill_ipc_scratch *scratch, const void *message,
                               uint32_t head_bytes, uint32_t message_bytes, uint32_t in_scratch,
                               uint32_t size_bytes)
{
    if (message_bytes < head_bytes) {
        return NULL;
    }
    if (in_scratch == 0) {
        return size_bytes <= message_bytes - head_bytes ? (const uint8_t *)message + head_bytes
                                                        : NULL;
    }
    uint64_t offset = scratch->offset;
    if (atomic_load_explicit(&scratch->busy, memory_order_acquire) == 0 || offset > segment_bytes ||
        size_bytes > segment_bytes - offset) {
        return NULL;
    }
    return (const uint8_t *)mill_ipc_at(segment, offset);
}

void mill_scratch_release(struct mill_ipc_scratch *scratch)
{
    atomic_store_explicit(&scratch->busy, 0, memory_order_release);
}
