/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a start mends whatever can be made anew of what is missing or damaged, never serves or cuts
 * what was damaged below the recovery point, and says so. Method: log and store over the disk
 * model; files are damaged in every way between an end and a start. */
#include "tests/unit/store/load_rig.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests_name("loading what is damaged", tests, NULL, NULL);
}
