/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each rule of Kafka's value encoding holds at its borders.
 * Method: bytes written by hand from the protocol's description, never by our own encoder. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "protocol/codec.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

static struct mill_cursor over(struct mill_buf *buf, const void *bytes, size_t size_bytes)
{
    return mill_cursor_over(buf, bytes, (uint32_t)size_bytes);
}

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

/* --- numbers and lengths --- */

static bool uvarint(const uint8_t *bytes, size_t size_bytes, uint32_t *ret)
{
    struct mill_buf buf;
    struct mill_cursor at = over(&buf, bytes, size_bytes);
    return mill_read_uvarint(&at, ret);
}

static void test_uvarint_borders(void **state)
{
    (void)state;
    uint32_t value = 0;
    assert_true(uvarint(BYTES(0), &value));
    assert_int_equal(value, 0);
    assert_true(uvarint(BYTES(0xac, 0x02), &value));
    assert_int_equal(value, 300);
    assert_true(uvarint(BYTES(0xff, 0xff, 0xff, 0xff, 0x0f), &value));
    assert_int_equal(value, UINT32_MAX);
    assert_false(uvarint(BYTES(0xff, 0xff, 0xff, 0xff, 0x1f), &value));
    assert_false(uvarint(BYTES(0x80, 0x80, 0x80, 0x80, 0x80, 0x00), &value));
    assert_false(uvarint(BYTES(0x80), &value));
    uint8_t room[8];
    struct mill_writer to;
    mill_writer_init(&to, room, sizeof(room), NULL, 0);
    mill_write_uvarint(&to, UINT32_MAX);
    mill_write_uvarint(&to, 127);
    mill_write_uvarint(&to, 128);
    assert_int_equal(to.size_bytes, 8);
    assert_memory_equal(room, "\xff\xff\xff\xff\x0f\x7f\x80\x01", 8);
}

static bool str(bool flexible, bool nullable, const uint8_t *bytes, size_t size_bytes)
{
    struct mill_buf buf;
    struct mill_wstr text;
    struct mill_cursor at = over(&buf, bytes, size_bytes);
    return mill_read_str(&at, flexible, nullable, &text);
}

static void test_str_lengths_and_null(void **state)
{
    (void)state;
    assert_true(str(false, false, BYTES(0, 1, 'x')));
    assert_true(str(false, false, BYTES(0, 0)));
    assert_false(str(false, false, BYTES(0, 2, 'x')));
    assert_false(str(false, false, BYTES(0xff, 0xff)));
    assert_true(str(false, true, BYTES(0xff, 0xff)));
    assert_false(str(false, true, BYTES(0xff, 0xfe)));
    assert_false(str(false, true, BYTES(0x80, 0)));
    assert_true(str(true, false, BYTES(2, 'x')));
    assert_true(str(true, false, BYTES(1)));
    assert_false(str(true, false, BYTES(0)));
    assert_true(str(true, true, BYTES(0)));
    assert_false(str(true, true, BYTES(3, 'x')));
    assert_false(str(true, true, BYTES(0xff, 0xff, 0xff, 0xff, 0x0f)));
}

static void test_str_above_int16_refused_even_compact(void **state)
{
    (void)state;
    static uint8_t bytes[40000] = {0x81, 0x80, 0x02}; /* 32768 + 1 */
    assert_false(str(true, false, bytes, sizeof(bytes)));
    bytes[0] = 0x80; /* 32767 + 1 */
    assert_true(str(true, false, bytes, sizeof(bytes)));
}

static void test_count_checked_against_bytes(void **state)
{
    (void)state;
    struct mill_buf buf;
    struct mill_warray array;
    struct mill_cursor at = over(&buf, BYTES(0, 0, 0, 3, 1, 2, 3));
    assert_true(mill_read_count(&at, false, false, 1, &array));
    at = over(&buf, BYTES(0, 0, 0, 4, 1, 2, 3));
    assert_false(mill_read_count(&at, false, false, 1, &array));
    at = over(&buf, BYTES(0x7f, 0xff, 0xff, 0xff, 1, 2, 3));
    assert_false(mill_read_count(&at, false, false, 8, &array));
    at = over(&buf, BYTES(0xff, 0xff, 0xff, 0xff));
    assert_false(mill_read_count(&at, false, false, 1, &array));
    at = over(&buf, BYTES(0xff, 0xff, 0xff, 0xff));
    assert_true(mill_read_count(&at, false, true, 1, &array));
    assert_int_equal(array.count, -1);
    at = over(&buf, BYTES(0xff, 0xff, 0xff, 0xfe));
    assert_false(mill_read_count(&at, false, true, 1, &array));
    at = over(&buf, BYTES(0));
    assert_false(mill_read_count(&at, true, false, 1, &array));
}

/* --- tagged sections --- */

static void test_tags_order_and_sizes(void **state)
{
    (void)state;
    static const struct {
        bool fine;
        uint8_t size_bytes;
        uint8_t bytes[12];
    } cases[] = {
        {true, 1, {0}},
        {true, 4, {1, 0, 1, 9}},
        {true, 9, {2, 5, 1, 9, 0x80, 0x01, 2, 7, 7}},
        {false, 7, {2, 5, 1, 9, 5, 1, 9}},
        {false, 7, {2, 5, 1, 9, 4, 1, 9}},
        {false, 3, {1, 0, 2}},
        {false, 4, {1, 0, 2, 9}},
        {false, 4, {2, 0, 1, 9}},
        {false, 6, {0xff, 0xff, 0xff, 0xff, 0x0f, 0}},
        {false, 8, {1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0}},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(cases); i++) {
        struct mill_buf buf;
        struct mill_cursor at = over(&buf, cases[i].bytes, cases[i].size_bytes);
        assert_int_equal(mill_tags_skip(&at, false), cases[i].fine);
        if (cases[i].fine) {
            assert_int_equal(at.left_bytes, 0);
        }
    }
}

/* Fetch v12 request by hand: every struct has its own section, unknown tags in three of them. */
static const uint8_t fetch_v12[] = {
    0xff, 0xff, 0xff, 0xff,                    /* replica_id -1 */
    0,    0,    1,    0xf4,                    /* max_wait_ms 500 */
    0,    0,    0,    1,                       /* min_bytes */
    0,    0x10, 0,    0,                       /* max_bytes */
    1,                                         /* isolation_level */
    0,    0,    0,    0,                       /* session_id */
    0xff, 0xff, 0xff, 0xff,                    /* session_epoch */
    2,                                         /* one topic */
    3,    'a',  'b',                           /* topic */
    2,                                         /* one partition */
    0,    0,    0,    7,                       /* partition */
    0,    0,    0,    2,                       /* current_leader_epoch */
    0,    0,    0,    0,    0,    0,    1,  0, /* fetch_offset 256 */
    0xff, 0xff, 0xff, 0xff,                    /* last_fetched_epoch */
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff,        /* log_start_offset -1 ... */
    0xff, 0xff, 0,    1,    0,    0,           /* ... partition_max_bytes 65536 */
    1,    3,    1,    0xee,                    /* partition: unknown tag 3 */
    1,    9,    0,                             /* topic: unknown tag 9, empty */
    1,                                         /* no forgotten topics */
    2,    'r',                                 /* rack_id */
    2,    0,    3,    3,    'c',  'l',  31,    /* cluster_id "cl" in tag 0, then unknown tag 31 */
    1,    0xdd,
};

static int fetch_decode(const uint8_t *bytes, size_t size_bytes, struct mill_fetch_request *ret)
{
    static struct mill_buf buf;
    struct mill_cursor at = over(&buf, bytes, size_bytes);
    int error = mill_fetch_request_decode(&at, 12, ret);
    return error ? error : (int)at.left_bytes;
}

static void test_fetch_by_hand_with_unknown_tags(void **state)
{
    (void)state;
    struct mill_fetch_request fetch;
    struct mill_fetch_request_topics topic;
    struct mill_fetch_request_topics_partitions partition;
    assert_int_equal(fetch_decode(fetch_v12, sizeof(fetch_v12), &fetch), 0);
    assert_int_equal(fetch.max_wait_ms, 500);
    assert_int_equal(fetch.isolation_level, 1);
    assert_int_equal(fetch.topics.count, 1);
    assert_true(mill_fetch_request_topics_next(&fetch.topics, 12, &topic));
    assert_true(mill_wstr_equal(&topic.topic, "ab", 2));
    assert_true(mill_fetch_request_topics_partitions_next(&topic.partitions, 12, &partition));
    assert_int_equal(partition.partition, 7);
    assert_int_equal(partition.fetch_offset, 256);
    assert_int_equal(partition.log_start_offset, -1);
    assert_int_equal(partition.partition_max_bytes, 65536);
    assert_false(mill_fetch_request_topics_partitions_next(&topic.partitions, 12, &partition));
    assert_false(mill_fetch_request_topics_next(&fetch.topics, 12, &topic));
    assert_true(mill_wstr_equal(&fetch.rack_id, "r", 1));
    assert_true(mill_wstr_equal(&fetch.cluster_id, "cl", 2));
}

static void test_known_tag_with_wrong_size_refused(void **state)
{
    (void)state;
    struct mill_fetch_request fetch;
    uint8_t bytes[sizeof(fetch_v12)];
    const size_t size_at = sizeof(fetch_v12) - 7; /* size of tag 0 */
    memcpy(bytes, fetch_v12, sizeof(bytes));
    assert_int_equal(bytes[size_at], 3);
    bytes[size_at + 1] = 2; /* the text inside ends before the field does */
    assert_int_equal(fetch_decode(bytes, sizeof(bytes), &fetch), -EBADMSG);
    bytes[size_at + 1] = 9; /* and behind it */
    assert_int_equal(fetch_decode(bytes, sizeof(bytes), &fetch), -EBADMSG);
}

static void test_absent_fields_have_defaults(void **state)
{
    (void)state;
    static const uint8_t v4[] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9, 0,   0, 0, 1, 0, 0, 0,
                                 2,    0,    0,    0,    0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0,
                                 0,    3,    0,    0,    0, 0, 0, 0, 0,   5, 0, 0, 0, 6};
    struct mill_buf buf;
    struct mill_cursor at = over(&buf, v4, sizeof(v4));
    struct mill_fetch_request fetch;
    struct mill_fetch_request_topics topic;
    struct mill_fetch_request_topics_partitions partition;
    memset(&fetch, 0x77, sizeof(fetch));
    assert_int_equal(mill_fetch_request_decode(&at, 4, &fetch), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_int_equal(fetch.session_epoch, -1);
    assert_int_equal(fetch.session_id, 0);
    assert_int_equal(fetch.forgotten_topics_data.count, 0);
    assert_int_equal(fetch.rack_id.length, 0);
    assert_int_equal(fetch.cluster_id.length, -1);
    assert_true(mill_fetch_request_topics_next(&fetch.topics, 4, &topic));
    assert_true(mill_fetch_request_topics_partitions_next(&topic.partitions, 4, &partition));
    assert_int_equal(partition.current_leader_epoch, -1);
    assert_int_equal(partition.fetch_offset, 5);
    assert_int_equal(partition.log_start_offset, -1);
    assert_int_equal(partition.partition_max_bytes, 6);
}

static void test_metadata_topics_null_by_version(void **state)
{
    (void)state;
    struct mill_buf buf;
    struct mill_metadata_request request;
    struct mill_cursor at = over(&buf, BYTES(0xff, 0xff, 0xff, 0xff));
    assert_int_equal(mill_metadata_request_decode(&at, 1, &request), 0);
    assert_int_equal(request.topics.count, -1);
    assert_true(request.allow_auto_topic_creation);
    at = over(&buf, BYTES(0xff, 0xff, 0xff, 0xff));
    assert_int_equal(mill_metadata_request_decode(&at, 0, &request), -EBADMSG);
    uint8_t room[16];
    struct mill_writer to;
    mill_writer_init(&to, room, sizeof(room), NULL, 0);
    request.topics = (struct mill_warray){.count = -1};
    assert_int_equal(mill_metadata_request_encode(&to, 0, &request), -EINVAL);
}

/* --- headers and frames --- */

static int header(struct mill_request_header *ret, uint32_t *ret_left, const uint8_t *bytes,
                  size_t size_bytes)
{
    static struct mill_buf buf;
    struct mill_cursor at = over(&buf, bytes, size_bytes);
    int error = mill_request_header_decode(&at, ret);
    *ret_left = at.left_bytes;
    return error;
}

static void test_request_header_forms(void **state)
{
    (void)state;
    struct mill_request_header got;
    uint32_t left;
    assert_int_equal(header(&got, &left, BYTES(0, 3, 0, 1, 0, 0, 0, 9, 0, 1, 'c', 0xaa)), 0);
    assert_int_equal(got.api_key, 3);
    assert_int_equal(got.correlation_id, 9);
    assert_true(mill_wstr_equal(&got.client_id, "c", 1));
    assert_false(got.flexible);
    assert_int_equal(left, 1);
    /* header v2: the client id keeps its two bytes of length, then tags */
    assert_int_equal(
        header(&got, &left, BYTES(0, 3, 0, 9, 0, 0, 0, 9, 0, 1, 'c', 1, 4, 1, 0, 0xaa)), 0);
    assert_true(got.flexible);
    assert_int_equal(left, 1);
    assert_int_equal(header(&got, &left, BYTES(0, 3, 0, 9, 0, 0, 0, 9, 0xff, 0xff, 0)), 0);
    assert_int_equal(got.client_id.length, -1);
    assert_int_equal(left, 0);
}

static void test_request_header_errors(void **state)
{
    (void)state;
    struct mill_request_header got;
    uint32_t left;
    for (size_t size = 0; size < 8; size++) {
        static const uint8_t bytes[8] = {0, 18, 0, 99, 0, 0, 0, 5};
        assert_int_equal(header(&got, &left, bytes, size), -EBADMSG);
    }
    assert_int_equal(header(&got, &left, BYTES(0, 18, 0, 99, 0, 0, 0, 5)), -EOPNOTSUPP);
    assert_int_equal(got.api_key, 18);
    assert_int_equal(got.api_version, 99);
    assert_int_equal(got.correlation_id, 5);
    assert_int_equal(header(&got, &left, BYTES(0x22, 0x22, 0, 0, 0, 0, 0, 6)), -EOPNOTSUPP);
    assert_int_equal(got.correlation_id, 6);
    assert_int_equal(header(&got, &left, BYTES(0, 0, 0, 2, 0, 0, 0, 6)), -EOPNOTSUPP);
    assert_int_equal(header(&got, &left, BYTES(0, 3, 0, 1, 0, 0, 0, 9, 0, 4, 'c')), -EBADMSG);
    assert_int_equal(header(&got, &left, BYTES(0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xfe)), -EBADMSG);
    assert_int_equal(header(&got, &left, BYTES(0, 3, 0, 9, 0, 0, 0, 9, 0, 0)), -EBADMSG);
    assert_int_equal(header(&got, &left, BYTES(0, 3, 0, 9, 0, 0, 0, 9, 0, 0, 1)), -EBADMSG);
}

static void test_response_header_by_api(void **state)
{
    (void)state;
    static const struct {
        int16_t key;
        int16_t version;
        int64_t size_bytes;
    } cases[] = {{MILL_API_KEY_METADATA, 8, 8},
                 {MILL_API_KEY_METADATA, 9, 9},
                 {MILL_API_KEY_DESCRIBE_CLUSTER, 0, 9},
                 {MILL_API_KEY_API_VERSIONS, 2, 8},
                 {MILL_API_KEY_API_VERSIONS, 4, 8}};
    for (size_t i = 0; i < MILL_COUNT_OF(cases); i++) {
        uint8_t room[16];
        struct mill_writer to;
        struct mill_buf buf;
        int32_t correlation_id = 0;
        mill_writer_init(&to, room, sizeof(room), NULL, 0);
        mill_response_begin(&to, cases[i].key, cases[i].version, 0x01020304);
        assert_int_equal(mill_response_finish(&to), cases[i].size_bytes);
        assert_int_equal(mill_load_be32(room), cases[i].size_bytes - 4);
        struct mill_cursor at = over(&buf, room + 4, to.size_bytes - 4);
        assert_int_equal(
            mill_response_header_decode(&at, cases[i].key, cases[i].version, &correlation_id), 0);
        assert_int_equal(correlation_id, 0x01020304);
        assert_int_equal(at.left_bytes, 0);
    }
}

static void test_request_header_written_is_read(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < mill_apis_count; i++) {
        const struct mill_api *api = &mill_apis[i];
        for (int16_t version = api->version_min; version <= api->version_max; version++) {
            uint8_t room[64];
            struct mill_writer to;
            struct mill_request_header got;
            struct mill_buf buf;
            const struct mill_request_header put = {.api_key = api->key,
                                                    .api_version = version,
                                                    .correlation_id = 77,
                                                    .client_id = mill_wstr_of("me")};
            mill_writer_init(&to, room, sizeof(room), NULL, 0);
            mill_wire_request_begin(&to, &put);
            assert_true(mill_wire_request_finish(&to) > 0);
            struct mill_cursor at = over(&buf, room + 4, to.size_bytes - 4);
            assert_int_equal(mill_request_header_decode(&at, &got), 0);
            assert_int_equal(got.api_version, version);
            assert_true(mill_wstr_equal(&got.client_id, "me", 2));
            assert_int_equal(at.left_bytes, 0);
        }
    }
}

/* --- holes --- */

static const int32_t hole_sizes[] = {100, 0, 7};

static void get_hole_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    struct mill_fetch_response_responses_partitions *partition = ret_element;
    partition->partition_index = index;
    partition->records.length = hole_sizes[index];
}

static void get_hole_topic(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    struct mill_fetch_response_responses *topic = ret_element;
    topic->topic = mill_wstr_of("t");
    topic->partitions = (struct mill_warray){.count = 3, .get = get_hole_partition};
}

static void test_records_leave_holes_and_are_counted(void **state)
{
    (void)state;
    static uint8_t room[512];
    static uint8_t whole[1024];
    struct mill_writer_hole holes[2];
    struct mill_fetch_response answer;
    struct mill_writer to;
    mill_fetch_response_defaults(&answer);
    answer.responses = (struct mill_warray){.count = 1, .get = get_hole_topic};
    for (int16_t version = 4; version <= 12; version++) {
        mill_writer_init(&to, room, sizeof(room), holes, 2);
        mill_response_begin(&to, MILL_API_KEY_FETCH, version, 1);
        assert_int_equal(mill_fetch_response_encode(&to, version, &answer), 0);
        const int64_t size_bytes = mill_response_finish(&to);
        assert_int_equal(size_bytes, to.size_bytes + 107);
        assert_int_equal(to.holes_count, 2);
        assert_int_equal(holes[0].size_bytes, 100);
        assert_int_equal(holes[1].size_bytes, 7);
        assert_int_equal(mill_load_be32(room), size_bytes - 4);
        /* what a peer sees: the holes filled in */
        memcpy(whole, room, holes[0].pos_bytes);
        memset(whole + holes[0].pos_bytes, 'A', 100);
        memcpy(whole + holes[0].pos_bytes + 100, room + holes[0].pos_bytes,
               holes[1].pos_bytes - holes[0].pos_bytes);
        memset(whole + holes[1].pos_bytes + 100, 'B', 7);
        memcpy(whole + holes[1].pos_bytes + 107, room + holes[1].pos_bytes,
               to.size_bytes - holes[1].pos_bytes);
        struct mill_buf buf;
        struct mill_cursor at = over(&buf, whole + 4, (size_t)size_bytes - 4);
        struct mill_fetch_response got;
        struct mill_fetch_response_responses topic;
        struct mill_fetch_response_responses_partitions partition;
        int32_t correlation_id;
        assert_int_equal(
            mill_response_header_decode(&at, MILL_API_KEY_FETCH, version, &correlation_id), 0);
        assert_int_equal(mill_fetch_response_decode(&at, version, &got), 0);
        assert_int_equal(at.left_bytes, 0);
        assert_true(mill_fetch_response_responses_next(&got.responses, version, &topic));
        for (int32_t i = 0; i < 3; i++) {
            assert_true(mill_fetch_response_responses_partitions_next(&topic.partitions, version,
                                                                      &partition));
            assert_int_equal(partition.records.length, hole_sizes[i]);
            if (hole_sizes[i] > 0) {
                assert_int_equal(partition.records.ptr[0], i == 0 ? 'A' : 'B');
            }
        }
    }
    mill_writer_init(&to, room, sizeof(room), holes, 1);
    assert_int_equal(mill_fetch_response_encode(&to, 12, &answer), -ENOSPC);
}

/* --- text --- */

static bool utf8(const uint8_t *bytes, size_t size_bytes)
{
    struct mill_wstr text = mill_wstr_of_bytes(bytes, (int32_t)size_bytes);
    bool whole = mill_wstr_is_utf8(&text);
    /* the same in buffers of one byte each */
    struct mill_buf bufs[8];
    for (size_t i = 0; i < size_bytes; i++) {
        bufs[i] = (struct mill_buf){.data = (uint8_t *)(uintptr_t)bytes + i, .size_bytes = 1};
        bufs[i].next = i + 1 < size_bytes ? &bufs[i + 1] : NULL;
    }
    text.ptr = NULL;
    text.at = (struct mill_cursor){.buf = bufs, .left_bytes = (uint32_t)size_bytes};
    assert_int_equal(mill_wstr_is_utf8(&text), whole);
    return whole;
}

static void test_utf8_vectors(void **state)
{
    (void)state;
    assert_true(utf8(BYTES('a', 0x00, 0x7f)));
    assert_true(utf8(BYTES(0xc2, 0x80)));
    assert_true(utf8(BYTES(0xdf, 0xbf, 'x')));
    assert_true(utf8(BYTES(0xe0, 0xa0, 0x80)));
    assert_true(utf8(BYTES(0xed, 0x9f, 0xbf)));
    assert_true(utf8(BYTES(0xef, 0xbf, 0xbf)));
    assert_true(utf8(BYTES(0xf0, 0x90, 0x80, 0x80)));
    assert_true(utf8(BYTES(0xf4, 0x8f, 0xbf, 0xbf)));
    assert_false(utf8(BYTES(0x80)));
    assert_false(utf8(BYTES(0xc0, 0x80)));
    assert_false(utf8(BYTES(0xc1, 0xbf)));
    assert_false(utf8(BYTES(0xc2)));
    assert_false(utf8(BYTES(0xc2, 'x')));
    assert_false(utf8(BYTES(0xe0, 0x9f, 0xbf)));
    assert_false(utf8(BYTES(0xed, 0xa0, 0x80)));
    assert_false(utf8(BYTES(0xe1, 0x80)));
    assert_false(utf8(BYTES(0xf0, 0x8f, 0xbf, 0xbf)));
    assert_false(utf8(BYTES(0xf4, 0x90, 0x80, 0x80)));
    assert_false(utf8(BYTES(0xf5, 0x80, 0x80, 0x80)));
    assert_false(utf8(BYTES(0xff)));
}

static void test_wstr_copy_and_equal(void **state)
{
    (void)state;
    char text[4];
    struct mill_wstr value = mill_wstr_of("abc");
    assert_int_equal(mill_wstr_copy(&value, text, 4), 3);
    assert_string_equal(text, "abc");
    assert_int_equal(mill_wstr_copy(&value, text, 3), -1);
    assert_string_equal(text, "");
    assert_true(mill_wstr_equal(&value, "abc", 3));
    assert_false(mill_wstr_equal(&value, "abd", 3));
    assert_false(mill_wstr_equal(&value, "ab", 2));
    value = mill_wstr_of(NULL);
    assert_int_equal(mill_wstr_copy(&value, text, 4), -1);
    assert_false(mill_wstr_equal(&value, "", 0));
    struct mill_buf tail = {.data = (uint8_t[]){'b', 'c'}, .size_bytes = 2};
    struct mill_buf head = {.data = (uint8_t[]){'a'}, .size_bytes = 1, .next = &tail};
    value = (struct mill_wstr){.length = 3, .at = {.buf = &head, .left_bytes = 3}};
    assert_int_equal(mill_wstr_copy(&value, text, 4), 3);
    assert_string_equal(text, "abc");
    assert_true(mill_wstr_equal(&value, "abc", 3));
    assert_false(mill_wstr_equal(&value, "abx", 3));
}

/* --- tables --- */

static void test_apis_find(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < mill_apis_count; i++) {
        assert_true(mill_apis[i - 1].key < mill_apis[i].key);
    }
    assert_string_equal(mill_api_find(0)->name, "Produce");
    assert_int_equal(mill_api_find(0)->version_min, 3);
    assert_int_equal(mill_api_find(0)->version_min_advertised, 0);
    assert_int_equal(mill_api_find(1)->version_min_advertised, 4);
    assert_int_equal(mill_api_find(19)->place, MILL_API_CONTROL);
    assert_int_equal(mill_api_find(3)->place, MILL_API_CORE);
    assert_null(mill_api_find(38));
    assert_null(mill_api_find(-1));
    assert_null(mill_api_find(INT16_MAX));
}

static void test_kerr_names(void **state)
{
    (void)state;
    assert_string_equal(mill_kerr_name(0), "NONE");
    assert_string_equal(mill_kerr_name(-1), "UNKNOWN_SERVER_ERROR");
    assert_string_equal(mill_kerr_name(MILL_KERR_REBOOTSTRAP_REQUIRED), "REBOOTSTRAP_REQUIRED");
    assert_string_equal(mill_kerr_name(999), "UNKNOWN_ERROR_CODE");
    assert_true(mill_kerr_retriable(MILL_KERR_NOT_LEADER_OR_FOLLOWER));
    assert_false(mill_kerr_retriable(MILL_KERR_NONE));
    assert_false(mill_kerr_retriable(MILL_KERR_INVALID_TOPIC_EXCEPTION));
    assert_false(mill_kerr_retriable(999));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uvarint_borders),
        cmocka_unit_test(test_str_lengths_and_null),
        cmocka_unit_test(test_str_above_int16_refused_even_compact),
        cmocka_unit_test(test_count_checked_against_bytes),
        cmocka_unit_test(test_tags_order_and_sizes),
        cmocka_unit_test(test_fetch_by_hand_with_unknown_tags),
        cmocka_unit_test(test_known_tag_with_wrong_size_refused),
        cmocka_unit_test(test_absent_fields_have_defaults),
        cmocka_unit_test(test_metadata_topics_null_by_version),
        cmocka_unit_test(test_request_header_forms),
        cmocka_unit_test(test_request_header_errors),
        cmocka_unit_test(test_response_header_by_api),
        cmocka_unit_test(test_request_header_written_is_read),
        cmocka_unit_test(test_records_leave_holes_and_are_counted),
        cmocka_unit_test(test_utf8_vectors),
        cmocka_unit_test(test_wstr_copy_and_equal),
        cmocka_unit_test(test_apis_find),
        cmocka_unit_test(test_kerr_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
