/* SPDX-License-Identifier: Apache-2.0 */
/* Reno; see tcp_cc.h. Pure arithmetic. */
#include "dataplane/net/tcp_cc.h"

uint32_t mill_cc_initial_window(uint32_t mss)
{
    return MILL_MIN(MILL_CC_INITIAL_SEGMENTS * mss, MILL_MAX(2 * mss, 14600u));
}

static void reno_start(struct mill_cc *cc, uint32_t mss)
{
    cc->mss = mss;
    cc->cwnd_bytes = mill_cc_initial_window(mss);
    cc->ssthresh_bytes = MILL_CC_CWND_MAX;
    cc->counted_bytes = 0;
}

static void reno_acked(struct mill_cc *cc, uint32_t bytes)
{
    if (cc->cwnd_bytes < cc->ssthresh_bytes) {
        cc->cwnd_bytes += MILL_MIN(bytes, MILL_CC_ABC_LIMIT * cc->mss);
    } else {
        cc->counted_bytes += MILL_MIN(bytes, cc->cwnd_bytes);
        if (cc->counted_bytes >= cc->cwnd_bytes) {
            cc->counted_bytes -= cc->cwnd_bytes;
            cc->cwnd_bytes += cc->mss;
        }
    }
    cc->cwnd_bytes = MILL_MIN(cc->cwnd_bytes, (uint32_t)MILL_CC_CWND_MAX);
}

static uint32_t half_flight(const struct mill_cc *cc, uint32_t flight_bytes)
{
    return MILL_MAX(flight_bytes / 2, 2 * cc->mss);
}

static void reno_congestion(struct mill_cc *cc, uint32_t flight_bytes)
{
    cc->ssthresh_bytes = half_flight(cc, flight_bytes);
    cc->cwnd_bytes = cc->ssthresh_bytes;
    cc->counted_bytes = 0;
}

static void reno_recovered(struct mill_cc *cc, uint32_t flight_bytes)
{
    /* RFC 6582, 3.2, step 3, option 1: no burst of everything the window would allow. */
    cc->cwnd_bytes = MILL_MIN(cc->ssthresh_bytes, MILL_MAX(flight_bytes, cc->mss) + cc->mss);
    cc->counted_bytes = 0;
}

static void reno_timeout(struct mill_cc *cc, uint32_t flight_bytes, bool first)
{
    if (first) {
        cc->ssthresh_bytes = half_flight(cc, flight_bytes);
    }
    cc->cwnd_bytes = cc->mss;
    cc->counted_bytes = 0;
}

static void reno_idle(struct mill_cc *cc)
{
    cc->cwnd_bytes = MILL_MIN(cc->cwnd_bytes, mill_cc_initial_window(cc->mss));
    cc->counted_bytes = 0;
}

const struct mill_cc_ops mill_cc_reno = {
    .name = "reno",
    .start = reno_start,
    .acked = reno_acked,
    .congestion = reno_congestion,
    .recovered = reno_recovered,
    .timeout = reno_timeout,
    .idle = reno_idle,
};
