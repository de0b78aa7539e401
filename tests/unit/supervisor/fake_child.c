/* SPDX-License-Identifier: Apache-2.0 */
/* Plays millraced or millrace-control for the supervisor's tests: attaches to the shared segment as
 * the real ones do, says that it serves, and ends as the file run.dir/NAME.act tells: "serve",
 * "die" (exit 1 before serving), "permanent" (exit 3 before serving), "deaf" (ignores SIGTERM).
 * Each start adds a line to run.dir/NAME.starts and each clean end one to run.dir/order. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/counters.h"
#include "ipc/frames.h"

static int descriptor(const char *name)
{
    const char *list = getenv(MILL_FDS_VARIABLE);
    size_t size = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        if (strncmp(at, name, size) == 0 && at[size] == '=') {
            return atoi(at + size + 1);
        }
    }
    return -1;
}

static void *map(const char *name)
{
    struct stat info;
    int fd = descriptor(name);
    if (fd < 0 || fstat(fd, &info) != 0) {
        exit(9);
    }
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        exit(9);
    }
    return memory;
}

static void add_line(const char *dir, const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || dprintf(fd, "%s\n", text) < 0) {
        exit(9);
    }
    close(fd);
}

static void act_of(const char *dir, const char *name, char act[32])
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.act", dir, name);
    FILE *file = fopen(path, "r");
    snprintf(act, 32, "serve");
    if (file) {
        if (!fgets(act, 32, file)) {
            exit(9);
        }
        fclose(file);
        act[strcspn(act, "\n")] = '\0';
    }
}

int main(int argc, char **argv)
{
    char dir[256];
    char act[32];
    char file[64];
    sigset_t set;
    int taken = 0;
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];
    if (argc != 3 || strcmp(argv[1], "--config") != 0) {
        return 9;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    snprintf(dir, sizeof(dir), "%s", argv[2]);
    *strrchr(dir, '/') = '\0';
    act_of(dir, name, act);
    snprintf(file, sizeof(file), "%s.starts", name);
    add_line(dir, file, act);
    if (strcmp(act, "die") == 0) {
        return 1;
    }
    if (strcmp(act, "permanent") == 0) {
        fprintf(stderr, "fake: device gone\n");
        return 3;
    }
    struct mill_ipc_segment *ipc = map("ipc");
    struct mill_counters *counters = map("counters");
    bool data = strcmp(name, "millraced") == 0;
    struct mill_ipc_side *side = data ? &ipc->dataplane : &ipc->control;
    if (data) {
        counters->listeners_count = 2;
        snprintf(counters->listeners[0].name, MILL_LISTENER_NAME_BYTES, "LOCAL");
        snprintf(counters->listeners[0].address, 64, "127.0.0.1:9092");
        snprintf(counters->listeners[0].state, 128, "serving");
        snprintf(counters->listeners[1].name, MILL_LISTENER_NAME_BYTES, "NIC");
        snprintf(counters->listeners[1].state, 128, "no device");
    }
    atomic_store(&side->incarnation, (uint64_t)getpid());
    atomic_store(&side->serving, 1);
    uint64_t one = 1;
    if (write(descriptor("ready"), &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        return 9;
    }
    do {
        sigwait(&set, &taken);
    } while (strcmp(act, "deaf") == 0);
    usleep(data ? 100000 : 0); /* a wrong order would show */
    add_line(dir, "order", name);
    return 0;
}
