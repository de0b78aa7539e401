/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions of a store from OPEN to OPENED: the name is found or made, the files are loaded, in
 * the turn or by a loader, and the log is told of producers and transactions as the ring has room.
 * The store's thread only. */
#include "dataplane/store/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

#define NAME_WAIT_NS  (2 * MILL_NS_PER_S) /* for the removal of an older topic of the same name */
#define NAME_RETRY_NS (20 * MILL_NS_PER_MS)

struct store_partition *mill_store_partition_at(struct mill_store *store,
                                                const struct mill_link_head *head)
{
    if (head->slot >= store->partitions_length || !store->partitions[head->slot]) {
        return NULL;
    }
    struct store_partition *partition = store->partitions[head->slot];
    return partition->generation == head->generation ? partition : NULL;
}

void mill_store_partition_free(struct mill_store *store, struct store_partition *partition)
{
    if (mill_store_is_loading(partition)) {
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
        mill_store_partition_free(store, store->partitions[slot]);
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
            mill_store_partition_free(store, partition);
            return NULL;
        }
    }
    return partition;
}

/* Whether the log has room for what the partition left open, beside what the others did: without it
 * readers would be shown what was not committed. */
static bool txns_fit(const struct mill_store *store, const struct store_partition *partition)
{
    uint64_t open = partition->producers.open_length;
    uint32_t most = store->config.transactions_max;
    for (uint32_t i = 0; open > 0 && most > 0 && i < store->partitions_length; i++) {
        const struct store_partition *other = store->partitions[i];
        open += other != partition && mill_store_is_whole(store, other)
                    ? other->producers.open_length
                    : 0;
    }
#ifdef MILL_MUTANT_STORE_TXNS_UNTOLD
    return true;
#endif
    return partition->producers.open_length == 0 || most == 0 || open <= most;
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
    if (r == 0 && !txns_fit(store, partition)) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.transactions",
                          "partition=%s is not served: of its %u open transactions some have no "
                          "room beside those of other partitions of its core, which has room for "
                          "%u; start with more cores (dataplane.cores), as before",
                          partition->path, partition->producers.open_length,
                          store->config.transactions_max);
        r = -EOVERFLOW;
    } else if (r < 0 && r != -EUCLEAN) {
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
    static struct store_producers none;
    bool serves = partition->status == 0;
    struct store_producers *producers = serves ? &partition->producers : &none;
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
            to->last_timestamp = entry->timestamp;
            to->coordinator_epoch = entry->coordinator_epoch;
            to->txn_open = entry->txn_first >= 0;
            work++;
        }
        partition->batches_told = 0;
    }
    uint32_t txns = serves ? producers->open_length + partition->kept_aborted_count : 0;
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
    to->status =
        partition->status == 0 && mill_store_is_fenced(store, partition) ? -EIO : partition->status;
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
            mill_store_delete(store, partition);
        }
        return 0;
    }
    if (!partition->loaded) {
        open_load(store, partition, now);
    }
    return !mill_store_is_loading(partition) && partition->loaded ? open_tell(store, partition, now)
                                                                  : 0;
}

uint32_t mill_store_openings_run(struct mill_store *store, struct mill_now now)
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

void mill_store_open(struct mill_store *store, const struct mill_link_open *open,
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
