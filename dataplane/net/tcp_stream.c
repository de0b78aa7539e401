/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the stream interface on a connection (dataplane/stream/stream.h). None tells an
 * event or sends at once: they note and put the connection on the list that the step serves.
 * Owner: the net's core. */
#include <errno.h>

#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

static bool may_send(const struct mill_tcp *tcp)
{
    return !tcp->closing &&
           (tcp->state == MILL_TCP_ESTABLISHED || tcp->state == MILL_TCP_CLOSE_WAIT);
}

static int queued(struct mill_tcp *tcp, int rc)
{
    if (rc == -EAGAIN) {
        tcp->want_room = true;
    } else {
        mill_tcp_activate(mill_tcp_net(tcp), tcp);
    }
    return rc;
}

static int stream_send_ref(struct mill_stream *stream, const struct mill_ref *ref)
{
    struct mill_tcp *tcp = mill_tcp_of(stream);
    if (!may_send(tcp)) {
        return -EPIPE;
    }
    return queued(tcp, mill_send_queue_push_ref(&tcp->queue, stream->maker->loans, ref));
}

static int stream_send_bytes(struct mill_stream *stream, const void *bytes, uint32_t size_bytes)
{
    struct mill_tcp *tcp = mill_tcp_of(stream);
    if (!may_send(tcp)) {
        return -EPIPE;
    }
    MILL_DASSERT(size_bytes <= MILL_STREAM_BYTES_MAX);
    return queued(tcp, mill_send_queue_push_bytes(&tcp->queue, bytes, size_bytes));
}

static void stream_room(const struct mill_stream *stream, uint32_t *ret_refs, uint32_t *ret_bytes)
{
    const struct mill_tcp *tcp = mill_tcp_of(stream);
    *ret_refs = 0;
    *ret_bytes = 0;
    if (may_send(tcp)) {
        mill_send_queue_room(&tcp->queue, ret_refs, ret_bytes);
    }
}

static void stream_push(struct mill_stream *stream)
{
    struct mill_tcp *tcp = mill_tcp_of(stream);
    if (tcp->state != MILL_TCP_CLOSED) {
        tcp->push_seq = tcp->queue.seq_end;
        mill_tcp_activate(mill_tcp_net(tcp), tcp);
    }
}

/* The window grows when half of it was consumed within two round trips: then the window, not the
 * reader, is what holds the peer back. */
static void grow_window(struct mill_net *net, struct mill_tcp *tcp, uint32_t size_bytes)
{
    tcp->rx_consumed += size_bytes;
    if (tcp->rx_consumed < tcp->rx_limit / 2) {
        return;
    }
    uint64_t trip_ns = MILL_MAX(tcp->rtt.srtt_us, 1000u) * 2 * MILL_NS_PER_US;
    if (net->now_ns - tcp->rx_epoch_ns <= trip_ns) {
        tcp->rx_limit =
            (uint32_t)MILL_MIN(2 * (uint64_t)tcp->rx_limit, (uint64_t)tcp->stream.rx_bytes_max);
    }
    tcp->rx_consumed = 0;
    tcp->rx_epoch_ns = net->now_ns;
}

static void stream_consume(struct mill_stream *stream, uint32_t size_bytes)
{
    struct mill_tcp *tcp = mill_tcp_of(stream);
    struct mill_net *net = mill_tcp_net(tcp);
    mill_chain_consume(&stream->rx, size_bytes);
    mill_tcp_charge(net, tcp);
    if (tcp->state == MILL_TCP_CLOSED) {
        return;
    }
    grow_window(net, tcp, size_bytes);
    if (mill_tcp_window_update_due(net, tcp)) {
        tcp->ack_now = true;
        mill_tcp_activate(net, tcp);
    }
}

static void stream_pause(struct mill_stream *stream, bool paused)
{
    struct mill_tcp *tcp = mill_tcp_of(stream);
    struct mill_net *net = mill_tcp_net(tcp);
    tcp->paused = paused;
    if (!paused && tcp->state != MILL_TCP_CLOSED) {
        tcp->ack_now = mill_tcp_window_update_due(net, tcp) || tcp->ack_now;
        if (tcp->ack_now || tcp->events != 0) {
            mill_tcp_activate(net, tcp);
        }
    }
}

static void stream_abort(struct mill_stream *stream)
{
    struct mill_tcp *tcp = mill_tcp_of(stream);
    struct mill_net *net = mill_tcp_net(tcp);
    if (tcp->state != MILL_TCP_CLOSED) {
        mill_tcp_send_rst(net, tcp);
        tcp->connect_error = -ECONNABORTED;
        mill_tcp_finish(net, tcp, MILL_END_ABORTED);
    }
}

static void stream_close(struct mill_stream *stream)
{
    struct mill_tcp *tcp = mill_tcp_of(stream);
    struct mill_net *net = mill_tcp_net(tcp);
    if (tcp->closing || tcp->state == MILL_TCP_CLOSED) {
        return;
    }
    if (tcp->state == MILL_TCP_SYN_SENT || tcp->state == MILL_TCP_SYN_RCVD) {
        stream_abort(stream);
        return;
    }
    tcp->closing = true;
    /* Nobody reads any more, but a reset (RFC 1122, 4.2.2.13) could make the peer lose what is
     * queued for it, an error answer say: what is unread and what still comes is dropped. */
    tcp->deaf = true;
    tcp->paused = false;
    mill_tcp_receive_clear(net, tcp);
    tcp->ack_now = mill_tcp_window_update_due(net, tcp) || tcp->ack_now;
    tcp->push_seq = tcp->queue.seq_end;
    tcp->state = tcp->state == MILL_TCP_CLOSE_WAIT ? MILL_TCP_LAST_ACK : MILL_TCP_FIN_WAIT_1;
    tcp->progress_ns = net->now_ns; /* the orphan's patience begins */
    mill_tcp_activate(net, tcp);
}

static uint64_t stream_unacked_bytes(const struct mill_stream *stream)
{
    const struct mill_tcp *tcp = mill_tcp_of(stream);
    if (tcp->state == MILL_TCP_CLOSED || !mill_seq_lt(tcp->snd_una, tcp->queue.seq_end)) {
        return 0;
    }
    return tcp->queue.seq_end - mill_seq_max(tcp->snd_una, tcp->iss + 1);
}

const struct mill_stream_ops mill_tcp_stream_ops = {
    .send_ref = stream_send_ref,
    .send_bytes = stream_send_bytes,
    .room = stream_room,
    .push = stream_push,
    .consume = stream_consume,
    .pause = stream_pause,
    .close = stream_close,
    .abort = stream_abort,
    .unacked_bytes = stream_unacked_bytes,
};
