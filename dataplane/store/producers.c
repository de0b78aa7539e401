/* SPDX-License-Identifier: Apache-2.0 */
/* Producer state as of what the files hold: the last five batches of each producer, as the log
 * keeps them; read from a snapshot and batches when a partition loads, kept up as batches are
 * written, so that a snapshot can be written at any time. The store's thread only. ref: KIP-98 */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(int64_t id)
{
    uint64_t mixed = (uint64_t)id * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(mixed >> 32);
}

static void buckets_fill(struct store_producers *producers)
{
    uint32_t mask = 2 * producers->capacity - 1;
    memset(producers->buckets, 0, 2 * producers->capacity * sizeof(producers->buckets[0]));
    for (uint32_t i = 0; i < producers->length; i++) {
        uint32_t at = hash_of(producers->entries[i].producer_id) & mask;
        while (producers->buckets[at] != 0) {
            at = (at + 1) & mask;
        }
        producers->buckets[at] = i + 1;
    }
}

static int grow(struct store_producers *producers)
{
    uint32_t capacity = producers->capacity ? producers->capacity * 2 : 64;
    struct store_producer *entries = realloc(producers->entries, capacity * sizeof(entries[0]));
    if (!entries) {
        return -ENOMEM;
    }
    producers->entries = entries;
    uint32_t *buckets = realloc(producers->buckets, 2 * capacity * sizeof(buckets[0]));
    if (!buckets) {
        return -ENOMEM;
    }
    producers->buckets = buckets;
    producers->capacity = capacity;
    buckets_fill(producers);
    return 0;
}

static struct store_producer *find_or_make(struct store_producers *producers, int64_t id)
{
    if (producers->length == producers->capacity && grow(producers) < 0) {
        return NULL;
    }
    uint32_t mask = 2 * producers->capacity - 1;
    uint32_t at = hash_of(id) & mask;
    while (producers->buckets[at] != 0) {
        struct store_producer *entry = &producers->entries[producers->buckets[at] - 1];
        if (entry->producer_id == id) {
            return entry;
        }
        at = (at + 1) & mask;
    }
    producers->buckets[at] = ++producers->length;
    struct store_producer *entry = &producers->entries[producers->length - 1];
    *entry = (struct store_producer){.producer_id = id, .epoch = -1};
    return entry;
}

int mill_store_producer_note(struct store_producers *producers, const struct mill_batch *batch)
{
    if (batch->producer_id < 0 || (batch->attributes & MILL_BATCH_CONTROL)) {
        return 0;
    }
    struct store_producer *entry = find_or_make(producers, batch->producer_id);
    if (!entry) {
        producers->incomplete = true;
        return -ENOMEM;
    }
    if (entry->epoch != batch->producer_epoch) {
        entry->epoch = batch->producer_epoch;
        entry->count = 0;
    }
    if (entry->count == MILL_LOG_PRODUCER_BATCHES) {
        entry->count--;
        memmove(&entry->batches[0], &entry->batches[1], entry->count * sizeof(entry->batches[0]));
    }
    entry->seen = ++producers->clock;
    entry->batches[entry->count++] = (struct mill_link_producer){
        .producer_id = batch->producer_id,
        .base_offset = batch->base_offset,
        .last_offset = mill_batch_last_offset(batch),
        .timestamp = batch->max_timestamp,
        .first_sequence = batch->base_sequence,
        .epoch = batch->producer_epoch,
    };
    return 0;
}

int64_t mill_store_producer_last(const struct store_producers *producers, int64_t producer_id)
{
    uint32_t mask = 2 * producers->capacity - 1;
    uint32_t at = producers->capacity > 0 ? hash_of(producer_id) & mask : 0;
    while (producers->capacity > 0 && producers->buckets[at] != 0) {
        const struct store_producer *entry = &producers->entries[producers->buckets[at] - 1];
        if (entry->producer_id == producer_id && entry->count > 0) {
            return entry->batches[entry->count - 1].last_offset;
        }
        at = (at + 1) & mask;
    }
    return -1;
}

static int by_seen(const void *a, const void *b)
{
    const struct store_producer *left = a;
    const struct store_producer *right = b;
    return left->seen < right->seen ? -1 : left->seen > right->seen;
}

void mill_store_producers_trim(struct store_producers *producers, int64_t oldest_ms, uint32_t max)
{
    uint32_t kept = 0;
    if (producers->length == 0) {
        return;
    }
    qsort(producers->entries, producers->length, sizeof(producers->entries[0]), by_seen);
    uint32_t first = producers->length - MILL_MIN(producers->length, max);
    for (uint32_t i = first; i < producers->length; i++) {
        const struct store_producer *entry = &producers->entries[i];
        int64_t newest = entry->batches[entry->count - 1].timestamp;
        if (newest < 0 || newest >= oldest_ms) {
            producers->entries[kept++] = *entry;
        }
    }
    producers->length = kept;
    buckets_fill(producers);
}

void mill_store_producers_free(struct store_producers *producers)
{
    free(producers->entries);
    free(producers->buckets);
    *producers = (struct store_producers){0};
}
