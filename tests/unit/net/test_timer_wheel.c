/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: timers fire at their tick, once, and the next deadline is never late. Method: random arms,
 * cancels and jumps beside a plain table of deadlines. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/random.h"
#include "dataplane/net/timer_wheel.h"

enum {
    TIMERS = 300,
};

struct world {
    struct mill_wheel wheel;
    struct mill_timer timers[TIMERS];
    uint64_t due[TIMERS]; /* MILL_WHEEL_NEVER: not armed */
    uint64_t now;
    uint32_t fired;
};

static void on_fired(void *context, struct mill_timer *timer)
{
    struct world *world = context;
    size_t index = (size_t)(timer - world->timers);
    assert_true(world->due[index] != MILL_WHEEL_NEVER);
    assert_true(world->due[index] <= world->now);
    world->due[index] = MILL_WHEEL_NEVER;
    world->fired++;
}

static uint64_t earliest(const struct world *world)
{
    uint64_t first = MILL_WHEEL_NEVER;
    for (size_t i = 0; i < TIMERS; i++) {
        first = MILL_MIN(first, world->due[i]);
    }
    return first;
}

static void advance(struct world *world, uint64_t now, uint32_t max)
{
    world->now = now;
    while (mill_wheel_advance(&world->wheel, now, max, on_fired, world) == max) {
    }
    assert_true(earliest(world) > now);
}

static void random_step(struct world *world, struct mill_random *random)
{
    static const uint32_t spans[] = {2, 200, 300, 60000, 70000, 20000000};
    uint32_t index = mill_random_below(random, TIMERS);
    uint32_t span = spans[mill_random_below(random, 6)];
    switch (mill_random_below(random, 4)) {
    case 0:
    case 1: {
        uint64_t due = world->now + 1 + mill_random_below(random, span);
        mill_wheel_arm(&world->wheel, &world->timers[index], due);
        world->due[index] = due;
        break;
    }
    case 2:
        mill_wheel_cancel(&world->wheel, &world->timers[index]);
        world->due[index] = MILL_WHEEL_NEVER;
        break;
    default:
        advance(world, world->now + mill_random_below(random, span),
                1 + mill_random_below(random, 5));
        break;
    }
    uint64_t next = mill_wheel_next(&world->wheel);
    assert_true(next <= earliest(world));
    if (earliest(world) == MILL_WHEEL_NEVER) {
        return;
    }
    assert_true(next != MILL_WHEEL_NEVER);
}

static void test_wheel_random_equals_table(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        static struct world world;
        memset(&world, 0, sizeof(world));
        memset(world.due, 0xff, sizeof(world.due));
        world.now = seed * 65500;
        mill_wheel_init(&world.wheel, world.now);
        struct mill_random random = {.state = seed};
        for (int step = 0; step < 3000; step++) {
            random_step(&world, &random);
        }
        /* By the wheel's own deadlines alone everything fires in time. */
        while (earliest(&world) != MILL_WHEEL_NEVER) {
            advance(&world, MILL_MAX(mill_wheel_next(&world.wheel), world.now), 7);
        }
        assert_true(world.fired > 0);
    }
}

static void test_advance_max_leaves_rest_due_now(void **state)
{
    (void)state;
    static struct world world;
    memset(&world, 0, sizeof(world));
    mill_wheel_init(&world.wheel, 0);
    for (size_t i = 0; i < 10; i++) {
        world.due[i] = 5;
        mill_wheel_arm(&world.wheel, &world.timers[i], 5);
    }
    world.now = 9;
    assert_int_equal(mill_wheel_advance(&world.wheel, 9, 4, on_fired, &world), 4);
    assert_int_equal(mill_wheel_next(&world.wheel), 5);
    assert_int_equal(mill_wheel_advance(&world.wheel, 9, 100, on_fired, &world), 6);
    assert_true(mill_wheel_next(&world.wheel) == MILL_WHEEL_NEVER);
}

static void test_arm_later_is_lazy_and_still_exact(void **state)
{
    (void)state;
    static struct world world;
    memset(&world, 0, sizeof(world));
    mill_wheel_init(&world.wheel, 0);
    mill_wheel_arm(&world.wheel, &world.timers[0], 10);
    mill_wheel_arm(&world.wheel, &world.timers[0], 500);
    world.due[0] = 500;
    world.now = 499;
    assert_int_equal(mill_wheel_advance(&world.wheel, 499, 10, on_fired, &world), 0);
    world.now = 500;
    assert_int_equal(mill_wheel_advance(&world.wheel, 500, 10, on_fired, &world), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wheel_random_equals_table),
        cmocka_unit_test(test_advance_max_leaves_rest_due_now),
        cmocka_unit_test(test_arm_later_is_lazy_and_still_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
