/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the broker compresses is read back, in the framing that clients know, whatever the
 * bytes are, within the bound; and unpacking takes no more memory than its limit, to the byte.
 * Method: bytes that shrink, bytes that do not, sizes around the codecs' blocks. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "dataplane/store/store_types.h"
#include "tests/unit/store/pack.h"

static const size_t sizes[] = {1, 70, 32767, 32768, 32769, 65536, 65537, 1000000};

static void fill(uint8_t *bytes, size_t size, bool shrinks)
{
    struct mill_random random = {.state = 5};
    for (size_t i = 0; i < size; i++) {
        bytes[i] = shrinks ? (uint8_t)(i / 100) : (uint8_t)mill_random_below(&random, 256);
    }
}

/* The frame as Kafka's own broker writes it: a reader of Java's knows no dependent blocks. */
static void check_framing(enum mill_codec codec, const uint8_t *packed)
{
    static const uint8_t xerial[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0,
                                       0,    0,   0,   1,   0,   0,   0,   1};
    if (codec == MILL_CODEC_SNAPPY) {
        assert_memory_equal(packed, xerial, sizeof(xerial));
    } else if (codec == MILL_CODEC_LZ4) {
        assert_int_equal(packed[4], 0x60); /* version 1, independent blocks, no checksum, no size */
        assert_int_equal(packed[5], 0x40); /* blocks of 64 KiB */
    } else if (codec == MILL_CODEC_GZIP) {
        assert_int_equal(packed[0], 0x1f);
        assert_int_equal(packed[1], 0x8b);
    }
}

static void test_compress_every_size_comes_back(void **state)
{
    MILL_UNUSED(state);
    for (uint32_t i = 0; i < MILL_COUNT_OF(sizes) * 2; i++) {
        size_t size = sizes[i / 2];
        uint8_t *plain = malloc(size);
        uint8_t *out = malloc(size + 1);
        assert_non_null(plain);
        assert_non_null(out);
        fill(plain, size, i % 2 == 0);
        for (int codec = MILL_CODEC_GZIP; codec < MILL_CODEC_COUNT; codec++) {
            size_t bound = mill_compress_bound((enum mill_codec)codec, size);
            uint8_t *packed = malloc(bound); /* its own: a sanitizer sees the first byte beyond */
            assert_non_null(packed);
            int64_t made = mill_compress((enum mill_codec)codec, plain, size, packed, bound);
            assert_in_range(made, 1, bound);
            check_framing((enum mill_codec)codec, packed);
            assert_int_equal(
                mill_decompress((enum mill_codec)codec, packed, (size_t)made, out, size + 1), size);
            assert_memory_equal(out, plain, size);
            free(packed);
        }
        free(plain);
        free(out);
    }
    assert_int_equal(mill_compress_bound(MILL_CODEC_NONE, 5), 0);
}

static void test_unpack_stops_at_its_limit(void **state)
{
    MILL_UNUSED(state);
    size_t size = 3000000; /* more than the first tries take */
    uint8_t *plain = calloc(1, size);
    uint8_t *packed = malloc(size * 2);
    uint8_t *out = NULL;
    assert_non_null(plain);
    assert_non_null(packed);
    for (uint32_t i = 0; i < MILL_COUNT_OF(packers); i++) {
        const struct packer *packer = &packers[i];
        size_t made = packer->pack(packed, size * 2, plain, size);
        assert_int_equal(mill_unpack(packer->codec, packed, made, size, &out), size);
        assert_memory_equal(out, plain, size);
        free(out);
        assert_int_equal(mill_unpack(packer->codec, packed, made, size * 9, &out), size);
        free(out);
        out = NULL;
        assert_int_equal(mill_unpack(packer->codec, packed, made, size - 1, &out), -EMSGSIZE);
        assert_int_equal(mill_unpack(packer->codec, packed, made, 100, &out), -EMSGSIZE);
        assert_int_equal(mill_unpack(packer->codec, packed, made / 2, size, &out), -EBADMSG);
        assert_null(out);
    }
    free(plain);
    free(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compress_every_size_comes_back),
        cmocka_unit_test(test_unpack_stops_at_its_limit),
    };
    return cmocka_run_group_tests_name("compress", tests, NULL, NULL);
}
