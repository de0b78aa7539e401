/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a start believes what a clean end or a recovery point vouches for and nothing else: it
 * reads little then, and after a kill it walks what came since. Method: log and store over the disk
 * model, which counts the bytes read; test_load_damage.c damages the files in between. */
#include "tests/unit/store/load_rig.h"

#include <time.h>

/* --- reading little -------------------------------------------------------------------------- */

static void test_clean_start_reads_no_log(void **state)
{
    MILL_UNUSED(state);
    int64_t end = make_log(1);
    check_clean_start(end);
    assert_int_equal(f.said_count, 0);
    fixture_close(&f, true);
    drop_log();
}

/* What lies between the headers of large batches is not read to get from one to the next. */
static void test_clean_start_reads_only_headers_of_large_batches(void **state)
{
    MILL_UNUSED(state);
    make_log(30);
    struct mill_partition *partition = mill_log_at(f.log, 0);
    m->producer_id = -1;
    m->epoch = -1;
    m->sequence = -1;
    m->value_bytes = 1000;
    for (int i = 0; i < 3; i++) {
        maker_build(m, 50);
        maker_must(&f, partition, m);
    }
    fixture_settle(&f);
    int64_t end = mill_partition_end(partition);
    fixture_close(&f, true);
    uint64_t before = disk_model_counts(disk)->bytes_read;
    reopen();
    assert_int_equal(mill_partition_end(open_partition()), end);
    assert_in_range(disk_model_counts(disk)->bytes_read - before, 1, 16 << 10);
    fixture_close(&f, true);
    drop_log();
}

/* Each batch has an entry in both indexes, which are written some at a time. */
static void test_index_entries_are_written_together(void **state)
{
    MILL_UNUSED(state);
    enum { LARGE = 64 };
    make_log(32);
    struct mill_log_settings settings = small_segments();
    settings.segment_bytes = 1 << 30;
    struct mill_partition *partition = fixture_partition(&f, 1, &settings);
    m->producer_id = -1;
    m->epoch = -1;
    m->sequence = -1;
    m->value_bytes = 1000;
    uint64_t before = 0;
    for (int i = 0; i < LARGE; i++) {
        before = i == 1 ? disk_model_counts(disk)->writes : before; /* epochs came with the first */
        m->timestamp = 1700000000000 + i * 100;
        maker_build(m, 6);
        maker_must(&f, partition, m);
        fixture_settle(&f);
    }
    uint64_t writes = disk_model_counts(disk)->writes - before;
    assert_in_range(writes, LARGE, LARGE + 2 * LARGE / STORE_WAITING_ENTRIES);
    fixture_close(&f, true);
    uint64_t size;
    assert_non_null(
        disk_model_bytes(disk, "/disk/logs/topic-a-1/00000000000000000000.index", &size));
    assert_int_equal(size, (LARGE - 1) * STORE_INDEX_ENTRY_BYTES);
    drop_log();
}

/* The age of the last segment is that of its first batch, which a clean start does not read. */
static void test_segment_is_rolled_by_its_age_after_a_clean_start(void **state)
{
    MILL_UNUSED(state);
    int64_t end = make_log(31);
    fixture_close(&f, true);
    int64_t base = last_base();
    reopen();
    struct mill_log_settings settings = small_segments();
    settings.segment_ms = 10000;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    for (int i = 0; i < 2; i++) {
        /* The first batch of segment N was made N ms after the log's first. */
        m->timestamp = 1700000000000 + base + settings.segment_ms + i;
        m->sequence = (int32_t)end;
        m->value_bytes = 10;
        maker_build(m, 1);
        maker_must(&f, partition, m);
        fixture_settle(&f);
        assert_int_equal(last_base(), i == 0 ? base : end);
        end++;
    }
    fixture_close(&f, true);
    drop_log();
}

/* One whose batches have no time has no age: that is not looked for at each append. */
static void test_batches_without_time_are_looked_at_once(void **state)
{
    MILL_UNUSED(state);
    make_log(33);
    struct mill_log_settings settings = fixture_settings();
    fixture_partition(&f, 1, &settings);
    m->producer_id = -1;
    m->epoch = -1;
    m->sequence = -1;
    m->timestamp = -1;
    uint64_t before = 0;
    for (int i = 0; i < 4; i++) {
        if (i == 1) {
            fixture_close(&f, true);
            reopen();
            fixture_partition(&f, 1, &settings);
        }
        maker_build(m, 1);
        maker_must(&f, mill_log_at(f.log, i == 0 ? 1 : 0), m);
        fixture_settle(&f);
        before = i == 1 ? disk_model_counts(disk)->bytes_read : before;
    }
    assert_int_equal(disk_model_counts(disk)->bytes_read, before);
    fixture_close(&f, true);
    drop_log();
}

/* Entries that wait are written before their segment is searched: where that fails the directory is
 * given up, and never written to again. */
static void test_search_writes_no_entries_into_a_fenced_directory(void **state)
{
    MILL_UNUSED(state);
    int64_t end = make_log(34);
    struct mill_partition *partition = mill_log_at(f.log, 0);
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    disk_model_faults(disk)->write_error = -EIO;
    for (int i = 0; i < 3; i++) {
        struct mill_time_result found;
        uint64_t writes = disk_model_counts(disk)->writes;
        int r = mill_log_find_time(partition, 1700000000000 + end - 1, false, &watch, &found);
        for (uint32_t k = 0; r != 0 && k < 20; k++) {
            fixture_settle(&f);
            r = mill_log_find_time(partition, 1700000000000 + end - 1, false, &watch, &found);
        }
        assert_int_equal(mill_partition_state_of(partition), MILL_LOG_FAILED);
        assert_true(i == 0 || disk_model_counts(disk)->writes == writes);
    }
    disk_model_faults(disk)->write_error = 0;
    fixture_close(&f, false);
    drop_log();
}

/* Appends so many batches that the store does not see. ret: the log's end. */
static int64_t append_unseen(struct mill_partition *partition, int batches)
{
    for (int i = 0; i < batches; i++) {
        m->timestamp = 1700000001000 + mill_partition_end(partition);
        m->sequence = (int32_t)mill_partition_end(partition);
        maker_build(m, 1);
        maker_must(&f, partition, m);
    }
    return mill_partition_end(partition);
}

static uint64_t last_segment_bytes(void)
{
    char path[200];
    uint64_t size = 0;
    snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)last_base());
    assert_non_null(disk_model_bytes(disk, path, &size));
    return size;
}

/* What a start reads beside the walked bytes: checkpoints, indexes, snapshots, first headers. */
enum { LITTLE_BYTES = 24 << 10 };

/* Neither index is synced as it grows: what the one for times lost is read again from the log,
 * though the other one has its batches. */
static void test_times_that_were_lost_are_found_again(void **state)
{
    MILL_UNUSED(state);
    enum { LATE = 380, LATE_MS = 1000000 };
    late_batch = LATE;
    int64_t end = make_log(5);
    late_batch = -1;
    fixture_close(&f, true);
    fixture_open(&f);
    struct mill_partition *partition = open_partition();
    m->sequence = (int32_t)end;
    m->timestamp = 1700000000000;
    maker_build(m, 1);
    maker_must(&f, partition, m);
    fixture_settle(&f);
    fixture_close(&f, false);
    char path[200];
    snprintf(path, sizeof(path), "%s/%020lld.timeindex", folder, (long long)last_base());
    const struct mill_file_calls *calls = disk_model_calls(disk);
    int file = calls->open(disk, path, MILL_FILE_WRITE);
    assert_int_equal(calls->truncate(disk, file, STORE_TIME_ENTRY_BYTES), 0);
    assert_int_equal(calls->close(disk, file), 0);
    reopen();
    partition = open_partition();
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    struct mill_time_result found;
    int r = mill_log_find_time(partition, 1700000000000 + LATE_MS, false, &watch, &found);
    for (uint32_t i = 0; r != 0 && i < 20; i++) {
        fixture_settle(&f);
        r = mill_log_find_time(partition, 1700000000000 + LATE_MS, false, &watch, &found);
    }
    assert_int_equal(r, 0);
    assert_int_equal(found.offset, LATE);
    fixture_close(&f, true);
    drop_log();
}

/* Killed with everything in the files, or with batches that only the extents have: either way the
 * last segment is read, and once. */
static void test_start_after_a_kill_walks_the_last_segment(void **state)
{
    MILL_UNUSED(state);
    for (int unseen = 0; unseen < 8; unseen += 4) {
        int64_t end = make_log(2);
        /* The checkpoint is due a minute after the first roll; then the process is killed. */
        fixture_step(&f, 61000);
        fixture_settle(&f);
        end = unseen ? append_unseen(mill_log_at(f.log, 0), unseen) : end;
        fixture_close(&f, false);
        uint64_t size;
        assert_null(disk_model_bytes(disk, "/disk/logs/.kafka_cleanshutdown", &size));
        uint64_t last = last_segment_bytes();
        assert_true(last > 2 * LITTLE_BYTES);
        uint64_t before = disk_model_counts(disk)->bytes_read;
        reopen();
        assert_int_equal(f.takeup.batches_written, unseen);
        check_producer(open_partition(), end);
        assert_in_range(disk_model_counts(disk)->bytes_read - before, last, last + LITTLE_BYTES);
        fixture_close(&f, true);
        drop_log();
    }
}

/* After a clean end only what came since is walked, though it lies in the same segment; it is told
 * right and its indexes are made anew to the byte. */
static void test_start_after_a_kill_walks_what_came_since_a_clean_end(void **state)
{
    MILL_UNUSED(state);
    for (int unseen = 0; unseen < 8; unseen += 4) {
        make_log(2);
        fixture_close(&f, true);
        uint64_t before = last_segment_bytes();
        assert_true(before > 2 * LITTLE_BYTES);
        reopen();
        int64_t end = append_unseen(open_partition(), 6);
        fixture_settle(&f);
        uint64_t since = last_segment_bytes() - before;
        end = unseen ? append_unseen(mill_log_at(f.log, 0), unseen) : end;
        struct copy index = copy_of_index();
        fixture_close(&f, false);
        uint64_t read = disk_model_counts(disk)->bytes_read;
        reopen();
        check_producer(open_partition(), end);
        assert_in_range(disk_model_counts(disk)->bytes_read - read, since, since + LITTLE_BYTES);
        check_index(&index);
        fixture_close(&f, true);
        drop_log();
    }
}

/* Everything in the extents is in the files: the take-up reads no log. When they are an older copy,
 * their opening says so. */
static void test_takeup_leaves_what_is_written_to_the_opening(void **state)
{
    MILL_UNUSED(state);
    for (int older = 0; older < 2; older++) {
        int64_t end = make_log(2);
        fixture_close(&f, false);
        if (older) {
            char path[200];
            const struct mill_file_calls *calls = disk_model_calls(disk);
            snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)last_base());
            int file = calls->open(disk, path, MILL_FILE_WRITE);
            assert_int_equal(calls->truncate(disk, file, last_segment_bytes() / 2), 0);
            assert_int_equal(calls->close(disk, file), 0);
        }
        uint64_t before = disk_model_counts(disk)->bytes_read;
        reopen();
        assert_int_equal(f.takeup.batches_written, 0);
        assert_true(disk_model_counts(disk)->bytes_read - before < 4096);
        struct mill_partition *partition = open_partition();
        assert_int_equal(fixture_was_said(&f, "store.take-up.older-copy"), older);
        assert_int_equal(mill_partition_end(partition) < end, older);
        fixture_close(&f, true);
        drop_log();
    }
}

/* A start that reads the checkpoint of many partitions must not take minutes: the time is this
 * process's own, so that a busy machine does not count. */
static void test_large_checkpoint_is_read_in_linear_time(void **state)
{
    MILL_UNUSED(state);
    enum { LINES = 200000, LINE_BYTES = 64 };
    static const char path[] = "/disk/logs/recovery-point-offset-checkpoint";
    int64_t end = make_log(8);
    const struct mill_file_calls *calls = disk_model_calls(disk);
    fixture_close(&f, true);
    char *text = malloc((size_t)LINES * LINE_BYTES);
    assert_non_null(text);
    size_t size = (size_t)sprintf(text, "0\n%d\ntopic-a 0 %lld\n", LINES, (long long)end);
    for (int i = 1; i < LINES; i++) {
        size += (size_t)sprintf(text + size, "another-topic %d 1\n", i);
    }
    int file = calls->open(disk, path, MILL_FILE_WRITE | MILL_FILE_CREATE);
    assert_true(file >= 0);
    assert_int_equal(calls->truncate(disk, file, 0), 0);
    assert_int_equal(mill_store_write_all(calls, file, text, (uint32_t)size, 0), 0);
    assert_int_equal(calls->close(disk, file), 0);
    free(text);
    clock_t begun = clock();
    reopen();
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    print_message("%d lines in %.3f s of CPU\n", LINES, seconds);
    assert_true(seconds < 1.5);
    assert_int_equal(f.said_count, 0);
    check_producer(open_partition(), end);
    fixture_close(&f, true);
    drop_log();
}

static void test_snapshot_is_kafkas(void **state)
{
    MILL_UNUSED(state);
    int64_t end = make_log(7);
    fixture_close(&f, true);
    int64_t base = last_base();
    for (int i = 0; i < 2; i++) {
        int64_t offset = i == 0 ? base : end;
        char path[200];
        uint64_t size = 0;
        snprintf(path, sizeof(path), "%s/%020lld.snapshot", folder, (long long)offset);
        const uint8_t *at = disk_model_bytes(disk, path, &size);
        assert_non_null(at);
        assert_true(size >= 10 + 46);
        assert_int_equal(mill_load_be16(at), 1);
        assert_int_equal(mill_load_be32(at + 2), mill_crc32c(at + 6, size - 6));
        assert_int_equal(mill_load_be32(at + 6), 1);
        assert_int_equal(mill_load_be64(at + 10), PRODUCER);
        assert_int_equal(mill_load_be16(at + 18), 0);
        assert_int_equal(mill_load_be32(at + 20), offset - 1); /* one record a batch */
        assert_int_equal(mill_load_be64(at + 24), offset - 1);
        assert_int_equal(mill_load_be32(at + 32), 0);
        assert_int_equal(mill_load_be64(at + 36), 1700000000000 + offset - 1);
        assert_int_equal(mill_load_be32(at + 44), 0xffffffffu);
        assert_int_equal(mill_load_be64(at + 48), UINT64_MAX);
    }
    drop_log();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean_start_reads_no_log),
        cmocka_unit_test(test_clean_start_reads_only_headers_of_large_batches),
        cmocka_unit_test(test_segment_is_rolled_by_its_age_after_a_clean_start),
        cmocka_unit_test(test_index_entries_are_written_together),
        cmocka_unit_test(test_batches_without_time_are_looked_at_once),
        cmocka_unit_test(test_search_writes_no_entries_into_a_fenced_directory),
        cmocka_unit_test(test_times_that_were_lost_are_found_again),
        cmocka_unit_test(test_start_after_a_kill_walks_the_last_segment),
        cmocka_unit_test(test_start_after_a_kill_walks_what_came_since_a_clean_end),
        cmocka_unit_test(test_takeup_leaves_what_is_written_to_the_opening),
        cmocka_unit_test(test_large_checkpoint_is_read_in_linear_time),
        cmocka_unit_test(test_snapshot_is_kafkas),
    };
    return cmocka_run_group_tests_name("loading", tests, NULL, NULL);
}
