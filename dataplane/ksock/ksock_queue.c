/* SPDX-License-Identifier: Apache-2.0 */
/* The send queue of a kernel-socket stream: references and small pieces in one order. It owns the
 * loans of queued references from the moment of queueing until the kernel took their last byte.
 * Thread: the maker's core. Never copies the bytes of a reference, never allocates, knows no
 * socket. */
#include "dataplane/ksock/ksock_impl.h"

#include <errno.h>
#include <string.h>

uint32_t mill_ksock_queue_entries(const struct mill_ksock_config *config)
{
    return 2 * config->refs_per_connection + 2;
}

void mill_ksock_queue_init(struct mill_ksock_queue *queue, struct mill_ref *entries, uint8_t *arena,
                           const struct mill_ksock_config *config)
{
    *queue = (struct mill_ksock_queue){
        .entries = entries,
        .arena = arena,
        .entries_max = mill_ksock_queue_entries(config),
        .refs_max = config->refs_per_connection,
        .arena_max = config->arena_bytes_per_connection,
    };
}

/* Index of the entry that lies ahead steps behind the oldest. */
static uint32_t entry_at(const struct mill_ksock_queue *queue, uint32_t ahead)
{
    uint32_t at = queue->head + ahead;
    return at >= queue->entries_max ? at - queue->entries_max : at;
}

static void append(struct mill_ksock_queue *queue, uint32_t extent, uint32_t pos_bytes,
                   uint32_t size_bytes)
{
    MILL_ASSERT_LT(queue->count, queue->entries_max);
    queue->entries[entry_at(queue, queue->count)] =
        (struct mill_ref){.extent = extent, .pos_bytes = pos_bytes, .size_bytes = size_bytes};
    queue->count++;
    queue->bytes += size_bytes;
}

/* First free byte of the arena. */
static uint32_t arena_tail(const struct mill_ksock_queue *queue)
{
    uint32_t at = queue->arena_head + queue->arena_used;
    return at >= queue->arena_max ? at - queue->arena_max : at;
}

/* Queues bytes that lie in one piece of free arena; lengthens the last entry when it ends there,
 * also while that entry is being sent: a completion counts bytes, not entries. */
static void append_small(struct mill_ksock_queue *queue, const uint8_t *bytes, uint32_t size_bytes)
{
    uint32_t at = arena_tail(queue);
    memcpy(queue->arena + at, bytes, size_bytes);
    queue->arena_used += size_bytes;
    if (queue->count > 0) {
        struct mill_ref *last = &queue->entries[entry_at(queue, queue->count - 1)];
        if (last->extent == MILL_KSOCK_SMALL && last->pos_bytes + last->size_bytes == at) {
            last->size_bytes += size_bytes;
            queue->bytes += size_bytes;
            return;
        }
    }
    append(queue, MILL_KSOCK_SMALL, at, size_bytes);
}

int mill_ksock_queue_bytes(struct mill_ksock_queue *queue, const void *bytes, uint32_t size_bytes)
{
    if (size_bytes > queue->arena_max - queue->arena_used) {
        return -EAGAIN;
    }
    const uint8_t *from = bytes;
    while (size_bytes > 0) {
        uint32_t part = MILL_MIN(size_bytes, queue->arena_max - arena_tail(queue));
        append_small(queue, from, part);
        from += part;
        size_bytes -= part;
    }
    return 0;
}

int mill_ksock_queue_ref(struct mill_ksock_queue *queue, const struct mill_ref *ref,
                         struct mill_stream_maker *maker)
{
    MILL_DASSERT(ref->size_bytes > 0);
    MILL_DASSERT(ref->extent != MILL_KSOCK_SMALL);
    if (queue->refs_count == queue->refs_max) {
        return -EAGAIN;
    }
    struct mill_ref queued = *ref;
#ifdef MILL_MUTANT_KSOCK_COPY_REF
    /* The first byte of the reference goes through the arena. */
    if (queued.size_bytes > 1 &&
        mill_ksock_queue_bytes(queue, mill_ref_data(maker->arena_base, ref), 1) == 0) {
        maker->stats.bytes_copied_out++;
        queued.pos_bytes++;
        queued.size_bytes--;
    }
#endif
    mill_loan_take(maker->loans, &queued);
    append(queue, queued.extent, queued.pos_bytes, queued.size_bytes);
    queue->refs_count++;
    return 0;
}

uint32_t mill_ksock_queue_iov(const struct mill_ksock_queue *queue, uint8_t *arena_base,
                              struct iovec iov[MILL_KSOCK_IOV_MAX], uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    uint32_t count = MILL_MIN(queue->count, (uint32_t)MILL_KSOCK_IOV_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct mill_ref *entry = &queue->entries[entry_at(queue, i)];
        uint32_t done = i == 0 ? queue->head_done_bytes : 0;
        uint8_t *from = entry->extent == MILL_KSOCK_SMALL ? queue->arena + entry->pos_bytes
                                                          : mill_ref_data(arena_base, entry);
        iov[i] = (struct iovec){.iov_base = from + done, .iov_len = entry->size_bytes - done};
        bytes += entry->size_bytes - done;
    }
    *ret_bytes = bytes;
    return count;
}

/* Takes the oldest entry off; a reference's loan ends here and nowhere else. */
static void pop(struct mill_ksock_queue *queue, struct mill_loans *loans)
{
    const struct mill_ref *entry = &queue->entries[queue->head];
    if (entry->extent != MILL_KSOCK_SMALL) {
        queue->refs_count--;
#ifdef MILL_MUTANT_KSOCK_LEAK_LOAN
        if (entry->pos_bytes % 2 == 0)
#endif
            mill_loan_give(loans, entry);
    }
    queue->head = entry_at(queue, 1);
    queue->count--;
    queue->head_done_bytes = 0;
}

void mill_ksock_queue_advance(struct mill_ksock_queue *queue, struct mill_stream_maker *maker,
                              uint64_t size_bytes)
{
    MILL_ASSERT_LE(size_bytes, queue->bytes);
#ifdef MILL_MUTANT_KSOCK_LOSE_BYTE
    /* A partial send is taken for one byte more. */
    if (size_bytes < queue->bytes) {
        size_bytes++;
    }
#endif
    while (size_bytes > 0) {
        const struct mill_ref *entry = &queue->entries[queue->head];
        uint32_t left = entry->size_bytes - queue->head_done_bytes;
        uint32_t part = size_bytes < left ? (uint32_t)size_bytes : left;
        if (entry->extent == MILL_KSOCK_SMALL) {
            maker->stats.bytes_sent_small += part;
            queue->arena_head += part;
            if (queue->arena_head >= queue->arena_max) {
                queue->arena_head -= queue->arena_max;
            }
            queue->arena_used -= part;
        } else {
            maker->stats.bytes_sent_refs += part;
        }
        size_bytes -= part;
        queue->bytes -= part;
        queue->head_done_bytes += part;
        if (part == left) {
            pop(queue, maker->loans);
        }
    }
    if (queue->count == 0) {
        /* From the start again: a connection with little to say keeps to its first page. */
        queue->head = 0;
        queue->arena_head = 0;
    }
}

void mill_ksock_queue_drop(struct mill_ksock_queue *queue, struct mill_loans *loans)
{
    while (queue->count > 0) {
        pop(queue, loans);
    }
    queue->bytes = 0;
    queue->head = 0;
    queue->arena_head = 0;
    queue->arena_used = 0;
}
