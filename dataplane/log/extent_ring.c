/* SPDX-License-Identifier: Apache-2.0 */
/* The extents of partitions: growth, the sparse index, eviction. Owner core only; nothing here
 * allocates but extents, nothing waits: what cannot be had now is tried again next turn. */
#include "dataplane/log/log_types.h"

#include <errno.h>

static void unlink_extent(struct mill_partition *partition, uint32_t extent)
{
    struct mill_log *log = partition->log;
    struct log_extent *e = &log->extents[extent];
    if (e->prev == MILL_LOG_NONE) {
        partition->first = e->next;
    } else {
        log->extents[e->prev].next = e->next;
    }
    if (e->next == MILL_LOG_NONE) {
        partition->last = e->prev;
    } else {
        log->extents[e->next].prev = e->prev;
    }
    if (partition->active == extent) {
        partition->active = MILL_LOG_NONE;
    }
    if (partition->hint == extent) {
        partition->hint = MILL_LOG_NONE;
    }
    if (partition->first == MILL_LOG_NONE) {
        log_list_remove(&partition->lru);
        partition->growth = 0;
    }
}

void mill_log_extent_insert(struct mill_partition *partition, uint32_t extent, uint32_t next)
{
    struct mill_log *log = partition->log;
    struct log_extent *e = &log->extents[extent];
    e->next = next;
    e->prev = next == MILL_LOG_NONE ? partition->last : log->extents[next].prev;
    if (e->prev == MILL_LOG_NONE) {
        partition->first = extent;
    } else {
        log->extents[e->prev].next = extent;
    }
    if (next == MILL_LOG_NONE) {
        partition->last = extent;
    } else {
        log->extents[next].prev = extent;
    }
    mill_log_touch(partition);
}

void mill_log_touch(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    if (partition->first == MILL_LOG_NONE) {
        return;
    }
    partition->used_ns = log->now.mono_ns;
    if (log->lru.prev != &partition->lru) {
        log_list_add(&log->lru, &partition->lru);
    }
    if (log->evict_at_ns == MILL_NEVER) {
        log->evict_at_ns = log->now.mono_ns + MILL_LOG_IDLE_NS;
    }
}

/* Written, not on loan, nothing under way: only then may the bytes be forgotten. */
static bool evictable(const struct mill_log *log, uint32_t extent)
{
    const struct log_extent *e = &log->extents[extent];
    return e->written_bytes == e->committed_bytes && e->posted_bytes == e->committed_bytes &&
           mill_loan_free(log->config.loans, extent);
}

static void evict(struct mill_partition *partition, uint32_t extent)
{
    unlink_extent(partition, extent);
    mill_extent_free(partition->log->config.extents, extent);
}

/* Frees one extent that is not needed, of the least recently used partition that has one; never
 * the active extent of keep. ret: false when there is none within the tries. */
static bool evict_one(struct mill_log *log)
{
    uint32_t tries = 0;
    struct log_node *node = log->lru.next;
    while (node != &log->lru && tries < MILL_LOG_EVICT_TRIES) {
        struct mill_partition *partition = MILL_CONTAINER_OF(node, struct mill_partition, lru);
        node = node->next;
        uint32_t extent = partition->first;
        for (; extent != MILL_LOG_NONE && tries < MILL_LOG_EVICT_TRIES; tries++) {
            if (evictable(log, extent)) {
                evict(partition, extent);
                return true;
            }
            extent = log->extents[extent].next;
        }
    }
    return false;
}

int mill_log_extent_take(struct mill_log *log, uint32_t size_bytes, uint32_t *ret_extent)
{
    /* A busy core must not keep all memory for reading again while another cannot even append. */
    uint64_t share = log->config.limits.memory_bytes;
    for (uint32_t i = 0; share > 0 && i < MILL_LOG_EVICT_TRIES; i++) {
        if (mill_extents_used_bytes(log->config.extents) + size_bytes <= share || !evict_one(log)) {
            break;
        }
    }
    int r = mill_extent_alloc(log->config.extents, size_bytes, ret_extent);
    for (uint32_t i = 0; r == -ENOSPC && i < MILL_LOG_EVICT_TRIES && evict_one(log); i++) {
        r = mill_extent_alloc(log->config.extents, size_bytes, ret_extent);
    }
    if (r == -ENOSPC) {
        return -EAGAIN;
    }
    if (r == 0) {
        log->extents[*ret_extent] = (struct log_extent){
            .next = MILL_LOG_NONE,
            .prev = MILL_LOG_NONE,
            .size_bytes = mill_extent_size_bytes(log->config.extents, *ret_extent),
            .used_ns = log->now.mono_ns,
        };
    }
    return r;
}

int mill_log_scratch(struct mill_log *log, uint32_t size_bytes, uint32_t *ret_extent)
{
    int r = mill_log_extent_take(log, size_bytes, ret_extent);
    if (r == 0) {
        mill_extent_publish(log->config.extents, *ret_extent, MILL_EXTENT_SCRATCH);
    }
    return r;
}

static int active_new(struct mill_partition *partition, uint32_t size_bytes)
{
    struct mill_log *log = partition->log;
    uint32_t want = MILL_MIN((uint32_t)MILL_EXTENT_UNIT_BYTES << partition->growth,
                             (uint32_t)MILL_LOG_EXTENT_MAX_BYTES);
    uint32_t extent;
    int r = mill_log_extent_take(log, MILL_MAX(want, size_bytes), &extent);
    if (r == -EAGAIN && size_bytes < want) {
        r = mill_log_extent_take(log, size_bytes, &extent);
    }
    if (r < 0) {
        return r;
    }
    if (want < MILL_LOG_EXTENT_MAX_BYTES) {
        partition->growth++;
    }
    struct log_extent *e = &log->extents[extent];
    e->from_offset = partition->end_offset;
    e->base_offset = partition->end_offset;
    e->end_offset = partition->end_offset;
    e->stream_pos = partition->stream_end;
    struct mill_extent_desc *desc = mill_arena_desc(log->config.arena, extent);
    desc->topic_id = partition->topic_id;
    desc->partition = partition->index;
    desc->base_offset = partition->end_offset;
    desc->order = ++partition->order;
    atomic_store_explicit(&desc->committed_bytes, 0, memory_order_relaxed);
    mill_extent_publish(log->config.extents, extent, MILL_EXTENT_LOG);
    mill_log_extent_insert(partition, extent, MILL_LOG_NONE);
    partition->active = extent;
    return 0;
}

int mill_log_extent_room(struct mill_partition *partition, uint32_t size_bytes)
{
    struct mill_log *log = partition->log;
    if (partition->active != MILL_LOG_NONE) {
        const struct log_extent *e = &log->extents[partition->active];
        if (e->size_bytes - e->committed_bytes >= size_bytes) {
            return 0;
        }
        if (e->committed_bytes == 0) {
            /* Taken for a batch that was refused and too small for this one. */
            evict(partition, partition->active);
        }
    }
    return active_new(partition, size_bytes);
}

void mill_log_index_batch(struct mill_log *log, uint32_t extent, uint32_t pos_bytes,
                          uint32_t size_bytes, int64_t base_offset)
{
    /* Units whose first byte lies in this batch: from the first unit border at or above its start.
     */
    uint32_t unit = (pos_bytes + MILL_EXTENT_UNIT_BYTES - 1) >> MILL_EXTENT_UNIT_SHIFT;
    uint32_t end = (pos_bytes + size_bytes - 1) >> MILL_EXTENT_UNIT_SHIFT;
    for (; unit <= end; unit++) {
        log->units[extent + unit] = (struct log_unit){
            .pos_bytes = pos_bytes,
            .offset_delta = (uint32_t)(base_offset - log->extents[extent].base_offset),
        };
    }
}

uint32_t mill_log_extent_find(struct mill_partition *partition, int64_t offset, uint32_t *ret_next)
{
    const struct log_extent *extents = partition->log->extents;
    uint32_t at = partition->hint != MILL_LOG_NONE ? partition->hint : partition->last;
    uint32_t next = MILL_LOG_NONE;
    if (at != MILL_LOG_NONE && extents[at].end_offset <= offset) {
        while (at != MILL_LOG_NONE && extents[at].end_offset <= offset) {
            at = extents[at].next;
        }
        next = at;
    } else {
        while (at != MILL_LOG_NONE && extents[at].end_offset > offset) {
            next = at;
            at = extents[at].prev;
        }
    }
    *ret_next = next;
    if (next != MILL_LOG_NONE && extents[next].from_offset <= offset) {
        partition->hint = next;
        *ret_next = extents[next].next;
        return next;
    }
    return MILL_LOG_NONE;
}

uint32_t mill_log_extent_seek(const struct mill_log *log, uint32_t extent, int64_t offset)
{
    const struct log_extent *e = &log->extents[extent];
    const uint8_t *data = log->base + ((size_t)extent << MILL_EXTENT_UNIT_SHIFT);
    uint32_t delta = (uint32_t)MILL_MAX(offset - e->base_offset, (int64_t)0);
    uint32_t low = 0; /* unit 0 always names the batch at position 0 */
    uint32_t high = (e->committed_bytes - 1) >> MILL_EXTENT_UNIT_SHIFT;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (log->units[extent + middle].offset_delta <= delta) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    uint32_t pos = low == 0 ? 0 : log->units[extent + low].pos_bytes;
    while (pos < e->committed_bytes) {
        struct mill_batch batch;
        mill_batch_read(data + pos, &batch);
        if (mill_batch_last_offset(&batch) >= offset) {
            break;
        }
        pos += mill_batch_size_bytes(&batch);
    }
    return pos;
}

bool mill_log_extents_drop(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    uint32_t at = partition->first;
    partition->post = MILL_LOG_NONE;
    while (at != MILL_LOG_NONE) {
        uint32_t next = log->extents[at].next;
        if (mill_loan_free(log->config.loans, at)) {
            evict(partition, at);
        }
        at = next;
    }
    return partition->first == MILL_LOG_NONE;
}

/* Frees what this partition no longer needs: everything after it was idle, cold extents after
 * they were. ret: extents freed. */
static uint32_t evict_of(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    uint64_t now = log->now.mono_ns;
    bool idle = now - partition->used_ns >= MILL_LOG_IDLE_NS;
    uint32_t freed = 0;
    uint32_t at = partition->first;
    for (uint32_t i = 0; at != MILL_LOG_NONE && i < MILL_LOG_EVICT_TRIES; i++) {
        uint32_t next = log->extents[at].next;
        const struct log_extent *e = &log->extents[at];
        bool due = idle || (e->cold && now - e->used_ns >= MILL_LOG_COLD_NS);
        if (due && evictable(log, at)) {
            evict(partition, at);
            freed++;
        }
        at = next;
    }
    return freed;
}

uint32_t mill_log_evict_idle(struct mill_log *log)
{
    if (log->now.mono_ns < log->evict_at_ns) {
        return 0;
    }
    uint32_t freed = 0;
    struct log_node *node = log->lru.next;
    for (uint32_t i = 0; i < MILL_LOG_EVICT_TRIES && node != &log->lru; i++) {
        struct mill_partition *partition = MILL_CONTAINER_OF(node, struct mill_partition, lru);
        node = node->next;
        freed += evict_of(partition);
    }
    if (log_list_empty(&log->lru)) {
        log->evict_at_ns = MILL_NEVER;
        mill_extents_trim(log->config.extents);
    } else if (freed == 0) {
        log->evict_at_ns = log->now.mono_ns + MILL_NS_PER_S;
    }
    return freed;
}
