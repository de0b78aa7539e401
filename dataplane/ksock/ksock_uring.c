/* SPDX-License-Identifier: Apache-2.0 */
/* Engine io_uring: multishot accept, multishot receive into provided buffers, one sendmsg of
 * references under way per connection (io_uring(7), io_uring_enter(2); Linux 6.1 and later).
 *
 * The ring is made with SINGLE_ISSUER, DEFER_TASKRUN and TASKRUN_FLAG: the kernel does its part
 * only when this core enters it, and says in shared memory when there is something to enter for. So
 * a turn without work makes no system call, and no work of the kernel interrupts a turn. It is made
 * disabled and enabled by the first step, because the thread that enables it owns it.
 *
 * Every operation under way is counted in its connection; the descriptor is closed and the slot
 * used again only at 0. That count also covers cancellations, which name a descriptor: it must not
 * belong to somebody else when the kernel reads it.
 *
 * Thread: the maker's core. Never allocates after open. */
#include "dataplane/ksock/ksock_impl.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SQ_ENTRIES = 1024,
    CQ_ENTRIES = 8192, /* the kernel keeps what does not fit and says so */
    SENDS_MAX = 256,   /* message headers of one submission */
    GROUP_COMMON = 0,
    GROUP_RESERVE = 1,
    GROUPS = 2,
    CLOSE_ROUNDS = 100, /* at destroy: how often, 10 ms each, it waits for what was called back */
    CLOSE_ROUND_NS = 10000000,
};

enum operation {
    OP_ACCEPT = 1,
    OP_WATCH,
    OP_CONNECT,
    OP_HANG_UP,
    OP_RECV,
    OP_SEND,
    OP_CANCEL_RECV,
    OP_CANCEL_ALL,
    OP_CANCEL_RING,
};

/* Header and pieces of one sendmsg. The kernel has read both when it took the entry
 * (IORING_FEAT_SUBMIT_STABLE), so they are used again after each submission. */
struct send_slot {
    struct msghdr message;
    struct iovec iov[MILL_KSOCK_IOV_MAX];
};

struct uring {
    struct io_uring ring;
    struct io_uring_buf_ring *buffers[GROUPS];
    uint32_t entries[GROUPS];
    bool registered[GROUPS];
    bool open;
    bool enabled;
    uint64_t inflight; /* all operations, for close */
    uint32_t sends_used;
    struct send_slot sends[SENDS_MAX];
};

static struct uring *uring_of(const struct mill_ksock *ksock)
{
    return ksock->engine_data;
}

static uint64_t tag(enum operation operation, uint32_t index)
{
    return (uint64_t)operation << 32 | index;
}

/* ---- submission ---- */

static void submit(struct mill_ksock *ksock)
{
    struct uring *uring = uring_of(ksock);
    if (uring->enabled && io_uring_sq_ready(&uring->ring) > 0) {
        (void)io_uring_submit(&uring->ring); /* what stays behind goes with the next one */
    }
    if (io_uring_sq_ready(&uring->ring) == 0) {
        uring->sends_used = 0;
    }
}

/* ret: an entry with its tag to be set by mark(), NULL when the kernel takes no more just now. */
static struct io_uring_sqe *entry(struct mill_ksock *ksock)
{
    struct uring *uring = uring_of(ksock);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (MILL_UNLIKELY(!sqe)) {
        submit(ksock);
        sqe = io_uring_get_sqe(&uring->ring);
    }
    return sqe;
}

/* Completes a prepared entry: what it is, and that it is under way. conn may be NULL. */
static void mark(struct mill_ksock *ksock, struct io_uring_sqe *sqe, enum operation operation,
                 uint32_t index, struct mill_ksock_conn *conn)
{
    sqe->user_data = tag(operation, index);
    uring_of(ksock)->inflight++;
    if (conn) {
        conn->inflight++;
    }
}

static int accept_start(struct mill_ksock *ksock, uint32_t listener)
{
    struct io_uring_sqe *sqe = entry(ksock);
    if (!sqe) {
        return -EAGAIN;
    }
    io_uring_prep_multishot_accept(sqe, ksock->listeners[listener].fd, NULL, NULL, SOCK_CLOEXEC);
    mark(ksock, sqe, OP_ACCEPT, listener, NULL);
    return 0;
}

static int attach(struct mill_ksock_conn *conn)
{
    conn->started = conn->state != MILL_KSOCK_CONNECTING;
    return 0;
}

static bool start_connect(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    struct io_uring_sqe *sqe = entry(ksock);
    if (!sqe) {
        return false;
    }
    struct sockaddr_storage name;
    socklen_t size = mill_ksock_sockaddr(conn->stream.peer.address, conn->stream.peer.port, &name);
    MILL_ASSERT_LE(size, sizeof(conn->connect_to));
    memcpy(&conn->connect_to, &name, size);
    io_uring_prep_connect(sqe, conn->fd, (struct sockaddr *)&conn->connect_to, size);
    mark(ksock, sqe, OP_CONNECT, conn->index, conn);
    conn->started = true;
    return true;
}

/* A poll without a wanted event ends at a reset also when nothing is read or sent. */
static bool watch_hang_up(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    struct io_uring_sqe *sqe = entry(ksock);
    if (!sqe) {
        return false;
    }
    io_uring_prep_poll_add(sqe, conn->fd, 0);
    mark(ksock, sqe, OP_HANG_UP, conn->index, conn);
    conn->watching = true;
    return true;
}

static bool call_back(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    struct io_uring_sqe *sqe = entry(ksock);
    if (!sqe) {
        return false;
    }
    io_uring_prep_cancel_fd(sqe, conn->fd, IORING_ASYNC_CANCEL_ALL);
    mark(ksock, sqe, OP_CANCEL_ALL, conn->index, conn);
    conn->detached = true;
    return true;
}

static bool receive(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    struct io_uring_sqe *sqe = entry(ksock);
    if (!sqe) {
        return false;
    }
    bool common = ksock->rx_free_common > 0;
    if (common) {
        io_uring_prep_recv_multishot(sqe, conn->fd, NULL, 0, 0);
    } else {
        /* Once: one buffer of the reserve for a stream that holds none. */
        io_uring_prep_recv(sqe, conn->fd, NULL, ksock->config.rx_buffer_bytes, 0);
    }
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = common ? GROUP_COMMON : GROUP_RESERVE;
    mark(ksock, sqe, OP_RECV, conn->index, conn);
    conn->receiving = true;
    conn->cancelling = false;
    return true;
}

static bool stop_receiving(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    struct io_uring_sqe *sqe = entry(ksock);
    if (!sqe) {
        return false;
    }
    io_uring_prep_cancel64(sqe, tag(OP_RECV, conn->index), 0);
    mark(ksock, sqe, OP_CANCEL_RECV, conn->index, conn);
    conn->cancelling = true;
    return true;
}

static bool serve_rx(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    bool wanted = mill_ksock_rx_wanted(conn);
    bool allowed = wanted && mill_ksock_rx_allowed(conn);
    if (conn->receiving) {
        return allowed || conn->cancelling || conn->stream.rx_ended || stop_receiving(ksock, conn);
    }
    if (wanted && !allowed) {
        mill_ksock_rx_rest(conn);
        return true;
    }
    return !wanted || receive(ksock, conn);
}

static bool serve_tx(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    struct uring *uring = uring_of(ksock);
    if (conn->sending || !mill_ksock_tx_wanted(conn)) {
        return true;
    }
    if (uring->sends_used == SENDS_MAX) {
        submit(ksock);
    }
    if (uring->sends_used == SENDS_MAX) {
        return false;
    }
    struct io_uring_sqe *sqe = entry(ksock);
    if (!sqe) {
        return false;
    }
    struct send_slot *slot = &uring->sends[uring->sends_used++];
    uint32_t length = mill_ksock_queue_iov(&conn->queue, ksock->maker.arena_base, slot->iov,
                                           &conn->sending_bytes);
    slot->message = (struct msghdr){.msg_iov = slot->iov, .msg_iovlen = length};
    io_uring_prep_sendmsg(sqe, conn->fd, &slot->message, MSG_NOSIGNAL);
    mark(ksock, sqe, OP_SEND, conn->index, conn);
    conn->sending = true;
    ksock->counters.sends++;
    return true;
}

static bool serve(struct mill_ksock_conn *conn)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (conn->state == MILL_KSOCK_ENDING) {
        return conn->inflight == 0 || conn->detached || call_back(ksock, conn);
    }
    if (conn->state == MILL_KSOCK_CONNECTING) {
        return conn->started || start_connect(ksock, conn);
    }
    if (!conn->watching && !watch_hang_up(ksock, conn)) {
        return false;
    }
    if (!serve_rx(ksock, conn) || !serve_tx(ksock, conn)) {
        return false;
    }
    if (conn->state == MILL_KSOCK_FLUSHING && conn->queue.count == 0) {
        mill_ksock_conn_flushed(conn);
    }
    return true;
}

/* ---- completions ---- */

static void accepted(struct mill_ksock *ksock, uint32_t listener, int result, bool more)
{
    if (!more) {
        ksock->listeners[listener].armed = false;
        ksock->listeners[listener].retry_ns = ksock->now_ns;
    }
    if (result >= 0) {
        mill_ksock_conn_accepted(ksock, listener, result);
    } else {
        mill_ksock_accept_failed(ksock, listener, result);
    }
}

static bool is_passing(int error)
{
    return error == -ENOBUFS || error == -ECANCELED || error == -EAGAIN || error == -EINTR ||
           error == -ENOMEM;
}

static void received(struct mill_ksock_conn *conn, int result, uint32_t flags, bool more)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (!more) {
        conn->receiving = false;
        conn->cancelling = false;
    }
    struct mill_buf *buf = NULL;
    if (flags & IORING_CQE_F_BUFFER) {
        buf = mill_ksock_rx_take(ksock, flags >> IORING_CQE_BUFFER_SHIFT);
    }
    if (result > 0) {
        MILL_ASSERT(buf != NULL);
        mill_ksock_rx_bytes(conn, buf, (uint32_t)result);
    } else {
        if (buf) {
            buf->free(buf);
        }
        if (result == 0) {
            mill_ksock_rx_ended(conn);
        } else if (!is_passing(result)) {
            mill_ksock_conn_failed(conn, result);
        }
    }
    if (!more || !mill_ksock_rx_wanted(conn) || !mill_ksock_rx_allowed(conn)) {
        mill_ksock_conn_touch(conn);
    }
}

static void sent(struct mill_ksock_conn *conn, int result)
{
    conn->sending = false;
    if (result >= 0) {
        if ((uint64_t)result < conn->sending_bytes) {
            mill_ksock_of(conn)->counters.sends_partial++;
        }
        mill_ksock_tx_taken(conn, (uint64_t)result);
    } else if (!is_passing(result)) {
        mill_ksock_conn_failed(conn, result);
    }
    if (conn->queue.count > 0 || conn->state != MILL_KSOCK_OPEN) {
        mill_ksock_conn_touch(conn);
    }
}

static void hung_up(struct mill_ksock_conn *conn, int result)
{
    if (result < 0 || conn->state == MILL_KSOCK_ENDING) {
        return;
    }
    int error = mill_ksock_socket_error(conn->fd);
    if (error < 0) {
        mill_ksock_conn_failed(conn, error);
    } else if (conn->state == MILL_KSOCK_OPEN && !conn->receiving && !conn->stream.rx_ended) {
        /* Ended both ways without an error to take: nothing more can come. */
        mill_ksock_conn_end(conn, MILL_END_RESET);
    }
}

static void conn_event(struct mill_ksock_conn *conn, enum operation operation, int result,
                       uint32_t flags)
{
    bool more = (flags & IORING_CQE_F_MORE) != 0;
    switch (operation) {
    case OP_CONNECT:
        mill_ksock_conn_connected(conn, result);
        break;
    case OP_HANG_UP:
        hung_up(conn, result);
        break;
    case OP_RECV:
        received(conn, result, flags, more);
        break;
    case OP_SEND:
        sent(conn, result);
        break;
    default:
        break; /* a cancellation: what it called back reports for itself */
    }
    if (!more) {
        mill_ksock_conn_completed(conn);
    }
}

/* Enters the kernel only when it has something for us or we have something for it. */
static void enter(struct mill_ksock *ksock)
{
    struct uring *uring = uring_of(ksock);
    if (MILL_UNLIKELY(!uring->enabled)) {
        /* liburing 2.3 declares io_uring_enable_rings without exporting it. */
        uring->enabled = io_uring_register((unsigned)uring->ring.ring_fd,
                                           IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0;
        if (!uring->enabled) {
            ksock->counters.errors++;
            return;
        }
    }
    /* Relaxed: the flags only say that entering is worth while. */
    unsigned flags = __atomic_load_n(uring->ring.sq.kflags, __ATOMIC_RELAXED);
#ifdef MILL_MUTANT_KSOCK_ENTER_ALWAYS
    flags |= IORING_SQ_TASKRUN;
#endif
    if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
        (void)io_uring_submit_and_get_events(&uring->ring);
    }
    submit(ksock);
}

static uint32_t poll_ring(struct mill_ksock *ksock)
{
    struct uring *uring = uring_of(ksock);
    enter(ksock);
    uint32_t count = 0;
    for (uint32_t taken = 0; taken < MILL_KSOCK_EVENTS_MAX; taken++) {
        struct io_uring_cqe *cqe = NULL;
        unsigned available = 0;
        if (__io_uring_peek_cqe(&uring->ring, &cqe, &available) != 0 || !cqe) {
            break;
        }
        enum operation operation = (enum operation)(cqe->user_data >> 32);
        uint32_t index = (uint32_t)cqe->user_data;
        int result = cqe->res;
        uint32_t flags = cqe->flags;
        /* The entry is the kernel's again before events are reported. */
        io_uring_cqe_seen(&uring->ring, cqe);
        bool more = (flags & IORING_CQE_F_MORE) != 0;
        uring->inflight -= more ? 0 : 1;
        if (operation == OP_WATCH) {
            ksock->watches[index].armed = false;
#ifndef MILL_MUTANT_KSOCK_WATCH_DEAD
            ksock->watches[index].ended = result > 0 && (result & (POLLERR | POLLHUP)) != 0;
#endif
        } else if (operation == OP_ACCEPT) {
            accepted(ksock, index, result, more);
            count++;
        } else if (operation != OP_CANCEL_RING) {
            conn_event(&ksock->conns[index], operation, result, flags);
            count++;
        }
    }
    return count;
}

/* ---- sleeping ---- */

static int watch(struct mill_ksock *ksock, uint32_t index)
{
    MILL_UNUSED(ksock);
    MILL_UNUSED(index);
    return 0; /* armed by the next wait */
}

static int wait_ring(struct mill_ksock *ksock, uint64_t timeout_ns)
{
    struct uring *uring = uring_of(ksock);
    if (!uring->enabled) {
        enter(ksock);
        if (!uring->enabled) {
            return -EBADFD;
        }
    }
    /* One shot each: a descriptor that is still readable ends the next wait at once, as the level
     * it is. */
    for (uint32_t i = 0; i < ksock->watches_count; i++) {
        struct mill_ksock_watch_entry *entry_watch = &ksock->watches[i];
        if (entry_watch->ended) {
            continue;
        }
        struct io_uring_sqe *sqe = entry_watch->armed ? NULL : entry(ksock);
        if (sqe) {
            io_uring_prep_poll_add(sqe, entry_watch->fd, POLLIN);
            mark(ksock, sqe, OP_WATCH, i, NULL);
            entry_watch->armed = true;
        } else if (!entry_watch->armed) {
            return 0; /* not all are watched: do not sleep */
        }
    }
    struct __kernel_timespec timeout = {
        .tv_sec = (long long)(timeout_ns / MILL_NS_PER_S),
        .tv_nsec = (long long)(timeout_ns % MILL_NS_PER_S),
    };
    struct io_uring_cqe *cqe = NULL;
    int error = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1,
                                                 timeout_ns == MILL_NEVER ? NULL : &timeout, NULL);
    if (io_uring_sq_ready(&uring->ring) == 0) {
        uring->sends_used = 0;
    }
    return error >= 0 || error == -ETIME || error == -EINTR || error == -EAGAIN ? 0 : error;
}

/* ---- buffers, opening, closing ---- */

static void buffer_give(struct mill_ksock *ksock, uint32_t index)
{
    struct uring *uring = uring_of(ksock);
    uint32_t group = index < ksock->rx_common ? GROUP_COMMON : GROUP_RESERVE;
    struct io_uring_buf_ring *ring = uring->buffers[group];
    if (!ring) {
        return; /* closing */
    }
    io_uring_buf_ring_add(ring, ksock->rx_memory + (size_t)index * ksock->config.rx_buffer_bytes,
                          ksock->config.rx_buffer_bytes, (unsigned short)index,
                          io_uring_buf_ring_mask(uring->entries[group]), 0);
    io_uring_buf_ring_advance(ring, 1);
}

/* Registers one ring of provided buffers and fills it. */
static int open_group(struct mill_ksock *ksock, uint32_t group, uint32_t entries, uint32_t first,
                      uint32_t end)
{
    struct uring *uring = uring_of(ksock);
    uring->entries[group] = entries;
    uring->buffers[group] = mill_ksock_map((uint64_t)entries * sizeof(struct io_uring_buf));
    if (!uring->buffers[group]) {
        return -ENOMEM;
    }
    struct io_uring_buf_reg registration = {
        .ring_addr = (uint64_t)(uintptr_t)uring->buffers[group],
        .ring_entries = entries,
        .bgid = (uint16_t)group,
    };
    int error = io_uring_register_buf_ring(&uring->ring, &registration, 0);
    if (error != 0) {
        return error;
    }
    uring->registered[group] = true;
    io_uring_buf_ring_init(uring->buffers[group]);
    for (uint32_t i = first; i < end; i++) {
        buffer_give(ksock, i);
    }
    return 0;
}

static int open_ring(struct mill_ksock *ksock, struct mill_report *report)
{
    ksock->engine_data = mill_ksock_map(sizeof(struct uring));
    struct uring *uring = uring_of(ksock);
    if (!uring) {
        return mill_fail(report, -ENOMEM, "io_uring: no memory");
    }
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                 IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL |
                 IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
        .cq_entries = CQ_ENTRIES,
    };
    int error = io_uring_queue_init_params(SQ_ENTRIES, &uring->ring, &params);
    if (error == -EPERM || error == -ENOSYS) {
        return mill_fail(report, error,
                         "io_uring is forbidden here: %s; see kernel.io_uring_disabled and the "
                         "container's seccomp profile",
                         strerror(-error));
    }
    if (error < 0) {
        return mill_fail(report, error, "io_uring: %s; Linux 6.1 or later is needed",
                         strerror(-error));
    }
    uring->open = true;
    if ((params.features & IORING_FEAT_SUBMIT_STABLE) == 0 ||
        (params.features & IORING_FEAT_NODROP) == 0 ||
        (params.features & IORING_FEAT_EXT_ARG) == 0) {
        return mill_fail(report, -ENOSYS,
                         "io_uring: the kernel lacks features; Linux 6.1 is needed");
    }
    uint32_t all = ksock->config.rx_buffers;
    error = open_group(ksock, GROUP_COMMON, all, 0, ksock->rx_common);
    if (error == 0) {
        error = open_group(ksock, GROUP_RESERVE, ksock->rx_free_reserve, ksock->rx_common, all);
    }
    if (error < 0) {
        return mill_fail(report, error, "io_uring: cannot register %u receive buffers: %s", all,
                         strerror(-error));
    }
    return 0;
}

/* Calls everything back and waits, bounded, until the kernel shows no memory of ours any more. On
 * another thread than the owner's this cannot be asked for; then the exit of the ring does it. */
static void drain(struct mill_ksock *ksock)
{
    struct uring *uring = uring_of(ksock);
    struct io_uring_sqe *sqe = entry(ksock);
    if (sqe) {
        io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
        mark(ksock, sqe, OP_CANCEL_RING, 0, NULL);
    }
    for (int round = 0; round < CLOSE_ROUNDS && uring->inflight > 0; round++) {
        struct __kernel_timespec timeout = {.tv_nsec = CLOSE_ROUND_NS};
        struct io_uring_cqe *cqe = NULL;
        int error = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &timeout, NULL);
        if (error < 0 && error != -ETIME && error != -EINTR) {
            return;
        }
        while (io_uring_peek_cqe(&uring->ring, &cqe) == 0 && cqe) {
            if (cqe->user_data >> 32 == OP_ACCEPT && cqe->res >= 0) {
                mill_ksock_socket_reset(cqe->res);
            }
            uring->inflight -= (cqe->flags & IORING_CQE_F_MORE) != 0 ? 0 : 1;
            io_uring_cqe_seen(&uring->ring, cqe);
        }
    }
}

static void close_ring(struct mill_ksock *ksock)
{
    struct uring *uring = uring_of(ksock);
    if (!uring) {
        return;
    }
    if (uring->enabled) {
        drain(ksock);
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        if (uring->registered[i]) {
            (void)io_uring_unregister_buf_ring(&uring->ring, (int)i);
        }
    }
    if (uring->open) {
        io_uring_queue_exit(&uring->ring);
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        mill_ksock_unmap(uring->buffers[i],
                         (uint64_t)uring->entries[i] * sizeof(struct io_uring_buf));
    }
    mill_ksock_unmap(uring, sizeof(*uring));
    ksock->engine_data = NULL;
}

/* A buffer that comes back after close_ring (destroy drops the chains then) goes nowhere. */
static void buffer_free(struct mill_ksock *ksock, uint32_t index)
{
    if (ksock->engine_data) {
        buffer_give(ksock, index);
    }
}

const struct mill_ksock_engine_ops mill_ksock_uring_ops = {
    .open = open_ring,
    .close = close_ring,
    .accept = accept_start,
    .attach = attach,
    .serve = serve,
    .buffer_free = buffer_free,
    .poll = poll_ring,
    .submit = submit,
    .wait = wait_ring,
    .watch = watch,
};
