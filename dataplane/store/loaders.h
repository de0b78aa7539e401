/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that load partitions at a start, a few for each log directory, for all stores of a
 * process: a long walk in one directory holds up no other, nor the stores themselves, whose loaded
 * partitions are served meanwhile.
 *
 *   store --give--> [queue of the directory] threads: load, sync --done, bell--> store
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
struct mill_store;
struct store_partition;

enum {
    MILL_LOADERS_PER_DIR_MAX = 16,
};

/* Starts the threads, per_dir for each directory (at most so many). ret: 0, -errno. */
int mill_loaders_create(struct mill_log_dirs *dirs, uint32_t per_dir,
                        struct mill_loaders **ret_loaders,
                        struct mill_report *report) MILL_WARN_UNUSED;
/* Ends them, after the partitions under way; every store was closed. NULL is fine. */
void mill_loaders_destroy(struct mill_loaders *loaders);

/* --- for the stores -------------------------------------------------------------------------- */

/* The store's bell is rung when the partition is done. */
void mill_loaders_give(struct mill_loaders *loaders, struct store_partition *partition,
                       struct mill_store *store);
/* The store's partitions that are done, linked by next_loading; NULL none. Each is released next.
 */
struct store_partition *mill_loaders_take(struct mill_store *store);
void mill_loaders_release(struct mill_loaders *loaders, struct store_partition *partition);
/* Without it: waits until the loader has let go of the partition; one that it had not begun is left
 * unloaded. */
void mill_loaders_finish(struct mill_loaders *loaders, struct store_partition *partition);

#endif
