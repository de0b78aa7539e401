/* SPDX-License-Identifier: Apache-2.0 */
/* Batches as producers send them, appended to a log with its store behind it: of a plain topic, of
 * a compacted one (looked into), and of one that recompresses. The target sums each batch, so that
 * what is behind the sum is reached; whatever was taken is read back whole. An input: a byte of
 * choices, then runs, each a batch. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "dataplane/store/store_types.h"
#include "protocol/batch.h"
#include "tests/sim/disk_model.h"
#include "tests/unit/log/fixture.h"

enum {
    INPUTS = 200, /* of one log */
    BATCHES_MAX = 8,
    COMPACTED = 1, /* partitions; 0 is plain */
    RECOMPRESSED = 2,
    RECOMPRESSED_CODEC = MILL_CODEC_LZ4,
    PARTITIONS = 3,
    TRIES = 20,
    PLAIN_MAX = 64 << 20, /* bytes of a batch's records */
    KEEP_LENGTH = 0x80,   /* choices: the batch's own length stays */
    KILLED = 0x40,        /* a kill and a start follow */
};

static struct fixture f;
static struct disk_model *disk;
static struct mill_partition *partitions[PARTITIONS];
static uint32_t inputs;

static void open_all(void)
{
    for (int32_t i = 0; i < PARTITIONS; i++) {
        struct mill_log_settings settings = fixture_settings();
        settings.compact = i == COMPACTED;
        settings.compression = i == RECOMPRESSED ? RECOMPRESSED_CODEC : settings.compression;
        settings.segment_bytes = 64 << 10;
        partitions[i] = fixture_partition(&f, i, &settings);
    }
}

static void begin(void)
{
    disk = disk_model_new(1);
    assert_non_null(disk);
    fixture_make(&f, disk_model_calls(disk));
    f.log_dirs[0] = "/disk/logs";
    fixture_open(&f);
    open_all();
}

static void end(void)
{
    fixture_close(&f, true);
    fixture_free(&f);
    disk_model_free(disk);
}

/* ret: 0 appended or refused, the result is in *ret_result; else no memory now. */
static int append(struct mill_partition *partition, const uint8_t *bytes, uint32_t size,
                  struct mill_append_result *ret_result)
{
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    /* In two buffers, so that borders are crossed. */
    uint32_t half = size / 2;
    struct mill_buf second = {.data = (uint8_t *)(uintptr_t)bytes + half,
                              .size_bytes = size - half};
    struct mill_buf first = {
        .next = &second, .data = (uint8_t *)(uintptr_t)bytes, .size_bytes = half};
    struct mill_append call = {.records = {.buf = &first, .left_bytes = size},
                               .size_bytes = size,
                               .api_version = 9,
                               .acks = -1};
    int r = mill_log_append(partition, &call, f.now, &watch, ret_result);
    for (uint32_t i = 0; r != 0 && i < TRIES; i++) {
        fixture_settle(&f);
        r = mill_log_append(partition, &call, f.now, &watch, ret_result);
    }
    if (r != 0) {
        mill_log_abandon(f.log, &watch);
    }
    return r;
}

/* A stored batch of a topic that is looked into: its records are what its header says. */
static void check_records(const uint8_t *bytes, const struct mill_batch *batch)
{
    uint32_t size = mill_batch_size_bytes(batch) - MILL_BATCH_HEADER_BYTES;
    uint8_t *plain = NULL;
    int64_t made = size;
    if (mill_batch_codec(batch) != MILL_CODEC_NONE) {
        made = mill_unpack(mill_batch_codec(batch), bytes + MILL_BATCH_HEADER_BYTES, size,
                           PLAIN_MAX, &plain);
        assert_true(made >= 0);
    }
    struct mill_buf buf = {.data = plain ? plain
                                         : (uint8_t *)(uintptr_t)bytes + MILL_BATCH_HEADER_BYTES,
                           .size_bytes = (uint32_t)made};
    struct mill_cursor at = {.buf = &buf, .left_bytes = (uint32_t)made};
    struct mill_record record;
    for (int32_t i = 0; i < batch->records_count; i++) {
        assert_int_equal(mill_record_next(&at, &record), 0);
        assert_int_equal(record.offset_delta, i);
    }
    assert_int_equal(at.left_bytes, 0);
    free(plain);
}

/* What was taken at an offset is there, whole and rightly summed. */
static void check(struct mill_partition *partition, int64_t offset, bool looked_into)
{
    static struct mill_read_result result;
    static uint8_t bytes[4 << 20];
    struct mill_read read = {.offset = offset,
                             .bytes_max = 1,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = MILL_LOG_REFS_MAX};
    fixture_read(&f, partition, &read, &result);
    assert_int_equal(result.error, MILL_KERR_NONE);
    assert_true(result.bytes >= MILL_BATCH_HEADER_BYTES && result.bytes <= sizeof(bytes));
    uint32_t at = 0;
    for (uint32_t i = 0; i < result.refs_count; i++) {
        memcpy(bytes + at, mill_ref_data(mill_arena_base(f.arena), &result.refs[i]),
               result.refs[i].size_bytes);
        at += result.refs[i].size_bytes;
    }
    struct mill_batch batch;
    mill_batch_read(bytes, &batch);
    uint32_t size = mill_batch_size_bytes(&batch);
    assert_true(size <= result.bytes && batch.base_offset == offset);
    assert_int_equal(batch.crc,
                     mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size - MILL_BATCH_SUMMED_AT));
    if (looked_into) {
        check_records(bytes, &batch);
    }
}

/* Whether the broker looks inside of a batch before it takes it. */
static bool is_looked_into(int32_t index, const uint8_t *bytes)
{
    struct mill_batch batch;
    mill_batch_read(bytes, &batch);
    return index == COMPACTED ||
           (index == RECOMPRESSED && mill_batch_codec(&batch) != RECOMPRESSED_CODEC);
}

/* A kill between inputs: what was taken is found again. */
static void kill_and_open(void)
{
    int64_t ends[PARTITIONS];
    for (int32_t i = 0; i < PARTITIONS; i++) {
        ends[i] = mill_partition_end(partitions[i]);
    }
    fixture_settle(&f);
    fixture_close(&f, false);
    fixture_open(&f);
    open_all();
    for (int32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(mill_partition_end(partitions[i]), ends[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[1 << 16];
    struct fuzz_input input = {.at = data, .left = size};
    if (inputs++ % INPUTS == 0) {
        if (inputs > 1) {
            end();
        }
        begin();
    }
    uint8_t choices = fuzz_byte(&input);
    int32_t index = choices % PARTITIONS;
    for (uint32_t i = 0; i < BATCHES_MAX && input.left > 0; i++) {
        const uint8_t *run;
        uint32_t count = (uint32_t)fuzz_run(&input, &run);
        memcpy(bytes, run, count);
        if (count >= MILL_BATCH_HEADER_BYTES) {
            if (!(choices & KEEP_LENGTH)) {
                mill_store_be32(bytes + MILL_BATCH_LENGTH_AT, count - MILL_BATCH_PREFIX_BYTES);
            }
            mill_store_be32(bytes + MILL_BATCH_CRC_AT, mill_crc32c(bytes + MILL_BATCH_SUMMED_AT,
                                                                   count - MILL_BATCH_SUMMED_AT));
        }
        struct mill_append_result result;
        if (append(partitions[index], bytes, count, &result) == 0 &&
            result.error == MILL_KERR_NONE && !result.duplicate) {
            check(partitions[index], result.base_offset, is_looked_into(index, bytes));
        }
    }
    if (choices & KILLED) {
        kill_and_open();
    }
    return 0;
}
