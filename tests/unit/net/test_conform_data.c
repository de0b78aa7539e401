/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: data, windows, recovery and closing segment by segment. Method: the rig plays the peer. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/net/rig.h"

enum {
    ACK = MILL_TCP_ACK,
    FIN = MILL_TCP_FIN,
    RST = MILL_TCP_RST,
    MSS = 1460,
};

static void check_received(const struct rig *rig, uint32_t size)
{
    assert_int_equal(rig->received_bytes, size);
    for (uint32_t i = 0; i < size; i++) {
        assert_int_equal(rig->received[i], rig_byte(i));
    }
}

static void ack_beyond_snd_nxt_and_too_old(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_send(rig, 100);
    rig_expect(rig, &segment, ACK, 0, 0, 100);
    rig_put(rig, ACK, 0, 101, 50); /* never sent: an acknowledgement, nothing is taken */
    rig_expect(rig, &segment, ACK, 100, 0, 0);
    assert_int_equal(rig->received_bytes, 0);
    assert_int_equal(rig_tcp(rig)->snd_una, rig->isn_ours + 1);
    rig_pass(rig, MILL_NS_PER_MS * 600);
    rig_drop_all(rig);
    rig_put(rig, ACK, 0, (uint32_t)-200000, 50); /* older than any window */
    assert_int_equal(rig->received_bytes, 0);
    rig_put(rig, ACK, 0, 100, 50);
    check_received(rig, 50);
    rig_free(rig);
}

static void ooo_reassembly_overlap(void **state)
{
    (void)state;
    /* X is [1000, 2000); Y stands to it in each of the 13 ways. */
    const uint32_t rows[13][2] = {
        {500, 900},   {500, 1000},  {500, 1500},  {500, 2000},  {500, 2500},
        {1000, 1500}, {1000, 2000}, {1000, 2500}, {1200, 1800}, {1500, 2000},
        {1500, 2500}, {2000, 2500}, {2200, 2500},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        struct rig *rig = rig_make(NULL);
        rig_handshake(rig, true, false);
        rig_put(rig, ACK, 1000, 0, 1000);
        rig_put(rig, ACK, rows[i][0], 0, rows[i][1] - rows[i][0]);
        assert_int_equal(rig->received_bytes, 0);
        rig_put(rig, ACK, 0, 0, 1300);
        rig_put(rig, ACK, 1300, 0, 1200); /* whatever is missing; what is there stays */
        check_received(rig, 2500);
        assert_null(rig_tcp(rig)->ooo);
        assert_int_equal(rig->net->rx_used_bytes, 0);
        rig_free(rig);
    }
}

static void ooo_first_received_wins(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    rig_handshake(rig, true, false);
    rig_put(rig, ACK, 1000, 0, 100);
    /* The same numbers with other content, wider on both sides. */
    uint8_t frame[2048];
    const struct mill_tcp_options none = {0};
    uint32_t size =
        rig_build(rig, frame, ACK, rig->isn_peer + 1 + 900, rig->isn_ours + 1, 300, &none);
    memset(frame + size - 300, 0xee, 300);
    rig_sum(frame, size);
    rig_frame(rig, frame, size, 0);
    rig_step(rig);
    rig_put(rig, ACK, 0, 0, 900);
    assert_int_equal(rig->received_bytes, 1200);
    assert_int_equal(rig->received[999], 0xee);
    assert_int_equal(rig->received[1000], rig_byte(1000));
    assert_int_equal(rig->received[1099], rig_byte(1099));
    assert_int_equal(rig->received[1100], 0xee);
    rig_free(rig);
}

static void ooo_limit_and_sack_truth(void **state)
{
    (void)state;
    struct mill_net_config config = {.ooo_bytes_max = 8 * 2048};
    struct rig *rig = rig_make(&config);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    for (uint32_t i = 1; i <= 20; i++) {
        rig_put(rig, ACK, i * 100, 0, 10);
        while (rig_next(rig, &segment)) {
            for (uint8_t k = 0; k < segment.options.sack_count; k++) {
                /* Every reported byte is really kept. */
                bool kept = false;
                uint32_t start = segment.options.sack[k].start;
                for (const struct mill_buf *b = rig_tcp(rig)->ooo; b; b = b->next) {
                    kept = kept || b->hash == start;
                }
                assert_true(kept);
            }
        }
    }
    assert_true(rig_tcp(rig)->ooo_charge <= 8 * 2048);
    assert_int_equal(rig->net->counters.ooo_dropped, 12);
    /* A lower one pushes the highest out. */
    rig_put(rig, ACK, 50, 0, 10);
    assert_int_equal(rig_tcp(rig)->ooo->hash, rig->isn_peer + 1 + 50);
    assert_true(rig_tcp(rig)->ooo_charge <= 8 * 2048);
    rig_free(rig);
}

static void tiny_segments_are_compacted(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    rig_handshake(rig, true, false);
    rig->keep = true;
    for (uint32_t i = 0; i < 3000; i++) {
        rig_put(rig, ACK, i, 0, 1);
        rig_drop_all(rig);
    }
    assert_int_equal(rig->stream->rx.size_bytes, 3000);
    assert_true(rig->stream->rx.charge_bytes < 80 * 1024); /* not 3000 * 2048 */
    rig->keep = false;
    rig_put(rig, ACK, 3000, 0, 1);
    check_received(rig, 3001);
    rig_free(rig);
}

static void delayed_ack_rules(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_put(rig, ACK, 0, 0, MSS);
    rig_expect_none(rig);
    rig_pass(rig, 39 * MILL_NS_PER_MS);
    rig_expect_none(rig);
    rig_pass(rig, 2 * MILL_NS_PER_MS);
    rig_expect(rig, &segment, ACK, 0, MSS, 0);
    rig_put(rig, ACK, MSS, 0, MSS);
    rig_expect_none(rig);
    rig_put(rig, ACK, 2 * MSS, 0, MSS); /* the second one */
    rig_expect(rig, &segment, ACK, 0, 3 * MSS, 0);
    rig_put(rig, ACK, 4 * MSS, 0, MSS); /* a gap: at once */
    rig_expect(rig, &segment, ACK, 0, 3 * MSS, 0);
    assert_int_equal(segment.options.sack_count, 1);
    rig_put(rig, ACK, 3 * MSS, 0, MSS); /* filled: at once */
    rig_expect(rig, &segment, ACK, 0, 5 * MSS, 0);
    rig_put(rig, ACK, 3 * MSS, 0, MSS); /* all old: at once */
    rig_expect(rig, &segment, ACK, 0, 5 * MSS, 0);
    rig_put(rig, ACK | FIN, 5 * MSS, 0, 0);
    rig_expect(rig, &segment, ACK, 0, 5 * MSS + 1, 0);
    assert_true(rig->stream->rx_ended);
    rig_free(rig);
}

static void sws_receiver(void **state)
{
    (void)state;
    struct mill_net_config config = {.rx_window_max = 8192};
    struct rig *rig = rig_make(&config);
    struct rig_segment segment;
    rig->keep = true;
    rig_handshake(rig, true, false);
    uint32_t at = 0;
    for (; at + 1024 <= 8192; at += 1024) {
        rig_put(rig, ACK, at, 0, 1024);
    }
    rig_drop_all(rig);
    rig_put(rig, ACK, at, 0, 1); /* beyond a closed window: answered, not taken */
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.window, 0);
    assert_int_equal(segment.ack, at);
    rig->stream->ops->consume(rig->stream, 500); /* less than a segment: says nothing */
    rig_step(rig);
    rig_expect_none(rig);
    rig->stream->ops->consume(rig->stream, 1000);
    rig_step(rig);
    assert_true(rig_next(rig, &segment)); /* opened from 0: at once */
    assert_int_equal(segment.window, 1500);
    uint32_t edge = segment.ack + segment.window;
    for (int i = 0; i < 10; i++) { /* the right edge never moves back */
        rig_put(rig, ACK, at, 0, 100);
        at += 100;
        rig_pass(rig, 50 * MILL_NS_PER_MS);
        while (rig_next(rig, &segment)) {
            assert_int_equal(segment.ack + segment.window, edge);
        }
    }
    rig->stream->ops->consume(rig->stream, rig->stream->rx.size_bytes);
    rig_free(rig);
}

static void window_edge_stays_when_memory_shrinks(void **state)
{
    (void)state;
    struct mill_net_config config = {.rx_window_max = 8192, .rx_budget_bytes = 32768};
    struct rig *rig = rig_make(&config);
    struct rig_segment segment;
    rig->keep = true;
    rig_handshake(rig, true, false);
    uint32_t edge = 0;
    for (uint32_t at = 0; at < 1200; at += 100) { /* each segment costs 2048 of the budget */
        rig_put(rig, ACK, at, 0, 100);
        rig_pass(rig, 50 * MILL_NS_PER_MS);
        assert_true(rig_next(rig, &segment));
        assert_true(segment.ack + segment.window >= edge); /* what was told stays */
        edge = segment.ack + segment.window;
    }
    rig_free(rig);
}

static void sws_sender(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig->window = 3000;
    rig_handshake(rig, true, false);
    rig_send(rig, 6000);
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    rig_expect(rig, &segment, ACK, MSS, 0, MSS);
    rig_expect_none(rig); /* 80 bytes of window are left: silly */
    rig->window = 100;
    rig_put(rig, ACK, 0, 2 * MSS, 0);
    rig_expect_none(rig);
    rig_pass(rig, 199 * MILL_NS_PER_MS);
    rig_expect_none(rig);
    rig_pass(rig, 3 * MILL_NS_PER_MS); /* override timer */
    rig_expect(rig, &segment, ACK, 2 * MSS, 0, 100);
    rig->window = 3000;
    rig_put(rig, ACK, 0, 2 * MSS + 100, 0);
    rig_expect(rig, &segment, ACK, 2 * MSS + 100, 0, MSS);
    rig_free(rig);
}

static void zero_window_probe_backoff(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig->window = 0;
    rig_put(rig, ACK, 0, 0, 0);
    rig_send(rig, 5000);
    rig_expect_none(rig);
    uint64_t last_ns = rig->now_ns;
    uint64_t last_gap_ns = 0;
    uint32_t probes = 0;
    while (rig->now_ns < last_ns + 61 * MILL_NS_PER_S && probes < 20) {
        rig_pass(rig, 10 * MILL_NS_PER_MS);
        if (rig_next(rig, &segment)) {
            /* The Linux form: nothing at SND.UNA - 1, which must be answered. */
            assert_int_equal(segment.seq, (uint32_t)-1);
            assert_int_equal(segment.size_bytes, 0);
            uint64_t gap_ns = rig->now_ns - last_ns;
            assert_true(gap_ns + 20 * MILL_NS_PER_MS >= last_gap_ns);
            last_gap_ns = gap_ns;
            last_ns = rig->now_ns;
            probes++;
            rig_put(rig, ACK, 0, 0, 0); /* still closed: alive, not a failure */
        }
    }
    assert_int_equal(probes, 20); /* more than ten minutes */
    assert_true(last_gap_ns > 59 * MILL_NS_PER_S && last_gap_ns < 61 * MILL_NS_PER_S);
    assert_int_equal(rig->closed, 0);
    rig->window = 65535;
    rig_put(rig, ACK, 0, 0, 0);
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    rig_free(rig);
}

static void window_shrink(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_send(rig, 10 * MSS);
    rig_drop_all(rig);
    rig->window = 2 * MSS; /* takes back what is in flight */
    rig_put(rig, ACK, 0, MSS, 0);
    rig_expect_none(rig);
    rig_pass(rig, 500 * MILL_NS_PER_MS); /* the timer repeats only what fits */
    rig_expect(rig, &segment, ACK, MSS, 0, MSS);
    rig->window = 65535;
    rig_put(rig, ACK, 0, 10 * MSS, 0); /* it had everything after all */
    assert_int_equal(rig->acked, 10 * MSS);
    assert_int_equal(rig->loans.loaned_bytes, 0);
    rig_free(rig);
}

static void put_sack(struct rig *rig, uint32_t ack, uint32_t start, uint32_t end)
{
    const struct mill_tcp_options options = {.sack_count = 1, .sack = {{start, end}}};
    rig_put_options(rig, ACK, 0, ack, 0, &options);
}

static void rto_recovery_only_lost(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_send(rig, 4 * MSS);
    rig_drop_all(rig);
    put_sack(rig, 0, MSS, 2 * MSS); /* the second arrived */
    rig_drop_all(rig);
    rig_pass(rig, 250 * MILL_NS_PER_MS);
    rig_expect(rig, &segment, ACK, 0, 0, MSS); /* one segment */
    rig_expect_none(rig);
    assert_int_equal(rig_tcp(rig)->cc.cwnd_bytes, MSS);
    rig_put(rig, ACK, 0, 2 * MSS, 0); /* the marked one is not sent again */
    rig_expect(rig, &segment, ACK, 2 * MSS, 0, MSS);
    rig_expect(rig, &segment, ACK, 3 * MSS, 0, MSS);
    assert_int_equal(rig->net->counters.rto_fired, 1);
    rig_put(rig, ACK, 0, 4 * MSS, 0);
    assert_int_equal(rig->loans.loaned_bytes, 0);
    rig_pass(rig, 10 * MILL_NS_PER_S); /* nothing in flight: the timer is off */
    rig_expect_none(rig);
    rig_free(rig);
}

static void fast_retransmit_3dup_and_limited_transmit(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, false, false);
    rig_send(rig, 20 * MSS);
    for (uint32_t i = 0; i < 10; i++) {
        rig_expect(rig, &segment, ACK, i * MSS, 0, MSS);
    }
    rig_expect_none(rig);         /* the initial window */
    rig_put(rig, ACK, 0, 0, 100); /* carries data: no duplicate */
    rig_drop_all(rig);
    rig->window = 65000; /* a window change: no duplicate either */
    rig_put(rig, ACK, 100, 0, 0);
    rig_expect_none(rig);
    rig_put(rig, ACK, 100, 0, 0); /* first and second: one new segment each (RFC 3042) */
    rig_expect(rig, &segment, ACK, 10 * MSS, 100, MSS);
    rig_put(rig, ACK, 100, 0, 0);
    rig_expect(rig, &segment, ACK, 11 * MSS, 100, MSS);
    rig_put(rig, ACK, 100, 0, 0);
    rig_expect(rig, &segment, ACK, 0, 100, MSS);
    assert_int_equal(rig->net->counters.fast_retransmits, 1);
    assert_int_equal(rig_tcp(rig)->cc.ssthresh_bytes, 6 * MSS);
    rig_free(rig);
}

static void newreno_partial_acks(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, false, false);
    rig_send(rig, 10 * MSS);
    rig_drop_all(rig);
    for (int i = 0; i < 3; i++) {
        rig_put(rig, ACK, 0, 0, 0);
    }
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    rig_expect_none(rig);
    rig_put(rig, ACK, 0, 3 * MSS, 0); /* partial: the next hole at once */
    rig_expect(rig, &segment, ACK, 3 * MSS, 0, MSS);
    rig_expect_none(rig);
    rig_put(rig, ACK, 0, 7 * MSS, 0);
    rig_expect(rig, &segment, ACK, 7 * MSS, 0, MSS);
    rig_put(rig, ACK, 0, 10 * MSS, 0);
    rig_expect_none(rig);
    assert_int_equal(rig_tcp(rig)->recovery, MILL_RECOVERY_NONE);
    assert_int_equal(rig->net->counters.fast_retransmits, 1); /* one recovery for all */
    assert_int_equal(rig->net->counters.rto_fired, 0);
    rig_free(rig);
}

static void sack_scoreboard_pipe(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_send(rig, 10 * MSS);
    rig_drop_all(rig);
    put_sack(rig, 0, MSS, 2 * MSS); /* lost: 0 and 3 */
    put_sack(rig, 0, MSS, 3 * MSS);
    rig_drop_all(rig);
    assert_int_equal(rig->net->counters.fast_retransmits, 0);
    const struct mill_tcp_options two = {.sack_count = 2,
                                         .sack = {{4 * MSS, 5 * MSS}, {MSS, 3 * MSS}}};
    rig_put_options(rig, ACK, 0, 0, 0, &two);
    rig_expect(rig, &segment, ACK, 0, 0, MSS); /* rule 1 */
    rig_expect_none(rig);                      /* the pipe is full */
    assert_int_equal(mill_tcp_pipe(rig_tcp(rig)), 7 * MSS);
    const struct mill_tcp_options more = {.sack_count = 2,
                                          .sack = {{4 * MSS, 8 * MSS}, {MSS, 3 * MSS}}};
    rig_put_options(rig, ACK, 0, 0, 0, &more);
    rig_expect(rig, &segment, ACK, 3 * MSS, 0, MSS); /* three ranges' worth above: lost too */
    rig_put(rig, ACK, 0, 8 * MSS, 0);
    /* Rule 4: the last two are unknown; the highest is sent once. */
    rig_expect(rig, &segment, ACK, 9 * MSS, 0, MSS);
    rig_expect_none(rig);
    rig_put(rig, ACK, 0, 10 * MSS, 0);
    assert_int_equal(rig_tcp(rig)->recovery, MILL_RECOVERY_NONE);
    assert_int_equal(rig->loans.loaned_bytes, 0);
    rig_free(rig);
}

static void sack_reneging(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_send(rig, 3 * MSS);
    rig_drop_all(rig);
    put_sack(rig, 0, MSS, 3 * MSS);
    assert_true(rig->loans.loaned_bytes >= 3 * MSS); /* marked is not released */
    rig_drop_all(rig);
    rig_pass(rig, 250 * MILL_NS_PER_MS);
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    rig_pass(rig, 500 * MILL_NS_PER_MS); /* again without progress: marks are forgotten */
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    rig_put(rig, ACK, 0, MSS, 0); /* the peer threw the others away */
    rig_expect(rig, &segment, ACK, MSS, 0, MSS);
    rig_expect(rig, &segment, ACK, 2 * MSS, 0, MSS);
    rig_free(rig);
}

static void paws_and_ts_recent(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, true);
    rig->ts_value = 5; /* across the wrap: newer */
    rig_put(rig, ACK, 0, 0, 100);
    check_received(rig, 100);
    rig_pass(rig, 50 * MILL_NS_PER_MS);
    rig_expect(rig, &segment, ACK, 0, 100, 0);
    assert_int_equal(segment.options.ts_echo, 5);
    rig->ts_value = 4;
    rig_put(rig, ACK, 100, 0, 100); /* old: acknowledged, dropped */
    rig_expect(rig, &segment, ACK, 0, 100, 0);
    assert_int_equal(rig->net->counters.paws_dropped, 1);
    check_received(rig, 100);
    rig->ts_value = 9; /* out of order: TS.Recent stays, it starts after Last.ACK.sent */
    rig_put(rig, ACK, 200, 0, 100);
    rig_expect(rig, &segment, ACK, 0, 100, 0);
    assert_int_equal(segment.options.ts_echo, 5);
    rig->timestamps = false;
    rig_put(rig, ACK, 100, 0, 100); /* none at all: dropped in silence */
    rig_expect_none(rig);
    check_received(rig, 100);
    rig_put(rig, RST, 100, 0, 0); /* a reset needs none */
    assert_int_equal(rig->end, MILL_END_RESET);
    rig_free(rig);
}

static void cwnd_growth_abc_idle_applimited(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    struct mill_tcp *tcp = rig_tcp(rig);
    uint32_t start = tcp->cc.cwnd_bytes;
    rig_send(rig, 1000);
    rig_drop_all(rig);
    rig_put(rig, ACK, 0, 1000, 0);
    assert_int_equal(tcp->cc.cwnd_bytes, start); /* it was not what limited us */
    rig_send(rig, 30 * MSS);
    rig_drop_all(rig);
    rig_put(rig, ACK, 0, 1000 + 5 * MSS, 0);
    assert_int_equal(tcp->cc.cwnd_bytes, start + 2 * MSS); /* L = 2 */
    while (rig_next(rig, &segment)) {
    }
    rig_put(rig, ACK, 0, tcp->snd_nxt - rig->isn_ours - 1, 0);
    rig_drop_all(rig);
    while (tcp->snd_una != tcp->queue.seq_end) {
        rig_put(rig, ACK, 0, tcp->snd_nxt - rig->isn_ours - 1, 0);
        rig_drop_all(rig);
    }
    tcp->cc.cwnd_bytes = 100 * MSS;
    rig_pass(rig, 10 * MILL_NS_PER_S);
    rig_send(rig, 30 * MSS);
    uint32_t burst = 0;
    while (rig_next(rig, &segment)) {
        burst += segment.size_bytes;
    }
    assert_int_equal(burst, 10 * MSS); /* after idling: the initial window */
    rig_free(rig);
}

static void half_close_drains_responses(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_send(rig, 20 * MSS);
    rig_drop_all(rig);
    rig_put(rig, ACK | FIN, 0, 0, 0);
    rig_expect(rig, &segment, ACK, 10 * MSS, 1, 0);
    assert_true(rig->stream->rx_ended);
    rig->stream->ops->close(rig->stream);
    rig_step(rig);
    rig_put(rig, ACK, 1, 10 * MSS, 0);
    for (uint32_t i = 10; i < 19; i++) {
        rig_expect(rig, &segment, ACK, i * MSS, 1, MSS);
    }
    rig_expect(rig, &segment, ACK | FIN, 19 * MSS, 1, MSS); /* the last one with our FIN */
    rig_put(rig, ACK, 1, 20 * MSS, 0);
    assert_int_equal(rig->closed, 0);
    rig_pass(rig, 1500 * MILL_NS_PER_MS);
    rig_expect(rig, &segment, ACK | FIN, 20 * MSS, 1, 0); /* alone, again */
    rig_put(rig, ACK, 1, 20 * MSS + 1, 0);
    assert_int_equal(rig->closed, 1);
    assert_int_equal(rig->end, MILL_END_CLOSED);
    assert_int_equal(rig->loans.loaned_bytes, 0);
    rig_free(rig);
}

static void fin_ooo_fin_retx_simclose(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_put(rig, ACK | FIN, 100, 0, 50); /* early: no end before all is there */
    assert_false(rig->stream->rx_ended);
    rig_drop_all(rig);
    rig_put(rig, ACK, 0, 0, 100);
    assert_true(rig->stream->rx_ended);
    check_received(rig, 150);
    rig_expect(rig, &segment, ACK, 0, 151, 0);
    rig_free(rig);

    rig = rig_make(NULL); /* both close at once */
    rig_handshake(rig, true, false);
    rig->stream->ops->close(rig->stream);
    rig_step(rig);
    rig_expect(rig, &segment, ACK | FIN, 0, 0, 0);
    rig_put(rig, ACK | FIN, 0, 0, 0);
    rig_expect(rig, &segment, ACK, 1, 1, 0);
    assert_int_equal(rig_tcp(rig)->state, MILL_TCP_CLOSING);
    rig_put(rig, ACK, 1, 1, 0);
    assert_int_equal(rig->closed, 1);
    assert_int_equal(rig->net->time_wait_flows.count, 1);
    rig_pass(rig, 31 * MILL_NS_PER_S);
    assert_int_equal(rig->net->time_wait_flows.count, 0);
    rig_free(rig);

    rig = rig_make(NULL); /* CLOSING has a timer: a silent peer does not keep it for ever */
    rig_handshake(rig, true, false);
    rig->stream->ops->close(rig->stream);
    rig_step(rig);
    rig_put(rig, ACK | FIN, 0, 0, 0);
    rig_pass(rig, 40 * MILL_NS_PER_S);
    assert_int_equal(rig->closed, 1);
    assert_int_equal(rig->end, MILL_END_TIMEOUT);
    rig_free(rig);

    rig = rig_make(NULL); /* FIN-WAIT-2 neither */
    rig_handshake(rig, true, false);
    rig->stream->ops->close(rig->stream);
    rig_step(rig);
    rig_put(rig, ACK, 0, 1, 0);
    assert_int_equal(rig_tcp(rig)->state, MILL_TCP_FIN_WAIT_2);
    rig_pass(rig, 61 * MILL_NS_PER_S);
    assert_int_equal(rig->closed, 1);
    rig_free(rig);
}

static void time_wait_reuse_and_rst(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig->stream->ops->close(rig->stream);
    rig_step(rig);
    rig_put(rig, ACK, 0, 1, 0);
    rig_put(rig, ACK | FIN, 0, 1, 0);
    assert_int_equal(rig->closed, 1);
    assert_int_equal(rig->net->time_wait_flows.count, 1);
    rig_drop_all(rig);
    rig_put(rig, RST, 1, 0, 0); /* RFC 1337 */
    assert_int_equal(rig->net->time_wait_flows.count, 1);
    rig_pass(rig, 20 * MILL_NS_PER_S);
    rig_put(rig, ACK | FIN, 0, 1, 0); /* our last acknowledgement was lost: again, time restarts */
    rig_expect(rig, &segment, ACK, 1, 1, 0);
    rig_pass(rig, 20 * MILL_NS_PER_S);
    assert_int_equal(rig->net->time_wait_flows.count, 1);
    uint8_t frame[256];
    const struct mill_tcp_options none = {0};
    /* An old SYN is answered by an acknowledgement, a newer one opens. */
    rig_frame(rig, frame, rig_build(rig, frame, MILL_TCP_SYN, rig->isn_peer - 5, 0, 0, &none), 0);
    rig_step(rig);
    rig_expect(rig, &segment, ACK, 1, 1, 0);
    rig_frame(rig, frame, rig_build(rig, frame, MILL_TCP_SYN, rig->isn_peer + 500, 0, 0, &none), 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, MILL_TCP_SYN | ACK);
    assert_int_equal(rig->net->time_wait_flows.count, 0);
    rig_free(rig);
}

static void close_unread_still_delivers(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig->keep = true;
    rig_handshake(rig, true, false);
    rig_put(rig, ACK, 0, 0, 100);
    assert_int_equal(rig->stream->rx.size_bytes, 100);
    rig_send(rig, 10);
    rig->stream->ops->close(rig->stream);
    rig_step(rig);
    /* What was queued goes out and no reset makes the peer lose it. */
    rig_drop_all(rig);
    rig_put(rig, ACK, 100, 0, 50); /* dropped and acknowledged, in FIN-WAIT-1 */
    rig_expect(rig, &segment, ACK, 11, 150, 0);
    rig_put(rig, ACK, 150, 11, 0);
    assert_int_equal(rig_tcp(rig)->state, MILL_TCP_FIN_WAIT_2);
    rig_put(rig, ACK, 150, 11, 60); /* and in FIN-WAIT-2 */
    rig_expect(rig, &segment, ACK, 11, 210, 0);
    assert_int_equal(rig->net->rx_used_bytes, 0);
    assert_int_equal(rig->closed, 0);
    rig_put(rig, ACK | FIN, 210, 11, 0);
    assert_int_equal(rig->closed, 1);
    assert_int_equal(rig->end, MILL_END_CLOSED);
    assert_int_equal(rig->net->counters.resets_out, 0);
    rig_free(rig);
}

static void retx_while_in_tx_ring_and_pin_lifecycle(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig_send(rig, MSS);
    assert_int_equal(rig->loans.loaned_bytes, 2 * MSS); /* queue and device (D4) */
    rig_pass(rig, 250 * MILL_NS_PER_MS);                /* sent again while the first waits */
    assert_int_equal(rig->loans.loaned_bytes, 3 * MSS);
    rig_put(rig, ACK, 0, MSS, 0);
    assert_int_equal(rig->loans.loaned_bytes, 2 * MSS); /* the devices' copies stay */
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    assert_int_equal(rig->loans.loaned_bytes, 0);
    rig_free(rig);
}

static void txburst_short_order(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    struct rig_segment segment;
    rig_handshake(rig, true, false);
    rig->send_limit = 0;
    struct mill_ref ref = {0, 0, 5 * MSS > 4096 ? 4096 : 5 * MSS};
    for (uint32_t i = 0; i < ref.size_bytes; i++) {
        rig->arena[i] = rig_byte(i);
    }
    assert_int_equal(rig->stream->ops->send_ref(rig->stream, &ref), 0);
    rig->stream->ops->push(rig->stream);
    rig->maker->ops->step(rig->maker, rig->now_ns);
    rig->maker->ops->step(rig->maker, rig->now_ns);
    rig_expect_none(rig);
    rig->stream->ops->abort(rig->stream); /* even now pending frames hold their loans */
    assert_true(rig->loans.loaned_bytes >= 4096);
    rig->send_limit = 1;
    for (int i = 0; i < 10; i++) {
        rig->maker->ops->step(rig->maker, rig->now_ns);
    }
    rig_expect(rig, &segment, ACK, 0, 0, MSS);
    rig_expect(rig, &segment, ACK, MSS, 0, MSS);
    rig_expect(rig, &segment, ACK, 2 * MSS, 0, 4096 - 2 * MSS);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, RST | ACK);
    assert_int_equal(rig->loans.loaned_bytes, 0);
    rig_free(rig);
}

static void user_timeout_and_karn(void **state)
{
    (void)state;
    struct rig *rig = rig_make(NULL);
    rig_handshake(rig, true, false);
    uint32_t srtt = rig_tcp(rig)->rtt.srtt_us;
    rig_send(rig, MSS);
    rig_pass(rig, 300 * MILL_NS_PER_MS);
    rig_put(rig, ACK, 0, MSS, 0); /* of which copy? no sample */
    assert_int_equal(rig_tcp(rig)->rtt.srtt_us, srtt);
    rig_send(rig, MSS);
    rig_pass(rig, 31 * MILL_NS_PER_S);
    assert_int_equal(rig->closed, 1);
    assert_int_equal(rig->end, MILL_END_TIMEOUT);
    assert_int_equal(rig->net->counters.timeouts, 1);
    rig_free(rig);
}

static void send_queue_limits_and_room(void **state)
{
    (void)state;
    struct mill_net_config config = {.refs_per_connection = 4};
    struct rig *rig = rig_make(&config);
    rig_handshake(rig, true, false);
    struct mill_ref ref = {0, 0, 64};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rig->stream->ops->send_ref(rig->stream, &ref), 0);
    }
    assert_int_equal(rig->stream->ops->send_ref(rig->stream, &ref), -EAGAIN);
    assert_int_equal(rig->stream->ops->send_bytes(rig->stream, "x", 1), -EAGAIN);
    uint32_t refs;
    uint32_t bytes;
    rig->stream->ops->room(rig->stream, &refs, &bytes);
    assert_int_equal(refs, 0);
    assert_int_equal(rig->stream->ops->unacked_bytes(rig->stream), 256);
    rig->stream->ops->push(rig->stream);
    rig_step(rig);
    rig_put(rig, ACK, 0, 256, 0);
    assert_int_equal(rig->room_events, 1);
    assert_int_equal(rig->acked, 256);
    rig->stream->ops->close(rig->stream);
    assert_int_equal(rig->stream->ops->send_ref(rig->stream, &ref), -EPIPE);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ack_beyond_snd_nxt_and_too_old),
        cmocka_unit_test(ooo_reassembly_overlap),
        cmocka_unit_test(ooo_first_received_wins),
        cmocka_unit_test(ooo_limit_and_sack_truth),
        cmocka_unit_test(tiny_segments_are_compacted),
        cmocka_unit_test(delayed_ack_rules),
        cmocka_unit_test(sws_receiver),
        cmocka_unit_test(window_edge_stays_when_memory_shrinks),
        cmocka_unit_test(sws_sender),
        cmocka_unit_test(zero_window_probe_backoff),
        cmocka_unit_test(window_shrink),
        cmocka_unit_test(rto_recovery_only_lost),
        cmocka_unit_test(fast_retransmit_3dup_and_limited_transmit),
        cmocka_unit_test(newreno_partial_acks),
        cmocka_unit_test(sack_scoreboard_pipe),
        cmocka_unit_test(sack_reneging),
        cmocka_unit_test(paws_and_ts_recent),
        cmocka_unit_test(cwnd_growth_abc_idle_applimited),
        cmocka_unit_test(half_close_drains_responses),
        cmocka_unit_test(fin_ooo_fin_retx_simclose),
        cmocka_unit_test(time_wait_reuse_and_rst),
        cmocka_unit_test(close_unread_still_delivers),
        cmocka_unit_test(retx_while_in_tx_ring_and_pin_lifecycle),
        cmocka_unit_test(txburst_short_order),
        cmocka_unit_test(user_timeout_and_karn),
        cmocka_unit_test(send_queue_limits_and_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
