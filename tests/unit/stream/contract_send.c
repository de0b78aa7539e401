/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the contract says about bytes, loans, room and windows.
 * Method: the bytes of a stream are a function of their position, so the peer checks each one
 * however they were cut; loans are looked at after every turn. */
#include "tests/unit/stream/contract.h"

#include <errno.h>

enum {
    MIB = 1 << 20,
};

/* A small seeded generator (xorshift); the same sequence in every run. */
static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static int send_ref(struct contract *contract, struct contract_stream *seen, uint64_t position,
                    uint32_t size_bytes)
{
    struct mill_ref ref = contract_ref(position, size_bytes);
    contract->in_call = true;
    int error = seen->stream->ops->send_ref(seen->stream, &ref);
    contract->in_call = false;
    return error;
}

static int send_small(struct contract *contract, struct contract_stream *seen, uint64_t position,
                      uint32_t size_bytes)
{
    static uint8_t bytes[MILL_STREAM_BYTES_MAX];
    contract_fill(bytes, size_bytes, position);
    contract->in_call = true;
    int error = seen->stream->ops->send_bytes(seen->stream, bytes, size_bytes);
    contract->in_call = false;
    return error;
}

/* Takes what the peer can read now and compares it. */
static uint64_t drain(struct contract *contract, int peer, uint64_t position)
{
    static uint8_t bytes[4096];
    uint64_t before = position;
    ssize_t got;
    while ((got = contract->fixture->peer_recv(contract, peer, bytes, sizeof(bytes))) > 0) {
        assert_true(contract_equal(bytes, (size_t)got, position));
        position += (uint64_t)got;
    }
    return position - before;
}

/* Sends total bytes as a random mix and checks every one at the peer. */
static void mixed(const struct contract_limits *limits, void **state, uint64_t total)
{
    struct contract *contract = contract_open(*state, limits);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    uint32_t seed = 4711;
    uint64_t sent = 0;
    uint64_t refs = 0;
    uint64_t read = 0;
    while (sent < total) {
        bool is_ref = next_random(&seed) % 2 == 0;
        uint32_t size = 1 + next_random(&seed) % (is_ref ? 6000 : 400);
        size = (uint32_t)MILL_MIN((uint64_t)size, total - sent);
        int error;
        while ((error = is_ref ? send_ref(contract, seen, sent, size)
                               : send_small(contract, seen, sent, size)) == -EAGAIN) {
            contract->fixture->turn(contract);
            read += drain(contract, peer, read);
        }
        assert_int_equal(error, 0);
        sent += size;
        refs += is_ref ? size : 0;
        assert_int_equal(seen->stream->ops->unacked_bytes(seen->stream), sent - seen->acked);
    }
    seen->stream->ops->push(seen->stream);
    contract_peer_expect(contract, peer, read, total - read);
    contract_until(contract, seen->acked == total);
    assert_int_equal(seen->stream->ops->unacked_bytes(seen->stream), 0);
    assert_int_equal(contract_loans(contract), 0);
    const struct mill_stream_stats *stats = &contract->maker->stats;
    assert_int_equal(stats->bytes_sent_refs + stats->bytes_inlined, refs);
    assert_int_equal(stats->bytes_sent_small, total - refs);
    assert_int_equal(stats->bytes_copied_out, 0);
    contract_close(contract);
}

static void test_send_mixed_pieces_same_order(void **state)
{
    mixed(NULL, state, 8 * MIB);
}

static void test_send_small_queue_same_order(void **state)
{
    const struct contract_limits limits = {.connections_max = 4,
                                           .refs_per_connection = 2,
                                           .arena_bytes_per_connection = 4096,
                                           .rx_window_max = 64 * 1024};
    mixed(&limits, state, 2 * MIB);
}

static void test_loans_while_queued_end_in_order(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    enum { UNIT = MILL_EXTENT_UNIT_BYTES };
    uint32_t queued = 0;
    uint32_t ended = 0;
    uint64_t read = 0;
    while (ended < CONTRACT_UNITS) {
        while (queued < CONTRACT_UNITS &&
               send_ref(contract, seen, (uint64_t)queued * UNIT, UNIT) == 0) {
            assert_int_equal(contract->loans.uses[queued], 1);
            queued++;
        }
        contract->fixture->turn(contract);
        while (ended < queued && contract->loans.uses[ended] == 0) {
            ended++;
        }
        /* Those that are still lent are the newest, each once. */
        assert_int_equal(contract_loans(contract), queued - ended);
        assert_int_equal(contract->loans.loaned_bytes, (uint64_t)(queued - ended) * UNIT);
        assert_true(seen->acked >= (uint64_t)ended * UNIT);
        read += drain(contract, peer, read);
    }
    contract_peer_expect(contract, peer, read, (uint64_t)CONTRACT_UNITS * UNIT - read);
    contract_close(contract);
}

/* Sends without the peer reading until the queue is full for good. ret: bytes queued so far. */
static uint64_t fill(struct contract *contract, struct contract_stream *seen, bool refs)
{
    uint64_t sent = 0;
    for (unsigned quiet = 0; quiet < 20;) {
        uint32_t size = refs ? MILL_EXTENT_UNIT_BYTES : 512;
        int error =
            refs ? send_ref(contract, seen, sent, size) : send_small(contract, seen, sent, size);
        if (error == 0) {
            sent += size;
            quiet = 0;
        } else {
            assert_int_equal(error, -EAGAIN);
            contract_turn_ms(contract, 5);
            quiet++;
        }
        assert_true(sent < 64 * MIB);
    }
    return sent;
}

static void full_queue(void **state, bool refs)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    uint64_t sent = fill(contract, seen, refs);
    uint64_t unacked = seen->stream->ops->unacked_bytes(seen->stream);
    uint64_t loans = contract_loans(contract);
    unsigned rooms = seen->rooms;
    uint32_t room_refs = 0;
    uint32_t room_bytes = 0;
    seen->stream->ops->room(seen->stream, &room_refs, &room_bytes);
    assert_true(refs ? room_refs == 0 : room_bytes < 512);
    assert_int_equal(
        refs ? send_ref(contract, seen, sent, 1) : send_small(contract, seen, sent, 512), -EAGAIN);
    /* Nothing of the refused call is there. */
    assert_int_equal(seen->stream->ops->unacked_bytes(seen->stream), unacked);
    assert_int_equal(unacked, sent - seen->acked);
    assert_int_equal(contract_loans(contract), loans);
    assert_int_equal(loans > 0, refs);
    contract_peer_expect(contract, peer, 0, sent);
    contract_until(contract, seen->rooms > rooms);
    contract_until(contract, seen->acked == sent);
    seen->stream->ops->room(seen->stream, &room_refs, &room_bytes);
    assert_int_equal(room_refs, 32);
    assert_int_equal(room_bytes, 8192);
    assert_int_equal(contract_loans(contract), 0);
    contract_close(contract);
}

static void test_send_ref_queue_full_eagain_then_room(void **state)
{
    full_queue(state, true);
}

static void test_send_bytes_arena_full_eagain_then_room(void **state)
{
    full_queue(state, false);
}

/* The peer sends until nothing is taken for a while. ret: bytes taken. */
static uint64_t send_until_stopped(struct contract *contract, int peer)
{
    static uint8_t bytes[16384];
    uint64_t sent = 0;
    for (unsigned quiet = 0; quiet < 20;) {
        contract_fill(bytes, sizeof(bytes), sent);
        ssize_t part = contract->fixture->peer_send(contract, peer, bytes, sizeof(bytes));
        if (part > 0) {
            sent += (uint64_t)part;
            quiet = 0;
        } else {
            contract_turn_ms(contract, 5);
            quiet++;
        }
        assert_true(sent < 256 * MIB);
    }
    return sent;
}

static void test_consume_not_called_stops_peer_called_restarts(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    contract->hold = true;
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    uint64_t sent = send_until_stopped(contract, peer);
    uint32_t held = seen->stream->rx.size_bytes;
    /* What rushed in while reading was being stopped is bounded by the window once more. */
    assert_true(held >= 64 * 1024);
    assert_true(held <= 2 * 256 * 1024 + 64 * 1024);
    contract_turn_ms(contract, 20);
    assert_int_equal(seen->stream->rx.size_bytes, held);
    seen->hold = false;
    contract_take(contract, seen);
    contract_until(contract, seen->received == sent);
    contract_peer_send(contract, peer, sent, 1);
    contract_until(contract, seen->received == sent + 1);
    contract_close(contract);
}

static void test_pause_reads_nothing_until_resumed(void **state)
{
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    for (unsigned round = 0; round < 3; round++) {
        seen->stream->ops->pause(seen->stream, true);
        contract_turn_ms(contract, 20);
        uint64_t before = seen->received;
        contract_peer_send(contract, peer, before, 1000);
        contract_turn_ms(contract, 30);
        assert_int_equal(seen->received, before);
        seen->stream->ops->pause(seen->stream, false);
        contract_until(contract, seen->received == before + 1000);
    }
    /* On and off without a turn between is nothing. */
    seen->stream->ops->pause(seen->stream, true);
    seen->stream->ops->pause(seen->stream, false);
    contract_peer_send(contract, peer, seen->received, 10);
    contract_until(contract, seen->received == 3010);
    contract_close(contract);
}

static void test_large_transfers_both_ways_at_once(void **state)
{
    enum { TOTAL = 48 * MIB, PIECE = 65536 };
    struct contract *contract = contract_open(*state, NULL);
    int peer = -1;
    struct contract_stream *seen = contract_pair(contract, &peer);
    uint64_t sent = 0;
    uint64_t read = 0;
    uint64_t peer_sent = 0;
    static uint8_t bytes[PIECE];
    uint64_t end = contract_time_ms(contract) + CONTRACT_LIMIT_S * 1000u;
    while (read < TOTAL || seen->received < TOTAL) {
        while (sent < TOTAL && send_ref(contract, seen, sent, PIECE) == 0) {
            sent += PIECE;
        }
        if (peer_sent < TOTAL) {
            size_t size = MILL_MIN((uint64_t)PIECE, TOTAL - peer_sent);
            contract_fill(bytes, size, peer_sent);
            ssize_t part = contract->fixture->peer_send(contract, peer, bytes, size);
            peer_sent += part > 0 ? (uint64_t)part : 0;
        }
        contract->fixture->turn(contract);
        read += drain(contract, peer, read);
        assert_true(contract_time_ms(contract) < end);
    }
    assert_int_equal(read, TOTAL);
    assert_int_equal(contract->maker->stats.bytes_received, TOTAL);
    assert_int_equal(contract->maker->stats.bytes_sent_refs, TOTAL);
    contract_until(contract, contract_loans(contract) == 0);
    contract_close(contract);
}

static void test_many_connections_each_gets_its_answer(void **state)
{
    enum { COUNT = 1000, ANSWER = 3000 };
    const struct contract_limits limits = {.connections_max = COUNT,
                                           .refs_per_connection = 8,
                                           .arena_bytes_per_connection = 4096,
                                           .rx_window_max = 64 * 1024};
    static int peers[COUNT];
    struct contract *contract = contract_open(*state, &limits);
    for (unsigned i = 0; i < COUNT; i++) {
        contract_pair(contract, &peers[i]);
    }
    assert_int_equal(contract->maker->stats.connections, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        contract_peer_send(contract, peers[i], 0, 100 + i % 7);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        struct contract_stream *seen = &contract->streams[i];
        contract_until(contract, seen->received == 100 + i % 7);
        assert_int_equal(send_small(contract, seen, 0, 4), 0);
        assert_int_equal(send_ref(contract, seen, 4, ANSWER), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        contract_peer_expect(contract, peers[i], 0, 4 + ANSWER);
        contract->fixture->peer_close(contract, peers[i]);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        contract_until(contract, contract->streams[i].rx_ended);
        contract->streams[i].stream->ops->close(contract->streams[i].stream);
    }
    contract_until(contract, contract->closed == COUNT);
    assert_int_equal(contract_loans(contract), 0);
    assert_int_equal(contract->maker->stats.connections, 0);
    contract_close(contract);
}

const struct CMUnitTest contract_send_tests[] = {
    cmocka_unit_test(test_send_mixed_pieces_same_order),
    cmocka_unit_test(test_send_small_queue_same_order),
    cmocka_unit_test(test_loans_while_queued_end_in_order),
    cmocka_unit_test(test_send_ref_queue_full_eagain_then_room),
    cmocka_unit_test(test_send_bytes_arena_full_eagain_then_room),
    cmocka_unit_test(test_consume_not_called_stops_peer_called_restarts),
    cmocka_unit_test(test_pause_reads_nothing_until_resumed),
    cmocka_unit_test(test_large_transfers_both_ways_at_once),
    cmocka_unit_test(test_many_connections_each_gets_its_answer),
};
const size_t contract_send_tests_length = MILL_COUNT_OF(contract_send_tests);
