/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the active producers of a partition are told as Kafka tells them (KIP-664): each that is
 * there throughout once, however others come and go between two steps, with the state that a start
 * finds again. Method: one partition, producers by hand, walks of two entries a step. */
#include "tests/unit/test.h"

#include <errno.h>

#include "base/random.h"
#include "tests/unit/log/one_partition.h"

enum {
    TABLE = 64, /* producers of the fixture's log */
    STEP = 2,
    TURNS_MAX = 10000,
};

static void produce(struct mill_partition *partition, int64_t id, int16_t epoch, int32_t sequence)
{
    m->producer_id = id;
    m->epoch = epoch;
    m->sequence = sequence;
    m->attributes = 0;
    maker_build(m, 2);
    struct mill_append_result result = maker_must(&f, partition, m);
    assert_int_equal(result.error, 0);
}

static struct told {
    struct mill_log_producer_state states[TABLE * 2];
    uint32_t count;
    uint32_t stale; /* how often it began anew */
} told;

/* One step of a walk. ret: true at the end. */
static bool step(const struct mill_partition *partition, struct mill_log_producers_at *at)
{
    assert_true(told.count + STEP <= TABLE * 2);
    int r = mill_log_producers_list(partition, at, told.states + told.count, STEP);
    assert_true(r == -ESTALE || (r >= 0 && r <= STEP));
    told.stale += r == -ESTALE;
    told.count = r < 0 ? 0 : told.count + (uint32_t)r;
    return at->ended;
}

/* A whole one. ret: how many are told. */
static uint32_t walk(const struct mill_partition *partition)
{
    struct mill_log_producers_at at = {0};
    told.count = told.stale = 0;
    for (uint32_t i = 0; !step(partition, &at); i++) {
        assert_true(i < TURNS_MAX);
    }
    assert_int_equal(told.stale, 0);
    return told.count;
}

/* What was told of a producer, which it must be once. */
static struct mill_log_producer_state told_of(int64_t id)
{
    struct mill_log_producer_state found = {0};
    uint32_t times = 0;
    for (uint32_t i = 0; i < told.count; i++) {
        if (told.states[i].producer_id == id) {
            found = told.states[i];
            times++;
        }
    }
    assert_int_equal(times, 1);
    return found;
}

static void check(const struct mill_log_producer_state *want)
{
    struct mill_log_producer_state got = told_of(want->producer_id);
    assert_int_equal(got.epoch, want->epoch);
    assert_int_equal(got.last_sequence, want->last_sequence);
    assert_int_equal(got.last_timestamp, want->last_timestamp);
    assert_int_equal(got.coordinator_epoch, want->coordinator_epoch);
    assert_int_equal(got.txn_first_offset, want->txn_first_offset);
}

static void test_list_tells_each_kind_of_state(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_settings settings = fixture_settings();
    struct mill_partition *p = setup();
    assert_int_equal(walk(p), 0);
    /* Batches of two records: the second is one later. */
    m->timestamp = 1700000001000;
    produce(p, 5, 2, 0);
    produce(p, 5, 2, 2);
    m->timestamp = 1700000002000;
    assert_int_equal(txn_write(&f, p, m, 6, 1, 0, 2, true).error, 0); /* at 4 */
    assert_int_equal(txn_write(&f, p, m, 6, 1, 2, 2, true).error, 0);
    m->timestamp = 1700000003000;
    assert_int_equal(txn_write(&f, p, m, 7, 0, 10, 2, true).error, 0); /* at 8 */
    f.now.wall_ms += 12345;
    int64_t ended_ms = f.now.wall_ms;
    assert_int_equal(txn_end(&f, p, 7, 0, false, 11).error, 0);
    assert_int_equal(mill_log_grant(p, 8, 0), 0);              /* wrote nothing yet */
    assert_int_equal(txn_end(&f, p, 9, 3, true, 12).error, 0); /* a marker alone */
    const struct mill_log_producer_state want[] = {
        {5, 1700000001001, -1, 3, -1, 2},
        {6, 1700000002001, 4, 3, -1, 1},
        {7, ended_ms, -1, 11, 11, 0},
        {9, ended_ms, -1, -1, 12, 3},
    };
    for (int start = 0; start < 3; start++) {
        assert_int_equal(walk(p), 4);
        for (uint32_t i = 0; i < 4; i++) {
            check(&want[i]);
        }
        fixture_close(&f, start == 0); /* a clean end, then a kill */
        fixture_open(&f);
        p = fixture_partition(&f, 0, &settings);
    }
    teardown();
}

static void test_list_forgets_sequences_of_an_older_epoch(void **state)
{
    MILL_UNUSED(state);
    struct mill_partition *p = setup();
    for (int32_t i = 0; i < 9; i++) { /* around the ring of batches */
        produce(p, 5, 0, i * 2);
        walk(p);
        assert_int_equal(told_of(5).last_sequence, i * 2 + 1);
    }
    assert_int_equal(txn_end(&f, p, 5, 1, true, 4).error, 0);
    walk(p);
    assert_int_equal(told_of(5).last_sequence, -1);
    assert_int_equal(told_of(5).epoch, 1);
    teardown();
}

/* The table is full and each step new producers push out the oldest: those that stay are told once,
 * also when the very place where the walk stood is another's. */
static void test_list_ends_while_producers_come_and_go(void **state)
{
    MILL_UNUSED(state);
    uint32_t stale = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct mill_random random = {.state = seed};
        struct mill_partition *p = setup();
        int64_t next = 1000;
        uint32_t stays = 1 + mill_random_below(&random, TABLE / 2);
        /* Those that stay hold a transaction open; they are mixed with those that go. */
        for (uint32_t i = 0; i < TABLE; i++) {
            if (i < stays) {
                assert_int_equal(txn_write(&f, p, m, i, 0, 0, 2, true).error, 0);
            }
            produce(p, next++, 0, 0);
        }
        struct mill_log_producers_at at = {0};
        uint32_t turns = 0;
        told.count = told.stale = 0;
        while (!step(p, &at)) {
            assert_true(++turns < TURNS_MAX);
            for (uint32_t i = mill_random_below(&random, TABLE); i > 0; i--) {
                produce(p, next++, 0, 0);
            }
        }
        for (uint32_t i = 0; i < stays; i++) {
            assert_int_equal(told_of(i).last_sequence, 1);
        }
        stale += told.stale;
        teardown();
    }
    assert_true(stale > 5); /* the case was there */
}

/* All expire between two steps, and come back to the very places that they had: those that were
 * told before are not told twice. */
static void test_list_notices_producers_that_came_back(void **state)
{
    MILL_UNUSED(state);
    struct mill_log_producers_at at = {0};
    struct mill_partition *p = setup();
    told.count = told.stale = 0;
    for (int64_t id = 0; id < 4; id++) {
        produce(p, id, 0, 0);
    }
    assert_false(step(p, &at));
    fixture_settle(&f);
    for (int i = 0; i < 3; i++) {
        fixture_step(&f, i == 0 ? 86400000 + 1000 : 11000);
    }
    assert_int_equal(mill_log_producers_count(p), 0);
    for (int64_t id = 3; id >= 0; id--) {
        produce(p, id, 0, 0);
    }
    for (uint32_t i = 0; !step(p, &at); i++) {
        assert_true(i < TURNS_MAX);
    }
    assert_int_equal(told.stale, 1);
    for (int64_t id = 0; id < 4; id++) {
        assert_int_equal(told_of(id).last_sequence, 1);
    }
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_tells_each_kind_of_state),
        cmocka_unit_test(test_list_forgets_sequences_of_an_older_epoch),
        cmocka_unit_test(test_list_ends_while_producers_come_and_go),
        cmocka_unit_test(test_list_notices_producers_that_came_back),
    };
    return cmocka_run_group_tests_name("producers_list", tests, NULL, NULL);
}
