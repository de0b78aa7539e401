/* SPDX-License-Identifier: Apache-2.0 */
/* Explicit-endian integers. Kafka's wire and files, and IP, are big-endian: a raw integer never
 * holds network order; a field of a wire struct is one of the one-member types below. All loads and
 * stores take any alignment. Pure; any thread. */
#ifndef MILL_BASE_BYTEORDER_H
#define MILL_BASE_BYTEORDER_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint8_t b[2];
} be16;
typedef struct {
    uint8_t b[4];
} be32;
typedef struct {
    uint8_t b[8];
} be64;

static inline uint16_t mill_load_be16(const void *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof(v));
    return __builtin_bswap16(v);
}

static inline uint32_t mill_load_be32(const void *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return __builtin_bswap32(v);
}

static inline uint64_t mill_load_be64(const void *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof(v));
    return __builtin_bswap64(v);
}

static inline void mill_store_be16(void *at, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(at, &value, sizeof(value));
}

static inline void mill_store_be32(void *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof(value));
}

static inline void mill_store_be64(void *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, sizeof(value));
}

static inline uint16_t be16_get(be16 v)
{
    return mill_load_be16(v.b);
}
static inline uint32_t be32_get(be32 v)
{
    return mill_load_be32(v.b);
}
static inline uint64_t be64_get(be64 v)
{
    return mill_load_be64(v.b);
}
static inline be16 be16_make(uint16_t v)
{
    be16 r;
    mill_store_be16(r.b, v);
    return r;
}
static inline be32 be32_make(uint32_t v)
{
    be32 r;
    mill_store_be32(r.b, v);
    return r;
}
static inline be64 be64_make(uint64_t v)
{
    be64 r;
    mill_store_be64(r.b, v);
    return r;
}

#endif
