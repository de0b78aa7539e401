/* SPDX-License-Identifier: Apache-2.0 */
/* What a leader checks of a client's batch: the header, and the records when they are plain or were
 * made so. Pure; a store checks records on its own thread. Answers follow Kafka 4.4; where they
 * differ, docs/differences.md says so. ref: KIP-98 (batch v2), KIP-467 (record errors) */
#include "dataplane/log/log_types.h"

enum {
    RECORD_ERROR_NONE = -1,
    BATCH_LENGTH_MIN = MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES,
    PRODUCE_ZSTD_VERSION = 7, /* KIP-110 */
};

#define NO_TIMESTAMP (-1)

static void refuse(struct log_check *check, enum mill_kerr error, const char *message)
{
    check->error = error;
    check->message = message;
}

/* True when a create time lies outside the topic's window around the clock. */
static bool time_refused(const struct mill_log_settings *settings, int64_t timestamp,
                         int64_t wall_ms)
{
    int64_t ahead;
    if (settings->append_time || timestamp == NO_TIMESTAMP) {
        return false;
    }
    if (__builtin_sub_overflow(timestamp, wall_ms, &ahead)) {
        ahead = timestamp < 0 ? INT64_MIN + 1 : INT64_MAX;
    }
    return ahead > settings->timestamp_after_max_ms || -ahead > settings->timestamp_before_max_ms;
}

static bool check_shape(const struct mill_append *append, const uint8_t *header,
                        uint32_t header_bytes, struct log_check *check)
{
    if (header_bytes > MILL_BATCH_MAGIC_AT && (int8_t)header[MILL_BATCH_MAGIC_AT] != 2) {
        /* Old formats are refused; an unknown newer one cannot even be told from damage. */
        bool old = (int8_t)header[MILL_BATCH_MAGIC_AT] >= 0 && header[MILL_BATCH_MAGIC_AT] < 2;
        refuse(check, old ? MILL_KERR_INVALID_RECORD : MILL_KERR_CORRUPT_MESSAGE,
               "the record batch has a magic other than 2");
        return false;
    }
    if (header_bytes < MILL_BATCH_HEADER_BYTES) {
        refuse(check, MILL_KERR_INVALID_RECORD, "there is no complete record batch");
        return false;
    }
    int32_t length = (int32_t)mill_load_be32(header + MILL_BATCH_LENGTH_AT);
    if (length < BATCH_LENGTH_MIN) {
        refuse(check, MILL_KERR_CORRUPT_MESSAGE, "the record batch is smaller than its header");
        return false;
    }
    uint64_t size = (uint64_t)(uint32_t)length + MILL_BATCH_PREFIX_BYTES;
    if (size != append->size_bytes) {
        refuse(check, MILL_KERR_INVALID_RECORD,
               size > append->size_bytes ? "the record batch is cut short"
                                         : "there must be exactly one record batch");
        return false;
    }
    return true;
}

static bool check_attributes(const struct mill_append *append, const struct mill_batch *batch,
                             struct log_check *check)
{
    uint32_t codec = (uint32_t)batch->attributes & MILL_BATCH_CODEC_MASK;
    if (codec >= MILL_CODEC_COUNT) {
        refuse(check, MILL_KERR_INVALID_RECORD, "unknown compression codec");
    } else if (codec == MILL_CODEC_ZSTD && append->api_version < PRODUCE_ZSTD_VERSION) {
        refuse(check, MILL_KERR_UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7");
    } else if (batch->attributes & MILL_BATCH_CONTROL) {
        refuse(check, MILL_KERR_INVALID_RECORD, "clients may not write control batches");
    } else if ((batch->attributes & MILL_BATCH_DELETE_HORIZON) && !append->internal_client) {
        refuse(check, MILL_KERR_INVALID_RECORD, "clients may not set a delete horizon");
    } else if ((batch->attributes & MILL_BATCH_TRANSACTIONAL) && !append->internal_client &&
               !append->transactional_id) {
        refuse(check, MILL_KERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
               "a transactional batch without a transactional id");
    }
    return check->error == MILL_KERR_NONE;
}

static bool check_counts(const struct mill_append *append, const struct mill_batch *batch,
                         struct log_check *check)
{
    if (batch->base_offset != 0 && !append->internal_client) {
        refuse(check, MILL_KERR_INVALID_RECORD, "the base offset must be 0");
    } else if (batch->records_count <= 0 || batch->last_offset_delta != batch->records_count - 1) {
        refuse(check, MILL_KERR_INVALID_RECORD, "record count and last offset delta disagree");
    } else if (batch->producer_id >= 0 && batch->base_sequence < 0 && !append->internal_client) {
        refuse(check, MILL_KERR_INVALID_RECORD, "an idempotent batch without a sequence");
    } else if (batch->producer_id < 0 && (batch->attributes & MILL_BATCH_TRANSACTIONAL)) {
        refuse(check, MILL_KERR_INVALID_RECORD, "a transactional batch without a producer id");
    } else if (batch->producer_id >= 0 && batch->producer_epoch < 0) {
        refuse(check, MILL_KERR_INVALID_RECORD, "an idempotent batch without a producer epoch");
    }
    return check->error == MILL_KERR_NONE;
}

void mill_log_check_header(const struct mill_partition *partition, const struct mill_append *append,
                           const uint8_t *header, uint32_t header_bytes, struct mill_now now,
                           struct mill_batch *ret_batch, struct log_check *ret_check)
{
    *ret_check = (struct log_check){.bad_record = RECORD_ERROR_NONE, .message = ""};
    if (!check_shape(append, header, header_bytes, ret_check)) {
        return;
    }
    mill_batch_read(header, ret_batch);
    if (append->size_bytes > (uint32_t)MILL_MAX(partition->settings.max_message_bytes, 0)) {
        refuse(ret_check, MILL_KERR_MESSAGE_TOO_LARGE,
               "the record batch exceeds max.message.bytes");
        return;
    }
    if (!check_attributes(append, ret_batch, ret_check) ||
        !check_counts(append, ret_batch, ret_check)) {
        return;
    }
    ret_check->max_timestamp = ret_batch->max_timestamp;
    /* An uncompressed batch is judged record by record, for what its header says may be wrong. */
    if (mill_batch_codec(ret_batch) != MILL_CODEC_NONE &&
        (time_refused(&partition->settings, ret_batch->max_timestamp, now.wall_ms) ||
         time_refused(&partition->settings, ret_batch->base_timestamp, now.wall_ms))) {
        refuse(ret_check, MILL_KERR_INVALID_TIMESTAMP, "a timestamp is out of the topic's range");
    }
}

void mill_log_check_records(const struct mill_log_settings *settings,
                            const struct mill_batch *batch, const uint8_t *records,
                            uint32_t size_bytes, int64_t wall_ms, struct log_check *ret_check)
{
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, records, size_bytes);
    int64_t max = NO_TIMESTAMP;
    for (int32_t i = 0; i < batch->records_count; i++) {
        struct mill_record record;
        int64_t timestamp;
        ret_check->bad_record = i;
        if (mill_record_next(&at, &record) < 0) {
            refuse(ret_check, MILL_KERR_INVALID_RECORD, "a record is malformed");
            return;
        }
        if (record.offset_delta != i) {
            refuse(ret_check, MILL_KERR_INVALID_RECORD, "offset deltas must be 0, 1, 2, ...");
            return;
        }
        if (settings->compact && record.key_length < 0) {
            refuse(ret_check, MILL_KERR_INVALID_RECORD,
                   "a compacted topic needs a key in each record");
            return;
        }
        if (__builtin_add_overflow(batch->base_timestamp, record.timestamp_delta, &timestamp) ||
            time_refused(settings, timestamp, wall_ms)) {
            refuse(ret_check, MILL_KERR_INVALID_TIMESTAMP,
                   "a timestamp is out of the topic's range");
            return;
        }
        max = MILL_MAX(max, timestamp);
    }
    if (at.left_bytes != 0) {
        refuse(ret_check, MILL_KERR_INVALID_RECORD, "there are bytes after the last record");
        return;
    }
    ret_check->bad_record = RECORD_ERROR_NONE;
    ret_check->max_timestamp = max;
}
