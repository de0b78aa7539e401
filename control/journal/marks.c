/* SPDX-License-Identifier: Apache-2.0 */
/* See marks.h. Each partition is an element of its own, so that the answer has one for each, in
 * this order. */
#include "control/journal/marks.h"

#include "protocol/messages.h"

enum {
    MARKERS_VERSION = 2,
    GRANTS_VERSION = 4, /* many transactions in one request */
};

int16_t mill_marks_key(struct mill_mark *const *marks)
{
    return marks[0]->marker.grant ? MILL_API_KEY_ADD_PARTITIONS_TO_TXN
                                  : MILL_API_KEY_WRITE_TXN_MARKERS;
}

int16_t mill_marks_version(int16_t key)
{
    return key == MILL_API_KEY_ADD_PARTITIONS_TO_TXN ? GRANTS_VERSION : MARKERS_VERSION;
}

/* --- markers ----------------------------------------------------------------------------------
 */

static void get_index(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    *(int32_t *)ret_element = ((const struct mill_mark *)context)->index;
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_mark *mark = context;
    struct mill_write_txn_markers_request_markers_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(mark->topic);
    element->partition_indexes =
        (struct mill_warray){.count = 1, .get = get_index, .context = mark};
}

static void get_marker(const void *context, int32_t index, void *ret_element)
{
    const struct mill_mark *mark = ((struct mill_mark *const *)context)[index];
    struct mill_write_txn_markers_request_markers *element = ret_element;
    element->producer_id = mark->marker.producer_id;
    element->producer_epoch = mark->marker.producer_epoch;
    element->transaction_result = mark->marker.commit;
    element->coordinator_epoch = mark->marker.coordinator_epoch;
    element->transaction_version = mark->marker.version;
    element->topics = (struct mill_warray){.count = 1, .get = get_topic, .context = mark};
}

static int markers_encode(struct mill_writer *to, struct mill_mark *const *marks, uint32_t count)
{
    struct mill_write_txn_markers_request message;
    mill_write_txn_markers_request_defaults(&message);
    message.markers =
        (struct mill_warray){.count = (int32_t)count, .get = get_marker, .context = marks};
    return mill_write_txn_markers_request_encode(to, MARKERS_VERSION, &message);
}

static bool markers_parse(struct mill_cursor *at, struct mill_mark *const *marks, uint32_t count,
                          int16_t *ret_errors)
{
    struct mill_write_txn_markers_response message;
    struct mill_write_txn_markers_response_markers marker;
    struct mill_write_txn_markers_response_markers_topics topic;
    struct mill_write_txn_markers_response_markers_topics_partitions part;
    uint32_t seen = 0;
    if (mill_write_txn_markers_response_decode(at, MARKERS_VERSION, &message) < 0) {
        return false;
    }
    while (
        mill_write_txn_markers_response_markers_next(&message.markers, MARKERS_VERSION, &marker)) {
        if (seen == count || marker.producer_id != marks[seen]->marker.producer_id ||
            !mill_write_txn_markers_response_markers_topics_next(&marker.topics, MARKERS_VERSION,
                                                                 &topic) ||
            !mill_write_txn_markers_response_markers_topics_partitions_next(
                &topic.partitions, MARKERS_VERSION, &part) ||
            part.partition_index != marks[seen]->index) {
            return false;
        }
        ret_errors[seen++] = part.error_code;
    }
    return seen == count;
}

/* --- grants -----------------------------------------------------------------------------------
 */

static void get_added_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_mark *mark = context;
    struct mill_add_partitions_to_txn_request_transactions_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(mark->topic);
    element->partitions = (struct mill_warray){.count = 1, .get = get_index, .context = mark};
}

static void get_added(const void *context, int32_t index, void *ret_element)
{
    const struct mill_mark *mark = ((struct mill_mark *const *)context)[index];
    struct mill_add_partitions_to_txn_request_transactions *element = ret_element;
    element->transactional_id = mill_wstr_of(""); /* the core need not know it */
    element->producer_id = mark->marker.producer_id;
    element->producer_epoch = mark->marker.producer_epoch;
    element->verify_only = false;
    element->topics = (struct mill_warray){.count = 1, .get = get_added_topic, .context = mark};
}

static int grants_encode(struct mill_writer *to, struct mill_mark *const *marks, uint32_t count)
{
    struct mill_add_partitions_to_txn_request message;
    mill_add_partitions_to_txn_request_defaults(&message);
    message.transactions =
        (struct mill_warray){.count = (int32_t)count, .get = get_added, .context = marks};
    return mill_add_partitions_to_txn_request_encode(to, GRANTS_VERSION, &message);
}

static bool grants_parse(struct mill_cursor *at, struct mill_mark *const *marks, uint32_t count,
                         int16_t *ret_errors)
{
    struct mill_add_partitions_to_txn_response message;
    struct mill_add_partitions_to_txn_response_results_by_transaction transaction;
    struct mill_add_partitions_to_txn_response_results_by_transaction_topic_results topic;
    struct
        mill_add_partitions_to_txn_response_results_by_transaction_topic_results_results_by_partition
            part;
    uint32_t seen = 0;
    if (mill_add_partitions_to_txn_response_decode(at, GRANTS_VERSION, &message) < 0) {
        return false;
    }
    while (mill_add_partitions_to_txn_response_results_by_transaction_next(
        &message.results_by_transaction, GRANTS_VERSION, &transaction)) {
        if (seen == count ||
            !mill_add_partitions_to_txn_response_results_by_transaction_topic_results_next(
                &transaction.topic_results, GRANTS_VERSION, &topic) ||
            !mill_add_partitions_to_txn_response_results_by_transaction_topic_results_results_by_partition_next(
                &topic.results_by_partition, GRANTS_VERSION, &part) ||
            part.partition_index != marks[seen]->index) {
            return false;
        }
        ret_errors[seen++] = part.partition_error_code;
    }
    return seen == count;
}

/* --- either -----------------------------------------------------------------------------------
 */

int mill_marks_encode(struct mill_writer *to, struct mill_mark *const *marks, uint32_t count)
{
    return marks[0]->marker.grant ? grants_encode(to, marks, count)
                                  : markers_encode(to, marks, count);
}

bool mill_marks_parse(struct mill_cursor *at, struct mill_mark *const *marks, uint32_t count,
                      int16_t *ret_errors)
{
    return marks[0]->marker.grant ? grants_parse(at, marks, count, ret_errors)
                                  : markers_parse(at, marks, count, ret_errors);
}
