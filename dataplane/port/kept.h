/* SPDX-License-Identifier: Apache-2.0 */
/* A driver's counter that may fall to zero (memif, when its peer goes), kept as one that only
 * rises. Pure; whoever holds the port's statistics lock. */
#ifndef MILL_DATAPLANE_PORT_KEPT_H
#define MILL_DATAPLANE_PORT_KEPT_H

#include <stdatomic.h>
#include <stdint.h>

struct mill_port_kept {
    uint64_t last;          /* as the driver showed it */
    _Atomic uint64_t total; /* sum of what it rose by; relaxed, readers need no lock */
};

/* Takes what the driver shows now. A fall means that it began again at zero. */
static inline void mill_port_keep(struct mill_port_kept *kept, uint64_t shown)
{
    uint64_t more = shown >= kept->last ? shown - kept->last : shown;
    uint64_t total = atomic_load_explicit(&kept->total, memory_order_relaxed);
    atomic_store_explicit(&kept->total, total + more, memory_order_relaxed);
    kept->last = shown;
}

#endif
