/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the records of a transactional id are those that Kafka reads and writes, and a damaged one
 * is refused. Method: records written by hand. */
#include "tests/unit/control/txn_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "control/txn/txn.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_by_hand),
        cmocka_unit_test(test_record_read),
        cmocka_unit_test(test_damaged_record_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
