/* SPDX-License-Identifier: Apache-2.0 */
/* The connection table; see conn_table.h. Owner: one core; never allocates after init. */
#include "dataplane/net/conn_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"

static uint32_t slots_for(uint32_t max)
{
    uint32_t slots = 16;
    while (slots < 2 * (uint64_t)max) {
        slots *= 2;
    }
    return slots;
}

uint64_t mill_flow_table_bytes(uint32_t max)
{
    return (uint64_t)slots_for(max) * sizeof(struct mill_flow_slot) +
           (uint64_t)max * sizeof(struct mill_flow_key);
}

int mill_flow_table_init(struct mill_flow_table *table, uint32_t max, const uint64_t secret[2])
{
    uint32_t slots = slots_for(max);
    *table = (struct mill_flow_table){.mask = slots - 1, .max = max};
    memcpy(table->secret, secret, sizeof(table->secret));
    table->slots = calloc(slots, sizeof(*table->slots));
    table->keys = calloc(max, sizeof(*table->keys));
    if (!table->slots || !table->keys) {
        mill_flow_table_fini(table);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < slots; i++) {
        table->slots[i].index = MILL_FLOW_NONE;
    }
    return 0;
}

void mill_flow_table_fini(struct mill_flow_table *table)
{
    free(table->slots);
    free(table->keys);
    table->slots = NULL;
    table->keys = NULL;
}

uint32_t mill_flow_hash(const struct mill_flow_table *table, const struct mill_flow_key *key)
{
    return (uint32_t)mill_siphash(table->secret, key, sizeof(*key));
}

uint32_t mill_flow_find(const struct mill_flow_table *table, const struct mill_flow_key *key)
{
    if (table->count == 0) {
        return MILL_FLOW_NONE;
    }
    uint32_t hash = mill_flow_hash(table, key);
    for (uint32_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        const struct mill_flow_slot *slot = &table->slots[at];
        if (slot->index == MILL_FLOW_NONE) {
            return MILL_FLOW_NONE;
        }
        if (slot->hash == hash && memcmp(&table->keys[slot->index], key, sizeof(*key)) == 0) {
            return slot->index;
        }
    }
}

void mill_flow_insert(struct mill_flow_table *table, const struct mill_flow_key *key,
                      uint32_t index)
{
    MILL_ASSERT_LT(index, table->max);
    MILL_ASSERT_LT(table->count, table->max);
    uint32_t hash = mill_flow_hash(table, key);
    uint32_t at = hash & table->mask;
    while (table->slots[at].index != MILL_FLOW_NONE) {
        at = (at + 1) & table->mask;
    }
    table->slots[at] = (struct mill_flow_slot){.hash = hash, .index = index};
    table->keys[index] = *key;
    table->count++;
}

void mill_flow_remove(struct mill_flow_table *table, uint32_t index)
{
    MILL_ASSERT_LT(index, table->max);
    uint32_t hole = mill_flow_hash(table, &table->keys[index]) & table->mask;
    while (table->slots[hole].index != index) {
        MILL_ASSERT(table->slots[hole].index != MILL_FLOW_NONE);
        hole = (hole + 1) & table->mask;
    }
    /* Every follower whose home lies at or before the hole moves into it, until an empty slot. */
    for (uint32_t at = (hole + 1) & table->mask; table->slots[at].index != MILL_FLOW_NONE;
         at = (at + 1) & table->mask) {
        uint32_t home = table->slots[at].hash & table->mask;
        if (((at - home) & table->mask) >= ((at - hole) & table->mask)) {
            table->slots[hole] = table->slots[at];
            hole = at;
        }
    }
    table->slots[hole].index = MILL_FLOW_NONE;
    table->count--;
}
