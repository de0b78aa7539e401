/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that load partitions at a start, one for each log directory, for all stores of a process:
 * a long walk in one directory holds up no other, nor the stores themselves, whose loaded
 * partitions are served meanwhile.
 *
 *   store --give--> [queue of the directory] thread: load, sync --done, bell--> store
 *
 * Owner: from give until its state is DONE a partition is the loader's. Without loaders (tests on
 * virtual time) a store loads by itself.
 */
#ifndef MILL_DATAPLANE_LOADERS_H
#define MILL_DATAPLANE_LOADERS_H

#include "base/report.h"
#include "hugepages/ring.h"

struct mill_loaders;
struct mill_log_dirs;
struct store_partition;

/* Starts the threads. ret: 0, -errno. */
int mill_loaders_create(struct mill_log_dirs *dirs, struct mill_loaders **ret_loaders,
                        struct mill_report *report) MILL_WARN_UNUSED;
/* Ends them, after the partitions under way; every store was closed. NULL is fine. */
void mill_loaders_destroy(struct mill_loaders *loaders);

/* --- for the stores -------------------------------------------------------------------------- */

/* bell: of the store's thread, rung when the partition is done. */
void mill_loaders_give(struct mill_loaders *loaders, struct store_partition *partition,
                       const struct mill_bell *bell);
/* Waits until the loader has let go of the partition; one that it had not begun is left unloaded.
 */
void mill_loaders_finish(struct mill_loaders *loaders, struct store_partition *partition);

#endif
