/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever the order of turns, the sizes of buffers, the pace of readers, crashes and stops:
 * what was acknowledged is there, once, in order, unchanged; and every loan comes back. Method: a
 * data plane on virtual time (world.h), one idempotent producer per partition that sends each
 * batch, in any codec, again when its connection or the broker died, to a topic that takes them as
 * they are, looks into them or recompresses them, all from one seed. test_broker [SEED]     one
 * seed in place of the usual ones
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/core/core_types.h"
#include "tests/sim/world.h"

enum {
    PARTITIONS = 5,
    VALUES_PER_BATCH = 3,
    IN_FLIGHT_MAX = 4,
    ROUNDS = 12,
    TURNS_PER_ROUND = 400,
    SEEDS_DEFAULT = 12,
    SEEDS_FULL = 1000,
};

static const char topic[] = "sim";

/* What the topic of a seed is like; codec: what its batches must be stored with, -1 any. */
static const struct {
    const char *key;
    const char *value;
    int codec;
} kinds[] = {
    {"segment.bytes", "1048576", -1},
    {"compression.type", "zstd", MILL_CODEC_ZSTD},
    {"cleanup.policy", "compact", -1},
    {"compression.type", "uncompressed", MILL_CODEC_NONE},
    {"compression.type", "gzip", MILL_CODEC_GZIP},
    {"compression.type", "snappy", MILL_CODEC_SNAPPY},
    {"compression.type", "lz4", MILL_CODEC_LZ4},
};

struct worker {
    struct world_client client;
    int32_t partition;
    int64_t producer_id;
    int stored_codec; /* kinds */
    uint64_t acked_batches;
    uint64_t sent_batches; /* on this connection */
    bool connected;
};

static uint32_t padding_of(uint64_t batch)
{
    uint64_t mixed = batch * 0x9e3779b97f4a7c15ull;
    return (mixed >> 60) == 0 ? 20000 : (uint32_t)(mixed >> 55);
}

static void worker_connect(struct world *world, struct worker *worker)
{
    world_connect(world, &worker->client, mill_random_below(&world->random, world->cores_count));
    worker->sent_batches = worker->acked_batches;
    worker->connected = true;
}

static void worker_disconnect(struct worker *worker)
{
    if (worker->connected) {
        world_disconnect(&worker->client);
        worker->connected = false;
    }
}

static void worker_step(struct world *world, struct worker *worker)
{
    uint32_t bytes;
    if (!worker->connected) {
        worker_connect(world, worker);
    }
    while (world_answer(&worker->client, &bytes)) {
        struct world_produced produced = world_produced_read(&worker->client, topic);
        MILL_ASSERT_EQ(produced.error, 0);
        MILL_ASSERT_EQ(produced.base_offset, (int64_t)(worker->acked_batches * VALUES_PER_BATCH));
        worker->acked_batches++;
    }
    if (mem_ended(worker->client.peer)) {
        worker_disconnect(worker);
        return;
    }
    if (worker->sent_batches < worker->acked_batches + IN_FLIGHT_MAX &&
        mill_random_below(&world->random, 4) == 0) {
        uint64_t batch = worker->sent_batches++;
        worker->client.codec = (enum mill_codec)mill_random_below(&world->random, MILL_CODEC_COUNT);
        world_produce_send(&worker->client, topic, worker->partition, worker->producer_id,
                           (int32_t)(batch * VALUES_PER_BATCH), batch * VALUES_PER_BATCH,
                           VALUES_PER_BATCH, padding_of(batch));
    }
}

static void check_partition(struct world *world, const struct worker *worker)
{
    struct world_client reader;
    uint64_t seen = 0;
    int64_t offset = 0;
    world_connect(world, &reader, mill_random_below(&world->random, world->cores_count));
    for (;;) {
        uint64_t first;
        uint64_t count;
        int16_t error;
        uint32_t limit = 1000 + mill_random_below(&world->random, 200000);
        int64_t next = world_fetch(&reader, topic, worker->partition, offset, limit,
                                   worker->stored_codec, &first, &count, &error);
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
    world_disconnect(&reader);
}

static void disturb(struct world *world, struct worker *workers)
{
    switch (mill_random_below(&world->random, 6)) {
    case 0: /* killed while nothing reaches the files */
        world->store_stopped = true;
        for (uint32_t i = 0; i < 50; i++) {
            for (uint32_t w = 0; w < PARTITIONS; w++) {
                worker_step(world, &workers[w]);
            }
            world_turn(world, MILL_NS_PER_MS);
        }
        world->store_stopped = false;
        __attribute__((fallthrough));
    case 1:
        for (uint32_t w = 0; w < PARTITIONS; w++) {
            worker_disconnect(&workers[w]);
        }
        world_crash(world);
        break;
    case 2:
        for (uint32_t w = 0; w < PARTITIONS; w++) {
            worker_disconnect(&workers[w]);
        }
        world_restart(world);
        break;
    case 3:
        world_crash_control(world);
        break;
    case 4:
        worker_disconnect(&workers[mill_random_below(&world->random, PARTITIONS)]);
        break;
    default:
        check_partition(world, &workers[mill_random_below(&world->random, PARTITIONS)]);
        break;
    }
}

static void run_seed(uint64_t seed, uint32_t cores)
{
    struct world world;
    struct worker workers[PARTITIONS];
    memset(workers, 0, sizeof(workers));
    world_open(&world, cores, seed);
    uint32_t kind = (uint32_t)(seed % MILL_COUNT_OF(kinds));
    world_topic(&world, topic, PARTITIONS, kinds[kind].key, kinds[kind].value);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        workers[i].partition = i;
        workers[i].producer_id = 100 + i;
        workers[i].stored_codec = kinds[kind].codec;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t turn = 0; turn < TURNS_PER_ROUND; turn++) {
            worker_step(&world, &workers[mill_random_below(&world.random, PARTITIONS)]);
            world_turn(&world, MILL_NS_PER_MS);
        }
        disturb(&world, workers);
    }
    uint64_t acked = 0;
    uint64_t looked = 0;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        check_partition(&world, &workers[i]);
        acked += workers[i].acked_batches;
        worker_disconnect(&workers[i]);
    }
    world_settle(&world, 10000);
    for (uint32_t i = 0; i < cores; i++) {
        MILL_ASSERT_EQ(world.cores[i].loans.loaned_bytes, 0ull);
        MILL_ASSERT(mill_log_idle(world.cores[i].core->log));
        looked += mill_log_stats(world.cores[i].core->log)->batches_inspected;
    }
    MILL_ASSERT_LT(0ull, acked);
    /* Of this life: the last start may have been a moment ago. */
    MILL_ASSERT(looked == 0 || kind > 0);
    world_close(&world);
    printf("seed %llu cores %u %s=%s: %llu batches acknowledged, all there, %llu looked into\n",
           (unsigned long long)seed, cores, kinds[kind].key, kinds[kind].value,
           (unsigned long long)acked, (unsigned long long)looked);
}

int main(int argc, char **argv)
{
    const char *full = getenv("MILLRACE_FULL");
    uint64_t count = full && strcmp(full, "1") == 0 ? SEEDS_FULL : SEEDS_DEFAULT;
    uint64_t first = 1;
    if (argc > 1) {
        first = strtoull(argv[1], NULL, 0);
        count = 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t seed = first; seed < first + count; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        run_seed(seed, 1 + (uint32_t)(seed % 3));
    }
    return 0;
}
