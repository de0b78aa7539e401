/* SPDX-License-Identifier: Apache-2.0 */
/* Watches on a partition: callers' storage on three lists (data, flush, parked for the store).
 * Owner core only. A watch is off its list before it fires; the callback may put it back or remove
 * others. */
#include "dataplane/log/log_types.h"

void mill_log_watch_add(struct mill_partition *partition, struct mill_log_watch **head,
                        struct mill_log_watch *watch)
{
    mill_log_unwatch(watch);
    watch->partition = partition;
    watch->head = head;
    watch->prev = NULL;
    watch->next = *head;
    if (*head) {
        (*head)->prev = watch;
    }
    *head = watch;
    partition->log->stats.watches++;
}

void mill_log_unwatch(struct mill_log_watch *watch)
{
    if (!watch->partition) {
        return;
    }
    if (watch->prev) {
        watch->prev->next = watch->next;
    } else {
        *watch->head = watch->next;
    }
    if (watch->next) {
        watch->next->prev = watch->prev;
    }
    watch->partition->log->stats.watches--;
    watch->partition = NULL;
    watch->next = NULL;
    watch->prev = NULL;
    watch->head = NULL;
}

void mill_log_watch_fire(struct mill_log_watch *watch, enum mill_log_watch_reason reason)
{
    struct mill_log *log = watch->partition->log;
    mill_log_unwatch(watch);
    watch->reason = reason;
    log->config.events->watch(log->config.context, watch);
}

/* Byte position in the partition's stream at which a watch from offset on is satisfied; 0 when the
 * data is cold: then there is plenty of it. */
static uint64_t target_of(struct mill_partition *partition, int64_t offset, uint32_t bytes)
{
    struct mill_log *log = partition->log;
    uint32_t next;
    if (offset >= partition->end_offset || mill_log_is_bare(partition, offset)) {
        return partition->stream_end + bytes;
    }
    uint32_t extent = mill_log_extent_find(partition, offset, &next);
    if (extent == MILL_LOG_NONE || log->extents[extent].cold) {
        return 0;
    }
    return log->extents[extent].stream_pos + mill_log_extent_seek(log, extent, offset) + bytes;
}

static bool data_ready(const struct mill_partition *partition, const struct mill_log_watch *watch)
{
    int64_t end = watch->committed ? partition->stable_offset : partition->high_watermark;
    uint64_t ready = watch->committed ? partition->stream_stable : partition->stream_ready;
    return end > watch->offset && ready >= watch->target_bytes;
}

void mill_log_watch_data(struct mill_partition *partition, struct mill_log_watch *watch,
                         int64_t offset, uint32_t bytes_needed)
{
    watch->offset = offset;
    watch->bytes_needed = bytes_needed;
    watch->target_bytes = target_of(partition, offset, bytes_needed);
    mill_log_watch_add(partition, &partition->watch_data, watch);
    bool changed = partition->state != MILL_LOG_SERVING && partition->state != MILL_LOG_FAILED;
    if (data_ready(partition, watch) || changed) {
        partition->check_watches = true;
        mill_log_todo(partition);
    }
}

void mill_log_watch_flush(struct mill_partition *partition, struct mill_log_watch *watch,
                          int64_t offset)
{
    watch->offset = offset;
    mill_log_watch_add(partition, &partition->watch_flush, watch);
    partition->sync_wanted = MILL_MAX(partition->sync_wanted, offset);
    partition->check_watches = true;
    mill_log_todo(partition);
}

void mill_log_watches_run(struct mill_partition *partition)
{
    /* A callback only marks and queues (core.h), so the list changes by our own removals alone. */
    struct mill_log_watch *watch = partition->watch_data;
    while (watch) {
        struct mill_log_watch *next = watch->next;
        if (data_ready(partition, watch)) {
            mill_log_watch_fire(watch, MILL_WATCH_DATA);
        }
        watch = next;
    }
    watch = partition->watch_flush;
    while (watch) {
        struct mill_log_watch *next = watch->next;
        if (partition->synced_offset >= watch->offset) {
            mill_log_watch_fire(watch, MILL_WATCH_FLUSHED);
        }
        watch = next;
    }
}

void mill_log_watches_fire(struct mill_partition *partition, struct mill_log_watch **head,
                           enum mill_log_watch_reason reason)
{
    MILL_UNUSED(partition);
    /* What a callback puts back at the head waits for the next round. */
    struct mill_log_watch *list = *head;
    while (list) {
        struct mill_log_watch *next = list->next;
        mill_log_watch_fire(list, reason);
        list = next;
    }
}

void mill_log_watches_changed(struct mill_partition *partition)
{
    mill_log_watches_fire(partition, &partition->watch_data, MILL_WATCH_CHANGED);
    mill_log_watches_fire(partition, &partition->watch_flush, MILL_WATCH_CHANGED);
    mill_log_watches_fire(partition, &partition->watch_parked, MILL_WATCH_CHANGED);
}
