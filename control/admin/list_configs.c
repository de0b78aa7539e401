/* SPDX-License-Identifier: Apache-2.0 */
/* ListConfigResources 0-1: the names of what has settings, of the types that a client asks for:
 * topics, nodes, and the groups for which some were set. Nothing of clients' metrics is kept here.
 * ref: KIP-714, KIP-1142 */
#include <string.h>

#include "control/admin/request.h"
#include "ipc/nodes.h"
#include "protocol/errors.h"

enum {
    TYPES_VERSION = 1, /* says types; the one before asks for clients' metrics alone */
    TYPES_ALL = MILL_RESOURCE_TOPIC | MILL_RESOURCE_BROKER | MILL_RESOURCE_BROKER_LOGGER |
                MILL_RESOURCE_CLIENT_METRICS | MILL_RESOURCE_GROUP,
};

struct resource {
    const char *name;
    int8_t type;
};

struct list {
    struct resource *items;
    int32_t count;
};

static void list_add(struct list *list, const char *name, enum mill_resource_type type)
{
    list->items[list->count++] = (struct resource){name, (int8_t)type};
}

/* The types asked for, each its own bit. ret: false: one that is none of this version's. */
static bool types_read(struct mill_list_config_resources_request *in, int16_t version,
                       uint32_t *ret_types)
{
    int8_t type = 0;
    *ret_types = 0;
    if (version < TYPES_VERSION) {
        *ret_types = MILL_RESOURCE_CLIENT_METRICS;
        return true;
    }
    if (in->resource_types.count <= 0) {
        *ret_types = TYPES_ALL;
    }
    while (mill_warray_next_i8(&in->resource_types, &type)) {
        uint32_t bit = (uint8_t)type;
        if ((bit & TYPES_ALL) == 0 || (bit & (bit - 1)) != 0) {
            return false;
        }
        *ret_types |= bit;
    }
    return true;
}

/* Nodes as clients see them. ret: false no memory. */
static bool nodes_add(const struct mill_controller *controller, struct mill_pool *pool,
                      struct list *list, enum mill_resource_type type)
{
    uint32_t nodes = mill_config_core_endpoints(controller->config);
    for (uint32_t i = 0; i < nodes; i++) {
        const char *name = mill_pool_text(pool, "%d", mill_node_virtual(controller->node_id, i));
        if (!name) {
            return false;
        }
        list_add(list, name, type);
    }
    return true;
}

/* ret: false no memory. */
static bool list_make(const struct mill_controller *controller, struct mill_pool *pool,
                      uint32_t types, struct list *list)
{
    const struct mill_topics *topics = &controller->topics;
    uint64_t most = (uint64_t)controller->group_settings.count + topics->count +
                    2 * mill_config_core_endpoints(controller->config);
    list->items = mill_pool_take(pool, most * sizeof(list->items[0]));
    if (!list->items) {
        return false;
    }
    const struct mill_group_settings *group = controller->group_settings.first;
    for (; types & MILL_RESOURCE_GROUP && group; group = group->next) {
        list_add(list, group->group_id, MILL_RESOURCE_GROUP);
    }
    if ((types & MILL_RESOURCE_BROKER_LOGGER &&
         !nodes_add(controller, pool, list, MILL_RESOURCE_BROKER_LOGGER)) ||
        (types & MILL_RESOURCE_BROKER &&
         !nodes_add(controller, pool, list, MILL_RESOURCE_BROKER))) {
        return false;
    }
    const struct mill_topic *topic = topics->first;
    for (; types & MILL_RESOURCE_TOPIC && topic; topic = topic->next) {
#ifndef MILL_MUTANT_CONTROL_LIST_DELETED
        if (mill_topics_by_name(topics, topic->record->name, topic->record->name_length) != topic) {
            continue; /* on its way out */
        }
#endif
        list_add(list, topic->record->name, MILL_RESOURCE_TOPIC);
    }
    return true;
}

static void get_resource(const void *context, int32_t index, void *element)
{
    const struct resource *resource = &((const struct list *)context)->items[index];
    struct mill_list_config_resources_response_config_resources *to = element;
    to->resource_name = mill_wstr_of(resource->name);
    to->resource_type = resource->type;
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_list_config_resources_response_encode(to, version, message);
}

void mill_list_config_resources(const struct mill_controller *controller,
                                struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_list_config_resources_request in;
    struct mill_list_config_resources_response out;
    struct list list = {0};
    uint32_t types = 0;
    int16_t version = request->header.api_version;
    if (mill_list_config_resources_request_decode(at, version, &in) < 0) {
        mill_admin_close(request);
        return;
    }
    mill_list_config_resources_response_defaults(&out);
    if (!types_read(&in, version, &types)) {
        out.error_code = MILL_KERR_UNSUPPORTED_VERSION;
    } else if (!list_make(controller, &request->pool, types, &list)) {
        mill_admin_close(request);
        return;
    }
    out.config_resources =
        (struct mill_warray){.count = list.count, .get = get_resource, .context = &list};
    mill_admin_answer(request, encode, &out);
}
