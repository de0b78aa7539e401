/* SPDX-License-Identifier: Apache-2.0 */
/* The two server-side assignors of KIP-848: who of a group is to read which partition.
 *
 *   range    each topic in one run of neighbours per subscriber; static members first, by name, so
 *            that they get the same run under a new id
 *   uniform  as many for everybody as subscriptions allow, and as many as can be stay where they
 *            are
 *
 * Pure; memory from the pool. O(partitions + members) for range and for uniform when all subscribe
 * to the same; else passes over the partitions, PASSES_MAX of them at most. */
#ifndef MILL_CONTROL_GROUP_ASSIGNORS_H
#define MILL_CONTROL_GROUP_ASSIGNORS_H

#include "control/group/parts.h"

enum mill_assignor {
    MILL_ASSIGNOR_UNIFORM,
    MILL_ASSIGNOR_RANGE,
    MILL_ASSIGNOR_COUNT,
};

struct mill_assign_topic {
    struct mill_uuid id;
    uint32_t partitions_count;
};

struct mill_assign_member {
    const char *id;
    const char *instance_id;                /* NULL dynamic */
    const struct mill_assign_topic *topics; /* subscribed ones that exist, ascending by id */
    uint32_t topics_count;
    struct mill_parts before;
    struct mill_parts after; /* out: in the pool */
};

/* ret: MILL_ASSIGNOR_COUNT when there is none of this name. */
enum mill_assignor mill_assignor_of(const char *name);
const char *mill_assignor_name(enum mill_assignor assignor);

/* Fills after of each member. ret: false no memory. */
bool mill_assign(enum mill_assignor assignor, struct mill_assign_member *members, uint32_t count,
                 struct mill_pool *pool) MILL_WARN_UNUSED;

/* Merges ascending lists without doubles. ret: false no memory. */
bool mill_assign_union(const struct mill_assign_member *members, uint32_t count,
                       struct mill_pool *pool, struct mill_assign_topic **ret_topics,
                       uint32_t *ret_count) MILL_WARN_UNUSED;

#endif
