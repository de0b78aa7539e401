/* SPDX-License-Identifier: Apache-2.0 */
/* The partition map as its readers see it (map.h); the layout is in map_layout.h, the writer in
 * map_writer.c. Readers are the cores, each with its own index, and whoever looks on. No reader
 * waits, allocates or writes anything but its own progress word. What lies in the map was written
 * by another process that may have died at any instruction: every offset, count and length is
 * checked against the map before it is followed. */
#include "ipc/map_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"

enum {
    /* A look-up that met a slot being emptied looks again: the name may have moved meanwhile. */
    LOOKUP_ROUNDS_MAX = 4,
};

uint64_t map_records_start(uint32_t topics_max)
{
    uint64_t table_bytes = (uint64_t)topics_max * MAP_TABLE_FACTOR * sizeof(uint32_t);
    uint64_t at = sizeof(struct map_header) + 2 * table_bytes;
    at = mill_round_up(at, sizeof(uint64_t)) + (uint64_t)topics_max * sizeof(uint64_t);
    return mill_round_up(at, MAP_RECORD_ALIGN_BYTES);
}

uint64_t map_topic_bytes(uint32_t partitions_count)
{
    return sizeof(struct mill_map_topic) +
           (uint64_t)partitions_count * sizeof(struct mill_map_partition);
}

uint64_t map_cluster_bytes(uint32_t brokers_count)
{
    return sizeof(struct mill_map_cluster) +
           (uint64_t)brokers_count * sizeof(struct mill_map_broker);
}

uint64_t map_quotas_bytes(uint32_t count)
{
    return sizeof(struct mill_map_quotas) + (uint64_t)count * sizeof(struct mill_map_quota);
}

static bool is_topics_max(uint32_t topics_max)
{
    return topics_max > 0 && topics_max <= 1u << 24 && (topics_max & (topics_max - 1)) == 0;
}

void mill_map_format(void *memory, const struct mill_map_limits *limits)
{
    struct map_header *header = memory;
    MILL_ASSERT(is_topics_max(limits->topics_max));
    MILL_ASSERT_LE(map_records_start(limits->topics_max), limits->size_bytes);
    MILL_ASSERT_EQ((uintptr_t)memory % MILL_CACHE_SPACING_BYTES, 0u);
    header->version = MILL_MAP_VERSION;
    header->size_bytes = limits->size_bytes;
    header->topics_max = limits->topics_max;
    /* Clients choose topic names: a secret key keeps them from aiming at one probe chain. Without
     * entropy the table still works, only aimable. */
    if (getrandom(header->hash_key, sizeof(header->hash_key), GRND_NONBLOCK) < 0) {
        header->hash_key[0] = 0x6d696c6c72616365ull;
        header->hash_key[1] = (uintptr_t)memory;
    }
    atomic_store_explicit(&header->used_bytes, map_records_start(limits->topics_max),
                          memory_order_relaxed);
    header->magic = MILL_MAP_MAGIC;
}

int mill_map_open(void *memory, uint64_t size_bytes, struct mill_map **ret_map)
{
    struct map_header *header = memory;
    if (size_bytes < sizeof(*header) || header->magic != MILL_MAP_MAGIC ||
        header->version != MILL_MAP_VERSION || header->size_bytes != size_bytes ||
        !is_topics_max(header->topics_max) || map_records_start(header->topics_max) > size_bytes) {
        return -EBADMSG;
    }
    struct mill_map *map = calloc(1, sizeof(*map));
    if (!map) {
        return -ENOMEM;
    }
    map->header = header;
    map->size_bytes = size_bytes;
    map->topics_max = header->topics_max;
    map->table_mask = map->topics_max * MAP_TABLE_FACTOR - 1;
    map->records_start = map_records_start(map->topics_max);
    memcpy(map->hash_key, header->hash_key, sizeof(map->hash_key));
    uint8_t *at = (uint8_t *)memory + sizeof(*header);
    map->names = (_Atomic uint32_t *)(void *)at;
    map->ids = map->names + map->table_mask + 1;
    at += 2 * sizeof(uint32_t) * ((size_t)map->table_mask + 1);
    map->slots = (_Atomic uint64_t *)(void *)at;
    *ret_map = map;
    return 0;
}

void mill_map_close(struct mill_map *map)
{
    free(map);
}

uint32_t map_hash(const struct mill_map *map, const void *key, uint32_t size_bytes)
{
    return (uint32_t)mill_siphash(map->hash_key, key, size_bytes);
}

uint64_t mill_map_generation(const struct mill_map *map)
{
    /* Acquire pairs with the release in the writer's publish(): what was published before the
     * generation rose is seen by whoever sees it risen. */
    return atomic_load_explicit(&map->header->generation, memory_order_acquire);
}

uint64_t mill_map_full_count(const struct mill_map *map)
{
    return atomic_load_explicit(&map->header->full_count, memory_order_relaxed);
}

/* Next value of a core's word: the count goes up, so that a writer that saw the word before knows
 * that nothing of before is held. */
static void advance(struct mill_map *map, uint32_t core, bool awake)
{
    MILL_DASSERT(core < MILL_MAP_CORES_MAX);
    _Atomic uint64_t *word = &map->header->readers[core].word;
    uint64_t count = (atomic_load_explicit(word, memory_order_relaxed) >> 1) + 1;
    /* Sequentially consistent: see map_layout.h, pairs with the swap and look of the writer. */
    atomic_store_explicit(word, count << 1 | (awake ? 1 : 0), memory_order_seq_cst);
}

void mill_map_turn(struct mill_map *map, uint32_t core)
{
    advance(map, core, true);
}

void mill_map_reader_state(struct mill_map *map, uint32_t core, bool awake)
{
    advance(map, core, awake);
}

/* --- records -----------------------------------------------------------------------------------
 */

static bool in_records(const struct mill_map *map, uint64_t offset, uint64_t head_bytes)
{
    return offset >= map->records_start && offset % MAP_RECORD_ALIGN_BYTES == 0 &&
           offset <= map->size_bytes && head_bytes <= map->size_bytes - offset;
}

const struct mill_map_topic *map_topic_checked(const struct mill_map *map, uint64_t offset,
                                               uint32_t slot)
{
    if (!in_records(map, offset, sizeof(struct mill_map_topic))) {
        return NULL;
    }
    const struct mill_map_topic *topic = (const void *)((const uint8_t *)map->header + offset);
    if (topic->slot != slot || topic->name_length == 0 ||
        topic->name_length > MILL_TOPIC_NAME_MAX || topic->name[topic->name_length] != '\0' ||
        map_topic_bytes(topic->partitions_count) > map->size_bytes - offset) {
        return NULL;
    }
    return topic;
}

const struct mill_map_cluster *map_cluster_checked(const struct mill_map *map, uint64_t offset)
{
    if (!in_records(map, offset, sizeof(struct mill_map_cluster))) {
        return NULL;
    }
    const struct mill_map_cluster *cluster = (const void *)((const uint8_t *)map->header + offset);
    if (map_cluster_bytes(cluster->brokers_count) > map->size_bytes - offset ||
        cluster->settings.overrides_count > MILL_MAP_OVERRIDES_MAX ||
        cluster->cluster_id[sizeof(cluster->cluster_id) - 1] != '\0') {
        return NULL;
    }
    for (uint32_t i = 0; i < cluster->brokers_count; i++) {
        if (cluster->brokers[i].endpoints_count > MILL_MAP_LISTENERS_MAX) {
            return NULL;
        }
    }
    return cluster;
}

const struct mill_map_quotas *map_quotas_checked(const struct mill_map *map, uint64_t offset)
{
    if (!in_records(map, offset, sizeof(struct mill_map_quotas))) {
        return NULL;
    }
    const struct mill_map_quotas *quotas = (const void *)((const uint8_t *)map->header + offset);
    return quotas->count <= MILL_MAP_QUOTAS_MAX + 1 &&
                   map_quotas_bytes(quotas->count) <= map->size_bytes - offset
               ? quotas
               : NULL;
}

const struct mill_map_topic *mill_map_topic_at(const struct mill_map *map, uint32_t slot)
{
    if (slot >= map->topics_max) {
        return NULL;
    }
    uint64_t offset = atomic_load_explicit(&map->slots[slot], memory_order_seq_cst);
    return offset == 0 ? NULL : map_topic_checked(map, offset, slot);
}

uint32_t mill_map_slots_max(const struct mill_map *map)
{
    return map->topics_max;
}

uint32_t mill_map_slots(const struct mill_map *map)
{
    uint32_t bound = atomic_load_explicit(&map->header->slots_bound, memory_order_acquire);
    return MILL_MIN(bound, map->topics_max);
}

const struct mill_map_cluster *mill_map_cluster_read(const struct mill_map *map)
{
    uint64_t offset = atomic_load_explicit(&map->header->cluster, memory_order_seq_cst);
    return offset == 0 ? NULL : map_cluster_checked(map, offset);
}

const struct mill_map_quotas *mill_map_quotas_read(const struct mill_map *map)
{
    uint64_t offset = atomic_load_explicit(&map->header->quotas, memory_order_seq_cst);
    return offset == 0 ? NULL : map_quotas_checked(map, offset);
}

const struct mill_map_quota *mill_map_quota_of(const struct mill_map_quotas *quotas,
                                               const char *client)
{
    uint32_t low = 1;
    uint32_t high = quotas->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strncmp(client, quotas->entries[middle].client, MILL_MAP_CLIENT_BYTES);
        if (order == 0) {
            return &quotas->entries[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return &quotas->entries[0];
}

/* --- look-ups ----------------------------------------------------------------------------------
 */

typedef bool (*key_equal)(const struct mill_map_topic *topic, const void *key, uint32_t size_bytes);

static bool name_equal(const struct mill_map_topic *topic, const void *key, uint32_t size_bytes)
{
    return topic->name_length == size_bytes && memcmp(topic->name, key, size_bytes) == 0;
}

static bool id_equal(const struct mill_map_topic *topic, const void *key, uint32_t size_bytes)
{
    return memcmp(topic->id.b, key, size_bytes) == 0;
}

/* One probe. ret_moved: an entry on the way led to an empty slot, so that another round may find
 * what was being moved. */
static uint32_t probe(const struct mill_map *map, const _Atomic uint32_t *table, key_equal equal,
                      const void *key, uint32_t size_bytes, const struct mill_map_topic **ret_topic,
                      bool *ret_moved)
{
    uint32_t at = map_hash(map, key, size_bytes) & map->table_mask;
    *ret_topic = NULL;
    *ret_moved = false;
    for (uint32_t i = 0; i <= map->table_mask; i++, at = (at + 1) & map->table_mask) {
        /* Acquire pairs with the writer's release of the entry: its slot was filled before. */
        uint32_t entry = atomic_load_explicit(&table[at], memory_order_acquire);
        if (entry == MAP_ENTRY_EMPTY) {
            break;
        }
        if (entry == MAP_ENTRY_CLEARED) {
            continue;
        }
        const struct mill_map_topic *topic = mill_map_topic_at(map, entry - MAP_ENTRY_SLOT0);
        if (!topic) {
            *ret_moved = true;
        } else if (equal(topic, key, size_bytes)) {
            *ret_topic = topic;
            return at;
        }
    }
    return map->table_mask + 1;
}

static uint32_t find(const struct mill_map *map, const _Atomic uint32_t *table, key_equal equal,
                     const void *key, uint32_t size_bytes, const struct mill_map_topic **ret_topic)
{
    uint32_t at = map->table_mask + 1;
    bool moved = true;
    for (int round = 0; round < LOOKUP_ROUNDS_MAX && moved; round++) {
        at = probe(map, table, equal, key, size_bytes, ret_topic, &moved);
        if (*ret_topic) {
            break;
        }
    }
    return at;
}

uint32_t map_find_name(const struct mill_map *map, const char *name, uint32_t length,
                       const struct mill_map_topic **ret_topic)
{
    return find(map, map->names, name_equal, name, length, ret_topic);
}

uint32_t map_find_id(const struct mill_map *map, const struct mill_uuid *id,
                     const struct mill_map_topic **ret_topic)
{
    return find(map, map->ids, id_equal, id->b, sizeof(id->b), ret_topic);
}

const struct mill_map_topic *mill_map_topic_by_name(const struct mill_map *map, const char *name,
                                                    uint32_t length)
{
    const struct mill_map_topic *topic = NULL;
    if (length > 0 && length <= MILL_TOPIC_NAME_MAX) {
        (void)map_find_name(map, name, length, &topic);
    }
    return topic;
}

const struct mill_map_topic *mill_map_topic_by_id(const struct mill_map *map,
                                                  const struct mill_uuid *id)
{
    const struct mill_map_topic *topic = NULL;
    (void)map_find_id(map, id, &topic);
    return topic;
}
