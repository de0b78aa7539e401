/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a core looks on where that catches work, sleeps at once where it does not, notices when
 * either changes, and pays for mistakes within a bound. Method: gaps on virtual time; a peer
 * answers after some time, and a core that slept wakes some time later. */
#include "tests/unit/test.h"

#include "base/clock.h"
#include "base/random.h"
#include "dataplane/core/idle.h"

enum {
    TURN_NS = 500,
    WAKE_NS = 30000, /* from a frame to the first turn of a core that slept */
    WORK_NS = 5000,
    PRICE_NS = 40000, /* idle.c */
    GAPS = 2000,
};

struct sums {
    uint64_t looked_ns; /* CPU without work */
    uint32_t sleeps;
    uint64_t late_ns; /* work that waited for a wake-up */
};

/* One gap: the peer's next frame comes after gap_ns. Adds to ret. */
static void gap(struct mill_idle *idle, uint64_t *now, uint64_t gap_ns, struct sums *ret)
{
    uint64_t begun_ns = *now;
    uint64_t due_ns = begun_ns + gap_ns;
    bool asleep = false;
    while (*now < due_ns && !asleep) {
        *now += TURN_NS;
        asleep = mill_idle_look(idle, *now) == MILL_IDLE_SLEEP;
    }
    ret->looked_ns += *now - begun_ns;
    if (asleep) {
        ret->sleeps++;
        *now = (*now > due_ns ? *now : due_ns) + WAKE_NS;
        ret->late_ns += WAKE_NS;
    }
    mill_idle_worked(idle, *now, *now + WORK_NS);
    *now += WORK_NS;
}

static struct sums gaps(struct mill_idle *idle, uint64_t *now, uint32_t count, uint64_t gap_ns)
{
    struct sums sums = {0};
    for (uint32_t i = 0; i < count; i++) {
        gap(idle, now, gap_ns, &sums);
    }
    return sums;
}

static struct mill_idle make(uint64_t *ret_now)
{
    struct mill_idle idle;
    *ret_now = MILL_NS_PER_S;
    mill_idle_init(&idle, false, false, *ret_now);
    return idle;
}

static void test_quick_peer_is_looked_for(void **state)
{
    (void)state;
    uint64_t now;
    struct mill_idle idle = make(&now);
    struct sums sums = gaps(&idle, &now, GAPS, 10000);
    assert_int_equal(sums.sleeps, 0);
}

static void test_slow_peer_is_slept_for_at_once(void **state)
{
    (void)state;
    uint64_t now;
    struct mill_idle idle = make(&now);
    (void)gaps(&idle, &now, 100, 250000); /* it learns */
    struct sums sums = gaps(&idle, &now, GAPS, 250000);
    assert_int_equal(sums.sleeps, GAPS);
    /* A probe now and then is all that is looked. */
    assert_true(sums.looked_ns < (uint64_t)GAPS * (PRICE_NS / 16 + 2 * TURN_NS));
}

static void test_peer_that_becomes_quick_is_noticed(void **state)
{
    (void)state;
    uint64_t now;
    struct mill_idle idle = make(&now);
    (void)gaps(&idle, &now, GAPS, 250000);
    (void)gaps(&idle, &now, 64, 10000);
    struct sums sums = gaps(&idle, &now, GAPS, 10000);
    assert_int_equal(sums.sleeps, 0);
}

static void test_peer_that_becomes_slow_is_noticed(void **state)
{
    (void)state;
    uint64_t now;
    struct mill_idle idle = make(&now);
    (void)gaps(&idle, &now, GAPS, 10000);
    struct sums sums = gaps(&idle, &now, 1000, 250000);
    assert_true(sums.looked_ns < 1000ull * PRICE_NS / 8);
}

/* Nearly a whole price long: to look costs as much as it saves. */
static void test_gap_of_a_price_is_slept_through(void **state)
{
    (void)state;
    uint64_t now;
    struct mill_idle idle = make(&now);
    (void)gaps(&idle, &now, 500, PRICE_NS * 3);
    struct sums sums = gaps(&idle, &now, GAPS, PRICE_NS * 3);
    assert_int_equal(sums.sleeps, GAPS);
}

/* Whatever the gaps are, the cost stays near that of the better of the two simple policies: always
 * look for a price and then sleep, or always sleep at once. */
static void test_any_mixture_costs_little_more_than_the_better_policy(void **state)
{
    (void)state;
    struct mill_random random = {.state = 11};
    for (uint32_t share = 0; share <= 100; share += 5) {
        uint64_t now;
        struct mill_idle idle = make(&now);
        struct sums sums = {0};
        uint64_t looking_ns = 0;
        (void)gaps(&idle, &now, 100, share > 50 ? 10000 : 250000);
        for (uint32_t i = 0; i < GAPS; i++) {
            bool quick = mill_random_below(&random, 100) < share;
            gap(&idle, &now, quick ? 10000 : 250000, &sums);
            looking_ns += quick ? 10000 : PRICE_NS * 2;
        }
        uint64_t cost_ns = sums.looked_ns + (uint64_t)sums.sleeps * PRICE_NS;
        uint64_t sleeping_ns = (uint64_t)GAPS * PRICE_NS;
        uint64_t better_ns = looking_ns < sleeping_ns ? looking_ns : sleeping_ns;
        assert_true(cost_ns < better_ns + better_ns / 4);
    }
}

static void test_work_without_a_pause_is_no_gap(void **state)
{
    (void)state;
    uint64_t now;
    struct mill_idle idle = make(&now);
    (void)gaps(&idle, &now, 100, 250000);
    for (uint32_t i = 0; i < GAPS; i++) {
        mill_idle_worked(&idle, now, now + WORK_NS);
        now += WORK_NS;
    }
    struct sums sums = gaps(&idle, &now, 1, 250000);
    assert_true(sums.looked_ns <= TURN_NS);
}

static void test_busy_never_sleeps(void **state)
{
    (void)state;
    struct mill_idle idle;
    mill_idle_init(&idle, true, false, 0);
    assert_int_equal(mill_idle_look(&idle, 1000), MILL_IDLE_LOOK);
    for (uint64_t now = 100000; now < 100 * MILL_NS_PER_S; now *= 2) {
        assert_int_equal(mill_idle_look(&idle, now), MILL_IDLE_PAUSE);
        mill_idle_worked(&idle, now, now);
    }
}

/* Nothing wakes the core there, so that a sleep costs half of its length and not looking on costs
 * more. */
static void test_port_without_descriptor_is_looked_at_for_longer(void **state)
{
    (void)state;
    uint64_t now = MILL_NS_PER_S;
    struct mill_idle idle;
    mill_idle_init(&idle, false, true, now);
    struct sums sums = gaps(&idle, &now, GAPS, 2 * PRICE_NS);
    assert_int_equal(sums.sleeps, 0);
    assert_int_equal(mill_idle_sleep_ns(&idle, now + 1000), 500000);
    assert_int_equal(mill_idle_sleep_ns(&idle, now + 2 * MILL_NS_PER_S), 10 * MILL_NS_PER_MS);
    idle.bounded = false;
    assert_true(mill_idle_sleep_ns(&idle, now) == MILL_NEVER);
}

static void test_time_that_stands_or_goes_back_does_no_harm(void **state)
{
    (void)state;
    uint64_t now;
    struct mill_idle idle = make(&now);
    (void)mill_idle_look(&idle, 0);
    mill_idle_worked(&idle, 0, 0);
    (void)mill_idle_look(&idle, UINT64_MAX);
    mill_idle_worked(&idle, UINT64_MAX, UINT64_MAX);
    assert_int_equal(mill_idle_look(&idle, 5), MILL_IDLE_LOOK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quick_peer_is_looked_for),
        cmocka_unit_test(test_slow_peer_is_slept_for_at_once),
        cmocka_unit_test(test_peer_that_becomes_quick_is_noticed),
        cmocka_unit_test(test_peer_that_becomes_slow_is_noticed),
        cmocka_unit_test(test_gap_of_a_price_is_slept_through),
        cmocka_unit_test(test_any_mixture_costs_little_more_than_the_better_policy),
        cmocka_unit_test(test_work_without_a_pause_is_no_gap),
        cmocka_unit_test(test_busy_never_sleeps),
        cmocka_unit_test(test_port_without_descriptor_is_looked_at_for_longer),
        cmocka_unit_test(test_time_that_stands_or_goes_back_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
