/* SPDX-License-Identifier: Apache-2.0 */
/* A reference names bytes of an extent without a pointer: (extent, position, length). It may travel
 * between cores and into a send queue; whoever holds one holds a loan (hugepages/loans.h).
 *
 *   arena:  | unit 0 | unit 1 | unit 2 | ...            each 4 KiB
 *   extent: first unit's number; its bytes start at base + extent * 4096
 */
#ifndef MILL_BASE_REF_H
#define MILL_BASE_REF_H

#include "base/compiler.h"

enum {
    MILL_EXTENT_UNIT_BYTES = 4096, /* smallest extent; an extent's id counts these from the base */
    MILL_EXTENT_UNIT_SHIFT = 12,
};

struct mill_ref {
    uint32_t extent;     /* number of the extent's first unit */
    uint32_t pos_bytes;  /* from the extent's start */
    uint32_t size_bytes; /* never 0 in a queue */
};
static_assert(sizeof(struct mill_ref) == 12, "a reference crosses rings");

/* Address of the referenced bytes in a process that mapped the arena at base. */
static inline uint8_t *mill_ref_data(uint8_t *arena_base, const struct mill_ref *ref)
{
    return arena_base + ((size_t)ref->extent << MILL_EXTENT_UNIT_SHIFT) + ref->pos_bytes;
}

#endif
