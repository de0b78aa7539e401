/* SPDX-License-Identifier: Apache-2.0 */
/* Producer state gathered from batches while a partition loads: the last five of each producer, as
 * the log keeps them. The store's thread only; lives from load to OPENED. ref: KIP-98 */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(int64_t id)
{
    uint64_t mixed = (uint64_t)id * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(mixed >> 32);
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
    memset(buckets, 0, 2 * capacity * sizeof(buckets[0]));
    for (uint32_t i = 0; i < producers->length; i++) {
        uint32_t at = hash_of(entries[i].producer_id) & (2 * capacity - 1);
        while (buckets[at] != 0) {
            at = (at + 1) & (2 * capacity - 1);
        }
        buckets[at] = i + 1;
    }
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

void mill_store_producers_free(struct store_producers *producers)
{
    free(producers->entries);
    free(producers->buckets);
    *producers = (struct store_producers){0};
}
