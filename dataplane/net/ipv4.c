/* SPDX-License-Identifier: Apache-2.0 */
/* IPv4 (RFC 791, 1122 3.2): one address, no forwarding, no reassembly. Owner: the net's core. Input
 * is never asserted: each length is checked against the bytes that are there. */
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/internal.h"

enum {
    OPTION_END = 0,
    OPTION_NOP = 1,
    OPTION_LOOSE_ROUTE = 131,
    OPTION_STRICT_ROUTE = 137,
    DONT_FRAGMENT = 0x4000,
    FRAGMENT_MASK = 0x3fff, /* more fragments, and the offset */
    TTL = 64,
};

/* Source routes are refused (RFC 1122, 3.2.1.8 allows it), other options skipped.
 * ret: 0; 1 source route; -1 malformed. */
static int check_options(const uint8_t *options, uint32_t size_bytes)
{
    uint32_t at = 0;
    while (at < size_bytes && options[at] != OPTION_END) {
        if (options[at] == OPTION_NOP) {
            at++;
            continue;
        }
        if (size_bytes - at < 2 || options[at + 1] < 2 || options[at + 1] > size_bytes - at) {
            return -1;
        }
        if (options[at] == OPTION_LOOSE_ROUTE || options[at] == OPTION_STRICT_ROUTE) {
            return 1;
        }
        at += options[at + 1];
    }
    return 0;
}

/* Addresses that no honest packet comes from: nobody, everybody, groups, and ourselves. */
static bool impossible_source(const struct mill_net *net, uint32_t source)
{
    uint32_t host_mask = net->config.prefix_bits >= 31 ? 0 : UINT32_MAX >> net->config.prefix_bits;
    bool subnet_broadcast = host_mask != 0 && (source | host_mask) == source &&
                            ((source ^ net->config.address) & ~host_mask) == 0;
    return source == 0 || source >= 0xe0000000u || source >> 24 == 127 ||
           source == net->config.address || subnet_broadcast;
}

void mill_ipv4_input(struct mill_net *net, struct mill_packet *packet)
{
    const uint8_t *ip = packet->view + packet->ip_at;
    uint32_t view_bytes = packet->view_bytes - packet->ip_at;
    if (MILL_COUNT_IF(view_bytes < MILL_IPV4_BYTES, net->counters.rx_malformed)) {
        return;
    }
    uint32_t header_bytes = (ip[0] & 15u) * 4u;
    uint32_t total_bytes = mill_load_be16(ip + 2);
    bool malformed = ip[0] >> 4 != 4 || header_bytes < MILL_IPV4_BYTES ||
                     header_bytes > view_bytes || total_bytes < header_bytes ||
                     total_bytes > packet->frame_bytes - packet->ip_at;
    if (MILL_COUNT_IF(malformed, net->counters.rx_malformed)) {
        return;
    }
#ifndef MILL_MUTANT_NET_TRUST_CHECKSUM
    if (MILL_COUNT_IF(mill_csum_sum(ip, header_bytes) != 0xffff, net->counters.checksum_errors)) {
        return;
    }
#endif
    packet->source = mill_load_be32(ip + 12);
    packet->target = mill_load_be32(ip + 16);
    if (MILL_COUNT_IF(packet->target != net->config.address, net->counters.rx_not_ours)) {
        return;
    }
    if (MILL_COUNT_IF(impossible_source(net, packet->source), net->counters.rx_malformed)) {
        return;
    }
    int options = check_options(ip + MILL_IPV4_BYTES, header_bytes - MILL_IPV4_BYTES);
    if (MILL_COUNT_IF(options < 0, net->counters.rx_malformed) ||
        MILL_COUNT_IF(options > 0, net->counters.rx_options)) {
        return;
    }
    if (MILL_COUNT_IF((mill_load_be16(ip + 6) & FRAGMENT_MASK) != 0, net->counters.rx_fragments)) {
        return;
    }
    packet->l4_at = packet->ip_at + header_bytes;
    packet->l4_bytes = total_bytes - header_bytes;
#ifdef MILL_MUTANT_NET_KEEP_PADDING
    packet->l4_bytes = packet->frame_bytes - packet->l4_at;
#endif
    /* The view may hold padding behind the packet: nothing above may read that. */
    packet->view_bytes = MILL_MIN(packet->view_bytes, packet->l4_at + packet->l4_bytes);
    switch (ip[9]) {
    case MILL_IP_TCP:
        mill_tcp_input(net, packet);
        break;
    case MILL_IP_ICMP:
        mill_icmp_input(net, packet);
        break;
    default:
        net->counters.rx_not_ours++;
        break;
    }
}

void mill_ipv4_header(struct mill_net *net, struct mill_frame *frame, uint32_t target,
                      uint8_t protocol, uint32_t payload_bytes)
{
    uint8_t *ip = frame->header + frame->l2_bytes;
    frame->l3_bytes = MILL_IPV4_BYTES;
    frame->flags |= MILL_FRAME_CSUM_IPV4;
    ip[0] = 0x45;
    ip[1] = 0;
    mill_store_be16(ip + 2, (uint16_t)(MILL_IPV4_BYTES + payload_bytes));
    mill_store_be16(ip + 4, net->ip_id++);
    mill_store_be16(ip + 6, DONT_FRAGMENT);
    ip[8] = TTL;
    ip[9] = protocol;
    mill_store_be16(ip + 10, 0);
    mill_store_be32(ip + 12, net->config.address);
    mill_store_be32(ip + 16, target);
}

struct mill_chain mill_ipv4_trim(struct mill_buf *frame, uint32_t skip_bytes, uint32_t size_bytes)
{
    struct mill_chain chain = {0};
    while (frame) {
        struct mill_buf *next = frame->next;
        uint32_t skip = MILL_MIN(skip_bytes, frame->size_bytes);
        skip_bytes -= skip;
        frame->data += skip;
        frame->size_bytes = MILL_MIN(frame->size_bytes - skip, size_bytes);
        size_bytes -= frame->size_bytes;
        if (frame->size_bytes > 0) {
            mill_chain_append(&chain, frame);
        } else {
            frame->free(frame);
        }
        frame = next;
    }
    return chain;
}
