/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: with flush.messages=1 what was acknowledged is there after the power was cut, at the same
 * offset, once and unchanged, and the log goes on. Method: a whole data plane on virtual time over
 * the modelled disk (disk_model.h), in one or several log directories, with segments of a few
 * batches; the power goes in the middle of a file call that the seed chooses, also during a start,
 * and takes all memory with it; then what was not synced is lost, torn and reordered as the seed
 * says. test_power [SEED [COUNT]]: other seeds than the usual ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/core/core_types.h"
#include "tests/sim/disk_model.h"
#include "tests/sim/world.h"

enum {
    PARTITIONS = 5,
    VALUES_PER_BATCH = 3,
    IN_FLIGHT_MAX = 4,
    CUTS_PER_SEED = 10,
    SEEDS = 4, /* scripts/test power-cut runs more */
    CALLS_BETWEEN_CUTS = 700,
    CALLS_OF_A_START = 60, /* some cuts come so soon after one that they hit the start */
    TURNS_MAX = 200000,
};

static const char topic[] = "power";

struct worker {
    struct world_client client;
    int32_t partition;
    int64_t producer_id;
    uint64_t acked_batches;
    uint64_t sent_batches; /* on this connection */
    bool connected;
};

struct run {
    struct world world;
    struct disk_model *disk;
    struct worker workers[PARTITIONS];
    uint32_t cuts;
    uint32_t start_cuts; /* of these, before the start was over */
};

static uint32_t padding_of(uint64_t batch)
{
    uint64_t mixed = batch * 0x9e3779b97f4a7c15ull;
    return (mixed >> 60) == 0 ? 5000 : (uint32_t)(mixed >> 55);
}

static void worker_disconnect(struct worker *worker)
{
    if (worker->connected) {
        world_disconnect(&worker->client);
        worker->connected = false;
    }
}

/* Answers: while there is power all is well; when it went, what is told is still true, and the rest
 * is refused. */
static void worker_read(struct run *run, struct worker *worker)
{
    uint32_t bytes;
    while (world_answer(&worker->client, &bytes)) {
        struct world_produced produced = world_produced_read(&worker->client, topic);
        MILL_ASSERT(produced.error == 0 || disk_model_is_cut(run->disk));
        if (produced.error != 0) {
            continue;
        }
        MILL_ASSERT_EQ(produced.base_offset, (int64_t)(worker->acked_batches * VALUES_PER_BATCH));
        worker->acked_batches++;
    }
}

static void worker_step(struct run *run, struct worker *worker)
{
    struct world *world = &run->world;
    if (!worker->connected) {
        world_connect(world, &worker->client,
                      mill_random_below(&world->random, world->cores_count));
        worker->sent_batches = worker->acked_batches;
        worker->connected = true;
    }
    worker_read(run, worker);
    MILL_ASSERT(!mem_ended(worker->client.peer));
    if (worker->sent_batches < worker->acked_batches + IN_FLIGHT_MAX &&
        mill_random_below(&world->random, 4) == 0) {
        uint64_t batch = worker->sent_batches++;
        world_produce_send(&worker->client, topic, worker->partition, worker->producer_id,
                           (int32_t)(batch * VALUES_PER_BATCH), batch * VALUES_PER_BATCH,
                           VALUES_PER_BATCH, padding_of(batch));
    }
}

static void check_partition(struct run *run, const struct worker *worker)
{
    struct world *world = &run->world;
    struct world_client reader;
    uint64_t seen = 0;
    int64_t offset = 0;
    world_connect(world, &reader, mill_random_below(&world->random, world->cores_count));
    for (;;) {
        uint64_t first;
        uint64_t count;
        int16_t error;
        int64_t next = world_fetch(&reader, topic, worker->partition, offset, 100000, -1, &first,
                                   &count, &error);
        MILL_ASSERT_EQ(error, 0);
        if (count == 0) {
            break;
        }
        MILL_ASSERT_EQ(first, seen);
        seen += count;
        MILL_ASSERT_EQ(next, (int64_t)seen);
        offset = next;
    }
    MILL_ASSERT_LE(worker->acked_batches * VALUES_PER_BATCH, seen);
    MILL_ASSERT_LE(seen, (worker->acked_batches + IN_FLIGHT_MAX) * VALUES_PER_BATCH);
    world_disconnect(&reader);
}

/* Turns until the power goes. */
static void run_until_cut(struct run *run)
{
    struct world *world = &run->world;
    for (uint32_t turn = 0; !disk_model_is_cut(run->disk); turn++) {
        MILL_ASSERT_LT(turn, (uint32_t)TURNS_MAX);
        worker_step(run, &run->workers[mill_random_below(&world->random, PARTITIONS)]);
        world_turn(world, MILL_NS_PER_MS);
    }
    /* A while without power: nothing may be acknowledged from now on that was not synced before. */
    for (uint32_t turn = 0; turn < 200; turn++) {
        worker_step(run, &run->workers[mill_random_below(&world->random, PARTITIONS)]);
        world_turn(world, MILL_NS_PER_MS);
    }
}

static void next_cut(struct run *run, uint32_t calls_max)
{
    disk_model_faults(run->disk)->calls_until_cut =
        1 + mill_random_below(&run->world.random, calls_max);
}

/* Power off, power on, as often as it takes. */
static void cut(struct run *run)
{
    struct world *world = &run->world;
    bool on = false;
    for (uint32_t w = 0; w < PARTITIONS; w++) {
        worker_read(run, &run->workers[w]);
        worker_disconnect(&run->workers[w]);
    }
    world_power_off(world);
    for (uint32_t tries = 0; !on; tries++) {
        disk_model_crash(run->disk);
        run->cuts++;
        if (tries < 3 && mill_random_below(&world->random, 3) == 0) {
            next_cut(run, CALLS_OF_A_START);
        }
        on = world_power_on(world);
        if (on && disk_model_is_cut(run->disk)) {
            world_power_off(world); /* the start went through without its disk: partitions failed */
            on = false;
        }
        run->start_cuts += on ? 0 : 1;
    }
    disk_model_faults(run->disk)->calls_until_cut = UINT64_MAX;
}

static void run_seed(uint64_t seed)
{
    struct run run = {.disk = disk_model_new(seed)};
    uint32_t cores = 1 + (uint32_t)(seed % 2);
    MILL_ASSERT(run.disk != NULL);
    struct world_disk disk = {.files = disk_model_calls(run.disk),
                              .dirs_count = 1 + (uint32_t)(seed % 3),
                              .segment_bytes = 8000 + 4000 * (uint32_t)(seed % 5)};
    world_open_on(&run.world, cores, seed, &disk);
    world_topic(&run.world, topic, PARTITIONS, "flush.messages", "1");
    for (int32_t i = 0; i < PARTITIONS; i++) {
        run.workers[i].partition = i;
        run.workers[i].producer_id = 100 + i;
    }
    while (run.cuts < CUTS_PER_SEED) {
        next_cut(&run, CALLS_BETWEEN_CUTS);
        run_until_cut(&run);
        cut(&run);
        for (uint32_t i = 0; i < PARTITIONS; i++) {
            check_partition(&run, &run.workers[i]);
        }
    }
    uint64_t acked = 0;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        acked += run.workers[i].acked_batches;
    }
    const struct disk_model_counts *counts = disk_model_counts(run.disk);
    MILL_ASSERT_LT(0ull, acked);
    MILL_ASSERT_LT(0ull, counts->lost_bytes);
    printf("seed %llu: %u cuts, %u of them during a start; %llu batches acknowledged, all there; "
           "%llu bytes and %llu names lost\n",
           (unsigned long long)seed, run.cuts, run.start_cuts, (unsigned long long)acked,
           (unsigned long long)counts->lost_bytes, (unsigned long long)counts->lost_names);
    world_close(&run.world);
    disk_model_free(run.disk);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? 1 : SEEDS;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("[ RUN      ] power_cuts\n");
    for (uint64_t seed = first; seed < first + count; seed++) {
        run_seed(seed);
    }
    printf("[       OK ] power_cuts\n");
    return 0;
}
