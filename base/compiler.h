/* SPDX-License-Identifier: Apache-2.0 */
/* Compiler words used everywhere. Knows nothing; any thread. */
#ifndef MILL_BASE_COMPILER_H
#define MILL_BASE_COMPILER_H

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MILL_CACHE_LINE_BYTES = 64,
    /* Separately written fields keep two lines apart: the adjacent-line prefetcher fetches pairs.
     */
    MILL_CACHE_SPACING_BYTES = 128,
};

#define MILL_LIKELY(x)          __builtin_expect(!!(x), 1)
#define MILL_UNLIKELY(x)        __builtin_expect(!!(x), 0)
#define MILL_COLD               __attribute__((cold, noinline))
#define MILL_WARN_UNUSED        __attribute__((warn_unused_result))
#define MILL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define MILL_NORETURN           __attribute__((noreturn))
#define MILL_CACHE_ALIGNED      alignas(64)
#define MILL_SPACED             alignas(128)
#define MILL_UNUSED(x)          ((void)(x))

/* Number of elements of a true array (never a pointer). */
#define MILL_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* The struct that holds the member at ptr. */
#define MILL_CONTAINER_OF(ptr, type, member)                                                       \
    ((type *)(void *)((uintptr_t)(ptr)-offsetof(type, member)))

#define MILL_MIN(a, b)                                                                             \
    ({                                                                                             \
        __typeof__(a) mill_a_ = (a);                                                               \
        __typeof__(b) mill_b_ = (b);                                                               \
        mill_a_ < mill_b_ ? mill_a_ : mill_b_;                                                     \
    })
#define MILL_MAX(a, b)                                                                             \
    ({                                                                                             \
        __typeof__(a) mill_c_ = (a);                                                               \
        __typeof__(b) mill_d_ = (b);                                                               \
        mill_c_ > mill_d_ ? mill_c_ : mill_d_;                                                     \
    })

/* Rounds up to a power of two. */
static inline uint64_t mill_round_up(uint64_t value, uint64_t power)
{
    return (value + power - 1) & ~(power - 1);
}

#endif
