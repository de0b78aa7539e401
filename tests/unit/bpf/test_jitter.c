/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who takes a watched thread's CPU is named with its time, whether the thread was put off,
 * kept waiting after a wake-up, or slept (then nothing was taken). Method: the program in the
 * running kernel; this process plays the core, a child on the same CPU the hog, whose time is
 * compared with what the kernel says that it ran: so others may want the CPU, too. Skipped where
 * the kernel does not permit it. */
#include "tests/unit/test.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpf/jitter_watch.h"

enum {
    RUN_MS = 300,
    HOG_MS = 40,  /* that a hog has to get */
    EDGE_MS = 20, /* one time slice that only one of the two clocks sees */
    LIMIT_S = 20,
    TRIES = 5,
};

static struct mill_jitter *jitter;
static uint32_t cpu;

struct found {
    uint64_t hog_ns;
    uint64_t softirq_ns;
    uint64_t all_ns;
};

static void count(void *context, const struct mill_jitter_taker *taker,
                  const struct mill_jitter_taken *taken)
{
    struct found *found = context;
    assert_int_equal(taker->cpu, cpu);
    assert_true(taken->max_ns <= taken->time_ns && taken->count > 0);
    found->all_ns += taken->time_ns;
    found->hog_ns += strcmp(taken->name, "mill-hog") == 0 ? taken->time_ns : 0;
    found->softirq_ns += taker->kind == MILL_JITTER_SOFTIRQ ? taken->time_ns : 0;
}

static struct found take(void)
{
    struct found found = {0};
    mill_jitter_take(jitter, count, &found);
    return found;
}

static void sleep_ms(uint64_t ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(ms * MILL_NS_PER_MS)}, NULL);
}

/* Runs without a pause; ret: time in gaps, as the thread itself sees them. */
static uint64_t spin(uint64_t ms)
{
    uint64_t last = mill_now_read().mono_ns;
    uint64_t end = last + ms * MILL_NS_PER_MS;
    uint64_t gaps = 0;
    while (last < end) {
        uint64_t now = mill_now_read().mono_ns;
        gaps += now - last > MILL_NS_PER_MS ? now - last : 0;
        last = now;
    }
    return gaps;
}

static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec time;
    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &time), 0);
    return (uint64_t)time.tv_sec * MILL_NS_PER_S + (uint64_t)time.tv_nsec;
}

static pid_t hog_start(void)
{
    pid_t hog = fork();
    assert_true(hog >= 0);
    if (hog == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "mill-hog");
        spin(60000);
        _exit(0);
    }
    return hog;
}

static void hog_end(pid_t hog)
{
    kill(hog, SIGKILL);
    waitpid(hog, NULL, 0);
}

static void test_hog_is_named_with_its_time(void **state)
{
    (void)state;
    pid_t hog = hog_start();
    sleep_ms(20);
    struct mill_jitter_totals before = {0};
    struct mill_jitter_totals after = {0};
    assert_true(mill_jitter_totals(jitter, cpu, &before));
    take();
    uint64_t begun_ns = cpu_ns(hog);
    uint64_t end_ns = mill_now_read().mono_ns + LIMIT_S * MILL_NS_PER_S;
    uint64_t gaps = 0;
    uint64_t ran_ns = 0;
    do {
        gaps += spin(RUN_MS);
        ran_ns = cpu_ns(hog) - begun_ns;
    } while (ran_ns < HOG_MS * MILL_NS_PER_MS && mill_now_read().mono_ns < end_ns);
    struct found found = take();
    assert_true(mill_jitter_totals(jitter, cpu, &after));
    hog_end(hog);
    print_message("the hog ran %llu us, named with %llu us\n", (unsigned long long)ran_ns / 1000,
                  (unsigned long long)found.hog_ns / 1000);
    assert_true(ran_ns >= HOG_MS * MILL_NS_PER_MS);
    /* This thread always wanted the CPU: all that the hog ran was taken. */
    assert_in_range(found.hog_ns, ran_ns - ran_ns / 10 - EDGE_MS * MILL_NS_PER_MS,
                    ran_ns + ran_ns / 10 + EDGE_MS * MILL_NS_PER_MS);
    assert_true(found.hog_ns <= gaps + gaps / 4 + EDGE_MS * MILL_NS_PER_MS);
    assert_true(after.stolen_ns - before.stolen_ns >= found.hog_ns * 9 / 10);
    assert_true(after.stolen_count > before.stolen_count);
    assert_true(after.stolen_max_ns > 0);
}

static void test_sleep_is_not_stolen(void **state)
{
    (void)state;
    uint64_t least_ns = UINT64_MAX;
    /* Others may really keep it waiting when it wakes; of the sleep itself nothing may count. */
    for (int i = 0; i < TRIES && least_ns >= RUN_MS * MILL_NS_PER_MS / 2; i++) {
        take();
        sleep_ms(RUN_MS);
        sleep_ms(1);
        least_ns = MILL_MIN(least_ns, take().all_ns);
    }
    assert_true(least_ns < RUN_MS * MILL_NS_PER_MS / 2);
}

/* Until the process sleeps. */
static void sleeps_wait(pid_t pid)
{
    char path[64];
    char text[256];
    const char *state = NULL;
    uint64_t end_ns = mill_now_read().mono_ns + LIMIT_S * MILL_NS_PER_S;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    do {
        FILE *file = fopen(path, "re");
        state = file && fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
        if (file) {
            fclose(file);
        }
    } while ((!state || strncmp(state, ") S", 3) != 0) && mill_now_read().mono_ns < end_ns);
}

/* Woken, but another does not give way: the wait is the hog's. It becomes a real-time thread while
 * the watched one sleeps, wakes it, and ends before the kernel would take its CPU for others. */
static void test_wait_after_wakeup_is_stolen(void **state)
{
    (void)state;
    struct sched_param fifo = {.sched_priority = 1};
    int status;
    int wake[2];
    char byte;
    assert_int_equal(pipe(wake), 0);
    pid_t hog = fork();
    assert_true(hog >= 0);
    if (hog == 0) {
        prctl(PR_SET_NAME, "mill-hog");
        sleeps_wait(getppid());
        if (sched_setscheduler(0, SCHED_FIFO, &fifo) != 0 || write(wake[1], "w", 1) != 1) {
            _exit(1);
        }
        spin(RUN_MS);
        _exit(0);
    }
    close(wake[1]);
    take();
    assert_true(read(wake[0], &byte, 1) >= 0);
    struct found found = take();
    close(wake[0]);
    waitpid(hog, &status, 0);
    if (status != 0) {
        print_message("no real-time scheduling here\n");
        skip();
    }
    assert_in_range(found.hog_ns, RUN_MS * MILL_NS_PER_MS / 3,
                    (RUN_MS + 5 * EDGE_MS) * MILL_NS_PER_MS); /* it looked for our sleep, too */
}

static int open_watch(void **state)
{
    (void)state;
    struct mill_report report = {""};
    cpu_set_t set;
    cpu = (uint32_t)sched_getcpu();
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        return -1;
    }
    struct mill_jitter_core core = {.cpu = cpu, .tid = (uint32_t)gettid()};
    int r = mill_jitter_open(&core, 1, &jitter, &report);
    if (r == -EPERM || r == -EACCES) {
        print_message("%s\n", report.text);
        exit(77);
    }
    assert_int_equal(r, 0);
    sleep_ms(1); /* a first switch, by which the kernel's name of this thread is learned */
    return 0;
}

static int close_watch(void **state)
{
    (void)state;
    mill_jitter_close(jitter);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hog_is_named_with_its_time),
        cmocka_unit_test(test_sleep_is_not_stolen),
        cmocka_unit_test(test_wait_after_wakeup_is_stolen),
    };
    return cmocka_run_group_tests(tests, open_watch, close_watch);
}
