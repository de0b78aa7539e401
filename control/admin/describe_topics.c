/* SPDX-License-Identifier: Apache-2.0 */
/* DescribeTopicPartitions 0: partitions of topics in the order of their names, as many as one
 * answer may have, and where the next request has to go on. No topic named: all there are.
 * ref: KIP-966 */
#include "control/admin/request.h"

#include <stdlib.h>
#include <string.h>

#include "ipc/nodes.h"
#include "protocol/errors.h"
#include "protocol/operations.h"

/* A topic of the answer. */
struct row {
    const char *name;
    const struct mill_map_topic *record; /* NULL: there is no such topic */
    uint32_t first;                      /* its partitions in this answer */
    uint32_t count;
    int16_t error;
};

struct describing {
    const struct mill_controller *controller;
    const char *cursor_name; /* "": none */
    uint32_t cursor_partition;
    struct row *rows;
    uint32_t rows_count;
    const struct row *row; /* being encoded */
    bool refused;          /* as a whole */
    uint32_t partition;
};

/* --- which topics ----------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

static void row_add(struct describing *describing, const char *name)
{
    describing->rows[describing->rows_count++] = (struct row){.name = name};
}

/* What stands before the cursor was told already. */
static void rows_cut(struct describing *describing)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < describing->rows_count; i++) {
        if (strcmp(describing->rows[i].name, describing->cursor_name) >= 0) {
            describing->rows[kept++] = describing->rows[i];
        }
    }
    describing->rows_count = kept;
}

/* Every topic that serves. ret: false: no memory. */
static bool rows_of_all(struct describing *describing, struct mill_pool *pool)
{
    const struct mill_topics *topics = &describing->controller->topics;
    describing->rows = mill_pool_take(pool, ((uint64_t)topics->count + 1) * sizeof(struct row));
    if (!describing->rows) {
        return false;
    }
    for (const struct mill_topic *topic = topics->first; topic; topic = topic->next) {
        if ((topic->record->flags & MILL_TOPIC_DELETING) == 0) {
            row_add(describing, topic->record->name);
        }
    }
    return true;
}

/* Those that are named. ret: false: too many. */
static bool rows_of_named(struct describing *describing, struct mill_admin_request *request,
                          struct mill_warray topics)
{
    struct mill_describe_topic_partitions_request_topics named;
    if (topics.count > MILL_ADMIN_ELEMENTS_MAX) {
        return false;
    }
    describing->rows =
        mill_pool_take(&request->pool, ((uint64_t)topics.count + 1) * sizeof(struct row));
    if (!describing->rows) {
        return false;
    }
    while (mill_describe_topic_partitions_request_topics_next(&topics, request->header.api_version,
                                                              &named)) {
        const char *name = mill_admin_text(request, &named.name, NULL);
        if (!name) {
            return false;
        }
        row_add(describing, name);
    }
    return true;
}

/* A cursor must name one of the topics that are asked for, when any are, and a partition. */
static bool cursor_is_bad(const struct describing *describing, int32_t partition, bool all)
{
    bool named = all;
    for (uint32_t i = 0; i < describing->rows_count && !named; i++) {
        named = strcmp(describing->rows[i].name, describing->cursor_name) == 0;
    }
    return !named || partition < 0;
}

/* In order of names, each once. */
static void rows_sort(struct describing *describing)
{
    uint32_t kept = 0;
    qsort(describing->rows, describing->rows_count, sizeof(describing->rows[0]), by_name);
    for (uint32_t i = 0; i < describing->rows_count; i++) {
        if (kept == 0 || strcmp(describing->rows[kept - 1].name, describing->rows[i].name) != 0) {
            describing->rows[kept++] = describing->rows[i];
        }
    }
    describing->rows_count = kept;
}

/* Gives rows partitions until left is used up; the rest of the rows is cut off. ret: true when
 * something is left over: *ret_cursor says from where. */
static bool rows_fill(struct describing *describing, uint32_t left, struct row *ret_cursor)
{
    for (uint32_t i = 0; i < describing->rows_count; i++) {
        struct row *row = &describing->rows[i];
        uint32_t length = (uint32_t)strlen(row->name);
        const struct mill_topic *topic =
            mill_topics_by_name(&describing->controller->topics, row->name, length);
        if (left == 0) {
            describing->rows_count = i;
            *ret_cursor = (struct row){.name = row->name};
            return true;
        }
        if (!topic) {
            row->error = mill_topic_name_fault(row->name, length)
                             ? MILL_KERR_INVALID_TOPIC_EXCEPTION
                             : MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
            continue;
        }
        row->record = topic->record;
        uint32_t partitions = topic->record->partitions_count;
        row->first = strcmp(row->name, describing->cursor_name) == 0
                         ? MILL_MIN(describing->cursor_partition, partitions)
                         : 0;
        row->count = MILL_MIN(partitions - row->first, left);
        left -= row->count;
        if (row->first + row->count < partitions) {
            describing->rows_count = i + 1;
            *ret_cursor = (struct row){.name = row->name, .first = row->first + row->count};
#ifdef MILL_MUTANT_CONTROL_CURSOR_BEHIND
            ret_cursor->first++;
#endif
            return true;
        }
    }
    return false;
}

/* --- answering -------------------------------------------------------------------------------- */

/* A broker as the node that clients see for the partition. */
static int32_t node_of(const struct describing *describing, int32_t broker)
{
    const struct mill_controller *controller = describing->controller;
    if (broker != controller->node_id) {
        return broker;
    }
    uint32_t core = mill_owner_of(&describing->row->record->id, (int32_t)describing->partition,
                                  mill_config_core_endpoints(controller->config));
    return mill_node_virtual(broker, core);
}

static const struct mill_map_partition *partition_now(const struct describing *describing)
{
    return &describing->row->record->partitions[describing->partition];
}

static void get_replica(const void *context, int32_t index, void *element)
{
    const struct describing *describing = context;
    *(int32_t *)element = node_of(describing, partition_now(describing)->replicas[index]);
}

static void get_in_sync(const void *context, int32_t index, void *element)
{
    const struct describing *describing = context;
    const struct mill_map_partition *partition = partition_now(describing);
    *(int32_t *)element = -1;
    for (uint32_t i = 0; i < partition->replicas_count; i++) {
        if ((partition->isr_bits >> i & 1u) && index-- == 0) {
            *(int32_t *)element = node_of(describing, partition->replicas[i]);
            return;
        }
    }
}

static void get_partition(const void *context, int32_t index, void *element)
{
    struct describing *describing = (void *)(uintptr_t)context;
    struct mill_describe_topic_partitions_response_topics_partitions *to = element;
    describing->partition = describing->row->first + (uint32_t)index;
    const struct mill_map_partition *partition = partition_now(describing);
    to->error_code = partition->leader < 0 ? MILL_KERR_LEADER_NOT_AVAILABLE : MILL_KERR_NONE;
    to->partition_index = (int32_t)describing->partition;
    to->leader_id = partition->leader < 0 ? -1 : node_of(describing, partition->leader);
    to->leader_epoch = partition->leader_epoch;
    to->replica_nodes = (struct mill_warray){
        .count = partition->replicas_count, .get = get_replica, .context = describing};
    to->isr_nodes = (struct mill_warray){.count = __builtin_popcount(partition->isr_bits),
                                         .get = get_in_sync,
                                         .context = describing};
    /* Nobody is kept as a leader to be: with one replica there is none but the leader. */
    to->eligible_leader_replicas.count = 0;
    to->last_known_elr.count = 0;
}

static void get_topic(const void *context, int32_t index, void *element)
{
    struct describing *describing = (void *)(uintptr_t)context;
    struct mill_describe_topic_partitions_response_topics *to = element;
    const struct row *row = &describing->rows[index];
    describing->row = row;
    to->error_code = row->error;
    to->name = mill_wstr_of(row->name);
    if (!describing->refused) {
        to->topic_authorized_operations = MILL_OPERATIONS_TOPIC; /* as Kafka, asked or not */
    }
    if (row->record) {
        to->topic_id = row->record->id;
        to->is_internal = (row->record->flags & MILL_TOPIC_INTERNAL) != 0;
    } else {
        to->is_internal = mill_topic_is_internal(row->name, (uint32_t)strlen(row->name));
    }
    to->partitions = (struct mill_warray){
        .count = (int32_t)row->count, .get = get_partition, .context = describing};
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_topic_partitions_response_encode(to, version, message);
}

/* All that was asked for, as it was. */
static void refuse_all(struct describing *describing, int16_t error)
{
    for (uint32_t i = 0; i < describing->rows_count; i++) {
        describing->rows[i].error = error;
    }
    describing->refused = true;
}

void mill_describe_topics(const struct mill_controller *controller,
                          struct mill_admin_request *request, struct mill_cursor *at)
{
    struct describing describing = {.controller = controller, .cursor_name = ""};
    struct mill_describe_topic_partitions_request in;
    struct mill_describe_topic_partitions_response out;
    if (mill_describe_topic_partitions_request_decode(at, request->header.api_version, &in) < 0) {
        mill_admin_close(request);
        return;
    }
    bool all = in.topics.count == 0;
    const char *cursor_name =
        in.has_cursor ? mill_admin_text(request, &in.cursor.topic_name, NULL) : "";
    if (!cursor_name || (!all && !rows_of_named(&describing, request, in.topics))) {
        mill_admin_close(request);
        return;
    }
    describing.cursor_name = cursor_name;
    bool refused = in.has_cursor && cursor_is_bad(&describing, in.cursor.partition_index, all);
    if (!refused) {
        describing.cursor_partition = (uint32_t)in.cursor.partition_index;
        if (all && !rows_of_all(&describing, &request->pool)) {
            mill_admin_close(request);
            return;
        }
        rows_cut(&describing);
        rows_sort(&describing);
    }
    int64_t limit = mill_config_int(controller->config, MILL_KEY_MAX_REQUEST_PARTITION_SIZE_LIMIT);
    limit = MILL_MAX(MILL_MIN((int64_t)in.response_partition_limit, limit), (int64_t)1);
    struct row cursor = {0};
    mill_describe_topic_partitions_response_defaults(&out);
    if (refused) {
        refuse_all(&describing, MILL_KERR_INVALID_REQUEST);
    } else if (rows_fill(&describing, (uint32_t)limit, &cursor)) {
        out.has_next_cursor = true;
        out.next_cursor.topic_name = mill_wstr_of(cursor.name);
        out.next_cursor.partition_index = (int32_t)cursor.first;
    }
    out.topics = (struct mill_warray){
        .count = (int32_t)describing.rows_count, .get = get_topic, .context = &describing};
    mill_admin_answer(request, encode, &out);
}
