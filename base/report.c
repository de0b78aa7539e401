/* SPDX-License-Identifier: Apache-2.0 */
/* Failure texts; see report.h. */
#include "base/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

int mill_fail(struct mill_report *report, int code, const char *format, ...)
{
#ifdef MILL_MUTANT_BASE_NO_MEMORY_ABORTS
    MILL_ASSERT(code != -ENOMEM);
#endif
    if (report) {
        va_list args;
        va_start(args, format);
        vsnprintf(report->text, sizeof(report->text), format, args);
        va_end(args);
    }
    return code;
}

int mill_fail_in(struct mill_report *report, int code, const char *format, ...)
{
    if (report) {
        char outer[MILL_REPORT_BYTES];
        va_list args;
        va_start(args, format);
        int size = vsnprintf(outer, sizeof(outer), format, args);
        va_end(args);
        if (size > 0 && (size_t)size < sizeof(outer)) {
            size_t room = sizeof(outer) - (size_t)size - 1;
            size_t inner = MILL_MIN(strlen(report->text), room);
            memcpy(outer + size, report->text, inner);
            outer[(size_t)size + inner] = '\0';
        }
        memcpy(report->text, outer, sizeof(outer));
    }
    return code;
}
