/* SPDX-License-Identifier: Apache-2.0 */
/* Congestion control of one connection, behind a table of six hooks; Reno (RFC 5681, with byte
 * counting of RFC 3465 and L = 2) is the one there is. It decides cwnd and ssthresh; what is lost
 * and what goes out next is tcp_output's and tcp_sack's. Pure. */
#ifndef MILL_DATAPLANE_NET_TCP_CC_H
#define MILL_DATAPLANE_NET_TCP_CC_H

#include "base/check.h"

enum {
    MILL_CC_INITIAL_SEGMENTS = 10, /* RFC 6928 */
    MILL_CC_ABC_LIMIT = 2,         /* RFC 3465: segments of growth per acknowledgement */
    MILL_CC_CWND_MAX = 1 << 28,
};

struct mill_cc;

struct mill_cc_ops {
    const char *name;
    /* The connection is established; mss is known. */
    void (*start)(struct mill_cc *cc, uint32_t mss);
    /* New data was acknowledged outside of a recovery while cwnd was what limited us. */
    void (*acked)(struct mill_cc *cc, uint32_t bytes);
    /* A loss was seen by duplicates; flight_bytes were outstanding. */
    void (*congestion)(struct mill_cc *cc, uint32_t flight_bytes);
    /* That recovery is over; flight_bytes are outstanding now. */
    void (*recovered)(struct mill_cc *cc, uint32_t flight_bytes);
    /* The timer fired; first: not yet since the last progress. */
    void (*timeout)(struct mill_cc *cc, uint32_t flight_bytes, bool first);
    /* Nothing was sent for a timeout. */
    void (*idle)(struct mill_cc *cc);
};

struct mill_cc {
    const struct mill_cc_ops *ops;
    uint32_t cwnd_bytes;
    uint32_t ssthresh_bytes;
    uint32_t mss;
    uint32_t counted_bytes; /* acknowledged in congestion avoidance since cwnd last grew */
};

extern const struct mill_cc_ops mill_cc_reno;

/* IW of RFC 6928: min(10 * mss, max(2 * mss, 14600)). */
uint32_t mill_cc_initial_window(uint32_t mss);

#endif
