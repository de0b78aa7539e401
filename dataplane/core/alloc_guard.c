/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator's entry points, put in front of the C library's for every object of the program,
 * shared libraries too; see alloc_guard.h. Each looks at one flag of its thread and goes on to the
 * library's own. Linked only into builds with -Dalloc_abort=true and into the test of it. */
#include "dataplane/core/alloc_guard.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

/* glibc's names for what the functions below replace. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *memory);

/* Per thread by nature: an allocator's caller hands it no context. */
static _Thread_local bool guarded;

void mill_alloc_guard_begin(void)
{
    guarded = true;
}

void mill_alloc_guard_end(void)
{
    guarded = false;
}

MILL_COLD MILL_NORETURN static void stop(const char *call)
{
    static const char text[] = ": called on a poll core that runs\n";
    guarded = false;
    /* stdio may allocate; a lost message only makes the core dump the first clue. */
    ssize_t r = write(STDERR_FILENO, call, strlen(call));
    r = write(STDERR_FILENO, text, sizeof(text) - 1);
    MILL_UNUSED(r);
    abort();
}

static inline void check(const char *call)
{
    if (MILL_UNLIKELY(guarded)) {
        stop(call);
    }
}

void *malloc(size_t size)
{
    check("malloc");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    check("calloc");
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    check("realloc");
    return __libc_realloc(memory, size);
}

void *memalign(size_t align, size_t size)
{
    check("memalign");
    return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    check("aligned_alloc");
    return __libc_memalign(align, size);
}

int posix_memalign(void **ret_memory, size_t align, size_t size)
{
    check("posix_memalign");
    if (align == 0 || align % sizeof(void *) != 0 || (align & (align - 1)) != 0) {
        return EINVAL; /* a positive errno: POSIX wants it so */
    }
    void *memory = __libc_memalign(align, size);
    if (memory == NULL) {
        return ENOMEM;
    }
    *ret_memory = memory;
    return 0;
}

void free(void *memory)
{
    if (memory != NULL) {
        check("free");
    }
    __libc_free(memory);
}
