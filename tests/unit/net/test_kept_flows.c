/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the peer of a connection that a killed process left is reset by the next one, at its first
 * chance, once, and nobody else is. Method: the rig is a stack on virtual time; a second one on the
 * same kept memory is the next life. What a killed stack leaves is its memory as it is. */
#include "tests/unit/test.h"

#include <string.h>

#include "tests/unit/net/rig.h"

enum {
    CONNECTIONS = 16,
    ROUNDS = 5,
};

static struct mill_kept_flow kept[2 * CONNECTIONS];

static struct rig *life(void)
{
    const struct mill_net_config config = {.secret = {11, 22},
                                           .random_seed = 33,
                                           .connections_max = CONNECTIONS,
                                           .neighbours_max = 4,
                                           .kept = kept,
                                           .kept_max = CONNECTIONS};
    return rig_make(&config); /* its first round of SYNs is dropped there */
}

/* Its connections are never told of an end: rig_free's resets reach nobody. */
static void life_killed(struct rig *rig)
{
    rig_free(rig);
}

static uint32_t kept_count(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MILL_COUNT_OF(kept); i++) {
        count += atomic_load(&kept[i].used);
    }
    return count;
}

/* A life that had one connection from this port of the peer. */
static void life_with(uint16_t peer_port)
{
    struct rig *rig = life();
    rig->peer_port = peer_port;
    rig_handshake(rig, true, true);
    life_killed(rig);
}

/* SYNs that were sent to this port of the peer; whatever else was sent is an error. */
static uint32_t syns_to(struct rig *rig, uint16_t peer_port)
{
    uint32_t count = 0;
    struct rig_segment segment;
    while (rig_next(rig, &segment)) {
        assert_int_equal(segment.flags, MILL_TCP_SYN);
        assert_int_equal(segment.size_bytes, 0);
        count += segment.peer_port == peer_port;
    }
    return count;
}

static void test_old_peer_is_reset_by_its_own_number(void **state)
{
    MILL_UNUSED(state);
    memset(kept, 0, sizeof(kept));
    life_with(RIG_PEER_PORT);
    assert_int_equal(kept_count(), 1);
    struct rig *rig = life();
    struct rig_segment segment;
    uint8_t frame[256];
    rig_pass(rig, 600 * MILL_NS_PER_MS);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, MILL_TCP_SYN);
    assert_int_equal(segment.peer_port, RIG_PEER_PORT);
    assert_true(segment.options.has_timestamp);
    /* The challenge acknowledgement of its connection, which this stack does not know. */
    const struct mill_tcp_options none = {0};
    uint32_t size = rig_build(rig, frame, MILL_TCP_ACK, 4711, 815, 0, &none);
    rig_frame(rig, frame, size, 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, MILL_TCP_RST);
    assert_int_equal(segment.raw_seq, 815);
    rig_expect_none(rig);
    rig_free(rig);
}

static void test_rounds_end(void **state)
{
    MILL_UNUSED(state);
    memset(kept, 0, sizeof(kept));
    life_with(RIG_PEER_PORT);
    struct rig *rig = life();
    rig_pass(rig, 60 * MILL_NS_PER_S);
    assert_int_equal(syns_to(rig, RIG_PEER_PORT), ROUNDS - 1);
    assert_int_equal(rig->net->counters.old_peers_asked, ROUNDS);
    assert_int_equal(kept_count(), 0);
    rig_free(rig);
}

/* The same 4-tuple lives again: it is left alone. */
static void test_reopened_connection_is_not_asked(void **state)
{
    MILL_UNUSED(state);
    memset(kept, 0, sizeof(kept));
    life_with(RIG_PEER_PORT);
    struct rig *rig = life();
    rig_handshake(rig, true, true);
    rig_pass(rig, 60 * MILL_NS_PER_S);
    rig_expect_none(rig);
    assert_int_equal(rig->closed, 0);
    assert_int_equal(rig->net->counters.old_peers_asked, 1);
    assert_int_equal(kept_count(), 1); /* of this life */
    rig_free(rig);
}

static void test_life_that_is_killed_soon_leaves_all(void **state)
{
    MILL_UNUSED(state);
    memset(kept, 0, sizeof(kept));
    for (uint16_t i = 0; i < 4; i++) {
        life_with((uint16_t)(RIG_PEER_PORT + i));
        assert_int_equal(kept_count(), i + 1);
    }
    struct rig *rig = life();
    rig_pass(rig, 600 * MILL_NS_PER_MS);
    bool asked[4] = {false};
    struct rig_segment segment;
    while (rig_next(rig, &segment)) {
        assert_in_range(segment.peer_port, RIG_PEER_PORT, RIG_PEER_PORT + 3);
        asked[segment.peer_port - RIG_PEER_PORT] = true;
    }
    assert_true(asked[0] && asked[1] && asked[2] && asked[3]);
    rig_free(rig);
}

static void test_what_ended_is_not_kept(void **state)
{
    MILL_UNUSED(state);
    memset(kept, 0, sizeof(kept));
    struct rig *rig = life();
    rig_handshake(rig, true, false);
    assert_int_equal(kept_count(), 1);
    rig_put(rig, MILL_TCP_RST, 0, 0, 0);
    assert_int_equal(rig->closed, 1);
    assert_int_equal(kept_count(), 0);
    life_killed(rig);
    /* And what another address left is forgotten. */
    life_with(RIG_PEER_PORT);
    for (uint32_t i = 0; i < MILL_COUNT_OF(kept); i++) {
        kept[i].local++;
    }
    rig = life();
    rig_pass(rig, 60 * MILL_NS_PER_S);
    rig_expect_none(rig);
    assert_int_equal(rig->net->counters.old_peers_asked, 0);
    assert_int_equal(kept_count(), 0);
    rig_free(rig);
}

/* Ten in 10 ms: their resets stay below the limit of all resets. */
static void test_asks_are_spread(void **state)
{
    MILL_UNUSED(state);
    memset(kept, 0, sizeof(kept));
    struct rig *rig = life();
    for (uint16_t i = 0; i < CONNECTIONS; i++) {
        rig->peer_port = (uint16_t)(RIG_PEER_PORT + i);
        rig_handshake(rig, false, false);
    }
    life_killed(rig);
    assert_int_equal(kept_count(), CONNECTIONS);
    rig = life();
    assert_in_range(rig->net->counters.old_peers_asked, 1, 10);
    rig_pass(rig, 100 * MILL_NS_PER_MS);
    assert_int_equal(rig->net->counters.old_peers_asked, CONNECTIONS);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_peer_is_reset_by_its_own_number),
        cmocka_unit_test(test_rounds_end),
        cmocka_unit_test(test_reopened_connection_is_not_asked),
        cmocka_unit_test(test_life_that_is_killed_soon_leaves_all),
        cmocka_unit_test(test_what_ended_is_not_kept),
        cmocka_unit_test(test_asks_are_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
