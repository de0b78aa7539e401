/* SPDX-License-Identifier: Apache-2.0 */
/* CreatePartitions 0-3: each topic is refused or grown for itself; the answer waits until the cores
 * serve what was added, or until the client's or the core's patience ends. ref: KIP-195 */
#include "control/admin/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "protocol/errors.h"

static void refuse(struct mill_grow *item, int16_t error, const char *message)
{
    item->error = error;
    item->message = message;
}

/* Where the new partitions are to lie. */
static void read_assignments(const struct mill_controller *controller,
                             struct mill_admin_request *request,
                             struct mill_create_partitions_request_topics *in,
                             struct mill_grow *item)
{
    struct mill_create_partitions_request_topics_assignments one;
    int32_t count = in->assignments.count;
    struct mill_map_partition *partitions =
        count <= MILL_CONTROL_TOPIC_PARTITIONS_MAX
            ? mill_pool_take(&request->pool, (uint64_t)count * sizeof(*partitions))
            : NULL;
    if (!partitions) {
        refuse(item, MILL_KERR_INVALID_REPLICA_ASSIGNMENT, "too many assignments");
        return;
    }
    for (int32_t i = 0; !item->assignment_fault && i < count; i++) {
        if (!mill_create_partitions_request_topics_assignments_next(
                &in->assignments, request->header.api_version, &one)) {
            break;
        }
        item->assignment_fault = mill_admin_replicas(controller, &one.broker_ids, &partitions[i]);
    }
    item->assignment = partitions;
    item->assignment_count = count;
}

static void read_topic(const struct mill_controller *controller, struct mill_admin_request *request,
                       struct mill_create_partitions_request_topics *in, struct mill_grow *item)
{
    item->name = mill_admin_text(request, &in->name, &item->name_length);
    item->count = in->count;
    item->topic =
        item->name ? mill_topics_by_name(&controller->topics, item->name, item->name_length) : NULL;
    item->name = item->name ? item->name : "";
    if (!item->topic) {
        refuse(item, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic");
    } else if (in->assignments.count >= 0) {
        read_assignments(controller, request, in, item);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct mill_grow *const *)a)->name, (*(struct mill_grow *const *)b)->name);
}

/* All that share a name are refused, in one row, as Kafka does. */
static void refuse_duplicates(struct mill_admin_request *request)
{
    uint32_t count = request->grows_count;
    struct mill_grow **order = mill_pool_take(&request->pool, count * sizeof(struct mill_grow *));
    for (uint32_t i = 0; order && i < count; i++) {
        order[i] = &request->grows[i];
    }
    if (order) {
        qsort(order, count, sizeof(*order), by_name);
    }
    for (uint32_t i = 1; order && i < count; i++) {
        if (strcmp(order[i - 1]->name, order[i]->name) == 0) {
            refuse(order[i], MILL_KERR_INVALID_REQUEST, "the topic is named twice in this request");
            order[i - 1]->repeated = true; /* the last of them answers */
        }
    }
    count = 0;
    for (uint32_t i = 0; i < request->grows_count; i++) {
        if (!request->grows[i].repeated) {
            request->grows[count++] = request->grows[i];
        }
    }
    request->grows_count = count;
}

void mill_create_partitions_begin(struct mill_controller *controller,
                                  struct mill_admin_request *request, struct mill_cursor *at,
                                  uint64_t now_ns)
{
    struct mill_create_partitions_request in;
    struct mill_create_partitions_request_topics topic;
    int16_t version = request->header.api_version;
    if (mill_create_partitions_request_decode(at, version, &in) < 0 ||
        in.topics.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    int32_t count = in.topics.count > 0 ? in.topics.count : 0;
    request->grows = mill_pool_take(&request->pool, (uint64_t)count * sizeof(*request->grows));
    if (!request->grows) {
        mill_admin_close(request);
        return;
    }
    while (mill_create_partitions_request_topics_next(&in.topics, version, &topic)) {
        struct mill_grow *item = &request->grows[request->grows_count++];
        *item = (struct mill_grow){0};
        read_topic(controller, request, &topic, item);
    }
    refuse_duplicates(request);
    mill_controller_grow(controller, request->grows, request->grows_count, in.validate_only,
                         &request->pool);
    uint64_t patience_ns = in.timeout_ms > 0 ? (uint32_t)in.timeout_ms * MILL_NS_PER_MS : 0;
    request->wait_until_ns = MILL_MIN(request->wait_until_ns, now_ns + patience_ns);
}

/* --- answering ---------------------------------------------------------------------------------
 */

/* True when every grown topic is served whole, or failed; fills errors of failed ones. */
static bool is_done(const struct mill_controller *controller, struct mill_admin_request *request)
{
    bool done = true;
    for (uint32_t i = 0; i < request->grows_count; i++) {
        struct mill_grow *item = &request->grows[i];
        if (!item->grown || item->error != 0) {
            continue;
        }
        /* It may have been deleted, and freed, while we waited. */
        const struct mill_topic *topic = mill_topics_by_id(&controller->topics, &item->id);
        if (!topic) {
            refuse(item, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted");
        } else if (topic->failed_count > 0) {
            refuse(item, MILL_KERR_KAFKA_STORAGE_ERROR,
                   "partitions were added, but a directory could not be opened");
        } else if (topic->serving_count < topic->record->partitions_count) {
            done = false;
        }
    }
    return done;
}

static void get_topic(const void *context, int32_t index, void *element)
{
    const struct mill_grow *item = &((const struct mill_admin_request *)context)->grows[index];
    struct mill_create_partitions_response_results *to = element;
    to->name = mill_wstr_of_bytes(item->name, (int32_t)item->name_length);
    to->error_code = item->error;
    to->error_message = mill_wstr_of(item->message);
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_create_partitions_response_encode(to, version, message);
}

void mill_create_partitions_continue(const struct mill_controller *controller,
                                     struct mill_admin_request *request, uint64_t now_ns)
{
    struct mill_create_partitions_response out;
    /* What is late is made all the same: partitions that are not served yet are retriable. */
    if (!is_done(controller, request) && now_ns < request->wait_until_ns) {
        return;
    }
    mill_create_partitions_response_defaults(&out);
    out.results = (struct mill_warray){
        .count = (int32_t)request->grows_count, .get = get_topic, .context = request};
    mill_admin_answer(request, encode, &out);
}
