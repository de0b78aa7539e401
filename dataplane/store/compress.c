/* SPDX-License-Identifier: Apache-2.0 */
/* Compression of a batch's records as Kafka's own broker does it, so that every client reads them:
 * gzip; snappy in blocks with xerial's framing; lz4 frames of independent 64 KiB blocks without
 * checksums (Java's reader knows no others); zstd. Default levels. Workers only. Pure but for the
 * libraries' own memory. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <string.h>

#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

enum {
    XERIAL_HEADER_BYTES = 16,
    XERIAL_BLOCK_BYTES = 32 << 10,
    XERIAL_LENGTH_BYTES = 4,
    GZIP_WINDOW = 15 + 16,
    GZIP_MEMORY = 8,
    GZIP_FRAME_BYTES = 18,
    ZSTD_LEVEL = 3,
};

/* Magic, version and least version that can read it. */
static const uint8_t xerial_header[XERIAL_HEADER_BYTES] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0,
                                                           0,    0,   0,   1,   0,   0,   0,   1};

static const LZ4F_preferences_t lz4_preferences = {
    .frameInfo = {.blockSizeID = LZ4F_max64KB, .blockMode = LZ4F_blockIndependent},
};

static size_t xerial_bound(size_t size)
{
    size_t blocks = size / XERIAL_BLOCK_BYTES + 1;
    return XERIAL_HEADER_BYTES +
           blocks * (XERIAL_LENGTH_BYTES + snappy_max_compressed_length(XERIAL_BLOCK_BYTES));
}

size_t mill_compress_bound(enum mill_codec codec, size_t size_bytes)
{
    switch (codec) {
    case MILL_CODEC_GZIP:
        return compressBound(size_bytes) + GZIP_FRAME_BYTES;
    case MILL_CODEC_SNAPPY:
        return xerial_bound(size_bytes);
    case MILL_CODEC_LZ4:
        return LZ4F_compressFrameBound(size_bytes, &lz4_preferences);
    case MILL_CODEC_ZSTD:
        return ZSTD_compressBound(size_bytes);
    case MILL_CODEC_NONE:
    case MILL_CODEC_COUNT:
        break;
    }
    return 0;
}

static int64_t gzip(const uint8_t *from, size_t size, uint8_t *to, size_t capacity)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)from,
                       .avail_in = (uInt)size,
                       .next_out = to,
                       .avail_out = (uInt)capacity};
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return -ENOMEM;
    }
    int r = deflate(&stream, Z_FINISH);
    int64_t made = (int64_t)stream.total_out;
    deflateEnd(&stream);
    return r == Z_STREAM_END ? made : -EMSGSIZE;
}

static int64_t snappy(const uint8_t *from, size_t size, uint8_t *to, size_t capacity)
{
    size_t at = XERIAL_HEADER_BYTES;
    memcpy(to, xerial_header, XERIAL_HEADER_BYTES);
    for (size_t done = 0; done < size;) {
        size_t block = MILL_MIN(size - done, (size_t)XERIAL_BLOCK_BYTES);
        size_t made = capacity - at - XERIAL_LENGTH_BYTES;
        if (snappy_compress((const char *)from + done, block, (char *)to + at + XERIAL_LENGTH_BYTES,
                            &made) != SNAPPY_OK) {
            return -EMSGSIZE;
        }
        mill_store_be32(to + at, (uint32_t)made);
        at += XERIAL_LENGTH_BYTES + made;
        done += block;
    }
    return (int64_t)at;
}

int64_t mill_compress(enum mill_codec codec, const uint8_t *from, size_t size_bytes, uint8_t *to,
                      size_t capacity)
{
    size_t made;
    MILL_ASSERT_LE(mill_compress_bound(codec, size_bytes), capacity);
    switch (codec) {
    case MILL_CODEC_GZIP:
        return gzip(from, size_bytes, to, capacity);
    case MILL_CODEC_SNAPPY:
        return snappy(from, size_bytes, to, capacity);
    case MILL_CODEC_LZ4:
        made = LZ4F_compressFrame(to, capacity, from, size_bytes, &lz4_preferences);
        return LZ4F_isError(made) ? -ENOMEM : (int64_t)made;
    case MILL_CODEC_ZSTD:
        made = ZSTD_compress(to, capacity, from, size_bytes, ZSTD_LEVEL);
        return ZSTD_isError(made) ? -ENOMEM : (int64_t)made;
    case MILL_CODEC_NONE:
    case MILL_CODEC_COUNT:
        break;
    }
    return -EOPNOTSUPP;
}
