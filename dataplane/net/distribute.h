/* SPDX-License-Identifier: Apache-2.0 */
/* One port, several cores: frames that came in on one core and belong to another cross before TCP.
 * It stands between the port's links (one per core) and the stacks (one per core), names no
 * driver's buffer, and is the same for every kind of port.
 *
 *   port queue 0 -> link 0 -> [distributor core 0] -> net 0        a core without a receive queue
 *                                  |   ^                           gets all its frames by ring
 *                       SPSC rings v   |
 *   port queue 1 -> link 1 -> [distributor core 1] -> net 1
 *
 * A frame is given to another core when
 *   - its destination port is that core's own (direct cores),
 *   - the port has fewer receive queues than there are cores: the hash of the 4-tuple chooses among
 *     the cores that the queue serves,
 *   - net/ does not know its connection and the flow map says who does (misplaced; only on a miss).
 * Each is counted as misdirected by the giving core. ARP for our address is copied to all cores:
 * each stack has its own neighbours; only the receiving one answers.
 *
 * Ownership: a frame in a ring is the receiving core's; it goes back by its own free call there, so
 * a port's buffers must be free-able on any core (an rte_mempool is). A full ring drops the frame
 * and counts it; TCP sends it again. Sleeping cores are woken through the configured call.
 *
 * Threads: create, direct and destroy on the main thread while no core runs; a link on its core.
 */
#ifndef MILL_DATAPLANE_NET_DISTRIBUTE_H
#define MILL_DATAPLANE_NET_DISTRIBUTE_H

#include "base/report.h"
#include "dataplane/net/link.h"

enum {
    MILL_DISTRIBUTE_CORES_MAX = 64,
    MILL_DISTRIBUTE_RING_BYTES = 32 << 10, /* from each core to each other one: 2048 frames */
    MILL_DISTRIBUTE_DIRECT_MAX = 16,       /* listeners with a port per core */
};

struct mill_distributor_config {
    uint32_t cores_count;
    uint32_t rx_queues;                   /* core c polls queue c when c is below */
    const struct mill_link *const *links; /* of the port, one per core */
    uint32_t address;                     /* IPv4 of the port, host order */
    uint64_t secret[2];                   /* of the hash over flows */
    uint32_t flows_max;                   /* per core: all that a stack can know at once */
    struct mill_link_wake wake;           /* may be empty when no core sleeps */
};

struct mill_distributor;

/* Takes all memory. ret: 0, -ENOMEM. */
int mill_distributor_create(const struct mill_distributor_config *config,
                            struct mill_distributor **ret_distributor,
                            struct mill_report *report) MILL_WARN_UNUSED;
/* After the stacks, before the port: frees frames that are still in rings. */
void mill_distributor_destroy(struct mill_distributor *distributor);
uint64_t mill_distributor_bytes(uint32_t cores_count, uint32_t flows_max);

/* Destination ports port, port + 1, ... belong to cores 0, 1, ... ret: 0, -ENOSPC. */
int mill_distributor_direct(struct mill_distributor *distributor, uint16_t port) MILL_WARN_UNUSED;

/* What the stack of a core uses in place of the port's link. */
const struct mill_link *mill_distributor_link(struct mill_distributor *distributor, uint32_t core);

#endif
