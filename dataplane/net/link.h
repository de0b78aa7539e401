/* SPDX-License-Identifier: Apache-2.0 */
/* What net/ needs of a port: frames in, frames out. dataplane/port implements it over DPDK, the
 * simulation over a modelled link. Nothing here names an mbuf.
 *
 * Thread: the core that owns the queue. Nothing blocks or allocates.
 */
#ifndef MILL_DATAPLANE_LINK_H
#define MILL_DATAPLANE_LINK_H

#include "base/chain.h"
#include "base/ref.h"
#include "dataplane/net/flow.h"
#include "hugepages/loans.h"

enum {
    MILL_FRAME_PIECES_MAX = 15,         /* references per frame; a link's own limit may be lower */
    MILL_FRAME_HEADER_BYTES_MAX = 1024, /* headers plus inlined small pieces */
};

enum {
    /* Transmit: the link must fill these sums (by offload or in software); fields hold 0 and the
     * transport sum the pseudo-header's part. */
    MILL_FRAME_CSUM_IPV4 = 1u << 0,
    MILL_FRAME_CSUM_TCP = 1u << 1,
    MILL_FRAME_TSO = 1u << 2, /* segment_bytes is set; only when caps.tso */
};

/* A frame to send: header bytes written by net, then references in order. */
struct mill_frame {
    uint8_t *header;          /* header_capacity bytes to write into */
    uint32_t header_capacity; /* at least MILL_FRAME_HEADER_BYTES_MAX */
    uint32_t header_bytes;    /* set by net: Ethernet, IPv4, TCP, inlined bytes */
    uint32_t pieces_bytes;    /* sum over pieces */
    uint16_t pieces_count;
    uint16_t segment_bytes; /* TSO: payload per segment */
    uint8_t l2_bytes;
    uint8_t l3_bytes;
    uint8_t l4_bytes;
    uint8_t flags; /* MILL_FRAME_... */
    struct mill_ref pieces[MILL_FRAME_PIECES_MAX];
};

struct mill_link_caps {
    uint8_t mac[6];
    uint16_t mtu;           /* IP bytes per packet */
    uint16_t pieces_max;    /* references that fit behind the header */
    uint16_t inline_bytes;  /* pieces shorter than this are cheaper copied behind the header */
    uint32_t tso_bytes_max; /* 0: no segmentation offload */
    bool rx_csum_verified;  /* buffers carry MILL_BUF_CSUM_GOOD or _BAD; else verify */
    bool rx_csum_trusted;   /* configured: peers leave sums blank, accept all */
    bool kernel_arp;        /* the kernel answers ARP for our address: none is sent or seen here */
};

struct mill_link_ops {
    /* Up to max received frames, each a chain of one or more buffers linked by next (a frame starts
     * at its first buffer's data, Ethernet header first; size_bytes per buffer; flags on the
     * first). ret: frames in ret_frames. */
    uint32_t (*receive)(void *link, struct mill_buf **ret_frames, uint32_t max);
    /* A blank frame, NULL when the pool is empty (counted by the link). */
    struct mill_frame *(*frame_get)(void *link);
    /* Gives back a frame that was never sent. */
    void (*frame_put)(void *link, struct mill_frame *frame);
    /* Hands over frames in order. The link takes one loan per piece for as long as the device can
     * read it. ret: how many were taken; the rest stays the caller's, in order. */
    uint32_t (*send)(void *link, struct mill_frame **frames, uint32_t count);
    /* With caps.kernel_arp: the kernel's neighbour, asked for when it does not know it. Slow path:
     * it enters the kernel, once for a neighbour and some retries. May be NULL: none is known.
     * ret: 0, -EAGAIN not known yet. */
    int (*neighbour)(void *link, uint32_t address, uint8_t ret_mac[6]);

    /* Only where several cores share an address (distribute.h); NULL: all flows are this core's. */

    /* The core took up a connection, half open or in TIME-WAIT too, or has forgotten it. */
    void (*flow_begun)(void *link, const struct mill_flow_key *key);
    void (*flow_ended)(void *link, const struct mill_flow_key *key);
    /* A whole received frame of a connection that this core does not know. ret: true: another core
     * knows it, and the frame is on its way there (or was dropped, counted: its ring was full). */
    bool (*misplaced)(void *link, struct mill_buf *frame, const struct mill_flow_key *key);
};

/* What a link counts for its stack; one writer, the link's core. */
struct mill_link_counts {
    uint64_t misdirected;      /* frames given to another core */
    uint64_t handover_dropped; /* frames for another core whose ring was full */
    uint64_t flows_unshared;   /* connections that other cores cannot find */
};

/* How a core wakes another one that may sleep; from is the calling core. */
struct mill_link_wake {
    void (*wake)(void *context, uint32_t from, uint32_t to);
    void *context;
};

struct mill_link {
    const struct mill_link_ops *ops;
    void *context; /* first argument of ops */
    struct mill_link_caps caps;
    const struct mill_link_counts *counts; /* NULL: it has none */
};

#endif
