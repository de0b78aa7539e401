/* SPDX-License-Identifier: Apache-2.0 */
/* Record batch v2, the unit on the wire and in the files (KIP-98, magic 2). Byte positions and the
 * walk over records. Pure; any thread. */
#ifndef MILL_PROTOCOL_BATCH_H
#define MILL_PROTOCOL_BATCH_H

#include "base/byteorder.h"
#include "base/chain.h"

enum {
    MILL_BATCH_HEADER_BYTES = 61,
    MILL_BATCH_LENGTH_AT = 8,
    MILL_BATCH_PREFIX_BYTES = 12, /* base offset and length: not counted by batch_length */
    MILL_BATCH_EPOCH_AT = 12,
    MILL_BATCH_MAGIC_AT = 16,
    MILL_BATCH_CRC_AT = 17,
    MILL_BATCH_SUMMED_AT = 21, /* the CRC covers from here to the end */
    MILL_BATCH_ATTRIBUTES_AT = 21,
    MILL_BATCH_MAX_TIMESTAMP_AT = 35,

    MILL_BATCH_CODEC_MASK = 7,
    MILL_BATCH_APPEND_TIME = 1 << 3,
    MILL_BATCH_TRANSACTIONAL = 1 << 4,
    MILL_BATCH_CONTROL = 1 << 5,
    MILL_BATCH_DELETE_HORIZON = 1 << 6,
};

enum mill_codec {
    MILL_CODEC_NONE,
    MILL_CODEC_GZIP,
    MILL_CODEC_SNAPPY,
    MILL_CODEC_LZ4,
    MILL_CODEC_ZSTD,
    MILL_CODEC_COUNT,
};

/* As on the wire. */
struct mill_batch_wire {
    be64 base_offset;
    be32 batch_length;
    be32 partition_leader_epoch;
    uint8_t magic;
    be32 crc;
    be16 attributes;
    be32 last_offset_delta;
    be64 base_timestamp;
    be64 max_timestamp;
    be64 producer_id;
    be16 producer_epoch;
    be32 base_sequence;
    be32 records_count;
};
static_assert(sizeof(struct mill_batch_wire) == MILL_BATCH_HEADER_BYTES, "packed by bytes");
static_assert(offsetof(struct mill_batch_wire, crc) == MILL_BATCH_CRC_AT, "CRC position");
static_assert(offsetof(struct mill_batch_wire, max_timestamp) == MILL_BATCH_MAX_TIMESTAMP_AT,
              "max timestamp position");

/* The same in host order. */
struct mill_batch {
    int64_t base_offset;
    int32_t batch_length;
    int32_t leader_epoch;
    int8_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t records_count;
};

/* Reads a header of MILL_BATCH_HEADER_BYTES at bytes; checks nothing. */
void mill_batch_read(const void *bytes, struct mill_batch *ret_batch);

/* Whole size: prefix and batch_length. Meaningless for a negative batch_length. */
static inline uint32_t mill_batch_size_bytes(const struct mill_batch *batch)
{
    return MILL_BATCH_PREFIX_BYTES + (uint32_t)batch->batch_length;
}

static inline enum mill_codec mill_batch_codec(const struct mill_batch *batch)
{
    return (enum mill_codec)(batch->attributes & MILL_BATCH_CODEC_MASK);
}

static inline int64_t mill_batch_last_offset(const struct mill_batch *batch)
{
    return batch->base_offset + batch->last_offset_delta;
}

/* Offsets are not in the batch's sum. ret: they are some, and the next one is, too; where it is not
 * true mill_batch_last_offset must not be asked. */
static inline bool mill_batch_has_offsets(const struct mill_batch *batch)
{
    return batch->base_offset >= 0 && batch->last_offset_delta >= 0 &&
           batch->base_offset < INT64_MAX - batch->last_offset_delta;
}

/* Times of clients may be anything: they wrap, as in Java. */
static inline int64_t mill_time_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* One record of an uncompressed batch. Keys and values are positions. */
struct mill_record {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length;   /* -1 null */
    int32_t value_length; /* -1 null */
    int32_t headers_count;
    struct mill_cursor key;
    struct mill_cursor value;
};

/* Takes one record off the cursor, checking each length against what is there.
 * ret: 0, -EBADMSG malformed (cursor then undefined). */
int mill_record_next(struct mill_cursor *at, struct mill_record *ret_record) MILL_WARN_UNUSED;

/* --- markers --------------------------------------------------------------------------------- */

enum mill_marker_type {
    MILL_MARKER_ABORT = 0,
    MILL_MARKER_COMMIT = 1, /* others are Kafka's own (raft); they end no transaction */
};

enum {
    MILL_MARKER_BYTES = 78, /* a whole batch: header and one record */
};

/* The end of a transaction in a partition: the one record of a control batch (KIP-98). */
struct mill_marker {
    int16_t type; /* enum mill_marker_type, or another */
    int32_t coordinator_epoch;
};

/* Reads the marker of a control batch that lies whole at bytes, size_bytes of it.
 * ret: 0, -EBADMSG it is none that ends a transaction, or is malformed. */
int mill_marker_read(const uint8_t *bytes, uint32_t size_bytes,
                     struct mill_marker *ret_marker) MILL_WARN_UNUSED;
/* Writes a whole control batch, summed, of MILL_MARKER_BYTES; the batch's producer, epoch and
 * attributes besides codec, offset and leader epoch are the caller's. ret_batch: as written. */
void mill_marker_write(uint8_t *to, const struct mill_marker *marker, int64_t producer_id,
                       int16_t producer_epoch, int64_t timestamp, bool append_time,
                       struct mill_batch *ret_batch);

#endif
