/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a quantile is never below the true one and at most a sixteenth above it.
 * Method: values over all octaves, each alone, then a known mix. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/hist.h"

static void test_hist_single_value_within_a_step(void **state)
{
    (void)state;
    static struct mill_hist hist;
    for (uint64_t value = 1; value < (1ull << 38); value += value / 7 + 1) {
        memset(&hist, 0, sizeof(hist));
        mill_hist_add(&hist, value);
        uint64_t got = mill_hist_quantile(&hist, 0.5);
        assert_true(got >= value);
        assert_true(got - value <= value / 16 + 1);
    }
}

static void test_hist_quantiles_of_a_ramp(void **state)
{
    (void)state;
    static struct mill_hist hist;
    memset(&hist, 0, sizeof(hist));
    assert_int_equal(mill_hist_quantile(&hist, 0.99), 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        mill_hist_add(&hist, i * 1000);
    }
    uint64_t p50 = mill_hist_quantile(&hist, 0.50);
    uint64_t p99 = mill_hist_quantile(&hist, 0.99);
    assert_in_range(p50, 500000, 540000);
    assert_in_range(p99, 990000, 1060000);
    assert_int_equal(hist.max_ns, 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hist_single_value_within_a_step),
        cmocka_unit_test(test_hist_quantiles_of_a_ramp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
