/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an address never has more connections than it may, over all cores, and what ended makes
 * room again. Method: addresses by hand and beside a plain model; a table without room; threads
 * that take and give the connections of few addresses at once. */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "dataplane/core/addresses.h"

enum {
    CONNECTIONS = 1000,
    ADDRESSES = 700,
    STEPS = 200000,
    THREADS = 4,
    THREAD_STEPS = 100000,
    THREAD_ADDRESSES = 3,
    THREAD_MAX = 2,
    SEED = 31,
};

static const uint64_t key[2] = {7, 8};

struct address {
    uint8_t bytes[MILL_ADDRESS_BYTES];
};

static struct address address_of(uint32_t number)
{
    struct address address = {{[10] = 0xff, 0xff, 10}};
    memcpy(address.bytes + 13, &number, 3);
    return address;
}

static int take(struct mill_address_table *table, uint32_t number, int64_t max, uint32_t *ret_place)
{
    struct address address = address_of(number);
    return mill_address_take(table, address.bytes, max, ret_place);
}

static void test_take_up_to_the_bound(void **state)
{
    (void)state;
    struct mill_address_table *table = mill_address_table_create(CONNECTIONS, key);
    uint32_t places[3];
    uint32_t other = 0;
    assert_non_null(table);
    assert_int_equal(take(table, 1, 0, &other), -EDQUOT);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(take(table, 1, 3, &places[i]), 0);
        assert_int_not_equal(places[i], 0);
    }
    assert_int_equal(take(table, 1, 3, &other), -EDQUOT);
    assert_int_equal(other, 0);
    assert_int_equal(take(table, 2, 1, &other), 0);
    mill_address_give(table, places[0]);
    assert_int_equal(take(table, 1, 2, &places[0]), -EDQUOT);
    assert_int_equal(take(table, 1, 3, &places[0]), 0);
    mill_address_table_destroy(table);
}

/* Addresses come and go by chance, up to as many connections as the table is for. */
static void test_take_counts_as_a_model(void **state)
{
    (void)state;
    static uint32_t counts[ADDRESSES];
    static uint32_t owners[CONNECTIONS];
    static uint32_t places[CONNECTIONS];
    struct mill_address_table *table = mill_address_table_create(CONNECTIONS, key);
    struct mill_random random = {SEED};
    uint32_t open = 0;
    uint32_t refused = 0;
    memset(counts, 0, sizeof(counts));
    assert_non_null(table);
    for (uint32_t step = 0; step < STEPS; step++) {
        if (open == CONNECTIONS || (open > 0 && mill_random_next(&random) % 16 < 7)) {
            uint32_t ends = (uint32_t)(mill_random_next(&random) % open);
            mill_address_give(table, places[ends]);
            counts[owners[ends]]--;
            owners[ends] = owners[--open];
            places[ends] = places[open];
            continue;
        }
        uint32_t number = (uint32_t)(mill_random_next(&random) % ADDRESSES);
        int64_t max = (int64_t)(mill_random_next(&random) % 6);
        int r = take(table, number, max, &places[open]);
        assert_int_equal(r, counts[number] < max ? 0 : -EDQUOT);
        refused += r < 0;
        if (r == 0) {
            owners[open++] = number;
            counts[number]++;
        }
    }
    assert_true(refused > STEPS / 100);
    mill_address_table_destroy(table);
}

/* More addresses than places: who finds none is bounded together with the others. */
static void test_take_without_room_shares_a_bound(void **state)
{
    (void)state;
    struct mill_address_table *table = mill_address_table_create(1, key);
    static uint32_t places[10000];
    uint32_t taken = 0;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < MILL_COUNT_OF(places); i++) {
        if (take(table, i, 5, &places[taken]) == 0) {
            taken++;
        } else {
            refused++;
        }
    }
    assert_int_equal(taken, MILL_ADDRESS_PLACES + 5);
    assert_int_equal(refused, MILL_COUNT_OF(places) - taken);
    for (uint32_t i = 0; i < taken; i++) {
        mill_address_give(table, places[i]);
    }
    uint32_t place = 0;
    assert_int_equal(take(table, 20000, 1, &place), 0);
    mill_address_table_destroy(table);
}

struct user {
    struct mill_address_table *table;
    _Atomic int32_t *open; /* let in, by address: counted after and given up before the table */
    uint32_t seed;
    bool above;
    uint32_t let_in;
};

static void *use(void *context)
{
    struct user *user = context;
    struct mill_random random = {user->seed};
    for (uint32_t i = 0; i < THREAD_STEPS; i++) {
        uint32_t number = (uint32_t)(mill_random_next(&random) % THREAD_ADDRESSES);
        uint32_t place = 0;
        if (take(user->table, number, THREAD_MAX, &place) < 0) {
            continue;
        }
        user->let_in++;
        user->above |= atomic_fetch_add(&user->open[number], 1) >= THREAD_MAX;
        atomic_fetch_sub(&user->open[number], 1);
        mill_address_give(user->table, place);
    }
    return NULL;
}

/* Cores that take and give at once never let in more than the bound, and lose no count. */
static void test_take_of_cores_holds_the_bound(void **state)
{
    (void)state;
    /* The least table: the addresses take each other's places all the time. */
    struct mill_address_table *table = mill_address_table_create(1, key);
    static _Atomic int32_t open[THREAD_ADDRESSES];
    struct user users[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.table = table, .open = open, .seed = SEED + i};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(users[i].above);
        assert_true(users[i].let_in > 0);
    }
    for (uint32_t number = 0; number < THREAD_ADDRESSES; number++) {
        uint32_t place = 0;
        assert_int_equal(take(table, number, 1, &place), 0); /* nothing was left */
    }
    mill_address_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_up_to_the_bound),
        cmocka_unit_test(test_take_counts_as_a_model),
        cmocka_unit_test(test_take_without_room_shares_a_bound),
        cmocka_unit_test(test_take_of_cores_holds_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
