/* SPDX-License-Identifier: Apache-2.0 */
/* TCP segments in: checks, the owner of a 4-tuple, and the order of tests of RFC 9293 3.10.7 with
 * RFC 5961 (challenge acknowledgements) and RFC 7323 (PAWS). Owner: the net's core. Segments are
 * validated and counted, never asserted. */
#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

#define CHALLENGE_NS (500 * MILL_NS_PER_MS)          /* per connection */
#define PAWS_IDLE_NS (24ull * 86400 * MILL_NS_PER_S) /* RFC 7323, 5.5 */

static bool checksum_good(const struct mill_net *net, const struct mill_packet *packet)
{
#ifdef MILL_MUTANT_NET_TRUST_CHECKSUM
    return true;
#endif
    const struct mill_link_caps *caps = &net->link->caps;
    if (caps->rx_csum_trusted) {
        return true;
    }
    if (caps->rx_csum_verified && (packet->buf->flags & MILL_BUF_CSUM_BAD)) {
        return false;
    }
    if (caps->rx_csum_verified && (packet->buf->flags & MILL_BUF_CSUM_GOOD)) {
        return true;
    }
    uint16_t sum = mill_csum_add(
        mill_csum_pseudo(packet->source, packet->target, MILL_IP_TCP, (uint16_t)packet->l4_bytes),
        mill_csum_sum_chain(packet->buf, packet->l4_at, packet->l4_bytes));
    return sum == 0xffff;
}

/* ret: header bytes; -1: counted and to be dropped. The packet keeps its buffers. */
static int parse(struct mill_net *net, struct mill_packet *packet, struct mill_segment *segment)
{
    const uint8_t *tcp = packet->view + packet->l4_at;
    if (MILL_COUNT_IF(packet->l4_bytes < MILL_TCP_BYTES, net->counters.rx_malformed)) {
        return -1;
    }
    uint32_t header_bytes = (uint32_t)(tcp[12] >> 4) * 4u;
    if (MILL_COUNT_IF(header_bytes < MILL_TCP_BYTES || header_bytes > packet->l4_bytes,
                      net->counters.rx_malformed)) {
        return -1;
    }
    if (MILL_COUNT_IF(!checksum_good(net, packet), net->counters.checksum_errors)) {
        return -1;
    }
    segment->key = (struct mill_flow_key){
        .local = packet->target,
        .peer = packet->source,
        .local_port = mill_load_be16(tcp + 2),
        .peer_port = mill_load_be16(tcp),
    };
    segment->seq = mill_load_be32(tcp + 4);
    segment->ack = mill_load_be32(tcp + 8);
    segment->flags = tcp[13];
    segment->window = mill_load_be16(tcp + 14);
    memcpy(segment->mac, packet->source_mac, sizeof(segment->mac));
    bool syn = (segment->flags & MILL_TCP_SYN) != 0;
    int rc = mill_tcp_options_parse(tcp + MILL_TCP_BYTES, header_bytes - MILL_TCP_BYTES, syn,
                                    &segment->options);
    if (MILL_COUNT_IF(rc < 0 || segment->key.peer_port == 0 || segment->key.local_port == 0,
                      net->counters.rx_malformed)) {
        return -1;
    }
    return (int)header_bytes;
}

/* The segment owns the packet's buffers from here on. */
static void keep_payload(struct mill_packet *packet, uint32_t header_bytes,
                         struct mill_segment *segment)
{
    segment->payload =
        mill_ipv4_trim(packet->buf, packet->l4_at + header_bytes, packet->l4_bytes - header_bytes);
    packet->buf = NULL;
}

static const struct mill_listener *find_listener(const struct mill_net *net,
                                                 const struct mill_flow_key *key)
{
    for (uint32_t i = 0; i < net->listeners_count; i++) {
        const struct mill_listener *listener = &net->listeners[i];
        if (listener->port == key->local_port &&
            (listener->address == 0 || listener->address == key->local)) {
            return listener;
        }
    }
    return NULL;
}

void mill_tcp_input(struct mill_net *net, struct mill_packet *packet)
{
    struct mill_segment segment = {0};
    int header_bytes = parse(net, packet, &segment);
    if (header_bytes < 0) {
        return;
    }
    uint32_t index = mill_flow_find(&net->flows, &segment.key);
    if (MILL_LIKELY(index != MILL_FLOW_NONE)) {
        keep_payload(packet, (uint32_t)header_bytes, &segment);
        mill_tcp_segment(net, &net->connections[index], &segment);
        mill_chain_clear(&segment.payload);
        return;
    }
    uint32_t half = mill_flow_find(&net->half_open_flows, &segment.key);
    uint32_t wait = mill_flow_find(&net->time_wait_flows, &segment.key);
    if (half == MILL_FLOW_NONE && wait == MILL_FLOW_NONE &&
        mill_net_misplaced(net, packet, &segment.key)) {
        return;
    }
    keep_payload(packet, (uint32_t)header_bytes, &segment);
    bool syn = (segment.flags & (MILL_TCP_SYN | MILL_TCP_ACK | MILL_TCP_RST)) == MILL_TCP_SYN;
    if (half != MILL_FLOW_NONE) {
        mill_half_open_segment(net, &net->half_open[half], &segment);
    } else if (wait == MILL_FLOW_NONE || mill_time_wait_segment(net, wait, &segment)) {
        const struct mill_listener *listener = find_listener(net, &segment.key);
        if (syn && listener) {
            mill_half_open_syn(net, &segment, listener->listener);
        } else {
            mill_tcp_refuse(net, &segment);
        }
    }
    mill_chain_clear(&segment.payload);
}

static void challenge(struct mill_net *net, struct mill_tcp *tcp)
{
    bool early = tcp->challenge_ns != 0 && net->now_ns - tcp->challenge_ns < CHALLENGE_NS;
    if (early || !mill_bucket_take(&net->challenges, net->now_ns)) {
        return;
    }
    tcp->challenge_ns = net->now_ns;
    net->counters.challenge_acks++;
    mill_tcp_send_ack(net, tcp);
}

/* RFC 7323, 5.3. ret: false: drop it. */
static bool timestamp_good(struct mill_net *net, struct mill_tcp *tcp,
                           const struct mill_segment *segment)
{
    if (!tcp->timestamps || (segment->flags & MILL_TCP_RST)) {
        return true;
    }
    if (!segment->options.has_timestamp) {
        net->counters.paws_dropped++;
        return false; /* silently: RFC 7323, 3.2 */
    }
#ifdef MILL_MUTANT_NET_NO_PAWS
    return true;
#endif
    bool old = mill_seq_lt(segment->options.ts_value, tcp->ts_recent) &&
               net->now_ns - tcp->ts_recent_ns < PAWS_IDLE_NS;
    if (MILL_COUNT_IF(old, net->counters.paws_dropped)) {
        mill_tcp_send_ack(net, tcp);
        return false;
    }
    return true;
}

static void drop_tail(struct mill_chain *chain, uint32_t keep_bytes)
{
    struct mill_buf *buf = chain->head;
    *chain = mill_ipv4_trim(buf, 0, keep_bytes);
}

/* Cuts payload, SYN and FIN to the window (RFC 9293, 3.10.7.4, first). ret: false: nothing of it is
 * acceptable; it was answered. */
static bool cut_to_window(struct mill_net *net, struct mill_tcp *tcp, struct mill_segment *segment)
{
    uint32_t length = segment->payload.size_bytes + ((segment->flags & MILL_TCP_FIN) != 0);
    uint32_t end = segment->seq + length;
    bool zero_window_data =
        length > 0 && tcp->rcv_adv == tcp->rcv_nxt && segment->seq == tcp->rcv_nxt;
    bool beyond = length == 0 ? mill_seq_lt(tcp->rcv_adv, segment->seq)
                              : !mill_seq_lt(segment->seq, tcp->rcv_adv) && !zero_window_data;
    bool before =
        length == 0 ? mill_seq_lt(segment->seq, tcp->rcv_nxt) : mill_seq_le(end, tcp->rcv_nxt);
    if (MILL_UNLIKELY(beyond || before)) {
        net->counters.window_exceeded += beyond;
        net->counters.duplicates += before && length > 0;
        mill_tcp_send_ack(net, tcp);
        return false;
    }
    if (mill_seq_lt(segment->seq, tcp->rcv_nxt)) {
        uint32_t old = tcp->rcv_nxt - segment->seq;
        mill_chain_consume(&segment->payload, MILL_MIN(old, segment->payload.size_bytes));
        segment->seq = tcp->rcv_nxt;
    }
    if (mill_seq_lt(tcp->rcv_adv, segment->seq + segment->payload.size_bytes)) {
        net->counters.window_exceeded++;
        drop_tail(&segment->payload, tcp->rcv_adv - segment->seq);
        segment->flags &= (uint8_t)~MILL_TCP_FIN;
        tcp->ack_now = true;
    }
    return true;
}

/* RFC 5961, 3: only the exact number resets. */
static void take_rst(struct mill_net *net, struct mill_tcp *tcp, const struct mill_segment *segment)
{
#ifndef MILL_MUTANT_NET_RST_IN_WINDOW
    if (segment->seq != tcp->rcv_nxt) {
        if (mill_seq_lt(tcp->rcv_nxt, segment->seq) && mill_seq_lt(segment->seq, tcp->rcv_adv)) {
            challenge(net, tcp);
        }
        return;
    }
#endif
    net->counters.resets_in++;
    tcp->connect_error = -ECONNREFUSED;
    mill_tcp_finish(net, tcp, MILL_END_RESET);
}

/* The peer's FIN at fin_seq, once everything before it is here. */
static void take_fin(struct mill_net *net, struct mill_tcp *tcp)
{
    if (!tcp->fin_known || tcp->fin_received || tcp->rcv_nxt != tcp->fin_seq) {
        return;
    }
    tcp->fin_received = true;
    tcp->rcv_nxt++;
    tcp->rcv_adv = mill_seq_max(tcp->rcv_adv, tcp->rcv_nxt);
    tcp->ack_now = true;
    tcp->stream.rx_ended = true;
    mill_tcp_event(net, tcp, MILL_EVENT_RECEIVED);
    if (tcp->state == MILL_TCP_ESTABLISHED) {
        tcp->state = MILL_TCP_CLOSE_WAIT;
    } else if (tcp->state == MILL_TCP_FIN_WAIT_1) {
        tcp->state = MILL_TCP_CLOSING;
    } else if (tcp->state == MILL_TCP_FIN_WAIT_2) {
        mill_tcp_send_ack(net, tcp);
        mill_time_wait_enter(net, tcp);
        mill_tcp_finish(net, tcp, MILL_END_CLOSED);
    }
}

static void take_payload(struct mill_net *net, struct mill_tcp *tcp, struct mill_segment *segment)
{
    uint32_t bytes = segment->payload.size_bytes;
    if (segment->flags & MILL_TCP_FIN) {
        tcp->fin_known = true;
        tcp->fin_seq = segment->seq + bytes;
        tcp->ack_now = true;
    }
    if (bytes > 0 && tcp->deaf) {
        /* Nobody reads any more: acknowledged and dropped, so that the peer reads our bytes to the
         * end (see stream_close). The FIN-WAIT-2 time bounds it; after that it is told by a reset
         * that nothing arrived (RFC 1122, 4.2.2.13). */
        if (segment->seq == tcp->rcv_nxt) {
            tcp->rcv_nxt += bytes;
        }
        tcp->ack_now = true;
    } else if (bytes > 0 && !tcp->fin_received) {
        mill_tcp_receive(net, tcp, segment->seq, &segment->payload);
    }
    take_fin(net, tcp);
}

/* ret: false: the acknowledgement forbids to go on (RFC 5961, 5). */
static bool ack_good(struct mill_net *net, struct mill_tcp *tcp, const struct mill_segment *segment)
{
    uint32_t window_max = MILL_MAX(tcp->snd_wnd_max, 65535u);
    if (mill_seq_lt(tcp->snd_nxt, segment->ack) ||
        mill_seq_lt(segment->ack, tcp->snd_una - window_max)) {
        challenge(net, tcp);
        return false;
    }
    return true;
}

static void update_ts_recent(struct mill_net *net, struct mill_tcp *tcp,
                             const struct mill_segment *segment, uint32_t seq)
{
    if (tcp->timestamps && segment->options.has_timestamp && mill_seq_le(seq, tcp->last_ack_sent) &&
        mill_seq_le(tcp->ts_recent, segment->options.ts_value)) {
        tcp->ts_recent = segment->options.ts_value;
        tcp->ts_recent_ns = net->now_ns;
    }
}

/* Our FIN was acknowledged: the states after it. */
static void after_fin_acked(struct mill_net *net, struct mill_tcp *tcp)
{
    if (!tcp->closing || tcp->snd_una != mill_tcp_queue_end(tcp)) {
        return;
    }
    if (tcp->state == MILL_TCP_FIN_WAIT_1) {
        tcp->state = MILL_TCP_FIN_WAIT_2;
        mill_tcp_arm_fin_wait(net, tcp);
    } else if (tcp->state == MILL_TCP_CLOSING) {
        mill_time_wait_enter(net, tcp);
        mill_tcp_finish(net, tcp, MILL_END_CLOSED);
    } else if (tcp->state == MILL_TCP_LAST_ACK) {
        mill_tcp_finish(net, tcp, MILL_END_CLOSED);
    }
}

void mill_tcp_segment(struct mill_net *net, struct mill_tcp *tcp, struct mill_segment *segment)
{
    if (tcp->state == MILL_TCP_SYN_SENT) {
        mill_tcp_syn_sent(net, tcp, segment);
        return;
    }
    if (!timestamp_good(net, tcp, segment)) {
        return;
    }
    if (segment->flags & MILL_TCP_RST) {
        take_rst(net, tcp, segment);
        return;
    }
    if (segment->flags & MILL_TCP_SYN) {
        challenge(net, tcp); /* RFC 5961, 4: wherever its number lies */
        return;
    }
    uint32_t seq = segment->seq;
    uint32_t payload_bytes = segment->payload.size_bytes;
    if (!cut_to_window(net, tcp, segment)) {
        return;
    }
    if (!(segment->flags & MILL_TCP_ACK) || !ack_good(net, tcp, segment)) {
        return;
    }
    update_ts_recent(net, tcp, segment, seq);
    mill_tcp_touch_idle(net, tcp);
    if (net->link->caps.kernel_arp) {
        /* A peer or router that moved: ARP would tell, and is not seen here. */
        memcpy(tcp->peer_mac, segment->mac, sizeof(tcp->peer_mac));
        tcp->hint_valid = true;
    }
    if (tcp->state == MILL_TCP_SYN_RCVD) {
        if (segment->ack != tcp->iss + 1) {
            return;
        }
        mill_tcp_established(net, tcp);
    }
    mill_tcp_ack(net, tcp, segment, payload_bytes);
    after_fin_acked(net, tcp);
    if (tcp->state != MILL_TCP_CLOSED) {
        take_payload(net, tcp, segment);
    }
    if (tcp->state != MILL_TCP_CLOSED) {
        mill_tcp_activate(net, tcp);
    }
}
