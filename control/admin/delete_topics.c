/* SPDX-License-Identifier: Apache-2.0 */
/* DeleteTopics 1-6: by name, and by id since version 6. The answer does not wait for the cores: a
 * topic that is being deleted is unknown to everybody, and its name is free. */
#include "control/admin/request.h"
#include "protocol/errors.h"

#include <string.h>

struct item {
    struct mill_wstr name; /* as asked for, or of the topic found by id */
    struct mill_uuid id;
    struct mill_topic *topic; /* to be deleted */
    int16_t error;
    const char *message;
};

struct items {
    struct item *items;
    int32_t count;
};

static void get_item(const void *context, int32_t index, void *element)
{
    const struct item *item = &((const struct items *)context)->items[index];
    struct mill_delete_topics_response_responses *to = element;
    to->name = item->name;
    to->topic_id = item->id;
    to->error_code = item->error;
    to->error_message = mill_wstr_of(item->message);
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_delete_topics_response_encode(to, version, message);
}

static void refuse(struct item *item, int16_t error, const char *message)
{
    item->error = error;
    item->message = message;
}

static void resolve(struct mill_controller *controller, struct mill_admin_request *request,
                    struct item *item)
{
    uint32_t length = 0;
    bool by_name = item->name.length >= 0;
#ifdef MILL_MUTANT_CONTROL_DELETE_BY_ID
    by_name = by_name && request->header.api_version < 6;
#endif
    if (by_name && !mill_uuid_is_zero(&item->id)) {
        refuse(item, MILL_KERR_INVALID_REQUEST, "name a topic by its name or by its id, not both");
    } else if (by_name) {
        const char *name = item->name.length <= MILL_TOPIC_NAME_MAX
                               ? mill_admin_text(request, &item->name, &length)
                               : NULL;
        item->topic = name ? mill_topics_by_name(&controller->topics, name, length) : NULL;
        if (!item->topic) {
            refuse(item, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic");
        }
    } else {
        item->topic = mill_topics_by_id(&controller->topics, &item->id);
        if (item->topic && (item->topic->record->flags & MILL_TOPIC_DELETING) != 0) {
            item->topic = NULL;
        }
        if (!item->topic) {
            refuse(item, MILL_KERR_UNKNOWN_TOPIC_ID, "there is no topic with this id");
        }
    }
    if (item->topic && (item->topic->record->flags & MILL_TOPIC_INTERNAL) != 0) {
        item->topic = NULL;
        refuse(item, MILL_KERR_INVALID_REQUEST, "an internal topic cannot be deleted");
    }
    if (item->topic && !mill_config_bool(controller->config, MILL_KEY_DELETE_TOPIC_ENABLE)) {
        item->topic = NULL;
        refuse(item, MILL_KERR_TOPIC_DELETION_DISABLED, "delete.topic.enable is false");
    }
    if (item->topic) {
        item->id = item->topic->record->id;
        item->name = mill_wstr_of(mill_pool_text(&request->pool, "%s", item->topic->record->name));
    }
}

/* Deletes what was found, in one commit. A topic named twice is deleted once and refused once. */
static void delete_all(struct mill_controller *controller, struct mill_admin_request *request,
                       struct items *items)
{
    struct mill_topic **topics =
        mill_pool_take(&request->pool, (uint64_t)items->count * sizeof(struct mill_topic *));
    uint32_t count = 0;
    for (int32_t i = 0; topics && i < items->count; i++) {
        struct item *item = &items->items[i];
        /* The flag marks those already taken; the controller sets it for good. */
        if (item->topic && (item->topic->record->flags & MILL_TOPIC_DELETING) != 0) {
            item->topic = NULL;
            refuse(item, MILL_KERR_INVALID_REQUEST, "the topic is named twice in this request");
        } else if (item->topic) {
            item->topic->record->flags |= MILL_TOPIC_DELETING;
            topics[count++] = item->topic;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        topics[i]->record->flags &= ~(uint32_t)MILL_TOPIC_DELETING;
    }
    int16_t error = !topics     ? (int16_t)MILL_KERR_UNKNOWN_SERVER_ERROR
                    : count > 0 ? mill_controller_delete(controller, topics, count)
                                : (int16_t)MILL_KERR_NONE;
    for (int32_t i = 0; error != 0 && i < items->count; i++) {
        if (items->items[i].topic) {
            refuse(&items->items[i], error, "the metadata store failed");
        }
    }
}

void mill_delete_topics(struct mill_controller *controller, struct mill_admin_request *request,
                        struct mill_cursor *at)
{
    struct mill_delete_topics_request in;
    struct mill_delete_topics_request_topics topic;
    struct mill_delete_topics_response out;
    struct items items = {0};
    int16_t version = request->header.api_version;
    if (mill_delete_topics_request_decode(at, version, &in) < 0) {
        mill_admin_close(request);
        return;
    }
    int32_t count = version >= 6 ? in.topics.count : in.topic_names.count;
    count = count > 0 ? count : 0;
    items.items = count <= MILL_ADMIN_ELEMENTS_MAX
                      ? mill_pool_take(&request->pool, (uint64_t)count * sizeof(*items.items))
                      : NULL;
    if (!items.items) {
        mill_admin_close(request);
        return;
    }
    while (version >= 6 && items.count < count &&
           mill_delete_topics_request_topics_next(&in.topics, version, &topic)) {
        items.items[items.count++] = (struct item){.name = topic.name, .id = topic.topic_id};
    }
    while (version < 6 && items.count < count &&
           mill_warray_next_str(&in.topic_names, request->header.flexible,
                                &items.items[items.count].name)) {
        items.count++;
    }
    for (int32_t i = 0; i < items.count; i++) {
        resolve(controller, request, &items.items[i]);
    }
    delete_all(controller, request, &items);
    mill_delete_topics_response_defaults(&out);
    out.responses = (struct mill_warray){.count = items.count, .get = get_item, .context = &items};
    mill_admin_answer(request, encode, &out);
}
