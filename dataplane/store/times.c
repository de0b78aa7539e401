/* SPDX-License-Identifier: Apache-2.0 */
/* Looking up a record by time: segments by their largest timestamp, the time index within one,
 * batch headers, and the records of one batch. The store's thread only; decompression is bounded.
 */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_BYTES_MAX = 1 << 30,
};

struct find {
    int64_t time_ms;
    int64_t from_offset; /* what lies before it is deleted, though still in the files */
    bool greatest;       /* the batch is enough: compaction may have left none of its records */
    bool found;
    uint64_t pos_bytes;
    struct mill_batch batch;
};

static int first_batch(void *context, const struct mill_batch *batch, uint64_t pos_bytes)
{
    struct find *find = context;
    bool empty = batch->records_count == 0 && !find->greatest;
    bool deleted = batch->base_offset + batch->last_offset_delta < find->from_offset;
    if (batch->max_timestamp < find->time_ms || empty || deleted) {
        return 0;
    }
    find->found = true;
    find->pos_bytes = pos_bytes;
    find->batch = *batch;
    return 1;
}

/* Goes through records for the first at or above time_ms. ret: 1 found, 0 not, -EBADMSG unreadable.
 */
static int record_find(const struct find *find, const uint8_t *records, uint32_t size_bytes,
                       int64_t *ret_offset, int64_t *ret_timestamp)
{
    const struct mill_batch *batch = &find->batch;
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, records, size_bytes);
    for (int32_t i = 0; i < batch->records_count; i++) {
        struct mill_record record;
        if (mill_record_next(&at, &record) < 0) {
            return -EBADMSG;
        }
        if (record.offset_delta < 0 || record.offset_delta > batch->last_offset_delta) {
            return -EBADMSG; /* of no record of this batch */
        }
        int64_t timestamp = mill_time_add(batch->base_timestamp, record.timestamp_delta);
        int64_t offset = batch->base_offset + record.offset_delta;
        if (timestamp >= find->time_ms && offset >= find->from_offset) {
            *ret_offset = offset;
#ifdef MILL_MUTANT_STORE_TIME_OFF
            *ret_offset += 1;
#endif
            *ret_timestamp = timestamp;
            return 1;
        }
    }
    return 0;
}

/* Reads one batch and looks at its records. ret: 1 found, 0 not in it, -errno. */
static int batch_find(struct mill_store *store, int file, const struct find *find,
                      int64_t *ret_offset, int64_t *ret_timestamp)
{
    const struct mill_batch *batch = &find->batch;
    int64_t first = MILL_MAX(batch->base_offset, find->from_offset);
    if (batch->attributes & MILL_BATCH_APPEND_TIME) {
        *ret_offset = first; /* every record has the batch's time */
        *ret_timestamp = batch->max_timestamp;
        return 1;
    }
    uint32_t size = mill_batch_size_bytes(batch);
    if (size > BATCH_BYTES_MAX) {
        return -EFBIG;
    }
    uint32_t packed = size - MILL_BATCH_HEADER_BYTES;
    uint8_t *bytes = malloc(MILL_MAX(packed, 1u));
    uint8_t *plain = NULL;
    int r = bytes ? mill_store_read_all(store->calls, file, bytes, packed,
                                        find->pos_bytes + MILL_BATCH_HEADER_BYTES)
                  : -ENOMEM;
    const uint8_t *records = bytes;
    int64_t made = packed;
    if (r == 0 && mill_batch_codec(batch) != MILL_CODEC_NONE) {
        made =
            mill_unpack(mill_batch_codec(batch), bytes, packed, MILL_STORE_PLAIN_MAX_BYTES, &plain);
        records = plain;
    }
    if (r == 0 && made >= 0) {
        r = record_find(find, records, (uint32_t)made, ret_offset, ret_timestamp);
    } else if (r == 0) {
        r = -EBADMSG;
    }
    if (r == -EBADMSG || (r == 0 && first == batch->base_offset)) {
        /* Its header promises such a record, but its inside cannot be read: begin at the batch. */
        *ret_offset = first;
        *ret_timestamp = batch->max_timestamp;
        r = 1;
    }
    free(plain);
    free(bytes);
    return r;
}

/* Position from which batches may hold time_ms: after the last time entry below it. */
static int time_start(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t time_ms, uint64_t *ret_pos)
{
    mill_store_waiting_show(store, partition, segment);
    uint64_t low = 0;
    uint64_t high = segment->time_bytes / STORE_TIME_ENTRY_BYTES;
    int64_t offset = segment->base_offset;
    int file = high == 0 ? 0 : mill_store_file(store, partition, segment, STORE_FILE_TIMEINDEX);
    if (file < 0) {
        return file;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint8_t entry[STORE_TIME_ENTRY_BYTES];
        int r = mill_store_read_all(store->calls, file, entry, sizeof(entry),
                                    middle * STORE_TIME_ENTRY_BYTES);
        if (r < 0) {
            return r;
        }
        if ((int64_t)mill_load_be64(entry) < time_ms) {
            offset = segment->base_offset + mill_load_be32(entry + 8);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return mill_store_lookup(store, partition, segment, offset, ret_pos);
}

static int segment_find(struct mill_store *store, struct store_partition *partition,
                        struct store_segment *segment, struct find *find, int64_t *ret_offset,
                        int64_t *ret_timestamp)
{
    struct store_walk walk = {
        .end_bytes = segment->log_bytes, .each = first_batch, .context = find};
    int r = time_start(store, partition, segment, find->time_ms, &walk.from_bytes);
    int file = r < 0 ? r : mill_store_file(store, partition, segment, STORE_FILE_LOG);
    uint64_t good;
    r = MILL_MIN(file, 0);
    /* A second round only behind the batch that the log's start lies in. */
    while (r == 0) {
        find->found = false;
        r = mill_store_walk(store, file, &walk, &good);
        if (r < 0 || !find->found) {
            return MILL_MIN(r, 0);
        }
        r = batch_find(store, file, find, ret_offset, ret_timestamp);
        walk.from_bytes = find->pos_bytes + mill_batch_size_bytes(&find->batch);
    }
    return r;
}

int mill_store_find_time(struct mill_store *store, struct store_partition *partition,
                         int64_t time_ms, int64_t from_offset, int64_t *ret_offset,
                         int64_t *ret_timestamp)
{
    bool greatest = time_ms == MILL_TIME_MAX;
    if (!partition->loaded || partition->status < 0) {
        return -EIO;
    }
    for (uint32_t i = 0; greatest && i < partition->segments_count; i++) {
        time_ms = MILL_MAX(time_ms, partition->segments[i].max_timestamp);
    }
    if (greatest && time_ms < 0) {
        return 0; /* no record has a time */
    }
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        struct store_segment *segment = &partition->segments[i];
        if (segment->max_timestamp < time_ms) {
            continue;
        }
        struct find find = {
            .time_ms = time_ms, .from_offset = greatest ? 0 : from_offset, .greatest = greatest};
        int r = segment_find(store, partition, segment, &find, ret_offset, ret_timestamp);
        if (r != 0) {
            return MILL_MIN(r, 0);
        }
    }
    return 0;
}
