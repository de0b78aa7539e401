/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of clients; see quotas.h. Which value holds: Kafka's order, from the entity that says most
 * to the one that says least. ref: KIP-13, KIP-55, KIP-124 */
#include "control/controller/quotas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

enum {
    ROOM_FIRST = 16,
    PERCENT = 100,
};

const char *const mill_quota_keys[MILL_QUOTA_KINDS] = {
    [MILL_QUOTA_PRODUCE] = "producer_byte_rate",
    [MILL_QUOTA_FETCH] = "consumer_byte_rate",
    [MILL_QUOTA_TIME] = "request_percentage",
};

enum mill_quota_kind mill_quota_kind_of(const char *key)
{
    uint32_t kind = 0;
    while (kind < MILL_QUOTA_KINDS && strcmp(mill_quota_keys[kind], key) != 0) {
        kind++;
    }
    return (enum mill_quota_kind)kind;
}

static bool name_equal(const struct mill_quota_name *a, const struct mill_quota_name *b)
{
    return a->who == b->who && (a->who != MILL_QUOTA_NAMED || strcmp(a->name, b->name) == 0);
}

struct mill_quota_entity *mill_quota_find(const struct mill_quota_set *set,
                                          const struct mill_quota_name *user,
                                          const struct mill_quota_name *client)
{
    for (uint32_t i = 0; i < set->count; i++) {
        struct mill_quota_entity *entity = &set->entities[i];
        if (name_equal(&entity->user, user) && name_equal(&entity->client, client)) {
            return entity;
        }
    }
    return NULL;
}

static bool is_empty(const struct mill_quota_entity *entity)
{
    for (uint32_t i = 0; i < MILL_QUOTA_KINDS; i++) {
        if (entity->values[i] > 0) {
            return false;
        }
    }
    return true;
}

int mill_quota_reserve(struct mill_quota_set *set, uint32_t more)
{
    uint32_t room = MILL_MAX(set->room, (uint32_t)ROOM_FIRST);
    if (more > MILL_QUOTA_ENTITIES_MAX - set->count) {
        return -ENOSPC;
    }
    if (more <= set->room - set->count) {
        return 0;
    }
    while (room - set->count < more) {
        room *= 2;
    }
    struct mill_quota_entity *entities =
        realloc(set->entities, (size_t)room * sizeof(set->entities[0]));
    if (!entities) {
        return -ENOMEM;
    }
    set->entities = entities;
    set->room = room;
    return 0;
}

static int add(struct mill_quota_set *set, const struct mill_quota_name *user,
               const struct mill_quota_name *client, struct mill_quota_entity **ret_entity)
{
    int r = mill_quota_reserve(set, 1);
    if (r < 0) {
        return r;
    }
    struct mill_quota_entity *entity = &set->entities[set->count++];
    *entity = (struct mill_quota_entity){.user = *user, .client = *client};
    *ret_entity = entity;
    return 0;
}

int mill_quota_put(struct mill_quota_set *set, const struct mill_quota_name *user,
                   const struct mill_quota_name *client, enum mill_quota_kind kind, double value)
{
    struct mill_quota_entity *entity = mill_quota_find(set, user, client);
    if (!entity && value == 0) {
        return 0;
    }
    int r = entity ? 0 : add(set, user, client, &entity);
    if (r < 0) {
        return r;
    }
    entity->values[kind] = value;
    if (is_empty(entity)) {
        *entity = set->entities[--set->count];
    }
    return 0;
}

void mill_quota_clear(struct mill_quota_set *set)
{
    free(set->entities);
    *set = (struct mill_quota_set){0};
}

/* --- what holds --------------------------------------------------------------------------------
 */

static const char anonymous[] = "ANONYMOUS";

static uint64_t per_second(enum mill_quota_kind kind, double value)
{
    double scaled = kind == MILL_QUOTA_TIME ? value * (double)MILL_NS_PER_S / PERCENT : value;
    if (scaled >= (double)INT64_MAX) {
        return INT64_MAX;
    }
    return scaled < 1 ? 1 : (uint64_t)scaled;
}

/* How much an entity says, in Kafka's order: the least of the ranks of those that fit a client
 * holds. RANKS: it is none of anybody's who is here. */
enum {
    RANK_USER = 0,         /* ANONYMOUS */
    RANK_USER_DEFAULT = 3, /* any user */
    RANK_CLIENT = 6,       /* no user is named: with a client id */
    RANKS = 8,
};

static uint8_t rank_of(const struct mill_quota_entity *entity)
{
    bool named = entity->client.who == MILL_QUOTA_NAMED;
    bool by_default = entity->client.who == MILL_QUOTA_DEFAULT;
    uint8_t within = named ? 0 : by_default ? 1 : 2;
    switch (entity->user.who) {
    case MILL_QUOTA_NAMED:
        return strcmp(entity->user.name, anonymous) == 0 ? (uint8_t)(RANK_USER + within) : RANKS;
    case MILL_QUOTA_DEFAULT:
        return (uint8_t)(RANK_USER_DEFAULT + within);
    default:
        return within == 2 ? RANKS : (uint8_t)(RANK_CLIENT + within);
    }
}

/* The values that hold so far, and by which rank. */
struct held {
    uint8_t rank[MILL_QUOTA_KINDS];
};

static void entity_hold(const struct mill_quota_entity *entity, struct mill_map_quota *quota,
                        struct held *held)
{
    uint8_t rank = rank_of(entity);
#ifdef MILL_MUTANT_CONTROL_QUOTA_ORDER
    rank = rank == RANK_CLIENT ? RANK_USER : rank;
#endif
    for (uint32_t kind = 0; kind < MILL_QUOTA_KINDS; kind++) {
        if (entity->values[kind] > 0 && rank < held->rank[kind]) {
            held->rank[kind] = rank;
            quota->per_second[kind] = per_second((enum mill_quota_kind)kind, entity->values[kind]);
            /* A user's limit is that of all its clients together. */
            quota->shared[kind] = entity->client.who == MILL_QUOTA_ABSENT;
        }
    }
}

/* What holds for all clients, where it says more than what the client has. */
static void others_hold(const struct mill_map_quota *others, const struct held *others_held,
                        struct mill_map_quota *quota, const struct held *held)
{
    for (uint32_t kind = 0; kind < MILL_QUOTA_KINDS; kind++) {
        if (others_held->rank[kind] < held->rank[kind]) {
            quota->per_second[kind] = others->per_second[kind];
            quota->shared[kind] = others->shared[kind];
        }
    }
}

static int by_client(const void *a, const void *b)
{
    return strcmp(((const struct mill_map_quota *)a)->client,
                  ((const struct mill_map_quota *)b)->client);
}

/* The client ids that are named, ascending, each once, behind entry 0. */
static void clients_list(const struct mill_quota_set *set, struct mill_map_quotas *record)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->entities[i].client.who == MILL_QUOTA_NAMED) {
            struct mill_map_quota *entry = &record->entries[record->count++];
            memcpy(entry->client, set->entities[i].client.name, sizeof(entry->client));
        }
    }
    qsort(&record->entries[1], record->count - 1, sizeof(record->entries[0]), by_client);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < record->count; i++) {
        if (kept == 1 || by_client(&record->entries[kept - 1], &record->entries[i]) != 0) {
            record->entries[kept++] = record->entries[i];
        }
    }
    memset(&record->entries[kept], 0, (record->count - kept) * sizeof(record->entries[0]));
    record->count = kept;
}

struct mill_map_quotas *mill_quota_resolve(const struct mill_quota_set *set, uint64_t burst_ns,
                                           uint64_t time_pause_max_ns)
{
    struct mill_map_quotas *record =
        calloc(1, sizeof(*record) + (set->count + 1u) * sizeof(record->entries[0]));
    struct held *held = malloc((set->count + 1u) * sizeof(held[0]));
    if (!record || !held) {
        free(record);
        free(held);
        return NULL;
    }
    record->burst_ns = burst_ns;
    record->time_pause_max_ns = time_pause_max_ns;
    memset(held, RANKS, (set->count + 1u) * sizeof(held[0]));
    if (set->count > 0) {
        record->count = 1;
        clients_list(set, record);
    }
    for (uint32_t i = 0; i < set->count; i++) {
        const struct mill_quota_entity *entity = &set->entities[i];
        struct mill_map_quota *entry = record->entries;
        if (entity->client.who == MILL_QUOTA_NAMED) {
            struct mill_map_quota key;
            memcpy(key.client, entity->client.name, sizeof(key.client));
            entry = bsearch(&key, &record->entries[1], record->count - 1,
                            sizeof(record->entries[0]), by_client);
        }
        entity_hold(entity, entry, &held[entry - record->entries]);
    }
    for (uint32_t i = 1; i < record->count; i++) {
        others_hold(&record->entries[0], &held[0], &record->entries[i], &held[i]);
    }
    free(held);
    return record;
}
