/* SPDX-License-Identifier: Apache-2.0 */
/* The aborted transactions that overlap what a read_committed reader gets: from the core's ring,
 * and for older data from .txnindex files, which the store reads into an extent. The list stands in
 * an extent as it does on the wire: producer id and first offset, 16 bytes each, in the order of
 * the markers. Owner core only; never blocks. ref: KIP-98 */
#include "dataplane/log/log_types.h"

#include <errno.h>

#define ASK_KEPT_NS MILL_NS_PER_S

static void put(uint8_t *to, const struct log_aborted *entry)
{
    mill_store_be64(to, (uint64_t)entry->producer_id);
    mill_store_be64(to + 8, (uint64_t)entry->first_offset);
}

/* Counts entries of the ring whose marker lies at or above from and that begin below end; writes
 * the last most of them to `to`, unless that is NULL. */
static uint32_t ring_list(const struct mill_partition *partition, int64_t from, int64_t end,
                          uint8_t *to, uint32_t most)
{
    uint32_t count = 0;
    const struct log_aborted *entry =
        mill_log_aborted_at(partition->log, partition->aborted_newest);
    while (entry && entry->last_offset >= from) {
        if (entry->first_offset < end) {
            count++;
            if (to && count <= most) {
                put(to + (most - count) * MILL_LOG_ABORTED_BYTES, entry);
            }
        }
        entry = mill_log_aborted_at(partition->log, entry->older);
    }
    return count;
}

/* --- asking the store ------------------------------------------------------------------------- */

struct log_ask *mill_log_ask_find(const struct mill_partition *partition, int64_t offset)
{
    struct mill_log *log = partition->log;
    for (uint32_t i = 0; log->asks_used > 0 && i < MILL_LOG_ASKS_MAX; i++) {
        struct log_ask *ask = &log->asks[i];
        if (ask->state != LOG_ASK_FREE && ask->partition == partition &&
            ask->generation == partition->generation && ask->offset == offset) {
            return ask;
        }
    }
    return NULL;
}

static void ask_free(struct mill_log *log, struct log_ask *ask)
{
    if (ask->extent != MILL_LOG_NONE) {
        mill_extent_free(log->config.extents, ask->extent);
    }
    ask->state = LOG_ASK_FREE;
    log->asks_used--;
}

static int ask_begin(struct mill_partition *partition, int64_t offset, int64_t end)
{
    struct mill_log *log = partition->log;
    struct log_ask *ask = NULL;
    for (uint32_t i = 0; i < MILL_LOG_ASKS_MAX && !ask; i++) {
        ask = log->asks[i].state == LOG_ASK_FREE ? &log->asks[i] : NULL;
    }
    uint32_t extent;
    if (!ask || mill_log_extent_take(log, MILL_LOG_ASK_BYTES, &extent) < 0) {
        return -EAGAIN;
    }
    mill_extent_publish(log->config.extents, extent, MILL_EXTENT_SCRATCH);
    *ask = (struct log_ask){
        .partition = partition,
        .generation = partition->generation,
        .state = LOG_ASK_WANTED,
        .extent = extent,
        .offset = offset,
        .end_offset = end,
    };
    log->asks_used++;
    mill_log_todo(partition);
    return 0;
}

bool mill_log_asks_post(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    for (uint32_t i = 0; log->asks_used > 0 && i < MILL_LOG_ASKS_MAX; i++) {
        struct log_ask *ask = &log->asks[i];
        if (ask->state != LOG_ASK_WANTED || ask->partition != partition ||
            ask->generation != partition->generation) {
            continue;
        }
        struct mill_link_aborted *to =
            mill_log_link_claim(partition, MILL_LINK_ABORTED, sizeof(*to));
        if (!to) {
            return false;
        }
        to->request = i;
        to->extent = ask->extent;
        to->most = MILL_LOG_ASK_BYTES / MILL_LOG_ABORTED_BYTES - MILL_LOG_ABORTED_MAX;
        to->offset = ask->offset;
        to->end_offset = ask->end_offset;
        ask->state = LOG_ASK_POSTED;
    }
    return true;
}

void mill_log_ask_take(struct mill_log *log, struct mill_partition *partition,
                       const struct mill_link_aborted_done *from)
{
    struct log_ask *ask = from->request < MILL_LOG_ASKS_MAX ? &log->asks[from->request] : NULL;
    if (!ask || ask->state != LOG_ASK_POSTED) {
        return;
    }
    if (!partition || partition->gone || partition->state == MILL_LOG_DELETING) {
        ask_free(log, ask);
        return;
    }
    ask->state = LOG_ASK_DONE;
    ask->status = from->status;
    ask->count = from->count;
    ask->known_offset = from->known_offset;
    ask->end_offset = from->end_offset;
    ask->done_ns = log->now.mono_ns;
    mill_log_watches_fire(partition, &partition->watch_parked, MILL_WATCH_DATA);
}

void mill_log_asks_expire(struct mill_log *log)
{
    for (uint32_t i = 0; log->asks_used > 0 && i < MILL_LOG_ASKS_MAX; i++) {
        struct log_ask *ask = &log->asks[i];
        bool late = ask->state == LOG_ASK_DONE && log->now.mono_ns - ask->done_ns > ASK_KEPT_NS;
        bool void_now = ask->state == LOG_ASK_WANTED &&
                        (ask->partition->generation != ask->generation || ask->partition->gone ||
                         ask->partition->state == MILL_LOG_DELETING);
        if (late || void_now) {
            ask_free(log, ask);
        }
    }
}

/* --- for a read ------------------------------------------------------------------------------- */

/* The list of the ring alone, in an extent of its own. */
static int list_from_ring(struct mill_partition *partition, int64_t from, int64_t end,
                          struct mill_ref *ret_list)
{
    struct mill_log *log = partition->log;
    uint32_t count = ring_list(partition, from, end, NULL, 0);
    uint32_t extent;
    if (count == 0) {
        return 0;
    }
    if (mill_log_extent_take(log, count * MILL_LOG_ABORTED_BYTES, &extent) < 0) {
        return -EAGAIN;
    }
    mill_extent_publish(log->config.extents, extent, MILL_EXTENT_SCRATCH);
    ring_list(partition, from, end, mill_extent_data(log->config.extents, extent), count);
    *ret_list = (struct mill_ref){.extent = extent, .size_bytes = count * MILL_LOG_ABORTED_BYTES};
    return 0;
}

int mill_log_aborted_list(struct mill_partition *partition, int64_t offset, int64_t end,
                          struct mill_log_watch *watch, struct mill_ref *ret_list)
{
    struct mill_log *log = partition->log;
    struct log_ask *ask = mill_log_ask_find(partition, offset);
    if (offset >= partition->aborted_from) {
        return list_from_ring(partition, offset, end, ret_list);
    }
    if (ask && ask->state == LOG_ASK_DONE && ask->status < 0) {
        ask_free(log, ask);
        return -EIO;
    }
    if (ask && ask->state == LOG_ASK_DONE && ask->known_offset < partition->aborted_from) {
        if (partition->state != MILL_LOG_SERVING || partition->full) {
            ask_free(log, ask);
            return -EIO; /* what fell out of the ring has not reached the files */
        }
        ask_free(log, ask); /* the ring moved on meanwhile */
        ask = NULL;
    }
    if (!ask || ask->state != LOG_ASK_DONE) {
        int r = ask ? 0 : ask_begin(partition, offset, end);
        if (r == 0) {
            mill_log_watch_add(partition, &partition->watch_parked, watch);
        }
        return r < 0 ? r : -EINPROGRESS;
    }
    uint8_t *to = mill_extent_data(log->config.extents, ask->extent) +
                  (size_t)ask->count * MILL_LOG_ABORTED_BYTES;
    uint32_t more = ring_list(partition, ask->known_offset, end, NULL, 0);
    ring_list(partition, ask->known_offset, end, to, more);
    uint32_t count = ask->count + more;
    if (count > 0) {
        *ret_list =
            (struct mill_ref){.extent = ask->extent, .size_bytes = count * MILL_LOG_ABORTED_BYTES};
        ask->extent = MILL_LOG_NONE; /* the caller's now */
    }
    ask_free(log, ask);
    return 0;
}
