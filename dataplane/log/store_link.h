/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a core's log and its store, over two rings of one process. The log asks, the
 * store answers; a partition is named by its slot in the log and the slot's generation, so that an
 * answer for a partition that is gone is dropped.
 *
 *   log   OPEN  WRITE  EPOCHS  SETTINGS  READ  TIME  INSPECT  TRIM  ABORTED  DELETE  ->  store
 *   store PRODUCER* TXN* OPENED  WRITTEN  READ_DONE  TIME_DONE  INSPECTED  OLD  TRIMMED  GONE
 *         ABORTED_DONE  FAILED  CLEANED  ->  log
 *
 * At most one WRITE per partition is under way: what is appended meanwhile goes with the next, so
 * that writes and syncs are grouped by themselves. The store reads extents in place: the log frees
 * none that a WRITE, READ, INSPECT or ABORTED names before its answer.
 */
#ifndef MILL_DATAPLANE_STORE_LINK_H
#define MILL_DATAPLANE_STORE_LINK_H

#include "dataplane/log/log.h"

enum {
    MILL_LINK_PARTS_MAX = 16,  /* extents in one WRITE */
    MILL_LINK_EPOCHS_MAX = 32, /* leader epochs kept per partition, newest */
};

enum mill_link_kind {
    MILL_LINK_OPEN = 1,
    MILL_LINK_WRITE,
    MILL_LINK_EPOCHS,
    MILL_LINK_SETTINGS,
    MILL_LINK_READ,
    MILL_LINK_TIME,
    MILL_LINK_DELETE,
    MILL_LINK_INSPECT,
    MILL_LINK_TRIM,
    MILL_LINK_ABORTED,
    MILL_LINK_PRODUCER = 32,
    MILL_LINK_OPENED,
    MILL_LINK_WRITTEN,
    MILL_LINK_READ_DONE,
    MILL_LINK_TIME_DONE,
    MILL_LINK_GONE,
    MILL_LINK_FAILED,
    MILL_LINK_INSPECTED,
    MILL_LINK_OLD,
    MILL_LINK_TRIMMED,
    MILL_LINK_CLEANED,
    MILL_LINK_TXN,
    MILL_LINK_ABORTED_DONE,
};

struct mill_link_head {
    uint32_t slot;
    uint32_t generation;
};

struct mill_link_open {
    struct mill_link_head head;
    struct mill_uuid topic_id;
    int32_t partition;
    char topic[MILL_LOG_NAME_MAX + 1];
    struct mill_log_settings settings;
};

struct mill_link_settings {
    struct mill_link_head head;
    struct mill_log_settings settings;
};

/* Bytes of whole batches; parts are in offset order and follow each other without gap. */
struct mill_link_write {
    struct mill_link_head head;
    uint32_t parts_count; /* 0: only sync */
    bool sync;            /* fdatasync after the write */
    struct mill_ref parts[MILL_LINK_PARTS_MAX];
};

/* status: 0; -ENOSPC: kept by the store and tried again, a further WRITTEN follows. Any other
 * failure is told by FAILED. */
struct mill_link_written {
    struct mill_link_head head;
    int32_t status;
    int64_t written_offset; /* everything below is in the files */
    int64_t synced_offset;  /* everything below is synced */
};

struct mill_link_epoch {
    int32_t epoch;
    int64_t start_offset;
};

struct mill_link_epochs {
    struct mill_link_head head;
    uint32_t count;
    struct mill_link_epoch epochs[MILL_LINK_EPOCHS_MAX];
};

/* Fills extent from the batch that contains offset on, below limit_offset. */
struct mill_link_read {
    struct mill_link_head head;
    uint32_t request; /* comes back with the answer */
    uint32_t extent;
    uint32_t size_bytes; /* room in the extent */
    int64_t offset;
    int64_t limit_offset;
};

struct mill_link_read_done {
    struct mill_link_head head;
    uint32_t request;
    uint32_t extent;
    int32_t status; /* 0; -EMSGSIZE the first batch needs size_bytes; -ENOENT no batch is there */
    uint32_t size_bytes; /* of whole batches filled */
};

struct mill_link_time {
    struct mill_link_head head;
    uint32_t request;
    int64_t time_ms;     /* or MILL_TIME_MAX */
    int64_t from_offset; /* the log's start */
};

struct mill_link_time_done {
    struct mill_link_head head;
    uint32_t request;
    int32_t status;
    int64_t offset; /* -1 no match */
    int64_t timestamp;
};

/* Looks inside a batch before it is appended: decompresses (bounded), checks each record, and
 * writes the batch in the topic's codec over the given one. Needs no partition of the store's. */
struct mill_link_inspect {
    struct mill_link_head head;
    uint32_t request;
    uint32_t extent;
    uint32_t room_bytes; /* of the extent */
    int64_t wall_ms;     /* clock for the range of create times */
    struct mill_log_settings settings;
};

struct mill_link_inspected {
    struct mill_link_head head;
    uint32_t request;
    int32_t status;      /* 0; -EMSGSIZE needs an extent of size_bytes, -ENOMEM: nothing changed */
    uint32_t size_bytes; /* of the batch now */
    int32_t error;       /* enum mill_kerr: refused, nothing changed */
    int32_t bad_record;
    bool recompressed;
    int64_t max_timestamp;
    const char *message; /* a literal */
};

/* Fills extent with aborted transactions from .txnindex files: those whose marker lies at or above
 * offset and that begin below end_offset; 16 bytes each (producer id, first offset; big endian), in
 * the order of their markers. */
struct mill_link_aborted {
    struct mill_link_head head;
    uint32_t request;
    uint32_t extent;
    uint32_t most; /* entries that fit */
    int64_t offset;
    int64_t end_offset;
};

struct mill_link_aborted_done {
    struct mill_link_head head;
    uint32_t request;
    int32_t status; /* 0, -errno */
    uint32_t count;
    int64_t known_offset; /* markers below are in the files: of those nothing is missing ... */
    int64_t end_offset;   /* ... for data below; the one asked for, or lower: more than fit */
};

/* One batch of a producer, oldest first, newest producers last; at most five per producer. One that
 * is known by a marker only is told once, with first_sequence -1. */
struct mill_link_producer {
    struct mill_link_head head;
    int64_t producer_id;
    int64_t base_offset;
    int64_t last_offset;
    int64_t timestamp;
    int64_t last_timestamp; /* of its last batch or marker, which may be a later one */
    int32_t first_sequence;
    int32_t coordinator_epoch;
    int16_t epoch;
    bool txn_open; /* its TXN follows: until then, too, the producer must not be forgotten */
};

/* A transaction: open, by first offset; or one that was aborted by a marker that is not in the
 * files yet. After the producers. */
struct mill_link_txn {
    struct mill_link_head head;
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* -1 open */
};

struct mill_link_opened {
    struct mill_link_head head;
    int32_t status;
    bool full; /* what the last process could not write waits for space; WRITTEN ends that */
    int64_t start_offset;
    int64_t end_offset;
    int64_t aborted_end; /* after the last marker that .txnindex files name, 0 none */
    uint32_t epochs_count;
    struct mill_link_epoch epochs[MILL_LINK_EPOCHS_MAX];
};

/* TRIM: the log starts here; segments below go. TRIMMED: it is recorded. OLD: retention keeps
 * nothing below; the log answers with TRIM, so that it alone decides where the log starts. */
struct mill_link_start {
    struct mill_link_head head;
    int64_t start_offset;
};

/* What compaction did since the start, of all partitions; the head names none. */
struct mill_link_cleaned {
    struct mill_link_head head;
    struct mill_log_clean_stats stats;
};

struct mill_link_only {
    struct mill_link_head head;
};

static_assert(sizeof(struct mill_link_open) < 1024, "a small part of the ring");
static_assert(sizeof(struct mill_link_opened) < 1024, "a small part of the ring");

#endif
