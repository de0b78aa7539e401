/* SPDX-License-Identifier: Apache-2.0 */
/* After a kill: where in a last segment the walk may begin. The log below the recovery point was
 * synced, and a snapshot vouches for its producers; so the walk begins at the last index entry
 * below both, if the indexes up to there, which were not synced, are as appending made them. Else
 * it begins at the segment's start, and they are made anew. The store's thread only. */
#include "dataplane/store/load.h"

#include <string.h>

enum {
    CHUNK_BYTES = 256 * STORE_TIME_ENTRY_BYTES, /* of whole entries of either kind */
};

static_assert(CHUNK_BYTES % STORE_INDEX_ENTRY_BYTES == 0, "whole entries");

/* Entries of one index from its start on. */
struct entries {
    struct mill_store *store;
    int file;
    uint32_t entry_bytes;
    uint64_t size_bytes; /* of the file */
    uint64_t pos_bytes;  /* of the next entry */
    uint32_t chunk_bytes;
    uint8_t chunk[CHUNK_BYTES];
};

static int entries_open(struct entries *entries, struct mill_store *store,
                        struct store_partition *partition, struct store_segment *segment,
                        enum store_file_kind kind)
{
    entries->store = store;
    entries->file = mill_store_file(store, partition, segment, kind);
    entries->entry_bytes =
        kind == STORE_FILE_INDEX ? STORE_INDEX_ENTRY_BYTES : STORE_TIME_ENTRY_BYTES;
    entries->pos_bytes = 0;
    entries->chunk_bytes = 0;
    int64_t size = entries->file < 0 ? entries->file
                                     : store->calls->size(store->calls->context, entries->file);
    entries->size_bytes = size < 0 ? 0 : (uint64_t)size;
    return (int)MILL_MIN(size, 0);
}

/* ret: 1 and the next entry, 0 no whole one is left, -errno. */
static int entries_next(struct entries *entries, const uint8_t **ret_entry)
{
    uint32_t at = (uint32_t)(entries->pos_bytes % CHUNK_BYTES);
    if (entries->size_bytes - entries->pos_bytes < entries->entry_bytes) {
        return 0;
    }
    if (at == 0) {
        uint64_t left = entries->size_bytes - entries->pos_bytes;
        entries->chunk_bytes = (uint32_t)MILL_MIN(left, (uint64_t)CHUNK_BYTES);
        int r = mill_store_read_all(entries->store->calls, entries->file, entries->chunk,
                                    entries->chunk_bytes, entries->pos_bytes);
        if (r < 0) {
            return r;
        }
    }
    *ret_entry = entries->chunk + at;
    entries->pos_bytes += entries->entry_bytes;
    return 1;
}

/* Takes index entries of batches below the offset. ret: 1, 0 there is none or they do not rise,
 * -errno. */
static int index_take(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t offset, struct store_segment *to,
                      int64_t *ret_last)
{
    struct entries entries;
    const uint8_t *entry = NULL;
    int64_t last = segment->base_offset - 1;
    int r = entries_open(&entries, store, partition, segment, STORE_FILE_INDEX);
    r = r < 0 ? r : entries_next(&entries, &entry);
    for (; r == 1; r = entries_next(&entries, &entry)) {
        int64_t next = segment->base_offset + mill_load_be32(entry);
        if (next >= offset) {
            break;
        }
#ifndef MILL_MUTANT_STORE_RESUME_BELIEVES
        if (next <= last || mill_load_be32(entry + 4) <= to->log_bytes) {
            return 0;
        }
#endif
        last = next;
        to->log_bytes = mill_load_be32(entry + 4);
        to->index_bytes += STORE_INDEX_ENTRY_BYTES;
    }
    *ret_last = last;
    return r < 0 ? r : to->index_bytes > 0;
}

/* Takes time entries up to the batch that ends at last. ret: as index_take. */
static int times_take(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t last, struct store_segment *to)
{
    struct entries entries;
    const uint8_t *entry = NULL;
    int r = entries_open(&entries, store, partition, segment, STORE_FILE_TIMEINDEX);
    r = r < 0 ? r : entries_next(&entries, &entry);
    for (; r == 1; r = entries_next(&entries, &entry)) {
        int64_t offset = segment->base_offset + mill_load_be32(entry + 8);
        int64_t timestamp = (int64_t)mill_load_be64(entry);
        if (offset > last) {
            break;
        }
        if (timestamp <= to->time_last || offset < to->max_offset) {
            return 0;
        }
        to->max_timestamp = to->time_last = timestamp;
        to->max_offset = offset;
        to->time_bytes += STORE_TIME_ENTRY_BYTES;
    }
    return r < 0 ? r : 1;
}

/* Offset of the last time entry of those that rise: neither index was synced, and what one lost the
 * other may have. ret: 0, -errno. */
static int times_end(struct mill_store *store, struct store_partition *partition,
                     struct store_segment *segment, int64_t *ret_offset)
{
    struct entries entries;
    const uint8_t *entry = NULL;
    int64_t time = INT64_MIN;
    *ret_offset = segment->base_offset - 1;
    int r = entries_open(&entries, store, partition, segment, STORE_FILE_TIMEINDEX);
    r = r < 0 ? r : entries_next(&entries, &entry);
    for (; r == 1; r = entries_next(&entries, &entry)) {
        int64_t offset = segment->base_offset + mill_load_be32(entry + 8);
        if ((int64_t)mill_load_be64(entry) <= time || offset <= *ret_offset) {
            break;
        }
        time = (int64_t)mill_load_be64(entry);
        *ret_offset = offset;
    }
    return MILL_MIN(r, 0);
}

static int header_read(struct mill_store *store, int file, uint64_t pos_bytes, uint64_t end_bytes,
                       struct mill_batch *ret_batch)
{
    uint8_t header[MILL_BATCH_HEADER_BYTES];
    if (pos_bytes > end_bytes || end_bytes - pos_bytes < sizeof(header)) {
        return 0;
    }
    int r = mill_store_read_all(store->calls, file, header, sizeof(header), pos_bytes);
    if (r == 0) {
        mill_batch_read(header, ret_batch);
    }
    return r < 0 ? r : ret_batch->magic == 2 && mill_batch_has_offsets(ret_batch);
}

int mill_store_resume(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t offset)
{
    const struct mill_file_calls *calls = store->calls;
    struct store_segment to = mill_store_segment_new(segment->base_offset);
    struct mill_batch first;
    struct mill_batch batch;
    int64_t last = 0;
    int64_t timed = 0;
    int r = times_end(store, partition, segment, &timed);
#ifdef MILL_MUTANT_STORE_RESUME_UNTIMED
    timed = INT64_MAX - 1;
#endif
    r = r < 0 ? r : index_take(store, partition, segment, MILL_MIN(offset, timed + 1), &to, &last);
    r = r < 1 ? r : times_take(store, partition, segment, last, &to);
    int file = r < 1 ? 0 : mill_store_file(store, partition, segment, STORE_FILE_LOG);
    int64_t size = r < 1 || file < 0 ? file : calls->size(calls->context, file);
    if (r < 1 || size < 0) {
        return r < 1 ? r : (int)size;
    }
    r = header_read(store, file, 0, (uint64_t)size, &first);
    r = r < 1 ? r : header_read(store, file, to.log_bytes, (uint64_t)size, &batch);
    if (r < 1 || mill_batch_last_offset(&batch) != last ||
        batch.base_offset < segment->base_offset || batch.max_timestamp > to.max_timestamp) {
#ifndef MILL_MUTANT_STORE_RESUME_BELIEVES
        return MILL_MIN(r, 0);
#endif
    }
    to.first_timestamp = first.max_timestamp;
    to.next_offset = batch.base_offset;
    memcpy(to.files, segment->files, sizeof(to.files));
    *segment = to;
    return 0;
}
