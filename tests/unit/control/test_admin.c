/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: topics get more partitions, served and for good, and what is wrong changes nothing; the log
 * directories are told as their files are. Method: requests of all versions against a fake core on
 * virtual time, and files made by hand. */
#include "tests/unit/control/fake_core.h"

#include <errno.h>
#include <sys/stat.h>

static void get_topic(const void *context, int32_t index, void *element)
{
    struct mill_create_topics_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(context);
    to->num_partitions = 2;
    to->replication_factor = 1;
}

static void create_one(struct fake *f, const char *name)
{
    struct mill_create_topics_request in;
    struct mill_create_topics_response out;
    struct mill_create_topics_response_topics topic = {0};
    mill_create_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_topic, .context = name};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_request_encode(&writer, 7, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_response_decode(&at, 7, &out), 0);
    assert_true(mill_create_topics_response_topics_next(&out.topics, 7, &topic));
    assert_int_equal(topic.error_code, 0);
}

static uint32_t partitions_of(const struct fake *f, const char *name)
{
    const struct mill_map_topic *topic =
        mill_map_topic_by_name(f->map, name, (uint32_t)strlen(name));
    return topic ? topic->partitions_count : 0;
}

static void restart(struct fake *f, uint32_t pages_max)
{
    mill_control_close(f->control);
    assert_int_equal(fake_start_control(f, pages_max), 0);
    for (int i = 0; i < 1000 && !mill_control_is_serving(f->control); i++) {
        fake_turns(f, 1);
    }
    assert_true(mill_control_is_serving(f->control));
}

/* --- CreatePartitions --------------------------------------------------------------------------
 */

struct growth {
    const char *name;
    int32_t count;
    int32_t assignments; /* -1: none */
    int32_t broker;
};

static void get_broker(const void *context, int32_t index, void *element)
{
    int32_t *id = element;
    MILL_UNUSED(index);
    *id = ((const struct growth *)context)->broker;
}

static void get_assignment(const void *context, int32_t index, void *element)
{
    struct mill_create_partitions_request_topics_assignments *to = element;
    MILL_UNUSED(index);
    to->broker_ids = (struct mill_warray){.count = 1, .get = get_broker, .context = context};
}

static void get_growth(const void *context, int32_t index, void *element)
{
    const struct growth *one = &((const struct growth *)context)[index];
    struct mill_create_partitions_request_topics *to = element;
    to->name = mill_wstr_of(one->name);
    to->count = one->count;
    to->assignments =
        (struct mill_warray){.count = one->assignments, .get = get_assignment, .context = one};
}

/* ret: error of the last one. */
static int16_t grow(struct fake *f, const struct growth *items, int32_t count, int16_t version,
                    bool validate_only)
{
    struct mill_create_partitions_request in;
    struct mill_create_partitions_response out;
    struct mill_create_partitions_response_results one = {.error_code = -2};
    mill_create_partitions_request_defaults(&in);
    in.topics = (struct mill_warray){.count = count, .get = get_growth, .context = items};
    in.timeout_ms = 60000;
    in.validate_only = validate_only;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_CREATE_PARTITIONS, version);
    assert_int_equal(mill_create_partitions_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_CREATE_PARTITIONS, version);
    assert_int_equal(mill_create_partitions_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    /* A name that comes twice is answered once. */
    bool repeated = count > 1 && strcmp(items[0].name, items[1].name) == 0;
    assert_int_equal(out.results.count, count - repeated);
    while (mill_create_partitions_response_results_next(&out.results, version, &one)) {
        assert_int_equal(one.error_code != 0, one.error_message.length > 0);
    }
    return one.error_code;
}

static void test_grow_serves_and_stays(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    create_one(&f, "here");
    for (int16_t version = 0; version <= 3; version++) {
        const struct growth one = {"here", 3 + version, -1, 0};
        assert_int_equal(grow(&f, &one, 1, version, true), 0);
        assert_int_equal(partitions_of(&f, "here"), 2 + version);
        assert_int_equal(grow(&f, &one, 1, version, false), 0);
        assert_int_equal(partitions_of(&f, "here"), 3 + version);
    }
    const struct growth assigned = {"here", 8, 2, 1};
    assert_int_equal(grow(&f, &assigned, 1, 3, false), 0);
    assert_int_equal(partitions_of(&f, "here"), 8);
    assert_int_equal(mill_counter_get(&f.shared->partitions), 8);
    restart(&f, 0);
    assert_int_equal(partitions_of(&f, "here"), 8);
    assert_int_equal(mill_control_controller(f.control)->topics.partitions_count, 8);
    fake_close(&f);
}

static void test_grow_faults_change_nothing(void **state)
{
    (void)state;
    static const struct {
        struct growth item;
        int16_t error;
    } table[] = {
        {{"here", 2, -1, 0}, MILL_KERR_INVALID_PARTITIONS},
        {{"here", 1, -1, 0}, MILL_KERR_INVALID_PARTITIONS},
        {{"here", -1, -1, 0}, MILL_KERR_INVALID_PARTITIONS},
        {{"here", 4, 1, 1}, MILL_KERR_INVALID_REPLICA_ASSIGNMENT},
        {{"here", 4, 0, 1}, MILL_KERR_INVALID_REPLICA_ASSIGNMENT},
        {{"here", 3, 1, 2}, MILL_KERR_INVALID_REPLICA_ASSIGNMENT},
        {{"absent", 3, -1, 0}, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION},
        {{"", 3, -1, 0}, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION},
        {{"here", INT32_MAX, -1, 0}, MILL_KERR_POLICY_VIOLATION},
        {{"__consumer_offsets", 3, -1, 0}, MILL_KERR_INVALID_REQUEST},
    };
    struct fake f;
    fake_open(&f, NULL, 0);
    create_one(&f, "here");
    create_one(&f, "__consumer_offsets");
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        assert_int_equal(grow(&f, &table[i].item, 1, 3, false), table[i].error);
    }
    const struct growth twice[] = {{"here", 3, -1, 0}, {"here", 4, -1, 0}};
    assert_int_equal(grow(&f, twice, 2, 3, false), MILL_KERR_INVALID_REQUEST);
    const struct growth nobody[] = {{"absent", 3, -1, 0}, {"absent", 4, -1, 0}};
    assert_int_equal(grow(&f, nobody, 2, 3, false), MILL_KERR_INVALID_REQUEST);
    assert_int_equal(partitions_of(&f, "__consumer_offsets"), 2);
    const struct growth mixed[] = {{"absent", 3, -1, 0}, {"here", 3, -1, 0}};
    assert_int_equal(partitions_of(&f, "here"), 2);
    assert_int_equal(grow(&f, mixed, 2, 3, false), 0);
    assert_int_equal(partitions_of(&f, "here"), 3);
    fake_close(&f);
}

static void test_grow_store_full_changes_nothing(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    create_one(&f, "here");
    restart(&f, 1);
    const struct growth many = {"here", 5000, -1, 0};
    assert_int_equal(grow(&f, &many, 1, 3, false), MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(partitions_of(&f, "here"), 2);
    restart(&f, 0);
    assert_int_equal(partitions_of(&f, "here"), 2);
    fake_close(&f);
}

static void test_grow_failed_directory_is_told(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    create_one(&f, "here");
    f.serve_as = MILL_PARTITION_FAILED;
    const struct growth one = {"here", 3, -1, 0};
    assert_int_equal(grow(&f, &one, 1, 3, false), MILL_KERR_KAFKA_STORAGE_ERROR);
    fake_close(&f);
}

static bool is_made(const struct fake *f, const char *name)
{
    const struct mill_map_topic *topic =
        mill_map_topic_by_name(f->map, name, (uint32_t)strlen(name));
    const struct mill_controller *controller = mill_control_controller(f->control);
    const struct mill_topic *kept =
        mill_topics_by_name(&controller->topics, name, (uint32_t)strlen(name));
    assert_true(topic && kept);
    return (kept->record->flags & MILL_TOPIC_MADE) != 0;
}

/* New partitions have no directory: their topic counts as made only when they served, too. */
static void test_grow_new_partitions_are_not_lost_ones(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f, NULL, 0);
    create_one(&f, "here");
    fake_turns(&f, 500);
    assert_true(is_made(&f, "here"));
    f.serve = false;
    const struct growth one = {"here", 3, -1, 0};
    assert_int_equal(grow(&f, &one, 1, 3, false), 0);
    fake_turns(&f, 500);
    assert_false(is_made(&f, "here"));
    restart(&f, 0);
    assert_false(is_made(&f, "here"));
    f.serve = true;
    fake_say_all(&f);
    fake_turns(&f, 1500);
    assert_true(is_made(&f, "here"));
    restart(&f, 0);
    assert_true(is_made(&f, "here"));
    fake_close(&f);
}

/* --- DescribeLogDirs ---------------------------------------------------------------------------
 */

static char log_dir[64]; /* of the running test */

static void open_with_dir(struct fake *f)
{
    char setting[96];
    const char *sets[] = {setting};
    snprintf(log_dir, sizeof(log_dir), "/tmp/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(log_dir));
    snprintf(setting, sizeof(setting), "log.dirs=%s", log_dir);
    fake_open(f, sets, 1);
}

static void make_file(const char *dir, const char *name, size_t size_bytes)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", log_dir, dir);
    (void)mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/%s/%s", log_dir, dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(truncate(path, (off_t)size_bytes), 0);
}

static void remove_dir(void)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -rf %s", log_dir);
    assert_int_equal(system(command), 0);
}

static void get_one_partition(const void *context, int32_t index, void *element)
{
    int32_t *id = element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *id = 1;
}

static void get_named(const void *context, int32_t index, void *element)
{
    struct mill_describe_log_dirs_request_topics *to = element;
    MILL_UNUSED(index);
    to->topic = mill_wstr_of(context);
    to->partitions = (struct mill_warray){.count = 1, .get = get_one_partition};
}

/* "TOPIC-PARTITION=SIZE " of all in the only directory; named: partition 1 of this topic only. */
static void describe(struct fake *f, const char *named, int16_t version, char *ret_text)
{
    struct mill_describe_log_dirs_request in;
    struct mill_describe_log_dirs_response out;
    struct mill_describe_log_dirs_response_results dir;
    struct mill_describe_log_dirs_response_results_topics topic;
    struct mill_describe_log_dirs_response_results_topics_partitions partition;
    mill_describe_log_dirs_request_defaults(&in);
    in.topics = (struct mill_warray){.count = -1};
    if (named) {
        in.topics = (struct mill_warray){.count = 1, .get = get_named, .context = named};
    }
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_DESCRIBE_LOG_DIRS, version);
    assert_int_equal(mill_describe_log_dirs_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_DESCRIBE_LOG_DIRS, version);
    assert_int_equal(mill_describe_log_dirs_response_decode(&at, version, &out), 0);
    assert_int_equal(out.error_code, 0);
    assert_int_equal(out.results.count, 1);
    assert_true(mill_describe_log_dirs_response_results_next(&out.results, version, &dir));
    assert_int_equal(dir.error_code, 0);
    assert_true(mill_wstr_equal(&dir.log_dir, log_dir, (uint32_t)strlen(log_dir)));
    assert_true(version < 4 ? dir.total_bytes == -1 : dir.total_bytes >= dir.usable_bytes);
    assert_true(version < 4 || dir.usable_bytes > 0);
    ret_text[0] = '\0';
    while (mill_describe_log_dirs_response_results_topics_next(&dir.topics, version, &topic)) {
        while (mill_describe_log_dirs_response_results_topics_partitions_next(
            &topic.partitions, version, &partition)) {
            char name[MILL_TOPIC_NAME_MAX + 1];
            assert_true(mill_wstr_copy(&topic.name, name, sizeof(name)) > 0);
            ret_text += sprintf(ret_text, "%s-%d=%lld ", name, partition.partition_index,
                                (long long)partition.partition_size);
            assert_false(partition.is_future_key);
            assert_int_equal(partition.offset_lag, 0);
        }
    }
}

static void test_log_dirs_as_their_files_are(void **state)
{
    (void)state;
    struct fake f;
    char text[512];
    open_with_dir(&f);
    create_one(&f, "b");
    create_one(&f, "a-b");
    make_file("b-0", "00000000000000000000.log", 100);
    make_file("b-0", "00000000000000000000.index", 5000);
    make_file("b-0", "00000000000000000077.log", 11);
    make_file("b-0", "00000000000000000055.log.deleted", 900);
    make_file("b-1", "00000000000000000000.log", 7);
    make_file("a-b-1", "00000000000000000000.log", 3);
    make_file("b-2", "00000000000000000000.log", 1);    /* no such partition */
    make_file("gone-0", "00000000000000000000.log", 1); /* no such topic */
    make_file("b-0.0123-delete", "00000000000000000000.log", 1);
    for (int16_t version = 1; version <= 5; version++) {
        describe(&f, NULL, version, text);
        assert_string_equal(text, "a-b-1=3 b-0=111 b-1=7 ");
        describe(&f, "b", version, text);
        assert_string_equal(text, "b-1=7 ");
        describe(&f, "absent", version, text);
        assert_string_equal(text, "");
    }
    remove_dir();
    fake_close(&f);
}

/* More than one turn's share: other work goes on in between, nothing is left out. */
static void test_log_dirs_many_take_turns(void **state)
{
    (void)state;
    enum { MANY = 100 };
    struct fake f;
    static char text[MANY * 16];
    open_with_dir(&f);
    create_one(&f, "t");
    const struct growth more = {"t", MANY, -1, 0};
    assert_int_equal(grow(&f, &more, 1, 3, false), 0);
    for (int i = 0; i < MANY; i++) {
        char dir[16];
        snprintf(dir, sizeof(dir), "t-%d", i);
        make_file(dir, "00000000000000000000.log", (size_t)i);
    }
    describe(&f, NULL, 4, text);
    const char *at = text;
    for (int i = 0; i < MANY; i++) {
        char want[32];
        snprintf(want, sizeof(want), "t-%d=%d ", i, i);
        assert_int_equal(strncmp(at, want, strlen(want)), 0);
        at += strlen(want);
    }
    assert_string_equal(at, "");
    remove_dir();
    fake_close(&f);
}

/* --- DescribeTopicPartitions -------------------------------------------------------------------
 */

struct asked_topics {
    const char *const *names;
    int32_t count;
    int32_t limit;
    const char *cursor; /* NULL: none */
    int32_t cursor_partition;
};

static void get_described(const void *context, int32_t index, void *element)
{
    struct mill_describe_topic_partitions_request_topics *to = element;
    to->name = mill_wstr_of(((const struct asked_topics *)context)->names[index]);
}

/* The answer as text: "NAME:PARTITION,... NAME!ERROR ... >CURSOR:PARTITION". */
static void describe_topics(struct fake *f, const struct asked_topics *asked, char *ret_text)
{
    struct mill_describe_topic_partitions_request in;
    struct mill_describe_topic_partitions_response out;
    struct mill_describe_topic_partitions_response_topics topic;
    struct mill_describe_topic_partitions_response_topics_partitions partition;
    char name[MILL_TOPIC_NAME_MAX + 1];
    char *at_text = ret_text;
    mill_describe_topic_partitions_request_defaults(&in);
    in.topics = (struct mill_warray){.count = asked->count, .get = get_described, .context = asked};
    in.response_partition_limit = asked->limit;
    in.has_cursor = asked->cursor != NULL;
    in.cursor.topic_name = mill_wstr_of(asked->cursor);
    in.cursor.partition_index = asked->cursor_partition;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_DESCRIBE_TOPIC_PARTITIONS, 0);
    assert_int_equal(mill_describe_topic_partitions_request_encode(&writer, 0, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_DESCRIBE_TOPIC_PARTITIONS, 0);
    assert_int_equal(mill_describe_topic_partitions_response_decode(&at, 0, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    ret_text[0] = '\0';
    while (mill_describe_topic_partitions_response_topics_next(&out.topics, 0, &topic)) {
        mill_wstr_copy(&topic.name, name, sizeof(name));
        at_text += sprintf(at_text, "%s", name);
        assert_int_equal(mill_uuid_is_zero(&topic.topic_id), topic.error_code != 0);
        assert_int_equal(topic.topic_authorized_operations == INT32_MIN, topic.error_code == 42);
        if (topic.error_code != 0) {
            at_text += sprintf(at_text, "!%d", topic.error_code);
        }
        const char *before = ":";
        while (mill_describe_topic_partitions_response_topics_partitions_next(&topic.partitions, 0,
                                                                              &partition)) {
            assert_int_equal(partition.error_code, 0);
            assert_int_equal(partition.leader_id, 1);
            assert_int_equal(partition.replica_nodes.count, 1);
            assert_int_equal(partition.isr_nodes.count, 1);
            at_text += sprintf(at_text, "%s%d", before, partition.partition_index);
            before = ",";
        }
        at_text += sprintf(at_text, " ");
    }
    if (out.has_next_cursor) {
        mill_wstr_copy(&out.next_cursor.topic_name, name, sizeof(name));
        sprintf(at_text, ">%s:%d", name, out.next_cursor.partition_index);
    }
}

static void test_described_topics_go_on_at_the_cursor(void **state)
{
    (void)state;
    static const char *const names[] = {"c", "a", "absent", "c", "bad name"};
    static const struct {
        struct asked_topics asked;
        const char *answer;
    } table[] = {
        {{NULL, 0, 2000, NULL, 0}, "a:0,1 b:0,1 c:0,1 "},
        {{NULL, 0, 3, NULL, 0}, "a:0,1 b:0 >b:1"},
        {{NULL, 0, 3, "b", 1}, "b:1 c:0,1 "},
        {{NULL, 0, 2, "b", 1}, "b:1 c:0 >c:1"},
        {{NULL, 0, 2, NULL, 0}, "a:0,1 >b:0"},
        {{NULL, 0, 2, "b", 0}, "b:0,1 >c:0"},
        {{NULL, 0, 2000, "bb", 1}, "c:0,1 "}, /* deleted meanwhile */
        {{NULL, 0, 2000, "b", -1}, ""},
        {{NULL, 0, 2000, "c", 7}, "c "},    /* behind its end */
        {{NULL, 0, 0, "c", 0}, "c:0 >c:1"}, /* one at least */
        {{NULL, 0, 5000, NULL, 0}, "a:0,1 b:0,1 c:0,1 "},
        {{names, 5, 2000, NULL, 0}, "a:0,1 absent!3 bad name!17 c:0,1 "},
        {{names, 5, 2, NULL, 0}, "a:0,1 >absent:0"},
        {{names, 5, 2, "absent", 0}, "absent!3 bad name!17 c:0,1 "},
        {{names, 1, 2, "b", 1}, "c!42 "}, /* the cursor's is not named */
        {{names, 5, 2, "c", -1}, "c!42 a!42 absent!42 c!42 bad name!42 "}, /* as asked */
    };
    char text[256];
    struct fake f;
    fake_open(&f, NULL, 0);
    create_one(&f, "b");
    create_one(&f, "a");
    create_one(&f, "c");
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        describe_topics(&f, &table[i].asked, text);
        assert_string_equal(text, table[i].answer);
    }
    fake_close(&f);
}

/* More partitions than an answer may have, whatever the client asks for. */
static void test_described_partitions_are_bounded(void **state)
{
    (void)state;
    static const char *const sets[] = {"max.request.partition.size.limit=1"};
    const struct asked_topics all = {NULL, 0, 2000, NULL, 0};
    char text[64];
    struct fake f;
    fake_open(&f, sets, 1);
    create_one(&f, "a");
    describe_topics(&f, &all, text);
    assert_string_equal(text, "a:0 >a:1");
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow_serves_and_stays),
        cmocka_unit_test(test_grow_faults_change_nothing),
        cmocka_unit_test(test_grow_store_full_changes_nothing),
        cmocka_unit_test(test_grow_failed_directory_is_told),
        cmocka_unit_test(test_grow_new_partitions_are_not_lost_ones),
        cmocka_unit_test(test_log_dirs_as_their_files_are),
        cmocka_unit_test(test_log_dirs_many_take_turns),
        cmocka_unit_test(test_described_topics_go_on_at_the_cursor),
        cmocka_unit_test(test_described_partitions_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
