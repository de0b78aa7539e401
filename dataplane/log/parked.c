/* SPDX-License-Identifier: Apache-2.0 */
/* Appends that wait: for the store to look inside their batch, or for an earlier one of the same
 * partition that does. Each partition's form a queue, in the order in which they came, and end in
 * that order from mill_log_step, whatever their callers do meanwhile. Owner core only; the store
 * has an entry's extent between INSPECT and INSPECTED and nobody else touches it then.
 *
 *   park: copy + CRC -> WANTED -> POSTED -> READY -> copied behind the active extent -> DONE
 *                         ^         | needs more room       (refused: DONE with an error)
 *                         +---------+
 */
#include "dataplane/log/log_types.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"

enum {
    UNPACKED_GUESS = 4, /* room for a batch that will be stored in another codec, in its sizes */
    PACKED_SHARE = 64, /* what a codec may add to bytes that do not shrink: one part of these ... */
    PACKED_FRAME = 1024,  /* ... and its frames */
    TURN_BYTES = 2 << 20, /* copied in one turn, but for one batch that is larger */
};

static void refuse(struct log_check *check, enum mill_kerr error, const char *message)
{
    check->error = error;
    check->message = message;
}

static void no_memory(struct log_check *check)
{
    refuse(check, MILL_KERR_KAFKA_STORAGE_ERROR, "no memory to look inside the batch: try again");
}

static void entry_free(struct log_parked *parked)
{
    *parked = (struct log_parked){.state = LOG_PARKED_FREE};
}

static struct log_parked *entry_take(struct mill_log *log)
{
    for (uint32_t i = 0; i < MILL_LOG_PARKED_MAX; i++) {
        if (log->parked[i].state == LOG_PARKED_FREE) {
            log->parked[i].ticket = ++log->parked_serial * MILL_LOG_PARKED_MAX + i;
            return &log->parked[i];
        }
    }
    log->stats.parked_full++;
    return NULL;
}

/* The entry that a watch's ticket names. */
static struct log_parked *entry_of(struct mill_log *log, const struct mill_log_watch *watch)
{
    struct log_parked *parked = &log->parked[watch->ticket % MILL_LOG_PARKED_MAX];
    MILL_ASSERT_EQ(parked->ticket, watch->ticket);
    return parked;
}

static void extent_set(struct mill_log *log, struct log_parked *parked, uint32_t extent)
{
    mill_extent_publish(log->config.extents, extent, MILL_EXTENT_SCRATCH);
    parked->extent = extent;
    log->parked_bytes += log->extents[extent].size_bytes;
}

static void extent_drop(struct mill_log *log, struct log_parked *parked)
{
    log->parked_bytes -= log->extents[parked->extent].size_bytes;
    mill_extent_free(log->config.extents, parked->extent);
    parked->extent = MILL_LOG_NONE;
}

/* Room that the batch, as it will be stored, probably needs. */
static uint32_t room_guess(const struct mill_log_settings *settings, const struct mill_batch *batch)
{
    uint64_t size = mill_batch_size_bytes(batch);
    uint64_t guess = size;
    if (settings->compression == MILL_LOG_CODEC_ANY) {
        return (uint32_t)size;
    }
    guess += mill_batch_codec(batch) != MILL_CODEC_NONE ? size * (UNPACKED_GUESS - 1)
                                                        : size / PACKED_SHARE + PACKED_FRAME;
    return (uint32_t)MILL_MAX(size, MILL_MIN(guess, (uint64_t)settings->max_message_bytes));
}

static int extent_take(struct mill_log *log, uint32_t guess_bytes, uint32_t size_bytes,
                       uint32_t *ret_extent)
{
    int r = mill_log_extent_take(log, guess_bytes, ret_extent);
    return r < 0 && guess_bytes > size_bytes ? mill_log_extent_take(log, size_bytes, ret_extent)
                                             : r;
}

static void queue_add(struct mill_partition *partition, struct log_parked *parked)
{
    struct mill_log *log = partition->log;
    uint32_t index = (uint32_t)(parked - log->parked);
    parked->partition = partition;
    parked->next = MILL_LOG_NONE;
    if (partition->parked_first == MILL_LOG_NONE) {
        partition->parked_first = index;
    } else {
        log->parked[partition->parked_last].next = index;
    }
    partition->parked_last = index;
    log->parked_count++;
}

int mill_log_park(struct mill_partition *partition, const struct mill_append *append,
                  struct mill_batch *batch, struct log_check *check, struct mill_log_watch *watch,
                  struct mill_append_result *ret_result)
{
    struct mill_log *log = partition->log;
    bool look = mill_log_needs_look(&partition->settings, batch);
    uint32_t guess = look ? room_guess(&partition->settings, batch) : append->size_bytes;
    uint32_t extent;
    MILL_ASSERT(watch != NULL);
    if (!mill_log_dirty_room(log, guess)) {
        log->stats.dirty_full++;
        return -EAGAIN;
    }
    struct log_parked *parked = entry_take(log);
    int r = parked ? extent_take(log, guess, append->size_bytes, &extent) : -EAGAIN;
    if (r == -EAGAIN) {
        return -EAGAIN; /* an entry is taken by its state only */
    }
    log->stats.bytes_in += append->size_bytes;
    if (r < 0) {
        refuse(check, MILL_KERR_MESSAGE_TOO_LARGE,
               "the record batch is larger than the largest extent");
        mill_log_append_refuse(partition, check, ret_result);
        return 0;
    }
    uint8_t *bytes = mill_extent_data(log->config.extents, extent);
    struct mill_cursor from = append->records;
    r = mill_cursor_read(&from, bytes, append->size_bytes);
    MILL_ASSERT_EQ(r, 0); /* the caller holds size_bytes */
    ret_result->bytes_copied = append->size_bytes;
    if (mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, append->size_bytes - MILL_BATCH_SUMMED_AT) !=
        batch->crc) {
        mill_extent_free(log->config.extents, extent);
        mill_log_append_corrupt(partition, check, ret_result);
        return 0;
    }
    extent_set(log, parked, extent);
    parked->state = look ? LOG_PARKED_WANTED : LOG_PARKED_READY;
    parked->api_version = append->api_version;
    parked->internal_client = append->internal_client;
    parked->grants_late = append->grants_late;
    parked->check = *check;
    parked->result = *ret_result;
    parked->watch = watch;
    watch->ticket = parked->ticket;
    queue_add(partition, parked);
    mill_log_watch_add(partition, &partition->watch_parked, watch);
    mill_log_todo(partition);
    return -EINPROGRESS;
}

int mill_log_parked_fetch(struct mill_partition *partition, struct mill_log_watch *watch,
                          struct mill_append_result *ret_result)
{
    struct log_parked *parked = entry_of(partition->log, watch);
    if (parked->state != LOG_PARKED_DONE) {
        /* Woken for something else of the partition. */
        mill_log_watch_add(partition, &partition->watch_parked, watch);
        return -EINPROGRESS;
    }
    *ret_result = parked->result;
    watch->ticket = 0;
    entry_free(parked);
    return 0;
}

void mill_log_abandon(struct mill_log *log, struct mill_log_watch *watch)
{
    if (watch->ticket == 0) {
        return;
    }
    struct log_parked *parked = entry_of(log, watch);
    mill_log_unwatch(watch);
    watch->ticket = 0;
    parked->watch = NULL;
#ifndef MILL_MUTANT_LOG_PARKED_LEAK
    if (parked->state == LOG_PARKED_DONE) {
        entry_free(parked);
    }
#endif
}

/* --- the store's look ------------------------------------------------------------------------ */

bool mill_log_parked_post(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    for (uint32_t i = partition->parked_first; i != MILL_LOG_NONE; i = log->parked[i].next) {
        struct log_parked *parked = &log->parked[i];
        if (parked->state != LOG_PARKED_WANTED) {
            continue;
        }
        struct mill_link_inspect *to =
            mill_log_link_claim(partition, MILL_LINK_INSPECT, sizeof(*to));
        if (!to) {
            return false;
        }
        to->request = i;
        to->extent = parked->extent;
        to->room_bytes = log->extents[parked->extent].size_bytes;
        to->wall_ms = log->now.wall_ms;
        to->settings = partition->settings;
        parked->state = LOG_PARKED_POSTED;
    }
    return true;
}

/* The batch needs a larger extent than was thought: the store is asked once more. */
static void grow(struct mill_log *log, struct log_parked *parked, uint32_t size_bytes)
{
    const uint8_t *from = mill_extent_data(log->config.extents, parked->extent);
    struct mill_batch batch;
    uint32_t extent;
    mill_batch_read(from, &batch);
    /* Waiting here, with an extent in hand, could be for one who waits the same way. */
    int r = mill_log_extent_take(log, size_bytes, &extent);
    if (r == -EFBIG) {
        refuse(&parked->check, MILL_KERR_MESSAGE_TOO_LARGE,
               "the record batch is larger than the largest extent");
    } else if (r < 0) {
        no_memory(&parked->check);
    } else {
#ifndef MILL_MUTANT_LOG_PARKED_GROW
        memcpy(mill_extent_data(log->config.extents, extent), from, mill_batch_size_bytes(&batch));
#endif
        extent_drop(log, parked);
        extent_set(log, parked, extent);
        parked->state = LOG_PARKED_WANTED;
        mill_log_todo(parked->partition);
    }
}

void mill_log_parked_take(struct mill_log *log, const struct mill_link_inspected *from)
{
    struct log_parked *parked =
        from->request < MILL_LOG_PARKED_MAX ? &log->parked[from->request] : NULL;
    if (!parked || parked->state != LOG_PARKED_POSTED) {
        return;
    }
    parked->state = LOG_PARKED_READY;
    if (from->status == -EMSGSIZE) {
        grow(log, parked, from->size_bytes);
        return;
    }
    if (from->status < 0) {
        no_memory(&parked->check);
        return;
    }
    parked->check = (struct log_check){
        .error = (enum mill_kerr)from->error,
        .bad_record = from->bad_record,
        .message = from->message,
        .max_timestamp = from->max_timestamp,
        .walked = true,
    };
    log->stats.batches_inspected++;
    log->stats.batches_recompressed += from->recompressed ? 1 : 0;
}

/* --- its turn -------------------------------------------------------------------------------- */

/* Appends what was parked. ret: false when there is no memory now. */
static bool append_parked(struct mill_partition *partition, struct log_parked *parked)
{
    struct mill_log *log = partition->log;
    const uint8_t *from = mill_extent_data(log->config.extents, parked->extent);
    struct mill_batch batch;
    struct mill_buf buf;
    mill_batch_read(from, &batch);
    struct mill_append append = {.size_bytes = mill_batch_size_bytes(&batch),
                                 .api_version = parked->api_version,
                                 .internal_client = parked->internal_client,
                                 .grants_late = parked->grants_late};
    append.records = mill_cursor_over(&buf, from, append.size_bytes);
    return mill_log_append_place(partition, &append, &batch, log->now, &parked->check,
                                 &parked->result) == 0;
}

/* Ends the oldest append of the partition. ret: false when it is not its turn yet. */
static bool first_end(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    struct log_parked *parked = &log->parked[partition->parked_first];
    struct log_check refused;
    if (parked->state == LOG_PARKED_POSTED ||
        (parked->state == LOG_PARKED_WANTED && partition->state == MILL_LOG_SERVING)) {
        return false;
    }
    if (mill_log_append_refuses(partition, &refused)) {
        mill_log_append_refuse(partition, &refused, &parked->result);
    } else if (parked->check.error != MILL_KERR_NONE) {
        mill_log_append_refuse(partition, &parked->check, &parked->result);
    } else if (!append_parked(partition, parked)) {
#ifndef MILL_MUTANT_LOG_PARKED_ASLEEP
        log->parked_starved = true;
#endif
        return false;
    }
    partition->parked_first = parked->next;
    log->parked_count--;
    extent_drop(log, parked);
    parked->state = LOG_PARKED_DONE;
    if (!parked->watch) {
        entry_free(parked);
    } else if (parked->watch->partition) {
        mill_log_watch_fire(parked->watch, MILL_WATCH_DATA);
    }
    return true;
}

uint32_t mill_log_parked_run(struct mill_log *log)
{
    uint32_t work = 0;
    uint64_t copied_bytes = 0; /* at most; what is refused is not copied */
    log->parked_starved = false;
    for (uint32_t i = 0; i < MILL_LOG_PARKED_MAX; i++) {
        struct log_parked *parked = &log->parked[log->parked_turn % MILL_LOG_PARKED_MAX];
        log->parked_turn++;
        if (parked->state == LOG_PARKED_FREE || parked->state == LOG_PARKED_DONE) {
            continue;
        }
        struct mill_partition *partition = parked->partition;
        while (partition->parked_first != MILL_LOG_NONE) {
            uint32_t first = log->parked[partition->parked_first].extent;
            uint32_t size_bytes = log->extents[first].size_bytes;
#ifndef MILL_MUTANT_LOG_PARKED_UNBOUNDED
            if (copied_bytes + size_bytes > TURN_BYTES && copied_bytes > 0) {
                return work; /* there was some, so the next turn comes at once */
            }
#endif
            if (!first_end(partition)) {
                break;
            }
            copied_bytes += size_bytes;
            work++;
        }
    }
    return work;
}
