/* SPDX-License-Identifier: Apache-2.0 */
/* IncrementalAlterConfigs 0-1 and AlterConfigs 0-2 for topics, groups and for the broker: what a
 * topic, a group, this broker or all brokers (the empty name) will have is put together here,
 * checked and committed by the controller. AlterConfigs gives the whole set; incremental operations
 * start from what is there. Each resource is answered for itself. ref: KIP-339, KIP-226 */
#include <stdlib.h>
#include <string.h>

#include "control/admin/request.h"
#include "protocol/errors.h"

enum {
    GROUPS_MAX = 64,                  /* of one request: each is a commit */
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
    const char *text; /* the name */
    struct change *changes;
    uint32_t changes_count;
    int16_t name_error; /* enum mill_kerr of a topic's name; told when the operations are right */
    const char *name_fault;
    enum mill_settings_level level; /* of a broker's settings; LEVELS: a topic's, or a group's */
    const char *group_id;           /* NULL: it is no group */
    struct mill_alter alter;        /* of a broker's, too, until it is given on */
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

static const char *kind_of(const struct resource *resource)
{
    return resource->group_id                        ? "group"
           : resource->level == MILL_SETTINGS_LEVELS ? "topic"
                                                     : "broker";
}

static enum mill_key key_of(const struct resource *resource, const char *name)
{
    if (resource->group_id) {
        return MILL_KEY_COUNT; /* none of them is a list */
    }
    return mill_key_find(
        resource->level == MILL_SETTINGS_LEVELS ? MILL_SCOPE_TOPIC : MILL_SCOPE_BROKER, name);
}

/* Elements are added to, or taken from, what holds now: the resource's own list, or what stands
 * behind it. */
static const char *list_change(const struct altering *altering, struct resource *resource,
                               enum mill_key key, const struct change *change)
{
    const char *now = set_find(&resource->alter, change->name);
    now = now ? now : mill_settings_text(&altering->controller->settings, NULL, key);
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
    enum mill_key key = key_of(resource, change->name);
    const char *value = change->value;
    if (change->operation == OPERATION_DELETE) {
        set_put(&resource->alter, change->name, NULL);
        return;
    }
    if (change->operation != OPERATION_SET) {
        if (key == MILL_KEY_COUNT || mill_key_info(key)->type != MILL_CONFIG_LIST) {
            refuse(resource, MILL_KERR_INVALID_CONFIG,
                   mill_pool_text(pool,
                                  "%s setting %s is no list: nothing can be added to it "
                                  "or taken from it",
                                  kind_of(resource), change->name));
            return;
        }
        value = list_change(altering, resource, key, change);
    }
    if (value) {
        set_put(&resource->alter, change->name, value);
    }
}

/* Where incremental changes of a broker's settings start. room: for them and the changes. */
static void broker_set(const struct altering *altering, const struct resource *resource,
                       struct mill_alter *alter)
{
    char *const *altered = altering->controller->settings.altered[resource->level];
    for (enum mill_key key = 0; key < MILL_KEY_COUNT; key++) {
        if (altered[key]) {
            alter->configs[alter->configs_count++] =
                (struct mill_meta_config){.name = mill_key_info(key)->name, .value = altered[key]};
        }
    }
}

/* The same of a group. */
static void group_set(const struct altering *altering, const struct resource *resource,
                      struct mill_alter *alter)
{
    const struct mill_group_settings *now =
        mill_group_settings_find(altering->controller, resource->group_id);
    for (uint32_t key = 0; now && key < MILL_GROUP_KEY_COUNT; key++) {
        if (now->set[key]) {
            alter->configs[alter->configs_count++] = (struct mill_meta_config){
                .name = mill_group_key_info((enum mill_group_key)key)->name,
                .value =
                    mill_pool_text(&altering->request->pool, "%lld", (long long)now->values[key])};
        }
    }
}

/* Puts together what the topic, group or broker will have. */
static void set_make(const struct altering *altering, struct resource *resource, bool incremental)
{
    struct mill_alter *alter = &resource->alter;
    bool topic = resource->level == MILL_SETTINGS_LEVELS;
    uint32_t own = resource->group_id ? MILL_GROUP_KEY_COUNT
                   : !topic           ? MILL_KEY_COUNT
                   : alter->topic     ? alter->topic->configs_count
                                      : 0;
    uint32_t kept = incremental ? own : 0;
    alter->configs =
        mill_pool_take(&altering->request->pool,
                       ((uint64_t)kept + resource->changes_count + 1) * sizeof(*alter->configs));
    if (!alter->configs) {
        refuse(resource, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        return;
    }
    for (uint32_t i = 0; alter->topic && i < kept; i++) {
        alter->configs[alter->configs_count++] = alter->topic->configs[i];
    }
    if (resource->group_id && incremental) {
        group_set(altering, resource, alter);
    } else if (!topic && incremental) {
        broker_set(altering, resource, alter);
    }
    for (uint32_t i = 0; i < resource->changes_count; i++) {
        const struct change *change = &resource->changes[i];
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(resource->changes[j].name, change->name) == 0) {
                refuse(resource, MILL_KERR_INVALID_REQUEST,
                       mill_pool_text(&altering->request->pool,
                                      "%s setting %s is named twice in this request",
                                      kind_of(resource), change->name));
                return;
            }
        }
    }
    /* Before any change is looked into, as Kafka: its fault is the one that is told. */
    for (uint32_t i = 0; i < resource->changes_count; i++) {
        const struct change *change = &resource->changes[i];
        if (!change->value && change->operation != OPERATION_DELETE) {
            refuse(resource, MILL_KERR_INVALID_REQUEST,
                   mill_pool_text(&altering->request->pool, "null is no value for %s setting %s",
                                  kind_of(resource), change->name));
            return;
        }
    }
    for (uint32_t i = 0; i < resource->changes_count; i++) {
        const struct change *change = &resource->changes[i];
        if (change->operation < OPERATION_SET || change->operation > OPERATION_SUBTRACT) {
            refuse(resource, MILL_KERR_INVALID_REQUEST, "an operation that is not known");
            return;
        }
        change_one(altering, resource, change);
    }
}

static void find_topic(const struct altering *altering, struct resource *resource, const char *name,
                       uint32_t length)
{
    const char *fault = mill_topic_name_fault(name, length);
    if (fault) {
        resource->name_error = length == 0 ? (int16_t)MILL_KERR_INVALID_REQUEST
                                           : (int16_t)MILL_KERR_INVALID_TOPIC_EXCEPTION;
        resource->name_fault = fault;
        return;
    }
    /* One that is not there is refused by the controller, when its settings are right. */
    resource->alter.topic = mill_topics_by_name(&altering->controller->topics, name, length);
}

static void find_resource(const struct altering *altering, struct resource *resource)
{
    const char *name = resource->text;
    uint32_t length = name ? (uint32_t)strlen(name) : 0;
    if (!name) {
        refuse(resource, MILL_KERR_INVALID_REQUEST, "a resource without name");
    } else if (resource->type == MILL_RESOURCE_TOPIC) {
        find_topic(altering, resource, name, length);
    } else if (resource->type == MILL_RESOURCE_GROUP) {
        resource->group_id = name;
        if (length == 0) {
            refuse(resource, MILL_KERR_INVALID_REQUEST, "Default group resources are not allowed.");
        }
    } else if (resource->type != MILL_RESOURCE_BROKER) {
        refuse(resource, MILL_KERR_INVALID_REQUEST,
               "only settings of topics (2), brokers (4) and groups (32) can be altered");
    } else if (length > 0 && !mill_admin_is_broker(altering->controller, name)) {
        refuse(resource, MILL_KERR_INVALID_REQUEST,
               mill_pool_text(&altering->request->pool, "this is broker %d, not %s",
                              altering->controller->node_id, name));
    } else {
        resource->level = length > 0 ? MILL_SETTINGS_BROKER : MILL_SETTINGS_CLUSTER;
    }
}

/* More groups than one request may alter. */
static void refuse_groups(const struct altering *altering)
{
    uint32_t count = 0;
    for (int32_t i = 0; i < altering->count; i++) {
        struct resource *resource = &altering->resources[i];
        if (resource->group_id && ++count > GROUPS_MAX) {
            refuse(resource, MILL_KERR_INVALID_REQUEST, "too many groups in one request");
        }
    }
}

static int by_resource(const void *a, const void *b)
{
    const struct resource *left = *(struct resource *const *)a;
    const struct resource *right = *(struct resource *const *)b;
    int order = left->type - right->type;
    return order != 0 ? order
                      : strcmp(left->text ? left->text : "", right->text ? right->text : "");
}

/* All that name one resource are refused, as Kafka does, whatever else is wrong with them. ret:
 * false out of memory. */
static bool refuse_twice(const struct altering *altering)
{
    uint32_t count = (uint32_t)altering->count;
    struct resource **order =
        mill_pool_take(&altering->request->pool, count * sizeof(struct resource *));
    if (!order) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        order[i] = &altering->resources[i];
    }
    if (count > 1) {
        qsort(order, count, sizeof(order[0]), by_resource);
    }
    for (uint32_t i = 1; i < count; i++) {
        if (by_resource(&order[i - 1], &order[i]) == 0) {
            static const char twice[] = "each resource may be named once";
            refuse(order[i - 1], MILL_KERR_INVALID_REQUEST, twice);
            refuse(order[i], MILL_KERR_INVALID_REQUEST, twice);
        }
    }
    return true;
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

static void alter_broker(const struct altering *altering, struct resource *resource,
                         bool validate_only)
{
    struct mill_alter_broker item = {.level = resource->level,
                                     .configs = resource->alter.configs,
                                     .configs_count = resource->alter.configs_count};
    mill_controller_alter_broker(altering->controller, &item, validate_only,
                                 &altering->request->pool);
    resource->alter.error = item.error;
    resource->alter.message = item.message;
}

static void alter_group(const struct altering *altering, struct resource *resource,
                        bool validate_only)
{
    struct mill_alter_group item = {.group_id = resource->group_id,
                                    .configs = resource->alter.configs,
                                    .configs_count = resource->alter.configs_count};
    for (uint32_t i = 0; i < item.configs_count; i++) {
        if (!item.configs[i].value) {
            refuse(resource, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
            return;
        }
    }
    mill_controller_alter_group(altering->controller, &item, validate_only,
                                &altering->request->pool);
    resource->alter.error = item.error;
    resource->alter.message = item.message;
}

/* Alters everything that is not refused: all topics in one commit, and each broker level. ret:
 * false out of memory. */
static bool alter_all(const struct altering *altering, bool incremental, bool validate_only)
{
    struct mill_alter **alters =
        mill_pool_take(&altering->request->pool, (uint64_t)altering->count * sizeof(*alters));
    uint32_t count = 0;
    if (!alters) {
        return false;
    }
    if (!refuse_twice(altering)) {
        return false;
    }
    for (int32_t i = 0; i < altering->count; i++) {
        find_resource(altering, &altering->resources[i]);
    }
    refuse_groups(altering);
    for (int32_t i = 0; i < altering->count; i++) {
        struct resource *resource = &altering->resources[i];
        if (resource->alter.error == 0) {
            set_make(altering, resource, incremental);
        }
        if (resource->name_error != 0) {
            refuse(resource, resource->name_error, resource->name_fault);
        }
        if (resource->group_id) {
            if (resource->alter.error == 0) {
                alter_group(altering, resource, validate_only);
            }
        } else if (resource->level == MILL_SETTINGS_LEVELS) {
            alters[count++] = &resource->alter;
        } else if (resource->alter.error == 0) {
            alter_broker(altering, resource, validate_only);
        }
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
    resource->text = mill_admin_text(altering->request, &name, NULL);
    resource->level = MILL_SETTINGS_LEVELS;
    if (configs_count > (int32_t)CONFIGS_MAX) {
        refuse(resource, MILL_KERR_INVALID_REQUEST, "too many settings of one resource");
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
            change_add(&altering, resource, &config.name, &config.value, OPERATION_SET);
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
