/* SPDX-License-Identifier: Apache-2.0 */
/* See jitter_watch.h. */
#include "bpf/jitter_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "bpf/jitter.skel.h"

enum {
    BATCH = 64,
};

struct mill_jitter {
    struct mill_jitter_bpf *programs;
};

/* What libbpf says goes nowhere: the error number is what our reason is made of. */
static int say_nothing(enum libbpf_print_level level, const char *format, va_list arguments)
{
    MILL_UNUSED(level);
    MILL_UNUSED(format);
    MILL_UNUSED(arguments);
    return 0;
}

static bool has_tracepoint(const char *name)
{
    return libbpf_find_vmlinux_btf_id(name, BPF_TRACE_RAW_TP) > 0;
}

static void choose(struct mill_jitter_bpf *programs)
{
    bool softirqs = has_tracepoint("softirq_entry") && has_tracepoint("softirq_exit");
    bool interrupts = has_tracepoint("irq_handler_entry") && has_tracepoint("irq_handler_exit");
    bpf_program__set_autoload(programs->progs.mill_jitter_softirq_entry, softirqs);
    bpf_program__set_autoload(programs->progs.mill_jitter_softirq_exit, softirqs);
    bpf_program__set_autoload(programs->progs.mill_jitter_irq_entry, interrupts);
    bpf_program__set_autoload(programs->progs.mill_jitter_irq_exit, interrupts);
}

static int watch_cores(struct mill_jitter_bpf *programs, const struct mill_jitter_core *cores,
                       uint32_t count)
{
#ifdef MILL_MUTANT_JITTER_UNWATCHED
    count = 0;
#endif
    for (uint32_t i = 0; i < count; i++) {
        struct mill_jitter_cpu state = {.tid = cores[i].tid};
        if (cores[i].cpu >= MILL_JITTER_CPUS_MAX) {
            return -ERANGE;
        }
        int r = bpf_map__update_elem(programs->maps.jitter_cpus, &cores[i].cpu,
                                     sizeof(cores[i].cpu), &state, sizeof(state), BPF_ANY);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int load(struct mill_jitter *jitter, const struct mill_jitter_core *cores, uint32_t count)
{
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) != 0) {
        return -errno;
    }
    jitter->programs = mill_jitter_bpf__open();
    if (!jitter->programs) {
        return -errno;
    }
    choose(jitter->programs);
    jitter->programs->rodata->pid_ns_device = space.st_dev;
    jitter->programs->rodata->pid_ns_inode = space.st_ino;
    int r = mill_jitter_bpf__load(jitter->programs);
    r = r < 0 ? r : watch_cores(jitter->programs, cores, count);
    return r < 0 ? r : mill_jitter_bpf__attach(jitter->programs);
}

int mill_jitter_open(const struct mill_jitter_core *cores, uint32_t count,
                     struct mill_jitter **ret_jitter, struct mill_report *report)
{
    struct mill_jitter *jitter = calloc(1, sizeof(*jitter));
    if (!jitter) {
        return mill_fail(report, -ENOMEM, "no memory");
    }
    libbpf_print_fn_t print = libbpf_set_print(say_nothing);
    int r = load(jitter, cores, count);
    libbpf_set_print(print);
    if (r < 0) {
        mill_jitter_close(jitter);
        return mill_fail(report, r, "the kernel refused the program: %s; %s", strerror(-r),
                         r == -EPERM || r == -EACCES
                             ? "it needs CAP_BPF and CAP_PERFMON: start as root"
                             : "it needs BTF and the tracepoints sched_switch and sched_wakeup "
                               "(Linux 5.18 or later)");
    }
    *ret_jitter = jitter;
    return 0;
}

void mill_jitter_close(struct mill_jitter *jitter)
{
    if (jitter) {
        mill_jitter_bpf__destroy(jitter->programs);
        free(jitter);
    }
}

/* Vectors as the kernel numbers them (include/linux/interrupt.h). */
static void name_softirq(uint32_t vector, char ret_name[MILL_JITTER_NAME_BYTES])
{
    static const char *const names[] = {"hi",       "timer",   "net tx", "net rx",  "block",
                                        "irq poll", "tasklet", "sched",  "hrtimer", "rcu"};
    snprintf(ret_name, MILL_JITTER_NAME_BYTES, "%s",
             vector < MILL_COUNT_OF(names) ? names[vector] : "?");
}

void mill_jitter_take(struct mill_jitter *jitter, mill_jitter_taken_fn taken, void *context)
{
    struct mill_jitter_taker takers[BATCH];
    struct mill_jitter_taken values[BATCH];
    int map = bpf_map__fd(jitter->programs->maps.jitter_takers);
    uint32_t at = 0;
    bool first = true;
    for (uint32_t left = MILL_JITTER_TAKERS_MAX; left > 0;
         left -= MILL_MIN(left, (uint32_t)BATCH)) {
        uint32_t count = BATCH;
        /* A taker that is charged while it is removed loses that one charge. */
        int r = bpf_map_lookup_and_delete_batch(map, first ? NULL : &at, &at, takers, values,
                                                &count, NULL);
        if (r < 0 && r != -ENOENT) {
            return;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (takers[i].kind == MILL_JITTER_SOFTIRQ) {
                name_softirq(takers[i].id, values[i].name);
            }
            values[i].name[MILL_JITTER_NAME_BYTES - 1] = '\0';
            taken(context, &takers[i], &values[i]);
        }
        if (r == -ENOENT) {
            return; /* the last batch */
        }
        first = false;
    }
}

bool mill_jitter_totals(const struct mill_jitter *jitter, uint32_t cpu,
                        struct mill_jitter_totals *ret_totals)
{
    struct mill_jitter_cpu state;
    if (bpf_map__lookup_elem(jitter->programs->maps.jitter_cpus, &cpu, sizeof(cpu), &state,
                             sizeof(state), 0) < 0 ||
        state.tid == 0) {
        return false;
    }
    *ret_totals = (struct mill_jitter_totals){.stolen_ns = state.stolen_ns,
                                              .stolen_count = state.stolen_count,
                                              .stolen_max_ns = state.stolen_max_ns,
                                              .table_full = state.table_full};
    return true;
}
