/* SPDX-License-Identifier: Apache-2.0 */
/* Tuple to core; see flow_map.h. */
#include "dataplane/net/flow_map.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"

enum {
    BUCKET_SLOTS = 8,
    SLOTS_PER_FLOW = 4,
};

/* Slots are published relaxed: a slot is the whole message. The owner has its flow in its own table
 * before it reads the packet, which travels through a ring with release and acquire. */
struct bucket {
    _Atomic uint64_t slots[BUCKET_SLOTS];
};
static_assert(sizeof(struct bucket) == 64, "one cache line");

struct mill_flow_map {
    uint64_t secret[2];
    uint32_t cores;
    uint32_t mask;
    struct bucket *buckets; /* cores times mask + 1 */
};

static uint32_t buckets_for(uint32_t flows_max)
{
    uint32_t buckets = 2;
    while ((uint64_t)buckets * BUCKET_SLOTS < (uint64_t)flows_max * SLOTS_PER_FLOW) {
        buckets *= 2;
    }
    return buckets;
}

uint64_t mill_flow_map_bytes(uint32_t cores, uint32_t flows_max)
{
    return (uint64_t)cores * buckets_for(flows_max) * sizeof(struct bucket);
}

int mill_flow_map_create(uint32_t cores, uint32_t flows_max, const uint64_t secret[2],
                         struct mill_flow_map **ret_map)
{
    struct mill_flow_map *map = calloc(1, sizeof(*map));
    if (!map) {
        return -ENOMEM;
    }
    uint64_t bytes = mill_flow_map_bytes(cores, flows_max);
    map->buckets = aligned_alloc(MILL_CACHE_SPACING_BYTES, bytes);
    if (!map->buckets) {
        free(map);
        return -ENOMEM;
    }
    memset(map->buckets, 0, bytes);
    memcpy(map->secret, secret, sizeof(map->secret));
    map->cores = cores;
    map->mask = buckets_for(flows_max) - 1;
    *ret_map = map;
    return 0;
}

void mill_flow_map_destroy(struct mill_flow_map *map)
{
    if (map) {
        free(map->buckets);
        free(map);
    }
}

uint64_t mill_flow_map_hash(const struct mill_flow_map *map, const struct mill_flow_key *key)
{
    return mill_siphash(map->secret, key, sizeof(*key));
}

static struct bucket *bucket_at(const struct mill_flow_map *map, uint32_t core, uint64_t hash,
                                uint32_t choice)
{
    uint32_t index = (uint32_t)(choice == 0 ? hash : hash >> 32) & map->mask;
    return &map->buckets[(size_t)core * (map->mask + 1) + index];
}

/* Swaps one slot of the tuple's two buckets from a value to another. ret: false: none had it. */
static bool replace(struct mill_flow_map *map, uint32_t core, uint64_t hash, uint64_t from,
                    uint64_t to)
{
    for (uint32_t choice = 0; choice < 2; choice++) {
        struct bucket *bucket = bucket_at(map, core, hash, choice);
        for (uint32_t i = 0; i < BUCKET_SLOTS; i++) {
            if (atomic_load_explicit(&bucket->slots[i], memory_order_relaxed) == from) {
                atomic_store_explicit(&bucket->slots[i], to, memory_order_relaxed);
                return true;
            }
        }
    }
    return false;
}

/* 0 means empty. */
static uint64_t value_of(uint64_t hash)
{
    return hash | 1;
}

bool mill_flow_map_add(struct mill_flow_map *map, uint32_t core, const struct mill_flow_key *key)
{
    uint64_t hash = mill_flow_map_hash(map, key);
    return replace(map, core, hash, 0, value_of(hash));
}

void mill_flow_map_remove(struct mill_flow_map *map, uint32_t core, const struct mill_flow_key *key)
{
    uint64_t hash = mill_flow_map_hash(map, key);
    (void)replace(map, core, hash, value_of(hash), 0); /* absent: it had not fitted */
}

static bool has(const struct mill_flow_map *map, uint32_t core, uint64_t hash)
{
    for (uint32_t choice = 0; choice < 2; choice++) {
        const struct bucket *bucket = bucket_at(map, core, hash, choice);
        for (uint32_t i = 0; i < BUCKET_SLOTS; i++) {
            if (atomic_load_explicit(&bucket->slots[i], memory_order_relaxed) == value_of(hash)) {
                return true;
            }
        }
    }
    return false;
}

uint32_t mill_flow_map_find(const struct mill_flow_map *map, uint32_t self,
                            const struct mill_flow_key *key)
{
    uint64_t hash = mill_flow_map_hash(map, key);
    for (uint32_t core = 0; core < map->cores; core++) {
        if (core != self && has(map, core, hash)) {
            return core;
        }
    }
    return MILL_FLOW_NO_CORE;
}
