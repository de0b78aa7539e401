/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the small pure parts of TCP: sequence arithmetic, checksum, options, RTO numbers of
 * RFC 6298 worked by hand, Reno's growth. Method: tables, and a naive checksum beside ours. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/random.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/seq.h"
#include "dataplane/net/tcp_cc.h"
#include "dataplane/net/tcp_options.h"
#include "dataplane/net/tcp_rtt.h"

static void test_seq_compare_across_wrap(void **state)
{
    (void)state;
    assert_true(mill_seq_lt(0xfffffff0u, 0x10));
    assert_false(mill_seq_lt(0x10, 0xfffffff0u));
    assert_true(mill_seq_le(5, 5));
    assert_false(mill_seq_lt(5, 5));
    assert_int_equal(mill_seq_max(0xffffffffu, 1), 1);
    assert_int_equal(mill_seq_min(0xffffffffu, 1), 0xffffffffu);
}

static uint16_t naive_sum(const uint8_t *bytes, size_t size)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return __builtin_bswap16((uint16_t)sum);
}

static bool same_sum(uint16_t a, uint16_t b)
{
    return a == b || (a % 0xffff == 0 && b % 0xffff == 0);
}

static void no_free(struct mill_buf *buf)
{
    (void)buf;
}

static void test_checksum_equals_naive_also_in_pieces(void **state)
{
    (void)state;
    struct mill_random random = {.state = 3};
    uint8_t bytes[300];
    for (int round = 0; round < 2000; round++) {
        size_t size = mill_random_below(&random, sizeof(bytes) + 1);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)mill_random_next(&random);
        }
        assert_true(same_sum(mill_csum_sum(bytes, size), naive_sum(bytes, size)));
        struct mill_chain chain = {0};
        struct mill_buf bufs[8];
        uint32_t at = 0;
        for (int i = 0; i < 8; i++) {
            uint32_t left = (uint32_t)size - at;
            uint32_t part = i == 7 ? left : mill_random_below(&random, left + 1);
            bufs[i] = (struct mill_buf){.data = bytes + at, .size_bytes = part, .free = no_free};
            mill_chain_append(&chain, &bufs[i]);
            at += part;
        }
        uint32_t skip = mill_random_below(&random, (uint32_t)size + 1);
        uint32_t want = (uint32_t)size - skip;
        assert_true(
            same_sum(mill_csum_sum_chain(chain.head, skip, want), naive_sum(bytes + skip, want)));
    }
}

static void test_options_malformed_refused(void **state)
{
    (void)state;
    const struct {
        uint8_t bytes[12];
        uint32_t size;
        int rc;
    } rows[] = {
        {{0}, 0, 0},
        {{1, 1, 1, 0, 99}, 5, 0},      /* after the end anything goes */
        {{254, 4, 1, 2}, 4, 0},        /* unknown kind */
        {{2, 0, 5, 180}, 4, -EBADMSG}, /* length 0: no endless loop */
        {{2, 1, 5, 180}, 4, -EBADMSG},
        {{2, 4, 5}, 3, -EBADMSG}, /* past the end */
        {{2}, 1, -EBADMSG},       /* no length */
        {{2, 3, 5}, 3, -EBADMSG}, /* wrong length for MSS */
        {{3, 4, 7, 0}, 4, -EBADMSG},
        {{4, 3, 0}, 3, -EBADMSG},
        {{8, 9, 0, 0, 0, 0, 0, 0, 0}, 9, -EBADMSG},
        {{5, 2}, 2, -EBADMSG},
        {{5, 9, 0, 0, 0, 0, 0, 0, 0}, 9, -EBADMSG},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        struct mill_tcp_options options;
        assert_int_equal(mill_tcp_options_parse(rows[i].bytes, rows[i].size, true, &options),
                         rows[i].rc);
    }
}

static void test_options_round_trip(void **state)
{
    (void)state;
    uint8_t bytes[MILL_TCP_OPTION_BYTES_MAX];
    struct mill_tcp_options in = {.has_mss = true,
                                  .mss = 1460,
                                  .has_wscale = true,
                                  .wscale = 7,
                                  .sack_permitted = true,
                                  .has_timestamp = true,
                                  .ts_value = 0x01020304,
                                  .ts_echo = 0xfffefdfc};
    uint32_t size = mill_tcp_options_write_syn(bytes, &in);
    assert_int_equal(size % 4, 0);
    struct mill_tcp_options out;
    assert_int_equal(mill_tcp_options_parse(bytes, size, true, &out), 0);
    assert_int_equal(out.mss, 1460);
    assert_int_equal(out.wscale, 7);
    assert_true(out.has_wscale && out.sack_permitted && out.has_timestamp);
    assert_int_equal(out.ts_value, in.ts_value);
    assert_int_equal(out.ts_echo, in.ts_echo);
    /* Outside of a SYN they do not count. */
    assert_int_equal(mill_tcp_options_parse(bytes, size, false, &out), 0);
    assert_false(out.has_mss || out.has_wscale || out.sack_permitted);
    /* Beside a timestamp three blocks fit, without it four. */
    in.sack_count = 4;
    for (uint32_t i = 0; i < 4; i++) {
        in.sack[i] = (struct mill_sack_range){i * 10, i * 10 + 5};
    }
    size = mill_tcp_options_write(bytes, &in);
    assert_int_equal(mill_tcp_options_parse(bytes, size, false, &out), 0);
    assert_int_equal(out.sack_count, 3);
    in.has_timestamp = false;
    size = mill_tcp_options_write(bytes, &in);
    assert_int_equal(mill_tcp_options_parse(bytes, size, false, &out), 0);
    assert_int_equal(out.sack_count, 4);
    assert_int_equal(out.sack[3].end, 35);
}

static void test_options_wscale_above_14_is_14(void **state)
{
    (void)state;
    const uint8_t bytes[] = {3, 3, 15};
    struct mill_tcp_options options;
    assert_int_equal(mill_tcp_options_parse(bytes, 3, true, &options), 0);
    assert_int_equal(options.wscale, 14);
}

static void test_rto_estimator_golden(void **state)
{
    (void)state;
    struct mill_rtt rtt;
    mill_rtt_init(&rtt, 200000);
    assert_int_equal(mill_rtt_timeout_us(&rtt), 1000000); /* 2.1 */
    mill_rtt_sample(&rtt, 100000);                        /* 2.2: 100 + 4 * 50 */
    assert_int_equal(rtt.srtt_us, 100000);
    assert_int_equal(rtt.rttvar_us, 50000);
    assert_int_equal(mill_rtt_timeout_us(&rtt), 300000);
    mill_rtt_sample(&rtt, 200000); /* 2.3: var = 3/4 * 50 + 1/4 * 100, srtt = 7/8 * 100 + 25 */
    assert_int_equal(rtt.rttvar_us, 62500);
    assert_int_equal(rtt.srtt_us, 112500);
    assert_int_equal(mill_rtt_timeout_us(&rtt), 362500);
    mill_rtt_back_off(&rtt); /* 5.5 */
    assert_int_equal(mill_rtt_timeout_us(&rtt), 725000);
    for (int i = 0; i < 30; i++) {
        mill_rtt_back_off(&rtt);
    }
    assert_int_equal(mill_rtt_timeout_us(&rtt), MILL_RTO_MAX_US);
    mill_rtt_progress(&rtt); /* progress without a sample: most of it ends */
    assert_int_equal(mill_rtt_timeout_us(&rtt), 4 * 362500);
    mill_rtt_sample(&rtt, 112500); /* a valid sample ends it */
    assert_true(mill_rtt_timeout_us(&rtt) < 400000);
    /* A steady short trip: the floor, and never less than a granule above the trip. */
    for (int i = 0; i < 200; i++) {
        mill_rtt_sample(&rtt, 50);
    }
    assert_int_equal(mill_rtt_timeout_us(&rtt), 200000);
    mill_rtt_init(&rtt, 1);
    for (int i = 0; i < 200; i++) {
        mill_rtt_sample(&rtt, 50);
    }
    assert_int_equal(mill_rtt_timeout_us(&rtt), 50 + MILL_RTO_GRANULARITY_US);
}

static void test_reno_grows_by_bytes_and_halves(void **state)
{
    (void)state;
    struct mill_cc cc = {.ops = &mill_cc_reno};
    cc.ops->start(&cc, 1460);
    assert_int_equal(cc.cwnd_bytes, 14600); /* RFC 6928 */
    cc.ops->acked(&cc, 1460);
    assert_int_equal(cc.cwnd_bytes, 16060);
    cc.ops->acked(&cc, 100 * 1460); /* L = 2 */
    assert_int_equal(cc.cwnd_bytes, 16060 + 2920);
    for (int i = 0; i < 1460; i++) {
        cc.ops->acked(&cc, 1); /* divided acknowledgements gain nothing */
    }
    assert_int_equal(cc.cwnd_bytes, 16060 + 2920 + 1460);
    cc.ops->congestion(&cc, 20440);
    assert_int_equal(cc.cwnd_bytes, 10220);
    cc.ops->acked(&cc, 10219);
    assert_int_equal(cc.cwnd_bytes, 10220);
    cc.ops->acked(&cc, 1);
    assert_int_equal(cc.cwnd_bytes, 11680);
    cc.ops->timeout(&cc, 11680, true);
    assert_int_equal(cc.cwnd_bytes, 1460);
    assert_int_equal(cc.ssthresh_bytes, 5840);
    cc.ops->timeout(&cc, 1460, false); /* once per loss */
    assert_int_equal(cc.ssthresh_bytes, 5840);
    cc.cwnd_bytes = 1000000;
    cc.ops->idle(&cc);
    assert_int_equal(cc.cwnd_bytes, 14600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seq_compare_across_wrap),
        cmocka_unit_test(test_checksum_equals_naive_also_in_pieces),
        cmocka_unit_test(test_options_malformed_refused),
        cmocka_unit_test(test_options_round_trip),
        cmocka_unit_test(test_options_wscale_above_14_is_14),
        cmocka_unit_test(test_rto_estimator_golden),
        cmocka_unit_test(test_reno_grows_by_bytes_and_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
