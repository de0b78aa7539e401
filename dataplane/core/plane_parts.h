/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that build the data plane share: limits, and the steps of each. Main thread only.
 */
#ifndef MILL_DATAPLANE_PLANE_PARTS_H
#define MILL_DATAPLANE_PLANE_PARTS_H

#include "dataplane/core/plane.h"

enum {
    MILL_PLANE_PARTITIONS = 16384,       /* per core */
    MILL_PLANE_PRODUCERS = 65536,        /* idempotent producers remembered, per core */
    MILL_PLANE_TRANSACTIONS = 16384,     /* open transactions, per core */
    MILL_PLANE_ABORTED = 4096,           /* aborted transactions remembered, per core */
    MILL_PLANE_OPEN_FILES = 32768,       /* over all stores, where the process may have them */
    MILL_PLANE_OPEN_FILES_OTHERS = 512,  /* of the process, beside files and connections */
    MILL_PLANE_OPEN_FILES_MIN = 1024,    /* whatever the process may */
    MILL_PLANE_HELPERS = 64,             /* threads for syncs and cold reads, over all stores ... */
    MILL_PLANE_HELPERS_MIN = 4,          /* ... and of each at least */
    MILL_PLANE_CACHED_BYTES = 128 << 20, /* written and not yet out of the page cache */
    MILL_PLANE_PEER_OPS = 8192,          /* operations of other cores at once, per core */
    MILL_PLANE_FETCH_SESSION_PARTITIONS = 65536, /* of all fetch sessions, per core */
    MILL_PLANE_FETCH_SESSION_TOPICS = 8192,      /* their different topics, per core */
    /* Of one connection: holds the largest request of usual clients, so that it is copied once. */
    MILL_PLANE_RX_WINDOW_BYTES = 2 << 20,
};

/* Limits from the configuration; the arena is open. */
struct mill_ksock_config mill_plane_ksock_limits(const struct mill_plane *plane);
struct mill_net_config mill_plane_net_limits(const struct mill_plane *plane, uint32_t port_index);
struct mill_core_limits mill_plane_core_limits(const struct mill_plane *plane);
/* Connections of all cores at most. */
uint32_t mill_plane_connections_max(const struct mill_plane *plane);
struct mill_log_limits mill_plane_log_limits(const struct mill_plane *plane);

/* Opens ports, stacks and listeners. ret: 0, or negative when a required one fails. */
int mill_plane_listeners(struct mill_plane *plane, struct mill_report *report) MILL_WARN_UNUSED;

/* Logs what was taken and every limit with its counter for "full". */
void mill_plane_table(const struct mill_plane *plane);
/* Logs what changed at a port since the last look, and puts it into its listeners' state. */
void mill_plane_port_tell(struct mill_plane *plane, uint32_t port,
                          const struct mill_port_info *info,
                          const struct mill_port_counters *counters);

#endif
