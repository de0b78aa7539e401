/* SPDX-License-Identifier: Apache-2.0 */
/* The log's end of the two rings to its store (store_link.h): posts what partitions want told and
 * takes answers. Owner core only; a full ring leaves the rest for the next turn. */
#include "dataplane/log/log_types.h"

#include <errno.h>
#include <string.h>

/* --- posting --------------------------------------------------------------------------------- */

void *mill_log_link_claim(struct mill_partition *partition, uint32_t kind, uint32_t size_bytes)
{
    struct mill_link_head *head =
        mill_ring_claim(&partition->log->config.store_out, kind, size_bytes);
    if (head) {
        memset(head, 0, size_bytes);
        *head =
            (struct mill_link_head){.slot = partition->slot, .generation = partition->generation};
    }
    return head;
}

static bool post_open(struct mill_partition *partition)
{
    struct mill_link_open *open = mill_log_link_claim(partition, MILL_LINK_OPEN, sizeof(*open));
    if (!open) {
        return false;
    }
    open->topic_id = partition->topic_id;
    open->partition = partition->index;
    open->settings = partition->settings;
    memcpy(open->topic, partition->topic, sizeof(open->topic));
    partition->open_wanted = false;
    partition->settings_wanted = false;
    return true;
}

static bool post_settings(struct mill_partition *partition)
{
    struct mill_link_settings *to = mill_log_link_claim(partition, MILL_LINK_SETTINGS, sizeof(*to));
    if (to) {
        to->settings = partition->settings;
        partition->settings_wanted = false;
    }
    return to != NULL;
}

static bool post_epochs(struct mill_partition *partition)
{
    struct mill_link_epochs *to = mill_log_link_claim(partition, MILL_LINK_EPOCHS, sizeof(*to));
    if (to) {
        to->count = partition->epochs_count;
        memcpy(to->epochs, partition->epochs, sizeof(to->epochs));
        partition->epochs_wanted = false;
    }
    return to != NULL;
}

/* Gathers the bytes not yet given to the store, at most a message's worth of extents. */
static void gather(struct mill_partition *partition, struct mill_link_write *write)
{
    struct mill_log *log = partition->log;
    uint32_t extent = partition->post;
    while (extent != MILL_LOG_NONE && write->parts_count < MILL_LINK_PARTS_MAX) {
        struct log_extent *e = &log->extents[extent];
        if (!e->cold && e->committed_bytes > e->posted_bytes) {
            write->parts[write->parts_count++] = (struct mill_ref){
                .extent = extent,
                .pos_bytes = e->posted_bytes,
                .size_bytes = e->committed_bytes - e->posted_bytes,
            };
            e->posted_bytes = e->committed_bytes;
        }
        extent = e->next;
    }
    partition->post = extent;
}

static bool post_write(struct mill_partition *partition)
{
    struct mill_link_write *write = mill_log_link_claim(partition, MILL_LINK_WRITE, sizeof(*write));
    if (!write) {
        return false;
    }
    gather(partition, write);
    write->sync = partition->sync_wanted > partition->synced_offset;
    partition->write = *write;
    partition->write_under_way = true;
    return true;
}

static bool post_delete(struct mill_partition *partition)
{
    struct mill_link_only *to = mill_log_link_claim(partition, MILL_LINK_DELETE, sizeof(*to));
    if (to) {
        partition->delete_wanted = false;
    }
    return to != NULL;
}

static bool post_trim(struct mill_partition *partition)
{
    struct mill_link_start *to = mill_log_link_claim(partition, MILL_LINK_TRIM, sizeof(*to));
    if (to) {
        to->start_offset = partition->start_offset;
        partition->trim_wanted = false;
    }
    return to != NULL;
}

static bool post_cold(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    for (uint32_t i = 0; partition->cold_count > 0 && i < MILL_LOG_COLD_MAX; i++) {
        struct log_cold *cold = &log->cold[i];
        if (cold->partition != partition || cold->posted) {
            continue;
        }
        struct mill_link_read *to = mill_log_link_claim(partition, MILL_LINK_READ, sizeof(*to));
        if (!to) {
            return false;
        }
        to->request = i;
        to->extent = cold->extent;
        to->size_bytes = cold->size_bytes;
        to->offset = cold->offset;
        to->limit_offset = cold->limit_offset;
        cold->posted = true;
    }
    return true;
}

static bool post_time(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    for (uint32_t i = 0; log->time_under_way > 0 && i < MILL_LOG_TIME_MAX; i++) {
        struct log_time *look = &log->time[i];
        if (look->state != LOG_TIME_WANTED || look->partition != partition ||
            look->need_offset > partition->written_offset) {
            continue;
        }
        struct mill_link_time *to = mill_log_link_claim(partition, MILL_LINK_TIME, sizeof(*to));
        if (!to) {
            return false;
        }
        to->request = i;
        to->time_ms = look->time_ms;
        to->from_offset = partition->start_offset;
        look->state = LOG_TIME_POSTED;
    }
    return true;
}

/* Tells the store everything this partition wants told now. ret: false when the ring is full. */
static bool post_partition(struct mill_partition *partition)
{
    bool serving = partition->state == MILL_LOG_SERVING;
    if (partition->open_wanted && !post_open(partition)) {
        return false;
    }
    if (partition->delete_wanted && !post_delete(partition)) {
        return false;
    }
    if (partition->settings_wanted && serving && !post_settings(partition)) {
        return false;
    }
    if (partition->epochs_wanted && serving && !post_epochs(partition)) {
        return false;
    }
    if (partition->trim_wanted && serving && !post_trim(partition)) {
        return false;
    }
    bool dirty = partition->post != MILL_LOG_NONE;
#ifdef MILL_MUTANT_CORE_STOP_UNWRITTEN
    dirty =
        dirty && partition->log->now.mono_ns / MILL_NS_PER_S % 2 == 0; /* late, as a slow disk */
#endif
    bool sync = partition->sync_wanted > partition->synced_offset;
    if (serving && !partition->write_under_way && (dirty || sync) && !post_write(partition)) {
        return false;
    }
    if (serving && partition->parked_first != MILL_LOG_NONE && !mill_log_parked_post(partition)) {
        return false;
    }
    return post_cold(partition) && post_time(partition) && mill_log_asks_post(partition);
}

uint32_t mill_log_post(struct mill_log *log)
{
    uint32_t work = 0;
    struct log_node *last = log->todo.prev;
    for (struct log_node *node = log->todo.next; node != &log->todo && work < MILL_LOG_STEP_WORK;) {
        struct mill_partition *partition = MILL_CONTAINER_OF(node, struct mill_partition, todo);
        bool end = node == last;
        node = node->next;
        if (partition->gone) {
            /* Extents on loan keep it here; the list is looked at again next turn. */
            work += mill_log_release(partition) ? 1 : 0;
        } else {
            if (!post_partition(partition)) {
                break;
            }
            log_list_remove(&partition->todo);
            work++;
            if (partition->state == MILL_LOG_DELETING || partition->state == MILL_LOG_FAILED) {
                mill_log_watches_changed(partition);
            } else if (partition->check_watches) {
                partition->check_watches = false;
                mill_log_watches_run(partition);
            }
        }
        if (end) {
            break; /* what callbacks put back waits for the next turn */
        }
    }
    if (work > 0) {
        mill_ring_publish(&log->config.store_out);
        mill_bell_ring(&log->config.store_bell);
    }
    return work;
}

void mill_log_ring_store(struct mill_log *log)
{
    mill_bell_ring(&log->config.store_bell);
}

/* --- answers --------------------------------------------------------------------------------- */

static struct mill_partition *partition_of(struct mill_log *log, const struct mill_link_head *head)
{
    if (head->slot >= log->partitions_used) {
        return NULL;
    }
    struct mill_partition *partition = &log->partitions[head->slot];
    bool same = partition->log && partition->generation == head->generation;
    return same ? partition : NULL;
}

static void take_producer(struct mill_partition *partition, const struct mill_link_producer *from)
{
    if (partition->state == MILL_LOG_OPENING) {
        /* A batch without a time counts as written now: state is kept too long, never too short. */
        int64_t written = from->timestamp >= 0 ? from->timestamp : partition->log->now.wall_ms;
        bool noted = mill_log_producer_restore(partition, from, written);
        MILL_UNUSED(
            noted); /* a producer without state starts anew; its transaction is told apart */
    }
}

static void take_txn(struct mill_partition *partition, const struct mill_link_txn *from)
{
    if (partition->state != MILL_LOG_OPENING) {
        return;
    }
    if (from->last_offset >= 0) {
        mill_log_aborted_add(partition, from->producer_id, from->first_offset, from->last_offset);
    } else if (!mill_log_txn_restore(partition, from)) {
        partition->txns_lost = true;
    }
}

static void take_opened(struct mill_partition *partition, const struct mill_link_opened *from)
{
    struct mill_log *log = partition->log;
    if (partition->state != MILL_LOG_OPENING) {
        return; /* deleted meanwhile */
    }
    if (from->status < 0 || partition->txns_lost) {
        /* Without its open transactions readers would be shown what was not committed. */
        partition->state = MILL_LOG_FAILED;
        log->config.events->state(log->config.context, partition, false);
        return;
    }
    partition->start_offset = from->start_offset;
    partition->trimmed_offset = from->start_offset;
    partition->end_offset = from->end_offset;
    partition->written_offset = from->end_offset;
    partition->synced_offset = from->end_offset;
    partition->high_watermark = from->end_offset;
    partition->sync_wanted = from->end_offset;
    partition->aborted_from = MILL_MAX(partition->aborted_from, from->aborted_end);
    partition->full = from->full;
    mill_log_stable_update(partition);
    partition->epochs_count = MILL_MIN(from->epochs_count, (uint32_t)MILL_LINK_EPOCHS_MAX);
    memcpy(partition->epochs, from->epochs, sizeof(partition->epochs));
    partition->state = MILL_LOG_SERVING;
    mill_log_epoch_begin(partition, partition->leader_epoch);
    mill_log_todo(partition);
    log->config.events->state(log->config.context, partition, false);
}

static void take_written(struct mill_partition *partition, const struct mill_link_written *from)
{
    struct mill_log *log = partition->log;
    if (partition->gone) {
        return;
    }
    if (from->status < 0) {
        partition->full = from->status == -ENOSPC;
        return;
    }
    partition->full = false;
    partition->write_under_way = false;
    uint64_t ready = partition->stream_ready;
    for (uint32_t i = 0; i < partition->write.parts_count; i++) {
        const struct mill_ref *part = &partition->write.parts[i];
        struct log_extent *e = &log->extents[part->extent];
        e->written_bytes = part->pos_bytes + part->size_bytes;
        ready = e->stream_pos + e->written_bytes;
        partition->dirty_bytes -= part->size_bytes;
        log->stats.dirty_bytes -= part->size_bytes;
    }
    partition->written_offset = from->written_offset;
    if (from->synced_offset > partition->synced_offset) {
        partition->synced_offset = from->synced_offset;
        if (partition->settings.flush_messages == 1) {
            partition->stream_ready = MILL_MAX(ready, partition->stream_ready);
        }
        if (partition->synced_offset == partition->end_offset) {
            partition->unsynced_ns = 0;
            log_list_remove(&partition->sync);
        }
    }
    mill_log_advance(partition);
    mill_log_todo(partition);
}

/* Walks what the store filled in and makes it part of the partition's list. */
static void cold_insert(struct mill_partition *partition, struct log_cold *cold,
                        uint32_t size_bytes)
{
    struct mill_log *log = partition->log;
    struct log_extent *e = &log->extents[cold->extent];
    const uint8_t *data = mill_extent_data(log->config.extents, cold->extent);
    struct mill_batch batch;
    mill_batch_read(data, &batch);
    uint32_t next;
    uint32_t there = mill_log_extent_find(partition, batch.base_offset, &next);
    if (there != MILL_LOG_NONE) {
        mill_log_cold_free(log, cold->extent); /* another read brought it */
        return;
    }
    int64_t limit = next == MILL_LOG_NONE ? INT64_MAX : log->extents[next].from_offset;
    uint32_t before = next == MILL_LOG_NONE ? partition->last : log->extents[next].prev;
    int64_t after = before == MILL_LOG_NONE ? 0 : log->extents[before].end_offset;
    e->ahead = cold->depth;
    e->base_offset = batch.base_offset;
    e->from_offset = MILL_MIN(MILL_MAX(cold->offset, after), batch.base_offset);
#ifdef MILL_MUTANT_LOG_GAP_FORGOTTEN
    e->from_offset = batch.base_offset;
#endif
    e->used_ns = log->now.mono_ns;
    uint32_t pos = 0;
    while (pos + MILL_BATCH_HEADER_BYTES <= size_bytes) {
        mill_batch_read(data + pos, &batch);
        uint32_t size = mill_batch_size_bytes(&batch);
        if (batch.base_offset >= limit || size > size_bytes - pos) {
            break;
        }
        mill_log_index_batch(log, cold->extent, pos, size, batch.base_offset);
        e->end_offset = mill_batch_last_offset(&batch) + 1;
        pos += size;
    }
    e->committed_bytes = pos;
    e->posted_bytes = pos;
    e->written_bytes = pos;
    mill_log_cold_join(log, cold->extent, !cold->wanted);
    mill_log_extent_insert(partition, cold->extent, next);
    mill_log_read_ahead(partition, cold->extent, cold->ahead);
}

/* No batch lies between the offset and the limit that the store was asked for: a reader there is
 * led to the extent at the limit, if that is still there, or waits for what will be appended. */
static void cold_bare(struct mill_partition *partition, const struct log_cold *cold)
{
    struct mill_log *log = partition->log;
    uint32_t next;
    if (mill_log_extent_find(partition, cold->offset, &next) != MILL_LOG_NONE) {
        return;
    }
#ifdef MILL_MUTANT_LOG_BARE_FORGOTTEN
    return;
#endif
    if (next != MILL_LOG_NONE && log->extents[next].from_offset == cold->limit_offset) {
        log->extents[next].from_offset = cold->offset;
    } else if (cold->limit_offset == partition->end_offset) {
        partition->bare_from = cold->offset;
        partition->bare_end = partition->end_offset;
    }
}

/* Asks again with room for one large batch. ret: false when that cannot be. */
static bool cold_again(struct mill_log *log, struct log_cold *cold, uint32_t size_bytes)
{
    mill_log_cold_free(log, cold->extent);
    cold->extent = MILL_LOG_NONE;
    if (!cold->wanted || mill_log_cold_take(log, size_bytes, true, &cold->extent) < 0) {
        cold->extent = MILL_LOG_NONE;
        return false;
    }
    cold->size_bytes = log->extents[cold->extent].size_bytes;
    cold->posted = false;
    mill_log_todo(cold->partition);
    return true;
}

static void take_read(struct mill_log *log, const struct mill_link_read_done *from)
{
    if (from->request >= MILL_LOG_COLD_MAX || !log->cold[from->request].partition) {
        return;
    }
    struct log_cold *cold = &log->cold[from->request];
    struct mill_partition *partition = cold->partition;
    log->unread_bytes -= cold->wanted ? 0 : cold->size_bytes;
    bool open = !partition->gone && partition->state != MILL_LOG_DELETING;
    if (open && from->status == -EMSGSIZE && cold_again(log, cold, from->size_bytes)) {
        return;
    }
    if (open && from->status == 0 && from->size_bytes >= MILL_BATCH_HEADER_BYTES) {
        cold_insert(partition, cold, from->size_bytes);
    } else if (open && from->status == -ENOENT) {
        mill_log_cold_free(log, cold->extent);
        cold_bare(partition, cold);
    } else {
        if (cold->extent != MILL_LOG_NONE) {
            mill_log_cold_free(log, cold->extent);
        }
        /* No memory for a large batch is no failure of the file: the reader asks again. What nobody
         * asked for has failed for nobody. */
        bool failed = cold->wanted && from->status != -EMSGSIZE;
        partition->cold_failed = failed ? cold->offset : partition->cold_failed;
    }
    cold->partition = NULL;
    log->cold_under_way--;
    partition->cold_count--;
    mill_log_watches_fire(partition, &partition->watch_parked, MILL_WATCH_DATA);
}

void mill_log_time_free(struct mill_log *log, struct log_time *look)
{
    look->state = LOG_TIME_FREE;
    log->time_used--;
}

static void take_time(struct mill_log *log, const struct mill_link_time_done *from)
{
    if (from->request >= MILL_LOG_TIME_MAX) {
        return;
    }
    struct log_time *look = &log->time[from->request];
    struct mill_partition *partition = partition_of(log, &from->head);
    if (look->state != LOG_TIME_POSTED) {
        return;
    }
    log->time_under_way--;
    if (!partition || partition->generation != look->generation || !partition->watch_parked) {
        mill_log_time_free(log, look); /* nobody waits for it any more */
        return;
    }
    look->state = LOG_TIME_DONE;
    look->status = from->status;
    look->offset = from->offset;
    look->timestamp = from->timestamp;
    look->done_ns = log->now.mono_ns;
    mill_log_watches_fire(partition, &partition->watch_parked, MILL_WATCH_DATA);
}

static void take_trimmed(struct mill_partition *partition, const struct mill_link_start *from)
{
    if (!partition->gone && partition->state != MILL_LOG_DELETING) {
        partition->trimmed_offset = MILL_MAX(partition->trimmed_offset, from->start_offset);
        mill_log_watches_fire(partition, &partition->watch_parked, MILL_WATCH_DATA);
    }
}

static void take_failed(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    if (partition->gone || partition->state != MILL_LOG_SERVING) {
        return;
    }
    partition->state = MILL_LOG_FAILED;
    partition->failed = true;
    partition->write_under_way = false;
    /* Its bytes stay in their extents for a later take-up, but hold back no other partition. */
    log->stats.dirty_bytes -= partition->dirty_bytes;
    mill_log_todo(partition);
    log->config.events->state(log->config.context, partition, false);
}

static void take_one(struct mill_log *log, uint32_t kind, const void *message)
{
    const struct mill_link_head *head = message;
    struct mill_partition *partition = partition_of(log, head);
    if (kind == MILL_LINK_READ_DONE) {
        take_read(log, message);
        return;
    }
    if (kind == MILL_LINK_TIME_DONE) {
        take_time(log, message);
        return;
    }
    if (kind == MILL_LINK_ABORTED_DONE) {
        mill_log_ask_take(log, partition, message);
        return;
    }
    if (kind == MILL_LINK_INSPECTED) {
        mill_log_parked_take(log, message);
        return;
    }
    if (kind == MILL_LINK_CLEANED) {
        log->stats.clean = ((const struct mill_link_cleaned *)message)->stats;
        return;
    }
    if (!partition) {
        return;
    }
    switch (kind) {
    case MILL_LINK_PRODUCER:
        take_producer(partition, message);
        break;
    case MILL_LINK_TXN:
        take_txn(partition, message);
        break;
    case MILL_LINK_OPENED:
        take_opened(partition, message);
        break;
    case MILL_LINK_WRITTEN:
        take_written(partition, message);
        break;
    case MILL_LINK_GONE:
        mill_log_gone(partition);
        break;
    case MILL_LINK_FAILED:
        take_failed(partition);
        break;
    case MILL_LINK_OLD:
        mill_log_old(partition, ((const struct mill_link_start *)message)->start_offset);
        break;
    case MILL_LINK_TRIMMED:
        take_trimmed(partition, message);
        break;
    default:
        break;
    }
}

/* A look-up whose caller never came back must not keep its slot. */
static void time_expire(struct mill_log *log)
{
    for (uint32_t i = 0; log->time_used > 0 && i < MILL_LOG_TIME_MAX; i++) {
        struct log_time *look = &log->time[i];
        if (look->state == LOG_TIME_DONE && log->now.mono_ns - look->done_ns > MILL_NS_PER_S) {
            mill_log_time_free(log, look);
        } else if (look->state == LOG_TIME_WANTED &&
                   (look->partition->generation != look->generation ||
                    look->partition->state != MILL_LOG_SERVING)) {
            mill_log_time_free(log, look);
            log->time_under_way--;
        }
    }
}

uint32_t mill_log_take(struct mill_log *log)
{
    uint32_t work = 0;
    uint32_t kind;
    uint32_t size;
    const void *message;
    time_expire(log);
    mill_log_asks_expire(log);
    while (work < MILL_LOG_STEP_WORK &&
           (message = mill_ring_next(&log->config.store_in, &kind, &size)) != NULL) {
        take_one(log, kind, message);
        work++;
    }
    if (work > 0) {
        mill_ring_release(&log->config.store_in);
    }
    return work;
}
