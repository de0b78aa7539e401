/* SPDX-License-Identifier: Apache-2.0 */
/* FindCoordinator, from the partition map: an id's coordinator is the leader of the partition of
 * the internal topic that the id belongs to. Only where that topic does not exist yet does the
 * frame go to control, once: it makes the topic, and the map has it then, or the client asks again.
 */
#include "dataplane/core/core_types.h"

#include <string.h>

#include "ipc/coordinators.h"
#include "protocol/errors.h"

enum {
    KEYS_MAX = 10000, /* of one request: more closes the connection (counted) */
};

struct find_fill {
    struct mill_broker_view view;
    const struct mill_map_topic *topic; /* NULL: there is none, or no such kind of key */
    struct mill_find_coordinator_request in;
    struct mill_warray keys; /* what is left */
    bool flexible;
    int16_t error; /* of keys without a coordinator */
    const char *message;
};

/* What both forms of the answer say of a key. */
struct found {
    struct mill_node_view node;
    int16_t error;
    const char *message; /* NULL: there is one */
};

static int32_t shard_of(const struct mill_wstr *id, uint32_t count)
{
    struct mill_id_hash hash = {0};
    struct mill_buf room;
    bool here = id->ptr || id->length <= 0;
    struct mill_cursor at =
        here ? mill_cursor_over(&room, id->ptr, (uint32_t)MILL_MAX(id->length, 0)) : id->at;
    const uint8_t *run;
    for (uint32_t part; (part = mill_cursor_run(&at, &run)) > 0;) {
        mill_id_hash_add(&hash, run, part);
        if (mill_cursor_skip(&at, part) < 0) {
            break;
        }
    }
    return mill_id_hash_shard(&hash, count);
}

static struct found coordinator_of(const struct find_fill *fill, const struct mill_wstr *id)
{
    struct found found = {
        .node = {.id = -1, .host = "", .port = -1}, .error = fill->error, .message = fill->message};
    if (fill->topic) {
        int32_t shard = shard_of(id, fill->topic->partitions_count);
        int32_t leader = fill->topic->partitions[shard].leader;
        if (mill_node_find(&fill->view, leader, &fill->topic->id, shard, &found.node)) {
            found.error = MILL_KERR_NONE;
            found.message = NULL;
        }
    }
    return found;
}

static void get_coordinator(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct find_fill *fill = (void *)(uintptr_t)context;
    struct mill_find_coordinator_response_coordinators *element = ret_element;
    bool more = mill_warray_next_str(&fill->keys, fill->flexible, &element->key);
    MILL_ASSERT(more);
    struct found found = coordinator_of(fill, &element->key);
    element->node_id = found.node.id;
    element->host = mill_wstr_of(found.node.host);
    element->port = found.node.port;
    element->error_code = found.error;
    element->error_message = mill_wstr_of(found.message);
}

static int coordinator_fill(struct mill_writer *to, const struct mill_request *request,
                            void *context)
{
    struct find_fill *fill = context;
    struct mill_find_coordinator_response answer;
    mill_find_coordinator_response_defaults(&answer);
    struct found found = coordinator_of(fill, &fill->in.key);
    answer.error_code = found.error;
    answer.error_message = mill_wstr_of(found.message);
    answer.node_id = found.node.id;
    answer.host = mill_wstr_of(found.node.host);
    answer.port = found.node.port;
    fill->keys = fill->in.coordinator_keys;
    answer.coordinators = (struct mill_warray){
        .count = MILL_MAX(fill->keys.count, 0), .get = get_coordinator, .context = fill};
    return mill_find_coordinator_response_encode(to, request->header.api_version, &answer);
}

static const struct mill_map_topic *topic_find(const struct mill_core *core, const char *name)
{
    const struct mill_map_topic *topic =
        mill_map_topic_by_name(core->map, name, (uint32_t)strlen(name));
    return topic && !(topic->flags & MILL_TOPIC_DELETING) && topic->partitions_count > 0 ? topic
                                                                                         : NULL;
}

void mill_coordinator_begin(struct mill_core *core, struct mill_request *request)
{
    struct find_fill fill = {.flexible = request->header.flexible};
    struct mill_cursor at = request->body;
    if (mill_find_coordinator_request_decode(&at, request->header.api_version, &fill.in) < 0 ||
        fill.in.coordinator_keys.count > KEYS_MAX) {
        mill_request_malformed(core, request);
        return;
    }
    const char *name = mill_coordinator_topic(fill.in.key_type);
    if (!name) {
        fill.error = MILL_KERR_INVALID_REQUEST;
        fill.message = "unknown type of key";
        request->top_error = fill.error;
        mill_answer_send(core, request, coordinator_fill, &fill);
        return;
    }
    fill.topic = topic_find(core, name);
#ifdef MILL_MUTANT_CORE_COORDINATOR_ASKED
    fill.topic = request->forwarded_once ? fill.topic : NULL; /* as if only control knew */
#endif
    if (!fill.topic && !request->forwarded_once) {
        mill_forward(core, request);
        return;
    }
    fill.view = mill_broker_view(core, request->conn->stream->listener);
    fill.error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    fill.message = request->expired ? "the control process did not answer in time"
                                    : "The coordinator is not available.";
    request->top_error = fill.topic ? MILL_KERR_NONE : fill.error;
    mill_answer_send(core, request, coordinator_fill, &fill);
}
