/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every codec's streams are read, also raw snappy and several gzip members; output stays
 * within its capacity whatever a stream claims; broken streams are errors. Method: streams made by
 * the libraries themselves, cut and damaged. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/store/store_types.h"
#include "tests/unit/store/pack.h"

enum {
    PLAIN = 200000,
    ROOM = 300000,
};

static uint8_t plain[PLAIN];
static uint8_t packed[ROOM];
static uint8_t out[ROOM];

static void make_plain(void)
{
    for (uint32_t i = 0; i < PLAIN; i++) {
        plain[i] = (uint8_t)((i * 2654435761u) >> 27);
    }
}

static void test_decompress_gives_the_bytes_back(void **state)
{
    MILL_UNUSED(state);
    make_plain();
    for (uint32_t i = 0; i < MILL_COUNT_OF(packers); i++) {
        size_t size = packers[i].pack(packed, ROOM, plain, PLAIN);
        assert_int_equal(mill_decompress(packers[i].codec, packed, size, out, ROOM), PLAIN);
        assert_memory_equal(out, plain, PLAIN);
    }
    size_t first = pack_gzip(packed, ROOM, plain, 1000);
    size_t second = pack_gzip(packed + first, ROOM - first, plain + 1000, 500);
    assert_int_equal(mill_decompress(MILL_CODEC_GZIP, packed, first + second, out, ROOM), 1500);
    assert_memory_equal(out, plain, 1500);
}

static void test_decompress_is_bounded_and_refuses_damage(void **state)
{
    MILL_UNUSED(state);
    make_plain();
    for (uint32_t i = 0; i < MILL_COUNT_OF(packers); i++) {
        size_t size = packers[i].pack(packed, ROOM, plain, PLAIN);
        uint8_t *room = malloc(1000); /* its own, so that a sanitizer sees the first byte beyond */
        assert_non_null(room);
        assert_true(mill_decompress(packers[i].codec, packed, size, room, 1000) <= 1000);
        free(room);
        for (size_t cut = 0; cut < size; cut += 1 + size / 50) {
            int64_t r = mill_decompress(packers[i].codec, packed, cut, out, ROOM);
            assert_true(r < PLAIN);
        }
        for (size_t at = 0; at < size; at += 1 + size / 50) {
            packed[at] ^= 0x55;
            assert_true(mill_decompress(packers[i].codec, packed, size, out, ROOM) <= ROOM);
            packed[at] ^= 0x55;
        }
        assert_int_equal(mill_decompress(packers[i].codec, packed, size, out, ROOM), PLAIN);
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
