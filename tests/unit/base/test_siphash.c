/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the published test vector of SipHash-2-4 (key 00..0f, message 00..0e). */
#include "tests/unit/test.h"

#include "base/siphash.h"

static void test_siphash_published_vector(void **state)
{
    (void)state;
    const uint64_t key[2] = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
    uint8_t message[15];
    for (uint8_t i = 0; i < sizeof(message); i++) {
        message[i] = i;
    }
    assert_true(mill_siphash(key, message, sizeof(message)) == 0xa129ca6149be45e5ull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_siphash_published_vector)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
