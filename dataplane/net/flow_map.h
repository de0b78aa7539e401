/* SPDX-License-Identifier: Apache-2.0 */
/* Which core owns which connection, for the cores that share an address: each core writes a table
 * of its own, every other one may look into it. Read only when a core receives a packet of a
 * connection it does not know.
 *
 *   core 0: | bucket of 8 | bucket of 8 | ...     slot: 64-bit keyed hash of the 4-tuple, 0: empty
 *   core 1: | bucket of 8 | ...                   a tuple lies in one of two buckets, one line each
 *
 * An entry never moves, so that a reader cannot miss one that is there; four slots for each flow
 * keep both buckets of a tuple from being full (counted if they are). Two tuples of one hash would
 * send a packet to a core that does not know it either, which then answers it as unknown.
 *
 * Threads: add and remove on the table's core; find on any. No lock, no wait.
 */
#ifndef MILL_DATAPLANE_NET_FLOW_MAP_H
#define MILL_DATAPLANE_NET_FLOW_MAP_H

#include "dataplane/net/flow.h"

#define MILL_FLOW_NO_CORE UINT32_MAX

struct mill_flow_map;

/* Memory for flows_max tuples per core. ret: 0, -ENOMEM. Main thread. */
int mill_flow_map_create(uint32_t cores, uint32_t flows_max, const uint64_t secret[2],
                         struct mill_flow_map **ret_map) MILL_WARN_UNUSED;
void mill_flow_map_destroy(struct mill_flow_map *map);
uint64_t mill_flow_map_bytes(uint32_t cores, uint32_t flows_max);

/* ret: false: both buckets are full; others cannot find the tuple. */
bool mill_flow_map_add(struct mill_flow_map *map, uint32_t core, const struct mill_flow_key *key);
void mill_flow_map_remove(struct mill_flow_map *map, uint32_t core,
                          const struct mill_flow_key *key);

/* The core other than self that has the tuple, MILL_FLOW_NO_CORE: none. O(cores). */
uint32_t mill_flow_map_find(const struct mill_flow_map *map, uint32_t self,
                            const struct mill_flow_key *key);

/* The keyed hash itself, to deal flows out evenly. */
uint64_t mill_flow_map_hash(const struct mill_flow_map *map, const struct mill_flow_key *key);

#endif
