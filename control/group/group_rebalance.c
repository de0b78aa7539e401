/* SPDX-License-Identifier: Apache-2.0 */
/* A rebalance of the classic protocol, step by step; see group_steps.h. */
#include "control/group/group_steps.h"

#include <stdlib.h>

#include "base/clock.h"
#include "control/group/member.h"
#include "protocol/errors.h"

static const uint64_t new_member_ns = 300 * MILL_NS_PER_S;

/* --- time --------------------------------------------------------------------------------------
 */

void mill_group_timer_look(struct mill_group_env *env, struct mill_group *group)
{
    uint64_t at = MILL_MIN(group->join_due_ns, group->sync_due_ns);
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        at = MILL_MIN(at, member->expires_ns);
    }
    for (const struct mill_group_pending *pending = group->pending; pending;
         pending = pending->next) {
        at = MILL_MIN(at, pending->expires_ns);
    }
    env->calls->timer(env->context, group, at);
}

uint64_t mill_group_ms_later(const struct mill_group_env *env, int64_t ms)
{
    return env->now_ns + (uint64_t)MILL_MAX(ms, (int64_t)0) * MILL_NS_PER_MS;
}

/* Something came from the member. The timer stays where it is when it is earlier: it looks again.
 */
void mill_group_timeout_renew(struct mill_group_env *env, struct mill_group_member *member)
{
    member->expires_ns = mill_group_ms_later(env, member->session_timeout_ms);
}

static int64_t rebalance_timeout_ms(const struct mill_group *group)
{
    int64_t most = 0;
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        most = MILL_MAX(most, (int64_t)member->rebalance_timeout_ms);
    }
    return most;
}

void mill_group_state_set(struct mill_group_env *env, struct mill_group *group,
                          enum mill_group_state state)
{
    group->state = state;
    group->state_ms = env->now_ms;
}

/* --- answers -----------------------------------------------------------------------------------
 */

void mill_group_join_refuse(struct mill_group_env *env, void *waiter, const char *member_id,
                            int16_t error)
{
    struct mill_group_join_answer answer = {.error = error, .member_id = member_id};
    env->calls->joined(waiter, &answer);
}

void mill_group_join_answer(struct mill_group_env *env, struct mill_group *group,
                            struct mill_group_member *member, void *waiter)
{
    struct mill_group_join_answer answer = {
        .member_id = member->id,
        .group = group,
        .members = member == group->leader,
    };
    env->calls->joined(waiter, &answer);
}

/* Ends a parked join. */
void mill_group_join_end(struct mill_group_env *env, struct mill_group *group,
                         struct mill_group_member *member, int16_t error)
{
    void *waiter = member->join;
    if (!waiter) {
        return;
    }
    member->join = NULL;
    group->joined_count--;
    if (error != MILL_KERR_NONE) {
        mill_group_join_refuse(env, waiter, member->id, error);
    } else {
        mill_group_join_answer(env, group, member, waiter);
    }
    mill_group_timeout_renew(env, member);
}

void mill_group_sync_end(struct mill_group_env *env, struct mill_group *group,
                         struct mill_group_member *member, int16_t error)
{
    void *waiter = member->sync;
    if (!waiter) {
        return;
    }
    member->sync = NULL;
    bool good = error == MILL_KERR_NONE;
    env->calls->synced(waiter, error, good ? group : NULL, good ? member : NULL);
    mill_group_timeout_renew(env, member);
}

void mill_group_join_park(struct mill_group_env *env, struct mill_group *group,
                          struct mill_group_member *member, void *waiter)
{
    /* A client that lost its connection asks again: the first question has nobody to hear. */
    mill_group_join_end(env, group, member, MILL_KERR_REBALANCE_IN_PROGRESS);
    member->join = waiter;
    group->joined_count++;
    member->expires_ns = member->is_new ? env->now_ns + new_member_ns : MILL_NEVER;
}

/* --- rebalance ---------------------------------------------------------------------------------
 */

static bool all_joined(const struct mill_group *group)
{
    return group->joined_count == group->members_count && group->pending_count == 0;
}

void mill_group_try_complete(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_PREPARING && !group->delaying && all_joined(group)) {
        mill_group_complete_join(env, group);
    }
}

void mill_group_syncs_reset(struct mill_group_env *env, struct mill_group *group, int16_t error)
{
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        mill_member_unassign(env, member);
        member->sync_missing = false;
        mill_group_sync_end(env, group, member, error);
    }
    group->sync_due_ns = MILL_NEVER;
}

/* Begins a rebalance: everybody has to join again. */
void mill_group_prepare(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_COMPLETING) {
        mill_group_syncs_reset(env, group, MILL_KERR_REBALANCE_IN_PROGRESS);
    }
    bool first = group->state == MILL_GROUP_EMPTY && env->initial_delay_ms > 0;
    int64_t timeout_ms = rebalance_timeout_ms(group);
    group->sync_due_ns = MILL_NEVER;
    group->delaying = first;
    group->member_added = false;
    if (first) {
        int64_t delay_ms = MILL_MIN(env->initial_delay_ms, MILL_MAX(timeout_ms, (int64_t)0));
        group->delay_left_ns = (uint64_t)(timeout_ms - delay_ms) * MILL_NS_PER_MS;
        group->join_due_ns = mill_group_ms_later(env, delay_ms);
    } else {
        group->join_due_ns = mill_group_ms_later(env, timeout_ms);
    }
    mill_group_state_set(env, group, MILL_GROUP_PREPARING);
}

void mill_group_maybe_prepare(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_STABLE || group->state == MILL_GROUP_COMPLETING ||
        group->state == MILL_GROUP_EMPTY) {
        mill_group_prepare(env, group);
    }
    mill_group_try_complete(env, group);
}

void mill_group_member_remove(struct mill_group_env *env, struct mill_group *group,
                              struct mill_group_member *member)
{
    mill_group_join_end(env, group, member, MILL_KERR_UNKNOWN_MEMBER_ID);
    mill_group_sync_end(env, group, member, MILL_KERR_UNKNOWN_MEMBER_ID);
    mill_member_unlink(group, member);
    mill_member_free(env, member);
}

/* A member is gone: what that means for the others. */
void mill_group_after_removal(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_STABLE || group->state == MILL_GROUP_COMPLETING) {
        mill_group_prepare(env, group);
    }
    mill_group_try_complete(env, group);
}

/* The leader is kept while it joined; else the first who did leads. ret: false nobody did. */
static bool leader_elect(struct mill_group *group)
{
    if (group->leader && group->leader->join) {
        return true;
    }
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        if (member->join) {
            group->leader = member;
            return true;
        }
    }
    return false;
}

static void drop_absent(struct mill_group_env *env, struct mill_group *group)
{
    struct mill_group_member *next = NULL;
    for (struct mill_group_member *member = group->members; member; member = next) {
        next = member->next;
#ifdef MILL_MUTANT_GROUP_KEEP_ABSENT
        continue;
#endif
        if (!member->join && !member->instance_id) {
            mill_group_member_remove(env, group, member);
        }
    }
}

static void become_empty(struct mill_group_env *env, struct mill_group *group)
{
    free(group->protocol);
    group->protocol = NULL;
    group->leader = NULL;
    mill_group_state_set(env, group, MILL_GROUP_EMPTY);
    (void)env->calls->store(env->context, group, MILL_GROUP_STORE_EMPTY, NULL, false);
}

void mill_group_complete_join(struct mill_group_env *env, struct mill_group *group)
{
    group->delaying = false;
    drop_absent(env, group);
    if (!leader_elect(group) && group->members_count > 0) {
        /* Only static members are left and none came back: their time-outs decide. */
        group->join_due_ns = mill_group_ms_later(env, rebalance_timeout_ms(group));
        return;
    }
    group->join_due_ns = MILL_NEVER;
    group->generation = group->generation == INT32_MAX ? 1 : group->generation + 1;
    env->rebalances++;
    if (group->members_count == 0) {
        become_empty(env, group);
        return;
    }
    const char *elected = mill_group_elect_protocol(group);
    if (!elected || mill_group_set_text(&group->protocol, elected) < 0) {
        mill_group_release(env, group, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
        group->join_due_ns = mill_group_ms_later(env, rebalance_timeout_ms(group));
        return;
    }
    mill_group_state_set(env, group, MILL_GROUP_COMPLETING);
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        mill_member_unassign(env, member);
        member->sync_missing = true;
        member->is_new = false;
        mill_group_join_end(env, group, member, MILL_KERR_NONE);
    }
    group->sync_due_ns = mill_group_ms_later(env, rebalance_timeout_ms(group));
}
