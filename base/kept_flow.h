/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP connection as it is written down in memory that outlives its process: what the next one
 * needs to let the peer of a killed one know. Written by the core that has the connection. */
#ifndef MILL_BASE_KEPT_FLOW_H
#define MILL_BASE_KEPT_FLOW_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    MILL_KEPT_FLOWS_HALF = 16384,                   /* connections of one life of a stack */
    MILL_KEPT_FLOWS_MAX = 2 * MILL_KEPT_FLOWS_HALF, /* of one port on one core: two lives */
};

struct mill_kept_flow {
    _Atomic uint32_t used; /* stored after the rest; 0: free */
    uint32_t local;        /* IPv4, host order */
    uint32_t peer;
    uint16_t local_port;
    uint16_t peer_port;
    uint8_t mac[6];  /* where its frames came from */
    uint8_t has_mac; /* 0: none */
    uint8_t reserved;
};
static_assert(sizeof(struct mill_kept_flow) == 24, "shared layout");

#endif
