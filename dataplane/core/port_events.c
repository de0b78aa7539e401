/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what the log says of a port; see port_events.h. */
#include "dataplane/core/port_events.h"

#include "base/clock.h"

enum {
    WRONG_MIN = 10,       /* fewer wrong checksums say nothing: lines do damage a frame */
    WINDOW_FRAMES = 1000, /* then the share is taken anew */
    CHECKSUMS_PAUSE_S = 60,
    EVENT_PAUSE_S = 1,
};

static bool mostly_wrong(struct mill_port_told *told, const struct mill_port_seen *seen,
                         uint64_t now_ns)
{
    uint64_t frames = seen->frames - told->frames_from;
    uint64_t wrong = seen->checksum_wrong - told->wrong_from;
    bool quiet = told->checksums_at_ns == 0 ||
                 now_ns - told->checksums_at_ns >= CHECKSUMS_PAUSE_S * MILL_NS_PER_S;
#ifdef MILL_MUTANT_CORE_CHECKSUM_SHARE
    wrong = 0;
#endif
    bool most = wrong >= WRONG_MIN && wrong > frames / 2;
    if (most || frames >= WINDOW_FRAMES) {
        told->frames_from = seen->frames;
        told->wrong_from = seen->checksum_wrong;
    }
    if (!most || !quiet) {
        return false;
    }
    told->checksums_at_ns = now_ns;
    return true;
}

enum mill_port_event mill_port_event(struct mill_port_told *told, const struct mill_port_seen *seen,
                                     uint64_t now_ns)
{
    struct mill_port_seen *last = &told->seen;
    if (last->gone) {
        return MILL_PORT_EVENT_NONE;
    }
    if (seen->gone) {
        last->gone = true;
        return MILL_PORT_EVENT_GONE;
    }
    bool linked = seen->up != last->up || seen->downs != last->downs;
    bool paused = told->at_ns > 0 && now_ns - told->at_ns < EVENT_PAUSE_S * MILL_NS_PER_S;
#ifdef MILL_MUTANT_CORE_EVENTS_UNLIMITED
    paused = false;
#endif
    if (!paused && linked) {
        last->up = seen->up;
        last->downs = seen->downs;
        told->at_ns = now_ns;
        return seen->up ? MILL_PORT_EVENT_LINK_UP : MILL_PORT_EVENT_LINK_DOWN;
    }
    if (!paused && seen->mtu_small != last->mtu_small) {
        last->mtu_small = seen->mtu_small;
        told->at_ns = now_ns;
        return seen->mtu_small ? MILL_PORT_EVENT_MTU_SMALL : MILL_PORT_EVENT_MTU_FITS;
    }
    return mostly_wrong(told, seen, now_ns) ? MILL_PORT_EVENT_CHECKSUMS : MILL_PORT_EVENT_NONE;
}
