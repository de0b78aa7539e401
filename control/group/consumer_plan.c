/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for a group of the consumer protocol: which records a heartbeat or a time-out asks for; see
 * consumer.h. Rules: KIP-848, KIP-1251 (epochs of assignments). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "control/group/consumer_migrate.h"
#include "control/group/member.h"
#include "control/group/records.h"
#include "protocol/errors.h"

enum {
    REMOVALS_MAX = 256, /* of one plan; the others follow */
};

static const struct mill_consumer_group nothing;

/* --- records -----------------------------------------------------------------------------------
 */

static void put_removal(struct mill_plan_work *work, const struct mill_consumer *member)
{
    mill_plan_put_tombstone(work->plan, work->group, MILL_CONSUMER_RECORD_CURRENT, member->id);
    mill_plan_put_tombstone(work->plan, work->group, MILL_CONSUMER_RECORD_TARGET, member->id);
    mill_plan_put_tombstone(work->plan, work->group, MILL_CONSUMER_RECORD_MEMBER, member->id);
    work->plan->removes = true;
}

/* --- targets -----------------------------------------------------------------------------------
 */

/* Shares the partitions out among everybody. replaced: the member has its target under another id
 * in the log. */
static bool targets_make(struct mill_plan_work *work, bool replaced)
{
    uint32_t votes[MILL_ASSIGNOR_COUNT] = {0};
    if (!mill_plan_everybody(work)) {
        return false;
    }
    for (uint32_t i = 0; i < work->members_count; i++) {
        mill_consumer_vote(work->who[i], votes);
    }
    if (!mill_assign(mill_consumer_elect(work->env, votes), work->members, work->members_count,
                     &work->plan->pool)) {
        return false;
    }
    for (uint32_t i = 0; i < work->members_count; i++) {
        const struct mill_assign_member *member = &work->members[i];
        bool moved = replaced && work->who[i] == work->next;
        if (moved || !mill_parts_equal(&member->before, &member->after)) {
            mill_plan_put_target(work, member->id, &member->after);
        }
    }
    mill_plan_put_target_epoch(work, work->epoch);
    work->next->target = work->members[work->members_count - 1].after;
    return true;
}

/* --- reconciliation ----------------------------------------------------------------------------
 */

/* Whether the client says that it still owns some of these; one that says nothing does. */
static bool still_owns(const struct mill_consumer_beat *beat, const struct mill_parts *parts)
{
#ifdef MILL_MUTANT_CONSUMER_UNREVOKED
    return false;
#endif
    if (!beat->owned_told) {
        return parts->count > 0;
    }
    for (uint32_t i = 0; i < parts->count; i++) {
        if (mill_parts_find(&beat->owned, &parts->items[i].topic, parts->items[i].partition)) {
            return true;
        }
    }
    return false;
}

static void move(struct mill_consumer *member, enum mill_consumer_state state, int32_t epoch,
                 const struct mill_parts *assigned, const struct mill_parts *revoking)
{
    member->state = state;
    member->previous_epoch = member->epoch != epoch ? member->epoch : member->previous_epoch;
    member->epoch = epoch;
    member->assigned = *assigned;
    member->revoking = *revoking;
}

/* One step of the member towards its target. ret: false no memory. */
static bool step(struct mill_plan_work *work, const struct mill_consumer_beat *beat,
                 int32_t target_epoch)
{
    static const struct mill_parts none;
    struct mill_consumer *member = work->next;
    const struct mill_parts *target = &member->target;
    struct mill_parts keep;
    struct mill_parts revoke;
    struct mill_parts gain;
    struct mill_pool *pool = &work->plan->pool;
    bool waits = false;
    if (!mill_parts_room(pool, member->assigned.count + target->count, &keep) ||
        !mill_parts_room(pool, member->assigned.count, &revoke) ||
        !mill_parts_room(pool, target->count, &gain)) {
        return false;
    }
    for (uint32_t i = 0; i < member->assigned.count; i++) {
        const struct mill_part *part = &member->assigned.items[i];
        bool stays = mill_parts_find(target, &part->topic, part->partition);
        struct mill_parts *to = stays ? &keep : &revoke;
        to->items[to->count++] = *part;
    }
    for (uint32_t i = 0; i < target->count; i++) {
        struct mill_part part = target->items[i];
        part.epoch = target_epoch;
        if (mill_parts_find(&member->assigned, &part.topic, part.partition)) {
            continue;
        }
        if (mill_consumer_is_owned(work->consumers, &part, work->old)) {
            waits = true;
        } else {
            gain.items[gain.count++] = part;
        }
    }
    if (revoke.count > 0 && still_owns(beat, &revoke)) {
        move(member, MILL_CONSUMER_UNREVOKED, member->epoch, &keep, &revoke);
        return true;
    }
    memcpy(keep.items + keep.count, gain.items, gain.count * sizeof(gain.items[0]));
    keep.count += gain.count;
    mill_parts_sort(&keep);
    move(member, waits ? MILL_CONSUMER_UNRELEASED : MILL_CONSUMER_STABLE, target_epoch, &keep,
         &none);
    return true;
}

static bool reconcile(struct mill_plan_work *work, const struct mill_consumer_beat *beat,
                      int32_t target_epoch)
{
    struct mill_consumer *member = work->next;
    bool rests = member->state == MILL_CONSUMER_STABLE && member->epoch == target_epoch;
    bool revokes = member->state == MILL_CONSUMER_UNREVOKED && still_owns(beat, &member->revoking);
    return rests || revokes || step(work, beat, target_epoch);
}

/* --- who speaks --------------------------------------------------------------------------------
 */

static struct mill_consumer *find(const struct mill_consumer_group *consumers, const char *id)
{
    struct mill_consumer *member = consumers->first;
    while (member && strcmp(member->id, id) != 0) {
        member = member->next;
    }
    return member;
}

static int16_t refuse(struct mill_plan_work *work, int16_t error, const char *message)
{
    work->plan->message = message;
    return error;
}

/* A client that did not hear of its new epoch asks again with the one before. Joining is always
 * right: it begins anew. */
static int16_t epoch_check(struct mill_plan_work *work, const struct mill_consumer_beat *beat)
{
    const struct mill_consumer *member = work->old;
    bool repeats = beat->epoch == member->previous_epoch && beat->owned_told &&
                   mill_parts_within(&beat->owned, &member->assigned);
#ifdef MILL_MUTANT_CONSUMER_UNFENCED
    return MILL_KERR_NONE;
#endif
    if (beat->epoch == MILL_CONSUMER_JOINS || beat->epoch == member->epoch ||
        (beat->epoch < member->epoch && repeats)) {
        return MILL_KERR_NONE;
    }
    return refuse(work, MILL_KERR_FENCED_MEMBER_EPOCH,
                  mill_pool_text(&work->plan->pool,
                                 "The consumer group member has a %s member epoch (%d) than the "
                                 "one known by the group coordinator (%d). The member must "
                                 "abandon all its partitions and rejoin.",
                                 beat->epoch > member->epoch ? "greater" : "smaller", beat->epoch,
                                 member->epoch));
}

/* The same for a member of the classic protocol: one under a name takes it over from whoever has
 * it when it comes without an id, and must be that member otherwise. */
static int16_t classic_look(struct mill_plan_work *work, const struct mill_consumer_beat *beat)
{
    struct mill_consumer *same = find(work->consumers, beat->member_id);
    work->old =
        beat->instance_id ? mill_consumer_find_static(work->consumers, beat->instance_id) : same;
    if (!beat->instance_id || beat->fresh) {
        return MILL_KERR_NONE;
    }
    return !work->old          ? MILL_KERR_UNKNOWN_MEMBER_ID
           : work->old != same ? MILL_KERR_FENCED_INSTANCE_ID
                               : MILL_KERR_NONE;
}

/* Finds the member. ret: enum mill_kerr; a member that joins may be unknown (old stays NULL). */
static int16_t member_look(struct mill_plan_work *work, const struct mill_consumer_beat *beat)
{
    struct mill_pool *pool = &work->plan->pool;
    bool joins = beat->epoch == MILL_CONSUMER_JOINS;
    if (beat->classic) {
        return classic_look(work, beat);
    }
    if (!beat->instance_id) {
        work->old = find(work->consumers, beat->member_id);
        if (!work->old && !joins) {
            return refuse(work, MILL_KERR_UNKNOWN_MEMBER_ID,
                          mill_pool_text(pool, "Member %s is not a member of group %s.",
                                         beat->member_id, work->group->id));
        }
        return MILL_KERR_NONE;
    }
    work->old = mill_consumer_find_static(work->consumers, beat->instance_id);
    if (!work->old && !joins) {
        return refuse(work, MILL_KERR_UNKNOWN_MEMBER_ID,
                      mill_pool_text(pool, "Instance id %s is unknown.", beat->instance_id));
    }
    struct mill_consumer *same = find(work->consumers, beat->member_id);
    if (!work->old) {
        work->old = same; /* a member that takes a name, or another one */
        return MILL_KERR_NONE;
    }
    if (work->old == same) {
        return MILL_KERR_NONE;
    }
    if (!joins) {
        return refuse(work, MILL_KERR_FENCED_INSTANCE_ID,
                      mill_pool_text(pool,
                                     "Static member %s with instance id %s was fenced by member "
                                     "%s.",
                                     beat->member_id, beat->instance_id, work->old->id));
    }
    bool released = work->old->classic || work->old->epoch == MILL_CONSUMER_LEAVES_AWHILE;
    if (!released || same) {
        return refuse(work, MILL_KERR_UNRELEASED_INSTANCE_ID,
                      mill_pool_text(pool,
                                     "Static member %s with instance id %s cannot join the group "
                                     "because the instance id is owned by %s member.",
                                     beat->member_id, beat->instance_id, work->old->id));
    }
    return MILL_KERR_NONE;
}

/* --- heartbeat ---------------------------------------------------------------------------------
 */

static const char *empty_field(const struct mill_consumer_beat *beat)
{
    if (beat->instance_id && beat->instance_id[0] == '\0') {
        return "InstanceId can't be empty.";
    }
    if (beat->rack_id && beat->rack_id[0] == '\0') {
        return "RackId can't be empty.";
    }
    if (beat->member_id[0] == '\0' && (beat->id_required || beat->epoch != MILL_CONSUMER_JOINS)) {
        return "MemberId can't be empty.";
    }
    return NULL;
}

static const char *long_field(const struct mill_consumer_beat *beat)
{
    if (beat->instance_id && strlen(beat->instance_id) > MILL_CONSUMER_ID_BYTES_MAX) {
        return "InstanceId is too long.";
    }
    return strlen(beat->member_id) > MILL_CONSUMER_ID_BYTES_MAX ? "MemberId is too long." : NULL;
}

int16_t mill_consumer_beat_check(struct mill_consumer_env *env,
                                 const struct mill_consumer_beat *beat,
                                 struct mill_consumer_plan *plan)
{
    struct mill_plan_work work = {.env = env, .plan = plan};
    const char *wrong = beat->classic ? long_field(beat) : empty_field(beat);
    if (!wrong && !beat->classic && beat->epoch == MILL_CONSUMER_JOINS) {
        wrong = beat->rebalance_timeout_ms == -1
                    ? "RebalanceTimeoutMs must be provided in first request."
                : !beat->owned_told || beat->owned_named || beat->owned.count > 0
                    ? "TopicPartitions must be empty when (re-)joining."
                : !beat->names && !beat->regex
                    ? "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                      "(re-)joining."
                    : NULL;
    }
    if (!wrong && beat->epoch == MILL_CONSUMER_JOINS) {
        wrong = long_field(beat);
    }
    if (!wrong && beat->epoch == MILL_CONSUMER_LEAVES_AWHILE && !beat->instance_id) {
        wrong = "InstanceId can't be null.";
    }
    if (!wrong && beat->epoch < MILL_CONSUMER_LEAVES_AWHILE) {
        wrong = "MemberEpoch is invalid.";
    }
    if (wrong) {
        return refuse(&work, MILL_KERR_INVALID_REQUEST, wrong);
    }
    enum mill_assignor assignor =
        beat->assignor ? mill_assignor_of(beat->assignor) : env->preferred;
    if (assignor == MILL_ASSIGNOR_COUNT || (env->assignors & (1u << assignor)) == 0) {
        return refuse(&work, MILL_KERR_UNSUPPORTED_ASSIGNOR,
                      mill_pool_text(&plan->pool,
                                     "ServerAssignor %s is not supported. Supported assignors: %s.",
                                     beat->assignor,
                                     env->assignors == 3   ? "uniform, range"
                                     : env->assignors == 1 ? "uniform"
                                                           : "range"));
    }
    return MILL_KERR_NONE;
}

/* Whether a classic group with members may become one of this protocol. */
static bool may_upgrade(const struct mill_plan_work *work)
{
    const struct mill_group *group = work->group;
    return work->env->upgrades && group->protocol_type &&
           strcmp(group->protocol_type, MILL_CONSUMER_TYPE) == 0 &&
           (int64_t)group->members_count <= work->env->size_max;
}

/* Whether the group is one of this protocol, or becomes one. ret: enum mill_kerr. */
static int16_t group_check(struct mill_plan_work *work, const struct mill_consumer_beat *beat)
{
    const struct mill_group *group = work->group;
    struct mill_pool *pool = &work->plan->pool;
    bool joins = beat->epoch == MILL_CONSUMER_JOINS;
    bool empty = group->state == MILL_GROUP_EMPTY && group->members_count == 0;
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (group->consumers || (empty && group->pending_count == 0 && joins)) {
        return MILL_KERR_NONE;
    }
    if (!joins || !may_upgrade(work)) {
        return refuse(work, MILL_KERR_GROUP_ID_NOT_FOUND,
                      mill_pool_text(pool,
                                     empty && group->pending_count == 0
                                         ? "Group %s not found."
                                         : "Group %s is not a consumer group.",
                                     group->id));
    }
    int r = mill_plan_upgrade(work);
    if (r == -EBADMSG) {
        return refuse(
            work, MILL_KERR_GROUP_ID_NOT_FOUND,
            mill_pool_text(pool,
                           "Cannot upgrade the classic group %s to consumer group because "
                           "the embedded consumer protocol is malformed.",
                           group->id));
    }
    return r < 0 ? (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE : (int16_t)MILL_KERR_NONE;
}

static char *own(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* The member as it will be: what it was, but for what the heartbeat says. */
static bool next_make(struct mill_plan_work *work, struct mill_consumer_beat *beat)
{
    struct mill_consumer *next = mill_pool_take(&work->plan->pool, sizeof(*next));
    if (!next) {
        return false;
    }
    if (work->old) {
        *next = *work->old;
    }
    if (!work->old || strcmp(work->old->id, beat->member_id) != 0) {
        next->epoch = 0;
        next->previous_epoch = 0;
    }
    next->id = own(beat->member_id);
    next->client_id = own(beat->client_id);
    next->client_host = own(beat->client_host);
    next->instance_id = beat->instance_id ? own(beat->instance_id) : next->instance_id;
    next->rack_id = beat->rack_id ? own(beat->rack_id) : next->rack_id;
    next->regex = beat->classic ? NULL : beat->regex ? own(beat->regex) : next->regex;
    next->assignor = beat->assignor ? own(beat->assignor) : next->assignor;
    next->classic = (struct mill_group_protocol *)(uintptr_t)beat->classic;
    next->classic_count = beat->classic_count;
    next->classic_session_ms = beat->classic_session_ms;
    next->rebalance_timeout_ms =
        beat->rebalance_timeout_ms >= 0 ? beat->rebalance_timeout_ms : next->rebalance_timeout_ms;
    if (beat->names) {
        next->names = beat->names;
        next->names_count = mill_plan_names_sort(beat->names, beat->names_count);
    }
    work->next = next;
    return true;
}

static bool same_words(const struct mill_consumer *a, const struct mill_consumer *b)
{
    return strcmp(a->id, b->id) == 0 && mill_plan_text_equal(a->instance_id, b->instance_id) &&
           mill_plan_text_equal(a->rack_id, b->rack_id) &&
           mill_plan_text_equal(a->client_id, b->client_id) &&
           mill_plan_text_equal(a->client_host, b->client_host) &&
           mill_plan_text_equal(a->regex, b->regex) &&
           mill_plan_text_equal(a->assignor, b->assignor) &&
           a->rebalance_timeout_ms == b->rebalance_timeout_ms &&
           a->classic_session_ms == b->classic_session_ms &&
           mill_protocols_equal(a->classic, a->classic_count, b->classic, b->classic_count) &&
           mill_plan_texts_equal(a->names, a->names_count, b->names, b->names_count);
}

static bool same_place(const struct mill_consumer *a, const struct mill_consumer *b)
{
    return a->epoch == b->epoch && a->previous_epoch == b->previous_epoch && a->state == b->state &&
           mill_parts_equal(&a->assigned, &b->assigned) &&
           mill_parts_equal(&a->revoking, &b->revoking);
}

/* Room for one more, and for what it says. ret: enum mill_kerr. */
static int16_t room_check(struct mill_plan_work *work, const struct mill_consumer_beat *beat)
{
    struct mill_group_env *shared = work->env->group;
    uint64_t size = sizeof(struct mill_consumer);
    for (uint32_t i = 0; i < beat->names_count; i++) {
        size += strlen(beat->names[i]) + sizeof(beat->names[0]);
    }
    bool many = !work->old && (int64_t)work->consumers->count >= work->env->size_max;
    bool full = shared->bytes + size > shared->bytes_max;
#ifdef MILL_MUTANT_CONSUMER_MEMORY
    full = false;
#endif
    shared->full += many || full;
    if (many) {
        return refuse(work, MILL_KERR_GROUP_MAX_SIZE_REACHED,
                      mill_pool_text(&work->plan->pool,
                                     "The consumer group has reached its maximum capacity of %lld "
                                     "members.",
                                     (long long)work->env->size_max));
    }
    return full && (!work->old || beat->names) ? (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE
                                               : (int16_t)MILL_KERR_NONE;
}

/* The group's epoch, when subscriptions or their topics changed. ret: enum mill_kerr. */
static int16_t subscriptions_look(struct mill_plan_work *work, bool changed)
{
    const struct mill_consumer_topics *topics = &work->env->topics;
    work->epoch = work->group->generation;
    work->plan->topics_seen = work->consumers->topics_seen;
    if (!changed && work->consumers->topics_seen == topics->version) {
        return MILL_KERR_NONE;
    }
    int16_t error = mill_plan_regexes_look(work);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    if (!mill_plan_hash(work)) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    mill_plan_regexes_put(work);
    work->plan->topics_seen = topics->version;
    if (changed || work->hash != work->consumers->hash) {
        work->epoch = work->epoch == INT32_MAX ? 1 : work->epoch + 1;
        mill_plan_put_epoch(work, work->epoch, work->hash);
        work->plan->rebalances = true;
    }
    return MILL_KERR_NONE;
}

/* An empty group of the classic protocol becomes one of this: its record goes. */
static void classic_bury(struct mill_plan_work *work)
{
    uint32_t key_bytes = 0;
    if (!work->group->consumers && !work->plan->converts && work->group->generation > 0) {
        uint8_t *key = mill_group_key_write(&work->plan->pool, work->group->id, &key_bytes);
        mill_plan_put(work->plan, key, key_bytes, NULL, -1);
    }
}

/* Several that join one after the other are given their shares at once. */
static bool assigns_now(const struct mill_plan_work *work)
{
    int64_t interval_ms = mill_consumer_times(work->env, work->group).assignment_interval_ms;
    int64_t before_ms = work->consumers->assigned_ms;
#ifdef MILL_MUTANT_CONSUMER_ASSIGNS_ALWAYS
    return true;
#endif
    return before_ms == 0 || interval_ms == 0 ||
           work->env->group->now_ms - before_ms >= interval_ms;
}

static void answer_make(struct mill_plan_work *work, const struct mill_consumer_beat *beat)
{
    struct mill_consumer_plan *plan = work->plan;
    bool whole = beat->epoch == MILL_CONSUMER_JOINS ||
                 (beat->rebalance_timeout_ms != -1 && beat->names && beat->owned_told);
    bool same = work->old && mill_parts_equal(&work->old->assigned, &work->next->assigned);
    plan->member_id = mill_pool_text(&plan->pool, "%s", work->next->id);
    plan->no_memory = plan->no_memory || !plan->member_id;
    plan->epoch = work->next->epoch;
    plan->assignment = whole || !same;
    if (beat->classic) {
        plan->protocol = mill_pool_text(&plan->pool, "%s", beat->classic[0].name);
        plan->no_memory = plan->no_memory || !plan->protocol;
    }
}

/* A heartbeat of one that is, or becomes, a member. ret: enum mill_kerr. */
static int16_t beat_go_on(struct mill_plan_work *work, struct mill_consumer_beat *beat)
{
    int16_t error = member_look(work, beat);
    if (error == MILL_KERR_NONE && work->old && strcmp(work->old->id, beat->member_id) == 0) {
        error = epoch_check(work, beat);
    }
    error = error ? error : room_check(work, beat);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    if (!next_make(work, beat)) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    bool replaced = work->old && strcmp(work->old->id, beat->member_id) != 0;
    bool changed = !work->old || !mill_plan_same_subscription(work->old, work->next);
    classic_bury(work);
    if (replaced) {
        put_removal(work, work->old);
    }
    if (!work->old || !same_words(work->old, work->next)) {
        mill_plan_put_member(work, work->next);
    }
    error = subscriptions_look(work, changed);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    bool assigns = work->epoch > work->consumers->assignment_epoch && assigns_now(work);
    if (assigns && !targets_make(work, replaced)) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (replaced && !assigns) {
        mill_plan_put_target(work, work->next->id, &work->next->target);
    }
    if (!reconcile(work, beat, assigns ? work->epoch : work->consumers->assignment_epoch)) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (!work->old || replaced || !same_place(work->old, work->next)) {
        mill_plan_put_current(work, work->next);
    }
    answer_make(work, beat);
    /* A classic member that took over the name of the last one of this protocol. */
    if (replaced && beat->classic &&
        !mill_plan_maybe_downgrade(work, work->epoch == work->group->generation)) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (work->plan->rests) {
        work->plan->epoch = work->group->generation;
    }
    return MILL_KERR_NONE;
}

/* --- going -------------------------------------------------------------------------------------
 */

/* Removes the members listed; the others get what they had when one of them speaks. */
static bool removal_make(struct mill_plan_work *work)
{
    for (uint32_t i = 0; i < work->removed_count; i++) {
        put_removal(work, work->removed[i]);
    }
    work->epoch = work->group->generation == INT32_MAX ? 1 : work->group->generation + 1;
    work->plan->topics_seen = work->consumers->topics_seen;
    if (!mill_plan_hash(work)) {
        return false;
    }
    mill_plan_regexes_put(work);
    mill_plan_put_epoch(work, work->epoch, work->hash);
    work->plan->rebalances = true;
    return mill_plan_maybe_downgrade(work, false);
}

/* A static member goes and says that it will be back: it keeps what it has. */
static bool leave_awhile(struct mill_plan_work *work)
{
    struct mill_consumer *next = mill_pool_take(&work->plan->pool, sizeof(*next));
    if (!next) {
        return false;
    }
    *next = *work->old;
    next->epoch = MILL_CONSUMER_LEAVES_AWHILE;
    next->state = MILL_CONSUMER_STABLE;
    next->revoking = (struct mill_parts){0};
    work->plan->topics_seen = work->consumers->topics_seen;
    mill_plan_put_current(work, next);
    work->plan->removes = true;
    return true;
}

static int16_t beat_leave(struct mill_plan_work *work, const struct mill_consumer_beat *beat)
{
    int16_t error = member_look(work, beat);
    if (error != MILL_KERR_NONE) {
        return error;
    }
    bool good = false;
    if (beat->epoch == MILL_CONSUMER_LEAVES_AWHILE) {
        good = leave_awhile(work);
    } else {
        const struct mill_consumer *gone[] = {work->old};
        work->removed = gone;
        work->removed_count = 1;
        good = removal_make(work);
        work->removed = NULL;
    }
    work->plan->member_id = mill_pool_text(&work->plan->pool, "%s", beat->member_id);
    work->plan->epoch = beat->epoch;
    return good && work->plan->member_id ? (int16_t)MILL_KERR_NONE
                                         : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE;
}

/* ---------------------------------------------------------------------------------------------- */

static void plan_end(struct mill_consumer_plan *plan, int16_t error)
{
    plan->error = error == MILL_KERR_NONE && plan->no_memory
                      ? (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE
                      : error;
    if (plan->error != MILL_KERR_NONE) {
        plan->records_count = 0;
    }
}

void mill_consumer_beat(struct mill_consumer_env *env, struct mill_group *group,
                        struct mill_consumer_beat *beat, struct mill_consumer_plan *plan)
{
    struct mill_plan_work work = {.env = env,
                                  .group = group,
                                  .consumers = group->consumers ? group->consumers : &nothing,
                                  .plan = plan};
    int16_t error = mill_consumer_beat_check(env, beat, plan);
    error = error ? error : group_check(&work, beat);
    if (error == MILL_KERR_NONE) {
        error = beat->epoch < 0 ? beat_leave(&work, beat) : beat_go_on(&work, beat);
    }
    plan_end(plan, error);
    struct mill_consumer *member = mill_consumer_find(group, beat->member_id);
    if (plan->error == MILL_KERR_NONE && member && beat->epoch >= 0) {
        mill_consumer_renew(env, group, member);
        mill_consumer_timer(env, group);
    }
    if (plan->error == MILL_KERR_NONE && plan->records_count == 0 && group->consumers) {
        mill_plan_looked(group->consumers, plan);
    }
}

/* One that a LeaveGroup names. ret: enum mill_kerr. */
static int16_t leaving_find(const struct mill_group *group,
                            const struct mill_consumer_leaving *leaving,
                            const struct mill_consumer **ret_member)
{
    const struct mill_consumer *member =
        leaving->instance_id ? mill_consumer_find_static(group->consumers, leaving->instance_id)
                             : mill_consumer_find(group, leaving->member_id);
    *ret_member = member;
    if (!member) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    /* An administrator names a static member without its id. */
    bool other = leaving->member_id[0] != '\0' && strcmp(member->id, leaving->member_id) != 0;
    return leaving->instance_id && other ? (int16_t)MILL_KERR_FENCED_INSTANCE_ID
                                         : (int16_t)MILL_KERR_NONE;
}

void mill_consumer_leave(struct mill_consumer_env *env, struct mill_group *group,
                         struct mill_consumer_plan *plan)
{
    struct mill_plan_work work = {
        .env = env, .group = group, .consumers = group->consumers, .plan = plan};
    work.removed = mill_pool_take(&plan->pool, plan->leaving_count * sizeof(work.removed[0]));
    for (uint32_t i = 0; work.removed && i < plan->leaving_count; i++) {
        struct mill_consumer_leaving *leaving = &plan->leaving[i];
        const struct mill_consumer *member = NULL;
        leaving->error = leaving_find(group, leaving, &member);
        if (leaving->error == MILL_KERR_NONE && !mill_plan_is_removed(&work, member)) {
            work.removed[work.removed_count++] = member;
        }
    }
    bool good = work.removed && (work.removed_count == 0 || removal_make(&work));
    plan_end(plan, good ? MILL_KERR_NONE : MILL_KERR_COORDINATOR_NOT_AVAILABLE);
}

void mill_consumer_time(struct mill_consumer_env *env, struct mill_group *group,
                        struct mill_consumer_plan *plan)
{
    const struct mill_consumer *gone[REMOVALS_MAX];
    struct mill_plan_work work = {.env = env,
                                  .group = group,
                                  .consumers = group->consumers ? group->consumers : &nothing,
                                  .plan = plan,
                                  .removed = gone};
    uint32_t most = work.consumers->removals_max > 0 ? work.consumers->removals_max : REMOVALS_MAX;
    for (const struct mill_consumer *member = work.consumers->first;
         member && work.removed_count < most; member = member->next) {
        bool silent = member->expires_ns <= env->group->now_ns;
        bool clings = member->revoke_due_ns <= env->group->now_ns ||
                      member->join_due_ns <= env->group->now_ns ||
                      member->sync_due_ns <= env->group->now_ns;
#ifdef MILL_MUTANT_CONSUMER_CLINGS
        clings = false;
#endif
        if (silent || clings) {
            gone[work.removed_count++] = member;
        }
    }
    bool good = work.removed_count == 0 || removal_make(&work);
    plan->expired = work.removed_count;
    plan_end(plan, good ? MILL_KERR_NONE : MILL_KERR_COORDINATOR_NOT_AVAILABLE);
}

bool mill_consumer_remove_fewer(struct mill_group *group, const struct mill_consumer_plan *plan)
{
    if (!group->consumers || plan->expired < 2) {
        return false;
    }
    group->consumers->removals_max = plan->expired / 2;
    return true;
}

void mill_consumer_bury_group(const struct mill_group *group, struct mill_consumer_plan *plan)
{
    const struct mill_consumer_group *consumers = group->consumers ? group->consumers : &nothing;
    for (const struct mill_consumer_regex *regex = consumers->regexes; regex; regex = regex->next) {
        mill_plan_put_tombstone(plan, group, MILL_CONSUMER_RECORD_REGEX, regex->text);
    }
    mill_plan_put_tombstone(plan, group, MILL_CONSUMER_RECORD_TARGET_EPOCH, NULL);
    mill_plan_put_tombstone(plan, group, MILL_CONSUMER_RECORD_EPOCH, NULL);
}

void mill_consumer_bury(const struct mill_group *group, struct mill_consumer_plan *plan)
{
    mill_consumer_bury_group(group, plan);
    plan_end(plan, MILL_KERR_NONE);
}

void mill_consumer_done(struct mill_consumer_env *env, struct mill_group *group,
                        const struct mill_consumer_plan *plan)
{
    env->group->rebalances += plan->rebalances;
    env->group->expired_members += plan->expired;
    if (group->consumers) {
        mill_plan_looked(group->consumers, plan);
        mill_consumer_timer(env, group);
    }
}
