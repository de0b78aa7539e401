/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of forwarded frames and what the handlers share; see request.h. */
#include "control/admin/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "control/group/groups.h"
#include "control/txn/api.h"
#include "ipc/nodes.h"

enum {
    ANSWER_BYTES_FIRST = 16 << 10,
};

void mill_admin_close(struct mill_admin_request *request)
{
    request->outcome = MILL_OUTCOME_CLOSE;
    request->answer_bytes = 0;
    request->ready = true;
}

void mill_admin_answer(struct mill_admin_request *request, mill_admin_encode encode,
                       const void *message)
{
    for (uint32_t capacity = ANSWER_BYTES_FIRST;; capacity *= 2) {
        capacity = MILL_MIN(capacity, request->answer_bytes_max);
        struct mill_writer writer;
        free(request->answer);
        request->answer = malloc(capacity);
        if (!request->answer) {
            mill_admin_close(request);
            return;
        }
        mill_writer_init(&writer, request->answer, capacity, NULL, 0);
        mill_response_begin(&writer, request->header.api_key, request->header.api_version,
                            request->header.correlation_id);
        (void)encode(&writer, request->header.api_version, message);
        int64_t bytes = mill_response_finish(&writer);
        if (bytes >= 0) {
            request->answer_bytes = (uint32_t)bytes;
            request->outcome = MILL_OUTCOME_BYTES;
            request->ready = true;
            return;
        }
        if (capacity == request->answer_bytes_max) {
            mill_admin_close(request);
            return;
        }
    }
}

bool mill_admin_is_broker(const struct mill_controller *controller, const char *name)
{
    char *end = NULL;
    long long id = strtoll(name, &end, 10);
    return end != name && *end == '\0' && id >= 0 && id <= INT32_MAX &&
           mill_node_is((int32_t)id, controller->node_id,
                        mill_config_core_endpoints(controller->config));
}

char *mill_admin_text(struct mill_admin_request *request, const struct mill_wstr *text,
                      uint32_t *ret_length)
{
    if (text->length < 0) {
        return NULL;
    }
    char *copy = mill_pool_take(&request->pool, (uint64_t)text->length + 1);
    request->memory_short = request->memory_short || !copy;
    if (copy && mill_wstr_copy(text, copy, (uint32_t)text->length + 1) < 0) {
        return NULL;
    }
    if (copy && ret_length) {
        *ret_length = (uint32_t)text->length;
    }
    return copy;
}

void mill_admin_begin(struct mill_controller *controller, struct mill_groups *groups,
                      struct mill_txns *txns, struct mill_admin_request *request, uint64_t now_ns)
{
    request->groups = groups;
    request->txns = txns;
    /* The core answers by itself at its deadline: be there a little before. */
    uint64_t left_ns = request->head.deadline_ns > now_ns ? request->head.deadline_ns - now_ns : 0;
    request->wait_until_ns = now_ns + left_ns - left_ns / 8;
    struct mill_cursor at =
        mill_cursor_over(&request->frame_buf, request->frame, request->head.size_bytes);
    if (mill_request_header_decode(&at, &request->header) < 0) {
        mill_admin_close(request);
        return;
    }
    switch (request->header.api_key) {
    case MILL_API_KEY_METADATA:
        mill_admin_metadata_begin(controller, request, &at);
        break;
    case MILL_API_KEY_CREATE_TOPICS:
        mill_create_topics_begin(controller, request, &at, now_ns);
        break;
    case MILL_API_KEY_CREATE_PARTITIONS:
        mill_create_partitions_begin(controller, request, &at, now_ns);
        break;
    case MILL_API_KEY_DESCRIBE_LOG_DIRS:
        mill_describe_log_dirs_begin(controller, request, &at);
        break;
    case MILL_API_KEY_DELETE_TOPICS:
        mill_delete_topics(controller, request, &at);
        break;
    case MILL_API_KEY_DESCRIBE_CLIENT_QUOTAS:
        mill_describe_client_quotas(controller, request, &at);
        break;
    case MILL_API_KEY_ALTER_CLIENT_QUOTAS:
        mill_alter_client_quotas(controller, request, &at);
        break;
    case MILL_API_KEY_DESCRIBE_TOPIC_PARTITIONS:
        mill_describe_topics(controller, request, &at);
        break;
    case MILL_API_KEY_DESCRIBE_CONFIGS:
        mill_describe_configs(controller, request, &at);
        break;
    case MILL_API_KEY_LIST_CONFIG_RESOURCES:
        mill_list_config_resources(controller, request, &at);
        break;
    case MILL_API_KEY_ALTER_CONFIGS:
        mill_alter_configs(controller, request, &at);
        break;
    case MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS:
        mill_incremental_alter_configs(controller, request, &at);
        break;
    case MILL_API_KEY_INIT_PRODUCER_ID:
        mill_init_producer_id(request, &at);
        break;
    case MILL_API_KEY_ADD_PARTITIONS_TO_TXN:
        mill_add_partitions_to_txn(request, &at);
        break;
    case MILL_API_KEY_ADD_OFFSETS_TO_TXN:
        mill_add_offsets_to_txn(request, &at);
        break;
    case MILL_API_KEY_END_TXN:
        mill_end_txn(request, &at);
        break;
    case MILL_API_KEY_DESCRIBE_TRANSACTIONS:
        mill_describe_transactions(request, &at);
        break;
    case MILL_API_KEY_LIST_TRANSACTIONS:
        mill_list_transactions(request, &at);
        break;
    default:
        mill_groups_request(groups, request, &at);
        break;
    }
    if (!request->ready && !request->taken) {
        mill_admin_continue(controller, request, now_ns);
    }
}

void mill_admin_continue(struct mill_controller *controller, struct mill_admin_request *request,
                         uint64_t now_ns)
{
    switch (request->header.api_key) {
    case MILL_API_KEY_METADATA:
        mill_metadata_continue(controller, request, now_ns);
        break;
    case MILL_API_KEY_CREATE_PARTITIONS:
        mill_create_partitions_continue(controller, request, now_ns);
        break;
    case MILL_API_KEY_DESCRIBE_LOG_DIRS:
        mill_describe_log_dirs_continue(controller, request, now_ns);
        break;
    case MILL_API_KEY_FIND_COORDINATOR:
        mill_find_coordinator_continue(request, now_ns);
        break;
    default:
        mill_create_topics_continue(controller, request, now_ns);
        break;
    }
}

void mill_admin_free(struct mill_admin_request *request)
{
    if (!request) {
        return;
    }
    for (uint32_t i = 0; i < request->creates_count; i++) {
        if (!request->creates[i].created) {
            mill_topic_free(request->creates[i].topic);
        }
    }
    mill_dir_scan_free(request->scan);
    mill_pool_clear(&request->pool);
    free(request->answer);
    free(request->frame);
    free(request);
}
