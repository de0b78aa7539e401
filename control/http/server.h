/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP listener: GET and HEAD of /metrics, /healthz and /readyz. It has a thread of its own
 * that sleeps while nobody asks; at most MILL_HTTP_CONNECTIONS_MAX connections are open, and one
 * whose request or answer is not through after MILL_HTTP_LIMIT_MS is closed. */
#ifndef MILL_CONTROL_HTTP_SERVER_H
#define MILL_CONTROL_HTTP_SERVER_H

#include "base/report.h"
#include "config/config.h"
#include "ipc/counters.h"
#include "ipc/frames.h"

enum {
    MILL_HTTP_CONNECTIONS_MAX = 32,
    MILL_HTTP_LIMIT_MS = 10000,
    MILL_HTTP_CONNECTION_BYTES = 16 << 10, /* a request and the head of its answer */
};

struct mill_http;

/* Listens and starts the thread. counters and ipc are checked and outlive it. ret: 0, also when
 * http.listener is empty (then *ret_http is NULL); negative errno of the listening, with its reason
 * and remedy; -ENOMEM. Control's start only. */
int mill_http_open(const struct mill_config *config, struct mill_counters *counters,
                   struct mill_ipc_segment *ipc, struct mill_http **ret_http,
                   struct mill_report *report) MILL_WARN_UNUSED;
/* Ends the thread and every connection. NULL is fine. */
void mill_http_close(struct mill_http *http);

#endif
