/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of our own reasoning. MILL_ASSERT is always on and aborts with both operands; MILL_DASSERT
 * exists in debug and test builds only and may stand in per-packet loops. What comes from the
 * network, a file or another process is never asserted: it is validated and counted. */
#ifndef MILL_BASE_CHECK_H
#define MILL_BASE_CHECK_H

#include "base/compiler.h"

/* Prints the failed expression with both values and aborts. Never returns; any thread. */
MILL_COLD MILL_NORETURN void mill_assert_fail(const char *file, int line, const char *text,
                                              long long left, long long right);

/* Ends a start that has no memory for what it reads, with a line and exit code 1, before other
 * threads run. Never returns. */
MILL_COLD MILL_NORETURN void mill_no_memory(const char *what);

#define MILL_ASSERT(x)                                                                             \
    do {                                                                                           \
        if (MILL_UNLIKELY(!(x))) {                                                                 \
            mill_assert_fail(__FILE__, __LINE__, #x, 0, 0);                                        \
        }                                                                                          \
    } while (0)

#define MILL_ASSERT_CMP(a, op, b)                                                                  \
    do {                                                                                           \
        __typeof__(a) mill_l_ = (a);                                                               \
        __typeof__(b) mill_r_ = (b);                                                               \
        if (MILL_UNLIKELY(!(mill_l_ op mill_r_))) {                                                \
            mill_assert_fail(__FILE__, __LINE__, #a " " #op " " #b, (long long)mill_l_,            \
                             (long long)mill_r_);                                                  \
        }                                                                                          \
    } while (0)

#define MILL_ASSERT_EQ(a, b) MILL_ASSERT_CMP(a, ==, b)
#define MILL_ASSERT_LE(a, b) MILL_ASSERT_CMP(a, <=, b)
#define MILL_ASSERT_LT(a, b) MILL_ASSERT_CMP(a, <, b)

#ifdef MILL_DEBUG
#define MILL_DASSERT(x) MILL_ASSERT(x)
#else
#define MILL_DASSERT(x) ((void)sizeof(!(x)))
#endif

/* Counts an unlikely event and yields its truth, for errors of the hot path that carry no text. */
#define MILL_COUNT_IF(x, counter) (MILL_UNLIKELY(x) ? ((counter)++, true) : false)

#endif
