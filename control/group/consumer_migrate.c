/* SPDX-License-Identifier: Apache-2.0 */
/* From one protocol to the other; see consumer_migrate.h. */
#include "control/group/consumer_migrate.h"

#include <errno.h>
#include <string.h>

#include "control/group/consumer_protocol.h"
#include "control/group/member.h"
#include "control/group/records.h"

/* --- to this protocol --------------------------------------------------------------------------
 */

static const struct mill_group_blob *subscription_of(const struct mill_group *group,
                                                     const struct mill_group_member *member)
{
    /* Before the first generation none is chosen: all say the same. */
    return group->protocol ? mill_group_metadata(group, member) : &member->protocols[0].metadata;
}

/* What the member may own: what it was assigned last, and, when it joined again since or was
 * assigned nothing, what it said then. An assignment that is on its way to the log counts: its
 * member is told before the group is another one. ret: 0, -EBADMSG, -ENOMEM. */
static int owned_take(const struct mill_plan_work *work, const struct mill_group_member *from,
                      const struct mill_subscription *said, struct mill_parts *ret)
{
    struct mill_pool *pool = &work->plan->pool;
    enum mill_group_state state = work->group->state;
    bool joined = state == MILL_GROUP_COMPLETING || (state == MILL_GROUP_PREPARING && from->join);
    struct mill_parts assigned;
    int r = mill_assignment_read(&from->assignment, &work->env->topics, pool, &assigned);
    if (r < 0) {
        return r;
    }
    if (!mill_parts_room(pool, assigned.count + said->owned.count, ret)) {
        return -ENOMEM;
    }
    for (; ret->count < assigned.count; ret->count++) {
        ret->items[ret->count] = assigned.items[ret->count];
    }
#ifdef MILL_MUTANT_MIGRATION_OWNED_FORGOTTEN
    joined = false;
    ret->count = 0;
#endif
    bool told = joined || from->assignment.size_bytes == 0;
    for (uint32_t i = 0; told && i < said->owned.count; i++) {
        ret->items[ret->count++] = said->owned.items[i];
    }
    mill_parts_sort(ret);
    return 0;
}

/* ret: 0, -EBADMSG, -ENOMEM. */
static int member_take(const struct mill_plan_work *work, const struct mill_group_member *from,
                       struct mill_consumer *to)
{
    const struct mill_group *group = work->group;
    const struct mill_consumer_topics *topics = &work->env->topics;
    struct mill_pool *pool = &work->plan->pool;
    struct mill_subscription said;
    int r = mill_subscription_read(subscription_of(group, from), topics, pool, &said);
    if (r < 0) {
        return r;
    }
    *to = (struct mill_consumer){.id = from->id,
                                 .instance_id = from->instance_id,
                                 .rack_id = (char *)(uintptr_t)said.rack_id,
                                 .client_id = from->client_id,
                                 .client_host = from->client_host,
                                 .names = said.names,
                                 .rebalance_timeout_ms = from->rebalance_timeout_ms,
                                 .epoch = group->generation,
                                 .previous_epoch = group->generation,
                                 .known = true,
                                 .classic = from->protocols,
                                 .classic_count = from->protocols_count,
                                 .classic_session_ms = from->session_timeout_ms};
    to->names_count = mill_plan_names_sort(to->names, said.names_count);
    r = owned_take(work, from, &said, &to->assigned);
    for (uint32_t i = 0; i < to->assigned.count; i++) {
        to->assigned.items[i].epoch = group->generation;
    }
    to->target = to->assigned;
    return r;
}

static void upgrade_put(struct mill_plan_work *work)
{
    const struct mill_consumer *first = work->consumers->first;
    uint32_t bytes = 0;
    uint8_t *key = mill_group_key_write(&work->plan->pool, work->group->id, &bytes);
    mill_plan_put(work->plan, key, bytes, NULL, -1);
    for (const struct mill_consumer *member = first; member; member = member->next) {
        mill_plan_put_member(work, member);
    }
    mill_plan_put_epoch(work, work->group->generation, 0);
    for (const struct mill_consumer *member = first; member; member = member->next) {
        mill_plan_put_target(work, member->id, &member->target);
    }
    mill_plan_put_target_epoch(work, work->group->generation);
    for (const struct mill_consumer *member = first; member; member = member->next) {
        mill_plan_put_current(work, member);
    }
}

int mill_plan_upgrade(struct mill_plan_work *work)
{
    const struct mill_group *group = work->group;
    struct mill_pool *pool = &work->plan->pool;
    struct mill_consumer_group *made = mill_pool_take(pool, sizeof(*made));
    if (!made) {
        return -ENOMEM;
    }
    *made = (struct mill_consumer_group){.assignment_epoch = group->generation};
    made->last = &made->first;
    for (const struct mill_group_member *from = group->members; from; from = from->next) {
        struct mill_consumer *member = mill_pool_take(pool, sizeof(*member));
        int r = member ? member_take(work, from, member) : -ENOMEM;
        if (r < 0) {
            return r;
        }
        *made->last = member;
        made->last = &member->next;
        made->count++;
    }
    work->consumers = made;
    work->plan->converts = true;
    upgrade_put(work);
    return 0;
}

/* --- back to the classic one -------------------------------------------------------------------
 */

static bool is_left(const struct mill_plan_work *work, const struct mill_consumer *member)
{
    for (uint32_t i = 0; i < work->members_count; i++) {
        if (strcmp(work->who[i]->id, member->id) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether all that are left are classic, and one that was not is gone. */
static bool is_due(const struct mill_plan_work *work)
{
    bool gone = false;
    for (uint32_t i = 0; i < work->members_count; i++) {
        if (!work->who[i]->classic) {
            return false;
        }
    }
    for (const struct mill_consumer *member = work->consumers->first; member && !gone;
         member = member->next) {
        gone = !member->classic && !is_left(work, member);
    }
    return gone && work->members_count > 0 && work->env->downgrades &&
           (int64_t)work->members_count <= work->env->group->size_max;
}

/* The group as it will be, for its record. ret: false no memory, or no protocol that all have. */
static bool classic_make(struct mill_plan_work *work, struct mill_group *ret)
{
    struct mill_pool *pool = &work->plan->pool;
    *ret = (struct mill_group){.generation = work->group->generation,
                               .protocol_type = (char *)(uintptr_t)MILL_CONSUMER_TYPE,
                               .state_ms = work->env->group->now_ms};
    ret->members_last = &ret->members;
    for (uint32_t i = 0; i < work->members_count; i++) {
        const struct mill_consumer *from = work->who[i];
        struct mill_group_member *member = mill_pool_take(pool, sizeof(*member));
        if (!member) {
            return false;
        }
        *member = (struct mill_group_member){.id = from->id,
                                             .instance_id = from->instance_id,
                                             .client_id = from->client_id,
                                             .client_host = from->client_host,
                                             .rebalance_timeout_ms = from->rebalance_timeout_ms,
                                             .session_timeout_ms = from->classic_session_ms,
                                             .protocols = from->classic,
                                             .protocols_count = from->classic_count};
        *ret->members_last = member;
        ret->members_last = &member->next;
        ret->members_count++;
    }
    ret->leader = ret->members;
    ret->protocol = (char *)(uintptr_t)mill_group_elect_protocol(ret);
    struct mill_group_member *member = ret->members;
    for (uint32_t i = 0; ret->protocol && i < work->members_count; i++, member = member->next) {
        /* Targets as they are: one that took over a name has those of whom it took it from. */
        const struct mill_consumer *from =
            work->who[i] == work->next && work->old ? work->old : work->who[i];
        if (!mill_assignment_write(&from->target, mill_group_metadata(ret, member),
                                   &work->env->topics, pool, &member->assignment)) {
            return false;
        }
    }
    return ret->protocol != NULL;
}

bool mill_plan_maybe_downgrade(struct mill_plan_work *work, bool rests)
{
    struct mill_consumer_plan *plan = work->plan;
    struct mill_group classic;
    if (!mill_plan_everybody(work)) {
        return false;
    }
    if (!is_due(work)) {
        return true;
    }
    if (!classic_make(work, &classic)) {
        return false;
    }
    plan->records_count = 0; /* what it would have been is not needed */
    plan->converts = true;
    plan->rests = rests;
    for (const struct mill_consumer *member = work->consumers->first; member;
         member = member->next) {
        mill_plan_put_tombstone(plan, work->group, MILL_CONSUMER_RECORD_CURRENT, member->id);
        mill_plan_put_tombstone(plan, work->group, MILL_CONSUMER_RECORD_TARGET, member->id);
        mill_plan_put_tombstone(plan, work->group, MILL_CONSUMER_RECORD_MEMBER, member->id);
    }
    mill_consumer_bury_group(work->group, plan);
    uint32_t key_bytes = 0;
    uint32_t value_bytes = 0;
    uint8_t *key = mill_group_key_write(&plan->pool, work->group->id, &key_bytes);
    uint8_t *value = mill_group_value_write(&plan->pool, &classic, &value_bytes);
    mill_plan_put(plan, key, key_bytes, value, (int32_t)value_bytes);
    return true;
}
