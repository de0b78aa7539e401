/* SPDX-License-Identifier: Apache-2.0 */
/* Control's records in internal partitions (__consumer_offsets and its like): appends them with
 * acks=all, and reads partitions back at load. Each core is spoken to on a stream of its own
 * (ipc/frames.h) in Kafka's protocol, one request at a time; appends that come meanwhile are
 * gathered, a batch per partition, so that a thousand commits cost a few requests. A batch is in
 * the log whole or not at all, whatever is killed when.
 *
 * The order of a partition's records is the order of the calls. Every append ends with exactly one
 * call of its done, in that order, from inside mill_journal_step, _attach or _close, never from
 * inside _append. Control's thread; bounded memory; a core that does not answer within the timeout
 * costs its stream, and the next one begins anew. */
#ifndef MILL_CONTROL_JOURNAL_JOURNAL_H
#define MILL_CONTROL_JOURNAL_JOURNAL_H

#include "base/clock.h"
#include "base/counter_lists.h"
#include "ipc/frames.h"
#include "protocol/batch.h"

enum {
    MILL_JOURNAL_QUEUE_BYTES_MAX = 64 << 20, /* of records that wait or are on their way */
    MILL_JOURNAL_READS_MAX = 4096,
    MILL_JOURNAL_MARKS_MAX = 32768,      /* of all cores, waiting or on their way */
    MILL_JOURNAL_READ_BYTES = 256 << 10, /* of one read, or one batch when that is larger */
    /* In place of an offset: reads nothing but where the log starts, or ends. */
    MILL_JOURNAL_START = -1,
    MILL_JOURNAL_END = -2,
};

/* The list is MILL_JOURNAL_COUNTERS in base/counter_lists.h. */
struct mill_journal_counters {
#define MILL_JOURNAL_COUNTER(name, help) uint64_t name;
    MILL_JOURNAL_COUNTERS(MILL_JOURNAL_COUNTER)
#undef MILL_JOURNAL_COUNTER
};

struct mill_journal_record {
    const void *key;
    uint32_t key_bytes;
    const void *value;
    int32_t value_bytes; /* -1: null, a tombstone */
};

enum mill_journal_outcome {
    MILL_JOURNAL_DONE,
    MILL_JOURNAL_REFUSED, /* nothing was appended or read */
    MILL_JOURNAL_UNKNOWN, /* it may be in the log: read on from the last known offset to learn */
};

struct mill_journal_result {
    enum mill_journal_outcome outcome;
    int16_t error;       /* enum mill_kerr, of refused ones */
    int64_t next_offset; /* done: behind the appended records */
};
typedef void (*mill_journal_done)(void *context, const struct mill_journal_result *result);

struct mill_journal_read {
    enum mill_journal_outcome outcome; /* never unknown */
    int16_t error;                     /* enum mill_kerr; OFFSET_OUT_OF_RANGE: ask for the start */
    const uint8_t *records;            /* whole batches; valid during the call */
    uint32_t records_bytes;
    int64_t high_watermark; /* -1 when only the start or the end was asked for */
    int64_t log_start;      /* -1 when only the end was */
    int64_t log_end;        /* behind the last batch, synced or not; -1 when it was not asked for,
                               or nothing was ever appended */
};
typedef void (*mill_journal_read_done)(void *context, const struct mill_journal_read *read);

/* The end of a transaction in a partition (KIP-98), or, with grant, its beginning: the core lets
 * the producer write until the marker. */
struct mill_journal_marker {
    int64_t producer_id;
    int16_t producer_epoch;
    bool grant;
    bool commit;
    int8_t version; /* of the transaction; from 2 on its epoch is above the batches' (KIP-890) */
    int32_t coordinator_epoch;
};

/* Whose transaction records belong to. */
struct mill_journal_producer {
    int64_t id;
    int16_t epoch;
};

struct mill_journal;

/* timeout_ns: of one request to a core. random: for the names of streams. ret: NULL no memory. */
struct mill_journal *mill_journal_open(struct mill_ipc_segment *segment, uint64_t segment_bytes,
                                       uint64_t timeout_ns,
                                       void (*random)(void *context, void *ret, size_t size_bytes),
                                       void *random_context);
/* Attaches to a core's rings; bell stays the caller's. ret: 0, -EBADMSG. */
int mill_journal_core(struct mill_journal *journal, uint32_t index,
                      struct mill_bell *bell) MILL_WARN_UNUSED;
/* Ends everything with unknown or refused, and frees. NULL is fine. */
void mill_journal_close(struct mill_journal *journal);

/* Another millraced runs (0: none): what was under way ends unknown, what waited is refused. */
void mill_journal_attach(struct mill_journal *journal, uint64_t dataplane);

/* Appends records to a partition as part of one batch; copies them. cores: how many share the
 * partitions. ret: 0 (done follows); -EMSGSIZE larger than the topic's max.message.bytes; -ENOBUFS
 * too much waits (counted); -ENOTCONN no millraced; -ENOMEM. */
int mill_journal_append(struct mill_journal *journal, const struct mill_map_topic *topic,
                        int32_t partition, const struct mill_journal_record *records,
                        uint32_t records_count, int64_t now_ms, mill_journal_done done,
                        void *context) MILL_WARN_UNUSED;
/* The same, as part of a transaction: a batch of its own, which becomes good or void with the
 * producer's marker. Refused with INVALID_TXN_STATE unless the partition was granted. */
int mill_journal_append_txn(struct mill_journal *journal, const struct mill_map_topic *topic,
                            int32_t partition, const struct mill_journal_producer *producer,
                            const struct mill_journal_record *records, uint32_t records_count,
                            int64_t now_ms, mill_journal_done done, void *context) MILL_WARN_UNUSED;
/* Reads from an offset on, about MILL_JOURNAL_READ_BYTES and below the high watermark; or
 * MILL_JOURNAL_START, MILL_JOURNAL_END. ret: 0 (done follows), -ENOBUFS, -ENOTCONN, -ENOMEM. */
int mill_journal_read(struct mill_journal *journal, const struct mill_map_topic *topic,
                      int32_t partition, int64_t offset, mill_journal_read_done done,
                      void *context) MILL_WARN_UNUSED;
/* Ends a transaction in a partition of any topic, or grants it; many go in one request, and those
 * of one core arrive in the order of these calls. done is called as for an append; its result has
 * no offset. What ended unknown may be sent again. ret: as mill_journal_read. */
int mill_journal_mark(struct mill_journal *journal, const struct mill_map_topic *topic,
                      int32_t partition, const struct mill_journal_marker *marker,
                      mill_journal_done done, void *context) MILL_WARN_UNUSED;

/* Takes answers, sends what waits, looks at deadlines. ret: when the next look is due. */
uint64_t mill_journal_step(struct mill_journal *journal, uint64_t now_ns);
/* True when a look at the rings would find work. */
bool mill_journal_has_work(const struct mill_journal *journal);

const struct mill_journal_counters *mill_journal_counters(const struct mill_journal *journal);

/* Where a record or marker lies. */
struct mill_journal_at {
    int64_t offset;
    int64_t timestamp_ms;
    int64_t producer_id; /* of the transaction it belongs to; -1 none */
};

struct mill_journal_visitor {
    void (*record)(void *context, const struct mill_journal_at *at,
                   const struct mill_record *record);
    /* The end of at->producer_id's transaction in this partition. */
    void (*marker)(void *context, const struct mill_journal_at *at, bool commit);
    void *context;
};

/* Visits each record and marker at or behind from of whole batches, uncompressed ones; damaged ones
 * and control batches of another kind are left out and counted in *ret_skipped. ret: offset behind
 * the last batch, or from when there is none. */
int64_t mill_journal_walk(const uint8_t *records, uint32_t records_bytes, int64_t from,
                          const struct mill_journal_visitor *visitor, uint32_t *ret_skipped);

#endif
