/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: due times depend on rate and seed alone, keep the rate without drift, and Poisson gaps are
 * exponential. Method: long runs against the exact time, and against the distribution. */
#include "tests/unit/test.h"

#include <math.h>

#include "bench/schedule.h"

enum {
    TAKES = 1000000,
};

static void test_take_constant_never_drifts(void **state)
{
    (void)state;
    const double rate = 333333.0; /* a gap that no whole number of nanoseconds is */
    struct bench_schedule schedule;
    bench_schedule_init(&schedule, 1000, rate, false, 1);
    for (uint64_t i = 0; i < TAKES; i++) {
        uint64_t due_ns = bench_schedule_take(&schedule);
        double exact = 1000.0 + (double)i * 1e9 / rate;
        assert_true(fabs((double)due_ns - exact) <= 1.0);
        assert_int_equal(schedule.taken, i + 1);
    }
}

static void test_take_poisson_has_mean_and_spread(void **state)
{
    (void)state;
    struct bench_schedule schedule;
    uint64_t before_ns = 0;
    uint64_t longer = 0;
    bench_schedule_init(&schedule, 0, 1000.0, true, 7);
    (void)bench_schedule_take(&schedule);
    for (uint64_t i = 0; i < TAKES; i++) {
        uint64_t due_ns = bench_schedule_take(&schedule);
        assert_true(due_ns >= before_ns);
        longer += due_ns - before_ns > 1000000;
        before_ns = due_ns;
    }
    /* Mean 1 ms; a share of 1/e of exponential gaps is longer than the mean. */
    assert_true(fabs((double)before_ns / TAKES / 1e6 - 1.0) < 0.01);
    assert_true(fabs((double)longer / TAKES - exp(-1.0)) < 0.01);
}

static void test_init_same_seed_same_times(void **state)
{
    (void)state;
    struct bench_schedule a;
    struct bench_schedule b;
    struct bench_schedule c;
    bool differs = false;
    bench_schedule_init(&a, 5, 10.0, true, 3);
    bench_schedule_init(&b, 5, 10.0, true, 3);
    bench_schedule_init(&c, 5, 10.0, true, 4);
    assert_int_equal(bench_schedule_take(&a), 5);
    assert_int_equal(bench_schedule_take(&b), 5);
    (void)bench_schedule_take(&c);
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t due_ns = bench_schedule_take(&a);
        assert_int_equal(due_ns, bench_schedule_take(&b));
        differs = differs || due_ns != bench_schedule_take(&c);
    }
    assert_true(differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_constant_never_drifts),
        cmocka_unit_test(test_take_poisson_has_mean_and_spread),
        cmocka_unit_test(test_init_same_seed_same_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
