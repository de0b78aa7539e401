/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: partitions that are loaded beside their store come up whole, with what was changed
 * meanwhile, and go when they are deleted meanwhile; a store that ends waits for them. Method: log
 * and store over the kernel's files with real loader threads. */
#include "tests/unit/test.h"

#include <errno.h>
#include <time.h>

#include "dataplane/store/store_types.h"
#include "tests/unit/log/fixture.h"

enum {
    PARTITIONS = 24,
    BATCHES = 50,
};

static struct fixture f;
static struct maker *m;
static struct mill_partition *partitions[PARTITIONS];
static const struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

static void open_all(const struct mill_log_settings *settings)
{
    for (int32_t i = 0; i < PARTITIONS; i++) {
        fixture_must(&f, mill_log_open(f.log, &id, "topic-a", i, 3, settings, &partitions[i]));
    }
}

/* Steps until everything is open or gone; loaders take real time. */
static void await(uint32_t gone)
{
    for (uint32_t tries = 0; tries < 20000; tries++) {
        uint32_t left = 0;
        fixture_settle(&f);
        for (int32_t i = 0; i < PARTITIONS; i++) {
            struct mill_partition *partition = mill_log_find(f.log, &id, i);
            left += partition && mill_partition_state_of(partition) != MILL_LOG_SERVING ? 1 : 0;
        }
        if (left == 0 && f.gone >= gone) {
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("not all partitions were opened");
}

static void make_log(void)
{
    struct mill_log_settings settings = fixture_settings();
    fixture_make(&f, NULL);
    f.with_loaders = true;
    fixture_open(&f);
    m = maker_new();
    open_all(&settings);
    await(0);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        for (int j = 0; j < BATCHES; j++) {
            maker_build(m, 1);
            maker_must(&f, partitions[i], m);
        }
    }
    fixture_settle(&f);
}

static void test_loaded_after_a_kill_and_counted(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    make_log();
    fixture_close(&f, false);
    fixture_open(&f);
    open_all(&settings);
    await(0);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(mill_partition_end(partitions[i]), BATCHES);
    }
    struct mill_load_progress progress = mill_log_dirs_progress(f.dirs);
    assert_int_equal(progress.partitions, PARTITIONS);
    assert_int_equal(progress.loaded, PARTITIONS);
    assert_true(progress.bytes > (uint64_t)PARTITIONS * BATCHES * 61);
    assert_true(progress.bytes <= (uint64_t)PARTITIONS * BATCHES * m->size);
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_changes_while_loading_are_kept(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    make_log();
    fixture_close(&f, false);
    fixture_open(&f);
    f.gone = 0;
    open_all(&settings);
    mill_log_step(f.log, f.now);
    mill_store_step(f.store, f.now); /* given to the loaders */
    settings.segment_bytes = 200;
    for (int32_t i = 0; i < PARTITIONS; i++) {
        if (i % 3 == 0) {
            mill_log_delete(partitions[i]);
        } else {
            mill_log_update(partitions[i], 3, &settings);
        }
    }
    await((PARTITIONS + 2) / 3);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        char path[200];
        snprintf(path, sizeof(path), "%s/topic-a-%d/%020d.log", f.logs, i, BATCHES);
        assert_int_equal(mill_log_find(f.log, &id, i) == NULL, i % 3 == 0);
        if (i % 3 != 0) {
            maker_build(m, 1);
            maker_must(&f, partitions[i], m);
            fixture_settle(&f);
            assert_int_equal(access(path, F_OK), 0); /* the new size rolls at once */
        } else {
            *strrchr(path, '/') = '\0';
            assert_int_equal(access(path, F_OK), -1);
        }
    }
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

static void test_end_while_loading_waits(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    make_log();
    fixture_close(&f, false);
    for (uint32_t steps = 0; steps < 6; steps++) {
        fixture_open(&f);
        open_all(&settings);
        for (uint32_t i = 0; i < steps; i++) {
            mill_log_step(f.log, f.now);
            mill_store_step(f.store, f.now);
        }
        fixture_close(&f, false);
    }
    fixture_open(&f);
    open_all(&settings);
    await(0);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(mill_partition_end(partitions[i]), BATCHES);
    }
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loaded_after_a_kill_and_counted),
        cmocka_unit_test(test_changes_while_loading_are_kept),
        cmocka_unit_test(test_end_while_loading_waits),
    };
    return cmocka_run_group_tests_name("loaders", tests, NULL, NULL);
}
