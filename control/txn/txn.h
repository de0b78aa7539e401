/* SPDX-License-Identifier: Apache-2.0 */
/* One transactional id, as a pure state machine: what a request may do now, and what the log must
 * have before it is done. Time is an argument, producer ids come through a table.
 *
 *                 add              end                   markers are in the logs
 *   Empty ------> Ongoing ------> PrepareCommit ------> CompleteCommit --+
 *     ^             ^    \------> PrepareAbort  ------> CompleteAbort  --+--- add ---> Ongoing
 *     |             |    end, time-out, another init                     |
 *     +--- init ----+----------------------------------------------------+
 *
 * A call that changes something fills in the values to be written and marks the id as changing; no
 * other change begins until mill_txn_apply (the log has the record) or mill_txn_drop (it has not).
 * A prepared state is the point of no return: from there only the other state of its pair follows,
 * whoever dies when. */
#ifndef MILL_CONTROL_TXN_TXN_H
#define MILL_CONTROL_TXN_TXN_H

#include "base/check.h"
#include "control/txn/set.h"

enum {
    /* An epoch is handed out up to here; the one above is left for fencing its holder. */
    MILL_TXN_EPOCH_MAX = INT16_MAX - 1,
};

/* Numbers are those of Kafka's records. */
enum mill_txn_state {
    MILL_TXN_EMPTY = 0,
    MILL_TXN_ONGOING = 1,
    MILL_TXN_PREPARE_COMMIT = 2,
    MILL_TXN_PREPARE_ABORT = 3,
    MILL_TXN_COMPLETE_COMMIT = 4,
    MILL_TXN_COMPLETE_ABORT = 5,
    MILL_TXN_DEAD = 6, /* its tombstone is on the way */
    MILL_TXN_STATE_COUNT,
};

/* What a transaction of a client is (KIP-890); numbers are those of Kafka's transaction.version. */
enum mill_txn_version {
    MILL_TXN_PLAIN = 0,  /* partitions are added by requests, an epoch lasts */
    MILL_TXN_BUMPED = 2, /* each end gives out the next epoch, or another producer id */
};

/* What a record of the log says of an id. */
struct mill_txn_values {
    enum mill_txn_state state;
    int16_t producer_epoch; /* -1: none was handed out yet */
    int16_t last_epoch;     /* before the last bump that its holder asked for; -1. Not in records */
    int16_t version;        /* enum mill_txn_version, of the transaction */
    int32_t timeout_ms;     /* of a transaction */
    int64_t producer_id;
    int64_t previous_producer_id;    /* before this change; -1 */
    int64_t next_producer_id;        /* from the end of the transaction on; -1: it stays */
    int64_t update_ms;               /* wall clock of the last change */
    int64_t start_ms;                /* of the transaction; -1 none */
    struct mill_txn_set *partitions; /* NULL none; owned */
};

struct mill_txn {
    struct mill_txn *next; /* in its bucket */
    struct mill_txn *shard_next;
    struct mill_txn *shard_prev;
    int32_t shard;                    /* partition of __transaction_state */
    bool changing;                    /* a record is on its way */
    bool adding;                      /* it adds partitions, and ends nothing */
    bool untold;                      /* its partitions are to be granted once more */
    bool telling;                     /* that is under way */
    struct mill_txn_writing *writing; /* txns.c: that record */
    struct mill_txn_marks *marks;     /* marks.c: of a transaction that ends */
    struct mill_txn_values now;
    char id[];
};

/* What all ids share. */
struct mill_txn_env {
    /* A producer id that nobody has. ret: 0, -EAGAIN none at hand. */
    int (*producer_id)(void *context, int64_t *ret_id);
    void *context;
    int64_t timeout_max_ms; /* transaction.max.timeout.ms */
    int64_t expiration_ms;  /* transactional.id.expiration.ms */
    uint64_t bytes;         /* memory of all ids and their partitions */
    uint64_t bytes_max;
    uint64_t timed_out; /* transactions aborted for it */
    uint64_t fenced;    /* requests of producers that another one has replaced */
    uint64_t full;      /* refused at bytes_max, or at the bound of one transaction */
    int64_t now_ms;     /* wall clock */
};

enum mill_txn_step {
    MILL_TXN_ANSWER, /* tell the error now; nothing changes */
    MILL_TXN_WRITE,  /* append the values, apply or drop them, then tell the error */
};

struct mill_txn_holder {
    int64_t producer_id; /* -1: not said */
    int16_t producer_epoch;
};

/* loading: the log has it, so that no bound may keep it out. ret: NULL out of memory, or at the
 * bound (counted). A new id is empty and has no producer id. */
struct mill_txn *mill_txn_new(struct mill_txn_env *env, const char *id, bool loading);
/* NULL is fine. */
void mill_txn_free(struct mill_txn_env *env, struct mill_txn *txn);

/* --- requests: *ret_error is enum mill_kerr ----------------------------------------------------
 */

/* InitProducerId. An ongoing transaction is ended first, its holder fenced: written, and answered
 * with CONCURRENT_TRANSACTIONS, so that the client asks again. */
enum mill_txn_step mill_txn_init(struct mill_txn_env *env, struct mill_txn *txn, int32_t timeout_ms,
                                 const struct mill_txn_holder *holder,
                                 struct mill_txn_values *ret_next, int16_t *ret_error);
/* AddPartitionsToTxn and AddOffsetsToTxn (a partition of __consumer_offsets). */
enum mill_txn_step mill_txn_add(struct mill_txn_env *env, struct mill_txn *txn,
                                const struct mill_txn_holder *holder, enum mill_txn_version version,
                                const struct mill_txn_partition *added, uint32_t added_count,
                                struct mill_txn_values *ret_next, int16_t *ret_error);
/* EndTxn. Version 2 takes an abort also where no transaction is. */
enum mill_txn_step mill_txn_end(struct mill_txn_env *env, struct mill_txn *txn,
                                const struct mill_txn_holder *holder, enum mill_txn_version version,
                                bool commit, struct mill_txn_values *ret_next, int16_t *ret_error);
/* Who writes the next transaction: what an EndTxn of version 2 is answered. */
struct mill_txn_holder mill_txn_next_holder(const struct mill_txn_values *values);
/* Whether the holder may write to the partition now. ret: enum mill_kerr. */
int16_t mill_txn_verify(const struct mill_txn *txn, const struct mill_txn_holder *holder,
                        const struct mill_txn_partition *partition);

/* --- time --------------------------------------------------------------------------------------
 */

/* When the ongoing transaction is aborted, in wall clock; INT64_MAX: none is. */
int64_t mill_txn_due_ms(const struct mill_txn *txn);
/* ret: true when the transaction's time is over: write the values. */
bool mill_txn_time(struct mill_txn_env *env, struct mill_txn *txn,
                   struct mill_txn_values *ret_next);
/* ret: true when the id is idle for so long that it goes: write its tombstone, then apply. */
bool mill_txn_expire(const struct mill_txn_env *env, struct mill_txn *txn,
                     struct mill_txn_values *ret_next);

/* --- the end of a transaction ------------------------------------------------------------------
 */

/* A record is on its way, or markers: what is asked now is to be asked again. */
bool mill_txn_busy(const struct mill_txn *txn);
/* True when markers have to be written, before mill_txn_complete. */
bool mill_txn_prepared(const struct mill_txn *txn);
/* Every partition has its marker. ret: true when the values are to be written; false: a record is
 * on its way already. */
bool mill_txn_complete(const struct mill_txn_env *env, struct mill_txn *txn,
                       struct mill_txn_values *ret_next);

/* --- records -----------------------------------------------------------------------------------
 */

/* The log has them: they are what is. Takes over their partitions. */
void mill_txn_apply(struct mill_txn_env *env, struct mill_txn *txn,
                    const struct mill_txn_values *next);
/* As apply, with what was read in the log; a record that is on its way stays so. */
void mill_txn_restore(struct mill_txn_env *env, struct mill_txn *txn,
                      const struct mill_txn_values *values);
/* The log refused them: nothing changed. With an unknown outcome the caller reads the log, and
 * applies what it finds there. */
void mill_txn_drop(struct mill_txn *txn, const struct mill_txn_values *next);

/* As Kafka's tools print it. */
const char *mill_txn_state_name(enum mill_txn_state state);

#endif
