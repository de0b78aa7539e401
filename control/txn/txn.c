/* SPDX-License-Identifier: Apache-2.0 */
/* One transactional id; see txn.h. Rules: KIP-98 (states, fencing), KIP-360 (a holder bumps its own
 * epoch after an error), KIP-890 part 1 (verification) and 2 (an epoch for each
 * transaction). */
#include "control/txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

/* --- memory ------------------------------------------------------------------------------------
 */

static uint64_t set_bytes(const struct mill_txn_set *set)
{
    return set ? set->size_bytes : 0;
}

static uint64_t txn_bytes(const struct mill_txn *txn)
{
    return sizeof(*txn) + strlen(txn->id) + 1 + set_bytes(txn->now.partitions);
}

struct mill_txn *mill_txn_new(struct mill_txn_env *env, const char *id, bool loading)
{
    size_t id_bytes = strlen(id) + 1;
    if (!loading && env->bytes + sizeof(struct mill_txn) + id_bytes > env->bytes_max) {
        env->full++;
        return NULL;
    }
    struct mill_txn *txn = calloc(1, sizeof(*txn) + id_bytes);
    if (!txn) {
        return NULL;
    }
    txn->now = (struct mill_txn_values){.state = MILL_TXN_EMPTY,
                                        .producer_id = -1,
                                        .previous_producer_id = -1,
                                        .next_producer_id = -1,
                                        .producer_epoch = -1,
                                        .last_epoch = -1,
                                        .start_ms = -1,
                                        .update_ms = env->now_ms};
    memcpy(txn->id, id, id_bytes);
    env->bytes += txn_bytes(txn);
    return txn;
}

void mill_txn_free(struct mill_txn_env *env, struct mill_txn *txn)
{
    if (!txn) {
        return;
    }
    env->bytes -= txn_bytes(txn);
    free(txn->now.partitions);
    free(txn);
}

/* --- changes -----------------------------------------------------------------------------------
 */

static enum mill_txn_step answer(int16_t error, int16_t *ret_error)
{
    *ret_error = error;
    return MILL_TXN_ANSWER;
}

/* From now until the values are applied or dropped nothing else begins. */
static enum mill_txn_step write_next(struct mill_txn *txn, int16_t error, int16_t *ret_error)
{
    *ret_error = error;
    txn->changing = true;
    return MILL_TXN_WRITE;
}

/* The same partitions, of which the values are owner. ret: false no memory. */
static bool keep_partitions(const struct mill_txn *txn, struct mill_txn_values *next)
{
    next->partitions = NULL;
    return !txn->now.partitions ||
           mill_txn_set_join(txn->now.partitions, NULL, 0, &next->partitions) == 0;
}

void mill_txn_apply(struct mill_txn_env *env, struct mill_txn *txn,
                    const struct mill_txn_values *next)
{
    env->bytes = env->bytes - set_bytes(txn->now.partitions) + set_bytes(next->partitions);
    free(txn->now.partitions);
    txn->now = *next;
    txn->changing = false;
    txn->adding = false;
}

void mill_txn_restore(struct mill_txn_env *env, struct mill_txn *txn,
                      const struct mill_txn_values *values)
{
    bool changing = txn->changing;
    bool adding = txn->adding;
    mill_txn_apply(env, txn, values);
    txn->changing = changing;
    txn->adding = adding;
}

void mill_txn_drop(struct mill_txn *txn, const struct mill_txn_values *next)
{
    free(next->partitions);
    txn->changing = false;
    txn->adding = false;
}

static bool is_over(enum mill_txn_state state)
{
    return state == MILL_TXN_EMPTY || state == MILL_TXN_COMPLETE_COMMIT ||
           state == MILL_TXN_COMPLETE_ABORT;
}

bool mill_txn_prepared(const struct mill_txn *txn)
{
    return txn->now.state == MILL_TXN_PREPARE_COMMIT || txn->now.state == MILL_TXN_PREPARE_ABORT;
}

bool mill_txn_busy(const struct mill_txn *txn)
{
    return txn->changing || mill_txn_prepared(txn);
}

/* The present values, as what a change begins with. */
static struct mill_txn_values next_of(const struct mill_txn *txn)
{
    struct mill_txn_values next = txn->now;
    next.previous_producer_id = next.producer_id;
    next.partitions = NULL;
    return next;
}

/* The epoch of the markers: batches of the transaction that come late are below it. When it is the
 * last one, whoever goes on gets another producer id. ret: enum mill_kerr. */
static int16_t bump(struct mill_txn_env *env, struct mill_txn_values *next)
{
#ifndef MILL_MUTANT_TXN_NO_ROTATION
    if (next->producer_epoch >= MILL_TXN_EPOCH_MAX &&
        env->producer_id(env->context, &next->next_producer_id) < 0) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
#endif
    next->last_epoch = next->producer_epoch;
#ifndef MILL_MUTANT_TXN_NO_FENCE
    /* Ids handed out stop below the last epoch, so that this one exists. */
    next->producer_epoch = (int16_t)MILL_MIN(next->producer_epoch + 1, INT16_MAX);
#endif
    return MILL_KERR_NONE;
}

/* The end of a transaction, decided; with version 2 the epoch of who wrote it is out of date, also
 * when it was never begun. */
static enum mill_txn_step prepare(struct mill_txn_env *env, struct mill_txn *txn,
                                  enum mill_txn_version version, bool commit, int16_t error,
                                  struct mill_txn_values *ret_next, int16_t *ret_error)
{
    struct mill_txn_values next = next_of(txn);
    bool ongoing = txn->now.state == MILL_TXN_ONGOING;
    next.state = commit ? MILL_TXN_PREPARE_COMMIT : MILL_TXN_PREPARE_ABORT;
    next.version = (int16_t)version;
    next.start_ms = ongoing ? next.start_ms : env->now_ms;
    next.update_ms = env->now_ms;
    int16_t failed = version >= MILL_TXN_BUMPED ? bump(env, &next) : (int16_t)MILL_KERR_NONE;
    if (failed == MILL_KERR_NONE && ongoing && !keep_partitions(txn, &next)) {
        failed = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (failed != MILL_KERR_NONE) {
        return answer(failed, ret_error);
    }
    *ret_next = next;
    return write_next(txn, error, ret_error);
}

/* --- who asks ----------------------------------------------------------------------------------
 */

static int16_t holder_check(const struct mill_txn *txn, const struct mill_txn_holder *holder)
{
    if (txn->now.producer_epoch < 0 || holder->producer_id != txn->now.producer_id) {
        return MILL_KERR_INVALID_PRODUCER_ID_MAPPING;
    }
#ifdef MILL_MUTANT_TXN_STALE_EPOCH
    return MILL_KERR_NONE;
#endif
    return holder->producer_epoch == txn->now.producer_epoch ? (int16_t)MILL_KERR_NONE
                                                             : (int16_t)MILL_KERR_PRODUCER_FENCED;
}

/* With the count of those who were fenced, and what else is on its way. */
static int16_t may_change(struct mill_txn_env *env, const struct mill_txn *txn, int16_t error)
{
    env->fenced += error == MILL_KERR_PRODUCER_FENCED;
#ifdef MILL_MUTANT_TXN_TWO_CHANGES
    return error;
#endif
    return error == MILL_KERR_NONE && txn->changing ? (int16_t)MILL_KERR_CONCURRENT_TRANSACTIONS
                                                    : error;
}

/* --- InitProducerId ----------------------------------------------------------------------------
 */

/* Whether a client that says who it was is the present holder, or was before ids were changed. */
static bool init_holder_known(const struct mill_txn_values *now,
                              const struct mill_txn_holder *holder)
{
    return holder->producer_id < 0 || now->producer_epoch < 0 ||
           holder->producer_id == now->producer_id ||
           (holder->producer_id == now->previous_producer_id &&
            holder->producer_epoch >= MILL_TXN_EPOCH_MAX);
}

/* Another producer id, epoch 0. ret: enum mill_kerr. */
static int16_t init_rotate(struct mill_txn_env *env, const struct mill_txn_holder *holder,
                           struct mill_txn_values *next)
{
    int64_t id = -1;
    if (env->producer_id(env->context, &id) < 0) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    next->last_epoch = holder->producer_id >= 0 ? next->producer_epoch : (int16_t)-1;
    next->previous_producer_id = next->producer_id >= 0 ? next->producer_id : id;
    next->producer_id = id;
    next->producer_epoch = 0;
    return MILL_KERR_NONE;
}

/* The epoch that the client gets. ret: enum mill_kerr. */
static int16_t init_epoch(struct mill_txn_env *env, const struct mill_txn_holder *holder,
                          struct mill_txn_values *next)
{
    bool said = holder->producer_id >= 0;
    bool present =
        !said || next->producer_epoch < 0 || holder->producer_epoch == next->producer_epoch;
    if (next->producer_epoch < 0) {
        return init_rotate(env, &(struct mill_txn_holder){.producer_id = -1}, next);
    }
    if (!present) {
        /* It asks again: the answer to its first bump was lost. */
        return holder->producer_epoch >= 0 && holder->producer_epoch == next->last_epoch
                   ? (int16_t)MILL_KERR_NONE
                   : (int16_t)MILL_KERR_PRODUCER_FENCED;
    }
    if (next->producer_epoch >= MILL_TXN_EPOCH_MAX) {
        return init_rotate(env, holder, next);
    }
    next->last_epoch = said ? next->producer_epoch : (int16_t)-1;
    next->producer_epoch++;
    return MILL_KERR_NONE;
}

enum mill_txn_step mill_txn_init(struct mill_txn_env *env, struct mill_txn *txn, int32_t timeout_ms,
                                 const struct mill_txn_holder *holder,
                                 struct mill_txn_values *ret_next, int16_t *ret_error)
{
    if (timeout_ms <= 0 || timeout_ms > env->timeout_max_ms) {
        return answer(MILL_KERR_INVALID_TRANSACTION_TIMEOUT, ret_error);
    }
    if (txn->changing) {
        return answer(MILL_KERR_CONCURRENT_TRANSACTIONS, ret_error);
    }
    if (!init_holder_known(&txn->now, holder)) {
        env->fenced++;
        return answer(MILL_KERR_PRODUCER_FENCED, ret_error);
    }
    if (txn->now.state == MILL_TXN_ONGOING) {
        return prepare(env, txn, MILL_TXN_BUMPED, false, MILL_KERR_CONCURRENT_TRANSACTIONS,
                       ret_next, ret_error);
    }
    if (!is_over(txn->now.state)) {
        return answer(MILL_KERR_CONCURRENT_TRANSACTIONS, ret_error);
    }
    struct mill_txn_values next = next_of(txn);
    int16_t error = init_epoch(env, holder, &next);
    if (error != MILL_KERR_NONE) {
        env->fenced += error == MILL_KERR_PRODUCER_FENCED;
        return answer(error, ret_error);
    }
    next.state = MILL_TXN_EMPTY;
    next.timeout_ms = timeout_ms;
    next.update_ms = env->now_ms;
    next.start_ms = -1;
    *ret_next = next;
    return write_next(txn, MILL_KERR_NONE, ret_error);
}

/* --- partitions --------------------------------------------------------------------------------
 */

static bool has_all(const struct mill_txn_set *set, const struct mill_txn_partition *added,
                    uint32_t added_count)
{
    for (uint32_t i = 0; i < added_count; i++) {
        if (!mill_txn_set_has(set, &added[i])) {
            return false;
        }
    }
    return true;
}

enum mill_txn_step mill_txn_add(struct mill_txn_env *env, struct mill_txn *txn,
                                const struct mill_txn_holder *holder, enum mill_txn_version version,
                                const struct mill_txn_partition *added, uint32_t added_count,
                                struct mill_txn_values *ret_next, int16_t *ret_error)
{
    /* Before anything else: who asks may have an id that comes with the end that is under way. */
    if (mill_txn_prepared(txn)) {
        return answer(MILL_KERR_CONCURRENT_TRANSACTIONS, ret_error);
    }
    int16_t error = may_change(env, txn, holder_check(txn, holder));
    if (error != MILL_KERR_NONE) {
        return answer(error, ret_error);
    }
    if (txn->now.state == MILL_TXN_DEAD) {
        return answer(MILL_KERR_CONCURRENT_TRANSACTIONS, ret_error);
    }
    bool ongoing = txn->now.state == MILL_TXN_ONGOING;
    if (ongoing && has_all(txn->now.partitions, added, added_count)) {
        return answer(MILL_KERR_NONE, ret_error);
    }
    struct mill_txn_values next = next_of(txn);
    int rc = mill_txn_set_join(ongoing ? txn->now.partitions : NULL, added, added_count,
                               &next.partitions);
    bool full =
        rc == -E2BIG || (rc == 0 && env->bytes + next.partitions->size_bytes > env->bytes_max);
    if (rc < 0 || full) {
        env->full += full;
        if (rc == 0) {
            free(next.partitions);
        }
        return answer(rc == -E2BIG ? (int16_t)MILL_KERR_POLICY_VIOLATION
                                   : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE,
                      ret_error);
    }
    next.state = MILL_TXN_ONGOING;
    next.version = (int16_t)version;
    next.start_ms = ongoing ? next.start_ms : env->now_ms;
    next.update_ms = env->now_ms;
    *ret_next = next;
#ifndef MILL_MUTANT_TXN_VERIFY_NEVER_ADDING
    txn->adding = true;
#endif
    return write_next(txn, MILL_KERR_NONE, ret_error);
}

int16_t mill_txn_verify(const struct mill_txn *txn, const struct mill_txn_holder *holder,
                        const struct mill_txn_partition *partition)
{
    int16_t error = holder_check(txn, holder);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    bool there =
        txn->now.state == MILL_TXN_ONGOING && mill_txn_set_has(txn->now.partitions, partition);
#ifndef MILL_MUTANT_TXN_VERIFY_LATE
    /* What is being ended gets no more records, also when the record of its end is not yet there.
     * Another add takes nothing away from it, but may be the one of this partition. */
    if (mill_txn_prepared(txn) || (txn->changing && !(txn->adding && there))) {
        return MILL_KERR_CONCURRENT_TRANSACTIONS;
    }
#endif
    return there ? (int16_t)MILL_KERR_NONE : (int16_t)MILL_KERR_TRANSACTION_ABORTABLE;
}

/* --- the end -----------------------------------------------------------------------------------
 */

/* The holder's last EndTxn of version 2 is the one that ended this, or will. An end of version 1
 * gave out no epoch: the one above the holder's is another client's then. */
static bool is_end_again(const struct mill_txn_values *now, const struct mill_txn_holder *holder)
{
#ifndef MILL_MUTANT_TXN_AGAIN_ANY_VERSION
    if (now->version < MILL_TXN_BUMPED) {
        return false;
    }
#endif
    bool rotated = now->previous_producer_id == holder->producer_id &&
                   now->previous_producer_id != now->producer_id &&
                   holder->producer_epoch == MILL_TXN_EPOCH_MAX && now->producer_epoch == 0;
    return rotated || (holder->producer_id == now->producer_id &&
                       now->producer_epoch == holder->producer_epoch + 1);
}

/* As holder_check: who has the present epoch, and who asks again for an end that was decided. */
static int16_t end_holder_check(const struct mill_txn *txn, const struct mill_txn_holder *holder)
{
    const struct mill_txn_values *now = &txn->now;
    const struct mill_txn_holder present = mill_txn_next_holder(now);
    bool again = is_end_again(now, holder);
    if (now->producer_epoch < 0 || (!again && holder->producer_id != now->producer_id &&
                                    holder->producer_id != present.producer_id)) {
        return MILL_KERR_INVALID_PRODUCER_ID_MAPPING;
    }
#ifdef MILL_MUTANT_TXN_STALE_EPOCH
    return MILL_KERR_NONE;
#endif
    bool ended = now->state != MILL_TXN_ONGOING && now->state != MILL_TXN_EMPTY;
    bool good = (ended && again) || (holder->producer_id == present.producer_id &&
                                     holder->producer_epoch == present.producer_epoch);
    return good ? (int16_t)MILL_KERR_NONE : (int16_t)MILL_KERR_PRODUCER_FENCED;
}

static enum mill_txn_step end_bumped(struct mill_txn_env *env, struct mill_txn *txn,
                                     const struct mill_txn_holder *holder, bool commit,
                                     struct mill_txn_values *ret_next, int16_t *ret_error)
{
    int16_t error = may_change(env, txn, end_holder_check(txn, holder));
    if (error != MILL_KERR_NONE) {
        return answer(error, ret_error);
    }
    enum mill_txn_state state = txn->now.state;
    bool committed = state == MILL_TXN_PREPARE_COMMIT || state == MILL_TXN_COMPLETE_COMMIT;
    bool again = is_end_again(&txn->now, holder);
    if (mill_txn_prepared(txn) && !again) {
        /* It has the end's answer already, and its next transaction is over before it began. */
        return answer(MILL_KERR_CONCURRENT_TRANSACTIONS, ret_error);
    }
    if (state == MILL_TXN_ONGOING || (is_over(state) && !again && !commit)) {
        return prepare(env, txn, MILL_TXN_BUMPED, commit, MILL_KERR_NONE, ret_next, ret_error);
    }
    if (!again || commit != committed) {
        return answer(MILL_KERR_INVALID_TXN_STATE, ret_error);
    }
    return answer(mill_txn_prepared(txn) ? (int16_t)MILL_KERR_CONCURRENT_TRANSACTIONS
                                         : (int16_t)MILL_KERR_NONE,
                  ret_error);
}

struct mill_txn_holder mill_txn_next_holder(const struct mill_txn_values *values)
{
    bool rotates = values->next_producer_id >= 0;
    return (struct mill_txn_holder){
        .producer_id = rotates ? values->next_producer_id : values->producer_id,
        .producer_epoch = rotates ? (int16_t)0 : values->producer_epoch};
}

enum mill_txn_step mill_txn_end(struct mill_txn_env *env, struct mill_txn *txn,
                                const struct mill_txn_holder *holder, enum mill_txn_version version,
                                bool commit, struct mill_txn_values *ret_next, int16_t *ret_error)
{
    if (version >= MILL_TXN_BUMPED) {
        return end_bumped(env, txn, holder, commit, ret_next, ret_error);
    }
    int16_t error = may_change(env, txn, holder_check(txn, holder));
    if (error != MILL_KERR_NONE) {
        return answer(error, ret_error);
    }
    switch (txn->now.state) {
    case MILL_TXN_ONGOING:
        return prepare(env, txn, MILL_TXN_PLAIN, commit, MILL_KERR_NONE, ret_next, ret_error);
    case MILL_TXN_PREPARE_COMMIT:
    case MILL_TXN_PREPARE_ABORT:
        return answer(commit == (txn->now.state == MILL_TXN_PREPARE_COMMIT)
                          ? (int16_t)MILL_KERR_CONCURRENT_TRANSACTIONS
                          : (int16_t)MILL_KERR_INVALID_TXN_STATE,
                      ret_error);
    case MILL_TXN_COMPLETE_COMMIT:
    case MILL_TXN_COMPLETE_ABORT:
        return answer(commit == (txn->now.state == MILL_TXN_COMPLETE_COMMIT)
                          ? (int16_t)MILL_KERR_NONE
                          : (int16_t)MILL_KERR_INVALID_TXN_STATE,
                      ret_error);
    default:
        return answer(MILL_KERR_INVALID_TXN_STATE, ret_error);
    }
}

bool mill_txn_complete(const struct mill_txn_env *env, struct mill_txn *txn,
                       struct mill_txn_values *ret_next)
{
    MILL_ASSERT(mill_txn_prepared(txn));
    if (txn->changing) {
        return false;
    }
    struct mill_txn_holder holder = mill_txn_next_holder(&txn->now);
    *ret_next = next_of(txn);
    ret_next->state = txn->now.state == MILL_TXN_PREPARE_COMMIT ? MILL_TXN_COMPLETE_COMMIT
                                                                : MILL_TXN_COMPLETE_ABORT;
    ret_next->producer_id = holder.producer_id;
    ret_next->producer_epoch = holder.producer_epoch;
    ret_next->next_producer_id = -1;
    ret_next->update_ms = env->now_ms;
    txn->changing = true;
    return true;
}

/* --- time --------------------------------------------------------------------------------------
 */

int64_t mill_txn_due_ms(const struct mill_txn *txn)
{
    return txn->now.state == MILL_TXN_ONGOING ? txn->now.start_ms + txn->now.timeout_ms : INT64_MAX;
}

bool mill_txn_time(struct mill_txn_env *env, struct mill_txn *txn, struct mill_txn_values *ret_next)
{
    int16_t error = MILL_KERR_NONE;
    if (txn->changing || mill_txn_due_ms(txn) > env->now_ms ||
        prepare(env, txn, MILL_TXN_BUMPED, false, MILL_KERR_NONE, ret_next, &error) !=
            MILL_TXN_WRITE) {
        return false;
    }
    env->timed_out++;
    return true;
}

bool mill_txn_expire(const struct mill_txn_env *env, struct mill_txn *txn,
                     struct mill_txn_values *ret_next)
{
    if (txn->changing || !is_over(txn->now.state) ||
        txn->now.update_ms > env->now_ms - env->expiration_ms) {
        return false;
    }
    *ret_next = next_of(txn);
    ret_next->state = MILL_TXN_DEAD;
    txn->changing = true;
    return true;
}

const char *mill_txn_state_name(enum mill_txn_state state)
{
    static const char *const names[MILL_TXN_STATE_COUNT] = {
        "Empty",          "Ongoing",       "PrepareCommit", "PrepareAbort",
        "CompleteCommit", "CompleteAbort", "Dead",
    };
    return (unsigned)state < MILL_TXN_STATE_COUNT ? names[state] : "Unknown";
}
