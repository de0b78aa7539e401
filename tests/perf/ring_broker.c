/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending of a data plane over a port; see ring_broker.h. */
#include "tests/perf/ring_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    NODE_ID = 1,
    ARENA_BYTES = 128 << 20, /* little, so that old batches leave it and are read from the files */
    MAP_BYTES = 4 << 20,
    TOPICS_MAX = 16,
    PARTITIONS_MAX = 64,
    PRODUCERS_MAX = 256,
    EXTENT_BYTES_MAX = 2 << 20,
    SCRATCH_BYTES = 1 << 20,
    STORE_RING_BYTES = 1 << 20,
    CONNECTIONS_MAX = 64,
    RX_WINDOW_BYTES = 2 << 20,
    READY_TRIES = 1000,
    READY_STEP_NS = 10000000,
};

static const char cluster_id[] = "AAAAAAAAAAAAAAAAAAAAAQ";

static void *zeroed(uint64_t size_bytes)
{
    size_t size = mill_round_up(size_bytes, 4096);
    void *memory = aligned_alloc(4096, size);
    MILL_ASSERT(memory != NULL);
    memset(memory, 0, size);
    return memory;
}

/* --- what a supervisor and control would make
 * ------------------------------------------------------ */

static void cluster_put(struct ring_broker *broker)
{
    struct mill_map_cluster *cluster = zeroed(sizeof(*cluster) + sizeof(struct mill_map_broker));
    snprintf(cluster->cluster_id, sizeof(cluster->cluster_id), "%s", cluster_id);
    cluster->controller_id = NODE_ID;
    cluster->brokers_count = 1;
    cluster->settings.connections_max = INT64_MAX;
    cluster->settings.address_connections_max = INT64_MAX;
    cluster->settings.connections_per_second = INT64_MAX;
    cluster->brokers[0].node_id = NODE_ID;
    cluster->brokers[0].endpoints_count = 1;
    snprintf(cluster->brokers[0].endpoints[0].listener, MILL_LISTENER_NAME_BYTES, "NIC");
    snprintf(cluster->brokers[0].endpoints[0].host, MILL_HOST_BYTES, "%s", RING_BROKER_HOST);
    cluster->brokers[0].endpoints[0].port = RING_BROKER_PORT;
    ring_need(mill_map_put_cluster(broker->writer, cluster), "cluster record", NULL);
    free(cluster);
}

static void topic_put(struct ring_broker *broker, const char *name, uint32_t partitions)
{
    struct mill_map_topic *topic =
        zeroed(sizeof(*topic) + partitions * sizeof(topic->partitions[0]));
    topic->id.b[15] = 1;
    topic->partitions_count = partitions;
    topic->name_length = (uint16_t)strlen(name);
    memcpy(topic->name, name, strlen(name));
    topic->settings = (struct mill_topic_settings){
        .max_message_bytes = 1048588,
        .min_insync_replicas = 1,
        .timestamp_before_max_ms = INT64_MAX,
        .timestamp_after_max_ms = INT64_MAX,
        .flush_messages = INT64_MAX,
        .flush_ms = INT64_MAX,
        .segment_bytes = 1 << 30,
        .segment_ms = 604800000,
        .index_interval_bytes = 4096,
        .segment_index_bytes = 10485760,
        .retention_ms = -1,
        .retention_bytes = -1,
        .delete_old = 1,
        .compression = 255,
    };
    for (uint32_t i = 0; i < partitions; i++) {
        topic->partitions[i].leader = NODE_ID;
        topic->partitions[i].replicas_count = 1;
        topic->partitions[i].isr_count = 1;
        topic->partitions[i].replicas[0] = NODE_ID;
        topic->partitions[i].isr_bits = 1;
    }
    ring_need(mill_map_put_topic(broker->writer, topic), "topic", NULL);
    free(topic);
}

static void segments_make(struct ring_broker *broker)
{
    struct mill_report report = {""};
    struct mill_map_limits limits = {.size_bytes = MAP_BYTES, .topics_max = TOPICS_MAX};
    broker->ipc = zeroed(mill_ipc_bytes(1, SCRATCH_BYTES));
    mill_ipc_format(broker->ipc, 1, SCRATCH_BYTES);
    broker->counters = zeroed(mill_counters_bytes(1));
    mill_counters_format(broker->counters, 1);
    broker->map_memory = zeroed(MAP_BYTES);
    mill_map_format(broker->map_memory, &limits);
    ring_need(mill_map_open(broker->map_memory, MAP_BYTES, &broker->map), "map", NULL);
    ring_need(mill_map_writer_open(broker->map, &broker->writer, &report), "map", &report);
}

/* --- memory and files
 * ------------------------------------------------------------------------------ */

static void say(void *context, int level, const char *id, const char *text)
{
    MILL_UNUSED(context);
    MILL_UNUSED(level);
    fprintf(stderr, "%s %s\n", id, text);
}

static void arena_make(struct ring_broker *broker)
{
    struct mill_report report = {""};
    struct mill_takeup_result result;
    struct mill_arena_options options = {
        .dir = broker->shm_dir,
        .size_bytes = ARENA_BYTES,
        .nodes = 1,
        .cores = 1,
        .partitions_max = PARTITIONS_MAX,
        .extent_bytes_max = EXTENT_BYTES_MAX,
    };
    bool taken = false;
    ring_need(mill_arena_open(&options, &broker->arena, &taken, &report), "arena", &report);
    struct mill_log_dirs_options dirs = {
        .files = &mill_file_calls_posix,
        .paths = broker->log_dirs,
        .count = 1,
        .node_id = NODE_ID,
        .cluster_id = cluster_id,
        .say = say,
    };
    ring_need(mill_log_dirs_open(&dirs, &broker->dirs, &report), "log directory", &report);
    ring_need(mill_store_takeup(broker->dirs, broker->arena, taken, &result, &report), "take-up",
              &report);
    uint32_t units = mill_arena_units(broker->arena);
    ring_need(mill_loans_init(&broker->loans, units, units), "loans", NULL);
    ring_need(mill_extents_create(broker->arena, 0, -1, &broker->extents), "extents", NULL);
    broker->loans_of_queues[0] = &broker->loans;
}

static void dirs_make(struct ring_broker *broker)
{
    const char *tmp = getenv("TMPDIR");
    ring_memory_dir(broker->shm_dir);
    snprintf(broker->log_dir, sizeof(broker->log_dir), "%.128s/millrace-ring-%d-XXXXXX",
             tmp && *tmp ? tmp : "/var/tmp", (int)getpid());
    MILL_ASSERT(mkdtemp(broker->log_dir) != NULL);
    broker->log_dirs[0] = broker->log_dir;
}

/* --- core, store, stack
 * ---------------------------------------------------------------------------- */

/* Real eventfds, so that a bell that should not be rung is seen when it is. */
static struct mill_bell bell_of(struct mill_bell_shared *shared)
{
    struct mill_bell bell = {.shared = shared, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    MILL_ASSERT_LE(0, bell.fd);
    return bell;
}

static void store_make(struct ring_broker *broker, struct mill_log_config *log)
{
    struct mill_report report = {""};
    uint64_t ring = mill_round_up(mill_ring_bytes(STORE_RING_BYTES), 128);
    uint8_t *memory = zeroed(ring * 2 + sizeof(struct mill_bell_shared));
    struct mill_ring_shared *to = mill_ring_format(memory, STORE_RING_BYTES);
    struct mill_ring_shared *from = mill_ring_format(memory + ring, STORE_RING_BYTES);
    struct mill_store_config options = {
        .dirs = broker->dirs,
        .arena = broker->arena,
        .core_bell = broker->core.bell,
        .open_files_max = 64,
        .producers_max = PRODUCERS_MAX,
        .producer_expiration_ms = 86400000,
        .checkpoint_interval_ms = 60000,
        .retention_check_ms = 300000,
    };
    broker->store_memory = memory;
    broker->store.busy = true;
    broker->store.bell = bell_of((void *)(memory + ring * 2));
    log->store_bell = broker->store.bell;
    ring_need(mill_ring_attach_producer(&log->store_out, to, ring), "ring", NULL);
    ring_need(mill_ring_attach_consumer(&log->store_in, from, ring), "ring", NULL);
    ring_need(mill_ring_attach_consumer(&options.in, to, ring), "ring", NULL);
    ring_need(mill_ring_attach_producer(&options.out, from, ring), "ring", NULL);
    ring_need(mill_store_create(&options, &broker->store.store, &report), "store", &report);
}

static void core_make(struct ring_broker *broker)
{
    broker->control_bell = bell_of(&broker->ipc->control_bell);
    struct mill_core_config options = {
        .index = 0,
        .count = 1,
        .node_id = NODE_ID,
        .incarnation = 1,
        .limits =
            {
                .connections_max = CONNECTIONS_MAX,
                .peer_ops_max = 2,
                .request_bytes_max = 8 << 20,
                .pinned_bytes_max = RX_WINDOW_BYTES / 2 + RX_WINDOW_BYTES / 8,
                .pinned_total_bytes = 8 << 20,
                .staged_bytes_max = ARENA_BYTES / 4,
                .ops_bytes_max = ARENA_BYTES / 8,
                .producers_bytes_max = ARENA_BYTES / 16,
                .reader_bytes_max = 64 << 20,
                .stall_timeout_ns = 30 * MILL_NS_PER_S,
                .control_timeout_ns = MILL_NS_PER_S,
                .control_frame_bytes_max = 1 << 20,
                .fetch_bytes_max = 4 << 20,
            },
        .arena = broker->arena,
        .extents = broker->extents,
        .loans = &broker->loans,
        .map = broker->map,
        .ipc = broker->ipc,
        .control_bell = broker->control_bell,
        .shared = &broker->counters->cores[0],
        .listeners_count = 2,
        .listeners = {"NIC", "LOCAL"},
    };
    broker->core.shared = options.shared;
    broker->core.bell = bell_of(&broker->ipc->cores[0].bell);
    broker->core.busy = true;
    options.log.limits = (struct mill_log_limits){
        .partitions_max = PARTITIONS_MAX,
        .producers_max = PRODUCERS_MAX,
        .transactions_max = 64,
        .aborted_max = 16,
        .watches_max = 2 * CONNECTIONS_MAX,
        .dirty_max_bytes = ARENA_BYTES / 4,
        .cold_max_bytes = 8 << 20,
        .producer_expiration_ms = 86400000,
    };
    store_make(broker, &options.log);
    ring_need(mill_core_create(&options, &broker->core.core), "core", NULL);
}

static void ksock_make(struct ring_broker *broker, enum mill_ksock_engine engine)
{
    struct mill_report report = {""};
    struct mill_ksock_config config = {.engine = engine, .connections_max = CONNECTIONS_MAX};
    mill_ksock_config_defaults(&config);
    ring_need(mill_ksock_create(&config, &broker->loans, mill_arena_base(broker->arena),
                                &mill_core_events, broker->core.core, &broker->core.ksock, &report),
              "kernel sockets", &report);
    mill_core_add_maker(broker->core.core, mill_ksock_maker(broker->core.ksock), NULL, 1);
    ring_need(mill_ksock_watch(broker->core.ksock, broker->core.bell.fd), "watch", NULL);
}

static void net_make(struct ring_broker *broker, const char *device)
{
    struct mill_report report = {""};
    struct mill_port_info info;
    uint8_t address[16];
    broker->port = ring_port_open(device, NODE_ID, broker->arena, broker->loans_of_queues);
    mill_port_info(broker->port, &info);
    struct mill_net_config config = {
        .address = RING_BROKER_ADDRESS,
        .prefix_bits = RING_PREFIX_BITS,
        .secret = {1, 2},
        .random_seed = 3,
        .connections_max = CONNECTIONS_MAX,
        .rx_window_max = RX_WINDOW_BYTES,
        .rx_budget_bytes = info.rx_pool_bytes / 2,
    };
    mill_net_config_defaults(&config);
    ring_need(mill_net_create(&config, mill_port_link(broker->port, 0), &broker->loans,
                              mill_arena_base(broker->arena), &mill_core_events, broker->core.core,
                              &broker->net, &report),
              "net", &report);
    struct mill_stream_maker *maker = mill_net_maker(broker->net);
    mill_core_add_maker(broker->core.core, maker, broker->net, 0);
    broker->core.ports[0] = broker->port;
    broker->core.queues[0] = 0;
    broker->core.ports_count = 1;
    ring_address(RING_BROKER_ADDRESS, address);
    ring_need(maker->ops->listen(maker, address, RING_BROKER_PORT, 0, &report), "listen", &report);
}

void ring_broker_open(struct ring_broker *broker, const char *device, const char *topic,
                      uint32_t partitions, enum mill_ksock_engine engine)
{
    *broker = (struct ring_broker){0};
    dirs_make(broker);
    segments_make(broker);
    cluster_put(broker);
    topic_put(broker, topic, partitions);
    arena_make(broker);
    core_make(broker);
    ksock_make(broker, engine);
    net_make(broker, device);
}

void ring_broker_run(struct ring_broker *broker, uint32_t cpu)
{
    const struct timespec step = {.tv_nsec = READY_STEP_NS};
    broker->core.cpu = cpu;
    ring_need(mill_store_thread_start(&broker->store), "store's thread", NULL);
    ring_need(mill_core_thread_start(&broker->core), "core's thread", NULL);
    for (int tries = 0; !atomic_load_explicit(&broker->core.ready, memory_order_acquire); tries++) {
        MILL_ASSERT_LT(tries, (int)READY_TRIES);
        nanosleep(&step, NULL);
    }
}

/* --- the end
 * --------------------------------------------------------------------------------------- */

void ring_broker_close(struct ring_broker *broker)
{
    mill_core_thread_stop(&broker->core);
    mill_core_thread_join(&broker->core);
    bool written = mill_log_idle(mill_core_log(broker->core.core));
    bool whole = mill_store_thread_stop(&broker->store);
    ring_need(mill_log_dirs_close(broker->dirs, whole), "log directory", NULL);
    mill_port_close(broker->port);
    mill_core_destroy(broker->core.core);
    mill_extents_destroy(broker->extents);
    mill_loans_fini(&broker->loans);
    mill_arena_close(broker->arena, true);
    mill_map_writer_close(broker->writer);
    mill_map_close(broker->map);
    close(broker->core.bell.fd);
    close(broker->store.bell.fd);
    close(broker->control_bell.fd);
    free(broker->store_memory);
    free(broker->ipc);
    free(broker->counters);
    free(broker->map_memory);
    ring_remove_dir(broker->shm_dir);
    ring_remove_dir(broker->log_dir);
    MILL_ASSERT(written); /* a clean stop leaves nothing dirty */
}
