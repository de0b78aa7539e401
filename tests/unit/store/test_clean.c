/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: compaction keeps the last record of every key and all that is not due, in every codec;
 * tombstones, sequences, offsets and times stay as long as they must. Method: log and store over
 * the disk model on virtual time, against a map of what was appended (clean_rig.h). What fails on
 * the way: test_clean_faults.c. */
#include "tests/unit/store/clean_rig.h"

#include "tests/unit/log/txn_maker.h"

static struct rig *rig;

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

static void test_last_of_each_key_stays(void **state)
{
    MILL_UNUSED(state);
    start(1);
    rig_append_rounds(rig, 60);
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
    assert_in_range(stats->last_keys, 1, RIG_KEYS);
    assert_in_range(stats->last_keys_max, stats->last_keys, UINT64_MAX);
    assert_int_equal(stats->last_bytes_out, stats->bytes_written);
    assert_in_range(stats->last_bytes_in, stats->last_bytes_out + 1, stats->bytes_read);
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
    rig_append_rounds(rig, 30);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 0); /* too young */
    fixture_step(&rig->f, 3600000);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    int64_t clean = rig_stored(rig)->clean_offset;
    rig_append_rounds(rig, 4); /* not dirty enough, whatever the age */
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
    rig_append_rounds(rig, 1);
    assert_true(rig_stored(rig)->segments[rig_stored(rig)->segments_count - 1].base_offset > base);
    /* And what is young is not touched, what is older beside it is. */
    rig->settings.max_compaction_lag_ms = INT64_MAX;
    rig->settings.min_cleanable_ppm = 0;
    mill_log_update(rig->partition, 3, &rig->settings);
    rig_append_rounds(rig, 20);
    fixture_step(&rig->f, 3700000);
    int64_t young = rig->end_offset;
    rig_append_rounds(rig, 20);
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
    rig_append_rounds(rig, 10);
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
    rig_append_rounds(rig, 5);
    m->timestamp = rig->f.now.wall_ms;
    int64_t first = rig->end_offset;
    assert_int_equal(txn_write(&rig->f, rig->partition, m, 70, 0, 0, 3, true).base_offset, first);
    rig->end_offset += 3;
    rig_append_rounds(rig, 40);
    rig_clean(rig);
    assert_true(rig_stored(rig)->clean_offset <= first);
    txn_end(&rig->f, rig->partition, 70, 0, false, 1);
    rig->end_offset++;
    rig_append_rounds(rig, 40);
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

static void snapshots_remove(void)
{
    for (int64_t base = 0; base <= rig->end_offset; base++) {
        char path[200];
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.snapshot", (long long)base);
        int r = rig->calls.remove_file(rig->calls.context, path);
        assert_true(r == 0 || r == -ENOENT);
    }
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
    rig_append_rounds(rig, 40);
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
            snapshots_remove(); /* the batches tell */
            rig_restart(rig, true);
        }
    }
}

/* The last batch at or after an offset, uncommitted. */
static struct mill_batch batch_from(int64_t offset)
{
    static struct mill_read_result got;
    struct mill_batch batch;
    struct mill_read read = {.offset = offset,
                             .bytes_max = 1,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 1};
    fixture_read(&rig->f, rig->partition, &read, &got);
    assert_int_equal(got.error, 0);
    mill_batch_read(mill_ref_data(mill_arena_base(rig->f.arena), &got.refs[0]), &batch);
    return batch;
}

/* A marker that alone tells a producer's epoch stays, empty, and fences older ones after a start.
 */
static void test_last_marker_without_data_stays(void **state)
{
    MILL_UNUSED(state);
    struct maker *m = maker_new();
    rig = rig_new(12);
    rig->settings.delete_retention_ms = 1000;
    rig_serve(rig);
    rig_append_rounds(rig, 5);
    m->timestamp = rig->f.now.wall_ms;
    txn_write(&rig->f, rig->partition, m, 70, 0, 0, 1, true);
    int64_t first = rig->end_offset;
    txn_end(&rig->f, rig->partition, 70, 0, false, 1);
    int64_t last = txn_end(&rig->f, rig->partition, 70, 3, false, 1).base_offset;
    assert_int_equal(last, first + 2);
    rig->end_offset += 3;
    for (uint32_t i = 0; i < 3; i++) {
        rig_append_rounds(rig, 40);
        rig_clean(rig);
        fixture_step(&rig->f, 60000);
    }
    assert_true(rig_stored(rig)->clean_offset > last);
    for (uint32_t pass = 0; pass < 3; pass++) {
        rig_evict(rig);
        struct mill_batch batch = batch_from(first);
        assert_int_equal(batch.base_offset, last); /* what lay before it is gone */
        assert_int_equal(batch.records_count, 0);
        assert_int_equal(batch.producer_epoch, 3);
        assert_true((batch.attributes & MILL_BATCH_CONTROL) != 0);
        assert_int_equal(txn_write(&rig->f, rig->partition, m, 70, 2, 0, 1, true).error,
                         MILL_KERR_INVALID_PRODUCER_EPOCH);
        if (pass == 1) {
            snapshots_remove();
        }
        rig_restart(rig, true);
    }
    free(m);
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
    rig_append_rounds(rig, 60);
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
    rig_append_rounds(rig, 60);
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
    assert_in_range(rig_stats(rig)->last_ns, RIG_BACKOFF_MS * MILL_NS_PER_MS, UINT64_MAX);
}

static void test_throttled(void **state)
{
    MILL_UNUSED(state);
    rig = rig_new(7);
    rig->f.clean_rate = 10000;
    rig_serve(rig);
    rig_append_rounds(rig, 60);
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

/* No more compactions at once than there are slots, and who waits longer comes first. */
static void test_slots_are_shared(void **state)
{
    MILL_UNUSED(state);
    static struct mill_clean_slots slots;
    slots = (struct mill_clean_slots){0};
    rig = rig_new(14);
    rig->f.clean_slots = &slots;
    rig->f.clean_rate = 100000; /* so that one is seen under way */
    rig_serve(rig);
    rig_append_rounds(rig, 40);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 0);
    assert_int_equal(slots.waiting, 1);
    slots.free = 1;
    fixture_step(&rig->f, 100);
    assert_int_equal(slots.free, 0);
    assert_int_equal(slots.waiting, 0);
    rig_restart(rig, true); /* in the middle */
    assert_int_equal(slots.free, 1);
    slots.waiting = 1; /* another store */
    rig_clean(rig);
    assert_int_equal(slots.free, 1);
    assert_int_equal(slots.waiting, 2);
    slots.free = 0; /* its turn */
    slots.waiting = 1;
    fixture_step(&rig->f, 100);
    assert_int_equal(rig_stats(rig)->runs, 0);
    slots.free = 1;
    for (uint32_t i = 0; i < 10000 && rig_stats(rig)->runs == 0; i++) {
        fixture_step(&rig->f, 100);
    }
    fixture_step(&rig->f, RIG_BACKOFF_MS);
    assert_int_equal(rig_stats(rig)->runs, 1);
    assert_int_equal(slots.free, 1);
    assert_int_equal(slots.waiting, 0);
}

/* Files of another broker may hold nothing up to the log's end: a reader there waits for what
 * comes, without a turn of work, and gets it. */
static void test_nothing_up_to_the_end(void **state)
{
    MILL_UNUSED(state);
    start(13);
    rig_append_rounds(rig, 40);
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

/* compact,delete: old segments go by age, what is left is compacted. */
static void test_compact_and_delete(void **state)
{
    MILL_UNUSED(state);
    start(10);
    rig->settings.delete_old = true;
    rig->settings.retention_ms = 3600000;
    mill_log_update(rig->partition, 3, &rig->settings);
    rig_append_rounds(rig, 40);
    rig_clean(rig);
    assert_int_equal(rig_stats(rig)->runs, 1);
    rig->settings.min_cleanable_ppm = 1000000; /* what is new stays apart from what is old */
    mill_log_update(rig->partition, 3, &rig->settings);
    fixture_step(&rig->f, 3500000);
    rig_append_rounds(rig, 40);
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
        cmocka_unit_test_teardown(test_last_marker_without_data_stays, teardown),
        cmocka_unit_test_teardown(test_small_map_takes_rounds, teardown),
        cmocka_unit_test_teardown(test_altered_rate_holds_at_once, teardown),
        cmocka_unit_test_teardown(test_throttled, teardown),
        cmocka_unit_test_teardown(test_slots_are_shared, teardown),
        cmocka_unit_test_teardown(test_nothing_up_to_the_end, teardown),
        cmocka_unit_test_teardown(test_compact_and_delete, teardown),
        cmocka_unit_test_teardown(test_model, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
