/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: offsets are in no batch's sum, and in a compacted topic gaps are legal: yet a batch that
 * claims an offset of another segment, or one that no log reaches, hides nothing, leads nowhere and
 * is told. The same for a snapshot whose sum is right and whose content cannot be. Method: single
 * fields of a compacted log on the disk model are overwritten; the fuzz target `files` found these.
 */
#include "tests/unit/store/clean_rig.h"

enum {
    DAMAGED = 1, /* segment */
};

static struct rig *rig;

static const int64_t wrong_offsets[] = {1 << 20, INT64_MAX - 1, INT64_MAX, -1, INT64_MIN};

static int teardown(void **state)
{
    MILL_UNUSED(state);
    if (rig) {
        rig_end(rig);
        rig = NULL;
    }
    return 0;
}

static void path_of(char *ret_path, size_t capacity, int64_t base, const char *end)
{
    snprintf(ret_path, capacity, "/disk/logs/topic-a-0/%020lld.%s", (long long)base, end);
}

static void file_write(int64_t base, const char *end, uint64_t pos, const void *bytes, size_t size)
{
    char path[200];
    path_of(path, sizeof(path), base, end);
    int file = rig->calls.open(rig->calls.context, path, MILL_FILE_WRITE);
    assert_true(file >= 0);
    assert_int_equal(mill_store_write_all(&rig->calls, file, bytes, size, pos), 0);
    assert_int_equal(rig->calls.close(rig->calls.context, file), 0);
}

/* A log of several segments, ended cleanly. ret: base of the one to be damaged. */
static int64_t log_make(uint64_t seed)
{
    rig = rig_new(seed);
    rig->settings.min_cleanable_ppm = 1000000; /* not before it is damaged */
    rig_serve(rig);
    rig_append_rounds(rig, 30);
    const struct store_partition *stored = rig_stored(rig);
    assert_true(stored->segments_count > 3);
    int64_t base = stored->segments[DAMAGED].base_offset;
    fixture_close(&rig->f, true);
    rig->settings.min_cleanable_ppm = 0;
    rig->f.said_count = 0;
    return base;
}

static void base_set(int64_t segment, uint64_t pos, int64_t offset)
{
    uint8_t bytes[8];
    mill_store_be64(bytes, (uint64_t)offset);
    file_write(segment, "log", pos, bytes, sizeof(bytes)); /* the first field */
}

/* A clean start does not look: compaction meets it, leaves all as it is, and says so. */
static void test_compaction_leaves_a_misplaced_batch_alone(void **state)
{
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(wrong_offsets); i++) {
        base_set(log_make(1 + i), 0, wrong_offsets[i]);
        rig_serve(rig);
        uint32_t files = rig_files(rig, "log");
        rig_clean(rig);
        assert_true(fixture_was_said(&rig->f, "store.uncleanable"));
        assert_int_equal(rig_files(rig, "log"), files);
        assert_int_equal(rig_files(rig, "log.cleaned"), 0);
        assert_int_equal(rig_stats(rig)->runs, 0);
        teardown(NULL);
    }
}

static enum mill_kerr read_error(int64_t offset)
{
    static struct mill_read_result got;
    struct mill_read read = {.offset = offset,
                             .bytes_max = 100,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 1};
    fixture_read(&rig->f, rig->partition, &read, &got);
    return got.error;
}

/* A reader of it is refused, and led past no other batch. */
static void test_reader_is_refused_a_misplaced_batch(void **state)
{
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(wrong_offsets); i++) {
        int64_t base = log_make(11 + i);
        base_set(base, 0, wrong_offsets[i]);
        rig_serve(rig);
        assert_int_equal(read_error(base), MILL_KERR_KAFKA_STORAGE_ERROR);
        assert_true(fixture_was_said(&rig->f, "store.read"));
        assert_int_equal(read_error(0), MILL_KERR_NONE);
        teardown(NULL);
    }
}

/* The last batch of a segment. ret: its position. */
static uint64_t last_batch(int64_t base, struct mill_batch *ret_batch)
{
    char path[200];
    uint64_t size;
    uint64_t last = 0;
    path_of(path, sizeof(path), base, "log");
    const uint8_t *bytes = disk_model_bytes(rig->disk, path, &size);
    assert_non_null(bytes);
    for (uint64_t at = 0; at < size; at += mill_batch_size_bytes(ret_batch)) {
        mill_batch_read(bytes + at, ret_batch);
        last = at;
    }
    return last;
}

/* Bytes behind the last whole batch of an older segment, too few for a header, are no legal gap. */
static void test_segment_cut_within_a_header_is_no_gap(void **state)
{
    MILL_UNUSED(state);
    int64_t base = log_make(21);
    struct mill_batch batch;
    uint64_t last = last_batch(base, &batch);
    char path[200];
    path_of(path, sizeof(path), base, "log");
    int file = rig->calls.open(rig->calls.context, path, MILL_FILE_WRITE);
    assert_int_equal(rig->calls.truncate(rig->calls.context, file, last + 20), 0);
    assert_int_equal(rig->calls.close(rig->calls.context, file), 0);
    rig_serve(rig);
    assert_int_equal(read_error(batch.base_offset), MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_true(fixture_was_said(&rig->f, "store.read"));
}

/* A start that walks the segment takes it for damage, though a gap would be legal; also where it is
 * the last one and nothing in the segment contradicts. */
static void test_walk_stops_at_a_misplaced_batch(void **state)
{
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(wrong_offsets); i++) {
        int64_t base = log_make(31 + i);
        struct mill_batch batch;
        base_set(base, last_batch(base, &batch), wrong_offsets[i]);
        char path[200];
        path_of(path, sizeof(path), base, "index");
        assert_int_equal(rig->calls.remove_file(rig->calls.context, path), 0);
        fixture_open(&rig->f);
        struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
        fixture_must(&rig->f, mill_log_open(rig->f.log, &id, "topic-a", 0, 3, &rig->settings,
                                            &rig->partition));
        fixture_settle(&rig->f);
        assert_int_equal(mill_partition_state_of(rig->partition), MILL_LOG_FAILED);
        assert_true(fixture_was_said(&rig->f, "store.damaged"));
        teardown(NULL);
    }
}

/* --- snapshots ------------------------------------------------------------------------------- */

enum {
    SNAPSHOT_ENTRY_AT = 10,
    SNAPSHOT_SUMMED_AT = 6,
};

/* Fields of a snapshot's first entry, and what cannot be in them. */
static const struct {
    uint32_t at;
    uint32_t bytes;
    int64_t value;
} impossible[] = {
    {0, 8, -5},             /* producer id */
    {14, 8, INT64_MIN},     /* last offset */
    {14, 8, INT64_MAX},     /* ... beyond the snapshot's */
    {22, 4, -1},            /* offsets of the last batch, less one */
    {22, 4, INT32_MAX},     /* ... more than there are */
    {38, 8, INT64_MAX},     /* first offset of an open transaction */
    {38, 8, (int64_t)1e12}, /* ... beyond the snapshot's */
};

/* Whatever its sum is: such a snapshot is not believed, the producer is known from its batches. */
static void test_snapshot_that_cannot_be_is_not_believed(void **state)
{
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(impossible); i++) {
        rig = rig_new(41 + i);
        rig->settings.compact = false;
        rig->settings.segment_bytes = 1 << 20;
        rig_serve(rig);
        rig->m->producer_id = 77;
        rig->m->epoch = 0;
        rig->m->sequence = 0;
        for (int k = 0; k < 5; k++) {
            rig_append_one(rig, 1, k);
        }
        int64_t end = mill_partition_end(rig->partition);
        fixture_close(&rig->f, true);
        uint8_t bytes[512];
        char path[200];
        uint64_t size;
        path_of(path, sizeof(path), end, "snapshot");
        const uint8_t *was = disk_model_bytes(rig->disk, path, &size);
        assert_non_null(was);
        assert_in_range(size, SNAPSHOT_ENTRY_AT + 46, sizeof(bytes));
        memcpy(bytes, was, size);
        uint8_t value[8];
        mill_store_be64(value, (uint64_t)impossible[i].value);
        memcpy(bytes + SNAPSHOT_ENTRY_AT + impossible[i].at, value + 8 - impossible[i].bytes,
               impossible[i].bytes);
        mill_store_be32(bytes + 2,
                        mill_crc32c(bytes + SNAPSHOT_SUMMED_AT, size - SNAPSHOT_SUMMED_AT));
        file_write(end, "snapshot", 0, bytes, size);
        rig_serve(rig);
        const struct store_producers *producers = &rig_stored(rig)->producers;
        assert_int_equal(producers->length, 1);
        assert_int_equal(producers->open_length, 0);
        assert_int_equal(producers->entries[0].producer_id, 77);
        assert_int_equal(producers->entries[0].count, 5);
        assert_int_equal(producers->entries[0].batches[4].last_offset, end - 1);
        teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_compaction_leaves_a_misplaced_batch_alone, teardown),
        cmocka_unit_test_teardown(test_reader_is_refused_a_misplaced_batch, teardown),
        cmocka_unit_test_teardown(test_segment_cut_within_a_header_is_no_gap, teardown),
        cmocka_unit_test_teardown(test_walk_stops_at_a_misplaced_batch, teardown),
        cmocka_unit_test_teardown(test_snapshot_that_cannot_be_is_not_believed, teardown),
    };
    return cmocka_run_group_tests_name("misplaced", tests, NULL, NULL);
}
