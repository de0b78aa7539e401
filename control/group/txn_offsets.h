/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets that were committed inside a transaction and wait for its marker: the log has them,
 * nobody is told of them. The marker makes them the group's, or forgets them. They are found by
 * producer, because a marker names nothing else, and by group, topic and partition, for those who
 * ask for stable offsets (KIP-447). Control's thread; counted in the groups' memory. */
#ifndef MILL_CONTROL_GROUP_TXN_OFFSETS_H
#define MILL_CONTROL_GROUP_TXN_OFFSETS_H

#include "control/group/records.h"

struct mill_groups;

struct mill_txn_offset {
    struct mill_txn_offset *next_producer; /* in their buckets */
    struct mill_txn_offset *next_key;
    int64_t producer_id;
    int32_t shard;
    int32_t partition;
    uint32_t size_bytes;
    struct mill_offset_value value; /* its metadata lies behind the topic */
    const char *topic;              /* behind the group's id */
    char group_id[];
};

struct mill_txn_offsets {
    struct mill_txn_offset **by_producer;
    struct mill_txn_offset **by_key;
    uint32_t count;
};

/* ret: 0, -ENOMEM. */
int mill_txn_offsets_open(struct mill_txn_offsets *offsets) MILL_WARN_UNUSED;
/* After every shard was dropped. */
void mill_txn_offsets_close(struct mill_txn_offsets *offsets);

/* Made before the append, so that what the log has is not lost for want of memory. Texts are
 * copied. loading: the log has it already, and the groups' bound does not hold. ret: NULL no
 * memory, or at the bound (counted). */
struct mill_txn_offset *mill_txn_offset_new(struct mill_groups *groups, const char *group_id,
                                            const char *topic, int32_t partition,
                                            const struct mill_offset_value *value, bool loading);
/* One that was not added. NULL is fine. */
void mill_txn_offset_free(struct mill_groups *groups, struct mill_txn_offset *offset);
/* The log has it, at value.log_offset: takes it over, in place of an older one of the transaction.
 */
void mill_txn_offsets_add(struct mill_groups *groups, int32_t shard, int64_t producer_id,
                          struct mill_txn_offset *offset);
/* The producer's transaction ended in this shard: what lies before before_offset is the group's
 * now, unless something newer is, or is forgotten. ret: false: some are left for want of memory, to
 * be ended once more. */
bool mill_txn_offsets_end(struct mill_groups *groups, int32_t shard, int64_t producer_id,
                          bool commit, int64_t before_offset);
/* Where in the log the first of the producer's in this shard lies; INT64_MAX: it has none. */
int64_t mill_txn_offsets_first(const struct mill_groups *groups, int32_t shard,
                               int64_t producer_id);
/* Forgets all of the shard. */
void mill_txn_offsets_drop(struct mill_groups *groups, int32_t shard);
/* True when a transaction may still change this offset. */
bool mill_txn_offsets_wait(const struct mill_groups *groups, const char *group_id,
                           const char *topic, int32_t partition);

#endif
