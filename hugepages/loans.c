/* SPDX-License-Identifier: Apache-2.0 */
/* Loans of one core (loans.h): the memory of the counts and the slow end of a borrowed extent.
 * Owner: the core that holds the struct. Never allocates after init, never waits. */
#include "hugepages/loans.h"

#include <errno.h>
#include <stdlib.h>

int mill_loans_init(struct mill_loans *loans, uint32_t units, uint32_t returns_max)
{
    struct mill_loans made = {.units = units, .returns_max = returns_max};
    made.uses = calloc(units, sizeof(*made.uses));
    made.borrowed = calloc(units, sizeof(*made.borrowed));
    made.returns = calloc(returns_max, sizeof(*made.returns));
    bool complete = (made.uses != NULL || units == 0) && (made.borrowed != NULL || units == 0) &&
                    (made.returns != NULL || returns_max == 0);
    if (!complete) {
        mill_loans_fini(&made);
        return -ENOMEM;
    }
    *loans = made;
    return 0;
}

void mill_loans_fini(struct mill_loans *loans)
{
    free(loans->uses);
    free(loans->borrowed);
    free(loans->returns);
    *loans = (struct mill_loans){0};
}

void mill_loan_queue_return(struct mill_loans *loans, uint32_t extent)
{
    /* Each entry ends at least one loan, and the lender made no more loans than the return ring has
     * slots (returns_max), so an overrun means that a loan was counted twice or not at all. */
    MILL_ASSERT_LT(loans->returns_count, loans->returns_max);
    loans->returns[loans->returns_count++] = (struct mill_loan_return){
        .extent = extent,
        .count = loans->borrowed[extent],
    };
    loans->borrowed[extent] = 0;
}

void mill_loan_settle(struct mill_loans *loans, uint32_t extent)
{
    MILL_ASSERT_LT(extent, loans->units);
    if (loans->uses[extent] == 0 && loans->borrowed[extent] > 0) {
        mill_loan_queue_return(loans, extent);
    }
}

void mill_loan_end(struct mill_loans *loans, const struct mill_loan_return *ended)
{
    MILL_ASSERT_LT(ended->extent, loans->units);
    MILL_ASSERT_LE(ended->count, loans->uses[ended->extent]);
    loans->uses[ended->extent] -= ended->count;
}
