/* SPDX-License-Identifier: Apache-2.0 */
/* See idle.h. */
#include "dataplane/core/idle.h"

#include "base/check.h"
#include "base/clock.h"

enum {
    TIGHT_NS = 20000, /* after work: without pauses */
    PRICE_NS = 40000, /* of a sleep from which a descriptor wakes us: docs/performance.md */
    PRICE_BOUNDED_NS = 250000, /* half of a short nap */
    NAP_SHORT_NS = 500000,
    NAP_LONG_NS = 10000000, /* after a second of silence */
    SILENCE_NS = 1000000000,
    PROBE_EVERY = 16, /* gaps */
    WHOLE = 1024,     /* hits */
    SHARE = 16,       /* of a gap in hits and in their mean: 1 / SHARE */
    LONG = 8,         /* prices: a gap that was slept through for longer is no hit for certain */
};

static bool pays(const struct mill_idle *idle)
{
    uint64_t saved_ns = idle->price_ns - idle->gap_ns;
    return idle->hits * saved_ns > (WHOLE - idle->hits) * idle->price_ns;
}

/* How long the gap that begins now is looked through. */
static uint64_t limit_of(struct mill_idle *idle)
{
#ifdef MILL_MUTANT_CORE_IDLE_ALWAYS
    return idle->price_ns;
#endif
#ifdef MILL_MUTANT_CORE_IDLE_NEVER
    return 0;
#endif
    bool probe = idle->unprobed >= PROBE_EVERY;
#ifdef MILL_MUTANT_CORE_IDLE_UNPROBED
    probe = false;
#endif
    return pays(idle) || probe ? idle->price_ns : 0;
}

void mill_idle_init(struct mill_idle *idle, bool busy, bool bounded, uint64_t now_ns)
{
    *idle = (struct mill_idle){
        .price_ns = bounded ? PRICE_BOUNDED_NS : PRICE_NS,
        .worked_ns = now_ns,
        .hits = WHOLE,
        .busy = busy,
        .bounded = bounded,
    };
    idle->limit_ns = limit_of(idle);
}

/* What a gap was: it moves hits and their mean by a SHAREth. */
static void learn(struct mill_idle *idle, uint64_t gap_ns)
{
    bool hit = gap_ns <= idle->price_ns;
    bool looked = idle->limit_ns > 0;
    if (looked) {
        idle->unprobed = hit ? PROBE_EVERY : 0;
    } else {
        idle->unprobed++;
    }
    if (!looked && gap_ns < LONG * idle->price_ns) {
        return; /* it may have ended at once, and waking taken the rest */
    }
    idle->hits -= (idle->hits + SHARE - 1) / SHARE;
    if (hit) {
        idle->hits += WHOLE / SHARE;
        idle->gap_ns += (uint32_t)gap_ns / SHARE;
        idle->gap_ns -= MILL_MIN(idle->gap_ns, (idle->gap_ns + SHARE - 1) / SHARE);
    }
}

void mill_idle_worked(struct mill_idle *idle, uint64_t begin_ns, uint64_t end_ns)
{
    if (idle->empty) {
        learn(idle, begin_ns - MILL_MIN(idle->worked_ns, begin_ns));
        idle->limit_ns = limit_of(idle);
        idle->empty = false;
    }
    idle->worked_ns = end_ns;
}

enum mill_idle_step mill_idle_look(struct mill_idle *idle, uint64_t now_ns)
{
    uint64_t since_ns = now_ns - MILL_MIN(idle->worked_ns, now_ns);
    idle->empty = true;
    if (!idle->busy && since_ns >= idle->limit_ns) {
        return MILL_IDLE_SLEEP;
    }
    return since_ns < TIGHT_NS ? MILL_IDLE_LOOK : MILL_IDLE_PAUSE;
}

uint64_t mill_idle_sleep_ns(const struct mill_idle *idle, uint64_t now_ns)
{
    if (!idle->bounded) {
        return MILL_NEVER;
    }
#ifdef MILL_MUTANT_CORE_NAP_SHORT
    return NAP_SHORT_NS;
#endif
    return now_ns - MILL_MIN(idle->worked_ns, now_ns) > SILENCE_NS ? NAP_LONG_NS : NAP_SHORT_NS;
}
