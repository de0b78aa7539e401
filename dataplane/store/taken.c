/* SPDX-License-Identifier: Apache-2.0 */
/* What a take-up leaves to the openings of partitions: those it had to load are handed over as they
 * are in memory, so that a log is walked once; of the others it notes how far the files should
 * reach. Both stand in the table of offsets, under its lock once stores run. */
#include "dataplane/store/load.h"

#include <stdlib.h>
#include <string.h>

bool mill_store_hand_over(struct mill_store *store, struct store_partition *partition)
{
    struct store_dir *dir = &store->dirs->dirs[partition->dir];
    struct store_offset *offset =
        mill_store_offset(&dir->offsets, strrchr(partition->path, '/') + 1, true);
    if (!offset) {
        return false;
    }
    mill_store_cached_drop(store, partition);
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        mill_store_file_close(store, partition, &partition->segments[i]);
    }
    mill_store_taken_free(offset->taken);
    offset->taken = partition;
    return true;
}

void mill_store_taken_free(struct store_partition *taken)
{
    if (taken) {
        mill_store_producers_free(&taken->producers);
        mill_store_names_free(taken);
        mill_store_waiting_drop(taken);
        free(taken->segments);
        free(taken);
    }
}

/* Takes out of the start's notes what concerns the partition. ret: what the take-up loaded, NULL
 * nothing. */
static struct store_partition *notes_take(struct mill_store *store,
                                          const struct store_partition *partition,
                                          int64_t *ret_reached_offset)
{
    struct store_dir *dir = &store->dirs->dirs[partition->dir];
    struct store_partition *taken = NULL;
    *ret_reached_offset = -1;
    pthread_mutex_lock(&store->dirs->lock);
    struct store_offset *offset =
        mill_store_offset(&dir->offsets, strrchr(partition->path, '/') + 1, false);
    if (offset) {
        taken = offset->taken;
        *ret_reached_offset = offset->reached_offset;
        offset->taken = NULL;
        offset->reached_offset = -1;
    }
    pthread_mutex_unlock(&store->dirs->lock);
    return taken;
}

/* Goes on with what the take-up loaded. Gaps it could not judge: then all is read again. */
static bool go_on(struct store_partition *partition, struct store_partition *taken)
{
#ifdef MILL_MUTANT_STORE_WALKED_TWICE
    return false;
#endif
    if (!mill_uuid_equal(&taken->topic_id, &partition->topic_id) || taken->gap_found) {
        return false;
    }
    partition->segments = taken->segments;
    partition->segments_count = taken->segments_count;
    partition->segments_capacity = taken->segments_capacity;
    partition->waiting = taken->waiting;
    partition->start_offset = taken->start_offset;
    partition->written_offset = taken->written_offset;
    partition->synced_offset = taken->synced_offset;
    partition->snapshot_offset = taken->snapshot_offset;
    partition->clean_offset = taken->clean_offset;
    memcpy(partition->epochs, taken->epochs, sizeof(partition->epochs));
    partition->epochs_count = taken->epochs_count;
    partition->epochs_unsaved = taken->epochs_unsaved;
    partition->dir_unsynced = taken->dir_unsynced;
    partition->producers = taken->producers;
    partition->loaded = true;
    taken->producers = (struct store_producers){0};
    taken->segments = NULL;
    taken->waiting = NULL;
    return true;
}

bool mill_store_taken_use(struct mill_store *store, struct store_partition *partition,
                          int64_t *ret_reached_offset)
{
    struct store_partition *taken = notes_take(store, partition, ret_reached_offset);
    bool used = taken && go_on(partition, taken);
    mill_store_taken_free(taken);
    return used;
}
