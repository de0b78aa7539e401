/* SPDX-License-Identifier: Apache-2.0 */
/* Loans: counted rights to read extents, plain integers of one core. Everything that still needs
 * bytes of an extent on this core - an un-acknowledged range, a buffer in a transmit queue, a file
 * write, a copy under way - holds one. An extent of this core may be reused only at count 0.
 *
 * Bytes of another core's extent arrive with one loan that the owner counted *before* the reference
 * left it; mill_loans_borrow notes it here. When the last use here ends, the extent id is put on
 * the list of loans to return, which the core sends back in batches. Nothing ever waits for a loan.
 *
 * Owner: one core; no other thread touches a struct mill_loans.
 */
#ifndef MILL_HUGEPAGES_LOANS_H
#define MILL_HUGEPAGES_LOANS_H

#include "base/check.h"
#include "base/ref.h"

struct mill_loan_return {
    uint32_t extent;
    uint32_t count; /* loans ended at once */
};

struct mill_loans {
    uint32_t *uses;         /* per unit id: uses on this core */
    uint32_t *borrowed;     /* per unit id: loans of another core held here, 0 for own extents */
    uint64_t loaned_bytes;  /* sum of the sizes of all references in use */
    uint32_t units;         /* bound of ids */
    uint32_t returns_count; /* entries of returns */
    uint32_t returns_max;
    struct mill_loan_return *returns;
};

/* Takes memory for ids below units and for returns_max pending returns. ret: 0, -ENOMEM. */
int mill_loans_init(struct mill_loans *loans, uint32_t units,
                    uint32_t returns_max) MILL_WARN_UNUSED;
void mill_loans_fini(struct mill_loans *loans);

static inline void mill_loan_take(struct mill_loans *loans, const struct mill_ref *ref)
{
    MILL_DASSERT(ref->extent < loans->units);
    loans->uses[ref->extent]++;
    loans->loaned_bytes += ref->size_bytes;
}

/* Notes that this core holds one loan counted by the extent's owner. Before the first take. */
static inline void mill_loan_borrow(struct mill_loans *loans, uint32_t extent)
{
    loans->borrowed[extent]++;
}

/* Slow end of a borrowed extent's last use: queues the return. */
MILL_COLD void mill_loan_queue_return(struct mill_loans *loans, uint32_t extent);

static inline void mill_loan_give(struct mill_loans *loans, const struct mill_ref *ref)
{
#ifdef MILL_MUTANT_MEMORY_LOAN_GIVE_TWICE
    loans->uses[ref->extent] += loans->uses[ref->extent] == 0;
#endif
    MILL_ASSERT(loans->uses[ref->extent] > 0);
    loans->loaned_bytes -= ref->size_bytes;
    if (--loans->uses[ref->extent] == 0 && MILL_UNLIKELY(loans->borrowed[ref->extent] > 0)) {
        mill_loan_queue_return(loans, ref->extent);
    }
}

/* After a borrow whose reference found no use here after all (its connection is gone): queues the
 * return when nothing on this core uses the extent. */
void mill_loan_settle(struct mill_loans *loans, uint32_t extent);

/* Owner's side: counts a loan for another core, before the reference leaves. Its bytes are counted
 * there (mill_loan_take by the borrower). */
static inline void mill_loan_lend(struct mill_loans *loans, uint32_t extent)
{
    MILL_DASSERT(extent < loans->units);
    loans->uses[extent]++;
}

/* Owner's side: a borrower sent back loans that mill_loan_lend had counted. */
void mill_loan_end(struct mill_loans *loans, const struct mill_loan_return *ended);

static inline bool mill_loan_free(const struct mill_loans *loans, uint32_t extent)
{
    return loans->uses[extent] == 0;
}

#endif
