/* SPDX-License-Identifier: Apache-2.0 */
/* Which core owns a partition, and the ids under which cores appear as nodes of their own
 * (dataplane.core.endpoints). Inside, a broker has one id everywhere: map, store, files. Clients
 * see a virtual one per core; these functions are the only way from one to the other, in brokers,
 * leaders, replicas, in-sync replicas and coordinators alike. Pure.
 *
 *   virtual id = node.id + core * 1,000,000      core 0: the broker's own id and port
 *   port       = the listener's + core
 */
#ifndef MILL_IPC_NODES_H
#define MILL_IPC_NODES_H

#include <string.h>

#include "base/check.h"
#include "base/uuid.h"

enum {
    MILL_NODE_CORE_STEP = 1000000, /* node.id is below it */
    MILL_NODE_CORES_MAX = 64,
};
static_assert((int64_t)MILL_NODE_CORE_STEP * MILL_NODE_CORES_MAX <= INT32_MAX, "ids are int32");

/* The core that owns a partition: a function of its id and the number of cores, nothing else. */
static inline uint32_t mill_owner_of(const struct mill_uuid *topic_id, int32_t partition,
                                     uint32_t cores)
{
    if (cores <= 1) {
        return 0;
    }
    /* Ids are random: their bytes need no further mixing; partitions of a topic go round. */
    uint64_t word;
    memcpy(&word, topic_id->b, sizeof(word));
    return (uint32_t)((word + (uint64_t)(uint32_t)partition) % cores);
}

/* Id of a core of a broker; -1, nobody, stays. */
static inline int32_t mill_node_virtual(int32_t node_id, uint32_t core)
{
    return node_id < 0 ? node_id : node_id + (int32_t)core * MILL_NODE_CORE_STEP;
}

/* The broker of an id that a client gave. */
static inline int32_t mill_node_broker(int32_t virtual_id)
{
    return virtual_id < 0 ? virtual_id : virtual_id % MILL_NODE_CORE_STEP;
}

static inline uint32_t mill_node_core(int32_t virtual_id)
{
    return virtual_id < 0 ? 0 : (uint32_t)(virtual_id / MILL_NODE_CORE_STEP);
}

/* Whether an id that a client gave is one that this broker shows. cores: nodes that it shows. */
static inline bool mill_node_is(int32_t virtual_id, int32_t node_id, uint32_t cores)
{
    return virtual_id >= 0 && mill_node_broker(virtual_id) == node_id &&
           mill_node_core(virtual_id) < cores;
}

#endif
