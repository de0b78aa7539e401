/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane as millraced builds it from a configuration: segments mapped, arena, ports, cores,
 * stores, listeners; then their threads. Main thread only; every step fails with a reason and
 * leaves nothing half started (mill_plane_close takes any state).
 */
#ifndef MILL_DATAPLANE_PLANE_H
#define MILL_DATAPLANE_PLANE_H

#include "base/report.h"
#include "config/config.h"
#include "dataplane/core/port_events.h"
#include "dataplane/core/refusals.h"
#include "dataplane/core/thread.h"
#include "dataplane/net/distribute.h"

struct mill_plane_core {
    struct mill_core_thread thread;
    struct mill_store_thread store_thread;
    struct mill_extents *extents;
    struct mill_loans loans;
    void *store_memory; /* its two rings */
    struct mill_bell_shared *store_bell;
    struct mill_store_tuning store_tuning;
    struct mill_net *nets[MILL_THREAD_PORTS_MAX];
    bool started;
};

struct mill_plane {
    const struct mill_config *config;
    /* from the supervisor */
    struct mill_ipc_segment *ipc;
    uint64_t ipc_bytes;
    struct mill_map *map;
    void *map_memory;
    uint64_t map_bytes;
    struct mill_counters *counters;
    uint64_t counters_bytes;
    struct mill_kept_flow *flows; /* of each configured port on each core; NULL: no port */
    uint64_t flows_bytes;
    struct mill_bell control_bell;
    /* made here */
    uint64_t incarnation;
    struct mill_log_dirs *log_dirs;
    struct mill_loaders *loaders;
    struct mill_arena *arena;
    bool arena_empty; /* at start: nothing of an earlier run, or all of it in the files */
    struct mill_store_kept kept; /* what the take-up had no space for */
    struct mill_clean_slots clean_slots;
    struct mill_loans *loans_of_cores[MILL_CONFIG_CORES_MAX];
    bool eal_started;
    uint32_t ports_count;
    struct mill_port *ports[MILL_COUNTERS_PORTS_MAX];
    const struct mill_config_port *port_configs[MILL_COUNTERS_PORTS_MAX];
    struct mill_port_told ports_told[MILL_COUNTERS_PORTS_MAX];
    struct mill_distributor *distributors[MILL_COUNTERS_PORTS_MAX]; /* NULL: one core */
    void *peer_memory;
    struct mill_core_peer *peers;    /* count x count */
    _Atomic int64_t connections;     /* of clients, of all cores */
    struct mill_quota_table *quotas; /* the same */
    struct mill_address_table *addresses;
    struct mill_refusals refusals;
    uint32_t cores_count;
    struct mill_plane_core *cores;
};

/* Takes the descriptors of MILLRACE_FDS and maps them. ret: 0, -errno with reason. */
int mill_plane_attach(struct mill_plane *plane, const struct mill_config *config,
                      struct mill_report *report) MILL_WARN_UNUSED;
/* Arena, directories, take-up, ports, cores, listeners. The map has its cluster record by now. */
int mill_plane_build(struct mill_plane *plane, struct mill_report *report) MILL_WARN_UNUSED;
/* Starts all threads. */
int mill_plane_run(struct mill_plane *plane, struct mill_report *report) MILL_WARN_UNUSED;
bool mill_plane_ready(const struct mill_plane *plane);
/* Copies ports' counters into shared memory; tells the log when a link changed. */
void mill_plane_publish(struct mill_plane *plane);
/* Stops all threads cleanly, closes everything; the arena's files go when all is in the log files.
 */
void mill_plane_close(struct mill_plane *plane);

#endif
