/* SPDX-License-Identifier: Apache-2.0 */
/* Batches and request heads made before a load; see batch.h. */
#include "bench/batch.h"

#include <string.h>

#include "base/byteorder.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "protocol/messages.h"

static const char client_id[] = "millrace-bench";

/* --- records ---------------------------------------------------------------------------------- */

static uint32_t varint_bytes(uint32_t value)
{
    uint32_t size = 1;
    for (uint32_t left = value << 1; left > 127; left >>= 7) {
        size++;
    }
    return size;
}

/* Of a number that is not negative. ret: behind it. */
static uint8_t *varint_put(uint8_t *to, uint32_t value)
{
    uint32_t left = value << 1;
    for (; left > 127; left >>= 7) {
        *to++ = (uint8_t)(left | 128);
    }
    *to++ = (uint8_t)left;
    return to;
}

/* Attributes, timestamp delta 0, offset delta, no key, value, no headers (KIP-98). */
static uint32_t record_body_bytes(uint32_t index, uint32_t value_bytes)
{
    return 1 + 1 + varint_bytes(index) + 1 + varint_bytes(value_bytes) + value_bytes + 1;
}

static uint8_t *record_put(uint8_t *to, uint32_t index, uint32_t value_bytes,
                           struct mill_random *random)
{
    to = varint_put(to, record_body_bytes(index, value_bytes));
    *to++ = 0;
    *to++ = 0;
    to = varint_put(to, index);
    *to++ = 1; /* -1: no key */
    to = varint_put(to, value_bytes);
    for (uint32_t at = 0; at < value_bytes; at += 8) {
        uint64_t word = mill_random_next(random);
        memcpy(to + at, &word, MILL_MIN(value_bytes - at, (uint32_t)sizeof(word)));
    }
    to += value_bytes;
    *to++ = 0;
    return to;
}

uint64_t bench_batch_bytes(uint32_t records, uint32_t value_bytes)
{
    uint64_t size = MILL_BATCH_HEADER_BYTES;
    for (uint32_t i = 0; i < records; i++) {
        uint32_t body = record_body_bytes(i, value_bytes);
        size += varint_bytes(body) + body;
    }
    return size;
}

uint32_t bench_batch_records(uint32_t size_bytes, uint32_t value_bytes)
{
    uint64_t size = MILL_BATCH_HEADER_BYTES;
    uint32_t records = 0;
    for (;; records++) {
        uint32_t body = record_body_bytes(records, value_bytes);
        size += varint_bytes(body) + body;
        if (size > size_bytes) {
            return records;
        }
    }
}

/* --- batches ---------------------------------------------------------------------------------- */

static void sum(uint8_t *bytes, uint32_t size_bytes)
{
    mill_store_be32(bytes + MILL_BATCH_CRC_AT,
                    mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size_bytes - MILL_BATCH_SUMMED_AT));
}

uint32_t bench_batch_encode(uint8_t *bytes, uint32_t records, uint32_t value_bytes, int64_t wall_ms,
                            uint64_t seed)
{
    struct mill_random random = {.state = seed};
    uint8_t *to = bytes + MILL_BATCH_HEADER_BYTES;
    for (uint32_t i = 0; i < records; i++) {
        to = record_put(to, i, value_bytes, &random);
    }
    uint32_t size_bytes = (uint32_t)(to - bytes);
    struct mill_batch_wire header = {
        .base_offset = be64_make(0),
        .batch_length = be32_make(size_bytes - MILL_BATCH_PREFIX_BYTES),
        .partition_leader_epoch = be32_make(UINT32_MAX), /* unknown */
        .magic = 2,
        .attributes = be16_make(MILL_CODEC_NONE),
        .last_offset_delta = be32_make(records - 1),
        .base_timestamp = be64_make((uint64_t)wall_ms),
        .max_timestamp = be64_make((uint64_t)wall_ms),
        .producer_id = be64_make(UINT64_MAX), /* none */
        .producer_epoch = be16_make(UINT16_MAX),
        .base_sequence = be32_make(UINT32_MAX),
        .records_count = be32_make(records),
    };
    memcpy(bytes, &header, sizeof(header));
    sum(bytes, size_bytes);
    return size_bytes;
}

void bench_batch_set_producer(uint8_t *bytes, uint32_t size_bytes, int64_t producer_id,
                              int16_t producer_epoch)
{
    mill_store_be64(bytes + BENCH_BATCH_PRODUCER_ID_AT, (uint64_t)producer_id);
    mill_store_be16(bytes + BENCH_BATCH_PRODUCER_EPOCH_AT, (uint16_t)producer_epoch);
    mill_store_be32(bytes + BENCH_BATCH_SEQUENCE_AT, 0);
    sum(bytes, size_bytes);
}

/* The register after size_bytes of zeros: without start value and inversion a CRC is linear. */
static uint32_t shift_zeros(uint32_t crc, uint32_t size_bytes)
{
    static const uint8_t zeros[4096];
    while (size_bytes > 0) {
        uint32_t part = MILL_MIN(size_bytes, (uint32_t)sizeof(zeros));
        crc = mill_crc32c_more(crc, zeros, part);
        size_bytes -= part;
    }
    return crc;
}

void bench_crc_shift_init(struct bench_crc_shift *shift, uint32_t batch_bytes)
{
    uint32_t behind = batch_bytes - BENCH_BATCH_SEQUENCE_AT;
    for (uint32_t byte = 0; byte < 4; byte++) {
        shift->byte[byte][0] = 0;
        for (uint32_t bit = 0; bit < 8; bit++) {
            uint8_t change = (uint8_t)(1u << bit);
            uint32_t crc = shift_zeros(mill_crc32c_more(0, &change, 1), behind - byte - 1);
            for (uint32_t low = 0; low < change; low++) {
                shift->byte[byte][change + low] = shift->byte[byte][low] ^ crc;
            }
        }
    }
}

void bench_batch_set_sequence(uint8_t *bytes, const struct bench_crc_shift *shift, int32_t sequence)
{
    uint8_t wanted[4];
    uint32_t crc = mill_load_be32(bytes + MILL_BATCH_CRC_AT);
    mill_store_be32(wanted, (uint32_t)sequence);
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t *at = bytes + BENCH_BATCH_SEQUENCE_AT + i;
        crc ^= shift->byte[i][*at ^ wanted[i]];
        *at = wanted[i];
    }
#ifndef MILL_MUTANT_BENCH_STALE_CRC
    mill_store_be32(bytes + MILL_BATCH_CRC_AT, crc);
#endif
}

/* --- request heads ---------------------------------------------------------------------------- */

BENCH_ONE(one_produce_topic, struct mill_produce_request_topic_data)
BENCH_ONE(one_produce_partition, struct mill_produce_request_topic_data_partition_data)
BENCH_ONE(one_fetch_topic, struct mill_fetch_request_topics)
BENCH_ONE(one_fetch_partition, struct mill_fetch_request_topics_partitions)

static void begin(struct mill_writer *to, struct bench_head *head, int16_t key, int16_t version,
                  struct mill_writer_hole *hole)
{
    struct mill_request_header header = {
        .api_key = key, .api_version = version, .client_id = mill_wstr_of(client_id)};
    mill_writer_init(to, head->bytes, sizeof(head->bytes), hole, hole ? 1 : 0);
    mill_wire_request_begin(to, &header);
    head->correlation_at = MILL_FRAME_SIZE_BYTES + 4; /* behind key and version */
}

static int end(struct mill_writer *to, struct bench_head *head)
{
    int64_t size = mill_wire_request_finish(to);
    if (size < 0) {
        return (int)size;
    }
    head->size_bytes = to->size_bytes;
    return 0;
}

int bench_head_produce(struct bench_head *ret_head, const char *topic, int16_t acks,
                       uint32_t timeout_ms, uint32_t records_bytes)
{
    struct mill_writer to;
    struct mill_writer_hole hole;
    struct mill_produce_request_topic_data_partition_data partition = {
        .records = {.length = (int32_t)records_bytes}};
    struct mill_produce_request_topic_data data = {
        .name = mill_wstr_of(topic),
        .partition_data = {.count = 1, .get = one_produce_partition, .context = &partition}};
    struct mill_produce_request request = {
        .transactional_id = mill_wstr_of(NULL),
        .acks = acks,
        .timeout_ms = (int32_t)timeout_ms,
        .topic_data = {.count = 1, .get = one_produce_topic, .context = &data}};
    begin(&to, ret_head, 0, BENCH_PRODUCE_VERSION, &hole);
    (void)mill_produce_request_encode(&to, BENCH_PRODUCE_VERSION, &request); /* told by finish */
    int r = end(&to, ret_head);
    /* The head ends with the partition's index and the records' length. */
    ret_head->partition_at = ret_head->size_bytes - 8;
    return r;
}

int bench_head_fetch(struct bench_head *ret_head, const char *topic, uint32_t max_bytes,
                     uint32_t wait_ms)
{
    struct mill_writer to;
    struct mill_fetch_request_topics_partitions partition = {.partition_max_bytes =
                                                                 (int32_t)max_bytes};
    struct mill_fetch_request_topics data = {
        .topic = mill_wstr_of(topic),
        .partitions = {.count = 1, .get = one_fetch_partition, .context = &partition}};
    struct mill_fetch_request request;
    mill_fetch_request_defaults(&request);
    request.max_wait_ms = (int32_t)wait_ms;
    request.min_bytes = 1;
    request.max_bytes = (int32_t)max_bytes;
    request.topics = (struct mill_warray){.count = 1, .get = one_fetch_topic, .context = &data};
    begin(&to, ret_head, 1, BENCH_FETCH_VERSION, NULL);
    (void)mill_fetch_request_encode(&to, BENCH_FETCH_VERSION, &request); /* told by finish */
    int r = end(&to, ret_head);
    /* The head ends with index, fetch offset and the partition's bytes (version 4). */
    ret_head->partition_at = ret_head->size_bytes - 16;
    ret_head->offset_at = ret_head->size_bytes - 12;
    return r;
}
