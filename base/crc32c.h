/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), the sum of Kafka's batches. Pure; any thread. */
#ifndef MILL_BASE_CRC32C_H
#define MILL_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* A running sum: start with MILL_CRC32C_START, feed pieces in order, end with mill_crc32c_end. */
#define MILL_CRC32C_START 0xffffffffu

/* Sum of more bytes. Below 1 KiB an inline SSE4.2 loop, above it ISA-L (its call costs more). */
uint32_t mill_crc32c_more(uint32_t crc, const void *data, size_t size_bytes);

/* The same while copying: one pass over source bytes that are in L1 when summed. */
uint32_t mill_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size_bytes);

static inline uint32_t mill_crc32c_end(uint32_t crc)
{
    return ~crc;
}

/* Sum of one piece of memory. */
static inline uint32_t mill_crc32c(const void *data, size_t size_bytes)
{
    return mill_crc32c_end(mill_crc32c_more(MILL_CRC32C_START, data, size_bytes));
}

#endif
