/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a batch that has to be looked into is stored as the topic wants it, or refused for what is
 * inside, and nothing overtakes it; bombs are bounded; whatever happens to caller, partition, disk,
 * memory or ring meanwhile, nothing leaks and the answer is the right one. Method: batches packed
 * by the libraries themselves, over a real log and store; the store stands still where a moment has
 * to be held. */
#include "tests/unit/test.h"

#include <errno.h>

#include "dataplane/log/log_types.h"
#include "dataplane/store/store_types.h"
#include "tests/unit/log/fixture.h"
#include "tests/unit/store/pack.h"

enum {
    PLAIN_ROOM = 2 << 20,
    VALUES = 3,
};

static struct fixture f;
static struct maker *m;

/* One call of a client, over as many turns as it takes. */
struct call {
    struct mill_log_watch watch;
    bool fired;
    struct mill_buf buf;
    struct mill_append append;
    struct mill_append_result result;
};

static int call_begin(struct call *call, struct mill_partition *partition)
{
    *call = (struct call){.watch = {.user = NULL}};
    call->watch.user = &call->fired;
    call->append = (struct mill_append){
        .records = mill_cursor_over(&call->buf, m->bytes, m->size),
        .size_bytes = m->size,
        .api_version = 9,
        .acks = -1,
    };
    return mill_log_append(partition, &call->append, f.now, &call->watch, &call->result);
}

static int call_again(struct call *call, struct mill_partition *partition)
{
    assert_true(call->fired);
    call->fired = false;
    return mill_log_append(partition, &call->append, f.now, &call->watch, &call->result);
}

static struct mill_append_result append(struct mill_partition *partition, bool parks)
{
    struct call call;
    int r = call_begin(&call, partition);
    assert_int_equal(r, parks ? -EINPROGRESS : 0);
    for (uint32_t i = 0; r == -EINPROGRESS && i < 10; i++) {
        fixture_settle(&f);
        r = call_again(&call, partition);
    }
    assert_int_equal(r, 0);
    return call.result;
}

/* Packs the maker's records in place. */
static void pack_with(enum mill_codec codec,
                      size_t (*pack)(uint8_t *, size_t, const uint8_t *, size_t))
{
    uint8_t *packed = malloc(PLAIN_ROOM);
    assert_non_null(packed);
    uint32_t plain = m->size - MILL_BATCH_HEADER_BYTES;
    size_t made = pack(packed, PLAIN_ROOM, m->bytes + MILL_BATCH_HEADER_BYTES, plain);
    assert_true(made + MILL_BATCH_HEADER_BYTES <= sizeof(m->bytes));
    memcpy(m->bytes + MILL_BATCH_HEADER_BYTES, packed, made);
    free(packed);
    m->size = MILL_BATCH_HEADER_BYTES + (uint32_t)made;
    mill_store_be32(m->bytes + MILL_BATCH_LENGTH_AT, m->size - MILL_BATCH_PREFIX_BYTES);
    mill_store_be16(m->bytes + MILL_BATCH_ATTRIBUTES_AT,
                    (uint16_t)((uint16_t)m->attributes | (uint16_t)codec));
    maker_sum(m);
}

static void begin(void)
{
    m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
}

static void end(void)
{
    assert_int_equal(f.log->parked_count, 0);
    assert_int_equal(f.log->parked_bytes, 0);
    for (uint32_t i = 0; i < MILL_LOG_PARKED_MAX; i++) {
        assert_int_equal(f.log->parked[i].state, LOG_PARKED_FREE);
    }
    assert_int_equal(mill_log_stats(f.log)->watches, 0);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

/* The stored batch that begins at offset; its sum is right. */
static const uint8_t *stored(struct mill_partition *partition, int64_t offset,
                             struct mill_batch *ret_batch)
{
    struct mill_read read = {.offset = offset,
                             .bytes_max = 1,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 1};
    static struct mill_read_result got;
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.refs_count, 1);
    const uint8_t *bytes = mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
    mill_batch_read(bytes, ret_batch);
    assert_int_equal(mill_batch_size_bytes(ret_batch), got.refs[0].size_bytes);
    assert_int_equal(ret_batch->crc, mill_crc32c(bytes + 21, got.refs[0].size_bytes - 21));
    assert_int_equal(ret_batch->base_offset, offset);
    return bytes;
}

/* Its records, plain, are these. */
static void check_records(const uint8_t *bytes, const struct mill_batch *batch,
                          const uint8_t *plain, uint32_t plain_bytes)
{
    const uint8_t *from = bytes + MILL_BATCH_HEADER_BYTES;
    uint32_t size = mill_batch_size_bytes(batch) - MILL_BATCH_HEADER_BYTES;
    uint8_t *out = malloc(plain_bytes + 1);
    assert_non_null(out);
    int64_t made = size;
    if (mill_batch_codec(batch) == MILL_CODEC_NONE) {
        memcpy(out, from, MILL_MIN(size, plain_bytes + 1));
    } else {
        made = mill_decompress(mill_batch_codec(batch), from, size, out, plain_bytes + 1);
    }
    assert_int_equal(made, plain_bytes);
    assert_memory_equal(out, plain, plain_bytes);
    free(out);
}

/* --- keys of compacted topics ---------------------------------------------------------------- */

static void test_compacted_topic_sees_keys_inside(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    begin();
    settings.compact = true;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    for (uint32_t i = 0; i < MILL_COUNT_OF(packers); i++) {
        int64_t end_offset = mill_partition_end(partition);
        m->no_keys = true;
        maker_build(m, VALUES);
        pack_with(packers[i].codec, packers[i].pack);
        struct mill_append_result result = append(partition, true);
        assert_int_equal(result.error, MILL_KERR_INVALID_RECORD);
        assert_int_equal(result.bad_record, 0);
        assert_int_equal(result.base_offset, -1);
        assert_int_equal(mill_partition_end(partition), end_offset);
        m->no_keys = false;
        maker_build(m, VALUES);
        pack_with(packers[i].codec, packers[i].pack);
        result = append(partition, true);
        assert_int_equal(result.error, MILL_KERR_NONE);
        assert_int_equal(result.base_offset, end_offset);
        struct mill_batch batch;
        const uint8_t *bytes = stored(partition, end_offset, &batch);
        assert_memory_equal(bytes + 16, m->bytes + 16, m->size - 16); /* as it came */
    }
    maker_build(m, VALUES); /* the core itself walks plain records */
    assert_int_equal(append(partition, false).error, MILL_KERR_NONE);
    assert_int_equal(mill_log_stats(f.log)->batches_inspected, 2 * MILL_COUNT_OF(packers));
    assert_int_equal(mill_log_stats(f.log)->batches_recompressed, 0);
    end();
}

/* --- the topic's codec ----------------------------------------------------------------------- */

static void check_recompressed(struct mill_partition *partition, enum mill_codec source,
                               size_t (*pack)(uint8_t *, size_t, const uint8_t *, size_t),
                               enum mill_codec target)
{
    static uint8_t plain[sizeof(m->bytes)];
    struct mill_batch batch;
    int64_t offset = mill_partition_end(partition);
    maker_build(m, 40);
    uint32_t plain_bytes = m->size - MILL_BATCH_HEADER_BYTES;
    memcpy(plain, m->bytes + MILL_BATCH_HEADER_BYTES, plain_bytes);
    pack_with(source, pack);
    struct mill_append_result result = append(partition, source != target);
    assert_int_equal(result.error, MILL_KERR_NONE);
    assert_int_equal(result.base_offset, offset);
    const uint8_t *bytes = stored(partition, offset, &batch);
    assert_int_equal(mill_batch_codec(&batch), target);
    /* All else of the header is the producer's. */
    assert_int_equal(batch.attributes & ~MILL_BATCH_CODEC_MASK, 0);
    assert_memory_equal(bytes + 23, m->bytes + 23, MILL_BATCH_HEADER_BYTES - 23);
    check_records(bytes, &batch, plain, plain_bytes);
    m->sequence += 40;
}

static void test_topic_codec_replaces_the_producers(void **state)
{
    MILL_UNUSED(state);
    begin();
    m->value_bytes = 300;
    m->producer_id = 5;
    m->epoch = 2;
    for (int target = MILL_CODEC_NONE; target < MILL_CODEC_COUNT; target++) {
        struct mill_log_settings settings = fixture_settings();
        settings.compression = (uint8_t)target;
        m->sequence = 100;
        struct mill_partition *partition = fixture_partition(&f, target, &settings);
        check_recompressed(partition, MILL_CODEC_NONE, pack_none, (enum mill_codec)target);
        for (uint32_t i = 0; i < MILL_COUNT_OF(packers); i++) {
            check_recompressed(partition, packers[i].codec, packers[i].pack,
                               (enum mill_codec)target);
        }
        /* The state of the producer is that of ordinary batches. */
        m->sequence -= 40;
        struct mill_append_result result;
        maker_build(m, 40);
        pack_with(MILL_CODEC_LZ4, pack_lz4);
        result = append(partition, target != MILL_CODEC_LZ4);
        assert_true(result.duplicate);
        assert_int_equal(result.base_offset, (int64_t)MILL_COUNT_OF(packers) * 40);
        m->sequence += 41;
        maker_build(m, 40);
        pack_with(MILL_CODEC_LZ4, pack_lz4);
        result = append(partition, target != MILL_CODEC_LZ4);
        assert_int_equal(result.error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    }
    end();
}

static void test_append_time_topic_recompresses_too(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_batch batch;
    begin();
    settings.append_time = true;
    settings.compression = MILL_CODEC_ZSTD;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    m->timestamp = 77; /* any create time goes: it is not kept */
    maker_build(m, VALUES);
    pack_with(MILL_CODEC_GZIP, pack_gzip);
    struct mill_append_result result = append(partition, true);
    assert_int_equal(result.error, MILL_KERR_NONE);
    assert_int_equal(result.append_time_ms, f.now.wall_ms);
    stored(partition, 0, &batch);
    assert_int_equal(batch.attributes, MILL_CODEC_ZSTD | MILL_BATCH_APPEND_TIME);
    assert_int_equal(batch.max_timestamp, f.now.wall_ms);
    assert_int_equal(batch.base_timestamp, 77);
    end();
}

/* --- what is inside -------------------------------------------------------------------------- */

static void more_promised(void)
{
    mill_store_be32(m->bytes + 23, VALUES);
    mill_store_be32(m->bytes + 57, VALUES + 1);
}
static void fewer_promised(void)
{
    mill_store_be32(m->bytes + 23, VALUES - 2);
    mill_store_be32(m->bytes + 57, VALUES - 1);
}
static void delta_wrong(void)
{
    m->bytes[64] = 4;
}
static void length_wrong(void)
{
    m->bytes[61] += 2;
}
static void time_wrong(void)
{
    /* The first record's time delta, one byte: the header's times stay in range. */
    mill_store_be64(m->bytes + 27, (uint64_t)(f.now.wall_ms + 3600000));
    m->bytes[63] = 2;
}
static void nothing(void)
{
}

static size_t pack_cut(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    return pack_zstd(to, room, from, size) - 3;
}
static size_t pack_other(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    return pack_gzip(to, room, from, size); /* under the name of zstd */
}
static size_t pack_empty(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    MILL_UNUSED(size);
    return pack_zstd(to, room, from, 0);
}
static size_t pack_stray(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    static uint8_t longer[sizeof(m->bytes)];
    memcpy(longer, from, size);
    longer[size] = 0;
    return pack_zstd(to, room, longer, size + 1);
}

static const struct {
    const char *name;
    void (*change)(void);
    size_t (*pack)(uint8_t *to, size_t room, const uint8_t *from, size_t size);
    enum mill_kerr error;
    int32_t bad_record;
} insides[] = {
    {"more records promised", more_promised, pack_zstd, MILL_KERR_INVALID_RECORD, VALUES},
    {"fewer records promised", fewer_promised, pack_zstd, MILL_KERR_INVALID_RECORD, VALUES - 2},
    {"offset delta", delta_wrong, pack_zstd, MILL_KERR_INVALID_RECORD, 0},
    {"record length", length_wrong, pack_zstd, MILL_KERR_INVALID_RECORD, 0},
    {"time of a record", time_wrong, pack_zstd, MILL_KERR_INVALID_TIMESTAMP, 0},
    {"stream cut short", nothing, pack_cut, MILL_KERR_INVALID_RECORD, -1},
    {"another codec's stream", nothing, pack_other, MILL_KERR_INVALID_RECORD, -1},
    {"no records", nothing, pack_empty, MILL_KERR_INVALID_RECORD, 0},
    {"stray bytes", nothing, pack_stray, MILL_KERR_INVALID_RECORD, VALUES - 1},
};

static void test_inside_is_checked_when_looked_at(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_batch batch;
    begin();
    settings.compact = true;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    settings.compact = false;
    settings.compression = MILL_CODEC_SNAPPY;
    struct mill_partition *other = fixture_partition(&f, 1, &settings);
    for (uint32_t i = 0; i < 2 * MILL_COUNT_OF(insides); i++) {
        struct mill_partition *of = i % 2 == 0 ? partition : other;
        maker_build(m, VALUES);
        insides[i / 2].change();
        pack_with(MILL_CODEC_ZSTD, insides[i / 2].pack);
        struct mill_append_result result = append(of, true);
        if (result.error != insides[i / 2].error) {
            print_message("%s: %d %s\n", insides[i / 2].name, result.error, result.message);
        }
        assert_int_equal(result.error, insides[i / 2].error);
        assert_int_equal(result.bad_record, insides[i / 2].bad_record);
        assert_true(result.message[0] != '\0');
        assert_int_equal(mill_partition_end(of), 0);
    }
    /* A wrong greatest time is corrected, as in a plain batch. */
    maker_build(m, VALUES);
    mill_store_be64(m->bytes + 35, 99);
    pack_with(MILL_CODEC_ZSTD, pack_zstd);
    for (uint32_t i = 0; i < 2; i++) {
        struct mill_partition *of = i == 0 ? partition : other;
        assert_int_equal(append(of, true).error, MILL_KERR_NONE);
        stored(of, 0, &batch);
        assert_int_equal(batch.max_timestamp, m->timestamp + VALUES - 1);
    }
    end();
}

/* A batch of one record of zeros, size bytes when it is plain. */
static void build_zeros(uint32_t size, enum mill_codec codec,
                        size_t (*pack)(uint8_t *, size_t, const uint8_t *, size_t))
{
    uint8_t *plain = calloc(1, size);
    uint8_t *packed = malloc(PLAIN_ROOM);
    assert_non_null(plain);
    assert_non_null(packed);
    uint32_t left = size;
    for (;;) { /* the length's own length depends on it */
        uint32_t at = put_varlong(plain, left);
        if (at + left <= size) {
            uint32_t key = at + 3; /* attributes and two deltas are 0 */
            key += put_varlong(plain + key, 1);
            plain[key++] = 'k';
            uint32_t value = at + left - key;
            while (key + put_varlong(plain + key, value) + value + 1 > at + left) {
                value--;
            }
            plain[at + left - 1] = 0; /* no headers */
            size = at + left;
            break;
        }
        left--;
    }
    maker_build(m, 1);
    size_t made = pack(packed, PLAIN_ROOM, plain, size);
    memcpy(m->bytes + MILL_BATCH_HEADER_BYTES, packed, made);
    m->size = MILL_BATCH_HEADER_BYTES + (uint32_t)made;
    mill_store_be32(m->bytes + MILL_BATCH_LENGTH_AT, m->size - MILL_BATCH_PREFIX_BYTES);
    mill_store_be16(m->bytes + MILL_BATCH_ATTRIBUTES_AT, (uint16_t)codec);
    maker_sum(m);
    free(plain);
    free(packed);
}

static void test_bomb_is_refused_at_its_bound(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    begin();
    settings.compact = true;
    settings.max_message_bytes = 20000;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    uint32_t bound = 20000 * MILL_STORE_PLAIN_PER_MESSAGE;
    for (uint32_t i = 0; i < MILL_COUNT_OF(packers); i++) {
        if (packers[i].codec == MILL_CODEC_SNAPPY) {
            continue; /* shrinks to a twentieth at best: there is no such bomb */
        }
        build_zeros(bound + 1000, packers[i].codec, packers[i].pack);
        assert_true(m->size <= 20000);
        struct mill_append_result result = append(partition, true);
        assert_int_equal(result.error, MILL_KERR_MESSAGE_TOO_LARGE);
        build_zeros(bound - 1000, packers[i].codec, packers[i].pack);
        assert_int_equal(append(partition, true).error, MILL_KERR_NONE);
    }
    end();
}

static void test_grown_batch_fits_or_is_too_large(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_batch batch;
    begin();
    settings.compression = MILL_CODEC_NONE;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    /* Far more than was guessed: a larger extent, and a second look. */
    build_zeros(900000, MILL_CODEC_ZSTD, pack_zstd);
    assert_true(m->size < 1000);
    struct mill_append_result result = append(partition, true);
    assert_int_equal(result.error, MILL_KERR_NONE);
    stored(partition, 0, &batch);
    assert_in_range(mill_batch_size_bytes(&batch), 900000, 900061);
    /* Kafka, too, measures what it stores. */
    build_zeros(1048588, MILL_CODEC_ZSTD, pack_zstd);
    assert_int_equal(append(partition, true).error, MILL_KERR_MESSAGE_TOO_LARGE);
    assert_int_equal(mill_partition_end(partition), 1);
    end();
}

/* --- order ----------------------------------------------------------------------------------- */

static void test_nothing_overtakes_a_parked_batch(void **state)
{
    MILL_UNUSED(state);
    enum { CALLS = 6 };
    struct mill_log_settings settings = fixture_settings();
    struct call calls[CALLS];
    begin();
    settings.compact = true;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    struct mill_partition *other = fixture_partition(&f, 1, &settings);
    m->producer_id = 9;
    m->epoch = 0;
    for (int32_t i = 0; i < CALLS; i++) {
        m->sequence = i * VALUES;
        maker_build(m, VALUES);
        if (i % 2 == 0) {
            pack_with(MILL_CODEC_LZ4, pack_lz4);
        }
        assert_int_equal(call_begin(&calls[i], partition), -EINPROGRESS);
    }
    m->sequence = 0;
    maker_build(m, VALUES); /* plain, elsewhere: at once */
    assert_int_equal(append(other, false).base_offset, 0);
    assert_int_equal(mill_partition_end(partition), 0);
    fixture_settle(&f);
    for (int32_t i = CALLS - 1; i >= 0; i--) {
        assert_int_equal(call_again(&calls[i], partition), 0);
        assert_int_equal(calls[i].result.error, MILL_KERR_NONE);
        assert_int_equal(calls[i].result.base_offset, i * VALUES);
        assert_false(calls[i].result.duplicate);
    }
    m->sequence = CALLS * VALUES;
    maker_build(m, VALUES); /* nobody waits any more: at once */
    assert_int_equal(append(partition, false).base_offset, CALLS * VALUES);
    end();
}

static void test_woken_for_another_reason_waits_on(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct call call;
    begin();
    settings.compression = MILL_CODEC_GZIP;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, VALUES);
    assert_int_equal(call_begin(&call, partition), -EINPROGRESS);
    mill_log_watches_changed(partition);
    assert_int_equal(call_again(&call, partition), -EINPROGRESS);
    mill_log_watches_changed(partition);
    fixture_settle(&f); /* it ends while its caller is not on the list */
    assert_int_equal(call_again(&call, partition), 0);
    assert_int_equal(call.result.base_offset, 0);
    end();
}

/* --- what may happen meanwhile --------------------------------------------------------------- */

static void test_abandoned_append_is_stored_and_leaks_nothing(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    begin();
    settings.compression = MILL_CODEC_GZIP;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    for (uint32_t i = 0; i < 3 * MILL_LOG_PARKED_MAX; i++) {
        struct call call;
        maker_build(m, VALUES);
        assert_int_equal(call_begin(&call, partition), -EINPROGRESS);
        if (i % 2 == 0) {
            mill_log_abandon(f.log, &call.watch);
        }
        if (i % 3 == 0) {
            fixture_step(&f, 0);
        } else {
            fixture_settle(&f);
        }
        mill_log_abandon(f.log, &call.watch); /* once it is done, or a second time: no effect */
    }
    fixture_settle(&f);
    assert_int_equal(mill_partition_end(partition), 3 * MILL_LOG_PARKED_MAX * VALUES);
    end();
}

static void test_deleted_topic_ends_parked_appends(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct call calls[3];
    begin();
    settings.compression = MILL_CODEC_GZIP;
    for (uint32_t when = 0; when < 3; when++) {
        struct mill_partition *partition = fixture_partition(&f, 0, &settings);
        uint32_t gone = f.gone;
        maker_build(m, VALUES);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(call_begin(&calls[i], partition), -EINPROGRESS);
        }
        if (when >= 1) {
            mill_log_step(f.log, f.now); /* posted */
        }
        if (when >= 2) {
            mill_store_step(f.store, f.now); /* answered */
        }
        mill_log_delete(partition);
        mill_log_abandon(f.log, &calls[1].watch);
        mill_log_step(f.log, f.now);
        for (uint32_t i = 0; i < 3; i += 2) {
            assert_true(calls[i].fired);
        }
        mill_log_abandon(f.log, &calls[2].watch);
        int r = call_again(&calls[0], partition);
        assert_int_equal(r, when == 1 ? -EINPROGRESS : 0); /* the store has the extent */
        if (r == 0) {
            assert_int_equal(calls[0].result.error, MILL_KERR_NOT_LEADER_OR_FOLLOWER);
        }
        mill_log_abandon(f.log, &calls[0].watch);
        fixture_settle(&f);
        assert_int_equal(f.gone, gone + 1);
    }
    fixture_step(&f, 4000);
    fixture_settle(&f);
    assert_int_equal(mill_extents_used_bytes(f.extents), 0);
    end();
}

static void test_entries_and_dirty_bytes_are_bounded(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    static struct call calls[MILL_LOG_PARKED_MAX + 1];
    begin();
    settings.compression = MILL_CODEC_GZIP;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, VALUES);
    for (uint32_t i = 0; i < MILL_LOG_PARKED_MAX; i++) {
        assert_int_equal(call_begin(&calls[i], partition), -EINPROGRESS);
    }
    assert_int_equal(mill_log_stats(f.log)->parked_full, 0);
    assert_int_equal(call_begin(&calls[MILL_LOG_PARKED_MAX], partition), -EAGAIN);
    assert_int_equal(mill_log_stats(f.log)->parked_full, 1);
    assert_false(mill_log_idle(f.log)); /* a stop waits for them */
    fixture_settle(&f);
    assert_true(mill_log_idle(f.log));
    for (uint32_t i = 0; i < MILL_LOG_PARKED_MAX; i++) {
        assert_int_equal(call_again(&calls[i], partition), 0);
        assert_int_equal(calls[i].result.base_offset, i * VALUES);
    }
    /* Parked bytes count as dirty ones do. */
    f.log->config.limits.dirty_max_bytes = 8192;
    assert_int_equal(call_begin(&calls[0], partition), -EINPROGRESS);
    assert_int_equal(call_begin(&calls[1], partition), -EINPROGRESS);
    assert_int_equal(call_begin(&calls[2], partition), -EAGAIN);
    assert_int_equal(mill_log_stats(f.log)->dirty_full, 1);
    fixture_settle(&f);
    assert_int_equal(call_again(&calls[0], partition), 0);
    assert_int_equal(call_again(&calls[1], partition), 0);
    end();
}

/* Many answers of the store at once are copied over several turns, and none is left behind. */
static void test_turn_copies_a_bounded_number_of_bytes(void **state)
{
    MILL_UNUSED(state);
    enum {
        TURN_BYTES = 2 << 20, /* parked.c */
        RECORDS = 100,
        VALUE_BYTES = 500,
    };
    struct mill_log_settings settings = fixture_settings();
    static struct call calls[MILL_LOG_PARKED_MAX];
    begin();
    settings.compression = MILL_CODEC_GZIP;
    f.log->config.limits.dirty_max_bytes = 32 << 20;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    m->value_bytes = VALUE_BYTES;
    maker_build(m, RECORDS);
    for (uint32_t i = 0; i < MILL_LOG_PARKED_MAX; i++) {
        assert_int_equal(call_begin(&calls[i], partition), -EINPROGRESS);
    }
    (void)mill_log_step(f.log, f.now); /* asks for all */
    while (mill_store_step(f.store, f.now) > 0) {
    }
    int64_t last = mill_partition_end(partition);
    uint32_t turns = 0;
    while (last < MILL_LOG_PARKED_MAX * RECORDS) {
        assert_true(mill_log_step(f.log, f.now) > 0);
        int64_t now = mill_partition_end(partition);
        assert_true((uint64_t)(now - last) * VALUE_BYTES <= TURN_BYTES);
        turns += now > last;
        last = now;
        assert_true(turns <= MILL_LOG_PARKED_MAX);
    }
    assert_true(turns >= 2);
    fixture_settle(&f);
    for (uint32_t i = 0; i < MILL_LOG_PARKED_MAX; i++) {
        assert_int_equal(call_again(&calls[i], partition), 0);
        assert_int_equal(calls[i].result.base_offset, i * RECORDS);
    }
    m->value_bytes = 20;
    end();
}

/* Plays the store for one INSPECT. */
static void answer_inspect(int32_t status, uint32_t size_bytes)
{
    uint32_t kind;
    uint32_t size;
    const struct mill_link_inspect *ask = mill_ring_next(&f.store->config.in, &kind, &size);
    assert_non_null(ask);
    assert_int_equal(kind, MILL_LINK_INSPECT);
    struct mill_link_inspected *to =
        mill_ring_claim(&f.store->config.out, MILL_LINK_INSPECTED, sizeof(*to));
    assert_non_null(to);
    *to = (struct mill_link_inspected){.head = ask->head,
                                       .request = ask->request,
                                       .status = status,
                                       .size_bytes = size_bytes,
                                       .bad_record = -1,
                                       .message = ""};
    mill_ring_release(&f.store->config.in);
    mill_ring_publish(&f.store->config.out);
}

static void test_memory_refused_is_a_retriable_error(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct call call;
    begin();
    settings.compression = MILL_CODEC_GZIP;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    for (uint32_t i = 0; i < 3; i++) {
        /* The worker's memory, the arena's, and more than any extent holds. */
        static const int32_t statuses[] = {-ENOMEM, -EMSGSIZE, -EMSGSIZE};
        static const uint32_t wanted[] = {0, 4 << 20, 64 << 20};
        static const enum mill_kerr errors[] = {MILL_KERR_KAFKA_STORAGE_ERROR,
                                                MILL_KERR_KAFKA_STORAGE_ERROR,
                                                MILL_KERR_MESSAGE_TOO_LARGE};
        uint32_t hogs[64];
        uint32_t hogs_count = 0;
        maker_build(m, VALUES);
        assert_int_equal(call_begin(&call, partition), -EINPROGRESS);
        mill_log_step(f.log, f.now);
        while (hogs_count < 64 && mill_log_scratch(f.log, 4 << 20, &hogs[hogs_count]) == 0) {
            hogs_count++;
        }
        answer_inspect(statuses[i], wanted[i]);
        mill_log_step(f.log, f.now);
        while (hogs_count > 0) {
            mill_extent_free(f.extents, hogs[--hogs_count]);
        }
        assert_int_equal(call_again(&call, partition), 0);
        assert_int_equal(call.result.error, errors[i]);
    }
    maker_build(m, VALUES);
    assert_int_equal(append(partition, true).base_offset, 0); /* and it works again */
    end();
}

static void test_no_memory_for_its_place_waits(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct call call;
    static uint32_t hogs[8192];
    uint32_t hogs_count = 0;
    begin();
    settings.compression = MILL_CODEC_GZIP;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, VALUES);
    assert_int_equal(call_begin(&call, partition), -EINPROGRESS);
    mill_log_step(f.log, f.now);
    for (uint32_t size = 4 << 20; size >= 4096; size /= 2) {
        while (hogs_count < MILL_COUNT_OF(hogs) &&
               mill_log_scratch(f.log, size, &hogs[hogs_count]) == 0) {
            hogs_count++;
        }
    }
    fixture_settle(&f);
    assert_false(call.fired);
    assert_true(mill_log_deadline(f.log) <= f.now.mono_ns + MILL_NS_PER_MS); /* no sleep on it */
    while (hogs_count > 0) {
        mill_extent_free(f.extents, hogs[--hogs_count]);
    }
    fixture_settle(&f);
    assert_int_equal(call_again(&call, partition), 0);
    assert_int_equal(call.result.base_offset, 0);
    assert_false(f.log->parked_starved);
    end();
}

static void test_failed_directory_answers_parked_appends(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct call call;
    begin();
    settings.compression = MILL_CODEC_GZIP;
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    maker_build(m, VALUES);
    assert_int_equal(call_begin(&call, partition), -EINPROGRESS);
    partition->full = true; /* as a WRITTEN with -ENOSPC sets it */
    fixture_settle(&f);
    assert_int_equal(call_again(&call, partition), 0);
    assert_int_equal(call.result.error, MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(call_begin(&call, partition), 0);
    assert_int_equal(call.result.error, MILL_KERR_KAFKA_STORAGE_ERROR);
    partition->full = false;
    assert_int_equal(append(partition, true).base_offset, 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compacted_topic_sees_keys_inside),
        cmocka_unit_test(test_topic_codec_replaces_the_producers),
        cmocka_unit_test(test_append_time_topic_recompresses_too),
        cmocka_unit_test(test_inside_is_checked_when_looked_at),
        cmocka_unit_test(test_bomb_is_refused_at_its_bound),
        cmocka_unit_test(test_grown_batch_fits_or_is_too_large),
        cmocka_unit_test(test_nothing_overtakes_a_parked_batch),
        cmocka_unit_test(test_woken_for_another_reason_waits_on),
        cmocka_unit_test(test_abandoned_append_is_stored_and_leaks_nothing),
        cmocka_unit_test(test_deleted_topic_ends_parked_appends),
        cmocka_unit_test(test_entries_and_dirty_bytes_are_bounded),
        cmocka_unit_test(test_turn_copies_a_bounded_number_of_bytes),
        cmocka_unit_test(test_memory_refused_is_a_retriable_error),
        cmocka_unit_test(test_no_memory_for_its_place_waits),
        cmocka_unit_test(test_failed_directory_answers_parked_appends),
    };
    return cmocka_run_group_tests_name("inside", tests, NULL, NULL);
}
