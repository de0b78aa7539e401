/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: reading back from files stays within its budget, runs ahead of a reader that goes on and
 * on, and gives way to appends first. Method: a log much larger than the budget is written, its
 * broker started anew, so that all of it is cold; read over real files, by the store's own turn and
 * with helper threads. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/random.h"
#include "tests/unit/log/fixture.h"

enum {
    BATCHES = 420,
    RECORDS = 30,
    VALUE_BYTES = 2000,
};

static struct fixture f;
static struct maker *m;
static struct mill_read_result got;
static struct mill_partition *partition;
static uint64_t log_bytes;

/* A cold log of about 25 MB. */
static void setup(uint32_t helpers)
{
    struct mill_log_settings settings = fixture_settings();
    settings.segment_bytes = 4 << 20;
    fixture_make(&f, NULL);
    f.limits.cold_max_bytes = 4 << 20;
    f.helpers = helpers;
    fixture_open(&f);
    m = maker_new();
    m->value_bytes = VALUE_BYTES;
    maker_build(m, RECORDS);
    partition = fixture_partition(&f, 0, &settings);
    log_bytes = 0;
    for (uint32_t i = 0; i < BATCHES; i++) {
        maker_must(&f, partition, m);
        log_bytes += m->size;
    }
    fixture_close(&f, true);
    fixture_open(&f);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition), BATCHES * RECORDS);
}

static void teardown(void)
{
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

/* Reads at an offset and checks what came. ret: the next offset. */
static int64_t read_at(int64_t offset, uint32_t bytes_max)
{
    struct mill_read read = {.offset = offset,
                             .bytes_max = bytes_max,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 8};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, 0);
    assert_true(got.bytes >= m->size);
    int64_t next = offset / RECORDS * RECORDS;
    for (uint32_t i = 0; i < got.refs_count; i++) {
        const uint8_t *bytes = mill_ref_data(mill_arena_base(f.arena), &got.refs[i]);
        for (uint32_t at = 0; at < got.refs[i].size_bytes; at += m->size) {
            assert_int_equal(mill_load_be64(bytes + at), next);
            assert_memory_equal(bytes + at + 16, m->bytes + 16, m->size - 16);
            next += RECORDS;
        }
    }
    assert_true(mill_log_stats(f.log)->cold_bytes <= f.limits.cold_max_bytes);
    return next;
}

static void read_all(void)
{
    for (int64_t offset = 0; offset < BATCHES * RECORDS;) {
        offset = read_at(offset, 256 << 10);
    }
}

static void test_whole_log_is_read_within_the_budget(void **state)
{
    MILL_UNUSED(state);
    setup(0);
    read_all();
    const struct mill_log_stats *stats = mill_log_stats(f.log);
    /* A reader of a mebibyte at a time: nearly all of it was there before it asked. */
    assert_true(stats->cold_reads + stats->cold_reads_ahead >= log_bytes >> 20);
    assert_true(stats->cold_reads_ahead > 4 * stats->cold_reads);
    teardown();
}

static void test_random_places_are_not_read_ahead(void **state)
{
    MILL_UNUSED(state);
    struct mill_random random;
    setup(0);
    random.state = 7;
    for (uint32_t i = 0; i < 200; i++) {
        read_at(1 + (int64_t)mill_random_below(&random, BATCHES * RECORDS - 1), 1);
    }
    const struct mill_log_stats *stats = mill_log_stats(f.log);
    assert_true(stats->cold_reads_ahead < stats->cold_reads / 4);
    teardown();
}

static void test_helpers_read_the_same(void **state)
{
    MILL_UNUSED(state);
    setup(4);
    read_all();
    teardown();
}

/* Readers that keep what they got: the budget holds, an append goes on, and a reader that comes
 * later waits until one of them lets go. */
static void test_held_extents_stop_readers_not_appends(void **state)
{
    MILL_UNUSED(state);
    static struct mill_ref held[4096];
    uint32_t held_count = 0;
    struct mill_read read = {
        .bytes_max = 1, .first_whole = true, .current_epoch = -1, .last_epoch = -1, .refs_max = 8};
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    int r = 0;
    setup(0);
    for (uint32_t i = 0; r != -EAGAIN && i < BATCHES; i += 7) {
        read.offset = (int64_t)i * RECORDS;
        r = mill_log_read(partition, &read, &watch, &got);
        while (r == -EINPROGRESS) {
            fixture_settle(&f);
            r = mill_log_read(partition, &read, &watch, &got);
        }
        for (uint32_t k = 0; r == 0 && k < got.refs_count; k++) {
            mill_loan_take(&f.loans, &got.refs[k]);
            held[held_count++] = got.refs[k];
        }
    }
    assert_int_equal(r, -EAGAIN);
    assert_true(mill_log_stats(f.log)->cold_full > 0);
    assert_true(mill_log_stats(f.log)->cold_bytes <= f.limits.cold_max_bytes);
    for (uint32_t i = 0; i < 100; i++) {
        maker_must(&f, partition, m);
    }
    fixture_settle(&f);
    for (uint32_t i = 0; i < held_count; i++) {
        mill_loan_give(&f.loans, &held[i]);
    }
    assert_int_equal(read_at(read.offset, 1), read.offset + RECORDS);
    teardown();
}

/* What a read gave is there until its caller can hold it, though the read itself wants memory for
 * what it reads ahead and all else is held. */
static void test_read_ahead_takes_nothing_that_the_read_gave(void **state)
{
    MILL_UNUSED(state);
    static struct mill_ref held[64];
    uint32_t held_count = 0;
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    struct mill_read read = {
        .bytes_max = 1, .first_whole = true, .current_epoch = -1, .last_epoch = -1, .refs_max = 8};
    setup(0);
    int64_t sequential = read_at(5 * RECORDS, 4 << 20); /* goes on from there: reads ahead */
    read_at(sequential, 1);
    uint64_t ahead = mill_log_stats(f.log)->cold_reads_ahead;
    assert_true(ahead > 0);
    for (uint32_t i = 0; i < 12; i++) {
        /* The first of them push out what was read ahead. */
        read.offset = (int64_t)(100 + 20 * i) * RECORDS;
        if (mill_log_stats(f.log)->cold_bytes + (256 << 10) > f.limits.cold_max_bytes && i > 8) {
            break;
        }
        fixture_read(&f, partition, &read, &got);
        for (uint32_t k = 0; k < got.refs_count; k++) {
            mill_loan_take(&f.loans, &got.refs[k]);
            held[held_count++] = got.refs[k];
        }
    }
    read.offset = sequential;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mill_log_read(partition, &read, &watch, &got), 0);
        assert_int_equal(got.refs_count, 1);
    }
    while (held_count > 0) {
        mill_loan_give(&f.loans, &held[--held_count]);
    }
    teardown();
}

/* Memory is short: what the files give back at any time goes before the tail. */
static void test_cold_extents_are_reclaimed_first(void **state)
{
    MILL_UNUSED(state);
    setup(0);
    struct mill_log_settings settings = fixture_settings();
    struct mill_partition *other = fixture_partition(&f, 1, &settings);
    for (uint32_t i = 0; i < 40; i++) {
        maker_must(&f, other, m); /* a hot tail, used less recently than what is read below */
    }
    fixture_settle(&f);
    read_all();
    assert_true(mill_log_stats(f.log)->cold_bytes > 0);
    uint64_t reads = mill_log_stats(f.log)->cold_reads;
    static uint32_t extents[4096];
    uint32_t count = 0;
    while (mill_log_stats(f.log)->cold_bytes > 0 &&
           mill_log_scratch(f.log, 64 << 10, &extents[count]) == 0) {
        count++;
        assert_true(count < MILL_COUNT_OF(extents));
    }
    assert_int_equal(mill_log_stats(f.log)->cold_bytes, 0);
    struct mill_read read = {
        .bytes_max = 1, .first_whole = true, .current_epoch = -1, .last_epoch = -1, .refs_max = 8};
    fixture_read(&f, other, &read, &got);
    assert_int_equal(got.refs_count, 1);
    assert_int_equal(mill_log_stats(f.log)->cold_reads, reads);
    while (count > 0) {
        mill_extent_free(f.extents, extents[--count]);
    }
    teardown();
}

/* A file that ends before its batches: its reader is told, others and the tail go on. */
static void test_unreadable_batches_are_an_error_of_their_readers(void **state)
{
    MILL_UNUSED(state);
    setup(0);
    char path[200];
    snprintf(path, sizeof(path), "%s/topic-a-0/%020d.log", f.logs, 0);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, 2 << 20), 0);
    close(file);
    struct mill_read read = {.offset = 3 * 1024 * 1024 / m->size * RECORDS,
                             .bytes_max = 1,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 8};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_true(fixture_was_said(&f, "store.read"));
    assert_int_equal(mill_partition_state_of(partition), MILL_LOG_SERVING);
    maker_must(&f, partition, m);
    read_at(BATCHES / 2 * RECORDS, 1);
    read_at(BATCHES * RECORDS, 1);
    fixture_settle(&f);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_log_is_read_within_the_budget),
        cmocka_unit_test(test_random_places_are_not_read_ahead),
        cmocka_unit_test(test_helpers_read_the_same),
        cmocka_unit_test(test_held_extents_stop_readers_not_appends),
        cmocka_unit_test(test_read_ahead_takes_nothing_that_the_read_gave),
        cmocka_unit_test(test_cold_extents_are_reclaimed_first),
        cmocka_unit_test(test_unreadable_batches_are_an_error_of_their_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
