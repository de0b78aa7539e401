/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: helpers bring every job back once, keep threads free for syncs while reads and drops block,
 * and end only when all is done. Method: jobs that wait for the test. */
#include "tests/unit/test.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/store/helpers.h"

enum {
    THREADS = 8,
    JOBS = 500,
};

struct job {
    struct mill_helper_job helper;
    sem_t *gate;  /* NULL: none */
    sem_t *begun; /* NULL: none */
    _Atomic uint32_t runs;
    uint32_t taken;
};

static struct mill_bell_shared bell_shared;
static struct mill_bell bell;
static struct mill_helpers *helpers;
static sem_t begun; /* jobs that wait at their gate */

static void run(struct mill_helper_job *helper)
{
    struct job *job = MILL_CONTAINER_OF(helper, struct job, helper);
    if (job->gate) {
        sem_post(job->begun);
        while (sem_wait(job->gate) < 0) {
        }
    }
    atomic_fetch_add(&job->runs, 1);
}

static void make(uint32_t count)
{
    sem_init(&begun, 0, 0); /* the test before left some */
    bell = (struct mill_bell){.shared = &bell_shared, .fd = eventfd(0, EFD_NONBLOCK)};
    assert_true(bell.fd >= 0);
    assert_int_equal(mill_helpers_create(count, &bell, &helpers), 0);
}

static void give(struct job *job, enum mill_helper_kind kind, sem_t *gate)
{
    *job = (struct job){.helper = {.kind = kind, .run = run}, .gate = gate, .begun = &begun};
    mill_helpers_give(helpers, &job->helper);
}

static void take_one(struct mill_helper_job *helper)
{
    struct job *job = MILL_CONTAINER_OF(helper, struct job, helper);
    assert_int_equal(atomic_load(&job->runs), 1);
    job->taken++;
}

static void each_comes_back_once(uint32_t count)
{
    static struct job jobs[JOBS];
    make(count);
    for (uint32_t i = 0; i < JOBS; i++) {
        give(&jobs[i], (enum mill_helper_kind)(i % MILL_HELPER_KIND_COUNT), NULL);
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        struct mill_helper_job *helper = mill_helpers_wait(helpers);
        assert_non_null(helper);
        take_one(helper);
    }
    assert_null(mill_helpers_wait(helpers));
    assert_null(mill_helpers_take(helpers));
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i].taken, 1);
    }
    mill_helpers_destroy(helpers);
    close(bell.fd);
}

static void test_each_job_comes_back_once(void **state)
{
    MILL_UNUSED(state);
    each_comes_back_once(THREADS);
    each_comes_back_once(1);
    each_comes_back_once(0);
}

static void test_blocked_reads_and_drops_hold_up_no_sync(void **state)
{
    MILL_UNUSED(state);
    static struct job slow[4 * THREADS];
    static struct job syncs[THREADS];
    sem_t gate;
    sem_init(&gate, 0, 0);
    make(THREADS);
    for (uint32_t i = 0; i < MILL_COUNT_OF(slow); i++) {
        give(&slow[i], i % 2 ? MILL_HELPER_READ : MILL_HELPER_DROP, &gate);
    }
    for (uint32_t i = 0; i < THREADS / 2 + THREADS / 4; i++) {
        while (sem_wait(&begun) < 0) {
        }
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* for those too many */
    for (uint32_t i = 0; i < MILL_COUNT_OF(syncs); i++) {
        give(&syncs[i], MILL_HELPER_SYNC, NULL);
    }
    alarm(60); /* they never come back when every thread is taken */
    for (uint32_t i = 0; i < MILL_COUNT_OF(syncs); i++) {
        take_one(mill_helpers_wait(helpers));
    }
    alarm(0);
    for (uint32_t i = 0; i < MILL_COUNT_OF(syncs); i++) {
        assert_int_equal(syncs[i].taken, 1);
    }
    for (uint32_t i = 0; i < MILL_COUNT_OF(slow); i++) {
        sem_post(&gate);
    }
    for (uint32_t i = 0; i < MILL_COUNT_OF(slow); i++) {
        take_one(mill_helpers_wait(helpers));
    }
    mill_helpers_destroy(helpers);
    sem_destroy(&gate);
    close(bell.fd);
}

/* Each begins before any has ended. */
static void test_syncs_run_side_by_side(void **state)
{
    MILL_UNUSED(state);
    static struct job syncs[THREADS];
    sem_t gate;
    sem_init(&gate, 0, 0);
    make(THREADS);
    for (uint32_t i = 0; i < MILL_COUNT_OF(syncs); i++) {
        give(&syncs[i], MILL_HELPER_SYNC, &gate);
    }
    alarm(60); /* they never begin when one waits for the other */
    for (uint32_t i = 0; i < MILL_COUNT_OF(syncs); i++) {
        while (sem_wait(&begun) < 0) {
        }
    }
    alarm(0);
    for (uint32_t i = 0; i < MILL_COUNT_OF(syncs); i++) {
        sem_post(&gate);
    }
    for (uint32_t i = 0; i < MILL_COUNT_OF(syncs); i++) {
        take_one(mill_helpers_wait(helpers));
    }
    mill_helpers_destroy(helpers);
    sem_destroy(&gate);
    close(bell.fd);
}

static void test_end_waits_for_all(void **state)
{
    MILL_UNUSED(state);
    static struct job jobs[JOBS];
    make(2);
    for (uint32_t i = 0; i < JOBS; i++) {
        give(&jobs[i], MILL_HELPER_SYNC, NULL);
    }
    mill_helpers_destroy(helpers);
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(atomic_load(&jobs[i].runs), 1);
    }
    close(bell.fd);
    assert_int_equal(mill_helpers_create(MILL_HELPERS_MAX + 1, &bell, &helpers), -EINVAL);
}

static void test_sleeper_is_rung(void **state)
{
    MILL_UNUSED(state);
    struct job job;
    sem_t gate;
    sem_init(&gate, 0, 0);
    make(2);
    mill_bell_asleep(&bell);
    give(&job, MILL_HELPER_READ, &gate);
    assert_null(mill_helpers_take(helpers));
    sem_post(&gate);
    uint64_t rung = 0;
    for (uint32_t i = 0; i < 10000 && read(bell.fd, &rung, sizeof(rung)) < 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_true(rung > 0);
    mill_bell_awake(&bell);
    take_one(mill_helpers_take(helpers));
    mill_helpers_destroy(helpers);
    sem_destroy(&gate);
    close(bell.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_job_comes_back_once),
        cmocka_unit_test(test_blocked_reads_and_drops_hold_up_no_sync),
        cmocka_unit_test(test_syncs_run_side_by_side),
        cmocka_unit_test(test_end_waits_for_all),
        cmocka_unit_test(test_sleeper_is_rung),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
