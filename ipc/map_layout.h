/* SPDX-License-Identifier: Apache-2.0 */
/* How the partition map lies in memory; only map.c (readers) and map_writer.c (control) know it.
 *
 *   | header | name table u32[2n] | id table u32[2n] | slots u64[n] | records, 64-byte units ... |
 *      name, id --hash--> table entry --> slot number --> slot: offset --> immutable record
 *
 * A table entry names a slot and not a record, so a changed topic is one swap of one slot whichever
 * way it is looked up. A slot is emptied before its entries are cleared and filled before they are
 * set: an entry may for a moment lead to an empty slot, never to a half-made record.
 *
 * Readers and grace: each core has one word, (count << 1 | awake), that only it stores. It counts
 * up at every turn and on waking. All stores and loads of reader words, slots and the offsets
 * of the other records are sequentially consistent: either the core's look at a slot comes after
 * the swap and finds the new record, or the writer's look at the word comes before the core's
 * count, and the writer waits for the next one. On x86-64 the loads are plain moves.
 */
#ifndef MILL_IPC_MAP_LAYOUT_H
#define MILL_IPC_MAP_LAYOUT_H

#include "base/siphash.h"
#include "ipc/map.h"

enum {
    MAP_RECORD_ALIGN_BYTES = 64,
    MAP_ENTRY_EMPTY = 0,   /* ends a probe */
    MAP_ENTRY_CLEARED = 1, /* was used; a probe goes on */
    MAP_ENTRY_SLOT0 = 2,   /* entry = slot + this */
    MAP_TABLE_FACTOR = 2,  /* table entries per slot: load at most one half */
};

struct map_reader {
    MILL_SPACED _Atomic uint64_t word; /* count << 1 | awake */
};

struct map_header {
    uint32_t magic;
    uint32_t version;
    uint64_t size_bytes;
    uint32_t topics_max;
    uint32_t reserved;
    uint64_t hash_key[2];
    MILL_SPACED _Atomic uint64_t generation;
    _Atomic uint64_t cluster;     /* offset of the cluster record, 0 none */
    _Atomic uint64_t quotas;      /* offset of the record of quotas, 0 none */
    _Atomic uint64_t used_bytes;  /* records have never been beyond; raised before use */
    _Atomic uint64_t full_count;  /* times a record or slot could not be had */
    _Atomic uint32_t slots_bound; /* slots below this have been used */
    struct map_reader readers[MILL_MAP_CORES_MAX];
};
static_assert(offsetof(struct map_header, generation) == 128, "shared layout");
static_assert(offsetof(struct map_header, readers) == 256, "shared layout");
static_assert(sizeof(struct map_header) == 256 + 128 * MILL_MAP_CORES_MAX, "shared layout");
static_assert(sizeof(struct mill_map_endpoint) == 328, "shared layout");
static_assert(sizeof(struct mill_map_broker) == 16 + 328 * MILL_MAP_LISTENERS_MAX, "shared layout");
static_assert(sizeof(struct mill_map_override) == 24, "shared layout");
static_assert(sizeof(struct mill_map_cluster) == 120 + 24 * MILL_MAP_OVERRIDES_MAX,
              "shared layout");
static_assert(sizeof(struct mill_map_quota) == 288, "shared layout");
static_assert(sizeof(struct mill_map_quotas) == 32, "shared layout");

/* A mapped map. Sizes are taken once, at open, and never read from shared memory again. */
struct mill_map {
    struct map_header *header;
    _Atomic uint32_t *names;
    _Atomic uint32_t *ids;
    _Atomic uint64_t *slots;
    uint64_t size_bytes;
    uint64_t records_start;
    uint64_t hash_key[2];
    uint32_t topics_max;
    uint32_t table_mask;
};

/* Offset of the first record in a map of this many topics. */
uint64_t map_records_start(uint32_t topics_max);
uint32_t map_hash(const struct mill_map *map, const void *key, uint32_t size_bytes);

/* Bytes of a record. */
uint64_t map_topic_bytes(uint32_t partitions_count);
uint64_t map_cluster_bytes(uint32_t brokers_count);
uint64_t map_quotas_bytes(uint32_t count);

/* The record at offset when it lies inside the map and is one of the slot, else NULL. */
const struct mill_map_topic *map_topic_checked(const struct mill_map *map, uint64_t offset,
                                               uint32_t slot);
const struct mill_map_cluster *map_cluster_checked(const struct mill_map *map, uint64_t offset);
const struct mill_map_quotas *map_quotas_checked(const struct mill_map *map, uint64_t offset);

/* Positions of a key in its table, or table_mask + 1. Whole-table probes at most. */
uint32_t map_find_name(const struct mill_map *map, const char *name, uint32_t length,
                       const struct mill_map_topic **ret_topic);
uint32_t map_find_id(const struct mill_map *map, const struct mill_uuid *id,
                     const struct mill_map_topic **ret_topic);

#endif
