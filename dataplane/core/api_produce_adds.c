/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions that a Produce adds to its transaction: from version 12 on a client sends no
 * AddPartitionsToTxn, so the first batch in a partition finds nobody who vouches for it. The core
 * then sends that request itself, to control, as a frame of its own; the answer comes when the log
 * of transactions has the partition and its owner the grant (docs/decisions/0034). Then the batch
 * is tried again, once. On the core; one question at a time for a request, of as many partitions as
 * its encoding buffer holds. ref: KIP-890 */
#include "dataplane/core/core_types.h"

#include "protocol/errors.h"

enum {
    ADD_VERSION = 5,
    PARTITION_BYTES = MILL_TOPIC_NAME_MAX + 32, /* of one in the frame, with its topic's name */
    FRAME_EXTRA_BYTES = 256,                    /* header and fixed fields */
};

/* What an op is to the question. */
enum asked {
    ASKED_NOT,
    ASKED_NOW,
    ASKED_BEFORE,
};

/* The frame, while it is encoded. */
struct adds {
    const struct mill_core *core;
    const struct mill_request *request;
    struct mill_wstr transactional_id;
    struct mill_batch batch; /* says whose transaction it is */
    uint32_t count;
    uint32_t op_index; /* of the next to be looked at */
};

static void batch_of(const struct mill_op *op, struct mill_batch *ret_batch)
{
    uint8_t header[MILL_BATCH_HEADER_BYTES];
    struct mill_cursor at = op->records;
    int r = mill_cursor_read(&at, header, sizeof(header));
    MILL_ASSERT_EQ(r, 0); /* the log has read it */
    mill_batch_read(header, ret_batch);
}

static void id_of(const struct mill_request *request, struct mill_wstr *ret_id)
{
    struct mill_produce_request message;
    struct mill_cursor at = request->body;
    int r = mill_produce_request_decode(&at, request->header.api_version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    *ret_id = message.transactional_id;
}

static void op_refuse(struct mill_op *op, int16_t error)
{
    static const char text[] = "the partition was not added to the transaction";
    op->asked = ASKED_BEFORE;
    op->error = error;
    memcpy(op->message, text, sizeof(text));
}

/* Marks the ops of one transaction that are asked for now. ret: how many. */
static uint32_t choose(struct mill_core *core, struct mill_request *request)
{
    struct mill_wstr id;
    struct mill_batch first = {.producer_id = -1};
    uint32_t count = 0;
    id_of(request, &id);
    uint32_t id_bytes = (uint32_t)MILL_MAX(id.length, 0) + FRAME_EXTRA_BYTES;
    uint32_t most =
        id_bytes < MILL_ANSWER_BYTES ? (MILL_ANSWER_BYTES - id_bytes) / PARTITION_BYTES : 0;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        struct mill_batch batch;
        if (!op->unvouched || op->asked != ASKED_NOT) {
            continue;
        }
        if (most == 0 || !mill_map_topic_by_id(core->map, &op->topic_id)) {
            op_refuse(op, most == 0 ? (int16_t)MILL_KERR_INVALID_REQUEST
                                    : (int16_t)MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
            continue;
        }
        batch_of(op, &batch);
        first = count == 0 ? batch : first;
        if (count < most && batch.producer_id == first.producer_id &&
            batch.producer_epoch == first.producer_epoch) {
            op->asked = ASKED_NOW;
            count++;
        }
    }
    return count;
}

/* --- the question ------------------------------------------------------------------------------
 */

static void get_index(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    *(int32_t *)ret_element = ((const struct mill_op *)context)->partition;
}

/* Each partition is a topic of its own, so that the answer has one for each in this order. */
static void get_topic(const void *context, int32_t index, void *ret_element)
{
    struct adds *adds = (void *)(uintptr_t)context;
    struct mill_add_partitions_to_txn_request_transactions_topics *element = ret_element;
    MILL_UNUSED(index);
    while (adds->request->ops[adds->op_index].asked != ASKED_NOW) {
        adds->op_index++;
    }
    const struct mill_op *op = &adds->request->ops[adds->op_index++];
    const struct mill_map_topic *topic = mill_map_topic_by_id(adds->core->map, &op->topic_id);
    element->name = mill_wstr_of(topic ? topic->name : ""); /* gone while it was held: unknown */
    element->partitions = (struct mill_warray){.count = 1, .get = get_index, .context = op};
}

static void get_transaction(const void *context, int32_t index, void *ret_element)
{
    const struct adds *adds = context;
    struct mill_add_partitions_to_txn_request_transactions *element = ret_element;
    MILL_UNUSED(index);
    element->transactional_id = adds->transactional_id;
    element->producer_id = adds->batch.producer_id;
    element->producer_epoch = adds->batch.producer_epoch;
    element->verify_only = false;
    element->topics =
        (struct mill_warray){.count = (int32_t)adds->count, .get = get_topic, .context = adds};
}

/* Sends what is marked. */
static void ask(struct mill_core *core, struct mill_request *request)
{
    struct adds adds = {.core = core, .request = request};
    struct mill_add_partitions_to_txn_request message;
    const struct mill_request_header header = {.api_key = MILL_API_KEY_ADD_PARTITIONS_TO_TXN,
                                               .api_version = ADD_VERSION,
                                               .client_id = mill_wstr_of("millraced")};
    struct mill_writer to;
    struct mill_buf buf;
    id_of(request, &adds.transactional_id);
    for (uint32_t i = request->ops_count; i-- > 0;) {
        if (request->ops[i].asked == ASKED_NOW) {
            batch_of(&request->ops[i], &adds.batch);
            adds.count++;
        }
    }
    mill_add_partitions_to_txn_request_defaults(&message);
    message.transactions =
        (struct mill_warray){.count = 1, .get = get_transaction, .context = &adds};
    mill_writer_init(&to, core->answer_bytes, MILL_ANSWER_BYTES, NULL, 0);
    mill_wire_request_begin(&to, &header);
    (void)mill_add_partitions_to_txn_request_encode(&to, ADD_VERSION, &message);
    int64_t size = mill_wire_request_finish(&to);
    MILL_ASSERT(size > MILL_FRAME_SIZE_BYTES); /* the room was counted */
    struct mill_cursor frame = mill_cursor_over(&buf, core->answer_bytes + MILL_FRAME_SIZE_BYTES,
                                                (uint32_t)size - MILL_FRAME_SIZE_BYTES);
    mill_forward_own(core, request, &frame);
}

bool mill_produce_adds_begin(struct mill_core *core, struct mill_request *request)
{
    bool now = false;
    bool wanted = false;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        const struct mill_op *op = &request->ops[i];
        now = now || (op->unvouched && op->asked == ASKED_NOW);
        wanted = wanted || (op->unvouched && op->asked == ASKED_NOT);
    }
    if (now) {
        ask(core, request); /* it found no room before */
        return true;
    }
    if (!wanted || choose(core, request) == 0) {
        return false;
    }
    mill_heap_remove(&core->heap, &request->deadline);
    request->deadline_ns = MILL_NEVER;
    ask(core, request);
    return true;
}

/* --- the answer --------------------------------------------------------------------------------
 */

/* What the client of a Produce is told where the coordinator did not add its partition: errors that
 * say to ask the coordinator again are not for it (as Kafka's leaders translate them). */
static int16_t told(int16_t error)
{
    switch (error) {
    case MILL_KERR_PRODUCER_FENCED:
        return MILL_KERR_INVALID_PRODUCER_EPOCH;
    case MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS:
    case MILL_KERR_COORDINATOR_NOT_AVAILABLE:
    case MILL_KERR_NOT_COORDINATOR:
    case MILL_KERR_OPERATION_NOT_ATTEMPTED:
        return MILL_KERR_NOT_ENOUGH_REPLICAS;
    default:
        return error;
    }
}

/* The next error of the answer. ret: as if control had not answered, when there is none. */
static int16_t error_next(struct mill_warray *topics)
{
    struct mill_add_partitions_to_txn_response_results_by_transaction_topic_results topic;
    struct
        mill_add_partitions_to_txn_response_results_by_transaction_topic_results_results_by_partition
            partition;
    bool there =
        mill_add_partitions_to_txn_response_results_by_transaction_topic_results_next(
            topics, ADD_VERSION, &topic) &&
        mill_add_partitions_to_txn_response_results_by_transaction_topic_results_results_by_partition_next(
            &topic.results_by_partition, ADD_VERSION, &partition);
    return there ? partition.partition_error_code : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE;
}

void mill_produce_adds_answer(struct mill_core *core, struct mill_request *request,
                              struct mill_cursor bytes)
{
    struct mill_add_partitions_to_txn_response message;
    struct mill_add_partitions_to_txn_response_results_by_transaction transaction;
    struct mill_warray topics = {0};
    int32_t correlation;
    if (mill_cursor_skip(&bytes, MILL_FRAME_SIZE_BYTES) == 0 &&
        mill_response_header_decode(&bytes, MILL_API_KEY_ADD_PARTITIONS_TO_TXN, ADD_VERSION,
                                    &correlation) == 0 &&
        mill_add_partitions_to_txn_response_decode(&bytes, ADD_VERSION, &message) == 0 &&
        mill_add_partitions_to_txn_response_results_by_transaction_next(
            &message.results_by_transaction, ADD_VERSION, &transaction)) {
        topics = transaction.topic_results;
    }
    request->deadline_ns = MILL_NEVER;
    request->ops_pending = 1; /* until all were begun */
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        if (op->asked != ASKED_NOW) {
            continue;
        }
        int16_t error = error_next(&topics);
        if (error != MILL_KERR_NONE) {
            op_refuse(op, told(error));
        } else {
            op->asked = ASKED_BEFORE;
#ifdef MILL_MUTANT_CORE_ADDED_NOT_WRITTEN
            op->error = MILL_KERR_NONE;
            continue;
#endif
            mill_request_op_start(core, request, i);
        }
    }
    mill_produce_ops_begun(core, request);
}

void mill_produce_adds_expired(struct mill_core *core, struct mill_request *request)
{
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        if (op->unvouched && op->asked != ASKED_BEFORE) {
            op_refuse(op, MILL_KERR_NOT_ENOUGH_REPLICAS);
        }
    }
    mill_produce_done(core, request);
}
