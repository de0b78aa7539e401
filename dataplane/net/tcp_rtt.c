/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 6298; see tcp_rtt.h. Pure arithmetic. */
#include "dataplane/net/tcp_rtt.h"

enum {
    BACKOFF_MAX = 12, /* beyond the 60 s limit for every rto_min */
};

void mill_rtt_init(struct mill_rtt *rtt, uint32_t rto_min_us)
{
    *rtt = (struct mill_rtt){.rto_us = MILL_RTO_INITIAL_US, .rto_min_us = rto_min_us};
}

void mill_rtt_sample(struct mill_rtt *rtt, uint32_t sample_us)
{
    sample_us = MILL_MIN(MILL_MAX(sample_us, 1u), (uint32_t)MILL_RTO_MAX_US);
    if (rtt->srtt_us == 0) {
        rtt->srtt_us = sample_us;
        rtt->rttvar_us = sample_us / 2;
    } else {
        uint32_t distance =
            rtt->srtt_us > sample_us ? rtt->srtt_us - sample_us : sample_us - rtt->srtt_us;
        rtt->rttvar_us = (3 * rtt->rttvar_us + distance) / 4;
        rtt->srtt_us = (uint32_t)((7 * (uint64_t)rtt->srtt_us + sample_us) / 8);
        rtt->srtt_us = MILL_MAX(rtt->srtt_us, 1u);
    }
    uint32_t spread = MILL_MAX((uint32_t)MILL_RTO_GRANULARITY_US, 4 * rtt->rttvar_us);
    rtt->rto_us =
        MILL_MIN(MILL_MAX(rtt->srtt_us + spread, rtt->rto_min_us), (uint32_t)MILL_RTO_MAX_US);
    rtt->backoff = 0;
}

void mill_rtt_progress(struct mill_rtt *rtt)
{
    if (rtt->backoff > MILL_RTO_KEPT_DOUBLINGS) {
        rtt->backoff = MILL_RTO_KEPT_DOUBLINGS;
    }
}

void mill_rtt_back_off(struct mill_rtt *rtt)
{
    if (rtt->backoff < BACKOFF_MAX) {
        rtt->backoff++;
    }
}

uint32_t mill_rtt_timeout_us(const struct mill_rtt *rtt)
{
    uint64_t timeout = (uint64_t)rtt->rto_us << rtt->backoff;
    return (uint32_t)MILL_MIN(timeout, (uint64_t)MILL_RTO_MAX_US);
}
