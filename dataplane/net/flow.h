/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a TCP connection, as net/ and links that deal frames out to several cores know it. */
#ifndef MILL_DATAPLANE_NET_FLOW_H
#define MILL_DATAPLANE_NET_FLOW_H

#include "base/check.h"

struct mill_flow_key {
    uint32_t local; /* addresses and ports in host order */
    uint32_t peer;
    uint16_t local_port;
    uint16_t peer_port;
};
static_assert(sizeof(struct mill_flow_key) == 12, "hashed as bytes: no padding");

#endif
