/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a tuple that a core has is found by every other core at any moment, one that nobody has is
 * never, and a table that is full says so. Method: a model beside it, and a reader on a thread of
 * its own beside a writer that adds and removes other tuples. */
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/random.h"
#include "dataplane/net/flow_map.h"

enum {
    CORES = 3,
    FLOWS = 512,
};

static const uint64_t secret[2] = {11, 22};

static struct mill_flow_key key_of(uint32_t number)
{
    return (struct mill_flow_key){.local = 0xc6120001u,
                                  .peer = 0xc6120000u + number / 60000,
                                  .local_port = 9092,
                                  .peer_port = (uint16_t)(1024 + number % 60000)};
}

static struct mill_flow_map *make(uint32_t flows)
{
    struct mill_flow_map *map = NULL;
    assert_int_equal(mill_flow_map_create(CORES, flows, secret, &map), 0);
    return map;
}

static void test_find_any_core_same_as_model(void **state)
{
    struct mill_flow_map *map = make(FLOWS);
    struct mill_random random = {.state = 5};
    static uint8_t owner[4 * FLOWS]; /* core + 1 */
    uint32_t counts[CORES] = {0};
    MILL_UNUSED(state);
    for (uint32_t round = 0; round < 200000; round++) {
        uint32_t number = mill_random_below(&random, 4 * FLOWS);
        struct mill_flow_key key = key_of(number);
        uint32_t core = mill_random_below(&random, CORES);
        if (owner[number] != 0) {
            mill_flow_map_remove(map, owner[number] - 1u, &key);
            counts[owner[number] - 1]--;
            owner[number] = 0;
        } else if (counts[core] < FLOWS) {
            assert_true(mill_flow_map_add(map, core, &key));
            counts[core]++;
            owner[number] = (uint8_t)(core + 1);
        }
        number = mill_random_below(&random, 4 * FLOWS);
        key = key_of(number);
        uint32_t self = mill_random_below(&random, CORES);
        uint32_t expected = owner[number] == 0 || owner[number] == self + 1 ? MILL_FLOW_NO_CORE
                                                                            : owner[number] - 1u;
        assert_int_equal(mill_flow_map_find(map, self, &key), expected);
    }
    mill_flow_map_destroy(map);
}

static void test_add_full_says_so_and_keeps_the_rest(void **state)
{
    struct mill_flow_map *map = make(2);
    uint32_t added = 0;
    MILL_UNUSED(state);
    for (uint32_t i = 0; i < 100; i++) {
        struct mill_flow_key key = key_of(i);
        added += mill_flow_map_add(map, 0, &key);
    }
    assert_in_range(added, 2, 16); /* two buckets of eight are the least a table has */
    uint32_t found = 0;
    for (uint32_t i = 0; i < 100; i++) {
        struct mill_flow_key key = key_of(i);
        found += mill_flow_map_find(map, 1, &key) == 0;
        mill_flow_map_remove(map, 0, &key); /* also what never fitted */
    }
    assert_int_equal(found, added);
    mill_flow_map_destroy(map);
}

struct race {
    struct mill_flow_map *map;
    _Atomic bool stop;
    uint64_t missed;
    uint64_t looks;
};

static void *reader_run(void *argument)
{
    struct race *race = argument;
    struct mill_flow_key key = key_of(0);
    do {
        race->missed += mill_flow_map_find(race->map, 1, &key) != 0;
        race->looks++;
    } while (!atomic_load(&race->stop));
    return NULL;
}

static void test_find_while_others_change_never_misses(void **state)
{
    struct race race = {.map = make(64)};
    pthread_t reader;
    struct mill_flow_key stays = key_of(0);
    MILL_UNUSED(state);
    assert_true(mill_flow_map_add(race.map, 0, &stays));
    assert_int_equal(pthread_create(&reader, NULL, reader_run, &race), 0);
    for (uint32_t round = 0; round < 200000; round++) {
        struct mill_flow_key key = key_of(1 + round % 60);
        if (mill_flow_map_add(race.map, 0, &key)) {
            mill_flow_map_remove(race.map, 0, &key);
        }
    }
    atomic_store(&race.stop, true);
    pthread_join(reader, NULL);
    assert_true(race.looks > 0);
    assert_int_equal(race.missed, 0);
    mill_flow_map_destroy(race.map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_any_core_same_as_model),
        cmocka_unit_test(test_add_full_says_so_and_keeps_the_rest),
        cmocka_unit_test(test_find_while_others_change_never_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
