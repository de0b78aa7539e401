/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: one transactional id as clients know it: who gets which epoch, who is fenced, what may
 * follow what, when time is over; and its records, which Kafka has to read. Method: the state
 * machine alone, tables of requests, records written by hand; and seeded clients that share one id,
 * over a log that takes, refuses or forgets to say so, while whoever keeps the state is killed and
 * reads the log again. */
#include "tests/unit/control/txn_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "control/txn/records.h"

enum {
    CLIENTS = 3,
    PARTITIONS = 6,
    SEEDS = 200,
    STEPS = 2000,
};

static void test_commit_of_one(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(add(&rig, 1000, 0, "t", 0), MILL_KERR_INVALID_PRODUCER_ID_MAPPING);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.producer_id, 1000);
    assert_int_equal(rig.txn->now.producer_epoch, 0);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_INVALID_TXN_STATE);
    rig.env.now_ms = 5;
    assert_int_equal(add(&rig, 1000, 0, "t", 2), MILL_KERR_NONE);
    rig.env.now_ms = 6;
    assert_int_equal(add(&rig, 1000, 0, "s", 1), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.state, MILL_TXN_ONGOING);
    assert_int_equal(rig.txn->now.start_ms, 5);
    assert_int_equal(rig.txn->now.partitions->count, 2);
    assert_int_equal(verify(&rig, 1000, 0, "t", 2), MILL_KERR_NONE);
    assert_int_equal(verify(&rig, 1000, 0, "t", 1), MILL_KERR_TRANSACTION_ABORTABLE);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_NONE);
    assert_int_equal(verify(&rig, 1000, 0, "t", 2), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(rig.txn->now.partitions->count, 2); /* to be marked */
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(end(&rig, 1000, 0, false), MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(add(&rig, 1000, 0, "t", 2), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_CONCURRENT_TRANSACTIONS);
    complete(&rig);
    assert_int_equal(rig.txn->now.state, MILL_TXN_COMPLETE_COMMIT);
    assert_null(rig.txn->now.partitions);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_NONE);
    assert_int_equal(end(&rig, 1000, 0, false), MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(verify(&rig, 1000, 0, "t", 2), MILL_KERR_TRANSACTION_ABORTABLE);
    /* The next one begins with nothing of the last. */
    rig.env.now_ms = 9;
    assert_int_equal(add(&rig, 1000, 0, "u", 0), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.start_ms, 9);
    assert_int_equal(rig.txn->now.partitions->count, 1);
    assert_int_equal(end(&rig, 1000, 0, false), MILL_KERR_NONE);
    complete(&rig);
    assert_int_equal(rig.txn->now.state, MILL_TXN_COMPLETE_ABORT);
    assert_int_equal(end(&rig, 1000, 0, false), MILL_KERR_NONE);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_INVALID_TXN_STATE);
    rig_close(&rig);
}

static void test_another_init_fences(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(add(&rig, 1000, 0, "t", 0), MILL_KERR_NONE);
    /* What it began is aborted, under an epoch that is nobody's; then it may. */
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(rig.txn->now.state, MILL_TXN_PREPARE_ABORT);
    assert_int_equal(rig.txn->now.producer_epoch, 1);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(verify(&rig, 1000, 0, "t", 0), MILL_KERR_PRODUCER_FENCED);
    complete(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.producer_epoch, 2);
    assert_int_equal(add(&rig, 1000, 0, "t", 0), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(end(&rig, 1000, 0, false), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(init(&rig, 1000, 0), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(init(&rig, 999, 2), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(add(&rig, 999, 2, "t", 0), MILL_KERR_INVALID_PRODUCER_ID_MAPPING);
    assert_int_equal(rig.env.fenced, 5);
    rig_close(&rig);
}

static void test_holder_bumps_its_own_epoch(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, 5, 3), MILL_KERR_NONE); /* its id had expired here */
    assert_int_equal(rig.txn->now.producer_id, 1000);
    assert_int_equal(rig.txn->now.producer_epoch, 0);
    assert_int_equal(init(&rig, 1000, 0), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.producer_epoch, 1);
    assert_int_equal(init(&rig, 1000, 0), MILL_KERR_NONE); /* the answer was lost */
    assert_int_equal(rig.txn->now.producer_epoch, 1);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE); /* another one */
    assert_int_equal(rig.txn->now.producer_epoch, 2);
    assert_int_equal(init(&rig, 1000, 1), MILL_KERR_PRODUCER_FENCED);
    rig_close(&rig);
}

static void test_epochs_run_out(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    rig.txn->now.producer_epoch = MILL_TXN_EPOCH_MAX;
    rig.no_ids = true;
    assert_int_equal(init(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    rig.no_ids = false;
    assert_int_equal(init(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.producer_id, 1001);
    assert_int_equal(rig.txn->now.producer_epoch, 0);
    assert_int_equal(rig.txn->now.previous_producer_id, 1000);
    assert_int_equal(init(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_NONE); /* again */
    assert_int_equal(rig.txn->now.producer_id, 1001);
    assert_int_equal(rig.txn->now.producer_epoch, 0);
    assert_int_equal(init(&rig, 1000, 7), MILL_KERR_PRODUCER_FENCED);
    /* The last epoch can still be fenced, and its id is not used again. */
    rig.txn->now.producer_epoch = MILL_TXN_EPOCH_MAX;
    assert_int_equal(add(&rig, 1001, MILL_TXN_EPOCH_MAX, "t", 0), MILL_KERR_NONE);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(rig.txn->now.producer_epoch, INT16_MAX);
    complete(&rig);
    assert_int_equal(rig.txn->now.producer_id, 1002);
    assert_int_equal(add(&rig, 1001, MILL_TXN_EPOCH_MAX, "t", 0),
                     MILL_KERR_INVALID_PRODUCER_ID_MAPPING);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.producer_id, 1002);
    assert_int_equal(rig.txn->now.producer_epoch, 1);
    assert_int_equal(init(&rig, 1001, MILL_TXN_EPOCH_MAX), MILL_KERR_PRODUCER_FENCED);
    rig_close(&rig);
}

static void test_timeouts(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct mill_txn_holder none = {-1, -1};
    static const int32_t wrong[] = {0, -1, TIMEOUT_MAX_MS + 1, INT32_MAX};
    rig_open(&rig);
    for (size_t i = 0; i < MILL_COUNT_OF(wrong); i++) {
        assert_int_equal(mill_txn_init(&rig.env, rig.txn, wrong[i], &none, &rig.next, &rig.error),
                         MILL_TXN_ANSWER);
        assert_int_equal(rig.error, MILL_KERR_INVALID_TRANSACTION_TIMEOUT);
    }
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_true(mill_txn_due_ms(rig.txn) == INT64_MAX);
    rig.env.now_ms = 100;
    assert_int_equal(add(&rig, 1000, 0, "t", 0), MILL_KERR_NONE);
    rig.env.now_ms = 200;
    assert_int_equal(add(&rig, 1000, 0, "t", 1), MILL_KERR_NONE); /* wins no time */
    assert_int_equal(mill_txn_due_ms(rig.txn), 100 + TIMEOUT_MS);
    rig.env.now_ms = 99 + TIMEOUT_MS;
    assert_false(mill_txn_time(&rig.env, rig.txn, &rig.next));
    rig.env.now_ms++;
    assert_true(mill_txn_time(&rig.env, rig.txn, &rig.next));
    assert_false(mill_txn_time(&rig.env, rig.txn, &(struct mill_txn_values){0}));
    mill_txn_apply(&rig.env, rig.txn, &rig.next);
    assert_int_equal(rig.txn->now.state, MILL_TXN_PREPARE_ABORT);
    assert_int_equal(rig.txn->now.producer_epoch, 1);
    assert_int_equal(rig.env.timed_out, 1);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_PRODUCER_FENCED);
    complete(&rig);
    /* Idle ids go; those that are in use do not. */
    rig.env.now_ms = rig.txn->now.update_ms + EXPIRATION_MS - 1;
    assert_false(mill_txn_expire(&rig.env, rig.txn, &rig.next));
    rig.env.now_ms++;
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_false(mill_txn_expire(&rig.env, rig.txn, &rig.next));
    assert_int_equal(add(&rig, 1000, 2, "t", 0), MILL_KERR_NONE);
    rig.env.now_ms += EXPIRATION_MS;
    assert_false(mill_txn_expire(&rig.env, rig.txn, &rig.next));
    assert_int_equal(end(&rig, 1000, 2, true), MILL_KERR_NONE);
    rig.env.now_ms += EXPIRATION_MS;
    assert_false(mill_txn_expire(&rig.env, rig.txn, &rig.next));
    complete(&rig);
    rig.env.now_ms += EXPIRATION_MS;
    assert_true(mill_txn_expire(&rig.env, rig.txn, &rig.next));
    assert_int_equal(rig.next.state, MILL_TXN_DEAD);
    struct mill_txn_values init_next;
    assert_int_equal(mill_txn_init(&rig.env, rig.txn, TIMEOUT_MS, &none, &init_next, &rig.error),
                     MILL_TXN_ANSWER);
    assert_int_equal(rig.error, MILL_KERR_CONCURRENT_TRANSACTIONS);
    mill_txn_drop(rig.txn, &rig.next);
    assert_int_equal(rig.txn->now.state, MILL_TXN_COMPLETE_COMMIT);
    rig_close(&rig);
}

static void test_one_change_at_a_time(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct mill_txn_values other;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(add(&rig, 1000, 0, "t", 0), MILL_KERR_NONE);
    struct mill_txn_holder holder = {1000, 0};
    struct mill_txn_partition partition = {"t", 1};
    assert_int_equal(
        mill_txn_end(&rig.env, rig.txn, &holder, MILL_TXN_PLAIN, true, &rig.next, &rig.error),
        MILL_TXN_WRITE);
    assert_int_equal(rig.txn->now.state, MILL_TXN_ONGOING);
    assert_int_equal(verify(&rig, 1000, 0, "t", 0), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(
        mill_txn_add(&rig.env, rig.txn, &holder, MILL_TXN_PLAIN, &partition, 1, &other, &rig.error),
        MILL_TXN_ANSWER);
    assert_int_equal(rig.error, MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(
        mill_txn_end(&rig.env, rig.txn, &holder, MILL_TXN_PLAIN, false, &other, &rig.error),
        MILL_TXN_ANSWER);
    assert_int_equal(rig.error, MILL_KERR_CONCURRENT_TRANSACTIONS);
    rig.env.now_ms += TIMEOUT_MS;
    assert_false(mill_txn_time(&rig.env, rig.txn, &other));
    /* The log refuses: all is as before, and may be tried again. */
    mill_txn_drop(rig.txn, &rig.next);
    assert_int_equal(verify(&rig, 1000, 0, "t", 0), MILL_KERR_NONE);
    assert_int_equal(end(&rig, 1000, 0, false), MILL_KERR_NONE);
    assert_true(mill_txn_complete(&rig.env, rig.txn, &rig.next));
    assert_false(mill_txn_complete(&rig.env, rig.txn, &other));
    mill_txn_apply(&rig.env, rig.txn, &rig.next);
    rig_close(&rig);
}

/* What the transaction has may be written to while another partition is being added; what is being
 * added, and any of it when the end is under way, not yet or no more. */
static void test_adds_leave_the_others_verified(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    struct mill_txn_holder holder = {1000, 0};
    struct mill_txn_partition partition = {"t", 0};
    /* The first: nothing is there yet. */
    assert_int_equal(mill_txn_add(&rig.env, rig.txn, &holder, MILL_TXN_BUMPED, &partition, 1,
                                  &rig.next, &rig.error),
                     MILL_TXN_WRITE);
    assert_int_equal(verify(&rig, 1000, 0, "t", 0), MILL_KERR_CONCURRENT_TRANSACTIONS);
    mill_txn_apply(&rig.env, rig.txn, &rig.next);
    assert_int_equal(verify(&rig, 1000, 0, "t", 0), MILL_KERR_NONE);
    partition.index = 1;
    for (int tries = 0; tries < 2; tries++) {
        assert_int_equal(mill_txn_add(&rig.env, rig.txn, &holder, MILL_TXN_BUMPED, &partition, 1,
                                      &rig.next, &rig.error),
                         MILL_TXN_WRITE);
        assert_int_equal(verify(&rig, 1000, 0, "t", 0), MILL_KERR_NONE);
        assert_int_equal(verify(&rig, 1000, 0, "t", 1), MILL_KERR_CONCURRENT_TRANSACTIONS);
        assert_int_equal(verify(&rig, 1000, 1, "t", 0), MILL_KERR_PRODUCER_FENCED);
        if (tries == 0) {
            mill_txn_drop(rig.txn, &rig.next);
        } else {
            mill_txn_apply(&rig.env, rig.txn, &rig.next);
        }
        /* No end passes for an add, whatever came of the one before. */
        assert_int_equal(
            mill_txn_end(&rig.env, rig.txn, &holder, MILL_TXN_BUMPED, true, &rig.next, &rig.error),
            MILL_TXN_WRITE);
        assert_int_equal(verify(&rig, 1000, 0, "t", 0), MILL_KERR_CONCURRENT_TRANSACTIONS);
        mill_txn_drop(rig.txn, &rig.next);
    }
    assert_int_equal(verify(&rig, 1000, 0, "t", 1), MILL_KERR_NONE);
    rig_close(&rig);
}

static void test_memory_is_bounded(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    char topic[200];
    rig_open(&rig);
    memset(topic, 'a', sizeof(topic));
    topic[sizeof(topic) - 1] = '\0';
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    rig.env.bytes_max = rig.env.bytes + 300;
    assert_int_equal(add(&rig, 1000, 0, topic, 0), MILL_KERR_NONE);
    assert_int_equal(add(&rig, 1000, 0, topic, 1), MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_null(mill_txn_new(&rig.env, "another", false));
    struct mill_txn *loaded = mill_txn_new(&rig.env, "another", true); /* the log has it */
    assert_non_null(loaded);
    mill_txn_free(&rig.env, loaded);
    assert_int_equal(rig.env.full, 2);
    assert_int_equal(rig.txn->now.partitions->count, 1);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_NONE); /* an end is never refused */
    complete(&rig);
    rig.env.bytes_max = 64 << 20;
    struct mill_txn_partition *many = calloc(MILL_TXN_PARTITIONS_MAX + 1, sizeof(*many));
    struct mill_txn_holder holder = {1000, 0};
    assert_non_null(many);
    for (int32_t i = 0; i <= MILL_TXN_PARTITIONS_MAX; i++) {
        many[i] = (struct mill_txn_partition){"t", i};
    }
    assert_int_equal(taken(&rig, mill_txn_add(&rig.env, rig.txn, &holder, MILL_TXN_PLAIN, many,
                                              MILL_TXN_PARTITIONS_MAX, &rig.next, &rig.error)),
                     MILL_KERR_NONE);
    assert_int_equal(add(&rig, 1000, 0, "t", MILL_TXN_PARTITIONS_MAX), MILL_KERR_POLICY_VIOLATION);
    assert_int_equal(rig.env.full, 3);
    free(many);
    rig_close(&rig);
}

static void test_set_is_sorted_and_unique(void **state)
{
    MILL_UNUSED(state);
    static const struct mill_txn_partition first[] = {{"b", 1}, {"a", 7}, {"b", 0}, {"a", 7}};
    static const struct mill_txn_partition second[] = {{"ab", 2}, {"b", 1}};
    static const struct mill_txn_partition want[] = {{"a", 7}, {"ab", 2}, {"b", 0}, {"b", 1}};
    struct mill_txn_set *small = NULL;
    struct mill_txn_set *set = NULL;
    assert_int_equal(mill_txn_set_join(NULL, first, 4, &small), 0);
    assert_int_equal(mill_txn_set_join(small, second, 2, &set), 0);
    free(small);
    assert_int_equal(set->count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(set->items[i].topic, want[i].topic);
        assert_int_equal(set->items[i].index, want[i].index);
        assert_true(mill_txn_set_has(set, &want[i]));
    }
    assert_true(set->items[2].topic == set->items[3].topic); /* one copy of a name */
    assert_false(mill_txn_set_has(set, &(struct mill_txn_partition){"a", 0}));
    assert_false(mill_txn_set_has(NULL, &want[0]));
    free(set);
}

/* Random sets joined one after the other, against a bit for each partition. */
static void test_set_is_what_was_added(void **state)
{
    MILL_UNUSED(state);
    static const char *const names[] = {"", "a", "ab", "b"};
    struct mill_random random = {.state = 7};
    for (uint32_t round = 0; round < 300; round++) {
        struct mill_txn_set *set = NULL;
        uint64_t bits = 0;
        for (uint32_t i = 0; i < 6; i++) {
            struct mill_txn_partition added[12];
            struct mill_txn_set *next = NULL;
            uint32_t count = mill_random_below(&random, MILL_COUNT_OF(added));
            for (uint32_t k = 0; k < count; k++) {
                uint32_t bit = mill_random_below(&random, 64);
                added[k] = (struct mill_txn_partition){names[bit / 16], (int32_t)(bit % 16)};
                bits |= UINT64_C(1) << bit;
            }
            assert_int_equal(mill_txn_set_join(set, added, count, &next), 0);
            free(set);
            set = next;
            assert_int_equal(set->count, __builtin_popcountll(bits));
            for (uint32_t bit = 0, at = 0; bit < 64; bit++) { /* sorted, too */
                if ((bits >> bit) & 1) {
                    assert_string_equal(set->items[at].topic, names[bit / 16]);
                    assert_int_equal(set->items[at++].index, bit % 16);
                }
            }
        }
        free(set);
    }
}

/* --- records -----------------------------------------------------------------------------------
 */

struct raw {
    struct mill_buf bufs[2];
    struct mill_record record;
};

static const struct mill_record *raw_record(struct raw *raw, const void *key, uint32_t key_bytes,
                                            const void *value, int32_t value_bytes)
{
    raw->record =
        (struct mill_record){.key_length = (int32_t)key_bytes, .value_length = value_bytes};
    raw->record.key = mill_cursor_over(&raw->bufs[0], key, key_bytes);
    raw->record.value = mill_cursor_over(&raw->bufs[1], value, (uint32_t)MILL_MAX(value_bytes, 0));
    return &raw->record;
}

static const uint8_t key_by_hand[] = {0, 0, 0, 2, 'i', 'd'};
static const uint8_t plain_by_hand[] = {
    0, 0,                                           /* version */
    0, 0, 0,    0,    0, 0, 0x03, 0xe8,             /* producer id */
    0, 4,                                           /* epoch */
    0, 0, 0xea, 0x60,                               /* timeout */
    1,                                              /* ongoing */
    0, 0, 0,    2,                                  /* topics */
    0, 1, 's',                                      /* name */
    0, 0, 0,    1,    0, 0, 0,    9,                /* partitions */
    0, 1, 't',                                      /* name */
    0, 0, 0,    2,    0, 0, 0,    0,    0, 0, 0, 3, /* partitions */
    0, 0, 0,    0,    0, 0, 1,    2,                /* update */
    0, 0, 0,    0,    0, 0, 1,    1,                /* start */
};
static const uint8_t flexible_by_hand[] = {
    0, 1,                                 /* version */
    0, 0,   0,    0,    0, 0, 0x03, 0xe9, /* producer id */
    0, 0,                                 /* epoch */
    0, 0,   0xea, 0x60,                   /* timeout */
    2,                                    /* prepare commit */
    2,                                    /* topics + 1 */
    2, 's',                               /* name */
    2, 0,   0,    0,    9,                /* partitions */
    0,                                    /* tags of the topic */
    0, 0,   0,    0,    0, 0, 1,    2,    /* update */
    0, 0,   0,    0,    0, 0, 1,    1,    /* start */
    3, 0,   8,                            /* three tags: number 0, its size */
    0, 0,   0,    0,    0, 0, 0x03, 0xe8, /* previous producer id */
    1, 8,                                 /* number 1, its size */
    0, 0,   0,    0,    0, 0, 0x03, 0xea, /* next producer id */
    2, 2,                                 /* number 2, its size */
    0, 2,                                 /* version of the client's transactions */
};
static const uint8_t empty_by_hand[] = {
    0,    1,                                        /* version */
    0,    0,    0,    0,    0,    0,    0x03, 0xe8, /* producer id */
    0,    4,                                        /* epoch */
    0,    0,    0xea, 0x60,                         /* timeout */
    0,                                              /* empty */
    0,                                              /* partitions: null */
    0,    0,    0,    0,    0,    0,    1,    2,    /* update */
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* start */
    0,                                              /* nothing to tell beside that */
};

static void test_record_by_hand(void **state)
{
    MILL_UNUSED(state);
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    static const struct mill_txn_partition partition = {"s", 9};
    struct mill_txn_values values = {.state = MILL_TXN_EMPTY,
                                     .producer_id = 1000,
                                     .previous_producer_id = -1,
                                     .next_producer_id = -1,
                                     .producer_epoch = 4,
                                     .timeout_ms = 60000,
                                     .update_ms = 0x102,
                                     .start_ms = -1};
    uint32_t size = 0;
    uint8_t *bytes = mill_txn_key_write(&pool, "id", &size);
    assert_int_equal(size, sizeof(key_by_hand));
    assert_memory_equal(bytes, key_by_hand, size);
    bytes = mill_txn_value_write(&pool, &values, &size);
    assert_int_equal(size, sizeof(empty_by_hand));
    assert_memory_equal(bytes, empty_by_hand, size);
    values = (struct mill_txn_values){.state = MILL_TXN_PREPARE_COMMIT,
                                      .producer_id = 1001,
                                      .previous_producer_id = 1000,
                                      .next_producer_id = 1002,
                                      .version = MILL_TXN_BUMPED,
                                      .timeout_ms = 60000,
                                      .update_ms = 0x102,
                                      .start_ms = 0x101};
    assert_int_equal(mill_txn_set_join(NULL, &partition, 1, &values.partitions), 0);
    bytes = mill_txn_value_write(&pool, &values, &size);
    assert_int_equal(size, sizeof(flexible_by_hand));
    assert_memory_equal(bytes, flexible_by_hand, size);
    free(values.partitions);
    mill_pool_clear(&pool);
}

static void test_record_read(void **state)
{
    MILL_UNUSED(state);
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    struct mill_txn_record got;
    struct raw raw;
    assert_int_equal(mill_txn_record_read(raw_record(&raw, key_by_hand, sizeof(key_by_hand),
                                                     flexible_by_hand, sizeof(flexible_by_hand)),
                                          &pool, &got),
                     0);
    assert_string_equal(got.id, "id");
    assert_int_equal(got.values.state, MILL_TXN_PREPARE_COMMIT);
    assert_int_equal(got.values.producer_id, 1001);
    assert_int_equal(got.values.previous_producer_id, 1000);
    assert_int_equal(got.values.next_producer_id, 1002);
    assert_int_equal(got.values.version, MILL_TXN_BUMPED);
    assert_int_equal(got.values.timeout_ms, 60000);
    assert_int_equal(got.values.update_ms, 0x102);
    assert_int_equal(got.values.start_ms, 0x101);
    assert_int_equal(got.partitions_count, 1);
    assert_string_equal(got.partitions[0].topic, "s");
    assert_int_equal(got.partitions[0].index, 9);
    assert_int_equal(mill_txn_record_read(raw_record(&raw, key_by_hand, sizeof(key_by_hand),
                                                     plain_by_hand, sizeof(plain_by_hand)),
                                          &pool, &got),
                     0);
    assert_int_equal(got.values.producer_epoch, 4);
    assert_int_equal(got.values.previous_producer_id, -1);
    assert_int_equal(got.values.next_producer_id, -1);
    assert_int_equal(got.values.version, MILL_TXN_PLAIN);
    assert_int_equal(got.partitions_count, 3);
    assert_int_equal(got.partitions[2].index, 3);
    /* Null partitions, a tombstone, a key of another kind. */
    static const uint8_t empty[] = {0, 0, 0, 0,    0,    0,    0,    0,    3,    0xe8, 0,   0, 0,
                                    0, 1, 0, 0,    0xff, 0xff, 0xff, 0xff, 0,    0,    0,   0, 0,
                                    0, 1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    assert_int_equal(
        mill_txn_record_read(
            raw_record(&raw, key_by_hand, sizeof(key_by_hand), empty, sizeof(empty)), &pool, &got),
        0);
    assert_int_equal(got.values.state, MILL_TXN_EMPTY);
    assert_int_equal(got.values.start_ms, -1);
    assert_int_equal(mill_txn_record_read(
                         raw_record(&raw, key_by_hand, sizeof(key_by_hand), NULL, -1), &pool, &got),
                     0);
    assert_true(got.tombstone);
    static const uint8_t other[] = {0, 1, 0, 2, 'i', 'd'};
    assert_int_equal(
        mill_txn_record_read(raw_record(&raw, other, sizeof(other), NULL, -1), &pool, &got), 0);
    assert_null(got.id);
    mill_pool_clear(&pool);
}

static void test_damaged_record_is_refused(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        const uint8_t *bytes;
        int32_t size;
    } values[] = {{plain_by_hand, sizeof(plain_by_hand)},
                  {flexible_by_hand, sizeof(flexible_by_hand)}};
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    struct mill_random random = {.state = 7};
    struct mill_txn_record got;
    struct raw raw;
    uint8_t bytes[sizeof(plain_by_hand) + sizeof(flexible_by_hand)];
    for (size_t i = 0; i < MILL_COUNT_OF(values); i++) {
        for (int32_t size = 0; size < values[i].size; size++) {
            assert_int_equal(mill_txn_record_read(raw_record(&raw, key_by_hand, sizeof(key_by_hand),
                                                             values[i].bytes, size),
                                                  &pool, &got),
                             -EBADMSG);
            mill_pool_clear(&pool);
        }
        /* Flipped bytes: whatever comes of it, within bounds. */
        for (uint32_t n = 0; n < 20000; n++) {
            memcpy(bytes, values[i].bytes, (size_t)values[i].size);
            bytes[mill_random_below(&random, (uint32_t)values[i].size)] =
                (uint8_t)mill_random_next(&random);
            int rc = mill_txn_record_read(
                raw_record(&raw, key_by_hand, sizeof(key_by_hand), bytes, values[i].size), &pool,
                &got);
            assert_true(rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
            mill_pool_clear(&pool);
        }
    }
    for (uint32_t size = 0; size < sizeof(key_by_hand); size++) {
        assert_int_equal(mill_txn_record_read(raw_record(&raw, key_by_hand, size, plain_by_hand,
                                                         sizeof(plain_by_hand)),
                                              &pool, &got),
                         -EBADMSG);
        mill_pool_clear(&pool);
    }
    memcpy(bytes, plain_by_hand, sizeof(plain_by_hand));
    bytes[16] = MILL_TXN_STATE_COUNT;
    assert_int_equal(mill_txn_record_read(raw_record(&raw, key_by_hand, sizeof(key_by_hand), bytes,
                                                     sizeof(plain_by_hand)),
                                          &pool, &got),
                     -EBADMSG);
    mill_pool_clear(&pool);
}

/* --- clients that share an id ------------------------------------------------------------------
 */

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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commit_of_one),
        cmocka_unit_test(test_another_init_fences),
        cmocka_unit_test(test_holder_bumps_its_own_epoch),
        cmocka_unit_test(test_epochs_run_out),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_one_change_at_a_time),
        cmocka_unit_test(test_adds_leave_the_others_verified),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_set_is_sorted_and_unique),
        cmocka_unit_test(test_set_is_what_was_added),
        cmocka_unit_test(test_record_by_hand),
        cmocka_unit_test(test_record_read),
        cmocka_unit_test(test_damaged_record_is_refused),
        cmocka_unit_test(test_clients_share_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
