/* SPDX-License-Identifier: Apache-2.0 */
/* See ring_end.h. */
#include "tests/perf/ring_end.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ring_need(int r, const char *what, const struct mill_report *report)
{
    if (r < 0) {
        fprintf(stderr, "%s: %s%s%s\n", what, strerror(-r), report ? ": " : "",
                report ? report->text : "");
        exit(1);
    }
}

void ring_address(uint32_t address, uint8_t ret_bytes[16])
{
    memset(ret_bytes, 0, 10);
    memset(ret_bytes + 10, 0xff, 2);
    for (int i = 0; i < 4; i++) {
        ret_bytes[12 + i] = (uint8_t)(address >> (24 - 8 * i));
    }
}

struct mill_port *ring_port_open(const char *device, int32_t node_id, struct mill_arena *arena,
                                 struct mill_loans *const *loans)
{
    struct mill_report report = {""};
    struct mill_port *port = NULL;
    struct mill_port_options options = {
        .name = "ring", .mtu = 1500, .queues = 1, .node_id = node_id};
    snprintf(options.device, sizeof(options.device), "%s", device);
    ring_need(mill_port_open(&options, arena, loans, &port, &report), "port", &report);
    return port;
}

void ring_memory_dir(char ret_dir[RING_DIR_BYTES])
{
    snprintf(ret_dir, RING_DIR_BYTES, "/dev/shm/millrace-ring-%d-XXXXXX", (int)getpid());
    MILL_ASSERT(mkdtemp(ret_dir) != NULL);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    MILL_UNUSED(status);
    MILL_UNUSED(type);
    MILL_UNUSED(where);
    return remove(path);
}

void ring_remove_dir(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
