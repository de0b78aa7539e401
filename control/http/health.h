/* SPDX-License-Identifier: Apache-2.0 */
/* What /healthz and /readyz say.
 *
 * live:  nothing is stuck that only a restart of the instance would mend: control makes its turns,
 * the main thread of millraced does, no core stands still. What the supervisor is just restarting
 *        does not count.
 * ready: a client that connects now can produce and fetch: both processes serve, millraced's main
 *        thread lives and no core stands still.
 *
 * Both answer 200 with "ok", or 503 with a line per reason. Reads shared memory; any thread. */
#ifndef MILL_CONTROL_HTTP_HEALTH_H
#define MILL_CONTROL_HTTP_HEALTH_H

#include "control/http/text.h"
#include "ipc/counters.h"
#include "ipc/frames.h"

enum {
    MILL_HEALTH_STUCK_MS = 10000,  /* without a turn: not live */
    MILL_HEALTH_UNREADY_MS = 2000, /* without a turn: not ready */
};

/* Appends reasons, a line each, or "ok". ret: true when all is well. */
bool mill_health_live(const struct mill_counters *counters, const struct mill_ipc_segment *ipc,
                      uint64_t now_ns, struct mill_text *text);
bool mill_health_ready(const struct mill_counters *counters, const struct mill_ipc_segment *ipc,
                       uint64_t now_ns, struct mill_text *text);

#endif
