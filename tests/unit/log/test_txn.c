/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: transactions of a partition as KIP-98 says: what may be appended, what a marker ends, who
 * is fenced, how far a read_committed reader sees and what it is told of aborted ones, within
 * bounded tables. Method: one partition, each rule by hand; test_txn of the store runs a model. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>

#include "tests/unit/log/one_partition.h"

static struct mill_read_result got;
static struct txn_read seen;

static struct mill_append_result write_txn(struct mill_partition *p, int64_t id, int32_t sequence,
                                           bool verified)
{
    return txn_write(&f, p, m, id, 0, sequence, 2, verified);
}

static void read_all(struct mill_partition *p, int64_t offset)
{
    txn_read(&f, p, offset, 1 << 20, &got, &seen);
    assert_int_equal(got.error, 0);
}

static void test_append_needs_a_verified_transaction(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    assert_int_equal(write_txn(p, 9, 0, false).error, MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(mill_partition_end(p), 0);
    assert_int_equal(write_txn(p, 9, 0, true).error, 0);
    assert_int_equal(write_txn(p, 9, 2, false).error, 0); /* it is open: nobody has to vouch */
    assert_true(write_txn(p, 9, 2, false).duplicate);
    m->attributes = 0;
    m->sequence = 4;
    maker_build(m, 1);
    struct mill_append_result result;
    assert_int_equal(txn_append(&f, p, m, true, &result), 0);
    assert_int_equal(result.error, MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(txn_end(&f, p, 9, 0, true, 1).error, 0);
    assert_int_equal(write_txn(p, 9, 4, false).error, MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(mill_log_stats(f.log)->transactions, 0);
    teardown();
}

/* A grant lets in one epoch of one producer, until the marker that ends its transaction. */
static void test_grant_ends_with_the_marker(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    assert_int_equal(mill_log_grant(p, 9, 3), 0);
    assert_int_equal(mill_log_grant(p, 9, 3), 0); /* again changes nothing */
    assert_int_equal(txn_write(&f, p, m, 9, 2, 0, 1, false).error, MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(txn_write(&f, p, m, 8, 3, 0, 1, false).error, MILL_KERR_INVALID_TXN_STATE);
    /* Nothing of the producer was in the log: it may go on where it was elsewhere. */
    assert_int_equal(txn_write(&f, p, m, 9, 3, 70, 1, false).error, 0);
    assert_int_equal(txn_end(&f, p, 9, 3, true, 0).error, 0);
    assert_int_equal(txn_write(&f, p, m, 9, 3, 71, 1, false).error, MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(mill_partition_stable(p), mill_partition_end(p));
    /* One that is not used ends as well, and its holder is fenced by the newer epoch. */
    assert_int_equal(mill_log_grant(p, 9, 3), 0);
    assert_int_equal(txn_end(&f, p, 9, 4, false, 0).error, 0);
    assert_int_equal(txn_write(&f, p, m, 9, 3, 71, 1, false).error,
                     MILL_KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(mill_log_grant(p, 9, 3), MILL_KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(mill_log_stats(f.log)->transactions, 0);
    teardown();
}

/* A batch that adds its partition asks first, without a byte copied; what is known against it is
 * said at once. */
static void test_batch_that_adds_asks_for_its_grant(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    struct mill_append_result result = txn_write_adding(&f, p, m, 9, 0, 0, 1);
    assert_true(result.unvouched);
    assert_int_equal(result.bytes_copied, 0);
    assert_int_equal(mill_partition_end(p), 0);
    assert_int_equal(mill_log_grant(p, 9, 0), 0);
    /* Each transaction has an epoch of its own, and begins with its first batch. */
    result = txn_write_adding(&f, p, m, 9, 0, 5, 1);
    assert_false(result.unvouched);
    assert_int_equal(result.error, MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(txn_write_adding(&f, p, m, 9, 0, 0, 1).error, 0);
    assert_int_equal(txn_write_adding(&f, p, m, 9, 0, 1, 1).error, 0);
    assert_true(txn_write_adding(&f, p, m, 9, 0, 1, 1).duplicate);
    assert_int_equal(txn_mark(&f, p, 9, 1, true, true, 0).error, 0);
    /* Late ones: the marker's epoch is above theirs, nobody has to be asked. */
    for (int32_t sequence = 1; sequence < 3; sequence++) {
        result = txn_write_adding(&f, p, m, 9, 0, sequence, 1);
        assert_false(result.unvouched);
        assert_int_equal(result.error, MILL_KERR_INVALID_PRODUCER_EPOCH);
    }
    result = txn_write_adding(&f, p, m, 9, 1, 0, 1);
    assert_true(result.unvouched);
    assert_int_equal(mill_log_grant(p, 9, 1), 0);
    assert_int_equal(txn_write_adding(&f, p, m, 9, 1, 2, 1).error,
                     MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(txn_write_adding(&f, p, m, 9, 1, 0, 1).error, 0);
    assert_int_equal(txn_mark(&f, p, 9, 2, true, false, 0).error, 0);
    assert_int_equal(mill_log_stats(f.log)->transactions, 0);
    teardown();
}

/* A marker that comes once more meets the next transaction, which has its epoch: it ends it not. */
static void test_late_marker_ends_no_other_transaction(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    assert_int_equal(txn_write(&f, p, m, 9, 0, 0, 1, true).error, 0);
    assert_int_equal(txn_mark(&f, p, 9, 1, true, true, 0).error, 0);
    assert_int_equal(mill_log_grant(p, 9, 1), 0);
    /* Nothing is open yet: it is written, as any repeated one, and the grant stays. */
    assert_int_equal(txn_mark(&f, p, 9, 1, true, true, 0).error, 0);
    assert_int_equal(txn_write(&f, p, m, 9, 1, 0, 1, false).error, 0);
    assert_int_equal(txn_mark(&f, p, 9, 1, true, false, 0).error, MILL_KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(mill_log_stats(f.log)->transactions, 1);
    assert_int_equal(txn_write(&f, p, m, 9, 1, 1, 1, false).error, 0);
    assert_int_equal(txn_mark(&f, p, 9, 2, true, true, 0).error, 0);
    /* Where epochs end, one that is repeated ends what it ended. */
    assert_int_equal(txn_write(&f, p, m, 8, INT16_MAX, 0, 1, true).error, 0);
    assert_int_equal(txn_mark(&f, p, 8, INT16_MAX, true, false, 0).error, 0);
    assert_int_equal(txn_write(&f, p, m, 8, INT16_MAX, 1, 1, false).error,
                     MILL_KERR_INVALID_TXN_STATE);
    assert_int_equal(mill_log_stats(f.log)->transactions, 0);
    teardown();
}

/* As one with an open transaction: others may write as many as they like. */
static void test_grant_is_not_forgotten(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    assert_int_equal(mill_log_grant(p, 1000, 0), 0);
    for (int64_t id = 0; id < 200; id++) {
        m->attributes = 0;
        m->producer_id = id;
        m->epoch = 0;
        m->sequence = 0;
        maker_build(m, 1);
        maker_must(&f, p, m);
    }
    assert_int_equal(write_txn(p, 1000, 0, false).error, 0);
    txn_end(&f, p, 1000, 0, true, 0);
    /* Its time as one of many begins with the marker. */
    for (int64_t id = 200; id < 400; id++) {
        m->attributes = 0;
        m->producer_id = id;
        m->sequence = 0;
        maker_build(m, 1);
        maker_must(&f, p, m);
    }
    assert_int_equal(write_txn(p, 1000, 2, false).error, MILL_KERR_INVALID_TXN_STATE);
    teardown();
}

/* Until the coordinator has told all, nobody is refused for good. */
/* They cost a client nothing: a quarter of the table, and the others are not pushed out by them. */
static void test_grants_are_bounded(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    uint32_t most = f.limits.producers_max / 4;
    for (uint32_t i = 0; i < most; i++) {
        assert_int_equal(mill_log_grant(p, 1000 + i, 0), 0);
    }
    assert_int_equal(mill_log_grant(p, 5000, 0), MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(mill_log_grant(p, 1000, 1), 0); /* one that has it already */
    teardown();
}

/* After a clean end the file of aborted transactions grew; the power cut left its name and size,
 * and zeroes: nothing of it is believed, what the log has is told. */
static void test_zeroed_index_of_aborted_is_made_anew(void **state)
{
    MILL_UNUSED(state);
    enum { EARLIER = 5, LATER = 4, ENTRY_BYTES = 34 };
    struct mill_log_settings settings = fixture_settings();
    struct mill_partition *p = setup();
    for (int32_t i = 0; i < EARLIER + LATER; i++) {
        if (i == EARLIER) {
            fixture_close(&f, true);
            fixture_open(&f);
            p = fixture_partition(&f, 0, &settings);
        }
        assert_int_equal(write_txn(p, 9 + i, 0, true).error, 0);
        assert_int_equal(txn_end(&f, p, 9 + i, 0, false, 1).error, 0);
    }
    fixture_settle(&f);
    fixture_close(&f, false);
    char path[200];
    static const uint8_t zeroes[LATER * ENTRY_BYTES];
    snprintf(path, sizeof(path), "%s/topic-a-0/00000000000000000000.txnindex", f.logs);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, zeroes, sizeof(zeroes), EARLIER * ENTRY_BYTES), sizeof(zeroes));
    close(file);
    fixture_open(&f);
    p = fixture_partition(&f, 0, &settings);
    read_all(p, 0);
    assert_int_equal(seen.aborted_count, EARLIER + LATER);
    for (int32_t i = 0; i < EARLIER + LATER; i++) {
        assert_int_equal(seen.aborted[i][0], 9 + i);
    }
    teardown();
}

static void test_late_grants_are_waited_for(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    struct mill_append_result result;
    struct mill_buf buf;
    m->producer_id = 5;
    m->epoch = 0;
    m->sequence = 0;
    m->attributes = MILL_BATCH_TRANSACTIONAL;
    maker_build(m, 1);
    struct mill_append append = {.size_bytes = m->size,
                                 .api_version = 9,
                                 .acks = -1,
                                 .transactional_id = true,
                                 .grants_late = true};
    append.records = mill_cursor_over(&buf, m->bytes, m->size);
    assert_int_equal(mill_log_append(p, &append, f.now, NULL, &result), 0);
    assert_int_equal(result.error, MILL_KERR_NOT_ENOUGH_REPLICAS);
    assert_int_equal(mill_log_grant(p, 5, 0), 0);
    append.records = mill_cursor_over(&buf, m->bytes, m->size);
    assert_int_equal(mill_log_append(p, &append, f.now, NULL, &result), 0);
    assert_int_equal(result.error, 0);
    txn_end(&f, p, 5, 0, true, 0);
    teardown();
}

static void test_append_without_id_or_producer_is_refused(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    struct mill_append_result result;
    m->attributes = MILL_BATCH_TRANSACTIONAL;
    maker_build(m, 1);
    assert_int_equal(txn_append(&f, p, m, true, &result), 0);
    assert_int_equal(result.error, MILL_KERR_INVALID_RECORD);
    m->producer_id = 4;
    m->epoch = 0;
    m->sequence = 0;
    maker_build(m, 1);
    assert_int_equal(maker_append(&f, p, m, &result), 0); /* no transactional id */
    assert_int_equal(result.error, MILL_KERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    m->attributes = MILL_BATCH_TRANSACTIONAL | MILL_BATCH_CONTROL;
    maker_build(m, 1);
    assert_int_equal(txn_append(&f, p, m, true, &result), 0);
    assert_int_equal(result.error, MILL_KERR_INVALID_RECORD);
    assert_int_equal(mill_partition_end(p), 0);
    teardown();
}

/* The control batch, byte by byte (KIP-98). */
static void test_marker_is_laid_out_as_kafkas(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    write_txn(p, 9, 0, true);
    assert_int_equal(txn_end(&f, p, 9, 0, false, 0x01020304).base_offset, 2);
    struct mill_read read = {
        .offset = 2, .bytes_max = 1000, .current_epoch = -1, .last_epoch = -1, .refs_max = 1};
    fixture_read(&f, p, &read, &got);
    assert_int_equal(got.bytes, 78);
    const uint8_t *at = mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
    static const uint8_t record[] = {32, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 1, 2, 3, 4, 0};
    assert_int_equal(mill_load_be64(at), 2);
    assert_int_equal(mill_load_be32(at + 8), 66);
    assert_int_equal(mill_load_be16(at + 21), 0x30);
    assert_int_equal(mill_load_be32(at + 17), mill_crc32c(at + 21, 57));
    assert_int_equal(mill_load_be64(at + 35), (uint64_t)f.now.wall_ms);
    assert_int_equal(mill_load_be64(at + 43), 9);
    assert_int_equal((int32_t)mill_load_be32(at + 53), -1);
    assert_int_equal(mill_load_be32(at + 57), 1);
    assert_memory_equal(at + 61, record, sizeof(record));
    teardown();
}

static void test_marker_fences_older_epochs(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    write_txn(p, 9, 0, true);
    assert_int_equal(txn_end(&f, p, 9, 1, false, 5).error, 0); /* with the epoch raised */
    assert_int_equal(mill_partition_stable(p), 3);
    assert_int_equal(txn_end(&f, p, 9, 0, false, 5).error, MILL_KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(txn_end(&f, p, 9, 1, false, 4).error,
                     MILL_KERR_TRANSACTION_COORDINATOR_FENCED);
    assert_int_equal(mill_partition_end(p), 3);
    assert_int_equal(write_txn(p, 9, 2, true).error, MILL_KERR_INVALID_PRODUCER_EPOCH);
    /* Nothing of the new epoch was written yet: it begins at 0. */
    assert_int_equal(txn_write(&f, p, m, 9, 1, 3, 1, true).error,
                     MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(txn_write(&f, p, m, 9, 1, 0, 1, true).error, 0);
    assert_int_equal(txn_end(&f, p, 77, 3, true, 1).error, 0); /* of one that wrote nothing */
    assert_int_equal(mill_partition_stable(p), 3);
    teardown();
}

static void test_committed_reader_stops_at_open_ones(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    write_txn(p, 1, 0, true); /* 0, 1 */
    write_txn(p, 2, 0, true); /* 2, 3 */
    assert_int_equal(mill_partition_stable(p), 0);
    read_all(p, 0);
    assert_int_equal(got.bytes, 0);
    assert_int_equal(got.stable_offset, 0);
    assert_int_equal(got.high_watermark, 4);
    txn_end(&f, p, 2, 0, false, 0); /* 4: behind an open one */
    assert_int_equal(mill_partition_stable(p), 0);
    txn_end(&f, p, 1, 0, true, 0); /* 5 */
    assert_int_equal(mill_partition_stable(p), 6);
    read_all(p, 0);
    assert_int_equal(seen.data_end, 6);
    assert_int_equal(seen.aborted_count, 1);
    assert_int_equal(seen.aborted[0][0], 2);
    assert_int_equal(seen.aborted[0][1], 2);
    read_all(p, 5); /* behind its marker */
    assert_int_equal(seen.aborted_count, 0);
    teardown();
}

static void test_committed_watch_waits_for_the_marker(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    bool fired[2] = {false, false};
    struct mill_log_watch watch = {.user = &fired[0]};
    struct mill_log_watch committed = {.user = &fired[1], .committed = true};
    mill_log_watch_data(p, &watch, 0, 1);
    mill_log_watch_data(p, &committed, 0, 1);
    write_txn(p, 1, 0, true);
    fixture_settle(&f);
    assert_true(fired[0]);
    assert_false(fired[1]);
    write_txn(p, 1, 2, true);
    fixture_settle(&f);
    assert_false(fired[1]);
    txn_end(&f, p, 1, 0, true, 0);
    fixture_settle(&f);
    assert_true(fired[1]);
    teardown();
}

static void test_marker_holds_until_it_is_synced(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    settings.flush_messages = 1;
    fixture_make(&f, NULL);
    fixture_open(&f);
    m = maker_new();
    struct mill_partition *p = fixture_partition(&f, 0, &settings);
    write_txn(p, 1, 0, true);
    fixture_settle(&f);
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    mill_log_watch_flush(p, &watch, 2);
    fixture_settle(&f);
    assert_true(fired);
    assert_int_equal(mill_partition_high_watermark(p), 2);
    assert_int_equal(mill_partition_stable(p), 0);
    struct mill_append_result result = txn_end(&f, p, 1, 0, true, 0);
    assert_true(result.must_flush);
    assert_int_equal(mill_partition_stable(p), 0); /* its marker may be lost still */
    write_txn(p, 1, 2, true);                      /* the next one of the same producer */
    assert_int_equal(mill_log_stats(f.log)->transactions, 2);
    fired = false;
    mill_log_watch_flush(p, &watch, 5);
    fixture_settle(&f);
    assert_true(fired);
    assert_int_equal(mill_partition_high_watermark(p), 5);
    assert_int_equal(mill_partition_stable(p), 3);
    assert_int_equal(mill_log_stats(f.log)->transactions, 1);
    teardown();
}

static void test_time_of_open_transaction_is_no_match(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    struct mill_time_result result;
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    write_txn(p, 1, 0, true);
    for (int committed = 0; committed < 2; committed++) {
        while (mill_log_find_time(p, m->timestamp, committed == 1, &watch, &result) != 0) {
            fixture_settle(&f);
        }
        assert_int_equal(result.error, 0);
        assert_int_equal(result.offset, committed == 1 ? -1 : 0);
    }
    teardown();
}

static void test_tables_full_refuse_and_recover(void **state)
{
    MILL_UNUSED(state);
    fixture_make(&f, NULL);
    f.limits.transactions_max = 8;
    fixture_open(&f);
    m = maker_new();
    struct mill_log_settings settings = fixture_settings();
    struct mill_partition *p = fixture_partition(&f, 0, &settings);
    for (int64_t id = 0; id < 8; id++) {
        assert_int_equal(write_txn(p, id, 0, true).error, 0);
    }
    assert_int_equal(write_txn(p, 8, 0, true).error, MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(mill_log_stats(f.log)->transactions_full, 1);
    assert_int_equal(write_txn(p, 7, 2, true).error, 0);
    txn_end(&f, p, 3, 0, true, 0);
    assert_int_equal(write_txn(p, 8, 0, true).error, 0);
    teardown();
}

/* Producers with an open transaction are never forgotten, however many others write. */
static void test_open_transaction_is_not_forgotten(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    write_txn(p, 1000, 0, true);
    for (int64_t id = 0; id < 200; id++) {
        m->attributes = 0;
        m->producer_id = id;
        m->epoch = 0;
        m->sequence = 0;
        maker_build(m, 1);
        maker_must(&f, p, m);
    }
    fixture_step(&f, 2 * 86400000ull);
    for (int i = 0; i < 5; i++) {
        fixture_step(&f, 11000);
    }
    assert_int_equal(mill_log_stats(f.log)->producers, 1);
    assert_int_equal(mill_partition_stable(p), 0);
    m->timestamp = f.now.wall_ms;
    assert_int_equal(write_txn(p, 1000, 2, false).error, 0);
    txn_end(&f, p, 1000, 0, true, 0);
    assert_int_equal(mill_partition_stable(p), mill_partition_end(p));
    teardown();
}

/* The same in an opening, which is told all producers, the oldest first, before transactions. */
static void test_open_transaction_is_not_forgotten_at_start(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_partition *p = setup();
    write_txn(p, 1000, 0, true);
    for (int64_t id = 0; id < 200; id++) {
        m->attributes = 0;
        m->producer_id = id;
        m->epoch = 0;
        m->sequence = 0;
        maker_build(m, 1);
        maker_must(&f, p, m);
    }
    fixture_settle(&f);
    for (int clean = 0; clean < 2; clean++) {
        fixture_close(&f, clean == 1);
        fixture_open(&f);
        p = fixture_partition(&f, 0, &settings);
        assert_int_equal(mill_partition_state_of(p), MILL_LOG_SERVING);
        assert_int_equal(mill_partition_stable(p), 0);
        assert_int_equal(mill_log_stats(f.log)->transactions, 1);
    }
    assert_int_equal(write_txn(p, 1000, 2, false).error, 0);
    txn_end(&f, p, 1000, 0, true, 0);
    fixture_settle(&f);
    assert_int_equal(mill_partition_stable(p), mill_partition_end(p));
    teardown();
}

/* An abort whose place in the ring holds one that is not in the files waits; nothing is lost. */
static void test_ring_of_aborted_waits_for_the_files(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    struct mill_append_result result;
    struct mill_marker_append marker = {.marker = {.type = MILL_MARKER_ABORT}};
    int r = 0;
    int64_t id = 0;
    for (; id < 100 && r == 0; id++) {
        write_txn(p, id, 0, true);
        marker.producer_id = id;
        r = mill_log_append_marker(p, &marker, f.now, &result);
    }
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(id, 17); /* one more than the ring has */
    fixture_settle(&f);
    assert_int_equal(mill_log_append_marker(p, &marker, f.now, &result), 0);
    read_all(p, 0); /* the first fell out of the ring: the files know it */
    assert_int_equal(seen.aborted_count, 17);
    for (int64_t i = 0; i < 17; i++) {
        assert_int_equal(seen.aborted[i][0], i);
        assert_int_equal(seen.aborted[i][1], 3 * i);
    }
    read_all(p, 3 * 5);
    assert_int_equal(seen.aborted_count, 12);
    teardown();
}

struct ended {
    int64_t first;
    int64_t last;
};

enum {
    LONG_ONES = 24000, /* open over all of it */
    SHORT_SETS = 4,
    SHORT_ONES = 4000, /* of one set, which is aborted before the next begins */
};

/* A log whose reads overlap more transactions than a list has room for. ret: in the order of their
 * markers, id by id from LONG_ONES on. */
static struct ended *make_overlapping(struct mill_partition *p, int64_t *ret_end)
{
    struct ended *ended = calloc(LONG_ONES + SHORT_SETS * SHORT_ONES, sizeof(ended[0]));
    int64_t *firsts = calloc(LONG_ONES, sizeof(firsts[0]));
    uint32_t count = 0;
    assert_true(ended && firsts);
    for (int64_t id = 0; id < LONG_ONES; id++) {
        firsts[id] = txn_write(&f, p, m, id, 0, 0, 1, true).base_offset;
    }
    for (int64_t set = 0; set < SHORT_SETS; set++) {
        int64_t from = LONG_ONES + set * SHORT_ONES;
        for (int64_t id = from; id < from + SHORT_ONES; id++) {
            ended[id - LONG_ONES].first = txn_write(&f, p, m, id, 0, 0, 1, true).base_offset;
        }
        for (int64_t id = from; id < from + SHORT_ONES; id++) {
            ended[count++].last = txn_end(&f, p, id, 0, false, 0).base_offset;
        }
    }
    for (int64_t id = LONG_ONES - 1; id >= 0; id--) { /* nothing is stable before the last */
        ended[count++] = (struct ended){firsts[id], txn_end(&f, p, id, 0, false, 0).base_offset};
    }
    *ret_end = ended[count - 1].last + 1;
    free(firsts);
    return ended;
}

/* It gets less data than it could, the list of just that, and the whole log in the end. */
static void test_list_that_does_not_fit_shortens_the_read(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    fixture_make(&f, NULL);
    f.limits.transactions_max = LONG_ONES + SHORT_ONES;
    f.limits.producers_max = LONG_ONES + SHORT_SETS * SHORT_ONES;
    f.limits.aborted_max = 4096;
    fixture_open(&f);
    m = maker_new();
    struct mill_partition *p = fixture_partition(&f, 0, &settings);
    m->no_keys = true;
    m->value_bytes = 0;
    int64_t end;
    struct ended *ended = make_overlapping(p, &end);
    fixture_settle(&f);
    fixture_step(&f, 4000); /* what is written leaves memory */
    fixture_step(&f, 4000);
    assert_int_equal(mill_partition_stable(p), end);
    uint32_t reads = 0;
    uint32_t most = 0;
    for (int64_t offset = 0; offset < end; offset = seen.data_end) {
        read_all(p, offset);
        assert_true(seen.data_end > offset);
        uint32_t at = 0;
        for (uint32_t i = 0; i < LONG_ONES + SHORT_SETS * SHORT_ONES; i++) {
            if (ended[i].last >= offset && ended[i].first < seen.data_end) {
                assert_true(at < seen.aborted_count);
                assert_int_equal(seen.aborted[at++][1], ended[i].first);
            }
        }
        assert_int_equal(at, seen.aborted_count);
        most = MILL_MAX(most, at);
        reads++;
    }
    assert_in_range(most, LONG_ONES + SHORT_ONES, 32768);
    assert_in_range(reads, 5, 100);
    free(ended);
    teardown();
}

static struct mill_partition *open_any(int32_t index)
{
    struct mill_log_settings settings = fixture_settings();
    struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    struct mill_partition *partition = NULL;
    fixture_must(&f, mill_log_open(f.log, &id, "topic-a", index, 3, &settings, &partition));
    fixture_settle(&f);
    return partition;
}

/* Fewer cores than before: one log may not have room for what all left open. */
static void test_more_open_ones_than_room_are_refused(void **state)
{
    MILL_UNUSED(state);
    char path[200];
    fixture_make(&f, NULL);
    f.limits.transactions_max = 12;
    fixture_open(&f);
    m = maker_new();
    struct mill_partition *p[3] = {open_any(0), open_any(1), open_any(2)};
    for (int64_t id = 0; id < 12; id++) {
        assert_int_equal(write_txn(p[id / 6], id, 0, true).error, 0);
    }
    fixture_close(&f, true);
    f.limits.transactions_max = 8;
    fixture_open(&f);
    for (int32_t i = 0; i < 3; i++) {
        p[i] = open_any(i);
        assert_int_equal(mill_partition_state_of(p[i]),
                         i == 1 ? MILL_LOG_FAILED : MILL_LOG_SERVING);
    }
    assert_true(fixture_was_said(&f, "store.transactions"));
    assert_int_equal(write_txn(p[2], 100, 0, true).error, 0);
    assert_int_equal(txn_end(&f, p[0], 0, 0, true, 0).error, 0);
    fixture_settle(&f);
    fixture_close(&f, true);
    f.limits.transactions_max = 12;
    fixture_open(&f);
    p[1] = open_any(1);
    assert_int_equal(mill_partition_state_of(p[1]), MILL_LOG_SERVING);
    assert_int_equal(mill_partition_stable(p[1]), 0);
    assert_int_equal(mill_log_stats(f.log)->transactions, 6);
    fixture_close(&f, true);
    f.limits.transactions_max = 4;
    fixture_open(&f);
    p[1] = open_any(1);
    assert_int_equal(mill_partition_state_of(p[1]), MILL_LOG_FAILED);
    mill_log_delete(p[1]); /* its topic may go all the same */
    fixture_settle(&f);
    assert_int_equal(f.gone, 1);
    snprintf(path, sizeof(path), "%s/topic-a-1", f.logs);
    assert_int_equal(access(path, F_OK), -1);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_needs_a_verified_transaction),
        cmocka_unit_test(test_grant_ends_with_the_marker),
        cmocka_unit_test(test_batch_that_adds_asks_for_its_grant),
        cmocka_unit_test(test_late_marker_ends_no_other_transaction),
        cmocka_unit_test(test_grant_is_not_forgotten),
        cmocka_unit_test(test_grants_are_bounded),
        cmocka_unit_test(test_zeroed_index_of_aborted_is_made_anew),
        cmocka_unit_test(test_late_grants_are_waited_for),
        cmocka_unit_test(test_append_without_id_or_producer_is_refused),
        cmocka_unit_test(test_marker_is_laid_out_as_kafkas),
        cmocka_unit_test(test_marker_fences_older_epochs),
        cmocka_unit_test(test_committed_reader_stops_at_open_ones),
        cmocka_unit_test(test_committed_watch_waits_for_the_marker),
        cmocka_unit_test(test_marker_holds_until_it_is_synced),
        cmocka_unit_test(test_time_of_open_transaction_is_no_match),
        cmocka_unit_test(test_tables_full_refuse_and_recover),
        cmocka_unit_test(test_open_transaction_is_not_forgotten),
        cmocka_unit_test(test_open_transaction_is_not_forgotten_at_start),
        cmocka_unit_test(test_ring_of_aborted_waits_for_the_files),
        cmocka_unit_test(test_list_that_does_not_fit_shortens_the_read),
        cmocka_unit_test(test_more_open_ones_than_room_are_refused),
    };
    return cmocka_run_group_tests_name("txn", tests, NULL, NULL);
}
