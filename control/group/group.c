/* SPDX-License-Identifier: Apache-2.0 */
/* The classic group protocol; see group.h. Rules: KIP-62 (two timeouts), KIP-134 (initial delay),
 * KIP-345 (static members), KIP-394 (member id required), KIP-559 (protocol names), KIP-814
 * (skipped assignment). */
#include "control/group/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "protocol/errors.h"

enum {
    PENDING_MAX = 10000, /* ids of one group that nobody joined with yet: each call looks at all */
};

static const uint64_t new_member_ns = 300 * MILL_NS_PER_S;

/* --- memory ------------------------------------------------------------------------------------
 */

static char *text_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

int mill_group_set_text(char **to, const char *value)
{
    char *copy = text_copy(value);
    if (value && !copy) {
        return -ENOMEM;
    }
    free(*to);
    *to = copy;
    return 0;
}

static bool blob_copy(struct mill_group_blob *to, const struct mill_group_blob *from)
{
    *to = (struct mill_group_blob){0};
    if (from->size_bytes > 0) {
        to->bytes = malloc(from->size_bytes);
        if (!to->bytes) {
            return false;
        }
        memcpy(to->bytes, from->bytes, from->size_bytes);
        to->size_bytes = from->size_bytes;
    }
    return true;
}

static uint64_t protocols_bytes(const struct mill_group_protocol *protocols, uint32_t count)
{
    uint64_t sum = count * sizeof(*protocols);
    for (uint32_t i = 0; i < count; i++) {
        sum += strlen(protocols[i].name) + 1 + protocols[i].metadata.size_bytes;
    }
    return sum;
}

static void protocols_free(struct mill_group_protocol *protocols, uint32_t count)
{
    for (uint32_t i = 0; protocols && i < count; i++) {
        free(protocols[i].name);
        free(protocols[i].metadata.bytes);
    }
    free(protocols);
}

static struct mill_group_protocol *protocols_copy(const struct mill_group_protocol *from,
                                                  uint32_t count)
{
    struct mill_group_protocol *to = calloc(MILL_MAX(count, 1u), sizeof(*to));
    for (uint32_t i = 0; to && i < count; i++) {
        to[i].name = text_copy(from[i].name);
        if (!to[i].name || !blob_copy(&to[i].metadata, &from[i].metadata)) {
            protocols_free(to, count);
            return NULL;
        }
    }
    return to;
}

static uint64_t member_bytes(const struct mill_group_member *member)
{
    return sizeof(*member) + strlen(member->id) + strlen(member->client_id) +
           strlen(member->client_host) + (member->instance_id ? strlen(member->instance_id) : 0) +
           protocols_bytes(member->protocols, member->protocols_count) +
           member->assignment.size_bytes;
}

static void member_free(struct mill_group_env *env, struct mill_group_member *member)
{
    env->bytes -= member_bytes(member);
    env->members_count--;
    protocols_free(member->protocols, member->protocols_count);
    free(member->assignment.bytes);
    free(member->id);
    free(member->instance_id);
    free(member->client_id);
    free(member->client_host);
    free(member);
}

static void assignment_clear(struct mill_group_env *env, struct mill_group_member *member)
{
    env->bytes -= member->assignment.size_bytes;
    free(member->assignment.bytes);
    member->assignment = (struct mill_group_blob){0};
}

struct mill_group *mill_group_new(const char *id)
{
    size_t length = strlen(id);
    struct mill_group *group = calloc(1, sizeof(*group) + length + 1);
    if (group) {
        memcpy(group->id, id, length);
        group->members_last = &group->members;
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

void mill_group_clear_members(struct mill_group_env *env, struct mill_group *group)
{
    while (group->members) {
        struct mill_group_member *next = group->members->next;
        member_free(env, group->members);
        group->members = next;
    }
    group->members_last = &group->members;
    group->members_count = 0;
    group->joined_count = 0;
    group->leader = NULL;
}

void mill_group_free(struct mill_group_env *env, struct mill_group *group)
{
    mill_group_clear_members(env, group);
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

struct mill_group_member *mill_group_find(const struct mill_group *group, const char *member_id)
{
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        if (strcmp(member->id, member_id) == 0) {
            return member;
        }
    }
    return NULL;
}

static struct mill_group_member *find_static(const struct mill_group *group,
                                             const char *instance_id)
{
    for (struct mill_group_member *member = group->members; member && instance_id;
         member = member->next) {
        if (member->instance_id && strcmp(member->instance_id, instance_id) == 0) {
            return member;
        }
    }
    return NULL;
}

static struct mill_group_pending **find_pending(struct mill_group *group, const char *member_id)
{
    struct mill_group_pending **at = &group->pending;
    while (*at && strcmp((*at)->id, member_id) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static const struct mill_group_protocol *protocol_of(const struct mill_group_member *member,
                                                     const char *name)
{
    for (uint32_t i = 0; i < member->protocols_count; i++) {
        if (strcmp(member->protocols[i].name, name) == 0) {
            return &member->protocols[i];
        }
    }
    return NULL;
}

const struct mill_group_blob *mill_group_metadata(const struct mill_group *group,
                                                  const struct mill_group_member *member)
{
    static const struct mill_group_blob nothing;
    const struct mill_group_protocol *protocol =
        group->protocol ? protocol_of(member, group->protocol) : NULL;
    return protocol ? &protocol->metadata : &nothing;
}

/* Which protocols of the first member all members support: bit i for its protocol i. One pass over
 * the members, who narrow it. */
static uint64_t protocols_common(const struct mill_group *group)
{
    const struct mill_group_member *first = group->members;
    if (!first) {
        return 0;
    }
    uint32_t count = MILL_MIN(first->protocols_count, (uint32_t)MILL_GROUP_PROTOCOLS_MAX);
    uint64_t common = (UINT64_C(1) << count) - 1;
    for (const struct mill_group_member *member = first->next; member && common;
         member = member->next) {
        for (uint32_t i = 0; i < count; i++) {
            uint64_t bit = UINT64_C(1) << i;
            if ((common & bit) != 0 && !protocol_of(member, first->protocols[i].name)) {
                common &= ~bit;
            }
        }
    }
    return common;
}

/* Its index among the first member's protocols. ret: MILL_GROUP_PROTOCOLS_MAX: not common. */
static uint32_t common_index(const struct mill_group *group, uint64_t common, const char *name)
{
    const struct mill_group_protocol *protocols = group->members->protocols;
    for (uint32_t i = 0; i < MILL_GROUP_PROTOCOLS_MAX && common >> i != 0; i++) {
        if ((common >> i & 1) != 0 && strcmp(protocols[i].name, name) == 0) {
            return i;
        }
    }
    return MILL_GROUP_PROTOCOLS_MAX;
}

static bool protocols_fit(const struct mill_group *group, const struct mill_group_join *join)
{
    if (join->protocol_type[0] == '\0' || join->protocols_count == 0 ||
        join->protocols_count > MILL_GROUP_PROTOCOLS_MAX) {
        return false;
    }
    if (group->state == MILL_GROUP_EMPTY || group->members_count == 0) {
        return true;
    }
    if (!group->protocol_type || strcmp(group->protocol_type, join->protocol_type) != 0) {
        return false;
    }
    uint64_t common = protocols_common(group);
    for (uint32_t i = 0; i < join->protocols_count; i++) {
        if (common_index(group, common, join->protocols[i].name) < MILL_GROUP_PROTOCOLS_MAX) {
            return true;
        }
    }
    return false;
}

/* Majority vote: each member votes for its first protocol that all support. What all support is
 * found once, not once per vote: members of many protocols must not hold up the others. */
static const char *protocol_elect(const struct mill_group *group)
{
    uint32_t votes[MILL_GROUP_PROTOCOLS_MAX] = {0};
    uint32_t best = MILL_GROUP_PROTOCOLS_MAX;
    uint64_t common = protocols_common(group);
    for (const struct mill_group_member *member = group->members; member && common;
         member = member->next) {
        uint32_t index = MILL_GROUP_PROTOCOLS_MAX;
        for (uint32_t i = 0; index == MILL_GROUP_PROTOCOLS_MAX; i++) {
            /* ends: what is common is one of its own */
            index = common_index(group, common, member->protocols[i].name);
        }
        votes[index]++;
    }
    for (uint32_t i = 0; i < MILL_GROUP_PROTOCOLS_MAX; i++) {
        if (votes[i] > 0 && (best == MILL_GROUP_PROTOCOLS_MAX || votes[i] > votes[best])) {
            best = i;
        }
    }
    return best < MILL_GROUP_PROTOCOLS_MAX ? group->members->protocols[best].name : NULL;
}

static bool same_protocols(const struct mill_group_member *member,
                           const struct mill_group_join *join)
{
    if (member->protocols_count != join->protocols_count) {
        return false;
    }
    for (uint32_t i = 0; i < join->protocols_count; i++) {
        const struct mill_group_protocol *a = &member->protocols[i];
        const struct mill_group_protocol *b = &join->protocols[i];
        if (strcmp(a->name, b->name) != 0 || a->metadata.size_bytes != b->metadata.size_bytes ||
            (a->metadata.size_bytes > 0 &&
             memcmp(a->metadata.bytes, b->metadata.bytes, a->metadata.size_bytes) != 0)) {
            return false;
        }
    }
    return true;
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
        assignment_clear(env, member);
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

/* Takes a member out of the list; the group goes on without it. */
static void member_unlink(struct mill_group *group, struct mill_group_member *member)
{
    struct mill_group_member **at = &group->members;
    while (*at != member) {
        at = &(*at)->next;
    }
    *at = member->next;
    if (!member->next) {
        group->members_last = at;
    }
    group->members_count--;
    if (group->leader == member) {
        group->leader = group->members;
    }
}

static void member_remove(struct mill_group_env *env, struct mill_group *group,
                          struct mill_group_member *member)
{
    join_end(env, group, member, MILL_KERR_UNKNOWN_MEMBER_ID);
    sync_end(env, group, member, MILL_KERR_UNKNOWN_MEMBER_ID);
    member_unlink(group, member);
    member_free(env, member);
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
    const char *elected = protocol_elect(group);
    if (!elected || mill_group_set_text(&group->protocol, elected) < 0) {
        mill_group_release(env, group, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
        group->join_due_ns = ms_later(env, rebalance_timeout_ms(group));
        return;
    }
    state_set(env, group, MILL_GROUP_COMPLETING);
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        assignment_clear(env, member);
        member->sync_missing = true;
        member->is_new = false;
        join_end(env, group, member, MILL_KERR_NONE);
    }
    group->sync_due_ns = ms_later(env, rebalance_timeout_ms(group));
}

/* --- members -----------------------------------------------------------------------------------
 */

/* ret: NULL no memory, or over the limit (counted). */
static struct mill_group_member *member_add(struct mill_group_env *env, struct mill_group *group,
                                            const char *member_id,
                                            const struct mill_group_join *join)
{
    struct mill_group_member *member = calloc(1, sizeof(*member));
    if (!member) {
        return NULL;
    }
    member->id = text_copy(member_id);
    member->instance_id = text_copy(join->instance_id);
    member->client_id = text_copy(join->client_id);
    member->client_host = text_copy(join->client_host);
    member->rebalance_timeout_ms = join->rebalance_timeout_ms;
    member->session_timeout_ms = join->session_timeout_ms;
    member->protocols = protocols_copy(join->protocols, join->protocols_count);
    member->protocols_count = join->protocols_count;
    member->expires_ns = MILL_NEVER;
    bool whole = member->id && member->client_id && member->client_host && member->protocols &&
                 (member->instance_id || !join->instance_id);
    bool room = whole && env->bytes + member_bytes(member) <= env->bytes_max;
#ifdef MILL_MUTANT_GROUP_MEMORY
    room = whole;
#endif
    if (!room) {
        env->full++;
        protocols_free(member->protocols, join->protocols_count);
        free(member->id);
        free(member->instance_id);
        free(member->client_id);
        free(member->client_host);
        free(member);
        return NULL;
    }
    env->bytes += member_bytes(member);
    env->members_count++;
    *group->members_last = member;
    group->members_last = &member->next;
    group->members_count++;
    if (!group->leader) {
        group->leader = member;
    }
    return member;
}

/* Takes over what a known member says of itself now. ret: false no memory. */
static bool member_update(struct mill_group_env *env, struct mill_group_member *member,
                          const struct mill_group_join *join)
{
    struct mill_group_protocol *protocols = protocols_copy(join->protocols, join->protocols_count);
    uint64_t before = protocols_bytes(member->protocols, member->protocols_count);
    uint64_t after = protocols_bytes(join->protocols, join->protocols_count);
    if (!protocols || (after > before && env->bytes + after - before > env->bytes_max)) {
        env->full++;
        protocols_free(protocols, join->protocols_count);
        return false;
    }
    env->bytes = env->bytes - before + after;
    protocols_free(member->protocols, member->protocols_count);
    member->protocols = protocols;
    member->protocols_count = join->protocols_count;
    member->rebalance_timeout_ms = join->rebalance_timeout_ms;
    member->session_timeout_ms = join->session_timeout_ms;
    return true;
}

/* prefix "-" and a random UUID. ret: malloc. */
static char *id_make(struct mill_group_env *env, const char *prefix)
{
    uint8_t b[16];
    char *id = NULL;
    env->calls->random(env->context, b, sizeof(b));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    int size =
        asprintf(&id, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                 prefix, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
                 b[12], b[13], b[14], b[15]);
    return size < 0 ? NULL : id;
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
    struct mill_group_member *member = member_add(env, group, member_id, join);
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
    if (!member_update(env, member, join)) {
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
    if (!member_update(env, member, join)) {
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
    const char *elected = protocol_elect(group);
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
    struct mill_group_member *known = find_static(group, join->instance_id);
    if (!has_room(env, group, known)) {
        env->full++;
        join_refuse(env, join->waiter, "", MILL_KERR_GROUP_MAX_SIZE_REACHED);
        return;
    }
    char *fresh = id_make(env, join->instance_id ? join->instance_id : join->client_id);
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
    const struct mill_group_member *owner = find_static(group, join->instance_id);
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
    bool same = same_protocols(member, join);
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
    } else if (!protocols_fit(group, join)) {
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
    const struct mill_group_member *owner = find_static(group, instance_id);
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

static int by_id(const void *a, const void *b)
{
    const struct mill_group_member *const *left = a;
    const struct mill_group_member *const *right = b;
    return strcmp((*left)->id, (*right)->id);
}

static int id_against(const void *id, const void *member)
{
    const struct mill_group_member *const *at = member;
    return strcmp(id, (*at)->id);
}

/* The members sorted by id. ret: malloc; NULL no memory. */
static struct mill_group_member **members_sorted(const struct mill_group *group)
{
    struct mill_group_member **sorted =
        calloc(MILL_MAX(group->members_count, 1u), sizeof(struct mill_group_member *));
    uint32_t count = 0;
    for (struct mill_group_member *member = group->members; member && sorted;
         member = member->next) {
        sorted[count++] = member;
    }
    if (sorted) {
        qsort(sorted, count, sizeof(struct mill_group_member *), by_id);
    }
    return sorted;
}

static bool assign(struct mill_group_env *env, struct mill_group *group,
                   const struct mill_group_sync *sync)
{
    struct mill_group_member **sorted = members_sorted(group);
    bool whole = sorted != NULL;
    for (uint32_t i = 0; whole && i < sync->assignments_count; i++) {
        struct mill_group_member **found =
            bsearch(sync->assignments[i].member_id, sorted, group->members_count,
                    sizeof(struct mill_group_member *), id_against);
        if (!found) {
            continue;
        }
        struct mill_group_member *member = *found;
        assignment_clear(env, member);
        uint32_t size = sync->assignments[i].bytes.size_bytes;
        whole = env->bytes + size <= env->bytes_max &&
                blob_copy(&member->assignment, &sync->assignments[i].bytes);
        env->bytes += whole ? size : 0;
    }
    env->full += whole ? 0 : 1;
    free(sorted);
    return whole;
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
    if (assign(env, group, sync)) {
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
    struct mill_group_member *member =
        instance_id ? find_static(group, instance_id) : mill_group_find(group, member_id);
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
    struct mill_group_member *member = member_add(env, group, join->member_id, join);
    if (member && blob_copy(&member->assignment, assignment)) {
        env->bytes += member->assignment.size_bytes;
    }
    return member;
}

void mill_group_resume(struct mill_group_env *env, struct mill_group *group)
{
    group->state = group->members_count > 0 ? MILL_GROUP_STABLE : MILL_GROUP_EMPTY;
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        timeout_renew(env, member);
    }
    timer_look(env, group);
}
