/* SPDX-License-Identifier: Apache-2.0 */
/* Server-side assignors; see assignors.h. All partitions of all subscribed topics stand in one
 * table, topic after topic, with their owner; the members' sets are read off it at the end. */
#include "control/group/assignors.h"

#include <stdlib.h>
#include <string.h>

enum {
    NOBODY = -1,
    PASSES_MAX = 16,
};

struct table {
    struct mill_assign_member *members;
    uint32_t members_count;
    struct mill_assign_topic *topics; /* ascending by id */
    uint32_t *first;                  /* of each topic, its first place in owners */
    uint32_t topics_count;
    int32_t *owners; /* index of a member, or NOBODY */
    uint32_t partitions_count;
    uint32_t *loads; /* partitions of each member */
};

/* Compared as bytes. */
static_assert(sizeof(struct mill_assign_topic) == 20, "no padding");

static const char *const names[MILL_ASSIGNOR_COUNT] = {"uniform", "range"};

enum mill_assignor mill_assignor_of(const char *name)
{
    uint32_t i = 0;
    while (i < MILL_ASSIGNOR_COUNT && strcmp(names[i], name) != 0) {
        i++;
    }
    return (enum mill_assignor)i;
}

const char *mill_assignor_name(enum mill_assignor assignor)
{
    return names[assignor];
}

/* --- the table ---------------------------------------------------------------------------------
 */

static int by_topic(const void *a, const void *b)
{
    const struct mill_assign_topic *left = a;
    const struct mill_assign_topic *right = b;
    return memcmp(left->id.b, right->id.b, sizeof(left->id.b));
}

/* All members subscribe to the same topics. */
static bool is_homogeneous(const struct mill_assign_member *members, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (members[i].topics_count != members[0].topics_count ||
            (members[0].topics_count > 0 &&
             memcmp(members[i].topics, members[0].topics,
                    members[0].topics_count * sizeof(members[0].topics[0])) != 0)) {
            return false;
        }
    }
    return true;
}

bool mill_assign_union(const struct mill_assign_member *members, uint32_t count,
                       struct mill_pool *pool, struct mill_assign_topic **ret_topics,
                       uint32_t *ret_count)
{
    uint64_t sum = 0;
    uint32_t first_only = is_homogeneous(members, count) && count > 0 ? 1 : count;
    for (uint32_t i = 0; i < first_only; i++) {
        sum += members[i].topics_count;
    }
    struct mill_assign_topic *topics = mill_pool_take(pool, sum * sizeof(*topics));
    uint32_t kept = 0;
    if (!topics) {
        return false;
    }
    for (uint32_t i = 0; i < first_only; i++) {
        if (members[i].topics_count > 0) {
            memcpy(topics + kept, members[i].topics, members[i].topics_count * sizeof(*topics));
            kept += members[i].topics_count;
        }
    }
    if (first_only > 1 && kept > 1) {
        uint32_t all = kept;
        qsort(topics, all, sizeof(*topics), by_topic);
        kept = 1;
        for (uint32_t i = 1; i < all; i++) {
            if (by_topic(&topics[kept - 1], &topics[i]) != 0) {
                topics[kept++] = topics[i];
            }
        }
    }
    *ret_topics = topics;
    *ret_count = kept;
    return true;
}

static bool table_open(struct table *table, struct mill_pool *pool)
{
    if (!mill_assign_union(table->members, table->members_count, pool, &table->topics,
                           &table->topics_count)) {
        return false;
    }
    table->first = mill_pool_take(pool, table->topics_count * sizeof(table->first[0]));
    table->loads = mill_pool_take(pool, table->members_count * sizeof(table->loads[0]));
    for (uint32_t i = 0; table->first && i < table->topics_count; i++) {
        table->first[i] = table->partitions_count;
        table->partitions_count += table->topics[i].partitions_count;
    }
    table->owners = mill_pool_take(pool, table->partitions_count * sizeof(table->owners[0]));
    if (!table->first || !table->loads || !table->owners) {
        return false;
    }
    for (uint32_t i = 0; i < table->partitions_count; i++) {
        table->owners[i] = NOBODY;
    }
    return true;
}

/* ret: its index, topics_count when nobody subscribes to it. */
static uint32_t topic_index(const struct table *table, const struct mill_uuid *id)
{
    struct mill_assign_topic wanted = {.id = *id};
    const struct mill_assign_topic *found =
        bsearch(&wanted, table->topics, table->topics_count, sizeof(table->topics[0]), by_topic);
    return found ? (uint32_t)(found - table->topics) : table->topics_count;
}

static bool subscribes(const struct mill_assign_member *member, const struct mill_uuid *id)
{
    struct mill_assign_topic wanted = {.id = *id};
    return member->topics_count > 0 && bsearch(&wanted, member->topics, member->topics_count,
                                               sizeof(member->topics[0]), by_topic);
}

static void own(struct table *table, uint32_t place, uint32_t member)
{
    table->owners[place] = (int32_t)member;
    table->loads[member]++;
}

/* Reads the members' sets off the table. */
static bool table_give(struct table *table, struct mill_pool *pool)
{
    for (uint32_t i = 0; i < table->members_count; i++) {
        if (!mill_parts_room(pool, table->loads[i], &table->members[i].after)) {
            return false;
        }
    }
    for (uint32_t t = 0; t < table->topics_count; t++) {
        for (uint32_t p = 0; p < table->topics[t].partitions_count; p++) {
            int32_t owner = table->owners[table->first[t] + p];
            if (owner != NOBODY) {
                struct mill_parts *after = &table->members[owner].after;
                after->items[after->count++] =
                    (struct mill_part){.topic = table->topics[t].id, .partition = (int32_t)p};
            }
        }
    }
    return true;
}

/* --- range -------------------------------------------------------------------------------------
 */

/* Static members by name, then the others by id. */
static int by_name(const void *a, const void *b)
{
    const struct mill_assign_member *left = *(const struct mill_assign_member *const *)a;
    const struct mill_assign_member *right = *(const struct mill_assign_member *const *)b;
    if (!left->instance_id != !right->instance_id) {
        return left->instance_id ? -1 : 1;
    }
    return left->instance_id ? strcmp(left->instance_id, right->instance_id)
                             : strcmp(left->id, right->id);
}

static bool range_assign(struct table *table, struct mill_pool *pool)
{
    uint32_t count = table->members_count;
    struct mill_assign_member **sorted =
        mill_pool_take(pool, count * sizeof(struct mill_assign_member *));
    uint32_t *subscribers = mill_pool_take(pool, table->topics_count * sizeof(*subscribers));
    uint32_t *turn = mill_pool_take(pool, table->topics_count * sizeof(*turn));
    uint32_t *next = mill_pool_take(pool, table->topics_count * sizeof(*next));
    if (!sorted || !subscribers || !turn || !next) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = &table->members[i];
        for (uint32_t k = 0; k < table->members[i].topics_count; k++) {
            subscribers[topic_index(table, &table->members[i].topics[k].id)]++;
        }
    }
    qsort(sorted, count, sizeof(struct mill_assign_member *), by_name);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < sorted[i]->topics_count; k++) {
            uint32_t t = topic_index(table, &sorted[i]->topics[k].id);
            uint32_t all = table->topics[t].partitions_count;
            uint32_t run = all / subscribers[t] + (turn[t]++ < all % subscribers[t] ? 1 : 0);
            for (; run > 0; run--) {
                own(table, table->first[t] + next[t]++, (uint32_t)(sorted[i] - table->members));
            }
        }
    }
    return true;
}

/* --- uniform -----------------------------------------------------------------------------------
 */

/* What a member has and still subscribes to stays with it, quota of them at most. */
static void keep(struct table *table, uint32_t index, uint32_t quota)
{
    const struct mill_assign_member *member = &table->members[index];
    for (uint32_t i = 0; i < member->before.count && table->loads[index] < quota; i++) {
        const struct mill_part *part = &member->before.items[i];
        uint32_t t = topic_index(table, &part->topic);
        if (t < table->topics_count && subscribes(member, &part->topic) &&
            (uint32_t)part->partition < table->topics[t].partitions_count &&
            table->owners[table->first[t] + (uint32_t)part->partition] == NOBODY) {
            own(table, table->first[t] + (uint32_t)part->partition, index);
        }
    }
}

/* Everybody may have everything: a share each, and one more for as many as there are left over.
 * Those who have more than a share already are the ones that get it. */
static void uniform_same(struct table *table)
{
    uint32_t share = table->partitions_count / table->members_count;
    uint32_t over = table->partitions_count % table->members_count;
    uint32_t member = 0;
    uint32_t richer = 0;
    for (uint32_t i = 0; i < table->members_count; i++) {
        bool more = over > 0 && table->members[i].before.count > share;
        keep(table, i, share + more);
        over -= more && table->loads[i] > share ? 1 : 0;
    }
    for (uint32_t place = 0; place < table->partitions_count; place++) {
        if (table->owners[place] != NOBODY) {
            continue;
        }
        while (member < table->members_count && table->loads[member] >= share) {
            member++;
        }
        if (member < table->members_count) {
            own(table, place, member);
            continue;
        }
        /* Shares are full: one more each for those who have none yet; over of them are left. */
        while (table->loads[richer] > share) {
            richer++;
        }
        own(table, place, richer);
    }
}

/* The subscriber of the topic with the fewest partitions. ret: members_count: none. */
static uint32_t least_loaded(const struct table *table, const uint32_t *subscribers, uint32_t count)
{
    uint32_t best = table->members_count;
    for (uint32_t i = 0; i < count; i++) {
        if (best == table->members_count || table->loads[subscribers[i]] < table->loads[best]) {
            best = subscribers[i];
        }
    }
    return best;
}

/* Gives away what nobody owns, then moves partitions from those with more to those with at least
 * two fewer, until no single move helps. */
static bool topic_level(struct table *table, uint32_t topic, const uint32_t *subscribers,
                        uint32_t count)
{
    bool moved = false;
    uint32_t least = least_loaded(table, subscribers, count);
    for (uint32_t p = 0; p < table->topics[topic].partitions_count && count > 0; p++) {
        int32_t *owner = &table->owners[table->first[topic] + p];
        if (*owner != NOBODY && table->loads[*owner] < table->loads[least] + 2) {
            continue;
        }
        if (*owner != NOBODY) {
            table->loads[*owner]--;
        }
        own(table, table->first[topic] + p, least);
        least = least_loaded(table, subscribers, count);
        moved = true;
    }
    return moved;
}

static bool uniform_other(struct table *table, struct mill_pool *pool)
{
    uint32_t *subscribers = mill_pool_take(pool, table->members_count * sizeof(*subscribers));
    bool moved = true;
    if (!subscribers) {
        return false;
    }
    for (uint32_t i = 0; i < table->members_count; i++) {
        keep(table, i, UINT32_MAX);
    }
    for (uint32_t pass = 0; moved && pass < PASSES_MAX; pass++) {
        moved = false;
        for (uint32_t t = 0; t < table->topics_count; t++) {
            uint32_t count = 0;
            for (uint32_t i = 0; i < table->members_count; i++) {
                if (subscribes(&table->members[i], &table->topics[t].id)) {
                    subscribers[count++] = i;
                }
            }
            moved |= topic_level(table, t, subscribers, count);
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- */

bool mill_assign(enum mill_assignor assignor, struct mill_assign_member *members, uint32_t count,
                 struct mill_pool *pool)
{
    struct table table = {.members = members, .members_count = count};
    if (count == 0) {
        return true;
    }
    if (!table_open(&table, pool)) {
        return false;
    }
    bool good = true;
    if (assignor == MILL_ASSIGNOR_RANGE) {
        good = range_assign(&table, pool);
    } else if (is_homogeneous(members, count)) {
        uniform_same(&table);
    } else {
        good = uniform_other(&table, pool);
    }
    return good && table_give(&table, pool);
}
