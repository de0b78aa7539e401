/* SPDX-License-Identifier: Apache-2.0 */
/* Readers and writers behind the generated messages; see codec.h. Pure; any thread; nothing here
 * allocates, and each loop is bounded by the bytes that are there. */
#include "protocol/codec.h"

#include <errno.h>
#include <string.h>

enum {
    UVARINT_BYTES_MAX = 5,     /* 32 bits, seven in each byte */
    STR_BYTES_MAX = INT16_MAX, /* also of compact strings, as in Kafka */
    TAG_SIZE_BYTES = 1,        /* room left for the size of a tagged field; most are below 128 */
};

/* --- reader --- */

bool mill_read_uvarint(struct mill_cursor *at, uint32_t *ret)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < UVARINT_BYTES_MAX; i++) {
        int8_t byte;
        if (!mill_read_i8(at, &byte)) {
            return false;
        }
        uint32_t bits = (uint32_t)byte & 0x7f;
        if (i == UVARINT_BYTES_MAX - 1 && bits > 0x0f) {
            return false; /* more than 32 bits */
        }
        value |= bits << (7 * i);
        if (byte >= 0) {
            *ret = value;
            return true;
        }
    }
    return false;
}

/* Reads a compact length: stored plus one, 0 meaning null. */
static bool read_compact_length(struct mill_cursor *at, int32_t *ret_length)
{
    uint32_t stored;
    if (!mill_read_uvarint(at, &stored) || stored > (uint32_t)INT32_MAX) {
        return false;
    }
    *ret_length = (int32_t)stored - 1;
    return true;
}

/* Only -1 means null, and only where null is allowed. */
static bool length_is_fine(const struct mill_cursor *at, bool nullable, int32_t length)
{
    if (length < 0) {
        return length == -1 && nullable;
    }
#ifdef MILL_MUTANT_PROTOCOL_LENGTH
    MILL_UNUSED(at);
    return true;
#else
    return (uint32_t)length <= at->left_bytes;
#endif
}

/* The bytes of a value whose length was read: where they are, and past them. */
static bool take_bytes(struct mill_cursor *at, int32_t length, const uint8_t **ret_ptr,
                       struct mill_cursor *ret_at)
{
    static const uint8_t nothing[1];
    *ret_ptr = NULL;
    *ret_at = (struct mill_cursor){0};
    if (length < 0) {
        return true;
    }
    *ret_ptr = length == 0 ? nothing : mill_cursor_contiguous(at, (uint32_t)length);
    *ret_at = mill_cursor_slice(at, (uint32_t)length);
    return mill_cursor_skip(at, (uint32_t)length) == 0;
}

bool mill_read_str(struct mill_cursor *at, bool flexible, bool nullable, struct mill_wstr *ret)
{
    if (flexible) {
        if (!read_compact_length(at, &ret->length) || ret->length > STR_BYTES_MAX) {
            return false;
        }
    } else {
        int16_t length;
        if (!mill_read_i16(at, &length)) {
            return false;
        }
        ret->length = length;
    }
    return length_is_fine(at, nullable, ret->length) &&
           take_bytes(at, ret->length, &ret->ptr, &ret->at);
}

bool mill_read_records(struct mill_cursor *at, bool flexible, bool nullable,
                       struct mill_wrecords *ret)
{
    if (!(flexible ? read_compact_length(at, &ret->length) : mill_read_i32(at, &ret->length))) {
        return false;
    }
    return length_is_fine(at, nullable, ret->length) &&
           take_bytes(at, ret->length, &ret->ptr, &ret->at);
}

bool mill_read_blob(struct mill_cursor *at, bool flexible, bool nullable, struct mill_wstr *ret)
{
    struct mill_wrecords records;
    if (!mill_read_records(at, flexible, nullable, &records)) {
        return false;
    }
    *ret = (struct mill_wstr){.length = records.length, .ptr = records.ptr, .at = records.at};
    return true;
}

bool mill_read_count(struct mill_cursor *at, bool flexible, bool nullable, uint32_t least_bytes,
                     struct mill_warray *ret)
{
    int32_t count;
    if (!(flexible ? read_compact_length(at, &count) : mill_read_i32(at, &count))) {
        return false;
    }
    if (count < 0 && (count != -1 || !nullable)) {
        return false;
    }
#ifdef MILL_MUTANT_PROTOCOL_COUNT
    MILL_UNUSED(least_bytes);
#else
    if (count > 0 && (uint64_t)count * least_bytes > at->left_bytes) {
        return false;
    }
#endif
    *ret = (struct mill_warray){.count = count, .at = *at};
    return true;
}

void mill_array_end(const struct mill_cursor *at, struct mill_warray *ret)
{
    ret->at.left_bytes -= at->left_bytes;
}

/* Elements of a fixed size. */
static bool read_array(struct mill_cursor *at, bool flexible, bool nullable, uint32_t element_bytes,
                       struct mill_warray *ret)
{
    if (!mill_read_count(at, flexible, nullable, element_bytes, ret)) {
        return false;
    }
    if (ret->count > 0 && mill_cursor_skip(at, (uint32_t)ret->count * element_bytes)) {
        return false;
    }
    mill_array_end(at, ret);
    return true;
}

bool mill_read_array_i8(struct mill_cursor *at, bool flexible, bool nullable,
                        struct mill_warray *ret)
{
    return read_array(at, flexible, nullable, sizeof(int8_t), ret);
}

bool mill_read_array_i32(struct mill_cursor *at, bool flexible, bool nullable,
                         struct mill_warray *ret)
{
    return read_array(at, flexible, nullable, sizeof(int32_t), ret);
}

bool mill_read_array_i64(struct mill_cursor *at, bool flexible, bool nullable,
                         struct mill_warray *ret)
{
    return read_array(at, flexible, nullable, sizeof(int64_t), ret);
}

bool mill_read_array_str(struct mill_cursor *at, bool flexible, bool nullable,
                         struct mill_warray *ret)
{
    struct mill_wstr text;
    if (!mill_read_count(at, flexible, nullable, flexible ? 1 : sizeof(int16_t), ret)) {
        return false;
    }
    for (int32_t i = 0; i < ret->count; i++) {
        if (!mill_read_str(at, flexible, false, &text)) {
            return false;
        }
    }
    mill_array_end(at, ret);
    return true;
}

/* --- tagged sections --- */

bool mill_tags_begin(struct mill_cursor *at, struct mill_tags *ret)
{
    *ret = (struct mill_tags){.first = true};
    return mill_read_uvarint(at, &ret->left);
}

bool mill_tags_next(struct mill_cursor *at, struct mill_tags *tags)
{
    uint32_t tag;
    uint32_t size_bytes;
    if (tags->left == 0) {
        return false;
    }
    tags->bad = !mill_read_uvarint(at, &tag) || !mill_read_uvarint(at, &size_bytes) ||
                size_bytes > at->left_bytes || (!tags->first && tag <= tags->tag);
    if (tags->bad) {
        return false;
    }
    tags->left--;
    tags->tag = tag;
    tags->first = false;
    tags->body = mill_cursor_slice(at, size_bytes);
    tags->bad = mill_cursor_skip(at, size_bytes) != 0;
    return !tags->bad;
}

bool mill_tags_skip(struct mill_cursor *at, bool nested)
{
#ifdef MILL_MUTANT_PROTOCOL_NESTED_TAGS
    if (nested) {
        return true;
    }
#endif
    struct mill_tags tags;
    MILL_UNUSED(nested);
    if (!mill_tags_begin(at, &tags)) {
        return false;
    }
    while (mill_tags_next(at, &tags)) {
        /* unknown: its bytes are already behind the cursor */
    }
    return !tags.bad;
}

/* --- writer --- */

/* Room for size_bytes more, or NULL after a failure. */
static uint8_t *reserve(struct mill_writer *to, uint32_t size_bytes)
{
    if (MILL_UNLIKELY(to->error != 0)) {
        return NULL;
    }
    if (MILL_UNLIKELY(to->capacity - to->size_bytes < size_bytes)) {
        to->error = -ENOSPC;
        return NULL;
    }
    uint8_t *bytes = to->bytes + to->size_bytes;
    to->size_bytes += size_bytes;
    return bytes;
}

static void fail(struct mill_writer *to, int error)
{
    if (to->error == 0) {
        to->error = error;
    }
}

void mill_writer_init(struct mill_writer *to, void *bytes, uint32_t capacity,
                      struct mill_writer_hole *holes, uint32_t holes_max)
{
    *to = (struct mill_writer){
        .bytes = bytes, .capacity = capacity, .holes = holes, .holes_max = holes_max};
}

void mill_write_i8(struct mill_writer *to, int8_t value)
{
    uint8_t *bytes = reserve(to, sizeof(value));
    if (bytes) {
        *bytes = (uint8_t)value;
    }
}

void mill_write_i16(struct mill_writer *to, int16_t value)
{
    uint8_t *bytes = reserve(to, sizeof(value));
    if (bytes) {
        mill_store_be16(bytes, (uint16_t)value);
    }
}

void mill_write_i32(struct mill_writer *to, int32_t value)
{
    uint8_t *bytes = reserve(to, sizeof(value));
    if (bytes) {
        mill_store_be32(bytes, (uint32_t)value);
    }
}

void mill_write_i64(struct mill_writer *to, int64_t value)
{
    uint8_t *bytes = reserve(to, sizeof(value));
    if (bytes) {
        mill_store_be64(bytes, (uint64_t)value);
    }
}

/* Fills room with the shortest form. ret: its bytes. */
static uint32_t uvarint_form(uint32_t value, uint8_t room[UVARINT_BYTES_MAX])
{
    uint32_t count = 0;
    while (value > 0x7f) {
        room[count++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    room[count++] = (uint8_t)value;
    return count;
}

void mill_write_uvarint(struct mill_writer *to, uint32_t value)
{
    uint8_t room[UVARINT_BYTES_MAX];
    mill_write_bytes(to, room, uvarint_form(value, room));
}

void mill_write_bytes(struct mill_writer *to, const void *bytes, uint32_t size_bytes)
{
    uint8_t *room = reserve(to, size_bytes);
    if (room && size_bytes > 0) {
        memcpy(room, bytes, size_bytes);
    }
}

void mill_write_uuid(struct mill_writer *to, const struct mill_uuid *id)
{
    mill_write_bytes(to, id->b, sizeof(id->b));
}

/* The bytes of a value, from ptr or from received buffers. */
static void write_value(struct mill_writer *to, int32_t length, const uint8_t *ptr,
                        const struct mill_cursor *from)
{
    if (length == 0) {
        return;
    }
    if (ptr) {
        mill_write_bytes(to, ptr, (uint32_t)length);
        return;
    }
    struct mill_cursor at = *from;
    uint8_t *room = reserve(to, (uint32_t)length);
    if (room && mill_cursor_read(&at, room, (uint32_t)length)) {
        fail(to, -EINVAL);
    }
}

void mill_write_str(struct mill_writer *to, bool flexible, bool nullable,
                    const struct mill_wstr *text)
{
    if (text->length > STR_BYTES_MAX || text->length < -1 || (text->length == -1 && !nullable)) {
        fail(to, -EINVAL);
        return;
    }
    if (flexible) {
        mill_write_uvarint(to, (uint32_t)(text->length + 1));
    } else {
        mill_write_i16(to, (int16_t)text->length);
    }
    if (text->length > 0) {
        write_value(to, text->length, text->ptr, &text->at);
    }
}

/* Remembers that size_bytes belong here which the caller sends from elsewhere. */
static void write_hole(struct mill_writer *to, uint32_t size_bytes)
{
    if (to->error != 0) {
        return;
    }
    if (to->holes_count == to->holes_max ||
        (uint64_t)to->hole_bytes + size_bytes > (uint64_t)INT32_MAX) {
        fail(to, -ENOSPC);
        return;
    }
    to->holes[to->holes_count++] =
        (struct mill_writer_hole){.pos_bytes = to->size_bytes, .size_bytes = size_bytes};
    to->hole_bytes += size_bytes;
}

void mill_write_records(struct mill_writer *to, bool flexible, bool nullable,
                        const struct mill_wrecords *records)
{
    const int32_t length = records->length;
    if (length < -1 || (length == -1 && !nullable)) {
        fail(to, -EINVAL);
        return;
    }
    if (flexible) {
        mill_write_uvarint(to, (uint32_t)length + 1);
    } else {
        mill_write_i32(to, length);
    }
    if (length <= 0) {
        return;
    }
    if (records->ptr || to->holes_max == 0) {
        write_value(to, length, records->ptr, &records->at);
    } else {
        write_hole(to, (uint32_t)length);
    }
}

void mill_write_blob(struct mill_writer *to, bool flexible, bool nullable,
                     const struct mill_wstr *blob)
{
    if (blob->length < -1 || (blob->length == -1 && !nullable)) {
        fail(to, -EINVAL);
        return;
    }
    if (flexible) {
        mill_write_uvarint(to, (uint32_t)blob->length + 1);
    } else {
        mill_write_i32(to, blob->length);
    }
    if (blob->length > 0) {
        write_value(to, blob->length, blob->ptr, &blob->at);
    }
}

void mill_write_count(struct mill_writer *to, bool flexible, bool nullable, int32_t count)
{
    if (count < -1 || (count == -1 && !nullable)) {
        fail(to, -EINVAL);
        return;
    }
    if (flexible) {
        mill_write_uvarint(to, (uint32_t)count + 1);
    } else {
        mill_write_i32(to, count);
    }
}

void mill_write_array_i8(struct mill_writer *to, bool flexible, bool nullable,
                         const struct mill_warray *array)
{
    struct mill_warray rest = *array;
    mill_write_count(to, flexible, nullable, array->count);
    for (int32_t i = 0; i < array->count && !to->error; i++) {
        int8_t value = 0;
        if (array->get) {
            array->get(array->context, i, &value);
        } else if (!mill_warray_next_i8(&rest, &value)) {
            fail(to, -EINVAL);
        }
        mill_write_i8(to, value);
    }
}

void mill_write_array_i32(struct mill_writer *to, bool flexible, bool nullable,
                          const struct mill_warray *array)
{
    struct mill_warray rest = *array;
    mill_write_count(to, flexible, nullable, array->count);
    for (int32_t i = 0; i < array->count && !to->error; i++) {
        int32_t value = 0;
        if (array->get) {
            array->get(array->context, i, &value);
        } else if (!mill_warray_next_i32(&rest, &value)) {
            fail(to, -EINVAL);
        }
        mill_write_i32(to, value);
    }
}

void mill_write_array_i64(struct mill_writer *to, bool flexible, bool nullable,
                          const struct mill_warray *array)
{
    struct mill_warray rest = *array;
    mill_write_count(to, flexible, nullable, array->count);
    for (int32_t i = 0; i < array->count && !to->error; i++) {
        int64_t value = 0;
        if (array->get) {
            array->get(array->context, i, &value);
        } else if (!mill_warray_next_i64(&rest, &value)) {
            fail(to, -EINVAL);
        }
        mill_write_i64(to, value);
    }
}

void mill_write_array_str(struct mill_writer *to, bool flexible, bool nullable,
                          const struct mill_warray *array)
{
    struct mill_warray rest = *array;
    mill_write_count(to, flexible, nullable, array->count);
    for (int32_t i = 0; i < array->count && !to->error; i++) {
        struct mill_wstr value = {.length = 0};
        if (array->get) {
            array->get(array->context, i, &value);
        } else if (!mill_warray_next_str(&rest, flexible, &value)) {
            fail(to, -EINVAL);
        }
        mill_write_str(to, flexible, false, &value);
    }
}

uint32_t mill_write_tag_begin(struct mill_writer *to, uint32_t tag)
{
    mill_write_uvarint(to, tag);
    (void)reserve(to, TAG_SIZE_BYTES);
    return to->size_bytes;
}

void mill_write_tag_end(struct mill_writer *to, uint32_t mark)
{
    if (to->error != 0) {
        return;
    }
    uint8_t form[UVARINT_BYTES_MAX];
    const uint32_t size_bytes = to->size_bytes - mark;
    const uint32_t form_bytes = uvarint_form(size_bytes, form);
    uint8_t *body = to->bytes + mark;
    if (form_bytes > TAG_SIZE_BYTES) {
        if (!reserve(to, form_bytes - TAG_SIZE_BYTES)) {
            return;
        }
        memmove(body + form_bytes - TAG_SIZE_BYTES, body, size_bytes);
    }
    memcpy(body - TAG_SIZE_BYTES, form, form_bytes);
}

void mill_write_tags_none(struct mill_writer *to, bool nested)
{
#ifdef MILL_MUTANT_PROTOCOL_NESTED_TAGS
    if (nested) {
        return;
    }
#endif
    MILL_UNUSED(nested);
    mill_write_uvarint(to, 0);
}
