/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: compaction keeps the last record of every key and all that is not due, in every codec and
 * through every kill; tombstones, sequences, offsets and times stay as long as they must. Method:
 * log and store over the disk model on virtual time, against a map of what was appended
 * (clean_rig.h). */
#include "tests/unit/store/clean_rig.h"

#include "tests/unit/log/txn_maker.h"

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

/* Several segments of one key after the other. */
static void append_rounds(uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        for (int32_t key = 0; key < RIG_KEYS; key++) {
            rig_append_one(rig, key, (int32_t)(i * 100) + key);
        }
        fixture_settle(&rig->f);
    }
}

static void start(uint64_t seed)
{
    rig = rig_new(seed);
    rig_serve(rig);
}

static void test_last_of_each_key_stays(void **state)
{
    MILL_UNUSED(state);
    start(1);
    append_rounds(60);
    uint32_t files = rig_files(rig, "log");
    assert_true(files > 8);
    rig->settings.segment_bytes = 1 << 20; /* what is left of many fits into one */
    mill_log_update(rig->partition, 3, &rig->settings);
    rig_clean(rig);
    rig_evict(rig);
    const struct store_partition *stored = rig_stored(rig);
    int64_t active = stored->segments[stored->segments_count - 1].base_offset;
    assert_int_equal(stored->clean_offset, active);
    rig_check(rig, active);
    rig_check_once(rig, active);
    assert_int_equal(rig_files(rig, "log"), 2);
    assert_int_equal(rig_files(rig, "log.cleaned") + rig_files(rig, "log.swap"), 0);
    assert_int_equal(rig->read_end, rig->end_offset);
    const struct mill_log_clean_stats *stats = rig_stats(rig);
    assert_int_equal(stats->runs, 1);
    assert_int_equal(stats->records_removed + rig->there_count, rig->end_offset);
    /* Reading from any offset leads to the next record that is left. */
    for (int64_t offset = 0; offset < rig->end_offset; offset += 7) {
        static struct mill_read_result got;
        struct mill_read read = {.offset = offset,
                                 .bytes_max = 1,
                                 .first_whole = true,
                                 .current_epoch = -1,
                                 .last_epoch = -1,
                                 .refs_max = 1};
        rig_evict(rig);
        uint64_t cold_reads = mill_log_stats(rig->f.log)->cold_reads;
        fixture_read(&rig->f, rig->partition, &read, &got);
        assert_int_equal(got.refs_count, 1);
        assert_int_equal(mill_log_stats(rig->f.log)->cold_reads, cold_reads + 1);
        struct mill_batch batch;
        mill_batch_read(mill_ref_data(mill_arena_base(rig->f.arena), &got.refs[0]), &batch);
        assert_true(mill_batch_last_offset(&batch) >= offset);
        for (int64_t between = offset; between < batch.base_offset; between++) {
            assert_false(rig->there[between]);
        }
    }
    rig_restart(rig, false);
    assert_int_equal(rig_stored(rig)->clean_offset, active); /* by its checkpoint */
    rig_check(rig, active);
}

static void test_ratio_and_lags(void **state)
{
    MILL_UNUSED(state);
    start(2);
    rig->settings.min_cleanable_ppm = 900000;
    rig->settings.min_compaction_lag_ms = 3600000;
    mill_log_update(rig->partition, 3, &rig->settings);
    append_rounds(30);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 0); /* too young */
    fixture_step(&rig->f, 3600000);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    int64_t clean = rig_stored(rig)->clean_offset;
    append_rounds(4); /* not dirty enough, whatever the age */
    fixture_step(&rig->f, 3600000);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    rig->settings.max_compaction_lag_ms = 3600000;
    mill_log_update(rig->partition, 3, &rig->settings);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 2); /* too old */
    assert_true(rig_stored(rig)->clean_offset > clean);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
    /* The lag ends a segment, too: the next append begins another. */
    int64_t base = rig_stored(rig)->segments[rig_stored(rig)->segments_count - 1].base_offset;
    fixture_step(&rig->f, 3700000);
    append_rounds(1);
    assert_true(rig_stored(rig)->segments[rig_stored(rig)->segments_count - 1].base_offset > base);
    /* And what is young is not touched, what is older beside it is. */
    rig->settings.max_compaction_lag_ms = INT64_MAX;
    rig->settings.min_cleanable_ppm = 0;
    mill_log_update(rig->partition, 3, &rig->settings);
    append_rounds(20);
    fixture_step(&rig->f, 3700000);
    int64_t young = rig->end_offset;
    append_rounds(20);
    rig_clean(rig);
    clean = rig_stored(rig)->clean_offset;
    assert_true(clean <= young);
    rig_evict(rig);
    rig_check(rig, clean);
}

static void test_tombstones_live_until_their_horizon(void **state)
{
    MILL_UNUSED(state);
    start(3);
    append_rounds(10);
    int64_t tombstone = rig->end_offset;
    struct rig_entry pair[2] = {{3, -1}, {4, 44}};
    rig_append(rig, pair, 2, MILL_CODEC_ZSTD);
    for (int i = 0; i < 200; i++) {
        rig_append_one(rig, 5, i);
    }
    rig_clean(rig);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
    assert_true(rig->there[tombstone]);
    assert_int_equal(rig->horizons, 1);
    /* Compacted again before the horizon: still there, and no later. */
    fixture_step(&rig->f, 86400000 - 100000);
    for (int i = 0; i < 200; i++) {
        rig_append_one(rig, 5, i);
    }
    rig_clean(rig);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
    assert_true(rig->there[tombstone]);
    fixture_step(&rig->f, 200000);
    for (int i = 0; i < 200; i++) {
        rig_append_one(rig, 5, i);
    }
    rig_clean(rig);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
    assert_false(rig->there[tombstone]);
    assert_true(rig->there[tombstone + 1]);
}

/* The batch with a producer's last sequence stays, empty; a retry of it is known after a restart.
 */
/* What lies above an open transaction is not compacted; of an aborted one nothing stays, and a
 * read_committed reader is told of it as long as something does. */
static void test_open_transaction_holds_back(void **state)
{
    MILL_UNUSED(state);
    static struct mill_read_result got;
    static struct txn_read seen;
    struct maker *m = maker_new();
    start(11);
    append_rounds(5);
    m->timestamp = rig->f.now.wall_ms;
    int64_t first = rig->end_offset;
    assert_int_equal(txn_write(&rig->f, rig->partition, m, 70, 0, 0, 3, true).base_offset, first);
    rig->end_offset += 3;
    append_rounds(40);
    rig_clean(rig);
    assert_true(rig_stored(rig)->clean_offset <= first);
    txn_end(&rig->f, rig->partition, 70, 0, false, 1);
    rig->end_offset++;
    append_rounds(40);
    rig_clean(rig);
    assert_true(rig_stored(rig)->clean_offset > rig->end_offset / 2);
    rig_evict(rig);
    for (int64_t offset = first; offset < first + 3;) {
        txn_read(&rig->f, rig->partition, offset, 1, &got, &seen);
        assert_int_equal(got.error, 0);
        struct mill_batch batch;
        mill_batch_read(mill_ref_data(mill_arena_base(rig->f.arena), &got.refs[0]), &batch);
        assert_true(batch.producer_id != 70 || batch.records_count == 0);
        assert_true(batch.producer_id != 70 || seen.aborted_count == 1);
        offset = seen.data_end;
    }
    assert_int_equal(mill_partition_stable(rig->partition), rig->end_offset);
    free(m);
}

static void test_sequences_survive(void **state)
{
    MILL_UNUSED(state);
    start(4);
    rig->m->producer_id = 77;
    rig->m->epoch = 2;
    rig->m->sequence = INT32_MAX - 20; /* wraps on the way */
    for (int i = 0; i < 30; i++) {
        rig_append_one(rig, 1, i);
    }
    int64_t last = rig->end_offset - 1;
    static struct maker retry;
    retry = *rig->m;
    rig->m->producer_id = -1;
    rig->m->epoch = -1;
    rig->m->sequence = -1;
    append_rounds(40);
    rig_clean(rig);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
    assert_false(rig->there[last]);
    assert_true(rig->empty_batches >= 1);
    for (uint32_t pass = 0; pass < 3; pass++) {
        *rig->m = retry;
        struct mill_append_result result = rig_append_made(rig);
        assert_int_equal(result.error, MILL_KERR_NONE);
        assert_true(result.duplicate);
        assert_int_equal(result.base_offset, last);
        if (pass == 0) {
            rig_restart(rig, true);
        } else if (pass == 1) {
            /* Without a snapshot the batches tell. */
            struct store_partition *stored = rig_stored(rig);
            char path[200];
            snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.snapshot",
                     (long long)stored->snapshot_offset);
            for (int64_t base = 0; base <= rig->end_offset; base++) {
                snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.snapshot",
                         (long long)base);
                int r = rig->calls.remove_file(rig->calls.context, path);
                assert_true(r == 0 || r == -ENOENT);
            }
            rig_restart(rig, true);
        }
    }
}

/* A key dirty from many sides fits into a map of few slots by several rounds. */
static void test_small_map_takes_rounds(void **state)
{
    MILL_UNUSED(state);
    rig = rig_new(5);
    rig->f.clean_map_bytes = 64 * 24; /* 57 keys */
    rig_serve(rig);
    for (int32_t i = 0; i < 400; i++) {
        struct rig_entry entry = {i % RIG_KEYS, i};
        rig_append(rig, &entry, 1, MILL_CODEC_LZ4);
    }
    rig_clean(rig);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
    rig_check_once(rig, rig_stored(rig)->clean_offset);
    rig_end(rig);
    /* One batch of more keys than that: told, given up, and served as it is. */
    rig = rig_new(6);
    rig->f.clean_map_bytes = 24;
    rig_serve(rig);
    append_rounds(60);
    rig_clean(rig);
    assert_true(rig_stored(rig)->uncleanable);
    assert_true(fixture_was_said(&rig->f, "store.uncleanable"));
    rig_evict(rig);
    rig_check(rig, 0);
}

/* A rate that is altered holds at once, however long the old one would have waited. */
static void test_altered_rate_holds_at_once(void **state)
{
    MILL_UNUSED(state);
    static struct mill_store_tuning tuning; /* outlives the store */
    rig = rig_new(7);
    rig->f.clean_rate = 1;
    atomic_store(&tuning.producer_expiration_ms, rig->f.limits.producer_expiration_ms);
    atomic_store(&tuning.clean_map_bytes, rig->f.clean_map_bytes);
    atomic_store(&tuning.clean_bytes_per_second, rig->f.clean_rate);
    atomic_store(&tuning.clean_backoff_ms, RIG_BACKOFF_MS);
    rig->f.tuning = &tuning;
    rig_serve(rig);
    append_rounds(60);
    fixture_settle(&rig->f);
    for (uint32_t i = 0; i < 100; i++) {
        fixture_step(&rig->f, RIG_BACKOFF_MS / 10);
    }
    assert_int_equal(rig_stats(rig)->runs, 0);
    atomic_store(&tuning.clean_bytes_per_second, 0);
    for (uint32_t i = 0; i < 2000 && rig_stats(rig)->runs == 0; i++) {
        fixture_step(&rig->f, 1);
    }
    assert_int_equal(rig_stats(rig)->runs, 1);
}

static void test_throttled(void **state)
{
    MILL_UNUSED(state);
    rig = rig_new(7);
    rig->f.clean_rate = 10000;
    rig_serve(rig);
    append_rounds(60);
    fixture_settle(&rig->f);
    uint64_t begun = rig->f.now.mono_ns;
    fixture_step(&rig->f, RIG_BACKOFF_MS);
    for (uint32_t i = 0; i < 10000 && rig_stats(rig)->runs == 0; i++) {
        fixture_step(&rig->f, 10);
    }
    const struct mill_log_clean_stats *stats = rig_stats(rig);
    assert_int_equal(stats->runs, 1);
    uint64_t bytes = stats->bytes_read + stats->bytes_written;
    uint64_t ms = (rig->f.now.mono_ns - begun) / MILL_NS_PER_MS - RIG_BACKOFF_MS;
    assert_true(bytes > 50000);
    /* The last step's pause is not waited for. */
    assert_in_range(ms, bytes / 10 * 5 / 10, bytes / 10 * 13 / 10);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
}

/* Files of another broker may hold nothing up to the log's end: a reader there waits for what
 * comes, without a turn of work, and gets it. */
static void test_nothing_up_to_the_end(void **state)
{
    MILL_UNUSED(state);
    start(13);
    append_rounds(40);
    rig_clean(rig);
    fixture_close(&rig->f, true);
    /* The active segment empty, and no batch in the one before. */
    int64_t base = -1;
    for (int64_t at = 0; at <= rig->end_offset; at++) {
        char path[200];
        uint64_t size;
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.log", (long long)at);
        base = disk_model_bytes(rig->disk, path, &size) ? at : base;
    }
    for (int pass = 0; pass < 2; pass++) {
        char path[200];
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.log",
                 (long long)(pass == 0 ? base : rig->end_offset));
        int file = rig->calls.open(rig->calls.context, path,
                                   MILL_FILE_READ | MILL_FILE_WRITE | MILL_FILE_CREATE);
        assert_true(file >= 0);
        assert_int_equal(rig->calls.truncate(rig->calls.context, file, 0), 0);
        assert_int_equal(rig->calls.close(rig->calls.context, file), 0);
        static const char *const kinds[] = {"index", "timeindex"};
        for (int kind = 0; kind < 2; kind++) {
            snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.%s",
                     (long long)(pass == 0 ? base : rig->end_offset), kinds[kind]);
            int r = rig->calls.remove_file(rig->calls.context, path);
            assert_true(r == 0 || r == -ENOENT);
        }
    }
    rig_serve(rig);
    assert_int_equal(mill_partition_end(rig->partition), rig->end_offset);
    rig->settings.compact = false;
    mill_log_update(rig->partition, 3, &rig->settings);
    static struct mill_read_result got;
    struct mill_read read = {.offset = base + 3,
                             .bytes_max = 1000,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 1};
    fixture_read(&rig->f, rig->partition, &read, &got);
    assert_int_equal(got.error, MILL_KERR_NONE);
    assert_int_equal(got.refs_count, 0);
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    mill_log_watch_data(rig->partition, &watch, base + 3, 1);
    fixture_settle(&rig->f);
    assert_false(fired);
    rig_append_one(rig, 1, 99);
    fixture_settle(&rig->f);
    assert_true(fired);
    fixture_read(&rig->f, rig->partition, &read, &got);
    assert_int_equal(got.refs_count, 1);
}

/* Compaction puts a segment in place of one that a helper reads: the helper's file is the old one
 * until it is done. */
static void test_swap_leaves_helpers_their_files(void **state)
{
    MILL_UNUSED(state);
    uint8_t before[MILL_BATCH_HEADER_BYTES];
    uint8_t after[MILL_BATCH_HEADER_BYTES];
    start(12);
    append_rounds(30);
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
    append_rounds(30);
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
    append_rounds(30);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    append_rounds(30);
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
    append_rounds(30);
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
        append_rounds(60);
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

/* compact,delete: old segments go by age, what is left is compacted. */
static void test_compact_and_delete(void **state)
{
    MILL_UNUSED(state);
    start(10);
    rig->settings.delete_old = true;
    rig->settings.retention_ms = 3600000;
    mill_log_update(rig->partition, 3, &rig->settings);
    append_rounds(40);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    rig->settings.min_cleanable_ppm = 1000000; /* what is new stays apart from what is old */
    mill_log_update(rig->partition, 3, &rig->settings);
    fixture_step(&rig->f, 3500000);
    append_rounds(40);
    fixture_settle(&rig->f);
    fixture_step(&rig->f, 400000); /* more than log.retention.check.interval.ms */
    fixture_settle(&rig->f);
    assert_true(mill_partition_start(rig->partition) > 0);
    rig->settings.min_cleanable_ppm = 0;
    mill_log_update(rig->partition, 3, &rig->settings);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 2);
    rig_evict(rig);
    rig_check(rig, rig_stored(rig)->clean_offset);
    rig_restart(rig, true);
    rig_check(rig, rig_active(rig));
}

/* The disk is full while a segment is written: given up without harm, done when there is space. */
static void test_full_disk_waits(void **state)
{
    MILL_UNUSED(state);
    start(11);
    append_rounds(60);
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
    append_rounds(20);
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
        append_rounds(40);
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
        append_rounds(40);
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
    append_rounds(60);
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

/* Random records, compactions, kills, losses of memory and clean ends, against the map. */
static void test_model(void **state)
{
    MILL_UNUSED(state);
    for (uint64_t seed = 1; seed <= 8; seed++) {
        rig = rig_new(seed * 7919);
        rig->f.clean_map_bytes = seed % 3 == 0 ? 64 * 24 : 1 << 20;
        rig->settings.delete_retention_ms = seed % 2 == 0 ? 60000 : 86400000;
        rig_serve(rig);
        int64_t clean_most = 0; /* at or above, nothing can have been taken away */
        for (uint32_t step = 0; step < 250; step++) {
            switch (mill_random_below(&rig->random, 16)) {
            case 0:
                rig_clean(rig);
                break;
            case 1:
                clean_most = MILL_MAX(clean_most, rig_active(rig));
                rig_restart(rig, true);
                break;
            case 2:
                if (mill_random_below(&rig->random, 4) == 0) {
                    rig_restart(rig, false);
                }
                break;
            case 3:
                rig_evict(rig);
                break;
            case 4: /* killed in the middle of a compaction, or of what else there is to do */
                fixture_step(&rig->f, RIG_BACKOFF_MS);
                rig->calls_left = mill_random_below(&rig->random, 120);
                for (uint32_t i = 0; i < 20; i++) {
                    fixture_step(&rig->f, 0);
                }
                clean_most = MILL_MAX(clean_most, rig_active(rig));
                fixture_close(&rig->f, false);
                rig->calls_left = UINT64_MAX;
                rig_serve(rig);
                break;
            case 5:
                fixture_settle(&rig->f);
                clean_most = MILL_MAX(clean_most, rig_stored(rig)->clean_offset);
                rig_check(rig, clean_most);
                break;
            default:
                rig_append_random(rig);
                fixture_step(&rig->f, mill_random_below(&rig->random, 3000));
                break;
            }
        }
        rig_clean(rig);
        rig_evict(rig);
        int64_t clean = rig_stored(rig)->clean_offset;
        rig_check(rig, clean);
        rig_check_once(rig, clean);
        assert_int_equal(rig->read_end, rig->end_offset);
        assert_true(clean > 0 && rig->there_count < rig->end_offset);
        rig_end(rig);
        rig = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_last_of_each_key_stays, teardown),
        cmocka_unit_test_teardown(test_ratio_and_lags, teardown),
        cmocka_unit_test_teardown(test_tombstones_live_until_their_horizon, teardown),
        cmocka_unit_test_teardown(test_open_transaction_holds_back, teardown),
        cmocka_unit_test_teardown(test_sequences_survive, teardown),
        cmocka_unit_test_teardown(test_small_map_takes_rounds, teardown),
        cmocka_unit_test_teardown(test_altered_rate_holds_at_once, teardown),
        cmocka_unit_test_teardown(test_throttled, teardown),
        cmocka_unit_test_teardown(test_nothing_up_to_the_end, teardown),
        cmocka_unit_test_teardown(test_swap_leaves_helpers_their_files, teardown),
        cmocka_unit_test_teardown(test_damage_is_not_copied, teardown),
        cmocka_unit_test_teardown(test_damage_behind_good_batches, teardown),
        cmocka_unit_test_teardown(test_offset_outside_its_batch, teardown),
        cmocka_unit_test_teardown(test_stopped_cleanly, teardown),
        cmocka_unit_test_teardown(test_compact_and_delete, teardown),
        cmocka_unit_test_teardown(test_full_disk_waits, teardown),
        cmocka_unit_test_teardown(test_failed_copy_waits, teardown),
        cmocka_unit_test_teardown(test_half_a_swap_fences, teardown),
        cmocka_unit_test_teardown(test_swap_not_begun_is_taken_back, teardown),
        cmocka_unit_test_teardown(test_stale_swap_is_removed, teardown),
        cmocka_unit_test_teardown(test_killed_at_every_call, teardown),
        cmocka_unit_test_teardown(test_power_cut_at_every_call, teardown),
        cmocka_unit_test_teardown(test_model, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
