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

#define NAME_WAIT_NS  (2 * MILL_NS_PER_S) /* for the removal of an older topic of the same name */
#define FULL_RETRY_NS MILL_NS_PER_MS      /* the ring to the core is full */
#define NAME_RETRY_NS (20 * MILL_NS_PER_MS)

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

static void take_delete(struct mill_store *store, struct store_partition *partition);

static bool is_loading(const struct store_partition *partition)
{
    /* Acquire pairs with the loader's DONE: then all of it is ours to read. */
    return atomic_load_explicit(&partition->loading, memory_order_acquire) != STORE_LOAD_NOT;
}

static bool is_fenced(const struct mill_store *store, const struct store_partition *partition)
{
    return atomic_load_explicit(&store->dirs->dirs[partition->dir].fenced, memory_order_acquire);
}

static void fence_tell(struct mill_store *store)
{
    for (uint32_t i = 0; i < store->partitions_length; i++) {
        struct store_partition *partition = store->partitions[i];
        /* One that is still opening is told by its OPENED. */
        if (!partition || partition->opening || is_loading(partition) || !partition->loaded ||
            partition->failed_told || !is_fenced(store, partition)) {
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

/* --- opening --------------------------------------------------------------------------------- */

static struct store_partition *partition_at(struct mill_store *store,
                                            const struct mill_link_head *head)
{
    if (head->slot >= store->partitions_length || !store->partitions[head->slot]) {
        return NULL;
    }
    struct store_partition *partition = store->partitions[head->slot];
    return partition->generation == head->generation ? partition : NULL;
}

static void partition_free(struct mill_store *store, struct store_partition *partition)
{
    if (is_loading(partition)) {
        mill_loaders_finish(store->config.loaders, partition);
    }
    mill_store_link_remove(&partition->openings);
    store->stalled -= partition->full_told ? 1 : 0;
    mill_store_clean_stop(store, partition);
    MILL_ASSERT_EQ(partition->jobs, 0u);
    mill_store_unload(store, partition);
    store->partitions[partition->slot] = NULL;
    mill_store_names_free(partition);
    free(partition);
}

static struct store_partition *partition_make(struct mill_store *store,
                                              const struct mill_link_open *open)
{
    uint32_t slot = open->head.slot;
    if (slot >= store->partitions_length) {
        uint32_t length = MILL_MAX(slot + 1, store->partitions_length * 2);
        void *grown = realloc(store->partitions, length * sizeof(store->partitions[0]));
        if (!grown) {
            return NULL;
        }
        store->partitions = grown;
        memset(store->partitions + store->partitions_length, 0,
               (length - store->partitions_length) * sizeof(store->partitions[0]));
        store->partitions_length = length;
    }
    if (store->partitions[slot]) {
        partition_free(store, store->partitions[slot]);
    }
    struct store_partition *partition = calloc(1, sizeof(*partition));
    if (partition) {
        partition->slot = slot;
        partition->generation = open->head.generation;
        partition->topic_id = open->topic_id;
        partition->index = open->partition;
        partition->settings = open->settings;
        store->partitions[slot] = partition;
        char topic[sizeof(open->topic)];
        memcpy(topic, open->topic, sizeof(topic));
        topic[sizeof(topic) - 1] = '\0';
        if (mill_store_names_take(store->dirs, partition, topic) < 0) {
            partition_free(store, partition);
            return NULL;
        }
    }
    return partition;
}

/* Loaded, or not: r says. */
static void open_end(struct mill_store *store, struct store_partition *partition, int r,
                     struct mill_now now)
{
    r = r < 0 ? r : mill_store_kept_begin(store, partition);
    if (r == 0) {
        partition->aborted_end = mill_store_txn_last(store, partition);
        r = (int)MILL_MIN(partition->aborted_end, 0);
    }
    if (r < 0 && r != -EUCLEAN) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.open",
                          "partition=%s cannot be opened: %s",
                          partition->path[0] ? partition->path : partition->topic, strerror(-r));
    }
    partition->status = r;
    partition->loaded = true;
    if (r < 0) {
        return;
    }
    mill_store_points_moved(store);
    if (partition->kept_count > 0) {
        partition->full_told = true; /* by OPENED */
        store->stalled++;
        store->retry_at_ns = MILL_MIN(store->retry_at_ns, now.mono_ns + STORE_RETRY_NS);
    }
    partition->mark = mill_arena_mark(store->config.arena, &partition->topic_id, partition->index);
    if (partition->mark) {
        atomic_store_explicit(&partition->mark->start_offset, partition->start_offset,
                              memory_order_release);
        atomic_store_explicit(&partition->mark->written_offset, partition->written_offset,
                              memory_order_release);
    }
}

static void open_load(struct mill_store *store, struct store_partition *partition,
                      struct mill_now now)
{
    bool push_aside = partition->opening_since_ns != 0 &&
                      now.mono_ns - partition->opening_since_ns >= NAME_WAIT_NS;
    int r = mill_store_dir_open(store, partition, push_aside);
    if (r == -EBUSY) {
        partition->opening_since_ns =
            partition->opening_since_ns ? partition->opening_since_ns : now.mono_ns;
        store->retry_at_ns = MILL_MIN(store->retry_at_ns, now.mono_ns + NAME_RETRY_NS);
        return;
    }
    if (r == 1) {
        r = mill_store_make_begin(store, partition);
        if (r == 0) {
            mill_store_link_remove(&partition->openings);
            return; /* looked for again when it is made */
        }
    }
#ifndef MILL_MUTANT_STORE_LOAD_IN_TURN
    if (r == 0 && store->config.loaders) {
        mill_store_link_remove(&partition->openings);
        mill_loaders_give(store->config.loaders, partition, store);
        return;
    }
#endif
    r = r < 0 ? r : mill_store_load_synced(store, partition);
    open_end(store, partition, r, now);
}

/* Takes what loaders are done with: no look at those they are not. ret: partitions. */
static uint32_t loaded_take(struct mill_store *store, struct mill_now now)
{
    uint32_t count = 0;
    struct store_partition *next;
    for (struct store_partition *partition = mill_loaders_take(store); partition;
         partition = next, count++) {
        next = partition->next_loading;
        mill_loaders_release(store->config.loaders, partition);
        if (partition->settings_changed) {
            partition->settings = partition->settings_next;
            partition->settings_changed = false;
        }
        open_end(store, partition, partition->status, now);
        mill_store_link_add(&store->openings, &partition->openings);
    }
    return count;
}

/* One of its open transactions, or behind those one of the aborted that wait for space. */
static void txn_tell(struct mill_store *store, struct store_partition *partition, uint32_t number)
{
    const struct store_producers *producers = &partition->producers;
    struct mill_link_txn *to = mill_store_tell(store, partition, MILL_LINK_TXN, sizeof(*to));
    if (number < producers->open_length) {
        to->producer_id = producers->open[number].producer_id;
        to->first_offset = producers->open[number].first_offset;
        to->last_offset = -1;
        return;
    }
    const struct store_aborted *aborted = &partition->kept_aborted[number - producers->open_length];
    to->producer_id = aborted->producer_id;
    to->first_offset = aborted->first_offset;
    to->last_offset = aborted->last_offset;
}

/* Tells producers, then OPENED, as the ring has room. ret: work done. */
static uint32_t open_tell(struct mill_store *store, struct store_partition *partition,
                          struct mill_now now)
{
    struct store_producers *producers = &partition->producers;
    uint32_t work = 0;
    if (partition->producers_told == 0 && partition->batches_told == 0 && producers->length > 0) {
        /* The oldest beyond the maximum would only be evicted again. */
        mill_store_producers_trim(producers, now.wall_ms - store->config.producer_expiration_ms,
                                  store->config.producers_max);
    }
    for (; partition->producers_told < producers->length; partition->producers_told++) {
        const struct store_producer *entry = &producers->entries[partition->producers_told];
        uint32_t tells = MILL_MAX(entry->count, 1u); /* one without batches is told, too */
        for (; partition->batches_told < tells; partition->batches_told++) {
            if (!mill_store_out_room(store)) {
                return work;
            }
            struct mill_link_producer *to =
                mill_store_tell(store, partition, MILL_LINK_PRODUCER, sizeof(*to));
            struct mill_link_head head = to->head;
            *to = (struct mill_link_producer){.producer_id = entry->producer_id,
                                              .timestamp = entry->timestamp,
                                              .first_sequence = -1,
                                              .epoch = entry->epoch};
            if (entry->count > 0) {
                *to = entry->batches[partition->batches_told];
            }
            to->head = head;
            to->coordinator_epoch = entry->coordinator_epoch;
            to->txn_open = entry->txn_first >= 0;
            work++;
        }
        partition->batches_told = 0;
    }
    uint32_t txns = producers->open_length + partition->kept_aborted_count;
    for (; partition->txns_told < txns; partition->txns_told++) {
        if (!mill_store_out_room(store)) {
            return work;
        }
        txn_tell(store, partition, partition->txns_told);
        work++;
    }
    if (!mill_store_out_room(store)) {
        return work;
    }
    struct mill_link_opened *to = mill_store_tell(store, partition, MILL_LINK_OPENED, sizeof(*to));
    to->status = partition->status == 0 && is_fenced(store, partition) ? -EIO : partition->status;
    partition->failed_told = to->status < 0;
    to->start_offset = partition->start_offset;
    to->end_offset = partition->end_offset;
    to->aborted_end = partition->aborted_end;
    to->full = partition->kept_count > 0;
    to->epochs_count = partition->epochs_count;
    memcpy(to->epochs, partition->epochs, sizeof(to->epochs));
    partition->opening = false;
    mill_store_link_remove(&partition->openings);
    return work + 1;
}

void mill_store_made(struct mill_store *store, struct store_partition *partition, int r)
{
    if (partition->doomed) {
        partition->loaded = r == 0; /* an empty directory to be deleted */
        return;
    }
    if (r < 0) {
        open_end(store, partition, r, store->now);
    }
    mill_store_link_add(&store->openings, &partition->openings); /* looked at by openings_run */
}

static uint32_t opening_run(struct mill_store *store, struct store_partition *partition,
                            struct mill_now now)
{
    if (partition->delete_wanted) {
        if (mill_store_out_room(store)) {
            take_delete(store, partition);
        }
        return 0;
    }
    if (!partition->loaded) {
        open_load(store, partition, now);
    }
    return !is_loading(partition) && partition->loaded ? open_tell(store, partition, now) : 0;
}

static uint32_t openings_run(struct mill_store *store, struct mill_now now)
{
    uint32_t work = loaded_take(store, now);
    for (struct store_link *link = store->openings.next; link != &store->openings;) {
        struct store_partition *partition =
            MILL_CONTAINER_OF(link, struct store_partition, openings);
        link = link->next;
        work += opening_run(store, partition, now);
    }
    return work;
}

/* --- writing --------------------------------------------------------------------------------- */

/* What passes by itself: no space, or no descriptor or memory at this moment. */
static bool passing(int r)
{
#ifdef MILL_MUTANT_STORE_FULL_FENCES
    return false;
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
    r = passing(r) ? 0 : r;
#endif
    if (passing(r)) {
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
    } else if (!is_fenced(store, partition) && !partition->failed_told) {
        write_end(store, partition);
    }
}

void mill_store_write_go_on(struct mill_store *store, struct store_partition *partition)
{
    if (!is_fenced(store, partition)) {
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
    int status = mill_store_find_time(store, partition, time->time_ms, &offset, &timestamp);
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

/* --- checkpoints ----------------------------------------------------------------------------- */

/* Notes for the checkpoints how far the partition is synced. ret: false: not everything of it is as
 * the checkpoint would say. */
bool mill_store_offsets_note(struct mill_store *store, struct store_partition *partition)
{
    struct store_dir *dir = &store->dirs->dirs[partition->dir];
    if (partition->epochs_unsaved && mill_store_epochs_write(store, partition, true) < 0) {
        return false;
    }
    partition->epochs_unsaved = false;
    pthread_mutex_lock(&store->dirs->lock);
    struct store_offset *offset =
        mill_store_offset(&dir->offsets, strrchr(partition->path, '/') + 1, true);
    if (offset) {
        dir->offsets.changed = true;
        offset->recovery_point = partition->synced_offset;
        offset->high_watermark = partition->written_offset;
        offset->start_offset = partition->start_offset > partition->segments[0].base_offset
                                   ? partition->start_offset
                                   : -1;
        offset->clean_offset = partition->clean_offset;
    }
    pthread_mutex_unlock(&store->dirs->lock);
    return offset != NULL;
}

bool mill_store_is_whole(const struct mill_store *store, const struct store_partition *partition)
{
    return partition && !is_loading(partition) && partition->loaded && partition->status == 0 &&
           !is_fenced(store, partition);
}

static bool epochs_due(const struct mill_store *store, const struct store_partition *partition,
                       uint32_t dir)
{
    return partition && partition->dir == dir && partition->epochs_unsaved &&
           mill_store_is_whole(store, partition) && partition->written_offset > 0;
}

/* Writes the epochs of partitions that have batches, whose recovery points wait for it. One sync of
 * a directory as a whole makes all of them durable. */
static void epochs_save(struct mill_store *store)
{
    for (uint32_t dir = 0; dir < store->dirs->count; dir++) {
        int r = 0;
        uint32_t wrote = 0;
        for (uint32_t i = 0; r == 0 && i < store->partitions_length; i++) {
            if (epochs_due(store, store->partitions[i], dir)) {
                r = mill_store_epochs_write(store, store->partitions[i], false);
                wrote++;
            }
        }
        if (r == 0 && wrote > 0) {
            r = store->calls->sync_all(store->calls->context, store->dirs->dirs[dir].path);
        }
        for (uint32_t i = 0; r == 0 && wrote > 0 && i < store->partitions_length; i++) {
            if (epochs_due(store, store->partitions[i], dir)) {
                store->partitions[i]->epochs_unsaved = false;
            }
        }
        if (r < 0 && !passing(r)) {
            mill_log_dirs_fence(store->dirs, dir, r);
        }
    }
}

static void checkpoint_run(struct mill_store *store, struct mill_now now)
{
    if (now.mono_ns < store->checkpoint_at_ns) {
        return;
    }
    store->checkpoint_at_ns = MILL_NEVER;
    epochs_save(store);
    for (uint32_t i = 0; i < store->partitions_length; i++) {
        if (mill_store_is_whole(store, store->partitions[i]) &&
            !store->partitions[i]->epochs_unsaved) {
            bool noted = mill_store_offsets_note(store, store->partitions[i]);
            MILL_UNUSED(noted); /* an older point stands: more is walked */
        }
    }
    for (uint32_t i = 0; i < store->dirs->count; i++) {
        int r = mill_store_offsets_write(store->dirs, &store->dirs->dirs[i]);
        if (r < 0 && !passing(r)) {
            mill_log_dirs_fence(store->dirs, i, r);
        }
    }
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

static void take_delete(struct mill_store *store, struct store_partition *partition)
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
        (partition->status == 0 || partition->status == -EUCLEAN)) {
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
    partition_free(store, partition);
}

void mill_store_delete_go_on(struct mill_store *store, struct store_partition *partition)
{
    take_delete(store, partition);
}

static void take_open(struct mill_store *store, const struct mill_link_open *open,
                      struct mill_now now)
{
    struct store_partition *partition = partition_make(store, open);
    if (!partition) {
        struct store_partition none = {.slot = open->head.slot,
                                       .generation = open->head.generation};
        struct mill_link_opened *to = mill_store_tell(store, &none, MILL_LINK_OPENED, sizeof(*to));
        to->status = -ENOMEM;
        return;
    }
    partition->opening = true;
    mill_store_link_add(&store->openings, &partition->openings);
    open_load(store, partition, now);
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
    struct store_partition *partition = partition_at(store, message);
    if (kind == MILL_LINK_OPEN) {
        take_open(store, message, now);
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
    if (is_loading(partition)) {
        take_while_loading(partition, kind, message);
        return;
    }
    bool fenced = is_fenced(store, partition);
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
        take_delete(store, partition);
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
    work += openings_run(store, now);
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
    checkpoint_run(store, now);
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
            partition_free(store, store->partitions[i]);
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
