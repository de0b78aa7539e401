/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: DescribeProducers tells every producer of every partition asked for, whichever core owns
 * it, a bounded number in a turn, and leaves nothing behind when its client goes. Method: a data
 * plane on virtual time (world.h), producers appended by clients, requests through the generated
 * codec, the answer compared with what was produced. ref: KIP-664
 */
#include <stdio.h>
#include <string.h>

#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/encoder.h"
#include "tests/unit/test.h"

enum {
    PARTITIONS = 4,
    MANY = 200,           /* producers of partition 0: several turns */
    STATES_PER_TURN = 64, /* what a core may tell of one partition in a turn */
    ELSEWHERE = 99,       /* a partition that is not there */
    FIRST_ID = 1000,      /* of a partition's producers */
    IDS_PER_PARTITION = 1000,
    TURNS_MAX = 10000,
    OFTEN = 300, /* one request names a partition */
};

static const char topic[] = "producers";
static const int64_t batch_time_ms = 1700000000000; /* of world_produce_send */
static struct world world;

/* How many producers each partition has. */
static const uint32_t counts[PARTITIONS] = {MANY, 3, 0, 1};

static int64_t id_of(int32_t partition, uint32_t number)
{
    return FIRST_ID + partition * IDS_PER_PARTITION + (int64_t)number;
}

static void fill(void)
{
    struct world_client client;
    world_connect(&world, &client, 0);
    for (int32_t p = 0; p < PARTITIONS; p++) {
        for (uint32_t i = 0; i < counts[p]; i++) {
            /* Each has one batch of as many records as tell it from others. */
            world_produce_send(&client, topic, p, id_of(p, i), 0, i, 1 + i % 5, 0);
            world_await(&client);
            assert_int_equal(world_produced_read(&client, topic).error, 0);
        }
    }
    world_disconnect(&client);
}

/* --- requests -------------------------------------------------------------------------------- */

ENCODER(describe_producers)

struct asked {
    const char *topic;
    const int32_t *partitions;
    int32_t count;
};

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    *(int32_t *)ret_element = ((const struct asked *)context)->partitions[index];
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    const struct asked *asked = context;
    struct mill_describe_producers_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(asked->topic);
    element->partition_indexes =
        (struct mill_warray){.count = asked->count, .get = get_partition, .context = asked};
}

static void ask(struct world_client *client, const struct asked *asked)
{
    struct mill_describe_producers_request in;
    mill_describe_producers_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_topic, .context = asked};
    world_ask_send(client, MILL_API_KEY_DESCRIBE_PRODUCERS, 0, describe_producers_out, &in);
}

/* One partition of an answer: each of its producers, once. */
static void
check_producers(const struct mill_describe_producers_response_topics_partitions *partition,
                uint32_t count)
{
    struct mill_describe_producers_response_topics_partitions_active_producers got;
    struct mill_warray producers = partition->active_producers;
    bool seen[MANY] = {false};
    uint32_t told = 0;
    while (mill_describe_producers_response_topics_partitions_active_producers_next(&producers, 0,
                                                                                    &got)) {
        int64_t number = got.producer_id - id_of(partition->partition_index, 0);
        assert_in_range(number, 0, count - 1);
        assert_false(seen[number]);
        seen[number] = true;
        told++;
        assert_int_equal(got.producer_epoch, 0);
        assert_int_equal(got.last_sequence, number % 5);
        assert_int_equal(got.last_timestamp, batch_time_ms);
        assert_int_equal(got.coordinator_epoch, -1);
        assert_int_equal(got.current_txn_start_offset, -1);
    }
    assert_int_equal(told, count);
}

/* Reads the answer of one topic; partitions that are there are complete. */
static void check(struct world_client *client, uint32_t answer_bytes, const struct asked *asked,
                  int16_t error)
{
    struct mill_describe_producers_response got;
    struct mill_describe_producers_response_topics named;
    struct mill_describe_producers_response_topics_partitions partition;
    struct mill_cursor at = world_asked(client, MILL_API_KEY_DESCRIBE_PRODUCERS, 0, answer_bytes);
    assert_int_equal(mill_describe_producers_response_decode(&at, 0, &got), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_int_equal(got.topics.count, 1);
    assert_true(mill_describe_producers_response_topics_next(&got.topics, 0, &named));
    assert_true(mill_wstr_equal(&named.name, asked->topic, (uint32_t)strlen(asked->topic)));
    assert_int_equal(named.partitions.count, asked->count);
    for (int32_t i = 0; i < asked->count; i++) {
        assert_true(mill_describe_producers_response_topics_partitions_next(&named.partitions, 0,
                                                                            &partition));
        assert_int_equal(partition.partition_index, asked->partitions[i]);
        bool there = error == 0 && partition.partition_index < PARTITIONS;
        assert_int_equal(partition.error_code,
                         there || error != 0 ? error : MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
        check_producers(&partition, there ? counts[partition.partition_index] : 0);
    }
}

static void settle_empty(void)
{
    world_settle(&world, TURNS_MAX);
    for (uint32_t i = 0; i < world.cores_count; i++) {
        const struct mill_core *core = world.cores[i].core;
        assert_int_equal(world.cores[i].loans.loaned_bytes, 0);
        assert_int_equal(core->retired_count, 0);
        assert_int_equal(core->producers_bytes, 0);
        assert_true(mill_list_empty(&core->retry));
    }
}

static uint64_t used_bytes(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < world.cores_count; i++) {
        sum += mill_extents_used_bytes(world.cores[i].extents);
    }
    return sum;
}

/* --- tests ----------------------------------------------------------------------------------- */

static const int32_t all[] = {3, 0, 1, 2, ELSEWHERE, 0};
static const struct asked asked_all = {topic, all, sizeof(all) / sizeof(all[0])};

static void open_filled(uint32_t cores, uint64_t seed)
{
    world_open(&world, cores, seed);
    world_topic(&world, topic, PARTITIONS, "segment.bytes", "1048576");
    fill();
    settle_empty();
}

static void test_all_are_told_from_any_core(void **state)
{
    MILL_UNUSED(state);
    static const int32_t first[] = {0};
    for (uint32_t cores = 1; cores <= 3; cores++) {
        open_filled(cores, cores);
        for (uint32_t core = 0; core < cores; core++) {
            struct world_client client;
            uint64_t used = used_bytes();
            world_connect(&world, &client, core);
            ask(&client, &asked_all);
            check(&client, world_await(&client), &asked_all, 0);
            struct asked other = {"nobody", first, 1};
            ask(&client, &other);
            check(&client, world_await(&client), &other, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
            other.topic = "no name";
            ask(&client, &other);
            check(&client, world_await(&client), &other, MILL_KERR_INVALID_TOPIC_EXCEPTION);
            world_disconnect(&client);
            settle_empty();
            assert_int_equal(used_bytes(), used);
        }
        world_close(&world);
    }
}

/* After a start the states are those of the files. */
static void test_states_outlive_a_start(void **state)
{
    MILL_UNUSED(state);
    struct world_client client;
    open_filled(2, 7);
    world_crash(&world);
    world_settle(&world, TURNS_MAX);
    world_connect(&world, &client, 1);
    ask(&client, &asked_all);
    check(&client, world_await(&client), &asked_all, 0);
    world_disconnect(&client);
    world_close(&world);
}

/* One turn tells no more of a partition than it may, and a core that still tells does not sleep. */
static void test_turns_are_bounded_and_go_on(void **state)
{
    MILL_UNUSED(state);
    static const int32_t first[] = {0};
    static const struct asked asked = {topic, first, 1};
    struct world_client client;
    uint32_t bytes = 0;
    uint32_t turns = 0;
    open_filled(1, 9);
    world_connect(&world, &client, 0);
    world_settle(&world, TURNS_MAX);
    ask(&client, &asked);
    while (!world_answer(&client, &bytes)) {
        assert_true(world_turn(&world, MILL_NS_PER_MS) > 0);
        turns++;
    }
    assert_in_range(turns, MANY / STATES_PER_TURN, TURNS_MAX);
    check(&client, bytes, &asked, 0);
    world_disconnect(&client);
    world_close(&world);
}

/* The client goes at every turn between its request and the answer. */
static void test_nothing_is_left_of_a_client_that_went(void **state)
{
    MILL_UNUSED(state);
    for (uint32_t cores = 1; cores <= 2; cores++) {
        open_filled(cores, 20 + cores);
        uint64_t used = used_bytes();
        for (uint32_t turns = 0; turns < 12; turns++) {
            struct world_client client;
            world_connect(&world, &client, turns % cores);
            ask(&client, &asked_all);
            for (uint32_t i = 0; i < turns; i++) {
                world_turn(&world, MILL_NS_PER_MS);
            }
            world_disconnect(&client);
            settle_empty();
            assert_int_equal(used_bytes(), used);
        }
        world_close(&world);
    }
}

/* One request names a partition more often than there is memory for its lists: what found none may
 * be asked for again. */
static void test_lists_are_bounded(void **state)
{
    MILL_UNUSED(state);
    static int32_t often[OFTEN]; /* all of partition 0 */
    static const struct asked asked = {topic, often, OFTEN};
    for (uint32_t cores = 1; cores <= 2; cores++) {
        struct world_client client;
        open_filled(cores, 30 + cores);
        uint64_t used = used_bytes();
        world_connect(&world, &client, cores - 1);
        ask(&client, &asked);
        uint32_t bytes;
        uint64_t most = 0;
        /* The last one may be rounded up to its extent. */
        uint64_t max = world.cores[0].core->limits.producers_bytes_max;
        while (!world_answer(&client, &bytes)) {
            world_turn(&world, MILL_NS_PER_MS);
            for (uint32_t i = 0; i < cores; i++) {
                most = MILL_MAX(most, world.cores[i].core->producers_bytes);
            }
            assert_in_range(most, 0, max + MILL_EXTENT_UNIT_BYTES);
        }
        assert_true(most > max / 2);
        uint64_t refused = 0;
        uint64_t counted = 0;
        for (uint32_t i = 0; i < cores; i++) {
            counted += world.cores[i].core->words.producers_full;
        }
        struct mill_describe_producers_response got;
        struct mill_describe_producers_response_topics named;
        struct mill_describe_producers_response_topics_partitions partition;
        struct mill_cursor at = world_asked(&client, MILL_API_KEY_DESCRIBE_PRODUCERS, 0, bytes);
        assert_int_equal(mill_describe_producers_response_decode(&at, 0, &got), 0);
        assert_true(mill_describe_producers_response_topics_next(&got.topics, 0, &named));
        while (mill_describe_producers_response_topics_partitions_next(&named.partitions, 0,
                                                                       &partition)) {
            bool told = partition.error_code == 0;
            refused += !told;
            assert_true(told || partition.error_code == MILL_KERR_NOT_LEADER_OR_FOLLOWER);
            check_producers(&partition, told ? MANY : 0);
        }
        assert_in_range(refused, 1, OFTEN - 2);
        assert_int_equal(refused, counted);
        settle_empty();
        ask(&client, &asked_all);
        check(&client, world_await(&client), &asked_all, 0);
        world_disconnect(&client);
        settle_empty();
        assert_int_equal(used_bytes(), used);
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_told_from_any_core),
        cmocka_unit_test(test_states_outlive_a_start),
        cmocka_unit_test(test_turns_are_bounded_and_go_on),
        cmocka_unit_test(test_lists_are_bounded),
        cmocka_unit_test(test_nothing_is_left_of_a_client_that_went),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("producers", tests, NULL, NULL);
}
