/* SPDX-License-Identifier: Apache-2.0 */
/* When requests of an open loop are due: made from rate and seed alone, never from what the broker
 * does. Pure; owner thread only. */
#ifndef MILL_BENCH_SCHEDULE_H
#define MILL_BENCH_SCHEDULE_H

#include "base/random.h"
#include "base/clock.h"
#include "base/compiler.h"

struct bench_schedule {
    uint64_t start_ns;
    uint64_t next_ns; /* due time of the next request */
    uint64_t taken;
    double gap_ns; /* mean */
    double at_ns;  /* of the next request, from the start; keeps the fraction */
    bool poisson;
    struct mill_random random;
};

/* rate: requests a second, above 0. The first is due at start_ns. */
void bench_schedule_init(struct bench_schedule *schedule, uint64_t start_ns, double rate,
                         bool poisson, uint64_t seed);
/* Takes the next request's due time. */
uint64_t bench_schedule_take(struct bench_schedule *schedule);

#endif
