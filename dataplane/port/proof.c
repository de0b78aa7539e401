/* SPDX-License-Identifier: Apache-2.0 */
/* The start-up self-test of a card: does it read the log's own bytes when a frame refers to them?
 * A missing or wrong DMA map sends other bytes, and the driver reports success
 * (docs/decisions/0008), so the only witness is who receives the frames: a neighbour that answers
 * ping returns what it got (RFC 792), and drops what does not match the ICMP sum, which is made
 * here from the bytes that should be read.
 *
 *   ARP -> ping with bytes of EAL's memory (the control) -> pings with pieces of canary extents
 *
 * Frames go the way of all frames: mill_port_send, references split at page borders, loans.
 * Start-up only, on the main thread, before a core owns a queue.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_icmp.h>
#include <rte_ip.h>

#include "dataplane/port/csum.h"
#include "dataplane/port/port_internal.h"

enum {
    LINK_WAIT_MS = 5000, /* negotiation of a copper link takes up to 3 s */
    ANSWER_WAIT_MS = 300,
    TRIES = 10, /* a neighbour, or this machine, may be busy for a second or two */
    PAYLOAD_MAX = 1400,
    SMALL_PIECE = 48,
    HEADER_BYTES =
        MILL_PORT_ETHERNET_BYTES + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_icmp_hdr),
    TTL = 64,
};

struct proof {
    struct mill_port *port;
    struct mill_port_queue *queue; /* the first: its loans pay */
    struct rte_ether_addr peer;    /* its address, once known */
    bool peer_known;
    uint16_t ident;
    uint16_t sequence;
    bool answered; /* the ping on the way */
    bool differs;  /* an answer had other bytes */
    uint8_t sent[PAYLOAD_MAX];
    uint32_t sent_bytes;
};

/* --- answers ------------------------------------------------------------------------------------
 */

static struct mill_frame *blank(struct proof *proof, const struct rte_ether_addr *to, uint16_t type)
{
    struct mill_frame *frame = mill_port_frame_get(proof->queue);
    if (frame != NULL) {
        struct rte_ether_hdr *ethernet = (void *)frame->header;
        ethernet->dst_addr = *to;
        memcpy(&ethernet->src_addr, proof->port->mac, RTE_ETHER_ADDR_LEN);
        ethernet->ether_type = rte_cpu_to_be_16(type);
        frame->header_bytes = MILL_PORT_ETHERNET_BYTES;
        frame->l2_bytes = MILL_PORT_ETHERNET_BYTES;
    }
    return frame;
}

static void transmit(struct proof *proof, struct mill_frame *frame)
{
    if (mill_port_send(proof->queue, &frame, 1) == 0) {
        mill_port_frame_put(proof->queue, frame); /* full: the next try sends another */
    }
}

static void send_arp(struct proof *proof, uint16_t opcode, const struct rte_ether_addr *to,
                     uint32_t to_be)
{
    static const struct rte_ether_addr all = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
    struct mill_frame *frame =
        blank(proof, opcode == RTE_ARP_OP_REQUEST ? &all : to, RTE_ETHER_TYPE_ARP);
    if (frame == NULL) {
        return;
    }
    struct rte_arp_hdr arp = {
        .arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER),
        .arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4),
        .arp_hlen = RTE_ETHER_ADDR_LEN,
        .arp_plen = 4,
        .arp_opcode = rte_cpu_to_be_16(opcode),
        .arp_data = {.arp_sip = rte_cpu_to_be_32(proof->port->options.address), .arp_tip = to_be},
    };
    memcpy(&arp.arp_data.arp_sha, proof->port->mac, RTE_ETHER_ADDR_LEN);
    if (to != NULL) {
        arp.arp_data.arp_tha = *to;
    }
    memcpy(frame->header + MILL_PORT_ETHERNET_BYTES, &arp, sizeof(arp));
    frame->header_bytes += (uint32_t)sizeof(arp);
    transmit(proof, frame);
}

static void take_arp(struct proof *proof, struct rte_mbuf *mbuf)
{
    struct rte_arp_hdr copy;
    const struct rte_arp_hdr *arp =
        rte_pktmbuf_read(mbuf, MILL_PORT_ETHERNET_BYTES, sizeof(copy), &copy);
    if (arp == NULL) {
        return;
    }
    memcpy(&copy, arp, sizeof(copy));
    if (copy.arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REPLY) &&
        copy.arp_data.arp_sip == rte_cpu_to_be_32(proof->port->options.dma_peer)) {
        proof->peer = copy.arp_data.arp_sha;
        proof->peer_known = true;
    }
    /* The neighbour may have to ask before it can answer us. */
    if (copy.arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REQUEST) &&
        copy.arp_data.arp_tip == rte_cpu_to_be_32(proof->port->options.address)) {
        send_arp(proof, RTE_ARP_OP_REPLY, &copy.arp_data.arp_sha, copy.arp_data.arp_sip);
    }
}

static void take_echo(struct proof *proof, struct rte_mbuf *mbuf)
{
    uint8_t head[HEADER_BYTES];
    uint8_t copy[PAYLOAD_MAX];
    struct rte_ipv4_hdr ipv4;
    struct rte_icmp_hdr icmp;
    const uint8_t *at = rte_pktmbuf_read(mbuf, 0, sizeof(head), head);
    if (at == NULL) {
        return;
    }
    memcpy(&ipv4, at + MILL_PORT_ETHERNET_BYTES, sizeof(ipv4));
    memcpy(&icmp, at + MILL_PORT_ETHERNET_BYTES + sizeof(ipv4), sizeof(icmp));
    if (ipv4.version_ihl != RTE_IPV4_VHL_DEF || ipv4.next_proto_id != IPPROTO_ICMP ||
        ipv4.src_addr != rte_cpu_to_be_32(proof->port->options.dma_peer) ||
        icmp.icmp_type != RTE_IP_ICMP_ECHO_REPLY || icmp.icmp_ident != proof->ident ||
        icmp.icmp_seq_nb != rte_cpu_to_be_16(proof->sequence)) {
        return;
    }
    const uint8_t *got = rte_pktmbuf_read(mbuf, HEADER_BYTES, proof->sent_bytes, copy);
    proof->answered = true;
    proof->differs = got == NULL || memcmp(got, proof->sent, proof->sent_bytes) != 0;
}

static void take_frames(struct proof *proof)
{
    struct rte_mbuf *mbufs[MILL_PORT_BURST];
    for (uint16_t queue = 0; queue < proof->port->rx_queues; queue++) {
        uint16_t count = rte_eth_rx_burst(proof->port->port_id, queue, mbufs, MILL_PORT_BURST);
        for (uint16_t i = 0; i < count; i++) {
            struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(mbufs[i], struct rte_ether_hdr *);
            if (ethernet->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP)) {
                take_arp(proof, mbufs[i]);
            } else if (ethernet->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)) {
                take_echo(proof, mbufs[i]);
            }
        }
        rte_pktmbuf_free_bulk(mbufs, count);
    }
}

/* ret: true when *done became so in time. */
static bool wait_for(struct proof *proof, const bool *done)
{
    uint64_t end = rte_get_timer_cycles() + rte_get_timer_hz() * ANSWER_WAIT_MS / 1000;
    do {
        take_frames(proof);
        if (*done) {
            return true;
        }
        rte_delay_us_sleep(1000);
    } while (rte_get_timer_cycles() < end);
    return false;
}

/* --- questions ----------------------------------------------------------------------------------
 */

static void fill_headers(const struct proof *proof, struct mill_frame *frame)
{
    struct mill_csum csum = {0};
    struct rte_ipv4_hdr ipv4 = {
        .version_ihl = RTE_IPV4_VHL_DEF,
        .total_length = rte_cpu_to_be_16(
            (uint16_t)(HEADER_BYTES - MILL_PORT_ETHERNET_BYTES + proof->sent_bytes)),
        .time_to_live = TTL,
        .next_proto_id = IPPROTO_ICMP,
        .src_addr = rte_cpu_to_be_32(proof->port->options.address),
        .dst_addr = rte_cpu_to_be_32(proof->port->options.dma_peer),
    };
    struct rte_icmp_hdr icmp = {
        .icmp_type = RTE_IP_ICMP_ECHO_REQUEST,
        .icmp_ident = proof->ident,
        .icmp_seq_nb = rte_cpu_to_be_16(proof->sequence),
    };
    mill_csum_add(&csum, &icmp, sizeof(icmp));
    mill_csum_add(&csum, proof->sent, proof->sent_bytes);
    icmp.icmp_cksum = mill_csum_end(&csum);
    uint8_t *to = frame->header + MILL_PORT_ETHERNET_BYTES;
    memcpy(to, &ipv4, sizeof(ipv4));
    memcpy(to + sizeof(ipv4), &icmp, sizeof(icmp));
    frame->header_bytes = HEADER_BYTES;
    frame->l3_bytes = sizeof(ipv4);
    frame->flags = MILL_FRAME_CSUM_IPV4;
}

/* One ping whose payload are the pieces, or without pieces the bytes of proof->sent. */
static bool ping(struct proof *proof, const struct mill_ref *pieces, uint16_t count)
{
    proof->answered = false;
    proof->sequence++;
    for (uint16_t i = 0; i < count; i++) {
        const uint8_t *from = mill_ref_data(proof->queue->arena_base, &pieces[i]);
        memcpy(proof->sent + proof->sent_bytes, from, pieces[i].size_bytes);
        proof->sent_bytes += pieces[i].size_bytes;
    }
    for (int i = 0; i < TRIES; i++) {
        struct mill_frame *frame = blank(proof, &proof->peer, RTE_ETHER_TYPE_IPV4);
        if (frame != NULL) {
            fill_headers(proof, frame);
            if (count == 0) {
                memcpy(frame->header + frame->header_bytes, proof->sent, proof->sent_bytes);
                frame->header_bytes += proof->sent_bytes;
            }
            if (count > 0) {
                memcpy(frame->pieces, pieces, count * sizeof(pieces[0]));
            }
            frame->pieces_count = count;
            frame->pieces_bytes = count > 0 ? proof->sent_bytes : 0;
            transmit(proof, frame);
        }
        if (wait_for(proof, &proof->answered)) {
            return !proof->differs;
        }
    }
    return false;
}

static void scribble(uint8_t *to, uint64_t size_bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < size_bytes; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(seed >> 56);
    }
}

/* Pings from one canary extent: from its start, across each border of a huge page inside, and from
 * as many small pieces as a frame may have. */
static bool canary_returns(struct proof *proof, const struct mill_ref *canary)
{
    struct mill_ref pieces[MILL_FRAME_PIECES_MAX];
    uint32_t longest = MILL_MIN((uint32_t)PAYLOAD_MAX, (uint32_t)proof->port->mtu - HEADER_BYTES +
                                                           MILL_PORT_ETHERNET_BYTES);
    uint16_t count = proof->queue->link.caps.pieces_max; /* at most MILL_FRAME_PIECES_MAX */
    scribble(mill_ref_data(proof->queue->arena_base, canary), canary->size_bytes, rte_rdtsc());
    for (uint64_t border = 0; border < canary->size_bytes; border += MILL_PORT_PAGE_BYTES) {
        pieces[0] = *canary;
        pieces[0].pos_bytes = (uint32_t)(border == 0 ? 0 : border - longest / 2);
        pieces[0].size_bytes = longest;
        proof->sent_bytes = 0;
        if (!ping(proof, pieces, 1)) {
            return false;
        }
    }
    for (uint16_t i = 0; i < count; i++) {
        pieces[i] = *canary;
        pieces[i].size_bytes = MILL_MIN((uint32_t)SMALL_PIECE, longest / count);
        pieces[i].pos_bytes =
            canary->size_bytes / (count + 1u) * (i + 1u) - (i & 1); /* odd places, too */
    }
    proof->sent_bytes = 0;
    return ping(proof, pieces, count);
}

/* --- the test -----------------------------------------------------------------------------------
 */

static bool wait_link(const struct mill_port *port)
{
    struct rte_eth_link link = {.link_status = RTE_ETH_LINK_DOWN};
    for (int i = 0; i < LINK_WAIT_MS / 10; i++) {
        if (rte_eth_link_get_nowait(port->port_id, &link) == 0 &&
            link.link_status == RTE_ETH_LINK_UP) {
            return true;
        }
        rte_delay_us_sleep(10000);
    }
    return false;
}

static int find_peer(struct proof *proof)
{
    for (int i = 0; i < TRIES; i++) {
        send_arp(proof, RTE_ARP_OP_REQUEST, NULL, rte_cpu_to_be_32(proof->port->options.dma_peer));
        if (wait_for(proof, &proof->peer_known)) {
            return 0;
        }
    }
    return -EHOSTUNREACH;
}

static int fail_peer(const struct mill_port *port, const char *what, struct mill_report *report)
{
    uint32_t peer = port->options.dma_peer;
    return mill_fail(report, -EHOSTUNREACH,
                     "%u.%u.%u.%u %s; name a neighbour that answers ping: dpdk.port.%s.dma.peer",
                     peer >> 24, peer >> 16 & 255, peer >> 8 & 255, peer & 255, what,
                     port->options.name);
}

int mill_port_proof(struct mill_port *port, struct mill_report *report)
{
    struct proof proof = {
        .port = port,
        .queue = &port->queues[0],
        .ident = (uint16_t)rte_rdtsc(),
        .sent_bytes = SMALL_PIECE,
    };
    if (port->options.dma_peer == 0 || port->options.canaries_count == 0) {
        return mill_fail(report, -EDESTADDRREQ,
                         "nobody is named who returns bytes of the self-test; set dpdk.port.%s."
                         "dma.peer (or .gateway) to a neighbour that answers ping",
                         port->options.name);
    }
    if (!wait_link(port)) {
        return mill_fail(report, -ENETDOWN,
                         "its link is down, so the self-test could not run; "
                         "restart when it is up");
    }
    if (find_peer(&proof) < 0) {
        return fail_peer(port, "does not answer ARP", report);
    }
    scribble(proof.sent, proof.sent_bytes, rte_rdtsc());
    if (!ping(&proof, NULL, 0)) {
        return fail_peer(port, "does not answer ping", report);
    }
    for (uint32_t i = 0; i < port->options.canaries_count; i++) {
#ifdef MILL_MUTANT_PORT_PROOF_BLIND
        break;
#endif
        if (!canary_returns(&proof, &port->options.canaries[i])) {
            return mill_fail(report, -EIO,
                             "it does not send what lies in the arena, although the map was "
                             "accepted; dmesg | grep -i -e DMAR -e AMD-Vi shows its faults");
        }
    }
    return 0;
}
