/* SPDX-License-Identifier: Apache-2.0 */
/* From a 4-tuple to an index: open addressing with linear probing, at most half full, keyed by
 * SipHash so that a stranger cannot aim at one bucket. Removal shifts followers back, so there are
 * no tombstones. Used for connections, half-open entries and TIME-WAIT entries alike; the object
 * with that index lives in its owner's own array.
 *
 *   slots: | hash,index | hash,index | empty | ...      keys: one per index
 *
 * Owner: one core. Takes its memory at init.
 */
#ifndef MILL_DATAPLANE_NET_CONN_TABLE_H
#define MILL_DATAPLANE_NET_CONN_TABLE_H

#include "dataplane/net/flow.h"

#define MILL_FLOW_NONE UINT32_MAX

struct mill_flow_slot {
    uint32_t hash;
    uint32_t index; /* MILL_FLOW_NONE: empty */
};

struct mill_flow_table {
    struct mill_flow_slot *slots;
    struct mill_flow_key *keys;
    uint64_t secret[2];
    uint32_t mask;
    uint32_t count;
    uint32_t max; /* indices are below */
};

/* Memory for max entries. ret: 0, -ENOMEM. */
int mill_flow_table_init(struct mill_flow_table *table, uint32_t max,
                         const uint64_t secret[2]) MILL_WARN_UNUSED;
void mill_flow_table_fini(struct mill_flow_table *table);
uint64_t mill_flow_table_bytes(uint32_t max);

uint32_t mill_flow_hash(const struct mill_flow_table *table, const struct mill_flow_key *key);

/* ret: index, MILL_FLOW_NONE when the key is not there. */
uint32_t mill_flow_find(const struct mill_flow_table *table, const struct mill_flow_key *key);

/* The key is not there yet and index is not in use. */
void mill_flow_insert(struct mill_flow_table *table, const struct mill_flow_key *key,
                      uint32_t index);

/* Takes out the entry with that index; it is there. */
void mill_flow_remove(struct mill_flow_table *table, uint32_t index);

#endif
