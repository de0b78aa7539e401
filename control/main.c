/* SPDX-License-Identifier: Apache-2.0 */
/* The program millrace-control: maps what the supervisor made, opens the store, and steps control
 * whenever its bell rings or its timer is due; beside `busy` cores, which ring no bell, it looks at
 * their rings by itself. HTTP has a thread of its own (http/). With --adopt it makes the metadata
 * of what Kafka left in log.dirs, and ends. Exit 0 after SIGTERM, 3 when it can never start like
 * this, 1 otherwise. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <uv.h>

#include "base/check.h"
#include "base/log_line.h"
#include "control/adopt.h"
#include "control/control.h"
#include "control/http/server.h"
#include "control/meta/data.h"

enum {
    EXIT_PERMANENT = 3,
    TURNS_WITHOUT_LOOK = 64, /* between two looks at signals */
    LOOK_NS = 100000,        /* between two looks at the rings of busy cores */
    LOOK_IDLE_NS = 1000000,  /* the same after a second without a word from them */
    LOOKS_UNTIL_IDLE = 10000,
    HTTP_RETRY_MS = 1000,
};

struct program {
    uv_loop_t loop;
    uv_poll_t bell_poll;
    uv_timer_t timer;
    uv_poll_t look_poll;
    int look_fd;         /* timerfd: the cores are busy and ring no bell; else -1 */
    uint32_t looks_idle; /* looks without work since the last work */
    uv_signal_t term;
    uv_signal_t interrupt;
    struct mill_control *control;
    const struct mill_config *config;
    struct mill_counters *counters;
    struct mill_ipc_segment *segment;
    struct mill_http *http;
    uv_timer_t http_timer; /* another try to listen */
    struct mill_map *map;
    struct mill_bell bell;
    int exit_code;
};

/* Number of a descriptor in MILLRACE_FDS ("ipc=3,map=4,..."). ret: -1 absent. */
static int find_fd(const char *text, const char *name)
{
    size_t length = strlen(name);
    while (text && *text) {
        if (strncmp(text, name, length) == 0 && text[length] == '=') {
            return atoi(text + length + 1);
        }
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return -1;
}

static void *map_fd(const char *fds, const char *name, uint64_t *ret_bytes)
{
    struct stat info;
    int fd = find_fd(fds, name);
    if (fd < 0 || fstat(fd, &info) < 0 || info.st_size <= 0) {
        return NULL;
    }
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *ret_bytes = (uint64_t)info.st_size;
    return memory == MAP_FAILED ? NULL : memory;
}

static void random_bytes(void *context, void *ret_bytes, size_t size_bytes)
{
    MILL_UNUSED(context);
    uint8_t *at = ret_bytes;
    while (size_bytes > 0) {
        ssize_t got = getrandom(at, size_bytes, 0);
        MILL_ASSERT(got > 0 || errno == EINTR);
        at += got > 0 ? got : 0;
        size_bytes -= got > 0 ? (size_t)got : 0;
    }
}

/* --- the loop ----------------------------------------------------------------------------------
 */

static void run_turns(struct program *program);

static void on_bell(uv_poll_t *poll, int status, int events)
{
    MILL_UNUSED(status);
    MILL_UNUSED(events);
    run_turns(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
    run_turns(timer->data);
}

static int look_every(const struct program *program, long interval_ns)
{
    const struct timespec interval = {.tv_nsec = interval_ns};
    const struct itimerspec timer = {.it_interval = interval, .it_value = interval};
    return timerfd_settime(program->look_fd, 0, &timer, NULL) < 0 ? -errno : 0;
}

/* Busy cores: their rings are looked at often while they have something to say, seldom else. A
 * failed change of the interval leaves the old one. */
static void on_look(uv_poll_t *poll, int status, int events)
{
    struct program *program = poll->data;
    uint64_t expirations;
    MILL_UNUSED(status);
    MILL_UNUSED(events);
    if (read(program->look_fd, &expirations, sizeof(expirations)) < 0) {
        return;
    }
    if (mill_control_has_work(program->control)) {
        if (program->looks_idle >= LOOKS_UNTIL_IDLE) {
            (void)look_every(program, LOOK_NS);
        }
        program->looks_idle = 0;
        run_turns(program);
    } else if (program->looks_idle < LOOKS_UNTIL_IDLE &&
               ++program->looks_idle == LOOKS_UNTIL_IDLE) {
        (void)look_every(program, LOOK_IDLE_NS);
    }
}

static void on_signal(uv_signal_t *handle, int number)
{
    MILL_UNUSED(number);
    uv_stop(handle->loop);
}

/* What a core that writes from now on must know. Beside busy cores that is nothing: a bell would
 * cost them a system call, so asleep is never published. */
static void asleep(struct program *program)
{
#ifndef MILL_MUTANT_CONTROL_BUSY_BELL
    if (program->look_fd >= 0) {
        return;
    }
#endif
    mill_bell_asleep(&program->bell);
}

/* Steps until nothing is left, then goes to sleep: asleep is published before the last look, so a
 * core that writes after that look rings. */
static void run_turns(struct program *program)
{
    struct mill_report report = {0};
    uint64_t next_ns = 0;
    mill_bell_awake(&program->bell);
    for (int turn = 0;; turn++) {
        struct mill_now now = mill_now_read();
        int rc = mill_control_step(program->control, &now, &next_ns, &report);
        if (rc < 0) {
            mill_log_line(MILL_LEVEL_ERROR, "control.cannot-start", "%s", report.text);
            bool passes = rc == -ENOSPC || rc == -EIO || rc == -ENOMEM;
            program->exit_code = passes ? 1 : EXIT_PERMANENT;
            uv_stop(&program->loop);
            return;
        }
        if (next_ns > now.mono_ns) {
            asleep(program);
            if (!mill_control_has_work(program->control)) {
                uint64_t wait_ns = next_ns - now.mono_ns;
                uv_timer_start(&program->timer, on_timer,
                               (wait_ns + MILL_NS_PER_MS - 1) / MILL_NS_PER_MS, 0);
                return;
            }
            mill_bell_awake(&program->bell);
        }
        if (turn >= TURNS_WITHOUT_LOOK) {
            uv_timer_start(&program->timer, on_timer, 0, 0);
            return;
        }
    }
}

/* The timer of looks, where cores are busy. ret: 0, negative. */
static int start_looks(struct program *program)
{
    program->look_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (program->look_fd < 0) {
        return -errno;
    }
    program->look_poll.data = program;
    int rc = uv_poll_init(&program->loop, &program->look_poll, program->look_fd);
    if (rc == 0) {
        rc = uv_poll_start(&program->look_poll, UV_READABLE, on_look);
    }
    return rc == 0 ? look_every(program, LOOK_NS) : rc;
}

static int start_loop(struct program *program, bool busy)
{
    program->look_fd = -1;
    int rc = uv_loop_init(&program->loop);
    if (rc == 0) {
        rc = uv_poll_init(&program->loop, &program->bell_poll, program->bell.fd);
    }
    if (rc == 0) {
        program->bell_poll.data = program;
        program->timer.data = program;
        uv_timer_init(&program->loop, &program->timer);
        uv_signal_init(&program->loop, &program->term);
        uv_signal_init(&program->loop, &program->interrupt);
        uv_signal_start(&program->term, on_signal, SIGTERM);
        uv_signal_start(&program->interrupt, on_signal, SIGINT);
        rc = uv_poll_start(&program->bell_poll, UV_READABLE, on_bell);
    }
    if (rc == 0 && busy) {
        rc = start_looks(program);
    }
    return rc;
}

/* --- HTTP --------------------------------------------------------------------------------------
 */

static void on_http_timer(uv_timer_t *timer)
{
    struct program *program = timer->data;
    struct mill_report report = {0};
    if (mill_http_open(program->config, program->counters, program->segment, &program->http,
                       &report) == 0) {
        mill_log_line(MILL_LEVEL_NOTICE, "control.http-listening", "after other tries");
        uv_timer_stop(timer);
    }
}

/* A first start fails where the listener cannot be had, as with any other. One beside a millraced
 * that serves must not: it goes on without, and tries again. ret: exit code, 0 fine. */
static int start_http(struct program *program)
{
    struct mill_report report = {0};
    uv_timer_init(&program->loop, &program->http_timer);
    program->http_timer.data = program;
    if (mill_http_open(program->config, program->counters, program->segment, &program->http,
                       &report) == 0) {
        return 0;
    }
    if (atomic_load_explicit(&program->segment->dataplane.serving, memory_order_acquire) == 0) {
        mill_log_line(MILL_LEVEL_ERROR, "control.cannot-start", "%s", report.text);
        return EXIT_PERMANENT;
    }
    mill_log_line(MILL_LEVEL_WARN, "control.http-not-listening", "%s", report.text);
    uv_timer_start(&program->http_timer, on_http_timer, HTTP_RETRY_MS, HTTP_RETRY_MS);
    return 0;
}

/* --- start -------------------------------------------------------------------------------------
 */

static int fail_start(const char *what, const struct mill_report *report)
{
    mill_log_line(MILL_LEVEL_ERROR, "control.cannot-start", "%s%s%s", what,
                  report && report->text[0] ? ": " : "", report ? report->text : "");
    return EXIT_PERMANENT;
}

MILL_COLD static int open_store(const struct mill_config *config, struct mill_meta *ret_meta,
                                struct mill_report *report)
{
    char file[1024];
    struct stat info;
    const char *dir = mill_config_metadata_dir(config);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
        return mill_fail(report, -errno, "metadata.dir %s cannot be made: %s", dir,
                         strerror(errno));
    }
    int length = snprintf(file, sizeof(file), "%s/millrace.db", dir);
    if (length < 0 || (size_t)length >= sizeof(file)) {
        return mill_fail(report, -ENAMETOOLONG, "metadata.dir is too long a path");
    }
    if (lstat(file, &info) == 0 && S_ISLNK(info.st_mode)) {
        return mill_fail(report, -EPERM,
                         "%s is a symbolic link: let metadata.dir name the folder it points to",
                         file);
    }
    int rc = mill_meta_sqlite_there(file, report);
#ifndef MILL_MUTANT_CONTROL_BEGINS_ANEW
    if (rc == 0) {
        const char *const *dirs = NULL;
        uint32_t count = mill_config_log_dirs(config, &dirs);
        rc = mill_meta_refuse_data(dirs, count, file, report);
    }
#endif
    return rc < 0 ? rc : mill_meta_sqlite_open(file, 0, ret_meta, report);
}

/* Maps what was inherited and opens control on it. ret: exit code, 0 fine. */
static int open_control(struct program *program, const struct mill_config *config)
{
    struct mill_report report = {0};
    struct mill_control_options options = {.config = config, .random = random_bytes};
    const char *fds = getenv(MILL_FDS_VARIABLE);
    int bells[MILL_MAP_CORES_MAX];
    uint64_t map_bytes = 0;
    if (!fds) {
        return fail_start("this program is started by millrace start", NULL);
    }
    options.segment = map_fd(fds, "ipc", &options.segment_bytes);
    void *map = map_fd(fds, "map", &map_bytes);
    program->bell.fd = find_fd(fds, "bell.control");
    if (!options.segment || !map || program->bell.fd < 0) {
        return fail_start("ipc, map or bell.control is missing in " MILL_FDS_VARIABLE, NULL);
    }
    if (mill_ipc_check(options.segment, options.segment_bytes) < 0 ||
        mill_map_open(map, map_bytes, &program->map) < 0) {
        return fail_start("the shared memory is not of this version", NULL);
    }
    uint64_t counters_bytes = 0;
    struct mill_counters *counters = map_fd(fds, "counters", &counters_bytes);
    if (!counters || mill_counters_check(counters, counters_bytes) < 0) {
        return fail_start("counters is missing in " MILL_FDS_VARIABLE ", or of another version",
                          NULL);
    }
    options.shared = &counters->control;
    program->config = config;
    program->counters = counters;
    program->segment = options.segment;
    options.map = program->map;
    for (uint32_t i = 0; i < options.segment->cores_count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "bell.core%u", i);
        bells[i] = find_fd(fds, name);
        if (bells[i] < 0) {
            return fail_start("a core's bell is missing in " MILL_FDS_VARIABLE, NULL);
        }
    }
    options.core_bells = bells;
    program->bell.shared = &options.segment->control_bell;
    int rc = open_store(config, &options.meta, &report);
    if (rc < 0) {
        fail_start("metadata", &report);
        return rc == -ENOSPC || rc == -EIO || rc == -ENOMEM ? 1 : EXIT_PERMANENT;
    }
    if (mill_control_open(&options, &program->control, &report) < 0) {
        mill_meta_close(&options.meta);
        return fail_start("control", &report);
    }
    return 0;
}

static int load_config(int argc, char **argv, struct mill_config **ret_config)
{
    const struct mill_config_fault *faults = NULL;
    if ((argc != 3 && !(argc == 4 && strcmp(argv[3], "--adopt") == 0)) ||
        strcmp(argv[1], "--config") != 0) {
        fprintf(stderr, "usage: millrace-control --config FILE [--adopt]\n");
        return 2;
    }
    int rc = mill_config_load(argv[2], NULL, 0, false, ret_config);
    uint32_t count = mill_config_faults(*ret_config, &faults);
    for (uint32_t i = 0; i < count; i++) {
        if (faults[i].error) {
            mill_log_line(MILL_LEVEL_ERROR, "control.config", "%s:%u: %s: %s", faults[i].file,
                          faults[i].line, faults[i].key, faults[i].text);
        }
    }
    return rc < 0 ? 2 : 0;
}

/* ret: exit code. */
static int adopt(const struct mill_config *config)
{
    struct mill_report report = {0};
    if (mill_adopt(config, &report) < 0) {
        mill_log_line(MILL_LEVEL_ERROR, "control.cannot-adopt", "%s", report.text);
        return 1;
    }
    return 0;
}

/* ThreadSanitizer's runtime (gcc 12's) makes what it keeps of signals at a thread's first blocking
 * call, and loses one that comes meanwhile: this is that call, while SIGTERM still ends us. */
static void settle_sanitizer(void)
{
#if defined(__SANITIZE_THREAD__)
    usleep(1);
#endif
}

int main(int argc, char **argv)
{
    static struct program program;
    struct mill_config *config = NULL;
    pid_t parent = getppid();
    mill_log_setup("millrace-control", MILL_LEVEL_INFO);
    /* The supervisor's end is our end. It may have ended before the call. */
#ifndef MILL_MUTANT_SUPERVISOR_LEAVE_CHILDREN
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (getppid() != parent) {
        return 0;
    }
    settle_sanitizer();
    signal(SIGPIPE, SIG_IGN);
    int code = load_config(argc, argv, &config);
    if (code == 0 && argc == 4) {
        code = adopt(config);
        mill_config_free(config);
        return code;
    }
    if (code == 0) {
        code = open_control(&program, config);
    }
    if (code == 0) {
        bool busy = strcmp(mill_config_text(config, MILL_KEY_DATAPLANE_IDLE), "busy") == 0;
        code = start_loop(&program, busy) == 0 ? start_http(&program)
                                               : fail_start("the event loop cannot be made", NULL);
        if (code == 0) {
            run_turns(&program);
            if (program.exit_code == 0) {
                uv_run(&program.loop, UV_RUN_DEFAULT);
            }
            code = program.exit_code;
        }
        mill_http_close(program.http);
        mill_control_close(program.control);
    }
    mill_map_close(program.map);
    mill_config_free(config);
    return code;
}
