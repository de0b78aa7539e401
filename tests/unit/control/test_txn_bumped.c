/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: transactions of version 2 (KIP-890) as clients know them: each end gives out the epoch of
 * the next one, or another producer id when epochs have run out, also where an answer was lost; an
 * id goes from one version to the other and back. Method: the state machine alone, requests in a
 * row; test_txn has what both versions share, and the model with clients of both. */
#include "tests/unit/control/txn_rig.h"

static int16_t add2(struct rig *rig, int64_t id, int16_t epoch)
{
    return add_of(rig, MILL_TXN_BUMPED, id, epoch, "t", 0);
}

static int16_t commit2(struct rig *rig, int64_t id, int16_t epoch)
{
    return end_of(rig, MILL_TXN_BUMPED, id, epoch, true);
}

static int16_t abort2(struct rig *rig, int64_t id, int16_t epoch)
{
    return end_of(rig, MILL_TXN_BUMPED, id, epoch, false);
}

static void check_next(const struct rig *rig, int64_t id, int16_t epoch)
{
    struct mill_txn_holder next = mill_txn_next_holder(&rig->txn->now);
    assert_int_equal(next.producer_id, id);
    assert_int_equal(next.producer_epoch, epoch);
}

static void test_each_end_gives_out_an_epoch(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(commit2(&rig, 1000, 0), MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(add2(&rig, 1000, 0), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.version, MILL_TXN_BUMPED);
    assert_int_equal(commit2(&rig, 1000, 1), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(commit2(&rig, 1000, 0), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.state, MILL_TXN_PREPARE_COMMIT);
    check_next(&rig, 1000, 1);
    /* Asked again, and with what comes after, while the markers are under way. */
    assert_int_equal(commit2(&rig, 1000, 0), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(abort2(&rig, 1000, 0), MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(abort2(&rig, 1000, 1), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(add2(&rig, 1000, 1), MILL_KERR_CONCURRENT_TRANSACTIONS);
    complete(&rig);
    check_next(&rig, 1000, 1);
    assert_int_equal(commit2(&rig, 1000, 0), MILL_KERR_NONE); /* its answer was lost */
    check_next(&rig, 1000, 1);
    assert_int_equal(rig.txn->now.state, MILL_TXN_COMPLETE_COMMIT);
    assert_int_equal(abort2(&rig, 1000, 0), MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(commit2(&rig, 1000, 1), MILL_KERR_INVALID_TXN_STATE);
    /* A batch that comes now, late, begins nothing. */
    assert_int_equal(add2(&rig, 1000, 0), MILL_KERR_PRODUCER_FENCED);
    /* Nothing was written, but the client does not know: an abort is one. */
    rig.env.now_ms = 77;
    assert_int_equal(abort2(&rig, 1000, 1), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.state, MILL_TXN_PREPARE_ABORT);
    assert_null(rig.txn->now.partitions);
    assert_int_equal(rig.txn->now.start_ms, 77);
    complete(&rig);
    check_next(&rig, 1000, 2);
    assert_int_equal(abort2(&rig, 1000, 1), MILL_KERR_NONE);
    check_next(&rig, 1000, 2);
    assert_int_equal(abort2(&rig, 1000, 0), MILL_KERR_PRODUCER_FENCED);
    rig_close(&rig);
}

/* An id's clients go from one version to the other and back. */
static void test_versions_change_between_transactions(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(add(&rig, 1000, 0, "t", 0), MILL_KERR_NONE);
    assert_int_equal(end(&rig, 1000, 0, true), MILL_KERR_NONE);
    assert_int_equal(rig.txn->now.version, MILL_TXN_PLAIN);
    complete(&rig);
    check_next(&rig, 1000, 0);
    assert_int_equal(add2(&rig, 1000, 0), MILL_KERR_NONE);
    assert_int_equal(abort2(&rig, 1000, 0), MILL_KERR_NONE);
    complete(&rig);
    check_next(&rig, 1000, 1);
    /* One of the older version is not let through where it is late. */
    assert_int_equal(end(&rig, 1000, 0, false), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(add(&rig, 1000, 2, "t", 0), MILL_KERR_NONE);
    assert_int_equal(end(&rig, 1000, 2, true), MILL_KERR_NONE);
    complete(&rig);
    check_next(&rig, 1000, 2);
    assert_int_equal(end(&rig, 1000, 2, true), MILL_KERR_NONE);
    check_next(&rig, 1000, 2);
    rig_close(&rig);
}

static void test_last_epoch_rotates_the_id(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    rig.txn->now.producer_epoch = MILL_TXN_EPOCH_MAX;
    assert_int_equal(add2(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_NONE);
    rig.no_ids = true;
    assert_int_equal(commit2(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(rig.txn->now.state, MILL_TXN_ONGOING);
    rig.no_ids = false;
    assert_int_equal(commit2(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_NONE);
    /* The markers are the old id's, the answer tells the new one. */
    assert_int_equal(rig.txn->now.producer_id, 1000);
    assert_int_equal(rig.txn->now.producer_epoch, INT16_MAX);
    check_next(&rig, 1001, 0);
    assert_int_equal(commit2(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(add2(&rig, 1001, 0), MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(abort2(&rig, 1001, 0), MILL_KERR_CONCURRENT_TRANSACTIONS);
    complete(&rig);
    assert_int_equal(rig.txn->now.producer_id, 1001);
    assert_int_equal(rig.txn->now.producer_epoch, 0);
    assert_int_equal(rig.txn->now.next_producer_id, -1);
    assert_int_equal(commit2(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_NONE); /* again */
    check_next(&rig, 1001, 0);
    assert_int_equal(abort2(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(commit2(&rig, 1000, 5), MILL_KERR_INVALID_PRODUCER_ID_MAPPING);
    assert_int_equal(add2(&rig, 1000, MILL_TXN_EPOCH_MAX), MILL_KERR_INVALID_PRODUCER_ID_MAPPING);
    assert_int_equal(add2(&rig, 1001, 0), MILL_KERR_NONE);
    rig_close(&rig);
}

/* Who has ended one of version 2 and was replaced by a client of version 1 does not get that one's
 * epoch by asking for an end again, however near the epochs are. */
static void test_end_of_version_1_is_nobody_elses(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        bool commit;
        int16_t epoch; /* of the first client, behind its own end */
    } table[] = {{false, 1}, {true, 1}, {false, MILL_TXN_EPOCH_MAX}};
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct rig rig;
        int16_t epoch = table[i].epoch;
        rig_open(&rig);
        assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
        rig.txn->now.producer_epoch = (int16_t)(epoch - 1);
        assert_int_equal(add2(&rig, 1000, (int16_t)(epoch - 1)), MILL_KERR_NONE);
        assert_int_equal(commit2(&rig, 1000, (int16_t)(epoch - 1)), MILL_KERR_NONE);
        complete(&rig);
        check_next(&rig, 1000, epoch);
        assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
        const struct mill_txn_holder other = mill_txn_next_holder(&rig.txn->now);
        assert_int_equal(other.producer_id, epoch == MILL_TXN_EPOCH_MAX ? 1001 : 1000);
        assert_int_equal(add(&rig, other.producer_id, other.producer_epoch, "t", 0),
                         MILL_KERR_NONE);
        bool commit = table[i].commit;
        assert_int_equal(end(&rig, other.producer_id, other.producer_epoch, commit),
                         MILL_KERR_NONE);
        int16_t error = other.producer_id == 1000 ? MILL_KERR_PRODUCER_FENCED
                                                  : MILL_KERR_INVALID_PRODUCER_ID_MAPPING;
        assert_int_equal(end_of(&rig, MILL_TXN_BUMPED, 1000, epoch, commit), error);
        complete(&rig);
        assert_int_equal(rig.txn->now.version, MILL_TXN_PLAIN);
        assert_int_equal(end_of(&rig, MILL_TXN_BUMPED, 1000, epoch, commit), error);
        assert_int_equal(end_of(&rig, MILL_TXN_BUMPED, 1000, epoch, !commit), error);
        check_next(&rig, other.producer_id, other.producer_epoch);
        rig_close(&rig);
    }
}

/* Who was aborted by its time-out may abort, too, and goes on; a commit is told from that. */
static void test_abort_after_the_time_out_goes_on(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(init(&rig, -1, -1), MILL_KERR_NONE);
    assert_int_equal(add2(&rig, 1000, 0), MILL_KERR_NONE);
    rig.env.now_ms += TIMEOUT_MS;
    assert_true(mill_txn_time(&rig.env, rig.txn, &rig.next));
    mill_txn_apply(&rig.env, rig.txn, &rig.next);
    assert_int_equal(add2(&rig, 1000, 0), MILL_KERR_CONCURRENT_TRANSACTIONS);
    complete(&rig);
    assert_int_equal(add2(&rig, 1000, 0), MILL_KERR_PRODUCER_FENCED);
    assert_int_equal(commit2(&rig, 1000, 0), MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(abort2(&rig, 1000, 0), MILL_KERR_NONE);
    check_next(&rig, 1000, 1);
    assert_int_equal(add2(&rig, 1000, 1), MILL_KERR_NONE);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_end_gives_out_an_epoch),
        cmocka_unit_test(test_versions_change_between_transactions),
        cmocka_unit_test(test_last_epoch_rotates_the_id),
        cmocka_unit_test(test_end_of_version_1_is_nobody_elses),
        cmocka_unit_test(test_abort_after_the_time_out_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
