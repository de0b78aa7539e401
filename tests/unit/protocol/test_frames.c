/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: requests of real client libraries decode to what the client was asked to send, and encode
 * to the same bytes again.
 * Method: the frames of tests/data/frames (tests/data/record_frames.py made them), each named
 * CLIENT-api_name-vVERSION.bin; every client wrote about topic "frames", partition 0. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "protocol/batch.h"
#include "protocol/messages.h"
#include "tests/unit/protocol/codec_table.h"

enum {
    FRAME_BYTES_MAX = 65536,
    FRAMES_LEAST = 35, /* fewer: the folder is not the one meant */
};

struct frame {
    const char *name;
    struct mill_request_header header;
    struct mill_cursor body;
};

static const struct codec_row *request_row(int16_t key)
{
    for (uint32_t i = 0; i < codec_rows_count; i++) {
        if (codec_rows[i].key == key && !codec_rows[i].response) {
            return &codec_rows[i];
        }
    }
    fail_msg("key %d is not in the table", key);
    return &codec_rows[0];
}

static void assert_text(const struct mill_wstr *text, const char *other)
{
    if (!mill_wstr_equal(text, other, (uint32_t)strlen(other))) {
        char got[256];
        mill_wstr_copy(text, got, sizeof(got));
        fail_msg("\"%s\" instead of \"%s\"", got, other);
    }
}

/* One batch, whole, with a right CRC; its records hold to their lengths. */
static void check_batch(const struct mill_wrecords *records)
{
    struct mill_batch batch;
    assert_true(records->length >= MILL_BATCH_HEADER_BYTES);
    mill_batch_read(records->ptr, &batch);
    assert_int_equal(batch.magic, 2);
    assert_int_equal(mill_batch_size_bytes(&batch), records->length);
    assert_int_equal(mill_crc32c(records->ptr + MILL_BATCH_SUMMED_AT,
                                 (size_t)(records->length - MILL_BATCH_SUMMED_AT)),
                     batch.crc);
    assert_int_equal(batch.last_offset_delta, batch.records_count - 1);
    if (mill_batch_codec(&batch) != MILL_CODEC_NONE) {
        return;
    }
    struct mill_cursor at = records->at;
    assert_int_equal(mill_cursor_skip(&at, MILL_BATCH_HEADER_BYTES), 0);
    for (int32_t i = 0; i < batch.records_count; i++) {
        struct mill_record record;
        uint8_t value[5];
        assert_int_equal(mill_record_next(&at, &record), 0);
        assert_int_equal(record.offset_delta, i);
        assert_int_equal(record.value_length, 5);
        assert_int_equal(mill_cursor_read(&record.value, value, 5), 0);
        assert_memory_equal(value, "value", 5);
    }
    assert_int_equal(at.left_bytes, 0);
}

static void check_produce(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_produce_request message;
    struct mill_produce_request_topic_data topic;
    struct mill_produce_request_topic_data_partition_data partition;
    assert_int_equal(mill_produce_request_decode(&at, version, &message), 0);
    assert_int_equal(message.transactional_id.length, -1);
    assert_true(message.acks == -1 || message.acks == 1);
    assert_true(mill_produce_request_topic_data_next(&message.topic_data, version, &topic));
    assert_text(&topic.name, "frames");
    assert_true(mill_produce_request_topic_data_partition_data_next(&topic.partition_data, version,
                                                                    &partition));
    assert_int_equal(partition.index, 0);
    check_batch(&partition.records);
}

static void check_fetch(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_fetch_request message;
    struct mill_fetch_request_topics topic;
    struct mill_fetch_request_topics_partitions partition;
    assert_int_equal(mill_fetch_request_decode(&at, version, &message), 0);
    assert_int_equal(message.replica_id, -1);
    assert_true(message.max_wait_ms > 0 && message.max_wait_ms <= 60000);
    assert_true(mill_fetch_request_topics_next(&message.topics, version, &topic));
    assert_text(&topic.topic, "frames");
    assert_true(mill_fetch_request_topics_partitions_next(&topic.partitions, version, &partition));
    assert_int_equal(partition.partition, 0);
    assert_int_equal(partition.fetch_offset, 0);
    assert_true(partition.partition_max_bytes >= 1 << 20);
}

static void check_list_offsets(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_list_offsets_request message;
    struct mill_list_offsets_request_topics topic;
    struct mill_list_offsets_request_topics_partitions partition;
    assert_int_equal(mill_list_offsets_request_decode(&at, version, &message), 0);
    assert_int_equal(message.replica_id, -1);
    assert_true(mill_list_offsets_request_topics_next(&message.topics, version, &topic));
    assert_text(&topic.name, "frames");
    assert_true(
        mill_list_offsets_request_topics_partitions_next(&topic.partitions, version, &partition));
    assert_int_equal(partition.partition_index, 0);
    assert_true(partition.timestamp == -1 || partition.timestamp == -2);
}

static void check_metadata(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_metadata_request message;
    struct mill_metadata_request_topics topic;
    assert_int_equal(mill_metadata_request_decode(&at, version, &message), 0);
    while (mill_metadata_request_topics_next(&message.topics, version, &topic)) {
        assert_text(&topic.name, "frames");
    }
}

static void check_create_topics(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_create_topics_request message;
    struct mill_create_topics_request_topics topic;
    assert_int_equal(mill_create_topics_request_decode(&at, version, &message), 0);
    assert_int_equal(message.topics.count, 1);
    assert_true(mill_create_topics_request_topics_next(&message.topics, version, &topic));
    assert_text(&topic.name, "frames");
    assert_int_equal(topic.num_partitions, 1);
    assert_int_equal(topic.replication_factor, 1);
    assert_false(message.validate_only);
}

static void check_delete_topics(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_delete_topics_request message;
    struct mill_delete_topics_request_topics topic;
    struct mill_wstr name;
    assert_int_equal(mill_delete_topics_request_decode(&at, version, &message), 0);
    if (version >= 6) {
        assert_true(mill_delete_topics_request_topics_next(&message.topics, version, &topic));
        name = topic.name;
    } else {
        assert_true(mill_warray_next_str(&message.topic_names, frame->header.flexible, &name));
    }
    assert_text(&name, "frames");
    assert_true(message.timeout_ms > 0);
}

static void check_describe_configs(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_describe_configs_request message;
    struct mill_describe_configs_request_resources resource;
    assert_int_equal(mill_describe_configs_request_decode(&at, version, &message), 0);
    assert_true(
        mill_describe_configs_request_resources_next(&message.resources, version, &resource));
    assert_int_equal(resource.resource_type, 2);
    assert_text(&resource.resource_name, "frames");
}

static void check_init_producer_id(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_init_producer_id_request message;
    assert_int_equal(mill_init_producer_id_request_decode(&at, version, &message), 0);
    assert_int_equal(message.transactional_id.length, -1);
    assert_int_equal(message.producer_id, -1);
    assert_int_equal(message.producer_epoch, -1);
}

static void check_leader_epoch(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_offset_for_leader_epoch_request message;
    struct mill_offset_for_leader_epoch_request_topics topic;
    struct mill_offset_for_leader_epoch_request_topics_partitions partition;
    assert_int_equal(mill_offset_for_leader_epoch_request_decode(&at, version, &message), 0);
    assert_true(mill_offset_for_leader_epoch_request_topics_next(&message.topics, version, &topic));
    assert_text(&topic.topic, "frames");
    assert_true(mill_offset_for_leader_epoch_request_topics_partitions_next(&topic.partitions,
                                                                            version, &partition));
    assert_int_equal(partition.partition, 0);
    assert_int_equal(partition.leader_epoch, 0);
}

static void check_api_versions(const struct frame *frame, int16_t version)
{
    struct mill_cursor at = frame->body;
    struct mill_api_versions_request message;
    assert_int_equal(mill_api_versions_request_decode(&at, version, &message), 0);
    assert_int_equal(message.client_software_name.length > 0, version >= 3);
    assert_int_equal(message.client_software_version.length > 0, version >= 3);
}

static void check_fields(const struct frame *frame, int16_t version)
{
    switch (frame->header.api_key) {
    case MILL_API_KEY_PRODUCE:
        return check_produce(frame, version);
    case MILL_API_KEY_FETCH:
        return check_fetch(frame, version);
    case MILL_API_KEY_LIST_OFFSETS:
        return check_list_offsets(frame, version);
    case MILL_API_KEY_METADATA:
        return check_metadata(frame, version);
    case MILL_API_KEY_CREATE_TOPICS:
        return check_create_topics(frame, version);
    case MILL_API_KEY_DELETE_TOPICS:
        return check_delete_topics(frame, version);
    case MILL_API_KEY_DESCRIBE_CONFIGS:
        return check_describe_configs(frame, version);
    case MILL_API_KEY_INIT_PRODUCER_ID:
        return check_init_producer_id(frame, version);
    case MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH:
        return check_leader_epoch(frame, version);
    case MILL_API_KEY_API_VERSIONS:
        return check_api_versions(frame, version);
    default:
        return;
    }
}

static void check_frame(const char *name, const uint8_t *bytes, uint32_t size_bytes)
{
    static uint8_t again[FRAME_BYTES_MAX];
    static alignas(16) uint8_t message[CODEC_MESSAGE_BYTES_MAX];
    struct frame frame = {.name = name};
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, bytes, size_bytes);
    int version = -1;
    print_message("%s\n", name);
    assert_int_equal(mill_request_header_decode(&at, &frame.header), 0);
    assert_int_equal(sscanf(strrchr(name, 'v'), "v%d.bin", &version), 1);
    assert_int_equal(frame.header.api_version, version);
    assert_true(frame.header.client_id.length > 0);
    frame.body = at;
    const struct codec_row *row = request_row(frame.header.api_key);
    assert_int_equal(row->decode(&at, frame.header.api_version, message), 0);
    assert_int_equal(at.left_bytes, 0);
    struct mill_writer to;
    mill_writer_init(&to, again, sizeof(again), NULL, 0);
    mill_wire_request_begin(&to, &frame.header);
    assert_int_equal(row->encode(&to, frame.header.api_version, message), 0);
    assert_int_equal(mill_wire_request_finish(&to), size_bytes + MILL_FRAME_SIZE_BYTES);
    assert_memory_equal(again + MILL_FRAME_SIZE_BYTES, bytes, size_bytes);
    check_fields(&frame, frame.header.api_version);
}

static void test_recorded_frames_decode_and_encode_same(void **state)
{
    (void)state;
    static uint8_t bytes[FRAME_BYTES_MAX];
    uint32_t count = 0;
    DIR *folder = opendir(FRAMES_FOLDER);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        static char path[1024];
        if (!strstr(entry->d_name, ".bin")) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", FRAMES_FOLDER, entry->d_name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size_t size_bytes = fread(bytes, 1, sizeof(bytes), file);
        fclose(file);
        assert_true(size_bytes > 0 && size_bytes < sizeof(bytes));
        check_frame(entry->d_name, bytes, (uint32_t)size_bytes);
        count++;
    }
    closedir(folder);
    assert_true(count >= FRAMES_LEAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_frames_decode_and_encode_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
