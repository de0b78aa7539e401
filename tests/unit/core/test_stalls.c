/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a stall is told once, with its length, and no starved core makes a busy log; takers stay
 * bounded, the large ones stay. Method: samples by hand on virtual time. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dataplane/core/stalls.h"

enum {
    LOOK_MS = 250,
};

static void test_standstill_is_told_once(void **state)
{
    (void)state;
    struct mill_stall_state core = {0};
    struct mill_stall_told told = {0};
    struct mill_stall_sample sample = {.now_ns = MILL_NS_PER_S, .turns = 7};
    uint32_t lines = 0;
    for (uint32_t i = 0; i < 240; i++) { /* a minute */
        lines += mill_stall_look(&core, &sample, &told) == MILL_STALL_BEGUN;
        sample.now_ns += LOOK_MS * MILL_NS_PER_MS;
    }
    assert_int_equal(lines, 1);
    assert_int_equal(told.since_ns, MILL_NS_PER_S);
    /* It goes on; the core counts the stall itself: one line with its length. */
    sample.turns = 8;
    sample.stalls = 1;
    sample.stalled_ns = sample.stall_max_ns = 60 * MILL_NS_PER_S;
    assert_int_equal(mill_stall_look(&core, &sample, &told), MILL_STALL_ENDED);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.max_ns, 60 * MILL_NS_PER_S);
    sample.turns = 9;
    assert_int_equal(mill_stall_look(&core, &sample, &told), MILL_STALL_NOTHING);
}

static void test_sleeping_core_is_no_stall(void **state)
{
    (void)state;
    struct mill_stall_state core = {0};
    struct mill_stall_told told;
    struct mill_stall_sample sample = {.now_ns = MILL_NS_PER_S, .turns = 7, .asleep = true};
    for (uint32_t i = 0; i < 240; i++) {
        assert_int_equal(mill_stall_look(&core, &sample, &told), MILL_STALL_NOTHING);
        sample.now_ns += LOOK_MS * MILL_NS_PER_MS;
    }
}

/* Nine tenths of the time taken, as under a CPU quota: a line every ten seconds at most. */
static void test_throttled_core_makes_no_busy_log(void **state)
{
    (void)state;
    struct mill_stall_state core = {0};
    struct mill_stall_told told;
    struct mill_stall_sample sample = {.now_ns = MILL_NS_PER_S};
    uint64_t told_ns = 0;
    uint32_t lines = 0;
    for (uint32_t i = 0; i < 240; i++) {
        sample.now_ns += LOOK_MS * MILL_NS_PER_MS;
        sample.turns += 100;
        sample.stalls += 3;
        sample.stalled_ns += 225 * MILL_NS_PER_MS;
        sample.stall_max_ns = 90 * MILL_NS_PER_MS;
        if (mill_stall_look(&core, &sample, &told) == MILL_STALL_ENDED) {
            lines++;
            told_ns += told.time_ns;
        }
    }
    assert_in_range(lines, 5, 7);
    assert_true(told_ns > sample.stalled_ns * 8 / 10);
}

static void test_short_gaps_are_counted_not_told(void **state)
{
    (void)state;
    struct mill_stall_state core = {0};
    struct mill_stall_told told;
    struct mill_stall_sample sample = {.now_ns = MILL_NS_PER_S,
                                       .turns = 1,
                                       .stalls = 3,
                                       .stalled_ns = 60 * MILL_NS_PER_MS,
                                       .stall_max_ns = 24 * MILL_NS_PER_MS};
    assert_int_equal(mill_stall_look(&core, &sample, &told), MILL_STALL_NOTHING);
}

static const struct mill_shared_taker *taker_named(const struct mill_shared_jitter *jitter,
                                                   const char *name)
{
    for (uint32_t i = 0; i < MILL_COUNTERS_TAKERS_MAX; i++) {
        if (jitter->takers[i].count > 0 && strcmp(jitter->takers[i].name, name) == 0) {
            return &jitter->takers[i];
        }
    }
    return NULL;
}

static void test_takers_full_largest_stay(void **state)
{
    (void)state;
    static struct mill_shared_jitter jitter;
    char name[16];
    uint64_t sum_ns = 0;
    uint64_t kept_ns = 0;
    mill_taker_add(&jitter, MILL_TAKER_THREAD, 1, "hog", 5 * MILL_NS_PER_S, 2, MILL_NS_PER_S);
    mill_taker_add(&jitter, MILL_TAKER_THREAD, 1, "hog", 5 * MILL_NS_PER_S, 3, MILL_NS_PER_MS);
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "small%u", i);
        mill_taker_add(&jitter, MILL_TAKER_THREAD, 100 + i, name, 1000 + i, 1, 1000 + i);
        sum_ns += 1000 + i;
    }
    const struct mill_shared_taker *hog = taker_named(&jitter, "hog");
    assert_non_null(hog);
    assert_int_equal(hog->time_ns, 10 * MILL_NS_PER_S);
    assert_int_equal(hog->count, 5);
    assert_int_equal(hog->max_ns, MILL_NS_PER_S);
    assert_non_null(taker_named(&jitter, "small99"));
    assert_null(taker_named(&jitter, "small0"));
    for (uint32_t i = 0; i < MILL_COUNTERS_TAKERS_MAX; i++) {
        kept_ns += jitter.takers[i].time_ns;
    }
    assert_int_equal(kept_ns + jitter.unnamed_ns, 10 * MILL_NS_PER_S + sum_ns);
    assert_int_equal(jitter.table_full, 100 - (MILL_COUNTERS_TAKERS_MAX - 1));
}

static void test_taker_most_since_last_look(void **state)
{
    (void)state;
    static struct mill_shared_jitter jitter;
    uint64_t before_ns[MILL_COUNTERS_TAKERS_MAX] = {0};
    uint64_t time_ns;
    assert_null(mill_taker_most(&jitter, before_ns, &time_ns));
    mill_taker_add(&jitter, MILL_TAKER_THREAD, 1, "old", 900, 1, 900);
    mill_taker_add(&jitter, MILL_TAKER_IDLE, 0, "(nobody)", 500, 1, 500);
    assert_string_equal(mill_taker_most(&jitter, before_ns, &time_ns)->name, "old");
    assert_int_equal(time_ns, 900);
    mill_taker_add(&jitter, MILL_TAKER_IDLE, 0, "(nobody)", 100, 1, 100);
    assert_string_equal(mill_taker_most(&jitter, before_ns, &time_ns)->name, "(nobody)");
    assert_int_equal(time_ns, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standstill_is_told_once),
        cmocka_unit_test(test_sleeping_core_is_no_stall),
        cmocka_unit_test(test_throttled_core_makes_no_busy_log),
        cmocka_unit_test(test_short_gaps_are_counted_not_told),
        cmocka_unit_test(test_takers_full_largest_stay),
        cmocka_unit_test(test_taker_most_since_last_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
