/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets inside transactions; see txn_offsets.h. Two tables over the same entries. */
#include "control/group/txn_offsets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"
#include "control/group/groups.h"

enum {
    BUCKETS = 1 << 12,
};

int mill_txn_offsets_open(struct mill_txn_offsets *offsets)
{
    offsets->by_producer = calloc(BUCKETS, sizeof(struct mill_txn_offset *));
    offsets->by_key = calloc(BUCKETS, sizeof(struct mill_txn_offset *));
    return offsets->by_producer && offsets->by_key ? 0 : -ENOMEM;
}

void mill_txn_offsets_close(struct mill_txn_offsets *offsets)
{
    free(offsets->by_producer);
    free(offsets->by_key);
    *offsets = (struct mill_txn_offsets){0};
}

static struct mill_txn_offset **producer_bucket(const struct mill_groups *groups, int32_t shard,
                                                int64_t producer_id)
{
    const uint64_t words[2] = {(uint64_t)producer_id, (uint32_t)shard};
    uint64_t hash = mill_siphash(groups->key, words, sizeof(words));
    return &groups->txn_offsets.by_producer[hash & (BUCKETS - 1)];
}

static struct mill_txn_offset **key_bucket(const struct mill_groups *groups, const char *group_id,
                                           const char *topic, int32_t partition)
{
    uint64_t hash = mill_siphash(groups->key, group_id, strlen(group_id));
    hash ^= mill_siphash(groups->key, topic, strlen(topic)) + (uint32_t)partition;
    hash = mill_siphash(groups->key, &hash, sizeof(hash));
    return &groups->txn_offsets.by_key[hash & (BUCKETS - 1)];
}

static bool same_key(const struct mill_txn_offset *offset, const char *group_id, const char *topic,
                     int32_t partition)
{
    return offset->partition == partition && strcmp(offset->group_id, group_id) == 0 &&
           strcmp(offset->topic, topic) == 0;
}

struct mill_txn_offset *mill_txn_offset_new(struct mill_groups *groups, const char *group_id,
                                            const char *topic, int32_t partition,
                                            const struct mill_offset_value *value, bool loading)
{
    size_t group_bytes = strlen(group_id) + 1;
    size_t topic_bytes = strlen(topic) + 1;
    size_t metadata_bytes = strlen(value->metadata) + 1;
    size_t size_bytes = sizeof(struct mill_txn_offset) + group_bytes + topic_bytes + metadata_bytes;
#ifdef MILL_MUTANT_GROUP_LOAD_BOUNDED
    loading = false;
#endif
    bool full = !loading && groups->env.bytes + size_bytes > groups->env.bytes_max;
    groups->env.full += full;
    struct mill_txn_offset *offset = full ? NULL : calloc(1, size_bytes);
    if (!offset) {
        return NULL;
    }
    char *topic_at = offset->group_id + group_bytes;
    char *metadata_at = topic_at + topic_bytes;
    memcpy(offset->group_id, group_id, group_bytes);
    memcpy(topic_at, topic, topic_bytes);
    memcpy(metadata_at, value->metadata, metadata_bytes);
    offset->topic = topic_at;
    offset->partition = partition;
    offset->size_bytes = (uint32_t)size_bytes;
    offset->value = *value;
    offset->value.metadata = metadata_at;
    groups->env.bytes += size_bytes;
    return offset;
}

void mill_txn_offset_free(struct mill_groups *groups, struct mill_txn_offset *offset)
{
    if (offset) {
        groups->env.bytes -= offset->size_bytes;
        free(offset);
    }
}

/* Takes *at, an entry of its producer's bucket, out of both tables. */
static struct mill_txn_offset *take_out(struct mill_groups *groups, struct mill_txn_offset **at)
{
    struct mill_txn_offset *offset = *at;
    struct mill_txn_offset **key =
        key_bucket(groups, offset->group_id, offset->topic, offset->partition);
    while (*key != offset) {
        key = &(*key)->next_key;
    }
    *key = offset->next_key;
    *at = offset->next_producer;
    groups->txn_offsets.count--;
    return offset;
}

static bool is_of(const struct mill_txn_offset *offset, int32_t shard, int64_t producer_id)
{
    return offset->producer_id == producer_id && offset->shard == shard;
}

void mill_txn_offsets_add(struct mill_groups *groups, int32_t shard, int64_t producer_id,
                          struct mill_txn_offset *offset)
{
    struct mill_txn_offset **bucket = producer_bucket(groups, shard, producer_id);
    for (struct mill_txn_offset **at = bucket; *at; at = &(*at)->next_producer) {
        if (is_of(*at, shard, producer_id) &&
            same_key(*at, offset->group_id, offset->topic, offset->partition)) {
            mill_txn_offset_free(groups, take_out(groups, at));
            break;
        }
    }
    struct mill_txn_offset **key =
        key_bucket(groups, offset->group_id, offset->topic, offset->partition);
    offset->shard = shard;
    offset->producer_id = producer_id;
    offset->next_producer = *bucket;
    offset->next_key = *key;
    *bucket = offset;
    *key = offset;
    groups->txn_offsets.count++;
}

/* The transaction is committed. ret: false no memory. */
static bool settle(struct mill_groups *groups, const struct mill_txn_offset *offset)
{
    struct mill_group *group = mill_groups_make(groups, offset->group_id);
    const struct mill_group_offset *present =
        group ? mill_groups_offset(groups, group, offset->topic, offset->partition) : NULL;
#ifndef MILL_MUTANT_GROUP_TXN_OFFSET_OLD_WINS
    if (present && present->value.log_offset > offset->value.log_offset) {
        return true; /* committed outside of the transaction, after this one */
    }
#endif
    if (!group && groups->groups_count >= MILL_GROUPS_MAX) {
        groups->commits_failed++; /* read from the log again at the next start */
        return true;
    }
    return group &&
           mill_groups_offset_set(groups, group, offset->topic, offset->partition, &offset->value);
}

bool mill_txn_offsets_end(struct mill_groups *groups, int32_t shard, int64_t producer_id,
                          bool commit, int64_t before_offset)
{
    struct mill_txn_offset **at = producer_bucket(groups, shard, producer_id);
    bool whole = true;
#ifdef MILL_MUTANT_GROUP_TXN_OFFSET_ABORTED_KEPT
    commit = true;
#endif
    while (*at) {
        bool ends = is_of(*at, shard, producer_id) && (*at)->value.log_offset < before_offset;
        bool done = ends && (!commit || settle(groups, *at));
#ifdef MILL_MUTANT_GROUP_TXN_OFFSET_MEMORY_LOST
        done = ends;
#endif
        whole = whole && done == ends;
        if (done) {
            mill_txn_offset_free(groups, take_out(groups, at));
        } else {
            at = &(*at)->next_producer;
        }
    }
    return whole;
}

int64_t mill_txn_offsets_first(const struct mill_groups *groups, int32_t shard, int64_t producer_id)
{
    int64_t first = INT64_MAX;
    for (const struct mill_txn_offset *offset = *producer_bucket(groups, shard, producer_id);
         offset; offset = offset->next_producer) {
        if (is_of(offset, shard, producer_id)) {
            first = MILL_MIN(first, offset->value.log_offset);
        }
    }
    return first;
}

void mill_txn_offsets_drop(struct mill_groups *groups, int32_t shard)
{
    for (uint32_t i = 0; i < BUCKETS && groups->txn_offsets.count > 0; i++) {
        struct mill_txn_offset **at = &groups->txn_offsets.by_producer[i];
        while (*at) {
            if ((*at)->shard == shard) {
                mill_txn_offset_free(groups, take_out(groups, at));
            } else {
                at = &(*at)->next_producer;
            }
        }
    }
}

bool mill_txn_offsets_wait(const struct mill_groups *groups, const char *group_id,
                           const char *topic, int32_t partition)
{
    const struct mill_txn_offset *offset = *key_bucket(groups, group_id, topic, partition);
    while (offset && !same_key(offset, group_id, topic, partition)) {
        offset = offset->next_key;
    }
    return offset != NULL;
}
