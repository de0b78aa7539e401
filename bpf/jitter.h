/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What jitter.bpf.c and its loader share: what is known per CPU of a core, and per taker of it. */
#ifndef MILL_BPF_JITTER_H
#define MILL_BPF_JITTER_H

#include <linux/types.h>

enum {
    MILL_JITTER_CPUS_MAX = 1024,
    MILL_JITTER_TAKERS_MAX = 1024, /* of all cores, between two looks of the loader */
    MILL_JITTER_NAME_BYTES = 16,   /* TASK_COMM_LEN */
};

enum mill_jitter_kind {
    MILL_JITTER_THREAD,
    MILL_JITTER_IDLE,
    MILL_JITTER_SOFTIRQ,
    MILL_JITTER_IRQ,
};

/* Value of jitter_cpus, an array by CPU; tid 0: no core there. The loader writes tid once, the
 * program on that CPU everything else. */
struct mill_jitter_cpu {
    __u32 tid;        /* of the core's thread, in the loader's PID namespace */
    __u32 pid;        /* the same thread as the kernel numbers it; 0 until it was seen */
    __u64 off_ns;     /* since when the core waits for its CPU; 0: it does not */
    __u64 taker_ns;   /* since when the present taker runs */
    __u64 taken_ns;   /* of this wait so far, by takers that count */
    __u64 softirq_ns; /* begin of a softirq in the core's own time; 0: none */
    __u64 irq_ns;     /* the same of an interrupt */
    __u64 nested_ns;  /* of that softirq, in interrupts */
    __u32 woken;      /* the wait began with a wake-up, not by being put off */
    __u32 zero;
    /* totals */
    __u64 stolen_ns;
    __u64 stolen_count;
    __u64 stolen_max_ns;
    __u64 table_full;
};

/* Key and value of jitter_takers. */
struct mill_jitter_taker {
    __u32 cpu;
    __u32 kind; /* enum mill_jitter_kind */
    __u32 id;   /* process, softirq vector or interrupt line */
};

struct mill_jitter_taken {
    char name[MILL_JITTER_NAME_BYTES];
    __u64 time_ns;
    __u64 count;
    __u64 max_ns;
};

#endif
