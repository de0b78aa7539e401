/* SPDX-License-Identifier: Apache-2.0 */
/* Records of __consumer_offsets: keys and values as Kafka's schemas lay them out
 * (OffsetCommitKey/Value, GroupMetadataKey/Value; consumer_records.h has those of the consumer
 * protocol), so that Kafka's own tools read them. Pure. */
#ifndef MILL_CONTROL_GROUP_RECORDS_H
#define MILL_CONTROL_GROUP_RECORDS_H

#include "control/group/consumer_records.h"
#include "control/group/group.h"
#include "control/pool.h"
#include "protocol/batch.h"

enum mill_group_record_kind {
    MILL_GROUP_RECORD_OTHER, /* of another protocol, or newer: left alone */
    MILL_GROUP_RECORD_OFFSET,
    MILL_GROUP_RECORD_GROUP,
    MILL_GROUP_RECORD_CONSUMER, /* of the consumer protocol: consumer_records.h */
};

struct mill_offset_value {
    int64_t offset;
    int32_t leader_epoch; /* -1 unknown */
    const char *metadata;
    int64_t commit_ms;
    int64_t expire_ms;  /* -1: by the broker's setting */
    int64_t log_offset; /* of its record, or a later one of the same append; not in records */
};

struct mill_group_value_member {
    struct mill_group_join join; /* protocols: one, named as the group's */
    struct mill_group_protocol protocol;
    struct mill_group_blob assignment;
};

/* A record as it was read. Texts and bytes are in the pool or in the record. */
struct mill_group_record {
    enum mill_group_record_kind kind;
    const char *group;
    bool tombstone;
    /* offset */
    const char *topic;
    int32_t partition;
    struct mill_offset_value value;
    /* group */
    const char *protocol_type; /* "" none */
    int32_t generation;
    const char *protocol; /* NULL none */
    const char *leader;
    int64_t state_ms;
    uint32_t members_count;
    struct mill_group_value_member *members;
    struct mill_consumer_record consumer;
};

/* Each writes into the pool. ret: NULL no memory; *ret_bytes the size. */
uint8_t *mill_offset_key_write(struct mill_pool *pool, const char *group, const char *topic,
                               int32_t partition, uint32_t *ret_bytes);
uint8_t *mill_offset_value_write(struct mill_pool *pool, const struct mill_offset_value *value,
                                 uint32_t *ret_bytes);
uint8_t *mill_group_key_write(struct mill_pool *pool, const char *group, uint32_t *ret_bytes);
uint8_t *mill_group_value_write(struct mill_pool *pool, const struct mill_group *group,
                                uint32_t *ret_bytes);

/* ret: 0, -EBADMSG no such record, -ENOMEM. */
int mill_group_record_read(const struct mill_record *record, struct mill_pool *pool,
                           struct mill_group_record *ret) MILL_WARN_UNUSED;

#endif
