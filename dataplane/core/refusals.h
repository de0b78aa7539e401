/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the log which limits refused connections, and that frames closed theirs: a line per
 * listener and one for frames, however many there were, and no more often than every
 * MILL_REFUSALS_PAUSE_NS. The main thread only. */
#ifndef MILL_DATAPLANE_REFUSALS_H
#define MILL_DATAPLANE_REFUSALS_H

#include "base/clock.h"
#include "ipc/counters.h"

#define MILL_REFUSALS_PAUSE_NS (10 * MILL_NS_PER_S)

struct mill_refusals {
    struct {
        uint64_t told_ns; /* 0: never */
        uint64_t connections;
        uint64_t address;
        uint64_t rate;
    } listeners[MILL_MAP_LISTENERS_MAX];
    uint64_t frames_told_ns; /* 0: never */
    uint64_t frames;
};

/* When each core has published: what stands there before is of a millraced that ran before. */
void mill_refusals_look(struct mill_refusals *told, const struct mill_counters *counters,
                        uint64_t now_ns);

#endif
