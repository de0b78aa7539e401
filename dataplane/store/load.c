/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a partition's segments: which there are, indexes rebuilt where missing or broken, the
 * last segment walked with CRC and cut at the first bad batch, producers and leader epochs gathered
 * from batch headers. The store's thread only; blocks in file calls. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rebuild {
    struct mill_store *store;
    struct store_partition *partition;
    struct store_segment *segment;
    struct store_segment built; /* numbers as appends would have made them */
    struct store_entries entries;
    bool write;    /* index entries are written, not only counted */
    int64_t epoch; /* of the last batch */
};

struct bases {
    int64_t *offsets;
    uint32_t count;
    uint32_t capacity;
};

static int base_note(void *context, const char *name)
{
    struct bases *bases = context;
    int64_t base = 0;
    if (strlen(name) != 24 || strcmp(name + 20, ".log") != 0) {
        return 0;
    }
    for (int i = 0; i < 20; i++) {
        if (name[i] < '0' || name[i] > '9' || __builtin_mul_overflow(base, 10, &base) ||
            __builtin_add_overflow(base, name[i] - '0', &base)) {
            return 0;
        }
    }
    if (bases->count == bases->capacity) {
        uint32_t capacity = MILL_MAX(16u, bases->capacity * 2);
        int64_t *grown = realloc(bases->offsets, capacity * sizeof(grown[0]));
        if (!grown) {
            return -ENOMEM;
        }
        bases->offsets = grown;
        bases->capacity = capacity;
    }
    bases->offsets[bases->count++] = base;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static void epoch_note(struct store_partition *partition, const struct mill_batch *batch)
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
}

static int flush_entries(struct rebuild *rebuild)
{
    int r = 0;
    if (rebuild->write) {
        r = mill_store_entries_write(rebuild->store, rebuild->partition, &rebuild->built,
                                     &rebuild->entries);
    }
    rebuild->entries.index_count = 0;
    rebuild->entries.time_count = 0;
    return r;
}

static int batch_load(void *context, const struct mill_batch *batch, uint64_t pos_bytes)
{
    struct rebuild *rebuild = context;
    MILL_UNUSED(pos_bytes);
    mill_store_account(rebuild->partition, &rebuild->built, batch, &rebuild->entries);
    epoch_note(rebuild->partition, batch);
    int r = 0;
#ifndef MILL_MUTANT_STORE_FORGET_PRODUCERS
    r = mill_store_producer_note(&rebuild->partition->producers, batch);
#endif
    if (r == 0 && rebuild->entries.index_count == STORE_BATCH_ENTRIES) {
        r = flush_entries(rebuild);
    }
    return r;
}

/* Size of an index file as it is; -ENODATA when it has to be rebuilt. */
static int64_t index_size(struct mill_store *store, struct store_partition *partition,
                          struct store_segment *segment, enum store_file_kind kind)
{
    const struct mill_file_calls *files = store->config.files;
    uint32_t entry = kind == STORE_FILE_INDEX ? STORE_INDEX_ENTRY_BYTES : STORE_TIME_ENTRY_BYTES;
    char path[STORE_PATH_BYTES];
    mill_store_segment_path(partition, segment->base_offset, kind, path, sizeof(path));
    int file = files->open(files->context, path, MILL_FILE_READ);
    if (file < 0) {
        return file == -ENOENT ? -ENODATA : file;
    }
    int64_t size = files->size(files->context, file);
    uint8_t last[STORE_TIME_ENTRY_BYTES] = {0};
    bool bad = size < 0 || size % entry != 0;
    if (!bad && size > 0) {
        bad = mill_store_read_all(files, file, last, entry, (uint64_t)size - entry) < 0;
        int32_t relative = (int32_t)mill_load_be32(kind == STORE_FILE_INDEX ? last : last + 8);
        /* A preallocated index of another broker ends in zeroes; such a one is rebuilt too. */
        bad = bad || relative < 0 || (relative == 0 && size > entry);
    }
    int closed = files->close(files->context, file);
    MILL_UNUSED(closed);
    return bad ? -ENODATA : size;
}

static int index_drop(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, enum store_file_kind kind)
{
    int file = mill_store_file(store, partition, segment, kind);
    return file < 0 ? file : store->config.files->truncate(store->config.files->context, file, 0);
}

/* Walks one segment. ret_good: bytes of whole, valid batches; ret_size: bytes there. */
static int segment_walk(struct mill_store *store, struct store_partition *partition,
                        struct store_segment *segment, bool last, uint64_t *ret_good,
                        uint64_t *ret_size)
{
    const struct mill_file_calls *files = store->config.files;
    struct rebuild rebuild = {.store = store, .partition = partition, .segment = segment};
    int64_t index = index_size(store, partition, segment, STORE_FILE_INDEX);
    int64_t time = index_size(store, partition, segment, STORE_FILE_TIMEINDEX);
    rebuild.write = last || index == -ENODATA || time == -ENODATA;
    if ((index < 0 && index != -ENODATA) || (time < 0 && time != -ENODATA)) {
        return (int)MILL_MIN(index, time);
    }
    int r = 0;
    if (rebuild.write) {
        r = index_drop(store, partition, segment, STORE_FILE_INDEX);
        r = r < 0 ? r : index_drop(store, partition, segment, STORE_FILE_TIMEINDEX);
    }
    int file = r < 0 ? r : mill_store_file(store, partition, segment, STORE_FILE_LOG);
    int64_t size = file < 0 ? file : files->size(files->context, file);
    if (size < 0) {
        return (int)size;
    }
    rebuild.built = *segment;
    struct store_walk walk = {
        .end_bytes = (uint64_t)size,
        .next_offset = segment->base_offset,
        .crc = last,
        .each = batch_load,
        .context = &rebuild,
    };
    r = mill_store_walk(store, file, &walk, ret_good);
    memcpy(rebuild.built.files, segment->files, sizeof(segment->files));
    if (!last) {
        mill_store_time_entry(&rebuild.built, &rebuild.entries); /* as when it was rolled */
    }
    r = r < 0 ? r : flush_entries(&rebuild);
    if (r < 0) {
        return r;
    }
    if (!rebuild.write) {
        rebuild.built.index_bytes = (uint64_t)index;
        rebuild.built.time_bytes = (uint64_t)time;
    }
    *segment = rebuild.built;
    *ret_size = (uint64_t)size;
    return 0;
}

static int segment_remove(struct mill_store *store, struct store_partition *partition,
                          int64_t base_offset)
{
    const struct mill_file_calls *files = store->config.files;
    for (int kind = STORE_FILE_KINDS - 1; kind >= 0; kind--) {
        char path[STORE_PATH_BYTES];
        mill_store_segment_path(partition, base_offset, (enum store_file_kind)kind, path,
                                sizeof(path));
        int r = files->remove_file(files->context, path);
        if (r < 0 && r != -ENOENT) {
            return r;
        }
    }
    return 0;
}

/* Cuts the tail of a segment whose last bytes are no valid batch. */
static int segment_cut(struct mill_store *store, struct store_partition *partition,
                       struct store_segment *segment, uint64_t good)
{
    int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    store->window_file = -1;
    return file < 0 ? file
                    : store->config.files->truncate(store->config.files->context, file, good);
}

static int segments_load(struct mill_store *store, struct store_partition *partition,
                         const struct bases *bases)
{
    for (uint32_t i = 0; i < bases->count; i++) {
        struct store_segment *segment = mill_store_segment_add(store, partition, bases->offsets[i]);
        uint64_t good = 0;
        uint64_t size = 0;
        if (!segment) {
            return -ENOMEM;
        }
        bool last = i + 1 == bases->count;
        int r = segment_walk(store, partition, segment, last, &good, &size);
        if (r < 0) {
            return r;
        }
        if (good == size) {
            continue;
        }
        r = segment_cut(store, partition, segment, good);
        /* What follows a damaged segment cannot be reached in order: it goes, as in Kafka. */
        for (uint32_t j = i + 1; r == 0 && j < bases->count; j++) {
            r = segment_remove(store, partition, bases->offsets[j]);
        }
        return r;
    }
    return 0;
}

int mill_store_load(struct mill_store *store, struct store_partition *partition)
{
    const struct mill_file_calls *files = store->config.files;
    struct bases bases = {0};
    int r = files->list(files->context, partition->path, base_note, &bases);
    if (r == 0 && bases.count == 0) {
        r = mill_store_segment_add(store, partition, 0) ? 0 : -ENOMEM;
        r = r < 0 ? r : mill_store_file(store, partition, &partition->segments[0], STORE_FILE_LOG);
        r = MILL_MIN(r, 0);
        partition->dir_unsynced = true;
    } else if (r == 0) {
        qsort(bases.offsets, bases.count, sizeof(bases.offsets[0]), by_offset);
        r = segments_load(store, partition, &bases);
    }
    free(bases.offsets);
    if (r < 0) {
        return r;
    }
    struct store_segment *last = &partition->segments[partition->segments_count - 1];
    partition->start_offset = partition->segments[0].base_offset;
    partition->written_offset = last->next_offset;
    partition->synced_offset = last->next_offset;
    r = mill_store_epochs_read(store, partition);
    partition->loaded = r == 0;
    return r;
}

void mill_store_unload(struct mill_store *store, struct store_partition *partition)
{
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        mill_store_file_close(store, &partition->segments[i]);
    }
    mill_store_producers_free(&partition->producers);
    free(partition->segments);
    partition->segments = NULL;
    partition->segments_count = 0;
    partition->segments_capacity = 0;
    partition->loaded = false;
}
