/* SPDX-License-Identifier: Apache-2.0 */
/* OffsetDelete: tombstones of offsets of topics that nobody in the group subscribes to. */
#include "control/group/offset_change.h"

#include <string.h>

#include "protocol/errors.h"

static void get_delete_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_change_entry *entry =
        &((const struct mill_change_topic *)context)->entries[index];
    struct mill_offset_delete_response_topics_partitions *element = ret_element;
    element->partition_index = entry->partition;
    element->error_code = entry->error;
}

static void get_delete_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_change_topic *topic = &((const struct mill_change *)context)->topics[index];
    struct mill_offset_delete_response_topics *element = ret_element;
    element->name = mill_wstr_of_bytes(topic->name, (int32_t)topic->name_length);
    element->partitions = (struct mill_warray){
        .count = (int32_t)topic->count, .get = get_delete_partition, .context = topic};
}

static int encode_delete(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_offset_delete_response_encode(to, version, message);
}

static void delete_answer(struct mill_change *change)
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
    mill_change_free(change);
}

static void delete_done(void *context, const struct mill_journal_result *result)
{
    struct mill_change *change = context;
    struct mill_groups *groups = change->groups;
    struct mill_group *group = mill_groups_find(groups, change->group_id);
    change->error = mill_shards_outcome(&groups->shards, change->shard, result);
    if (group && group->commits > 0) {
        group->commits--;
    } else {
        change->error = MILL_KERR_NOT_COORDINATOR;
    }
    for (uint32_t i = 0; change->error == MILL_KERR_NONE && i < change->topics_count; i++) {
        const struct mill_change_topic *topic = &change->topics[i];
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

static bool delete_read(struct mill_change *change, const struct mill_offset_delete_request *in,
                        int16_t version)
{
    struct mill_offset_delete_request_topics topic;
    struct mill_offset_delete_request_topics_partitions part;
    struct mill_warray topics = in->topics;
    while (mill_offset_delete_request_topics_next(&topics, version, &topic)) {
        struct mill_change_topic *to =
            mill_change_add_topic(change, &topic.name, topic.partitions.count);
        while (to && mill_offset_delete_request_topics_partitions_next(&topic.partitions, version,
                                                                       &part)) {
            struct mill_change_entry *entry = &to->entries[to->count++];
            entry->partition = part.partition_index;
            entry->error = mill_change_exists(change->groups, to, part.partition_index)
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
static int16_t delete_check(const struct mill_change *change, const struct mill_group *group)
{
    if (!group || group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_GROUP_ID_NOT_FOUND;
    }
    if (group->state == MILL_GROUP_EMPTY) {
        return MILL_KERR_NONE;
    }
    if (!group->protocol_type || strcmp(group->protocol_type, "consumer") != 0) {
        return MILL_KERR_NON_EMPTY_GROUP;
    }
    for (uint32_t i = 0; i < change->topics_count; i++) {
        const struct mill_change_topic *topic = &change->topics[i];
        bool known = false;
        bool subscribed = mill_group_subscribes(group, topic->name, &known);
        subscribed = subscribed || !known; /* by a subscription that nobody can read */
        for (uint32_t k = 0; subscribed && k < topic->count; k++) {
            topic->entries[k].error = topic->entries[k].error
                                          ? topic->entries[k].error
                                          : (int16_t)MILL_KERR_GROUP_SUBSCRIBED_TO_TOPIC;
        }
    }
    return MILL_KERR_NONE;
}

static void delete_begin(struct mill_change *change, struct mill_group *group)
{
    struct mill_groups *groups = change->groups;
    uint32_t count = 0;
    struct mill_group_offset **dead =
        mill_pool_take(&change->pool, group->offsets_count * sizeof(struct mill_group_offset *));
    for (uint32_t i = 0; dead && i < change->topics_count; i++) {
        const struct mill_change_topic *topic = &change->topics[i];
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
    struct mill_change *change = NULL;
    if (mill_offset_delete_request_decode(at, version, &in) == 0) {
        change = mill_change_new(groups, request, &in.group_id, in.topics.count);
    }
    if (change && !delete_read(change, &in, version)) {
        mill_change_free(change);
        change = NULL;
    }
    if (!change) {
        mill_admin_close(request);
        return;
    }
    struct mill_group *group = NULL;
    int16_t nameless = MILL_KERR_INVALID_GROUP_ID;
#ifdef MILL_MUTANT_GROUP_NAMELESS_UNKNOWN
    nameless = MILL_KERR_GROUP_ID_NOT_FOUND;
#endif
    change->error = change->group_id[0] == '\0'
                        ? nameless
                        : mill_shards_locate(&groups->shards, change->group_id);
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
