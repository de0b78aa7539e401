/* SPDX-License-Identifier: Apache-2.0 */
/* CreateTopics 2-7: each topic is refused or made for itself; the answer waits until the cores
 * serve what was made, or until the client's or the core's patience ends. */
#include "control/admin/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ipc/nodes.h"
#include "protocol/errors.h"

/* --- reading the request -----------------------------------------------------------------------
 */

static void refuse(struct mill_create *item, int16_t error, const char *message)
{
    item->error = error;
    item->message = message;
}

/* Told when name and settings are right. */
static void doubt(struct mill_create *item, int16_t error, const char *message)
{
    item->assignment_error = error;
    item->assignment_fault = message;
}

const char *mill_admin_replicas(const struct mill_controller *controller, struct mill_warray *ids,
                                struct mill_map_partition *ret)
{
    int32_t id;
    *ret = (struct mill_map_partition){.leader = -1};
    while (mill_warray_next_i32(ids, &id)) {
        /* A core's id stands for its broker: which core owns a partition follows from its id. */
        if (!mill_node_is(id, controller->node_id,
                          mill_config_core_endpoints(controller->config))) {
            return "a replica is assigned to a broker that does not exist";
        }
        if (ret->replicas_count > 0) {
            return "a partition has two replicas on one broker";
        }
        ret->replicas[ret->replicas_count++] = mill_node_broker(id);
    }
    if (ret->replicas_count == 0) {
        return "a partition is assigned to no broker";
    }
    ret->leader = ret->replicas[0];
    ret->isr_count = ret->replicas_count;
    ret->isr_bits = (1u << ret->replicas_count) - 1;
    return NULL;
}

static void read_assignment(const struct mill_controller *controller,
                            struct mill_admin_request *request,
                            struct mill_create_topics_request_topics *in, struct mill_create *item)
{
    struct mill_create_topics_request_topics_assignments one;
    int32_t count = in->assignments.count;
    if (in->num_partitions != -1 || in->replication_factor != -1) {
        doubt(item, MILL_KERR_INVALID_REQUEST,
              "give assignments, or a partition count and replication factor, not both");
        return;
    }
    if (count > MILL_CONTROL_TOPIC_PARTITIONS_MAX) {
        refuse(item, MILL_KERR_POLICY_VIOLATION, "too many partitions");
        return;
    }
    struct mill_map_partition *partitions =
        mill_pool_take(&request->pool, (uint64_t)count * sizeof(*partitions));
    if (!partitions) {
        refuse(item, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        return;
    }
    while (mill_create_topics_request_topics_assignments_next(&in->assignments,
                                                              request->header.api_version, &one)) {
        const char *fault = NULL;
        if (one.partition_index < 0 || one.partition_index >= count ||
            partitions[one.partition_index].replicas_count > 0) {
            fault = "assigned partitions are not numbered from 0 without gap, each once";
        } else {
            fault =
                mill_admin_replicas(controller, &one.broker_ids, &partitions[one.partition_index]);
        }
        if (fault) {
            doubt(item, MILL_KERR_INVALID_REPLICA_ASSIGNMENT, fault);
            return;
        }
    }
    item->assigned = true;
    item->assignment = partitions;
    item->assignment_count = count;
}

static void read_configs(struct mill_admin_request *request,
                         struct mill_create_topics_request_topics *in, struct mill_create *item)
{
    struct mill_create_topics_request_topics_configs one;
    int32_t count = in->configs.count > 0 ? in->configs.count : 0;
    struct mill_meta_config *configs =
        mill_pool_take(&request->pool, (uint64_t)count * sizeof(*configs));
    uint32_t length = 0;
    while (configs && mill_create_topics_request_topics_configs_next(
                          &in->configs, request->header.api_version, &one)) {
        configs[length].name = mill_admin_text(request, &one.name, NULL);
        configs[length].value = mill_admin_text(request, &one.value, NULL);
        if (!configs[length].name) {
            configs = NULL;
        }
        length++;
    }
    if (!configs) {
        refuse(item, MILL_KERR_INVALID_REQUEST, "the topic's settings take too much memory");
        return;
    }
    item->configs = configs;
    item->configs_count = length;
}

static void read_topic(const struct mill_controller *controller, struct mill_admin_request *request,
                       struct mill_create_topics_request_topics *in, struct mill_create *item)
{
    item->partitions = in->num_partitions;
    item->replication_factor = in->replication_factor;
    item->name = mill_admin_text(request, &in->name, &item->name_length);
    if (!item->name) {
        item->name = "";
        refuse(item, MILL_KERR_INVALID_REQUEST, "a topic without name");
        return;
    }
    const char *fault = mill_topic_name_fault(item->name, item->name_length);
    if (fault) {
        refuse(item, MILL_KERR_INVALID_TOPIC_EXCEPTION, fault);
    }
    if (item->error == 0 && in->assignments.count > 0) {
        read_assignment(controller, request, in, item);
    }
    /* -1 without assignments means the broker's default. Clients may say it from version 4 on
     * (KIP-464), but Kafka takes it in older versions too and kafkajs says it in version 3. */
    if (item->error == 0) {
        read_configs(request, in, item);
    }
}

static char plain(char c)
{
    return c == '.' ? '_' : c;
}

/* Order by name with '_' for '.', so that equal and colliding names stand side by side. */
static int by_plain_name(const void *a, const void *b)
{
    const struct mill_create *left = *(struct mill_create *const *)a;
    const struct mill_create *right = *(struct mill_create *const *)b;
    for (uint32_t i = 0;; i++) {
        char l = plain(left->name[i]);
        char r = plain(right->name[i]);
        if (l != r || l == '\0') {
            return l < r ? -1 : l > r;
        }
    }
}

/* All that share a name are refused, in one row, as Kafka does: clients take a name that comes
 * twice in an answer for a broken one. Of names that collide only the first is made. */
static void refuse_duplicates(struct mill_admin_request *request)
{
    uint32_t count = request->creates_count;
    struct mill_create **order =
        mill_pool_take(&request->pool, count * sizeof(struct mill_create *));
    if (!order) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        order[i] = &request->creates[i];
    }
    qsort(order, count, sizeof(*order), by_plain_name);
    for (uint32_t first = 0; first < count;) {
        uint32_t end = first + 1;
        while (end < count && by_plain_name(&order[first], &order[end]) == 0) {
            end++;
        }
        for (uint32_t i = first; i < end; i++) {
            for (uint32_t j = first; j < end && end - first <= 1000; j++) {
                if (i != j && strcmp(order[i]->name, order[j]->name) == 0) {
                    refuse(order[i], MILL_KERR_INVALID_REQUEST,
                           "the topic is named twice in this request");
                    order[i]->repeated = order[i]->repeated || order[j] < order[i];
                }
            }
            if (i > first && order[i]->error == 0) {
                refuse(order[i], MILL_KERR_INVALID_TOPIC_EXCEPTION,
                       "the name collides with another of this request");
            }
        }
        first = end;
    }
    count = 0;
    for (uint32_t i = 0; i < request->creates_count; i++) {
        if (!request->creates[i].repeated) {
            request->creates[count++] = request->creates[i];
        }
    }
    request->creates_count = count;
}

void mill_create_topics_begin(struct mill_controller *controller,
                              struct mill_admin_request *request, struct mill_cursor *at,
                              uint64_t now_ns)
{
    struct mill_create_topics_request in;
    struct mill_create_topics_request_topics topic;
    int16_t version = request->header.api_version;
    if (mill_create_topics_request_decode(at, version, &in) < 0 ||
        in.topics.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    int32_t count = in.topics.count > 0 ? in.topics.count : 0;
    request->creates = mill_pool_take(&request->pool, (uint64_t)count * sizeof(*request->creates));
    if (!request->creates) {
        mill_admin_close(request);
        return;
    }
    while (mill_create_topics_request_topics_next(&in.topics, version, &topic)) {
        read_topic(controller, request, &topic, &request->creates[request->creates_count++]);
    }
    refuse_duplicates(request);
    request->validate_only = in.validate_only;
    mill_controller_create(controller, request->creates, request->creates_count, in.validate_only,
                           &request->pool);
    uint64_t patience_ns = in.timeout_ms > 0 ? (uint32_t)in.timeout_ms * MILL_NS_PER_MS : 0;
    request->client_until_ns = now_ns + patience_ns;
    request->wait_until_ns = MILL_MIN(request->wait_until_ns, request->client_until_ns);
}

/* --- answering ---------------------------------------------------------------------------------
 */

bool mill_admin_creates_done(const struct mill_controller *controller,
                             struct mill_admin_request *request)
{
    bool done = true;
    for (uint32_t i = 0; i < request->creates_count; i++) {
        struct mill_create *item = &request->creates[i];
        if (!item->created || item->error != 0) {
            continue;
        }
        /* It may have been deleted, and freed, while we waited. */
        item->topic = mill_topics_by_id(&controller->topics, &item->id);
        if (!item->topic) {
            refuse(item, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted again");
        } else if (item->topic->failed_count > 0) {
            refuse(item, MILL_KERR_KAFKA_STORAGE_ERROR,
                   "the topic was made, but a partition's directory could not be opened");
        } else if (item->topic->serving_count < item->topic->record->partitions_count) {
#ifndef MILL_MUTANT_CONTROL_ANSWER_UNSERVED
            done = false;
#endif
        }
    }
    return done;
}

struct answer {
    struct mill_controller *controller;
    struct mill_admin_request *request;
};

/* One topic's settings while the answer is written. */
struct configs {
    const struct mill_settings *settings;
    const struct mill_topic *topic;
};

/* Topic keys are one run of enum mill_key. */
static enum mill_key first_topic_key(void)
{
    enum mill_key key = 0;
    while (mill_key_info(key)->scope != MILL_SCOPE_TOPIC) {
        key++;
    }
    return key;
}

static void get_config(const void *context, int32_t index, void *element)
{
    const struct configs *configs = context;
    struct mill_create_topics_response_topics_configs *to = element;
    enum mill_key key = first_topic_key() + (enum mill_key)index;
    to->name = mill_wstr_of(mill_key_info(key)->name);
    to->value = mill_wstr_of(mill_settings_text(configs->settings, configs->topic, key));
    to->config_source = mill_settings_source(configs->settings, configs->topic, key);
}

static void get_topic(const void *context, int32_t index, void *element)
{
    const struct answer *answer = context;
    const struct mill_create *item = &answer->request->creates[index];
    struct mill_create_topics_response_topics *to = element;
    to->name = mill_wstr_of_bytes(item->name, (int32_t)item->name_length);
    to->error_code = item->error;
    to->error_message = mill_wstr_of(item->message);
    to->configs = (struct mill_warray){.count = 0};
    if (item->error != 0 || !item->topic) {
        return;
    }
    if (item->created) {
        to->topic_id = item->topic->record->id;
    }
    to->num_partitions = (int32_t)item->topic->record->partitions_count;
    to->replication_factor = item->topic->record->partitions[0].replicas_count;
    struct configs *configs = mill_pool_take(&answer->request->pool, sizeof(*configs));
    if (configs) {
        *configs =
            (struct configs){.settings = &answer->controller->settings, .topic = item->topic};
        to->configs = (struct mill_warray){
            .count = (int32_t)(MILL_KEY_COUNT - first_topic_key()),
            .get = get_config,
            .context = configs,
        };
    }
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_create_topics_response_encode(to, version, message);
}

void mill_create_topics_continue(struct mill_controller *controller,
                                 struct mill_admin_request *request, uint64_t now_ns)
{
    struct mill_create_topics_response out;
    if (!mill_admin_creates_done(controller, request) && now_ns < request->wait_until_ns) {
        return;
    }
    for (uint32_t i = 0; i < request->creates_count; i++) {
        struct mill_create *item = &request->creates[i];
        /* A client that waits longer than we may hold its request is told that the topic was made,
         * as by Kafka, which never waits for the partitions: they answer when they are opened. */
        if (item->created && item->error == 0 && now_ns >= request->client_until_ns &&
            item->topic->serving_count < item->topic->record->partitions_count) {
            refuse(item, MILL_KERR_REQUEST_TIMED_OUT,
                   "the topic was made; its partitions are not served yet");
        }
    }
    struct answer answer = {.controller = controller, .request = request};
    mill_create_topics_response_defaults(&out);
    out.topics = (struct mill_warray){
        .count = (int32_t)request->creates_count, .get = get_topic, .context = &answer};
    mill_admin_answer(request, encode, &out);
}
