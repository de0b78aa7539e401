/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the contract says about opening, ends and limits of streams.
 * Method: each end is brought about by one side and looked at from both. */
#include "tests/unit/stream/contract.h"

#include <errno.h>
#include <string.h>

enum {
    UNIT = MILL_EXTENT_UNIT_BYTES,
};

static void queue_refs(struct contract_stream *seen, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct mill_ref ref = contract_ref((uint64_t)i * UNIT, UNIT);
        assert_int_equal(seen->stream->ops->send_ref(seen->stream, &ref), 0);
    }
}

static void abort_in_call(struct contract *contract, struct contract_stream *seen)
{
    contract->in_call = true;
    seen->stream->ops->abort(seen->stream);
    contract->in_call = false;
}

static void test_accepted_knows_listener_and_peer(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    static const uint8_t zero[16];
    assert_int_equal(seen->stream->listener, CONTRACT_LISTENER);
    assert_ptr_equal(seen->stream->maker, contract->maker);
    assert_memory_not_equal(seen->stream->peer.address, zero, 16);
    assert_memory_not_equal(seen->stream->peer.local_address, zero, 16);
    assert_int_not_equal(seen->stream->peer.port, 0);
    assert_int_not_equal(seen->stream->peer.local_port, 0);
    assert_int_equal(contract->maker->stats.accepted, 1);
    contract_close(contract);
}

static void test_peer_half_close_delivers_all_then_rx_ended(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    contract_peer_send(contract, peer, 0, 100000);
    contract->fixture->peer_finish(contract, peer);
    contract_until(contract, seen->rx_ended);
    assert_int_equal(seen->received, 100000);
    /* The other direction still carries. */
    queue_refs(seen, 10);
    contract_peer_expect(contract, peer, 0, 10 * UNIT);
    assert_int_equal(seen->closed, 0);
    seen->stream->ops->close(seen->stream);
    assert_int_equal(contract_peer_end(contract, peer), 0);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_CLOSED);
    contract_close(contract);
}

static void test_close_flushes_queue_then_fin(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    queue_refs(seen, 32);
    contract->in_call = true;
    seen->stream->ops->close(seen->stream);
    struct mill_ref ref = contract_ref(0, 1);
    assert_int_equal(seen->stream->ops->send_ref(seen->stream, &ref), -EPIPE);
    assert_int_equal(seen->stream->ops->send_bytes(seen->stream, "x", 1), -EPIPE);
    contract->in_call = false;
    contract_peer_expect(contract, peer, 0, 32 * UNIT);
    assert_int_equal(contract_peer_end(contract, peer), 0);
    contract_turn_ms(contract, 20);
    assert_int_equal(seen->closed, 0); /* the peer has not finished */
    contract->fixture->peer_close(contract, peer);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_CLOSED);
    assert_int_equal(contract_loans(contract), 0);
    contract_close(contract);
}

static void test_close_with_unread_bytes_still_delivers(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    contract->hold = true;
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    contract_peer_send(contract, peer, 0, 5000);
    contract_until(contract, seen->stream->rx.size_bytes == 5000);
    seen->stream->ops->pause(seen->stream, true);
    contract_peer_send(contract, peer, 5000, 20000);
    queue_refs(seen, 32);
    seen->stream->ops->close(seen->stream);
    contract_turn_ms(contract, 20);
    contract_peer_send(contract, peer, 25000, 20000);
    contract_peer_expect(contract, peer, 0, 32 * UNIT);
    assert_int_equal(contract_peer_end(contract, peer), 0);
    contract->fixture->peer_close(contract, peer);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_CLOSED);
    contract_close(contract);
}

static void test_abort_resets_and_reports_later(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    queue_refs(seen, 32);
    abort_in_call(contract, seen);
    assert_int_equal(seen->closed, 0);
    struct mill_ref ref = contract_ref(0, 1);
    assert_int_equal(seen->stream->ops->send_ref(seen->stream, &ref), -EPIPE);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_ABORTED);
    assert_int_equal(contract_loans(contract), 0);
    assert_int_equal(contract_peer_end(contract, peer), -ECONNRESET);
    contract_close(contract);
}

/* The peer never reads; sends are under way in the maker when the end comes. */
static void test_abort_sends_under_way_gives_loans_back(void **state)
{
    const struct contract_limits limits = {.connections_max = 8,
                                           .refs_per_connection = 2048,
                                           .arena_bytes_per_connection = 4096,
                                           .rx_window_max = 64 * 1024};
    struct contract *contract = contract_open(*state, &limits);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    for (unsigned i = 0; i < 2048; i++) {
        struct mill_ref ref = contract_ref(0, 64 * 1024);
        assert_int_equal(seen->stream->ops->send_ref(seen->stream, &ref), 0);
    }
    contract_turn_ms(contract, 50);
    assert_true(seen->stream->ops->unacked_bytes(seen->stream) > 0);
    assert_true(contract_loans(contract) > 0);
    abort_in_call(contract, seen);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(contract_loans(contract), 0);
    assert_int_equal(contract->loans.loaned_bytes, 0);
    contract_close(contract);
}

static void peer_reset(void **state, bool paused, bool sending)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    if (paused) {
        seen->stream->ops->pause(seen->stream, true);
    }
    contract_turn_ms(contract, 10);
    if (sending) {
        queue_refs(seen, 32);
    }
    contract->fixture->peer_reset(contract, peer);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_RESET);
    assert_int_equal(contract_loans(contract), 0);
    assert_int_equal(contract->maker->stats.connections, 0);
    contract_close(contract);
}

static void test_peer_reset_is_reported(void **state)
{
    peer_reset(state, false, false);
}

static void test_peer_reset_while_paused_is_reported(void **state)
{
    peer_reset(state, true, false);
}

static void test_peer_reset_while_sending_gives_loans_back(void **state)
{
    peer_reset(state, false, true);
    peer_reset(state, true, true);
}

static void test_accepted_refuses_peer_is_reset(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    contract->refuse = true;
    int peer = contract->fixture->peer_connect(contract);
    contract_until(contract, contract->accepted == 1);
    assert_int_equal(contract_peer_end(contract, peer), -ECONNRESET);
    contract_turn_ms(contract, 10);
    assert_int_equal(contract->closed, 0);
    assert_int_equal(contract->maker->stats.connections, 0);
    assert_int_equal(contract->maker->stats.accepted, 0);
    assert_int_equal(contract->maker->stats.refused, 1);
    contract_close(contract);
}

static void test_connections_max_refuses_until_one_ends(void **state)
{
    const struct contract_limits limits = {.connections_max = 3,
                                           .refs_per_connection = 8,
                                           .arena_bytes_per_connection = 4096,
                                           .rx_window_max = 64 * 1024};
    struct contract *contract = contract_open(*state, &limits);
    int peers[3];
    for (unsigned i = 0; i < 3; i++) {
        contract_pair(contract, &peers[i]);
    }
    int late = contract->fixture->peer_connect(contract);
    contract_until(contract, contract->maker->stats.refused == 1);
    assert_int_equal(contract_peer_end(contract, late), -ECONNRESET);
    assert_int_equal(contract->streams_count, 3);
    /* The others do not notice. */
    contract_peer_send(contract, peers[1], 0, 10);
    contract_until(contract, contract->streams[1].received == 10);
    abort_in_call(contract, &contract->streams[0]);
    contract_until(contract, contract->closed == 1);
    int next = -1;
    struct contract_stream *seen = contract_pair(contract, &next);
    contract_peer_send(contract, next, 0, 10);
    contract_until(contract, seen->received == 10);
    contract_close(contract);
}

static void test_connect_somebody_carries_both_ways(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    uint8_t address[16];
    uint16_t port = 0;
    contract->fixture->peer_address(contract, true, address, &port);
    struct contract_stream *seen = &contract->streams[contract->streams_count++];
    struct mill_stream *stream = NULL;
    assert_int_equal(contract->maker->ops->connect(contract->maker, address, port, seen, &stream),
                     0);
    assert_int_equal(seen->connected, 0);
    contract_until(contract, seen->connected == 1);
    assert_int_equal(seen->connect_error, 0);
    assert_ptr_equal(seen->stream, stream);
    assert_memory_equal(stream->peer.address, address, 16);
    assert_int_equal(stream->peer.port, port);
    assert_int_not_equal(stream->peer.local_port, 0);
    int peer;
    contract_until(contract, (peer = contract->fixture->peer_accept(contract)) >= 0);
    queue_refs(seen, 20);
    contract_peer_expect(contract, peer, 0, 20 * UNIT);
    contract_peer_send(contract, peer, 0, 50000);
    contract_until(contract, seen->received == 50000);
    stream->ops->close(stream);
    assert_int_equal(contract_peer_end(contract, peer), 0);
    contract->fixture->peer_close(contract, peer);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_CLOSED);
    contract_close(contract);
}

static void test_connect_nobody_is_refused(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    uint8_t address[16];
    uint16_t port = 0;
    contract->fixture->peer_address(contract, false, address, &port);
    struct contract_stream *seen = &contract->streams[contract->streams_count++];
    struct mill_stream *stream = NULL;
    assert_int_equal(contract->maker->ops->connect(contract->maker, address, port, seen, &stream),
                     0);
    contract_until(contract, seen->connected == 1);
    assert_int_equal(seen->connect_error, -ECONNREFUSED);
    contract_turn_ms(contract, 10);
    assert_int_equal(seen->closed, 0);
    assert_int_equal(contract->maker->stats.connections, 0);
    contract_close(contract);
}

static void test_connect_no_slot_enfile(void **state)
{
    const struct contract_limits limits = {.connections_max = 1,
                                           .refs_per_connection = 8,
                                           .arena_bytes_per_connection = 4096,
                                           .rx_window_max = 64 * 1024};
    struct contract *contract = contract_open(*state, &limits);
    int peer = -1;
    contract_pair(contract, &peer);
    uint8_t address[16];
    uint16_t port = 0;
    contract->fixture->peer_address(contract, true, address, &port);
    struct mill_stream *stream = NULL;
    assert_int_equal(contract->maker->ops->connect(contract->maker, address, port, NULL, &stream),
                     -ENFILE);
    contract_close(contract);
}

static void test_abort_inside_event_reports_once_later(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    queue_refs(seen, 32);
    seen->abort_in_event = true;
    contract_peer_send(contract, peer, 0, 20000);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_ABORTED);
    assert_int_equal(contract_loans(contract), 0);
    contract_turn_ms(contract, 20);
    contract_close(contract);
}

static void test_close_inside_event_flushes(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    seen->close_in_event = true;
    queue_refs(seen, 32);
    contract_peer_send(contract, peer, 0, 100);
    contract_peer_expect(contract, peer, 0, 32 * UNIT);
    assert_int_equal(contract_peer_end(contract, peer), 0);
    contract->fixture->peer_close(contract, peer);
    contract_until(contract, seen->closed == 1);
    assert_int_equal(seen->end, MILL_END_CLOSED);
    contract_close(contract);
}

/* Slots are used again and nothing of the earlier connection shows. */
static void test_slots_used_again_are_clean(void **state)
{
    const struct contract_limits limits = {.connections_max = 2,
                                           .refs_per_connection = 8,
                                           .arena_bytes_per_connection = 4096,
                                           .rx_window_max = 64 * 1024};
    struct contract *contract = contract_open(*state, &limits);
    for (unsigned i = 0; i < 50; i++) {
        int peer = -1;
        struct contract_stream *seen = contract_pair(contract, &peer);
        contract_peer_send(contract, peer, 0, 3000);
        queue_refs(seen, 4);
        contract_peer_expect(contract, peer, 0, i % 2 ? 4 * UNIT : 100);
        contract_until(contract, seen->received == 3000);
        if (i % 3 == 0) {
            contract->fixture->peer_reset(contract, peer);
        } else if (i % 3 == 1) {
            abort_in_call(contract, seen);
        } else {
            contract->fixture->peer_finish(contract, peer);
            contract_until(contract, seen->rx_ended);
            seen->stream->ops->close(seen->stream);
        }
        contract_until(contract, seen->closed == 1);
        contract->fixture->peer_close(contract, peer);
    }
    assert_int_equal(contract_loans(contract), 0);
    contract_close(contract);
}

static void test_destroy_with_open_streams_gives_loans_back(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    contract->hold = true;
    for (unsigned i = 0; i < 5; i++) {
        int peer = -1;
        struct contract_stream *seen = contract_pair(contract, &peer);
        contract_peer_send(contract, peer, 0, 10000);
        contract_turn_ms(contract, 5);
        queue_refs(seen, 32);
    }
    assert_true(contract_loans(contract) > 0);
    contract_close(contract); /* looks at the loans */
}

static void test_deadline_idle_never_with_work_now(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    contract_turn_ms(contract, 20);
    uint64_t now = contract->fixture->now_ns(contract);
    uint64_t idle = contract->maker->ops->deadline(contract->maker);
    assert_true(idle > now + MILL_NS_PER_S);
    queue_refs(seen, 1);
    assert_true(contract->maker->ops->deadline(contract->maker) <= now);
    contract_peer_expect(contract, peer, 0, UNIT);
    contract_turn_ms(contract, 20);
    abort_in_call(contract, seen);
    assert_true(contract->maker->ops->deadline(contract->maker) <=
                contract->fixture->now_ns(contract));
    contract_until(contract, seen->closed == 1);
    contract_close(contract);
}

const struct CMUnitTest contract_life_tests[] = {
    cmocka_unit_test(test_accepted_knows_listener_and_peer),
    cmocka_unit_test(test_peer_half_close_delivers_all_then_rx_ended),
    cmocka_unit_test(test_close_flushes_queue_then_fin),
    cmocka_unit_test(test_close_with_unread_bytes_still_delivers),
    cmocka_unit_test(test_abort_resets_and_reports_later),
    cmocka_unit_test(test_abort_sends_under_way_gives_loans_back),
    cmocka_unit_test(test_peer_reset_is_reported),
    cmocka_unit_test(test_peer_reset_while_paused_is_reported),
    cmocka_unit_test(test_peer_reset_while_sending_gives_loans_back),
    cmocka_unit_test(test_accepted_refuses_peer_is_reset),
    cmocka_unit_test(test_connections_max_refuses_until_one_ends),
    cmocka_unit_test(test_connect_somebody_carries_both_ways),
    cmocka_unit_test(test_connect_nobody_is_refused),
    cmocka_unit_test(test_connect_no_slot_enfile),
    cmocka_unit_test(test_abort_inside_event_reports_once_later),
    cmocka_unit_test(test_close_inside_event_flushes),
    cmocka_unit_test(test_slots_used_again_are_clean),
    cmocka_unit_test(test_destroy_with_open_streams_gives_loans_back),
    cmocka_unit_test(test_deadline_idle_never_with_work_now),
};
const size_t contract_life_tests_length = MILL_COUNT_OF(contract_life_tests);
