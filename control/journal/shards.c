/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions of an internal topic in memory; see shards.h. */
#include "control/journal/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

enum {
    LOADS_AT_ONCE = 16,
};

struct mill_topic *mill_shards_topic(const struct mill_shards *shards)
{
    return mill_topics_by_name(shards->topics, shards->topic_name,
                               (uint32_t)strlen(shards->topic_name));
}

int16_t mill_shards_locate(const struct mill_shards *shards, const char *id)
{
    if (shards->count == 0) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    return shards->items[mill_shard_of(id, shards->count)].state == MILL_SHARD_READY
               ? (int16_t)MILL_KERR_NONE
               : (int16_t)MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS;
}

/* --- the log -----------------------------------------------------------------------------------
 */

int16_t mill_shards_append(struct mill_shards *shards, int32_t shard,
                           const struct mill_journal_record *records, uint32_t records_count,
                           int64_t now_ms, mill_journal_done done, void *context)
{
    const struct mill_journal_producer nobody = {.id = -1, .epoch = -1};
    return mill_shards_append_txn(shards, shard, &nobody, records, records_count, now_ms, done,
                                  context);
}

int16_t mill_shards_append_txn(struct mill_shards *shards, int32_t shard,
                               const struct mill_journal_producer *producer,
                               const struct mill_journal_record *records, uint32_t records_count,
                               int64_t now_ms, mill_journal_done done, void *context)
{
    const struct mill_topic *topic = mill_shards_topic(shards);
    if (!topic || (uint32_t)shard >= shards->count) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (shards->items[shard].state != MILL_SHARD_READY) {
        return MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS;
    }
    int rc = mill_journal_append_txn(shards->journal, topic->record, shard, producer, records,
                                     records_count, now_ms, done, context);
    return rc == 0           ? MILL_KERR_NONE
           : rc == -EMSGSIZE ? MILL_KERR_MESSAGE_TOO_LARGE
                             : MILL_KERR_COORDINATOR_NOT_AVAILABLE;
}

static void read_on(struct mill_shards *shards, struct mill_shard *shard)
{
#ifdef MILL_MUTANT_GROUP_UNKNOWN_FORGOTTEN
    return;
#endif
    shard->end_known = false;
    if (shard->state == MILL_SHARD_READY) {
        shard->state = MILL_SHARD_LOADING;
        shard->again = true;
        shards->loading_count++;
    }
}

int16_t mill_shards_outcome(struct mill_shards *shards, int32_t shard,
                            const struct mill_journal_result *result)
{
    /* The topic may have gone meanwhile. */
    struct mill_shard *of = (uint32_t)shard < shards->count ? &shards->items[shard] : NULL;
    switch (result->outcome) {
    case MILL_JOURNAL_DONE:
        /* While it reads on, what lies before this batch may not be in memory. */
#ifdef MILL_MUTANT_SHARD_SKIPS
        if (of) {
#else
        if (of && of->state == MILL_SHARD_READY) {
#endif
            of->next_offset = MILL_MAX(of->next_offset, result->next_offset);
        }
        return MILL_KERR_NONE;
    case MILL_JOURNAL_UNKNOWN:
        if (of) {
            read_on(shards, of);
        }
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    case MILL_JOURNAL_REFUSED:
        break;
    }
    switch (result->error) {
    case MILL_KERR_MESSAGE_TOO_LARGE:
    case MILL_KERR_RECORD_LIST_TOO_LARGE:
        return MILL_KERR_UNKNOWN_SERVER_ERROR;
    case MILL_KERR_NOT_LEADER_OR_FOLLOWER:
        return MILL_KERR_NOT_COORDINATOR;
    case MILL_KERR_INVALID_PRODUCER_EPOCH:
    case MILL_KERR_INVALID_TXN_STATE:
        return result->error; /* of records in a transaction, which is over by now */
    default:
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
}

int64_t mill_shards_known(const struct mill_shards *shards, int32_t shard)
{
    return (uint32_t)shard < shards->count ? shards->items[shard].next_offset : 0;
}

void mill_shards_read_again(struct mill_shards *shards, int32_t shard, int64_t from_offset)
{
    if ((uint32_t)shard < shards->count) {
        struct mill_shard *of = &shards->items[shard];
        of->next_offset = MILL_MIN(of->next_offset, from_offset);
        read_on(shards, of);
    }
}

/* --- loading -----------------------------------------------------------------------------------
 */

/* A read under way. */
struct loading {
    struct mill_shards *shards;
    uint64_t generation;
    int32_t shard;
    int64_t asked;        /* offset, MILL_JOURNAL_START or _END */
    int64_t short_offset; /* of the first record or marker that there was no memory for, -1 none */
    struct mill_pool pool;
};

static void load_marker(void *context, const struct mill_journal_at *at, bool commit)
{
    struct loading *loading = context;
    const struct mill_shards *shards = loading->shards;
    if (shards->calls->marker && loading->short_offset < 0 &&
        !shards->calls->marker(shards->context, loading->shard, at, commit)) {
        loading->short_offset = at->offset;
    }
}

static void load_record(void *context, const struct mill_journal_at *at,
                        const struct mill_record *record)
{
    struct loading *loading = context;
    struct mill_shards *shards = loading->shards;
    if (loading->short_offset >= 0) {
        return; /* read again, in order */
    }
    shards->memory_short = false;
    if (!shards->calls->record(shards->context, loading->shard, shards->items[loading->shard].again,
                               at, record, &loading->pool)) {
        shards->records_bad += shards->memory_short ? 0 : 1;
#ifndef MILL_MUTANT_GROUP_MEMORY_FORGOTTEN
        loading->short_offset = shards->memory_short ? at->offset : -1;
#endif
    }
    mill_pool_clear(&loading->pool);
}

static void load_end(struct mill_shards *shards, int32_t index)
{
    struct mill_shard *shard = &shards->items[index];
    shards->calls->ready(shards->context, index, shard->again);
    shard->state = MILL_SHARD_READY;
    shard->again = false;
    shards->loading_count--;
    shards->loads++;
}

/* Where a load may end. */
static int64_t end_of(const struct mill_shard *shard)
{
#ifdef MILL_MUTANT_SHARD_UNSYNCED_UNREAD
    return 0;
#endif
    return shard->end_offset;
}

static void load_done(void *context, const struct mill_journal_read *read)
{
    struct loading *loading = context;
    struct mill_shards *shards = loading->shards;
    if (loading->generation != shards->generation) {
        free(loading);
        return; /* of a topic that is gone */
    }
    struct mill_shard *shard = &shards->items[loading->shard];
    shard->reading = false;
    if (read->outcome != MILL_JOURNAL_DONE) {
        shard->ask_start = loading->asked >= 0 && read->error == MILL_KERR_OFFSET_OUT_OF_RANGE;
    } else if (loading->asked == MILL_JOURNAL_END) {
        shard->end_known = true;
        shard->end_offset = read->log_end;
    } else if (loading->asked == MILL_JOURNAL_START) {
        shard->ask_start = false;
        shard->next_offset = read->log_start;
    } else {
        uint32_t skipped = 0;
        const struct mill_journal_visitor visitor = {
            .record = load_record, .marker = load_marker, .context = loading};
        int64_t next = mill_journal_walk(read->records, read->records_bytes, shard->next_offset,
                                         &visitor, &skipped);
        bool whole = loading->short_offset < 0;
        next = whole ? next : loading->short_offset;
        shards->records_bad += skipped;
        /* Nothing up to the end: compaction took the last records. */
        bool nothing = whole && next == shard->next_offset;
        shard->next_offset = nothing ? MILL_MAX(next, read->high_watermark) : next;
        if (whole && shard->end_known &&
            shard->next_offset >= MILL_MAX(read->high_watermark, end_of(shard))) {
            load_end(shards, loading->shard);
        }
    }
    mill_pool_clear(&loading->pool);
    free(loading);
}

static void load_begin(struct mill_shards *shards, const struct mill_topic *topic)
{
    uint32_t reading = 0;
    for (uint32_t i = 0; i < shards->count && reading < LOADS_AT_ONCE; i++) {
        struct mill_shard *shard = &shards->items[i];
        reading += shard->reading;
        if (shard->state != MILL_SHARD_LOADING || shard->reading ||
            topic->states[i] != MILL_PARTITION_SERVING) {
            continue;
        }
        struct loading *loading = calloc(1, sizeof(*loading));
        if (!loading) {
            return;
        }
        *loading = (struct loading){.shards = shards,
                                    .generation = shards->generation,
                                    .shard = (int32_t)i,
                                    .asked = !shard->end_known  ? MILL_JOURNAL_END
                                             : shard->ask_start ? MILL_JOURNAL_START
                                                                : shard->next_offset,
                                    .short_offset = -1,
                                    .pool = {.limit_bytes = MILL_SHARDS_POOL_BYTES}};
        if (mill_journal_read(shards->journal, topic->record, (int32_t)i, loading->asked, load_done,
                              loading) < 0) {
            free(loading);
            return;
        }
        shard->reading = true;
        reading++;
    }
}

/* --- following the topic -----------------------------------------------------------------------
 */

void mill_shards_drop(struct mill_shards *shards)
{
    for (uint32_t i = 0; i < shards->count; i++) {
        shards->calls->drop(shards->context, (int32_t)i);
    }
    free(shards->items);
    shards->items = NULL;
    shards->count = 0;
    shards->loading_count = 0;
    shards->topic_id = (struct mill_uuid){{0}};
    shards->generation++;
}

/* Keeps the shards in step with the topic. ret: the topic, NULL none. */
static const struct mill_topic *follow(struct mill_shards *shards)
{
    const struct mill_topic *topic = mill_shards_topic(shards);
    bool same = topic ? mill_uuid_equal(&topic->record->id, &shards->topic_id) : shards->count == 0;
    if (same) {
        return topic;
    }
    mill_shards_drop(shards);
    if (topic) {
        shards->items = calloc(topic->record->partitions_count, sizeof(*shards->items));
        if (!shards->items) {
            return NULL;
        }
        shards->count = topic->record->partitions_count;
        shards->loading_count = shards->count;
#ifdef MILL_MUTANT_GROUP_UNLOADED
        for (uint32_t i = 0; i < shards->count; i++) {
            shards->items[i].state = MILL_SHARD_READY;
        }
        shards->loading_count = 0;
#endif
        shards->topic_id = topic->record->id;
    }
    return topic;
}

bool mill_shards_step(struct mill_shards *shards)
{
    const struct mill_topic *topic = follow(shards);
    if (topic && shards->loading_count > 0) {
        load_begin(shards, topic);
    }
    return topic && shards->loading_count > 0;
}
