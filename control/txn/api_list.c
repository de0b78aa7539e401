/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask of the transactions' coordinator; see api.h. ref: KIP-664, KIP-994 (duration),
 * KIP-1152 (pattern)
 */
#include "control/txn/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/admin/words.h"
#include "control/group/pattern.h"
#include "control/txn/txns.h"
#include "protocol/errors.h"

/* --- DescribeTransactions ----------------------------------------------------------------------
 */

struct described {
    const char *id;
    const struct mill_txn *txn; /* NULL: error says why */
    int16_t error;
};

struct describe_fill {
    const struct described *items;
    const struct mill_txn_set *set; /* of the one being written */
    uint32_t next;                  /* partition of it */
};

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    struct describe_fill *fill = (void *)(uintptr_t)context;
    MILL_UNUSED(index);
    *(int32_t *)ret_element = fill->set->items[fill->next++].index;
}

/* Where the partitions of one topic end; names of a set are shared. */
static uint32_t topic_end(const struct mill_txn_set *set, uint32_t from)
{
    uint32_t to = from;
    while (to < set->count && set->items[to].topic == set->items[from].topic) {
        to++;
    }
    return to;
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    struct describe_fill *fill = (void *)(uintptr_t)context;
    struct mill_describe_transactions_response_transaction_states_topics *element = ret_element;
    MILL_UNUSED(index);
    element->topic = mill_wstr_of(fill->set->items[fill->next].topic);
    element->partitions =
        (struct mill_warray){.count = (int32_t)(topic_end(fill->set, fill->next) - fill->next),
                             .get = get_partition,
                             .context = fill};
}

static void get_described(const void *context, int32_t index, void *ret_element)
{
    struct describe_fill *fill = (void *)(uintptr_t)context;
    const struct described *item = &fill->items[index];
    struct mill_describe_transactions_response_transaction_states *element = ret_element;
    element->error_code = item->error;
    element->transactional_id = mill_wstr_of(item->id);
    element->transaction_state = mill_wstr_of("");
    if (!item->txn) {
        return;
    }
    const struct mill_txn_values *now = &item->txn->now;
    int32_t topics = 0;
    fill->set = now->partitions;
    fill->next = 0;
    for (uint32_t i = 0; fill->set && i < fill->set->count; i = topic_end(fill->set, i)) {
        topics++;
    }
    element->transaction_state = mill_wstr_of(mill_txn_state_name(now->state));
    element->transaction_timeout_ms = now->timeout_ms;
    element->transaction_start_time_ms = now->start_ms;
    element->producer_id = now->producer_id;
    element->producer_epoch = now->producer_epoch;
    element->topics = (struct mill_warray){.count = topics, .get = get_topic, .context = fill};
}

static int encode_describe(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_transactions_response_encode(to, version, message);
}

void mill_describe_transactions(struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_describe_transactions_request in;
    struct mill_describe_transactions_response out;
    struct mill_wstr id;
    const struct mill_txns *txns = request->txns;
    int32_t count = 0;
    if (mill_describe_transactions_request_decode(at, request->header.api_version, &in) < 0 ||
        in.transactional_ids.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    struct described *items = mill_pool_take(
        &request->pool, (uint64_t)MILL_MAX(in.transactional_ids.count, 0) * sizeof(*items));
    while (items && mill_warray_next_str(&in.transactional_ids, request->header.flexible, &id)) {
        struct described *item = &items[count++];
        item->id = mill_admin_text(request, &id, NULL);
        if (!item->id) {
            items = NULL;
            break;
        }
        item->error = mill_shards_locate(&txns->shards, item->id);
        item->txn = item->error == MILL_KERR_NONE ? mill_txns_find(txns, item->id) : NULL;
        if (item->error == MILL_KERR_NONE && !item->txn) {
            item->error = MILL_KERR_TRANSACTIONAL_ID_NOT_FOUND;
        }
    }
    if (!items) {
        mill_admin_close(request);
        return;
    }
    struct describe_fill fill = {.items = items};
    mill_describe_transactions_response_defaults(&out);
    out.transaction_states =
        (struct mill_warray){.count = count, .get = get_described, .context = &fill};
    mill_admin_answer(request, encode_describe, &out);
}

/* --- ListTransactions --------------------------------------------------------------------------
 */

enum {
    WHY_BYTES = 128,
};

struct filter {
    struct mill_words states;
    int64_t *producer_ids;       /* ascending */
    uint32_t producer_ids_count; /* 0: any */
    int64_t duration_ms;         /* longer than this; -1 any */
    int64_t now_ms;
    struct mill_pattern *pattern; /* of the id; NULL any */
};

struct list_fill {
    const struct mill_txn **found;
    const struct filter *filter;
};

static void get_unknown(const void *context, int32_t index, void *ret_element)
{
    const struct list_fill *fill = context;
    *(struct mill_wstr *)ret_element = mill_wstr_of(fill->filter->states.unknown[index]);
}

static void get_listed(const void *context, int32_t index, void *ret_element)
{
    const struct mill_txn *txn = ((const struct list_fill *)context)->found[index];
    struct mill_list_transactions_response_transaction_states *element = ret_element;
    element->transactional_id = mill_wstr_of(txn->id);
    element->producer_id = txn->now.producer_id;
    element->transaction_state = mill_wstr_of(mill_txn_state_name(txn->now.state));
}

static int encode_list(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_list_transactions_response_encode(to, version, message);
}

static const char *state_text(uint32_t index)
{
    return mill_txn_state_name((enum mill_txn_state)index);
}

static int by_id(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Sorted, because each transaction is held against them. ret: false no memory. */
static bool ids_read(struct mill_admin_request *request, struct mill_warray ids,
                     struct filter *filter)
{
    uint32_t most = (uint32_t)MILL_MAX(ids.count, 0);
    filter->producer_ids_count = 0;
    filter->producer_ids = mill_pool_take(&request->pool, most * sizeof(int64_t));
    while (filter->producer_ids &&
           mill_warray_next_i64(&ids, &filter->producer_ids[filter->producer_ids_count])) {
        filter->producer_ids_count++;
    }
    if (filter->producer_ids_count > 1) {
        qsort(filter->producer_ids, filter->producer_ids_count, sizeof(int64_t), by_id);
    }
    return filter->producer_ids != NULL;
}

/* Whether the filter lets the transaction through. ret: 1, 0, or -E2BIG: the pattern takes too many
 * steps. */
static int is_listed(const struct filter *filter, const struct mill_txn *txn)
{
    if (txn->now.state == MILL_TXN_DEAD || txn->now.producer_epoch < 0 ||
        !mill_words_have(&filter->states, txn->now.state)) {
        return 0;
    }
    bool any_id = filter->producer_ids_count == 0 ||
                  bsearch(&txn->now.producer_id, filter->producer_ids, filter->producer_ids_count,
                          sizeof(int64_t), by_id);
    int64_t lasts_ms = txn->now.start_ms >= 0 ? filter->now_ms - txn->now.start_ms : -1;
    if (!any_id || (filter->duration_ms >= 0 && lasts_ms <= filter->duration_ms)) {
        return 0;
    }
#ifdef MILL_MUTANT_TXN_LIST_ANY_ID
    return 1;
#endif
    return filter->pattern ? mill_pattern_match(filter->pattern, txn->id) : 1;
}

/* All that the filter lets through. ret: how many; -E2BIG as above. */
static int32_t list(const struct mill_txns *txns, const struct filter *filter,
                    const struct mill_txn **ret_found)
{
    int32_t count = 0;
    for (uint32_t i = 0; i < txns->shards.count; i++) {
        for (const struct mill_txn *txn = txns->shards.items[i].first;
             txn && txns->shards.items[i].state == MILL_SHARD_READY; txn = txn->shard_next) {
            int listed = is_listed(filter, txn);
            if (listed < 0) {
                return listed;
            }
            if (listed > 0) {
                ret_found[count++] = txn;
            }
        }
    }
    return count;
}

/* An empty pattern is none. ret: false: it is not valid, or no memory. */
static bool pattern_open(struct mill_admin_request *request, const struct mill_wstr *text,
                         struct mill_pattern **ret)
{
    char why[WHY_BYTES];
    const char *copy = text->length > 0 ? mill_admin_text(request, text, NULL) : NULL;
    *ret = NULL;
    return text->length <= 0 || (copy && mill_pattern_open(copy, why, sizeof(why), ret) == 0);
}

void mill_list_transactions(struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_list_transactions_request in;
    struct mill_list_transactions_response out;
    const struct mill_txns *txns = request->txns;
    static const struct mill_words_known known = {MILL_TXN_STATE_COUNT, state_text, false};
    struct filter filter;
    if (mill_list_transactions_request_decode(at, request->header.api_version, &in) < 0 ||
        in.producer_id_filters.count > MILL_ADMIN_ELEMENTS_MAX ||
        !mill_words_read(request, &in.state_filters, &known, &filter.states) ||
        !ids_read(request, in.producer_id_filters, &filter)) {
        mill_admin_close(request);
        return;
    }
    filter.duration_ms = in.duration_filter;
    filter.now_ms = txns->env.now_ms;
    /* The pool's bound follows the request's size; this list follows ours. */
    struct list_fill fill = {.filter = &filter};
    fill.found = malloc(MILL_MAX(txns->count, 1u) * sizeof(fill.found[0]));
    bool valid = pattern_open(request, &in.transactional_id_pattern, &filter.pattern);
    if (!fill.found || request->memory_short) {
        mill_pattern_close(filter.pattern);
        free(fill.found);
        mill_admin_close(request);
        return;
    }
    int32_t count = valid ? list(txns, &filter, fill.found) : -EINVAL;
    mill_list_transactions_response_defaults(&out);
    if (count < 0) {
        out.error_code = MILL_KERR_INVALID_REGULAR_EXPRESSION; /* and nothing else, as Kafka */
    } else {
        out.error_code = txns->shards.loading_count > 0
                             ? (int16_t)MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS
                             : (int16_t)MILL_KERR_NONE;
        out.unknown_state_filters = (struct mill_warray){
            .count = filter.states.unknown_count, .get = get_unknown, .context = &fill};
        out.transaction_states =
            (struct mill_warray){.count = count, .get = get_listed, .context = &fill};
    }
    mill_admin_answer(request, encode_list, &out);
    mill_pattern_close(filter.pattern);
    free(fill.found);
}
