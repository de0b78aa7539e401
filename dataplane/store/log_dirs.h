/* SPDX-License-Identifier: Apache-2.0 */
/* The log directories of a process, shared by the take-up and by the stores of all cores: whose
 * they are, whether the last run ended cleanly, which of them is fenced, and the offset checkpoints
 * in Kafka's files.
 *
 * Threads: open and close on the main thread, before stores run and after they ended; the rest from
 * any store's thread (a mutex guards the checkpoints; no poll core comes here).
 */
#ifndef MILL_DATAPLANE_LOG_DIRS_H
#define MILL_DATAPLANE_LOG_DIRS_H

#include "base/report.h"
#include "dataplane/store/file_calls.h"

struct mill_log_dirs;

struct mill_log_dirs_options {
    const struct mill_file_calls *files;
    const char *const *paths;
    uint32_t count;
    int32_t node_id;
    const char *cluster_id;
    /* One line for the log: level (base/log_line.h), id, text. NULL: nobody listens. Any thread. */
    void (*say)(void *context, int level, const char *id, const char *text);
    void *say_context;
};

/* Creates missing directories and meta.properties (node and cluster id), reads the checkpoints and
 * takes away the mark of a clean end, finishes deletions that were under way, names what is not
 * Kafka's or ours and leaves it alone. ret: 0; -EPERM another cluster's or node's directory,
 * -errno; report says which and the remedy. */
int mill_log_dirs_open(const struct mill_log_dirs_options *options, struct mill_log_dirs **ret_dirs,
                       struct mill_report *report) MILL_WARN_UNUSED;

/* Every directory's last run ended cleanly. */
bool mill_log_dirs_clean(const struct mill_log_dirs *dirs);

/* How far loading is, over all directories. Any thread. */
struct mill_load_progress {
    uint64_t partitions; /* to be loaded so far */
    uint64_t loaded;
    uint64_t bytes; /* of log files walked */
};
struct mill_load_progress mill_log_dirs_progress(const struct mill_log_dirs *dirs);

/* Ends the run; every store was closed. clean: all of them said so. Then everything is synced, the
 * checkpoints are written and each directory that is not fenced is marked as ended cleanly, so that
 * the next start reads no log. ret: 0, or the first failure (those directories are not marked). */
int mill_log_dirs_close(struct mill_log_dirs *dirs, bool clean);
/* What a kill leaves: memory is freed, nothing is written. */
void mill_log_dirs_abandon(struct mill_log_dirs *dirs);

#endif
