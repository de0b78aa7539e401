/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: retention and DeleteRecords take away whole old segments and nothing else, in two steps,
 * and the log start survives restarts and kills. Method: log and store over the disk model, virtual
 * time. */
#include "tests/unit/test.h"

#include <errno.h>

#include "tests/sim/disk_model.h"
#include "tests/unit/log/fixture.h"

enum {
    BATCHES = 300,
    CHECK_MS = 300000, /* log.retention.check.interval.ms of the fixture */
    DELAY_MS = 60000,
};

#define START_MS 1700000000000

static struct fixture f;
static struct disk_model *disk;
static struct maker *m;
static struct mill_log_settings settings;

/* Ten or so segments, a record a second. ret: the partition. */
static struct mill_partition *make_log(void)
{
    disk = disk_model_new(1);
    assert_non_null(disk);
    fixture_make(&f, disk_model_calls(disk));
    f.log_dirs[0] = "/disk/logs";
    fixture_open(&f);
    m = maker_new();
    settings = fixture_settings();
    settings.segment_bytes = 30000;
    settings.retention_ms = -1;
    settings.retention_bytes = -1;
    settings.file_delete_delay_ms = DELAY_MS;
    settings.delete_old = true;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    m->value_bytes = 1000;
    for (int i = 0; i < BATCHES; i++) {
        m->timestamp = START_MS + 1000 * i;
        maker_build(m, 1);
        maker_must(&f, partition, m);
    }
    fixture_settle(&f);
    return partition;
}

static void drop_log(void)
{
    fixture_close(&f, false);
    fixture_free(&f);
    disk_model_free(disk);
    free(m);
}

static uint32_t files_count(const char *end)
{
    uint32_t count = 0;
    for (int64_t base = 0; base <= BATCHES; base++) {
        char path[200];
        uint64_t size;
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.%s", (long long)base, end);
        count += disk_model_bytes(disk, path, &size) != NULL;
    }
    return count;
}

/* Bytes of the log files that are there; ret_first: of the oldest. */
static uint64_t log_bytes(uint64_t *ret_first)
{
    uint64_t sum = 0;
    *ret_first = 0;
    for (int64_t base = 0; base <= BATCHES; base++) {
        char path[200];
        uint64_t size;
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.log", (long long)base);
        if (disk_model_bytes(disk, path, &size)) {
            *ret_first = sum == 0 ? size : *ret_first;
            sum += size;
        }
    }
    return sum;
}

static void pass_check(void)
{
    fixture_step(&f, CHECK_MS + 1000);
    fixture_settle(&f);
}

static enum mill_kerr read_error(struct mill_partition *partition, int64_t offset)
{
    static struct mill_read_result got;
    struct mill_read read = {.offset = offset,
                             .bytes_max = 1 << 20,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 8};
    fixture_read(&f, partition, &read, &got);
    return got.error;
}

static void test_size_keeps_at_least_that_much(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition = make_log();
    uint32_t before = files_count("log");
    assert_true(before > 8);
    pass_check();
    assert_int_equal(files_count("log"), before); /* no limit, nothing goes */
    settings.retention_bytes = 100000;
    mill_log_update(partition, 3, &settings);
    pass_check();
    uint32_t kept = files_count("log");
    uint64_t first;
    uint64_t bytes = log_bytes(&first);
    assert_in_range(bytes, 100000,
                    100000 + first - 1); /* without the oldest it would be too little */
    assert_int_equal(files_count("log.deleted"), before - kept);
    int64_t start = mill_partition_start(partition);
    assert_true(start > 0);
    assert_int_equal(read_error(partition, start - 1), MILL_KERR_OFFSET_OUT_OF_RANGE);
    assert_int_equal(read_error(partition, start), MILL_KERR_NONE);
    fixture_step(&f, DELAY_MS + 1000);
    fixture_settle(&f);
    assert_int_equal(files_count("log.deleted"), 0);
    assert_int_equal(files_count("index.deleted"), 0);
    drop_log();
}

static void test_time_takes_the_active_segment_too(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition = make_log();
    int64_t now = f.now.wall_ms;
    /* Half of the log is older than this. */
    settings.retention_ms = now - (START_MS + 1000 * (BATCHES / 2)) + CHECK_MS + 1000;
    mill_log_update(partition, 3, &settings);
    pass_check();
    int64_t start = mill_partition_start(partition);
    assert_in_range(start, BATCHES / 2 - 40, BATCHES / 2);
    assert_int_equal(mill_partition_end(partition), BATCHES);
    settings.retention_ms = 1000;
    mill_log_update(partition, 3, &settings);
    pass_check();
    assert_int_equal(mill_partition_start(partition), BATCHES);
    assert_int_equal(mill_partition_end(partition), BATCHES);
    assert_int_equal(files_count("log"), 1);
    /* It goes on where it ended, also after a restart. */
    fixture_close(&f, true);
    fixture_open(&f);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_start(partition), BATCHES);
    assert_int_equal(mill_partition_end(partition), BATCHES);
    assert_int_equal(files_count("log.deleted"), 0); /* the start removed what was left */
    drop_log();
}

static void test_compacted_only_is_left_alone(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition = make_log();
    settings.retention_ms = 1000;
    settings.delete_old = false;
    mill_log_update(partition, 3, &settings);
    pass_check();
    assert_int_equal(mill_partition_start(partition), 0);
    drop_log();
}

static int trim(struct mill_partition *partition, int64_t offset)
{
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    int r = mill_log_trim(partition, offset, &watch);
    fixture_settle(&f);
    assert_true(r != -EINPROGRESS || fired);
    r = r == -EINPROGRESS ? mill_log_trim(partition, offset, &watch) : r;
    mill_log_unwatch(&watch);
    return r;
}

/* Within a segment, survives a clean end and a kill; then everything. */
static void test_delete_records_survives(void **state)
{
    MILL_UNUSED(state);
    for (int clean = 0; clean < 2; clean++) {
        struct mill_partition *partition = make_log();
        assert_int_equal(trim(partition, BATCHES + 1), -ERANGE);
        assert_int_equal(trim(partition, -2), -ERANGE);
        assert_int_equal(trim(partition, 77), 0);
        assert_int_equal(trim(partition, 5), 0); /* never down */
        assert_int_equal(mill_partition_start(partition), 77);
        fixture_close(&f, clean == 1);
        fixture_open(&f);
        partition = fixture_partition(&f, 0, &settings);
        assert_int_equal(mill_partition_start(partition), 77);
        assert_int_equal(read_error(partition, 76), MILL_KERR_OFFSET_OUT_OF_RANGE);
        assert_int_equal(read_error(partition, 77), MILL_KERR_NONE);
        assert_int_equal(trim(partition, MILL_TRIM_ALL), 0);
        assert_int_equal(mill_partition_start(partition), BATCHES);
        maker_build(m, 1);
        maker_must(&f, partition, m);
        assert_int_equal(mill_partition_end(partition), BATCHES + 1);
        drop_log();
    }
}

static void test_failed_disk_answers(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition = make_log();
    disk_model_faults(disk)->write_error = -EIO;
    maker_build(m, 1);
    maker_must(&f, partition, m);
    fixture_settle(&f);
    assert_int_equal(mill_partition_state_of(partition), MILL_LOG_FAILED);
    assert_int_equal(trim(partition, 5), -EIO);
    drop_log();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_keeps_at_least_that_much),
        cmocka_unit_test(test_time_takes_the_active_segment_too),
        cmocka_unit_test(test_compacted_only_is_left_alone),
        cmocka_unit_test(test_delete_records_survives),
        cmocka_unit_test(test_failed_disk_answers),
    };
    return cmocka_run_group_tests_name("retention", tests, NULL, NULL);
}
