/* SPDX-License-Identifier: Apache-2.0 */
/* The byte-stream interface: received bytes as a chain of buffers, sending as references with
 * loans. Two makers implement it: dataplane/net (own TCP over a link) and dataplane/ksock (kernel
 * sockets). What runs above cannot tell which is below; one set of contract tests runs over both.
 *
 * Thread: everything of a maker belongs to one core. No call blocks or allocates after start.
 *
 * Sending. A queued reference holds one loan (mill_loan_take by the maker in send_ref) until the
 * peer's TCP acknowledged its bytes (net) or the kernel took them (ksock) *and* no buffer in a
 * transmit queue shows it; then the maker gives the loan back. Loans of one stream end in the order
 * of the sends. Small pieces are copied into the stream's own byte arena by send_bytes and mix
 * freely with references.
 *
 * Receiving. The maker appends to stream->rx and reports `received`; the core reads in place and
 * calls consume. Bytes not consumed count against the receive window, so a core that stops
 * consuming stops the peer. pause additionally stops the maker from reading for this stream at all.
 */
#ifndef MILL_DATAPLANE_STREAM_H
#define MILL_DATAPLANE_STREAM_H

#include "base/chain.h"
#include "base/ref.h"
#include "base/report.h"
#include "base/clock.h"
#include "hugepages/loans.h"

enum {
    /* Largest piece of one send_bytes call; larger answers are built in a scratch extent and sent
     * by reference. */
    MILL_STREAM_BYTES_MAX = 4096,
};

/* Why a stream ended. */
enum mill_stream_end {
    MILL_END_CLOSED,  /* both sides finished in order */
    MILL_END_RESET,   /* the peer reset it */
    MILL_END_ABORTED, /* we did */
    MILL_END_TIMEOUT, /* peer silent past the limits */
    MILL_END_ERROR,   /* the maker failed (counted there) */
    MILL_END_COUNT,
};

struct mill_stream_peer {
    uint8_t address[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
    uint8_t local_address[16];
    uint16_t port; /* host order */
    uint16_t local_port;
};

struct mill_stream;
struct mill_stream_maker;

struct mill_stream_ops {
    /* Queues a reference. Takes one loan for it. ret: 0, -EAGAIN queue full (nothing taken; `room`
     * follows), -EPIPE closing. */
    int (*send_ref)(struct mill_stream *stream, const struct mill_ref *ref);
    /* Copies size_bytes (<= MILL_STREAM_BYTES_MAX) into the stream's arena behind what is queued.
     * ret: 0, -EAGAIN no room for all of it (nothing taken; `room` follows), -EPIPE closing. */
    int (*send_bytes)(struct mill_stream *stream, const void *bytes, uint32_t size_bytes);
    /* How much can be queued right now without -EAGAIN: references and bytes. */
    void (*room)(const struct mill_stream *stream, uint32_t *ret_refs, uint32_t *ret_bytes);
    /* An answer is complete: transmit without waiting for more. */
    void (*push)(struct mill_stream *stream);
    /* Drops size_bytes from the front of rx and opens the window. */
    void (*consume)(struct mill_stream *stream, uint32_t size_bytes);
    /* true: read no more for this stream until false; its window closes by itself. */
    void (*pause)(struct mill_stream *stream, bool paused);
    /* No more sends; what is queued goes out, then FIN; `closed` follows. What is unread and what
     * still comes is dropped without a reset, so that the peer can read to our end. */
    void (*close)(struct mill_stream *stream);
    /* Reset now. `closed` follows from the next step, never from inside this call. */
    void (*abort)(struct mill_stream *stream);
    /* Bytes queued by sends and not yet acknowledged (net) or taken by the kernel (ksock). */
    uint64_t (*unacked_bytes)(const struct mill_stream *stream);
};

/* First member of a maker's connection. */
struct mill_stream {
    const struct mill_stream_ops *ops;
    struct mill_stream_maker *maker;
    void *user;            /* the core's connection; set by accepted or connect */
    struct mill_chain rx;  /* received, unconsumed */
    bool rx_ended;         /* the peer sent FIN; all before it is in rx */
    bool dead;             /* closed was reported; the pointer is void after that event */
    uint16_t listener;     /* index given to listen */
    uint32_t rx_bytes_max; /* unconsumed bytes that the receive window can ever hold */
    struct mill_stream_peer peer;
};

/* What the core implements. Called only from inside maker->ops->step (or input). */
struct mill_stream_events {
    /* A peer is connected; set stream->user. ret: 0, or negative: the maker resets it. */
    int (*accepted)(void *context, struct mill_stream *stream);
    /* An active open ended: error 0 or -errno (then the stream is void). */
    void (*connected)(void *context, struct mill_stream *stream, int error);
    /* rx grew or rx_ended became true. */
    void (*received)(void *context, struct mill_stream *stream);
    /* Queue room is there again after an -EAGAIN. */
    void (*room)(void *context, struct mill_stream *stream);
    /* Sent bytes were acknowledged by the peer (net) or taken by the kernel (ksock): size_bytes
     * more than at the last call. */
    void (*acked)(void *context, struct mill_stream *stream, uint64_t size_bytes);
    /* The end: all loans are given back or will be without the stream; rx is gone after this call.
     */
    void (*closed)(void *context, struct mill_stream *stream, enum mill_stream_end end);
};

struct mill_stream_maker_ops {
    /* One bounded turn: receive, timers, transmit. ret: units of work done, 0 when idle. */
    uint32_t (*step)(struct mill_stream_maker *maker, uint64_t now_ns);
    /* Next moment at which step has something to do by itself; MILL_NEVER when none. */
    uint64_t (*deadline)(const struct mill_stream_maker *maker);
    /* Accepts on address:port; index comes back in stream->listener.
     * ret: 0, -EADDRINUSE, -EACCES, -errno; report says which and the remedy. */
    int (*listen)(struct mill_stream_maker *maker, const uint8_t address[16], uint16_t port,
                  uint16_t listener, struct mill_report *report);
    /* Active open. ret: 0 (connected follows), -ENFILE no slot, -errno. */
    int (*connect)(struct mill_stream_maker *maker, const uint8_t address[16], uint16_t port,
                   void *user, struct mill_stream **ret_stream);
    /* Resets and frees everything. */
    void (*destroy)(struct mill_stream_maker *maker);
};

/* Counters of one maker; plain, owner core only, copied into shared memory by the core each turn.
 */
struct mill_stream_stats {
    uint64_t connections; /* open now */
    uint64_t accepted;
    uint64_t refused;        /* a limit was reached */
    uint64_t bytes_received; /* stream bytes in */
    uint64_t
        bytes_sent_refs; /* stream bytes of references handed to the wire or kernel, first time */
    uint64_t bytes_sent_small; /* of send_bytes pieces */
    uint64_t bytes_inlined;    /* reference bytes copied because below the inline threshold */
    uint64_t bytes_copied_out; /* reference bytes copied for any other reason: 0 by design */
};

/* First member of a maker. */
struct mill_stream_maker {
    const struct mill_stream_maker_ops *ops;
    const struct mill_stream_events *events;
    void *context; /* first argument of events */
    struct mill_loans *loans;
    uint8_t *arena_base; /* where references point */
    struct mill_stream_stats stats;
};

#endif
