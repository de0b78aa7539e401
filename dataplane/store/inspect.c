/* SPDX-License-Identifier: Apache-2.0 */
/* The look inside a batch that a core asks for before it appends one: keys of a compacted topic,
 * and the topic's codec in place of the producer's. Who looks, checks everything: offset deltas,
 * counts, times. The store's thread only; the batch lies in an extent that nobody else touches
 * meanwhile. ref: KIP-98; Kafka's LogValidator for what is checked */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

/* The batch's records, plain. own: memory to free, NULL when they lie in the batch itself. */
struct plain {
    const uint8_t *bytes;
    uint32_t size_bytes;
    uint8_t *own;
};

static void refuse(struct mill_link_inspected *answer, enum mill_kerr error, const char *message)
{
    answer->error = (int32_t)error;
    answer->message = message;
}

static uint64_t plain_limit(const struct mill_log_settings *settings)
{
#ifdef MILL_MUTANT_STORE_UNPACK_UNBOUNDED
    return MILL_STORE_PLAIN_MAX_BYTES;
#endif
    uint64_t limit =
        (uint64_t)MILL_MAX(settings->max_message_bytes, 0) * MILL_STORE_PLAIN_PER_MESSAGE;
    return MILL_MIN(limit, (uint64_t)MILL_STORE_PLAIN_MAX_BYTES);
}

/* ret: true when the records are there; else the answer says why not. */
static bool unpack(const struct mill_link_inspect *ask, const struct mill_batch *batch,
                   const uint8_t *bytes, struct plain *ret_plain,
                   struct mill_link_inspected *answer)
{
    uint32_t size = mill_batch_size_bytes(batch) - MILL_BATCH_HEADER_BYTES;
    *ret_plain = (struct plain){.bytes = bytes + MILL_BATCH_HEADER_BYTES, .size_bytes = size};
    if (mill_batch_codec(batch) == MILL_CODEC_NONE) {
        return true;
    }
    int64_t made = mill_unpack(mill_batch_codec(batch), ret_plain->bytes, size,
                               plain_limit(&ask->settings), &ret_plain->own);
    if (made == -ENOMEM) {
        answer->status = -ENOMEM;
    } else if (made == -EMSGSIZE) {
        refuse(answer, MILL_KERR_MESSAGE_TOO_LARGE,
               "the records are too large when they are decompressed");
    } else if (made < 0) {
        refuse(answer, MILL_KERR_INVALID_RECORD, "the compressed records cannot be read");
    }
    ret_plain->bytes = ret_plain->own;
    ret_plain->size_bytes = made < 0 ? 0 : (uint32_t)made;
    return made >= 0;
}

/* Sets the header's fields to what lies behind it now, and the sum. */
static void header_write(uint8_t *bytes, const struct mill_batch *batch,
                         const struct mill_log_settings *settings, enum mill_codec codec,
                         uint32_t size_bytes, int64_t max_timestamp)
{
    uint16_t attributes = (uint16_t)(batch->attributes & ~MILL_BATCH_CODEC_MASK) | (uint16_t)codec;
    mill_store_be32(bytes + MILL_BATCH_LENGTH_AT, size_bytes - MILL_BATCH_PREFIX_BYTES);
    mill_store_be16(bytes + MILL_BATCH_ATTRIBUTES_AT, attributes);
    if (!settings->append_time) {
        mill_store_be16(bytes + MILL_BATCH_ATTRIBUTES_AT,
                        attributes & (uint16_t)~MILL_BATCH_APPEND_TIME);
        mill_store_be64(bytes + MILL_BATCH_MAX_TIMESTAMP_AT, (uint64_t)max_timestamp);
    }
#ifndef MILL_MUTANT_STORE_REPACK_UNSUMMED
    mill_store_be32(bytes + MILL_BATCH_CRC_AT,
                    mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size_bytes - MILL_BATCH_SUMMED_AT));
#endif
}

/* Writes the batch with its records in another codec, when it fits. */
static void repack(const struct mill_link_inspect *ask, const struct mill_batch *batch,
                   const struct plain *plain, uint8_t *bytes, struct mill_link_inspected *answer)
{
    enum mill_codec codec = (enum mill_codec)ask->settings.compression;
    const uint8_t *from = plain->bytes;
    int64_t made = plain->size_bytes;
    uint8_t *packed = NULL;
    if (codec != MILL_CODEC_NONE) {
        size_t capacity = mill_compress_bound(codec, plain->size_bytes);
        packed = malloc(capacity);
        made = packed ? mill_compress(codec, plain->bytes, plain->size_bytes, packed, capacity)
                      : -ENOMEM;
        from = packed;
    }
    uint64_t size = MILL_BATCH_HEADER_BYTES + (uint64_t)MILL_MAX(made, (int64_t)0);
    if (made < 0) {
        answer->status = -ENOMEM;
    } else if (size > (uint64_t)MILL_MAX(ask->settings.max_message_bytes, 0)) {
        refuse(answer, MILL_KERR_MESSAGE_TOO_LARGE,
               "the record batch exceeds max.message.bytes in the topic's codec");
    } else if (size > ask->room_bytes) {
        answer->status = -EMSGSIZE;
        answer->size_bytes = (uint32_t)size;
    } else {
        memcpy(bytes + MILL_BATCH_HEADER_BYTES, from, (size_t)made);
        header_write(bytes, batch, &ask->settings, codec, (uint32_t)size, answer->max_timestamp);
        answer->recompressed = true;
        answer->size_bytes = (uint32_t)size;
    }
    free(packed);
}

void mill_store_inspect(const struct mill_store *store, const struct mill_link_inspect *ask,
                        struct mill_link_inspected *ret_answer)
{
    struct mill_ref ref = {.extent = ask->extent, .size_bytes = ask->room_bytes};
    uint8_t *bytes = mill_ref_data(mill_arena_base(store->config.arena), &ref);
    struct mill_batch batch;
    struct plain plain;
    mill_batch_read(bytes, &batch);
    *ret_answer = (struct mill_link_inspected){
        .request = ask->request,
        .size_bytes = mill_batch_size_bytes(&batch),
        .bad_record = -1,
        .message = "",
    };
    if (!unpack(ask, &batch, bytes, &plain, ret_answer)) {
        return;
    }
    struct log_check check = {.bad_record = -1, .message = ""};
    mill_log_check_records(&ask->settings, &batch, plain.bytes, plain.size_bytes, ask->wall_ms,
                           &check);
    ret_answer->bad_record = check.bad_record;
    ret_answer->max_timestamp = check.max_timestamp;
    if (check.error != MILL_KERR_NONE) {
        refuse(ret_answer, check.error, check.message);
    } else if (ask->settings.compression != MILL_LOG_CODEC_ANY &&
               ask->settings.compression != mill_batch_codec(&batch)) {
        repack(ask, &batch, &plain, bytes, ret_answer);
    }
    free(plain.own);
}
