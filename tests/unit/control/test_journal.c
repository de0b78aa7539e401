/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every append ends once, in order, with what is known of it, whatever the core answers or
 * does not answer; appends that come meanwhile share a batch; queues are bounded. Method: the
 * journal alone; the test is the core at the other end of the rings and reads the requests. Markers
 * and grants: test_journal_marks.c. */
#include "tests/unit/control/journal_rig.h"

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
        cmocka_unit_test(test_walk_meets_markers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
