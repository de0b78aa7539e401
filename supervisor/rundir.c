/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: locks, small files, cleaning. A lock is flock(2) on a file that holds the
 * supervisor's pid, so that whoever finds it taken can name the holder. */
#include "supervisor/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log_line.h"

enum {
    /* What the children of a killed supervisor may need to end: they flush their files. */
    WAIT_MS_MAX = 15000,
    WAIT_STEP_MS = 50,
    DEVICE_NAME_BYTES = 64,
};

/* Of the whole machine: what its instances must not share. */
#define DEVICES_DIR "/run/millrace/.devices"

void rundir_path(const struct mill_config *config, const char *name,
                 char ret_path[SUPERVISOR_PATH_BYTES])
{
    snprintf(ret_path, SUPERVISOR_PATH_BYTES, "%s/%s", mill_config_run_dir(config), name);
}

/* Makes a directory and its parents. */
static int make_dirs(const char *dir, mode_t mode, struct mill_report *report)
{
    char path[SUPERVISOR_PATH_BYTES];
    struct stat info;
    snprintf(path, sizeof(path), "%s", dir);
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') {
            continue;
        }
        *at = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST) {
            return mill_fail(report, -errno, "cannot make directory %s: %s", path, strerror(errno));
        }
        *at = '/';
    }
    if (mkdir(path, mode) != 0 && errno != EEXIST) {
        return mill_fail(report, -errno, "cannot make directory %s: %s", path, strerror(errno));
    }
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return mill_fail(report, -ENOTDIR, "%s is not a directory", path);
    }
    if (access(path, W_OK | X_OK) != 0) {
        int error = errno;
        return mill_fail(report, -error, "cannot write in %s: %s; try: chown %u %s", path,
                         strerror(error), geteuid(), path);
    }
    return 0;
}

static pid_t holder_of(int fd)
{
    char text[32] = "";
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    return got > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* One thing that only one instance may use. */
struct lockable {
    const char *path; /* of the file that stands for it */
    const char *word; /* "run directory" */
    const char *name;
};

/* Takes the lock, waiting only for processes that outlive a dead supervisor. */
static int lock_wait(int fd, const struct lockable *lockable, struct mill_report *report)
{
    const char *word = lockable->word;
    const char *name = lockable->name;
    for (uint32_t waited_ms = 0;; waited_ms += WAIT_STEP_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return 0;
        }
#ifdef MILL_MUTANT_SUPERVISOR_SHARE_DIRS
        return 0;
#endif
        if (errno != EWOULDBLOCK) {
            return mill_fail(report, -errno, "cannot lock %s: %s", lockable->path, strerror(errno));
        }
        pid_t pid = holder_of(fd);
        bool dead = pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
        if (!dead) {
            return mill_fail(report, -EBUSY,
                             "%s %s is in use by process %d; stop it (millrace stop, or kill %d) "
                             "or choose another %s",
                             word, name, pid, pid, word);
        }
        if (waited_ms >= WAIT_MS_MAX) {
            return mill_fail(report, -EBUSY,
                             "%s %s is still held by processes that the dead supervisor %d "
                             "started; see: fuser -v %s",
                             word, name, pid, lockable->path);
        }
        if (waited_ms == 0) {
            mill_log_line(MILL_LEVEL_NOTICE, "supervisor.waiting",
                          "waiting for the processes of the dead supervisor to end pid=%d file=%s",
                          pid, lockable->path);
        }
        nanosleep(&(struct timespec){.tv_nsec = WAIT_STEP_MS * 1000000l}, NULL);
    }
}

/* True when path still names the file behind fd: a clean stop removes the lock file, and a lock on
 * a removed file protects nothing. */
static bool still_there(int fd, const char *path)
{
    struct stat mine;
    struct stat there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

static int lock_one(struct locks *locks, const struct lockable *lockable,
                    struct mill_report *report)
{
    const char *path = lockable->path;
    MILL_ASSERT_LT(locks->count, (uint32_t)LOCKS_MAX);
    int fd;
    for (;;) {
        /* No O_CLOEXEC: children keep the lock. */
        fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
        if (fd < 0) {
            return mill_fail(report, -errno, "cannot open %s: %s", path, strerror(errno));
        }
        int r = lock_wait(fd, lockable, report);
        if (r < 0) {
            close(fd);
            return r;
        }
        if (still_there(fd, path)) {
            break;
        }
        close(fd);
    }
    locks->fds[locks->count++] = fd;
    if (ftruncate(fd, 0) != 0 || dprintf(fd, "%d\n", getpid()) < 0) {
        return mill_fail(report, -errno, "cannot write %s: %s", path, strerror(errno));
    }
    return 0;
}

static int lock_dir(struct locks *locks, const char *dir, const char *name, const char *word,
                    mode_t mode, struct mill_report *report)
{
    char path[SUPERVISOR_PATH_BYTES];
    struct stat info;
    if (lstat(dir, &info) == 0 && S_ISLNK(info.st_mode)) {
        return mill_fail(report, -ELOOP,
                         "%s %s is a symbolic link, which may point elsewhere tomorrow: name the "
                         "directory it points to",
                         word, dir);
    }
    int r = make_dirs(dir, mode, report);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return r < 0 ? r
                 : lock_one(locks, &(struct lockable){.path = path, .word = word, .name = dir},
                            report);
}

/* File that stands for the kernel interface behind a port: its network namespace, as the kernel
 * counts them, and its name. ret: false when the port has none, or the namespace is not there
 * (which millraced tells). */
static bool device_path(const struct mill_config *config, const struct mill_config_port *port,
                        char ret_name[DEVICE_NAME_BYTES], char ret_path[SUPERVISOR_PATH_BYTES])
{
    const char *netns = mill_config_text(config, MILL_KEY_DPDK_NETNS);
    const char *at = strstr(port->device, ",iface=");
    char path[SUPERVISOR_PATH_BYTES] = "/proc/self/ns/net";
    struct stat info;
    if (netns) {
        snprintf(path, sizeof(path), "%s%s", strchr(netns, '/') ? "" : "/run/netns/", netns);
    }
    if (!at || stat(path, &info) != 0) {
        return false;
    }
    at += strlen(",iface=");
    snprintf(ret_name, DEVICE_NAME_BYTES, "%.*s", (int)strcspn(at, ",/"), at);
    snprintf(ret_path, SUPERVISOR_PATH_BYTES, DEVICES_DIR "/%llu-%s",
             (unsigned long long)info.st_ino, ret_name);
    return ret_name[0] != '\0';
}

/* An interface that two processes open hands each of them only some of its packets. */
static int devices_lock(const struct mill_config *config, struct locks *locks,
                        struct mill_report *report)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(config, &ports);
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        char name[DEVICE_NAME_BYTES];
        char path[SUPERVISOR_PATH_BYTES];
        if (!device_path(config, &ports[i], name, path)) {
            continue;
        }
        r = make_dirs(DEVICES_DIR, 0755, report);
        r = r < 0 ? r
                  : lock_one(locks,
                             &(struct lockable){.path = path, .word = "interface", .name = name},
                             report);
    }
    return r;
}

int locks_take(const struct mill_config *config, struct locks *locks, struct mill_report *report)
{
    const char *const *dirs;
    uint32_t count = mill_config_log_dirs(config, &dirs);
    /* Others may pass through to read the counters; every other file in it is for the owner. */
    int r = lock_dir(locks, mill_config_run_dir(config), "lock", "run directory", 0711, report);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        r = lock_dir(locks, dirs[i], ".lock", "log directory", 0755, report);
    }
#ifndef MILL_MUTANT_SUPERVISOR_DEVICE_SHARED
    r = r < 0 ? r : devices_lock(config, locks, report);
#endif
    return r < 0 ? r
                 : lock_dir(locks, mill_config_metadata_dir(config), ".metadata.lock",
                            "metadata directory", 0755, report);
}

void locks_release(struct locks *locks)
{
    for (uint32_t i = 0; i < locks->count; i++) {
        close(locks->fds[i]);
    }
    locks->count = 0;
}

int rundir_write(const struct mill_config *config, const char *name, const char *text, mode_t mode)
{
    char path[SUPERVISOR_PATH_BYTES];
    char temporary[SUPERVISOR_PATH_BYTES + 8];
    rundir_path(config, name, path);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0) {
        return -errno;
    }
    size_t size = strlen(text);
    ssize_t done = write(fd, text, size);
    int r = done < 0 ? -errno : ((size_t)done == size ? 0 : -ENOSPC);
    close(fd);
    if (r == 0 && rename(temporary, path) != 0) {
        r = -errno;
    }
    if (r < 0) {
        unlink(temporary);
    }
    return r;
}

int rundir_read(const struct mill_config *config, const char *name, char *ret_text,
                size_t size_bytes)
{
    char path[SUPERVISOR_PATH_BYTES];
    rundir_path(config, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    ssize_t got = read(fd, ret_text, size_bytes - 1);
    int r = got < 0 ? -errno : 0;
    close(fd);
    ret_text[MILL_MAX(got, 0)] = '\0';
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return r;
}

/* True when the lock file names this process. */
static bool ours(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool mine = fd >= 0 && holder_of(fd) == getpid();
    if (fd >= 0) {
        close(fd);
    }
    return mine;
}

void rundir_clean(const struct mill_config *config)
{
    static const char *const names[] = {"ipc",           "map",   "counters",
                                        "flows",         "ready", "control.pid",
                                        "millraced.pid", "lock",  "supervisor.pid"};
    char path[SUPERVISOR_PATH_BYTES];
    char name[DEVICE_NAME_BYTES];
    const struct mill_config_port *ports;
    uint32_t ports_count = mill_config_ports(config, &ports);
    for (uint32_t i = 0; i < ports_count; i++) {
        if (device_path(config, &ports[i], name, path) && ours(path)) {
            unlink(path);
        }
    }
    for (uint32_t i = 0; i < MILL_COUNT_OF(names); i++) {
        rundir_path(config, names[i], path);
        unlink(path);
    }
}
