/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a partition has one mark, found again after others came and went; a full table says so; two
 * cores can make different marks at once; a claim left by a killed process is free. Method: random
 * steps beside a plain list, threads, a slot written by hand. */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>

#include "base/random.h"
#include "tests/unit/hugepages/fixture.h"

enum {
    MARKS = 100,
    TOPICS = 16,
    PARTITIONS = 16,
};

static struct mill_uuid topic_of(uint32_t number)
{
    struct mill_random random = {.state = number};
    struct mill_uuid id;
    for (size_t i = 0; i < sizeof(id.b); i++) {
        id.b[i] = (uint8_t)mill_random_next(&random);
    }
    return id;
}

static uint32_t count_marks(struct mill_arena *arena)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < mill_arena_marks_length(arena); i++) {
        count += mill_arena_mark_at(arena, i) != NULL;
    }
    assert_null(mill_arena_mark_at(arena, mill_arena_marks_length(arena)));
    return count;
}

static void test_mark_fresh_values_and_same_again(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture, 16);
    struct mill_arena *arena = fixture_open(&fixture, false);
    struct mill_uuid topic = topic_of(1);
    struct mill_partition_mark *mark = mill_arena_mark(arena, &topic, 3);
    assert_non_null(mark);
    assert_int_equal(mark->written_offset, 0);
    assert_int_equal(mark->start_offset, 0);
    assert_int_equal(mark->truncate_offset, -1);
    atomic_store(&mark->written_offset, 77);
    assert_ptr_equal(mill_arena_mark(arena, &topic, 3), mark);
    assert_int_equal(mark->written_offset, 77);
    assert_ptr_not_equal(mill_arena_mark(arena, &topic, 4), mark);
    mill_arena_mark_free(mark);
    /* Made anew: nothing of the old partition remains. */
    mark = mill_arena_mark(arena, &topic, 3);
    assert_int_equal(mark->written_offset, 0);
    assert_int_equal(count_marks(arena), 2);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void test_mark_full_table_null_until_one_is_freed(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_partition_mark *first = NULL;
    fixture_make(&fixture, 16);
    struct mill_arena *arena = fixture_open(&fixture, false);
    struct mill_uuid topic = topic_of(2);
    for (int32_t i = 0; i < MARKS; i++) {
        struct mill_partition_mark *mark = mill_arena_mark(arena, &topic, i);
        assert_non_null(mark);
        first = i == 0 ? mark : first;
    }
    assert_null(mill_arena_mark(arena, &topic, MARKS));
    assert_ptr_equal(mill_arena_mark(arena, &topic, 0), first);
    mill_arena_mark_free(first);
    assert_ptr_equal(mill_arena_mark(arena, &topic, MARKS), first);
    assert_null(mill_arena_mark(arena, &topic, 0));
    assert_int_equal(count_marks(arena), MARKS);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void test_mark_random_steps_equal_model(void **state)
{
    (void)state;
    static struct mill_partition_mark *model[TOPICS][PARTITIONS];
    struct fixture fixture;
    struct mill_random random = {.state = 8};
    uint32_t count = 0;
    uint32_t refused = 0;
    fixture_make(&fixture, 16);
    struct mill_arena *arena = fixture_open(&fixture, false);
    for (uint32_t step = 0; step < 100000; step++) {
        uint32_t topic = mill_random_below(&random, TOPICS);
        uint32_t partition = mill_random_below(&random, PARTITIONS);
        struct mill_uuid id = topic_of(topic);
        struct mill_partition_mark **want = &model[topic][partition];
        if (mill_random_below(&random, 3) == 0) {
            if (*want != NULL) {
                mill_arena_mark_free(*want);
                *want = NULL;
                count--;
            }
            continue;
        }
        struct mill_partition_mark *got = mill_arena_mark(arena, &id, (int32_t)partition);
        if (*want != NULL) {
            assert_ptr_equal(got, *want);
        } else if (count == MARKS) {
            assert_null(got);
            refused++;
        } else {
            assert_non_null(got);
            *want = got;
            count++;
        }
    }
    assert_true(refused > 0);
    assert_int_equal(count_marks(arena), count);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

struct worker {
    struct mill_arena *arena;
    uint32_t topic;
    uint32_t wrong;
};

/* Makes and frees marks of its own topic; they must stay its own. */
static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct mill_uuid id = topic_of(worker->topic);
    struct mill_partition_mark *held[30];
    for (uint32_t round = 0; round < 2000; round++) {
        for (int32_t i = 0; i < 30; i++) {
            held[i] = mill_arena_mark(worker->arena, &id, i);
            if (held[i] == NULL) {
                worker->wrong++;
                return NULL;
            }
            atomic_store(&held[i]->written_offset, worker->topic * 1000 + (uint32_t)i);
        }
        for (int32_t i = 0; i < 30; i++) {
            worker->wrong += mill_arena_mark(worker->arena, &id, i) != held[i] ||
                             held[i]->written_offset != worker->topic * 1000 + (uint32_t)i;
            mill_arena_mark_free(held[i]);
        }
    }
    return NULL;
}

static void test_mark_threads_keep_their_own(void **state)
{
    (void)state;
    struct fixture fixture;
    struct worker workers[3];
    pthread_t threads[3];
    fixture_make(&fixture, 16);
    struct mill_arena *arena = fixture_open(&fixture, false);
    for (uint32_t i = 0; i < 3; i++) {
        workers[i] = (struct worker){.arena = arena, .topic = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].wrong, 0);
    }
    assert_int_equal(count_marks(arena), 0);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void test_mark_unfinished_claim_is_free_after_restart(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture, 16);
    struct mill_arena *arena = fixture_open(&fixture, false);
    struct mill_uuid topic = topic_of(5);
    for (int32_t i = 0; i < MARKS; i++) {
        assert_non_null(mill_arena_mark(arena, &topic, i));
    }
    /* As a process killed between claim and release leaves it. */
    atomic_store(&mill_arena_mark(arena, &topic, 50)->state, 2);
    assert_null(mill_arena_mark(arena, &topic, MARKS));
    mill_arena_close(arena, false);
    arena = fixture_open(&fixture, true);
    assert_int_equal(count_marks(arena), MARKS - 1);
    assert_non_null(mill_arena_mark(arena, &topic, MARKS));
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mark_fresh_values_and_same_again),
        cmocka_unit_test(test_mark_full_table_null_until_one_is_freed),
        cmocka_unit_test(test_mark_random_steps_equal_model),
        cmocka_unit_test(test_mark_threads_keep_their_own),
        cmocka_unit_test(test_mark_unfinished_claim_is_free_after_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
