/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a kept counter never falls and loses nothing but what a driver counted between a look and
 * its fall. */
#include "tests/unit/test.h"

#include "base/compiler.h"
#include "dataplane/port/kept.h"

static void test_keep_driver_zeroes_total_goes_on(void **state)
{
    static const struct {
        uint64_t shown;
        uint64_t total;
    } rows[] = {{0, 0},  {5, 5},  {5, 5},  {12, 12},
                {0, 12}, {3, 15}, {2, 17}, {1ull << 40, 15 + (1ull << 40)}};
    struct mill_port_kept kept = {0};
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        mill_port_keep(&kept, rows[i].shown);
        assert_int_equal(kept.total, rows[i].total);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_driver_zeroes_total_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
