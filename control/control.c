/* SPDX-License-Identifier: Apache-2.0 */
/* One turn of control; see control.h. Order of a start: show the incarnation, ask the cores for
 * their states, read the store, publish the map, serve.
 *
 *   frames_out --> request --> handler --+--> answer --> frames_in
 *   events -----> states of partitions --+ (waiting requests look again)
 */
#include "control/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log_line.h"
#include "control/admin/request.h"
#include "control/group/groups.h"
#include "control/txn/txns.h"
#include "ipc/frames.h"

enum {
    FRAMES_PER_TURN = 64, /* per core */
    EVENTS_PER_TURN = 4096,
    WAITING_MAX = 4096,
    LOOKING_EVENTS_MAX = 1 << 16, /* states noted before the store is read */
    FRAME_POOL_BYTES = 1 << 20,   /* memory of a request beside four times its frame */
    LOOK_NS = 500000000,          /* how long a start waits for the cores' states */
    RETRY_NS = 10000000,          /* an answer found its ring full */
    AGAIN_NS = 1000000000,        /* something is waited for: ask the cores again */
    MADE_NS = 200000000,          /* new topics are noted as served together */
    IDLE_NS = 1000000000,         /* nothing is: one look in a while, at new incarnations */
};

enum control_state {
    CONTROL_LOOKING,
    CONTROL_SERVING,
};

struct control_core {
    struct mill_ring frames_in; /* from the core */
    struct mill_ring frames_out;
    struct mill_ring events;
    struct mill_ring commands;
    struct mill_ipc_core *shared;
    struct mill_bell bell;
    bool ids_wanted;
    bool ring_bell;
};

struct mill_control {
    struct mill_controller controller;
    struct mill_journal *journal;
    struct mill_groups groups;
    struct mill_txns txns;
    int64_t ids_next; /* producer ids for transactions */
    int64_t ids_end;
    struct mill_map *map;
    struct mill_ipc_segment *segment;
    uint64_t segment_bytes;
    uint64_t incarnation;
    uint64_t dataplane;  /* incarnation attached to, 0 none */
    uint64_t generation; /* of the map as the cores were last woken for it */
    uint64_t look_until_ns;
    uint64_t again_ns;
    uint64_t made_at_ns;
    enum control_state state;
    struct mill_event_partition *looked; /* states told before the store was read */
    uint32_t looked_count;
    struct mill_admin_request *first; /* waiting, or ready and not yet in a ring */
    struct mill_admin_request **last;
    uint32_t waiting_count;
    uint32_t grants_told; /* cores that know that they have every grant */
    struct mill_control_counters counters;
    struct mill_shared_control *shared;
    struct mill_log_limit limit;
    uint32_t cores_count;
    struct control_core cores[];
};

/* --- open and close ----------------------------------------------------------------------------
 */

static int attach_core(struct mill_control *control, uint32_t index, int bell_fd)
{
    struct mill_ipc_segment *segment = control->segment;
    struct control_core *core = &control->cores[index];
    const uint64_t frames = mill_ring_bytes(MILL_FRAME_RING_BYTES);
    const uint64_t commands = mill_ring_bytes(MILL_COMMAND_RING_BYTES);
    core->shared = &segment->cores[index];
    core->bell = (struct mill_bell){.shared = &core->shared->bell, .fd = bell_fd};
    int rc = mill_ring_attach_consumer(&core->frames_in,
                                       mill_ipc_at(segment, core->shared->frames_out), frames);
    if (rc == 0) {
        rc = mill_ring_attach_producer(&core->frames_out,
                                       mill_ipc_at(segment, core->shared->frames_in), frames);
    }
    if (rc == 0) {
        rc = mill_ring_attach_consumer(&core->events, mill_ipc_at(segment, core->shared->events),
                                       commands);
    }
    if (rc == 0) {
        rc = mill_ring_attach_producer(&core->commands,
                                       mill_ipc_at(segment, core->shared->commands), commands);
    }
    /* A predecessor may have died between taking a large frame and giving its slot back. */
    if (rc == 0 && mill_ring_empty(&core->frames_in)) {
        mill_scratch_release(&core->shared->scratch_out);
    }
    return rc;
}

/* For transactional ids. */
static int take_producer_id(void *context, int64_t *ret_id)
{
    struct mill_control *control = context;
    if (control->ids_next == control->ids_end) {
        int64_t first = 0;
        int rc = mill_controller_take_ids(&control->controller, &first);
        if (rc < 0) {
            return rc;
        }
        control->ids_next = first;
        control->ids_end = first + MILL_CONTROL_ID_BLOCK;
    }
    *ret_id = control->ids_next++;
    return 0;
}

/* Offsets that were committed in the transaction wait for its marker. */
static void txn_ended(void *context, const char *topic, int32_t partition, int64_t producer_id,
                      bool commit)
{
    struct mill_control *control = context;
    mill_groups_txn_ended(&control->groups, topic, partition, producer_id, commit);
}

static int open_txns(struct mill_control *control, const struct mill_control_options *options)
{
    struct mill_txns_options txns = {
        .journal = control->journal,
        .topics = &control->controller.topics,
        .producer_id = take_producer_id,
        .context = control,
        .timeout_max_ms = mill_config_int(options->config, MILL_KEY_TRANSACTION_MAX_TIMEOUT_MS),
        .expiration_ms = mill_config_int(options->config, MILL_KEY_TRANSACTIONAL_ID_EXPIRATION_MS),
        .bytes_max = MILL_TXN_BYTES_MAX,
        .timeouts_interval_ms = mill_config_int(
            options->config, MILL_KEY_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS),
        .expiry_interval_ms = mill_config_int(
            options->config, MILL_KEY_TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS),
        .ended = txn_ended,
        .ended_context = control,
    };
    options->random(options->random_context, txns.key, sizeof(txns.key));
    return mill_txns_open(&control->txns, &txns);
}

/* The journal, the groups, transactions and the rings. ret: 0, or negative with the report. */
static int open_parts(struct mill_control *control, const struct mill_control_options *options,
                      struct mill_report *report)
{
    int64_t timeout_ms = mill_config_int(options->config, MILL_KEY_OFFSETS_COMMIT_TIMEOUT_MS);
    control->journal = mill_journal_open(control->segment, control->segment_bytes,
                                         (uint64_t)timeout_ms * MILL_NS_PER_MS, options->random,
                                         options->random_context);
    if (!control->journal ||
        mill_groups_open(&control->groups, &control->controller, control->journal) < 0 ||
        open_txns(control, options) < 0) {
        return mill_fail(report, -ENOMEM, "control: out of memory");
    }
    for (uint32_t i = 0; i < control->cores_count; i++) {
        int rc = attach_core(control, i, options->core_bells[i]);
        if (rc == 0) {
            rc = mill_journal_core(control->journal, i, &control->cores[i].bell);
        }
        if (rc < 0) {
            return mill_fail(report, rc, "control: the rings of core %u are damaged", i);
        }
    }
    return 0;
}

static void close_parts(struct mill_control *control)
{
    mill_journal_close(control->journal); /* ends what the others wait for */
    mill_txns_close(&control->txns);      /* answers what waits there, by way of the groups */
    mill_groups_close(&control->groups);
    mill_controller_close(&control->controller);
}

int mill_control_open(const struct mill_control_options *options, struct mill_control **ret_control,
                      struct mill_report *report)
{
    uint32_t cores_count = options->segment->cores_count;
    struct mill_control *control =
        calloc(1, sizeof(*control) + cores_count * sizeof(control->cores[0]));
    if (!control) {
        return mill_fail(report, -ENOMEM, "control: out of memory");
    }
    control->map = options->map;
    control->segment = options->segment;
    control->segment_bytes = options->segment_bytes;
    control->shared = options->shared;
    control->cores_count = cores_count;
    control->last = &control->first;
    control->looked = calloc(LOOKING_EVENTS_MAX, sizeof(*control->looked));
    int rc = control->looked ? 0 : -ENOMEM;
    if (rc == 0) {
        rc = mill_controller_open(&control->controller, options->config, &options->meta,
                                  options->map, options->random, options->random_context, report);
    }
    if (rc == 0) {
        rc = open_parts(control, options, report);
        if (rc < 0) {
            close_parts(control);
        }
    }
    if (rc < 0) {
        free(control->looked);
        free(control);
        return rc;
    }
    do {
        options->random(options->random_context, &control->incarnation,
                        sizeof(control->incarnation));
    } while (control->incarnation == 0);
    atomic_store_explicit(&control->segment->control.serving, 0, memory_order_relaxed);
    atomic_store_explicit(&control->segment->control.seen, 0, memory_order_relaxed);
    /* Release pairs with the cores' acquire: they then ask again for what the last one had. */
    atomic_store_explicit(&control->segment->control.incarnation, control->incarnation,
                          memory_order_release);
    for (uint32_t i = 0; i < cores_count; i++) {
        mill_bell_ring(&control->cores[i].bell);
    }
    *ret_control = control;
    return 0;
}

void mill_control_close(struct mill_control *control)
{
    if (!control) {
        return;
    }
    atomic_store_explicit(&control->segment->control.serving, 0, memory_order_relaxed);
    atomic_store_explicit(&control->segment->control.incarnation, 0, memory_order_release);
    while (control->first) {
        struct mill_admin_request *next = control->first->next;
        mill_admin_free(control->first);
        control->first = next;
    }
    if (control->controller.made_count > 0) {
        mill_controller_keep_made(&control->controller);
    }
    struct mill_meta meta = control->controller.meta;
    close_parts(control);
    mill_meta_close(&meta);
    free(control->looked);
    free(control);
}

bool mill_control_is_serving(const struct mill_control *control)
{
    return control->state == CONTROL_SERVING;
}

const struct mill_control_counters *mill_control_counters(const struct mill_control *control)
{
    return &control->counters;
}

struct mill_controller *mill_control_controller(struct mill_control *control)
{
    return &control->controller;
}

bool mill_control_has_work(const struct mill_control *control)
{
    if (atomic_load_explicit(&control->segment->dataplane.incarnation, memory_order_acquire) !=
        control->dataplane) {
        return true;
    }
    if (mill_journal_has_work(control->journal)) {
        return true;
    }
    for (uint32_t i = 0; i < control->cores_count; i++) {
        if (!mill_ring_empty(&control->cores[i].events) ||
            (!mill_ring_empty(&control->cores[i].frames_in) &&
             control->waiting_count < WAITING_MAX && control->state == CONTROL_SERVING)) {
            return true;
        }
    }
    return false;
}

/* --- commands ----------------------------------------------------------------------------------
 */

static bool put_command(struct mill_control *control, struct control_core *core, uint32_t kind,
                        const void *command, uint32_t size_bytes)
{
    void *message = mill_ring_claim(&core->commands, kind, size_bytes);
    if (!message) {
        control->counters.commands_full++;
        return false;
    }
    memcpy(message, command, size_bytes);
    mill_ring_publish(&core->commands);
    core->ring_bell = true;
    return true;
}

static void ask_states(struct mill_control *control)
{
    struct mill_command_look look = {.control_incarnation = control->incarnation};
    for (uint32_t i = 0; i < control->cores_count; i++) {
        put_command(control, &control->cores[i], MILL_COMMAND_LOOK, &look, sizeof(look));
    }
}

static void give_ids(struct mill_control *control)
{
    for (uint32_t i = 0; i < control->cores_count; i++) {
        struct control_core *core = &control->cores[i];
        struct mill_command_id_block block = {.core_incarnation = control->dataplane,
                                              .count = MILL_CONTROL_ID_BLOCK};
        if (!core->ids_wanted) {
            continue;
        }
        core->ids_wanted = false; /* a core whose reserve stays low says so again */
        if (mill_ring_fits(&core->commands, sizeof(block)) &&
            mill_controller_take_ids(&control->controller, &block.first) == 0) {
            put_command(control, core, MILL_COMMAND_ID_BLOCK, &block, sizeof(block));
        }
    }
}

/* The cores have all grants: from now on a batch without one is refused for good. */
static void tell_grants(struct mill_control *control)
{
    const struct mill_command_grants_told told = {.core_incarnation = control->dataplane};
    while (control->dataplane != 0 && control->grants_told < control->cores_count &&
           mill_txns_told(&control->txns) &&
           put_command(control, &control->cores[control->grants_told], MILL_COMMAND_GRANTS_TOLD,
                       &told, sizeof(told))) {
        control->grants_told++;
    }
}

/* --- incarnations ------------------------------------------------------------------------------
 */

static void drop_requests(struct mill_control *control)
{
    struct mill_admin_request *request = control->first;
    control->first = NULL;
    control->last = &control->first;
    control->waiting_count = 0;
    while (request) {
        struct mill_admin_request *next = request->next;
        control->counters.requests_stale++;
        mill_admin_free(request);
        request = next;
    }
}

/* What the groups took over and have answered comes back into the queue. */
static void take_answered(struct mill_control *control)
{
    struct mill_admin_request *request = NULL;
    while ((request = mill_groups_answered(&control->groups)) != NULL) {
        *control->last = request;
        control->last = &request->next;
        control->waiting_count++;
    }
}

/* Looks whether another millraced runs; what was known of the last one's partitions is void. */
static bool follow_dataplane(struct mill_control *control)
{
    uint64_t incarnation =
        atomic_load_explicit(&control->segment->dataplane.incarnation, memory_order_acquire);
    if (incarnation == control->dataplane) {
        return false;
    }
    control->dataplane = incarnation;
    control->looked_count = 0;
    mill_controller_forget_states(&control->controller);
    mill_journal_attach(control->journal, incarnation);
    mill_groups_attach(&control->groups);
    mill_txns_attach(&control->txns);
    control->grants_told = 0;
    take_answered(control);
    drop_requests(control);
    for (uint32_t i = 0; i < control->cores_count; i++) {
        control->cores[i].ids_wanted = false;
        /* The dead one may have kept our slot. */
        mill_scratch_release(&control->cores[i].shared->scratch_in);
    }
    atomic_store_explicit(&control->segment->control.seen, incarnation, memory_order_release);
    if (incarnation != 0) {
        control->counters.attaches++;
        ask_states(control);
    }
    return true;
}

/* --- events ------------------------------------------------------------------------------------
 */

static bool take_event(struct mill_control *control, struct control_core *core, uint32_t kind,
                       const void *message, uint32_t size_bytes)
{
    struct mill_event_partition partition;
    struct mill_event_ids_low ids;
    control->counters.events++;
    if (kind == MILL_EVENT_PARTITION && size_bytes >= sizeof(partition)) {
        memcpy(&partition, message, sizeof(partition));
        if (partition.core_incarnation != control->dataplane) {
            control->counters.events_stale++;
        } else if (control->state == CONTROL_SERVING) {
            return mill_controller_note(&control->controller, &partition);
        } else if (control->looked_count < LOOKING_EVENTS_MAX) {
            control->looked[control->looked_count++] = partition;
        }
    } else if (kind == MILL_EVENT_IDS_LOW && size_bytes >= sizeof(ids)) {
        memcpy(&ids, message, sizeof(ids));
        core->ids_wanted = ids.core_incarnation == control->dataplane;
    } else {
        control->counters.requests_bad++;
    }
    return false;
}

/* ret: true when a state changed. */
static bool take_events(struct mill_control *control)
{
    bool changed = false;
    for (uint32_t i = 0; i < control->cores_count; i++) {
        struct control_core *core = &control->cores[i];
        for (uint32_t taken = 0; taken < EVENTS_PER_TURN; taken++) {
            uint32_t kind = 0;
            uint32_t size_bytes = 0;
            const void *message = mill_ring_next(&core->events, &kind, &size_bytes);
            if (!message) {
                break;
            }
            changed |= take_event(control, core, kind, message, size_bytes);
        }
        mill_ring_release(&core->events);
    }
    return changed;
}

/* --- start -------------------------------------------------------------------------------------
 */

/* Partitions in the map that the cores have not spoken of yet. */
static bool states_missing(const struct mill_control *control)
{
    uint64_t expected = 0;
    for (uint32_t slot = 0; slot < mill_map_slots(control->map); slot++) {
        const struct mill_map_topic *topic = mill_map_topic_at(control->map, slot);
        expected += topic ? topic->partitions_count : 0;
    }
    return control->dataplane != 0 &&
           control->looked_count < MILL_MIN(expected, (uint64_t)LOOKING_EVENTS_MAX);
}

static int start_serving(struct mill_control *control, struct mill_report *report)
{
    int rc = mill_controller_load(&control->controller, report);
    if (rc == 0 && !mill_map_cluster_read(control->map)) { /* else control alone was restarted */
        mill_controller_tell_strays(&control->controller);
    }
    if (rc == 0) {
        rc = mill_controller_publish(&control->controller, report);
    }
    if (rc < 0) {
        return rc;
    }
    for (uint32_t i = 0; i < control->looked_count; i++) {
        mill_controller_note(&control->controller, &control->looked[i]);
    }
    control->state = CONTROL_SERVING;
    atomic_store_explicit(&control->segment->control.serving, 1, memory_order_release);
    mill_log_line(MILL_LEVEL_INFO, "control.serving", "topics=%u partitions=%llu states=%u",
                  control->controller.topics.count,
                  (unsigned long long)control->controller.topics.partitions_count,
                  control->looked_count);
    control->looked_count = 0;
    return 0;
}

/* --- requests ----------------------------------------------------------------------------------
 */

static struct mill_admin_request *make_request(struct mill_control *control, uint32_t index,
                                               const void *message, uint32_t size_bytes,
                                               bool *ret_scratch)
{
    struct mill_frame_request head;
    *ret_scratch = false;
    if (size_bytes < sizeof(head)) {
        return NULL;
    }
    memcpy(&head, message, sizeof(head));
    *ret_scratch = head.scratch != 0;
    const uint8_t *body = mill_frame_body(control->segment, control->segment_bytes,
                                          &control->cores[index].shared->scratch_out, message,
                                          sizeof(head), size_bytes, head.scratch, head.size_bytes);
    if (!body || head.size_bytes > control->segment->scratch_bytes) {
        return NULL;
    }
    struct mill_admin_request *request = calloc(1, sizeof(*request));
    uint8_t *frame = malloc(MILL_MAX(head.size_bytes, 1u));
    if (!request || !frame) {
        free(request);
        free(frame);
        return NULL;
    }
    memcpy(frame, body, head.size_bytes);
    request->frame = frame;
    request->head = head;
    request->core = index;
    request->pool.limit_bytes = 4ull * head.size_bytes + FRAME_POOL_BYTES;
    request->answer_bytes_max = MILL_MAX(control->segment->scratch_bytes, 1u << 16);
    return request;
}

static void take_frame(struct mill_control *control, uint32_t index, uint32_t kind,
                       const void *message, uint32_t size_bytes, uint64_t now_ns)
{
    struct control_core *core = &control->cores[index];
    bool scratch = false;
    struct mill_admin_request *request =
        kind == MILL_FRAME_REQUEST ? make_request(control, index, message, size_bytes, &scratch)
                                   : NULL;
    /* The frame is ours now: it leaves the ring first, then its slot is free for another. */
    mill_ring_release(&core->frames_in);
    if (scratch) {
        mill_scratch_release(&core->shared->scratch_out);
    }
    if (!request) {
        control->counters.requests_bad++;
        mill_log_limited(&control->limit, MILL_LEVEL_WARN, "control.bad-frame", "core=%u", index);
        return;
    }
    bool stale = request->head.core_incarnation != control->dataplane;
#ifdef MILL_MUTANT_CONTROL_STALE_SERVED
    stale = false;
#endif
    if (stale) {
        control->counters.requests_stale++;
        mill_admin_free(request);
        return;
    }
    control->counters.requests++;
    mill_admin_begin(&control->controller, &control->groups, &control->txns, request, now_ns);
    if (request->taken) {
        return; /* it comes back answered */
    }
    *control->last = request;
    control->last = &request->next;
    control->waiting_count++;
}

/* ret: true when frames had to stay. */
static bool take_frames(struct mill_control *control, uint64_t now_ns)
{
    bool more = false;
    for (uint32_t i = 0; i < control->cores_count; i++) {
        for (uint32_t taken = 0; taken < FRAMES_PER_TURN; taken++) {
            uint32_t kind = 0;
            uint32_t size_bytes = 0;
            if (control->waiting_count >= WAITING_MAX) {
                control->counters.requests_full++;
                return false; /* an answer makes room */
            }
            const void *message = mill_ring_next(&control->cores[i].frames_in, &kind, &size_bytes);
            if (!message) {
                break;
            }
            take_frame(control, i, kind, message, size_bytes, now_ns);
        }
        more |= !mill_ring_empty(&control->cores[i].frames_in);
    }
    return more;
}

/* Puts an answer into its core's ring. ret: false when there is no room yet. */
static bool put_answer(struct mill_control *control, struct mill_admin_request *request)
{
    struct control_core *core = &control->cores[request->core];
    struct mill_buf buf;
    struct mill_frame_answer head = {
        .core_incarnation = request->head.core_incarnation,
        .ticket = request->head.ticket,
        .outcome = request->outcome,
    };
    struct mill_cursor body = mill_cursor_over(&buf, request->answer, request->answer_bytes);
    int rc = mill_frame_put(&core->frames_out, control->segment, &core->shared->scratch_in,
                            MILL_FRAME_ANSWER, &head, sizeof(head), &body);
    if (rc == -EMSGSIZE) {
        mill_admin_close(request);
        return put_answer(control, request);
    }
    if (rc < 0) {
        control->counters.answer_ring_full++;
        return false;
    }
    mill_ring_publish(&core->frames_out);
    core->ring_bell = true;
    control->counters.answers++;
    control->counters.answers_closed += request->outcome == MILL_OUTCOME_CLOSE ? 1 : 0;
    return true;
}

/* Answers what can be answered. ret: when the next waiting one must be looked at. */
static uint64_t answer_waiting(struct mill_control *control, uint64_t now_ns)
{
    uint64_t next_ns = MILL_NEVER;
    struct mill_admin_request **at = &control->first;
    while (*at) {
        struct mill_admin_request *request = *at;
        if (!request->ready) {
            request->again = false;
            mill_admin_continue(&control->controller, request, now_ns);
        }
        bool late = now_ns > request->head.deadline_ns + MILL_NS_PER_S;
        if ((request->ready && put_answer(control, request)) || late) {
            control->counters.answers_late += late ? 1 : 0;
            *at = request->next;
            control->waiting_count--;
            mill_admin_free(request);
            continue;
        }
        uint64_t due_ns = request->ready   ? now_ns + RETRY_NS
                          : request->again ? now_ns
                                           : request->wait_until_ns;
        next_ns = MILL_MIN(next_ns, due_ns);
        at = &request->next;
    }
    control->last = at;
    return next_ns;
}

/* --- the turn ----------------------------------------------------------------------------------
 */

/* Wakes cores for what they were sent, and all of them for a changed map. */
static void ring_bells(struct mill_control *control)
{
    uint64_t generation = mill_map_generation(control->map);
    bool changed = generation != control->generation;
    control->generation = generation;
    for (uint32_t i = 0; i < control->cores_count; i++) {
        struct control_core *core = &control->cores[i];
        if (core->ring_bell || changed) {
            core->ring_bell = false;
            mill_bell_ring(&core->bell);
        }
    }
}

static void publish(struct mill_control *control)
{
    struct mill_shared_control *shared = control->shared;
    const struct mill_controller_counters *counters = mill_controller_count(&control->controller);
#ifdef MILL_MUTANT_CONTROL_UNPUBLISHED
    shared = NULL;
#endif
    if (!shared) {
        return;
    }
#define MILL_CONTROL_PUBLISH(name, help)    mill_counter_set(&shared->name, control->counters.name);
#define MILL_CONTROLLER_PUBLISH(name, help) mill_counter_set(&shared->name, counters->name);
    MILL_CONTROL_COUNTERS(MILL_CONTROL_PUBLISH)
    MILL_CONTROLLER_COUNTERS(MILL_CONTROLLER_PUBLISH)
    const struct mill_journal_counters *journal = mill_journal_counters(control->journal);
#define MILL_JOURNAL_PUBLISH(name, help) mill_counter_set(&shared->name, journal->name);
    MILL_JOURNAL_COUNTERS(MILL_JOURNAL_PUBLISH)
#undef MILL_JOURNAL_PUBLISH
    mill_groups_publish(&control->groups, shared);
    mill_txns_publish(&control->txns, shared);
#undef MILL_CONTROL_PUBLISH
#undef MILL_CONTROLLER_PUBLISH
}

/* Notes of several creations go to the store together, a while after: until then a lost directory
 * is a new one. ret: when it is due. */
static uint64_t keep_made(struct mill_control *control, uint64_t now_ns)
{
    if (control->controller.made_count == 0) {
        control->made_at_ns = now_ns + MADE_NS;
        return MILL_NEVER;
    }
    if (now_ns >= control->made_at_ns) {
        control->made_at_ns = now_ns + MADE_NS;
        mill_controller_keep_made(&control->controller);
    }
    return control->made_at_ns;
}

int mill_control_step(struct mill_control *control, const struct mill_now *now,
                      uint64_t *ret_next_ns, struct mill_report *report)
{
    uint64_t now_ns = now->mono_ns;
    uint64_t next_ns = now_ns + IDLE_NS;
    atomic_store_explicit(&control->segment->control.beat_ns, now_ns, memory_order_relaxed);
    if (control->look_until_ns == 0) {
        control->look_until_ns = now_ns + LOOK_NS;
    }
    follow_dataplane(control);
    take_events(control);
    if (control->state == CONTROL_LOOKING) {
        if (now_ns < control->look_until_ns && states_missing(control)) {
            ring_bells(control);
            *ret_next_ns = control->look_until_ns;
            return 0;
        }
        int rc = start_serving(control, report);
        if (rc < 0) {
            return rc;
        }
    }
    control->groups.env.now_ns = now_ns;
    control->groups.env.now_ms = now->wall_ms;
    bool more = take_frames(control, now_ns);
    next_ns = MILL_MIN(next_ns, mill_journal_step(control->journal, now_ns));
    next_ns = MILL_MIN(next_ns, mill_groups_step(&control->groups, now));
    next_ns = MILL_MIN(next_ns, mill_txns_step(&control->txns, now));
    /* What they appended now leaves in the same turn. */
    next_ns = MILL_MIN(next_ns, mill_journal_step(control->journal, now_ns));
    take_answered(control);
    next_ns = MILL_MIN(next_ns, answer_waiting(control, now_ns));
    give_ids(control);
    tell_grants(control);
    next_ns = MILL_MIN(next_ns, keep_made(control, now_ns));
    mill_controller_sweep(&control->controller);
    mill_map_reclaim(control->controller.writer);
    if (control->waiting_count > 0 || control->controller.topics.deleting_count > 0) {
        if (control->dataplane != 0 && now_ns >= control->again_ns) {
            /* An event may have been lost with the process that wrote it. */
            control->again_ns = now_ns + AGAIN_NS;
            ask_states(control);
        }
    } else {
        control->again_ns = now_ns + AGAIN_NS;
    }
    if (control->controller.unpublished) {
        next_ns = MILL_MIN(next_ns, now_ns + AGAIN_NS);
    }
    ring_bells(control);
    publish(control);
    *ret_next_ns = more ? now_ns : next_ns;
    return 0;
}
