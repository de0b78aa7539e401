/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a group of the consumer protocol, and how records change it; see consumer.h. */
#include "control/group/consumer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/group/consumer_records.h"
#include "control/group/member.h"
#include "protocol/errors.h"

/* --- memory ------------------------------------------------------------------------------------
 */

static uint64_t text_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static uint64_t texts_bytes(char *const *texts, uint32_t count)
{
    uint64_t sum = count * sizeof(texts[0]);
    for (uint32_t i = 0; i < count; i++) {
        sum += text_bytes(texts[i]);
    }
    return sum;
}

static uint64_t member_bytes(const struct mill_consumer *member)
{
    uint64_t parts =
        (uint64_t)member->assigned.count + member->revoking.count + member->target.count;
    return sizeof(*member) + text_bytes(member->id) + text_bytes(member->instance_id) +
           text_bytes(member->rack_id) + text_bytes(member->client_id) +
           text_bytes(member->client_host) + text_bytes(member->regex) +
           text_bytes(member->assignor) + texts_bytes(member->names, member->names_count) +
           mill_protocols_bytes(member->classic, member->classic_count) +
           parts * sizeof(struct mill_part);
}

static uint64_t regex_bytes(const struct mill_consumer_regex *regex)
{
    return sizeof(*regex) + text_bytes(regex->text) +
           texts_bytes(regex->topics, regex->topics_count);
}

static void texts_free(char **texts, uint32_t count)
{
    for (uint32_t i = 0; texts && i < count; i++) {
        free(texts[i]);
    }
    free(texts);
}

static char **texts_copy(char *const *from, uint32_t count)
{
    char **to = calloc(MILL_MAX(count, 1u), sizeof(to[0]));
    for (uint32_t i = 0; to && i < count; i++) {
        to[i] = mill_text_copy(from[i]);
        if (!to[i]) {
            texts_free(to, count);
            return NULL;
        }
    }
    return to;
}

static void member_free(struct mill_group_env *env, struct mill_consumer *member)
{
    env->bytes -= member_bytes(member);
    env->members_count--;
    free(member->id);
    free(member->instance_id);
    free(member->rack_id);
    free(member->client_id);
    free(member->client_host);
    free(member->regex);
    free(member->assignor);
    texts_free(member->names, member->names_count);
    mill_protocols_free(member->classic, member->classic_count);
    mill_parts_free(&member->assigned);
    mill_parts_free(&member->revoking);
    mill_parts_free(&member->target);
    free(member);
}

static void regex_free(struct mill_group_env *env, struct mill_consumer_regex *regex)
{
    env->bytes -= regex_bytes(regex);
    free(regex->text);
    texts_free(regex->topics, regex->topics_count);
    free(regex);
}

void mill_consumer_drop(struct mill_group_env *env, struct mill_group *group)
{
    struct mill_consumer_group *consumers = group->consumers;
    while (consumers && consumers->first) {
        struct mill_consumer *next = consumers->first->next;
        member_free(env, consumers->first);
        consumers->first = next;
    }
    while (consumers && consumers->regexes) {
        struct mill_consumer_regex *next = consumers->regexes->next;
        regex_free(env, consumers->regexes);
        consumers->regexes = next;
    }
    free(consumers);
    group->consumers = NULL;
}

/* --- looking -----------------------------------------------------------------------------------
 */

struct mill_consumer *mill_consumer_find(const struct mill_group *group, const char *member_id)
{
    struct mill_consumer *member = group->consumers ? group->consumers->first : NULL;
    while (member && strcmp(member->id, member_id) != 0) {
        member = member->next;
    }
    return member;
}

struct mill_consumer *mill_consumer_find_static(const struct mill_consumer_group *consumers,
                                                const char *instance_id)
{
    struct mill_consumer *member = consumers->first;
    while (member && !(member->instance_id && strcmp(member->instance_id, instance_id) == 0)) {
        member = member->next;
    }
    return member;
}

bool mill_consumer_is_owned(const struct mill_consumer_group *consumers,
                            const struct mill_part *part, const struct mill_consumer *but)
{
#ifdef MILL_MUTANT_CONSUMER_UNRELEASED
    return false;
#endif
    for (const struct mill_consumer *member = consumers->first; member; member = member->next) {
        if (member != but && (mill_parts_find(&member->assigned, &part->topic, part->partition) ||
                              mill_parts_find(&member->revoking, &part->topic, part->partition))) {
            return true;
        }
    }
    return false;
}

static bool texts_have(char *const *texts, uint32_t count, const char *text)
{
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(texts[middle], text);
        if (order == 0) {
            return true;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return false;
}

bool mill_consumer_subscribes(const struct mill_group *group, const char *topic)
{
    const struct mill_consumer_group *consumers = group->consumers;
    for (const struct mill_consumer *member = consumers->first; member; member = member->next) {
        if (texts_have(member->names, member->names_count, topic)) {
            return true;
        }
    }
    for (const struct mill_consumer_regex *regex = consumers->regexes; regex; regex = regex->next) {
        if (texts_have(regex->topics, regex->topics_count, topic)) {
            return true;
        }
    }
    return false;
}

enum mill_group_state mill_consumer_group_state(const struct mill_group *group)
{
    const struct mill_consumer_group *consumers = group->consumers;
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_GROUP_DEAD;
    }
    if (consumers->count == 0) {
        return MILL_GROUP_EMPTY;
    }
    if (group->generation > consumers->assignment_epoch) {
        return MILL_GROUP_ASSIGNING;
    }
    for (const struct mill_consumer *member = consumers->first; member; member = member->next) {
        if (member->state != MILL_CONSUMER_STABLE || member->epoch != consumers->assignment_epoch) {
            return MILL_GROUP_RECONCILING;
        }
    }
    return MILL_GROUP_STABLE;
}

void mill_consumer_vote(const struct mill_consumer *member, uint32_t votes[MILL_ASSIGNOR_COUNT])
{
    enum mill_assignor wish =
        member->assignor ? mill_assignor_of(member->assignor) : MILL_ASSIGNOR_COUNT;
    if (wish < MILL_ASSIGNOR_COUNT) {
        votes[wish]++;
    }
}

enum mill_assignor mill_consumer_elect(const struct mill_consumer_env *env,
                                       const uint32_t votes[MILL_ASSIGNOR_COUNT])
{
    enum mill_assignor best = env->preferred;
    for (uint32_t i = 0; i < MILL_ASSIGNOR_COUNT; i++) {
        best = votes[i] > votes[best] ? (enum mill_assignor)i : best;
    }
    return best;
}

int16_t mill_consumer_may_commit(const struct mill_group *group, const struct mill_consumer *member,
                                 int32_t epoch, int16_t version, const struct mill_uuid *topic_id,
                                 int32_t partition)
{
    if (group->state == MILL_GROUP_DEAD) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (epoch < 0 && group->consumers->count == 0) {
        return MILL_KERR_NONE; /* an administrator, or partitions assigned by hand */
    }
    if (!member) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    if (member->classic) {
        return epoch == member->epoch ? (int16_t)MILL_KERR_NONE
                                      : (int16_t)MILL_KERR_ILLEGAL_GENERATION;
    }
    if (version < 9) {
        return MILL_KERR_UNSUPPORTED_VERSION; /* it cannot mean an epoch of a member */
    }
    if (epoch == member->epoch) {
        return MILL_KERR_NONE;
    }
#ifdef MILL_MUTANT_CONSUMER_STALE_COMMIT
    return MILL_KERR_NONE;
#endif
    if (epoch > member->epoch || epoch < 0) {
        return MILL_KERR_STALE_MEMBER_EPOCH;
    }
    /* From before the epoch rose: right for what it has owned since then (KIP-1251). */
    const struct mill_part *part =
        topic_id ? mill_parts_find(&member->assigned, topic_id, partition) : NULL;
    part = part || !topic_id ? part : mill_parts_find(&member->revoking, topic_id, partition);
    return !topic_id || (part && part->epoch <= epoch) ? (int16_t)MILL_KERR_NONE
                                                       : (int16_t)MILL_KERR_STALE_MEMBER_EPOCH;
}

int16_t mill_consumer_may_fetch(const struct mill_group *group, const char *member_id,
                                int32_t epoch)
{
    if (!member_id && epoch < 0) {
        return MILL_KERR_NONE;
    }
    const struct mill_consumer *member = mill_consumer_find(group, member_id ? member_id : "");
    if (!member) {
        return MILL_KERR_UNKNOWN_MEMBER_ID;
    }
    return member->epoch == epoch ? (int16_t)MILL_KERR_NONE
           : member->classic      ? (int16_t)MILL_KERR_ILLEGAL_GENERATION
                                  : (int16_t)MILL_KERR_STALE_MEMBER_EPOCH;
}

/* --- time --------------------------------------------------------------------------------------
 */

static uint64_t ms_later(const struct mill_group_env *env, int64_t ms)
{
    return env->now_ns + (uint64_t)MILL_MAX(ms, (int64_t)0) * MILL_NS_PER_MS;
}

struct mill_consumer_times mill_consumer_times(const struct mill_consumer_env *env,
                                               const struct mill_group *group)
{
    struct mill_consumer_times times = env->times;
#ifndef MILL_MUTANT_GROUP_SETTING_IGNORED
    if (env->own_times) {
        env->own_times(env->own_context, group->id, &times);
    }
#endif
    return times;
}

void mill_consumer_renew(const struct mill_consumer_env *env, const struct mill_group *group,
                         struct mill_consumer *member)
{
    member->expires_ns =
        ms_later(env->group, member->classic ? member->classic_session_ms
                                             : mill_consumer_times(env, group).session_timeout_ms);
}

void mill_consumer_timer(struct mill_consumer_env *env, struct mill_group *group)
{
    uint64_t at = MILL_NEVER;
    const struct mill_consumer *member = group->consumers ? group->consumers->first : NULL;
    for (; member; member = member->next) {
        at = MILL_MIN(at, MILL_MIN(member->expires_ns, member->revoke_due_ns));
        at = MILL_MIN(at, MILL_MIN(member->join_due_ns, member->sync_due_ns));
    }
    env->group->calls->timer(env->group->context, group, at);
}

void mill_consumer_resume(struct mill_consumer_env *env, struct mill_group *group)
{
    struct mill_consumer_group *consumers = group->consumers;
    struct mill_consumer **at = &consumers->first;
    consumers->last = &consumers->first;
    while (*at) {
        struct mill_consumer *member = *at;
        if (!member->known) {
            *at = member->next;
            consumers->count--;
            member_free(env->group, member);
            continue;
        }
        mill_consumer_renew(env, group, member);
        if (member->state == MILL_CONSUMER_UNREVOKED && !member->classic) {
            member->revoke_due_ns = ms_later(env->group, member->rebalance_timeout_ms);
        }
        consumers->last = &member->next;
        at = &member->next;
    }
    group->state = consumers->count > 0 ? MILL_GROUP_STABLE : MILL_GROUP_EMPTY;
    consumers->topics_seen = 0;
    mill_consumer_timer(env, group);
}

/* --- records -----------------------------------------------------------------------------------
 */

static struct mill_consumer_group *consumers_of(struct mill_group *group)
{
    if (!group->consumers) {
        group->consumers = calloc(1, sizeof(*group->consumers));
        if (group->consumers) {
            group->consumers->last = &group->consumers->first;
        }
    }
    if (group->consumers && mill_group_set_text(&group->protocol_type, "consumer") < 0) {
        return NULL;
    }
    return group->consumers;
}

static struct mill_consumer *member_make(struct mill_consumer_env *env, struct mill_group *group,
                                         const char *id)
{
    struct mill_consumer_group *consumers = consumers_of(group);
    struct mill_consumer *member = consumers ? mill_consumer_find(group, id) : NULL;
    if (!consumers || member) {
        return member;
    }
    member = calloc(1, sizeof(*member));
    if (!member) {
        return NULL;
    }
    member->id = mill_text_copy(id);
    member->client_id = mill_text_copy("");
    member->client_host = mill_text_copy("");
    mill_consumer_renew(env, group, member);
    member->revoke_due_ns = MILL_NEVER;
    member->join_due_ns = MILL_NEVER;
    member->sync_due_ns = MILL_NEVER;
    if (!member->id || !member->client_id || !member->client_host) {
        free(member->id);
        free(member->client_id);
        free(member->client_host);
        free(member);
        return NULL;
    }
    env->group->bytes += member_bytes(member);
    env->group->members_count++;
    *consumers->last = member;
    consumers->last = &member->next;
    consumers->count++;
    group->state = group->state == MILL_GROUP_EMPTY ? MILL_GROUP_STABLE : group->state;
    return member;
}

static void member_remove(struct mill_consumer_env *env, struct mill_group *group,
                          const char *member_id)
{
    struct mill_consumer *member = mill_consumer_find(group, member_id);
    if (!member) {
        return;
    }
    struct mill_consumer_group *consumers = group->consumers;
    struct mill_consumer **at = &consumers->first;
    while (*at != member) {
        at = &(*at)->next;
    }
    *at = member->next;
    if (!member->next) {
        consumers->last = at;
    }
    consumers->count--;
    member_free(env->group, member);
    if (consumers->count == 0 && group->state == MILL_GROUP_STABLE) {
        group->state = MILL_GROUP_EMPTY;
        group->state_ms = env->group->now_ms;
    }
}

/* Takes over who a member is. */
static bool member_tell(struct mill_consumer *member, const struct mill_consumer *told)
{
    char **names = texts_copy(told->names, told->names_count);
    struct mill_group_protocol *classic =
        told->classic ? mill_protocols_copy(told->classic, told->classic_count) : NULL;
    bool whole = names && (classic || !told->classic) &&
                 mill_group_set_text(&member->instance_id, told->instance_id) == 0 &&
                 mill_group_set_text(&member->rack_id, told->rack_id) == 0 &&
                 mill_group_set_text(&member->client_id, told->client_id) == 0 &&
                 mill_group_set_text(&member->client_host, told->client_host) == 0 &&
                 mill_group_set_text(&member->regex, told->regex) == 0 &&
                 mill_group_set_text(&member->assignor, told->assignor) == 0;
    if (!whole) {
        texts_free(names, told->names_count);
        mill_protocols_free(classic, told->classic_count);
        return false;
    }
    mill_protocols_free(member->classic, member->classic_count);
    member->classic = classic;
    member->classic_count = told->classic_count;
    member->classic_session_ms = told->classic_session_ms;
    texts_free(member->names, member->names_count);
    member->names = names;
    member->names_count = told->names_count;
    member->rebalance_timeout_ms = told->rebalance_timeout_ms;
    member->known = true;
    return true;
}

static bool parts_replace(struct mill_parts *to, const struct mill_parts *from)
{
    struct mill_parts copy;
    if (!mill_parts_keep(from, &copy)) {
        return false;
    }
    mill_parts_free(to);
    *to = copy;
    return true;
}

/* Takes over where a member stands. */
static bool member_move(struct mill_consumer_env *env, struct mill_consumer *member,
                        const struct mill_consumer *told)
{
    bool begins = member->state != MILL_CONSUMER_UNREVOKED || member->epoch != told->epoch ||
                  !mill_parts_equal(&member->revoking, &told->revoking);
    if (!parts_replace(&member->assigned, &told->assigned) ||
        !parts_replace(&member->revoking, &told->revoking)) {
        return false;
    }
    member->epoch = told->epoch;
    member->previous_epoch = told->previous_epoch;
    member->state = told->state;
    if (told->state != MILL_CONSUMER_UNREVOKED || member->classic) {
        member->revoke_due_ns =
            MILL_NEVER; /* classic ones are asked to join, and have until then */
    } else if (begins) {
        member->revoke_due_ns = ms_later(env->group, member->rebalance_timeout_ms);
    }
    return true;
}

static bool apply_member(struct mill_consumer_env *env, struct mill_group *group,
                         const struct mill_consumer_record *record)
{
    static const struct mill_consumer nothing;
    bool who = record->type == MILL_CONSUMER_RECORD_MEMBER;
    if (record->tombstone && who) {
        member_remove(env, group, record->about);
        return true;
    }
    if (record->tombstone && !mill_consumer_find(group, record->about)) {
        return true;
    }
    struct mill_consumer *member = member_make(env, group, record->about);
    const struct mill_consumer *told = record->tombstone ? &nothing : &record->member;
    if (!member) {
        return false;
    }
    env->group->bytes -= member_bytes(member);
    bool good = who ? member_tell(member, told)
                : record->type == MILL_CONSUMER_RECORD_TARGET
                    ? parts_replace(&member->target, &told->target)
                    : member_move(env, member, told);
    env->group->bytes += member_bytes(member);
    if (who && good) {
        mill_consumer_renew(env, group, member);
    }
    return good;
}

static bool apply_regex(struct mill_consumer_env *env, struct mill_group *group,
                        const struct mill_consumer_record *record)
{
    struct mill_consumer_group *consumers =
        record->tombstone ? group->consumers : consumers_of(group);
    struct mill_consumer_regex **at = consumers ? &consumers->regexes : NULL;
    while (at && *at && strcmp((*at)->text, record->about) != 0) {
        at = &(*at)->next;
    }
    if (at && *at) {
        struct mill_consumer_regex *old = *at;
        *at = old->next;
        regex_free(env->group, old);
    }
    if (record->tombstone) {
        return true;
    }
    struct mill_consumer_regex *regex = consumers ? calloc(1, sizeof(*regex)) : NULL;
    if (!regex) {
        return false;
    }
    regex->text = mill_text_copy(record->about);
    regex->topics = texts_copy(record->regex.topics, record->regex.topics_count);
    if (!regex->text || !regex->topics) {
        texts_free(regex->topics, record->regex.topics_count);
        free(regex->text);
        free(regex);
        return false;
    }
    regex->topics_count = record->regex.topics_count;
    regex->next = consumers->regexes;
    consumers->regexes = regex;
    env->group->bytes += regex_bytes(regex);
    return true;
}

bool mill_consumer_apply(struct mill_consumer_env *env, struct mill_group *group,
                         const struct mill_consumer_record *record)
{
    struct mill_consumer_group *consumers = NULL;
    switch (record->type) {
    case MILL_CONSUMER_RECORD_MEMBER:
    case MILL_CONSUMER_RECORD_TARGET:
    case MILL_CONSUMER_RECORD_CURRENT:
        return apply_member(env, group, record);
    case MILL_CONSUMER_RECORD_REGEX:
        return apply_regex(env, group, record);
    case MILL_CONSUMER_RECORD_EPOCH:
        if (record->tombstone && !group->consumers) {
            return true; /* a classic group now, whose generation is its own */
        }
        if (record->tombstone) {
            mill_consumer_drop(env->group, group);
            group->generation = 0;
            group->state = group->state == MILL_GROUP_STABLE ? MILL_GROUP_EMPTY : group->state;
            return true;
        }
        consumers = consumers_of(group);
        if (consumers) {
            group->generation = record->epoch;
            consumers->hash = record->hash;
        }
        return consumers != NULL;
    case MILL_CONSUMER_RECORD_TARGET_EPOCH:
        consumers = record->tombstone ? group->consumers : consumers_of(group);
        if (consumers) {
            consumers->assignment_epoch = record->tombstone ? 0 : record->epoch;
            consumers->assigned_ms = record->tombstone ? 0 : record->assigned_ms;
        }
        return consumers || record->tombstone;
    case MILL_CONSUMER_RECORD_TOPICS:
        break;
    }
    return true;
}
