/* SPDX-License-Identifier: Apache-2.0 */
/* The log of one core: its partitions, their extent rings, appends, reads, producer state, watches.
 * Everything here belongs to the owner core and never blocks; what needs a file is asked of the
 * store through rings (log/store_link.h) and comes back in mill_log_step.
 *
 * Life of a partition: mill_log_open -> OPENING (the store loads its files) -> SERVING, or FAILED;
 * mill_log_delete -> DELETING -> gone. Events tell the core.
 *
 *   partition:  start .. [cold: files only] .. hot: extent | extent | extent(active) .. end
 *
 * References in results carry no loan yet: the caller takes one (or sends, which does) before the
 * next call into the log.
 */
#ifndef MILL_DATAPLANE_LOG_H
#define MILL_DATAPLANE_LOG_H

#include "base/chain.h"
#include "base/clock.h"
#include "base/ref.h"
#include "base/uuid.h"
#include "hugepages/arena.h"
#include "hugepages/loans.h"
#include "hugepages/ring.h"
#include "protocol/batch.h"
#include "protocol/errors.h"

enum {
    MILL_LOG_REFS_MAX = 64,        /* references of one read */
    MILL_LOG_PRODUCER_BATCHES = 5, /* duplicates are known this far back (KIP-98) */
    MILL_LOG_NAME_MAX = 249,
    MILL_LOG_MESSAGE_BYTES = 160,
    MILL_LOG_CODEC_ANY = 255,    /* compression.type=producer: as it came */
    MILL_LOG_ABORTED_BYTES = 16, /* of one aborted transaction in a list: id, first offset */
    MILL_LOG_PARKED_MAX = 64,    /* appends that wait for the store to look inside, per core */
};

/* What the log needs to know of a topic; the core copies it from the map and updates it on change.
 */
struct mill_log_settings {
    int32_t max_message_bytes;
    int64_t timestamp_before_max_ms;
    int64_t timestamp_after_max_ms;
    int64_t flush_messages;
    int64_t flush_ms;
    int64_t segment_bytes;
    int64_t segment_ms;
    int64_t retention_ms;    /* -1: none */
    int64_t retention_bytes; /* -1: none */
    int64_t file_delete_delay_ms;
    int64_t delete_retention_ms; /* life of a tombstone after it was first compacted */
    int64_t min_compaction_lag_ms;
    int64_t max_compaction_lag_ms;
    int32_t min_cleanable_ppm; /* share of bytes not yet compacted from which on it is done */
    int32_t index_interval_bytes;
    int32_t segment_index_bytes;
    bool append_time;
    bool compact;
    bool delete_old;     /* the retention holds */
    bool made;           /* it served before: files that are missing are lost, not new */
    uint8_t compression; /* MILL_LOG_CODEC_ANY, or enum mill_codec: stored with it */
};

struct mill_log_limits {
    uint32_t partitions_max;   /* of this core */
    uint32_t producers_max;    /* producer states over all partitions; least recent goes first */
    uint32_t transactions_max; /* open ones over all partitions: beyond, a new one is refused */
    uint32_t aborted_max;      /* aborted ones in memory; older ones are looked up in the files */
    uint32_t watches_max;
    uint64_t dirty_max_bytes; /* this core's share of log.dirty.max.mb */
    uint64_t cold_max_bytes;  /* this core's share of log.cold.max.mb */
    uint64_t memory_bytes;    /* this core's share of the arena: above it, what is written gives way
                                 before more is taken; 0: no share */
    int64_t producer_expiration_ms; /* producer.id.expiration.ms */
};

struct mill_partition;
struct mill_log;
struct mill_log_watch;

enum mill_log_state {
    MILL_LOG_OPENING,
    MILL_LOG_SERVING,
    MILL_LOG_FAILED, /* its directory is fenced: nothing is appended, reads of hot data go on */
    MILL_LOG_DELETING,
};

struct mill_log_events {
    /* The partition serves, or failed (state tells); or it is gone: then the pointer is void after.
     */
    void (*state)(void *context, struct mill_partition *partition, bool gone);
    /* The watch fired or the partition changed under it; it is off the list already. */
    void (*watch)(void *context, struct mill_log_watch *watch);
};

/* Woken when the condition holds; caller's storage, on a list of the partition. */
struct mill_log_watch {
    struct mill_log_watch *next;
    struct mill_log_watch *prev;
    struct mill_partition *partition; /* NULL when not on a list */
    int64_t offset;                   /* fires when data at or above it is readable ... */
    uint32_t bytes_needed;            /* ... of at least this size */
    bool committed;  /* ... below the last stable offset: set before mill_log_watch_data */
    uint32_t reason; /* enum mill_log_watch_reason, set when fired */
    void *user;
    struct mill_log_watch **head; /* the log's own: list it is on ... */
    uint64_t target_bytes;        /* ... position in the partition's byte stream it waits for ... */
    uint64_t ticket;              /* ... and its parked append, 0 none: begin with 0 */
};

enum mill_log_watch_reason {
    MILL_WATCH_DATA,    /* enough bytes are readable, or a cold read has arrived */
    MILL_WATCH_FLUSHED, /* flush watches: written and synced up to offset */
    MILL_WATCH_CHANGED, /* the partition is going, failed or was truncated: ask again */
};

/* store_out and store_in: rings to and from this core's store (formatted by the caller); bell wakes
 * it. ret: 0, -ENOMEM. All memory is taken here. */
struct mill_log_config {
    struct mill_log_limits limits;
    struct mill_extents *extents;
    struct mill_arena *arena;
    struct mill_loans *loans;
    struct mill_ring store_out;
    struct mill_ring store_in;
    struct mill_bell store_bell;
    const struct mill_log_events *events;
    void *context;
};
int mill_log_create(const struct mill_log_config *config,
                    struct mill_log **ret_log) MILL_WARN_UNUSED;
void mill_log_destroy(struct mill_log *log);
/* Memory that mill_log_create takes over an arena of this many units, for the table at start. */
uint64_t mill_log_memory_bytes(const struct mill_log_limits *limits, uint32_t arena_units);

/* One bounded turn: completions of the store, writes to post, evictions, expiry. ret: work done. */
uint32_t mill_log_step(struct mill_log *log, struct mill_now now);
uint64_t mill_log_deadline(const struct mill_log *log);

/* producer.id.expiration.ms from now on. The core's, between two steps. */
void mill_log_producers_expire_after(struct mill_log *log, int64_t expiration_ms);
/* Wakes the store, which then looks at what was altered for it. */
void mill_log_ring_store(struct mill_log *log);

/* Starts to open a partition. ret: 0 (state event follows), -EEXIST open already, -ENOSPC limit. */
int mill_log_open(struct mill_log *log, const struct mill_uuid *topic_id, const char *topic,
                  int32_t partition, int32_t leader_epoch, const struct mill_log_settings *settings,
                  struct mill_partition **ret_partition) MILL_WARN_UNUSED;
/* New settings or leader epoch (higher: recorded at this log end, KIP-101). */
void mill_log_update(struct mill_partition *partition, int32_t leader_epoch,
                     const struct mill_log_settings *settings);
/* Closes and removes the files; `gone` follows. Watches fire with MILL_WATCH_CHANGED. */
void mill_log_delete(struct mill_partition *partition);

struct mill_partition *mill_log_find(struct mill_log *log, const struct mill_uuid *topic_id,
                                     int32_t partition);
/* Iterates: index below mill_log_partitions(log). */
uint32_t mill_log_partitions(const struct mill_log *log);
struct mill_partition *mill_log_at(struct mill_log *log, uint32_t index);

enum mill_log_state mill_partition_state_of(const struct mill_partition *partition);
/* False when its files could not be loaded: then nothing is known of its offsets. */
bool mill_partition_loaded(const struct mill_partition *partition);
const struct mill_uuid *mill_partition_topic_id(const struct mill_partition *partition);
int32_t mill_partition_index(const struct mill_partition *partition);
int32_t mill_partition_epoch(const struct mill_partition *partition);
int64_t mill_partition_start(const struct mill_partition *partition); /* log start offset */
int64_t mill_partition_end(const struct mill_partition *partition);   /* log end offset */
int64_t mill_partition_high_watermark(const struct mill_partition *partition);
int64_t mill_partition_stable(const struct mill_partition *partition); /* last stable offset */
void mill_partition_user_set(struct mill_partition *partition, void *user);
void *mill_partition_user(const struct mill_partition *partition);

const char *mill_partition_topic(const struct mill_partition *partition); /* name, terminated */
/* Batch bytes appended, and given to reads, since it was opened. */
uint64_t mill_partition_bytes_in(const struct mill_partition *partition);
uint64_t mill_partition_bytes_out(const struct mill_partition *partition);
/* A number that the caller keeps here; 0 at first. */
void mill_partition_row_set(struct mill_partition *partition, uint32_t row);
uint32_t mill_partition_row(const struct mill_partition *partition);
/* Partitions with extents that were used at or after since_ns, last used first. ret: how many. */
uint32_t mill_log_recent(const struct mill_log *log, uint64_t since_ns,
                         struct mill_partition **ret_partitions, uint32_t max);

/* --- append ---------------------------------------------------------------------------------- */

enum {
    /* From this version of Produce on a batch adds its partition to the transaction (KIP-890):
     * where nobody vouches for it the result says so, before a byte is copied. */
    MILL_LOG_ADDS_VERSION = 12,
};

struct mill_append {
    struct mill_cursor records; /* the partition's record bytes, size_bytes of them */
    uint32_t size_bytes;
    int16_t api_version; /* of Produce: zstd needs 7 */
    int16_t acks;
    bool transactional_id; /* the request names one */
    bool grants_late;      /* the coordinator has not told yet whom it lets in: try again */
    bool internal_client;  /* control's own appends: no sequences are needed */
};

struct mill_append_result {
    enum mill_kerr error;
    bool unvouched;         /* nobody let its transaction begin here: ask the coordinator */
    int64_t base_offset;    /* -1 on error */
    int64_t append_time_ms; /* -1 for create time */
    int64_t start_offset;   /* -1 on error */
    int64_t end_offset;     /* what a flush watch has to reach, when must_flush */
    bool must_flush;        /* flush.messages = 1: answer after a flush watch at end_offset fired */
    bool duplicate;         /* nothing appended: an earlier batch's offsets are given */
    int32_t bad_record;     /* index for record_errors, -1 none */
    uint32_t bytes_copied;  /* for bytes_copied_in */
    char message[MILL_LOG_MESSAGE_BYTES]; /* for error_message, "" none */
};

/* Appends one batch from a client: header checks, one copy with CRC and walk over the records of an
 * uncompressed batch, producer state, offsets and epoch stamped, length published.
 * ret: 0 result is final (error in it, or appended); -EAGAIN no extent or dirty limit: nothing
 * changed, call again later (the caller stops reading that connection); -EINPROGRESS parked: a
 * worker must look inside the batch first (compacted topic, recompression), or an earlier batch of
 * the partition waits for that. The batch was copied, its bytes are not read again, and it will be
 * appended in the order of these calls: call again with the same watch after it fired for the
 * result, or mill_log_abandon. watch may be NULL where nothing is parked. O(bytes). */
int mill_log_append(struct mill_partition *partition, const struct mill_append *append,
                    struct mill_now now, struct mill_log_watch *watch,
                    struct mill_append_result *ret_result) MILL_WARN_UNUSED;

struct mill_marker_append {
    struct mill_marker marker;
    bool bumped; /* of version 2: its epoch is above that of the transaction's batches (KIP-890) */
    int64_t producer_id;
    int16_t producer_epoch;
};

/* A producer with something in the log (KIP-664). */
struct mill_log_producer_state {
    int64_t producer_id;
    int64_t last_timestamp;    /* of its last batch or marker */
    int64_t txn_first_offset;  /* of its open transaction, -1 none */
    int32_t last_sequence;     /* -1 none since its epoch began */
    int32_t coordinator_epoch; /* of its last marker, -1 none */
    int16_t epoch;
};
/* Where a walk over them stands: begins with all zero. */
struct mill_log_producers_at {
    uint32_t number;
    uint32_t generation;
    bool begun;
    bool scan;
    bool ended; /* all were told */
};
/* Tells the next ones, in no order; at most most (above 0), into ret. Between two calls producers
 * may come and go: one that is there throughout is told once, one that came back maybe twice. ret:
 * how many, maybe 0 before the end; -ESTALE: what was told so far is void, the walk begins anew by
 * itself. */
int mill_log_producers_list(const struct mill_partition *partition,
                            struct mill_log_producers_at *at, struct mill_log_producer_state *ret,
                            uint32_t most) MILL_WARN_UNUSED;
/* How many there are, with those that were only let in. */
uint32_t mill_log_producers_count(const struct mill_partition *partition);

/* The coordinator says: the partition is part of the producer's transaction of that epoch; until
 * its marker the producer's transactional batches are taken. Repeating it changes nothing. ret:
 * INVALID_PRODUCER_EPOCH a newer epoch has written; KAFKA_STORAGE_ERROR no room, or the partition
 * takes no appends. */
enum mill_kerr mill_log_grant(struct mill_partition *partition, int64_t producer_id,
                              int16_t producer_epoch) MILL_WARN_UNUSED;

/* Appends the marker that ends a transaction in this partition (a control batch, which no client
 * may send). Without an open transaction of the producer it is appended all the same, as a repeated
 * one is, and ends nothing. ret: 0 result is final (INVALID_PRODUCER_EPOCH,
 * TRANSACTION_COORDINATOR_ FENCED: a newer epoch was seen); -EAGAIN no memory, or appends wait for
 * a worker: nothing changed, call again later. */
int mill_log_append_marker(struct mill_partition *partition,
                           const struct mill_marker_append *marker, struct mill_now now,
                           struct mill_append_result *ret_result) MILL_WARN_UNUSED;

/* The result of a parked append is no longer wanted; it is appended all the same, as any request
 * that was received whole. No effect on a watch that is not of one. */
void mill_log_abandon(struct mill_log *log, struct mill_log_watch *watch);

/* Takes an extent for the core's own passing use: what the log keeps of written bytes gives way to
 * it. ret: 0; -EAGAIN no memory now; -EFBIG larger than any extent. Freed by mill_extent_free. */
int mill_log_scratch(struct mill_log *log, uint32_t size_bytes,
                     uint32_t *ret_extent) MILL_WARN_UNUSED;

/* --- read ------------------------------------------------------------------------------------ */

struct mill_read {
    int64_t offset;
    uint32_t bytes_max;    /* soft: see first_whole */
    bool first_whole;      /* give one whole batch even when it is larger than bytes_max */
    int32_t current_epoch; /* -1: no check; else FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH */
    int32_t last_epoch;    /* last_fetched_epoch, -1 none: diverging answer */
    uint32_t refs_max;     /* at most MILL_LOG_REFS_MAX */
    bool committed;        /* below the last stable offset, with the list of aborted ones */
};

struct mill_read_result {
    enum mill_kerr error;
    int64_t high_watermark;  /* -1 on error */
    int64_t stable_offset;   /* last stable offset, -1 on error */
    int64_t start_offset;    /* -1 on error */
    struct mill_ref aborted; /* committed: MILL_LOG_ABORTED_BYTES each, as on the wire; size 0
                                none. Its extent is the caller's to free */
    uint32_t bytes;          /* sum of refs: whole batches from the one that contains offset */
    uint32_t refs_count;
    int32_t diverging_epoch; /* -1: none */
    int64_t diverging_end;
    struct mill_ref refs[MILL_LOG_REFS_MAX];
};

/* Reads below the high watermark. ret: 0 result is final (refs_count 0: nothing there yet);
 * -EINPROGRESS the data is cold: the store was asked; read again after `watch` fires (a watch is
 * required then; -EAGAIN when no memory for it: try later). O(batches up to the index interval). */
int mill_log_read(struct mill_partition *partition, const struct mill_read *read,
                  struct mill_log_watch *watch,
                  struct mill_read_result *ret_result) MILL_WARN_UNUSED;

/* Puts a watch on the partition: see struct mill_log_watch. Fires from mill_log_step or an append
 * of this turn, never inside this call. Set user before. */
void mill_log_watch_data(struct mill_partition *partition, struct mill_log_watch *watch,
                         int64_t offset, uint32_t bytes_needed);
/* Fires when everything below offset is synced to the files. */
void mill_log_watch_flush(struct mill_partition *partition, struct mill_log_watch *watch,
                          int64_t offset);
void mill_log_unwatch(struct mill_log_watch *watch); /* no effect when not on a list */

/* --- look-ups -------------------------------------------------------------------------------- */

struct mill_time_result {
    enum mill_kerr error;
    int64_t offset; /* -1 no match */
    int64_t timestamp;
    int32_t leader_epoch;
};

/* First record with a timestamp at or above time_ms; MILL_TIME_MAX asks for the record with the
 * greatest one. committed: what is not below the last stable offset is no match. Inside a
 * compressed batch a worker decompresses with bounded output. ret: 0 final, -EINPROGRESS call again
 * after `watch` fired. */
#define MILL_TIME_MAX INT64_MIN
int mill_log_find_time(struct mill_partition *partition, int64_t time_ms, bool committed,
                       struct mill_log_watch *watch,
                       struct mill_time_result *ret_result) MILL_WARN_UNUSED;

/* Epoch of the batch that holds offset (for ListOffsets), -1 unknown. */
int32_t mill_log_epoch_at(const struct mill_partition *partition, int64_t offset);

/* Largest known epoch <= asked and the end offset of it (OffsetForLeaderEpoch; KIP-101, KIP-279).
 */
void mill_log_epoch_end(const struct mill_partition *partition, int32_t epoch, int32_t *ret_epoch,
                        int64_t *ret_end_offset);

/* --- log start ------------------------------------------------------------------------------- */

/* Moves the log start up to offset (MILL_TRIM_ALL: the high watermark), never down: lower offsets
 * are not served from this call on, their segments are removed by the store (DeleteRecords;
 * KIP-107). ret: 0 it is recorded, so that no kill brings them back; -EINPROGRESS call again after
 * `watch` fired; -ERANGE offset is not within the log; -EIO the partition does not serve. */
#define MILL_TRIM_ALL (-1)
int mill_log_trim(struct mill_partition *partition, int64_t offset,
                  struct mill_log_watch *watch) MILL_WARN_UNUSED;

/* --- counters -------------------------------------------------------------------------------- */

/* Of the store's compaction, as it last told. */
struct mill_log_clean_stats {
    uint64_t runs;
    uint64_t stopped; /* given up: trimmed, deleted, other settings, the end of the process */
    uint64_t failed;
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t records_removed;
    /* of the last one that came to its end */
    uint64_t last_ns;
    uint64_t last_bytes_in; /* of the segments that were written anew */
    uint64_t last_bytes_out;
    uint64_t last_keys;
    uint64_t last_keys_max;
    uint64_t dirty_ppm; /* of the dirtiest partition, as it was looked at last */
};

struct mill_log_stats {
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t batches_in;
    uint64_t records_in;
    uint64_t batches_refused;
    uint64_t batches_inspected;
    uint64_t batches_recompressed;
    uint64_t parked_full;
    uint64_t dirty_bytes;
    uint64_t dirty_full;
    uint64_t cold_reads;       /* asked of the store because a reader waits */
    uint64_t cold_reads_ahead; /* before one did */
    uint64_t cold_bytes;       /* in extents that were filled from files */
    uint64_t cold_full;        /* times a reader waited because of cold_max_bytes */
    uint64_t producers;
    uint64_t producers_evicted;
    uint64_t transactions; /* open, or ended above the high watermark */
    uint64_t transactions_full;
    uint64_t watches;
    struct mill_log_clean_stats clean;
};
const struct mill_log_stats *mill_log_stats(const struct mill_log *log);

/* Nothing is dirty, parked or in flight any more (clean stop). mill_log_flush_all asks for it. */
void mill_log_flush_all(struct mill_log *log);
bool mill_log_idle(struct mill_log *log);
/* Nothing is left that time would bring to the files: what failed partitions hold stays in their
 * extents, for the next start. */
bool mill_log_ended(struct mill_log *log);

#endif
