/* SPDX-License-Identifier: Apache-2.0 */
/* How the partitions of a store are loaded, by the files that do it; for this folder only. The
 * store's thread, or a loader's (loaders.h); all of it blocks in file calls. */
#ifndef MILL_DATAPLANE_STORE_LOAD_H
#define MILL_DATAPLANE_STORE_LOAD_H

#include "dataplane/store/store_types.h"

/* What is believed before any batch is read. */
struct store_belief {
    int64_t recovery_point; /* everything below is on the disk, whole */
    int64_t walk_from;      /* batches from here on are read */
    int64_t producers_from;
    bool clean;         /* the log ends at the recovery point */
    int64_t txns_whole; /* .txnindex files of segments below are as they should be */
};

/* --- load.c -------------------------------------------------------------------------------------
 */

/* Opens the segments of partition->path. After a clean end nothing but the tail of the last segment
 * is read; otherwise what lies above the recovery point is walked with its sums and cut, loudly, at
 * the first bad batch. Indexes are mended, producers and epochs gathered.
 * ret: 0; -EUCLEAN damage below the recovery point, told: never served; -errno. */
int mill_store_load(struct mill_store *store, struct store_partition *partition) MILL_WARN_UNUSED;
/* The same, and with flush.messages=1 what is there is synced. */
int mill_store_load_synced(struct mill_store *store,
                           struct store_partition *partition) MILL_WARN_UNUSED;
void mill_store_unload(struct mill_store *store, struct store_partition *partition);

/* --- rebuild.c ----------------------------------------------------------------------------------
 */

/* Notes a batch's leader epoch, if it is a new one. */
void mill_store_epoch_note(struct store_partition *partition, const struct mill_batch *batch);
/* Notes a batch's producer and leader epoch, as loading does; bytes: all of it. ret: 0, -ENOMEM. */
int mill_store_batch_note(struct store_partition *partition, const struct mill_batch *batch,
                          const uint8_t *bytes) MILL_WARN_UNUSED;
/* Size of an index file as it is. ret_last: its last entry, zeroes when there is none. ret:
 * -ENODATA it has to be rebuilt, -errno. */
int64_t mill_store_index_size(struct mill_store *store, struct store_partition *partition,
                              struct store_segment *segment, enum store_file_kind kind,
                              uint8_t ret_last[static STORE_TIME_ENTRY_BYTES]) MILL_WARN_UNUSED;
int64_t mill_store_log_size(struct mill_store *store, struct store_partition *partition,
                            struct store_segment *segment) MILL_WARN_UNUSED;
/* Walks one segment from where its numbers stand, up to end_offset (the last one: INT64_MAX).
 * ret_good: bytes of whole, valid batches; ret_size: bytes there. ret: 0, -EUCLEAN records are
 * missing, told; -errno. */
int mill_store_rebuild(struct mill_store *store, struct store_partition *partition,
                       struct store_segment *segment, const struct store_belief *belief,
                       int64_t end_offset, uint64_t *ret_good, uint64_t *ret_size) MILL_WARN_UNUSED;

/* --- resume.c -----------------------------------------------------------------------------------
 */

/* Gives a new segment the numbers that it had before the batch of its last index entry below the
 * offset, where a walk may begin then. It stays new when its indexes are not as they should be.
 * ret: 0, -errno. */
int mill_store_resume(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t offset) MILL_WARN_UNUSED;

/* --- taken.c ------------------------------------------------------------------------------------
 */

/* Take-up: keeps what was loaded, and written since, for the partition's opening, which then need
 * not read the files. The partition belongs to its log directory afterwards. ret: false: no memory,
 * it is the caller's. */
bool mill_store_hand_over(struct mill_store *store, struct store_partition *partition);
/* What was handed over and not opened. NULL is fine. */
void mill_store_taken_free(struct store_partition *taken);
/* The opening takes it. ret: false: nothing that can be used; the files should reach at least
 * *ret_reached_offset, -1 unknown. */
bool mill_store_taken_use(struct mill_store *store, struct store_partition *partition,
                          int64_t *ret_reached_offset);

#endif
