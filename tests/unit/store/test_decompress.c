/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every codec's streams are read, also raw snappy and several gzip members; output stays
 * within its capacity whatever a stream claims; broken streams are errors. Method: streams made by
 * the libraries themselves, cut and damaged. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "dataplane/store/store_types.h"

enum {
    PLAIN = 200000,
    ROOM = 300000,
};

static uint8_t plain[PLAIN];
static uint8_t packed[ROOM];
static uint8_t out[ROOM];

static size_t pack_gzip(uint8_t *to, const uint8_t *from, size_t size)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)from,
                       .avail_in = (uInt)size,
                       .next_out = to,
                       .avail_out = ROOM / 2};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t made = stream.total_out;
    deflateEnd(&stream);
    return made;
}

static size_t pack_snappy(uint8_t *to, const uint8_t *from, size_t size)
{
    size_t made = ROOM;
    assert_int_equal(snappy_compress((const char *)from, size, (char *)to, &made), SNAPPY_OK);
    return made;
}

static size_t pack_xerial(uint8_t *to, const uint8_t *from, size_t size)
{
    static const uint8_t head[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    size_t at = sizeof(head);
    memcpy(to, head, sizeof(head));
    for (size_t done = 0; done < size; done += 32768) {
        size_t made = pack_snappy(to + at + 4, from + done, MILL_MIN((size_t)32768, size - done));
        mill_store_be32(to + at, (uint32_t)made);
        at += 4 + made;
    }
    return at;
}

static size_t pack_lz4(uint8_t *to, const uint8_t *from, size_t size)
{
    return LZ4F_compressFrame(to, ROOM, from, size, NULL);
}

static size_t pack_zstd(uint8_t *to, const uint8_t *from, size_t size)
{
    return ZSTD_compress(to, ROOM, from, size, 3);
}

static void make_plain(void)
{
    for (uint32_t i = 0; i < PLAIN; i++) {
        plain[i] = (uint8_t)((i * 2654435761u) >> 27);
    }
}

struct codec {
    enum mill_codec codec;
    size_t (*pack)(uint8_t *to, const uint8_t *from, size_t size);
};

static const struct codec codecs[] = {
    {MILL_CODEC_GZIP, pack_gzip},     {MILL_CODEC_SNAPPY, pack_snappy},
    {MILL_CODEC_SNAPPY, pack_xerial}, {MILL_CODEC_LZ4, pack_lz4},
    {MILL_CODEC_ZSTD, pack_zstd},
};

static void test_decompress_gives_the_bytes_back(void **state)
{
    MILL_UNUSED(state);
    make_plain();
    for (uint32_t i = 0; i < MILL_COUNT_OF(codecs); i++) {
        size_t size = codecs[i].pack(packed, plain, PLAIN);
        assert_int_equal(mill_decompress(codecs[i].codec, packed, size, out, ROOM), PLAIN);
        assert_memory_equal(out, plain, PLAIN);
    }
    size_t first = pack_gzip(packed, plain, 1000);
    size_t second = pack_gzip(packed + first, plain + 1000, 500);
    assert_int_equal(mill_decompress(MILL_CODEC_GZIP, packed, first + second, out, ROOM), 1500);
    assert_memory_equal(out, plain, 1500);
}

static void test_decompress_is_bounded_and_refuses_damage(void **state)
{
    MILL_UNUSED(state);
    make_plain();
    for (uint32_t i = 0; i < MILL_COUNT_OF(codecs); i++) {
        size_t size = codecs[i].pack(packed, plain, PLAIN);
        uint8_t *room = malloc(1000); /* its own, so that a sanitizer sees the first byte beyond */
        assert_non_null(room);
        assert_true(mill_decompress(codecs[i].codec, packed, size, room, 1000) <= 1000);
        free(room);
        for (size_t cut = 0; cut < size; cut += 1 + size / 50) {
            int64_t r = mill_decompress(codecs[i].codec, packed, cut, out, ROOM);
            assert_true(r < PLAIN);
        }
        for (size_t at = 0; at < size; at += 1 + size / 50) {
            packed[at] ^= 0x55;
            assert_true(mill_decompress(codecs[i].codec, packed, size, out, ROOM) <= ROOM);
            packed[at] ^= 0x55;
        }
        assert_int_equal(mill_decompress(codecs[i].codec, packed, size, out, ROOM), PLAIN);
    }
    assert_int_equal(mill_decompress(MILL_CODEC_NONE, packed, 10, out, ROOM), -EOPNOTSUPP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decompress_gives_the_bytes_back),
        cmocka_unit_test(test_decompress_is_bounded_and_refuses_damage),
    };
    return cmocka_run_group_tests_name("decompress", tests, NULL, NULL);
}
