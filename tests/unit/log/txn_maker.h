/* SPDX-License-Identifier: Apache-2.0 */
/* Appends of transactional batches and markers, for tests of the log and its store. */
#ifndef MILL_TESTS_UNIT_LOG_TXN_MAKER_H
#define MILL_TESTS_UNIT_LOG_TXN_MAKER_H

#include "tests/unit/log/fixture.h"

/* Appends what m holds. ret: as mill_log_append. */
static inline int txn_append(struct fixture *f, struct mill_partition *partition,
                             const struct maker *m, bool verified, struct mill_append_result *ret)
{
    struct mill_buf buf;
    struct mill_append append = {
        .size_bytes = m->size, .api_version = 9, .acks = -1, .transactional_id = true};
    if (verified && m->producer_id >= 0) {
        enum mill_kerr error = mill_log_grant(partition, m->producer_id, m->epoch);
        MILL_UNUSED(error); /* the append says what is wrong */
    }
    append.records = mill_cursor_over(&buf, m->bytes, m->size);
    return mill_log_append(partition, &append, f->now, NULL, ret);
}

/* Builds and appends count records of a transaction, as a Produce of version 12 does. */
static inline struct mill_append_result txn_write_adding(struct fixture *f,
                                                         struct mill_partition *partition,
                                                         struct maker *m, int64_t id, int16_t epoch,
                                                         int32_t sequence, int32_t count)
{
    struct mill_append_result result;
    struct mill_buf buf;
    m->producer_id = id;
    m->epoch = epoch;
    m->sequence = sequence;
    m->attributes = MILL_BATCH_TRANSACTIONAL;
    maker_build(m, count);
    struct mill_append append = {.size_bytes = m->size,
                                 .api_version = MILL_LOG_ADDS_VERSION,
                                 .acks = -1,
                                 .transactional_id = true,
                                 .grants_late = true};
    append.records = mill_cursor_over(&buf, m->bytes, m->size);
    int r = mill_log_append(partition, &append, f->now, NULL, &result);
    assert_int_equal(r, 0);
    return result;
}

/* Builds and appends count records of a transaction. */
static inline struct mill_append_result txn_write(struct fixture *f,
                                                  struct mill_partition *partition, struct maker *m,
                                                  int64_t id, int16_t epoch, int32_t sequence,
                                                  int32_t count, bool verified)
{
    struct mill_append_result result;
    m->producer_id = id;
    m->epoch = epoch;
    m->sequence = sequence;
    m->attributes = MILL_BATCH_TRANSACTIONAL;
    maker_build(m, count);
    int r = txn_append(f, partition, m, verified, &result);
    for (uint32_t i = 0; r == -EAGAIN && i < 100; i++) {
        fixture_settle(f);
        r = txn_append(f, partition, m, verified, &result);
    }
    assert_int_equal(r, 0);
    return result;
}

static inline struct mill_append_result txn_mark(struct fixture *f,
                                                 struct mill_partition *partition, int64_t id,
                                                 int16_t epoch, bool bumped, bool commit,
                                                 int32_t coordinator_epoch)
{
    struct mill_append_result result;
    struct mill_marker_append marker = {
        .bumped = bumped,
        .marker = {.type = commit ? MILL_MARKER_COMMIT : MILL_MARKER_ABORT,
                   .coordinator_epoch = coordinator_epoch},
        .producer_id = id,
        .producer_epoch = epoch,
    };
    int r = mill_log_append_marker(partition, &marker, f->now, &result);
    for (uint32_t i = 0; r == -EAGAIN && i < 100; i++) {
        fixture_settle(f);
        r = mill_log_append_marker(partition, &marker, f->now, &result);
    }
    assert_int_equal(r, 0);
    return result;
}

static inline struct mill_append_result txn_end(struct fixture *f, struct mill_partition *partition,
                                                int64_t id, int16_t epoch, bool commit,
                                                int32_t coordinator_epoch)
{
    return txn_mark(f, partition, id, epoch, false, commit, coordinator_epoch);
}

/* Reads as a read_committed consumer; the list of aborted ones is copied and its extent freed. */
struct txn_read {
    int64_t data_end; /* after the last batch, the offset itself when there is none */
    uint32_t aborted_count;
    int64_t aborted[32768][2]; /* producer id, first offset */
};

static inline void txn_read(struct fixture *f, struct mill_partition *partition, int64_t offset,
                            uint32_t bytes_max, struct mill_read_result *got, struct txn_read *ret)
{
    struct mill_read read = {.offset = offset,
                             .bytes_max = bytes_max,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 8,
                             .committed = true};
    fixture_read(f, partition, &read, got);
    ret->data_end = offset;
    for (uint32_t i = 0; i < got->refs_count; i++) {
        const uint8_t *data = mill_ref_data(mill_arena_base(f->arena), &got->refs[i]);
        for (uint32_t at = 0; at < got->refs[i].size_bytes;) {
            struct mill_batch batch;
            mill_batch_read(data + at, &batch);
            at += mill_batch_size_bytes(&batch);
            ret->data_end = mill_batch_last_offset(&batch) + 1;
        }
    }
    ret->aborted_count = got->aborted.size_bytes / 16;
    assert_in_range(ret->aborted_count, 0, 32768);
    for (uint32_t i = 0; i < ret->aborted_count; i++) {
        const uint8_t *at = mill_ref_data(mill_arena_base(f->arena), &got->aborted) + i * 16;
        ret->aborted[i][0] = (int64_t)mill_load_be64(at);
        ret->aborted[i][1] = (int64_t)mill_load_be64(at + 8);
    }
    if (got->aborted.size_bytes > 0) {
        mill_extent_free(f->extents, got->aborted.extent);
    }
}

#endif
