/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of partitions: what a consumer owns, must give up, or is to own. Sorted by topic and
 * partition, each once. Pure. */
#ifndef MILL_CONTROL_GROUP_PARTS_H
#define MILL_CONTROL_GROUP_PARTS_H

#include "base/compiler.h"
#include "base/uuid.h"
#include "control/pool.h"

struct mill_part {
    struct mill_uuid topic;
    int32_t partition;
    int32_t epoch; /* at which it was assigned to its owner (KIP-1251); not part of the order */
};

struct mill_parts {
    struct mill_part *items;
    uint32_t count;
};

/* Order of two partitions, as strcmp. */
int mill_part_order(const struct mill_part *a, const struct mill_part *b);
/* Puts items into order and drops those that stand twice. */
void mill_parts_sort(struct mill_parts *parts);
/* ret: NULL when the set does not hold it. */
const struct mill_part *mill_parts_find(const struct mill_parts *parts,
                                        const struct mill_uuid *topic, int32_t partition);
/* The same partitions, whatever their epochs. */
bool mill_parts_equal(const struct mill_parts *a, const struct mill_parts *b);
/* True when every one of parts is in whole. */
bool mill_parts_within(const struct mill_parts *parts, const struct mill_parts *whole);
/* Room for count of them in the pool; count is 0. ret: false no memory. */
bool mill_parts_room(struct mill_pool *pool, uint32_t count, struct mill_parts *ret);

/* A copy that is kept (malloc). ret: false no memory; *ret_copy is then empty. */
bool mill_parts_keep(const struct mill_parts *parts, struct mill_parts *ret_copy);
/* Frees what mill_parts_keep made. */
void mill_parts_free(struct mill_parts *parts);

#endif
