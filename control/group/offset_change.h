/* SPDX-License-Identifier: Apache-2.0 */
/* Commits and deletions of offsets while they are on their way to the log: what a request says, in
 * a pool of its own, and the answer for each partition. For the files of OffsetCommit,
 * TxnOffsetCommit, OffsetFetch and OffsetDelete. Control's thread. */
#ifndef MILL_CONTROL_GROUP_OFFSET_CHANGE_H
#define MILL_CONTROL_GROUP_OFFSET_CHANGE_H

#include "control/group/groups.h"

enum {
    MILL_CHANGE_PARTITIONS_MAX = 100000, /* of one request */
    MILL_OFFSETS_IDS_FROM = 10, /* topics are named by their ids, in OffsetCommit and OffsetFetch */
    MILL_OFFSETS_EPOCHS_FROM = 9, /* members of the consumer protocol say their epochs */
};

/* One partition of a request, in the order of the request. */
struct mill_change_entry {
    int32_t partition;
    int16_t error;
    struct mill_offset_value value;
    struct mill_txn_offset *pending; /* in a transaction: for when the log has it */
};

struct mill_change_topic {
    const char *name; /* NULL: an id that no topic has */
    uint32_t name_length;
    struct mill_uuid id; /* as asked, from version 10 on */
    struct mill_change_entry *entries;
    uint32_t count;
};

/* A commit or deletion on its way; owns everything in its pool. */
struct mill_change {
    struct mill_groups *groups;
    struct mill_admin_request *request;
    struct mill_pool pool;
    const char *group_id;
    int32_t shard;
    struct mill_change_topic *topics;
    uint32_t topics_count;
    struct mill_journal_producer producer; /* whose transaction it is part of; id -1 none */
    int16_t error;                         /* of everything that has none of its own */
};

/* group_id is copied. ret: NULL malformed, no memory, or over the limit. */
struct mill_change *mill_change_new(struct mill_groups *groups, struct mill_admin_request *request,
                                    const struct mill_wstr *group_id, int32_t topics_count);
void mill_change_free(struct mill_change *change);
/* Adds a topic with room for its partitions. ret: NULL no memory, or over the limit. */
struct mill_change_topic *mill_change_add_topic(struct mill_change *change,
                                                const struct mill_wstr *name, int32_t count);
/* Adds a topic that is named by its id. ret: as mill_change_add_topic. */
struct mill_change_topic *mill_change_add_topic_id(struct mill_change *change,
                                                   const struct mill_uuid *id, int32_t count);
/* Nothing of the request is about a partition that there is: then nobody asks for the group. */
bool mill_change_is_nothing(const struct mill_change *change);
bool mill_change_exists(const struct mill_groups *groups, const struct mill_change_topic *topic,
                        int32_t partition);
/* A terminated copy; NULL null, or no memory: mill_change_lost tells which. */
char *mill_change_text(struct mill_pool *pool, const struct mill_wstr *text);
/* A text could not be copied for want of memory: it must not be taken for none. */
bool mill_change_lost(const struct mill_wstr *text, const char *copy);
/* A copy of the name of the topic with this id, kept for as long as the pool; NULL none. */
const char *mill_topic_name_by_id(const struct mill_groups *groups, const struct mill_uuid *id,
                                  struct mill_pool *pool);

/* --- api_offset_commit.c --------------------------------------------------------------------- */

/* Takes over one partition of a request. expire_ms: -1 by the broker's setting. */
void mill_commit_take(struct mill_change *change, struct mill_change_topic *to, int32_t partition,
                      int64_t offset, int32_t leader_epoch, const struct mill_wstr *metadata,
                      int64_t expire_ms);
/* Whether a member of the consumer protocol may commit all of this now. ret: enum mill_kerr. */
int16_t mill_commit_consumer_may(const struct mill_change *change, const struct mill_group *group,
                                 const char *member_id, int32_t epoch, int16_t version);
/* Sends what may be committed on its way; the answer follows. */
void mill_commit_begin(struct mill_change *change, struct mill_group *group);
/* Answers the request, of either API, and frees the change. */
void mill_commit_answer(struct mill_change *change);

#endif
