/* SPDX-License-Identifier: Apache-2.0 */
/* Appending one batch: header checks, one copy with CRC-32C into the extent, the walk over records
 * while they are in cache, producer state, then offsets and the release store that publishes it.
 * Until that store nothing of the partition has changed. Owner core only; O(bytes). */
#include "dataplane/log/log_types.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

enum {
    ABORTABLE_VERSION = 11, /* of Produce: knows TRANSACTION_ABORTABLE (KIP-890) */
};

void mill_log_append_refuse(struct mill_partition *partition, const struct log_check *check,
                            struct mill_append_result *result)
{
    partition->log->stats.batches_refused++;
    result->error = check->error;
    result->bad_record = check->bad_record;
    snprintf(result->message, sizeof(result->message), "%s", check->message);
}

void mill_log_append_corrupt(struct mill_partition *partition, struct log_check *check,
                             struct mill_append_result *result)
{
    check->error = MILL_KERR_CORRUPT_MESSAGE;
    check->message = "the record batch has a wrong CRC";
    mill_log_append_refuse(partition, check, result);
}

/* Copies the batch to to, each byte once, and sums what the CRC covers. Header fields that the
 * leader sets lie before that part. ret: the sum. */
static uint32_t copy_summed(struct mill_cursor from, uint32_t size_bytes, uint8_t *to)
{
    uint32_t crc = MILL_CRC32C_START;
    int r = mill_cursor_read(&from, to, MILL_BATCH_SUMMED_AT);
    MILL_ASSERT_EQ(r, 0); /* the header was read before */
    uint32_t pos = MILL_BATCH_SUMMED_AT;
    while (pos < size_bytes) {
        const uint8_t *run = NULL;
        uint32_t size = mill_cursor_run(&from, &run);
        size = MILL_MIN(size, size_bytes - pos);
        MILL_ASSERT(size > 0);
        crc = mill_crc32c_copy(crc, to + pos, run, size);
        r = mill_cursor_skip(&from, size);
        MILL_ASSERT_EQ(r, 0);
        pos += size;
    }
    return mill_crc32c_end(crc);
}

/* Sets the fields that the leader decides inside the summed part, and a new CRC when one differs.
 */
static void correct(uint8_t *bytes, struct mill_batch *batch, bool append_time, int64_t timestamp)
{
    int16_t attributes = (int16_t)(append_time ? batch->attributes | MILL_BATCH_APPEND_TIME
                                               : batch->attributes & ~MILL_BATCH_APPEND_TIME);
    if (attributes == batch->attributes && timestamp == batch->max_timestamp) {
        return;
    }
    batch->attributes = attributes;
    batch->max_timestamp = timestamp;
    mill_store_be16(bytes + MILL_BATCH_ATTRIBUTES_AT, (uint16_t)attributes);
    mill_store_be64(bytes + MILL_BATCH_MAX_TIMESTAMP_AT, (uint64_t)timestamp);
    batch->crc = mill_crc32c(bytes + MILL_BATCH_SUMMED_AT,
                             mill_batch_size_bytes(batch) - MILL_BATCH_SUMMED_AT);
    mill_store_be32(bytes + MILL_BATCH_CRC_AT, batch->crc);
}

/* Decides what an idempotent batch is. ret: true when it is to be appended. */
static bool sequence_accepts(struct mill_partition *partition, const struct mill_append *append,
                             const struct mill_batch *batch, struct log_check *check,
                             struct mill_append_result *result)
{
    const struct log_producer_batch *known = NULL;
    switch (mill_log_producer_check(partition, append, batch, &known)) {
    case LOG_SEQUENCE_NEXT:
        return true;
    case LOG_SEQUENCE_DUPLICATE:
#ifdef MILL_MUTANT_LOG_DUPLICATES_KEPT
        return true;
#endif
        result->duplicate = true;
        result->base_offset = known->base_offset;
        result->end_offset = known->last_offset + 1;
        result->start_offset = partition->start_offset;
        result->append_time_ms = partition->settings.append_time ? known->timestamp : -1;
        result->must_flush = partition->settings.flush_messages == 1 &&
                             partition->synced_offset < result->end_offset;
        return false;
    case LOG_SEQUENCE_WRONG:
        check->error = MILL_KERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        check->message = "the batch's sequence does not follow the last one";
        break;
    case LOG_SEQUENCE_OLD_EPOCH:
        check->error = MILL_KERR_INVALID_PRODUCER_EPOCH;
        check->message = "a newer epoch of this producer has written";
        break;
    case LOG_SEQUENCE_NO_TRANSACTION:
        check->error = append->api_version >= ABORTABLE_VERSION ? MILL_KERR_TRANSACTION_ABORTABLE
                                                                : MILL_KERR_INVALID_TXN_STATE;
        check->message = "the partition is not part of a transaction of this producer";
        break;
    case LOG_SEQUENCE_GRANTS_LATE:
        /* What clients of all ages try again (KIP-890 does the same). */
        check->error = MILL_KERR_NOT_ENOUGH_REPLICAS;
        check->message = "the transactions that are under way are not known yet: try again";
        break;
    case LOG_SEQUENCE_IN_TRANSACTION:
        check->error = MILL_KERR_INVALID_TXN_STATE;
        check->message = "a transaction of this producer is open: its batches must belong to it";
        break;
    case LOG_SEQUENCE_FULL:
        partition->log->stats.transactions_full++;
        check->error = MILL_KERR_KAFKA_STORAGE_ERROR;
        check->message = "too many transactions are open: try again";
        break;
    }
    mill_log_append_refuse(partition, check, result);
    return false;
}

/* Everything was checked: the batch becomes part of the log. What is known of its producer follows
 * before anybody is told (announce). */
static void publish(struct mill_partition *partition, uint8_t *bytes, struct mill_batch *batch,
                    struct mill_now now)
{
    struct mill_log *log = partition->log;
    uint32_t extent = partition->active;
    struct log_extent *e = &log->extents[extent];
    uint32_t size = mill_batch_size_bytes(batch);
    batch->base_offset = partition->end_offset;
    mill_store_be64(bytes, (uint64_t)batch->base_offset);
    mill_store_be32(bytes + MILL_BATCH_EPOCH_AT, (uint32_t)partition->leader_epoch);
    mill_log_index_batch(log, extent, e->committed_bytes, size, batch->base_offset);
    e->committed_bytes += size;
    e->end_offset = mill_batch_last_offset(batch) + 1;
    e->used_ns = now.mono_ns;
    /* Release: whoever reads this length (take-up after a kill) sees the batch whole. */
    atomic_store_explicit(&mill_arena_desc(log->config.arena, extent)->committed_bytes,
                          e->committed_bytes, memory_order_release);
    partition->end_offset = e->end_offset;
    partition->stream_end += size;
    partition->dirty_bytes += size;
    log->stats.dirty_bytes += size;
    if (partition->post == MILL_LOG_NONE) {
        partition->post = extent;
    }
    const struct mill_log_settings *settings = &partition->settings;
    if (settings->flush_messages < INT64_MAX &&
        partition->end_offset - partition->synced_offset >= settings->flush_messages) {
        partition->sync_wanted = partition->end_offset;
    }
    if (settings->flush_ms < INT64_MAX / 1000000 && partition->unsynced_ns == 0) {
        partition->unsynced_ns = now.mono_ns;
        log_list_add(&log->sync, &partition->sync);
        log->sync_at_ns =
            MILL_MIN(log->sync_at_ns, now.mono_ns + (uint64_t)settings->flush_ms * MILL_NS_PER_MS);
    }
}

static void announce(struct mill_partition *partition)
{
    mill_log_touch(partition);
    mill_log_advance(partition);
    mill_log_todo(partition);
}

static void appended(struct mill_partition *partition, const struct mill_batch *batch,
                     struct mill_now now, struct mill_append_result *result)
{
    partition->log->stats.batches_in++;
    partition->log->stats.records_in += (uint64_t)batch->records_count;
    result->base_offset = batch->base_offset;
    result->append_time_ms = partition->settings.append_time ? now.wall_ms : -1;
    result->start_offset = partition->start_offset;
    result->end_offset = partition->end_offset;
    result->must_flush = partition->settings.flush_messages == 1;
}

/* The batch is in the extent, unpublished, and its CRC is right. */
static void settle(struct mill_partition *partition, const struct mill_append *append,
                   uint8_t *bytes, struct mill_batch *batch, struct mill_now now,
                   struct log_check *check, struct mill_append_result *result)
{
    if (mill_batch_codec(batch) == MILL_CODEC_NONE && !check->walked) {
        mill_log_check_records(&partition->settings, batch, bytes + MILL_BATCH_HEADER_BYTES,
                               mill_batch_size_bytes(batch) - MILL_BATCH_HEADER_BYTES, now.wall_ms,
                               check);
        if (check->error != MILL_KERR_NONE) {
            mill_log_append_refuse(partition, check, result);
            return;
        }
    }
    bool idempotent = batch->producer_id >= 0;
    if (idempotent && !sequence_accepts(partition, append, batch, check, result)) {
        return;
    }
    uint64_t stream_pos = partition->stream_end;
    bool append_time = partition->settings.append_time;
    correct(bytes, batch, append_time, append_time ? now.wall_ms : check->max_timestamp);
    publish(partition, bytes, batch, now);
    if (idempotent) {
        mill_log_producer_note(partition, batch, stream_pos, now.wall_ms);
    }
    announce(partition);
    appended(partition, batch, now, result);
}

int mill_log_append_place(struct mill_partition *partition, const struct mill_append *append,
                          struct mill_batch *batch, struct mill_now now, struct log_check *check,
                          struct mill_append_result *result)
{
    struct mill_log *log = partition->log;
    int r = mill_log_extent_room(partition, append->size_bytes);
    if (r == -EAGAIN) {
        return -EAGAIN;
    }
    if (r < 0) {
        check->error = MILL_KERR_MESSAGE_TOO_LARGE;
        check->message = "the record batch is larger than the largest extent";
        mill_log_append_refuse(partition, check, result);
        return 0;
    }
    uint8_t *bytes = mill_extent_data(log->config.extents, partition->active) +
                     log->extents[partition->active].committed_bytes;
    uint32_t crc = copy_summed(append->records, append->size_bytes, bytes);
    result->bytes_copied += append->size_bytes;
#ifdef MILL_MUTANT_LOG_COPY_TWICE
    crc = copy_summed(append->records, append->size_bytes, bytes);
    result->bytes_copied += append->size_bytes;
#endif
#ifdef MILL_MUTANT_LOG_SKIP_CRC
    crc = batch->crc;
#endif
    if (MILL_UNLIKELY(crc != batch->crc)) {
        mill_log_append_corrupt(partition, check, result);
        return 0;
    }
#ifdef MILL_MUTANT_LOG_CODEC_BYTE
    if (mill_batch_codec(batch) != MILL_CODEC_NONE) {
        bytes[append->size_bytes / 2 + MILL_BATCH_HEADER_BYTES / 2] ^= 1;
    }
#endif
    settle(partition, append, bytes, batch, now, check, result);
    return 0;
}

/* Nothing is known yet. All but the message's bytes behind its end is set. */
static inline void result_begin(struct mill_append_result *result)
{
    result->error = MILL_KERR_NONE;
    result->unvouched = false;
    result->base_offset = -1;
    result->append_time_ms = -1;
    result->start_offset = -1;
    result->end_offset = 0;
    result->must_flush = false;
    result->duplicate = false;
    result->bad_record = -1;
    result->bytes_copied = 0;
    result->message[0] = '\0';
}

int mill_log_append(struct mill_partition *partition, const struct mill_append *append,
                    struct mill_now now, struct mill_log_watch *watch,
                    struct mill_append_result *ret_result)
{
    struct mill_log *log = partition->log;
    struct mill_batch batch = {0};
    struct log_check check;
    uint8_t header[MILL_BATCH_HEADER_BYTES];
    if (MILL_UNLIKELY(watch && watch->ticket != 0)) {
        return mill_log_parked_fetch(partition, watch, ret_result);
    }
    result_begin(ret_result);
    if (mill_log_append_refuses(partition, &check)) {
        log->stats.bytes_in += append->size_bytes;
        mill_log_append_refuse(partition, &check, ret_result);
        return 0;
    }
    struct mill_cursor from = append->records;
    uint32_t header_bytes = MILL_MIN(append->size_bytes, (uint32_t)sizeof(header));
    int r = mill_cursor_read(&from, header, header_bytes);
    MILL_ASSERT_EQ(r, 0); /* the caller holds size_bytes */
    mill_log_check_header(partition, append, header, header_bytes, now, &batch, &check);
    if (check.error != MILL_KERR_NONE) {
        log->stats.bytes_in += append->size_bytes;
        mill_log_append_refuse(partition, &check, ret_result);
        return 0;
    }
    if (MILL_UNLIKELY(mill_log_producer_unvouched(partition, append, &batch))) {
        ret_result->error = MILL_KERR_TRANSACTION_ABORTABLE;
        ret_result->unvouched = true;
        return 0;
    }
    if (MILL_UNLIKELY(mill_log_parks(partition, &batch))) {
        return mill_log_park(partition, append, &batch, &check, watch, ret_result);
    }
    if (!mill_log_dirty_room(log, append->size_bytes)) {
        log->stats.dirty_full++;
        return -EAGAIN;
    }
    r = mill_log_append_place(partition, append, &batch, now, &check, ret_result);
    log->stats.bytes_in += r == 0 ? append->size_bytes : 0;
    return r;
}

int mill_log_append_marker(struct mill_partition *partition,
                           const struct mill_marker_append *marker, struct mill_now now,
                           struct mill_append_result *ret_result)
{
    struct mill_log *log = partition->log;
    struct log_check check;
    struct mill_batch batch;
    bool aborts = false;
    result_begin(ret_result);
    if (mill_log_append_refuses(partition, &check)) {
        mill_log_append_refuse(partition, &check, ret_result);
        return 0;
    }
    if (partition->parked_first != MILL_LOG_NONE) {
        return -EAGAIN; /* batches of the transaction may be among them */
    }
    check.error = mill_log_marker_check(partition, marker, &aborts);
    if (check.error != MILL_KERR_NONE) {
        log->stats.transactions_full += check.error == MILL_KERR_KAFKA_STORAGE_ERROR ? 1 : 0;
        mill_log_append_refuse(partition, &check, ret_result);
        return 0;
    }
    if (!mill_log_dirty_room(log, MILL_MARKER_BYTES)) {
        log->stats.dirty_full++;
        return -EAGAIN;
    }
    if ((aborts && !mill_log_aborted_room(log)) ||
        mill_log_extent_room(partition, MILL_MARKER_BYTES) < 0) {
        return -EAGAIN;
    }
    uint8_t *bytes = mill_extent_data(log->config.extents, partition->active) +
                     log->extents[partition->active].committed_bytes;
    mill_marker_write(bytes, &marker->marker, marker->producer_id, marker->producer_epoch,
                      now.wall_ms, partition->settings.append_time, &batch);
    publish(partition, bytes, &batch, now);
    mill_log_marker_note(partition, &batch, marker, now.wall_ms);
    announce(partition);
    log->stats.bytes_in += MILL_MARKER_BYTES;
    appended(partition, &batch, now, ret_result);
    return 0;
}
