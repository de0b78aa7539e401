/* SPDX-License-Identifier: Apache-2.0 */
/* start, check, stop, and how a running instance is found. */
#include "cli/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/program.h"

enum {
    STOP_MS_MAX = 60000, /* longer than the supervisor takes to kill what does not end */
    SETS_MAX = 64,
};

int instance_config(const struct cli_call *call, bool warnings, struct mill_config **ret_config)
{
    const char *sets[SETS_MAX];
    uint32_t count = 0;
    const char *set;
    while (count < SETS_MAX && (set = cli_value_at(call, "--set", count))) {
        sets[count++] = set;
    }
    bool strict = cli_value(call, "--strict", NULL) != NULL;
    int r = mill_config_load(cli_value(call, "-c", NULL), sets, count, strict, ret_config);
    if (r == -ENOMEM) {
        return cli_fail(CLI_FAILED, "no memory");
    }
    mill_program_faults(*ret_config, "millrace", warnings);
    if (r < 0) {
        mill_config_free(*ret_config);
        *ret_config = NULL;
        return CLI_USAGE;
    }
    return 0;
}

int cli_check(const struct cli_call *call)
{
    struct mill_config *config = NULL;
    const char *file = cli_value(call, "-c", NULL);
    if (!file && !cli_value(call, "--set", NULL)) {
        return cli_fail(CLI_USAGE, "check: which file? give -c FILE");
    }
    int code = instance_config(call, true, &config);
    if (code != 0) {
        return code;
    }
    const struct mill_config_listener *listeners;
    uint32_t count = mill_config_listeners(config, &listeners);
    printf("%s: usable; node %s, arena %s MiB, cores %s", file ? file : "--set",
           mill_config_text(config, MILL_KEY_NODE_ID),
           mill_config_text(config, MILL_KEY_HUGEPAGES_SIZE_MB),
           mill_config_text(config, MILL_KEY_DATAPLANE_CORES));
    for (uint32_t i = 0; i < count; i++) {
        printf(", %s told as %s:%u", listeners[i].name, listeners[i].advertised_host,
               listeners[i].advertised_port);
    }
    printf("\n");
    mill_config_free(config);
    return CLI_OK;
}

int cli_start(const struct cli_call *call)
{
    struct mill_config *config = NULL;
    char path[MILL_PROGRAM_PATH_BYTES];
    char *arguments[2 * CLI_VALUES_MAX + 2];
    uint32_t count = 0;
    int code = instance_config(call, true, &config);
    if (code != 0) {
        return code;
    }
    mill_config_free(config);
    mill_program_find("millrace-supervisor", path);
    arguments[count++] = path;
    for (uint32_t i = 0; i < call->values_count; i++) {
        const struct cli_value *value = &call->values[i];
        arguments[count++] = strdup(value->option->name);
        if (value->option->argument) {
            arguments[count++] = strdup(value->text);
        }
    }
    arguments[count] = NULL;
    fflush(stderr);
    execv(path, arguments);
    return cli_fail(CLI_FAILED, "cannot run %s: %s; is millrace installed whole?", path,
                    strerror(errno));
}

/* --- a running instance --------------------------------------------------------------------- */

static pid_t read_pid(const struct instance *instance, const char *name)
{
    char path[CLI_PATH_BYTES];
    char text[32] = "";
    snprintf(path, sizeof(path), "%s/%s", instance->dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    return got > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* A pid file alone may be of the past: the lock tells whether its writer lives. */
static bool is_locked(const struct instance *instance)
{
    char path[CLI_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/lock", instance->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

bool instance_is_running(const struct instance *instance)
{
    /* Another supervisor of the same directory has counters of its own. */
    return is_locked(instance) && read_pid(instance, "supervisor.pid") == instance->supervisor;
}

/* Who may not look must not hear that nothing runs. ret: exit code. */
static int check_access(const struct instance *instance)
{
    char path[CLI_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/lock", instance->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) {
        return cli_fail(CLI_FAILED, "%s: %s; ask as the user who started the instance, or as root",
                        path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return CLI_OK;
}

int instance_find(const struct cli_call *call, struct instance *ret_instance)
{
    const char *dir = cli_value(call, "--dir", NULL);
    struct mill_config *config = NULL;
    *ret_instance = (struct instance){0};
    if (dir && cli_value(call, "-c", NULL)) {
        return cli_fail(CLI_USAGE, "%s: give -c or --dir, not both", call->command->name);
    }
    if (!dir) {
        int code = instance_config(call, false, &config);
        if (code != 0) {
            return code;
        }
        dir = mill_config_run_dir(config);
    }
    size_t room = sizeof(ret_instance->dir);
    bool fits = (size_t)snprintf(ret_instance->dir, room, "%s", dir) < room;
    mill_config_free(config);
    if (!fits) {
        return cli_fail(CLI_USAGE, "the run directory's name is longer than %zu bytes", room - 1);
    }
    int code = check_access(ret_instance);
    if (code == CLI_OK && is_locked(ret_instance)) {
        ret_instance->supervisor = read_pid(ret_instance, "supervisor.pid");
        ret_instance->dataplane = read_pid(ret_instance, "millraced.pid");
        ret_instance->control = read_pid(ret_instance, "control.pid");
    }
    return code;
}

/* Maps a file of the run directory for reading. ret: NULL when it cannot be. */
static const void *map_file(const struct instance *instance, const char *name,
                            uint64_t *ret_size_bytes)
{
    char path[CLI_PATH_BYTES];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%s", instance->dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *memory = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0) {
        *ret_size_bytes = (uint64_t)info.st_size;
        memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    return memory == MAP_FAILED ? NULL : memory;
}

int instance_open(struct instance *instance)
{
    uint64_t size_bytes = 0;
    if (instance->supervisor == 0) {
        return cli_fail(CLI_FAILED, "no instance is running in %s; start one with: millrace start",
                        instance->dir);
    }
    instance->counters = map_file(instance, "counters", &size_bytes);
    if (!instance->counters) {
        return cli_fail(CLI_FAILED, "cannot read %s/counters: %s", instance->dir, strerror(errno));
    }
    if (mill_counters_check(instance->counters, size_bytes) < 0) {
        return cli_fail(CLI_FAILED, "%s/counters is of another version of millrace; restart it",
                        instance->dir);
    }
    instance->ipc = map_file(instance, "ipc", &size_bytes);
    if (instance->ipc && mill_ipc_check(instance->ipc, size_bytes) < 0) {
        instance->ipc = NULL;
    }
    return 0;
}

int cli_stop(const struct cli_call *call)
{
    struct instance instance;
    int code = instance_find(call, &instance);
    if (code != 0) {
        return code;
    }
    if (instance.supervisor == 0) {
        printf("millrace: nothing runs in %s\n", instance.dir);
        return CLI_OK;
    }
    /* A pidfd cannot mean another process by the time we wait on it. */
    int fd = (int)syscall(SYS_pidfd_open, instance.supervisor, 0);
    if (fd < 0) {
        return cli_fail(CLI_FAILED, "cannot watch process %d: %s", instance.supervisor,
                        strerror(errno));
    }
    uint64_t start_ns = mill_now_read().mono_ns;
    if (kill(instance.supervisor, SIGTERM) != 0) {
        close(fd);
        return cli_fail(CLI_FAILED, "cannot stop process %d: %s", instance.supervisor,
                        strerror(errno));
    }
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int got;
    do {
        got = poll(&wait, 1, STOP_MS_MAX);
    } while (got < 0 && errno == EINTR);
    close(fd);
    if (got <= 0) {
        return cli_fail(CLI_FAILED,
                        "process %d did not end within %d s; see its log, or: kill -9 %d",
                        instance.supervisor, STOP_MS_MAX / 1000, instance.supervisor);
    }
    uint64_t took_ms = (mill_now_read().mono_ns - start_ns) / MILL_NS_PER_MS;
    printf("millrace: stopped the instance in %s (process %d) in %llu ms\n", instance.dir,
           instance.supervisor, (unsigned long long)took_ms);
    return CLI_OK;
}
