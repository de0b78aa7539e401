/* SPDX-License-Identifier: Apache-2.0 */
/* What groups write to __consumer_offsets: their records and tombstones; see groups.h. */
#include "control/group/groups.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

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

int16_t mill_groups_store(void *context, struct mill_group *group, enum mill_group_store why,
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
