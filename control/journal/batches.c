/* SPDX-License-Identifier: Apache-2.0 */
/* The open batches of partitions: a record becomes bytes when it is appended, the header when the
 * batch is sent. Control's thread; memory only. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "control/journal/journal_types.h"

enum {
    BATCH_BYTES_FIRST = 4 << 10,
    RECORD_EXTRA_BYTES = 40, /* varints of one record at most */
};

static uint32_t put_varint(uint8_t *to, int64_t value)
{
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint32_t size = 0;
    while (zigzag >= 0x80) {
        to[size++] = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    to[size++] = (uint8_t)zigzag;
    return size;
}

static uint32_t varint_bytes(int64_t value)
{
    uint8_t room[10];
    return put_varint(room, value);
}

uint64_t mill_journal_records_bytes_max(const struct mill_journal_record *records, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += RECORD_EXTRA_BYTES + records[i].key_bytes +
               (uint64_t)MILL_MAX(records[i].value_bytes, 0);
    }
    return sum;
}

void mill_journal_batch_put(struct mill_journal_batch *batch,
                            const struct mill_journal_record *record, int64_t now_ms)
{
    uint8_t *to = batch->bytes + batch->size_bytes;
    int64_t time_delta = now_ms - batch->base_ms;
    int64_t offset_delta = batch->records_count;
    uint32_t value_bytes = (uint32_t)MILL_MAX(record->value_bytes, 0);
    uint32_t length = 1 + varint_bytes(time_delta) + varint_bytes(offset_delta) +
                      varint_bytes(record->key_bytes) + record->key_bytes +
                      varint_bytes(record->value_bytes) + value_bytes + 1;
    to += put_varint(to, length);
    *to++ = 0; /* attributes */
    to += put_varint(to, time_delta);
    to += put_varint(to, offset_delta);
    to += put_varint(to, record->key_bytes);
    memcpy(to, record->key, record->key_bytes);
    to += record->key_bytes;
    to += put_varint(to, record->value_bytes);
    if (value_bytes > 0) {
        memcpy(to, record->value, value_bytes);
        to += value_bytes;
    }
    *to++ = 0; /* headers */
    batch->size_bytes = (uint32_t)(to - batch->bytes);
    batch->records_count++;
}

/* Room for more bytes at the batch's end. ret: false no memory. */
static bool batch_grow(struct mill_journal_batch *batch, uint64_t more_bytes)
{
    uint64_t need = batch->size_bytes + more_bytes;
    if (need <= batch->capacity_bytes) {
        return true;
    }
    uint64_t capacity = MILL_MAX(need, 2 * (uint64_t)batch->capacity_bytes);
    uint8_t *bytes = realloc(batch->bytes, capacity);
    if (!bytes) {
        return false;
    }
    batch->bytes = bytes;
    batch->capacity_bytes = (uint32_t)capacity;
    return true;
}

static bool same_producer(const struct mill_journal_batch *batch,
                          const struct mill_journal_producer *producer)
{
    return batch->producer.id == producer->id && batch->producer.epoch == producer->epoch;
}

static struct mill_journal_batch *last_of(const struct mill_journal_partition *partition)
{
    return partition->first
               ? (struct mill_journal_batch *)(void *)((uint8_t *)partition->last -
                                                       offsetof(struct mill_journal_batch, next))
               : NULL;
}

struct mill_journal_batch *mill_journal_batch_for(struct mill_journal_partition *partition,
                                                  const struct mill_journal_producer *producer,
                                                  uint64_t more_bytes)
{
    struct mill_journal_batch *last = last_of(partition);
    if (last && !last->closed && same_producer(last, producer) &&
        last->size_bytes + more_bytes <= partition->batch_bytes_max) {
        return batch_grow(last, more_bytes) ? last : NULL;
    }
    struct mill_journal_batch *batch = calloc(1, sizeof(*batch));
    if (!batch) {
        return NULL;
    }
    batch->size_bytes = MILL_BATCH_HEADER_BYTES;
    batch->last = &batch->first;
    batch->producer = *producer;
    if (!batch_grow(batch, MILL_MAX(more_bytes, (uint64_t)BATCH_BYTES_FIRST))) {
        free(batch);
        return NULL;
    }
    *partition->last = batch;
    partition->last = &batch->next;
    return batch;
}

void mill_journal_batch_seal(struct mill_journal_batch *batch)
{
    struct mill_batch_wire *wire = (struct mill_batch_wire *)(void *)batch->bytes;
    wire->base_offset = be64_make(0);
    wire->batch_length = be32_make(batch->size_bytes - MILL_BATCH_PREFIX_BYTES);
    wire->partition_leader_epoch = be32_make(UINT32_MAX);
    wire->magic = 2;
    wire->attributes = be16_make(batch->producer.id >= 0 ? MILL_BATCH_TRANSACTIONAL : 0);
    wire->last_offset_delta = be32_make(batch->records_count - 1);
    wire->base_timestamp = be64_make((uint64_t)batch->base_ms);
    wire->max_timestamp = be64_make((uint64_t)batch->max_ms);
    wire->producer_id = be64_make((uint64_t)batch->producer.id);
    wire->producer_epoch = be16_make((uint16_t)batch->producer.epoch);
    wire->base_sequence = be32_make(UINT32_MAX);
    wire->records_count = be32_make(batch->records_count);
    batch->closed = true;
    wire->crc = be32_make(
        mill_crc32c(batch->bytes + MILL_BATCH_SUMMED_AT, batch->size_bytes - MILL_BATCH_SUMMED_AT));
}
