/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of .index and .timeindex. Those of the segment being written wait in memory until some
 * have come together: with thousands of active partitions a write to either file for each batch,
 * and a descriptor of it, cost more than the batch. Nothing depends on them: they are written
 * before whoever searches the files does, when a segment ends and at a clean end; after a kill the
 * walk that a start makes from the last entry makes them again. The store's thread only. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mill_store_time_entry(struct store_segment *segment, struct store_entries *entries)
{
    if (segment->max_timestamp <= segment->time_last) {
        return;
    }
    uint8_t *at = entries->time + entries->time_count++ * STORE_TIME_ENTRY_BYTES;
    mill_store_be64(at, (uint64_t)segment->max_timestamp);
    mill_store_be32(at + 8, (uint32_t)(segment->max_offset - segment->base_offset));
    segment->time_last = segment->max_timestamp;
}

/* Behind what the file has: file_bytes, which moves when all of it is written. */
static int file_append(struct mill_store *store, struct store_partition *partition,
                       struct store_segment *segment, enum store_file_kind kind,
                       const uint8_t *bytes, uint32_t size_bytes, uint64_t *file_bytes)
{
    if (size_bytes == 0) {
        return 0;
    }
    int file = mill_store_file(store, partition, segment, kind);
    int r =
        file < 0 ? file : mill_store_write_all(store->calls, file, bytes, size_bytes, *file_bytes);
    *file_bytes += r < 0 ? 0 : size_bytes;
    return r;
}

int mill_store_entries_write(struct mill_store *store, struct store_partition *partition,
                             struct store_segment *segment, const struct store_entries *entries)
{
    bool made = entries->txn_count > 0 && segment->txn_bytes == 0;
    int r = file_append(store, partition, segment, STORE_FILE_INDEX, entries->index,
                        entries->index_count * STORE_INDEX_ENTRY_BYTES, &segment->index_bytes);
    r = r < 0 ? r
              : file_append(store, partition, segment, STORE_FILE_TIMEINDEX, entries->time,
                            entries->time_count * STORE_TIME_ENTRY_BYTES, &segment->time_bytes);
    r = r < 0 ? r
              : file_append(store, partition, segment, STORE_FILE_TXNINDEX, entries->txn,
                            entries->txn_count * STORE_TXN_ENTRY_BYTES, &segment->txn_bytes);
    /* .txnindex is made when it has to be, perhaps after the others' names were synced. */
    partition->dir_unsynced = partition->dir_unsynced || (r == 0 && made);
    return r;
}

/* --- waiting --------------------------------------------------------------------------------- */

bool mill_store_waiting_room(struct store_partition *partition, const struct store_entries *entries)
{
#ifdef MILL_MUTANT_STORE_ENTRIES_AT_ONCE
    return false;
#endif
    if (entries->txn_count > 0) {
        return false; /* these no walk finds: what a marker ends may be in another segment */
    }
    if (entries->index_count + entries->time_count > 0 && !partition->waiting) {
        partition->waiting = calloc(1, sizeof(*partition->waiting));
    }
    const struct store_waiting *waiting = partition->waiting;
    return waiting ? waiting->index_count + entries->index_count <= STORE_WAITING_ENTRIES &&
                         waiting->time_count + entries->time_count <= STORE_WAITING_ENTRIES
                   : entries->index_count + entries->time_count == 0;
}

void mill_store_waiting_add(struct store_partition *partition, const struct store_entries *entries)
{
    struct store_waiting *waiting = partition->waiting;
    if (entries->index_count + entries->time_count == 0) {
        return;
    }
    memcpy(waiting->index + waiting->index_count * STORE_INDEX_ENTRY_BYTES, entries->index,
           (size_t)entries->index_count * STORE_INDEX_ENTRY_BYTES);
    memcpy(waiting->time + waiting->time_count * STORE_TIME_ENTRY_BYTES, entries->time,
           (size_t)entries->time_count * STORE_TIME_ENTRY_BYTES);
    waiting->index_count += entries->index_count;
    waiting->time_count += entries->time_count;
}

int mill_store_waiting_write(struct mill_store *store, struct store_partition *partition)
{
    struct store_waiting *waiting = partition->waiting;
    if (!waiting) {
        return 0;
    }
    struct store_segment *segment = &partition->segments[partition->segments_count - 1];
    struct store_segment next = *segment;
    struct store_entries entries = {.index_count = waiting->index_count,
                                    .time_count = waiting->time_count};
    memcpy(entries.index, waiting->index, sizeof(waiting->index));
    memcpy(entries.time, waiting->time, sizeof(waiting->time));
    int r = mill_store_entries_write(store, partition, &next, &entries);
    memcpy(segment->files, next.files, sizeof(next.files));
    if (r == 0) {
        *segment = next;
        mill_store_waiting_drop(partition);
    }
    return r;
}

void mill_store_waiting_show(struct mill_store *store, struct store_partition *partition,
                             const struct store_segment *segment)
{
    if (segment != &partition->segments[partition->segments_count - 1] ||
        mill_store_is_fenced(store, partition)) {
        return;
    }
    int r = mill_store_waiting_write(store, partition);
    if (r < 0 && !mill_store_passing(r)) {
        mill_log_dirs_fence(store->dirs, partition->dir, r);
    }
}

void mill_store_waiting_drop(struct store_partition *partition)
{
    free(partition->waiting);
    partition->waiting = NULL;
}
