/* SPDX-License-Identifier: Apache-2.0 */
/* Lines about refused connections and frames; see refusals.h. */
#include "dataplane/core/refusals.h"

#include "base/log_line.h"

static uint64_t sum_of(const struct mill_counters *counters, uint32_t listener, size_t word)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        const uint8_t *at = (const uint8_t *)&counters->cores[i].listeners[listener];
        sum += mill_counter_get((const _Atomic uint64_t *)(const void *)(at + word));
    }
    return sum;
}

#define SUM(name) sum_of(counters, i, offsetof(struct mill_shared_listener, name))

static void frames_look(struct mill_refusals *told, const struct mill_counters *counters,
                        uint64_t now_ns)
{
    uint64_t frames = 0;
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        frames += mill_counter_get(&counters->cores[i].bad_frames);
    }
    bool quiet = told->frames_told_ns > 0 && now_ns - told->frames_told_ns < MILL_REFUSALS_PAUSE_NS;
#ifdef MILL_MUTANT_CORE_BAD_FRAMES_LOUD
    quiet = false;
#endif
    if (frames == told->frames || quiet) {
        return;
    }
    mill_log_line(MILL_LEVEL_WARN, "plane.bad-frames",
                  "count=%llu closed=\"the connections that sent what is no Kafka request: a wrong "
                  "port, TLS, or a broken client\"",
                  (unsigned long long)(frames - told->frames));
    told->frames = frames;
    told->frames_told_ns = now_ns;
}

void mill_refusals_look(struct mill_refusals *told, const struct mill_counters *counters,
                        uint64_t now_ns)
{
    frames_look(told, counters, now_ns);
    for (uint32_t i = 0; i < counters->listeners_count; i++) {
        uint64_t connections = SUM(refused_connections);
        uint64_t address = SUM(refused_address);
        uint64_t rate = SUM(refused_rate);
        uint64_t more_connections = connections - told->listeners[i].connections;
        uint64_t more_address = address - told->listeners[i].address;
        uint64_t more_rate = rate - told->listeners[i].rate;
        uint64_t told_ns = told->listeners[i].told_ns;
        if (more_connections + more_address + more_rate == 0 ||
            (told_ns > 0 && now_ns - told_ns < MILL_REFUSALS_PAUSE_NS)) {
            continue;
        }
#ifdef MILL_MUTANT_CORE_REFUSALS_UNTOLD
        continue;
#endif
        mill_log_line(
            MILL_LEVEL_WARN, "listener.refused",
            "connections were refused since the last such line name=%s "
            "max.connections=%llu max.connections.per.ip=%llu max.connection.creation.rate=%llu",
            counters->listeners[i].name, (unsigned long long)more_connections,
            (unsigned long long)more_address, (unsigned long long)more_rate);
        told->listeners[i].told_ns = now_ns;
        told->listeners[i].connections = connections;
        told->listeners[i].address = address;
        told->listeners[i].rate = rate;
    }
}
