/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whichever allocation fails, a log and its store answer or say so, keep their directories in
 * service and lose nothing that was acknowledged; a start that cannot be fails with -ENOMEM, and
 * the next one finds all as it was. Method: a scenario is run again and again, and each time
 * another one of its allocations fails (alloc_fail.h), alone, or with all that follow. By default
 * every one up to a number and a share of the others; all of them in full. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/alloc_fail.h"
#include "tests/unit/log/txn_maker.h"

enum {
    BATCHES = 24,
    ACKED_MAX = 256,
    TOPICS = 3,
    CALLS_MAX = 100000,
    READS_MAX = 400,
    RUNS_MIN = 40,
};

/* What an append answered well. */
struct acked {
    int64_t base_offset;
    uint32_t crc;
    uint32_t size_bytes;
};

static struct fixture f;
static struct maker *m;
static struct mill_read_result got;
static struct acked acked[TOPICS][ACKED_MAX];
static uint32_t acked_count[TOPICS];

/* --- a scenario that takes no for an answer -----------------------------------------------------
 */

static const struct mill_uuid ids[TOPICS] = {{{1, 1}}, {{2, 2}}, {{3, 3}}};
static const char *const names[TOPICS] = {"plain", "keyed", "gone"};

static struct mill_log_settings settings_of(uint32_t topic)
{
    struct mill_log_settings settings = fixture_settings();
    settings.segment_bytes = 3000;
    settings.index_interval_bytes = 500;
    settings.compact = topic == 1;
    return settings;
}

/* ret: NULL it is not served. */
static struct mill_partition *open_topic(uint32_t topic)
{
    struct mill_log_settings settings = settings_of(topic);
    struct mill_partition *partition = NULL;
    fixture_must(&f, mill_log_open(f.log, &ids[topic], names[topic], 0, 3, &settings, &partition));
    fixture_settle(&f);
    assert_int_not_equal(mill_partition_state_of(partition), MILL_LOG_OPENING);
    return mill_partition_state_of(partition) == MILL_LOG_SERVING ? partition : NULL;
}

static void note(uint32_t topic, const struct mill_append_result *result)
{
    assert_true(acked_count[topic] < ACKED_MAX);
    acked[topic][acked_count[topic]++] = (struct acked){
        .base_offset = result->base_offset,
        .crc = mill_load_be32(m->bytes + MILL_BATCH_CRC_AT),
        .size_bytes = m->size,
    };
}

/* While the store could not write for want of memory appends are refused, as on a full disk. */
static bool is_short(const struct mill_append_result *result)
{
    return result->error == MILL_KERR_KAFKA_STORAGE_ERROR;
}

static void append(struct mill_partition *partition, uint32_t topic, int32_t number)
{
    struct mill_append_result result = {.error = MILL_KERR_NONE};
    m->producer_id = topic == 0 ? 40 + number % 3 : -1;
    m->epoch = topic == 0 ? 0 : -1;
    m->sequence = topic == 0 ? number / 3 * 2 : -1;
    m->attributes = 0;
    m->fill = (uint8_t)number;
    m->value_bytes = 150;
    maker_build(m, 2);
    int r = maker_append(&f, partition, m, &result);
    for (uint32_t i = 0; (r == -EAGAIN || is_short(&result)) && i < 20; i++) {
        fixture_settle(&f);
        fixture_step(&f, is_short(&result) ? 600 : 0); /* the store tries again */
        r = maker_append(&f, partition, m, &result);
    }
    assert_int_equal(r, 0);
    if (alloc_fail.for_good && result.error != MILL_KERR_NONE) {
        return; /* and what follows it is out of order */
    }
    assert_int_equal(result.error, MILL_KERR_NONE);
    note(topic, &result);
}

/* Reads all of it; what fails for want of memory must go well when asked once more. */
static void read_all(struct mill_partition *partition, bool strict)
{
    int64_t offset = mill_partition_start(partition);
    for (uint32_t i = 0; offset < mill_partition_end(partition); i++) {
        bool fired = false;
        struct mill_log_watch watch = {.user = &fired};
        struct mill_read read = {.offset = offset,
                                 .bytes_max = 2000,
                                 .first_whole = true,
                                 .current_epoch = -1,
                                 .last_epoch = -1,
                                 .refs_max = 4};
        assert_in_range(i, 0, READS_MAX); /* an answer must come in the end */
        if (mill_log_read(partition, &read, &watch, &got) != 0) {
            fixture_settle(&f);
            continue;
        }
        if (got.error != MILL_KERR_NONE) {
            assert_int_equal(got.error, MILL_KERR_KAFKA_STORAGE_ERROR);
            if (strict || alloc_fail.for_good) {
                return;
            }
            continue;
        }
        int64_t before = offset;
        for (uint32_t k = 0; k < got.refs_count; k++) {
            const uint8_t *data = mill_ref_data(mill_arena_base(f.arena), &got.refs[k]);
            for (uint32_t at = 0; at < got.refs[k].size_bytes;) {
                struct mill_batch batch;
                mill_batch_read(data + at, &batch);
                at += mill_batch_size_bytes(&batch);
                offset = mill_batch_last_offset(&batch) + 1;
            }
        }
        if (offset == before) {
            return; /* compaction left nothing up to the end */
        }
    }
}

static void look_up_time(struct mill_partition *partition)
{
    struct mill_time_result result;
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    for (uint32_t i = 0; i < 20; i++) {
        if (mill_log_find_time(partition, m->timestamp, false, &watch, &result) == 0) {
            return;
        }
        fixture_settle(&f);
    }
    fail_msg("no answer to a look-up");
}

static void transactions(struct mill_partition *partition)
{
    for (int64_t id = 70; id < 74; id++) {
        struct mill_append_result result = txn_write(&f, partition, m, id, 0, 0, 1, true);
        for (uint32_t i = 0; is_short(&result) && i < 20; i++) {
            fixture_step(&f, 600);
            result = txn_write(&f, partition, m, id, 0, 0, 1, true);
        }
        if (alloc_fail.for_good && result.error != MILL_KERR_NONE) {
            return;
        }
        assert_int_equal(result.error, MILL_KERR_NONE);
        note(0, &result);
        if (id < 73) { /* the last stays open */
            result = txn_end(&f, partition, id, 0, id % 2 == 0, 1);
            for (uint32_t i = 0; is_short(&result) && i < 20; i++) {
                fixture_step(&f, 600);
                result = txn_end(&f, partition, id, 0, id % 2 == 0, 1);
            }
            assert_true(result.error == MILL_KERR_NONE || alloc_fail.for_good);
        }
        fixture_settle(&f);
    }
}

static void forget_memory(void)
{
    fixture_settle(&f);
    fixture_step(&f, 4000);
    fixture_step(&f, 4000);
    fixture_settle(&f);
}

static void scenario(void)
{
    struct mill_partition *topics[TOPICS];
    for (uint32_t topic = 0; topic < TOPICS; topic++) {
        topics[topic] = open_topic(topic);
    }
    for (int32_t i = 0; i < BATCHES; i++) {
        for (uint32_t topic = 0; topic < TOPICS; topic++) {
            if (topics[topic]) {
                append(topics[topic], topic, i);
            }
        }
        if (i % 4 == 3) {
            fixture_settle(&f);
        }
    }
    if (topics[0]) {
        transactions(topics[0]);
        forget_memory();
        read_all(topics[0], false);
        look_up_time(topics[0]);
    }
    fixture_step(&f, 20000); /* compaction */
    fixture_settle(&f);
    fixture_step(&f, 20000);
    fixture_settle(&f);
    if (topics[1]) {
        read_all(topics[1], false);
    }
    if (topics[0]) {
        bool fired = false;
        struct mill_log_watch watch = {.user = &fired};
        int r = mill_log_trim(topics[0], 9, &watch);
        fixture_settle(&f);
        assert_true(r == 0 || r == -EINPROGRESS);
    }
    if (topics[2]) {
        mill_log_delete(topics[2]);
        fixture_settle(&f);
        assert_true(f.gone > 0);
    }
    fixture_step(&f, 61000); /* checkpoints */
    fixture_settle(&f);
}

/* --- what is checked --------------------------------------------------------------------------
 */

/* Every acknowledged batch that nothing took away is there, as it was sent. */
static void check_acked(struct mill_partition *partition, uint32_t topic)
{
    int64_t start = mill_partition_start(partition);
    uint32_t from = topic == 1 ? acked_count[topic] - MILL_MIN(acked_count[topic], 1u) : 0;
    for (uint32_t i = from; i < acked_count[topic]; i++) {
        const struct acked *one = &acked[topic][i];
        if (one->base_offset + 1 < start) {
            continue;
        }
        struct mill_read read = {.offset = one->base_offset,
                                 .bytes_max = 1,
                                 .first_whole = true,
                                 .current_epoch = -1,
                                 .last_epoch = -1,
                                 .refs_max = 1};
        read.offset = MILL_MAX(read.offset, start);
        fixture_read(&f, partition, &read, &got);
        assert_int_equal(got.error, MILL_KERR_NONE);
        assert_int_equal(got.refs_count, 1);
        const uint8_t *data = mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
        assert_int_equal(mill_load_be64(data), one->base_offset);
        if (topic != 1) {
            assert_int_equal(mill_load_be32(data + MILL_BATCH_CRC_AT), one->crc);
            assert_int_equal(got.bytes, one->size_bytes);
        }
    }
}

static void check_all(void)
{
    for (uint32_t topic = 0; topic < 2; topic++) {
        struct mill_partition *partition = open_topic(topic);
        assert_non_null(partition);
        check_acked(partition, topic);
    }
    assert_false(fixture_was_said(&f, "store.fenced"));
}

static void begin(void)
{
    fixture_make(&f, NULL);
    f.options.size_bytes = 8 << 20;
    f.options.extent_bytes_max = 1 << 20;
    f.limits.dirty_max_bytes = 2 << 20;
    f.limits.cold_max_bytes = 2 << 20;
    f.open_files_max = 8;
    memset(acked_count, 0, sizeof(acked_count));
}

/* Ends as the process does: what is not whole is not marked so, and stays in the arena. */
static void end(void)
{
    mill_log_flush_all(f.log);
    fixture_settle(&f);
    bool idle = mill_log_idle(f.log);
    mill_log_destroy(f.log);
    f.log = NULL;
    bool whole = mill_store_close(f.store, f.now);
    f.store = NULL;
    int r = mill_log_dirs_close(f.dirs, idle && whole);
    f.dirs = NULL;
    mill_extents_destroy(f.extents);
    f.extents = NULL;
    mill_arena_close(f.arena, idle && r == 0);
    f.arena = NULL;
    fixture_abandon(&f);
}

/* One run in which call number at fails. ret: it was reached. */
static bool run(uint64_t at, bool good)
{
    begin();
    fixture_open(&f);
    alloc_arm(at, good);
    scenario();
    if (at % 2 == 0) {
        end();
        alloc_disarm();
    } else {
        alloc_disarm();
        fixture_close(&f, false); /* killed */
    }
    bool reached = alloc_fail.failed > 0;
    fixture_open(&f);
    check_all();
    fixture_close(&f, true);
    fixture_free(&f);
    return reached;
}

static void sweep(bool good)
{
    uint64_t at = 1;
    uint64_t runs = 0;
    while (run(at, good)) {
        at = alloc_next(at);
        runs++;
        assert_in_range(at, 1, CALLS_MAX);
    }
    assert_true(runs > RUNS_MIN);
    print_message("%llu runs, about %llu allocations\n", (unsigned long long)runs,
                  (unsigned long long)at);
}

static void test_each_allocation_fails_alone(void **state)
{
    MILL_UNUSED(state);
    m = maker_new();
    sweep(false);
    free(m);
}

static void test_memory_ends_for_good(void **state)
{
    MILL_UNUSED(state);
    m = maker_new();
    sweep(true);
    free(m);
}

/* A start that has extents to take up: it fails and says why, or goes well. */
static void test_each_allocation_of_a_start(void **state)
{
    MILL_UNUSED(state);
    uint64_t failures = 0;
    m = maker_new();
    begin();
    fixture_open(&f);
    scenario();
    for (int32_t i = 0; i < 3; i++) { /* the store does not see them */
        append(mill_log_find(f.log, &ids[0], 0), 0, BATCHES + i);
        append(mill_log_find(f.log, &ids[1], 0), 1, BATCHES + i);
    }
    fixture_close(&f, false);
    for (uint64_t at = 1;; at++) {
        assert_in_range(at, 1, CALLS_MAX);
        f.report.text[0] = '\0';
        alloc_arm(at, false);
        int r = fixture_try_open(&f);
        alloc_disarm();
        bool reached = alloc_fail.failed > 0;
        if (r < 0) {
            assert_true(reached);
            assert_int_equal(r, -ENOMEM);
            failures++;
            fixture_open(&f);
        }
        check_all();
        fixture_close(&f, false);
        if (!reached) {
            break;
        }
    }
    assert_true(failures > 10);
    fixture_open(&f);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_fails_alone),
        cmocka_unit_test(test_memory_ends_for_good),
        cmocka_unit_test(test_each_allocation_of_a_start),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
