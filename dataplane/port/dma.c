/* SPDX-License-Identifier: Apache-2.0 */
/* The arena in a card's address space. A card reads through an IOMMU: what was not mapped for it
 * it cannot read, and no driver reports that (docs/decisions/0008). Each port maps the arena's
 * files into a window of its own, side by side as they lie in memory:
 *
 *   0 ... 4 GiB: interrupts, firmware | EAL's memory, IOVA = address | free | port 1 | port 0 |
 * 2^width
 *
 * Start-up and close only, on the main thread.
 */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_dma_map, unchanged since 19.05 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memory.h>

#include "dataplane/port/port_internal.h"

enum {
    WIDTH_UNKNOWN_BITS = 39, /* what desktop chips and QEMU have; others have more */
    WIDTH_MAX_BITS = 47,     /* user addresses end there: beyond it nothing was ever tried */
    WINDOW_MOVES_MAX = 256,  /* more than EAL has lists */
};
static const uint64_t window_unit_bytes = 1ull << 30;

/* Address bits that the card's IOMMU translates. Intel's capability register (VT-d 11.4.2) has them
 * less one in bits 21:16; other makers tell nothing in sysfs. */
static uint32_t iommu_width_bits(const char *address)
{
    char path[MILL_PORT_DEVICE_BYTES + 64];
    unsigned long long capability = 0;
    uint32_t bits = WIDTH_UNKNOWN_BITS;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu/intel-iommu/cap", address);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%llx", &capability) == 1) {
            bits = (uint32_t)(capability >> 16 & 0x3f) + 1;
        }
        fclose(file);
    }
    return MILL_MIN(bits, (uint32_t)WIDTH_MAX_BITS);
}

/* --- the window ---------------------------------------------------------------------------------
 */

struct window {
    uint64_t start;
    uint64_t size_bytes;
    bool moved;
};

/* EAL maps its memory where its addresses say: below what it reserved, if the window meets it. */
static int avoid_list(const struct rte_memseg_list *list, void *context)
{
    struct window *window = context;
    uint64_t base = (uint64_t)(uintptr_t)list->base_va;
    if (list->external || window->start >= base + list->len ||
        base >= window->start + window->size_bytes) {
        return 0;
    }
    window->moved = true;
    window->start = base < window->size_bytes ? 0 : base - window->size_bytes;
    window->start -= window->start % window_unit_bytes;
    return 1;
}

static int choose_window(const struct mill_port *port, uint64_t *ret_start,
                         struct mill_report *report)
{
    struct window window = {
        .size_bytes = mill_round_up(mill_arena_size_bytes(port->arena), window_unit_bytes)};
    uint32_t bits = iommu_width_bits(port->device_name);
    uint64_t top = 1ull << bits;
    uint64_t below_top = (port->port_id + 1ull) * window.size_bytes;
    window.start = below_top < top ? top - below_top : 0;
    for (int i = 0; i < WINDOW_MOVES_MAX; i++) {
        window.moved = false;
        (void)rte_memseg_list_walk(avoid_list, &window);
        if (!window.moved) {
            break;
        }
    }
    /* The lowest 4 GiB have holes that the card cannot use for memory. */
    if (window.moved || window.start < 4 * window_unit_bytes) {
        return mill_fail(report, -ENOSPC,
                         "the arena does not fit into the %u bits of its IOMMU; make "
                         "hugepages.size.mb smaller",
                         bits);
    }
    *ret_start = window.start;
    return 0;
}

/* --- mapping ------------------------------------------------------------------------------------
 */

static int check_iommu(const struct mill_port *port, struct mill_report *report)
{
    char path[MILL_PORT_DEVICE_BYTES + 64];
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu", port->device_name);
    if (access(path, F_OK) != 0 || rte_eal_iova_mode() != RTE_IOVA_VA) {
        return mill_fail(report, -ENOTSUP,
                         "no IOMMU translates for it; switch on VT-d or AMD-Vi in the firmware and "
                         "add intel_iommu=on to the kernel's command line");
    }
    return 0;
}

static int map_file(const struct mill_port *port, uint8_t *base, uint64_t size_bytes,
                    uint32_t page_bytes, struct mill_report *report)
{
    uint64_t iova = port->arena_iova + (uint64_t)(base - mill_arena_base(port->arena));
    /* EAL wants to know memory that is not its own; another port's registration serves too, and
     * all stay until the process ends. */
    if (rte_extmem_register(base, size_bytes, NULL, (unsigned int)(size_bytes / page_bytes),
                            page_bytes) < 0 &&
        rte_errno != EEXIST) {
        return mill_fail(report, -rte_errno, "DPDK does not take the arena as memory: %s",
                         rte_strerror(rte_errno));
    }
    mill_eal_log_mark();
    if (rte_dev_dma_map(port->device, base, iova, size_bytes) < 0) {
        return mill_fail(report, -EIO,
                         "its IOMMU does not take the arena at 0x%llx (%s); raise the limit of "
                         "locked memory (ulimit -l unlimited) or start as root",
                         (unsigned long long)iova, mill_eal_log_since());
    }
    return 0;
}

static void unmap_files(struct mill_port *port, uint32_t count)
{
    uint8_t *base;
    uint64_t size_bytes;
    uint32_t page_bytes;
    int node;
    for (uint32_t i = 0;
         i < count && mill_arena_file(port->arena, i, &base, &size_bytes, &page_bytes, &node);
         i++) {
        uint64_t iova = port->arena_iova + (uint64_t)(base - mill_arena_base(port->arena));
        (void)rte_dev_dma_unmap(port->device, base, iova, size_bytes);
    }
}

int mill_port_dma_map(struct mill_port *port, struct rte_device *device, struct mill_report *report)
{
    uint8_t *base;
    uint64_t size_bytes;
    uint32_t page_bytes;
    int node;
    port->device = device;
    int code = check_iommu(port, report);
    if (code == 0) {
        code = choose_window(port, &port->arena_iova, report);
    }
    if (code < 0) {
        return code;
    }
    for (uint32_t i = 0; mill_arena_file(port->arena, i, &base, &size_bytes, &page_bytes, &node);
         i++) {
        code = map_file(port, base, size_bytes, page_bytes, report);
        if (code < 0) {
            unmap_files(port, i);
            return code;
        }
    }
    port->dma_mapped = true;
    return 0;
}

void mill_port_dma_unmap(struct mill_port *port)
{
    if (port->dma_mapped) {
        unmap_files(port, MILL_ARENA_NODES_MAX);
        port->dma_mapped = false;
    }
}
