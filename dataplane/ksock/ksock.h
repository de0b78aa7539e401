/* SPDX-License-Identifier: Apache-2.0 */
/* Streams over kernel sockets: io_uring (multishot accept and receive into a provided-buffer ring,
 * vectored sends of log references), or epoll where io_uring is forbidden. One instance per core;
 * it also is the one place where a core sleeps: descriptors of others (bell, TAP queues) are
 * watched here.
 *
 * Thread: its core. All buffers are taken at create.
 */
#ifndef MILL_DATAPLANE_KSOCK_H
#define MILL_DATAPLANE_KSOCK_H

#include "dataplane/stream/stream.h"

enum mill_ksock_engine {
    MILL_KSOCK_AUTO,     /* io_uring, else epoll */
    MILL_KSOCK_IO_URING, /* fails where it is forbidden */
    MILL_KSOCK_EPOLL,
};

/* Zero fields take their defaults. A quarter of the receive buffers is kept for streams that hold
 * none; of the rest a stream may hold a quarter of what is free. So a stream alone gets its whole
 * window when rx_buffers * rx_buffer_bytes is at least eight times rx_window_max. */
struct mill_ksock_config {
    enum mill_ksock_engine engine;
    uint32_t connections_max;            /* default 16384 */
    uint32_t refs_per_connection;        /* default 128 */
    uint32_t arena_bytes_per_connection; /* default 8192 */
    uint32_t rx_buffer_bytes;            /* one provided buffer, default 16 KiB */
    uint32_t rx_buffers;                 /* power of two, default 1024 */
    uint32_t rx_window_max;   /* unconsumed bytes per stream before reading stops: 1 MiB */
    uint32_t user_timeout_ms; /* TCP_USER_TIMEOUT, default 30000 */
    bool reuse_port;          /* several cores listen on one port */
};

/* Beside struct mill_stream_stats; plain, owner core only. */
struct mill_ksock_counters {
    uint64_t timeouts;      /* connections dropped because the peer was silent past a limit */
    uint64_t errors;        /* connections dropped for an error that is not the peer's doing */
    uint64_t accept_stalls; /* times accepting paused: descriptors or memory ran out */
    uint64_t rx_starved;    /* times a stream waited for a receive buffer or its share of them */
    uint64_t
        rx_joined_bytes;    /* received bytes moved together so that small pieces share a buffer */
    uint64_t sends;         /* sendmsg operations */
    uint64_t sends_partial; /* of them the kernel took only a part */
};

struct mill_ksock;

/* Fills zero fields with their defaults (engine stays). */
void mill_ksock_config_defaults(struct mill_ksock_config *config);
/* Bytes that such a configuration takes, for the table printed at start. Address space: pages of a
 * connection that was never opened are not resident. */
uint64_t mill_ksock_memory_bytes(const struct mill_ksock_config *config);

/* Takes all memory. The thread of the first step or wait becomes the owner. An AUTO that fell back
 * to epoll leaves in report why.
 * ret: 0, -EINVAL (a limit, named in report), -ENOMEM, -EPERM or -ENOSYS (engine asked for is
 *      forbidden here), -errno. */
int mill_ksock_create(const struct mill_ksock_config *config, struct mill_loans *loans,
                      uint8_t *arena_base, const struct mill_stream_events *events, void *context,
                      struct mill_ksock **ret_ksock, struct mill_report *report) MILL_WARN_UNUSED;

struct mill_stream_maker *mill_ksock_maker(struct mill_ksock *ksock);

/* The engine in use. */
enum mill_ksock_engine mill_ksock_engine(const struct mill_ksock *ksock);

const struct mill_ksock_counters *mill_ksock_counters(const struct mill_ksock *ksock);

/* The port on which the listener of that index really listens (listen was given port 0); 0: none.
 */
uint16_t mill_ksock_port(const struct mill_ksock *ksock, uint16_t listener);

/* A descriptor that ends mill_ksock_wait when readable (level). Before the first wait or after.
 * ret: 0, -ENOSPC too many, -errno. */
int mill_ksock_watch(struct mill_ksock *ksock, int fd) MILL_WARN_UNUSED;

/* Sleeps until a socket or watched descriptor has something, or timeout_ns passed (MILL_NEVER:
 * none). The caller published "asleep" and looked at every source before. ret: 0, or -errno but
 * EINTR. */
int mill_ksock_wait(struct mill_ksock *ksock, uint64_t timeout_ns);

#endif
