/* SPDX-License-Identifier: Apache-2.0 */
/* TxnOffsetCommit: offsets of a transaction, kept apart until its marker (txn_offsets.h). */
#include "control/group/offset_change.h"

#include "control/txn/txns.h"
#include "protocol/errors.h"

/* Takes over what the request says. ret: false malformed, or too much. */
static bool txn_read(struct mill_change *change, const struct mill_txn_offset_commit_request *in,
                     int16_t version)
{
    struct mill_txn_offset_commit_request_topics topic;
    struct mill_txn_offset_commit_request_topics_partitions part;
    struct mill_warray topics = in->topics;
    while (mill_txn_offset_commit_request_topics_next(&topics, version, &topic)) {
        struct mill_change_topic *to =
            mill_change_add_topic(change, &topic.name, topic.partitions.count);
        while (to && mill_txn_offset_commit_request_topics_partitions_next(&topic.partitions,
                                                                           version, &part)) {
            mill_commit_take(change, to, part.partition_index, part.committed_offset,
                             part.committed_leader_epoch, &part.committed_metadata, -1);
        }
        if (!to) {
            return false;
        }
    }
    return true;
}

/* Whether the producer's transaction has this group's partition. ret: enum mill_kerr. */
static int16_t txn_verify(const struct mill_change *change, const char *transactional_id)
{
    const struct mill_groups *groups = change->groups;
    const struct mill_txn_holder holder = {change->producer.id, change->producer.epoch};
    const struct mill_txn_partition partition = {
        MILL_OFFSETS_TOPIC, mill_shard_of(change->group_id, groups->shards.count)};
    int16_t error =
        mill_txns_verify(change->request->txns, transactional_id, &holder, &partition, 1);
    return error == MILL_KERR_PRODUCER_FENCED ? (int16_t)MILL_KERR_INVALID_PRODUCER_EPOCH : error;
}

/* The group, when the producer may commit for it now. ret: enum mill_kerr. */
static int16_t txn_group(struct mill_change *change,
                         const struct mill_txn_offset_commit_request *in,
                         struct mill_group **ret_group)
{
    struct mill_groups *groups = change->groups;
    const char *transactional_id = mill_change_text(&change->pool, &in->transactional_id);
    const char *member_id = mill_change_text(&change->pool, &in->member_id);
    const char *instance_id = mill_change_text(&change->pool, &in->group_instance_id);
    int32_t generation = in->generation_id_or_member_epoch;
    if (change->group_id[0] == '\0') {
        return MILL_KERR_INVALID_GROUP_ID; /* a commit without a transaction may have it */
    }
    int16_t error = mill_shards_locate(&groups->shards, change->group_id);
    if (error == MILL_KERR_NONE) {
        error = transactional_id ? txn_verify(change, transactional_id)
                                 : (int16_t)MILL_KERR_INVALID_REQUEST;
    }
    if (error == MILL_KERR_NONE && (mill_change_lost(&in->member_id, member_id) ||
                                    mill_change_lost(&in->group_instance_id, instance_id))) {
        error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (error != MILL_KERR_NONE) {
        return error;
    }
    struct mill_group *group = mill_groups_find(groups, change->group_id);
    if (!group && generation >= 0) {
        return MILL_KERR_ILLEGAL_GENERATION;
    }
    group = group ? group : mill_groups_make(groups, change->group_id);
    if (!group) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    *ret_group = group;
    if (group->consumers) {
        /* A producer that is no member sends neither id nor epoch. */
        return generation < 0 && (!member_id || member_id[0] == '\0')
                   ? (int16_t)MILL_KERR_NONE
                   : mill_commit_consumer_may(change, group, member_id ? member_id : "", generation,
                                              MILL_OFFSETS_EPOCHS_FROM);
    }
    return mill_group_may_commit_txn(&groups->env, group, member_id ? member_id : "", instance_id,
                                     generation);
}

/* Room for what the marker will need. ret: false no memory. */
static bool txn_prepare(struct mill_change *change)
{
    for (uint32_t i = 0; i < change->topics_count; i++) {
        const struct mill_change_topic *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            struct mill_change_entry *entry = &topic->entries[k];
            if (entry->error == MILL_KERR_NONE) {
                entry->pending = mill_txn_offset_new(change->groups, change->group_id, topic->name,
                                                     entry->partition, &entry->value);
                if (!entry->pending) {
                    return false;
                }
            }
        }
    }
    return true;
}

void mill_txn_offset_commit(struct mill_groups *groups, struct mill_admin_request *request,
                            struct mill_cursor *at)
{
    struct mill_txn_offset_commit_request in;
    struct mill_group *group = NULL;
    int16_t version = request->header.api_version;
    struct mill_change *change = NULL;
    if (mill_txn_offset_commit_request_decode(at, version, &in) == 0) {
        change = mill_change_new(groups, request, &in.group_id, in.topics.count);
    }
    if (change && !txn_read(change, &in, version)) {
        mill_change_free(change);
        change = NULL;
    }
    if (!change) {
        mill_admin_close(request);
        return;
    }
    change->producer =
        (struct mill_journal_producer){.id = in.producer_id, .epoch = in.producer_epoch};
    bool nothing = mill_change_is_nothing(change);
    change->error = nothing ? (int16_t)MILL_KERR_NONE : txn_group(change, &in, &group);
    if (change->error == MILL_KERR_NONE && !txn_prepare(change)) {
        change->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (nothing || change->error != MILL_KERR_NONE) {
        mill_commit_answer(change);
        return;
    }
    mill_commit_begin(change, group);
}
