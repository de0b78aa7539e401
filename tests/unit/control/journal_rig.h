/* SPDX-License-Identifier: Apache-2.0 */
/* The journal alone, for its tests: the test is the core at the other end of the rings, and reads
 * the requests. */
#ifndef MILL_TESTS_UNIT_CONTROL_JOURNAL_RIG_H
#define MILL_TESTS_UNIT_CONTROL_JOURNAL_RIG_H

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/byteorder.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "control/journal/journal.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

enum {
    SCRATCH_BYTES = 4096,
    INCARNATION = 5,
    FRAME_BYTES_MAX = 8 << 20,
    TIMEOUT_MS = 1000,
    DONE_MAX = 64,
};

struct ended {
    int number; /* of the append */
    struct mill_journal_result result;
};

struct rig {
    struct mill_ipc_segment *segment;
    uint64_t segment_bytes;
    struct mill_journal *journal;
    struct mill_bell bell;
    struct mill_ring in; /* the core's ends */
    struct mill_ring out;
    struct mill_map_topic *topic;
    uint64_t now_ns;
    uint64_t stream_id; /* of the request that came last */
    uint64_t tx_pos_bytes;
    uint8_t *frame;
    uint32_t frame_bytes;
    struct ended ended[DONE_MAX];
    uint32_t ended_count;
    uint64_t drawn;
};

struct one {
    struct rig *rig;
    int number;
};

static inline void random_bytes(void *context, void *ret_bytes, size_t size_bytes)
{
    struct rig *rig = context;
    rig->drawn++;
    memset(ret_bytes, 0, size_bytes);
    memcpy(ret_bytes, &rig->drawn, MILL_MIN(size_bytes, sizeof(rig->drawn)));
}

static inline void rig_open(struct rig *rig)
{
    *rig = (struct rig){.now_ns = MILL_NS_PER_S};
    rig->segment_bytes = mill_ipc_bytes(1, SCRATCH_BYTES);
    rig->segment =
        mmap(NULL, rig->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(rig->segment, MAP_FAILED);
    mill_ipc_format(rig->segment, 1, SCRATCH_BYTES);
    const struct mill_ipc_core *core = &rig->segment->cores[0];
    uint64_t bytes = mill_ring_bytes(MILL_STREAM_RING_BYTES);
    assert_int_equal(
        mill_ring_attach_consumer(&rig->in, mill_ipc_at(rig->segment, core->stream_in), bytes), 0);
    assert_int_equal(
        mill_ring_attach_producer(&rig->out, mill_ipc_at(rig->segment, core->stream_out), bytes),
        0);
    rig->bell = (struct mill_bell){.shared = &rig->segment->cores[0].bell, .fd = -1};
    rig->journal = mill_journal_open(rig->segment, rig->segment_bytes, TIMEOUT_MS * MILL_NS_PER_MS,
                                     random_bytes, rig);
    assert_non_null(rig->journal);
    assert_int_equal(mill_journal_core(rig->journal, 0, &rig->bell), 0);
    mill_journal_attach(rig->journal, INCARNATION);
    rig->topic = calloc(1, sizeof(*rig->topic) + 4 * sizeof(rig->topic->partitions[0]));
    rig->frame = malloc(FRAME_BYTES_MAX);
    assert_non_null(rig->topic);
    assert_non_null(rig->frame);
    rig->topic->settings.max_message_bytes = 1 << 20;
    rig->topic->partitions_count = 4;
    strcpy(rig->topic->name, "__internal");
}

static inline void rig_close(struct rig *rig)
{
    mill_journal_close(rig->journal);
    free(rig->topic);
    free(rig->frame);
    munmap(rig->segment, rig->segment_bytes);
}

static inline void done(void *context, const struct mill_journal_result *result)
{
    struct one *one = context;
    struct rig *rig = one->rig;
    assert_true(rig->ended_count < DONE_MAX);
    rig->ended[rig->ended_count++] = (struct ended){one->number, *result};
    free(one);
}

static inline int append_as(struct rig *rig, int number, int32_t partition, uint32_t value_bytes,
                            const struct mill_journal_producer *producer)
{
    char key[16];
    char *value = calloc(1, value_bytes + 1);
    struct one *one = malloc(sizeof(*one));
    assert_non_null(one);
    assert_non_null(value);
    *one = (struct one){rig, number};
    snprintf(key, sizeof(key), "key-%d", number);
    struct mill_journal_record record = {.key = key,
                                         .key_bytes = (uint32_t)strlen(key),
                                         .value = value,
                                         .value_bytes = (int32_t)value_bytes};
    int rc = producer ? mill_journal_append_txn(rig->journal, rig->topic, partition, producer,
                                                &record, 1, 1000 + number, done, one)
                      : mill_journal_append(rig->journal, rig->topic, partition, &record, 1,
                                            1000 + number, done, one);
    free(value);
    if (rc < 0) {
        free(one);
    }
    return rc;
}

static inline int append_sized(struct rig *rig, int number, int32_t partition, uint32_t value_bytes)
{
    return append_as(rig, number, partition, value_bytes, NULL);
}

static inline void append(struct rig *rig, int number, int32_t partition)
{
    assert_int_equal(append_sized(rig, number, partition, 5), 0);
}

static inline void step(struct rig *rig)
{
    mill_journal_step(rig->journal, rig->now_ns);
}

/* The next whole request. ret: false when there is none; *ret_header at its body. */
static inline bool request(struct rig *rig, struct mill_request_header *ret_header,
                           struct mill_cursor *ret_at, struct mill_buf *buf)
{
    rig->frame_bytes = 0;
    for (;;) {
        uint32_t kind;
        uint32_t size;
        struct mill_stream_part head;
        step(rig);
        const uint8_t *message = mill_ring_next(&rig->in, &kind, &size);
        if (!message) {
            return false;
        }
        memcpy(&head, message, sizeof(head));
        assert_int_equal(kind, MILL_STREAM_PART);
        assert_int_equal(head.core_incarnation, INCARNATION);
        if (head.stream_id != rig->stream_id) {
            assert_int_equal(head.pos_bytes, 0);
            rig->stream_id = head.stream_id;
            rig->tx_pos_bytes = 0;
        }
        memcpy(rig->frame + rig->frame_bytes, message + sizeof(head), head.size_bytes);
        rig->frame_bytes += head.size_bytes;
        mill_ring_release(&rig->in);
        if (rig->frame_bytes >= 4 && rig->frame_bytes == 4 + mill_load_be32(rig->frame)) {
            *ret_at = mill_cursor_over(buf, rig->frame + 4, rig->frame_bytes - 4);
            assert_int_equal(mill_request_header_decode(ret_at, ret_header), 0);
            return true;
        }
    }
}

static inline void answer(struct rig *rig, const uint8_t *bytes, uint32_t size_bytes)
{
    for (uint32_t at = 0; at < size_bytes;) {
        uint32_t part = MILL_MIN(size_bytes - at, 100u); /* in small pieces */
        struct mill_stream_part head = {.core_incarnation = INCARNATION,
                                        .stream_id = rig->stream_id,
                                        .pos_bytes = rig->tx_pos_bytes,
                                        .size_bytes = part};
        uint8_t *message =
            mill_ring_claim(&rig->out, MILL_STREAM_PART, (uint32_t)sizeof(head) + part);
        assert_non_null(message);
        memcpy(message, &head, sizeof(head));
        memcpy(message + sizeof(head), bytes + at, part);
        mill_ring_publish(&rig->out);
        rig->tx_pos_bytes += part;
        at += part;
        step(rig);
    }
}

/* What a Produce asked for: a batch per partition. */
struct produced {
    uint32_t count;
    int32_t partitions[8];
    int32_t records[8];
    int64_t producers[8];
    int32_t correlation;
    int16_t version;
    int16_t errors[8]; /* to answer with */
    int64_t bases[8];
    uint32_t *topic_at; /* element being written */
    uint32_t size_told; /* in front of the answer; 0: its own */
};

static inline void get_partition(const void *context, int32_t index, void *ret_element)
{
    const struct produced *produced = context;
    struct mill_produce_response_responses_partition_responses *element = ret_element;
    uint32_t at = *produced->topic_at;
    MILL_UNUSED(index);
    element->index = produced->partitions[at];
    element->error_code = produced->errors[at];
    element->base_offset = produced->bases[at];
}

static inline void get_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_produce_response_responses *element = ret_element;
    *((const struct produced *)context)->topic_at = (uint32_t)index;
    element->name = mill_wstr_of("__internal");
    element->partition_responses =
        (struct mill_warray){.count = 1, .get = get_partition, .context = context};
}

static inline bool take_produce(struct rig *rig, struct produced *ret)
{
    struct mill_request_header header;
    struct mill_cursor at;
    struct mill_buf buf;
    struct mill_produce_request message;
    struct mill_produce_request_topic_data one;
    struct mill_produce_request_topic_data_partition_data part;
    *ret = (struct produced){0};
    if (!request(rig, &header, &at, &buf)) {
        return false;
    }
    assert_int_equal(header.api_key, MILL_API_KEY_PRODUCE);
    ret->version = header.api_version;
    ret->correlation = header.correlation_id;
    assert_int_equal(mill_produce_request_decode(&at, header.api_version, &message), 0);
    assert_int_equal(message.acks, -1);
    while (mill_produce_request_topic_data_next(&message.topic_data, header.api_version, &one)) {
        assert_true(mill_produce_request_topic_data_partition_data_next(&one.partition_data,
                                                                        header.api_version, &part));
        struct mill_batch batch;
        const uint8_t *bytes = part.records.ptr;
        mill_batch_read(bytes, &batch);
        assert_int_equal(mill_batch_size_bytes(&batch), part.records.length);
        assert_int_equal(batch.crc,
                         mill_crc32c(bytes + MILL_BATCH_SUMMED_AT,
                                     (size_t)part.records.length - MILL_BATCH_SUMMED_AT));
        assert_int_equal(batch.last_offset_delta, batch.records_count - 1);
        bool transactional = (batch.attributes & MILL_BATCH_TRANSACTIONAL) != 0;
        assert_int_equal(transactional, batch.producer_id >= 0);
        assert_true(!transactional || message.transactional_id.length >= 0);
        assert_int_equal(batch.base_sequence, -1);
        ret->producers[ret->count] = batch.producer_id;
        ret->partitions[ret->count] = part.index;
        ret->records[ret->count++] = batch.records_count;
    }
    return true;
}

static inline void answer_produce(struct rig *rig, struct produced *produced)
{
    uint8_t bytes[2048];
    uint32_t topic_at = 0;
    produced->topic_at = &topic_at;
    struct mill_writer to;
    struct mill_produce_response message;
    mill_produce_response_defaults(&message);
    message.responses = (struct mill_warray){
        .count = (int32_t)produced->count, .get = get_topic, .context = produced};
    mill_writer_init(&to, bytes, sizeof(bytes), NULL, 0);
    mill_response_begin(&to, MILL_API_KEY_PRODUCE, produced->version, produced->correlation);
    (void)mill_produce_response_encode(&to, produced->version, &message);
    int64_t size = mill_response_finish(&to);
    assert_true(size > 0);
    if (produced->size_told > 0) {
        mill_store_be32(bytes, produced->size_told);
    }
    answer(rig, bytes, (uint32_t)size);
}

static inline void check_ended(const struct rig *rig, uint32_t at, int number,
                               enum mill_journal_outcome outcome)
{
    assert_true(at < rig->ended_count);
    assert_int_equal(rig->ended[at].number, number);
    assert_int_equal(rig->ended[at].result.outcome, outcome);
}

#endif
