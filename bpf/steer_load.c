/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, checks and fills what steer.bpf.c left in the kernel; see steer_load.h. */
#include "bpf/steer_load.h"

#include <errno.h>
#include <linux/if_link.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/steer.skel.h"

enum {
    MAPS_MAX = 16,  /* of a program that could be ours: it has five */
    CPUS_MAX = 256, /* a machine with more gets no counters */
};

static const char program_name[] = "mill_steer";

/* --- what is attached ---------------------------------------------------------------------------
 */

/* ret: the attached program's descriptor with its info, 0 when there is none, -errno. */
static int attached(uint32_t ifindex, struct bpf_xdp_query_opts *ret_query,
                    struct bpf_prog_info *ret_info)
{
    uint32_t info_bytes = sizeof(*ret_info);
    int code = bpf_xdp_query((int)ifindex, 0, ret_query);
    if (code < 0) {
        return code;
    }
    /* Several modes at once have one id each and none in common. */
    uint32_t id = ret_query->prog_id != 0       ? ret_query->prog_id
                  : ret_query->drv_prog_id != 0 ? ret_query->drv_prog_id
                                                : ret_query->skb_prog_id;
    if (id == 0) {
        return 0;
    }
    int fd = bpf_prog_get_fd_by_id(id);
    if (fd < 0) {
        return -errno;
    }
    if (bpf_obj_get_info_by_fd(fd, ret_info, &info_bytes) < 0) {
        code = -errno;
        close(fd);
        return code;
    }
    return fd;
}

/* The tag that the kernel gives to this build's program: a sum over its instructions. It is known
 * only by loading it. ret: 0, -errno. */
static int own_tag(uint8_t ret_tag[BPF_TAG_SIZE])
{
    struct bpf_prog_info info = {0};
    uint32_t info_bytes = sizeof(info);
    struct mill_steer_bpf *program = mill_steer_bpf__open_and_load();
    if (program == NULL) {
        return -errno;
    }
    int fd = bpf_program__fd(program->progs.mill_steer);
    int code = bpf_obj_get_info_by_fd(fd, &info, &info_bytes) < 0 ? -errno : 0;
    memcpy(ret_tag, info.tag, BPF_TAG_SIZE);
    mill_steer_bpf__destroy(program);
    return code;
}

static bool has_our_name(const struct bpf_prog_info *info)
{
    return strncmp(info->name, program_name, sizeof(info->name)) == 0;
}

static int refuse(const char *iface, const struct bpf_prog_info *info, const char *what,
                  struct mill_report *report)
{
    return mill_fail(report, -EBUSY,
                     "%s has %s attached (\"%.16s\", id %u); if nobody needs it, remove it with ip "
                     "link set dev %s xdp off",
                     iface, what, info->name, info->id, iface);
}

int mill_steer_clear(uint32_t ifindex, const char *iface, struct mill_report *report)
{
    LIBBPF_OPTS(bpf_xdp_query_opts, query);
    LIBBPF_OPTS(bpf_xdp_attach_opts, detach);
    struct bpf_prog_info info = {0};
    uint8_t tag[BPF_TAG_SIZE];
    int fd = attached(ifindex, &query, &info);
    if (fd <= 0) {
        return fd < 0 ? mill_fail(report, fd, "the XDP program of %s cannot be asked for: %s",
                                  iface, strerror(-fd))
                      : 0;
    }
    int code = 0;
    if (!has_our_name(&info) || query.attach_mode == XDP_ATTACHED_MULTI) {
        code = refuse(iface, &info, "another XDP program", report);
    } else if ((code = own_tag(tag)) < 0) {
        code = mill_fail(report, code, "the steering program does not load: %s", strerror(-code));
    } else if (memcmp(tag, info.tag, sizeof(tag)) != 0) {
        code = refuse(iface, &info, "a steering program of another version", report);
    } else {
        uint32_t mode = query.attach_mode == XDP_ATTACHED_SKB ? XDP_FLAGS_SKB_MODE : 0;
        detach.old_prog_fd = fd;
        code = bpf_xdp_detach((int)ifindex, XDP_FLAGS_REPLACE | mode, &detach);
        if (code < 0) {
            code = mill_fail(report, code, "an old steering program cannot be taken off %s: %s",
                             iface, strerror(-code));
        }
    }
    close(fd);
    return code;
}

/* --- maps ---------------------------------------------------------------------------------------
 */

/* Keeps the descriptor when the map is one that we fill or read, else closes it. */
static void keep_map(struct mill_steer *steer, int fd, const struct bpf_map_info *info)
{
    const struct {
        const char *name;
        int *fd;
    } wanted[] = {
        {"steer_targets", &steer->targets_fd},
        {"steer_config", &steer->config_fd},
        {"steer_counters", &steer->counters_fd},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(wanted); i++) {
        if (strcmp(info->name, wanted[i].name) == 0 && *wanted[i].fd == 0) {
            *wanted[i].fd = fd;
            return;
        }
    }
    close(fd);
}

static int find_maps(struct mill_steer *steer, int program_fd)
{
    uint32_t ids[MAPS_MAX] = {0};
    struct bpf_prog_info info = {.nr_map_ids = MAPS_MAX, .map_ids = (uint64_t)(uintptr_t)ids};
    uint32_t info_bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(program_fd, &info, &info_bytes) < 0) {
        return -errno;
    }
    for (uint32_t i = 0; i < info.nr_map_ids && i < MAPS_MAX; i++) {
        struct bpf_map_info map = {0};
        uint32_t map_bytes = sizeof(map);
        int fd = bpf_map_get_fd_by_id(ids[i]);
        if (fd < 0) {
            return -errno;
        }
        if (bpf_obj_get_info_by_fd(fd, &map, &map_bytes) < 0) {
            close(fd);
            return -errno;
        }
        keep_map(steer, fd, &map);
    }
    bool all = steer->targets_fd > 0 && steer->config_fd > 0 && steer->counters_fd > 0;
    return all ? 0 : -ENOENT;
}

int mill_steer_open(uint32_t ifindex, const char *iface, struct mill_steer *ret_steer,
                    struct mill_report *report)
{
    LIBBPF_OPTS(bpf_xdp_query_opts, query);
    struct bpf_prog_info info = {0};
    struct mill_steer steer = {0};
    int fd = attached(ifindex, &query, &info);
    if (fd < 0) {
        return mill_fail(report, fd, "the XDP program of %s cannot be asked for: %s", iface,
                         strerror(-fd));
    }
    if (fd == 0 || !has_our_name(&info)) {
        if (fd > 0) {
            close(fd);
        }
        return mill_fail(report, -ENOENT, "the steering program is not attached to %s", iface);
    }
    steer.program_id = info.id;
    steer.generic = query.attach_mode == XDP_ATTACHED_SKB;
    int code = find_maps(&steer, fd);
    close(fd);
    if (code < 0) {
        mill_steer_close(&steer);
        return mill_fail(report, code, "the maps of the steering program on %s: %s", iface,
                         strerror(-code));
    }
    *ret_steer = steer;
    return 0;
}

void mill_steer_close(struct mill_steer *steer)
{
    const int fds[] = {steer->targets_fd, steer->config_fd, steer->counters_fd};
    for (size_t i = 0; i < MILL_COUNT_OF(fds); i++) {
        if (fds[i] > 0) {
            close(fds[i]);
        }
    }
    *steer = (struct mill_steer){0};
}

int mill_steer_add(const struct mill_steer *steer, uint32_t address, uint16_t port,
                   uint8_t protocol, struct mill_report *report)
{
    struct mill_steer_target target = {htonl(address), htons(port), protocol, 0};
    uint8_t one = 1;
    if (bpf_map_update_elem(steer->targets_fd, &target, &one, BPF_ANY) == 0) {
        return 0;
    }
    return mill_fail(report, -errno, "port %u cannot be steered: %s (%d ports and groups fit)",
                     port, strerror(errno), MILL_STEER_TARGETS_MAX);
}

int mill_steer_configure(const struct mill_steer *steer, const struct mill_steer_config *config,
                         struct mill_report *report)
{
    uint32_t first = 0;
    if (bpf_map_update_elem(steer->config_fd, &first, config, BPF_ANY) == 0) {
        return 0;
    }
    return mill_fail(report, -errno, "the steering program takes no settings: %s", strerror(errno));
}

int mill_steer_counters(const struct mill_steer *steer,
                        uint64_t ret_counts[MILL_STEER_REASON_COUNT])
{
    uint64_t per_cpu[CPUS_MAX];
    uint64_t counts[MILL_STEER_REASON_COUNT] = {0};
    int cpus = libbpf_num_possible_cpus();
    if (cpus < 1 || cpus > CPUS_MAX) {
        return -E2BIG;
    }
    for (uint32_t reason = 0; reason < MILL_STEER_REASON_COUNT; reason++) {
        if (bpf_map_lookup_elem(steer->counters_fd, &reason, per_cpu) < 0) {
            return -errno;
        }
        for (int i = 0; i < cpus; i++) {
            counts[reason] += per_cpu[i];
        }
    }
    memcpy(ret_counts, counts, sizeof(counts));
    return 0;
}
