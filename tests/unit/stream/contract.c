/* SPDX-License-Identifier: Apache-2.0 */
/* The core above the maker under test: notes events, consumes and compares what is received. */
#include "tests/unit/stream/contract.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ARENA_BYTES = CONTRACT_UNITS * MILL_EXTENT_UNIT_BYTES,
    TESTS_MAX = 64,
};

void contract_fill(uint8_t *bytes, size_t size, uint64_t position)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = contract_byte((position + i) % ARENA_BYTES);
    }
}

bool contract_equal(const uint8_t *bytes, size_t size, uint64_t position)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != contract_byte((position + i) % ARENA_BYTES)) {
            return false;
        }
    }
    return true;
}

struct mill_ref contract_ref(uint64_t position, uint32_t size_bytes)
{
    uint32_t at = (uint32_t)(position % ARENA_BYTES);
    assert_true(at + size_bytes <= ARENA_BYTES);
    return (struct mill_ref){.extent = at >> MILL_EXTENT_UNIT_SHIFT,
                             .pos_bytes = at & (MILL_EXTENT_UNIT_BYTES - 1),
                             .size_bytes = size_bytes};
}

uint64_t contract_time_ms(struct contract *contract)
{
    return contract->fixture->now_ns(contract) / MILL_NS_PER_MS;
}

/* ---- events ---- */

static struct contract_stream *note(struct contract *contract, struct mill_stream *stream)
{
    assert_true(contract->streams_count < CONTRACT_STREAMS_MAX);
    struct contract_stream *seen = &contract->streams[contract->streams_count++];
    *seen = (struct contract_stream){.stream = stream, .hold = contract->hold};
    stream->user = seen;
    return seen;
}

static int on_accepted(void *context, struct mill_stream *stream)
{
    struct contract *contract = context;
    assert_false(contract->in_call);
    contract->accepted++;
    if (contract->refuse) {
        return -EACCES;
    }
    note(contract, stream);
    return 0;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    struct contract *contract = context;
    struct contract_stream *seen = stream->user;
    assert_false(contract->in_call);
    seen->connected++;
    seen->connect_error = error;
    if (error == 0) {
        seen->stream = stream;
    }
}

void contract_take(struct contract *contract, struct contract_stream *seen)
{
    struct mill_stream *stream = seen->stream;
    struct mill_cursor cursor = mill_chain_cursor(&stream->rx);
    const uint8_t *run = NULL;
    uint32_t size;
    while ((size = mill_cursor_run(&cursor, &run)) > 0) {
        contract->wrong_bytes |= !contract_equal(run, size, seen->received);
        seen->received += size;
        assert_int_equal(mill_cursor_skip(&cursor, size), 0);
    }
    bool outside = !contract->in_call;
    contract->in_call = true;
    stream->ops->consume(stream, stream->rx.size_bytes);
    contract->in_call = !outside;
}

static void on_received(void *context, struct mill_stream *stream)
{
    struct contract *contract = context;
    struct contract_stream *seen = stream->user;
    assert_false(contract->in_call);
    assert_ptr_equal(seen->stream, stream);
    assert_false(seen->rx_ended);
    seen->rx_ended = stream->rx_ended;
    if (!seen->hold && stream->rx.size_bytes > 0) {
        contract_take(contract, seen);
    }
    contract->in_call = true;
    if (seen->abort_in_event) {
        stream->ops->abort(stream);
        stream->ops->abort(stream);
    } else if (seen->close_in_event) {
        stream->ops->close(stream);
    }
    contract->in_call = false;
    assert_int_equal(seen->closed, 0);
}

static void on_room(void *context, struct mill_stream *stream)
{
    struct contract *contract = context;
    struct contract_stream *seen = stream->user;
    assert_false(contract->in_call);
    uint32_t refs = 0;
    uint32_t bytes = 0;
    stream->ops->room(stream, &refs, &bytes);
    assert_true(refs > 0 || bytes > 0);
    seen->rooms++;
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    struct contract *contract = context;
    struct contract_stream *seen = stream->user;
    assert_false(contract->in_call);
    assert_true(size_bytes > 0);
    seen->acked += size_bytes;
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    struct contract *contract = context;
    struct contract_stream *seen = stream->user;
    assert_false(contract->in_call);
    assert_true(stream->dead);
    assert_int_equal(seen->closed, 0);
    seen->closed++;
    seen->end = end;
    seen->stream = NULL;
    contract->closed++;
}

const struct mill_stream_events contract_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_received,
    .room = on_room,
    .acked = on_acked,
    .closed = on_closed,
};

/* ---- helpers of the tests ---- */

struct contract *contract_open(const struct contract_fixture *fixture,
                               const struct contract_limits *limits)
{
    const struct contract_limits usual = {
        .connections_max = 64,
        .refs_per_connection = 32,
        .arena_bytes_per_connection = 8192,
        .rx_window_max = 256 * 1024,
    };
    struct contract *contract = calloc(1, sizeof(*contract));
    assert_non_null(contract);
    contract->fixture = fixture;
    assert_int_equal(mill_loans_init(&contract->loans, CONTRACT_UNITS, 16), 0);
    contract->arena = malloc(ARENA_BYTES);
    assert_non_null(contract->arena);
    contract_fill(contract->arena, ARENA_BYTES, 0);
    assert_int_equal(fixture->open(contract, limits ? limits : &usual), 0);
    return contract;
}

uint64_t contract_loans(const struct contract *contract)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < CONTRACT_UNITS; i++) {
        count += contract->loans.uses[i];
    }
    return count;
}

void contract_close(struct contract *contract)
{
    assert_false(contract->wrong_bytes);
    assert_int_equal(contract->maker->stats.bytes_copied_out, 0);
    contract->fixture->close(contract);
    /* destroy gives everything back */
    assert_int_equal(contract_loans(contract), 0);
    assert_int_equal(contract->loans.loaned_bytes, 0);
    mill_loans_fini(&contract->loans);
    free(contract->arena);
    free(contract);
}

void contract_turn_ms(struct contract *contract, unsigned ms)
{
    uint64_t end = contract_time_ms(contract) + ms;
    do {
        contract->fixture->turn(contract);
    } while (contract_time_ms(contract) < end);
}

struct contract_stream *contract_pair(struct contract *contract, int *ret_peer)
{
    unsigned before = contract->streams_count;
    *ret_peer = contract->fixture->peer_connect(contract);
    contract_until(contract, contract->streams_count > before);
    return &contract->streams[before];
}

void contract_peer_send(struct contract *contract, int peer, uint64_t position, size_t size)
{
    static uint8_t bytes[1u << 16];
    size_t done = 0;
    uint64_t end = contract_time_ms(contract) + CONTRACT_LIMIT_S * 1000u;
    while (done < size) {
        size_t part = MILL_MIN(size - done, sizeof(bytes));
        contract_fill(bytes, part, position + done);
        ssize_t sent = contract->fixture->peer_send(contract, peer, bytes, part);
        if (sent > 0) {
            done += (size_t)sent;
        } else {
            assert_true(sent == -EAGAIN || sent == -ENOTCONN);
            contract->fixture->turn(contract);
        }
        assert_true(contract_time_ms(contract) < end);
    }
}

void contract_peer_expect(struct contract *contract, int peer, uint64_t position, size_t size)
{
    static uint8_t bytes[1u << 16];
    size_t done = 0;
    uint64_t end = contract_time_ms(contract) + CONTRACT_LIMIT_S * 1000u;
    while (done < size) {
        size_t part = MILL_MIN(size - done, sizeof(bytes));
        ssize_t got = contract->fixture->peer_recv(contract, peer, bytes, part);
        if (got > 0) {
            assert_true(contract_equal(bytes, (size_t)got, position + done));
            done += (size_t)got;
        } else {
            assert_int_equal(got, -EAGAIN);
            contract->fixture->turn(contract);
        }
        assert_true(contract_time_ms(contract) < end);
    }
}

int contract_peer_end(struct contract *contract, int peer)
{
    static uint8_t bytes[1u << 16];
    uint64_t end = contract_time_ms(contract) + CONTRACT_LIMIT_S * 1000u;
    for (;;) {
        ssize_t got = contract->fixture->peer_recv(contract, peer, bytes, sizeof(bytes));
        if (got == 0 || (got < 0 && got != -EAGAIN && got != -ENOTCONN)) {
            return (int)got;
        }
        if (got < 0) {
            contract->fixture->turn(contract);
        }
        assert_true(contract_time_ms(contract) < end);
    }
}

int contract_run(const struct contract_fixture *fixture)
{
    struct CMUnitTest tests[TESTS_MAX];
    size_t count = 0;
    assert_true(contract_send_tests_length + contract_life_tests_length <= TESTS_MAX);
    for (size_t i = 0; i < contract_send_tests_length; i++) {
        tests[count++] = contract_send_tests[i];
    }
    for (size_t i = 0; i < contract_life_tests_length; i++) {
        tests[count++] = contract_life_tests[i];
    }
    for (size_t i = 0; i < count; i++) {
        union {
            const struct contract_fixture *given;
            void *state;
        } fixture_state = {.given = fixture};
        tests[i].initial_state = fixture_state.state;
    }
    printf("contract over %s\n", fixture->name);
    return _cmocka_run_group_tests(fixture->name, tests, count, NULL, NULL);
}
