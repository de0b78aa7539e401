/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the data plane from its configuration, and the table of everything taken at start. */
#include "dataplane/core/plane_parts.h"

#include "base/log_line.h"
#include "dataplane/core/core_types.h"
#include "dataplane/store/store.h"

struct mill_ksock_config mill_plane_ksock_limits(const struct mill_plane *plane)
{
    struct mill_ksock_config limits = {
        .reuse_port = plane->cores_count > 1 && mill_config_core_endpoints(plane->config) == 1,
        .rx_window_max = MILL_PLANE_RX_WINDOW_BYTES,
        .user_timeout_ms =
            (uint32_t)mill_config_int(plane->config, MILL_KEY_CONNECTION_STALL_TIMEOUT_MS),
    };
    mill_ksock_config_defaults(&limits);
    return limits;
}

struct mill_net_config mill_plane_net_limits(const struct mill_plane *plane, uint32_t port_index)
{
    struct mill_port_info info;
    mill_port_info(plane->ports[port_index], &info);
    struct mill_net_config limits = {
        .rx_window_max = MILL_PLANE_RX_WINDOW_BYTES,
        .rx_budget_bytes = info.rx_pool_bytes / 2,
        .user_timeout_ms =
            (uint32_t)mill_config_int(plane->config, MILL_KEY_CONNECTION_STALL_TIMEOUT_MS),
    };
    mill_net_config_defaults(&limits);
    return limits;
}

static uint64_t ns_of(const struct mill_plane *plane, enum mill_key key)
{
    return (uint64_t)MILL_MAX(mill_config_int(plane->config, key), (int64_t)0) * MILL_NS_PER_MS;
}

struct mill_core_limits mill_plane_core_limits(const struct mill_plane *plane)
{
    const struct mill_config *config = plane->config;
    struct mill_ksock_config ksock = mill_plane_ksock_limits(plane);
    uint64_t arena_bytes = mill_arena_size_bytes(plane->arena) / plane->cores_count;
    uint64_t slots =
        (uint64_t)mill_config_int(config, MILL_KEY_MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS);
    uint32_t fetch_sessions = (uint32_t)MILL_MIN(
        (slots + plane->cores_count - 1) / plane->cores_count, (uint64_t)MILL_FETCH_SESSIONS_MAX);
    return (struct mill_core_limits){
        .connections_max = ksock.connections_max,
        .peer_ops_max = plane->cores_count > 1 ? MILL_PLANE_PEER_OPS : 2,
        .request_bytes_max = (uint32_t)mill_config_int(config, MILL_KEY_SOCKET_REQUEST_MAX_BYTES),
        .pinned_bytes_max = MILL_PLANE_RX_WINDOW_BYTES / 2 + MILL_PLANE_RX_WINDOW_BYTES / 8,
        .pinned_total_bytes = (uint64_t)ksock.rx_buffers * ksock.rx_buffer_bytes / 2,
        .staged_bytes_max = arena_bytes / 4,
        .ops_bytes_max = MILL_MAX(arena_bytes / 8, (uint64_t)MILL_SCRATCH_BYTES_MAX),
        .producers_bytes_max = MILL_MAX(arena_bytes / 16, (uint64_t)MILL_SCRATCH_BYTES_MAX),
        .reader_bytes_max = (uint64_t)mill_config_int(config, MILL_KEY_CONNECTION_PINNED_MAX_BYTES),
        .stall_timeout_ns = ns_of(plane, MILL_KEY_CONNECTION_STALL_TIMEOUT_MS),
        .idle_timeout_ns = ns_of(plane, MILL_KEY_CONNECTIONS_MAX_IDLE_MS),
        .control_timeout_ns = ns_of(plane, MILL_KEY_CONTROL_REQUEST_TIMEOUT_MS),
        .control_frame_bytes_max =
            (uint32_t)mill_config_int(config, MILL_KEY_CONTROL_FRAME_MAX_BYTES),
        .fetch_bytes_max = (uint32_t)mill_config_int(config, MILL_KEY_FETCH_MAX_BYTES),
        .fetch_sessions_max = fetch_sessions,
        .fetch_session_parts_max = fetch_sessions > 0 ? MILL_PLANE_FETCH_SESSION_PARTITIONS : 0,
        .fetch_session_topics_max = fetch_sessions > 0 ? MILL_PLANE_FETCH_SESSION_TOPICS : 0,
    };
}

struct mill_log_limits mill_plane_log_limits(const struct mill_plane *plane)
{
    const struct mill_config *config = plane->config;
    uint64_t dirty = (uint64_t)mill_config_int(config, MILL_KEY_LOG_DIRTY_MAX_MB) << 20;
    /* What is not written cannot give way: half of the memory stays for everything else. */
    uint64_t arena = mill_arena_size_bytes(plane->arena);
    dirty = MILL_MIN(dirty, arena / 2);
    uint64_t cold = (uint64_t)mill_config_int(config, MILL_KEY_LOG_COLD_MAX_MB) << 20;
    cold = MILL_MIN(cold, arena / 4);
    return (struct mill_log_limits){
        .partitions_max = MILL_PLANE_PARTITIONS,
        .producers_max = MILL_PLANE_PRODUCERS,
        .transactions_max = MILL_PLANE_TRANSACTIONS,
        .aborted_max = MILL_PLANE_ABORTED,
        .watches_max = mill_plane_ksock_limits(plane).connections_max * 2,
        .dirty_max_bytes = dirty / plane->cores_count,
        .cold_max_bytes = cold / plane->cores_count,
        /* An eighth is not given out: memory moves between cores in whole chunks only. */
        .memory_bytes = plane->cores_count > 1 ? arena / 8 * 7 / plane->cores_count : 0,
        .producer_expiration_ms = mill_config_int(config, MILL_KEY_PRODUCER_ID_EXPIRATION_MS),
    };
}

uint32_t mill_plane_connections_max(const struct mill_plane *plane)
{
    return mill_plane_core_limits(plane).connections_max * plane->cores_count;
}

/* --- the table -------------------------------------------------------------------------------- */

struct table_row {
    const char *what;
    uint64_t count;
    uint64_t bytes;   /* 0: a limit without memory of its own */
    const char *full; /* counter that rises, or what happens, when it is used up */
};

static void rows_tell(const struct table_row *rows, uint32_t count, const char *of, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++) {
        mill_log_line(MILL_LEVEL_INFO, "plane.taken",
                      "of=%s%u what=\"%s\" count=%llu bytes=%llu full=\"%s\"", of, index,
                      rows[i].what, (unsigned long long)rows[i].count,
                      (unsigned long long)rows[i].bytes, rows[i].full);
    }
}

static void core_tell(const struct mill_plane *plane, uint32_t index)
{
    struct mill_ksock_config ksock = mill_plane_ksock_limits(plane);
    struct mill_core_limits core = mill_plane_core_limits(plane);
    struct mill_log_limits log = mill_plane_log_limits(plane);
    uint32_t units = mill_arena_units(plane->arena);
    const struct table_row rows[] = {
        {"connections and requests", core.connections_max, mill_core_memory_bytes(&core),
         "listeners.refused"},
        {"kernel sockets and receive buffers", ksock.rx_buffers, mill_ksock_memory_bytes(&ksock),
         "listeners.refused"},
        {"fetch sessions", core.fetch_sessions_max, mill_core_fetch_session_bytes(&core),
         "fetch_sessions_evicted, fetch_sessions_refused"},
        {"partitions of fetch sessions", core.fetch_session_parts_max, 0, "fetch_sessions_refused"},
        {"partitions of one fetch session", MILL_REQUEST_OPS_MAX, 0, "fetch_sessions_refused"},
        {"topics of fetch sessions", core.fetch_session_topics_max, 0, "fetch_sessions_refused"},
        {"partitions", log.partitions_max, mill_log_memory_bytes(&log, units), "topic refused"},
        {"idempotent producers", log.producers_max, 0, "least recent forgotten"},
        {"open transactions", log.transactions_max, 0, "new one refused"},
        {"aborted transactions in memory", log.aborted_max, 0, "looked up in the files"},
        {"watches", log.watches_max, 0, "counted, never refused"},
        {"loan counts", units, (uint64_t)units * sizeof(uint32_t) * 4, "one per extent unit"},
        {"operations of other cores", core.peer_ops_max, 0, "asked later"},
        {"bytes not in the files", 1, log.dirty_max_bytes, "dirty_full"},
        {"bytes read back from files", 1, log.cold_max_bytes, "cold_full"},
        {"batches waiting to be looked into", MILL_LOG_PARKED_MAX, 0, "parked_full"},
        {"plain bytes of one compressed batch", 1, MILL_STORE_PLAIN_MAX_BYTES, "batch refused"},
        {"staged bytes", 1, core.staged_bytes_max, "stage_full"},
        {"bytes of lists of producers", 1, core.producers_bytes_max, "producers_full"},
        {"pinned bytes of one request", 1, core.pinned_bytes_max, "staged_total"},
        {"request bytes", 1, core.request_bytes_max, "bad_frames"},
        {"bytes held by one reader", 1, core.reader_bytes_max, "not read until acknowledged"},
        {"busy partitions shown", MILL_COUNTERS_PARTITIONS_MAX, 0, "partition_rows_full"},
        {"answer bytes of one fetch", 1, core.fetch_bytes_max, "answer is cut"},
        {"frame ring to control", 1, MILL_FRAME_RING_BYTES, "frame_ring_full"},
        {"command ring", 1, MILL_COMMAND_RING_BYTES, "told again"},
    };
    rows_tell(rows, MILL_COUNT_OF(rows), "core", index);
}

void mill_plane_table(const struct mill_plane *plane)
{
    const struct table_row rows[] = {
        {"arena units", mill_arena_units(plane->arena), mill_arena_size_bytes(plane->arena),
         "arena_full"},
        {"partition map", mill_map_slots_max(plane->map), plane->map_bytes, "topic refused"},
        {"rings with control", plane->cores_count, plane->ipc_bytes, "frame_ring_full"},
        {"counters", 1, plane->counters_bytes, "fixed"},
        {"clients with quotas", MILL_QUOTA_PART_COUNT * MILL_QUOTA_CLIENTS_MAX,
         sizeof(struct mill_quota_table), "quota_clients_full"},
        {"addresses with connections", mill_plane_connections_max(plane),
         mill_address_table_bytes(mill_plane_connections_max(plane)), "one count for the rest"},
        {"takers of a core's CPU", MILL_COUNTERS_TAKERS_MAX, 0, "table_full"},
        {"open files at most", MILL_PLANE_OPEN_FILES, 0, "least recent closed"},
    };
    rows_tell(rows, MILL_COUNT_OF(rows), "process", 0);
    for (uint32_t i = 0; i < plane->cores_count; i++) {
        core_tell(plane, i);
    }
    for (uint32_t i = 0; i < plane->ports_count; i++) {
        struct mill_port_counters counters;
        struct mill_port_info info;
        mill_port_counters(plane->ports[i], &counters);
        mill_port_info(plane->ports[i], &info);
        struct mill_net_config net = mill_plane_net_limits(plane, i);
        const struct table_row port[] = {
            {"port buffers", counters.mbufs_total, info.rx_pool_bytes, "rx_nombuf"},
            {"own TCP's connections", net.connections_max, mill_net_memory_bytes(&net),
             "listeners.refused"},
            {"half-open connections", net.half_open_max, 0, "syn_dropped"},
            {"connections in TIME-WAIT", net.time_wait_max, 0, "least recent forgotten"},
            {"connections remembered for the next process", MILL_KEPT_FLOWS_MAX,
             MILL_KEPT_FLOWS_MAX * sizeof(struct mill_kept_flow), "peers are not told"},
            {"neighbours", net.neighbours_max, 0, "least recent forgotten"},
            {"received bytes not yet taken", 1, net.rx_budget_bytes, "budget_dropped"},
            {"frames and flows between cores", plane->cores_count,
             plane->distributors[i]
                 ? mill_distributor_bytes(plane->cores_count, mill_net_flows_max(&net))
                 : 0,
             "handover_dropped, flows_unshared"},
        };
        rows_tell(port, MILL_COUNT_OF(port), "port", i);
    }
}
