/* SPDX-License-Identifier: Apache-2.0 */
/* Places of ids; see coordinators.h. */
#include "ipc/coordinators.h"

#include <string.h>

const char *mill_coordinator_topic(int8_t key_type)
{
    return key_type == MILL_COORDINATOR_GROUP         ? MILL_OFFSETS_TOPIC
           : key_type == MILL_COORDINATOR_TRANSACTION ? MILL_TXN_TOPIC
                                                      : NULL;
}

/* The sum with one more character. */
static uint32_t with(uint32_t sum, uint32_t code)
{
    if (code >= 0x10000) {
        code -= 0x10000;
        sum = sum * 31 + (0xd800 + (code >> 10));
        code = 0xdc00 + (code & 0x3ff);
    }
    return sum * 31 + code;
}

void mill_id_hash_add(struct mill_id_hash *hash, const uint8_t *bytes, uint32_t size_bytes)
{
    for (uint32_t i = 0; i < size_bytes; i++) {
        uint32_t byte = bytes[i];
        if (hash->due > 0 && (byte & 0xc0) == 0x80) {
            hash->code = (hash->code << 6) | (byte & 0x3f);
            hash->due--;
            continue;
        }
        hash->sum = hash->begun ? with(hash->sum, hash->code) : hash->sum;
        hash->begun = true;
        hash->due = byte < 0x80 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
        hash->code = byte & (hash->due == 0 ? 0x7fu : 0x3fu >> hash->due);
    }
}

int32_t mill_id_hash_shard(const struct mill_id_hash *hash, uint32_t count)
{
    int32_t sum = (int32_t)(hash->begun ? with(hash->sum, hash->code) : hash->sum);
    uint32_t positive = sum == INT32_MIN ? 0 : (uint32_t)(sum < 0 ? -sum : sum);
    return count > 0 ? (int32_t)(positive % count) : 0;
}

int32_t mill_shard_of(const char *id, uint32_t count)
{
    struct mill_id_hash hash = {0};
    mill_id_hash_add(&hash, (const uint8_t *)id, (uint32_t)strlen(id));
    return mill_id_hash_shard(&hash, count);
}
