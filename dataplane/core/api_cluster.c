/* SPDX-License-Identifier: Apache-2.0 */
/* ApiVersions, DescribeCluster, InitProducerId, and the dispatch by API key. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

#include "protocol/errors.h"
#include "protocol/operations.h"

/* --- ApiVersions ----------------------------------------------------------------------------- */

static void get_api(const void *context, int32_t index, void *ret_element)
{
    const bool *only_self = context;
    struct mill_api_versions_response_api_keys *element = ret_element;
    const struct mill_api *api =
        *only_self ? mill_api_find(MILL_API_KEY_API_VERSIONS) : &mill_apis[index];
    element->api_key = api->key;
    element->min_version = api->version_min_advertised;
    element->max_version = api->version_max;
}

enum {
    VERSIONS_LEVEL_ZERO = 4,
    VERSIONS_CLUSTER = 5, /* a client says whom it expects (KIP-1242) */
};

static int versions_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    MILL_UNUSED(context);
    bool unknown = request->top_error == MILL_KERR_UNSUPPORTED_VERSION;
    struct mill_api_versions_response answer;
    mill_api_versions_response_defaults(&answer);
    answer.error_code = request->top_error;
    answer.throttle_time_ms = request->throttle_ms;
    int32_t count = request->top_error == MILL_KERR_NONE ? (int32_t)mill_apis_count : unknown;
    answer.api_keys = (struct mill_warray){.count = count, .get = get_api, .context = &unknown};
    if (request->top_error == MILL_KERR_NONE) {
        /* Older clients stumble over a lowest level of 0, which all of them have (KAFKA-17011). */
        mill_features_tell(request->header.api_version >= VERSIONS_LEVEL_ZERO, &answer);
    }
    /* A version that we do not know is answered in the oldest form (KIP-511). */
    return mill_api_versions_response_encode(to, unknown ? 0 : request->header.api_version,
                                             &answer);
}

/* Letters, digits, dot and hyphen, with a letter or digit at both ends (KIP-511). */
static bool software_text_good(const struct mill_wstr *text)
{
    char copy[256];
    int32_t length = mill_wstr_copy(text, copy, sizeof(copy));
    if (length <= 0) {
        return false;
    }
    for (int32_t i = 0; i < length; i++) {
        char c = copy[i];
        bool inner = c == '.' || c == '-';
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && !(inner && i > 0 && i + 1 < length)) {
            return false;
        }
    }
    return true;
}

/* Whether the cluster and node that the client expects, if any, are these. */
static bool is_meant(struct mill_core *core, const struct mill_request *request,
                     const struct mill_api_versions_request *message)
{
    struct mill_broker_view view = mill_broker_view(core, request->conn->stream->listener);
    const struct mill_wstr *id = &message->cluster_id;
#ifdef MILL_MUTANT_CORE_ANY_CLUSTER
    return true;
#endif
    if (!view.cluster) {
        return true; /* nobody knows yet */
    }
    return (id->length < 0 || mill_wstr_equal(id, view.cluster->cluster_id,
                                              (uint32_t)strlen(view.cluster->cluster_id))) &&
           (message->node_id == -1 || mill_node_is(message->node_id, core->node_id, view.count));
}

void mill_api_versions_begin(struct mill_core *core, struct mill_request *request)
{
    const struct mill_api *api = mill_api_find(MILL_API_KEY_API_VERSIONS);
    int16_t version = request->header.api_version;
    if (version < api->version_min || version > api->version_max) {
        request->top_error = MILL_KERR_UNSUPPORTED_VERSION;
        mill_answer_send(core, request, versions_fill, NULL);
        return;
    }
    struct mill_api_versions_request message;
    struct mill_cursor at = request->body;
    if (mill_api_versions_request_decode(&at, version, &message) < 0) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    if (version >= VERSIONS_CLUSTER && !is_meant(core, request, &message)) {
        request->top_error = MILL_KERR_REBOOTSTRAP_REQUIRED;
    }
    bool half_said =
        version >= VERSIONS_CLUSTER && (message.cluster_id.length < 0) != (message.node_id == -1);
    bool nameless = version >= 3 && !(software_text_good(&message.client_software_name) &&
                                      software_text_good(&message.client_software_version));
    if (half_said || nameless) {
        request->top_error = MILL_KERR_INVALID_REQUEST;
    }
    mill_answer_send(core, request, versions_fill, NULL);
}

/* --- DescribeCluster ------------------------------------------------------------------------- */

static void get_broker(const void *context, int32_t index, void *ret_element)
{
    const struct mill_broker_view *view = context;
    struct mill_describe_cluster_response_brokers *element = ret_element;
    struct mill_node_view node = mill_node_at(view, index);
    element->broker_id = node.id;
    element->host = mill_wstr_of(node.host);
    element->port = node.port;
    element->rack = mill_wstr_of(NULL);
}

enum {
    ENDPOINTS_BROKERS = 1, /* KIP-919 */
    ENDPOINTS_CONTROLLERS = 2,
};

static int cluster_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    const struct mill_broker_view *view = context;
    struct mill_describe_cluster_request message;
    struct mill_describe_cluster_response answer;
    struct mill_cursor at = request->body;
    int r = mill_describe_cluster_request_decode(&at, request->header.api_version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    mill_describe_cluster_response_defaults(&answer);
    if (message.endpoint_type != ENDPOINTS_BROKERS) {
        /* As a broker of Kafka's answers: controllers have listeners of their own. */
        answer.error_code = message.endpoint_type == ENDPOINTS_CONTROLLERS
                                ? MILL_KERR_MISMATCHED_ENDPOINT_TYPE
                                : MILL_KERR_UNSUPPORTED_ENDPOINT_TYPE;
        answer.error_message = mill_wstr_of("this listener has the endpoints of brokers");
        answer.cluster_id = mill_wstr_of("");
        return mill_describe_cluster_response_encode(to, request->header.api_version, &answer);
    }
    answer.cluster_id = mill_wstr_of(view->cluster ? view->cluster->cluster_id : "");
    answer.controller_id = view->cluster ? view->cluster->controller_id : -1;
    if (message.include_cluster_authorized_operations) {
        answer.cluster_authorized_operations = MILL_OPERATIONS_CLUSTER;
    }
    answer.brokers =
        (struct mill_warray){.count = (int32_t)view->count, .get = get_broker, .context = view};
    return mill_describe_cluster_response_encode(to, request->header.api_version, &answer);
}

void mill_cluster_begin(struct mill_core *core, struct mill_request *request)
{
    struct mill_describe_cluster_request message;
    struct mill_cursor at = request->body;
    if (mill_describe_cluster_request_decode(&at, request->header.api_version, &message) < 0) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    struct mill_broker_view view = mill_broker_view(core, request->conn->stream->listener);
    mill_answer_send(core, request, cluster_fill, &view);
}

/* --- InitProducerId -------------------------------------------------------------------------- */

static int producer_id_fill(struct mill_writer *to, const struct mill_request *request,
                            void *context)
{
    const int64_t *id = context;
    struct mill_init_producer_id_response answer;
    mill_init_producer_id_response_defaults(&answer);
    answer.error_code = request->top_error;
    answer.producer_id = *id;
    answer.producer_epoch = request->top_error == 0 ? 0 : -1;
    return mill_init_producer_id_response_encode(to, request->header.api_version, &answer);
}

/* Next id of this core's reserve. ret: false when it is used up. */
static bool id_take(struct mill_core *core, int64_t *ret_id)
{
    if (core->ids_next[0] == core->ids_end[0]) {
        core->ids_next[0] = core->ids_next[1];
        core->ids_end[0] = core->ids_end[1];
        core->ids_next[1] = core->ids_end[1];
    }
    if (core->ids_next[0] == core->ids_end[0]) {
        mill_ids_ask(core);
        return false;
    }
    *ret_id = core->ids_next[0]++;
    if (core->ids_next[1] == core->ids_end[1] &&
        core->ids_end[0] - core->ids_next[0] < MILL_IDS_RESERVE) {
        mill_ids_ask(core);
    }
    return true;
}

void mill_producer_id_begin(struct mill_core *core, struct mill_request *request)
{
    struct mill_init_producer_id_request message;
    struct mill_cursor at = request->body;
    int64_t id = -1;
    if (mill_init_producer_id_request_decode(&at, request->header.api_version, &message) < 0) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    if (message.transactional_id.length > 0) {
        mill_forward(core, request); /* to its coordinator */
        return;
    }
    bool half_said = (message.producer_id == -1) != (message.producer_epoch == -1);
    if (message.transactional_id.length == 0 || half_said) {
        request->top_error = MILL_KERR_INVALID_REQUEST; /* an id of no characters, or half of one */
    } else if (!id_take(core, &id)) {
        if (request->deadline_ns == MILL_NEVER) {
            mill_request_deadline(core, request,
                                  core->now.mono_ns + core->limits.control_timeout_ns);
        }
        if (!request->expired) {
            mill_request_hold(core, request);
            return;
        }
        request->top_error = MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS;
    }
    mill_heap_remove(&core->heap, &request->deadline);
    mill_answer_send(core, request, producer_id_fill, &id);
}

/* --- dispatch -------------------------------------------------------------------------------- */

static void begin(struct mill_core *core, struct mill_request *request)
{
    switch (request->header.api_key) {
    case MILL_API_KEY_PRODUCE:
        mill_produce_begin(core, request);
        break;
    case MILL_API_KEY_FETCH:
        mill_fetch_begin(core, request);
        break;
    case MILL_API_KEY_LIST_OFFSETS:
        mill_list_offsets_begin(core, request);
        break;
    case MILL_API_KEY_DELETE_RECORDS:
        mill_delete_records_begin(core, request);
        break;
    case MILL_API_KEY_DESCRIBE_PRODUCERS:
        mill_producers_begin(core, request);
        break;
    case MILL_API_KEY_WRITE_TXN_MARKERS:
        mill_markers_begin(core, request);
        break;
    case MILL_API_KEY_ADD_PARTITIONS_TO_TXN:
        if (request->conn->stream->listener == MILL_LISTENER_CONTROL) {
            mill_grants_begin(core, request); /* the coordinator passes on what it was asked */
        } else {
            mill_forward(core, request);
        }
        break;
    case MILL_API_KEY_METADATA:
        mill_metadata_begin(core, request);
        break;
    case MILL_API_KEY_API_VERSIONS:
        mill_api_versions_begin(core, request);
        break;
    case MILL_API_KEY_FIND_COORDINATOR:
        mill_coordinator_begin(core, request);
        break;
    case MILL_API_KEY_INIT_PRODUCER_ID:
        mill_producer_id_begin(core, request);
        break;
    case MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH:
        mill_epochs_begin(core, request);
        break;
    case MILL_API_KEY_DESCRIBE_CLUSTER:
        mill_cluster_begin(core, request);
        break;
    case MILL_API_KEY_UPDATE_FEATURES:
        mill_update_features_begin(core, request);
        break;
    default:
        if (!mill_core_admin_begin(core, request)) {
            mill_forward(core, request); /* the table says control answers it */
        }
        break;
    }
}

void mill_api_begin(struct mill_core *core, struct mill_request *request)
{
    if (MILL_UNLIKELY(core->quotas_timed)) {
        mill_request_timed(core, request, begin);
    } else {
        begin(core, request);
    }
}

static void ops_done(struct mill_core *core, struct mill_request *request)
{
    request->done_ns = core->now.mono_ns;
    switch (request->header.api_key) {
    case MILL_API_KEY_PRODUCE:
        mill_produce_done(core, request);
        break;
    case MILL_API_KEY_FETCH:
        mill_fetch_done(core, request);
        break;
    case MILL_API_KEY_LIST_OFFSETS:
        mill_list_offsets_done(core, request);
        break;
    case MILL_API_KEY_DELETE_RECORDS:
        mill_delete_records_done(core, request);
        break;
    case MILL_API_KEY_DESCRIBE_PRODUCERS:
        mill_producers_done(core, request);
        break;
    case MILL_API_KEY_WRITE_TXN_MARKERS:
        mill_markers_done(core, request);
        break;
    case MILL_API_KEY_ADD_PARTITIONS_TO_TXN:
        mill_grants_done(core, request);
        break;
    case MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH:
        mill_epochs_done(core, request);
        break;
    default:
        MILL_ASSERT(false); /* no other API has ops */
    }
}

void mill_api_ops_done(struct mill_core *core, struct mill_request *request)
{
    if (MILL_UNLIKELY(core->quotas_timed)) {
        mill_request_timed(core, request, ops_done);
    } else {
        ops_done(core, request);
    }
}
