/* SPDX-License-Identifier: Apache-2.0 */
/* Walks what was read: the records and markers of whole batches. Pure. */
#include "control/journal/journal.h"
#include "protocol/wire.h"

static bool walk_marker(const struct mill_batch *batch, const uint8_t *bytes, int64_t from,
                        const struct mill_journal_visitor *visitor)
{
    struct mill_marker marker;
    const struct mill_journal_at at = {.offset = batch->base_offset,
                                       .timestamp_ms = batch->max_timestamp,
                                       .producer_id = batch->producer_id};
    if (mill_marker_read(bytes, mill_batch_size_bytes(batch), &marker) < 0) {
        return false;
    }
    if (batch->base_offset >= from) {
        visitor->marker(visitor->context, &at, marker.type == MILL_MARKER_COMMIT);
    }
    return true;
}

static bool walk_batch(const struct mill_batch *batch, const uint8_t *bytes, int64_t from,
                       const struct mill_journal_visitor *visitor)
{
    struct mill_buf buf;
    uint32_t size = mill_batch_size_bytes(batch);
    struct mill_cursor at =
        mill_cursor_over(&buf, bytes + MILL_BATCH_HEADER_BYTES, size - MILL_BATCH_HEADER_BYTES);
    if (batch->magic != 2 || mill_batch_codec(batch) != MILL_CODEC_NONE) {
        return false;
    }
    if ((batch->attributes & MILL_BATCH_CONTROL) != 0) {
        return walk_marker(batch, bytes, from, visitor);
    }
    bool transactional = (batch->attributes & MILL_BATCH_TRANSACTIONAL) != 0;
    for (int32_t i = 0; i < batch->records_count; i++) {
        struct mill_record record;
        if (mill_record_next(&at, &record) < 0) {
            return false;
        }
        const struct mill_journal_at where = {
            .offset = batch->base_offset + record.offset_delta,
            .timestamp_ms = batch->base_timestamp + record.timestamp_delta,
            .producer_id = transactional ? batch->producer_id : -1};
        if (where.offset >= from) {
            visitor->record(visitor->context, &where, &record);
        }
    }
    return true;
}

int64_t mill_journal_walk(const uint8_t *records, uint32_t records_bytes, int64_t from,
                          const struct mill_journal_visitor *visitor, uint32_t *ret_skipped)
{
    int64_t next = from;
    *ret_skipped = 0;
    while (records_bytes >= MILL_BATCH_HEADER_BYTES) {
        struct mill_batch batch;
        mill_batch_read(records, &batch);
        if (batch.batch_length < MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES ||
            mill_batch_size_bytes(&batch) > records_bytes) {
            break; /* the cut end of what was asked for */
        }
        *ret_skipped += walk_batch(&batch, records, from, visitor) ? 0 : 1;
        next = MILL_MAX(next, mill_batch_last_offset(&batch) + 1);
        records += mill_batch_size_bytes(&batch);
        records_bytes -= mill_batch_size_bytes(&batch);
    }
    return next;
}
