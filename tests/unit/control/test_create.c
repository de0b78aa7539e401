/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: CreateTopics answers each fault with its own error and makes nothing; what it makes is in
 * the store, in the map and served when it is answered. Method: a table of requests, encoded and
 * forwarded by a fake core, in every version. */
#include "tests/unit/control/fake_core.h"

struct want {
    const char *name;
    int32_t partitions;
    int16_t replicas;
    int32_t assigned;       /* partitions with an assignment, to brokers below */
    const int32_t *brokers; /* one per partition */
    const int32_t *indexes; /* NULL: 0, 1, ... */
    const char *config;     /* NULL none */
    const char *value;
    int16_t error;
    const char *message_part; /* NULL: any */
    bool repeated;            /* the row of the same name before answers for it */
};

struct batch {
    const struct want *wants;
    int32_t count;
};

static const struct want *inner; /* the topic whose arrays are being encoded */

static void get_broker(const void *context, int32_t index, void *element)
{
    (void)index;
    memcpy(element, context, sizeof(int32_t));
}

static void get_assignment(const void *context, int32_t index, void *element)
{
    const struct want *want = context;
    struct mill_create_topics_request_topics_assignments *to = element;
    to->partition_index = want->indexes ? want->indexes[index] : index;
    to->broker_ids =
        (struct mill_warray){.count = 1, .get = get_broker, .context = &want->brokers[index]};
}

static void get_config(const void *context, int32_t index, void *element)
{
    (void)index;
    const struct want *want = context;
    struct mill_create_topics_request_topics_configs *to = element;
    to->name = mill_wstr_of(want->config);
    to->value = mill_wstr_of(want->value);
}

static void get_topic(const void *context, int32_t index, void *element)
{
    inner = &((const struct batch *)context)->wants[index];
    struct mill_create_topics_request_topics *to = element;
    to->name = mill_wstr_of(inner->name);
    to->num_partitions = inner->partitions;
    to->replication_factor = inner->replicas;
    to->assignments =
        (struct mill_warray){.count = inner->assigned, .get = get_assignment, .context = inner};
    to->configs =
        (struct mill_warray){.count = inner->config ? 1 : 0, .get = get_config, .context = inner};
}

static struct mill_create_topics_response create(struct fake *f, const struct want *wants,
                                                 int32_t count, int16_t version, bool validate_only,
                                                 int32_t timeout_ms)
{
    struct batch batch = {.wants = wants, .count = count};
    struct mill_create_topics_request in;
    struct mill_create_topics_response out;
    mill_create_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = count, .get = get_topic, .context = &batch};
    in.timeout_ms = timeout_ms;
    in.validate_only = validate_only;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_CREATE_TOPICS, version);
    assert_int_equal(mill_create_topics_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_CREATE_TOPICS, version);
    assert_int_equal(f->outcome, MILL_OUTCOME_BYTES);
    assert_int_equal(mill_create_topics_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    int32_t rows = 0;
    for (int32_t i = 0; i < count; i++) {
        rows += !wants[i].repeated;
    }
    assert_int_equal(out.topics.count, rows);
    return out;
}

static const char *name_249(void)
{
    static char text[250];
    memset(text, 'n', 249);
    return text;
}

static const char *name_250(void)
{
    static char text[251];
    memset(text, 'n', 250);
    return text;
}

static const int32_t here[] = {1, 1, 1};
static const int32_t elsewhere[] = {1, 9, 1};
static const int32_t twice[] = {0, 1, 1};
static const int32_t gap[] = {0, 1, 3};

static void test_create_faults_answered_one_by_one(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    const struct want first[] = {{.name = "there.is", .partitions = 1, .replicas = 1}};
    (void)create(&f, first, 1, 5, false, 1000);
    const struct want colliding[] = {{.name = "there_is", .partitions = 1, .replicas = 1}};
    struct mill_create_topics_response out = create(&f, colliding, 1, 5, false, 1000);
    struct mill_create_topics_response_topics topic;
    assert_true(mill_create_topics_response_topics_next(&out.topics, 5, &topic));
    assert_int_equal(topic.error_code, 17);
    const struct want wants[] = {
        {.name = "", .partitions = 1, .replicas = 1, .error = 17},
        {.name = ".", .partitions = 1, .replicas = 1, .error = 17},
        {.name = "..", .partitions = 1, .replicas = 1, .error = 17},
        {.name = "a/b", .partitions = 1, .replicas = 1, .error = 17},
        {.name = "m\xc3\xbcller", .partitions = 1, .replicas = 1, .error = 17},
        {.name = name_250(), .partitions = 1, .replicas = 1, .error = 17},
        {.name = "there.is", .partitions = 1, .replicas = 1, .error = 36},
        {.name = "p0", .partitions = 0, .replicas = 1, .error = 37},
        {.name = "p-2", .partitions = -2, .replicas = 1, .error = 37},
        {.name = "r0", .partitions = 1, .replicas = 0, .error = 38},
        {.name = "r2", .partitions = 1, .replicas = 2, .error = 38, .message_part = "2"},
        {.name = "many", .partitions = 10001, .replicas = 1, .error = 44},
        {.name = "most", .partitions = INT32_MAX, .replicas = 1, .error = 44},
        {.name = "dup", .partitions = 1, .replicas = 1, .error = 42},
        {.name = "dup", .partitions = 1, .replicas = 1, .repeated = true},
        {.name = "pair.x", .partitions = 1, .replicas = 1, .error = 0},
        {.name = "bad-key",
         .partitions = 1,
         .replicas = 1,
         .config = "retention.m",
         .value = "1",
         .error = 40,
         .message_part = "retention.m"},
        {.name = "bad-value",
         .partitions = 1,
         .replicas = 1,
         .config = "retention.ms",
         .value = "soon",
         .error = 40,
         .message_part = "soon"},
        {.name = "bad-range",
         .partitions = 1,
         .replicas = 1,
         .config = "segment.bytes",
         .value = "1",
         .error = 40},
        {.name = "null-value",
         .partitions = 1,
         .replicas = 1,
         .config = "retention.ms",
         .error = 40},
        {.name = "both",
         .partitions = 1,
         .replicas = -1,
         .assigned = 1,
         .brokers = here,
         .error = 42},
        {.name = "unknown-broker",
         .partitions = -1,
         .replicas = -1,
         .assigned = 3,
         .brokers = elsewhere,
         .error = 39},
        {.name = "twice",
         .partitions = -1,
         .replicas = -1,
         .assigned = 3,
         .brokers = here,
         .indexes = twice,
         .error = 39},
        {.name = "gap",
         .partitions = -1,
         .replicas = -1,
         .assigned = 3,
         .brokers = here,
         .indexes = gap,
         .error = 39},
        {.name = "assigned",
         .partitions = -1,
         .replicas = -1,
         .assigned = 3,
         .brokers = here,
         .error = 0},
        {.name = "defaults", .partitions = -1, .replicas = -1, .error = 0},
        {.name = name_249(), .partitions = 1, .replicas = 1, .error = 0},
        {.name = "with-config",
         .partitions = 2,
         .replicas = 1,
         .config = "retention.ms",
         .value = "123",
         .error = 0},
    };
    const int32_t count = (int32_t)MILL_COUNT_OF(wants);
    out = create(&f, wants, count, 5, false, 1000);
    for (int32_t i = 0; mill_create_topics_response_topics_next(&out.topics, 5, &topic); i++) {
        char message[512];
        i += wants[i].repeated;
        const char *name = wants[i].name;
        assert_int_equal(topic.error_code, wants[i].error);
        assert_true(mill_wstr_equal(&topic.name, name, (uint32_t)strlen(name)));
        assert_int_equal(topic.error_message.length < 0, wants[i].error == 0);
        mill_wstr_copy(&topic.error_message, message, sizeof(message));
        if (topic.error_code != wants[i].error ||
            (wants[i].message_part && !strstr(message, wants[i].message_part))) {
            print_message("topic %s: error %d: %s\n", name, topic.error_code, message);
        }
        assert_true(!wants[i].message_part || strstr(message, wants[i].message_part));
        const struct mill_map_topic *there =
            mill_map_topic_by_name(f.map, name, (uint32_t)strlen(name));
        assert_int_equal(there != NULL, wants[i].error == 0 || wants[i].error == 36);
        if (wants[i].error == 0) {
            assert_int_equal(topic.num_partitions, there->partitions_count);
            assert_int_equal(topic.replication_factor, 1);
            assert_int_equal(topic.configs.count, 26 - 1);
        }
    }
    assert_int_equal(mill_map_topic_by_name(f.map, "with-config", 11)->settings.retention_ms, 123);
    assert_int_equal(mill_map_topic_by_name(f.map, "assigned", 8)->partitions_count, 3);
    assert_int_equal(mill_map_topic_by_name(f.map, "defaults", 8)->settings.retention_ms,
                     604800000);
    fake_close(&f);
}

static void test_create_every_version(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    for (int16_t version = 2; version <= 7; version++) {
        char name[16];
        snprintf(name, sizeof(name), "version-%d", version);
        const struct want wants[] = {
            {.name = name, .partitions = 2, .replicas = 1},
            {.name = "defaults", .partitions = -1, .replicas = -1},
        };
        struct mill_create_topics_response_topics topic;
        /* validate_only first: it makes nothing, so the same can be made after. */
        struct mill_create_topics_response out = create(&f, wants, 2, version, true, 1000);
        assert_true(mill_create_topics_response_topics_next(&out.topics, version, &topic));
        assert_int_equal(topic.error_code, 0);
        assert_true(mill_uuid_is_zero(&topic.topic_id));
        assert_null(mill_map_topic_by_name(f.map, name, (uint32_t)strlen(name)));
        assert_true(mill_create_topics_response_topics_next(&out.topics, version, &topic));
        assert_int_equal(topic.error_code, wants[1].error);
        out = create(&f, wants, 1, version, false, 1000);
        assert_true(mill_create_topics_response_topics_next(&out.topics, version, &topic));
        assert_int_equal(topic.error_code, 0);
        const struct mill_map_topic *there =
            mill_map_topic_by_name(f.map, name, (uint32_t)strlen(name));
        assert_non_null(there);
        if (version == 7) {
            assert_true(mill_uuid_equal(&topic.topic_id, &there->id));
        }
        assert_int_equal(there->partitions[1].leader, 1);
    }
    fake_close(&f);
}

/* A core that does not serve in time holds up only the answer that waits for it. */
static void test_create_waits_for_cores_but_not_others(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    const struct want wants[] = {{.name = "slow", .partitions = 1, .replicas = 1}};
    struct mill_create_topics_response_topics topic;
    f.serve = false;
    uint64_t before_ns = f.now.mono_ns;
    struct mill_create_topics_response out = create(&f, wants, 1, 5, false, 300);
    assert_true(mill_create_topics_response_topics_next(&out.topics, 5, &topic));
    assert_int_equal(topic.error_code, 7);
    uint64_t took_ms = (f.now.mono_ns - before_ns) / MILL_NS_PER_MS;
    assert_in_range(took_ms, 295, 320);
    /* timeout 0: made, and answered with 7 at once. */
    const struct want more[] = {{.name = "hasty", .partitions = 1, .replicas = 1}};
    out = create(&f, more, 1, 5, false, 0);
    assert_true(mill_create_topics_response_topics_next(&out.topics, 5, &topic));
    assert_int_equal(topic.error_code, 7);
    assert_non_null(mill_map_topic_by_name(f.map, "hasty", 5));
    /* A directory that cannot be opened is told. */
    f.serve = true;
    f.serve_as = MILL_PARTITION_FAILED;
    const struct want failing[] = {{.name = "failing", .partitions = 2, .replicas = 1}};
    out = create(&f, failing, 1, 5, false, 1000);
    assert_true(mill_create_topics_response_topics_next(&out.topics, 5, &topic));
    assert_int_equal(topic.error_code, 56);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_faults_answered_one_by_one),
        cmocka_unit_test(test_create_every_version),
        cmocka_unit_test(test_create_waits_for_cores_but_not_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
