/* SPDX-License-Identifier: Apache-2.0 */
/* See stalls.h. */
#include "dataplane/core/stalls.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum {
    LONG_MS = 100,       /* one stall that long is worth a line */
    MANY_MS = 500,       /* or as much in short ones */
    QUIET_S = 10,        /* between two lines about ended stalls */
    STANDSTILL_MS = 1000 /* no turn for so long is told while it lasts */
};

static bool is_standstill(struct mill_stall_state *state, const struct mill_stall_sample *sample)
{
    if (sample->asleep || sample->turns != state->turns || state->moved_ns == 0) {
        state->turns = sample->turns;
        state->moved_ns = sample->now_ns;
        state->told = false;
    }
    return !state->told && sample->now_ns - state->moved_ns >= STANDSTILL_MS * MILL_NS_PER_MS;
}

enum mill_stall_news mill_stall_look(struct mill_stall_state *state,
                                     const struct mill_stall_sample *sample,
                                     struct mill_stall_told *ret_told)
{
    if (is_standstill(state, sample)) {
        state->told = true;
        ret_told->since_ns = sample->now_ns - state->moved_ns;
        return MILL_STALL_BEGUN;
    }
    uint64_t time_ns = sample->stalled_ns - state->told_ns;
    bool is_longest = sample->stall_max_ns > state->told_max_ns &&
                      sample->stall_max_ns >= LONG_MS * MILL_NS_PER_MS;
    bool is_much = time_ns >= MANY_MS * MILL_NS_PER_MS;
#ifdef MILL_MUTANT_CORE_STALL_BUSY_LOG
    state->quiet_ns = 0;
#endif
    if (sample->now_ns < state->quiet_ns || (!is_longest && !is_much)) {
        return MILL_STALL_NOTHING;
    }
    *ret_told = (struct mill_stall_told){
        .count = sample->stalls - state->told_stalls,
        .time_ns = time_ns,
        .max_ns = sample->stall_max_ns,
    };
    state->quiet_ns = sample->now_ns + QUIET_S * MILL_NS_PER_S;
    state->told_stalls = sample->stalls;
    state->told_ns = sample->stalled_ns;
    state->told_max_ns = sample->stall_max_ns;
    return MILL_STALL_ENDED;
}

/* --- takers -------------------------------------------------------------------------------------
 */

static void word_add(_Atomic uint64_t *word, uint64_t value)
{
    mill_counter_set(word, mill_counter_get(word) + value);
}

static bool is_same(const struct mill_shared_taker *taker, enum mill_taker_kind kind, uint32_t pid,
                    const char *name)
{
    return taker->kind == kind && taker->pid == pid &&
           strncmp(taker->name, name, sizeof(taker->name)) == 0;
}

/* The entry of a taker; a free one; else the one with least time. */
static struct mill_shared_taker *entry_of(struct mill_shared_jitter *jitter,
                                          enum mill_taker_kind kind, uint32_t pid, const char *name)
{
    struct mill_shared_taker *least = &jitter->takers[0];
    for (uint32_t i = 0; i < MILL_COUNTERS_TAKERS_MAX; i++) {
        struct mill_shared_taker *taker = &jitter->takers[i];
        if (mill_counter_get(&taker->count) > 0 && is_same(taker, kind, pid, name)) {
            return taker;
        }
        if (mill_counter_get(&taker->time_ns) < mill_counter_get(&least->time_ns)) {
            least = taker;
        }
    }
    return least;
}

void mill_taker_add(struct mill_shared_jitter *jitter, enum mill_taker_kind kind, uint32_t pid,
                    const char *name, uint64_t time_ns, uint64_t count, uint64_t max_ns)
{
    struct mill_shared_taker *taker = entry_of(jitter, kind, pid, name);
    uint64_t old_ns = mill_counter_get(&taker->time_ns);
    if (mill_counter_get(&taker->count) > 0 && !is_same(taker, kind, pid, name)) {
        word_add(&jitter->table_full, 1);
        word_add(&jitter->unnamed_ns, MILL_MIN(time_ns, old_ns));
        if (time_ns <= old_ns) {
            return;
        }
        /* Readers see an entry without count as none. */
        mill_counter_set(&taker->count, 0);
        mill_counter_set(&taker->time_ns, 0);
        mill_counter_set(&taker->max_ns, 0);
    }
    snprintf(taker->name, sizeof(taker->name), "%s", name);
    atomic_store_explicit(&taker->pid, pid, memory_order_relaxed);
    atomic_store_explicit(&taker->kind, kind, memory_order_relaxed);
    word_add(&taker->time_ns, time_ns);
    mill_counter_set(&taker->max_ns, MILL_MAX(mill_counter_get(&taker->max_ns), max_ns));
    word_add(&taker->count, count);
}

const struct mill_shared_taker *mill_taker_most(const struct mill_shared_jitter *jitter,
                                                uint64_t before_ns[MILL_COUNTERS_TAKERS_MAX],
                                                uint64_t *ret_time_ns)
{
    const struct mill_shared_taker *most = NULL;
    *ret_time_ns = 0;
    for (uint32_t i = 0; i < MILL_COUNTERS_TAKERS_MAX; i++) {
        uint64_t time_ns = mill_counter_get(&jitter->takers[i].time_ns);
        uint64_t since_ns = time_ns - MILL_MIN(before_ns[i], time_ns);
        before_ns[i] = time_ns;
        if (since_ns > *ret_time_ns) {
            *ret_time_ns = since_ns;
            most = &jitter->takers[i];
        }
    }
    return most;
}
