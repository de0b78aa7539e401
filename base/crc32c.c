/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C by SSE4.2 for short runs, ISA-L for long ones, and both fused with a copy. */
#include "base/crc32c.h"

#include <nmmintrin.h>
#include <string.h>

#include <isa-l/crc.h>

#include "base/compiler.h"

enum {
    SHORT_BYTES = 1024, /* below this ISA-L's call costs more than it saves */
    /* A block of a copy: small enough that its bytes are still in L1 when they are summed. */
    COPY_BLOCK_BYTES = 8192,
};

static uint32_t crc_short(uint32_t crc, const uint8_t *at, size_t size_bytes)
{
    uint64_t wide = crc;
    for (; size_bytes >= 8; size_bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size_bytes > 0; size_bytes--, at++) {
        crc = _mm_crc32_u8(crc, *at);
    }
    return crc;
}

uint32_t mill_crc32c_more(uint32_t crc, const void *data, size_t size_bytes)
{
    const uint8_t *at = data;
    if (size_bytes < SHORT_BYTES) {
        return crc_short(crc, at, size_bytes);
    }
    while (size_bytes > 0) {
        size_t part = MILL_MIN(size_bytes, (size_t)1 << 30); /* ISA-L takes an int */
        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)part, crc);
        at += part;
        size_bytes -= part;
    }
    return crc;
}

uint32_t mill_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size_bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    while (size_bytes > 0) {
        size_t part = MILL_MIN(size_bytes, (size_t)COPY_BLOCK_BYTES);
        memcpy(out, in, part);
        crc = mill_crc32c_more(crc, out, part);
        out += part;
        in += part;
        size_bytes -= part;
    }
    return crc;
}
