/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: answers are understood however they are cut, and what is none is refused, never followed.
 * Method: answers made by the codec, fed in random pieces; lengths and counts changed one by one.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/random.h"
#include "bench/answer.h"
#include "bench/batch.h"

enum {
    TOPIC_BYTES = 4,
    ROUNDS = 200,
    ANSWER_BYTES_MAX = 1 << 16,
    PRODUCE_BYTES = 4 + 4 + 4 + 2 + TOPIC_BYTES + 4 + 4 + 2 + 8 + 8 + 8 + 4,
    FETCH_HEAD_BYTES = 4 + 4 + 4 + 4 + 2 + TOPIC_BYTES + 4 + 4 + 2 + 8 + 8 + 4 + 4,
};

static uint8_t *put16(uint8_t *to, uint32_t value)
{
    mill_store_be16(to, (uint16_t)value);
    return to + 2;
}

static uint8_t *put32(uint8_t *to, uint32_t value)
{
    mill_store_be32(to, value);
    return to + 4;
}

static uint8_t *put64(uint8_t *to, uint64_t value)
{
    mill_store_be64(to, value);
    return to + 8;
}

static uint8_t *put_topic(uint8_t *to, uint32_t partition, uint32_t error)
{
    to = put32(to, 1);
    to = put16(to, TOPIC_BYTES);
    memcpy(to, "load", TOPIC_BYTES);
    to = put32(to + TOPIC_BYTES, 1);
    to = put32(to, partition);
    return put16(to, error);
}

/* Produce version 7 (schema: protocol/schema/produce.schema). */
static uint32_t put_produce(uint8_t *bytes, uint32_t correlation, uint32_t error, uint64_t base)
{
    uint8_t *to = put32(bytes, PRODUCE_BYTES - 4);
    to = put32(to, correlation);
    to = put_topic(to, 3, error);
    to = put64(to, base);
    to = put64(to, UINT64_MAX);
    to = put64(to, 0);
    to = put32(to, 0);
    assert_int_equal(to - bytes, PRODUCE_BYTES);
    return PRODUCE_BYTES;
}

/* Fetch version 4, with whole batches of 10 records from offset 100 on and the start of one more.
 */
static uint32_t put_fetch(uint8_t *bytes, uint32_t batches, uint32_t aborted, uint32_t cut_bytes)
{
    uint32_t one = (uint32_t)bench_batch_bytes(10, 100);
    uint32_t records = batches * one + cut_bytes;
    uint8_t *to = put32(bytes, FETCH_HEAD_BYTES - 4 + aborted * 16 + records);
    to = put32(to, 8);
    to = put32(to, 0);
    to = put_topic(to, 3, 0);
    to = put64(to, 1000);
    to = put64(to, 1000);
    to = put32(to, aborted ? aborted : UINT32_MAX);
    memset(to, 0, aborted * 16);
    to = put32(to + aborted * 16, records);
    for (uint32_t i = 0; i <= batches; i++) {
        uint8_t batch[2048];
        bench_batch_encode(batch, 10, 100, 1, i);
        mill_store_be64(batch, 100 + i * 10);
        memcpy(to, batch, i < batches ? one : cut_bytes);
        to += i < batches ? one : cut_bytes;
    }
    return (uint32_t)(to - bytes);
}

/* Feeds size_bytes in pieces. ret: answers found, or negative. */
static int feed(struct bench_answer *answer, const uint8_t *bytes, uint32_t size_bytes,
                struct mill_random *random)
{
    int found = 0;
    for (uint32_t at = 0; at < size_bytes;) {
        uint32_t part = MILL_MIN(1 + mill_random_below(random, 700), size_bytes - at);
        for (uint32_t done = 0; done < part;) {
            uint32_t used = 0;
            int r = bench_answer_take(answer, bytes + at + done, part - done, &used);
            if (r < 0) {
                return r;
            }
            found += r;
            done += used;
        }
        at += part;
    }
    return found;
}

static void test_take_produce_any_cut(void **state)
{
    (void)state;
    struct mill_random random = {.state = 1};
    struct bench_answer answer;
    uint8_t bytes[3 * PRODUCE_BYTES];
    bench_answer_init(&answer, false, TOPIC_BYTES);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        put_produce(bytes, 1, 0, 5);
        put_produce(bytes + PRODUCE_BYTES, 2, 0, 6);
        put_produce(bytes + 2 * PRODUCE_BYTES, 7, 6, 70);
        assert_int_equal(feed(&answer, bytes, sizeof(bytes), &random), 3);
        assert_int_equal(answer.found.correlation_id, 7);
        assert_int_equal(answer.found.partition, 3);
        assert_int_equal(answer.found.error, 6);
        assert_int_equal(answer.found.base_offset, 70);
    }
}

static void test_take_fetch_any_cut(void **state)
{
    (void)state;
    static const struct {
        uint32_t batches;
        uint32_t aborted;
        uint32_t cut_bytes;
    } rows[] = {{0, 0, 0}, {1, 0, 0}, {9, 2, 0}, {5, 0, 30}, {5, 0, 61}, {5, 1, 500}, {0, 0, 200}};
    static uint8_t bytes[ANSWER_BYTES_MAX];
    struct mill_random random = {.state = 2};
    struct bench_answer answer;
    uint32_t one = (uint32_t)bench_batch_bytes(10, 100);
    bench_answer_init(&answer, true, TOPIC_BYTES);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t row = i % MILL_COUNT_OF(rows);
        uint32_t batches = rows[row].batches;
        uint32_t size = put_fetch(bytes, batches, rows[row].aborted, rows[row].cut_bytes);
        assert_int_equal(feed(&answer, bytes, size, &random), 1);
        assert_int_equal(answer.found.correlation_id, 8);
        assert_int_equal(answer.found.high_watermark, 1000);
        assert_int_equal(answer.found.next_offset, batches ? (int64_t)(100 + batches * 10) : -1);
        assert_int_equal(answer.found.records, batches * 10);
        assert_int_equal(answer.found.records_bytes, batches * one);
    }
}

/* One wrong value at a place must be refused. */
static void refuse(bool fetch, uint32_t at, uint32_t value, bool wide)
{
    static uint8_t bytes[ANSWER_BYTES_MAX];
    struct mill_random random = {.state = 3};
    struct bench_answer answer;
    uint32_t size = fetch ? put_fetch(bytes, 3, 0, 0) : put_produce(bytes, 1, 0, 5);
    if (wide) {
        mill_store_be32(bytes + at, value);
    } else {
        mill_store_be16(bytes + at, (uint16_t)value);
    }
    bench_answer_init(&answer, fetch, TOPIC_BYTES);
    if (feed(&answer, bytes, size, &random) != -EBADMSG) {
        fail_msg("fetch %d: %u at %u was taken", fetch, value, at);
    }
}

static void test_take_unsound_is_refused(void **state)
{
    (void)state;
    uint32_t records_at = FETCH_HEAD_BYTES - 4;
    refuse(false, 0, 3, true);
    refuse(false, 0, UINT32_MAX, true);
    refuse(false, 0, BENCH_ANSWER_HEAD_BYTES_MAX + 1, true);
    refuse(false, 8, 2, true);
    refuse(false, 12, TOPIC_BYTES + 1, false);
    refuse(false, 14 + TOPIC_BYTES, 0, true);
    refuse(true, 0, 20, true);
    refuse(true, 0, UINT32_MAX, true);
    refuse(true, 12, 0, true);
    refuse(true, 18 + TOPIC_BYTES, 2, true);
    refuse(true, records_at - 4, 1 << 20, true); /* aborted transactions */
    refuse(true, records_at - 4, INT32_MAX, true);
    refuse(true, records_at, INT32_MAX, true);   /* more records than bytes */
    refuse(true, FETCH_HEAD_BYTES + 8, 0, true); /* a batch's length */
    refuse(true, FETCH_HEAD_BYTES + 8, UINT32_MAX, true);
    refuse(true, FETCH_HEAD_BYTES + 23, UINT32_MAX, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_produce_any_cut),
        cmocka_unit_test(test_take_fetch_any_cut),
        cmocka_unit_test(test_take_unsound_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
