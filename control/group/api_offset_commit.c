/* SPDX-License-Identifier: Apache-2.0 */
/* OffsetCommit, and what it shares with TxnOffsetCommit. A commit is one append: all its partitions
 * or none; it is in memory, and answered, when the log has it. */
#include "control/group/offset_change.h"

#include "protocol/errors.h"

static void get_commit_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_change_entry *entry =
        &((const struct mill_change_topic *)context)->entries[index];
    struct mill_offset_commit_response_topics_partitions *element = ret_element;
    element->partition_index = entry->partition;
    element->error_code = entry->error;
}

static void get_commit_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_change_topic *topic = &((const struct mill_change *)context)->topics[index];
    struct mill_offset_commit_response_topics *element = ret_element;
    element->name = mill_wstr_of_bytes(topic->name, (int32_t)topic->name_length);
    element->topic_id = topic->id;
    element->partitions = (struct mill_warray){
        .count = (int32_t)topic->count, .get = get_commit_partition, .context = topic};
}

static void get_txn_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_change_entry *entry =
        &((const struct mill_change_topic *)context)->entries[index];
    struct mill_txn_offset_commit_response_topics_partitions *element = ret_element;
    element->partition_index = entry->partition;
    element->error_code = entry->error;
}

static void get_txn_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_change_topic *topic = &((const struct mill_change *)context)->topics[index];
    struct mill_txn_offset_commit_response_topics *element = ret_element;
    element->name = mill_wstr_of_bytes(topic->name, (int32_t)topic->name_length);
    element->topic_id = topic->id;
    element->partitions = (struct mill_warray){
        .count = (int32_t)topic->count, .get = get_txn_partition, .context = topic};
}

static int encode_txn(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_txn_offset_commit_response_encode(to, version, message);
}

static int encode_commit(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_offset_commit_response_encode(to, version, message);
}

/* What is told of a partition: what it lacks itself comes behind what the group says. */
static int16_t error_told(const struct mill_change *change, const struct mill_change_entry *entry)
{
    bool behind =
        entry->error == MILL_KERR_OFFSET_METADATA_TOO_LARGE && change->error != MILL_KERR_NONE;
    return entry->error != MILL_KERR_NONE && !behind ? entry->error : change->error;
}

void mill_commit_answer(struct mill_change *change)
{
    struct mill_offset_commit_response out;
    struct mill_txn_offset_commit_response txn_out;
    struct mill_groups *groups = change->groups;
    for (uint32_t i = 0; i < change->topics_count; i++) {
        for (uint32_t k = 0; k < change->topics[i].count; k++) {
            struct mill_change_entry *entry = &change->topics[i].entries[k];
            entry->error = error_told(change, entry);
            groups->commits += entry->error == MILL_KERR_NONE;
            groups->commits_failed += entry->error != MILL_KERR_NONE;
        }
    }
    if (change->request->header.api_key == MILL_API_KEY_TXN_OFFSET_COMMIT) {
        mill_txn_offset_commit_response_defaults(&txn_out);
        txn_out.topics = (struct mill_warray){
            .count = (int32_t)change->topics_count, .get = get_txn_topic, .context = change};
        mill_admin_answer(change->request, encode_txn, &txn_out);
    } else {
        mill_offset_commit_response_defaults(&out);
        out.topics = (struct mill_warray){
            .count = (int32_t)change->topics_count, .get = get_commit_topic, .context = change};
        mill_admin_answer(change->request, encode_commit, &out);
    }
    mill_groups_give(groups, change->request);
    mill_change_free(change);
}

/* The log has the entry, at or before log_offset. ret: enum mill_kerr. */
static int16_t commit_apply(struct mill_change *change, struct mill_group *group, const char *topic,
                            struct mill_change_entry *entry, int64_t log_offset,
                            int64_t known_before)
{
    struct mill_groups *groups = change->groups;
    if (entry->pending) {
        entry->pending->value.log_offset = log_offset;
        mill_txn_offsets_add(groups, change->shard, change->producer.id, entry->pending);
        entry->pending = NULL;
        return MILL_KERR_NONE;
    }
    entry->value.log_offset = log_offset;
#ifdef MILL_MUTANT_GROUP_COMMIT_DROPPED
    return MILL_KERR_NONE;
#endif
    if (!mill_groups_offset_set(groups, group, topic, entry->partition, &entry->value)) {
        /* It is in the log, and for want of memory not here: learnt by reading. */
        mill_shards_read_again(&groups->shards, change->shard, known_before);
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    return MILL_KERR_NONE;
}

static void commit_done(void *context, const struct mill_journal_result *result)
{
    struct mill_change *change = context;
    struct mill_groups *groups = change->groups;
    struct mill_group *group = mill_groups_find(groups, change->group_id);
    int64_t before = mill_shards_known(&groups->shards, change->shard);
    change->error = mill_shards_outcome(&groups->shards, change->shard, result);
    if (group && group->commits > 0) {
        group->commits--;
    } else {
        group = NULL; /* the topic of the groups went meanwhile */
        change->error = MILL_KERR_NOT_COORDINATOR;
    }
    for (uint32_t i = 0; change->error == MILL_KERR_NONE && i < change->topics_count; i++) {
        const struct mill_change_topic *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            struct mill_change_entry *entry = &topic->entries[k];
            if (entry->error == MILL_KERR_NONE) {
                entry->error = commit_apply(change, group, topic->name, entry,
                                            result->next_offset - 1, before);
            }
        }
    }
    mill_commit_answer(change);
}

/* One partition of a request. expire_ms: -1 by the broker's setting. */
void mill_commit_take(struct mill_change *change, struct mill_change_topic *to, int32_t partition,
                      int64_t offset, int32_t leader_epoch, const struct mill_wstr *metadata,
                      int64_t expire_ms)
{
    const struct mill_groups *groups = change->groups;
    struct mill_change_entry *entry = &to->entries[to->count++];
    const char *text = mill_change_text(&change->pool, metadata);
    entry->partition = partition;
    entry->value = (struct mill_offset_value){.offset = offset,
                                              .leader_epoch = leader_epoch,
                                              .metadata = text ? text : "",
                                              .commit_ms = groups->env.now_ms,
                                              .expire_ms = expire_ms};
    if (!to->name) {
        entry->error = MILL_KERR_UNKNOWN_TOPIC_ID;
    } else if (!mill_change_exists(groups, to, partition)) {
        entry->error = MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
    } else if (metadata->length > groups->metadata_bytes_max) {
        entry->error = MILL_KERR_OFFSET_METADATA_TOO_LARGE;
    }
}

/* Takes over what the request says. ret: false malformed, or too much. */
static bool commit_read(struct mill_change *change, const struct mill_offset_commit_request *in,
                        int16_t version)
{
    struct mill_offset_commit_request_topics topic;
    struct mill_offset_commit_request_topics_partitions part;
    struct mill_warray topics = in->topics;
    int64_t now_ms = change->groups->env.now_ms;
    int64_t expire_ms = in->retention_time_ms >= 0
                            ? now_ms + MILL_MIN(in->retention_time_ms, INT64_MAX - now_ms)
                            : -1;
    while (mill_offset_commit_request_topics_next(&topics, version, &topic)) {
        struct mill_change_topic *to =
            version >= MILL_OFFSETS_IDS_FROM
                ? mill_change_add_topic_id(change, &topic.topic_id, topic.partitions.count)
                : mill_change_add_topic(change, &topic.name, topic.partitions.count);
        while (to && mill_offset_commit_request_topics_partitions_next(&topic.partitions, version,
                                                                       &part)) {
            mill_commit_take(change, to, part.partition_index, part.committed_offset,
                             part.committed_leader_epoch, &part.committed_metadata, expire_ms);
        }
        if (!to) {
            return false;
        }
    }
    return true;
}

/* Whether a member of the consumer protocol may commit all of this now. ret: enum mill_kerr. */
int16_t mill_commit_consumer_may(const struct mill_change *change, const struct mill_group *group,
                                 const char *member_id, int32_t epoch, int16_t version)
{
    const struct mill_topics *topics = &change->groups->controller->topics;
    const struct mill_consumer *member = mill_consumer_find(group, member_id);
    int16_t error = mill_consumer_may_commit(group, member, epoch, version, NULL, 0);
    for (uint32_t i = 0; i < change->topics_count && error == MILL_KERR_NONE; i++) {
        const struct mill_change_topic *entries = &change->topics[i];
        const struct mill_topic *topic =
            entries->name ? mill_topics_by_name(topics, entries->name, entries->name_length) : NULL;
        for (uint32_t k = 0; topic && k < entries->count && error == MILL_KERR_NONE; k++) {
            error = mill_consumer_may_commit(group, member, epoch, version, &topic->record->id,
                                             entries->entries[k].partition);
        }
    }
    return error;
}

/* The group that commits, when it may. ret: enum mill_kerr. */
static int16_t commit_group(struct mill_change *change, const struct mill_offset_commit_request *in,
                            int16_t version, struct mill_group **ret_group)
{
    struct mill_groups *groups = change->groups;
    const char *member_id = mill_change_text(&change->pool, &in->member_id);
    const char *instance_id = mill_change_text(&change->pool, &in->group_instance_id);
    int32_t generation = in->generation_id_or_member_epoch;
    int16_t error = mill_shards_locate(&groups->shards, change->group_id);
    if (error == MILL_KERR_NONE && (mill_change_lost(&in->member_id, member_id) ||
                                    mill_change_lost(&in->group_instance_id, instance_id))) {
        error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (error != MILL_KERR_NONE) {
        return error;
    }
    struct mill_group *group = mill_groups_find(groups, change->group_id);
    if (!group && generation >= 0) {
        return version >= MILL_OFFSETS_EPOCHS_FROM ? MILL_KERR_GROUP_ID_NOT_FOUND
                                                   : MILL_KERR_ILLEGAL_GENERATION;
    }
    if (!group) {
        group = mill_groups_make(groups, change->group_id);
    }
    if (!group) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    *ret_group = group;
    if (group->consumers) {
        return mill_commit_consumer_may(change, group, member_id ? member_id : "", generation,
                                        version);
    }
    return mill_group_may_commit(&groups->env, group, member_id ? member_id : "", instance_id,
                                 generation);
}

/* Records of all entries that are fine. ret: how many; -1 no memory. */
static int32_t commit_records(struct mill_change *change, struct mill_pool *pool,
                              struct mill_journal_record **ret_records)
{
    uint32_t most = 0;
    int32_t count = 0;
    for (uint32_t i = 0; i < change->topics_count; i++) {
        most += change->topics[i].count;
    }
    struct mill_journal_record *records = mill_pool_take(pool, most * sizeof(*records));
    for (uint32_t i = 0; records && i < change->topics_count; i++) {
        const struct mill_change_topic *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            const struct mill_change_entry *entry = &topic->entries[k];
            struct mill_journal_record *record = &records[count];
            uint32_t value_bytes = 0;
            if (entry->error != MILL_KERR_NONE) {
                continue;
            }
            record->key = mill_offset_key_write(pool, change->group_id, topic->name,
                                                entry->partition, &record->key_bytes);
            record->value = mill_offset_value_write(pool, &entry->value, &value_bytes);
            record->value_bytes = (int32_t)value_bytes;
            if (!record->key || !record->value) {
                return -1;
            }
            count++;
        }
    }
    *ret_records = records;
    return records ? count : -1;
}

static int16_t commit_append(struct mill_change *change, int32_t shard,
                             const struct mill_journal_record *records, uint32_t records_count)
{
    struct mill_groups *groups = change->groups;
    int16_t error = mill_shards_append_txn(&groups->shards, shard, &change->producer, records,
                                           records_count, groups->env.now_ms, commit_done, change);
    return error == MILL_KERR_MESSAGE_TOO_LARGE ? (int16_t)MILL_KERR_INVALID_COMMIT_OFFSET_SIZE
                                                : error;
}

void mill_commit_begin(struct mill_change *change, struct mill_group *group)
{
    struct mill_groups *groups = change->groups;
    struct mill_pool pool = {.limit_bytes = change->pool.limit_bytes * 4};
    struct mill_journal_record *records = NULL;
    int32_t count = commit_records(change, &pool, &records);
    bool full = groups->offsets_count + (uint32_t)MILL_MAX(count, 0) > MILL_GROUP_OFFSETS_MAX ||
                groups->env.bytes + change->pool.used_bytes > groups->env.bytes_max;
    change->shard = group->shard;
#ifdef MILL_MUTANT_GROUP_COMMIT_EARLY
    group->commits++; /* told before the log has it */
    commit_done(change, &(struct mill_journal_result){.outcome = MILL_JOURNAL_DONE});
    mill_pool_clear(&pool);
    return;
#endif
    groups->env.full += full;
    if (count < 0 || full) {
        change->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    } else if (count > 0) {
        change->error = commit_append(change, group->shard, records, (uint32_t)count);
    }
    mill_pool_clear(&pool);
    if (count <= 0 || change->error != MILL_KERR_NONE) {
        mill_commit_answer(change);
        return;
    }
    group->commits++;
    mill_groups_take(change->request);
}

void mill_offset_commit(struct mill_groups *groups, struct mill_admin_request *request,
                        struct mill_cursor *at)
{
    struct mill_offset_commit_request in;
    struct mill_group *group = NULL;
    int16_t version = request->header.api_version;
    struct mill_change *change = NULL;
    if (mill_offset_commit_request_decode(at, version, &in) == 0) {
        change = mill_change_new(groups, request, &in.group_id, in.topics.count);
    }
    if (change && !commit_read(change, &in, version)) {
        mill_change_free(change);
        change = NULL;
    }
    if (!change) {
        mill_admin_close(request);
        return;
    }
    bool nothing = mill_change_is_nothing(change);
    change->error = nothing ? (int16_t)MILL_KERR_NONE : commit_group(change, &in, version, &group);
    if (nothing || change->error != MILL_KERR_NONE) {
        mill_commit_answer(change);
        return;
    }
    mill_commit_begin(change, group);
}
