/* SPDX-License-Identifier: Apache-2.0 */
/* Produce and fetch answers of one topic and partition, taken piece by piece; see answer.h. */
#include "bench/answer.h"

#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "protocol/batch.h"

enum {
    BATCH_START_BYTES = 61,
    PRODUCE_BYTES_LEAST = 4 + 4 + 2 + 4 + 4 + 2 + 8, /* without name; up to the base offset */
    ABORTED_BYTES = 16,
    ABORTED_MAX = 1 << 16,
};

static void want(struct bench_answer *answer, enum bench_answer_stage stage, uint32_t bytes)
{
    answer->stage = stage;
    answer->want_bytes = bytes;
    answer->have_bytes = 0;
}

void bench_answer_init(struct bench_answer *answer, bool fetch, uint32_t topic_bytes)
{
    memset(answer, 0, sizeof(*answer));
    answer->fetch = fetch;
    answer->topic_bytes = topic_bytes;
    want(answer, BENCH_ANSWER_SIZE, 4);
}

/* One topic with our name's length, one partition. ret: at the partition's index, NULL else. */
static const uint8_t *partition_at(struct bench_answer *answer, const uint8_t *at)
{
    if (mill_load_be32(at) != 1 || mill_load_be16(at + 4) != answer->topic_bytes) {
        return NULL;
    }
    at += 6 + answer->topic_bytes;
    if (mill_load_be32(at) != 1) {
        return NULL;
    }
    at += 4;
    answer->found.partition = (int32_t)mill_load_be32(at);
    answer->found.error = (int16_t)mill_load_be16(at + 4);
    return at;
}

/* The size is known. */
static int on_size(struct bench_answer *answer)
{
    uint32_t size = mill_load_be32(answer->head);
    uint32_t least = PRODUCE_BYTES_LEAST + answer->topic_bytes;
    answer->found = (struct bench_answered){.next_offset = -1};
    answer->left_bytes = size;
    if (answer->fetch) {
        /* Throttle time, watermark, last stable offset and aborted count replace the base offset.
         */
        least += 4 + 8 + 4;
        want(answer, BENCH_ANSWER_FETCH, least);
    } else {
        want(answer, BENCH_ANSWER_PRODUCE, size);
    }
    bool fits = answer->fetch || size <= BENCH_ANSWER_HEAD_BYTES_MAX;
    return size >= least && size <= INT32_MAX && fits ? 0 : -EBADMSG;
}

static int on_produce(struct bench_answer *answer)
{
    answer->found.correlation_id = mill_load_be32(answer->head);
    const uint8_t *at = partition_at(answer, answer->head + 4);
    if (!at) {
        return -EBADMSG;
    }
    answer->found.base_offset = (int64_t)mill_load_be64(at + 6);
    want(answer, BENCH_ANSWER_SIZE, 4);
    return 1;
}

static int on_fetch(struct bench_answer *answer)
{
    answer->found.correlation_id = mill_load_be32(answer->head);
    const uint8_t *at = partition_at(answer, answer->head + 8);
    if (!at) {
        return -EBADMSG;
    }
    answer->found.high_watermark = (int64_t)mill_load_be64(at + 6);
    int32_t aborted = (int32_t)mill_load_be32(at + 22);
    if (aborted > ABORTED_MAX) {
        return -EBADMSG;
    }
    answer->skip_bytes = aborted > 0 ? (uint32_t)aborted * ABORTED_BYTES : 0;
    answer->stage = BENCH_ANSWER_ABORTED;
    return answer->skip_bytes <= answer->left_bytes ? 0 : -EBADMSG;
}

/* What comes after a batch, or at the start of the records. */
static void next_batch(struct bench_answer *answer)
{
    if (answer->records_left >= BATCH_START_BYTES) {
        want(answer, BENCH_ANSWER_BATCH, BATCH_START_BYTES);
        return;
    }
    answer->stage = BENCH_ANSWER_TAIL;
    answer->skip_bytes = answer->left_bytes;
}

static int on_records(struct bench_answer *answer)
{
    int32_t size = (int32_t)mill_load_be32(answer->head);
    answer->records_left = size > 0 ? (uint32_t)size : 0;
    if (answer->records_left > answer->left_bytes) {
        return -EBADMSG;
    }
    next_batch(answer);
    return 0;
}

static int on_batch(struct bench_answer *answer)
{
    struct mill_batch batch;
    mill_batch_read(answer->head, &batch);
    answer->records_left -= BATCH_START_BYTES;
    if (batch.batch_length < BATCH_START_BYTES - MILL_BATCH_PREFIX_BYTES ||
        batch.last_offset_delta < 0) {
        return -EBADMSG;
    }
    uint64_t rest = (uint64_t)mill_batch_size_bytes(&batch) - BATCH_START_BYTES;
    if (rest > answer->records_left) {
        /* Cut by the limit of the request; nothing follows it. */
        answer->stage = BENCH_ANSWER_TAIL;
        answer->skip_bytes = answer->left_bytes;
        return 0;
    }
    answer->found.next_offset = mill_batch_last_offset(&batch) + 1;
    answer->found.records += (uint64_t)MILL_MAX(batch.records_count, 0);
    answer->found.records_bytes += (uint32_t)rest + BATCH_START_BYTES;
    answer->records_left -= (uint32_t)rest;
    answer->stage = BENCH_ANSWER_SKIP;
    answer->skip_bytes = (uint32_t)rest;
    return 0;
}

/* A stage that gathers has all it wanted. */
static int on_head(struct bench_answer *answer)
{
    switch (answer->stage) {
    case BENCH_ANSWER_SIZE:
        return on_size(answer);
    case BENCH_ANSWER_PRODUCE:
        return on_produce(answer);
    case BENCH_ANSWER_FETCH:
        return on_fetch(answer);
    case BENCH_ANSWER_RECORDS:
        return on_records(answer);
    case BENCH_ANSWER_BATCH:
        return on_batch(answer);
    case BENCH_ANSWER_ABORTED:
    case BENCH_ANSWER_SKIP:
    case BENCH_ANSWER_TAIL:
        break;
    }
    return -EBADMSG;
}

/* A stage that skips is at its end. */
static int on_skipped(struct bench_answer *answer)
{
    if (answer->stage == BENCH_ANSWER_ABORTED) {
        want(answer, BENCH_ANSWER_RECORDS, 4);
        return answer->left_bytes >= 4 ? 0 : -EBADMSG;
    }
    if (answer->stage == BENCH_ANSWER_SKIP) {
        next_batch(answer);
        return 0;
    }
    want(answer, BENCH_ANSWER_SIZE, 4);
    return 1;
}

static bool skips(const struct bench_answer *answer)
{
    return answer->stage == BENCH_ANSWER_ABORTED || answer->stage == BENCH_ANSWER_SKIP ||
           answer->stage == BENCH_ANSWER_TAIL;
}

/* Takes what the present stage needs. */
static uint32_t feed(struct bench_answer *answer, const uint8_t *bytes, uint32_t size_bytes)
{
    uint32_t used;
    if (skips(answer)) {
        used = MILL_MIN(answer->skip_bytes, size_bytes);
        answer->skip_bytes -= used;
    } else {
        used = MILL_MIN(answer->want_bytes - answer->have_bytes, size_bytes);
        memcpy(answer->head + answer->have_bytes, bytes, used);
        answer->have_bytes += used;
    }
    if (answer->stage != BENCH_ANSWER_SIZE) {
        answer->left_bytes -= used;
    }
    return used;
}

int bench_answer_take(struct bench_answer *answer, const uint8_t *bytes, uint32_t size_bytes,
                      uint32_t *ret_used)
{
    int r = 0;
    *ret_used = 0;
    while (r == 0) {
        bool done =
            skips(answer) ? answer->skip_bytes == 0 : answer->have_bytes == answer->want_bytes;
        if (done) {
            r = skips(answer) ? on_skipped(answer) : on_head(answer);
            continue;
        }
        if (*ret_used == size_bytes) {
            return 0;
        }
        *ret_used += feed(answer, bytes + *ret_used, size_bytes - *ret_used);
    }
    return r;
}
