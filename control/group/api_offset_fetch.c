/* SPDX-License-Identifier: Apache-2.0 */
/* OffsetFetch: what is committed, for some partitions of some groups or all of them. */
#include "control/group/offset_change.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

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
    bool unknown = !fill->all && !fill->topic && fill->version >= MILL_OFFSETS_IDS_FROM;
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
    fill->topic = fill->version >= MILL_OFFSETS_IDS_FROM
                      ? mill_topic_name_by_id(fill->groups, ret_id, &fill->request->pool)
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
        if (fill->version < MILL_OFFSETS_IDS_FROM || !mill_uuid_is_zero(&id)) {
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
