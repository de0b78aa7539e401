/* SPDX-License-Identifier: Apache-2.0 */
/* Random contents for messages; see codec_table.h. */
#include "tests/unit/protocol/codec_table.h"

enum {
    TEXT_BYTES = 40000,
    SHORT_BYTES = 12,
    LONG_BYTES = 300, /* a two-byte compact length */
    ELEMENTS_MAX = 3,
};

uint64_t codec_next(struct codec_pool *pool)
{
    return mill_random_next(&pool->random);
}

uint32_t codec_below(struct codec_pool *pool, uint32_t bound)
{
    return mill_random_below(&pool->random, bound);
}

/* Bytes that tell by their value where they stood. */
static const uint8_t *text(void)
{
    static uint8_t bytes[TEXT_BYTES];
    if (bytes[1] == 0) {
        for (uint32_t i = 0; i < TEXT_BYTES; i++) {
            bytes[i] = (uint8_t)('a' + i % 23);
        }
    }
    return bytes;
}

static int32_t any_length(struct codec_pool *pool, bool nullable)
{
    if (nullable && codec_below(pool, 4) == 0) {
        return -1;
    }
    return (int32_t)codec_below(pool, codec_below(pool, 8) == 0 ? LONG_BYTES : SHORT_BYTES);
}

void codec_fill_array(struct codec_pool *pool, bool nullable, mill_warray_get get,
                      struct mill_warray *ret)
{
    *ret = (struct mill_warray){.get = get, .context = pool};
    ret->count =
        nullable && codec_below(pool, 4) == 0 ? -1 : (int32_t)codec_below(pool, ELEMENTS_MAX + 1);
}

void codec_fill_str(struct codec_pool *pool, bool nullable, struct mill_wstr *ret)
{
    *ret = (struct mill_wstr){.length = any_length(pool, nullable)};
    ret->ptr = text() + codec_below(pool, LONG_BYTES);
}

void codec_fill_records(struct codec_pool *pool, bool nullable, struct mill_wrecords *ret)
{
    *ret = (struct mill_wrecords){.length = any_length(pool, nullable)};
    ret->ptr = text() + codec_below(pool, LONG_BYTES);
}

void codec_fill_blob(struct codec_pool *pool, bool nullable, struct mill_wstr *ret)
{
    codec_fill_str(pool, nullable, ret);
}

void codec_fill_uuid(struct codec_pool *pool, struct mill_uuid *ret)
{
    for (uint32_t i = 0; i < sizeof(ret->b); i++) {
        ret->b[i] = (uint8_t)codec_next(pool);
    }
}

void codec_get_i8(const void *context, int32_t index, void *ret_element)
{
    struct codec_pool *pool = (void *)(uintptr_t)context;
    int8_t *value = ret_element;
    MILL_UNUSED(index);
    *value = (int8_t)codec_next(pool);
}

void codec_get_i32(const void *context, int32_t index, void *ret_element)
{
    struct codec_pool *pool = (void *)(uintptr_t)context;
    int32_t *value = ret_element;
    MILL_UNUSED(index);
    *value = (int32_t)codec_next(pool);
}

void codec_get_i64(const void *context, int32_t index, void *ret_element)
{
    struct codec_pool *pool = (void *)(uintptr_t)context;
    int64_t *value = ret_element;
    MILL_UNUSED(index);
    *value = (int64_t)codec_next(pool);
}

void codec_get_str(const void *context, int32_t index, void *ret_element)
{
    struct codec_pool *pool = (void *)(uintptr_t)context;
    MILL_UNUSED(index);
    codec_fill_str(pool, false, ret_element);
}

uint32_t codec_make(const struct codec_row *row, int16_t version, uint64_t seed, uint8_t *bytes,
                    uint32_t capacity)
{
    alignas(16) uint8_t message[CODEC_MESSAGE_BYTES_MAX];
    struct codec_pool pool = {.random = {.state = seed}, .version = version};
    struct mill_writer to;
    mill_writer_init(&to, bytes, capacity, NULL, 0);
    row->fill(&pool, message);
    int error = row->encode(&to, version, message);
    MILL_ASSERT_EQ(error, 0);
    return to.size_bytes;
}
