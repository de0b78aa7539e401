/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the partition map: opens what this core owns and this node leads, brings settings and
 * epochs up to date, removes what is being deleted, and tells control. A bounded part of the map
 * per turn. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

#include "dataplane/store/store.h"

static struct mill_log_settings settings_of(const struct mill_map_topic *topic)
{
    const struct mill_topic_settings *from = &topic->settings;
    return (struct mill_log_settings){
        .max_message_bytes = from->max_message_bytes,
        .timestamp_before_max_ms = from->timestamp_before_max_ms,
        .timestamp_after_max_ms = from->timestamp_after_max_ms,
        .flush_messages = from->flush_messages,
        .flush_ms = from->flush_ms,
        .segment_bytes = from->segment_bytes,
        .segment_ms = from->segment_ms,
        .retention_ms = from->retention_ms,
        .retention_bytes = from->retention_bytes,
        .file_delete_delay_ms = from->file_delete_delay_ms,
        .delete_retention_ms = from->delete_retention_ms,
        .min_compaction_lag_ms = from->min_compaction_lag_ms,
        .max_compaction_lag_ms = from->max_compaction_lag_ms,
        .min_cleanable_ppm = from->min_cleanable_ppm,
        .index_interval_bytes = from->index_interval_bytes,
        .segment_index_bytes = from->segment_index_bytes,
        .append_time = from->append_time,
        .compact = from->compact,
        .delete_old = from->delete_old,
        .compression = from->compression,
        .made = (topic->flags & MILL_TOPIC_MADE) != 0,
    };
}

static void report(struct mill_core *core, struct mill_partition *partition)
{
    enum mill_log_state state = mill_partition_state_of(partition);
    if (state == MILL_LOG_SERVING || state == MILL_LOG_FAILED) {
        mill_event_partition(
            core, mill_partition_topic_id(partition), mill_partition_index(partition),
            state == MILL_LOG_SERVING ? MILL_PARTITION_SERVING : MILL_PARTITION_FAILED);
    }
}

void mill_owner_state(void *context, struct mill_partition *partition, bool gone)
{
    struct mill_core *core = context;
    bool counted = mill_partition_user(partition) != NULL;
    if (counted) {
        mill_partition_user_set(partition, NULL);
        core->opening--;
    }
    if (gone) {
        mill_rows_gone(core, partition);
        core->words.partitions--;
        mill_event_partition(core, mill_partition_topic_id(partition),
                             mill_partition_index(partition), MILL_PARTITION_GONE);
        core->map_again = true; /* a topic of the same name may wait for the directory */
        return;
    }
    report(core, partition);
}

static int partition_open(struct mill_core *core, const struct mill_map_topic *topic,
                          uint32_t index, struct mill_partition **ret_partition)
{
    struct mill_log_settings settings = settings_of(topic);
    int r = mill_log_open(core->log, &topic->id, topic->name, (int32_t)index,
                          topic->partitions[index].leader_epoch, &settings, ret_partition);
    if (r == 0) {
        mill_partition_user_set(*ret_partition, core); /* marks it as counted in opening */
        core->opening++;
        core->words.partitions++;
    }
    return r;
}

/* A partition that is to go. One that is not open is gone already, but for the first look after a
 * start: its files may have been left, so it is opened to be deleted. ret: false: try again. */
static bool partition_remove(struct mill_core *core, const struct mill_map_topic *topic,
                             uint32_t index, struct mill_partition *partition)
{
    if (!partition && core->walked) {
        mill_event_partition(core, &topic->id, (int32_t)index, MILL_PARTITION_GONE);
        return true;
    }
    if (!partition && partition_open(core, topic, index, &partition) < 0) {
        return false;
    }
    if (mill_partition_state_of(partition) != MILL_LOG_DELETING) {
        mill_log_delete(partition);
    }
    return true;
}

/* A partition of the map that is this core's. ret: false when it has to be tried again. */
static bool partition_follow(struct mill_core *core, const struct mill_map_topic *topic,
                             uint32_t index)
{
    const struct mill_map_partition *decided = &topic->partitions[index];
    struct mill_partition *partition = mill_log_find(core->log, &topic->id, (int32_t)index);
    if (topic->flags & MILL_TOPIC_DELETING) {
        return partition_remove(core, topic, index, partition);
    }
    if (decided->leader != core->node_id) {
        return true;
    }
    if (partition) {
        struct mill_log_settings settings = settings_of(topic);
        mill_log_update(partition, decided->leader_epoch, &settings);
        return true;
    }
    int r = partition_open(core, topic, index, &partition);
    if (r == -ENOSPC) {
        mill_event_partition(core, &topic->id, (int32_t)index, MILL_PARTITION_FAILED);
        return true;
    }
    return r == 0;
}

static bool topic_follow(struct mill_core *core, const struct mill_map_topic *topic)
{
    bool all = true;
    for (uint32_t i = 0; i < topic->partitions_count; i++) {
        if (mill_owner_of(&topic->id, (int32_t)i, core->count) == core->index) {
            all = partition_follow(core, topic, i) && all;
        }
    }
    return all;
}

/* Tells control every state again, a part per turn. */
static uint32_t report_run(struct mill_core *core)
{
    uint32_t count = mill_log_partitions(core->log);
    uint32_t work = 0;
    while (core->report_cursor < count && work < MILL_MAP_TOPICS_PER_TURN) {
        if (mill_ring_room(&core->events) < MILL_COMMAND_RING_BYTES / 4) {
            return work; /* the rest when control has read these */
        }
        struct mill_partition *partition = mill_log_at(core->log, core->report_cursor++);
        if (partition) {
            report(core, partition);
        }
        work++;
    }
    if (core->report_cursor >= count) {
        core->report_cursor = 0;
        core->report_all = false;
        /* Deleted topics whose GONE was lost are told by following the map once more. */
        core->map_again = true;
    }
    return work + 1;
}

/* A share of what all cores have together, at least 1. */
static uint64_t share(const struct mill_core *core, int64_t all)
{
    return (uint64_t)MILL_MAX(all / (int64_t)core->count, (int64_t)1);
}

/* Takes the broker's settings as control has them now. */
static void settings_follow(struct mill_core *core)
{
    const struct mill_map_cluster *cluster = mill_map_cluster_read(core->map);
    if (!cluster || memcmp(&core->settings, &cluster->settings, sizeof(core->settings)) == 0) {
        return;
    }
#ifdef MILL_MUTANT_CORE_SETTINGS_ONCE
    if (core->settings.connections_max != INT64_MAX) {
        return;
    }
#endif
    core->settings = cluster->settings;
    /* What another process wrote may have changed since it was checked. */
    core->settings.overrides_count =
        MILL_MIN(core->settings.overrides_count, (uint32_t)MILL_MAP_OVERRIDES_MAX);
    mill_log_producers_expire_after(core->log, core->settings.producer_expiration_ms);
    if (!core->tuning) {
        return;
    }
    int64_t rate = core->settings.clean_bytes_per_second;
    atomic_store_explicit(&core->tuning->producer_expiration_ms,
                          core->settings.producer_expiration_ms, memory_order_relaxed);
    atomic_store_explicit(&core->tuning->clean_bytes_per_second,
                          rate < INT64_MAX ? share(core, rate) : 0, memory_order_relaxed);
    atomic_store_explicit(&core->tuning->clean_backoff_ms, core->settings.clean_backoff_ms,
                          memory_order_relaxed);
    atomic_store_explicit(&core->tuning->clean_map_bytes,
                          share(core, core->settings.clean_map_bytes), memory_order_relaxed);
    mill_log_ring_store(core->log);
}

uint32_t mill_owner_run(struct mill_core *core)
{
    uint32_t work = 0;
    uint64_t generation = mill_map_generation(core->map);
    if (!core->map_walking && (generation != core->map_generation || core->map_again)) {
        core->map_generation = generation;
        core->map_again = false;
        core->map_walking = true;
        core->map_cursor = 0;
        settings_follow(core);
        mill_quota_follow(core);
    }
    if (core->map_walking) {
        uint32_t slots = mill_map_slots(core->map);
        for (uint32_t n = 0; core->map_cursor < slots && n < MILL_MAP_TOPICS_PER_TURN; n++) {
            const struct mill_map_topic *topic = mill_map_topic_at(core->map, core->map_cursor++);
            if (topic && !topic_follow(core, topic)) {
                core->map_again = true;
            }
            work++;
        }
        if (core->map_cursor >= slots) {
            core->map_walking = false;
            core->walked = mill_map_cluster_read(core->map) != NULL;
        }
    }
    if (core->report_all) {
        work += report_run(core);
    }
    return work;
}
