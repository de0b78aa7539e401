/* SPDX-License-Identifier: Apache-2.0 */
/* Reading by offset from extents; what is in the files only is asked of the store and comes in a
 * cold extent of its own. Owner core only; never blocks. */
#include "dataplane/log/log_types.h"

#include <errno.h>

/* How far a read goes: no batch that reaches limit_offset. end_offset: after the last one taken. */
struct span {
    int64_t limit_offset;
    int64_t end_offset;
    uint32_t bytes_max;
};

/* Adds whole batches of one extent from pos on, below the limit, within bytes_max. ret: false when
 * reading stops here. */
static bool take_batches(struct mill_partition *partition, uint32_t extent, uint32_t pos,
                         const struct mill_read *read, struct span *span,
                         struct mill_read_result *result)
{
    struct mill_log *log = partition->log;
    struct log_extent *e = &log->extents[extent];
    uint32_t room = span->bytes_max > result->bytes ? span->bytes_max - result->bytes : 0;
    uint32_t left = e->committed_bytes - pos;
    uint32_t size = 0;
    bool whole = left <= room && e->end_offset <= span->limit_offset;
    if (whole) {
        size = left;
        span->end_offset = e->end_offset;
    } else {
        const uint8_t *data = mill_extent_data(log->config.extents, extent) + pos;
        while (size < left) {
            struct mill_batch batch;
            mill_batch_read(data + size, &batch);
            uint32_t batch_size = mill_batch_size_bytes(&batch);
            bool first = result->bytes == 0 && size == 0 && read->first_whole;
            if (mill_batch_last_offset(&batch) >= span->limit_offset ||
                (!first && size + batch_size > room)) {
                break;
            }
            size += batch_size;
            span->end_offset = mill_batch_last_offset(&batch) + 1;
        }
    }
    if (size > 0) {
        result->refs[result->refs_count++] =
            (struct mill_ref){.extent = extent, .pos_bytes = pos, .size_bytes = size};
        result->bytes += size;
        e->used_ns = log->now.mono_ns;
        if (e->cold) {
            mill_log_cold_used(log, extent);
        }
    }
    return whole;
}

/* --- cold reads ------------------------------------------------------------------------------ */

static struct log_cold *cold_at(struct mill_log *log, const struct mill_partition *partition,
                                int64_t offset, struct log_cold **ret_unused)
{
    for (uint32_t i = 0; i < MILL_LOG_COLD_MAX; i++) {
        struct log_cold *cold = &log->cold[i];
        if (cold->partition == partition && cold->offset == offset) {
            return cold;
        }
        if (!cold->partition && !*ret_unused) {
            *ret_unused = cold;
        }
    }
    return NULL;
}

/* Asks the store for what follows offset. ret: 0, -EAGAIN. */
static int cold_begin(struct mill_partition *partition, const struct log_cold *want,
                      uint32_t size_bytes, struct log_cold *to)
{
    struct mill_log *log = partition->log;
    uint32_t extent;
    int r = mill_log_cold_take(log, size_bytes, want->wanted, &extent);
    if (r < 0) {
        return r;
    }
    *to = *want;
    to->partition = partition;
    to->generation = partition->generation;
    to->extent = extent;
    to->size_bytes = log->extents[extent].size_bytes;
    log->unread_bytes += want->wanted ? 0 : to->size_bytes;
    log->cold_under_way++;
    partition->cold_count++;
    mill_log_todo(partition);
    return 0;
}

void mill_log_read_ahead(struct mill_partition *partition, uint32_t extent, uint32_t ahead)
{
    struct mill_log *log = partition->log;
    uint32_t next = log->extents[extent].next;
    while (ahead > 0 && next != MILL_LOG_NONE &&
           log->extents[next].from_offset == log->extents[extent].end_offset) {
        if (!log->extents[next].cold) {
            return; /* up to what is in memory anyway */
        }
        extent = next;
        next = log->extents[extent].next;
        ahead--;
    }
    struct log_cold want = {
        .offset = log->extents[extent].end_offset,
        .limit_offset =
            next == MILL_LOG_NONE ? partition->end_offset : log->extents[next].from_offset,
        .ahead = (uint8_t)(ahead > 0 ? ahead - 1 : 0),
        .depth = log->extents[extent].ahead,
    };
    struct log_cold *unused = NULL;
    /* A quarter of the places stays for readers that wait. */
    if (ahead == 0 || want.offset >= want.limit_offset ||
        (next == MILL_LOG_NONE && mill_log_is_bare(partition, want.offset)) ||
        log->cold_under_way >= MILL_LOG_COLD_MAX / 4 * 3 ||
        cold_at(log, partition, want.offset, &unused) || !unused) {
        return;
    }
    if (cold_begin(partition, &want, MILL_LOG_AHEAD_BYTES, unused) == 0) {
        log->stats.cold_reads_ahead++;
    }
}

/* A reader that comes from the end of the extent before reads on and on. ret: how many reads to
 * make before it asks. */
static uint8_t depth_of(const struct mill_partition *partition, int64_t offset, uint32_t next)
{
    const struct mill_log *log = partition->log;
    uint32_t prev = next == MILL_LOG_NONE ? partition->last : log->extents[next].prev;
    bool follows =
        prev != MILL_LOG_NONE && log->extents[prev].cold && log->extents[prev].end_offset == offset;
    uint32_t depth = offset == partition->start_offset ? 1 : 0;
    if (follows) {
        depth = MILL_MIN(log->extents[prev].ahead * 2u + 1, (uint32_t)MILL_LOG_AHEAD_MAX);
    }
#ifdef MILL_MUTANT_LOG_NO_READ_AHEAD
    depth = 0;
#endif
    return (uint8_t)depth;
}

/* Asks the store for what is not in memory. ret: -EINPROGRESS (watch is parked), -EAGAIN. */
static int read_cold(struct mill_partition *partition, int64_t offset, uint32_t next,
                     struct mill_log_watch *watch)
{
    struct mill_log *log = partition->log;
    struct log_cold *unused = NULL;
    MILL_ASSERT(watch != NULL);
    struct log_cold *cold = cold_at(log, partition, offset, &unused);
    if (!cold) {
        /* The limit before memory is taken: that may evict the extent above. */
        uint8_t depth = depth_of(partition, offset, next);
        struct log_cold want = {
            .offset = offset,
            .limit_offset =
                next == MILL_LOG_NONE ? partition->end_offset : log->extents[next].from_offset,
            .wanted = true,
            .ahead = depth,
            .depth = depth,
        };
        uint32_t size = depth > 0 ? MILL_LOG_AHEAD_BYTES : MILL_LOG_COLD_BYTES;
        if (!unused || cold_begin(partition, &want, size, unused) < 0) {
            return -EAGAIN;
        }
        log->stats.cold_reads++;
    } else if (!cold->wanted) {
        cold->wanted = true; /* read ahead, and not fast enough */
        log->unread_bytes -= cold->size_bytes;
    }
    mill_log_watch_add(partition, &partition->watch_parked, watch);
    return -EINPROGRESS;
}

/* Epoch checks and the range of offsets. ret: true when there is something to read. */
static bool may_read(struct mill_partition *partition, const struct mill_read *read,
                     struct mill_read_result *result)
{
    if (partition->state != MILL_LOG_SERVING && partition->state != MILL_LOG_FAILED) {
        result->error = MILL_KERR_NOT_LEADER_OR_FOLLOWER;
    } else if (read->current_epoch >= 0 && read->current_epoch < partition->leader_epoch) {
        result->error = MILL_KERR_FENCED_LEADER_EPOCH;
    } else if (read->current_epoch > partition->leader_epoch) {
        result->error = MILL_KERR_UNKNOWN_LEADER_EPOCH;
    }
    if (result->error != MILL_KERR_NONE) {
        return false;
    }
    /* First: a reader whose log went another way is told where, though its offset is not here. */
    if (read->last_epoch >= 0) {
        int32_t epoch;
        int64_t end;
        mill_log_epoch_end(partition, read->last_epoch, &epoch, &end);
        if (epoch < 0) {
            result->error = MILL_KERR_OFFSET_OUT_OF_RANGE;
            return false;
        }
        if (epoch < read->last_epoch || end < read->offset) {
            result->diverging_epoch = epoch;
            result->diverging_end = end;
        }
    }
    if (result->diverging_epoch < 0 &&
        (read->offset < partition->start_offset || read->offset > partition->end_offset)) {
        result->error = MILL_KERR_OFFSET_OUT_OF_RANGE;
        return false;
    }
    int64_t end = read->committed ? partition->stable_offset : partition->high_watermark;
    result->high_watermark = partition->high_watermark;
    result->stable_offset = partition->stable_offset;
    result->start_offset = partition->start_offset;
    return result->diverging_epoch < 0 && read->offset < end;
}

static void read_failed(struct mill_read_result *result)
{
    result->error = MILL_KERR_KAFKA_STORAGE_ERROR;
    result->high_watermark = -1;
    result->stable_offset = -1;
    result->start_offset = -1;
    result->bytes = 0;
    result->refs_count = 0;
}

/* How far this read may go, and how much of it at once. */
static struct span span_of(const struct mill_partition *partition, const struct mill_read *read)
{
    struct span span = {.limit_offset = partition->high_watermark, .bytes_max = read->bytes_max};
    if (!read->committed) {
        return span;
    }
    span.limit_offset = partition->stable_offset;
    if (read->offset < partition->aborted_from) {
        const struct log_ask *ask = mill_log_ask_find(partition, read->offset);
        span.bytes_max = MILL_MIN(span.bytes_max, (uint32_t)MILL_LOG_OLD_BYTES);
        if (ask && ask->state == LOG_ASK_DONE && ask->status == 0) {
            span.limit_offset = MILL_MIN(span.limit_offset, ask->end_offset);
        }
    }
    return span;
}

/* What a read leads to: the next cold read, the list of aborted transactions. Both take memory:
 * what the result refers to must not give way. last: the extent that the read ended in, or NONE.
 * ret: as mill_log_aborted_list. */
static int read_more(struct mill_partition *partition, const struct mill_read *read,
                     const struct span *span, uint32_t last, struct mill_log_watch *watch,
                     struct mill_read_result *result)
{
    struct mill_log *log = partition->log;
    int r = 0;
#ifndef MILL_MUTANT_LOG_READ_UNHELD
    for (uint32_t i = 0; i < result->refs_count; i++) {
        mill_loan_take(log->config.loans, &result->refs[i]);
    }
#endif
    if (last != MILL_LOG_NONE && log->extents[last].cold) {
        mill_log_read_ahead(partition, last, log->extents[last].ahead);
    }
    if (read->committed && result->bytes > 0) {
        r = mill_log_aborted_list(partition, read->offset, span->end_offset, watch,
                                  &result->aborted);
    }
#ifndef MILL_MUTANT_LOG_READ_UNHELD
    for (uint32_t i = 0; i < result->refs_count; i++) {
        mill_loan_give(log->config.loans, &result->refs[i]);
    }
#endif
    return r;
}

int mill_log_read(struct mill_partition *partition, const struct mill_read *read,
                  struct mill_log_watch *watch, struct mill_read_result *ret_result)
{
    struct mill_log *log = partition->log;
    ret_result->error = MILL_KERR_NONE;
    ret_result->high_watermark = -1;
    ret_result->stable_offset = -1;
    ret_result->start_offset = -1;
    ret_result->aborted = (struct mill_ref){0};
    ret_result->bytes = 0;
    ret_result->refs_count = 0;
    ret_result->diverging_epoch = -1;
    ret_result->diverging_end = -1;
    if (!may_read(partition, read, ret_result)) {
        return 0;
    }
    uint32_t refs_max = MILL_MIN(read->refs_max, (uint32_t)MILL_LOG_REFS_MAX);
    if (refs_max == 0 || (read->bytes_max == 0 && !read->first_whole)) {
        return 0;
    }
    uint32_t next;
    uint32_t extent = mill_log_extent_find(partition, read->offset, &next);
    if (extent == MILL_LOG_NONE) {
        if (partition->cold_failed == read->offset) {
            partition->cold_failed = -1;
            read_failed(ret_result);
            return 0;
        }
        if (next == MILL_LOG_NONE && mill_log_is_bare(partition, read->offset)) {
            return 0; /* what comes next is not appended yet */
        }
        return read_cold(partition, read->offset, next, watch);
    }
    uint32_t pos = mill_log_extent_seek(log, extent, read->offset);
    struct span span = span_of(partition, read);
    uint32_t last = extent; /* read from */
    while (take_batches(partition, extent, pos, read, &span, ret_result) &&
           ret_result->refs_count < refs_max) {
        int64_t end = log->extents[extent].end_offset;
        extent = log->extents[extent].next;
        if (extent == MILL_LOG_NONE || log->extents[extent].from_offset != end ||
            log->extents[extent].committed_bytes == 0) {
            break;
        }
        pos = 0;
        last = extent;
    }
    int r = read_more(partition, read, &span, last, watch, ret_result);
    if (r == -EIO) {
        read_failed(ret_result);
    } else if (r < 0) {
        return r;
    }
    log->stats.bytes_out += ret_result->bytes;
    partition->bytes_read += ret_result->bytes;
    mill_log_touch(partition);
    return 0;
}

/* A look-up that this caller began earlier, or a free slot. */
static struct log_time *time_slot(struct mill_partition *partition, int64_t time_ms)
{
    struct log_time *unused = NULL;
    for (uint32_t i = 0; i < MILL_LOG_TIME_MAX; i++) {
        struct log_time *look = &partition->log->time[i];
        if (look->state == LOG_TIME_FREE) {
            unused = unused ? unused : look;
        } else if (look->partition == partition && look->generation == partition->generation &&
                   look->time_ms == time_ms) {
            return look;
        }
    }
    return unused;
}

static void time_result(struct mill_partition *partition, const struct log_time *look,
                        int64_t end_offset, struct mill_time_result *result)
{
    if (look->status < 0) {
        result->error = MILL_KERR_KAFKA_STORAGE_ERROR;
        return;
    }
    if (look->offset >= 0 && look->offset < end_offset) {
        result->offset = look->offset;
        result->timestamp = look->timestamp;
        result->leader_epoch = mill_log_epoch_at(partition, look->offset);
    }
}

int mill_log_find_time(struct mill_partition *partition, int64_t time_ms, bool committed,
                       struct mill_log_watch *watch, struct mill_time_result *ret_result)
{
    *ret_result = (struct mill_time_result){.offset = -1, .timestamp = -1, .leader_epoch = -1};
    if (partition->state != MILL_LOG_SERVING) {
        ret_result->error = partition->state == MILL_LOG_FAILED ? MILL_KERR_KAFKA_STORAGE_ERROR
                                                                : MILL_KERR_NOT_LEADER_OR_FOLLOWER;
        return 0;
    }
    if (partition->full) {
        ret_result->error = MILL_KERR_KAFKA_STORAGE_ERROR; /* the files lack the newest records */
        return 0;
    }
    if (partition->start_offset == partition->end_offset) {
        return 0;
    }
    struct log_time *look = time_slot(partition, time_ms);
    if (!look) {
        return -EAGAIN;
    }
    if (look->state == LOG_TIME_DONE) {
        time_result(partition, look,
                    committed ? partition->stable_offset : partition->high_watermark, ret_result);
        mill_log_time_free(partition->log, look);
        return 0;
    }
    if (look->state == LOG_TIME_FREE) {
        *look = (struct log_time){
            .partition = partition,
            .generation = partition->generation,
            .state = LOG_TIME_WANTED,
            .time_ms = time_ms,
            .need_offset = partition->end_offset,
        };
        partition->log->time_under_way++;
        partition->log->time_used++;
    }
    mill_log_watch_add(partition, &partition->watch_parked, watch);
    mill_log_todo(partition);
    return -EINPROGRESS;
}
