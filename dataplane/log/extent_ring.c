/* SPDX-License-Identifier: Apache-2.0 */
/* The extents of partitions: growth, the sparse index, eviction. Owner core only; nothing here
 * allocates but extents, nothing waits: what cannot be had now is tried again next turn. */
#include "dataplane/log/log_types.h"

#include <errno.h>

/* --- cold extents: order of use and budget ---------------------------------------------------- */

static void cold_leave(struct mill_log *log, uint32_t extent)
{
    struct log_extent *e = &log->extents[extent];
    if (e->cold_prev == MILL_LOG_NONE) {
        log->cold_oldest = e->cold_next;
    } else {
        log->extents[e->cold_prev].cold_next = e->cold_next;
    }
    if (e->cold_next == MILL_LOG_NONE) {
        log->cold_newest = e->cold_prev;
    } else {
        log->extents[e->cold_next].cold_prev = e->cold_prev;
    }
}

static void cold_append(struct mill_log *log, uint32_t extent)
{
    struct log_extent *e = &log->extents[extent];
    e->cold_prev = log->cold_newest;
    e->cold_next = MILL_LOG_NONE;
    if (log->cold_newest == MILL_LOG_NONE) {
        log->cold_oldest = extent;
    } else {
        log->extents[log->cold_newest].cold_next = extent;
    }
    log->cold_newest = extent;
}

void mill_log_cold_join(struct mill_log *log, uint32_t extent, bool unread)
{
    struct log_extent *e = &log->extents[extent];
    e->cold = true;
    e->unread = unread;
    log->unread_bytes += unread ? e->size_bytes : 0;
    cold_append(log, extent);
}

void mill_log_cold_used(struct mill_log *log, uint32_t extent)
{
    struct log_extent *e = &log->extents[extent];
    log->unread_bytes -= e->unread ? e->size_bytes : 0;
    e->unread = false;
    if (log->cold_newest != extent) {
        cold_leave(log, extent);
        cold_append(log, extent);
    }
}

void mill_log_cold_free(struct mill_log *log, uint32_t extent)
{
    log->stats.cold_bytes -= log->extents[extent].size_bytes;
    mill_extent_free(log->config.extents, extent);
}

/* --- a partition's list ----------------------------------------------------------------------- */

static void unlink_extent(struct mill_partition *partition, uint32_t extent)
{
    struct mill_log *log = partition->log;
    struct log_extent *e = &log->extents[extent];
    if (e->cold) {
        cold_leave(log, extent);
        log->stats.cold_bytes -= e->size_bytes;
        log->unread_bytes -= e->unread ? e->size_bytes : 0;
    }
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
    e->slot = partition->slot;
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
#ifdef MILL_MUTANT_LOG_LOANED_EVICTED
    return e->written_bytes == e->committed_bytes && e->posted_bytes == e->committed_bytes;
#endif
    return e->written_bytes == e->committed_bytes && e->posted_bytes == e->committed_bytes &&
           mill_loan_free(log->config.loans, extent);
}

static void evict(struct mill_partition *partition, uint32_t extent)
{
    unlink_extent(partition, extent);
    mill_extent_free(partition->log->config.extents, extent);
}

/* The partition that an extent of its list belongs to. */
static struct mill_partition *partition_of(struct mill_log *log, uint32_t extent)
{
    return &log->partitions[log->extents[extent].slot];
}

/* Frees the least recently used cold extent that nobody reads. ret: false: none in the tries. */
static bool evict_cold(struct mill_log *log)
{
    uint32_t extent = log->cold_oldest;
    for (uint32_t i = 0; i < MILL_LOG_EVICT_TRIES && extent != MILL_LOG_NONE; i++) {
        if (evictable(log, extent)) {
            evict(partition_of(log, extent), extent);
            return true;
        }
        extent = log->extents[extent].cold_next;
    }
    return false;
}

/* Frees one extent that is not needed: a cold one, which the files give back at any time, else one
 * of the least recently used partition that has one. ret: false when there is none within the
 * tries. */
static bool evict_one(struct mill_log *log)
{
#ifndef MILL_MUTANT_LOG_COLD_KEPT
    if (evict_cold(log)) {
        return true;
    }
#endif
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

static void extent_begin(struct mill_log *log, uint32_t extent)
{
    log->extents[extent] = (struct log_extent){
        .next = MILL_LOG_NONE,
        .prev = MILL_LOG_NONE,
        .size_bytes = mill_extent_size_bytes(log->config.extents, extent),
        .used_ns = log->now.mono_ns,
    };
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
        extent_begin(log, *ret_extent);
    }
    return r;
}

int mill_log_cold_take(struct mill_log *log, uint32_t size_bytes, bool wanted, uint32_t *ret_extent)
{
    uint64_t limit = log->config.limits.cold_max_bytes;
    uint32_t size = MILL_EXTENT_UNIT_BYTES;
    while (size < size_bytes) {
        size *= 2;
    }
    if (!wanted && log->unread_bytes + size > limit / 2) {
        return -EAGAIN; /* what nobody asked for yet never pushes out what somebody reads */
    }
#ifndef MILL_MUTANT_LOG_COLD_UNBOUNDED
    for (uint32_t i = 0; log->stats.cold_bytes + size > limit; i++) {
        if (i == MILL_LOG_EVICT_TRIES || !evict_cold(log)) {
            if (log->stats.cold_bytes == 0) {
                break; /* one may always be read, however large */
            }
            log->stats.cold_full += wanted ? 1 : 0;
            return -EAGAIN;
        }
    }
#endif
    int r = mill_extent_alloc(log->config.extents, size_bytes, ret_extent);
    r = r == -ENOSPC && wanted ? mill_log_extent_take(log, size_bytes, ret_extent) : r;
    if (r < 0) {
        return -EAGAIN;
    }
    extent_begin(log, *ret_extent);
    mill_extent_publish(log->config.extents, *ret_extent, MILL_EXTENT_SCRATCH);
    log->stats.cold_bytes += log->extents[*ret_extent].size_bytes;
    return 0;
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
    uint32_t at = partition->last;
    uint32_t next = MILL_LOG_NONE;
    /* Readers of the tail begin there and leave the hint to those that lag. */
    bool tail = at != MILL_LOG_NONE && extents[at].from_offset <= offset;
    at = !tail && partition->hint != MILL_LOG_NONE ? partition->hint : at;
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
        partition->hint = tail ? partition->hint : next;
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
