/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who takes a core off its CPU, and for how long.
 *
 * A core's thread is pinned. When it is put off while it could run, or woken while another runs,
 * everything that runs on its CPU until it is back is charged with its time; so are softirqs and
 * interrupts in the core's own time. Nothing is done on CPUs without a core but one look-up.
 *
 * Softirqs that the core's own system calls cause (its loopback sends) run in its time, too, and
 * are charged as softirqs: in that time its code did not run, whoever is to blame. */
#include <linux/bpf.h>

#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/jitter.h"

/* BPF_PROG gives each program a context; tracepoints have arguments that are of no use here. */
#pragma clang diagnostic ignored "-Wunused-parameter"

#define NAME_OF_IDLE "(nobody)"
/* A woken core finds its CPU idle and waits for nothing but the CPU's own waking; longer than this,
 * it was not let in. */
#define IDLE_WAKE_NS 1000000

/* The kernel's types, as far as they are read here; their layout comes from its BTF. */
struct task_struct {
    int pid;
    int tgid;
    char comm[MILL_JITTER_NAME_BYTES];
} __attribute__((preserve_access_index));

struct irqaction {
    const char *name;
} __attribute__((preserve_access_index));

const volatile __u64 pid_ns_device = 0; /* of the loader's PID namespace */
const volatile __u64 pid_ns_inode = 0;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MILL_JITTER_CPUS_MAX);
    __type(key, __u32);
    __type(value, struct mill_jitter_cpu);
} jitter_cpus SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MILL_JITTER_TAKERS_MAX);
    __type(key, struct mill_jitter_taker);
    __type(value, struct mill_jitter_taken);
} jitter_takers SEC(".maps");

/* Kernel's pid of a core's thread to its CPU: wake-ups come from anywhere. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MILL_JITTER_CPUS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} jitter_threads SEC(".maps");

static struct mill_jitter_cpu *cpu_of(__u32 cpu)
{
    struct mill_jitter_cpu *state = bpf_map_lookup_elem(&jitter_cpus, &cpu);

    return state && state->tid ? state : NULL;
}

static struct mill_jitter_taken *taken_of(struct mill_jitter_cpu *state,
                                          const struct mill_jitter_taker *taker)
{
    static const struct mill_jitter_taken none;
    struct mill_jitter_taken *taken = bpf_map_lookup_elem(&jitter_takers, taker);

    if (taken)
        return taken;
    bpf_map_update_elem(&jitter_takers, taker, &none, BPF_NOEXIST);
    taken = bpf_map_lookup_elem(&jitter_takers, taker);
    if (!taken)
        state->table_full++;
    return taken;
}

static struct mill_jitter_taken *charge(struct mill_jitter_cpu *state, __u32 kind, __u32 id,
                                        __u64 time_ns)
{
    struct mill_jitter_taker taker = {bpf_get_smp_processor_id(), kind, id};
    struct mill_jitter_taken *taken = taken_of(state, &taker);

    if (!taken)
        return NULL;
    taken->time_ns += time_ns;
    taken->count++;
    if (time_ns > taken->max_ns)
        taken->max_ns = time_ns;
    return taken;
}

static void add_stolen(struct mill_jitter_cpu *state, __u64 time_ns)
{
    if (!time_ns)
        return;
    state->stolen_ns += time_ns;
    state->stolen_count++;
    if (time_ns > state->stolen_max_ns)
        state->stolen_max_ns = time_ns;
}

/* The thread that runs now may be the core, not seen before. */
static void learn(struct mill_jitter_cpu *state, const struct task_struct *task)
{
    struct bpf_pidns_info ids;
    __u32 cpu = bpf_get_smp_processor_id();
    __u32 pid = (__u32)task->pid;

    if (bpf_get_ns_current_pid_tgid(pid_ns_device, pid_ns_inode, &ids, sizeof(ids)) == 0 &&
        ids.pid == state->tid) {
        state->pid = pid;
        bpf_map_update_elem(&jitter_threads, &pid, &cpu, BPF_ANY);
    }
}

/* prev ran while the core waited. */
static void charge_task(struct mill_jitter_cpu *state, const struct task_struct *prev, __u64 now_ns)
{
    struct mill_jitter_taken *taken;
    __u64 time_ns = now_ns - state->taker_ns;
    bool idle = prev->pid == 0;

    state->taker_ns = now_ns;
    if (idle && state->woken && time_ns < IDLE_WAKE_NS)
        return;
    state->taken_ns += time_ns;
    taken = charge(state, idle ? MILL_JITTER_IDLE : MILL_JITTER_THREAD, (__u32)prev->tgid, time_ns);
    if (!taken)
        return;
    if (idle)
        __builtin_memcpy(taken->name, NAME_OF_IDLE, sizeof(NAME_OF_IDLE));
    else
        bpf_probe_read_kernel_str(taken->name, sizeof(taken->name), prev->comm);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(mill_jitter_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
             unsigned int prev_state)
{
    struct mill_jitter_cpu *state = cpu_of(bpf_get_smp_processor_id());
    __u64 now_ns;

    if (!state)
        return 0;
    if (!state->pid)
        learn(state, prev);
    now_ns = bpf_ktime_get_ns();
    if ((__u32)prev->pid == state->pid && state->pid) {
        /* TASK_RUNNING is 0: it did not go by itself. */
        state->off_ns = prev_state == 0 ? now_ns : 0;
        state->taker_ns = now_ns;
        state->taken_ns = 0;
        state->woken = 0;
        return 0;
    }
    if (!state->off_ns)
        return 0;
    charge_task(state, prev, now_ns);
    if ((__u32)next->pid == state->pid) {
        add_stolen(state, state->taken_ns);
        state->off_ns = 0;
    }
    return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(mill_jitter_wakeup, struct task_struct *task)
{
    __u32 pid = (__u32)task->pid;
    __u32 *cpu = bpf_map_lookup_elem(&jitter_threads, &pid);
    struct mill_jitter_cpu *state = cpu ? cpu_of(*cpu) : NULL;

    if (state && !state->off_ns) {
        __u64 now_ns = bpf_ktime_get_ns();

        state->taker_ns = now_ns;
        state->taken_ns = 0;
        state->woken = 1;
        state->off_ns = now_ns;
    }
    return 0;
}

/* --- interrupts in the core's own time ----------------------------------------------------------
 */

static struct mill_jitter_cpu *interrupted(void)
{
    struct mill_jitter_cpu *state = cpu_of(bpf_get_smp_processor_id());

    return state && state->pid && (__u32)bpf_get_current_pid_tgid() == state->pid ? state : NULL;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(mill_jitter_softirq_entry, unsigned int vector)
{
    struct mill_jitter_cpu *state = interrupted();

    if (state) {
        state->softirq_ns = bpf_ktime_get_ns();
        state->nested_ns = 0;
    }
    return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(mill_jitter_softirq_exit, unsigned int vector)
{
    struct mill_jitter_cpu *state = interrupted();

    if (state && state->softirq_ns) {
        __u64 time_ns = bpf_ktime_get_ns() - state->softirq_ns - state->nested_ns;

        state->softirq_ns = 0;
        charge(state, MILL_JITTER_SOFTIRQ, vector, time_ns);
        add_stolen(state, time_ns);
    }
    return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(mill_jitter_irq_entry, int irq, struct irqaction *action)
{
    struct mill_jitter_cpu *state = interrupted();

    if (state)
        state->irq_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(mill_jitter_irq_exit, int irq, struct irqaction *action, int ret)
{
    struct mill_jitter_cpu *state = interrupted();
    struct mill_jitter_taken *taken;
    __u64 time_ns;

    if (!state || !state->irq_ns)
        return 0;
    time_ns = bpf_ktime_get_ns() - state->irq_ns;
    state->irq_ns = 0;
    state->nested_ns += time_ns;
    taken = charge(state, MILL_JITTER_IRQ, (__u32)irq, time_ns);
    if (taken)
        bpf_probe_read_kernel_str(taken->name, sizeof(taken->name), action->name);
    add_stolen(state, time_ns);
    return 0;
}

/* sched_switch's tracepoint may be read by programs under the GPL only. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
