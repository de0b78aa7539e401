/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded map of compaction: hash of a key to its last offset. The hash is keyed by a secret,
 * so that no client can make two keys meet. See clean_types.h. */
#include "dataplane/store/clean_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"

enum {
    FILLED_PERCENT_MAX = 90, /* as Kafka's log.cleaner.io.buffer.load.factor */
};

int mill_clean_map_init(struct clean_map *map, uint64_t bytes_max, uint64_t wanted,
                        const struct mill_uuid *secret)
{
    uint64_t slots = 64;
    *map = (struct clean_map){.latest = -1};
    while (slots * FILLED_PERCENT_MAX / 100 < wanted &&
           slots * 2 * sizeof(struct clean_slot) <= bytes_max) {
        slots *= 2;
    }
    if (slots * sizeof(struct clean_slot) > bytes_max) {
        return -EINVAL;
    }
    map->slots = calloc(slots, sizeof(map->slots[0]));
    if (!map->slots) {
        return -ENOMEM;
    }
    map->mask = slots - 1;
    map->length_max = slots * FILLED_PERCENT_MAX / 100;
    memcpy(map->keys[0], secret->b, sizeof(map->keys[0]));
    map->keys[1][0] = ~map->keys[0][0];
    map->keys[1][1] = ~map->keys[0][1];
    return 0;
}

void mill_clean_map_fini(struct clean_map *map)
{
    free(map->slots);
    *map = (struct clean_map){.latest = -1};
}

static struct clean_slot *slot_of(const struct clean_map *map, const void *key, uint32_t size_bytes,
                                  uint64_t hash[2])
{
    hash[0] = mill_siphash(map->keys[0], key, size_bytes);
    hash[1] = mill_siphash(map->keys[1], key, size_bytes);
    uint64_t at = hash[0] & map->mask;
    while (map->slots[at].offset_more != 0 &&
           (map->slots[at].hash[0] != hash[0] || map->slots[at].hash[1] != hash[1])) {
        at = (at + 1) & map->mask;
    }
    return &map->slots[at];
}

bool mill_clean_map_put(struct clean_map *map, const void *key, uint32_t size_bytes, int64_t offset)
{
    uint64_t hash[2];
    struct clean_slot *slot = slot_of(map, key, size_bytes, hash);
    if (slot->offset_more == 0) {
#ifndef MILL_MUTANT_STORE_MAP_FULL
        if (map->length == map->length_max) {
            return false;
        }
#endif
        map->length++;
        slot->hash[0] = hash[0];
        slot->hash[1] = hash[1];
    }
    slot->offset_more = (uint64_t)offset + 1;
    return true;
}

int64_t mill_clean_map_get(const struct clean_map *map, const void *key, uint32_t size_bytes)
{
    uint64_t hash[2];
    return (int64_t)slot_of(map, key, size_bytes, hash)->offset_more - 1;
}
