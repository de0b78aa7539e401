/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons of 32-bit sequence numbers and timestamps across their wrap (RFC 9293, 3.4): the sign
 * of the difference decides, so both operands must lie within 2^31 of each other. Pure. */
#ifndef MILL_DATAPLANE_NET_SEQ_H
#define MILL_DATAPLANE_NET_SEQ_H

#include "base/compiler.h"

static inline bool mill_seq_lt(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

static inline bool mill_seq_le(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) <= 0;
}

static inline uint32_t mill_seq_max(uint32_t a, uint32_t b)
{
    return mill_seq_lt(a, b) ? b : a;
}

static inline uint32_t mill_seq_min(uint32_t a, uint32_t b)
{
    return mill_seq_lt(a, b) ? a : b;
}

#endif
