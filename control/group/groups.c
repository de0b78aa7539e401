/* SPDX-License-Identifier: Apache-2.0 */
/* All groups; see groups.h. A shard is a partition of __consumer_offsets. */
#include "control/group/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log_line.h"
#include "base/siphash.h"
#include "protocol/errors.h"

enum {
    BUCKETS = 1 << 16, /* of groups; offsets have sixteen times as many */
    OFFSET_BUCKETS = 1 << 20,
    TIMERS_PER_STEP = 1024,
    EXPIRE_BATCH = 256, /* offsets of one look, and tombstones of one append */
    EXPIRE_LOOKS_PER_STEP = 64,
    RETRY_NS = 100000000,
};

/* --- hashes ------------------------------------------------------------------------------------
 */

static struct mill_group **bucket_of(const struct mill_groups *groups, const char *group_id)
{
    return &groups->buckets[mill_siphash(groups->key, group_id, strlen(group_id)) & (BUCKETS - 1)];
}

static struct mill_group_offset **offset_bucket_of(const struct mill_groups *groups,
                                                   const struct mill_group *group,
                                                   const char *topic, int32_t partition)
{
    uint64_t hash = mill_siphash(groups->key, topic, strlen(topic));
    hash ^= (uint64_t)(uintptr_t)group ^ ((uint64_t)(uint32_t)partition << 32);
    return &groups->offset_buckets[mill_siphash(groups->key, &hash, sizeof(hash)) &
                                   (OFFSET_BUCKETS - 1)];
}

/* --- groups ------------------------------------------------------------------------------------
 */

struct mill_group *mill_groups_find(const struct mill_groups *groups, const char *group_id)
{
    struct mill_group *group = *bucket_of(groups, group_id);
    while (group && strcmp(group->id, group_id) != 0) {
        group = group->next;
    }
    return group;
}

struct mill_group *mill_groups_make(struct mill_groups *groups, const char *group_id)
{
    struct mill_group *group = mill_groups_find(groups, group_id);
    if (group) {
        return group;
    }
    if (groups->groups_count >= MILL_GROUPS_MAX) {
        groups->env.full++;
        return NULL;
    }
    group = mill_group_new(group_id);
    if (!group) {
        return NULL;
    }
    struct mill_group **bucket = bucket_of(groups, group_id);
    group->next = *bucket;
    *bucket = group;
    group->shard = mill_shard_of(group_id, groups->shards.count);
    group->state_ms = groups->env.now_ms;
    struct mill_shard *shard = &groups->shards.items[group->shard];
    group->shard_next = shard->first;
    if (group->shard_next) {
        group->shard_next->shard_prev = group;
    }
    shard->first = group;
    groups->groups_count++;
    return group;
}

static void expiry_enter(struct mill_groups *groups, struct mill_group *group)
{
    groups->expiry.group = group;
    groups->expiry.offset = group ? group->offsets : NULL;
}

void mill_groups_remove(struct mill_groups *groups, struct mill_group *group)
{
    struct mill_group **at = bucket_of(groups, group->id);
    while (*at != group) {
        at = &(*at)->next;
    }
    *at = group->next;
    if (group->shard_prev) {
        group->shard_prev->shard_next = group->shard_next;
    } else {
        groups->shards.items[group->shard].first = group->shard_next;
    }
    if (group->shard_next) {
        group->shard_next->shard_prev = group->shard_prev;
    }
    while (group->offsets) {
        mill_groups_offset_remove(groups, group->offsets);
    }
    if (groups->expiry.group == group) {
        expiry_enter(groups, group->shard_next);
    }
    mill_heap_remove(&groups->timers, &group->timer);
    mill_group_free(&groups->env, group);
    groups->groups_count--;
}

const char *mill_group_type_name(const struct mill_group *group)
{
    return group->consumers ? "consumer" : "classic";
}

const char *mill_group_state_text(const struct mill_group *group)
{
    return group->consumers ? mill_consumer_group_state(group)
                            : mill_group_state_name(group->state);
}

/* --- offsets -----------------------------------------------------------------------------------
 */

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

/* --- requests that wait ------------------------------------------------------------------------
 */

void mill_groups_take(struct mill_admin_request *request)
{
    request->taken = true;
    free(request->frame);
    request->frame = NULL;
    mill_pool_clear(&request->pool);
}

void mill_groups_give(struct mill_groups *groups, struct mill_admin_request *request)
{
    if (!request->taken) {
        return; /* its handler still has it */
    }
    request->next = NULL;
    *groups->answered_last = request;
    groups->answered_last = &request->next;
}

struct mill_admin_request *mill_groups_answered(struct mill_groups *groups)
{
    struct mill_admin_request *request = groups->answered;
    if (request) {
        groups->answered = request->next;
        if (!groups->answered) {
            groups->answered_last = &groups->answered;
        }
        request->next = NULL;
    }
    return request;
}

/* --- the log -----------------------------------------------------------------------------------
 */

int16_t mill_groups_append(struct mill_groups *groups, int32_t shard,
                           const struct mill_journal_record *records, uint32_t records_count,
                           mill_journal_done done, void *context)
{
    int16_t error = mill_shards_append(&groups->shards, shard, records, records_count,
                                       groups->env.now_ms, done, context);
    return error == MILL_KERR_MESSAGE_TOO_LARGE ? (int16_t)MILL_KERR_INVALID_COMMIT_OFFSET_SIZE
                                                : error;
}

/* --- storing a group's record ------------------------------------------------------------------
 */

struct stored {
    struct mill_groups *groups;
    enum mill_group_store why;
    int32_t shard;
    int32_t generation;
    bool skip;
    char *member_id; /* behind group_id */
    char group_id[];
};

static void group_stored(void *context, const struct mill_journal_result *result)
{
    struct stored *stored = context;
    struct mill_groups *groups = stored->groups;
    int16_t error = mill_shards_outcome(&groups->shards, stored->shard, result);
    struct mill_group *group = mill_groups_find(groups, stored->group_id);
    if (group && stored->why == MILL_GROUP_STORE_SYNC) {
        mill_group_synced(&groups->env, group, stored->generation, error);
    } else if (group && stored->why == MILL_GROUP_STORE_STATIC) {
        mill_group_replaced(&groups->env, group, stored->member_id, stored->generation,
                            stored->skip, error);
    }
    free(stored);
}

static int16_t group_store(void *context, struct mill_group *group, enum mill_group_store why,
                           struct mill_group_member *member, bool skip)
{
    struct mill_groups *groups = context;
    struct mill_pool pool = {.limit_bytes = MILL_SHARDS_POOL_BYTES};
    struct mill_journal_record record = {0};
    uint32_t value_bytes = 0;
    int16_t error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    size_t id_bytes = strlen(group->id) + 1;
    size_t member_bytes = member ? strlen(member->id) + 1 : 1;
    struct stored *stored = calloc(1, sizeof(*stored) + id_bytes + member_bytes);
    record.key = mill_group_key_write(&pool, group->id, &record.key_bytes);
    record.value = mill_group_value_write(&pool, group, &value_bytes);
    record.value_bytes = (int32_t)value_bytes;
    if (stored && record.key && record.value) {
        *stored = (struct stored){.groups = groups,
                                  .why = why,
                                  .shard = group->shard,
                                  .generation = group->generation,
                                  .skip = skip};
        memcpy(stored->group_id, group->id, id_bytes);
        stored->member_id = stored->group_id + id_bytes;
        if (member) {
            memcpy(stored->member_id, member->id, member_bytes);
        }
        error = mill_groups_append(groups, group->shard, &record, 1, group_stored, stored);
        /* The assignments together are larger than a record may be: Kafka says the same. */
        error =
            error == MILL_KERR_INVALID_COMMIT_OFFSET_SIZE ? MILL_KERR_UNKNOWN_SERVER_ERROR : error;
    }
    if (error != MILL_KERR_NONE) {
        free(stored);
    }
    mill_pool_clear(&pool);
    return error;
}

/* --- tombstones --------------------------------------------------------------------------------
 */

struct buried {
    struct mill_groups *groups;
    int32_t shard;
    mill_journal_done done;
    void *context;
};

static void group_buried(void *context, const struct mill_journal_result *result)
{
    struct buried *buried = context;
    if (buried->done) {
        buried->done(buried->context, result);
    } else {
        (void)mill_shards_outcome(&buried->groups->shards, buried->shard, result);
    }
    free(buried);
}

/* Tombstones of the group itself, in whichever protocol it has records. ret: false no memory. */
static bool bury_group(struct mill_group *group, struct mill_pool *pool,
                       struct mill_consumer_plan *plan, struct mill_journal_record *ret_record)
{
    if (group->consumers) {
        mill_consumer_bury(group, plan);
        return plan->error == MILL_KERR_NONE;
    }
    ret_record->value_bytes = -1;
    ret_record->key = mill_group_key_write(pool, group->id, &ret_record->key_bytes);
    return ret_record->key != NULL;
}

int16_t mill_groups_bury(struct mill_groups *groups, struct mill_group *group,
                         struct mill_group_offset *const *offsets, uint32_t offsets_count,
                         bool group_too, mill_journal_done done, void *context)
{
    struct mill_pool pool = {.limit_bytes = MILL_SHARDS_POOL_BYTES};
    struct mill_consumer_plan plan = {.pool = {.limit_bytes = MILL_SHARDS_POOL_BYTES}};
    struct mill_journal_record own = {0};
    bool whole = !group_too || bury_group(group, &pool, &plan, &own);
    uint32_t own_count = !group_too ? 0 : group->consumers ? plan.records_count : 1;
    uint32_t count = offsets_count + own_count;
    struct mill_journal_record *records = mill_pool_take(&pool, count * sizeof(*records));
    struct buried *buried = calloc(1, sizeof(*buried));
    whole = whole && records && buried;
    int16_t error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    for (uint32_t i = 0; whole && i < offsets_count; i++) {
        records[i].value_bytes = -1;
        records[i].key = mill_offset_key_write(&pool, group->id, offsets[i]->topic,
                                               offsets[i]->partition, &records[i].key_bytes);
        whole = records[i].key != NULL;
    }
    if (whole && own_count > 0) {
        memcpy(records + offsets_count, group->consumers ? plan.records : &own,
               own_count * sizeof(*records));
    }
    if (whole) {
        *buried = (struct buried){groups, group->shard, done, context};
        error = mill_groups_append(groups, group->shard, records, count, group_buried, buried);
    }
    if (error != MILL_KERR_NONE) {
        free(buried);
    }
    mill_consumer_plan_free(&plan);
    mill_pool_clear(&pool);
    return error;
}

int16_t mill_groups_make_classic(struct mill_groups *groups, struct mill_group *group)
{
    if (group->consumers && group->consumers->count > 0) {
        return MILL_KERR_INCONSISTENT_GROUP_PROTOCOL;
    }
    if (group->write) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE; /* which one it is will be known soon */
    }
    if (!group->consumers) {
        return MILL_KERR_NONE;
    }
    /* Whatever becomes of this: its next record is behind it and says what it is. */
    int16_t error = mill_groups_bury(groups, group, NULL, 0, true, NULL, NULL);
    if (error == MILL_KERR_NONE) {
        mill_consumer_drop(&groups->env, group);
        group->generation = 0;
    }
    return error;
}

/* --- loading -----------------------------------------------------------------------------------
 */

/* ret: false when the record was of no use, or not wholly. */
static bool apply_group(struct mill_groups *groups, const struct mill_group_record *record)
{
    struct mill_group *group = mill_groups_find(groups, record->group);
    if (record->tombstone) {
        if (group && !group->consumers) {
            mill_group_clear_members(&groups->env, group);
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
    groups->shards.memory_short = !whole;
    for (uint32_t i = 0; i < record->members_count; i++) {
        const struct mill_group_value_member *member = &record->members[i];
        struct mill_group_member *made =
            mill_group_restore_member(&groups->env, group, &member->join, &member->assignment);
        whole = whole && made;
        if (made && record->leader && strcmp(made->id, record->leader) == 0) {
            group->leader = made;
        }
    }
    return whole;
}

static bool apply_consumer(struct mill_groups *groups, const struct mill_group_record *record)
{
    struct mill_group *group = record->tombstone ? mill_groups_find(groups, record->group)
                                                 : mill_groups_make(groups, record->group);
    if (!group) {
        return record->tombstone;
    }
    bool good = mill_consumer_apply(&groups->consumer, group, &record->consumer);
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
                                                         record->partition, &record->value);
    if (offset) {
        mill_txn_offsets_add(groups, shard, producer_id, offset);
    }
    groups->shards.memory_short = !offset;
    return offset != NULL;
}

static void load_marker(void *context, int32_t shard, const struct mill_journal_at *at, bool commit)
{
#ifndef MILL_MUTANT_GROUP_TXN_MARKER_UNREAD
    mill_txn_offsets_end(context, shard, at->producer_id, commit, at->offset);
#endif
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
    /* Again: what is in memory of a classic group is newer than any record. */
    return read.kind != MILL_GROUP_RECORD_GROUP || again || apply_group(groups, &read);
}

static void load_ready(void *context, int32_t shard, bool again)
{
    struct mill_groups *groups = context;
    struct mill_group *next = NULL;
    for (struct mill_group *group = groups->shards.items[shard].first; group; group = next) {
        next = group->shard_next;
        if (group->consumers && again) {
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
        groups->shards.items[partition].state == MILL_SHARD_READY) {
        mill_txn_offsets_end(groups, partition, producer_id, commit, INT64_MAX);
    }
}

/* --- expiry ------------------------------------------------------------------------------------
 */

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

/* Removes what is expired of the next offsets of the group and, when nothing is left of it, the
 * group. Moves on to the next group behind the last offset. */
static void group_expire(struct mill_groups *groups, struct mill_group *group)
{
    struct mill_group_offset *dead[EXPIRE_BATCH];
    struct mill_group_offset *offset = groups->expiry.offset;
    uint32_t count = 0;
    for (uint32_t i = 0; offset && i < EXPIRE_BATCH; i++, offset = offset->next) {
        if (offset_expired(groups, group, offset) || !topic_exists(groups, offset)) {
            dead[count++] = offset;
        }
    }
    bool idle = group->state == MILL_GROUP_EMPTY && group->commits == 0 &&
                group->pending_count == 0 && group->members_count == 0;
    bool gone = idle && group->offsets_count == count;
    bool record = gone && group->generation > 0;
    groups->expiry.offset = offset;
    if (!offset) {
        expiry_enter(groups, group->shard_next);
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

static void expiry_begin(struct mill_groups *groups)
{
    groups->expiry.again = groups->expiry.runs;
    if (!groups->expiry.runs && groups->shards.count > 0) {
        groups->expiry = (struct mill_expiry){.runs = true};
        expiry_enter(groups, groups->shards.items[0].first);
    }
}

/* One turn's part: as many offsets and groups as hold up nobody. */
static void expiry_step(struct mill_groups *groups)
{
    struct mill_expiry *expiry = &groups->expiry;
    for (uint32_t i = 0; i < EXPIRE_LOOKS_PER_STEP && expiry->runs; i++) {
        bool ready = groups->shards.items[expiry->shard].state == MILL_SHARD_READY;
        if (expiry->group && ready) {
            group_expire(groups, expiry->group);
        } else if (++expiry->shard < groups->shards.count) {
            expiry_enter(groups, groups->shards.items[expiry->shard].first);
        } else {
            expiry->runs = false;
        }
    }
    if (!expiry->runs && expiry->again) {
        expiry_begin(groups);
    }
}

/* --- the turn ----------------------------------------------------------------------------------
 */

static void group_timer(void *context, struct mill_group *group, uint64_t at_ns)
{
    struct mill_groups *groups = context;
    if (at_ns == MILL_NEVER) {
        mill_heap_remove(&groups->timers, &group->timer);
    } else {
        mill_heap_set(&groups->timers, &group->timer, at_ns);
    }
}

static void timers_run(struct mill_groups *groups)
{
    for (uint32_t i = 0; i < TIMERS_PER_STEP; i++) {
        struct mill_heap_item *first = mill_heap_first(&groups->timers);
        if (!first || first->at_ns > groups->env.now_ns) {
            return;
        }
        struct mill_group *group = MILL_CONTAINER_OF(first, struct mill_group, timer);
        mill_heap_remove(&groups->timers, first);
        if (group->consumers) {
            mill_consumers_time(groups, group);
        } else {
            mill_group_time(&groups->env, group);
        }
    }
}

uint64_t mill_groups_step(struct mill_groups *groups, const struct mill_now *now)
{
    groups->env.now_ns = now->mono_ns;
    groups->env.now_ms = now->wall_ms;
    groups->consumer.topics.version = mill_consumers_topics_version(groups);
    bool loading = mill_shards_step(&groups->shards);
    timers_run(groups);
    if (groups->check_due_ns == 0) {
        groups->check_due_ns = now->mono_ns + (uint64_t)groups->check_interval_ms * MILL_NS_PER_MS;
    }
    uint64_t deleted = groups->controller->counters.topics_deleted;
    bool topics_gone = deleted != groups->topics_deleted && groups->shards.loading_count == 0;
    if (now->mono_ns >= groups->check_due_ns || topics_gone) {
        groups->topics_deleted = deleted; /* a topic of the same name begins without offsets */
        groups->check_due_ns = now->mono_ns + (uint64_t)groups->check_interval_ms * MILL_NS_PER_MS;
        expiry_begin(groups);
    }
    expiry_step(groups);
    uint64_t next_ns = groups->check_due_ns;
    const struct mill_heap_item *first = mill_heap_first(&groups->timers);
    if (first) {
        next_ns = MILL_MIN(next_ns, first->at_ns);
    }
    if (loading) {
        next_ns = MILL_MIN(next_ns, now->mono_ns + RETRY_NS);
    }
    return groups->answered || groups->expiry.runs ? now->mono_ns : next_ns;
}

void mill_groups_attach(struct mill_groups *groups)
{
    for (uint32_t i = 0; i < groups->shards.count; i++) {
        for (struct mill_group *group = groups->shards.items[i].first; group;
             group = group->shard_next) {
            /* The clients are gone with their connections; answers are dropped by their cores. */
            mill_group_release(&groups->env, group, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
            mill_consumers_release(groups, group, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        }
    }
}

/* --- open, close, counters ---------------------------------------------------------------------
 */

static void random_bytes(void *context, void *ret_bytes, size_t size_bytes)
{
    struct mill_groups *groups = context;
    groups->controller->random(groups->controller->random_context, ret_bytes, size_bytes);
}

int mill_groups_open(struct mill_groups *groups, struct mill_controller *controller,
                     struct mill_journal *journal)
{
    static const struct mill_group_calls calls = {
        .joined = mill_members_joined,
        .synced = mill_members_synced,
        .store = group_store,
        .random = random_bytes,
        .timer = group_timer,
    };
    static const struct mill_shards_calls load_calls = {
        .record = load_record, .marker = load_marker, .ready = load_ready, .drop = load_drop};
    const struct mill_config *config = controller->config;
    *groups = (struct mill_groups){
        .env = {.calls = &calls,
                .session_timeout_min_ms =
                    mill_config_int(config, MILL_KEY_GROUP_MIN_SESSION_TIMEOUT_MS),
                .session_timeout_max_ms =
                    mill_config_int(config, MILL_KEY_GROUP_MAX_SESSION_TIMEOUT_MS),
                .initial_delay_ms =
                    mill_config_int(config, MILL_KEY_GROUP_INITIAL_REBALANCE_DELAY_MS),
                .size_max = mill_config_int(config, MILL_KEY_GROUP_MAX_SIZE),
                .bytes_max = MILL_GROUP_BYTES_MAX},
        .controller = controller,
        .config = config,
        .commit_timeout_ms = mill_config_int(config, MILL_KEY_OFFSETS_COMMIT_TIMEOUT_MS),
        .retention_ms = mill_config_int(config, MILL_KEY_OFFSETS_RETENTION_MINUTES) * 60000,
        .check_interval_ms = mill_config_int(config, MILL_KEY_OFFSETS_RETENTION_CHECK_INTERVAL_MS),
        .metadata_bytes_max = mill_config_int(config, MILL_KEY_OFFSET_METADATA_MAX_BYTES),
        .shards = {.calls = &load_calls,
                   .context = groups,
                   .journal = journal,
                   .topics = &controller->topics,
                   .topic_name = MILL_OFFSETS_TOPIC},
    };
    groups->env.context = groups;
    mill_consumers_open(groups);
    groups->answered_last = &groups->answered;
    controller->random(controller->random_context, groups->key, sizeof(groups->key));
    groups->buckets = calloc(BUCKETS, sizeof(struct mill_group *));
    groups->offset_buckets = calloc(OFFSET_BUCKETS, sizeof(struct mill_group_offset *));
    if (!groups->buckets || !groups->offset_buckets ||
        mill_txn_offsets_open(&groups->txn_offsets) < 0 ||
        mill_heap_init(&groups->timers, MILL_GROUPS_MAX) < 0) {
        mill_groups_close(groups);
        return -ENOMEM;
    }
    return 0;
}

void mill_groups_close(struct mill_groups *groups)
{
    if (groups->buckets) {
        mill_shards_drop(&groups->shards);
    }
    struct mill_admin_request *request = NULL;
    while (groups->controller && (request = mill_groups_answered(groups)) != NULL) {
        mill_admin_free(request);
    }
    mill_heap_fini(&groups->timers);
    mill_txn_offsets_close(&groups->txn_offsets);
    free(groups->buckets);
    free(groups->offset_buckets);
    groups->buckets = NULL;
    groups->offset_buckets = NULL;
}

void mill_groups_publish(const struct mill_groups *groups, struct mill_shared_control *shared)
{
    mill_counter_set(&shared->groups, groups->groups_count);
    mill_counter_set(&shared->group_members, groups->env.members_count);
    mill_counter_set(&shared->group_offsets, groups->offsets_count);
    mill_counter_set(&shared->group_bytes, groups->env.bytes);
    mill_counter_set(&shared->group_joins, groups->joins);
    mill_counter_set(&shared->group_rebalances, groups->env.rebalances);
    mill_counter_set(&shared->group_expired_members, groups->env.expired_members);
    mill_counter_set(&shared->group_commits, groups->commits);
    mill_counter_set(&shared->group_commits_failed, groups->commits_failed);
    mill_counter_set(&shared->group_offsets_expired, groups->offsets_expired);
    mill_counter_set(&shared->group_full, groups->env.full);
    mill_counter_set(&shared->group_loads, groups->shards.loads);
    mill_counter_set(&shared->group_records_bad, groups->shards.records_bad);
}

/* --- dispatch ----------------------------------------------------------------------------------
 */

static const struct {
    int16_t key;
    void (*handle)(struct mill_groups *groups, struct mill_admin_request *request,
                   struct mill_cursor *at);
} handlers[] = {
    {MILL_API_KEY_OFFSET_COMMIT, mill_offset_commit},
    {MILL_API_KEY_TXN_OFFSET_COMMIT, mill_txn_offset_commit},
    {MILL_API_KEY_OFFSET_FETCH, mill_offset_fetch},
    {MILL_API_KEY_FIND_COORDINATOR, mill_find_coordinator},
    {MILL_API_KEY_JOIN_GROUP, mill_join_group},
    {MILL_API_KEY_HEARTBEAT, mill_heartbeat},
    {MILL_API_KEY_LEAVE_GROUP, mill_leave_group},
    {MILL_API_KEY_SYNC_GROUP, mill_sync_group},
    {MILL_API_KEY_DESCRIBE_GROUPS, mill_describe_groups},
    {MILL_API_KEY_LIST_GROUPS, mill_list_groups},
    {MILL_API_KEY_DELETE_GROUPS, mill_delete_groups},
    {MILL_API_KEY_OFFSET_DELETE, mill_offset_delete},
    {MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, mill_consumer_group_heartbeat},
    {MILL_API_KEY_CONSUMER_GROUP_DESCRIBE, mill_consumer_group_describe},
};

bool mill_groups_has_api(int16_t api_key)
{
    for (size_t i = 0; i < MILL_COUNT_OF(handlers); i++) {
        if (handlers[i].key == api_key) {
            return true;
        }
    }
    return false;
}

void mill_groups_request(struct mill_groups *groups, struct mill_admin_request *request,
                         struct mill_cursor *at)
{
    groups->consumer.topics.version = mill_consumers_topics_version(groups);
    for (size_t i = 0; i < MILL_COUNT_OF(handlers); i++) {
        if (handlers[i].key == request->header.api_key) {
            handlers[i].handle(groups, request, at);
            return;
        }
    }
    mill_admin_close(request);
}
