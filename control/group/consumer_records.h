/* SPDX-License-Identifier: Apache-2.0 */
/* Records of groups of the consumer protocol in __consumer_offsets, as Kafka 4.4's schemas lay them
 * out (ConsumerGroup*Key/Value). Keys are not flexible, values are; all of version 0. Pure. */
#ifndef MILL_CONTROL_GROUP_CONSUMER_RECORDS_H
#define MILL_CONTROL_GROUP_CONSUMER_RECORDS_H

#include "control/group/consumer.h"
#include "control/group/record_io.h"

/* The type at the start of a key. */
enum mill_consumer_record_type {
    MILL_CONSUMER_RECORD_EPOCH = 3,
    MILL_CONSUMER_RECORD_TOPICS = 4, /* Kafka 4.0 wrote it; only tombstones are of use */
    MILL_CONSUMER_RECORD_MEMBER = 5,
    MILL_CONSUMER_RECORD_TARGET_EPOCH = 6,
    MILL_CONSUMER_RECORD_TARGET = 7,
    MILL_CONSUMER_RECORD_CURRENT = 8,
    MILL_CONSUMER_RECORD_REGEX = 16,
};

/* A record as it was read; everything is in the pool. */
struct mill_consumer_record {
    enum mill_consumer_record_type type;
    bool tombstone;
    const char *about; /* member id or regular expression; "" for those of the whole group */
    int32_t epoch;     /* of the group, or of the assignment */
    int64_t hash;
    int64_t assigned_ms;         /* of the target's epoch; 0: of before Kafka 4.3 */
    struct mill_consumer member; /* what the type tells of it */
    struct mill_consumer_regex regex;
};

bool mill_consumer_record_has_type(int16_t type);

/* Each writes into the pool. ret: NULL no memory; *ret_bytes the size. about: of types 5, 7, 8 and
 * 16, else NULL. */
uint8_t *mill_consumer_key(struct mill_pool *pool, enum mill_consumer_record_type type,
                           const char *group, const char *about, uint32_t *ret_bytes);
uint8_t *mill_consumer_epoch_value(struct mill_pool *pool, int32_t epoch, int64_t hash,
                                   uint32_t *ret_bytes);
uint8_t *mill_consumer_member_value(struct mill_pool *pool, const struct mill_consumer *member,
                                    uint32_t *ret_bytes);
uint8_t *mill_consumer_target_epoch_value(struct mill_pool *pool, int32_t epoch, int64_t now_ms,
                                          uint32_t *ret_bytes);
uint8_t *mill_consumer_target_value(struct mill_pool *pool, const struct mill_parts *parts,
                                    uint32_t *ret_bytes);
uint8_t *mill_consumer_current_value(struct mill_pool *pool, const struct mill_consumer *member,
                                     uint32_t *ret_bytes);
uint8_t *mill_consumer_regex_value(struct mill_pool *pool, const struct mill_consumer_regex *regex,
                                   int64_t version, int64_t now_ms, uint32_t *ret_bytes);

/* Reads what stands behind the type of a key, and its value. Failures stay in the readers. */
void mill_consumer_record_read(enum mill_consumer_record_type type, struct mill_rec_reader *key,
                               struct mill_rec_reader *value, bool tombstone,
                               const char **ret_group, struct mill_consumer_record *ret);

#endif
