/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of /metrics from shared memory. Counters come by the lists of base/counter_lists.h, so
 * a new one shows up by itself: millrace_KIND_NAME, with _seconds for _ns and _total for what only
 * grows. Reads words that others write; never waits; any thread. */
#ifndef MILL_CONTROL_HTTP_METRICS_H
#define MILL_CONTROL_HTTP_METRICS_H

#include "control/http/text.h"
#include "ipc/counters.h"
#include "ipc/frames.h"

struct mill_metrics_process {
    const char *name;
    int64_t pid; /* 0: not known */
    bool serving;
};

struct mill_metrics_source {
    const struct mill_counters *counters; /* checked */
    int64_t wall_ms;
    const struct mill_metrics_process *processes;
    uint32_t processes_count;
};

/* Appends everything to text (text->failed tells when it did not fit). */
void mill_metrics_render(const struct mill_metrics_source *source, struct mill_text *text);

/* --- for the files of this folder --------------------------------------------------------------
 */

/* Samples of one histogram, summed over hists. */
void mill_metrics_hist(struct mill_text *text, const char *name, const struct mill_label *labels,
                       uint32_t labels_count, const struct mill_hist *const *hists,
                       uint32_t hists_count);
/* The names of Kafka's own metrics that have a meaning here (kafka_names.c). */
void mill_metrics_kafka(const struct mill_metrics_source *source, struct mill_text *text);

static inline struct mill_label mill_label_of(const char *name, const char *value,
                                              size_t size_bytes)
{
    return (struct mill_label){.name = name, .value = value, .size_bytes = size_bytes};
}

#endif
