/* SPDX-License-Identifier: Apache-2.0 */
/* Payload in: in-order bytes to the stream's chain, others into a sorted list with caps, windows
 * told from real memory, SACK blocks of what is really kept. Segments whose memory is
 * out of proportion are copied into compact buffers. Owner: the net's core. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

enum {
    /* A connection's buffers may cost this much before small segments are copied together. */
    COMPACT_FROM_BYTES = 64 * 1024,
    COMPACT_RATIO = 4,
    ACK_AT_ONCE_SEGMENTS = 8, /* otherwise one acknowledgement per turn covers them */
};

static void compact_release(struct mill_buf *buf)
{
    struct mill_net *net = buf->owner;
    buf->next = net->compact_free;
    net->compact_free = buf;
}

int mill_compact_init(struct mill_net *net)
{
    net->compact_bufs = calloc(MILL_NET_COMPACT_COUNT, sizeof(*net->compact_bufs));
    net->compact_bytes = calloc(MILL_NET_COMPACT_COUNT, MILL_NET_COMPACT_BYTES);
    if (!net->compact_bufs || !net->compact_bytes) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < MILL_NET_COMPACT_COUNT; i++) {
        net->compact_bufs[i].owner = net;
        net->compact_bufs[i].free = compact_release;
        compact_release(&net->compact_bufs[i]);
    }
    return 0;
}

void mill_compact_fini(struct mill_net *net)
{
    free(net->compact_bufs);
    free(net->compact_bytes);
}

static uint8_t *compact_start(const struct mill_net *net, const struct mill_buf *buf)
{
    size_t index = (size_t)(buf - net->compact_bufs);
    return net->compact_bytes + index * MILL_NET_COMPACT_BYTES;
}

/* An empty compact buffer; NULL when all are in use. */
static struct mill_buf *compact_get(struct mill_net *net)
{
    struct mill_buf *buf = net->compact_free;
    if (buf) {
        net->compact_free = buf->next;
        buf->next = NULL;
        buf->data = compact_start(net, buf);
        buf->size_bytes = 0;
        buf->charge_bytes = MILL_NET_COMPACT_BYTES;
        buf->flags = MILL_BUF_STAGED;
        buf->hash = 0;
    }
    return buf;
}

void mill_tcp_charge(struct mill_net *net, struct mill_tcp *tcp)
{
    uint32_t charged = tcp->stream.rx.charge_bytes + tcp->ooo_charge;
    net->rx_used_bytes += charged;
    net->rx_used_bytes -= tcp->rx_charged;
    tcp->rx_charged = charged;
}

void mill_tcp_receive_clear(struct mill_net *net, struct mill_tcp *tcp)
{
    mill_chain_clear(&tcp->stream.rx);
    while (tcp->ooo) {
        struct mill_buf *buf = tcp->ooo;
        tcp->ooo = buf->next;
        buf->free(buf);
    }
    tcp->ooo_charge = 0;
    mill_tcp_charge(net, tcp);
}

/* Appends a small payload to the last buffer when that is a compact one with room, or starts one.
 * ret: false: not copied. */
static bool append_compact(struct mill_net *net, struct mill_tcp *tcp, struct mill_chain *payload)
{
    struct mill_chain *rx = &tcp->stream.rx;
    uint32_t size = payload->size_bytes;
    uint64_t held = (uint64_t)rx->charge_bytes + payload->charge_bytes;
    if (MILL_LIKELY(held < COMPACT_FROM_BYTES ||
                    held < COMPACT_RATIO * ((uint64_t)rx->size_bytes + size)) ||
        size > MILL_NET_COMPACT_BYTES / COMPACT_RATIO) {
        return false;
    }
    struct mill_buf *last = rx->tail;
    bool ours = last && last->free == compact_release && last->owner == net;
    uint32_t room = 0;
    if (ours) {
        room = (uint32_t)(compact_start(net, last) + MILL_NET_COMPACT_BYTES -
                          (last->data + last->size_bytes));
    }
    if (room < size) {
        last = compact_get(net);
        if (!last) {
            return false;
        }
        mill_chain_append(rx, last);
    }
    struct mill_cursor cursor = mill_chain_cursor(payload);
    int rc = mill_cursor_read(&cursor, last->data + last->size_bytes, size);
    MILL_ASSERT_EQ(rc, 0);
    last->size_bytes += size;
    rx->size_bytes += size;
    return true;
}

/* Puts one buffer into the sorted list, cut to what is not there yet: first received wins.
 * ret: a compact copy of what sticks out behind a buffer that lies inside it (its `hash` is set),
 * to be put in next; NULL: nothing. */
static struct mill_buf *insert_one(struct mill_net *net, struct mill_tcp *tcp, struct mill_buf *buf)
{
    struct mill_buf **link = &tcp->ooo;
    while (*link && mill_seq_le((*link)->hash, buf->hash)) {
        uint32_t there_end = (*link)->hash + (*link)->size_bytes;
        if (mill_seq_lt(buf->hash, there_end)) {
            uint32_t overlap = there_end - buf->hash;
            if (overlap >= buf->size_bytes) {
                buf->free(buf);
                return NULL;
            }
            buf->data += overlap;
            buf->size_bytes -= overlap;
            buf->hash = there_end;
        }
        link = &(*link)->next;
    }
    struct mill_buf *rest = NULL;
    uint32_t end = buf->hash + buf->size_bytes;
    if (*link && mill_seq_lt((*link)->hash, end)) {
        uint32_t there_end = (*link)->hash + (*link)->size_bytes;
        if (mill_seq_lt(there_end, end)) {
            rest = compact_get(net); /* none: those bytes come again */
            if (rest) {
                rest->hash = there_end;
                rest->size_bytes = MILL_MIN(end - there_end, (uint32_t)MILL_NET_COMPACT_BYTES);
                memcpy(rest->data, buf->data + (there_end - buf->hash), rest->size_bytes);
            }
        }
        buf->size_bytes = (*link)->hash - buf->hash;
    }
    if (buf->size_bytes == 0) {
        buf->free(buf);
        return rest;
    }
    buf->next = *link;
    *link = buf;
    tcp->ooo_charge += buf->charge_bytes;
    return rest;
}

/* Moves what became in-order to the stream. */
static void drain(struct mill_net *net, struct mill_tcp *tcp)
{
    while (tcp->ooo && tcp->ooo->hash == tcp->rcv_nxt) {
        struct mill_buf *buf = tcp->ooo;
        tcp->ooo = buf->next;
        tcp->ooo_charge -= buf->charge_bytes;
        tcp->rcv_nxt += buf->size_bytes;
        net->maker.stats.bytes_received += buf->size_bytes;
#ifdef MILL_MUTANT_NET_LOSE_BYTE
        buf->data++;
        buf->size_bytes--;
        if (buf->size_bytes == 0) {
            buf->free(buf);
            continue;
        }
#endif
        mill_chain_append(&tcp->stream.rx, buf);
    }
}

/* Makes room below the cap by dropping what lies highest. ret: false: drop the segment. */
static bool make_room(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq, uint32_t charge)
{
#ifdef MILL_MUTANT_NET_OOO_UNBOUNDED
    return true;
#endif
    while (tcp->ooo && tcp->ooo_charge + charge > net->config.ooo_bytes_max) {
        struct mill_buf **last = &tcp->ooo;
        while ((*last)->next) {
            last = &(*last)->next;
        }
        if (!mill_seq_lt(seq, (*last)->hash)) {
            break;
        }
        struct mill_buf *buf = *last;
        *last = NULL;
        tcp->ooo_charge -= buf->charge_bytes;
        buf->free(buf);
        net->counters.ooo_dropped++;
    }
    return tcp->ooo_charge + charge <= net->config.ooo_bytes_max;
}

static void insert_all(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq,
                       struct mill_chain *payload)
{
    struct mill_buf *buf = payload->head;
    *payload = (struct mill_chain){0};
    while (buf) {
        struct mill_buf *next = buf->next;
        buf->hash = seq;
        seq += buf->size_bytes;
        while (buf) {
            buf = insert_one(net, tcp, buf);
        }
        buf = next;
    }
}

static void remember_recent(struct mill_tcp *tcp, uint32_t seq)
{
    memmove(&tcp->sack_recent[1], &tcp->sack_recent[0],
            sizeof(tcp->sack_recent) - sizeof(tcp->sack_recent[0]));
    tcp->sack_recent[0] = seq;
}

/* Out of order: keep it if the caps allow, and say so at once (RFC 5681, 4.2). */
static void receive_early(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq,
                          struct mill_chain *payload)
{
    net->counters.out_of_order++;
    if (make_room(net, tcp, seq, payload->charge_bytes)) {
        insert_all(net, tcp, seq, payload);
        remember_recent(tcp, seq);
    } else {
        net->counters.ooo_dropped++;
    }
    mill_tcp_charge(net, tcp);
    mill_tcp_send_ack(net, tcp);
}

/* RFC 1122, 4.2.3.2: every second full segment, 40 ms at the latest, at once after a gap. */
static void owe_ack(struct mill_net *net, struct mill_tcp *tcp, bool gap_filled)
{
    uint32_t owed = tcp->rcv_nxt - tcp->last_ack_sent;
    if (gap_filled || owed >= 2 * tcp->rx_mss) {
        tcp->ack_now = true;
    }
    if (owed >= ACK_AT_ONCE_SEGMENTS * tcp->rx_mss) {
        mill_tcp_send_ack(net, tcp);
    } else if (!tcp->ack_now && tcp->ack_due_ns == MILL_NEVER) {
        tcp->ack_due_ns = net->now_ns + net->config.delayed_ack_ms * MILL_NS_PER_MS;
    }
}

/* A reader that waits for a whole request consumes nothing until it is there: half a window unread
 * means that the window is too small for the request, so it grows too. Bounded by the configured
 * window and by the budget of all connections. */
static void widen(struct mill_tcp *tcp)
{
    if (!tcp->paused && tcp->stream.rx.size_bytes >= tcp->rx_limit / 2) {
        tcp->rx_limit =
            (uint32_t)MILL_MIN(2 * (uint64_t)tcp->rx_limit, (uint64_t)tcp->stream.rx_bytes_max);
    }
}

void mill_tcp_receive(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq,
                      struct mill_chain *payload)
{
    uint32_t bytes = payload->size_bytes;
    bool over_budget = net->rx_used_bytes + payload->charge_bytes > net->config.rx_budget_bytes;
    bool early = seq != tcp->rcv_nxt;
    if (MILL_UNLIKELY(early)) {
        if (MILL_COUNT_IF(over_budget, net->counters.budget_dropped)) {
            mill_tcp_send_ack(net, tcp);
            return;
        }
        receive_early(net, tcp, seq, payload);
        return;
    }
    bool gap = tcp->ooo != NULL;
    tcp->rx_mss = MILL_MAX(tcp->rx_mss, MILL_MIN(bytes, mill_tcp_mss_ours(net)));
    if (!gap && append_compact(net, tcp, payload)) {
        tcp->rcv_nxt += bytes;
        net->maker.stats.bytes_received += bytes;
    } else if (MILL_COUNT_IF(over_budget, net->counters.budget_dropped)) {
        tcp->ack_now = true; /* it comes again */
        return;
    } else if (gap) {
        insert_all(net, tcp, seq, payload);
        drain(net, tcp);
    } else {
        tcp->rcv_nxt += bytes;
        net->maker.stats.bytes_received += bytes;
        while (payload->head) {
            struct mill_buf *buf = payload->head;
            payload->head = buf->next;
            mill_chain_append(&tcp->stream.rx, buf);
        }
        *payload = (struct mill_chain){0};
    }
    mill_tcp_charge(net, tcp);
    widen(tcp);
    owe_ack(net, tcp, gap);
    mill_tcp_event(net, tcp, MILL_EVENT_RECEIVED);
}

/* Where the right edge could be by what is unread and by the memory that is left. */
static uint32_t possible_edge(const struct mill_net *net, const struct mill_tcp *tcp)
{
    uint64_t budget = net->config.rx_budget_bytes;
    /* Half: a segment's memory may cost twice its bytes. */
    uint64_t memory = budget > net->rx_used_bytes ? (budget - net->rx_used_bytes) / 2 : 0;
    uint32_t held = tcp->stream.rx.size_bytes;
    uint32_t room = tcp->rx_limit > held ? tcp->rx_limit - held : 0;
    return tcp->rcv_nxt + (uint32_t)MILL_MIN((uint64_t)room, memory);
}

/* Silly windows (RFC 1122, 4.2.3.3): the edge moves by a segment or half the window at least. */
static bool worth_moving(const struct mill_net *net, const struct mill_tcp *tcp, uint32_t edge)
{
    uint32_t least = MILL_MIN(mill_tcp_mss_ours(net), tcp->rx_limit / 2);
    return !tcp->paused && mill_seq_lt(tcp->rcv_adv, edge) && edge - tcp->rcv_adv >= least;
}

uint16_t mill_tcp_window(struct mill_net *net, struct mill_tcp *tcp)
{
    uint32_t edge = possible_edge(net, tcp);
    if (worth_moving(net, tcp, edge)) {
        tcp->rcv_adv = edge;
    }
#ifdef MILL_MUTANT_NET_SHRINK_WINDOW
    tcp->rcv_adv = mill_seq_min(tcp->rcv_adv, edge);
#endif
    /* Rounded up, since rounding down would take back what was told before. */
    uint32_t window = tcp->rcv_adv - tcp->rcv_nxt;
    uint32_t unit = 1u << tcp->rcv_wscale;
    uint32_t field = MILL_MIN((window + unit - 1) >> tcp->rcv_wscale, 65535u);
    tcp->rcv_adv = mill_seq_max(tcp->rcv_adv, tcp->rcv_nxt + (field << tcp->rcv_wscale));
    return (uint16_t)field;
}

bool mill_tcp_window_update_due(struct mill_net *net, const struct mill_tcp *tcp)
{
    uint32_t edge = possible_edge(net, tcp);
    if (!worth_moving(net, tcp, edge) || tcp->fin_received) {
        return false;
    }
    uint32_t gain = edge - tcp->rcv_adv;
    return gain >= 2 * mill_tcp_mss_ours(net) || gain >= tcp->rcv_adv - tcp->rcv_nxt;
}

/* The run of kept bytes around seq. ret: false: seq is not kept. */
static bool block_around(const struct mill_tcp *tcp, uint32_t seq, struct mill_sack_range *ret)
{
    const struct mill_buf *buf = tcp->ooo;
    while (buf) {
        struct mill_sack_range range = {buf->hash, buf->hash + buf->size_bytes};
        for (buf = buf->next; buf && buf->hash == range.end; buf = buf->next) {
            range.end += buf->size_bytes;
        }
        if (mill_seq_le(range.start, seq) && mill_seq_lt(seq, range.end)) {
            *ret = range;
            return true;
        }
    }
    return false;
}

static bool listed(const struct mill_sack_range *blocks, uint8_t count, uint32_t start)
{
    for (uint8_t i = 0; i < count; i++) {
        if (blocks[i].start == start) {
            return true;
        }
    }
    return false;
}

uint8_t mill_tcp_sack_blocks(struct mill_tcp *tcp, struct mill_sack_range *blocks, uint8_t max)
{
    uint8_t count = 0;
    for (size_t i = 0; i < MILL_COUNT_OF(tcp->sack_recent) && count < max; i++) {
        struct mill_sack_range range;
        if (block_around(tcp, tcp->sack_recent[i], &range) && !listed(blocks, count, range.start)) {
            blocks[count++] = range;
        }
    }
    for (const struct mill_buf *buf = tcp->ooo; buf && count < max; buf = buf->next) {
        struct mill_sack_range range;
        if (block_around(tcp, buf->hash, &range) && !listed(blocks, count, range.start)) {
            blocks[count++] = range;
        }
    }
    return count;
}
