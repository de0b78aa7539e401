/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: one line through log and store works: append, read, watch, files, load. Method: both
 * stepped in one thread over real files on tmpfs. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/unit/log/fixture.h"

static void test_append_then_read_gives_the_same_bytes(void **state)
{
    MILL_UNUSED(state);
    static struct fixture f;
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    mill_log_watch_data(partition, &watch, 0, 1);
    fixture_settle(&f);
    assert_false(fired);
    maker_build(m, 3);
    struct mill_append_result result = maker_must(&f, partition, m);
    assert_int_equal(result.base_offset, 0);
    assert_int_equal(result.bytes_copied, m->size);
    assert_int_equal(mill_partition_end(partition), 3);
    fixture_settle(&f);
    assert_true(fired);
    result = maker_must(&f, partition, m);
    assert_int_equal(result.base_offset, 3);
    struct mill_read read = {
        .offset = 4, .bytes_max = 1 << 20, .current_epoch = -1, .last_epoch = -1, .refs_max = 8};
    struct mill_read_result got;
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.error, 0);
    assert_int_equal(got.bytes, m->size);
    assert_int_equal(got.refs_count, 1);
    const uint8_t *bytes = mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
    assert_int_equal(mill_load_be64(bytes), 3);
    assert_int_equal(mill_load_be32(bytes + MILL_BATCH_EPOCH_AT), 3);
    assert_memory_equal(bytes + 16, m->bytes + 16, m->size - 16);
    fixture_close(&f, true);
    fixture_open(&f);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition), 6);
    fixture_read(&f, partition, &read, &got);
    assert_int_equal(got.bytes, m->size);
    bytes = mill_ref_data(mill_arena_base(f.arena), &got.refs[0]);
    assert_memory_equal(bytes + 16, m->bytes + 16, m->size - 16);
    mill_log_delete(partition);
    fixture_settle(&f);
    assert_int_equal(f.gone, 1);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

/* The longest name that a topic can have leaves no room for what a deletion adds to it. */
static void test_topic_with_the_longest_name_is_deleted(void **state)
{
    char topic[MILL_LOG_NAME_MAX + 1];
    char path[256];
    struct mill_uuid id = {{9}};
    struct mill_log_settings settings = fixture_settings();
    struct mill_partition *partition = NULL;
    static struct fixture f;
    MILL_UNUSED(state);
    fixture_make(&f, NULL);
    fixture_open(&f);
    memset(topic, 'x', MILL_LOG_NAME_MAX);
    topic[MILL_LOG_NAME_MAX] = '\0';
    for (int32_t index = 0; index < 2; index++) {
        fixture_must(&f, mill_log_open(f.log, &id, topic, index, 3, &settings, &partition));
        fixture_settle(&f);
        assert_int_equal(mill_partition_state_of(partition), MILL_LOG_SERVING);
        mill_log_delete(partition);
        fixture_settle(&f);
        snprintf(path, sizeof(path), "ls %s | grep -q xxx", f.log_dirs[0]);
        assert_int_not_equal(system(path), 0);
    }
    assert_int_equal(f.gone, 2);
    fixture_close(&f, true);
    fixture_free(&f);
}

static void test_takeup_writes_what_the_files_lack(void **state)
{
    MILL_UNUSED(state);
    static struct fixture f;
    struct mill_log_settings settings = fixture_settings();
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *partition = fixture_partition(&f, 0, &settings);
    for (int i = 0; i < 100; i++) {
        maker_build(m, 1 + i % 5);
        maker_must(&f, partition, m);
        if (i == 40) {
            fixture_settle(&f);
        }
    }
    int64_t end = mill_partition_end(partition);
    fixture_close(&f, false);
    fixture_open(&f);
    assert_int_equal(f.takeup.partitions, 1);
    assert_int_equal(f.takeup.batches_written, 59);
    assert_int_equal(f.said_count, 0);
    partition = fixture_partition(&f, 0, &settings);
    assert_int_equal(mill_partition_end(partition), end);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

/* The same name under a new id while the older topic's files are there. */
static void test_open_waits_for_an_older_topic_of_the_name(void **state)
{
    MILL_UNUSED(state);
    static struct fixture f;
    struct mill_log_settings settings = fixture_settings();
    struct mill_uuid id = {{99}};
    struct mill_partition *newer = NULL;
    struct maker *m = maker_new();
    fixture_make(&f, NULL);
    fixture_open(&f);
    struct mill_partition *older = fixture_partition(&f, 0, &settings);
    maker_build(m, 3);
    maker_must(&f, older, m);
    fixture_must(&f, mill_log_open(f.log, &id, "topic-a", 0, 1, &settings, &newer));
    for (int i = 0; i < 20; i++) {
        fixture_step(&f, 30);
    }
    assert_int_equal(mill_partition_state_of(newer), MILL_LOG_OPENING);
    mill_log_delete(older);
    for (int i = 0; i < 20; i++) {
        fixture_step(&f, 30);
    }
    assert_int_equal(f.gone, 1);
    assert_int_equal(mill_partition_state_of(newer), MILL_LOG_SERVING);
    assert_int_equal(mill_partition_end(newer), 0);
    maker_must(&f, newer, m);
    fixture_close(&f, true);
    /* Files whose topic nobody knows any more: pushed aside, not mixed in and not lost. */
    fixture_open(&f);
    struct mill_uuid third = {{100}};
    fixture_must(&f, mill_log_open(f.log, &third, "topic-a", 0, 1, &settings, &newer));
    for (int i = 0; i < 100; i++) {
        fixture_step(&f, 30);
    }
    assert_int_equal(mill_partition_state_of(newer), MILL_LOG_SERVING);
    assert_int_equal(mill_partition_end(newer), 0);
    char command[200];
    snprintf(command, sizeof(command), "test -s '%s'/topic-a-0.*-stray/*.log", f.logs);
    assert_int_equal(system(command), 0);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_then_read_gives_the_same_bytes),
        cmocka_unit_test(test_topic_with_the_longest_name_is_deleted),
        cmocka_unit_test(test_takeup_writes_what_the_files_lack),
        cmocka_unit_test(test_open_waits_for_an_older_topic_of_the_name),
    };
    return cmocka_run_group_tests_name("log line", tests, NULL, NULL);
}
