/* SPDX-License-Identifier: Apache-2.0 */
/* All transactional ids of this coordinator, and __transaction_state behind them: loading, storing,
 * markers to every partition of a transaction that ends, time-outs, expiry. What a client is told
 * of a change, it is told after the log has the record; a transaction whose end is in the log is
 * ended everywhere, whoever is killed when: markers are sent again until each partition has its
 * own.
 *
 * Control's thread; bounded by limits that are counted. */
#ifndef MILL_CONTROL_TXN_TXNS_H
#define MILL_CONTROL_TXN_TXNS_H

#include "base/clock.h"
#include "control/journal/shards.h"
#include "control/txn/txn.h"
#include "ipc/counters.h"

enum {
    MILL_TXN_BYTES_MAX = 256 << 20, /* memory of ids and their partitions */
};

struct mill_txn_marks; /* the markers of one transaction */
struct mill_txn_wait;  /* see waits.h */

struct mill_txns {
    struct mill_txn_env env;
    struct mill_shards shards;
    struct mill_txn **buckets;
    uint64_t key[2]; /* of the hash table */
    uint32_t count;
    struct mill_txn_wait *waits; /* adds that wait for the end of a transaction, oldest first */
    struct mill_txn_wait **waits_last;
    uint32_t waits_count;
    bool waits_look;              /* some transaction ended */
    int64_t timeouts_interval_ms; /* between looks for transactions whose time is over */
    int64_t expiry_interval_ms;   /* and for idle ids */
    uint64_t now_ns;
    uint64_t timeouts_due_ns;
    uint64_t expiry_due_ns;
    struct mill_txn_marks *marks; /* of all transactions that end */
    bool told;                    /* this millraced has the grants of all that are under way */
    uint64_t tell_due_ns;
    void (*ended)(void *context, const char *topic, int32_t partition, int64_t producer_id,
                  bool commit);
    void *ended_context;
    uint64_t marks_again; /* markers that had to be sent once more */
    uint64_t expired;
};

struct mill_txns_options {
    struct mill_journal *journal;
    const struct mill_topics *topics;
    /* Of struct mill_txn_env. */
    int (*producer_id)(void *context, int64_t *ret_id);
    void *context;
    int64_t timeout_max_ms;
    int64_t expiration_ms;
    uint64_t bytes_max;
    int64_t timeouts_interval_ms;
    int64_t expiry_interval_ms;
    uint64_t key[2]; /* random */
    /* A marker of the producer is in that partition's log. NULL: nobody asks. */
    void (*ended)(void *context, const char *topic, int32_t partition, int64_t producer_id,
                  bool commit);
    void *ended_context;
};

/* ret: 0, -ENOMEM. */
int mill_txns_open(struct mill_txns *txns,
                   const struct mill_txns_options *options) MILL_WARN_UNUSED;
/* After the journal was closed. */
void mill_txns_close(struct mill_txns *txns);
/* Another millraced runs: it has to be told again what was granted. */
void mill_txns_attach(struct mill_txns *txns);
/* True once every partition of every transaction under way was granted to the present millraced. */
bool mill_txns_told(const struct mill_txns *txns);
/* A value of the counters' list (MILL_TXN_COUNTERS). */
void mill_txns_publish(const struct mill_txns *txns, struct mill_shared_control *shared);
/* Loads, sends markers, looks at time. ret: when the next look is due. */
uint64_t mill_txns_step(struct mill_txns *txns, const struct mill_now *now);

/* --- requests: done is called once, at once or later --------------------------------------------
 */

/* error: enum mill_kerr. now: what is, without an error; of EndTxn, what it became. */
typedef void (*mill_txns_done)(void *context, int16_t error, const struct mill_txn_values *now);

void mill_txns_init(struct mill_txns *txns, const char *id, int32_t timeout_ms,
                    const struct mill_txn_holder *holder, mill_txns_done done, void *context);
/* version 2: waits for the end of the id's transaction before, for a while. */
void mill_txns_add(struct mill_txns *txns, const char *id, const struct mill_txn_holder *holder,
                   enum mill_txn_version version, const struct mill_txn_partition *added,
                   uint32_t added_count, mill_txns_done done, void *context);
void mill_txns_end(struct mill_txns *txns, const char *id, const struct mill_txn_holder *holder,
                   enum mill_txn_version version, bool commit, mill_txns_done done, void *context);
/* Whether each partition belongs to the transaction: the first that does not speaks for all.
 * ret: enum mill_kerr. */
int16_t mill_txns_verify(const struct mill_txns *txns, const char *id,
                         const struct mill_txn_holder *holder,
                         const struct mill_txn_partition *partitions, uint32_t count);

/* ret: NULL unknown. */
struct mill_txn *mill_txns_find(const struct mill_txns *txns, const char *id);

#endif
