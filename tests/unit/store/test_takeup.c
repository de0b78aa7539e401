/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: after kill -9 at any moment every acknowledged batch is in the files, once, in order; what
 * does not belong to the files is discarded and told. Method: a child appends over a real arena on
 * tmpfs and real files and tells each acknowledgement through a pipe; it is killed at random; this
 * process takes up. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/random.h"
#include "tests/sim/disk_model.h"
#include "tests/unit/log/fixture.h"

enum {
    ROUNDS = 25,
    PRODUCER = 42,
};

static struct fixture f;
static struct maker *m;

/* The child's life: appends batches of one producer and tells the sequence after each. */
static void child_run(int out, uint64_t seed, int32_t sequence)
{
    struct mill_log_settings settings = fixture_settings();
    struct mill_random random = {.state = seed};
    settings.segment_bytes = 1 << 20;
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    m->producer_id = PRODUCER;
    m->epoch = 0;
    for (;;) {
        int32_t count = 1 + (int32_t)mill_random_below(&random, 8);
        m->sequence = sequence;
        m->value_bytes = mill_random_below(&random, 700);
        maker_build(m, count);
        struct mill_append_result result = maker_must(&f, partition, m);
        sequence += count;
        int64_t told[2] = {result.base_offset, sequence};
        if (write(out, told, sizeof(told)) != (ssize_t)sizeof(told)) {
            _exit(1);
        }
        if (mill_random_below(&random, 4) == 0) {
            fixture_step(&f, 1);
        }
    }
}

/* Lets a child append and kills it. Updates the last acknowledgement. */
static void run_and_kill(struct mill_random *random, int32_t *sequence)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pipes[0]);
        child_run(pipes[1], mill_random_next(random), *sequence);
        _exit(0);
    }
    close(pipes[1]);
    uint32_t limit = 1 + mill_random_below(random, 600);
    int64_t told[2];
    for (uint32_t i = 0; i < limit; i++) {
        assert_int_equal(read(pipes[0], told, sizeof(told)), sizeof(told));
        *sequence = (int32_t)told[1];
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    while (read(pipes[0], told, sizeof(told)) == (ssize_t)sizeof(told)) {
        *sequence = (int32_t)told[1];
    }
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* Every record of the producer is there once and in order. ret: the next sequence. */
static int32_t check_log(struct mill_partition *partition)
{
    static struct mill_read_result got;
    int32_t sequence = 0;
    int64_t offset = 0;
    while (offset < mill_partition_end(partition)) {
        struct mill_read read = {.offset = offset,
                                 .bytes_max = 1 << 20,
                                 .first_whole = true,
                                 .current_epoch = -1,
                                 .last_epoch = -1,
                                 .refs_max = 8};
        fixture_read(&f, partition, &read, &got);
        assert_int_equal(got.error, 0);
        for (uint32_t i = 0; i < got.refs_count; i++) {
            const uint8_t *data = mill_ref_data(mill_arena_base(f.arena), &got.refs[i]);
            for (uint32_t pos = 0; pos < got.refs[i].size_bytes;) {
                struct mill_batch batch;
                mill_batch_read(data + pos, &batch);
                assert_int_equal(batch.base_offset, offset);
                assert_int_equal(batch.base_sequence, sequence);
                assert_int_equal(mill_crc32c(data + pos + 21, mill_batch_size_bytes(&batch) - 21),
                                 batch.crc);
                offset += batch.records_count;
                sequence += batch.records_count;
                pos += mill_batch_size_bytes(&batch);
            }
        }
    }
    return sequence;
}

static void test_takeup_after_kill_loses_nothing(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_random random = {.state = 20261130};
    int32_t acknowledged = 0;
    uint64_t written = 0;
    m = maker_new();
    settings.segment_bytes = 1 << 20;
    fixture_make(&f, NULL);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        run_and_kill(&random, &acknowledged);
        f.said_count = 0;
        fixture_open(&f);
        written += f.takeup.batches_written;
        /* A write that the kill cut short is cut off; its batches are in the extents. */
        for (uint32_t i = 0; i < f.said_count; i++) {
            assert_string_equal(f.said[i], "store.cut");
        }
        struct mill_partition *partition = fixture_partition(&f, 0, &settings);
        int32_t there = check_log(partition);
        /* One batch may be in the log whose telling was cut off by the kill. */
        assert_true(there >= acknowledged);
        assert_true(there <= acknowledged + 8);
        acknowledged = there;
        fixture_close(&f, round % 2 == 0);
    }
    assert_true(written > 0);
    fixture_free(&f);
    free(m);
}

/* Appends a few batches and leaves as a kill would; the last ones are in extents only. */
static void leave_behind(struct mill_partition **ret_partition)
{
    struct mill_log_settings settings = fixture_settings();
    m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    for (int i = 0; i < 10; i++) {
        maker_build(m, 2);
        maker_must(&f, partition, m);
        if (i == 4) {
            fixture_settle(&f);
        }
    }
    *ret_partition = partition;
}

static void shell(const char *format)
{
    char command[400];
    snprintf(command, sizeof(command), "cd '%s' && %s", f.dir, format);
    assert_int_equal(system(command), 0);
}

static void reopen_expecting(const char *said, int64_t end)
{
    struct mill_log_settings settings = fixture_settings();
    fixture_open(&f);
    if (said) {
        assert_true(fixture_was_said(&f, said));
    }
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition), end);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_takeup_of_another_run_is_refused(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition;
    leave_behind(&partition);
    fixture_close(&f, false);
    shell("sed -i 's/^millrace.incarnation=.*/millrace.incarnation=AAAAAAAAAAAAAAAAAAAAAQ/' "
          "logs/meta.properties");
    reopen_expecting("store.take-up.foreign", 10);
    assert_int_equal(f.takeup.batches_written, 0);
    assert_true(f.takeup.extents_discarded > 0);
}

static void test_takeup_of_an_older_copy_is_refused(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition;
    leave_behind(&partition);
    fixture_close(&f, false);
    /* Same run, but files that end before what was recorded as written. */
    shell("truncate -s 300 logs/topic-a-0/00000000000000000000.log");
    fixture_open(&f);
    assert_true(fixture_was_said(&f, "store.take-up.older-copy"));
    assert_int_equal(f.takeup.batches_written, 0);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_takeup_without_files_is_told(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition;
    leave_behind(&partition);
    fixture_close(&f, false);
    shell("rm -r logs/topic-a-0");
    reopen_expecting("store.take-up.no-files", 0);
}

/* The folder is there, its segments are not, and no checkpoint knows of them yet: not begun anew.
 */
static void test_takeup_of_lost_segments_makes_none(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition;
    char path[200];
    leave_behind(&partition);
    fixture_close(&f, false);
    shell("rm logs/topic-a-0/0000*");
    shell("rm -f logs/*-checkpoint");
    fixture_open(&f);
    assert_true(fixture_was_said(&f, "store.lost"));
    assert_int_equal(f.takeup.batches_written, 0);
    snprintf(path, sizeof(path), "%s/topic-a-0/00000000000000000000.log", f.logs);
    assert_int_equal(access(path, F_OK), -1);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_takeup_stops_at_a_damaged_batch(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition;
    static struct mill_read_result got;
    leave_behind(&partition);
    struct mill_read read = {.offset = 16,
                             .bytes_max = 1,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 1};
    fixture_read(&f, partition, &read, &got);
    mill_ref_data(mill_arena_base(f.arena), &got.refs[0])[70] ^= 1;
    fixture_close(&f, false);
    reopen_expecting("store.take-up.bad-batch", 16);
    assert_int_equal(f.takeup.batches_written, 3);
}

static void read_back(struct mill_partition *partition, int64_t offset)
{
    static struct mill_read_result got;
    struct mill_read read = {.offset = offset,
                             .bytes_max = 1,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 4};
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, 0);
    assert_true(got.refs_count > 0);
    struct mill_batch batch;
    const uint8_t *bytes = mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
    mill_batch_read(bytes, &batch);
    assert_in_range(offset, batch.base_offset, mill_batch_last_offset(&batch));
    assert_int_equal(mill_crc32c(bytes + MILL_BATCH_SUMMED_AT,
                                 mill_batch_size_bytes(&batch) - MILL_BATCH_SUMMED_AT),
                     batch.crc);
}

/* Killed while the disk is full, again and again: all is served from the extents that are left,
 * nothing is taken, and the same batches are in the files when there is space. */
static void test_takeup_on_a_full_disk_serves_and_writes_later(void **state)
{
    MILL_UNUSED(state);
    enum { BATCHES = 40, OF_WHICH_FIT = 3 };
    struct mill_log_settings settings = fixture_settings();
    struct mill_append_result result;
    struct disk_model *disk = disk_model_new(1);
    m = maker_new();
    m->producer_id = PRODUCER;
    m->epoch = 0;
    m->value_bytes = 700;
    fixture_make(&f, disk_model_calls(disk));
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    for (int i = 0; i < BATCHES; i++) {
        m->sequence = i * 4;
        maker_build(m, 4);
        maker_must(&f, partition, m);
    }
    fixture_close(&f, false);
    disk_model_faults(disk)->space_bytes = OF_WHICH_FIT * m->size + m->size / 2;
    for (int round = 0; round < 3; round++) {
        fixture_open(&f);
        assert_true(fixture_was_said(&f, "store.take-up.full"));
        assert_true(f.takeup.kept.left > 0);
        partition = fixture_partition(&f, 0, &settings);
        assert_int_equal(mill_partition_end(partition), BATCHES * 4);
        for (int64_t offset = 0; offset < BATCHES * 4; offset += 3) {
            read_back(partition, offset);
        }
        m->sequence = BATCHES * 4;
        maker_build(m, 4);
        assert_int_equal(maker_append(&f, partition, m, &result), 0);
        assert_int_equal(result.error, MILL_KERR_KAFKA_STORAGE_ERROR);
        fixture_close(&f, false);
    }
    fixture_open(&f);
    partition = fixture_partition(&f, 0, &settings);
    disk_model_faults(disk)->space_bytes = UINT64_MAX;
    fixture_step(&f, 600);
    fixture_settle(&f);
    assert_int_equal(f.takeup.kept.left, 0);
    m->sequence = (BATCHES - 1) * 4; /* the last one sent again: known */
    maker_build(m, 4);
    assert_true(maker_must(&f, partition, m).duplicate);
    m->sequence = BATCHES * 4;
    maker_build(m, 4);
    assert_int_equal(maker_must(&f, partition, m).base_offset, BATCHES * 4);
    fixture_close(&f, true);
    fixture_open(&f);
    assert_int_equal(f.takeup.batches_written, 0);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition), (BATCHES + 1) * 4);
    for (int64_t offset = 0; offset < BATCHES * 4; offset++) {
        read_back(partition, offset);
    }
    fixture_close(&f, true);
    fixture_free(&f);
    disk_model_free(disk);
    free(m);
}

static void test_takeup_that_cannot_write_keeps_the_arena(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *partition;
    bool taken = false;
    leave_behind(&partition);
    fixture_close(&f, false);
    /* A segment file that cannot be opened: the take-up fails and says which. */
    shell("mv logs/topic-a-0/00000000000000000000.log kept && "
          "mkdir logs/topic-a-0/00000000000000000000.log");
    fixture_must(&f, mill_arena_open(&f.options, &f.arena, &taken, &f.report));
    assert_true(taken);
    fixture_dirs_open(&f);
    assert_true(mill_store_takeup(f.dirs, f.arena, taken, &f.takeup, &f.report) < 0);
    mill_log_dirs_abandon(f.dirs);
    assert_non_null(strstr(f.report.text, "topic-a-0"));
    mill_arena_close(f.arena, false);
    shell("rmdir logs/topic-a-0/00000000000000000000.log && "
          "mv kept logs/topic-a-0/00000000000000000000.log");
    reopen_expecting(NULL, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takeup_after_kill_loses_nothing),
        cmocka_unit_test(test_takeup_of_another_run_is_refused),
        cmocka_unit_test(test_takeup_of_an_older_copy_is_refused),
        cmocka_unit_test(test_takeup_without_files_is_told),
        cmocka_unit_test(test_takeup_of_lost_segments_makes_none),
        cmocka_unit_test(test_takeup_stops_at_a_damaged_batch),
        cmocka_unit_test(test_takeup_on_a_full_disk_serves_and_writes_later),
        cmocka_unit_test(test_takeup_that_cannot_write_keeps_the_arena),
    };
    return cmocka_run_group_tests_name("take-up", tests, NULL, NULL);
}
