/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor: makes the shared memory, starts millraced and millrace-control, restarts what
 * dies, stops all in order. One thread, which sleeps in poll(2) when nothing happens. It never
 * touches a client, a log or the metadata.
 *
 *   locks -> effective.properties -> pages -> segments, bells -> children -> ready line -> watch
 *                                                                        -> stop: data, control
 */
#ifndef MILL_SUPERVISOR_SUPERVISOR_H
#define MILL_SUPERVISOR_SUPERVISOR_H

#include "base/report.h"
#include "config/config.h"

enum {
    MILL_EXIT_FAILED = 1,
    MILL_EXIT_CONFIG = 2,
    MILL_EXIT_PERMANENT = 3, /* of a child: another start would meet the same fault */
    MILL_SUPERVISOR_DEATHS_MAX = 10,
};

struct mill_supervisor_options {
    const struct mill_config *config;
    const char *dataplane;      /* path of millraced */
    const char *control;        /* path of millrace-control */
    uint32_t backoff_first_ms;  /* pause after the first death before ready; doubles */
    uint32_t backoff_max_ms;    /* and stays here */
    uint32_t dataplane_stop_ms; /* how long a clean stop may take before a kill */
    uint32_t control_stop_ms;
    bool adopt;    /* metadata is made first of what Kafka left in log.dirs */
    bool detached; /* standard output and error go to run.dir/log once the directory is ours */
    /* "+" is written here when the log was opened, then the ready line; closed after it. -1: none.
     */
    int ready_fd;
};

/* Runs an instance to its end. ret: exit code: 0 after a clean stop, 1 with the reason in report
 * (also already told on standard error by a child when it says so). Blocks; main thread only. */
int mill_supervisor_run(const struct mill_supervisor_options *options, struct mill_report *report);

#endif
