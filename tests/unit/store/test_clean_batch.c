/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what compaction makes of one batch, branch by branch, and which markers and aborted batches
 * may go. Method: batches made here in every codec, taken apart again by the walk of the protocol.
 */
#include "tests/unit/store/clean_rig.h"

#include "dataplane/store/clean_types.h"

enum {
    NOW_MS = 1700000000000 % INT32_MAX, /* any */
    BASE = 100,
    COUNT = 6,
};

static const struct mill_uuid secret = {{1, 2, 3}};

struct made {
    uint8_t bytes[8192];
    struct mill_batch batch;
};

struct seen {
    int32_t count;
    int64_t offsets[COUNT];
    int64_t timestamps[COUNT];
};

/* Records 0..count-1 with keys 0.. and times 1000.. ; those in tombstones have no value. */
static void make(struct made *made, enum mill_codec codec, int16_t attributes, uint32_t tombstones)
{
    uint8_t plain[2048];
    uint32_t size = 0;
    struct maker *m = maker_new();
    m->attributes = (int16_t)(attributes | (int16_t)codec);
    m->timestamp = 1000;
    maker_build(m, COUNT);
    for (int32_t i = 0; i < COUNT; i++) {
        size += rig_record_put(plain + size, i, i, i, tombstones & (1u << i) ? -1 : 7);
    }
    memcpy(made->bytes, m->bytes, MILL_BATCH_HEADER_BYTES);
    size_t packed = rig_pack(codec, made->bytes + MILL_BATCH_HEADER_BYTES,
                             sizeof(made->bytes) - MILL_BATCH_HEADER_BYTES, plain, size);
    uint32_t whole = MILL_BATCH_HEADER_BYTES + (uint32_t)packed;
    mill_store_be64(made->bytes, BASE);
    mill_store_be32(made->bytes + 8, whole - 12);
    mill_store_be64(made->bytes + 43, 55);
    mill_store_be16(made->bytes + 51, 3);
    mill_store_be32(made->bytes + 53, 17);
    mill_store_be32(made->bytes + 17, mill_crc32c(made->bytes + 21, whole - 21));
    mill_batch_read(made->bytes, &made->batch);
    free(m);
}

/* Header fields that never change, the sum, and the records. */
static void look(const struct made *made, const struct clean_result *result, struct seen *ret_seen)
{
    struct mill_batch batch;
    uint8_t *plain = NULL;
    mill_batch_read(result->bytes, &batch);
    assert_int_equal(mill_batch_size_bytes(&batch), result->size_bytes);
    assert_int_equal(batch.base_offset, BASE);
    assert_int_equal(batch.last_offset_delta, made->batch.last_offset_delta);
    assert_int_equal(batch.producer_id, 55);
    assert_int_equal(batch.producer_epoch, 3);
    assert_int_equal(batch.base_sequence, 17);
    assert_int_equal(mill_crc32c(result->bytes + 21, result->size_bytes - 21), batch.crc);
    *ret_seen = (struct seen){.count = batch.records_count};
    const uint8_t *records = result->bytes + MILL_BATCH_HEADER_BYTES;
    int64_t size = result->size_bytes - MILL_BATCH_HEADER_BYTES;
    if (batch.records_count == 0) {
        assert_int_equal(size, 0);
        assert_int_equal(mill_batch_codec(&batch), MILL_CODEC_NONE);
        assert_int_equal(batch.max_timestamp, made->batch.max_timestamp);
        assert_false(batch.attributes & MILL_BATCH_DELETE_HORIZON);
        return;
    }
    assert_int_equal(mill_batch_codec(&batch), mill_batch_codec(&made->batch));
    if (mill_batch_codec(&batch) != MILL_CODEC_NONE) {
        size = mill_unpack(mill_batch_codec(&batch), records, (size_t)size, 1 << 16, &plain);
        records = plain;
    }
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, records, (uint32_t)size);
    for (int32_t i = 0; i < batch.records_count; i++) {
        struct mill_record record;
        assert_int_equal(mill_record_next(&at, &record), 0);
        ret_seen->offsets[i] = BASE + record.offset_delta;
        ret_seen->timestamps[i] = batch.base_timestamp + record.timestamp_delta;
    }
    assert_int_equal(at.left_bytes, 0);
    free(plain);
}

/* A map in which the keys of the mask have a later record. */
static struct clean_map map_of(uint32_t superseded, int64_t latest)
{
    struct clean_map map;
    assert_int_equal(mill_clean_map_init(&map, 1 << 16, 100, &secret), 0);
    for (int32_t i = 0; i < COUNT; i++) {
        char key[16];
        snprintf(key, sizeof(key), "key-%d", i);
        assert_true(mill_clean_map_put(&map, key, (uint32_t)strlen(key),
                                       superseded & (1u << i) ? 1000 : BASE + i));
    }
    map.latest = latest;
    return map;
}

static void test_every_mask_and_codec(void **state)
{
    MILL_UNUSED(state);
    static struct made made;
    struct clean_work work = {0};
    for (enum mill_codec codec = 0; codec < MILL_CODEC_COUNT; codec++) {
        for (uint32_t mask = 0; mask < 1u << COUNT; mask++) {
            make(&made, codec, 0, 0);
            struct clean_map map = map_of(mask, 2000);
            struct clean_rules rules = {.map = &map, .now_ms = NOW_MS, .keep_empty = mask % 2};
            struct clean_result result;
            assert_int_equal(mill_clean_batch(&work, &rules, &made.batch, made.bytes, &result), 0);
            mill_clean_map_fini(&map);
            int32_t want = COUNT - __builtin_popcount(mask);
            assert_int_equal(result.records_in, COUNT);
            assert_int_equal(result.records_out, want);
            assert_int_equal(result.changed, mask != 0);
            if (want == 0 && !rules.keep_empty) {
                assert_null(result.bytes);
                continue;
            }
            assert_true(mask != 0 || result.bytes == made.bytes);
            struct seen seen;
            look(&made, &result, &seen);
            assert_int_equal(seen.count, want);
            int32_t at = 0;
            for (int32_t i = 0; i < COUNT; i++) {
                if (!(mask & (1u << i))) {
                    assert_int_equal(seen.offsets[at], BASE + i);
                    assert_int_equal(seen.timestamps[at++], 1000 + i);
                }
            }
        }
    }
    mill_clean_work_fini(&work);
}

/* What lies above the map's end stays, superseded or not; keyless records do not. */
static void test_beyond_the_map_stays(void **state)
{
    MILL_UNUSED(state);
    static struct made made;
    struct clean_work work = {0};
    struct clean_result result;
    struct seen seen;
    make(&made, MILL_CODEC_NONE, 0, 0);
    struct clean_map map = map_of((1u << COUNT) - 1, BASE + 2);
    struct clean_rules rules = {.map = &map, .now_ms = NOW_MS};
    assert_int_equal(mill_clean_batch(&work, &rules, &made.batch, made.bytes, &result), 0);
    look(&made, &result, &seen);
    assert_int_equal(seen.count, COUNT - 3);
    assert_int_equal(seen.offsets[0], BASE + 3);
    struct maker *m = maker_new();
    m->no_keys = true;
    maker_build(m, 2);
    struct mill_batch batch;
    mill_batch_read(m->bytes, &batch);
    assert_int_equal(mill_clean_batch(&work, &rules, &batch, m->bytes, &result), 0);
    assert_null(result.bytes);
    free(m);
    mill_clean_map_fini(&map);
    mill_clean_work_fini(&work);
}

/* The first time a tombstone is seen its horizon is set, the times stay; after it the tombstone
 * goes, the others stay. Far horizons do not overflow. */
static void test_horizon(void **state)
{
    MILL_UNUSED(state);
    static struct made made;
    static struct made second;
    static const int64_t lives[] = {0, 1, 86400000, INT64_MAX};
    struct clean_work work = {0};
    struct clean_map map = map_of(1, 2000);
    for (enum mill_codec codec = 0; codec < MILL_CODEC_COUNT; codec++) {
        for (size_t i = 0; i < MILL_COUNT_OF(lives); i++) {
            struct clean_result result;
            struct seen seen;
            struct clean_rules rules = {
                .map = &map, .now_ms = NOW_MS, .delete_retention_ms = lives[i]};
            make(&made, codec, 0, 1u << 2);
            assert_int_equal(mill_clean_batch(&work, &rules, &made.batch, made.bytes, &result), 0);
            look(&made, &result, &seen);
            assert_int_equal(seen.count, COUNT - 1);
            for (int32_t j = 0; j < seen.count; j++) {
                assert_int_equal(seen.timestamps[j], 1001 + j);
            }
            memcpy(second.bytes, result.bytes, result.size_bytes);
            mill_batch_read(second.bytes, &second.batch);
            assert_true(second.batch.attributes & MILL_BATCH_DELETE_HORIZON);
            int64_t horizon = lives[i] == INT64_MAX ? INT64_MAX : NOW_MS + lives[i];
            assert_int_equal(second.batch.base_timestamp, horizon);
            assert_int_equal(second.batch.max_timestamp, 1000 + COUNT - 1);
            rules.now_ms = horizon - 1;
            if (lives[i] > 0) {
                assert_int_equal(
                    mill_clean_batch(&work, &rules, &second.batch, second.bytes, &result), 0);
                assert_ptr_equal(result.bytes, second.bytes); /* the horizon is set once */
            }
            rules.now_ms = horizon;
            assert_int_equal(mill_clean_batch(&work, &rules, &second.batch, second.bytes, &result),
                             0);
            look(&made, &result, &seen);
            assert_int_equal(seen.count, COUNT - 2);
            assert_int_equal(seen.offsets[1], BASE + 3);
            assert_int_equal(seen.timestamps[1], 1003);
        }
    }
    mill_clean_map_fini(&map);
    mill_clean_work_fini(&work);
}

static void test_append_time_and_damage(void **state)
{
    MILL_UNUSED(state);
    static struct made made;
    struct clean_work work = {0};
    struct clean_result result;
    struct clean_map map = map_of(1, 2000);
    struct clean_rules rules = {.map = &map, .now_ms = NOW_MS};
    make(&made, MILL_CODEC_GZIP, MILL_BATCH_APPEND_TIME, 0);
    mill_store_be64(made.bytes + 35, 123456); /* the batch's time is that of all its records */
    mill_batch_read(made.bytes, &made.batch);
    assert_int_equal(mill_clean_batch(&work, &rules, &made.batch, made.bytes, &result), 0);
    struct mill_batch batch;
    mill_batch_read(result.bytes, &batch);
    assert_int_equal(batch.max_timestamp, 123456);
    made.bytes[MILL_BATCH_HEADER_BYTES + 12] ^= 0xff;
    made.bytes[MILL_BATCH_HEADER_BYTES + 14] ^= 0xff;
    assert_int_equal(mill_clean_batch(&work, &rules, &made.batch, made.bytes, &result), -EBADMSG);
    make(&made, MILL_CODEC_NONE, 0, 0);
    made.batch.records_count++; /* promises one more than there is */
    assert_int_equal(mill_clean_batch(&work, &rules, &made.batch, made.bytes, &result), -EBADMSG);
    rules.discard = true; /* what goes anyway need not be readable */
    assert_int_equal(mill_clean_batch(&work, &rules, &made.batch, made.bytes, &result), 0);
    assert_null(result.bytes);
    mill_clean_map_fini(&map);
    mill_clean_work_fini(&work);
}

static void test_map_bounds(void **state)
{
    MILL_UNUSED(state);
    struct clean_map map;
    assert_int_equal(mill_clean_map_init(&map, 63 * sizeof(struct clean_slot), 1, &secret),
                     -EINVAL);
    assert_int_equal(mill_clean_map_init(&map, 128 * sizeof(struct clean_slot), 1 << 20, &secret),
                     0);
    uint64_t put = 0;
    char key[16];
    for (; put < 1000; put++) {
        snprintf(key, sizeof(key), "%llu", (unsigned long long)put);
        if (!mill_clean_map_put(&map, key, (uint32_t)strlen(key), (int64_t)put)) {
            break;
        }
    }
    assert_int_equal(put, 128 * 90 / 100);
    assert_true(mill_clean_map_put(&map, "7", 1, 5000)); /* known: no room is needed */
    assert_int_equal(mill_clean_map_get(&map, "7", 1), 5000);
    assert_int_equal(mill_clean_map_get(&map, "8", 1), 8);
    assert_int_equal(mill_clean_map_get(&map, "none", 4), -1);
    assert_int_equal(mill_clean_map_get(&map, "", 0), -1);
    mill_clean_map_fini(&map);
}

/* --- transactions -------------------------------------------------------------------------------
 */

static void entry_put(uint8_t *at, int64_t producer_id, int64_t first, int64_t last)
{
    mill_store_be16(at, 0);
    mill_store_be64(at + 2, (uint64_t)producer_id);
    mill_store_be64(at + 10, (uint64_t)first);
    mill_store_be64(at + 18, (uint64_t)last);
    mill_store_be64(at + 26, (uint64_t)last + 1);
}

static int data(struct clean_txns *txns, int64_t offset, int64_t producer_id, bool transactional)
{
    struct mill_batch batch = {.base_offset = offset,
                               .producer_id = producer_id,
                               .attributes = transactional ? MILL_BATCH_TRANSACTIONAL : 0};
    return mill_clean_txns_batch(txns, &batch);
}

static bool marker(struct clean_txns *txns, int64_t offset, int64_t producer_id, bool commit,
                   int64_t *ret_first)
{
    struct mill_batch batch = {.base_offset = offset, .producer_id = producer_id};
    struct clean_aborted entry = {.first_offset = -1};
    bool needed = false;
    int spent = mill_clean_txns_marker(txns, &batch, commit, &entry, &needed);
    assert_true(spent >= 0);
    *ret_first = needed ? entry.first_offset : -1;
    return spent == 1;
}

static void test_transactions(void **state)
{
    MILL_UNUSED(state);
    uint8_t entries[3 * CLEAN_TXN_ENTRY_BYTES];
    struct clean_txns txns = {0};
    int64_t first;
    entry_put(entries, 2, 30, 45); /* in the order of their markers */
    entry_put(entries + CLEAN_TXN_ENTRY_BYTES, 1, 10, 50);
    entry_put(entries + 2 * CLEAN_TXN_ENTRY_BYTES, 1, 60, 70);
    assert_int_equal(mill_clean_txns_add(&txns, entries, sizeof(entries) - 1), -EBADMSG);
    assert_int_equal(mill_clean_txns_add(&txns, entries, sizeof(entries)), 0);
    for (int pass = 0; pass < 2; pass++) {
        mill_clean_txns_begin(&txns);
        assert_int_equal(data(&txns, 5, 1, true), 0); /* an earlier one, committed */
        assert_false(marker(&txns, 6, 1, true, &first));
        assert_true(marker(&txns, 7, 1, true, &first)); /* nothing is left of this one */
        assert_int_equal(data(&txns, 10, 1, true), 1);
        assert_int_equal(data(&txns, 20, 2, true), 0);
        assert_int_equal(data(&txns, 21, 1, false), 0); /* not part of it */
        assert_false(marker(&txns, 25, 2, true, &first));
        assert_int_equal(data(&txns, 30, 2, true), 1);
        assert_int_equal(data(&txns, 40, 1, true), 1);
        assert_false(marker(&txns, 45, 2, false, &first));
        assert_int_equal(first, 30);
        assert_false(marker(&txns, 50, 1, false, &first));
        assert_int_equal(first, 10);
        /* All batches of the third are gone: so may its marker, and its entry. */
        assert_true(marker(&txns, 70, 1, false, &first));
        assert_int_equal(first, -1);
        assert_int_equal(data(&txns, 80, 1, true), 0);
        assert_false(marker(&txns, 81, 1, true, &first));
    }
    mill_store_be16(entries, 1);
    assert_int_equal(mill_clean_txns_add(&txns, entries, sizeof(entries)), -EBADMSG);
    mill_clean_txns_fini(&txns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mask_and_codec),
        cmocka_unit_test(test_beyond_the_map_stays),
        cmocka_unit_test(test_horizon),
        cmocka_unit_test(test_append_time_and_damage),
        cmocka_unit_test(test_map_bounds),
        cmocka_unit_test(test_transactions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
