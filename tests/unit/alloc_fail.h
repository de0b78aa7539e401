/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that fail when a test says so: the linker puts these functions before malloc and its
 * like (memory_wraps in tests/meson.build) in all of the project's code in one program. What
 * libraries allocate for themselves is not among them. One thread; one source file of a program. */
#ifndef MILL_TESTS_UNIT_ALLOC_FAIL_H
#define MILL_TESTS_UNIT_ALLOC_FAIL_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/random.h"

enum {
    ALLOC_EACH_UP_TO = 60, /* by default: every call below, then one in ALLOC_STRIDE */
    ALLOC_STRIDE = 7,
};

static struct {
    bool armed;
    bool for_good;   /* all calls after the one fail, too */
    uint64_t calls;  /* while armed */
    uint64_t at;     /* the call that fails, 0 none */
    uint32_t one_in; /* in place of that: so many, by chance; 0 none */
    struct mill_random random;
    uint64_t failed;
} alloc_fail;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);

static inline bool alloc_refused(void)
{
    if (!alloc_fail.armed) {
        return false;
    }
    alloc_fail.calls++;
    bool chosen =
        alloc_fail.one_in > 0
            ? mill_random_below(&alloc_fail.random, alloc_fail.one_in) == 0
            : alloc_fail.at > 0 && (alloc_fail.calls == alloc_fail.at ||
                                    (alloc_fail.for_good && alloc_fail.calls > alloc_fail.at));
    if (chosen) {
        alloc_fail.failed++;
        errno = ENOMEM;
    }
    return chosen;
}

void *__wrap_malloc(size_t size)
{
    return alloc_refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return alloc_refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return alloc_refused() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return alloc_refused() ? NULL : __real_aligned_alloc(alignment, size);
}

char *__wrap_strdup(const char *text)
{
    return alloc_refused() ? NULL : __real_strdup(text);
}

/* From now on call number at fails. */
static inline void alloc_arm(uint64_t at, bool for_good)
{
    alloc_fail.armed = true;
    alloc_fail.for_good = for_good;
    alloc_fail.calls = 0;
    alloc_fail.at = at;
    alloc_fail.failed = 0;
}

static inline void alloc_disarm(void)
{
    alloc_fail.armed = false;
}

/* The call to fail after this one. */
static inline uint64_t alloc_next(uint64_t at)
{
    const char *full = getenv("MILLRACE_FULL");
    bool each = full && full[0] == '1';
    return at < ALLOC_EACH_UP_TO || each ? at + 1 : at + ALLOC_STRIDE;
}

#endif
