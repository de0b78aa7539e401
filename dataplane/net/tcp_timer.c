/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's timers. One wheel entry serves retransmission, window probes and SYN retries,
 * which exclude each other; one serves delayed acknowledgement, keep-alive and FIN-WAIT-2. The
 * deadlines live in the connection; the wheel may wake it early and then waits on. Owner: the net's
 * core. */
#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

static uint64_t user_timeout_ns(const struct mill_net *net)
{
    return net->config.user_timeout_ms * MILL_NS_PER_MS;
}

/* A peer that keeps its window closed is alive while it answers probes; but it cannot hold a
 * connection that we have closed. */
static bool only_full(const struct mill_tcp *tcp)
{
    return tcp->snd_wnd == 0 && !tcp->closing;
}

static bool out_of_patience(const struct mill_net *net, const struct mill_tcp *tcp)
{
    if (net->now_ns - tcp->progress_ns < user_timeout_ns(net)) {
        return false;
    }
    return !only_full(tcp) || tcp->window_probes >= MILL_NET_WINDOW_PROBES;
}

void mill_tcp_arm_rto(struct mill_net *net, struct mill_tcp *tcp, bool restart)
{
    if (tcp->rto_due_ns != MILL_NEVER && !restart && !tcp->persisting) {
        return;
    }
    tcp->persisting = false;
    uint64_t wait_ns = mill_rtt_timeout_us(&tcp->rtt) * MILL_NS_PER_US;
    uint64_t give_up_ns = tcp->progress_ns + user_timeout_ns(net);
    tcp->rto_due_ns = net->now_ns + wait_ns;
    if (give_up_ns > net->now_ns && !only_full(tcp)) {
        tcp->rto_due_ns = MILL_MIN(tcp->rto_due_ns, give_up_ns);
    }
    mill_wheel_arm(&net->wheel, &tcp->timer_retransmit, mill_net_tick(tcp->rto_due_ns));
}

void mill_tcp_stop_rto(struct mill_tcp *tcp)
{
    tcp->rto_due_ns = MILL_NEVER;
    tcp->persisting = false;
}

void mill_tcp_arm_ack(struct mill_net *net, struct mill_tcp *tcp)
{
    uint64_t due_ns = MILL_MIN(tcp->ack_due_ns, tcp->idle_due_ns);
    if (due_ns != MILL_NEVER) {
        mill_wheel_arm(&net->wheel, &tcp->timer_ack, mill_net_tick(due_ns));
    }
}

void mill_tcp_touch_idle(struct mill_net *net, struct mill_tcp *tcp)
{
    tcp->keepalive_probes = 0;
    tcp->window_probes = 0;
    if (net->config.keepalive_ms > 0 && tcp->state != MILL_TCP_FIN_WAIT_2) {
        tcp->idle_due_ns = net->now_ns + net->config.keepalive_ms * MILL_NS_PER_MS;
        mill_tcp_arm_ack(net, tcp);
    }
}

void mill_tcp_arm_fin_wait(struct mill_net *net, struct mill_tcp *tcp)
{
    tcp->idle_due_ns = net->now_ns + net->config.fin_wait_2_ms * MILL_NS_PER_MS;
    mill_tcp_arm_ack(net, tcp);
}

static void give_up(struct mill_net *net, struct mill_tcp *tcp)
{
    net->counters.timeouts++;
    mill_tcp_send_rst(net, tcp);
    mill_tcp_finish(net, tcp, MILL_END_TIMEOUT);
}

static void opening_timer(struct mill_net *net, struct mill_tcp *tcp)
{
    if (tcp->syn_retries == MILL_NET_CONNECT_RETRIES) {
        mill_tcp_finish(net, tcp, MILL_END_TIMEOUT);
        return;
    }
    tcp->syn_retries++;
    tcp->syn_again = true;
    tcp->syn_pending = true;
    mill_rtt_back_off(&tcp->rtt);
    tcp->rto_due_ns = net->now_ns + mill_rtt_timeout_us(&tcp->rtt) * MILL_NS_PER_US;
    mill_wheel_arm(&net->wheel, &tcp->timer_retransmit, mill_net_tick(tcp->rto_due_ns));
    mill_tcp_activate(net, tcp);
}

/* The window is closed: ask, less and less often (RFC 9293, 3.8.6.1). */
static void probe(struct mill_net *net, struct mill_tcp *tcp)
{
    net->counters.zero_window_probes++;
    if (tcp->window_probes < MILL_NET_WINDOW_PROBES) {
        tcp->window_probes++;
    }
    mill_tcp_send_probe(net, tcp);
    mill_rtt_back_off(&tcp->rtt);
    bool persisting = tcp->persisting;
    mill_tcp_arm_rto(net, tcp, true);
    tcp->persisting = persisting;
}

void mill_tcp_retransmit_timer(struct mill_net *net, struct mill_tcp *tcp)
{
    if (tcp->rto_due_ns == MILL_NEVER || tcp->state == MILL_TCP_CLOSED) {
        return;
    }
    if (tcp->rto_due_ns > net->now_ns) {
        mill_wheel_arm(&net->wheel, &tcp->timer_retransmit, mill_net_tick(tcp->rto_due_ns));
        return;
    }
    if (tcp->state == MILL_TCP_SYN_SENT || tcp->state == MILL_TCP_SYN_RCVD) {
        opening_timer(net, tcp);
        return;
    }
    if (out_of_patience(net, tcp)) {
        give_up(net, tcp);
        return;
    }
    if (tcp->snd_wnd == 0) {
        probe(net, tcp);
        return;
    }
    bool persisting = tcp->persisting;
    mill_tcp_stop_rto(tcp);
    if (persisting) {
        tcp->sws_override = true;
    } else {
#ifndef MILL_MUTANT_NET_NO_RTO
        net->counters.rto_fired++;
        mill_tcp_enter_loss(net, tcp);
        mill_rtt_back_off(&tcp->rtt);
#endif
        mill_tcp_arm_rto(net, tcp, true);
    }
    mill_tcp_activate(net, tcp);
}

static void idle_timer(struct mill_net *net, struct mill_tcp *tcp)
{
    tcp->idle_due_ns = MILL_NEVER;
    if (tcp->state == MILL_TCP_FIN_WAIT_2) {
        net->counters.timeouts++;
        mill_tcp_finish(net, tcp, MILL_END_TIMEOUT);
        return;
    }
    if (tcp->keepalive_probes == MILL_NET_KEEPALIVE_PROBES) {
        give_up(net, tcp);
        return;
    }
    if (tcp->snd_una == tcp->snd_nxt) { /* else the retransmission timer watches */
        tcp->keepalive_probes++;
        mill_tcp_send_probe(net, tcp);
    }
    /* Probes follow each other faster than the first silence was long. */
    uint64_t wait_ms = MILL_MIN(net->config.keepalive_ms, 10000u);
    tcp->idle_due_ns = net->now_ns + wait_ms * MILL_NS_PER_MS;
}

void mill_tcp_ack_timer(struct mill_net *net, struct mill_tcp *tcp)
{
    if (tcp->state == MILL_TCP_CLOSED) {
        return;
    }
    if (tcp->ack_due_ns <= net->now_ns) {
        tcp->ack_due_ns = MILL_NEVER;
        tcp->ack_now = true;
        mill_tcp_activate(net, tcp);
    }
    if (tcp->idle_due_ns <= net->now_ns) {
        idle_timer(net, tcp);
    }
    mill_tcp_arm_ack(net, tcp);
}
