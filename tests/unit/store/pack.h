/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed streams as clients make them, by the libraries themselves and not by the code under
 * test. */
#ifndef MILL_TESTS_UNIT_STORE_PACK_H
#define MILL_TESTS_UNIT_STORE_PACK_H

#include <string.h>

#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "base/byteorder.h"
#include "base/check.h"
#include "protocol/batch.h"

/* Each: ret: bytes made, at most room. */
static inline size_t pack_none(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    MILL_ASSERT_LE(size, room);
    memcpy(to, from, size);
    return size;
}

static inline size_t pack_gzip(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)from,
                       .avail_in = (uInt)size,
                       .next_out = to,
                       .avail_out = (uInt)room};
    MILL_ASSERT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    MILL_ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t made = stream.total_out;
    deflateEnd(&stream);
    return made;
}

static inline size_t pack_snappy(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    size_t made = room;
    int r = (int)snappy_compress((const char *)from, size, (char *)to, &made);
    MILL_ASSERT_EQ(r, SNAPPY_OK);
    return made;
}

/* Java's framing: blocks of 32 KiB behind their lengths. */
static inline size_t pack_xerial(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    static const uint8_t head[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    size_t at = sizeof(head);
    memcpy(to, head, sizeof(head));
    for (size_t done = 0; done < size; done += 32768) {
        size_t block = MILL_MIN((size_t)32768, size - done);
        size_t made = pack_snappy(to + at + 4, room - at - 4, from + done, block);
        mill_store_be32(to + at, (uint32_t)made);
        at += 4 + made;
    }
    return at;
}

static inline size_t pack_lz4(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    size_t made = LZ4F_compressFrame(to, room, from, size, NULL);
    MILL_ASSERT(!LZ4F_isError(made));
    return made;
}

static inline size_t pack_zstd(uint8_t *to, size_t room, const uint8_t *from, size_t size)
{
    size_t made = ZSTD_compress(to, room, from, size, 3);
    MILL_ASSERT(!ZSTD_isError(made));
    return made;
}

struct packer {
    const char *name;
    enum mill_codec codec;
    size_t (*pack)(uint8_t *to, size_t room, const uint8_t *from, size_t size);
};

static const struct packer packers[] = {
    {"gzip", MILL_CODEC_GZIP, pack_gzip},
    {"snappy", MILL_CODEC_SNAPPY, pack_snappy},
    {"snappy of Java", MILL_CODEC_SNAPPY, pack_xerial},
    {"lz4", MILL_CODEC_LZ4, pack_lz4},
    {"zstd", MILL_CODEC_ZSTD, pack_zstd},
};

#endif
