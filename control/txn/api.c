/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of transactional producers; see api.h. ref: KIP-98, KIP-360, KIP-890 */
#include "control/txn/api.h"

#include <stdlib.h>
#include <string.h>

#include "control/group/groups.h"
#include "control/txn/txns.h"
#include "protocol/errors.h"

enum {
    /* First versions in which a producer that was replaced is told so by an error of its own. */
    INIT_FENCED_VERSION = 4,
    ADD_FENCED_VERSION = 2,
    END_FENCED_VERSION = 2,
    BATCHED_VERSION = 4, /* AddPartitionsToTxn with many transactions; of leaders, which add */
    /* Transactions that one request adds to: each may cost a copy of 20,000 partitions in one turn.
     * Cores name one. */
    ADDED_TXNS_MAX = 64,
    ABORTABLE_VERSION = 5,  /* of AddPartitionsToTxn: knows TRANSACTION_ABORTABLE */
    END_BUMPED_VERSION = 5, /* EndTxn that gives out an epoch for the next transaction */
};

static int16_t fenced_as(int16_t error, int16_t version, int16_t first)
{
    return error == MILL_KERR_PRODUCER_FENCED && version < first
               ? (int16_t)MILL_KERR_INVALID_PRODUCER_EPOCH
               : error;
}

/* --- requests with one answer ------------------------------------------------------------------
 */

/* What a change leads to: the answer, written when the log has it. */
struct asked {
    struct mill_admin_request *request;
    void (*answer)(struct mill_admin_request *request, int16_t error,
                   const struct mill_txn_values *now);
};

static void heard(void *context, int16_t error, const struct mill_txn_values *now)
{
    struct asked *asked = context;
    asked->answer(asked->request, error, now);
    mill_groups_give(asked->request->groups, asked->request);
    free(asked);
}

/* ret: NULL no memory: the connection is closed. */
static struct asked *ask(struct mill_admin_request *request,
                         void (*answer)(struct mill_admin_request *request, int16_t error,
                                        const struct mill_txn_values *now))
{
    struct asked *asked = malloc(sizeof(*asked));
    if (!asked) {
        mill_admin_close(request);
        return NULL;
    }
    *asked = (struct asked){request, answer};
    return asked;
}

/* Behind the call that was given heard: it may have been called already. */
static void ask_end(struct mill_admin_request *request)
{
    if (!request->ready) {
        mill_groups_take(request);
    }
}

/* --- InitProducerId ----------------------------------------------------------------------------
 */

static int encode_init(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_init_producer_id_response_encode(to, version, message);
}

static void answer_init(struct mill_admin_request *request, int16_t error,
                        const struct mill_txn_values *now)
{
    struct mill_init_producer_id_response out;
    mill_init_producer_id_response_defaults(&out);
    out.error_code = fenced_as(error, request->header.api_version, INIT_FENCED_VERSION);
    out.producer_id = error == MILL_KERR_NONE ? now->producer_id : -1;
    out.producer_epoch = error == MILL_KERR_NONE ? now->producer_epoch : -1;
    mill_admin_answer(request, encode_init, &out);
}

void mill_init_producer_id(struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_init_producer_id_request in;
    if (mill_init_producer_id_request_decode(at, request->header.api_version, &in) < 0) {
        mill_admin_close(request);
        return;
    }
    const char *id = mill_admin_text(request, &in.transactional_id, NULL);
    const struct mill_txn_holder holder = {in.producer_id, in.producer_epoch};
    bool half_said = (in.producer_id == -1) != (in.producer_epoch == -1);
    if (!id || id[0] == '\0' || half_said) {
        answer_init(request, MILL_KERR_INVALID_REQUEST, NULL);
        return;
    }
    struct asked *asked = ask(request, answer_init);
    if (asked) {
        mill_txns_init(request->txns, id, in.transaction_timeout_ms, &holder, heard, asked);
        ask_end(request);
    }
}

/* --- EndTxn ------------------------------------------------------------------------------------
 */

static int encode_end(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_end_txn_response_encode(to, version, message);
}

static void answer_end(struct mill_admin_request *request, int16_t error,
                       const struct mill_txn_values *now)
{
    struct mill_end_txn_response out;
    const struct mill_txn_holder none = {.producer_id = -1, .producer_epoch = -1};
    struct mill_txn_holder next = error == MILL_KERR_NONE ? mill_txn_next_holder(now) : none;
    mill_end_txn_response_defaults(&out);
    out.producer_id = next.producer_id;
    out.producer_epoch = next.producer_epoch;
    out.error_code = fenced_as(error, request->header.api_version, END_FENCED_VERSION);
    mill_admin_answer(request, encode_end, &out);
}

void mill_end_txn(struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_end_txn_request in;
    if (mill_end_txn_request_decode(at, request->header.api_version, &in) < 0) {
        mill_admin_close(request);
        return;
    }
    const char *id = mill_admin_text(request, &in.transactional_id, NULL);
    const struct mill_txn_holder holder = {in.producer_id, in.producer_epoch};
    struct asked *asked = id ? ask(request, answer_end) : NULL;
    if (!asked) {
        mill_admin_close(request);
        return;
    }
    enum mill_txn_version version =
        request->header.api_version >= END_BUMPED_VERSION ? MILL_TXN_BUMPED : MILL_TXN_PLAIN;
    mill_txns_end(request->txns, id, &holder, version, in.committed, heard, asked);
    ask_end(request);
}

/* --- AddOffsetsToTxn ---------------------------------------------------------------------------
 */

static int encode_offsets(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_add_offsets_to_txn_response_encode(to, version, message);
}

static void answer_offsets(struct mill_admin_request *request, int16_t error,
                           const struct mill_txn_values *now)
{
    struct mill_add_offsets_to_txn_response out;
    MILL_UNUSED(now);
    mill_add_offsets_to_txn_response_defaults(&out);
    out.error_code = fenced_as(error, request->header.api_version, ADD_FENCED_VERSION);
    mill_admin_answer(request, encode_offsets, &out);
}

void mill_add_offsets_to_txn(struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_add_offsets_to_txn_request in;
    if (mill_add_offsets_to_txn_request_decode(at, request->header.api_version, &in) < 0) {
        mill_admin_close(request);
        return;
    }
    const char *id = mill_admin_text(request, &in.transactional_id, NULL);
    const char *group_id = mill_admin_text(request, &in.group_id, NULL);
    const struct mill_txn_holder holder = {in.producer_id, in.producer_epoch};
    if (!id || !group_id) {
        mill_admin_close(request);
        return;
    }
    if (id[0] == '\0') {
        answer_offsets(request, MILL_KERR_INVALID_REQUEST, NULL);
        return;
    }
    /* The first that names a group makes the topic; the client asks again. */
    uint32_t shards = mill_groups_shards(request->groups, request);
    if (shards == 0) {
        answer_offsets(request, MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS, NULL);
        return;
    }
    const struct mill_txn_partition partition = {MILL_OFFSETS_TOPIC,
                                                 mill_shard_of(group_id, shards)};
    struct asked *asked = ask(request, answer_offsets);
    if (asked) {
        mill_txns_add(request->txns, id, &holder, MILL_TXN_PLAIN, &partition, 1, heard, asked);
        ask_end(request);
    }
}

/* --- AddPartitionsToTxn ------------------------------------------------------------------------
 */

struct added_topic {
    const char *name; /* in the pool */
    uint32_t name_length;
    int32_t *indexes;
    bool *absent;
    uint32_t count;
};

struct added_txn {
    struct adding *all;
    const char *id;
    struct mill_txn_holder holder;
    bool verify_only;
    struct added_topic *topics;
    uint32_t topics_count;
    uint32_t partitions_count;
    uint32_t absent_count;
    int16_t error; /* of each partition that is there */
};

/* A request on its way; answered when the last of its transactions is. */
struct adding {
    struct mill_admin_request *request;
    struct mill_pool pool;
    uint32_t left;
    uint32_t count;
    struct added_txn *txns;
};

static int16_t added_error(const struct added_txn *txn, const struct added_topic *topic,
                           int32_t index)
{
    return topic->absent[index] ? (int16_t)MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION : txn->error;
}

/* Where the answer is being written. */
struct adding_fill {
    const struct added_txn *txns;
    const struct added_txn *txn;
    const struct added_topic *topic;
};

static void get_old_partition(const void *context, int32_t index, void *ret_element)
{
    const struct adding_fill *fill = context;
    struct mill_add_partitions_to_txn_response_results_by_topic_v3_and_below_results_by_partition
        *element = ret_element;
    element->partition_index = fill->topic->indexes[index];
    element->partition_error_code = added_error(fill->txn, fill->topic, index);
}

static void get_old_topic(const void *context, int32_t index, void *ret_element)
{
    struct adding_fill *fill = (void *)(uintptr_t)context;
    struct mill_add_partitions_to_txn_response_results_by_topic_v3_and_below *element = ret_element;
    fill->topic = &fill->txn->topics[index];
    element->name = mill_wstr_of_bytes(fill->topic->name, (int32_t)fill->topic->name_length);
    element->results_by_partition = (struct mill_warray){
        .count = (int32_t)fill->topic->count, .get = get_old_partition, .context = fill};
}

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    const struct adding_fill *fill = context;
    struct
        mill_add_partitions_to_txn_response_results_by_transaction_topic_results_results_by_partition
            *element = ret_element;
    element->partition_index = fill->topic->indexes[index];
    element->partition_error_code = added_error(fill->txn, fill->topic, index);
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    struct adding_fill *fill = (void *)(uintptr_t)context;
    struct mill_add_partitions_to_txn_response_results_by_transaction_topic_results *element =
        ret_element;
    fill->topic = &fill->txn->topics[index];
    element->name = mill_wstr_of_bytes(fill->topic->name, (int32_t)fill->topic->name_length);
    element->results_by_partition = (struct mill_warray){
        .count = (int32_t)fill->topic->count, .get = get_partition, .context = fill};
}

static void get_txn(const void *context, int32_t index, void *ret_element)
{
    struct adding_fill *fill = (void *)(uintptr_t)context;
    struct mill_add_partitions_to_txn_response_results_by_transaction *element = ret_element;
    fill->txn = &fill->txns[index];
    element->transactional_id = mill_wstr_of(fill->txn->id);
    element->topic_results = (struct mill_warray){
        .count = (int32_t)fill->txn->topics_count, .get = get_topic, .context = fill};
}

static int encode_adding(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_add_partitions_to_txn_response_encode(to, version, message);
}

static void adding_free(struct adding *adding)
{
    mill_pool_clear(&adding->pool);
    free(adding);
}

static void adding_answer(struct adding *adding)
{
    struct mill_admin_request *request = adding->request;
    struct mill_add_partitions_to_txn_response out;
    struct adding_fill fill = {.txns = adding->txns, .txn = adding->txns};
    if (--adding->left > 0) {
        return;
    }
    mill_add_partitions_to_txn_response_defaults(&out);
    if (request->header.api_version >= BATCHED_VERSION) {
        out.results_by_transaction =
            (struct mill_warray){.count = (int32_t)adding->count, .get = get_txn, .context = &fill};
    } else {
        out.results_by_topic_v3_and_below = (struct mill_warray){
            .count = (int32_t)fill.txn->topics_count, .get = get_old_topic, .context = &fill};
    }
    mill_admin_answer(request, encode_adding, &out);
    mill_groups_give(request->groups, request);
    adding_free(adding);
}

static void added(void *context, int16_t error, const struct mill_txn_values *now)
{
    struct added_txn *txn = context;
    int16_t version = txn->all->request->header.api_version;
    MILL_UNUSED(now);
    txn->error = error == MILL_KERR_TRANSACTION_ABORTABLE && version < ABORTABLE_VERSION
                     ? (int16_t)MILL_KERR_INVALID_TXN_STATE
                     : fenced_as(error, version, ADD_FENCED_VERSION);
    adding_answer(txn->all);
}

/* A text in the pool: the frame goes while the log is waited for. */
static const char *keep_text(struct mill_pool *pool, const struct mill_wstr *text)
{
    char *copy = text->length >= 0 ? mill_pool_take(pool, (uint64_t)text->length + 1) : NULL;
    return copy && mill_wstr_copy(text, copy, (uint32_t)text->length + 1) >= 0 ? copy : NULL;
}

/* ret: false no memory, or too many. */
static bool take_topic(struct added_txn *txn, const struct mill_wstr *name,
                       struct mill_warray *indexes)
{
    struct adding *adding = txn->all;
    struct added_topic *topic = &txn->topics[txn->topics_count];
    uint32_t count = (uint32_t)MILL_MAX(indexes->count, 0);
    const char *text = keep_text(&adding->pool, name);
    txn->partitions_count += count;
    topic->indexes = mill_pool_take(&adding->pool, count * sizeof(topic->indexes[0]));
    topic->absent = mill_pool_take(&adding->pool, count * sizeof(topic->absent[0]));
    if (!text || !topic->indexes || !topic->absent ||
        txn->partitions_count > MILL_TXN_PARTITIONS_MAX) {
        return false;
    }
    topic->name = text;
    topic->name_length = (uint32_t)name->length;
    const struct mill_topic *found =
        mill_topics_by_name(adding->request->txns->shards.topics, text, (uint32_t)name->length);
    int32_t index = 0;
    while (mill_warray_next_i32(indexes, &index)) {
        bool there = found && index >= 0 && (uint32_t)index < found->record->partitions_count;
        topic->indexes[topic->count] = index;
        topic->absent[topic->count++] = !there;
        txn->absent_count += !there;
    }
    txn->topics_count++;
    return true;
}

/* The next transaction, with room for its topics. ret: NULL no memory. */
static struct added_txn *take_txn(struct adding *adding, const struct mill_wstr *id,
                                  int32_t topics_count)
{
    struct added_txn *txn = &adding->txns[adding->count++];
    txn->all = adding;
    txn->id = keep_text(&adding->pool, id);
    txn->topics =
        mill_pool_take(&adding->pool, (uint64_t)MILL_MAX(topics_count, 0) * sizeof(txn->topics[0]));
    return txn->id && txn->topics ? txn : NULL;
}

/* ret: false no memory, or too many. */
static bool take_batched(struct adding *adding, struct mill_add_partitions_to_txn_request *in,
                         int16_t version)
{
    struct mill_add_partitions_to_txn_request_transactions asked;
    struct mill_add_partitions_to_txn_request_transactions_topics topic;
    uint32_t added_count = 0;
    while (
        mill_add_partitions_to_txn_request_transactions_next(&in->transactions, version, &asked)) {
        struct added_txn *txn = take_txn(adding, &asked.transactional_id, asked.topics.count);
        added_count += !asked.verify_only;
#ifndef MILL_MUTANT_TXN_ADDS_UNBOUNDED
        if (added_count > ADDED_TXNS_MAX) {
            return false;
        }
#endif
        if (!txn) {
            return false;
        }
        txn->holder = (struct mill_txn_holder){asked.producer_id, asked.producer_epoch};
        txn->verify_only = asked.verify_only;
        while (mill_add_partitions_to_txn_request_transactions_topics_next(&asked.topics, version,
                                                                           &topic)) {
            if (!take_topic(txn, &topic.name, &topic.partitions)) {
                return false;
            }
        }
    }
    return true;
}

static bool take_single(struct adding *adding, struct mill_add_partitions_to_txn_request *in,
                        int16_t version)
{
    struct mill_add_partitions_to_txn_request_v3_and_below_topics topic;
    struct added_txn *txn =
        take_txn(adding, &in->v3_and_below_transactional_id, in->v3_and_below_topics.count);
    if (!txn) {
        return false;
    }
    txn->holder =
        (struct mill_txn_holder){in->v3_and_below_producer_id, in->v3_and_below_producer_epoch};
    while (mill_add_partitions_to_txn_request_v3_and_below_topics_next(&in->v3_and_below_topics,
                                                                       version, &topic)) {
        if (!take_topic(txn, &topic.name, &topic.partitions)) {
            return false;
        }
    }
    return true;
}

static void begin_txn(struct added_txn *txn)
{
    struct adding *adding = txn->all;
    struct mill_txn_partition *partitions =
        mill_pool_take(&adding->pool, txn->partitions_count * sizeof(*partitions));
    uint32_t count = 0;
    for (uint32_t i = 0; partitions && i < txn->topics_count; i++) {
        const struct added_topic *topic = &txn->topics[i];
        for (uint32_t k = 0; k < topic->count; k++) {
            partitions[count++] = (struct mill_txn_partition){topic->name, topic->indexes[k]};
        }
    }
    adding->left++;
    if (!partitions || txn->absent_count > 0) {
        added(txn,
              partitions ? MILL_KERR_OPERATION_NOT_ATTEMPTED : MILL_KERR_COORDINATOR_NOT_AVAILABLE,
              NULL);
    } else if (txn->verify_only) {
        added(txn,
              mill_txns_verify(adding->request->txns, txn->id, &txn->holder, partitions, count),
              NULL);
    } else if (count == 0) {
        added(txn, MILL_KERR_NONE, NULL);
    } else {
        enum mill_txn_version version = adding->request->header.api_version >= BATCHED_VERSION
                                            ? MILL_TXN_BUMPED
                                            : MILL_TXN_PLAIN;
        mill_txns_add(adding->request->txns, txn->id, &txn->holder, version, partitions, count,
                      added, txn);
    }
}

void mill_add_partitions_to_txn(struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_add_partitions_to_txn_request in;
    int16_t version = request->header.api_version;
    if (mill_add_partitions_to_txn_request_decode(at, version, &in) < 0 ||
        in.transactions.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    bool batched = version >= BATCHED_VERSION;
    uint32_t most = batched ? (uint32_t)MILL_MAX(in.transactions.count, 0) : 1;
    struct adding *adding = calloc(1, sizeof(*adding));
    if (!adding) {
        mill_admin_close(request);
        return;
    }
    adding->request = request;
    adding->left = 1; /* until all were begun */
    adding->pool.limit_bytes = request->pool.limit_bytes * 4;
    adding->txns = mill_pool_take(&adding->pool, most * sizeof(adding->txns[0]));
    bool whole = adding->txns &&
                 (batched ? take_batched(adding, &in, version) : take_single(adding, &in, version));
    if (!whole) {
        adding_free(adding);
        mill_admin_close(request);
        return;
    }
    for (uint32_t i = 0; i < adding->count; i++) {
        begin_txn(&adding->txns[i]);
    }
    if (adding->left > 1) {
        mill_groups_take(request);
    }
    adding_answer(adding);
}
