/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions that consumers subscribe with (KIP-848). Kafka's are RE2/J's, which match in
 * time linear in the text; ours run on PCRE2 with bounds of every match and without what RE2 does
 * not have (references back, looking around, conditions, recursion), so that what is accepted
 * means the same. Pure; allocates. */
#ifndef MILL_CONTROL_GROUP_PATTERN_H
#define MILL_CONTROL_GROUP_PATTERN_H

#include <stddef.h>

#include "base/compiler.h"

enum {
    MILL_PATTERN_BYTES_MAX = 4096,
    MILL_PATTERN_STEPS_MAX = 10000, /* of one match: about 0.1 ms */
};

struct mill_pattern;

/* why: room for the reason, told when NULL is returned. ret: NULL when it is no such expression, or
 * out of memory. */
struct mill_pattern *mill_pattern_open(const char *text, char *ret_why, size_t why_bytes);
/* Whether the whole name matches. ret: 1, 0; -E2BIG: it took too many steps. */
int mill_pattern_match(const struct mill_pattern *pattern, const char *name);
/* NULL is fine. */
void mill_pattern_close(struct mill_pattern *pattern);

#endif
