/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the files are Kafka's to the byte, and the store behaves on a disk that is full, fails,
 * writes short or loses what was not synced. Method: log and store over the disk model; the files
 * are read by a reader of this test that shares no code with the store. */
#include "tests/unit/test.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>

#include "base/random.h"
#include "tests/sim/disk_model.h"
#include "tests/unit/log/fixture.h"

static struct fixture f;
static struct disk_model *disk;
static struct maker *m;
static struct mill_read_result got;

static void setup(uint64_t seed)
{
    disk = disk_model_new(seed);
    assert_non_null(disk);
    fixture_make(&f, disk_model_calls(disk));
    f.log_dirs[0] = "/disk/logs";
    fixture_open(&f);
    m = maker_new();
}

static void teardown(void)
{
    fixture_free(&f);
    disk_model_free(disk);
    free(m);
}

static const uint8_t *file_of(int64_t base, const char *suffix, uint64_t *ret_size)
{
    char path[200];
    snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.%s", (long long)base, suffix);
    return disk_model_bytes(disk, path, ret_size);
}

/* --- an independent reader ------------------------------------------------------------------- */

struct seen {
    int64_t last_offset;
    uint64_t pos;
    int64_t max_timestamp;
    uint32_t size;
};

/* Reads one segment whole and checks its indexes. ret: next offset, -1 when it is not there. */
static int64_t check_segment(int64_t base, int64_t interval, bool ended)
{
    static struct seen seen[20000];
    uint32_t count = 0;
    uint64_t size = 0;
    const uint8_t *log = file_of(base, "log", &size);
    int64_t next = base;
    if (!log) {
        return -1;
    }
    for (uint64_t pos = 0; pos < size;) {
        assert_true(size - pos >= 61);
        uint32_t bytes = 12 + mill_load_be32(log + pos + 8);
        assert_true(bytes <= size - pos);
        assert_int_equal(log[pos + 16], 2);
        assert_int_equal(mill_load_be64(log + pos), next);
        assert_int_equal(mill_load_be32(log + pos + 17), mill_crc32c(log + pos + 21, bytes - 21));
        next += mill_load_be32(log + pos + 23) + 1;
        seen[count++] = (struct seen){.last_offset = next - 1,
                                      .pos = pos,
                                      .max_timestamp = (int64_t)mill_load_be64(log + pos + 35),
                                      .size = bytes};
        pos += bytes;
    }
    /* .index: an entry where more than the interval was appended since the last, no other. */
    uint64_t index_size = 0;
    const uint8_t *index = file_of(base, "index", &index_size);
    uint64_t time_size = 0;
    const uint8_t *times = file_of(base, "timeindex", &time_size);
    uint64_t entry = 0;
    uint64_t time_entry = 0;
    int64_t since = 0;
    int64_t greatest = -1;
    int64_t greatest_at = -1;
    int64_t last_time = -1;
    for (uint32_t i = 0; i < count; i++) {
        if (seen[i].max_timestamp > greatest) {
            greatest = seen[i].max_timestamp;
            greatest_at = seen[i].last_offset;
        }
        if (since > interval) {
            assert_non_null(index);
            assert_true((entry + 1) * 8 <= index_size);
            assert_int_equal(mill_load_be32(index + entry * 8), seen[i].last_offset - base);
            assert_int_equal(mill_load_be32(index + entry * 8 + 4), seen[i].pos);
            entry++;
            since = 0;
            if (greatest > last_time) {
                assert_non_null(times);
                assert_int_equal(mill_load_be64(times + time_entry * 12), greatest);
                assert_int_equal(mill_load_be32(times + time_entry * 12 + 8), greatest_at - base);
                time_entry++;
                last_time = greatest;
            }
        }
        since += seen[i].size;
    }
    if (ended && greatest > last_time) {
        assert_int_equal(mill_load_be64(times + time_entry * 12), greatest);
        assert_int_equal(mill_load_be32(times + time_entry * 12 + 8), greatest_at - base);
        time_entry++;
    }
    assert_int_equal(index ? index_size : 0, entry * 8);
    assert_int_equal(times ? time_size : 0, time_entry * 12);
    return next;
}

static int64_t check_all(int64_t interval, uint32_t *ret_segments, bool closed)
{
    int64_t base = 0;
    int64_t end = 0;
    *ret_segments = 0;
    for (;;) {
        uint64_t size;
        int64_t next = check_segment(base, interval, closed);
        if (next < 0) {
            return end;
        }
        (*ret_segments)++;
        end = next;
        if (next == base || !file_of(next, "log", &size)) {
            return end;
        }
        base = next;
    }
}

static void append_many(struct mill_partition *partition, struct mill_random *random, int count)
{
    for (int i = 0; i < count; i++) {
        m->value_bytes = mill_random_below(random, 400);
        m->timestamp = 1700000000000 + mill_random_below(random, 100000);
        maker_build(m, 1 + (int32_t)mill_random_below(random, 10));
        maker_must(&f, partition, m);
        if (mill_random_below(random, 20) == 0) {
            fixture_settle(&f);
        }
    }
    fixture_settle(&f);
}

static void test_files_are_kafkas_format(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_random random = {.state = 99};
    uint32_t segments;
    setup(1);
    settings.segment_bytes = 150000;
    settings.index_interval_bytes = 2000;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    disk_model_faults(disk)->short_writes = true;
    append_many(partition, &random, 500);
    int64_t end = mill_partition_end(partition);
    fixture_close(&f, true);
    assert_int_equal(check_all(2000, &segments, true), end);
    assert_true(segments > 3);
    uint64_t size;
    const uint8_t *text = disk_model_bytes(disk, "/disk/logs/topic-a-0/partition.metadata", &size);
    static const char metadata[] = "version: 0\ntopic_id: BwECAwQFBgcICQoLDA0ODw\n";
    assert_int_equal(size, strlen(metadata));
    assert_memory_equal(text, metadata, size);
    text = disk_model_bytes(disk, "/disk/logs/topic-a-0/leader-epoch-checkpoint", &size);
    assert_int_equal(size, strlen("0\n1\n3 0\n"));
    assert_memory_equal(text, "0\n1\n3 0\n", size);
    teardown();
}

static void test_load_mends_indexes_and_cuts_the_tail(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_random random = {.state = 7};
    const struct mill_file_calls *calls;
    uint32_t segments;
    uint64_t size;
    setup(2);
    calls = disk_model_calls(disk);
    settings.segment_bytes = 100000;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    append_many(partition, &random, 200);
    int64_t end = mill_partition_end(partition);
    fixture_close(&f, true);
    assert_int_equal(check_all(4096, &segments, true), end);
    assert_true(segments > 2);
    int64_t last = 0;
    for (int64_t next = 0; file_of(next, "log", &size) && next < end;
         next = check_segment(next, 4096, true)) {
        last = next;
    }
    /* First segment: one index lost, the other of a wrong size. Last: a torn batch at its end. */
    assert_int_equal(calls->remove_file(disk, "/disk/logs/topic-a-0/00000000000000000000.index"),
                     0);
    int file =
        calls->open(disk, "/disk/logs/topic-a-0/00000000000000000000.timeindex", MILL_FILE_WRITE);
    assert_int_equal(calls->truncate(disk, file, 7), 0);
    calls->close(disk, file);
    char path[200];
    snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.log", (long long)last);
    file = calls->open(disk, path, MILL_FILE_WRITE);
    int64_t good = calls->size(disk, file);
    struct iovec torn = {.iov_base = m->bytes, .iov_len = m->size - 1};
    mill_store_be64(m->bytes, (uint64_t)end);
    assert_int_equal(calls->write_at(disk, file, &torn, 1, (uint64_t)good), m->size - 1);
    calls->close(disk, file);
    fixture_open(&f);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition), end);
    file = calls->open(disk, path, MILL_FILE_READ);
    assert_int_equal(calls->size(disk, file), good);
    calls->close(disk, file);
    append_many(partition, &random, 20);
    end = mill_partition_end(partition);
    fixture_close(&f, true);
    assert_int_equal(check_all(4096, &segments, true), end);
    teardown();
}

static void test_disk_full_keeps_reading_and_writes_the_same_later(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_append_result result;
    struct mill_random random = {.state = 3};
    uint32_t segments;
    setup(3);
    settings.segment_bytes = 60000;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    append_many(partition, &random, 20);
    disk_model_faults(disk)->space_bytes = 5000;
    m->value_bytes = 500;
    maker_build(m, 10);
    uint32_t accepted = 0;
    do {
        assert_int_equal(maker_append(&f, partition, m, &result), 0);
        accepted += result.error == 0 ? 1 : 0;
        fixture_settle(&f);
    } while (result.error == 0);
    assert_int_equal(result.error, MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_true(accepted >= 1);
    int64_t end = mill_partition_end(partition);
    struct mill_read read = {.offset = end - 1,
                             .bytes_max = 1 << 20,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 4};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, 0);
    assert_int_equal(got.bytes, m->size);
    assert_false(mill_log_idle(f.log));
    disk_model_faults(disk)->space_bytes = UINT64_MAX;
    fixture_step(&f, 600);
    fixture_settle(&f);
    assert_int_equal(mill_log_stats(f.log)->dirty_bytes, 0);
    maker_must(&f, partition, m);
    end = mill_partition_end(partition);
    fixture_close(&f, true);
    assert_int_equal(check_all(4096, &segments, true), end);
    teardown();
}

static void test_write_error_fences_the_directory(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_append_result result;
    setup(4);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 2);
    maker_must(&f, partition, m);
    fixture_settle(&f);
    disk_model_faults(disk)->write_error = -EIO;
    maker_must(&f, partition, m);
    fixture_settle(&f);
    assert_int_equal(f.failed, 1);
    assert_int_equal(mill_partition_state_of(partition), MILL_LOG_FAILED);
    disk_model_faults(disk)->write_error = 0;
    assert_int_equal(maker_append(&f, partition, m, &result), 0);
    assert_int_equal(result.error, MILL_KERR_KAFKA_STORAGE_ERROR);
    struct mill_read read = {
        .offset = 0, .bytes_max = 1 << 20, .current_epoch = -1, .last_epoch = -1, .refs_max = 4};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.bytes, 2 * m->size); /* what is in memory is still served */
    assert_false(mill_log_idle(f.log));       /* and must not be thrown away */
    fixture_close(&f, false);
    teardown();
}

static void test_failed_sync_acknowledges_nothing(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    setup(5);
    settings.flush_messages = 1;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, 2);
    struct mill_append_result result = maker_must(&f, partition, m);
    disk_model_faults(disk)->sync_error = -EIO;
    mill_log_watch_flush(partition, &watch, result.end_offset);
    fixture_settle(&f);
    assert_int_equal(mill_partition_high_watermark(partition), 0);
    assert_int_equal(f.fired_changed, 1);
    fixture_close(&f, false);
    teardown();
}

static void test_power_loss_keeps_what_was_synced(void **state)
{
    MILL_UNUSED(state);
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct mill_log_settings settings = fixture_settings();
        struct mill_random random = {.state = seed};
        setup(seed);
        settings.flush_messages = 1;
        settings.segment_bytes = 20000;
        struct mill_partition *partition = fixture_partition(&f, 0, &settings);
        append_many(partition, &random, 30);
        int64_t synced = mill_partition_high_watermark(partition);
        assert_int_equal(synced, mill_partition_end(partition));
        settings.flush_messages = INT64_MAX;
        mill_log_update(partition, 3, &settings);
        append_many(partition, &random, 20);
        int64_t end = mill_partition_end(partition);
        /* The machine is gone: memory too. */
        disk_model_crash(disk);
        disk_model_faults(disk)->write_error = -EIO;
        fixture_close(&f, false);
        fixture_must(&f, mill_arena_discard(f.dir, &f.report));
        disk_model_faults(disk)->write_error = 0;
        fixture_open(&f);
        partition = fixture_partition(&f, 0, &settings);
        assert_true(mill_partition_end(partition) >= synced);
        assert_true(mill_partition_end(partition) <= end);
        append_many(partition, &random, 5);
        fixture_close(&f, true);
        teardown();
    }
}

enum {
    SLOW_SYNC_NS = 100000000,
};

static sem_t sync_begun;

static int slow_sync(void *context, int file)
{
    sem_post(&sync_begun);
    nanosleep(&(struct timespec){.tv_nsec = SLOW_SYNC_NS}, NULL);
    return mill_file_calls_posix.sync(context, file);
}

/* Ended while a helper syncs: all is in the files, and the end is marked as clean. */
static void test_clean_end_during_a_sync(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_file_calls calls = mill_file_calls_posix;
    calls.sync = slow_sync;
    sem_init(&sync_begun, 0, 0);
    fixture_make(&f, &calls);
    f.helpers = 2;
    fixture_open(&f);
    m = maker_new();
    settings.flush_messages = 1;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    while (sem_trywait(&sync_begun) == 0) { /* of its opening */
    }
    maker_build(m, 2);
    maker_must(&f, partition, m);
    fixture_step(&f, 1);
    fixture_step(&f, 1);
    while (sem_wait(&sync_begun) < 0) {
    }
    mill_log_destroy(f.log);
    f.log = NULL;
    assert_true(mill_store_close(f.store, f.now));
    f.store = NULL;
    assert_int_equal(mill_log_dirs_close(f.dirs, true), 0);
    f.dirs = NULL;
    fixture_abandon(&f);
    fixture_open(&f);
    assert_true(mill_log_dirs_clean(f.dirs));
    assert_int_equal(f.takeup.batches_written, 0);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition), 2);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
    sem_destroy(&sync_begun);
}

static void test_syncs_are_timed(void **state)
{
    MILL_UNUSED(state);
    static struct mill_hist times;
    struct mill_log_settings settings = fixture_settings();
    struct mill_file_calls calls = mill_file_calls_posix;
    calls.sync = slow_sync;
    times = (struct mill_hist){.count = 0};
    sem_init(&sync_begun, 0, 0);
    fixture_make(&f, &calls);
    f.flush_times = &times;
    fixture_open(&f);
    m = maker_new();
    settings.flush_messages = 1;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    uint64_t opened = times.count;
    maker_build(m, 2);
    maker_must(&f, partition, m);
    fixture_settle(&f);
    assert_int_equal(times.count, opened + 1);
    assert_in_range(times.sum_ns, times.count * SLOW_SYNC_NS, UINT64_MAX);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
    sem_destroy(&sync_begun);
}

static void test_open_files_stay_within_their_limit(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_random random = {.state = 8};
    disk = disk_model_new(6);
    fixture_make(&f, disk_model_calls(disk));
    f.log_dirs[0] = "/disk/logs";
    f.open_files_max = 6;
    fixture_open(&f);
    m = maker_new();
    struct mill_partition *partitions[12];
    for (int32_t i = 0; i < 12; i++) {
        partitions[i] = fixture_partition(&f, i, &settings);
    }
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 12; i++) {
            append_many(partitions[i], &random, 5);
        }
    }
    assert_true(disk_model_counts(disk)->open_most <= 6 + 2); /* and short ones at load */
    fixture_close(&f, true);
    assert_int_equal(disk_model_counts(disk)->open_now, 0);
    /* Each entry is in its own file, whichever gave way to which while a batch was written. */
    uint32_t segments;
    check_all(4096, &segments, true);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_are_kafkas_format),
        cmocka_unit_test(test_load_mends_indexes_and_cuts_the_tail),
        cmocka_unit_test(test_disk_full_keeps_reading_and_writes_the_same_later),
        cmocka_unit_test(test_write_error_fences_the_directory),
        cmocka_unit_test(test_failed_sync_acknowledges_nothing),
        cmocka_unit_test(test_power_loss_keeps_what_was_synced),
        cmocka_unit_test(test_clean_end_during_a_sync),
        cmocka_unit_test(test_syncs_are_timed),
        cmocka_unit_test(test_open_files_stay_within_their_limit),
    };
    return cmocka_run_group_tests_name("store files", tests, NULL, NULL);
}
