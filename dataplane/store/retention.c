/* SPDX-License-Identifier: Apache-2.0 */
/* Old segments: which of them retention no longer keeps, and their removal in two steps as Kafka's
 * (renamed at once, removed after file.delete.delay.ms). The log decides where it starts (OLD, then
 * TRIM; store_link.h). The store's thread only. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

/* The log last: while it is there, a segment is, and what lacks is made anew. */
static const char *const suffixes[] = {"index", "timeindex", "txnindex", "snapshot", "log"};

enum {
    SNAPSHOT = 3, /* where it stands */
};

/* A segment whose files were renamed. */
struct store_deleted {
    char path[STORE_PARTITION_PATH_BYTES];
    int64_t base_offset;
    uint64_t due_ns;
};

static void path_of(char *ret_path, const char *dir, int64_t base_offset, size_t kind,
                    const char *end)
{
    snprintf(ret_path, STORE_PATH_BYTES, "%s/%020" PRId64 ".%s%s", dir, base_offset, suffixes[kind],
             end);
}

/* --- removal --------------------------------------------------------------------------------- */

static int files_remove(const struct mill_file_calls *files, const struct store_deleted *deleted)
{
    int first = 0;
    for (size_t kind = 0; kind < MILL_COUNT_OF(suffixes); kind++) {
        char path[STORE_PATH_BYTES];
        path_of(path, deleted->path, deleted->base_offset, kind, ".deleted");
        int r = files->remove_file(files->context, path);
        first = first < 0 || r == -ENOENT ? first : r;
    }
    return first;
}

static struct store_deleted *deleted_add(struct mill_store *store)
{
    if (store->deleted_length == store->deleted_capacity) {
        uint32_t capacity = MILL_MAX(16u, store->deleted_capacity * 2);
        struct store_deleted *grown = realloc(store->deleted, capacity * sizeof(grown[0]));
        if (!grown) {
            return NULL;
        }
        store->deleted = grown;
        store->deleted_capacity = capacity;
    }
    return &store->deleted[store->deleted_length++];
}

int mill_store_segment_delete(struct mill_store *store, struct store_partition *partition,
                              struct store_segment *segment, bool snapshot)
{
    int64_t base = segment->base_offset;
    mill_store_file_close(store, partition, segment);
    for (size_t kind = 0; kind < MILL_COUNT_OF(suffixes); kind++) {
        if (kind == SNAPSHOT && (!snapshot || partition->snapshot_offset == base)) {
            continue;
        }
        char from[STORE_PATH_BYTES];
        char to[STORE_PATH_BYTES];
        path_of(from, partition->path, base, kind, "");
        path_of(to, partition->path, base, kind, ".deleted");
        int r = store->calls->rename(store->calls->context, from, to);
        if (r < 0 && r != -ENOENT) {
            return r;
        }
    }
    struct store_deleted *deleted = deleted_add(store);
    if (deleted) {
        uint64_t delay_ms = (uint64_t)MILL_MAX(partition->settings.file_delete_delay_ms, 0);
        snprintf(deleted->path, sizeof(deleted->path), "%s", partition->path);
        deleted->base_offset = base;
        deleted->due_ns =
            store->now.mono_ns + MILL_MIN(delay_ms, (uint64_t)INT32_MAX) * MILL_NS_PER_MS;
        store->delete_at_ns = MILL_MIN(store->delete_at_ns, deleted->due_ns);
    }
    return 0; /* without memory for the list the next start removes them */
}

void mill_store_deleted_run(struct mill_store *store)
{
    uint32_t kept = 0;
    if (store->now.mono_ns < store->delete_at_ns) {
        return;
    }
    store->delete_at_ns = MILL_NEVER;
    for (uint32_t i = 0; i < store->deleted_length; i++) {
        struct store_deleted *deleted = &store->deleted[i];
        if (deleted->due_ns > store->now.mono_ns) {
            store->delete_at_ns = MILL_MIN(store->delete_at_ns, deleted->due_ns);
            store->deleted[kept++] = *deleted;
            continue;
        }
        int r = files_remove(store->calls, deleted);
        if (r < 0) {
            mill_log_dirs_say(store->dirs, MILL_LEVEL_WARN, "store.deletion",
                              "%s/%020" PRId64 ".*.deleted cannot be removed: %s", deleted->path,
                              deleted->base_offset, strerror(-r));
        }
    }
    store->deleted_length = kept;
}

/* --- the log start --------------------------------------------------------------------------- */

int mill_store_trim(struct mill_store *store, struct store_partition *partition,
                    int64_t start_offset)
{
#ifndef MILL_MUTANT_STORE_TRIM_UNMARKED
    if (partition->mark) {
        /* Before the files change: a take-up then knows that what lies below is void. */
        atomic_store_explicit(&partition->mark->start_offset, start_offset, memory_order_release);
    }
#endif
    partition->start_offset = MILL_MAX(partition->start_offset, start_offset);
    uint32_t gone = 0;
    int r = 0;
    while (r == 0 && gone + 1 < partition->segments_count &&
           partition->segments[gone + 1].base_offset <= partition->start_offset) {
        r = mill_store_segment_delete(store, partition, &partition->segments[gone], true);
        gone += r == 0 ? 1 : 0;
    }
    if (gone > 0) {
        partition->segments_count -= gone;
        memmove(&partition->segments[0], &partition->segments[gone],
                partition->segments_count * sizeof(partition->segments[0]));
        int synced = store->calls->sync_dir(store->calls->context, partition->path);
        r = r < 0 ? r : synced;
    }
    return r;
}

/* --- what is old ----------------------------------------------------------------------------- */

static bool is_expired(const struct store_partition *partition, const struct store_segment *segment,
                       int64_t now_ms)
{
    int64_t keep = partition->settings.retention_ms;
    return keep >= 0 && segment->max_timestamp >= 0 && now_ms - segment->max_timestamp > keep;
}

/* The offset from which on retention keeps: a segment's base, or the log's end. */
static int64_t kept_from(const struct store_partition *partition, int64_t now_ms)
{
    int64_t keep_bytes = partition->settings.retention_bytes;
    uint64_t total = 0;
    uint32_t gone = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        total += partition->segments[i].log_bytes;
    }
    while (at < partition->segments_count) {
        const struct store_segment *segment = &partition->segments[at];
        bool last = at + 1 == partition->segments_count;
        bool over = keep_bytes >= 0 && !last && total - segment->log_bytes >= (uint64_t)keep_bytes;
        bool empty = segment->log_bytes == 0;
#ifdef MILL_MUTANT_STORE_KEEP_LESS
        over = keep_bytes >= 0 && !last && total > (uint64_t)keep_bytes;
#endif
        if (!over && (empty ? last : !is_expired(partition, segment, now_ms))) {
            break;
        }
        total -= segment->log_bytes;
        at++;
        /* One that compaction left empty goes with an old one behind it, not by itself: readers
         * there are still led on. */
        gone = over || !empty ? at : gone;
    }
    return gone < partition->segments_count ? partition->segments[gone].base_offset
                                            : partition->written_offset;
}

/* ret: the start that the log is asked for, -1 none; -errno of a roll. */
static int64_t look(struct mill_store *store, struct store_partition *partition)
{
    if (!partition->settings.delete_old || partition->writing || partition->opening) {
        return -1;
    }
    int64_t from = kept_from(partition, store->now.wall_ms);
    const struct store_segment *last = &partition->segments[partition->segments_count - 1];
    if (from == partition->segments[0].base_offset && from != partition->written_offset) {
        return -1;
    }
    if (from == partition->written_offset && last->log_bytes > 0) {
        /* The active segment is old too: an empty one takes its place. */
        int r = mill_store_roll(store, partition, from);
        if (r < 0) {
            mill_log_dirs_say(store->dirs, MILL_LEVEL_WARN, "store.retention",
                              "partition=%s cannot begin a segment: %s", partition->path,
                              strerror(-r));
            return -1;
        }
    }
    return from > partition->start_offset ? from : -1;
}

void mill_store_retention_run(struct mill_store *store)
{
    if (store->now.mono_ns < store->retention_at_ns) {
        return;
    }
    for (; store->retention_cursor < store->partitions_length; store->retention_cursor++) {
        struct store_partition *partition = store->partitions[store->retention_cursor];
        if (!mill_store_is_whole(store, partition)) {
            continue;
        }
        if (!mill_store_out_room(store)) {
            return; /* goes on here when the core has read its answers */
        }
        int64_t from = look(store, partition);
        if (from >= 0) {
            struct mill_link_start *to =
                mill_store_tell(store, partition, MILL_LINK_OLD, sizeof(*to));
            to->start_offset = from;
        }
    }
    store->retention_cursor = 0;
    store->retention_at_ns =
        store->now.mono_ns + (uint64_t)store->config.retention_check_ms * MILL_NS_PER_MS;
}
