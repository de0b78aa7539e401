/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a plan, and the subscriptions it is about; see consumer_work.h. */
#include "control/group/consumer_work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"
#include "control/group/pattern.h"
#include "protocol/errors.h"

enum {
    ROOM_FIRST = 16,
    WHY_BYTES = 160,
};

/* --- records -----------------------------------------------------------------------------------
 */

void mill_consumer_plan_free(struct mill_consumer_plan *plan)
{
    free(plan->records);
    plan->records = NULL;
    mill_pool_clear(&plan->pool);
}

void mill_plan_put(struct mill_consumer_plan *plan, const uint8_t *key, uint32_t key_bytes,
                   const uint8_t *value, int32_t value_bytes)
{
    if (plan->records_count == plan->records_room && !plan->no_memory) {
        uint32_t room = MILL_MAX(2 * plan->records_room, (uint32_t)ROOM_FIRST);
        struct mill_journal_record *records =
            realloc(plan->records, room * sizeof(plan->records[0]));
        plan->records = records ? records : plan->records;
        plan->records_room = records ? room : plan->records_room;
        plan->no_memory = !records;
    }
    plan->no_memory = plan->no_memory || !key || (value_bytes >= 0 && !value);
    if (!plan->no_memory) {
        plan->records[plan->records_count++] = (struct mill_journal_record){
            .key = key, .key_bytes = key_bytes, .value = value, .value_bytes = value_bytes};
    }
}

void mill_plan_put_value(struct mill_plan_work *work, enum mill_consumer_record_type type,
                         const char *about, const uint8_t *value, uint32_t value_bytes)
{
    uint32_t key_bytes = 0;
    const uint8_t *key =
        mill_consumer_key(&work->plan->pool, type, work->group->id, about, &key_bytes);
    mill_plan_put(work->plan, key, key_bytes, value, (int32_t)value_bytes);
}

void mill_plan_put_tombstone(struct mill_consumer_plan *plan, const struct mill_group *group,
                             enum mill_consumer_record_type type, const char *about)
{
    uint32_t key_bytes = 0;
    const uint8_t *key = mill_consumer_key(&plan->pool, type, group->id, about, &key_bytes);
    mill_plan_put(plan, key, key_bytes, NULL, -1);
}

void mill_plan_put_epoch(struct mill_plan_work *work, int32_t epoch, int64_t hash)
{
    uint32_t bytes = 0;
    uint8_t *value = mill_consumer_epoch_value(&work->plan->pool, epoch, hash, &bytes);
    mill_plan_put_value(work, MILL_CONSUMER_RECORD_EPOCH, NULL, value, bytes);
}

void mill_plan_put_member(struct mill_plan_work *work, const struct mill_consumer *member)
{
    uint32_t bytes = 0;
    uint8_t *value = mill_consumer_member_value(&work->plan->pool, member, &bytes);
    mill_plan_put_value(work, MILL_CONSUMER_RECORD_MEMBER, member->id, value, bytes);
}

void mill_plan_put_target(struct mill_plan_work *work, const char *member_id,
                          const struct mill_parts *parts)
{
    uint32_t bytes = 0;
    uint8_t *value = mill_consumer_target_value(&work->plan->pool, parts, &bytes);
    mill_plan_put_value(work, MILL_CONSUMER_RECORD_TARGET, member_id, value, bytes);
}

void mill_plan_put_current(struct mill_plan_work *work, const struct mill_consumer *member)
{
    uint32_t bytes = 0;
    uint8_t *value = mill_consumer_current_value(&work->plan->pool, member, &bytes);
    mill_plan_put_value(work, MILL_CONSUMER_RECORD_CURRENT, member->id, value, bytes);
}

void mill_plan_put_target_epoch(struct mill_plan_work *work, int32_t epoch)
{
    uint32_t bytes = 0;
    uint8_t *value = mill_consumer_target_epoch_value(&work->plan->pool, epoch,
                                                      work->env->group->now_ms, &bytes);
    mill_plan_put_value(work, MILL_CONSUMER_RECORD_TARGET_EPOCH, NULL, value, bytes);
}

/* --- subscriptions -----------------------------------------------------------------------------
 */

static bool has_regex(const struct mill_consumer *member)
{
    return member->regex && member->regex[0] != '\0';
}

static const struct mill_consumer_regex *regex_in(const struct mill_consumer_regex *list,
                                                  const char *text)
{
    while (list && strcmp(list->text, text) != 0) {
        list = list->next;
    }
    return list;
}

/* What it matches: as looked at by this plan, else as known. NULL: not looked at yet. */
static const struct mill_consumer_regex *regex_of(const struct mill_plan_work *work,
                                                  const char *text)
{
    const struct mill_consumer_regex *regex = regex_in(work->regexes, text);
    return regex ? regex : regex_in(work->consumers->regexes, text);
}

struct matching {
    struct mill_pattern *pattern;
    struct mill_pool *pool;
    struct mill_consumer_regex *into;
    uint32_t room;
    int error; /* -E2BIG too many steps, -ENOMEM */
};

static void match_name(void *visitor, const char *name)
{
    struct matching *matching = visitor;
    struct mill_consumer_regex *into = matching->into;
    int rc = matching->error ? 0 : mill_pattern_match(matching->pattern, name);
    if (rc <= 0) {
        matching->error = rc < 0 ? rc : matching->error;
        return;
    }
    if (into->topics_count == matching->room) {
        uint32_t room = MILL_MAX(2 * matching->room, (uint32_t)ROOM_FIRST);
        char **topics = mill_pool_take(matching->pool, room * sizeof(topics[0]));
        if (!topics) {
            matching->error = -ENOMEM;
            return;
        }
        if (into->topics_count > 0) {
            memcpy(topics, into->topics, into->topics_count * sizeof(topics[0]));
        }
        into->topics = topics;
        matching->room = room;
    }
    into->topics[into->topics_count] = mill_pool_text(matching->pool, "%s", name);
    matching->error = into->topics[into->topics_count++] ? 0 : -ENOMEM;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Looks at all topics. ret: enum mill_kerr; plan->message says why. */
static int16_t regex_resolve(struct mill_plan_work *work, const char *text)
{
    struct mill_pool *pool = &work->plan->pool;
    char why[WHY_BYTES] = "";
    struct mill_consumer_regex *regex = mill_pool_take(pool, sizeof(*regex));
    struct matching matching = {.pool = pool, .into = regex};
    if (!regex) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    int rc = mill_pattern_open(text, why, sizeof(why), &matching.pattern);
    if (rc == -EINVAL) {
        work->plan->message =
            mill_pool_text(pool, "SubscribedTopicRegex %s is not valid: %s.", text, why);
        return MILL_KERR_INVALID_REGULAR_EXPRESSION;
    }
    if (rc == 0) {
        work->env->topics.each(work->env->topics.context, match_name, &matching);
        mill_pattern_close(matching.pattern);
        rc = matching.error;
    }
    if (rc == -E2BIG) {
        work->plan->message = mill_pool_text(
            pool, "SubscribedTopicRegex %s takes too many steps to match a topic.", text);
        return MILL_KERR_INVALID_REGULAR_EXPRESSION;
    }
    if (rc < 0) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (regex->topics_count > 1) {
        qsort(regex->topics, regex->topics_count, sizeof(regex->topics[0]), by_text);
    }
    regex->text = (char *)(uintptr_t)text;
    regex->next = work->regexes;
    work->regexes = regex;
    return MILL_KERR_NONE;
}

uint32_t mill_plan_names_sort(char **names, uint32_t count)
{
    uint32_t kept = count > 0;
    if (count > 1) {
        qsort(names, count, sizeof(names[0]), by_text);
    }
    for (uint32_t i = 1; i < count; i++) {
        if (strcmp(names[kept - 1], names[i]) != 0) {
            names[kept++] = names[i];
        }
    }
    return kept;
}

bool mill_plan_texts_equal(char *const *a, uint32_t a_count, char *const *b, uint32_t b_count)
{
    if (a_count != b_count) {
        return false;
    }
    for (uint32_t i = 0; i < a_count; i++) {
        if (strcmp(a[i], b[i]) != 0) {
            return false;
        }
    }
    return true;
}

bool mill_plan_text_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool mill_plan_same_subscription(const struct mill_consumer *a, const struct mill_consumer *b)
{
    return mill_plan_texts_equal(a->names, a->names_count, b->names, b->names_count) &&
           mill_plan_text_equal(has_regex(a) ? a->regex : NULL, has_regex(b) ? b->regex : NULL);
}

bool mill_plan_is_removed(const struct mill_plan_work *work, const struct mill_consumer *member)
{
    for (uint32_t i = 0; i < work->removed_count; i++) {
        if (work->removed[i] == member) {
            return true;
        }
    }
    return false;
}

static int by_topic(const void *a, const void *b)
{
    const struct mill_assign_topic *left = a;
    const struct mill_assign_topic *right = b;
    return memcmp(left->id.b, right->id.b, sizeof(left->id.b));
}

/* The topics that a member subscribes to and that exist. */
static bool topics_of(struct mill_plan_work *work, const struct mill_consumer *member,
                      struct mill_assign_member *ret)
{
    const struct mill_consumer_topics *topics = &work->env->topics;
    const struct mill_consumer_regex *regex =
        has_regex(member) ? regex_of(work, member->regex) : NULL;
    uint32_t most = member->names_count + (regex ? regex->topics_count : 0);
    struct mill_assign_topic *found = mill_pool_take(&work->plan->pool, most * sizeof(found[0]));
    uint32_t count = 0;
    if (!found) {
        return false;
    }
    for (uint32_t i = 0; i < most; i++) {
        const char *name =
            i < member->names_count ? member->names[i] : regex->topics[i - member->names_count];
        count += topics->by_name(topics->context, name, &found[count]);
    }
    if (count > 1) {
        qsort(found, count, sizeof(found[0]), by_topic);
    }
    uint32_t kept = count > 0;
    for (uint32_t i = 1; i < count; i++) {
        if (by_topic(&found[kept - 1], &found[i]) != 0) {
            found[kept++] = found[i];
        }
    }
    ret->topics = found;
    ret->topics_count = kept;
    return true;
}

bool mill_plan_everybody(struct mill_plan_work *work)
{
    struct mill_pool *pool = &work->plan->pool;
    uint32_t most = work->consumers->count + 1;
    if (work->members) {
        return true;
    }
    work->who = mill_pool_take(pool, most * sizeof(work->who[0]));
    work->members = mill_pool_take(pool, most * sizeof(work->members[0]));
    if (!work->who || !work->members) {
        return false;
    }
    uint32_t count = 0;
    for (const struct mill_consumer *member = work->consumers->first; member;
         member = member->next) {
        if (member != work->old && !mill_plan_is_removed(work, member)) {
            work->who[count++] = member;
        }
    }
    if (work->next) {
        work->who[count++] = work->next;
    }
    work->members_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct mill_assign_member *member = &work->members[i];
        if (i > 0 && mill_plan_same_subscription(work->who[i], work->who[i - 1])) {
            *member = work->members[i - 1];
        } else if (!topics_of(work, work->who[i], member)) {
            return false;
        }
        member->id = work->who[i]->id;
        member->instance_id = work->who[i]->instance_id;
        member->before = work->who[i]->target;
        member->after = (struct mill_parts){0};
    }
    return true;
}

bool mill_plan_hash(struct mill_plan_work *work)
{
    static const uint64_t key[2] = {0x6d696c6c72616365, 0x67726f7570732e2e};
    struct mill_assign_topic *topics = NULL;
    uint32_t count = 0;
    if (!mill_plan_everybody(work) || !mill_assign_union(work->members, work->members_count,
                                                         &work->plan->pool, &topics, &count)) {
        return false;
    }
    work->hash = count > 0 ? (int64_t)mill_siphash(key, topics, count * sizeof(topics[0])) : 0;
    return true;
}

/* Notes that the expression was held against all topics. */
static bool note_look(struct mill_plan_work *work, const char *text)
{
    struct mill_consumer_plan *plan = work->plan;
    const char *copy = mill_pool_text(&plan->pool, "%s", text);
    if (copy) {
        plan->looked[plan->looked_count++] = copy;
    }
    return copy != NULL;
}

/* A new one of a member. ret: enum mill_kerr. */
static int16_t regex_add(struct mill_plan_work *work, const char *text)
{
    uint32_t count = 0;
    for (const struct mill_consumer_regex *regex = work->consumers->regexes; regex;
         regex = regex->next) {
        count++;
    }
#ifdef MILL_MUTANT_CONSUMER_REGEXES_UNCOUNTED
    count = 0;
#endif
    if (count >= MILL_CONSUMER_REGEXES_MAX) {
        work->env->group->full++;
        work->plan->message = mill_pool_text(
            &work->plan->pool, "The consumer group has %u different regular expressions already.",
            (unsigned)MILL_CONSUMER_REGEXES_MAX);
        return MILL_KERR_GROUP_MAX_SIZE_REACHED;
    }
    int16_t error = regex_resolve(work, text);
    return error == MILL_KERR_NONE && !note_look(work, text)
               ? (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE
               : error;
}

int16_t mill_plan_regexes_look(struct mill_plan_work *work)
{
    const struct mill_consumer *next = work->next;
    const uint64_t version = work->env->topics.version;
    bool all = work->consumers->topics_seen != version;
    int16_t error = MILL_KERR_NONE;
    if (next && has_regex(next) && !regex_in(work->consumers->regexes, next->regex)) {
        error = regex_add(work, next->regex);
    }
    for (const struct mill_consumer_regex *regex = work->consumers->regexes;
         regex && all && error == MILL_KERR_NONE; regex = regex->next) {
        if (regex->topics_seen == version) {
            continue;
        }
        if (work->plan->looked_count == MILL_CONSUMER_LOOKS_MAX) {
            break; /* the next heartbeat goes on */
        }
        int16_t looked = regex_resolve(work, regex->text);
#ifndef MILL_MUTANT_CONSUMER_LOOK_MEMORY
        if (looked == MILL_KERR_COORDINATOR_NOT_AVAILABLE) {
            return looked; /* the next heartbeat looks at it again */
        }
#endif
        /* One that became too costly keeps what it matched. */
        work->env->group->full += looked != MILL_KERR_NONE;
        work->plan->message = NULL;
        error = note_look(work, regex->text) ? MILL_KERR_NONE : MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    return error;
}

void mill_plan_looked(struct mill_consumer_group *consumers, const struct mill_consumer_plan *plan)
{
    bool all = true;
    for (struct mill_consumer_regex *regex = consumers->regexes; regex; regex = regex->next) {
        for (uint32_t i = 0; i < plan->looked_count; i++) {
            if (strcmp(regex->text, plan->looked[i]) == 0) {
                regex->topics_seen = plan->topics_seen;
            }
        }
#ifndef MILL_MUTANT_CONSUMER_LOOKS_END
        all = all && regex->topics_seen == plan->topics_seen;
#endif
    }
    if (all) {
        consumers->topics_seen = plan->topics_seen;
    }
}

void mill_plan_regexes_put(struct mill_plan_work *work)
{
    struct mill_pool *pool = &work->plan->pool;
    for (const struct mill_consumer_regex *regex = work->regexes; regex; regex = regex->next) {
        const struct mill_consumer_regex *known = regex_in(work->consumers->regexes, regex->text);
        uint32_t bytes = 0;
        if (known && mill_plan_texts_equal(known->topics, known->topics_count, regex->topics,
                                           regex->topics_count)) {
            continue;
        }
        uint8_t *value = mill_consumer_regex_value(pool, regex, (int64_t)work->env->topics.version,
                                                   work->env->group->now_ms, &bytes);
        mill_plan_put_value(work, MILL_CONSUMER_RECORD_REGEX, regex->text, value, bytes);
    }
    for (const struct mill_consumer_regex *regex = work->consumers->regexes; regex;
         regex = regex->next) {
        bool used = false;
        for (uint32_t i = 0; i < work->members_count && !used; i++) {
            used = mill_plan_text_equal(work->who[i]->regex, regex->text);
        }
        if (!used) {
            mill_plan_put_tombstone(work->plan, work->group, MILL_CONSUMER_RECORD_REGEX,
                                    regex->text);
        }
    }
}
