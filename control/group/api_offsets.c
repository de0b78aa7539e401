/* SPDX-License-Identifier: Apache-2.0 */
/* OffsetCommit, OffsetFetch, OffsetDelete. A commit is one append: all its partitions or none; it
 * is in memory, and answered, when the log has it. */
#include "control/group/groups.h"

#include <stdlib.h>
#include <string.h>

#include "control/txn/txns.h"
#include "protocol/errors.h"

enum {
    PARTITIONS_MAX = 100000, /* of one request */
    IDS_FROM = 10,           /* topics are named by their ids, in OffsetCommit and OffsetFetch */
    EPOCHS_FROM = 9,         /* members of the consumer protocol say their epochs */
};

/* One partition of a request, in the order of the request. */
struct entry {
    int32_t partition;
    int16_t error;
    struct mill_offset_value value;
    struct mill_txn_offset *pending; /* in a transaction: for when the log has it */
};

struct topic_entries {
    const char *name; /* NULL: an id that no topic has */
    uint32_t name_length;
    struct mill_uuid id; /* as asked, from version 10 on */
    struct entry *entries;
    uint32_t count;
};

/* A commit or deletion on its way; owns everything in its pool. */
struct change {
    struct mill_groups *groups;
    struct mill_admin_request *request;
    struct mill_pool pool;
    const char *group_id;
    int32_t shard;
    struct topic_entries *topics;
    uint32_t topics_count;
    struct mill_journal_producer producer; /* whose transaction it is part of; id -1 none */
    int16_t error;                         /* of everything that has none of its own */
};

static char *pool_text(struct mill_pool *pool, const struct mill_wstr *text)
{
    if (text->length < 0) {
        return NULL;
    }
    char *copy = mill_pool_take(pool, (uint64_t)text->length + 1);
    return copy && mill_wstr_copy(text, copy, (uint32_t)text->length + 1) >= 0 ? copy : NULL;
}

static bool partition_exists(const struct mill_groups *groups, const struct topic_entries *topic,
                             int32_t partition)
{
    const struct mill_topic *found =
        topic->name
            ? mill_topics_by_name(&groups->controller->topics, topic->name, topic->name_length)
            : NULL;
    return found && partition >= 0 && (uint32_t)partition < found->record->partitions_count;
}

/* A text could not be copied for want of memory: it must not be taken for none. */
static bool is_lost(const struct mill_wstr *text, const char *copy)
{
    return text->length >= 0 && !copy;
}

static struct change *change_new(struct mill_groups *groups, struct mill_admin_request *request,
                                 const struct mill_wstr *group_id, int32_t topics_count)
{
    struct change *change = calloc(1, sizeof(*change));
    if (!change) {
        return NULL;
    }
    change->groups = groups;
    change->request = request;
    change->producer = (struct mill_journal_producer){.id = -1, .epoch = -1};
    change->pool.limit_bytes = request->pool.limit_bytes * 4;
    change->group_id = pool_text(&change->pool, group_id);
    change->topics = mill_pool_take(&change->pool,
                                    (uint64_t)MILL_MAX(topics_count, 0) * sizeof(*change->topics));
    if (!change->group_id || !change->topics || topics_count > PARTITIONS_MAX) {
        mill_pool_clear(&change->pool);
        free(change);
        return NULL;
    }
    return change;
}

static void change_free(struct change *change)
{
    for (uint32_t i = 0; i < change->topics_count; i++) {
        for (uint32_t k = 0; k < change->topics[i].count; k++) {
            mill_txn_offset_free(change->groups, change->topics[i].entries[k].pending);
        }
    }
    mill_pool_clear(&change->pool);
    free(change);
}

/* Adds a topic with room for its partitions. ret: NULL no memory, or over the limit. */
static struct topic_entries *change_topic(struct change *change, const struct mill_wstr *name,
                                          int32_t count)
{
    struct topic_entries *topic = &change->topics[change->topics_count];
    topic->name = pool_text(&change->pool, name);
    topic->name_length = (uint32_t)MILL_MAX(name->length, 0);
    topic->entries =
        count <= PARTITIONS_MAX
            ? mill_pool_take(&change->pool, (uint64_t)MILL_MAX(count, 0) * sizeof(*topic->entries))
            : NULL;
    if (!topic->name || !topic->entries) {
        return NULL;
    }
    change->topics_count++;
    return topic;
}

/* A copy of the name of the topic with this id, kept for as long as the pool; NULL none. */
static const char *name_by_id(const struct mill_groups *groups, const struct mill_uuid *id,
                              struct mill_pool *pool)
{
    const struct mill_topic *topic = mill_topics_by_id(&groups->controller->topics, id);
    bool serves = topic && mill_topics_by_name(&groups->controller->topics, topic->record->name,
                                               topic->record->name_length) == topic;
    return serves ? mill_pool_text(pool, "%s", topic->record->name) : NULL;
}

/* Adds a topic that is named by its id. ret: as change_topic. */
static struct topic_entries *change_topic_id(struct change *change, const struct mill_uuid *id,
                                             int32_t count)
{
    const struct mill_wstr none = {0};
    struct topic_entries *topic = change_topic(change, &none, count);
    if (topic) {
        topic->id = *id;
        topic->name = name_by_id(change->groups, id, &change->pool);
        topic->name_length = topic->name ? (uint32_t)strlen(topic->name) : 0;
    }
    return topic;
}

/* --- commit ------------------------------------------------------------------------------------
 */

static void get_commit_partition(const void *context, int32_t index, void *ret_element)
{
    const struct entry *entry = &((const struct topic_entries *)context)->entries[index];
    struct mill_offset_commit_response_topics_partitions *element = ret_element;
    element->partition_index = entry->partition;
    element->error_code = entry->error;
}

static void get_commit_topic(const void *context, int32_t index, void *ret_element)
{
    const struct topic_entries *topic = &((const struct change *)context)->topics[index];
    struct mill_offset_commit_response_topics *element = ret_element;
    element->name = mill_wstr_of_bytes(topic->name, (int32_t)topic->name_length);
    element->topic_id = topic->id;
    element->partitions = (struct mill_warray){
        .count = (int32_t)topic->count, .get = get_commit_partition, .context = topic};
}

static void get_txn_partition(const void *context, int32_t index, void *ret_element)
{
    const struct entry *entry = &((const struct topic_entries *)context)->entries[index];
    struct mill_txn_offset_commit_response_topics_partitions *element = ret_element;
    element->partition_index = entry->partition;
    element->error_code = entry->error;
}

static void get_txn_topic(const void *context, int32_t index, void *ret_element)
{
    const struct topic_entries *topic = &((const struct change *)context)->topics[index];
    struct mill_txn_offset_commit_response_topics *element = ret_element;
    element->name = mill_wstr_of_bytes(topic->name, (int32_t)topic->name_length);
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

static void commit_answer(struct change *change)
{
    struct mill_offset_commit_response out;
    struct mill_txn_offset_commit_response txn_out;
    struct mill_groups *groups = change->groups;
    for (uint32_t i = 0; i < change->topics_count; i++) {
        for (uint32_t k = 0; k < change->topics[i].count; k++) {
            struct entry *entry = &change->topics[i].entries[k];
            entry->error = entry->error ? entry->error : change->error;
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
    change_free(change);
}

/* The log has the entry, at or before log_offset. ret: enum mill_kerr. */
static int16_t commit_apply(struct change *change, struct mill_group *group, const char *topic,
                            struct entry *entry, int64_t log_offset, int64_t known_before)
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
    struct change *change = context;
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
        const struct topic_entries *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            struct entry *entry = &topic->entries[k];
            if (entry->error == MILL_KERR_NONE) {
                entry->error = commit_apply(change, group, topic->name, entry,
                                            result->next_offset - 1, before);
            }
        }
    }
    commit_answer(change);
}

/* One partition of a request. expire_ms: -1 by the broker's setting. */
static void commit_take(struct change *change, struct topic_entries *to, int32_t partition,
                        int64_t offset, int32_t leader_epoch, const struct mill_wstr *metadata,
                        int64_t expire_ms)
{
    const struct mill_groups *groups = change->groups;
    struct entry *entry = &to->entries[to->count++];
    const char *text = pool_text(&change->pool, metadata);
    entry->partition = partition;
    entry->value = (struct mill_offset_value){.offset = offset,
                                              .leader_epoch = leader_epoch,
                                              .metadata = text ? text : "",
                                              .commit_ms = groups->env.now_ms,
                                              .expire_ms = expire_ms};
    if (!to->name) {
        entry->error = MILL_KERR_UNKNOWN_TOPIC_ID;
    } else if (!partition_exists(groups, to, partition)) {
        entry->error = MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
    } else if (metadata->length > groups->metadata_bytes_max) {
        entry->error = MILL_KERR_OFFSET_METADATA_TOO_LARGE;
    }
}

/* Takes over what the request says. ret: false malformed, or too much. */
static bool commit_read(struct change *change, const struct mill_offset_commit_request *in,
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
        struct topic_entries *to =
            version >= IDS_FROM ? change_topic_id(change, &topic.topic_id, topic.partitions.count)
                                : change_topic(change, &topic.name, topic.partitions.count);
        while (to && mill_offset_commit_request_topics_partitions_next(&topic.partitions, version,
                                                                       &part)) {
            commit_take(change, to, part.partition_index, part.committed_offset,
                        part.committed_leader_epoch, &part.committed_metadata, expire_ms);
        }
        if (!to) {
            return false;
        }
    }
    return true;
}

/* Whether a member of the consumer protocol may commit all of this now. ret: enum mill_kerr. */
static int16_t consumer_may_commit(const struct change *change, const struct mill_group *group,
                                   const char *member_id, int32_t epoch, int16_t version)
{
    const struct mill_topics *topics = &change->groups->controller->topics;
    int16_t error = mill_consumer_may_commit(group, member_id, epoch, version, NULL, 0);
    for (uint32_t i = 0; i < change->topics_count && error == MILL_KERR_NONE; i++) {
        const struct topic_entries *entries = &change->topics[i];
        const struct mill_topic *topic =
            entries->name ? mill_topics_by_name(topics, entries->name, entries->name_length) : NULL;
        for (uint32_t k = 0; topic && k < entries->count && error == MILL_KERR_NONE; k++) {
            error = mill_consumer_may_commit(group, member_id, epoch, version, &topic->record->id,
                                             entries->entries[k].partition);
        }
    }
    return error;
}

/* The group that commits, when it may. ret: enum mill_kerr. */
static int16_t commit_group(struct change *change, const struct mill_offset_commit_request *in,
                            int16_t version, struct mill_group **ret_group)
{
    struct mill_groups *groups = change->groups;
    const char *member_id = pool_text(&change->pool, &in->member_id);
    const char *instance_id = pool_text(&change->pool, &in->group_instance_id);
    int32_t generation = in->generation_id_or_member_epoch;
    int16_t error = mill_shards_locate(&groups->shards, change->group_id);
    if (error == MILL_KERR_NONE &&
        (is_lost(&in->member_id, member_id) || is_lost(&in->group_instance_id, instance_id))) {
        error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (error != MILL_KERR_NONE) {
        return error;
    }
    struct mill_group *group = mill_groups_find(groups, change->group_id);
    if (!group && generation >= 0) {
        return version >= EPOCHS_FROM ? MILL_KERR_GROUP_ID_NOT_FOUND : MILL_KERR_ILLEGAL_GENERATION;
    }
    if (!group) {
        group = mill_groups_make(groups, change->group_id);
    }
    if (!group) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    *ret_group = group;
    if (group->consumers) {
        return consumer_may_commit(change, group, member_id ? member_id : "", generation, version);
    }
    return mill_group_may_commit(&groups->env, group, member_id ? member_id : "", instance_id,
                                 generation);
}

/* Records of all entries that are fine. ret: how many; -1 no memory. */
static int32_t commit_records(struct change *change, struct mill_pool *pool,
                              struct mill_journal_record **ret_records)
{
    uint32_t most = 0;
    int32_t count = 0;
    for (uint32_t i = 0; i < change->topics_count; i++) {
        most += change->topics[i].count;
    }
    struct mill_journal_record *records = mill_pool_take(pool, most * sizeof(*records));
    for (uint32_t i = 0; records && i < change->topics_count; i++) {
        const struct topic_entries *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            const struct entry *entry = &topic->entries[k];
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

static int16_t commit_append(struct change *change, int32_t shard,
                             const struct mill_journal_record *records, uint32_t records_count)
{
    struct mill_groups *groups = change->groups;
    int16_t error = mill_shards_append_txn(&groups->shards, shard, &change->producer, records,
                                           records_count, groups->env.now_ms, commit_done, change);
    return error == MILL_KERR_MESSAGE_TOO_LARGE ? (int16_t)MILL_KERR_INVALID_COMMIT_OFFSET_SIZE
                                                : error;
}

static void commit_begin(struct change *change, struct mill_group *group)
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
        commit_answer(change);
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
    struct change *change = NULL;
    if (mill_offset_commit_request_decode(at, version, &in) == 0) {
        change = change_new(groups, request, &in.group_id, in.topics.count);
    }
    if (change && !commit_read(change, &in, version)) {
        change_free(change);
        change = NULL;
    }
    if (!change) {
        mill_admin_close(request);
        return;
    }
    change->error = commit_group(change, &in, version, &group);
    if (change->error != MILL_KERR_NONE) {
        commit_answer(change);
        return;
    }
    commit_begin(change, group);
}

/* --- commit in a transaction -------------------------------------------------------------------
 */

/* Takes over what the request says. ret: false malformed, or too much. */
static bool txn_read(struct change *change, const struct mill_txn_offset_commit_request *in,
                     int16_t version)
{
    struct mill_txn_offset_commit_request_topics topic;
    struct mill_txn_offset_commit_request_topics_partitions part;
    struct mill_warray topics = in->topics;
    while (mill_txn_offset_commit_request_topics_next(&topics, version, &topic)) {
        struct topic_entries *to = change_topic(change, &topic.name, topic.partitions.count);
        while (to && mill_txn_offset_commit_request_topics_partitions_next(&topic.partitions,
                                                                           version, &part)) {
            commit_take(change, to, part.partition_index, part.committed_offset,
                        part.committed_leader_epoch, &part.committed_metadata, -1);
        }
        if (!to) {
            return false;
        }
    }
    return true;
}

/* Whether the producer's transaction has this group's partition. ret: enum mill_kerr. */
static int16_t txn_verify(const struct change *change, const char *transactional_id)
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
static int16_t txn_group(struct change *change, const struct mill_txn_offset_commit_request *in,
                         struct mill_group **ret_group)
{
    struct mill_groups *groups = change->groups;
    const char *transactional_id = pool_text(&change->pool, &in->transactional_id);
    const char *member_id = pool_text(&change->pool, &in->member_id);
    const char *instance_id = pool_text(&change->pool, &in->group_instance_id);
    int32_t generation = in->generation_id_or_member_epoch;
    int16_t error = mill_shards_locate(&groups->shards, change->group_id);
    if (error == MILL_KERR_NONE) {
        error = transactional_id ? txn_verify(change, transactional_id)
                                 : (int16_t)MILL_KERR_INVALID_REQUEST;
    }
    if (error == MILL_KERR_NONE &&
        (is_lost(&in->member_id, member_id) || is_lost(&in->group_instance_id, instance_id))) {
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
                   : consumer_may_commit(change, group, member_id ? member_id : "", generation,
                                         EPOCHS_FROM);
    }
    return mill_group_may_commit_txn(&groups->env, group, member_id ? member_id : "", instance_id,
                                     generation);
}

/* Room for what the marker will need. ret: false no memory. */
static bool txn_prepare(struct change *change)
{
    for (uint32_t i = 0; i < change->topics_count; i++) {
        const struct topic_entries *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            struct entry *entry = &topic->entries[k];
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
    struct change *change = NULL;
    if (mill_txn_offset_commit_request_decode(at, version, &in) == 0) {
        change = change_new(groups, request, &in.group_id, in.topics.count);
    }
    if (change && !txn_read(change, &in, version)) {
        change_free(change);
        change = NULL;
    }
    if (!change) {
        mill_admin_close(request);
        return;
    }
    change->producer =
        (struct mill_journal_producer){.id = in.producer_id, .epoch = in.producer_epoch};
    change->error = txn_group(change, &in, &group);
    if (change->error == MILL_KERR_NONE && !txn_prepare(change)) {
        change->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (change->error != MILL_KERR_NONE) {
        commit_answer(change);
        return;
    }
    commit_begin(change, group);
}

/* --- fetch -------------------------------------------------------------------------------------
 */

/* One group of an OffsetFetch, while its answer is written. */
struct fetch_fill {
    const struct mill_groups *groups;
    const struct mill_group *group; /* NULL unknown, or with an error */
    const char *group_id;
    int16_t version;
    int16_t error;
    int16_t partition_error; /* version 1 has no other place */
    bool all;
    bool stable;              /* an offset that a transaction may still change is not told */
    struct mill_warray asked; /* topics */
    struct mill_warray asked_indexes; /* of the present topic */
    const char *topic;
    struct mill_admin_request *request;
    const struct mill_group_offset **offsets; /* all: sorted by topic */
    uint32_t offsets_count;
    uint32_t topics_count;
    uint32_t next;
};

struct fetched {
    int64_t offset;
    int32_t epoch;
    const char *metadata;
    int16_t error;
};

static struct fetched fetched_of(const struct fetch_fill *fill,
                                 const struct mill_group_offset *offset, int32_t partition)
{
    bool unknown = !fill->all && !fill->topic && fill->version >= IDS_FROM;
    const struct fetched none = {
        -1, -1, "", unknown ? (int16_t)MILL_KERR_UNKNOWN_TOPIC_ID : fill->partition_error};
    const char *topic = offset ? offset->topic : fill->topic;
#ifndef MILL_MUTANT_GROUP_UNSTABLE_TOLD
    if (fill->stable && fill->error == MILL_KERR_NONE && topic &&
        mill_txn_offsets_wait(fill->groups, fill->group_id, topic, partition)) {
        return (struct fetched){-1, -1, "", MILL_KERR_UNSTABLE_OFFSET_COMMIT};
    }
#endif
    return offset ? (struct fetched){offset->value.offset, offset->value.leader_epoch,
                                     offset->value.metadata, fill->partition_error}
                  : none;
}

/* The next partition of the present topic. */
static const struct mill_group_offset *fetch_partition(struct fetch_fill *fill, int32_t *ret_index)
{
    if (fill->all) {
        const struct mill_group_offset *offset = fill->offsets[fill->next++];
        *ret_index = offset->partition;
        return offset;
    }
    bool more = mill_warray_next_i32(&fill->asked_indexes, ret_index);
    return more && fill->group && fill->topic
               ? mill_groups_offset(fill->groups, fill->group, fill->topic, *ret_index)
               : NULL;
}

/* Partitions of the topic that begins at next. */
static int32_t run_of_topic(const struct fetch_fill *fill)
{
    uint32_t end = fill->next;
    while (end < fill->offsets_count &&
           strcmp(fill->offsets[end]->topic, fill->offsets[fill->next]->topic) == 0) {
        end++;
    }
    return (int32_t)(end - fill->next);
}

static void get_fetch_partition(const void *context, int32_t index, void *ret_element)
{
    struct fetch_fill *fill = (void *)(uintptr_t)context;
    struct mill_offset_fetch_response_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    const struct mill_group_offset *offset = fetch_partition(fill, &element->partition_index);
    struct fetched fetched = fetched_of(fill, offset, element->partition_index);
    element->committed_offset = fetched.offset;
    element->committed_leader_epoch = fetched.epoch;
    element->metadata = mill_wstr_of(fetched.metadata);
    element->error_code = fetched.error;
}

static void get_fetch_group_partition(const void *context, int32_t index, void *ret_element)
{
    struct fetch_fill *fill = (void *)(uintptr_t)context;
    struct mill_offset_fetch_response_groups_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    const struct mill_group_offset *offset = fetch_partition(fill, &element->partition_index);
    struct fetched fetched = fetched_of(fill, offset, element->partition_index);
    element->committed_offset = fetched.offset;
    element->committed_leader_epoch = fetched.epoch;
    element->metadata = mill_wstr_of(fetched.metadata);
    element->error_code = fetched.error;
}

static struct mill_uuid id_by_name(const struct fetch_fill *fill, const char *name)
{
    const struct mill_topic *topic =
        mill_topics_by_name(&fill->groups->controller->topics, name, (uint32_t)strlen(name));
    return topic ? topic->record->id : (struct mill_uuid){{0}};
}

/* Goes on to the next topic: its name, its id from version 10 on, and how many partitions. */
static struct mill_wstr fetch_topic(struct fetch_fill *fill, struct mill_uuid *ret_id,
                                    int32_t *ret_count)
{
    if (fill->all) {
        *ret_count = run_of_topic(fill);
        *ret_id = id_by_name(fill, fill->offsets[fill->next]->topic);
        return mill_wstr_of(fill->offsets[fill->next]->topic);
    }
    struct mill_wstr name = {0};
    if (fill->version >= 8) {
        struct mill_offset_fetch_request_groups_topics asked;
        (void)mill_offset_fetch_request_groups_topics_next(&fill->asked, fill->version, &asked);
        name = asked.name;
        *ret_id = asked.topic_id;
        fill->asked_indexes = asked.partition_indexes;
    } else {
        struct mill_offset_fetch_request_topics asked;
        (void)mill_offset_fetch_request_topics_next(&fill->asked, fill->version, &asked);
        name = asked.name;
        fill->asked_indexes = asked.partition_indexes;
    }
    *ret_count = MILL_MAX(fill->asked_indexes.count, 0);
    fill->topic = fill->version >= IDS_FROM ? name_by_id(fill->groups, ret_id, &fill->request->pool)
                                            : mill_admin_text(fill->request, &name, NULL);
    return name;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    struct fetch_fill *fill = (void *)(uintptr_t)context;
    struct mill_offset_fetch_response_topics *element = ret_element;
    struct mill_uuid id;
    int32_t count = 0;
    MILL_UNUSED(index);
    element->name = fetch_topic(fill, &id, &count);
    element->partitions =
        (struct mill_warray){.count = count, .get = get_fetch_partition, .context = fill};
}

static void get_fetch_group_topic(const void *context, int32_t index, void *ret_element)
{
    struct fetch_fill *fill = (void *)(uintptr_t)context;
    struct mill_offset_fetch_response_groups_topics *element = ret_element;
    int32_t count = 0;
    MILL_UNUSED(index);
    element->name = fetch_topic(fill, &element->topic_id, &count);
    element->partitions =
        (struct mill_warray){.count = count, .get = get_fetch_group_partition, .context = fill};
}

static int by_topic(const void *a, const void *b)
{
    const struct mill_group_offset *left = *(const struct mill_group_offset *const *)a;
    const struct mill_group_offset *right = *(const struct mill_group_offset *const *)b;
    int order = strcmp(left->topic, right->topic);
    return order != 0                           ? order
           : left->partition < right->partition ? -1
                                                : left->partition > right->partition;
}

/* Gathers all offsets of the group, by topic. ret: false no memory. */
static bool fetch_all(struct fetch_fill *fill)
{
    uint32_t count = fill->group ? fill->group->offsets_count : 0;
    fill->offsets = mill_pool_take(&fill->request->pool, count * sizeof(fill->offsets[0]));
    if (!fill->offsets) {
        return false;
    }
    for (const struct mill_group_offset *offset = fill->group ? fill->group->offsets : NULL; offset;
         offset = offset->next) {
        struct mill_uuid id = id_by_name(fill, offset->topic);
        if (fill->version < IDS_FROM || !mill_uuid_is_zero(&id)) {
            fill->offsets[fill->offsets_count++] = offset;
        }
    }
    count = fill->offsets_count;
    if (count > 0) {
        qsort(fill->offsets, count, sizeof(fill->offsets[0]), by_topic);
    }
    for (uint32_t i = 0; i < count; i++) {
        fill->topics_count +=
            i == 0 || strcmp(fill->offsets[i]->topic, fill->offsets[i - 1]->topic) != 0;
    }
    return true;
}

/* Who asks, from version 9 on. */
struct fetch_member {
    struct mill_wstr id; /* null: nobody in particular */
    int32_t epoch;
};

/* Prepares the answer for one group. ret: false no memory. */
static bool fetch_begin(struct mill_groups *groups, struct mill_admin_request *request,
                        const struct mill_wstr *group_id, const struct mill_warray *topics,
                        const struct fetch_member *member, bool stable, struct fetch_fill *ret)
{
    *ret = (struct fetch_fill){.groups = groups,
                               .request = request,
                               .version = request->header.api_version,
                               .asked = *topics,
                               .stable = stable,
                               .all = topics->count < 0};
    ret->group_id = mill_admin_text(request, group_id, NULL);
    if (!ret->group_id) {
        return false;
    }
    ret->error = mill_shards_locate(&groups->shards, ret->group_id);
    if (ret->error == MILL_KERR_NONE) {
        ret->group = mill_groups_find(groups, ret->group_id);
        if (ret->group && ret->group->state == MILL_GROUP_DEAD) {
            ret->group = NULL;
        }
        const char *member_id = mill_admin_text(request, &member->id, NULL);
        if (ret->group && ret->group->consumers) {
            ret->error = mill_consumer_may_fetch(ret->group, member_id, member->epoch);
        }
    }
    if (ret->version == 1) {
        ret->partition_error = ret->error;
    }
    return !ret->all || fetch_all(ret);
}

static int32_t topics_of(const struct fetch_fill *fill)
{
    if (fill->error != MILL_KERR_NONE && fill->version > 1) {
        return 0;
    }
    return fill->all ? (int32_t)fill->topics_count : MILL_MAX(fill->asked.count, 0);
}

static void get_fetch_group(const void *context, int32_t index, void *ret_element)
{
    const struct fetch_fill *fill = &((const struct fetch_fill *)context)[index];
    struct mill_offset_fetch_response_groups *element = ret_element;
    element->group_id = mill_wstr_of(fill->group_id);
    element->error_code = fill->error;
    element->topics = (struct mill_warray){
        .count = topics_of(fill), .get = get_fetch_group_topic, .context = fill};
}

/* The answer may be encoded again into more room: each time begins with a copy of the fills. */
struct fetch_answer {
    struct mill_offset_fetch_response out;
    struct fetch_fill *fills;
    struct fetch_fill *copies;
    uint32_t count;
};

static int encode_fetch(struct mill_writer *to, int16_t version, const void *message)
{
    const struct fetch_answer *answer = message;
    memcpy(answer->copies, answer->fills, answer->count * sizeof(answer->fills[0]));
    return mill_offset_fetch_response_encode(to, version, &answer->out);
}

void mill_offset_fetch(struct mill_groups *groups, struct mill_admin_request *request,
                       struct mill_cursor *at)
{
    struct mill_offset_fetch_request in;
    struct mill_offset_fetch_request_groups asked;
    struct fetch_answer answer = {0};
    const struct fetch_member anyone = {.id = {.length = -1}, .epoch = -1};
    int16_t version = request->header.api_version;
    if (mill_offset_fetch_request_decode(at, version, &in) < 0 ||
        in.groups.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    uint32_t most = version >= 8 ? (uint32_t)MILL_MAX(in.groups.count, 0) : 1;
    answer.fills = mill_pool_take(&request->pool, most * sizeof(*answer.fills));
    answer.copies = mill_pool_take(&request->pool, most * sizeof(*answer.fills));
    bool good = answer.fills && answer.copies;
    if (version < 8) {
        good = good && fetch_begin(groups, request, &in.group_id, &in.topics, &anyone,
                                   in.require_stable, &answer.fills[0]);
        answer.count = 1;
    }
    while (good && version >= 8 &&
           mill_offset_fetch_request_groups_next(&in.groups, version, &asked)) {
        struct fetch_member member = {asked.member_id, asked.member_epoch};
        good = fetch_begin(groups, request, &asked.group_id, &asked.topics, &member,
                           in.require_stable, &answer.fills[answer.count++]);
    }
    if (!good) {
        mill_admin_close(request);
        return;
    }
    mill_offset_fetch_response_defaults(&answer.out);
    if (version >= 8) {
        answer.out.groups = (struct mill_warray){
            .count = (int32_t)answer.count, .get = get_fetch_group, .context = answer.copies};
    } else {
        answer.out.error_code = answer.fills[0].error;
        answer.out.topics = (struct mill_warray){
            .count = topics_of(&answer.fills[0]), .get = get_fetch_topic, .context = answer.copies};
    }
    mill_admin_answer(request, encode_fetch, &answer);
}

/* --- delete ------------------------------------------------------------------------------------
 */

static void get_delete_partition(const void *context, int32_t index, void *ret_element)
{
    const struct entry *entry = &((const struct topic_entries *)context)->entries[index];
    struct mill_offset_delete_response_topics_partitions *element = ret_element;
    element->partition_index = entry->partition;
    element->error_code = entry->error;
}

static void get_delete_topic(const void *context, int32_t index, void *ret_element)
{
    const struct topic_entries *topic = &((const struct change *)context)->topics[index];
    struct mill_offset_delete_response_topics *element = ret_element;
    element->name = mill_wstr_of_bytes(topic->name, (int32_t)topic->name_length);
    element->partitions = (struct mill_warray){
        .count = (int32_t)topic->count, .get = get_delete_partition, .context = topic};
}

static int encode_delete(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_offset_delete_response_encode(to, version, message);
}

static void delete_answer(struct change *change)
{
    struct mill_offset_delete_response out;
    mill_offset_delete_response_defaults(&out);
    out.error_code = change->error;
    if (change->error == MILL_KERR_NONE) {
        out.topics = (struct mill_warray){
            .count = (int32_t)change->topics_count, .get = get_delete_topic, .context = change};
    }
    mill_admin_answer(change->request, encode_delete, &out);
    mill_groups_give(change->groups, change->request);
    change_free(change);
}

static void delete_done(void *context, const struct mill_journal_result *result)
{
    struct change *change = context;
    struct mill_groups *groups = change->groups;
    struct mill_group *group = mill_groups_find(groups, change->group_id);
    change->error = mill_shards_outcome(&groups->shards, change->shard, result);
    if (group && group->commits > 0) {
        group->commits--;
    } else {
        change->error = MILL_KERR_NOT_COORDINATOR;
    }
    for (uint32_t i = 0; change->error == MILL_KERR_NONE && i < change->topics_count; i++) {
        const struct topic_entries *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            struct mill_group_offset *offset =
                topic->entries[k].error == MILL_KERR_NONE
                    ? mill_groups_offset(groups, group, topic->name, topic->entries[k].partition)
                    : NULL;
            if (offset) {
                mill_groups_offset_remove(groups, offset);
            }
        }
    }
    delete_answer(change);
}

static bool delete_read(struct change *change, const struct mill_offset_delete_request *in,
                        int16_t version)
{
    struct mill_offset_delete_request_topics topic;
    struct mill_offset_delete_request_topics_partitions part;
    struct mill_warray topics = in->topics;
    while (mill_offset_delete_request_topics_next(&topics, version, &topic)) {
        struct topic_entries *to = change_topic(change, &topic.name, topic.partitions.count);
        while (to && mill_offset_delete_request_topics_partitions_next(&topic.partitions, version,
                                                                       &part)) {
            struct entry *entry = &to->entries[to->count++];
            entry->partition = part.partition_index;
            entry->error = partition_exists(change->groups, to, part.partition_index)
                               ? (int16_t)MILL_KERR_NONE
                               : (int16_t)MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
        }
        if (!to) {
            return false;
        }
    }
    return true;
}

/* ret: enum mill_kerr of the whole request. */
static int16_t delete_check(const struct change *change, const struct mill_group *group)
{
    if (!group || group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_GROUP_ID_NOT_FOUND;
    }
    if (group->state == MILL_GROUP_EMPTY) {
        return MILL_KERR_NONE;
    }
    for (uint32_t i = 0; i < change->topics_count; i++) {
        const struct topic_entries *topic = &change->topics[i];
        bool known = false;
        bool subscribed = mill_group_subscribes(group, topic->name, &known);
        if (!known && !subscribed) {
            return MILL_KERR_NON_EMPTY_GROUP;
        }
        for (uint32_t k = 0; subscribed && k < topic->count; k++) {
            topic->entries[k].error = topic->entries[k].error
                                          ? topic->entries[k].error
                                          : (int16_t)MILL_KERR_GROUP_SUBSCRIBED_TO_TOPIC;
        }
    }
    return MILL_KERR_NONE;
}

static void delete_begin(struct change *change, struct mill_group *group)
{
    struct mill_groups *groups = change->groups;
    uint32_t count = 0;
    struct mill_group_offset **dead =
        mill_pool_take(&change->pool, group->offsets_count * sizeof(struct mill_group_offset *));
    for (uint32_t i = 0; dead && i < change->topics_count; i++) {
        const struct topic_entries *topic = &change->topics[i];
        for (uint32_t k = 0; k < topic->count && count < group->offsets_count; k++) {
            struct mill_group_offset *offset =
                topic->entries[k].error == MILL_KERR_NONE
                    ? mill_groups_offset(groups, group, topic->name, topic->entries[k].partition)
                    : NULL;
            if (offset) {
                dead[count++] = offset;
            }
        }
    }
    change->shard = group->shard;
    if (!dead) {
        change->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    } else if (count > 0) {
        change->error = mill_groups_bury(groups, group, dead, count, false, delete_done, change);
    }
    if (count == 0 || change->error != MILL_KERR_NONE) {
        delete_answer(change);
        return;
    }
    group->commits++;
    mill_groups_take(change->request);
}

void mill_offset_delete(struct mill_groups *groups, struct mill_admin_request *request,
                        struct mill_cursor *at)
{
    struct mill_offset_delete_request in;
    int16_t version = request->header.api_version;
    struct change *change = NULL;
    if (mill_offset_delete_request_decode(at, version, &in) == 0) {
        change = change_new(groups, request, &in.group_id, in.topics.count);
    }
    if (change && !delete_read(change, &in, version)) {
        change_free(change);
        change = NULL;
    }
    if (!change) {
        mill_admin_close(request);
        return;
    }
    struct mill_group *group = NULL;
    change->error = mill_shards_locate(&groups->shards, change->group_id);
    if (change->error == MILL_KERR_NONE) {
        group = mill_groups_find(groups, change->group_id);
        change->error = delete_check(change, group);
    }
    if (change->error != MILL_KERR_NONE) {
        delete_answer(change);
        return;
    }
    delete_begin(change, group);
}
