/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of compaction, shared by clean*.c only. Everything belongs to one store's thread.
 *
 *   look -> map (dirty batches: last offset of each key) -> copy, group by group -> swap -> look
 *
 * ref: Kafka's documentation, "Log Compaction"; KIP-58, KIP-354 (lags), KIP-534 (delete horizon) */
#ifndef MILL_DATAPLANE_CLEAN_TYPES_H
#define MILL_DATAPLANE_CLEAN_TYPES_H

#include "dataplane/store/store_types.h"

enum {
    CLEAN_STEP_BYTES = 128 << 10,     /* of the log, looked at in one turn */
    CLEAN_OUTPUT_BYTES = 256 << 10,   /* written at once */
    CLEAN_SYNC_BYTES = 8 << 20,       /* synced at once: no sync is long */
    CLEAN_BATCH_BYTES_MAX = 1 << 30,  /* a batch that says more is damage */
    CLEAN_TXN_ENTRY_BYTES = 34,       /* of .txnindex */
    CLEAN_TXN_FILE_BYTES = 256 << 20, /* one that is larger is damage */
};

/* --- clean_due.c --------------------------------------------------------------------------------
 */

/* What may be compacted of a partition, and how much that is. */
struct clean_range {
    int64_t dirty_offset;
    int64_t upper_offset;
    uint64_t clean_bytes;
    uint64_t dirty_bytes;
    int64_t share_ppm; /* that is dirty */
    bool overdue;      /* max.compaction.lag.ms */
};
/* ret: parts per million of the partition that are dirty; -1 it is not due. */
int64_t mill_clean_dirt(struct mill_store *store, struct store_partition *partition,
                        struct clean_range *ret_range);

/* --- clean_map.c --------------------------------------------------------------------------------
 */

/* The last offset of each key, by a keyed hash of 128 bits of it: open addressing, bounded. */
struct clean_slot {
    uint64_t hash[2];
    uint64_t offset_more; /* by one: 0 is free */
};

struct clean_map {
    struct clean_slot *slots;
    uint64_t mask;
    uint64_t length;
    uint64_t length_max;
    uint64_t keys[2][2];
    int64_t latest; /* all records up to here are in it, -1 none */
};

/* Room for wanted keys, in at most bytes_max. ret: 0, -ENOMEM, -EINVAL not even one fits. */
int mill_clean_map_init(struct clean_map *map, uint64_t bytes_max, uint64_t wanted,
                        const struct mill_uuid *secret) MILL_WARN_UNUSED;
void mill_clean_map_fini(struct clean_map *map);
/* Notes a key's offset; higher ones come later. ret: false when it is full. */
bool mill_clean_map_put(struct clean_map *map, const void *key, uint32_t size_bytes,
                        int64_t offset);
/* ret: the offset, -1 the key is not in it. */
int64_t mill_clean_map_get(const struct clean_map *map, const void *key, uint32_t size_bytes);

/* --- clean_txn.c --------------------------------------------------------------------------------
 */

struct clean_aborted {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of the marker */
    int64_t stable_offset;
};

struct clean_txn {
    struct clean_aborted aborted;
    bool is_aborted; /* else: batches of this producer were seen, which a commit will end */
    bool observed;   /* a batch of it is still in the log */
};

/* Which transactions were aborted, as the walk comes along. */
struct clean_txns {
    struct clean_aborted *aborted; /* by first offset */
    uint32_t aborted_count;
    uint32_t aborted_capacity;
    uint32_t next; /* of them, not yet begun */
    struct clean_txn *open;
    uint32_t open_count;
    uint32_t open_capacity;
};

/* Adds the entries of one .txnindex. ret: 0, -ENOMEM, -EBADMSG it is no such file. */
int mill_clean_txns_add(struct clean_txns *txns, const uint8_t *entries,
                        size_t size_bytes) MILL_WARN_UNUSED;
/* After the last was added, and before each walk. */
void mill_clean_txns_begin(struct clean_txns *txns);
void mill_clean_txns_fini(struct clean_txns *txns);
/* A data batch. ret: 1 its transaction was aborted, 0 not, -ENOMEM. */
int mill_clean_txns_batch(struct clean_txns *txns, const struct mill_batch *batch) MILL_WARN_UNUSED;
/* A marker (commit: else abort). ret: 1 no batch of its transaction is left, so the marker may go;
 * 0; -ENOMEM. ret_entry, when ret_needed becomes true: what the cleaned .txnindex must have. */
int mill_clean_txns_marker(struct clean_txns *txns, const struct mill_batch *batch, bool commit,
                           struct clean_aborted *ret_entry, bool *ret_needed) MILL_WARN_UNUSED;

/* --- clean_batch.c ------------------------------------------------------------------------------
 */

/* Memory that grows and is used again. */
struct clean_buffer {
    uint8_t *bytes;
    size_t capacity;
};
/* ret: 0, -ENOMEM: what was in it is lost then. */
int mill_clean_room(struct clean_buffer *buffer, size_t size_bytes) MILL_WARN_UNUSED;

/* What is to become of one batch. */
struct clean_rules {
    const struct clean_map *map;
    int64_t now_ms;
    int64_t delete_retention_ms;
    bool discard;      /* its records go: aborted, or a marker that is no longer needed */
    bool keep_empty;   /* its header stays, whatever becomes of the records */
    bool marker_spent; /* a marker whose transaction has no batch any more: its horizon begins */
};

struct clean_result {
    const uint8_t *bytes; /* NULL: nothing of it stays */
    uint32_t size_bytes;
    uint64_t records_in;
    uint64_t records_out;
    bool changed; /* it is not as it was */
};

struct clean_work {
    struct clean_buffer kept;  /* records that stay, plain */
    struct clean_buffer moved; /* the same after their times were counted from another base */
    struct clean_buffer made;  /* the batch */
};
void mill_clean_work_fini(struct clean_work *work);

/* The records of a batch, decompressed within the bound. own: to be freed. ret: 0, -EBADMSG damaged
 * or too large, -ENOMEM. */
struct clean_plain {
    const uint8_t *bytes;
    uint32_t size_bytes;
    uint8_t *own;
};
int mill_clean_unpack(const struct mill_batch *batch, const uint8_t *bytes,
                      struct clean_plain *ret_plain) MILL_WARN_UNUSED;

/* Filters the batch that lies whole at bytes. The result lies in work, or is the batch itself. ret:
 * 0, -EBADMSG its inside cannot be read, -ENOMEM. */
int mill_clean_batch(struct clean_work *work, const struct clean_rules *rules,
                     const struct mill_batch *batch, const uint8_t *bytes,
                     struct clean_result *ret_result) MILL_WARN_UNUSED;

/* --- clean_swap.c -------------------------------------------------------------------------------
 */

enum clean_file {
    CLEAN_FILE_INDEX, /* the log is the last to be renamed: while it is not, nothing has happened */
    CLEAN_FILE_TIMEINDEX,
    CLEAN_FILE_TXNINDEX,
    CLEAN_FILE_LOG,
    CLEAN_FILES,
};

/* The segment that takes the place of a group. */
struct clean_output {
    int files[CLEAN_FILES]; /* descriptors, -1 closed; .txnindex only when it has entries */
    struct store_segment segment;
    struct store_entries entries;
    uint8_t *bytes; /* not written yet */
    uint32_t bytes_count;
    uint64_t unsynced_bytes;
    uint64_t txn_bytes;
    bool open;
};

/* Begins BASE.*.cleaned. ret: 0, -errno. */
int mill_clean_output_open(struct mill_store *store, const struct store_partition *partition,
                           int64_t base_offset, struct clean_output *output) MILL_WARN_UNUSED;
int mill_clean_output_batch(struct mill_store *store, const struct store_partition *partition,
                            struct clean_output *output, const uint8_t *bytes,
                            uint32_t size_bytes) MILL_WARN_UNUSED;
int mill_clean_output_aborted(struct mill_store *store, const struct store_partition *partition,
                              struct clean_output *output,
                              const struct clean_aborted *aborted) MILL_WARN_UNUSED;
/* All of it written and synced; files closed. ret: 0, -errno. */
int mill_clean_output_end(struct mill_store *store, const struct store_partition *partition,
                          struct clean_output *output) MILL_WARN_UNUSED;
void mill_clean_output_close(struct mill_store *store, struct clean_output *output);
/* Closes and removes what was begun; no effect when nothing is open. */
void mill_clean_output_drop(struct mill_store *store, const struct store_partition *partition,
                            struct clean_output *output);
/* Puts the ended output in the place of count segments from first on. ret: 0; -errno: the
 * partition's segments are as before, and so are its files; unless *ret_half: then only the next
 * load finishes what is on the disk, and until then nothing may use it. */
int mill_clean_swap(struct mill_store *store, struct store_partition *partition, uint32_t first,
                    uint32_t count, const struct clean_output *output,
                    bool *ret_half) MILL_WARN_UNUSED;

#endif
