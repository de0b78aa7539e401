/* SPDX-License-Identifier: Apache-2.0 */
/* What a store notes for the checkpoints of its log directories, and when: recovery points, leader
 * epochs before them. The store's thread only; offsets.c has the files. */
#include "dataplane/store/store_types.h"

#include <string.h>

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
    return partition && !mill_store_is_loading(partition) && partition->loaded &&
           partition->status == 0 && !mill_store_is_fenced(store, partition);
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
        if (r < 0 && !mill_store_passing(r)) {
            mill_log_dirs_fence(store->dirs, dir, r);
        }
    }
}

void mill_store_checkpoint_run(struct mill_store *store, struct mill_now now)
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
        if (r < 0 && !mill_store_passing(r)) {
            mill_log_dirs_fence(store->dirs, i, r);
        }
    }
}
