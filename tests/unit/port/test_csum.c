/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the sum is RFC 1071's for any cutting into pieces. Method: the RFC's own example and a
 * published IPv4 header, then every two-cut of random messages against a sum made 16 bits at a
 * time. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/random.h"
#include "dataplane/port/csum.h"

static uint16_t plain(const uint8_t *bytes, uint32_t size_bytes)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < size_bytes; i++) {
        sum += (i & 1) == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)~sum;
}

static uint16_t in_host_order(const struct mill_csum *csum)
{
    return __builtin_bswap16(mill_csum_end(csum));
}

static void test_end_known_messages_expected(void **state)
{
    static const uint8_t rfc[8] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    static const uint8_t ipv4[20] = {0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,
                                     0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7};
    struct mill_csum csum = {0};
    MILL_UNUSED(state);
    mill_csum_add(&csum, rfc, sizeof(rfc));
    assert_int_equal(in_host_order(&csum), 0x220d); /* RFC 1071, 3: the sum is ddf2 */
    csum = (struct mill_csum){0};
    mill_csum_add(&csum, ipv4, sizeof(ipv4));
    assert_int_equal(in_host_order(&csum), 0xb861);
    csum = (struct mill_csum){0};
    assert_int_equal(mill_csum_end(&csum), 0xffff);
}

static void test_add_any_cut_equals_plain_sum(void **state)
{
    uint8_t bytes[97];
    struct mill_random random = {.state = 7};
    MILL_UNUSED(state);
    for (uint32_t round = 0; round < 4; round++) {
        uint32_t size_bytes = (uint32_t)sizeof(bytes) - round;
        for (uint32_t i = 0; i < size_bytes; i++) {
            bytes[i] = round == 0 ? 0xff : (uint8_t)mill_random_next(&random);
        }
        uint16_t wanted = plain(bytes, size_bytes);
        for (uint32_t a = 0; a <= size_bytes; a++) {
            for (uint32_t b = a; b <= size_bytes; b++) {
                struct mill_csum csum = {0};
                mill_csum_add(&csum, bytes, a);
                mill_csum_add(&csum, bytes + a, b - a);
                mill_csum_add(&csum, bytes + b, size_bytes - b);
                assert_int_equal(in_host_order(&csum), wanted);
                uint8_t copy[sizeof(bytes) + 1] = {0};
                copy[size_bytes] = 0xa5;
                csum = (struct mill_csum){0};
                mill_csum_copy(&csum, copy, bytes, a);
                mill_csum_copy(&csum, copy + a, bytes + a, b - a);
                mill_csum_copy(&csum, copy + b, bytes + b, size_bytes - b);
                assert_int_equal(in_host_order(&csum), wanted);
                assert_memory_equal(copy, bytes, size_bytes);
                assert_int_equal(copy[size_bytes], 0xa5);
            }
        }
    }
}

static void test_add_long_run_of_ones_keeps_carries(void **state)
{
    static uint8_t bytes[65535];
    struct mill_csum csum = {0};
    MILL_UNUSED(state);
    memset(bytes, 0xff, sizeof(bytes));
    for (int i = 0; i < 1000; i++) {
        mill_csum_add(&csum, bytes, sizeof(bytes));
    }
    assert_int_equal(mill_csum_end(&csum), 0);
    assert_false(csum.odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_known_messages_expected),
        cmocka_unit_test(test_add_any_cut_equals_plain_sum),
        cmocka_unit_test(test_add_long_run_of_ones_keeps_carries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
