/* SPDX-License-Identifier: Apache-2.0 */
/* The Internet checksum (RFC 1071) over memory and over buffer chains. Sums are kept in the
 * machine's order: the one's complement sum does not care, so results are stored by memcpy. Pure.
 */
#ifndef MILL_DATAPLANE_NET_CHECKSUM_H
#define MILL_DATAPLANE_NET_CHECKSUM_H

#include "base/chain.h"

/* One's complement sum of size_bytes at data, folded to 16 bits. An odd last byte counts as if a
 * zero followed. */
uint16_t mill_csum_sum(const void *data, size_t size_bytes);

/* Adds two folded sums. */
static inline uint16_t mill_csum_add(uint16_t a, uint16_t b)
{
    uint32_t sum = (uint32_t)a + b;
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* Sum over size_bytes of the chain of buffers from byte skip_bytes on; the chain holds at least
 * skip_bytes + size_bytes. */
uint16_t mill_csum_sum_chain(const struct mill_buf *buf, uint32_t skip_bytes, uint32_t size_bytes);

/* Sum of the TCP pseudo-header (RFC 9293, 3.1); addresses in host order. */
uint16_t mill_csum_pseudo(uint32_t source, uint32_t target, uint8_t protocol, uint16_t size_bytes);

#endif
