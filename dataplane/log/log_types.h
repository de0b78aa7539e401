/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a core's log, shared by the files of this folder only. Everything belongs to the core.
 *
 * Extents of a partition form one list sorted by offset. Hot ones were appended to; cold ones were
 * filled by the store for a reader. Where the list has a gap, data is in the files only.
 *
 *   start ....... [cold] ....... [hot][hot][active: committed | free] end
 *
 * Two tables have an entry per arena unit, so that nothing is allocated when an extent is taken:
 * extents[first unit] describes the extent, units[unit] names the batch that covers the unit's
 * first byte (the sparse index: a search ends within one unit, at most 67 headers).
 */
#ifndef MILL_DATAPLANE_LOG_TYPES_H
#define MILL_DATAPLANE_LOG_TYPES_H

#include "dataplane/log/log.h"
#include "dataplane/log/store_link.h"

enum {
    MILL_LOG_EXTENT_MAX_BYTES = 1 << 20, /* growth ends here; one larger batch gets its own */
    MILL_LOG_COLD_BYTES = 256 << 10,     /* a first read of a place */
    MILL_LOG_AHEAD_BYTES = 1 << 20,      /* each read of a sequential reader */
    MILL_LOG_AHEAD_MAX = 4,              /* of these at most are read before they are asked for */
    MILL_LOG_COLD_MAX = 64,              /* cold reads under way on a core */
    MILL_LOG_TIME_MAX = 64,              /* time look-ups under way or not yet fetched */
    MILL_LOG_STEP_WORK = 256,
    MILL_LOG_EVICT_TRIES = 64,
    MILL_LOG_ASKS_MAX = 32, /* look-ups of aborted transactions in the files */
    /* Room of one: for all that a core's table can have open at once, beside the ring. */
    MILL_LOG_ASK_BYTES = 512 << 10,
    MILL_LOG_ABORTED_MAX = 4096,  /* of the ring of a core */
    MILL_LOG_OLD_BYTES = 1 << 20, /* of one read that needs such a look-up */
};

#define MILL_LOG_NONE    UINT32_MAX
#define MILL_LOG_IDLE_NS (3 * MILL_NS_PER_S)
#define MILL_LOG_COLD_NS (2 * MILL_NS_PER_S)

struct log_extent {
    uint32_t next; /* by offset, MILL_LOG_NONE at the ends */
    uint32_t prev;
    int64_t from_offset; /* base_offset; lower: compaction left no batch between the two */
    int64_t base_offset;
    int64_t end_offset; /* after the last batch */
    union {
        uint64_t stream_pos; /* hot: bytes of the partition before it */
        struct {             /* cold: all of the core's, least recently used first */
            uint32_t cold_prev;
            uint32_t cold_next;
        };
    };
    uint64_t used_ns;
    uint32_t slot; /* of its partition */
    uint32_t size_bytes;
    uint32_t committed_bytes;
    uint32_t posted_bytes;  /* below: given to the store */
    uint32_t written_bytes; /* below: in the files */
    bool cold;
    bool unread;   /* cold: read ahead, nobody came yet */
    uint8_t ahead; /* cold: so many more are read before its reader asks */
};
static_assert(sizeof(struct log_extent) == 72, "an entry for each unit of the arena");

struct log_unit {
    uint32_t pos_bytes;    /* of the batch, from the extent's start */
    uint32_t offset_delta; /* its base offset from the extent's */
};

/* Doubly linked list of partitions by pointers in one of their nodes. */
struct log_node {
    struct log_node *next;
    struct log_node *prev;
};

struct log_producer_batch {
    int64_t base_offset;
    int64_t last_offset;
    int64_t timestamp;
    int32_t first_sequence;
    int32_t last_sequence;
};

struct log_producer {
    int64_t producer_id;
    int64_t written_ms;     /* wall clock of the last append */
    int64_t last_timestamp; /* of its last batch or marker */
    uint32_t partition;     /* slot */
    uint32_t hash_next;
    uint32_t older; /* least recently used order over all partitions */
    uint32_t newer;
    uint32_t mine_next; /* of the same partition */
    uint32_t mine_prev;
    uint32_t txn;              /* its open transaction, MILL_LOG_NONE none: then it is not aged */
    int32_t coordinator_epoch; /* of its last marker, -1 none */
    uint32_t generation;       /* rises when the place is given up */
    int16_t epoch;             /* -1: nothing of it is in the log */
    int16_t granted;           /* mill_log_grant, until its marker; -1 none. Not aged either */
    uint8_t count;             /* of batches */
    uint8_t first;             /* oldest in the ring */
    struct log_producer_batch batches[MILL_LOG_PRODUCER_BATCHES];
};

struct log_producers {
    struct log_producer *entries;
    uint32_t *buckets;
    uint32_t length;
    uint32_t mask;
    uint32_t free_head;
    uint32_t oldest;
    uint32_t newest;
    uint32_t sweep;
    uint32_t granted; /* entries that only a grant keeps */
    uint64_t key[2];
};

struct log_txn {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of its marker, -1 open */
    uint64_t stream_pos; /* of the partition's bytes, before its first batch */
    uint32_t next;       /* by first offset, or the next free one */
    uint32_t prev;
    uint32_t ended_next; /* of those that ended, by last offset */
};

struct log_aborted {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of its marker */
    uint64_t older;      /* serial of the partition's one before, 0 none */
    uint32_t slot;
    uint32_t generation;
};

struct log_txns {
    struct log_txn *entries;
    struct log_aborted *aborted; /* by serial modulo length */
    uint32_t length;
    uint32_t free_head;
    uint32_t aborted_length;
    uint64_t aborted_next; /* serial of the next */
};

struct mill_partition {
    struct mill_log *log;
    uint32_t slot;
    uint32_t generation;
    uint32_t hash_next;
    enum mill_log_state state;
    struct mill_uuid topic_id;
    int32_t index;
    int32_t leader_epoch;
    struct mill_log_settings settings;
    int64_t start_offset;
    int64_t end_offset;
    int64_t high_watermark;
    int64_t stable_offset; /* below: no transaction is open */
    int64_t written_offset;
    int64_t synced_offset;
    int64_t sync_wanted;    /* below: somebody wants it synced */
    int64_t trimmed_offset; /* the start that the store has recorded */
    uint64_t stream_end;    /* bytes appended since open */
    uint64_t stream_ready;  /* of these, below the high watermark */
    uint64_t stream_stable; /* of these, below the last stable offset */
    uint64_t bytes_read;
    uint32_t row; /* the caller's */
    uint64_t order;
    uint32_t first;
    uint32_t last;
    uint32_t active; /* extent appended to, MILL_LOG_NONE none */
    uint32_t hint;   /* extent of the last read */
    uint32_t post;   /* extent with the first bytes not yet posted, MILL_LOG_NONE none */
    uint32_t producers;
    uint32_t producers_count;
    uint32_t txn_first; /* by first offset */
    uint32_t txn_last;
    uint32_t txn_ended; /* ended, marker not below the high watermark, oldest first */
    uint32_t txn_ended_last;
    uint64_t aborted_newest; /* serial, 0 none */
    int64_t aborted_from;    /* markers below: the ring has forgotten some of their transactions */
    uint32_t cold_count;     /* cold reads under way */
    uint32_t parked_first;   /* appends that wait, oldest first, MILL_LOG_NONE none */
    uint32_t parked_last;
    uint64_t used_ns;
    uint64_t unsynced_ns; /* when the oldest unsynced append came, 0 none */
    int64_t cold_failed;  /* offset whose cold read failed, -1 none */
    int64_t bare_from;    /* compaction left no batch from here ... */
    int64_t bare_end;     /* ... up to here, the log's end at that time; no such: 0 */
    uint64_t dirty_bytes;
    struct log_node lru;  /* partitions with extents, least recently used first */
    struct log_node todo; /* partitions with something to tell the store */
    struct log_node sync; /* partitions whose flush.ms runs */
    struct mill_log_watch *watch_data;
    struct mill_log_watch *watch_flush;
    struct mill_log_watch *watch_parked;
    struct mill_link_epoch epochs[MILL_LINK_EPOCHS_MAX];
    uint32_t epochs_count;
    bool open_wanted;
    bool settings_wanted;
    bool epochs_wanted;
    bool delete_wanted;
    bool trim_wanted;
    bool failed; /* its dirty bytes are no longer in the core's sum */
    bool gone;   /* its files are; waits for its extents' loans */
    bool write_under_way;
    bool check_watches;
    bool txns_lost; /* opening: the tables had no room for its open transactions */
    bool full;      /* its disk is: appends are refused, the same bytes are tried again */
    uint8_t growth;
    struct mill_link_write write; /* the one under way */
    void *user;
    char topic[MILL_LOG_NAME_MAX + 1];
};

struct log_cold {
    struct mill_partition *partition; /* NULL free */
    uint32_t generation;
    uint32_t extent;
    uint32_t size_bytes;
    int64_t offset;
    int64_t limit_offset;
    bool posted;
    bool wanted;   /* a reader waits for it; else it is read ahead */
    uint8_t ahead; /* to be read after it, without being asked */
    uint8_t depth; /* what its reader's next one will have */
};

enum log_ask_state {
    LOG_ASK_FREE,
    LOG_ASK_WANTED,
    LOG_ASK_POSTED, /* the store writes the extent */
    LOG_ASK_DONE,
};

/* A look-up of aborted transactions in the files. */
struct log_ask {
    struct mill_partition *partition;
    uint32_t generation;
    enum log_ask_state state;
    uint32_t extent;
    uint32_t count;
    int32_t status;
    int64_t offset;       /* of the read */
    int64_t end_offset;   /* the list is whole for data below */
    int64_t known_offset; /* markers below were in the files */
    uint64_t done_ns;
};

enum log_time_state {
    LOG_TIME_FREE,
    LOG_TIME_WANTED,
    LOG_TIME_POSTED,
    LOG_TIME_DONE,
};

struct log_time {
    struct mill_partition *partition;
    uint32_t generation;
    enum log_time_state state;
    int64_t time_ms;
    int64_t need_offset; /* the store is asked when everything below is written */
    int32_t status;
    int64_t offset;
    int64_t timestamp;
    uint64_t done_ns;
};

struct log_check {
    enum mill_kerr error;
    int32_t bad_record;
    const char *message;
    int64_t max_timestamp; /* of the records walked */
    bool walked;           /* a store has done that: nothing is looked at again */
};

enum log_parked_state {
    LOG_PARKED_FREE,
    LOG_PARKED_WANTED, /* the store is to be asked */
    LOG_PARKED_POSTED, /* the store reads and writes the extent */
    LOG_PARKED_READY,  /* waits for those before it, or for memory */
    LOG_PARKED_DONE,   /* out of the queue: its caller has to fetch the result */
};

/* An append between its first call and its result. The batch lies in an extent of its own, its CRC
 * was right. */
struct log_parked {
    struct mill_partition *partition;
    struct mill_log_watch *watch; /* the caller's, NULL when it gave up */
    uint64_t ticket;              /* a serial number and this entry's index */
    uint32_t next;                /* the partition's next younger one */
    enum log_parked_state state;
    uint32_t extent;
    bool internal_client;
    bool grants_late;
    int16_t api_version;
    struct log_check check; /* of the header, then of the store's look */
    struct mill_append_result result;
};

struct mill_log {
    struct mill_log_config config;
    struct mill_log_stats stats;
    uint8_t *base;
    struct mill_partition *partitions; /* limits.partitions_max slots */
    uint32_t partitions_used;          /* slots ever used */
    uint32_t slots_free;
    uint32_t done_cursor; /* slot at which the next look for what is not done begins */
    uint32_t *buckets;
    uint32_t buckets_mask;
    struct log_extent *extents; /* by first unit */
    struct log_unit *units;
    struct log_producers producers;
    struct log_txns txns;
    struct log_ask asks[MILL_LOG_ASKS_MAX];
    struct log_cold cold[MILL_LOG_COLD_MAX];
    struct log_time time[MILL_LOG_TIME_MAX];
    struct log_parked parked[MILL_LOG_PARKED_MAX];
    struct log_node lru;
    struct log_node todo;
    struct log_node sync;
    struct mill_now now; /* of the last step */
    uint64_t evict_at_ns;
    uint64_t sweep_at_ns;
    uint64_t sync_at_ns;
    uint32_t cold_under_way;
    uint32_t asks_used;   /* slots that are not free */
    uint32_t cold_oldest; /* extents: least recently used first */
    uint32_t cold_newest;
    uint64_t unread_bytes;   /* of cold extents that were read ahead, or are about to be */
    uint32_t time_under_way; /* wanted or posted */
    uint32_t time_used;      /* slots that are not free */
    uint32_t parked_count;   /* in queues: neither free nor done */
    bool parked_starved;     /* one waits for memory */
    uint32_t parked_turn;    /* the entry that a step looks at first goes round */
    uint64_t parked_bytes;   /* of their extents */
    uint64_t parked_serial;
};

static inline void log_list_init(struct log_node *head)
{
    head->next = head;
    head->prev = head;
}
static inline bool log_list_empty(const struct log_node *head)
{
    return head->next == head;
}
static inline void log_list_remove(struct log_node *node)
{
    if (node->next) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
        node->next = NULL;
        node->prev = NULL;
    }
}
static inline void log_list_add(struct log_node *head, struct log_node *node)
{
    log_list_remove(node);
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* --- extent_ring.c ------------------------------------------------------------------------------
 */

/* Makes the partition's active extent hold size_bytes more. ret: 0, -EAGAIN no memory now, -EFBIG
 * larger than any extent. */
int mill_log_extent_room(struct mill_partition *partition, uint32_t size_bytes) MILL_WARN_UNUSED;
/* Takes memory, evicting what is written and not on loan. ret: 0, -EAGAIN, -EFBIG. */
int mill_log_extent_take(struct mill_log *log, uint32_t size_bytes,
                         uint32_t *ret_extent) MILL_WARN_UNUSED;
/* Notes one batch of the extent in the sparse index. */
void mill_log_index_batch(struct mill_log *log, uint32_t extent, uint32_t pos_bytes,
                          uint32_t size_bytes, int64_t base_offset);
/* The extent that holds offset, or MILL_LOG_NONE; ret_next is then the first one above. */
uint32_t mill_log_extent_find(struct mill_partition *partition, int64_t offset, uint32_t *ret_next);
/* Position of the batch that contains offset in an extent that holds it. */
uint32_t mill_log_extent_seek(const struct mill_log *log, uint32_t extent, int64_t offset);
/* Compaction left nothing from offset to the log's end. */
static inline bool mill_log_is_bare(const struct mill_partition *partition, int64_t offset)
{
    return partition->bare_end == partition->end_offset && offset >= partition->bare_from &&
           partition->bare_end > 0;
}
void mill_log_extent_insert(struct mill_partition *partition, uint32_t extent, uint32_t next);
/* Memory for a cold read, within the budget of cold data: older cold extents give way, and for a
 * reader that waits hot ones too. ret: 0, -EAGAIN. */
int mill_log_cold_take(struct mill_log *log, uint32_t size_bytes, bool wanted,
                       uint32_t *ret_extent) MILL_WARN_UNUSED;
/* Gives it back, unused. */
void mill_log_cold_free(struct mill_log *log, uint32_t extent);
/* It is part of a partition's list now. */
void mill_log_cold_join(struct mill_log *log, uint32_t extent, bool unread);
/* A reader takes from it. */
void mill_log_cold_used(struct mill_log *log, uint32_t extent);
/* Frees every extent; the partition closes. ret: false when one is on loan or being written. */
bool mill_log_extents_drop(struct mill_partition *partition);
void mill_log_touch(struct mill_partition *partition);
/* Frees what was idle long enough. ret: extents freed. */
uint32_t mill_log_evict_idle(struct mill_log *log);

/* --- read.c -------------------------------------------------------------------------------------
 */

/* Begins the read that is due after this cold extent, if any and if there is memory for it. */
void mill_log_read_ahead(struct mill_partition *partition, uint32_t extent, uint32_t ahead);

/* --- producers.c --------------------------------------------------------------------------------
 */

enum log_sequence {
    LOG_SEQUENCE_NEXT,
    LOG_SEQUENCE_DUPLICATE,
    LOG_SEQUENCE_WRONG,
    LOG_SEQUENCE_OLD_EPOCH,
    LOG_SEQUENCE_NO_TRANSACTION, /* nobody vouches for the transaction that it would begin */
    LOG_SEQUENCE_GRANTS_LATE,    /* the same, and who may is not known yet */
    LOG_SEQUENCE_IN_TRANSACTION, /* plain, while a transaction of the producer is open */
    LOG_SEQUENCE_FULL,           /* no room for its producer or its transaction */
};

int mill_log_producers_init(struct log_producers *producers, uint32_t length) MILL_WARN_UNUSED;
void mill_log_producers_fini(struct log_producers *producers);
/* What a batch of a client is; ret_batch is the earlier one of a duplicate. */
enum log_sequence mill_log_producer_check(const struct mill_partition *partition,
                                          const struct mill_append *append,
                                          const struct mill_batch *batch,
                                          const struct log_producer_batch **ret_batch);
/* True when the batch would begin a transaction here that nobody vouches for, and nothing else is
 * known against it: the coordinator is to be asked (KIP-890). */
bool mill_log_producer_unvouched(const struct mill_partition *partition,
                                 const struct mill_append *append, const struct mill_batch *batch);
/* Notes an appended batch (base_offset assigned); a transactional one begins a transaction when
 * none is open. stream_pos: of the partition's bytes, before it. */
void mill_log_producer_note(struct mill_partition *partition, const struct mill_batch *batch,
                            uint64_t stream_pos, int64_t written_ms);
/* What a marker is, NONE: it may be appended. ret_aborts: it ends an open transaction as aborted.
 */
enum mill_kerr mill_log_marker_check(const struct mill_partition *partition,
                                     const struct mill_marker_append *marker, bool *ret_aborts);
/* Notes an appended marker: it ends the producer's open transaction, if there is one. */
void mill_log_marker_note(struct mill_partition *partition, const struct mill_batch *batch,
                          const struct mill_marker_append *marker, int64_t written_ms);
/* Opening: what the store knows. false: no room. */
bool mill_log_producer_restore(struct mill_partition *partition,
                               const struct mill_link_producer *from, int64_t written_ms);
bool mill_log_txn_restore(struct mill_partition *partition, const struct mill_link_txn *from);
void mill_log_producers_drop(struct mill_partition *partition);
/* Looks at a few entries and forgets expired ones. */
void mill_log_producers_sweep(struct mill_log *log);

/* --- txn.c --------------------------------------------------------------------------------------
 */

int mill_log_txns_init(struct log_txns *txns, uint32_t length,
                       uint32_t aborted_length) MILL_WARN_UNUSED;
void mill_log_txns_fini(struct log_txns *txns);
/* Recomputes the last stable offset after the watermark, the start or a transaction changed. */
void mill_log_stable_update(struct mill_partition *partition);
bool mill_log_txn_room(const struct mill_log *log);
/* ret: its number; there was room. */
uint32_t mill_log_txn_begin(struct mill_partition *partition, int64_t producer_id,
                            int64_t first_offset, uint64_t stream_pos);
/* Its marker is at last_offset. aborted: there was room in the ring. */
void mill_log_txn_end(struct mill_partition *partition, uint32_t number, int64_t last_offset,
                      bool aborted);
void mill_log_txns_drop(struct mill_partition *partition);
/* False while the ring's oldest entry is not in the files yet. */
bool mill_log_aborted_room(struct mill_log *log);
void mill_log_aborted_add(struct mill_partition *partition, int64_t producer_id,
                          int64_t first_offset, int64_t last_offset);
/* NULL: it was overwritten, or serial is 0. */
const struct log_aborted *mill_log_aborted_at(const struct mill_log *log, uint64_t serial);

/* --- aborted.c ----------------------------------------------------------------------------------
 */

/* The aborted transactions that end at or above offset and begin below end; size 0 of ret_list:
 * none. ret: 0 (the list's extent is the caller's to free), -EINPROGRESS the store was asked, watch
 * fires; -EAGAIN no memory; -EIO it cannot be known. */
int mill_log_aborted_list(struct mill_partition *partition, int64_t offset, int64_t end,
                          struct mill_log_watch *watch, struct mill_ref *ret_list) MILL_WARN_UNUSED;
/* A look-up of that read, whatever its state, or NULL. */
struct log_ask *mill_log_ask_find(const struct mill_partition *partition, int64_t offset);
bool mill_log_asks_post(struct mill_partition *partition);
/* partition NULL: it is gone. */
void mill_log_ask_take(struct mill_log *log, struct mill_partition *partition,
                       const struct mill_link_aborted_done *from);
/* Look-ups whose caller never came back must not keep their extent. */
void mill_log_asks_expire(struct mill_log *log);

/* --- append.c -----------------------------------------------------------------------------------
 */

/* What parked.c shares with an append at once. */
void mill_log_append_refuse(struct mill_partition *partition, const struct log_check *check,
                            struct mill_append_result *result);
/* The partition's own reasons to take nothing now. */
static inline bool mill_log_append_refuses(const struct mill_partition *partition,
                                           struct log_check *check)
{
    *check = (struct log_check){.bad_record = -1, .message = ""};
    if (partition->state == MILL_LOG_FAILED || partition->full) {
        check->error = MILL_KERR_KAFKA_STORAGE_ERROR;
        check->message = partition->full ? "the disk is full" : "the log directory has failed";
        return true;
    }
    if (partition->state != MILL_LOG_SERVING) {
        check->error = MILL_KERR_NOT_LEADER_OR_FOLLOWER;
        return true;
    }
    return false;
}

/* ret: true when so many bytes may become dirty now. One batch may always, when nothing else is. */
static inline bool mill_log_dirty_room(const struct mill_log *log, uint32_t size_bytes)
{
    uint64_t used = log->stats.dirty_bytes + log->parked_bytes;
#ifdef MILL_MUTANT_LOG_PARKED_UNCOUNTED
    used = log->stats.dirty_bytes;
#endif
    return used == 0 || used + size_bytes <= log->config.limits.dirty_max_bytes;
}

void mill_log_append_corrupt(struct mill_partition *partition, struct log_check *check,
                             struct mill_append_result *result);
/* Copies a batch whose header is good behind the partition's last one, with its CRC, and appends it
 * or refuses it. ret: 0, -EAGAIN no extent: nothing changed. */
int mill_log_append_place(struct mill_partition *partition, const struct mill_append *append,
                          struct mill_batch *batch, struct mill_now now, struct log_check *check,
                          struct mill_append_result *result) MILL_WARN_UNUSED;

/* --- parked.c -----------------------------------------------------------------------------------
 */

/* Only a look inside tells whether, or as what, the batch may be stored. */
static inline bool mill_log_needs_look(const struct mill_log_settings *settings,
                                       const struct mill_batch *batch)
{
    enum mill_codec codec = mill_batch_codec(batch);
#ifdef MILL_MUTANT_LOG_KEYS_UNSEEN
    return settings->compression != MILL_LOG_CODEC_ANY && settings->compression != codec;
#endif
    return !(batch->attributes & MILL_BATCH_CONTROL) &&
           ((settings->compression != MILL_LOG_CODEC_ANY && settings->compression != codec) ||
            (settings->compact && codec != MILL_CODEC_NONE));
}

/* Behind one that waits every batch waits: appends of a partition keep their order. */
static inline bool mill_log_parks(const struct mill_partition *partition,
                                  const struct mill_batch *batch)
{
#ifdef MILL_MUTANT_LOG_PARKED_OVERTAKE
    return mill_log_needs_look(&partition->settings, batch);
#endif
    return partition->parked_first != MILL_LOG_NONE ||
           mill_log_needs_look(&partition->settings, batch);
}

/* Parks an append whose header is good. ret: as mill_log_append. */
int mill_log_park(struct mill_partition *partition, const struct mill_append *append,
                  struct mill_batch *batch, struct log_check *check, struct mill_log_watch *watch,
                  struct mill_append_result *ret_result) MILL_WARN_UNUSED;
/* The second call of a parked append. ret: 0, -EINPROGRESS. */
int mill_log_parked_fetch(struct mill_partition *partition, struct mill_log_watch *watch,
                          struct mill_append_result *ret_result) MILL_WARN_UNUSED;
/* Asks the store for what this partition's queue needs. ret: false when the ring is full. */
bool mill_log_parked_post(struct mill_partition *partition);
void mill_log_parked_take(struct mill_log *log, const struct mill_link_inspected *from);
/* Ends every append whose turn it is. ret: work done. */
uint32_t mill_log_parked_run(struct mill_log *log);

/* --- records.c ----------------------------------------------------------------------------------
 */

/* Checks what the header alone tells; bytes is the header, size_bytes the whole. */
void mill_log_check_header(const struct mill_partition *partition, const struct mill_append *append,
                           const uint8_t *header, uint32_t header_bytes, struct mill_now now,
                           struct mill_batch *ret_batch, struct log_check *ret_check);
/* Walks the records of a batch, decompressed and in one piece, size_bytes of them. Any thread. */
void mill_log_check_records(const struct mill_log_settings *settings,
                            const struct mill_batch *batch, const uint8_t *records,
                            uint32_t size_bytes, int64_t wall_ms, struct log_check *ret_check);

/* --- watch.c ------------------------------------------------------------------------------------
 */

void mill_log_watch_add(struct mill_partition *partition, struct mill_log_watch **head,
                        struct mill_log_watch *watch);
/* Fires what may fire after the high watermark moved. */
void mill_log_watches_run(struct mill_partition *partition);
void mill_log_watches_fire(struct mill_partition *partition, struct mill_log_watch **head,
                           enum mill_log_watch_reason reason);
void mill_log_watches_changed(struct mill_partition *partition);
/* Takes one off its list and tells its caller. */
void mill_log_watch_fire(struct mill_log_watch *watch, enum mill_log_watch_reason reason);

/* --- trim.c -------------------------------------------------------------------------------------
 */

/* The store's wish: what retention no longer keeps. */
void mill_log_old(struct mill_partition *partition, int64_t start_offset);

/* --- epochs.c -----------------------------------------------------------------------------------
 */

/* Notes that epoch begins at the log end, when it is new. */
void mill_log_epoch_begin(struct mill_partition *partition, int32_t epoch);

/* --- log.c --------------------------------------------------------------------------------------
 */

/* Something of the partition has to be told to the store or to watches in the next step. */
void mill_log_todo(struct mill_partition *partition);
/* Recomputes the high watermark after end, synced offset or settings changed. */
void mill_log_advance(struct mill_partition *partition);
/* The files are removed: told, and taken out of the table. */
void mill_log_gone(struct mill_partition *partition);
/* Gives the slot of a gone partition back. ret: false while something of it is in use. */
bool mill_log_release(struct mill_partition *partition);
/* --- link.c -------------------------------------------------------------------------------------
 */
/* Posts what partitions want; takes the store's answers. ret: work done. */
uint32_t mill_log_post(struct mill_log *log);
/* Room for a message to the store, zeroed but for its head. ret: NULL: the ring is full. */
void *mill_log_link_claim(struct mill_partition *partition, uint32_t kind, uint32_t size_bytes);
uint32_t mill_log_take(struct mill_log *log);
void mill_log_time_free(struct mill_log *log, struct log_time *look);

#endif
