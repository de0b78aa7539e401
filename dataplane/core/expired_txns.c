/* SPDX-License-Identifier: Apache-2.0 */
/* What a transactional producer is told when control did not answer in time: that its coordinator
 * is not available, in the form of its API. The client looks for it again and repeats; each of
 * these requests may be repeated. On the core; bounded by the request. */
#include "dataplane/core/core_types.h"

#include "protocol/errors.h"

enum {
    GONE = MILL_KERR_COORDINATOR_NOT_AVAILABLE,
};

/* The request is walked once more while the answer is written. */
struct txn_fill {
    int16_t version;
    struct mill_warray transactions;
    struct mill_warray topics;
    struct mill_warray partitions;
};

static struct txn_fill *fill_of(const void *context)
{
    return (void *)(uintptr_t)context;
}

static struct mill_warray answer_array(const struct mill_warray *asked, mill_warray_get get,
                                       const struct txn_fill *fill)
{
    return (struct mill_warray){.count = MILL_MAX(asked->count, 0), .get = get, .context = fill};
}

static int init_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_init_producer_id_response answer;
    MILL_UNUSED(context);
    mill_init_producer_id_response_defaults(&answer);
    answer.error_code = GONE;
    answer.producer_epoch = -1;
    return mill_init_producer_id_response_encode(to, request->header.api_version, &answer);
}

static int offsets_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_add_offsets_to_txn_response answer;
    MILL_UNUSED(context);
    mill_add_offsets_to_txn_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_add_offsets_to_txn_response_encode(to, request->header.api_version, &answer);
}

static int end_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_end_txn_response answer;
    MILL_UNUSED(context);
    mill_end_txn_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_end_txn_response_encode(to, request->header.api_version, &answer);
}

static int list_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_list_transactions_response answer;
    MILL_UNUSED(context);
    mill_list_transactions_response_defaults(&answer);
    answer.error_code = GONE;
    return mill_list_transactions_response_encode(to, request->header.api_version, &answer);
}

static void get_described(const void *context, int32_t index, void *ret_element)
{
    struct txn_fill *fill = fill_of(context);
    struct mill_describe_transactions_response_transaction_states *element = ret_element;
    MILL_UNUSED(index);
    bool more = mill_warray_next_str(&fill->transactions, true, &element->transactional_id);
    MILL_ASSERT(more);
    element->error_code = GONE;
    element->transaction_state = mill_wstr_of("");
}

static int describe_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct txn_fill *fill = context;
    struct mill_describe_transactions_request asked;
    struct mill_describe_transactions_response answer;
    struct mill_cursor at = request->body;
    int r = mill_describe_transactions_request_decode(&at, fill->version, &asked);
    if (r < 0) {
        return r;
    }
    mill_describe_transactions_response_defaults(&answer);
    fill->transactions = asked.transactional_ids;
    answer.transaction_states = answer_array(&fill->transactions, get_described, fill);
    return mill_describe_transactions_response_encode(to, fill->version, &answer);
}

/* --- partitions ------------------------------------------------------------------------------ */

static void get_added(const void *context, int32_t index, void *ret_element)
{
    struct txn_fill *fill = fill_of(context);
    struct mill_add_partitions_to_txn_response_results_by_topic_v3_and_below_results_by_partition
        *element = ret_element;
    MILL_UNUSED(index);
    bool more = mill_warray_next_i32(&fill->partitions, &element->partition_index);
    MILL_ASSERT(more);
    element->partition_error_code = GONE;
}

static void get_added_topic(const void *context, int32_t index, void *ret_element)
{
    struct txn_fill *fill = fill_of(context);
    struct mill_add_partitions_to_txn_response_results_by_topic_v3_and_below *element = ret_element;
    struct mill_add_partitions_to_txn_request_v3_and_below_topics asked;
    MILL_UNUSED(index);
    bool more = mill_add_partitions_to_txn_request_v3_and_below_topics_next(&fill->topics,
                                                                            fill->version, &asked);
    MILL_ASSERT(more);
    element->name = asked.name;
    fill->partitions = asked.partitions;
    element->results_by_partition = answer_array(&fill->partitions, get_added, fill);
}

/* From version 4 on the whole answer has an error. */
static int add_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct txn_fill *fill = context;
    struct mill_add_partitions_to_txn_request asked;
    struct mill_add_partitions_to_txn_response answer;
    struct mill_cursor at = request->body;
    int r = mill_add_partitions_to_txn_request_decode(&at, fill->version, &asked);
    if (r < 0) {
        return r;
    }
    mill_add_partitions_to_txn_response_defaults(&answer);
    fill->topics = asked.v3_and_below_topics;
    answer.error_code = GONE;
    answer.results_by_topic_v3_and_below = answer_array(&fill->topics, get_added_topic, fill);
    return mill_add_partitions_to_txn_response_encode(to, fill->version, &answer);
}

/* --- offsets --------------------------------------------------------------------------------- */

static void get_committed(const void *context, int32_t index, void *ret_element)
{
    struct txn_fill *fill = fill_of(context);
    struct mill_txn_offset_commit_response_topics_partitions *element = ret_element;
    struct mill_txn_offset_commit_request_topics_partitions asked;
    MILL_UNUSED(index);
    bool more = mill_txn_offset_commit_request_topics_partitions_next(&fill->partitions,
                                                                      fill->version, &asked);
    MILL_ASSERT(more);
    element->partition_index = asked.partition_index;
    element->error_code = GONE;
}

static void get_committed_topic(const void *context, int32_t index, void *ret_element)
{
    struct txn_fill *fill = fill_of(context);
    struct mill_txn_offset_commit_response_topics *element = ret_element;
    struct mill_txn_offset_commit_request_topics asked;
    MILL_UNUSED(index);
    bool more = mill_txn_offset_commit_request_topics_next(&fill->topics, fill->version, &asked);
    MILL_ASSERT(more);
    element->name = asked.name;
    element->topic_id = asked.topic_id;
    fill->partitions = asked.partitions;
    element->partitions = answer_array(&fill->partitions, get_committed, fill);
}

static int commit_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct txn_fill *fill = context;
    struct mill_txn_offset_commit_request asked;
    struct mill_txn_offset_commit_response answer;
    struct mill_cursor at = request->body;
    int r = mill_txn_offset_commit_request_decode(&at, fill->version, &asked);
    if (r < 0) {
        return r;
    }
    mill_txn_offset_commit_response_defaults(&answer);
    fill->topics = asked.topics;
    answer.topics = answer_array(&fill->topics, get_committed_topic, fill);
    return mill_txn_offset_commit_response_encode(to, fill->version, &answer);
}

/* --------------------------------------------------------------------------------------------- */

bool mill_forward_expired_txn(struct mill_core *core, struct mill_request *request)
{
    struct txn_fill fill = {.version = request->header.api_version};
    mill_answer_fill write = NULL;
    switch (request->header.api_key) {
    case MILL_API_KEY_INIT_PRODUCER_ID:
        write = init_fill;
        break;
    case MILL_API_KEY_ADD_PARTITIONS_TO_TXN:
        write = add_fill;
        break;
    case MILL_API_KEY_ADD_OFFSETS_TO_TXN:
        write = offsets_fill;
        break;
    case MILL_API_KEY_END_TXN:
        write = end_fill;
        break;
    case MILL_API_KEY_TXN_OFFSET_COMMIT:
        write = commit_fill;
        break;
    case MILL_API_KEY_DESCRIBE_TRANSACTIONS:
        write = describe_fill;
        break;
    case MILL_API_KEY_LIST_TRANSACTIONS:
        write = list_fill;
        break;
    default:
        return false;
    }
    mill_answer_send(core, request, write, &fill);
    return true;
}
