/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: compaction that is stopped, killed, cut off by a power loss, or meets damage or a disk that
 * is full or fails leaves a log that is as before or as after, and never takes damage for good.
 * Method: as test_clean.c, with faults and ends at every file call (clean_rig.h). */
#include "tests/unit/store/clean_rig.h"

static struct rig *rig;

enum {
    CRC_AT_BYTES = 17,
    SUMMED_AT_BYTES = 21, /* the sum covers what follows it */
};

static int teardown(void **state)
{
    MILL_UNUSED(state);
    if (rig) {
        rig_end(rig);
        rig = NULL;
    }
    return 0;
}

static void start(uint64_t seed)
{
    rig = rig_new(seed);
    rig_serve(rig);
}

/* Compaction puts a segment in place of one that a helper reads: the helper's file is the old one
 * until it is done. */
static void test_swap_leaves_helpers_their_files(void **state)
{
    MILL_UNUSED(state);
    uint8_t before[MILL_BATCH_HEADER_BYTES];
    uint8_t after[MILL_BATCH_HEADER_BYTES];
    start(12);
    rig_append_rounds(rig, 30);
    struct mill_store *store = rig->f.store;
    struct store_partition *stored = rig_stored(rig);
    struct store_segment *segment = &stored->segments[0];
    uint64_t last = segment->log_bytes - sizeof(before);
    int file = mill_store_file(store, stored, segment, STORE_FILE_LOG);
    assert_int_equal(mill_store_read_all(&rig->calls, file, before, sizeof(before), last), 0);
    struct store_file *slot = mill_store_file_pin(store, stored, segment, STORE_FILE_LOG);
    rig_clean(rig);
    assert_true(stored->segments[0].log_bytes < last);
    assert_int_equal(slot->file, file);
    assert_ptr_not_equal(mill_store_file_slot(store, stored, &stored->segments[0], STORE_FILE_LOG),
                         slot);
    assert_int_equal(mill_store_read_all(&rig->calls, file, after, sizeof(after), last), 0);
    assert_memory_equal(after, before, sizeof(after));
    mill_store_file_unpin(store, slot);
    assert_int_equal(slot->file, -1);
    rig_evict(rig);
    rig_check(rig, rig_active(rig));
}

/* Damage is not copied with a right sum: the partition is left as it is, loudly. */
static void test_damage_is_not_copied(void **state)
{
    MILL_UNUSED(state);
    start(8);
    rig_append_rounds(rig, 30);
    rig_evict(rig);
    struct store_partition *stored = rig_stored(rig);
    int file = mill_store_file(rig->f.store, stored, &stored->segments[0], STORE_FILE_LOG);
    uint8_t byte;
    assert_int_equal(mill_store_read_all(&rig->calls, file, &byte, 1, 80), 0); /* in a value */
    byte ^= 1;
    assert_int_equal(mill_store_write_all(&rig->calls, file, &byte, 1, 80), 0);
    uint32_t files = rig_files(rig, "log");
    rig_clean(rig);
    assert_true(fixture_was_said(&rig->f, "store.uncleanable"));
    assert_int_equal(rig_files(rig, "log"), files);
    assert_int_equal(rig_files(rig, "log.cleaned"), 0);
    assert_int_equal(rig_stats(rig)->runs, 0);
    assert_int_equal(mill_partition_state_of(rig->partition), MILL_LOG_SERVING);
}

/* The same behind batches that are good and were copied: it is damage still, no failed write that
 * would fence the directory. Compacted before, so that the map passes it by. */
static void test_damage_behind_good_batches(void **state)
{
    MILL_UNUSED(state);
    start(14);
    rig_append_rounds(rig, 30);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    rig_append_rounds(rig, 30);
    rig_evict(rig);
    struct store_partition *stored = rig_stored(rig);
    struct store_segment *segment = &stored->segments[0];
    while (segment->log_bytes == 0) { /* what it held was written again later */
        segment++;
    }
    int file = mill_store_file(rig->f.store, stored, segment, STORE_FILE_LOG);
    uint8_t header[MILL_BATCH_HEADER_BYTES];
    struct mill_batch batch;
    assert_int_equal(mill_store_read_all(&rig->calls, file, header, sizeof(header), 0), 0);
    mill_batch_read(header, &batch);
    uint64_t pos = mill_batch_size_bytes(&batch) + 70;
    assert_true(pos < segment->log_bytes && segment[1].base_offset <= stored->clean_offset);
    uint8_t byte;
    assert_int_equal(mill_store_read_all(&rig->calls, file, &byte, 1, pos), 0);
    byte ^= 1;
    assert_int_equal(mill_store_write_all(&rig->calls, file, &byte, 1, pos), 0);
    rig_clean(rig);
    assert_true(fixture_was_said(&rig->f, "store.uncleanable"));
    assert_false(fixture_was_said(&rig->f, "store.fenced"));
    assert_int_equal(rig_files(rig, "log.cleaned"), 0);
    assert_int_equal(rig_stats(rig)->runs, 1);
    assert_int_equal(mill_partition_state_of(rig->partition), MILL_LOG_SERVING);
}

/* A record that claims an offset outside its batch, as one may that was taken on its header before
 * the topic was compacted, would hide the later values of its key: it is damage. */
static void test_offset_outside_its_batch(void **state)
{
    MILL_UNUSED(state);
    start(15);
    rig_append_rounds(rig, 30);
    rig_evict(rig);
    struct store_partition *stored = rig_stored(rig);
    int file = mill_store_file(rig->f.store, stored, &stored->segments[0], STORE_FILE_LOG);
    uint8_t bytes[512];
    struct mill_batch batch;
    assert_int_equal(mill_store_read_all(&rig->calls, file, bytes, sizeof(bytes), 0), 0);
    mill_batch_read(bytes, &batch);
    uint32_t size_bytes = mill_batch_size_bytes(&batch);
    assert_in_range(size_bytes, MILL_BATCH_HEADER_BYTES, sizeof(bytes));
    assert_int_equal(batch.last_offset_delta, 0);
    /* length (a varint), attributes, time, offset */
    uint8_t *delta =
        bytes + MILL_BATCH_HEADER_BYTES + (bytes[MILL_BATCH_HEADER_BYTES] & 0x80 ? 4 : 3);
    assert_int_equal(*delta, 0);
    *delta = 126; /* zigzag of 63 */
    mill_store_be32(bytes + CRC_AT_BYTES,
                    mill_crc32c(bytes + SUMMED_AT_BYTES, size_bytes - SUMMED_AT_BYTES));
    assert_int_equal(mill_store_write_all(&rig->calls, file, bytes, size_bytes, 0), 0);
    rig_clean(rig);
    assert_true(fixture_was_said(&rig->f, "store.uncleanable"));
    assert_int_equal(rig_stats(rig)->runs, 0);
    assert_int_equal(mill_partition_state_of(rig->partition), MILL_LOG_SERVING);
}

/* Trimming, deletion and other settings end what is under way; nothing of it is left. */
static void test_stopped_cleanly(void **state)
{
    MILL_UNUSED(state);
    for (int what = 0; what < 4; what++) {
        rig = rig_new(9);
        rig->f.clean_rate = 20000;
        rig_serve(rig);
        rig_append_rounds(rig, 60);
        fixture_settle(&rig->f);
        fixture_step(&rig->f, RIG_BACKOFF_MS);
        for (uint32_t i = 0; i < 1000 && rig_files(rig, "log.cleaned") == 0; i++) {
            fixture_step(&rig->f, 20);
        }
        assert_int_equal(rig_files(rig, "log.cleaned"), 1);
        if (what == 0) {
            static bool fired; /* the log holds them beyond this block */
            static struct mill_log_watch watch = {.user = &fired};
            int r = mill_log_trim(rig->partition, 100, &watch);
            assert_int_equal(r, -EINPROGRESS);
        } else if (what == 1) {
            rig->settings.compact = false;
            mill_log_update(rig->partition, 3, &rig->settings);
        } else if (what == 2) {
            mill_log_delete(rig->partition);
        }
        if (what < 3) {
            for (uint32_t i = 0; i < 3; i++) {
                fixture_step(&rig->f, 20);
            }
            assert_int_equal(rig_files(rig, "log.cleaned"), 0);
            assert_int_equal(rig_stats(rig)->stopped, 1);
            assert_int_equal(rig->f.gone, what == 2 ? 1 : 0);
        }
        if (what == 0) {
            rig_evict(rig);
            rig_read(rig);
            assert_int_equal(mill_partition_start(rig->partition), 100);
        }
        /* 3: the end of the process, cleanly. */
        fixture_close(&rig->f, what != 2);
        assert_int_equal(rig_files(rig, "log.cleaned"), 0);
        rig_free(rig);
        rig = NULL;
    }
}

/* The disk is full while a segment is written: given up without harm, done when there is space. */
static void test_full_disk_waits(void **state)
{
    MILL_UNUSED(state);
    start(11);
    rig_append_rounds(rig, 60);
    rig_evict(rig);
    disk_model_faults(rig->disk)->space_bytes = 0;
    rig_clean(rig);
    assert_true(rig_stats(rig)->failed > 0);
    assert_int_equal(rig_stats(rig)->runs, 0);
    assert_int_equal(rig->f.failed, 0);
    disk_model_faults(rig->disk)->space_bytes = UINT64_MAX;
    rig_clean(rig);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
}

/* Nor is it tried before log.cleaner.backoff.ms is over, when the rate alone would allow it: the
 * step that maps the last batches begins the copy, which fails. */
static void test_failed_copy_waits(void **state)
{
    MILL_UNUSED(state);
    rig = rig_new(15);
    rig->f.clean_rate = 1000000;
    rig->settings.segment_bytes = 1000; /* one step for each */
    rig_serve(rig);
    rig_append_rounds(rig, 20);
    fixture_settle(&rig->f);
    rig->fault_open = ".index.cleaned";
    rig->fault = -EMFILE;
    for (uint32_t i = 0; i < 2 * RIG_BACKOFF_MS / 100 && rig_stats(rig)->failed == 0; i++) {
        fixture_step(&rig->f, 100);
    }
    assert_int_equal(rig_stats(rig)->failed, 1);
    for (uint32_t i = 0; i < RIG_BACKOFF_MS / 100 - 10; i++) {
        fixture_step(&rig->f, 100);
    }
    assert_int_equal(rig_stats(rig)->failed, 1);
    rig->fault_open = NULL;
    for (uint32_t i = 0; i < 2 * RIG_BACKOFF_MS / 100; i++) {
        fixture_step(&rig->f, 100);
    }
    assert_int_equal(rig_stats(rig)->runs, 1);
}

/* --- errors in a swap ---------------------------------------------------------------------------
 */

static const int passing[] = {-ENOSPC, -EDQUOT, -EMFILE, -ENFILE, -ENOMEM};

/* Once an old segment is touched, no error passes by itself: the directory is fenced, and a start
 * finishes the swap. */
static void test_half_a_swap_fences(void **state)
{
    MILL_UNUSED(state);
    static const char *const from[] = {".index", ".log", ".timeindex.swap", ".log.swap"};
    for (size_t i = 0; i < MILL_COUNT_OF(from) * 2; i++) {
        start(20 + i);
        rig_append_rounds(rig, 40);
        rig_evict(rig);
        rig->settings.segment_bytes = 1 << 20;
        mill_log_update(rig->partition, 3, &rig->settings);
        rig->fault_from = from[i / 2];
        rig->fault = passing[i % MILL_COUNT_OF(passing)];
        rig->fault_sync = i % 2 == 1;
        rig_clean(rig);
        assert_null(rig->fault_from);
        assert_true(fixture_was_said(&rig->f, "store.fenced"));
        assert_int_equal(mill_partition_state_of(rig->partition), MILL_LOG_FAILED);
        rig_restart(rig, true);
        assert_int_equal(rig_files(rig, "log.swap"), 0);
        rig_check(rig, rig_active(rig));
        rig_end(rig);
        rig = NULL;
    }
}

/* Before that, nothing is left of it, and it is done again. */
static void test_swap_not_begun_is_taken_back(void **state)
{
    MILL_UNUSED(state);
    static const char *const from[] = {".index.cleaned", ".timeindex.cleaned", ".log.cleaned"};
    for (size_t i = 0; i < MILL_COUNT_OF(from) * 2; i++) {
        start(40 + i);
        rig_append_rounds(rig, 40);
        rig_evict(rig);
        uint32_t files = rig_files(rig, "log");
        rig->fault_from = from[i / 2];
        rig->fault = passing[i % MILL_COUNT_OF(passing)];
        rig->fault_sync = i % 2 == 1;
        rig_clean(rig);
        assert_null(rig->fault_from);
        assert_false(fixture_was_said(&rig->f, "store.fenced"));
        assert_int_equal(rig_files(rig, "log"), files);
        static const char *const kinds[] = {"log", "index", "timeindex"};
        for (size_t kind = 0; kind < MILL_COUNT_OF(kinds); kind++) {
            char end[32];
            snprintf(end, sizeof(end), "%s.swap", kinds[kind]);
            assert_int_equal(rig_files(rig, end), 0);
            snprintf(end, sizeof(end), "%s.cleaned", kinds[kind]);
            assert_int_equal(rig_files(rig, end), 0);
        }
        rig_clean(rig);
        assert_int_equal(rig_stats(rig)->runs, 1);
        rig_evict(rig);
        rig_check(rig, rig_stored(rig)->clean_offset);
        rig_end(rig);
        rig = NULL;
    }
}

/* A .swap file whose records a later compaction put into the segment before it has no place. */
static void test_stale_swap_is_removed(void **state)
{
    MILL_UNUSED(state);
    start(50);
    rig_append_rounds(rig, 60);
    rig_evict(rig);
    rig->settings.segment_bytes = 1 << 20;
    mill_log_update(rig->partition, 3, &rig->settings);
    char path[200];
    uint64_t size;
    uint8_t *bytes = NULL;
    const struct store_partition *stored = rig_stored(rig);
    int64_t base = stored->segments[stored->segments_count - 2].base_offset;
    snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.log", (long long)base);
    const uint8_t *old = disk_model_bytes(rig->disk, path, &size);
    assert_non_null(old);
    bytes = malloc(size);
    assert_non_null(bytes);
    memcpy(bytes, old, size);
    rig_clean(rig);
    assert_int_equal(rig_files(rig, "log"), 2);
    fixture_close(&rig->f, true);
    snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.log.swap", (long long)base);
    int file = rig->calls.open(rig->calls.context, path, MILL_FILE_WRITE | MILL_FILE_CREATE);
    assert_true(file >= 0);
    assert_int_equal(mill_store_write_all(&rig->calls, file, bytes, size, 0), 0);
    assert_int_equal(rig->calls.close(rig->calls.context, file), 0);
    free(bytes);
    rig_serve(rig);
    assert_int_equal(rig_files(rig, "log"), 2);
    assert_int_equal(rig_files(rig, "log.swap"), 0);
    rig_check(rig, rig_active(rig));
    rig_check_once(rig, rig_active(rig));
}

/* --- kills --------------------------------------------------------------------------------------
 */

/* One compaction with the process killed at its n-th file call, or the power cut there, which
 * loses, tears and reorders what was not synced. ret: false when it ended before. */
static bool killed_at(uint64_t n, bool power)
{
    rig = rig_new(12);
    rig->settings.flush_messages = power ? 1 : INT64_MAX;
    rig_serve(rig);
    rig->m->producer_id = 5;
    rig->m->epoch = 0;
    rig->m->sequence = 0;
    for (int32_t i = 0; i < 14; i++) {
        struct rig_entry entries[4] = {{i % 3, i}, {7, i}, {8, i % 2 ? -1 : i}, {9, i}};
        rig_append(rig, entries, 4, (enum mill_codec)(i % MILL_CODEC_COUNT));
    }
    rig->settings.segment_bytes = 600;
    mill_log_update(rig->partition, 3, &rig->settings);
    for (int32_t i = 0; i < 40; i++) {
        struct rig_entry entries[4] = {{i % 3, i}, {7, i}, {8, i % 2 ? -1 : i}, {9, i}};
        rig_append(rig, entries, 4, (enum mill_codec)(i % MILL_CODEC_COUNT));
        fixture_settle(&rig->f);
    }
    rig->settings.segment_bytes = 3000; /* so that several are put together */
    mill_log_update(rig->partition, 3, &rig->settings);
    fixture_settle(&rig->f);
    fixture_step(&rig->f, RIG_BACKOFF_MS - 1);
    uint64_t before = rig->calls_made;
    rig->calls_left = n;
    fixture_step(&rig->f, 1);
    fixture_settle(&rig->f);
    bool killed = rig->calls_made - before > n;
    fixture_close(&rig->f, false);
    if (power) {
        disk_model_crash_seeded(rig->disk, n);
    }
    rig->calls_left = UINT64_MAX;
    rig_serve(rig);
    rig_check(rig, rig_active(rig));
    assert_int_equal(rig_files(rig, "log.cleaned") + rig_files(rig, "log.swap"), 0);
    assert_int_equal(rig_files(rig, "index.cleaned") + rig_files(rig, "index.swap"), 0);
    /* And it is done again, and its indexes lead to the right places. */
    rig_clean(rig);
    rig_evict(rig);
    int64_t clean = rig_stored(rig)->clean_offset;
    rig_check(rig, clean);
    rig_check_once(rig, clean);
    rig_end(rig);
    rig = NULL;
    return killed;
}

static void test_killed_at_every_call(void **state)
{
    MILL_UNUSED(state);
    uint64_t n = 0;
    while (killed_at(n, false)) {
        n++;
    }
    assert_true(n > 60);
    print_message("killed at each of %llu file calls\n", (unsigned long long)n);
}

static void test_power_cut_at_every_call(void **state)
{
    MILL_UNUSED(state);
    uint64_t n = 0;
    while (killed_at(n, true)) {
        n++;
    }
    assert_true(n > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_swap_leaves_helpers_their_files, teardown),
        cmocka_unit_test_teardown(test_damage_is_not_copied, teardown),
        cmocka_unit_test_teardown(test_damage_behind_good_batches, teardown),
        cmocka_unit_test_teardown(test_offset_outside_its_batch, teardown),
        cmocka_unit_test_teardown(test_stopped_cleanly, teardown),
        cmocka_unit_test_teardown(test_full_disk_waits, teardown),
        cmocka_unit_test_teardown(test_failed_copy_waits, teardown),
        cmocka_unit_test_teardown(test_half_a_swap_fences, teardown),
        cmocka_unit_test_teardown(test_swap_not_begun_is_taken_back, teardown),
        cmocka_unit_test_teardown(test_stale_swap_is_removed, teardown),
        cmocka_unit_test_teardown(test_killed_at_every_call, teardown),
        cmocka_unit_test_teardown(test_power_cut_at_every_call, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
