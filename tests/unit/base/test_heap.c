/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the heap gives the earliest deadline whatever was set, moved and removed before.
 * Method: random operations beside a plain array. */
#include "tests/unit/test.h"

#include "base/random.h"
#include "base/heap.h"

enum {
    ITEMS = 200,
    ROUNDS = 20000,
};

static uint64_t earliest(const struct mill_heap_item *items)
{
    uint64_t at = UINT64_MAX;
    for (int i = 0; i < ITEMS; i++) {
        if (items[i].place != 0 && items[i].at_ns < at) {
            at = items[i].at_ns;
        }
    }
    return at;
}

static void test_heap_random_operations_first_is_earliest(void **state)
{
    (void)state;
    static struct mill_heap_item items[ITEMS];
    struct mill_random random = {.state = 11};
    struct mill_heap heap;
    assert_int_equal(mill_heap_init(&heap, ITEMS), 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct mill_heap_item *item = &items[mill_random_below(&random, ITEMS)];
        if (mill_random_below(&random, 3) == 0) {
            mill_heap_remove(&heap, item);
            assert_int_equal(item->place, 0);
        } else {
            mill_heap_set(&heap, item, mill_random_below(&random, 1000));
        }
        const struct mill_heap_item *first = mill_heap_first(&heap);
        if (!first) {
            assert_true(earliest(items) == UINT64_MAX);
            continue;
        }
        assert_true(first->at_ns == earliest(items));
    }
    mill_heap_fini(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heap_random_operations_first_is_earliest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
