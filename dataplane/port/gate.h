/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a core out of a driver while that driver works on EAL's interrupt thread.
 *
 * net_memif maps and unmaps its peer's memory on that thread, whenever a peer comes or is killed,
 * and looks for nobody who is copying from there at that moment (DPDK 22.11, memif_disconnect). So
 * the interrupt thread is held in a callback of ours. When something waits for it, the gates of all
 * such ports are closed, cores that are inside come out, and only then the thread goes back into
 * EAL; it returns to us when it has done its work.
 *
 *   held:   cores may enter   |   thread sleeps in our callback until EAL's epoll has an event
 *   loose:  no core is inside |   thread runs the drivers' handlers, then enters our callback again
 *
 * A core never waits at a gate: it finds no frames and keeps its own (HELD), or drops them (DOWN).
 */
#ifndef MILL_DATAPLANE_PORT_GATE_H
#define MILL_DATAPLANE_PORT_GATE_H

#include "dataplane/port/port_internal.h"

enum {
    /* The driver's thread is at work, or about to be. */
    MILL_GATE_HELD = 1u << 0,
    /* No peer is connected: the driver must not be called, frames go where a cable without carrier
     * sends them. */
    MILL_GATE_DOWN = 1u << 1,
};

/* Start-up, main thread: holds EAL's interrupt thread from now on. Once per process, later calls do
 * nothing. ret: 0, or negative with the reason. */
int mill_gate_install(struct mill_report *report) MILL_WARN_UNUSED;
/* Main thread, before EAL ends: waits for the thread to come in, where it stays. Nothing of this
 * file may be called after it. */
void mill_gate_stop(void);

/* Main thread: no driver's handler runs from here to mill_gate_unlock. Makes it safe to create,
 * start and remove devices. Nothing to do when no gate was installed. */
void mill_gate_lock(void);
void mill_gate_unlock(void);

/* Under the lock: this port has a gate from now on (closed until its link is up), or no more.
 * ret: 0, -ENFILE too many such ports. */
int mill_gate_add(struct mill_port *port) MILL_WARN_UNUSED;
void mill_gate_remove(struct mill_port *port);

/* Owner core, before and after driver calls of one burst. ret: false when it must not call the
 * driver now. Ports without a gate always may. */
static inline bool mill_gate_enter(struct mill_port_queue *queue)
{
    if (!queue->gated) {
        return true;
    }
    /* Dekker with close_gate: each side writes its word, then reads the other's; both need the full
     * barrier of sequential consistency. */
    atomic_store_explicit(&queue->inside, 1, memory_order_seq_cst);
    if (MILL_UNLIKELY(atomic_load_explicit(&queue->port->gate, memory_order_seq_cst) != 0)) {
        atomic_store_explicit(&queue->inside, 0, memory_order_release);
        return false;
    }
    return true;
}

static inline void mill_gate_leave(struct mill_port_queue *queue)
{
    if (queue->gated) {
        /* Everything done inside happens before the driver's thread sees 0 (close_gate). */
        atomic_store_explicit(&queue->inside, 0, memory_order_release);
    }
}

#endif
