/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of kernel sockets: their slots, their states, the stream calls of the core and the
 * rules for receive buffers. The engines tell it what the kernel did; it tells the core.
 * Thread: the maker's core. The stream calls never enter the kernel, nothing here allocates. */
#include "dataplane/ksock/ksock_impl.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct mill_ksock_conn *conn_of(struct mill_stream *stream)
{
    return MILL_CONTAINER_OF(stream, struct mill_ksock_conn, stream);
}

static const struct mill_ksock_conn *conn_of_const(const struct mill_stream *stream)
{
    return (const struct mill_ksock_conn *)(const void *)stream;
}
static_assert(offsetof(struct mill_ksock_conn, stream) == 0, "conn_of_const");

/* ---- slots ---- */

struct mill_ksock_conn *mill_ksock_conn_new(struct mill_ksock *ksock, int fd)
{
    struct mill_ksock_node *node = mill_ksock_list_first(&ksock->free);
    if (!node) {
        return NULL;
    }
    mill_ksock_list_remove(&ksock->free, node);
    struct mill_ksock_conn *conn = MILL_CONTAINER_OF(node, struct mill_ksock_conn, life);
    MILL_ASSERT_EQ(conn->state, MILL_KSOCK_FREE);
    struct mill_ksock_conn fresh = {
        .stream = {.ops = &mill_ksock_stream_ops,
                   .maker = &ksock->maker,
                   .rx_bytes_max = ksock->config.rx_window_max},
        .queue = conn->queue,
        .index = conn->index,
        .fd = fd,
        .state = MILL_KSOCK_CONNECTING,
    };
    *conn = fresh;
    ksock->maker.stats.connections++;
    return conn;
}

void mill_ksock_conn_touch(struct mill_ksock_conn *conn)
{
    if (!mill_ksock_on_list(&conn->work)) {
        mill_ksock_list_append(&mill_ksock_of(conn)->work, &conn->work);
    }
}

/* Leaves whatever list its state kept it on. */
static void leave_life(struct mill_ksock_conn *conn)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (mill_ksock_on_list(&conn->life)) {
        struct mill_ksock_list *list = &ksock->ended;
        if (conn->state == MILL_KSOCK_FLUSHING) {
            list = &ksock->flushing;
        } else if (conn->state == MILL_KSOCK_FIN_SENT) {
            list = &ksock->fin;
        }
        mill_ksock_list_remove(list, &conn->life);
    }
}

static void leave_lists(struct mill_ksock_conn *conn)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    leave_life(conn);
    if (mill_ksock_on_list(&conn->work)) {
        mill_ksock_list_remove(&ksock->work, &conn->work);
    }
    if (mill_ksock_on_list(&conn->rest)) {
        mill_ksock_list_remove(&ksock->rest, &conn->rest);
    }
}

void mill_ksock_conn_discard(struct mill_ksock_conn *conn)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    leave_lists(conn);
    mill_ksock_queue_drop(&conn->queue, ksock->maker.loans);
    mill_chain_clear(&conn->stream.rx);
    /* Everything but an end in order shows the peer that bytes may be missing. */
    if (conn->state == MILL_KSOCK_ENDING && conn->end == MILL_END_CLOSED) {
        close(conn->fd);
    } else {
        mill_ksock_socket_reset(conn->fd);
    }
    conn->fd = -1;
    conn->state = MILL_KSOCK_FREE;
    ksock->maker.stats.connections--;
    mill_ksock_list_push(&ksock->free, &conn->life);
}

void mill_ksock_conn_end(struct mill_ksock_conn *conn, enum mill_stream_end end)
{
    MILL_DASSERT(conn->state != MILL_KSOCK_FREE);
    if (conn->state == MILL_KSOCK_ENDING) {
        return;
    }
    leave_life(conn);
    conn->state = MILL_KSOCK_ENDING;
    conn->end = (uint8_t)end;
    if (conn->inflight == 0) {
        mill_ksock_list_append(&mill_ksock_of(conn)->ended, &conn->life);
    } else {
        mill_ksock_conn_touch(conn);
    }
}

void mill_ksock_conn_failed(struct mill_ksock_conn *conn, int error)
{
    enum mill_stream_end end = MILL_END_ERROR;
    if (error == -ECONNRESET || error == -EPIPE || error == -ECONNABORTED) {
        end = MILL_END_RESET;
    } else if (error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ENETUNREACH) {
        end = MILL_END_TIMEOUT;
    }
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (conn->state != MILL_KSOCK_ENDING) {
        if (end == MILL_END_TIMEOUT) {
            ksock->counters.timeouts++;
        } else if (end == MILL_END_ERROR) {
            ksock->counters.errors++;
        }
    }
    mill_ksock_conn_end(conn, end);
}

void mill_ksock_conn_completed(struct mill_ksock_conn *conn)
{
    MILL_ASSERT(conn->inflight > 0);
    conn->inflight--;
    if (conn->inflight == 0 && conn->state == MILL_KSOCK_ENDING &&
        !mill_ksock_on_list(&conn->life)) {
        mill_ksock_list_append(&mill_ksock_of(conn)->ended, &conn->life);
    }
}

uint32_t mill_ksock_conns_finish(struct mill_ksock *ksock)
{
    uint32_t count = MILL_MIN(ksock->ended.length, (uint32_t)MILL_KSOCK_WORK_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct mill_ksock_node *node = mill_ksock_list_first(&ksock->ended);
        struct mill_ksock_conn *conn = MILL_CONTAINER_OF(node, struct mill_ksock_conn, life);
        /* The loans go back before the event, so that the core sees them returned. */
        mill_ksock_queue_drop(&conn->queue, ksock->maker.loans);
        conn->stream.dead = true;
        if (conn->connect_error != 0) {
            ksock->maker.events->connected(ksock->maker.context, &conn->stream,
                                           conn->connect_error);
        } else if (!conn->silent) {
            ksock->maker.events->closed(ksock->maker.context, &conn->stream,
                                        (enum mill_stream_end)conn->end);
        }
        mill_ksock_conn_discard(conn);
    }
    return count;
}

/* Ends the connections at the front of list whose time is over. */
static uint32_t expire(struct mill_ksock *ksock, struct mill_ksock_list *list)
{
    uint32_t count = 0;
    struct mill_ksock_node *node;
    while (count < MILL_KSOCK_WORK_MAX && (node = mill_ksock_list_first(list)) != NULL) {
        struct mill_ksock_conn *conn = MILL_CONTAINER_OF(node, struct mill_ksock_conn, life);
        if (conn->deadline_ns > ksock->now_ns) {
            break;
        }
#ifdef MILL_MUTANT_KSOCK_NO_TIMEOUT
        break;
#endif
        ksock->counters.timeouts++;
        mill_ksock_conn_end(conn, MILL_END_TIMEOUT);
        count++;
    }
    return count;
}

uint32_t mill_ksock_conns_expire(struct mill_ksock *ksock)
{
    return expire(ksock, &ksock->flushing) + expire(ksock, &ksock->fin);
}

/* ---- opening ---- */

void mill_ksock_conn_accepted(struct mill_ksock *ksock, uint32_t listener, int fd)
{
    struct mill_ksock_conn *conn = mill_ksock_conn_new(ksock, fd);
    if (!conn) {
#ifndef MILL_MUTANT_KSOCK_REFUSED_UNCOUNTED
        ksock->maker.stats.refused++;
#endif
        mill_ksock_socket_reset(fd);
        return;
    }
    conn->state = MILL_KSOCK_OPEN;
    conn->stream.listener = ksock->listeners[listener].listener;
    mill_ksock_peer(fd, &conn->stream.peer);
    int error = ksock->engine->attach(conn);
    if (error < 0) {
        ksock->maker.stats.refused++;
        ksock->counters.errors++;
        conn->silent = true;
        mill_ksock_conn_end(conn, MILL_END_ERROR);
        return;
    }
    mill_ksock_conn_touch(conn);
    if (ksock->maker.events->accepted(ksock->maker.context, &conn->stream) < 0) {
        ksock->maker.stats.refused++;
        conn->silent = true;
        mill_ksock_conn_end(conn, MILL_END_ABORTED);
        return;
    }
    ksock->maker.stats.accepted++;
}

MILL_COLD void mill_ksock_accept_failed(struct mill_ksock *ksock, uint32_t listener, int error)
{
    /* Errors of the one connection that could not be taken (accept(2)): the next may be fine. */
    bool passing = error == -ECONNABORTED || error == -EINTR || error == -EAGAIN ||
                   error == -EPROTO || error == -EPERM || error == -ECANCELED;
    ksock->listeners[listener].armed = false;
    ksock->listeners[listener].retry_ns = ksock->now_ns;
    if (!passing) {
        ksock->counters.accept_stalls++;
        ksock->listeners[listener].retry_ns +=
            (uint64_t)MILL_KSOCK_ACCEPT_RETRY_MS * MILL_NS_PER_MS;
    }
}

void mill_ksock_conn_connected(struct mill_ksock_conn *conn, int error)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (conn->state != MILL_KSOCK_CONNECTING) {
        return; /* aborted meanwhile */
    }
    if (error < 0) {
        /* Reported by connected with its reason; no error of this maker. */
        conn->connect_error = error;
        mill_ksock_conn_end(conn, MILL_END_ERROR);
        return;
    }
    conn->state = MILL_KSOCK_OPEN;
    mill_ksock_local(conn->fd, &conn->stream.peer);
    mill_ksock_conn_touch(conn);
    ksock->maker.events->connected(ksock->maker.context, &conn->stream, 0);
}

/* ---- receiving ---- */

bool mill_ksock_rx_wanted(const struct mill_ksock_conn *conn)
{
    if (conn->stream.rx_ended) {
        return false;
    }
#ifdef MILL_MUTANT_KSOCK_NO_WINDOW
    if (conn->state == MILL_KSOCK_OPEN) {
        return !conn->paused;
    }
#endif
    if (conn->state == MILL_KSOCK_OPEN) {
        return !conn->paused &&
               conn->stream.rx.size_bytes < mill_ksock_of(conn)->config.rx_window_max;
    }
    /* After our close the rest is read and thrown away: unread bytes would turn the FIN into a
     * reset and take from the peer what it has not read yet (RFC 9293 3.10.4, RFC 2525 2.17). */
    return conn->state == MILL_KSOCK_FLUSHING || conn->state == MILL_KSOCK_FIN_SENT;
}

bool mill_ksock_rx_allowed(const struct mill_ksock_conn *conn)
{
    const struct mill_ksock *ksock = mill_ksock_of(conn);
    uint64_t held = conn->stream.rx.charge_bytes;
#ifdef MILL_MUTANT_KSOCK_NO_RESERVE
    held = 0; /* everybody may take the last buffer */
#endif
    if (held == 0) {
        return ksock->rx_free_common > 0 || ksock->rx_free_reserve > 0;
    }
    /* A stream may hold a quarter of what is still free: however many hold on to their share,
     * something is left. */
    return held * 4 <= (uint64_t)ksock->rx_free_common * ksock->config.rx_buffer_bytes;
}

void mill_ksock_rx_rest(struct mill_ksock_conn *conn)
{
    if (!mill_ksock_on_list(&conn->rest)) {
        struct mill_ksock *ksock = mill_ksock_of(conn);
        mill_ksock_list_append(&ksock->rest, &conn->rest);
        ksock->counters.rx_starved++;
    }
}

/* mill_buf.free of a receive buffer. */
static void buffer_free(struct mill_buf *buf)
{
    struct mill_ksock *ksock = buf->owner;
    uint32_t index = (uint32_t)(buf - ksock->rx_bufs);
    if (index < ksock->rx_common) {
        ksock->rx_free_common++;
    } else {
        ksock->rx_free_reserve++;
    }
    ksock->rx_wake = ksock->rest.length;
    ksock->engine->buffer_free(ksock, index);
}

struct mill_buf *mill_ksock_rx_take(struct mill_ksock *ksock, uint32_t index)
{
    MILL_ASSERT_LT(index, ksock->config.rx_buffers);
    if (index < ksock->rx_common) {
        MILL_ASSERT(ksock->rx_free_common > 0);
        ksock->rx_free_common--;
    } else {
        MILL_ASSERT(ksock->rx_free_reserve > 0);
        ksock->rx_free_reserve--;
    }
    struct mill_buf *buf = &ksock->rx_bufs[index];
    *buf = (struct mill_buf){
        .data = ksock->rx_memory + (size_t)index * ksock->config.rx_buffer_bytes,
        .charge_bytes = ksock->config.rx_buffer_bytes,
        .free = buffer_free,
        .owner = ksock,
    };
    return buf;
}

/* Moves the bytes of buf behind those of the chain's last buffer when they fit there: then at least
 * every other buffer's worth of memory is used, and a peer that sends byte by byte holds one
 * buffer, not one for each byte. ret: true, and buf is free again. */
static bool join(struct mill_ksock *ksock, struct mill_chain *rx, struct mill_buf *buf)
{
    struct mill_buf *tail = rx->tail;
    if (!tail) {
        return false;
    }
    size_t index = (size_t)(tail - ksock->rx_bufs);
    const uint8_t *end = ksock->rx_memory + (index + 1) * ksock->config.rx_buffer_bytes;
    if ((size_t)(end - (tail->data + tail->size_bytes)) < buf->size_bytes) {
        return false;
    }
    memcpy(tail->data + tail->size_bytes, buf->data, buf->size_bytes);
    tail->size_bytes += buf->size_bytes;
    rx->size_bytes += buf->size_bytes;
    ksock->counters.rx_joined_bytes += buf->size_bytes;
    buffer_free(buf);
    return true;
}

void mill_ksock_rx_bytes(struct mill_ksock_conn *conn, struct mill_buf *buf, uint32_t size_bytes)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (conn->state != MILL_KSOCK_OPEN) {
        buffer_free(buf);
        return;
    }
    buf->size_bytes = size_bytes;
    ksock->maker.stats.bytes_received += size_bytes;
    if (!join(ksock, &conn->stream.rx, buf)) {
        mill_chain_append(&conn->stream.rx, buf);
    }
    ksock->maker.events->received(ksock->maker.context, &conn->stream);
}

void mill_ksock_rx_ended(struct mill_ksock_conn *conn)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    conn->stream.rx_ended = true;
    if (conn->state == MILL_KSOCK_OPEN) {
        ksock->maker.events->received(ksock->maker.context, &conn->stream);
    } else if (conn->state == MILL_KSOCK_FIN_SENT) {
        mill_ksock_conn_end(conn, MILL_END_CLOSED);
    }
}

/* ---- sending ---- */

bool mill_ksock_tx_wanted(const struct mill_ksock_conn *conn)
{
    return conn->queue.count > 0 &&
           (conn->state == MILL_KSOCK_OPEN || conn->state == MILL_KSOCK_FLUSHING);
}

static void set_deadline(struct mill_ksock_conn *conn, struct mill_ksock_list *list, uint64_t ms)
{
    conn->deadline_ns = mill_ksock_of(conn)->now_ns + ms * MILL_NS_PER_MS;
    mill_ksock_list_append(list, &conn->life);
}

void mill_ksock_tx_taken(struct mill_ksock_conn *conn, uint64_t size_bytes)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    mill_ksock_queue_advance(&conn->queue, &ksock->maker, size_bytes);
    if (conn->state == MILL_KSOCK_FLUSHING) {
        /* Progress: the time for flushing begins anew. */
        leave_life(conn);
        set_deadline(conn, &ksock->flushing, ksock->config.user_timeout_ms);
    }
    if (conn->state != MILL_KSOCK_OPEN && conn->state != MILL_KSOCK_FLUSHING) {
        return;
    }
    ksock->maker.events->acked(ksock->maker.context, &conn->stream, size_bytes);
    if (conn->room_wanted && conn->state == MILL_KSOCK_OPEN) {
        conn->room_wanted = false;
        ksock->maker.events->room(ksock->maker.context, &conn->stream);
    }
}

void mill_ksock_conn_flushed(struct mill_ksock_conn *conn)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (shutdown(conn->fd, SHUT_WR) != 0) {
        mill_ksock_conn_failed(conn, errno == ENOTCONN ? -ECONNRESET : -errno);
        return;
    }
    if (conn->stream.rx_ended) {
        mill_ksock_conn_end(conn, MILL_END_CLOSED);
        return;
    }
    leave_life(conn);
    conn->state = MILL_KSOCK_FIN_SENT;
    set_deadline(conn, &ksock->fin, MILL_KSOCK_FIN_WAIT_MS);
}

/* ---- calls of the core ---- */

static int send_ref(struct mill_stream *stream, const struct mill_ref *ref)
{
    struct mill_ksock_conn *conn = conn_of(stream);
    if (conn->state != MILL_KSOCK_OPEN) {
        return -EPIPE;
    }
    int error = mill_ksock_queue_ref(&conn->queue, ref, stream->maker);
    if (error < 0) {
        conn->room_wanted = true;
        return error;
    }
    mill_ksock_conn_touch(conn);
    return 0;
}

static int send_bytes(struct mill_stream *stream, const void *bytes, uint32_t size_bytes)
{
    struct mill_ksock_conn *conn = conn_of(stream);
    MILL_DASSERT(size_bytes <= MILL_STREAM_BYTES_MAX);
    if (conn->state != MILL_KSOCK_OPEN) {
        return -EPIPE;
    }
    int error = mill_ksock_queue_bytes(&conn->queue, bytes, size_bytes);
    if (error < 0) {
        conn->room_wanted = true;
        return error;
    }
    mill_ksock_conn_touch(conn);
    return 0;
}

static void room(const struct mill_stream *stream, uint32_t *ret_refs, uint32_t *ret_bytes)
{
    const struct mill_ksock_conn *conn = conn_of_const(stream);
    bool open = conn->state == MILL_KSOCK_OPEN;
    *ret_refs = open ? conn->queue.refs_max - conn->queue.refs_count : 0;
    *ret_bytes = open ? conn->queue.arena_max - conn->queue.arena_used : 0;
}

/* Whatever is queued goes out with the next step anyway (TCP_NODELAY, no corking). */
static void push(struct mill_stream *stream)
{
    struct mill_ksock_conn *conn = conn_of(stream);
    if (mill_ksock_tx_wanted(conn)) {
        mill_ksock_conn_touch(conn);
    }
}

static void consume(struct mill_stream *stream, uint32_t size_bytes)
{
    struct mill_ksock_conn *conn = conn_of(stream);
    mill_chain_consume(&stream->rx, size_bytes);
    if (mill_ksock_rx_wanted(conn) && !conn->receiving) {
        mill_ksock_conn_touch(conn);
    }
}

static void pause_reading(struct mill_stream *stream, bool paused)
{
    struct mill_ksock_conn *conn = conn_of(stream);
    if (conn->paused != paused && conn->state != MILL_KSOCK_ENDING) {
        conn->paused = paused;
        mill_ksock_conn_touch(conn);
    }
}

static void abort_stream(struct mill_stream *stream)
{
    mill_ksock_conn_end(conn_of(stream), MILL_END_ABORTED);
}

static void close_stream(struct mill_stream *stream)
{
    struct mill_ksock_conn *conn = conn_of(stream);
    if (conn->state == MILL_KSOCK_CONNECTING) {
        abort_stream(stream);
        return;
    }
    if (conn->state != MILL_KSOCK_OPEN) {
        return;
    }
    struct mill_ksock *ksock = mill_ksock_of(conn);
    conn->state = MILL_KSOCK_FLUSHING;
    set_deadline(conn, &ksock->flushing, ksock->config.user_timeout_ms);
    mill_ksock_conn_touch(conn);
}

static uint64_t unacked_bytes(const struct mill_stream *stream)
{
    return conn_of_const(stream)->queue.bytes;
}

const struct mill_stream_ops mill_ksock_stream_ops = {
    .send_ref = send_ref,
    .send_bytes = send_bytes,
    .room = room,
    .push = push,
    .consume = consume,
    .pause = pause_reading,
    .close = close_stream,
    .abort = abort_stream,
    .unacked_bytes = unacked_bytes,
};
