/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal's files share: its queues, and who moves what on. For control/journal only. */
#ifndef MILL_CONTROL_JOURNAL_JOURNAL_TYPES_H
#define MILL_CONTROL_JOURNAL_JOURNAL_TYPES_H

#include "control/journal/journal.h"
#include "control/journal/marks.h"

enum {
    MILL_JOURNAL_PRODUCE_VERSION = 8,
    MILL_JOURNAL_FETCH_VERSION = 11,
    MILL_JOURNAL_LIST_OFFSETS_VERSION = 3,
    MILL_JOURNAL_EPOCH_VERSION = 3,
    MILL_JOURNAL_FLIGHT_MAX = 64, /* batches of one request */
};

struct mill_journal_caller {
    struct mill_journal_caller *next;
    mill_journal_done done;
    void *context;
    uint32_t records_count;
};

struct mill_journal_batch {
    struct mill_journal_batch *next;
    struct mill_journal_caller *first;
    struct mill_journal_caller **last;
    uint8_t *bytes; /* header, then records */
    uint32_t size_bytes;
    uint32_t capacity_bytes;
    uint32_t records_count;
    struct mill_journal_producer producer; /* id -1: of no transaction */
    bool closed;                           /* sent, or about to be ended: takes no more */
    int64_t base_ms;
    int64_t max_ms;
};

struct mill_journal_partition {
    struct mill_journal_partition *next; /* of its topic */
    struct mill_journal_partition *next_waiting;
    struct mill_uuid topic_id;
    char topic[MILL_TOPIC_NAME_MAX + 1];
    int32_t index;
    uint32_t core;
    uint32_t batch_bytes_max;
    bool waiting; /* listed at its core, or on its way */
    struct mill_journal_batch *first;
    struct mill_journal_batch **last;
};

struct mill_journal_reader {
    struct mill_journal_reader *next;
    char topic[MILL_TOPIC_NAME_MAX + 1];
    int32_t index;
    int32_t leader_epoch;
    int64_t offset;
    mill_journal_read_done done;
    void *context;
};

enum mill_journal_busy {
    MILL_JOURNAL_IDLE,
    MILL_JOURNAL_APPENDING,
    MILL_JOURNAL_READING,
    MILL_JOURNAL_MARKING,
    MILL_JOURNAL_BUSY_COUNT,
};

struct mill_journal_core {
    struct mill_ring in; /* from the core */
    struct mill_ring out;
    struct mill_bell *bell;
    bool attached;
    uint64_t stream_id; /* 0: none */
    uint64_t tx_pos_bytes;
    uint64_t rx_pos_bytes;
    enum mill_journal_busy busy;
    enum mill_journal_busy last; /* appends, reads and marks take turns */
    int32_t correlation;
    uint64_t deadline_ns;
    uint8_t *request; /* under way */
    uint32_t request_bytes;
    uint32_t request_sent;
    uint32_t request_capacity;
    uint8_t *answer;
    uint32_t answer_bytes;
    uint32_t answer_capacity;
    struct mill_journal_partition *waiting;
    struct mill_journal_partition **waiting_last;
    uint32_t flight_count;
    struct mill_journal_partition *flight[MILL_JOURNAL_FLIGHT_MAX]; /* the first batch of each */
    struct mill_journal_reader *reads;
    struct mill_journal_reader **reads_last;
    struct mill_journal_reader *reading;
    struct mill_mark *marks;
    struct mill_mark **marks_last;
    uint32_t marking_count;
    struct mill_mark *marking[MILL_MARKS_FLIGHT_MAX];
};

struct mill_journal {
    struct mill_ipc_segment *segment;
    uint64_t segment_bytes;
    uint64_t timeout_ns;
    void (*random)(void *context, void *ret, size_t size_bytes);
    void *random_context;
    uint64_t dataplane;
    uint64_t queued_bytes;
    uint32_t reads_count;
    uint32_t marks_count;
    struct mill_journal_partition *partitions;
    struct mill_journal_counters counters;
    uint32_t cores_count;
    struct mill_journal_core cores[];
};

/* --- journal.c ---------------------------------------------------------------------------------
 */

/* Lists a partition that has a batch at its core, behind those that wait there. */
void mill_journal_partition_list(struct mill_journal *journal,
                                 struct mill_journal_partition *partition);
/* Ends the partition's first batch and each append in it; base_offset: of its first record. */
void mill_journal_batch_end(struct mill_journal *journal, struct mill_journal_partition *partition,
                            struct mill_journal_result result, int64_t base_offset);
/* Ends the mark and frees it. */
void mill_journal_mark_end(struct mill_journal *journal, struct mill_mark *mark,
                           enum mill_journal_outcome outcome, int16_t error);
/* The stream is lost: what was sent may have happened, what was not sent did not. done calls may
 * append anew: that waits for the next stream. */
void mill_journal_core_lost(struct mill_journal *journal, struct mill_journal_core *core);

/* --- batches.c ---------------------------------------------------------------------------------
 */

/* Most bytes that records take in a batch. */
uint64_t mill_journal_records_bytes_max(const struct mill_journal_record *records, uint32_t count);
/* The batch that takes more_bytes more: the last one while it is open, of the same transaction, and
 * has room; else a new one. ret: NULL no memory. */
struct mill_journal_batch *mill_journal_batch_for(struct mill_journal_partition *partition,
                                                  const struct mill_journal_producer *producer,
                                                  uint64_t more_bytes);
/* Adds a record; its room was asked for by mill_journal_batch_for. */
void mill_journal_batch_put(struct mill_journal_batch *batch,
                            const struct mill_journal_record *record, int64_t now_ms);
/* Writes the header: no record follows. */
void mill_journal_batch_seal(struct mill_journal_batch *batch);

/* --- requests.c --------------------------------------------------------------------------------
 */

/* The API of the request under way, and the version that it is spoken in. */
int16_t mill_journal_key_of(const struct mill_journal_core *core);
int16_t mill_journal_version_of(int16_t key);
/* Makes a request of what waits, if anything does; no memory for it costs the stream. */
void mill_journal_request_next(struct mill_journal *journal, struct mill_journal_core *core,
                               uint64_t now_ns);
/* Puts as much of the request into the ring as fits. */
void mill_journal_request_send(struct mill_journal *journal, struct mill_journal_core *core);

/* --- answers.c ---------------------------------------------------------------------------------
 */

/* Takes a bounded number of parts of the answer; acts when it is whole. ret: true more may wait. */
bool mill_journal_parts_take(struct mill_journal *journal, struct mill_journal_core *core);

#endif
