/* SPDX-License-Identifier: Apache-2.0 */
/* Batch headers and the walk over records; see batch.h. Pure; any thread; no allocation. */
#include "protocol/batch.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "protocol/codec.h"

enum {
    VARLONG_BYTES_MAX = 10, /* 64 bits, seven in each byte */
    HEADER_LEAST_BYTES = 2, /* a record header: two lengths */
    MARKER_KEY_BYTES = 4,   /* version and type */
    MARKER_VALUE_BYTES = 6, /* version and coordinator epoch */
    MARKER_RECORD_BYTES = MILL_MARKER_BYTES - MILL_BATCH_HEADER_BYTES,
    SEQUENCE_NONE = -1,
};

void mill_batch_read(const void *bytes, struct mill_batch *ret_batch)
{
    const struct mill_batch_wire *wire = bytes; /* of bytes: takes any alignment */
    *ret_batch = (struct mill_batch){
        .base_offset = (int64_t)be64_get(wire->base_offset),
        .batch_length = (int32_t)be32_get(wire->batch_length),
        .leader_epoch = (int32_t)be32_get(wire->partition_leader_epoch),
        .magic = (int8_t)wire->magic,
        .crc = be32_get(wire->crc),
        .attributes = (int16_t)be16_get(wire->attributes),
        .last_offset_delta = (int32_t)be32_get(wire->last_offset_delta),
        .base_timestamp = (int64_t)be64_get(wire->base_timestamp),
        .max_timestamp = (int64_t)be64_get(wire->max_timestamp),
        .producer_id = (int64_t)be64_get(wire->producer_id),
        .producer_epoch = (int16_t)be16_get(wire->producer_epoch),
        .base_sequence = (int32_t)be32_get(wire->base_sequence),
        .records_count = (int32_t)be32_get(wire->records_count),
    };
}

/* Zig-zag number of at most 64 bits. */
static bool read_varlong(struct mill_cursor *at, int64_t *ret)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < VARLONG_BYTES_MAX; i++) {
        int8_t byte;
        if (!mill_read_i8(at, &byte)) {
            return false;
        }
        uint64_t bits = (uint64_t)byte & 0x7f;
        if (i == VARLONG_BYTES_MAX - 1 && bits > 1) {
            return false; /* more than 64 bits */
        }
        value |= bits << (7 * i);
        if (byte >= 0) {
            *ret = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return true;
        }
    }
    return false;
}

/* Zig-zag number of at most 32 bits. */
static bool read_varint(struct mill_cursor *at, int32_t *ret)
{
    uint32_t value;
    if (!mill_read_uvarint(at, &value)) {
        return false;
    }
    *ret = (int32_t)(value >> 1) ^ -(int32_t)(value & 1);
    return true;
}

/* A length and its bytes; *ret_value is a cursor over them, empty for null (-1). */
static bool read_value(struct mill_cursor *at, bool nullable, int32_t *ret_length,
                       struct mill_cursor *ret_value)
{
    int32_t length;
    if (!read_varint(at, &length) || length < (nullable ? -1 : 0)) {
        return false;
    }
    const uint32_t size_bytes = length > 0 ? (uint32_t)length : 0;
    if (size_bytes > at->left_bytes) {
        return false;
    }
    *ret_length = length;
    *ret_value = mill_cursor_slice(at, size_bytes);
    return mill_cursor_skip(at, size_bytes) == 0;
}

static bool skip_headers(struct mill_cursor *at, int32_t count)
{
    if (count < 0 || (uint64_t)count * HEADER_LEAST_BYTES > at->left_bytes) {
        return false;
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t length;
        struct mill_cursor value;
        if (!read_value(at, false, &length, &value) || !read_value(at, true, &length, &value)) {
            return false;
        }
    }
    return true;
}

/* --- records in one piece --------------------------------------------------------------------- */

/* A run of bytes being read; the end is never passed. */
struct flat {
    const uint8_t *at;
    const uint8_t *end;
};

/* Zig-zag number; at most bytes_max bytes, whose last holds at most last_max. */
static inline bool flat_number(struct flat *flat, uint32_t bytes_max, uint64_t last_max,
                               int64_t *ret)
{
    uint64_t value = 0;
    if (MILL_LIKELY(flat->at < flat->end && flat->at[0] < 0x80)) {
        value = *flat->at++;
        *ret = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
        return true;
    }
    for (uint32_t i = 0; i < bytes_max && flat->at < flat->end; i++) {
        uint64_t byte = *flat->at++;
        if (i == bytes_max - 1 && byte > last_max) {
            return false;
        }
        value |= (byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *ret = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return true;
        }
    }
    return false;
}

static inline bool flat_varint(struct flat *flat, int32_t *ret)
{
    int64_t value = 0;
    bool ok = flat_number(flat, 5, 0x0f, &value);
    *ret = (int32_t)value;
    return ok;
}

/* A length and its bytes, which are passed over; *ret_pos: where they are. */
static inline bool flat_value(struct flat *flat, bool nullable, int32_t *ret_length,
                              const uint8_t **ret_pos)
{
    int32_t length;
    if (!flat_varint(flat, &length) || length < (nullable ? -1 : 0) ||
        length > flat->end - flat->at) {
        return false;
    }
    *ret_length = length;
    *ret_pos = flat->at;
    flat->at += MILL_MAX(length, 0);
    return true;
}

static bool flat_headers(struct flat *flat, int32_t count)
{
    if (count < 0 || (uint64_t)count * HEADER_LEAST_BYTES > (uint64_t)(flat->end - flat->at)) {
        return false;
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t length;
        const uint8_t *pos;
        if (!flat_value(flat, false, &length, &pos) || !flat_value(flat, true, &length, &pos)) {
            return false;
        }
    }
    return true;
}

/* A position of the record's buffer as a cursor over length bytes. */
static struct mill_cursor flat_cursor(const struct mill_buf *buf, const uint8_t *pos,
                                      int32_t length)
{
    return (struct mill_cursor){.buf = buf,
                                .pos_bytes = (uint32_t)(pos - buf->data),
                                .left_bytes = length > 0 ? (uint32_t)length : 0};
}

/* The same checks as below, over a record that lies in one buffer, as each does that was copied
 * into the log: an append walks all of a batch while it is in cache. */
static int record_next_flat(struct mill_cursor *at, const uint8_t *run, uint32_t run_bytes,
                            struct mill_record *ret_record)
{
    struct flat flat = {run, run + run_bytes};
    const uint8_t *key = NULL;
    const uint8_t *value = NULL;
    int32_t size;
    struct mill_record record;
    if (!flat_varint(&flat, &size) || size < 1 || size > flat.end - flat.at) {
        return -EAGAIN; /* it goes on in another buffer, or is none: the slow way tells */
    }
    flat.end = flat.at + size;
    flat.at++; /* attributes, unused by Kafka, any value passes */
    if (!flat_number(&flat, VARLONG_BYTES_MAX, 1, &record.timestamp_delta) ||
        !flat_varint(&flat, &record.offset_delta) ||
        !flat_value(&flat, true, &record.key_length, &key) ||
        !flat_value(&flat, true, &record.value_length, &value) ||
        !flat_varint(&flat, &record.headers_count) || !flat_headers(&flat, record.headers_count) ||
        flat.at != flat.end) {
        return -EBADMSG;
    }
    record.key = flat_cursor(at->buf, key, record.key_length);
    record.value = flat_cursor(at->buf, value, record.value_length);
    at->pos_bytes += (uint32_t)(flat.end - run);
    at->left_bytes -= (uint32_t)(flat.end - run);
    *ret_record = record;
    return 0;
}

int mill_record_next(struct mill_cursor *at, struct mill_record *ret_record)
{
    if (MILL_LIKELY(at->left_bytes > 0 && at->pos_bytes < at->buf->size_bytes)) {
        uint32_t run_bytes = MILL_MIN(at->left_bytes, at->buf->size_bytes - at->pos_bytes);
        int r = record_next_flat(at, at->buf->data + at->pos_bytes, run_bytes, ret_record);
        if (r != -EAGAIN) {
            return r;
        }
    }
    int32_t size;
    int8_t attributes; /* unused by Kafka, any value passes */
    struct mill_record record;
    if (!read_varint(at, &size) || size < 0 || (uint32_t)size > at->left_bytes) {
        return -EBADMSG;
    }
    struct mill_cursor body = mill_cursor_slice(at, (uint32_t)size);
    bool ok = mill_read_i8(&body, &attributes) && read_varlong(&body, &record.timestamp_delta) &&
              read_varint(&body, &record.offset_delta) &&
              read_value(&body, true, &record.key_length, &record.key) &&
              read_value(&body, true, &record.value_length, &record.value) &&
              read_varint(&body, &record.headers_count) &&
              skip_headers(&body, record.headers_count);
    /* The length must be that of the parts, to the byte. */
    if (!ok || body.left_bytes != 0 || mill_cursor_skip(at, (uint32_t)size)) {
        return -EBADMSG;
    }
    *ret_record = record;
    return 0;
}

/* --- markers --------------------------------------------------------------------------------- */

int mill_marker_read(const uint8_t *bytes, uint32_t size_bytes, struct mill_marker *ret_marker)
{
    uint8_t key[MARKER_KEY_BYTES];
    uint8_t value[MARKER_VALUE_BYTES];
    struct mill_buf buf;
    struct mill_record record;
    struct mill_cursor at = mill_cursor_over(&buf, bytes, size_bytes);
    if (mill_cursor_skip(&at, MILL_BATCH_HEADER_BYTES) < 0 || mill_record_next(&at, &record) < 0 ||
        mill_cursor_read(&record.key, key, sizeof(key)) < 0 ||
        mill_cursor_read(&record.value, value, sizeof(value)) < 0) {
        return -EBADMSG;
    }
    /* A later version of either only adds fields behind these. */
    *ret_marker = (struct mill_marker){.type = (int16_t)mill_load_be16(key + 2),
                                       .coordinator_epoch = (int32_t)mill_load_be32(value + 2)};
    bool ends = ret_marker->type == MILL_MARKER_ABORT || ret_marker->type == MILL_MARKER_COMMIT;
    return ends ? 0 : -EBADMSG;
}

static uint8_t *put_small(uint8_t *to, int32_t value)
{
    *to = (uint8_t)(value << 1); /* zig-zag of a number from 0 to 63 */
    return to + 1;
}

void mill_marker_write(uint8_t *to, const struct mill_marker *marker, int64_t producer_id,
                       int16_t producer_epoch, int64_t timestamp, bool append_time,
                       struct mill_batch *ret_batch)
{
    uint16_t attributes = MILL_BATCH_TRANSACTIONAL | MILL_BATCH_CONTROL;
    attributes = (uint16_t)(attributes | (append_time ? MILL_BATCH_APPEND_TIME : 0));
    struct mill_batch_wire wire = {
        .batch_length = be32_make(MILL_MARKER_BYTES - MILL_BATCH_PREFIX_BYTES),
        .magic = 2,
        .attributes = be16_make(attributes),
        .base_timestamp = be64_make((uint64_t)timestamp),
        .max_timestamp = be64_make((uint64_t)timestamp),
        .producer_id = be64_make((uint64_t)producer_id),
        .producer_epoch = be16_make((uint16_t)producer_epoch),
        .base_sequence = be32_make((uint32_t)SEQUENCE_NONE),
        .records_count = be32_make(1),
    };
    uint8_t *at = to + MILL_BATCH_HEADER_BYTES;
    at = put_small(at, MARKER_RECORD_BYTES - 1);
    at = put_small(at, 0); /* attributes */
    at = put_small(at, 0); /* timestamp and offset, from the batch's */
    at = put_small(at, 0);
    at = put_small(at, MARKER_KEY_BYTES);
    mill_store_be16(at, 0);
    mill_store_be16(at + 2, (uint16_t)marker->type);
    at = put_small(at + MARKER_KEY_BYTES, MARKER_VALUE_BYTES);
    mill_store_be16(at, 0);
    mill_store_be32(at + 2, (uint32_t)marker->coordinator_epoch);
    at = put_small(at + MARKER_VALUE_BYTES, 0); /* headers */
    MILL_ASSERT_EQ(at - to, MILL_MARKER_BYTES);
    memcpy(to, &wire, sizeof(wire));
    uint32_t crc = mill_crc32c(to + MILL_BATCH_SUMMED_AT, MILL_MARKER_BYTES - MILL_BATCH_SUMMED_AT);
    mill_store_be32(to + MILL_BATCH_CRC_AT, crc);
    mill_batch_read(to, ret_batch);
}
