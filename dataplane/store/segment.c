/* SPDX-License-Identifier: Apache-2.0 */
/* Segments in Kafka's format: batches back to back in .log; .index and .timeindex entries every
 * index.interval.bytes; rolling by size, age, full index and offset range. The store's thread only.
 */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

/* --- numbers --------------------------------------------------------------------------------- */

static uint64_t index_max(const struct store_partition *partition, uint32_t entry_bytes)
{
    uint64_t limit = (uint64_t)MILL_MAX(partition->settings.segment_index_bytes, 12);
    return limit / entry_bytes * entry_bytes;
}

void mill_store_account(const struct store_partition *partition, struct store_segment *segment,
                        const struct mill_batch *batch, struct store_entries *entries)
{
    int64_t last = mill_batch_last_offset(batch);
    uint32_t size = mill_batch_size_bytes(batch);
    if (batch->max_timestamp > segment->max_timestamp) {
        segment->max_timestamp = batch->max_timestamp;
        segment->max_offset = last;
    }
    if (segment->first_timestamp == -1) {
        segment->first_timestamp = batch->max_timestamp;
    }
    if (segment->since_index > (uint64_t)MILL_MAX(partition->settings.index_interval_bytes, 0)) {
        uint8_t *at = entries->index + entries->index_count++ * STORE_INDEX_ENTRY_BYTES;
#ifdef MILL_MUTANT_STORE_INDEX_ENTRY
        mill_store_be32(at, (uint32_t)(batch->base_offset - segment->base_offset));
#else
        mill_store_be32(at, (uint32_t)(last - segment->base_offset));
#endif
        mill_store_be32(at + 4, (uint32_t)segment->log_bytes);
        mill_store_time_entry(segment, entries);
        segment->since_index = 0;
    }
    segment->since_index += size;
    segment->log_bytes += size;
    segment->next_offset = last + 1;
}

/* --- rolling --------------------------------------------------------------------------------- */

struct store_segment mill_store_segment_new(int64_t base_offset)
{
    return (struct store_segment){
        .base_offset = base_offset,
        .next_offset = base_offset,
        .max_timestamp = -1,
        .max_offset = -1,
        .time_last = -1,
        .first_timestamp = -1,
        .files = {-1, -1, -1, -1},
    };
}

struct store_segment *mill_store_segment_add(struct mill_store *store,
                                             struct store_partition *partition, int64_t base_offset)
{
    MILL_UNUSED(store);
    if (partition->segments_count == partition->segments_capacity) {
        uint32_t capacity = MILL_MAX(1u, partition->segments_capacity * 2);
        void *grown = realloc(partition->segments, capacity * sizeof(partition->segments[0]));
        if (!grown) {
            return NULL;
        }
        partition->segments = grown;
        partition->segments_capacity = capacity;
    }
    struct store_segment *segment = &partition->segments[partition->segments_count++];
    *segment = mill_store_segment_new(base_offset);
    return segment;
}

/* A compacted log is rolled in time to be compacted. */
static int64_t segment_ms(const struct mill_log_settings *settings)
{
    bool sooner = settings->compact && settings->max_compaction_lag_ms > 0;
    return sooner ? MILL_MIN(settings->segment_ms, settings->max_compaction_lag_ms)
                  : settings->segment_ms;
}

/* Entries: what the batches before it in this run add. */
static bool roll_due(const struct store_partition *partition, const struct store_segment *segment,
                     const struct store_entries *entries, const struct mill_batch *batch)
{
    const struct mill_log_settings *settings = &partition->settings;
    const struct store_waiting *waiting = partition->waiting;
    uint64_t size = mill_batch_size_bytes(batch);
    uint64_t index = entries->index_count + (waiting ? waiting->index_count : 0);
    uint64_t time = entries->time_count + (waiting ? waiting->time_count : 0);
    if (segment->log_bytes == 0) {
        return false;
    }
    return segment->log_bytes + size > (uint64_t)settings->segment_bytes ||
           segment->log_bytes + size > INT32_MAX ||
           mill_batch_last_offset(batch) - segment->base_offset > INT32_MAX ||
           segment->index_bytes + (index + 1) * STORE_INDEX_ENTRY_BYTES >
               index_max(partition, STORE_INDEX_ENTRY_BYTES) ||
           segment->time_bytes + (time + 2) * STORE_TIME_ENTRY_BYTES >
               index_max(partition, STORE_TIME_ENTRY_BYTES) ||
           (segment->first_timestamp >= 0 && segment_ms(settings) > 0 &&
            batch->max_timestamp - segment->first_timestamp > segment_ms(settings));
}

static int sync_kind(struct mill_store *store, struct store_partition *partition,
                     struct store_segment *segment, enum store_file_kind kind)
{
    if (kind == STORE_FILE_TXNINDEX && segment->txn_bytes == 0) {
        return 0; /* there is none */
    }
    int file = mill_store_file(store, partition, segment, kind);
    if (file < 0) {
        return file;
    }
    uint64_t took_ns = 0;
    int r = mill_store_sync_timed(store, file, &took_ns);
    if (kind == STORE_FILE_LOG) {
        mill_store_sync_count(store, took_ns);
    }
    return r;
}

int mill_store_segment_end(struct mill_store *store, struct store_partition *partition)
{
    struct store_segment *segment = &partition->segments[partition->segments_count - 1];
    struct store_entries entries = {.index_count = 0};
    int r = 0;
#ifndef MILL_MUTANT_STORE_WAITING_LOST
    r = mill_store_waiting_write(store, partition);
#endif
    struct store_segment next = *segment;
    mill_store_time_entry(&next, &entries);
    r = r < 0 ? r : mill_store_entries_write(store, partition, &next, &entries);
    if (r < 0) {
        memcpy(segment->files, next.files, sizeof(next.files));
        return r;
    }
    *segment = next;
    return 0;
}

void mill_store_points_moved(struct mill_store *store)
{
    uint64_t interval = (uint64_t)store->config.checkpoint_interval_ms * MILL_NS_PER_MS;
    if (store->checkpoint_at_ns == MILL_NEVER) {
        store->checkpoint_at_ns = store->now.mono_ns + interval;
    }
}

/* The names of its files are on the disk. */
static int dir_sync(struct mill_store *store, struct store_partition *partition)
{
    int r = partition->dir_unsynced ? store->calls->sync_dir(store->calls->context, partition->path)
                                    : 0;
    partition->dir_unsynced = partition->dir_unsynced && r < 0;
    return r;
}

/* Everything written is on the disk. */
static void synced(struct mill_store *store, struct store_partition *partition)
{
    partition->synced_offset = partition->written_offset;
    mill_store_points_moved(store);
}

int mill_store_roll(struct mill_store *store, struct store_partition *partition,
                    int64_t base_offset)
{
    struct store_segment *segment = &partition->segments[partition->segments_count - 1];
    int r = mill_store_segment_end(store, partition);
    for (int kind = 0; r == 0 && kind < STORE_FILE_KINDS; kind++) {
        r = sync_kind(store, partition, segment, (enum store_file_kind)kind);
    }
    r = r < 0 ? r : dir_sync(store, partition);
    if (r < 0) {
        return r;
    }
    synced(store, partition);
    mill_store_cached_end(store, partition);
    mill_store_file_close(store, partition, segment);
    partition->dir_unsynced = true;
    segment = mill_store_segment_add(store, partition, base_offset);
    if (!segment) {
        return -ENOMEM;
    }
    /* At once: its name is what tells where the log goes on when all before is removed. */
    r = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    if (r < 0) {
        partition->segments_count--;
        return r;
    }
    r = mill_store_snapshot_write(store, partition);
    MILL_UNUSED(r); /* for lack of it a start walks from the one before */
    return 0;
}

/* --- appending ------------------------------------------------------------------------------- */

/* A segment with batches has both index files, though empty: Kafka's tools open them together. */
static int indexes_make(struct mill_store *store, struct store_partition *partition,
                        struct store_segment *segment)
{
    int r = mill_store_file(store, partition, segment, STORE_FILE_INDEX);
    r = r < 0 ? r : mill_store_file(store, partition, segment, STORE_FILE_TIMEINDEX);
    return MILL_MIN(r, 0);
}

static void producers_note(struct store_partition *partition, const uint8_t *bytes,
                           uint32_t size_bytes)
{
    for (uint32_t at = 0; at < size_bytes;) {
        struct mill_batch batch;
        mill_batch_read(bytes + at, &batch);
        at += mill_batch_size_bytes(&batch);
        if (batch.base_offset < partition->end_offset) {
            continue; /* kept by the take-up, and noted when it was found */
        }
        int r = mill_store_producer_note_at(&partition->producers, &batch,
                                            bytes + at - mill_batch_size_bytes(&batch));
        MILL_UNUSED(r); /* noted there: no snapshot is made of it */
    }
}

/* True when this batch aborts a transaction: an entry of .txnindex. What waited for space was noted
 * when it was found, its entries with it. */
static bool batch_aborts(const struct store_partition *partition, const struct mill_batch *batch,
                         const uint8_t *bytes, struct store_aborted *ret_aborted)
{
    if (batch->base_offset >= partition->end_offset) {
        return mill_store_txn_aborts(&partition->producers, batch, bytes, ret_aborted);
    }
#ifdef MILL_MUTANT_STORE_KEPT_ABORTED_LOST
    return false;
#endif
    for (uint32_t i = 0; i < partition->kept_aborted_count; i++) {
        if (partition->kept_aborted[i].last_offset == batch->base_offset) {
            *ret_aborted = partition->kept_aborted[i];
            return true;
        }
    }
    return false;
}

/* Writes one run of batches into the active segment. ret_done: bytes of it. */
static int append_run(struct mill_store *store, struct store_partition *partition,
                      const uint8_t *bytes, uint32_t size_bytes, uint32_t *ret_done)
{
    struct store_segment *segment = &partition->segments[partition->segments_count - 1];
    struct store_segment next = *segment;
    struct store_entries entries = {.index_count = 0};
    uint32_t size = 0;
    bool producers = false;
    while (size < size_bytes && entries.index_count < STORE_BATCH_ENTRIES) {
        struct mill_batch batch;
        mill_batch_read(bytes + size, &batch);
        struct store_aborted aborted;
        bool control = (batch.attributes & MILL_BATCH_CONTROL) != 0;
        bool begins = control;
#ifdef MILL_MUTANT_STORE_TXN_RUN
        begins = false;
#endif
        /* A marker begins a run: what it ends was noted with the run before. */
        if (roll_due(partition, &next, &entries, &batch) || (begins && size > 0)) {
            break;
        }
        if (control && batch_aborts(partition, &batch, bytes + size, &aborted)) {
            mill_store_txn_entry(&entries, &aborted);
        }
        mill_store_account(partition, &next, &batch, &entries);
        producers = producers || batch.producer_id >= 0;
        size += mill_batch_size_bytes(&batch);
    }
    int r = segment->log_bytes == 0 ? indexes_make(store, partition, segment) : 0;
    bool waits = mill_store_waiting_room(partition, &entries);
    if (r == 0 && !waits) {
        r = mill_store_waiting_write(store, partition);
        waits = r == 0 && mill_store_waiting_room(partition, &entries);
    }
    int file = r < 0 ? r : mill_store_file(store, partition, segment, STORE_FILE_LOG);
    r = file < 0 ? file : mill_store_write_all(store->calls, file, bytes, size, segment->log_bytes);
    if (store->window_file == file) {
        store->window_file = -1; /* it may have held bytes of a try before */
    }
    memcpy(next.files, segment->files, sizeof(next.files));
    next.index_bytes = segment->index_bytes;
    next.time_bytes = segment->time_bytes;
    r = r < 0 || waits ? r : mill_store_entries_write(store, partition, &next, &entries);
    if (r < 0) {
        memcpy(segment->files, next.files, sizeof(next.files));
        return r;
    }
    if (waits) {
        mill_store_waiting_add(partition, &entries);
    }
    *segment = next;
    mill_store_cached(store, partition, size);
    partition->written_offset = segment->next_offset;
    if (producers) {
        producers_note(partition, bytes, size);
    }
    *ret_done += size;
    return 0;
}

int64_t mill_store_first_timestamp(struct mill_store *store, struct store_partition *partition,
                                   struct store_segment *segment)
{
    if (segment->first_timestamp == STORE_TIME_UNREAD) {
        uint8_t header[MILL_BATCH_HEADER_BYTES];
        struct mill_batch first;
        int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
        if (file >= 0 && mill_store_read_all(store->calls, file, header, sizeof(header), 0) == 0) {
            mill_batch_read(header, &first);
            segment->first_timestamp = first.max_timestamp;
        }
    }
    return MILL_MAX(segment->first_timestamp, (int64_t)-1);
}

int mill_store_append(struct mill_store *store, struct store_partition *partition,
                      const uint8_t *bytes, uint32_t size_bytes, uint32_t *ret_done)
{
    static const struct store_entries none;
    *ret_done = 0;
#ifdef MILL_MUTANT_STORE_WRITTEN_KEPT
    memcpy(malloc(size_bytes), bytes, size_bytes);
#endif
#ifndef MILL_MUTANT_STORE_AGE_LOST
    mill_store_first_timestamp(store, partition,
                               &partition->segments[partition->segments_count - 1]);
#endif
    while (*ret_done < size_bytes) {
        struct mill_batch batch;
        mill_batch_read(bytes + *ret_done, &batch);
        int r = 0;
        if (roll_due(partition, &partition->segments[partition->segments_count - 1], &none,
                     &batch)) {
            r = mill_store_roll(store, partition, batch.base_offset);
        }
        r = r < 0
                ? r
                : append_run(store, partition, bytes + *ret_done, size_bytes - *ret_done, ret_done);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int mill_store_sync(struct mill_store *store, struct store_partition *partition)
{
    int r = sync_kind(store, partition, &partition->segments[partition->segments_count - 1],
                      STORE_FILE_LOG);
    r = r < 0 ? r : dir_sync(store, partition);
    if (r == 0) {
        synced(store, partition);
    }
    return r;
}

/* --- walking and looking up ------------------------------------------------------------------ */

static int crc_of(struct mill_store *store, int file, uint64_t pos, uint32_t size, uint64_t end,
                  uint32_t *ret_crc)
{
    uint32_t crc = MILL_CRC32C_START;
    uint32_t at = MILL_BATCH_SUMMED_AT;
    while (at < size) {
        int error = 0;
        uint32_t part = MILL_MIN(size - at, (uint32_t)STORE_WINDOW_BYTES / 2);
        const uint8_t *bytes =
            mill_store_peek(store, file, pos + at, part, STORE_WINDOW_BYTES, end, &error);
        if (!bytes) {
            return error;
        }
        crc = mill_crc32c_more(crc, bytes, part);
        at += part;
    }
    *ret_crc = mill_crc32c_end(crc);
    return 0;
}

/* A walk over headers reads what lies between them only where that is less than to ask again. */
static uint32_t headers_ahead(uint32_t ahead_bytes, uint32_t batch_bytes)
{
    return batch_bytes > ahead_bytes ? (uint32_t)STORE_HEADER_AHEAD_BYTES
                                     : MILL_MIN(ahead_bytes * 2, (uint32_t)STORE_WINDOW_BYTES);
}

int64_t mill_store_segment_limit(const struct store_segment *segment, int64_t end_offset)
{
#ifdef MILL_MUTANT_STORE_OFFSETS_UNBOUND
    return 0;
#endif
    int64_t most = segment->base_offset > INT64_MAX - INT32_MAX - 1
                       ? INT64_MAX
                       : segment->base_offset + INT32_MAX + 1;
    return MILL_MIN(end_offset, most);
}

int mill_store_walk(struct mill_store *store, int file, const struct store_walk *walk,
                    uint64_t *ret_good)
{
    uint64_t pos = walk->from_bytes;
    int64_t next_offset = walk->next_offset;
    uint32_t ahead = walk->crc ? STORE_WINDOW_BYTES : STORE_HEADER_AHEAD_BYTES;
#ifdef MILL_MUTANT_STORE_HEADERS_WHOLE
    ahead = STORE_WINDOW_BYTES;
#endif
    *ret_good = pos;
    while (walk->end_bytes - pos >= MILL_BATCH_HEADER_BYTES) {
        struct mill_batch batch;
        int error = 0;
        const uint8_t *bytes = mill_store_peek(store, file, pos, MILL_BATCH_HEADER_BYTES, ahead,
                                               walk->end_bytes, &error);
        if (!bytes) {
            return error;
        }
        mill_batch_read(bytes, &batch);
        if (batch.magic != 2 ||
            batch.batch_length < MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES ||
            mill_batch_size_bytes(&batch) > walk->end_bytes - pos ||
            batch.base_offset < next_offset || !mill_batch_has_offsets(&batch) ||
            (walk->limit_offset > 0 && mill_batch_last_offset(&batch) >= walk->limit_offset)) {
            break;
        }
        uint32_t crc = batch.crc;
        if (walk->crc) {
            int r = crc_of(store, file, pos, mill_batch_size_bytes(&batch), walk->end_bytes, &crc);
            if (r < 0) {
                return r;
            }
        }
        if (crc != batch.crc) {
            break;
        }
        int r = walk->each ? walk->each(walk->context, &batch, pos) : 0;
        if (r != 0) {
            return r;
        }
        if (!walk->crc) {
            ahead = headers_ahead(ahead, mill_batch_size_bytes(&batch));
        }
        pos += mill_batch_size_bytes(&batch);
        next_offset = mill_batch_last_offset(&batch) + 1;
        *ret_good = pos;
    }
    return 0;
}

struct store_segment *mill_store_segment_of(struct store_partition *partition, int64_t offset)
{
    uint32_t low = 0;
    uint32_t high = partition->segments_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (partition->segments[middle].base_offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : &partition->segments[low - 1];
}

int mill_store_lookup(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t offset, uint64_t *ret_pos)
{
    const struct mill_file_calls *files = store->calls;
    uint64_t low = 0;
    uint64_t high = segment->index_bytes / STORE_INDEX_ENTRY_BYTES;
    *ret_pos = 0;
    if (high == 0) {
        return 0;
    }
    int file = mill_store_file(store, partition, segment, STORE_FILE_INDEX);
    if (file < 0) {
        return file;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint8_t entry[STORE_INDEX_ENTRY_BYTES];
        int r = mill_store_read_all(files, file, entry, sizeof(entry),
                                    middle * STORE_INDEX_ENTRY_BYTES);
        if (r < 0) {
            return r;
        }
        if (segment->base_offset + mill_load_be32(entry) <= offset) {
            *ret_pos = mill_load_be32(entry + 4);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}
