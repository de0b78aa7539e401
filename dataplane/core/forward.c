/* SPDX-License-Identifier: Apache-2.0 */
/* The core's side of the rings with control: whole frames out, answers in, commands in, events out.
 * What control does not answer in time is answered here with the API's retriable error, so a hung
 * or dead control never holds a connection for longer than control.request.timeout.ms. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>

#include "protocol/errors.h"

/* Bounds beside a control that lives but forgot; its own deadlines are shorter. */
static const uint64_t members_wait_ns = 3600 * MILL_NS_PER_S;
static const uint64_t writes_wait_ns = 60 * MILL_NS_PER_S;

static void ring_control(struct mill_core *core)
{
    core->control_rung = true; /* once per turn, after publishing */
}

/* --- frames out ------------------------------------------------------------------------------ */

static uint64_t ticket_of(const struct mill_request *request)
{
    return ((uint64_t)request->generation << 32) | request->index;
}

/* How long control may take when it lives. A join or sync waits for other members, which only
 * control knows; what it writes to a log waits for the log. */
static uint64_t wait_of(const struct mill_core *core, const struct mill_request *request)
{
    switch (request->header.api_key) {
    case MILL_API_KEY_JOIN_GROUP:
    case MILL_API_KEY_SYNC_GROUP:
        return members_wait_ns;
    case MILL_API_KEY_PRODUCE: /* adds partitions to a transaction */
    case MILL_API_KEY_INIT_PRODUCER_ID:
    case MILL_API_KEY_ADD_PARTITIONS_TO_TXN:
    case MILL_API_KEY_ADD_OFFSETS_TO_TXN:
    case MILL_API_KEY_END_TXN:
    case MILL_API_KEY_TXN_OFFSET_COMMIT:
    case MILL_API_KEY_LEAVE_GROUP:
    case MILL_API_KEY_OFFSET_COMMIT:
    case MILL_API_KEY_OFFSET_DELETE:
    case MILL_API_KEY_DELETE_GROUPS:
    case MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT:
        return MILL_MAX(core->limits.control_timeout_ns, writes_wait_ns);
    default:
        return core->limits.control_timeout_ns;
    }
}

bool mill_forward_extend(struct mill_core *core, struct mill_request *request)
{
    uint64_t now = core->now.mono_ns;
    uint64_t beat = atomic_load_explicit(&core->ipc->control.beat_ns, memory_order_relaxed);
    /* A control with nothing to do shows itself once a second. */
    uint64_t silent_max = core->limits.control_timeout_ns + MILL_NS_PER_S;
#ifdef MILL_MUTANT_CORE_WAIT_UNWATCHED
    silent_max = MILL_NEVER / 2;
#endif
    bool alive = beat + silent_max >= now;
    if (now >= request->forward_until_ns || !alive || core->stopping) {
        return false;
    }
    mill_request_deadline(
        core, request, MILL_MIN(request->forward_until_ns, now + core->limits.control_timeout_ns));
    return true;
}

void mill_forward(struct mill_core *core, struct mill_request *request)
{
    mill_forward_own(core, request, &request->frame);
}

void mill_forward_own(struct mill_core *core, struct mill_request *request,
                      const struct mill_cursor *frame)
{
    const struct mill_stream *stream = request->conn->stream;
    if (request->deadline_ns == MILL_NEVER) {
        request->forward_until_ns = core->now.mono_ns + wait_of(core, request);
        mill_request_deadline(core, request, core->now.mono_ns + core->limits.control_timeout_ns);
    }
    if (request->expired || core->stopping) {
        mill_forward_expired(core, request);
        return;
    }
    uint32_t size = frame->left_bytes;
    if (size > core->limits.control_frame_bytes_max) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    struct mill_frame_request head = {
        .core_incarnation = core->incarnation,
        .ticket = ticket_of(request),
        .deadline_ns = request->forward_until_ns,
        .peer_port = stream->peer.port,
        .listener = stream->listener,
        .size_bytes = size,
        .principal = "User:ANONYMOUS",
    };
    memcpy(head.peer_address, stream->peer.address, sizeof(head.peer_address));
    int r = mill_frame_put(&core->frames_out, core->ipc, &core->ipc_core->scratch_out,
                           MILL_FRAME_REQUEST, &head, sizeof(head), frame);
    if (r == -EMSGSIZE) {
        mill_conn_abort(core, request->conn);
        return;
    }
    if (r < 0) {
        /* Ring or scratch is taken: this connection is not read until there is room. */
        core->words.frame_ring_full++;
        mill_request_hold(core, request);
        return;
    }
    request->ring_pos = core->frames_out.mine;
    request->phase = MILL_PHASE_CONTROL;
    request->forwarded_once = true;
    mill_list_add(&core->forwarded, &request->node);
    core->words.frames_forwarded++;
    mill_request_settle(core, request);
    ring_control(core);
}

/* --- retriable errors ------------------------------------------------------------------------ */

struct expired_fill {
    struct mill_request *request;
    union {
        struct mill_create_topics_request create;
        struct mill_delete_topics_request delete;
        struct mill_describe_configs_request configs;
        struct mill_alter_configs_request alter;
        struct mill_incremental_alter_configs_request incremental;
        struct mill_create_partitions_request grow;
    };
    struct mill_warray items;
};

static const char timeout_text[] = "the control process did not answer in time";

static void get_create(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct expired_fill *fill = (void *)(uintptr_t)context;
    struct mill_create_topics_response_topics *element = ret_element;
    struct mill_create_topics_request_topics item;
    bool more = mill_create_topics_request_topics_next(&fill->items,
                                                       fill->request->header.api_version, &item);
    MILL_ASSERT(more);
    element->name = item.name;
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->error_message = mill_wstr_of(timeout_text);
}

static void get_delete(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct expired_fill *fill = (void *)(uintptr_t)context;
    int16_t version = fill->request->header.api_version;
    struct mill_delete_topics_response_responses *element = ret_element;
    if (version >= 6) {
        struct mill_delete_topics_request_topics item;
        bool more = mill_delete_topics_request_topics_next(&fill->items, version, &item);
        MILL_ASSERT(more);
        element->name = item.name;
        element->topic_id = item.topic_id;
    } else {
        bool more =
            mill_warray_next_str(&fill->items, fill->request->header.flexible, &element->name);
        MILL_ASSERT(more);
    }
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->error_message = mill_wstr_of(timeout_text);
}

static void get_configs(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct expired_fill *fill = (void *)(uintptr_t)context;
    struct mill_describe_configs_response_results *element = ret_element;
    struct mill_describe_configs_request_resources item;
    bool more = mill_describe_configs_request_resources_next(
        &fill->items, fill->request->header.api_version, &item);
    MILL_ASSERT(more);
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->error_message = mill_wstr_of(timeout_text);
    element->resource_type = item.resource_type;
    element->resource_name = item.resource_name;
    element->configs = (struct mill_warray){.count = 0};
}

static void get_alter(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct expired_fill *fill = (void *)(uintptr_t)context;
    struct mill_alter_configs_response_responses *element = ret_element;
    struct mill_alter_configs_request_resources item;
    bool more = mill_alter_configs_request_resources_next(&fill->items,
                                                          fill->request->header.api_version, &item);
    MILL_ASSERT(more);
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->error_message = mill_wstr_of(timeout_text);
    element->resource_type = item.resource_type;
    element->resource_name = item.resource_name;
}

static void get_incremental(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct expired_fill *fill = (void *)(uintptr_t)context;
    struct mill_incremental_alter_configs_response_responses *element = ret_element;
    struct mill_incremental_alter_configs_request_resources item;
    bool more = mill_incremental_alter_configs_request_resources_next(
        &fill->items, fill->request->header.api_version, &item);
    MILL_ASSERT(more);
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->error_message = mill_wstr_of(timeout_text);
    element->resource_type = item.resource_type;
    element->resource_name = item.resource_name;
}

static void get_grow(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct expired_fill *fill = (void *)(uintptr_t)context;
    struct mill_create_partitions_response_results *element = ret_element;
    struct mill_create_partitions_request_topics item;
    bool more = mill_create_partitions_request_topics_next(
        &fill->items, fill->request->header.api_version, &item);
    MILL_ASSERT(more);
    element->name = item.name;
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->error_message = mill_wstr_of(timeout_text);
}

static int create_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct expired_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_cursor at = request->body;
    struct mill_create_topics_response answer;
    mill_create_topics_response_defaults(&answer);
    int r = mill_create_topics_request_decode(&at, version, &fill->create);
    if (r < 0) {
        return r;
    }
    fill->items = fill->create.topics;
    answer.topics = (struct mill_warray){
        .count = MILL_MAX(fill->items.count, 0), .get = get_create, .context = fill};
    return mill_create_topics_response_encode(to, version, &answer);
}

static int delete_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct expired_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_cursor at = request->body;
    struct mill_delete_topics_response answer;
    mill_delete_topics_response_defaults(&answer);
    int r = mill_delete_topics_request_decode(&at, version, &fill->delete);
    if (r < 0) {
        return r;
    }
    fill->items = version >= 6 ? fill->delete.topics : fill->delete.topic_names;
    answer.responses = (struct mill_warray){
        .count = MILL_MAX(fill->items.count, 0), .get = get_delete, .context = fill};
    return mill_delete_topics_response_encode(to, version, &answer);
}

static int configs_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct expired_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_cursor at = request->body;
    struct mill_describe_configs_response answer;
    mill_describe_configs_response_defaults(&answer);
    int r = mill_describe_configs_request_decode(&at, version, &fill->configs);
    if (r < 0) {
        return r;
    }
    fill->items = fill->configs.resources;
    answer.results = (struct mill_warray){
        .count = MILL_MAX(fill->items.count, 0), .get = get_configs, .context = fill};
    return mill_describe_configs_response_encode(to, version, &answer);
}

static int alter_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct expired_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_cursor at = request->body;
    struct mill_alter_configs_response answer;
    mill_alter_configs_response_defaults(&answer);
    int r = mill_alter_configs_request_decode(&at, version, &fill->alter);
    if (r < 0) {
        return r;
    }
    fill->items = fill->alter.resources;
    answer.responses = (struct mill_warray){
        .count = MILL_MAX(fill->items.count, 0), .get = get_alter, .context = fill};
    return mill_alter_configs_response_encode(to, version, &answer);
}

static int incremental_fill(struct mill_writer *to, const struct mill_request *request,
                            void *context)
{
    struct expired_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_cursor at = request->body;
    struct mill_incremental_alter_configs_response answer;
    mill_incremental_alter_configs_response_defaults(&answer);
    int r = mill_incremental_alter_configs_request_decode(&at, version, &fill->incremental);
    if (r < 0) {
        return r;
    }
    fill->items = fill->incremental.resources;
    answer.responses = (struct mill_warray){
        .count = MILL_MAX(fill->items.count, 0), .get = get_incremental, .context = fill};
    return mill_incremental_alter_configs_response_encode(to, version, &answer);
}

static int grow_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct expired_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_cursor at = request->body;
    struct mill_create_partitions_response answer;
    mill_create_partitions_response_defaults(&answer);
    int r = mill_create_partitions_request_decode(&at, version, &fill->grow);
    if (r < 0) {
        return r;
    }
    fill->items = fill->grow.topics;
    answer.results = (struct mill_warray){
        .count = MILL_MAX(fill->items.count, 0), .get = get_grow, .context = fill};
    return mill_create_partitions_response_encode(to, version, &answer);
}

/* Before version 3 there is no field for the error: no directory is told. */
static int log_dirs_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_describe_log_dirs_response answer;
    MILL_UNUSED(context);
    mill_describe_log_dirs_response_defaults(&answer);
    answer.error_code = MILL_KERR_REQUEST_TIMED_OUT;
    return mill_describe_log_dirs_response_encode(to, request->header.api_version, &answer);
}

static int resources_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct mill_list_config_resources_response answer;
    MILL_UNUSED(context);
    mill_list_config_resources_response_defaults(&answer);
    answer.error_code = MILL_KERR_REQUEST_TIMED_OUT;
    return mill_list_config_resources_response_encode(to, request->header.api_version, &answer);
}

static void get_described(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    struct expired_fill *fill = (void *)(uintptr_t)context;
    struct mill_describe_topic_partitions_request_topics asked;
    struct mill_describe_topic_partitions_response_topics *element = ret_element;
    bool more = mill_describe_topic_partitions_request_topics_next(
        &fill->items, fill->request->header.api_version, &asked);
    MILL_ASSERT(more);
    element->error_code = MILL_KERR_REQUEST_TIMED_OUT;
    element->name = asked.name;
}

/* There is no field for the whole: where no topic is named, none is told. */
static int describe_topics_fill(struct mill_writer *to, const struct mill_request *request,
                                void *context)
{
    struct expired_fill *fill = context;
    int16_t version = request->header.api_version;
    struct mill_cursor at = request->body;
    struct mill_describe_topic_partitions_request asked;
    struct mill_describe_topic_partitions_response answer;
    mill_describe_topic_partitions_response_defaults(&answer);
    int r = mill_describe_topic_partitions_request_decode(&at, version, &asked);
    if (r < 0) {
        return r;
    }
    fill->items = asked.topics;
    answer.topics = (struct mill_warray){
        .count = MILL_MAX(fill->items.count, 0), .get = get_described, .context = fill};
    return mill_describe_topic_partitions_response_encode(to, version, &answer);
}

void mill_forward_expired(struct mill_core *core, struct mill_request *request)
{
    struct expired_fill fill = {.request = request};
    mill_heap_remove(&core->heap, &request->deadline);
    request->phase = MILL_PHASE_OPS;
    request->expired = true;
    request->forwarded_once = true;
    switch (request->header.api_key) {
    case MILL_API_KEY_PRODUCE:
        mill_produce_adds_expired(core, request);
        break;
    case MILL_API_KEY_METADATA:
        mill_metadata_begin(core, request); /* from the map, as far as it knows */
        break;
    case MILL_API_KEY_CREATE_TOPICS:
        mill_answer_send(core, request, create_fill, &fill);
        break;
    case MILL_API_KEY_DELETE_TOPICS:
        mill_answer_send(core, request, delete_fill, &fill);
        break;
    case MILL_API_KEY_DESCRIBE_CONFIGS:
        mill_answer_send(core, request, configs_fill, &fill);
        break;
    case MILL_API_KEY_ALTER_CONFIGS:
        mill_answer_send(core, request, alter_fill, &fill);
        break;
    case MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS:
        mill_answer_send(core, request, incremental_fill, &fill);
        break;
    case MILL_API_KEY_CREATE_PARTITIONS:
        mill_answer_send(core, request, grow_fill, &fill);
        break;
    case MILL_API_KEY_DESCRIBE_LOG_DIRS:
        mill_answer_send(core, request, log_dirs_fill, &fill);
        break;
    case MILL_API_KEY_LIST_CONFIG_RESOURCES:
        mill_answer_send(core, request, resources_fill, &fill);
        break;
    case MILL_API_KEY_DESCRIBE_TOPIC_PARTITIONS:
        mill_answer_send(core, request, describe_topics_fill, &fill);
        break;
    case MILL_API_KEY_FIND_COORDINATOR:
        mill_coordinator_begin(core, request); /* from the map, as far as it knows */
        break;
    default:
        if (!mill_forward_expired_txn(core, request) &&
            !mill_forward_expired_quota(core, request)) {
            mill_forward_expired_group(core, request);
        }
        break;
    }
}

/* --- answers in ------------------------------------------------------------------------------ */

static void answer_take(struct mill_core *core, const struct mill_frame_answer *answer,
                        uint32_t message_bytes)
{
    struct mill_ipc_scratch *scratch = &core->ipc_core->scratch_in;
    const uint8_t *bytes =
        mill_frame_body(core->ipc, core->ipc->size_bytes, scratch, answer, sizeof(*answer),
                        message_bytes, answer->scratch, answer->size_bytes);
    struct mill_request *request = NULL;
    if (bytes && answer->core_incarnation == core->incarnation) {
        request =
            mill_request_named(core, (uint32_t)answer->ticket, (uint32_t)(answer->ticket >> 32));
    }
    if (request && request->phase == MILL_PHASE_CONTROL && request->conn) {
        mill_list_remove(&request->node);
        mill_heap_remove(&core->heap, &request->deadline);
        request->phase = MILL_PHASE_OPS;
        if (answer->outcome == MILL_OUTCOME_AGAIN) {
            mill_api_begin(core, request);
        } else if (answer->outcome == MILL_OUTCOME_BYTES && answer->size_bytes > 0) {
            struct mill_buf buf;
            struct mill_cursor at = mill_cursor_over(&buf, bytes, answer->size_bytes);
            if (request->header.api_key == MILL_API_KEY_PRODUCE) {
                mill_produce_adds_answer(core, request, at);
            } else {
                mill_answer_bytes(core, request, &at);
            }
        } else {
            mill_conn_abort(core, request->conn);
        }
    }
}

static uint32_t answers_run(struct mill_core *core)
{
    uint32_t work = 0;
    uint32_t kind;
    uint32_t size;
    bool scratch = false;
    const void *message;
    /* One answer in the scratch slot ends the round: the ring is released before the slot. */
    while (work < MILL_CONTROL_MESSAGES_PER_TURN && !scratch &&
           (message = mill_ring_next(&core->frames_in, &kind, &size)) != NULL) {
        if (kind == MILL_FRAME_ANSWER && size >= sizeof(struct mill_frame_answer)) {
            const struct mill_frame_answer *answer = message;
            scratch = answer->scratch != 0;
            answer_take(core, answer, size);
        }
        work++;
    }
    if (work > 0) {
        mill_ring_release(&core->frames_in);
    }
    if (scratch) {
        mill_scratch_release(&core->ipc_core->scratch_in);
    }
    return work;
}

/* --- commands and events --------------------------------------------------------------------- */

static void id_block_take(struct mill_core *core, const struct mill_command_id_block *block)
{
    if (block->core_incarnation != core->incarnation || block->count <= 0) {
        return;
    }
    core->ids_asked = false;
    uint32_t which = core->ids_next[0] == core->ids_end[0] ? 0 : 1;
    if (core->ids_next[which] == core->ids_end[which]) {
        core->ids_next[which] = block->first;
        core->ids_end[which] = block->first + block->count;
    }
}

static uint32_t commands_run(struct mill_core *core)
{
    uint32_t work = 0;
    uint32_t kind;
    uint32_t size;
    const void *message;
    while (work < MILL_CONTROL_MESSAGES_PER_TURN &&
           (message = mill_ring_next(&core->commands, &kind, &size)) != NULL) {
        if (kind == MILL_COMMAND_ID_BLOCK && size >= sizeof(struct mill_command_id_block)) {
            id_block_take(core, message);
        } else if (kind == MILL_COMMAND_GRANTS_TOLD &&
                   size >= sizeof(struct mill_command_grants_told)) {
            const struct mill_command_grants_told *told = message;
            core->grants_told |= told->core_incarnation == core->incarnation;
        } else if (kind == MILL_COMMAND_LOOK) {
            core->report_all = true;
        }
        work++;
    }
    if (work > 0) {
        mill_ring_release(&core->commands);
    }
    return work;
}

void mill_event_partition(struct mill_core *core, const struct mill_uuid *topic_id,
                          int32_t partition, enum mill_partition_state state)
{
    struct mill_event_partition *event =
        mill_ring_claim(&core->events, MILL_EVENT_PARTITION, sizeof(*event));
    if (!event) {
        core->report_all = true; /* told again when there is room */
        return;
    }
    *event = (struct mill_event_partition){
        .core_incarnation = core->incarnation,
        .topic_id = *topic_id,
        .partition = partition,
        .state = state,
    };
    ring_control(core);
}

void mill_ids_ask(struct mill_core *core)
{
    /* Asked again after a second: the question may have been lost with a dead control. */
    if (core->ids_asked && core->now.mono_ns - core->ids_asked_ns < MILL_NS_PER_S) {
        return;
    }
    struct mill_event_ids_low *event =
        mill_ring_claim(&core->events, MILL_EVENT_IDS_LOW, sizeof(*event));
    if (!event) {
        return;
    }
    int64_t left = core->ids_end[0] - core->ids_next[0] + core->ids_end[1] - core->ids_next[1];
    *event =
        (struct mill_event_ids_low){.core_incarnation = core->incarnation, .left = (uint64_t)left};
    core->ids_asked = true;
    core->ids_asked_ns = core->now.mono_ns;
    ring_control(core);
}

/* A new control: what the dead one had taken off the ring will never be answered by anyone. */
static uint32_t control_changed(struct mill_core *core)
{
    uint64_t incarnation =
        atomic_load_explicit(&core->ipc->control.incarnation, memory_order_acquire);
    if (incarnation == core->control_incarnation) {
        return 0;
    }
    core->control_incarnation = incarnation;
    core->ids_asked = false;
    uint64_t taken = atomic_load_explicit(&core->frames_out.shared->head, memory_order_acquire);
    struct mill_node *next;
    for (struct mill_node *node = core->forwarded.next; node != &core->forwarded; node = next) {
        next = node->next;
        struct mill_request *request = MILL_CONTAINER_OF(node, struct mill_request, node);
        if (request->ring_pos <= taken) {
            request->forward_until_ns = 0;
            mill_request_expired(core, request);
            next = core->forwarded.next; /* neighbours may be gone too: begin again */
        }
    }
    return 1;
}

uint32_t mill_forward_run(struct mill_core *core)
{
    uint32_t work = control_changed(core);
    work += answers_run(core);
    work += commands_run(core);
    if (core->control_rung) {
        core->control_rung = false;
        mill_ring_publish(&core->frames_out);
        mill_ring_publish(&core->events);
        mill_bell_ring(&core->control_bell);
#ifdef MILL_MUTANT_CORE_WAITS_CONTROL
        for (uint64_t until_ns = mill_now_read().mono_ns + MILL_NS_PER_S;
             core->frames_out.mine != atomic_load(&core->frames_out.shared->head) &&
             mill_now_read().mono_ns < until_ns;) {
        }
#endif
    }
    return work;
}
