/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the virtual devices that a DPDK port may be, as they begin in dpdk.port.NAME.device: the
 * configuration checks them, dataplane/port knows what each can do. */
#ifndef MILL_BASE_DEVICE_DRIVERS_H
#define MILL_BASE_DEVICE_DRIVERS_H

#define MILL_DEVICE_TAP    "net_tap"
#define MILL_DEVICE_RING   "net_ring"
#define MILL_DEVICE_NULL   "net_null"
#define MILL_DEVICE_MEMIF  "net_memif"
#define MILL_DEVICE_AF_XDP "net_af_xdp"

#define MILL_DEVICE_DRIVERS                                                                        \
    MILL_DEVICE_TAP, MILL_DEVICE_RING, MILL_DEVICE_NULL, MILL_DEVICE_MEMIF, MILL_DEVICE_AF_XDP

#endif
