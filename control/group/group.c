/* SPDX-License-Identifier: Apache-2.0 */
/* The classic group protocol; see group.h. Rules: KIP-62 (two timeouts), KIP-134 (initial delay),
 * KIP-345 (static members), KIP-394 (member id required), KIP-559 (protocol names), KIP-814
 * (skipped assignment). */
#include "control/group/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/group/consumer.h"
#include "control/group/member.h"
#include "protocol/errors.h"

enum {
    PENDING_MAX = 10000, /* ids of one group that nobody joined with yet: each call looks at all */
};

static const uint64_t new_member_ns = 300 * MILL_NS_PER_S;

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

static uint64_t pending_bytes(const char *member_id)
{
    return sizeof(struct mill_group_pending) + strlen(member_id) + 1;
}

static void pending_drop(struct mill_group_env *env, struct mill_group *group,
                         struct mill_group_pending **at)
{
    struct mill_group_pending *pending = *at;
    *at = pending->next;
    group->pending_count--;
    env->bytes -= pending_bytes(pending->id);
    free(pending);
}

void mill_group_free(struct mill_group_env *env, struct mill_group *group)
{
    mill_group_clear_members(env, group);
    mill_consumer_drop(env, group);
    while (group->pending) {
        pending_drop(env, group, &group->pending);
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
        "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"};
    return names[state];
}

static struct mill_group_pending **find_pending(struct mill_group *group, const char *member_id)
{
    struct mill_group_pending **at = &group->pending;
    while (*at && strcmp((*at)->id, member_id) != 0) {
        at = &(*at)->next;
    }
    return at;
}

/* --- time --------------------------------------------------------------------------------------
 */

static void timer_look(struct mill_group_env *env, struct mill_group *group)
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

static uint64_t ms_later(const struct mill_group_env *env, int64_t ms)
{
    return env->now_ns + (uint64_t)MILL_MAX(ms, (int64_t)0) * MILL_NS_PER_MS;
}

/* Something came from the member. The timer stays where it is when it is earlier: it looks again.
 */
static void timeout_renew(struct mill_group_env *env, struct mill_group_member *member)
{
    member->expires_ns = ms_later(env, member->session_timeout_ms);
}

static int64_t rebalance_timeout_ms(const struct mill_group *group)
{
    int64_t most = 0;
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        most = MILL_MAX(most, (int64_t)member->rebalance_timeout_ms);
    }
    return most;
}

static void state_set(struct mill_group_env *env, struct mill_group *group,
                      enum mill_group_state state)
{
    group->state = state;
    group->state_ms = env->now_ms;
}

/* --- answers -----------------------------------------------------------------------------------
 */

static void join_refuse(struct mill_group_env *env, void *waiter, const char *member_id,
                        int16_t error)
{
    struct mill_group_join_answer answer = {.error = error, .member_id = member_id};
    env->calls->joined(waiter, &answer);
}

static void join_answer(struct mill_group_env *env, struct mill_group *group,
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
static void join_end(struct mill_group_env *env, struct mill_group *group,
                     struct mill_group_member *member, int16_t error)
{
    void *waiter = member->join;
    if (!waiter) {
        return;
    }
    member->join = NULL;
    group->joined_count--;
    if (error != MILL_KERR_NONE) {
        join_refuse(env, waiter, member->id, error);
    } else {
        join_answer(env, group, member, waiter);
    }
    timeout_renew(env, member);
}

static void sync_end(struct mill_group_env *env, struct mill_group *group,
                     struct mill_group_member *member, int16_t error)
{
    void *waiter = member->sync;
    if (!waiter) {
        return;
    }
    member->sync = NULL;
    bool good = error == MILL_KERR_NONE;
    env->calls->synced(waiter, error, good ? group : NULL, good ? member : NULL);
    timeout_renew(env, member);
}

static void join_park(struct mill_group_env *env, struct mill_group *group,
                      struct mill_group_member *member, void *waiter)
{
    /* A client that lost its connection asks again: the first question has nobody to hear. */
    join_end(env, group, member, MILL_KERR_REBALANCE_IN_PROGRESS);
    member->join = waiter;
    group->joined_count++;
    member->expires_ns = member->is_new ? env->now_ns + new_member_ns : MILL_NEVER;
}

/* --- rebalance ---------------------------------------------------------------------------------
 */

static void complete_join(struct mill_group_env *env, struct mill_group *group);

static bool all_joined(const struct mill_group *group)
{
    return group->joined_count == group->members_count && group->pending_count == 0;
}

static void try_complete(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_PREPARING && !group->delaying && all_joined(group)) {
        complete_join(env, group);
    }
}

static void syncs_reset(struct mill_group_env *env, struct mill_group *group, int16_t error)
{
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        mill_member_unassign(env, member);
        member->sync_missing = false;
        sync_end(env, group, member, error);
    }
    group->sync_due_ns = MILL_NEVER;
}

/* Begins a rebalance: everybody has to join again. */
static void prepare(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_COMPLETING) {
        syncs_reset(env, group, MILL_KERR_REBALANCE_IN_PROGRESS);
    }
    bool first = group->state == MILL_GROUP_EMPTY && env->initial_delay_ms > 0;
    int64_t timeout_ms = rebalance_timeout_ms(group);
    group->sync_due_ns = MILL_NEVER;
    group->delaying = first;
    group->member_added = false;
    if (first) {
        int64_t delay_ms = MILL_MIN(env->initial_delay_ms, MILL_MAX(timeout_ms, (int64_t)0));
        group->delay_left_ns = (uint64_t)(timeout_ms - delay_ms) * MILL_NS_PER_MS;
        group->join_due_ns = ms_later(env, delay_ms);
    } else {
        group->join_due_ns = ms_later(env, timeout_ms);
    }
    state_set(env, group, MILL_GROUP_PREPARING);
}

static void maybe_prepare(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_STABLE || group->state == MILL_GROUP_COMPLETING ||
        group->state == MILL_GROUP_EMPTY) {
        prepare(env, group);
    }
    try_complete(env, group);
}

static void member_remove(struct mill_group_env *env, struct mill_group *group,
                          struct mill_group_member *member)
{
    join_end(env, group, member, MILL_KERR_UNKNOWN_MEMBER_ID);
    sync_end(env, group, member, MILL_KERR_UNKNOWN_MEMBER_ID);
    mill_member_unlink(group, member);
    mill_member_free(env, member);
}

/* A member is gone: what that means for the others. */
static void after_removal(struct mill_group_env *env, struct mill_group *group)
{
    if (group->state == MILL_GROUP_STABLE || group->state == MILL_GROUP_COMPLETING) {
        prepare(env, group);
    }
    try_complete(env, group);
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
            member_remove(env, group, member);
        }
    }
}

static void become_empty(struct mill_group_env *env, struct mill_group *group)
{
    free(group->protocol);
    group->protocol = NULL;
    group->leader = NULL;
    state_set(env, group, MILL_GROUP_EMPTY);
    (void)env->calls->store(env->context, group, MILL_GROUP_STORE_EMPTY, NULL, false);
}

static void complete_join(struct mill_group_env *env, struct mill_group *group)
{
    group->delaying = false;
    drop_absent(env, group);
    if (!leader_elect(group) && group->members_count > 0) {
        /* Only static members are left and none came back: their time-outs decide. */
        group->join_due_ns = ms_later(env, rebalance_timeout_ms(group));
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
        group->join_due_ns = ms_later(env, rebalance_timeout_ms(group));
        return;
    }
    state_set(env, group, MILL_GROUP_COMPLETING);
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        mill_member_unassign(env, member);
        member->sync_missing = true;
        member->is_new = false;
        join_end(env, group, member, MILL_KERR_NONE);
    }
    group->sync_due_ns = ms_later(env, rebalance_timeout_ms(group));
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
        join_refuse(env, join->waiter, member_id, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    struct mill_group_member *member = mill_member_add(env, group, member_id, join);
    if (!member) {
        join_refuse(env, join->waiter, member_id, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    member->is_new = true;
    join_park(env, group, member, join->waiter);
    if (group->state == MILL_GROUP_PREPARING && group->delaying) {
        group->member_added = true;
    }
    maybe_prepare(env, group);
}

static void member_rejoin(struct mill_group_env *env, struct mill_group *group,
                          struct mill_group_member *member, const struct mill_group_join *join)
{
    if (!mill_member_update(env, member, join)) {
        join_refuse(env, join->waiter, member->id, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    join_park(env, group, member, join->waiter);
    maybe_prepare(env, group);
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
        join_refuse(env, join->waiter, "", MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    env->bytes += size;
    memcpy(pending->id, member_id, strlen(member_id) + 1);
    pending->expires_ns = ms_later(env, join->session_timeout_ms);
    pending->next = group->pending;
    group->pending = pending;
    group->pending_count++;
    join_refuse(env, join->waiter, member_id, MILL_KERR_MEMBER_ID_REQUIRED);
}

/* A static member that came back under its name: it gets a new id at once, and the old one is
 * fenced. Without a change of the protocol a stable group stays stable. */
static void static_replace(struct mill_group_env *env, struct mill_group *group,
                           struct mill_group_member *member, char *fresh,
                           const struct mill_group_join *join)
{
    join_end(env, group, member, MILL_KERR_FENCED_INSTANCE_ID);
    sync_end(env, group, member, MILL_KERR_FENCED_INSTANCE_ID);
    if (!mill_member_update(env, member, join)) {
        join_refuse(env, join->waiter, "", MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        free(fresh);
        return;
    }
    env->bytes = env->bytes - strlen(member->id) + strlen(fresh);
    free(member->id);
    member->id = fresh;
    timeout_renew(env, member);
    if (group->state != MILL_GROUP_STABLE) {
        join_park(env, group, member, join->waiter);
        maybe_prepare(env, group);
        return;
    }
    const char *elected = mill_group_elect_protocol(group);
    if (!elected || !group->protocol || strcmp(elected, group->protocol) != 0) {
        join_park(env, group, member, join->waiter);
        maybe_prepare(env, group);
        return;
    }
    member->join =
        join->waiter; /* until the record is in the log; it does not take part in a join */
    group->joined_count++;
    int16_t error = env->calls->store(env->context, group, MILL_GROUP_STORE_STATIC, member,
                                      join->skip_supported);
    if (error != MILL_KERR_NONE) {
        join_end(env, group, member, error);
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
        join_end(env, group, member, error);
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
    timeout_renew(env, member);
    timer_look(env, group);
}

static void join_unknown(struct mill_group_env *env, struct mill_group *group,
                         const struct mill_group_join *join)
{
    struct mill_group_member *known = mill_group_find_static(group, join->instance_id);
    if (!has_room(env, group, known)) {
        env->full++;
        join_refuse(env, join->waiter, "", MILL_KERR_GROUP_MAX_SIZE_REACHED);
        return;
    }
    char *fresh = mill_member_id_make(env, join->instance_id ? join->instance_id : join->client_id);
    if (!fresh) {
        join_refuse(env, join->waiter, "", MILL_KERR_COORDINATOR_NOT_AVAILABLE);
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
    struct mill_group_pending **pending = find_pending(group, join->member_id);
    struct mill_group_member *member = mill_group_find(group, join->member_id);
    const struct mill_group_member *owner = mill_group_find_static(group, join->instance_id);
    if (*pending && !join->instance_id) {
        if (!has_room(env, group, NULL)) {
            env->full++;
            join_refuse(env, join->waiter, "", MILL_KERR_GROUP_MAX_SIZE_REACHED);
            return;
        }
        pending_drop(env, group, pending);
        member_join_new(env, group, join->member_id, join);
        return;
    }
    if (owner && owner != member) {
        join_refuse(env, join->waiter, join->member_id, MILL_KERR_FENCED_INSTANCE_ID);
        return;
    }
    if (!member || (join->instance_id && !owner) || group->state == MILL_GROUP_EMPTY) {
        join_refuse(env, join->waiter, join->member_id, MILL_KERR_UNKNOWN_MEMBER_ID);
        return;
    }
    if (!has_room(env, group, member)) {
        env->full++;
        join_refuse(env, join->waiter, join->member_id, MILL_KERR_GROUP_MAX_SIZE_REACHED);
        member_remove(env, group, member);
        after_removal(env, group);
        return;
    }
    bool same = mill_member_same_protocols(member, join);
    bool settled = (group->state == MILL_GROUP_COMPLETING && same) ||
                   (group->state == MILL_GROUP_STABLE && same && member != group->leader);
    if (settled) {
        timeout_renew(env, member);
        join_answer(env, group, member, join->waiter);
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
        join_refuse(env, join->waiter, join->member_id, error);
    } else if (join->member_id[0] == '\0') {
        join_unknown(env, group, join);
    } else {
        join_known(env, group, join);
    }
    timer_look(env, group);
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
        syncs_reset(env, group, error);
        prepare(env, group);
        timer_look(env, group);
        return;
    }
    state_set(env, group, MILL_GROUP_STABLE);
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        sync_end(env, group, member, MILL_KERR_NONE);
    }
    timer_look(env, group);
}

static void sync_completing(struct mill_group_env *env, struct mill_group *group,
                            struct mill_group_member *member, const struct mill_group_sync *sync)
{
    sync_end(env, group, member,
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
    timeout_renew(env, member);
    if (group->state == MILL_GROUP_STABLE) {
        env->calls->synced(sync->waiter, MILL_KERR_NONE, group, member);
    } else {
        sync_completing(env, group, member, sync);
    }
    timer_look(env, group);
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
        timeout_renew(env, member);
    }
    return group->state == MILL_GROUP_PREPARING ? MILL_KERR_REBALANCE_IN_PROGRESS : MILL_KERR_NONE;
}

int16_t mill_group_leave(struct mill_group_env *env, struct mill_group *group,
                         const char *member_id, const char *instance_id)
{
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    struct mill_group_pending **pending = find_pending(group, member_id);
    if (*pending && !instance_id) {
        pending_drop(env, group, pending);
        try_complete(env, group);
        timer_look(env, group);
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
    member_remove(env, group, member);
    after_removal(env, group);
    timer_look(env, group);
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
        timeout_renew(env, member);
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
        timeout_renew(env, member);
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
            pending_drop(env, group, at);
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
            member_remove(env, group, member);
            removed = true;
        }
    }
    if (removed) {
        after_removal(env, group);
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
            member_remove(env, group, member);
            removed = true;
        }
    }
    if (removed) {
        after_removal(env, group);
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
    complete_join(env, group);
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
    try_complete(env, group);
    timer_look(env, group);
}

void mill_group_release(struct mill_group_env *env, struct mill_group *group, int16_t error)
{
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        join_end(env, group, member, error);
        sync_end(env, group, member, error);
    }
}

/* --- loading -----------------------------------------------------------------------------------
 */

struct mill_group_member *mill_group_restore_member(struct mill_group_env *env,
                                                    struct mill_group *group,
                                                    const struct mill_group_join *join,
                                                    const struct mill_group_blob *assignment)
{
    struct mill_group_member *member = mill_member_add(env, group, join->member_id, join);
    if (member && mill_blob_copy(&member->assignment, assignment)) {
        env->bytes += member->assignment.size_bytes;
    }
    return member;
}

void mill_group_forget_classic(struct mill_group_env *env, struct mill_group *group)
{
    mill_group_release(env, group, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    mill_group_clear_members(env, group);
    free(group->protocol);
    group->protocol = NULL;
    group->generation = 0;
}

void mill_group_resume(struct mill_group_env *env, struct mill_group *group)
{
    group->state = group->members_count > 0 ? MILL_GROUP_STABLE : MILL_GROUP_EMPTY;
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        timeout_renew(env, member);
    }
    timer_look(env, group);
}
