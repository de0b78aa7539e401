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
#define MILL_SPACED             alignas(128)
#define MILL_UNUSED(x)          ((void)(x))

/* Number of elements of a true array (never a pointer). */
#define MILL_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* The struct that holds the member at ptr. */
#define MILL_CONTAINER_OF(ptr, type, member)                                                       \
    ((type *)(void *)((uintptr_t)(ptr)-offsetof(type, member)))

/* Each use has names of its own, so that they nest without shadowing. */
#define MILL_PASTE_(a, b) a##b
#define MILL_PASTE(a, b)  MILL_PASTE_(a, b)
#define MILL_PICK_(a, b, op, left, right)                                                          \
    ({                                                                                             \
        __typeof__(a) left = (a);                                                                  \
        __typeof__(b) right = (b);                                                                 \
        left op right ? left : right;                                                              \
    })
#define MILL_MIN(a, b)                                                                             \
    MILL_PICK_(a, b, <, MILL_PASTE(mill_left_, __COUNTER__), MILL_PASTE(mill_right_, __COUNTER__))
#define MILL_MAX(a, b)                                                                             \
    MILL_PICK_(a, b, >, MILL_PASTE(mill_left_, __COUNTER__), MILL_PASTE(mill_right_, __COUNTER__))

/* Rounds up to a power of two. */
static inline uint64_t mill_round_up(uint64_t value, uint64_t power)
{
    return (value + power - 1) & ~(power - 1);
}

#endif
