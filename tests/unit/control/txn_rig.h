/* SPDX-License-Identifier: Apache-2.0 */
/* One transactional id whose records the log takes at once, for tests of its rules. */
#ifndef MILL_TESTS_UNIT_CONTROL_TXN_RIG_H
#define MILL_TESTS_UNIT_CONTROL_TXN_RIG_H

#include "tests/unit/test.h"

#include <errno.h>

#include "control/txn/txn.h"
#include "protocol/errors.h"

enum {
    TIMEOUT_MS = 60000,
    TIMEOUT_MAX_MS = 900000,
    EXPIRATION_MS = 604800000,
};

struct rig {
    struct mill_txn_env env;
    struct mill_txn *txn;
    struct mill_txn_values next; /* of the last step that writes */
    int16_t error;               /* of the last step */
    int64_t ids;                 /* producer ids that were given */
    bool no_ids;
};

static inline int producer_id(void *context, int64_t *ret_id)
{
    struct rig *rig = context;
    if (rig->no_ids) {
        return -EAGAIN;
    }
    *ret_id = 1000 + rig->ids++;
    return 0;
}

static inline void rig_open(struct rig *rig)
{
    *rig = (struct rig){.env = {.producer_id = producer_id,
                                .timeout_max_ms = TIMEOUT_MAX_MS,
                                .expiration_ms = EXPIRATION_MS,
                                .bytes_max = 64 << 20,
                                .now_ms = 1}};
    rig->env.context = rig;
    rig->txn = mill_txn_new(&rig->env, "id", false);
    assert_non_null(rig->txn);
}

static inline void rig_close(struct rig *rig)
{
    mill_txn_free(&rig->env, rig->txn);
    assert_int_equal(rig->env.bytes, 0);
}

/* --- requests, whose records the log takes at once ---------------------------------------------
 */

static inline int16_t taken(struct rig *rig, enum mill_txn_step step)
{
    if (step == MILL_TXN_WRITE) {
        mill_txn_apply(&rig->env, rig->txn, &rig->next);
    }
    return rig->error;
}

static inline int16_t init(struct rig *rig, int64_t id, int16_t epoch)
{
    struct mill_txn_holder holder = {id, epoch};
    return taken(rig,
                 mill_txn_init(&rig->env, rig->txn, TIMEOUT_MS, &holder, &rig->next, &rig->error));
}

static inline int16_t add_of(struct rig *rig, enum mill_txn_version version, int64_t id,
                             int16_t epoch, const char *topic, int32_t index)
{
    struct mill_txn_holder holder = {id, epoch};
    struct mill_txn_partition partition = {topic, index};
    return taken(rig, mill_txn_add(&rig->env, rig->txn, &holder, version, &partition, 1, &rig->next,
                                   &rig->error));
}

static inline int16_t end_of(struct rig *rig, enum mill_txn_version version, int64_t id,
                             int16_t epoch, bool commit)
{
    struct mill_txn_holder holder = {id, epoch};
    return taken(
        rig, mill_txn_end(&rig->env, rig->txn, &holder, version, commit, &rig->next, &rig->error));
}

static inline int16_t add(struct rig *rig, int64_t id, int16_t epoch, const char *topic,
                          int32_t index)
{
    return add_of(rig, MILL_TXN_PLAIN, id, epoch, topic, index);
}

static inline int16_t end(struct rig *rig, int64_t id, int16_t epoch, bool commit)
{
    return end_of(rig, MILL_TXN_PLAIN, id, epoch, commit);
}

static inline int16_t verify(const struct rig *rig, int64_t id, int16_t epoch, const char *topic,
                             int32_t index)
{
    struct mill_txn_holder holder = {id, epoch};
    struct mill_txn_partition partition = {topic, index};
    return mill_txn_verify(rig->txn, &holder, &partition);
}

static inline void complete(struct rig *rig)
{
    assert_true(mill_txn_prepared(rig->txn));
    assert_true(mill_txn_complete(&rig->env, rig->txn, &rig->next));
    mill_txn_apply(&rig->env, rig->txn, &rig->next);
}

#endif
