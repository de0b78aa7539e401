/* SPDX-License-Identifier: Apache-2.0 */
/* ICMP (RFC 792, 1122 3.2.2): answers echo requests, rate limited, and takes "unreachable" as a
 * soft error of the connection it quotes (RFC 5927): it never ends an established one, and counts
 * only when the quoted sequence number is in flight. Owner: the net's core. */
#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

enum {
    ICMP_BYTES = 8,
    ECHO_REPLY = 0,
    UNREACHABLE = 3,
    ECHO_REQUEST = 8,
    CODE_PORT = 3,
    CODE_FRAGMENTATION = 4,
    QUOTE_TCP_BYTES = 8, /* ports and sequence number: all that must be quoted */
};

static void answer_echo(struct mill_net *net, struct mill_packet *packet)
{
    if (MILL_COUNT_IF(!mill_bucket_take(&net->icmp, net->now_ns), net->counters.icmp_limited)) {
        return;
    }
    struct mill_frame *frame = mill_ethernet_frame(net, packet->source_mac, MILL_ETHERTYPE_IPV4);
    if (!frame) {
        return;
    }
    uint32_t room = frame->header_capacity - MILL_ETHERNET_BYTES - MILL_IPV4_BYTES;
    if (MILL_COUNT_IF(packet->l4_bytes > room, net->counters.icmp_limited)) {
        /* Longer than a header area: nothing else can carry bytes that are not in an extent. */
        net->link->ops->frame_put(net->link->context, frame);
        return;
    }
    mill_ipv4_header(net, frame, packet->source, MILL_IP_ICMP, packet->l4_bytes);
    uint8_t *icmp = frame->header + MILL_ETHERNET_BYTES + MILL_IPV4_BYTES;
    uint32_t skip = packet->l4_at;
    uint32_t at = 0;
    for (const struct mill_buf *buf = packet->buf; buf && at < packet->l4_bytes; buf = buf->next) {
        uint32_t start = MILL_MIN(skip, buf->size_bytes);
        uint32_t part = MILL_MIN(buf->size_bytes - start, packet->l4_bytes - at);
        memcpy(icmp + at, buf->data + start, part);
        skip -= start;
        at += part;
    }
    icmp[0] = ECHO_REPLY;
    icmp[1] = 0;
    mill_store_be16(icmp + 2, 0);
    uint16_t sum = (uint16_t)~mill_csum_sum(icmp, packet->l4_bytes);
    memcpy(icmp + 2, &sum, sizeof(sum));
    frame->header_bytes = MILL_ETHERNET_BYTES + MILL_IPV4_BYTES + packet->l4_bytes;
    net->counters.icmp_echo++;
    mill_ethernet_send(net, frame);
}

/* RFC 1191 with RFC 5927's check: only for bytes in flight, never below the floor. */
static void fragmentation_needed(struct mill_net *net, struct mill_tcp *tcp, uint32_t mtu)
{
    mtu = MILL_MAX(mtu, (uint32_t)MILL_NET_PMTU_MIN);
    uint32_t options = tcp->timestamps ? MILL_TCP_TIMESTAMP_BYTES : 0;
    uint32_t mss = mtu - MILL_IPV4_BYTES - MILL_TCP_BYTES - options;
    if (mss < tcp->send_mss) {
        tcp->send_mss = mss;
        tcp->cc.mss = mss;
        mill_tcp_enter_loss(net, tcp);
        mill_tcp_activate(net, tcp);
    }
}

static void take_unreachable(struct mill_net *net, struct mill_packet *packet)
{
    const uint8_t *icmp = packet->view + packet->l4_at;
    uint32_t bytes = packet->view_bytes - packet->l4_at;
    if (bytes < ICMP_BYTES + MILL_IPV4_BYTES) {
        net->counters.rx_malformed++;
        return;
    }
    const uint8_t *quoted = icmp + ICMP_BYTES;
    uint32_t header_bytes = (quoted[0] & 15u) * 4u;
    bool malformed = quoted[0] >> 4 != 4 || header_bytes < MILL_IPV4_BYTES ||
                     bytes < ICMP_BYTES + header_bytes + QUOTE_TCP_BYTES;
    if (MILL_COUNT_IF(malformed, net->counters.rx_malformed)) {
        return;
    }
    if (quoted[9] != MILL_IP_TCP || mill_load_be32(quoted + 12) != net->config.address) {
        net->counters.rx_not_ours++;
        return;
    }
    const uint8_t *tcp_header = quoted + header_bytes;
    struct mill_flow_key key = {
        .local = net->config.address,
        .peer = mill_load_be32(quoted + 16),
        .local_port = mill_load_be16(tcp_header),
        .peer_port = mill_load_be16(tcp_header + 2),
    };
    uint32_t index = mill_flow_find(&net->flows, &key);
    if (index == MILL_FLOW_NONE) {
        (void)mill_net_misplaced(net, packet, &key);
        return;
    }
    struct mill_tcp *tcp = &net->connections[index];
    uint32_t seq = mill_load_be32(tcp_header + 4);
    if (mill_seq_lt(seq, tcp->snd_una) || !mill_seq_lt(seq, tcp->snd_nxt)) {
        return; /* quotes nothing that is in flight: a forgery or stale */
    }
    if (icmp[1] == CODE_FRAGMENTATION) {
        if (tcp->state >= MILL_TCP_ESTABLISHED) {
            fragmentation_needed(net, tcp, mill_load_be16(icmp + 6));
        }
        return;
    }
    tcp->soft_error = icmp[1] == CODE_PORT ? -ECONNREFUSED : -EHOSTUNREACH;
}

void mill_icmp_input(struct mill_net *net, struct mill_packet *packet)
{
    if (MILL_COUNT_IF(packet->l4_bytes < ICMP_BYTES, net->counters.rx_malformed)) {
        return;
    }
    uint16_t sum = mill_csum_sum_chain(packet->buf, packet->l4_at, packet->l4_bytes);
    if (MILL_COUNT_IF(sum != 0xffff, net->counters.checksum_errors)) {
        return;
    }
    uint8_t type = packet->view[packet->l4_at];
    if (type == ECHO_REQUEST) {
        answer_echo(net, packet);
    } else if (type == UNREACHABLE) {
        take_unreachable(net, packet);
    } else {
        net->counters.rx_not_ours++;
    }
}
