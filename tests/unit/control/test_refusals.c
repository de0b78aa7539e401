/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a request that is wrong, in one way or in two, is refused with the code that Kafka 4.4
 * gives it, and leaves nothing behind. Method: requests as frames to a whole control beside a fake
 * core, whose topic of offsets was never made: what is wrong by itself is told all the same. What
 * Kafka answers was seen with tests/clients/difference.py. */
#include "tests/unit/control/alter_requests.h"

#include "tests/unit/encoder.h"

enum {
    TXN_COMMIT_VERSION = 3,
};

ENCODER(txn_offset_commit)
ENCODER(offset_delete)
ENCODER(add_offsets_to_txn)
ENCODER(add_partitions_to_txn)
ENCODER(end_txn)
ENCODER(consumer_group_heartbeat)
ENCODER(sync_group)
ENCODER(describe_configs)
ENCODER(create_topics)

static struct fake f;

static struct mill_cursor ask(int16_t key, int16_t version,
                              int (*encode)(struct mill_writer *, int16_t, const void *),
                              const void *message)
{
    struct mill_writer writer = fake_begin(&f, key, version);
    assert_int_equal(encode(&writer, version, message), 0);
    struct mill_cursor at = fake_call(&f, &writer, key, version);
    assert_int_equal(f.outcome, MILL_OUTCOME_BYTES);
    return at;
}

static void setup(void)
{
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "here"), 0);
}

static struct mill_warray one_of(mill_warray_get get, const void *context)
{
    return (struct mill_warray){.count = 1, .get = get, .context = context};
}

/* --- offsets -----------------------------------------------------------------------------------
 */

static void get_txn_partition(const void *context, int32_t index, void *element)
{
    struct mill_txn_offset_commit_request_topics_partitions *to = element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    to->committed_offset = 1;
}

static void get_txn_topic(const void *context, int32_t index, void *element)
{
    struct mill_txn_offset_commit_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(context);
    to->partitions = one_of(get_txn_partition, NULL);
}

static int16_t commit_txn(const char *id, const char *group_id, const char *topic)
{
    struct mill_txn_offset_commit_request in;
    struct mill_txn_offset_commit_response out;
    struct mill_txn_offset_commit_response_topics answered;
    struct mill_txn_offset_commit_response_topics_partitions partition;
    const int16_t version = TXN_COMMIT_VERSION;
    mill_txn_offset_commit_request_defaults(&in);
    in.transactional_id = mill_wstr_of(id);
    in.group_id = mill_wstr_of(group_id);
    in.topics = one_of(get_txn_topic, topic);
    struct mill_cursor at =
        ask(MILL_API_KEY_TXN_OFFSET_COMMIT, version, txn_offset_commit_out, &in);
    assert_int_equal(mill_txn_offset_commit_response_decode(&at, version, &out), 0);
    assert_true(mill_txn_offset_commit_response_topics_next(&out.topics, version, &answered));
    assert_true(mill_txn_offset_commit_response_topics_partitions_next(&answered.partitions,
                                                                       version, &partition));
    return partition.error_code;
}

static void test_txn_commit_wants_a_group(void **state)
{
    MILL_UNUSED(state);
    setup();
    assert_int_equal(commit_txn("id", "group", "absent"), MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(commit_txn("id", "", "here"), MILL_KERR_INVALID_GROUP_ID);
    fake_close(&f);
}

static void test_delete_of_offsets_wants_a_group(void **state)
{
    MILL_UNUSED(state);
    struct mill_offset_delete_request in;
    struct mill_offset_delete_response out;
    setup();
    mill_offset_delete_request_defaults(&in);
    in.group_id = mill_wstr_of("");
    struct mill_cursor at = ask(MILL_API_KEY_OFFSET_DELETE, 0, offset_delete_out, &in);
    assert_int_equal(mill_offset_delete_response_decode(&at, 0, &out), 0);
    assert_int_equal(out.error_code, MILL_KERR_INVALID_GROUP_ID);
    fake_close(&f);
}

/* --- transactions ------------------------------------------------------------------------------
 */

static void test_transactional_ids_have_characters(void **state)
{
    MILL_UNUSED(state);
    struct mill_end_txn_request end;
    struct mill_end_txn_response ended;
    struct mill_add_offsets_to_txn_request add;
    struct mill_add_offsets_to_txn_response added;
    setup();
    mill_end_txn_request_defaults(&end);
    end.transactional_id = mill_wstr_of("");
    struct mill_cursor at = ask(MILL_API_KEY_END_TXN, 3, end_txn_out, &end);
    assert_int_equal(mill_end_txn_response_decode(&at, 3, &ended), 0);
    assert_int_equal(ended.error_code, MILL_KERR_INVALID_REQUEST);
    mill_add_offsets_to_txn_request_defaults(&add);
    add.transactional_id = mill_wstr_of("");
    add.group_id = mill_wstr_of("group");
    at = ask(MILL_API_KEY_ADD_OFFSETS_TO_TXN, 3, add_offsets_to_txn_out, &add);
    assert_int_equal(mill_add_offsets_to_txn_response_decode(&at, 3, &added), 0);
    assert_int_equal(added.error_code, MILL_KERR_INVALID_REQUEST);
    fake_close(&f);
}

static void get_added_index(const void *context, int32_t index, void *element)
{
    MILL_UNUSED(context);
    *(int32_t *)element = index;
}

static void get_added_topic(const void *context, int32_t index, void *element)
{
    struct mill_add_partitions_to_txn_request_transactions_topics *to = element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    to->name = mill_wstr_of("here");
    to->partitions = one_of(get_added_index, NULL);
}

/* context: how many add; those behind are only to be verified. */
static void get_added(const void *context, int32_t index, void *element)
{
    struct mill_add_partitions_to_txn_request_transactions *to = element;
    to->transactional_id = mill_wstr_of("id");
    to->producer_id = 1;
    to->verify_only = index >= *(const int32_t *)context;
    to->topics = one_of(get_added_topic, NULL);
}

/* What a request may make control do in one turn is bounded. */
static void test_adds_to_many_transactions_are_bounded(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int32_t adds;
        int32_t verifies;
        enum mill_frame_outcome outcome;
    } table[] = {
        {64, 0, MILL_OUTCOME_BYTES},
        {64, 1000, MILL_OUTCOME_BYTES},
        {65, 0, MILL_OUTCOME_CLOSE},
        {10000, 0, MILL_OUTCOME_CLOSE},
    };
    setup();
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_add_partitions_to_txn_request in;
        struct mill_add_partitions_to_txn_response out;
        int32_t count = table[i].adds + table[i].verifies;
        mill_add_partitions_to_txn_request_defaults(&in);
        in.transactions =
            (struct mill_warray){.count = count, .get = get_added, .context = &table[i].adds};
        struct mill_writer writer = fake_begin(&f, MILL_API_KEY_ADD_PARTITIONS_TO_TXN, 5);
        assert_int_equal(add_partitions_to_txn_out(&writer, 5, &in), 0);
        struct mill_cursor at = fake_call(&f, &writer, MILL_API_KEY_ADD_PARTITIONS_TO_TXN, 5);
        assert_int_equal(f.outcome, table[i].outcome);
        if (table[i].outcome == MILL_OUTCOME_BYTES) {
            assert_int_equal(mill_add_partitions_to_txn_response_decode(&at, 5, &out), 0);
            assert_int_equal(out.results_by_transaction.count, count);
        }
    }
    fake_close(&f);
}

/* --- consumer groups ---------------------------------------------------------------------------
 */

static void test_heartbeats_are_checked_before_their_group(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        const char *group_id;
        const char *assignor;
        int16_t error;
    } table[] = {
        {"group", "none such", MILL_KERR_UNSUPPORTED_ASSIGNOR},
        {"", "none such", MILL_KERR_INVALID_REQUEST},
        {"", NULL, MILL_KERR_INVALID_REQUEST},
        {"group", NULL, MILL_KERR_COORDINATOR_NOT_AVAILABLE},
    };
    setup();
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_consumer_group_heartbeat_request in;
        struct mill_consumer_group_heartbeat_response out;
        mill_consumer_group_heartbeat_request_defaults(&in);
        in.group_id = mill_wstr_of(table[i].group_id);
        in.member_id = mill_wstr_of("nobody");
        in.member_epoch = 3;
        in.server_assignor = mill_wstr_of(table[i].assignor);
        struct mill_cursor at =
            ask(MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, 1, consumer_group_heartbeat_out, &in);
        assert_int_equal(mill_consumer_group_heartbeat_response_decode(&at, 1, &out), 0);
        assert_int_equal(out.error_code, table[i].error);
    }
    fake_close(&f);
}

static void get_owned(const void *context, int32_t index, void *element)
{
    struct mill_consumer_group_heartbeat_request_topic_partitions *to = element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    to->partitions = (struct mill_warray){0};
}

/* Who joins owns nothing, not even nothing of a topic. */
static void test_joining_heartbeats_name_no_topics(void **state)
{
    MILL_UNUSED(state);
    struct mill_consumer_group_heartbeat_request in;
    struct mill_consumer_group_heartbeat_response out;
    setup();
    mill_consumer_group_heartbeat_request_defaults(&in);
    in.group_id = mill_wstr_of("group");
    in.member_id = mill_wstr_of("member");
    in.rebalance_timeout_ms = 1000;
    in.subscribed_topic_regex = mill_wstr_of("here");
    in.topic_partitions = one_of(get_owned, NULL);
    struct mill_cursor at =
        ask(MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, 1, consumer_group_heartbeat_out, &in);
    assert_int_equal(mill_consumer_group_heartbeat_response_decode(&at, 1, &out), 0);
    assert_int_equal(out.error_code, MILL_KERR_INVALID_REQUEST);
    fake_close(&f);
}

/* From version 5 on both protocol type and name are said. */
static void test_sync_says_its_protocol(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        const char *group_id;
        const char *type;
        const char *name;
        int16_t version;
        int16_t error;
    } table[] = {
        {"", "", NULL, 5, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL},
        {"group", NULL, "range", 5, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL},
        {"", "consumer", "range", 5, MILL_KERR_INVALID_GROUP_ID},
        {"", NULL, NULL, 4, MILL_KERR_INVALID_GROUP_ID},
    };
    setup();
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_sync_group_request in;
        struct mill_sync_group_response out;
        int16_t version = table[i].version;
        mill_sync_group_request_defaults(&in);
        in.group_id = mill_wstr_of(table[i].group_id);
        in.member_id = mill_wstr_of("nobody");
        in.protocol_type = mill_wstr_of(table[i].type);
        in.protocol_name = mill_wstr_of(table[i].name);
        struct mill_cursor at = ask(MILL_API_KEY_SYNC_GROUP, version, sync_group_out, &in);
        assert_int_equal(mill_sync_group_response_decode(&at, version, &out), 0);
        assert_int_equal(out.error_code, table[i].error);
    }
    fake_close(&f);
}

/* --- settings ----------------------------------------------------------------------------------
 */

static void get_described(const void *context, int32_t index, void *element)
{
    struct mill_describe_configs_request_resources *to = element;
    to->resource_type = ((const int8_t *)context)[index];
    to->resource_name = mill_wstr_of(to->resource_type == 2 ? "here" : "");
    to->configuration_keys.count = -index; /* null, or none: all of them */
}

/* One resource of a type that is none refuses the whole request; one that is only not described
 * does not. */
static void test_describe_configs_of_no_type_refuses_all(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        int8_t types[2];
        int16_t errors[2];
    } table[] = {
        {{2, 9}, {42, 42}},
        {{0, 4}, {42, 42}},
        {{2, 4}, {0, 0}},
        {{2, 16}, {0, 42}},
    };
    setup();
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_describe_configs_request in;
        struct mill_describe_configs_response out;
        struct mill_describe_configs_response_results result;
        mill_describe_configs_request_defaults(&in);
        in.resources =
            (struct mill_warray){.count = 2, .get = get_described, .context = table[i].types};
        struct mill_cursor at = ask(MILL_API_KEY_DESCRIBE_CONFIGS, 4, describe_configs_out, &in);
        assert_int_equal(mill_describe_configs_response_decode(&at, 4, &out), 0);
        for (int k = 0; k < 2; k++) {
            assert_true(mill_describe_configs_response_results_next(&out.results, 4, &result));
            assert_int_equal(result.error_code, table[i].errors[k]);
            assert_int_equal(result.configs.count > 0,
                             result.error_code == 0 && table[i].types[k] == 2);
        }
    }
    fake_close(&f);
}

/* --- topics ------------------------------------------------------------------------------------
 */

struct made {
    const char *name;
    int32_t partitions;
    int16_t replicas;
    int32_t assigned_to; /* a broker; 0 none */
    const char *retention_ms;
    int16_t error;
};

static void get_replica(const void *context, int32_t index, void *element)
{
    MILL_UNUSED(index);
    *(int32_t *)element = ((const struct made *)context)->assigned_to;
}

static void get_assignment(const void *context, int32_t index, void *element)
{
    struct mill_create_topics_request_topics_assignments *to = element;
    MILL_UNUSED(index);
    to->broker_ids = one_of(get_replica, context);
}

static void get_config(const void *context, int32_t index, void *element)
{
    struct mill_create_topics_request_topics_configs *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of("retention.ms");
    to->value = mill_wstr_of(((const struct made *)context)->retention_ms);
}

static void get_made(const void *context, int32_t index, void *element)
{
    const struct made *made = context;
    struct mill_create_topics_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(made->name);
    to->num_partitions = made->partitions;
    to->replication_factor = made->replicas;
    to->assignments = made->assigned_to ? one_of(get_assignment, made) : (struct mill_warray){0};
    to->configs = made->retention_ms ? one_of(get_config, made) : (struct mill_warray){0};
}

/* Name, existence, settings, assignment, replicas, partitions: what stands first is told. */
static void test_create_tells_the_first_fault(void **state)
{
    MILL_UNUSED(state);
    static const struct made table[] = {
        {"bad name", 0, 0, 7, "x", MILL_KERR_INVALID_TOPIC_EXCEPTION},
        {"here", 0, 0, 7, "x", MILL_KERR_TOPIC_ALREADY_EXISTS},
        {"new", 0, 0, 7, "x", MILL_KERR_INVALID_CONFIG},
        {"new", 0, 0, 7, NULL, MILL_KERR_INVALID_REQUEST},
        {"new", -1, -1, 7, NULL, MILL_KERR_INVALID_REPLICA_ASSIGNMENT},
        {"new", 0, 0, 0, "1000", MILL_KERR_INVALID_REPLICATION_FACTOR},
        {"new", 0, 3, 0, "1000", MILL_KERR_INVALID_PARTITIONS},
        {"new", 2, 3, 0, "1000", MILL_KERR_INVALID_REPLICATION_FACTOR},
        {"new", -1, -1, 1, "1000", MILL_KERR_NONE},
    };
    setup();
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        struct mill_create_topics_request in;
        struct mill_create_topics_response out;
        struct mill_create_topics_response_topics topic;
        mill_create_topics_request_defaults(&in);
        in.topics = one_of(get_made, &table[i]);
        in.validate_only = true;
        struct mill_cursor at = ask(MILL_API_KEY_CREATE_TOPICS, 7, create_topics_out, &in);
        assert_int_equal(mill_create_topics_response_decode(&at, 7, &out), 0);
        assert_true(mill_create_topics_response_topics_next(&out.topics, 7, &topic));
        assert_int_equal(topic.error_code, table[i].error);
    }
    assert_null(find(&f, "new"));
    fake_close(&f);
}

/* What is wrong with an operation comes before the name, its value before whether the topic is
 * there; a resource that is named twice before both. */
static void test_alter_tells_the_first_fault(void **state)
{
    MILL_UNUSED(state);
    static const struct alteration bad = {"retention.ms", "x", 0};
    static const struct alteration good = {"retention.ms", "1000", 0};
    static const struct alteration appended = {"retention.ms", "1000", 2};
    setup();
    assert_int_equal(alter_one(&f, "absent", bad.name, bad.operation, bad.value),
                     MILL_KERR_INVALID_CONFIG);
    assert_int_equal(alter_one(&f, "absent", appended.name, appended.operation, appended.value),
                     MILL_KERR_INVALID_CONFIG);
    assert_int_equal(alter_one(&f, "absent", good.name, good.operation, good.value),
                     MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(alter_one(&f, "bad name", appended.name, appended.operation, appended.value),
                     MILL_KERR_INVALID_CONFIG);
    assert_int_equal(alter_one(&f, "", good.name, good.operation, good.value),
                     MILL_KERR_INVALID_REQUEST);
    assert_int_equal(alter_one(&f, "bad name", bad.name, bad.operation, bad.value),
                     MILL_KERR_INVALID_TOPIC_EXCEPTION);
    /* Null is no value, whatever is wrong with the setting before it. */
    static const struct alteration null_last[] = {{"retention.ms", "1000", 2},
                                                  {"retention.bytes", NULL, 3}};
    const struct altered with_null = {"absent", null_last, 2, 0};
    assert_int_equal(alter_many(&f, &with_null, 1, 1, false), MILL_KERR_INVALID_REQUEST);
    const struct altered twice[] = {{"absent", &bad, 1, 0}, {"absent", &bad, 1, 0}};
    assert_int_equal(alter_many(&f, twice, 2, 1, false), MILL_KERR_INVALID_REQUEST);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_txn_commit_wants_a_group),
        cmocka_unit_test(test_delete_of_offsets_wants_a_group),
        cmocka_unit_test(test_transactional_ids_have_characters),
        cmocka_unit_test(test_adds_to_many_transactions_are_bounded),
        cmocka_unit_test(test_heartbeats_are_checked_before_their_group),
        cmocka_unit_test(test_joining_heartbeats_name_no_topics),
        cmocka_unit_test(test_sync_says_its_protocol),
        cmocka_unit_test(test_describe_configs_of_no_type_refuses_all),
        cmocka_unit_test(test_create_tells_the_first_fault),
        cmocka_unit_test(test_alter_tells_the_first_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
