/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the program millrace-control starts from what a supervisor passes, serves, sleeps without
 * cost, looks by itself beside busy cores, ends at SIGTERM whenever it comes, with 0 once it
 * serves, and refuses what can never start with 3. Method: this test is the supervisor: shared
 * memory in memfds, MILLRACE_FDS, fork and exec. No wait is without an end: one that lasts too long
 * tells where the process stands. */
#include "tests/unit/control/fake_core.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
    WAIT_STEP_US = 1000,
    SERVING_STEPS = 20000, /* a sanitizer on a busy machine takes seconds for a start */
    END_STEPS = 60000,
    MOMENTS = 40,            /* at which SIGTERM comes, in the time that a start takes */
    MOMENTS_SERVING = 40,    /* the same, behind the word that it serves */
    MOMENT_SERVING_US = 250, /* between two of these */
};

struct started {
    char dir[64];
    char config_file[96];
    int ipc;
    int map;
    int counters;
    int bell_control;
    int bell_core;
    struct mill_ipc_segment *segment;
};

static int make_memory(const char *name, uint64_t size_bytes, void **ret_memory)
{
    int fd = memfd_create(name, 0);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size_bytes), 0);
    *ret_memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(*ret_memory != MAP_FAILED);
    return fd;
}

static void prepare(struct started *s, const char *more)
{
    struct mill_map_limits limits = {.size_bytes = FAKE_MAP_BYTES, .topics_max = FAKE_TOPICS_MAX};
    uint64_t ipc_bytes = mill_ipc_bytes(1, FAKE_SCRATCH_BYTES);
    void *memory = NULL;
    snprintf(s->dir, sizeof(s->dir), "/tmp/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->config_file, sizeof(s->config_file), "%s/c.properties", s->dir);
    FILE *file = fopen(s->config_file, "w");
    assert_non_null(file);
    fprintf(file, "node.id=1\nlog.dirs=%s\nmetadata.dir=%s\nhttp.listener=\n%s", s->dir, s->dir,
            more);
    fclose(file);
    s->map = make_memory("map", FAKE_MAP_BYTES, &memory);
    mill_map_format(memory, &limits);
    munmap(memory, FAKE_MAP_BYTES);
    s->ipc = make_memory("ipc", ipc_bytes, &memory);
    s->segment = memory;
    mill_ipc_format(memory, 1, FAKE_SCRATCH_BYTES);
    s->counters = make_memory("counters", mill_counters_bytes(1), &memory);
    mill_counters_format(memory, 1);
    munmap(memory, mill_counters_bytes(1));
    s->bell_control = eventfd(0, EFD_NONBLOCK);
    s->bell_core = eventfd(0, EFD_NONBLOCK);
}

static pid_t start(const struct started *s, bool with_bell)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char fds[128];
        char core[32] = "";
        if (with_bell) {
            snprintf(core, sizeof(core), ",bell.core0=%d", s->bell_core);
        }
        snprintf(fds, sizeof(fds), "ipc=%d,map=%d,counters=%d,bell.control=%d%s", s->ipc, s->map,
                 s->counters, s->bell_control, core);
        setenv(MILL_FDS_VARIABLE, fds, 1);
        execl(getenv("MILL_CONTROL_PROGRAM"), "millrace-control", "--config", s->config_file,
              (char *)NULL);
        _exit(99);
    }
    return child;
}

/* What the kernel knows of a process that does not do what it should. */
static void tell_where(pid_t child)
{
    static const char *const names[] = {"status", "wchan", "syscall", "stack"};
    char path[64];
    char text[2048];
    for (size_t i = 0; i < MILL_COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", child, names[i]);
        FILE *file = fopen(path, "r");
        size_t got = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
        text[got] = '\0';
        fprintf(stderr, "--- %s\n%s\n", path, text);
        if (file) {
            fclose(file);
        }
    }
}

static void give_up(pid_t child, const char *what)
{
    tell_where(child);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    fail_msg("%s", what);
}

/* Until it serves as another one than before. */
static void wait_serving(const struct started *s, pid_t child, uint64_t before)
{
    for (int i = 0; i < SERVING_STEPS; i++) {
        uint64_t incarnation = atomic_load(&s->segment->control.incarnation);
        if (incarnation != before && incarnation != 0 &&
            atomic_load(&s->segment->control.serving) == 1) {
            return;
        }
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        usleep(WAIT_STEP_US);
    }
    give_up(child, "control does not serve");
}

static int end_of(pid_t child)
{
    int status = 0;
    for (int i = 0; i < END_STEPS; i++) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended != 0) {
            assert_int_equal(ended, child);
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
        usleep(WAIT_STEP_US);
    }
    give_up(child, "control does not end");
    return -1;
}

static void clean(struct started *s)
{
    static const char *const names[] = {"c.properties", "millrace.db", "millrace.db-wal",
                                        "millrace.db-shm"};
    char path[128];
    for (size_t i = 0; i < MILL_COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", s->dir, names[i]);
        unlink(path);
    }
    rmdir(s->dir);
    munmap(s->segment, mill_ipc_bytes(1, FAKE_SCRATCH_BYTES));
    close(s->ipc);
    close(s->map);
    close(s->counters);
    close(s->bell_control);
    close(s->bell_core);
}

static void test_main_serves_sleeps_and_ends(void **state)
{
    (void)state;
    struct started s = {0};
    prepare(&s, "");
    pid_t child = start(&s, true);
    wait_serving(&s, child, 0);
    uint64_t first = atomic_load(&s.segment->control.incarnation);
    sleep(2);
    kill(child, SIGKILL);
    struct rusage usage = {0};
    assert_int_equal(wait4(child, NULL, 0, &usage), child);
    /* Start-up and two idle seconds: a loop that spins would have used all of them. */
    assert_int_equal(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec, 0);
    assert_true(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 500000);
    child = start(&s, true);
    wait_serving(&s, child, first);
    kill(child, SIGTERM);
    assert_int_equal(end_of(child), 0);
    assert_int_equal(atomic_load(&s.segment->control.incarnation), 0);
    clean(&s);
}

static uint64_t now_us(void)
{
    return mill_now_read().mono_ns / MILL_NS_PER_US;
}

/* Before the handler is there the signal itself ends the process; none is lost between. */
static void test_main_sigterm_ends_at_any_moment(void **state)
{
    (void)state;
    struct started s = {0};
    prepare(&s, "");
    uint64_t begun_us = now_us();
    pid_t child = start(&s, true);
    wait_serving(&s, child, 0);
    uint64_t start_us = now_us() - begun_us;
    kill(child, SIGTERM);
    assert_int_equal(end_of(child), 0);
    for (uint32_t i = 0; i < MOMENTS; i++) {
        child = start(&s, true);
        usleep((useconds_t)(start_us * i / MOMENTS));
        kill(child, SIGTERM);
        int code = end_of(child);
        assert_true(code == 0 || code == -SIGTERM);
    }
    for (uint32_t i = 0; i < MOMENTS_SERVING; i++) {
        uint64_t before = atomic_load(&s.segment->control.incarnation);
        child = start(&s, true);
        wait_serving(&s, child, before);
        usleep(i * MOMENT_SERVING_US);
        kill(child, SIGTERM);
        assert_int_equal(end_of(child), 0);
        assert_int_equal(atomic_load(&s.segment->control.incarnation), 0);
    }
    clean(&s);
}

/* The core says that it wants ids and rings nothing. ret: milliseconds until the answer was there,
 * -1 never. */
static int ask_silently(struct fake *f)
{
    uint32_t kind = 0;
    uint32_t size_bytes = 0;
    struct mill_event_ids_low *event =
        mill_ring_claim(&f->events, MILL_EVENT_IDS_LOW, sizeof(*event));
    assert_non_null(event);
    *event = (struct mill_event_ids_low){.core_incarnation = f->incarnation};
    mill_ring_publish(&f->events);
    for (int ms = 0; ms < 500; ms++) {
        /* Asleep published for a moment only would cost the core a call now and then. */
        assert_int_equal(atomic_load(&f->segment->control_bell.asleep), 0);
        while (mill_ring_next(&f->commands, &kind, &size_bytes)) {
            mill_ring_release(&f->commands);
            if (kind == MILL_COMMAND_ID_BLOCK) {
                return ms;
            }
        }
        usleep(1000);
    }
    return -1;
}

static void test_main_busy_cores_ring_no_bell(void **state)
{
    (void)state;
    struct started s = {0};
    prepare(&s, "dataplane.idle=busy\n");
    pid_t child = start(&s, true);
    wait_serving(&s, child, 0);
    struct fake f = {.segment = s.segment, .incarnation = FAKE_INCARNATION};
    fake_attach(&f);
    assert_true(ask_silently(&f) >= 0);
    /* Past the time of frequent looks. */
    usleep(1500000);
    assert_true(ask_silently(&f) >= 0);
    assert_true(ask_silently(&f) >= 0);
    kill(child, SIGTERM);
    assert_int_equal(end_of(child), 0);
    clean(&s);
}

static void test_main_permanent_faults_exit_3(void **state)
{
    (void)state;
    struct started s = {0};
    prepare(&s, "");
    assert_int_equal(end_of(start(&s, false)), 3);
    s.segment->magic++;
    assert_int_equal(end_of(start(&s, true)), 3);
    s.segment->magic--;
    char path[128];
    snprintf(path, sizeof(path), "%s/millrace.db", s.dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 500; i++) {
        fputs("not a database ", file);
    }
    fclose(file);
    assert_int_equal(end_of(start(&s, true)), 3);
    clean(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_main_serves_sleeps_and_ends),
        cmocka_unit_test(test_main_sigterm_ends_at_any_moment),
        cmocka_unit_test(test_main_busy_cores_ring_no_bell),
        cmocka_unit_test(test_main_permanent_faults_exit_3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
