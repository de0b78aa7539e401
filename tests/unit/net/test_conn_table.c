/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the connection table finds what is in it and nothing else, up to full. Method: random
 * inserts, removes and look-ups beside a plain array. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/random.h"
#include "dataplane/net/conn_table.h"

enum {
    MAX = 200,
    KEYS = 400,
};

static struct mill_flow_key key_of(uint32_t number)
{
    return (struct mill_flow_key){
        .local = 1, .peer = number / 7, .local_port = 9092, .peer_port = (uint16_t)(number % 7)};
}

static void test_table_random_equals_array(void **state)
{
    (void)state;
    const uint64_t secret[2] = {1, 2};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct mill_flow_table table;
        assert_int_equal(mill_flow_table_init(&table, MAX, secret), 0);
        struct mill_random random = {.state = seed};
        uint32_t index_of[KEYS];
        bool used[MAX] = {false};
        memset(index_of, 0xff, sizeof(index_of));
        for (int step = 0; step < 5000; step++) {
            uint32_t number = mill_random_below(&random, KEYS);
            struct mill_flow_key key = key_of(number);
            assert_int_equal(mill_flow_find(&table, &key), index_of[number]);
            uint32_t index = mill_random_below(&random, MAX);
            if (index_of[number] != MILL_FLOW_NONE) {
                mill_flow_remove(&table, index_of[number]);
                used[index_of[number]] = false;
                index_of[number] = MILL_FLOW_NONE;
            } else if (!used[index]) {
                mill_flow_insert(&table, &key, index);
                used[index] = true;
                index_of[number] = index;
            }
            assert_int_equal(mill_flow_find(&table, &key), index_of[number]);
        }
        for (uint32_t i = 0; i < KEYS; i++) {
            struct mill_flow_key key = key_of(i);
            assert_int_equal(mill_flow_find(&table, &key), index_of[i]);
        }
        mill_flow_table_fini(&table);
    }
}

static void test_table_full_all_found(void **state)
{
    (void)state;
    const uint64_t secret[2] = {3, 4};
    struct mill_flow_table table;
    assert_int_equal(mill_flow_table_init(&table, MAX, secret), 0);
    for (uint32_t i = 0; i < MAX; i++) {
        struct mill_flow_key key = key_of(i);
        mill_flow_insert(&table, &key, i);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        struct mill_flow_key key = key_of(i);
        assert_int_equal(mill_flow_find(&table, &key), i < MAX ? i : MILL_FLOW_NONE);
    }
    mill_flow_table_fini(&table);
}

static void test_hash_depends_on_secret(void **state)
{
    (void)state;
    struct mill_flow_table a = {.secret = {1, 2}};
    struct mill_flow_table b = {.secret = {1, 3}};
    struct mill_flow_key key = key_of(5);
    assert_true(mill_flow_hash(&a, &key) != mill_flow_hash(&b, &key));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_random_equals_array),
        cmocka_unit_test(test_table_full_all_found),
        cmocka_unit_test(test_hash_depends_on_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
