/* SPDX-License-Identifier: Apache-2.0 */
/* Batch headers and the walk over records; see batch.h. Pure; any thread; no allocation. */
#include "protocol/batch.h"

#include <errno.h>

#include "protocol/codec.h"

enum {
    VARLONG_BYTES_MAX = 10, /* 64 bits, seven in each byte */
    HEADER_LEAST_BYTES = 2, /* a record header: two lengths */
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

int mill_record_next(struct mill_cursor *at, struct mill_record *ret_record)
{
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
