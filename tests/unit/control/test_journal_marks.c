/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every marker and grant ends once, in order, with what is known of it; those of one core
 * share requests, take turns with appends and are bounded. Method: as test_journal.c. */
#include "tests/unit/control/journal_rig.h"

enum {
    MARKERS_VERSION = 2, /* of WriteTxnMarkers */
};

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
        cmocka_unit_test(test_grants_and_markers_keep_their_order),
        cmocka_unit_test(test_marks_share_requests_and_tell_what_is_known),
        cmocka_unit_test(test_marks_and_appends_take_turns),
        cmocka_unit_test(test_marks_of_a_lost_stream),
        cmocka_unit_test(test_marks_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
