/* SPDX-License-Identifier: Apache-2.0 */
/* What compaction leaves of one batch: records that are the last of their key, a tombstone until
 * its horizon has passed, and always the batch's offsets and sequences. Pure but for memory. See
 * clean_types.h. */
#include "dataplane/store/clean_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

enum {
    VARLONG_BYTES = 10,
    LAST_OFFSET_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    RECORDS_COUNT_AT = 57,
};

int mill_clean_room(struct clean_buffer *buffer, size_t size_bytes)
{
    if (buffer->capacity >= size_bytes && buffer->bytes) {
        return 0;
    }
    free(buffer->bytes);
    buffer->capacity = MILL_MAX(size_bytes, (size_t)CLEAN_STEP_BYTES);
    buffer->bytes = malloc(buffer->capacity);
    buffer->capacity = buffer->bytes ? buffer->capacity : 0;
    return buffer->bytes ? 0 : -ENOMEM;
}

void mill_clean_work_fini(struct clean_work *work)
{
    free(work->kept.bytes);
    free(work->moved.bytes);
    free(work->made.bytes);
    *work = (struct clean_work){0};
}

int mill_clean_unpack(const struct mill_batch *batch, const uint8_t *bytes,
                      struct clean_plain *ret_plain)
{
    uint32_t size = mill_batch_size_bytes(batch) - MILL_BATCH_HEADER_BYTES;
    *ret_plain = (struct clean_plain){.bytes = bytes + MILL_BATCH_HEADER_BYTES, .size_bytes = size};
    if (mill_batch_codec(batch) == MILL_CODEC_NONE || batch->records_count == 0) {
        return 0;
    }
    int64_t made = mill_unpack(mill_batch_codec(batch), ret_plain->bytes, size,
                               MILL_STORE_PLAIN_MAX_BYTES, &ret_plain->own);
    if (made < 0) {
        return made == -ENOMEM ? -ENOMEM : -EBADMSG;
    }
    ret_plain->bytes = ret_plain->own;
    ret_plain->size_bytes = (uint32_t)made;
    return 0;
}

/* --- records -----------------------------------------------------------------------------------
 */

/* What the walk over the records found. */
struct kept {
    uint32_t size_bytes;
    int32_t count;
    int64_t max_timestamp;
    bool tombstones;
};

static bool retains(const struct clean_rules *rules, const struct mill_batch *batch,
                    const struct mill_record *record)
{
    int64_t offset = batch->base_offset + record->offset_delta;
    if (rules->discard) {
        return false;
    }
    if ((batch->attributes & MILL_BATCH_CONTROL) || offset > rules->map->latest) {
        return true;
    }
    if (record->key_length < 0) {
        return false; /* nothing without a key is asked for in a compacted topic */
    }
    const uint8_t *key = record->key.buf->data + record->key.pos_bytes;
    bool last = offset >= mill_clean_map_get(rules->map, key, (uint32_t)record->key_length);
    bool passed =
        (batch->attributes & MILL_BATCH_DELETE_HORIZON) && rules->now_ms >= batch->base_timestamp;
#ifdef MILL_MUTANT_STORE_TOMBSTONE_AT_ONCE
    passed = true;
#endif
    return last && (record->value_length >= 0 || !passed);
}

/* Copies the records that stay into work->kept. */
static int records_keep(struct clean_work *work, const struct clean_rules *rules,
                        const struct mill_batch *batch, const struct clean_plain *plain,
                        struct kept *ret_kept)
{
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, plain->bytes, plain->size_bytes);
    int r = mill_clean_room(&work->kept, plain->size_bytes);
    *ret_kept = (struct kept){.max_timestamp = -1};
    for (int32_t i = 0; r == 0 && i < batch->records_count; i++) {
        struct mill_record record;
        uint32_t from = at.pos_bytes;
        r = mill_record_next(&at, &record);
        if (r < 0 || !retains(rules, batch, &record)) {
            continue;
        }
        memcpy(work->kept.bytes + ret_kept->size_bytes, plain->bytes + from, at.pos_bytes - from);
        ret_kept->size_bytes += at.pos_bytes - from;
        ret_kept->count++;
        ret_kept->tombstones = ret_kept->tombstones || record.value_length < 0;
        ret_kept->max_timestamp = MILL_MAX(
            ret_kept->max_timestamp, mill_time_add(batch->base_timestamp, record.timestamp_delta));
    }
    return r;
}

static uint32_t varlong_write(uint8_t *to, int64_t value)
{
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint32_t size = 0;
    for (; zigzag >= 0x80; zigzag >>= 7) {
        to[size++] = (uint8_t)(zigzag | 0x80);
    }
    to[size++] = (uint8_t)zigzag;
    return size;
}

static uint32_t varlong_size(const uint8_t *at)
{
    uint32_t size = 1;
    while (*at++ & 0x80) {
        size++;
    }
    return size;
}

/* Counts the records' times from a base that is shift lower: only delta and length change. */
static int records_move(struct clean_work *work, struct kept *kept, int64_t shift)
{
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, work->kept.bytes, kept->size_bytes);
    size_t room = kept->size_bytes + (size_t)kept->count * 2 * VARLONG_BYTES;
    int r = mill_clean_room(&work->moved, room);
    uint32_t size = 0;
    for (int32_t i = 0; r == 0 && i < kept->count; i++) {
        struct mill_record record;
        uint32_t from = at.pos_bytes;
        r = mill_record_next(&at, &record);
        const uint8_t *attributes = work->kept.bytes + from;
        attributes += varlong_size(attributes);
        const uint8_t *rest = attributes + 1 + varlong_size(attributes + 1);
        uint32_t rest_bytes = (uint32_t)(work->kept.bytes + at.pos_bytes - rest);
        uint8_t delta[VARLONG_BYTES];
        uint32_t delta_bytes = varlong_write(delta, mill_time_add(record.timestamp_delta, shift));
        uint8_t *to = work->moved.bytes + size;
        to += varlong_write(to, (int64_t)1 + delta_bytes + rest_bytes);
        *to++ = *attributes;
        memcpy(to, delta, delta_bytes);
        memcpy(to + delta_bytes, rest, rest_bytes);
        size = (uint32_t)(to + delta_bytes + rest_bytes - work->moved.bytes);
    }
    kept->size_bytes = size;
    return r;
}

/* --- the batch ---------------------------------------------------------------------------------
 */

static void sum_write(uint8_t *bytes, uint32_t size_bytes)
{
    mill_store_be32(bytes + MILL_BATCH_LENGTH_AT, size_bytes - MILL_BATCH_PREFIX_BYTES);
    mill_store_be32(bytes + MILL_BATCH_CRC_AT,
                    mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size_bytes - MILL_BATCH_SUMMED_AT));
}

/* The header alone: offsets, sequences and the greatest time stay. */
static int empty_make(struct clean_work *work, const struct mill_batch *batch, const uint8_t *bytes,
                      struct clean_result *result)
{
    int r = mill_clean_room(&work->made, MILL_BATCH_HEADER_BYTES);
    if (r < 0) {
        return r;
    }
    uint8_t *to = work->made.bytes;
    memcpy(to, bytes, MILL_BATCH_HEADER_BYTES);
    mill_store_be16(
        to + MILL_BATCH_ATTRIBUTES_AT,
        (uint16_t)(batch->attributes & ~(MILL_BATCH_CODEC_MASK | MILL_BATCH_DELETE_HORIZON)));
    mill_store_be64(to + BASE_TIMESTAMP_AT, (uint64_t)-1);
    mill_store_be32(to + RECORDS_COUNT_AT, 0);
    sum_write(to, MILL_BATCH_HEADER_BYTES);
    result->bytes = to;
    result->size_bytes = MILL_BATCH_HEADER_BYTES;
    result->changed = batch->records_count > 0;
    return 0;
}

/* The records that stay, in the batch's own codec behind its header. */
static int batch_make(struct clean_work *work, const struct mill_batch *batch, const uint8_t *bytes,
                      const struct kept *kept, const uint8_t *records, bool horizon,
                      int64_t base_timestamp, struct clean_result *result)
{
    enum mill_codec codec = mill_batch_codec(batch);
    size_t room =
        codec == MILL_CODEC_NONE ? kept->size_bytes : mill_compress_bound(codec, kept->size_bytes);
    int r = mill_clean_room(&work->made, MILL_BATCH_HEADER_BYTES + room);
    if (r < 0) {
        return r;
    }
    uint8_t *to = work->made.bytes;
    int64_t made = kept->size_bytes;
    memcpy(to, bytes, MILL_BATCH_HEADER_BYTES);
    if (codec == MILL_CODEC_NONE) {
        memcpy(to + MILL_BATCH_HEADER_BYTES, records, kept->size_bytes);
    } else {
        made = mill_compress(codec, records, kept->size_bytes, to + MILL_BATCH_HEADER_BYTES, room);
    }
    if (made < 0) {
        return -ENOMEM;
    }
    mill_store_be16(to + MILL_BATCH_ATTRIBUTES_AT,
                    (uint16_t)(batch->attributes | (horizon ? MILL_BATCH_DELETE_HORIZON : 0)));
    mill_store_be64(to + BASE_TIMESTAMP_AT, (uint64_t)base_timestamp);
    if (!(batch->attributes & MILL_BATCH_APPEND_TIME)) {
        mill_store_be64(to + MILL_BATCH_MAX_TIMESTAMP_AT, (uint64_t)kept->max_timestamp);
    }
    mill_store_be32(to + RECORDS_COUNT_AT, (uint32_t)kept->count);
    result->size_bytes = MILL_BATCH_HEADER_BYTES + (uint32_t)made;
    sum_write(to, result->size_bytes);
    result->bytes = to;
    result->changed = true;
    return 0;
}

int mill_clean_batch(struct clean_work *work, const struct clean_rules *rules,
                     const struct mill_batch *batch, const uint8_t *bytes,
                     struct clean_result *ret_result)
{
    struct clean_plain plain;
    struct kept kept;
    *ret_result = (struct clean_result){.records_in = (uint64_t)MILL_MAX(batch->records_count, 0),
                                        .changed = true};
    if (rules->discard && !rules->keep_empty) {
        return 0;
    }
    int r = mill_clean_unpack(batch, bytes, &plain);
    r = r < 0 ? r : records_keep(work, rules, batch, &plain, &kept);
    free(plain.own);
    if (r < 0) {
        return r;
    }
    ret_result->records_out = (uint64_t)kept.count;
    if (kept.count == 0) {
        return rules->keep_empty ? empty_make(work, batch, bytes, ret_result) : 0;
    }
    bool horizon = (kept.tombstones || rules->marker_spent) &&
                   !(batch->attributes & MILL_BATCH_DELETE_HORIZON);
    if (kept.count == batch->records_count && !horizon) {
        ret_result->bytes = bytes;
        ret_result->size_bytes = mill_batch_size_bytes(batch);
        ret_result->changed = false;
        return 0;
    }
    int64_t base =
        horizon ? rules->now_ms + MILL_MIN(rules->delete_retention_ms, INT64_MAX - rules->now_ms)
                : batch->base_timestamp;
    if (horizon) {
        r = records_move(work, &kept, (int64_t)((uint64_t)batch->base_timestamp - (uint64_t)base));
    }
    return r < 0 ? r
                 : batch_make(work, batch, bytes, &kept,
                              horizon ? work->moved.bytes : work->kept.bytes, horizon, base,
                              ret_result);
}
