/* SPDX-License-Identifier: Apache-2.0 */
/* WriteTxnMarkers; see marks.h. A marker of a partition is an element of its own, so that the
 * answer has one for each, in this order. */
#include "control/journal/marks.h"

#include "protocol/messages.h"

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
    element->topics = (struct mill_warray){.count = 1, .get = get_topic, .context = mark};
}

int mill_marks_encode(struct mill_writer *to, struct mill_mark *const *marks, uint32_t count)
{
    struct mill_write_txn_markers_request message;
    mill_write_txn_markers_request_defaults(&message);
    message.markers =
        (struct mill_warray){.count = (int32_t)count, .get = get_marker, .context = marks};
    return mill_write_txn_markers_request_encode(to, MILL_MARKS_VERSION, &message);
}

bool mill_marks_parse(struct mill_cursor *at, struct mill_mark *const *marks, uint32_t count,
                      int16_t *ret_errors)
{
    struct mill_write_txn_markers_response message;
    struct mill_write_txn_markers_response_markers marker;
    struct mill_write_txn_markers_response_markers_topics topic;
    struct mill_write_txn_markers_response_markers_topics_partitions part;
    uint32_t seen = 0;
    if (mill_write_txn_markers_response_decode(at, MILL_MARKS_VERSION, &message) < 0) {
        return false;
    }
    while (mill_write_txn_markers_response_markers_next(&message.markers, MILL_MARKS_VERSION,
                                                        &marker)) {
        if (seen == count || marker.producer_id != marks[seen]->marker.producer_id ||
            !mill_write_txn_markers_response_markers_topics_next(&marker.topics, MILL_MARKS_VERSION,
                                                                 &topic) ||
            !mill_write_txn_markers_response_markers_topics_partitions_next(
                &topic.partitions, MILL_MARKS_VERSION, &part) ||
            part.partition_index != marks[seen]->index) {
            return false;
        }
        ret_errors[seen++] = part.error_code;
    }
    return seen == count;
}
