/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: clients that share one transactional id never both go on, and each record may follow the
 * one before it. Method: seeded clients over a log that takes, refuses or forgets to say so, while
 * whoever keeps the state is killed and reads the log again. */
#include "tests/unit/control/txn_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/unit/control/txn_record.h"

enum {
    CLIENTS = 3,
    PARTITIONS = 6,
    SEEDS = 200,
    STEPS = 2000,
};

enum asked {
    ASKED_INIT,
    ASKED_ADD,
    ASKED_COMMIT,
    ASKED_ABORT,
    ASKED_BROKER, /* time, and what follows markers */
};

/* What the log has last, as bytes, and what that must be. */
struct model {
    struct rig rig;
    struct mill_random random;
    uint8_t value[1024];
    uint32_t value_bytes;        /* 0: no record yet */
    struct mill_txn_values last; /* as decoded; without partitions */
    uint32_t added;              /* partitions of the transaction, a bit each */
    int owner;                   /* client that has the present epoch; -1 nobody */
    int heir; /* whose transaction a time-out or another client ended: it may hear of that */
    enum mill_txn_version versions[CLIENTS]; /* of their present transactions */
    struct mill_txn_holder held[CLIENTS];
    bool writing;
    enum asked asked;
    int client;
    uint32_t adding;
    uint32_t commits;
    uint32_t fenced;
    uint32_t recovered;
    uint32_t again; /* ends that were asked for again */
};

static const char *const topics[] = {"a", "b"};

static struct mill_txn_partition partition_of(uint32_t bit)
{
    return (struct mill_txn_partition){topics[bit % 2], (int32_t)bit / 2};
}

static uint32_t bits_of(const struct mill_txn_set *set)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        struct mill_txn_partition partition = partition_of(i);
        bits |= mill_txn_set_has(set, &partition) ? 1u << i : 0;
    }
    return bits;
}

/* Each record against the one before it. */
static void check_record(const struct model *model, const struct mill_txn_values *next)
{
    static const bool legal[MILL_TXN_STATE_COUNT][MILL_TXN_STATE_COUNT] = {
        [MILL_TXN_EMPTY] =
            {[MILL_TXN_EMPTY] = true, [MILL_TXN_ONGOING] = true, [MILL_TXN_PREPARE_ABORT] = true},
        [MILL_TXN_ONGOING] = {[MILL_TXN_ONGOING] = true,
                              [MILL_TXN_PREPARE_COMMIT] = true,
                              [MILL_TXN_PREPARE_ABORT] = true},
        [MILL_TXN_PREPARE_COMMIT] = {[MILL_TXN_COMPLETE_COMMIT] = true},
        [MILL_TXN_PREPARE_ABORT] = {[MILL_TXN_COMPLETE_ABORT] = true},
        [MILL_TXN_COMPLETE_COMMIT] =
            {[MILL_TXN_EMPTY] = true, [MILL_TXN_ONGOING] = true, [MILL_TXN_PREPARE_ABORT] = true},
        [MILL_TXN_COMPLETE_ABORT] =
            {[MILL_TXN_EMPTY] = true, [MILL_TXN_ONGOING] = true, [MILL_TXN_PREPARE_ABORT] = true},
    };
    const struct mill_txn_values *last = &model->last;
    if (model->value_bytes == 0) {
        assert_int_equal(next->state, MILL_TXN_EMPTY);
        return;
    }
    assert_true(legal[last->state][next->state]);
    assert_true(
        next->producer_id > last->producer_id ||
        (next->producer_id == last->producer_id && next->producer_epoch >= last->producer_epoch));
    if (last->state == MILL_TXN_PREPARE_COMMIT || last->state == MILL_TXN_PREPARE_ABORT) {
        assert_int_equal(next->producer_epoch, last->producer_epoch);
    }
    if (next->state == MILL_TXN_PREPARE_COMMIT || next->state == MILL_TXN_PREPARE_ABORT) {
        assert_int_equal(bits_of(next->partitions),
                         last->state == MILL_TXN_ONGOING ? model->added : 0);
        /* Batches of this transaction that come late are known by their epoch. */
        assert_true(next->version < MILL_TXN_BUMPED || next->producer_epoch > last->producer_epoch);
    }
}

/* The log takes what is on its way. */
static void model_append(struct model *model)
{
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    const struct mill_txn_values *next = &model->rig.next;
    check_record(model, next);
    uint8_t *bytes = mill_txn_value_write(&pool, next, &model->value_bytes);
    assert_non_null(bytes);
    assert_true(model->value_bytes <= sizeof(model->value));
    memcpy(model->value, bytes, model->value_bytes);
    mill_pool_clear(&pool);
    bool bumped = model->last.producer_id != next->producer_id ||
                  model->last.producer_epoch != next->producer_epoch;
    bool ended = model->asked == ASKED_COMMIT || model->asked == ASKED_ABORT;
    if (model->asked == ASKED_INIT && next->state == MILL_TXN_EMPTY) {
        model->owner = model->client;
        model->heir = -1;
    } else if (bumped && !ended) {
        model->heir = model->owner;
        model->owner = -1;
    }
    bool ongoing = model->last.state == MILL_TXN_ONGOING;
    if (model->asked == ASKED_ADD) {
        model->added = (ongoing ? model->added : 0) | model->adding;
    }
    model->last = *next;
    model->last.partitions = NULL;
}

/* Whoever kept the state is gone: another one reads the log. */
static void model_reload(struct model *model)
{
    struct rig *rig = &model->rig;
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    struct mill_txn_record got;
    struct raw raw;
    mill_txn_free(&rig->env, rig->txn);
    assert_int_equal(rig->env.bytes, 0);
    rig->txn = mill_txn_new(&rig->env, "id", false);
    assert_non_null(rig->txn);
    if (model->value_bytes > 0) {
        assert_int_equal(mill_txn_record_read(raw_record(&raw, key_by_hand, sizeof(key_by_hand),
                                                         model->value, (int32_t)model->value_bytes),
                                              &pool, &got),
                         0);
        assert_int_equal(
            mill_txn_set_join(NULL, got.partitions, got.partitions_count, &got.values.partitions),
            0);
        mill_txn_apply(&rig->env, rig->txn, &got.values);
    }
    mill_pool_clear(&pool);
    model->recovered++;
}

/* The client hears of what was written. */
static void model_tell(struct model *model)
{
    const struct mill_txn_values *now = &model->rig.txn->now;
    if (model->asked == ASKED_INIT && model->rig.error == MILL_KERR_NONE) {
        model->held[model->client] =
            (struct mill_txn_holder){now->producer_id, now->producer_epoch};
    }
    if (model->asked == ASKED_COMMIT) {
        assert_int_equal(now->state, MILL_TXN_PREPARE_COMMIT);
        model->commits++;
    }
    if ((model->asked == ASKED_COMMIT || model->asked == ASKED_ABORT)) {
        model->held[model->client] = mill_txn_next_holder(now);
    }
}

/* What the log says of the record that is on its way: taken, refused, or nothing. */
static void model_outcome(struct model *model)
{
    struct rig *rig = &model->rig;
    uint32_t kind = mill_random_below(&model->random, 10);
    model->writing = false;
    if (kind < 7) {
        model_append(model);
        mill_txn_apply(&rig->env, rig->txn, &rig->next);
        if (kind > 0) { /* the answer may be lost */
            model_tell(model);
        }
        return;
    }
    if (kind == 7) {
        model_append(model); /* in the log, but nobody knows */
    }
    mill_txn_drop(rig->txn, &rig->next);
    if (kind != 8) {
        model_reload(model);
    }
}

static void model_step(struct model *model, enum mill_txn_step step, enum asked asked, int client)
{
    const struct rig *rig = &model->rig;
    bool fine = step == MILL_TXN_WRITE || rig->error == MILL_KERR_NONE;
    if (fine && step == MILL_TXN_ANSWER && asked == ASKED_ABORT && client == model->heir) {
        assert_int_equal(rig->txn->now.state, MILL_TXN_COMPLETE_ABORT);
        model->owner = client; /* it goes on with the epoch that nobody has */
        model->heir = -1;
    }
    if (fine && (asked == ASKED_ADD || asked == ASKED_COMMIT || asked == ASKED_ABORT)) {
        assert_int_equal(client, model->owner); /* nobody else changes anything */
    }
    if (fine && step == MILL_TXN_ANSWER && (asked == ASKED_COMMIT || asked == ASKED_ABORT)) {
        model->held[client] = mill_txn_next_holder(&rig->txn->now); /* told once more */
        model->again++;
    }
    model->fenced += rig->error == MILL_KERR_PRODUCER_FENCED;
    if (step == MILL_TXN_WRITE) {
        assert_false(model->writing);
        model->writing = true;
        model->asked = asked;
        model->client = client;
    }
}

static void model_client(struct model *model)
{
    struct rig *rig = &model->rig;
    int client = (int)mill_random_below(&model->random, CLIENTS);
    if (model->owner >= 0 && mill_random_below(&model->random, 4) > 0) {
        client = model->owner; /* those who were fenced try less often */
    }
    struct mill_txn_holder *holder = &model->held[client];
    uint32_t kind = mill_random_below(&model->random, 12);
    uint32_t bit = mill_random_below(&model->random, PARTITIONS);
    struct mill_txn_partition partition = partition_of(bit);
    if (kind == 0) {
        struct mill_txn_holder said = *holder;
        if (mill_random_below(&model->random, 2) == 0) {
            said = (struct mill_txn_holder){-1, -1};
        }
        model_step(model,
                   mill_txn_init(&rig->env, rig->txn, TIMEOUT_MS, &said, &rig->next, &rig->error),
                   ASKED_INIT, client);
    } else if (kind < 8) {
        struct mill_txn_values next;
        if (rig->txn->now.state != MILL_TXN_ONGOING) {
            model->versions[client] =
                mill_random_below(&model->random, 2) == 0 ? MILL_TXN_PLAIN : MILL_TXN_BUMPED;
        }
        enum mill_txn_step step = mill_txn_add(&rig->env, rig->txn, holder, model->versions[client],
                                               &partition, 1, &next, &rig->error);
        if (step == MILL_TXN_WRITE) {
            rig->next = next;
            model->adding = 1u << bit;
        }
        model_step(model, step, ASKED_ADD, client);
    } else if (kind < 10) {
        bool commit = kind == 8;
        model_step(model,
                   mill_txn_end(&rig->env, rig->txn, holder, model->versions[client], commit,
                                &rig->next, &rig->error),
                   commit ? ASKED_COMMIT : ASKED_ABORT, client);
    } else if (mill_txn_verify(rig->txn, holder, &partition) == MILL_KERR_NONE) {
        assert_true(!model->writing || model->asked == ASKED_ADD);
        assert_int_equal(client, model->owner);
        assert_int_equal(model->last.state, MILL_TXN_ONGOING);
        assert_true(model->added & (1u << bit));
    }
}

static void model_broker(struct model *model)
{
    struct rig *rig = &model->rig;
    bool write = mill_txn_prepared(rig->txn) ? mill_txn_complete(&rig->env, rig->txn, &rig->next)
                                             : mill_txn_time(&rig->env, rig->txn, &rig->next);
    if (write) {
        model_step(model, MILL_TXN_WRITE, ASKED_BROKER, -1);
    }
}

static void model_run(uint64_t seed, struct model *model)
{
    *model = (struct model){.random = {.state = seed}, .owner = -1, .heir = -1};
    rig_open(&model->rig);
    for (int i = 0; i < CLIENTS; i++) {
        model->held[i] = (struct mill_txn_holder){-1, -1};
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        model->rig.env.now_ms += mill_random_below(&model->random, 2000);
        /* Most of the time the log answers first; sometimes others ask meanwhile. */
        if (model->writing && mill_random_below(&model->random, 3) > 0) {
            model_outcome(model);
        } else if (mill_random_below(&model->random, 4) == 0) {
            model_broker(model);
        } else {
            model_client(model);
        }
    }
    if (model->writing) {
        mill_txn_drop(model->rig.txn, &model->rig.next);
    }
    rig_close(&model->rig);
}

static void test_clients_share_an_id(void **state)
{
    MILL_UNUSED(state);
    static struct model model;
    uint32_t commits = 0;
    uint32_t fenced = 0;
    uint32_t recovered = 0;
    uint32_t again = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        model_run(seed, &model);
        commits += model.commits;
        fenced += model.fenced;
        recovered += model.recovered;
        again += model.again;
    }
    print_message("commits=%u fenced=%u recovered=%u again=%u\n", commits, fenced, recovered,
                  again);
    /* It has met what it is about. */
    assert_true(commits > SEEDS && fenced > SEEDS && recovered > SEEDS && again > SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients_share_an_id)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
