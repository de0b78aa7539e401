/* SPDX-License-Identifier: Apache-2.0 */
/* What a core does between two pieces of work: look on, or sleep. Pure: time is an argument.
 *
 * To look on costs CPU, and on a shared machine maybe the very CPU that the peer needs to send;
 * to sleep costs the way into the kernel and back, and the peer waits for that. A gap is worth
 * looking through when it ends soon, and gaps are like those before them:
 *
 *   hits      share of the last gaps that ended within the limit
 *   gap       how long those lasted
 *   look on   while hits * (price - gap) > (1 - hits) * limit,  limit = price of a sleep
 *
 * So it never looks on for longer than a sleep costs, and not at all where that has not paid. A gap
 * that was slept through tells nothing about the moment at which it would have ended, so each
 * PROBE_EVERYth is looked through all the same, and after one that was hit the next one, too: a
 * peer that becomes quick is noticed within a few round trips.
 *
 * Thread: its core.
 */
#ifndef MILL_DATAPLANE_IDLE_H
#define MILL_DATAPLANE_IDLE_H

#include <stdbool.h>
#include <stdint.h>

enum mill_idle_step {
    MILL_IDLE_LOOK,  /* turn again at once */
    MILL_IDLE_PAUSE, /* turn again after a few pauses of the CPU */
    MILL_IDLE_SLEEP,
};

struct mill_idle {
    uint64_t price_ns;  /* of a sleep, and the longest look */
    uint64_t worked_ns; /* end of the last turn with work */
    uint64_t limit_ns;  /* how long this gap is looked through */
    uint32_t hits;      /* in 1024ths */
    uint32_t gap_ns;    /* mean of the gaps that were hits */
    uint32_t unprobed;  /* gaps since one was looked through */
    bool empty;         /* a turn without work since */
    bool busy;          /* never sleeps */
    bool bounded; /* a port cannot wake us: sleeps are short, and a frame waits for their end */
};

/* bounded: see the field. */
void mill_idle_init(struct mill_idle *idle, bool busy, bool bounded, uint64_t now_ns);

/* A turn that began and ended then had work to do. */
void mill_idle_worked(struct mill_idle *idle, uint64_t begin_ns, uint64_t end_ns);

/* A turn that ended now had none. ret: what to do until the next one. */
enum mill_idle_step mill_idle_look(struct mill_idle *idle, uint64_t now_ns);

/* The longest sleep from now on, but for deadlines. MILL_NEVER: something will wake the core. */
uint64_t mill_idle_sleep_ns(const struct mill_idle *idle, uint64_t now_ns);

#endif
