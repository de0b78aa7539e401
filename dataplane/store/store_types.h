/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a store, shared by the files of this folder only. Everything belongs to one worker
 * thread, which may allocate and block in file calls.
 *
 *   log dir / topic-partition / 00000000000000000000.log .index .timeindex, next segment, ...
 *
 * A segment's numbers here are what the files hold: they move only after a write succeeded, so a
 * write that failed for lack of space is simply made again, the same bytes at the same place.
 */
#ifndef MILL_DATAPLANE_STORE_TYPES_H
#define MILL_DATAPLANE_STORE_TYPES_H

#include <limits.h>

#include "dataplane/log/store_link.h"
#include "dataplane/store/store.h"

enum {
    STORE_WINDOW_BYTES = 256 << 10, /* read ahead of walks */
    STORE_INDEX_ENTRY_BYTES = 8,
    STORE_TIME_ENTRY_BYTES = 12,
    STORE_BATCH_ENTRIES = 64, /* index entries written at once */
    STORE_DIRS_MAX = 64,
    STORE_STEP_MESSAGES = 16,
    STORE_META_BYTES = 1536,
    STORE_DIR_PATH_BYTES = 900,
    STORE_PARTITION_PATH_BYTES = STORE_DIR_PATH_BYTES + 1 + MILL_LOG_NAME_MAX + 12,
    STORE_PATH_BYTES = STORE_PARTITION_PATH_BYTES + 80,
    STORE_DECOMPRESS_MAX = 64 << 20, /* output of one batch */
};

#define STORE_RETRY_NS (500 * MILL_NS_PER_MS) /* between tries while the disk is full */

enum store_file_kind {
    STORE_FILE_LOG,
    STORE_FILE_INDEX,
    STORE_FILE_TIMEINDEX,
    STORE_FILE_KINDS,
};

struct store_segment {
    int64_t base_offset;
    int64_t next_offset; /* after the last batch */
    uint64_t log_bytes;
    uint64_t index_bytes;
    uint64_t time_bytes;
    int64_t max_timestamp;           /* -1 none */
    int64_t max_offset;              /* last offset of the batch that has it */
    int64_t time_last;               /* timestamp of the last .timeindex entry */
    int64_t first_timestamp;         /* of the first batch, -1 none */
    uint64_t since_index;            /* bytes since the last .index entry */
    int32_t files[STORE_FILE_KINDS]; /* slots of open files, -1 closed */
};

/* An open descriptor; the least recently used is closed when one more is needed. */
struct store_file {
    int file; /* -1 free */
    uint64_t used;
    struct store_partition *partition;
    int64_t segment; /* base offset */
    enum store_file_kind kind;
};

struct store_producer {
    int64_t producer_id;
    int64_t seen; /* order of its last batch */
    int16_t epoch;
    uint8_t count;
    struct mill_link_producer batches[MILL_LOG_PRODUCER_BATCHES]; /* oldest first */
};

struct store_producers {
    struct store_producer *entries;
    uint32_t length;
    uint32_t capacity; /* power of two: open addressing over buckets of 1-based numbers */
    uint32_t *buckets;
    int64_t clock;
};

struct store_partition {
    uint32_t slot;
    uint32_t generation;
    struct mill_uuid topic_id;
    int32_t index;
    char topic[MILL_LOG_NAME_MAX + 1];
    char path[STORE_PARTITION_PATH_BYTES];
    uint32_t dir;
    struct mill_log_settings settings;
    struct mill_partition_mark *mark; /* NULL when the table is full or none is kept */
    struct store_segment *segments;
    uint32_t segments_count;
    uint32_t segments_capacity;
    int64_t start_offset;
    int64_t written_offset;
    int64_t synced_offset;
    struct mill_link_epoch epochs[MILL_LINK_EPOCHS_MAX];
    uint32_t epochs_count;
    struct store_producers producers; /* only between load and OPENED */
    uint32_t producers_told;
    uint32_t batches_told;
    struct mill_link_write write; /* the one under way */
    uint32_t part;                /* of it, being written */
    uint32_t part_bytes;          /* of that part, in the file */
    bool writing;
    bool full_told;
    bool failed_told;
    bool opening; /* waits for its name, or tells its producers */
    bool loaded;
    int32_t status;
    bool dir_unsynced;
    uint64_t opening_since_ns; /* the name is another's since, 0 not */
};

struct store_dir {
    char path[STORE_DIR_PATH_BYTES];
    bool fenced;
};

struct mill_store {
    struct mill_store_config config;
    struct store_dir dirs[STORE_DIRS_MAX];
    struct store_partition **partitions; /* by slot */
    uint32_t partitions_length;
    struct store_file *files;
    uint64_t uses;
    uint8_t *window;
    uint32_t window_bytes; /* filled */
    uint64_t window_pos;
    int window_file;  /* -1 none */
    uint32_t stalled; /* partitions whose write waits for space */
    uint32_t openings;
    uint64_t retry_at_ns;
    bool fence_told; /* every partition of a fenced directory knows */
    bool told;       /* answers claimed, not yet published */
};

/* --- files.c ------------------------------------------------------------------------------------
 */

int mill_store_files_init(struct mill_store *store) MILL_WARN_UNUSED;
void mill_store_files_fini(struct mill_store *store);
/* Descriptor of one file of a segment, opened when it is not. ret: it, or -errno. */
int mill_store_file(struct mill_store *store, struct store_partition *partition,
                    struct store_segment *segment, enum store_file_kind kind) MILL_WARN_UNUSED;
void mill_store_file_close(struct mill_store *store, struct store_segment *segment);
/* All bytes, looping over short counts. ret: 0, -errno (-ENOSPC, -EIO for an early end). */
int mill_store_write_all(const struct mill_file_calls *files, int file, const void *bytes,
                         size_t size_bytes, uint64_t pos_bytes) MILL_WARN_UNUSED;
int mill_store_read_all(const struct mill_file_calls *files, int file, void *to, size_t size_bytes,
                        uint64_t pos_bytes) MILL_WARN_UNUSED;
/* Bytes of a file through the store's window; size_bytes at most STORE_WINDOW_BYTES.
 * ret: pointer valid until the next call, NULL with ret_error. */
const uint8_t *mill_store_peek(struct mill_store *store, int file, uint64_t pos_bytes,
                               uint32_t size_bytes, uint64_t end_bytes, int *ret_error);
/* A small text file: whole, terminated. ret: its size, -errno, -EFBIG. */
int mill_store_read_text(const struct mill_file_calls *files, const char *path, char *ret_text,
                         size_t capacity) MILL_WARN_UNUSED;
/* Replaces a small file: written aside, synced, renamed, directory synced. */
int mill_store_write_text(const struct mill_file_calls *files, const char *dir, const char *name,
                          const char *text) MILL_WARN_UNUSED;
void mill_store_segment_path(const struct store_partition *partition, int64_t base_offset,
                             enum store_file_kind kind, char *ret_path, size_t capacity);

/* --- segment.c ----------------------------------------------------------------------------------
 */

struct store_walk {
    uint64_t from_bytes;
    uint64_t end_bytes;
    int64_t next_offset; /* batches below are out of order */
    bool crc;
    int (*each)(void *context, const struct mill_batch *batch, uint64_t pos_bytes);
    void *context;
};
/* Walks batches until the end or the first bad one. ret: 0 (ret_good: position after the last good
 * batch), -errno of a read, or what each returned. */
int mill_store_walk(struct mill_store *store, int file, const struct store_walk *walk,
                    uint64_t *ret_good) MILL_WARN_UNUSED;
/* Appends whole batches, rolling where it is due. ret_done counts bytes that are in the files,
 * whatever the return is. ret: 0, -errno. */
int mill_store_append(struct mill_store *store, struct store_partition *partition,
                      const uint8_t *bytes, uint32_t size_bytes,
                      uint32_t *ret_done) MILL_WARN_UNUSED;
/* Clean end: last time entry, everything of the active segment synced. */
int mill_store_segment_close(struct mill_store *store,
                             struct store_partition *partition) MILL_WARN_UNUSED;
int mill_store_sync(struct mill_store *store, struct store_partition *partition) MILL_WARN_UNUSED;
struct store_segment *mill_store_segment_add(struct mill_store *store,
                                             struct store_partition *partition,
                                             int64_t base_offset);
/* Adds a batch to a segment's numbers and index entries, as append and rebuild do. */
struct store_entries {
    uint8_t index[STORE_BATCH_ENTRIES * STORE_INDEX_ENTRY_BYTES];
    uint8_t time[STORE_BATCH_ENTRIES * STORE_TIME_ENTRY_BYTES];
    uint32_t index_count;
    uint32_t time_count;
};
void mill_store_account(const struct store_partition *partition, struct store_segment *segment,
                        const struct mill_batch *batch, struct store_entries *entries);
/* Adds the time entry that is due when a segment ends, or with an index entry. */
void mill_store_time_entry(struct store_segment *segment, struct store_entries *entries);
int mill_store_entries_write(struct mill_store *store, struct store_partition *partition,
                             struct store_segment *segment,
                             const struct store_entries *entries) MILL_WARN_UNUSED;
/* Position of a batch at or before the one that contains offset. */
int mill_store_lookup(struct mill_store *store, struct store_partition *partition,
                      struct store_segment *segment, int64_t offset,
                      uint64_t *ret_pos) MILL_WARN_UNUSED;
struct store_segment *mill_store_segment_of(struct store_partition *partition, int64_t offset);

/* --- load.c -------------------------------------------------------------------------------------
 */

/* Opens the segments of partition->path: indexes mended, tail cut, producers and epochs gathered.
 * ret: 0, -errno. */
int mill_store_load(struct mill_store *store, struct store_partition *partition) MILL_WARN_UNUSED;
void mill_store_unload(struct mill_store *store, struct store_partition *partition);

/* --- partition_dir.c ----------------------------------------------------------------------------
 */

/* Finds or makes the partition's directory. ret: 0, -EBUSY the name is another topic's still,
 * -errno. */
int mill_store_dir_open(struct mill_store *store, struct store_partition *partition,
                        bool push_aside) MILL_WARN_UNUSED;
int mill_store_dir_remove(struct mill_store *store,
                          struct store_partition *partition) MILL_WARN_UNUSED;
/* topic_id of a partition directory. ret: 0, -ENOENT, -EBADMSG, -errno. */
int mill_store_dir_id(const struct mill_file_calls *files, const char *path,
                      struct mill_uuid *ret_id) MILL_WARN_UNUSED;
int mill_store_epochs_write(struct mill_store *store,
                            struct store_partition *partition) MILL_WARN_UNUSED;
int mill_store_epochs_read(struct mill_store *store,
                           struct store_partition *partition) MILL_WARN_UNUSED;

/* --- producers_load.c ---------------------------------------------------------------------------
 */

int mill_store_producer_note(struct store_producers *producers,
                             const struct mill_batch *batch) MILL_WARN_UNUSED;
void mill_store_producers_free(struct store_producers *producers);

/* --- prepare.c ----------------------------------------------------------------------------------
 */

struct store_meta {
    bool there;
    int64_t node_id; /* -1 not named */
    char cluster_id[64];
    char directory_id[64];
    struct mill_uuid incarnation; /* zero: none */
};
int mill_store_meta_read(const struct mill_file_calls *files, const char *dir,
                         struct store_meta *ret_meta) MILL_WARN_UNUSED;
int mill_store_meta_write(const struct mill_file_calls *files, const char *dir,
                          const struct store_meta *meta) MILL_WARN_UNUSED;

/* --- times.c ------------------------------------------------------------------------------------
 */

/* First record with a timestamp at or above time_ms (or the greatest). ret: 0, -errno. */
int mill_store_find_time(struct mill_store *store, struct store_partition *partition,
                         int64_t time_ms, int64_t *ret_offset,
                         int64_t *ret_timestamp) MILL_WARN_UNUSED;

/* --- decompress.c -------------------------------------------------------------------------------
 */

/* Decompresses a batch's records, at most capacity bytes of them. ret: bytes made (capacity: there
 * may be more), -EBADMSG a broken stream, -EOPNOTSUPP. */
int64_t mill_decompress(enum mill_codec codec, const uint8_t *from, size_t size_bytes, uint8_t *to,
                        size_t capacity) MILL_WARN_UNUSED;

#endif
