/* SPDX-License-Identifier: Apache-2.0 */
/* The load generator: what to do, what came of it. A run speaks Kafka's protocol to any broker,
 * over kernel sockets or over our own TCP on a DPDK port, with the same code above the stream.
 *
 * Closed loop: each connection keeps in_flight requests under way. Open loop (rate > 0): requests
 * are due by a schedule made beforehand, and a latency counts from the moment a request was due, so
 * that a stalled broker cannot hide the requests it kept from being sent.
 *
 * Thread: one, that of the caller. Start-up allocates; a running load does not. */
#ifndef MILL_BENCH_BENCH_H
#define MILL_BENCH_BENCH_H

#include "base/clock.h"
#include "base/hist.h"
#include "base/report.h"

enum {
    MILL_BENCH_PARTITIONS_MAX = 16384,
    MILL_BENCH_NULL_PARTITIONS_MAX = 64, /* all in one answer */
    MILL_BENCH_CONNECTIONS_MAX = 1024,
    MILL_BENCH_IN_FLIGHT_MAX = 1024,
    MILL_BENCH_RECORD_BYTES_MIN = 16,
    MILL_BENCH_BATCH_BYTES_MAX = 16 << 20,
    MILL_BENCH_FRAME_BYTES_MIN = 60, /* Ethernet without its checksum */
    MILL_BENCH_FRAME_BYTES_MAX = 1024,
    MILL_BENCH_ERRORS_MAX = 16, /* different error codes told apart */
    MILL_BENCH_TOPIC_BYTES = 250,
    MILL_BENCH_QUEUES_MAX = 16,
};

enum mill_bench_mode {
    MILL_BENCH_PRODUCE,
    MILL_BENCH_FETCH,
    MILL_BENCH_END_TO_END, /* records at a rate, each timed from due to received */
};

/* Over what: kernel sockets, or a port of our own. */
struct mill_bench_transport {
    const char *device;   /* NULL: kernel sockets; else as in dpdk.port.NAME.device */
    const char *netns;    /* namespace to open a virtual device in; NULL: this one */
    const char *eal_args; /* more of EAL's arguments; NULL: none */
    uint32_t address;     /* of the port; IPv4, host order */
    uint8_t prefix_bits;
    uint32_t gateway; /* 0: none */
    uint16_t mtu;
    uint16_t queues; /* of the device; memif: as many as the other end has */
    bool rx_csum_trusted;
    bool tx_csum_off;   /* as dpdk.port.NAME.tx.csum: memory at both ends */
    uint32_t memory_mb; /* EAL's */
};

struct mill_bench_options {
    enum mill_bench_mode mode;
    struct mill_bench_transport transport;
    const char *host;
    uint16_t port;
    const char *topic;
    uint32_t partitions;   /* the first so many; 0: all of the topic */
    bool create;           /* make a missing topic with so many partitions */
    uint32_t record_bytes; /* of a record's value */
    uint32_t batch_bytes;  /* upper bound of a batch */
    uint32_t records;      /* per batch; 0: what fits into batch_bytes */
    int16_t acks;          /* 0, 1, -1 */
    bool idempotent;
    uint32_t in_flight; /* requests per connection; fetch: at most one per partition */
    uint32_t connections;
    double rate;          /* requests a second over all connections; 0: closed loop */
    bool poisson;         /* exponential gaps; else constant */
    uint64_t warmup_ns;   /* not measured */
    uint64_t duration_ns; /* measured; MILL_NEVER: until count */
    uint64_t count;       /* requests; 0: until the time is over */
    int64_t offset;       /* fetch: where each partition is begun, and begun again at its end */
    uint32_t fetch_bytes;
    uint32_t fetch_wait_ms;
    uint32_t timeout_ms; /* without any answer this long: failed */
    bool busy;           /* never sleeps */
};

struct mill_bench_error {
    int16_t code; /* Kafka's */
    uint64_t count;
};

struct mill_bench_result {
    uint64_t window_ns; /* measured time */
    uint64_t requests;  /* answered in it (acks=0: sent) */
    uint64_t records;
    uint64_t bytes;       /* of record batches */
    uint64_t cpu_user_ns; /* of this process */
    uint64_t cpu_system_ns;
    uint64_t unsent; /* due by the schedule, never sent; in the histogram with their wait */
    uint64_t unanswered;
    uint64_t connections_lost;
    uint64_t malformed;
    uint64_t restarts; /* fetch: times a partition was begun again */
    uint64_t errors;   /* sum of those below */
    uint32_t errors_count;
    struct mill_bench_error error[MILL_BENCH_ERRORS_MAX];
    struct mill_hist latency;
};

/* One run. ret: 0 (the broker's errors are in the result), -EINVAL options that contradict each
 * other, -EPROTO a broker that answers what it may not, -ETIMEDOUT, -errno; report says which. */
int mill_bench_run(const struct mill_bench_options *options, struct mill_bench_result *ret_result,
                   struct mill_report *report) MILL_WARN_UNUSED;

/* Name of a broker's error. */
const char *mill_bench_error_name(int16_t code);

/* True when every request was answered without an error. */
bool mill_bench_clean(const struct mill_bench_result *result);

struct mill_bench_null_options {
    struct mill_bench_transport transport;
    const char *host; /* to listen on and to tell clients */
    uint16_t port;
    uint32_t partitions;   /* that every topic seems to have */
    uint32_t record_bytes; /* of what it serves to fetches */
    uint32_t batch_bytes;
    uint64_t duration_ns; /* MILL_NEVER: until stop says so */
    bool (*stop)(void);   /* looked at now and then */
    bool busy;
};

/* Answers ApiVersions, Metadata, CreateTopics, ListOffsets, InitProducerId, Produce and Fetch as a
 * broker would, but keeps nothing and checks nothing. Calls ready once when it listens. ret: 0,
 * -errno. */
int mill_bench_null_server(const struct mill_bench_null_options *options,
                           void (*ready)(void *context, uint16_t port), void *context,
                           struct mill_report *report) MILL_WARN_UNUSED;

struct mill_bench_echo_options {
    struct mill_bench_transport transport;
    bool server; /* sends back what comes; else sends and times */
    uint32_t frame_bytes;
    uint64_t warmup_ns;
    uint64_t duration_ns; /* MILL_NEVER with server: until stop says so */
    bool (*stop)(void);
    uint32_t timeout_ms;
};

/* Frames without IP or TCP: one under way, sent back by the other end of the link. A server calls
 * ready once its port is open. ret: 0,
 * -ETIMEDOUT no frame came back, -errno. */
int mill_bench_echo(const struct mill_bench_echo_options *options,
                    void (*ready)(void *context, uint16_t port), void *context,
                    struct mill_bench_result *ret_result,
                    struct mill_report *report) MILL_WARN_UNUSED;

#endif
