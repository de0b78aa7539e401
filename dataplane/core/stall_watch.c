/* SPDX-License-Identifier: Apache-2.0 */
/* See stall_watch.h. */
#include "dataplane/core/stall_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log_line.h"
#include "bpf/jitter_watch.h"
#include "dataplane/core/stalls.h"

enum {
    TAKER_TEXT_BYTES = 160,
};

struct mill_stall_watch {
    struct mill_counters *counters;
    const struct mill_ipc_segment *ipc;
    uint32_t cores_count;
    struct mill_jitter *jitter; /* NULL: not watched, jitter_state says why */
    struct {
        struct mill_stall_state state;
        uint64_t before_ns[MILL_COUNTERS_TAKERS_MAX]; /* of the takers, at the last line */
    } cores[MILL_MAP_CORES_MAX];
};

static_assert((int)MILL_JITTER_NAME_BYTES == sizeof(((struct mill_shared_taker *)0)->name),
              "a taker's name");
static_assert((int)MILL_JITTER_THREAD == (int)MILL_TAKER_THREAD &&
                  (int)MILL_JITTER_IDLE == (int)MILL_TAKER_IDLE &&
                  (int)MILL_JITTER_SOFTIRQ == (int)MILL_TAKER_SOFTIRQ &&
                  (int)MILL_JITTER_IRQ == (int)MILL_TAKER_IRQ,
              "kinds of takers");

static void jitter_open(struct mill_stall_watch *watch, const struct mill_config *config)
{
    struct mill_jitter_core cores[MILL_MAP_CORES_MAX];
    struct mill_report report = {""};
    char *state = watch->counters->jitter_state;
    size_t room = sizeof(watch->counters->jitter_state);
    if (!mill_config_bool(config, MILL_KEY_DATAPLANE_JITTER)) {
        snprintf(state, room, "dataplane.jitter=off");
        return;
    }
    for (uint32_t i = 0; i < watch->cores_count; i++) {
        cores[i].cpu = atomic_load_explicit(&watch->counters->cores[i].cpu, memory_order_relaxed);
        cores[i].tid = atomic_load_explicit(&watch->counters->cores[i].tid, memory_order_relaxed);
    }
    if (mill_jitter_open(cores, watch->cores_count, &watch->jitter, &report) < 0) {
        snprintf(state, room, "%.127s", report.text);
        mill_log_line(MILL_LEVEL_NOTICE, "core.jitter-not-watched", "reason=\"%s\"", report.text);
        return;
    }
    snprintf(state, room, "watching");
}

struct mill_stall_watch *mill_stall_watch_open(const struct mill_config *config,
                                               struct mill_counters *counters,
                                               const struct mill_ipc_segment *ipc,
                                               uint32_t cores_count)
{
    struct mill_stall_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        return NULL;
    }
    watch->counters = counters;
    watch->ipc = ipc;
    watch->cores_count = cores_count;
    for (uint32_t i = 0; i < cores_count; i++) {
        /* Of a millraced that ran before. */
        memset(&counters->cores[i].jitter, 0, sizeof(counters->cores[i].jitter));
    }
    jitter_open(watch, config);
    return watch;
}

/* --- who ----------------------------------------------------------------------------------------
 */

static void taken(void *context, const struct mill_jitter_taker *taker,
                  const struct mill_jitter_taken *what)
{
    const struct mill_stall_watch *watch = context;
    for (uint32_t i = 0; i < watch->cores_count; i++) {
        struct mill_shared_core *core = &watch->counters->cores[i];
        if (core->cpu == taker->cpu) {
            mill_taker_add(&core->jitter, (enum mill_taker_kind)taker->kind, taker->id, what->name,
                           what->time_ns, what->count, what->max_ns);
        }
    }
}

static void jitter_look(struct mill_stall_watch *watch)
{
    if (!watch->jitter) {
        return;
    }
    mill_jitter_take(watch->jitter, taken, watch);
    for (uint32_t i = 0; i < watch->cores_count; i++) {
        struct mill_shared_core *core = &watch->counters->cores[i];
        struct mill_jitter_totals totals;
        if (mill_jitter_totals(watch->jitter, core->cpu, &totals)) {
            mill_counter_set(&core->jitter.stolen_ns, totals.stolen_ns);
            mill_counter_set(&core->jitter.stolen_count, totals.stolen_count);
            mill_counter_set(&core->jitter.stolen_max_ns, totals.stolen_max_ns);
            mill_counter_set(&core->jitter.map_full, totals.table_full);
        }
    }
}

/* Who took the core's CPU since the last line about it. */
static void taker_text(struct mill_stall_watch *watch, uint32_t index,
                       char ret_text[TAKER_TEXT_BYTES])
{
    uint64_t time_ns;
    const struct mill_shared_taker *taker = mill_taker_most(
        &watch->counters->cores[index].jitter, watch->cores[index].before_ns, &time_ns);
    if (!watch->jitter) {
        snprintf(ret_text, TAKER_TEXT_BYTES, "taken_by=unknown (%.100s)",
                 watch->counters->jitter_state);
    } else if (!taker) {
        snprintf(ret_text, TAKER_TEXT_BYTES,
                 "taken_by=nobody on this machine (its hypervisor, or a page not there)");
    } else {
        snprintf(ret_text, TAKER_TEXT_BYTES, "taken_by=\"%.16s\" pid=%u taken_ms=%llu", taker->name,
                 taker->pid, (unsigned long long)(time_ns / MILL_NS_PER_MS));
    }
}

/* --- stalls -------------------------------------------------------------------------------------
 */

static void core_look(struct mill_stall_watch *watch, uint32_t index, uint64_t now_ns)
{
    struct mill_shared_core *core = &watch->counters->cores[index];
    struct mill_stall_sample sample = {
        .now_ns = now_ns,
        .turns = mill_counter_get(&core->turns),
        .stalls = mill_counter_get(&core->stalls),
        .stalled_ns = mill_counter_get(&core->stalled_ns),
        .stall_max_ns = mill_counter_get(&core->stall_max_ns),
        .asleep =
            atomic_load_explicit(&watch->ipc->cores[index].bell.asleep, memory_order_relaxed) != 0,
    };
    struct mill_stall_told told;
    char taker[TAKER_TEXT_BYTES];
    enum mill_stall_news news = mill_stall_look(&watch->cores[index].state, &sample, &told);
    mill_counter_set(&core->jitter.standstill_ns, now_ns - watch->cores[index].state.moved_ns);
    if (news == MILL_STALL_NOTHING) {
        return;
    }
    taker_text(watch, index, taker);
    if (news == MILL_STALL_BEGUN) {
        mill_log_line(MILL_LEVEL_WARN, "core.stands-still", "core=%u cpu=%u since_ms=%llu %s",
                      index, core->cpu, (unsigned long long)(told.since_ns / MILL_NS_PER_MS),
                      taker);
    } else {
        mill_log_line(MILL_LEVEL_WARN, "core.stalled",
                      "core=%u cpu=%u stalls=%llu stalled_ms=%llu longest_ms=%llu %s", index,
                      core->cpu, (unsigned long long)told.count,
                      (unsigned long long)(told.time_ns / MILL_NS_PER_MS),
                      (unsigned long long)(told.max_ns / MILL_NS_PER_MS), taker);
    }
}

void mill_stall_watch_look(struct mill_stall_watch *watch, uint64_t now_ns)
{
    if (!watch) {
        return;
    }
    jitter_look(watch);
    for (uint32_t i = 0; i < watch->cores_count; i++) {
        core_look(watch, i, now_ns);
    }
}

void mill_stall_watch_close(struct mill_stall_watch *watch)
{
    if (watch) {
        mill_jitter_close(watch->jitter);
        free(watch);
    }
}
