/* SPDX-License-Identifier: Apache-2.0 */
/* Active opens: SYN-SENT (RFC 9293, 3.10.7.3), simultaneous open, port choice (RFC 6056), and what
 * both ways of opening share: initial numbers (RFC 6528) and negotiated options. Owner: the net's
 * core. */
#include <errno.h>
#include <string.h>

#include "base/siphash.h"
#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

uint32_t mill_tcp_isn(const struct mill_net *net, const struct mill_flow_key *key)
{
    uint32_t clock = (uint32_t)(net->now_ns / (4 * MILL_NS_PER_US));
    return clock + (uint32_t)mill_siphash(net->config.secret, key, sizeof(*key));
}

uint32_t mill_tcp_ts_offset(const struct mill_net *net, const struct mill_flow_key *key)
{
    const uint64_t secret[2] = {net->config.secret[0] ^ net->config.random_seed,
                                net->config.secret[1]};
    return (uint32_t)mill_siphash(secret, key, sizeof(*key));
}

uint32_t mill_tcp_mss_ours(const struct mill_net *net)
{
    return (uint32_t)net->link->caps.mtu - MILL_IPV4_BYTES - MILL_TCP_BYTES;
}

uint8_t mill_tcp_wscale_ours(const struct mill_net *net)
{
    uint8_t scale = 0;
    while (scale < MILL_TCP_WSCALE_MAX && net->config.rx_window_max >> scale > 65535) {
        scale++;
    }
    return scale;
}

void mill_tcp_negotiated(struct mill_tcp *tcp, uint16_t mss, bool has_wscale, uint8_t wscale,
                         bool timestamps, bool sack_ok)
{
    const struct mill_net *net = mill_tcp_net(tcp);
    tcp->timestamps = timestamps;
    tcp->sack_ok = sack_ok;
    tcp->snd_wscale = has_wscale ? wscale : 0;
    tcp->rcv_wscale = has_wscale ? mill_tcp_wscale_ours(net) : 0;
    tcp->send_mss =
        MILL_MIN(MILL_MAX((uint32_t)mss, (uint32_t)MILL_TCP_MSS_MIN), mill_tcp_mss_ours(net));
    if (timestamps) {
        tcp->send_mss -= MILL_TCP_TIMESTAMP_BYTES;
    }
    tcp->stream.rx_bytes_max = net->config.rx_window_max;
    if (!has_wscale) {
        tcp->stream.rx_bytes_max = MILL_MIN(tcp->stream.rx_bytes_max, 65535u);
        tcp->rx_limit = MILL_MIN(tcp->rx_limit, 65535u);
    }
    tcp->cc.ops->start(&tcp->cc, tcp->send_mss);
    if (tcp->syn_again) {
        tcp->cc.cwnd_bytes = tcp->send_mss; /* RFC 5681, 3.1 */
    }
}

void mill_tcp_established(struct mill_net *net, struct mill_tcp *tcp)
{
    tcp->state = MILL_TCP_ESTABLISHED;
    tcp->snd_una = tcp->iss + 1;
    tcp->rto_due_ns = MILL_NEVER;
    tcp->last_send_ns = net->now_ns;
    tcp->progress_ns = net->now_ns;
    tcp->rtt.backoff = 0;
    if (tcp->syn_again) {
        tcp->rtt.rto_us = MILL_RTO_AFTER_SYN_US; /* RFC 6298, 5.7 */
    }
    net->counters.established++;
    mill_kept_begin(net, tcp);
    mill_tcp_touch_idle(net, tcp);
    if (tcp->active_open) {
        mill_tcp_event(net, tcp, MILL_EVENT_CONNECTED);
    } else {
        mill_tcp_event(net, tcp, MILL_EVENT_ACCEPTED);
    }
}

static bool port_free(const struct mill_net *net, const struct mill_flow_key *key)
{
    return mill_flow_find(&net->flows, key) == MILL_FLOW_NONE &&
           mill_flow_find(&net->time_wait_flows, key) == MILL_FLOW_NONE &&
           mill_flow_find(&net->half_open_flows, key) == MILL_FLOW_NONE;
}

/* RFC 6056, algorithm 3: a secret offset per destination and a common counter. */
static int choose_port(struct mill_net *net, struct mill_flow_key *key)
{
    key->local_port = 0;
    uint32_t offset = (uint32_t)mill_siphash(net->config.secret, key, sizeof(*key));
    uint32_t count = 1u + net->config.own_port_last - net->config.own_port_first;
#ifdef MILL_MUTANT_NET_OWN_PORT_ANY
    count = UINT16_MAX - net->config.own_port_first;
#endif
    for (uint32_t tries = 0; tries < count; tries++) {
        key->local_port =
            (uint16_t)(net->config.own_port_first + (offset + net->port_next++) % count);
        if (port_free(net, key)) {
            return 0;
        }
    }
    return -EADDRNOTAVAIL;
}

int mill_tcp_connect(struct mill_stream_maker *maker, const uint8_t address[16], uint16_t port,
                     void *user, struct mill_stream **ret_stream)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    struct mill_net *net = mill_net_of(maker);
    if (memcmp(address, mapped, sizeof(mapped)) != 0) {
        return -EAFNOSUPPORT;
    }
    struct mill_flow_key key = {
        .local = net->config.address,
        .peer = (uint32_t)address[12] << 24 | (uint32_t)address[13] << 16 |
                (uint32_t)address[14] << 8 | address[15],
        .peer_port = port,
    };
    if (mill_arp_next_hop(net, key.peer) == 0) {
        return -ENETUNREACH;
    }
    if (net->free_count == 0) {
        net->maker.stats.refused++;
        return -ENFILE;
    }
    int rc = choose_port(net, &key);
    if (rc < 0) {
        return rc;
    }
    struct mill_tcp *tcp = mill_tcp_new(net, &key, mill_tcp_isn(net, &key), 0);
    tcp->active_open = true;
    tcp->state = MILL_TCP_SYN_SENT;
    tcp->stream.user = user;
    tcp->ts_offset = mill_tcp_ts_offset(net, &key);
    tcp->syn_pending = true;
    mill_tcp_arm_rto(net, tcp, true);
    mill_tcp_activate(net, tcp);
    *ret_stream = &tcp->stream;
    return 0;
}

static void take_syn(struct mill_net *net, struct mill_tcp *tcp, const struct mill_segment *segment)
{
    const struct mill_tcp_options *options = &segment->options;
    tcp->irs = segment->seq;
    tcp->rcv_nxt = segment->seq + 1;
    tcp->rcv_adv = tcp->rcv_nxt + MILL_MIN(tcp->rx_limit, 65535u);
    tcp->last_ack_sent = tcp->rcv_nxt;
    tcp->ts_recent = options->ts_value;
    tcp->ts_recent_ns = net->now_ns;
    mill_tcp_negotiated(tcp, options->has_mss ? options->mss : MILL_TCP_MSS_DEFAULT,
                        options->has_wscale, options->wscale, options->has_timestamp,
                        options->sack_permitted);
    tcp->snd_wnd = segment->window; /* never scaled in a SYN */
    tcp->snd_wnd_max = segment->window;
    tcp->snd_wl1 = segment->seq;
    tcp->snd_wl2 = segment->ack;
}

void mill_tcp_syn_sent(struct mill_net *net, struct mill_tcp *tcp, struct mill_segment *segment)
{
    bool has_ack = (segment->flags & MILL_TCP_ACK) != 0;
    if (has_ack && segment->ack != tcp->iss + 1) {
        mill_tcp_refuse(net, segment);
        return;
    }
    if (segment->flags & MILL_TCP_RST) {
        if (has_ack) {
            net->counters.resets_in++;
            tcp->connect_error = -ECONNREFUSED;
            mill_tcp_finish(net, tcp, MILL_END_RESET);
        }
        return;
    }
    if (!(segment->flags & MILL_TCP_SYN)) {
        return;
    }
    take_syn(net, tcp, segment);
    if (has_ack) {
        if (!tcp->syn_again) {
            uint64_t trip_ns = net->now_ns - tcp->last_send_ns;
            mill_rtt_sample(&tcp->rtt, (uint32_t)(trip_ns / MILL_NS_PER_US));
        }
        mill_tcp_established(net, tcp);
        mill_tcp_send_ack(net, tcp);
    } else {
        tcp->state = MILL_TCP_SYN_RCVD; /* both opened at once */
        tcp->syn_pending = true;
        mill_tcp_activate(net, tcp);
    }
}
