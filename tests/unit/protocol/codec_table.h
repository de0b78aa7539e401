/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the codec share: a generated row per message with a function that fills it from
 * a seed, and helpers to lay bytes into chains. */
#ifndef MILL_TESTS_PROTOCOL_CODEC_TABLE_H
#define MILL_TESTS_PROTOCOL_CODEC_TABLE_H

#include "base/random.h"
#include "protocol/wire.h"

enum {
    CODEC_MESSAGE_BYTES_MAX = 1024,
    CODEC_ROOM_BYTES = 1 << 20,
};

/* Source of random contents. Array elements are drawn while the encoder asks for them. */
struct codec_pool {
    struct mill_random random;
    int16_t version;
};

struct codec_row {
    const char *name;
    int16_t key;
    int16_t version_min;
    int16_t version_max;
    int16_t flexible_from;
    bool response;
    void (*fill)(struct codec_pool *pool, void *message);
    int (*decode)(struct mill_cursor *at, int16_t version, void *message);
    int (*encode)(struct mill_writer *to, int16_t version, const void *message);
};
extern const struct codec_row codec_rows[];
extern const uint32_t codec_rows_count;

uint64_t codec_next(struct codec_pool *pool);
uint32_t codec_below(struct codec_pool *pool, uint32_t bound);
void codec_fill_array(struct codec_pool *pool, bool nullable, mill_warray_get get,
                      struct mill_warray *ret);
void codec_fill_str(struct codec_pool *pool, bool nullable, struct mill_wstr *ret);
void codec_fill_records(struct codec_pool *pool, bool nullable, struct mill_wrecords *ret);
void codec_fill_blob(struct codec_pool *pool, bool nullable, struct mill_wstr *ret);
void codec_fill_uuid(struct codec_pool *pool, struct mill_uuid *ret);
void codec_get_i8(const void *context, int32_t index, void *ret_element);
void codec_get_i32(const void *context, int32_t index, void *ret_element);
void codec_get_i64(const void *context, int32_t index, void *ret_element);
void codec_get_str(const void *context, int32_t index, void *ret_element);

/* Fills and encodes one message without header. ret: its size. */
uint32_t codec_make(const struct codec_row *row, int16_t version, uint64_t seed, uint8_t *bytes,
                    uint32_t capacity);

#endif
