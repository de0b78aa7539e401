/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: extents never overlap, are aligned and large enough, all memory comes back, and misuse is
 * caught. Method: random allocs and frees of several cores beside a bitmap of units; exhaustion;
 * two threads over the chunk table; single steps for the edges. */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>

#include "base/check.h"
#include "base/random.h"
#include "hugepages/loans.h"
#include "tests/unit/hugepages/fixture.h"

enum {
    CORES = 4,
    LIVE_MAX = 512,
};

struct live {
    uint32_t extent;
    uint32_t size_bytes;
};

static void create_all(struct mill_arena *arena, struct mill_extents *extents[CORES])
{
    for (uint32_t i = 0; i < CORES; i++) {
        assert_int_equal(mill_extents_create(arena, i, -1, &extents[i]), 0);
    }
}

static void destroy_all(struct mill_extents *extents[CORES])
{
    for (uint32_t i = 0; i < CORES; i++) {
        mill_extents_destroy(extents[i]);
    }
}

/* Chunks that can hold extents, by taking all of them. */
static uint32_t chunks_count(struct mill_extents *extents)
{
    static uint32_t taken[LIVE_MAX];
    uint32_t count = 0;
    while (mill_extent_alloc(extents, MILL_CHUNK_BYTES, &taken[count]) == 0) {
        assert_true(++count < LIVE_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        mill_extent_free(extents, taken[i]);
    }
    mill_extents_trim(extents);
    return count;
}

static void test_alloc_sizes_round_up_and_align(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_extents *extents[CORES];
    fixture_make(&fixture, 32);
    struct mill_arena *arena = fixture_open(&fixture, false);
    create_all(arena, extents);
    const struct {
        uint32_t size_bytes;
        uint32_t want_bytes;
    } cases[] = {
        {0, 4096},
        {1, 4096},
        {4096, 4096},
        {4097, 8192},
        {12288, 16384},
        {1 << 20, 1 << 20},
        {(1 << 20) + 1, MILL_CHUNK_BYTES},
        {MILL_CHUNK_BYTES, MILL_CHUNK_BYTES},
        {MILL_CHUNK_BYTES + 1, 2 * MILL_CHUNK_BYTES},
    };
    uint64_t used = 0;
    for (size_t i = 0; i < MILL_COUNT_OF(cases); i++) {
        uint32_t extent;
        assert_int_equal(mill_extent_alloc(extents[0], cases[i].size_bytes, &extent), 0);
        assert_int_equal(mill_extent_size_bytes(extents[0], extent), cases[i].want_bytes);
        uint32_t align = MILL_MIN(cases[i].want_bytes, (uint32_t)MILL_CHUNK_BYTES);
        assert_int_equal((uintptr_t)mill_extent_data(extents[0], extent) % align, 0);
        struct mill_extent_desc *desc = mill_arena_desc(arena, extent);
        assert_int_equal(4096u << desc->class_shift, cases[i].want_bytes);
        assert_int_equal(desc->state, MILL_EXTENT_FREE);
        used += cases[i].want_bytes;
        assert_int_equal(mill_extents_used_bytes(extents[0]), used);
        memset(mill_extent_data(extents[0], extent), 0xa5, cases[i].want_bytes);
    }
    uint32_t untouched = 99;
    assert_int_equal(mill_extent_alloc(extents[0], (4 << 20) + 1, &untouched), -EFBIG);
    assert_int_equal(mill_extent_alloc(extents[0], UINT32_MAX, &untouched), -EFBIG);
    assert_int_equal(untouched, 99);
    assert_int_equal(mill_extents_full_count(extents[0]), 0);
    destroy_all(extents);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void test_alloc_generation_rises_with_each_use(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_extents *extents[CORES];
    fixture_make(&fixture, 16);
    struct mill_arena *arena = fixture_open(&fixture, false);
    create_all(arena, extents);
    uint32_t last = 0;
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t extent;
        assert_int_equal(mill_extent_alloc(extents[0], 4096, &extent), 0);
        assert_true(mill_arena_desc(arena, extent)->generation > last);
        last = mill_arena_desc(arena, extent)->generation;
        mill_extent_publish(extents[0], extent, MILL_EXTENT_SCRATCH);
        assert_int_equal(mill_arena_desc(arena, extent)->state, MILL_EXTENT_SCRATCH);
        mill_extent_free(extents[0], extent);
        assert_int_equal(mill_arena_desc(arena, extent)->state, MILL_EXTENT_FREE);
    }
    destroy_all(extents);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void test_alloc_exhausted_counts_and_recovers(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_extents *extents[CORES];
    fixture_make(&fixture, 16);
    struct mill_arena *arena = fixture_open(&fixture, false);
    create_all(arena, extents);
    uint32_t chunks = chunks_count(extents[0]);
    assert_int_equal(chunks, 7); /* one of eight holds the tables */
    assert_int_equal(mill_extents_full_count(extents[0]), 1);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t first = 0;
        uint32_t extent;
        for (uint32_t i = 0; i < chunks * MILL_CHUNK_UNITS; i++) {
            assert_int_equal(mill_extent_alloc(extents[0], 1, &extent), 0);
            first = i == 0 ? extent : MILL_MIN(first, extent);
        }
        assert_int_equal(mill_extent_alloc(extents[0], 1, &extent), -ENOSPC);
        assert_int_equal(mill_extent_alloc(extents[1], 1, &extent), -ENOSPC);
        assert_int_equal(mill_extent_alloc(extents[1], 4 << 20, &extent), -ENOSPC);
        assert_int_equal(mill_extents_full_count(extents[0]), 2 + round);
        assert_int_equal(mill_extents_full_count(extents[1]), 2 * (round + 1));
        assert_int_equal(mill_extents_used_bytes(extents[0]), chunks * MILL_CHUNK_BYTES);
        for (uint32_t i = 0; i < chunks * MILL_CHUNK_UNITS; i++) {
            mill_extent_free(extents[0], first + i);
        }
        assert_int_equal(mill_extents_used_bytes(extents[0]), 0);
    }
    /* All but the kept chunk can go to another core; that one too once trimmed. */
    uint32_t extent;
    for (uint32_t i = 0; i + 1 < chunks; i++) {
        assert_int_equal(mill_extent_alloc(extents[1], MILL_CHUNK_BYTES, &extent), 0);
    }
    assert_int_equal(mill_extent_alloc(extents[1], 1, &extent), -ENOSPC);
    mill_extents_trim(extents[0]);
    assert_int_equal(mill_extent_alloc(extents[1], 1, &extent), 0);
    destroy_all(extents);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

/* Large extents take neighbours, never across files, and leave no half claims behind. */
static void test_alloc_runs_do_not_cross_files(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_extents *extents[CORES];
    fixture_make(&fixture, 48);
    fixture.options.nodes = 3;
    fixture.options.extent_bytes_max = 8 << 20;
    struct mill_arena *arena = fixture_open(&fixture, false);
    create_all(arena, extents);
    /* Three files of eight chunks, seven of them usable: one run of four each. */
    uint32_t runs[3];
    uint32_t extent;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(mill_extent_alloc(extents[i], 8 << 20, &runs[i]), 0);
        uint32_t file_units = mill_arena_units(arena) / 3;
        assert_int_equal(runs[i] / file_units, (runs[i] + 4 * MILL_CHUNK_UNITS - 1) / file_units);
        memset(mill_extent_data(extents[i], runs[i]), 1, 8 << 20);
    }
    assert_int_equal(mill_extent_alloc(extents[3], 8 << 20, &extent), -ENOSPC);
    /* Nine single chunks are left; the failed search gave back what it had claimed. */
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(mill_extent_alloc(extents[3], MILL_CHUNK_BYTES, &extent), 0);
    }
    assert_int_equal(mill_extent_alloc(extents[3], 1, &extent), -ENOSPC);
    mill_extent_free(extents[1], runs[1]);
    assert_int_equal(mill_extents_used_bytes(extents[1]), 0);
    assert_int_equal(mill_extent_alloc(extents[3], 8 << 20, &extent), 0);
    assert_int_equal(extent, runs[1]);
    destroy_all(extents);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void test_prefer_file_searched_first(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_extents *extents[CORES];
    fixture_make(&fixture, 48);
    fixture.options.nodes = 3;
    struct mill_arena *arena = fixture_open(&fixture, false);
    create_all(arena, extents);
    uint32_t file_units = mill_arena_units(arena) / 3;
    uint32_t extent;
    uint32_t before = mill_extents_prefer(extents[0], 2);
    assert_int_equal(mill_extent_alloc(extents[0], MILL_CHUNK_BYTES, &extent), 0);
    assert_int_equal(extent / file_units, 2);
    assert_int_equal(mill_extents_prefer(extents[0], before), 2);
    assert_int_equal(mill_extent_alloc(extents[0], MILL_CHUNK_BYTES, &extent), 0);
    assert_int_equal(extent / file_units, before);
    destroy_all(extents);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void mark_units(uint8_t *owner_of, const struct live *live, uint8_t from, uint8_t to)
{
    for (uint32_t i = 0; i < live->size_bytes / MILL_EXTENT_UNIT_BYTES; i++) {
        assert_int_equal(owner_of[live->extent + i], from);
        owner_of[live->extent + i] = to;
    }
}

/* Random sizes, mostly small, of four cores, beside a byte per unit that names its owner. */
static void test_alloc_random_equals_bitmap(void **state)
{
    (void)state;
    static struct live live[CORES][LIVE_MAX];
    struct fixture fixture;
    struct mill_extents *extents[CORES];
    uint32_t count[CORES] = {0};
    uint64_t used[CORES] = {0};
    uint32_t failed = 0;
    struct mill_random random = {.state = 42};
    fixture_make(&fixture, 64);
    fixture.options.nodes = 2;
    struct mill_arena *arena = fixture_open(&fixture, false);
    uint8_t *owner_of = calloc(mill_arena_units(arena), 1);
    assert_non_null(owner_of);
    create_all(arena, extents);
    uint32_t chunks = chunks_count(extents[0]);
    for (uint32_t step = 0; step < 300000; step++) {
        /* Tides: more allocs than frees, then the other way round. */
        uint32_t core = mill_random_below(&random, CORES);
        bool flood = step / 5000 % 2 == 0;
        bool alloc = mill_random_below(&random, 8) < (flood ? 5u : 3u);
        if (alloc && count[core] < LIVE_MAX) {
            struct live *made = &live[core][count[core]];
            uint32_t shift =
                mill_random_below(&random, mill_random_below(&random, 8) == 0 ? 11 : 6);
            uint32_t size_bytes = mill_random_below(&random, 4096u << shift) + 1;
            int error = mill_extent_alloc(extents[core], size_bytes, &made->extent);
            if (error != 0) {
                assert_int_equal(error, -ENOSPC);
                failed++;
                continue;
            }
            made->size_bytes = mill_extent_size_bytes(extents[core], made->extent);
            assert_true(made->size_bytes >= size_bytes);
            assert_true(made->size_bytes / 2 < size_bytes || made->size_bytes == 4096);
            mark_units(owner_of, made, 0, (uint8_t)(core + 1));
            used[core] += made->size_bytes;
            count[core]++;
        } else if (!alloc && count[core] > 0) {
            uint32_t which = mill_random_below(&random, count[core]);
            mark_units(owner_of, &live[core][which], (uint8_t)(core + 1), 0);
            mill_extent_free(extents[core], live[core][which].extent);
            used[core] -= live[core][which].size_bytes;
            live[core][which] = live[core][--count[core]];
        }
        assert_int_equal(mill_extents_used_bytes(extents[core]), used[core]);
    }
    assert_true(failed > 0);
    for (uint32_t core = 0; core < CORES; core++) {
        while (count[core] > 0) {
            mill_extent_free(extents[core], live[core][--count[core]].extent);
        }
        assert_int_equal(mill_extents_used_bytes(extents[core]), 0);
        mill_extents_trim(extents[core]);
    }
    assert_int_equal(chunks_count(extents[3]), chunks); /* everything came back */
    destroy_all(extents);
    free(owner_of);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

struct worker {
    struct mill_extents *extents;
    uint32_t id;
    uint32_t wrong; /* bytes that somebody else wrote into our extents */
};

/* Takes chunks and pairs of chunks, signs them, and finds its sign again when giving them back. */
static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct mill_random random = {.state = worker->id};
    struct live live[2];
    uint32_t count = 0;
    for (uint32_t step = 0; step < 400000 || count > 0; step++) {
        bool alloc = step < 400000 && mill_random_below(&random, 2) == 0;
        if (alloc && count < MILL_COUNT_OF(live)) {
            uint32_t chunks = mill_random_below(&random, 4) == 0 ? 2 : 1;
            struct live *made = &live[count];
            if (mill_extent_alloc(worker->extents, chunks * MILL_CHUNK_BYTES, &made->extent) == 0) {
                made->size_bytes = chunks * MILL_CHUNK_BYTES;
                for (uint32_t i = 0; i < chunks; i++) {
                    mill_extent_data(worker->extents, made->extent)[i * MILL_CHUNK_BYTES] =
                        (uint8_t)worker->id;
                }
                count++;
            }
        } else if (count > 0) {
            const struct live *made = &live[--count];
            const uint8_t *data = mill_extent_data(worker->extents, made->extent);
            for (uint32_t i = 0; i < made->size_bytes; i += MILL_CHUNK_BYTES) {
                worker->wrong += data[i] != worker->id;
            }
            mill_extent_free(worker->extents, made->extent);
        }
        mill_extents_trim(worker->extents);
    }
    return NULL;
}

/* Threads fight for chunks; nobody gets another's, none is lost. Under TSan this also shows that a
 * chunk's private tables pass from owner to owner in order. */
static void test_chunks_two_threads_none_lost(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_extents *extents[CORES];
    struct worker workers[3];
    pthread_t threads[3];
    fixture_make(&fixture, 6); /* two chunks for all */
    struct mill_arena *arena = fixture_open(&fixture, false);
    create_all(arena, extents);
    uint32_t chunks = chunks_count(extents[3]);
    for (uint32_t i = 0; i < 3; i++) {
        workers[i] = (struct worker){.extents = extents[i], .id = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].wrong, 0);
        assert_int_equal(mill_extents_used_bytes(extents[i]), 0);
    }
    assert_int_equal(chunks_count(extents[3]), chunks);
    destroy_all(extents);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

struct misuse {
    struct mill_arena *arena;
    struct mill_extents *extents[CORES];
    uint32_t extent;
};

static void free_twice(void *argument)
{
    struct misuse *misuse = argument;
    mill_extent_free(misuse->extents[0], misuse->extent);
    mill_extent_free(misuse->extents[0], misuse->extent);
}

static void free_of_another_core(void *argument)
{
    struct misuse *misuse = argument;
    mill_extent_free(misuse->extents[1], misuse->extent);
}

static void free_inside(void *argument)
{
    struct misuse *misuse = argument;
    mill_extent_free(misuse->extents[0], misuse->extent + 1);
}

static void free_of_tables(void *argument)
{
    struct misuse *misuse = argument;
    mill_extent_free(misuse->extents[0], 0);
}

static void free_out_of_range(void *argument)
{
    struct misuse *misuse = argument;
    mill_extent_free(misuse->extents[0], mill_arena_units(misuse->arena));
}

static void free_on_loan(void *argument)
{
    struct misuse *misuse = argument;
    struct mill_loans loans;
    struct mill_ref ref = {.extent = misuse->extent, .size_bytes = 1};
    if (mill_loans_init(&loans, mill_arena_units(misuse->arena), 1) != 0) {
        return;
    }
    mill_extents_check_loans(misuse->extents[0], &loans);
    mill_loan_take(&loans, &ref);
    mill_extent_free(misuse->extents[0], misuse->extent);
}

static void reset_with_allocators(void *argument)
{
    struct misuse *misuse = argument;
    mill_arena_reset(misuse->arena, &(struct mill_uuid){{1}});
}

static void test_misuse_aborts(void **state)
{
    (void)state;
    struct fixture fixture;
    struct misuse misuse;
    fixture_make(&fixture, 16);
    misuse.arena = fixture_open(&fixture, false);
    create_all(misuse.arena, misuse.extents);
    assert_int_equal(mill_extent_alloc(misuse.extents[0], 8192, &misuse.extent), 0);
    assert_true(aborts(free_twice, &misuse));
    assert_true(aborts(free_of_another_core, &misuse));
    assert_true(aborts(free_inside, &misuse));
    assert_true(aborts(free_of_tables, &misuse));
    assert_true(aborts(free_out_of_range, &misuse));
    assert_true(aborts(free_on_loan, &misuse));
    assert_true(aborts(reset_with_allocators, &misuse));
    struct mill_extents *again;
    assert_int_equal(mill_extents_create(misuse.arena, 0, -1, &again), -EEXIST);
    assert_int_equal(mill_extents_create(misuse.arena, CORES, -1, &again), -EINVAL);
    destroy_all(misuse.extents);
    mill_arena_close(misuse.arena, true);
    fixture_free(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_sizes_round_up_and_align),
        cmocka_unit_test(test_alloc_generation_rises_with_each_use),
        cmocka_unit_test(test_alloc_exhausted_counts_and_recovers),
        cmocka_unit_test(test_alloc_runs_do_not_cross_files),
        cmocka_unit_test(test_prefer_file_searched_first),
        cmocka_unit_test(test_alloc_random_equals_bitmap),
        cmocka_unit_test(test_chunks_two_threads_none_lost),
        cmocka_unit_test(test_misuse_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
