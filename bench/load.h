/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a run: its connections and what they share. setup.c asks the broker what a load needs
 * to know; load.c sends and counts; run.c leads from options to result. Nobody outside bench/
 * includes this.
 *
 *   schedule -> due ----+                        (open loop)
 *                       v
 *   template -> patch -> stream ... broker ... stream -> answer -> histogram
 *                       ^                                  |
 *                       +---------- room in flight --------+     (closed loop)
 */
#ifndef MILL_BENCH_LOAD_H
#define MILL_BENCH_LOAD_H

#include "bench/answer.h"
#include "bench/batch.h"
#include "bench/schedule.h"
#include "bench/transport.h"

enum {
    BENCH_TEMPLATES = 16,       /* different batches, so that no cache learns one by heart */
    BENCH_INLINE_BYTES = 4096,  /* a whole request up to this size is one small piece */
    BENCH_BROKERS_MAX = 256,    /* nodes of a cluster that lead the topic */
    BENCH_DUE_LENGTH = 1 << 17, /* end to end: records under way at most */
};
static_assert((int)BENCH_INLINE_BYTES <= (int)MILL_STREAM_BYTES_MAX, "one send_bytes call");

/* A partition of one connection: its place in the log or in the producer's sequence. */
struct bench_place {
    int32_t partition;
    int32_t sequence;
    int64_t start; /* offset to begin (again) at */
    int64_t position;
    bool busy; /* a fetch of it is under way */
};

/* A request under way; a ring of in_flight entries, because answers come in order. */
struct bench_slot {
    uint64_t due_ns;
    uint32_t place;
};

struct bench_conn {
    struct bench_load *load;
    struct mill_stream *stream; /* NULL before connected and after closed */
    uint8_t address[16];
    uint16_t port;
    bool fetches;
    bool connecting;
    bool closing;
    bool dirty; /* on the load's list of those to look at */
    int error;  /* of the active open */
    uint32_t sent;
    uint32_t answered;
    uint32_t next_place;
    uint32_t next_copy;
    uint32_t places_count;
    struct bench_place *places;
    struct bench_slot *slots; /* in_flight */
    struct mill_ref
        *copies; /* idempotent, of large batches: one is patched while others are sent */
    uint32_t copies_count;
    struct bench_answer answer;
};

struct bench_leader {
    int32_t node;
    uint8_t address[16];
    uint16_t port;
};

/* A partition as the broker told it. */
struct bench_partition {
    uint32_t leader; /* index of leaders */
    int64_t start;   /* offset to fetch from */
    int64_t end;     /* offset of the next record, at the time of asking */
};

enum bench_phase {
    BENCH_SETUP, /* answers stay in the stream for setup.c */
    BENCH_RUN,
    BENCH_DRAIN, /* no more requests; answers still count */
    BENCH_END,
};

struct bench_load {
    const struct mill_bench_options *options;
    struct mill_bench_result *result;
    struct bench_transport transport;
    enum bench_phase phase;

    struct bench_conn control; /* the connection that asks */
    struct bench_conn *conns;
    uint32_t conns_count;
    uint32_t conns_open;
    struct bench_conn **dirty;
    uint32_t dirty_count;
    uint32_t next_conn;

    struct bench_leader leaders[BENCH_BROKERS_MAX];
    uint32_t leaders_count;
    struct bench_partition partitions[MILL_BENCH_PARTITIONS_MAX];
    uint32_t partitions_count;

    struct bench_head produce_head;
    struct bench_head fetch_head;
    uint32_t batch_bytes; /* of one encoded batch */
    uint32_t batch_records;
    bool inlined; /* head and batch are sent as one small piece */
    uint8_t *frames[BENCH_TEMPLATES];
    struct mill_ref templates[BENCH_TEMPLATES];
    uint32_t next_template;
    struct bench_crc_shift shift;

    struct bench_schedule schedule;
    uint64_t begin_ns;
    uint64_t window_start_ns;
    uint64_t window_end_ns;
    uint64_t heard_ns; /* time of the newest answer */
    uint64_t sent;
    uint64_t answered;
    uint64_t cpu_user_ns;
    uint64_t cpu_system_ns;

    /* end to end */
    uint64_t *due_ns;
    int64_t first_offset;
    uint64_t acked;    /* records that the broker took */
    uint64_t received; /* records that came back */
};

static inline uint32_t bench_in_flight(const struct bench_conn *conn)
{
    return conn->sent - conn->answered;
}

static inline bool bench_in_window(const struct bench_load *load, uint64_t now_ns)
{
    return now_ns >= load->window_start_ns && now_ns < load->window_end_ns;
}

/* load.c: answers are counted inside the maker's step. */
extern const struct mill_stream_events bench_load_events;
/* The connection is looked at by the next bench_load_send. */
void bench_load_touch(struct bench_conn *conn);
/* Sends what is due, or what has room. ret: requests sent. */
uint32_t bench_load_send(struct bench_load *load, uint64_t now_ns);

/* setup.c: topic, leaders, offsets. ret: 0, -errno with the reason. */
int bench_setup_topic(struct bench_load *load, struct mill_report *report) MILL_WARN_UNUSED;
/* Opens a connection and waits for it. */
int bench_setup_connect(struct bench_load *load, struct bench_conn *conn,
                        struct mill_report *report) MILL_WARN_UNUSED;
/* An id of an idempotent producer, asked on that connection. */
int bench_setup_producer(struct bench_load *load, struct bench_conn *conn, int64_t *ret_id,
                         int16_t *ret_epoch, struct mill_report *report) MILL_WARN_UNUSED;
/* Closes and waits for the end, at most a moment. */
void bench_setup_close(struct bench_load *load, struct bench_conn *conn);

#endif
