/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: opening and refusing connections segment by segment: the conformance tests of the
 * handshake, blind attacks, floods, ARP, malformed frames. Method: the rig plays the peer. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "tests/unit/net/rig.h"

enum {
    ACK = MILL_TCP_ACK,
    SYN = MILL_TCP_SYN,
    RST = MILL_TCP_RST,
};

static void listen_handshake_basic(void **state)
{
    (void)state;
    for (unsigned combination = 0; combination < 8; combination++) {
        struct rig *rig = rig_make(NULL);
        struct rig_segment segment;
        uint8_t frame[256];
        struct mill_tcp_options options = {.has_mss = true,
                                           .mss = 1000,
                                           .has_wscale = (combination & 1) != 0,
                                           .wscale = 5,
                                           .sack_permitted = (combination & 2) != 0,
                                           .has_timestamp = (combination & 4) != 0,
                                           .ts_value = 77};
        uint32_t size = rig_build(rig, frame, SYN, rig->isn_peer, 0, 0, &options);
        rig_frame(rig, frame, size, 0);
        rig_step(rig);
        assert_true(rig_next(rig, &segment));
        assert_int_equal(segment.flags, SYN | ACK);
        assert_int_equal(segment.options.mss, 1460); /* MTU - 40 whatever the options (6691) */
        assert_int_equal(segment.options.has_wscale, options.has_wscale);
        assert_int_equal(segment.options.sack_permitted, options.sack_permitted);
        assert_int_equal(segment.options.has_timestamp, options.has_timestamp);
        assert_int_equal(segment.options.ts_echo, options.has_timestamp ? 77 : 0);
        rig->isn_ours = segment.raw_seq;
        rig->timestamps = options.has_timestamp;
        rig->ts_value = 78;
        rig_put(rig, ACK, 0, 0, 0);
        assert_int_equal(rig->accepted, 1);
        assert_int_equal(rig->stream->listener, 3);
        assert_int_equal(rig->stream->peer.port, RIG_PEER_PORT);
        assert_int_equal(rig_tcp(rig)->snd_wnd, 65535u << (options.has_wscale ? 5 : 0));
        rig_send(rig, 2000);
        uint32_t mss = options.has_timestamp ? 988 : 1000;
        rig_expect(rig, &segment, ACK, 0, 0, mss);
        assert_int_equal(segment.header_flags, MILL_FRAME_CSUM_IPV4 | MILL_FRAME_CSUM_TCP);
        rig_free(rig);
    }
}

static void mss_absent_and_tiny(void **state)
{
    (void)state;
    for (uint16_t mss = 0; mss < 2; mss++) {
        struct rig *rig = rig_make(NULL);
        struct rig_segment segment;
        uint8_t frame[256];
        struct mill_tcp_options options = {.has_mss = mss == 1, .mss = 1};
        rig_frame(rig, frame, rig_build(rig, frame, SYN, rig->isn_peer, 0, 0, &options), 0);
        rig_step(rig);
        assert_true(rig_next(rig, &segment));
        rig->isn_ours = segment.raw_seq;
        rig_put(rig, ACK, 0, 0, 0);
        assert_int_equal(rig_tcp(rig)->send_mss,
                         mss == 1 ? MILL_TCP_MSS_MIN : MILL_TCP_MSS_DEFAULT);
        rig_free(rig);
    }
}

static void synack_retry_then_drop(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    uint8_t frame[256];
    const struct mill_tcp_options none = {0};
    rig_frame(rig, frame, rig_build(rig, frame, SYN, rig->isn_peer, 0, 0, &none), 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    uint32_t iss = segment.raw_seq;
    const uint32_t waits_ms[] = {1000, 2000, 4000};
    for (size_t i = 0; i < MILL_COUNT_OF(waits_ms); i++) {
        rig_pass(rig, (waits_ms[i] - 10) * MILL_NS_PER_MS);
        rig_expect_none(rig);
        rig_pass(rig, 10 * MILL_NS_PER_MS);
        assert_true(rig_next(rig, &segment));
        assert_int_equal(segment.flags, SYN | ACK);
        assert_int_equal(segment.raw_seq, iss);
    }
    rig_pass(rig, 9 * MILL_NS_PER_S);
    rig_expect_none(rig);
    assert_int_equal(rig->net->half_open_flows.count, 0);
    rig_free(rig);
}

static void handshake_ack_lost_data_completes(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    uint8_t frame[256];
    const struct mill_tcp_options none = {0};
    rig_frame(rig, frame, rig_build(rig, frame, SYN, rig->isn_peer, 0, 0, &none), 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    rig->isn_ours = segment.raw_seq;
    rig_put(rig, ACK, 0, 0, 100);
    assert_int_equal(rig->accepted, 1);
    assert_int_equal(rig->received_bytes, 100);
    rig_free(rig);
}

static void syn_dup_same_isn_and_new_isn(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    uint8_t frame[256];
    const struct mill_tcp_options none = {0};
    uint32_t size = rig_build(rig, frame, SYN, rig->isn_peer, 0, 0, &none);
    rig_frame(rig, frame, size, 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    uint32_t iss = segment.raw_seq;
    rig_frame(rig, frame, size, 0); /* same number: the answer again */
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, SYN | ACK);
    assert_int_equal(segment.raw_seq, iss);
    size = rig_build(rig, frame, SYN, rig->isn_peer + 100000, 0, 0, &none);
    rig_frame(rig, frame, size, 0); /* another: a challenge, the entry stays */
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, ACK);
    assert_int_equal(segment.ack, 0);
    assert_int_equal(rig->net->half_open_flows.count, 1);
    rig->isn_ours = iss;
    rig_put(rig, RST, 0, 0, 0); /* what an honest peer answers to it */
    assert_int_equal(rig->net->half_open_flows.count, 0);
    rig_free(rig);
}

static void syn_flood_backlog(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    uint8_t frame[256];
    const struct mill_tcp_options none = {0};
    rig_handshake(rig, true, false);
    for (uint16_t i = 0; i < 100; i++) {
        rig->peer_port = (uint16_t)(50000 + i);
        rig_frame(rig, frame, rig_build(rig, frame, SYN, i, 0, 0, &none), 0);
        rig_step(rig);
    }
    rig->peer_port = RIG_PEER_PORT;
    uint32_t answers = 0;
    while (rig_next(rig, &segment)) {
        assert_int_equal(segment.flags, SYN | ACK); /* never a reset */
        answers++;
    }
    assert_int_equal(answers, 8);
    assert_int_equal(rig->net->counters.syn_dropped, 92);
    rig_put(rig, ACK, 0, 0, 100); /* the established flow does not notice */
    assert_int_equal(rig->received_bytes, 100);
    /* After a second a new SYN takes the place of a silent one. */
    rig_pass(rig, 1500 * MILL_NS_PER_MS);
    rig_drop_all(rig);
    rig->peer_port = 60000;
    rig_frame(rig, frame, rig_build(rig, frame, SYN, 5, 0, 0, &none), 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.peer_port, 60000);
    assert_int_equal(rig->net->half_open_flows.count, 8);
    rig_free(rig);
}

static void isn_unpredictable(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct mill_flow_key key = {RIG_ADDRESS, RIG_PEER, RIG_PORT, 1};
    uint32_t ups = 0;
    uint32_t last = mill_tcp_isn(rig->net, &key);
    for (uint16_t port = 2; port < 1002; port++) {
        key.peer_port = port;
        uint32_t isn = mill_tcp_isn(rig->net, &key);
        ups += isn > last;
        last = isn;
    }
    assert_in_range(ups, 400, 600); /* neighbours tell nothing of each other */
    uint32_t before = mill_tcp_isn(rig->net, &key);
    rig_pass(rig, MILL_NS_PER_S);
    assert_int_equal(mill_tcp_isn(rig->net, &key) - before, 250000); /* 4 us clock */
    rig_free(rig);
}

static void rst_exact_window_outside(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_put(rig, RST, (uint32_t)-1, 0, 0); /* outside */
    rig_put(rig, RST, 1u << 20, 0, 0);
    rig_expect_none(rig);
    rig_put(rig, RST, 1, 0, 0); /* inside: a challenge */
    rig_expect(rig, &segment, ACK, 0, 0, 0);
    for (int i = 0; i < 50; i++) {
        rig_put(rig, RST, 2, 0, 0);
    }
    rig_expect_none(rig); /* limited per connection */
    assert_int_equal(rig->closed, 0);
    rig_pass(rig, MILL_NS_PER_S);
    rig_put(rig, RST, 2, 0, 0);
    rig_expect(rig, &segment, ACK, 0, 0, 0);
    rig_put(rig, RST, 0, 0, 0); /* exact */
    assert_int_equal(rig->closed, 1);
    assert_int_equal(rig->end, MILL_END_RESET);
    rig_expect_none(rig);
    rig_free(rig);
}

static void syn_in_established(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_put(rig, SYN, 5, 0, 0);
    rig_expect(rig, &segment, ACK, 0, 0, 0);
    rig_put(rig, SYN, 5, 0, 0);
    rig_expect_none(rig);
    assert_int_equal(rig->closed, 0);
    rig_free(rig);
}

static void refuse_unknown_segments(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_put(rig, ACK, 10, 20, 5); /* a connection from before a restart */
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, RST);
    assert_int_equal(segment.seq, 20);
    rig_put(rig, MILL_TCP_FIN, 10, 0, 5); /* without ACK: seq 0, ack behind it */
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, RST | ACK);
    assert_int_equal(segment.raw_seq, 0);
    assert_int_equal(segment.ack, 16);
    rig_put(rig, RST | ACK, 10, 20, 0); /* never in reply to a reset */
    rig_expect_none(rig);
    rig_free(rig);
}

static void refused_by_core_is_reset(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    uint8_t frame[256];
    const struct mill_tcp_options none = {0};
    rig->refuse = true;
    rig_frame(rig, frame, rig_build(rig, frame, SYN, rig->isn_peer, 0, 0, &none), 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    rig->isn_ours = segment.raw_seq;
    rig_put(rig, ACK, 0, 0, 0);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, RST | ACK);
    assert_int_equal(rig->closed, 0); /* the core does not know it */
    assert_int_equal(rig->maker->stats.connections, 0);
    rig_free(rig);
}

static void frame_malformed_table(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    rig_handshake(rig, true, false);
    const struct {
        const char *what;
        uint32_t at;
        uint8_t value;
        bool sum; /* mend the sums after the change */
    } rows[] = {
        {"version 6", 14, 0x65, true},
        {"IHL 4", 14, 0x44, false},
        {"IHL past the packet", 14, 0x4f, false},
        {"total length past the frame", 16, 0x40, false},
        {"total length below the header", 17, 10, false},
        {"IPv4 checksum", 24, 0x55, false},
        {"fragment", 20, 0x20, true},
        {"fragment offset", 21, 5, true},
        {"other target", 33, 9, true},
        {"source is us", 29, 1, true},
        {"source is a group", 26, 0xe0, true},
        {"data offset 4", 46, 0x40, true},
        {"data offset past the segment", 46, 0xf0, true},
        {"TCP checksum", 50, 0xee, false},
        {"payload changed", 60, 0x77, false},
        {"port 0", 35, 0, false},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        uint8_t frame[256];
        const struct mill_tcp_options none = {0};
        uint32_t size = rig_build(rig, frame, ACK, rig->isn_peer + 1, rig->isn_ours + 1, 20, &none);
        frame[rows[i].at] = rows[i].value;
        if (rows[i].sum) {
            uint8_t ihl = frame[14];
            frame[14] = 0x45;
            rig_sum(frame, size);
            frame[14] = ihl;
            if (ihl != 0x45) { /* the header's own sum over the changed byte */
                frame[24] = (uint8_t)(frame[24] - (uint8_t)(ihl - 0x45));
            }
        }
        for (uint32_t split = 0; split < 30; split += 7) {
            rig_frame(rig, frame, size, split);
            rig_step(rig);
        }
        if (rig->received_bytes != 0) {
            fail_msg("accepted: %s", rows[i].what);
        }
    }
    /* Every length of a cut frame. */
    uint8_t frame[256];
    const struct mill_tcp_options none = {0};
    uint32_t size = rig_build(rig, frame, ACK, rig->isn_peer + 1, rig->isn_ours + 1, 20, &none);
    for (uint32_t cut = 1; cut < size; cut++) {
        rig_frame(rig, frame, cut, cut % 3 == 0 ? 5 : 0);
        rig_step(rig);
    }
    assert_int_equal(rig->received_bytes, 0);
    assert_true(rig->net->counters.rx_malformed > 0);
    assert_true(rig->net->counters.checksum_errors > 0);
    assert_true(rig->net->counters.rx_fragments > 0);
    rig_drop_all(rig);
    /* A good one in buffers of one byte, with padding behind it. */
    memset(frame + size, 0xaa, 30);
    rig_frame(rig, frame, size + 30, 1);
    rig_step(rig);
    assert_int_equal(rig->received_bytes, 20);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(rig->received[i], rig_byte(i));
    }
    rig_free(rig);
}

static void source_route_dropped(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    rig_handshake(rig, true, false);
    for (int kind = 0; kind < 3; kind++) {
        uint8_t plain[256];
        uint8_t frame[256];
        const struct mill_tcp_options none = {0};
        uint32_t size = rig_build(rig, plain, ACK, rig->isn_peer + 1, rig->isn_ours + 1, 20, &none);
        memcpy(frame, plain, 34);
        const uint8_t options[3][4] = {{131, 3, 4, 0}, {137, 3, 4, 0}, {1, 1, 7, 1}};
        memcpy(frame + 34, options[kind], 4);
        memcpy(frame + 38, plain + 34, size - 34);
        frame[14] = 0x46;
        mill_store_be16(frame + 16, (uint16_t)(size + 4 - 14));
        rig_sum(frame, size + 4);
        rig_frame(rig, frame, size + 4, 0);
        rig_step(rig);
    }
    assert_int_equal(rig->net->counters.rx_options, 2);
    assert_int_equal(rig->net->counters.rx_malformed, 1); /* option past the end */
    assert_int_equal(rig->received_bytes, 0);
    rig_free(rig);
}

/* -- ARP and ICMP -- */

static void build_arp(uint8_t *frame, uint16_t operation, uint32_t sender, uint8_t mac_last,
                      uint32_t target)
{
    memset(frame, 0xff, 6);
    const uint8_t mac[6] = {2, 0, 0, 0, 0, mac_last};
    memcpy(frame + 6, mac, 6);
    mill_store_be16(frame + 12, MILL_ETHERTYPE_ARP);
    mill_store_be16(frame + 14, 1);
    mill_store_be16(frame + 16, MILL_ETHERTYPE_IPV4);
    frame[18] = 6;
    frame[19] = 4;
    mill_store_be16(frame + 20, operation);
    memcpy(frame + 22, mac, 6);
    mill_store_be32(frame + 28, sender);
    memset(frame + 32, 0, 6);
    mill_store_be32(frame + 38, target);
}

static const struct mill_frame *last_caught(const struct rig *rig)
{
    assert_true(rig->caught_head != rig->caught_tail);
    return rig->caught[(rig->caught_tail - 1) % RIG_CAUGHT_MAX];
}

static void arp_reply_conflict_and_bound(void **state)
{
    (void)state;
    struct mill_net_config config = {.neighbours_max = 4};
    struct rig *rig = rig_make(&config);
    uint8_t frame[64];
    build_arp(frame, 1, RIG_PEER, 2, RIG_ADDRESS);
    rig_frame(rig, frame, 42, 0);
    rig_step(rig);
    const uint8_t *reply = last_caught(rig)->header;
    assert_int_equal(mill_load_be16(reply + 20), 2);
    assert_int_equal(mill_load_be32(reply + 28), RIG_ADDRESS);
    assert_int_equal(reply[5], 2);
    assert_int_equal(rig->net->counters.arp_requests_in, 1);
    build_arp(frame, 2, RIG_ADDRESS, 9, RIG_ADDRESS); /* somebody claims our address */
    rig_frame(rig, frame, 42, 0);
    rig_step(rig);
    assert_int_equal(rig->net->counters.arp_conflicts, 1);
    for (uint32_t i = 0; i < 100; i++) { /* many hosts, four entries */
        build_arp(frame, 1, 0xc6120010u + i, 3, RIG_ADDRESS);
        rig_frame(rig, frame, 42, 0);
        rig_step(rig);
        assert_non_null(mill_arp_resolve(rig->net, 0xc6120010u + i));
        rig_drop_all(rig);
    }
    /* An answer nobody asked for does not change a fresh entry. */
    build_arp(frame, 2, 0xc6120010u + 99, 66, RIG_ADDRESS);
    rig_frame(rig, frame, 42, 0);
    rig_step(rig);
    assert_int_equal(mill_arp_resolve(rig->net, 0xc6120010u + 99)[5], 3);
    rig_free(rig);
}

static void connect_to(struct rig *rig, struct mill_stream **stream)
{
    const uint8_t peer[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 2};
    assert_int_equal(rig->maker->ops->connect(rig->maker, peer, 7000, rig, stream), 0);
    rig_step(rig);
}

static void arp_retry_then_unreachable(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct mill_stream *stream;
    connect_to(rig, &stream);
    uint32_t asked = rig->caught_tail - rig->caught_head;
    assert_int_equal(asked, 1);
    rig_pass(rig, 2500 * MILL_NS_PER_MS);
    assert_int_equal(rig->caught_tail - rig->caught_head, 3);
    rig_pass(rig, 100 * MILL_NS_PER_S);
    assert_true(rig->connected);
    assert_int_equal(rig->connect_error, -EHOSTUNREACH);
    assert_true(rig->net->counters.arp_unresolved > 0);
    rig_free(rig);
}

static void active_open_and_refusal(void **state)
{
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        struct rig *rig = rig_make(NULL);
        struct rig_segment segment;
        struct mill_stream *stream;
        uint8_t frame[256];
        connect_to(rig, &stream);
        build_arp(frame, 2, RIG_PEER, 2, RIG_ADDRESS);
        rig_frame(rig, frame, 42, 0);
        rig_step(rig);
        assert_true(rig_next(rig, &segment));
        assert_int_equal(segment.flags, SYN);
        assert_int_equal(segment.peer_port, 7000);
        rig->isn_ours = segment.raw_seq;
        struct mill_tcp_options options = {.has_mss = true, .mss = 1460};
        uint32_t size = rig_build(rig, frame, refused ? RST | ACK : SYN | ACK, rig->isn_peer,
                                  segment.raw_seq + 1, 0, &options);
        mill_store_be16(frame + 34, 7000);
        mill_store_be16(frame + 36, mill_tcp_of(stream)->key.local_port);
        rig_sum(frame, size);
        rig_frame(rig, frame, size, 0);
        rig_step(rig);
        assert_true(rig->connected);
        assert_int_equal(rig->connect_error, refused ? -ECONNREFUSED : 0);
        if (!refused) {
            rig_expect(rig, &segment, ACK, 0, 0, 0);
        }
        rig_free(rig);
    }
}

/* Source ports are those of the configured range, each once per peer, and no other when it is used
 * up. */
static void active_open_own_ports(void **state)
{
    (void)state;
    enum {
        FIRST = 61000,
        COUNT = 4,
    };
    const uint8_t peer[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 2};
    struct mill_net_config config = {.own_port_first = FIRST, .own_port_last = FIRST + COUNT - 1};
    struct rig *rig = rig_make(&config);
    struct mill_stream *stream;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        connect_to(rig, &stream);
        uint32_t number = mill_tcp_of(stream)->key.local_port;
        assert_in_range(number, FIRST, FIRST + COUNT - 1);
        seen |= 1u << (number - FIRST);
    }
    assert_int_equal(seen, (1u << COUNT) - 1);
    assert_int_equal(rig->maker->ops->connect(rig->maker, peer, 7000, rig, &stream),
                     -EADDRNOTAVAIL);
    rig_free(rig);
}

static bool kernel_knows;

static int kernel_neighbour(void *link, uint32_t address, uint8_t ret_mac[6])
{
    MILL_UNUSED(link);
    memset(ret_mac, 0x42, 6);
    return kernel_knows && address == RIG_PEER ? 0 : -EAGAIN;
}

/* Where the kernel keeps ARP, its answer is used, and asked for again until it comes; no ARP is
 * sent. */
static void active_open_neighbour_of_the_kernel(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct mill_link_ops ops = *rig->link.ops;
    struct mill_stream *stream;
    ops.neighbour = kernel_neighbour;
    rig->link.ops = &ops;
    rig->link.caps.kernel_arp = true;
    kernel_knows = false;
    connect_to(rig, &stream);
    rig_pass(rig, 500 * MILL_NS_PER_MS);
    assert_int_equal(rig->caught_tail, rig->caught_head);
    kernel_knows = true;
    rig_pass(rig, 100 * MILL_NS_PER_MS);
    const struct mill_frame *frame = last_caught(rig);
    assert_int_equal(frame->header[0], 0x42);
    assert_int_equal(mill_load_be16(frame->header + 12), 0x0800);
    rig_drop_all(rig);
    rig_free(rig);
    /* It never finds out. */
    rig = rig_make(NULL);
    kernel_knows = false;
    rig->link.ops = &ops;
    rig->link.caps.kernel_arp = true;
    connect_to(rig, &stream);
    rig_pass(rig, 100 * MILL_NS_PER_S);
    assert_true(rig->connected);
    assert_int_equal(rig->connect_error, -EHOSTUNREACH);
    assert_int_equal(rig->caught_tail, rig->caught_head);
    rig_free(rig);
}

static void icmp_echo_answered_and_limited(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    uint8_t frame[128] = {0};
    const struct mill_tcp_options none = {0};
    rig_build(rig, frame, 0, 0, 0, 20, &none);
    frame[23] = MILL_IP_ICMP;
    memset(frame + 34, 0, 40);
    frame[34] = 8;
    frame[50] = 0x5a;
    uint16_t sum = 0;
    for (uint32_t i = 34; i < 74; i += 2) {
        uint32_t wide = (uint32_t)sum + mill_load_be16(frame + i);
        sum = (uint16_t)((wide & 0xffff) + (wide >> 16));
    }
    mill_store_be16(frame + 36, (uint16_t)~sum);
    rig_sum(frame, 74);
    for (int i = 0; i < 400; i++) {
        rig_frame(rig, frame, 74, 13);
        rig_step(rig);
        if (i == 0) {
            const uint8_t *reply = last_caught(rig)->header;
            assert_int_equal(reply[34], 0);
            assert_int_equal(reply[50], 0x5a);
        }
        rig_drop_all(rig);
    }
    assert_in_range(rig->net->counters.icmp_echo, 100, 399);
    assert_int_equal(rig->net->counters.icmp_echo + rig->net->counters.icmp_limited, 400);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listen_handshake_basic),
        cmocka_unit_test(mss_absent_and_tiny),
        cmocka_unit_test(synack_retry_then_drop),
        cmocka_unit_test(handshake_ack_lost_data_completes),
        cmocka_unit_test(syn_dup_same_isn_and_new_isn),
        cmocka_unit_test(syn_flood_backlog),
        cmocka_unit_test(isn_unpredictable),
        cmocka_unit_test(rst_exact_window_outside),
        cmocka_unit_test(syn_in_established),
        cmocka_unit_test(refuse_unknown_segments),
        cmocka_unit_test(refused_by_core_is_reset),
        cmocka_unit_test(frame_malformed_table),
        cmocka_unit_test(source_route_dropped),
        cmocka_unit_test(arp_reply_conflict_and_bound),
        cmocka_unit_test(arp_retry_then_unreachable),
        cmocka_unit_test(active_open_and_refusal),
        cmocka_unit_test(active_open_own_ports),
        cmocka_unit_test(active_open_neighbour_of_the_kernel),
        cmocka_unit_test(icmp_echo_answered_and_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
