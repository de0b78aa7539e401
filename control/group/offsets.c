/* SPDX-License-Identifier: Apache-2.0 */
/* Committed offsets in memory: each in one hash table of all groups, and in its group's list; see
 * groups.h. */
#include "control/group/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"

enum {
    OFFSET_BUCKETS = 1 << 20, /* sixteen times as many as of groups */
};

static struct mill_group_offset **offset_bucket_of(const struct mill_groups *groups,
                                                   const struct mill_group *group,
                                                   const char *topic, int32_t partition)
{
    uint64_t hash = mill_siphash(groups->key, topic, strlen(topic));
    hash ^= (uint64_t)(uintptr_t)group ^ ((uint64_t)(uint32_t)partition << 32);
    return &groups->offset_buckets[mill_siphash(groups->key, &hash, sizeof(hash)) &
                                   (OFFSET_BUCKETS - 1)];
}

bool mill_groups_offsets_open(struct mill_groups *groups)
{
    groups->offset_buckets = calloc(OFFSET_BUCKETS, sizeof(struct mill_group_offset *));
    return groups->offset_buckets != NULL;
}

struct mill_group_offset *mill_groups_offset(const struct mill_groups *groups,
                                             const struct mill_group *group, const char *topic,
                                             int32_t partition)
{
    struct mill_group_offset *offset = *offset_bucket_of(groups, group, topic, partition);
    while (offset && (offset->group != group || offset->partition != partition ||
                      strcmp(offset->topic, topic) != 0)) {
        offset = offset->next_hash;
    }
    return offset;
}

void mill_groups_offset_remove(struct mill_groups *groups, struct mill_group_offset *offset)
{
    struct mill_group *group = offset->group;
    struct mill_group_offset **at =
        offset_bucket_of(groups, group, offset->topic, offset->partition);
    while (*at != offset) {
        at = &(*at)->next_hash;
    }
    *at = offset->next_hash;
    if (offset->prev) {
        offset->prev->next = offset->next;
    } else {
        group->offsets = offset->next;
    }
    if (offset->next) {
        offset->next->prev = offset->prev;
    }
    if (groups->expiry.offset == offset) {
        groups->expiry.offset = offset->next;
    }
    group->offsets_count--;
    groups->offsets_count--;
    groups->env.bytes -= offset->size_bytes;
    free(offset);
}

bool mill_groups_offset_set(struct mill_groups *groups, struct mill_group *group, const char *topic,
                            int32_t partition, const struct mill_offset_value *value)
{
    size_t topic_bytes = strlen(topic) + 1;
    size_t metadata_bytes = strlen(value->metadata) + 1;
    size_t size_bytes = sizeof(struct mill_group_offset) + topic_bytes + metadata_bytes;
    struct mill_group_offset *old = mill_groups_offset(groups, group, topic, partition);
    if (old && strcmp(old->value.metadata, value->metadata) == 0) {
        const char *metadata = old->value.metadata;
        old->value = *value;
        old->value.metadata = metadata;
        return true;
    }
    struct mill_group_offset *offset = malloc(size_bytes);
    if (!offset) {
        return false;
    }
    *offset = (struct mill_group_offset){.group = group,
                                         .value = *value,
                                         .partition = partition,
                                         .size_bytes = (uint32_t)size_bytes};
    memcpy(offset->topic, topic, topic_bytes);
    memcpy(offset->topic + topic_bytes, value->metadata, metadata_bytes);
    offset->value.metadata = offset->topic + topic_bytes;
    if (old) {
        mill_groups_offset_remove(groups, old);
    }
    struct mill_group_offset **bucket = offset_bucket_of(groups, group, topic, partition);
    offset->next_hash = *bucket;
    *bucket = offset;
    offset->next = group->offsets;
    if (group->offsets) {
        group->offsets->prev = offset;
    }
    group->offsets = offset;
    group->offsets_count++;
    groups->offsets_count++;
    groups->env.bytes += size_bytes;
    return true;
}
