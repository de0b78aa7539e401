/* SPDX-License-Identifier: Apache-2.0 */
/* Passive opens before the third segment: a small bounded table, so that a flood of SYNs costs
 * neither connections nor established flows. Owner: the net's core. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

/* When the table is full, an entry that was silent for this long gives way to a new SYN. */
#define GIVE_WAY_NS (1 * MILL_NS_PER_S)

int mill_half_open_init(struct mill_net *net)
{
    uint32_t max = net->config.half_open_max;
    net->half_open = calloc(max, sizeof(*net->half_open));
    net->free_half_open = calloc(max, sizeof(*net->free_half_open));
    if (!net->half_open || !net->free_half_open) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < max; i++) {
        net->free_half_open[i] = max - 1 - i;
    }
    net->free_half_open_count = max;
    return mill_flow_table_init(&net->half_open_flows, max, net->config.secret);
}

void mill_half_open_fini(struct mill_net *net)
{
    free(net->half_open);
    free(net->free_half_open);
    mill_flow_table_fini(&net->half_open_flows);
}

static const struct mill_flow_key *key_of(const struct mill_net *net,
                                          const struct mill_half_open *half)
{
    return &net->half_open_flows.keys[half->index];
}

static void release(struct mill_net *net, struct mill_half_open *half)
{
    mill_wheel_cancel(&net->wheel, &half->timer);
    if (half->older) {
        half->older->newer = half->newer;
    } else {
        net->half_open_oldest = half->newer;
    }
    if (half->newer) {
        half->newer->older = half->older;
    } else {
        net->half_open_newest = half->older;
    }
    mill_net_flow_remove(net, &net->half_open_flows, half->index);
    net->free_half_open[net->free_half_open_count++] = half->index;
}

static uint16_t first_window(const struct mill_net *net)
{
    return (uint16_t)MILL_MIN(net->config.rx_window_max, 65535u);
}

static void send_syn_ack(struct mill_net *net, const struct mill_half_open *half)
{
    struct mill_tcp_fields fields = {
        .key = *key_of(net, half),
        .seq = half->iss,
        .ack = half->irs + 1,
        .flags = MILL_TCP_SYN | MILL_TCP_ACK,
        .window = first_window(net),
        .options = {.has_mss = true,
                    .mss = (uint16_t)mill_tcp_mss_ours(net),
                    .has_wscale = half->has_wscale,
                    .wscale = mill_tcp_wscale_ours(net),
                    .sack_permitted = half->sack_ok,
                    .has_timestamp = half->timestamps,
                    .ts_value = mill_net_timestamp(net, half->ts_offset),
                    .ts_echo = half->ts_recent},
    };
    mill_tcp_send_bare(net, half->mac, &fields);
}

static void arm(struct mill_net *net, struct mill_half_open *half)
{
    uint64_t wait_ns = (uint64_t)MILL_RTO_INITIAL_US * MILL_NS_PER_US << half->retries;
    mill_wheel_arm(&net->wheel, &half->timer, mill_net_tick(net->now_ns + wait_ns));
}

void mill_half_open_timer(struct mill_net *net, struct mill_half_open *half)
{
    if (half->retries == MILL_NET_SYN_RETRIES) {
        release(net, half);
        return;
    }
    half->retries++;
    send_syn_ack(net, half);
    arm(net, half);
}

void mill_half_open_syn(struct mill_net *net, const struct mill_segment *segment, uint16_t listener)
{
    net->counters.syn_received++;
    if (net->free_half_open_count == 0) {
        net->counters.syn_dropped++;
        struct mill_half_open *oldest = net->half_open_oldest;
        if (net->now_ns - oldest->arrived_ns < GIVE_WAY_NS) {
            return;
        }
        release(net, oldest);
    }
    const struct mill_tcp_options *options = &segment->options;
    uint32_t index = net->free_half_open[--net->free_half_open_count];
    struct mill_half_open *half = &net->half_open[index];
    *half = (struct mill_half_open){
        .timer = {.kind = MILL_TIMER_HALF_OPEN},
        .older = net->half_open_newest,
        .arrived_ns = net->now_ns,
        .index = index,
        .irs = segment->seq,
        .iss = mill_tcp_isn(net, &segment->key),
        .window = segment->window,
        .ts_recent = options->ts_value,
        .ts_offset = mill_tcp_ts_offset(net, &segment->key),
        .mss = options->has_mss ? options->mss : MILL_TCP_MSS_DEFAULT,
        .listener = listener,
        .wscale = options->wscale,
        .has_wscale = options->has_wscale,
        .timestamps = options->has_timestamp,
        .sack_ok = options->sack_permitted,
    };
    memcpy(half->mac, segment->mac, sizeof(half->mac));
    if (net->half_open_newest) {
        net->half_open_newest->newer = half;
    } else {
        net->half_open_oldest = half;
    }
    net->half_open_newest = half;
    mill_net_flow_insert(net, &net->half_open_flows, &segment->key, index);
    send_syn_ack(net, half);
    arm(net, half);
}

/* The third segment: a connection block, which then takes the segment itself. */
static void complete(struct mill_net *net, struct mill_half_open *half,
                     struct mill_segment *segment)
{
    if (net->free_count == 0) {
        /* The peer believes it is connected: it is told at once, and may try another broker. */
        net->counters.syn_dropped++;
        net->maker.stats.refused++;
        mill_tcp_refuse(net, segment);
        release(net, half);
        return;
    }
    struct mill_tcp *tcp = mill_tcp_new(net, &segment->key, half->iss, half->irs);
    tcp->stream.listener = half->listener;
    tcp->ts_offset = half->ts_offset;
    tcp->ts_recent = half->ts_recent;
    tcp->ts_recent_ns = net->now_ns;
    tcp->syn_again = half->retries > 0;
    tcp->rcv_adv = tcp->rcv_nxt + first_window(net);
    mill_tcp_negotiated(tcp, half->mss, half->has_wscale, half->wscale, half->timestamps,
                        half->sack_ok);
    tcp->snd_wnd = half->window;
    tcp->snd_wnd_max = half->window;
    tcp->snd_wl1 = half->irs;
    tcp->snd_wl2 = half->iss;
    /* Where it came from is the way back until ARP knows better, if it may be. */
    memcpy(tcp->peer_mac, half->mac, sizeof(tcp->peer_mac));
    tcp->hint_valid = true;
    if (half->retries == 0) {
        uint64_t trip_ns = net->now_ns - half->arrived_ns;
        mill_rtt_sample(&tcp->rtt, (uint32_t)(trip_ns / MILL_NS_PER_US));
    }
    release(net, half);
    mill_tcp_established(net, tcp);
    mill_tcp_segment(net, tcp, segment);
}

void mill_half_open_segment(struct mill_net *net, struct mill_half_open *half,
                            struct mill_segment *segment)
{
    uint32_t next = half->irs + 1;
    uint32_t offset = segment->seq - next;
    if (segment->flags & MILL_TCP_RST) {
        if (offset == 0) {
            net->counters.resets_in++;
            release(net, half);
        }
        return;
    }
    bool syn = (segment->flags & MILL_TCP_SYN) != 0;
    if (syn && segment->seq == half->irs && !(segment->flags & MILL_TCP_ACK)) {
        send_syn_ack(net, half); /* the first answer was lost */
        return;
    }
    bool in_window = offset <= first_window(net);
    bool old_time = half->timestamps && segment->options.has_timestamp &&
                    mill_seq_lt(segment->options.ts_value, half->ts_recent);
    if (syn || !in_window || old_time) {
        /* Another SYN on the same 4-tuple, or something stale: our numbers tell the peer where we
         * are, and its reset frees the entry (RFC 5961, 4). */
        if (mill_bucket_take(&net->challenges, net->now_ns)) {
            struct mill_tcp_fields fields = {
                .key = segment->key,
                .seq = half->iss + 1,
                .ack = next,
                .flags = MILL_TCP_ACK,
                .window = first_window(net),
                .options = {.has_timestamp = half->timestamps,
                            .ts_value = mill_net_timestamp(net, half->ts_offset),
                            .ts_echo = half->ts_recent},
            };
            net->counters.challenge_acks++;
            mill_tcp_send_bare(net, segment->mac, &fields);
        }
        return;
    }
    if (!(segment->flags & MILL_TCP_ACK) || (half->timestamps && !segment->options.has_timestamp)) {
        return;
    }
    if (segment->ack != half->iss + 1) {
        mill_tcp_refuse(net, segment);
        return;
    }
    complete(net, half, segment);
}
