/* SPDX-License-Identifier: Apache-2.0 */
/* millraced: the data plane's process. The supervisor starts it with the configuration it checked
 * and the descriptors of the shared segments. Exit: 0 clean stop, 1 failed, 2 wrong use or
 * configuration, 3 a fault that another start would meet again (device, port, directory). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log_line.h"
#include "dataplane/core/plane_parts.h"
#include "dataplane/core/stall_watch.h"

enum {
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_PERMANENT = 3,
    LOOK_MS = 250, /* ports' counters and the parent's life */
    START_LOOK_MS = 5,
};

static int config_read(int argc, char **argv, struct mill_config **ret_config)
{
    if (argc != 3 || strcmp(argv[1], "--config") != 0) {
        fprintf(stderr, "millraced: usage: millraced --config FILE (millrace start runs it)\n");
        return -EINVAL;
    }
    int r = mill_config_load(argv[2], NULL, 0, false, ret_config);
    const struct mill_config_fault *faults = NULL;
    uint32_t count = r < 0 && *ret_config ? mill_config_faults(*ret_config, &faults) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (faults[i].error) {
            fprintf(stderr, "millraced: %s:%u: %s: %s\n", faults[i].file, faults[i].line,
                    faults[i].key, faults[i].text);
        }
    }
    return r;
}

/* ret: true when a stop was asked for within limit_ms. */
static bool stop_wanted(int signals, int limit_ms, pid_t parent)
{
    struct pollfd fd = {.fd = signals, .events = POLLIN};
    /* The TAP driver's real-time signals interrupt this wait; that is harmless. */
    if (poll(&fd, 1, limit_ms) > 0) {
        struct signalfd_siginfo info;
        if (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            return info.ssi_signo != SIGHUP;
        }
    }
#ifdef MILL_MUTANT_SUPERVISOR_LEAVE_CHILDREN
    return false;
#endif
    return getppid() != parent;
}

static int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Waits for control's first word. ret: false when asked to stop instead. */
static bool cluster_wait(struct mill_plane *plane, int signals, pid_t parent)
{
    while (!mill_map_cluster_read(plane->map)) {
        if (stop_wanted(signals, START_LOOK_MS, parent)) {
            return false;
        }
    }
    return true;
}

/* Until a stop is asked for. */
static void watch(struct mill_plane *plane, int signals, pid_t parent)
{
    struct mill_stall_watch *stalls = NULL;
    bool told = false;
    while (!stop_wanted(signals, told ? LOOK_MS : START_LOOK_MS, parent)) {
        if (!told && mill_plane_ready(plane)) {
            mill_plane_publish(plane);
            stalls = mill_stall_watch_open(plane->config, plane->counters, plane->ipc,
                                           plane->cores_count);
            atomic_store_explicit(&plane->ipc->dataplane.serving, 1, memory_order_release);
            mill_log_line(MILL_LEVEL_INFO, "plane.serving", "cores=%u ports=%u", plane->cores_count,
                          plane->ports_count);
            told = true;
        }
        mill_plane_publish(plane);
        uint64_t now_ns = mill_now_read().mono_ns;
        mill_stall_watch_look(stalls, now_ns);
        atomic_store_explicit(&plane->ipc->dataplane.beat_ns, now_ns, memory_order_relaxed);
    }
    mill_stall_watch_close(stalls);
}

static int serve(struct mill_plane *plane, int signals, pid_t parent, struct mill_report *report)
{
    if (!cluster_wait(plane, signals, parent)) {
        return 0;
    }
    int r = mill_plane_build(plane, report);
    if (r < 0) {
        mill_log_line(MILL_LEVEL_ERROR, "plane.not-started", "%s", report->text);
        /* A queue that a killed process had: the next start finds it free. */
        return r == -EAGAIN ? EXIT_FAILED : EXIT_PERMANENT;
    }
    mill_plane_table(plane);
    r = mill_plane_run(plane, report);
    if (r < 0) {
        mill_log_line(MILL_LEVEL_ERROR, "plane.not-started", "%s", report->text);
        return EXIT_FAILED;
    }
    watch(plane, signals, parent);
    return 0;
}

int main(int argc, char **argv)
{
    struct mill_config *config = NULL;
    struct mill_report report = {""};
    struct mill_plane plane = {0};
    pid_t parent = getppid();
    mill_log_setup("millraced", MILL_LEVEL_INFO);
#ifndef MILL_MUTANT_SUPERVISOR_LEAVE_CHILDREN
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (config_read(argc, argv, &config) < 0) {
        mill_config_free(config);
        return EXIT_USAGE;
    }
    int signals = signals_open();
    int code = EXIT_PERMANENT;
    if (signals < 0 || mill_plane_attach(&plane, config, &report) < 0) {
        mill_log_line(MILL_LEVEL_ERROR, "plane.not-attached", "%s", report.text);
    } else {
        code = serve(&plane, signals, parent, &report);
    }
    mill_plane_close(&plane);
    mill_config_free(config);
    return code;
}
