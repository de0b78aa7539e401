/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a store, shared by the files of this folder only. Everything belongs to one worker
 * thread, which may allocate and block in file calls.
 *
 *   log dir / topic-partition / 00000000000000000000.log .index .timeindex [.txnindex], next, ...
 *
 * A segment's numbers here are what the files hold: they move only after a write succeeded, so a
 * write that failed for lack of space is simply made again, the same bytes at the same place.
 */
#ifndef MILL_DATAPLANE_STORE_TYPES_H
#define MILL_DATAPLANE_STORE_TYPES_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "dataplane/log/log_types.h"
#include "dataplane/log/store_link.h"
#include "dataplane/store/helpers.h"
#include "dataplane/store/store.h"

enum {
    STORE_WINDOW_BYTES = 256 << 10,  /* read ahead of walks */
    STORE_HEADER_AHEAD_BYTES = 4096, /* of walks that look at headers of large batches only */
    STORE_INDEX_ENTRY_BYTES = 8,
    STORE_TIME_ENTRY_BYTES = 12,
    STORE_TXN_ENTRY_BYTES = 34,
    STORE_BATCH_ENTRIES = 64,   /* index entries written at once */
    STORE_WAITING_ENTRIES = 16, /* of each index, until they are written */
    STORE_DIRS_MAX = 64,
    STORE_STEP_MESSAGES = 16,
    STORE_META_BYTES = 1536,
    STORE_DIR_PATH_BYTES = 900,
    STORE_PARTITION_PATH_BYTES = STORE_DIR_PATH_BYTES + 1 + MILL_LOG_NAME_MAX + 12,
    STORE_PATH_BYTES = STORE_PARTITION_PATH_BYTES + 80,
    STORE_PATH_EXTRA_BYTES = 16,             /* of a partition's path, beside directory and topic */
    STORE_NAME_MAX = MILL_LOG_NAME_MAX + 60, /* of a partition's directory, with what is added */
    STORE_SNAPSHOT_NAME_BYTES = 32,
    STORE_UNKNOWN_TOLD = 8, /* files of others that are named at start, per directory */
};

#define STORE_TIME_UNREAD INT64_MIN /* ... a start has not read it */

#define STORE_RETRY_NS (500 * MILL_NS_PER_MS) /* between tries while the disk is full */

enum store_file_kind {
    STORE_FILE_LOG,
    STORE_FILE_INDEX,
    STORE_FILE_TIMEINDEX,
    STORE_FILE_TXNINDEX, /* only where a transaction was aborted */
    STORE_FILE_KINDS,
};

struct store_segment {
    int64_t base_offset;
    int64_t next_offset; /* after the last batch */
    uint64_t log_bytes;
    uint64_t index_bytes;
    uint64_t time_bytes;
    uint64_t txn_bytes;              /* 0: there is no .txnindex */
    int64_t max_timestamp;           /* -1 none */
    int64_t max_offset;              /* last offset of the batch that has it */
    int64_t time_last;               /* timestamp of the last .timeindex entry */
    int64_t first_timestamp;         /* of the first batch that has one, -1 none, or ... */
    uint64_t since_index;            /* bytes since the last .index entry */
    int32_t files[STORE_FILE_KINDS]; /* slots of open files, -1 closed */
};

#define STORE_NO_FILE UINT32_MAX

/* An open descriptor; the least recently used is closed when one more is needed. */
struct store_file {
    int file;                          /* -1 free */
    uint32_t older;                    /* order of use */
    uint32_t newer;                    /* ... or the next free one */
    uint32_t pins;                     /* helpers that use it */
    struct store_partition *partition; /* NULL: no segment's any more, closed with the last pin */
    int64_t segment;                   /* base offset */
    enum store_file_kind kind;
};

/* An entry of .txnindex: a transaction that ended with an abort marker. */
struct store_aborted {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset;   /* of the marker */
    int64_t stable_offset; /* after it: transactions that begin below have ended by then */
};

/* Node of a list; next NULL: in none. */
struct store_link {
    struct store_link *next;
    struct store_link *prev;
};

struct store_producer {
    int64_t producer_id;
    int64_t seen;      /* order of its last batch or marker */
    int64_t timestamp; /* of that */
    int64_t txn_first; /* of its open transaction, -1 none */
    int32_t coordinator_epoch;
    int16_t epoch;
    uint8_t count;                                                /* 0: known by a marker only */
    struct mill_link_producer batches[MILL_LOG_PRODUCER_BATCHES]; /* oldest first */
};

struct store_txn {
    int64_t first_offset;
    int64_t producer_id;
};

struct store_producers {
    struct store_producer *entries;
    uint32_t length;
    uint32_t capacity; /* power of two: open addressing over buckets of 1-based numbers */
    uint32_t *buckets;
    struct store_txn *open; /* transactions, by first offset */
    uint32_t open_length;
    uint32_t open_capacity;
    int64_t clock;
    bool incomplete; /* memory was short: what is here is no basis for a snapshot */
};

/* Whose a partition is while it is loaded beside its store (loaders.h). */
enum store_load {
    STORE_LOAD_NOT,
    STORE_LOAD_WAITS, /* in the queue */
    STORE_LOAD_RUNS,
    STORE_LOAD_DONE, /* the store has not looked yet */
};

/* Entries of the last segment's indexes that are not in the files yet (entries.c). */
struct store_waiting {
    uint32_t index_count;
    uint32_t time_count;
    uint8_t index[STORE_WAITING_ENTRIES * STORE_INDEX_ENTRY_BYTES];
    uint8_t time[STORE_WAITING_ENTRIES * STORE_TIME_ENTRY_BYTES];
};

struct store_partition {
    uint32_t slot;
    uint32_t generation;
    struct mill_uuid topic_id;
    int32_t index;
    char *topic;
    char *path; /* of its directory, once that is chosen */
    uint32_t path_bytes;
    uint32_t dir;
    struct mill_log_settings settings;
    struct mill_partition_mark *mark; /* NULL when the table is full or none is kept */
    struct store_segment *segments;
    uint32_t segments_count;
    uint32_t segments_capacity;
    struct store_waiting *waiting; /* NULL: none wait */
    int64_t start_offset;
    int64_t written_offset;
    int64_t synced_offset;
    int64_t aborted_end;     /* at its opening: after the last marker of its .txnindex files */
    int64_t snapshot_offset; /* of the newest producer snapshot, -1 none */
    int64_t clean_offset;    /* everything below is compacted, -1 nothing */
    bool uncleanable;        /* damage was found in it, told */
    struct mill_link_epoch epochs[MILL_LINK_EPOCHS_MAX];
    uint32_t epochs_count;
    struct store_producers producers;
    uint32_t producers_told;
    uint32_t batches_told;
    uint32_t txns_told;
    struct store_aborted *kept_aborted; /* by markers that wait for space, oldest first */
    uint32_t kept_aborted_count;
    struct mill_kept_part *kept; /* batches behind written_offset that wait for space */
    uint32_t kept_count;
    int64_t end_offset;           /* after those */
    struct mill_link_write write; /* the one under way */
    uint32_t part;                /* of it, being written */
    uint32_t part_bytes;          /* of that part, in the file */
    uint32_t jobs;                /* helpers at work for it */
    uint64_t cached_from;         /* bytes of the last segment below it are out of the page cache */
    uint64_t cached_bytes;        /* of it, in the page cache and not being dropped */
    struct store_link cached;     /* in the store's list */
    struct store_link paused;
    bool doomed; /* deleted when its last helper is done */
    bool making; /* a helper makes its directory */
    bool writing;
    bool syncing; /* a helper syncs what it wrote */
    bool full_told;
    bool failed_told;
    _Atomic int loading; /* enum store_load; DONE is stored after all else was written */
    struct store_partition *next_loading;
    struct mill_store *loading_for;         /* told when it is done */
    struct mill_log_settings settings_next; /* came while it was loaded */
    bool settings_changed;
    bool delete_wanted;
    bool opening;               /* until OPENED is told */
    struct store_link openings; /* in the store's list */
    bool loaded;
    int32_t status;
    bool dir_unsynced;
    bool gaps_legal;           /* it was compacted once */
    bool gap_found;            /* by the take-up, which does not know whether it is legal */
    bool gaps_illegal;         /* it was not: the cleaner's checkpoint was asked */
    bool epochs_unsaved;       /* the checkpoint file lacks the newest */
    uint64_t read_told_ns;     /* a failed read was told, 0 never */
    uint64_t opening_since_ns; /* the name is another's since, 0 not */
};

/* What the checkpoints of a log directory say about one partition; -1 nothing. */
struct store_offset {
    char *name; /* of the directory: TOPIC-PARTITION */
    uint32_t next;
    int64_t recovery_point; /* everything below is synced */
    int64_t high_watermark;
    int64_t start_offset; /* where it is above the first segment's */
    int64_t clean_offset; /* everything below is compacted */
    bool on_disk;         /* a file names it */
    bool told;            /* in the files being written */
    /* Of the start: what the take-up loaded, for its opening (NULL: not), and else up to where the
     * run before had written the files, -1 unknown. */
    struct store_partition *taken;
    int64_t reached_offset;
};

struct store_offsets {
    struct store_offset *entries;
    uint32_t length;
    uint32_t capacity;
    uint32_t *buckets;
    bool changed; /* since the files were written */
};

struct store_dir {
    char path[STORE_DIR_PATH_BYTES];
    _Atomic bool fenced;
    bool clean;                   /* the last run ended cleanly */
    _Atomic uint64_t loads_count; /* partitions that were to be loaded */
    _Atomic uint64_t loaded_count;
    _Atomic uint64_t loaded_bytes; /* of log files that were walked */
    _Atomic uint32_t partitions;   /* directories of partitions in it */
    struct store_offsets offsets;
};

struct mill_log_dirs {
    struct mill_log_dirs_options options;
    struct store_dir dirs[STORE_DIRS_MAX];
    uint32_t count;
    pthread_mutex_t lock;   /* of the offsets */
    pthread_mutex_t writer; /* of their files; taken before lock */
    _Atomic uint32_t fences;
};

/* What loaders are done with and the store has not taken yet, oldest first. */
struct store_loaded {
    pthread_mutex_t lock; /* taken after a loader's own */
    struct store_partition *first;
    struct store_partition **last;
};

struct mill_store {
    struct mill_store_config config;
    struct mill_log_dirs *dirs;
    const struct mill_file_calls *calls;
    struct mill_now now;                 /* of this turn */
    struct store_partition **partitions; /* by slot */
    uint32_t partitions_length;
    struct store_file *files;
    uint32_t files_oldest;
    uint32_t files_newest;
    uint32_t files_free;
    uint32_t pinned; /* files that helpers use */
    struct mill_helpers *helpers;
    uint32_t jobs;           /* given to helpers, not yet back */
    struct store_job *ended; /* back, to be finished when the ring to the core has room */
    struct store_job **ended_last;
    struct store_cursor *cursors;
    struct store_link cached; /* partitions with pages in the cache, oldest first */
    struct store_link paused; /* partitions whose write waits for the cache */
    uint64_t cached_bytes;    /* of files that were written, not yet out of the page cache */
    uint64_t dropping_bytes;  /* of these: given to helpers */
    uint8_t *window;
    uint32_t window_bytes; /* filled */
    uint64_t window_pos;
    int window_file;            /* -1 none */
    uint32_t stalled;           /* partitions whose write waits for space */
    struct store_link openings; /* partitions that wait for their names, or tell producers */
    struct store_loaded loaded;
    uint64_t retry_at_ns;
    uint64_t checkpoint_at_ns;     /* MILL_NEVER: no recovery point moved since the last */
    uint64_t retention_at_ns;      /* the next look for old segments */
    uint32_t retention_cursor;     /* slot at which it goes on */
    struct store_deleted *deleted; /* segments whose files were renamed (retention.c) */
    uint32_t deleted_length;
    uint32_t deleted_capacity;
    uint64_t delete_at_ns;
    struct store_cleaner *cleaner;
    uint32_t fences_seen; /* of the directories' */
    bool fence_told;      /* every partition of a fenced directory knows */
    bool told;            /* answers claimed, not yet published */
};

/* --- files.c ------------------------------------------------------------------------------------
 */

int mill_store_files_init(struct mill_store *store) MILL_WARN_UNUSED;
void mill_store_files_fini(struct mill_store *store);
/* Descriptor of one file of a segment, opened when it is not. ret: it, or -errno. */
int mill_store_file(struct mill_store *store, struct store_partition *partition,
                    struct store_segment *segment, enum store_file_kind kind) MILL_WARN_UNUSED;
void mill_store_file_close(struct mill_store *store, const struct store_partition *partition,
                           struct store_segment *segment);
/* The open file, or NULL. Numbers of a segment are copied while it is written: the slot that one
 * names may have been given to another file meanwhile. */
struct store_file *mill_store_file_slot(struct mill_store *store,
                                        const struct store_partition *partition,
                                        const struct store_segment *segment,
                                        enum store_file_kind kind);
/* Keeps an open file of a segment open, whatever becomes of the segment, until unpinned. */
struct store_file *mill_store_file_pin(struct mill_store *store,
                                       const struct store_partition *partition,
                                       const struct store_segment *segment,
                                       enum store_file_kind kind);
void mill_store_file_unpin(struct mill_store *store, struct store_file *slot);
/* All bytes, looping over short counts. ret: 0, -errno (-ENOSPC, -EIO for an early end). */
int mill_store_write_all(const struct mill_file_calls *files, int file, const void *bytes,
                         size_t size_bytes, uint64_t pos_bytes) MILL_WARN_UNUSED;
int mill_store_read_all(const struct mill_file_calls *files, int file, void *to, size_t size_bytes,
                        uint64_t pos_bytes) MILL_WARN_UNUSED;
/* Bytes of a file through the store's window, which takes ahead_bytes when it has to be read:
 * either at most STORE_WINDOW_BYTES. ret: pointer valid until the next call, NULL with ret_error.
 */
const uint8_t *mill_store_peek(struct mill_store *store, int file, uint64_t pos_bytes,
                               uint32_t size_bytes, uint32_t ahead_bytes, uint64_t end_bytes,
                               int *ret_error);
/* A small text file: whole, terminated. ret: its size, -errno, -EFBIG. */
int mill_store_read_text(const struct mill_file_calls *files, const char *path, char *ret_text,
                         size_t capacity) MILL_WARN_UNUSED;
/* The same for one of any size up to max_bytes; free(*ret_text). ret: its size, -errno, -EFBIG. */
int mill_store_read_whole(const struct mill_file_calls *files, const char *path, size_t max_bytes,
                          char **ret_text) MILL_WARN_UNUSED;
/* Replaces a file: written aside and renamed; durable: synced before, the directory after. */
int mill_store_write_aside(const struct mill_file_calls *files, const char *dir, const char *name,
                           const void *bytes, size_t size_bytes, bool durable) MILL_WARN_UNUSED;
int mill_store_write_text(const struct mill_file_calls *files, const char *dir, const char *name,
                          const char *text) MILL_WARN_UNUSED; /* durable */
/* Removes a directory and the files in it. */
int mill_store_tree_remove(const struct mill_file_calls *files, const char *path) MILL_WARN_UNUSED;
void mill_store_segment_path(const struct store_partition *partition, int64_t base_offset,
                             enum store_file_kind kind, char *ret_path, size_t capacity);

/* --- segment.c ----------------------------------------------------------------------------------
 */

struct store_walk {
    uint64_t from_bytes;
    uint64_t end_bytes;
    int64_t next_offset;  /* batches below are out of order */
    int64_t limit_offset; /* ... and those at or above it are of no such segment; 0: not known */
    bool crc;
    int (*each)(void *context, const struct mill_batch *batch, uint64_t pos_bytes);
    void *context;
};
/* Walks batches until the end or the first bad one. ret: 0 (ret_good: position after the last good
 * batch), -errno of a read, or what each returned. */
int mill_store_walk(struct mill_store *store, int file, const struct store_walk *walk,
                    uint64_t *ret_good) MILL_WARN_UNUSED;
/* Where offsets are of no batch of the segment any more: at the next one's base (INT64_MAX: none),
 * or where an index entry could not tell them. Gaps may be legal, and offsets are in no sum:
 * without this one wrong bit would hide all that follows. */
int64_t mill_store_segment_limit(const struct store_segment *segment, int64_t end_offset);
/* Appends whole batches, rolling where it is due. ret_done counts bytes that are in the files,
 * whatever the return is. ret: 0, -errno. */
int mill_store_append(struct mill_store *store, struct store_partition *partition,
                      const uint8_t *bytes, uint32_t size_bytes,
                      uint32_t *ret_done) MILL_WARN_UNUSED;
/* Last time entry of the active segment, as when it is rolled or the run ends; not synced. */
int mill_store_segment_end(struct mill_store *store,
                           struct store_partition *partition) MILL_WARN_UNUSED;
int mill_store_sync(struct mill_store *store, struct store_partition *partition) MILL_WARN_UNUSED;
/* A recovery point or a log start moved: the next checkpoint is due an interval from now. */
void mill_store_points_moved(struct mill_store *store);
/* Ends the active segment, durably, and begins one at base_offset. */
int mill_store_roll(struct mill_store *store, struct store_partition *partition,
                    int64_t base_offset) MILL_WARN_UNUSED;
struct store_segment mill_store_segment_new(int64_t base_offset); /* empty, nothing open */
struct store_segment *mill_store_segment_add(struct mill_store *store,
                                             struct store_partition *partition,
                                             int64_t base_offset);
/* Adds a batch to a segment's numbers and index entries, as append and rebuild do. */
struct store_entries {
    uint8_t index[STORE_BATCH_ENTRIES * STORE_INDEX_ENTRY_BYTES];
    uint8_t time[STORE_BATCH_ENTRIES * STORE_TIME_ENTRY_BYTES];
    uint8_t txn[STORE_BATCH_ENTRIES * STORE_TXN_ENTRY_BYTES];
    uint32_t index_count;
    uint32_t time_count;
    uint32_t txn_count;
};
void mill_store_account(const struct store_partition *partition, struct store_segment *segment,
                        const struct mill_batch *batch, struct store_entries *entries);
/* Position of a batch at or before the one that contains offset. */
int mill_store_lookup(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t offset,
                      uint64_t *ret_pos) MILL_WARN_UNUSED;
/* Greatest time of the segment's first batch, read where a start left it to who asks. ret: -1
 * unknown. */
int64_t mill_store_first_timestamp(struct mill_store *store, struct store_partition *partition,
                                   struct store_segment *segment);
struct store_segment *mill_store_segment_of(struct store_partition *partition, int64_t offset);

/* --- entries.c ----------------------------------------------------------------------------------
 */

/* Adds the time entry that is due when a segment ends, or with an index entry. */
void mill_store_time_entry(struct store_segment *segment, struct store_entries *entries);
int mill_store_entries_write(struct mill_store *store, struct store_partition *partition,
                             struct store_segment *segment,
                             const struct store_entries *entries) MILL_WARN_UNUSED;
/* Whether entries, none of them of .txnindex, can wait beside those that do. */
bool mill_store_waiting_room(struct store_partition *partition,
                             const struct store_entries *entries);
void mill_store_waiting_add(struct store_partition *partition, const struct store_entries *entries);
/* Writes those that wait. ret: 0; -errno, they go on waiting. */
int mill_store_waiting_write(struct mill_store *store,
                             struct store_partition *partition) MILL_WARN_UNUSED;
/* Before a segment is searched: writes those of it that wait. Where that cannot be the search looks
 * at more batches; a failure that does not pass fences the directory. */
void mill_store_waiting_show(struct mill_store *store, struct store_partition *partition,
                             const struct store_segment *segment);
void mill_store_waiting_drop(struct store_partition *partition);

/* --- kept.c -------------------------------------------------------------------------------------
 */

/* No space: what a take-up keeps in its extents, or a store tries again. */
bool mill_store_full(int r);
/* Take-up: keeps one more batch, the next one of its partition. ret: 0, -ENOMEM. */
int mill_store_keep(struct mill_store_kept *kept, const struct mill_uuid *topic_id,
                    int32_t partition, const struct mill_ref *batch) MILL_WARN_UNUSED;
/* Finds what was kept of a partition that was just loaded, and sets its end. ret: 0, -errno. */
int mill_store_kept_begin(struct mill_store *store,
                          struct store_partition *partition) MILL_WARN_UNUSED;
/* Writes it, as far as there is space. ret: 0 all of it, -errno. */
int mill_store_kept_write(struct mill_store *store,
                          struct store_partition *partition) MILL_WARN_UNUSED;
/* The partition is deleted. */
void mill_store_kept_drop(struct mill_store *store, struct store_partition *partition);
/* A cold read of what was kept. ret: as a read of the files. */
int mill_store_kept_read(struct mill_store *store, const struct store_partition *partition,
                         const struct mill_link_read *read, uint32_t *ret_size) MILL_WARN_UNUSED;

/* --- partition_dir.c ----------------------------------------------------------------------------
 */

/* Takes what the partition's names need, few bytes as they are; free them with the partition.
 * ret: 0, -ENOMEM. */
int mill_store_names_take(const struct mill_log_dirs *dirs, struct store_partition *partition,
                          const char *topic) MILL_WARN_UNUSED;
void mill_store_names_free(struct store_partition *partition);
/* Finds the partition's directory. ret: 0; 1 there is none: where it is to be made was chosen;
 * -EBUSY the name is another topic's still; -EUCLEAN it was there once and is not, told; -errno. */
int mill_store_dir_open(struct mill_store *store, struct store_partition *partition,
                        bool push_aside) MILL_WARN_UNUSED;
/* Makes it, durably, with what tells whose it is. Any thread. ret: 0, -errno. */
int mill_store_dir_make(const struct mill_store *store,
                        const struct store_partition *partition) MILL_WARN_UNUSED;
int mill_store_dir_remove(struct mill_store *store,
                          struct store_partition *partition) MILL_WARN_UNUSED;
/* topic_id of a partition directory. ret: 0, -ENOENT, -EBADMSG, -errno. */
int mill_store_dir_id(const struct mill_file_calls *files, const char *path,
                      struct mill_uuid *ret_id) MILL_WARN_UNUSED;
/* durable: else not before the directory is synced as a whole (sync_all). */
int mill_store_epochs_write(struct mill_store *store, const struct store_partition *partition,
                            bool durable) MILL_WARN_UNUSED;
/* Takes the checkpoint of leader epochs. ret: 1, 0 there is none that can be believed, -errno. */
int mill_store_epochs_read(struct mill_store *store,
                           struct store_partition *partition) MILL_WARN_UNUSED;

/* --- tidy.c -------------------------------------------------------------------------------------
 */

/* Removes index files without a segment, which a killed deletion left. ret: 0, -errno. */
int mill_store_orphans_remove(struct mill_store *store,
                              const struct store_partition *partition) MILL_WARN_UNUSED;
/* A gap between two batches was found: whether nothing makes it legal. It is where the topic is
 * compacted, or was once. */
bool mill_store_gap_illegal(struct mill_store *store, struct store_partition *partition);
/* Tells of one. ret: -EUCLEAN. */
int mill_store_gap_damage(struct mill_store *store, const struct store_partition *partition,
                          const struct store_segment *segment, int64_t expected_offset,
                          int64_t found_offset) MILL_WARN_UNUSED;

/* --- producers.c --------------------------------------------------------------------------------
 */

/* Notes a batch or, of a control batch, its marker (NULL: another kind, nothing is noted). A
 * transactional batch begins a transaction where none is open. ret: 0, -ENOMEM. */
int mill_store_producer_note(struct store_producers *producers, const struct mill_batch *batch,
                             const struct mill_marker *marker) MILL_WARN_UNUSED;
/* The same for a batch that lies whole at bytes. */
int mill_store_producer_note_at(struct store_producers *producers, const struct mill_batch *batch,
                                const uint8_t *bytes) MILL_WARN_UNUSED;
/* True when the control batch at bytes ends an open transaction as aborted; nothing is noted. */
bool mill_store_txn_aborts(const struct store_producers *producers, const struct mill_batch *batch,
                           const uint8_t *bytes, struct store_aborted *ret_aborted);
/* What a snapshot knows of a producer besides its batches. ret: 0, -ENOMEM. */
int mill_store_producer_restore(struct store_producers *producers,
                                const struct store_producer *from) MILL_WARN_UNUSED;
/* After those: transactions come into their order. */
void mill_store_txns_sort(struct store_producers *producers);
/* Orders entries by their last batch, oldest first, and forgets those whose last batch is older
 * than oldest_ms (a timestamp of -1 never is), then the oldest beyond max. One with an open
 * transaction stays. */
void mill_store_producers_trim(struct store_producers *producers, int64_t oldest_ms, uint32_t max);
/* ret: the batch is what tells the state of its producer: its newest data, or, when none was
 * written with its epoch, a marker of that. */
bool mill_store_producer_needs(const struct store_producers *producers,
                               const struct mill_batch *batch);
void mill_store_producers_free(struct store_producers *producers);

/* --- txn_index.c --------------------------------------------------------------------------------
 */

/* Adds an entry to those that will be written. */
void mill_store_txn_entry(struct store_entries *entries, const struct store_aborted *aborted);
/* Size of a segment's .txnindex. ret: bytes, 0 there is none, -ENODATA it is no such file. */
int64_t mill_store_txn_size(struct mill_store *store, const struct store_partition *partition,
                            int64_t base_offset) MILL_WARN_UNUSED;
/* Before a segment is walked: keeps entries of markers below from_offset, which will not be made
 * anew, and sets txn_bytes. ret: 0, -errno. */
int mill_store_txn_begin(struct mill_store *store, struct store_partition *partition,
                         struct store_segment *segment, int64_t from_offset) MILL_WARN_UNUSED;
/* After it: the file ends behind txn_bytes, durably; size 0: it goes. ret: 0, -errno. */
int mill_store_txn_end(struct mill_store *store, struct store_partition *partition,
                       struct store_segment *segment) MILL_WARN_UNUSED;
/* After the last marker that .txnindex files name. ret: the offset, 0 none, -errno. */
int64_t mill_store_txn_last(struct mill_store *store,
                            struct store_partition *partition) MILL_WARN_UNUSED;
/* Answers a look-up (store_link.h); all of the answer but its head is set. */
void mill_store_txn_find(struct mill_store *store, struct store_partition *partition,
                         const struct mill_link_aborted *ask,
                         struct mill_link_aborted_done *ret_answer);

/* --- jobs.c -------------------------------------------------------------------------------------
 */

/* Where a sequential reader's next batch lies. */
struct store_cursor {
    uint32_t slot;
    uint32_t generation;
    int64_t offset;
    int64_t segment;
    uint64_t pos_bytes;
};

/* Work of helpers: at most so many at once, so that descriptors are left for the store. */
uint32_t mill_store_jobs_max(const struct mill_store *store);
/* Syncs a file, and where times are kept tells how long it took; any thread. */
int mill_store_sync_timed(const struct mill_store *store, int file, uint64_t *ret_took_ns);
/* Counts a sync of a .log file: the store's thread. */
void mill_store_sync_count(struct mill_store *store, uint64_t took_ns);
/* Syncs what the partition wrote. The store goes on; mill_store_synced is called when it is done.
 * ret: 0, -errno: nothing was begun. */
int mill_store_sync_begin(struct mill_store *store,
                          struct store_partition *partition) MILL_WARN_UNUSED;
/* Has its directory made; mill_store_made is called when it is. ret: 0, -errno. */
int mill_store_make_begin(struct mill_store *store,
                          struct store_partition *partition) MILL_WARN_UNUSED;
/* ret: 0: READ_DONE follows; -errno: nothing was begun. */
int mill_store_read_begin(struct mill_store *store, struct store_partition *partition,
                          const struct mill_link_read *read) MILL_WARN_UNUSED;
/* Finishes jobs that have ended, as the ring to the core has room. ret: work done. */
uint32_t mill_store_jobs_run(struct mill_store *store);
/* Waits for all of them; nothing is told to the core. */
void mill_store_jobs_end(struct mill_store *store);
int mill_store_jobs_init(struct mill_store *store) MILL_WARN_UNUSED;
void mill_store_jobs_fini(struct mill_store *store);
/* Ranges of last segments, gathered to be written back and taken out of the page cache together.
 * counted_bytes leave the store's count then. */
struct store_job *mill_store_drop_make(struct mill_store *store) MILL_WARN_UNUSED;
/* ret: false: full, or the file cannot be opened now: nothing changed. */
bool mill_store_drop_add(struct mill_store *store, struct store_job *job,
                         struct store_partition *partition, uint64_t pos_bytes, uint64_t size_bytes,
                         uint64_t counted_bytes);
/* Gives it to a helper. ret: false: nothing was added, it is gone. */
bool mill_store_drop_begin(struct mill_store *store, struct store_job *job);

/* --- page_cache.c -------------------------------------------------------------------------------
 */

void mill_store_link_init(struct store_link *head);
bool mill_store_link_empty(const struct store_link *head);
void mill_store_link_remove(struct store_link *node); /* no effect on one that is in none */
void mill_store_link_add(struct store_link *head, struct store_link *node); /* as the last */

/* size_bytes were appended to the partition's last segment. */
void mill_store_cached(struct mill_store *store, struct store_partition *partition,
                       uint32_t size_bytes);
/* The last segment is complete and synced: its pages go. */
void mill_store_cached_end(struct mill_store *store, struct store_partition *partition);
/* Gives the oldest to helpers while there is too much. */
void mill_store_cached_run(struct mill_store *store);
/* No more may be written now. */
bool mill_store_cached_full(const struct mill_store *store);
/* The partition goes. */
void mill_store_cached_drop(struct mill_store *store, struct store_partition *partition);
/* Bytes that were read and will not be wanted again leave the page cache, unless they are dirty. */
void mill_store_forget(const struct mill_store *store, int file, uint64_t pos_bytes,
                       uint64_t size_bytes);

/* --- snapshot.c ---------------------------------------------------------------------------------
 */

/* Producer state as of written_offset; nothing when that one is there. */
int mill_store_snapshot_write(struct mill_store *store,
                              struct store_partition *partition) MILL_WARN_UNUSED;
/* Notes the producers of the snapshot named offset. ret: 0, -EBADMSG no such or a torn one. */
int mill_store_snapshot_read(struct mill_store *store, struct store_partition *partition,
                             int64_t offset) MILL_WARN_UNUSED;
int mill_store_snapshot_remove(struct mill_store *store, const struct store_partition *partition,
                               int64_t offset) MILL_WARN_UNUSED;

/* --- log_dirs.c ---------------------------------------------------------------------------------
 */

void mill_log_dirs_say(const struct mill_log_dirs *dirs, int level, const char *id,
                       const char *format, ...) MILL_PRINTF(4, 5);
/* Nothing of this directory is acknowledged any more, by any store. Told once. */
void mill_log_dirs_fence(struct mill_log_dirs *dirs, uint32_t dir, int error);
bool mill_store_name_ends(const char *name, const char *end);
/* TOPIC-PARTITION, as directories of partitions are called. */
bool mill_log_dir_names_partition(const char *name);

/* --- offsets.c ----------------------------------------------------------------------------------
 */

/* Entry of a partition's directory; NULL when there is none (make: out of memory). */
struct store_offset *mill_store_offset(struct store_offsets *offsets, const char *name, bool make);
void mill_store_offsets_free(struct store_offsets *offsets);
/* ret: 0; 1 a file is damaged, what was readable of it was taken; -errno. */
int mill_store_offsets_read(const struct mill_file_calls *files,
                            struct store_dir *dir) MILL_WARN_UNUSED;
/* Writes the files when the table changed since. ret: 0, -errno. */
int mill_store_offsets_write(struct mill_log_dirs *dirs, struct store_dir *dir) MILL_WARN_UNUSED;
/* The partition is gone, or about to begin anew under the same name; durable: then no file may name
 * it any more, for its offsets would be taken for the new one's. ret: 0, -errno of the write. */
int mill_store_offsets_forget(struct mill_log_dirs *dirs, struct store_dir *dir, const char *name,
                              bool durable) MILL_WARN_UNUSED;

/* --- prepare.c ----------------------------------------------------------------------------------
 */

struct store_meta {
    bool there;
    int64_t version;
    int64_t node_id; /* -1 not named */
    char cluster_id[64];
    char directory_id[64];
    struct mill_uuid incarnation; /* zero: none */
};
int mill_store_meta_read(const struct mill_file_calls *files, const char *dir,
                         struct store_meta *ret_meta) MILL_WARN_UNUSED;
int mill_store_meta_write(const struct mill_file_calls *files, const char *dir,
                          const struct store_meta *meta) MILL_WARN_UNUSED;
/* Makes a directory and its meta.properties where missing. ret: as mill_log_dirs_open. */
int mill_store_prepare_dir(const struct mill_file_calls *files, const char *dir, int32_t node_id,
                           const char *cluster_id, struct mill_report *report) MILL_WARN_UNUSED;

/* --- store.c ------------------------------------------------------------------------------------
 */

/* A sync that mill_store_sync_begin began has ended with r. */
void mill_store_synced(struct mill_store *store, struct store_partition *partition, int r);
/* Goes on with a write that waited for the page cache. */
void mill_store_write_go_on(struct mill_store *store, struct store_partition *partition);
/* Deletes the partition and its files; once helpers that use them are done, when they do. */
void mill_store_delete(struct mill_store *store, struct store_partition *partition);

/* A message to the core; room was looked at before (mill_store_out_room). */
void *mill_store_tell(struct mill_store *store, const struct store_partition *partition,
                      uint32_t kind, uint32_t size_bytes);
/* One request leads to few answers: they fit. */
bool mill_store_out_room(struct mill_store *store);
/* A loader has the partition. */
bool mill_store_is_loading(const struct store_partition *partition);
/* Its log directory is given up. */
bool mill_store_is_fenced(const struct mill_store *store, const struct store_partition *partition);
/* A failure that passes by itself: no space, or no descriptor or memory at this moment. */
bool mill_store_passing(int r);

/* --- opening.c ----------------------------------------------------------------------------------
 */

/* The partition that a message names, NULL it is gone. */
struct store_partition *mill_store_partition_at(struct mill_store *store,
                                                const struct mill_link_head *head);
void mill_store_partition_free(struct mill_store *store, struct store_partition *partition);
/* Begins to open a partition; OPENED follows. */
void mill_store_open(struct mill_store *store, const struct mill_link_open *open,
                     struct mill_now now);
/* Goes on with all that are not open yet. ret: work done. */
uint32_t mill_store_openings_run(struct mill_store *store, struct mill_now now);
/* The directory that mill_store_make_begin asked for is there, or r tells why not. */
void mill_store_made(struct mill_store *store, struct store_partition *partition, int r);

/* --- checkpoint.c -------------------------------------------------------------------------------
 */

/* Notes for the checkpoints how far the partition is. ret: false: not everything of it is as they
 * would say. */
bool mill_store_offsets_note(struct mill_store *store, struct store_partition *partition);
/* Loaded, and nothing of it is given up. */
bool mill_store_is_whole(const struct mill_store *store, const struct store_partition *partition);
/* Writes the checkpoints when they are due. */
void mill_store_checkpoint_run(struct mill_store *store, struct mill_now now);

/* --- retention.c --------------------------------------------------------------------------------
 */

/* Records the log's start and takes away the segments below it. ret: 0, -errno. */
int mill_store_trim(struct mill_store *store, struct store_partition *partition,
                    int64_t start_offset) MILL_WARN_UNUSED;
/* Renames the files of a segment, to be removed later; snapshot: that of its base too, unless it is
 * the newest. ret: 0, -errno. */
int mill_store_segment_delete(struct mill_store *store, struct store_partition *partition,
                              struct store_segment *segment, bool snapshot) MILL_WARN_UNUSED;
/* When it is due: tells the log what retention no longer keeps. */
void mill_store_retention_run(struct mill_store *store);
/* Removes renamed files whose delay is over. */
void mill_store_deleted_run(struct mill_store *store);

/* --- clean.c, clean_swap.c ----------------------------------------------------------------------
 */

/* One step of compaction, when it is due: a bounded part of the log read, and of it written. ret:
 * work done. */
uint32_t mill_store_clean_run(struct mill_store *store);
/* Its limits were altered: looks now, whatever it waited for. */
void mill_store_clean_at_once(struct mill_store *store);
/* When the next step is due, MILL_NEVER: not at all. */
uint64_t mill_store_clean_deadline(const struct mill_store *store);
/* Ends what is under way for this partition; what was begun is removed. NULL: of any. */
void mill_store_clean_stop(struct mill_store *store, const struct store_partition *partition);
int mill_store_clean_init(struct mill_store *store) MILL_WARN_UNUSED;
void mill_store_clean_fini(struct mill_store *store);
/* Before a partition is loaded: finishes or undoes a swap that was interrupted. ret: 0, -errno. */
int mill_clean_recover(struct mill_store *store,
                       const struct store_partition *partition) MILL_WARN_UNUSED;

/* --- times.c ------------------------------------------------------------------------------------
 */

/* First record at or behind from_offset with a timestamp at or above time_ms, or the greatest of
 * the files. ret: 0, -errno. */
int mill_store_find_time(struct mill_store *store, struct store_partition *partition,
                         int64_t time_ms, int64_t from_offset, int64_t *ret_offset,
                         int64_t *ret_timestamp) MILL_WARN_UNUSED;

/* --- decompress.c -------------------------------------------------------------------------------
 */

/* Decompresses a batch's records, at most capacity bytes of them. ret: bytes made (capacity: there
 * may be more), -EMSGSIZE more than capacity, -EBADMSG a broken stream, -ENOMEM, -EOPNOTSUPP. */
int64_t mill_decompress(enum mill_codec codec, const uint8_t *from, size_t size_bytes, uint8_t *to,
                        size_t capacity) MILL_WARN_UNUSED;
/* The same into new memory of what is needed, at most limit_bytes of records. ret: bytes made, in
 * *ret_bytes, which the caller frees; -EMSGSIZE more than the limit, else as above. */
int64_t mill_unpack(enum mill_codec codec, const uint8_t *from, size_t size_bytes,
                    size_t limit_bytes, uint8_t **ret_bytes) MILL_WARN_UNUSED;

/* --- compress.c ---------------------------------------------------------------------------------
 */

/* Most bytes that size_bytes can become. */
size_t mill_compress_bound(enum mill_codec codec, size_t size_bytes);
/* capacity is at least the bound. ret: bytes made, -errno. */
int64_t mill_compress(enum mill_codec codec, const uint8_t *from, size_t size_bytes, uint8_t *to,
                      size_t capacity) MILL_WARN_UNUSED;

/* --- inspect.c ----------------------------------------------------------------------------------
 */

/* Looks inside a batch (store_link.h); all of the answer but its head is set. */
void mill_store_inspect(const struct mill_store *store, const struct mill_link_inspect *ask,
                        struct mill_link_inspected *ret_answer);

#endif
