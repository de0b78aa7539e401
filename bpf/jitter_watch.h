/* SPDX-License-Identifier: Apache-2.0 */
/* Loader of jitter.bpf.c: watches the CPUs of cores and tells who took them. Needs CAP_BPF and
 * CAP_PERFMON. Main thread only; nothing outlives the process, as the kernel lets programs go with
 * their descriptors. */
#ifndef MILL_BPF_JITTER_WATCH_H
#define MILL_BPF_JITTER_WATCH_H

#include "base/report.h"
#include "bpf/jitter.h"

struct mill_jitter;

struct mill_jitter_core {
    uint32_t cpu;
    uint32_t tid;
};

/* Since the watch began. */
struct mill_jitter_totals {
    uint64_t stolen_ns; /* the core could have run, others had its CPU */
    uint64_t stolen_count;
    uint64_t stolen_max_ns;
    uint64_t table_full;
};

/* Loads and attaches. Interrupts are watched where the kernel has their tracepoints.
 * ret: 0; -errno with the reason and what would permit it (nothing is left loaded). */
int mill_jitter_open(const struct mill_jitter_core *cores, uint32_t count,
                     struct mill_jitter **ret_jitter, struct mill_report *report) MILL_WARN_UNUSED;
void mill_jitter_close(struct mill_jitter *jitter);

/* Hands over what each taker took since the last call and forgets it. A name is terminated; that of
 * a softirq is its vector's. */
typedef void (*mill_jitter_taken_fn)(void *context, const struct mill_jitter_taker *taker,
                                     const struct mill_jitter_taken *taken);
void mill_jitter_take(struct mill_jitter *jitter, mill_jitter_taken_fn taken, void *context);
/* ret: false: that CPU is not watched. */
bool mill_jitter_totals(const struct mill_jitter *jitter, uint32_t cpu,
                        struct mill_jitter_totals *ret_totals);

#endif
