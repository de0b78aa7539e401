/* SPDX-License-Identifier: Apache-2.0 */
/* The shared segments: files of the run directory, made and formatted afresh at each start of the
 * supervisor, and the bells. The supervisor keeps its own mapping to see who serves. */
#include "supervisor/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/kept_flow.h"

/* A fresh file of this size: an old one is unlinked, so that a process that still maps it keeps its
 * own. ret: descriptor, -errno. */
static int fresh_file(const char *path, uint64_t size_bytes, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        return -errno;
    }
    if (fchmod(fd, mode) != 0 || ftruncate(fd, (off_t)size_bytes) != 0) {
        int r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

/* A fresh file, mapped. */
static int make_one(const struct mill_config *config, const char *name, uint64_t size_bytes,
                    mode_t mode, int *ret_fd, void **ret_memory, struct mill_report *report)
{
    char path[SUPERVISOR_PATH_BYTES];
    rundir_path(config, name, path);
    int fd = fresh_file(path, size_bytes, mode);
    if (fd < 0) {
        return mill_fail(report, fd, "cannot make %s: %s", path, strerror(-fd));
    }
    *ret_fd = fd;
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return mill_fail(report, -errno, "cannot map %s: %s", path, strerror(errno));
    }
    *ret_memory = memory;
    return 0;
}

static int bell_make(int *ret_fd, struct mill_report *report)
{
    *ret_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *ret_fd < 0 ? mill_fail(report, -errno, "cannot make an eventfd: %s", strerror(errno))
                       : 0;
}

struct segments segments_none(void)
{
    return (struct segments){
        .ipc_fd = -1, .map_fd = -1, .counters_fd = -1, .flows_fd = -1, .ready_fd = -1};
}

/* Where stacks write their connections down: zeroed, and theirs to lay out. */
static int flows_make(const struct mill_config *config, uint32_t cores, int *ret_fd,
                      struct mill_report *report)
{
    const struct mill_config_port *ports = NULL;
    uint64_t stacks = (uint64_t)cores * mill_config_ports(config, &ports);
    uint64_t size_bytes = stacks * MILL_KEPT_FLOWS_MAX * sizeof(struct mill_kept_flow);
    void *memory = NULL;
    if (stacks == 0) {
        return 0;
    }
    int r = make_one(config, "flows", size_bytes, 0600, ret_fd, &memory, report);
    if (r == 0) {
        munmap(memory, size_bytes);
    }
    return r;
}

int segments_make(const struct mill_config *config, struct segments *segments,
                  struct mill_report *report)
{
    const uint32_t *cpus;
    uint32_t cores = mill_config_cores(config, &cpus);
    uint32_t scratch = (uint32_t)mill_config_int(config, MILL_KEY_CONTROL_FRAME_MAX_BYTES);
    void *memory = NULL;
    *segments = segments_none();

    segments->ipc_bytes = mill_ipc_bytes(cores, scratch);
    int r = make_one(config, "ipc", segments->ipc_bytes, 0600, &segments->ipc_fd, &memory, report);
    if (r < 0) {
        return r;
    }
    mill_ipc_format(memory, cores, scratch);
    segments->ipc = memory;

    struct mill_map_limits limits = {.size_bytes = SUPERVISOR_MAP_BYTES,
                                     .topics_max = SUPERVISOR_TOPICS_MAX};
    r = make_one(config, "map", limits.size_bytes, 0600, &segments->map_fd, &memory, report);
    if (r < 0) {
        return r;
    }
    mill_map_format(memory, &limits);
    munmap(memory, limits.size_bytes);

    segments->counters_bytes = mill_counters_bytes(cores);
    r = make_one(config, "counters", segments->counters_bytes, 0644, &segments->counters_fd,
                 &memory, report);
    if (r < 0) {
        return r;
    }
    mill_counters_format(memory, cores);
    segments->counters = memory;

    r = flows_make(config, cores, &segments->flows_fd, report);
    r = r < 0 ? r : bell_make(&segments->ready_fd, report);
    for (uint32_t i = 0; i < 1 + cores && r == 0; i++) {
        r = bell_make(&segments->bells[i], report);
        segments->bells_count += r == 0;
    }
    return r;
}

void segments_close(struct segments *segments)
{
    const int fds[] = {segments->ipc_fd, segments->map_fd, segments->counters_fd,
                       segments->flows_fd, segments->ready_fd};
    if (segments->ipc) {
        munmap(segments->ipc, segments->ipc_bytes);
    }
    if (segments->counters) {
        munmap(segments->counters, segments->counters_bytes);
    }
    for (uint32_t i = 0; i < MILL_COUNT_OF(fds); i++) {
        if (fds[i] > 0) {
            close(fds[i]);
        }
    }
    for (uint32_t i = 0; i < segments->bells_count; i++) {
        close(segments->bells[i]);
    }
    *segments = segments_none();
}

void segments_variable(const struct segments *segments, char ret_text[FDS_TEXT_BYTES])
{
    int used =
        snprintf(ret_text, FDS_TEXT_BYTES, "ipc=%d,map=%d,counters=%d,ready=%d", segments->ipc_fd,
                 segments->map_fd, segments->counters_fd, segments->ready_fd);
    if (segments->flows_fd >= 0) {
        used += snprintf(ret_text + used, FDS_TEXT_BYTES - (size_t)used, ",flows=%d",
                         segments->flows_fd);
    }
    for (uint32_t i = 0; i < segments->bells_count; i++) {
        size_t room = FDS_TEXT_BYTES - (size_t)used;
        used += i == 0
                    ? snprintf(ret_text + used, room, ",bell.control=%d", segments->bells[i])
                    : snprintf(ret_text + used, room, ",bell.core%u=%d", i - 1, segments->bells[i]);
        MILL_ASSERT(used > 0 && used < FDS_TEXT_BYTES);
    }
}

static void inherit(int fd)
{
    fcntl(fd, F_SETFD, 0);
}

void segments_inherit(const struct segments *segments)
{
    inherit(segments->ipc_fd);
    inherit(segments->map_fd);
    inherit(segments->counters_fd);
    if (segments->flows_fd >= 0) {
        inherit(segments->flows_fd);
    }
    inherit(segments->ready_fd);
    for (uint32_t i = 0; i < segments->bells_count; i++) {
        inherit(segments->bells[i]);
    }
}
