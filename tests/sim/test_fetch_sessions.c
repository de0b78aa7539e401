/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a consumer with a fetch session knows what one without would be told, and is told no more
 * than what changed; ids, epochs and bounds are kept as KIP-227 says. Method: the data plane on
 * virtual time (world.h), requests made and answers read by the generated codec; random sessions
 * beside full requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/encoder.h"
#include "tests/unit/test.h"

enum {
    TOPICS = 2,
    PARTITIONS = 4, /* of each */
    PLACES = TOPICS * PARTITIONS,
    ASKED_MAX = 16,
    TOLD_MAX = 512,
    ROUNDS = 1500,
    NAMES_VERSION = 12, /* the last with names */
};

static const char *const topics[TOPICS] = {"sessions-a", "sessions-b"};

/* --- requests --------------------------------------------------------------------------------- */

struct asked {
    uint32_t topic;
    int32_t partition;
    int64_t offset;
};

/* A request names partitions one by one, each in a topic element of its own. */
struct wish {
    int32_t id;
    int32_t epoch;
    int32_t wait_ms;
    int32_t bytes_max;
    int32_t replica_id; /* 0: a client */
    uint32_t count;
    struct asked asked[ASKED_MAX];
    uint32_t forgotten_count;
    struct asked forgotten[PLACES];
    const struct mill_uuid *ids;
};

struct told {
    int16_t error;
    int32_t id;
    uint32_t count;
    struct one {
        uint32_t topic;
        int32_t partition;
        int16_t error;
        int64_t high_watermark;
        int64_t start_offset;
        int32_t bytes;
    } one[TOLD_MAX];
};

struct element {
    const struct wish *wish;
    const struct asked *at;
};

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    const struct element *element = context;
    struct mill_fetch_request_topics_partitions *to = ret_element;
    MILL_UNUSED(index);
    to->partition = element->at->partition;
    to->fetch_offset = element->at->offset;
    to->partition_max_bytes = 1 << 20;
}

static struct element element_now; /* elements are encoded one after the other */

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    const struct wish *wish = context;
    struct mill_fetch_request_topics *to = ret_element;
    element_now = (struct element){wish, &wish->asked[index]};
    to->topic = mill_wstr_of(topics[element_now.at->topic]);
    to->topic_id = wish->ids[element_now.at->topic];
    to->partitions =
        (struct mill_warray){.count = 1, .get = get_partition, .context = &element_now};
}

static void get_forgotten_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    *(int32_t *)ret_element = ((const struct element *)context)->at->partition;
}

static void get_forgotten(const void *context, int32_t index, void *ret_element)
{
    const struct wish *wish = context;
    struct mill_fetch_request_forgotten_topics_data *to = ret_element;
    element_now = (struct element){wish, &wish->forgotten[index]};
    to->topic = mill_wstr_of(topics[element_now.at->topic]);
    to->topic_id = wish->ids[element_now.at->topic];
    to->partitions =
        (struct mill_warray){.count = 1, .get = get_forgotten_partition, .context = &element_now};
}

ENCODER(fetch)

static void wish_send(struct world_client *client, int16_t version, const struct wish *wish)
{
    struct mill_fetch_request in;
    mill_fetch_request_defaults(&in);
    in.replica_id = wish->replica_id > 0 ? wish->replica_id : -1;
    in.max_wait_ms = wish->wait_ms;
    in.min_bytes = 1;
    in.max_bytes = wish->bytes_max > 0 ? wish->bytes_max : 1 << 20;
    in.session_id = wish->id;
    in.session_epoch = wish->epoch;
    in.topics =
        (struct mill_warray){.count = (int32_t)wish->count, .get = get_topic, .context = wish};
    in.forgotten_topics_data = (struct mill_warray){
        .count = (int32_t)wish->forgotten_count, .get = get_forgotten, .context = wish};
    world_ask_send(client, MILL_API_KEY_FETCH, version, fetch_out, &in);
}

static uint32_t topic_number(const struct mill_fetch_response_responses *topic, int16_t version,
                             const struct mill_uuid *ids)
{
    for (uint32_t i = 0; i < TOPICS; i++) {
        if (version > NAMES_VERSION
                ? mill_uuid_equal(&topic->topic_id, &ids[i])
                : mill_wstr_equal(&topic->topic, topics[i], (uint32_t)strlen(topics[i]))) {
            return i;
        }
    }
    fail();
    return TOPICS;
}

static void told_read(struct world_client *client, int16_t version, uint32_t bytes,
                      const struct mill_uuid *ids, struct told *told)
{
    struct mill_fetch_response out;
    struct mill_fetch_response_responses topic;
    struct mill_cursor at = world_asked(client, MILL_API_KEY_FETCH, version, bytes);
    assert_int_equal(mill_fetch_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    *told = (struct told){.error = out.error_code, .id = out.session_id};
    while (mill_fetch_response_responses_next(&out.responses, version, &topic)) {
        struct mill_fetch_response_responses_partitions part;
        uint32_t number = topic_number(&topic, version, ids);
        assert_true(topic.partitions.count > 0);
        while (mill_fetch_response_responses_partitions_next(&topic.partitions, version, &part)) {
            assert_true(told->count < TOLD_MAX);
            told->one[told->count++] = (struct one){
                .topic = number,
                .partition = part.partition_index,
                .error = part.error_code,
                .high_watermark = part.high_watermark,
                .start_offset = part.log_start_offset,
                .bytes = part.records.length,
            };
        }
    }
}

static void ask(struct world_client *client, int16_t version, const struct wish *wish,
                struct told *told)
{
    wish_send(client, version, wish);
    told_read(client, version, world_await(client), wish->ids, told);
}

/* --- a world with topics ---------------------------------------------------------------------- */

struct bench {
    struct world world;
    struct world_client client;
    struct mill_uuid ids[TOPICS];
    int64_t ends[PLACES];
};

static void bench_open(struct bench *bench, uint32_t cores, uint64_t seed)
{
    world_open(&bench->world, cores, seed);
    for (uint32_t i = 0; i < TOPICS; i++) {
        world_topic(&bench->world, topics[i], PARTITIONS, "retention.ms", "-1");
        const struct mill_map_topic *found =
            mill_map_topic_by_name(bench->world.map, topics[i], (uint32_t)strlen(topics[i]));
        assert_non_null(found);
        bench->ids[i] = found->id;
    }
    memset(bench->ends, 0, sizeof(bench->ends));
    world_connect(&bench->world, &bench->client, 0);
}

static void bench_close(struct bench *bench)
{
    world_disconnect(&bench->client);
    world_close(&bench->world);
}

static void produce(struct bench *bench, uint32_t place, uint32_t padding)
{
    struct world_client producer;
    const char *name = topics[place / PARTITIONS];
    world_connect(&bench->world, &producer, 0);
    world_produce_send(&producer, name, (int32_t)(place % PARTITIONS), -1, -1, 1, 1, padding);
    world_await(&producer);
    assert_int_equal(world_produced_read(&producer, name).error, 0);
    world_disconnect(&producer);
    bench->ends[place]++;
}

/* Time passes while nobody asks. What a core notes once a second is noted before anyone does. */
static void later(struct bench *bench, uint64_t seconds)
{
    world_settle(&bench->world, 1000);
    bench->world.now.mono_ns += seconds * MILL_NS_PER_S;
    world_turn(&bench->world, MILL_NS_PER_MS);
}

/* All partitions from their start, a session wanted. */
static struct wish full(const struct bench *bench)
{
    struct wish wish = {.ids = bench->ids, .count = PLACES};
    for (uint32_t i = 0; i < PLACES; i++) {
        wish.asked[i] = (struct asked){i / PARTITIONS, (int32_t)(i % PARTITIONS), 0};
    }
    return wish;
}

static struct wish next(const struct bench *bench, int32_t id, int32_t epoch)
{
    return (struct wish){.ids = bench->ids, .id = id, .epoch = epoch};
}

static const struct mill_fetch_session_stats *stats(const struct bench *bench, uint32_t core)
{
    return mill_fetch_sessions_stats(bench->world.cores[core].core->fetch_sessions);
}

/* --- by hand ---------------------------------------------------------------------------------- */

static void test_only_changes_are_told(void **state)
{
    MILL_UNUSED(state);
    static const int16_t versions[] = {7, 11, 12, 13, 17, 18};
    for (size_t i = 0; i < MILL_COUNT_OF(versions); i++) {
        static struct bench bench;
        static struct told told;
        int16_t version = versions[i];
        bench_open(&bench, 1 + (uint32_t)i % 2, 21 + i);
        struct wish wish = full(&bench);
        ask(&bench.client, version, &wish, &told);
        assert_int_equal(told.error, 0);
        assert_true(told.id > 0);
        assert_int_equal(told.count, PLACES);
        int32_t id = told.id;
        wish = next(&bench, id, 1);
        ask(&bench.client, version, &wish, &told);
        assert_int_equal(told.error, 0);
        assert_int_equal(told.id, id);
        assert_int_equal(told.count, 0);
        /* Records: told, and told again while the client does not say that it has them. */
        produce(&bench, 5, 10);
        for (int32_t epoch = 2; epoch <= 3; epoch++) {
            wish = next(&bench, id, epoch);
            ask(&bench.client, version, &wish, &told);
            assert_int_equal(told.count, 1);
            assert_int_equal(told.one[0].topic, 1);
            assert_int_equal(told.one[0].partition, 1);
            assert_int_equal(told.one[0].high_watermark, 1);
            assert_true(told.one[0].bytes > 0);
        }
        wish = next(&bench, id, 4);
        wish.count = 1;
        wish.asked[0] = (struct asked){1, 1, 1};
        ask(&bench.client, version, &wish, &told);
        assert_int_equal(told.error, 0);
        assert_int_equal(told.count, 0);
        bench_close(&bench);
    }
}

/* A request that waits is answered by what comes, and by nothing when its time is over. */
static void test_waiting_goes_on(void **state)
{
    MILL_UNUSED(state);
    static struct bench bench;
    static struct told told;
    bench_open(&bench, 2, 30);
    struct wish wish = full(&bench);
    ask(&bench.client, 13, &wish, &told);
    int32_t id = told.id;
    wish = next(&bench, id, 1);
    wish.wait_ms = 60000;
    wish_send(&bench.client, 13, &wish);
    produce(&bench, 2, 10);
    told_read(&bench.client, 13, world_await(&bench.client), bench.ids, &told);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.one[0].partition, 2);
    wish = next(&bench, id, 2);
    wish.count = 1;
    wish.asked[0] = (struct asked){0, 2, 1};
    wish.wait_ms = 50;
    uint64_t begun_ns = bench.world.now.mono_ns;
    ask(&bench.client, 13, &wish, &told);
    assert_true(bench.world.now.mono_ns - begun_ns >= 50 * MILL_NS_PER_MS);
    assert_int_equal(told.error, 0);
    assert_int_equal(told.count, 0);
    bench_close(&bench);
}

static void test_ids_and_epochs_are_checked(void **state)
{
    MILL_UNUSED(state);
    static struct bench bench;
    static struct told told;
    bench_open(&bench, 2, 31);
    struct wish wish = full(&bench);
    ask(&bench.client, 12, &wish, &told);
    int32_t id = told.id;
    wish = next(&bench, id + 1, 1);
    ask(&bench.client, 12, &wish, &told);
    assert_int_equal(told.error, MILL_KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_int_equal(told.id, 0);
    assert_int_equal(told.count, 0);
    for (int32_t epoch = 2; epoch <= 3; epoch++) {
        wish = next(&bench, id, epoch);
        ask(&bench.client, 12, &wish, &told);
        assert_int_equal(told.error, MILL_KERR_INVALID_FETCH_SESSION_EPOCH);
        assert_int_equal(told.id, 0);
    }
    wish = next(&bench, id, 1);
    ask(&bench.client, 13, &wish, &told); /* topics by id in a session by name */
    assert_int_equal(told.error, MILL_KERR_FETCH_SESSION_TOPIC_ID_ERROR);
    ask(&bench.client, 12, &wish, &told);
    assert_int_equal(told.error, 0);
    ask(&bench.client, 12, &wish, &told); /* the same again */
    assert_int_equal(told.error, MILL_KERR_INVALID_FETCH_SESSION_EPOCH);
    /* Its connection came to the other core. */
    struct world_client other;
    world_connect(&bench.world, &other, 1);
    wish = next(&bench, id, 2);
    ask(&other, 12, &wish, &told);
    assert_int_equal(told.error, MILL_KERR_FETCH_SESSION_ID_NOT_FOUND);
    world_disconnect(&other);
    /* A full request that names it ends it, with a new one or without. */
    wish = full(&bench);
    wish.id = id;
    ask(&bench.client, 12, &wish, &told);
    int32_t second = told.id;
    assert_true(second > 0 && second != id);
    assert_int_equal(stats(&bench, 0)->sessions, 1);
    wish.id = second;
    wish.epoch = -1;
    ask(&bench.client, 12, &wish, &told);
    assert_int_equal(told.id, 0);
    assert_int_equal(told.count, PLACES);
    assert_int_equal(stats(&bench, 0)->sessions, 0);
    assert_int_equal(stats(&bench, 0)->parts, 0);
    bench_close(&bench);
}

static void test_forgotten_partitions_are_gone(void **state)
{
    MILL_UNUSED(state);
    static struct bench bench;
    static struct told told;
    bench_open(&bench, 1, 32);
    struct wish wish = full(&bench);
    ask(&bench.client, 13, &wish, &told);
    int32_t id = told.id;
    for (uint32_t i = 0; i < PLACES; i++) {
        produce(&bench, i, 10);
    }
    wish = next(&bench, id, 1);
    wish.forgotten_count = PARTITIONS;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        wish.forgotten[i] = (struct asked){1, (int32_t)i, 0};
    }
    ask(&bench.client, 13, &wish, &told);
    assert_int_equal(told.count, PARTITIONS);
    for (uint32_t i = 0; i < told.count; i++) {
        assert_int_equal(told.one[i].topic, 0);
    }
    /* The last ones: the session is over, and the answer says so at once. */
    wish = next(&bench, id, 2);
    wish.wait_ms = 60000;
    wish.forgotten_count = PARTITIONS;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        wish.forgotten[i] = (struct asked){0, (int32_t)i, 0};
    }
    ask(&bench.client, 13, &wish, &told);
    assert_int_equal(told.error, 0);
    assert_int_equal(told.id, 0);
    assert_int_equal(told.count, 0);
    assert_int_equal(stats(&bench, 0)->sessions, 0);
    bench_close(&bench);
}

/* Two connections, one session: whoever comes second has it. */
static void test_a_session_goes_on_without_who_waits(void **state)
{
    MILL_UNUSED(state);
    static struct bench bench;
    static struct told told;
    struct world_client other;
    bench_open(&bench, 1, 33);
    world_connect(&bench.world, &other, 0);
    struct wish wish = full(&bench);
    ask(&bench.client, 13, &wish, &told);
    int32_t id = told.id;
    struct wish waits = next(&bench, id, 1);
    waits.wait_ms = 200;
    wish_send(&bench.client, 13, &waits);
    world_settle(&bench.world, 50);
    wish = next(&bench, id, 2);
    ask(&other, 13, &wish, &told);
    assert_int_equal(told.error, 0);
    told_read(&bench.client, 13, world_await(&bench.client), bench.ids, &told);
    assert_int_equal(told.error, MILL_KERR_INVALID_FETCH_SESSION_EPOCH);
    /* The same with one that is ended meanwhile. */
    waits = next(&bench, id, 3);
    waits.wait_ms = 200;
    wish_send(&bench.client, 13, &waits);
    world_settle(&bench.world, 50);
    wish = full(&bench);
    wish.id = id;
    wish.epoch = -1;
    ask(&other, 13, &wish, &told);
    produce(&bench, 0, 10);
    told_read(&bench.client, 13, world_await(&bench.client), bench.ids, &told);
    assert_int_equal(told.error, MILL_KERR_FETCH_SESSION_ID_NOT_FOUND);
    world_disconnect(&other);
    world_settle(&bench.world, 1000);
    assert_int_equal(bench.world.cores[0].core->loans->loaned_bytes, 0);
    bench_close(&bench);
}

static void test_bounds_refuse_and_make_room(void **state)
{
    MILL_UNUSED(state);
    static struct bench bench;
    static struct told told;
    int32_t ids[WORLD_FETCH_SESSIONS_MAX];
    bench_open(&bench, 1, 34);
    struct wish wish = full(&bench);
    for (uint32_t i = 0; i < WORLD_FETCH_SESSIONS_MAX; i++) {
        ask(&bench.client, 13, &wish, &told);
        ids[i] = told.id;
        assert_true(ids[i] > 0);
    }
    ask(&bench.client, 13, &wish, &told);
    assert_int_equal(told.error, 0);
    assert_int_equal(told.id, 0); /* no room: as without sessions */
    assert_int_equal(told.count, PLACES);
    assert_int_equal(stats(&bench, 0)->refused, 1);
    wish.replica_id = 7; /* a follower */
    ask(&bench.client, 12, &wish, &told);
    assert_true(told.id > 0);
    assert_int_equal(stats(&bench, 0)->evictions, 1);
    /* Two minutes later the one that was used last stays. */
    later(&bench, 100);
    uint32_t alive = 0;
    int32_t grows = 0; /* one that is left: whose id is least goes for the follower */
    for (uint32_t i = 0; i < WORLD_FETCH_SESSIONS_MAX; i++) {
        wish = next(&bench, ids[i], 1);
        ask(&bench.client, 13, &wish, &told);
        alive += told.error == 0;
        grows = told.error == 0 ? ids[i] : grows;
        assert_true(told.error == 0 || told.error == MILL_KERR_FETCH_SESSION_ID_NOT_FOUND);
    }
    assert_int_equal(alive, WORLD_FETCH_SESSIONS_MAX - 1);
    /* A session that grows beyond what there is room for ends, and the client begins anew. */
    uint64_t refused = stats(&bench, 0)->refused;
    int16_t error = 0;
    for (int32_t epoch = 2; error == 0; epoch++) {
        assert_in_range(epoch, 2, 60);
        wish = next(&bench, grows, epoch);
        wish.count = 8;
        for (uint32_t i = 0; i < wish.count; i++) {
            wish.asked[i] = (struct asked){0, epoch * 8 + (int32_t)i, 0};
        }
        ask(&bench.client, 13, &wish, &told);
        error = told.error;
    }
    assert_int_equal(error, MILL_KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_int_equal(stats(&bench, 0)->refused, refused + 1);
    bench_close(&bench);
}

/* An answer has room for one partition: each has its turn, though the client asks in one order. */
static void test_every_partition_has_its_turn(void **state)
{
    MILL_UNUSED(state);
    static struct bench bench;
    static struct told told;
    bool seen[PLACES] = {false};
    bench_open(&bench, 1, 35);
    for (uint32_t i = 0; i < PLACES; i++) {
        produce(&bench, i, 4000);
    }
    struct wish wish = full(&bench);
    wish.bytes_max = 4500;
    ask(&bench.client, 13, &wish, &told);
    int32_t id = told.id;
    for (int32_t epoch = 1; epoch <= PLACES; epoch++) {
        wish = next(&bench, id, epoch);
        wish.bytes_max = 4500;
        ask(&bench.client, 13, &wish, &told);
        assert_int_equal(told.count, 1);
        seen[told.one[0].topic * PARTITIONS + (uint32_t)told.one[0].partition] = true;
    }
    for (uint32_t i = 0; i < PLACES; i++) {
        assert_true(seen[i]);
    }
    bench_close(&bench);
}

/* Errors are told each time; a partition that is not there yet is told when it is. */
static void test_errors_are_told_each_time(void **state)
{
    MILL_UNUSED(state);
    static struct bench bench;
    static struct told told;
    bench_open(&bench, 1, 36);
    struct wish wish = full(&bench);
    wish.asked[2].partition = 99;
    wish.asked[7].offset = 12345;
    ask(&bench.client, 13, &wish, &told);
    assert_int_equal(told.count, PLACES);
    int32_t id = told.id;
    for (int32_t epoch = 1; epoch <= 3; epoch++) {
        wish = next(&bench, id, epoch);
        ask(&bench.client, 13, &wish, &told);
        assert_int_equal(told.error, 0);
        assert_int_equal(told.count, 2);
        assert_int_equal(told.one[0].error, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
        assert_int_equal(told.one[1].error, MILL_KERR_OFFSET_OUT_OF_RANGE);
    }
    wish = next(&bench, id, 4);
    wish.count = 1;
    wish.asked[0] = (struct asked){1, 3, 0};
    ask(&bench.client, 13, &wish, &told);
    assert_int_equal(told.count, 2);
    assert_int_equal(told.one[1].error, 0);
    bench_close(&bench);
}

/* --- random ----------------------------------------------------------------------------------- */

/* What a consumer believes of a partition. */
struct belief {
    bool asked;
    bool known;
    int64_t offset; /* that it asks for */
    int64_t high_watermark;
};

struct consumer {
    struct world_client client;
    int32_t id;
    int32_t epoch;
    int16_t version;
    struct belief places[PLACES];
};

/* The request after this one: all partitions, or those whose offset or presence changed. */
static struct wish consumer_wish(const struct bench *bench, struct consumer *consumer,
                                 struct mill_random *random)
{
    bool begin = consumer->id == 0 || mill_random_below(random, 40) == 0;
    struct wish wish = {.ids = bench->ids};
    wish.id = consumer->id;
    wish.epoch = begin ? 0 : consumer->epoch;
    wish.bytes_max = mill_random_below(random, 3) == 0 ? 600 : 0;
    wish.wait_ms = mill_random_below(random, 4) == 0 ? 20 : 0;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct belief *belief = &consumer->places[i];
        const struct asked asked = {i / PARTITIONS, (int32_t)(i % PARTITIONS), belief->offset};
        bool change = mill_random_below(random, 30) == 0;
        if (!begin && belief->asked && change) {
            wish.forgotten[wish.forgotten_count++] = asked;
            *belief = (struct belief){.offset = belief->offset};
        } else if (begin || belief->asked || change) {
            belief->asked = true;
            wish.asked[wish.count++] = asked;
        }
    }
    return wish;
}

static void consumer_learn(struct consumer *consumer, const struct told *told,
                           struct mill_random *random)
{
    for (uint32_t i = 0; i < told->count; i++) {
        const struct one *one = &told->one[i];
        struct belief *belief =
            &consumer->places[one->topic * PARTITIONS + (uint32_t)one->partition];
        assert_int_equal(one->error, 0);
        assert_true(belief->asked);
        belief->known = true;
        belief->high_watermark = one->high_watermark;
        if (one->bytes > 0 && mill_random_below(random, 2) == 0) {
            belief->offset = one->high_watermark;
        }
    }
}

static void consumer_round(struct bench *bench, struct consumer *consumer,
                           struct mill_random *random)
{
    static struct told told;
    struct wish wish = consumer_wish(bench, consumer, random);
    ask(&consumer->client, consumer->version, &wish, &told);
    if (told.error != 0) {
        consumer->id = 0;
        return;
    }
    bool begun = wish.epoch == 0;
    consumer->epoch = begun ? 1 : mill_fetch_session_epoch_after(consumer->epoch);
    consumer->id = told.id;
    consumer_learn(consumer, &told, random);
    for (uint32_t i = 0; i < PLACES && told.id > 0; i++) {
        const struct belief *belief = &consumer->places[i];
        if (belief->asked) {
            /* As the log is, and as a full request would be told. */
            assert_true(belief->known);
            assert_int_equal(belief->high_watermark, bench->ends[i]);
        }
    }
}

static void test_random_sessions_know_what_is(void **state)
{
    MILL_UNUSED(state);
    enum {
        CONSUMERS = WORLD_FETCH_SESSIONS_MAX + 2, /* more than there is room for */
    };
    static struct bench bench;
    static struct consumer consumers[CONSUMERS];
    const char *given = getenv("MILL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 37;
    struct mill_random random = {seed};
    uint64_t goes_on = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    bench_open(&bench, 2, seed);
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        consumers[i] = (struct consumer){.version = (int16_t)(11 + i % 5)};
        world_connect(&bench.world, &consumers[i].client, 0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (mill_random_below(&random, 3) == 0) {
            produce(&bench, mill_random_below(&random, PLACES), 200);
        }
        if (mill_random_below(&random, 50) == 0) {
            later(&bench, 121);
        }
        struct consumer *consumer = &consumers[mill_random_below(&random, CONSUMERS)];
        goes_on += consumer->id > 0;
        consumer_round(&bench, consumer, &random);
    }
    assert_true(goes_on > ROUNDS / 4);
    assert_true(stats(&bench, 0)->evictions > 0);
    assert_true(stats(&bench, 0)->refused > 0);
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        world_disconnect(&consumers[i].client);
    }
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_changes_are_told),
        cmocka_unit_test(test_waiting_goes_on),
        cmocka_unit_test(test_ids_and_epochs_are_checked),
        cmocka_unit_test(test_forgotten_partitions_are_gone),
        cmocka_unit_test(test_a_session_goes_on_without_who_waits),
        cmocka_unit_test(test_bounds_refuse_and_make_room),
        cmocka_unit_test(test_every_partition_has_its_turn),
        cmocka_unit_test(test_errors_are_told_each_time),
        cmocka_unit_test(test_random_sessions_know_what_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
