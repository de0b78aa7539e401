/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a core's partitions and the log's turn; see log.h. All memory is taken at create. */
#include "dataplane/log/log_types.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"

enum {
    RETRY_NS = 1000000, /* the ring to the store was full */
};

#define SWEEP_NS (10 * MILL_NS_PER_S)

/* --- making ---------------------------------------------------------------------------------- */

static uint32_t buckets_for(uint32_t length)
{
    uint32_t buckets = 16;
    while (buckets < length && buckets < (1u << 30)) {
        buckets *= 2;
    }
    return buckets;
}

uint64_t mill_log_memory_bytes(const struct mill_log_limits *limits, uint32_t arena_units)
{
    uint64_t bytes = sizeof(struct mill_log);
    bytes += (uint64_t)limits->partitions_max * sizeof(struct mill_partition);
    bytes += (uint64_t)buckets_for(limits->partitions_max) * sizeof(uint32_t);
    bytes += (uint64_t)limits->producers_max * sizeof(struct log_producer);
    bytes += (uint64_t)buckets_for(limits->producers_max) * sizeof(uint32_t);
    bytes += (uint64_t)limits->transactions_max * sizeof(struct log_txn);
    bytes += (uint64_t)limits->aborted_max * sizeof(struct log_aborted);
    bytes += (uint64_t)arena_units * (sizeof(struct log_extent) + sizeof(struct log_unit));
    return bytes;
}

int mill_log_create(const struct mill_log_config *config, struct mill_log **ret_log)
{
    struct mill_log *log = calloc(1, sizeof(*log));
    if (!log) {
        return -ENOMEM;
    }
    uint32_t units = mill_arena_units(config->arena);
    uint32_t buckets = buckets_for(config->limits.partitions_max);
    log->config = *config;
    log->base = mill_arena_base(config->arena);
    log->slots_free = MILL_LOG_NONE;
    log->buckets_mask = buckets - 1;
    log->partitions = calloc(config->limits.partitions_max, sizeof(log->partitions[0]));
    log->buckets = malloc(buckets * sizeof(log->buckets[0]));
    log->extents = calloc(units, sizeof(log->extents[0]));
    log->units = calloc(units, sizeof(log->units[0]));
    int r = mill_log_producers_init(&log->producers, MILL_MAX(config->limits.producers_max, 1u));
    r = r < 0 ? r
              : mill_log_txns_init(&log->txns, MILL_MAX(config->limits.transactions_max, 1u),
                                   MILL_MAX(config->limits.aborted_max, 1u));
    if (r < 0 || !log->partitions || !log->buckets || !log->extents || !log->units) {
        mill_log_destroy(log);
        return -ENOMEM;
    }
    memset(log->buckets, 0xff, buckets * sizeof(log->buckets[0])); /* MILL_LOG_NONE everywhere */
    log_list_init(&log->lru);
    log_list_init(&log->todo);
    log_list_init(&log->sync);
    log->cold_oldest = MILL_LOG_NONE;
    log->cold_newest = MILL_LOG_NONE;
    log->evict_at_ns = MILL_NEVER;
    log->sweep_at_ns = MILL_NEVER;
    log->sync_at_ns = MILL_NEVER;
    *ret_log = log;
    return 0;
}

void mill_log_destroy(struct mill_log *log)
{
    if (!log) {
        return;
    }
    mill_log_producers_fini(&log->producers);
    mill_log_txns_fini(&log->txns);
    free(log->partitions);
    free(log->buckets);
    free(log->extents);
    free(log->units);
    free(log);
}

/* --- the table ------------------------------------------------------------------------------- */

static uint32_t *bucket_of(const struct mill_log *log, const struct mill_uuid *topic_id,
                           int32_t partition)
{
    static const uint64_t key[2] = {0x6d696c6c6c6f6700ull, 0x706172746974696full};
    uint8_t bytes[sizeof(topic_id->b) + sizeof(partition)];
    memcpy(bytes, topic_id->b, sizeof(topic_id->b));
    memcpy(bytes + sizeof(topic_id->b), &partition, sizeof(partition));
    return &log->buckets[(uint32_t)mill_siphash(key, bytes, sizeof(bytes)) & log->buckets_mask];
}

struct mill_partition *mill_log_find(struct mill_log *log, const struct mill_uuid *topic_id,
                                     int32_t partition)
{
    uint32_t at = *bucket_of(log, topic_id, partition);
    while (at != MILL_LOG_NONE) {
        struct mill_partition *p = &log->partitions[at];
        if (p->index == partition && mill_uuid_equal(&p->topic_id, topic_id)) {
            return p;
        }
        at = p->hash_next;
    }
    return NULL;
}

uint32_t mill_log_partitions(const struct mill_log *log)
{
    return log->partitions_used;
}

struct mill_partition *mill_log_at(struct mill_log *log, uint32_t index)
{
    struct mill_partition *partition = &log->partitions[index];
    return index < log->partitions_used && partition->log && !partition->gone ? partition : NULL;
}

static struct mill_partition *slot_take(struct mill_log *log)
{
    uint32_t slot = log->slots_free;
    if (slot != MILL_LOG_NONE) {
        log->slots_free = log->partitions[slot].hash_next;
    } else if (log->partitions_used < log->config.limits.partitions_max) {
        slot = log->partitions_used++;
    } else {
        return NULL;
    }
    struct mill_partition *partition = &log->partitions[slot];
    uint32_t generation = partition->generation + 1;
    *partition = (struct mill_partition){
        .log = log,
        .slot = slot,
        .generation = generation,
        .first = MILL_LOG_NONE,
        .last = MILL_LOG_NONE,
        .active = MILL_LOG_NONE,
        .hint = MILL_LOG_NONE,
        .post = MILL_LOG_NONE,
        .producers = MILL_LOG_NONE,
        .txn_first = MILL_LOG_NONE,
        .txn_last = MILL_LOG_NONE,
        .txn_ended = MILL_LOG_NONE,
        .txn_ended_last = MILL_LOG_NONE,
        .parked_first = MILL_LOG_NONE,
        .parked_last = MILL_LOG_NONE,
        .cold_failed = -1,
    };
    return partition;
}

int mill_log_open(struct mill_log *log, const struct mill_uuid *topic_id, const char *topic,
                  int32_t partition, int32_t leader_epoch, const struct mill_log_settings *settings,
                  struct mill_partition **ret_partition)
{
    if (mill_log_find(log, topic_id, partition)) {
        return -EEXIST;
    }
    struct mill_partition *p = slot_take(log);
    if (!p) {
        return -ENOSPC;
    }
    p->topic_id = *topic_id;
    p->index = partition;
    p->leader_epoch = leader_epoch;
    p->settings = *settings;
    p->state = MILL_LOG_OPENING;
    p->open_wanted = true;
    snprintf(p->topic, sizeof(p->topic), "%s", topic);
    uint32_t *bucket = bucket_of(log, topic_id, partition);
    p->hash_next = *bucket;
    *bucket = p->slot;
    mill_log_todo(p);
    *ret_partition = p;
    return 0;
}

void mill_log_update(struct mill_partition *partition, int32_t leader_epoch,
                     const struct mill_log_settings *settings)
{
    if (memcmp(&partition->settings, settings, sizeof(*settings)) != 0) {
        partition->settings = *settings;
        partition->settings_wanted = true;
        if (partition->state == MILL_LOG_SERVING) {
            mill_log_advance(partition);
        }
        mill_log_todo(partition);
    }
    if (leader_epoch > partition->leader_epoch) {
        partition->leader_epoch = leader_epoch;
        if (partition->state == MILL_LOG_SERVING) {
            mill_log_epoch_begin(partition, leader_epoch);
        }
    }
}

void mill_log_delete(struct mill_partition *partition)
{
    if (partition->state == MILL_LOG_DELETING) {
        return;
    }
    partition->state = MILL_LOG_DELETING;
    partition->delete_wanted = true;
    mill_log_producers_drop(partition);
    mill_log_txns_drop(partition);
    mill_log_todo(partition);
}

void mill_log_gone(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    uint32_t *link = bucket_of(log, &partition->topic_id, partition->index);
    while (*link != partition->slot) {
        link = &log->partitions[*link].hash_next;
    }
    *link = partition->hash_next;
    log_list_remove(&partition->sync);
    if (!partition->failed) {
        log->stats.dirty_bytes -= partition->dirty_bytes;
    }
    partition->dirty_bytes = 0;
    partition->write_under_way = false;
    partition->write.parts_count = 0;
    log->config.events->state(log->config.context, partition, true);
    partition->gone = true;
    mill_log_todo(partition);
}

/* The files are gone; the slot follows when no extent is on loan and nothing is under way. */
bool mill_log_release(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    if (!mill_log_extents_drop(partition) || partition->cold_count > 0 ||
        partition->parked_first != MILL_LOG_NONE) {
        return false;
    }
    log_list_remove(&partition->todo);
    partition->log = NULL;
    partition->hash_next = log->slots_free;
    log->slots_free = partition->slot;
    return true;
}

/* --- the turn -------------------------------------------------------------------------------- */

void mill_log_todo(struct mill_partition *partition)
{
    if (!partition->todo.next) {
        log_list_add(&partition->log->todo, &partition->todo);
    }
}

void mill_log_advance(struct mill_partition *partition)
{
    int64_t before = partition->high_watermark;
    bool synced_only = partition->settings.flush_messages == 1;
    partition->high_watermark = synced_only
                                    ? MILL_MIN(partition->synced_offset, partition->end_offset)
                                    : partition->end_offset;
    partition->high_watermark = MILL_MAX(partition->high_watermark, before);
    if (partition->high_watermark == partition->end_offset) {
        partition->stream_ready = partition->stream_end;
    }
    mill_log_stable_update(partition);
    if (partition->watch_data || partition->watch_flush) {
        partition->check_watches = true;
        mill_log_todo(partition);
    }
}

/* flush.ms: what was appended that long ago is to be synced. */
static void sync_due(struct mill_log *log)
{
    if (log->now.mono_ns < log->sync_at_ns) {
        return;
    }
    uint64_t next = MILL_NEVER;
    for (struct log_node *node = log->sync.next; node != &log->sync;) {
        struct mill_partition *partition = MILL_CONTAINER_OF(node, struct mill_partition, sync);
        node = node->next;
        uint64_t due =
            partition->unsynced_ns +
            (uint64_t)MILL_MIN(partition->settings.flush_ms, INT64_MAX / 2000000) * MILL_NS_PER_MS;
        if (due > log->now.mono_ns) {
            next = MILL_MIN(next, due);
            continue;
        }
        partition->unsynced_ns = 0;
        partition->sync_wanted = partition->end_offset;
        log_list_remove(&partition->sync);
        mill_log_todo(partition);
    }
    log->sync_at_ns = next;
}

uint32_t mill_log_step(struct mill_log *log, struct mill_now now)
{
    log->now = now;
    uint32_t work = mill_log_take(log);
    if (log->parked_count > 0) {
        work += mill_log_parked_run(log);
    }
    sync_due(log);
    work += mill_log_post(log);
    work += mill_log_evict_idle(log);
    if (log->stats.producers == 0) {
        log->sweep_at_ns = MILL_NEVER;
    } else if (log->sweep_at_ns == MILL_NEVER) {
        log->sweep_at_ns = now.mono_ns + SWEEP_NS;
    } else if (now.mono_ns >= log->sweep_at_ns) {
        mill_log_producers_sweep(log);
        log->sweep_at_ns = now.mono_ns + SWEEP_NS;
    }
    return work;
}

uint64_t mill_log_deadline(const struct mill_log *log)
{
    uint64_t at = MILL_MIN(log->evict_at_ns, MILL_MIN(log->sweep_at_ns, log->sync_at_ns));
    bool again = !log_list_empty(&log->todo) || log->parked_starved;
    return again ? MILL_MIN(at, log->now.mono_ns + RETRY_NS) : at;
}

void mill_log_flush_all(struct mill_log *log)
{
    for (uint32_t i = 0; i < log->partitions_used; i++) {
        struct mill_partition *partition = mill_log_at(log, i);
        if (partition && partition->state == MILL_LOG_SERVING) {
            mill_log_todo(partition);
        }
    }
}

static bool is_done(const struct mill_partition *partition, bool but_failed)
{
    return !partition->log || partition->gone || (but_failed && partition->failed) ||
           !(partition->write_under_way || partition->dirty_bytes > 0 || partition->epochs_wanted ||
             partition->delete_wanted);
}

/* Asked each turn of a stop: it begins where the last look ended, and goes round. */
static bool all_done(struct mill_log *log, bool but_failed)
{
    for (uint32_t i = 0; i < log->partitions_used; i++) {
        log->done_cursor = log->done_cursor < log->partitions_used ? log->done_cursor : 0;
        if (!is_done(&log->partitions[log->done_cursor], but_failed)) {
            return false;
        }
        log->done_cursor++;
    }
    return log->cold_under_way == 0 && log->parked_count == 0 && log->asks_used == 0;
}

bool mill_log_idle(struct mill_log *log)
{
    return all_done(log, false);
}

bool mill_log_ended(struct mill_log *log)
{
#ifdef MILL_MUTANT_LOG_WAITS_FOR_FENCED
    return all_done(log, false);
#endif
    return all_done(log, true);
}

/* --- plain questions ------------------------------------------------------------------------- */

const struct mill_log_stats *mill_log_stats(const struct mill_log *log)
{
    return &log->stats;
}
enum mill_log_state mill_partition_state_of(const struct mill_partition *partition)
{
    return partition->state;
}
bool mill_partition_loaded(const struct mill_partition *partition)
{
    return partition->state == MILL_LOG_SERVING || partition->failed;
}
const struct mill_uuid *mill_partition_topic_id(const struct mill_partition *partition)
{
    return &partition->topic_id;
}
int32_t mill_partition_index(const struct mill_partition *partition)
{
    return partition->index;
}
int32_t mill_partition_epoch(const struct mill_partition *partition)
{
    return partition->leader_epoch;
}
int64_t mill_partition_start(const struct mill_partition *partition)
{
    return partition->start_offset;
}
int64_t mill_partition_end(const struct mill_partition *partition)
{
    return partition->end_offset;
}
int64_t mill_partition_high_watermark(const struct mill_partition *partition)
{
    return partition->high_watermark;
}
int64_t mill_partition_stable(const struct mill_partition *partition)
{
    return partition->stable_offset;
}
void mill_partition_user_set(struct mill_partition *partition, void *user)
{
    partition->user = user;
}
const char *mill_partition_topic(const struct mill_partition *partition)
{
    return partition->topic;
}
uint64_t mill_partition_bytes_in(const struct mill_partition *partition)
{
    return partition->stream_end;
}
uint64_t mill_partition_bytes_out(const struct mill_partition *partition)
{
    return partition->bytes_read;
}
void mill_partition_row_set(struct mill_partition *partition, uint32_t row)
{
    partition->row = row;
}
uint32_t mill_partition_row(const struct mill_partition *partition)
{
    return partition->row;
}

uint32_t mill_log_recent(const struct mill_log *log, uint64_t since_ns,
                         struct mill_partition **ret_partitions, uint32_t max)
{
    uint32_t count = 0;
    for (struct log_node *node = log->lru.prev; node != &log->lru && count < max;
         node = node->prev) {
        struct mill_partition *partition = MILL_CONTAINER_OF(node, struct mill_partition, lru);
        if (partition->used_ns < since_ns) {
            break;
        }
        ret_partitions[count++] = partition;
    }
    return count;
}

void *mill_partition_user(const struct mill_partition *partition)
{
    return partition->user;
}
