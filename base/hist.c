/* SPDX-License-Identifier: Apache-2.0 */
/* Log-linear histogram; see hist.h. */
#include "base/hist.h"

enum {
    STEPS = 1 << MILL_HIST_STEP_BITS,
};

static uint32_t bucket_of(uint64_t value)
{
    if (value < STEPS) {
        return (uint32_t)value;
    }
    uint32_t top = 63u - (uint32_t)__builtin_clzll(value);
    uint32_t octave = top - MILL_HIST_STEP_BITS + 1;
    uint32_t step = (uint32_t)(value >> (top - MILL_HIST_STEP_BITS)) & (STEPS - 1);
    uint32_t index = (octave << MILL_HIST_STEP_BITS) + step;
    return MILL_MIN(index, (uint32_t)MILL_HIST_BUCKETS - 1);
}

/* Largest value that falls into the bucket. */
static uint64_t bucket_top(uint32_t index)
{
    if (index < STEPS) {
        return index;
    }
    uint32_t shift = (index >> MILL_HIST_STEP_BITS) - 1;
    uint64_t base = (uint64_t)STEPS + (index & (STEPS - 1));
    return ((base + 1) << shift) - 1;
}

/* Plain add for a word with one writer; pairs with readers' relaxed loads. */
static void add(_Atomic uint64_t *word, uint64_t n)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

void mill_hist_add(struct mill_hist *hist, uint64_t value_ns)
{
    _Atomic uint64_t *bucket = &hist->bucket[bucket_of(value_ns)];
    atomic_store_explicit(bucket, atomic_load_explicit(bucket, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    add(&hist->count, 1);
    add(&hist->sum_ns, value_ns);
    if (value_ns > atomic_load_explicit(&hist->max_ns, memory_order_relaxed)) {
        atomic_store_explicit(&hist->max_ns, value_ns, memory_order_relaxed);
    }
}

uint64_t mill_hist_quantile(const struct mill_hist *hist, double share)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < MILL_HIST_BUCKETS; i++) {
        total += atomic_load_explicit(&hist->bucket[i], memory_order_relaxed);
    }
    uint64_t want = (uint64_t)((double)total * share);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < MILL_HIST_BUCKETS; i++) {
        seen += atomic_load_explicit(&hist->bucket[i], memory_order_relaxed);
        if (seen > want || (seen == total && total > 0)) {
            return bucket_top(i);
        }
    }
    return 0;
}

uint64_t mill_hist_below(const struct mill_hist *hist, uint32_t bits)
{
    uint32_t end = bits < 64 ? bucket_of(1ull << bits) : MILL_HIST_BUCKETS;
    uint64_t count = 0;
    for (uint32_t i = 0; i < end; i++) {
        count += atomic_load_explicit(&hist->bucket[i], memory_order_relaxed);
    }
    return count;
}
