/* SPDX-License-Identifier: Apache-2.0 */
/* FindCoordinator 0-4: there are no groups or transactions yet, and that is what every key is told,
 * with the retriable code that clients know. */
#include "control/admin/request.h"
#include "protocol/errors.h"

static const char not_yet[] = "consumer groups and transactions are not available yet: assign "
                              "partitions by hand";

struct keys {
    const struct mill_wstr *keys;
};

static void get_key(const void *context, int32_t index, void *element)
{
    const struct keys *keys = context;
    struct mill_find_coordinator_response_coordinators *to = element;
    to->key = keys->keys[index];
    to->node_id = -1;
    to->host = mill_wstr_of("");
    to->port = -1;
    to->error_code = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    to->error_message = mill_wstr_of(not_yet);
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_find_coordinator_response_encode(to, version, message);
}

void mill_find_coordinator(struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_find_coordinator_request in;
    struct mill_find_coordinator_response out;
    if (mill_find_coordinator_request_decode(at, request->header.api_version, &in) < 0 ||
        in.coordinator_keys.count > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    mill_find_coordinator_response_defaults(&out);
    out.error_code = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    out.error_message = mill_wstr_of(not_yet);
    out.node_id = -1;
    out.host = mill_wstr_of("");
    out.port = -1;
    int32_t count = in.coordinator_keys.count > 0 ? in.coordinator_keys.count : 0;
    struct mill_wstr *texts = mill_pool_take(&request->pool, (uint64_t)count * sizeof(*texts));
    for (int32_t i = 0; texts && i < count; i++) {
        if (!mill_warray_next_str(&in.coordinator_keys, request->header.flexible, &texts[i])) {
            count = i;
        }
    }
    if (!texts) {
        mill_admin_close(request);
        return;
    }
    struct keys keys = {.keys = texts};
    out.coordinators = (struct mill_warray){.count = count, .get = get_key, .context = &keys};
    mill_admin_answer(request, encode, &out);
}
