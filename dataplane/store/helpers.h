/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that make a store's long file calls (syncs, cold reads, leaving the page cache), so that
 * none of them holds up another, nor the store's own turn. A job comes back to the store that gave
 * it, finished, in the order in which jobs end.
 *
 *   store --give--> [sync][read][drop] queues --> threads --> finished --take--> store
 *
 * Without threads (count 0: tests on virtual time) a job runs inside mill_helpers_give.
 * Threads: give and take belong to the store's; a job's run is called on one of the helpers.
 */
#ifndef MILL_DATAPLANE_HELPERS_H
#define MILL_DATAPLANE_HELPERS_H

#include "base/compiler.h"
#include "hugepages/ring.h"

enum mill_helper_kind {
    MILL_HELPER_SYNC, /* somebody waits for an acknowledgement: first */
    MILL_HELPER_READ, /* at most half of the threads, */
    MILL_HELPER_DROP, /* at most a quarter of them: the others stay for what is waited for */
    MILL_HELPER_KIND_COUNT,
};

struct mill_helper_job {
    struct mill_helper_job *next; /* the helpers' own */
    enum mill_helper_kind kind;
    void (*run)(struct mill_helper_job *job);
};

struct mill_helpers;

enum {
    MILL_HELPERS_MAX = 32,
};

/* bell: of the store, rung when a job has ended. ret: 0, -ENOMEM, -EINVAL, -errno of a thread. */
int mill_helpers_create(uint32_t count, const struct mill_bell *bell,
                        struct mill_helpers **ret_helpers) MILL_WARN_UNUSED;
/* Waits for every job that was given; NULL is fine. What was not taken back stays the caller's. */
void mill_helpers_destroy(struct mill_helpers *helpers);
void mill_helpers_give(struct mill_helpers *helpers, struct mill_helper_job *job);
/* The next job that has ended, NULL none. */
struct mill_helper_job *mill_helpers_take(struct mill_helpers *helpers);
/* The same, but waits while one is under way. ret: NULL: none is left. */
struct mill_helper_job *mill_helpers_wait(struct mill_helpers *helpers);

#endif
