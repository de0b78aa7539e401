/* SPDX-License-Identifier: Apache-2.0 */
/* The twin simulation; see net_twin.h. Invariants (checked as it goes): received bytes equal the
 * sent prefix, loans equal references queued or being read, sequence numbers are in order, a
 * connection that has something to do has a timer; and at the end both sides closed in order, all
 * buffers and loans are back. One thread. */
#include "tests/sim/net_twin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/clock.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/distribute.h"
#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

enum {
    UNITS = 2048,      /* 8 MiB of arena per side */
    EXTENT_UNITS = 16, /* 64 KiB extents */
    EXTENTS = UNITS / EXTENT_UNITS,
    EXTENT_BYTES = EXTENT_UNITS * MILL_EXTENT_UNIT_BYTES,
    PATTERN_BYTES = 1048573, /* prime: no alignment repeats */
    PORT = 9092,
};

/* One application connection. */
struct peer {
    struct side *side;
    struct mill_stream *stream;
    uint64_t to_send;
    uint64_t to_receive;
    uint64_t queued;
    uint64_t received;
    uint64_t acked;
    uint32_t salt; /* start in the pattern */
    bool used;
    bool connected;
    bool closed;
    bool close_called;
    bool resume_later;
    bool hungry; /* no extent was free */
    enum mill_stream_end end;
};

struct side {
    struct twin *twin;
    unsigned number;
    uint32_t nets_count;
    struct mill_net *nets[MILL_SPLIT_QUEUES_MAX]; /* one per core */
    struct mill_loans loans;
    uint8_t *arena;
    uint32_t extent_next;
    struct peer peers[MILL_TWIN_CONNECTIONS_MAX];
    uint32_t peers_count;
};

struct twin {
    const struct mill_twin_options *options;
    struct mill_link_model *model;
    struct mill_random random;
    struct side sides[2];
    struct mill_split_model *split; /* NULL: one server core */
    struct mill_distributor *distributor;
    bool woken; /* a frame waits in a ring between cores */
    uint8_t *pattern;
    uint64_t now_ns;
};

static void breach(const struct twin *twin, const char *what)
{
    fprintf(stderr, "twin: seed %llu at %llu ns: %s\n", (unsigned long long)twin->options->seed,
            (unsigned long long)twin->now_ns, what);
    abort();
}

#define CHECK(twin, condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            breach(twin, #condition);                                                              \
        }                                                                                          \
    } while (0)

static const uint8_t *pattern_at(const struct twin *twin, uint32_t salt, uint64_t position)
{
    return twin->pattern + (salt + position) % PATTERN_BYTES;
}

/* A free extent filled with the next bytes of the peer's stream; false when all are on loan. */
static bool take_extent(struct side *side, struct peer *peer, uint32_t size, struct mill_ref *ret)
{
    for (uint32_t tries = 0; tries < EXTENTS; tries++) {
        uint32_t extent = (side->extent_next++ % EXTENTS) * EXTENT_UNITS;
        if (mill_loan_free(&side->loans, extent)) {
            uint32_t pos = mill_random_below(&side->twin->random, EXTENT_BYTES - size + 1);
            *ret = (struct mill_ref){extent, pos, size};
            /* What is reused is overwritten: a late reader of old bytes would be seen. */
            memcpy(mill_ref_data(side->arena, ret),
                   pattern_at(side->twin, peer->salt, peer->queued), size);
            return true;
        }
    }
    return false;
}

static void send_some(struct side *side, struct peer *peer)
{
    struct mill_random *random = &side->twin->random;
    while (peer->queued < peer->to_send) {
        uint64_t left = peer->to_send - peer->queued;
        int rc;
        uint32_t size;
        if (mill_random_below(random, 4) == 0) {
            size = (uint32_t)MILL_MIN(left, 1ull + mill_random_below(random, 900));
            rc = peer->stream->ops->send_bytes(
                peer->stream, pattern_at(side->twin, peer->salt, peer->queued), size);
        } else {
            uint32_t most = side->twin->options->ref_bytes_max;
            size = (uint32_t)MILL_MIN(left, 1ull + mill_random_below(random, most));
            struct mill_ref ref;
            if (!take_extent(side, peer, size, &ref)) {
                peer->hungry = true;
                break;
            }
            rc = peer->stream->ops->send_ref(peer->stream, &ref);
        }
        if (rc < 0) {
            CHECK(side->twin, rc == -EAGAIN);
            break;
        }
        peer->queued += size;
        if (mill_random_below(random, 8) == 0 || peer->queued == peer->to_send) {
            peer->stream->ops->push(peer->stream);
        }
    }
    peer->stream->ops->push(peer->stream);
}

static void close_when_done(struct side *side, struct peer *peer)
{
    MILL_UNUSED(side);
    if (!peer->close_called && peer->queued == peer->to_send &&
        peer->received == peer->to_receive) {
        peer->close_called = true;
        peer->stream->ops->close(peer->stream);
    }
}

static void read_some(struct side *side, struct peer *peer)
{
    struct mill_chain *rx = &peer->stream->rx;
    uint32_t size = rx->size_bytes;
    struct mill_random *random = &side->twin->random;
    if (side->twin->options->slow_reader && size > 1) {
        size = 1 + mill_random_below(random, size);
        peer->resume_later = true;
    }
    struct mill_cursor cursor = mill_chain_cursor(rx);
    uint32_t left = size;
    while (left > 0) {
        const uint8_t *bytes;
        uint32_t run = MILL_MIN(mill_cursor_run(&cursor, &bytes), left);
        /* The other side's salt is the complement of ours. */
        const uint8_t *expected = pattern_at(side->twin, peer->salt ^ 0x5555, peer->received);
        CHECK(side->twin, memcmp(bytes, expected, run) == 0);
        peer->received += run;
        left -= run;
        int rc = mill_cursor_skip(&cursor, run);
        CHECK(side->twin, rc == 0);
    }
    CHECK(side->twin, peer->received <= peer->to_receive);
    peer->stream->ops->consume(peer->stream, size);
    close_when_done(side, peer);
}

/* -- events -- */

static struct peer *new_peer(struct side *side, uint32_t number)
{
    struct peer *peer = &side->peers[number];
    const struct mill_twin_options *options = side->twin->options;
    bool client = side->number == 0;
    *peer = (struct peer){.side = side,
                          .used = true,
                          .to_send = client ? options->bytes_up : options->bytes_down,
                          .to_receive = client ? options->bytes_down : options->bytes_up,
                          .salt = client ? 0x1234 : 0x1234 ^ 0x5555};
    return peer;
}

static void connect_peer(struct side *side, struct peer *peer)
{
    static const uint8_t server[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 2};
    struct mill_stream_maker *maker = mill_net_maker(side->nets[0]);
    int rc = maker->ops->connect(maker, server, PORT, peer, &peer->stream);
    CHECK(side->twin, rc == 0);
}

static int on_accepted(void *context, struct mill_stream *stream)
{
    struct side *side = context;
    CHECK(side->twin, side->peers_count < side->twin->options->connections);
    struct peer *peer = new_peer(side, side->peers_count++);
    peer->stream = stream;
    peer->connected = true;
    stream->user = peer;
    send_some(side, peer);
    return 0;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    struct side *side = context;
    struct peer *peer = stream->user;
    if (error == -ETIMEDOUT || error == -EHOSTUNREACH) { /* lost too often: try again */
        connect_peer(side, peer);
        return;
    }
    CHECK(side->twin, error == 0);
    peer->connected = true;
    send_some(side, peer);
    close_when_done(side, peer);
}

static void on_received(void *context, struct mill_stream *stream)
{
    read_some(context, stream->user);
}

static void on_room(void *context, struct mill_stream *stream)
{
    send_some(context, stream->user);
    close_when_done(context, stream->user);
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    struct side *side = context;
    struct peer *peer = stream->user;
    peer->acked += size_bytes;
    CHECK(side->twin, peer->acked <= peer->queued);
    CHECK(side->twin,
          stream->dead || peer->acked + stream->ops->unacked_bytes(stream) >= peer->acked);
    send_some(side, peer); /* extents may be free again */
    close_when_done(side, peer);
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    MILL_UNUSED(context);
    struct peer *peer = stream->user;
    peer->closed = true;
    peer->end = end;
    peer->stream = NULL;
}

static const struct mill_stream_events app_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_received,
    .room = on_room,
    .acked = on_acked,
    .closed = on_closed,
};

/* -- a middle box that takes options out of SYNs -- */

static void strip_options(void *context, unsigned from, const uint8_t *frame, uint32_t size_bytes)
{
    MILL_UNUSED(from);
    const struct mill_twin_options *options = context;
    bool tcp = size_bytes > MILL_HEADERS_BYTES && frame[12] == 8 && frame[13] == 0;
    if (!tcp || (frame[47] & MILL_TCP_SYN) == 0) {
        return;
    }
    /* The model owns the bytes; fillers in place of options keep the length. */
    uint8_t *bytes = (uint8_t *)(uintptr_t)frame;
    uint32_t end = MILL_ETHERNET_BYTES + MILL_IPV4_BYTES + (uint32_t)(bytes[46] >> 4) * 4;
    uint32_t at = MILL_HEADERS_BYTES;
    while (at < end && bytes[at] != 0) {
        uint32_t length = bytes[at] == 1 ? 1 : bytes[at + 1];
        bool strip = (bytes[at] == 4 && options->no_sack) ||
                     (bytes[at] == 8 && options->no_timestamps) ||
                     (bytes[at] == 3 && options->no_wscale);
        if (strip) {
            memset(bytes + at, 1, length);
        }
        at += length;
    }
    uint8_t *tcp_header = bytes + MILL_ETHERNET_BYTES + MILL_IPV4_BYTES;
    uint32_t tcp_bytes = size_bytes - MILL_ETHERNET_BYTES - MILL_IPV4_BYTES;
    memset(tcp_header + 16, 0, 2);
    uint16_t sum =
        mill_csum_add(mill_csum_pseudo(mill_load_be32(bytes + 26), mill_load_be32(bytes + 30),
                                       MILL_IP_TCP, (uint16_t)tcp_bytes),
                      mill_csum_sum(tcp_header, tcp_bytes));
    sum = (uint16_t)~sum;
    memcpy(tcp_header + 16, &sum, sizeof(sum));
}

/* -- checks -- */

/* References of one connection's queue: what its loans must be. */
static uint64_t queued_bytes(const struct mill_tcp *tcp)
{
    uint64_t bytes = 0;
    for (uint32_t i = tcp->queue.head; i != tcp->queue.tail; i++) {
        const struct mill_send_entry *entry = mill_send_queue_at(&tcp->queue, i);
        bytes += entry->ref.extent == MILL_SEND_ARENA ? 0 : entry->ref.size_bytes;
    }
    return bytes;
}

static void check_connection(const struct twin *twin, const struct mill_tcp *tcp)
{
    CHECK(twin, mill_seq_le(tcp->snd_una, tcp->snd_nxt));
    CHECK(twin, mill_seq_le(tcp->snd_nxt, mill_tcp_queue_end(tcp)));
    CHECK(twin, mill_seq_le(tcp->rcv_nxt, tcp->rcv_adv));
    CHECK(twin, tcp->board.sacked_bytes <= tcp->snd_nxt - tcp->snd_una);
    CHECK(twin, tcp->rx_charged == tcp->stream.rx.charge_bytes + tcp->ooo_charge);
    bool waits = tcp->snd_una != tcp->snd_nxt;
    bool timer = tcp->rto_due_ns != MILL_NEVER && mill_timer_armed(&tcp->timer_retransmit);
    CHECK(twin, !waits || timer || tcp->list != MILL_LIST_NONE);
}

/* ret: bytes that the stack's queue and pending frames hold loans for. */
static uint64_t check_net(const struct twin *twin, const struct mill_net *net)
{
    uint64_t references = 0;
    for (uint32_t i = 0; i < net->config.connections_max; i++) {
        const struct mill_tcp *tcp = &net->connections[i];
        if (tcp->stream.maker && !tcp->stream.dead && tcp->state != MILL_TCP_CLOSED &&
            tcp->state >= MILL_TCP_ESTABLISHED) {
            check_connection(twin, tcp);
            references += queued_bytes(tcp);
        }
    }
    for (uint32_t i = 0; i < net->tx_count; i++) {
        references += net->tx[i]->pieces_bytes;
    }
    CHECK(twin, net->rx_used_bytes <= net->config.rx_budget_bytes);
    return references;
}

static void check_side(const struct twin *twin, const struct side *side, bool deep)
{
    uint64_t loaned = 0;
    for (uint32_t n = 0; n < side->nets_count; n++) {
        loaned += check_net(twin, side->nets[n]);
    }
    if (deep) { /* the devices have read everything */
        CHECK(twin, side->loans.loaned_bytes == loaned);
    }
}
static bool finished(const struct twin *twin)
{
    for (unsigned s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < twin->options->connections; i++) {
            if (!twin->sides[s].peers[i].closed) {
                return false;
            }
        }
    }
    return true;
}

static void report_stuck(const struct twin *twin)
{
    fprintf(stderr, "twin: seed %llu is stuck\n", (unsigned long long)twin->options->seed);
    for (unsigned s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < twin->options->connections; i++) {
            const struct peer *peer = &twin->sides[s].peers[i];
            fprintf(stderr,
                    "  side %u peer %u: connected %d queued %llu acked %llu received %llu/%llu "
                    "closed %d\n",
                    s, i, peer->connected, (unsigned long long)peer->queued,
                    (unsigned long long)peer->acked, (unsigned long long)peer->received,
                    (unsigned long long)peer->to_receive, peer->closed);
            if (peer->stream) {
                const struct mill_tcp *tcp = mill_tcp_of(peer->stream);
                fprintf(stderr,
                        "    state %u una+%u wnd %u cwnd %u recovery %u rto %lld us list %u "
                        "rx %u ooo %u pers %d dup %u\n",
                        tcp->state, tcp->snd_nxt - tcp->snd_una, tcp->snd_wnd, tcp->cc.cwnd_bytes,
                        tcp->recovery, (long long)(tcp->rto_due_ns - twin->now_ns) / 1000,
                        tcp->list, tcp->stream.rx.size_bytes, tcp->ooo_charge, tcp->persisting,
                        tcp->dup_acks);
            }
        }
    }
}

/* -- the run -- */

static void create_side(struct twin *twin, unsigned number)
{
    struct side *side = &twin->sides[number];
    const struct mill_twin_options *options = twin->options;
    struct mill_net_config config = {
        .address = 0xc6120001u + number,
        .prefix_bits = 24,
        .secret = {options->seed * 3 + number, 99},
        .random_seed = options->seed + number,
        .connections_max = options->connections + 1, /* one ends while it is tried again */
        .half_open_max = options->connections + 1,
        .time_wait_max = 64,
        .neighbours_max = 8,
        .rx_window_max = options->rx_window_max,
        .rx_budget_bytes = 64ull << 20,
        .user_timeout_ms = options->user_timeout_ms,
        .fin_wait_2_ms = 3600000,
    };
    struct mill_report report = {{0}};
    side->nets_count = number == 1 && twin->split ? options->server_cores : 1;
    for (uint32_t i = 0; i < side->nets_count; i++) {
        const struct mill_link *link = mill_link_model_end(twin->model, number);
        if (side->nets_count > 1) {
            link = mill_distributor_link(twin->distributor, i);
        }
        config.silent = i > 0;
        int rc = mill_net_create(&config, link, &side->loans, side->arena, &app_events, side,
                                 &side->nets[i], &report);
        if (rc < 0) {
            breach(twin, report.text);
        }
    }
}

static void wake_core(void *context, uint32_t from, uint32_t to)
{
    struct twin *twin = context;
    CHECK(twin, from != to);
    twin->woken = true;
}

/* The server's queues and what deals frames out to its cores. */
static void create_cores(struct twin *twin)
{
    const struct mill_twin_options *options = twin->options;
    const struct mill_link *links[MILL_SPLIT_QUEUES_MAX];
    struct mill_report report = {{0}};
    uint32_t cores = options->server_cores;
    if (cores < 2) {
        return;
    }
    twin->split = mill_split_model_create(mill_link_model_end(twin->model, 1), cores,
                                          options->split, options->seed);
    for (uint32_t i = 0; i < cores; i++) {
        links[i] = mill_split_model_link(twin->split, i);
    }
    struct mill_distributor_config config = {
        .cores_count = cores,
        .rx_queues = options->split == MILL_SPLIT_FIRST ? 1 : cores,
        .links = links,
        .address = 0xc6120002u,
        .secret = {options->seed, 1},
        .flows_max = 256,
        .wake = {.wake = wake_core, .context = twin},
    };
    int rc = mill_distributor_create(&config, &twin->distributor, &report);
    CHECK(twin, rc == 0);
}

static void connect_all(struct twin *twin)
{
    static const uint8_t any[16] = {0};
    struct mill_stream_maker *maker;
    for (uint32_t i = 0; i < twin->sides[1].nets_count; i++) {
        maker = mill_net_maker(twin->sides[1].nets[i]);
        int rc = maker->ops->listen(maker, any, PORT, 0, NULL);
        CHECK(twin, rc == 0);
    }
    maker = mill_net_maker(twin->sides[0].nets[0]);
    /* One turn first: connects take the time of the last step. */
    maker->ops->step(maker, twin->now_ns);
    for (uint32_t i = 0; i < twin->options->connections; i++) {
        struct peer *peer = new_peer(&twin->sides[0], i);
        connect_peer(&twin->sides[0], peer);
    }
}

/* Extents come back with other connections' acknowledgements. */
static void feed_hungry(struct twin *twin)
{
    for (unsigned s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < twin->options->connections; i++) {
            struct peer *peer = &twin->sides[s].peers[i];
            if (peer->hungry && peer->stream) {
                peer->hungry = false;
                send_some(&twin->sides[s], peer);
                close_when_done(&twin->sides[s], peer);
            }
        }
    }
}

/* Slow readers come back to what they left. */
static bool resume_readers(struct twin *twin)
{
    bool any = false;
    for (unsigned s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < twin->options->connections; i++) {
            struct peer *peer = &twin->sides[s].peers[i];
            if (peer->resume_later && peer->stream && peer->stream->rx.size_bytes > 0) {
                any = true;
                bool pause = mill_random_below(&twin->random, 4) == 0;
                peer->stream->ops->pause(peer->stream, pause);
                read_some(&twin->sides[s], peer);
            } else if (peer->resume_later && peer->stream) {
                peer->stream->ops->pause(peer->stream, false);
                peer->resume_later = false;
            }
        }
    }
    return any;
}

static uint64_t next_moment(const struct twin *twin)
{
    uint64_t next = mill_link_model_next(twin->model);
    for (unsigned s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < twin->sides[s].nets_count; i++) {
            struct mill_stream_maker *maker = mill_net_maker(twin->sides[s].nets[i]);
            next = MILL_MIN(next, maker->ops->deadline(maker));
        }
    }
    bool waits = twin->woken || (twin->split && mill_split_model_waits(twin->split));
    return waits ? twin->now_ns : MILL_MAX(next, twin->now_ns);
}

static void step_all(struct twin *twin)
{
    twin->woken = false;
    for (unsigned s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < twin->sides[s].nets_count; i++) {
            struct mill_stream_maker *maker = mill_net_maker(twin->sides[s].nets[i]);
            maker->ops->step(maker, twin->now_ns);
        }
    }
}

static int run_loop(struct twin *twin, struct mill_twin_result *result)
{
    uint64_t end_ns = twin->now_ns + twin->options->limit_ns;
    uint64_t reader_ns = twin->now_ns;
    uint32_t same_time = 0;
    while (!finished(twin)) {
        mill_link_model_advance(twin->model, twin->now_ns);
        step_all(twin);
        result->steps++;
        feed_hungry(twin);
        mill_link_model_advance(twin->model, twin->now_ns);
        if (result->steps % 64 == 0 ||
            twin->options->bytes_up + twin->options->bytes_down < 1 << 20) {
            check_side(twin, &twin->sides[0], true);
            check_side(twin, &twin->sides[1], true);
        }
        if (finished(twin)) {
            break; /* what is left are TIME-WAIT timers */
        }
        uint64_t next = next_moment(twin);
        if (twin->options->slow_reader && reader_ns <= twin->now_ns && resume_readers(twin)) {
            reader_ns = twin->now_ns + 3 * MILL_NS_PER_MS;
        }
        if (twin->options->slow_reader) {
            next = MILL_MIN(next, MILL_MAX(reader_ns, twin->now_ns + MILL_NS_PER_MS));
        }
        same_time = next == twin->now_ns ? same_time + 1 : 0;
        CHECK(twin, same_time < 1000000); /* a deadline that never moves */
        if (next == MILL_NEVER || next > end_ns) {
            report_stuck(twin);
            return -1;
        }
        twin->now_ns = next;
    }
    return 0;
}

static void end_net(struct twin *twin, struct mill_net *net, struct mill_net_counters *counters,
                    struct mill_stream_stats *stats)
{
    struct mill_stream_maker *maker = mill_net_maker(net);
    CHECK(twin, maker->stats.connections == 0);
    CHECK(twin, maker->stats.bytes_copied_out == 0);
    CHECK(twin, net->rx_used_bytes == 0);
#define ADD(name, help) counters->name += mill_net_counters(net)->name;
    MILL_NET_COUNTERS(ADD)
#undef ADD
    *stats = maker->stats; /* of the last core */
    maker->ops->destroy(maker);
}

static void check_end(struct twin *twin, struct mill_twin_result *result)
{
    const struct mill_twin_options *options = twin->options;
    /* Devices read the last frames; late copies are still on the wire. */
    mill_link_model_advance(twin->model, twin->now_ns);
    for (unsigned s = 0; s < 2; s++) {
        struct side *side = &twin->sides[s];
        for (uint32_t i = 0; i < twin->options->connections; i++) {
            const struct peer *peer = &side->peers[i];
            if (peer->end != MILL_END_CLOSED && getenv("MILL_SIM_VERBOSE")) {
                fprintf(stderr, "twin: side %u peer %u end %d\n", s, i, (int)peer->end);
            }
            /* When every copy of a last FIN was lost for longer than the other side stays in
             * TIME-WAIT, it is answered by a reset: all bytes are there even then. */
            CHECK(twin, peer->end == MILL_END_CLOSED ||
                            (peer->end == MILL_END_RESET && options->link.loss_ppm >= 50000));
            CHECK(twin, peer->received == peer->to_receive);
        }
        for (uint32_t n = 0; n < side->nets_count; n++) {
            end_net(twin, side->nets[n], &result->counters[s], &result->stats[s]);
        }
        if (s == 1) {
            mill_distributor_destroy(twin->distributor);
            mill_split_model_destroy(twin->split);
        }
        mill_link_model_advance(twin->model, twin->now_ns);
        CHECK(twin, side->loans.loaned_bytes == 0);
    }
    CHECK(twin, mill_link_model_buffers(twin->model) == 0);
}

int mill_twin_run(const struct mill_twin_options *options, struct mill_twin_result *ret_result)
{
    struct twin *twin = calloc(1, sizeof(*twin));
    MILL_ASSERT(twin != NULL);
    twin->options = options;
    twin->random.state = options->seed ^ 0xabcdef;
    twin->now_ns = options->start_ns;
    twin->pattern = malloc(2 * PATTERN_BYTES);
    MILL_ASSERT(twin->pattern != NULL);
    struct mill_random content = {.state = 7};
    for (uint32_t i = 0; i < PATTERN_BYTES; i++) {
        twin->pattern[i] = (uint8_t)mill_random_next(&content);
        twin->pattern[PATTERN_BYTES + i] = twin->pattern[i];
    }
    struct mill_loans *loans[2];
    uint8_t *arenas[2];
    for (unsigned s = 0; s < 2; s++) {
        struct side *side = &twin->sides[s];
        side->twin = twin;
        side->number = s;
        side->arena = calloc(UNITS, MILL_EXTENT_UNIT_BYTES);
        MILL_ASSERT(side->arena != NULL);
        int rc = mill_loans_init(&side->loans, UNITS, 1);
        MILL_ASSERT_EQ(rc, 0);
        loans[s] = &side->loans;
        arenas[s] = side->arena;
    }
    twin->model = mill_link_model_create(&options->link, loans, arenas);
    MILL_ASSERT(twin->model != NULL);
    mill_link_model_tap(twin->model, strip_options, (void *)(uintptr_t)options);
    create_cores(twin);
    create_side(twin, 0);
    create_side(twin, 1);
    connect_all(twin);
    *ret_result = (struct mill_twin_result){0};
    uint64_t started_ns = twin->now_ns;
    int rc = run_loop(twin, ret_result);
    ret_result->elapsed_ns = twin->now_ns - started_ns;
    if (rc == 0) {
        check_end(twin, ret_result);
    }
    mill_link_model_destroy(twin->model);
    for (unsigned s = 0; s < 2; s++) {
        mill_loans_fini(&twin->sides[s].loans);
        free(twin->sides[s].arena);
    }
    free(twin->pattern);
    free(twin);
    return rc;
}
