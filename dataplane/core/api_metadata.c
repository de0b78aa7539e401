/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata, built from the partition map as it is in this turn. Topics that do not exist and may be
 * created send the whole frame to control once; after its answer the map has them, or never will.
 */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

#include "protocol/errors.h"
#include "protocol/operations.h"

enum {
    IDS_WRITTEN_FROM = 10, /* versions in which a topic has an id on the wire */
    IDS_MEANT_FROM = 12,   /* versions in which it may be asked for by it */
};

/* --- brokers that have a listener ------------------------------------------------------------ */

static const struct mill_map_endpoint *endpoint_find(const struct mill_map_broker *broker,
                                                     const char *listener)
{
    uint32_t count = MILL_MIN(broker->endpoints_count, (uint32_t)MILL_MAP_LISTENERS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(broker->endpoints[i].listener, listener, MILL_LISTENER_NAME_BYTES) == 0) {
            return &broker->endpoints[i];
        }
    }
    return NULL;
}

/* Nodes that a broker appears as; the map is another process's word. */
static uint32_t cores_of(const struct mill_map_broker *broker)
{
    return MILL_MIN(MILL_MAX(broker->cores_count, 1u), (uint32_t)MILL_NODE_CORES_MAX);
}

struct mill_broker_view mill_broker_view(struct mill_core *core, uint16_t listener)
{
    struct mill_broker_view view = {
        .cluster = mill_map_cluster_read(core->map),
        .listener = listener < core->listeners_count ? core->listeners[listener] : "",
    };
    for (uint32_t i = 0; view.cluster && i < view.cluster->brokers_count; i++) {
        const struct mill_map_broker *broker = &view.cluster->brokers[i];
        view.count += endpoint_find(broker, view.listener) ? cores_of(broker) : 0;
    }
    return view;
}

struct mill_node_view mill_node_at(const struct mill_broker_view *view, int32_t index)
{
    uint32_t left = (uint32_t)index;
    for (uint32_t i = 0; i < view->cluster->brokers_count; i++) {
        const struct mill_map_broker *broker = &view->cluster->brokers[i];
        const struct mill_map_endpoint *endpoint = endpoint_find(broker, view->listener);
        uint32_t cores = endpoint ? cores_of(broker) : 0;
        if (left < cores) {
            return (struct mill_node_view){.id = mill_node_virtual(broker->node_id, left),
                                           .host = endpoint->host,
                                           .port = endpoint->port + (int32_t)left};
        }
        left -= cores;
    }
    MILL_ASSERT(false); /* index is below view->count */
    return (struct mill_node_view){.id = -1};
}

bool mill_node_find(const struct mill_broker_view *view, int32_t node_id,
                    const struct mill_uuid *topic_id, int32_t partition,
                    struct mill_node_view *ret_node)
{
    for (uint32_t i = 0; view->cluster && i < view->cluster->brokers_count; i++) {
        const struct mill_map_broker *broker = &view->cluster->brokers[i];
        const struct mill_map_endpoint *endpoint = endpoint_find(broker, view->listener);
        if (broker->node_id == node_id && endpoint) {
            uint32_t core = mill_owner_of(topic_id, partition, cores_of(broker));
            *ret_node = (struct mill_node_view){.id = mill_node_virtual(node_id, core),
                                                .host = endpoint->host,
                                                .port = endpoint->port + (int32_t)core};
            return true;
        }
    }
    return false;
}

int32_t mill_node_of(const struct mill_broker_view *view, int32_t node_id,
                     const struct mill_uuid *topic_id, int32_t partition)
{
    for (uint32_t i = 0; view->cluster && i < view->cluster->brokers_count; i++) {
        const struct mill_map_broker *broker = &view->cluster->brokers[i];
        if (broker->node_id == node_id) {
            return mill_node_virtual(node_id, mill_owner_of(topic_id, partition, cores_of(broker)));
        }
    }
    return node_id;
}

/* --- which topics ---------------------------------------------------------------------------- */

struct metadata_fill {
    struct mill_core *core;
    const struct mill_request *request;
    struct mill_broker_view view;
    struct mill_metadata_request message;
    bool all;
    uint32_t slot;                      /* all: next slot */
    struct mill_warray topics;          /* named: what is left */
    const struct mill_map_topic *topic; /* being encoded */
    int32_t partition;                  /* of it */
    char name[MILL_TOPIC_NAME_MAX + 1]; /* of an element that does not exist */
};

bool mill_topic_name_good(const char *name, int32_t length)
{
    if (length <= 0 || length > MILL_TOPIC_NAME_MAX || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0) {
        return false;
    }
    for (int32_t i = 0; i < length; i++) {
        char c = name[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-';
        if (!good) {
            return false;
        }
    }
    return true;
}

static bool topic_visible(const struct mill_map_topic *topic)
{
    return topic && !(topic->flags & MILL_TOPIC_DELETING);
}

/* An id decides, whatever name stands beside it. */
static bool is_by_id(const struct mill_metadata_request_topics *named)
{
    return named->name.length < 0 || !mill_uuid_is_zero(&named->topic_id);
}

/* Looks a named topic up. ret: NULL when it is not there; *ret_error says why. */
static const struct mill_map_topic *named_find(struct mill_core *core,
                                               const struct mill_metadata_request_topics *named,
                                               char *ret_name, enum mill_kerr *ret_error)
{
    const struct mill_map_topic *topic = NULL;
    ret_name[0] = '\0';
    if (is_by_id(named)) {
        topic = mill_map_topic_by_id(core->map, &named->topic_id);
        *ret_error = topic_visible(topic) ? MILL_KERR_NONE : MILL_KERR_UNKNOWN_TOPIC_ID;
        return topic_visible(topic) ? topic : NULL;
    }
    int32_t length = mill_wstr_copy(&named->name, ret_name, MILL_TOPIC_NAME_MAX + 1);
    if (!mill_topic_name_good(ret_name, length)) {
        *ret_error = MILL_KERR_INVALID_TOPIC_EXCEPTION;
        return NULL;
    }
    topic = mill_map_topic_by_name(core->map, ret_name, (uint32_t)length);
    *ret_error = topic_visible(topic) ? MILL_KERR_NONE : MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
    return topic_visible(topic) ? topic : NULL;
}

/* An existing topic named twice is answered once: its slot carries the stamp of this answer. */
static bool seen_before(struct mill_core *core, const struct mill_map_topic *topic)
{
    if (core->seen[topic->slot] == core->seen_stamp) {
        return true;
    }
    core->seen[topic->slot] = core->seen_stamp;
    return false;
}

/* --- elements -------------------------------------------------------------------------------- */

static void get_broker(const void *context, int32_t index, void *ret_element)
{
    const struct metadata_fill *fill = context;
    struct mill_metadata_response_brokers *element = ret_element;
    struct mill_node_view node = mill_node_at(&fill->view, index);
    element->node_id = node.id;
    element->host = mill_wstr_of(node.host);
    element->port = node.port;
    element->rack = mill_wstr_of(NULL);
}

/* A broker of the current partition, as the node that the client sees. */
static int32_t node_of(const struct metadata_fill *fill, int32_t node_id)
{
    return mill_node_of(&fill->view, node_id, &fill->topic->id, fill->partition);
}

static void get_replica(const void *context, int32_t index, void *ret_element)
{
    const struct metadata_fill *fill = context;
    int32_t broker = fill->topic->partitions[fill->partition].replicas[index];
    *(int32_t *)ret_element = node_of(fill, broker);
#ifdef MILL_MUTANT_NODES_REPLICA_REAL
    *(int32_t *)ret_element = broker;
#endif
}

static void get_isr(const void *context, int32_t index, void *ret_element)
{
    const struct metadata_fill *fill = context;
    const struct mill_map_partition *partition = &fill->topic->partitions[fill->partition];
    for (uint32_t i = 0; i < partition->replicas_count; i++) {
        if ((partition->isr_bits >> i) & 1u && index-- == 0) {
            *(int32_t *)ret_element = node_of(fill, partition->replicas[i]);
            return;
        }
    }
    *(int32_t *)ret_element = -1;
}

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    struct metadata_fill *fill = (void *)(uintptr_t)context;
    struct mill_metadata_response_topics_partitions *element = ret_element;
    const struct mill_map_partition *partition = &fill->topic->partitions[index];
    int32_t replicas = MILL_MIN((int32_t)partition->replicas_count, MILL_MAP_REPLICAS_MAX);
    element->error_code = partition->leader < 0 ? MILL_KERR_LEADER_NOT_AVAILABLE : MILL_KERR_NONE;
    element->partition_index = index;
    fill->partition = index; /* the arrays below are encoded before the next partition */
    element->leader_id = node_of(fill, partition->leader);
    element->leader_epoch = partition->leader_epoch;
    element->replica_nodes =
        (struct mill_warray){.count = replicas, .get = get_replica, .context = fill};
    element->isr_nodes = (struct mill_warray){
        .count = __builtin_popcount(partition->isr_bits), .get = get_isr, .context = fill};
    element->offline_replicas = (struct mill_warray){.count = 0};
}

static int32_t operations_of(const struct metadata_fill *fill)
{
    return fill->message.include_topic_authorized_operations ? MILL_OPERATIONS_TOPIC
                                                             : MILL_OPERATIONS_UNTOLD;
}

static void topic_element(struct metadata_fill *fill, const struct mill_map_topic *topic,
                          struct mill_metadata_response_topics *element)
{
    fill->topic = topic;
    element->error_code = MILL_KERR_NONE;
    element->topic_authorized_operations = operations_of(fill);
    element->name = mill_wstr_of_bytes(topic->name, topic->name_length);
    element->topic_id = topic->id;
    element->is_internal = (topic->flags & MILL_TOPIC_INTERNAL) != 0;
    element->partitions = (struct mill_warray){
        .count = (int32_t)topic->partitions_count, .get = get_partition, .context = fill};
}

static void get_topic_all(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct metadata_fill *fill = (void *)(uintptr_t)context;
    const struct mill_map_topic *topic = NULL;
    while (!topic_visible(topic)) {
        MILL_ASSERT_LT(fill->slot, mill_map_slots(fill->core->map));
        topic = mill_map_topic_at(fill->core->map, fill->slot++);
    }
    topic_element(fill, topic, ret_element);
}

static void get_topic_named(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct metadata_fill *fill = (void *)(uintptr_t)context;
    struct mill_metadata_response_topics *element = ret_element;
    struct mill_metadata_request_topics named;
    enum mill_kerr error = MILL_KERR_NONE;
    const struct mill_map_topic *topic;
    do {
        bool more = mill_metadata_request_topics_next(&fill->topics,
                                                      fill->request->header.api_version, &named);
        MILL_ASSERT(more);
        topic = named_find(fill->core, &named, fill->name, &error);
    } while (topic && seen_before(fill->core, topic));
    if (topic) {
        topic_element(fill, topic, element);
        return;
    }
    if (error == MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION && fill->request->expired) {
        error = MILL_KERR_LEADER_NOT_AVAILABLE; /* control may still create it: ask again */
    }
    element->error_code = (int16_t)error;
    element->name = named.name;
    if (is_by_id(&named)) {
        element->name = mill_wstr_of(NULL);
    } else {
        element->topic_authorized_operations = operations_of(fill);
    }
    element->topic_id = named.topic_id;
    element->partitions = (struct mill_warray){.count = 0};
}

/* In versions that have the field, but do not mean it, an id or no name refuses all. */
static bool named_too_early(const struct metadata_fill *fill)
{
    int16_t version = fill->request->header.api_version;
    struct mill_warray topics = fill->message.topics;
    struct mill_metadata_request_topics named;
    while (version >= IDS_WRITTEN_FROM && version < IDS_MEANT_FROM &&
           mill_metadata_request_topics_next(&topics, version, &named)) {
        if (named.name.length < 0 || !mill_uuid_is_zero(&named.topic_id)) {
            return true;
        }
    }
    return false;
}

static void get_topic_refused(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct metadata_fill *fill = (void *)(uintptr_t)context;
    struct mill_metadata_response_topics *element = ret_element;
    struct mill_metadata_request_topics named;
    bool more =
        mill_metadata_request_topics_next(&fill->topics, fill->request->header.api_version, &named);
    MILL_ASSERT(more);
    element->error_code = MILL_KERR_INVALID_REQUEST;
    element->name = named.name.length < 0 ? mill_wstr_of("") : named.name;
    element->topic_id = named.topic_id;
    element->partitions = (struct mill_warray){.count = 0};
}

static int refused_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct metadata_fill *fill = context;
    struct mill_metadata_response answer;
    fill->topics = fill->message.topics;
    mill_metadata_response_defaults(&answer);
    answer.topics = (struct mill_warray){
        .count = fill->message.topics.count, .get = get_topic_refused, .context = fill};
    return mill_metadata_response_encode(to, request->header.api_version, &answer);
}

/* --- the answer ------------------------------------------------------------------------------ */

static int32_t topics_count(struct metadata_fill *fill)
{
    int32_t count = 0;
    struct mill_core *core = fill->core;
    if (fill->all) {
        for (uint32_t i = 0; i < mill_map_slots(core->map); i++) {
            count += topic_visible(mill_map_topic_at(core->map, i));
        }
        return count;
    }
    struct mill_warray topics = fill->message.topics;
    struct mill_metadata_request_topics named;
    core->seen_stamp++;
    while (mill_metadata_request_topics_next(&topics, fill->request->header.api_version, &named)) {
        enum mill_kerr error;
        const struct mill_map_topic *topic = named_find(core, &named, fill->name, &error);
        count += !topic || !seen_before(core, topic);
    }
    core->seen_stamp++; /* the elements mark them anew */
    return count;
}

static int metadata_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct metadata_fill *fill = context;
    const struct mill_map_cluster *cluster = fill->view.cluster;
    fill->slot = 0;
    fill->topics = fill->message.topics;
    struct mill_metadata_response answer;
    mill_metadata_response_defaults(&answer);
    answer.brokers = (struct mill_warray){
        .count = (int32_t)fill->view.count, .get = get_broker, .context = fill};
    answer.cluster_id = mill_wstr_of(cluster ? cluster->cluster_id : NULL);
    answer.controller_id = cluster ? cluster->controller_id : -1;
    if (fill->message.include_cluster_authorized_operations) {
        answer.cluster_authorized_operations = MILL_OPERATIONS_CLUSTER;
    }
#ifdef MILL_MUTANT_CORE_NO_CONTROLLER
    answer.controller_id = -1;
#endif
    answer.topics = (struct mill_warray){.count = topics_count(fill),
                                         .get = fill->all ? get_topic_all : get_topic_named,
                                         .context = fill};
    return mill_metadata_response_encode(to, request->header.api_version, &answer);
}

/* True when a named topic is absent and could be created by control. */
static bool creation_wanted(struct metadata_fill *fill)
{
    const struct mill_map_cluster *cluster = fill->view.cluster;
    bool allowed = fill->message.allow_auto_topic_creation && cluster && cluster->auto_create;
#ifdef MILL_MUTANT_CORE_ASK_CONTROL
    return !fill->request->forwarded_once; /* for topics that the map has, too */
#endif
    if (fill->all || !allowed || fill->request->forwarded_once) {
        return false;
    }
    struct mill_warray topics = fill->message.topics;
    struct mill_metadata_request_topics named;
    while (mill_metadata_request_topics_next(&topics, fill->request->header.api_version, &named)) {
        enum mill_kerr error;
        if (!named_find(fill->core, &named, fill->name, &error) &&
            error == MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION) {
            return true;
        }
    }
    return false;
}

void mill_metadata_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct metadata_fill fill = {
        .core = core,
        .request = request,
        .view = mill_broker_view(core, request->conn->stream->listener),
    };
    struct mill_cursor at = request->body;
    if (mill_metadata_request_decode(&at, version, &fill.message) < 0) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    if (named_too_early(&fill)) {
        mill_answer_send(core, request, refused_fill, &fill);
        return;
    }
    fill.all = version == 0 ? fill.message.topics.count == 0 : fill.message.topics.count < 0;
    if (creation_wanted(&fill)) {
        mill_forward(core, request);
        return;
    }
    mill_answer_send(core, request, metadata_fill, &fill);
}
