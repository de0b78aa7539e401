/* SPDX-License-Identifier: Apache-2.0 */
/* IncrementalAlterConfigs 0-1 and AlterConfigs 0-2 for topics: what a topic will have is put
 * together here, checked and committed by the controller. AlterConfigs gives the whole set;
 * incremental operations start from what the topic has. Each resource is answered for itself.
 * ref: KIP-339 */
#include <string.h>

#include "control/admin/request.h"
#include "protocol/errors.h"

enum {
    RESOURCE_TOPIC = 2,
    RESOURCE_BROKER = 4,
    CONFIGS_MAX = 4 * MILL_KEY_COUNT, /* of one resource */
};

enum operation {
    OPERATION_SET,
    OPERATION_DELETE,
    OPERATION_APPEND,
    OPERATION_SUBTRACT,
};

/* What both requests say of one setting. */
struct change {
    const char *name;
    const char *value; /* NULL: null was sent */
    int operation;     /* enum operation, or unknown */
};

struct resource {
    int8_t type;
    struct mill_wstr name;
    struct change *changes;
    uint32_t changes_count;
    struct mill_alter alter;
};

struct altering {
    struct mill_controller *controller;
    struct mill_admin_request *request;
    struct resource *resources;
    int32_t count;
};

static void refuse(struct resource *resource, int16_t error, const char *message)
{
    if (resource->alter.error == 0) {
        resource->alter.error = error;
        resource->alter.message = message;
    }
}

/* --- the new set --------------------------------------------------------------------------------
 */

static const char *set_find(const struct mill_alter *alter, const char *name)
{
    for (uint32_t i = 0; i < alter->configs_count; i++) {
        if (strcmp(alter->configs[i].name, name) == 0) {
            return alter->configs[i].value;
        }
    }
    return NULL;
}

/* Room for one more was taken for each change. value NULL takes the setting away. */
static void set_put(struct mill_alter *alter, const char *name, const char *value)
{
    uint32_t at = 0;
    while (at < alter->configs_count && strcmp(alter->configs[at].name, name) != 0) {
        at++;
    }
    if (value) {
        alter->configs[at] = (struct mill_meta_config){.name = name, .value = value};
        alter->configs_count = MILL_MAX(alter->configs_count, at + 1);
    } else if (at < alter->configs_count) {
        alter->configs[at] = alter->configs[--alter->configs_count];
    }
}

/* True when word, length bytes, is an element of the comma list. */
static bool list_has(const char *list, const char *word, size_t length)
{
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',' ? 1 : 0;
        at += strspn(at, " ");
        size_t size = strcspn(at, ",");
        while (size > 0 && at[size - 1] == ' ') {
            size--;
        }
        if (size == length && memcmp(at, word, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds to list (room for it was taken) the elements of from that are, or are not, in other. */
static void list_add(char *list, const char *from, const char *other, bool in_other)
{
    for (const char *at = from; *at;) {
        at += strspn(at, " ,");
        size_t size = strcspn(at, ",");
        size_t word = size;
        while (word > 0 && at[word - 1] == ' ') {
            word--;
        }
        if (word > 0 && list_has(other, at, word) == in_other && !list_has(list, at, word)) {
            size_t length = strlen(list);
            if (length > 0) {
                list[length++] = ',';
            }
            memcpy(list + length, at, word);
            list[length + word] = '\0';
        }
        at += size;
    }
}

/* Elements are added to, or taken from, what holds now: the topic's own list, or the broker's. */
static const char *list_change(const struct altering *altering, struct resource *resource,
                               enum mill_key key, const struct change *change)
{
    const char *now = set_find(&resource->alter, change->name);
    now = now ? now : mill_settings_text(altering->controller->config, NULL, key);
    now = now ? now : "";
    char *list = mill_pool_take(&altering->request->pool, strlen(now) + strlen(change->value) + 2);
    if (!list) {
        refuse(resource, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        return NULL;
    }
    list[0] = '\0';
    if (change->operation == OPERATION_APPEND) {
        list_add(list, now, "", false);
        list_add(list, change->value, "", false);
    } else {
        list_add(list, now, change->value, false);
    }
    return list;
}

static void change_one(const struct altering *altering, struct resource *resource,
                       const struct change *change)
{
    struct mill_pool *pool = &altering->request->pool;
    enum mill_key key = mill_key_find(MILL_SCOPE_TOPIC, change->name);
    const char *value = change->value;
    if (change->operation == OPERATION_DELETE) {
        set_put(&resource->alter, change->name, NULL);
        return;
    }
    if (!value) {
        refuse(resource, MILL_KERR_INVALID_REQUEST,
               mill_pool_text(pool, "null is no value for topic setting %s", change->name));
        return;
    }
    if (change->operation != OPERATION_SET) {
        if (key == MILL_KEY_COUNT || mill_key_info(key)->type != MILL_CONFIG_LIST) {
            refuse(resource, MILL_KERR_INVALID_CONFIG,
                   mill_pool_text(pool,
                                  "topic setting %s is no list: nothing can be added to it "
                                  "or taken from it",
                                  change->name));
            return;
        }
        value = list_change(altering, resource, key, change);
    }
    if (value) {
        set_put(&resource->alter, change->name, value);
    }
}

/* Puts together what the topic will have. */
static void set_make(const struct altering *altering, struct resource *resource, bool incremental)
{
    struct mill_alter *alter = &resource->alter;
    uint32_t kept = incremental ? alter->topic->configs_count : 0;
    alter->configs =
        mill_pool_take(&altering->request->pool,
                       ((uint64_t)kept + resource->changes_count + 1) * sizeof(*alter->configs));
    if (!alter->configs) {
        refuse(resource, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < kept; i++) {
        alter->configs[alter->configs_count++] = alter->topic->configs[i];
    }
    for (uint32_t i = 0; i < resource->changes_count; i++) {
        const struct change *change = &resource->changes[i];
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(resource->changes[j].name, change->name) == 0) {
                refuse(resource, MILL_KERR_INVALID_REQUEST,
                       mill_pool_text(&altering->request->pool,
                                      "topic setting %s is named twice in this request",
                                      change->name));
                return;
            }
        }
        if (change->operation < OPERATION_SET || change->operation > OPERATION_SUBTRACT) {
            refuse(resource, MILL_KERR_INVALID_REQUEST, "an operation that is not known");
            return;
        }
        change_one(altering, resource, change);
    }
}

static void find_topic(const struct altering *altering, struct resource *resource)
{
    uint32_t length = 0;
    const char *name = mill_admin_text(altering->request, &resource->name, &length);
    const char *fault = name ? mill_topic_name_fault(name, length) : NULL;
    if (!name) {
        refuse(resource, MILL_KERR_INVALID_REQUEST, "a resource without name");
    } else if (resource->type == RESOURCE_BROKER) {
        refuse(resource, MILL_KERR_INVALID_CONFIG,
               "settings of the broker are read at its start and cannot be altered while it runs");
    } else if (resource->type != RESOURCE_TOPIC) {
        refuse(resource, MILL_KERR_INVALID_REQUEST, "only settings of topics (2) can be altered");
    } else if (fault) {
        refuse(resource, MILL_KERR_INVALID_TOPIC_EXCEPTION, fault);
    } else {
        resource->alter.topic = mill_topics_by_name(&altering->controller->topics, name, length);
        if (!resource->alter.topic) {
            refuse(resource, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic");
        }
    }
}

/* All that name one topic are refused, as Kafka does. */
static void refuse_twice(const struct altering *altering)
{
    for (int32_t i = 0; i < altering->count; i++) {
        struct mill_topic *topic = altering->resources[i].alter.topic;
        if (topic) {
            topic->named = 0;
        }
    }
    for (int32_t i = 0; i < altering->count; i++) {
        struct mill_topic *topic = altering->resources[i].alter.topic;
        if (topic) {
            topic->named++;
        }
    }
    for (int32_t i = 0; i < altering->count; i++) {
        const struct mill_topic *topic = altering->resources[i].alter.topic;
        if (topic && topic->named > 1) {
            refuse(&altering->resources[i], MILL_KERR_INVALID_REQUEST,
                   "the topic is named twice in this request");
        }
    }
}

/* --- answering ----------------------------------------------------------------------------------
 */

static void get_alter(const void *context, int32_t index, void *element)
{
    const struct altering *altering = context;
    const struct resource *resource = &altering->resources[index];
    struct mill_alter_configs_response_responses *to = element;
    to->error_code = resource->alter.error;
    to->error_message = mill_wstr_of(resource->alter.message);
    to->resource_type = resource->type;
    to->resource_name = resource->name;
}

static void get_incremental(const void *context, int32_t index, void *element)
{
    const struct altering *altering = context;
    const struct resource *resource = &altering->resources[index];
    struct mill_incremental_alter_configs_response_responses *to = element;
    to->error_code = resource->alter.error;
    to->error_message = mill_wstr_of(resource->alter.message);
    to->resource_type = resource->type;
    to->resource_name = resource->name;
}

static int encode_alter(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_alter_configs_response_encode(to, version, message);
}

static int encode_incremental(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_incremental_alter_configs_response_encode(to, version, message);
}

/* Alters everything that is not refused, in one commit. ret: false out of memory. */
static bool alter_all(const struct altering *altering, bool incremental, bool validate_only)
{
    struct mill_alter **alters =
        mill_pool_take(&altering->request->pool, (uint64_t)altering->count * sizeof(*alters));
    uint32_t count = 0;
    if (!alters) {
        return false;
    }
    for (int32_t i = 0; i < altering->count; i++) {
        find_topic(altering, &altering->resources[i]);
    }
    refuse_twice(altering);
    for (int32_t i = 0; i < altering->count; i++) {
        struct resource *resource = &altering->resources[i];
        if (resource->alter.error == 0) {
            set_make(altering, resource, incremental);
        }
        alters[count++] = &resource->alter;
    }
    mill_controller_alter(altering->controller, alters, count, validate_only,
                          &altering->request->pool);
    return true;
}

/* --- reading the requests -----------------------------------------------------------------------
 */

/* Room for what a request names. ret: false: too much of it, the connection closes. */
static bool begin(struct altering *altering, struct mill_controller *controller,
                  struct mill_admin_request *request, int32_t count)
{
    count = MILL_MAX(count, 0);
    *altering = (struct altering){.controller = controller, .request = request};
    altering->resources =
        count <= MILL_ADMIN_ELEMENTS_MAX
            ? mill_pool_take(&request->pool, (uint64_t)count * sizeof(struct resource))
            : NULL;
    return altering->resources != NULL;
}

static struct resource *resource_begin(struct altering *altering, int8_t type,
                                       struct mill_wstr name, int32_t configs_count)
{
    struct resource *resource = &altering->resources[altering->count++];
    resource->type = type;
    resource->name = name;
    if (configs_count > (int32_t)CONFIGS_MAX) {
        refuse(resource, MILL_KERR_INVALID_REQUEST, "too many settings of one topic");
        return resource;
    }
    resource->changes = mill_pool_take(
        &altering->request->pool, (uint64_t)MILL_MAX(configs_count, 1) * sizeof(struct change));
    if (!resource->changes) {
        refuse(resource, MILL_KERR_INVALID_REQUEST, "the settings take too much memory");
    }
    return resource;
}

static void change_add(struct altering *altering, struct resource *resource,
                       const struct mill_wstr *name, const struct mill_wstr *value, int operation)
{
    if (!resource->changes) {
        return;
    }
    struct change *change = &resource->changes[resource->changes_count++];
    change->name = mill_admin_text(altering->request, name, NULL);
    change->value = mill_admin_text(altering->request, value, NULL);
    change->operation = operation;
    if (!change->name || (!change->value && value->length >= 0)) {
        resource->changes_count--;
        refuse(resource, MILL_KERR_INVALID_REQUEST, "the settings take too much memory");
    }
}

void mill_alter_configs(struct mill_controller *controller, struct mill_admin_request *request,
                        struct mill_cursor *at)
{
    struct mill_alter_configs_request in;
    struct mill_alter_configs_request_resources one;
    struct mill_alter_configs_request_resources_configs config;
    struct mill_alter_configs_response out;
    struct altering altering;
    int16_t version = request->header.api_version;
    if (mill_alter_configs_request_decode(at, version, &in) < 0 ||
        !begin(&altering, controller, request, in.resources.count)) {
        mill_admin_close(request);
        return;
    }
    while (mill_alter_configs_request_resources_next(&in.resources, version, &one)) {
        struct resource *resource =
            resource_begin(&altering, one.resource_type, one.resource_name, one.configs.count);
        while (resource->changes &&
               mill_alter_configs_request_resources_configs_next(&one.configs, version, &config)) {
            /* Null gives the default, as when it is not named. */
            change_add(&altering, resource, &config.name, &config.value,
                       config.value.length < 0 ? OPERATION_DELETE : OPERATION_SET);
        }
    }
    if (!alter_all(&altering, false, in.validate_only)) {
        mill_admin_close(request);
        return;
    }
    mill_alter_configs_response_defaults(&out);
    out.responses =
        (struct mill_warray){.count = altering.count, .get = get_alter, .context = &altering};
    mill_admin_answer(request, encode_alter, &out);
}

void mill_incremental_alter_configs(struct mill_controller *controller,
                                    struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_incremental_alter_configs_request in;
    struct mill_incremental_alter_configs_request_resources one;
    struct mill_incremental_alter_configs_request_resources_configs config;
    struct mill_incremental_alter_configs_response out;
    struct altering altering;
    int16_t version = request->header.api_version;
    if (mill_incremental_alter_configs_request_decode(at, version, &in) < 0 ||
        !begin(&altering, controller, request, in.resources.count)) {
        mill_admin_close(request);
        return;
    }
    while (mill_incremental_alter_configs_request_resources_next(&in.resources, version, &one)) {
        struct resource *resource =
            resource_begin(&altering, one.resource_type, one.resource_name, one.configs.count);
        while (resource->changes && mill_incremental_alter_configs_request_resources_configs_next(
                                        &one.configs, version, &config)) {
            change_add(&altering, resource, &config.name, &config.value, config.config_operation);
        }
    }
    if (!alter_all(&altering, true, in.validate_only)) {
        mill_admin_close(request);
        return;
    }
    mill_incremental_alter_configs_response_defaults(&out);
    out.responses =
        (struct mill_warray){.count = altering.count, .get = get_incremental, .context = &altering};
    mill_admin_answer(request, encode_incremental, &out);
}
