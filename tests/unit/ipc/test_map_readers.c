/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: while the writer churns, a record never changes under a reader before the reader's next
 * turn, and no half-filled record is ever seen. Method: reader threads hold every record they find
 * through their turn and check it again at its end; built with TSan, a race is a failure too.
 * Mutants MAP_PUBLISH_EARLY and MAP_RECLAIM_EARLY make it fail. */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/unit/ipc/map_sample.h"

enum {
    SIZE_BYTES = 160 << 10, /* small, so that freed bytes are used again at once */
    TOPICS_MAX = 32,
    NUMBERS = 16,
    READERS = 2,
    RUN_MS = 1500,
    RUN_MAX_MS = 60000,
    CHECKED_MIN = 1000,
};

struct shared {
    struct mill_map *map;
    _Atomic bool stop;
    _Atomic uint64_t bad;
    _Atomic uint64_t checked;
};

struct reader {
    struct shared *shared;
    uint32_t core;
    pthread_t thread;
};

static void one_turn(struct reader *reader, struct mill_random *random)
{
    const struct mill_map_topic *held[NUMBERS];
    int64_t version[NUMBERS];
    struct mill_map *map = reader->shared->map;
    mill_map_turn(map, reader->core);
    for (uint32_t number = 0; number < NUMBERS; number++) {
        struct mill_uuid id = sample_id(number);
        held[number] = mill_map_topic_by_id(map, &id);
        version[number] = held[number] ? held[number]->settings.retention_ms : 0;
    }
    uint32_t wait = mill_random_below(random, 2000);
    for (uint32_t i = 0; i < wait; i++) {
        atomic_signal_fence(memory_order_seq_cst);
    }
    for (uint32_t number = 0; number < NUMBERS; number++) {
        if (held[number]) {
            bool good = sample_is_whole(held[number]) &&
                        held[number]->settings.retention_ms == version[number];
            atomic_fetch_add(&reader->shared->bad, good ? 0 : 1);
            atomic_fetch_add(&reader->shared->checked, 1);
        }
    }
}

static void *run_reader(void *context)
{
    struct reader *reader = context;
    struct mill_random random = {.state = reader->core + 1};
    mill_map_reader_state(reader->shared->map, reader->core, true);
    while (!atomic_load(&reader->shared->stop)) {
        one_turn(reader, &random);
        if (mill_random_below(&random, 50) == 0) {
            mill_map_reader_state(reader->shared->map, reader->core, false);
            mill_map_reader_state(reader->shared->map, reader->core, true);
        }
    }
    mill_map_reader_state(reader->shared->map, reader->core, false);
    return NULL;
}

static void churn(struct mill_map_writer *writer, struct mill_map_topic *topic,
                  struct mill_random *random)
{
    uint32_t number = mill_random_below(random, NUMBERS);
    if (mill_random_below(random, 8) == 0) {
        struct mill_uuid id = sample_id(number);
        int rc = mill_map_remove_topic(writer, &id);
        assert_true(rc == 0 || rc == -ENOENT);
    } else {
        sample_fill(topic, number, number, (uint32_t)mill_random_next(random) >> 8, 0);
        int rc = mill_map_put_topic(writer, topic);
        assert_true(rc == 0 || rc == -ENOSPC); /* full: waits for the readers' turns */
    }
    mill_map_reclaim(writer);
}

/* Goes on past RUN_MS where busy CPUs let the readers see little. */
static bool is_wanted(struct shared *shared, uint64_t run_ns)
{
    uint64_t limit_ms = atomic_load(&shared->checked) > CHECKED_MIN ? RUN_MS : RUN_MAX_MS;
    return run_ns < limit_ms * MILL_NS_PER_MS;
}

static void test_map_records_stay_until_next_turn(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct mill_map_writer *writer = NULL;
    struct reader readers[READERS];
    struct mill_random random = {.state = 9};
    struct mill_map_topic *topic = sample_room();
    void *memory = sample_memory(SIZE_BYTES, TOPICS_MAX);
    assert_int_equal(mill_map_open(memory, SIZE_BYTES, &shared.map), 0);
    assert_int_equal(mill_map_writer_open(shared.map, &writer, NULL), 0);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.shared = &shared, .core = i};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
    }
    uint64_t start_ns = mill_now_read().mono_ns;
    while (is_wanted(&shared, mill_now_read().mono_ns - start_ns)) {
        for (int i = 0; i < 100; i++) {
            churn(writer, topic, &random);
        }
    }
    atomic_store(&shared.stop, true);
    for (uint32_t i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
    }
    assert_true(atomic_load(&shared.checked) > CHECKED_MIN);
    assert_int_equal(atomic_load(&shared.bad), 0);
    mill_map_writer_close(writer);
    mill_map_close(shared.map);
    free(topic);
    munmap(memory, SIZE_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_records_stay_until_next_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
