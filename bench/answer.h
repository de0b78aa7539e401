/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as they come in, piece by piece, without keeping them: a produce answer is gathered
 * whole; of a fetch answer only its head and the header of each batch are looked at. The peer is
 * not trusted: a length that does not fit ends the connection. Pure; owner thread only. */
#ifndef MILL_BENCH_ANSWER_H
#define MILL_BENCH_ANSWER_H

#include "base/chain.h"
#include "base/compiler.h"

enum {
    BENCH_ANSWER_HEAD_BYTES_MAX = 512,
};

enum bench_answer_stage {
    BENCH_ANSWER_SIZE,
    BENCH_ANSWER_PRODUCE, /* the whole answer */
    BENCH_ANSWER_FETCH,   /* up to the count of aborted transactions */
    BENCH_ANSWER_ABORTED,
    BENCH_ANSWER_RECORDS, /* the records' length */
    BENCH_ANSWER_BATCH,   /* the start of a batch */
    BENCH_ANSWER_SKIP,    /* the rest of a batch */
    BENCH_ANSWER_TAIL,    /* what follows the records, a batch cut by the broker included */
};

/* What a whole answer said. */
struct bench_answered {
    uint32_t correlation_id;
    int32_t partition;
    int16_t error;
    int64_t base_offset;    /* produce */
    int64_t high_watermark; /* fetch */
    int64_t next_offset;    /* fetch: behind the last whole batch; -1: there was none */
    uint64_t records;       /* fetch: in whole batches */
    uint32_t records_bytes; /* fetch: of whole batches */
};

struct bench_answer {
    bool fetch;
    enum bench_answer_stage stage;
    uint32_t topic_bytes;
    uint32_t left_bytes;   /* of the answer, from the next byte on */
    uint32_t records_left; /* bytes of records to come */
    uint32_t skip_bytes;
    uint32_t want_bytes; /* of head, for this stage */
    uint32_t have_bytes;
    struct bench_answered found;
    uint8_t head[BENCH_ANSWER_HEAD_BYTES_MAX];
};

/* topic_bytes: length of the name in each answer. */
void bench_answer_init(struct bench_answer *answer, bool fetch, uint32_t topic_bytes);

/* Takes one run of received bytes. *ret_used of them were taken; ret: 1 an answer is whole (in
 * answer->found until the next call), 0 all were taken and more are needed, -EBADMSG. */
int bench_answer_take(struct bench_answer *answer, const uint8_t *bytes, uint32_t size_bytes,
                      uint32_t *ret_used) MILL_WARN_UNUSED;

#endif
