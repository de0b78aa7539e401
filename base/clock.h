/* SPDX-License-Identifier: Apache-2.0 */
/* Time is an argument everywhere but in thin drivers: those read it here once per turn and pass it
 * down. `now_ns` is monotonic; `wall_ms` is Kafka's milliseconds since 1970. Any thread. */
#ifndef MILL_BASE_CLOCK_H
#define MILL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MILL_NS_PER_US 1000ull
#define MILL_NS_PER_MS 1000000ull
#define MILL_NS_PER_S  1000000000ull
#define MILL_NEVER     UINT64_MAX

/* Both clocks as one turn sees them. */
struct mill_now {
    uint64_t mono_ns; /* CLOCK_MONOTONIC, or the simulation's */
    int64_t wall_ms;  /* CLOCK_REALTIME, or the simulation's */
};

/* Reads both clocks (vDSO, no system call on x86-64 with a TSC clock source). */
static inline struct mill_now mill_now_read(void)
{
    struct timespec mono;
    struct timespec wall;
    clock_gettime(CLOCK_MONOTONIC, &mono);
    clock_gettime(CLOCK_REALTIME, &wall);
    return (struct mill_now){
        .mono_ns = (uint64_t)mono.tv_sec * MILL_NS_PER_S + (uint64_t)mono.tv_nsec,
        .wall_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000,
    };
}

#endif
