/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: TxnOffsetCommit 6 names topics by ids and tells a group's newer errors, which older
 * versions do not know; what it committed is the group's. Method: a whole broker on virtual time
 * (world.h), requests and answers by the generated codec. ref: KIP-1319
 */
#include <stdio.h>
#include <string.h>

#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/encoder.h"
#include "tests/unit/test.h"

enum {
    NAMES_VERSION = 5,
    IDS_VERSION = 6,
    FETCH_VERSION = 5,
    HEARTBEAT_VERSION = 1,
    END_VERSION = 5,
    TRIES_MAX = 200,
    OFFSET = 41,
};

static const char topic[] = "named";
static const char transactional_id[] = "payer";
static const char member_id[] = "9YQFAg8dS8yRLDpCpGrA4g";
static const struct mill_uuid unknown_id = {.b = {1, 2, 3}};

static struct world world;
static struct world_client client;
static struct mill_uuid id;
static int64_t producer_id;
static int16_t producer_epoch;

ENCODER(init_producer_id)
ENCODER(txn_offset_commit)
ENCODER(consumer_group_heartbeat)
ENCODER(end_txn)
ENCODER(offset_fetch)

static void init(void)
{
    struct mill_init_producer_id_request in;
    struct mill_init_producer_id_response got = {.error_code = -1};
    mill_init_producer_id_request_defaults(&in);
    in.transactional_id = mill_wstr_of(transactional_id);
    in.transaction_timeout_ms = 600000;
    for (uint32_t tries = 0; got.error_code != 0; tries++) {
        assert_true(tries < TRIES_MAX);
        struct mill_cursor at =
            world_ask(&client, MILL_API_KEY_INIT_PRODUCER_ID, 1, init_producer_id_out, &in);
        assert_int_equal(mill_init_producer_id_response_decode(&at, 1, &got), 0);
    }
    producer_id = got.producer_id;
    producer_epoch = got.producer_epoch;
}

static void setup(void)
{
    world_open(&world, 1, 6);
    world_topic(&world, topic, 1, "segment.bytes", "1048576");
    world_connect(&world, &client, 0);
    world_coordinator(&world, 0);
    world_coordinator(&world, 1);
    init();
    world_settle(&world, 10000); /* all is loaded */
    id = mill_map_topic_by_name(world.map, topic, (uint32_t)strlen(topic))->id;
}

static void teardown(void)
{
    world_disconnect(&client);
    world_close(&world);
}

/* --- requests ----------------------------------------------------------------------------------
 */

struct commit {
    int16_t version;
    const char *group;
    int32_t epoch;
    const char *member;
    const struct mill_uuid *id; /* beside the name: each version takes its own */
};

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_txn_offset_commit_request_topics_partitions *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->committed_offset = OFFSET;
    element->committed_metadata = mill_wstr_of("");
}

static void get_topic(const void *context, int32_t index, void *ret_element)
{
    const struct commit *commit = context;
    struct mill_txn_offset_commit_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->topic_id = *commit->id;
    element->partitions = (struct mill_warray){.count = 1, .get = get_partition};
}

/* ret: the partition's error; the answer names the topic as the request did. */
static int16_t commit(const struct commit *commit)
{
    struct mill_txn_offset_commit_request in;
    struct mill_txn_offset_commit_response got;
    struct mill_txn_offset_commit_response_topics told;
    struct mill_txn_offset_commit_response_topics_partitions part;
    mill_txn_offset_commit_request_defaults(&in);
    in.transactional_id = mill_wstr_of(transactional_id);
    in.group_id = mill_wstr_of(commit->group);
    in.producer_id = producer_id;
    in.producer_epoch = producer_epoch;
    in.generation_id_or_member_epoch = commit->epoch;
    in.member_id = mill_wstr_of(commit->member);
    in.topics = (struct mill_warray){.count = 1, .get = get_topic, .context = commit};
    struct mill_cursor at = world_ask(&client, MILL_API_KEY_TXN_OFFSET_COMMIT, commit->version,
                                      txn_offset_commit_out, &in);
    assert_int_equal(mill_txn_offset_commit_response_decode(&at, commit->version, &got), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_int_equal(got.topics.count, 1);
    assert_true(mill_txn_offset_commit_response_topics_next(&got.topics, commit->version, &told));
    if (commit->version >= IDS_VERSION) {
        assert_memory_equal(&told.topic_id, commit->id, sizeof(*commit->id));
    } else {
        assert_true(mill_wstr_equal(&told.name, topic, (uint32_t)strlen(topic)));
    }
    assert_true(mill_txn_offset_commit_response_topics_partitions_next(&told.partitions,
                                                                       commit->version, &part));
    return part.error_code;
}

static void end(void)
{
    struct mill_end_txn_request in;
    struct mill_end_txn_response got;
    mill_end_txn_request_defaults(&in);
    in.transactional_id = mill_wstr_of(transactional_id);
    in.producer_id = producer_id;
    in.producer_epoch = producer_epoch;
    in.committed = true;
    struct mill_cursor at = world_ask(&client, MILL_API_KEY_END_TXN, END_VERSION, end_txn_out, &in);
    assert_int_equal(mill_end_txn_response_decode(&at, END_VERSION, &got), 0);
    assert_int_equal(got.error_code, 0);
    world_settle(&world, 10000);
}

static void get_zero(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(int32_t *)ret_element = 0;
}

static void get_fetched(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_fetch_request_topics *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partition_indexes = (struct mill_warray){.count = 1, .get = get_zero};
}

static int64_t committed(const char *group)
{
    struct mill_offset_fetch_request in;
    struct mill_offset_fetch_response got;
    struct mill_offset_fetch_response_topics told;
    struct mill_offset_fetch_response_topics_partitions part;
    mill_offset_fetch_request_defaults(&in);
    in.group_id = mill_wstr_of(group);
    in.topics = (struct mill_warray){.count = 1, .get = get_fetched};
    struct mill_cursor at =
        world_ask(&client, MILL_API_KEY_OFFSET_FETCH, FETCH_VERSION, offset_fetch_out, &in);
    assert_int_equal(mill_offset_fetch_response_decode(&at, FETCH_VERSION, &got), 0);
    assert_int_equal(got.error_code, 0);
    assert_true(mill_offset_fetch_response_topics_next(&got.topics, FETCH_VERSION, &told));
    assert_true(
        mill_offset_fetch_response_topics_partitions_next(&told.partitions, FETCH_VERSION, &part));
    return part.committed_offset;
}

static void get_name(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of(topic);
}

/* ret: the epoch of the new member. */
static int32_t join(const char *group)
{
    struct mill_consumer_group_heartbeat_request in;
    struct mill_consumer_group_heartbeat_response got;
    mill_consumer_group_heartbeat_request_defaults(&in);
    in.group_id = mill_wstr_of(group);
    in.member_id = mill_wstr_of(member_id);
    in.rebalance_timeout_ms = 60000;
    in.subscribed_topic_names = (struct mill_warray){.count = 1, .get = get_name};
    in.topic_partitions = (struct mill_warray){.count = 0};
    struct mill_cursor at = world_ask(&client, MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT,
                                      HEARTBEAT_VERSION, consumer_group_heartbeat_out, &in);
    assert_int_equal(mill_consumer_group_heartbeat_response_decode(&at, HEARTBEAT_VERSION, &got),
                     0);
    assert_int_equal(got.error_code, 0);
    return got.member_epoch;
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void test_topics_are_named_by_ids(void **state)
{
    MILL_UNUSED(state);
    setup();
    assert_int_equal(commit(&(struct commit){IDS_VERSION, "by-id", -1, "", &unknown_id}),
                     MILL_KERR_UNKNOWN_TOPIC_ID);
    assert_int_equal(commit(&(struct commit){IDS_VERSION, "by-id", -1, "", &id}), 0);
    assert_int_equal(committed("by-id"), -1);
    end();
    assert_int_equal(committed("by-id"), OFFSET);
    teardown();
}

static void test_newer_errors_are_told_from_version_6_on(void **state)
{
    MILL_UNUSED(state);
    setup();
    int32_t epoch = join("consumers");
    const struct {
        const char *group;
        const char *member;
        int32_t epoch;
        int16_t old; /* error */
        int16_t now;
    } rows[] = {
        {"absent", "", 3, MILL_KERR_ILLEGAL_GENERATION, MILL_KERR_GROUP_ID_NOT_FOUND},
        {"consumers", member_id, epoch + 7, MILL_KERR_ILLEGAL_GENERATION,
         MILL_KERR_STALE_MEMBER_EPOCH},
        {"consumers", "nobody", epoch, MILL_KERR_UNKNOWN_MEMBER_ID, MILL_KERR_UNKNOWN_MEMBER_ID},
        {"consumers", member_id, epoch, 0, 0},
    };
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        printf("%s %s %d\n", rows[i].group, rows[i].member, rows[i].epoch);
        struct commit one = {NAMES_VERSION, rows[i].group, rows[i].epoch, rows[i].member, &id};
        assert_int_equal(commit(&one), rows[i].old);
        one.version = IDS_VERSION;
        assert_int_equal(commit(&one), rows[i].now);
    }
    teardown();
}

/* The core answers for a control that hangs. */
static void test_time_out_is_told_by_ids(void **state)
{
    MILL_UNUSED(state);
    setup();
    world.control_stopped = true;
    assert_int_equal(commit(&(struct commit){IDS_VERSION, "by-id", -1, "", &id}),
                     MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    world.control_stopped = false;
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topics_are_named_by_ids),
        cmocka_unit_test(test_newer_errors_are_told_from_version_6_on),
        cmocka_unit_test(test_time_out_is_told_by_ids),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("txn_offsets", tests, NULL, NULL);
}
