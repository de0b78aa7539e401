/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the scoreboard says the same as a plain bitmap. Method: random ranges and acknowledgements
 * over a window of bytes, both asked after each; plus RFC 6675's IsLost by hand. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/random.h"
#include "dataplane/net/tcp_sack.h"

enum {
    WINDOW = 2048,
};

struct model {
    uint32_t base; /* una at the start: near the wrap */
    uint32_t una;  /* from base */
    uint8_t marked[WINDOW];
};

static uint32_t model_unsacked(const struct model *model, uint32_t from, uint32_t to)
{
    uint32_t bytes = 0;
    for (uint32_t i = from; i < to; i++) {
        bytes += !model->marked[i];
    }
    return bytes;
}

static void compare(const struct mill_scoreboard *board, const struct model *model,
                    struct mill_random *random)
{
    uint32_t from = model->una + mill_random_below(random, WINDOW - model->una);
    uint32_t to = from + mill_random_below(random, WINDOW - from);
    uint32_t base = model->base;
    assert_int_equal(mill_scoreboard_unsacked(board, base + from, base + to),
                     model_unsacked(model, from, to));
    uint32_t first = from;
    while (first < to && model->marked[first]) {
        first++;
    }
    uint32_t end = first;
    while (end < to && !model->marked[end]) {
        end++;
    }
    uint32_t start = 0;
    uint32_t length = mill_scoreboard_hole(board, base + from, base + to, &start);
    assert_int_equal(length, end - first);
    if (length > 0) {
        assert_int_equal(start, base + first);
    }
    uint32_t total = 0;
    for (uint32_t i = model->una; i < WINDOW; i++) {
        total += model->marked[i];
    }
    assert_int_equal(board->sacked_bytes, total);
}

static void test_scoreboard_random_equals_bitmap(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct mill_random random = {.state = seed};
        struct mill_scoreboard board = {0};
        struct model model = {.base = 0xfffffc00u};
        for (int step = 0; step < 60; step++) {
            if (mill_random_below(&random, 4) > 0) {
                uint32_t room = WINDOW - model.una - 1;
                uint32_t start = model.una + 1 + mill_random_below(&random, room);
                uint32_t size = 1 + mill_random_below(&random, MILL_MIN(WINDOW - start, 200u));
                mill_scoreboard_add(
                    &board, model.base + model.una, model.base + WINDOW,
                    (struct mill_sack_range){model.base + start, model.base + start + size});
                memset(model.marked + start, 1, size);
            } else if (model.una + 100 < WINDOW) {
                model.una += mill_random_below(&random, 60);
                mill_scoreboard_ack(&board, model.base + model.una);
            }
            compare(&board, &model, &random);
        }
    }
}

static void test_add_insane_ranges_ignored(void **state)
{
    (void)state;
    struct mill_scoreboard board = {0};
    const struct mill_sack_range ranges[] = {
        {2000, 1000}, {1500, 1500}, {900, 1200}, {1000, 1100}, {1500, 9000}, {0x80000000u, 5},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(ranges); i++) {
        assert_int_equal(mill_scoreboard_add(&board, 1000, 5000, ranges[i]), 0);
    }
    assert_int_equal(board.count, 0);
}

static void test_add_full_ignores_new_keeps_old(void **state)
{
    (void)state;
    struct mill_scoreboard board = {0};
    for (uint32_t i = 0; i < MILL_SACK_RANGES; i++) {
        struct mill_sack_range range = {100 + i * 10, 105 + i * 10};
        assert_int_equal(mill_scoreboard_add(&board, 0, 100000, range), 5);
    }
    assert_int_equal(mill_scoreboard_add(&board, 0, 100000, (struct mill_sack_range){90000, 90005}),
                     0);
    assert_int_equal(board.count, MILL_SACK_RANGES);
    /* One that joins two makes room. */
    assert_int_equal(mill_scoreboard_add(&board, 0, 100000, (struct mill_sack_range){105, 110}), 5);
    assert_int_equal(board.count, MILL_SACK_RANGES - 1);
}

static void test_lost_end_three_ranges_or_bytes(void **state)
{
    (void)state;
    struct mill_scoreboard board = {0};
    mill_scoreboard_add(&board, 0, 100000, (struct mill_sack_range){2000, 3000});
    assert_int_equal(mill_scoreboard_lost_end(&board, 0, 1000), 0);
    mill_scoreboard_add(&board, 0, 100000, (struct mill_sack_range){3000, 4000});
    assert_int_equal(mill_scoreboard_lost_end(&board, 0, 1000), 0); /* exactly 2 MSS: not yet */
    mill_scoreboard_add(&board, 0, 100000, (struct mill_sack_range){4000, 4001});
    assert_int_equal(mill_scoreboard_lost_end(&board, 0, 1000), 2000);
    mill_scoreboard_clear(&board);
    for (uint32_t i = 0; i < 3; i++) {
        mill_scoreboard_add(&board, 0, 100000,
                            (struct mill_sack_range){1000 + i * 100, 1001 + i * 100});
    }
    assert_int_equal(mill_scoreboard_lost_end(&board, 0, 1000), 1000); /* three islands */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scoreboard_random_equals_bitmap),
        cmocka_unit_test(test_add_insane_ranges_ignored),
        cmocka_unit_test(test_add_full_ignores_new_keeps_old),
        cmocka_unit_test(test_lost_end_three_ranges_or_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
