/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of loading share: a log of several segments by one idempotent producer over the
 * disk model, its end and start, and what a start must know of it. */
#ifndef MILL_TESTS_UNIT_STORE_LOAD_RIG_H
#define MILL_TESTS_UNIT_STORE_LOAD_RIG_H

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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

static inline struct mill_log_settings small_segments(void)
{
    struct mill_log_settings settings = fixture_settings();
    settings.segment_bytes = 100000;
    return settings;
}

static inline struct mill_partition *open_partition(void)
{
    struct mill_log_settings settings = small_segments();
    return fixture_partition(&f, 0, &settings);
}

/* A log of several segments by one idempotent producer. ret: its end. */
static inline int64_t make_log(uint64_t seed)
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

static inline void drop_log(void)
{
    fixture_free(&f);
    disk_model_free(disk);
    free(m);
}

static inline void reopen(void)
{
    f.said_count = 0;
    fixture_open(&f);
}

/* The last five batches are known, an older retry is refused, the next one is taken. */
static inline void check_producer(struct mill_partition *partition, int64_t end)
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

static inline int64_t last_base(void)
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

/* Ends cleanly and starts again: that reads checkpoints, a snapshot, last index entries, and what
 * follows the last of them. */
static inline void check_clean_start(int64_t end)
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

struct copy {
    uint64_t size;
    uint8_t bytes[1024];
};

/* The last segment's .index. */
static inline struct copy copy_of_index(void)
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
static inline void check_index(const struct copy *before)
{
    struct copy now = copy_of_index();
    assert_true(now.size >= before->size);
    assert_memory_equal(now.bytes, before->bytes, before->size);
}

#endif
