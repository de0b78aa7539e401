/* SPDX-License-Identifier: Apache-2.0 */
/* Acknowledgements in: windows, round-trip samples, duplicates, SACK, and when a recovery begins
 * and ends (RFC 5681, 6582, 6675). Owner: the net's core. */
#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

/* Bytes below this border that are not marked count as lost. */
uint32_t mill_tcp_lost_end(const struct mill_tcp *tcp)
{
    uint32_t first_segment = mill_seq_min(tcp->snd_una + tcp->send_mss, tcp->snd_nxt);
    uint32_t border = tcp->snd_una;
    if (tcp->recovery == MILL_RECOVERY_NONE) {
        return border;
    }
    if (tcp->recovery == MILL_RECOVERY_LOSS) {
        border = mill_seq_max(border, tcp->loss_end);
    }
    if (tcp->sack_ok) {
        border = mill_seq_max(border,
                              mill_scoreboard_lost_end(&tcp->board, tcp->snd_una, tcp->send_mss));
    } else if (tcp->recovery == MILL_RECOVERY_FAST) {
        border = mill_seq_max(border, first_segment);
    }
    return border;
}

/* SetPipe() of RFC 6675, 4; without SACK each duplicate stands for one segment that left. */
uint32_t mill_tcp_pipe(const struct mill_tcp *tcp)
{
    uint32_t lost_end = mill_seq_max(mill_tcp_lost_end(tcp), tcp->snd_una);
    uint32_t pipe = mill_scoreboard_unsacked(&tcp->board, lost_end, tcp->snd_nxt);
    if (tcp->recovery != MILL_RECOVERY_NONE) {
        pipe += mill_scoreboard_unsacked(&tcp->board, tcp->snd_una, tcp->high_rxt);
    }
    if (!tcp->sack_ok) {
        uint32_t gone = tcp->dup_acks;
        if (tcp->recovery == MILL_RECOVERY_NONE) {
            gone = MILL_MIN(gone, MILL_DUP_THRESHOLD - 1u); /* limited transmit, RFC 3042 */
        }
        pipe -= MILL_MIN(pipe, gone * tcp->send_mss);
    }
    return pipe;
}

/* ret: bytes that this segment marked for the first time. */
static uint32_t take_sack(struct mill_tcp *tcp, const struct mill_segment *segment)
{
    const struct mill_tcp_options *options = &segment->options;
    uint32_t marked = 0;
    for (uint8_t i = 0; i < options->sack_count; i++) {
        const struct mill_sack_range *block = &options->sack[i];
        /* A first block below the acknowledgement, or inside the second, reports a duplicate
         * (RFC 2883), not a hole. */
        bool inside_second = i == 0 && options->sack_count > 1 &&
                             mill_seq_le(options->sack[1].start, block->start) &&
                             mill_seq_le(block->end, options->sack[1].end);
        if (inside_second || mill_seq_le(block->end, segment->ack)) {
            continue;
        }
        marked += mill_scoreboard_add(&tcp->board, tcp->snd_una, tcp->snd_nxt, *block);
    }
    return marked;
}

/* ret: whether the window changed. */
static bool take_window(struct mill_net *net, struct mill_tcp *tcp,
                        const struct mill_segment *segment)
{
    bool newer = mill_seq_lt(tcp->snd_una, segment->ack) ||
                 mill_seq_lt(tcp->snd_wl1, segment->seq) ||
                 (tcp->snd_wl1 == segment->seq && mill_seq_le(tcp->snd_wl2, segment->ack));
    if (!newer) {
        return false;
    }
    uint32_t window = segment->window << tcp->snd_wscale;
    bool changed = window != tcp->snd_wnd;
    bool reopened = tcp->snd_wnd == 0 && window > 0;
    tcp->snd_wnd = window;
    tcp->snd_wnd_max = MILL_MAX(tcp->snd_wnd_max, window);
    tcp->snd_wl1 = segment->seq;
    tcp->snd_wl2 = segment->ack;
    if (reopened) {
        tcp->rtt.backoff = 0;
        tcp->progress_ns = net->now_ns;
        if (tcp->persisting) {
            mill_tcp_stop_rto(tcp);
        } else if (tcp->rto_due_ns != MILL_NEVER) {
            mill_tcp_arm_rto(net, tcp, true);
        }
    }
    return changed;
}

/* Karn (RFC 6298, 3): a unit that was not touched by a retransmission, else the echoed timestamp,
 * which tells the copies apart (RFC 7323, 4). */
static void take_sample(struct mill_net *net, struct mill_tcp *tcp,
                        const struct mill_segment *segment)
{
    bool found = false;
    uint32_t sent_us = 0;
    while (tcp->units_count > 0 && mill_seq_le(tcp->units[tcp->units_head].seq_end, segment->ack)) {
        sent_us = tcp->units[tcp->units_head].time_us;
        found = true;
        tcp->units_head = (uint8_t)((tcp->units_head + 1) % MILL_NET_SEND_UNITS);
        tcp->units_count--;
    }
    if (found) {
        mill_rtt_sample(&tcp->rtt, mill_net_now_us(net) - sent_us);
    } else if (tcp->timestamps && segment->options.has_timestamp) {
        uint32_t trip_ms = mill_net_timestamp(net, tcp->ts_offset) - segment->options.ts_echo;
        if (trip_ms <= MILL_RTO_MAX_US / 1000) {
            mill_rtt_sample(&tcp->rtt, MILL_MAX(trip_ms * 1000, 500u));
        }
    }
}

static void begin_fast_recovery(struct mill_net *net, struct mill_tcp *tcp)
{
    net->counters.fast_retransmits++;
    tcp->recovery = MILL_RECOVERY_FAST;
    tcp->recover = tcp->snd_nxt;
    tcp->high_rxt = tcp->snd_una;
    tcp->rescue_done = false;
    tcp->rescue_rxt = tcp->snd_una;
    tcp->retransmit_first = true; /* whatever the pipe says: RFC 6675, 5, step 4.3 */
    tcp->cc.ops->congestion(&tcp->cc, mill_tcp_flight(tcp));
}

void mill_tcp_enter_loss(struct mill_net *net, struct mill_tcp *tcp)
{
    MILL_UNUSED(net);
    /* Again without progress, or marks that touch snd_una: the peer may have thrown away what it
     * had marked (reneging, RFC 2018, 8). */
    bool reneged = tcp->board.count > 0 && tcp->board.ranges[0].start == tcp->snd_una;
    if (tcp->loss_repeated || reneged) {
        mill_scoreboard_clear(&tcp->board);
    }
    tcp->cc.ops->timeout(&tcp->cc, mill_tcp_flight(tcp), !tcp->loss_repeated);
    tcp->loss_repeated = true;
    tcp->recovery = MILL_RECOVERY_LOSS;
    tcp->loss_end = tcp->snd_nxt;
    tcp->recover = tcp->snd_nxt;
    tcp->high_rxt = tcp->snd_una;
    tcp->retransmit_first = true;
    tcp->dup_acks = 0;
#ifndef MILL_MUTANT_NET_NO_KARN
    tcp->units_count = 0;
#endif
}

static void advance_recovery(struct mill_tcp *tcp, uint32_t acked, bool cwnd_limited)
{
    switch (tcp->recovery) {
    case MILL_RECOVERY_NONE:
        tcp->dup_acks = 0;
        if (cwnd_limited) {
            tcp->cc.ops->acked(&tcp->cc, acked);
        }
        break;
    case MILL_RECOVERY_FAST:
        if (mill_seq_le(tcp->recover, tcp->snd_una)) {
            tcp->recovery = MILL_RECOVERY_NONE;
            tcp->dup_acks = 0;
            tcp->cc.ops->recovered(&tcp->cc, mill_tcp_flight(tcp));
            break;
        }
        if (!tcp->sack_ok) {
            /* A partial acknowledgement (RFC 6582, 3.2, step 3): the next hole at once; of the
             * duplicates those that stood for segments now acknowledged are gone. */
            uint32_t segments = acked / tcp->send_mss;
            tcp->dup_acks -= MILL_MIN(tcp->dup_acks, segments > 0 ? segments - 1 : 0);
            tcp->high_rxt = tcp->snd_una;
            tcp->retransmit_first = true;
        }
        if (mill_seq_lt(tcp->rescue_rxt, tcp->snd_una)) {
            tcp->rescue_done = false;
        }
        break;
    case MILL_RECOVERY_LOSS:
        tcp->dup_acks = 0;
        tcp->cc.ops->acked(&tcp->cc, acked);
        if (mill_seq_le(tcp->loss_end, tcp->snd_una)) {
            tcp->recovery = MILL_RECOVERY_NONE;
        }
        break;
    default:
        break;
    }
}

static void tell_room(struct mill_net *net, struct mill_tcp *tcp)
{
    uint32_t refs;
    uint32_t bytes;
    mill_send_queue_room(&tcp->queue, &refs, &bytes);
    /* Not for each freed slot: a core that fills the queue again should find it worth the walk. */
    if (tcp->want_room && refs >= (tcp->queue.entries_mask + 1) / 4 &&
        bytes >= (tcp->queue.arena_mask + 1) / 2) {
        tcp->want_room = false;
        mill_tcp_event(net, tcp, MILL_EVENT_ROOM);
    }
}

static void take_new_ack(struct mill_net *net, struct mill_tcp *tcp,
                         const struct mill_segment *segment)
{
    uint32_t acked = segment->ack - tcp->snd_una;
    uint32_t data_end = mill_seq_min(segment->ack, tcp->queue.seq_end);
    tcp->acked_bytes += data_end - tcp->snd_una;
    mill_rtt_progress(&tcp->rtt);
    take_sample(net, tcp, segment);
    tcp->snd_una = segment->ack;
    mill_send_queue_ack(&tcp->queue, net->maker.loans, tcp->snd_una);
    mill_scoreboard_ack(&tcp->board, tcp->snd_una);
    tcp->progress_ns = net->now_ns;
    tcp->loss_repeated = false;
    tcp->high_rxt = mill_seq_max(tcp->high_rxt, tcp->snd_una);
    advance_recovery(tcp, acked, tcp->cwnd_limited);
    if (tcp->snd_una == tcp->snd_nxt) {
        mill_tcp_stop_rto(tcp);
    } else {
        mill_tcp_arm_rto(net, tcp, true);
    }
    mill_tcp_event(net, tcp, MILL_EVENT_ACKED);
    tell_room(net, tcp);
}

/* A duplicate, or new marks, for bytes in flight. */
static void take_duplicate(struct mill_net *net, struct mill_tcp *tcp)
{
    if (tcp->recovery == MILL_RECOVERY_LOSS) {
        return;
    }
    tcp->dup_acks++;
    if (tcp->recovery == MILL_RECOVERY_FAST) {
        return;
    }
    bool lost = tcp->sack_ok &&
                mill_seq_lt(tcp->snd_una,
                            mill_scoreboard_lost_end(&tcp->board, tcp->snd_una, tcp->send_mss));
    /* One recovery per window of data (RFC 6582, 3.2, step 2). */
    if ((tcp->dup_acks >= MILL_DUP_THRESHOLD || lost) && mill_seq_le(tcp->recover, tcp->snd_una)) {
        begin_fast_recovery(net, tcp);
    }
}

void mill_tcp_ack(struct mill_net *net, struct mill_tcp *tcp, const struct mill_segment *segment,
                  uint32_t payload_bytes)
{
    if (mill_seq_lt(segment->ack, tcp->snd_una)) {
        return; /* old: its data counts, its numbers do not */
    }
    bool window_changed = take_window(net, tcp, segment);
    bool advanced = mill_seq_lt(tcp->snd_una, segment->ack);
    if (advanced) {
        take_new_ack(net, tcp, segment);
    }
    uint32_t marked = tcp->sack_ok ? take_sack(tcp, segment) : 0;
    if (tcp->snd_una == tcp->snd_nxt) {
        return;
    }
    bool duplicate =
        !advanced && payload_bytes == 0 && !window_changed && !(segment->flags & MILL_TCP_FIN);
    if (tcp->sack_ok ? marked > 0 : duplicate) {
        take_duplicate(net, tcp);
    }
}
