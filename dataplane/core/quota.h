/* SPDX-License-Identifier: Apache-2.0 */
/* How long clients have to wait because of their quotas. Pure: no clock, no map, no connection.
 *
 * A limit is a line in time: each use moves the point up to which a client has used what it may by
 * the time that its limit takes to give as much, and the point never lies further back than the
 * burst. The client waits until the point is passed. Nothing is counted per window, nothing wakes.
 *
 *      now - burst          now      point
 *   -------|-----------------|---------|------>    wait = point - now
 *          point of a client that used nothing
 *
 * One table of points is shared by all cores of a process. Any core calls at any time: a point
 * moves by one atomic addition, so that what several cores use at once is never lost; no lock, no
 * loop that another core can make longer. A client whose point lies at its farthest is as one that
 * was never seen: only such a client's place is given to another, so nobody can push another's
 * debt out. Clients with limits of their own have places apart from those that share the default.
 * Who finds no place shares one point with all others who find none.
 *
 * Accurate up to the time between the look at a point and its move: two cores that find a client
 * at rest in the same instant may both begin at its burst. */
#ifndef MILL_DATAPLANE_QUOTA_H
#define MILL_DATAPLANE_QUOTA_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "ipc/map.h"

enum {
    MILL_QUOTA_CLIENTS_MAX = 4096, /* of either part; a power of two */
    MILL_QUOTA_PLACES = 32,        /* that a client may have */
};
/* The longest debt: a client that used more at once is let off the rest. That of MILL_QUOTA_TIME is
 * no longer than the burst. */
#define MILL_QUOTA_DEBT_MAX_NS (86400ull * 1000000000ull)

enum mill_quota_part {
    MILL_QUOTA_PART_NAMED,  /* limits of their own */
    MILL_QUOTA_PART_OTHERS, /* those of all others */
    MILL_QUOTA_PART_COUNT,
};

/* The points of one client; a cache line. */
struct mill_quota_client {
    _Alignas(64) _Atomic uint64_t hash;            /* of its id; 0: nobody */
    _Atomic uint64_t per_second[MILL_QUOTA_KINDS]; /* for which a point was moved last */
    _Atomic uint64_t until_ns[MILL_QUOTA_KINDS];
};

struct mill_quota_table {
    struct mill_quota_client together; /* all clients, where they share a limit */
    struct mill_quota_client rest;     /* who found no place */
    struct mill_quota_client accepts;  /* new connections of the broker, in its first point */
    struct mill_quota_client clients[MILL_QUOTA_PART_COUNT][MILL_QUOTA_CLIENTS_MAX];
};

/* The place of the client with this hash, not 0; burst_ns: of its limits. ret: never NULL,
 * &table->rest when all places that it may have are taken. */
struct mill_quota_client *mill_quota_place(struct mill_quota_table *table,
                                           enum mill_quota_part part, uint64_t hash,
                                           uint64_t burst_ns, uint64_t now_ns);
/* True while the place is this client's. */
bool mill_quota_has(const struct mill_quota_client *client, uint64_t hash);

/* Notes a use under a limit, per_second > 0; a limit that is not the last one begins anew. hash: of
 * the client; 0 for the table's two common points. ret: how long to wait, in ns, at most two days.
 */
uint64_t mill_quota_use(struct mill_quota_client *client, uint64_t hash, enum mill_quota_kind kind,
                        uint64_t per_second, uint64_t amount, uint64_t burst_ns, uint64_t now_ns);
/* The same without a use. */
uint64_t mill_quota_owed(const struct mill_quota_client *client, enum mill_quota_kind kind,
                         uint64_t per_second, uint64_t now_ns);

#endif
