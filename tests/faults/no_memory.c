/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is loaded before all others (LD_PRELOAD): one allocation of one program fails,
 * whoever makes it, its libraries too. Which one stands in a file that the processes share with the
 * test (MILL_NO_MEMORY names it); only the first process of that name is hit, so that the one
 * started in its place goes on. tests/faults/memory.py. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct order {
    char program[32];
    _Atomic uint64_t at;    /* its allocation that fails, 0 none */
    _Atomic uint64_t calls; /* of the last process of that name */
    _Atomic uint64_t done;
};

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static struct order *order; /* NULL: not this program */

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MILL_NO_MEMORY");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    void *shared = mmap(NULL, sizeof(struct order), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED) {
        return;
    }
    struct order *found = shared;
    if (strncmp(found->program, program_invocation_short_name, sizeof(found->program)) == 0) {
        atomic_store(&found->calls, 0);
        order = found;
    }
}

static int refused(void)
{
    if (!order) {
        return 0;
    }
    uint64_t call = atomic_fetch_add(&order->calls, 1) + 1;
    if (call != atomic_load(&order->at) || atomic_exchange(&order->done, 1) != 0) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return refused() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *memory = refused() ? NULL : __libc_memalign(alignment, size);
    if (!memory) {
        return ENOMEM;
    }
    *ret = memory;
    return 0;
}
