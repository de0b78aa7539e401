/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection sends and when: NextSeg() of RFC 6675 over new data, window and congestion
 * limits, silly windows (RFC 1122), bounded bursts. Owner: the net's core. */
#include <errno.h>

#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

uint32_t mill_tcp_queue_end(const struct mill_tcp *tcp)
{
    return tcp->queue.seq_end + (tcp->closing ? 1 : 0);
}

uint32_t mill_tcp_flight(const struct mill_tcp *tcp)
{
    return tcp->snd_nxt - tcp->snd_una;
}

void mill_tcp_send_ack(struct mill_net *net, struct mill_tcp *tcp)
{
    int rc = mill_tcp_send_empty(net, tcp, tcp->snd_nxt, 0);
    if (rc < 0) {
        tcp->ack_now = true; /* goes out with the connection's next turn */
        mill_tcp_activate(net, tcp);
    }
}

void mill_tcp_send_rst(struct mill_net *net, struct mill_tcp *tcp)
{
    if (tcp->state == MILL_TCP_SYN_SENT) {
        return; /* the peer knows nothing yet */
    }
    net->counters.resets_out++;
    (void)mill_tcp_send_empty(net, tcp, tcp->snd_nxt, MILL_TCP_RST);
}

void mill_tcp_send_probe(struct mill_net *net, struct mill_tcp *tcp)
{
    (void)mill_tcp_send_empty(net, tcp, tcp->snd_una - 1, 0);
}

/* ret: false: the neighbour is not known yet, or there was no frame. */
static bool send_syn(struct mill_net *net, struct mill_tcp *tcp)
{
    const uint8_t *mac = tcp->next_hop != 0 ? mill_arp_resolve(net, tcp->next_hop) : NULL;
    if (!mac) {
        return false;
    }
    bool answer = tcp->state == MILL_TCP_SYN_RCVD;
    struct mill_tcp_fields fields = {
        .key = tcp->key,
        .seq = tcp->iss,
        .ack = answer ? tcp->rcv_nxt : 0,
        .flags = MILL_TCP_SYN | (answer ? MILL_TCP_ACK : 0),
        .window = (uint16_t)MILL_MIN(tcp->rx_limit, 65535u),
        .options = {.has_mss = true,
                    .mss = (uint16_t)mill_tcp_mss_ours(net),
                    .has_wscale = true,
                    .wscale = mill_tcp_wscale_ours(net),
                    .sack_permitted = true,
                    .has_timestamp = true,
                    .ts_value = mill_net_timestamp(net, tcp->ts_offset),
                    .ts_echo = answer ? tcp->ts_recent : 0},
    };
    tcp->rcv_adv = tcp->rcv_nxt + fields.window;
    mill_tcp_send_bare(net, mac, &fields);
    return true;
}

/* A SYN that waits: out with it, or to the others that wait for a neighbour. */
static void output_opening(struct mill_net *net, struct mill_tcp *tcp)
{
    if (!tcp->syn_pending) {
        return;
    }
    if (send_syn(net, tcp)) {
        tcp->syn_pending = false;
        tcp->soft_error = 0;
    } else if (mill_arp_failed(net, tcp->next_hop)) {
        tcp->soft_error = -EHOSTUNREACH;
    } else if (tcp->list == MILL_LIST_NONE) {
        mill_tcp_wait_neighbour(net, tcp);
    }
}

/* A piece of sequence space chosen for transmission. */
struct choice {
    uint32_t seq;
    uint32_t size_bytes;
    bool again;  /* a retransmission */
    bool rescue; /* RFC 6675, rule 4 */
};

/* Rules 1 and 3: the first hole at or after HighRxt below limit; never beyond a window that the
 * peer took back. */
static bool choose_hole(const struct mill_tcp *tcp, uint32_t limit, struct choice *ret)
{
    limit = mill_seq_min(limit, tcp->snd_una + tcp->snd_wnd);
    uint32_t from = mill_seq_max(tcp->high_rxt, tcp->snd_una);
    uint32_t start;
    uint32_t length = mill_scoreboard_hole(&tcp->board, from, limit, &start);
    if (length == 0) {
        return false;
    }
    *ret = (struct choice){start, MILL_MIN(length, tcp->send_mss), .again = true};
    return true;
}

/* Largest segment for new data: several MSS when the card cuts them. */
static uint32_t segment_max(const struct mill_net *net, const struct mill_tcp *tcp)
{
    uint32_t tso = net->link->caps.tso_bytes_max;
    if (tso == 0 || tcp->recovery != MILL_RECOVERY_NONE) {
        return tcp->send_mss;
    }
    uint32_t most =
        MILL_MIN(tso, 65535u - MILL_IPV4_BYTES - MILL_TCP_BYTES - MILL_TCP_OPTION_BYTES_MAX);
    return MILL_MAX(most / tcp->send_mss, 1u) * tcp->send_mss;
}

/* Rule 2: new data, unless the piece would be silly (RFC 1122, 4.2.3.4; Nagle is off: an answer
 * that was pushed goes out whole). */
static bool choose_new(const struct mill_net *net, struct mill_tcp *tcp, uint32_t room_cwnd,
                       struct choice *ret)
{
    uint32_t edge = tcp->snd_una + tcp->snd_wnd;
    uint32_t end = mill_tcp_queue_end(tcp);
    if (!mill_seq_lt(tcp->snd_nxt, end) || !mill_seq_lt(tcp->snd_nxt, edge)) {
        return false;
    }
    uint32_t queued = end - tcp->snd_nxt;
    uint32_t can = MILL_MIN(queued, edge - tcp->snd_nxt);
    bool whole = can == queued && (mill_seq_le(end, tcp->push_seq + (tcp->closing ? 1 : 0)) ||
                                   tcp->snd_una == tcp->snd_nxt);
    bool worth = can >= tcp->send_mss || whole || can >= MILL_MAX(tcp->snd_wnd_max / 2, 1u) ||
                 tcp->sws_override;
    if (!worth) {
        return false;
    }
    uint32_t size = MILL_MIN(can, MILL_MAX(room_cwnd / tcp->send_mss, 1u) * tcp->send_mss);
    size = MILL_MIN(size, segment_max(net, tcp));
    if (tcp->closing && size + 1 == queued && size < can) {
        size++; /* our FIN goes with the last bytes */
    }
    *ret = (struct choice){tcp->snd_nxt, size, .again = false};
    return true;
}

/* Rule 4: once per recovery, the highest hole, to draw an acknowledgement. */
static bool choose_rescue(const struct mill_tcp *tcp, struct choice *ret)
{
    if (tcp->rescue_done || !tcp->sack_ok) {
        return false;
    }
    uint32_t highest = mill_scoreboard_highest(&tcp->board, tcp->snd_una);
    uint32_t from = mill_seq_max(highest, tcp->snd_una);
    if (!mill_seq_lt(from, tcp->recover)) {
        return false;
    }
    uint32_t length = MILL_MIN(tcp->recover - from, tcp->send_mss);
    *ret = (struct choice){tcp->recover - length, length, .again = true, .rescue = true};
    return true;
}

/* Which bytes next; room_cwnd is what cwnd leaves, at least one segment. */
static bool choose(const struct mill_net *net, struct mill_tcp *tcp, uint32_t room_cwnd,
                   struct choice *ret)
{
    if (tcp->recovery == MILL_RECOVERY_NONE) {
        return choose_new(net, tcp, room_cwnd, ret);
    }
    uint32_t lost_end = mill_tcp_lost_end(tcp);
    if (tcp->retransmit_first) {
        lost_end = mill_seq_max(lost_end, mill_seq_min(tcp->snd_una + tcp->send_mss, tcp->snd_nxt));
    }
    if (choose_hole(tcp, lost_end, ret) || choose_new(net, tcp, room_cwnd, ret)) {
        return true;
    }
    if (tcp->recovery != MILL_RECOVERY_FAST || !tcp->sack_ok) {
        return false;
    }
    return choose_hole(tcp, mill_scoreboard_highest(&tcp->board, tcp->snd_una), ret) ||
           choose_rescue(tcp, ret);
}

/* Notes when bytes up to snd_nxt left, for the round-trip time: one entry per turn. */
static void note_unit(struct mill_net *net, struct mill_tcp *tcp)
{
    uint32_t now_us = mill_net_now_us(net);
    if (tcp->units_count > 0) {
        struct mill_send_unit *last =
            &tcp->units[(tcp->units_head + tcp->units_count - 1) % MILL_NET_SEND_UNITS];
        if (last->time_us == now_us) {
            last->seq_end = tcp->snd_nxt;
            return;
        }
        if (tcp->units_count == MILL_NET_SEND_UNITS) {
            return; /* bytes beyond the last unit give no sample */
        }
    }
    tcp->units[(tcp->units_head + tcp->units_count++) % MILL_NET_SEND_UNITS] =
        (struct mill_send_unit){.seq_end = tcp->snd_nxt, .time_us = now_us};
}

static void sent_new(struct mill_net *net, struct mill_tcp *tcp, uint32_t space)
{
    if (tcp->snd_nxt == tcp->snd_una) {
        tcp->progress_ns = net->now_ns;
    }
    tcp->snd_nxt += space;
    tcp->sws_override = false;
    note_unit(net, tcp);
}

static void sent_again(struct mill_tcp *tcp, const struct choice *choice, uint32_t space)
{
    /* Karn: nothing that is in flight now can be measured by its acknowledgement. */
#ifndef MILL_MUTANT_NET_NO_KARN
    tcp->units_count = 0;
#endif
    tcp->retransmit_first = false;
    if (choice->rescue) {
        tcp->rescue_done = true;
        tcp->rescue_rxt = tcp->recover;
    } else {
        tcp->high_rxt = choice->seq + space;
    }
}

/* Window closed or too small and nothing in flight: somebody has to ask. */
static void arm_persist(struct mill_net *net, struct mill_tcp *tcp)
{
    bool waiting =
        mill_seq_lt(tcp->snd_nxt, mill_tcp_queue_end(tcp)) && tcp->snd_nxt == tcp->snd_una;
    if (!waiting || tcp->rto_due_ns != MILL_NEVER) {
        return;
    }
    tcp->persisting = true;
    uint64_t wait_us = tcp->snd_wnd > 0 ? MILL_NET_SWS_OVERRIDE_US : mill_rtt_timeout_us(&tcp->rtt);
    tcp->rto_due_ns = net->now_ns + wait_us * MILL_NS_PER_US;
    mill_wheel_arm(&net->wheel, &tcp->timer_retransmit, mill_net_tick(tcp->rto_due_ns));
}

static bool state_sends(const struct mill_tcp *tcp)
{
    return tcp->state >= MILL_TCP_ESTABLISHED && tcp->state != MILL_TCP_FIN_WAIT_2;
}

/* Sends data while cwnd, window and the turn's burst allow. ret: 0, or what stopped it:
 * -EINPROGRESS the burst, -ENOBUFS no frame, -EAGAIN the neighbour. */
static int send_data(struct mill_net *net, struct mill_tcp *tcp)
{
    uint32_t burst = net->config.burst_bytes_max;
    /* After idling longer than a timeout the path is unknown again (RFC 5681, 4.1). */
    bool idle = tcp->snd_nxt == tcp->snd_una && tcp->recovery == MILL_RECOVERY_NONE &&
                net->now_ns - tcp->last_send_ns > (uint64_t)tcp->rtt.rto_us * MILL_NS_PER_US;
    if (idle) {
        tcp->cc.ops->idle(&tcp->cc);
    }
    uint32_t pipe = mill_tcp_pipe(tcp);
    uint32_t sent = 0;
    int rc = 0;
    tcp->cwnd_limited = false;
    for (;;) {
        uint32_t room = tcp->cc.cwnd_bytes > pipe ? tcp->cc.cwnd_bytes - pipe : 0;
        struct choice choice;
        if (!choose(net, tcp, room, &choice)) {
            break;
        }
        bool first_again = choice.again && tcp->retransmit_first;
        if (room < MILL_MIN(choice.size_bytes, tcp->send_mss) && !first_again) {
            tcp->cwnd_limited = true;
            break;
        }
        if (sent >= burst) {
            rc = -EINPROGRESS;
            break;
        }
        int space = mill_tcp_send_data(net, tcp, choice.seq, choice.size_bytes);
        if (space <= 0) {
            rc = space;
            break;
        }
        if (choice.again) {
            sent_again(tcp, &choice, (uint32_t)space);
        } else {
            sent_new(net, tcp, (uint32_t)space);
        }
        pipe += (uint32_t)space;
        sent += (uint32_t)space;
        mill_tcp_arm_rto(net, tcp, false);
    }
    return rc;
}

bool mill_tcp_output(struct mill_net *net, struct mill_tcp *tcp)
{
    int rc = 0;
    if (tcp->state == MILL_TCP_SYN_SENT || tcp->state == MILL_TCP_SYN_RCVD) {
        output_opening(net, tcp);
        return false;
    }
    if (tcp->state == MILL_TCP_CLOSED) {
        return false;
    }
    if (state_sends(tcp)) {
        rc = send_data(net, tcp);
        arm_persist(net, tcp);
    }
    if (rc != -EAGAIN && tcp->ack_now) {
        int ack = mill_tcp_send_empty(net, tcp, tcp->snd_nxt, 0);
        rc = ack < 0 ? ack : rc;
    }
    mill_tcp_arm_ack(net, tcp);
    if (rc == -EAGAIN) {
        if (tcp->list == MILL_LIST_NONE && !mill_arp_failed(net, tcp->next_hop)) {
            mill_tcp_wait_neighbour(net, tcp);
        }
        return false;
    }
    return rc < 0;
}
