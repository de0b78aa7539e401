/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever is killed or stopped, a read_committed consumer gets each record of each committed
 * transaction once, in order, none of an aborted or an open one, and waits no longer than for the
 * marker. Method: a data plane on virtual time (world.h). The test plays producers, whose batches
 * it appends on the owner's core (no coordinator vouches for a client's yet), the coordinator,
 * which sends markers until they are answered, and consumers, which filter as clients do, all from
 * one seed. test_txn [SEED]: that seed alone
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "dataplane/core/core_types.h"
#include "dataplane/log/log_types.h"
#include "tests/sim/world.h"
#include "tests/unit/test.h"

enum {
    LIST_OFFSETS_KEY = 2,
    WRITE_TXN_MARKERS_KEY = 27,
    PARTITIONS = 3,
    PRODUCERS = 3, /* of each partition */
    BATCHES_MAX = 20000,
    ROUNDS = 10,
    TURNS_PER_ROUND = 250,
    SEEDS_DEFAULT = 6,
    SEEDS_FULL = 300,
    MARKER_FRAME_BYTES = 128,
};

static const char topic[] = "txns";

enum fate { OPEN, COMMITTED, ABORTED };

struct batch {
    int64_t base_offset;
    uint64_t txn; /* number of its transaction */
};

struct producer {
    int64_t id;
    int32_t sequence;
    uint64_t txn; /* 0: none */
    bool ending;  /* its marker is to be written */
    bool sent;
};

struct part {
    int32_t index;
    struct producer producers[PRODUCERS];
    struct batch batches[BATCHES_MAX];
    uint32_t batches_count;
};

struct run {
    struct world world;
    struct part parts[PARTITIONS];
    uint8_t fates[BATCHES_MAX * PARTITIONS];
    uint64_t txns; /* numbers given */
    struct world_client coordinator;
    struct producer *asked; /* whose marker is under way, NULL none */
    bool connected;
};

/* --- producers -------------------------------------------------------------------------------- */

static struct mill_partition *partition_of(struct run *run, int32_t index, struct mill_core **ret)
{
    const struct mill_map_topic *found =
        mill_map_topic_by_name(run->world.map, topic, sizeof(topic) - 1);
    MILL_ASSERT(found != NULL);
    uint32_t owner = mill_owner_of(&found->id, index, run->world.cores_count);
    *ret = run->world.cores[owner].core;
    return mill_log_find((*ret)->log, &found->id, index);
}

static uint32_t build(uint8_t *to, int64_t id, int32_t sequence, uint32_t value_bytes)
{
    static uint8_t record[8 + 4000];
    uint32_t size = 6;
    /* Attributes, deltas, no key, the value (below 8,192 bytes), no headers. */
    memcpy(record, (const uint8_t[]){0, 0, 0, 1}, 4);
    record[4] = (uint8_t)(value_bytes << 1 | 0x80);
    record[5] = (uint8_t)(value_bytes >> 6);
    memset(record + size, (int)sequence, value_bytes);
    size += value_bytes;
    record[size++] = 0;
    uint32_t at = MILL_BATCH_HEADER_BYTES;
    to[at++] = (uint8_t)(size << 1 | 0x80);
    to[at++] = (uint8_t)(size >> 6);
    memcpy(to + at, record, size);
    at += size;
    memset(to, 0, MILL_BATCH_HEADER_BYTES);
    mill_store_be32(to + 8, at - 12);
    to[16] = 2;
    mill_store_be16(to + 21, MILL_BATCH_TRANSACTIONAL);
    mill_store_be64(to + 27, 1700000000000);
    mill_store_be64(to + 35, 1700000000000);
    mill_store_be64(to + 43, (uint64_t)id);
    mill_store_be32(to + 53, (uint32_t)sequence);
    mill_store_be32(to + 57, 1);
    mill_store_be32(to + 17, mill_crc32c(to + 21, at - 21));
    return at;
}

static void produce(struct run *run, struct part *part, struct producer *producer)
{
    static uint8_t bytes[5000];
    struct mill_core *core;
    struct mill_partition *partition = partition_of(run, part->index, &core);
    struct mill_buf buf;
    struct mill_append_result result;
    struct mill_log_watch watch = {0};
    if (!partition || part->batches_count == BATCHES_MAX) {
        return; /* between two starts */
    }
    uint32_t value_bytes = 64 + mill_random_below(&run->world.random, 2000);
    struct mill_append append = {
        .size_bytes = build(bytes, producer->id, producer->sequence, value_bytes),
        .api_version = 9,
        .acks = -1,
        .transactional_id = true,
    };
    append.records = mill_cursor_over(&buf, bytes, append.size_bytes);
    if (mill_log_grant(partition, producer->id, 0) != MILL_KERR_NONE) {
        return;
    }
    int r = mill_log_append(partition, &append, run->world.now, &watch, &result);
    if (r != 0 || result.error == MILL_KERR_NOT_LEADER_OR_FOLLOWER) {
        return;
    }
    MILL_ASSERT_EQ(result.error, 0);
    producer->sequence++;
    if (producer->txn == 0) {
        producer->txn = ++run->txns;
        run->fates[producer->txn] = OPEN;
    }
    part->batches[part->batches_count++] =
        (struct batch){.base_offset = result.base_offset, .txn = producer->txn};
}

/* --- the coordinator ----------------------------------------------------------------------------
 */

static void coordinator_send(struct run *run, int32_t partition, const struct producer *producer)
{
    uint8_t body[MARKER_FRAME_BYTES];
    uint32_t at = 0;
    body[at++] = 0; /* of the header */
    body[at++] = 2; /* one marker */
    mill_store_be64(body + at, (uint64_t)producer->id);
    mill_store_be16(body + at + 8, 0);
    body[at + 10] = run->fates[producer->txn] == COMMITTED;
    at += 11;
    body[at++] = 2; /* one topic */
    body[at++] = sizeof(topic);
    memcpy(body + at, topic, sizeof(topic) - 1);
    at += sizeof(topic) - 1;
    body[at++] = 2; /* one partition */
    mill_store_be32(body + at, (uint32_t)partition);
    at += 4;
    body[at++] = 0;
    mill_store_be32(body + at, 3); /* coordinator epoch */
    at += 4;
    body[at++] = 0;
    body[at++] = 0;
    world_send(&run->coordinator, WRITE_TXN_MARKERS_KEY, 1, body, at);
}

static void coordinator_drop(struct run *run)
{
    if (run->connected) {
        world_disconnect(&run->coordinator);
        run->connected = false;
    }
    run->asked = NULL;
}

static void coordinator_take(struct run *run)
{
    uint32_t bytes;
    while (run->asked && world_answer(&run->coordinator, &bytes)) {
        int16_t error = (int16_t)mill_load_be16(run->coordinator.answer + bytes - 6);
        if (error == 0) {
            run->asked->txn = 0;
            run->asked->ending = false;
        } else {
            /* Its partition is not open yet, after a start. */
            MILL_ASSERT_EQ(error, MILL_KERR_NOT_LEADER_OR_FOLLOWER);
        }
        run->asked = NULL;
    }
    if (run->connected && mem_ended(run->coordinator.peer)) {
        coordinator_drop(run);
    }
}

static void step(struct run *run)
{
    struct part *part = &run->parts[mill_random_below(&run->world.random, PARTITIONS)];
    struct producer *producer = &part->producers[mill_random_below(&run->world.random, PRODUCERS)];
    coordinator_take(run);
    if (!producer->ending && mill_random_below(&run->world.random, 4) > 0) {
        produce(run, part, producer);
        return;
    }
    if (producer->txn == 0 || run->asked) {
        return;
    }
    if (!producer->ending) {
        producer->ending = true;
        run->fates[producer->txn] =
            mill_random_below(&run->world.random, 2) == 0 ? COMMITTED : ABORTED;
    }
    if (!run->connected) {
        world_connect(&run->world, &run->coordinator,
                      mill_random_below(&run->world.random, run->world.cores_count));
        run->connected = true;
    }
    run->asked = producer;
    coordinator_send(run, part->index, producer);
}

/* --- a consumer ---------------------------------------------------------------------------------
 */

enum {
    ABORTED_SEEN_MAX = 4000,
};

/* As clients do: transactions of the list begin at their first offset and end at their marker. */
struct filter {
    int64_t list[ABORTED_SEEN_MAX][2];
    uint32_t count;
};

static bool is_aborted(struct filter *filter, const struct mill_batch *batch, const uint8_t *bytes)
{
    struct mill_marker marker;
    bool control = (batch->attributes & MILL_BATCH_CONTROL) != 0;
    bool ends = control && mill_marker_read(bytes, mill_batch_size_bytes(batch), &marker) == 0 &&
                marker.type == MILL_MARKER_ABORT;
    for (uint32_t i = 0; i < filter->count; i++) {
        if (filter->list[i][0] != batch->producer_id || filter->list[i][1] > batch->base_offset) {
            continue;
        }
        if (ends) {
            filter->count--;
            memmove(&filter->list[i], &filter->list[i + 1],
                    (filter->count - i) * sizeof(filter->list[0]));
        }
        return true;
    }
    return false;
}

/* Reads one answer. ret: the next offset; each record that a consumer gets is compared with the
 * next committed batch of the model, *next. */
static int64_t answer_check(struct run *run, struct part *part, const uint8_t *answer,
                            int64_t offset, uint32_t *next)
{
    static struct filter filter;
    uint32_t pos = 4 + 4 + 2 + 4 + 4 + 2 + (uint32_t)strlen(topic) + 4 + 4;
    MILL_ASSERT_EQ((int16_t)mill_load_be16(answer + pos), 0);
    int64_t stable = (int64_t)mill_load_be64(answer + pos + 10);
    pos += 2 + 8 + 8 + 8;
    filter.count = mill_load_be32(answer + pos);
    MILL_ASSERT_LT(filter.count, (uint32_t)ABORTED_SEEN_MAX);
    pos += 4;
    for (uint32_t i = 0; i < filter.count; i++, pos += 16) {
        filter.list[i][0] = (int64_t)mill_load_be64(answer + pos);
        filter.list[i][1] = (int64_t)mill_load_be64(answer + pos + 8);
    }
    uint32_t size = mill_load_be32(answer + pos);
    const uint8_t *bytes = answer + pos + 4;
    for (uint32_t at = 0; at < size;) {
        struct mill_batch batch;
        mill_batch_read(bytes + at, &batch);
        bool aborted = is_aborted(&filter, &batch, bytes + at);
        at += mill_batch_size_bytes(&batch);
        MILL_ASSERT_LT(mill_batch_last_offset(&batch), stable);
        if (!aborted && !(batch.attributes & MILL_BATCH_CONTROL) && batch.base_offset >= offset) {
            while (*next < part->batches_count &&
                   run->fates[part->batches[*next].txn] != COMMITTED) {
                (*next)++;
            }
            MILL_ASSERT_LT(*next, part->batches_count);
            MILL_ASSERT_EQ(part->batches[*next].base_offset, batch.base_offset);
            (*next)++;
        }
        offset = mill_batch_last_offset(&batch) + 1;
    }
    return offset;
}

/* ret: what the consumer has read when there is nothing more for it. */
static int64_t consume(struct run *run, struct part *part)
{
    struct world_client client;
    uint32_t next = 0;
    int64_t offset = 0;
    world_connect(&run->world, &client,
                  mill_random_below(&run->world.random, run->world.cores_count));
    for (;;) {
        struct world_fetch_options options = {
            .bytes_min = 1,
            .bytes_max = 100000,
            .partition_bytes_max = 500 + (int32_t)mill_random_below(&run->world.random, 60000),
            .first_partition = part->index,
            .offset = offset,
            .session_epoch = -1,
            .committed = true,
        };
        world_fetch_send(&client, topic, 1, &options);
        world_await(&client);
        int64_t end = answer_check(run, part, client.answer, offset, &next);
        if (end == offset) {
            break;
        }
        offset = end;
    }
    world_disconnect(&client);
    /* Nothing that was committed before the end was left out. */
    for (; next < part->batches_count && part->batches[next].base_offset < offset; next++) {
        MILL_ASSERT(run->fates[part->batches[next].txn] != COMMITTED);
    }
    return offset;
}

/* --- the run
 * -------------------------------------------------------------------------------------- */

static void turns(struct run *run, uint32_t count, bool work)
{
    for (uint32_t i = 0; i < count; i++) {
        if (work) {
            step(run);
        } else {
            coordinator_take(run);
        }
        world_turn(&run->world, MILL_NS_PER_MS);
    }
}

static void disturb(struct run *run)
{
    switch (mill_random_below(&run->world.random, 5)) {
    case 0: /* killed while nothing reaches the files */
        run->world.store_stopped = true;
        turns(run, 60, true);
        run->world.store_stopped = false;
        __attribute__((fallthrough));
    case 1:
        coordinator_drop(run);
        world_crash(&run->world);
        break;
    case 2:
        coordinator_drop(run);
        world_restart(&run->world);
        break;
    case 3:
        coordinator_drop(run); /* the marker may have been written, or not */
        break;
    default:
        consume(run, &run->parts[mill_random_below(&run->world.random, PARTITIONS)]);
        break;
    }
}

/* Every transaction is ended. */
static void end_all(struct run *run)
{
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t p = 0; p < PARTITIONS; p++) {
            for (uint32_t i = 0; i < PRODUCERS; i++) {
                struct producer *producer = &run->parts[p].producers[i];
                if (producer->txn != 0 && !producer->ending) {
                    producer->ending = true;
                    run->fates[producer->txn] = i % 2 == 0 ? COMMITTED : ABORTED;
                }
                again = again || producer->txn != 0;
            }
        }
        for (uint32_t p = 0; p < PARTITIONS && !run->asked; p++) {
            for (uint32_t i = 0; i < PRODUCERS && !run->asked; i++) {
                struct producer *producer = &run->parts[p].producers[i];
                if (producer->txn == 0) {
                    continue;
                }
                if (!run->connected) {
                    world_connect(&run->world, &run->coordinator, 0);
                    run->connected = true;
                }
                run->asked = producer;
                coordinator_send(run, (int32_t)p, producer);
            }
        }
        turns(run, 5, false);
    }
}

static void run_seed(uint64_t seed, uint32_t cores)
{
    struct run *run = calloc(1, sizeof(*run));
    MILL_ASSERT(run != NULL);
    world_open(&run->world, cores, seed);
    world_topic(&run->world, topic, PARTITIONS, "flush.messages",
                seed % 2 == 0 ? "1" : "9223372036854775807");
    for (int32_t p = 0; p < PARTITIONS; p++) {
        run->parts[p].index = p;
        for (int32_t i = 0; i < PRODUCERS; i++) {
            run->parts[p].producers[i].id = 1000 + p * 10 + i;
        }
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        turns(run, TURNS_PER_ROUND, true);
        disturb(run);
    }
    end_all(run);
    uint64_t batches = 0;
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        struct mill_core *core;
        int64_t end = mill_partition_end(partition_of(run, (int32_t)p, &core));
        world_settle(&run->world, 10000);
        MILL_ASSERT_EQ(consume(run, &run->parts[p]), end);
        batches += run->parts[p].batches_count;
    }
    coordinator_drop(run);
    world_settle(&run->world, 10000);
    for (uint32_t i = 0; i < cores; i++) {
        const struct mill_core *core = run->world.cores[i].core;
        MILL_ASSERT_EQ(run->world.cores[i].loans.loaned_bytes, 0ull);
        MILL_ASSERT_EQ(core->retired_count, 0u);
        MILL_ASSERT_EQ(mill_log_stats(core->log)->transactions, 0ull);
        MILL_ASSERT(mill_log_idle(core->log));
    }
    world_close(&run->world);
    printf("seed %llu cores %u: %llu transactions, %llu batches\n", (unsigned long long)seed, cores,
           (unsigned long long)run->txns, (unsigned long long)batches);
    free(run);
}

/* A waiting fetch of a read_committed consumer ends with the marker, not with data nor its time. */
static void test_waiting_fetch_ends_with_the_marker(void **state)
{
    MILL_UNUSED(state);
    struct run *run = calloc(1, sizeof(*run));
    MILL_ASSERT(run != NULL);
    struct world_client consumer;
    uint32_t bytes;
    uint32_t next = 0;
    world_open(&run->world, 2, 5);
    world_topic(&run->world, topic, PARTITIONS, "segment.bytes", "1048576");
    for (int32_t p = 0; p < PARTITIONS; p++) {
        struct part *part = &run->parts[p];
        part->index = p;
        part->producers[0].id = 50 + p;
        world_connect(&run->world, &consumer, (uint32_t)p % 2);
        struct world_fetch_options options = {
            .wait_ms = 60000,
            .bytes_min = 1,
            .bytes_max = 100000,
            .partition_bytes_max = 100000,
            .first_partition = p,
            .session_epoch = -1,
            .committed = true,
        };
        world_fetch_send(&consumer, topic, 1, &options);
        turns(run, 50, false);
        produce(run, part, &part->producers[0]);
        produce(run, part, &part->producers[0]);
        turns(run, 200, false);
        MILL_ASSERT(!world_answer(&consumer, &bytes));
        run->fates[part->producers[0].txn] = COMMITTED;
        world_connect(&run->world, &run->coordinator, 0);
        run->connected = true;
        run->asked = &part->producers[0];
        coordinator_send(run, p, &part->producers[0]);
        turns(run, 200, false);
        MILL_ASSERT(!run->asked);
        MILL_ASSERT(world_answer(&consumer, &bytes));
        next = 0;
        MILL_ASSERT_EQ(answer_check(run, part, consumer.answer, 0, &next), 3ll);
        MILL_ASSERT_EQ(next, 2u);
        world_disconnect(&consumer);
        coordinator_drop(run);
    }
    world_close(&run->world);
    free(run);
}

/* ListOffsets v2: the latest offset of a read_committed consumer is the last stable one. */
static void test_latest_of_committed_is_stable(void **state)
{
    MILL_UNUSED(state);
    struct run *run = calloc(1, sizeof(*run));
    MILL_ASSERT(run != NULL);
    world_open(&run->world, 2, 6);
    world_topic(&run->world, topic, PARTITIONS, "segment.bytes", "1048576");
    run->parts[1].index = 1;
    produce(run, &run->parts[1], &run->parts[1].producers[0]);
    for (uint8_t committed = 0; committed < 2; committed++) {
        struct world_client client;
        uint8_t body[64];
        uint32_t at = 0;
        mill_store_be32(body, UINT32_MAX); /* a consumer */
        body[4] = committed;
        mill_store_be32(body + 5, 1);
        mill_store_be16(body + 9, sizeof(topic) - 1);
        memcpy(body + 11, topic, sizeof(topic) - 1);
        at = 11 + sizeof(topic) - 1;
        mill_store_be32(body + at, 1);
        mill_store_be32(body + at + 4, 1); /* the partition */
        mill_store_be64(body + at + 8, UINT64_MAX);
        world_connect(&run->world, &client, 0);
        world_send(&client, LIST_OFFSETS_KEY, 2, body, at + 16);
        uint32_t bytes = world_await(&client);
        MILL_ASSERT_EQ((int64_t)mill_load_be64(client.answer + bytes - 8), committed ? 0ll : 1ll);
        world_disconnect(&client);
    }
    world_close(&run->world);
    free(run);
}

static void test_consumers_get_what_was_committed(void **state)
{
    MILL_UNUSED(state);
    const char *full = getenv("MILLRACE_FULL");
    uint64_t count = full && strcmp(full, "1") == 0 ? SEEDS_FULL : SEEDS_DEFAULT;
    for (uint64_t seed = 1; seed <= count; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        run_seed(seed, 1 + (uint32_t)(seed % 3));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting_fetch_ends_with_the_marker),
        cmocka_unit_test(test_latest_of_committed_is_stable),
        cmocka_unit_test(test_consumers_get_what_was_committed),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        uint64_t seed = strtoull(argv[1], NULL, 0);
        run_seed(seed, 1 + (uint32_t)(seed % 3));
        return 0;
    }
    return cmocka_run_group_tests_name("txn", tests, NULL, NULL);
}
