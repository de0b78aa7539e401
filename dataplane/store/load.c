/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a partition's segments. What is below the recovery point, or belongs to a run that ended
 * cleanly, is believed: sizes and last index entries tell all about it. The rest is walked, with
 * its sums (rebuild.c); producers come from the newest usable snapshot and the batches after it.
 * The store's thread only; blocks in file calls. */
#include "dataplane/store/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

struct offsets {
    int64_t *values;
    uint32_t count;
    uint32_t capacity;
};

struct found {
    struct mill_store *store;
    const struct store_partition *partition;
    struct offsets bases;
    struct offsets snapshots;
    struct offsets txns; /* segments that have a .txnindex */
};

static int offsets_add(struct offsets *offsets, int64_t value)
{
    if (offsets->count == offsets->capacity) {
        uint32_t capacity = MILL_MAX(16u, offsets->capacity * 2);
        int64_t *grown = realloc(offsets->values, capacity * sizeof(grown[0]));
        if (!grown) {
            return -ENOMEM;
        }
        offsets->values = grown;
        offsets->capacity = capacity;
    }
    offsets->values[offsets->count++] = value;
    return 0;
}

/* A file whose delay was not over when the process ended. */
static int deleted_remove(const struct found *found, const char *name)
{
    char path[STORE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%.70s", found->partition->path, name);
    int r = found->store->calls->remove_file(found->store->calls->context, path);
    return r == -ENOENT ? 0 : r;
}

static int found_note(void *context, const char *name)
{
    struct found *found = context;
    int64_t base = 0;
    if (mill_store_name_ends(name, ".deleted")) {
        return deleted_remove(found, name);
    }
    size_t length = strlen(name);
    struct offsets *offsets = NULL;
    if (length == 24 && mill_store_name_ends(name, ".log")) {
        offsets = &found->bases;
    } else if (length == 29 && mill_store_name_ends(name, ".snapshot")) {
        offsets = &found->snapshots;
    } else if (length == 29 && mill_store_name_ends(name, ".txnindex")) {
        offsets = &found->txns;
    } else {
        return 0;
    }
    for (int i = 0; i < 20; i++) {
        if (name[i] < '0' || name[i] > '9' || __builtin_mul_overflow(base, 10, &base) ||
            __builtin_add_overflow(base, name[i] - '0', &base)) {
            return 0;
        }
    }
    return offsets_add(offsets, base);
}

static int by_offset(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

/* --- segments that are believed -------------------------------------------------------------- */

struct tail {
    uint64_t size_bytes; /* since the last index entry */
    int64_t next_offset;
    int64_t interval_bytes; /* between entries */
    bool unindexed;         /* an entry is missing that appending had made */
    bool stop;              /* at the first one */
};

static int tail_note(void *context, const struct mill_batch *batch, uint64_t pos_bytes)
{
    struct tail *tail = context;
    MILL_UNUSED(pos_bytes);
    tail->unindexed = tail->unindexed || tail->size_bytes > (uint64_t)tail->interval_bytes;
    tail->size_bytes += mill_batch_size_bytes(batch);
    tail->next_offset = mill_batch_last_offset(batch) + 1;
    return tail->unindexed && tail->stop ? 1 : 0;
}

/* Whether an index without entries should have one: it was emptied. Reads no more headers than
 * stand in one interval. ret: 1, 0, -errno. */
static int index_emptied(struct mill_store *store, struct store_partition *partition,
                         struct store_segment *segment)
{
#ifdef MILL_MUTANT_STORE_EMPTIED_BELIEVED
    return 0;
#endif
    struct tail tail = {.interval_bytes = MILL_MAX(partition->settings.index_interval_bytes, 0),
                        .stop = true};
    if (segment->index_bytes > 0 || segment->log_bytes <= (uint64_t)tail.interval_bytes) {
        return 0;
    }
    uint64_t good = 0;
    struct store_walk walk = {.end_bytes = segment->log_bytes,
                              .next_offset = segment->base_offset,
                              .each = tail_note,
                              .context = &tail};
    int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    return file < 0 ? file : mill_store_walk(store, file, &walk, &good);
}

/* Takes a segment's numbers from its sizes and last entries. ret_indexed_bytes: position that its
 * last index entry names, 0 without one. ret: 1; 0 an index is missing, emptied or broken, the
 * segment has to be walked; -errno. */
static int segment_believe(struct mill_store *store, struct store_partition *partition,
                           struct store_segment *segment, int64_t next_offset,
                           uint64_t *ret_indexed_bytes)
{
    uint8_t entry[STORE_TIME_ENTRY_BYTES];
    int64_t index = mill_store_index_size(store, partition, segment, STORE_FILE_INDEX, entry);
    *ret_indexed_bytes = mill_load_be32(entry + 4);
    int64_t time = mill_store_index_size(store, partition, segment, STORE_FILE_TIMEINDEX, entry);
    if (index == -ENODATA || time == -ENODATA) {
        return 0;
    }
    int64_t size = mill_store_log_size(store, partition, segment);
    if (index < 0 || time < 0 || size < 0) {
        return (int)MILL_MIN(MILL_MIN(index, time), size);
    }
    segment->log_bytes = (uint64_t)size;
    segment->index_bytes = (uint64_t)index;
    segment->time_bytes = (uint64_t)time;
    segment->next_offset = next_offset;
    segment->first_timestamp = size > 0 ? STORE_TIME_UNREAD : -1;
    int64_t txn = mill_store_txn_size(store, partition, segment->base_offset);
    if (txn < 0) {
        return txn == -ENODATA ? 0 : (int)txn;
    }
    segment->txn_bytes = (uint64_t)txn;
    int emptied = index_emptied(store, partition, segment);
    if (emptied != 0) {
        return MILL_MIN(emptied, 0);
    }
    if (time > 0) {
        segment->max_timestamp = (int64_t)mill_load_be64(entry);
        segment->max_offset = segment->base_offset + mill_load_be32(entry + 8);
        segment->time_last = segment->max_timestamp;
    }
    return 1;
}

/* A believed segment of a run that was cut short: its last batch must reach the next segment, or a
 * file between them is missing. From: position of its last index entry. ret: 1; 0 its index does
 * not fit, it has to be walked; -errno. */
static int segment_joins(struct mill_store *store, struct store_partition *partition,
                         struct store_segment *segment, int64_t end_offset, uint64_t from)
{
    uint64_t good = 0;
    int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    if (file < 0 || from > segment->log_bytes) {
        return MILL_MIN(file, 0);
    }
    struct tail tail = {.next_offset = segment->base_offset};
    struct store_walk walk = {.from_bytes = from,
                              .end_bytes = segment->log_bytes,
                              .next_offset = segment->base_offset,
                              .limit_offset = mill_store_segment_limit(segment, end_offset),
                              .each = tail_note,
                              .context = &tail};
    int r = mill_store_walk(store, file, &walk, &good);
    if (r < 0 || good != segment->log_bytes) {
        return MILL_MIN(r, 0);
    }
    partition->gap_found = partition->gap_found || tail.next_offset != end_offset;
    if (tail.next_offset != end_offset && mill_store_gap_illegal(store, partition)) {
        return mill_store_gap_damage(store, partition, segment, tail.next_offset, end_offset);
    }
    return 1;
}

/* The last segment after a clean end: what follows its last index entry is read, to know where the
 * log ends. ret: 1 it ends at the recovery point, as it was left; 0 not, or entries of
 * its index are missing; -errno. */
static int last_believe(struct mill_store *store, struct store_partition *partition,
                        struct store_segment *segment, const struct store_belief *belief)
{
    uint64_t from = 0;
    uint64_t good = 0;
    int r = segment_believe(store, partition, segment, belief->recovery_point, &from);
    if (r <= 0) {
        return r;
    }
    int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    if (file < 0) {
        return file;
    }
    struct tail tail = {.next_offset = segment->base_offset,
                        .interval_bytes = MILL_MAX(partition->settings.index_interval_bytes, 0)};
    struct store_walk walk = {.from_bytes = from,
                              .end_bytes = segment->log_bytes,
                              .next_offset = segment->base_offset,
                              .each = tail_note,
                              .context = &tail};
    if (from > segment->log_bytes) {
        return 0;
    }
    r = mill_store_walk(store, file, &walk, &good);
    if (r < 0) {
        return r;
    }
    segment->since_index = tail.size_bytes;
    return good == segment->log_bytes && tail.next_offset == belief->recovery_point &&
           !tail.unindexed;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* The last segment's bytes from good on are no valid batch: they go. Below the recovery point they
 * had been there: that is damage, which is neither served nor taken for the end. */
static int segment_cut(struct mill_store *store, struct store_partition *partition,
                       struct store_segment *segment, const struct store_belief *belief, bool last,
                       uint64_t good, uint64_t size)
{
#ifdef MILL_MUTANT_STORE_CUT_DAMAGE
    last = true;
    belief = &(struct store_belief){0};
#endif
    if (!last || segment->next_offset < belief->recovery_point) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.damaged",
                          "partition=%s: no valid batch at byte %" PRIu64 " of %020" PRId64
                          ".log, where one had been synced (offset %" PRId64
                          "); it is not served: restore the file, or delete the topic",
                          partition->path, good, segment->base_offset, segment->next_offset);
        return -EUCLEAN;
    }
    mill_log_dirs_say(store->dirs, MILL_LEVEL_WARN, "store.cut",
                      "partition=%s: %" PRIu64 " bytes after offset %" PRId64
                      " are no valid batch: cut off",
                      partition->path, size - good, segment->next_offset);
    int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    store->window_file = -1;
    return file < 0 ? file : store->calls->truncate(store->calls->context, file, good);
}

static int segments_load(struct mill_store *store, struct store_partition *partition,
                         const struct offsets *bases, struct store_belief *belief)
{
    for (uint32_t i = 0; i < bases->count; i++) {
        struct store_segment *segment = mill_store_segment_add(store, partition, bases->values[i]);
        if (!segment) {
            return -ENOMEM;
        }
        bool last = i + 1 == bases->count;
        int64_t end_offset = last ? INT64_MAX : bases->values[i + 1];
        int r = 0;
        if (end_offset <= belief->walk_from) {
            uint64_t from = 0;
            r = segment_believe(store, partition, segment, end_offset, &from);
            r = r == 1 && !belief->clean
                    ? segment_joins(store, partition, segment, end_offset, from)
                    : r;
        } else if (last && belief->clean && belief->walk_from == belief->recovery_point) {
            r = last_believe(store, partition, segment, belief);
        }
        if (r == 0) {
            uint64_t good = 0;
            uint64_t size = 0;
            int32_t open[STORE_FILE_KINDS];
            memcpy(open, segment->files, sizeof(open));
            *segment = mill_store_segment_new(bases->values[i]);
            memcpy(segment->files, open, sizeof(open));
#ifndef MILL_MUTANT_STORE_WALKS_ALL
            if (last && !belief->clean && belief->walk_from > segment->base_offset) {
                r = mill_store_resume(store, partition, segment, belief->walk_from);
            }
#endif
            r = r < 0 ? r
                      : mill_store_rebuild(store, partition, segment, belief, end_offset, &good,
                                           &size);
            if (r == 0 &&
                (good < size || (last && segment->next_offset < belief->recovery_point))) {
                r = segment_cut(store, partition, segment, belief, last, good, size);
            }
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* Base of the first segment that has to be walked, as far as is known before. */
static int64_t walked_from(const struct found *found, const struct store_belief *belief)
{
    int64_t limit = MILL_MIN(belief->recovery_point, belief->txns_whole);
    int64_t base = found->bases.values[0];
    for (uint32_t i = 0; i < found->bases.count && found->bases.values[i] <= limit; i++) {
        base = found->bases.values[i];
    }
    return base;
}

static bool is_base(const struct found *found, int64_t offset)
{
    return bsearch(&offset, found->bases.values, found->bases.count, sizeof(offset), by_offset) !=
           NULL;
}

/* ret: base of the first segment whose .txnindex is no such file, INT64_MAX none, -errno. */
static int64_t txns_check(struct mill_store *store, const struct store_partition *partition,
                          const struct found *found)
{
    int64_t first = INT64_MAX;
    for (uint32_t i = 0; i < found->txns.count; i++) {
        int64_t size = mill_store_txn_size(store, partition, found->txns.values[i]);
        if (size < 0 && size != -ENODATA) {
            return size;
        }
        first = size < 0 ? MILL_MIN(first, found->txns.values[i]) : first;
    }
    return first;
}

/* Whether the segment around an offset has a .txnindex. */
static bool has_txns(const struct found *found, int64_t offset)
{
    int64_t base = -1;
    for (uint32_t i = 0; i < found->bases.count && found->bases.values[i] <= offset; i++) {
        base = found->bases.values[i];
    }
    for (uint32_t i = 0; i < found->txns.count; i++) {
        if (found->txns.values[i] == base) {
            return true;
        }
    }
    return false;
}

/* Notes the newest snapshot that holds nothing beyond the recovery point. ret: 0, -errno. */
static int producers_believe(struct mill_store *store, struct store_partition *partition,
                             const struct found *found, struct store_belief *belief)
{
    belief->producers_from = found->bases.values[0];
    for (uint32_t i = found->snapshots.count; i > 0; i--) {
        int64_t offset = found->snapshots.values[i - 1];
        /* A segment whose .txnindex is made anew needs the producers of its start. */
        bool usable = belief->txns_whole == INT64_MAX
                          ? offset <= belief->recovery_point
                          : offset <= walked_from(found, belief) && is_base(found, offset);
        /* Only .log was synced since the last clean end: a .txnindex that grew may hold anything.
         */
        usable = usable && (belief->clean || is_base(found, offset) || !has_txns(found, offset));
#ifdef MILL_MUTANT_STORE_TXN_ANY_SNAPSHOT
        usable = offset <= belief->recovery_point;
#endif
        if (!usable || offset < found->bases.values[0]) {
            continue;
        }
        int r = mill_store_snapshot_read(store, partition, offset);
        if (r == 0) {
            belief->producers_from = offset;
        }
        if (r != -EBADMSG) {
            return r;
        }
    }
    return 0;
}

static int believe(struct mill_store *store, struct store_partition *partition,
                   const struct found *found, struct store_belief *ret_belief)
{
    struct store_dir *dir = &store->dirs->dirs[partition->dir];
    int64_t base = found->bases.values[0];
    pthread_mutex_lock(&store->dirs->lock);
    const struct store_offset *offset =
        mill_store_offset(&dir->offsets, strrchr(partition->path, '/') + 1, false);
    int64_t recovery_point = offset ? offset->recovery_point : -1;
    int64_t start_offset = offset ? offset->start_offset : -1;
    partition->clean_offset = offset ? offset->clean_offset : -1;
    pthread_mutex_unlock(&store->dirs->lock);
    partition->start_offset = MILL_MAX(base, start_offset);
    *ret_belief = (struct store_belief){.recovery_point = MILL_MAX(base, recovery_point),
                                        .clean = dir->clean && recovery_point >= base};
    ret_belief->txns_whole = txns_check(store, partition, found);
    if (ret_belief->txns_whole < 0) {
        return (int)ret_belief->txns_whole;
    }
    int r = producers_believe(store, partition, found, ret_belief);
    if (r < 0) {
        return r;
    }
    r = mill_store_epochs_read(store, partition);
    /* Without the checkpoint the epochs are read from all batches, and it is made again: else each
     * start walked them. */
    partition->epochs_unsaved = r == 0;
    ret_belief->walk_from =
        r == 0 ? base : MILL_MIN(ret_belief->recovery_point, ret_belief->producers_from);
    return MILL_MIN(r, 0);
}

/* Snapshots beyond the log's end would be taken for true later; those within segments are of an
 * earlier end. */
static int snapshots_tidy(struct mill_store *store, struct store_partition *partition,
                          const struct offsets *snapshots)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < snapshots->count; i++) {
        int64_t offset = snapshots->values[i];
        const struct store_segment *segment = mill_store_segment_of(partition, offset);
        bool needed =
            offset <= partition->written_offset &&
            (offset == partition->snapshot_offset || (segment && segment->base_offset == offset));
        r = needed ? 0 : mill_store_snapshot_remove(store, partition, offset);
    }
    return r;
}

/* A directory without segments, of a partition that had some: told. */
static bool was_emptied(struct mill_store *store, const struct store_partition *partition)
{
    struct store_dir *dir = &store->dirs->dirs[partition->dir];
    pthread_mutex_lock(&store->dirs->lock);
    const struct store_offset *offset =
        mill_store_offset(&dir->offsets, strrchr(partition->path, '/') + 1, false);
    bool emptied = partition->settings.made || (offset && offset->recovery_point > 0);
    pthread_mutex_unlock(&store->dirs->lock);
#ifdef MILL_MUTANT_STORE_LOST_IS_NEW
    emptied = false;
#endif
    if (emptied) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.lost",
                          "partition=%s has no segment any more: it is not begun anew; bring its "
                          "files back, or delete the topic",
                          partition->path);
    }
    return emptied;
}

static int fresh(struct mill_store *store, struct store_partition *partition)
{
    if (!mill_store_segment_add(store, partition, 0)) {
        return -ENOMEM;
    }
    partition->dir_unsynced = true;
    int file = mill_store_file(store, partition, &partition->segments[0], STORE_FILE_LOG);
    return MILL_MIN(file, 0);
}

static int load(struct mill_store *store, struct store_partition *partition,
                const struct found *found)
{
    struct store_belief belief;
    int r = believe(store, partition, found, &belief);
    r = r < 0 ? r : segments_load(store, partition, &found->bases, &belief);
    if (r < 0) {
        return r;
    }
    const struct store_segment *last = &partition->segments[partition->segments_count - 1];
    partition->written_offset = last->next_offset;
    partition->synced_offset = MILL_MIN(belief.recovery_point, last->next_offset);
#ifndef MILL_MUTANT_STORE_NAMES_UNSYNCED
    partition->dir_unsynced = !belief.clean; /* a killed process made files in it, perhaps */
#endif
    while (partition->epochs_count > 0 &&
           partition->epochs[partition->epochs_count - 1].start_offset > last->next_offset) {
        partition->epochs_count--;
        partition->epochs_unsaved = true;
    }
    r = belief.clean ? 0 : mill_store_orphans_remove(store, partition);
    return r < 0 ? r : snapshots_tidy(store, partition, &found->snapshots);
}

int mill_store_load(struct mill_store *store, struct store_partition *partition)
{
    struct found found = {.store = store, .partition = partition};
    int64_t reached_offset = -1;
    if (mill_store_taken_use(store, partition, &reached_offset)) {
        return 0;
    }
    partition->snapshot_offset = -1;
    partition->clean_offset = -1;
    int r = mill_clean_recover(store, partition);
    r = r < 0 ? r : store->calls->list(store->calls->context, partition->path, found_note, &found);
    if (r == 0 && found.bases.count == 0) {
        r = was_emptied(store, partition) ? -EUCLEAN : fresh(store, partition);
    } else if (r == 0) {
        qsort(found.bases.values, found.bases.count, sizeof(int64_t), by_offset);
        if (found.snapshots.count > 0) {
            qsort(found.snapshots.values, found.snapshots.count, sizeof(int64_t), by_offset);
        }
        r = load(store, partition, &found);
    }
    free(found.bases.values);
    free(found.snapshots.values);
    free(found.txns.values);
#ifdef MILL_MUTANT_STORE_OLDER_UNTOLD
    reached_offset = -1;
#endif
    if (r == 0 && partition->written_offset < reached_offset) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.take-up.older-copy",
                          "partition=%s files end at %" PRId64 " but had been written to %" PRId64
                          ": an older copy",
                          partition->path, partition->written_offset, reached_offset);
    }
    partition->loaded = r == 0;
    return r;
}

int mill_store_load_synced(struct mill_store *store, struct store_partition *partition)
{
    int r = mill_store_load(store, partition);
    if (r == 0 && partition->settings.flush_messages == 1) {
        /* What a killed process had written may be in the page cache only, and is about to be
         * shown as synced. */
        r = mill_store_sync(store, partition);
    }
    return r;
}

void mill_store_unload(struct mill_store *store, struct store_partition *partition)
{
    mill_store_cached_drop(store, partition);
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        mill_store_file_close(store, partition, &partition->segments[i]);
    }
    mill_store_waiting_drop(partition);
    mill_store_producers_free(&partition->producers);
    free(partition->kept_aborted);
    partition->kept_aborted = NULL;
    partition->kept_aborted_count = 0;
    free(partition->segments);
    partition->segments = NULL;
    partition->segments_count = 0;
    partition->segments_capacity = 0;
    partition->loaded = false;
}
