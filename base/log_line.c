/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines; the two settings below are written once before threads start. */
#include "base/log_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    LINE_BYTES = 2048,
    LIMIT_BURST = 5,
};

static const char *program_name = "millrace";
static enum mill_level level_max = MILL_LEVEL_INFO;

void mill_log_setup(const char *program, enum mill_level level)
{
    program_name = program;
    level_max = level;
}

static void write_line(enum mill_level level, const char *id, const char *format, va_list args)
{
    static const char *const names[MILL_LEVEL_COUNT] = {"error", "warn", "notice", "info", "debug"};
    char line[LINE_BYTES];
    struct timespec wall;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &wall);
    gmtime_r(&wall.tv_sec, &utc);
    size_t used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    int more = snprintf(line + used, sizeof(line) - used, ".%03ldZ %s %s %s ",
                        wall.tv_nsec / 1000000, names[level], program_name, id);
    used += (size_t)MILL_MAX(more, 0);
    more = vsnprintf(line + used, sizeof(line) - used, format, args);
    used = MILL_MIN(used + (size_t)MILL_MAX(more, 0), sizeof(line) - 2);
    line[used++] = '\n';
    ssize_t done = write(STDERR_FILENO, line, used);
    MILL_UNUSED(done); /* nowhere to tell it */
}

void mill_log_line(enum mill_level level, const char *id, const char *format, ...)
{
    if (level > level_max) {
        return;
    }
    va_list args;
    va_start(args, format);
    write_line(level, id, format, args);
    va_end(args);
}

void mill_log_limited(struct mill_log_limit *limit, enum mill_level level, const char *id,
                      const char *format, ...)
{
    if (level > level_max) {
        return;
    }
    uint64_t now = mill_now_read().mono_ns;
    if (now - limit->window_ns >= MILL_NS_PER_S) {
        if (limit->suppressed > 0) {
            mill_log_line(level, id, "similar lines suppressed count=%u", limit->suppressed);
        }
        *limit = (struct mill_log_limit){.window_ns = now};
    }
    if (limit->used >= LIMIT_BURST) {
        limit->suppressed++;
        return;
    }
    limit->used++;
    va_list args;
    va_start(args, format);
    write_line(level, id, format, args);
    va_end(args);
}
