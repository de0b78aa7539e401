/* SPDX-License-Identifier: Apache-2.0 */
/* ConsumerGroupHeartbeat and ConsumerGroupDescribe. A heartbeat that changes something is answered
 * when the log has the change; one that changes nothing is answered at once. Of each group one
 * change is on its way at a time: heartbeats that ask for another one wait in the group's queue,
 * with their frames, and are looked at again. */
#include "control/group/groups.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

enum {
    PLAN_BYTES_MAX = 64 << 20,
};

/* A change on its way to the log. */
struct mill_consumer_write {
    struct mill_groups *groups;
    struct mill_admin_request *request; /* NULL: a time-out asked for it */
    struct mill_consumer_plan plan;
    int32_t shard;
    char group_id[];
};

/* --- answers -----------------------------------------------------------------------------------
 */

/* A member's partitions, topic after topic. The answer may be written twice: at the first topic it
 * begins anew. */
struct parts_fill {
    const struct mill_groups *groups;
    const struct mill_parts *parts;
    uint32_t next;
};

static uint32_t run_of(const struct parts_fill *fill)
{
    uint32_t end = fill->next;
    while (end < fill->parts->count &&
           mill_uuid_equal(&fill->parts->items[end].topic, &fill->parts->items[fill->next].topic)) {
        end++;
    }
    return end - fill->next;
}

static int32_t topics_count(const struct mill_parts *parts)
{
    struct parts_fill fill = {.parts = parts};
    int32_t count = 0;
    for (; fill.next < parts->count; fill.next += run_of(&fill)) {
        count++;
    }
    return count;
}

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_part *run = context;
    *(int32_t *)ret_element = run[index].partition;
}

static struct mill_warray partitions_of(struct parts_fill *fill)
{
    const struct mill_part *run = fill->parts->items + fill->next;
    uint32_t count = run_of(fill);
    fill->next += count;
    return (struct mill_warray){.count = (int32_t)count, .get = get_partition, .context = run};
}

static void get_assigned(const void *context, int32_t index, void *ret_element)
{
    struct parts_fill *fill = (void *)(uintptr_t)context;
    struct mill_consumer_group_heartbeat_response_assignment_topic_partitions *element =
        ret_element;
    fill->next = index == 0 ? 0 : fill->next;
    element->topic_id = fill->parts->items[fill->next].topic;
    element->partitions = partitions_of(fill);
}

static int encode_beat(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_consumer_group_heartbeat_response_encode(to, version, message);
}

/* Answers a heartbeat by its plan and by what the group is now; the request may be taken. */
static void beat_answer(struct mill_groups *groups, struct mill_admin_request *request,
                        const struct mill_group *group, const struct mill_consumer_plan *plan)
{
    struct mill_consumer_group_heartbeat_response out;
    const struct mill_consumer *member = NULL;
    struct parts_fill fill = {.groups = groups};
    mill_consumer_group_heartbeat_response_defaults(&out);
    out.error_code = plan->error;
    out.error_message = mill_wstr_of(plan->message);
    if (plan->error == MILL_KERR_NONE) {
        out.member_id = mill_wstr_of(plan->member_id);
        out.member_epoch = plan->epoch;
        out.heartbeat_interval_ms =
            (int32_t)mill_consumer_times(&groups->consumer, group).heartbeat_ms;
        member = plan->assignment ? mill_consumer_find(group, plan->member_id) : NULL;
    }
    if (member) {
        fill.parts = &member->assigned;
        out.has_assignment = true;
        out.assignment.topic_partitions = (struct mill_warray){
            .count = topics_count(fill.parts), .get = get_assigned, .context = &fill};
    }
    mill_admin_answer(request, encode_beat, &out);
    mill_groups_done(groups, request);
}

/* Answers a request of whichever API. group NULL: the plan has an error. */
static void plan_answer(struct mill_groups *groups, struct mill_admin_request *request,
                        struct mill_group *group, const struct mill_consumer_plan *plan)
{
    switch (request->header.api_key) {
    case MILL_API_KEY_JOIN_GROUP:
        mill_classic_joined(groups, request, group, plan);
        break;
    case MILL_API_KEY_LEAVE_GROUP:
        mill_classic_left(groups, request, plan);
        break;
    default:
        beat_answer(groups, request, group, plan);
        break;
    }
}

/* --- the log -----------------------------------------------------------------------------------
 */

static void queue_run(struct mill_groups *groups, struct mill_group *group);

/* Replays the records of a plan that the log has. ret: false: not all, for want of memory. */
static bool plan_apply(struct mill_groups *groups, struct mill_group *group,
                       const struct mill_consumer_plan *plan)
{
    struct mill_pool pool = {.limit_bytes = PLAN_BYTES_MAX};
    bool whole = true;
    for (uint32_t i = 0; i < plan->records_count; i++) {
        const struct mill_journal_record *from = &plan->records[i];
        struct mill_buf key;
        struct mill_buf value;
        struct mill_group_record read;
        struct mill_record record = {
            .key_length = (int32_t)from->key_bytes,
            .value_length = from->value_bytes,
            .key = mill_cursor_over(&key, (void *)(uintptr_t)from->key, from->key_bytes),
            .value = mill_cursor_over(&value, (void *)(uintptr_t)from->value,
                                      (uint32_t)MILL_MAX(from->value_bytes, 0)),
        };
        bool good = mill_group_record_read(&record, &pool, &read) == 0;
        if (good && read.kind == MILL_GROUP_RECORD_CONSUMER) {
            good = mill_consumer_apply(&groups->consumer, group, &read.consumer);
        } else if (good && read.tombstone) {
            mill_group_forget_classic(&groups->env, group);
        } else if (good) {
            good = mill_groups_apply_group(groups, &read);
        }
        whole = whole && good;
        mill_pool_clear(&pool);
    }
    if (whole) {
        mill_consumer_done(&groups->consumer, group, plan);
    }
    if (whole && plan->converts && !group->consumers) {
        mill_group_turned_back(&groups->env, group, !plan->rests);
    }
    return whole;
}

/* What was due could not be written: not at once again. */
static void timer_later(struct mill_groups *groups, struct mill_group *group)
{
    groups->env.calls->timer(groups, group, groups->env.now_ns + MILL_NS_PER_S);
}

static void write_end(struct mill_consumer_write *write)
{
    mill_consumer_plan_free(&write->plan);
    free(write);
}

static void written(void *context, const struct mill_journal_result *result)
{
    struct mill_consumer_write *write = context;
    struct mill_groups *groups = write->groups;
    struct mill_group *group = mill_groups_find(groups, write->group_id);
    int64_t before = mill_shards_known(&groups->shards, write->shard);
    int16_t error = mill_shards_outcome(&groups->shards, write->shard, result);
    if (!group || group->write != write) {
        group = NULL; /* the topic of the groups went meanwhile */
        error = MILL_KERR_NOT_COORDINATOR;
    }
    if (group) {
        group->write = NULL;
        group->commits--;
    }
    if (group && error == MILL_KERR_NONE && !plan_apply(groups, group, &write->plan)) {
        /* It is in the log, and not all of it here: learnt by reading. */
        mill_shards_read_again(&groups->shards, write->shard, before);
        error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    } else if (group && error != MILL_KERR_NONE) {
        timer_later(groups, group);
        if (error == MILL_KERR_UNKNOWN_SERVER_ERROR) {
            (void)mill_consumer_remove_fewer(group, &write->plan);
        }
    }
    write->plan.error = error;
    if (write->request) {
        plan_answer(groups, write->request, error == MILL_KERR_NONE ? group : NULL, &write->plan);
    }
    write_end(write);
    if (group) {
        queue_run(groups, group);
    }
}

/* Sends a plan on its way; takes what is in it. ret: enum mill_kerr when it did not go;
 * UNKNOWN_SERVER_ERROR: it is too large. */
static int16_t plan_write(struct mill_groups *groups, struct mill_group *group,
                          struct mill_admin_request *request, struct mill_consumer_plan *plan)
{
    size_t id_bytes = strlen(group->id) + 1;
    struct mill_consumer_write *write = calloc(1, sizeof(*write) + id_bytes);
    if (!write) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    write->groups = groups;
    write->request = request;
    write->shard = group->shard;
    memcpy(write->group_id, group->id, id_bytes);
    int16_t error = mill_groups_append(groups, group->shard, plan->records, plan->records_count,
                                       written, write);
    if (error != MILL_KERR_NONE) {
        free(write);
        return error == MILL_KERR_INVALID_COMMIT_OFFSET_SIZE || error == MILL_KERR_MESSAGE_TOO_LARGE
                   ? (int16_t)MILL_KERR_UNKNOWN_SERVER_ERROR
                   : error;
    }
    write->plan = *plan;
    *plan = (struct mill_consumer_plan){0};
    group->write = write;
    group->commits++;
    return MILL_KERR_NONE;
}

/* --- heartbeat ---------------------------------------------------------------------------------
 */

static char **names_read(struct mill_admin_request *request, const struct mill_warray *from,
                         uint32_t *ret_count)
{
    struct mill_warray array = *from;
    struct mill_wstr name;
    uint32_t count = (uint32_t)MILL_MAX(array.count, 0);
    char **names = mill_pool_take(&request->pool, count * sizeof(names[0]));
    *ret_count = 0;
    while (names && mill_warray_next_str(&array, request->header.flexible, &name)) {
        names[*ret_count] = mill_admin_text(request, &name, NULL);
        if (!names[(*ret_count)++]) {
            return NULL;
        }
    }
    return names;
}

/* ret: false over a limit. */
static bool owned_read(struct mill_admin_request *request, const struct mill_warray *from,
                       struct mill_parts *ret)
{
    struct mill_consumer_group_heartbeat_request_topic_partitions topic;
    struct mill_warray topics = *from;
    int16_t version = request->header.api_version;
    uint32_t count = 0;
    while (mill_consumer_group_heartbeat_request_topic_partitions_next(&topics, version, &topic)) {
        count += (uint32_t)MILL_MAX(topic.partitions.count, 0);
        if (count > MILL_CONSUMER_OWNED_MAX) {
            return false;
        }
    }
    if (!mill_parts_room(&request->pool, count, ret)) {
        return false;
    }
    topics = *from;
    while (mill_consumer_group_heartbeat_request_topic_partitions_next(&topics, version, &topic)) {
        struct mill_part *part = &ret->items[ret->count];
        while (mill_warray_next_i32(&topic.partitions, &part->partition)) {
            part->topic = topic.topic_id;
            part = &ret->items[++ret->count];
        }
    }
    mill_parts_sort(ret);
    return true;
}

/* Reads a heartbeat out of the request's frame. ret: false malformed, or over a limit. */
static bool beat_read(struct mill_admin_request *request, struct mill_cursor *at,
                      const char **ret_group_id, struct mill_consumer_beat *ret)
{
    struct mill_consumer_group_heartbeat_request in;
    char id[MILL_UUID_TEXT_BYTES];
    struct mill_uuid uuid;
    int16_t version = request->header.api_version;
    if (mill_consumer_group_heartbeat_request_decode(at, version, &in) < 0 ||
        in.subscribed_topic_names.count > MILL_CONSUMER_NAMES_MAX) {
        return false;
    }
    *ret_group_id = mill_groups_text(request, &in.group_id);
    *ret = (struct mill_consumer_beat){
        .member_id = mill_groups_text(request, &in.member_id),
        .epoch = in.member_epoch,
        .instance_id = mill_admin_text(request, &in.instance_id, NULL),
        .rack_id = mill_admin_text(request, &in.rack_id, NULL),
        .client_id = mill_groups_text(request, &request->header.client_id),
        .client_host = mill_groups_host(request),
        .rebalance_timeout_ms = in.rebalance_timeout_ms,
        .regex = mill_admin_text(request, &in.subscribed_topic_regex, NULL),
        .assignor = mill_admin_text(request, &in.server_assignor, NULL),
        .owned_told = in.topic_partitions.count >= 0,
        .owned_named = in.topic_partitions.count > 0,
        .id_required = version >= 1,
    };
    if (in.subscribed_topic_names.count >= 0) {
        ret->names = names_read(request, &in.subscribed_topic_names, &ret->names_count);
        if (!ret->names) {
            return false;
        }
    }
    if (ret->member_id[0] == '\0' && ret->epoch == MILL_CONSUMER_JOINS && !ret->id_required) {
        request->groups->env.calls->random(request->groups, &uuid, sizeof(uuid));
        mill_uuid_format(&uuid, id);
        ret->member_id = mill_pool_text(&request->pool, "%s", id);
    }
    /* What is missing must not be taken for none. */
    return !request->memory_short && ret->member_id &&
           (!ret->owned_told || owned_read(request, &in.topic_partitions, &ret->owned));
}

/* What a request that waits holds. */
static uint64_t queued_bytes(const struct mill_admin_request *request)
{
    return sizeof(*request) + request->head.size_bytes;
}

bool mill_consumers_queue(struct mill_groups *groups, struct mill_group *group,
                          struct mill_admin_request *request)
{
    if (groups->env.bytes + queued_bytes(request) > groups->env.bytes_max) {
        groups->env.full++;
        return false;
    }
    groups->env.bytes += queued_bytes(request);
    mill_pool_clear(&request->pool); /* it is read again from its frame */
    request->next = NULL;
    *group->queued_last = request;
    group->queued_last = &request->next;
    if (!request->taken) {
        request->taken = true;
        groups->parked_count++;
    }
    return true;
}

/* Takes the oldest one out. */
static struct mill_admin_request *beat_unqueue(struct mill_groups *groups, struct mill_group *group)
{
    struct mill_admin_request *request = group->queued;
    group->queued = request->next;
    if (!group->queued) {
        group->queued_last = &group->queued;
    }
    groups->env.bytes -= queued_bytes(request);
    return request;
}

/* The group of a heartbeat; one that joins makes it. ret: enum mill_kerr. */
static int16_t group_of(struct mill_groups *groups, const char *group_id,
                        const struct mill_consumer_beat *beat, struct mill_group **ret_group)
{
    if (groups->parked_count >= MILL_GROUP_PARKED_MAX) {
        groups->env.full++;
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    int16_t error = mill_shards_locate(&groups->shards, group_id);
    if (error == MILL_KERR_NONE) {
        *ret_group = beat->epoch == MILL_CONSUMER_JOINS ? mill_groups_make(groups, group_id)
                                                        : mill_groups_find(groups, group_id);
        error = *ret_group                           ? MILL_KERR_NONE
                : beat->epoch == MILL_CONSUMER_JOINS ? MILL_KERR_COORDINATOR_NOT_AVAILABLE
                                                     : MILL_KERR_GROUP_ID_NOT_FOUND;
    }
    return error;
}

bool mill_consumers_hold(const struct mill_group *group)
{
#ifdef MILL_MUTANT_MIGRATION_UNHELD
    return false;
#endif
    return group->write && (!group->consumers || group->consumers->count == 0 ||
                            group->write->plan.removes || group->write->plan.converts);
}

void mill_consumers_plan_run(struct mill_groups *groups, struct mill_group *group,
                             struct mill_admin_request *request, struct mill_consumer_plan *plan)
{
    bool writes = plan->records_count > 0;
    if (writes && group->write) {
        if (mill_consumers_queue(groups, group, request)) {
            return;
        }
        plan->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
        writes = false;
    } else if (writes) {
        plan->error = plan_write(groups, group, request, plan);
        writes = plan->error == MILL_KERR_NONE;
    }
    if (writes) {
        groups->parked_count += request->taken ? 0 : 1;
        mill_groups_take(request);
    } else {
        plan_answer(groups, request, plan->error == MILL_KERR_NONE ? group : NULL, plan);
    }
}

void mill_consumer_group_heartbeat(struct mill_groups *groups, struct mill_admin_request *request,
                                   struct mill_cursor *at)
{
    struct mill_consumer_plan plan = {.pool = {.limit_bytes = PLAN_BYTES_MAX}};
    struct mill_consumer_beat beat;
    struct mill_group *group = NULL;
    const char *group_id = NULL;
    if (!beat_read(request, at, &group_id, &beat)) {
        mill_admin_close(request);
        mill_groups_done(groups, request);
        return;
    }
    /* A group is looked for, or made, only by what makes sense by itself. */
    if (group_id[0] == '\0') {
        plan.error = MILL_KERR_INVALID_REQUEST; /* not 24, which classic members are told */
        plan.message = "GroupId can't be empty.";
    } else {
        plan.error = mill_consumer_beat_check(&groups->consumer, &beat, &plan);
    }
    if (plan.error == MILL_KERR_NONE) {
        plan.error = group_of(groups, group_id, &beat, &group);
    }
    /* One that is being removed must not be told that it is a member. */
    bool waits = plan.error == MILL_KERR_NONE && group->write &&
                 (group->write->plan.removes || group->write->plan.converts);
    if (waits && mill_consumers_queue(groups, group, request)) {
        mill_consumer_plan_free(&plan);
        return;
    }
    plan.error = waits ? (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE : plan.error;
    if (plan.error != MILL_KERR_NONE) {
        beat_answer(groups, request, NULL, &plan);
        mill_consumer_plan_free(&plan);
        return;
    }
    mill_consumer_beat(&groups->consumer, group, &beat, &plan);
    mill_consumers_plan_run(groups, group, request, &plan);
    mill_consumer_plan_free(&plan);
}

/* Looks at the requests that waited, until one of them is on its way again. */
static void queue_run(struct mill_groups *groups, struct mill_group *group)
{
    while (group->queued && !group->write) {
        struct mill_admin_request *request = beat_unqueue(groups, group);
        struct mill_request_header header;
        struct mill_cursor at =
            mill_cursor_over(&request->frame_buf, request->frame, request->head.size_bytes);
        if (mill_request_header_decode(&at, &header) == 0) {
            mill_groups_request(groups, request, &at);
        }
    }
}

void mill_consumers_time(struct mill_groups *groups, struct mill_group *group)
{
    struct mill_consumer_plan plan = {.pool = {.limit_bytes = PLAN_BYTES_MAX}};
    if (group->write) {
        return; /* looked at again when it is there */
    }
    mill_consumer_time(&groups->consumer, group, &plan);
    int16_t error = plan.error;
    if (error == MILL_KERR_NONE && plan.records_count > 0) {
        error = plan_write(groups, group, NULL, &plan);
    } else if (error == MILL_KERR_NONE) {
        mill_consumer_timer(&groups->consumer, group);
    }
    bool large = error == MILL_KERR_UNKNOWN_SERVER_ERROR;
    if (large && mill_consumer_remove_fewer(group, &plan)) {
        groups->env.calls->timer(groups, group, groups->env.now_ns);
    } else if (error != MILL_KERR_NONE) {
        timer_later(groups, group);
    }
    mill_consumer_plan_free(&plan);
}

static void request_refuse(struct mill_groups *groups, struct mill_admin_request *request,
                           int16_t error)
{
    const struct mill_consumer_plan plan = {.error = error};
    switch (request->header.api_key) {
    case MILL_API_KEY_SYNC_GROUP:
        mill_members_synced(request, error, NULL, NULL);
        break;
    case MILL_API_KEY_HEARTBEAT:
        mill_heartbeat_answer(groups, request, error);
        break;
    default:
        plan_answer(groups, request, NULL, &plan);
        break;
    }
}

void mill_consumers_release(struct mill_groups *groups, struct mill_group *group, int16_t error)
{
    while (group->queued) {
        struct mill_admin_request *request = beat_unqueue(groups, group);
        request_refuse(groups, request, error);
    }
}

/* --- describe ----------------------------------------------------------------------------------
 */

struct described {
    const struct mill_groups *groups;
    const char *group_id;
    const struct mill_group *group; /* NULL with an error */
    int16_t error;
    const char *message;
    const struct mill_consumer *member; /* next one */
    struct parts_fill assigned;
    struct parts_fill target;
};

static void get_name(const void *context, int32_t index, void *ret_element)
{
    char *const *names = context;
    *(struct mill_wstr *)ret_element = mill_wstr_of(names[index]);
}

/* Topics that are gone have no name any more. */
static struct mill_wstr name_of(const struct mill_groups *groups, const struct mill_uuid *id)
{
    const struct mill_topic *topic = mill_topics_by_id(&groups->controller->topics, id);
    return topic ? mill_wstr_of_bytes(topic->record->name, (int32_t)topic->record->name_length)
                 : mill_wstr_of("");
}

static void get_described_assigned(const void *context, int32_t index, void *ret_element)
{
    struct parts_fill *fill = (void *)(uintptr_t)context;
    struct mill_consumer_group_describe_response_groups_members_assignment_topic_partitions
        *element = ret_element;
    fill->next = index == 0 ? 0 : fill->next;
    element->topic_id = fill->parts->items[fill->next].topic;
    element->topic_name = name_of(fill->groups, &element->topic_id);
    element->partitions = partitions_of(fill);
}

static void get_described_target(const void *context, int32_t index, void *ret_element)
{
    struct parts_fill *fill = (void *)(uintptr_t)context;
    struct mill_consumer_group_describe_response_groups_members_target_assignment_topic_partitions
        *element = ret_element;
    fill->next = index == 0 ? 0 : fill->next;
    element->topic_id = fill->parts->items[fill->next].topic;
    element->topic_name = name_of(fill->groups, &element->topic_id);
    element->partitions = partitions_of(fill);
}

static void get_described_member(const void *context, int32_t index, void *ret_element)
{
    struct described *described = (void *)(uintptr_t)context;
    struct mill_consumer_group_describe_response_groups_members *element = ret_element;
    const struct mill_consumer *member =
        index == 0 ? described->group->consumers->first : described->member;
    described->member = member->next;
    described->assigned =
        (struct parts_fill){.groups = described->groups, .parts = &member->assigned};
    described->target = (struct parts_fill){.groups = described->groups, .parts = &member->target};
    element->member_id = mill_wstr_of(member->id);
    element->instance_id = mill_wstr_of(member->instance_id);
    element->rack_id = mill_wstr_of(member->rack_id);
    element->member_epoch = member->epoch;
    element->client_id = mill_wstr_of(member->client_id);
    element->client_host = mill_wstr_of(member->client_host);
    element->subscribed_topic_names = (struct mill_warray){
        .count = (int32_t)member->names_count, .get = get_name, .context = member->names};
    element->subscribed_topic_regex = mill_wstr_of(member->regex);
    element->assignment.topic_partitions =
        (struct mill_warray){.count = topics_count(&member->assigned),
                             .get = get_described_assigned,
                             .context = &described->assigned};
    element->target_assignment.topic_partitions =
        (struct mill_warray){.count = topics_count(&member->target),
                             .get = get_described_target,
                             .context = &described->target};
    element->member_type = member->classic ? 0 : 1;
}

static const char *assignor_of(const struct mill_groups *groups, const struct mill_group *group)
{
    uint32_t votes[MILL_ASSIGNOR_COUNT] = {0};
    for (const struct mill_consumer *member = group->consumers->first; member;
         member = member->next) {
        mill_consumer_vote(member, votes);
    }
    return mill_assignor_name(mill_consumer_elect(&groups->consumer, votes));
}

static void get_described(const void *context, int32_t index, void *ret_element)
{
    struct described *described = &((struct described *)(uintptr_t)context)[index];
    struct mill_consumer_group_describe_response_groups *element = ret_element;
    const struct mill_group *group = described->group;
    element->error_code = described->error;
    element->error_message = mill_wstr_of(described->message);
    element->group_id = mill_wstr_of(described->group_id);
    if (!group) {
        return;
    }
    element->group_state = mill_wstr_of(mill_group_state_name(mill_consumer_group_state(group)));
    element->group_epoch = group->generation;
    element->assignment_epoch = group->consumers->assignment_epoch;
    element->assignor_name = mill_wstr_of(assignor_of(described->groups, group));
    element->members = (struct mill_warray){.count = (int32_t)group->consumers->count,
                                            .get = get_described_member,
                                            .context = described};
}

static int encode_describe(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_consumer_group_describe_response_encode(to, version, message);
}

static void describe_look(struct mill_groups *groups, struct mill_admin_request *request,
                          struct described *described)
{
    described->groups = groups;
    described->error = described->group_id[0] == '\0'
                           ? (int16_t)MILL_KERR_INVALID_GROUP_ID
                           : mill_shards_locate(&groups->shards, described->group_id);
    if (described->error != MILL_KERR_NONE) {
        return;
    }
    const struct mill_group *group = mill_groups_find(groups, described->group_id);
    if (group && group->consumers) {
        described->group = group;
        return;
    }
    described->error = MILL_KERR_GROUP_ID_NOT_FOUND;
    described->message = mill_pool_text(
        &request->pool, group ? "Group %s is not a consumer group." : "Group %s not found.",
        described->group_id);
}

void mill_consumer_group_describe(struct mill_groups *groups, struct mill_admin_request *request,
                                  struct mill_cursor *at)
{
    struct mill_consumer_group_describe_request in;
    struct mill_consumer_group_describe_response out;
    struct mill_wstr id;
    int32_t count = 0;
    int16_t version = request->header.api_version;
    if (mill_consumer_group_describe_request_decode(at, version, &in) < 0 ||
        in.group_ids.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    struct described *all =
        mill_pool_take(&request->pool, (uint64_t)MILL_MAX(in.group_ids.count, 0) * sizeof(all[0]));
    while (all && mill_warray_next_str(&in.group_ids, request->header.flexible, &id)) {
        all[count].group_id = mill_groups_text(request, &id);
        describe_look(groups, request, &all[count++]);
    }
    if (!all) {
        mill_admin_close(request);
        return;
    }
    mill_consumer_group_describe_response_defaults(&out);
    out.groups = (struct mill_warray){.count = count, .get = get_described, .context = all};
    mill_admin_answer(request, encode_describe, &out);
}
