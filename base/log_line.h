/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines of the programs (libraries do not log): a level, a stable message id, short text and
 * key=value fields, on standard error. Slow path only: it formats and writes. */
#ifndef MILL_BASE_LOG_LINE_H
#define MILL_BASE_LOG_LINE_H

#include "base/compiler.h"

enum mill_level {
    MILL_LEVEL_ERROR,
    MILL_LEVEL_WARN,
    MILL_LEVEL_NOTICE,
    MILL_LEVEL_INFO,
    MILL_LEVEL_DEBUG,
    MILL_LEVEL_COUNT,
};

/* At most burst lines per window of a second; the rest are counted and told with the next line. */
struct mill_log_limit {
    uint64_t window_ns;
    uint32_t used;
    uint32_t suppressed;
};

/* Writes "TIME LEVEL PROGRAM ID text". id is stable, e.g. "store.extent-discarded". Any thread: one
 * write(2) per line. */
void mill_log_line(enum mill_level level, const char *id, const char *format, ...)
    MILL_PRINTF(3, 4);

/* The same, at most five lines a second per limit; for everything a peer can cause. */
void mill_log_limited(struct mill_log_limit *limit, enum mill_level level, const char *id,
                      const char *format, ...) MILL_PRINTF(4, 5);

/* Program name in each line, and the most detailed level written. Before threads start. */
void mill_log_setup(const char *program, enum mill_level level);

#endif
