/* SPDX-License-Identifier: Apache-2.0 */
/* Due times of an open loop; see schedule.h. */
#include "bench/schedule.h"

#include <math.h>

void bench_schedule_init(struct bench_schedule *schedule, uint64_t start_ns, double rate,
                         bool poisson, uint64_t seed)
{
    *schedule = (struct bench_schedule){
        .start_ns = start_ns,
        .next_ns = start_ns,
        .gap_ns = (double)MILL_NS_PER_S / rate,
        .poisson = poisson,
        .random = {.state = seed},
    };
}

/* A gap: the mean, or exponentially distributed around it. */
static double gap(struct bench_schedule *schedule)
{
    if (!schedule->poisson) {
        return schedule->gap_ns;
    }
    /* 53 random bits in (0, 1]: never log(0). */
    double share = (double)((mill_random_next(&schedule->random) >> 11) + 1) * 0x1p-53;
    return -log(share) * schedule->gap_ns;
}

uint64_t bench_schedule_take(struct bench_schedule *schedule)
{
    uint64_t due_ns = schedule->next_ns;
    schedule->taken++;
    if (schedule->poisson) {
        schedule->at_ns += gap(schedule);
    } else {
        /* By multiplication: a sum of rounded gaps would drift. */
        schedule->at_ns = (double)schedule->taken * schedule->gap_ns;
    }
    schedule->next_ns = schedule->start_ns + (uint64_t)schedule->at_ns;
    return due_ns;
}
