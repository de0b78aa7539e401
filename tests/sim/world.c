/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane in one process; see world.h. */
#include "tests/sim/world.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/core/addresses.h"
#include "dataplane/core/quota.h"

enum {
    WORLD_NODE_ID = 1,
    WORLD_ARENA_BYTES = 64 << 20,
    WORLD_MAP_BYTES = 4 << 20,
    WORLD_TOPICS_MAX = 64,
    WORLD_PARTITIONS_MAX = 256,
    WORLD_RING_BYTES = 1 << 18,
    WORLD_PEER_RING_BYTES = 1 << 18,
    WORLD_SCRATCH_BYTES = 1 << 20,
    WORLD_SETTLE_TURNS = 100000,
};

static void *zeroed(uint64_t size_bytes)
{
    void *memory = aligned_alloc(4096, mill_round_up(size_bytes, 4096));
    MILL_ASSERT(memory != NULL);
    memset(memory, 0, mill_round_up(size_bytes, 4096));
    return memory;
}

/* --- segments -------------------------------------------------------------------------------- */

static void segments_make(struct world *world)
{
    uint64_t ipc_bytes = mill_ipc_bytes(world->cores_count, WORLD_SCRATCH_BYTES);
    world->ipc_memory = zeroed(ipc_bytes);
    mill_ipc_format(world->ipc_memory, world->cores_count, WORLD_SCRATCH_BYTES);
    world->ipc = world->ipc_memory;
    uint64_t counters_bytes = mill_counters_bytes(world->cores_count);
    world->counters_memory = zeroed(counters_bytes);
    mill_counters_format(world->counters_memory, world->cores_count);
    world->counters = world->counters_memory;
    struct mill_map_limits limits = {.size_bytes = WORLD_MAP_BYTES, .topics_max = WORLD_TOPICS_MAX};
    world->map_memory = zeroed(WORLD_MAP_BYTES);
    mill_map_format(world->map_memory, &limits);
    MILL_ASSERT_EQ(mill_map_open(world->map_memory, WORLD_MAP_BYTES, &world->map), 0);
}

/* --- control ---------------------------------------------------------------------------------- */

static void random_bytes(void *context, void *ret_bytes, size_t size_bytes)
{
    struct world *world = context;
    uint8_t *to = ret_bytes;
    for (size_t i = 0; i < size_bytes; i++) {
        to[i] = (uint8_t)mill_random_next(&world->random);
    }
}

static void control_start(struct world *world)
{
    char file[192];
    struct mill_report report = {""};
    struct mill_control_options options = {
        .config = world->config,
        .map = world->map,
        .segment = world->ipc,
        .segment_bytes = mill_ipc_bytes(world->cores_count, WORLD_SCRATCH_BYTES),
        .core_bells = world->core_bells,
        .random = random_bytes,
        .random_context = world,
    };
    snprintf(file, sizeof(file), "%s/metadata", world->dir);
    int r = mill_meta_sqlite_open(file, 0, &options.meta, &report);
    MILL_ASSERT_EQ(r, 0);
    r = mill_control_open(&options, &world->control, &report);
    MILL_ASSERT_EQ(r, 0);
}

static void control_step(struct world *world)
{
    uint64_t next_ns;
    struct mill_report report = {""};
    int r = mill_control_step(world->control, &world->now, &next_ns, &report);
    if (r < 0) {
        fprintf(stderr, "%s\n", report.text);
    }
    MILL_ASSERT_EQ(r, 0);
}

static void config_make(struct world *world)
{
    char dirs[16 + sizeof(world->log_dir)];
    char segment[64];
    const char *sets[] = {"node.id=1",
                          "listeners=SIM://127.0.0.1:9092",
                          "offsets.topic.num.partitions=3",
                          "group.initial.rebalance.delay.ms=0",
                          "group.min.session.timeout.ms=100",
                          "group.consumer.session.timeout.ms=1500",
                          "group.consumer.assignment.interval.ms=20",
                          dirs,
                          segment};
    size_t at = (size_t)snprintf(dirs, sizeof(dirs), "log.dirs=");
    for (uint32_t i = 0; i < world->disk.dirs_count; i++) {
        at += (size_t)snprintf(dirs + at, sizeof(dirs) - at, "%s%s", i > 0 ? "," : "",
                               world->log_dir[i]);
    }
    snprintf(segment, sizeof(segment), "log.segment.bytes=%u", world->disk.segment_bytes);
    int r = mill_config_load(NULL, sets, MILL_COUNT_OF(sets), true, &world->config);
    MILL_ASSERT_EQ(r, 0);
}

/* --- one start ------------------------------------------------------------------------------- */

static void say(void *context, int level, const char *id, const char *text)
{
    struct world *world = context;
    MILL_UNUSED(level);
    MILL_UNUSED(text);
    world->discards += strncmp(id, "store.take-up", strlen("store.take-up")) == 0 ? 1 : 0;
}

/* ret: false: the disk failed. */
static bool arena_start(struct world *world)
{
    struct mill_report report = {""};
    struct mill_arena_options options = {
        .dir = world->dir,
        .size_bytes = WORLD_ARENA_BYTES,
        .nodes = 1,
        .cores = world->cores_count,
        .partitions_max = WORLD_PARTITIONS_MAX,
        .extent_bytes_max = 2 << 20,
    };
    bool taken = false;
    int r = mill_arena_open(&options, &world->arena, &taken, &report);
    if (r < 0) {
        fprintf(stderr, "%s\n", report.text);
    }
    MILL_ASSERT_EQ(r, 0);
    struct mill_log_dirs_options dirs = {
        .files = world->disk.files,
        .paths = world->log_dirs,
        .count = world->disk.dirs_count,
        .node_id = WORLD_NODE_ID,
        .cluster_id = mill_map_cluster_read(world->map)->cluster_id,
        .say = say,
        .say_context = world,
    };
    world->dirs = NULL;
    r = mill_log_dirs_open(&dirs, &world->dirs, &report);
    r = r < 0 ? r : mill_store_takeup(world->dirs, world->arena, taken, &world->takeup, &report);
    MILL_ASSERT(r == 0 || r == -EIO);
    if (r < 0) {
        mill_log_dirs_abandon(world->dirs);
        world->dirs = NULL;
        mill_arena_close(world->arena, false);
    }
    return r == 0;
}

static struct mill_bell bell_of(struct mill_bell_shared *shared)
{
    /* Nobody sleeps here: the word stays 0 and the descriptor is never written. */
    return (struct mill_bell){.shared = shared, .fd = -1};
}

static void peers_make(struct world *world)
{
    uint32_t n = world->cores_count;
    uint64_t ring = mill_round_up(mill_ring_bytes(WORLD_PEER_RING_BYTES), 128);
    world->peers = calloc((size_t)n * n, sizeof(world->peers[0]));
    world->peer_memory = zeroed(ring * n * n);
    world->quotas = zeroed(sizeof(*world->quotas));
    const uint64_t key[2] = {world->incarnation, n};
    world->addresses = mill_address_table_create(MEM_STREAMS_MAX * n, key);
    MILL_ASSERT(world->addresses != NULL);
    MILL_ASSERT(world->peers != NULL);
    for (uint32_t from = 0; from < n; from++) {
        for (uint32_t to = 0; to < n; to++) {
            uint8_t *at = (uint8_t *)world->peer_memory + ring * (from * n + to);
            struct mill_ring_shared *shared = mill_ring_format(at, WORLD_PEER_RING_BYTES);
            struct mill_core_peer *sender = &world->peers[from * n + to];
            struct mill_core_peer *receiver = &world->peers[to * n + from];
            MILL_ASSERT_EQ(mill_ring_attach_producer(&sender->out, shared, ring), 0);
            MILL_ASSERT_EQ(mill_ring_attach_consumer(&receiver->in, shared, ring), 0);
            sender->bell = bell_of(&world->ipc->cores[to].bell);
        }
    }
}

static void rings_make(struct world *world, struct world_core *core, struct mill_log_config *log,
                       struct mill_store_config *store)
{
    uint64_t ring = mill_round_up(mill_ring_bytes(WORLD_RING_BYTES), 128);
    uint8_t *memory = zeroed(ring * 2);
    core->rings = memory;
    struct mill_ring_shared *to = mill_ring_format(memory, WORLD_RING_BYTES);
    struct mill_ring_shared *from = mill_ring_format(memory + ring, WORLD_RING_BYTES);
    MILL_ASSERT_EQ(mill_ring_attach_producer(&log->store_out, to, ring), 0);
    MILL_ASSERT_EQ(mill_ring_attach_consumer(&log->store_in, from, ring), 0);
    MILL_ASSERT_EQ(mill_ring_attach_consumer(&store->in, to, ring), 0);
    MILL_ASSERT_EQ(mill_ring_attach_producer(&store->out, from, ring), 0);
    log->store_bell = bell_of(&world->bells[0]);
    store->core_bell = bell_of(&world->bells[0]);
}

static uint64_t ticks_read(void *context)
{
    struct world *world = context;
    world->ticks_ns += world->ticks_by_ns;
    return 1 + world->ticks_ns;
}

static void core_start(struct world *world, uint32_t index)
{
    struct world_core *core = &world->cores[index];
    struct mill_report report;
    uint32_t units = mill_arena_units(world->arena);
    MILL_ASSERT_EQ(mill_loans_init(&core->loans, units, units), 0);
    MILL_ASSERT_EQ(mill_extents_create(world->arena, index, -1, &core->extents), 0);
    struct mill_core_config options = {
        .index = index,
        .count = world->cores_count,
        .node_id = WORLD_NODE_ID,
        .incarnation = world->incarnation,
        .limits =
            {
                .connections_max = MEM_STREAMS_MAX,
                .peer_ops_max = 64,
                .request_bytes_max = 1 << 22,
                .pinned_bytes_max = 64 << 10,
                .pinned_total_bytes = 256 << 10,
                .staged_bytes_max = 4 << 20,
                .ops_bytes_max = 4 << 20,
                .producers_bytes_max = 1 << 20,
                .reader_bytes_max = 8 << 20,
                .stall_timeout_ns = 60 * MILL_NS_PER_S,
                .control_timeout_ns = MILL_NS_PER_S,
                .control_frame_bytes_max = 1 << 20,
                .fetch_bytes_max = 1 << 20,
                .fetch_sessions_max = WORLD_FETCH_SESSIONS_MAX,
                .fetch_session_parts_max = 64,
                .fetch_session_topics_max = 8,
            },
        .arena = world->arena,
        .extents = core->extents,
        .loans = &core->loans,
        .map = world->map,
        .ipc = world->ipc,
        .connections_all = &world->connections,
        .quotas = world->quotas,
        .addresses = world->addresses,
        .ticks_ns = ticks_read,
        .ticks_context = world,
        .control_bell = bell_of(&world->ipc->control_bell),
        .peers = world->cores_count > 1 ? &world->peers[index * world->cores_count] : NULL,
        .shared = &world->counters->cores[index],
        .listeners_count = 1,
        .listeners = {"SIM"},
    };
    options.log.limits = (struct mill_log_limits){
        .partitions_max = WORLD_PARTITIONS_MAX,
        .producers_max = 256,
        .transactions_max = 64,
        .aborted_max = 16,
        .watches_max = 1024,
        .dirty_max_bytes = 8 << 20,
        .cold_max_bytes = 8 << 20,
        .memory_bytes = WORLD_ARENA_BYTES / 8 * 7 / world->cores_count,
        .producer_expiration_ms = 86400000,
    };
    struct mill_store_config store = {
        .dirs = world->dirs,
        .arena = world->arena,
        .kept = &world->takeup.kept,
        .open_files_max = 16,
        .producers_max = 256,
        .producer_expiration_ms = 86400000,
        .checkpoint_interval_ms = 60000,
        .retention_check_ms = 300000,
    };
    rings_make(world, core, &options.log, &store);
    MILL_ASSERT_EQ(mill_store_create(&store, &core->store, &report), 0);
    MILL_ASSERT_EQ(mill_core_create(&options, &core->core), 0);
    core->maker = mem_maker_create(&core->loans, mill_arena_base(world->arena), &mill_core_events,
                                   core->core, mill_random_next(&world->random));
    mill_core_add_maker(core->core, mem_maker_base(core->maker), NULL, 0);
}

/* ret: false: the disk failed, nothing runs but control. */
static bool start(struct world *world)
{
    world->incarnation = mill_random_next(&world->random) | 1;
    while (!mill_map_cluster_read(world->map)) {
        control_step(world);
        world->now.mono_ns += MILL_NS_PER_MS;
    }
    atomic_store(&world->ipc->dataplane.incarnation, world->incarnation);
    if (!arena_start(world)) {
        return false;
    }
    peers_make(world);
    for (uint32_t i = 0; i < world->cores_count; i++) {
        core_start(world, i);
    }
    for (uint32_t turn = 0; turn < WORLD_SETTLE_TURNS; turn++) {
        bool ready = true;
        world_turn(world, MILL_NS_PER_MS);
        for (uint32_t i = 0; i < world->cores_count; i++) {
            ready = ready && mill_core_ready(world->cores[i].core);
        }
        if (ready) {
            return true;
        }
    }
    MILL_ASSERT(false); /* never ready */
}

void world_open(struct world *world, uint32_t cores_count, uint64_t seed)
{
    static const struct world_disk kernels = {
        .files = &mill_file_calls_posix, .dirs_count = 1, .segment_bytes = 1 << 30};
    world_open_on(world, cores_count, seed, &kernels);
}

void world_open_on(struct world *world, uint32_t cores_count, uint64_t seed,
                   const struct world_disk *disk)
{
    *world = (struct world){.cores_count = cores_count, .seed = seed, .disk = *disk};
    world->random.state = seed;
    world->now = (struct mill_now){.mono_ns = MILL_NS_PER_S, .wall_ms = 1700000000000};
    char dir[sizeof(world->dir)]; /* GCC takes two parts of one world for overlapping */
    snprintf(dir, sizeof(dir), "/dev/shm/millrace-test-%d-XXXXXX", (int)getpid());
    MILL_ASSERT(mkdtemp(dir) != NULL);
    memcpy(world->dir, dir, sizeof(dir));
    for (uint32_t i = 0; i < disk->dirs_count; i++) {
        snprintf(world->log_dir[i], sizeof(world->log_dir[i]), "%s/log-%u", dir, i);
        world->log_dirs[i] = world->log_dir[i];
    }
    world->bells = zeroed(sizeof(world->bells[0]));
    for (uint32_t i = 0; i < WORLD_CORES_MAX; i++) {
        world->core_bells[i] = -1; /* never written: nobody sleeps */
    }
    segments_make(world);
    config_make(world);
    control_start(world);
    MILL_ASSERT(start(world));
}

/* --- the end of a start ---------------------------------------------------------------------- */

/* A killed process frees nothing in an orderly way: private memory is dropped as it is. */
static void forget(struct world *world)
{
    for (uint32_t i = 0; i < world->cores_count; i++) {
        struct world_core *core = &world->cores[i];
        mill_core_destroy(core->core); /* frees memory; writes nothing to arena or files */
        mill_extents_destroy(core->extents);
        mill_loans_fini(&core->loans);
        free(core->rings);
        *core = (struct world_core){0};
    }
    free(world->peers);
    free(world->peer_memory);
    free(world->quotas);
    mill_address_table_destroy(world->addresses);
}

void world_crash_control(struct world *world)
{
    /* SQLite's file is closed as the kernel would; what control held in memory is gone. */
    mill_control_close(world->control);
    control_start(world);
}

void world_crash(struct world *world)
{
    for (uint32_t i = 0; i < world->cores_count; i++) {
        mill_store_abandon(world->cores[i].store);
    }
    mill_log_dirs_abandon(world->dirs);
    forget(world);
    mill_arena_close(world->arena, false);
    mill_store_kept_free(&world->takeup.kept);
    MILL_ASSERT(start(world));
}

static void segments_free(struct world *world)
{
    mill_map_close(world->map);
    free(world->ipc_memory);
    free(world->map_memory);
    free(world->counters_memory);
}

void world_power_off(struct world *world)
{
    struct mill_report report = {""};
    for (uint32_t i = 0; i < world->cores_count; i++) {
        mill_store_abandon(world->cores[i].store);
    }
    mill_log_dirs_abandon(world->dirs);
    world->dirs = NULL;
    forget(world);
    mill_arena_close(world->arena, false);
    MILL_ASSERT_EQ(mill_arena_discard(world->dir, &report), 0);
    mill_store_kept_free(&world->takeup.kept);
    mill_control_close(world->control);
    segments_free(world);
}

bool world_power_on(struct world *world)
{
    segments_make(world);
    control_start(world);
    if (start(world)) {
        return true;
    }
    struct mill_report report = {""};
    MILL_ASSERT_EQ(mill_arena_discard(world->dir, &report), 0);
    mill_control_close(world->control);
    segments_free(world);
    return false;
}

static void stop(struct world *world)
{
    world->store_stopped = false;
    for (uint32_t i = 0; i < world->cores_count; i++) {
        mill_core_stop(world->cores[i].core);
    }
    for (uint32_t turn = 0; turn < WORLD_SETTLE_TURNS; turn++) {
        bool stopped = true;
        world_turn(world, MILL_NS_PER_MS);
        for (uint32_t i = 0; i < world->cores_count; i++) {
            stopped = stopped && mill_core_stopped(world->cores[i].core);
        }
        if (stopped) {
            break;
        }
        MILL_ASSERT_LT(turn + 1, (uint32_t)WORLD_SETTLE_TURNS);
    }
    bool clean = true;
    for (uint32_t i = 0; i < world->cores_count; i++) {
        clean = mill_store_close(world->cores[i].store, world->now) && clean;
    }
    MILL_ASSERT(clean);
    MILL_ASSERT_EQ(mill_log_dirs_close(world->dirs, clean), 0);
    forget(world);
    mill_arena_close(world->arena, true);
    mill_store_kept_free(&world->takeup.kept);
}

void world_restart(struct world *world)
{
    stop(world);
    MILL_ASSERT(start(world));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    MILL_UNUSED(status);
    MILL_UNUSED(type);
    MILL_UNUSED(where);
    return remove(path);
}

void world_close(struct world *world)
{
    stop(world);
    mill_control_close(world->control);
    mill_config_free(world->config);
    segments_free(world);
    free(world->bells);
    nftw(world->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- turning --------------------------------------------------------------------------------- */

uint32_t world_turn(struct world *world, uint64_t step_ns)
{
    uint32_t work = 0;
    uint64_t by = 1 + mill_random_next(&world->random) % step_ns;
    world->now.mono_ns += by;
    world->now.wall_ms = 1700000000000 + (int64_t)(world->now.mono_ns / MILL_NS_PER_MS);
    uint32_t first = mill_random_below(&world->random, world->cores_count);
    for (uint32_t n = 0; n < world->cores_count; n++) {
        struct world_core *core = &world->cores[(first + n) % world->cores_count];
        if (!world->store_stopped && mill_random_below(&world->random, 2) == 0) {
            work += mill_store_step(core->store, world->now);
        }
        work += mill_core_step(core->core, world->now);
    }
    if (mill_random_below(&world->random, 2) == 0 && !world->control_stopped) {
        control_step(world);
    }
    return work;
}

void world_settle(struct world *world, uint32_t limit)
{
    for (uint32_t idle = 0; limit > 0 && idle < 16; limit--) {
        idle = world_turn(world, MILL_NS_PER_MS) == 0 ? idle + 1 : 0;
    }
}
