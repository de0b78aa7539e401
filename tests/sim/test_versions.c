/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the newest versions of what a core answers mean what they mean in Kafka: topics named by
 * ids, whom to ask instead, special offsets, the cluster that a client expects; and coordinators
 * are named without control. Method: the data plane on virtual time (world.h), requests made and
 * answers read by the generated codec.
 */
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "dataplane/core/core_types.h"
#include "ipc/coordinators.h"
#include "protocol/batch.h"
#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/encoder.h"
#include "tests/unit/test.h"

enum {
    PARTITIONS = 2,
    RECORD_BYTES = 8,
    BATCH_BYTES = MILL_BATCH_HEADER_BYTES + RECORD_BYTES,
};

static const char topic[] = "versions";

ENCODER(produce)
ENCODER(fetch)
ENCODER(list_offsets)
ENCODER(api_versions)
ENCODER(update_features)
ENCODER(init_producer_id)
ENCODER(metadata)
ENCODER(alter_partition_reassignments)
ENCODER(find_coordinator)

static struct mill_uuid topic_id(const struct world *world)
{
    const struct mill_map_topic *found =
        mill_map_topic_by_name(world->map, topic, (uint32_t)strlen(topic));
    assert_non_null(found);
    return found->id;
}

/* What is asked of one partition. */
struct one {
    struct mill_uuid id;
    int32_t partition;
    int64_t timestamp;
    int64_t offset;
    bool committed; /* read_committed */
    int32_t epochs; /* one more than the last fetched epoch; 0: none is said */
};

static struct mill_warray just(mill_warray_get get, const struct one *one)
{
    return (struct mill_warray){.count = 1, .get = get, .context = one};
}

/* --- produce and fetch -------------------------------------------------------------------------
 */

static const uint8_t *batch_bytes(void)
{
    static const uint8_t record[RECORD_BYTES] = {14, 0, 0, 0, 1, 2, 'x', 0};
    static uint8_t bytes[BATCH_BYTES];
    struct mill_batch_wire *wire = (struct mill_batch_wire *)bytes;
    wire->batch_length = be32_make(BATCH_BYTES - MILL_BATCH_PREFIX_BYTES);
    wire->partition_leader_epoch = be32_make(UINT32_MAX);
    wire->magic = 2;
    wire->producer_id = be64_make(UINT64_MAX);
    wire->producer_epoch = be16_make(UINT16_MAX);
    wire->base_sequence = be32_make(UINT32_MAX);
    wire->records_count = be32_make(1);
    memcpy(bytes + MILL_BATCH_HEADER_BYTES, record, sizeof(record));
    wire->crc =
        be32_make(mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, BATCH_BYTES - MILL_BATCH_SUMMED_AT));
    return bytes;
}

static void get_produced(const void *context, int32_t index, void *element)
{
    struct mill_produce_request_topic_data_partition_data *to = element;
    MILL_UNUSED(index);
    to->index = ((const struct one *)context)->partition;
    to->records = (struct mill_wrecords){.length = BATCH_BYTES, .ptr = batch_bytes()};
}

static void get_produced_topic(const void *context, int32_t index, void *element)
{
    struct mill_produce_request_topic_data *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(topic);
    to->topic_id = ((const struct one *)context)->id;
    to->partition_data = just(get_produced, context);
}

/* The answer for the only partition. */
struct produced {
    struct mill_produce_response_responses_partition_responses partition;
    int32_t nodes_count;
    int32_t node_id;
    int32_t port;
};

static struct produced produce(struct world_client *client, const struct one *one, int16_t version)
{
    struct mill_produce_request in;
    struct mill_produce_response out;
    struct mill_produce_response_responses answered;
    struct mill_produce_response_node_endpoints node = {.node_id = -1};
    struct produced got = {0};
    mill_produce_request_defaults(&in);
    in.acks = -1;
    in.timeout_ms = 1000;
    in.topic_data = just(get_produced_topic, one);
    struct mill_cursor at = world_ask(client, MILL_API_KEY_PRODUCE, version, produce_out, &in);
    assert_int_equal(mill_produce_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_true(mill_produce_response_responses_next(&out.responses, version, &answered));
    assert_true(version < 13 || mill_uuid_equal(&answered.topic_id, &one->id));
    assert_true(mill_produce_response_responses_partition_responses_next(
        &answered.partition_responses, version, &got.partition));
    got.nodes_count = MILL_MAX(out.node_endpoints.count, 0);
    while (mill_produce_response_node_endpoints_next(&out.node_endpoints, version, &node)) {
        got.node_id = node.node_id;
        got.port = node.port;
    }
    return got;
}

static void get_fetched(const void *context, int32_t index, void *element)
{
    struct mill_fetch_request_topics_partitions *to = element;
    MILL_UNUSED(index);
    to->partition = ((const struct one *)context)->partition;
    to->fetch_offset = ((const struct one *)context)->offset;
    to->last_fetched_epoch = ((const struct one *)context)->epochs - 1;
    to->partition_max_bytes = 1 << 20;
}

static void get_fetched_topic(const void *context, int32_t index, void *element)
{
    struct mill_fetch_request_topics *to = element;
    MILL_UNUSED(index);
    to->topic = mill_wstr_of(topic);
    to->topic_id = ((const struct one *)context)->id;
    to->partitions = just(get_fetched, context);
}

struct fetched {
    struct mill_fetch_response_responses_partitions partition;
    int32_t nodes_count;
};

static struct fetched fetch(struct world_client *client, const struct one *one, int16_t version)
{
    struct mill_fetch_request in;
    struct mill_fetch_response out;
    struct mill_fetch_response_responses answered;
    struct fetched got = {0};
    mill_fetch_request_defaults(&in);
    in.topics = just(get_fetched_topic, one);
    in.session_id = 0;
    in.isolation_level = one->committed;
    struct mill_cursor at = world_ask(client, MILL_API_KEY_FETCH, version, fetch_out, &in);
    assert_int_equal(mill_fetch_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_int_equal(out.error_code, 0);
    assert_int_equal(out.session_id, 0);
    assert_true(mill_fetch_response_responses_next(&out.responses, version, &answered));
    assert_true(version < 13 || mill_uuid_equal(&answered.topic_id, &one->id));
    assert_true(mill_fetch_response_responses_partitions_next(&answered.partitions, version,
                                                              &got.partition));
    got.nodes_count = MILL_MAX(out.node_endpoints.count, 0);
    return got;
}

static void test_topics_by_id(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 2, 11);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    struct one one = {.id = topic_id(&world)};
    for (one.partition = 0; one.partition < PARTITIONS; one.partition++) {
        for (int16_t version = 12; version <= 13; version++) {
            struct produced got = produce(&client, &one, version);
            assert_int_equal(got.partition.error_code, 0);
            assert_int_equal(got.partition.base_offset, version - 12);
            assert_false(got.partition.has_current_leader);
            assert_int_equal(got.nodes_count, 0);
        }
        for (int16_t version = 12; version <= 18; version++) {
            struct fetched got = fetch(&client, &one, version);
            assert_int_equal(got.partition.error_code, 0);
            assert_int_equal(got.partition.high_watermark, 2);
            assert_int_equal(got.partition.records.length, 2 * BATCH_BYTES);
        }
    }
    assert_int_equal(produce(&client, &one, 13).partition.error_code,
                     MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(fetch(&client, &one, 13).partition.error_code,
                     MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
    one = (struct one){.id = {{1, 2, 3}}};
    assert_int_equal(produce(&client, &one, 13).partition.error_code, MILL_KERR_UNKNOWN_TOPIC_ID);
    for (int16_t version = 13; version <= 18; version++) {
        assert_int_equal(fetch(&client, &one, version).partition.error_code,
                         MILL_KERR_UNKNOWN_TOPIC_ID);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* This broker is made to think itself another one: the partition's leader is then elsewhere, and
 * the map still says where (KIP-951). */
static void test_not_leader_says_who_is(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 1, 12);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    const struct one one = {.id = topic_id(&world), .partition = 1};
    int32_t leader = world.cores[0].core->node_id;
    world.cores[0].core->node_id = leader + 1;
    for (int16_t version = 9; version <= 13; version++) {
        struct produced got = produce(&client, &one, version);
        assert_int_equal(got.partition.error_code, MILL_KERR_NOT_LEADER_OR_FOLLOWER);
        assert_int_equal(got.partition.has_current_leader, version >= 10);
        assert_int_equal(got.nodes_count, version >= 10 ? 1 : 0);
        if (version >= 10) {
            assert_int_equal(got.partition.current_leader.leader_id, leader);
            assert_int_equal(got.partition.current_leader.leader_epoch, 0);
            assert_int_equal(got.node_id, leader);
            assert_true(got.port > 0);
        }
    }
    for (int16_t version = 11; version <= 18; version++) {
        struct fetched got = fetch(&client, &one, version);
        assert_int_equal(got.partition.error_code, MILL_KERR_NOT_LEADER_OR_FOLLOWER);
        assert_int_equal(got.partition.has_current_leader, version >= 12);
        assert_int_equal(got.nodes_count, version >= 16 ? 1 : 0);
        assert_true(version < 12 || got.partition.current_leader.leader_id == leader);
    }
    world.cores[0].core->node_id = leader;
    world_disconnect(&client);
    world_close(&world);
}

/* Null and empty are not the same on the wire: null for who reads uncommitted records and for what
 * cannot be read, empty for what is not there. */
static void test_aborted_list_is_null_or_empty(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int32_t partition;
        int64_t offset;
        bool committed;
        int16_t error;
        int32_t count;  /* -1 null */
        int32_t epochs; /* as in struct one */
    } table[] = {
        {0, 0, false, MILL_KERR_NONE, -1, 0},
        {0, 0, true, MILL_KERR_NONE, 0, 0},
        {0, 1, true, MILL_KERR_NONE, -1, 1}, /* where it diverges is told in place of records */
        {0, 100, false, MILL_KERR_OFFSET_OUT_OF_RANGE, -1, 0},
        {0, 100, true, MILL_KERR_OFFSET_OUT_OF_RANGE, -1, 0},
        {PARTITIONS, 0, false, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, 0, 0},
        {PARTITIONS, 0, true, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION, 0, 0},
    };
    struct world world;
    struct world_client client;
    world_open(&world, 1, 15);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        const struct one one = {.id = topic_id(&world),
                                .partition = table[i].partition,
                                .offset = table[i].offset,
                                .committed = table[i].committed,
                                .epochs = table[i].epochs};
        struct fetched got = fetch(&client, &one, 12);
        assert_int_equal(got.partition.error_code, table[i].error);
        assert_int_equal(got.partition.aborted_transactions.count, table[i].count);
        assert_int_equal(got.partition.has_diverging_epoch, table[i].epochs > 0);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* --- Metadata ----------------------------------------------------------------------------------
 */

static void get_asked(const void *context, int32_t index, void *element)
{
    const struct one *one = &((const struct one *)context)[index];
    struct mill_metadata_request_topics *to = element;
    to->topic_id = one->id;
    to->name = mill_wstr_of(one->committed ? topic : NULL); /* committed: named, too */
}

/* Versions 10 and 11 write an id, and must not mean it: the whole request is refused. */
static void test_metadata_by_id_comes_with_12(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 1, 18);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    const struct one asked[2] = {{.id = topic_id(&world)}, {.committed = true}};
    for (int16_t version = 10; version <= 13; version++) {
        struct mill_metadata_request in;
        struct mill_metadata_response out;
        struct mill_metadata_response_topics told;
        int32_t topics = 0;
        mill_metadata_request_defaults(&in);
        in.topics = (struct mill_warray){.count = 2, .get = get_asked, .context = asked};
        struct mill_cursor at =
            world_ask(&client, MILL_API_KEY_METADATA, version, metadata_out, &in);
        assert_int_equal(mill_metadata_response_decode(&at, version, &out), 0);
        bool refused = version < 12;
        assert_int_equal(out.brokers.count, refused ? 0 : 1);
        while (mill_metadata_response_topics_next(&out.topics, version, &told)) {
            assert_int_equal(told.error_code, refused ? MILL_KERR_INVALID_REQUEST : 0);
            assert_int_equal(told.partitions.count, refused ? 0 : PARTITIONS);
            topics++;
        }
        assert_int_equal(topics, refused ? 2 : 1); /* the same topic twice */
    }
    world_disconnect(&client);
    world_close(&world);
}

static void get_contradiction(const void *context, int32_t index, void *element)
{
    struct mill_metadata_request_topics *to = element;
    MILL_UNUSED(index);
    to->topic_id = ((const struct one *)context)->id;
    to->name = mill_wstr_of(((const struct one *)context)->committed ? topic : "another");
}

/* An id decides, whatever name stands beside it; of one that is none there is no name to tell. */
static void test_metadata_id_decides(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 1, 19);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    const struct one table[] = {{.id = topic_id(&world)}, {.id = {.b = {7}}, .committed = true}};
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_metadata_request in;
        struct mill_metadata_response out;
        struct mill_metadata_response_topics told;
        mill_metadata_request_defaults(&in);
        in.include_topic_authorized_operations = true;
        in.topics = just(get_contradiction, &table[i]);
        struct mill_cursor at = world_ask(&client, MILL_API_KEY_METADATA, 12, metadata_out, &in);
        assert_int_equal(mill_metadata_response_decode(&at, 12, &out), 0);
        assert_true(mill_metadata_response_topics_next(&out.topics, 12, &told));
        assert_int_equal(told.error_code, i == 0 ? 0 : MILL_KERR_UNKNOWN_TOPIC_ID);
        assert_int_equal(told.name.length, i == 0 ? (int32_t)strlen(topic) : -1);
        assert_int_equal(told.topic_authorized_operations == INT32_MIN, i > 0);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* --- InitProducerId ----------------------------------------------------------------------------
 */

/* An id without an epoch, or the other way round, is refused. */
static void test_half_of_a_producer_is_refused(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int64_t id;
        int16_t epoch;
        int16_t error;
    } table[] = {
        {-1, 0, MILL_KERR_INVALID_REQUEST}, {7, -1, MILL_KERR_INVALID_REQUEST}, {-1, -1, 0}};
    struct world world;
    struct world_client client;
    world_open(&world, 1, 16);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_init_producer_id_request in;
        struct mill_init_producer_id_response out;
        mill_init_producer_id_request_defaults(&in);
        in.transactional_id = mill_wstr_of(NULL);
        in.producer_id = table[i].id;
        in.producer_epoch = table[i].epoch;
        struct mill_cursor at =
            world_ask(&client, MILL_API_KEY_INIT_PRODUCER_ID, 4, init_producer_id_out, &in);
        assert_int_equal(mill_init_producer_id_response_decode(&at, 4, &out), 0);
        assert_int_equal(out.error_code, table[i].error);
        assert_int_equal(out.producer_epoch, table[i].error ? -1 : 0);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* --- AlterPartitionReassignments ---------------------------------------------------------------
 */

static void get_moved(const void *context, int32_t index, void *element)
{
    struct mill_alter_partition_reassignments_request_topics *to = element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    to->name = mill_wstr_of(topic);
}

/* What the request allows is told again, but for a request about nothing. */
static void test_reassignment_tells_what_it_was_allowed(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 1, 17);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    for (int32_t count = 0; count <= 1; count++) {
        struct mill_alter_partition_reassignments_request in;
        struct mill_alter_partition_reassignments_response out;
        mill_alter_partition_reassignments_request_defaults(&in);
        in.allow_replication_factor_change = false;
        in.topics = (struct mill_warray){.count = count, .get = get_moved};
        struct mill_cursor at = world_ask(&client, MILL_API_KEY_ALTER_PARTITION_REASSIGNMENTS, 1,
                                          alter_partition_reassignments_out, &in);
        assert_int_equal(mill_alter_partition_reassignments_response_decode(&at, 1, &out), 0);
        assert_int_equal(out.allow_replication_factor_change, count == 0);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* --- ListOffsets -------------------------------------------------------------------------------
 */

static void get_listed(const void *context, int32_t index, void *element)
{
    struct mill_list_offsets_request_topics_partitions *to = element;
    MILL_UNUSED(index);
    to->partition_index = ((const struct one *)context)->partition;
    to->timestamp = ((const struct one *)context)->timestamp;
}

static void get_listed_topic(const void *context, int32_t index, void *element)
{
    struct mill_list_offsets_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(topic);
    to->partitions = just(get_listed, context);
}

static void test_special_offsets(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int64_t timestamp;
        int16_t version; /* from which on it is known */
        int64_t offset;
    } table[] = {{-1, 1, 1},  {-2, 1, 0},   {-3, 7, 0},  {-4, 8, 0},
                 {-5, 9, -1}, {-6, 11, -1}, {-7, 99, -1}};
    struct world world;
    struct world_client client;
    world_open(&world, 1, 13);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    struct one one = {.id = topic_id(&world)};
    assert_int_equal(produce(&client, &one, 13).partition.error_code, 0);
    for (int16_t version = 1; version <= 11; version++) {
        for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
            struct mill_list_offsets_request in;
            struct mill_list_offsets_response out;
            struct mill_list_offsets_response_topics listed;
            struct mill_list_offsets_response_topics_partitions partition;
            one.timestamp = table[i].timestamp;
            mill_list_offsets_request_defaults(&in);
            in.replica_id = -1;
            in.topics = just(get_listed_topic, &one);
            struct mill_cursor at =
                world_ask(&client, MILL_API_KEY_LIST_OFFSETS, version, list_offsets_out, &in);
            assert_int_equal(mill_list_offsets_response_decode(&at, version, &out), 0);
            assert_true(mill_list_offsets_response_topics_next(&out.topics, version, &listed));
            assert_true(mill_list_offsets_response_topics_partitions_next(&listed.partitions,
                                                                          version, &partition));
            bool known = version >= table[i].version;
            assert_int_equal(partition.error_code, known ? 0 : MILL_KERR_UNSUPPORTED_VERSION);
            assert_int_equal(partition.offset, known ? table[i].offset : -1);
        }
    }
    world_disconnect(&client);
    world_close(&world);
}

/* --- ApiVersions -------------------------------------------------------------------------------
 */

static void test_another_cluster_is_told(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 1, 14);
    world_topic(&world, topic, PARTITIONS, "flush.messages", "5");
    world_connect(&world, &client, 0);
    const char *here = mill_map_cluster_read(world.map)->cluster_id;
    int32_t node = world.cores[0].core->node_id;
    const struct {
        const char *cluster;
        int32_t node;
        int16_t error;
    } table[] = {
        {NULL, -1, 0},
        {here, -1, MILL_KERR_INVALID_REQUEST}, /* both or none */
        {here, node, 0},
        {NULL, node, MILL_KERR_INVALID_REQUEST},
        {here, node + 1, MILL_KERR_REBOOTSTRAP_REQUIRED},
        {"elsewhere", node, MILL_KERR_REBOOTSTRAP_REQUIRED},
        {"", node, MILL_KERR_REBOOTSTRAP_REQUIRED},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_api_versions_request in;
        struct mill_api_versions_response out;
        mill_api_versions_request_defaults(&in);
        in.client_software_name = mill_wstr_of("sim");
        in.client_software_version = mill_wstr_of("1");
        in.cluster_id = mill_wstr_of(table[i].cluster);
        in.node_id = table[i].node;
        struct mill_cursor at =
            world_ask(&client, MILL_API_KEY_API_VERSIONS, 5, api_versions_out, &in);
        assert_int_equal(mill_api_versions_response_decode(&at, 5, &out), 0);
        assert_int_equal(out.error_code, table[i].error);
        assert_int_equal(out.api_keys.count > 0, table[i].error == 0);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* --- FindCoordinator ---------------------------------------------------------------------------
 */

static const char *const ids[] = {"one", "two", ""};

static void get_id(const void *context, int32_t index, void *element)
{
    *(struct mill_wstr *)element = mill_wstr_of(((const char *const *)context)[index]);
}

/* Asks for one id, or all from version 4 on. ret: the error of each, which must be the same; with
 * none, this broker is named. */
static int16_t coordinator(struct world *world, struct world_client *client, int16_t version,
                           int8_t key_type)
{
    struct mill_find_coordinator_request in;
    struct mill_find_coordinator_response out;
    struct mill_find_coordinator_response_coordinators one = {0};
    mill_find_coordinator_request_defaults(&in);
    in.key = mill_wstr_of(ids[0]);
    in.key_type = key_type;
    in.coordinator_keys =
        (struct mill_warray){.count = MILL_COUNT_OF(ids), .get = get_id, .context = ids};
    struct mill_cursor at =
        world_ask(client, MILL_API_KEY_FIND_COORDINATOR, version, find_coordinator_out, &in);
    assert_int_equal(mill_find_coordinator_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    if (version < 4) {
        one = (struct mill_find_coordinator_response_coordinators){
            .error_code = out.error_code, .node_id = out.node_id, .port = out.port};
    }
    for (uint32_t i = 0; version >= 4 && i < MILL_COUNT_OF(ids); i++) {
        int16_t before = one.error_code;
        assert_true(
            mill_find_coordinator_response_coordinators_next(&out.coordinators, version, &one));
        assert_true(mill_wstr_equal(&one.key, ids[i], (uint32_t)strlen(ids[i])));
        assert_true(i == 0 || one.error_code == before);
        assert_int_equal(one.error_message.length > 0, one.error_code != 0);
    }
    bool found = one.error_code == MILL_KERR_NONE;
    assert_int_equal(one.node_id, found ? world->cores[0].core->node_id : -1);
    assert_int_equal(one.port > 0, found);
    return one.error_code;
}

/* What needs nothing of control waits for nobody. */
static void test_coordinators_while_control_hangs(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 2, 19);
    world_connect(&world, &client, 1);
    assert_int_equal(coordinator(&world, &client, 4, MILL_COORDINATOR_GROUP), 0);
    world.control_stopped = true;
    for (int16_t version = 0; version <= 6; version++) {
        uint64_t begun_ns = world.now.mono_ns;
        assert_int_equal(coordinator(&world, &client, version, MILL_COORDINATOR_GROUP), 0);
        if (version > 0) {
            assert_int_equal(coordinator(&world, &client, version, 2), MILL_KERR_INVALID_REQUEST);
            assert_int_equal(coordinator(&world, &client, version, -1), MILL_KERR_INVALID_REQUEST);
        }
        assert_true(world.now.mono_ns - begun_ns < 100 * MILL_NS_PER_MS);
    }
    world_disconnect(&client);
    world_close(&world);
}

/* A topic that is not there only control can make: asked once, within its time. */
static void test_coordinator_without_its_topic(void **state)
{
    MILL_UNUSED(state);
    struct world world;
    struct world_client client;
    world_open(&world, 1, 20);
    world_connect(&world, &client, 0);
    uint64_t limit_ns = world.cores[0].core->limits.control_timeout_ns;
    world.control_stopped = true;
    for (int8_t key_type = 0; key_type < 2; key_type++) {
        uint64_t begun_ns = world.now.mono_ns;
        assert_int_equal(coordinator(&world, &client, 4, key_type),
                         MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        assert_true(world.now.mono_ns - begun_ns >= limit_ns);
        assert_true(world.now.mono_ns - begun_ns < 2 * limit_ns);
    }
    world.control_stopped = false;
    for (int8_t key_type = 0; key_type < 2; key_type++) {
        const char *name = mill_coordinator_topic(key_type);
        assert_int_equal(coordinator(&world, &client, 4, key_type), 0);
        assert_non_null(mill_map_topic_by_name(world.map, name, (uint32_t)strlen(name)));
    }
    world_disconnect(&client);
    world_close(&world);
}

/* --- UpdateFeatures ----------------------------------------------------------------------------
 */

struct updated {
    const char *feature;
    int16_t level;
    int8_t type;
};

static void get_update(const void *context, int32_t index, void *element)
{
    const struct updated *one = &((const struct updated *)context)[index];
    struct mill_update_features_request_feature_updates *to = element;
    to->feature = mill_wstr_of(one->feature);
    to->max_version_level = one->level;
    to->upgrade_type = one->type;
    to->allow_downgrade = one->type > 1;
}

/* ret: the error; the answer has a message with it, and results where its version has them. */
static int16_t update_features(struct world_client *client, int16_t version,
                               const struct updated *updates, int32_t count)
{
    struct mill_update_features_request in;
    struct mill_update_features_response out;
    struct mill_update_features_response_results result;
    int32_t results = 0;
    mill_update_features_request_defaults(&in);
    in.feature_updates =
        (struct mill_warray){.count = count, .get = get_update, .context = updates};
    struct mill_cursor at =
        world_ask(client, MILL_API_KEY_UPDATE_FEATURES, version, update_features_out, &in);
    assert_int_equal(mill_update_features_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_int_equal(out.error_message.length > 0, out.error_code != 0);
    while (mill_update_features_response_results_next(&out.results, version, &result)) {
        const char *name = updates[results++].feature;
        assert_true(mill_wstr_equal(&result.feature, name, (uint32_t)strlen(name)));
        assert_int_equal(result.error_code, 0);
    }
    assert_int_equal(results, version < 2 && out.error_code == 0 ? count : 0);
    return out.error_code;
}

/* The level that holds is no change; no other one can be had. */
static void test_features_keep_their_levels(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        struct updated update;
        bool done;
    } table[] = {
        {{"transaction.version", 2, 1}, true},  {{"transaction.version", 2, 2}, true},
        {{"group.version", 1, 1}, true},        {{"transaction.version", 3, 1}, false},
        {{"transaction.version", 1, 1}, false}, {{"transaction.version", 1, 2}, false},
        {{"transaction.version", 0, 3}, false}, {{"group.version", 0, 2}, false},
        {{"group.version", 1, 0}, false},       {{"group.version", 1, 4}, false},
        {{"group.version", -1, 2}, false},      {{"share.version", 0, 1}, false},
        {{"metadata.version", 30, 1}, false},   {{"", 1, 1}, false},
    };
    struct world world;
    struct world_client client;
    world_open(&world, 1, 19);
    world_connect(&world, &client, 0);
    for (int16_t version = 0; version <= 2; version++) {
        for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
            const struct updated *one = &table[i].update;
            bool unknown_type = one->type < 1 || one->type > 3;
            if (version == 0 && unknown_type) {
                continue; /* it has none */
            }
            printf("%s %d %d\n", one->feature, one->level, one->type);
            assert_int_equal(update_features(&client, version, one, 1),
                             table[i].done ? 0 : MILL_KERR_INVALID_UPDATE_VERSION);
        }
        const struct updated both[] = {{"group.version", 1, 1}, {"transaction.version", 2, 1}};
        const struct updated one_wrong[] = {{"group.version", 1, 1}, {"transaction.version", 1, 2}};
        assert_int_equal(update_features(&client, version, both, 2), 0);
        assert_int_equal(update_features(&client, version, one_wrong, 2),
                         MILL_KERR_INVALID_UPDATE_VERSION);
        assert_int_equal(update_features(&client, version, both, 0), 0);
    }
    world_disconnect(&client);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topics_by_id),
        cmocka_unit_test(test_not_leader_says_who_is),
        cmocka_unit_test(test_aborted_list_is_null_or_empty),
        cmocka_unit_test(test_half_of_a_producer_is_refused),
        cmocka_unit_test(test_reassignment_tells_what_it_was_allowed),
        cmocka_unit_test(test_metadata_by_id_comes_with_12),
        cmocka_unit_test(test_metadata_id_decides),
        cmocka_unit_test(test_special_offsets),
        cmocka_unit_test(test_another_cluster_is_told),
        cmocka_unit_test(test_coordinators_while_control_hangs),
        cmocka_unit_test(test_coordinator_without_its_topic),
        cmocka_unit_test(test_features_keep_their_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
