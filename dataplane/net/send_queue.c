/* SPDX-License-Identifier: Apache-2.0 */
/* The send queue; see send_queue.h. Owner: one connection; never allocates. */
#include "dataplane/net/send_queue.h"

#include <errno.h>
#include <string.h>

#include "dataplane/net/seq.h"

static bool ring_full(const struct mill_send_queue *queue)
{
    return queue->tail - queue->head > queue->entries_mask;
}

static struct mill_send_entry *entry_at(struct mill_send_queue *queue, uint32_t position)
{
    return &queue->entries[position & queue->entries_mask];
}

/* The last entry when it lies in the arena: then more bytes simply follow it. */
static struct mill_send_entry *open_bytes_entry(struct mill_send_queue *queue)
{
    if (queue->tail == queue->head) {
        return NULL;
    }
    struct mill_send_entry *last = entry_at(queue, queue->tail - 1);
    return last->ref.extent == MILL_SEND_ARENA ? last : NULL;
}

int mill_send_queue_push_ref(struct mill_send_queue *queue, struct mill_loans *loans,
                             const struct mill_ref *ref)
{
    MILL_ASSERT(ref->size_bytes > 0);
    if (ring_full(queue)) {
        return -EAGAIN;
    }
    mill_loan_take(loans, ref);
    *entry_at(queue, queue->tail++) = (struct mill_send_entry){.ref = *ref, .seq = queue->seq_end};
    queue->seq_end += ref->size_bytes;
    return 0;
}

int mill_send_queue_push_bytes(struct mill_send_queue *queue, const void *bytes,
                               uint32_t size_bytes)
{
    uint32_t used = queue->arena_tail - queue->arena_head;
    struct mill_send_entry *open = open_bytes_entry(queue);
    if (size_bytes > queue->arena_mask + 1 - used || (!open && ring_full(queue))) {
        return -EAGAIN;
    }
    if (size_bytes == 0) {
        return 0;
    }
    uint32_t at = queue->arena_tail & queue->arena_mask;
    uint32_t first = MILL_MIN(size_bytes, queue->arena_mask + 1 - at);
    memcpy(queue->arena + at, bytes, first);
    memcpy(queue->arena, (const uint8_t *)bytes + first, size_bytes - first);
    if (open) {
        open->ref.size_bytes += size_bytes;
    } else {
        *entry_at(queue, queue->tail++) = (struct mill_send_entry){
            .ref = {MILL_SEND_ARENA, queue->arena_tail, size_bytes}, .seq = queue->seq_end};
    }
    queue->arena_tail += size_bytes;
    queue->seq_end += size_bytes;
    return 0;
}

void mill_send_queue_room(const struct mill_send_queue *queue, uint32_t *ret_refs,
                          uint32_t *ret_bytes)
{
    uint32_t refs = queue->entries_mask + 1 - (queue->tail - queue->head);
    uint32_t bytes = queue->arena_mask + 1 - (queue->arena_tail - queue->arena_head);
    *ret_refs = refs;
    *ret_bytes = refs > 0 ? bytes : 0;
}

void mill_send_queue_ack(struct mill_send_queue *queue, struct mill_loans *loans, uint32_t una)
{
    while (queue->head != queue->tail) {
        struct mill_send_entry *entry = entry_at(queue, queue->head);
        uint32_t acked = una - entry->seq;
        if (mill_seq_le(una, entry->seq)) {
            return;
        }
        bool whole = acked >= entry->ref.size_bytes;
        if (entry->ref.extent == MILL_SEND_ARENA) {
            /* Bytes are freed as they are acknowledged: this entry may still be growing. */
            uint32_t part = MILL_MIN(acked, entry->ref.size_bytes);
            queue->arena_head += part;
            entry->ref.pos_bytes += part;
            entry->ref.size_bytes -= part;
            entry->seq += part;
        } else if (whole) {
            mill_loan_give(loans, &entry->ref);
        }
        if (!whole) {
            return;
        }
        queue->head++;
    }
}

void mill_send_queue_clear(struct mill_send_queue *queue, struct mill_loans *loans)
{
    while (queue->head != queue->tail) {
        const struct mill_send_entry *entry = entry_at(queue, queue->head++);
#ifdef MILL_MUTANT_NET_LEAK_LOAN
        if (queue->head == queue->tail) {
            break;
        }
#endif
        if (entry->ref.extent != MILL_SEND_ARENA) {
            mill_loan_give(loans, &entry->ref);
        }
    }
    queue->arena_head = queue->arena_tail;
}

uint32_t mill_send_queue_find(const struct mill_send_queue *queue, uint32_t seq)
{
    uint32_t low = queue->head;
    uint32_t high = queue->tail - 1; /* the last entry whose seq is at or below the byte */
    while (low != high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (mill_seq_le(mill_send_queue_at(queue, middle)->seq, seq)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

void mill_send_queue_copy(const struct mill_send_queue *queue, const struct mill_send_entry *entry,
                          uint32_t skip_bytes, uint8_t *to, uint32_t size_bytes)
{
    uint32_t at = (entry->ref.pos_bytes + skip_bytes) & queue->arena_mask;
    uint32_t first = MILL_MIN(size_bytes, queue->arena_mask + 1 - at);
    memcpy(to, queue->arena + at, first);
    memcpy(to + first, queue->arena, size_bytes - first);
}
