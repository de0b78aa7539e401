/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: our own TCP (dataplane/net) keeps the contract of streams.
 * Method: the maker under test and a second stack that plays the peers are joined by a modelled
 * wire; a turn is one step of both and moves virtual time to the next moment at which something
 * happens, at most one millisecond. Runs twice: over a clean wire with whole buffers, and over one
 * that delays, cuts received frames into several buffers and runs out of
 * frames. (Short bursts are the twin's: they leave loans of their own in the stack's burst.) */
#include "tests/unit/stream/contract.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/net/internal.h"
#include "tests/sim/link_model.h"

enum {
    PEERS_MAX = 1200,
    PEER_ARENA_UNITS = 16, /* peers send small pieces only */
    PEER_ARENA_BYTES = 65536,
    PEER_WINDOW_BYTES = 256 * 1024,
    BROKER = 0,
    PEER = 1,
    BROKER_PORT = 9092,
    PEER_PORT = 7000,
    PORT_OF_NOBODY = 7001,
    NET = 0xc6120000, /* 198.18.0.0/24: side s has address s + 1 */
    TURN_NS = 1000000,
};

static const uint8_t zero_address[16];

/* A peer's end. The stream is void after closed; the end is kept. */
struct peer {
    struct mill_stream *stream;
    bool connected;
    bool ended;
    int error; /* what a receive says after the end */
};

struct twin {
    struct mill_link_model *model;
    struct mill_net *nets[2];
    struct mill_loans peer_loans;
    uint8_t *peer_arena;
    struct peer peers[PEERS_MAX];
    int peers_count;
    int accepts[PEERS_MAX]; /* peers for connections that the maker opened */
    int accepts_count;
    int accepts_taken;
    uint64_t now_ns;
};

static void address_of(unsigned side, uint8_t ret_address[16])
{
    const uint8_t address[16] = {
        [10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18, [15] = (uint8_t)(side + 1)};
    memcpy(ret_address, address, sizeof(address));
}

static struct peer *peer_new(struct twin *twin)
{
    assert_true(twin->peers_count < PEERS_MAX);
    return &twin->peers[twin->peers_count++];
}

/* ---- events of the peers' stack ---- */

static int on_accepted(void *context, struct mill_stream *stream)
{
    struct twin *twin = context;
    struct peer *peer = peer_new(twin);
    *peer = (struct peer){.stream = stream, .connected = true};
    stream->user = peer;
    twin->accepts[twin->accepts_count++] = (int)(peer - twin->peers);
    return 0;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    MILL_UNUSED(context);
    struct peer *peer = stream->user;
    peer->connected = true;
    if (error != 0) {
        /* A reset in answer to the SYN: the peer of a kernel socket sees it a little later. */
        peer->ended = true;
        peer->error = error == -ECONNREFUSED ? -ECONNRESET : error;
        peer->stream = NULL;
    }
}

static void drop_received(struct peer *peer)
{
    if (peer->stream->rx.size_bytes > 0) {
        peer->stream->ops->consume(peer->stream, peer->stream->rx.size_bytes);
    }
}

static void on_nothing(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    MILL_UNUSED(size_bytes);
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    MILL_UNUSED(context);
    struct peer *peer = stream->user;
    peer->ended = true;
    peer->error = end == MILL_END_CLOSED ? 0 : -ECONNRESET;
    peer->stream = NULL;
}

static const struct mill_stream_events peer_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_nothing,
    .room = on_nothing,
    .acked = on_acked,
    .closed = on_closed,
};

/* ---- the fixture ---- */

static void create_net(struct contract *contract, unsigned side,
                       const struct contract_limits *limits)
{
    struct twin *twin = contract->fixture_data;
    bool peers = side == PEER;
    struct mill_net_config config = {
        .address = NET + side + 1,
        .prefix_bits = 24,
        .secret = {17 + side, 4},
        .random_seed = 23 + side,
        .connections_max = peers ? PEERS_MAX : limits->connections_max,
        .refs_per_connection = peers ? 128 : limits->refs_per_connection,
        .arena_bytes_per_connection = peers ? PEER_ARENA_BYTES : limits->arena_bytes_per_connection,
        .rx_window_max = peers ? PEER_WINDOW_BYTES : limits->rx_window_max,
        .rx_budget_bytes = 256ull << 20,
    };
    mill_net_config_defaults(&config);
    struct mill_report report = {{0}};
    int error =
        peers ? mill_net_create(&config, mill_link_model_end(twin->model, side), &twin->peer_loans,
                                twin->peer_arena, &peer_events, twin, &twin->nets[side], &report)
              : mill_net_create(&config, mill_link_model_end(twin->model, side), &contract->loans,
                                contract->arena, &contract_events, contract, &twin->nets[side],
                                &report);
    if (error < 0) {
        fail_msg("net: %s", report.text);
    }
}

static void step(struct twin *twin, unsigned side)
{
    struct mill_stream_maker *maker = mill_net_maker(twin->nets[side]);
    maker->ops->step(maker, twin->now_ns);
    /* Devices read what they were given; their loans end. */
    mill_link_model_advance(twin->model, twin->now_ns);
}

static int open_over(struct contract *contract, const struct contract_limits *limits,
                     const struct mill_link_model_config *link)
{
    struct twin *twin = calloc(1, sizeof(*twin));
    assert_non_null(twin);
    contract->fixture_data = twin;
    twin->now_ns = MILL_NS_PER_S;
    twin->peer_arena = calloc(PEER_ARENA_UNITS, MILL_EXTENT_UNIT_BYTES);
    assert_non_null(twin->peer_arena);
    assert_int_equal(mill_loans_init(&twin->peer_loans, PEER_ARENA_UNITS, 1), 0);
    struct mill_loans *loans[2] = {&contract->loans, &twin->peer_loans};
    uint8_t *arenas[2] = {contract->arena, twin->peer_arena};
    twin->model = mill_link_model_create(link, loans, arenas);
    assert_non_null(twin->model);
    create_net(contract, BROKER, limits);
    create_net(contract, PEER, limits);
    contract->maker = mill_net_maker(twin->nets[BROKER]);
    struct mill_stream_maker *peers = mill_net_maker(twin->nets[PEER]);
    struct mill_report report = {{0}};
    assert_int_equal(contract->maker->ops->listen(contract->maker, zero_address, BROKER_PORT,
                                                  CONTRACT_LISTENER, &report),
                     0);
    assert_int_equal(peers->ops->listen(peers, zero_address, PEER_PORT, 0, &report), 0);
    /* Opening takes the time of the last step. */
    step(twin, BROKER);
    step(twin, PEER);
    return 0;
}

static int open_clean(struct contract *contract, const struct contract_limits *limits)
{
    const struct mill_link_model_config link = {
        .seed = 1, .delay_ns = 20000, .mtu = 1500, .pieces_max = 15};
    return open_over(contract, limits, &link);
}

static int open_rough(struct contract *contract, const struct contract_limits *limits)
{
    const struct mill_link_model_config link = {
        .seed = 2,
        .delay_ns = 100000,
        .starve_ppm = 10000,
        .mtu = 1400,
        .pieces_max = 3,
        .split_buffers = true,
    };
    return open_over(contract, limits, &link);
}

static void close_twin(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    for (unsigned side = 0; side < 2; side++) {
        struct mill_stream_maker *maker = mill_net_maker(twin->nets[side]);
        maker->ops->destroy(maker);
        mill_link_model_advance(twin->model, twin->now_ns);
    }
    assert_int_equal(mill_link_model_buffers(twin->model), 0);
    mill_link_model_destroy(twin->model);
    mill_loans_fini(&twin->peer_loans);
    free(twin->peer_arena);
    free(twin);
}

static uint64_t now_ns(struct contract *contract)
{
    const struct twin *twin = contract->fixture_data;
    return twin->now_ns;
}

static void turn(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    mill_link_model_advance(twin->model, twin->now_ns);
    step(twin, BROKER);
    step(twin, PEER);
    uint64_t next_ns = mill_link_model_next(twin->model);
    for (unsigned side = 0; side < 2; side++) {
        struct mill_stream_maker *maker = mill_net_maker(twin->nets[side]);
        next_ns = MILL_MIN(next_ns, maker->ops->deadline(maker));
    }
    next_ns = MILL_MAX(next_ns, twin->now_ns + MILL_NS_PER_US);
    twin->now_ns = MILL_MIN(next_ns, twin->now_ns + TURN_NS);
}

static int peer_connect(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    struct mill_stream_maker *maker = mill_net_maker(twin->nets[PEER]);
    struct peer *peer = peer_new(twin);
    uint8_t address[16];
    address_of(BROKER, address);
    assert_int_equal(maker->ops->connect(maker, address, BROKER_PORT, peer, &peer->stream), 0);
    return (int)(peer - twin->peers);
}

static int peer_accept(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    return twin->accepts_taken < twin->accepts_count ? twin->accepts[twin->accepts_taken++]
                                                     : -EAGAIN;
}

static ssize_t peer_send(struct contract *contract, int number, const void *bytes, size_t size)
{
    struct twin *twin = contract->fixture_data;
    struct peer *peer = &twin->peers[number];
    if (peer->ended) {
        return peer->error == 0 ? -EPIPE : peer->error;
    }
    size_t sent = 0;
    while (peer->connected && sent < size) {
        uint32_t refs = 0;
        uint32_t room = 0;
        peer->stream->ops->room(peer->stream, &refs, &room);
        uint32_t part = (uint32_t)MILL_MIN(size - sent, (size_t)MILL_STREAM_BYTES_MAX);
        part = MILL_MIN(part, room);
        if (part == 0 ||
            peer->stream->ops->send_bytes(peer->stream, (const uint8_t *)bytes + sent, part) < 0) {
            break;
        }
        sent += part;
    }
    if (sent > 0) {
        peer->stream->ops->push(peer->stream);
    }
    return sent > 0 ? (ssize_t)sent : -EAGAIN;
}

static ssize_t peer_recv(struct contract *contract, int number, void *bytes, size_t size)
{
    struct twin *twin = contract->fixture_data;
    struct peer *peer = &twin->peers[number];
    if (peer->ended) {
        return peer->error;
    }
    size = MILL_MIN(size, (size_t)peer->stream->rx.size_bytes);
    if (size == 0) {
        return peer->stream->rx_ended ? 0 : -EAGAIN;
    }
    struct mill_cursor cursor = mill_chain_cursor(&peer->stream->rx);
    assert_int_equal(mill_cursor_read(&cursor, bytes, (uint32_t)size), 0);
    peer->stream->ops->consume(peer->stream, (uint32_t)size);
    return (ssize_t)size;
}

/* A FIN from a peer that goes on reading. Streams have no such call, their close is deaf; so this
 * keeps what is unread aside and then opens the stack's ears again from inside. */
static void peer_finish(struct contract *contract, int number)
{
    struct twin *twin = contract->fixture_data;
    struct peer *peer = &twin->peers[number];
    if (!peer->ended) {
        struct mill_tcp *tcp = mill_tcp_of(peer->stream);
        struct mill_chain unread = peer->stream->rx;
        peer->stream->rx = (struct mill_chain){0};
        peer->stream->ops->close(peer->stream);
        peer->stream->rx = unread;
        mill_tcp_charge(twin->nets[PEER], tcp);
        tcp->deaf = false;
    }
}

static void peer_close(struct contract *contract, int number)
{
    struct twin *twin = contract->fixture_data;
    struct peer *peer = &twin->peers[number];
    if (!peer->ended) {
        peer->stream->ops->close(peer->stream);
        mill_tcp_of(peer->stream)->deaf = true; /* after a finish, close does nothing */
        drop_received(peer);
    }
}

static void peer_reset(struct contract *contract, int number)
{
    struct twin *twin = contract->fixture_data;
    struct peer *peer = &twin->peers[number];
    if (!peer->ended) {
        peer->stream->ops->abort(peer->stream);
    }
}

static void peer_address(struct contract *contract, bool somebody, uint8_t ret_address[16],
                         uint16_t *ret_port)
{
    MILL_UNUSED(contract);
    address_of(PEER, ret_address);
    *ret_port = somebody ? PEER_PORT : PORT_OF_NOBODY;
}

static struct contract_fixture fixture(const char *name,
                                       int (*open)(struct contract *contract,
                                                   const struct contract_limits *limits))
{
    return (struct contract_fixture){
        .name = name,
        .open = open,
        .close = close_twin,
        .turn = turn,
        .now_ns = now_ns,
        .peer_connect = peer_connect,
        .peer_accept = peer_accept,
        .peer_send = peer_send,
        .peer_recv = peer_recv,
        .peer_finish = peer_finish,
        .peer_close = peer_close,
        .peer_reset = peer_reset,
        .peer_address = peer_address,
    };
}

int main(void)
{
    const struct contract_fixture clean = fixture("net", open_clean);
    const struct contract_fixture rough = fixture("net/rough wire", open_rough);
    return contract_run(&clean) + contract_run(&rough);
}
