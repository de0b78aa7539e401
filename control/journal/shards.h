/* SPDX-License-Identifier: Apache-2.0 */
/* The partitions of an internal topic as a coordinator keeps them in memory, a shard each: follows
 * the topic, loads, appends, and says what an outcome means.
 *
 *   topic serves --> LOADING: ask for the log's end, read, apply, read ... up to there --> READY
 *                       ^                                                               |
 *                       +----------- an append ended with an unknown outcome -----------+
 *
 * A shard whose last append has an unknown outcome is read on from the last known offset before it
 * serves again, so that memory never contradicts the log. What lies there and is not synced yet, as
 * with flush.messages=1, is waited for: it may become readable later. Knows no group and no
 * transaction. Control's thread. */
#ifndef MILL_CONTROL_JOURNAL_SHARDS_H
#define MILL_CONTROL_JOURNAL_SHARDS_H

#include "control/controller/topics.h"
#include "control/journal/journal.h"
#include "control/pool.h"
#include "ipc/coordinators.h"

enum {
    MILL_SHARDS_POOL_BYTES = 64 << 20, /* of one record, read or written */
};

enum mill_shard_state {
    MILL_SHARD_LOADING,
    MILL_SHARD_READY,
};

struct mill_shard {
    enum mill_shard_state state;
    bool reading;
    bool again;          /* loaded before: only what was appended since is read */
    bool ask_start;      /* its log does not begin at next_offset */
    bool end_known;      /* of this load: */
    int64_t end_offset;  /* where the log ended when it began; all before is to be read */
    int64_t next_offset; /* all before is in memory */
    void *first;         /* the owner's: what it keeps of this shard */
};

struct mill_shards_calls {
    /* A record of the log, in order; again: of a shard that was loaded before. What is in the pool
     * lasts until the call returns. ret: false: it was of no use (counted), unless memory_short was
     * set meanwhile: then it is read again. */
    bool (*record)(void *context, int32_t shard, bool again, const struct mill_journal_at *at,
                   const struct mill_record *record, struct mill_pool *pool);
    /* The end of at->producer_id's transaction, in order with the records. NULL: of no use. ret:
     * false: no memory for all of it; it is read again. */
    bool (*marker)(void *context, int32_t shard, const struct mill_journal_at *at, bool commit);
    /* All that the log has is in memory. */
    void (*ready)(void *context, int32_t shard, bool again);
    /* The topic is gone: forget everything of the shard. */
    void (*drop)(void *context, int32_t shard);
};

struct mill_shards {
    const struct mill_shards_calls *calls;
    void *context;
    struct mill_journal *journal;
    const struct mill_topics *topics;
    const char *topic_name;
    struct mill_uuid topic_id; /* as the shards know it */
    uint64_t generation;       /* of the topic: what was read of an older one is void */
    struct mill_shard *items;
    uint32_t count; /* 0: there is no such topic */
    uint32_t loading_count;
    uint64_t loads;
    uint64_t records_bad;
    bool memory_short; /* the owner had no memory for the record it was given */
};

/* The caller has set calls to topic_name. Forgets everything; NULL-safe when never stepped. */
void mill_shards_drop(struct mill_shards *shards);
/* Follows the topic and loads. ret: true while there is more to load. */
bool mill_shards_step(struct mill_shards *shards);

/* Whether the shard of this id serves now. ret: enum mill_kerr. */
int16_t mill_shards_locate(const struct mill_shards *shards, const char *id);
/* The topic, NULL while there is none. */
struct mill_topic *mill_shards_topic(const struct mill_shards *shards);

/* Appends records as one batch. ret: 0 (done follows), or enum mill_kerr; MESSAGE_TOO_LARGE: it
 * never will be taken. */
int16_t mill_shards_append(struct mill_shards *shards, int32_t shard,
                           const struct mill_journal_record *records, uint32_t records_count,
                           int64_t now_ms, mill_journal_done done, void *context);
/* The same, as part of a producer's transaction. */
int16_t mill_shards_append_txn(struct mill_shards *shards, int32_t shard,
                               const struct mill_journal_producer *producer,
                               const struct mill_journal_record *records, uint32_t records_count,
                               int64_t now_ms, mill_journal_done done, void *context);
/* What a result of the journal means to a client; an unknown outcome makes the shard read on. To be
 * called for every append. ret: enum mill_kerr. */
int16_t mill_shards_outcome(struct mill_shards *shards, int32_t shard,
                            const struct mill_journal_result *result);
/* Where the log is known to that far. */
int64_t mill_shards_known(const struct mill_shards *shards, int32_t shard);
/* What lies from this offset on is not all in memory: it is read before the shard serves again. */
void mill_shards_read_again(struct mill_shards *shards, int32_t shard, int64_t from_offset);

#endif
