/* SPDX-License-Identifier: Apache-2.0 */
/* All transactional ids; see txns.h. A shard is a partition of __transaction_state. */
#include "control/txn/txns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"
#include "control/txn/grants.h"
#include "control/txn/marks.h"
#include "control/txn/records.h"
#include "control/txn/waits.h"
#include "protocol/errors.h"

enum {
    BUCKETS = 1 << 16,
    RETRY_NS = 100000000,
    TELL_NS = 50000000,
};

/* A record on its way to the log. */
struct mill_txn_writing {
    struct mill_txns *txns;
    struct mill_txn *txn; /* NULL: its topic has gone meanwhile */
    int32_t shard;
    int16_t error; /* to tell when the log has it */
    struct mill_txn_values next;
    struct mill_txn_set *added; /* to be granted before anybody is told; NULL none */
    mill_txns_done done;        /* NULL nobody asked */
    void *context;
};

/* --- ids ---------------------------------------------------------------------------------------
 */

static struct mill_txn **bucket_of(const struct mill_txns *txns, const char *id)
{
    return &txns->buckets[mill_siphash(txns->key, id, strlen(id)) & (BUCKETS - 1)];
}

struct mill_txn *mill_txns_find(const struct mill_txns *txns, const char *id)
{
    struct mill_txn *txn = *bucket_of(txns, id);
    while (txn && strcmp(txn->id, id) != 0) {
        txn = txn->next;
    }
    return txn;
}

/* Finds or makes. ret: NULL at the limit (counted), or no memory. */
static struct mill_txn *txn_make(struct mill_txns *txns, const char *id, bool loading)
{
    struct mill_txn *txn = mill_txns_find(txns, id);
    if (txn) {
        return txn;
    }
    txn = mill_txn_new(&txns->env, id, loading);
    if (!txn) {
        return NULL;
    }
    struct mill_txn **bucket = bucket_of(txns, id);
    txn->next = *bucket;
    *bucket = txn;
    txn->shard = mill_shard_of(id, txns->shards.count);
    struct mill_shard *shard = &txns->shards.items[txn->shard];
    txn->shard_next = shard->first;
    if (txn->shard_next) {
        txn->shard_next->shard_prev = txn;
    }
    shard->first = txn;
    txns->count++;
    return txn;
}

static void txn_remove(struct mill_txns *txns, struct mill_txn *txn)
{
    struct mill_txn **at = bucket_of(txns, txn->id);
    while (*at != txn) {
        at = &(*at)->next;
    }
    *at = txn->next;
    if (txn->shard_prev) {
        txn->shard_prev->shard_next = txn->shard_next;
    } else {
        txns->shards.items[txn->shard].first = txn->shard_next;
    }
    if (txn->shard_next) {
        txn->shard_next->shard_prev = txn->shard_prev;
    }
    mill_txn_marks_drop(txns, txn);
    if (txn->writing) {
        txn->writing->txn = NULL;
    }
    mill_txn_free(&txns->env, txn);
    txns->count--;
}

/* An id that the log does not know, and nobody is about to tell it, is nothing to keep. */
static void txn_forget(struct mill_txns *txns, struct mill_txn *txn)
{
#ifndef MILL_MUTANT_TXN_ID_KEPT
    if (txn->now.producer_epoch < 0 && !txn->changing) {
        txn_remove(txns, txn);
    }
#endif
}

/* --- records -----------------------------------------------------------------------------------
 */

/* A transaction that is ending gets its markers. */
static void txn_resume(struct mill_txns *txns, struct mill_txn *txn)
{
#ifndef MILL_MUTANT_TXN_NOT_RESUMED
    if (mill_txn_prepared(txn) && !txn->marks) {
        mill_txn_marks_begin(txns, txn);
    }
#endif
}

/* One that is under way may not be known to the cores. */
static void txn_untold(struct mill_txns *txns, struct mill_txn *txn)
{
    if (txn->now.state == MILL_TXN_ONGOING) {
        txn->untold = true;
        txns->told = false;
    }
}

/* Who waits for grants. */
struct granting {
    mill_txns_done done;
    void *context;
    struct mill_txns *txns;
    char id[];
};

static void granted(void *context, int16_t error)
{
    struct granting *granting = context;
    const struct mill_txn *txn = mill_txns_find(granting->txns, granting->id);
    granting->done(granting->context, error, error || !txn ? NULL : &txn->now);
    free(granting);
}

/* The cores let the holder in, then done is called. The log has the partitions already: a grant
 * that fails is asked for again, and leads to nothing until then. */
static void grant(struct mill_txns *txns, const struct mill_txn *txn,
                  const struct mill_txn_partition *partitions, uint32_t count, mill_txns_done done,
                  void *context)
{
    size_t id_bytes = strlen(txn->id) + 1;
    struct granting *granting = malloc(sizeof(*granting) + id_bytes);
    if (!granting) {
        done(context, MILL_KERR_COORDINATOR_NOT_AVAILABLE, NULL);
        return;
    }
    *granting = (struct granting){.done = done, .context = context, .txns = txns};
    memcpy(granting->id, txn->id, id_bytes);
    mill_txn_grants_begin(txns, &txn->now, partitions, count, granted, granting);
}

static void written(void *context, const struct mill_journal_result *result)
{
    struct mill_txn_writing *writing = context;
    struct mill_txns *txns = writing->txns;
    struct mill_txn *txn = writing->txn;
    const struct mill_txn_values *now = NULL;
    int16_t error = mill_shards_outcome(&txns->shards, writing->shard, result);
    if (!txn) {
        free(writing->next.partitions);
        error = MILL_KERR_NOT_COORDINATOR;
    } else if (error != MILL_KERR_NONE) {
        txn->writing = NULL;
        mill_txn_drop(txn, &writing->next);
        txn_forget(txns, txn);
    } else {
        txn->writing = NULL;
        mill_txn_apply(&txns->env, txn, &writing->next);
        mill_txn_marks_drop(txns, txn);
        if (mill_txn_prepared(txn)) {
            mill_txn_marks_begin(txns, txn);
        }
        now = &txn->now;
        error = writing->error;
    }
    txns->waits_look = true;
    if (now && writing->added) {
        grant(txns, txn, writing->added->items, writing->added->count, writing->done,
              writing->context);
    } else if (writing->done) {
        writing->done(writing->context, error, now);
    }
    if (now && now->state == MILL_TXN_DEAD) {
        txns->expired++;
        txn_remove(txns, txn);
    }
    free(writing->added);
    free(writing);
}

/* Appends the values; done follows, or is called at once when they cannot be. added: granted before
 * that; taken over. */
static void txn_write(struct mill_txns *txns, struct mill_txn *txn,
                      const struct mill_txn_values *next, int16_t error, struct mill_txn_set *added,
                      mill_txns_done done, void *context)
{
    struct mill_pool pool = {.limit_bytes = MILL_SHARDS_POOL_BYTES};
    struct mill_txn_writing *writing = calloc(1, sizeof(*writing));
    struct mill_journal_record record = {.value_bytes = -1};
    uint32_t value_bytes = 0;
    int16_t failed = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    record.key = mill_txn_key_write(&pool, txn->id, &record.key_bytes);
    bool whole = writing && record.key;
    if (whole && next->state != MILL_TXN_DEAD) {
        record.value = mill_txn_value_write(&pool, next, &value_bytes);
        record.value_bytes = (int32_t)value_bytes;
        whole = record.value != NULL;
    }
    if (whole) {
        *writing = (struct mill_txn_writing){.txns = txns,
                                             .txn = txn,
                                             .shard = txn->shard,
                                             .error = error,
                                             .next = *next,
                                             .added = added,
                                             .done = done,
                                             .context = context};
        failed = mill_shards_append(&txns->shards, txn->shard, &record, 1, txns->env.now_ms,
                                    written, writing);
    }
    mill_pool_clear(&pool);
    if (failed == MILL_KERR_NONE) {
        txn->writing = writing;
        return;
    }
    free(added);
    free(writing);
    mill_txn_drop(txn, next);
    txn_forget(txns, txn);
    if (done) {
        done(context, failed, NULL);
    }
}

/* --- loading -----------------------------------------------------------------------------------
 */

static bool load_record(void *context, int32_t shard, bool again, const struct mill_journal_at *at,
                        const struct mill_record *record, struct mill_pool *pool)
{
    struct mill_txns *txns = context;
    struct mill_txn_record read;
    MILL_UNUSED(again);
    MILL_UNUSED(at);
    int r = mill_txn_record_read(record, pool, &read);
    if (r < 0) {
        txns->shards.memory_short = r == -ENOMEM && pool->used_bytes < pool->limit_bytes / 2;
        return false;
    }
    if (!read.id) {
        return true;
    }
    if (mill_shard_of(read.id, txns->shards.count) != shard) {
        return false; /* of a time with fewer partitions: another one has the id now */
    }
    struct mill_txn *txn = mill_txns_find(txns, read.id);
    bool dead = read.tombstone || read.values.state == MILL_TXN_DEAD;
    if (dead && txn && !txn->writing) {
        txn_remove(txns, txn);
    }
    if (dead) {
        return true;
    }
    /* What stood in the log was told: without it, what was decided would be decided anew. */
    r = mill_txn_set_join(NULL, read.partitions, read.partitions_count, &read.values.partitions);
    txn = r == 0 ? txn_make(txns, read.id, true) : NULL;
    if (!txn) {
        free(r == 0 ? read.values.partitions : NULL);
        txns->shards.memory_short = r == 0 || r == -ENOMEM;
        return false;
    }
    mill_txn_marks_drop(txns, txn); /* they begin anew with what is there at the end */
    mill_txn_restore(&txns->env, txn, &read.values);
    return true;
}

static void load_ready(void *context, int32_t shard, bool again)
{
    struct mill_txns *txns = context;
    MILL_UNUSED(again);
    for (struct mill_txn *txn = txns->shards.items[shard].first; txn; txn = txn->shard_next) {
        txn_resume(txns, txn);
        txn_untold(txns, txn);
    }
}

static void load_drop(void *context, int32_t shard)
{
    struct mill_txns *txns = context;
    while (txns->shards.items[shard].first) {
        txn_remove(txns, txns->shards.items[shard].first);
    }
}

/* --- requests ----------------------------------------------------------------------------------
 */

static void step_take(struct mill_txns *txns, struct mill_txn *txn, enum mill_txn_step step,
                      const struct mill_txn_values *next, int16_t error, mill_txns_done done,
                      void *context)
{
    if (step == MILL_TXN_WRITE) {
        txn_write(txns, txn, next, error, NULL, done, context);
    } else {
        done(context, error, error == MILL_KERR_NONE ? &txn->now : NULL);
    }
}

void mill_txns_init(struct mill_txns *txns, const char *id, int32_t timeout_ms,
                    const struct mill_txn_holder *holder, mill_txns_done done, void *context)
{
    struct mill_txn_values next;
    int16_t error = mill_shards_locate(&txns->shards, id);
    struct mill_txn *txn = error == MILL_KERR_NONE ? txn_make(txns, id, false) : NULL;
    if (!txn) {
        done(context, error ? error : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE, NULL);
        return;
    }
    enum mill_txn_step step = mill_txn_init(&txns->env, txn, timeout_ms, holder, &next, &error);
    if (step == MILL_TXN_ANSWER) {
        txn_forget(txns, txn);
    }
    step_take(txns, txn, step, &next, error, done, context);
}

/* Whether an id can be looked up now. ret: enum mill_kerr. */
static int16_t id_locate(const struct mill_txns *txns, const char *id)
{
    return id[0] == '\0' ? (int16_t)MILL_KERR_INVALID_REQUEST
                         : mill_shards_locate(&txns->shards, id);
}

/* The id that a holder speaks of. ret: NULL: told already. */
static struct mill_txn *txn_held(struct mill_txns *txns, const char *id, mill_txns_done done,
                                 void *context)
{
    int16_t error = id_locate(txns, id);
    struct mill_txn *txn = error == MILL_KERR_NONE ? mill_txns_find(txns, id) : NULL;
    if (!txn) {
        done(context, error ? error : (int16_t)MILL_KERR_INVALID_PRODUCER_ID_MAPPING, NULL);
    }
    return txn;
}

void mill_txns_add(struct mill_txns *txns, const char *id, const struct mill_txn_holder *holder,
                   enum mill_txn_version version, const struct mill_txn_partition *added,
                   uint32_t added_count, mill_txns_done done, void *context)
{
    struct mill_txn_values next;
    int16_t error = MILL_KERR_NONE;
    struct mill_txn *txn = txn_held(txns, id, done, context);
    if (!txn) {
        return;
    }
    enum mill_txn_step step =
        mill_txn_add(&txns->env, txn, holder, version, added, added_count, &next, &error);
#ifndef MILL_MUTANT_TXN_ADD_UNWAITED
    if (error == MILL_KERR_CONCURRENT_TRANSACTIONS && version >= MILL_TXN_BUMPED &&
        mill_txn_wait_add(txns, id, holder, added, added_count, done, context)) {
        return;
    }
#endif
    if (step == MILL_TXN_ANSWER && error == MILL_KERR_NONE) {
        /* The log has them; whether the cores were told nobody knows. */
        grant(txns, txn, added, added_count, done, context);
    } else if (step == MILL_TXN_ANSWER) {
        done(context, error, NULL);
    } else {
        struct mill_txn_set *copy = NULL;
        if (mill_txn_set_join(NULL, added, added_count, &copy) < 0) {
            mill_txn_drop(txn, &next);
            done(context, MILL_KERR_COORDINATOR_NOT_AVAILABLE, NULL);
            return;
        }
        txn_write(txns, txn, &next, MILL_KERR_NONE, copy, done, context);
    }
}

void mill_txns_end(struct mill_txns *txns, const char *id, const struct mill_txn_holder *holder,
                   enum mill_txn_version version, bool commit, mill_txns_done done, void *context)
{
    struct mill_txn_values next;
    int16_t error = MILL_KERR_NONE;
    struct mill_txn *txn = txn_held(txns, id, done, context);
    if (txn) {
        enum mill_txn_step step =
            mill_txn_end(&txns->env, txn, holder, version, commit, &next, &error);
        step_take(txns, txn, step, &next, error, done, context);
    }
}

int16_t mill_txns_verify(const struct mill_txns *txns, const char *id,
                         const struct mill_txn_holder *holder,
                         const struct mill_txn_partition *partitions, uint32_t count)
{
    int16_t error = id_locate(txns, id);
    const struct mill_txn *txn = error == MILL_KERR_NONE ? mill_txns_find(txns, id) : NULL;
    if (!txn) {
        return error ? error : (int16_t)MILL_KERR_INVALID_PRODUCER_ID_MAPPING;
    }
    for (uint32_t i = 0; i < count && error == MILL_KERR_NONE; i++) {
        error = mill_txn_verify(txn, holder, &partitions[i]);
    }
    return error;
}

/* --- the turn ----------------------------------------------------------------------------------
 */

static void marked(struct mill_txns *txns, struct mill_txn *txn)
{
    struct mill_txn_values next;
    if (txns->shards.items[txn->shard].state == MILL_SHARD_READY &&
        mill_txn_complete(&txns->env, txn, &next)) {
        txn_write(txns, txn, &next, MILL_KERR_NONE, NULL, NULL, NULL);
    }
}

/* --- telling a new millraced -------------------------------------------------------------------
 */

/* An id whose partitions are being granted once more. */
struct telling {
    struct mill_txns *txns;
    char id[];
};

static void told_one(void *context, int16_t error)
{
    struct telling *telling = context;
    struct mill_txn *txn = mill_txns_find(telling->txns, telling->id);
    if (txn) {
        txn->telling = false;
        /* One that is fenced cannot be let in: it ends by its time-out. */
        txn->untold |= error != MILL_KERR_NONE && error != MILL_KERR_PRODUCER_FENCED;
    }
    free(telling);
}

static void tell_one(struct mill_txns *txns, struct mill_txn *txn)
{
    size_t id_bytes = strlen(txn->id) + 1;
    struct telling *telling = malloc(sizeof(*telling) + id_bytes);
    if (!telling) {
        return;
    }
    telling->txns = txns;
    memcpy(telling->id, txn->id, id_bytes);
    txn->untold = false;
    txn->telling = true;
    mill_txn_grants_begin(txns, &txn->now, txn->now.partitions->items, txn->now.partitions->count,
                          told_one, telling);
}

/* Grants what the present millraced has not heard of. */
static void tell(struct mill_txns *txns)
{
    bool all = txns->shards.loading_count == 0;
    for (uint32_t i = 0; i < txns->shards.count; i++) {
        for (struct mill_txn *txn = txns->shards.items[i].first; txn; txn = txn->shard_next) {
            bool open = txn->now.state == MILL_TXN_ONGOING && txn->now.partitions;
            if (open && txn->untold && !txn->telling &&
                txns->shards.items[i].state == MILL_SHARD_READY) {
                tell_one(txns, txn);
            }
            all = all && !(open && (txn->untold || txn->telling));
        }
    }
#ifdef MILL_MUTANT_TXN_TOLD_EARLY
    all = true;
#endif
    txns->told = all;
}

void mill_txns_attach(struct mill_txns *txns)
{
    txns->told = false;
    txns->tell_due_ns = 0;
    for (uint32_t i = 0; i < txns->shards.count; i++) {
        for (struct mill_txn *txn = txns->shards.items[i].first; txn; txn = txn->shard_next) {
            txn_untold(txns, txn);
        }
    }
}

bool mill_txns_told(const struct mill_txns *txns)
{
    return txns->told;
}

/* --- time --------------------------------------------------------------------------------------
 */

/* Looks at every id whose shard serves. */
static void look(struct mill_txns *txns, bool expire)
{
    struct mill_txn_values next;
    for (uint32_t i = 0; i < txns->shards.count; i++) {
        struct mill_txn *after = NULL;
        for (struct mill_txn *txn = txns->shards.items[i].first;
             txn && txns->shards.items[i].state == MILL_SHARD_READY; txn = after) {
            after = txn->shard_next;
            bool write = expire ? mill_txn_expire(&txns->env, txn, &next)
                                : mill_txn_time(&txns->env, txn, &next);
            if (write) {
                txn_write(txns, txn, &next, MILL_KERR_NONE, NULL, NULL, NULL);
            } else {
                txn_resume(txns, txn); /* there was no memory for it before */
            }
        }
    }
}

static bool is_due(uint64_t *due_ns, uint64_t now_ns, int64_t interval_ms)
{
    bool due = *due_ns != 0 && now_ns >= *due_ns;
    if (*due_ns == 0 || due) {
        *due_ns = now_ns + (uint64_t)interval_ms * MILL_NS_PER_MS;
    }
    return due;
}

uint64_t mill_txns_step(struct mill_txns *txns, const struct mill_now *now)
{
    txns->now_ns = now->mono_ns;
    txns->env.now_ms = now->wall_ms;
    bool loading = mill_shards_step(&txns->shards);
    if (is_due(&txns->timeouts_due_ns, now->mono_ns, txns->timeouts_interval_ms)) {
        look(txns, false);
    }
    if (is_due(&txns->expiry_due_ns, now->mono_ns, txns->expiry_interval_ms)) {
        look(txns, true);
    }
    if (!txns->told && now->mono_ns >= txns->tell_due_ns) {
        tell(txns);
        txns->tell_due_ns = now->mono_ns + TELL_NS;
    }
    uint64_t next_ns = mill_txn_marks_step(txns, marked);
    next_ns = MILL_MIN(next_ns, mill_txn_waits_step(txns));
    next_ns = txns->told ? next_ns : MILL_MIN(next_ns, txns->tell_due_ns);
    next_ns = MILL_MIN(next_ns, MILL_MIN(txns->timeouts_due_ns, txns->expiry_due_ns));
    return loading ? MILL_MIN(next_ns, now->mono_ns + RETRY_NS) : next_ns;
}

int mill_txns_open(struct mill_txns *txns, const struct mill_txns_options *options)
{
    static const struct mill_shards_calls calls = {
        .record = load_record, .ready = load_ready, .drop = load_drop};
    *txns = (struct mill_txns){
        .env = {.producer_id = options->producer_id,
                .context = options->context,
                .timeout_max_ms = options->timeout_max_ms,
                .expiration_ms = options->expiration_ms,
                .bytes_max = options->bytes_max},
        .shards = {.calls = &calls,
                   .context = txns,
                   .journal = options->journal,
                   .topics = options->topics,
                   .topic_name = MILL_TXN_TOPIC},
        .key = {options->key[0], options->key[1]},
        .timeouts_interval_ms = options->timeouts_interval_ms,
        .expiry_interval_ms = options->expiry_interval_ms,
        .ended = options->ended,
        .ended_context = options->ended_context,
    };
    txns->waits_last = &txns->waits;
    txns->buckets = calloc(BUCKETS, sizeof(struct mill_txn *));
    return txns->buckets ? 0 : -ENOMEM;
}

void mill_txns_close(struct mill_txns *txns)
{
    if (txns->buckets) {
        mill_txn_waits_close(txns);
        mill_shards_drop(&txns->shards);
    }
    free(txns->buckets);
    txns->buckets = NULL;
}

void mill_txns_publish(const struct mill_txns *txns, struct mill_shared_control *shared)
{
    mill_counter_set(&shared->txn_ids, txns->count);
    mill_counter_set(&shared->txn_bytes, txns->env.bytes);
    mill_counter_set(&shared->txn_timed_out, txns->env.timed_out);
    mill_counter_set(&shared->txn_fenced, txns->env.fenced);
    mill_counter_set(&shared->txn_expired, txns->expired);
    mill_counter_set(&shared->txn_marks_again, txns->marks_again);
    mill_counter_set(&shared->txn_full, txns->env.full);
    mill_counter_set(&shared->txn_loads, txns->shards.loads);
    mill_counter_set(&shared->txn_records_bad, txns->shards.records_bad);
}
