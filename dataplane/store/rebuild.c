/* SPDX-License-Identifier: Apache-2.0 */
/* A segment that is not believed is walked: its numbers, its indexes, producers and epochs are made
 * anew of its batches, as the appends had made them. The store's thread only; blocks in file
 * calls. */
#include "dataplane/store/load.h"

#include <errno.h>
#include <string.h>

struct rebuild {
    struct mill_store *store;
    struct store_partition *partition;
    struct store_segment *segment;
    struct store_segment built; /* numbers as appends would have made them */
    struct store_entries entries;
    uint64_t end_bytes;   /* of the log file */
    uint64_t index_bytes; /* of the files before */
    uint64_t time_bytes;
    bool write;             /* index entries are written, not only counted */
    int64_t gap_before;     /* offset of the first batch that left a gap, -1 none */
    int64_t gap_after;      /* the offset that was expected there */
    bool full;              /* no space for more of them: what is found then is found by walking */
    int64_t producers_from; /* older batches are in the snapshot */
};

void mill_store_epoch_note(struct store_partition *partition, const struct mill_batch *batch)
{
    uint32_t count = partition->epochs_count;
    if (batch->leader_epoch < 0 ||
        (count > 0 && partition->epochs[count - 1].epoch >= batch->leader_epoch)) {
        return;
    }
    if (count == MILL_LINK_EPOCHS_MAX) {
        memmove(&partition->epochs[0], &partition->epochs[1],
                (count - 1) * sizeof(partition->epochs[0]));
        count--;
    }
    partition->epochs[count] =
        (struct mill_link_epoch){.epoch = batch->leader_epoch, .start_offset = batch->base_offset};
    partition->epochs_count = count + 1;
    partition->epochs_unsaved = true;
}

static int flush_entries(struct rebuild *rebuild)
{
    struct store_segment *built = &rebuild->built;
    struct store_entries *entries = &rebuild->entries;
    if (!rebuild->write || rebuild->full) {
        /* .txnindex is made anew all the same: its entries cannot be found by walking later. */
        entries->index_count = 0;
        entries->time_count = 0;
    }
    memcpy(built->files, rebuild->segment->files, sizeof(built->files));
    int r = mill_store_entries_write(rebuild->store, rebuild->partition, built, entries);
    if (mill_store_full(r) && !rebuild->full) {
        rebuild->full = true;
        entries->index_count = 0;
        entries->time_count = 0;
        r = mill_store_entries_write(rebuild->store, rebuild->partition, built, entries);
    }
    memcpy(rebuild->segment->files, built->files, sizeof(built->files));
    entries->index_count = 0;
    entries->time_count = 0;
    entries->txn_count = 0;
    return r;
}

static int producer_note(struct store_partition *partition, const struct mill_batch *batch,
                         const uint8_t *bytes)
{
#ifdef MILL_MUTANT_STORE_FORGET_PRODUCERS
    return 0;
#endif
    return mill_store_producer_note_at(&partition->producers, batch, bytes);
}

int mill_store_batch_note(struct store_partition *partition, const struct mill_batch *batch,
                          const uint8_t *bytes)
{
    mill_store_epoch_note(partition, batch);
    return producer_note(partition, batch, bytes);
}

/* Notes a batch of a walk, with what a marker in it aborts. */
static int producer_load(struct rebuild *rebuild, const struct mill_batch *batch,
                         uint64_t pos_bytes)
{
    struct store_partition *partition = rebuild->partition;
    const uint8_t *bytes = NULL;
    struct store_aborted aborted;
    uint32_t size = mill_batch_size_bytes(batch);
    if ((batch->attributes & MILL_BATCH_CONTROL) && size <= STORE_WINDOW_BYTES) {
        int error = 0;
        int file = mill_store_file(rebuild->store, partition, rebuild->segment, STORE_FILE_LOG);
        bytes = file < 0 ? NULL
                         : mill_store_peek(rebuild->store, file, pos_bytes, size,
                                           STORE_WINDOW_BYTES, rebuild->end_bytes, &error);
        if (!bytes) {
            return file < 0 ? file : error;
        }
        if (mill_store_txn_aborts(&partition->producers, batch, bytes, &aborted)) {
            mill_store_txn_entry(&rebuild->entries, &aborted);
        }
    }
    return producer_note(partition, batch, bytes);
}

static int batch_load(void *context, const struct mill_batch *batch, uint64_t pos_bytes)
{
    struct rebuild *rebuild = context;
    if (batch->base_offset != rebuild->built.next_offset && rebuild->gap_before < 0) {
        rebuild->gap_before = batch->base_offset;
        rebuild->gap_after = rebuild->built.next_offset;
    }
    mill_store_account(rebuild->partition, &rebuild->built, batch, &rebuild->entries);
    mill_store_epoch_note(rebuild->partition, batch);
    int r = batch->base_offset >= rebuild->producers_from ? producer_load(rebuild, batch, pos_bytes)
                                                          : 0;
    if (r == 0 && (rebuild->entries.index_count == STORE_BATCH_ENTRIES ||
                   rebuild->entries.txn_count == STORE_BATCH_ENTRIES)) {
        r = flush_entries(rebuild);
    }
    return r;
}

int64_t mill_store_index_size(struct mill_store *store, struct store_partition *partition,
                              struct store_segment *segment, enum store_file_kind kind,
                              uint8_t ret_last[static STORE_TIME_ENTRY_BYTES])
{
    const struct mill_file_calls *files = store->calls;
    uint32_t entry = kind == STORE_FILE_INDEX ? STORE_INDEX_ENTRY_BYTES : STORE_TIME_ENTRY_BYTES;
    char path[STORE_PATH_BYTES];
    memset(ret_last, 0, STORE_TIME_ENTRY_BYTES);
    mill_store_segment_path(partition, segment->base_offset, kind, path, sizeof(path));
    int file = files->open(files->context, path, MILL_FILE_READ);
    if (file < 0) {
        return file == -ENOENT ? -ENODATA : file;
    }
    int64_t size = files->size(files->context, file);
    bool bad = size < 0 || size % entry != 0;
    if (!bad && size > 0) {
        bad = mill_store_read_all(files, file, ret_last, entry, (uint64_t)size - entry) < 0;
        const uint8_t *offset = kind == STORE_FILE_INDEX ? ret_last : ret_last + 8;
        int32_t relative = (int32_t)mill_load_be32(offset);
        /* A preallocated index of another broker ends in zeroes; such a one is rebuilt too. */
        bad = bad || relative < 0 || (relative == 0 && size > entry);
    }
    int closed = files->close(files->context, file);
    MILL_UNUSED(closed);
    return bad ? -ENODATA : size;
}

/* Ends a rebuilt index. Its entries were written over the old ones, most of which are the same:
 * that takes no space on a disk that has none. */
static int index_end(struct mill_store *store, struct store_partition *partition,
                     struct store_segment *segment, enum store_file_kind kind, uint64_t size_bytes)
{
    int file = mill_store_file(store, partition, segment, kind);
    return file < 0 ? file : store->calls->truncate(store->calls->context, file, size_bytes);
}

int64_t mill_store_log_size(struct mill_store *store, struct store_partition *partition,
                            struct store_segment *segment)
{
    int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    return file < 0 ? file : store->calls->size(store->calls->context, file);
}

/* Looks at both indexes: whether they are written anew. ret: 0, -errno. */
static int indexes_look(struct rebuild *rebuild, bool last)
{
    uint8_t last_entry[STORE_TIME_ENTRY_BYTES];
    int64_t index = mill_store_index_size(rebuild->store, rebuild->partition, rebuild->segment,
                                          STORE_FILE_INDEX, last_entry);
    int64_t time = mill_store_index_size(rebuild->store, rebuild->partition, rebuild->segment,
                                         STORE_FILE_TIMEINDEX, last_entry);
    rebuild->write = last || index == -ENODATA || time == -ENODATA || index == 0;
    if ((index < 0 && index != -ENODATA) || (time < 0 && time != -ENODATA)) {
        return (int)MILL_MIN(index, time);
    }
    rebuild->index_bytes = (uint64_t)index; /* of use where they are not written only */
    rebuild->time_bytes = (uint64_t)time;
    return 0;
}

/* Opens what the walk needs before the segment is copied, so that the copy has them open, too.
 * ret: .log, the last one; -errno. */
static int files_open(struct rebuild *rebuild)
{
    int file = 0;
    for (int kind = STORE_FILE_TIMEINDEX; kind >= 0 && file >= 0; kind--) {
        bool wanted = kind == STORE_FILE_LOG || rebuild->write;
        file = wanted ? mill_store_file(rebuild->store, rebuild->partition, rebuild->segment,
                                        (enum store_file_kind)kind)
                      : 0;
    }
    return file;
}

/* Walks the batches. ret_good: bytes of whole, valid ones. ret: 0, -errno. */
static int batches_walk(struct rebuild *rebuild, int file, bool crc, int64_t end_offset,
                        uint64_t *ret_good)
{
    struct store_dir *dir = &rebuild->store->dirs->dirs[rebuild->partition->dir];
    struct store_walk walk = {
        .from_bytes = rebuild->segment->log_bytes,
        .end_bytes = rebuild->end_bytes,
        .next_offset = rebuild->segment->next_offset,
        .limit_offset = mill_store_segment_limit(rebuild->segment, end_offset),
        .crc = crc,
        .each = batch_load,
        .context = rebuild,
    };
    rebuild->built = *rebuild->segment;
    int r = mill_store_walk(rebuild->store, file, &walk, ret_good);
    atomic_fetch_add(&dir->loaded_bytes, *ret_good - walk.from_bytes);
    memcpy(rebuild->built.files, rebuild->segment->files, sizeof(rebuild->built.files));
    rebuild->partition->gap_found = rebuild->partition->gap_found || rebuild->gap_before >= 0;
    return r;
}

/* Judges the first gap: between two batches, or, where all of a segment was whole, between it and
 * the next one. ret: 0; -errno of damage, told. */
static int gap_judge(struct rebuild *rebuild, bool whole, int64_t end_offset)
{
    if (whole && end_offset != INT64_MAX && rebuild->gap_before < 0 &&
        rebuild->built.next_offset != end_offset) {
        rebuild->gap_before = end_offset;
        rebuild->gap_after = rebuild->built.next_offset;
        rebuild->partition->gap_found = true;
    }
    return rebuild->gap_before >= 0 && mill_store_gap_illegal(rebuild->store, rebuild->partition)
               ? mill_store_gap_damage(rebuild->store, rebuild->partition, rebuild->segment,
                                       rebuild->gap_after, rebuild->gap_before)
               : 0;
}

/* The segment has its new numbers, and its indexes what belongs to them. ret: 0, -errno. */
static int rebuild_end(struct rebuild *rebuild)
{
    struct mill_store *store = rebuild->store;
    struct store_partition *partition = rebuild->partition;
    struct store_segment *segment = rebuild->segment;
    int r = flush_entries(rebuild);
    if (r < 0) {
        return r;
    }
    if (!rebuild->write) {
        rebuild->built.index_bytes = rebuild->index_bytes;
        rebuild->built.time_bytes = rebuild->time_bytes;
    }
    *segment = rebuild->built;
    r = mill_store_txn_end(store, partition, segment);
    if (r < 0 || !rebuild->write) {
        return r;
    }
    r = index_end(store, partition, segment, STORE_FILE_INDEX, segment->index_bytes);
    return r < 0 ? r
                 : index_end(store, partition, segment, STORE_FILE_TIMEINDEX, segment->time_bytes);
}

int mill_store_rebuild(struct mill_store *store, struct store_partition *partition,
                       struct store_segment *segment, const struct store_belief *belief,
                       int64_t end_offset, uint64_t *ret_good, uint64_t *ret_size)
{
    struct rebuild rebuild = {.store = store,
                              .partition = partition,
                              .segment = segment,
                              .gap_before = -1,
                              .producers_from = belief->producers_from};
    bool last = end_offset == INT64_MAX;
    int r = indexes_look(&rebuild, last);
    int file = r < 0 ? r : files_open(&rebuild);
    int64_t size = file < 0 ? file : mill_store_log_size(store, partition, segment);
    if (size < 0) {
        return (int)size;
    }
    r = mill_store_txn_begin(store, partition, segment, belief->producers_from);
    if (r < 0) {
        return r;
    }
    rebuild.end_bytes = (uint64_t)size;
    *ret_size = (uint64_t)size;
    r = batches_walk(&rebuild, file, end_offset > belief->recovery_point, end_offset, ret_good);
    r = r < 0 ? r : gap_judge(&rebuild, *ret_good == *ret_size, end_offset);
    if (r < 0) {
        return r;
    }
    if (!last) {
        mill_store_time_entry(&rebuild.built, &rebuild.entries); /* as when it was rolled */
    }
    return rebuild_end(&rebuild);
}
