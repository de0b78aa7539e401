/* SPDX-License-Identifier: Apache-2.0 */
/* Compaction and its steps. A step reads a bounded part of the log in the
 * store's turn, between writes and reads of the core, within log.cleaner.io.max.bytes.per.second.
 * Nobody waits for it: readers keep their extents, appends their ring. What is under way ends at
 * once when the partition is trimmed, deleted or no longer compacted. See clean_types.h. */
#include "dataplane/store/clean_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/log_line.h"

enum phase {
    PHASE_IDLE,
    PHASE_MAP,
    PHASE_COPY,
};

struct store_cleaner {
    enum phase phase;
    uint64_t due_ns; /* the next step, or look */
    struct store_partition *partition;
    int64_t now_ms;       /* of this compaction: horizons are counted from it */
    uint64_t begun_ns;    /* it was */
    int64_t dirty_offset; /* below, it was compacted before */
    int64_t upper_offset; /* at or above, nothing may be */
    int64_t segment;      /* base of the one being read */
    uint64_t pos_bytes;   /* in it */
    int64_t next_offset;  /* batches there begin at or above it */
    int64_t group_end;    /* base of the first segment after the group being copied */
    bool group_changed;
    bool half_swapped; /* the files are neither as before nor as after */
    bool whole;        /* all dirty segments are in the map */
    struct clean_map map;
    struct clean_txns txns;
    struct clean_output output;
    struct clean_work work;
    struct clean_buffer in;
    uint64_t bytes_before; /* statistics of this compaction */
    uint64_t bytes_after;
    uint64_t records_in;
    uint64_t records_out;
    struct mill_log_clean_stats stats;
    struct mill_log_clean_stats told; /* to the log */
    uint64_t tell_at_ns;
    bool has_slot;
    bool waits; /* for one */
};

#define SLOT_RETRY_NS (100 * MILL_NS_PER_MS)

/* --- slots ------------------------------------------------------------------------------------ */

static void slot_wait_end(struct mill_store *store)
{
    if (store->cleaner->waits) {
        atomic_fetch_sub(&store->config.clean_slots->waiting, 1);
        store->cleaner->waits = false;
    }
}

/* ret: this store may compact now. */
static bool slot_take(struct mill_store *store)
{
    struct mill_clean_slots *slots = store->config.clean_slots;
    struct store_cleaner *cleaner = store->cleaner;
    if (!slots) {
        return true;
    }
    uint32_t left = atomic_load(&slots->free);
    bool may = cleaner->waits || atomic_load(&slots->waiting) == 0;
    while (may && left > 0 && !atomic_compare_exchange_weak(&slots->free, &left, left - 1)) {
    }
    if (may && left > 0) {
        slot_wait_end(store);
        cleaner->has_slot = true;
        return true;
    }
    if (!cleaner->waits) {
        cleaner->waits = true;
        atomic_fetch_add(&slots->waiting, 1);
    }
    return false;
}

static void slot_give(struct mill_store *store)
{
    if (store->cleaner->has_slot) {
#ifndef MILL_MUTANT_STORE_CLEAN_SLOT_KEPT
        atomic_fetch_add(&store->config.clean_slots->free, 1);
#endif
        store->cleaner->has_slot = false;
    }
}

/* --- segments ----------------------------------------------------------------------------------
 */

/* The segment of this base: whatever takes one away ends the compaction before. */
static struct store_segment *segment_at(struct store_partition *partition, int64_t base_offset)
{
    struct store_segment *segment = mill_store_segment_of(partition, base_offset);
    MILL_ASSERT(segment && segment->base_offset == base_offset);
    return segment;
}

/* Base of the segment after this one: the active one has one before it at least. */
static int64_t base_after(const struct store_segment *segment)
{
    return segment[1].base_offset;
}

/* --- ends --------------------------------------------------------------------------------------
 */

/* remove: what was begun goes, too. */
static void end(struct mill_store *store, bool remove)
{
    struct store_cleaner *cleaner = store->cleaner;
    if (cleaner->output.open) {
        mill_clean_output_close(store, &cleaner->output);
    }
    if (cleaner->output.open && remove) {
        mill_clean_output_drop(store, cleaner->partition, &cleaner->output);
    }
    mill_clean_map_fini(&cleaner->map);
    mill_clean_txns_fini(&cleaner->txns);
    mill_clean_work_fini(&cleaner->work);
    free(cleaner->in.bytes);
    free(cleaner->output.bytes);
    cleaner->in = (struct clean_buffer){0};
    cleaner->output = (struct clean_output){0};
    cleaner->phase = PHASE_IDLE;
    cleaner->partition = NULL;
    slot_give(store);
}

void mill_store_clean_stop(struct mill_store *store, const struct store_partition *partition)
{
    struct store_cleaner *cleaner = store->cleaner;
    if (cleaner && cleaner->phase != PHASE_IDLE &&
        (!partition || cleaner->partition == partition)) {
        cleaner->stats.stopped++;
        end(store, true);
    }
}

/* What cannot be gone on with. Damage keeps the partition out of it until the next start; what
 * passes by itself is tried again; a write that failed fences, and so does any error in the middle
 * of a swap: memory names files that are gone. */
static void fail(struct mill_store *store, int r, bool writing)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_partition *partition = cleaner->partition;
    bool half = cleaner->half_swapped; /* only a start can go on, whatever the error was */
#ifdef MILL_MUTANT_STORE_SWAP_PASSING
    half = false;
#endif
    bool passing = !half && (mill_store_full(r) || r == -EMFILE || r == -ENFILE || r == -ENOMEM);
    cleaner->stats.failed++;
    end(store, true);
    if (passing) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_WARN, "store.compaction",
                          "partition=%s is not compacted now: %s", partition->path, strerror(-r));
        cleaner->due_ns =
            store->now.mono_ns + (uint64_t)store->config.clean_backoff_ms * MILL_NS_PER_MS;
    } else if (half || (writing && r != -EFBIG)) {
        mill_log_dirs_fence(store->dirs, partition->dir, r);
    } else {
        partition->uncleanable = true;
        mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.uncleanable",
                          "partition=%s is not compacted any more: %s", partition->path,
                          r == -EBADMSG ? "a batch is damaged, or too large when decompressed"
                          : r == -ENOBUFS
                              ? "log.cleaner.dedupe.buffer.size is too small for one batch"
                              : strerror(-r));
    }
}

/* All that could be is compacted: from here on it is dirty. */
static void finish(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_partition *partition = cleaner->partition;
    partition->clean_offset = cleaner->map.latest + 1;
    cleaner->stats.runs++;
#ifndef MILL_MUTANT_STORE_CLEAN_LAST_UNTOLD
    cleaner->stats.last_ns = store->now.mono_ns - cleaner->begun_ns;
    cleaner->stats.last_bytes_in = cleaner->bytes_before;
    cleaner->stats.last_bytes_out = cleaner->bytes_after;
    cleaner->stats.last_keys = cleaner->map.length;
    cleaner->stats.last_keys_max = cleaner->map.length_max;
#endif
    cleaner->stats.records_removed += cleaner->records_in - cleaner->records_out;
    mill_log_dirs_say(store->dirs, MILL_LEVEL_INFO, "store.compacted",
                      "partition=%s up to offset %" PRId64 ": %" PRIu64 " of %" PRIu64
                      " records, %" PRIu64 " of %" PRIu64 " bytes stay",
                      partition->path, partition->clean_offset, cleaner->records_out,
                      cleaner->records_in, cleaner->bytes_after, cleaner->bytes_before);
    end(store, true);
    mill_store_points_moved(store);
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* Reads whole batches from the position on, a step's worth, or one that is larger. ret: bytes of
 * them, 0 the segment is at its end, -errno. */
static int64_t read_batches(struct mill_store *store, struct store_segment *segment)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct mill_batch batch;
    uint64_t left = segment->log_bytes - cleaner->pos_bytes;
    if (left < MILL_BATCH_HEADER_BYTES) {
        return left == 0 ? 0 : -EBADMSG;
    }
    int file = mill_store_file(store, cleaner->partition, segment, STORE_FILE_LOG);
    uint64_t size = MILL_MIN(left, (uint64_t)CLEAN_STEP_BYTES);
    int r = file < 0 ? file : mill_clean_room(&cleaner->in, size);
    r = r < 0
            ? r
            : mill_store_read_all(store->calls, file, cleaner->in.bytes, size, cleaner->pos_bytes);
    if (r < 0) {
        return r;
    }
    mill_batch_read(cleaner->in.bytes, &batch);
    uint64_t first = mill_batch_size_bytes(&batch);
    if (batch.batch_length < MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES || first > left ||
        first > CLEAN_BATCH_BYTES_MAX) {
        return -EBADMSG;
    }
    if (first > size) {
        size = first;
        r = mill_clean_room(&cleaner->in, size);
        r = r < 0 ? r
                  : mill_store_read_all(store->calls, file, cleaner->in.bytes, size,
                                        cleaner->pos_bytes);
    }
    return r < 0 ? r : (int64_t)size;
}

/* Reading goes on at the start of the segment with this base. */
static void segment_begin(struct store_cleaner *cleaner, int64_t base_offset)
{
    cleaner->segment = base_offset;
    cleaner->pos_bytes = 0;
    cleaner->next_offset = base_offset;
}

/* Offsets are in no sum: those of a batch lie behind the one before it, and within its segment. */
static bool is_in_place(const struct store_cleaner *cleaner, const struct store_segment *segment,
                        const struct mill_batch *batch)
{
#ifdef MILL_MUTANT_STORE_CLEAN_OFFSETS
    return batch->last_offset_delta >= 0;
#endif
    return mill_batch_has_offsets(batch) && batch->base_offset >= cleaner->next_offset &&
           mill_batch_last_offset(batch) < base_after(segment);
}

/* The next whole batch of what was read, its sum checked: damage must not be written again with a
 * right one. ret: its size, 0 it goes on behind what was read, -EBADMSG. */
static int64_t batch_next(struct store_cleaner *cleaner, const struct store_segment *segment,
                          const uint8_t *bytes, uint64_t size_bytes, struct mill_batch *ret_batch)
{
    if (size_bytes < MILL_BATCH_HEADER_BYTES) {
        return 0;
    }
    mill_batch_read(bytes, ret_batch);
    if (ret_batch->magic != 2 ||
        ret_batch->batch_length < MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES ||
        !is_in_place(cleaner, segment, ret_batch) || ret_batch->records_count < 0) {
        return -EBADMSG;
    }
    uint32_t size = mill_batch_size_bytes(ret_batch);
    if (size > size_bytes) {
        return 0;
    }
#ifndef MILL_MUTANT_STORE_CLEAN_DAMAGE
    if (mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size - MILL_BATCH_SUMMED_AT) != ret_batch->crc) {
        return -EBADMSG;
    }
#endif
    return size;
}

/* The batch was taken: what follows lies behind it. */
static void batch_taken(struct store_cleaner *cleaner, const struct mill_batch *batch)
{
    cleaner->next_offset = mill_batch_last_offset(batch) + 1;
}

/* Whether a control batch ends a transaction. ret: 1 commit, 0 abort, -1 another or none. */
static int marker_of(const struct mill_batch *batch, const uint8_t *bytes)
{
    struct mill_buf buf;
    struct mill_cursor at =
        mill_cursor_over(&buf, bytes + MILL_BATCH_HEADER_BYTES,
                         mill_batch_size_bytes(batch) - MILL_BATCH_HEADER_BYTES);
    struct mill_record record;
    if (batch->records_count < 1 || mill_record_next(&at, &record) < 0 || record.key_length < 4) {
        return -1;
    }
    uint16_t type = mill_load_be16(record.key.buf->data + record.key.pos_bytes + 2);
    return type <= 1 ? type : -1;
}

/* --- the map -----------------------------------------------------------------------------------
 */

/* Notes the keys of one batch. ret: 1 the map is full, 0, -errno. */
static int map_batch(struct store_cleaner *cleaner, const struct mill_batch *batch,
                     const uint8_t *bytes)
{
    struct clean_plain plain;
    struct mill_buf buf;
    int r = mill_clean_unpack(batch, bytes, &plain);
    struct mill_cursor at = mill_cursor_over(&buf, plain.bytes, plain.size_bytes);
    for (int32_t i = 0; r == 0 && i < batch->records_count; i++) {
        struct mill_record record;
        r = mill_record_next(&at, &record);
        if (r == 0 && (record.offset_delta < 0 || record.offset_delta > batch->last_offset_delta)) {
            r = -EBADMSG; /* taken on its header; it would hide later values of its keys */
        }
        int64_t offset = r == 0 ? batch->base_offset + record.offset_delta : 0;
        if (r == 0 && record.key_length >= 0 && offset >= cleaner->dirty_offset) {
            const uint8_t *key = record.key.buf->data + record.key.pos_bytes;
            r = mill_clean_map_put(&cleaner->map, key, (uint32_t)record.key_length, offset) ? 0 : 1;
        }
    }
    free(plain.own);
    return r;
}

/* One batch of the dirty part. ret: as map_batch. */
static int map_one(struct store_cleaner *cleaner, const struct mill_batch *batch,
                   const uint8_t *bytes)
{
    struct clean_aborted aborted;
    bool needed = false;
    int r = 0;
    if (batch->attributes & MILL_BATCH_CONTROL) {
        int marker = marker_of(batch, bytes);
        if (marker >= 0) {
            r = mill_clean_txns_marker(&cleaner->txns, batch, marker == 1, &aborted, &needed);
            r = MILL_MIN(r, 0);
        }
    } else {
        r = mill_clean_txns_batch(&cleaner->txns, batch);
        /* What was aborted is no value of its key. */
        r = r < 0 ? r : r == 1 ? 0 : map_batch(cleaner, batch, bytes);
    }
    if (r == 0 && mill_batch_last_offset(batch) >= cleaner->dirty_offset) {
        cleaner->map.latest = mill_batch_last_offset(batch);
    }
    return r;
}

static void copy_begin(struct mill_store *store);

/* ret: bytes read, -errno. */
static int64_t map_step(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_segment *segment = segment_at(cleaner->partition, cleaner->segment);
    int64_t size = read_batches(store, segment);
    int64_t done = 0;
    int r = 0;
    while (r == 0 && done < size) {
        struct mill_batch batch;
        const uint8_t *bytes = cleaner->in.bytes + done;
        int64_t one = batch_next(cleaner, segment, bytes, (uint64_t)(size - done), &batch);
        if (one <= 0) {
            r = (int)one;
            break;
        }
        r = map_one(cleaner, &batch, bytes);
        if (r == 0) {
            done += one;
            batch_taken(cleaner, &batch);
        }
    }
    if (size < 0 || r < 0) {
        return size < 0 ? size : r;
    }
    cleaner->pos_bytes += (uint64_t)done;
    if (r == 1 && cleaner->map.latest < cleaner->dirty_offset) {
        return -ENOBUFS;
    }
    if (size == 0) {
        /* Nothing above the last batch lies in this segment. */
        int64_t next = base_after(segment);
        cleaner->map.latest = MILL_MAX(cleaner->map.latest, next - 1);
        segment_begin(cleaner, next);
        r = next >= cleaner->upper_offset ? 1 : 0;
    }
    if (r == 1) {
        copy_begin(store);
    }
    return done;
}

/* --- copying -----------------------------------------------------------------------------------
 */

static uint64_t index_room(const struct store_partition *partition)
{
    return (uint64_t)MILL_MAX(partition->settings.segment_index_bytes, 12);
}

/* Begins the group whose first segment has this base: as many as fit into one segment. */
static int group_begin(struct mill_store *store, int64_t base_offset)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_partition *partition = cleaner->partition;
    const struct store_segment *first = segment_at(partition, base_offset);
    const struct store_segment *at = first;
    uint64_t log = first->log_bytes;
    uint64_t index = first->index_bytes;
    uint64_t time = first->time_bytes;
    while (at[1].base_offset <= cleaner->map.latest) {
        const struct store_segment *next = &at[1];
        log += next->log_bytes;
        index += next->index_bytes;
        time += next->time_bytes;
        if (log > (uint64_t)partition->settings.segment_bytes || index > index_room(partition) ||
            time > index_room(partition) || next[1].base_offset - 1 - base_offset > INT32_MAX) {
            break;
        }
        at = next;
    }
    cleaner->group_end = base_after(at);
    cleaner->group_changed = at != first;
    segment_begin(cleaner, base_offset);
    return mill_clean_output_open(store, partition, base_offset, &cleaner->output);
}

static void copy_begin(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    cleaner->phase = PHASE_COPY;
    mill_clean_txns_begin(&cleaner->txns);
    int r = group_begin(store, cleaner->partition->segments[0].base_offset);
    if (r < 0) {
        fail(store, r, true);
    }
}

/* The batch holds the last sequence of its producer, or its epoch where no data of that was
 * written: its header must stay. ref: Kafka keeps the same */
static bool ends_producer(const struct store_partition *partition, const struct mill_batch *batch)
{
    if (batch->producer_id < 0) {
        return false;
    }
#ifdef MILL_MUTANT_STORE_CLEAN_SEQUENCES
    return false;
#endif
    return partition->producers.incomplete ||
           mill_store_producer_needs(&partition->producers, batch);
}

/* What the rules say of one batch. ret: 0, -errno. */
static int rules_of(struct mill_store *store, const struct mill_batch *batch, const uint8_t *bytes,
                    struct clean_rules *ret_rules)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct clean_aborted aborted;
    bool needed = false;
    bool control = (batch->attributes & MILL_BATCH_CONTROL) != 0;
    int discard;
    if (control) {
        int marker = marker_of(batch, bytes);
        /* One without records is as good as gone; one of another kind is nobody's here. */
        discard = marker < 0 ? batch->records_count == 0
                             : mill_clean_txns_marker(&cleaner->txns, batch, marker == 1, &aborted,
                                                      &needed);
    } else {
        discard = mill_clean_txns_batch(&cleaner->txns, batch);
    }
    if (discard < 0) {
        return discard;
    }
    bool passed =
        (batch->attributes & MILL_BATCH_DELETE_HORIZON) && batch->base_timestamp <= cleaner->now_ms;
    *ret_rules = (struct clean_rules){
        .map = &cleaner->map,
        .now_ms = cleaner->now_ms,
        .delete_retention_ms = cleaner->partition->settings.delete_retention_ms,
        .discard = discard == 1 && (!control || passed || batch->records_count == 0),
        .marker_spent = discard == 1 && control,
        /* The last batch of the round stays too, so that the log's end is told. */
        .keep_empty = ends_producer(cleaner->partition, batch) ||
                      mill_batch_last_offset(batch) + 1 == cleaner->upper_offset,
    };
    return needed ? mill_clean_output_aborted(store, cleaner->partition, &cleaner->output, &aborted)
                  : 0;
}

/* ret: 0, -errno; ret_writing: it was a write. */
static int copy_one(struct mill_store *store, const struct mill_batch *batch, const uint8_t *bytes,
                    bool *ret_writing)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct clean_rules rules;
    struct clean_result result;
    *ret_writing = true;
    int r = rules_of(store, batch, bytes, &rules);
    if (r < 0) {
        return r;
    }
    r = mill_clean_batch(&cleaner->work, &rules, batch, bytes, &result);
    *ret_writing = r == 0;
    if (r < 0) {
        return r;
    }
    cleaner->records_in += result.records_in;
    cleaner->records_out += result.records_out;
    cleaner->bytes_before += mill_batch_size_bytes(batch);
    cleaner->bytes_after += result.size_bytes;
    cleaner->group_changed = cleaner->group_changed || result.changed;
    return result.bytes ? mill_clean_output_batch(store, cleaner->partition, &cleaner->output,
                                                  result.bytes, result.size_bytes)
                        : 0;
}

/* The group is copied: it is put in place, unless it is as it was. ret: 0, -errno. */
static int group_end(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_partition *partition = cleaner->partition;
    int64_t base = cleaner->output.segment.base_offset;
    if (!cleaner->group_changed) {
        mill_clean_output_drop(store, partition, &cleaner->output);
        return 0;
    }
    int r = mill_clean_output_end(store, partition, &cleaner->output);
    if (r < 0) {
        return r;
    }
    uint32_t first = (uint32_t)(segment_at(partition, base) - partition->segments);
    uint32_t count = (uint32_t)(segment_at(partition, cleaner->group_end) - partition->segments);
    r = mill_clean_swap(store, partition, first, count - first, &cleaner->output,
                        &cleaner->half_swapped);
    cleaner->output.open = r < 0 && !cleaner->half_swapped; /* what is left of .cleaned goes */
    return r;
}

/* The segment is at its end: the next one, the next group, or all is done. ret: 0, -errno. */
static int copy_next(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_segment *segment = segment_at(cleaner->partition, cleaner->segment);
    segment_begin(cleaner, base_after(segment));
    if (cleaner->segment < cleaner->group_end) {
        return 0;
    }
    int r = group_end(store);
    if (r < 0) {
        return r;
    }
    if (cleaner->group_end > cleaner->map.latest) {
        finish(store);
        return 0;
    }
    return group_begin(store, cleaner->group_end);
}

/* ret: bytes read, -errno. */
static int64_t copy_step(struct mill_store *store, bool *ret_writing)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_segment *segment = segment_at(cleaner->partition, cleaner->segment);
    int64_t size = read_batches(store, segment);
    int64_t done = 0;
    *ret_writing = false;
    while (done < size) {
        struct mill_batch batch;
        const uint8_t *bytes = cleaner->in.bytes + done;
#ifndef MILL_MUTANT_STORE_CLEAN_READ_FENCES
        *ret_writing = false; /* damage behind a batch that was written is no failed write */
#endif
        int64_t one = batch_next(cleaner, segment, bytes, (uint64_t)(size - done), &batch);
        int r = one <= 0 ? (int)one : copy_one(store, &batch, bytes, ret_writing);
        if (r < 0) {
            return r;
        }
        if (one == 0) {
            break;
        }
        batch_taken(cleaner, &batch);
        done += one;
    }
    if (size < 0) {
        return size;
    }
    cleaner->pos_bytes += (uint64_t)done;
    if (size == 0) {
        *ret_writing = true;
        int r = copy_next(store);
        return r < 0 ? r : 0;
    }
    return done;
}

/* --- the turn ----------------------------------------------------------------------------------
 */

/* Aborted transactions of all segments: one may end far behind its records. */
static int txns_read(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_partition *partition = cleaner->partition;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < partition->segments_count; i++) {
        char path[STORE_PATH_BYTES];
        char *entries = NULL;
        snprintf(path, sizeof(path), "%s/%020" PRId64 ".txnindex", partition->path,
                 partition->segments[i].base_offset);
        int size = mill_store_read_whole(store->calls, path, CLEAN_TXN_FILE_BYTES, &entries);
        r = size == -ENOENT ? 0
            : size < 0      ? size
                            : mill_clean_txns_add(&cleaner->txns, (uint8_t *)entries, (size_t)size);
        free(entries);
    }
    mill_clean_txns_begin(&cleaner->txns);
    return r;
}

/* Before its first compaction the checkpoint names the partition: gaps are damage where it does
 * not. ret: 0, -errno. */
static int first_note(struct mill_store *store, struct store_partition *partition,
                      int64_t dirty_offset)
{
    int r = 0;
    if (partition->clean_offset < 0) {
        partition->clean_offset = dirty_offset;
        r = mill_store_offsets_note(store, partition)
                ? mill_store_offsets_write(store->dirs, &store->dirs->dirs[partition->dir])
                : -ENOMEM;
        partition->clean_offset = r < 0 ? -1 : dirty_offset;
    }
    partition->gaps_legal = r == 0;
    return r;
}

static void begin(struct mill_store *store, struct store_partition *partition,
                  const struct clean_range *range)
{
    struct store_cleaner *cleaner = store->cleaner;
    cleaner->partition = partition;
    cleaner->phase = PHASE_MAP;
    cleaner->now_ms = store->now.wall_ms;
    cleaner->begun_ns = store->now.mono_ns;
    cleaner->dirty_offset = range->dirty_offset;
    cleaner->upper_offset = range->upper_offset;
    cleaner->bytes_before = cleaner->bytes_after = 0;
    cleaner->records_in = cleaner->records_out = 0;
    cleaner->half_swapped = false;
    struct store_segment *segment = mill_store_segment_of(partition, range->dirty_offset);
    segment_begin(cleaner, segment ? segment->base_offset : partition->segments[0].base_offset);
    int r = mill_clean_map_init(&cleaner->map, store->config.clean_map_bytes,
                                (uint64_t)(range->upper_offset - range->dirty_offset),
                                &store->config.clean_secret);
    cleaner->map.latest = range->dirty_offset - 1;
    r = r == -EINVAL ? -ENOBUFS : r;
    r = r < 0 ? r : txns_read(store);
    if (r < 0) {
        fail(store, r, false);
        return;
    }
    r = first_note(store, partition, range->dirty_offset);
    if (r < 0) {
        fail(store, r, true);
    }
}

/* Begins with the dirtiest. ret: one was due, and might. */
static bool look(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    struct store_partition *best = NULL;
    struct clean_range best_range = {0};
    int64_t best_dirt = -1;
    int64_t dirtiest_ppm = 0; /* of all, due or not */
    for (uint32_t i = 0; i < store->partitions_length; i++) {
        struct store_partition *partition = store->partitions[i];
        struct clean_range range;
        int64_t dirt = partition ? mill_clean_dirt(store, partition, &range) : -1;
        dirtiest_ppm = partition ? MILL_MAX(dirtiest_ppm, range.share_ppm) : dirtiest_ppm;
        if (dirt > best_dirt) {
            best_dirt = dirt;
            best = partition;
            best_range = range;
        }
    }
    cleaner->stats.dirty_ppm = (uint64_t)dirtiest_ppm;
    if (!best) {
        slot_wait_end(store);
        cleaner->due_ns =
            store->now.mono_ns + (uint64_t)store->config.clean_backoff_ms * MILL_NS_PER_MS;
        return false;
    }
    if (!slot_take(store)) {
        cleaner->due_ns = store->now.mono_ns + SLOT_RETRY_NS;
        return false;
    }
    begin(store, best, &best_range);
    return true;
}

/* The next step, so that reading and writing keep the rate. */
static void throttle(struct mill_store *store, uint64_t bytes)
{
    struct store_cleaner *cleaner = store->cleaner;
    uint64_t rate = store->config.clean_bytes_per_second;
#ifdef MILL_MUTANT_STORE_CLEAN_UNTHROTTLED
    rate = 0;
#endif
    if (rate > 0) {
        /* A step that failed has set a later one. */
        cleaner->due_ns =
            MILL_MAX(cleaner->due_ns, store->now.mono_ns + bytes * MILL_NS_PER_S / rate);
    }
}

/* Tells the log how far it is, now and then. */
static void tell_stats(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    bool ended = cleaner->stats.runs != cleaner->told.runs ||
                 cleaner->stats.failed != cleaner->told.failed ||
                 cleaner->stats.stopped != cleaner->told.stopped;
    bool some = (cleaner->stats.bytes_read != cleaner->told.bytes_read ||
                 cleaner->stats.dirty_ppm != cleaner->told.dirty_ppm) &&
                store->now.mono_ns >= cleaner->tell_at_ns;
    if ((ended || some) && mill_store_out_room(store)) {
        const struct store_partition none = {.slot = UINT32_MAX};
        struct mill_link_cleaned *to =
            mill_store_tell(store, &none, MILL_LINK_CLEANED, sizeof(*to));
        to->stats = cleaner->told = cleaner->stats;
        cleaner->tell_at_ns = store->now.mono_ns + MILL_NS_PER_S;
    }
}

uint32_t mill_store_clean_run(struct mill_store *store)
{
    struct store_cleaner *cleaner = store->cleaner;
    tell_stats(store);
    if (store->config.clean_map_bytes == 0 || store->now.mono_ns < cleaner->due_ns) {
        return 0;
    }
    if (cleaner->phase == PHASE_IDLE) {
        return look(store) ? 1 : 0;
    }
    if (!mill_store_is_whole(store, cleaner->partition) || !cleaner->partition->settings.compact) {
        mill_store_clean_stop(store, NULL);
        return 1;
    }
    bool writing = false;
    uint64_t after = cleaner->bytes_after;
    int64_t done = cleaner->phase == PHASE_MAP ? map_step(store) : copy_step(store, &writing);
    if (done < 0) {
        fail(store, (int)done, writing);
        return 1;
    }
    uint64_t written = cleaner->bytes_after >= after ? cleaner->bytes_after - after : 0;
    cleaner->stats.bytes_read += (uint64_t)done;
    cleaner->stats.bytes_written += written;
    throttle(store, (uint64_t)done + written);
    return 1;
}

void mill_store_clean_at_once(struct mill_store *store)
{
    store->cleaner->due_ns = store->now.mono_ns;
}

uint64_t mill_store_clean_deadline(const struct mill_store *store)
{
    return store->config.clean_map_bytes == 0 ? MILL_NEVER : store->cleaner->due_ns;
}

int mill_store_clean_init(struct mill_store *store)
{
    store->cleaner = calloc(1, sizeof(*store->cleaner));
    return store->cleaner ? 0 : -ENOMEM;
}

void mill_store_clean_fini(struct mill_store *store)
{
    if (store->cleaner) {
        end(store, false);
        slot_wait_end(store);
        free(store->cleaner);
        store->cleaner = NULL;
    }
}
