/* SPDX-License-Identifier: Apache-2.0 */
/* guest_pages PID: where the arena of a running millraced lies, asked of the kernel by
 * move_pages(2).
 *
 *   file PATH bound NODE pages COUNT elsewhere COUNT
 *   extent TOPIC-ID PARTITION node NODE              for each extent with records */
#include <fcntl.h>
#include <inttypes.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hugepages/arena_private.h"

enum {
    HUGE_BYTES = 2 << 20,
};

/* Node of one page of the process; negative errno of the page. */
static int node_of(int pid, uint64_t address)
{
    void *page = (void *)(uintptr_t)address; /* of another process: never read here */
    int node = -1;
    return move_pages(pid, 1, &page, NULL, &node, 0) == 0 ? node : -1;
}

static void show_extents(int pid, uint64_t start, const uint8_t *file)
{
    const struct arena_header *header = (const void *)file;
    const struct mill_extent_desc *descs = (const void *)(file + header->descs_pos_bytes);
    for (uint64_t unit = 0; unit < header->size_bytes / MILL_EXTENT_UNIT_BYTES; unit++) {
        if (atomic_load_explicit(&descs[unit].state, memory_order_acquire) != MILL_EXTENT_LOG) {
            continue;
        }
        printf("extent ");
        for (size_t i = 0; i < sizeof(descs[unit].topic_id.b); i++) {
            printf("%02x", descs[unit].topic_id.b[i]);
        }
        printf(" %" PRId32 " node %d\n", descs[unit].partition,
               node_of(pid, start + unit * MILL_EXTENT_UNIT_BYTES));
    }
}

static int show_file(int pid, uint64_t start, uint64_t end, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t size_bytes = end - start;
    uint8_t *file = fd < 0 ? MAP_FAILED : mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) {
        perror(path);
        return 1;
    }
    int bound = ((const struct arena_header *)(const void *)file)->node;
    uint64_t elsewhere = 0;
    for (uint64_t at = start; at < end; at += HUGE_BYTES) {
        elsewhere += node_of(pid, at) != bound;
    }
    printf("file %s bound %d pages %" PRIu64 " elsewhere %" PRIu64 "\n", path, bound,
           size_bytes / HUGE_BYTES, elsewhere);
    show_extents(pid, start, file);
    return 0;
}

int main(int argc, char **argv)
{
    char line[1024];
    char path[512];
    int pid = argc == 2 ? atoi(argv[1]) : 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) {
        perror(path);
        return 1;
    }
    int code = 0;
    while (fgets(line, sizeof(line), maps) != NULL) {
        uint64_t start;
        uint64_t end;
        if (strstr(line, "/millrace-") != NULL && strstr(line, "arena") != NULL &&
            sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %511s", &start, &end, path) ==
                3) {
            code |= show_file(pid, start, end, path);
        }
    }
    fclose(maps);
    return code;
}
