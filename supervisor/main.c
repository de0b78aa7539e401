/* SPDX-License-Identifier: Apache-2.0 */
/* millrace-supervisor: arguments, configuration, going into the background. `millrace start` runs
 * it. Exit codes: contract of the commands (0 clean stop, 1 failed, 2 wrong use or configuration).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log_line.h"
#include "config/config.h"
#include "config/program.h"
#include "supervisor/supervisor.h"

enum {
    SETS_MAX = 64,
    LOG_TAIL_BYTES = 8192,
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MAX_MS = 5000,
    DATAPLANE_STOP_MS = 30000,
    CONTROL_STOP_MS = 10000,
};

struct arguments {
    const char *file;
    const char *sets[SETS_MAX];
    uint32_t sets_count;
    bool detach;
    bool strict;
    bool adopt;
};

static int parse(int argc, char **argv, struct arguments *arguments)
{
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--detach") == 0) {
            arguments->detach = true;
        } else if (strcmp(argv[i], "--strict") == 0) {
            arguments->strict = true;
        } else if (strcmp(argv[i], "--adopt") == 0) {
            arguments->adopt = true;
        } else if (strcmp(argv[i], "-c") == 0 && has_value) {
            arguments->file = argv[++i];
        } else if (strcmp(argv[i], "--set") == 0 && has_value && arguments->sets_count < SETS_MAX) {
            arguments->sets[arguments->sets_count++] = argv[++i];
        } else {
            fprintf(stderr,
                    "millrace-supervisor: unknown or incomplete option %s; usage: "
                    "millrace-supervisor [-c FILE] [--set key=value]... [--strict] [--adopt] "
                    "[--detach]\n",
                    argv[i]);
            return -EINVAL;
        }
    }
    return 0;
}

static int supervise(const struct mill_config *config, bool adopt, bool detached, int ready_fd)
{
    char dataplane[MILL_PROGRAM_PATH_BYTES];
    char control[MILL_PROGRAM_PATH_BYTES];
    struct mill_report report = {0};
    mill_program_find("millraced", dataplane);
    mill_program_find("millrace-control", control);
    struct mill_supervisor_options options = {
        .config = config,
        .dataplane = dataplane,
        .control = control,
        .backoff_first_ms = BACKOFF_FIRST_MS,
        .backoff_max_ms = BACKOFF_MAX_MS,
        .dataplane_stop_ms = DATAPLANE_STOP_MS,
        .control_stop_ms = CONTROL_STOP_MS,
        .ready_fd = ready_fd,
        .adopt = adopt,
        .detached = detached,
    };
    int code = mill_supervisor_run(&options, &report);
    if (code != 0) {
        fprintf(stderr, "millrace: %s\n", report.text);
    }
    return code;
}

/* Copies the end of run.dir/log to standard error: the child's last words, then ours. */
static void show_log(const struct mill_config *config)
{
    char path[MILL_PROGRAM_PATH_BYTES];
    char text[LOG_TAIL_BYTES / 8];
    snprintf(path, sizeof(path), "%s/log", mill_config_run_dir(config));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (fd < 0 || lseek(fd, size > LOG_TAIL_BYTES ? size - LOG_TAIL_BYTES : 0, SEEK_SET) < 0) {
        return;
    }
    ssize_t got;
    while ((got = read(fd, text, sizeof(text))) > 0) {
        if (write(STDERR_FILENO, text, (size_t)got) < 0) {
            break;
        }
    }
    close(fd);
}

/* The parent of a detached supervisor: waits for its ready line or its end. */
static int await_ready(const struct mill_config *config, int fd, pid_t pid)
{
    char line[1536];
    size_t used = 0;
    ssize_t got;
    while (used < sizeof(line) - 1) {
        got = read(fd, line + used, sizeof(line) - 1 - used);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    bool logged = used > 0 && line[0] == '+';
    if (used > (logged ? 1u : 0u)) {
        fwrite(line + logged, 1, used - logged, stdout);
        return fflush(stdout) == 0 ? 0 : MILL_EXIT_FAILED;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (logged) {
        show_log(config); /* else the reason went to our standard error, and the log is another's */
    }
    return MILL_EXIT_FAILED;
}

static int detach(const struct mill_config *config, bool adopt)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        fprintf(stderr, "millrace: cannot make a pipe: %s\n", strerror(errno));
        return MILL_EXIT_FAILED;
    }
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "millrace: cannot fork: %s\n", strerror(errno));
        return MILL_EXIT_FAILED;
    }
    if (pid == 0) {
        close(pipe_fds[0]);
        setsid();
        return supervise(config, adopt, true, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    return await_ready(config, pipe_fds[0], pid);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct mill_config *config = NULL;
    mill_log_setup("millrace-supervisor", MILL_LEVEL_INFO);
    if (parse(argc, argv, &arguments) < 0) {
        return MILL_EXIT_CONFIG;
    }
    int r = mill_config_load(arguments.file, arguments.sets, arguments.sets_count, arguments.strict,
                             &config);
    if (r < 0) {
        mill_program_faults(config, "millrace", false);
        mill_config_free(config);
        return MILL_EXIT_CONFIG;
    }
    int code = arguments.detach ? detach(config, arguments.adopt)
                                : supervise(config, arguments.adopt, false, -1);
    mill_config_free(config);
    return code;
}
