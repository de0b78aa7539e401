/* SPDX-License-Identifier: Apache-2.0 */
/* A running instance as seen from outside: its run directory, pids, shared counters (read only). */
#ifndef MILL_CLI_INSTANCE_H
#define MILL_CLI_INSTANCE_H

#include <sys/types.h>

#include "cli/command.h"
#include "config/config.h"
#include "ipc/counters.h"
#include "ipc/frames.h"

enum {
    CLI_PATH_BYTES = 768,
};

struct instance {
    char dir[CLI_PATH_BYTES / 2];
    pid_t supervisor; /* 0: not running */
    pid_t dataplane;
    pid_t control;
    const struct mill_counters *counters; /* NULL until opened */
    const struct mill_ipc_segment *ipc;   /* NULL: not ours to read */
};

/* Loads -c and --set; warnings: prints those, too. ret: 0, or CLI_USAGE after the faults were
 * printed. */
int instance_config(const struct cli_call *call, bool warnings,
                    struct mill_config **ret_config) MILL_WARN_UNUSED;

/* Finds the instance of -c, --set or --dir. ret: 0, or an exit code after cli_fail. supervisor is 0
 * when nothing runs there. */
int instance_find(const struct cli_call *call, struct instance *ret_instance) MILL_WARN_UNUSED;
/* Maps the counters, and ipc when allowed. ret: 0, or an exit code after cli_fail. */
int instance_open(struct instance *instance) MILL_WARN_UNUSED;
/* Whether its supervisor still lives. */
bool instance_is_running(const struct instance *instance);

#endif
