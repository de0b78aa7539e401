/* SPDX-License-Identifier: Apache-2.0 */
/* The partitions of one transaction: sorted, each once, never changed after it was made; a larger
 * set is a new one. One allocation, owned by whoever made it; freed with free(). Pure. */
#ifndef MILL_CONTROL_TXN_SET_H
#define MILL_CONTROL_TXN_SET_H

#include "base/compiler.h"

enum {
    MILL_TXN_PARTITIONS_MAX = 20000, /* of one transaction */
};

struct mill_txn_partition {
    const char *topic;
    int32_t index;
};

struct mill_txn_set {
    uint32_t count;
    uint32_t size_bytes;               /* of the allocation */
    struct mill_txn_partition items[]; /* by topic, then index; the names lie behind them */
};

/* The partitions of both; either may be empty (old NULL). Names are copied.
 * ret: 0, -E2BIG more than MILL_TXN_PARTITIONS_MAX, -ENOMEM; *ret_set untouched then. */
int mill_txn_set_join(const struct mill_txn_set *old, const struct mill_txn_partition *added,
                      uint32_t added_count, struct mill_txn_set **ret_set) MILL_WARN_UNUSED;
/* set may be NULL: the empty one. */
bool mill_txn_set_has(const struct mill_txn_set *set, const struct mill_txn_partition *partition);

#endif
