/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: topics live and die as clients are told, also when control is killed or the store is full;
 * the other handlers answer every version. Method: a fake core on virtual time (fake_core.h); a
 * child process that commits and is killed before it publishes. */
#include "tests/unit/control/fake_core.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

static void get_topic(const void *context, int32_t index, void *element)
{
    const char *const *names = context;
    struct mill_create_topics_request_topics *to = element;
    to->name = mill_wstr_of(names[index]);
    to->num_partitions = 2;
    to->replication_factor = 1;
}

/* ret: error of the last topic. */
static int16_t create(struct fake *f, const char *const *names, int32_t count)
{
    struct mill_create_topics_request in;
    struct mill_create_topics_response out;
    struct mill_create_topics_response_topics topic = {0};
    mill_create_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = count, .get = get_topic, .context = names};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_request_encode(&writer, 7, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_response_decode(&at, 7, &out), 0);
    while (mill_create_topics_response_topics_next(&out.topics, 7, &topic)) {
    }
    return topic.error_code;
}

static int16_t create_one(struct fake *f, const char *name)
{
    return create(f, &name, 1);
}

static void get_text(const void *context, int32_t index, void *element)
{
    const char *const *texts = context;
    *(struct mill_wstr *)element = mill_wstr_of(texts[index]);
}

struct doomed {
    const char *name;
    struct mill_uuid id;
};

static void get_doomed(const void *context, int32_t index, void *element)
{
    const struct doomed *doomed = &((const struct doomed *)context)[index];
    struct mill_delete_topics_request_topics *to = element;
    to->name = mill_wstr_of(doomed->name);
    to->topic_id = doomed->id;
}

/* Deletes one by name, or by id in version 6. ret: error. */
static int16_t delete_one(struct fake *f, const char *name, const struct mill_uuid *id,
                          int16_t version)
{
    struct mill_delete_topics_request in;
    struct mill_delete_topics_response out;
    struct mill_delete_topics_response_responses one;
    struct doomed doomed = {.name = name, .id = id ? *id : (struct mill_uuid){{0}}};
    mill_delete_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_doomed, .context = &doomed};
    in.topic_names = (struct mill_warray){.count = 1, .get = get_text, .context = &name};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_DELETE_TOPICS, version);
    assert_int_equal(mill_delete_topics_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_DELETE_TOPICS, version);
    assert_int_equal(mill_delete_topics_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_true(mill_delete_topics_response_responses_next(&out.responses, version, &one));
    return one.error_code;
}

static const struct mill_map_topic *find(const struct fake *f, const char *name)
{
    return mill_map_topic_by_name(f->map, name, (uint32_t)strlen(name));
}

/* --- deletion ----------------------------------------------------------------------------------
 */

static void test_delete_every_version(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    for (int16_t version = 1; version <= 6; version++) {
        assert_int_equal(create_one(&f, "gone-soon"), 0);
        assert_int_equal(delete_one(&f, "gone-soon", NULL, version), 0);
        assert_int_equal(delete_one(&f, "gone-soon", NULL, version), 3);
        fake_turns(&f, 5);
        assert_null(find(&f, "gone-soon"));
    }
    assert_int_equal(create_one(&f, "by-id"), 0);
    struct mill_uuid id = find(&f, "by-id")->id;
    struct mill_uuid other = {{9}};
    assert_int_equal(delete_one(&f, NULL, &other, 6), 100);
    assert_int_equal(delete_one(&f, "by-id", &id, 6), 42);
    assert_int_equal(delete_one(&f, NULL, &id, 6), 0);
    assert_int_equal(delete_one(&f, NULL, &id, 6), 100);
    fake_turns(&f, 5);
    assert_int_equal(mill_control_controller(f.control)->topics.count, 0);
    fake_close(&f);
}

static void test_delete_disabled_refused(void **state)
{
    (void)state;
    struct fake f;
    const char *const sets[] = {"delete.topic.enable=false"};
    fake_open(&f, sets, 1);
    assert_int_equal(create_one(&f, "stays"), 0);
    assert_int_equal(delete_one(&f, "stays", NULL, 4), 73);
    assert_int_equal(delete_one(&f, "absent", NULL, 4), 3);
    assert_non_null(find(&f, "stays"));
    fake_close(&f);
}

/* The name is free at once; the old topic goes when every core has said GONE, and not before. */
static void test_delete_name_made_again_before_gone(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "again"), 0);
    struct mill_uuid old = find(&f, "again")->id;
    f.serve = false;
    assert_int_equal(delete_one(&f, "again", NULL, 4), 0);
    fake_turns(&f, 3);
    assert_int_equal(mill_map_topic_by_id(f.map, &old)->flags, MILL_TOPIC_DELETING);
    fake_say(&f, &old, 0, MILL_PARTITION_GONE);
    fake_turns(&f, 3);
    assert_non_null(mill_map_topic_by_id(f.map, &old));
    f.serve = true;
    f.generation = mill_map_generation(f.map); /* the old one's second partition is not told */
    assert_int_equal(create_one(&f, "again"), 0);
    assert_false(mill_uuid_equal(&find(&f, "again")->id, &old));
    fake_turns(&f, 3);
    assert_null(mill_map_topic_by_id(f.map, &old));
    assert_non_null(find(&f, "again"));
    fake_close(&f);
}

/* --- restart, kill, full store -----------------------------------------------------------------
 */

static void restart(struct fake *f, uint32_t pages_max)
{
    mill_control_close(f->control);
    f->control = NULL;
    assert_int_equal(fake_start_control(f, pages_max), 0);
    fake_turns(f, 3);
    assert_true(mill_control_is_serving(f->control));
}

static void test_control_restart_keeps_all(void **state)
{
    (void)state;
    struct fake f;
    const char *const names[] = {"a", "b", "c"};
    fake_open(&f, NULL, 0);
    assert_int_equal(create(&f, names, 3), 0);
    struct mill_uuid id = find(&f, "b")->id;
    char cluster[MILL_UUID_TEXT_BYTES];
    memcpy(cluster, mill_map_cluster_read(f.map)->cluster_id, sizeof(cluster));
    f.serve = false;
    assert_int_equal(delete_one(&f, "c", NULL, 4), 0);
    f.serve = true;
    uint32_t looks = f.looks;
    restart(&f, 0);
    assert_true(f.looks > looks);
    assert_true(mill_uuid_equal(&find(&f, "b")->id, &id));
    assert_string_equal(cluster, mill_map_cluster_read(f.map)->cluster_id);
    fake_turns(&f, 5);
    assert_null(find(&f, "c"));
    assert_int_equal(create_one(&f, "b"), 36);
    /* Nothing changed: the cores are not made to look again at what they have. */
    uint64_t generation = mill_map_generation(f.map);
    restart(&f, 0);
    assert_in_range(mill_map_generation(f.map), generation, generation + 1);
    /* And with a fresh map, as after a restart of the supervisor. */
    struct mill_map_limits limits = {.size_bytes = FAKE_MAP_BYTES, .topics_max = FAKE_TOPICS_MAX};
    mill_control_close(f.control);
    memset(f.map_memory, 0, FAKE_MAP_BYTES);
    mill_map_close(f.map);
    mill_map_format(f.map_memory, &limits);
    assert_int_equal(mill_map_open(f.map_memory, FAKE_MAP_BYTES, &f.map), 0);
    assert_int_equal(fake_start_control(&f, 0), 0);
    fake_turns(&f, 3);
    assert_true(mill_uuid_equal(&find(&f, "b")->id, &id));
    assert_null(find(&f, "c"));
    fake_close(&f);
}

/* A child commits topics and is killed at a random moment, so also between commit and publish. What
 * the store has is published by the next start, and what the map has is in the store. */
static void test_control_killed_map_follows_store(void **state)
{
    (void)state;
    struct fake f;
    struct mill_random random = {.state = 21};
    fake_open(&f, NULL, 0);
    fake_turns(&f, 2);
    mill_control_close(f.control);
    for (int round = 0; round < 8; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            f.random.state = (uint64_t)round * 1000 + 5;
            if (fake_start_control(&f, 0) < 0) {
                _exit(1);
            }
            for (int i = 0; i < 12; i++) {
                char name[32];
                snprintf(name, sizeof(name), "round-%d-%d", round, i);
                create_one(&f, name);
            }
            _exit(0);
        }
        usleep(2000 + mill_random_below(&random, 20000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        fake_attach(&f);
        while (fake_take(&f)) {
        }
        assert_int_equal(fake_start_control(&f, 0), 0);
        fake_turns(&f, 5);
        assert_true(mill_control_is_serving(f.control));
        const struct mill_topics *topics = &mill_control_controller(f.control)->topics;
        uint32_t in_map = 0;
        for (uint32_t slot = 0; slot < mill_map_slots(f.map); slot++) {
            const struct mill_map_topic *there = mill_map_topic_at(f.map, slot);
            in_map += there != NULL;
            assert_true(!there || mill_topics_by_id(topics, &there->id));
        }
        assert_int_equal(in_map, topics->count);
        mill_control_close(f.control);
    }
    assert_int_equal(fake_start_control(&f, 0), 0);
    fake_close(&f);
}

static void test_control_store_full_fails_cleanly(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "before"), 0);
    restart(&f, 8); /* pages: the schema and a little */
    int16_t error = 0;
    char name[32];
    int made = 0;
    for (; made < 100 && error == 0; made++) {
        snprintf(name, sizeof(name), "filling-%d", made);
        error = create_one(&f, name);
    }
    assert_int_equal(error, 56);
    assert_null(find(&f, name));
    assert_non_null(find(&f, "before"));
    assert_int_equal(delete_one(&f, "absent", NULL, 4), 3);
    /* Room again: nothing was lost, and the same request is met. */
    restart(&f, 0);
    assert_non_null(find(&f, "before"));
    assert_non_null(find(&f, "filling-0"));
    assert_null(find(&f, name));
    assert_int_equal(create_one(&f, name), 0);
    fake_close(&f);
}

static void test_control_store_damaged_or_foreign_refused(void **state)
{
    (void)state;
    struct fake f;
    struct mill_meta meta = {0};
    struct mill_report report = {0};
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "kept"), 0);
    mill_control_close(f.control);
    assert_int_equal(mill_meta_sqlite_open(f.file, 0, &meta, &report), 0);
    assert_int_equal(meta.calls->broker(meta.store, 2, &report), -EEXIST);
    assert_non_null(strstr(report.text, "node.id 1"));
    mill_meta_close(&meta);
    FILE *file = fopen(f.file, "r+");
    assert_non_null(file);
    fputs("this is not a database at all", file);
    fclose(file);
    assert_int_equal(mill_meta_sqlite_open(f.file, 0, &meta, &report), -EBADMSG);
    unlink(f.file);
    assert_int_equal(fake_start_control(&f, 0), 0);
    fake_close(&f);
}

/* --- incarnations and ids ----------------------------------------------------------------------
 */

static void test_control_dead_core_requests_dropped(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    fake_turns(&f, 2);
    const char *name = "by-the-dead";
    struct mill_create_topics_request in;
    mill_create_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_topic, .context = &name};
    struct mill_writer writer = fake_begin(&f, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_request_encode(&writer, 7, &in), 0);
    fake_send(&f, writer.size_bytes);
    f.incarnation++;
    fake_attach(&f);
    fake_turns(&f, 5);
    assert_false(fake_take(&f));
    assert_null(find(&f, name));
    assert_int_equal(mill_control_counters(f.control)->requests_stale, 1);
    assert_int_equal(mill_counter_get(&f.shared->requests_stale), 1); /* what status shows */
    assert_int_equal(atomic_load(&f.segment->control.seen), f.incarnation);
    assert_int_equal(create_one(&f, "by-the-living"), 0);
    fake_close(&f);
}

static void ask_ids(struct fake *f, uint64_t incarnation)
{
    struct mill_event_ids_low *event =
        mill_ring_claim(&f->events, MILL_EVENT_IDS_LOW, sizeof(*event));
    assert_non_null(event);
    *event = (struct mill_event_ids_low){.core_incarnation = incarnation};
    mill_ring_publish(&f->events);
    f->ids_first = -1;
    fake_turns(f, 3);
}

static void test_control_id_blocks_never_repeat(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    for (int64_t block = 0; block < 5; block++) {
        ask_ids(&f, f.incarnation);
        assert_int_equal(f.ids_first, block * MILL_CONTROL_ID_BLOCK);
        restart(&f, 0);
    }
    ask_ids(&f, f.incarnation + 1);
    assert_int_equal(f.ids_first, -1);
    fake_close(&f);
}

/* --- the other handlers ------------------------------------------------------------------------
 */

/* Asks for one id, or two from version 4 on. ret: enum mill_frame_outcome. */
static uint32_t coordinator_ask(struct fake *f, int16_t version, int8_t key_type)
{
    static const char *const keys[] = {"one", "two"};
    struct mill_find_coordinator_request in;
    mill_find_coordinator_request_defaults(&in);
    in.key = mill_wstr_of("one");
    in.key_type = key_type;
    in.coordinator_keys = (struct mill_warray){.count = 2, .get = get_text, .context = keys};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_FIND_COORDINATOR, version);
    assert_int_equal(mill_find_coordinator_request_encode(&writer, version, &in), 0);
    f->outcome = UINT32_MAX;
    (void)fake_call(f, &writer, MILL_API_KEY_FIND_COORDINATOR, version);
    return f->outcome;
}

/* The first question makes the topic of the offsets and waits for it; who it is that coordinates,
 * a core says (tests/sim/test_versions.c). */
static void test_find_coordinator_every_version(void **state)
{
    (void)state;
    struct fake f;
    const char *const sets[] = {"offsets.topic.num.partitions=7"};
    fake_open(&f, sets, 1);
    for (int16_t version = 0; version <= 6; version++) {
        assert_int_equal(coordinator_ask(&f, version, 0), MILL_OUTCOME_AGAIN);
    }
    const struct mill_map_topic *topic = mill_map_topic_by_name(f.map, "__consumer_offsets", 18);
    assert_non_null(topic);
    assert_int_equal(topic->partitions_count, 7);
    assert_true((topic->flags & MILL_TOPIC_INTERNAL) != 0);
    assert_int_equal(topic->settings.compact, 1);
    fake_close(&f);
}

static void test_find_coordinator_of_other_keys_makes_nothing(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(coordinator_ask(&f, 3, 2), MILL_OUTCOME_AGAIN);
    assert_null(mill_map_topic_by_name(f.map, "__consumer_offsets", 18));
    assert_null(mill_map_topic_by_name(f.map, "__transaction_state", 19));
    fake_close(&f);
}

/* The first that asks for a transactional id makes the topic behind it. */
static void test_find_coordinator_makes_transaction_state(void **state)
{
    (void)state;
    struct fake f;
    const char *const sets[] = {"transaction.state.log.num.partitions=7"};
    fake_open(&f, sets, 1);
    assert_int_equal(coordinator_ask(&f, 3, 1), MILL_OUTCOME_AGAIN);
    const struct mill_map_topic *topic = mill_map_topic_by_name(f.map, "__transaction_state", 19);
    assert_non_null(topic);
    assert_int_equal(topic->partitions_count, 7);
    assert_true((topic->flags & MILL_TOPIC_INTERNAL) != 0);
    assert_null(mill_map_topic_by_name(f.map, "__consumer_offsets", 18));
    fake_close(&f);
}

static void get_named(const void *context, int32_t index, void *element)
{
    const char *const *names = context;
    ((struct mill_metadata_request_topics *)element)->name = mill_wstr_of(names[index]);
}

static void ask_metadata(struct fake *f, const char *const *names, int32_t count, bool allow)
{
    struct mill_metadata_request in;
    mill_metadata_request_defaults(&in);
    in.topics = (struct mill_warray){.count = count, .get = get_named, .context = names};
    in.allow_auto_topic_creation = allow;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_METADATA, 4);
    assert_int_equal(mill_metadata_request_encode(&writer, 4, &in), 0);
    (void)fake_call(f, &writer, MILL_API_KEY_METADATA, 4);
    assert_int_equal(f->outcome, MILL_OUTCOME_AGAIN);
    assert_int_equal(f->answer_bytes, 0);
}

/* A core that never serves is told to look before its own deadline. */
static void test_metadata_unserved_answers_before_deadline(void **state)
{
    (void)state;
    struct fake f;
    const char *const names[] = {"slow"};
    fake_open(&f, NULL, 0);
    f.serve = false;
    uint64_t before_ns = f.now.mono_ns;
    ask_metadata(&f, names, 1, true);
    assert_in_range((f.now.mono_ns - before_ns) / MILL_NS_PER_MS, 800, 990);
    fake_close(&f);
}

static void test_metadata_creates_what_may_be(void **state)
{
    (void)state;
    struct fake f;
    const char *const names[] = {"new", "bad/name", "new", "new2"};
    fake_open(&f, NULL, 0);
    ask_metadata(&f, names, 4, false);
    assert_null(find(&f, "new"));
    ask_metadata(&f, names, 4, true);
    assert_non_null(find(&f, "new"));
    assert_non_null(find(&f, "new2"));
    assert_int_equal(mill_control_controller(f.control)->topics.count, 2);
    ask_metadata(&f, names, 4, true);
    assert_int_equal(mill_control_controller(f.control)->topics.count, 2);
    fake_close(&f);
}

struct described {
    int8_t type;
    const char *name;
    const char *key; /* NULL all */
    int16_t error;
};

static void get_described(const void *context, int32_t index, void *element)
{
    const struct described *one = &((const struct described *)context)[index];
    struct mill_describe_configs_request_resources *to = element;
    to->resource_type = one->type;
    to->resource_name = mill_wstr_of(one->name);
    to->configuration_keys =
        (struct mill_warray){.count = one->key ? 1 : -1, .get = get_text, .context = &one->key};
}

static void check_described(struct mill_describe_configs_response_results *result, int16_t version,
                            const struct described *want)
{
    struct mill_describe_configs_response_results_configs config;
    struct mill_describe_configs_response_results_configs_synonyms synonym;
    assert_int_equal(result->error_code, want->error);
    while (
        mill_describe_configs_response_results_configs_next(&result->configs, version, &config)) {
        if (want->type == 2 && mill_wstr_equal(&config.name, "max.message.bytes", 17)) {
            assert_true(mill_wstr_equal(&config.value, "5000", 4));
            assert_int_equal(config.config_source, 4);
            assert_int_equal(config.synonyms.count, 2);
            assert_true(mill_describe_configs_response_results_configs_synonyms_next(
                &config.synonyms, version, &synonym));
            assert_true(mill_wstr_equal(&synonym.name, "message.max.bytes", 17));
            assert_int_equal(synonym.source, 4);
            assert_int_equal(config.config_type, version >= 3 ? 3 : 0);
            assert_int_equal(config.documentation.length > 0, version >= 3);
        }
        if (want->type == 2 && mill_wstr_equal(&config.name, "retention.ms", 12)) {
            assert_true(mill_wstr_equal(&config.value, "7200000", 7)); /* log.retention.hours=2 */
            assert_int_equal(config.config_source, 4);
        }
        if (want->type == 4 && mill_wstr_equal(&config.name, "num.partitions", 14)) {
            assert_true(mill_wstr_equal(&config.value, "1", 1));
            assert_int_equal(config.config_source, 5);
            assert_true(config.read_only);
        }
    }
}

static void test_describe_configs_every_version(void **state)
{
    (void)state;
    struct fake f;
    const char *const sets[] = {"message.max.bytes=5000", "log.retention.hours=2"};
    const struct described wants[] = {
        {2, "there", NULL, 0},          {4, "1", NULL, 0},         {2, "there", "retention.ms", 0},
        {2, "absent", NULL, 3},         {2, "bad/name", NULL, 17}, {4, "2", NULL, 42},
        {4, "one", NULL, 42},           {4, "", NULL, 0},          {8, "1", NULL, 42},
        {2, "there", "no.such.key", 0},
    };
    const int32_t count = (int32_t)MILL_COUNT_OF(wants);
    fake_open(&f, sets, 2);
    assert_int_equal(create_one(&f, "there"), 0);
    for (int16_t version = 1; version <= 4; version++) {
        struct mill_describe_configs_request in;
        struct mill_describe_configs_response out;
        struct mill_describe_configs_response_results result;
        mill_describe_configs_request_defaults(&in);
        in.resources = (struct mill_warray){.count = count, .get = get_described, .context = wants};
        in.include_synonyms = true;
        in.include_documentation = true;
        struct mill_writer writer = fake_begin(&f, MILL_API_KEY_DESCRIBE_CONFIGS, version);
        assert_int_equal(mill_describe_configs_request_encode(&writer, version, &in), 0);
        struct mill_cursor at = fake_call(&f, &writer, MILL_API_KEY_DESCRIBE_CONFIGS, version);
        assert_int_equal(mill_describe_configs_response_decode(&at, version, &out), 0);
        assert_int_equal(at.left_bytes, 0);
        for (int32_t i = 0; i < count; i++) {
            assert_true(
                mill_describe_configs_response_results_next(&out.results, version, &result));
            if (i == 0) {
                assert_int_equal(result.configs.count, 25);
            }
            assert_true(i != 1 || result.configs.count > 60);
            assert_true(i != 2 || result.configs.count == 1);
            assert_true(i != 9 || result.configs.count == 0);
            check_described(&result, version, &wants[i]);
        }
    }
    fake_close(&f);
}

static void get_same(const void *context, int32_t index, void *element)
{
    (void)index;
    get_described(context, 0, element);
}

static void describe_many(struct fake *f, int32_t count)
{
    const struct described want = {2, "there", NULL, 0};
    struct mill_describe_configs_request in;
    mill_describe_configs_request_defaults(&in);
    in.resources = (struct mill_warray){.count = count, .get = get_same, .context = &want};
    in.include_synonyms = true;
    in.include_documentation = true;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_DESCRIBE_CONFIGS, 4);
    assert_int_equal(mill_describe_configs_request_encode(&writer, 4, &in), 0);
    (void)fake_call(f, &writer, MILL_API_KEY_DESCRIBE_CONFIGS, 4);
}

/* A long answer travels through the scratch slot; one that is longer than the slot, or a request
 * with too many elements, closes the connection, and the next request is served. */
static void test_describe_configs_long_answers(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    assert_int_equal(create_one(&f, "there"), 0);
    for (int round = 0; round < 3; round++) {
        describe_many(&f, 120);
        assert_int_equal(f.outcome, MILL_OUTCOME_BYTES);
        assert_true(f.answer_bytes > MILL_FRAME_RING_BYTES / 4);
        describe_many(&f, 2000);
        assert_int_equal(f.outcome, MILL_OUTCOME_CLOSE);
        describe_many(&f, 10001);
        assert_int_equal(f.outcome, MILL_OUTCOME_CLOSE);
        describe_many(&f, 1);
        assert_int_equal(f.outcome, MILL_OUTCOME_BYTES);
    }
    fake_close(&f);
}

/* Each prefix of a frame closes the connection or is answered; nothing is read outside of it. */
static void test_control_cut_frames_close(void **state)
{
    (void)state;
    struct fake f;
    const char *name = "cut";
    struct mill_create_topics_request in;
    fake_open(&f, NULL, 0);
    mill_create_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_topic, .context = &name};
    struct mill_writer writer = fake_begin(&f, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_request_encode(&writer, 7, &in), 0);
    uint32_t size_bytes = writer.size_bytes;
    for (uint32_t cut = 0; cut < size_bytes; cut++) {
        writer.size_bytes = cut;
        (void)fake_call(&f, &writer, MILL_API_KEY_CREATE_TOPICS, 7);
        assert_int_equal(f.outcome, MILL_OUTCOME_CLOSE);
    }
    assert_null(find(&f, name));
    assert_int_equal(mill_control_counters(f.control)->answers_closed, size_bytes);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delete_every_version),
        cmocka_unit_test(test_delete_disabled_refused),
        cmocka_unit_test(test_delete_name_made_again_before_gone),
        cmocka_unit_test(test_control_restart_keeps_all),
        cmocka_unit_test(test_control_killed_map_follows_store),
        cmocka_unit_test(test_control_store_full_fails_cleanly),
        cmocka_unit_test(test_control_store_damaged_or_foreign_refused),
        cmocka_unit_test(test_control_dead_core_requests_dropped),
        cmocka_unit_test(test_control_id_blocks_never_repeat),
        cmocka_unit_test(test_find_coordinator_every_version),
        cmocka_unit_test(test_find_coordinator_of_other_keys_makes_nothing),
        cmocka_unit_test(test_find_coordinator_makes_transaction_state),
        cmocka_unit_test(test_metadata_creates_what_may_be),
        cmocka_unit_test(test_metadata_unserved_answers_before_deadline),
        cmocka_unit_test(test_describe_configs_every_version),
        cmocka_unit_test(test_describe_configs_long_answers),
        cmocka_unit_test(test_control_cut_frames_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
