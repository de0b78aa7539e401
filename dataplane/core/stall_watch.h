/* SPDX-License-Identifier: Apache-2.0 */
/* The main thread's watch over the cores' CPUs: jitter.bpf.c where it is permitted, the stall
 * counters everywhere. Writes log lines and the jitter words of the shared counters. */
#ifndef MILL_DATAPLANE_STALL_WATCH_H
#define MILL_DATAPLANE_STALL_WATCH_H

#include "config/config.h"
#include "ipc/counters.h"
#include "ipc/frames.h"

struct mill_stall_watch;

/* When every core runs. What is not permitted is said and left out. ret: NULL: no memory. */
struct mill_stall_watch *mill_stall_watch_open(const struct mill_config *config,
                                               struct mill_counters *counters,
                                               const struct mill_ipc_segment *ipc,
                                               uint32_t cores_count);
/* A few times a second. Takes NULL. */
void mill_stall_watch_look(struct mill_stall_watch *watch, uint64_t now_ns);
/* Takes NULL. */
void mill_stall_watch_close(struct mill_stall_watch *watch);

#endif
