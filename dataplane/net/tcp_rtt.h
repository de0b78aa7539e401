/* SPDX-License-Identifier: Apache-2.0 */
/* Round-trip estimator and retransmission timeout, RFC 6298, in microseconds. Pure. */
#ifndef MILL_DATAPLANE_NET_TCP_RTT_H
#define MILL_DATAPLANE_NET_TCP_RTT_H

#include "base/check.h"

enum {
    MILL_RTO_KEPT_DOUBLINGS = 2,
    MILL_RTO_INITIAL_US = 1000000,   /* RFC 6298, 2.1 */
    MILL_RTO_AFTER_SYN_US = 3000000, /* 5.7: when the SYN was sent again and nothing measured */
    MILL_RTO_MAX_US = 60000000,      /* 2.5 */
    MILL_RTO_GRANULARITY_US = 1000,  /* G: one tick of the wheel */
};

struct mill_rtt {
    uint32_t srtt_us; /* 0: no sample yet */
    uint32_t rttvar_us;
    uint32_t rto_us; /* without back-off */
    uint32_t rto_min_us;
    uint8_t backoff; /* doublings in force */
};

void mill_rtt_init(struct mill_rtt *rtt, uint32_t rto_min_us);

/* Takes one measurement of a segment that was not sent twice (Karn), and ends the back-off. */
void mill_rtt_sample(struct mill_rtt *rtt, uint32_t sample_us);

/* New data was acknowledged without giving a sample. Karn keeps the doubled timeout until one is
 * taken; but where every flight loses something that would leave a minute before each further loss
 * is mended, so only MILL_RTO_KEPT_DOUBLINGS of it stay in force. */
void mill_rtt_progress(struct mill_rtt *rtt);

/* The timer fired: doubles the timeout (5.5). */
void mill_rtt_back_off(struct mill_rtt *rtt);

/* The timeout now, back-off included, at most MILL_RTO_MAX_US. */
uint32_t mill_rtt_timeout_us(const struct mill_rtt *rtt);

#endif
