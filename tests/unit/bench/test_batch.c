/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the load sends is what a broker takes: sound batches, right sums after a patch,
 * requests that the codec reads back. Method: the project's own readers over encoded bytes. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "bench/batch.h"
#include "protocol/messages.h"

static uint32_t crc_of(const uint8_t *bytes, uint32_t size_bytes)
{
    return mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size_bytes - MILL_BATCH_SUMMED_AT);
}

static void check_batch(uint32_t records, uint32_t value_bytes)
{
    uint64_t size = bench_batch_bytes(records, value_bytes);
    uint8_t *bytes = malloc(size);
    struct mill_batch batch;
    struct mill_buf buf;
    struct mill_record record;
    assert_non_null(bytes);
    assert_int_equal(bench_batch_encode(bytes, records, value_bytes, 12345, 1), size);
    mill_batch_read(bytes, &batch);
    assert_int_equal(mill_batch_size_bytes(&batch), size);
    assert_int_equal(batch.magic, 2);
    assert_int_equal(batch.crc, crc_of(bytes, (uint32_t)size));
    assert_int_equal(batch.records_count, records);
    assert_int_equal(batch.last_offset_delta, records - 1);
    assert_int_equal(batch.max_timestamp, 12345);
    assert_int_equal(batch.producer_id, -1);
    struct mill_cursor at = mill_cursor_over(&buf, bytes + MILL_BATCH_HEADER_BYTES,
                                             (uint32_t)size - MILL_BATCH_HEADER_BYTES);
    for (uint32_t i = 0; i < records; i++) {
        assert_int_equal(mill_record_next(&at, &record), 0);
        assert_int_equal(record.offset_delta, i);
        assert_int_equal(record.key_length, -1);
        assert_int_equal(record.value_length, value_bytes);
        assert_int_equal(record.headers_count, 0);
    }
    assert_int_equal(at.left_bytes, 0);
    free(bytes);
}

static void test_encode_is_read_back(void **state)
{
    (void)state;
    check_batch(1, 16);
    check_batch(1, 200);
    check_batch(78, 200);
    check_batch(15, 1000);
    check_batch(20000, 17);
    check_batch(3, 1 << 20);
}

static void test_records_fill_but_never_pass_the_size(void **state)
{
    (void)state;
    for (uint32_t size = 60; size < 40000; size += 331) {
        for (uint32_t value = 16; value < 3000; value = value * 3 / 2) {
            uint32_t records = bench_batch_records(size, value);
            assert_true(records == 0 || bench_batch_bytes(records, value) <= size);
            assert_true(bench_batch_bytes(records + 1, value) > size);
        }
    }
}

static void test_set_sequence_keeps_the_sum_right(void **state)
{
    (void)state;
    static const int32_t sequences[] = {0, 1, 255, 256, 77, 0x12345678, INT32_MAX, 0, -1};
    static const uint32_t sizes[] = {1, 20, 78};
    struct bench_crc_shift *shift = malloc(sizeof(*shift));
    assert_non_null(shift);
    for (uint32_t i = 0; i < MILL_COUNT_OF(sizes); i++) {
        static uint8_t bytes[20000];
        struct mill_batch batch;
        uint32_t size = bench_batch_encode(bytes, sizes[i], 200, 1, 2);
        bench_batch_set_producer(bytes, size, 4711, 3);
        bench_crc_shift_init(shift, size);
        for (uint32_t j = 0; j < MILL_COUNT_OF(sequences); j++) {
            bench_batch_set_sequence(bytes, shift, sequences[j]);
            mill_batch_read(bytes, &batch);
            assert_int_equal(batch.base_sequence, sequences[j]);
            assert_int_equal(batch.producer_id, 4711);
            assert_int_equal(batch.producer_epoch, 3);
            assert_int_equal(batch.crc, crc_of(bytes, size));
        }
    }
    free(shift);
}

/* Reads a request's header; ret_body stands behind it. */
static void head_read(const uint8_t *bytes, uint32_t size_bytes, struct mill_buf *buf,
                      struct mill_request_header *ret_header, struct mill_cursor *ret_body)
{
    *ret_body = mill_cursor_over(buf, bytes + 4, size_bytes - 4);
    assert_int_equal(mill_request_header_decode(ret_body, ret_header), 0);
}

static void test_head_produce_is_read_back_after_patches(void **state)
{
    (void)state;
    uint8_t frame[1024];
    struct bench_head head;
    struct mill_buf buf;
    struct mill_request_header header;
    struct mill_cursor body;
    struct mill_produce_request request;
    struct mill_produce_request_topic_data topic;
    struct mill_produce_request_topic_data_partition_data partition;
    uint32_t batch_bytes = (uint32_t)bench_batch_bytes(1, 100);
    assert_int_equal(bench_head_produce(&head, "load", 1, 777, batch_bytes), 0);
    assert_int_equal(mill_load_be32(head.bytes), head.size_bytes - 4 + batch_bytes);
    mill_store_be32(head.bytes + head.correlation_at, 99);
    mill_store_be32(head.bytes + head.partition_at, 5);
    memcpy(frame, head.bytes, head.size_bytes);
    bench_batch_encode(frame + head.size_bytes, 1, 100, 1, 1);
    head_read(frame, head.size_bytes + batch_bytes, &buf, &header, &body);
    assert_int_equal(header.correlation_id, 99);
    assert_int_equal(mill_produce_request_decode(&body, header.api_version, &request), 0);
    assert_int_equal(request.acks, 1);
    assert_int_equal(request.timeout_ms, 777);
    assert_true(mill_produce_request_topic_data_next(&request.topic_data, 7, &topic));
    assert_true(mill_wstr_equal(&topic.name, "load", 4));
    assert_true(
        mill_produce_request_topic_data_partition_data_next(&topic.partition_data, 7, &partition));
    assert_int_equal(partition.index, 5);
    assert_int_equal(partition.records.length, batch_bytes);
    assert_int_equal(body.left_bytes, 0);
}

static void test_head_fetch_is_read_back_after_patches(void **state)
{
    (void)state;
    struct bench_head head;
    struct mill_buf buf;
    struct mill_request_header header;
    struct mill_cursor body;
    struct mill_fetch_request request;
    struct mill_fetch_request_topics topic;
    struct mill_fetch_request_topics_partitions partition;
    assert_int_equal(bench_head_fetch(&head, "load", 1 << 20, 500), 0);
    mill_store_be32(head.bytes + head.correlation_at, 98);
    mill_store_be32(head.bytes + head.partition_at, 6);
    mill_store_be64(head.bytes + head.offset_at, 0x123456789a);
    assert_int_equal(mill_load_be32(head.bytes), head.size_bytes - 4);
    head_read(head.bytes, head.size_bytes, &buf, &header, &body);
    assert_int_equal(header.correlation_id, 98);
    assert_int_equal(mill_fetch_request_decode(&body, header.api_version, &request), 0);
    assert_int_equal(request.max_bytes, 1 << 20);
    assert_int_equal(request.max_wait_ms, 500);
    assert_true(mill_fetch_request_topics_next(&request.topics, 4, &topic));
    assert_true(mill_fetch_request_topics_partitions_next(&topic.partitions, 4, &partition));
    assert_int_equal(partition.partition, 6);
    assert_int_equal(partition.fetch_offset, 0x123456789a);
    assert_int_equal(partition.partition_max_bytes, 1 << 20);
    assert_int_equal(body.left_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_is_read_back),
        cmocka_unit_test(test_records_fill_but_never_pass_the_size),
        cmocka_unit_test(test_set_sequence_keeps_the_sum_right),
        cmocka_unit_test(test_head_produce_is_read_back_after_patches),
        cmocka_unit_test(test_head_fetch_is_read_back_after_patches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
