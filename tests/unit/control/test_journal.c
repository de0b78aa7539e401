/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every append ends once, in order, with what is known of it, whatever the core answers or
 * does not answer; appends that come meanwhile share a batch; queues are bounded. Method: the
 * journal alone; the test is the core at the other end of the rings and reads the requests. */
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
    MARKERS_VERSION = 2, /* of WriteTxnMarkers */
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

static void random_bytes(void *context, void *ret_bytes, size_t size_bytes)
{
    struct rig *rig = context;
    rig->drawn++;
    memset(ret_bytes, 0, size_bytes);
    memcpy(ret_bytes, &rig->drawn, MILL_MIN(size_bytes, sizeof(rig->drawn)));
}

static void rig_open(struct rig *rig)
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

static void rig_close(struct rig *rig)
{
    mill_journal_close(rig->journal);
    free(rig->topic);
    free(rig->frame);
    munmap(rig->segment, rig->segment_bytes);
}

static void done(void *context, const struct mill_journal_result *result)
{
    struct one *one = context;
    struct rig *rig = one->rig;
    assert_true(rig->ended_count < DONE_MAX);
    rig->ended[rig->ended_count++] = (struct ended){one->number, *result};
    free(one);
}

static int append_as(struct rig *rig, int number, int32_t partition, uint32_t value_bytes,
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

static int append_sized(struct rig *rig, int number, int32_t partition, uint32_t value_bytes)
{
    return append_as(rig, number, partition, value_bytes, NULL);
}

static void append(struct rig *rig, int number, int32_t partition)
{
    assert_int_equal(append_sized(rig, number, partition, 5), 0);
}

static void step(struct rig *rig)
{
    mill_journal_step(rig->journal, rig->now_ns);
}

/* The next whole request. ret: false when there is none; *ret_header at its body. */
static bool request(struct rig *rig, struct mill_request_header *ret_header,
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

static void answer(struct rig *rig, const uint8_t *bytes, uint32_t size_bytes)
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

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    const struct produced *produced = context;
    struct mill_produce_response_responses_partition_responses *element = ret_element;
    uint32_t at = *produced->topic_at;
    MILL_UNUSED(index);
    element->index = produced->partitions[at];
    element->error_code = produced->errors[at];
    element->base_offset = produced->bases[at];
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_produce_response_responses *element = ret_element;
    *((const struct produced *)context)->topic_at = (uint32_t)index;
    element->name = mill_wstr_of("__internal");
    element->partition_responses =
        (struct mill_warray){.count = 1, .get = get_partition, .context = context};
}

static bool take_produce(struct rig *rig, struct produced *ret)
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

static void answer_produce(struct rig *rig, struct produced *produced)
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

static void check_ended(const struct rig *rig, uint32_t at, int number,
                        enum mill_journal_outcome outcome)
{
    assert_true(at < rig->ended_count);
    assert_int_equal(rig->ended[at].number, number);
    assert_int_equal(rig->ended[at].result.outcome, outcome);
}

static void test_appends_share_batches_and_end_in_order(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct produced produced;
    rig_open(&rig);
    append(&rig, 0, 1);
    assert_true(take_produce(&rig, &produced));
    assert_int_equal(produced.count, 1);
    assert_int_equal(produced.records[0], 1);
    for (int i = 1; i < 7; i++) {
        append(&rig, i, i % 2); /* while the first is on its way */
    }
    produced.bases[0] = 40;
    answer_produce(&rig, &produced);
    check_ended(&rig, 0, 0, MILL_JOURNAL_DONE);
    assert_int_equal(rig.ended[0].result.next_offset, 41);
    assert_true(take_produce(&rig, &produced));
    assert_int_equal(produced.count, 2);
    assert_int_equal(produced.records[0], 3);
    assert_int_equal(produced.records[1], 3);
    produced.bases[0] = 100;
    produced.bases[1] = 200;
    answer_produce(&rig, &produced);
    assert_int_equal(rig.ended_count, 7);
    int64_t last[2] = {0, 0};
    int order[2] = {-1, -1};
    for (uint32_t i = 1; i < 7; i++) {
        int partition = rig.ended[i].number % 2;
        assert_int_equal(rig.ended[i].result.outcome, MILL_JOURNAL_DONE);
        assert_true(rig.ended[i].number > order[partition]);
        assert_true(rig.ended[i].result.next_offset > last[partition]);
        order[partition] = rig.ended[i].number;
        last[partition] = rig.ended[i].result.next_offset;
    }
    assert_int_equal(mill_journal_counters(rig.journal)->journal_requests, 2);
    rig_close(&rig);
}

static void test_errors_tell_what_is_known(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int16_t error;
        enum mill_journal_outcome outcome;
    } cases[] = {
        {MILL_KERR_NONE, MILL_JOURNAL_DONE},
        {MILL_KERR_NOT_LEADER_OR_FOLLOWER, MILL_JOURNAL_REFUSED},
        {MILL_KERR_NOT_ENOUGH_REPLICAS, MILL_JOURNAL_REFUSED},
        {MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, MILL_JOURNAL_REFUSED},
        {MILL_KERR_REQUEST_TIMED_OUT, MILL_JOURNAL_UNKNOWN},
        {MILL_KERR_KAFKA_STORAGE_ERROR, MILL_JOURNAL_UNKNOWN},
        {MILL_KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, MILL_JOURNAL_UNKNOWN},
    };
    struct rig rig;
    struct produced produced;
    rig_open(&rig);
    for (uint32_t i = 0; i < MILL_COUNT_OF(cases); i++) {
        append(&rig, (int)i, 0);
        assert_true(take_produce(&rig, &produced));
        produced.errors[0] = cases[i].error;
        answer_produce(&rig, &produced);
        check_ended(&rig, i, (int)i, cases[i].outcome);
        assert_int_equal(rig.ended[i].result.error,
                         cases[i].outcome == MILL_JOURNAL_DONE ? 0 : cases[i].error);
    }
    rig_close(&rig);
}

static void test_silent_core_costs_its_stream(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct produced produced;
    rig_open(&rig);
    append(&rig, 0, 0);
    assert_true(take_produce(&rig, &produced));
    append(&rig, 1, 0);
    append(&rig, 2, 1);
    rig.now_ns += 2 * TIMEOUT_MS * MILL_NS_PER_MS;
    step(&rig);
    assert_int_equal(rig.ended_count, 3);
    check_ended(&rig, 0, 0, MILL_JOURNAL_UNKNOWN);
    check_ended(&rig, 1, 1, MILL_JOURNAL_REFUSED);
    check_ended(&rig, 2, 2, MILL_JOURNAL_REFUSED);
    /* An answer that comes now is of a stream that is over. */
    answer_produce(&rig, &produced);
    assert_int_equal(rig.ended_count, 3);
    uint64_t before = rig.stream_id;
    append(&rig, 3, 0);
    assert_true(take_produce(&rig, &produced));
    assert_int_not_equal(rig.stream_id, before);
    answer_produce(&rig, &produced);
    check_ended(&rig, 3, 3, MILL_JOURNAL_DONE);
    rig_close(&rig);
}

static void test_other_dataplane_ends_everything(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct produced produced;
    rig_open(&rig);
    append(&rig, 0, 0);
    assert_true(take_produce(&rig, &produced));
    append(&rig, 1, 0);
    mill_journal_attach(rig.journal, 0);
    check_ended(&rig, 0, 0, MILL_JOURNAL_UNKNOWN);
    check_ended(&rig, 1, 1, MILL_JOURNAL_REFUSED);
    assert_int_equal(append_sized(&rig, 2, 0, 5), -ENOTCONN);
    rig_close(&rig);
}

static void test_malformed_answer_costs_the_stream(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct produced produced;
    static const uint8_t garbage[] = {0, 0, 0, 4, 1, 2, 3, 4};
    rig_open(&rig);
    append(&rig, 0, 0);
    assert_true(take_produce(&rig, &produced));
    answer(&rig, garbage, sizeof(garbage));
    check_ended(&rig, 0, 0, MILL_JOURNAL_UNKNOWN);
    append(&rig, 1, 0);
    assert_true(take_produce(&rig, &produced));
    produced.partitions[0] = 3; /* of another partition than asked */
    answer_produce(&rig, &produced);
    check_ended(&rig, 1, 1, MILL_JOURNAL_UNKNOWN);
    /* Of a size that no answer has, or that wraps with the size's own four bytes. */
    static const uint32_t sizes[] = {64 << 20, INT32_MAX, UINT32_MAX - 3, UINT32_MAX};
    for (int i = 0; i < (int)MILL_COUNT_OF(sizes); i++) {
        append(&rig, 2 + i, 0);
        assert_true(take_produce(&rig, &produced));
        produced.size_told = sizes[i];
        answer_produce(&rig, &produced);
        check_ended(&rig, 2 + (uint32_t)i, 2 + i, MILL_JOURNAL_UNKNOWN);
    }
    rig_close(&rig);
}

static void count_only(void *context, const struct mill_journal_result *result)
{
    assert_int_equal(result->outcome, MILL_JOURNAL_REFUSED);
    ++*(uint32_t *)context;
}

static void test_sizes_are_bounded(void **state)
{
    MILL_UNUSED(state);
    static uint8_t value[1000000];
    struct rig rig;
    const struct mill_journal_record record = {
        .key = "key", .key_bytes = 3, .value = value, .value_bytes = sizeof(value)};
    uint32_t ended = 0;
    uint32_t taken = 0;
    rig_open(&rig);
    assert_int_equal(append_sized(&rig, 0, 0, 1 << 20), -EMSGSIZE);
    while (mill_journal_append(rig.journal, rig.topic, 0, &record, 1, 1, count_only, &ended) == 0) {
        assert_true(++taken < 100);
    }
    assert_int_equal(
        mill_journal_append(rig.journal, rig.topic, 0, &record, 1, 1, count_only, &ended),
        -ENOBUFS);
    assert_int_equal(taken, MILL_JOURNAL_QUEUE_BYTES_MAX / sizeof(value));
    assert_int_equal(mill_journal_counters(rig.journal)->journal_full, 2);
    mill_journal_attach(rig.journal, 0); /* nothing was sent: nothing is in the log */
    assert_int_equal(ended, taken);
    rig_close(&rig);
}

/* --- reads ------------------------------------------------------------------------------------ */

static void note_read(void *context, const struct mill_journal_read *read)
{
    *(struct mill_journal_read *)context = *read;
}

static void test_reads_ask_and_end(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct mill_request_header header;
    struct mill_cursor at;
    struct mill_buf buf;
    struct mill_journal_read start = {0};
    struct mill_journal_read data = {0};
    rig_open(&rig);
    assert_int_equal(mill_journal_read(rig.journal, rig.topic, 2, -1, note_read, &start), 0);
    assert_true(request(&rig, &header, &at, &buf));
    assert_int_equal(header.api_key, MILL_API_KEY_LIST_OFFSETS);
    assert_int_equal(mill_journal_read(rig.journal, rig.topic, 2, 7, note_read, &data), 0);
    rig.now_ns += 2 * TIMEOUT_MS * MILL_NS_PER_MS;
    step(&rig);
    assert_int_equal(start.outcome, MILL_JOURNAL_REFUSED);
    assert_int_equal(data.outcome, MILL_JOURNAL_REFUSED);
    assert_int_equal(start.error, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(mill_journal_read(rig.journal, rig.topic, 2, 7, note_read, &data), 0);
    assert_true(request(&rig, &header, &at, &buf));
    assert_int_equal(header.api_key, MILL_API_KEY_FETCH);
    rig_close(&rig);
}

/* The end of the log, which may lie behind what can be read, is that of the leader's epoch. */
static void test_end_is_that_of_the_epoch(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct mill_request_header header;
    struct mill_cursor at;
    struct mill_buf buf;
    struct mill_journal_read end = {0};
    struct mill_offset_for_leader_epoch_request message;
    struct mill_offset_for_leader_epoch_request_topics topic;
    struct mill_offset_for_leader_epoch_request_topics_partitions part;
    rig_open(&rig);
    assert_int_equal(
        mill_journal_read(rig.journal, rig.topic, 2, MILL_JOURNAL_END, note_read, &end), 0);
    assert_true(request(&rig, &header, &at, &buf));
    assert_int_equal(header.api_key, MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH);
    assert_int_equal(mill_offset_for_leader_epoch_request_decode(&at, header.api_version, &message),
                     0);
    assert_true(mill_offset_for_leader_epoch_request_topics_next(&message.topics,
                                                                 header.api_version, &topic));
    assert_true(mill_offset_for_leader_epoch_request_topics_partitions_next(
        &topic.partitions, header.api_version, &part));
    assert_int_equal(part.partition, 2);
    assert_int_equal(part.leader_epoch, rig.topic->partitions[2].leader_epoch);
    rig_close(&rig);
}

/* --- markers --------------------------------------------------------------------------------- */

static int mark(struct rig *rig, int number, int32_t partition)
{
    struct one *one = malloc(sizeof(*one));
    const struct mill_journal_marker marker = {.producer_id = 1000 + number,
                                               .producer_epoch = (int16_t)number,
                                               .commit = number % 2 == 0,
                                               .version = (int8_t)(number % 3),
                                               .coordinator_epoch = 7};
    assert_non_null(one);
    *one = (struct one){rig, number};
    int rc = mill_journal_mark(rig->journal, rig->topic, partition, &marker, done, one);
    if (rc < 0) {
        free(one);
    }
    return rc;
}

/* Markers as the core reads them. */
struct marked {
    uint32_t count;
    int64_t producers[64];
    int32_t partitions[64];
    int16_t errors[64]; /* to answer with */
    int32_t correlation;
};

static bool take_marks(struct rig *rig, struct marked *ret)
{
    struct mill_request_header header;
    struct mill_cursor at;
    struct mill_buf buf;
    struct mill_write_txn_markers_request message;
    struct mill_write_txn_markers_request_markers one;
    *ret = (struct marked){0};
    if (!request(rig, &header, &at, &buf)) {
        return false;
    }
    assert_int_equal(header.api_key, MILL_API_KEY_WRITE_TXN_MARKERS);
    assert_int_equal(header.api_version, MARKERS_VERSION);
    ret->correlation = header.correlation_id;
    assert_int_equal(mill_write_txn_markers_request_decode(&at, MARKERS_VERSION, &message), 0);
    while (mill_write_txn_markers_request_markers_next(&message.markers, MARKERS_VERSION, &one)) {
        struct mill_write_txn_markers_request_markers_topics to;
        int64_t number = one.producer_id - 1000;
        assert_int_equal(one.producer_epoch, number);
        assert_int_equal(one.transaction_result, number % 2 == 0);
        assert_int_equal(one.coordinator_epoch, 7);
        assert_int_equal(one.transaction_version, number % 3);
        assert_true(
            mill_write_txn_markers_request_markers_topics_next(&one.topics, MARKERS_VERSION, &to));
        assert_int_equal(to.partition_indexes.count, 1);
        ret->producers[ret->count] = one.producer_id;
        assert_true(mill_warray_next_i32(&to.partition_indexes, &ret->partitions[ret->count]));
        ret->count++;
    }
    return true;
}

struct marked_at {
    const struct marked *marked;
    uint32_t *at;
};

static void get_marked_partition(const void *context, int32_t index, void *ret_element)
{
    const struct marked_at *from = context;
    struct mill_write_txn_markers_response_markers_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition_index = from->marked->partitions[*from->at];
    element->error_code = from->marked->errors[*from->at];
}

static void get_marked_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_write_txn_markers_response_markers_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of("__internal");
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_marked_partition, .context = context};
}

static void get_marked(const void *context, int32_t index, void *ret_element)
{
    const struct marked_at *from = context;
    struct mill_write_txn_markers_response_markers *element = ret_element;
    *from->at = (uint32_t)index;
    element->producer_id = from->marked->producers[index];
    element->topics = (struct mill_warray){.count = 1, .get = get_marked_topic, .context = context};
}

static void answer_marks(struct rig *rig, const struct marked *marked)
{
    uint8_t bytes[3072];
    uint32_t at = 0;
    const struct marked_at from = {marked, &at};
    struct mill_writer to;
    struct mill_write_txn_markers_response message;
    mill_write_txn_markers_response_defaults(&message);
    message.markers =
        (struct mill_warray){.count = (int32_t)marked->count, .get = get_marked, .context = &from};
    mill_writer_init(&to, bytes, sizeof(bytes), NULL, 0);
    mill_response_begin(&to, MILL_API_KEY_WRITE_TXN_MARKERS, MARKERS_VERSION, marked->correlation);
    (void)mill_write_txn_markers_response_encode(&to, MARKERS_VERSION, &message);
    int64_t size = mill_response_finish(&to);
    assert_true(size > 0);
    answer(rig, bytes, (uint32_t)size);
}

static void test_marks_share_requests_and_tell_what_is_known(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int16_t error;
        enum mill_journal_outcome outcome;
    } cases[] = {
        {MILL_KERR_NONE, MILL_JOURNAL_DONE},
        {MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, MILL_JOURNAL_REFUSED},
        {MILL_KERR_INVALID_PRODUCER_EPOCH, MILL_JOURNAL_REFUSED},
        {MILL_KERR_KAFKA_STORAGE_ERROR, MILL_JOURNAL_UNKNOWN},
    };
    struct rig rig;
    struct marked marked;
    rig_open(&rig);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mark(&rig, i, i), 0);
    }
    assert_true(take_marks(&rig, &marked));
    assert_int_equal(marked.count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(marked.partitions[i], i);
        marked.errors[i] = cases[i].error;
    }
    answer_marks(&rig, &marked);
    assert_int_equal(rig.ended_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        check_ended(&rig, i, (int)i, cases[i].outcome);
        assert_int_equal(rig.ended[i].result.error, cases[i].error);
    }
    rig_close(&rig);
}

static void test_marks_and_appends_take_turns(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct marked marked;
    struct produced produced;
    rig_open(&rig);
    append(&rig, 50, 0);
    assert_true(take_produce(&rig, &produced));
    append(&rig, 51, 0);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(mark(&rig, i, 0), 0);
    }
    answer_produce(&rig, &produced);
    assert_true(take_marks(&rig, &marked)); /* before the append that waits longer */
    assert_int_equal(marked.count, 40);
    answer_marks(&rig, &marked);
    assert_true(take_produce(&rig, &produced));
    answer_produce(&rig, &produced);
    assert_int_equal(rig.ended_count, 42);
    rig_close(&rig);
}

static void test_marks_of_a_lost_stream(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct marked marked;
    rig_open(&rig);
    assert_int_equal(mark(&rig, 0, 0), 0);
    assert_true(take_marks(&rig, &marked));
    assert_int_equal(mark(&rig, 1, 0), 0);
    rig.now_ns += 2 * TIMEOUT_MS * MILL_NS_PER_MS;
    step(&rig);
    assert_int_equal(rig.ended_count, 2);
    check_ended(&rig, 0, 0, MILL_JOURNAL_UNKNOWN); /* sent: it may be there */
    check_ended(&rig, 1, 1, MILL_JOURNAL_REFUSED);
    /* An answer about other markers than those that were asked for ends the stream too. */
    assert_int_equal(mark(&rig, 2, 0), 0);
    assert_true(take_marks(&rig, &marked));
    marked.producers[0]++;
    answer_marks(&rig, &marked);
    check_ended(&rig, 2, 2, MILL_JOURNAL_UNKNOWN);
    /* A closed journal tells everybody. */
    assert_int_equal(mark(&rig, 3, 0), 0);
    mill_journal_attach(rig.journal, 0);
    check_ended(&rig, 3, 3, MILL_JOURNAL_REFUSED);
    assert_int_equal(mark(&rig, 4, 0), -ENOTCONN);
    rig_close(&rig);
}

/* A batch has records of one transaction, or of none. */
static void test_transactions_have_batches_of_their_own(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        struct mill_journal_producer producer;
        int32_t records;
    } batches[] = {{{-1, -1}, 2}, {{5, 0}, 2}, {{5, 1}, 1}, {{6, 0}, 1}, {{-1, -1}, 1}};
    struct rig rig;
    struct produced produced;
    int number = 0;
    rig_open(&rig);
    for (size_t i = 0; i < MILL_COUNT_OF(batches); i++) {
        for (int32_t k = 0; k < batches[i].records; k++) {
            assert_int_equal(append_as(&rig, number++, 0, 5,
                                       batches[i].producer.id < 0 ? NULL : &batches[i].producer),
                             0);
        }
    }
    for (size_t i = 0; i < MILL_COUNT_OF(batches); i++) {
        assert_true(take_produce(&rig, &produced));
        assert_int_equal(produced.count, 1);
        assert_int_equal(produced.records[0], batches[i].records);
        assert_int_equal(produced.producers[0], batches[i].producer.id);
        answer_produce(&rig, &produced);
    }
    assert_int_equal(rig.ended_count, number);
    for (int i = 0; i < number; i++) {
        check_ended(&rig, (uint32_t)i, i, MILL_JOURNAL_DONE);
    }
    rig_close(&rig);
}

/* --- grants ---------------------------------------------------------------------------------- */

static void grant(struct rig *rig, int number, int32_t partition)
{
    struct one *one = malloc(sizeof(*one));
    const struct mill_journal_marker marker = {
        .grant = true, .producer_id = 1000 + number, .producer_epoch = (int16_t)number};
    assert_non_null(one);
    *one = (struct one){rig, number};
    assert_int_equal(mill_journal_mark(rig->journal, rig->topic, partition, &marker, done, one), 0);
}

static void get_granted_partition(const void *context, int32_t index, void *ret_element)
{
    const struct marked_at *from = context;
    struct
        mill_add_partitions_to_txn_response_results_by_transaction_topic_results_results_by_partition
            *element = ret_element;
    MILL_UNUSED(index);
    element->partition_index = from->marked->partitions[*from->at];
    element->partition_error_code = from->marked->errors[*from->at];
}

static void get_granted_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_add_partitions_to_txn_response_results_by_transaction_topic_results *element =
        ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of("__internal");
    element->results_by_partition =
        (struct mill_warray){.count = 1, .get = get_granted_partition, .context = context};
}

static void get_granted(const void *context, int32_t index, void *ret_element)
{
    const struct marked_at *from = context;
    struct mill_add_partitions_to_txn_response_results_by_transaction *element = ret_element;
    *from->at = (uint32_t)index;
    element->transactional_id = mill_wstr_of("");
    element->topic_results =
        (struct mill_warray){.count = 1, .get = get_granted_topic, .context = context};
}

static void answer_grants(struct rig *rig, const struct marked *granted)
{
    uint8_t bytes[3072];
    uint32_t at = 0;
    const struct marked_at from = {granted, &at};
    struct mill_writer to;
    struct mill_add_partitions_to_txn_response message;
    mill_add_partitions_to_txn_response_defaults(&message);
    message.results_by_transaction = (struct mill_warray){
        .count = (int32_t)granted->count, .get = get_granted, .context = &from};
    mill_writer_init(&to, bytes, sizeof(bytes), NULL, 0);
    mill_response_begin(&to, MILL_API_KEY_ADD_PARTITIONS_TO_TXN, 4, granted->correlation);
    (void)mill_add_partitions_to_txn_response_encode(&to, 4, &message);
    int64_t size = mill_response_finish(&to);
    assert_true(size > 0);
    answer(rig, bytes, (uint32_t)size);
}

static void take_grants(struct rig *rig, struct marked *ret)
{
    struct mill_request_header header;
    struct mill_cursor at;
    struct mill_buf buf;
    struct mill_add_partitions_to_txn_request message;
    struct mill_add_partitions_to_txn_request_transactions one;
    *ret = (struct marked){0};
    assert_true(request(rig, &header, &at, &buf));
    assert_int_equal(header.api_key, MILL_API_KEY_ADD_PARTITIONS_TO_TXN);
    ret->correlation = header.correlation_id;
    assert_int_equal(mill_add_partitions_to_txn_request_decode(&at, header.api_version, &message),
                     0);
    while (mill_add_partitions_to_txn_request_transactions_next(&message.transactions,
                                                                header.api_version, &one)) {
        struct mill_add_partitions_to_txn_request_transactions_topics to;
        assert_int_equal(one.producer_epoch, one.producer_id - 1000);
        assert_false(one.verify_only);
        assert_true(mill_add_partitions_to_txn_request_transactions_topics_next(
            &one.topics, header.api_version, &to));
        ret->producers[ret->count] = one.producer_id;
        assert_true(mill_warray_next_i32(&to.partitions, &ret->partitions[ret->count++]));
    }
}

/* A grant that came behind the marker would let in who is out. */
static void test_grants_and_markers_keep_their_order(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    struct marked taken;
    rig_open(&rig);
    grant(&rig, 0, 0);
    grant(&rig, 1, 3);
    assert_int_equal(mark(&rig, 2, 0), 0);
    grant(&rig, 3, 0);
    take_grants(&rig, &taken);
    assert_int_equal(taken.count, 2);
    assert_int_equal(taken.partitions[1], 3);
    taken.errors[1] = MILL_KERR_INVALID_PRODUCER_EPOCH;
    answer_grants(&rig, &taken);
    check_ended(&rig, 0, 0, MILL_JOURNAL_DONE);
    check_ended(&rig, 1, 1, MILL_JOURNAL_REFUSED);
    assert_int_equal(rig.ended[1].result.error, MILL_KERR_INVALID_PRODUCER_EPOCH);
    assert_true(take_marks(&rig, &taken));
    assert_int_equal(taken.count, 1);
    answer_marks(&rig, &taken);
    take_grants(&rig, &taken);
    assert_int_equal(taken.count, 1);
    answer_grants(&rig, &taken);
    assert_int_equal(rig.ended_count, 4);
    rig_close(&rig);
}

/* --- walking --------------------------------------------------------------------------------- */

struct walked {
    uint32_t records;
    uint32_t markers;
    struct mill_journal_at last;
    bool commit;
};

static void walk_record(void *context, const struct mill_journal_at *at,
                        const struct mill_record *record)
{
    struct walked *walked = context;
    MILL_UNUSED(record);
    walked->records++;
    walked->last = *at;
}

static void walk_marker(void *context, const struct mill_journal_at *at, bool commit)
{
    struct walked *walked = context;
    walked->markers++;
    walked->last = *at;
    walked->commit = commit;
}

static void test_walk_meets_markers(void **state)
{
    MILL_UNUSED(state);
    uint8_t bytes[2 * MILL_MARKER_BYTES];
    struct mill_batch batch;
    struct walked walked = {0};
    uint32_t skipped = 0;
    const struct mill_journal_visitor visitor = {walk_record, walk_marker, &walked};
    for (uint32_t i = 0; i < 2; i++) {
        const struct mill_marker marker = {.type = i == 0 ? MILL_MARKER_ABORT : MILL_MARKER_COMMIT};
        mill_marker_write(bytes + i * MILL_MARKER_BYTES, &marker, 70 + i, 3, 1000, false, &batch);
        mill_store_be64(bytes + i * MILL_MARKER_BYTES, 20 + i);
    }
    assert_int_equal(mill_journal_walk(bytes, sizeof(bytes), 20, &visitor, &skipped), 22);
    assert_int_equal(walked.markers, 2);
    assert_int_equal(walked.last.producer_id, 71);
    assert_int_equal(walked.last.offset, 21);
    assert_true(walked.commit);
    assert_int_equal(mill_journal_walk(bytes, sizeof(bytes), 21, &visitor, &skipped), 22);
    assert_int_equal(walked.markers, 3); /* what was visited before is not again */
    assert_int_equal(walked.records + skipped, 0);
}

static void count_done(void *context, const struct mill_journal_result *result)
{
    MILL_UNUSED(result);
    (*(uint32_t *)context)++;
}

static void test_marks_are_bounded(void **state)
{
    MILL_UNUSED(state);
    struct rig rig;
    uint32_t ended = 0;
    const struct mill_journal_marker marker = {.producer_id = 1};
    rig_open(&rig);
    for (uint32_t i = 0; i < MILL_JOURNAL_MARKS_MAX; i++) {
        assert_int_equal(mill_journal_mark(rig.journal, rig.topic, 0, &marker, count_done, &ended),
                         0);
    }
    assert_int_equal(mill_journal_mark(rig.journal, rig.topic, 0, &marker, count_done, &ended),
                     -ENOBUFS);
    assert_int_equal(mill_journal_counters(rig.journal)->journal_full, 1);
    rig_close(&rig);
    assert_int_equal(ended, MILL_JOURNAL_MARKS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_appends_share_batches_and_end_in_order),
        cmocka_unit_test(test_errors_tell_what_is_known),
        cmocka_unit_test(test_silent_core_costs_its_stream),
        cmocka_unit_test(test_other_dataplane_ends_everything),
        cmocka_unit_test(test_malformed_answer_costs_the_stream),
        cmocka_unit_test(test_sizes_are_bounded),
        cmocka_unit_test(test_reads_ask_and_end),
        cmocka_unit_test(test_end_is_that_of_the_epoch),
        cmocka_unit_test(test_transactions_have_batches_of_their_own),
        cmocka_unit_test(test_grants_and_markers_keep_their_order),
        cmocka_unit_test(test_walk_meets_markers),
        cmocka_unit_test(test_marks_share_requests_and_tell_what_is_known),
        cmocka_unit_test(test_marks_and_appends_take_turns),
        cmocka_unit_test(test_marks_of_a_lost_stream),
        cmocka_unit_test(test_marks_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
