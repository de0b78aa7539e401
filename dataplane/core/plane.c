/* SPDX-License-Identifier: Apache-2.0 */
/* Building and closing of the data plane; see plane.h. */
#include "dataplane/core/plane_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <numa.h>

#include "base/log_line.h"
#include "dataplane/store/helpers.h"
#include "dataplane/core/core_types.h"

enum {
    STORE_RING_BYTES = 1 << 20,
    EXTENT_BYTES_MIN = MILL_SCRATCH_BYTES_MAX,
};

/* --- attaching to the supervisor's segments -------------------------------------------------- */

/* Number of one descriptor in "name=N,name=N,...", -1 when it is not there. */
static int descriptor_of(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            return atoi(at + length + 1);
        }
    }
    return -1;
}

static int map_segment(const char *list, const char *name, void **ret_memory, uint64_t *ret_bytes,
                       struct mill_report *report)
{
    struct stat status;
    int fd = descriptor_of(list, name);
    if (fd < 0 || fstat(fd, &status) < 0) {
        return mill_fail(
            report, -EBADF,
            "%s names no descriptor for \"%s\": millraced is started by millrace start",
            MILL_FDS_VARIABLE, name);
    }
    void *memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) {
        return mill_fail(report, -errno, "segment \"%s\" cannot be mapped: %s", name,
                         strerror(errno));
    }
    *ret_memory = memory;
    *ret_bytes = (uint64_t)status.st_size;
    return 0;
}

int mill_plane_attach(struct mill_plane *plane, const struct mill_config *config,
                      struct mill_report *report)
{
    const char *list = getenv(MILL_FDS_VARIABLE);
    const uint32_t *cpus = NULL;
    const struct mill_config_port *ports = NULL;
    void *memory = NULL;
    *plane = (struct mill_plane){.config = config};
    plane->cores_count = mill_config_cores(config, &cpus);
    int r = map_segment(list, "ipc", &memory, &plane->ipc_bytes, report);
    if (r == 0) {
        plane->ipc = memory;
        r = map_segment(list, "counters", &memory, &plane->counters_bytes, report);
    }
    if (r == 0) {
        plane->counters = memory;
        r = map_segment(list, "map", &plane->map_memory, &plane->map_bytes, report);
    }
    if (r == 0 && mill_config_ports(config, &ports) > 0) {
        r = map_segment(list, "flows", &memory, &plane->flows_bytes, report);
        plane->flows = r == 0 ? memory : NULL;
    }
    if (r < 0) {
        return r;
    }
    if (mill_ipc_check(plane->ipc, plane->ipc_bytes) < 0 ||
        mill_counters_check(plane->counters, plane->counters_bytes) < 0 ||
        plane->ipc->cores_count < plane->cores_count ||
        plane->counters->cores_count < plane->cores_count) {
        return mill_fail(report, -EBADMSG,
                         "the supervisor's segments have another layout; "
                         "all programs must be of one build");
    }
    r = mill_map_open(plane->map_memory, plane->map_bytes, &plane->map);
    if (r < 0) {
        return mill_fail(report, r, "the partition map has another layout");
    }
    plane->control_bell = (struct mill_bell){.shared = &plane->ipc->control_bell,
                                             .fd = descriptor_of(list, "bell.control")};
    if (getrandom(&plane->incarnation, sizeof(plane->incarnation), 0) !=
        (ssize_t)sizeof(plane->incarnation)) {
        return mill_fail(report, -EIO, "no random numbers from the kernel");
    }
    plane->incarnation |= 1; /* 0 means: not running */
    atomic_store_explicit(&plane->ipc->dataplane.serving, 0, memory_order_relaxed);
    atomic_store_explicit(&plane->ipc->dataplane.incarnation, plane->incarnation,
                          memory_order_release);
    return 0;
}

/* --- memory ---------------------------------------------------------------------------------- */

static uint32_t extent_bytes_max(const struct mill_config *config)
{
    uint64_t batch = (uint64_t)mill_config_int(config, MILL_KEY_MESSAGE_MAX_BYTES);
    uint32_t extent = EXTENT_BYTES_MIN;
    while (extent < batch && extent < (1u << 30)) {
        extent *= 2;
    }
    return extent;
}

static int arena_open(struct mill_plane *plane, bool *ret_taken, struct mill_report *report)
{
    const struct mill_config *config = plane->config;
    bool hugepages = mill_config_bool(config, MILL_KEY_HUGEPAGES);
    char dir[512];
    snprintf(dir, sizeof(dir), "%s/%s",
             hugepages ? mill_config_text(config, MILL_KEY_HUGEPAGES_DIR) : "/dev/shm",
             mill_config_instance(config));
    if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
        return mill_fail(report, -errno, "%s cannot be made: %s", dir, strerror(errno));
    }
    struct mill_arena_options options = {
        .dir = dir,
        .hugepages = hugepages,
        .size_bytes = (uint64_t)mill_config_int(config, MILL_KEY_HUGEPAGES_SIZE_MB) << 20,
        .nodes = 1,
        .cores = plane->cores_count,
        .partitions_max = MILL_PLANE_PARTITIONS,
        .extent_bytes_max = extent_bytes_max(config),
    };
    if (numa_available() >= 0) {
        options.nodes =
            MILL_MIN((uint32_t)numa_num_configured_nodes(), (uint32_t)MILL_ARENA_NODES_MAX);
    }
    int r = mill_arena_open(&options, &plane->arena, ret_taken, report);
    if (r == -ESTALE) {
        mill_log_line(MILL_LEVEL_ERROR, "arena.discarded", "dir=%s reason=\"%s\"", dir,
                      report->text);
        r = mill_arena_discard(dir, report);
        r = r < 0 ? r : mill_arena_open(&options, &plane->arena, ret_taken, report);
    }
#ifdef MILL_MUTANT_ARENA_NODE_UNTOLD
    return r;
#endif
    if (r == 0 && mill_arena_elsewhere_bytes(plane->arena) > 0) {
        mill_log_line(
            MILL_LEVEL_WARN, "arena.wrong-node",
            "memory lies on another NUMA node than the cores that use it bytes=%llu; give "
            "each node pages: echo N >/sys/devices/system/node/nodeX/hugepages/"
            "hugepages-2048kB/nr_hugepages",
            (unsigned long long)mill_arena_elsewhere_bytes(plane->arena));
    }
    return r;
}

static void say(void *context, int level, const char *id, const char *text)
{
    MILL_UNUSED(context);
    mill_log_line((enum mill_level)level, id, "%s", text);
}

static int log_dirs_open(struct mill_plane *plane, struct mill_report *report)
{
    struct mill_log_dirs_options options = {
        .files = &mill_file_calls_posix,
        .node_id = (int32_t)mill_config_int(plane->config, MILL_KEY_NODE_ID),
        .cluster_id = mill_map_cluster_read(plane->map)->cluster_id,
        .say = say,
    };
    options.count = mill_config_log_dirs(plane->config, &options.paths);
    return mill_log_dirs_open(&options, &plane->log_dirs, report);
}

static int takeup(struct mill_plane *plane, bool taken, struct mill_report *report)
{
    struct mill_takeup_result result;
    mill_store_kept_free(&plane->kept);
    int r = mill_store_takeup(plane->log_dirs, plane->arena, taken, &result, report);
    if (r == 0 && taken) {
        mill_log_line(
            MILL_LEVEL_NOTICE, "store.take-up",
            "extents of an earlier run written to the files partitions=%llu batches=%llu "
            "bytes=%llu discarded=%llu kept_bytes=%llu",
            (unsigned long long)result.partitions, (unsigned long long)result.batches_written,
            (unsigned long long)result.bytes_written, (unsigned long long)result.extents_discarded,
            (unsigned long long)result.bytes_kept);
    }
    plane->kept = result.kept;
    return r;
}

/* --- cores ----------------------------------------------------------------------------------- */

static int eventfd_new(int *ret_fd, struct mill_report *report)
{
    *ret_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return *ret_fd < 0 ? mill_fail(report, -errno, "no eventfd: %s", strerror(errno)) : 0;
}

/* The two rings between a core and its store, in memory of this process. */
static int store_rings(struct mill_plane_core *core, struct mill_log_config *log,
                       struct mill_store_config *store, struct mill_report *report)
{
    uint64_t ring = mill_round_up(mill_ring_bytes(STORE_RING_BYTES), 128);
    uint8_t *memory = aligned_alloc(128, ring * 2 + 2 * sizeof(struct mill_bell_shared));
    if (!memory) {
        return mill_fail(report, -ENOMEM, "no memory for the rings of a store");
    }
    memset(memory, 0, ring * 2 + 2 * sizeof(struct mill_bell_shared));
    core->store_memory = memory;
    core->store_bell = (void *)(memory + ring * 2);
    struct mill_ring_shared *to = mill_ring_format(memory, STORE_RING_BYTES);
    struct mill_ring_shared *from = mill_ring_format(memory + ring, STORE_RING_BYTES);
    int r = mill_ring_attach_producer(&log->store_out, to, ring);
    r = r < 0 ? r : mill_ring_attach_consumer(&log->store_in, from, ring);
    r = r < 0 ? r : mill_ring_attach_consumer(&store->in, to, ring);
    r = r < 0 ? r : mill_ring_attach_producer(&store->out, from, ring);
    MILL_ASSERT_EQ(r, 0); /* just formatted */
    core->store_thread.bell = (struct mill_bell){.shared = core->store_bell};
    r = eventfd_new(&core->store_thread.bell.fd, report);
    log->store_bell = core->store_thread.bell;
    return r;
}

/* How many stores compact at once. */
static uint32_t cleaners_at_once(const struct mill_plane *plane)
{
    int64_t threads = mill_config_int(plane->config, MILL_KEY_LOG_CLEANER_THREADS);
    return (uint32_t)MILL_MIN(threads, (int64_t)plane->cores_count);
}

/* What the store may be told otherwise while it runs, as it is configured; its core goes on from
 * there. */
static int clean_configure(struct mill_plane *plane, struct mill_plane_core *core,
                           struct mill_store_config *store, struct mill_report *report)
{
    const struct mill_config *config = plane->config;
    double rate =
        strtod(mill_config_text(config, MILL_KEY_LOG_CLEANER_IO_MAX_BYTES_PER_SECOND), NULL);
    rate /= plane->cores_count;
    store->clean_bytes_per_second =
        rate < (double)INT64_MAX ? MILL_MAX((uint64_t)rate, (uint64_t)1) : 0;
    store->clean_backoff_ms = mill_config_int(config, MILL_KEY_LOG_CLEANER_BACKOFF_MS);
    store->clean_slots = &plane->clean_slots;
    store->flush_times = &plane->counters->cores[core - plane->cores].flush;
    if (mill_config_bool(config, MILL_KEY_LOG_CLEANER_ENABLE) && cleaners_at_once(plane) > 0) {
        store->clean_map_bytes =
            (uint64_t)mill_config_int(config, MILL_KEY_LOG_CLEANER_DEDUPE_BUFFER_SIZE) /
            plane->cores_count;
    }
    struct mill_store_tuning *tuning = &core->store_tuning;
    atomic_init(&tuning->producer_expiration_ms, store->producer_expiration_ms);
    atomic_init(&tuning->clean_bytes_per_second, store->clean_bytes_per_second);
    atomic_init(&tuning->clean_backoff_ms, store->clean_backoff_ms);
    atomic_init(&tuning->clean_map_bytes, store->clean_map_bytes);
    store->tuning = tuning;
    struct mill_uuid *secret = &store->clean_secret;
    return getrandom(secret->b, sizeof(secret->b), 0) == (ssize_t)sizeof(secret->b)
               ? 0
               : mill_fail(report, -EIO, "no random numbers from the kernel");
}

/* Descriptors for the stores: what the process may have, which is raised as far as it may, less
 * those of its connections and some of its own; half of it at least. */
static uint32_t open_files_max(const struct mill_plane *plane)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return MILL_PLANE_OPEN_FILES_MIN;
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return MILL_PLANE_OPEN_FILES_MIN;
    }
    uint64_t others =
        (uint64_t)mill_plane_ksock_limits(plane).connections_max * plane->cores_count +
        MILL_PLANE_OPEN_FILES_OTHERS;
    uint64_t ours = limit.rlim_cur - MILL_MIN((uint64_t)limit.rlim_cur / 2, others);
    ours = MILL_MIN(ours, (uint64_t)MILL_PLANE_OPEN_FILES);
    return (uint32_t)MILL_MAX(ours, (uint64_t)MILL_PLANE_OPEN_FILES_MIN);
}

static int store_create(struct mill_plane *plane, struct mill_plane_core *core,
                        struct mill_store_config *store, struct mill_report *report)
{
    const struct mill_config *config = plane->config;
    store->dirs = plane->log_dirs;
    store->arena = plane->arena;
    store->kept = &plane->kept;
    store->loaders = plane->loaders;
    store->bell = core->store_thread.bell;
    store->core_bell = core->thread.bell;
    store->helpers =
        MILL_MAX(MILL_PLANE_HELPERS / plane->cores_count, (uint32_t)MILL_PLANE_HELPERS_MIN);
    store->helpers = MILL_MIN(store->helpers, (uint32_t)MILL_HELPERS_MAX);
    store->cached_max_bytes = MILL_PLANE_CACHED_BYTES / plane->cores_count;
    store->open_files_max = open_files_max(plane) / plane->cores_count;
    store->producers_max = MILL_PLANE_PRODUCERS;
    store->transactions_max = MILL_PLANE_TRANSACTIONS;
    store->producer_expiration_ms = mill_config_int(config, MILL_KEY_PRODUCER_ID_EXPIRATION_MS);
    store->checkpoint_interval_ms =
        mill_config_int(config, MILL_KEY_LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS);
    store->retention_check_ms = mill_config_int(config, MILL_KEY_LOG_RETENTION_CHECK_INTERVAL_MS);
    int r = clean_configure(plane, core, store, report);
    return r < 0 ? r : mill_store_create(store, &core->store_thread.store, report);
}

static int ksock_open(struct mill_plane *plane, struct mill_plane_core *core,
                      const struct mill_ksock_config *config, uint16_t listener,
                      struct mill_report *report)
{
    int r = mill_ksock_create(config, &core->loans, mill_arena_base(plane->arena),
                              &mill_core_events, core->thread.core, &core->thread.ksock, report);
    if (r < 0) {
        return r;
    }
    mill_core_add_maker(core->thread.core, mill_ksock_maker(core->thread.ksock), NULL, listener);
    r = mill_ksock_watch(core->thread.ksock, core->thread.bell.fd);
    return r < 0 ? mill_fail(report, r, "the core's eventfd cannot be watched") : 0;
}

/* First listener over kernel sockets: the maker's own counters are told there. */
static uint16_t kernel_listener(const struct mill_config *config)
{
    const struct mill_config_listener *listeners = NULL;
    uint32_t count = mill_config_listeners(config, &listeners);
    for (uint32_t i = 0; i < count; i++) {
        if (listeners[i].transport == MILL_TRANSPORT_KERNEL) {
            return (uint16_t)i;
        }
    }
    return MILL_MAP_LISTENERS_MAX - 1;
}

/* vDSO, no system call. */
static uint64_t ticks_ns(void *context)
{
    MILL_UNUSED(context);
    return mill_now_read().mono_ns;
}

static int core_open(struct mill_plane *plane, uint32_t index, struct mill_report *report)
{
    struct mill_plane_core *core = &plane->cores[index];
    const struct mill_config *config = plane->config;
    const char *list = getenv(MILL_FDS_VARIABLE);
    const uint32_t *cpus = NULL;
    char name[32];
    mill_config_cores(config, &cpus);
    snprintf(name, sizeof(name), "bell.core%u", index);
    struct mill_core_thread *thread = &core->thread;
    thread->cpu = cpus[index];
    thread->busy = strcmp(mill_config_text(config, MILL_KEY_DATAPLANE_IDLE), "busy") == 0;
    thread->shared = &plane->counters->cores[index];
    thread->bell = (struct mill_bell){.shared = &plane->ipc->cores[index].bell,
                                      .fd = descriptor_of(list, name)};
    core->store_thread.busy = thread->busy;
    int node = numa_available() >= 0 ? numa_node_of_cpu((int)thread->cpu) : 0;
    int r = mill_extents_create(plane->arena, index, node, &core->extents);
    if (r < 0) {
        return mill_fail(report, r, "no memory for the extents of core %u", index);
    }
    struct mill_ksock_config ksock = mill_plane_ksock_limits(plane);
    struct mill_core_config options = {
        .index = index,
        .count = plane->cores_count,
        .node_id = (int32_t)mill_config_int(config, MILL_KEY_NODE_ID),
        .incarnation = plane->incarnation,
        .limits = mill_plane_core_limits(plane),
        .arena = plane->arena,
        .extents = core->extents,
        .loans = &core->loans,
        .map = plane->map,
        .ipc = plane->ipc,
        .tuning = &core->store_tuning,
        .connections_all = &plane->connections,
        .quotas = plane->quotas,
        .addresses = plane->addresses,
        .ticks_ns = ticks_ns,
        .control_bell = plane->control_bell,
        .peers = plane->cores_count > 1 ? &plane->peers[index * plane->cores_count] : NULL,
        .shared = thread->shared,
    };
    options.log.limits = mill_plane_log_limits(plane);
    const struct mill_config_listener *listeners = NULL;
    options.listeners_count = mill_config_listeners(config, &listeners);
    for (uint32_t i = 0; i < options.listeners_count; i++) {
        options.listeners[i] = listeners[i].name;
    }
    struct mill_store_config store = {0};
    r = store_rings(core, &options.log, &store, report);
    if (r == 0) {
        r = store_create(plane, core, &store, report);
    }
    if (r < 0) {
        return r;
    }
    r = mill_core_create(&options, &thread->core);
    if (r < 0) {
        return mill_fail(report, r, "core %u: %s", index, strerror(-r));
    }
    return ksock_open(plane, core, &ksock, kernel_listener(config), report);
}

/* Rings between every two cores. peers[a * n + b] is a's side of the pair with b. */
static int peers_make(struct mill_plane *plane, struct mill_report *report)
{
    uint32_t n = plane->cores_count;
    uint64_t ring = mill_round_up(mill_ring_bytes(MILL_PEER_RING_BYTES), 128);
    const char *list = getenv(MILL_FDS_VARIABLE);
    if (n < 2) {
        return 0;
    }
    plane->peers = calloc((size_t)n * n, sizeof(plane->peers[0]));
    plane->peer_memory = aligned_alloc(128, ring * n * n);
    if (!plane->peers || !plane->peer_memory) {
        return mill_fail(report, -ENOMEM, "no memory for the rings between cores");
    }
    for (uint32_t from = 0; from < n; from++) {
        for (uint32_t to = 0; to < n; to++) {
            char name[32];
            struct mill_ring_shared *shared = mill_ring_format(
                (uint8_t *)plane->peer_memory + ring * (from * n + to), MILL_PEER_RING_BYTES);
            struct mill_core_peer *sender = &plane->peers[from * n + to];
            int r = mill_ring_attach_producer(&sender->out, shared, ring);
            r = r < 0 ? r
                      : mill_ring_attach_consumer(&plane->peers[to * n + from].in, shared, ring);
            MILL_ASSERT_EQ(r, 0); /* just formatted */
            snprintf(name, sizeof(name), "bell.core%u", to);
            sender->bell = (struct mill_bell){.shared = &plane->ipc->cores[to].bell,
                                              .fd = descriptor_of(list, name)};
        }
    }
    return 0;
}

/* An empty arena of the configured size; what an earlier process left is in the files before. */
static int arena_ready(struct mill_plane *plane, struct mill_report *report)
{
    bool taken = false;
    int r = arena_open(plane, &taken, report);
    if (r < 0) {
        return r;
    }
    plane->arena_empty = !taken;
    r = takeup(plane, taken, report);
    plane->arena_empty = plane->arena_empty || r == 0;
    if (r < 0 || !mill_arena_resized(plane->arena)) {
        return r;
    }
    if (plane->kept.parts_count > 0) {
        mill_log_line(MILL_LEVEL_WARN, "arena.size-kept",
                      "the arena keeps its size: it holds what a full disk could not take");
        return 0;
    }
    mill_arena_close(plane->arena, true);
    plane->arena = NULL;
    r = arena_open(plane, &taken, report);
    return r < 0 ? r : takeup(plane, taken, report);
}

int mill_plane_build(struct mill_plane *plane, struct mill_report *report)
{
    int r = log_dirs_open(plane, report);
    r = r < 0 ? r : arena_ready(plane, report);
    r = r < 0 ? r
              : mill_loaders_create(plane->log_dirs,
                                    (uint32_t)mill_config_int(
                                        plane->config, MILL_KEY_NUM_RECOVERY_THREADS_PER_DATA_DIR),
                                    &plane->loaders, report);
    if (r == 0) {
        plane->cores = calloc(plane->cores_count, sizeof(plane->cores[0]));
        plane->quotas = aligned_alloc(64, sizeof(*plane->quotas));
        if (plane->quotas) {
            memset(plane->quotas, 0, sizeof(*plane->quotas));
        }
        atomic_store(&plane->clean_slots.free, cleaners_at_once(plane));
        const uint64_t key[2] = {plane->incarnation, 1}; /* not the quotas' */
        plane->addresses = mill_address_table_create(mill_plane_connections_max(plane), key);
        bool made = plane->cores && plane->quotas && plane->addresses;
        r = made ? peers_make(plane, report) : -ENOMEM;
    }
    for (uint32_t i = 0; r == 0 && i < plane->cores_count; i++) {
        uint32_t units = mill_arena_units(plane->arena);
        r = mill_loans_init(&plane->cores[i].loans, units, units);
        plane->loans_of_cores[i] = &plane->cores[i].loans;
    }
    for (uint32_t i = 0; r == 0 && i < plane->cores_count; i++) {
        r = core_open(plane, i, report);
    }
    if (r == 0) {
        mill_counter_set(&plane->counters->arena_bytes, mill_arena_size_bytes(plane->arena));
        mill_counter_set(&plane->counters->start_wall_ms, (uint64_t)mill_now_read().wall_ms);
        r = mill_plane_listeners(plane, report);
    }
    return r;
}

/* --- running --------------------------------------------------------------------------------- */

int mill_plane_run(struct mill_plane *plane, struct mill_report *report)
{
    for (uint32_t i = 0; i < plane->cores_count; i++) {
        struct mill_plane_core *core = &plane->cores[i];
        int r = mill_store_thread_start(&core->store_thread);
        if (r < 0) {
            return mill_fail(report, r, "no thread for the store of core %u", i);
        }
        r = mill_core_thread_start(&core->thread);
        if (r < 0) {
            bool whole = mill_store_thread_stop(&core->store_thread);
            MILL_UNUSED(whole); /* it was asked for nothing */
            return mill_fail(report, r, "no thread for core %u", i);
        }
        core->started = true;
    }
    return 0;
}

bool mill_plane_ready(const struct mill_plane *plane)
{
    for (uint32_t i = 0; i < plane->cores_count; i++) {
        if (!atomic_load_explicit(&plane->cores[i].thread.ready, memory_order_acquire)) {
            return false;
        }
    }
    return true;
}

void mill_plane_publish(struct mill_plane *plane)
{
    struct mill_load_progress progress = mill_log_dirs_progress(plane->log_dirs);
    mill_counter_set(&plane->counters->loading_partitions, progress.partitions);
    mill_counter_set(&plane->counters->loaded_partitions, progress.loaded);
    mill_counter_set(&plane->counters->loaded_bytes, progress.bytes);
    for (uint32_t i = 0; i < plane->ports_count; i++) {
        struct mill_shared_port *shared = &plane->counters->ports[i];
        struct mill_port_counters counters;
        struct mill_port_info info;
        mill_port_counters(plane->ports[i], &counters);
        mill_port_info(plane->ports[i], &info);
        atomic_store_explicit(&shared->link_up, info.link_up, memory_order_relaxed);
#define MILL_PORT_PUBLISH(name, help) mill_counter_set(&shared->name, counters.name);
        MILL_PORT_COUNTERS(MILL_PORT_PUBLISH)
#undef MILL_PORT_PUBLISH
        mill_plane_port_tell(plane, i, &info, &counters);
    }
    if (mill_plane_ready(plane)) {
        mill_refusals_look(&plane->refusals, plane->counters, mill_now_read().mono_ns);
    }
}

/* --- closing --------------------------------------------------------------------------------- */

static void core_close(struct mill_plane *plane, struct mill_plane_core *core)
{
    MILL_UNUSED(plane);
    mill_extents_destroy(core->extents);
    mill_loans_fini(&core->loans);
    free(core->store_memory);
    if (core->store_thread.bell.fd > 0) {
        close(core->store_thread.bell.fd);
    }
}

void mill_plane_close(struct mill_plane *plane)
{
    bool all_written = plane->arena_empty;
    bool clean = plane->log_dirs && mill_log_dirs_clean(plane->log_dirs);
    for (uint32_t i = 0; plane->cores && i < plane->cores_count; i++) {
        if (plane->cores[i].started) {
            mill_core_thread_stop(&plane->cores[i].thread);
        }
    }
    for (uint32_t i = 0; plane->cores && i < plane->cores_count; i++) {
        struct mill_plane_core *core = &plane->cores[i];
        if (!core->started) {
            continue; /* never ran, so it has appended nothing */
        }
        mill_core_thread_join(&core->thread);
        bool idle = mill_log_idle(mill_core_log(core->thread.core));
        bool whole = mill_store_thread_stop(&core->store_thread);
#ifdef MILL_MUTANT_CORE_STOP_UNWRITTEN
        idle = true;
#endif
        all_written = all_written && idle;
        clean = (clean || i == 0) && idle && whole;
    }
    mill_loaders_destroy(plane->loaders);
    bool kept = atomic_load_explicit(&plane->kept.left, memory_order_acquire) > 0;
    int r = mill_log_dirs_close(plane->log_dirs, clean && !kept);
    MILL_UNUSED(r); /* told; the next start walks the logs */
    /* Stacks give frames and buffers back to the ports, ports give loans back to the cores. */
    for (uint32_t i = 0; plane->cores && i < plane->cores_count; i++) {
        mill_core_destroy(plane->cores[i].thread.core);
    }
    for (uint32_t i = 0; i < plane->ports_count; i++) {
        mill_distributor_destroy(plane->distributors[i]);
        mill_port_close(plane->ports[i]);
    }
    for (uint32_t i = 0; plane->cores && i < plane->cores_count; i++) {
        core_close(plane, &plane->cores[i]);
    }
    if (plane->eal_started) {
        mill_eal_stop();
    }
    mill_arena_close(plane->arena, all_written && !kept);
    mill_store_kept_free(&plane->kept);
    free(plane->cores);
    free(plane->peers);
    free(plane->peer_memory);
    free(plane->quotas);
    mill_address_table_destroy(plane->addresses);
    if (plane->ipc) {
        atomic_store_explicit(&plane->ipc->dataplane.serving, 0, memory_order_relaxed);
        atomic_store_explicit(&plane->ipc->dataplane.incarnation, 0, memory_order_release);
    }
    mill_map_close(plane->map);
}
