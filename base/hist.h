/* SPDX-License-Identifier: Apache-2.0 */
/* Latency histogram of fixed size for shared memory: 16 linear steps per power of two, so a value
 * is known within 6 %. One writer (relaxed stores), any readers; readers may see a count a moment
 * old. */
#ifndef MILL_BASE_HIST_H
#define MILL_BASE_HIST_H

#include <stdatomic.h>

#include "base/compiler.h"

enum {
    MILL_HIST_STEP_BITS = 4, /* 16 steps per octave */
    MILL_HIST_OCTAVES = 36,  /* up to about 2^39 ns = 9 minutes */
    MILL_HIST_BUCKETS = MILL_HIST_OCTAVES << MILL_HIST_STEP_BITS,
};

struct mill_hist {
    _Atomic uint64_t count;
    _Atomic uint64_t sum_ns;
    _Atomic uint64_t max_ns;
    uint64_t reserved;
    _Atomic uint64_t bucket[MILL_HIST_BUCKETS];
};

/* Adds one value. Owner thread only; no lock prefix. */
void mill_hist_add(struct mill_hist *hist, uint64_t value_ns);

/* Upper bound of the bucket that holds the given share (0..1) of all values; 0 when empty.
 * Floating point: readers and control only. */
uint64_t mill_hist_quantile(const struct mill_hist *hist, double share);

/* Number of values below 2^bits; MILL_HIST_ALL: of all. Readers only. Never falls between calls,
 * and of two calls the later one with more bits never gives less. */
#define MILL_HIST_ALL 64u
uint64_t mill_hist_below(const struct mill_hist *hist, uint32_t bits);

#endif
