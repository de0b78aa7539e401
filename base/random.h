/* SPDX-License-Identifier: Apache-2.0 */
/* A small seeded generator for tables, jitter and tests; never for secrets (those come from
 * getrandom at start). Same seed, same sequence. Reference: splitmix64 (Steele et al., 2014). */
#ifndef MILL_BASE_RANDOM_H
#define MILL_BASE_RANDOM_H

#include <stdint.h>

struct mill_random {
    uint64_t state;
};

static inline uint64_t mill_random_next(struct mill_random *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Uniform in [0, bound), bound > 0; the bias below 2^-32 does not matter where this is used. */
static inline uint32_t mill_random_below(struct mill_random *random, uint32_t bound)
{
    return (uint32_t)(((mill_random_next(random) >> 32) * bound) >> 32);
}

#endif
