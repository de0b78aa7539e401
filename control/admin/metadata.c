/* SPDX-License-Identifier: Apache-2.0 */
/* A Metadata request that names topics which do not exist: makes those that may be made, waits
 * until the cores serve them, and sends the core back to the map. Names that may not be used, and
 * refusals, are answered by the core: the topic is then still unknown. */
#include "control/admin/request.h"

void mill_admin_metadata_begin(struct mill_controller *controller,
                               struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_metadata_request in;
    struct mill_metadata_request_topics topic;
    if (mill_metadata_request_decode(at, request->header.api_version, &in) < 0 ||
        in.topics.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    request->outcome = MILL_OUTCOME_AGAIN;
    if (!in.allow_auto_topic_creation || in.topics.count <= 0 ||
        !mill_config_bool(controller->config, MILL_KEY_AUTO_CREATE_TOPICS_ENABLE)) {
        request->ready = true;
        return;
    }
    struct mill_create *items =
        mill_pool_take(&request->pool, (uint64_t)in.topics.count * sizeof(*items));
    if (!items) {
        mill_admin_close(request);
        return;
    }
    request->creates = items;
    while (mill_metadata_request_topics_next(&in.topics, request->header.api_version, &topic)) {
        struct mill_create *item = &items[request->creates_count];
        if (topic.name.length <= 0 || topic.name.length > MILL_TOPIC_NAME_MAX) {
            continue;
        }
        *item = (struct mill_create){.partitions = -1, .replication_factor = -1};
        item->name = mill_admin_text(request, &topic.name, &item->name_length);
        /* One commit per topic: a duplicate name, or two that collide, meet the table as it is
         * after the one before. Requests name few topics that do not exist. */
        if (item->name && !mill_topic_name_fault(item->name, item->name_length)) {
            request->creates_count++;
            mill_controller_create(controller, item, 1, false, &request->pool);
        }
    }
}

void mill_metadata_continue(const struct mill_controller *controller,
                            struct mill_admin_request *request, uint64_t now_ns)
{
    request->ready =
        mill_admin_creates_done(controller, request) || now_ns >= request->wait_until_ns;
}
