/* SPDX-License-Identifier: Apache-2.0 */
/* Where what coordinators keep lies: the internal topic of a kind of key, and the partition of it
 * that an id belongs to, as Kafka places them. Cores name coordinators by it, control keeps their
 * state by it. Pure. */
#ifndef MILL_IPC_COORDINATORS_H
#define MILL_IPC_COORDINATORS_H

#include <stdbool.h>
#include <stdint.h>

#define MILL_OFFSETS_TOPIC "__consumer_offsets"
#define MILL_TXN_TOPIC     "__transaction_state"

/* Kinds of keys of FindCoordinator. */
enum {
    MILL_COORDINATOR_GROUP = 0,
    MILL_COORDINATOR_TRANSACTION = 1,
};

/* The internal topic of a kind of key. ret: NULL: no such kind. */
const char *mill_coordinator_topic(int8_t key_type);

/* Java's hash of a String, over the UTF-16 units of text that comes in runs of UTF-8. Zeroed before
 * the first run. */
struct mill_id_hash {
    uint32_t sum;
    uint32_t code; /* of the character that is not summed yet */
    uint8_t due;   /* bytes that it lacks */
    bool begun;
};
void mill_id_hash_add(struct mill_id_hash *hash, const uint8_t *bytes, uint32_t size_bytes);
/* The partition of a whole text, of count; 0 where there is none. */
int32_t mill_id_hash_shard(const struct mill_id_hash *hash, uint32_t count);

/* The same of a terminated id. */
int32_t mill_shard_of(const char *id, uint32_t count);

#endif
