/* SPDX-License-Identifier: Apache-2.0 */
/* A core: connections, requests, partitions it owns, its rings. mill_core_step does one bounded
 * turn; threads, clocks and sleeping are in thin drivers (core/thread.c), so that a test steps
 * cores, stores and control in one process on virtual time.
 *
 * Order of making: mill_core_create, then the makers with mill_core_events and the core as context,
 * mill_core_add_maker for each, then mill_core_start. All memory is taken before start.
 */
#ifndef MILL_DATAPLANE_CORE_H
#define MILL_DATAPLANE_CORE_H

#include "base/clock.h"
#include "dataplane/log/log.h"
#include "dataplane/net/net.h"
#include "dataplane/stream/stream.h"
#include "ipc/counters.h"
#include "ipc/frames.h"
#include "ipc/nodes.h"

struct mill_quota_table;
struct mill_address_table;
/* A clock that may be read within a turn, for what requests cost; ns from any moment. */
typedef uint64_t (*mill_ticks)(void *context);

enum {
    MILL_CORE_MAKERS_MAX = 10, /* control's stream, kernel sockets and a stack for each port */
    MILL_PEER_RING_BYTES = 4 << 20,
};

struct mill_core_limits {
    uint32_t connections_max;     /* open at once; each works on one request at a time */
    uint32_t peer_ops_max;        /* operations of other cores in work here */
    uint32_t request_bytes_max;   /* socket.request.max.bytes */
    uint32_t pinned_bytes_max;    /* of an incomplete request in its maker's buffers */
    uint64_t pinned_total_bytes;  /* over all connections: half of the receive buffers */
    uint64_t staged_bytes_max;    /* arena memory for larger requests, over all connections */
    uint64_t ops_bytes_max;       /* arena memory for requests of many partitions */
    uint64_t producers_bytes_max; /* arena memory for lists of producers (DescribeProducers) */
    uint64_t reader_bytes_max;    /* connection.pinned.max.bytes */
    uint64_t stall_timeout_ns;    /* connection.stall.timeout.ms */
    uint64_t idle_timeout_ns;     /* connections.max.idle.ms; 0: none */
    uint64_t control_timeout_ns;  /* control.request.timeout.ms */
    uint32_t control_frame_bytes_max;
    uint32_t fetch_bytes_max; /* fetch.max.bytes */
    /* Of max.incremental.fetch.session.cache.slots this core's share; 0: no sessions. */
    uint32_t fetch_sessions_max;
    uint32_t fetch_session_parts_max;  /* partitions of all sessions */
    uint32_t fetch_session_topics_max; /* their different topics */
};

/* This core's side of the pair of rings with another core of the process. */
struct mill_core_peer {
    struct mill_ring out;
    struct mill_ring in;
    struct mill_bell bell;
};

struct mill_core_config {
    uint32_t index; /* of this core */
    uint32_t count; /* of all cores */
    int32_t node_id;
    uint64_t incarnation; /* of this process start */
    struct mill_core_limits limits;
    struct mill_arena *arena;
    struct mill_extents *extents;
    struct mill_loans *loans;
    struct mill_log_config log; /* limits and store rings; the core fills in the rest */
    struct mill_map *map;
    struct mill_ipc_segment *ipc;
    struct mill_store_tuning *tuning; /* of this core's store; NULL: it has none */
    _Atomic int64_t *connections_all; /* clients of all cores; NULL: this core has all */
    struct mill_bell control_bell;
    struct mill_core_peer *peers; /* count entries, own unused; NULL when alone */
    struct mill_shared_core *shared;
    struct mill_quota_table *quotas; /* of all cores (quota.h), zeroed; NULL: this core is alone */
    struct mill_address_table *addresses; /* the same (addresses.h) */
    mill_ticks ticks_ns;                  /* NULL: time is not limited */
    void *ticks_context;
    /* Names of listeners in the configuration's order: a client is told the one it came by. */
    uint32_t listeners_count;
    const char *listeners[MILL_MAP_LISTENERS_MAX];
};

struct mill_core;

/* ret: 0, -ENOMEM, -EBADMSG the ipc segment is damaged. Copies what it needs of config. */
int mill_core_create(const struct mill_core_config *config,
                     struct mill_core **ret_core) MILL_WARN_UNUSED;
void mill_core_destroy(struct mill_core *core);
uint64_t mill_core_memory_bytes(const struct mill_core_limits *limits);
/* The part of fetch sessions, which is not in it. */
uint64_t mill_core_fetch_session_bytes(const struct mill_core_limits *limits);

/* What a maker's events go to; context is the core. */
extern const struct mill_stream_events mill_core_events;

/* Adds a maker to the turn. net is its stack when it has one (counters), else NULL; listener is the
 * one that the maker's own byte counters are told under. */
void mill_core_add_maker(struct mill_core *core, struct mill_stream_maker *maker,
                         struct mill_net *net, uint16_t listener);

/* One bounded turn. ret: units of work done, 0 when there was none. */
uint32_t mill_core_step(struct mill_core *core, struct mill_now now);
/* Next moment at which step has something to do by itself. */
uint64_t mill_core_deadline(const struct mill_core *core);

/* True when every partition of the map that this core owns has been opened or has failed. */
bool mill_core_ready(const struct mill_core *core);

/* Clean stop: no new connections or requests; what is in work is answered or closed, everything
 * appended is asked to be written. mill_core_stopped tells when that is done. */
void mill_core_stop(struct mill_core *core);
bool mill_core_stopped(const struct mill_core *core);

/* Copies counters into shared memory; the driver calls it a few times a second and before sleeping.
 */
void mill_core_publish(struct mill_core *core, struct mill_now now);

/* The driver tells how its time went. */
void mill_core_time(struct mill_core *core, uint64_t busy_ns, uint64_t asleep_ns);
/* The same about a time awake in which no turn ended. */
void mill_core_stalled(struct mill_core *core, uint64_t stall_ns);

struct mill_map *mill_core_map(struct mill_core *core);
uint32_t mill_core_index(const struct mill_core *core);
struct mill_log *mill_core_log(struct mill_core *core);

#endif
