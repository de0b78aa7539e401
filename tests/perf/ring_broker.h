/* SPDX-License-Identifier: Apache-2.0 */
/* A whole data plane for load tests, in one process and without a supervisor: arena on tmpfs, log
 * files in a folder of their own, a store on its thread, a core in `busy` mode on its thread and
 * CPU, and below it our TCP on a port without a kernel: side 0 of a net_ring pair, or a memif. The
 * threads are the ones that millraced runs (dataplane/core/thread.c). Control is played at start: a
 * cluster record, one topic.
 *
 * Main thread only; whatever cannot be made ends the program with its reason. */
#ifndef MILL_TESTS_PERF_RING_BROKER_H
#define MILL_TESTS_PERF_RING_BROKER_H

#include "dataplane/core/thread.h"
#include "tests/perf/ring_end.h"

struct ring_broker {
    char shm_dir[RING_DIR_BYTES]; /* arena, on tmpfs */
    char log_dir[192];            /* files, where temporary files go */
    const char *log_dirs[1];
    struct mill_arena *arena;
    struct mill_loans loans;
    struct mill_loans *loans_of_queues[1];
    struct mill_extents *extents;
    struct mill_ipc_segment *ipc;
    struct mill_counters *counters;
    void *map_memory;
    struct mill_map *map;
    struct mill_map_writer *writer;
    struct mill_bell control_bell;
    void *store_memory; /* its two rings and its bell */
    struct mill_port *port;
    struct mill_net *net;
    struct mill_core_thread core;
    struct mill_log_dirs *dirs;
    struct mill_store_thread store;
};

/* Takes everything and publishes the topic; nothing runs yet. EAL is started. engine is that of the
 * core's kernel sockets, which have no listener here but a place in the turn, as in millraced. */
void ring_broker_open(struct ring_broker *broker, const char *device, const char *topic,
                      uint32_t partitions, enum mill_ksock_engine engine);
/* Starts both threads and waits until every partition is served. */
void ring_broker_run(struct ring_broker *broker, uint32_t cpu);
/* Clean stop, everything removed. The other side of the pair may be closed before or after. */
void ring_broker_close(struct ring_broker *broker);

#endif
