/* SPDX-License-Identifier: Apache-2.0 */
/* Decompression of a batch's records into bounded memory: gzip, snappy (xerial stream or raw), lz4
 * frame, zstd. Workers only, never a poll core. The output never exceeds the capacity, whatever the
 * stream claims. Pure but for the libraries' own memory. ref: protocol/batch.h codecs */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum {
    UNPACK_FIRST_BYTES = 64 << 10, /* first try of mill_unpack, or ... */
    UNPACK_GUESS = 8,              /* ... so many times the compressed size; each next one more */
    XERIAL_HEADER_BYTES = 16,
    ZLIB_WINDOW_GZIP = 15 + 16,
    ZSTD_WINDOW_LOG_MAX = 27, /* 128 MiB */
};

static const uint8_t xerial_magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

static int64_t gzip(const uint8_t *from, size_t size, uint8_t *to, size_t capacity)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)from,
                       .avail_in = (uInt)size,
                       .next_out = to,
                       .avail_out = (uInt)capacity};
    if (inflateInit2(&stream, ZLIB_WINDOW_GZIP) != Z_OK) {
        return -ENOMEM;
    }
    int r = Z_OK;
    while (r == Z_OK && stream.avail_out > 0) {
        r = inflate(&stream, Z_NO_FLUSH);
        if (r == Z_STREAM_END && stream.avail_in > 0) {
            r = inflateReset(&stream); /* a further member */
        }
    }
    int64_t made = (int64_t)(capacity - stream.avail_out);
    bool good = r == Z_STREAM_END || stream.avail_out == 0;
    inflateEnd(&stream);
    return good ? made : -EBADMSG;
}

static int64_t snappy_block(const uint8_t *from, size_t size, uint8_t *to, size_t capacity)
{
    size_t made = 0;
    if (snappy_uncompressed_length((const char *)from, size, &made) != SNAPPY_OK) {
        return -EBADMSG;
    }
    if (made > capacity) {
        return -EMSGSIZE;
    }
    if (snappy_uncompress((const char *)from, size, (char *)to, &made) != SNAPPY_OK) {
        return -EBADMSG;
    }
    return (int64_t)made;
}

static int64_t snappy(const uint8_t *from, size_t size, uint8_t *to, size_t capacity)
{
    if (size < XERIAL_HEADER_BYTES || memcmp(from, xerial_magic, sizeof(xerial_magic)) != 0) {
        return snappy_block(from, size, to, capacity);
    }
    size_t at = XERIAL_HEADER_BYTES;
    size_t made = 0;
    while (at < size) {
        if (size - at < 4) {
            return -EBADMSG;
        }
        uint32_t block = mill_load_be32(from + at);
        at += 4;
        if (block > size - at) {
            return -EBADMSG;
        }
        int64_t r = snappy_block(from + at, block, to + made, capacity - made);
        if (r < 0) {
            return r;
        }
        made += (size_t)r;
        at += block;
    }
    return (int64_t)made;
}

static int64_t lz4(const uint8_t *from, size_t size, uint8_t *to, size_t capacity)
{
    LZ4F_dctx *context = NULL;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION))) {
        return -ENOMEM;
    }
    size_t in = 0;
    size_t made = 0;
    size_t hint = 1;
    while (hint != 0 && made < capacity && in < size) {
        size_t from_bytes = size - in;
        size_t to_bytes = capacity - made;
        hint = LZ4F_decompress(context, to + made, &to_bytes, from + in, &from_bytes, NULL);
        if (LZ4F_isError(hint) || (from_bytes == 0 && to_bytes == 0)) {
            break;
        }
        in += from_bytes;
        made += to_bytes;
    }
    LZ4F_freeDecompressionContext(context);
    return hint == 0 || made == capacity ? (int64_t)made : -EBADMSG;
}

static int64_t zstd(const uint8_t *from, size_t size, uint8_t *to, size_t capacity)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    if (!stream) {
        return -ENOMEM;
    }
    ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    ZSTD_inBuffer in = {.src = from, .size = size};
    ZSTD_outBuffer out = {.dst = to, .size = capacity};
    size_t hint = 1;
    while (in.pos < in.size && out.pos < out.size) {
        size_t before = in.pos + out.pos;
        hint = ZSTD_decompressStream(stream, &out, &in);
        if (ZSTD_isError(hint) || in.pos + out.pos == before) {
            break;
        }
    }
    ZSTD_freeDStream(stream);
    if (ZSTD_isError(hint) && ZSTD_getErrorCode(hint) == ZSTD_error_memory_allocation) {
        return -ENOMEM;
    }
    bool good = !ZSTD_isError(hint) && (hint == 0 || out.pos == out.size);
    return good ? (int64_t)out.pos : -EBADMSG;
}

int64_t mill_decompress(enum mill_codec codec, const uint8_t *from, size_t size_bytes, uint8_t *to,
                        size_t capacity)
{
    switch (codec) {
    case MILL_CODEC_GZIP:
        return gzip(from, size_bytes, to, capacity);
    case MILL_CODEC_SNAPPY:
        return snappy(from, size_bytes, to, capacity);
    case MILL_CODEC_LZ4:
        return lz4(from, size_bytes, to, capacity);
    case MILL_CODEC_ZSTD:
        return zstd(from, size_bytes, to, capacity);
    case MILL_CODEC_NONE:
    case MILL_CODEC_COUNT:
        break;
    }
    return -EOPNOTSUPP;
}

int64_t mill_unpack(enum mill_codec codec, const uint8_t *from, size_t size_bytes,
                    size_t limit_bytes, uint8_t **ret_bytes)
{
    size_t most = limit_bytes + 1; /* so that a full buffer means too many */
    size_t capacity = MILL_MAX(size_bytes * UNPACK_GUESS, (size_t)UNPACK_FIRST_BYTES);
    for (;; capacity *= UNPACK_GUESS) {
        capacity = MILL_MIN(capacity, most);
        uint8_t *bytes = malloc(capacity);
        int64_t made = bytes ? mill_decompress(codec, from, size_bytes, bytes, capacity) : -ENOMEM;
        bool full = made == -EMSGSIZE || made == (int64_t)capacity;
        if (made >= 0 && !full) {
            *ret_bytes = bytes;
            return made;
        }
        free(bytes);
        if (!full || capacity == most) {
            return full ? -EMSGSIZE : made;
        }
    }
}
