/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What steer.bpf.c and its loader share: keys and values of the maps, reasons that are counted.
 *
 * Addresses and ports are in network order, as they stand in the packet.
 */
#ifndef MILL_BPF_STEER_H
#define MILL_BPF_STEER_H

#include <linux/types.h>

enum {
    MILL_STEER_QUEUES_MAX = 64,   /* sockets: one per receive queue */
    MILL_STEER_TARGETS_MAX = 256, /* listener ports and feed groups together */
    MILL_STEER_SOURCES_MAX = 65536,
};

/* Key of steer_targets: packets to here are the broker's. */
struct mill_steer_target {
    __be32 address;
    __be16 port;
    __u8 protocol; /* IPPROTO_TCP, IPPROTO_UDP */
    __u8 zero;
};

/* The only value of steer_config. */
struct mill_steer_config {
    __be32 address;   /* of connections that the broker opens; 0: opens none */
    __u16 port_first; /* host order; source ports of those connections, both ends included */
    __u16 port_last;
    __u32 syn_per_second; /* per source address; 0: no limit */
    __u32 syn_burst;      /* SYNs that a silent source may send at once */
};

/* Value of steer_sources, keyed by source address. A SYN costs one second of nanoseconds divided by
 * the rate, drawn from what passed since. */
struct mill_steer_source {
    __u64 seen_ns;
    __u64 saved_ns; /* at most syn_burst SYNs' worth */
};

/* Index into steer_counters (per CPU). */
#define MILL_STEER_REASONS(X)                                                                      \
    X(redirected, "packets given to an AF_XDP socket")                                             \
    X(no_socket, "packets of the broker on a queue without socket, left to the kernel")            \
    X(syn_over_limit, "SYNs dropped because their source sent too many")                           \
    X(malformed, "packets shorter than their headers say, left to the kernel")                     \
    X(fragments, "IPv4 fragments, left to the kernel")                                             \
    X(passed, "other packets, left to the kernel")

enum mill_steer_reason {
#define MILL_STEER_REASON(name, help) MILL_STEER_##name,
    MILL_STEER_REASONS(MILL_STEER_REASON)
#undef MILL_STEER_REASON
        MILL_STEER_REASON_COUNT
};

#endif
