/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a start believes what a clean end or a recovery point vouches for and nothing else: it
 * reads little then, mends whatever else is missing or damaged, never serves or cuts what was
 * damaged below the recovery point, and says so. Method: log and store over the disk model; files
 * are damaged in every way between an end and a start. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/random.h"
#include "dataplane/store/store_types.h"
#include "tests/sim/disk_model.h"
#include "tests/unit/log/fixture.h"

enum {
    PRODUCER = 77,
    BATCHES = 400,
};

static struct fixture f;
static struct disk_model *disk;
static struct maker *m;
static const char folder[] = "/disk/logs/topic-a-0";

static int late_batch = -1; /* of make_log: above all others, which are equal */

static struct mill_log_settings small_segments(void)
{
    struct mill_log_settings settings = fixture_settings();
    settings.segment_bytes = 100000;
    return settings;
}

static struct mill_partition *open_partition(void)
{
    struct mill_log_settings settings = small_segments();
    return fixture_partition(&f, 0, &settings);
}

/* A log of several segments by one idempotent producer. ret: its end. */
static int64_t make_log(uint64_t seed)
{
    struct mill_random random = {.state = seed};
    disk = disk_model_new(seed);
    assert_non_null(disk);
    fixture_make(&f, disk_model_calls(disk));
    f.log_dirs[0] = "/disk/logs";
    fixture_open(&f);
    m = maker_new();
    m->producer_id = PRODUCER;
    m->epoch = 0;
    m->sequence = 0;
    struct mill_partition *partition = open_partition();
    for (int i = 0; i < BATCHES; i++) {
        m->value_bytes = 100 + mill_random_below(&random, 1500);
        m->timestamp = 1700000000000 + (late_batch < 0 ? i : i == late_batch ? 1000000 : 0);
        maker_build(m, 1);
        maker_must(&f, partition, m);
        m->sequence++;
    }
    fixture_settle(&f);
    return mill_partition_end(partition);
}

static void drop_log(void)
{
    fixture_free(&f);
    disk_model_free(disk);
    free(m);
}

static void reopen(void)
{
    f.said_count = 0;
    fixture_open(&f);
}

/* The last five batches are known, an older retry is refused, the next one is taken. */
static void check_producer(struct mill_partition *partition, int64_t end)
{
    struct mill_append_result result;
    assert_int_equal(mill_partition_end(partition), end);
    for (int32_t back = 5; back >= 1; back--) {
        m->sequence = (int32_t)end - back;
        maker_build(m, 1);
        assert_int_equal(maker_append(&f, partition, m, &result), 0);
        assert_int_equal(result.error, 0);
        assert_true(result.duplicate);
        assert_int_equal(result.base_offset, end - back);
    }
    m->sequence = (int32_t)end - 7;
    maker_build(m, 1);
    assert_int_equal(maker_append(&f, partition, m, &result), 0);
    assert_int_equal(result.error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    m->sequence = (int32_t)end;
}

static int64_t last_base(void)
{
    int64_t base = -1;
    for (int64_t i = 0; i <= BATCHES + 1; i++) {
        char path[200];
        uint64_t size;
        snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)i);
        base = disk_model_bytes(disk, path, &size) ? i : base;
    }
    return base;
}

/* --- reading little -------------------------------------------------------------------------- */

/* Ends cleanly and starts again: that reads checkpoints, a snapshot, last index entries, and what
 * follows the last of them. */
static void check_clean_start(int64_t end)
{
    fixture_close(&f, true);
    uint64_t size;
    assert_non_null(disk_model_bytes(disk, "/disk/logs/.kafka_cleanshutdown", &size));
    uint64_t before = disk_model_counts(disk)->bytes_read;
    reopen();
    check_producer(open_partition(), end);
    assert_in_range(disk_model_counts(disk)->bytes_read - before, 1, 16 << 10);
    assert_null(disk_model_bytes(disk, "/disk/logs/.kafka_cleanshutdown", &size));
}

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

struct copy {
    uint64_t size;
    uint8_t bytes[1024];
};

/* The last segment's .index. */
static struct copy copy_of_index(void)
{
    struct copy copy = {0};
    char path[200];
    snprintf(path, sizeof(path), "%s/%020lld.index", folder, (long long)last_base());
    const uint8_t *bytes = disk_model_bytes(disk, path, &copy.size);
    assert_non_null(bytes);
    assert_in_range(copy.size, 8, sizeof(copy.bytes));
    memcpy(copy.bytes, bytes, copy.size);
    return copy;
}

/* It begins with what it was. */
static void check_index(const struct copy *before)
{
    struct copy now = copy_of_index();
    assert_true(now.size >= before->size);
    assert_memory_equal(now.bytes, before->bytes, before->size);
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

/* --- damage that is mended ------------------------------------------------------------------- */

enum damage {
    DELETED,
    EMPTIED,
    ZEROED,
    RANDOM,
    CUT_SHORT,
    DAMAGES,
};

static void damage_file(const char *path, enum damage damage, struct mill_random *random)
{
    const struct mill_file_calls *calls = disk_model_calls(disk);
    uint64_t size = 0;
    if (!disk_model_bytes(disk, path, &size)) {
        return;
    }
    if (damage == DELETED) {
        assert_int_equal(calls->remove_file(disk, path), 0);
        return;
    }
    int file = calls->open(disk, path, MILL_FILE_WRITE);
    for (uint64_t at = 0; at < size && (damage == ZEROED || damage == RANDOM); at++) {
        uint8_t byte = damage == ZEROED ? 0 : (uint8_t)mill_random_next(random);
        struct iovec part = {.iov_base = &byte, .iov_len = 1};
        assert_int_equal(calls->write_at(disk, file, &part, 1, at), 1);
    }
    if (damage == EMPTIED || damage == CUT_SHORT) {
        uint64_t left = damage == EMPTIED ? 0 : size - MILL_MIN(size, 3u);
        assert_int_equal(calls->truncate(disk, file, left), 0);
    }
    assert_int_equal(calls->close(disk, file), 0);
}

/* Every file that can be made anew, one at a time, damaged in every way, after both kinds of end.
 * It is made anew in files, too: a clean end after that is believed. */
static void test_whatever_can_be_made_anew_is(void **state)
{
    MILL_UNUSED(state);
    for (int clean = 0; clean < 2; clean++) {
        for (int damage = 0; damage < DAMAGES; damage++) {
            struct mill_random random = {.state = (uint64_t)damage};
            int64_t end = make_log(3);
            fixture_step(&f, 61000);
            fixture_settle(&f);
            int64_t base = last_base();
            assert_true(base > 0);
            static const char *const names[] = {
                "/disk/logs/recovery-point-offset-checkpoint",
                "/disk/logs/replication-offset-checkpoint",
                "/disk/logs/log-start-offset-checkpoint",
                "/disk/logs/topic-a-0/leader-epoch-checkpoint",
                "/disk/logs/topic-a-0/00000000000000000000.index",
                "/disk/logs/topic-a-0/00000000000000000000.timeindex",
                "/disk/logs/topic-a-0/%020lld.index",
                "/disk/logs/topic-a-0/%020lld.timeindex",
                "/disk/logs/topic-a-0/%020lld.snapshot",
            };
            struct copy index;
            for (size_t i = 0; i < MILL_COUNT_OF(names); i++) {
                char path[200];
                fixture_close(&f, clean == 1);
                snprintf(path, sizeof(path), "%s", names[i]);
                char *number = strstr(path, "%020lld");
                if (number) {
                    snprintf(number, sizeof(path) - (size_t)(number - path), "%020lld%s",
                             (long long)(strstr(names[i], "snapshot") && clean ? end : base),
                             strrchr(names[i], '.'));
                }
                damage_file(path, (enum damage)damage, &random);
                reopen();
                struct mill_partition *partition = open_partition();
                check_producer(partition, end);
                assert_int_equal(mill_log_epoch_at(partition, 0), 3);
                check_clean_start(end);
                if (i == 0) {
                    index = copy_of_index(); /* checkpoints were damaged only */
                }
                check_index(&index);
            }
            fixture_close(&f, true);
            drop_log();
        }
    }
}

/* A log that ends elsewhere than the mark of a clean end says is walked as after a kill. */
static void test_a_mark_that_lies_is_not_believed(void **state)
{
    MILL_UNUSED(state);
    int64_t end = make_log(4);
    fixture_close(&f, true);
    char path[200];
    snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)last_base());
    const struct mill_file_calls *calls = disk_model_calls(disk);
    int file = calls->open(disk, path, MILL_FILE_WRITE);
    struct iovec torn = {.iov_base = m->bytes, .iov_len = 40};
    assert_int_equal(calls->write_at(disk, file, &torn, 1, (uint64_t)calls->size(disk, file)), 40);
    assert_int_equal(calls->close(disk, file), 0);
    reopen();
    check_producer(open_partition(), end);
    assert_true(fixture_was_said(&f, "store.cut"));
    fixture_close(&f, true);
    drop_log();
}

/* --- damage that is not ---------------------------------------------------------------------- */

static uint8_t *flip(const char *path, uint64_t at)
{
    static uint8_t old;
    const struct mill_file_calls *calls = disk_model_calls(disk);
    int file = calls->open(disk, path, MILL_FILE_WRITE);
    assert_true(file >= 0);
    assert_int_equal(calls->read_at(disk, file, &old, 1, at), 1);
    uint8_t byte = old ^ 0x10;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    assert_int_equal(calls->write_at(disk, file, &part, 1, at), 1);
    assert_int_equal(calls->close(disk, file), 0);
    return &old;
}

/* A bit in the last segment, below the recovery point and above it. */
static void test_damage_below_the_recovery_point_is_fenced(void **state)
{
    MILL_UNUSED(state);
    for (int below = 0; below < 2; below++) {
        struct mill_log_settings settings = small_segments();
        int64_t end = make_log(5);
        char path[200];
        uint64_t size;
        snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)last_base());
        if (below) {
            struct mill_partition *partition = mill_log_at(f.log, 0);
            settings.flush_messages = 1;
            mill_log_update(partition, 3, &settings);
            maker_build(m, 1);
            maker_must(&f, partition, m);
            fixture_settle(&f);
            fixture_step(&f, 61000);
            end++;
        }
        fixture_settle(&f);
        assert_non_null(disk_model_bytes(disk, path, &size));
        fixture_close(&f, false);
        flip(path, 100);
        reopen();
        if (!below) {
            assert_true(mill_partition_end(open_partition()) < end);
            assert_true(fixture_was_said(&f, "store.cut"));
        } else {
            struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
            struct mill_partition *partition = NULL;
            fixture_must(&f, mill_log_open(f.log, &id, "topic-a", 0, 3, &settings, &partition));
            fixture_settle(&f);
            assert_int_equal(mill_partition_state_of(partition), MILL_LOG_FAILED);
            assert_true(fixture_was_said(&f, "store.damaged"));
            uint64_t now = 0;
            assert_non_null(disk_model_bytes(disk, path, &now));
            assert_int_equal(now, size); /* nothing was cut */
        }
        fixture_close(&f, false);
        drop_log();
    }
}

/* A topic is deleted and made again under its name, then the process is killed: what the checkpoint
 * said of the first one's longer log is not held against the second. */
static void test_checkpoint_of_an_earlier_topic_is_forgotten(void **state)
{
    MILL_UNUSED(state);
    make_log(9);
    fixture_step(&f, 61000);
    fixture_settle(&f);
    mill_log_delete(mill_log_at(f.log, 0));
    fixture_settle(&f);
    assert_int_equal(f.gone, 1);
    struct mill_partition *partition = open_partition();
    m->sequence = 0;
    for (int i = 0; i < 3; i++) {
        maker_build(m, 1);
        maker_must(&f, partition, m);
        m->sequence++;
    }
    fixture_settle(&f);
    fixture_close(&f, false);
    reopen();
    assert_int_equal(mill_partition_end(open_partition()), 3);
    assert_false(fixture_was_said(&f, "store.damaged"));
    fixture_close(&f, true);
    drop_log();
}

static void make_file(const char *path)
{
    const struct mill_file_calls *calls = disk_model_calls(disk);
    int file = calls->open(disk, path, MILL_FILE_WRITE | MILL_FILE_CREATE);
    assert_true(file >= 0);
    assert_int_equal(calls->close(disk, file), 0);
}

/* Takes the second batch out of a segment, as if it had never been there. */
static void take_out_a_batch(const char *path)
{
    const struct mill_file_calls *calls = disk_model_calls(disk);
    uint64_t size = 0;
    const uint8_t *at = disk_model_bytes(disk, path, &size);
    assert_non_null(at);
    uint64_t first = 12 + mill_load_be32(at + 8);
    uint64_t second = 12 + mill_load_be32(at + first + 8);
    uint64_t left = size - first - second;
    uint8_t *rest = malloc(left);
    assert_non_null(rest);
    memcpy(rest, at + first + second, left);
    int file = calls->open(disk, path, MILL_FILE_WRITE);
    assert_int_equal(mill_store_write_all(calls, file, rest, left, first), 0);
    assert_int_equal(calls->truncate(disk, file, first + left), 0);
    assert_int_equal(calls->close(disk, file), 0);
    free(rest);
}

/* Records that are missing between two good batches, or between two segments: told and not served,
 * unless compaction may have taken them. */
static void test_gaps_are_noticed_where_they_are_illegal(void **state)
{
    MILL_UNUSED(state);
    enum { LEGAL_NOT, LEGAL_COMPACT, LEGAL_ONCE, LEGAL_WAYS };
    static const char cleaner[] = "/disk/logs/cleaner-offset-checkpoint";
    struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    for (int way = 0; way < 2 * LEGAL_WAYS; way++) {
        struct mill_log_settings settings = small_segments();
        struct mill_partition *partition = NULL;
        int legal = way / 2;
        char path[200];
        make_log(12);
        fixture_step(&f, 61000);
        fixture_settle(&f);
        fixture_close(&f, false);
        const struct mill_file_calls *calls = disk_model_calls(disk);
        int64_t base = way % 2 == 0 ? last_base() : 0;
        snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)base);
        if (way % 2 == 0) {
            take_out_a_batch(path);
        } else {
            for (int64_t next = base + 1;; next++) { /* the second segment */
                uint64_t size;
                snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)next);
                if (disk_model_bytes(disk, path, &size)) {
                    break;
                }
            }
            assert_int_equal(calls->remove_file(disk, path), 0);
        }
        if (legal == LEGAL_ONCE) {
            static const char text[] = "0\n2\nother 1 5\ntopic-a 0 7\n";
            int file = calls->open(disk, cleaner, MILL_FILE_WRITE | MILL_FILE_CREATE);
            assert_int_equal(mill_store_write_all(calls, file, text, strlen(text), 0), 0);
            assert_int_equal(calls->close(disk, file), 0);
        }
        settings.compact = legal == LEGAL_COMPACT;
        reopen();
        fixture_must(&f, mill_log_open(f.log, &id, "topic-a", 0, 3, &settings, &partition));
        fixture_settle(&f);
        assert_int_equal(mill_partition_state_of(partition),
                         legal == LEGAL_NOT ? MILL_LOG_FAILED : MILL_LOG_SERVING);
        assert_int_equal(fixture_was_said(&f, "store.damaged"), legal == LEGAL_NOT);
        fixture_close(&f, false);
        drop_log();
    }
}

static uint32_t cleaner_opens;

static int counted_open(void *context, const char *path, uint32_t flags)
{
    cleaner_opens += mill_store_name_ends(path, "/cleaner-offset-checkpoint") ? 1 : 0;
    return disk_model_calls(disk)->open(context, path, flags);
}

/* Every retry of a read that meets one fails, and costs no look into the checkpoint again. */
static void test_illegal_gap_is_judged_once(void **state)
{
    MILL_UNUSED(state);
    static struct mill_read_result got;
    char path[200];
    make_log(12);
    fixture_settle(&f);
    fixture_close(&f, true);
    snprintf(path, sizeof(path), "%s/%020d.log", folder, 0);
    take_out_a_batch(path);
    struct mill_file_calls counted = *disk_model_calls(disk);
    counted.open = counted_open;
    f.files = &counted;
    reopen();
    struct mill_partition *partition = open_partition();
    cleaner_opens = 0;
    for (int i = 0; i < 3; i++) {
        struct mill_read read = {.offset = 1,
                                 .bytes_max = 1000,
                                 .first_whole = true,
                                 .current_epoch = -1,
                                 .last_epoch = -1,
                                 .refs_max = 1};
        fixture_read(&f, partition, &read, &got);
        assert_int_equal(got.error, MILL_KERR_KAFKA_STORAGE_ERROR);
    }
    assert_int_equal(cleaner_opens, 1);
    fixture_close(&f, false);
    drop_log();
}

/* Without its entries each cold read would begin at the segment's first byte. */
static void test_emptied_index_of_a_closed_segment_is_made_anew(void **state)
{
    MILL_UNUSED(state);
    char path[200];
    snprintf(path, sizeof(path), "%s/%020d.index", folder, 0);
    for (int clean = 0; clean < 2; clean++) {
        uint64_t before = 0;
        uint64_t after = 0;
        struct mill_random random = {.state = 1};
        int64_t end = make_log(3);
        fixture_step(&f, 61000);
        fixture_settle(&f);
        assert_true(last_base() > 0);
        assert_non_null(disk_model_bytes(disk, path, &before));
        assert_true(before > 0);
        fixture_close(&f, clean == 1);
        damage_file(path, EMPTIED, &random);
        reopen();
        open_partition();
        assert_non_null(disk_model_bytes(disk, path, &after));
        assert_int_equal(after, before);
        check_clean_start(end);
        fixture_close(&f, true);
        drop_log();
    }
}

static void test_orphaned_indexes_are_removed(void **state)
{
    MILL_UNUSED(state);
    static const char *const orphans[] = {
        "/disk/logs/topic-a-0/00000000000000000007.index",
        "/disk/logs/topic-a-0/00000000000000000007.timeindex",
        "/disk/logs/topic-a-0/00000000000000000009.txnindex",
    };
    static const char other[] = "/disk/logs/topic-a-0/notes.index";
    uint64_t size;
    int64_t end = make_log(13);
    fixture_close(&f, false);
    for (size_t i = 0; i < MILL_COUNT_OF(orphans); i++) {
        make_file(orphans[i]);
    }
    make_file(other);
    reopen();
    check_producer(open_partition(), end);
    for (size_t i = 0; i < MILL_COUNT_OF(orphans); i++) {
        assert_null(disk_model_bytes(disk, orphans[i], &size));
    }
    assert_non_null(disk_model_bytes(disk, other, &size));
    assert_true(fixture_was_said(&f, "store.orphans"));
    fixture_close(&f, true);
    drop_log();
}

/* A directory that is gone or was emptied, of a partition that had served (made) or that a
 * checkpoint names: it is not begun anew, and one that never served is. */
static void test_lost_directory_is_not_a_new_one(void **state)
{
    MILL_UNUSED(state);
    struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    for (int way = 0; way < 4; way++) {
        struct mill_log_settings settings = small_segments();
        struct mill_partition *partition = NULL;
        make_log(11);
        fixture_close(&f, true);
        const struct mill_file_calls *calls = disk_model_calls(disk);
        bool gone = way == 0 || way == 3;
        if (gone) {
            assert_int_equal(mill_store_tree_remove(calls, folder), 0);
        } else {
            for (int64_t i = 0; i <= BATCHES + 1; i++) {
                char path[200];
                snprintf(path, sizeof(path), "%s/%020lld.log", folder, (long long)i);
                int r = calls->remove_file(disk, path);
                MILL_UNUSED(r); /* most are no segment's */
            }
        }
        if (way == 1) { /* only control knows */
            assert_int_equal(
                calls->remove_file(disk, "/disk/logs/recovery-point-offset-checkpoint"), 0);
        }
        settings.made = way < 2;
        reopen();
        fixture_must(&f, mill_log_open(f.log, &id, "topic-a", 0, 3, &settings, &partition));
        fixture_settle(&f);
        bool new = way == 3;
        assert_int_equal(mill_partition_state_of(partition),
                         new ? MILL_LOG_SERVING : MILL_LOG_FAILED);
        assert_int_equal(fixture_was_said(&f, "store.lost"), !new);
        fixture_close(&f, false);
        drop_log();
    }
}

/* --- what lies about -------------------------------------------------------------------------- */

static void test_unknown_files_are_named_and_deletions_finished(void **state)
{
    MILL_UNUSED(state);
    int64_t end = make_log(6);
    uint64_t size;
    fixture_close(&f, true);
    const struct mill_file_calls *calls = disk_model_calls(disk);
    make_file("/disk/logs/holiday.jpg");
    assert_int_equal(calls->make_dir(disk, "/disk/logs/to-delete"), 0);
    make_file("/disk/logs/to-delete/diary");
    assert_int_equal(calls->make_dir(disk, "/disk/logs/old.copy-delete"), 0);
    assert_int_equal(
        calls->make_dir(disk, "/disk/logs/gone-0.0123456789abcdef0123456789abcdef-delete"), 0);
    make_file("/disk/logs/gone-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log");
    reopen();
    check_producer(open_partition(), end);
    assert_int_equal(f.said_count, 3);
    assert_true(fixture_was_said(&f, "store.unknown-file"));
    assert_non_null(disk_model_bytes(disk, "/disk/logs/to-delete/diary", &size));
    assert_int_equal(calls->sync_dir(disk, "/disk/logs/old.copy-delete"), 0);
    assert_non_null(disk_model_bytes(disk, "/disk/logs/holiday.jpg", &size));
    assert_int_equal(
        calls->sync_dir(disk, "/disk/logs/gone-0.0123456789abcdef0123456789abcdef-delete"),
        -ENOENT);
    fixture_close(&f, true);
    drop_log();
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

/* --- the snapshot's bytes -------------------------------------------------------------------- */

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
        cmocka_unit_test(test_whatever_can_be_made_anew_is),
        cmocka_unit_test(test_a_mark_that_lies_is_not_believed),
        cmocka_unit_test(test_damage_below_the_recovery_point_is_fenced),
        cmocka_unit_test(test_checkpoint_of_an_earlier_topic_is_forgotten),
        cmocka_unit_test(test_gaps_are_noticed_where_they_are_illegal),
        cmocka_unit_test(test_illegal_gap_is_judged_once),
        cmocka_unit_test(test_emptied_index_of_a_closed_segment_is_made_anew),
        cmocka_unit_test(test_orphaned_indexes_are_removed),
        cmocka_unit_test(test_lost_directory_is_not_a_new_one),
        cmocka_unit_test(test_unknown_files_are_named_and_deletions_finished),
        cmocka_unit_test(test_large_checkpoint_is_read_in_linear_time),
        cmocka_unit_test(test_snapshot_is_kafkas),
    };
    return cmocka_run_group_tests_name("loading", tests, NULL, NULL);
}
