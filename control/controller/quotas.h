/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of clients: what was set for whom, and which of it holds for a client. Kept in the store,
 * resolved into the map's record. Where nobody logs in every client is the user ANONYMOUS, as in
 * Kafka. Control's thread only; bounded. */
#ifndef MILL_CONTROL_CONTROLLER_QUOTAS_H
#define MILL_CONTROL_CONTROLLER_QUOTAS_H

#include "ipc/map.h"

enum {
    MILL_QUOTA_ENTITIES_MAX = MILL_MAP_QUOTAS_MAX,
};

/* Half of an entity: a user or a client id. */
enum mill_quota_who {
    MILL_QUOTA_ABSENT,  /* the entity does not say */
    MILL_QUOTA_DEFAULT, /* whoever has none of its own */
    MILL_QUOTA_NAMED,
};

struct mill_quota_name {
    uint8_t who;                      /* enum mill_quota_who */
    char name[MILL_MAP_CLIENT_BYTES]; /* terminated; of a named one */
};

struct mill_quota_entity {
    struct mill_quota_name user;
    struct mill_quota_name client;
    double values[MILL_QUOTA_KINDS]; /* 0: not set */
};

struct mill_quota_set {
    struct mill_quota_entity *entities; /* malloc's */
    uint32_t count;
    uint32_t room;
};

/* Kafka's names of the kinds: producer_byte_rate, consumer_byte_rate, request_percentage. */
extern const char *const mill_quota_keys[MILL_QUOTA_KINDS];
/* ret: the kind of a key, or MILL_QUOTA_KINDS. */
enum mill_quota_kind mill_quota_kind_of(const char *key);

struct mill_quota_entity *mill_quota_find(const struct mill_quota_set *set,
                                          const struct mill_quota_name *user,
                                          const struct mill_quota_name *client);
/* Room for so many more entities, so that setting their values cannot fail. ret: 0, -ENOMEM,
 * -ENOSPC more than there may be. */
int mill_quota_reserve(struct mill_quota_set *set, uint32_t more) MILL_WARN_UNUSED;
/* Sets one value, 0 takes it away. ret: 0, -ENOMEM, -ENOSPC as many entities as there may be. */
int mill_quota_put(struct mill_quota_set *set, const struct mill_quota_name *user,
                   const struct mill_quota_name *client, enum mill_quota_kind kind,
                   double value) MILL_WARN_UNUSED;
void mill_quota_clear(struct mill_quota_set *set);

/* The record for the map, malloc's: what holds for each client that is named, and for all others.
 * ret: NULL out of memory. */
struct mill_map_quotas *mill_quota_resolve(const struct mill_quota_set *set, uint64_t burst_ns,
                                           uint64_t time_pause_max_ns);

#endif
