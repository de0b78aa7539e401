/* SPDX-License-Identifier: Apache-2.0 */
/* Text of a slow-path failure, built from the inside out, for start-up, files and control. A hot
 * path counts instead. The report belongs to its caller; nothing global. */
#ifndef MILL_BASE_REPORT_H
#define MILL_BASE_REPORT_H

#include "base/compiler.h"

enum {
    MILL_REPORT_BYTES = 1024,
};

struct mill_report {
    char text[MILL_REPORT_BYTES]; /* terminated; empty when nothing was said */
};

/* Sets the innermost cause and returns code, so that a failing line can be one statement:
 *     return mill_fail(report, -ENOENT, "%s: no such device; create it with ...", name);
 * report may be NULL. The text says what failed and the remedy. */
int mill_fail(struct mill_report *report, int code, const char *format, ...) MILL_PRINTF(3, 4);

/* Puts a prefix ("dpdk port nic0: ") before what is there and returns code. */
int mill_fail_in(struct mill_report *report, int code, const char *format, ...) MILL_PRINTF(3, 4);

#endif
