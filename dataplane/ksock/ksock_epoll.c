/* SPDX-License-Identifier: Apache-2.0 */
/* Engine epoll, for machines that forbid io_uring: non-blocking sockets in one edge-triggered set
 * (epoll(7)). An edge is remembered in the connection (readable, writable) until a call answers
 * EAGAIN, so that pausing and resuming need no system call. Same limits, same pools, same queue.
 * Thread: the maker's core. Never allocates after open. */
#include "dataplane/ksock/ksock_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    READS_MAX = 4,    /* buffers of one stream in one visit */
    SENDS_MAX = 4,    /* sendmsg of one stream in one visit */
    ACCEPTS_MAX = 64, /* connections of one listener in one step */
};

enum kind {
    KIND_CONN,
    KIND_LISTENER,
    KIND_WATCH,
};

struct epoll {
    int fd;
    int events_count; /* taken by wait or poll, not looked at yet */
    struct epoll_event events[MILL_KSOCK_EVENTS_MAX];
    /* Two stacks of free buffers, common and reserve; their heights are ksock's rx_free_... */
    uint32_t *free_buffers;
};

static struct epoll *epoll_of(const struct mill_ksock *ksock)
{
    return ksock->engine_data;
}

static int add(struct mill_ksock *ksock, int fd, uint32_t events, enum kind kind, uint32_t index)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | index};
    return epoll_ctl(epoll_of(ksock)->fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int add_conn(struct mill_ksock_conn *conn)
{
    return add(mill_ksock_of(conn), conn->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, KIND_CONN,
               conn->index);
}

/* ---- opening ---- */

static int set_nonblocking(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 ? 0 : -errno;
}

static int accept_start(struct mill_ksock *ksock, uint32_t listener)
{
    int fd = ksock->listeners[listener].fd;
    int error = set_nonblocking(fd);
    return error < 0 ? error : add(ksock, fd, EPOLLIN, KIND_LISTENER, listener);
}

static int attach(struct mill_ksock_conn *conn)
{
    if (conn->state == MILL_KSOCK_CONNECTING) {
        /* Joins the set after connect: before it, it would count as hung up. */
        return set_nonblocking(conn->fd);
    }
    conn->started = true;
    return add_conn(conn);
}

static void start_connect(struct mill_ksock_conn *conn)
{
    struct sockaddr_storage name;
    socklen_t size = mill_ksock_sockaddr(conn->stream.peer.address, conn->stream.peer.port, &name);
    conn->started = true;
    int error = connect(conn->fd, (struct sockaddr *)&name, size) == 0 ? 0 : -errno;
    if (error == -EINPROGRESS || error == 0) {
        /* The set reports it, be it done already or later. */
        error = add_conn(conn);
    }
    if (error < 0) {
        mill_ksock_conn_connected(conn, error);
    }
}

/* ---- serving a connection ---- */

/* ret: index of a buffer that the stream may take; it is there because rx_allowed said so. */
static uint32_t free_buffer(const struct mill_ksock *ksock)
{
    const struct epoll *epoll = epoll_of(ksock);
    if (ksock->rx_free_common > 0) {
        return epoll->free_buffers[ksock->rx_free_common - 1];
    }
    return epoll->free_buffers[ksock->rx_common + ksock->rx_free_reserve - 1];
}

static void buffer_free(struct mill_ksock *ksock, uint32_t index)
{
    struct epoll *epoll = epoll_of(ksock);
    if (!epoll) {
        return; /* destroy */
    }
    if (index < ksock->rx_common) {
        epoll->free_buffers[ksock->rx_free_common - 1] = index;
    } else {
        epoll->free_buffers[ksock->rx_common + ksock->rx_free_reserve - 1] = index;
    }
}

static void serve_rx(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    for (int reads = 0; conn->readable && mill_ksock_rx_wanted(conn); reads++) {
        if (reads == READS_MAX) {
            mill_ksock_conn_touch(conn);
            return;
        }
        if (!mill_ksock_rx_allowed(conn)) {
            mill_ksock_rx_rest(conn);
            return;
        }
        uint32_t index = free_buffer(ksock);
        ssize_t size =
            recv(conn->fd, ksock->rx_memory + (size_t)index * ksock->config.rx_buffer_bytes,
                 ksock->config.rx_buffer_bytes, 0);
        if (size > 0) {
            mill_ksock_rx_bytes(conn, mill_ksock_rx_take(ksock, index), (uint32_t)size);
        } else if (size == 0) {
            mill_ksock_rx_ended(conn);
        } else if (errno == EAGAIN) {
            conn->readable = false;
        } else if (errno != EINTR) {
            mill_ksock_conn_failed(conn, -errno);
        }
    }
}

static void serve_tx(struct mill_ksock *ksock, struct mill_ksock_conn *conn)
{
    for (int sends = 0; conn->writable && mill_ksock_tx_wanted(conn); sends++) {
        if (sends == SENDS_MAX) {
            mill_ksock_conn_touch(conn);
            return;
        }
        struct iovec iov[MILL_KSOCK_IOV_MAX];
        uint64_t size_bytes = 0;
        uint32_t length =
            mill_ksock_queue_iov(&conn->queue, ksock->maker.arena_base, iov, &size_bytes);
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = length};
        ssize_t size = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
        ksock->counters.sends++;
        if (size >= 0) {
            ksock->counters.sends_partial += (uint64_t)size < size_bytes ? 1 : 0;
            mill_ksock_tx_taken(conn, (uint64_t)size);
        } else if (errno == EAGAIN) {
            conn->writable = false;
        } else if (errno == ENOBUFS || errno == ENOMEM) {
            mill_ksock_conn_touch(conn);
            return;
        } else if (errno != EINTR) {
            mill_ksock_conn_failed(conn, -errno);
        }
    }
}

static bool serve(struct mill_ksock_conn *conn)
{
    struct mill_ksock *ksock = mill_ksock_of(conn);
    if (conn->state == MILL_KSOCK_ENDING) {
        return true; /* nothing is in the kernel; closing the descriptor leaves the set */
    }
    if (conn->state == MILL_KSOCK_CONNECTING) {
        if (!conn->started) {
            start_connect(conn);
        }
        return true;
    }
    serve_rx(ksock, conn);
    serve_tx(ksock, conn);
    if (conn->state == MILL_KSOCK_FLUSHING && conn->queue.count == 0) {
        mill_ksock_conn_flushed(conn);
    }
    return true;
}

/* ---- events ---- */

static void accept_ready(struct mill_ksock *ksock, uint32_t listener)
{
    int fd = ksock->listeners[listener].fd;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (accepted >= 0) {
            mill_ksock_conn_accepted(ksock, listener, accepted);
            continue;
        }
        if (errno == EAGAIN) {
            return;
        }
        if (errno != ECONNABORTED && errno != EINTR) {
            /* Level-triggered: it must leave the set for the pause, or no sleep would last. */
            int error = -errno;
            (void)epoll_ctl(epoll_of(ksock)->fd, EPOLL_CTL_DEL, fd, NULL);
            mill_ksock_accept_failed(ksock, listener, error);
            return;
        }
    }
}

static void conn_ready(struct mill_ksock_conn *conn, uint32_t events)
{
    if (conn->state == MILL_KSOCK_FREE || conn->state == MILL_KSOCK_ENDING) {
        return; /* seen by wait before it ended */
    }
    if (conn->state == MILL_KSOCK_CONNECTING) {
        int error = mill_ksock_socket_error(conn->fd);
        struct sockaddr_storage name;
        socklen_t size = sizeof(name);
        if (error == 0 && getpeername(conn->fd, (struct sockaddr *)&name, &size) != 0) {
            return; /* an event of the slot's previous connection */
        }
        mill_ksock_conn_connected(conn, error);
        if (error < 0) {
            return;
        }
    }
    if (events & EPOLLERR) {
        int error = mill_ksock_socket_error(conn->fd);
        if (error < 0) {
            mill_ksock_conn_failed(conn, error);
            return;
        }
    }
    conn->readable |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    conn->writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    mill_ksock_conn_touch(conn);
}

/* A watched descriptor is looked at by its owner; here only the end of what it stood for matters.
 */
static void watch_ready(struct mill_ksock *ksock, uint32_t index, uint32_t events)
{
    struct mill_ksock_watch_entry *entry = &ksock->watches[index];
    bool dead = (events & (EPOLLERR | EPOLLHUP)) != 0;
#ifdef MILL_MUTANT_KSOCK_WATCH_DEAD
    dead = false;
#endif
    if (dead && !entry->ended) {
        entry->ended = true;
        (void)epoll_ctl(epoll_of(ksock)->fd, EPOLL_CTL_DEL, entry->fd, NULL);
    }
}

static uint32_t poll_set(struct mill_ksock *ksock)
{
    struct epoll *epoll = epoll_of(ksock);
    /* Without a socket there is nothing to ask for: a core whose clients all come over a port makes
     * no system call here. Watched descriptors matter to a sleep only. */
    bool sockets = ksock->listeners_count > 0 || ksock->maker.stats.connections > 0;
    if (epoll->events_count == 0 && sockets) {
        epoll->events_count = epoll_wait(epoll->fd, epoll->events, MILL_KSOCK_EVENTS_MAX, 0);
    }
    uint32_t count = 0;
    for (int i = 0; i < epoll->events_count; i++) {
        uint32_t index = (uint32_t)epoll->events[i].data.u64;
        enum kind kind = (enum kind)(epoll->events[i].data.u64 >> 32);
        if (kind == KIND_LISTENER) {
            accept_ready(ksock, index);
            count++;
        } else if (kind == KIND_CONN) {
            conn_ready(&ksock->conns[index], epoll->events[i].events);
            count++;
        } else if (kind == KIND_WATCH) {
            watch_ready(ksock, index, epoll->events[i].events);
        }
    }
    epoll->events_count = 0;
    return count;
}

static void submit(struct mill_ksock *ksock)
{
    MILL_UNUSED(ksock); /* serve made its calls at once */
}

static int watch(struct mill_ksock *ksock, uint32_t index)
{
    return add(ksock, ksock->watches[index].fd, EPOLLIN, KIND_WATCH, index);
}

static int wait_set(struct mill_ksock *ksock, uint64_t timeout_ns)
{
    struct epoll *epoll = epoll_of(ksock);
    if (epoll->events_count > 0) {
        return 0;
    }
    struct timespec timeout = {
        .tv_sec = (time_t)(timeout_ns / MILL_NS_PER_S),
        .tv_nsec = (long)(timeout_ns % MILL_NS_PER_S),
    };
    int count = epoll_pwait2(epoll->fd, epoll->events, MILL_KSOCK_EVENTS_MAX,
                             timeout_ns == MILL_NEVER ? NULL : &timeout, NULL);
    int error = count < 0 ? errno : 0;
    if (error == ENOSYS || error == EPERM) {
        /* Before Linux 5.11, or filtered: whole milliseconds, rounded up. */
        int timeout_ms = -1;
        if (timeout_ns != MILL_NEVER) {
            uint64_t ms = timeout_ns / MILL_NS_PER_MS + 1;
            timeout_ms = ms > INT32_MAX ? INT32_MAX : (int)ms;
        }
        count = epoll_wait(epoll->fd, epoll->events, MILL_KSOCK_EVENTS_MAX, timeout_ms);
        error = count < 0 ? errno : 0;
    }
    epoll->events_count = count > 0 ? count : 0;
    return error == EINTR ? 0 : -error;
}

/* ---- life ---- */

static uint64_t memory_bytes(const struct mill_ksock *ksock)
{
    return sizeof(struct epoll) + ksock->config.rx_buffers * sizeof(uint32_t);
}

static int open_set(struct mill_ksock *ksock, struct mill_report *report)
{
    ksock->engine_data = mill_ksock_map(memory_bytes(ksock));
    struct epoll *epoll = epoll_of(ksock);
    if (!epoll) {
        return mill_fail(report, -ENOMEM, "epoll: no memory");
    }
    epoll->free_buffers = (uint32_t *)(void *)(epoll + 1);
    for (uint32_t i = 0; i < ksock->config.rx_buffers; i++) {
        epoll->free_buffers[i] = i;
    }
    epoll->fd = epoll_create1(EPOLL_CLOEXEC);
    return epoll->fd >= 0 ? 0 : mill_fail(report, -errno, "epoll: %s", strerror(errno));
}

static void close_set(struct mill_ksock *ksock)
{
    struct epoll *epoll = epoll_of(ksock);
    if (epoll) {
        if (epoll->fd >= 0) {
            close(epoll->fd);
        }
        mill_ksock_unmap(epoll, memory_bytes(ksock));
        ksock->engine_data = NULL;
    }
}

const struct mill_ksock_engine_ops mill_ksock_epoll_ops = {
    .open = open_set,
    .close = close_set,
    .accept = accept_start,
    .attach = attach,
    .serve = serve,
    .buffer_free = buffer_free,
    .poll = poll_set,
    .submit = submit,
    .wait = wait_set,
    .watch = watch,
};
