/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: one transactional id as clients know it: who gets which epoch, who is fenced, what may
 * follow what, when time is over. Method: the state machine alone, tables of requests. Its records:
 * test_txn_records.c; clients that share the id: test_txn_shared.c. */
#include "tests/unit/control/txn_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
