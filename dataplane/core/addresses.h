/* SPDX-License-Identifier: Apache-2.0 */
/* How many connections each address has, over all cores. Pure: no clock, no map, no connection.
 *
 *   place: | tag of an address, 40 bits | its connections, 24 bits |
 *
 * One table of places is shared by all cores of a process. Any core calls at any time: a count
 * moves by one atomic addition, a place whose count is 0 is given to another address by one swap;
 * no lock, no loop that another core can make longer. An address has one place, or for a moment
 * two that cores took at once: both are counted. Places are four times as many as there can be
 * connections, so that nearly always one of those that an address may have is free; who finds none
 * shares one more bound with all others who find none. Who loses its place to other cores again and
 * again is refused.
 *
 * Addresses are told apart by 52 bits and more of a hash under a key that nobody knows: two that
 * fall together, one pair in millions of millions, share their bound. */
#ifndef MILL_DATAPLANE_ADDRESSES_H
#define MILL_DATAPLANE_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum {
    MILL_ADDRESS_BYTES = 16,
    MILL_ADDRESS_PLACES = 32,               /* that an address may have */
    MILL_ADDRESS_CONNECTIONS_MAX = 1 << 22, /* of a table */
};

struct mill_address_table;

/* Bytes of a table for so many connections. */
uint64_t mill_address_table_bytes(uint32_t connections_max);
/* key: 16 secret bytes. ret: NULL out of memory. */
struct mill_address_table *mill_address_table_create(uint32_t connections_max,
                                                     const uint64_t key[2]);
void mill_address_table_destroy(struct mill_address_table *table);

/* Counts a connection of the address, when it then has at most max. Two cores that take the last
 * one at once may both be refused.
 * out: ret_place, not 0, to be given back when the connection ends; untouched on failure
 * ret: 0, -EDQUOT */
int mill_address_take(struct mill_address_table *table, const uint8_t address[MILL_ADDRESS_BYTES],
                      int64_t max, uint32_t *ret_place) MILL_WARN_UNUSED;
void mill_address_give(struct mill_address_table *table, uint32_t place);

#endif
