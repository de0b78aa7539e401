/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a core's thread sleeps when nothing is to do, wakes for every message, and how long its
 * naps are. Method: the real thread (thread.c) and real rings and bells; the core and the wait in
 * ksock are small ones of this test, that count and note. The producer sends at moments around the
 * one at which the thread falls asleep. */
#include "tests/unit/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "dataplane/core/thread.h"
#include "hugepages/ring.h"

enum {
    RING_BYTES = 4096,
    MESSAGES = 3000,
    LOST_MS = 2000, /* a message that waits so long was forgotten */
    SOON_NS = 4000,
    LATE_NS = 60000, /* more than idle.c's PRICE_NS */
    PUBLISH_NS = 3000,
    DEADLINE_S = 10, /* far, so that no delay of this machine lets it pass before the sleep */
};

/* --- the small core --------------------------------------------------------------------------- */

struct mill_core {
    struct mill_ring in;
    _Atomic uint64_t taken;
    _Atomic uint64_t sleeps;
    _Atomic uint64_t sleep_limit_ns; /* of the newest sleep */
    _Atomic uint64_t sleep_first_ns; /* limit of the first one after work */
    _Atomic uint64_t deadline_ns;
    bool worked;
    bool stopped;
};

uint32_t mill_core_step(struct mill_core *core, struct mill_now now)
{
    uint32_t kind = 0;
    uint32_t size_bytes = 0;
    uint32_t work = 0;
    MILL_UNUSED(now);
    while (mill_ring_next(&core->in, &kind, &size_bytes) != NULL) {
        work++;
    }
    mill_ring_release(&core->in);
    core->worked = core->worked || work > 0;
    atomic_fetch_add(&core->taken, work);
    return work;
}

uint64_t mill_core_deadline(const struct mill_core *core)
{
    return atomic_load(&core->deadline_ns);
}

/* As long as the real one may take: the time in which a message is seen by no look before. */
void mill_core_publish(struct mill_core *core, struct mill_now now)
{
    MILL_UNUSED(core);
    while (mill_now_read().mono_ns - now.mono_ns < PUBLISH_NS) {
    }
}

bool mill_core_ready(const struct mill_core *core)
{
    MILL_UNUSED(core);
    return true;
}

void mill_core_stop(struct mill_core *core)
{
    core->stopped = true;
}

bool mill_core_stopped(const struct mill_core *core)
{
    return core->stopped;
}

void mill_core_time(struct mill_core *core, uint64_t busy_ns, uint64_t asleep_ns)
{
    MILL_UNUSED(core);
    MILL_UNUSED(busy_ns);
    MILL_UNUSED(asleep_ns);
}

void mill_core_stalled(struct mill_core *core, uint64_t stall_ns)
{
    MILL_UNUSED(core);
    MILL_UNUSED(stall_ns);
}

struct mill_map *mill_core_map(struct mill_core *core)
{
    MILL_UNUSED(core);
    return NULL;
}

uint32_t mill_core_index(const struct mill_core *core)
{
    MILL_UNUSED(core);
    return 0;
}

void mill_map_reader_state(struct mill_map *map, uint32_t reader, bool running)
{
    MILL_UNUSED(map);
    MILL_UNUSED(reader);
    MILL_UNUSED(running);
}

/* The wait covers the bell only; ksock's contract tests cover the rest of it. */
struct mill_ksock {
    struct mill_core *core;
    int bell_fd;
};

int mill_ksock_wait(struct mill_ksock *ksock, uint64_t timeout_ns)
{
    struct pollfd fd = {.fd = ksock->bell_fd, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / MILL_NS_PER_S),
                             .tv_nsec = (long)(timeout_ns % MILL_NS_PER_S)};
    atomic_store(&ksock->core->sleep_limit_ns, timeout_ns);
    if (ksock->core->worked) {
        atomic_store(&ksock->core->sleep_first_ns, timeout_ns);
        ksock->core->worked = false;
    }
    atomic_fetch_add(&ksock->core->sleeps, 1);
    return ppoll(&fd, 1, timeout_ns == MILL_NEVER ? NULL : &limit, NULL) < 0 ? -errno : 0;
}

/* No port, no store: thread.c names them. */
int mill_port_thread_register(void)
{
    return -EINVAL;
}

void mill_port_thread_unregister(void)
{
}

void mill_port_tx_done(struct mill_port *port, uint16_t queue)
{
    MILL_UNUSED(port);
    MILL_UNUSED(queue);
}

uint32_t mill_store_step(struct mill_store *store, struct mill_now now)
{
    MILL_UNUSED(store);
    MILL_UNUSED(now);
    return 0;
}

uint64_t mill_store_deadline(const struct mill_store *store)
{
    MILL_UNUSED(store);
    return MILL_NEVER;
}

bool mill_store_close(struct mill_store *store, struct mill_now now)
{
    MILL_UNUSED(store);
    MILL_UNUSED(now);
    return true;
}

/* --- one of them, running --------------------------------------------------------------------- */

struct rig {
    struct mill_core core;
    struct mill_ksock ksock;
    struct mill_core_thread thread;
    struct mill_shared_core *shared;
    struct mill_bell_shared *word;
    struct mill_bell bell; /* the producer's */
    void *memory;
    struct mill_ring out;
};

static void *zeroed(size_t size_bytes)
{
    size_t size = mill_round_up(size_bytes, 4096);
    void *memory = aligned_alloc(4096, size);
    assert_non_null(memory);
    memset(memory, 0, size);
    return memory;
}

/* The producer and the thread meet only where each has a CPU of its own: the scheduler would put a
 * woken thread on its waker's. */
static uint32_t apart(void)
{
    uint32_t last = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) - 1;
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof(first), &first), 0);
    return last;
}

static struct rig *rig_start(bool busy, bool nap_bounded)
{
    struct rig *rig = zeroed(sizeof(*rig));
    rig->shared = zeroed(sizeof(*rig->shared));
    rig->word = zeroed(sizeof(*rig->word));
    rig->memory = zeroed(mill_ring_bytes(RING_BYTES));
    struct mill_ring_shared *ring = mill_ring_format(rig->memory, RING_BYTES);
    assert_int_equal(mill_ring_attach_producer(&rig->out, ring, mill_ring_bytes(RING_BYTES)), 0);
    assert_int_equal(mill_ring_attach_consumer(&rig->core.in, ring, mill_ring_bytes(RING_BYTES)),
                     0);
    rig->bell =
        (struct mill_bell){.shared = rig->word, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    rig->core.deadline_ns = MILL_NEVER;
    rig->ksock = (struct mill_ksock){.core = &rig->core, .bell_fd = rig->bell.fd};
    rig->thread = (struct mill_core_thread){
        .core = &rig->core,
        .ksock = &rig->ksock,
        .bell = rig->bell,
        .shared = rig->shared,
        .cpu = apart(),
        .busy = busy,
        .nap_bounded = nap_bounded,
    };
    assert_int_equal(mill_core_thread_start(&rig->thread), 0);
    return rig;
}

static void rig_end(struct rig *rig)
{
    mill_core_thread_stop(&rig->thread);
    mill_core_thread_join(&rig->thread);
    close(rig->bell.fd);
    free(rig->memory);
    free(rig->word);
    free(rig->shared);
    free(rig);
}

static void send_one(struct rig *rig)
{
    assert_non_null(mill_ring_claim(&rig->out, 1, 8));
    mill_ring_publish(&rig->out);
    mill_bell_ring(&rig->bell);
}

/* ret: false when the messages were not all taken in time. */
static bool taken_wait(struct rig *rig, uint64_t count)
{
    uint64_t end = mill_now_read().mono_ns + LOST_MS * MILL_NS_PER_MS;
    while (atomic_load(&rig->core.taken) < count) {
        if (mill_now_read().mono_ns > end) {
            return false;
        }
    }
    return true;
}

static void sleeps_wait(struct rig *rig, uint64_t count)
{
    uint64_t end = mill_now_read().mono_ns + LOST_MS * MILL_NS_PER_MS;
    while (atomic_load(&rig->core.sleeps) < count) {
        assert_true(mill_now_read().mono_ns < end);
        usleep(100);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_messages_at_the_edge_of_sleep_are_all_taken(void **state)
{
    struct mill_random random = {.state = mill_now_read().mono_ns};
    MILL_UNUSED(state);
    print_message("seed %llu\n", (unsigned long long)random.state);
    struct rig *rig = rig_start(false, false);
    for (uint64_t i = 1; i <= MESSAGES; i++) {
        /* It goes to sleep at once or after a while (idle.h): messages around both moments. */
        uint64_t pause_ns = mill_random_below(&random, i % 2 == 0 ? SOON_NS : LATE_NS);
        uint64_t begun = mill_now_read().mono_ns;
        while (mill_now_read().mono_ns - begun < pause_ns) {
        }
        send_one(rig);
        if (!taken_wait(rig, i)) {
            print_error("message %llu was never taken; %llu sleeps\n", (unsigned long long)i,
                        (unsigned long long)atomic_load(&rig->core.sleeps));
            mill_bell_ring(&rig->bell);
            fail();
        }
    }
    uint64_t sleeps = atomic_load(&rig->core.sleeps);
    uint64_t woken = atomic_load(&rig->shared->wake.count);
    print_message("%d messages, %llu sleeps, %llu rings\n", MESSAGES, (unsigned long long)sleeps,
                  (unsigned long long)rig->bell.rings);
    assert_true(sleeps > MESSAGES / 20);
    assert_true(sleeps < MESSAGES * 2);
    assert_true(woken > 0 && woken <= rig->bell.rings);
    rig_end(rig);
}

static void test_nap_without_descriptor_grows_after_silence(void **state)
{
    MILL_UNUSED(state);
    struct rig *rig = rig_start(false, true);
    send_one(rig);
    assert_true(taken_wait(rig, 1));
    sleeps_wait(rig, atomic_load(&rig->core.sleeps) + 5);
    assert_int_equal(atomic_load(&rig->core.sleep_limit_ns), 500 * MILL_NS_PER_US);
    usleep(1100000);
    sleeps_wait(rig, atomic_load(&rig->core.sleeps) + 2);
    assert_int_equal(atomic_load(&rig->core.sleep_limit_ns), 10 * MILL_NS_PER_MS);
    uint64_t before = atomic_load(&rig->core.sleeps);
    uint64_t begun_ns = mill_now_read().mono_ns;
    usleep(500000);
    uint64_t sleeps = atomic_load(&rig->core.sleeps) - before;
    assert_true(sleeps <= (mill_now_read().mono_ns - begun_ns) / (10 * MILL_NS_PER_MS) + 1);
    send_one(rig);
    assert_true(taken_wait(rig, 2));
    sleeps_wait(rig, atomic_load(&rig->core.sleeps) + 2);
    assert_int_equal(atomic_load(&rig->core.sleep_first_ns), 500 * MILL_NS_PER_US);
    rig_end(rig);
}

static void test_sleep_ends_at_the_deadline(void **state)
{
    MILL_UNUSED(state);
    struct rig *rig = rig_start(false, false);
    sleeps_wait(rig, 1);
    atomic_store(&rig->core.deadline_ns, mill_now_read().mono_ns + DEADLINE_S * MILL_NS_PER_S);
    send_one(rig); /* the thread asks for the deadline when it goes to sleep anew */
    assert_true(taken_wait(rig, 1));
    sleeps_wait(rig, 2);
    assert_true(atomic_load(&rig->core.sleep_limit_ns) <= DEADLINE_S * MILL_NS_PER_S);
    atomic_store(&rig->core.deadline_ns, MILL_NEVER);
    rig_end(rig);
}

static void test_wake_is_measured_from_the_ring(void **state)
{
    MILL_UNUSED(state);
    struct rig *rig = rig_start(false, false);
    sleeps_wait(rig, 1);
    usleep(1000);
    uint64_t sent = mill_now_read().mono_ns;
    send_one(rig);
    assert_true(taken_wait(rig, 1));
    uint64_t taken = mill_now_read().mono_ns;
    sleeps_wait(rig, 2);
    assert_int_equal(atomic_load(&rig->shared->wake.count), 1);
    assert_true(atomic_load(&rig->shared->wake.sum_ns) <= taken - sent);
    uint64_t woken = atomic_load(&rig->shared->woken_ns);
    assert_true(woken >= sent && woken <= taken);
    rig_end(rig);
}

static void test_busy_never_sleeps_and_is_never_rung(void **state)
{
    MILL_UNUSED(state);
    struct rig *rig = rig_start(true, true);
    for (uint64_t i = 1; i <= 100; i++) {
        usleep(500);
        send_one(rig);
        assert_true(taken_wait(rig, i));
    }
    assert_int_equal(atomic_load(&rig->core.sleeps), 0);
    assert_int_equal(rig->bell.rings, 0);
    rig_end(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_at_the_edge_of_sleep_are_all_taken),
        cmocka_unit_test(test_nap_without_descriptor_grows_after_silence),
        cmocka_unit_test(test_sleep_ends_at_the_deadline),
        cmocka_unit_test(test_wake_is_measured_from_the_ring),
        cmocka_unit_test(test_busy_never_sleeps_and_is_never_rung),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
