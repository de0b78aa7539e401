/* SPDX-License-Identifier: Apache-2.0 */
/* Administration that one broker answers without deciding anything: it leads every partition that
 * exists and keeps each on itself, so elections are not needed and reassignments have nothing to
 * do. There is no authorizer: ACLs are refused. ref: KIP-460, KIP-455, KIP-140 */
#include "dataplane/core/core_types.h"

#include <errno.h>

#include "protocol/errors.h"

enum {
    ELECTION_PREFERRED = 0,
    ELECTION_UNCLEAN = 1,
};

/* The request's arrays, walked again beside the answer's. */
struct fill {
    struct mill_core *core;
    const struct mill_request *request;
    struct mill_warray topics;
    struct mill_warray parts;
    struct mill_wstr topic;
};

/* What a partition that may exist is answered; error: where it does. */
static int16_t error_of(struct mill_core *core, const struct mill_wstr *topic, int32_t partition,
                        enum mill_kerr error)
{
    struct mill_op op;
    const struct mill_map_topic *found = NULL;
    enum mill_kerr fault = mill_locate(core, topic, partition, &op, &found);
    return (int16_t)(fault == MILL_KERR_NONE ? error : fault);
}

static struct mill_warray array_of(const struct mill_warray *of, mill_warray_get get,
                                   const struct fill *fill)
{
    return (struct mill_warray){.count = MILL_MAX(of->count, 0), .get = get, .context = fill};
}

/* --- ElectLeaders ------------------------------------------------------------------------------
 */

static void get_election(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_elect_leaders_response_replica_election_results_partition_result *element =
        ret_element;
    bool more = mill_warray_next_i32(&fill->parts, &element->partition_id);
    MILL_ASSERT(more);
    element->error_code =
        error_of(fill->core, &fill->topic, element->partition_id, MILL_KERR_ELECTION_NOT_NEEDED);
    element->error_message = mill_wstr_of(element->error_code == MILL_KERR_ELECTION_NOT_NEEDED
                                              ? "the partition's only replica is its leader already"
                                              : NULL);
}

static void get_elections(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_elect_leaders_response_replica_election_results *element = ret_element;
    struct mill_elect_leaders_request_topic_partitions topic;
    bool more = mill_elect_leaders_request_topic_partitions_next(
        &fill->topics, fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    fill->topic = topic.topic;
    fill->parts = topic.partitions;
    element->topic = topic.topic;
    element->partition_result = array_of(&topic.partitions, get_election, fill);
}

static int64_t elections_count(const struct fill *fill)
{
    int64_t count = 0;
    struct mill_warray topics = fill->topics;
    struct mill_elect_leaders_request_topic_partitions topic;
    while (mill_elect_leaders_request_topic_partitions_next(
        &topics, fill->request->header.api_version, &topic)) {
        count += MILL_MAX(topic.partitions.count, 0) + 1;
    }
    return count;
}

static int elect_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct fill *fill = context;
    struct mill_elect_leaders_request message;
    struct mill_elect_leaders_response answer;
    struct mill_cursor at = request->body;
    int r = mill_elect_leaders_request_decode(&at, request->header.api_version, &message);
    mill_elect_leaders_response_defaults(&answer);
    if (r < 0) {
        return r;
    }
    fill->topics = message.topic_partitions;
    if (elections_count(fill) > MILL_REQUEST_OPS_MAX) {
        return -E2BIG; /* a long turn; no client asks for so many */
    }
    if (message.election_type != ELECTION_PREFERRED && message.election_type != ELECTION_UNCLEAN) {
        answer.error_code = MILL_KERR_INVALID_REQUEST;
        fill->topics.count = 0;
    }
    /* All partitions (null): Kafka leaves out those that need no election. */
    answer.replica_election_results = array_of(&fill->topics, get_elections, fill);
    return mill_elect_leaders_response_encode(to, request->header.api_version, &answer);
}

/* --- AlterPartitionReassignments, ListPartitionReassignments -----------------------------------
 */

/* One broker: a list with it alone is what there is, any other cannot be had. */
static enum mill_kerr reassign_error(const struct mill_core *core, struct mill_warray replicas)
{
    int32_t id = -1;
    if (replicas.count < 0) {
        return MILL_KERR_NO_REASSIGNMENT_IN_PROGRESS; /* to be cancelled */
    }
    bool mine = replicas.count == 1 && mill_warray_next_i32(&replicas, &id) &&
                mill_node_is(id, core->node_id, core->count);
    return mine ? MILL_KERR_NONE : MILL_KERR_INVALID_REPLICA_ASSIGNMENT;
}

static void get_reassignment(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_alter_partition_reassignments_response_responses_partitions *element = ret_element;
    struct mill_alter_partition_reassignments_request_topics_partitions part;
    bool more = mill_alter_partition_reassignments_request_topics_partitions_next(
        &fill->parts, fill->request->header.api_version, &part);
    MILL_ASSERT(more);
    element->partition_index = part.partition_index;
    element->error_code = error_of(fill->core, &fill->topic, part.partition_index,
                                   reassign_error(fill->core, part.replicas));
    element->error_message =
        mill_wstr_of(element->error_code == MILL_KERR_INVALID_REPLICA_ASSIGNMENT
                         ? "the cluster has one broker, and a partition one replica on it"
                         : NULL);
}

static void get_reassigned(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct fill *fill = (void *)(uintptr_t)context;
    struct mill_alter_partition_reassignments_response_responses *element = ret_element;
    struct mill_alter_partition_reassignments_request_topics topic;
    bool more = mill_alter_partition_reassignments_request_topics_next(
        &fill->topics, fill->request->header.api_version, &topic);
    MILL_ASSERT(more);
    fill->topic = topic.name;
    fill->parts = topic.partitions;
    element->name = topic.name;
    element->partitions = array_of(&topic.partitions, get_reassignment, fill);
}

static int64_t reassigned_count(const struct fill *fill)
{
    int64_t count = 0;
    struct mill_warray topics = fill->topics;
    struct mill_alter_partition_reassignments_request_topics topic;
    while (mill_alter_partition_reassignments_request_topics_next(
        &topics, fill->request->header.api_version, &topic)) {
        count += MILL_MAX(topic.partitions.count, 0) + 1;
    }
    return count;
}

static int reassign_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct fill *fill = context;
    struct mill_alter_partition_reassignments_request message;
    struct mill_alter_partition_reassignments_response answer;
    struct mill_cursor at = request->body;
    int r = mill_alter_partition_reassignments_request_decode(&at, request->header.api_version,
                                                              &message);
    if (r < 0) {
        return r;
    }
    fill->topics = message.topics;
    if (reassigned_count(fill) > MILL_REQUEST_OPS_MAX) {
        return -E2BIG;
    }
    mill_alter_partition_reassignments_response_defaults(&answer);
    if (message.topics.count > 0) { /* Kafka's controller is not asked about nothing */
        answer.allow_replication_factor_change = message.allow_replication_factor_change;
    }
    answer.responses = array_of(&message.topics, get_reassigned, fill);
    return mill_alter_partition_reassignments_response_encode(to, request->header.api_version,
                                                              &answer);
}

static int reassignments_fill(struct mill_writer *to, const struct mill_request *request,
                              void *context)
{
    struct mill_list_partition_reassignments_request message;
    struct mill_list_partition_reassignments_response answer;
    struct mill_cursor at = request->body;
    int r = mill_list_partition_reassignments_request_decode(&at, request->header.api_version,
                                                             &message);
    MILL_UNUSED(context);
    mill_list_partition_reassignments_response_defaults(&answer);
    return r < 0 ? r
                 : mill_list_partition_reassignments_response_encode(
                       to, request->header.api_version, &answer);
}

/* --- ACLs --------------------------------------------------------------------------------------
 */

static const char no_authorizer[] = "No Authorizer is configured.";

static int describe_acls_fill(struct mill_writer *to, const struct mill_request *request,
                              void *context)
{
    struct mill_describe_acls_request message;
    struct mill_describe_acls_response answer;
    struct mill_cursor at = request->body;
    int r = mill_describe_acls_request_decode(&at, request->header.api_version, &message);
    MILL_UNUSED(context);
    mill_describe_acls_response_defaults(&answer);
    answer.error_code = MILL_KERR_SECURITY_DISABLED;
    answer.error_message = mill_wstr_of(no_authorizer);
    return r < 0 ? r : mill_describe_acls_response_encode(to, request->header.api_version, &answer);
}

static void get_creation(const void *context, int32_t index, void *ret_element)
{
    struct mill_create_acls_response_results *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->error_code = MILL_KERR_SECURITY_DISABLED;
    element->error_message = mill_wstr_of(no_authorizer);
}

static int create_acls_fill(struct mill_writer *to, const struct mill_request *request,
                            void *context)
{
    struct mill_create_acls_request message;
    struct mill_create_acls_response answer;
    struct mill_cursor at = request->body;
    int r = mill_create_acls_request_decode(&at, request->header.api_version, &message);
    if (r < 0) {
        return r;
    }
    mill_create_acls_response_defaults(&answer);
    if (message.creations.count > MILL_REQUEST_OPS_MAX) {
        return -E2BIG;
    }
    answer.results = array_of(&message.creations, get_creation, context);
    return mill_create_acls_response_encode(to, request->header.api_version, &answer);
}

static void get_filter(const void *context, int32_t index, void *ret_element)
{
    struct mill_delete_acls_response_filter_results *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->error_code = MILL_KERR_SECURITY_DISABLED;
    element->error_message = mill_wstr_of(no_authorizer);
}

static int delete_acls_fill(struct mill_writer *to, const struct mill_request *request,
                            void *context)
{
    struct mill_delete_acls_request message;
    struct mill_delete_acls_response answer;
    struct mill_cursor at = request->body;
    int r = mill_delete_acls_request_decode(&at, request->header.api_version, &message);
    if (r < 0) {
        return r;
    }
    mill_delete_acls_response_defaults(&answer);
    if (message.filters.count > MILL_REQUEST_OPS_MAX) {
        return -E2BIG;
    }
    answer.filter_results = array_of(&message.filters, get_filter, context);
    return mill_delete_acls_response_encode(to, request->header.api_version, &answer);
}

/* --- dispatch ----------------------------------------------------------------------------------
 */

bool mill_core_admin_begin(struct mill_core *core, struct mill_request *request)
{
    static const struct {
        int16_t key;
        mill_answer_fill fill;
    } apis[] = {
        {MILL_API_KEY_DESCRIBE_ACLS, describe_acls_fill},
        {MILL_API_KEY_CREATE_ACLS, create_acls_fill},
        {MILL_API_KEY_DELETE_ACLS, delete_acls_fill},
        {MILL_API_KEY_ELECT_LEADERS, elect_fill},
        {MILL_API_KEY_ALTER_PARTITION_REASSIGNMENTS, reassign_fill},
        {MILL_API_KEY_LIST_PARTITION_REASSIGNMENTS, reassignments_fill},
    };
    for (uint32_t i = 0; i < MILL_COUNT_OF(apis); i++) {
        if (apis[i].key == request->header.api_key) {
            struct fill fill = {.core = core, .request = request};
            mill_answer_send(core, request, apis[i].fill, &fill);
            return true;
        }
    }
    return false;
}
