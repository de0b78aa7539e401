/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a connection block: taking one, ending it, the lists of connections to be served, and the
 * telling of events. Events are told only here, from the maker's step, never from inside a call of
 * the core; a block is freed only after its closed event. Owner: the net's core. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

int mill_tcp_conn_init(struct mill_net *net)
{
    uint32_t max = net->config.connections_max;
    size_t refs = net->config.refs_per_connection;
    size_t arena = net->config.arena_bytes_per_connection;
    net->connections = calloc(max, sizeof(*net->connections));
    net->free_connections = calloc(max, sizeof(*net->free_connections));
    net->entries_memory = calloc((size_t)max * refs, sizeof(*net->entries_memory));
    net->arena_memory = calloc(max, arena);
    if (!net->connections || !net->free_connections || !net->entries_memory || !net->arena_memory) {
        return -ENOMEM;
    }
    /* Low indices first, and the last one freed again first: memory in use stays small. */
    for (uint32_t i = 0; i < max; i++) {
        net->free_connections[i] = max - 1 - i;
    }
    net->free_count = max;
    return mill_flow_table_init(&net->flows, max, net->config.secret);
}

void mill_tcp_conn_fini(struct mill_net *net)
{
    free(net->connections);
    free(net->free_connections);
    free(net->entries_memory);
    free(net->arena_memory);
    mill_flow_table_fini(&net->flows);
}

static void fill_peer(struct mill_stream_peer *peer, const struct mill_flow_key *key)
{
    for (int i = 0; i < 2; i++) {
        peer->address[10 + i] = 0xff;
        peer->local_address[10 + i] = 0xff;
    }
    for (int i = 0; i < 4; i++) {
        peer->address[12 + i] = (uint8_t)(key->peer >> (24 - 8 * i));
        peer->local_address[12 + i] = (uint8_t)(key->local >> (24 - 8 * i));
    }
    peer->port = key->peer_port;
    peer->local_port = key->local_port;
}

struct mill_tcp *mill_tcp_new(struct mill_net *net, const struct mill_flow_key *key, uint32_t iss,
                              uint32_t irs)
{
    if (MILL_COUNT_IF(net->free_count == 0, net->maker.stats.refused)) {
        return NULL;
    }
    uint32_t index = net->free_connections[--net->free_count];
    struct mill_tcp *tcp = &net->connections[index];
    memset(tcp, 0, sizeof(*tcp));
    tcp->stream.ops = &mill_tcp_stream_ops;
    tcp->stream.maker = &net->maker;
    fill_peer(&tcp->stream.peer, key);
    tcp->key = *key;
    tcp->index = index;
    tcp->next_hop = mill_arp_next_hop(net, key->peer);
    tcp->timer_retransmit.kind = MILL_TIMER_RETRANSMIT;
    tcp->timer_ack.kind = MILL_TIMER_ACK;
    tcp->iss = iss;
    tcp->snd_una = iss;
    tcp->snd_nxt = iss + 1;
    tcp->push_seq = iss + 1;
    tcp->high_rxt = iss;
    tcp->recover = iss;
    tcp->irs = irs;
    tcp->rcv_nxt = irs + 1;
    tcp->rcv_adv = irs + 1;
    tcp->last_ack_sent = irs + 1;
    tcp->rx_limit = MILL_MIN((uint32_t)MILL_NET_WINDOW_START, net->config.rx_window_max);
    tcp->rx_mss = MILL_TCP_MSS_DEFAULT;
    tcp->rto_due_ns = MILL_NEVER;
    tcp->ack_due_ns = MILL_NEVER;
    tcp->idle_due_ns = MILL_NEVER;
    tcp->progress_ns = net->now_ns;
    tcp->last_send_ns = net->now_ns;
    tcp->rx_epoch_ns = net->now_ns;
    tcp->cc.ops = &mill_cc_reno;
    mill_rtt_init(&tcp->rtt, net->config.rto_min_ms * 1000);
    tcp->queue = (struct mill_send_queue){
        .entries = net->entries_memory + (size_t)index * net->config.refs_per_connection,
        .arena = net->arena_memory + (size_t)index * net->config.arena_bytes_per_connection,
        .entries_mask = net->config.refs_per_connection - 1,
        .arena_mask = net->config.arena_bytes_per_connection - 1,
        .seq_end = iss + 1,
    };
    mill_net_flow_insert(net, &net->flows, key, index);
    net->maker.stats.connections++;
    return tcp;
}

void mill_tcp_free(struct mill_net *net, struct mill_tcp *tcp)
{
    MILL_ASSERT_EQ(tcp->queue.head, tcp->queue.tail);
    mill_wheel_cancel(&net->wheel, &tcp->timer_retransmit);
    mill_wheel_cancel(&net->wheel, &tcp->timer_ack);
    mill_tcp_receive_clear(net, tcp);
    tcp->stream.dead = true;
    net->free_connections[net->free_count++] = tcp->index;
    net->maker.stats.connections--;
}

void mill_tcp_finish(struct mill_net *net, struct mill_tcp *tcp, enum mill_stream_end end)
{
    if (tcp->state == MILL_TCP_CLOSED) {
        return;
    }
    bool connecting = tcp->state == MILL_TCP_SYN_SENT || tcp->state == MILL_TCP_SYN_RCVD;
    tcp->state = MILL_TCP_CLOSED;
    tcp->end = (uint8_t)end;
    tcp->rto_due_ns = MILL_NEVER;
    tcp->ack_due_ns = MILL_NEVER;
    tcp->idle_due_ns = MILL_NEVER;
    tcp->ack_now = false;
    mill_wheel_cancel(&net->wheel, &tcp->timer_retransmit);
    mill_wheel_cancel(&net->wheel, &tcp->timer_ack);
    mill_send_queue_clear(&tcp->queue, net->maker.loans);
    /* Out of the table at once, so that the same 4-tuple may come again. */
    mill_net_flow_remove(net, &net->flows, tcp->index);
    mill_kept_end(net, tcp);
    if (connecting && tcp->active_open) {
        if (tcp->connect_error == 0) {
            tcp->connect_error = tcp->soft_error != 0 ? tcp->soft_error : -ETIMEDOUT;
        }
        mill_tcp_event(net, tcp, MILL_EVENT_CONNECTED);
    } else {
        mill_tcp_event(net, tcp, MILL_EVENT_CLOSED);
    }
}

static void append(struct mill_tcp **head, struct mill_tcp **tail, struct mill_tcp *tcp)
{
    tcp->list_next = NULL;
    if (*tail) {
        (*tail)->list_next = tcp;
    } else {
        *head = tcp;
    }
    *tail = tcp;
}

void mill_tcp_activate(struct mill_net *net, struct mill_tcp *tcp)
{
    if (tcp->list == MILL_LIST_NEIGHBOUR) {
        /* It has more to tell than to send: out of the waiting list, which is short. */
        struct mill_tcp **link = &net->waiting_head;
        while (*link != tcp) {
            link = &(*link)->list_next;
        }
        *link = tcp->list_next;
        tcp->list = MILL_LIST_NONE;
    }
    if (tcp->list == MILL_LIST_NONE) {
        tcp->list = MILL_LIST_ACTIVE;
        append(&net->active_head, &net->active_tail, tcp);
    }
}

void mill_tcp_event(struct mill_net *net, struct mill_tcp *tcp, uint8_t events)
{
    tcp->events |= events;
    mill_tcp_activate(net, tcp);
}

void mill_tcp_wait_neighbour(struct mill_net *net, struct mill_tcp *tcp)
{
    MILL_DASSERT(tcp->list == MILL_LIST_NONE);
    tcp->list = MILL_LIST_NEIGHBOUR;
    tcp->list_next = net->waiting_head;
    net->waiting_head = tcp;
}

void mill_tcp_neighbour_changed(struct mill_net *net)
{
    while (net->waiting_head) {
        struct mill_tcp *tcp = net->waiting_head;
        net->waiting_head = tcp->list_next;
        tcp->list = MILL_LIST_ACTIVE;
        append(&net->active_head, &net->active_tail, tcp);
    }
}

/* Tells of a new connection, or of the end of an open. ret: false: there is nothing more to tell.
 */
static bool tell_opening(struct mill_net *net, struct mill_tcp *tcp, uint8_t events)
{
    const struct mill_stream_events *to = net->maker.events;
    if (events & MILL_EVENT_CONNECTED) {
        int error = tcp->state == MILL_TCP_CLOSED ? tcp->connect_error : 0;
        to->connected(net->maker.context, &tcp->stream, error);
        if (error != 0) {
            mill_tcp_free(net, tcp);
            return false;
        }
    }
    if (events & MILL_EVENT_ACCEPTED) {
        if (to->accepted(net->maker.context, &tcp->stream) >= 0) {
            net->maker.stats.accepted++;
        } else {
            net->maker.stats.refused++;
            tcp->refused = true; /* the core does not know it: nothing more is told */
            if (tcp->state != MILL_TCP_CLOSED) {
                mill_tcp_send_rst(net, tcp);
                mill_tcp_finish(net, tcp, MILL_END_ABORTED);
                return false;
            }
        }
    }
    return true;
}

/* Tells what happened, in the order in which a core wants to hear it. When a callback ends the
 * connection, its closed event is told in a service of its own. ret: false: nothing to send. */
static bool tell(struct mill_net *net, struct mill_tcp *tcp)
{
    const struct mill_stream_events *to = net->maker.events;
    uint8_t events = tcp->events;
    tcp->events = 0;
    if (!tell_opening(net, tcp, events)) {
        return false;
    }
    if (tcp->refused) {
        mill_tcp_free(net, tcp);
        return false;
    }
    if ((events & MILL_EVENT_ACKED) && tcp->acked_bytes > 0) {
        uint64_t acked = tcp->acked_bytes;
        tcp->acked_bytes = 0;
        to->acked(net->maker.context, &tcp->stream, acked);
    }
    if (events & MILL_EVENT_RECEIVED) {
        if (tcp->paused) {
            tcp->events |= MILL_EVENT_RECEIVED; /* told when reading goes on */
        } else if (!tcp->deaf) {
            to->received(net->maker.context, &tcp->stream);
        }
    }
    if ((events & MILL_EVENT_ROOM) && tcp->state != MILL_TCP_CLOSED) {
        to->room(net->maker.context, &tcp->stream);
    }
    if (events & MILL_EVENT_CLOSED) {
        tcp->stream.dead = true;
        to->closed(net->maker.context, &tcp->stream, (enum mill_stream_end)tcp->end);
        mill_tcp_free(net, tcp);
        return false;
    }
    return true;
}

static void serve_one(struct mill_net *net, struct mill_tcp *tcp)
{
    if (!tell(net, tcp)) {
        return;
    }
    bool more = mill_tcp_output(net, tcp);
    /* Activations inside keep their place: the list field says where it already is. */
    if (more && tcp->list == MILL_LIST_NONE) {
        tcp->list = MILL_LIST_NEXT;
        append(&net->next_head, &net->next_tail, tcp);
    }
}

uint32_t mill_tcp_serve(struct mill_net *net)
{
    uint32_t served = 0;
    while (net->active_head && served < MILL_NET_CONNECTIONS_TURN) {
        struct mill_tcp *tcp = net->active_head;
        net->active_head = tcp->list_next;
        if (!net->active_head) {
            net->active_tail = NULL;
        }
        tcp->list = MILL_LIST_NONE;
        /* A callback may end this connection: its closed event then waits in the list. */
        serve_one(net, tcp);
        served++;
    }
    if (net->next_head) {
        for (struct mill_tcp *tcp = net->next_head; tcp; tcp = tcp->list_next) {
            tcp->list = MILL_LIST_ACTIVE;
        }
        if (net->active_tail) {
            net->active_tail->list_next = net->next_head;
        } else {
            net->active_head = net->next_head;
        }
        net->active_tail = net->next_tail;
        net->next_head = NULL;
        net->next_tail = NULL;
    }
    return served;
}
