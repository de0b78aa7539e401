/* SPDX-License-Identifier: Apache-2.0 */
/* Several queues of a port as one link, for a stack that runs alone: receives from all in turn, and
 * sends each flow by one of them, chosen by its TCP ports, as a card's hash would at the peer.
 * Owner thread only. */
#ifndef MILL_BENCH_QUEUES_H
#define MILL_BENCH_QUEUES_H

#include "bench/bench.h"
#include "dataplane/net/link.h"

enum {
    BENCH_QUEUES_MAX = MILL_BENCH_QUEUES_MAX,
};

struct bench_queues {
    struct mill_link link; /* what the stack uses; context is this */
    const struct mill_link *of[BENCH_QUEUES_MAX];
    uint32_t count;
    uint32_t turn; /* the queue that is asked first goes round */
};

/* of: count links of one port; they stay the port's. */
void bench_queues_init(struct bench_queues *queues, const struct mill_link *const *of,
                       uint32_t count);

#endif
