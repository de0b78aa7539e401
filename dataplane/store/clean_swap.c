/* SPDX-License-Identifier: Apache-2.0 */
/* The files of compaction, by Kafka's steps: BASE.*.cleaned is written and synced; renamed to
 * .swap, the log last, which is the point of no return; the segments it stands for are renamed to
 * .deleted; .swap loses its end. A start finds any of these states (mill_clean_recover): before the
 * point it removes what was begun, after it it finishes. Directories are synced between the steps,
 * so that a power cut leaves them in this order. See clean_types.h. */
#include "dataplane/store/clean_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

static const char *const kinds[CLEAN_FILES] = {"index", "timeindex", "txnindex", "log"};

static void path_of(char *ret_path, const char *dir, int64_t base_offset, int kind, const char *end)
{
    snprintf(ret_path, STORE_PATH_BYTES, "%s/%020" PRId64 ".%s%s", dir, base_offset, kinds[kind],
             end);
}

static int no_entry(int r)
{
    return r == -ENOENT ? 0 : r;
}

/* --- writing -----------------------------------------------------------------------------------
 */

static int file_open(struct mill_store *store, const struct store_partition *partition,
                     int64_t base_offset, int kind)
{
    char path[STORE_PATH_BYTES];
    path_of(path, partition->path, base_offset, kind, ".cleaned");
    return store->calls->open(store->calls->context, path,
                              MILL_FILE_READ | MILL_FILE_WRITE | MILL_FILE_CREATE |
                                  MILL_FILE_TRUNCATE);
}

int mill_clean_output_open(struct mill_store *store, const struct store_partition *partition,
                           int64_t base_offset, struct clean_output *output)
{
    uint8_t *bytes = output->bytes ? output->bytes : malloc(CLEAN_OUTPUT_BYTES);
    *output = (struct clean_output){
        .bytes = bytes, .segment = mill_store_segment_new(base_offset), .open = true};
    for (int kind = 0; kind < CLEAN_FILES; kind++) {
        output->files[kind] = -1;
    }
    int r = bytes ? 0 : -ENOMEM;
    for (int kind = 0; r >= 0 && kind < CLEAN_FILES; kind++) {
        if (kind != CLEAN_FILE_TXNINDEX) {
            r = output->files[kind] = file_open(store, partition, base_offset, kind);
        }
    }
    return MILL_MIN(r, 0);
}

static int entries_flush(struct mill_store *store, struct clean_output *output)
{
    struct store_segment *segment = &output->segment;
    struct store_entries *entries = &output->entries;
    uint32_t index = entries->index_count * STORE_INDEX_ENTRY_BYTES;
    uint32_t time = entries->time_count * STORE_TIME_ENTRY_BYTES;
    int r = mill_store_write_all(store->calls, output->files[CLEAN_FILE_INDEX], entries->index,
                                 index, segment->index_bytes);
    r = r < 0 ? r
              : mill_store_write_all(store->calls, output->files[CLEAN_FILE_TIMEINDEX],
                                     entries->time, time, segment->time_bytes);
    segment->index_bytes += index;
    segment->time_bytes += time;
    entries->index_count = 0;
    entries->time_count = 0;
    return r;
}

static int bytes_flush(struct mill_store *store, struct clean_output *output)
{
    int file = output->files[CLEAN_FILE_LOG];
    int r = mill_store_write_all(store->calls, file, output->bytes, output->bytes_count,
                                 output->segment.log_bytes - output->bytes_count);
    output->unsynced_bytes += output->bytes_count;
    output->bytes_count = 0;
    if (r == 0 && output->unsynced_bytes >= CLEAN_SYNC_BYTES) {
        output->unsynced_bytes = 0;
        r = store->calls->sync(store->calls->context, file);
    }
    return r;
}

int mill_clean_output_batch(struct mill_store *store, const struct store_partition *partition,
                            struct clean_output *output, const uint8_t *bytes, uint32_t size_bytes)
{
    struct mill_batch batch;
    int r = 0;
    mill_batch_read(bytes, &batch);
    if (output->segment.log_bytes + size_bytes > INT32_MAX) {
        return -EFBIG; /* an index entry could not name it */
    }
    if (output->bytes_count + size_bytes > CLEAN_OUTPUT_BYTES) {
        r = bytes_flush(store, output);
    }
    if (r == 0 && size_bytes > CLEAN_OUTPUT_BYTES) {
        r = mill_store_write_all(store->calls, output->files[CLEAN_FILE_LOG], bytes, size_bytes,
                                 output->segment.log_bytes);
        output->unsynced_bytes += size_bytes;
    } else if (r == 0) {
        memcpy(output->bytes + output->bytes_count, bytes, size_bytes);
        output->bytes_count += size_bytes;
    }
    if (r == 0) {
        mill_store_account(partition, &output->segment, &batch, &output->entries);
    }
    if (r == 0 && output->entries.index_count == STORE_BATCH_ENTRIES) {
        r = entries_flush(store, output);
    }
    return r;
}

int mill_clean_output_aborted(struct mill_store *store, const struct store_partition *partition,
                              struct clean_output *output, const struct clean_aborted *aborted)
{
    uint8_t entry[CLEAN_TXN_ENTRY_BYTES];
    int *file = &output->files[CLEAN_FILE_TXNINDEX];
    if (*file < 0) {
        *file = file_open(store, partition, output->segment.base_offset, CLEAN_FILE_TXNINDEX);
    }
    if (*file < 0) {
        return *file;
    }
    mill_store_be16(entry, 0);
    mill_store_be64(entry + 2, (uint64_t)aborted->producer_id);
    mill_store_be64(entry + 10, (uint64_t)aborted->first_offset);
    mill_store_be64(entry + 18, (uint64_t)aborted->last_offset);
    mill_store_be64(entry + 26, (uint64_t)aborted->stable_offset);
    int r = mill_store_write_all(store->calls, *file, entry, sizeof(entry), output->txn_bytes);
    output->txn_bytes += sizeof(entry);
    return r;
}

void mill_clean_output_close(struct mill_store *store, struct clean_output *output)
{
    for (int kind = 0; kind < CLEAN_FILES; kind++) {
        if (output->files[kind] >= 0) {
            int closed = store->calls->close(store->calls->context, output->files[kind]);
            MILL_UNUSED(closed); /* it was synced, or is about to be removed */
            output->files[kind] = -1;
        }
    }
}

int mill_clean_output_end(struct mill_store *store, const struct store_partition *partition,
                          struct clean_output *output)
{
    MILL_UNUSED(partition);
    mill_store_time_entry(&output->segment, &output->entries);
    output->segment.txn_bytes = output->txn_bytes;
    int r = entries_flush(store, output);
    r = r < 0 ? r : bytes_flush(store, output);
    for (int kind = 0; r == 0 && kind < CLEAN_FILES; kind++) {
        if (output->files[kind] >= 0) {
            r = store->calls->sync(store->calls->context, output->files[kind]);
        }
    }
    mill_clean_output_close(store, output);
    return r;
}

void mill_clean_output_drop(struct mill_store *store, const struct store_partition *partition,
                            struct clean_output *output)
{
    if (!output->open) {
        return;
    }
    mill_clean_output_close(store, output);
    for (int kind = 0; kind < CLEAN_FILES; kind++) {
        char path[STORE_PATH_BYTES];
        path_of(path, partition->path, output->segment.base_offset, kind, ".cleaned");
        int r = store->calls->remove_file(store->calls->context, path);
        MILL_UNUSED(r); /* the next start removes it */
    }
    output->open = false;
}

/* --- the swap ----------------------------------------------------------------------------------
 */

static int rename_kind(struct mill_store *store, const char *dir, int64_t base_offset, int kind,
                       const char *from_end, const char *to_end)
{
    char from[STORE_PATH_BYTES];
    char to[STORE_PATH_BYTES];
    path_of(from, dir, base_offset, kind, from_end);
    path_of(to, dir, base_offset, kind, to_end);
    return store->calls->rename(store->calls->context, from, to);
}

/* All files of one base; those that are not there are none of it. */
static int rename_all(struct mill_store *store, const char *dir, int64_t base_offset,
                      const char *from_end, const char *to_end)
{
    int r = 0;
    for (int kind = 0; r == 0 && kind < CLEAN_FILES; kind++) {
        r = no_entry(rename_kind(store, dir, base_offset, kind, from_end, to_end));
    }
    return r;
}

/* Takes the output back while it stands beside the old segments. The log goes first: without it a
 * start takes the rest for what was begun. ret: 0, -errno. */
static int swap_undo(struct mill_store *store, const char *dir, int64_t base_offset)
{
    int r = 0;
    for (int kind = CLEAN_FILES - 1; r == 0 && kind >= 0; kind--) {
        char path[STORE_PATH_BYTES];
        path_of(path, dir, base_offset, kind, ".swap");
        r = no_entry(store->calls->remove_file(store->calls->context, path));
    }
    return r;
}

/* Names the output .swap. ret: 0; -errno: nothing is left of it, or with *ret_half something is. */
static int swap_begin(struct mill_store *store, const struct store_partition *partition,
                      int64_t base_offset, bool *ret_half)
{
    const struct mill_file_calls *files = store->calls;
    int r = rename_all(store, partition->path, base_offset, ".cleaned", ".swap");
    r = r < 0 ? r : files->sync_dir(files->context, partition->path);
#ifdef MILL_MUTANT_STORE_SWAP_LEFT
    return r;
#endif
    *ret_half = r < 0 && swap_undo(store, partition->path, base_offset) < 0;
    return r;
}

int mill_clean_swap(struct mill_store *store, struct store_partition *partition, uint32_t first,
                    uint32_t count, const struct clean_output *output, bool *ret_half)
{
    int64_t base = output->segment.base_offset;
    const struct mill_file_calls *files = store->calls;
    int r = swap_begin(store, partition, base, ret_half);
    if (r < 0) {
        return r;
    }
#ifdef MILL_MUTANT_STORE_SWAP_FIRST
    r = r < 0 ? r : rename_all(store, partition->path, base, ".swap", "");
    r = r < 0 ? r : files->sync_dir(files->context, partition->path);
#endif
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        struct store_segment *segment = &partition->segments[first + i];
        /* The snapshot of the first one's base is still that of a segment. */
        r = mill_store_segment_delete(store, partition, segment, i > 0);
    }
    r = r < 0 ? r : files->sync_dir(files->context, partition->path);
    r = r < 0 ? r : rename_all(store, partition->path, base, ".swap", "");
    r = r < 0 ? r : files->sync_dir(files->context, partition->path);
    if (r < 0) {
        *ret_half = true;
        return r;
    }
    partition->segments[first] = output->segment;
    memmove(&partition->segments[first + 1], &partition->segments[first + count],
            (partition->segments_count - first - count) * sizeof(partition->segments[0]));
    partition->segments_count -= count - 1;
    return 0;
}

/* --- recovery ----------------------------------------------------------------------------------
 */

struct leftover {
    struct mill_store *store;
    const char *dir;
    int64_t *swaps; /* bases of whole ones */
    uint32_t swaps_count;
    int64_t base; /* of the one looked at: regular segments in its range go */
    int64_t end_offset;
    int64_t before; /* base of the regular segment before it, -1 none */
};

/* NUMBER.KIND END. ret: the kind, -1 it is another file. */
static int kind_of(const char *name, const char *end, int64_t *ret_base)
{
    char rest[64];
    int used = 0;
    if (strlen(name) >= sizeof(rest) || sscanf(name, "%20" SCNd64 "%n", ret_base, &used) != 1 ||
        used != 20 || name[20] != '.') {
        return -1;
    }
    for (int kind = 0; kind < CLEAN_FILES; kind++) {
        snprintf(rest, sizeof(rest), "%s%s", kinds[kind], end);
        if (strcmp(name + 21, rest) == 0) {
            return kind;
        }
    }
    return -1;
}

static int cleaned_remove(void *context, const char *name)
{
    struct leftover *leftover = context;
    char path[STORE_PATH_BYTES];
    int64_t base;
    if (kind_of(name, ".swap", &base) == CLEAN_FILE_LOG) {
        void *grown = realloc(leftover->swaps, (leftover->swaps_count + 1) * sizeof(int64_t));
        if (!grown) {
            return -ENOMEM;
        }
        leftover->swaps = grown;
        leftover->swaps[leftover->swaps_count++] = base;
    }
    if (!mill_store_name_ends(name, ".cleaned")) {
        return 0;
    }
    snprintf(path, sizeof(path), "%s/%.80s", leftover->dir, name);
    return no_entry(leftover->store->calls->remove_file(leftover->store->calls->context, path));
}

/* Index files whose log never came so far. */
static int lonely_remove(void *context, const char *name)
{
    struct leftover *leftover = context;
    char path[STORE_PATH_BYTES];
    int64_t base;
    if (kind_of(name, ".swap", &base) < 0) {
        return 0;
    }
    for (uint32_t i = 0; i < leftover->swaps_count; i++) {
        if (leftover->swaps[i] == base) {
            return 0;
        }
    }
    snprintf(path, sizeof(path), "%s/%.80s", leftover->dir, name);
    return no_entry(leftover->store->calls->remove_file(leftover->store->calls->context, path));
}

static int replaced_remove(void *context, const char *name)
{
    struct leftover *leftover = context;
    char path[STORE_PATH_BYTES];
    int64_t base;
    if (kind_of(name, "", &base) < 0 || base <= leftover->base || base >= leftover->end_offset) {
        return 0;
    }
    snprintf(path, sizeof(path), "%s/%.80s", leftover->dir, name);
    return no_entry(leftover->store->calls->remove_file(leftover->store->calls->context, path));
}

static int end_note(void *context, const struct mill_batch *batch, uint64_t pos_bytes)
{
    MILL_UNUSED(pos_bytes);
    *(int64_t *)context = mill_batch_last_offset(batch) + 1;
    return 0;
}

/* While the old log has its name, so have its indexes: they are not the new one's. */
static int old_indexes_remove(struct mill_store *store, const char *dir, int64_t base)
{
    const struct mill_file_calls *files = store->calls;
    char path[STORE_PATH_BYTES];
    path_of(path, dir, base, CLEAN_FILE_LOG, "");
    int file = files->open(files->context, path, MILL_FILE_READ);
    if (file < 0) {
        return no_entry(file);
    }
    int r = files->close(files->context, file);
    MILL_UNUSED(r); /* nothing was written */
    r = 0;
    for (int kind = 0; r == 0 && kind < CLEAN_FILE_LOG; kind++) {
        path_of(path, dir, base, kind, "");
        r = no_entry(files->remove_file(files->context, path));
    }
    return r;
}

/* Where the batches of a log end; base_offset when it holds none. ret: 0, -errno. */
static int log_end(struct mill_store *store, const char *dir, int64_t base_offset, const char *end,
                   int64_t *ret_end_offset)
{
    const struct mill_file_calls *files = store->calls;
    char path[STORE_PATH_BYTES];
    path_of(path, dir, base_offset, CLEAN_FILE_LOG, end);
    int file = files->open(files->context, path, MILL_FILE_READ);
    int64_t size = file < 0 ? file : files->size(files->context, file);
    *ret_end_offset = base_offset;
    struct store_walk walk = {.end_bytes = (uint64_t)MILL_MAX(size, 0),
                              .next_offset = base_offset,
                              .each = end_note,
                              .context = ret_end_offset};
    uint64_t good = 0;
    int r = size < 0 ? (int)size : mill_store_walk(store, file, &walk, &good);
    store->window_file = -1; /* the descriptor's number will be another file's */
    if (file >= 0) {
        int closed = files->close(files->context, file);
        MILL_UNUSED(closed); /* nothing was written */
    }
    return r;
}

static int before_note(void *context, const char *name)
{
    struct leftover *leftover = context;
    int64_t base;
    if (kind_of(name, "", &base) == CLEAN_FILE_LOG && base < leftover->base) {
        leftover->before = MILL_MAX(leftover->before, base);
    }
    return 0;
}

/* Whether the segment before reaches over the base: a later compaction has put in it what the .swap
 * file stands for. ret: 1 yes, 0, -errno. */
static int swap_is_stale(struct leftover *leftover, int64_t base)
{
    const struct mill_file_calls *files = leftover->store->calls;
    int64_t end_offset = base;
    leftover->base = base;
    leftover->before = -1;
    int r = files->list(files->context, leftover->dir, before_note, leftover);
    if (r == 0 && leftover->before >= 0) {
        r = log_end(leftover->store, leftover->dir, leftover->before, "", &end_offset);
    }
#ifdef MILL_MUTANT_STORE_SWAP_STALE
    return 0;
#endif
    return r < 0 ? r : end_offset > base;
}

/* Finishes the swap of one base. Old segments in its range go first: while its log is still called
 * .swap, a start knows of them. */
static int swap_finish(struct leftover *leftover, int64_t base)
{
    struct mill_store *store = leftover->store;
    const struct mill_file_calls *files = store->calls;
    leftover->base = base;
    int r = log_end(store, leftover->dir, base, ".swap", &leftover->end_offset);
    r = r < 0 ? r : files->list(files->context, leftover->dir, replaced_remove, leftover);
    r = r < 0 ? r : old_indexes_remove(store, leftover->dir, base);
    r = r < 0 ? r : files->sync_dir(files->context, leftover->dir);
    r = r < 0 ? r : rename_all(store, leftover->dir, base, ".swap", "");
    return r < 0 ? r : files->sync_dir(files->context, leftover->dir);
}

int mill_clean_recover(struct mill_store *store, const struct store_partition *partition)
{
    const struct mill_file_calls *files = store->calls;
    struct leftover leftover = {.store = store, .dir = partition->path};
    int r = files->list(files->context, partition->path, cleaned_remove, &leftover);
    r = r < 0 ? r : files->list(files->context, partition->path, lonely_remove, &leftover);
    for (uint32_t i = 0; r == 0 && i < leftover.swaps_count; i++) {
        int64_t base = leftover.swaps[i];
        int stale = swap_is_stale(&leftover, base);
        if (stale >= 0) {
            mill_log_dirs_say(store->dirs, MILL_LEVEL_INFO, "store.swap",
                              "partition=%s: %020" PRId64 ".log.swap %s: a compaction was "
                              "interrupted",
                              partition->path, base,
                              stale == 1 ? "is removed, a later one has its records"
                                         : "takes its place");
        }
        r = stale < 0    ? stale
            : stale == 1 ? swap_undo(store, partition->path, base)
                         : swap_finish(&leftover, base);
    }
    free(leftover.swaps);
    return r;
}
