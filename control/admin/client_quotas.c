/* SPDX-License-Identifier: Apache-2.0 */
/* DescribeClientQuotas and AlterClientQuotas 0-1: quotas of users and client ids, as the controller
 * keeps them. Addresses, and quotas that nothing here would keep to, are refused.
 * ref: KIP-546 */
#include <math.h>
#include <string.h>

#include "control/admin/request.h"
#include "protocol/errors.h"

enum {
    OPS_MAX = 16,       /* of one entity */
    COMPONENTS_MAX = 2, /* user and client-id */
};

enum match {
    MATCH_EXACT,
    MATCH_DEFAULT,
    MATCH_ANY,
    MATCH_NOTHING, /* not of the protocol */
};

static const char *const type_user = "user";
static const char *const type_client = "client-id";
static const char *const type_ip = "ip";

/* --- describing --------------------------------------------------------------------------------
 */

/* What is asked of one half of an entity. */
struct asked {
    bool named; /* it is */
    int8_t match;
    struct mill_quota_name name;
};

struct describing {
    const struct mill_controller *controller;
    struct asked user;
    struct asked client;
    struct asked ip;                        /* known, but no entity has one */
    const struct mill_quota_entity **found; /* of the request's pool */
    uint32_t found_count;
};

static bool half_matches(const struct asked *asked, const struct mill_quota_name *name, bool strict)
{
    if (!asked->named) {
        return !strict || name->who == MILL_QUOTA_ABSENT;
    }
    switch (asked->match) {
    case MATCH_EXACT:
        return name->who == MILL_QUOTA_NAMED && strcmp(name->name, asked->name.name) == 0;
    case MATCH_DEFAULT:
        return name->who == MILL_QUOTA_DEFAULT;
    case MATCH_NOTHING:
        return false;
    default:
        return name->who != MILL_QUOTA_ABSENT;
    }
}

static const char *component_read(struct describing *describing, struct mill_admin_request *request,
                                  const struct mill_describe_client_quotas_request_components *in,
                                  int16_t *ret_error)
{
    const char *type = mill_admin_text(request, &in->entity_type, NULL);
    struct asked *asked = NULL;
    *ret_error = MILL_KERR_INVALID_REQUEST;
    if (type && strcmp(type, type_user) == 0) {
        asked = &describing->user;
    } else if (type && strcmp(type, type_client) == 0) {
        asked = &describing->client;
    } else if (type && strcmp(type, type_ip) == 0) {
        asked = &describing->ip;
    } else if (type && type[0] != '\0') {
        *ret_error = MILL_KERR_UNSUPPORTED_VERSION;
        return "the types of entities are user, client-id and ip";
    } else {
        return "a type of entity is empty";
    }
    if (asked->named) {
        return "a type of entity is named twice in the filter";
    }
    asked->named = true;
    asked->match = in->match_type;
    if (in->match_type < MATCH_EXACT || in->match_type > MATCH_ANY) {
        return "a match type that is not known";
    }
    if (in->match_type == MATCH_EXACT && in->match.length < 0) {
        return "an exact match needs a name";
    }
    if (in->match_type == MATCH_EXACT &&
        mill_wstr_copy(&in->match, asked->name.name, sizeof(asked->name.name)) < 0) {
        asked->match = MATCH_NOTHING; /* no name that is kept is so long */
    }
    if (in->match_type != MATCH_EXACT && in->match.length >= 0) {
        return "only an exact match has a name";
    }
    *ret_error = MILL_KERR_NONE;
    return NULL;
}

/* The components of an entity's name, in the order user, client-id. ret: their count. */
static int32_t halves(const struct mill_quota_entity *entity, const char *types[COMPONENTS_MAX],
                      const struct mill_quota_name *names[COMPONENTS_MAX])
{
    int32_t count = 0;
    if (entity->user.who != MILL_QUOTA_ABSENT) {
        types[count] = type_user;
        names[count++] = &entity->user;
    }
    if (entity->client.who != MILL_QUOTA_ABSENT) {
        types[count] = type_client;
        names[count++] = &entity->client;
    }
    return count;
}

static void get_component(const void *context, int32_t index, void *element)
{
    struct mill_describe_client_quotas_response_entries_entity *to = element;
    const char *types[COMPONENTS_MAX];
    const struct mill_quota_name *names[COMPONENTS_MAX];
    (void)halves(context, types, names);
    to->entity_type = mill_wstr_of(types[index]);
    to->entity_name =
        mill_wstr_of(names[index]->who == MILL_QUOTA_NAMED ? names[index]->name : NULL);
}

static void get_value(const void *context, int32_t index, void *element)
{
    const struct mill_quota_entity *entity = context;
    struct mill_describe_client_quotas_response_entries_values *to = element;
    for (uint32_t kind = 0; kind < MILL_QUOTA_KINDS; kind++) {
        if (entity->values[kind] > 0 && index-- == 0) {
            to->key = mill_wstr_of(mill_quota_keys[kind]);
            to->value = entity->values[kind];
            return;
        }
    }
}

static void get_entry(const void *context, int32_t index, void *element)
{
    const struct mill_quota_entity *entity = ((const struct describing *)context)->found[index];
    struct mill_describe_client_quotas_response_entries *to = element;
    const char *types[COMPONENTS_MAX];
    const struct mill_quota_name *names[COMPONENTS_MAX];
    int32_t values = 0;
    for (uint32_t kind = 0; kind < MILL_QUOTA_KINDS; kind++) {
        values += entity->values[kind] > 0;
    }
    to->entity = (struct mill_warray){
        .count = halves(entity, types, names), .get = get_component, .context = entity};
    to->values = (struct mill_warray){.count = values, .get = get_value, .context = entity};
}

static int encode_describe(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_client_quotas_response_encode(to, version, message);
}

void mill_describe_client_quotas(const struct mill_controller *controller,
                                 struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_describe_client_quotas_request in;
    struct mill_describe_client_quotas_request_components component;
    struct mill_describe_client_quotas_response out;
    struct describing describing = {.controller = controller};
    int16_t version = request->header.api_version;
    const struct mill_quota_set *set = &controller->quotas;
    if (mill_describe_client_quotas_request_decode(at, version, &in) < 0) {
        mill_admin_close(request);
        return;
    }
    mill_describe_client_quotas_response_defaults(&out);
    const char *fault = NULL;
    while (!fault && mill_describe_client_quotas_request_components_next(&in.components, version,
                                                                         &component)) {
        fault = component_read(&describing, request, &component, &out.error_code);
    }
    if (!fault && describing.ip.named && (describing.user.named || describing.client.named)) {
        out.error_code = MILL_KERR_INVALID_REQUEST;
        fault = "ip does not go with user or client-id";
    }
    out.error_message = mill_wstr_of(fault);
    describing.found =
        mill_pool_take(&request->pool, ((uint64_t)set->count + 1) * sizeof(describing.found[0]));
    if (!describing.found) {
        mill_admin_close(request);
        return;
    }
    for (uint32_t i = 0; i < set->count && !describing.ip.named; i++) {
        if (half_matches(&describing.user, &set->entities[i].user, in.strict) &&
            half_matches(&describing.client, &set->entities[i].client, in.strict)) {
            describing.found[describing.found_count++] = &set->entities[i];
        }
    }
    if (!fault) {
        out.entries = (struct mill_warray){
            .count = (int32_t)describing.found_count, .get = get_entry, .context = &describing};
    }
    mill_admin_answer(request, encode_describe, &out);
}

/* --- altering ----------------------------------------------------------------------------------
 */

struct entry {
    struct mill_warray entity; /* as asked for: given back */
    struct mill_quota_name user;
    struct mill_quota_name client;
    uint32_t first; /* of its changes */
    uint32_t count;
    int16_t error;
    const char *message;
};

struct altering {
    struct mill_admin_request *request;
    struct entry *entries;
    int32_t entries_count;
    struct mill_quota_change *changes;
    uint32_t changes_count;
    struct mill_warray walk; /* of the entity being written */
};

static void refuse(struct entry *entry, int16_t error, const char *message)
{
    if (entry->error == 0) {
        entry->error = error;
        entry->message = message;
    }
}

static void entity_read(struct altering *altering, struct entry *entry)
{
    struct mill_alter_client_quotas_request_entries_entity in;
    struct mill_warray entity = entry->entity;
    while (mill_alter_client_quotas_request_entries_entity_next(
        &entity, altering->request->header.api_version, &in)) {
        const char *type = mill_admin_text(altering->request, &in.entity_type, NULL);
        struct mill_quota_name *name = NULL;
        if (type && strcmp(type, type_user) == 0) {
            name = &entry->user;
        } else if (type && strcmp(type, type_client) == 0) {
            name = &entry->client;
        }
        if (!name) {
            bool ip = type && strcmp(type, type_ip) == 0;
            refuse(entry, ip ? MILL_KERR_UNSUPPORTED_VERSION : MILL_KERR_INVALID_REQUEST,
                   ip ? "connection_creation_rate is not limited by address"
                      : "quotas are kept for user and client-id");
            return;
        }
        if (name->who != MILL_QUOTA_ABSENT) {
            refuse(entry, MILL_KERR_INVALID_REQUEST, "a type of entity is named twice");
        }
        name->who = in.entity_name.length < 0 ? MILL_QUOTA_DEFAULT : MILL_QUOTA_NAMED;
        if (name->who == MILL_QUOTA_NAMED &&
            mill_wstr_copy(&in.entity_name, name->name, sizeof(name->name)) <= 0) {
            refuse(entry, MILL_KERR_INVALID_REQUEST, "a name is empty or longer than 255 bytes");
        }
    }
    if (entry->user.who == MILL_QUOTA_ABSENT && entry->client.who == MILL_QUOTA_ABSENT) {
        refuse(entry, MILL_KERR_INVALID_REQUEST, "the entity is empty");
    }
}

/* ret: NULL, or what is wrong with the value. */
static const char *value_fault(struct mill_pool *pool, enum mill_quota_kind kind, double value)
{
    const char *key = mill_quota_keys[kind];
    if (!(value > 0) || isinf(value)) {
        return mill_pool_text(pool, "%s must be greater than 0", key);
    }
    if (kind != MILL_QUOTA_TIME && value >= (double)INT64_MAX) {
        return mill_pool_text(pool, "%s is too large", key);
    }
    if (kind != MILL_QUOTA_TIME && fabs(value - (double)(int64_t)value) > 1e-6) {
        return mill_pool_text(pool, "%s cannot be a fraction", key);
    }
    return NULL;
}

static void ops_read(struct altering *altering, struct entry *entry, struct mill_warray ops)
{
    struct mill_alter_client_quotas_request_entries_ops op;
    struct mill_pool *pool = &altering->request->pool;
    while (mill_alter_client_quotas_request_entries_ops_next(
        &ops, altering->request->header.api_version, &op)) {
        const char *key = mill_admin_text(altering->request, &op.key, NULL);
        enum mill_quota_kind kind = key ? mill_quota_kind_of(key) : MILL_QUOTA_KINDS;
        if (kind == MILL_QUOTA_KINDS) {
            refuse(
                entry, MILL_KERR_INVALID_REQUEST,
                mill_pool_text(pool, "%s: not a quota of clients that is kept to", key ? key : ""));
            return;
        }
        const char *fault = op.remove ? NULL : value_fault(pool, kind, op.value);
        if (fault) {
            refuse(entry, MILL_KERR_INVALID_REQUEST, fault);
            return;
        }
        altering->changes[altering->changes_count++] = (struct mill_quota_change){
            .user = &entry->user,
            .client = &entry->client,
            .kind = kind,
            .value = op.remove ? 0 : op.value,
        };
        entry->count++;
    }
}

/* Every entry for itself, as in Kafka. */
static void entry_read(struct altering *altering,
                       const struct mill_alter_client_quotas_request_entries *in)
{
    struct entry *entry = &altering->entries[altering->entries_count++];
    entry->entity = in->entity;
    entry->first = altering->changes_count;
    entity_read(altering, entry);
    if (in->ops.count > OPS_MAX) {
        refuse(entry, MILL_KERR_INVALID_REQUEST, "too many values of one entity");
    }
    if (entry->error == 0) {
        ops_read(altering, entry, in->ops);
    }
    if (entry->error != 0) {
        altering->changes_count = entry->first;
        entry->count = 0;
    }
}

/* All that is right in one commit. */
static void changes_make(struct mill_controller *controller, struct altering *altering)
{
    int16_t error = mill_controller_set_quotas(controller, altering->changes,
                                               altering->changes_count, &altering->request->pool);
    for (int32_t i = 0; i < altering->entries_count; i++) {
        struct entry *entry = &altering->entries[i];
        if (entry->count > 0 && error != 0) {
            refuse(entry, error,
                   error == MILL_KERR_POLICY_VIOLATION ? "there are as many quotas as can be kept"
                                                       : "the quota could not be kept");
        }
    }
}

static void get_altered_component(const void *context, int32_t index, void *element)
{
    struct altering *altering = (void *)(uintptr_t)context;
    struct mill_alter_client_quotas_request_entries_entity in;
    struct mill_alter_client_quotas_response_entries_entity *to = element;
    MILL_UNUSED(index);
    if (mill_alter_client_quotas_request_entries_entity_next(
            &altering->walk, altering->request->header.api_version, &in)) {
        to->entity_type = in.entity_type;
        to->entity_name = in.entity_name;
    }
}

static void get_altered(const void *context, int32_t index, void *element)
{
    struct altering *altering = (void *)(uintptr_t)context;
    const struct entry *entry = &altering->entries[index];
    struct mill_alter_client_quotas_response_entries *to = element;
    altering->walk = entry->entity;
    to->error_code = entry->error;
    to->error_message = mill_wstr_of(entry->message);
    to->entity = (struct mill_warray){.count = MILL_MAX(entry->entity.count, 0),
                                      .get = get_altered_component,
                                      .context = altering};
}

static int encode_alter(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_alter_client_quotas_response_encode(to, version, message);
}

void mill_alter_client_quotas(struct mill_controller *controller,
                              struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_alter_client_quotas_request in;
    struct mill_alter_client_quotas_request_entries one;
    struct mill_alter_client_quotas_response out;
    struct altering altering = {.request = request};
    int16_t version = request->header.api_version;
    if (mill_alter_client_quotas_request_decode(at, version, &in) < 0 ||
        in.entries.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    uint64_t count = (uint64_t)MILL_MAX(in.entries.count, 0) + 1;
    altering.entries = mill_pool_take(&request->pool, count * sizeof(altering.entries[0]));
    altering.changes =
        mill_pool_take(&request->pool, count * OPS_MAX * sizeof(altering.changes[0]));
    if (!altering.entries || !altering.changes) {
        mill_admin_close(request);
        return;
    }
    while (mill_alter_client_quotas_request_entries_next(&in.entries, version, &one)) {
        entry_read(&altering, &one);
    }
    if (altering.changes_count > 0 && !in.validate_only) {
        changes_make(controller, &altering);
    }
    mill_alter_client_quotas_response_defaults(&out);
    out.entries = (struct mill_warray){
        .count = altering.entries_count, .get = get_altered, .context = &altering};
    mill_admin_answer(request, encode_alter, &out);
}
