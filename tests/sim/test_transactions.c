/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever is killed when, a transaction is whole or nothing: each record of a committed one
 * is read once by who reads committed records, no record of another one, and the offset that was
 * committed with it is the group's. Method: a whole broker on virtual time (world.h); producers
 * with transactional ids, each with a group, do what clients do: they begin anew where they are
 * told to and repeat what may be repeated. Each transaction is of either version of KIP-890, and a
 * batch of one of version 2 may come once more after its end. Control and the data plane are killed
 * between any two turns. test_transactions [SEED]     one seed in place of the usual ones */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/txn_workers.h"
#include "tests/unit/test.h"

enum {
    ROUNDS = 12,
    TURNS_PER_ROUND = 700,
    SEEDS_DEFAULT = 10,
    SEEDS_FULL = 400,
    BODY_BYTES = 2048,
    FETCH_VERSION = 5,
};

/* --- readers -----------------------------------------------------------------------------------
 */

enum {
    ABORTED_SEEN_MAX = 4000,
};

struct reader {
    int64_t aborted[ABORTED_SEEN_MAX][2]; /* producer id, first offset */
    uint32_t aborted_count;
    uint8_t seen[TXNS_MAX];
};

static bool is_aborted(struct reader *reader, const struct mill_batch *batch, const uint8_t *bytes)
{
    struct mill_marker marker;
    bool control = (batch->attributes & MILL_BATCH_CONTROL) != 0;
    bool ends = control && mill_marker_read(bytes, mill_batch_size_bytes(batch), &marker) == 0 &&
                marker.type == MILL_MARKER_ABORT;
    for (uint32_t i = 0; i < reader->aborted_count; i++) {
        if (reader->aborted[i][0] != batch->producer_id ||
            reader->aborted[i][1] > batch->base_offset) {
            continue;
        }
        if (ends) {
            reader->aborted_count--;
            memmove(&reader->aborted[i], &reader->aborted[i + 1],
                    (reader->aborted_count - i) * sizeof(reader->aborted[0]));
        }
        return true;
    }
    return false;
}

/* Takes one answer of a Fetch version 10. ret: the next offset. */
static int64_t answer_read(struct run *run, struct reader *reader, const uint8_t *answer,
                           int64_t offset)
{
    uint32_t pos = 4 + 4 + 2 + 4 + 4 + 2 + (uint32_t)strlen(topic) + 4 + 4;
    MILL_ASSERT_EQ((int16_t)mill_load_be16(answer + pos), 0);
    pos += 2 + 8 + 8 + 8;
    reader->aborted_count = mill_load_be32(answer + pos);
    MILL_ASSERT_LT(reader->aborted_count, (uint32_t)ABORTED_SEEN_MAX);
    pos += 4;
    for (uint32_t i = 0; i < reader->aborted_count; i++, pos += 16) {
        reader->aborted[i][0] = (int64_t)mill_load_be64(answer + pos);
        reader->aborted[i][1] = (int64_t)mill_load_be64(answer + pos + 8);
    }
    uint32_t size = mill_load_be32(answer + pos);
    const uint8_t *bytes = answer + pos + 4;
    for (uint32_t at = 0; at < size;) {
        struct mill_batch batch;
        mill_batch_read(bytes + at, &batch);
        bool aborted = is_aborted(reader, &batch, bytes + at);
        if (!aborted && !(batch.attributes & MILL_BATCH_CONTROL) && batch.base_offset >= offset) {
            uint64_t number = mill_load_be64(bytes + at + MILL_BATCH_HEADER_BYTES + 6);
            MILL_ASSERT_LT(number, (uint64_t)TXNS_MAX);
            /* None of one that is not committed, or about to be. */
            MILL_ASSERT(run->txns[number].fate == COMMITTED ||
                        run->txns[number].fate == COMMITTING);
            reader->seen[number]++;
        }
        at += mill_batch_size_bytes(&batch);
        offset = mill_batch_last_offset(&batch) + 1;
    }
    return offset;
}

/* Reads committed records of a partition. all: every transaction has ended. */
static void read_partition(struct run *run, int32_t partition, bool all)
{
    static struct reader reader;
    struct world_client client;
    int64_t offset = 0;
    memset(&reader, 0, sizeof(reader));
    world_connect(&run->world, &client,
                  mill_random_below(&run->world.random, run->world.cores_count));
    for (;;) {
        const struct world_fetch_options options = {
            .bytes_min = 1,
            .bytes_max = 1 << 20,
            .partition_bytes_max = 1 << 20,
            .first_partition = partition,
            .offset = offset,
            .session_epoch = -1,
            .committed = true,
        };
        world_fetch_send(&client, topic, 1, &options);
        world_await(&client);
        int64_t next = answer_read(run, &reader, client.answer, offset);
        if (next == offset) {
            break;
        }
        offset = next;
    }
    world_disconnect(&client);
    for (uint32_t i = 1; i <= run->txns_count; i++) {
        const struct txn *txn = &run->txns[i];
        MILL_ASSERT_LE((uint32_t)reader.seen[i], (uint32_t)txn->sent[partition]);
        if (all && txn->fate == COMMITTED) {
            MILL_ASSERT_EQ(reader.seen[i], txn->sent[partition]);
        }
    }
}

static void get_index(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(int32_t *)ret_element = 0;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_fetch_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partition_indexes =
        (struct mill_warray){.count = 1, .get = get_index, .context = context};
}

static int64_t group_offset(struct run *run, const struct worker *worker)
{
    struct world_client client;
    uint8_t body[BODY_BYTES];
    world_connect(&run->world, &client, 0);
    for (uint32_t tries = 0;; tries++) {
        struct mill_writer to;
        struct mill_buf buf;
        struct mill_offset_fetch_request asked;
        struct mill_offset_fetch_response message;
        struct mill_offset_fetch_response_topics one;
        struct mill_offset_fetch_response_topics_partitions part;
        MILL_ASSERT_LT(tries, 1000u);
        mill_offset_fetch_request_defaults(&asked);
        asked.group_id = mill_wstr_of(worker->id);
        asked.topics = (struct mill_warray){.count = 1, .get = get_fetch_topic};
        mill_writer_init(&to, body, sizeof(body), NULL, 0);
        (void)mill_offset_fetch_request_encode(&to, FETCH_VERSION, &asked);
        world_send(&client, MILL_API_KEY_OFFSET_FETCH, FETCH_VERSION, body, to.size_bytes);
        struct mill_cursor at = mill_cursor_over(&buf, client.answer, world_await(&client));
        MILL_ASSERT_EQ(mill_cursor_skip(&at, 4), 0);
        MILL_ASSERT_EQ(mill_offset_fetch_response_decode(&at, FETCH_VERSION, &message), 0);
        if (message.error_code != MILL_KERR_NONE) {
            MILL_ASSERT(worker_may_repeat(message.error_code));
            continue;
        }
        MILL_ASSERT(mill_offset_fetch_response_topics_next(&message.topics, FETCH_VERSION, &one));
        MILL_ASSERT(mill_offset_fetch_response_topics_partitions_next(&one.partitions,
                                                                      FETCH_VERSION, &part));
        world_disconnect(&client);
        return part.committed_offset;
    }
}

/* The group of each worker stands where its last committed transaction left it. */
static void check_offsets(struct run *run)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        int64_t want = -1;
        for (uint32_t i = 1; i <= run->txns_count; i++) {
            const struct txn *txn = &run->txns[i];
            want = txn->worker == w && txn->offset && txn->fate == COMMITTED ? i : want;
        }
        MILL_ASSERT_EQ(group_offset(run, &run->workers[w]), want);
    }
}

/* --- the run -----------------------------------------------------------------------------------
 */

static void turns(struct run *run, uint32_t count, bool begin)
{
    for (uint32_t i = 0; i < count; i++) {
        worker_step(run, &run->workers[mill_random_below(&run->world.random, WORKERS)], begin);
        world_turn(&run->world, MILL_NS_PER_MS);
    }
}

static void disturb(struct run *run)
{
    switch (mill_random_below(&run->world.random, 7)) {
    case 0: /* killed while nothing reaches the files */
        run->world.store_stopped = true;
        turns(run, 60, true);
        run->world.store_stopped = false;
        __attribute__((fallthrough));
    case 1:
        workers_disconnect(run);
        world_crash(&run->world);
        break;
    case 2:
        workers_disconnect(run);
        world_restart(&run->world);
        break;
    case 3:
    case 4:
        world_crash_control(&run->world);
        break;
    case 5:
        worker_die(run, &run->workers[mill_random_below(&run->world.random, WORKERS)]);
        break;
    default: /* a pause */
        for (uint32_t i = 0; i < 300; i++) {
            world_turn(&run->world, 5 * MILL_NS_PER_MS);
        }
        break;
    }
}

static void run_seed(uint64_t seed, uint32_t cores)
{
    static struct run run;
    memset(&run, 0, sizeof(run));
    world_open(&run.world, cores, seed);
    world_topic(&run.world, topic, PARTITIONS, "segment.bytes", "1048576");
    world_coordinator(&run.world, 0);
    world_coordinator(&run.world, 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        snprintf(run.workers[i].id, sizeof(run.workers[i].id), "worker-%u", i);
        run.workers[i].me.producer_id = -1;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        turns(&run, TURNS_PER_ROUND, true);
        disturb(&run);
        if (round % 3 == 2) {
            workers_disconnect(&run);
            world_settle(&run.world, 200);
            read_partition(&run, (int32_t)mill_random_below(&run.world.random, PARTITIONS), false);
        }
    }
    for (uint32_t i = 0, open = 1; open > 0; i++) {
        MILL_ASSERT_LT(i, 1000u);
        turns(&run, 100, false);
        open = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            open += run.workers[w].txn != 0 || run.workers[w].next == INITING;
        }
    }
    /* What a dead worker left ends by its time-out, at the latest. */
    workers_disconnect(&run);
    for (uint32_t i = 0; i < 4000; i++) {
        world_turn(&run.world, 5 * MILL_NS_PER_MS);
    }
    for (int32_t p = 0; p < PARTITIONS; p++) {
        read_partition(&run, p, true);
    }
    check_offsets(&run);
    world_crash_control(&run.world); /* what is read in the log is what was in memory */
    check_offsets(&run);
    world_settle(&run.world, 10000);
    for (uint32_t i = 0; i < cores; i++) {
        MILL_ASSERT_EQ(run.world.cores[i].loans.loaned_bytes, 0ull);
        MILL_ASSERT_EQ(mill_log_stats(run.world.cores[i].core->log)->transactions, 0ull);
    }
    MILL_ASSERT_LT(10u, run.commits);
    MILL_ASSERT_LT(10u, run.bumped);
    MILL_ASSERT_LT(5u, run.late);
    world_close(&run.world);
    printf("seed %llu cores %u: %u committed, %u aborted, %u epochs asked for, %u with an end, "
           "%u late batches refused\n",
           (unsigned long long)seed, cores, run.commits, run.aborts, run.inits, run.bumped,
           run.late);
}

static void test_transactions_are_whole_or_nothing(void **state)
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transactions_are_whole_or_nothing)};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        uint64_t seed = strtoull(argv[1], NULL, 0);
        run_seed(seed, 1 + (uint32_t)(seed % 3));
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
