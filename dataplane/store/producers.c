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

static struct store_producer *find(const struct store_producers *producers, int64_t id)
{
    uint32_t mask = 2 * producers->capacity - 1;
    uint32_t at = hash_of(id) & mask;
    while (producers->capacity > 0 && producers->buckets[at] != 0) {
        struct store_producer *entry = &producers->entries[producers->buckets[at] - 1];
        if (entry->producer_id == id) {
            return entry;
        }
        at = (at + 1) & mask;
    }
    return NULL;
}

static struct store_producer *find_or_make(struct store_producers *producers, int64_t id)
{
    struct store_producer *known = find(producers, id);
    if (known) {
        return known;
    }
    if (producers->length == producers->capacity && grow(producers) < 0) {
        return NULL;
    }
    uint32_t mask = 2 * producers->capacity - 1;
    uint32_t at = hash_of(id) & mask;
    while (producers->buckets[at] != 0) {
        at = (at + 1) & mask;
    }
    producers->buckets[at] = ++producers->length;
    struct store_producer *entry = &producers->entries[producers->length - 1];
    *entry = (struct store_producer){
        .producer_id = id, .txn_first = -1, .coordinator_epoch = -1, .epoch = -1};
    return entry;
}

/* --- transactions ----------------------------------------------------------------------------- */

static int txn_open(struct store_producers *producers, struct store_producer *entry,
                    int64_t first_offset)
{
    if (producers->open_length == producers->open_capacity) {
        uint32_t capacity = MILL_MAX(16u, producers->open_capacity * 2);
        struct store_txn *grown = realloc(producers->open, capacity * sizeof(grown[0]));
        if (!grown) {
            producers->incomplete = true;
            return -ENOMEM;
        }
        producers->open = grown;
        producers->open_capacity = capacity;
    }
    producers->open[producers->open_length++] =
        (struct store_txn){.first_offset = first_offset, .producer_id = entry->producer_id};
    entry->txn_first = first_offset;
    return 0;
}

static void txn_close(struct store_producers *producers, struct store_producer *entry)
{
    uint32_t at = 0;
    while (producers->open[at].first_offset != entry->txn_first) {
        at++;
    }
    producers->open_length--;
    memmove(&producers->open[at], &producers->open[at + 1],
            (producers->open_length - at) * sizeof(producers->open[0]));
    entry->txn_first = -1;
}

static int by_first(const void *a, const void *b)
{
    const struct store_txn *left = a;
    const struct store_txn *right = b;
    return left->first_offset < right->first_offset ? -1 : left->first_offset > right->first_offset;
}

void mill_store_txns_sort(struct store_producers *producers)
{
    if (producers->open_length > 0) {
        qsort(producers->open, producers->open_length, sizeof(producers->open[0]), by_first);
    }
}

bool mill_store_txn_aborts(const struct store_producers *producers, const struct mill_batch *batch,
                           const uint8_t *bytes, struct store_aborted *ret_aborted)
{
    struct mill_marker marker;
    if (!(batch->attributes & MILL_BATCH_CONTROL) ||
        mill_marker_read(bytes, mill_batch_size_bytes(batch), &marker) < 0 ||
        marker.type != MILL_MARKER_ABORT) {
        return false;
    }
    const struct store_producer *entry = find(producers, batch->producer_id);
    if (!entry || entry->txn_first < 0) {
        return false; /* it had written nothing here */
    }
    /* The first that is open then, or else what follows the marker. */
    const struct store_txn *open = producers->open;
    uint32_t next = open[0].first_offset == entry->txn_first ? 1 : 0;
    *ret_aborted = (struct store_aborted){
        .producer_id = batch->producer_id,
        .first_offset = entry->txn_first,
        .last_offset = batch->base_offset,
        .stable_offset = next < producers->open_length ? open[next].first_offset
                                                       : mill_batch_last_offset(batch) + 1,
    };
    return true;
}

/* --- noting ----------------------------------------------------------------------------------- */

static struct store_producer *entry_use(struct store_producers *producers,
                                        const struct mill_batch *batch)
{
    struct store_producer *entry = find_or_make(producers, batch->producer_id);
    if (!entry) {
        producers->incomplete = true;
        return NULL;
    }
    if (entry->epoch != batch->producer_epoch) {
        entry->epoch = batch->producer_epoch;
        entry->count = 0;
    }
    entry->seen = ++producers->clock;
    entry->timestamp = batch->max_timestamp;
    return entry;
}

static void batch_add(struct store_producer *entry, const struct mill_batch *batch)
{
    if (entry->count == MILL_LOG_PRODUCER_BATCHES) {
        entry->count--;
        memmove(&entry->batches[0], &entry->batches[1], entry->count * sizeof(entry->batches[0]));
    }
    entry->batches[entry->count++] = (struct mill_link_producer){
        .producer_id = batch->producer_id,
        .base_offset = batch->base_offset,
        .last_offset = mill_batch_last_offset(batch),
        .timestamp = batch->max_timestamp,
        .first_sequence = batch->base_sequence,
        .epoch = batch->producer_epoch,
    };
}

int mill_store_producer_note(struct store_producers *producers, const struct mill_batch *batch,
                             const struct mill_marker *marker)
{
    bool control = (batch->attributes & MILL_BATCH_CONTROL) != 0;
    /* Compaction keeps an empty one for its epoch. */
    bool bare = control && !marker && batch->records_count == 0;
    if (batch->producer_id < 0 || (control && !marker && !bare)) {
        return 0;
    }
    struct store_producer *entry = entry_use(producers, batch);
    if (!entry) {
        return -ENOMEM;
    }
    if (bare) {
        return 0;
    }
    if (control) {
        entry->coordinator_epoch = marker->coordinator_epoch;
        if (entry->txn_first >= 0) {
            txn_close(producers, entry);
        }
        return 0;
    }
    if (batch->base_sequence >= 0) {
        batch_add(entry, batch);
    }
    bool begins = (batch->attributes & MILL_BATCH_TRANSACTIONAL) && entry->txn_first < 0;
    return begins ? txn_open(producers, entry, batch->base_offset) : 0;
}

int mill_store_producer_note_at(struct store_producers *producers, const struct mill_batch *batch,
                                const uint8_t *bytes)
{
    struct mill_marker marker;
    bool ends = (batch->attributes & MILL_BATCH_CONTROL) && bytes &&
                mill_marker_read(bytes, mill_batch_size_bytes(batch), &marker) == 0;
    return mill_store_producer_note(producers, batch, ends ? &marker : NULL);
}

int mill_store_producer_restore(struct store_producers *producers,
                                const struct store_producer *from)
{
    struct mill_batch batch = {.producer_id = from->producer_id,
                               .producer_epoch = from->epoch,
                               .max_timestamp = from->timestamp};
    struct store_producer *entry = entry_use(producers, &batch);
    if (!entry) {
        return -ENOMEM;
    }
    entry->coordinator_epoch = from->coordinator_epoch;
    return from->txn_first >= 0 && entry->txn_first < 0
               ? txn_open(producers, entry, from->txn_first)
               : 0;
}

bool mill_store_producer_needs(const struct store_producers *producers,
                               const struct mill_batch *batch)
{
    const struct store_producer *entry = find(producers, batch->producer_id);
    if (!entry) {
        return false;
    }
    if (entry->count > 0) {
        return entry->batches[entry->count - 1].last_offset == mill_batch_last_offset(batch);
    }
#ifdef MILL_MUTANT_STORE_CLEAN_EPOCHS
    return false;
#endif
    return (batch->attributes & MILL_BATCH_CONTROL) && batch->producer_epoch == entry->epoch;
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
    for (uint32_t i = 0; i < producers->length; i++) {
        const struct store_producer *entry = &producers->entries[i];
        bool young = entry->timestamp < 0 || entry->timestamp >= oldest_ms;
        if ((i >= first && young) || entry->txn_first >= 0) {
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
    free(producers->open);
    *producers = (struct store_producers){0};
}
