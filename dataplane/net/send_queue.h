/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection still has to send or to send again: a ring of references into the log, mixed
 * with small pieces that live in the connection's own byte arena. Nothing is copied out of the log
 * and nothing is split: an entry knows the sequence number of its first byte, and any byte between
 * is found by search, as often as a retransmission needs it.
 *
 *   entries:  [ref seq=100 size=5000] [bytes seq=5100 size=40] [ref seq=5140 ...]   head..tail
 *   arena:    ring of bytes, head..tail, in the order of the bytes entries
 *
 * A reference holds one loan from push until its last byte was acknowledged (or the queue cleared).
 * Owner: one connection. Never allocates.
 */
#ifndef MILL_DATAPLANE_NET_SEND_QUEUE_H
#define MILL_DATAPLANE_NET_SEND_QUEUE_H

#include "hugepages/loans.h"

/* The extent of an entry that lies in the byte arena; pos_bytes then counts arena bytes. */
#define MILL_SEND_ARENA UINT32_MAX

struct mill_send_entry {
    struct mill_ref ref;
    uint32_t seq;
};
static_assert(sizeof(struct mill_send_entry) == 16, "four to a cache line");

struct mill_send_queue {
    struct mill_send_entry *entries;
    uint8_t *arena;
    uint32_t entries_mask;
    uint32_t arena_mask;
    uint32_t head; /* free running */
    uint32_t tail;
    uint32_t arena_head; /* free running */
    uint32_t arena_tail;
    uint32_t seq_end; /* sequence number of the next byte to be queued */
};

/* ret: 0, -EAGAIN when the ring is full (no loan taken). */
int mill_send_queue_push_ref(struct mill_send_queue *queue, struct mill_loans *loans,
                             const struct mill_ref *ref) MILL_WARN_UNUSED;

/* ret: 0, -EAGAIN when ring or arena has no room for all of it. */
int mill_send_queue_push_bytes(struct mill_send_queue *queue, const void *bytes,
                               uint32_t size_bytes) MILL_WARN_UNUSED;

/* Entries and arena bytes that can be pushed now. */
void mill_send_queue_room(const struct mill_send_queue *queue, uint32_t *ret_refs,
                          uint32_t *ret_bytes);

/* Bytes below una are acknowledged: ends their loans in order. */
void mill_send_queue_ack(struct mill_send_queue *queue, struct mill_loans *loans, uint32_t una);

/* Ends all loans; the queue is empty after. */
void mill_send_queue_clear(struct mill_send_queue *queue, struct mill_loans *loans);

/* The entry that holds byte seq, which is queued. ret: its free-running position. */
uint32_t mill_send_queue_find(const struct mill_send_queue *queue, uint32_t seq);

static inline const struct mill_send_entry *mill_send_queue_at(const struct mill_send_queue *queue,
                                                               uint32_t position)
{
    return &queue->entries[position & queue->entries_mask];
}

/* Copies size_bytes from byte skip_bytes of an arena entry. */
void mill_send_queue_copy(const struct mill_send_queue *queue, const struct mill_send_entry *entry,
                          uint32_t skip_bytes, uint8_t *to, uint32_t size_bytes);

#endif
