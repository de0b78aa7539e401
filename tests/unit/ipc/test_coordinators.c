/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an id belongs to the partition of the internal topic that Kafka would put it in, however
 * its bytes are cut. Method: hashes that Java gives for known strings. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/check.h"
#include "ipc/coordinators.h"

enum {
    ANY_COUNT = INT32_MAX, /* as good as the hash itself, for those that are not negative */
};

static const struct {
    const char *id;
    int32_t hash; /* its absolute value, 0 for the least integer, as Kafka takes it */
} table[] = {
    {"", 0},
    {"hello", 99162322},
    {"Aa", 2112},
    {"BB", 2112},
    {"\xc3\xa9", 233},             /* e with an acute accent: one unit */
    {"\xe2\x82\xac", 8364},        /* the euro sign: one unit of three bytes */
    {"\xf0\x9f\x98\x80", 1772899}, /* outside the first plane: two units */
    {"polygenelubricants", 0},     /* the least integer */
};

static void test_shard_as_java_hashes(void **state)
{
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        assert_int_equal(mill_shard_of(table[i].id, ANY_COUNT), table[i].hash);
        assert_int_equal(mill_shard_of(table[i].id, 50), table[i].hash % 50);
        assert_int_equal(mill_shard_of(table[i].id, 0), 0);
    }
}

static void test_hash_of_runs_is_that_of_the_whole(void **state)
{
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(table); i++) {
        const uint8_t *bytes = (const uint8_t *)table[i].id;
        uint32_t size = (uint32_t)strlen(table[i].id);
        for (uint32_t cut = 0; cut <= size; cut++) {
            struct mill_id_hash hash = {0};
            mill_id_hash_add(&hash, bytes, cut);
            mill_id_hash_add(&hash, bytes + cut, size - cut);
            assert_int_equal(mill_id_hash_shard(&hash, ANY_COUNT), table[i].hash);
        }
    }
}

static void test_topic_of_each_kind(void **state)
{
    MILL_UNUSED(state);
    assert_string_equal(mill_coordinator_topic(MILL_COORDINATOR_GROUP), "__consumer_offsets");
    assert_string_equal(mill_coordinator_topic(MILL_COORDINATOR_TRANSACTION),
                        "__transaction_state");
    assert_null(mill_coordinator_topic(2));
    assert_null(mill_coordinator_topic(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shard_as_java_hashes),
        cmocka_unit_test(test_hash_of_runs_is_that_of_the_whole),
        cmocka_unit_test(test_topic_of_each_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
