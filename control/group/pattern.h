/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions that consumers subscribe with (KIP-848). Kafka's are RE2/J's, which match in
 * time linear in the text; ours run on PCRE2 with a bound of all matches of one look at many names,
 * and without what RE2 does not have (references back, looking around, conditions, recursion), so
 * that what is accepted means the same. Pure; allocates. */
#ifndef MILL_CONTROL_GROUP_PATTERN_H
#define MILL_CONTROL_GROUP_PATTERN_H

#include <stddef.h>

#include "base/compiler.h"

enum {
    MILL_PATTERN_BYTES_MAX = 4096,
    /* Items of an expression tried by all matches of one that was opened: 15 to 60 ms. A name of 40
     * characters takes about 60 of ".*-orders". */
    MILL_PATTERN_ITEMS_MAX = 1000000,
};

struct mill_pattern;

/* ret_why: room for the reason why it is no such expression. ret: 0, -EINVAL it is none, -ENOMEM.
 */
int mill_pattern_open(const char *text, char *ret_why, size_t why_bytes,
                      struct mill_pattern **ret) MILL_WARN_UNUSED;
/* Whether the whole name matches. ret: 1, 0; -E2BIG: this match, or it and those before it
 * together, tried too many items; -ENOMEM. */
int mill_pattern_match(struct mill_pattern *pattern, const char *name);
/* NULL is fine. */
void mill_pattern_close(struct mill_pattern *pattern);

#endif
