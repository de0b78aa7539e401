/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets that nobody needs any more: a look at all of them, some each turn; see groups.h. */
#include "control/group/groups.h"

#include <string.h>

#include "protocol/errors.h"

enum {
    EXPIRE_BATCH = 256, /* offsets of one look, and tombstones of one append */
    EXPIRE_LOOKS_PER_STEP = 64,
};

void mill_groups_expiry_enter(struct mill_groups *groups, struct mill_group *group)
{
    groups->expiry.group = group;
    groups->expiry.offset = group ? group->offsets : NULL;
}

/* A reader of Kafka's ConsumerProtocolSubscription: version, then the topics. */
static bool subscription_names(const struct mill_group_blob *blob, const char *topic,
                               bool *ret_readable)
{
    size_t length = strlen(topic);
    uint32_t at = 6;
    *ret_readable = blob->size_bytes >= at;
    uint32_t count = *ret_readable ? mill_load_be32(blob->bytes + 2) : 0;
    for (uint32_t i = 0; i < count && *ret_readable; i++) {
        uint32_t left = blob->size_bytes - at;
        uint32_t size = left >= 2 ? mill_load_be16(blob->bytes + at) : UINT32_MAX;
        *ret_readable = left >= 2 && size <= left - 2;
        if (*ret_readable && size == length && memcmp(blob->bytes + at + 2, topic, length) == 0) {
            return true;
        }
        at += 2 + size;
    }
    return false;
}

bool mill_group_subscribes(const struct mill_group *group, const char *topic, bool *ret_known)
{
    *ret_known = group->protocol_type && strcmp(group->protocol_type, "consumer") == 0;
    if (group->consumers) {
        return mill_consumer_subscribes(group, topic);
    }
    for (const struct mill_group_member *member = group->members; member && *ret_known;
         member = member->next) {
        bool readable = false;
        const struct mill_group_blob *blob = member->protocols_count > 0
                                                 ? &member->protocols[0].metadata
                                                 : mill_group_metadata(group, member);
        if (subscription_names(blob, topic, &readable)) {
            return true;
        }
        *ret_known = readable;
    }
    return false;
}

static bool offset_expired(const struct mill_groups *groups, const struct mill_group *group,
                           const struct mill_group_offset *offset)
{
    int64_t now_ms = groups->env.now_ms;
    if (offset->value.expire_ms >= 0) {
        return offset->value.expire_ms <= now_ms && group->state == MILL_GROUP_EMPTY;
    }
    int64_t since_ms = offset->value.commit_ms;
    if (group->protocol_type) {
        bool known = false;
        if (group->state == MILL_GROUP_EMPTY && !group->consumers) {
            since_ms = MILL_MAX(since_ms, group->state_ms);
        } else if (group->state != MILL_GROUP_EMPTY &&
                   (group->state != MILL_GROUP_STABLE ||
                    mill_group_subscribes(group, offset->topic, &known) || !known)) {
            return false;
        }
    }
    return since_ms + groups->retention_ms <= now_ms;
}

static bool topic_exists(const struct mill_groups *groups, const struct mill_group_offset *offset)
{
    const struct mill_topic *topic = mill_topics_by_name(&groups->controller->topics, offset->topic,
                                                         (uint32_t)strlen(offset->topic));
    return topic && (uint32_t)offset->partition < topic->record->partitions_count;
}

/* Removes what is expired of the next offsets of the group and, by age and when nothing is left of
 * it, the group. Moves on to the next group behind the last offset. */
static void group_expire(struct mill_groups *groups, struct mill_group *group)
{
    struct mill_group_offset *dead[EXPIRE_BATCH];
    struct mill_group_offset *offset = groups->expiry.offset;
    uint32_t count = 0;
    bool by_age = groups->expiry.looks & MILL_LOOK_AGE;
    for (uint32_t i = 0; offset && i < EXPIRE_BATCH; i++, offset = offset->next) {
        if ((by_age && offset_expired(groups, group, offset)) || !topic_exists(groups, offset)) {
            dead[count++] = offset;
        }
    }
    bool idle = group->state == MILL_GROUP_EMPTY && group->commits == 0 &&
                group->pending_count == 0 && group->members_count == 0;
    bool gone = by_age && idle && group->offsets_count == count;
#ifdef MILL_MUTANT_GROUP_GOES_WITH_TOPIC
    gone = idle && group->offsets_count == count;
#endif
    bool record = gone && group->generation > 0;
    groups->expiry.offset = offset;
    if (!offset) {
        mill_groups_expiry_enter(groups, group->shard_next);
    }
    if (count + record > 0 &&
        mill_groups_bury(groups, group, dead, count, record, NULL, NULL) != MILL_KERR_NONE) {
        return; /* next time */
    }
    groups->offsets_expired += count;
    for (uint32_t i = 0; i < count; i++) {
        mill_groups_offset_remove(groups, dead[i]);
    }
    if (gone) {
        mill_groups_remove(groups, group);
    }
}

void mill_groups_expiry_begin(struct mill_groups *groups, uint32_t looks)
{
    if (groups->expiry.looks) {
        groups->expiry.looks_next |= looks;
    } else if (groups->shards.count > 0) {
        groups->expiry = (struct mill_expiry){.looks = looks};
        mill_groups_expiry_enter(groups, groups->shards.items[0].first);
    }
}

/* One turn's part: as many offsets and groups as hold up nobody. */
void mill_groups_expiry_step(struct mill_groups *groups)
{
    struct mill_expiry *expiry = &groups->expiry;
    for (uint32_t i = 0; i < EXPIRE_LOOKS_PER_STEP && expiry->looks; i++) {
        bool ready = groups->shards.items[expiry->shard].state == MILL_SHARD_READY;
        if (expiry->group && ready) {
            group_expire(groups, expiry->group);
        } else if (++expiry->shard < groups->shards.count) {
            mill_groups_expiry_enter(groups, groups->shards.items[expiry->shard].first);
        } else {
            expiry->looks = 0;
        }
    }
    if (!expiry->looks && expiry->looks_next) {
        mill_groups_expiry_begin(groups, expiry->looks_next);
    }
}
