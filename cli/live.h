/* SPDX-License-Identifier: Apache-2.0 */
/* Two readings of the shared counters as rates: what `millrace top` shows and `status` shows of
 * stages. A reading is a copy, so that both ends of a rate stay as they were. */
#ifndef MILL_CLI_LIVE_H
#define MILL_CLI_LIVE_H

#include <jansson.h>

#include "ipc/counters.h"

struct live_reading {
    uint64_t at_ns;
    struct mill_counters *counters; /* a copy */
};

/* Copies. ret: 0, -ENOMEM. The second call into the same reading uses its memory again. */
int live_read(const struct mill_counters *counters, struct live_reading *reading) MILL_WARN_UNUSED;
void live_free(struct live_reading *reading);

/* Rows of all tables: {"interval_s", "cores": [...], "partitions": [...], ...}. Counters that fell
 * (a restart in between) give rate 0. */
json_t *live_json(const struct live_reading *before, const struct live_reading *after);
/* Requests by API and stage over all cores, since before (NULL: since the start): count, p50, p99
 * in microseconds; the largest is since the start. */
json_t *live_stages(const struct mill_counters *before, const struct mill_counters *after);
/* Who had a core's CPU while it could have run: rows, most time first. */
json_t *live_takers(const struct mill_shared_jitter *jitter);
/* Text of shared memory that a dying writer may have left without an end. */
json_t *live_text(const char *text, size_t size_bytes);

#endif
