/* SPDX-License-Identifier: Apache-2.0 */
/* The store's turn: takes requests of its core, a few per turn, and answers; see store.h. A write
 * that finds the disk full is kept and tried again; any other failed write or sync fences its log
 * directory for good. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

#define FULL_RETRY_NS MILL_NS_PER_MS /* the ring to the core is full */

/* --- answers --------------------------------------------------------------------------------- */

/* Room in the ring was looked at before the request was taken (out_room). */
static void *tell_of(struct mill_store *store, struct mill_link_head of, uint32_t kind,
                     uint32_t size_bytes)
{
    struct mill_link_head *head = mill_ring_claim(&store->config.out, kind, size_bytes);
    MILL_ASSERT(head != NULL);
    memset(head, 0, size_bytes);
    *head = of;
    store->told = true;
    return head;
}

void *mill_store_tell(struct mill_store *store, const struct store_partition *partition,
                      uint32_t kind, uint32_t size_bytes)
{
    struct mill_link_head of = {.slot = partition->slot, .generation = partition->generation};
    return tell_of(store, of, kind, size_bytes);
}

/* One request leads to few answers; fencing tells each partition on its own and looks again. */
bool mill_store_out_room(struct mill_store *store)
{
    return mill_ring_fits(&store->config.out, sizeof(struct mill_link_opened) * 2);
}

static void tell_written(struct mill_store *store, struct store_partition *partition, int status)
{
    struct mill_link_written *to =
        mill_store_tell(store, partition, MILL_LINK_WRITTEN, sizeof(*to));
    to->status = status;
    to->written_offset = partition->written_offset;
    to->synced_offset = partition->synced_offset;
}

bool mill_store_is_loading(const struct store_partition *partition)
{
    /* Acquire pairs with the loader's DONE: then all of it is ours to read. */
    return atomic_load_explicit(&partition->loading, memory_order_acquire) != STORE_LOAD_NOT;
}

bool mill_store_is_fenced(const struct mill_store *store, const struct store_partition *partition)
{
    return atomic_load_explicit(&store->dirs->dirs[partition->dir].fenced, memory_order_acquire);
}

static void fence_tell(struct mill_store *store)
{
    for (uint32_t i = 0; i < store->partitions_length; i++) {
        struct store_partition *partition = store->partitions[i];
        /* One that is still opening is told by its OPENED. */
        if (!partition || partition->opening || mill_store_is_loading(partition) ||
            !partition->loaded || partition->failed_told ||
            !mill_store_is_fenced(store, partition)) {
            continue;
        }
        if (!mill_store_out_room(store)) {
            return;
        }
        mill_store_tell(store, partition, MILL_LINK_FAILED, sizeof(struct mill_link_only));
        partition->failed_told = true;
        store->stalled -= partition->full_told ? 1 : 0;
        partition->writing = false;
        partition->full_told = false;
    }
    store->fence_told = true;
}

/* --- writing --------------------------------------------------------------------------------- */

/* What passes by itself: no space, or no descriptor or memory at this moment. */
bool mill_store_passing(int r)
{
#ifdef MILL_MUTANT_STORE_FULL_FENCES
    return false;
#endif
#ifdef MILL_MUTANT_STORE_NO_MEMORY_FENCES
    return mill_store_full(r);
#endif
    return mill_store_full(r) || r == -EMFILE || r == -ENFILE || r == -ENOMEM;
}

/* All of the write is in the files, and synced where that was asked for. */
static void write_end(struct mill_store *store, struct store_partition *partition)
{
    store->stalled -= partition->full_told ? 1 : 0;
    partition->full_told = false;
    partition->writing = false;
    tell_written(store, partition, 0);
}

/* Goes on with the partition's write. The disk being full keeps it; other failures fence. */
static void write_run(struct mill_store *store, struct store_partition *partition,
                      struct mill_now now)
{
    struct mill_link_write *write = &partition->write;
    bool sync = partition->writing && write->sync;
    sync = sync || (partition->kept_count > 0 && partition->settings.flush_messages == 1);
    int r = mill_store_kept_write(store, partition);
    while (r == 0 && partition->writing && partition->part < write->parts_count) {
        struct mill_ref part = write->parts[partition->part];
        uint32_t done = 0;
        const uint8_t *bytes = mill_ref_data(mill_arena_base(store->config.arena), &part);
        r = mill_store_append(store, partition, bytes + partition->part_bytes,
                              part.size_bytes - partition->part_bytes, &done);
        partition->part_bytes += done;
        if (r == 0) {
            partition->part++;
            partition->part_bytes = 0;
        }
    }
    if (partition->mark) {
        /* Release: after the bytes are in the file. */
        atomic_store_explicit(&partition->mark->written_offset, partition->written_offset,
                              memory_order_release);
    }
#ifdef MILL_MUTANT_STORE_FULL_DROPPED
    r = mill_store_passing(r) ? 0 : r;
#endif
    if (mill_store_passing(r)) {
        if (!partition->full_told) {
            partition->full_told = true;
            store->stalled++;
            tell_written(store, partition, -ENOSPC);
        }
        store->retry_at_ns = now.mono_ns + STORE_RETRY_NS;
        return;
    }
#ifdef MILL_MUTANT_STORE_ACK_UNSYNCED
    sync = false;
    partition->synced_offset = partition->written_offset;
#endif
    if (r == 0 && sync) {
        r = mill_store_sync_begin(store, partition);
    }
    if (r < 0) {
        mill_log_dirs_fence(store->dirs, partition->dir, r);
    } else if (!sync) {
        write_end(store, partition);
    }
}

void mill_store_synced(struct mill_store *store, struct store_partition *partition, int r)
{
    if (r < 0) {
        mill_log_dirs_fence(store->dirs, partition->dir, r);
    } else if (!mill_store_is_fenced(store, partition) && !partition->failed_told) {
        write_end(store, partition);
    }
}

void mill_store_write_go_on(struct mill_store *store, struct store_partition *partition)
{
    if (!mill_store_is_fenced(store, partition)) {
        write_run(store, partition, store->now);
    }
}

static uint32_t retries_run(struct mill_store *store, struct mill_now now)
{
    uint32_t work = 0;
    if (now.mono_ns < store->retry_at_ns) {
        return 0;
    }
    store->retry_at_ns = MILL_NEVER;
    for (uint32_t i = 0; store->stalled > 0 && i < store->partitions_length; i++) {
        struct store_partition *partition = store->partitions[i];
        if (partition && partition->full_told && !partition->opening && !partition->syncing &&
            mill_store_out_room(store)) {
            write_run(store, partition, now);
            work += partition->full_told ? 0 : 1;
        }
    }
    if (store->stalled > 0) {
        store->retry_at_ns = MILL_MIN(store->retry_at_ns, now.mono_ns + STORE_RETRY_NS);
    }
    return work;
}

/* --- requests -------------------------------------------------------------------------------- */

static void take_read(struct mill_store *store, struct store_partition *partition,
                      const struct mill_link_read *read)
{
    uint32_t size = 0;
    int status = -EIO;
    if (partition->kept_count > 0 && read->offset >= partition->written_offset) {
        status = mill_store_kept_read(store, partition, read, &size);
    } else if (partition->loaded) {
        status = mill_store_read_begin(store, partition, read);
        if (status == 0) {
            return; /* READ_DONE follows */
        }
    }
    struct mill_link_read_done *to =
        mill_store_tell(store, partition, MILL_LINK_READ_DONE, sizeof(*to));
    to->request = read->request;
    to->extent = read->extent;
    to->status = status;
    to->size_bytes = size;
}

static void take_time(struct mill_store *store, struct store_partition *partition,
                      const struct mill_link_time *time)
{
    int64_t offset = -1;
    int64_t timestamp = -1;
    int status = mill_store_find_time(store, partition, time->time_ms, time->from_offset, &offset,
                                      &timestamp);
    struct mill_link_time_done *to =
        mill_store_tell(store, partition, MILL_LINK_TIME_DONE, sizeof(*to));
    to->request = time->request;
    to->status = status;
    to->offset = offset;
    to->timestamp = timestamp;
}

/* Needs nothing of a partition: one that is gone gets its answer too. */
static void take_inspect(struct mill_store *store, const struct mill_link_inspect *ask)
{
    struct mill_link_inspected answer;
    mill_store_inspect(store, ask, &answer);
    struct mill_link_inspected *to = tell_of(store, ask->head, MILL_LINK_INSPECTED, sizeof(*to));
    answer.head = to->head;
    *to = answer;
}

/* Answered for a partition that is gone, too: the core waits for its extent. */
static void take_aborted(struct mill_store *store, struct store_partition *partition,
                         const struct mill_link_aborted *ask)
{
    struct mill_link_aborted_done answer;
    mill_store_txn_find(store, partition, ask, &answer);
    struct mill_link_aborted_done *to =
        tell_of(store, ask->head, MILL_LINK_ABORTED_DONE, sizeof(*to));
    answer.head = to->head;
    *to = answer;
}

static void take_trim(struct mill_store *store, struct store_partition *partition,
                      const struct mill_link_start *start)
{
    mill_store_clean_stop(store, partition);
    int r = mill_store_trim(store, partition, start->start_offset);
    if (r < 0) {
        mill_log_dirs_fence(store->dirs, partition->dir, r);
        return;
    }
    bool noted = mill_store_offsets_note(store, partition);
    MILL_UNUSED(noted); /* the mark has it; the next checkpoint notes it again */
    mill_store_points_moved(store);
    struct mill_link_start *to = mill_store_tell(store, partition, MILL_LINK_TRIMMED, sizeof(*to));
    to->start_offset = start->start_offset;
}

void mill_store_delete(struct mill_store *store, struct store_partition *partition)
{
    int r = 0;
    mill_store_clean_stop(store, partition);
    if (partition->jobs > 0) {
        partition->doomed = true; /* helpers use its files: when they are done */
        return;
    }
    if (partition->mark) {
        /* Before the files change: a take-up must not bring back what is being deleted. */
        atomic_store_explicit(&partition->mark->start_offset, INT64_MAX, memory_order_release);
    }
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        mill_store_file_close(store, partition, &partition->segments[i]);
    }
#ifndef MILL_MUTANT_STORE_DELETE_KEPT
    if (partition->path[0] && partition->loaded &&
        (partition->status == 0 || partition->status == -EUCLEAN ||
         partition->status == -EOVERFLOW)) {
        int forgotten = mill_store_offsets_forget(store->dirs, &store->dirs->dirs[partition->dir],
                                                  strrchr(partition->path, '/') + 1, false);
        MILL_UNUSED(forgotten); /* nothing was written */
        mill_store_points_moved(store);
        r = mill_store_dir_remove(store, partition);
    }
#endif
    if (r < 0) {
        mill_log_dirs_fence(store->dirs, partition->dir, r);
    }
    if (partition->mark) {
        mill_arena_mark_free(partition->mark);
    }
    mill_store_kept_drop(store, partition);
    mill_store_tell(store, partition, MILL_LINK_GONE, sizeof(struct mill_link_only));
    mill_store_partition_free(store, partition);
}

static void take_epochs(struct mill_store *store, struct store_partition *partition,
                        const struct mill_link_epochs *epochs)
{
    partition->epochs_count = MILL_MIN(epochs->count, (uint32_t)MILL_LINK_EPOCHS_MAX);
    memcpy(partition->epochs, epochs->epochs, sizeof(partition->epochs));
    /* The epochs stand in the batches too: while the file lacks them the recovery point stays, so
     * that a later start reads them there. */
    partition->epochs_unsaved = true;
    mill_store_points_moved(store);
}

/* Nothing is asked of a partition before it is open, but that it changes, or goes. */
static void take_while_loading(struct store_partition *partition, uint32_t kind,
                               const void *message)
{
    if (kind == MILL_LINK_SETTINGS) {
        partition->settings_next = ((const struct mill_link_settings *)message)->settings;
        partition->settings_changed = true;
    } else if (kind == MILL_LINK_DELETE) {
        partition->delete_wanted = true;
    }
}

static void take_one(struct mill_store *store, uint32_t kind, const void *message,
                     struct mill_now now)
{
    struct store_partition *partition = mill_store_partition_at(store, message);
    if (kind == MILL_LINK_OPEN) {
        mill_store_open(store, message, now);
        return;
    }
    if (kind == MILL_LINK_INSPECT) {
        take_inspect(store, message);
        return;
    }
    if (kind == MILL_LINK_ABORTED) {
        take_aborted(store, partition, message);
        return;
    }
    if (!partition) {
        return;
    }
    if (mill_store_is_loading(partition)) {
        take_while_loading(partition, kind, message);
        return;
    }
    bool fenced = mill_store_is_fenced(store, partition);
    switch (kind) {
    case MILL_LINK_WRITE:
        if (!fenced) {
            partition->write = *(const struct mill_link_write *)message;
            partition->part = 0;
            partition->part_bytes = 0;
            partition->writing = true;
            if (mill_store_cached_full(store)) {
                mill_store_link_add(&store->paused, &partition->paused);
            } else {
                write_run(store, partition, now);
            }
        }
        break;
    case MILL_LINK_EPOCHS:
        if (!fenced) {
            take_epochs(store, partition, message);
        }
        break;
    case MILL_LINK_SETTINGS:
        partition->settings = ((const struct mill_link_settings *)message)->settings;
        break;
    case MILL_LINK_READ:
        take_read(store, partition, message);
        break;
    case MILL_LINK_TIME:
        take_time(store, partition, message);
        break;
    case MILL_LINK_TRIM:
        if (!fenced) {
            take_trim(store, partition, message);
        }
        break;
    case MILL_LINK_DELETE:
        mill_store_delete(store, partition);
        break;
    default:
        break;
    }
}

/* Takes what was altered since the last turn. A store that does not compact goes on so. */
static void tuning_take(struct mill_store *store)
{
    const struct mill_store_tuning *tuning = store->config.tuning;
    struct mill_store_config *config = &store->config;
    if (!tuning) {
        return;
    }
    config->producer_expiration_ms =
        atomic_load_explicit(&tuning->producer_expiration_ms, memory_order_relaxed);
    uint64_t map = atomic_load_explicit(&tuning->clean_map_bytes, memory_order_relaxed);
    uint64_t rate = atomic_load_explicit(&tuning->clean_bytes_per_second, memory_order_relaxed);
    int64_t backoff = atomic_load_explicit(&tuning->clean_backoff_ms, memory_order_relaxed);
    if (config->clean_map_bytes > 0 &&
        (map != config->clean_map_bytes || rate != config->clean_bytes_per_second ||
         backoff != config->clean_backoff_ms)) {
        config->clean_map_bytes = map;
        config->clean_bytes_per_second = rate;
        config->clean_backoff_ms = backoff;
#ifndef MILL_MUTANT_STORE_TUNING_WAITS
        mill_store_clean_at_once(store);
#endif
    }
}

uint32_t mill_store_step(struct mill_store *store, struct mill_now now)
{
    /* First what was due: the openings may set a new time to look again. */
    store->now = now;
    tuning_take(store);
    uint32_t work = retries_run(store, now);
    uint32_t kind;
    uint32_t size;
    const void *message;
    work += mill_store_openings_run(store, now);
    work += mill_store_jobs_run(store);
    for (uint32_t i = 0; i < STORE_STEP_MESSAGES && mill_store_out_room(store) &&
                         (message = mill_ring_next(&store->config.in, &kind, &size)) != NULL;
         i++) {
        take_one(store, kind, message, now);
        work++;
    }
    if (work > 0) {
        mill_ring_release(&store->config.in);
    }
    mill_store_cached_run(store);
    uint32_t fences = atomic_load_explicit(&store->dirs->fences, memory_order_acquire);
    if (fences != store->fences_seen) {
        store->fences_seen = fences;
        store->fence_told = false;
    }
    if (!store->fence_told) {
        fence_tell(store);
    }
    mill_store_checkpoint_run(store, now);
    mill_store_retention_run(store);
    mill_store_deleted_run(store);
    work += mill_store_clean_run(store);
    if (!mill_store_out_room(store)) {
        /* The core rings no bell when it has read answers: look again by ourselves. */
        store->retry_at_ns = MILL_MIN(store->retry_at_ns, now.mono_ns + FULL_RETRY_NS);
    }
    if (store->told) {
        store->told = false;
        mill_ring_publish(&store->config.out);
        mill_bell_ring(&store->config.core_bell);
    }
    return work;
}

uint64_t mill_store_deadline(const struct mill_store *store)
{
    uint64_t at_ns = MILL_MIN(MILL_MIN(store->retry_at_ns, store->checkpoint_at_ns),
                              MILL_MIN(store->retention_at_ns, store->delete_at_ns));
    return MILL_MIN(at_ns, mill_store_clean_deadline(store));
}

/* --- making and closing ---------------------------------------------------------------------- */

int mill_store_create(const struct mill_store_config *config, struct mill_store **ret_store,
                      struct mill_report *report)
{
    struct mill_store *store = calloc(1, sizeof(*store));
    if (!store || config->open_files_max < 4) {
        free(store);
        return mill_fail(report, store ? -EINVAL : -ENOMEM, "the store cannot be made");
    }
    store->config = *config;
    store->dirs = config->dirs;
    store->calls = config->dirs->options.files;
    store->retry_at_ns = MILL_NEVER;
    store->checkpoint_at_ns = MILL_NEVER;
    store->delete_at_ns = MILL_NEVER;
    store->fence_told = true;
    mill_store_link_init(&store->openings);
    pthread_mutex_init(&store->loaded.lock, NULL);
    store->loaded.last = &store->loaded.first;
    int r = mill_store_files_init(store);
    r = r < 0 ? r : mill_store_clean_init(store);
    r = r < 0 ? r : mill_store_jobs_init(store);
    if (r < 0) {
        mill_store_clean_fini(store);
        mill_store_jobs_fini(store);
        mill_store_files_fini(store);
        pthread_mutex_destroy(&store->loaded.lock);
        free(store);
        return mill_fail(report, r, "no memory, or no threads, for the files of a store");
    }
    *ret_store = store;
    return 0;
}

void mill_store_abandon(struct mill_store *store)
{
    if (!store) {
        return;
    }
    mill_store_jobs_end(store);
    mill_store_clean_fini(store);
    for (uint32_t i = 0; i < store->partitions_length; i++) {
        if (store->partitions[i]) {
            mill_store_partition_free(store, store->partitions[i]);
        }
    }
    mill_store_jobs_fini(store);
    mill_store_files_fini(store);
    pthread_mutex_destroy(&store->loaded.lock);
    free(store->deleted);
    free(store->partitions);
    free(store);
}

/* ret: nothing of the partition is missing in its files. */
static bool partition_close(struct mill_store *store, struct store_partition *partition)
{
    if (!mill_store_is_whole(store, partition)) {
        return true; /* nothing was written since its checkpoint, or all was given up, told */
    }
    if (partition->writing || mill_store_segment_end(store, partition) < 0 ||
        mill_store_snapshot_write(store, partition) < 0) {
        return false;
    }
    /* The directories' close syncs all of it. */
    if (partition->epochs_unsaved && mill_store_epochs_write(store, partition, false) < 0) {
        return false;
    }
    partition->epochs_unsaved = false;
    partition->synced_offset = partition->written_offset;
    return mill_store_offsets_note(store, partition);
}

bool mill_store_close(struct mill_store *store, struct mill_now now)
{
    bool whole = true;
    if (!store) {
        return true;
    }
    store->now = now;
    mill_store_clean_stop(store, NULL);
    mill_store_jobs_end(store);
    for (uint32_t i = 0; i < store->partitions_length; i++) {
        if (store->partitions[i] && !partition_close(store, store->partitions[i])) {
            whole = false;
        }
    }
    mill_store_abandon(store);
    return whole;
}
