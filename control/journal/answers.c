/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of a core: gathered from the parts in its ring, read, and told to whom it is for. What
 * cannot be the answer to the request under way costs the stream. Control's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/journal/journal_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

enum {
    ANSWER_BYTES_MAX = 64 << 20, /* a batch of the largest max.message.bytes that is sensible */
    PARTS_PER_STEP = 64,
};

/* What an answer to an append says of one batch. A storage error or a timeout comes after the
 * append as well as before it. */
static struct mill_journal_result result_of(int16_t error)
{
    struct mill_journal_result result = {.outcome = MILL_JOURNAL_REFUSED, .error = error};
    if (error == MILL_KERR_NONE) {
        result.outcome = MILL_JOURNAL_DONE;
    } else if (error == MILL_KERR_REQUEST_TIMED_OUT || error == MILL_KERR_KAFKA_STORAGE_ERROR ||
               error == MILL_KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND ||
               error == MILL_KERR_UNKNOWN_SERVER_ERROR) {
        result.outcome = MILL_JOURNAL_UNKNOWN;
    }
    return result;
}

struct appended {
    int16_t error;
    int64_t base_offset;
};

/* Reads the answer's elements, one for each batch, in their order. ret: false malformed. */
static bool produce_parse(const struct mill_journal_core *core, struct mill_cursor *at,
                          struct appended *ret_appended)
{
    struct mill_produce_response message;
    struct mill_produce_response_responses topic;
    struct mill_produce_response_responses_partition_responses part;
    uint32_t count = 0;
    if (mill_produce_response_decode(at, MILL_JOURNAL_PRODUCE_VERSION, &message) < 0) {
        return false;
    }
    while (mill_produce_response_responses_next(&message.responses, MILL_JOURNAL_PRODUCE_VERSION,
                                                &topic)) {
        while (mill_produce_response_responses_partition_responses_next(
            &topic.partition_responses, MILL_JOURNAL_PRODUCE_VERSION, &part)) {
            if (count == core->flight_count || part.index != core->flight[count]->index) {
                return false;
            }
            ret_appended[count++] = (struct appended){part.error_code, part.base_offset};
        }
    }
    return count == core->flight_count;
}

static void produce_done(struct mill_journal *journal, struct mill_journal_core *core,
                         struct mill_cursor *at)
{
    struct appended appended[MILL_JOURNAL_FLIGHT_MAX];
    struct mill_journal_partition *flight[MILL_JOURNAL_FLIGHT_MAX];
    if (!produce_parse(core, at, appended)) {
        mill_journal_core_lost(journal, core);
        return;
    }
    uint32_t count = core->flight_count;
    memcpy(flight, core->flight, count * sizeof(flight[0]));
    for (uint32_t i = 0; i < count; i++) {
        struct mill_journal_result result = result_of(appended[i].error);
        journal->counters.journal_refused += result.outcome == MILL_JOURNAL_REFUSED;
        journal->counters.journal_unknown += result.outcome == MILL_JOURNAL_UNKNOWN;
        /* Still in flight while its callers are told: what they append now goes behind. */
        mill_journal_batch_end(journal, flight[i], result, appended[i].base_offset);
    }
    core->flight_count = 0;
    core->busy = MILL_JOURNAL_IDLE;
    for (uint32_t i = 0; i < count; i++) {
        flight[i]->waiting = false;
        if (flight[i]->first) {
            mill_journal_partition_list(journal, flight[i]);
        }
    }
}

/* ret: false malformed. */
static bool fetch_parse(struct mill_cursor *at, struct mill_journal_read *ret)
{
    struct mill_fetch_response message;
    struct mill_fetch_response_responses topic;
    struct mill_fetch_response_responses_partitions part;
    if (mill_fetch_response_decode(at, MILL_JOURNAL_FETCH_VERSION, &message) < 0) {
        return false;
    }
    ret->error = message.error_code;
    if (ret->error != 0) {
        return true;
    }
    if (!mill_fetch_response_responses_next(&message.responses, MILL_JOURNAL_FETCH_VERSION,
                                            &topic) ||
        !mill_fetch_response_responses_partitions_next(&topic.partitions,
                                                       MILL_JOURNAL_FETCH_VERSION, &part)) {
        return false;
    }
    ret->error = part.error_code;
    ret->high_watermark = part.high_watermark;
    ret->log_start = part.log_start_offset;
    ret->records = part.records.ptr;
    ret->records_bytes = (uint32_t)MILL_MAX(part.records.length, 0);
    return true;
}

/* ret: false malformed. */
static bool start_parse(struct mill_cursor *at, struct mill_journal_read *ret)
{
    struct mill_list_offsets_response message;
    struct mill_list_offsets_response_topics topic;
    struct mill_list_offsets_response_topics_partitions part;
    if (mill_list_offsets_response_decode(at, MILL_JOURNAL_LIST_OFFSETS_VERSION, &message) < 0 ||
        !mill_list_offsets_response_topics_next(&message.topics, MILL_JOURNAL_LIST_OFFSETS_VERSION,
                                                &topic) ||
        !mill_list_offsets_response_topics_partitions_next(
            &topic.partitions, MILL_JOURNAL_LIST_OFFSETS_VERSION, &part)) {
        return false;
    }
    ret->error = part.error_code;
    ret->log_start = part.offset;
    return true;
}

/* ret: false malformed. */
static bool end_parse(struct mill_cursor *at, struct mill_journal_read *ret)
{
    struct mill_offset_for_leader_epoch_response message;
    struct mill_offset_for_leader_epoch_response_topics topic;
    struct mill_offset_for_leader_epoch_response_topics_partitions part;
    if (mill_offset_for_leader_epoch_response_decode(at, MILL_JOURNAL_EPOCH_VERSION, &message) <
            0 ||
        !mill_offset_for_leader_epoch_response_topics_next(&message.topics,
                                                           MILL_JOURNAL_EPOCH_VERSION, &topic) ||
        !mill_offset_for_leader_epoch_response_topics_partitions_next(
            &topic.partitions, MILL_JOURNAL_EPOCH_VERSION, &part)) {
        return false;
    }
    ret->error = part.error_code;
    ret->log_end = part.end_offset;
    return true;
}

static void read_done(struct mill_journal *journal, struct mill_journal_core *core,
                      struct mill_cursor *at)
{
    struct mill_journal_read result = {
        .outcome = MILL_JOURNAL_DONE, .high_watermark = -1, .log_start = -1, .log_end = -1};
    struct mill_journal_reader *read = core->reading;
    bool good = read->offset == MILL_JOURNAL_START ? start_parse(at, &result)
                : read->offset == MILL_JOURNAL_END ? end_parse(at, &result)
                                                   : fetch_parse(at, &result);
    if (!good) {
        mill_journal_core_lost(journal, core);
        return;
    }
    core->reading = NULL;
    core->busy = MILL_JOURNAL_IDLE;
    journal->reads_count--;
    result.outcome = result.error == 0 ? MILL_JOURNAL_DONE : MILL_JOURNAL_REFUSED;
    read->done(read->context, &result);
    free(read);
}

static void marks_done(struct mill_journal *journal, struct mill_journal_core *core,
                       struct mill_cursor *at)
{
    int16_t errors[MILL_MARKS_FLIGHT_MAX];
    struct mill_mark *marking[MILL_MARKS_FLIGHT_MAX];
    uint32_t count = core->marking_count;
    if (!mill_marks_parse(at, core->marking, count, errors)) {
        mill_journal_core_lost(journal, core);
        return;
    }
    memcpy(marking, core->marking, count * sizeof(marking[0]));
    core->marking_count = 0;
    core->busy = MILL_JOURNAL_IDLE;
    for (uint32_t i = 0; i < count; i++) {
        mill_journal_mark_end(journal, marking[i], result_of(errors[i]).outcome, errors[i]);
    }
}

/* Handles the answer when all of it is there. */
static void answer_look(struct mill_journal *journal, struct mill_journal_core *core)
{
    if (core->answer_bytes < MILL_FRAME_SIZE_BYTES) {
        return;
    }
    uint32_t size = mill_load_be32(core->answer);
    if (size > ANSWER_BYTES_MAX - MILL_FRAME_SIZE_BYTES) {
        mill_journal_core_lost(journal, core);
        return;
    }
    if (core->answer_bytes < size + MILL_FRAME_SIZE_BYTES) {
        return;
    }
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, core->answer + MILL_FRAME_SIZE_BYTES, size);
    int32_t correlation = 0;
    int rc = -EBADMSG;
    if (core->busy != MILL_JOURNAL_IDLE && core->request_sent == core->request_bytes) {
        int16_t key = mill_journal_key_of(core);
        rc = mill_response_header_decode(&at, key, mill_journal_version_of(key), &correlation);
    }
    if (rc < 0 || correlation != core->correlation) {
        mill_journal_core_lost(journal, core);
        return;
    }
    core->answer_bytes = 0;
    if (core->busy == MILL_JOURNAL_APPENDING) {
        produce_done(journal, core, &at);
    } else if (core->busy == MILL_JOURNAL_MARKING) {
        marks_done(journal, core, &at);
    } else {
        read_done(journal, core, &at);
    }
}

/* Adds bytes of the answer. ret: false too long, or no memory. */
static bool answer_add(struct mill_journal_core *core, const uint8_t *bytes, uint32_t size_bytes)
{
    uint64_t need = (uint64_t)core->answer_bytes + size_bytes;
    if (need > ANSWER_BYTES_MAX) {
        return false;
    }
    if (need > core->answer_capacity) {
        uint64_t capacity = MILL_MAX(need, 2 * (uint64_t)core->answer_capacity);
        uint8_t *grown = realloc(core->answer, capacity);
        if (!grown) {
            return false;
        }
        core->answer = grown;
        core->answer_capacity = (uint32_t)capacity;
    }
    memcpy(core->answer + core->answer_bytes, bytes, size_bytes);
    core->answer_bytes += size_bytes;
    return true;
}

static void part_take(struct mill_journal *journal, struct mill_journal_core *core, uint32_t kind,
                      const uint8_t *message, uint32_t message_bytes)
{
    struct mill_stream_part head;
    if (message_bytes < sizeof(head)) {
        return;
    }
    memcpy(&head, message, sizeof(head));
    if (head.core_incarnation != journal->dataplane || head.stream_id != core->stream_id ||
        core->stream_id == 0) {
        return; /* of a stream that is over */
    }
    bool good = kind == MILL_STREAM_PART && head.size_bytes <= message_bytes - sizeof(head) &&
                head.pos_bytes == core->rx_pos_bytes &&
                answer_add(core, message + sizeof(head), head.size_bytes);
    if (!good) {
        mill_journal_core_lost(journal, core);
        return;
    }
    core->rx_pos_bytes += head.size_bytes;
    answer_look(journal, core);
}

bool mill_journal_parts_take(struct mill_journal *journal, struct mill_journal_core *core)
{
    for (uint32_t taken = 0; taken < PARTS_PER_STEP; taken++) {
        uint32_t kind = 0;
        uint32_t size_bytes = 0;
        const void *message = mill_ring_next(&core->in, &kind, &size_bytes);
        if (!message) {
            return false;
        }
        part_take(journal, core, kind, message, size_bytes);
        mill_ring_release(&core->in);
    }
    return true;
}
