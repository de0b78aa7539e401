/* SPDX-License-Identifier: Apache-2.0 */
/* What the log should say of a port now: a change of its link, its end, an MTU that no longer fits,
 * checksums that a peer leaves blank. Pure: what was seen and the time are arguments; the main
 * thread asks after each look, a few times a second. */
#ifndef MILL_DATAPLANE_PORT_EVENTS_H
#define MILL_DATAPLANE_PORT_EVENTS_H

#include "base/compiler.h"

enum mill_port_event {
    MILL_PORT_EVENT_NONE,
    MILL_PORT_EVENT_LINK_UP,
    MILL_PORT_EVENT_LINK_DOWN,
    MILL_PORT_EVENT_GONE,      /* the interface was deleted; once, and nothing after it */
    MILL_PORT_EVENT_MTU_SMALL, /* the interface carries less than the port sends */
    MILL_PORT_EVENT_MTU_FITS,  /* again */
    MILL_PORT_EVENT_CHECKSUMS, /* most packets have a wrong one */
};

/* One look at a port. */
struct mill_port_seen {
    bool up;
    bool gone;
    bool mtu_small;
    uint64_t downs;          /* times the link went down since start */
    uint64_t frames;         /* received since start */
    uint64_t checksum_wrong; /* of these */
};

/* What was told; all zero at first. */
struct mill_port_told {
    struct mill_port_seen seen;
    uint64_t at_ns;       /* of the last link or MTU event: one a second, also when it flaps */
    uint64_t frames_from; /* where the window of the checksums began */
    uint64_t wrong_from;
    uint64_t checksums_at_ns; /* told at most once a minute */
};

/* ret: the event to log, at most one for a look. */
enum mill_port_event mill_port_event(struct mill_port_told *told, const struct mill_port_seen *seen,
                                     uint64_t now_ns);

#endif
