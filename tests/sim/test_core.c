/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a core owes in corners that a random run seldom meets: requests whose connection died
 * while another core works on them, fetches that can never have what they ask for, memory that
 * another core has taken. Method: the data plane on virtual time (world.h); each test drives one
 * corner and looks at the core's pools after it.
 */
#include <stdio.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/core/core_types.h"
#include "dataplane/log/log_types.h"
#include "tests/sim/world.h"
#include "tests/unit/test.h"

enum {
    PARTITIONS = 4,
    TURNS_FEW = 300, /* of at most a millisecond: less than any wait in these tests */
};

static const char topic[] = "corners";

static void open_world(struct world *world, uint32_t cores, const char *flush_messages)
{
    world_open(world, cores, 7);
    world_topic(world, topic, PARTITIONS, "flush.messages", flush_messages);
}

/* Turns until an answer is there. ret: false: none within turns. */
static bool answered(struct world *world, struct world_client *client, uint32_t turns)
{
    uint32_t bytes;
    for (uint32_t i = 0; i < turns; i++) {
        if (world_answer(client, &bytes)) {
            return true;
        }
        assert_false(mem_ended(client->peer));
        world_turn(world, MILL_NS_PER_MS);
    }
    return false;
}

static void turn(struct world *world, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        world_turn(world, MILL_NS_PER_MS);
    }
}

static void check_pools(const struct world *world)
{
    for (uint32_t i = 0; i < world->cores_count; i++) {
        const struct mill_core *core = world->cores[i].core;
        assert_int_equal(core->requests_free_count, core->requests_count);
        assert_int_equal(core->requests_orphaned, 0);
        assert_int_equal(core->peer_ops_free_count, core->limits.peer_ops_max);
        assert_int_equal(core->words.waiting_fetches, 0);
        assert_int_equal(core->words.waiting_syncs, 0);
        assert_int_equal(core->retired_count, 0);
        assert_int_equal(core->stage_reserved, 0);
        assert_int_equal(core->staged_now, 0);
        assert_int_equal(world->cores[i].loans.loaned_bytes, 0);
        for (uint32_t k = 0; k < MILL_LOG_PARKED_MAX; k++) {
            assert_int_equal(core->log->parked[k].state, LOG_PARKED_FREE);
        }
        for (uint32_t k = 0; k < world->cores_count; k++) {
            assert_int_equal(core->asks_out[k], 0);
        }
    }
}

static void test_produce_connection_dies_frees_request(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    open_world(&world, 2, "1");
    for (uint32_t core = 0; core < 2; core++) {
        world.store_stopped = true; /* nothing is synced: every append waits */
        world_connect(&world, &client, core);
        world_produce_many_send(&client, topic, PARTITIONS, 0, 1, 100);
        assert_false(answered(&world, &client, 20));
        world_disconnect(&client);
        turn(&world, 20);
        world.store_stopped = false;
        turn(&world, TURNS_FEW);
        check_pools(&world);
    }
    world_close(&world);
}

/* With flush.messages=1 an answer waits for the sync, but no longer than the client: what was
 * appended stays, here and at another core's partitions. */
static void test_produce_timeout_ends_flush_wait(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    uint64_t first;
    uint64_t values;
    int16_t error;
    for (uint32_t cores = 1; cores <= 2; cores++) {
        open_world(&world, cores, "1");
        world_connect(&world, &client, 0);
        client.timeout_ms = 50;
        world.store_stopped = true;
        world_produce_many_send(&client, topic, PARTITIONS, 0, 1, 100);
        uint64_t waiting = 0;
        turn(&world, cores); /* there, and at the other core */
        for (uint32_t i = 0; i < cores; i++) {
            waiting += world.cores[i].core->words.waiting_syncs;
        }
        assert_int_equal(waiting, PARTITIONS);
        assert_true(answered(&world, &client, TURNS_FEW));
        /* correlation, one topic, its name, partitions: index, error, offset, time, start */
        const uint8_t *at = client.answer + 4 + 4 + 2 + strlen(topic) + 4;
        for (uint32_t i = 0; i < PARTITIONS; i++, at += 4 + 2 + 8 + 8 + 8) {
            assert_int_equal(mill_load_be16(at + 4), MILL_KERR_REQUEST_TIMED_OUT);
            assert_int_equal((int64_t)mill_load_be64(at + 6), -1);
        }
        world.store_stopped = false;
        turn(&world, TURNS_FEW);
        check_pools(&world);
        client.timeout_ms = 0;
        world_produce_many_send(&client, topic, PARTITIONS, 1, 1, 100);
        assert_true(answered(&world, &client, TURNS_FEW));
        assert_int_equal(world_produced_read(&client, topic).error, 0);
        assert_int_equal(world_produced_read(&client, topic).base_offset, 1);
        for (int32_t i = 0; i < PARTITIONS; i++) {
            world_fetch(&client, topic, i, 0, 1 << 20, -1, &first, &values, &error);
            assert_int_equal(values, 2);
        }
        world_disconnect(&client);
        turn(&world, TURNS_FEW);
        check_pools(&world);
        world_close(&world);
    }
}

/* Batches that a worker has to look into: their connection dies before it did, while it does, and
 * when it has; they are stored all the same. */
static void test_produce_parked_connection_dies_frees_entries(void **state)
{
    MILL_UNUSED(state);
    enum { TIMES = 12 };
    struct world world;
    struct world_client client;
    uint64_t first;
    uint64_t values;
    int16_t error;
    world_open(&world, 2, 7);
    world_topic(&world, topic, PARTITIONS, "compression.type", "gzip");
    for (uint32_t i = 0; i < TIMES; i++) {
        world.store_stopped = i < TIMES / 2;
        world_connect(&world, &client, i % 2);
        world_produce_many_send(&client, topic, PARTITIONS, i, 1, 100);
        turn(&world, 1 + i);
        world_disconnect(&client);
        turn(&world, i);
        world.store_stopped = false;
        turn(&world, TURNS_FEW);
        check_pools(&world);
    }
    world_connect(&world, &client, 0);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        world_fetch(&client, topic, i, TIMES / 2, 1 << 20, MILL_CODEC_GZIP, &first, &values,
                    &error);
        assert_int_equal(error, 0);
        assert_int_equal(values, TIMES / 2);
    }
    world_disconnect(&client);
    turn(&world, TURNS_FEW);
    check_pools(&world);
    world_close(&world);
}

static void test_produce_parked_topic_is_deleted(void **state)
{
    MILL_UNUSED(state);
    static const uint8_t name[] = {0,   0,   0,   1,   0, 7, 'c',  'o', 'r',
                                   'n', 'e', 'r', 's', 0, 0, 0x75, 0x30};
    struct world world;
    struct world_client client;
    struct world_client admin;
    for (uint32_t cores = 1; cores <= 2; cores++) {
        world_open(&world, cores, 7);
        world_topic(&world, topic, PARTITIONS, "compression.type", "gzip");
        world.store_stopped = true;
        world_connect(&world, &client, 0);
        world_connect(&world, &admin, cores - 1);
        world_produce_many_send(&client, topic, PARTITIONS, 0, 1, 100);
        assert_false(answered(&world, &client, 20));
        world_send(&admin, 20, 1, name, sizeof(name)); /* DeleteTopics */
        turn(&world, 50);
        world.store_stopped = false;
        assert_true(answered(&world, &client, TURNS_FEW));
        assert_int_equal(world_produced_read(&client, topic).error,
                         MILL_KERR_NOT_LEADER_OR_FOLLOWER);
        assert_true(answered(&world, &admin, TURNS_FEW));
        world_disconnect(&client);
        world_disconnect(&admin);
        turn(&world, TURNS_FEW);
        check_pools(&world);
        for (uint32_t i = 0; i < cores; i++) {
            assert_int_equal(world.cores[i].core->words.partitions, 0);
        }
        world_close(&world);
    }
}

static void test_fetch_connection_dies_frees_watches(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    struct world_fetch_options options = {.wait_ms = 60000,
                                          .bytes_min = 1,
                                          .bytes_max = 1 << 20,
                                          .partition_bytes_max = 1 << 20,
                                          .session_epoch = -1};
    open_world(&world, 3, "9223372036854775807");
    world_connect(&world, &client, 1);
    world_fetch_send(&client, topic, PARTITIONS, &options);
    assert_false(answered(&world, &client, TURNS_FEW));
    assert_int_equal(world.cores[1].core->words.waiting_fetches, 1);
    world_disconnect(&client);
    turn(&world, TURNS_FEW);
    check_pools(&world);
    world_close(&world);
}

static void test_fetch_min_bytes_beyond_limits_answers_early(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    struct world_fetch_options options = {.wait_ms = 60000,
                                          .bytes_min = 500000,
                                          .bytes_max = 1 << 20,
                                          .partition_bytes_max = 10000,
                                          .session_epoch = -1};
    for (uint32_t cores = 1; cores <= 2; cores++) {
        open_world(&world, cores, "9223372036854775807");
        world_connect(&world, &client, 0);
        for (uint32_t i = 0; i < 10; i++) {
            world_produce_many_send(&client, topic, PARTITIONS, i, 1, 20000);
            assert_true(answered(&world, &client, TURNS_FEW));
        }
        world_fetch_send(&client, topic, PARTITIONS, &options);
        assert_true(answered(&world, &client, TURNS_FEW));
        world_disconnect(&client);
        turn(&world, TURNS_FEW);
        check_pools(&world);
        world_close(&world);
    }
}

static void test_fetch_session_epochs(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int32_t id;
        int32_t epoch;
        enum mill_kerr error;
    } cases[] = {
        {0, 0, MILL_KERR_NONE},
        {0, -1, MILL_KERR_NONE},
        {5, 0, MILL_KERR_NONE},
        {5, -1, MILL_KERR_NONE},
        {5, 3, MILL_KERR_FETCH_SESSION_ID_NOT_FOUND},
        {0, 1, MILL_KERR_FETCH_SESSION_ID_NOT_FOUND},
    };
    struct world world;
    struct world_client client;
    open_world(&world, 1, "9223372036854775807");
    world_connect(&world, &client, 0);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world_fetch_options options = {.bytes_max = 1000,
                                              .partition_bytes_max = 1000,
                                              .session_id = cases[i].id,
                                              .session_epoch = cases[i].epoch};
        world_fetch_send(&client, topic, 1, &options);
        assert_true(answered(&world, &client, TURNS_FEW));
        /* correlation, throttle time, error */
        assert_int_equal((int16_t)mill_load_be16(client.answer + 8), cases[i].error);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* More partitions than may be read back from files at once: what a request holds must not be what
 * it waits for. */
static void test_fetch_of_many_cold_partitions_ends(void **state)
{
    MILL_UNUSED(state);
    enum {
        MANY = 60,
    };
    struct world world;
    struct world_client client;
    const struct world_fetch_options options = {.wait_ms = 100,
                                                .bytes_min = 1,
                                                .bytes_max = 1 << 20,
                                                .partition_bytes_max = 10000,
                                                .session_epoch = -1};
    for (uint32_t cores = 1; cores <= 2; cores++) {
        world_open(&world, cores, 20 + cores);
        world_topic(&world, "many", MANY, "retention.ms", "-1");
        world_connect(&world, &client, 0);
        world_produce_many_send(&client, "many", MANY, 1, 1, 100);
        assert_true(answered(&world, &client, TURNS_FEW));
        world_disconnect(&client);
        world_restart(&world);
        world_connect(&world, &client, 0);
        world_fetch_send(&client, "many", MANY, &options);
        uint32_t bytes = world_await(&client);
        assert_true(bytes > MANY * 34 + 100); /* their heads, and records */
        world_disconnect(&client);
        turn(&world, TURNS_FEW);
        check_pools(&world);
        world_close(&world);
    }
}

static void test_list_offsets_double_partition_is_refused(void **state)
{
    MILL_UNUSED(state);
    /* ListOffsets v1 of partitions 0, 1, 0: latest */
    static const uint8_t body[] = {
        0xff, 0xff, 0xff, 0xff, 0,    0,    0,    1,    0,    7,    'c',  'o',  'r',  'n',  'e',
        'r',  's',  0,    0,    0,    3,    0,    0,    0,    0,    0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0,    0,    0,    1,    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0,    0,    0,    0,    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const enum mill_kerr errors[] = {MILL_KERR_INVALID_REQUEST, MILL_KERR_NONE,
                                            MILL_KERR_INVALID_REQUEST};
    struct world world;
    struct world_client client;
    open_world(&world, 2, "9223372036854775807");
    world_connect(&world, &client, 0);
    world_send(&client, MILL_API_KEY_LIST_OFFSETS, 1, body, sizeof(body));
    assert_true(answered(&world, &client, TURNS_FEW));
    /* correlation, topics, name, partitions; then index, error, timestamp, offset */
    const uint8_t *at = client.answer + 4 + 4 + 2 + 7 + 4;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal((int16_t)mill_load_be16(at + i * 22 + 4), errors[i]);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* One core is busy enough to fill the arena; the other one, which comes later, and requests that
 * need scratch memory must be served all the same. */
static void test_memory_taken_by_a_busy_core_gives_way(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client busy;
    struct world_client late;
    struct world_fetch_options options = {
        .bytes_max = 1 << 20, .partition_bytes_max = 1 << 20, .session_epoch = -1};
    open_world(&world, 2, "9223372036854775807");
    world_connect(&world, &busy, 0);
    world_connect(&world, &late, 1);
    int32_t own = -1; /* a partition of core 0 */
    struct mill_log *log = mill_core_log(world.cores[0].core);
    for (uint32_t i = 0; i < mill_log_partitions(log); i++) {
        const struct mill_partition *partition = mill_log_at(log, i);
        own = partition ? mill_partition_index(partition) : own;
    }
    assert_in_range(own, 0, PARTITIONS - 1);
    for (uint32_t i = 0; i < 120; i++) {
        world_produce_send(&busy, topic, own, -1, -1, i, 30, 20000);
        assert_true(answered(&world, &busy, TURNS_FEW));
    }
    for (uint32_t i = 0; i < 30; i++) {
        world_produce_send(&busy, topic, own, -1, -1, i, 30, 20000);
        world_produce_send(&late, topic, (own + 1) % PARTITIONS, -1, -1, i, 30, 20000);
        assert_true(answered(&world, &late, TURNS_FEW));
        assert_true(answered(&world, &busy, TURNS_FEW));
        world_fetch_send(&late, topic, PARTITIONS, &options);
        assert_true(answered(&world, &late, TURNS_FEW));
    }
    world_disconnect(&busy);
    world_disconnect(&late);
    turn(&world, TURNS_FEW);
    check_pools(&world);
    world_close(&world);
}

/* A directory that cannot be loaded says nothing of offsets: "out of range" would make consumers
 * begin anew and lose their place. */
static void test_fetch_partition_not_loaded_returns_storage_error(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    char path[256];
    char aside[256];
    uint64_t first;
    uint64_t values;
    int16_t error;
    open_world(&world, 1, "9223372036854775807");
    world_connect(&world, &client, 0);
    world_produce_send(&client, topic, 0, -1, -1, 0, 5, 100);
    assert_true(answered(&world, &client, TURNS_FEW));
    world_disconnect(&client);
    turn(&world, TURNS_FEW);
    snprintf(path, sizeof(path), "%s/%s-0", world.log_dir[0], topic);
    snprintf(aside, sizeof(aside), "%s/aside", world.dir);
    assert_int_equal(rename(path, aside), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    world_crash(&world);
    world_connect(&world, &client, 0);
    world_fetch(&client, topic, 0, 5, 1000, -1, &first, &values, &error);
    assert_int_equal(error, MILL_KERR_KAFKA_STORAGE_ERROR);
    world_disconnect(&client);
    world_close(&world);
}

/* A peer that sends a large request byte by byte holds the memory for it; others who need such
 * memory must not wait for ever. */
static void test_staging_held_by_a_slow_sender_is_freed(void **state)
{
    enum {
        STEPS = 300, /* of at most a second: more than the stall timeout */
    };
    MILL_UNUSED(state);
    struct world world;
    struct world_client slow;
    struct world_client other;
    uint8_t head[] = {0, 0x3f, 0, 0, 0, 0, 0, 7}; /* 4,128,768 bytes of a Produce v7 */
    static const uint8_t more[70000];
    open_world(&world, 1, "9223372036854775807");
    world_connect(&world, &slow, 0);
    world_connect(&world, &other, 0);
    mem_send(slow.peer, head, sizeof(head));
    mem_send(slow.peer, more, sizeof(more));
    turn(&world, 10);
    assert_int_equal(world.cores[0].core->stage_reserved, 0x3f0004);
    head[1] = 0x10;
    mem_send(other.peer, head, sizeof(head));
    mem_send(other.peer, more, sizeof(more));
    turn(&world, 10);
    assert_int_equal(world.cores[0].core->stage_wanted, 1);
    for (uint32_t i = 0; i < STEPS && !mem_ended(slow.peer); i++) {
        mem_send(slow.peer, more, 1);
        world_turn(&world, MILL_NS_PER_S);
    }
    assert_true(mem_ended(slow.peer));
    assert_false(mem_ended(other.peer));
    turn(&world, 10);
    assert_int_equal(world.cores[0].core->stage_reserved, 0x100004);
    world_disconnect(&slow);
    world_disconnect(&other);
    turn(&world, TURNS_FEW);
    check_pools(&world);
    world_close(&world);
}

/* Any client at any moment: sends what it likes, reads or does not, leaves when it likes. */
static void client_step(struct world *world, struct world_client *client)
{
    struct mill_random *random = &world->random;
    uint32_t bytes;
    if (!client->peer || mem_ended(client->peer)) {
        world_disconnect(client);
        world_connect(world, client, mill_random_below(random, world->cores_count));
    }
    struct world_fetch_options options = {
        .wait_ms = (int32_t)mill_random_below(random, 200),
        .bytes_min = (int32_t)mill_random_below(random, 200000),
        .bytes_max = (int32_t)mill_random_below(random, 300000),
        .partition_bytes_max = (int32_t)mill_random_below(random, 100000),
        .session_epoch = -1,
        .offset = (int64_t)mill_random_below(random, 10),
    };
    switch (mill_random_below(random, 8)) {
    case 0:
        world_disconnect(client);
        break;
    case 1:
    case 2:
        world_produce_many_send(client, topic, 1 + mill_random_below(random, PARTITIONS), 0, 1,
                                mill_random_below(random, 30000));
        break;
    case 3:
        mem_finish(client->peer);
        break;
    case 4:
    case 5:
        world_fetch_send(client, topic, 1 + mill_random_below(random, PARTITIONS), &options);
        break;
    default:
        while (world_answer(client, &bytes)) {
        }
        break;
    }
}

static void test_unsteady_clients_leave_nothing(void **state)
{
    enum {
        CLIENTS = 12,
        STEPS = 3000,
    };
    MILL_UNUSED(state);
    for (uint32_t cores = 1; cores <= 3; cores++) {
        struct world world;
        struct world_client clients[CLIENTS];
        memset(clients, 0, sizeof(clients));
        open_world(&world, cores, cores == 2 ? "1" : "9223372036854775807");
        for (uint32_t i = 0; i < STEPS; i++) {
            world.store_stopped = i % 256 < 40;
            client_step(&world, &clients[mill_random_below(&world.random, CLIENTS)]);
            world_turn(&world, MILL_NS_PER_MS);
        }
        world.store_stopped = false;
        for (uint32_t i = 0; i < CLIENTS; i++) {
            world_disconnect(&clients[i]);
        }
        turn(&world, TURNS_FEW * 4);
        check_pools(&world);
        world_close(&world);
    }
}

/* More busy partitions than the table has rows: the last ones used are in it, the others were put
 * out and counted. */
static void test_busy_partitions_full_last_used_stay(void **state)
{
    enum {
        MANY = MILL_COUNTERS_PARTITIONS_MAX + 50,
    };
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 1, 7);
    world_topic(&world, "many", MANY, "retention.ms", "-1");
    world_connect(&world, &client, 0);
    const struct mill_shared_core *shared = &world.counters->cores[0];
    bool seen[MANY] = {false};
    for (int32_t i = 0; i < MANY; i++) {
        world_produce_send(&client, "many", i, -1, -1, 0, 1, 10);
        world_await(&client);
        mill_core_publish(world.cores[0].core, world.now);
    }
    for (uint32_t i = 0; i < MILL_COUNTERS_PARTITIONS_MAX; i++) {
        const struct mill_shared_partition *row = &shared->busy[i];
        assert_int_equal(row->used, 1);
        assert_string_equal(row->topic, "many");
        assert_int_equal(row->end_offset, 1);
        assert_false(seen[row->partition]);
        seen[row->partition] = true;
    }
    for (uint32_t i = MANY - MILL_COUNTERS_PARTITIONS_MAX; i < MANY; i++) {
        assert_true(seen[i]);
    }
    assert_int_equal(shared->partition_rows_full, MANY - MILL_COUNTERS_PARTITIONS_MAX);
    world_disconnect(&client);
    world_close(&world);
}

bool __real_mill_log_ended(struct mill_log *log);
bool __wrap_mill_log_ended(struct mill_log *log);

static uint32_t asked_ended;

bool __wrap_mill_log_ended(struct mill_log *log)
{
    asked_ended++;
    return __real_mill_log_ended(log);
}

/* The question costs a look at every partition, and a core's thread puts it each turn. */
static void test_partitions_are_looked_through_only_when_stopping(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    world_open(&world, 1, 7);
    world_topic(&world, topic, PARTITIONS, "retention.ms", "-1");
    struct mill_core *core = world.cores[0].core;
    asked_ended = 0;
    assert_false(mill_core_stopped(core));
    assert_int_equal(asked_ended, 0);
    mill_core_stop(core);
    turn(&world, TURNS_FEW);
    assert_true(mill_core_stopped(core));
    assert_true(asked_ended > 0);
    world_close(&world);
}

/* IncrementalAlterConfigs 0: a setting of this broker. */
static void alter_broker(struct world *world, struct world_client *client, const char *name,
                         const char *value)
{
    uint8_t body[256];
    uint32_t at = 0;
    static const uint8_t head[] = {0, 0, 0, 1, 4, 0, 1, '1', 0, 0, 0, 1};
    memcpy(body, head, sizeof(head));
    at = sizeof(head);
    const char *const texts[] = {name, value};
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t size = (uint32_t)strlen(texts[i]);
        mill_store_be16(body + at, (uint16_t)size);
        memcpy(body + at + 2, texts[i], size);
        at += 2 + size;
        body[at++] = 0; /* set; then: not only validate */
    }
    world_send(client, MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS, 0, body, at);
    assert_true(answered(world, client, TURNS_FEW));
    /* correlation, throttle time, one response, its error */
    assert_int_equal((int16_t)mill_load_be16(client->answer + 12), 0);
    turn(world, 5); /* until every core has seen the map */
}

/* max.connections counts the clients of all cores, and follows while they are connected. */
static void test_connections_of_all_cores_are_bounded(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client first;
    struct world_client second;
    open_world(&world, 2, "9223372036854775807");
    world_connect(&world, &first, 0);
    alter_broker(&world, &first, "max.connections", "2");
    world_connect(&world, &second, 1);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t before = world.cores[i].core->listener_words[0].refused;
        assert_null(mem_connect(world.cores[i].maker));
        assert_int_equal(world.cores[i].core->listener_words[0].refused, before + 1);
        assert_int_equal(world.cores[i].core->listener_words[0].refused_connections, 1);
    }
    world_disconnect(&second);
    turn(&world, 5);
    world_connect(&world, &second, 0);
    assert_null(mem_connect(world.cores[1].maker));
    alter_broker(&world, &first, "max.connections", "3");
    struct mem_peer *third = mem_connect(world.cores[1].maker);
    assert_non_null(third);
    mem_forget(third);
    world_disconnect(&first);
    world_disconnect(&second);
    turn(&world, 5);
    assert_int_equal(world.connections, 0);
    check_pools(&world);
    world_close(&world);
}

/* One more from this address: whether it is let in, and counted when not. */
static struct mem_peer *connect_from(struct world *world, uint32_t core, uint8_t last, bool let_in)
{
    const struct mill_listener_words *words = &world->cores[core].core->listener_words[0];
    uint64_t before = words->refused_address;
    uint64_t refused = words->refused;
    mem_address(world->cores[core].maker, last);
    struct mem_peer *peer = mem_connect(world->cores[core].maker);
    mem_address(world->cores[core].maker, 0);
    assert_int_equal(peer != NULL, let_in);
    assert_int_equal(words->refused_address - before, let_in ? 0 : 1);
    assert_int_equal(words->refused - refused, let_in ? 0 : 1);
    return peer;
}

/* The bound of one address counts its connections on all cores and nobody else's, is another for
 * addresses that are named, and follows while they are connected. */
static void test_connections_of_an_address_are_bounded(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    struct mem_peer *peers[5];
    open_world(&world, 2, "9223372036854775807");
    world_connect(&world, &client, 0);
    alter_broker(&world, &client, "max.connections.per.ip", "2");
    peers[0] = connect_from(&world, 0, 1, true);
    peers[1] = connect_from(&world, 1, 1, true);
    for (uint32_t core = 0; core < 2; core++) {
        connect_from(&world, core, 1, false);
    }
    peers[2] = connect_from(&world, 0, 2, true);
    alter_broker(&world, &client, "max.connections.per.ip.overrides", "10.0.0.1:3, 10.0.0.9:0");
    peers[3] = connect_from(&world, 1, 1, true);
    connect_from(&world, 0, 1, false);
    connect_from(&world, 0, 9, false);
    /* Below what there is: nobody is thrown out, nobody comes in before there is room. */
    alter_broker(&world, &client, "max.connections.per.ip.overrides", "10.0.0.1:2");
    mem_forget(peers[0]);
    turn(&world, 5);
    connect_from(&world, 0, 1, false);
    mem_forget(peers[1]);
    turn(&world, 5);
    peers[4] = connect_from(&world, 1, 1, true);
    for (uint32_t i = 2; i < MILL_COUNT_OF(peers); i++) {
        mem_forget(peers[i]);
    }
    world_disconnect(&client);
    turn(&world, 5);
    assert_int_equal(world.connections, 0);
    check_pools(&world);
    world_close(&world);
}

/* Who comes at once, on any core: how many are let in. */
static uint32_t let_in(struct world *world, uint32_t tries)
{
    uint32_t count = 0;
    uint64_t refused = 0;
    for (uint32_t core = 0; core < 2; core++) {
        refused += world->cores[core].core->listener_words[0].refused_rate;
    }
    for (uint32_t i = 0; i < tries; i++) {
        struct mem_peer *peer = mem_connect(world->cores[i % 2].maker);
        if (peer) {
            count++;
            mem_forget(peer);
        }
    }
    for (uint32_t core = 0; core < 2; core++) {
        refused -= world->cores[core].core->listener_words[0].refused_rate;
    }
    assert_int_equal(tries - count, (uint32_t)-refused);
    return count;
}

/* max.connection.creation.rate is that of all cores: what its samples give at once, then one as
 * time comes; who is refused changes nothing. */
static void test_new_connections_have_a_rate(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    open_world(&world, 2, "9223372036854775807");
    world_connect(&world, &client, 0);
    world.now.mono_ns += 20 * MILL_NS_PER_S; /* longer than a burst since time began */
    turn(&world, 2);
    alter_broker(&world, &client, "max.connection.creation.rate", "1");
    uint32_t first = let_in(&world, 30);
    assert_in_range(first, 10, 12); /* ten samples of a second, and what came meanwhile */
    assert_int_equal(let_in(&world, 10), 0);
    for (uint32_t i = 0; i < 3; i++) {
        world.now.mono_ns += MILL_NS_PER_S;
        turn(&world, 2);
        assert_int_equal(let_in(&world, 10), 1);
    }
    alter_broker(&world, &client, "max.connection.creation.rate", "0");
    assert_int_equal(let_in(&world, 2), 0);
    alter_broker(&world, &client, "max.connection.creation.rate", "2147483647");
    assert_int_equal(let_in(&world, 40), 40);
    world_disconnect(&client);
    turn(&world, 5);
    assert_int_equal(world.connections, 0);
    check_pools(&world);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_produce_connection_dies_frees_request),
        cmocka_unit_test(test_produce_timeout_ends_flush_wait),
        cmocka_unit_test(test_produce_parked_connection_dies_frees_entries),
        cmocka_unit_test(test_produce_parked_topic_is_deleted),
        cmocka_unit_test(test_fetch_connection_dies_frees_watches),
        cmocka_unit_test(test_fetch_min_bytes_beyond_limits_answers_early),
        cmocka_unit_test(test_fetch_session_epochs),
        cmocka_unit_test(test_fetch_of_many_cold_partitions_ends),
        cmocka_unit_test(test_list_offsets_double_partition_is_refused),
        cmocka_unit_test(test_connections_of_all_cores_are_bounded),
        cmocka_unit_test(test_connections_of_an_address_are_bounded),
        cmocka_unit_test(test_new_connections_have_a_rate),
        cmocka_unit_test(test_fetch_partition_not_loaded_returns_storage_error),
        cmocka_unit_test(test_staging_held_by_a_slow_sender_is_freed),
        cmocka_unit_test(test_unsteady_clients_leave_nothing),
        cmocka_unit_test(test_busy_partitions_full_last_used_stay),
        cmocka_unit_test(test_memory_taken_by_a_busy_core_gives_way),
        cmocka_unit_test(test_partitions_are_looked_through_only_when_stopping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
