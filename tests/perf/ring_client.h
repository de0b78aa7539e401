/* SPDX-License-Identifier: Apache-2.0 */
/* A Kafka client that is nothing but load: our TCP on the other end of the port, its own small
 * arena, and four kinds of connection over it. Frames are made and read by hand, independent of
 * the codec under test; every answer and every fetched byte is compared with what must be there.
 *
 *   producer  one per partition, batches of 16 KiB sent by reference, several requests under way
 *   tail      one per partition, waits for 1 MiB behind the newest offset
 *   reader    one per partition, reads recent batches 1 MiB at a time, now and then from the start
 *   visitor   one: connects, asks for versions and metadata, closes, a hundred times a second
 *
 * One thread makes, runs and ends it. A wrong answer ends the program. */
#ifndef MILL_TESTS_PERF_RING_CLIENT_H
#define MILL_TESTS_PERF_RING_CLIENT_H

#include "base/random.h"
#include "dataplane/net/net.h"
#include "dataplane/port/port.h"

enum {
    RING_PARTITIONS = 2,
    RING_KINDS = 3,
    RING_LASTING = RING_PARTITIONS * RING_KINDS, /* connections that stay */
    RING_CONNS = RING_LASTING + 1,
    RING_BATCH_BYTES = 16384,
    RING_BATCH_RECORDS = 16,
    RING_TEMPLATES = 61, /* prime: a batch in a wrong place is seen */
    RING_PIPELINE = 4,   /* produce requests under way on a connection */
    RING_HEAD_BYTES_MAX = 128,
};

enum ring_kind {
    RING_PRODUCER,
    RING_TAIL,
    RING_READER,
    RING_VISITOR,
};

struct ring_conn {
    struct ring_client *client;
    struct mill_stream *stream; /* NULL before connected and after closed */
    enum ring_kind kind;
    int32_t partition;
    int32_t asked;     /* correlation id of the newest request */
    int32_t answered;  /* of the newest whole answer */
    uint64_t position; /* number of the next batch to send or ask for */
    uint64_t passes;   /* reader: runs through recent batches */
    uint32_t left;     /* reader: fetches left of this run; visitor: requests of this visit */
    bool connecting;
    bool closing;
    /* the answer being read */
    uint32_t head_bytes; /* of head gathered */
    uint32_t records_bytes;
    uint32_t records_read;
    uint8_t head[RING_HEAD_BYTES_MAX];
};

/* Written by the client's thread only, read after it ended. */
struct ring_totals {
    uint64_t produced;
    uint64_t fetches;
    uint64_t fetches_empty;
    uint64_t fetched_bytes;
    uint64_t visits;
};

struct ring_client {
    struct mill_arena *arena;
    struct mill_loans loans;
    struct mill_loans *loans_of_queues[1];
    struct mill_extents *extents;
    struct mill_port *port;
    struct mill_net *net;
    const char *topic;
    uint32_t produce_head_bytes; /* of the two kinds of answer, up to their records */
    uint32_t fetch_head_bytes;
    struct mill_ref templates[RING_TEMPLATES];
    uint64_t acked[RING_PARTITIONS]; /* batches that the broker acknowledged */
    uint64_t produce_bytes_per_s;    /* bound, so that the disk sets no limit */
    uint64_t start_ns;
    uint64_t progress_ns; /* time of the newest answer */
    bool stopping;
    struct ring_conn conns[RING_CONNS];
    struct ring_totals totals;
};

/* Main thread: takes everything. dir is an empty folder on tmpfs. */
void ring_client_open(struct ring_client *client, const char *dir, const char *device,
                      const char *topic);
/* Client's thread: connects all, loads the broker until the time is over, waits for the last
 * answers and closes. started is called when all are connected, ended before they are closed. */
void ring_client_run(struct ring_client *client, uint64_t duration_ns,
                     void (*started)(void *context), void (*ended)(void *context), void *context);
/* Main thread, after both stacks stopped. */
void ring_client_close(struct ring_client *client);

#endif
