/* SPDX-License-Identifier: Apache-2.0 */
/* AddPartitionsToTxn from control: the transactions' coordinator tells the cores which producers
 * may write to which partitions from now on, one op per partition. Only on control's stream, where
 * it cannot pass a marker of the same partition (docs/decisions/0023). ref: KIP-890 */
#include "dataplane/core/core_types.h"

#include "protocol/errors.h"

enum {
    BATCHED_VERSION = 4, /* many transactions in one request */
};

/* Where a walk over the request is. The answer is written by the same walk. */
struct walk {
    const struct mill_request *request;
    struct mill_warray transactions;
    struct mill_warray topics;
    struct mill_warray indexes;
    uint32_t op_index;
};

static uint32_t partitions_count(struct mill_warray transactions, int16_t version)
{
    uint32_t count = 0;
    struct mill_add_partitions_to_txn_request_transactions transaction;
    while (mill_add_partitions_to_txn_request_transactions_next(&transactions, version,
                                                                &transaction)) {
        struct mill_add_partitions_to_txn_request_transactions_topics topic;
        while (mill_add_partitions_to_txn_request_transactions_topics_next(&transaction.topics,
                                                                           version, &topic)) {
            count += (uint32_t)MILL_MAX(topic.partitions.count, 0);
        }
    }
    return count;
}

static void op_begin(struct mill_core *core, struct mill_request *request, uint32_t index,
                     const struct mill_add_partitions_to_txn_request_transactions *transaction,
                     const struct mill_wstr *name, int32_t partition)
{
    const struct mill_map_topic *topic = NULL;
    struct mill_op *op = &request->ops[index];
    op->kind = MILL_OP_GRANT;
    op->partition = partition;
    op->marker = (struct mill_marker_append){.producer_id = transaction->producer_id,
                                             .producer_epoch = transaction->producer_epoch};
    op->error = (int16_t)mill_locate(core, name, partition, op, &topic);
    if (op->error == MILL_KERR_NONE &&
        (transaction->producer_id < 0 || transaction->producer_epoch < 0)) {
        op->error = MILL_KERR_INVALID_REQUEST;
    }
    if (op->error == MILL_KERR_NONE) {
        mill_request_op_start(core, request, index);
    }
}

void mill_grants_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_add_partitions_to_txn_request message;
    struct mill_cursor at = request->body;
    if (version < BATCHED_VERSION ||
        mill_add_partitions_to_txn_request_decode(&at, version, &message) < 0) {
        mill_request_malformed(core, request);
        return;
    }
    if (!mill_request_ops_take(core, request, partitions_count(message.transactions, version))) {
        return;
    }
    struct mill_add_partitions_to_txn_request_transactions transaction;
    uint32_t index = 0;
    while (mill_add_partitions_to_txn_request_transactions_next(&message.transactions, version,
                                                                &transaction)) {
        struct mill_add_partitions_to_txn_request_transactions_topics topic;
        struct mill_warray topics = transaction.topics;
        while (
            mill_add_partitions_to_txn_request_transactions_topics_next(&topics, version, &topic)) {
            int32_t partition;
            while (mill_warray_next_i32(&topic.partitions, &partition)) {
                op_begin(core, request, index++, &transaction, &topic.name, partition);
            }
        }
    }
    mill_request_ops_begun(core, request);
}

/* --- answer ---------------------------------------------------------------------------------- */

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    struct walk *walk = (void *)(uintptr_t)context;
    struct
        mill_add_partitions_to_txn_response_results_by_transaction_topic_results_results_by_partition
            *element = ret_element;
    MILL_UNUSED(index);
    bool more = mill_warray_next_i32(&walk->indexes, &element->partition_index);
    MILL_ASSERT(more);
    element->partition_error_code = walk->request->ops[walk->op_index++].error;
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    struct walk *walk = (void *)(uintptr_t)context;
    struct mill_add_partitions_to_txn_response_results_by_transaction_topic_results *element =
        ret_element;
    struct mill_add_partitions_to_txn_request_transactions_topics topic;
    MILL_UNUSED(index);
    bool more = mill_add_partitions_to_txn_request_transactions_topics_next(
        &walk->topics, walk->request->header.api_version, &topic);
    MILL_ASSERT(more);
    walk->indexes = topic.partitions;
    element->name = topic.name;
    element->results_by_partition = (struct mill_warray){
        .count = MILL_MAX(topic.partitions.count, 0), .get = get_partition, .context = walk};
}

static void get_transaction(const void *context, int32_t index, void *ret_element)
{
    struct walk *walk = (void *)(uintptr_t)context;
    struct mill_add_partitions_to_txn_response_results_by_transaction *element = ret_element;
    struct mill_add_partitions_to_txn_request_transactions transaction;
    MILL_UNUSED(index);
    bool more = mill_add_partitions_to_txn_request_transactions_next(
        &walk->transactions, walk->request->header.api_version, &transaction);
    MILL_ASSERT(more);
    walk->topics = transaction.topics;
    element->transactional_id = transaction.transactional_id;
    element->topic_results = (struct mill_warray){
        .count = MILL_MAX(transaction.topics.count, 0), .get = get_topic, .context = walk};
}

static int grants_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct walk *walk = context;
    int16_t version = request->header.api_version;
    struct mill_add_partitions_to_txn_request message;
    struct mill_add_partitions_to_txn_response answer;
    struct mill_cursor at = request->body;
    int r = mill_add_partitions_to_txn_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    walk->transactions = message.transactions;
    walk->op_index = 0;
    mill_add_partitions_to_txn_response_defaults(&answer);
    answer.results_by_transaction = (struct mill_warray){
        .count = MILL_MAX(message.transactions.count, 0), .get = get_transaction, .context = walk};
    return mill_add_partitions_to_txn_response_encode(to, version, &answer);
}

void mill_grants_done(struct mill_core *core, struct mill_request *request)
{
    struct walk walk = {.request = request};
    mill_answer_send(core, request, grants_fill, &walk);
}
