/* SPDX-License-Identifier: Apache-2.0 */
/* Threads around core_step and store_step; see thread.h. */
#include "dataplane/core/thread.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <immintrin.h>

#include "base/log_line.h"
#include "dataplane/core/alloc_guard.h"
#include "dataplane/core/idle.h"

enum {
    PUBLISH_NS = 10000000,
    WORKER_LOOK_NS = 100000,
    STALL_NS = 10000000, /* no turn for so long: somebody else has the CPU */
    PAUSES = 32,
    BROKEN_TURNS = 1000, /* mutants misbehave once in so many turns */
};

static int pin(uint32_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* The main thread takes the signals; the drivers' own (TAP, O_ASYNC) go there too. */
static int start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int r = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -r;
}

/* --- cores ----------------------------------------------------------------------------------- */

static uint64_t sleep_limit(const struct mill_core_thread *thread, const struct mill_idle *idle,
                            uint64_t now)
{
    uint64_t at = mill_core_deadline(thread->core);
    uint64_t limit = at == MILL_NEVER ? MILL_NEVER : at - MILL_MIN(at, now);
    return MILL_MIN(limit, mill_idle_sleep_ns(idle, now));
}

static void tx_done(struct mill_core_thread *thread)
{
    for (uint32_t i = 0; i < thread->ports_count; i++) {
        mill_port_tx_done(thread->ports[i], thread->queues[i]);
    }
}

/* Whether the look after "asleep" was published finds something, or a stop. A producer that saw us
 * awake just before rings no bell, so this look is what keeps its message from waiting. */
static bool second_look(struct mill_core_thread *thread, struct mill_now now)
{
    bool found = atomic_load_explicit(&thread->stop, memory_order_relaxed);
#ifndef MILL_MUTANT_CORE_NO_SECOND_LOOK
    found = mill_core_step(thread->core, now) > 0 || found;
#endif
    MILL_UNUSED(now);
    return found;
}

/* ret: nanoseconds slept, 0 when not; ret_found: the last look found something. */
static uint64_t nap(struct mill_core_thread *thread, const struct mill_idle *idle, bool *ret_found)
{
    struct mill_core *core = thread->core;
    struct mill_now now = mill_now_read();
    tx_done(thread);
    mill_core_publish(core, now);
    atomic_store_explicit(&thread->ready, mill_core_ready(core), memory_order_release);
    mill_bell_asleep(&thread->bell);
    uint64_t slept = 0;
    uint64_t end_ns = 0;
    *ret_found = second_look(thread, now);
    if (!*ret_found) {
        uint64_t limit = sleep_limit(thread, idle, now.mono_ns);
#ifdef MILL_MUTANT_CORE_TICK
        limit = MILL_MIN(limit, (uint64_t)MILL_NS_PER_MS);
#endif
        if (limit > 0) {
            mill_map_reader_state(mill_core_map(core), mill_core_index(core), false);
            int r = mill_ksock_wait(thread->ksock, limit);
            MILL_UNUSED(r); /* a failed wait is a short one: the loop looks again */
            mill_map_reader_state(mill_core_map(core), mill_core_index(core), true);
            end_ns = mill_now_read().mono_ns;
            slept = end_ns - now.mono_ns;
        }
    }
    mill_bell_awake(&thread->bell);
    uint64_t rung_ns = mill_bell_rung(&thread->bell);
    if (slept > 0 && rung_ns > 0) {
        mill_hist_add(&thread->shared->wake, end_ns - MILL_MIN(rung_ns, end_ns));
    }
    return slept;
}

/* What a turn must never do, for builds that show how the tests of it fail. */
static inline void turn_broken(uint64_t turn)
{
    MILL_UNUSED(turn);
#ifdef MILL_MUTANT_CORE_ONE_SYSCALL
    if (turn % BROKEN_TURNS == 0) {
        (void)getppid();
    }
#endif
#ifdef MILL_MUTANT_CORE_ALLOCATES
    if (turn % BROKEN_TURNS == 0) {
        void *volatile memory = malloc(1);
        free(memory);
    }
#endif
}

/* Awake since awake_ns without a turn ended. */
static inline void stall_look(struct mill_core *core, uint64_t awake_ns, uint64_t now_ns)
{
#ifndef MILL_MUTANT_CORE_STALL_UNCOUNTED
    if (MILL_UNLIKELY(now_ns - awake_ns >= STALL_NS)) {
        mill_core_stalled(core, now_ns - awake_ns);
    }
#else
    MILL_UNUSED(core);
    MILL_UNUSED(awake_ns);
    MILL_UNUSED(now_ns);
#endif
}

/* What a core's loop carries from turn to turn. */
struct loop {
    struct mill_core_thread *thread;
    struct mill_idle idle;
    struct mill_now now;   /* begin of the next turn */
    uint64_t published_ns; /* counters */
    uint64_t awake_ns;     /* end of the last turn or sleep */
    uint64_t turns;
    bool slept; /* just before this turn */
};

/* Counters others read, now and then. */
static void publish(struct loop *loop)
{
    struct mill_core_thread *thread = loop->thread;
    if (loop->now.mono_ns - loop->published_ns <= PUBLISH_NS) {
        return;
    }
    mill_core_publish(thread->core, loop->now);
    atomic_store_explicit(&thread->ready, mill_core_ready(thread->core), memory_order_release);
    loop->published_ns = loop->now.mono_ns;
    if (thread->busy) {
        tx_done(thread); /* it never naps, and a card may hold what it was sent */
    }
}

/* ret: whether there was anything to do. */
static bool turn(struct loop *loop)
{
    struct mill_core_thread *thread = loop->thread;
    uint64_t begin_ns = loop->now.mono_ns;
    turn_broken(loop->turns++);
    if (atomic_load_explicit(&thread->stop, memory_order_acquire)) {
        mill_core_stop(thread->core);
    }
    bool worked = mill_core_step(thread->core, loop->now) > 0;
    loop->now = mill_now_read();
    stall_look(thread->core, loop->awake_ns, loop->now.mono_ns);
    loop->awake_ns = loop->now.mono_ns;
    if (worked) {
        mill_core_time(thread->core, loop->now.mono_ns - begin_ns, 0);
        mill_idle_worked(&loop->idle, begin_ns, loop->now.mono_ns);
        if (loop->slept) {
            atomic_store_explicit(&thread->shared->woken_ns, begin_ns, memory_order_relaxed);
        }
    }
    loop->slept = false;
    return worked;
}

/* After a turn without work. */
static void idle(struct loop *loop)
{
    enum mill_idle_step step = mill_idle_look(&loop->idle, loop->now.mono_ns);
    if (step == MILL_IDLE_LOOK) {
        return;
    }
    if (step == MILL_IDLE_PAUSE) {
        for (int i = 0; i < PAUSES; i++) {
            _mm_pause();
        }
        loop->now = mill_now_read();
        return;
    }
    bool found = false;
    uint64_t slept_ns = nap(loop->thread, &loop->idle, &found);
    mill_core_time(loop->thread->core, 0, slept_ns);
    loop->slept = slept_ns > 0;
    loop->now = mill_now_read();
    loop->awake_ns = loop->now.mono_ns;
    if (found) {
        mill_idle_worked(&loop->idle, loop->now.mono_ns, loop->now.mono_ns);
    }
}

static void *core_run(void *argument)
{
    struct mill_core_thread *thread = argument;
    struct mill_core *core = thread->core;
    struct loop loop = {.thread = thread, .now = mill_now_read()};
    if (pin(thread->cpu) < 0) {
        mill_log_line(MILL_LEVEL_WARN, "core.not-pinned", "cpu=%u", thread->cpu);
    }
    atomic_store_explicit(&thread->shared->cpu, thread->cpu, memory_order_relaxed);
    atomic_store_explicit(&thread->shared->tid, (uint32_t)gettid(), memory_order_relaxed);
    bool registered = thread->ports_count > 0 && mill_port_thread_register() == 0;
    mill_map_reader_state(mill_core_map(core), mill_core_index(core), true);
    loop.published_ns = loop.now.mono_ns;
    loop.awake_ns = loop.now.mono_ns;
    mill_idle_init(&loop.idle, thread->busy, thread->nap_bounded, loop.now.mono_ns);
    mill_alloc_guard_begin();
    while (!mill_core_stopped(core)) {
#ifdef MILL_MUTANT_CORE_LOST_CPU
        if (sched_getcpu() != (int)thread->cpu) {
            continue;
        }
#endif
        bool worked = turn(&loop);
        publish(&loop);
        if (!worked) {
            idle(&loop);
        }
    }
    mill_alloc_guard_end();
    mill_core_publish(core, loop.now);
    mill_map_reader_state(mill_core_map(core), mill_core_index(core), false);
    if (registered) {
        mill_port_thread_unregister();
    }
    atomic_store_explicit(&thread->done, true, memory_order_release);
    return NULL;
}

int mill_core_thread_start(struct mill_core_thread *thread)
{
    return start(&thread->thread, core_run, thread);
}

void mill_core_thread_stop(struct mill_core_thread *thread)
{
    atomic_store_explicit(&thread->stop, true, memory_order_release);
    mill_bell_ring(&thread->bell);
}

void mill_core_thread_join(struct mill_core_thread *thread)
{
    pthread_join(thread->thread, NULL);
}

/* --- stores ---------------------------------------------------------------------------------- */

static void store_sleep(struct mill_store_thread *thread, uint64_t now_ns)
{
    uint64_t at = mill_store_deadline(thread->store);
    uint64_t left = at == MILL_NEVER ? MILL_NEVER : at - MILL_MIN(at, now_ns);
    left = thread->busy ? MILL_MIN(left, (uint64_t)WORKER_LOOK_NS) : left;
    struct timespec limit = {
        .tv_sec = (time_t)(left / MILL_NS_PER_S),
        .tv_nsec = (long)(left % MILL_NS_PER_S),
    };
    struct pollfd fd = {.fd = thread->bell.fd, .events = POLLIN};
    int r = ppoll(&fd, 1, left == MILL_NEVER ? NULL : &limit, NULL);
    MILL_UNUSED(r); /* whatever woke us: look */
}

static void *store_run(void *argument)
{
    struct mill_store_thread *thread = argument;
    while (!atomic_load_explicit(&thread->stop, memory_order_acquire)) {
        struct mill_now now = mill_now_read();
        if (mill_store_step(thread->store, now) > 0) {
            continue;
        }
        if (thread->busy) {
            store_sleep(thread, now.mono_ns);
            continue;
        }
        mill_bell_asleep(&thread->bell);
        if (mill_store_step(thread->store, now) == 0 &&
            !atomic_load_explicit(&thread->stop, memory_order_acquire)) {
            store_sleep(thread, now.mono_ns);
        }
        mill_bell_awake(&thread->bell);
    }
    thread->whole = mill_store_close(thread->store, mill_now_read());
    return NULL;
}

int mill_store_thread_start(struct mill_store_thread *thread)
{
    return start(&thread->thread, store_run, thread);
}

bool mill_store_thread_stop(struct mill_store_thread *thread)
{
    atomic_store_explicit(&thread->stop, true, memory_order_release);
    mill_bell_ring(&thread->bell);
    pthread_join(thread->thread, NULL);
    return thread->whole;
}
