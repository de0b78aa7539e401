/* SPDX-License-Identifier: Apache-2.0 */
/* Segment files of one core's partitions, in Kafka's format, over a table of file calls. A store
 * runs on a thread of its own (a worker), or is stepped by a test on a modelled disk. It takes
 * requests of its core from a ring (log/store_link.h), reads extents in place and answers through
 * another ring.
 */
#ifndef MILL_DATAPLANE_STORE_H
#define MILL_DATAPLANE_STORE_H

#include "base/clock.h"
#include "base/hist.h"
#include "base/report.h"
#include "base/uuid.h"
#include "dataplane/store/loaders.h"
#include "dataplane/store/log_dirs.h"
#include "hugepages/arena.h"
#include "hugepages/ring.h"

enum {
    /* What a batch may hold when it is decompressed: this many times max.message.bytes, and no more
     * than a worker takes memory for at once. */
    MILL_STORE_PLAIN_PER_MESSAGE = 64,
    MILL_STORE_PLAIN_MAX_BYTES = 64 << 20,
};

struct mill_store;

/* What a take-up could not write for lack of space: whole, checked batches that follow the end of a
 * partition's files, in order. They stay in their extents; the store that opens the partition reads
 * them there and writes them when there is space. */
struct mill_kept_part {
    struct mill_uuid topic_id;
    int32_t partition;
    struct mill_ref ref; /* what of the extent is not in the files */
};

struct mill_store_kept {
    struct mill_kept_part *parts; /* those of a partition stand together */
    uint32_t parts_count;
    uint32_t parts_capacity;
    _Atomic uint32_t left; /* not written yet: while not 0 the arena must not be removed */
};

void mill_store_kept_free(struct mill_store_kept *kept);

/* What of the configuration may change while a store runs: its core writes, the store looks once a
 * turn. Each word counts for itself, so relaxed accesses do. */
struct mill_store_tuning {
    _Atomic int64_t producer_expiration_ms;
    _Atomic uint64_t clean_map_bytes;
    _Atomic uint64_t clean_bytes_per_second;
    _Atomic int64_t clean_backoff_ms;
};

/* How many compactions may run at once over all stores (log.cleaner.threads). Shared by their
 * threads; who comes later gives way to those that wait. */
struct mill_clean_slots {
    _Atomic uint32_t free;
    _Atomic uint32_t waiting;
};

struct mill_store_config {
    const struct mill_store_tuning *tuning; /* in place of the fields of these names; NULL: none */
    struct mill_log_dirs *dirs;
    struct mill_arena *arena;
    struct mill_loaders *loaders; /* NULL: partitions are loaded in the store's turn */
    struct mill_bell bell;        /* of the store's own thread, for them and its helpers */
    struct mill_store_kept *kept; /* of the take-up, shared by all stores; NULL: nothing */
    struct mill_ring in;          /* from the core: consumer end */
    struct mill_ring out;         /* to the core: producer end */
    struct mill_bell core_bell;
    uint32_t helpers;          /* threads for long file calls; 0: made in the store's turn */
    uint64_t cached_max_bytes; /* of what it writes, in the page cache; 0: left to the kernel */
    uint32_t open_files_max;   /* descriptors kept open, least recent closed */
    uint32_t producers_max;
    uint32_t transactions_max; /* open ones that the log has room for; 0: any number */
    int64_t producer_expiration_ms;
    int64_t checkpoint_interval_ms; /* log.flush.offset.checkpoint.interval.ms */
    int64_t retention_check_ms;     /* log.retention.check.interval.ms */
    uint64_t clean_map_bytes; /* this store's share of log.cleaner.dedupe.buffer.size; 0: nothing is
                                 compacted */
    uint64_t clean_bytes_per_second;      /* read and written by compaction; 0: no limit */
    int64_t clean_backoff_ms;             /* log.cleaner.backoff.ms */
    struct mill_clean_slots *clean_slots; /* NULL: no limit */
    struct mill_hist *flush_times;        /* of syncs of .log files, by the store; NULL: not kept */
    struct mill_uuid clean_secret;        /* random: keys of clients are hashed with it */
};

/* Take-up, before cores run: writes to the files what extents of an earlier process hold beyond
 * them (descriptors say what is valid; each batch is checked), then empties the arena under the
 * directories' incarnation. Extents of another incarnation, or files that end before the recorded
 * offset (an older copy), are discarded, with one line per partition. Extents for which there is no
 * space are kept, and then the incarnation is, too.
 * out: ret_result, its kept to be given to mill_store_kept_free.
 * ret: 0, -errno when the files cannot be written (nothing of the arena is lost then). */
struct mill_takeup_result {
    uint64_t partitions;
    uint64_t batches_written;
    uint64_t bytes_written;
    uint64_t extents_discarded;
    uint64_t bytes_kept;
    struct mill_store_kept kept;
};
int mill_store_takeup(struct mill_log_dirs *dirs, struct mill_arena *arena, bool taken,
                      struct mill_takeup_result *ret_result,
                      struct mill_report *report) MILL_WARN_UNUSED;

int mill_store_create(const struct mill_store_config *config, struct mill_store **ret_store,
                      struct mill_report *report) MILL_WARN_UNUSED;
/* One bounded turn: at most a few requests and one file call each. ret: work done, 0 idle. */
uint32_t mill_store_step(struct mill_store *store, struct mill_now now);
uint64_t mill_store_deadline(const struct mill_store *store);
/* Clean end: last index entries and producer snapshots written, offsets noted, files closed; the
 * sync is mill_log_dirs_close's. ret: everything that was asked for is in the files. */
bool mill_store_close(struct mill_store *store, struct mill_now now);
/* What a kill leaves: descriptors are closed and memory is freed, nothing more is written. For
 * tests that crash a broker inside their own process. */
void mill_store_abandon(struct mill_store *store);

#endif
