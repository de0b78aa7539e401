/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who uses more than its quota is answered, told how long to wait, and not read until then,
 * whatever it sends and by whichever core; nobody else notices. Method: a whole broker on virtual
 * time (world.h), quotas set by AlterClientQuotas, waits read from the answers' bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/encoder.h"
#include "tests/unit/test.h"

enum {
    PARTITIONS = 4,
    PADDING = 60000,
    PIPELINED = 12,
    RATE = 10000, /* bytes per second; a burst is ten seconds of it */
    PRODUCE_VERSION = 7,
    METADATA_VERSION = 9,
    GROUPS_VERSION = 4,
    OLD_GROUPS_VERSION = 0, /* without throttle_time_ms */
};

static const char topic[] = "quotas";

/* --- requests ----------------------------------------------------------------------------------
 */

struct quota {
    const char *user;   /* NULL: not named */
    const char *client; /* NULL: not named */
    bool by_default;    /* of the half that is named */
    const char *key;
    double value; /* 0: taken away */
};

static void get_half(const void *context, int32_t index, void *ret_element)
{
    const struct quota *quota = context;
    struct mill_alter_client_quotas_request_entries_entity *half = ret_element;
    MILL_UNUSED(index);
    half->entity_type = mill_wstr_of(quota->user ? "user" : "client-id");
    half->entity_name = mill_wstr_of(quota->by_default ? NULL
                                     : quota->user     ? quota->user
                                                       : quota->client);
}

static void get_op(const void *context, int32_t index, void *ret_element)
{
    const struct quota *quota = context;
    struct mill_alter_client_quotas_request_entries_ops *op = ret_element;
    MILL_UNUSED(index);
    op->key = mill_wstr_of(quota->key);
    op->value = quota->value;
    op->remove = quota->value == 0;
}

static void get_entry(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_client_quotas_request_entries *entry = ret_element;
    MILL_UNUSED(index);
    entry->entity = (struct mill_warray){.count = 1, .get = get_half, .context = context};
    entry->ops = (struct mill_warray){.count = 1, .get = get_op, .context = context};
}

ENCODER(alter_client_quotas)

/* A client without a quota asks. */
static void quota_set(struct world *world, struct quota quota)
{
    struct world_client admin;
    struct mill_alter_client_quotas_request in;
    struct mill_alter_client_quotas_response out;
    struct mill_alter_client_quotas_response_entries entry;
    world_connect(world, &admin, 0);
    admin.id = "admin";
    mill_alter_client_quotas_request_defaults(&in);
    in.entries = (struct mill_warray){.count = 1, .get = get_entry, .context = &quota};
    struct mill_cursor at =
        world_ask(&admin, MILL_API_KEY_ALTER_CLIENT_QUOTAS, 1, alter_client_quotas_out, &in);
    assert_int_equal(mill_alter_client_quotas_response_decode(&at, 1, &out), 0);
    assert_true(mill_alter_client_quotas_response_entries_next(&out.entries, 1, &entry));
    assert_int_equal(entry.error_code, 0);
    world_disconnect(&admin);
    world_settle(world, 100); /* every core follows */
}

static void client_open(struct world *world, struct world_client *client, const char *id,
                        uint32_t core)
{
    world_connect(world, client, core);
    client->id = id;
}

/* ret: the wait that a Produce answer tells at its end. */
static int32_t produced(struct world_client *client)
{
    uint32_t bytes = world_await(client);
    assert_int_equal(world_produced_read(client, topic).error, 0);
    return (int32_t)mill_load_be32(client->answer + bytes - 4);
}

static int32_t produce(struct world_client *client)
{
    world_produce_send(client, topic, 0, -1, -1, 1, 1, PADDING);
    return produced(client);
}

/* Bytes of a Produce of client_open's client. */
static uint32_t produce_bytes(const char *id)
{
    return PADDING + 4 + 10 + (uint32_t)strlen(id) + 2 + 2 + 4 + 4 + 2 + (uint32_t)strlen(topic) +
           4 + 4 + 4 + MILL_BATCH_HEADER_BYTES + 3 + 1 + 1 + 1 + 1 + 3 + 8 + 1;
}

static struct mill_core_words words(const struct world *world, uint32_t core)
{
    return world->cores[core].core->words;
}

static uint64_t ms(const struct world *world)
{
    return world->now.mono_ns / MILL_NS_PER_MS;
}

/* A Produce that is answered at once; its wait is over a while before or after what was told. */
static void assert_muted_for(struct world_client *client, int32_t throttle_ms)
{
    struct world *world = client->world;
    uint64_t begun_ms = ms(world);
    (void)produce(client);
    assert_true(ms(world) - begun_ms + 5 >= (uint32_t)throttle_ms);
    assert_true(ms(world) - begun_ms <= (uint32_t)throttle_ms + 20);
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void world_with_topic(struct world *world, uint32_t cores_count, uint64_t seed)
{
    world_open(world, cores_count, seed);
    world->now.mono_ns +=
        60 * MILL_NS_PER_S; /* the clock is older than a burst, as on any machine */
    world_topic(world, topic, PARTITIONS, "retention.ms", "-1");
    world_settle(world, 1000);
}

static void test_produce_is_answered_then_muted(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    struct world_client other;
    world_with_topic(&world, 1, 1);
    quota_set(&world, (struct quota){.client = "loud", .key = "producer_byte_rate", .value = RATE});
    client_open(&world, &client, "loud", 0);
    client_open(&world, &other, "quiet", 0);
    uint32_t size = produce_bytes("loud");
    assert_int_equal(produce(&client), 0); /* 60 kB of a burst of 100 */
    uint64_t begun_ms = ms(&world);
    int32_t throttle_ms = produce(&client);
    assert_true(ms(&world) - begun_ms < 20);
    assert_in_range(throttle_ms, size * 2 * 1000 / RATE - 10000 - 50,
                    size * 2 * 1000 / RATE - 9950);
    assert_int_equal(words(&world, 0).muted, 1);
    assert_int_equal(words(&world, 0).produce_throttled, 1);
    assert_int_equal(produce(&other), 0);
    assert_true(ms(&world) - begun_ms < 50);
    world_produce_send(&client, topic, 0, -1, -1, 1, 1, PADDING); /* nobody reads it yet */
    assert_int_equal(produce(&other), 0);
    world_settle(&world, 100);
    uint32_t bytes;
    assert_false(world_answer(&client, &bytes));
    (void)produced(&client);
    assert_true(ms(&world) - begun_ms + 5 >= (uint32_t)throttle_ms);
    assert_true(ms(&world) - begun_ms <= (uint32_t)throttle_ms + 50);
    assert_int_equal(words(&world, 0).produce_throttled, 2);
    /* Nothing is left of a wait when the quota is gone. */
    quota_set(&world, (struct quota){.client = "loud", .key = "producer_byte_rate"});
    (void)produce(&client);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(produce(&client), 0);
    }
    assert_int_equal(words(&world, 0).muted, 0);
    world_disconnect(&client);
    world_disconnect(&other);
    world_close(&world);
}

/* acks=0: no answer tells the wait, the connection has it all the same. */
static void test_produce_without_answer_is_muted(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    world_with_topic(&world, 1, 2);
    quota_set(&world, (struct quota){.client = "loud", .key = "producer_byte_rate", .value = RATE});
    client_open(&world, &client, "loud", 0);
    client.acks_none = true;
    for (uint32_t i = 0; i < 4; i++) {
        world_produce_send(&client, topic, 0, -1, -1, i, 1, PADDING);
    }
    uint64_t begun_ms = ms(&world);
    world_settle(&world, 1000);
    assert_int_equal(words(&world, 0).produce_throttled, 1);
    client.acks_none = false;
    (void)produce(&client); /* behind the others: four requests above two bursts */
    assert_true(ms(&world) - begun_ms > 4ull * PADDING * 1000 / RATE - 10000 - 500);
    world_disconnect(&client);
    world_close(&world);
}

struct sender {
    struct world_client client;
    bool waits;
    uint64_t sent;
};

/* Two clients on different cores share one limit: together they get it, and no more. */
static void test_cores_share_a_limit(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct sender senders[4] = {0};
    const uint64_t seconds = 300;
    world_with_topic(&world, 2, 3);
    quota_set(&world,
              (struct quota){.client = "loud", .key = "producer_byte_rate", .value = 10 * RATE});
    for (uint32_t i = 0; i < MILL_COUNT_OF(senders); i++) {
        client_open(&world, &senders[i].client, "loud", i % 2);
    }
    uint64_t begun_ms = ms(&world);
    uint64_t sum = 0;
    while (ms(&world) - begun_ms < seconds * 1000) {
        for (uint32_t i = 0; i < MILL_COUNT_OF(senders); i++) {
            struct sender *sender = &senders[i];
            uint32_t bytes;
            if (sender->waits && world_answer(&sender->client, &bytes)) {
                sender->waits = false;
                sender->sent += produce_bytes("loud");
                sum += produce_bytes("loud");
            }
            if (!sender->waits) {
                world_produce_send(&sender->client, topic, (int32_t)i, -1, -1, 1, 1, PADDING);
                sender->waits = true;
            }
        }
        world_turn(&world, 20 * MILL_NS_PER_MS);
    }
    const uint64_t may = 10ull * RATE * (seconds + 10);
    assert_true(sum < may + may / 50 + 4 * PADDING);
    assert_true(sum > may - may / 50 - 4 * PADDING);
    for (uint32_t i = 0; i < MILL_COUNT_OF(senders); i++) {
        assert_true(senders[i].sent > sum / 8); /* nobody is left out */
        world_disconnect(&senders[i].client);
    }
    world_close(&world);
}

/* The default limits each client id by itself, a user's all of them together. */
static void test_default_and_user(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client one;
    struct world_client two;
    world_with_topic(&world, 2, 4);
    quota_set(&world,
              (struct quota){
                  .client = "", .by_default = true, .key = "producer_byte_rate", .value = RATE});
    client_open(&world, &one, "one", 0);
    client_open(&world, &two, "", 1); /* no id is an id, too */
    assert_int_equal(produce(&one), 0);
    assert_int_equal(produce(&two), 0);
    int32_t throttle_ms = produce(&one);
    assert_true(throttle_ms > 1000);
    assert_muted_for(&one, throttle_ms);
    quota_set(&world, (struct quota){.user = "SOMEBODY", .key = "producer_byte_rate", .value = 1});
    quota_set(&world,
              (struct quota){.user = "ANONYMOUS", .key = "producer_byte_rate", .value = 2 * RATE});
    world.now.mono_ns += 60 * MILL_NS_PER_S;
    for (uint32_t i = 0; i < 3; i++) { /* 180 kB of 200 */
        assert_int_equal(produce(i % 2 ? &one : &two), 0);
    }
    throttle_ms = produce(&one);
    assert_in_range(throttle_ms, 1500, 2500);
    assert_in_range(produce(&two), throttle_ms + 2500, throttle_ms + 3500);
    world_disconnect(&one);
    world_disconnect(&two);
    world_close(&world);
}

struct fetched {
    int32_t throttle_ms;
    int32_t fetch_session;
    int32_t topics;
    uint32_t bytes;
};

/* Fetch 10: correlation, wait, error, fetch session, topics. */
static struct fetched fetch(struct world_client *client, const struct world_fetch_options *options)
{
    world_fetch_send(client, topic, 1, options);
    struct fetched told = {.bytes = world_await(client)};
    assert_int_equal(mill_load_be16(client->answer + 8), 0);
    told.throttle_ms = (int32_t)mill_load_be32(client->answer + 4);
    told.fetch_session = (int32_t)mill_load_be32(client->answer + 10);
    told.topics = (int32_t)mill_load_be32(client->answer + 14);
    return told;
}

/* What a Fetch brings is charged; who owes gets no records, on whichever connection, and keeps its
 * fetch session. */
static void test_fetch_of_who_owes_is_empty(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    struct world_client again;
    world_with_topic(&world, 2, 5);
    client_open(&world, &client, "producer", 0);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(produce(&client), 0);
    }
    world_disconnect(&client);
    quota_set(&world, (struct quota){.client = "loud", .key = "consumer_byte_rate", .value = RATE});
    client_open(&world, &client, "loud", 0);
    struct world_fetch_options options = {.bytes_min = 1,
                                          .bytes_max = 1 << 20,
                                          .partition_bytes_max = 1 << 20,
                                          .session_id = 0,
                                          .session_epoch = 0};
    struct fetched told = fetch(&client, &options);
    assert_true(told.bytes > PADDING && told.bytes < 10 * RATE); /* not more than a burst */
    assert_int_equal(told.throttle_ms, 0);
    assert_true(told.fetch_session > 0);
    options.session_id = told.fetch_session;
    options.session_epoch = 1;
    told = fetch(&client, &options);
    assert_int_equal(told.topics, 1);
    assert_true(told.throttle_ms > 1500);
    int32_t owed_ms = told.throttle_ms;
    uint64_t begun_ms = ms(&world);
    client_open(&world, &again, "loud", 1); /* another connection, another core */
    struct world_fetch_options other = options;
    other.session_id = 0;
    other.session_epoch = -1;
    told = fetch(&again, &other);
    assert_int_equal(told.topics, 0);
    assert_true(told.bytes < 100);
    assert_in_range(told.throttle_ms, owed_ms - 50, owed_ms);
    options.session_epoch = 2;
    told = fetch(&client, &options); /* read when the wait is over: then it owes nothing */
    assert_true(ms(&world) - begun_ms + 5 >= (uint32_t)owed_ms);
    assert_int_equal(told.topics, 1);
    assert_true(told.bytes > PADDING);
    world_disconnect(&again);
    client_open(&world, &again, "loud", 0);
    options.session_epoch = 3;
    told = fetch(&again, &options); /* it owes; the fetch session goes on */
    assert_int_equal(told.topics, 0);
    assert_int_equal(told.fetch_session, options.session_id);
    assert_true(told.throttle_ms > 0);
    options.session_epoch = 4;
    told = fetch(&again, &options);
    assert_int_equal(told.topics, 1);
    assert_int_equal(told.fetch_session, options.session_id);
    world_disconnect(&client);
    world_disconnect(&again);
    world_close(&world);
}

ENCODER(metadata)
ENCODER(list_groups)
ENCODER(api_versions)

/* A core's time: every answer tells the wait, in its place, and none is longer than a sample. */
static void test_time_of_requests(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    struct mill_metadata_request metadata;
    struct mill_metadata_response metadata_out_;
    struct mill_list_groups_request groups;
    struct mill_list_groups_response groups_out_;
    struct mill_api_versions_request versions;
    struct mill_api_versions_response versions_out_;
    world_with_topic(&world, 1, 6);
    mill_metadata_request_defaults(&metadata);
    mill_list_groups_request_defaults(&groups);
    mill_api_versions_request_defaults(&versions);
    versions.client_software_name = mill_wstr_of("sim");
    versions.client_software_version = mill_wstr_of("1");
    quota_set(&world, (struct quota){.client = "loud", .key = "request_percentage", .value = 1});
    client_open(&world, &client, "loud", 0);
    world.ticks_by_ns = 20 * MILL_NS_PER_MS; /* a look at the clock, two or more in a request */
    int32_t throttle_ms = 0;
    uint32_t asked = 0;
    while (throttle_ms == 0) {
        struct mill_cursor at =
            world_ask(&client, MILL_API_KEY_METADATA, METADATA_VERSION, metadata_out, &metadata);
        assert_int_equal(mill_metadata_response_decode(&at, METADATA_VERSION, &metadata_out_), 0);
        throttle_ms = metadata_out_.throttle_time_ms;
        asked++;
        assert_true(asked < 100);
    }
    assert_in_range(asked, 2, 6); /* a burst is 100 ms of the core */
    assert_true(words(&world, 0).request_throttled > 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_in_range(throttle_ms, 1, 1000);
        uint64_t begun_ms = ms(&world);
        struct mill_cursor at =
            world_ask(&client, MILL_API_KEY_LIST_GROUPS, GROUPS_VERSION, list_groups_out, &groups);
        assert_true(ms(&world) - begun_ms + 5 >= (uint32_t)throttle_ms);
        assert_int_equal(mill_list_groups_response_decode(&at, GROUPS_VERSION, &groups_out_), 0);
        assert_in_range(groups_out_.throttle_time_ms, 1, 1000);
        assert_int_equal(groups_out_.error_code, 0);
        throttle_ms = groups_out_.throttle_time_ms;
    }
    struct mill_cursor at =
        world_ask(&client, MILL_API_KEY_LIST_GROUPS, OLD_GROUPS_VERSION, list_groups_out, &groups);
    assert_int_equal(mill_list_groups_response_decode(&at, OLD_GROUPS_VERSION, &groups_out_), 0);
    assert_int_equal(groups_out_.error_code, 0);
    assert_int_equal(groups_out_.throttle_time_ms, 0);
    uint64_t begun_ms = ms(&world);
    at = world_ask(&client, MILL_API_KEY_API_VERSIONS, 3, api_versions_out, &versions);
    assert_true(ms(&world) - begun_ms > 500); /* it could not be told, and holds */
    assert_int_equal(mill_api_versions_response_decode(&at, 3, &versions_out_), 0);
    assert_in_range(versions_out_.throttle_time_ms, 1, 1000);
    assert_true(produce(&client) > 0);
    world_disconnect(&client);
    client_open(&world, &client, "quiet", 0);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(produce(&client), 0);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* Who closes while it is muted is gone; who is muted for long is not taken for idle or stuck. */
static void test_muted_connection_closes(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    struct world_client gone;
    world_with_topic(&world, 1, 7);
    quota_set(&world, (struct quota){.client = "loud", .key = "producer_byte_rate", .value = 100});
    client_open(&world, &client, "loud", 0);
    client_open(&world, &gone, "loud", 0);
    assert_in_range(produce(&gone), 500000, 700000);
    int32_t throttle_ms = produce(&client);
    assert_true(throttle_ms > 1000000);
    assert_int_equal(words(&world, 0).muted, 2);
    mem_finish(gone.peer);
    world_settle(&world, 1000);
    assert_true(mem_ended(gone.peer));
    assert_int_equal(words(&world, 0).muted, 1);
    uint64_t begun_ms = ms(&world);
    world_produce_send(&client, topic, 0, -1, -1, 1, 1, PADDING);
    while (ms(&world) - begun_ms < (uint32_t)throttle_ms) {
        world_turn(&world, MILL_NS_PER_S);
        assert_false(mem_ended(client.peer));
    }
    (void)produced(&client);
    world_disconnect(&client);
    world_disconnect(&gone);
    world_close(&world);
}

/* What a muted connection sent is counted and bounded, and others do not wait for its buffers. */
static void test_muted_connection_holds_no_more(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    struct world_client other;
    uint8_t head[8] = {0};
    world_with_topic(&world, 1, 9);
    const struct mill_core *core = world.cores[0].core;
    quota_set(&world, (struct quota){.client = "loud", .key = "producer_byte_rate", .value = 1000});
    client_open(&world, &client, "loud", 0);
    client_open(&world, &other, "quiet", 0);
    assert_true(produce(&client) > 10000);
    world_settle(&world, 100);
    assert_int_equal(core->pinned_bytes, 0);
    for (uint32_t i = 0; i < PIPELINED / 2; i++) {
        world_produce_send(&client, topic, 0, -1, -1, 1, 1, PADDING);
    }
    world_settle(&world, 100);
    uint64_t held = core->pinned_bytes;
    assert_true(held > core->limits.pinned_total_bytes);
    for (uint32_t i = 0; i < PIPELINED / 2; i++) {
        world_produce_send(&client, topic, 0, -1, -1, 1, 1, PADDING);
        world_settle(&world, 100);
        assert_int_equal(core->pinned_bytes, held);
    }
    /* The begin of a Produce: it does not stay in the buffers. */
    mill_store_be32(head, PADDING);
    mill_store_be16(head + 6, PRODUCE_VERSION);
    mem_send(other.peer, head, sizeof(head));
    world_settle(&world, 100);
    assert_int_equal(core->stage_reserved, PADDING + 4);
    world_disconnect(&other);
    for (uint32_t i = 0; i < PIPELINED; i++) {
        uint32_t bytes;
        while (!world_answer(&client, &bytes)) {
            world_turn(&world, MILL_NS_PER_S);
        }
        assert_int_equal(world_produced_read(&client, topic).error, 0);
    }
    world_settle(&world, 100);
    assert_int_equal(core->pinned_bytes, 0);
    world_disconnect(&client);
    world_close(&world);
}

/* The end of who sent something while it was muted is seen, too, and then it is idle for too long.
 */
static void test_muted_connection_with_bytes_closes(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    world_with_topic(&world, 1, 10);
    struct mill_core *core = world.cores[0].core;
    core->limits.idle_timeout_ns = 600 * MILL_NS_PER_S;
    quota_set(&world, (struct quota){.client = "loud", .key = "producer_byte_rate", .value = 10});
    client_open(&world, &client, "loud", 0);
    assert_true(produce(&client) > 5000000);
    world_produce_send(&client, topic, 0, -1, -1, 1, 1, PADDING);
    world_settle(&world, 100);
    assert_true(core->pinned_bytes > 0);
    mem_finish(client.peer);
    uint64_t begun_ms = ms(&world);
    while (!mem_ended(client.peer)) {
        world_turn(&world, MILL_NS_PER_S);
        assert_true(ms(&world) - begun_ms < 700000); /* stall and idle time */
    }
    assert_int_equal(core->pinned_bytes, 0);
    assert_int_equal(words(&world, 0).muted, 0);
    world_disconnect(&client);
    world_close(&world);
}

/* Quotas are kept: by a new control and by new cores. */
static void test_quota_outlives_starts(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client client;
    world_with_topic(&world, 2, 8);
    quota_set(&world, (struct quota){.client = "loud", .key = "producer_byte_rate", .value = 1000});
    for (uint32_t round = 0; round < 3; round++) {
        if (round == 1) {
            world_crash_control(&world);
        } else if (round == 2) {
            world_crash(&world);
        }
        world_settle(&world, 3000);
        client_open(&world, &client, "loud", 1);
        assert_true(produce(&client) > 10000);
        world_disconnect(&client);
    }
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_produce_is_answered_then_muted),
        cmocka_unit_test(test_produce_without_answer_is_muted),
        cmocka_unit_test(test_cores_share_a_limit),
        cmocka_unit_test(test_default_and_user),
        cmocka_unit_test(test_fetch_of_who_owes_is_empty),
        cmocka_unit_test(test_time_of_requests),
        cmocka_unit_test(test_muted_connection_closes),
        cmocka_unit_test(test_muted_connection_holds_no_more),
        cmocka_unit_test(test_muted_connection_with_bytes_closes),
        cmocka_unit_test(test_quota_outlives_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
