/* SPDX-License-Identifier: Apache-2.0 */
/* FindCoordinator, ListGroups, DescribeGroups, DeleteGroups. Cores answer FindCoordinator; the
 * first one that asks for a group or a transactional id comes here, makes the internal topic and
 * waits until it serves. */
#include "control/group/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/admin/words.h"
#include "control/txn/txns.h"
#include "protocol/errors.h"
#include "protocol/operations.h"

/* --- find --------------------------------------------------------------------------------------
 */

/* What the coordinators of one kind of key keep. ret: NULL no such kind. */
static const struct mill_shards *shards_of(const struct mill_admin_request *request,
                                           int8_t key_type)
{
    return key_type == MILL_COORDINATOR_GROUP         ? &request->groups->shards
           : key_type == MILL_COORDINATOR_TRANSACTION ? &request->txns->shards
                                                      : NULL;
}

/* Makes the internal topic of a kind of key. Its name is free: looked up before. */
static void topic_make(struct mill_groups *groups, struct mill_admin_request *request,
                       int8_t key_type)
{
    bool group = key_type == MILL_COORDINATOR_GROUP;
    const char *name = mill_coordinator_topic(key_type);
    enum mill_key partitions = group ? MILL_KEY_OFFSETS_TOPIC_NUM_PARTITIONS
                                     : MILL_KEY_TRANSACTION_STATE_LOG_NUM_PARTITIONS;
    enum mill_key segment_bytes =
        group ? MILL_KEY_OFFSETS_TOPIC_SEGMENT_BYTES : MILL_KEY_TRANSACTION_STATE_LOG_SEGMENT_BYTES;
    char segment[24];
    struct mill_meta_config configs[] = {{"cleanup.policy", "compact"},
                                         {"compression.type", "producer"},
                                         {"segment.bytes", segment}};
    snprintf(segment, sizeof(segment), "%lld",
             (long long)mill_config_int(groups->config, segment_bytes));
    struct mill_create item = {
        .name = name,
        .name_length = (uint32_t)strlen(name),
        .partitions = (int32_t)mill_config_int(groups->config, partitions),
        .replication_factor = 1, /* one broker; the configured factor is the most */
        .configs = configs,
        .configs_count = MILL_COUNT_OF(configs),
    };
    mill_controller_create(groups->controller, &item, 1, false, &request->pool);
    if (!item.created) {
        mill_topic_free(item.topic);
    }
}

uint32_t mill_groups_shards(struct mill_groups *groups, struct mill_admin_request *request)
{
    const struct mill_topic *topic = mill_shards_topic(&groups->shards);
    if (!topic) {
        topic_make(groups, request, MILL_COORDINATOR_GROUP);
    }
    return topic ? topic->record->partitions_count : 0;
}

/* What is waited for: the kind of key, and what its coordinators keep. ret: false: malformed. */
static bool asked(struct mill_admin_request *request, struct mill_cursor *at, int8_t *ret_key_type,
                  const struct mill_shards **ret_shards)
{
    struct mill_find_coordinator_request in;
    if (mill_find_coordinator_request_decode(at, request->header.api_version, &in) < 0) {
        return false;
    }
    *ret_key_type = in.key_type;
    *ret_shards = shards_of(request, in.key_type);
    return true;
}

/* Sends the core back to the map once the internal topic serves, or at the deadline. */
void mill_find_coordinator_continue(struct mill_admin_request *request, uint64_t now_ns)
{
    struct mill_request_header header;
    const struct mill_shards *shards;
    int8_t key_type;
    struct mill_cursor at =
        mill_cursor_over(&request->frame_buf, request->frame, request->head.size_bytes);
    if (mill_request_header_decode(&at, &header) < 0 || !asked(request, &at, &key_type, &shards)) {
        mill_admin_close(request);
        return;
    }
    const struct mill_topic *topic = shards ? mill_shards_topic(shards) : NULL;
    bool serves = topic && topic->serving_count > 0 &&
                  topic->serving_count + topic->failed_count == topic->record->partitions_count;
    request->ready = serves || !shards || now_ns >= request->wait_until_ns;
}

void mill_find_coordinator(struct mill_groups *groups, struct mill_admin_request *request,
                           struct mill_cursor *at)
{
    const struct mill_shards *shards;
    int8_t key_type;
    if (!asked(request, at, &key_type, &shards)) {
        mill_admin_close(request);
        return;
    }
    request->outcome = MILL_OUTCOME_AGAIN;
    if (shards && !mill_shards_topic(shards)) {
        topic_make(groups, request, key_type);
    }
}

/* --- list --------------------------------------------------------------------------------------
 */

struct list_fill {
    const struct mill_groups *groups;
    const struct mill_group **found;
};

static void get_listed(const void *context, int32_t index, void *ret_element)
{
    const struct mill_group *group = ((const struct list_fill *)context)->found[index];
    struct mill_list_groups_response_groups *element = ret_element;
    element->group_id = mill_wstr_of(group->id);
    element->protocol_type = mill_wstr_of(group->protocol_type ? group->protocol_type : "");
    element->group_state = mill_wstr_of(mill_group_state_name(mill_group_shown_state(group)));
    element->group_type = mill_wstr_of(mill_group_type_name(mill_group_type(group)));
}

static int encode_list(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_list_groups_response_encode(to, version, message);
}

static const char *state_text(uint32_t index)
{
    return mill_group_state_name((enum mill_group_state)index);
}

static const char *type_text(uint32_t index)
{
    return mill_group_type_name((enum mill_group_type)index);
}

void mill_list_groups(struct mill_groups *groups, struct mill_admin_request *request,
                      struct mill_cursor *at)
{
    struct mill_list_groups_request in;
    struct mill_list_groups_response out;
    struct list_fill fill = {.groups = groups};
    static const struct mill_words_known known_types = {MILL_GROUP_TYPE_COUNT, type_text, true};
    static const struct mill_words_known known_states = {MILL_GROUP_STATE_COUNT, state_text, true};
    struct mill_words types;
    struct mill_words states;
    int32_t count = 0;
    if (mill_list_groups_request_decode(at, request->header.api_version, &in) < 0 ||
        !mill_words_read(request, &in.types_filter, &known_types, &types) ||
        !mill_words_read(request, &in.states_filter, &known_states, &states)) {
        mill_admin_close(request);
        return;
    }
    /* The pool's bound follows the request's size; this list follows ours. */
    fill.found = malloc(MILL_MAX(groups->groups_count, 1u) * sizeof(fill.found[0]));
    if (!fill.found) {
        mill_admin_close(request);
        return;
    }
    for (uint32_t i = 0; i < groups->shards.count; i++) {
        for (const struct mill_group *group = groups->shards.items[i].first;
             group && groups->shards.items[i].state == MILL_SHARD_READY;
             group = group->shard_next) {
            if (mill_words_have(&types, mill_group_type(group)) &&
                mill_words_have(&states, mill_group_shown_state(group))) {
                fill.found[count++] = group;
            }
        }
    }
    mill_list_groups_response_defaults(&out);
    out.error_code = groups->shards.loading_count > 0
                         ? (int16_t)MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS
                         : (int16_t)MILL_KERR_NONE;
    out.groups = (struct mill_warray){.count = count, .get = get_listed, .context = &fill};
    mill_admin_answer(request, encode_list, &out);
    free(fill.found);
}

/* --- describe ----------------------------------------------------------------------------------
 */

struct described {
    const char *group_id;
    const struct mill_group *group; /* NULL unknown */
    bool consumers;                 /* it is one of the other protocol */
    int16_t error;
    const struct mill_group_member *next;
};

struct describe_fill {
    struct described *groups;
    bool operations; /* wanted */
};

static void get_described_member(const void *context, int32_t index, void *ret_element)
{
    struct described *described = (void *)(uintptr_t)context;
    struct mill_describe_groups_response_groups_members *element = ret_element;
    const struct mill_group_member *member = described->next;
    bool stable = described->group->state == MILL_GROUP_STABLE;
    MILL_UNUSED(index);
    described->next = member->next;
    element->member_id = mill_wstr_of(member->id);
    element->group_instance_id = mill_wstr_of(member->instance_id);
    element->client_id = mill_wstr_of(member->client_id);
    element->client_host = mill_wstr_of(member->client_host);
    if (stable) {
        const struct mill_group_blob *metadata = mill_group_metadata(described->group, member);
        element->member_metadata =
            mill_wstr_of_bytes(metadata->bytes, (int32_t)metadata->size_bytes);
        element->member_assignment =
            mill_wstr_of_bytes(member->assignment.bytes, (int32_t)member->assignment.size_bytes);
    }
}

static void get_described(const void *context, int32_t index, void *ret_element)
{
    struct described *described = &((const struct describe_fill *)context)->groups[index];
    struct mill_describe_groups_response_groups *element = ret_element;
    const struct mill_group *group = described->group;
    element->error_code = described->error;
    element->group_id = mill_wstr_of(described->group_id);
    if (((const struct describe_fill *)context)->operations && described->error == MILL_KERR_NONE) {
        element->authorized_operations = MILL_OPERATIONS_GROUP;
    }
    if (!group) {
        element->group_state = mill_wstr_of(described->error == MILL_KERR_NONE ||
                                                    described->error == MILL_KERR_GROUP_ID_NOT_FOUND
                                                ? mill_group_state_name(MILL_GROUP_DEAD)
                                                : "");
        if (described->error == MILL_KERR_GROUP_ID_NOT_FOUND) {
            element->error_message =
                mill_wstr_of(described->consumers ? "The group is not a classic group."
                                                  : "The group does not exist.");
        }
        return;
    }
    bool stable = group->state == MILL_GROUP_STABLE;
    described->next = group->members;
    element->group_state = mill_wstr_of(mill_group_state_name(group->state));
    element->protocol_type = mill_wstr_of(group->protocol_type ? group->protocol_type : "");
    element->protocol_data = mill_wstr_of(stable && group->protocol ? group->protocol : "");
    element->members = (struct mill_warray){
        .count = (int32_t)group->members_count, .get = get_described_member, .context = described};
}

static int encode_describe(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_groups_response_encode(to, version, message);
}

void mill_describe_groups(struct mill_groups *groups, struct mill_admin_request *request,
                          struct mill_cursor *at)
{
    struct mill_describe_groups_request in;
    struct mill_describe_groups_response out;
    struct mill_wstr id;
    struct describe_fill fill;
    int32_t count = 0;
    int16_t version = request->header.api_version;
    if (mill_describe_groups_request_decode(at, version, &in) < 0 ||
        in.groups.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    fill.operations = in.include_authorized_operations;
    fill.groups = mill_pool_take(&request->pool,
                                 (uint64_t)MILL_MAX(in.groups.count, 0) * sizeof(*fill.groups));
    while (fill.groups && mill_warray_next_str(&in.groups, request->header.flexible, &id)) {
        struct described *described = &fill.groups[count++];
        described->group_id = mill_admin_text(request, &id, NULL);
        if (!described->group_id) {
            fill.groups = NULL;
            break;
        }
        described->error = mill_shards_locate(&groups->shards, described->group_id);
        if (described->error == MILL_KERR_NONE) {
            described->group = mill_groups_find(groups, described->group_id);
            described->consumers = described->group && described->group->consumers;
            described->group = described->consumers ? NULL : described->group;
            described->error = described->group || version < 6
                                   ? (int16_t)MILL_KERR_NONE
                                   : (int16_t)MILL_KERR_GROUP_ID_NOT_FOUND;
        }
    }
    if (!fill.groups) {
        mill_admin_close(request);
        return;
    }
    mill_describe_groups_response_defaults(&out);
    out.groups = (struct mill_warray){.count = count, .get = get_described, .context = &fill};
    mill_admin_answer(request, encode_describe, &out);
}

/* --- delete ------------------------------------------------------------------------------------
 */

/* A DeleteGroups on its way: answered when the last of its groups is. */
struct deletion {
    struct mill_groups *groups;
    struct mill_admin_request *request;
    uint32_t left;
    uint32_t count;
    struct deleted {
        struct deletion *all;
        char *group_id;
        int32_t shard;
        int16_t error;
    } items[];
};

static void get_deleted(const void *context, int32_t index, void *ret_element)
{
    const struct deleted *item = &((const struct deletion *)context)->items[index];
    struct mill_delete_groups_response_results *element = ret_element;
    element->group_id = mill_wstr_of(item->group_id);
    element->error_code = item->error;
}

static int encode_delete(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_delete_groups_response_encode(to, version, message);
}

static void deletion_answer(struct deletion *deletion)
{
    struct mill_delete_groups_response out;
    if (--deletion->left > 0) {
        return;
    }
    mill_delete_groups_response_defaults(&out);
    out.results = (struct mill_warray){
        .count = (int32_t)deletion->count, .get = get_deleted, .context = deletion};
    mill_admin_answer(deletion->request, encode_delete, &out);
    mill_groups_give(deletion->groups, deletion->request);
    for (uint32_t i = 0; i < deletion->count; i++) {
        free(deletion->items[i].group_id);
    }
    free(deletion);
}

static void group_deleted(void *context, const struct mill_journal_result *result)
{
    struct deleted *item = context;
    struct mill_groups *groups = item->all->groups;
    struct mill_group *group = mill_groups_find(groups, item->group_id);
    item->error = mill_shards_outcome(&groups->shards, item->shard, result);
    if (group && group->state == MILL_GROUP_DEAD) {
        if (item->error == MILL_KERR_NONE) {
            mill_groups_remove(groups, group);
        } else {
            group->state = MILL_GROUP_EMPTY;
        }
    }
    deletion_answer(item->all);
}

static void group_delete(struct mill_groups *groups, struct deleted *item)
{
    item->error = mill_shards_locate(&groups->shards, item->group_id);
    if (item->error != MILL_KERR_NONE) {
        return;
    }
    struct mill_group *group = mill_groups_find(groups, item->group_id);
    if (!group || group->state == MILL_GROUP_DEAD) {
        item->error = MILL_KERR_GROUP_ID_NOT_FOUND;
        return;
    }
    /* Who was only given an id is no member. */
    if (group->state != MILL_GROUP_EMPTY || group->commits > 0) {
        item->error = MILL_KERR_NON_EMPTY_GROUP;
        return;
    }
    struct mill_group_offset **offsets =
        malloc(MILL_MAX(group->offsets_count, 1u) * sizeof(struct mill_group_offset *));
    uint32_t count = 0;
    for (struct mill_group_offset *offset = group->offsets; offset && offsets;
         offset = offset->next) {
        offsets[count++] = offset;
    }
    item->shard = group->shard;
    item->error = offsets
                      ? mill_groups_bury(groups, group, offsets, count, true, group_deleted, item)
                      : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    free(offsets);
    if (item->error == MILL_KERR_NONE) {
        group->state = MILL_GROUP_DEAD;
        item->all->left++;
    }
}

void mill_delete_groups(struct mill_groups *groups, struct mill_admin_request *request,
                        struct mill_cursor *at)
{
    struct mill_delete_groups_request in;
    struct mill_wstr id;
    if (mill_delete_groups_request_decode(at, request->header.api_version, &in) < 0 ||
        in.groups_names.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    uint32_t most = (uint32_t)MILL_MAX(in.groups_names.count, 0);
    struct deletion *deletion = calloc(1, sizeof(*deletion) + most * sizeof(deletion->items[0]));
    if (!deletion) {
        mill_admin_close(request);
        return;
    }
    deletion->groups = groups;
    deletion->request = request;
    deletion->left = 1; /* until all were looked at */
    while (mill_warray_next_str(&in.groups_names, request->header.flexible, &id)) {
        struct deleted *item = &deletion->items[deletion->count++];
        const char *text = mill_admin_text(request, &id, NULL);
        item->all = deletion;
        item->group_id = strdup(text ? text : "");
        if (!item->group_id) {
            item->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
        } else {
            group_delete(groups, item);
        }
    }
    if (deletion->left > 1) {
        mill_groups_take(request);
    }
    deletion_answer(deletion);
}
