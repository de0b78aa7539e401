/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: idempotent producers as KIP-98 says: duplicates of the last five batches are answered with
 * their first offsets, gaps and old epochs refused, sequences wrap at 2^31, state survives a
 * restart, the table is bounded. Method: one partition, sequences by hand, and a random run against
 * a plain model. */
#include "tests/unit/test.h"

#include <errno.h>

#include "base/random.h"
#include "tests/unit/log/one_partition.h"

static struct mill_append_result produce(struct mill_partition *partition, int64_t id,
                                         int16_t epoch, int32_t sequence, int32_t count)
{
    struct mill_append_result result;
    m->producer_id = id;
    m->epoch = epoch;
    m->sequence = sequence;
    maker_build(m, count);
    int r = maker_append(&f, partition, m, &result);
    for (uint32_t i = 0; r == -EAGAIN && i < 10; i++) {
        fixture_settle(&f);
        r = maker_append(&f, partition, m, &result);
    }
    assert_int_equal(r, 0);
    return result;
}

static void test_check_duplicates_gaps_epochs(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    for (int32_t i = 0; i < 7; i++) {
        struct mill_append_result result = produce(p, 9, 0, i * 3, 3);
        assert_int_equal(result.error, 0);
        assert_int_equal(result.base_offset, i * 3);
    }
    for (int32_t i = 2; i < 7; i++) { /* the last five are known */
        struct mill_append_result result = produce(p, 9, 0, i * 3, 3);
        assert_int_equal(result.error, 0);
        assert_true(result.duplicate);
        assert_int_equal(result.base_offset, i * 3);
    }
    assert_int_equal(mill_partition_end(p), 21);
    assert_int_equal(produce(p, 9, 0, 3, 3).error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(p, 9, 0, 22, 3).error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(p, 9, 0, 18, 2).error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(p, 9, 1, 21, 1).error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(mill_partition_end(p), 21);
    assert_int_equal(produce(p, 9, 1, 0, 1).error, 0);
    assert_int_equal(produce(p, 9, 0, 21, 1).error, MILL_KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(produce(p, 10, 4, 1234, 2).error, 0); /* no state: any sequence */
    assert_int_equal(produce(p, 10, 4, 1236, 2).error, 0);
    teardown();
}

static void test_check_sequence_wraps(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    assert_int_equal(produce(p, 1, 0, INT32_MAX - 1, 2).error, 0); /* ends at the last */
    assert_int_equal(produce(p, 1, 0, 0, 2).error, 0);
    assert_int_equal(produce(p, 2, 0, INT32_MAX, 3).error, 0); /* straddles: last is 1 */
    assert_true(produce(p, 2, 0, INT32_MAX, 3).duplicate);
    assert_int_equal(produce(p, 2, 0, 3, 1).error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(p, 2, 0, 2, 1).error, 0);
    teardown();
}

static void test_table_full_forgets_the_oldest(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    for (int64_t id = 0; id < 64; id++) {
        assert_int_equal(produce(p, id, 0, 0, 1).error, 0);
    }
    assert_true(produce(p, 0, 0, 0, 1).duplicate);
    assert_int_equal(produce(p, 0, 0, 1, 1).error, 0); /* now the newest */
    assert_int_equal(produce(p, 100, 0, 0, 1).error, 0);
    assert_int_equal(mill_log_stats(f.log)->producers_evicted, 1);
    assert_int_equal(mill_log_stats(f.log)->producers, 64);
    assert_true(produce(p, 0, 0, 1, 1).duplicate);
    assert_false(produce(p, 1, 0, 0, 1).duplicate); /* it was the oldest */
    teardown();
}

static void test_state_expires(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    assert_int_equal(produce(p, 5, 0, 0, 1).error, 0);
    fixture_settle(&f);
    fixture_step(&f, 86400000 + 1000);
    fixture_step(&f, 11000);
    fixture_step(&f, 11000);
    assert_int_equal(mill_log_stats(f.log)->producers, 0);
    assert_int_equal(produce(p, 5, 0, 77, 1).error, 0);
    teardown();
}

static void test_state_survives_restart_and_kill(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    for (int clean = 0; clean < 2; clean++) {
        struct mill_partition *p = setup();
        for (int32_t i = 0; i < 6; i++) {
            assert_int_equal(produce(p, 9, 2, i * 2, 2).error, 0);
        }
        fixture_close(&f, clean == 1);
        fixture_open(&f);
        p = fixture_partition(&f, 0, &settings);
        assert_int_equal(mill_partition_end(p), 12);
        for (int32_t i = 1; i < 6; i++) {
            struct mill_append_result result = produce(p, 9, 2, i * 2, 2);
            assert_true(result.duplicate);
            assert_int_equal(result.base_offset, i * 2);
        }
        assert_int_equal(produce(p, 9, 2, 14, 2).error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
        assert_int_equal(produce(p, 9, 1, 12, 2).error, MILL_KERR_INVALID_PRODUCER_EPOCH);
        assert_int_equal(produce(p, 9, 2, 12, 2).error, 0);
        teardown();
    }
}

/* Random batches of a few producers against a list of everything accepted. */
static void test_random_run_agrees_with_model(void **state)
{
    MILL_UNUSED(state);
    struct model {
        int32_t next;
        int32_t starts[2000];
        int32_t counts[2000];
        int64_t offsets[2000];
        int32_t length;
    };
    struct model *models = calloc(4, sizeof(*models));
    struct mill_random random = {.state = 4711};
    struct mill_partition *p = setup();
    assert_non_null(models);
    for (uint32_t round = 0; round < 3000; round++) {
        struct model *model = &models[mill_random_below(&random, 4)];
        int64_t id = model - models;
        int32_t count = 1 + (int32_t)mill_random_below(&random, 4);
        uint32_t what = mill_random_below(&random, 10);
        int64_t end = mill_partition_end(p);
        if (what < 6 || model->length == 0) {
            struct mill_append_result result = produce(p, id, 0, model->next, count);
            assert_int_equal(result.error, 0);
            assert_int_equal(result.base_offset, end);
            model->starts[model->length] = model->next;
            model->counts[model->length] = count;
            model->offsets[model->length++] = end;
            model->next += count;
        } else if (what < 9) {
            int32_t back = 1 + (int32_t)mill_random_below(&random, 8);
            int32_t at = MILL_MAX(model->length - back, 0);
            struct mill_append_result result =
                produce(p, id, 0, model->starts[at], model->counts[at]);
            if (model->length - at <= MILL_LOG_PRODUCER_BATCHES) {
                assert_int_equal(result.error, 0);
                assert_int_equal(result.base_offset, model->offsets[at]);
            } else {
                assert_int_equal(result.error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
            }
            assert_int_equal(mill_partition_end(p), end);
        } else {
            int32_t gap = 1 + (int32_t)mill_random_below(&random, 5);
            assert_int_equal(produce(p, id, 0, model->next + gap, count).error,
                             MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
            assert_int_equal(mill_partition_end(p), end);
        }
    }
    teardown();
    free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_duplicates_gaps_epochs),
        cmocka_unit_test(test_check_sequence_wraps),
        cmocka_unit_test(test_table_full_forgets_the_oldest),
        cmocka_unit_test(test_state_expires),
        cmocka_unit_test(test_state_survives_restart_and_kill),
        cmocka_unit_test(test_random_run_agrees_with_model),
    };
    return cmocka_run_group_tests_name("producers", tests, NULL, NULL);
}
