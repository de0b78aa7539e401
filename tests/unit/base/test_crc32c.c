/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: CRC-32C equals the polynomial's definition for every length around the switch to ISA-L, in
 * pieces and while copying. Method: a bit-by-bit model beside it. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/random.h"

static uint32_t crc_model(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

static void test_crc32c_known_vector(void **state)
{
    (void)state;
    assert_int_equal(mill_crc32c("123456789", 9), 0xe3069283u); /* RFC 3720's check value */
}

static void test_crc32c_all_lengths_equal_model(void **state)
{
    (void)state;
    static uint8_t data[20000];
    static uint8_t copy[20000];
    struct mill_random random = {.state = 7};
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)mill_random_next(&random);
    }
    for (size_t size = 0; size < sizeof(data); size += size < 1100 ? 1 : 977) {
        uint32_t want = crc_model(data, size);
        assert_int_equal(mill_crc32c(data, size), want);
        size_t half = size / 3;
        uint32_t crc = mill_crc32c_copy(MILL_CRC32C_START, copy, data, half);
        crc = mill_crc32c_copy(crc, copy + half, data + half, size - half);
        assert_int_equal(mill_crc32c_end(crc), want);
        assert_memory_equal(copy, data, size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c_known_vector),
        cmocka_unit_test(test_crc32c_all_lengths_equal_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
