/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of quotas when control did not answer in time: that the request timed out. On the
 * core; bounded by the request. */
#include "dataplane/core/core_types.h"

#include "protocol/errors.h"

static const char timeout_text[] = "the control process did not answer in time";

/* The request is walked once more while the answer is written. */
struct quota_fill {
    int16_t version;
    struct mill_warray entries;
    struct mill_warray components;
};

static int describe_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_describe_client_quotas_response answer;
    MILL_UNUSED(context);
    mill_describe_client_quotas_response_defaults(&answer);
    answer.error_code = MILL_KERR_REQUEST_TIMED_OUT;
    answer.error_message = mill_wstr_of(timeout_text);
    return mill_describe_client_quotas_response_encode(to, request->header.api_version, &answer);
}

static void get_component(const void *context, int32_t index, void *ret_element)
{
    struct quota_fill *fill = (void *)(uintptr_t)context;
    struct mill_alter_client_quotas_response_entries_entity *element = ret_element;
    struct mill_alter_client_quotas_request_entries_entity asked;
    MILL_UNUSED(index);
    bool more = mill_alter_client_quotas_request_entries_entity_next(&fill->components,
                                                                     fill->version, &asked);
    MILL_ASSERT(more);
    element->entity_type = asked.entity_type;
    element->entity_name = asked.entity_name;
}

static void get_entry(const void *context, int32_t index, void *ret_element)
{
    struct quota_fill *fill = (void *)(uintptr_t)context;
    struct mill_alter_client_quotas_response_entries *element = ret_element;
    struct mill_alter_client_quotas_request_entries asked;
    MILL_UNUSED(index);
    bool more =
        mill_alter_client_quotas_request_entries_next(&fill->entries, fill->version, &asked);
    MILL_ASSERT(more);
    fill->components = asked.entity;
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->error_message = mill_wstr_of(timeout_text);
    element->entity = (struct mill_warray){
        .count = MILL_MAX(asked.entity.count, 0), .get = get_component, .context = fill};
}

static int alter_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct quota_fill *fill = context;
    struct mill_cursor at = request->body;
    struct mill_alter_client_quotas_request asked;
    struct mill_alter_client_quotas_response answer;
    int r = mill_alter_client_quotas_request_decode(&at, fill->version, &asked);
    if (r < 0) {
        return r;
    }
    mill_alter_client_quotas_response_defaults(&answer);
    fill->entries = asked.entries;
    answer.entries = (struct mill_warray){
        .count = MILL_MAX(asked.entries.count, 0), .get = get_entry, .context = fill};
    return mill_alter_client_quotas_response_encode(to, fill->version, &answer);
}

bool mill_forward_expired_quota(struct mill_core *core, struct mill_request *request)
{
    struct quota_fill fill = {.version = request->header.api_version};
    switch (request->header.api_key) {
    case MILL_API_KEY_DESCRIBE_CLIENT_QUOTAS:
        mill_answer_send(core, request, describe_fill, &fill);
        return true;
    case MILL_API_KEY_ALTER_CLIENT_QUOTAS:
        mill_answer_send(core, request, alter_fill, &fill);
        return true;
    default:
        return false;
    }
}
