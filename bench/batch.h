/* SPDX-License-Identifier: Apache-2.0 */
/* Batches and requests, encoded before the load begins: a batch's CRC is summed once. What changes
 * from request to request lies at a known place and is patched: correlation id, partition, offset,
 * and for idempotent producers the base sequence, whose change moves the CRC by a value that
 * depends on the changed bits only (CRC-32C is linear). Pure; owner thread only. */
#ifndef MILL_BENCH_BATCH_H
#define MILL_BENCH_BATCH_H

#include <string.h>

#include "base/compiler.h"
#include "protocol/batch.h"

enum {
    BENCH_HEAD_BYTES_MAX = 512, /* a request without its records */
    BENCH_PRODUCE_VERSION = 7,
    BENCH_FETCH_VERSION = 4,
    BENCH_BATCH_SEQUENCE_AT = 53,
    BENCH_BATCH_PRODUCER_ID_AT = 43,
    BENCH_BATCH_PRODUCER_EPOCH_AT = 51,
};
static_assert(offsetof(struct mill_batch_wire, base_sequence) == BENCH_BATCH_SEQUENCE_AT,
              "base sequence position");
static_assert(offsetof(struct mill_batch_wire, producer_id) == BENCH_BATCH_PRODUCER_ID_AT,
              "producer id position");
static_assert(offsetof(struct mill_batch_wire, producer_epoch) == BENCH_BATCH_PRODUCER_EPOCH_AT,
              "producer epoch position");

/* Makes a mill_warray_get for an array of one element, which is copied from the context. */
#define BENCH_ONE(name, type)                                                                      \
    static void name(const void *context, int32_t index, void *ret_element)                        \
    {                                                                                              \
        MILL_UNUSED(index);                                                                        \
        memcpy(ret_element, context, sizeof(type));                                                \
    }

/* Bytes of a batch of so many records whose values have value_bytes each. */
uint64_t bench_batch_bytes(uint32_t records, uint32_t value_bytes);
/* How many records fit into size_bytes; 0: not even one. */
uint32_t bench_batch_records(uint32_t size_bytes, uint32_t value_bytes);

/* Writes a whole batch: records without key, values random by seed. bytes has room for
 * bench_batch_bytes. ret: its size. */
uint32_t bench_batch_encode(uint8_t *bytes, uint32_t records, uint32_t value_bytes, int64_t wall_ms,
                            uint64_t seed);
/* Makes it a producer's: id and epoch, sequence 0. Sums again. */
void bench_batch_set_producer(uint8_t *bytes, uint32_t size_bytes, int64_t producer_id,
                              int16_t producer_epoch);

/* What each changed bit of the base sequence does to the CRC of a batch of one size. */
struct bench_crc_shift {
    uint32_t byte[4][256];
};
void bench_crc_shift_init(struct bench_crc_shift *shift, uint32_t batch_bytes);
/* Sets the base sequence of a batch of that size and mends its CRC. O(1). */
void bench_batch_set_sequence(uint8_t *bytes, const struct bench_crc_shift *shift,
                              int32_t sequence);

/* A request's bytes before its records, with the places of what changes. */
struct bench_head {
    uint32_t size_bytes;
    uint32_t correlation_at;
    uint32_t partition_at;
    uint32_t offset_at; /* fetch only */
    uint8_t bytes[BENCH_HEAD_BYTES_MAX];
};

/* A produce request for one partition, whose frame size counts records_bytes behind the head.
 * ret: 0, -ENOSPC a topic name too long. */
int bench_head_produce(struct bench_head *ret_head, const char *topic, int16_t acks,
                       uint32_t timeout_ms, uint32_t records_bytes) MILL_WARN_UNUSED;
int bench_head_fetch(struct bench_head *ret_head, const char *topic, uint32_t max_bytes,
                     uint32_t wait_ms) MILL_WARN_UNUSED;

#endif
