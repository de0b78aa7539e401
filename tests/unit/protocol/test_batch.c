/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a batch header is read as KIP-98 lays it out, and the walk over records takes only records
 * whose lengths agree with the bytes. Method: bytes by hand; every cut; every byte changed. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "protocol/batch.h"

/* Delta 3 ms, offset delta 1, key "k", value "vv", headers h=null and i="x". */
static const uint8_t record[] = {30, 0, 6, 2, 2, 'k', 4, 'v', 'v', 4, 2, 'h', 0x01, 2, 'i', 2, 'x'};
enum {
    RECORD_BYTES = sizeof(record),
};

static int next(const uint8_t *bytes, size_t size_bytes, struct mill_record *ret,
                uint32_t *ret_left)
{
    /* an exact copy, so that ASan sees any byte too many */
    uint8_t *copy = malloc(size_bytes ? size_bytes : 1);
    struct mill_buf buf;
    memcpy(copy, bytes, size_bytes);
    struct mill_cursor at = mill_cursor_over(&buf, copy, (uint32_t)size_bytes);
    int error = mill_record_next(&at, ret);
    *ret_left = at.left_bytes;
    free(copy);
    return error;
}

static void test_batch_read_every_field(void **state)
{
    (void)state;
    uint8_t bytes[1 + MILL_BATCH_HEADER_BYTES];
    struct mill_batch batch;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i - 1);
    }
    mill_batch_read(bytes + 1, &batch);
    assert_int_equal(batch.base_offset, 0x0001020304050607);
    assert_int_equal(batch.batch_length, 0x08090a0b);
    assert_int_equal(batch.leader_epoch, 0x0c0d0e0f);
    assert_int_equal(batch.magic, 16);
    assert_int_equal(batch.crc, 0x11121314);
    assert_int_equal(batch.attributes, 0x1516);
    assert_int_equal(batch.last_offset_delta, 0x1718191a);
    assert_int_equal(batch.base_timestamp, 0x1b1c1d1e1f202122);
    assert_int_equal(batch.max_timestamp, 0x232425262728292a);
    assert_int_equal(batch.producer_id, 0x2b2c2d2e2f303132);
    assert_int_equal(batch.producer_epoch, 0x3334);
    assert_int_equal(batch.base_sequence, 0x35363738);
    assert_int_equal(batch.records_count, 0x393a3b3c);
    assert_int_equal(mill_batch_size_bytes(&batch), 12 + 0x08090a0b);
    assert_int_equal(mill_batch_codec(&batch), 6);
    assert_int_equal(mill_batch_last_offset(&batch), 0x0001020304050607 + 0x1718191a);
}

static void test_record_next_takes_one(void **state)
{
    (void)state;
    struct mill_record got;
    uint8_t two[2 * RECORD_BYTES];
    struct mill_buf buf;
    memcpy(two, record, RECORD_BYTES);
    memcpy(two + RECORD_BYTES, record, RECORD_BYTES);
    two[0] = two[RECORD_BYTES] = (RECORD_BYTES - 1) * 2;
    struct mill_cursor at = mill_cursor_over(&buf, two, sizeof(two));
    for (uint32_t left = RECORD_BYTES;; left = 0) {
        assert_int_equal(mill_record_next(&at, &got), 0);
        assert_int_equal(at.left_bytes, left);
        assert_int_equal(got.timestamp_delta, 3);
        assert_int_equal(got.offset_delta, 1);
        assert_int_equal(got.key_length, 1);
        assert_int_equal(got.key.left_bytes, 1);
        assert_int_equal(got.value_length, 2);
        assert_int_equal(got.value.left_bytes, 2);
        assert_int_equal(got.headers_count, 2);
        if (left == 0) {
            break;
        }
    }
    assert_int_equal(mill_record_next(&at, &got), -EBADMSG);
}

static void test_record_next_null_and_negative(void **state)
{
    (void)state;
    static const struct {
        int error;
        uint8_t size_bytes;
        uint8_t bytes[24];
    } cases[] = {
        {0, 7, {12, 0, 0, 0, 1, 1, 0}},                /* null key, null value */
        {0, 7, {12, 0, 1, 1, 0, 0, 0}},                /* deltas -1, empty key and value */
        {0, 7, {12, 0x55, 0, 0, 1, 1, 0}},             /* attributes mean nothing */
        {-EBADMSG, 7, {12, 0, 0, 0, 3, 1, 0}},         /* key length -2 */
        {-EBADMSG, 7, {12, 0, 0, 0, 1, 3, 0}},         /* value length -2 */
        {-EBADMSG, 7, {12, 0, 0, 0, 1, 1, 1}},         /* headers -1 */
        {-EBADMSG, 7, {12, 0, 0, 0, 1, 1, 2}},         /* a header that is not there */
        {-EBADMSG, 9, {16, 0, 0, 0, 1, 1, 2, 1, 0}},   /* null header key */
        {-EBADMSG, 9, {16, 0, 0, 0, 1, 1, 2, 0, 3}},   /* header value length -2 */
        {0, 9, {16, 0, 0, 0, 1, 1, 2, 0, 1}},          /* empty header key, null value */
        {-EBADMSG, 7, {10, 0, 0, 0, 1, 1, 0}},         /* length one too short */
        {-EBADMSG, 8, {14, 0, 0, 0, 1, 1, 0, 0}},      /* one too long */
        {-EBADMSG, 7, {14, 0, 0, 0, 1, 1, 0}},         /* longer than what is there */
        {-EBADMSG, 7, {13, 0, 0, 0, 1, 1, 0}},         /* negative length */
        {-EBADMSG, 1, {0}},                            /* nothing inside */
        {-EBADMSG, 5, {0xff, 0xff, 0xff, 0xff, 0x1f}}, /* length of 33 bits */
        {-EBADMSG, 10, {18, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0}},    /* key of 2 GiB */
        {-EBADMSG, 11, {20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f}}, /* as many headers */
        {0, 16, {30, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 1, 0}},
        {-EBADMSG,
         16,
         {30, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 1, 1, 0}},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(cases); i++) {
        struct mill_record got = {0};
        uint32_t left;
        int error = next(cases[i].bytes, cases[i].size_bytes, &got, &left);
        if (error != cases[i].error) {
            fail_msg("case %zu: %d", i, error);
        }
    }
}

static void test_record_next_cut_or_changed_never_past_end(void **state)
{
    (void)state;
    uint8_t bytes[RECORD_BYTES];
    struct mill_record got;
    uint32_t left;
    memcpy(bytes, record, RECORD_BYTES);
    bytes[0] = (RECORD_BYTES - 1) * 2;
    assert_int_equal(next(bytes, RECORD_BYTES, &got, &left), 0);
    for (size_t size = 0; size < RECORD_BYTES; size++) {
        assert_int_equal(next(bytes, size, &got, &left), -EBADMSG);
    }
    for (size_t at = 0; at < RECORD_BYTES; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t broken[RECORD_BYTES];
            memcpy(broken, bytes, RECORD_BYTES);
            broken[at] = (uint8_t)value;
            int error = next(broken, RECORD_BYTES, &got, &left);
            assert_true(error == 0 || error == -EBADMSG);
        }
    }
}

/* Two equal cursors over the same bytes. */
static bool same_bytes(const struct mill_cursor *one, const struct mill_cursor *other)
{
    uint8_t a[64];
    uint8_t b[64];
    struct mill_cursor from_one = *one;
    struct mill_cursor from_other = *other;
    return one->left_bytes == other->left_bytes && one->left_bytes <= sizeof(a) &&
           mill_cursor_read(&from_one, a, one->left_bytes) == 0 &&
           mill_cursor_read(&from_other, b, other->left_bytes) == 0 &&
           memcmp(a, b, one->left_bytes) == 0;
}

/* A record in one buffer is read by other code than one over several: they must agree on all. */
static void test_record_next_one_buffer_same_as_many(void **state)
{
    (void)state;
    struct mill_random random = {.state = 5};
    for (uint32_t round = 0; round < 200000; round++) {
        uint8_t bytes[RECORD_BYTES + 16] = {0};
        struct mill_buf one;
        struct mill_buf many[RECORD_BYTES + 16];
        struct mill_record flat;
        struct mill_record slow;
        memcpy(bytes, record, RECORD_BYTES);
        bytes[0] = (RECORD_BYTES - 1) * 2;
        for (uint32_t changes = mill_random_below(&random, 4); changes > 0; changes--) {
            bytes[mill_random_below(&random, RECORD_BYTES)] = (uint8_t)mill_random_next(&random);
        }
        for (uint32_t i = 0; i < sizeof(bytes); i++) {
            (void)mill_cursor_over(&many[i], bytes + i, 1);
            many[i].next = i + 1 < sizeof(bytes) ? &many[i + 1] : NULL;
        }
        struct mill_cursor at_one = mill_cursor_over(&one, bytes, sizeof(bytes));
        struct mill_cursor at_many = {.buf = many, .left_bytes = sizeof(bytes)};
        int error = mill_record_next(&at_one, &flat);
        assert_int_equal(error, mill_record_next(&at_many, &slow));
        if (error == 0) {
            assert_int_equal(at_one.left_bytes, at_many.left_bytes);
            assert_int_equal(flat.timestamp_delta, slow.timestamp_delta);
            assert_int_equal(flat.offset_delta, slow.offset_delta);
            assert_int_equal(flat.key_length, slow.key_length);
            assert_int_equal(flat.value_length, slow.value_length);
            assert_int_equal(flat.headers_count, slow.headers_count);
            assert_true(same_bytes(&flat.key, &slow.key));
            assert_true(same_bytes(&flat.value, &slow.value));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_read_every_field),
        cmocka_unit_test(test_record_next_takes_one),
        cmocka_unit_test(test_record_next_null_and_negative),
        cmocka_unit_test(test_record_next_cut_or_changed_never_past_end),
        cmocka_unit_test(test_record_next_one_buffer_same_as_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
