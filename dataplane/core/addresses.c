/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of addresses; see addresses.h. */
#include "dataplane/core/addresses.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/siphash.h"

enum {
    COUNT_BITS = 24,
    PLACES_PER_CONNECTION = 4,
    LOOKS_MAX = 16,  /* at places that other cores take meanwhile */
    PLACE_NONE = 0,  /* other cores took them again and again */
    PLACE_REST = 1,  /* who found no place */
    PLACE_FIRST = 2, /* of the table's own */
};

static const uint64_t count_mask = (1ull << COUNT_BITS) - 1;
static_assert(MILL_ADDRESS_CONNECTIONS_MAX < 1 << COUNT_BITS, "a count holds all of them");

/* Counts are added to and read in one order over all cores: of two that take places for one new
 * address at once, at least one sees the other. */
struct mill_address_table {
    uint64_t key[2];
    uint32_t mask;
    _Atomic uint64_t rest;
    _Atomic uint64_t places[];
};

static uint32_t places_of(uint32_t connections_max)
{
    uint32_t places = MILL_ADDRESS_PLACES;
    while (places < connections_max * PLACES_PER_CONNECTION) {
        places *= 2;
    }
    return places;
}

uint64_t mill_address_table_bytes(uint32_t connections_max)
{
    return sizeof(struct mill_address_table) + places_of(connections_max) * sizeof(uint64_t);
}

struct mill_address_table *mill_address_table_create(uint32_t connections_max,
                                                     const uint64_t key[2])
{
    MILL_ASSERT_LE(connections_max, (uint32_t)MILL_ADDRESS_CONNECTIONS_MAX);
    struct mill_address_table *table = calloc(1, mill_address_table_bytes(connections_max));
    if (table) {
        table->key[0] = key[0];
        table->key[1] = key[1];
        table->mask = places_of(connections_max) - 1;
    }
    return table;
}

void mill_address_table_destroy(struct mill_address_table *table)
{
    free(table);
}

static uint64_t tag_of(uint64_t word)
{
    return word >> COUNT_BITS;
}

static uint64_t count_of(uint64_t word)
{
    return word & count_mask;
}

static _Atomic uint64_t *place_at(struct mill_address_table *table, uint64_t hash, uint32_t i)
{
    return &table->places[(uint32_t)(hash + i) & table->mask];
}

/* Adds one to a place that was seen to be the address's. ret: false: it is another's meanwhile. */
static bool join(_Atomic uint64_t *place, uint64_t tag)
{
    uint64_t before = atomic_fetch_add(place, 1);
    if (tag_of(before) == tag && count_of(before) > 0) {
        return true;
    }
    atomic_fetch_sub(place, 1);
    return false;
}

/* Counts one in a place of the address, or in that of the rest when all that it may have are taken.
 * ret: the place's number. */
static uint32_t place_count(struct mill_address_table *table, uint64_t hash)
{
    uint64_t tag = tag_of(hash);
    for (uint32_t look = 0; look < LOOKS_MAX; look++) {
        _Atomic uint64_t *vacant = NULL;
        _Atomic uint64_t *own = NULL;
        uint64_t owner = 0;
        for (uint32_t i = 0; i < MILL_ADDRESS_PLACES && !own; i++) {
            _Atomic uint64_t *place = place_at(table, hash, i);
            uint64_t seen = atomic_load(place);
            if (count_of(seen) == 0 && !vacant) {
                vacant = place;
                owner = seen;
            }
            own = count_of(seen) > 0 && tag_of(seen) == tag ? place : NULL;
        }
        if (own && join(own, tag)) {
            return PLACE_FIRST + (uint32_t)(own - table->places);
        }
        if (own) {
            continue;
        }
        if (!vacant) {
            atomic_fetch_add(&table->rest, 1);
            return PLACE_REST;
        }
        if (atomic_compare_exchange_strong(vacant, &owner, tag << COUNT_BITS | 1)) {
            return PLACE_FIRST + (uint32_t)(vacant - table->places);
        }
    }
    return PLACE_NONE;
}

static uint64_t count_all(struct mill_address_table *table, uint64_t hash, uint32_t place)
{
    uint64_t sum = 0;
    if (place == PLACE_REST) {
        return atomic_load(&table->rest);
    }
    for (uint32_t i = 0; i < MILL_ADDRESS_PLACES; i++) {
        uint64_t seen = atomic_load(place_at(table, hash, i));
        sum += tag_of(seen) == tag_of(hash) ? count_of(seen) : 0;
    }
    return sum;
}

int mill_address_take(struct mill_address_table *table, const uint8_t address[MILL_ADDRESS_BYTES],
                      int64_t max, uint32_t *ret_place)
{
    uint64_t hash = mill_siphash(table->key, address, MILL_ADDRESS_BYTES);
    uint32_t place = place_count(table, hash);
    if (place == PLACE_NONE) {
        return -EDQUOT;
    }
    uint64_t count = count_all(table, hash, place);
#ifdef MILL_MUTANT_CORE_ADDRESS_UNBOUNDED
    count = 0;
#endif
    if (max < 0 || count > (uint64_t)max) {
        mill_address_give(table, place);
        return -EDQUOT;
    }
    *ret_place = place;
    return 0;
}

void mill_address_give(struct mill_address_table *table, uint32_t place)
{
    MILL_ASSERT_LE(place, table->mask + PLACE_FIRST);
    MILL_ASSERT(place >= PLACE_REST);
#ifndef MILL_MUTANT_CORE_ADDRESS_KEPT
    _Atomic uint64_t *word =
        place == PLACE_REST ? &table->rest : &table->places[place - PLACE_FIRST];
    uint64_t before = atomic_fetch_sub(word, 1);
    MILL_ASSERT(count_of(before) > 0);
#endif
}
