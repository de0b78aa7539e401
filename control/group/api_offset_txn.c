/* SPDX-License-Identifier: Apache-2.0 */
/* TxnOffsetCommit: offsets of a transaction, kept apart until its marker (txn_offsets.h). */
#include "control/group/offset_change.h"

#include <stdlib.h>

#include "control/txn/txns.h"
#include "protocol/errors.h"

enum {
    ABORTABLE_VERSION = 4, /* knows TRANSACTION_ABORTABLE */
    ADDS_VERSION = 5,      /* the group's partition joins the transaction by it (KIP-890) */
    IDS_VERSION = 6,       /* names topics by ids, and knows a group's newer errors (KIP-1319) */
};

/* Who commits, kept while the transaction gets its partition; texts in the change's pool. */
struct committer {
    struct mill_change *change;
    const char *transactional_id;
    const char *member_id; /* "": none */
    const char *instance_id;
    int32_t generation;
    bool lost; /* there was no memory for a text */
};

/* Takes over what the request says. ret: false malformed, or too much. */
static bool txn_read(struct mill_change *change, const struct mill_txn_offset_commit_request *in,
                     int16_t version)
{
    struct mill_txn_offset_commit_request_topics topic;
    struct mill_txn_offset_commit_request_topics_partitions part;
    struct mill_warray topics = in->topics;
    while (mill_txn_offset_commit_request_topics_next(&topics, version, &topic)) {
        struct mill_change_topic *to =
            version >= IDS_VERSION
                ? mill_change_add_topic_id(change, &topic.topic_id, topic.partitions.count)
                : mill_change_add_topic(change, &topic.name, topic.partitions.count);
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

static struct committer committer_of(struct mill_change *change,
                                     const struct mill_txn_offset_commit_request *in)
{
    const char *member_id = mill_change_text(&change->pool, &in->member_id);
    const char *instance_id = mill_change_text(&change->pool, &in->group_instance_id);
    return (struct committer){.change = change,
                              .transactional_id =
                                  mill_change_text(&change->pool, &in->transactional_id),
                              .member_id = member_id ? member_id : "",
                              .instance_id = instance_id,
                              .generation = in->generation_id_or_member_epoch,
                              .lost = mill_change_lost(&in->member_id, member_id) ||
                                      mill_change_lost(&in->group_instance_id, instance_id)};
}

static struct mill_txn_holder holder_of(const struct mill_change *change)
{
    return (struct mill_txn_holder){change->producer.id, change->producer.epoch};
}

static struct mill_txn_partition partition_of(const struct mill_change *change)
{
    return (struct mill_txn_partition){
        MILL_OFFSETS_TOPIC, mill_shard_of(change->group_id, change->groups->shards.count)};
}

/* What a client of the version is told. */
static int16_t told(const struct mill_change *change, int16_t error)
{
    int16_t version = change->request->header.api_version;
    if (error == MILL_KERR_TRANSACTION_ABORTABLE && version < ABORTABLE_VERSION) {
        return MILL_KERR_INVALID_TXN_STATE;
    }
#ifndef MILL_MUTANT_TXN_OFFSETS_NEW_ERRORS
    if ((error == MILL_KERR_GROUP_ID_NOT_FOUND || error == MILL_KERR_STALE_MEMBER_EPOCH) &&
        version < IDS_VERSION) {
        return MILL_KERR_ILLEGAL_GENERATION;
    }
#endif
    return error == MILL_KERR_PRODUCER_FENCED ? (int16_t)MILL_KERR_INVALID_PRODUCER_EPOCH : error;
}

/* The group, when the producer may commit for it now. ret: enum mill_kerr. */
static int16_t txn_group(const struct committer *committer, struct mill_group **ret_group)
{
    struct mill_change *change = committer->change;
    struct mill_groups *groups = change->groups;
    const struct mill_txn_holder holder = holder_of(change);
    const struct mill_txn_partition partition = partition_of(change);
    int16_t error = mill_txns_verify(change->request->txns, committer->transactional_id, &holder,
                                     &partition, 1);
    if (error != MILL_KERR_NONE || committer->lost) {
        return error ? error : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    struct mill_group *group = mill_groups_find(groups, change->group_id);
    if (!group && committer->generation >= 0) {
        return MILL_KERR_GROUP_ID_NOT_FOUND;
    }
    group = group ? group : mill_groups_make(groups, change->group_id);
    if (!group) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    *ret_group = group;
    if (group->consumers) {
        /* A producer that is no member sends neither id nor epoch. */
        return committer->generation < 0 && committer->member_id[0] == '\0'
                   ? (int16_t)MILL_KERR_NONE
                   : mill_commit_consumer_may(change, group, committer->member_id,
                                              committer->generation, MILL_OFFSETS_EPOCHS_FROM);
    }
    return mill_group_may_commit_txn(&groups->env, group, committer->member_id,
                                     committer->instance_id, committer->generation);
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
                                                     entry->partition, &entry->value, false);
                if (!entry->pending) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* The transaction has the group's partition, as far as it was asked to. */
static void txn_begin(const struct committer *committer)
{
    struct mill_change *change = committer->change;
    struct mill_group *group = NULL;
    change->error = mill_shards_locate(&change->groups->shards, change->group_id);
    if (change->error == MILL_KERR_NONE) {
        change->error = told(change, txn_group(committer, &group));
    }
    if (change->error == MILL_KERR_NONE && !txn_prepare(change)) {
        change->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (change->error != MILL_KERR_NONE) {
        mill_commit_answer(change);
        return;
    }
    mill_commit_begin(change, group);
}

static void added(void *context, int16_t error, const struct mill_txn_values *now)
{
    struct committer *committer = context;
    MILL_UNUSED(now);
    if (error == MILL_KERR_NONE) {
        txn_begin(committer);
    } else {
        committer->change->error = told(committer->change, error);
        mill_commit_answer(committer->change);
    }
    free(committer);
}

/* Adds the group's partition to the transaction first. */
static void txn_add(const struct committer *committer)
{
    struct mill_change *change = committer->change;
    struct mill_admin_request *request = change->request;
    const struct mill_txn_holder holder = holder_of(change);
    struct committer *copy = malloc(sizeof(*copy));
    change->error = copy ? mill_shards_locate(&change->groups->shards, change->group_id)
                         : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    if (change->error != MILL_KERR_NONE) {
        free(copy);
        mill_commit_answer(change);
        return;
    }
    const struct mill_txn_partition partition = partition_of(change);
    *copy = *committer;
    mill_txns_add(request->txns, copy->transactional_id, &holder, MILL_TXN_BUMPED, &partition, 1,
                  added, copy);
    if (!request->ready) {
        mill_groups_take(request);
    }
}

void mill_txn_offset_commit(struct mill_groups *groups, struct mill_admin_request *request,
                            struct mill_cursor *at)
{
    struct mill_txn_offset_commit_request in;
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
    const struct committer committer = committer_of(change, &in);
    if (change->group_id[0] == '\0') {
        change->error = MILL_KERR_INVALID_GROUP_ID; /* a commit without a transaction may have it */
    } else if (!committer.transactional_id) {
        change->error = MILL_KERR_INVALID_REQUEST;
    }
    if (mill_change_is_nothing(change)) {
        change->error = MILL_KERR_NONE;
        mill_commit_answer(change);
    } else if (change->error != MILL_KERR_NONE) {
        mill_commit_answer(change);
    } else if (version >= ADDS_VERSION) {
        txn_add(&committer);
    } else {
        txn_begin(&committer);
    }
}
