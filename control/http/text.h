/* SPDX-License-Identifier: Apache-2.0 */
/* Text of Prometheus' exposition format, version 0.0.4, in memory that grows up to a bound. The
 * first failure is remembered and later calls do nothing. One thread at a time. */
#ifndef MILL_CONTROL_HTTP_TEXT_H
#define MILL_CONTROL_HTTP_TEXT_H

#include <stddef.h>

#include "base/compiler.h"

enum {
    MILL_TEXT_BYTES_MAX = 32 << 20, /* of one answer */
    MILL_TEXT_LABELS_MAX = 8,
};

struct mill_text {
    char *bytes; /* malloc's; the owner frees it */
    size_t used_bytes;
    size_t room_bytes;
    bool failed; /* out of memory, or over the bound */
};

void mill_text_add(struct mill_text *text, const char *format, ...) MILL_PRINTF(2, 3);

/* One label. value need not be terminated: it ends at size_bytes or the first zero. */
struct mill_label {
    const char *name;
    const char *value;
    size_t size_bytes;
};

/* The two lines before a metric's samples. help may hold any bytes. */
void mill_text_metric(struct mill_text *text, const char *name, const char *type, const char *help);

/* A sample: name, suffix, labels (escaped; what is no printable ASCII is shown as '?'), value. */
void mill_text_sample(struct mill_text *text, const char *name, const char *suffix,
                      const struct mill_label *labels, uint32_t labels_count, double value);
/* The same for a whole number, exactly. */
void mill_text_sample_u64(struct mill_text *text, const char *name, const char *suffix,
                          const struct mill_label *labels, uint32_t labels_count, uint64_t value);

#endif
