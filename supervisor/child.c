/* SPDX-License-Identifier: Apache-2.0 */
/* One child process: start, death, readiness, back-off. Knows nothing of what the child does but
 * its side of the ipc segment. */
#include "supervisor/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_line.h"

/* In the new process: everything up to exec. Never returns. */
static void become(const struct child *child, const char *file, const struct segments *segments,
                   const char *variable, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* A terminal's Ctrl-C is for the supervisor, which stops its children in order. */
    setpgid(0, 0);
#ifndef MILL_MUTANT_SUPERVISOR_LEAVE_CHILDREN
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (getppid() != parent) {
        _exit(1); /* the supervisor died before the line above */
    }
    segments_inherit(segments);
    char path[SUPERVISOR_PATH_BYTES];
    char config[SUPERVISOR_PATH_BYTES];
    char option[] = "--config";
    char *arguments[] = {path, option, config, NULL};
    snprintf(path, sizeof(path), "%s", child->path);
    snprintf(config, sizeof(config), "%s", file);
    if (setenv(MILL_FDS_VARIABLE, variable, 1) == 0) {
        execv(child->path, arguments);
    }
    fprintf(stderr, "millrace-supervisor: cannot run %s: %s; is it installed?\n", child->path,
            strerror(errno));
    _exit(MILL_EXIT_PERMANENT);
}

int child_start(struct child *child, const struct mill_config *config,
                const struct segments *segments, struct mill_report *report)
{
    char file[SUPERVISOR_PATH_BYTES];
    char variable[FDS_TEXT_BYTES];
    char pid_text[16];
    rundir_path(config, "effective.properties", file);
    segments_variable(segments, variable);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        return mill_fail(report, -errno, "cannot start %s: %s", child->name, strerror(errno));
    }
    if (pid == 0) {
        become(child, file, segments, variable, parent);
    }
    child->pid = pid;
    child->ready = false;
    snprintf(pid_text, sizeof(pid_text), "%d\n", pid);
    int r = rundir_write(config, child->pid_file, pid_text, 0644);
    if (r < 0) {
        mill_log_line(MILL_LEVEL_WARN, "supervisor.pid-file", "cannot write file=%s reason=%s",
                      child->pid_file, strerror(-r));
    }
    mill_log_line(MILL_LEVEL_INFO, "supervisor.started", "child=%s pid=%d", child->name, pid);
    return 0;
}

void child_status_text(int status, char *ret_text, size_t size_bytes)
{
    if (WIFSIGNALED(status)) {
        snprintf(ret_text, size_bytes, "signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(ret_text, size_bytes, "exit code %d", WEXITSTATUS(status));
    }
}

enum child_verdict child_died(struct child *child, int status,
                              const struct mill_supervisor_options *options, uint64_t now_ns)
{
    bool ready = child->ready || child_look(child);
    child->pid = 0;
    child->ready = false;
    child->last_status = status;
    /* The other side sees that nobody is there. */
    atomic_store_explicit(&child->side->serving, 0, memory_order_release);
    atomic_store_explicit(&child->side->incarnation, 0, memory_order_release);
    if (ready) {
        child->deaths = 0;
        child->start_at_ns = now_ns;
        return CHILD_RESTART;
    }
    if (!child->ever_ready && WIFEXITED(status) && WEXITSTATUS(status) == MILL_EXIT_PERMANENT) {
        return CHILD_PERMANENT;
    }
    child->deaths++;
    if (child->deaths >= MILL_SUPERVISOR_DEATHS_MAX) {
        return CHILD_HOPELESS;
    }
    uint64_t pause_ms = (uint64_t)options->backoff_first_ms << (child->deaths - 1);
    pause_ms = MILL_MIN(pause_ms, (uint64_t)options->backoff_max_ms);
    child->start_at_ns = now_ns + pause_ms * MILL_NS_PER_MS;
    return CHILD_RESTART;
}

bool child_look(struct child *child)
{
    if (child->pid == 0 || child->ready ||
        atomic_load_explicit(&child->side->serving, memory_order_acquire) != 1 ||
        atomic_load_explicit(&child->side->incarnation, memory_order_acquire) == 0) {
        return false;
    }
    child->ready = true;
    child->ever_ready = true;
    child->deaths = 0;
    return true;
}
