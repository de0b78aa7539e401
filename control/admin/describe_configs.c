/* SPDX-License-Identifier: Apache-2.0 */
/* DescribeConfigs 1-4: every key of a topic, of a group or of the broker, with its source and where
 * else it could come from. Values of passwords are never told. */
#include <string.h>

#include "control/admin/request.h"
#include "protocol/errors.h"

enum {
    SOURCE_TOPIC = 1,
    SOURCE_BROKER = 2,  /* altered for this broker */
    SOURCE_CLUSTER = 3, /* altered for all brokers */
    SOURCE_STATIC = 4,
    SOURCE_DEFAULT = 5,
    SOURCE_GROUP = 8,
    SYNONYMS_MAX = 5 + 2 * MILL_CONFIG_SYNONYMS_MAX,
};

struct synonym {
    const char *name;
    const char *value;
    int8_t source;
};

struct resource {
    struct mill_describe_configs_request_resources in;
    int16_t error;
    const char *message;
    const struct mill_topic *topic; /* NULL: the broker, all brokers, or a group */
    const char *group_id;           /* NULL: it is none */
    bool all_brokers;
    uint16_t *keys; /* enum mill_key of those to be listed; of a group enum mill_group_key */
    int32_t keys_count;
};

/* What is being written just now: the encoder walks depth first, one key at a time. */
struct current {
    const struct mill_topic *topic;
    struct synonym synonyms[SYNONYMS_MAX];
    int32_t synonyms_count;
};

struct answer {
    const struct mill_controller *controller;
    struct mill_pool *pool;
    const struct mill_config *config;
    const struct mill_settings *settings;
    struct resource *resources;
    int32_t resources_count;
    bool synonyms;
    bool documentation;
    struct current *current;
};

static int8_t wire_type(enum mill_config_type type)
{
    switch (type) {
    case MILL_CONFIG_BOOL:
        return 1;
    case MILL_CONFIG_STRING:
        return 2;
    case MILL_CONFIG_INT:
        return 3;
    case MILL_CONFIG_SHORT:
        return 4;
    case MILL_CONFIG_LONG:
        return 5;
    case MILL_CONFIG_DOUBLE:
        return 6;
    case MILL_CONFIG_LIST:
        return 7;
    case MILL_CONFIG_PASSWORD:
        return 9;
    }
    return 0;
}

/* --- synonyms ----------------------------------------------------------------------------------
 */

static void add_synonym(struct current *current, const char *name, const char *value, int8_t source)
{
    if (current->synonyms_count < SYNONYMS_MAX) {
        current->synonyms[current->synonyms_count++] =
            (struct synonym){.name = name, .value = value, .source = source};
    }
}

/* What was altered while the broker ran, of this broker before that of all. */
static void add_altered(const struct answer *answer, enum mill_key broker)
{
    static const int8_t sources[MILL_SETTINGS_LEVELS] = {SOURCE_BROKER, SOURCE_CLUSTER};
    for (uint32_t level = 0; level < MILL_SETTINGS_LEVELS; level++) {
        if (answer->settings->altered[level][broker]) {
            add_synonym(answer->current, mill_key_info(broker)->name,
                        answer->settings->altered[level][broker], sources[level]);
        }
    }
}

/* In the order in which they would give the value: topic, altered, file (and its other units),
 * default. */
static void find_synonyms(const struct answer *answer, enum mill_key key)
{
    struct current *current = answer->current;
    const struct mill_key_info *info = mill_key_info(key);
    struct mill_key_synonym others[MILL_CONFIG_SYNONYMS_MAX];
    const char *own = current->topic ? mill_topic_config(current->topic, info->name) : NULL;
    enum mill_key broker = info->scope == MILL_SCOPE_TOPIC ? info->broker_key : key;
    bool secret = info->type == MILL_CONFIG_PASSWORD;
    current->synonyms_count = 0;
    if (own) {
        add_synonym(current, info->name, own, SOURCE_TOPIC);
    }
    if (broker != MILL_KEY_COUNT) {
        uint32_t count = mill_key_synonyms(broker, others);
        add_altered(answer, broker);
        if (mill_config_is_set(answer->config, broker)) {
            add_synonym(current, mill_key_info(broker)->name,
                        secret ? NULL : mill_config_text(answer->config, broker), SOURCE_STATIC);
        }
        for (uint32_t i = 0; i < count; i++) {
            if (mill_config_is_set(answer->config, others[i].key)) {
                add_synonym(current, mill_key_info(others[i].key)->name,
                            mill_config_text(answer->config, others[i].key), SOURCE_STATIC);
            }
        }
        info = mill_key_info(broker);
    }
    if (info->default_text) {
        add_synonym(current, info->name, info->default_text, SOURCE_DEFAULT);
    }
    uint32_t units = broker != MILL_KEY_COUNT ? mill_key_synonyms(broker, others) : 0;
    for (uint32_t i = 0; i < units; i++) {
        info = mill_key_info(others[i].key);
        if (info->default_text) {
            add_synonym(current, info->name, info->default_text, SOURCE_DEFAULT);
        }
    }
}

static void get_synonym(const void *context, int32_t index, void *element)
{
    const struct answer *answer = context;
    const struct synonym *synonym = &answer->current->synonyms[index];
    struct mill_describe_configs_response_results_configs_synonyms *to = element;
    to->name = mill_wstr_of(synonym->name);
    to->value = mill_wstr_of(synonym->value);
    to->source = synonym->source;
}

/* --- keys and resources ------------------------------------------------------------------------
 */

struct keys_context {
    const struct answer *answer;
    const struct resource *resource;
};

/* A key of a group: its own value, else the broker's of that meaning, as it came to that. */
static void get_group_key(const struct answer *answer, const struct resource *resource,
                          enum mill_group_key key,
                          struct mill_describe_configs_response_results_configs *to)
{
    struct current *current = answer->current;
    const struct mill_group_key_info *info = mill_group_key_info(key);
    const struct mill_group_settings *own =
        mill_group_settings_find(answer->controller, resource->group_id);
    bool set = own && own->set[key];
    const char *text = set ? mill_pool_text(answer->pool, "%lld", (long long)own->values[key])
                           : mill_settings_text(answer->settings, NULL, info->broker);
    current->topic = NULL;
    to->name = mill_wstr_of(info->name);
    to->value = mill_wstr_of(text);
    to->config_source =
        set ? (int8_t)SOURCE_GROUP : mill_settings_source(answer->settings, NULL, info->broker);
    to->config_type = wire_type(MILL_CONFIG_INT);
    to->documentation =
        mill_wstr_of(answer->documentation ? mill_key_info(info->broker)->help : NULL);
    to->synonyms = (struct mill_warray){.count = 0};
    if (answer->synonyms) {
        find_synonyms(answer, info->broker);
        if (set && current->synonyms_count < SYNONYMS_MAX) {
            memmove(current->synonyms + 1, current->synonyms,
                    (size_t)current->synonyms_count * sizeof(current->synonyms[0]));
            current->synonyms[0] =
                (struct synonym){.name = info->name, .value = text, .source = SOURCE_GROUP};
            current->synonyms_count++;
        }
        to->synonyms = (struct mill_warray){
            .count = current->synonyms_count, .get = get_synonym, .context = answer};
    }
}

static void get_key(const void *context, int32_t index, void *element)
{
    const struct keys_context *keys = context;
    const struct answer *answer = keys->answer;
    const struct resource *resource = keys->resource;
    struct mill_describe_configs_response_results_configs *to = element;
    if (resource->group_id) {
        get_group_key(answer, resource, (enum mill_group_key)resource->keys[index], to);
        return;
    }
    enum mill_key key = (enum mill_key)resource->keys[index];
    const struct mill_key_info *info = mill_key_info(key);
    answer->current->topic = resource->topic;
    to->name = mill_wstr_of(info->name);
    to->is_sensitive = info->type == MILL_CONFIG_PASSWORD;
    const char *value = resource->all_brokers
                            ? answer->settings->altered[MILL_SETTINGS_CLUSTER][key]
                            : mill_settings_text(answer->settings, resource->topic, key);
    to->value = mill_wstr_of(to->is_sensitive ? NULL : value);
    to->config_source = resource->all_brokers
                            ? SOURCE_CLUSTER
                            : mill_settings_source(answer->settings, resource->topic, key);
#ifdef MILL_MUTANT_CONTROL_CONFIG_UNSET
    to->config_source = resource->topic ? SOURCE_DEFAULT : to->config_source;
#endif
    to->read_only = !resource->topic && !mill_key_is_dynamic(key);
    to->config_type = wire_type(info->type);
    to->documentation = mill_wstr_of(answer->documentation ? info->help : NULL);
    to->synonyms = (struct mill_warray){.count = 0};
    if (answer->synonyms && resource->all_brokers) {
        answer->current->synonyms_count = 0;
        add_synonym(answer->current, info->name,
                    answer->settings->altered[MILL_SETTINGS_CLUSTER][key], SOURCE_CLUSTER);
    } else if (answer->synonyms) {
        find_synonyms(answer, key);
    }
    if (answer->synonyms) {
        to->synonyms = (struct mill_warray){
            .count = answer->current->synonyms_count, .get = get_synonym, .context = answer};
    }
}

struct results_context {
    const struct answer *answer;
    struct keys_context *keys;
};

static void get_result(const void *context, int32_t index, void *element)
{
    const struct results_context *results = context;
    const struct resource *resource = &results->answer->resources[index];
    struct mill_describe_configs_response_results *to = element;
    to->error_code = resource->error;
    to->error_message = mill_wstr_of(resource->message);
    to->resource_type = resource->in.resource_type;
    to->resource_name = resource->in.resource_name;
    *results->keys = (struct keys_context){.answer = results->answer, .resource = resource};
    to->configs = (struct mill_warray){
        .count = resource->keys_count, .get = get_key, .context = results->keys};
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_configs_response_encode(to, version, message);
}

/* --- reading the request -----------------------------------------------------------------------
 */

static void refuse(struct resource *resource, int16_t error, const char *message)
{
    resource->error = error;
    resource->message = message;
}

/* Finds what is described. ret: false when refused. */
static bool find_resource(struct mill_controller *controller, struct mill_admin_request *request,
                          struct resource *resource)
{
    uint32_t length = 0;
    const char *name = mill_admin_text(request, &resource->in.resource_name, &length);
    if (!name) {
        refuse(resource, MILL_KERR_INVALID_REQUEST, "a resource without name");
        return false;
    }
    if (resource->in.resource_type == MILL_RESOURCE_TOPIC) {
        const char *fault = mill_topic_name_fault(name, length);
        if (fault) {
            refuse(resource, MILL_KERR_INVALID_TOPIC_EXCEPTION, fault);
            return false;
        }
        resource->topic = mill_topics_by_name(&controller->topics, name, length);
        if (!resource->topic) {
            refuse(resource, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic");
        }
        return resource->topic != NULL;
    }
    if (resource->in.resource_type == MILL_RESOURCE_BROKER) {
        resource->all_brokers = length == 0;
        if (!resource->all_brokers && !mill_admin_is_broker(controller, name)) {
            refuse(resource, MILL_KERR_INVALID_REQUEST,
                   mill_pool_text(&request->pool, "this is broker %d with %u nodes, not %s",
                                  controller->node_id,
                                  mill_config_core_endpoints(controller->config), name));
            return false;
        }
        return true;
    }
    if (resource->in.resource_type == MILL_RESOURCE_GROUP) {
        if (length == 0) {
            refuse(resource, MILL_KERR_INVALID_REQUEST, "Group name must not be empty");
        }
        resource->group_id = name;
        return length > 0;
    }
    refuse(resource, MILL_KERR_INVALID_REQUEST,
           "only topics (2), brokers (4) and groups (32) are described");
    return false;
}

/* The same of a group. */
static bool find_group_keys(struct mill_admin_request *request, struct resource *resource)
{
    bool wanted[MILL_GROUP_KEY_COUNT] = {false};
    struct mill_warray names = resource->in.configuration_keys;
    struct mill_wstr name;
    resource->keys = mill_pool_take(&request->pool, MILL_GROUP_KEY_COUNT * sizeof(*resource->keys));
    while (names.count > 0 && mill_warray_next_str(&names, request->header.flexible, &name)) {
        char text[64];
        if (mill_wstr_copy(&name, text, sizeof(text)) >= 0 &&
            mill_group_key_find(text) < MILL_GROUP_KEY_COUNT) {
            wanted[mill_group_key_find(text)] = true;
        }
    }
    for (uint16_t key = 0; resource->keys && key < MILL_GROUP_KEY_COUNT; key++) {
        if (resource->in.configuration_keys.count <= 0 || wanted[key]) {
            resource->keys[resource->keys_count++] = key;
        }
    }
    return resource->keys != NULL;
}

/* Which keys to list: all of the scope when none is named, or those asked for; unknown ones are
 * left out. Of all brokers those that were altered for all. */
static bool find_keys(const struct mill_controller *controller, struct mill_admin_request *request,
                      struct resource *resource)
{
    if (resource->group_id) {
        return find_group_keys(request, resource);
    }
    enum mill_config_scope scope = resource->topic ? MILL_SCOPE_TOPIC : MILL_SCOPE_BROKER;
    resource->keys = mill_pool_take(&request->pool, MILL_KEY_COUNT * sizeof(*resource->keys));
    if (!resource->keys) {
        return false;
    }
    bool wanted[MILL_KEY_COUNT] = {false};
    struct mill_warray names = resource->in.configuration_keys;
    struct mill_wstr name;
    while (names.count > 0 && mill_warray_next_str(&names, request->header.flexible, &name)) {
        char text[128];
        enum mill_key key = mill_wstr_copy(&name, text, sizeof(text)) < 0
                                ? MILL_KEY_COUNT
                                : mill_key_find(scope, text);
        if (key != MILL_KEY_COUNT) {
            wanted[key] = true;
        }
    }
    for (enum mill_key key = 0; key < MILL_KEY_COUNT; key++) {
        bool there = !resource->all_brokers ||
                     controller->settings.altered[MILL_SETTINGS_CLUSTER][key] != NULL;
        if (mill_key_info(key)->scope == scope && there &&
            (resource->in.configuration_keys.count <= 0 || wanted[key])) {
            resource->keys[resource->keys_count++] = (uint16_t)key;
        }
    }
    return true;
}

/* One type that is none makes the whole request wrong, as in Kafka. */
static void refuse_unknown_types(struct answer *answer)
{
    bool unknown = false;
    for (int32_t i = 0; i < answer->resources_count; i++) {
        int8_t type = answer->resources[i].in.resource_type;
        unknown = unknown || !(type == MILL_RESOURCE_TOPIC || type == MILL_RESOURCE_BROKER ||
                               type == MILL_RESOURCE_BROKER_LOGGER ||
                               type == MILL_RESOURCE_CLIENT_METRICS || type == MILL_RESOURCE_GROUP);
    }
    for (int32_t i = 0; unknown && i < answer->resources_count; i++) {
        refuse(&answer->resources[i], MILL_KERR_INVALID_REQUEST, "a resource's type is not known");
        answer->resources[i].keys_count = 0;
    }
}

void mill_describe_configs(struct mill_controller *controller, struct mill_admin_request *request,
                           struct mill_cursor *at)
{
    struct mill_describe_configs_request in;
    struct mill_describe_configs_response out;
    struct current current = {0};
    struct answer answer = {.controller = controller,
                            .pool = &request->pool,
                            .config = controller->config,
                            .settings = &controller->settings,
                            .current = &current};
    int16_t version = request->header.api_version;
    if (mill_describe_configs_request_decode(at, version, &in) < 0 ||
        in.resources.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    int32_t count = in.resources.count > 0 ? in.resources.count : 0;
    answer.resources = mill_pool_take(&request->pool, (uint64_t)count * sizeof(*answer.resources));
    answer.synonyms = in.include_synonyms;
    answer.documentation = in.include_documentation;
    while (answer.resources && answer.resources_count < count) {
        struct resource *resource = &answer.resources[answer.resources_count];
        if (!mill_describe_configs_request_resources_next(&in.resources, version, &resource->in)) {
            break;
        }
        answer.resources_count++;
        if (find_resource(controller, request, resource) &&
            !find_keys(controller, request, resource)) {
            refuse(resource, MILL_KERR_INVALID_REQUEST, "too many resources in one request");
        }
    }
    if (!answer.resources) {
        mill_admin_close(request);
        return;
    }
    refuse_unknown_types(&answer);
    struct keys_context keys = {0};
    struct results_context results = {.answer = &answer, .keys = &keys};
    mill_describe_configs_response_defaults(&out);
    out.results = (struct mill_warray){
        .count = answer.resources_count, .get = get_result, .context = &results};
    mill_admin_answer(request, encode, &out);
}
