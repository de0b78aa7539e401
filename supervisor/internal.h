/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of supervisor/ share. Main thread only. */
#ifndef MILL_SUPERVISOR_INTERNAL_H
#define MILL_SUPERVISOR_INTERNAL_H

#include <sys/types.h>

#include "ipc/counters.h"
#include "ipc/frames.h"
#include "ipc/map.h"
#include "supervisor/supervisor.h"

enum {
    LOCKS_MAX = 32,
    FDS_TEXT_BYTES = 1536,
    SUPERVISOR_PATH_BYTES = 768,
    SUPERVISOR_TOPICS_MAX = 1 << 14,
    /* Sparse: only records in use take memory. Holds a topic of a million partitions in all. */
    SUPERVISOR_MAP_BYTES = 256 << 20,
};

/* --- run directory and locks (rundir.c) ------------------------------------------------------- */

struct locks {
    int fds[LOCKS_MAX];
    uint32_t count;
};

/* "run.dir/name" into ret_path. */
void rundir_path(const struct mill_config *config, const char *name,
                 char ret_path[SUPERVISOR_PATH_BYTES]);
/* Makes run.dir, the log directories and the metadata directory, locks the first two and the kernel
 * interfaces that ports name. Children inherit the locks: a successor waits until the last process
 * of a killed supervisor has ended. */
int locks_take(const struct mill_config *config, struct locks *locks,
               struct mill_report *report) MILL_WARN_UNUSED;
void locks_release(struct locks *locks);
/* A small file, replaced as a whole. */
int rundir_write(const struct mill_config *config, const char *name, const char *text,
                 mode_t mode) MILL_WARN_UNUSED;
/* First line of a small file. ret: 0, -errno. */
int rundir_read(const struct mill_config *config, const char *name, char *ret_text,
                size_t size_bytes) MILL_WARN_UNUSED;
/* Removes what a run left, but effective.properties and the log. */
void rundir_clean(const struct mill_config *config);

/* --- hugepages (pages.c) ------------------------------------------------------------------------
 */

/* Mounts hugepages.dir when missing, makes the instance's folder and raises the pool by what is
 * missing; how many is remembered in run.dir/hugepages. Waits for other instances that start now.
 * out: ret_lock keeps others from counting the same pages; to be given to pages_unlock when
 * millraced has taken them, after a failure too. Never inherited by a child. */
int pages_prepare(const struct mill_config *config, int *ret_lock,
                  struct mill_report *report) MILL_WARN_UNUSED;
/* Takes -1 too, and leaves -1. */
void pages_unlock(int *lock);
/* Gives back what was raised, as far as it is free, and removes the instance's empty folder. */
void pages_give_back(const struct mill_config *config);
/* Pages (of page_kib) that the arena and EAL's pools of a configuration take. */
uint64_t pages_needed(const struct mill_config *config, uint64_t page_kib);

/* --- shared segments (shm.c) ----------------------------------------------------------------- */

struct segments {
    int ipc_fd;
    int map_fd;
    int counters_fd;
    int flows_fd;                      /* connections of each port and core; -1: no port */
    int ready_fd;                      /* eventfd a child may write when its state changed */
    int bells[1 + MILL_MAP_CORES_MAX]; /* control's, then the cores' */
    uint32_t bells_count;
    struct mill_ipc_segment *ipc;
    uint64_t ipc_bytes;
    struct mill_counters *counters;
    uint64_t counters_bytes;
};

/* None made yet. */
struct segments segments_none(void);
/* Files of run.dir, formatted afresh, and eventfds. */
int segments_make(const struct mill_config *config, struct segments *segments,
                  struct mill_report *report) MILL_WARN_UNUSED;
void segments_close(struct segments *segments);
/* Value of MILLRACE_FDS. */
void segments_variable(const struct segments *segments, char ret_text[FDS_TEXT_BYTES]);
/* Lets the next exec keep the descriptors. Between fork and exec only. */
void segments_inherit(const struct segments *segments);

/* --- children (child.c) ---------------------------------------------------------------------- */

struct child {
    const char *name; /* "millraced", "control": log lines and the pid file */
    const char *path;
    const char *pid_file;
    struct mill_ipc_side *side;
    pid_t pid;            /* 0: not running */
    bool ready;           /* this run has served */
    bool ever_ready;      /* any run has */
    uint32_t deaths;      /* in a row, before ready */
    uint64_t start_at_ns; /* when not running: not before */
    int last_status;      /* of wait(2) */
};

enum child_verdict {
    CHILD_RESTART,   /* start_at_ns tells when */
    CHILD_PERMANENT, /* it said that another start is useless */
    CHILD_HOPELESS,  /* too many deaths in a row */
};

/* Starts it. ret: 0, -errno with report. */
int child_start(struct child *child, const struct mill_config *config,
                const struct segments *segments, struct mill_report *report) MILL_WARN_UNUSED;
/* Its death was collected: what now. */
enum child_verdict child_died(struct child *child, int status,
                              const struct mill_supervisor_options *options, uint64_t now_ns);
/* Looks at its side. ret: true when it became ready just now. */
bool child_look(struct child *child);
/* "exit code 3", "signal 9 (Killed)". */
void child_status_text(int status, char *ret_text, size_t size_bytes);

#endif
