/* SPDX-License-Identifier: Apache-2.0 */
/* See health.h. */
#include "control/http/health.h"

#include "base/clock.h"

/* Milliseconds since a life sign, 0 when there was none yet. */
static uint64_t age_ms(const _Atomic uint64_t *beat, uint64_t now_ns)
{
    uint64_t beat_ns = atomic_load_explicit(beat, memory_order_relaxed);
    return beat_ns == 0 || beat_ns > now_ns ? 0 : (now_ns - beat_ns) / MILL_NS_PER_MS;
}

static bool is_serving(const struct mill_ipc_side *side)
{
    return atomic_load_explicit(&side->serving, memory_order_acquire) != 0;
}

/* Life signs of millraced and its cores. */
static bool dataplane_moves(const struct mill_counters *counters,
                            const struct mill_ipc_segment *ipc, uint64_t limit_ms, uint64_t now_ns,
                            struct mill_text *text)
{
    bool moves = true;
    uint64_t beat_ms = age_ms(&ipc->dataplane.beat_ns, now_ns);
    if (beat_ms > limit_ms) {
        mill_text_add(text, "millraced: its main thread has not run for %llu ms\n",
                      (unsigned long long)beat_ms);
        moves = false;
    }
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        uint64_t still_ms =
            mill_counter_get(&counters->cores[i].jitter.standstill_ns) / MILL_NS_PER_MS;
        if (still_ms > limit_ms) {
            mill_text_add(text, "core %u: no turn for %llu ms while awake\n", i,
                          (unsigned long long)still_ms);
            moves = false;
        }
    }
    return moves;
}

bool mill_health_live(const struct mill_counters *counters, const struct mill_ipc_segment *ipc,
                      uint64_t now_ns, struct mill_text *text)
{
    bool live = true;
    uint64_t control_ms = age_ms(&ipc->control.beat_ns, now_ns);
    if (is_serving(&ipc->control) && control_ms > MILL_HEALTH_STUCK_MS) {
        mill_text_add(text, "control: no turn for %llu ms\n", (unsigned long long)control_ms);
        live = false;
    }
    if (is_serving(&ipc->dataplane)) {
        live &= dataplane_moves(counters, ipc, MILL_HEALTH_STUCK_MS, now_ns, text);
    }
    if (live) {
        mill_text_add(text, "ok\n");
    }
    return live;
}

bool mill_health_ready(const struct mill_counters *counters, const struct mill_ipc_segment *ipc,
                       uint64_t now_ns, struct mill_text *text)
{
    bool ready = true;
    if (!is_serving(&ipc->control)) {
        mill_text_add(text, "control: starting\n");
        ready = false;
    }
    if (!is_serving(&ipc->dataplane)) {
        mill_text_add(text, "millraced: starting\n");
        ready = false;
    } else {
        ready &= dataplane_moves(counters, ipc, MILL_HEALTH_UNREADY_MS, now_ns, text);
    }
#ifdef MILL_MUTANT_HTTP_ALWAYS_READY
    ready = true;
#endif
    if (ready) {
        mill_text_add(text, "ok\n");
    }
    return ready;
}
