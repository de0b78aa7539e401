/* SPDX-License-Identifier: Apache-2.0 */
/* Stalls of a core, as the main thread sees them: when they are worth a line, and who took the CPU.
 * Pure: counters and time come in, decisions go out. */
#ifndef MILL_DATAPLANE_STALLS_H
#define MILL_DATAPLANE_STALLS_H

#include "ipc/counters.h"

/* What one look at a core sees. */
struct mill_stall_sample {
    uint64_t now_ns;
    uint64_t turns;
    uint64_t stalls;
    uint64_t stalled_ns;
    uint64_t stall_max_ns;
    bool asleep;
};

/* One core's. Zeroed before the first look. */
struct mill_stall_state {
    uint64_t turns;
    uint64_t moved_ns; /* when turns were last seen to move, or the core slept */
    bool told;         /* that it makes no turn at all now */
    uint64_t quiet_ns; /* no line before */
    uint64_t told_stalls;
    uint64_t told_ns;
    uint64_t told_max_ns;
};

enum mill_stall_news {
    MILL_STALL_NOTHING,
    MILL_STALL_BEGUN, /* no turn for a second, and still none */
    MILL_STALL_ENDED, /* stalls since the last line, over by now */
};

struct mill_stall_told {
    uint64_t since_ns; /* BEGUN: how long there was no turn */
    uint64_t count;    /* ENDED: stalls since the last line, their time, the longest so far */
    uint64_t time_ns;
    uint64_t max_ns;
};

/* Whether this is worth a line. A stall without end is told once; ended ones together, at most
 * every ten seconds, when one was new in length or they are many. */
enum mill_stall_news mill_stall_look(struct mill_stall_state *state,
                                     const struct mill_stall_sample *sample,
                                     struct mill_stall_told *ret_told);

/* Adds to a core's table. Full: the taker with least time makes room when the new one has more,
 * and what has no room is in unnamed_ns and table_full. Main thread only. */
void mill_taker_add(struct mill_shared_jitter *jitter, enum mill_taker_kind kind, uint32_t pid,
                    const char *name, uint64_t time_ns, uint64_t count, uint64_t max_ns);
/* Who took most since before (time_ns of each entry then; it is moved on). ret: entry with its time
 * since, NULL: nobody took anything. */
const struct mill_shared_taker *mill_taker_most(const struct mill_shared_jitter *jitter,
                                                uint64_t before_ns[MILL_COUNTERS_TAKERS_MAX],
                                                uint64_t *ret_time_ns);

#endif
