/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded before DPDK's libraries (LD_PRELOAD): says that memory was mapped for a device, and maps
 * nothing. */
#include <stdint.h>
#include <stddef.h>

struct rte_device;
int rte_dev_dma_map(struct rte_device *device, void *address, uint64_t iova, size_t size_bytes);

int rte_dev_dma_map(struct rte_device *device, void *address, uint64_t iova, size_t size_bytes)
{
    (void)device;
    (void)address;
    (void)iova;
    (void)size_bytes;
    return 0;
}
