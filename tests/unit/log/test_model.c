/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever was appended is read back, from every offset and within the limits given, from
 * extents, from the files after eviction, and after a restart; watches, epochs, times and flushes
 * behave. Method: random appends of several sizes (seeded) beside a plain list of batches. */
#include "tests/unit/test.h"

#include <errno.h>

#include <zlib.h>

#include "base/random.h"
#include "tests/unit/log/fixture.h"

enum {
    BATCHES = 600,
};

struct kept {
    int64_t offset;
    int32_t count;
    uint32_t size;
    uint32_t crc; /* of everything after the CRC field */
    int64_t timestamp;
};

static struct fixture f;
static struct kept kept[BATCHES];
static struct mill_read_result got;

static void append_all(struct mill_partition *partition, struct mill_random *random,
                       struct maker *m, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        m->value_bytes = mill_random_below(random, 8) == 0 ? 1500 : mill_random_below(random, 60);
        m->fill = (uint8_t)mill_random_next(random);
        m->timestamp = 1700000000000 + (int64_t)i * 100;
        int32_t records = 1 + (int32_t)mill_random_below(random, 20);
        maker_build(m, records);
        struct mill_append_result result = maker_must(&f, partition, m);
        kept[i] = (struct kept){
            .offset = result.base_offset,
            .count = records,
            .size = m->size,
            .crc = mill_crc32c(m->bytes + 21, m->size - 21),
            .timestamp = m->timestamp,
        };
    }
}

static uint32_t kept_at(int64_t offset, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (offset < kept[i].offset + kept[i].count) {
            return i;
        }
    }
    return count;
}

/* Reads at one offset and compares every batch given with the list. */
static void check_read(struct mill_partition *partition, int64_t offset, uint32_t count,
                       uint32_t bytes_max)
{
    struct mill_read read = {.offset = offset,
                             .bytes_max = bytes_max,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 4};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, 0);
    uint32_t at = kept_at(offset, count);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < got.refs_count; i++) {
        const uint8_t *data = mill_ref_data(mill_arena_base(f.arena), &got.refs[i]);
        uint32_t pos = 0;
        while (pos < got.refs[i].size_bytes) {
            assert_true(at < count);
            assert_int_equal(mill_load_be64(data + pos), kept[at].offset);
            assert_int_equal(mill_load_be32(data + pos + 8) + 12, kept[at].size);
            assert_int_equal(mill_crc32c(data + pos + 21, kept[at].size - 21), kept[at].crc);
            pos += kept[at].size;
            bytes += kept[at].size;
            at++;
        }
    }
    assert_int_equal(bytes, got.bytes);
    assert_true(bytes > 0);
    assert_true(bytes <= bytes_max || bytes == kept[kept_at(offset, count)].size);
}

static void check_every_offset(struct mill_partition *partition, uint32_t count, uint32_t step)
{
    int64_t end = mill_partition_end(partition);
    for (int64_t offset = 0; offset < end; offset += step) {
        check_read(partition, offset, count, 1 + (uint32_t)(offset * 37 % 40000));
    }
}

static void test_read_every_offset_hot_cold_and_after_restart(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_random random = {.state = 20261130};
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    settings.segment_bytes = 1 << 20;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    append_all(partition, &random, m, 0, BATCHES / 2);
    check_every_offset(partition, BATCHES / 2, 1);
    fixture_settle(&f);
    assert_int_equal(mill_log_stats(f.log)->dirty_bytes, 0);
    assert_true(mill_extents_used_bytes(f.extents) > 0);
    for (int i = 0; i < 10; i++) {
        fixture_step(&f, 1000);
    }
    assert_int_equal(mill_extents_used_bytes(f.extents), 0); /* an idle partition owns none */
    check_every_offset(partition, BATCHES / 2, 7);
    assert_true(mill_log_stats(f.log)->cold_reads > 0);
    append_all(partition, &random, m, BATCHES / 2, BATCHES / 2);
    check_every_offset(partition, BATCHES, 5);
    fixture_close(&f, true);
    fixture_open(&f);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition),
                     kept[BATCHES - 1].offset + kept[BATCHES - 1].count);
    check_every_offset(partition, BATCHES, 3);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_read_bounds_and_epochs(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    int32_t epoch;
    int64_t end;
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 4);
    maker_must(&f, partition, m);
    mill_log_update(partition, 7, &settings);
    maker_must(&f, partition, m);
    struct mill_read read = {
        .offset = 9, .bytes_max = 9999, .current_epoch = -1, .last_epoch = -1, .refs_max = 4};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, MILL_KERR_OFFSET_OUT_OF_RANGE);
    assert_int_equal(got.high_watermark, -1);
    read.offset = 8;
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, 0);
    assert_int_equal(got.refs_count, 0);
    assert_int_equal(got.high_watermark, 8);
    read.current_epoch = 3;
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, MILL_KERR_FENCED_LEADER_EPOCH);
    read.current_epoch = 8;
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, MILL_KERR_UNKNOWN_LEADER_EPOCH);
    read.current_epoch = 7;
    read.last_epoch = 3;
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.diverging_epoch, 3); /* it ended at 4, the reader stands at 8 */
    assert_int_equal(got.diverging_end, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mill_log_epoch_at(partition, 3), 3);
        assert_int_equal(mill_log_epoch_at(partition, 4), 7);
        mill_log_epoch_end(partition, 3, &epoch, &end);
        assert_int_equal(epoch, 3);
        assert_int_equal(end, 4);
        mill_log_epoch_end(partition, 5, &epoch, &end);
        assert_int_equal(epoch, 3);
        mill_log_epoch_end(partition, 7, &epoch, &end);
        assert_int_equal(end, 8);
        mill_log_epoch_end(partition, 8, &epoch, &end);
        assert_int_equal(epoch, -1);
        assert_int_equal(end, -1);
        mill_log_epoch_end(partition, 1, &epoch, &end);
        assert_int_equal(epoch, 1);
        assert_int_equal(end, 0);
        fixture_close(&f, i == 1);
        fixture_open(&f);
        partition = fixture_partition(&f, 0, &settings);
    }
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_watch_waits_for_bytes(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 2);
    maker_must(&f, partition, m);
    mill_log_watch_data(partition, &watch, 0, m->size * 2 + 1);
    maker_must(&f, partition, m);
    fixture_settle(&f);
    assert_false(fired);
    maker_must(&f, partition, m);
    fixture_settle(&f);
    assert_true(fired);
    fired = false;
    mill_log_watch_data(partition, &watch, 6, 1);
    fixture_settle(&f);
    assert_false(fired);
    mill_log_unwatch(&watch);
    maker_must(&f, partition, m);
    fixture_settle(&f);
    assert_false(fired);
    mill_log_watch_data(partition, &watch, 8, 1);
    mill_log_delete(partition);
    fixture_settle(&f);
    assert_int_equal(f.fired_changed, 1);
    assert_int_equal(f.gone, 1);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_flush_messages_holds_back_readers(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    fixture_make(&f, NULL);
    fixture_open(&f);
    settings.flush_messages = 1;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 2);
    struct mill_append_result result = maker_must(&f, partition, m);
    assert_true(result.must_flush);
    assert_int_equal(mill_partition_end(partition), 2);
    assert_int_equal(mill_partition_high_watermark(partition), 0);
    mill_log_watch_flush(partition, &watch, result.end_offset);
    mill_log_step(f.log, f.now);
    assert_false(fired);
    fixture_settle(&f);
    assert_true(fired);
    assert_int_equal(mill_partition_high_watermark(partition), 2);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static struct mill_time_result find_time(struct mill_partition *partition, int64_t time_ms)
{
    struct mill_time_result result;
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    for (int i = 0; i < 10; i++) {
        if (mill_log_find_time(partition, time_ms, false, &watch, &result) == 0) {
            return result;
        }
        fixture_settle(&f);
        assert_true(fired);
    }
    fail_msg("no answer");
    return result;
}

static void test_find_time_gives_the_first_record(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_random random = {.state = 5};
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    settings.segment_bytes = 200000;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    append_all(partition, &random, m, 0, 300);
    for (uint32_t i = 0; i < 300; i += 11) {
        struct mill_time_result result = find_time(partition, kept[i].timestamp);
        assert_int_equal(result.error, 0);
        assert_int_equal(result.offset, kept[i].offset);
        assert_int_equal(result.timestamp, kept[i].timestamp);
        assert_int_equal(result.leader_epoch, 3);
        if (kept[i].count > 1) {
            result = find_time(partition, kept[i].timestamp + 1);
            assert_int_equal(result.offset, kept[i].offset + 1);
        }
    }
    struct mill_time_result result = find_time(partition, kept[299].timestamp + 1000);
    assert_int_equal(result.error, 0);
    assert_int_equal(result.offset, -1);
    result = find_time(partition, MILL_TIME_MAX);
    assert_int_equal(result.offset, kept[299].offset + kept[299].count - 1);
    result = find_time(partition, 0);
    assert_int_equal(result.offset, 0);
    /* What was deleted is not found, though it is still in the files: also inside of a batch. */
    for (uint32_t i = 0; i < 300; i += 13) {
        int64_t start = kept[i].offset + kept[i].count / 2;
        bool fired = false;
        struct mill_log_watch watch = {.user = &fired};
        while (mill_log_trim(partition, start, &watch) == -EINPROGRESS) {
            fixture_settle(&f);
        }
        mill_log_unwatch(&watch);
        assert_int_equal(find_time(partition, 0).offset, start);
        assert_int_equal(find_time(partition, kept[i].timestamp).offset, start);
    }
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

/* Replaces the records of a built batch by their gzip form. */
static void pack_records(struct maker *m)
{
    static uint8_t packed[64 << 10];
    z_stream stream = {.next_in = m->bytes + 61,
                       .avail_in = m->size - 61,
                       .next_out = packed,
                       .avail_out = sizeof(packed)};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    memcpy(m->bytes + 61, packed, stream.total_out);
    m->size = 61 + (uint32_t)stream.total_out;
    deflateEnd(&stream);
    mill_store_be16(m->bytes + 21, MILL_CODEC_GZIP);
    mill_store_be32(m->bytes + 8, m->size - 12);
    maker_sum(m);
}

static void test_find_time_inside_a_compressed_batch(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 50);
    pack_records(m);
    maker_must(&f, partition, m);
    struct mill_time_result result = find_time(partition, m->timestamp + 31);
    assert_int_equal(result.error, 0);
    assert_int_equal(result.offset, 31);
    assert_int_equal(result.timestamp, m->timestamp + 31);
    assert_int_equal(find_time(partition, MILL_TIME_MAX).offset, 49);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_append_at_dirty_limit_asks_again(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_append_result result;
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    f.limits.dirty_max_bytes = 10000;
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    m->value_bytes = 300;
    maker_build(m, 10);
    int r = 0;
    uint32_t accepted = 0;
    while ((r = maker_append(&f, partition, m, &result)) == 0) {
        accepted++;
    }
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(accepted, 10000 / m->size);
    assert_int_equal(mill_partition_end(partition), accepted * 10);
    assert_int_equal(mill_log_stats(f.log)->dirty_full, 1);
    fixture_settle(&f);
    assert_int_equal(maker_append(&f, partition, m, &result), 0);
    assert_int_equal(result.base_offset, accepted * 10);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_append_beyond_memory_evicts_what_is_written(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    f.options.size_bytes = 8 << 20;
    f.options.extent_bytes_max = 2 << 20;
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    m->value_bytes = 1900;
    maker_build(m, 30);
    for (int i = 0; i < 600; i++) { /* 34 MB through 8 */
        assert_int_equal(maker_must(&f, partition, m).base_offset, i * 30);
    }
    struct mill_read read = {.offset = 0,
                             .bytes_max = 1 << 20,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 4};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, 0);
    assert_true(got.bytes > 0);
    /* A loan keeps its extent, whatever is needed elsewhere. */
    uint8_t *data = mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
    struct mill_ref loan = got.refs[0];
    mill_loan_take(&f.loans, &loan);
    for (int i = 0; i < 600; i++) {
        maker_must(&f, partition, m);
        assert_int_equal(mill_load_be64(data), 0);
    }
    mill_loan_give(&f.loans, &loan);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_every_offset_hot_cold_and_after_restart),
        cmocka_unit_test(test_read_bounds_and_epochs),
        cmocka_unit_test(test_watch_waits_for_bytes),
        cmocka_unit_test(test_flush_messages_holds_back_readers),
        cmocka_unit_test(test_find_time_gives_the_first_record),
        cmocka_unit_test(test_find_time_inside_a_compressed_batch),
        cmocka_unit_test(test_append_at_dirty_limit_asks_again),
        cmocka_unit_test(test_append_beyond_memory_evicts_what_is_written),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
