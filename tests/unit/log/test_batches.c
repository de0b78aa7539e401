/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each wrong value of each field of a record batch gets the answer that the table of
 * docs/differences.md and Kafka's rules give; after an error the log end is unchanged; after a
 * correction the stored batch and its CRC are right. Method: a table of changes to a good batch. */
#include "tests/unit/test.h"

#include <errno.h>

#include "tests/unit/log/fixture.h"

struct wrong {
    const char *name;
    void (*change)(struct maker *m);
    bool sum; /* the change is inside the CRC: sum again */
    enum mill_kerr error;
    int32_t bad_record;
};

#define FIELD(name, at, store, value)                                                              \
    static void name(struct maker *m)                                                              \
    {                                                                                              \
        store(m->bytes + (at), (value));                                                           \
    }

FIELD(base_offset_1, 0, mill_store_be64, 1)
FIELD(base_offset_minus, 0, mill_store_be64, UINT64_MAX)
FIELD(length_negative, 8, mill_store_be32, UINT32_MAX)
FIELD(length_48, 8, mill_store_be32, 48)
FIELD(length_zero, 8, mill_store_be32, 0)
FIELD(crc_wrong, 17, mill_store_be32, 12345)
FIELD(codec_5, 21, mill_store_be16, 5)
FIELD(codec_7, 21, mill_store_be16, 7)
FIELD(transactional, 21, mill_store_be16, MILL_BATCH_TRANSACTIONAL)
FIELD(control, 21, mill_store_be16, MILL_BATCH_CONTROL)
FIELD(horizon, 21, mill_store_be16, MILL_BATCH_DELETE_HORIZON)
FIELD(last_delta_low, 23, mill_store_be32, 1)
FIELD(last_delta_high, 23, mill_store_be32, 3)
FIELD(last_delta_minus, 23, mill_store_be32, UINT32_MAX)
FIELD(count_zero, 57, mill_store_be32, 0)
FIELD(count_minus, 57, mill_store_be32, UINT32_MAX)
FIELD(count_huge, 57, mill_store_be32, INT32_MAX)
FIELD(time_overflow, 27, mill_store_be64, INT64_MAX)
FIELD(time_far, 27, mill_store_be64, 1700000000000 + 7200000)

static void length_longer(struct maker *m)
{
    mill_store_be32(m->bytes + 8, m->size - 12 + 1);
}
static void length_shorter(struct maker *m)
{
    mill_store_be32(m->bytes + 8, m->size - 12 - 1);
}
static void stray_bytes(struct maker *m)
{
    m->size += 11;
}
static void two_batches(struct maker *m)
{
    memcpy(m->bytes + m->size, m->bytes, m->size);
    m->size *= 2;
}
static void empty(struct maker *m)
{
    m->size = 0;
}
static void one_byte(struct maker *m)
{
    m->size = 1;
}
static void cut_header(struct maker *m)
{
    m->size = 60;
}
static void magic_0(struct maker *m)
{
    m->bytes[16] = 0;
}
static void magic_1(struct maker *m)
{
    m->bytes[16] = 1;
}
static void magic_3(struct maker *m)
{
    m->bytes[16] = 3;
}
static void magic_minus(struct maker *m)
{
    m->bytes[16] = 0xff;
}
static void sequence_missing(struct maker *m)
{
    mill_store_be64(m->bytes + 43, 5);
    mill_store_be16(m->bytes + 51, 0);
}
static void producer_epoch_missing(struct maker *m)
{
    mill_store_be64(m->bytes + 43, 5);
    mill_store_be32(m->bytes + 53, 0);
}
static void counts_agree_on_more(struct maker *m)
{
    mill_store_be32(m->bytes + 23, 3);
    mill_store_be32(m->bytes + 57, 4);
}
static void counts_agree_on_less(struct maker *m)
{
    mill_store_be32(m->bytes + 23, 1);
    mill_store_be32(m->bytes + 57, 2);
}
static void body_flipped(struct maker *m)
{
    m->bytes[m->size - 1] ^= 1;
}
/* Records of the maker: length, attributes, time delta, offset delta, ...; 30 bytes of 29. */
static void record_length_long(struct maker *m)
{
    m->bytes[61] += 2;
}
static void record_length_minus(struct maker *m)
{
    m->bytes[61] = 1;
}
static void offset_delta_wrong(struct maker *m)
{
    m->bytes[64] = 4;
}
static void second_delta_wrong(struct maker *m)
{
    uint32_t size = 1 + m->bytes[61] / 2;
    m->bytes[61 + size + 3] = 0;
}

static const struct wrong wrongs[] = {
    {"empty", empty, false, MILL_KERR_INVALID_RECORD, -1},
    {"one byte", one_byte, false, MILL_KERR_INVALID_RECORD, -1},
    {"cut header", cut_header, false, MILL_KERR_INVALID_RECORD, -1},
    {"base offset 1", base_offset_1, false, MILL_KERR_INVALID_RECORD, -1},
    {"base offset -1", base_offset_minus, false, MILL_KERR_INVALID_RECORD, -1},
    {"length -1", length_negative, false, MILL_KERR_CORRUPT_MESSAGE, -1},
    {"length 0", length_zero, false, MILL_KERR_CORRUPT_MESSAGE, -1},
    {"length 48", length_48, false, MILL_KERR_CORRUPT_MESSAGE, -1},
    {"length too long", length_longer, false, MILL_KERR_INVALID_RECORD, -1},
    {"length too short", length_shorter, false, MILL_KERR_INVALID_RECORD, -1},
    {"stray bytes", stray_bytes, false, MILL_KERR_INVALID_RECORD, -1},
    {"two batches", two_batches, false, MILL_KERR_INVALID_RECORD, -1},
    {"magic 0", magic_0, false, MILL_KERR_INVALID_RECORD, -1},
    {"magic 1", magic_1, false, MILL_KERR_INVALID_RECORD, -1},
    {"magic 3", magic_3, false, MILL_KERR_CORRUPT_MESSAGE, -1},
    {"magic -1", magic_minus, false, MILL_KERR_CORRUPT_MESSAGE, -1},
    {"crc", crc_wrong, false, MILL_KERR_CORRUPT_MESSAGE, -1},
    {"flipped body", body_flipped, false, MILL_KERR_CORRUPT_MESSAGE, -1},
    {"codec 5", codec_5, true, MILL_KERR_INVALID_RECORD, -1},
    {"codec 7", codec_7, true, MILL_KERR_INVALID_RECORD, -1},
    {"transactional", transactional, true, MILL_KERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1},
    {"control", control, true, MILL_KERR_INVALID_RECORD, -1},
    {"delete horizon", horizon, true, MILL_KERR_INVALID_RECORD, -1},
    {"last offset delta low", last_delta_low, true, MILL_KERR_INVALID_RECORD, -1},
    {"last offset delta high", last_delta_high, true, MILL_KERR_INVALID_RECORD, -1},
    {"last offset delta -1", last_delta_minus, true, MILL_KERR_INVALID_RECORD, -1},
    {"count 0", count_zero, true, MILL_KERR_INVALID_RECORD, -1},
    {"count -1", count_minus, true, MILL_KERR_INVALID_RECORD, -1},
    {"count huge", count_huge, true, MILL_KERR_INVALID_RECORD, -1},
    {"more records promised", counts_agree_on_more, true, MILL_KERR_INVALID_RECORD, 3},
    {"fewer records promised", counts_agree_on_less, true, MILL_KERR_INVALID_RECORD, 1},
    {"sequence missing", sequence_missing, true, MILL_KERR_INVALID_RECORD, -1},
    {"producer epoch missing", producer_epoch_missing, true, MILL_KERR_INVALID_RECORD, -1},
    {"time far ahead", time_far, true, MILL_KERR_INVALID_TIMESTAMP, 0},
    {"time at the end", time_overflow, true, MILL_KERR_INVALID_TIMESTAMP, 0},
    {"record length long", record_length_long, true, MILL_KERR_INVALID_RECORD, 0},
    {"record length -1", record_length_minus, true, MILL_KERR_INVALID_RECORD, 0},
    {"offset delta", offset_delta_wrong, true, MILL_KERR_INVALID_RECORD, 0},
    {"second offset delta", second_delta_wrong, true, MILL_KERR_INVALID_RECORD, 1},
};

static struct fixture f;

static void test_append_wrong_field_is_refused_and_changes_nothing(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 3);
    maker_must(&f, partition, m);
    for (uint32_t i = 0; i < MILL_COUNT_OF(wrongs); i++) {
        const struct wrong *wrong = &wrongs[i];
        struct mill_append_result result;
        int64_t end = mill_partition_end(partition);
        uint64_t dirty = mill_log_stats(f.log)->dirty_bytes;
        maker_build(m, 3);
        wrong->change(m);
        if (wrong->sum) {
            maker_sum(m);
        }
        assert_int_equal(maker_append(&f, partition, m, &result), 0);
        if (result.error != wrong->error || result.bad_record != wrong->bad_record) {
            print_message("%s: error %d record %d (%s)\n", wrong->name, result.error,
                          result.bad_record, result.message);
        }
        assert_int_equal(result.error, wrong->error);
        assert_int_equal(result.bad_record, wrong->bad_record);
        assert_int_equal(result.base_offset, -1);
        assert_int_equal(result.start_offset, -1);
        assert_true(result.message[0] != '\0');
        assert_int_equal(mill_partition_end(partition), end);
        assert_int_equal(mill_log_stats(f.log)->dirty_bytes, dirty);
        maker_build(m, 3);
        assert_int_equal(maker_must(&f, partition, m).base_offset, end);
    }
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

/* The stored batch that begins at offset. */
static const uint8_t *stored(struct mill_partition *partition, int64_t offset, uint32_t *ret_size)
{
    struct mill_read read = {.offset = offset,
                             .bytes_max = 1,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 1};
    static struct mill_read_result got;
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.refs_count, 1);
    *ret_size = got.refs[0].size_bytes;
    return mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
}

static void check_stored(struct mill_partition *partition, int64_t offset, const struct maker *m,
                         int64_t max_timestamp, int16_t attributes)
{
    uint32_t size;
    const uint8_t *bytes = stored(partition, offset, &size);
    assert_int_equal(size, m->size);
    assert_int_equal(mill_load_be64(bytes), offset);
    assert_int_equal(mill_load_be32(bytes + 12), 3);
    assert_int_equal(mill_load_be64(bytes + 35), max_timestamp);
    assert_int_equal(mill_load_be16(bytes + 21), attributes);
    assert_int_equal(mill_load_be32(bytes + 17), mill_crc32c(bytes + 21, size - 21));
    assert_memory_equal(bytes + 61, m->bytes + 61, size - 61);
}

static void test_append_corrects_maximum_and_time_type(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 3);
    mill_store_be64(m->bytes + 35, 99); /* a wrong maximum is corrected, not refused */
    maker_sum(m);
    int64_t offset = maker_must(&f, partition, m).base_offset;
    check_stored(partition, offset, m, m->timestamp + 2, 0);
    m->attributes = MILL_BATCH_APPEND_TIME; /* not this topic's: cleared */
    maker_build(m, 3);
    offset = maker_must(&f, partition, m).base_offset;
    check_stored(partition, offset, m, m->timestamp + 2, 0);
    settings.append_time = true;
    mill_log_update(partition, 3, &settings);
    m->attributes = 0;
    m->timestamp = 77; /* any create time goes, for it is not kept */
    maker_build(m, 3);
    struct mill_append_result result = maker_must(&f, partition, m);
    assert_int_equal(result.append_time_ms, f.now.wall_ms);
    check_stored(partition, result.base_offset, m, f.now.wall_ms, MILL_BATCH_APPEND_TIME);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_append_topic_rules(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_append_result result;
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    settings.compact = true;
    settings.max_message_bytes = 200;
    settings.timestamp_before_max_ms = 1000;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    m->no_keys = true;
    maker_build(m, 2);
    assert_int_equal(maker_append(&f, partition, m, &result), 0);
    assert_int_equal(result.error, MILL_KERR_INVALID_RECORD);
    assert_int_equal(result.bad_record, 0);
    m->no_keys = false;
    maker_build(m, 5);
    assert_true(m->size > 200);
    assert_int_equal(maker_append(&f, partition, m, &result), 0);
    assert_int_equal(result.error, MILL_KERR_MESSAGE_TOO_LARGE);
    m->timestamp = f.now.wall_ms - 1001;
    maker_build(m, 2);
    assert_int_equal(maker_append(&f, partition, m, &result), 0);
    assert_int_equal(result.error, MILL_KERR_INVALID_TIMESTAMP);
    assert_int_equal(result.bad_record, 0);
    m->timestamp = f.now.wall_ms - 1000;
    maker_build(m, 2);
    assert_int_equal(maker_must(&f, partition, m).base_offset, 0);
    m->attributes = MILL_CODEC_ZSTD;
    maker_build(m, 2);
    struct mill_buf buf;
    struct mill_append append = {.records = mill_cursor_over(&buf, m->bytes, m->size),
                                 .size_bytes = m->size,
                                 .api_version = 6};
    assert_int_equal(mill_log_append(partition, &append, f.now, NULL, &result), 0);
    assert_int_equal(result.error, MILL_KERR_UNSUPPORTED_COMPRESSION_TYPE);
    assert_int_equal(mill_partition_end(partition), 2);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_wrong_field_is_refused_and_changes_nothing),
        cmocka_unit_test(test_append_corrects_maximum_and_time_type),
        cmocka_unit_test(test_append_topic_rules),
    };
    return cmocka_run_group_tests_name("batches", tests, NULL, NULL);
}
