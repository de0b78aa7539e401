/* SPDX-License-Identifier: Apache-2.0 */
/* What generated message code is made of: readers that take one value off a cursor and writers that
 * put one into a run of memory. For generated code, and for the records of internal topics;
 * everyone else uses wire.h. Pure; any thread; never allocates.
 *
 * Readers return false when the bytes do not hold the value (too few, a bad length, null where it
 * is not allowed); the cursor is then undefined and the message refused. Writers remember their
 * first failure in the writer. */
#ifndef MILL_PROTOCOL_CODEC_H
#define MILL_PROTOCOL_CODEC_H

#include <string.h>

#include "base/byteorder.h"
#include "protocol/wire.h"

/* The next size_bytes (1 to 16): in place when they lie in one buffer, else gathered in room. NULL
 * when fewer are left. */
static inline const uint8_t *mill_read_fixed(struct mill_cursor *at, uint32_t size_bytes,
                                             uint8_t room[16])
{
    if (MILL_LIKELY(at->left_bytes >= size_bytes && at->buf->size_bytes >= at->pos_bytes &&
                    at->buf->size_bytes - at->pos_bytes >= size_bytes)) {
        const uint8_t *bytes = at->buf->data + at->pos_bytes;
        at->pos_bytes += size_bytes;
        at->left_bytes -= size_bytes;
        return bytes;
    }
    return mill_cursor_read(at, room, size_bytes) == 0 ? room : NULL;
}

static inline bool mill_read_i8(struct mill_cursor *at, int8_t *ret)
{
    uint8_t room[16];
    const uint8_t *bytes = mill_read_fixed(at, 1, room);
    if (MILL_UNLIKELY(!bytes)) {
        return false;
    }
    *ret = (int8_t)bytes[0];
    return true;
}

/* Any byte but 0 is true, as in Kafka. */
static inline bool mill_read_bool(struct mill_cursor *at, bool *ret)
{
    int8_t value;
    if (MILL_UNLIKELY(!mill_read_i8(at, &value))) {
        return false;
    }
    *ret = value != 0;
    return true;
}

static inline bool mill_read_i16(struct mill_cursor *at, int16_t *ret)
{
    uint8_t room[16];
    const uint8_t *bytes = mill_read_fixed(at, 2, room);
    if (MILL_UNLIKELY(!bytes)) {
        return false;
    }
    *ret = (int16_t)mill_load_be16(bytes);
    return true;
}

static inline bool mill_read_i32(struct mill_cursor *at, int32_t *ret)
{
    uint8_t room[16];
    const uint8_t *bytes = mill_read_fixed(at, 4, room);
    if (MILL_UNLIKELY(!bytes)) {
        return false;
    }
    *ret = (int32_t)mill_load_be32(bytes);
    return true;
}

static inline bool mill_read_i64(struct mill_cursor *at, int64_t *ret)
{
    uint8_t room[16];
    const uint8_t *bytes = mill_read_fixed(at, 8, room);
    if (MILL_UNLIKELY(!bytes)) {
        return false;
    }
    *ret = (int64_t)mill_load_be64(bytes);
    return true;
}

/* IEEE 754, the most significant byte first. */
static inline bool mill_read_f64(struct mill_cursor *at, double *ret)
{
    int64_t bits;
    if (MILL_UNLIKELY(!mill_read_i64(at, &bits))) {
        return false;
    }
    memcpy(ret, &bits, sizeof(*ret));
    return true;
}

/* Before a struct that may be null: 1 it follows, -1 it does not. */
static inline bool mill_read_present(struct mill_cursor *at, bool *ret)
{
    int8_t value;
    if (MILL_UNLIKELY(!mill_read_i8(at, &value) || (value != 1 && value != -1))) {
        return false;
    }
    *ret = value == 1;
    return true;
}

static inline bool mill_read_uuid(struct mill_cursor *at, struct mill_uuid *ret)
{
    return mill_cursor_read(at, ret->b, sizeof(ret->b)) == 0;
}

/* At most five bytes and 32 bits. */
bool mill_read_uvarint(struct mill_cursor *at, uint32_t *ret);

bool mill_read_str(struct mill_cursor *at, bool flexible, bool nullable, struct mill_wstr *ret);
bool mill_read_records(struct mill_cursor *at, bool flexible, bool nullable,
                       struct mill_wrecords *ret);
bool mill_read_blob(struct mill_cursor *at, bool flexible, bool nullable, struct mill_wstr *ret);

/* Reads an array's count and refuses one whose elements cannot fit into what is left, each taking
 * at least least_bytes (1 or more). ret->at stands at the first element. */
bool mill_read_count(struct mill_cursor *at, bool flexible, bool nullable, uint32_t least_bytes,
                     struct mill_warray *ret);
/* After the elements were walked: limits ret->at to their bytes. */
void mill_array_end(const struct mill_cursor *at, struct mill_warray *ret);
bool mill_read_array_i8(struct mill_cursor *at, bool flexible, bool nullable,
                        struct mill_warray *ret);
bool mill_read_array_i32(struct mill_cursor *at, bool flexible, bool nullable,
                         struct mill_warray *ret);
bool mill_read_array_i64(struct mill_cursor *at, bool flexible, bool nullable,
                         struct mill_warray *ret);
bool mill_read_array_str(struct mill_cursor *at, bool flexible, bool nullable,
                         struct mill_warray *ret);

/* A tagged section being read. */
struct mill_tags {
    uint32_t left; /* fields not yet seen */
    uint32_t tag;  /* of the present field */
    bool first;
    bool bad; /* the section is malformed */
    struct mill_cursor body;
};

/* Reads the count of fields. */
bool mill_tags_begin(struct mill_cursor *at, struct mill_tags *ret);
/* Takes the next field off the cursor: its bytes are in body. false: none left, or bad. */
bool mill_tags_next(struct mill_cursor *at, struct mill_tags *tags);
/* Skips a section none of whose tags is known. nested: not the message's own section. */
bool mill_tags_skip(struct mill_cursor *at, bool nested);

static inline void mill_write_bool(struct mill_writer *to, bool value)
{
    mill_write_i8(to, value);
}

static inline void mill_write_f64(struct mill_writer *to, double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    mill_write_i64(to, bits);
}

/* ret: present. */
static inline bool mill_write_present(struct mill_writer *to, bool present)
{
    mill_write_i8(to, present ? 1 : -1);
    return present;
}

void mill_write_uuid(struct mill_writer *to, const struct mill_uuid *id);
void mill_write_str(struct mill_writer *to, bool flexible, bool nullable,
                    const struct mill_wstr *text);
void mill_write_records(struct mill_writer *to, bool flexible, bool nullable,
                        const struct mill_wrecords *records);
void mill_write_blob(struct mill_writer *to, bool flexible, bool nullable,
                     const struct mill_wstr *blob);
void mill_write_count(struct mill_writer *to, bool flexible, bool nullable, int32_t count);
void mill_write_array_i8(struct mill_writer *to, bool flexible, bool nullable,
                         const struct mill_warray *array);
void mill_write_array_i32(struct mill_writer *to, bool flexible, bool nullable,
                          const struct mill_warray *array);
void mill_write_array_i64(struct mill_writer *to, bool flexible, bool nullable,
                          const struct mill_warray *array);
void mill_write_array_str(struct mill_writer *to, bool flexible, bool nullable,
                          const struct mill_warray *array);

/* A tagged field: begin, its bytes, end with what begin returned. */
uint32_t mill_write_tag_begin(struct mill_writer *to, uint32_t tag);
void mill_write_tag_end(struct mill_writer *to, uint32_t mark);
/* An empty tagged section. */
void mill_write_tags_none(struct mill_writer *to, bool nested);

#endif
