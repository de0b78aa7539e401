/* SPDX-License-Identifier: Apache-2.0 */
/* TCP options: reading and writing (RFC 9293, 2018, 7323). Pure. */
#ifndef MILL_DATAPLANE_NET_TCP_OPTIONS_H
#define MILL_DATAPLANE_NET_TCP_OPTIONS_H

#include "dataplane/net/tcp_sack.h"

enum {
    MILL_TCP_OPTION_BYTES_MAX = 40,
    MILL_TCP_TIMESTAMP_BYTES = 12, /* with two fillers before */
    MILL_TCP_SACK_BLOCKS_MAX = 4,
    MILL_TCP_WSCALE_MAX = 14, /* RFC 7323, 2.3 */
    MILL_TCP_MSS_DEFAULT = 536,
    MILL_TCP_MSS_MIN = 88, /* defence against segments of one byte */
};

struct mill_tcp_options {
    bool has_mss;
    bool has_wscale;
    bool has_timestamp;
    bool sack_permitted;
    uint8_t wscale; /* at most MILL_TCP_WSCALE_MAX */
    uint8_t sack_count;
    uint16_t mss;
    uint32_t ts_value;
    uint32_t ts_echo;
    struct mill_sack_range sack[MILL_TCP_SACK_BLOCKS_MAX];
};

/* Reads size_bytes of options. MSS, window scale and SACK-permitted count only in a SYN. Unknown
 * kinds are skipped. ret: 0, -EBADMSG for a length of 0 or 1, one past the end, or one that its
 * kind does not have. */
int mill_tcp_options_parse(const uint8_t *bytes, uint32_t size_bytes, bool syn,
                           struct mill_tcp_options *ret_options) MILL_WARN_UNUSED;

/* Writes MSS, SACK-permitted, timestamp and window scale, as far as set, for a SYN.
 * ret: bytes, a multiple of 4. */
uint32_t mill_tcp_options_write_syn(uint8_t *to, const struct mill_tcp_options *options);

/* Writes timestamp and SACK blocks, as far as set and as fit. ret: bytes, a multiple of 4. */
uint32_t mill_tcp_options_write(uint8_t *to, const struct mill_tcp_options *options);

#endif
