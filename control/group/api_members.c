/* SPDX-License-Identifier: Apache-2.0 */
/* JoinGroup, SyncGroup, Heartbeat, LeaveGroup: frames in, the state machine, frames out. Joins and
 * syncs may wait for other members; their requests are taken over until the machine answers. */
#include "control/group/groups.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

enum {
    ASSIGNMENTS_MAX = 100000, /* of one SyncGroup */
    LEAVES_MAX = 1000,        /* of one LeaveGroup: each looks through the members */
    SYNC_NAMES_VERSION = 5,   /* SyncGroup says the protocol's type and name */
};

const char *mill_groups_text(struct mill_admin_request *request, const struct mill_wstr *text)
{
    const char *copy = mill_admin_text(request, text, NULL);
    return copy ? copy : "";
}

const char *mill_groups_host(struct mill_admin_request *request)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *address = request->head.peer_address;
    bool v4 = memcmp(address, mapped, sizeof(mapped)) == 0;
    char text[INET6_ADDRSTRLEN];
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? address + sizeof(mapped) : address, text,
                   sizeof(text))) {
        return "/";
    }
    const char *host = mill_pool_text(&request->pool, "/%s", text);
    return host ? host : "/";
}

/* Bytes of a blob in the request's frame, or in its pool when they do not lie in one piece. */
static struct mill_group_blob blob_of(struct mill_admin_request *request,
                                      const struct mill_wstr *from)
{
    struct mill_group_blob blob = {0};
    if (from->length > 0) {
        struct mill_cursor at = from->at;
        blob.bytes = mill_pool_take(&request->pool, (uint64_t)from->length);
        if (blob.bytes && mill_cursor_read(&at, blob.bytes, (uint32_t)from->length) == 0) {
            blob.size_bytes = (uint32_t)from->length;
        }
    }
    return blob;
}

/* --- join --------------------------------------------------------------------------------------
 */

struct join_fill {
    const struct mill_group *group;
    const struct mill_group_member *member; /* next to be written */
};

static void get_member(const void *context, int32_t index, void *ret_element)
{
    struct join_fill *fill = (void *)(uintptr_t)context;
    struct mill_join_group_response_members *element = ret_element;
    /* From the first one again, when the answer is written anew into more room. */
    const struct mill_group_member *member = index == 0 ? fill->group->members : fill->member;
    const struct mill_group_blob *metadata = mill_group_metadata(fill->group, member);
    element->member_id = mill_wstr_of(member->id);
    element->group_instance_id = mill_wstr_of(member->instance_id);
    element->metadata = mill_wstr_of_bytes(metadata->bytes, (int32_t)metadata->size_bytes);
    fill->member = member->next;
}

static int encode_join(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_join_group_response_encode(to, version, message);
}

void mill_members_joined(void *waiter, const struct mill_group_join_answer *answer)
{
    struct mill_admin_request *request = waiter;
    struct mill_join_group_response out;
    const struct mill_group *group = answer->group;
    struct join_fill fill = {
        .group = group,
    };
    const char *leader = answer->leader           ? answer->leader
                         : group && group->leader ? group->leader->id
                                                  : "";
    mill_join_group_response_defaults(&out);
    out.error_code = answer->error;
    out.generation_id = group ? group->generation : -1;
    out.protocol_type = mill_wstr_of(group ? group->protocol_type : NULL);
    /* To Kafka a protocol without a name is none. */
    bool named = group && group->protocol && group->protocol[0];
    const char *none = request->header.api_version < 7 ? "" : NULL;
    out.protocol_name = mill_wstr_of(named ? group->protocol : none);
    out.leader = mill_wstr_of(leader);
    out.skip_assignment = answer->skip_assignment;
    out.member_id = mill_wstr_of(answer->member_id ? answer->member_id : "");
    if (answer->members) {
        out.members = (struct mill_warray){
            .count = (int32_t)group->members_count, .get = get_member, .context = &fill};
    }
    mill_admin_answer(request, encode_join, &out);
    mill_groups_done(request->groups, request);
}

/* ret: false malformed, or over a limit. */
static bool protocols_read(struct mill_admin_request *request,
                           const struct mill_join_group_request *in, struct mill_group_join *ret)
{
    struct mill_warray array = in->protocols;
    struct mill_join_group_request_protocols item;
    uint32_t count = 0;
    if (array.count > MILL_GROUP_PROTOCOLS_MAX) {
        return false;
    }
    struct mill_group_protocol *protocols =
        mill_pool_take(&request->pool, (uint64_t)MILL_MAX(array.count, 0) * sizeof(*protocols));
    if (!protocols) {
        return false;
    }
    while (mill_join_group_request_protocols_next(&array, request->header.api_version, &item)) {
        protocols[count].name = mill_admin_text(request, &item.name, NULL);
        protocols[count].metadata = blob_of(request, &item.metadata);
        if (!protocols[count].name ||
            protocols[count].metadata.size_bytes != (uint32_t)MILL_MAX(item.metadata.length, 0)) {
            return false;
        }
        count++;
    }
    ret->protocols = protocols;
    ret->protocols_count = count;
    return true;
}

static void join_refuse(struct mill_admin_request *request, const char *member_id, int16_t error)
{
    struct mill_group_join_answer answer = {.error = error, .member_id = member_id};
    mill_members_joined(request, &answer);
}

/* Whether the group may be joined at all, before its own rules. */
static int16_t join_check(struct mill_groups *groups, const char *group_id)
{
    if (group_id[0] == '\0') {
        return MILL_KERR_INVALID_GROUP_ID;
    }
    if (groups->parked_count >= MILL_GROUP_PARKED_MAX) {
        groups->env.full++;
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    return mill_shards_locate(&groups->shards, group_id);
}

/* The request waits, unless the machine answered it at once. */
static void park(struct mill_groups *groups, struct mill_admin_request *request)
{
    if (!request->ready) {
        groups->parked_count += request->taken ? 0 : 1;
        mill_groups_take(request);
    }
}

/* Malformed, or no memory for what it says; it may have waited in a group's queue. */
static void drop(struct mill_groups *groups, struct mill_admin_request *request)
{
    mill_admin_close(request);
    mill_groups_done(groups, request);
}

/* The group is about to be another one: the request waits for that. ret: false go on, or *ret_error
 * is set. */
static bool is_held(struct mill_groups *groups, struct mill_group *group,
                    struct mill_admin_request *request, int16_t *ret_error)
{
    if (!group || !mill_consumers_hold(group)) {
        return false;
    }
    if (mill_consumers_queue(groups, group, request)) {
        return true;
    }
    *ret_error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    return false;
}

/* Members of the consumer protocol are in it. */
static bool is_mixed(const struct mill_group *group)
{
    return group && group->consumers && group->consumers->count > 0;
}

void mill_join_group(struct mill_groups *groups, struct mill_admin_request *request,
                     struct mill_cursor *at)
{
    struct mill_join_group_request in;
    struct mill_group_join join = {.waiter = request};
    int16_t version = request->header.api_version;
    if (mill_join_group_request_decode(at, version, &in) < 0 ||
        !protocols_read(request, &in, &join)) {
        drop(groups, request);
        return;
    }
    groups->joins++;
    const char *group_id = mill_groups_text(request, &in.group_id);
    join.member_id = mill_groups_text(request, &in.member_id);
    join.instance_id = mill_admin_text(request, &in.group_instance_id, NULL);
    join.client_id = mill_groups_text(request, &request->header.client_id);
    join.client_host = mill_groups_host(request);
    join.session_timeout_ms = in.session_timeout_ms;
    join.rebalance_timeout_ms = version >= 1 ? in.rebalance_timeout_ms : in.session_timeout_ms;
    join.protocol_type = mill_groups_text(request, &in.protocol_type);
    join.id_required = version >= 4 && !join.instance_id;
    join.skip_supported = version >= 9;
    if (request->memory_short) {
        drop(groups, request); /* what is missing must not be taken for empty */
        return;
    }
    int16_t error = join_check(groups, group_id);
    struct mill_group *group = NULL;
    if (error == MILL_KERR_NONE) {
        group = mill_groups_find(groups, group_id);
        bool refused = join.session_timeout_ms < groups->env.session_timeout_min_ms ||
                       join.session_timeout_ms > groups->env.session_timeout_max_ms;
        if (!group && refused) {
            error = MILL_KERR_INVALID_SESSION_TIMEOUT;
        } else if (!group && join.member_id[0] != '\0') {
            error = MILL_KERR_UNKNOWN_MEMBER_ID;
        } else if (!group) {
            group = mill_groups_make(groups, group_id);
            error = group ? MILL_KERR_NONE : MILL_KERR_COORDINATOR_NOT_AVAILABLE;
        }
    }
    if (error == MILL_KERR_NONE && is_held(groups, group, request, &error)) {
        return;
    }
    if (error == MILL_KERR_NONE && is_mixed(group)) {
        mill_classic_join(groups, group, request, &join);
        return;
    }
    error = error ? error : mill_groups_make_classic(groups, group);
    if (error != MILL_KERR_NONE) {
        join_refuse(request, join.member_id, error);
        return;
    }
    mill_group_join(&groups->env, group, &join);
    park(groups, request);
}

/* --- sync --------------------------------------------------------------------------------------
 */

static int encode_sync(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_sync_group_response_encode(to, version, message);
}

void mill_members_synced(void *waiter, int16_t error, const struct mill_group *group,
                         const struct mill_group_member *member)
{
    struct mill_admin_request *request = waiter;
    struct mill_sync_group_response out;
    mill_sync_group_response_defaults(&out);
    out.error_code = error;
    if (group) {
        out.protocol_type = mill_wstr_of(group->protocol_type);
        out.protocol_name = mill_wstr_of(group->protocol);
        out.assignment =
            mill_wstr_of_bytes(member->assignment.bytes, (int32_t)member->assignment.size_bytes);
    }
    mill_admin_answer(request, encode_sync, &out);
    mill_groups_done(request->groups, request);
}

/* ret: false malformed, or over a limit. */
static bool assignments_read(struct mill_admin_request *request,
                             const struct mill_sync_group_request *in, struct mill_group_sync *ret)
{
    struct mill_warray array = in->assignments;
    struct mill_sync_group_request_assignments item;
    uint32_t count = 0;
    if (array.count > ASSIGNMENTS_MAX) {
        return false;
    }
    struct mill_group_assignment *assignments =
        mill_pool_take(&request->pool, (uint64_t)MILL_MAX(array.count, 0) * sizeof(*assignments));
    if (!assignments) {
        return false;
    }
    while (mill_sync_group_request_assignments_next(&array, request->header.api_version, &item)) {
        assignments[count].member_id = mill_admin_text(request, &item.member_id, NULL);
        assignments[count].bytes = blob_of(request, &item.assignment);
        if (!assignments[count].member_id ||
            assignments[count].bytes.size_bytes != (uint32_t)MILL_MAX(item.assignment.length, 0)) {
            return false;
        }
        count++;
    }
    ret->assignments = assignments;
    ret->assignments_count = count;
    return true;
}

void mill_sync_group(struct mill_groups *groups, struct mill_admin_request *request,
                     struct mill_cursor *at)
{
    struct mill_sync_group_request in;
    struct mill_group_sync sync = {.waiter = request};
    if (mill_sync_group_request_decode(at, request->header.api_version, &in) < 0 ||
        !assignments_read(request, &in, &sync)) {
        drop(groups, request);
        return;
    }
    const char *group_id = mill_groups_text(request, &in.group_id);
    sync.member_id = mill_groups_text(request, &in.member_id);
    sync.instance_id = mill_admin_text(request, &in.group_instance_id, NULL);
    sync.generation = in.generation_id;
    sync.protocol_type = mill_admin_text(request, &in.protocol_type, NULL);
    sync.protocol = mill_admin_text(request, &in.protocol_name, NULL);
    if (request->memory_short) {
        drop(groups, request);
        return;
    }
    bool half_said =
        request->header.api_version >= SYNC_NAMES_VERSION && !(sync.protocol_type && sync.protocol);
    int16_t error =
        half_said ? (int16_t)MILL_KERR_INCONSISTENT_GROUP_PROTOCOL : join_check(groups, group_id);
    struct mill_group *group = error == MILL_KERR_NONE ? mill_groups_find(groups, group_id) : NULL;
    if (error == MILL_KERR_NONE && !group) {
        error = MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    if (is_held(groups, group, request, &error)) {
        return;
    }
    if (error != MILL_KERR_NONE) {
        mill_members_synced(request, error, NULL, NULL);
        return;
    }
    if (is_mixed(group)) {
        mill_classic_sync(groups, group, request, &sync);
        return;
    }
    mill_group_sync(&groups->env, group, &sync);
    park(groups, request);
}

/* --- heartbeat ---------------------------------------------------------------------------------
 */

static int encode_heartbeat(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_heartbeat_response_encode(to, version, message);
}

void mill_heartbeat_answer(struct mill_groups *groups, struct mill_admin_request *request,
                           int16_t error)
{
    struct mill_heartbeat_response out;
    mill_heartbeat_response_defaults(&out);
    out.error_code = error;
    mill_admin_answer(request, encode_heartbeat, &out);
    mill_groups_done(groups, request);
}

void mill_heartbeat(struct mill_groups *groups, struct mill_admin_request *request,
                    struct mill_cursor *at)
{
    struct mill_heartbeat_request in;
    if (mill_heartbeat_request_decode(at, request->header.api_version, &in) < 0) {
        drop(groups, request);
        return;
    }
    const char *group_id = mill_groups_text(request, &in.group_id);
    const char *member_id = mill_groups_text(request, &in.member_id);
    const char *instance_id = mill_admin_text(request, &in.group_instance_id, NULL);
    if (request->memory_short) {
        drop(groups, request);
        return;
    }
    int16_t error = group_id[0] == '\0' ? (int16_t)MILL_KERR_INVALID_GROUP_ID
                                        : mill_shards_locate(&groups->shards, group_id);
    struct mill_group *group = error == MILL_KERR_NONE ? mill_groups_find(groups, group_id) : NULL;
    if (is_held(groups, group, request, &error)) {
        return;
    }
    if (error == MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS) {
        error = MILL_KERR_NONE; /* as in Kafka: the group may be there, go on */
    } else if (error == MILL_KERR_NONE) {
        error = !group            ? (int16_t)MILL_KERR_UNKNOWN_MEMBER_ID
                : is_mixed(group) ? mill_consumer_heartbeat(&groups->consumer, group, member_id,
                                                            instance_id, in.generation_id)
                                  : mill_group_heartbeat(&groups->env, group, member_id,
                                                         instance_id, in.generation_id);
    }
    mill_heartbeat_answer(groups, request, error);
}

/* --- leave -------------------------------------------------------------------------------------
 */

static void get_left(const void *context, int32_t index, void *ret_element)
{
    const struct mill_consumer_leaving *member =
        &((const struct mill_consumer_leaving *)context)[index];
    struct mill_leave_group_response_members *element = ret_element;
    element->member_id = mill_wstr_of(member->member_id);
    element->group_instance_id = mill_wstr_of(member->instance_id);
    element->error_code = member->error;
}

static int encode_leave(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_leave_group_response_encode(to, version, message);
}

/* Members of the request, one before version 3. ret: NULL malformed, or over a limit. */
static struct mill_consumer_leaving *leaving_read(struct mill_admin_request *request,
                                                  const struct mill_leave_group_request *in,
                                                  int32_t *ret_count)
{
    struct mill_warray array = in->members;
    struct mill_leave_group_request_members item;
    bool many = request->header.api_version >= 3;
    int32_t count = many ? MILL_MAX(array.count, 0) : 1;
    if (count > LEAVES_MAX) {
        return NULL;
    }
    struct mill_consumer_leaving *members =
        mill_pool_take(&request->pool, (uint64_t)count * sizeof(*members));
    *ret_count = 0;
    if (members && !many) {
        members[(*ret_count)++].member_id = mill_groups_text(request, &in->member_id);
    }
    while (members && many &&
           mill_leave_group_request_members_next(&array, request->header.api_version, &item)) {
        members[*ret_count].member_id = mill_groups_text(request, &item.member_id);
        members[*ret_count].instance_id = mill_admin_text(request, &item.group_instance_id, NULL);
        (*ret_count)++;
    }
    return members;
}

void mill_leave_answer(struct mill_groups *groups, struct mill_admin_request *request,
                       int16_t error, const struct mill_consumer_leaving *members, int32_t count)
{
    struct mill_leave_group_response out;
    mill_leave_group_response_defaults(&out);
    out.error_code = error;
    if (request->header.api_version < 3 && error == MILL_KERR_NONE) {
        out.error_code = members[0].error;
    }
    if (out.error_code == MILL_KERR_NONE) {
        out.members = (struct mill_warray){.count = count, .get = get_left, .context = members};
    }
    mill_admin_answer(request, encode_leave, &out);
    mill_groups_done(groups, request);
}

void mill_leave_group(struct mill_groups *groups, struct mill_admin_request *request,
                      struct mill_cursor *at)
{
    struct mill_leave_group_request in;
    struct mill_consumer_leaving *members = NULL;
    int32_t count = 0;
    if (mill_leave_group_request_decode(at, request->header.api_version, &in) == 0) {
        members = leaving_read(request, &in, &count);
    }
    const char *group_id = members ? mill_groups_text(request, &in.group_id) : "";
    if (!members || request->memory_short) {
        drop(groups, request);
        return;
    }
    int16_t error = group_id[0] == '\0' ? (int16_t)MILL_KERR_INVALID_GROUP_ID
                                        : mill_shards_locate(&groups->shards, group_id);
    struct mill_group *group = error == MILL_KERR_NONE ? mill_groups_find(groups, group_id) : NULL;
    if (is_held(groups, group, request, &error)) {
        return;
    }
    if (error == MILL_KERR_NONE && is_mixed(group)) {
        mill_classic_leave(groups, group, request, members, (uint32_t)count);
        return;
    }
    for (int32_t i = 0; error == MILL_KERR_NONE && i < count; i++) {
        members[i].error = group ? mill_group_leave(&groups->env, group, members[i].member_id,
                                                    members[i].instance_id)
                                 : (int16_t)MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    mill_leave_answer(groups, request, error, members, count);
}
