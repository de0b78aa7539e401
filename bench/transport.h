/* SPDX-License-Identifier: Apache-2.0 */
/* Over what a load runs: memory that references point into, and a maker of streams over kernel
 * sockets or over our TCP on a port, or the bare link of that port. Owner thread only. */
#ifndef MILL_BENCH_TRANSPORT_H
#define MILL_BENCH_TRANSPORT_H

#include "bench/bench.h"
#include "bench/queues.h"
#include "dataplane/ksock/ksock.h"
#include "dataplane/net/net.h"
#include "dataplane/port/port.h"
#include "hugepages/arena.h"

struct bench_transport {
    struct mill_arena *arena;
    struct mill_extents *extents;
    struct mill_loans loans;
    struct mill_loans *loans_of_queues[BENCH_QUEUES_MAX]; /* all the same: one thread */
    struct mill_port *port;                               /* NULL: kernel sockets */
    struct bench_queues queues;
    struct mill_net *net;
    struct mill_ksock *ksock;
    struct mill_stream_maker *maker; /* NULL: bare link */
    uint32_t address;                /* of the port */
    bool registered;
    bool eal_started;
};

/* Takes memory_bytes for references and opens. events NULL: only the port, whose frames are the
 * caller's. ret: 0, -errno; what was opened is closed again. */
int bench_transport_open(struct bench_transport *transport,
                         const struct mill_bench_transport *options, uint32_t connections_max,
                         uint64_t memory_bytes, const struct mill_stream_events *events,
                         void *context, struct mill_report *report) MILL_WARN_UNUSED;
/* NULL-safe in its parts. */
void bench_transport_close(struct bench_transport *transport);

/* Memory for references. ret: its address. Fails when memory_bytes was too little. */
int bench_transport_alloc(struct bench_transport *transport, uint32_t size_bytes,
                          struct mill_ref *ret_ref, struct mill_report *report) MILL_WARN_UNUSED;

/* The IPv4 or IPv6 address of a host as streams have it; names only over kernel sockets. Over a
 * port that shares its interface with the kernel it also finds out where to send frames to there,
 * which may take seconds. */
int bench_transport_resolve(const struct bench_transport *transport, const char *host,
                            uint8_t ret_address[16], struct mill_report *report) MILL_WARN_UNUSED;

/* Waits until the port's link is up; nothing to wait for over kernel sockets. ret: 0, -ENETDOWN. */
int bench_transport_link(struct bench_transport *transport, uint32_t timeout_ms,
                         struct mill_report *report) MILL_WARN_UNUSED;

/* Nothing to do until something comes or timeout_ns passed: sleeps where that is possible and
 * wanted, else pauses for a moment. */
void bench_transport_wait(struct bench_transport *transport, bool busy, uint64_t timeout_ns);

/* Monotonic time. */
static inline uint64_t bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MILL_NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif
