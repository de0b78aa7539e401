/* SPDX-License-Identifier: Apache-2.0 */
/* The classic group protocol; see group.h. Rules: KIP-62 (two timeouts), KIP-134 (initial delay),
 * KIP-345 (static members), KIP-394 (member id required), KIP-559 (protocol names), KIP-814
 * (skipped assignment). */
#include "control/group/group.h"
#include "control/group/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/group/consumer.h"
#include "control/group/group_steps.h"
#include "control/group/member.h"
#include "protocol/errors.h"

/* --- memory ------------------------------------------------------------------------------------
 */

struct mill_group *mill_group_new(const char *id)
{
    size_t length = strlen(id);
    struct mill_group *group = calloc(1, sizeof(*group) + length + 1);
    if (group) {
        memcpy(group->id, id, length);
        group->members_last = &group->members;
        group->queued_last = &group->queued;
        group->join_due_ns = MILL_NEVER;
        group->sync_due_ns = MILL_NEVER;
        group->stored_generation = -1;
    }
    return group;
}

void mill_group_free(struct mill_group_env *env, struct mill_group *group)
{
    mill_group_clear_members(env, group);
    mill_consumer_drop(env, group);
    while (group->pending) {
        mill_group_pending_drop(env, group, &group->pending);
    }
    free(group->protocol_type);
    free(group->protocol);
    free(group);
}

/* --- looking -----------------------------------------------------------------------------------
 */

const char *mill_group_state_name(enum mill_group_state state)
{
    static const char *const names[MILL_GROUP_STATE_COUNT] = {
        "Empty", "PreparingRebalance", "CompletingRebalance", "Stable",
        "Dead",  "Assigning",          "Reconciling"};
    return names[state];
}

/* --- sync --------------------------------------------------------------------------------------
 */

/* Who speaks: right id, not fenced, this generation. */
static int16_t check_member(const struct mill_group *group, const char *member_id,
                            const char *instance_id, int32_t generation,
                            struct mill_group_member **ret_member)
{
    struct mill_group_member *member = mill_group_find(group, member_id);
    const struct mill_group_member *owner = mill_group_find_static(group, instance_id);
    *ret_member = member;
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
#ifdef MILL_MUTANT_GROUP_NO_FENCE
    owner = member;
#endif
    if (owner && owner != member) {
        return MILL_KERR_FENCED_INSTANCE_ID;
    }
    if (!member || (instance_id && !owner)) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    return generation != group->generation ? MILL_KERR_ILLEGAL_GENERATION : MILL_KERR_NONE;
}

void mill_group_synced(struct mill_group_env *env, struct mill_group *group, int32_t generation,
                       int16_t error)
{
    if (group->state != MILL_GROUP_COMPLETING || group->generation != generation) {
        return; /* a new rebalance has answered everybody */
    }
    if (error != MILL_KERR_NONE) {
        mill_group_syncs_reset(env, group, error);
        mill_group_prepare(env, group);
        mill_group_timer_look(env, group);
        return;
    }
    mill_group_state_set(env, group, MILL_GROUP_STABLE);
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        mill_group_sync_end(env, group, member, MILL_KERR_NONE);
    }
    mill_group_timer_look(env, group);
}

static void sync_completing(struct mill_group_env *env, struct mill_group *group,
                            struct mill_group_member *member, const struct mill_group_sync *sync)
{
    mill_group_sync_end(env, group, member,
                        MILL_KERR_REBALANCE_IN_PROGRESS); /* asked before, connection lost */
    member->sync = sync->waiter;
    member->expires_ns = MILL_NEVER;
    if (member != group->leader || group->stored_generation == group->generation) {
        return; /* the leader's assignments are to come, or on their way to the log */
    }
    int16_t error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    if (mill_group_assign(env, group, sync)) {
        group->stored_generation = group->generation;
        error = env->calls->store(env->context, group, MILL_GROUP_STORE_SYNC, member, false);
#ifdef MILL_MUTANT_GROUP_SYNC_EARLY
        mill_group_synced(env, group, group->generation, error);
#endif
    }
    if (error != MILL_KERR_NONE) {
        mill_group_synced(env, group, group->generation, error);
    }
}

void mill_group_sync(struct mill_group_env *env, struct mill_group *group,
                     const struct mill_group_sync *sync)
{
    struct mill_group_member *member = NULL;
    int16_t error =
        check_member(group, sync->member_id, sync->instance_id, sync->generation, &member);
    bool other_type = sync->protocol_type && group->protocol_type &&
                      strcmp(sync->protocol_type, group->protocol_type) != 0;
    bool other_name =
        sync->protocol && group->protocol && strcmp(sync->protocol, group->protocol) != 0;
    if (error == MILL_KERR_NONE && (other_type || other_name)) {
        error = MILL_KERR_INCONSISTENT_GROUP_PROTOCOL;
    }
    if (error == MILL_KERR_NONE && group->state == MILL_GROUP_PREPARING) {
        error = MILL_KERR_REBALANCE_IN_PROGRESS;
    }
    if (error == MILL_KERR_NONE && group->state == MILL_GROUP_EMPTY) {
        error = MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    if (error != MILL_KERR_NONE) {
        env->calls->synced(sync->waiter, error, NULL, NULL);
        return;
    }
    member->sync_missing = false;
    mill_group_timeout_renew(env, member);
    if (group->state == MILL_GROUP_STABLE) {
        env->calls->synced(sync->waiter, MILL_KERR_NONE, group, member);
    } else {
        sync_completing(env, group, member, sync);
    }
    mill_group_timer_look(env, group);
}

/* --- heartbeat, leave, commit ------------------------------------------------------------------
 */

int16_t mill_group_heartbeat(struct mill_group_env *env, struct mill_group *group,
                             const char *member_id, const char *instance_id, int32_t generation)
{
    struct mill_group_member *member = NULL;
    int16_t error = check_member(group, member_id, instance_id, generation, &member);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    if (group->state == MILL_GROUP_EMPTY) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    if (!member->join && !member->sync) {
        mill_group_timeout_renew(env, member);
    }
    return group->state == MILL_GROUP_PREPARING ? MILL_KERR_REBALANCE_IN_PROGRESS : MILL_KERR_NONE;
}

int16_t mill_group_leave(struct mill_group_env *env, struct mill_group *group,
                         const char *member_id, const char *instance_id)
{
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    struct mill_group_pending **pending = mill_group_pending_find(group, member_id);
    if (*pending && !instance_id) {
        mill_group_pending_drop(env, group, pending);
        mill_group_try_complete(env, group);
        mill_group_timer_look(env, group);
        return MILL_KERR_NONE;
    }
    struct mill_group_member *member = instance_id ? mill_group_find_static(group, instance_id)
                                                   : mill_group_find(group, member_id);
    if (!member) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    /* An administrator names a static member without its id. */
    if (instance_id && member_id[0] != '\0' && strcmp(member->id, member_id) != 0) {
        return MILL_KERR_FENCED_INSTANCE_ID;
    }
    mill_group_member_remove(env, group, member);
    mill_group_after_removal(env, group);
    mill_group_timer_look(env, group);
    return MILL_KERR_NONE;
}

int16_t mill_group_may_commit(struct mill_group_env *env, struct mill_group *group,
                              const char *member_id, const char *instance_id, int32_t generation)
{
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (generation < 0 && group->state == MILL_GROUP_EMPTY) {
        return MILL_KERR_NONE; /* a consumer that assigns its partitions by hand */
    }
    struct mill_group_member *member = NULL;
    int16_t error = check_member(group, member_id, instance_id, generation, &member);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    if (!member->join && !member->sync) {
        mill_group_timeout_renew(env, member);
    }
    return group->state == MILL_GROUP_COMPLETING ? MILL_KERR_REBALANCE_IN_PROGRESS : MILL_KERR_NONE;
}

int16_t mill_group_may_commit_txn(struct mill_group_env *env, struct mill_group *group,
                                  const char *member_id, const char *instance_id,
                                  int32_t generation)
{
    struct mill_group_member *member = NULL;
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (generation < 0 && member_id[0] == '\0' && !instance_id) {
        return MILL_KERR_NONE; /* a producer that names the group alone */
    }
    int16_t error = check_member(group, member_id, instance_id, generation, &member);
    if (error == MILL_KERR_NONE && !member->join && !member->sync) {
        mill_group_timeout_renew(env, member);
    }
    return error;
}

/* --- timers ------------------------------------------------------------------------------------
 */

static void pending_time(struct mill_group_env *env, struct mill_group *group)
{
    struct mill_group_pending **at = &group->pending;
    while (*at) {
        if ((*at)->expires_ns <= env->now_ns) {
            mill_group_pending_drop(env, group, at);
        } else {
            at = &(*at)->next;
        }
    }
}

static void members_time(struct mill_group_env *env, struct mill_group *group)
{
    bool removed = false;
    struct mill_group_member *next = NULL;
    for (struct mill_group_member *member = group->members; member; member = next) {
        next = member->next;
        if (member->expires_ns <= env->now_ns) {
            env->expired_members++;
            mill_group_member_remove(env, group, member);
            removed = true;
        }
    }
    if (removed) {
        mill_group_after_removal(env, group);
    }
}

/* Members that did not sync in time. */
static void sync_time(struct mill_group_env *env, struct mill_group *group)
{
    bool removed = false;
    struct mill_group_member *next = NULL;
    group->sync_due_ns = MILL_NEVER;
    if (group->state != MILL_GROUP_COMPLETING && group->state != MILL_GROUP_STABLE) {
        return;
    }
    for (struct mill_group_member *member = group->members; member; member = next) {
        next = member->next;
        if (member->sync_missing) {
            env->expired_members++;
            mill_group_member_remove(env, group, member);
            removed = true;
        }
    }
    if (removed) {
        mill_group_after_removal(env, group);
    }
}

static void join_time(struct mill_group_env *env, struct mill_group *group)
{
    if (group->delaying && group->member_added && group->delay_left_ns > 0) {
        uint64_t more_ns =
            MILL_MIN(group->delay_left_ns, (uint64_t)env->initial_delay_ms * MILL_NS_PER_MS);
        group->member_added = false;
        group->delay_left_ns -= more_ns;
        group->join_due_ns = env->now_ns + more_ns;
        return;
    }
    mill_group_complete_join(env, group);
}

void mill_group_time(struct mill_group_env *env, struct mill_group *group)
{
    pending_time(env, group);
    members_time(env, group);
    if (group->sync_due_ns <= env->now_ns) {
        sync_time(env, group);
    }
    if (group->state == MILL_GROUP_PREPARING && group->join_due_ns <= env->now_ns) {
        join_time(env, group);
    }
    mill_group_try_complete(env, group);
    mill_group_timer_look(env, group);
}

void mill_group_release(struct mill_group_env *env, struct mill_group *group, int16_t error)
{
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        mill_group_join_end(env, group, member, error);
        mill_group_sync_end(env, group, member, error);
    }
}

/* --- loading -----------------------------------------------------------------------------------
 */

struct mill_group_member *mill_group_restore_member(struct mill_group_env *env,
                                                    struct mill_group *group,
                                                    const struct mill_group_join *join,
                                                    const struct mill_group_blob *assignment)
{
    struct mill_group_member *member = mill_member_add(env, group, join->member_id, join, true);
    if (member && !mill_blob_copy(&member->assignment, assignment)) {
        mill_member_unlink(group, member);
        mill_member_free(env, member);
        return NULL;
    }
    env->bytes += member ? member->assignment.size_bytes : 0;
    return member;
}

void mill_group_forget_classic(struct mill_group_env *env, struct mill_group *group)
{
    mill_group_release(env, group, MILL_KERR_REBALANCE_IN_PROGRESS);
    mill_group_clear_members(env, group);
    while (group->pending) {
        mill_group_pending_drop(env, group, &group->pending);
    }
    free(group->protocol);
    group->protocol = NULL;
    group->generation = 0;
    group->stored_generation = -1;
    group->delaying = false;
    group->join_due_ns = MILL_NEVER;
    group->sync_due_ns = MILL_NEVER;
    group->state = group->state == MILL_GROUP_DEAD ? MILL_GROUP_DEAD : MILL_GROUP_EMPTY;
}

void mill_group_turned_back(struct mill_group_env *env, struct mill_group *group, bool rebalance)
{
    mill_group_resume(env, group);
#ifdef MILL_MUTANT_MIGRATION_NO_REBALANCE
    return;
#endif
    if (rebalance && group->members_count > 0) {
        mill_group_prepare(env, group);
        mill_group_timer_look(env, group);
    }
}

void mill_group_resume(struct mill_group_env *env, struct mill_group *group)
{
    group->state = group->members_count > 0 ? MILL_GROUP_STABLE : MILL_GROUP_EMPTY;
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        mill_group_timeout_renew(env, member);
    }
    mill_group_timer_look(env, group);
}
