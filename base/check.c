/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where a failed check, or a start without memory, ends the process. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void mill_assert_fail(const char *file, int line, const char *text, long long left, long long right)
{
    fprintf(stderr,
            "millrace: assertion failed file=%s line=%d check=\"%s\" left=%lld right=%lld\n", file,
            line, text, left, right);
    abort();
}

void mill_no_memory(const char *what)
{
#ifdef MILL_MUTANT_BASE_NO_MEMORY_ASSERTED
    abort();
#endif
    fprintf(stderr, "millrace: no memory for %s\n", what);
    exit(1);
}
