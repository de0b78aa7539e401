/* SPDX-License-Identifier: Apache-2.0 */
/* Internet checksum (RFC 1071) over memory in pieces of any length and alignment. Pure. */
#ifndef MILL_DATAPLANE_PORT_CSUM_H
#define MILL_DATAPLANE_PORT_CSUM_H

#include "base/compiler.h"

/* A running sum; start with all zero. */
struct mill_csum {
    uint64_t sum; /* of 16-bit words as they lie in memory, carries not yet folded */
    bool odd;     /* bytes so far: the next piece starts in the middle of a word */
};

/* Adds the next size_bytes of the message. */
void mill_csum_add(struct mill_csum *csum, const void *bytes, uint32_t size_bytes);

/* The same, and copies them to another place in the same pass: bytes are touched once. */
void mill_csum_copy(struct mill_csum *csum, void *to, const void *bytes, uint32_t size_bytes);

/* The checksum to store as it lies in memory (no byte swap needed). 0 when the message included a
 * right checksum. */
uint16_t mill_csum_end(const struct mill_csum *csum);

#endif
