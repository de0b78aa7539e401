/* SPDX-License-Identifier: Apache-2.0 */
/* A core's making, its turn, its deadlines and its counters. The turn's parts are in the other
 * files of this folder; every one of them does bounded work. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SWEEP_NS = 1000000000,
    STOP_ANSWER_NS = 500000000, /* how long a stop waits for answers before it closes connections */
};

static void log_watch_fired(void *context, struct mill_log_watch *watch)
{
    mill_op_watch_fired(context, watch);
}

static const struct mill_log_events log_events = {
    .state = mill_owner_state,
    .watch = log_watch_fired,
};

/* --- making ---------------------------------------------------------------------------------- */

static uint32_t *free_list_new(uint32_t count)
{
    uint32_t *list = calloc(count, sizeof(list[0]));
    for (uint32_t i = 0; list && i < count; i++) {
        list[i] = count - 1 - i; /* low indices first: what is not used stays untouched */
    }
    return list;
}

static struct mill_fetch_session_limits fetch_session_limits(const struct mill_core_limits *limits,
                                                             uint32_t index, uint32_t count,
                                                             uint64_t incarnation)
{
    return (struct mill_fetch_session_limits){
        .fetch_sessions_max = limits->fetch_sessions_max,
        .parts_max = limits->fetch_session_parts_max,
        .fetch_session_parts_max = MILL_REQUEST_OPS_MAX,
        .topics_max = limits->fetch_session_topics_max,
        .core = index,
        .cores_count = count,
        .key = {incarnation, index},
    };
}

static int pools_create(struct mill_core *core)
{
    const struct mill_core_limits *limits = &core->limits;
    uint32_t conns = limits->connections_max;
    uint32_t ops = (uint32_t)1 << (32 - __builtin_clz(MILL_MAX(limits->peer_ops_max, 2u) - 1));
    core->requests_count = conns + MILL_REQUESTS_ORPHANED_MAX;
    core->conns = calloc(conns, sizeof(core->conns[0]));
    core->conns_free = free_list_new(conns);
    core->conns_free_count = conns;
    core->requests = calloc(core->requests_count, sizeof(core->requests[0]));
    core->requests_free = free_list_new(core->requests_count);
    core->requests_free_count = core->requests_count;
    core->peer_ops = calloc(ops, sizeof(core->peer_ops[0]));
    core->peer_ops_free = free_list_new(ops);
    core->peer_ops_free_count = ops;
    core->peer_ops_buckets = calloc(ops, sizeof(core->peer_ops_buckets[0]));
    core->peer_ops_mask = ops - 1;
    core->limits.peer_ops_max = ops;
    const struct mill_fetch_session_limits sessions =
        fetch_session_limits(limits, core->index, core->count, core->incarnation);
    if (mill_fetch_sessions_create(&sessions, &core->fetch_sessions) < 0) {
        return -ENOMEM;
    }
    core->answer_bytes = malloc(MILL_ANSWER_BYTES);
    core->holes = calloc(MILL_WIRE_HOLES_MAX, sizeof(core->holes[0]));
    core->read_result = calloc(1, sizeof(*core->read_result));
    core->seen = calloc(mill_map_slots_max(core->map), sizeof(core->seen[0]));
    core->retired_next = calloc(mill_arena_units(core->arena), sizeof(core->retired_next[0]));
    if (!core->conns || !core->conns_free || !core->requests || !core->requests_free ||
        !core->peer_ops || !core->peer_ops_free || !core->peer_ops_buckets || !core->answer_bytes ||
        !core->holes || !core->read_result || !core->seen || !core->retired_next) {
        return -ENOMEM;
    }
    int r = mill_heap_init(&core->mutes, conns);
    return r < 0 ? r : mill_heap_init(&core->heap, core->requests_count);
}

static int rings_attach(struct mill_core *core)
{
    struct mill_ipc_core *own = core->ipc_core;
    uint64_t limit = core->ipc->size_bytes;
    int r = mill_ring_attach_producer(&core->frames_out, mill_ipc_at(core->ipc, own->frames_out),
                                      limit);
    if (r == 0) {
        r = mill_ring_attach_consumer(&core->frames_in, mill_ipc_at(core->ipc, own->frames_in),
                                      limit);
    }
    if (r == 0) {
        r = mill_ring_attach_producer(&core->events, mill_ipc_at(core->ipc, own->events), limit);
    }
    if (r == 0) {
        r = mill_ring_attach_consumer(&core->commands, mill_ipc_at(core->ipc, own->commands),
                                      limit);
    }
    return r;
}

/* The table of all cores, or one of its own for a core that is alone. */
static int quotas_attach(struct mill_core *core, const struct mill_core_config *config)
{
    core->ticks_ns = config->ticks_ns;
    core->ticks_context = config->ticks_context;
    core->quotas = config->quotas;
    if (!core->quotas) {
        core->quotas_own = aligned_alloc(64, sizeof(*core->quotas_own));
        core->quotas = core->quotas_own;
    }
    if (core->quotas_own) {
        memset(core->quotas_own, 0, sizeof(*core->quotas_own));
    }
    return core->quotas ? 0 : -ENOMEM;
}

/* The same of addresses. Alone, a core is a test's or a measurement's: its key need not be secret.
 */
static int addresses_attach(struct mill_core *core, const struct mill_core_config *config)
{
    core->addresses = config->addresses;
#ifdef MILL_MUTANT_CORE_ADDRESSES_ALONE
    core->addresses = NULL;
#endif
    if (!core->addresses) {
        const uint64_t key[2] = {config->incarnation, config->index};
        core->addresses_own = mill_address_table_create(config->limits.connections_max, key);
        core->addresses = core->addresses_own;
    }
    return core->addresses ? 0 : -ENOMEM;
}

/* What all cores share. */
static int tables_attach(struct mill_core *core, const struct mill_core_config *config)
{
    int r = quotas_attach(core, config);
    return r < 0 ? r : addresses_attach(core, config);
}

int mill_core_create(const struct mill_core_config *config, struct mill_core **ret_core)
{
    struct mill_core *core = calloc(1, sizeof(*core));
    if (!core) {
        return -ENOMEM;
    }
    MILL_ASSERT_LT(config->index, config->ipc->cores_count);
    core->index = config->index;
    core->count = config->count;
    core->node_id = config->node_id;
    core->incarnation = config->incarnation;
    core->limits = config->limits;
    core->arena = config->arena;
    core->extents = config->extents;
    core->loans = config->loans;
    core->arena_base = mill_arena_base(config->arena);
    core->map = config->map;
    core->tuning = config->tuning;
    core->connections_all =
        config->connections_all ? config->connections_all : &core->connections_own;
    core->settings.connections_max = INT64_MAX; /* until the map tells */
    core->settings.address_connections_max = INT64_MAX;
    core->settings.connections_per_second = INT64_MAX;
    core->ipc = config->ipc;
    core->ipc_core = &config->ipc->cores[config->index];
    core->control_bell = config->control_bell;
    core->peers = config->peers;
    core->shared = config->shared;
    mill_rows_open(core);
    core->listeners_count = config->listeners_count;
    for (uint32_t i = 0; i < config->listeners_count; i++) {
        strncpy(core->listeners[i], config->listeners[i], MILL_LISTENER_NAME_BYTES - 1);
    }
    core->map_again = true;
    core->report_all = true;
    mill_list_init(&core->ready);
    mill_list_init(&core->held);
    mill_list_init(&core->retry);
    mill_list_init(&core->asked);
    mill_list_init(&core->fired);
    mill_list_init(&core->forwarded);
    mill_list_init(&core->conns_all);
    struct mill_log_config log = config->log;
    log.extents = config->extents;
    log.arena = config->arena;
    log.loans = config->loans;
    log.events = &log_events;
    log.context = core;
    int r = pools_create(core);
    if (r == 0) {
        r = tables_attach(core, config);
    }
    if (r == 0) {
        r = rings_attach(core);
    }
    if (r == 0) {
        r = mill_log_create(&log, &core->log);
    }
    struct mill_control_stream *control = NULL;
    if (r == 0) {
        r = mill_control_stream_create(core->ipc, core->ipc_core, core->incarnation,
                                       &core->control_bell, core->loans, core->arena_base,
                                       &mill_core_events, core, &control);
    }
    if (r < 0) {
        mill_core_destroy(core);
        return r;
    }
    mill_core_add_maker(core, mill_control_stream_maker(control), NULL, MILL_LISTENER_CONTROL);
    *ret_core = core;
    return 0;
}

void mill_core_destroy(struct mill_core *core)
{
    if (!core) {
        return;
    }
    for (uint32_t i = 0; i < core->makers_count; i++) {
        core->makers[i]->ops->destroy(core->makers[i]);
    }
    mill_log_destroy(core->log);
    mill_heap_fini(&core->heap);
    mill_heap_fini(&core->mutes);
    free(core->quotas_own);
    mill_address_table_destroy(core->addresses_own);
    free(core->conns);
    free(core->conns_free);
    free(core->requests);
    free(core->requests_free);
    free(core->peer_ops);
    free(core->peer_ops_free);
    free(core->peer_ops_buckets);
    free(core->answer_bytes);
    free(core->holes);
    free(core->read_result);
    free(core->seen);
    free(core->retired_next);
    mill_fetch_sessions_destroy(core->fetch_sessions);
    free(core);
}

uint64_t mill_core_memory_bytes(const struct mill_core_limits *limits)
{
    uint64_t requests = limits->connections_max + MILL_REQUESTS_ORPHANED_MAX;
    return limits->connections_max * (sizeof(struct mill_conn) + sizeof(struct mill_heap_item *)) +
           requests * (sizeof(struct mill_request) + sizeof(void *)) +
           limits->peer_ops_max * sizeof(struct mill_op) + MILL_ANSWER_BYTES +
           mill_control_stream_bytes();
}

uint64_t mill_core_fetch_session_bytes(const struct mill_core_limits *limits)
{
    const struct mill_fetch_session_limits sessions = fetch_session_limits(limits, 0, 1, 0);
    return mill_fetch_sessions_bytes(&sessions);
}

void mill_core_add_maker(struct mill_core *core, struct mill_stream_maker *maker,
                         struct mill_net *net, uint16_t listener)
{
    MILL_ASSERT_LT(core->makers_count, (uint32_t)MILL_CORE_MAKERS_MAX);
    core->maker_listener[core->makers_count] = listener;
    core->nets[core->makers_count] = net;
    core->makers[core->makers_count++] = maker;
}

/* --- the turn -------------------------------------------------------------------------------- */

static uint32_t deadlines_run(struct mill_core *core)
{
    uint32_t work = 0;
    struct mill_heap_item *item;
    while (work < MILL_CONNS_PER_TURN && (item = mill_heap_first(&core->heap)) != NULL &&
           item->at_ns <= core->now.mono_ns) {
        mill_request_expired(core, MILL_CONTAINER_OF(item, struct mill_request, deadline));
        work++;
    }
    return work;
}

static uint32_t stop_run(struct mill_core *core)
{
    if (!core->stopping) {
        return 0;
    }
    bool late = core->now.mono_ns - core->stop_ns > STOP_ANSWER_NS;
    struct mill_node *next;
    for (struct mill_node *node = core->conns_all.next; node != &core->conns_all; node = next) {
        next = node->next;
        struct mill_conn *conn = MILL_CONTAINER_OF(node, struct mill_conn, all);
        if (late) {
            mill_conn_abort(core, conn);
        } else if (conn->request && conn->request->phase == MILL_PHASE_WATCHES) {
            mill_request_expired(core, conn->request);
        } else if (!conn->request && !conn->closing) {
            mill_conn_ready(core, conn);
        }
    }
    return 0;
}

uint32_t mill_core_step(struct mill_core *core, struct mill_now now)
{
    uint32_t work = 0;
    core->now = now;
    core->words.turns++;
    mill_map_turn(core->map, core->index);
    for (uint32_t i = 0; i < core->makers_count; i++) {
        work += core->makers[i]->ops->step(core->makers[i], now.mono_ns);
    }
    work += mill_log_step(core->log, now);
    work += mill_owner_run(core);
    work += mill_op_run_retries(core);
    work += mill_request_run_held(core);
    work += deadlines_run(core);
    if (MILL_UNLIKELY(core->mutes.count > 0)) {
        work += mill_quota_run(core);
    }
    work += mill_conn_run(core);
    work += mill_peer_run(core);
    work += mill_forward_run(core);
    work += stop_run(core);
    if (now.mono_ns - core->sweep_ns >= SWEEP_NS) {
        core->sweep_ns = now.mono_ns;
        mill_conn_sweep(core);
    }
    work += mill_scratch_sweep(core);
    return work;
}

static bool pending(const struct mill_core *core)
{
    return !mill_list_empty(&core->ready) || !mill_list_empty(&core->fired) || core->map_walking ||
           core->map_again;
}

/* Something waits for memory or for room in a ring, of which nobody will tell. */
static bool waiting(const struct mill_core *core)
{
    return !mill_list_empty(&core->retry) || !mill_list_empty(&core->held) ||
           !mill_list_empty(&core->asked) || core->stopping ||
           (core->count > 1 && core->loans->returns_count > 0);
}

uint64_t mill_core_deadline(const struct mill_core *core)
{
    enum {
        RETRY_NS = 1000000,
        SLOW_RETRY_NS = 20000000, /* readers' loans come back, control reads its events */
    };
    uint64_t at = MILL_NEVER;
    if (pending(core)) {
        return core->now.mono_ns;
    }
    if (waiting(core)) {
        at = core->now.mono_ns + RETRY_NS;
    } else if (core->retired_count > 0 || core->report_all) {
        at = core->now.mono_ns + SLOW_RETRY_NS;
    }
    for (uint32_t i = 0; i < core->makers_count; i++) {
        at = MILL_MIN(at, core->makers[i]->ops->deadline(core->makers[i]));
    }
    at = MILL_MIN(at, mill_log_deadline(core->log));
    const struct mill_heap_item *first = mill_heap_first(&core->heap);
    if (first) {
        at = MILL_MIN(at, first->at_ns);
    }
    first = mill_heap_first(&core->mutes);
    if (first) {
        at = MILL_MIN(at, first->at_ns);
    }
    if (!mill_list_empty(&core->conns_all)) {
        at = MILL_MIN(at, core->sweep_ns + SWEEP_NS);
    }
    return at;
}

bool mill_core_ready(const struct mill_core *core)
{
    return core->walked && core->opening == 0 && !core->map_walking;
}

void mill_core_stop(struct mill_core *core)
{
    if (!core->stopping) {
        core->stopping = true;
        core->stop_ns = core->now.mono_ns;
        mill_log_flush_all(core->log);
    }
}

bool mill_core_stopped(const struct mill_core *core)
{
#ifndef MILL_MUTANT_CORE_STOP_ASKED_ALWAYS
    if (!core->stopping) {
        return false; /* asked each turn: the log looks through its partitions to answer */
    }
#endif
    bool written = mill_log_ended(core->log);
#ifdef MILL_MUTANT_CORE_STOP_UNWRITTEN
    written = true;
#endif
    /* Requests without a connection wait for another core, which may have stopped already: they
     * hold nothing that another start would miss. */
    return core->stopping && mill_list_empty(&core->conns_all) && written &&
           core->requests_free_count + core->requests_orphaned == core->requests_count;
}

/* --- counters -------------------------------------------------------------------------------- */

static void words_gather(struct mill_core *core)
{
    const struct mill_log_stats *log = mill_log_stats(core->log);
    const struct mill_fetch_session_stats *sessions =
        mill_fetch_sessions_stats(core->fetch_sessions);
    struct mill_core_words *words = &core->words;
    words->fetch_sessions = sessions->sessions;
    words->fetch_session_partitions = sessions->parts;
    words->fetch_sessions_evicted = sessions->evictions;
    words->fetch_sessions_refused = sessions->refused;
    words->bytes_staged = core->staged_now;
    words->loaned_bytes = core->loans->loaned_bytes;
    words->arena_used_bytes = mill_extents_used_bytes(core->extents);
    words->arena_full = mill_extents_full_count(core->extents);
    words->dirty_bytes = log->dirty_bytes;
    words->dirty_full = log->dirty_full;
    words->batches_in = log->batches_in;
    words->records_in = log->records_in;
    words->producers = log->producers;
    words->batches_refused = log->batches_refused;
    words->batches_inspected = log->batches_inspected;
    words->batches_recompressed = log->batches_recompressed;
    words->parked_full = log->parked_full;
    words->cold_reads = log->cold_reads;
    words->compactions = log->clean.runs;
    words->compactions_stopped = log->clean.stopped;
    words->compactions_failed = log->clean.failed;
    words->compaction_bytes_in = log->clean.bytes_read;
    words->compaction_bytes_out = log->clean.bytes_written;
    words->compaction_records_removed = log->clean.records_removed;
    words->compaction_last_ns = log->clean.last_ns;
    words->compaction_last_bytes_in = log->clean.last_bytes_in;
    words->compaction_last_bytes_out = log->clean.last_bytes_out;
    words->compaction_last_keys = log->clean.last_keys;
    words->compaction_last_keys_max = log->clean.last_keys_max;
    words->compaction_dirty_ppm = log->clean.dirty_ppm;
    words->cold_reads_ahead = log->cold_reads_ahead;
    words->cold_bytes = log->cold_bytes;
    words->cold_full = log->cold_full;
    words->wakeups_sent = core->control_bell.rings;
    for (uint32_t i = 0; i < core->count && core->peers; i++) {
        words->wakeups_sent += i == core->index ? 0 : core->peers[i].bell.rings;
    }
}

static void net_add(struct mill_shared_net *shared, const struct mill_net *net, bool first)
{
    const struct mill_net_counters *counters = mill_net_counters(net);
#define MILL_NET_PUBLISH(name, help)                                                               \
    mill_counter_set(&shared->name, counters->name + (first ? 0 : mill_counter_get(&shared->name)));
    MILL_NET_COUNTERS(MILL_NET_PUBLISH)
#undef MILL_NET_PUBLISH
}

void mill_core_publish(struct mill_core *core, struct mill_now now)
{
    struct mill_shared_core *shared = core->shared;
    bool first_net = true;
    mill_rows_publish(core, now);
    words_gather(core);
    core->words.misdirected = 0;
    for (uint32_t i = 0; i < core->makers_count; i++) {
        const struct mill_stream_stats *stats = &core->makers[i]->stats;
        struct mill_listener_words *words = &core->listener_words[core->maker_listener[i]];
        words->bytes_inlined = stats->bytes_inlined;
        words->bytes_copied_out = stats->bytes_copied_out;
        if (core->nets[i]) {
            net_add(&shared->net, core->nets[i], first_net);
            core->words.misdirected += mill_net_counters(core->nets[i])->misdirected;
            first_net = false;
        }
    }
#define MILL_CORE_PUBLISH(name, help) mill_counter_set(&shared->name, core->words.name);
    MILL_CORE_COUNTERS(MILL_CORE_PUBLISH)
#undef MILL_CORE_PUBLISH
    for (uint32_t i = 0; i < core->listeners_count; i++) {
        struct mill_shared_listener *to = &shared->listeners[i];
        const struct mill_listener_words *from = &core->listener_words[i];
#define MILL_LISTENER_PUBLISH(name, help) mill_counter_set(&to->name, from->name);
        MILL_LISTENER_COUNTERS(MILL_LISTENER_PUBLISH)
#undef MILL_LISTENER_PUBLISH
    }
}

void mill_core_time(struct mill_core *core, uint64_t busy_ns, uint64_t asleep_ns)
{
    core->words.busy_ns += busy_ns;
    core->words.asleep_ns += asleep_ns;
}

void mill_core_stalled(struct mill_core *core, uint64_t stall_ns)
{
    core->words.stalls++;
    core->words.stalled_ns += stall_ns;
    core->words.stall_max_ns = MILL_MAX(core->words.stall_max_ns, stall_ns);
}

struct mill_map *mill_core_map(struct mill_core *core)
{
    return core->map;
}

uint32_t mill_core_index(const struct mill_core *core)
{
    return core->index;
}

struct mill_log *mill_core_log(struct mill_core *core)
{
    return core->log;
}
