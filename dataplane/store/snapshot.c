/* SPDX-License-Identifier: Apache-2.0 */
/* Producer snapshots in Kafka's format: the newest batch of each producer as of an offset, which
 * names the file. Written when a segment is rolled and at a clean end, without a sync: a start that
 * finds one torn takes an older one and walks further. The store's thread only.
 *
 * Kafka keeps one batch per producer, so that after its restart a retry of an older one in flight
 * is refused. Ours follow Kafka's entries as a trailer, within the sum; Kafka's readers stop before
 * it. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

enum {
    VERSION = 1,
    SUMMED_AT = 6, /* after version and CRC */
    HEAD_BYTES = 10,
    ENTRY_BYTES = 46,
    OLDER_BYTES = 24, /* of one older batch in the trailer */
    TRAILER_MAGIC = 0x4d574e31,
    TRAILER_HEAD_BYTES = 4,
    SNAPSHOT_BYTES_MAX = 256 << 20,
};

static void name_of(int64_t offset, char *ret_name, size_t capacity)
{
    snprintf(ret_name, capacity, "%020" PRId64 ".snapshot", offset);
}

static void entry_write(uint8_t *at, const struct store_producer *producer)
{
    int32_t last_sequence = -1; /* none of this epoch: a marker raised it */
    int64_t last_offset = -1;
    int64_t delta = 0;
    if (producer->count > 0) {
        const struct mill_link_producer *newest = &producer->batches[producer->count - 1];
        delta = newest->last_offset - newest->base_offset;
        last_sequence = (int32_t)(((uint32_t)newest->first_sequence + (uint32_t)delta) & INT32_MAX);
        last_offset = newest->last_offset;
    }
    mill_store_be64(at, (uint64_t)producer->producer_id);
    mill_store_be16(at + 8, (uint16_t)producer->epoch);
    mill_store_be32(at + 10, (uint32_t)last_sequence);
    mill_store_be64(at + 14, (uint64_t)last_offset);
    mill_store_be32(at + 22, (uint32_t)delta);
    mill_store_be64(at + 26, (uint64_t)producer->timestamp);
    mill_store_be32(at + 34, (uint32_t)producer->coordinator_epoch);
    mill_store_be64(at + 38, (uint64_t)producer->txn_first);
#ifdef MILL_MUTANT_STORE_SNAPSHOT_NO_TXN
    mill_store_be64(at + 38, (uint64_t)-1);
#endif
}

/* Batches besides the newest. */
static uint32_t older_count(const struct store_producer *producer)
{
    return producer->count > 0 ? producer->count - 1u : 0;
}

static size_t trailer_bytes(const struct store_producers *producers)
{
    size_t size = TRAILER_HEAD_BYTES;
    for (uint32_t i = 0; i < producers->length; i++) {
        size += 1 + older_count(&producers->entries[i]) * OLDER_BYTES;
    }
    return size;
}

/* Per producer, in the order of the entries: a count, then that many batches, oldest first. */
static void trailer_write(uint8_t *at, const struct store_producers *producers)
{
    mill_store_be32(at, TRAILER_MAGIC);
    at += TRAILER_HEAD_BYTES;
    for (uint32_t i = 0; i < producers->length; i++) {
        const struct store_producer *producer = &producers->entries[i];
        *at++ = (uint8_t)older_count(producer);
        for (uint32_t j = 0; j < older_count(producer); j++) {
            const struct mill_link_producer *batch = &producer->batches[j];
            mill_store_be32(at, (uint32_t)batch->first_sequence);
            mill_store_be32(at + 4, (uint32_t)(batch->last_offset - batch->base_offset));
            mill_store_be64(at + 8, (uint64_t)batch->last_offset);
            mill_store_be64(at + 16, (uint64_t)batch->timestamp);
            at += OLDER_BYTES;
        }
    }
}

int mill_store_snapshot_write(struct mill_store *store, struct store_partition *partition)
{
    struct store_producers *producers = &partition->producers;
    int64_t offset = partition->written_offset;
    bool empty = offset == partition->segments[0].base_offset;
    /* Producers of batches that wait for space are known, and are beyond the offset. */
    if (empty || offset == partition->snapshot_offset || producers->incomplete ||
        partition->kept_count > 0) {
        return 0;
    }
    mill_store_producers_trim(producers, store->now.wall_ms - store->config.producer_expiration_ms,
                              store->config.producers_max);
    size_t entries = HEAD_BYTES + (size_t)producers->length * ENTRY_BYTES;
    size_t size = entries + trailer_bytes(producers);
    uint8_t *bytes = malloc(size);
    if (!bytes) {
        return -ENOMEM;
    }
    mill_store_be16(bytes, VERSION);
    mill_store_be32(bytes + SUMMED_AT, producers->length);
    for (uint32_t i = 0; i < producers->length; i++) {
        entry_write(bytes + HEAD_BYTES + (size_t)i * ENTRY_BYTES, &producers->entries[i]);
    }
    trailer_write(bytes + entries, producers);
    mill_store_be32(bytes + 2, mill_crc32c(bytes + SUMMED_AT, size - SUMMED_AT));
    char name[STORE_SNAPSHOT_NAME_BYTES];
    name_of(offset, name, sizeof(name));
    int r = mill_store_write_aside(store->calls, partition->path, name, bytes, size, false);
    free(bytes);
    if (r == 0) {
        partition->snapshot_offset = offset;
    }
    return r;
}

/* The trailer of a file, entry by entry; empty when it is another's file, or not one we know. */
struct older {
    const uint8_t *at;
    size_t left_bytes;
};

static struct older older_open(const uint8_t *at, size_t size_bytes)
{
    bool ours = size_bytes >= TRAILER_HEAD_BYTES && mill_load_be32(at) == TRAILER_MAGIC;
    return ours ? (struct older){at + TRAILER_HEAD_BYTES, size_bytes - TRAILER_HEAD_BYTES}
                : (struct older){0};
}

/* Notes the next entry's older batches. ret: 0, -errno. */
static int older_take(struct store_producers *producers, struct older *older,
                      const struct mill_batch *newest)
{
    uint32_t count = older->left_bytes > 0 ? older->at[0] : 0;
#ifdef MILL_MUTANT_STORE_NEWEST_ONLY
    count = 0;
#endif
    if (older->left_bytes < 1 + (size_t)count * OLDER_BYTES || count >= MILL_LOG_PRODUCER_BATCHES) {
        older->left_bytes = 0;
        return 0;
    }
    const uint8_t *at = older->at + 1;
    for (uint32_t i = 0; i < count; i++, at += OLDER_BYTES) {
        struct mill_batch batch = *newest;
        int64_t last = (int64_t)mill_load_be64(at + 8);
        batch.base_sequence = (int32_t)mill_load_be32(at);
        batch.last_offset_delta = (int32_t)mill_load_be32(at + 4);
        if (batch.last_offset_delta < 0 || last < batch.last_offset_delta) {
            older->left_bytes = 0;
            return 0;
        }
        batch.base_offset = last - batch.last_offset_delta;
        batch.max_timestamp = (int64_t)mill_load_be64(at + 16);
        int r = mill_store_producer_note(producers, &batch, NULL);
        if (r < 0) {
            return r;
        }
    }
    older->left_bytes -= 1 + (size_t)count * OLDER_BYTES;
    older->at = at;
    return 0;
}

/* A snapshot tells of batches below its offset only; else it is of another log, whatever its sum
 * says. */
static bool entries_fit(const uint8_t *bytes, uint32_t count, int64_t offset)
{
#ifdef MILL_MUTANT_STORE_SNAPSHOT_ANY
    return true;
#endif
    for (const uint8_t *at = bytes; at < bytes + (size_t)count * ENTRY_BYTES; at += ENTRY_BYTES) {
        int64_t last = (int64_t)mill_load_be64(at + 14);
        int32_t delta = (int32_t)mill_load_be32(at + 22);
        if ((int64_t)mill_load_be64(at) < 0 || last < -1 || last >= offset || delta < 0 ||
            delta > MILL_MAX(last, (int64_t)0) || (int64_t)mill_load_be64(at + 38) >= offset) {
            return false;
        }
    }
    return true;
}

static int entries_take(struct store_producers *producers, const uint8_t *bytes, uint32_t count,
                        struct older older)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = bytes + (size_t)i * ENTRY_BYTES;
        int32_t last_sequence = (int32_t)mill_load_be32(at + 10);
        int32_t delta = (int32_t)mill_load_be32(at + 22);
        struct mill_batch newest = {
            .producer_id = (int64_t)mill_load_be64(at),
            .producer_epoch = (int16_t)mill_load_be16(at + 8),
            .base_sequence = (int32_t)(((uint32_t)last_sequence - (uint32_t)delta) & INT32_MAX),
            .base_offset = (int64_t)mill_load_be64(at + 14) - delta,
            .last_offset_delta = delta,
            .max_timestamp = (int64_t)mill_load_be64(at + 26),
        };
        int r = older_take(producers, &older, &newest);
        /* No batch of this epoch yet (a marker raised it): nothing to compare with. */
        if (r == 0 && last_sequence >= 0 && delta >= 0) {
            r = mill_store_producer_note(producers, &newest, NULL);
        }
        struct store_producer rest = {
            .producer_id = newest.producer_id,
            .epoch = newest.producer_epoch,
            .timestamp = newest.max_timestamp,
            .coordinator_epoch = (int32_t)mill_load_be32(at + 34),
            .txn_first = (int64_t)mill_load_be64(at + 38),
        };
        r = r < 0 ? r : mill_store_producer_restore(producers, &rest);
        if (r < 0) {
            return r;
        }
    }
    mill_store_txns_sort(producers);
    return 0;
}

int mill_store_snapshot_read(struct mill_store *store, struct store_partition *partition,
                             int64_t offset)
{
    char path[STORE_PATH_BYTES];
    char name[STORE_SNAPSHOT_NAME_BYTES];
    char *text = NULL;
    name_of(offset, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", partition->path, name);
    int size = mill_store_read_whole(store->calls, path, SNAPSHOT_BYTES_MAX, &text);
    if (size < 0) {
        return size == -ENOENT || size == -EFBIG ? -EBADMSG : size;
    }
    const uint8_t *bytes = (const uint8_t *)text;
    bool good = size >= HEAD_BYTES && mill_load_be16(bytes) == VERSION;
    uint32_t count = good ? mill_load_be32(bytes + SUMMED_AT) : 0;
    uint64_t entries = HEAD_BYTES + (uint64_t)count * ENTRY_BYTES;
    good = good && (uint64_t)size >= entries &&
           mill_load_be32(bytes + 2) == mill_crc32c(bytes + SUMMED_AT, (size_t)size - SUMMED_AT) &&
           entries_fit(bytes + HEAD_BYTES, count, offset);
    int r = -EBADMSG;
    if (good) {
        struct older older = older_open(bytes + entries, (size_t)size - entries);
        r = entries_take(&partition->producers, bytes + HEAD_BYTES, count, older);
    }
    free(text);
    if (r == 0) {
        partition->snapshot_offset = offset;
    }
    return r;
}

int mill_store_snapshot_remove(struct mill_store *store, const struct store_partition *partition,
                               int64_t offset)
{
    char path[STORE_PATH_BYTES];
    char name[STORE_SNAPSHOT_NAME_BYTES];
    name_of(offset, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", partition->path, name);
    int r = store->calls->remove_file(store->calls->context, path);
    return r == -ENOENT ? 0 : r;
}
