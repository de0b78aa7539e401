/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's run: prepare, start, watch, stop. See supervisor.h for the order. */
#include "supervisor/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_line.h"

enum {
    CHILDREN = 2,
    DATAPLANE = 0,
    CONTROL = 1,
    /* A child may write the ready eventfd; one that does not is looked at this often, but only
     * until it serves. */
    LOOK_MS = 20,
    READY_LINE_BYTES = 1280,
};

enum phase {
    PHASE_RUN,
    PHASE_STOP_DATAPLANE,
    PHASE_STOP_CONTROL,
    PHASE_END,
};

struct supervisor {
    const struct mill_supervisor_options *options;
    const struct mill_config *config;
    struct mill_report *report;
    struct locks locks;
    struct segments segments;
    struct child children[CHILDREN];
    int signals_fd;
    int pages_lock; /* until millraced has its memory */
    enum phase phase;
    bool told_ready;
    int code;             /* exit code so far */
    uint64_t deadline_ns; /* of a stop's step */
    int ready_fd;
};

/* --- prepare ------------------------------------------------------------------------------------
 */

static int signals_open(struct mill_report *report)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return mill_fail(report, -errno, "cannot block signals: %s", strerror(errno));
    }
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? mill_fail(report, -errno, "cannot make a signalfd: %s", strerror(errno)) : fd;
}

/* In the background, what we and the children say goes to run.dir/log. */
static int redirect(const struct mill_config *config, int ready_fd, struct mill_report *report)
{
    char path[SUPERVISOR_PATH_BYTES];
    rundir_path(config, "log", path);
    int log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0) {
        return mill_fail(report, -errno, "cannot write to %s: %s", path, strerror(errno));
    }
    close(log);
    close(null);
    if (ready_fd >= 0 && write(ready_fd, "+", 1) < 0) {
        return mill_fail(report, -errno, "nobody waits for this start: %s", strerror(errno));
    }
    return 0;
}

/* Has control make the metadata of what Kafka left, under our locks and before anything else runs.
 */
static int adopt(const struct supervisor *supervisor, char *properties)
{
    char adopt_word[] = "--adopt";
    char config_word[] = "--config";
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {strdup(supervisor->options->control), config_word, properties,
                             adopt_word, NULL};
        execv(supervisor->options->control, arguments);
        fprintf(stderr, "millrace-supervisor: cannot run %s: %s; is it installed?\n",
                supervisor->options->control, strerror(errno));
        _exit(MILL_EXIT_PERMANENT);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid < 0 || status != 0) {
        return mill_fail(supervisor->report, -EIO,
                         "nothing was adopted and nothing changed; the reason stands above");
    }
    return 0;
}

static int prepare(struct supervisor *supervisor)
{
    const struct mill_config *config = supervisor->config;
    struct mill_report *report = supervisor->report;
    char path[SUPERVISOR_PATH_BYTES];
    char pid[16];
    int r = locks_take(config, &supervisor->locks, report);
    if (r < 0) {
        return r;
    }
    rundir_path(config, "ready", path);
    unlink(path); /* of a killed predecessor */
    r = supervisor->options->detached ? redirect(config, supervisor->ready_fd, report) : 0;
    if (r < 0) {
        return r;
    }
    snprintf(pid, sizeof(pid), "%d\n", getpid());
    r = rundir_write(config, "supervisor.pid", pid, 0644);
    if (r < 0) {
        return mill_fail(report, r, "cannot write in %s: %s", mill_config_run_dir(config),
                         strerror(-r));
    }
    rundir_path(config, "effective.properties", path);
    r = mill_config_write(config, path);
    if (r < 0) {
        return mill_fail(report, r, "cannot write %s: %s", path, strerror(-r));
    }
    r = supervisor->options->adopt ? adopt(supervisor, path) : 0;
    if (r < 0) {
        return r;
    }
    r = pages_prepare(config, &supervisor->pages_lock, report);
    r = r < 0 ? r : segments_make(config, &supervisor->segments, report);
    if (r < 0) {
        return r;
    }
    supervisor->signals_fd = signals_open(report);
    return MILL_MIN(supervisor->signals_fd, 0);
}

/* --- stop ---------------------------------------------------------------------------------------
 */

static uint64_t now_ns(void)
{
    return mill_now_read().mono_ns;
}

/* The data plane stops first: it writes out what only the arena holds, and may still ask control.
 */
static void stop_begin(struct supervisor *supervisor, int code)
{
    if (supervisor->phase != PHASE_RUN) {
        return;
    }
    supervisor->code = code;
    supervisor->phase = PHASE_STOP_DATAPLANE;
    struct child *child = &supervisor->children[DATAPLANE];
    if (child->pid) {
        kill(child->pid, SIGTERM);
    }
    supervisor->deadline_ns = now_ns() + supervisor->options->dataplane_stop_ms * MILL_NS_PER_MS;
}

/* Moves on when the child of this step is gone, and kills it when it takes too long. */
static void stop_step(struct supervisor *supervisor)
{
    bool dataplane = supervisor->phase == PHASE_STOP_DATAPLANE;
    struct child *child = &supervisor->children[dataplane ? DATAPLANE : CONTROL];
    if (child->pid) {
        if (now_ns() >= supervisor->deadline_ns) {
            mill_log_line(MILL_LEVEL_ERROR, "supervisor.stop-killed",
                          "did not end in time, killed child=%s pid=%d", child->name, child->pid);
            kill(child->pid, SIGKILL);
            supervisor->deadline_ns = MILL_NEVER;
            mill_fail(supervisor->report, -ETIMEDOUT, "%s did not end in time and was killed",
                      child->name);
            supervisor->code = MILL_EXIT_FAILED;
        }
        return;
    }
    if (!dataplane) {
        supervisor->phase = PHASE_END;
        return;
    }
    supervisor->phase = PHASE_STOP_CONTROL;
    supervisor->deadline_ns = now_ns() + supervisor->options->control_stop_ms * MILL_NS_PER_MS;
    child = &supervisor->children[CONTROL];
    if (child->pid) {
        kill(child->pid, SIGTERM);
    } else {
        supervisor->phase = PHASE_END;
    }
}

/* --- watch --------------------------------------------------------------------------------------
 */

static void child_gone(struct supervisor *supervisor, struct child *child, int status)
{
    char how[64];
    child_status_text(status, how, sizeof(how));
    if (supervisor->phase != PHASE_RUN) {
        child->pid = 0;
        if (status != 0 && supervisor->code == 0) {
            mill_fail(supervisor->report, -EIO, "%s ended with %s during the stop", child->name,
                      how);
            supervisor->code = MILL_EXIT_FAILED;
        }
        return;
    }
    bool was_ready = child->ready;
    enum child_verdict verdict = child_died(child, status, supervisor->options, now_ns());
    mill_log_line(
        MILL_LEVEL_ERROR, "supervisor.child-died", "child=%s end=\"%s\" %s", child->name, how,
        verdict == CHILD_RESTART ? (was_ready ? "restart=now" : "restart=later") : "restart=no");
    if (verdict == CHILD_PERMANENT) {
        mill_fail(
            supervisor->report, -EIO,
            "%s could not start and says that another try is useless; its reason stands above",
            child->name);
    } else if (verdict == CHILD_HOPELESS) {
        mill_fail(supervisor->report, -EIO,
                  "%s died %u times in a row before it could serve (last: %s); its reasons stand "
                  "above",
                  child->name, child->deaths, how);
    }
    if (verdict != CHILD_RESTART) {
        stop_begin(supervisor, MILL_EXIT_FAILED);
    }
}

static void children_collect(struct supervisor *supervisor)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (uint32_t i = 0; i < CHILDREN; i++) {
            if (supervisor->children[i].pid == pid) {
                child_gone(supervisor, &supervisor->children[i], status);
            }
        }
    }
}

static void children_start(struct supervisor *supervisor)
{
    for (uint32_t i = 0; i < CHILDREN && supervisor->phase == PHASE_RUN; i++) {
        struct child *child = &supervisor->children[i];
        if (child->pid == 0 && now_ns() >= child->start_at_ns &&
            child_start(child, supervisor->config, &supervisor->segments, supervisor->report) < 0) {
            stop_begin(supervisor, MILL_EXIT_FAILED);
        }
    }
}

/* "millrace: ready NAME=ADDRESS:PORT ..." of the listeners that serve. */
static void ready_line(const struct mill_counters *counters, char line[READY_LINE_BYTES])
{
    size_t used = (size_t)snprintf(line, READY_LINE_BYTES, "millrace: ready");
    uint32_t count = counters->listeners_count;
#ifdef MILL_MUTANT_SUPERVISOR_READY_FIRST
    count = 1;
#endif
    for (uint32_t i = 0; i < count && i < MILL_MAP_LISTENERS_MAX; i++) {
        const struct mill_shared_listener_info *info = &counters->listeners[i];
        if (strcmp(info->state, "serving") == 0 && used < READY_LINE_BYTES) {
            int more =
                snprintf(line + used, READY_LINE_BYTES - used, " %s=%s", info->name, info->address);
            used += (size_t)MILL_MAX(more, 0);
        }
    }
    snprintf(line + MILL_MIN(used, (size_t)READY_LINE_BYTES - 2), 2, "\n");
}

static void tell_ready(struct supervisor *supervisor)
{
    char line[READY_LINE_BYTES];
    ready_line(supervisor->segments.counters, line);
    int r = rundir_write(supervisor->config, "ready", line, 0644);
    if (r < 0) {
        mill_log_line(MILL_LEVEL_WARN, "supervisor.ready-file", "cannot write reason=%s",
                      strerror(-r));
    }
    ssize_t done = write(STDOUT_FILENO, line, strlen(line));
    if (supervisor->ready_fd >= 0) {
        done = write(supervisor->ready_fd, line, strlen(line));
        close(supervisor->ready_fd);
        supervisor->ready_fd = -1;
    }
    MILL_UNUSED(done); /* a closed standard output is no reason to stop serving */
    supervisor->told_ready = true;
}

static void children_look(struct supervisor *supervisor)
{
    bool all = true;
    for (uint32_t i = 0; i < CHILDREN; i++) {
        struct child *child = &supervisor->children[i];
        if (child_look(child)) {
            mill_log_line(MILL_LEVEL_INFO, "supervisor.serving", "child=%s pid=%d", child->name,
                          child->pid);
        }
        all = all && child->ready;
    }
    if (supervisor->children[DATAPLANE].ready) {
        pages_unlock(&supervisor->pages_lock);
    }
    if (all && !supervisor->told_ready) {
        tell_ready(supervisor);
    }
}

static void signals_take(struct supervisor *supervisor)
{
    struct signalfd_siginfo info;
    while (read(supervisor->signals_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP) {
            mill_log_line(MILL_LEVEL_NOTICE, "supervisor.reload",
                          "no setting can be changed while running yet; restart instead");
        } else if (info.ssi_signo != SIGCHLD) {
            mill_log_line(MILL_LEVEL_INFO, "supervisor.stopping", "signal=%u from=%u",
                          info.ssi_signo, info.ssi_pid);
            stop_begin(supervisor, 0);
        }
    }
    children_collect(supervisor);
}

/* Milliseconds until something is due; -1: nothing is, sleep until a signal. */
static int sleep_ms(const struct supervisor *supervisor)
{
    uint64_t now = now_ns();
    uint64_t due = MILL_NEVER;
    for (uint32_t i = 0; i < CHILDREN && supervisor->phase == PHASE_RUN; i++) {
        const struct child *child = &supervisor->children[i];
        if (child->pid == 0) {
            due = MILL_MIN(due, child->start_at_ns);
        } else if (!child->ready) {
            due = MILL_MIN(due, now + LOOK_MS * MILL_NS_PER_MS);
        }
    }
    if (supervisor->phase != PHASE_RUN) {
        due = supervisor->deadline_ns;
    }
    if (due == MILL_NEVER) {
        return -1;
    }
    return due <= now ? 0 : (int)MILL_MIN((due - now) / MILL_NS_PER_MS + 1, 60000ull);
}

static void watch(struct supervisor *supervisor)
{
    children_start(supervisor);
    while (supervisor->phase != PHASE_END) {
        struct pollfd fds[] = {
            {.fd = supervisor->signals_fd, .events = POLLIN},
            {.fd = supervisor->segments.ready_fd, .events = POLLIN},
        };
        int got = poll(fds, MILL_COUNT_OF(fds), sleep_ms(supervisor));
        if (got < 0 && errno != EINTR) {
            mill_fail(supervisor->report, -errno, "poll: %s", strerror(errno));
            stop_begin(supervisor, MILL_EXIT_FAILED);
        }
        uint64_t rings;
        ssize_t taken = read(supervisor->segments.ready_fd, &rings, sizeof(rings));
        MILL_UNUSED(taken); /* only empties it */
        signals_take(supervisor);
        if (supervisor->phase == PHASE_RUN) {
            children_look(supervisor);
            children_start(supervisor);
        } else {
            stop_step(supervisor);
        }
    }
}

int mill_supervisor_run(const struct mill_supervisor_options *options, struct mill_report *report)
{
    struct supervisor supervisor = {
        .options = options,
        .config = options->config,
        .report = report,
        .signals_fd = -1,
        .pages_lock = -1,
        .ready_fd = options->ready_fd,
        .segments = segments_none(),
    };
    int r = prepare(&supervisor);
    if (r == 0) {
        supervisor.children[DATAPLANE] = (struct child){
            .name = "millraced",
            .path = options->dataplane,
            .pid_file = "millraced.pid",
            .side = &supervisor.segments.ipc->dataplane,
        };
        supervisor.children[CONTROL] = (struct child){
            .name = "millrace-control",
            .path = options->control,
            .pid_file = "control.pid",
            .side = &supervisor.segments.ipc->control,
        };
        watch(&supervisor);
    }
    pages_unlock(&supervisor.pages_lock);
    if (supervisor.locks.count > 0) {
        /* Ours to clean: the run directory's lock, the first to be taken, is held. */
        pages_give_back(options->config);
        rundir_clean(options->config);
    }
    segments_close(&supervisor.segments);
    locks_release(&supervisor.locks);
    if (supervisor.signals_fd >= 0) {
        close(supervisor.signals_fd);
    }
    if (supervisor.ready_fd >= 0) {
        close(supervisor.ready_fd);
    }
    return r < 0 ? MILL_EXIT_FAILED : supervisor.code;
}
