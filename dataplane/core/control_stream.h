/* SPDX-License-Identifier: Apache-2.0 */
/* A maker of the one stream on which control is a client of this core (ipc/frames.h): received
 * bytes come out of a ring of the shared segment, sent ones go into another. To the core it is a
 * connection like any other, under a listener of its own, so that whatever holds for clients holds
 * for control: order, bounds, deadlines, and a death at any moment. The core's thread. */
#ifndef MILL_DATAPLANE_CONTROL_STREAM_H
#define MILL_DATAPLANE_CONTROL_STREAM_H

#include "dataplane/stream/stream.h"
#include "ipc/frames.h"

enum {
    /* Listener of control's stream; clients' come before it. Counted, shown nowhere. */
    MILL_LISTENER_CONTROL = MILL_MAP_LISTENERS_MAX,
};

struct mill_control_stream;

/* Attaches to the rings of core's part of the segment. Takes all memory it will ever use. bell is
 * control's and stays the caller's. ret: 0, -ENOMEM, -EBADMSG damaged rings. */
int mill_control_stream_create(struct mill_ipc_segment *ipc, struct mill_ipc_core *core,
                               uint64_t incarnation, struct mill_bell *bell,
                               struct mill_loans *loans, uint8_t *arena_base,
                               const struct mill_stream_events *events, void *context,
                               struct mill_control_stream **ret_maker) MILL_WARN_UNUSED;
struct mill_stream_maker *mill_control_stream_maker(struct mill_control_stream *maker);
/* Bytes of memory of one. */
uint64_t mill_control_stream_bytes(void);

#endif
