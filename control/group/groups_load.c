/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and offsets as the records of __consumer_offsets tell them: at a start, and after an
 * append of unknown outcome; see groups.h. A shard is a partition of __consumer_offsets. */
#include "control/group/groups.h"

#include <errno.h>
#include <string.h>

#include "base/siphash.h"
#include "protocol/errors.h"

static uint64_t key_of(const struct mill_groups *groups, const char *group_id)
{
    return mill_siphash(groups->key, group_id, strlen(group_id));
}

bool mill_groups_apply_group(struct mill_groups *groups, const struct mill_group_record *record)
{
    struct mill_group *group = mill_groups_find(groups, record->group);
    if (record->tombstone) {
        if (group && !group->consumers) {
            mill_group_forget_classic(&groups->env, group);
            if (group->offsets_count == 0) {
                mill_groups_remove(groups, group);
            }
        }
        return true;
    }
    group = mill_groups_make(groups, record->group);
    if (!group) {
        groups->shards.memory_short = groups->groups_count < MILL_GROUPS_MAX;
        return false;
    }
    mill_consumer_drop(&groups->env, group);
    mill_group_clear_members(&groups->env, group);
    group->generation = record->generation;
    group->state_ms = record->state_ms >= 0 ? record->state_ms : groups->env.now_ms;
    const char *type = record->protocol_type[0] != '\0' ? record->protocol_type : NULL;
    bool whole = mill_group_set_text(&group->protocol_type, type) == 0 &&
                 mill_group_set_text(&group->protocol, record->protocol) == 0;
    for (uint32_t i = 0; i < record->members_count && whole; i++) {
        const struct mill_group_value_member *member = &record->members[i];
        struct mill_group_member *made =
            mill_group_restore_member(&groups->env, group, &member->join, &member->assignment);
        whole = made != NULL;
        if (made && record->leader && strcmp(made->id, record->leader) == 0) {
            group->leader = made;
        }
    }
    groups->shards.memory_short = !whole;
#ifndef MILL_MUTANT_GROUP_MEMBERS_SOME
    if (!whole) { /* none, so that the record counts when it is read again */
        mill_group_clear_members(&groups->env, group);
    }
#endif
    return whole;
}

static bool apply_consumer(struct mill_groups *groups, const struct mill_group_record *record)
{
    if (record->tombstone && record->consumer.type == MILL_CONSUMER_RECORD_EPOCH) {
        groups->buried_offset = record->value.log_offset;
        groups->buried_key = key_of(groups, record->group);
    }
    struct mill_group *group = record->tombstone ? mill_groups_find(groups, record->group)
                                                 : mill_groups_make(groups, record->group);
    if (!group) {
        groups->shards.memory_short = !record->tombstone && groups->groups_count < MILL_GROUPS_MAX;
        return record->tombstone;
    }
    bool good = mill_consumer_apply(&groups->consumer, group, &record->consumer);
#ifndef MILL_MUTANT_CONSUMER_MEMORY_FORGOTTEN
    groups->shards.memory_short = !good;
#endif
    if (!group->consumers && group->offsets_count == 0 && group->members_count == 0 &&
        group->commits == 0) {
        mill_groups_remove(groups, group);
    }
    return good;
}

static bool apply_offset(struct mill_groups *groups, const struct mill_group_record *record)
{
    struct mill_group *group = record->tombstone ? mill_groups_find(groups, record->group)
                                                 : mill_groups_make(groups, record->group);
    if (record->tombstone) {
        struct mill_group_offset *offset =
            group ? mill_groups_offset(groups, group, record->topic, record->partition) : NULL;
        if (offset) {
            mill_groups_offset_remove(groups, offset);
        }
        return true;
    }
    bool set = group && mill_groups_offset_set(groups, group, record->topic, record->partition,
                                               &record->value);
    groups->shards.memory_short = !set && (group || groups->groups_count < MILL_GROUPS_MAX);
    return set;
}

/* ret: false no memory. */
static bool load_txn_offset(struct mill_groups *groups, int32_t shard, int64_t producer_id,
                            const struct mill_group_record *record)
{
    struct mill_txn_offset *offset = mill_txn_offset_new(groups, record->group, record->topic,
                                                         record->partition, &record->value, true);
    if (offset) {
        mill_txn_offsets_add(groups, shard, producer_id, offset);
    }
    groups->shards.memory_short = !offset;
    return offset != NULL;
}

static bool load_marker(void *context, int32_t shard, const struct mill_journal_at *at, bool commit)
{
#ifdef MILL_MUTANT_GROUP_TXN_MARKER_UNREAD
    return true;
#endif
    return mill_txn_offsets_end(context, shard, at->producer_id, commit, at->offset);
}

/* A record of a classic group. Again: what is in memory of one is newer than its records, but for
 * those by which it became one, or is one no more: they are part of a change of unknown outcome. */
static bool load_group(struct mill_groups *groups, const struct mill_group_record *record,
                       bool again)
{
    /* One append, in which it is the record behind the last tombstone of its group. */
    bool same = groups->buried_key == key_of(groups, record->group);
#ifdef MILL_MUTANT_MIGRATION_ANY_TURNED
    same = true;
#endif
    bool turned =
        !record->tombstone && same && record->value.log_offset == groups->buried_offset + 1;
    const struct mill_group *known = mill_groups_find(groups, record->group);
    bool members = known && known->members_count > 0;
#ifdef MILL_MUTANT_MIGRATION_UNTURNED
    turned = false;
#endif
    if (again && !(record->tombstone ? members : turned && !members)) {
        return true;
    }
    bool good = mill_groups_apply_group(groups, record);
    struct mill_group *group = mill_groups_find(groups, record->group);
    if (group) {
        group->turned_back = turned;
    }
    return good;
}

static bool load_record(void *context, int32_t shard, bool again, const struct mill_journal_at *at,
                        const struct mill_record *record, struct mill_pool *pool)
{
    struct mill_groups *groups = context;
    struct mill_group_record read;
    int r = mill_group_record_read(record, pool, &read);
    if (r < 0) {
        groups->shards.memory_short = r == -ENOMEM && pool->used_bytes < pool->limit_bytes / 2;
        return false;
    }
    if (read.kind != MILL_GROUP_RECORD_OTHER &&
        mill_shard_of(read.group, groups->shards.count) != shard) {
        return false; /* of a time with fewer partitions: another one has the group now */
    }
    read.value.log_offset = at->offset;
    if (read.kind == MILL_GROUP_RECORD_OFFSET && at->producer_id >= 0 && !read.tombstone) {
        return load_txn_offset(groups, shard, at->producer_id, &read);
    }
    if (read.kind == MILL_GROUP_RECORD_OFFSET) {
        return apply_offset(groups, &read);
    }
    if (read.kind == MILL_GROUP_RECORD_CONSUMER) {
        return apply_consumer(groups, &read); /* memory is what was read, in whatever order */
    }
    return read.kind != MILL_GROUP_RECORD_GROUP || load_group(groups, &read, again);
}

static void load_ready(void *context, int32_t shard, bool again)
{
    struct mill_groups *groups = context;
    struct mill_group *next = NULL;
    for (struct mill_group *group = groups->shards.items[shard].first; group; group = next) {
        next = group->shard_next;
        if (group->turned_back && !group->consumers) {
            mill_group_turned_back(&groups->env, group, true);
            group->turned_back = false;
        } else if (group->consumers && again) {
            mill_consumer_timer(&groups->consumer, group);
        } else if (group->consumers) {
            mill_consumer_resume(&groups->consumer, group);
        } else if (!again) {
            mill_group_resume(&groups->env, group);
        }
    }
}

static void load_drop(void *context, int32_t shard)
{
    struct mill_groups *groups = context;
    groups->expiry = (struct mill_expiry){0};
    mill_txn_offsets_drop(groups, shard);
    while (groups->shards.items[shard].first) {
        struct mill_group *group = groups->shards.items[shard].first;
        mill_group_release(&groups->env, group, MILL_KERR_NOT_COORDINATOR);
        mill_consumers_release(groups, group, MILL_KERR_NOT_COORDINATOR);
        mill_groups_remove(groups, group);
    }
}

void mill_groups_txn_ended(struct mill_groups *groups, const char *topic, int32_t partition,
                           int64_t producer_id, bool commit)
{
    /* While the shard is read on, the marker is met there, behind what is still to be read. */
    if (strcmp(topic, MILL_OFFSETS_TOPIC) == 0 && (uint32_t)partition < groups->shards.count &&
        groups->shards.items[partition].state == MILL_SHARD_READY &&
        !mill_txn_offsets_end(groups, partition, producer_id, commit, INT64_MAX)) {
        /* Those that are left are met again, and then their marker. */
        mill_shards_read_again(&groups->shards, partition,
                               mill_txn_offsets_first(groups, partition, producer_id));
    }
}

const struct mill_shards_calls mill_groups_load_calls = {
    .record = load_record, .marker = load_marker, .ready = load_ready, .drop = load_drop};
