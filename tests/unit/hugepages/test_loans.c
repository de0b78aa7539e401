/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an extent is free exactly when the last use ends, a borrowed loan is returned exactly once,
 * and what ends twice is caught. Method: single steps, then two cores' tables driven at random
 * beside a plain count of what each owes the other. */
#include "tests/unit/test.h"

#include <errno.h>

#include "base/random.h"
#include "hugepages/loans.h"
#include "tests/unit/hugepages/fixture.h"

enum {
    UNITS = 16,
    RETURNS_MAX = 64,
};

static struct mill_ref ref_of(uint32_t extent, uint32_t size_bytes)
{
    return (struct mill_ref){.extent = extent, .size_bytes = size_bytes};
}

static void test_loan_own_extent_free_after_last_give(void **state)
{
    (void)state;
    struct mill_loans loans;
    struct mill_ref first = ref_of(3, 100);
    struct mill_ref second = ref_of(3, 11);
    assert_int_equal(mill_loans_init(&loans, UNITS, RETURNS_MAX), 0);
    assert_true(mill_loan_free(&loans, 3));
    mill_loan_take(&loans, &first);
    mill_loan_take(&loans, &second);
    assert_int_equal(loans.loaned_bytes, 111);
    mill_loan_give(&loans, &first);
    assert_false(mill_loan_free(&loans, 3));
    assert_true(mill_loan_free(&loans, 2));
    mill_loan_give(&loans, &second);
    assert_true(mill_loan_free(&loans, 3));
    assert_int_equal(loans.loaned_bytes, 0);
    assert_int_equal(loans.returns_count, 0);
    mill_loans_fini(&loans);
}

static void test_loan_borrowed_returned_once_with_count(void **state)
{
    (void)state;
    struct mill_loans loans;
    struct mill_ref ref = ref_of(5, 10);
    assert_int_equal(mill_loans_init(&loans, UNITS, RETURNS_MAX), 0);
    mill_loan_borrow(&loans, 5);
    mill_loan_take(&loans, &ref);
    mill_loan_borrow(&loans, 5);
    mill_loan_take(&loans, &ref);
    mill_loan_give(&loans, &ref);
    assert_int_equal(loans.returns_count, 0);
    mill_loan_give(&loans, &ref);
    assert_int_equal(loans.returns_count, 1);
    assert_int_equal(loans.returns[0].extent, 5);
    assert_int_equal(loans.returns[0].count, 2);
    mill_loan_take(&loans, &ref);
    mill_loan_give(&loans, &ref);
    assert_int_equal(loans.returns_count, 1);
    mill_loans_fini(&loans);
}

static void test_loan_settle_unused_borrow_is_returned(void **state)
{
    (void)state;
    struct mill_loans loans;
    struct mill_ref ref = ref_of(1, 4);
    assert_int_equal(mill_loans_init(&loans, UNITS, RETURNS_MAX), 0);
    mill_loan_settle(&loans, 1);
    assert_int_equal(loans.returns_count, 0);
    mill_loan_borrow(&loans, 1);
    mill_loan_settle(&loans, 1);
    assert_int_equal(loans.returns_count, 1);
    mill_loan_borrow(&loans, 1);
    mill_loan_take(&loans, &ref);
    mill_loan_settle(&loans, 1);
    assert_int_equal(loans.returns_count, 1);
    mill_loan_give(&loans, &ref);
    assert_int_equal(loans.returns_count, 2);
    mill_loans_fini(&loans);
}

static void give_twice(void *argument)
{
    struct mill_ref ref = ref_of(2, 8);
    mill_loan_take(argument, &ref);
    mill_loan_give(argument, &ref);
    mill_loan_give(argument, &ref);
}

static void end_twice(void *argument)
{
    struct mill_loan_return ended = {.extent = 2, .count = 1};
    mill_loan_lend(argument, 2);
    mill_loan_end(argument, &ended);
    mill_loan_end(argument, &ended);
}

static void test_loan_ended_twice_aborts(void **state)
{
    (void)state;
    struct mill_loans loans;
    assert_int_equal(mill_loans_init(&loans, UNITS, RETURNS_MAX), 0);
    assert_true(aborts(give_twice, &loans));
    assert_true(aborts(end_twice, &loans));
    mill_loans_fini(&loans);
}

static void overrun_returns(void *argument)
{
    struct mill_loans *loans = argument;
    for (uint32_t i = 0; i <= loans->returns_max; i++) {
        mill_loan_borrow(loans, 1);
        mill_loan_settle(loans, 1);
    }
}

static void test_loan_more_returns_than_reserved_aborts(void **state)
{
    (void)state;
    struct mill_loans loans;
    assert_int_equal(mill_loans_init(&loans, UNITS, 4), 0);
    assert_true(aborts(overrun_returns, &loans));
    mill_loans_fini(&loans);
}

/* One borrower and one owner: at every moment the owner's count is what is lent and not yet back.
 */
static void test_loans_random_lending_ends_at_zero(void **state)
{
    (void)state;
    struct mill_loans owner;
    struct mill_loans borrower;
    struct mill_random random = {.state = 11};
    struct mill_ref held[RETURNS_MAX];
    uint32_t held_count = 0;
    uint32_t lent = 0; /* over all extents */
    assert_int_equal(mill_loans_init(&owner, UNITS, RETURNS_MAX), 0);
    assert_int_equal(mill_loans_init(&borrower, UNITS, RETURNS_MAX), 0);
    for (uint32_t step = 0; step < 200000; step++) {
        bool finish = step >= 199000;
        uint32_t act = mill_random_below(&random, 8);
        if (act < 4 && lent < RETURNS_MAX && !finish) {
            struct mill_ref ref = ref_of(mill_random_below(&random, UNITS), 1 + act);
            mill_loan_lend(&owner, ref.extent);
            lent++;
            mill_loan_borrow(&borrower, ref.extent);
            mill_loan_take(&borrower, &ref);
            held[held_count++] = ref;
        } else if (act < 7 && held_count > 0) {
            uint32_t which = mill_random_below(&random, held_count);
            mill_loan_give(&borrower, &held[which]);
            held[which] = held[--held_count];
        } else if (act == 7) {
            for (uint32_t i = 0; i < borrower.returns_count; i++) {
                mill_loan_end(&owner, &borrower.returns[i]);
                lent -= borrower.returns[i].count;
            }
            borrower.returns_count = 0;
        }
        uint32_t used = 0;
        for (uint32_t i = 0; i < UNITS; i++) {
            used += owner.uses[i];
            assert_true(borrower.uses[i] <= owner.uses[i]);
        }
        assert_int_equal(used, lent);
    }
    assert_int_equal(held_count, 0);
    assert_int_equal(lent, 0);
    assert_int_equal(borrower.loaned_bytes, 0);
    mill_loans_fini(&owner);
    mill_loans_fini(&borrower);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loan_own_extent_free_after_last_give),
        cmocka_unit_test(test_loan_borrowed_returned_once_with_count),
        cmocka_unit_test(test_loan_settle_unused_borrow_is_returned),
        cmocka_unit_test(test_loan_ended_twice_aborts),
        cmocka_unit_test(test_loan_more_returns_than_reserved_aborts),
        cmocka_unit_test(test_loans_random_lending_ends_at_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
