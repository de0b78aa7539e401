/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the classic protocol in a group of the consumer protocol: what they ask, and what it
 * means there; see consumer.h. A step that changes the group is a join, planned as a heartbeat that
 * joins (consumer_plan.c). ref: KIP-848, "Supporting Online Consumer Group Upgrade" */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "control/group/consumer_protocol.h"
#include "control/group/consumer_work.h"
#include "control/group/member.h"
#include "protocol/errors.h"

/* --- join --------------------------------------------------------------------------------------
 */

/* Whether all classic members know the protocol. */
static bool is_common(const struct mill_group *group, const char *name)
{
    for (const struct mill_consumer *member = group->consumers->first; member;
         member = member->next) {
        bool has = !member->classic;
        for (uint32_t i = 0; i < member->classic_count && !has; i++) {
            has = strcmp(member->classic[i].name, name) == 0;
        }
        if (!has) {
            return false;
        }
    }
    return true;
}

static bool protocols_fit(const struct mill_group *group, const struct mill_group_join *join)
{
    bool fit = false;
    for (uint32_t i = 0; i < join->protocols_count && !fit; i++) {
        fit = is_common(group, join->protocols[i].name);
    }
    return fit && strcmp(join->protocol_type, MILL_CONSUMER_TYPE) == 0;
}

int16_t mill_consumer_may_join(const struct mill_consumer_env *env, const struct mill_group *group,
                               const struct mill_group_join *join)
{
    if (join->session_timeout_ms < env->group->session_timeout_min_ms ||
        join->session_timeout_ms > env->group->session_timeout_max_ms) {
        return MILL_KERR_INVALID_SESSION_TIMEOUT;
    }
    if (!env->upgrades && !env->downgrades) {
        return MILL_KERR_INCONSISTENT_GROUP_PROTOCOL;
    }
    if ((int64_t)group->consumers->count >= env->size_max &&
        !mill_consumer_find(group, join->member_id) &&
        !(join->instance_id && mill_consumer_find_static(group->consumers, join->instance_id))) {
        env->group->full++;
        return MILL_KERR_GROUP_MAX_SIZE_REACHED;
    }
    return protocols_fit(group, join) ? (int16_t)MILL_KERR_NONE
                                      : (int16_t)MILL_KERR_INCONSISTENT_GROUP_PROTOCOL;
}

int mill_consumer_join_beat(const struct mill_consumer_env *env, const struct mill_group_join *join,
                            struct mill_pool *pool, struct mill_consumer_beat *ret)
{
    struct mill_subscription said;
    int r = mill_subscription_read(&join->protocols[0].metadata, &env->topics, pool, &said);
    if (r < 0) {
        return r;
    }
    *ret = (struct mill_consumer_beat){.member_id = join->member_id,
                                       .epoch = MILL_CONSUMER_JOINS,
                                       .instance_id = join->instance_id,
                                       .rack_id = said.rack_id,
                                       .client_id = join->client_id,
                                       .client_host = join->client_host,
                                       .rebalance_timeout_ms = join->rebalance_timeout_ms,
                                       .names = said.names,
                                       .names_count = said.names_count,
                                       .owned_told = true,
                                       .owned = said.owned,
                                       .classic = join->protocols,
                                       .classic_count = join->protocols_count,
                                       .classic_session_ms = join->session_timeout_ms};
    return 0;
}

static uint64_t ms_later(const struct mill_consumer_env *env, int64_t ms)
{
    return env->group->now_ns + (uint64_t)MILL_MAX(ms, (int64_t)0) * MILL_NS_PER_MS;
}

void mill_consumer_joined(struct mill_consumer_env *env, struct mill_group *group,
                          const char *member_id)
{
    struct mill_consumer *member = mill_consumer_find(group, member_id);
    if (member) {
        member->join_due_ns = MILL_NEVER;
        member->sync_due_ns = ms_later(env, member->rebalance_timeout_ms);
        mill_consumer_renew(env, group, member);
        mill_consumer_timer(env, group);
    }
}

/* --- sync, heartbeat ---------------------------------------------------------------------------
 */

/* Who speaks. ret: enum mill_kerr. */
static int16_t member_check(const struct mill_group *group, const char *member_id,
                            const char *instance_id, int32_t generation,
                            struct mill_consumer **ret_member)
{
    struct mill_consumer *member = instance_id
                                       ? mill_consumer_find_static(group->consumers, instance_id)
                                       : mill_consumer_find(group, member_id);
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (!member) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    if (strcmp(member->id, member_id) != 0) {
        return MILL_KERR_FENCED_INSTANCE_ID;
    }
    if (!member->classic) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    *ret_member = member;
    return generation == member->epoch ? (int16_t)MILL_KERR_NONE
                                       : (int16_t)MILL_KERR_ILLEGAL_GENERATION;
}

/* It is told to join again, and must within its rebalance time-out. */
static int16_t join_again(struct mill_consumer_env *env, struct mill_group *group,
                          struct mill_consumer *member)
{
#ifdef MILL_MUTANT_MIGRATION_JOINS_NEVER
    return MILL_KERR_REBALANCE_IN_PROGRESS;
#endif
    if (member->join_due_ns == MILL_NEVER) {
        member->join_due_ns = ms_later(env, member->rebalance_timeout_ms);
        mill_consumer_timer(env, group);
    }
    return MILL_KERR_REBALANCE_IN_PROGRESS;
}

int16_t mill_consumer_sync(struct mill_consumer_env *env, struct mill_group *group,
                           const struct mill_group_sync *sync, struct mill_pool *pool,
                           struct mill_group_blob *ret_assignment)
{
    struct mill_consumer *member = NULL;
    int16_t error =
        member_check(group, sync->member_id, sync->instance_id, sync->generation, &member);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    if ((sync->protocol_type && strcmp(sync->protocol_type, MILL_CONSUMER_TYPE) != 0) ||
        (sync->protocol && strcmp(sync->protocol, member->classic[0].name) != 0)) {
        return MILL_KERR_INCONSISTENT_GROUP_PROTOCOL;
    }
    /* One that is giving partitions up has joined already, and joins again when it has. */
    if (group->generation > member->epoch && member->state != MILL_CONSUMER_UNREVOKED) {
        return join_again(env, group, member);
    }
    if (!mill_assignment_write(&member->assigned, &member->classic[0].metadata, &env->topics, pool,
                               ret_assignment)) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    member->sync_due_ns = MILL_NEVER;
    mill_consumer_renew(env, group, member);
    mill_consumer_timer(env, group);
    return MILL_KERR_NONE;
}

/* Whether others still have some of what it is to own. */
static bool waits_for_others(const struct mill_group *group, const struct mill_consumer *member)
{
    for (uint32_t i = 0; i < member->target.count; i++) {
        const struct mill_part *part = &member->target.items[i];
        if (!mill_parts_find(&member->assigned, &part->topic, part->partition) &&
            mill_consumer_is_owned(group->consumers, part, member)) {
            return true;
        }
    }
    return false;
}

int16_t mill_consumer_heartbeat(struct mill_consumer_env *env, struct mill_group *group,
                                const char *member_id, const char *instance_id, int32_t generation)
{
    struct mill_consumer *member = NULL;
    int16_t error = member_check(group, member_id, instance_id, generation, &member);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    mill_consumer_renew(env, group, member);
    bool behind = member->epoch < group->generation;
    bool gives = member->state == MILL_CONSUMER_UNREVOKED;
    bool gets = member->state == MILL_CONSUMER_UNRELEASED && !waits_for_others(group, member);
    return behind || gives || gets ? join_again(env, group, member) : (int16_t)MILL_KERR_NONE;
}
