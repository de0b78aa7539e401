/* SPDX-License-Identifier: Apache-2.0 */
/* Kafka's requests written by hand into bounded memory, independent of the codec under test; for
 * the C clients of tests. Overruns end the program. */
#ifndef MILL_TESTS_LIB_BYTES_H
#define MILL_TESTS_LIB_BYTES_H

#include <string.h>

#include "base/byteorder.h"
#include "base/check.h"

enum {
    PRODUCE_KEY = 0,
    PRODUCE_VERSION = 7,
    FETCH_KEY = 1,
    FETCH_VERSION = 4,
    METADATA_KEY = 3,
    METADATA_VERSION = 1,
    API_VERSIONS_KEY = 18,
};

struct bytes {
    uint8_t *at;
    uint32_t size_bytes;
    uint32_t capacity_bytes;
};

static inline void put(struct bytes *to, const void *data, uint32_t size_bytes)
{
    MILL_ASSERT_LE(to->size_bytes + size_bytes, to->capacity_bytes);
    memcpy(to->at + to->size_bytes, data, size_bytes);
    to->size_bytes += size_bytes;
}

static inline void put8(struct bytes *to, int value)
{
    uint8_t byte = (uint8_t)value;
    put(to, &byte, 1);
}

static inline void put16(struct bytes *to, int value)
{
    be16 wire = be16_make((uint16_t)value);
    put(to, wire.b, sizeof(wire.b));
}

static inline void put32(struct bytes *to, int32_t value)
{
    be32 wire = be32_make((uint32_t)value);
    put(to, wire.b, sizeof(wire.b));
}

static inline void put64(struct bytes *to, int64_t value)
{
    be64 wire = be64_make((uint64_t)value);
    put(to, wire.b, sizeof(wire.b));
}

static inline void put_text(struct bytes *to, const char *text)
{
    put16(to, (int)strlen(text));
    put(to, text, (uint32_t)strlen(text));
}

static inline void put_varint(struct bytes *to, int32_t value)
{
    uint32_t left = ((uint32_t)value << 1) ^ (uint32_t)(value >> 31);
    for (; left > 127; left >>= 7) {
        put8(to, (int)(left & 127) | 128);
    }
    put8(to, (int)left);
}

#endif
