/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the classic protocol that join, anew or again; see group.h. */
#include "control/group/group_steps.h"

#include <stdlib.h>
#include <string.h>

#include "control/group/member.h"
#include "protocol/errors.h"

enum {
    PENDING_MAX = 10000, /* ids of one group that nobody joined with yet: each call looks at all */
};

/* --- ids that nobody joined with yet -----------------------------------------------------------
 */

static uint64_t pending_bytes(const char *member_id)
{
    return sizeof(struct mill_group_pending) + strlen(member_id) + 1;
}

void mill_group_pending_drop(struct mill_group_env *env, struct mill_group *group,
                             struct mill_group_pending **at)
{
    struct mill_group_pending *pending = *at;
    *at = pending->next;
    group->pending_count--;
    env->bytes -= pending_bytes(pending->id);
    free(pending);
}

struct mill_group_pending **mill_group_pending_find(struct mill_group *group, const char *member_id)
{
    struct mill_group_pending **at = &group->pending;
    while (*at && strcmp((*at)->id, member_id) != 0) {
        at = &(*at)->next;
    }
    return at;
}

/* --- join --------------------------------------------------------------------------------------
 */

/* Whether the group takes one more; a member of it always fits. */
static bool has_room(const struct mill_group_env *env, const struct mill_group *group,
                     const struct mill_group_member *member)
{
    if (group->state == MILL_GROUP_PREPARING) {
        return (member && member->join) || group->joined_count < env->size_max;
    }
    return member || group->members_count < env->size_max;
}

static void member_join_new(struct mill_group_env *env, struct mill_group *group,
                            const char *member_id, const struct mill_group_join *join)
{
    if ((group->state == MILL_GROUP_EMPTY || group->members_count == 0) &&
        mill_group_set_text(&group->protocol_type, join->protocol_type) < 0) {
        mill_group_join_refuse(env, join->waiter, member_id, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    struct mill_group_member *member = mill_member_add(env, group, member_id, join, false);
    if (!member) {
        mill_group_join_refuse(env, join->waiter, member_id, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    member->is_new = true;
    mill_group_join_park(env, group, member, join->waiter);
    if (group->state == MILL_GROUP_PREPARING && group->delaying) {
        group->member_added = true;
    }
    mill_group_maybe_prepare(env, group);
}

static void member_rejoin(struct mill_group_env *env, struct mill_group *group,
                          struct mill_group_member *member, const struct mill_group_join *join)
{
    if (!mill_member_update(env, member, join)) {
        mill_group_join_refuse(env, join->waiter, member->id, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    mill_group_join_park(env, group, member, join->waiter);
    mill_group_maybe_prepare(env, group);
}

/* An id that a dynamic member is told to join with. */
static void pending_add(struct mill_group_env *env, struct mill_group *group,
                        const struct mill_group_join *join, const char *member_id)
{
    uint64_t size = pending_bytes(member_id);
    struct mill_group_pending *pending = NULL;
    if ((int64_t)group->pending_count < env->size_max && group->pending_count < PENDING_MAX &&
        env->bytes + size <= env->bytes_max) {
        pending = calloc(1, size);
    }
    if (!pending) {
        env->full++;
        mill_group_join_refuse(env, join->waiter, "", MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    env->bytes += size;
    memcpy(pending->id, member_id, strlen(member_id) + 1);
    pending->expires_ns = mill_group_ms_later(env, join->session_timeout_ms);
    pending->next = group->pending;
    group->pending = pending;
    group->pending_count++;
    mill_group_join_refuse(env, join->waiter, member_id, MILL_KERR_MEMBER_ID_REQUIRED);
}

/* A static member that came back under its name: it gets a new id at once, and the old one is
 * fenced. Without a change of the protocol a stable group stays stable. */
static void static_replace(struct mill_group_env *env, struct mill_group *group,
                           struct mill_group_member *member, char *fresh,
                           const struct mill_group_join *join)
{
    mill_group_join_end(env, group, member, MILL_KERR_FENCED_INSTANCE_ID);
    mill_group_sync_end(env, group, member, MILL_KERR_FENCED_INSTANCE_ID);
    if (!mill_member_update(env, member, join)) {
        mill_group_join_refuse(env, join->waiter, "", MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        free(fresh);
        return;
    }
    env->bytes = env->bytes - strlen(member->id) + strlen(fresh);
    free(member->id);
    member->id = fresh;
    mill_group_timeout_renew(env, member);
    if (group->state != MILL_GROUP_STABLE) {
        mill_group_join_park(env, group, member, join->waiter);
        mill_group_maybe_prepare(env, group);
        return;
    }
    const char *elected = mill_group_elect_protocol(group);
    if (!elected || !group->protocol || strcmp(elected, group->protocol) != 0) {
        mill_group_join_park(env, group, member, join->waiter);
        mill_group_maybe_prepare(env, group);
        return;
    }
    member->join =
        join->waiter; /* until the record is in the log; it does not take part in a join */
    group->joined_count++;
    int16_t error = env->calls->store(env->context, group, MILL_GROUP_STORE_STATIC, member,
                                      join->skip_supported);
    if (error != MILL_KERR_NONE) {
        mill_group_join_end(env, group, member, error);
    }
}

void mill_group_replaced(struct mill_group_env *env, struct mill_group *group,
                         const char *member_id, int32_t generation, bool skip, int16_t error)
{
    struct mill_group_member *member = mill_group_find(group, member_id);
    if (!member || !member->join || group->state != MILL_GROUP_STABLE ||
        group->generation != generation) {
        return; /* a rebalance answers it */
    }
    if (error != MILL_KERR_NONE) {
        mill_group_join_end(env, group, member, error);
        return;
    }
    void *waiter = member->join;
    bool leads = member == group->leader;
    struct mill_group_join_answer answer = {
        .member_id = member->id,
        .group = group,
        .members = leads && skip,
        .skip_assignment = leads && skip,
        /* Without the flag it would assign anew, although nothing changed: it is told that another
         * one leads. */
        .leader = leads && !skip ? "" : NULL,
    };
    member->join = NULL;
    group->joined_count--;
    env->calls->joined(waiter, &answer);
    mill_group_timeout_renew(env, member);
    mill_group_timer_look(env, group);
}

static void join_unknown(struct mill_group_env *env, struct mill_group *group,
                         const struct mill_group_join *join)
{
    struct mill_group_member *known = mill_group_find_static(group, join->instance_id);
    if (!has_room(env, group, known)) {
        env->full++;
        mill_group_join_refuse(env, join->waiter, "", MILL_KERR_GROUP_MAX_SIZE_REACHED);
        return;
    }
    char *fresh = mill_member_id_make(env, join->instance_id ? join->instance_id : join->client_id);
    if (!fresh) {
        mill_group_join_refuse(env, join->waiter, "", MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    if (known) {
        static_replace(env, group, known, fresh, join);
        return;
    }
    if (!join->instance_id && join->id_required) {
        pending_add(env, group, join, fresh);
    } else {
        member_join_new(env, group, fresh, join);
    }
    free(fresh);
}

/* A member that has an id. */
static void join_known(struct mill_group_env *env, struct mill_group *group,
                       const struct mill_group_join *join)
{
    struct mill_group_pending **pending = mill_group_pending_find(group, join->member_id);
    struct mill_group_member *member = mill_group_find(group, join->member_id);
    const struct mill_group_member *owner = mill_group_find_static(group, join->instance_id);
    if (*pending && !join->instance_id) {
        if (!has_room(env, group, NULL)) {
            env->full++;
            mill_group_join_refuse(env, join->waiter, "", MILL_KERR_GROUP_MAX_SIZE_REACHED);
            return;
        }
        mill_group_pending_drop(env, group, pending);
        member_join_new(env, group, join->member_id, join);
        return;
    }
    if (owner && owner != member) {
        mill_group_join_refuse(env, join->waiter, join->member_id, MILL_KERR_FENCED_INSTANCE_ID);
        return;
    }
    if (!member || (join->instance_id && !owner) || group->state == MILL_GROUP_EMPTY) {
        mill_group_join_refuse(env, join->waiter, join->member_id, MILL_KERR_UNKNOWN_MEMBER_ID);
        return;
    }
    if (!has_room(env, group, member)) {
        env->full++;
        mill_group_join_refuse(env, join->waiter, join->member_id,
                               MILL_KERR_GROUP_MAX_SIZE_REACHED);
        mill_group_member_remove(env, group, member);
        mill_group_after_removal(env, group);
        return;
    }
    bool same = mill_member_same_protocols(member, join);
    bool settled = (group->state == MILL_GROUP_COMPLETING && same) ||
                   (group->state == MILL_GROUP_STABLE && same && member != group->leader);
    if (settled) {
        mill_group_timeout_renew(env, member);
        mill_group_join_answer(env, group, member, join->waiter);
        return;
    }
    member_rejoin(env, group, member, join);
}

void mill_group_join(struct mill_group_env *env, struct mill_group *group,
                     const struct mill_group_join *join)
{
    int16_t error = MILL_KERR_NONE;
    if (join->session_timeout_ms < env->session_timeout_min_ms ||
        join->session_timeout_ms > env->session_timeout_max_ms) {
        error = MILL_KERR_INVALID_SESSION_TIMEOUT;
    } else if (group->state == MILL_GROUP_DEAD) {
        error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    } else if (!mill_group_protocols_fit(group, join)) {
        error = MILL_KERR_INCONSISTENT_GROUP_PROTOCOL;
    }
    if (error != MILL_KERR_NONE) {
        mill_group_join_refuse(env, join->waiter, join->member_id, error);
    } else if (join->member_id[0] == '\0') {
        join_unknown(env, group, join);
    } else {
        join_known(env, group, join);
    }
    mill_group_timer_look(env, group);
}
